//! One region server that is alive: orders to it, and what it has reported.

use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_client::ClientError;
use halcyon_contract::remote_procedures::NO_SUCH_WAL;
use halcyon_contract::{
    Announce, CloseRegionRequest, FlushRegionRequest, LeftQueue, OpenRegionRequest, OpenRegionResponse,
    RegionInfoRequest, RegionInfoResponse, RegionServerApi, SplitWal,
};
use halcyon_env::{Clock, Mutex};
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName};
use prost::Message;
use tokio::sync::mpsc;

use crate::channel::Receiver;
use crate::errors::{self, Failure};
use crate::links::Links;
use crate::network::{Task, Way};
use crate::orders::{Order, OrderNumbers, Run, specifier};
use crate::sender::Sender;
use crate::sights::{ReportSums, Reported};
use crate::waiters::{Told, Waiters};
use crate::{ServersSettings, Target};

/// Orders to one server that wait to be sent.
const ORDERS_MAX: usize = 4_096;
/// A server may flush a region before it names its best split row.
const SPLIT_ROW_TIMEOUT: Duration = Duration::from_secs(60);

/// What all servers share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) way: Way,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Arc<ServersSettings>,
    pub(crate) numbers: Arc<OrderNumbers>,
}

/// A remote procedure that was ordered.
pub(crate) struct Running {
    procedure: i64,
    receiver: Receiver<Told>,
    begun_ns: u64,
}

/// *Thread safety*: all methods from any thread that may block, which no thread of the runtime may.
pub(crate) struct RemoteServer {
    name: ServerName,
    common: Common,
    links: Arc<Links>,
    pub(crate) waiters: Waiters,
    orders: mpsc::Sender<Order>,
    sending: Task,
    report: Mutex<Option<Arc<pb::ServerLoad>>>,
    reported: Mutex<Option<Reported>>,
}

impl RemoteServer {
    /// Connects when there is something to send.
    pub(crate) fn new(name: ServerName, common: Common) -> Arc<RemoteServer> {
        let settings = &common.settings;
        let links = Arc::new(Links::new(common.way.clone(), &name, settings));
        let (orders, queue) = mpsc::channel(ORDERS_MAX);
        Arc::new_cyclic(|server: &Weak<RemoteServer>| {
            let sender = Sender::new(server.clone(), name.clone(), common.clone(), Arc::clone(&links), queue);
            let sending = common.way.spawn("orders", sender.run());
            let waiters = Waiters::new(name.clone());
            let (report, reported) = (Mutex::default(), Mutex::default());
            RemoteServer { name, common, links, waiters, orders, sending, report, reported }
        })
    }

    pub(crate) fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// `version` is what the server's connection names.
    pub(crate) fn keep_report(&self, load: Arc<pb::ServerLoad>, version: Option<(u32, u32)>) {
        let mut reported = self.reported.lock();
        let now_ms = self.common.clock.now_ms();
        *reported = Some(Reported::new(&load, version, now_ms, reported.as_ref()));
        drop(reported);
        *self.report.lock() = Some(load);
    }

    pub(crate) fn report(&self) -> Option<Arc<pb::ServerLoad>> {
        self.report.lock().clone()
    }

    pub(crate) fn sums(&self) -> Option<ReportSums> {
        self.reported.lock().as_ref().map(|reported| reported.sums.clone())
    }

    /// The server is dead. Callers that wait for it are told so.
    pub(crate) fn end(&self) {
        self.waiters.end();
        self.links.close();
        self.sending.abort();
    }

