//! A region server whose master is another process: what it says of itself, and how remote procedures end.
//! It is one piece because all of its tests share the double of that master.

use crate::common;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use bytes::Bytes;
use halcyon_cell::{Cell, ErrorKind};
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_env::{Clock, FileSystem, SystemClock};
use halcyon_proto::pb;
use halcyon_proto::pb::region_state_transition::TransitionCode;
use halcyon_region::{RewriteHooks, RewriteKind, StoreHooks};
use halcyon_regionserver::{AdminService, MasterLink, RegionServer, RegionServerSettings, RemoteMaster};
use halcyon_rpc::{Call, Connection, Outcome, Reply, RpcError, RpcServer, RpcSettings, Service, Services};
use halcyon_schema::{RegionInfo, ServerName, TableName, layout};
use parking_lot::Mutex;
use prost::Message;

const WAIT_MAX: Duration = Duration::from_secs(20);

/// Takes reports as HBase's master does.
struct FakeMaster {
    /// What it tells of itself; `None`: nobody may ask.
    version: Option<&'static str>,
    /// Of connections that a server registered on.
    client_versions: Mutex<Vec<Option<(u32, u32)>>>,
    ends: Mutex<Vec<pb::RemoteProcedureResult>>,
    /// Reports of the end of a procedure that it refuses yet.
    refuses_ends: AtomicUsize,
    transitions: Mutex<Vec<pb::RegionStateTransition>>,
    /// Runs while a server waits for the answer to its report of a transition.
    while_told: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// What it answers to reports of transitions instead of taking them.
    refuses: Mutex<Option<&'static str>>,
    /// It cannot take reports that a region is open yet.
    takes_no_openings: AtomicBool,
    /// The orders of those that it has put off.
    put_off: Mutex<Vec<i64>>,
}

impl FakeMaster {
    /// Holds the next report of a transition back. The first flag says that it is there; the second one lets it go.
    fn hold_report(&self) -> (Arc<AtomicBool>, Arc<AtomicBool>) {
        let (begun, may_end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_told, goes_on) = (begun.clone(), may_end.clone());
        *self.while_told.lock() = Some(Box::new(move || {
            is_told.store(true, Ordering::SeqCst);
            eventually("the test lets it go", || goes_on.load(Ordering::SeqCst));
        }));
        (begun, may_end)
    }

    fn answer(&self, call: &Call) -> Result<Reply, RpcError> {
        match call.method.as_str() {
            "GetClusterStatus" => {
                let version =
                    self.version.ok_or_else(|| RpcError::do_not_retry("access denied".to_string()))?;
                let hbase_version = Some(pb::HBaseVersionFileContent { version: version.to_string() });
                let cluster_status = pb::ClusterStatus { hbase_version, ..Default::default() };
                Ok(Reply::message(&pb::GetClusterStatusResponse { cluster_status }))
            }
            "RegionServerStartup" => {
                self.client_versions.lock().push(call.connection.client_version);
                Ok(Reply::message(&pb::RegionServerStartupResponse::default()))
            }
            "RegionServerReport" => Ok(Reply::message(&pb::RegionServerReportResponse {})),
            "ReportProcedureDone" => {
                let request = pb::ReportProcedureDoneRequest::decode(call.param.clone()).unwrap();
                let one_less = |count: usize| count.checked_sub(1);
                if self.refuses_ends.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                    return Err(RpcError::do_not_retry("it has no place for it".to_string()));
                }
                self.ends.lock().extend(request.result);
                Ok(Reply::message(&pb::ReportProcedureDoneResponse {}))
            }
            "ReportRegionStateTransition" => {
                let request = pb::ReportRegionStateTransitionRequest::decode(call.param.clone()).unwrap();
                let opens = request.transition[0].transition_code() == TransitionCode::Opened;
                if opens && self.takes_no_openings.load(Ordering::SeqCst) {
                    self.put_off.lock().extend(&request.transition[0].proc_id);
                    return Err(RpcError::please_hold("it does not know yet whose it is".to_string()));
                }
                self.transitions.lock().extend(request.transition);
                let while_told = self.while_told.lock().take();
                // The thread may be the only one of the runtime, which then drives no timer.
                while_told.into_iter().for_each(|run| tokio::task::block_in_place(run));
                let error_message = self.refuses.lock().map(str::to_string);
                Ok(Reply::message(&pb::ReportRegionStateTransitionResponse { error_message }))
            }
            method => Err(RpcError::unknown_method(method)),
        }
    }
}

impl Service for FakeMaster {
    fn call(&self, call: Call) -> Outcome {
        Outcome::Ready(self.answer(&call))
    }
}

struct Cluster {
    lab: Lab,
    master: Arc<FakeMaster>,
    link: Arc<MasterLink>,
    _rpc: RpcServer,
}

