//! A master's table of servers behind a port, and region servers that do what a test tells them.
#![allow(dead_code)] // each test uses its part

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType, Error, ErrorKind};
use halcyon_client::{ClientError, ConnectOptions, Connection};
use halcyon_contract::{Assignments, RegionServerStatus, RegionStateTransition, Unasked};
use halcyon_env::{Clock, SystemClock};
use halcyon_proto::pb;
use halcyon_proto::pb::region_state_transition::TransitionCode;
use halcyon_rpc::{Call, CellBlock, Outcome, Reply, RpcError, RpcServer, RpcSettings, Service, Services};
use halcyon_schema::{RegionInfo, ServerName, TableDescriptor, TableName};
use halcyon_servers::{Servers, ServersSettings};
use prost::Message;
use tokio::runtime::{Builder, Runtime};

pub const ACTIVE_MS: i64 = 1_760_000_000_000;
pub const EPOCH: u64 = 7;
pub const TIME_MAX: Duration = Duration::from_secs(20);

/// The master's side.
pub struct Master {
    pub runtime: Arc<Runtime>,
    pub servers: Arc<Servers>,
    pub status: Arc<Status>,
    rpc: RpcServer,
    connection: Connection,
}

/// What the master says to reports that answer no order.
pub struct Status {
    pub answer: Mutex<Unasked>,
    pub asked: Mutex<Vec<(ServerName, String, u64)>>,
    pub splits: Mutex<Vec<RegionStateTransition>>,
}

impl RegionServerStatus for Status {
    fn report_region_state_transition(&self, _server: &ServerName, transition: RegionStateTransition) {
        self.splits.lock().unwrap().push(transition);
    }
}

impl Assignments for Status {
    fn opened_unasked(&self, server: &ServerName, region: &RegionInfo, open_seq_num: u64) -> Unasked {
        self.asked.lock().unwrap().push((server.clone(), region.encoded_name().to_string(), open_seq_num));
        *self.answer.lock().unwrap()
    }
}

pub fn settings() -> ServersSettings {
    ServersSettings {
        epoch: Some(EPOCH),
        answers: vec![("hbase.rootdir".to_string(), "hdfs://n/hbase".to_string())],
        order_pause: Duration::from_millis(20),
        call_timeout: Duration::from_secs(5),
        retry_pause: Duration::from_millis(20),
        close_check_period: Duration::from_millis(50),
        open_check_period: Duration::from_secs(60),
        ..ServersSettings::new(ServerName::new("127.0.0.1", 16000, 1), ACTIVE_MS)
    }
}

impl Master {
    pub fn new() -> Master {
        Master::with(settings())
    }

    pub fn with(settings: ServersSettings) -> Master {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let servers = Servers::new(runtime.handle().clone(), clock, settings);
        let status = Arc::new(Status {
            answer: Mutex::new(Unasked::Later),
            asked: Mutex::default(),
            splits: Mutex::default(),
        });
        let weak: Weak<Status> = Arc::downgrade(&status);
        let service: Arc<dyn Service> = Arc::new(servers.status_service(weak));
        let rpc = serve(&runtime, [("RegionServerStatusService", service)]);
        let options = ConnectOptions { codec: None, ..ConnectOptions::new("RegionServerStatusService") };
        let connection = runtime.block_on(Connection::connect(rpc.local_addr(), &options)).unwrap();
        Master { runtime: Arc::new(runtime), servers, status, rpc, connection }
    }

    /// Leaves the runtime alone.
    pub fn end(self) -> (Arc<Runtime>, Weak<Servers>) {
        (self.runtime, Arc::downgrade(&self.servers))
    }

    /// As a region server calls it.
    pub fn call<M: Message + Default>(&self, method: &str, request: &impl Message) -> Result<M, ClientError> {
        let answer = self.connection.call_with_cells(method, request, None, Some(TIME_MAX));
        self.runtime.block_on(answer).map(|answer| M::decode(answer.message).unwrap())
    }

