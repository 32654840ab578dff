//! A server that does what a test tells it: one table with regions, and a script for the calls to them.
#![allow(dead_code)] // each test uses its part

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Cell, CellComparator};
use halcyon_client::{Cluster, ClusterAddress, ClusterOptions, RetryPolicy, Table};
use halcyon_env::SystemClock;
use halcyon_proto::pb;
use halcyon_rpc::{
    Call, CellBlock, ExceptionClass, Outcome, Reply, RpcError, RpcServer, RpcSettings, Service, Services,
};
use halcyon_schema::{RegionInfo, ServerName, TableName};
use prost::Message;

/// What the script says to a call.
pub enum Say {
    Message(Vec<u8>, Vec<Cell>),
    Error(RpcError),
    Never,
}

/// A call to a region: method, name of the region, parameter.
pub struct Asked<'a> {
    pub method: &'a str,
    pub param: &'a Bytes,
    pub cells: &'a [Cell],
    /// Calls to regions before this one.
    pub number: usize,
}

type Script = Box<dyn FnMut(Asked<'_>) -> Say + Send>;

pub struct State {
    pub regions: Vec<RegionInfo>,
    pub table_state: Option<pb::table_state::State>,
    /// Where meta says that the regions are; `None`: at this server.
    pub elsewhere: Option<ServerName>,
    pub meta_reads: usize,
    /// What a reading of meta gets instead of rows, for once.
    pub meta_says: Option<Say>,
    /// Questions for the server of meta.
    pub meta_lookups: usize,
    pub closed_scanners: usize,
    pub renewals: usize,
    calls: usize,
    script: Script,
}

struct Fake {
    address: OnceLock<ServerName>,
    state: Arc<Mutex<State>>,
}

pub fn say(message: impl Message, cells: Vec<Cell>) -> Say {
    Say::Message(message.encode_to_vec(), cells)
}

/// An exception of a class that is told to be retriable or not.
pub fn fail(class: &'static ExceptionClass) -> Say {
    Say::Error(RpcError::new(class, "as the script says"))
}

pub fn cell(row: &str, value: &str) -> Cell {
    Cell::put(row.as_bytes(), b"f", b"q", 1, value.as_bytes())
}

impl Service for Fake {
    fn takes_cells(&self, _method: &str) -> bool {
        true
    }

    fn call(&self, call: Call) -> Outcome {
        let said = self.answer(&call);
        let codec = call.connection.codec;
        match said {
            Say::Never => Outcome::Later(Box::pin(std::future::pending())),
            Say::Error(error) => Outcome::Ready(Err(error)),
            Say::Message(message, cells) => {
                let cells = codec.filter(|_| !cells.is_empty()).map(|codec| {
                    let mut block = CellBlock::new(codec);
                    cells.iter().for_each(|cell| block.push(cell));
                    block
                });
                Outcome::Ready(Ok(Reply { cells, ..Reply::encoded(Bytes::from(message)) }))
            }
        }
    }
}

impl Fake {
    fn answer(&self, call: &Call) -> Say {
        let address = self.address.get().expect("set before a client comes").to_pb();
        if call.method == "GetMetaRegionLocations" {
            self.state.lock().unwrap().meta_lookups += 1;
            let location = pb::RegionLocation { server_name: Some(address), ..Default::default() };
            return say(pb::GetMetaRegionLocationsResponse { meta_locations: vec![location] }, Vec::new());
        }
        let mut state = self.state.lock().unwrap();
        if call.method == "Scan" {
            let request = pb::ScanRequest::decode(call.param.clone()).unwrap();
            if request.close_scanner() {
                state.closed_scanners += 1;
                return say(pb::ScanResponse::default(), Vec::new());
            }
            if request.renew() {
                state.renewals += 1;
                return say(pb::ScanResponse { ttl: Some(100), ..Default::default() }, Vec::new());
            }
            let region = request.region.as_ref().map(|region| region.value.clone());
            if region.is_some_and(|name| name == RegionInfo::meta().region_name()) {
                if let Some(said) = state.meta_says.take() {
                    return said;
                }
                return self.scan_meta(&mut state, &request.scan.unwrap());
            }
        }
        let number = state.calls;
        state.calls += 1;
        (state.script)(Asked { method: &call.method, param: &call.param, cells: &call.cells, number })
    }

    fn scan_meta(&self, state: &mut State, scan: &pb::Scan) -> Say {
        let server = self.address.get().unwrap();
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        if scan.column[0].family == "table" {
            if let Some(table_state) = state.table_state {
                let value = pb::TableState { state: table_state as i32 }.encode_to_vec();
                rows.push(vec![Cell::put(b"t", b"table", b"state", 1, &value)]);
            }
        } else {
            state.meta_reads += 1;
            let order = CellComparator::Meta;
            let start = scan.start_row.clone().unwrap_or_default();
            let mut regions = state.regions.clone();
            regions.sort_by(|a, b| order.compare_rows(a.region_name(), b.region_name()));
            let is_wanted = |region: &RegionInfo| {
                let compared = order.compare_rows(region.region_name(), &start);
                match scan.reversed() {
                    true => compared.is_le(),
                    false => compared.is_gt() || (compared.is_eq() && scan.include_start_row()),
                }
            };
            regions.retain(is_wanted);
            if scan.reversed() {
                regions.reverse();
            }
            let server = state.elsewhere.as_ref().unwrap_or(server);
            for region in regions {
                let cell = |qualifier: &[u8], value: &[u8]| {
                    Cell::put(region.region_name(), b"info", qualifier, 1, value)
                };
                let address = server.address();
                rows.push(vec![
                    cell(b"regioninfo", &region.encode_value()),
                    cell(b"server", address.as_bytes()),
                    cell(b"serverstartcode", &server.start_code.to_be_bytes()),
                ]);
            }
        }
        scanned(rows, |response| response.more_results = Some(false))
    }
}

/// Rows of a scan, whole ones.
pub fn scanned(rows: Vec<Vec<Cell>>, change: impl FnOnce(&mut pb::ScanResponse)) -> Say {
    let mut response = pb::ScanResponse {
        cells_per_result: rows.iter().map(|row| row.len() as u32).collect(),
        partial_flag_per_result: vec![false; rows.len()],
        scanner_id: Some(7),
        more_results: Some(true),
        more_results_in_region: Some(true),
        ..Default::default()
    };
    change(&mut response);
    say(response, rows.concat())
}

pub struct Running {
    pub server: RpcServer,
    pub state: Arc<Mutex<State>>,
    pub cluster: Cluster,
    pub table: Table,
}

pub fn table_name() -> TableName {
    TableName::parse(b"t").unwrap()
}

pub fn region(start: &'static str, end: &'static str, id: u64) -> RegionInfo {
    RegionInfo::new(table_name(), Bytes::from(start), Bytes::from(end), id)
}

/// Short pauses, and two seconds for an operation.
pub fn options() -> ClusterOptions {
    ClusterOptions {
        call_timeout: Duration::from_millis(400),
        operation_timeout: Duration::from_secs(2),
        retry: RetryPolicy {
            pause: Duration::from_millis(1),
            pause_overloaded: Duration::from_millis(20),
            ..RetryPolicy::default()
        },
        ..ClusterOptions::default()
    }
}

pub async fn start(
    regions: Vec<RegionInfo>,
    options: ClusterOptions,
    script: impl FnMut(Asked<'_>) -> Say + Send + 'static,
) -> Running {
    let state = State {
        regions,
        table_state: Some(pb::table_state::State::Enabled),
        elsewhere: None,
        meta_reads: 0,
        meta_says: None,
        meta_lookups: 0,
        closed_scanners: 0,
        renewals: 0,
        calls: 0,
        script: Box::new(script),
    };
    let state = Arc::new(Mutex::new(state));
    let fake = Arc::new(Fake { address: OnceLock::new(), state: Arc::clone(&state) });
    let mut services = Services::new();
    services.insert("ClientService", Arc::clone(&fake) as Arc<dyn Service>);
    services.insert("ClientMetaService", Arc::clone(&fake) as Arc<dyn Service>);
    let address = "127.0.0.1:0".parse().unwrap();
    let bound = RpcServer::bind(address, RpcSettings::default(), Arc::new(SystemClock::new())).await;
    let server = bound.unwrap().serve(services, "the id");
    fake.address.set(ServerName::new("127.0.0.1", server.local_addr().port(), 1)).unwrap();
    let address = ClusterAddress::registry([server.local_addr().to_string()]);
    let cluster = Cluster::connect(address, options).await.unwrap();
    let table = cluster.table(table_name(), 0);
    Running { server, state, cluster, table }
}