impl Cluster {
    fn of(version: Option<&'static str>) -> Cluster {
        Cluster::with(version, settings())
    }

    fn with(version: Option<&'static str>, settings: RegionServerSettings) -> Cluster {
        let lab = Lab::with(SimFileSystem::new(), settings);
        let master = Arc::new(FakeMaster {
            version,
            client_versions: Mutex::default(),
            ends: Mutex::default(),
            refuses_ends: AtomicUsize::new(0),
            transitions: Mutex::default(),
            while_told: Mutex::default(),
            refuses: Mutex::default(),
            takes_no_openings: AtomicBool::new(false),
            put_off: Mutex::default(),
        });
        let rpc = lab.runtime.block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let bound =
                RpcServer::bind(any, RpcSettings::default(), Arc::new(SystemClock::new())).await.unwrap();
            let service = || Arc::clone(&master) as Arc<dyn Service>;
            let services =
                Services::from([("MasterService", service()), ("RegionServerStatusService", service())]);
            bound.serve(services, "c")
        });
        let port = rpc.local_addr().port();
        let find = Box::new(move || Some(ServerName::new("127.0.0.1", port, 1)));
        let link = Arc::new(MasterLink::new(lab.runtime.handle().clone(), find, (2, 6, 4)));
        Cluster { lab, master, link, _rpc: rpc }
    }

    fn join(&self) {
        let name = ServerName::new("localhost", 16020, 7);
        self.link.join(&name, &SystemClock::new(), &|| true).unwrap();
    }

    fn obey(&self) -> Obeying<'_> {
        let remote = RemoteMaster::start(&self.lab.server, self.link.clone(), Duration::from_secs(3600));
        let remote = remote.unwrap();
        let admin = AdminService::obeying(self.lab.server.clone(), &remote);
        Obeying { lab: &self.lab, admin, _remote: remote }
    }
}

/// The admin service of a server that obeys a master.
struct Obeying<'a> {
    lab: &'a Lab,
    admin: AdminService,
    _remote: Arc<RemoteMaster>,
}

impl Obeying<'_> {
    fn call(&self, method: &str, request: &impl Message) -> Result<(), RpcError> {
        self.call_of(None, method, request)
    }

    /// As a master of Halcyon with this epoch.
    fn call_of(
        &self,
        master_epoch: Option<u64>,
        method: &str,
        request: &impl Message,
    ) -> Result<(), RpcError> {
        let call = self.lab.raw_call(method, request.encode_to_vec().into(), Vec::new());
        let connection = Arc::new(Connection { master_epoch, ..Connection::new(1, "127.0.0.1:9") });
        self.lab.finish(&self.admin, self.admin.call(Call { connection, ..call })).map(|_| ())
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    let until_ns = clock.monotonic_ns() + WAIT_MAX.as_nanos() as u64;
    while !holds() {
        assert!(clock.monotonic_ns() < until_ns, "never: {what}");
        clock.sleep(Duration::from_millis(5));
    }
}

/// A server of a newer version than its master would get the system tables of the cluster.
#[test]
fn a_server_claims_no_newer_version_than_the_masters() {
    for (master, claimed, header) in [
        (Some("2.5.11-hadoop3"), "2.5.11-hadoop3", (2, 5)),
        (Some("2.6.4"), "2.6.4", (2, 6)),
        (Some("2.6.4-hadoop3"), "2.6.4-hadoop3", (2, 6)), // HBase takes it for older than 2.6.4
        (Some("3.0.0-beta-1"), "2.6.4", (2, 6)),
        (Some("unknown"), "2.6.4", (2, 6)),
        (None, "2.6.4", (2, 6)),
    ] {
        let cluster = Cluster::of(master);
        cluster.join();
        assert_eq!(cluster.link.version().to_string(), claimed, "{master:?}");
        assert_eq!(*cluster.master.client_versions.lock(), [Some(header)], "{master:?}");
    }
}

fn procedure(id: u64, class: &str, data: &[u8]) -> pb::RemoteProcedureRequest {
    pb::RemoteProcedureRequest {
        proc_id: id,
        proc_class: format!("org.apache.hadoop.hbase.{class}"),
        proc_data: Some(Bytes::copy_from_slice(data)),
        ..Default::default()
    }
}

/// A field of HBase's messages: its number, and a string, message or number.
fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    [&[(field << 3) | 2, value.len() as u8][..], value].concat()
}

fn number(field: u8, value: u8) -> Vec<u8> {
    vec![field << 3, value]
}