    fn send(&self, order: Order) -> Result<()> {
        self.orders.try_send(order).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => {
                let text = format!("{ORDERS_MAX} orders wait to be sent to {}", self.name);
                Error::new(ErrorKind::Busy, text)
            }
            mpsc::error::TrySendError::Closed(_) => self.ended(),
        })
    }

    fn ended(&self) -> Error {
        Error::new(ErrorKind::Moved, format!("region server {} died before the order ended", self.name))
    }

    /// Has the server read the quotas. Does not wait for it.
    pub(crate) fn reload_quotas(&self) -> Result<()> {
        self.send(Order::run(self.common.numbers.next(), Run::reload_quotas()))
    }

    /// Has the server read a replication peer. The answer is to be waited for.
    pub(crate) fn read_peer(&self, peer_id: &str) -> Result<Running> {
        self.begin(Run::read_peer(peer_id))
    }

    /// Has the server send what is left of a replication queue. The answer is to be waited for.
    pub(crate) fn claim_queue(&self, queue: &LeftQueue) -> Result<Running> {
        self.begin(Run::claim_queue(&queue.peer_id, &queue.name))
    }

    fn begin(&self, run: Run) -> Result<Running> {
        let begun_ns = self.common.clock.monotonic_ns();
        let procedure = self.common.numbers.next();
        let receiver = self.waiters.wait_for_run(procedure)?;
        if let Err(error) = self.send(Order::run(procedure, run)) {
            self.waiters.give_up(procedure);
            return Err(error);
        }
        Ok(Running { procedure, receiver, begun_ns })
    }

    /// Waits for the end of a procedure. `Busy` if the server does not tell it in time: it may end it later.
    pub(crate) fn wait_for(&self, running: Running) -> std::result::Result<(), Failure> {
        let time_max = self.common.settings.run_timeout;
        let now_ns = self.common.clock.monotonic_ns();
        let waited = Duration::from_nanos(now_ns.saturating_sub(running.begun_ns));
        match running.receiver.recv_timeout(time_max.saturating_sub(waited)) {
            Ok(Told::Done) => Ok(()),
            Ok(Told::Failed(failure)) => Err(failure),
            Err(RecvTimeoutError::Timeout) => {
                self.waiters.give_up(running.procedure);
                let text = format!("{} has not ended what it was told within {time_max:?}", self.name);
                Err(Error::new(ErrorKind::Busy, text).into())
            }
            Ok(_) | Err(RecvTimeoutError::Disconnected) => Err(self.ended().into()),
        }
    }

    fn run(&self, run: Run) -> std::result::Result<(), Failure> {
        let running = self.begin(run)?;
        self.wait_for(running)
    }

    /// Waits for the report of an opening. A server of HBase reports nothing of a region that it has open already: so the server
    /// is asked now and then, and [`Told::Done`] says that it serves the region.
    fn wait_until_opened(
        &self,
        procedure: i64,
        region: &RegionInfo,
        receiver: &Receiver<Told>,
    ) -> Result<Told> {
        let (name, settings) = (region.encoded_name(), &self.common.settings);
        let time_max = settings.open_timeout;
        let begun_ns = self.common.clock.monotonic_ns();
        loop {
            let waited = Duration::from_nanos(self.common.clock.monotonic_ns().saturating_sub(begun_ns));
            let pause = settings.open_check_period.min(time_max.saturating_sub(waited));
            match receiver.recv_timeout(pause) {
                Ok(told) => return Ok(told),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let is_late = waited + pause >= time_max;
            let is_open = !is_late && self.serves(region);
            if !is_late && !is_open {
                continue;
            }
            if !self.waiters.give_up_opening(name, procedure) {
                // It was opened at the last moment.
                return receiver.recv().map_err(|_| self.ended());
            }
            if is_open {
                return Ok(Told::Done);
            }
            let text = format!("{} has not opened {region} within {time_max:?}", self.name);
            return Err(Error::new(ErrorKind::Busy, text));
        }
    }

    /// Waits for a region to be closed. The report of a close may be lost with an earlier master, and of a region that is
    /// not open there is none: so the server is asked again and again. `Busy` if it takes too long: the region may be closed later.
    fn wait_until_closed(
        &self,
        procedure: i64,
        request: &CloseRegionRequest,
        receiver: &Receiver<Told>,
    ) -> Result<()> {
        let time_max = self.common.settings.close_timeout;
        let begun_ns = self.common.clock.monotonic_ns();
        loop {
            let waited_ns = self.common.clock.monotonic_ns().saturating_sub(begun_ns);
            if Duration::from_nanos(waited_ns) >= time_max {
                let text = format!("{} has not closed {} within {time_max:?}", self.name, request.region);
                return Err(Error::new(ErrorKind::Busy, text));
            }
            match receiver.recv_timeout(self.common.settings.close_check_period) {
                Ok(Told::Done) => return Ok(()),
                Ok(Told::Failed(failure)) => return Err(errors::not_permanent(failure.error)),
                Ok(Told::Ask) | Err(RecvTimeoutError::Timeout) => {
                    if self.waiters.asks(procedure) && self.is_closed(&request.region) {
                        return Ok(());
                    }
                }
                Ok(Told::Opened(_) | Told::Ended) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.ended());
                }
            }
        }
    }

    /// Whether the server says that it does not have the region. A server that does not answer may have it. That a region has moved
    /// must be said twice: the text names no region.
    fn is_closed(&self, region: &RegionInfo) -> bool {
        let Err(said) = self.ask_for(region) else { return false };
        errors::is_not_serving(&said, region)
            || errors::has_moved(&said)
                && self
                    .ask_for(region)
                    .is_err_and(|again| errors::is_not_serving(&again, region) || errors::has_moved(&again))
    }

    /// Whether the server says that it serves the region.
    fn serves(&self, region: &RegionInfo) -> bool {
        self.ask_for(region).is_ok()
    }

    fn ask_for(&self, region: &RegionInfo) -> std::result::Result<pb::GetRegionInfoResponse, ClientError> {
        let request = pb::GetRegionInfoRequest { region: specifier(region), ..Default::default() };
        self.ask("GetRegionInfo", request, self.common.settings.call_timeout)
    }

    fn ask<M: Message + Default + 'static>(
        &self,
        method: &'static str,
        request: impl Message + 'static,
        timeout: Duration,
    ) -> std::result::Result<M, ClientError> {
        let answer = self.links.call_blocking(Target::Admin, method, request, None, timeout);
        answer.map(|(message, _)| message)
    }
}

