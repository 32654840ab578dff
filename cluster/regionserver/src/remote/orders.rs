//! `ExecuteProcedures`: takes orders, and works on them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::Result;
use halcyon_contract::remote_procedures::SPLIT_WAL;
use halcyon_env::{Mutex, vitals};
use halcyon_proto::pb;
use halcyon_rpc::{RpcError, exceptions};
use halcyon_schema::{META_ENCODED_NAME, RegionInfo, ServerName, layout};
use prost::Message;

use super::descriptors::Descriptors;
use super::executor::JobQueue;
use super::link::MasterLink;
use super::telling::{OpenedOrder, TellOrder};
use crate::RegionServer;
use crate::background::workers::{Priority, Worker};
use crate::errors;
use crate::wal::recover::SPLITS_COUNT;

/// Orders that are worked on at the same time. Opening and closing wait for files most of the time.
const THREADS_COUNT: usize = 8;
/// How long the number of a procedure is remembered after its end (`executedRegionProcs` of HBase: 10 minutes).
const KEPT_NS: u64 = 600_000_000_000;
/// Regions of which the newest order is remembered.
const NEWEST_MAX: usize = 65_536;
/// HBase's number for "no procedure".
const NO_PROCEDURE: i64 = -1;
/// How the names of WALs of `hbase:meta` end.
const META_WAL: &str = ".meta";

/// What an order is of. Each kind has a queue and threads of its own: others wait for `hbase:meta`, and for the WALs of dead servers, also
/// orders of the same server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rest,
    Meta,
    Wals,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Rest, Kind::Meta, Kind::Wals];

    pub(super) fn of_region(region: &RegionInfo) -> Kind {
        if region.is_meta() && !region.is_secondary() { Kind::Meta } else { Kind::Rest }
    }

    pub(super) fn of_class(class: &str) -> Kind {
        if class == SPLIT_WAL { Kind::Wals } else { Kind::Rest }
    }

    fn threads(self) -> (&'static str, usize) {
        match self {
            Kind::Rest => ("orders", THREADS_COUNT),
            Kind::Meta => ("orders-meta", 1),
            Kind::Wals => ("orders-wals", SPLITS_COUNT),
        }
    }
}

/// One order, or what is left to do for one.
#[derive(Debug)]
pub(super) enum Job {
    Open(OpenOrder),
    Close(CloseOrder),
    Run(RunOrder),
    Opened(OpenedOrder),
    Tell(TellOrder),
}

impl Job {
    fn kind(&self) -> Kind {
        match self {
            Job::Open(open) | Job::Opened(OpenedOrder { open, .. }) => Kind::of_region(&open.region),
            Job::Close(close) if close.encoded_name == META_ENCODED_NAME => Kind::Meta,
            Job::Close(_) => Kind::Rest,
            Job::Run(run) => Kind::of_class(&run.class),
            Job::Tell(told) => told.kind,
        }
    }

    fn order(&self) -> Order {
        match self {
            Job::Open(open) | Job::Opened(OpenedOrder { open, .. }) => open.order,
            Job::Close(close) => close.order,
            Job::Run(run) => run.order,
            Job::Tell(told) => told.order,
        }
    }

    /// `hbase:meta` is opened when its WALs are split.
    fn is_urgent(&self) -> bool {
        let Job::Run(run) = self else { return false };
        let splits_meta = |it: pb::SplitWalParameter| it.wal_path.ends_with(META_WAL);
        run.class == SPLIT_WAL && pb::SplitWalParameter::decode(run.data.clone()).is_ok_and(splits_meta)
    }