#[test]
fn remote_procedures_end_with_success_or_a_sentence() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let obeying = cluster.obey();
    let target = ServerName::new("localhost", 16020, 7).to_pb().encode_to_vec();
    let peer = [bytes(1, b"peer"), number(2, 1), bytes(3, &target)].concat();
    let queue = [bytes(1, &target), bytes(2, b"peer-queue")].concat();
    let throttle = [bytes(1, &target), number(2, 1)].concat();
    let request = pb::ExecuteProceduresRequest {
        proc: vec![
            procedure(1, "replication.regionserver.RefreshPeerCallable", &peer),
            procedure(2, "replication.regionserver.ClaimReplicationQueueCallable", &queue),
            procedure(3, "regionserver.ReloadQuotasCallable", b""),
            procedure(4, "replication.regionserver.SwitchRpcThrottleRemoteCallable", &throttle),
            procedure(5, "regionserver.FromTheFutureCallable", b""),
            procedure(6, "replication.regionserver.RefreshPeerCallable", b"\xff\xff"),
        ],
        ..Default::default()
    };
    obeying.call("ExecuteProcedures", &request).unwrap();
    eventually("all six have ended", || cluster.master.ends.lock().len() == 6);
    let mut ends = cluster.master.ends.lock().clone();
    ends.sort_by_key(|end| end.proc_id);
    let told: Vec<_> = ends
        .iter()
        .map(|end| {
            let error = end.error.as_ref().and_then(|error| error.generic_exception.clone());
            (end.proc_id, error.and_then(|error| error.message).unwrap_or_default())
        })
        .collect();
    assert_eq!(told.len(), 6, "{told:?}");
    assert!(told[..4].iter().all(|(_, message)| message.is_empty()), "{told:?}");
    assert!(told[4].1.contains("FromTheFutureCallable is not supported"), "{told:?}");
    assert!(told[5].1.contains("RefreshPeerCallable cannot be decoded"), "{told:?}");
    cluster.lab.server.stop().unwrap();
}

/// An answer that says "do not retry" ended the report for good, and the master waited for it until the server died.
#[test]
fn the_end_of_a_procedure_is_told_until_it_is_taken() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let obeying = cluster.obey();
    cluster.master.refuses_ends.store(2, Ordering::SeqCst);
    let proc = vec![procedure(3, "regionserver.ReloadQuotasCallable", b"")];
    obeying.call("ExecuteProcedures", &pb::ExecuteProceduresRequest { proc, ..Default::default() }).unwrap();
    eventually("the master has taken it", || {
        cluster.lab.clock.advance(Duration::from_millis(100)); // it is told again after a while
        !cluster.master.ends.lock().is_empty()
    });
    assert_eq!(cluster.master.ends.lock()[0].proc_id, 3);
    cluster.lab.server.stop().unwrap();
}

/// A remote procedure that does nothing.
fn run_order(id: u64) -> pb::ExecuteProceduresRequest {
    let proc = vec![procedure(id, "regionserver.ReloadQuotasCallable", b"")];
    pb::ExecuteProceduresRequest { proc, ..Default::default() }
}

/// A master told a server to come again with its report that a region is open, until other orders would be carried out. Eight such regions
/// kept all threads for orders, and no WAL of a dead server was split there any more.
#[test]
fn reports_that_the_master_cannot_take_yet_keep_no_orders_waiting() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let (obeying, lab) = (cluster.obey(), &cluster.lab);
    cluster.master.takes_no_openings.store(true, Ordering::SeqCst);
    for number in 11..23 {
        obeying.call("ExecuteProcedures", &open_order(&lab.info, number)).unwrap();
        eventually("the master is told", || cluster.master.put_off.lock().contains(&number));
    }
    obeying.call("ExecuteProcedures", &run_order(3)).unwrap();
    eventually("another order is carried out", || !cluster.master.ends.lock().is_empty());
    cluster.master.takes_no_openings.store(false, Ordering::SeqCst);
    eventually("the master is told all", || {
        lab.clock.advance(Duration::from_millis(100));
        told(&cluster).len() == 12
    });
    lab.server.stop().unwrap();
}

/// The same for a region that is new here: it serves when the master has taken the report, and is closed if the server ends before.
#[test]
fn a_region_waits_without_a_thread_until_the_master_has_recorded_it() {
    for is_taken in [true, false] {
        let cluster = Cluster::of(Some("2.6.4"));
        cluster.join();
        let (obeying, lab) = (cluster.obey(), &cluster.lab);
        write_descriptor(lab);
        let name = lab.info.encoded_name().to_string();
        lab.server.close_region(&name, false).unwrap();
        cluster.master.takes_no_openings.store(true, Ordering::SeqCst);
        obeying.call("ExecuteProcedures", &open_order(&lab.info, 11)).unwrap();
        for count in 1..4 {
            eventually("the master is told again", || {
                lab.clock.advance(Duration::from_millis(100));
                cluster.master.put_off.lock().len() >= count
            });
        }
        assert!(lab.server.regions().online().is_empty());
        assert_eq!(lab.server.close_region(&name, false).unwrap_err().kind(), ErrorKind::Busy);
        if is_taken {
            cluster.master.takes_no_openings.store(false, Ordering::SeqCst);
            eventually("it serves", || {
                lab.clock.advance(Duration::from_millis(100));
                lab.server.regions().online().len() == 1
            });
            assert_eq!(told(&cluster), [TransitionCode::Opened]);
        }
        lab.server.stop().unwrap();
        assert!(lab.server.close_region(&name, false).is_ok(), "it is not opening any more");
        assert!(lab.server.regions().online().is_empty());
    }
}

