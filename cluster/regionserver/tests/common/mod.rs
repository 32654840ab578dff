//! One region server over a simulated file system, called as a client would call it, without a network.
#![allow(dead_code)] // each test binary uses its part

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::sim::SimFileSystem;
use halcyon_env::{Clock, Env, ManualClock};
use halcyon_proto::pb;
use halcyon_regionserver::{AdminService, ClientService, Predecessors, RegionServer, RegionServerSettings};
use halcyon_rpc::{Call, CallClass, Codec, Connection, Outcome, Reply, RpcError, Service, decode_cells};
use halcyon_schema::{FamilyDescriptor, RegionInfo, TableDescriptor, TableName};
use halcyon_wal::SyncMode;
use prost::Message;

pub const ROOT: &str = "/hbase";

pub struct Lab {
    pub fs: SimFileSystem,
    pub clock: Arc<ManualClock>,
    pub server: Arc<RegionServer>,
    pub client: ClientService,
    pub admin: AdminService,
    pub connection: Arc<Connection>,
    pub info: RegionInfo,
    pub runtime: tokio::runtime::Runtime,
}

pub fn settings() -> RegionServerSettings {
    RegionServerSettings {
        memory_bytes: 64 << 20,
        wal_sync: SyncMode::Written,
        flush_threads_count: 1,
        ..RegionServerSettings::default()
    }
}

pub fn table() -> TableDescriptor {
    TableDescriptor::new(TableName::parse(b"t").unwrap())
        .with_family(FamilyDescriptor::new(b"f").unwrap().with("VERSIONS", "3"))
        .with_family(FamilyDescriptor::new(b"g").unwrap())
}

pub fn connection(codec: Option<Codec>, version: Option<(u32, u32)>) -> Arc<Connection> {
    let user = Some("tester".to_string());
    Arc::new(Connection { user, client_version: version, codec, ..Connection::new(1, "127.0.0.1:9") })
}

impl Lab {
    pub fn new() -> Lab {
        Lab::with(SimFileSystem::new(), settings())
    }

    /// Opens the region `t` on what the file system holds.
    pub fn with(fs: SimFileSystem, settings: RegionServerSettings) -> Lab {
        Lab::over(fs, settings, |env| env)
    }

    /// As [`Lab::with`], in another surrounding.
    pub fn over(fs: SimFileSystem, settings: RegionServerSettings, change: impl FnOnce(Env) -> Env) -> Lab {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let env = change(Env { clock: clock.clone(), ..fs.env() });
        let server =
            RegionServer::start(env, Path::new(ROOT), &Predecessors::All, settings, "localhost", 16020)
                .unwrap();
        let info = RegionInfo::new(TableName::parse(b"t").unwrap(), Bytes::new(), Bytes::new(), 1);
        server.region_files().create_region_files(&info, &table()).unwrap();
        server.open_region(&info, &table().into()).unwrap();
        Lab {
            fs,
            clock,
            client: ClientService::new(server.clone()),
            admin: AdminService::new(server.clone()),
            server,
            connection: connection(Some(Codec::KeyValue), Some((2, 6))),
            info,
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap(),
        }
    }

    pub fn specifier(&self) -> pb::RegionSpecifier {
        pb::RegionSpecifier { r#type: 1, value: self.info.region_name().clone() }
    }

    pub fn raw_call(&self, method: &str, param: Bytes, cells: Vec<Cell>) -> Call {
        Call {
            id: 1,
            method: method.to_string(),
            param,
            cells,
            priority: 0,
            class: CallClass::Read,
            timeout: Some(Duration::from_secs(20)),
            is_traced: false,
            received_ns: self.clock.monotonic_ns(),
            attributes: Vec::new(),
            connection: self.connection.clone(),
        }
    }

    pub fn finish(&self, service: &dyn Service, outcome: Outcome) -> Result<Reply, RpcError> {
        service.batch_done();
        match outcome {
            Outcome::Ready(result) => result,
            Outcome::Later(later) => self.runtime.block_on(later),
        }
    }

    /// Calls the client service.
    pub fn call<R: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
        cells: Vec<Cell>,
    ) -> Result<(R, Vec<Cell>), RpcError> {
        let call = self.raw_call(method, request.encode_to_vec().into(), cells);
        let _context = self.runtime.enter();
        let reply = self.finish(&self.client, self.client.call(call))?;
        Ok(decoded(reply))
    }