    pub fn report(&self, server: &ServerName, load: pb::ServerLoad) -> Result<(), ClientError> {
        let request = pb::RegionServerReportRequest { server: server.to_pb(), load: Some(load) };
        self.call::<pb::RegionServerReportResponse>("RegionServerReport", &request).map(|_| ())
    }

    /// The error message of the answer is the inner error.
    pub fn transition(
        &self,
        server: &ServerName,
        transition: pb::RegionStateTransition,
    ) -> Result<Result<(), String>, ClientError> {
        let request =
            pb::ReportRegionStateTransitionRequest { server: server.to_pb(), transition: vec![transition] };
        let answer: pb::ReportRegionStateTransitionResponse =
            self.call("ReportRegionStateTransition", &request)?;
        Ok(answer.error_message.map_or(Ok(()), Err))
    }

    pub fn done(&self, procedure: u64, error: Option<(&str, &str)>) {
        use pb::remote_procedure_result::Status;
        let error = error.map(|(class, message)| pb::ForeignExceptionMessage {
            source: None,
            generic_exception: Some(pb::GenericExceptionMessage {
                class_name: Some(class.to_string()),
                message: Some(message.to_string()),
                ..Default::default()
            }),
        });
        let status = if error.is_none() { Status::Success } else { Status::Error };
        let result = pb::RemoteProcedureResult {
            proc_id: procedure,
            status: status as i32,
            error,
            ..Default::default()
        };
        let request = pb::ReportProcedureDoneRequest { result: vec![result] };
        self.call::<pb::ReportProcedureDoneResponse>("ReportProcedureDone", &request).unwrap();
    }
}

pub fn transition(
    code: TransitionCode,
    region: &RegionInfo,
    open_seq_num: Option<u64>,
    procedure: i64,
) -> pb::RegionStateTransition {
    pb::RegionStateTransition {
        transition_code: code as i32,
        region_info: vec![region.to_pb()],
        open_seq_num,
        proc_id: vec![procedure],
        initiating_master_active_time: Some(ACTIVE_MS),
    }
}

pub fn region(start: &'static str) -> RegionInfo {
    RegionInfo::new(TableName::parse(b"t").unwrap(), start.into(), Bytes::new(), 3)
}

pub fn table() -> Arc<TableDescriptor> {
    Arc::new(TableDescriptor::new(TableName::parse(b"t").unwrap()))
}

fn serve<const N: usize>(runtime: &Runtime, services: [(&'static str, Arc<dyn Service>); N]) -> RpcServer {
    let services: Services = services.into();
    let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    runtime.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        RpcServer::bind(address, RpcSettings::default(), clock).await.unwrap().serve(services, "id")
    })
}

/// What a region server answers to `GetRegionInfo`.
#[derive(Clone)]
pub enum Region {
    Open,
    /// The answer names the region that was asked for.
    NotServing,
    Fails(&'static halcyon_rpc::ExceptionClass, &'static str),
}

/// A region server.
pub struct FakeServer {
    pub name: ServerName,
    pub orders: Receiver<pb::ExecuteProceduresRequest>,
    pub shared: Arc<Shared>,
    pub rpc: RpcServer,
}

#[derive(Default)]
pub struct Shared {
    /// Errors of the next `ExecuteProcedures`.
    pub refusals: Mutex<VecDeque<RpcError>>,
    pub region: Mutex<Option<Region>>,
    /// What it answers for a region of this name, and after which time.
    pub slow_regions: Mutex<BTreeMap<Bytes, (Region, Duration)>>,
    pub regions_asked: Mutex<Vec<pb::GetRegionInfoRequest>>,
    pub warmed_up: Mutex<Vec<RegionInfo>>,
    /// By row, family and qualifier.
    pub rows: Mutex<BTreeMap<(Bytes, Bytes, Bytes), Cell>>,
    pub multis: Mutex<Vec<pb::MultiRequest>>,
    /// Rows that fail, with the exception.
    pub bad_row: Mutex<Option<(Bytes, RpcError)>>,
    pub scans: Mutex<Vec<pb::ScanRequest>>,
    /// Answers of scans, if they are not what the rows are.
    pub scan_answers: Mutex<VecDeque<(pb::ScanResponse, Vec<Cell>)>>,
    orders: Mutex<Option<Sender<pb::ExecuteProceduresRequest>>>,
}