/// A master that waits long for a close orders it again. Each order held a thread until the region was closed.
#[test]
fn repeated_orders_to_close_keep_no_orders_waiting() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let (obeying, lab) = (cluster.obey(), &cluster.lab);
    lab.put("r", "q", "v");
    let region = lab.server.regions().get(lab.info.encoded_name()).unwrap().region.clone();
    let held = Arc::new(HeldFlushes::default());
    region.set_store_hooks(held.clone());
    let order = |request| obeying.call_of(Some(5), "ExecuteProcedures", &request).unwrap();
    order(close_order(lab.specifier(), 12));
    eventually("the last flush begins", || held.begun.load(Ordering::SeqCst) == 1);
    (13..33).for_each(|number| order(close_order(lab.specifier(), number)));
    order(run_order(3));
    eventually("another order is carried out", || !cluster.master.ends.lock().is_empty());
    assert_eq!(told(&cluster), []);
    held.may_go_on.store(1, Ordering::SeqCst);
    eventually("it is closed", || told(&cluster) == [TransitionCode::Closed]);
    assert!(lab.server.regions().online().is_empty());
    lab.server.stop().unwrap();
}

#[test]
fn a_server_with_a_master_of_its_own_process_is_not_stopped_by_a_call() {
    let request = pb::StopServerRequest { reason: "maintenance".to_string() };
    let cluster = Cluster::of(Some("2.6.4"));
    let refused = cluster.lab.admin::<pb::StopServerResponse>("StopServer", &request).unwrap_err();
    assert!(refused.message.contains("StopServer"), "{}", refused.message);
    let obeying = cluster.obey();
    assert_eq!(cluster.lab.server.stop_wanted(), None);
    obeying.call("StopServer", &request).unwrap();
    assert_eq!(cluster.lab.server.stop_wanted().as_deref(), Some("maintenance"));
    cluster.lab.put("r", "q", "served until it is stopped");
    cluster.lab.server.stop().unwrap();
}

/// `CloseRegion` of HBCK: it has no procedure, and the master may not know of it.
#[test]
fn a_tool_closes_a_region() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let obeying = cluster.obey();
    let close = |region: pb::RegionSpecifier| pb::CloseRegionRequest { region, ..Default::default() };
    let unknown =
        pb::RegionSpecifier { r#type: 2, value: Bytes::from_static(b"2140f686c386930b96c060b1030c2875") };
    let refused = obeying.call("CloseRegion", &close(unknown)).unwrap_err();
    assert!(refused.class.ends_with("NotServingRegionException"), "{refused:?}");
    let lab = &cluster.lab;
    lab.put("r", "q", "in memory");
    obeying.call("CloseRegion", &close(lab.specifier())).unwrap();
    eventually("the region is closed", || lab.server.regions().online().is_empty());
    eventually("the master is told", || cluster.master.transitions.lock().len() == 1);
    let told = cluster.master.transitions.lock()[0].clone();
    assert_eq!(told.transition_code(), pb::region_state_transition::TransitionCode::Closed);
    assert_eq!((told.proc_id, told.region_info), (vec![-1], vec![lab.info.to_pb()]));
    lab.server.open_region(&lab.info, &table().into()).unwrap();
    assert_eq!(lab.row("r").len(), 1);
    lab.server.stop().unwrap();
}

fn write_descriptor(lab: &Lab) {
    let dir = layout::table_desc_dir(Path::new(ROOT), lab.info.table());
    let bytes = table().encode_file();
    lab.fs.create_dir_all(&dir).unwrap();
    lab.fs.put_new(&dir.join(layout::table_info_name(1, bytes.len())), &bytes).unwrap();
}

fn open_order(region: &RegionInfo, procedure: i64) -> pb::ExecuteProceduresRequest {
    let info = pb::open_region_request::RegionOpenInfo {
        region: region.to_pb(),
        open_proc_id: Some(procedure),
        ..Default::default()
    };
    let open = pb::OpenRegionRequest { open_info: vec![info], ..Default::default() };
    pb::ExecuteProceduresRequest { open_region: vec![open], ..Default::default() }
}