/// Takes the opening off the list, also if the announcement panics.
struct OpeningGuard<'a> {
    waiters: &'a Waiters,
    encoded_name: &'a str,
    procedure: i64,
}

impl Drop for OpeningGuard<'_> {
    fn drop(&mut self) {
        self.waiters.abandon_opening(self.encoded_name, self.procedure);
    }
}

impl RegionServerApi for RemoteServer {
    fn server_name(&self) -> ServerName {
        self.name.clone()
    }

    /// The report of the opening waits for the announcement, which runs in the calling thread.
    fn open_region(
        &self,
        request: &OpenRegionRequest,
        announce: &Announce<'_>,
    ) -> Result<OpenRegionResponse> {
        let (region, name) = (&request.region, request.region.encoded_name());
        let procedure = self.common.numbers.next();
        let receiver = self.waiters.wait_for_opening(name, procedure)?;
        let _guard = OpeningGuard { waiters: &self.waiters, encoded_name: name, procedure };
        self.send(Order::open(procedure, region))?;
        let open_seq_num = match self.wait_until_opened(procedure, region, &receiver)? {
            Told::Opened(open_seq_num) => open_seq_num,
            Told::Failed(failure) => return Err(errors::not_permanent(failure.error)),
            // It was open before, so there is no report that waits for the announcement.
            Told::Done => {
                return announce(0).map(|()| OpenRegionResponse { open_seq_num: 0 });
            }
            Told::Ask | Told::Ended => return Err(self.ended()),
        };
        let announced = announce(open_seq_num);
        let verdict = announced.as_ref().map_err(ToString::to_string).copied();
        if !self.waiters.announced(name, open_seq_num, &verdict) && announced.is_ok() {
            return Err(self.ended());
        }
        announced.map(|()| OpenRegionResponse { open_seq_num })
    }

    fn warm_up_region(&self, region: &RegionInfo) -> Result<()> {
        let message = pb::WarmupRegionRequest { region_info: region.to_pb() };
        let answer: std::result::Result<pb::WarmupRegionResponse, _> =
            self.ask("WarmupRegion", message, self.common.settings.call_timeout);
        answer.map(|_| ()).map_err(|error| errors::of_call(&self.name, "WarmupRegion", &error))
    }

    fn close_region(&self, request: &CloseRegionRequest) -> Result<()> {
        let procedure = self.common.numbers.next();
        let receiver = self.waiters.wait_for_close(request.region.encoded_name(), procedure)?;
        let closed = self.send(Order::close(procedure, request));
        let closed = closed.and_then(|()| self.wait_until_closed(procedure, request, &receiver));
        self.waiters.give_up(procedure);
        closed
    }

    /// `Moved` only if the server says that it does not have the region: then nothing of it is in memory there. What an order that has
    /// ended with its server has left, and a region that is on its way there, is in no file yet.
    fn flush_region(&self, request: &FlushRegionRequest) -> Result<()> {
        let Err(Failure { error, class }) = self.run(Run::flush(request)) else { return Ok(()) };
        let is_there = || class.is_none() || !self.is_closed(&request.region);
        if error.kind() == ErrorKind::Moved && is_there() {
            return Err(Error::new(ErrorKind::Busy, error.message()));
        }
        Err(error)
    }