struct Admin(Arc<Shared>);
struct Client(Arc<Shared>);

impl FakeServer {
    pub fn new(master: &Master) -> FakeServer {
        let shared = Arc::new(Shared::default());
        let (sender, orders) = channel();
        *shared.orders.lock().unwrap() = Some(sender);
        let rpc = serve(
            &master.runtime,
            [
                ("AdminService", Arc::new(Admin(shared.clone())) as Arc<dyn Service>),
                ("ClientService", Arc::new(Client(shared.clone()))),
            ],
        );
        let name = ServerName::new("127.0.0.1", rpc.local_addr().port(), 1_000);
        master.report(&name, pb::ServerLoad::default()).unwrap();
        FakeServer { name, orders, shared, rpc }
    }

    pub fn next_orders(&self) -> pb::ExecuteProceduresRequest {
        self.orders.recv_timeout(TIME_MAX).expect("orders in time")
    }
}

/// The master tells its epoch with each connection.
fn check_epoch(call: &Call) -> Result<(), RpcError> {
    match call.connection.master_epoch {
        Some(EPOCH) => Ok(()),
        other => Err(RpcError::do_not_retry(format!("the epoch of the master is {other:?}, not {EPOCH}"))),
    }
}

impl Service for Admin {
    fn call(&self, call: Call) -> Outcome {
        let answer = check_epoch(&call).and_then(|()| self.answer(&call));
        match self.delay(&call).filter(|delay| !delay.is_zero()) {
            None => Outcome::Ready(answer),
            Some(delay) => Outcome::Later(Box::pin(async move {
                tokio::time::sleep(delay).await;
                answer
            })),
        }
    }
}

impl Admin {
    fn delay(&self, call: &Call) -> Option<Duration> {
        if call.method != "GetRegionInfo" {
            return None;
        }
        let request = pb::GetRegionInfoRequest::decode(call.param.clone()).ok()?;
        let slow = self.0.slow_regions.lock().unwrap();
        slow.get(&request.region.value).map(|(_, delay)| *delay)
    }

    fn answer(&self, call: &Call) -> Result<Reply, RpcError> {
        match call.method.as_str() {
            "ExecuteProcedures" => {
                let request = pb::ExecuteProceduresRequest::decode(call.param.clone()).unwrap();
                let orders = self.0.orders.lock().unwrap().clone().unwrap();
                let _ = orders.send(request);
                match self.0.refusals.lock().unwrap().pop_front() {
                    Some(error) => Err(error),
                    None => Ok(Reply::message(&pb::ExecuteProceduresResponse {})),
                }
            }
            "GetRegionInfo" => {
                let request = pb::GetRegionInfoRequest::decode(call.param.clone()).unwrap();
                let name = request.region.value.clone();
                self.0.regions_asked.lock().unwrap().push(request);
                let slow = self.0.slow_regions.lock().unwrap().get(&name).map(|(region, _)| region.clone());
                let region_is = slow.or_else(|| self.0.region.lock().unwrap().clone());
                match region_is.unwrap_or(Region::Open) {
                    Region::NotServing => {
                        let text = format!("{} is not online on h,1,2", name.escape_ascii());
                        Err(RpcError::not_serving_region(text))
                    }
                    Region::Fails(class, message) => Err(RpcError::new(class, message)),
                    Region::Open => Ok(Reply::message(&pb::GetRegionInfoResponse {
                        region_info: region("").to_pb(),
                        splittable: Some(true),
                        best_split_row: Some("m".into()),
                        ..Default::default()
                    })),
                }
            }
            "GetOnlineRegion" => {
                let region_info = vec![region("").to_pb(), RegionInfo::meta().to_pb()];
                Ok(Reply::message(&pb::GetOnlineRegionResponse { region_info }))
            }
            "WarmupRegion" => {
                let request = pb::WarmupRegionRequest::decode(call.param.clone()).unwrap();
                let region = RegionInfo::from_pb(&request.region_info).unwrap();
                self.0.warmed_up.lock().unwrap().push(region);
                Ok(Reply::message(&pb::WarmupRegionResponse {}))
            }
            method => Err(RpcError::unknown_method(method)),
        }
    }
}