fn close_order(region: pb::RegionSpecifier, procedure: i64) -> pb::ExecuteProceduresRequest {
    let close = pb::CloseRegionRequest { region, close_proc_id: Some(procedure), ..Default::default() };
    pb::ExecuteProceduresRequest { close_region: vec![close], ..Default::default() }
}

/// Codes of the transitions that the master was told.
fn told(cluster: &Cluster) -> Vec<TransitionCode> {
    cluster.master.transitions.lock().iter().map(|told| told.transition_code()).collect()
}

/// A region served as soon as it was open. A master that did not know of it, or that had given the region to another
/// server, let two of them serve it.
#[test]
fn a_region_serves_when_the_master_has_recorded_it() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let obeying = cluster.obey();
    let lab = &cluster.lab;
    write_descriptor(lab);
    let name = lab.info.encoded_name().to_string();
    lab.server.close_region(&name, false).unwrap();
    let online = |server: &RegionServer| server.regions().online().len();
    let (seen, server) = (Arc::new(Mutex::new(None)), lab.server.clone());
    let slot = seen.clone();
    *cluster.master.while_told.lock() = Some(Box::new(move || *slot.lock() = Some(online(&server))));
    obeying.call("ExecuteProcedures", &open_order(&lab.info, 11)).unwrap();
    eventually("it is online", || online(&lab.server) == 1);
    assert_eq!((*seen.lock(), told(&cluster)), (Some(0), vec![TransitionCode::Opened]));
    // The master sends an order again whose answer it did not get. It moves the region meanwhile.
    lab.server.close_region(&name, false).unwrap();
    obeying.call("ExecuteProcedures", &open_order(&lab.info, 11)).unwrap();
    // A master that knows better does not take the report.
    *cluster.master.refuses.lock() = Some("another server has the region");
    obeying.call("ExecuteProcedures", &open_order(&lab.info, 12)).unwrap();
    eventually("the master is told again", || told(&cluster).len() == 2);
    eventually("the opening has ended", || lab.server.close_region(&name, false).is_ok());
    assert_eq!((online(&lab.server), told(&cluster).len()), (0, 2));
    assert_eq!(cluster.master.transitions.lock()[1].proc_id, [12]);
    lab.server.stop().unwrap();
}

/// The descriptor of the table could not be read for a moment, and the server said that it cannot open a region that it had open.
/// The master had it opened at another server, and both served it.
#[test]
fn a_region_that_is_open_is_reported_as_open_whatever_cannot_be_read() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let (obeying, lab) = (cluster.obey(), &cluster.lab);
    obeying.call("ExecuteProcedures", &open_order(&lab.info, 11)).unwrap(); // there is no descriptor
    eventually("the master is told", || !told(&cluster).is_empty());
    assert_eq!(told(&cluster), [TransitionCode::Opened]);
    assert_eq!(lab.server.regions().online().len(), 1);
    lab.server.stop().unwrap();
}

/// An order to close a region that was opening was answered as if it were closed, and it went online later.
#[test]
fn a_region_that_opens_is_closed_behind_that() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let obeying = cluster.obey();
    let lab = &cluster.lab;
    write_descriptor(lab);
    let name = lab.info.encoded_name().to_string();
    lab.server.close_region(&name, false).unwrap();
    let (begun, may_end) = cluster.master.hold_report();
    obeying.call("ExecuteProcedures", &open_order(&lab.info, 11)).unwrap();
    eventually("the master is told that it is open", || begun.load(Ordering::SeqCst));
    obeying.call("ExecuteProcedures", &close_order(lab.specifier(), 12)).unwrap();
    SystemClock::new().sleep(Duration::from_millis(200)); // the order is looked at
    assert_eq!(lab.server.close_region(&name, false).unwrap_err().kind(), ErrorKind::Busy);
    may_end.store(true, Ordering::SeqCst);
    eventually("it is closed", || {
        lab.clock.advance(Duration::from_millis(100)); // the order waits for its turn
        told(&cluster).len() == 2
    });
    assert_eq!(told(&cluster), [TransitionCode::Opened, TransitionCode::Closed]);
    assert!(lab.server.regions().online().is_empty());
    lab.server.stop().unwrap();
}

fn waiting(wait_max: Duration) -> Cluster {
    Cluster::with(Some("2.6.4"), RegionServerSettings { arrival_wait_max: wait_max, ..settings() })
}

fn ask_for_row(lab: &Lab, timeout: Duration) -> Outcome {
    let request = pb::GetRequest { region: lab.specifier(), get: get("r") };
    let call = lab.raw_call("Get", request.encode_to_vec().into(), Vec::new());
    lab.client.call(Call { timeout: Some(timeout), ..call })
}