    fn region_info(&self, request: &RegionInfoRequest) -> Result<RegionInfoResponse> {
        let call_timeout = self.common.settings.call_timeout;
        let timeout = if request.best_split_row { call_timeout.max(SPLIT_ROW_TIMEOUT) } else { call_timeout };
        let message = pb::GetRegionInfoRequest {
            region: specifier(&request.region),
            best_split_row: request.best_split_row.then_some(true),
            ..Default::default()
        };
        let answer: pb::GetRegionInfoResponse = self
            .ask("GetRegionInfo", message, timeout)
            .map_err(|error| errors::of_call(&self.name, "GetRegionInfo", &error))?;
        Ok(RegionInfoResponse {
            splittable: answer.splittable(),
            mergeable: answer.mergeable(),
            best_split_row: answer.best_split_row.filter(|row| request.best_split_row && !row.is_empty()),
        })
    }

    fn compact_region(&self, region: &RegionInfo, family: &Bytes, major: bool) -> Result<()> {
        let (region, family) = (specifier(region), Some(family.clone()));
        let message = pb::CompactRegionRequest { region, major: Some(major), family };
        let answer: std::result::Result<pb::CompactRegionResponse, _> =
            self.ask("CompactRegion", message, self.common.settings.call_timeout);
        answer.map(|_| ()).map_err(|error| errors::of_call(&self.name, "CompactRegion", &error))
    }

    fn is_compacting(&self, region: &RegionInfo) -> Result<bool> {
        let message = pb::GetRegionInfoRequest {
            region: specifier(region),
            compaction_state: Some(true),
            ..Default::default()
        };
        let answer: pb::GetRegionInfoResponse = self
            .ask("GetRegionInfo", message, self.common.settings.call_timeout)
            .map_err(|error| errors::of_call(&self.name, "GetRegionInfo", &error))?;
        Ok(answer.compaction_state() != pb::get_region_info_response::CompactionState::None)
    }

    fn online_regions(&self) -> Result<Vec<RegionInfo>> {
        let message = pb::GetOnlineRegionRequest::default();
        let answer: pb::GetOnlineRegionResponse = self
            .ask("GetOnlineRegion", message, self.common.settings.call_timeout)
            .map_err(|error| errors::of_call(&self.name, "GetOnlineRegion", &error))?;
        let regions = answer.region_info.iter().map(RegionInfo::from_pb).collect::<Result<Vec<_>>>();
        // Not `Corrupt`: the same question may be answered better later.
        regions.map_err(|error| Error::new(ErrorKind::Io, format!("{}: {error}", self.name)))
    }

    fn split_wal(&self, wal: &Path) -> Result<SplitWal> {
        match self.run(Run::split_wal(wal)) {
            Ok(()) => Ok(SplitWal::Done),
            Err(failure) if failure.is(NO_SUCH_WAL) => Ok(SplitWal::NotFound),
            // Another server may do better, but an operator is told what is wrong with the file.
            Err(failure) if failure.error.kind() == ErrorKind::Corrupt => Err(failure.error),
            Err(failure) => Err(errors::not_permanent(failure.error)),
        }
    }

    fn roll_wals(&self) -> Result<()> {
        let rolled = self.ask::<pb::RollWalWriterResponse>(
            "RollWALWriter",
            pb::RollWalWriterRequest {},
            self.common.settings.call_timeout,
        );
        rolled.map(drop).map_err(|error| errors::of_call(&self.name, "RollWALWriter", &error))
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::SystemClock;

    use super::*;

    #[test]
    fn orders_that_cannot_be_sent_have_a_limit_and_end_with_the_server() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let name = ServerName::new("127.0.0.1", listener.local_addr().unwrap().port(), 7);
        drop(listener); // the port refuses connections
        let settings = ServersSettings::new(ServerName::new("m", 1, 2), 5);
        let common = Common {
            way: Way::Runtime(runtime.handle().clone()),
            clock: Arc::new(SystemClock::new()),
            numbers: Arc::new(OrderNumbers::new(settings.active_ms)),
            settings: Arc::new(settings),
        };
        let server = RemoteServer::new(name, common);
        let mut callers = Vec::new();
        let error = loop {
            let procedure = server.common.numbers.next();
            callers.push(server.waiters.wait_for_run(procedure).unwrap());
            assert!(callers.len() < 3 * ORDERS_MAX);
            if let Err(error) = server.send(Order::run(procedure, Run::split_wal(Path::new("WALs/a/b")))) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert_eq!(server.waiters.count(), callers.len());
        server.end();
        assert!(callers.iter().all(|caller| matches!(caller.recv(), Ok(Told::Ended))));
        assert_eq!(server.waiters.count(), 0);
        assert_eq!(server.split_wal(Path::new("WALs/a/b")).unwrap_err().kind(), ErrorKind::Moved);
    }
}