    pub fn admin<R: Message + Default>(&self, method: &str, request: &impl Message) -> Result<R, RpcError> {
        let call = self.raw_call(method, request.encode_to_vec().into(), Vec::new());
        let reply = self.finish(&self.admin, self.admin.call(call))?;
        Ok(decoded(reply).0)
    }

    pub fn put(&self, row: &str, qualifier: &str, value: &str) {
        let cell = Cell::put(row.as_bytes(), b"f", qualifier.as_bytes(), i64::MAX, value.as_bytes());
        let response = self.mutate(put(1), vec![cell]).unwrap();
        assert_eq!(response.0.processed, Some(true));
    }

    pub fn mutate(
        &self,
        mutation: pb::MutationProto,
        cells: Vec<Cell>,
    ) -> Result<(pb::MutateResponse, Vec<Cell>), RpcError> {
        let request =
            pb::MutateRequest { region: self.specifier(), mutation, condition: None, nonce_group: Some(1) };
        self.call("Mutate", &request, cells)
    }

    pub fn get(&self, get: pb::Get) -> Result<(pb::Result, Vec<Cell>), RpcError> {
        let request = pb::GetRequest { region: self.specifier(), get };
        let (response, cells) = self.call::<pb::GetResponse>("Get", &request, Vec::new())?;
        Ok((response.result.expect("always there"), cells))
    }

    /// Values of a row in order.
    pub fn row(&self, row: &str) -> Vec<String> {
        text(&self.get(get(row)).unwrap().1)
    }

    pub fn scan(&self, request: &pb::ScanRequest) -> Result<(pb::ScanResponse, Vec<Cell>), RpcError> {
        self.call("Scan", request, Vec::new())
    }

    /// A request that opens a scanner and asks for `rows` results.
    pub fn open(&self, rows: u32, scan: pb::Scan) -> pb::ScanRequest {
        pb::ScanRequest {
            region: Some(self.specifier()),
            scan: Some(scan),
            number_of_rows: Some(rows),
            client_handles_partials: Some(true),
            client_handles_heartbeats: Some(true),
            ..Default::default()
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.server.abort("the test is over");
    }
}

pub fn decoded<R: Message + Default>(reply: Reply) -> (R, Vec<Cell>) {
    let cells = match reply.cells {
        Some(block) => decode_cells(block.codec(), block.into_bytes()).unwrap(),
        None => Vec::new(),
    };
    (R::decode(reply.message).unwrap(), cells)
}

pub fn put(cells: i32) -> pb::MutationProto {
    mutation(pb::mutation_proto::MutationType::Put, cells)
}

pub fn mutation(kind: pb::mutation_proto::MutationType, cells: i32) -> pb::MutationProto {
    pb::MutationProto {
        mutate_type: Some(kind as i32),
        associated_cell_count: Some(cells),
        ..Default::default()
    }
}

pub fn get(row: &str) -> pb::Get {
    pb::Get { row: Bytes::copy_from_slice(row.as_bytes()), ..Default::default() }
}

pub fn text(cells: &[Cell]) -> Vec<String> {
    cells.iter().map(|cell| String::from_utf8_lossy(cell.value()).into_owned()).collect()
}

pub fn rows(cells: &[Cell]) -> Vec<String> {
    cells.iter().map(|cell| String::from_utf8_lossy(cell.row()).into_owned()).collect()
}

pub fn class<T>(result: Result<T, RpcError>) -> String {
    let error = result.err().expect("an exception");
    error.class.rsplit('.').next().unwrap().to_string()
}