/// The client of HBase pauses for 100 ms after the first refusal, and for 200 ms after the second one.
#[test]
fn a_call_waits_for_a_region_that_opens() {
    let short = Duration::from_millis(30);
    for (wait_max, timeout) in
        [(WAIT_MAX, WAIT_MAX * 2), (short, WAIT_MAX), (WAIT_MAX, short), (Duration::ZERO, WAIT_MAX)]
    {
        let cluster = waiting(wait_max);
        cluster.join();
        let obeying = cluster.obey();
        let lab = &cluster.lab;
        write_descriptor(lab);
        lab.put("r", "q", "v");
        lab.server.close_region(lab.info.encoded_name(), false).unwrap();
        let (begun, may_end) = cluster.master.hold_report();
        obeying.call("ExecuteProcedures", &open_order(&lab.info, 11)).unwrap();
        eventually("it is opening", || begun.load(Ordering::SeqCst));
        let outcome = ask_for_row(lab, timeout);
        let waits = matches!(outcome, Outcome::Later(_));
        assert_eq!(waits, wait_max > Duration::ZERO, "with {wait_max:?}");
        if wait_max == WAIT_MAX && timeout > WAIT_MAX {
            may_end.store(true, Ordering::SeqCst);
            let reply = lab.finish(&lab.client, outcome).unwrap();
            assert_eq!(text(&decoded::<pb::GetResponse>(reply).1), ["v"]);
        } else {
            assert_eq!(class(lab.finish(&lab.client, outcome)), "RegionOpeningException");
            lab.clock.advance(wait_max);
            let outcome = ask_for_row(lab, timeout);
            assert!(matches!(outcome, Outcome::Ready(Err(_))), "it has been opening for too long");
            may_end.store(true, Ordering::SeqCst);
            eventually("it is open", || lab.server.regions().online().len() == 1);
        }
        lab.server.stop().unwrap();
    }
}

#[test]
fn a_call_that_follows_a_move_waits_for_the_order_to_open() {
    let cluster = waiting(WAIT_MAX);
    cluster.join();
    let obeying = cluster.obey();
    let lab = &cluster.lab;
    write_descriptor(lab);
    lab.put("r", "q", "v");
    lab.server.close_region(lab.info.encoded_name(), false).unwrap();
    let ask = || ask_for_row(lab, WAIT_MAX * 2);
    assert!(matches!(ask(), Outcome::Ready(Err(_))), "nobody has announced it");
    obeying.call("WarmupRegion", &pb::WarmupRegionRequest { region_info: lab.info.to_pb() }).unwrap();
    let (outcome, also) = (ask(), ask_for_row(lab, Duration::from_millis(2)));
    assert_eq!(class(lab.finish(&lab.client, also)), "NotServingRegionException");
    obeying.call("ExecuteProcedures", &open_order(&lab.info, 11)).unwrap();
    let reply = lab.finish(&lab.client, outcome).unwrap();
    assert_eq!(text(&decoded::<pb::GetResponse>(reply).1), ["v"]);
    lab.server.stop().unwrap();
}

#[test]
fn a_call_in_the_middle_of_a_move_is_told_where_the_region_goes() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let obeying = cluster.obey();
    let lab = &cluster.lab;
    let destination = Some(ServerName::new("elsewhere", 16020, 3).to_pb());
    for round in 1..=3 {
        lab.put("r", "q", "v");
        let close = pb::CloseRegionRequest {
            region: lab.specifier(),
            close_proc_id: Some(round),
            destination_server: destination.clone(),
            ..Default::default()
        };
        let request = pb::ExecuteProceduresRequest { close_region: vec![close], ..Default::default() };
        obeying.call("ExecuteProcedures", &request).unwrap();
        // A get could find the region online, go to the disk, and find it closed there.
        let put_once = || lab.mutate(put(1), vec![Cell::put(b"r", b"f", b"q", i64::MAX, b"v")]);
        while put_once().is_ok() {}
        // The call before this one may have been on its way into the region.
        assert_eq!(class(put_once()), "RegionMovedException");
        eventually("the master is told", || told(&cluster).len() == round as usize);
        lab.server.open_region(&lab.info, &table().into()).unwrap();
    }
    lab.server.stop().unwrap();
}

/// Two connections of a master can deliver its orders in the other sequence.
#[test]
fn an_order_behind_a_later_one_does_nothing() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let obeying = cluster.obey();
    let lab = &cluster.lab;
    write_descriptor(lab);
    let order = |request| obeying.call("ExecuteProcedures", &request).unwrap();
    let online = || lab.server.regions().online().len();
    order(close_order(lab.specifier(), 12));
    eventually("it is closed", || told(&cluster).len() == 1);
    order(open_order(&lab.info, 11));
    SystemClock::new().sleep(Duration::from_millis(200)); // the order is looked at
    assert_eq!((online(), told(&cluster)), (0, vec![TransitionCode::Closed]));
    order(open_order(&lab.info, 13));
    eventually("it is open", || online() == 1);
    order(close_order(lab.specifier(), 12));
    order(close_order(lab.specifier(), 10));
    SystemClock::new().sleep(Duration::from_millis(200));
    assert_eq!((online(), told(&cluster)), (1, vec![TransitionCode::Closed, TransitionCode::Opened]));
    order(close_order(lab.specifier(), 14));
    eventually("it is closed again", || told(&cluster).len() == 3 && online() == 0);
    lab.server.stop().unwrap();
}