impl Service for Client {
    fn takes_cells(&self, _method: &str) -> bool {
        true
    }

    fn call(&self, call: Call) -> Outcome {
        let codec = call.connection.codec;
        let answered = check_epoch(&call).and_then(|()| self.answer(&call)).map(|(message, cells)| {
            let mut block = codec.map(CellBlock::new);
            if let Some(block) = &mut block {
                cells.iter().for_each(|cell| block.push(cell));
            }
            Reply { cells: block, ..Reply::encoded(message.into()) }
        });
        Outcome::Ready(answered)
    }
}

impl Client {
    fn answer(&self, call: &Call) -> Result<(Vec<u8>, Vec<Cell>), RpcError> {
        match call.method.as_str() {
            "Multi" => self.multi(call),
            "ExecService" => self.mutate_rows(call),
            "Scan" => self.scan(call),
            method => Err(RpcError::unknown_method(method)),
        }
    }

    fn multi(&self, call: &Call) -> Result<(Vec<u8>, Vec<Cell>), RpcError> {
        let request = pb::MultiRequest::decode(call.param.clone()).unwrap();
        let mut cells = call.cells.iter();
        let mut response = pb::MultiResponse::default();
        for part in &request.region_action {
            let mut result = pb::RegionActionResult::default();
            for action in &part.action {
                let mutation = action.mutation.as_ref().unwrap();
                let count = mutation.associated_cell_count() as usize;
                let exception = self.fails(mutation.row());
                for cell in cells.by_ref().take(count) {
                    assert_eq!(cell.row(), mutation.row());
                    if exception.is_none() {
                        self.write(cell);
                    }
                }
                let of_action = pb::ResultOrException {
                    index: action.index,
                    result: exception.is_none().then(pb::Result::default),
                    exception: exception.map(|error| error.to_name_bytes_pair()),
                    ..Default::default()
                };
                result.result_or_exception.push(of_action);
            }
            response.region_action_result.push(result);
        }
        assert!(cells.next().is_none(), "cells that are of no mutation");
        self.0.multis.lock().unwrap().push(request);
        Ok((response.encode_to_vec(), Vec::new()))
    }

    fn mutate_rows(&self, call: &Call) -> Result<(Vec<u8>, Vec<Cell>), RpcError> {
        let request = pb::CoprocessorServiceRequest::decode(call.param.clone()).unwrap();
        assert_eq!(request.call.service_name, "hbase.pb.MultiRowMutationService");
        let rows = pb::MutateRowsRequest::decode(request.call.request).unwrap();
        if let Some(error) = rows.mutation_request.iter().find_map(|mutation| self.fails(mutation.row())) {
            return Err(error);
        }
        for mutation in &rows.mutation_request {
            for column in &mutation.column_value {
                for value in &column.qualifier_value {
                    let kind = match value.delete_type {
                        None => CellType::Put,
                        Some(1) => CellType::DeleteColumn,
                        Some(2) => CellType::DeleteFamily,
                        other => panic!("{other:?}"),
                    };
                    let (qualifier, timestamp) = (value.qualifier(), value.timestamp() as i64);
                    self.write(&Cell::build(
                        mutation.row(),
                        &column.family,
                        qualifier,
                        timestamp,
                        kind,
                        value.value(),
                        b"",
                        0,
                    ));
                }
            }
        }
        let value = pb::NameBytesPair {
            name: "hbase.pb.MutateRowsResponse".to_string(),
            value: Some(pb::MutateRowsResponse { processed: Some(true) }.encode_to_vec().into()),
        };
        Ok((pb::CoprocessorServiceResponse { region: request.region, value }.encode_to_vec(), Vec::new()))
    }