    /// Says what the calling thread works on.
    fn begin(&self, server: &RegionServer) -> vitals::Work {
        let root = &server.resources.root;
        let dir_of = |region: &RegionInfo| layout::region_dir(root, region.table(), region.encoded_name());
        match self {
            Job::Open(OpenOrder { region, .. }) => vitals::work(
                || format!("the order to open region {}", region.encoded_name()),
                Some(&dir_of(region)),
            ),
            Job::Close(CloseOrder { encoded_name, .. }) => {
                let dir = server.regions.get(encoded_name).map(|online| dir_of(online.region.info()));
                vitals::work(|| format!("the order to close region {encoded_name}"), dir.as_deref())
            }
            Job::Run(RunOrder { class, order, .. }) => {
                vitals::work(|| format!("the order to run {class} ({})", order.procedure), None)
            }
            Job::Opened(OpenedOrder { open, .. }) => vitals::work(
                || format!("the report that region {} is open", open.region.encoded_name()),
                Some(&dir_of(&open.region)),
            ),
            Job::Tell(told) => {
                vitals::work(|| format!("the report of the end of an order ({})", told.order.procedure), None)
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct OpenOrder {
    pub(super) region: RegionInfo,
    /// When it came, in `monotonic_ns`.
    pub(super) came_ns: u64,
    pub(super) order: Order,
}

#[derive(Clone, Debug)]
pub(super) struct CloseOrder {
    pub(super) encoded_name: String,
    /// Where the region goes; `None` if that is not known.
    pub(super) destination: Option<ServerName>,
    pub(super) order: Order,
}

/// A remote procedure.
#[derive(Clone, Debug)]
pub(super) struct RunOrder {
    /// HBase's class, with its package.
    pub(super) class: String,
    pub(super) data: Bytes,
    pub(super) order: Order,
}

/// What goes back with the end of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) procedure: i64,
    /// When the master that gave the order became active. It refuses answers to orders of others.
    pub(super) master_active_ms: Option<i64>,
}

/// What becomes of a job after an attempt.
pub(super) enum Then {
    Done,
    /// This is to be done next, after a while.
    Again(Box<Job>, Duration),
}

impl Then {
    pub(super) fn again(job: Job, pause: Duration) -> Then {
        Then::Again(Box::new(job), pause)
    }
}

/// The orders of a master in another process. *Thread safety*: all methods from any thread.
pub(crate) struct Orders {
    server: Weak<RegionServer>,
    pub(super) master: Arc<MasterLink>,
    queues: [JobQueue<Job>; Kind::ALL.len()],
    /// Numbers of procedures, with the time of their end in `monotonic_ns`.
    known: Mutex<HashMap<i64, Option<u64>>>,
    newest: Mutex<Newest>,
    /// Whether the last orders came from a master of Halcyon.
    is_own_master: AtomicBool,
    pub(super) descriptors: Descriptors,
}

/// The newest order to open or close each region, by encoded name.
///
/// A master numbers its orders. One that has had no answer for long may send another over a new connection, which can be read first. An
/// opening that comes behind a later close would open a region that is elsewhere by then.
#[derive(Default)]
struct Newest(HashMap<String, Order>);

impl Newest {
    /// Whether another order counts. `masters_follow`: no order of a master comes behind one of its successor, as with masters of Halcyon
    /// ([`Lifecycle::check_master`](crate::lifecycle::Lifecycle::check_master)).
    fn is_superseded(&self, encoded_name: &str, order: Order, masters_follow: bool) -> bool {
        let Some(newest) = self.0.get(encoded_name) else { return false };
        let is_of_another = newest.master_active_ms != order.master_active_ms;
        self.is_late(encoded_name, order) || (masters_follow && is_of_another)
    }

    /// Orders of different masters are not compared: HBase's and Halcyon's number them differently.
    fn is_late(&self, encoded_name: &str, order: Order) -> bool {
        self.0.get(encoded_name).is_some_and(|newest| {
            newest.master_active_ms == order.master_active_ms && newest.procedure > order.procedure
        })
    }

    fn note(&mut self, encoded_name: &str, order: Order) {
        if order.procedure == NO_PROCEDURE || self.is_late(encoded_name, order) {
            return;
        }
        if self.0.len() >= NEWEST_MAX && !self.0.contains_key(encoded_name) {
            self.forget_half();
        }
        self.0.insert(encoded_name.to_string(), order);
        assert!(self.0.len() <= NEWEST_MAX, "what is remembered of orders has a limit");
    }

    /// The half with the smaller numbers, which are the older ones of one master.
    fn forget_half(&mut self) {
        let mut numbers: Vec<i64> = self.0.values().map(|order| order.procedure).collect();
        let (_, median, _) = numbers.select_nth_unstable(NEWEST_MAX / 2);
        let median = *median;
        self.0.retain(|_, order| order.procedure > median);
    }
}

impl Orders {
    pub(super) fn new(server: &Arc<RegionServer>, master: Arc<MasterLink>) -> Arc<Orders> {
        let queues = Kind::ALL.map(|_| JobQueue::new(server.env.clock.clone()));
        let (known, newest) = (Mutex::default(), Mutex::default());
        let is_own_master = AtomicBool::new(false);
        let (server, descriptors) = (Arc::downgrade(server), Descriptors::default());
        Arc::new(Orders { server, master, queues, known, newest, is_own_master, descriptors })
    }

    pub(super) fn start(self: &Arc<Self>, server: &RegionServer) -> Result<()> {
        for kind in Kind::ALL {
            let (name, count) = kind.threads();
            for at in 0..count {
                let worker = Arc::new(OfKind { orders: Arc::clone(self), kind });
                server.background.start_worker(&format!("{name}-{at}"), Priority::Normal, worker)?;
            }
        }
        Ok(())
    }

    fn queue(&self, kind: Kind) -> &JobQueue<Job> {
        &self.queues[kind as usize]
    }

    fn has_room(&self, count: usize) -> bool {
        self.queues.iter().all(|queue| queue.has_room(count))
    }

    /// Takes the orders of a request. An error takes none of them. `is_own_master`: whether a master of Halcyon sent it.
    pub(crate) fn take(
        &self,
        server: &RegionServer,
        request: &pb::ExecuteProceduresRequest,
        is_own_master: bool,
    ) -> std::result::Result<(), RpcError> {
        self.is_own_master.store(is_own_master, Ordering::Release);
        let now_ns = server.env.clock.monotonic_ns();
        let jobs = jobs_of(request, server.server_name(), now_ns)?;
        if !self.has_room(jobs.len()) {
            return Err(too_many());
        }
        for job in jobs {
            match &job {
                Job::Open(OpenOrder { region, order, .. }) => {
                    self.newest.lock().note(region.encoded_name(), *order);
                }
                Job::Close(CloseOrder { encoded_name, order, .. }) => {
                    self.newest.lock().note(encoded_name, *order);
                }
                Job::Run(_) | Job::Opened(_) | Job::Tell(_) => {}
            }
            if self.is_new(&job, now_ns) {
                let urgent = job.is_urgent();
                self.queue(job.kind()).push(job, urgent);
            }
        }
        Ok(())
    }

    /// Takes an order that comes alone (`CloseRegion`): from a tool, which has no procedure. The region is closed a little
    /// later. An error if it is not open here.
    pub(crate) fn take_close(
        &self,
        server: &RegionServer,
        request: &pb::CloseRegionRequest,
    ) -> std::result::Result<(), RpcError> {
        let mut close = close_order(request, server.server_name())?;
        close.order.procedure = NO_PROCEDURE; // whatever the tool says
        if server.regions.get(&close.encoded_name).is_none() {
            let text = format!("region {} is not open here", close.encoded_name);
            return Err(RpcError::new(&exceptions::NOT_SERVING_REGION, text));
        }
        if !self.has_room(1) {
            return Err(too_many());
        }
        tracing::info!(
            region = close.encoded_name,
            "a tool has a region closed; the master may not know of it"
        );
        let close = Job::Close(close);
        self.queue(close.kind()).push(close, false);
        Ok(())
    }

    /// A remote procedure may be sent again to be run again, as in HBase.
    fn is_new(&self, job: &Job, now_ns: u64) -> bool {
        let procedure = match job {
            Job::Open(OpenOrder { order, .. }) | Job::Close(CloseOrder { order, .. }) => order.procedure,
            Job::Run(_) | Job::Opened(_) | Job::Tell(_) => return true,
        };
        if procedure == NO_PROCEDURE {
            return true;
        }
        let mut known = self.known.lock();
        known.retain(|_, ended| ended.is_none_or(|ended_ns| now_ns.saturating_sub(ended_ns) < KEPT_NS));
        if known.contains_key(&procedure) {
            tracing::info!(procedure, "the master repeats an order");
            return false;
        }
        known.insert(procedure, None);
        true
    }

    /// Whether the master is one of Halcyon, which has checked the descriptors of tables as a standalone server does.
    pub(super) fn is_own_master(&self) -> bool {
        self.is_own_master.load(Ordering::Acquire)
    }

    /// Whether a later order for the region has come. That of a master may be carried out again and again until it succeeds; then its
    /// successor may have ordered something else.
    pub(super) fn is_late(&self, encoded_name: &str, order: Order) -> bool {
        self.newest.lock().is_superseded(encoded_name, order, self.is_own_master())
    }

    fn ended(&self, order: Order, now_ns: u64) {
        if let Some(ended) = self.known.lock().get_mut(&order.procedure) {
            *ended = Some(now_ns);
        }
    }

    /// An order to open or close a region is worked on by one thread at a time, however often the master sends it.
    fn begins(&self, job: &Job) {
        let (Job::Open(OpenOrder { order, .. }) | Job::Close(CloseOrder { order, .. })) = job else { return };
        let is_known = |known: &Option<u64>| known.is_none();
        let number = order.procedure;
        // Numbers come from masters, and one whose records were lost begins again with small ones: no assertion.
        if number != NO_PROCEDURE && !self.known.lock().get(&number).is_some_and(is_known) {
            tracing::error!(number, "an order is worked on again after another one of its number has ended");
        }
    }

    fn work(&self, server: &Arc<RegionServer>, job: Job) {
        self.begins(&job);
        let _work = job.begin(server);
        let order = job.order();
        let then = match job {
            Job::Open(open) => self.open(server, open),
            Job::Close(close) => self.close(server, close),
            Job::Run(run) => self.run(server, &run),
            Job::Opened(opened) => self.tell_opened(server, opened),
            Job::Tell(told) => self.tell_again(server, told),
        };
        match then {
            Then::Done => self.ended(order, server.env.clock.monotonic_ns()),
            Then::Again(job, delay) => self.queue(job.kind()).push_later(*job, delay),
        }
    }
}

/// A thread for orders of one kind.
struct OfKind {
    orders: Arc<Orders>,
    kind: Kind,
}

impl Worker for OfKind {
    fn run_once(&self, timeout: Duration) {
        let Some(job) = self.orders.queue(self.kind).pop(timeout) else { return };
        if let Some(server) = self.orders.server.upgrade() {
            self.orders.work(&server, job);
        }
    }

    fn wake(&self) {
        self.orders.queue(self.kind).wake_all();
    }

    /// Each thread does so: what another one puts there later, that one finds.
    fn end(&self) {
        let left = self.orders.queue(self.kind).take_all();
        if let Some(server) = self.orders.server.upgrade() {
            self.orders.end_openings(&server, left);
        }
    }
}

fn too_many() -> RpcError {
    RpcError::new(&exceptions::CALL_QUEUE_TOO_BIG, "too many orders of the master wait here")
}

fn jobs_of(
    request: &pb::ExecuteProceduresRequest,
    server: &ServerName,
    now_ns: u64,
) -> std::result::Result<Vec<Job>, RpcError> {
    let mut jobs = Vec::new();
    for open in &request.open_region {
        check_start_code(open.server_start_code, server)?;
        for info in &open.open_info {
            let region = RegionInfo::from_pb(&info.region).map_err(|error| errors::to_rpc(&error))?;
            let order = Order {
                procedure: info.open_proc_id(),
                master_active_ms: open.initiating_master_active_time,
            };
            jobs.push(Job::Open(OpenOrder { region, came_ns: now_ns, order }));
        }
    }
    for close in &request.close_region {
        jobs.push(Job::Close(close_order(close, server)?));
    }
    for run in &request.proc {
        let procedure = i64::try_from(run.proc_id)
            .map_err(|_| errors::invalid(format!("{} is no number of a procedure", run.proc_id)))?;
        let order = Order { procedure, master_active_ms: run.initiating_master_active_time };
        let data = run.proc_data.clone().unwrap_or_default();
        jobs.push(Job::Run(RunOrder { class: run.proc_class.clone(), data, order }));
    }
    Ok(jobs)
}

fn close_order(
    close: &pb::CloseRegionRequest,
    server: &ServerName,
) -> std::result::Result<CloseOrder, RpcError> {
    check_start_code(close.server_start_code, server)?;
    let destination = close.destination_server.as_ref().map(ServerName::from_pb).transpose();
    Ok(CloseOrder {
        encoded_name: encoded_name(&close.region)?,
        destination: destination.map_err(|error| errors::to_rpc(&error))?,
        order: Order {
            procedure: close.close_proc_id(),
            master_active_ms: close.initiating_master_active_time,
        },
    })
}

/// An order for a server that was here before is not for this one.
fn check_start_code(given: Option<u64>, server: &ServerName) -> std::result::Result<(), RpcError> {
    match given {
        Some(code) if code != server.start_code as u64 => Err(errors::invalid(format!(
            "the order is for a server with start code {code}; this is {server}"
        ))),
        _ => Ok(()),
    }
}

fn encoded_name(region: &pb::RegionSpecifier) -> std::result::Result<String, RpcError> {
    let encoded = crate::regions::region_table::encoded_part(&region.value);
    let text =
        std::str::from_utf8(&encoded).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    text.map(str::to_string)
        .ok_or_else(|| errors::invalid(format!("{} is no name of a region", region.value.escape_ascii())))
}

#[cfg(test)]
mod tests {
    use halcyon_schema::TableName;

    use super::*;

    fn server() -> ServerName {
        ServerName::new("h", 16020, 77)
    }

    fn open(start_code: u64) -> pb::OpenRegionRequest {
        let region = RegionInfo::new(TableName::parse(b"t").unwrap(), "a".into(), "b".into(), 3);
        let info = pb::open_region_request::RegionOpenInfo {
            region: region.to_pb(),
            open_proc_id: Some(9),
            ..Default::default()
        };
        pb::OpenRegionRequest {
            open_info: vec![info],
            server_start_code: Some(start_code),
            initiating_master_active_time: Some(5),
            ..Default::default()
        }
    }

    #[test]
    fn orders_of_all_kinds() {
        let close = pb::CloseRegionRequest {
            region: pb::RegionSpecifier { r#type: 2, value: "2140f686c386930b96c060b1030c2875".into() },
            destination_server: Some(ServerName::new("other", 1, 2).to_pb()),
            close_proc_id: Some(10),
            ..Default::default()
        };
        let run = pb::RemoteProcedureRequest {
            proc_id: 11,
            proc_class: "org.apache.hadoop.hbase.regionserver.FlushRegionCallable".to_string(),
            ..Default::default()
        };
        let request = pb::ExecuteProceduresRequest {
            open_region: vec![open(77)],
            close_region: vec![close],
            proc: vec![run],
        };
        let jobs = jobs_of(&request, &server(), 0).unwrap();
        let [Job::Open(open), Job::Close(close), Job::Run(run)] = &jobs[..] else { panic!("{jobs:?}") };
        assert_eq!(open.order, Order { procedure: 9, master_active_ms: Some(5) });
        assert_eq!(close.encoded_name, "2140f686c386930b96c060b1030c2875");
        assert_eq!(close.destination, Some(ServerName::new("other", 1, 2)));
        assert_eq!((close.order.procedure, run.order.procedure), (10, 11));
    }

    #[test]
    fn orders_for_a_former_server_are_refused() {
        let request = pb::ExecuteProceduresRequest { open_region: vec![open(76)], ..Default::default() };
        let refused = jobs_of(&request, &server(), 0).unwrap_err();
        assert!(refused.message.contains("start code 76"), "{}", refused.message);
    }

    #[test]
    fn the_newest_order_for_a_region_counts() {
        let order = |procedure, master_active_ms| Order { procedure, master_active_ms };
        let mut newest = Newest::default();
        for late in [false, true] {
            assert_eq!(newest.is_late("r", order(5, Some(1))), late);
            newest.note("r", order(6, Some(1)));
        }
        newest.note("r", order(3, Some(1))); // late itself
        assert!(newest.is_late("r", order(5, Some(1))) && !newest.is_late("r", order(6, Some(1))));
        assert!(!newest.is_late("s", order(5, Some(1))), "another region");
        newest.note("r", order(NO_PROCEDURE, None)); // of a tool
        assert!(newest.is_late("r", order(5, Some(1))));
        assert!(!newest.is_late("r", order(2, Some(9))), "another master");
        newest.note("r", order(2, Some(9)));
        assert!(newest.is_late("r", order(1, Some(9))));
        for masters_follow in [false, true] {
            assert_eq!(
                newest.is_superseded("r", order(6, Some(1)), masters_follow),
                masters_follow,
                "a former master"
            );
            assert!(!newest.is_superseded("r", order(2, Some(9)), masters_follow));
            assert!(newest.is_superseded("r", order(1, Some(9)), masters_follow));
            assert!(!newest.is_superseded("s", order(1, Some(9)), masters_follow));
        }
    }

    #[test]
    fn newest_orders_have_a_limit() {
        let mut newest = Newest::default();
        for number in 0..NEWEST_MAX as i64 * 3 {
            newest.note(&number.to_string(), Order { procedure: number, master_active_ms: Some(1) });
            assert!(newest.0.len() <= NEWEST_MAX);
        }
        let last = (NEWEST_MAX as i64 * 3 - 1).to_string();
        assert!(newest.is_late(&last, Order { procedure: 0, master_active_ms: Some(1) }));
    }

    #[test]
    fn garbage_is_refused() {
        for value in [&b"\xff\xfe"[..], b"../../x", b"t,a,1.zz."] {
            let close = pb::CloseRegionRequest {
                region: pb::RegionSpecifier { r#type: 1, value: Bytes::copy_from_slice(value) },
                ..Default::default()
            };
            let request = pb::ExecuteProceduresRequest { close_region: vec![close], ..Default::default() };
            assert!(jobs_of(&request, &server(), 0).is_err(), "{}", value.escape_ascii());
        }
        let run = pb::RemoteProcedureRequest { proc_id: u64::MAX, ..Default::default() };
        let request = pb::ExecuteProceduresRequest { proc: vec![run], ..Default::default() };
        assert!(jobs_of(&request, &server(), 0).is_err());
    }
}