/// Holds flushes of a region: so many may go on.
#[derive(Default)]
struct HeldFlushes {
    begun: AtomicUsize,
    may_go_on: AtomicUsize,
}

impl StoreHooks for HeldFlushes {
    fn before_flush(&self) -> halcyon_cell::Result<()> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        eventually("the test lets it go", || self.may_go_on.load(Ordering::SeqCst) >= number);
        Ok(())
    }

    fn after_flush(&self) {}

    fn may_drop_in_memory(&self) -> bool {
        true
    }

    fn begin(&self, _: &Bytes, _: RewriteKind) -> halcyon_cell::Result<Option<Box<dyn RewriteHooks>>> {
        Ok(None)
    }
}

/// Orders of two masters to close a region, one of which had died, met in the flush before the close. One of them closed the region, and the
/// other one reported it as closed, and all of it as flushed, while the last flush had hardly begun. Splits left out what it was to write.
#[test]
fn a_repeated_order_to_close_reports_what_was_flushed_and_no_more() {
    let cluster =
        Cluster::with(Some("2.6.4"), RegionServerSettings { preclose_flush_bytes: 1, ..settings() });
    cluster.join();
    let (obeying, lab) = (cluster.obey(), &cluster.lab);
    lab.put("r", "q", "v");
    let region = lab.server.regions().get(lab.info.encoded_name()).unwrap().region.clone();
    let held = Arc::new(HeldFlushes::default());
    region.set_store_hooks(held.clone());
    let has_begun = |count| eventually("a flush begins", || held.begun.load(Ordering::SeqCst) == count);
    for procedure in [12, 13] {
        let close = close_order(lab.specifier(), procedure);
        obeying.call_of(Some(5), "ExecuteProcedures", &close).unwrap();
        has_begun(procedure as usize - 11);
    }
    held.may_go_on.store(2, Ordering::SeqCst);
    has_begun(3); // the last flush
    SystemClock::new().sleep(Duration::from_millis(300)); // the other order has come so far, too
    assert_eq!(told(&cluster), [], "the region is not closed yet");
    held.may_go_on.store(3, Ordering::SeqCst);
    eventually("both are reported", || told(&cluster).len() == 2);
    assert_eq!(told(&cluster), [TransitionCode::Closed; 2]);
    let reported: Vec<u64> =
        cluster.master.transitions.lock().iter().filter_map(|told| told.open_seq_num).collect();
    assert_eq!(reported, [region.read_point().get()], "by the one that has flushed it");
    lab.server.stop().unwrap();
}

/// The server gave up while an order to close a region was in the flush before the close. The region was reported as closed and flushed, and
/// what it had in memory was in the WAL only.
#[test]
fn a_region_that_a_server_gives_up_is_not_reported_as_closed() {
    let cluster =
        Cluster::with(Some("2.6.4"), RegionServerSettings { preclose_flush_bytes: 1, ..settings() });
    cluster.join();
    let (obeying, lab) = (cluster.obey(), &cluster.lab);
    lab.put("r", "q", "v");
    let region = lab.server.regions().get(lab.info.encoded_name()).unwrap().region.clone();
    let held = Arc::new(HeldFlushes::default());
    region.set_store_hooks(held.clone());
    obeying.call_of(Some(5), "ExecuteProcedures", &close_order(lab.specifier(), 12)).unwrap();
    eventually("a flush begins", || held.begun.load(Ordering::SeqCst) == 1);
    lab.server.give_up("the test wants it");
    held.may_go_on.store(9, Ordering::SeqCst);
    eventually("the order has ended", || lab.server.regions().online().is_empty());
    SystemClock::new().sleep(Duration::from_millis(300));
    assert_eq!(told(&cluster), []);
}

/// The orders of a master that was deposed could undo what its successor has done.
#[test]
fn orders_of_a_deposed_master_are_refused() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let obeying = cluster.obey();
    let lab = &cluster.lab;
    write_descriptor(lab);
    let close = |epoch, procedure| {
        obeying.call_of(epoch, "ExecuteProcedures", &close_order(lab.specifier(), procedure))
    };
    let successor = pb::ExecuteProceduresRequest::default();
    obeying.call_of(Some(5), "ExecuteProcedures", &successor).unwrap();
    let refused = close(Some(4), 99).unwrap_err();
    assert!(refused.message.contains("the master with epoch 4 was deposed"), "{}", refused.message);
    SystemClock::new().sleep(Duration::from_millis(200));
    assert_eq!((lab.server.regions().online().len(), told(&cluster)), (1, vec![]));
    close(Some(5), 1).unwrap(); // no order of the other master counts as later
    eventually("it is closed", || told(&cluster) == [TransitionCode::Closed]);
    lab.server.stop().unwrap();
}