    fn fails(&self, row: &[u8]) -> Option<RpcError> {
        let bad = self.0.bad_row.lock().unwrap();
        bad.as_ref().filter(|(bad, _)| bad == row).map(|(_, error)| error.clone())
    }

    fn write(&self, cell: &Cell) {
        let copied = Bytes::copy_from_slice;
        let key = (copied(cell.row()), copied(cell.family()), copied(cell.qualifier()));
        let mut rows = self.0.rows.lock().unwrap();
        match cell.cell_type() {
            CellType::Put => drop(rows.insert(key, cell.clone())),
            CellType::DeleteColumn => drop(rows.remove(&key)),
            CellType::DeleteFamily => rows.retain(|at, _| (&at.0, &at.1) != (&key.0, &key.1)),
            other => panic!("{other:?}"),
        }
    }

    /// Two cells an answer, so that rows are cut.
    fn scan(&self, call: &Call) -> Result<(Vec<u8>, Vec<Cell>), RpcError> {
        let request = pb::ScanRequest::decode(call.param.clone()).unwrap();
        let mut scans = self.0.scans.lock().unwrap();
        scans.push(request.clone());
        if request.close_scanner() {
            return Ok((pb::ScanResponse::default().encode_to_vec(), Vec::new()));
        }
        if let Some((response, cells)) = self.0.scan_answers.lock().unwrap().pop_front() {
            return Ok((response.encode_to_vec(), cells));
        }
        let number = request.next_call_seq.map_or(0, |number| number + 1) as usize;
        let opening = scans.iter().rev().find_map(|scan| scan.scan.clone()).unwrap();
        let (start, stop) = (opening.start_row().to_vec(), opening.stop_row().to_vec());
        let is_wanted = |cell: &&Cell| {
            cell.row() >= &start[..]
                && (stop.is_empty() || cell.row() < &stop[..])
                && (opening.column.is_empty() || opening.column.iter().any(|it| it.family == cell.family()))
        };
        let rows = self.0.rows.lock().unwrap();
        let all: Vec<Cell> = rows.values().filter(is_wanted).cloned().collect();
        let part: Vec<Cell> = all.iter().skip(2 * number).take(2).cloned().collect();
        let next = all.get(2 * number + 2);
        let mut response = pb::ScanResponse {
            scanner_id: Some(77),
            more_results: Some(true),
            more_results_in_region: Some(next.is_some()),
            ..Default::default()
        };
        for (at, cell) in part.iter().enumerate() {
            if at > 0 && part[at - 1].row() == cell.row() {
                response.cells_per_result[0] += 1;
                continue;
            }
            response.cells_per_result.push(1);
        }
        let is_last = |at: usize| at + 1 == response.cells_per_result.len();
        let is_cut = next.is_some_and(|next| part.last().is_some_and(|last| last.row() == next.row()));
        response.partial_flag_per_result =
            (0..response.cells_per_result.len()).map(|at| is_last(at) && is_cut).collect();
        Ok((response.encode_to_vec(), part))
    }
}

/// Runs a call that blocks beside the test.
pub fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    halcyon_env::spawn_thread("beside", move || {
        let _ = sender.send(work());
    })
    .unwrap();
    receiver
}

pub fn in_time<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(TIME_MAX).expect("an end in time")
}

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    let start_ns = clock.monotonic_ns();
    while !holds() {
        assert!(clock.monotonic_ns() - start_ns < TIME_MAX.as_nanos() as u64, "{what}");
        clock.sleep(Duration::from_millis(2));
    }
}

pub fn busy(text: &str) -> Error {
    Error::new(ErrorKind::Busy, text)
}

pub fn not_serving() -> Region {
    Region::NotServing
}