/// A server reports that a region is open, and is not heard. Meanwhile the master is deposed, and its successor has the region closed.
/// The opening was begun again then, while the region was open elsewhere.
#[test]
fn an_order_of_a_former_master_ends_with_the_next_one_of_its_successor() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let (obeying, lab) = (cluster.obey(), &cluster.lab);
    write_descriptor(lab);
    let online = || lab.server.regions().online().len();
    let (begun, may_end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_told, goes_on) = (begun.clone(), may_end.clone());
    *cluster.master.while_told.lock() = Some(Box::new(move || {
        is_told.store(true, Ordering::SeqCst);
        eventually("the region is closed", || goes_on.load(Ordering::SeqCst));
    }));
    *cluster.master.refuses.lock() = Some("this master was deposed");
    obeying.call_of(Some(4), "ExecuteProcedures", &open_order(&lab.info, 99)).unwrap();
    eventually("the master is told that it is open", || begun.load(Ordering::SeqCst));
    let mut close = close_order(lab.specifier(), 1);
    close.close_region[0].initiating_master_active_time = Some(7);
    obeying.call_of(Some(5), "ExecuteProcedures", &close).unwrap();
    eventually("it is closed", || online() == 0);
    may_end.store(true, Ordering::SeqCst);
    SystemClock::new().sleep(Duration::from_millis(200)); // the report is refused
    *cluster.master.refuses.lock() = None;
    for _ in 0..20 {
        lab.clock.advance(Duration::from_millis(100)); // orders that wait for their turn have it
        SystemClock::new().sleep(Duration::from_millis(10));
        assert_eq!(online(), 0, "it is open elsewhere by now");
    }
    lab.server.stop().unwrap();
}

/// HBase's master asks for it before it moves a region here.
#[test]
fn a_region_of_another_server_is_warmed_up_and_not_changed() {
    let cluster = Cluster::of(Some("2.6.4"));
    cluster.join();
    let obeying = cluster.obey();
    let lab = &cluster.lab;
    lab.put("r", "q", "value");
    let name = lab.info.encoded_name();
    lab.server.flush_region(name, &[]).unwrap();
    lab.server.close_region(name, false).unwrap();
    let warm_up = |info: &RegionInfo| {
        obeying.call("WarmupRegion", &pb::WarmupRegionRequest { region_info: info.to_pb() })
    };
    write_descriptor(lab);
    let before = lab.fs.dump();
    warm_up(&lab.info).unwrap();
    assert_eq!(lab.fs.dump(), before);
    assert!(lab.server.regions().online().is_empty());
    let store = format!("{ROOT}/data/default/t/{name}/f/");
    assert!(before.iter().any(|(path, _)| path.starts_with(&store)), "{before:?}");
    lab.fs.inject(Fault::new(Operation::Open, &store));
    let failed = warm_up(&lab.info).unwrap_err();
    assert!(failed.class.ends_with("IOException"), "{failed:?}");
    assert_eq!(lab.fs.faults_hit(), 1);
    let no_table = RegionInfo::new(TableName::parse(b"no").unwrap(), Bytes::new(), Bytes::new(), 1);
    let failed = warm_up(&no_table).unwrap_err();
    assert!(failed.message.contains("table no has no descriptor"), "{}", failed.message);
    let garbage = lab.raw_call("WarmupRegion", Bytes::from_static(b"\xff"), Vec::new());
    assert!(lab.finish(&obeying.admin, obeying.admin.call(garbage)).is_err());
    lab.server.stop().unwrap();
}

/// A server thaws, and an order that came before is next. It may have been declared dead meanwhile: an opening would take the
/// region's directory from the server that has it now.
#[test]
fn a_server_that_may_be_dead_opens_no_region() {
    let lab = Lab::new();
    lab.server.close_region(lab.info.encoded_name(), false).unwrap();
    let is_alive = Arc::new(AtomicBool::new(false));
    lab.server.answer_while({
        let is_alive = is_alive.clone();
        move || is_alive.load(Ordering::SeqCst)
    });
    let listed = || lab.fs.dump().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    let before = listed();
    let refused = lab.server.open_region(&lab.info, &common::table().into()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stopping, "{refused}");
    assert_eq!(listed(), before);
    is_alive.store(true, Ordering::SeqCst);
    lab.server.open_region(&lab.info, &common::table().into()).unwrap();
}
