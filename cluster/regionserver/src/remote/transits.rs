//! Regions that come and go by order of the master.

use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result, SeqId};
use halcyon_proto::pb;
use halcyon_proto::pb::region_state_transition::TransitionCode;
use halcyon_region::Region;
use halcyon_schema::{RegionInfo, TableDescriptor, TableName};

use super::orders::{CloseOrder, Job, Kind, OpenOrder, Order, Orders, Then};
use super::telling::{Opened, OpenedOrder, Report};
use crate::RegionServer;

/// How long an order waits for another one of the same region.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(100);

impl Orders {
    pub(super) fn open(&self, server: &Arc<RegionServer>, open: OpenOrder) -> Then {
        let (region, name) = (&open.region, open.region.encoded_name());
        if self.is_late(name, open.order) {
            tracing::warn!(%region, procedure = open.order.procedure, "an order to open a region comes behind a later one");
            return Then::Done;
        }
        if server.regions.is_changing(name) {
            return Then::again(Job::Open(open), BUSY_PAUSE); // a failure would say that the region is not here
        }
        // One that is open is reported as such again. It needs no descriptor, so it cannot fail: the master would have it opened
        // elsewhere.
        if let Some(online) = server.regions.get(name) {
            return self.tell_opened(server, OpenedOrder::new(open, Opened::Known(online)));
        }
        let now_ns = server.env.clock.monotonic_ns();
        let read = || self.descriptor(server, region.table());
        let table = self.descriptors.since(region.table(), open.came_ns, now_ns, read);
        match table.and_then(|table| server.begin_opening(region, &table)) {
            Ok(Some(opening)) => self.tell_opened(server, OpenedOrder::new(open, Opened::New(opening))),
            Ok(None) => Then::again(Job::Open(open), BUSY_PAUSE), // another order has begun to open it
            Err(error) => self.not_opened(server, open, error),
        }
    }

    pub(super) fn not_opened(&self, server: &RegionServer, open: OpenOrder, error: Error) -> Then {
        match error.kind() {
            ErrorKind::Busy => Then::again(Job::Open(open), BUSY_PAUSE),
            ErrorKind::Stopping => Then::Done, // the master knows, or this server ends
            _ => {
                let region = &open.region;
                tracing::error!(%region, %error, "a region cannot be opened here");
                let failed = transition(TransitionCode::FailedOpen, region, None, open.order);
                self.tell_end(server, Report::Transition(failed), Kind::of_region(region), open.order)
            }
        }
    }

    pub(super) fn close(&self, server: &Arc<RegionServer>, close: CloseOrder) -> Then {
        let name = &close.encoded_name;
        if self.is_late(name, close.order) {
            tracing::warn!(
                region = name,
                procedure = close.order.procedure,
                "an order to close a region comes behind a later one"
            );
            return Then::Done;
        }
        // A master of Halcyon orders a close again that takes long, and asks where there is no report.
        if server.regions.is_opening(name) || (self.is_own_master() && server.regions.is_changing(name)) {
            return Then::again(Job::Close(close), BUSY_PAUSE);
        }
        let Some(online) = server.regions.get(name) else {
            // HBase's servers do the same: the master learns where the region is by the report of its server.
            tracing::warn!(region = name, "a region that is to be closed is not open here");
            return Then::Done;
        };
        let (region, open_seq) = (online.region.info().clone(), online.region.open_seq_num());
        drop(online);
        // Before it is closed, so that clients are told from then on.
        if let Some(destination) = &close.destination {
            server.regions.note_moved(name, destination, open_seq.get(), server.env.clock.monotonic_ns());
        }
        let Ok(flushed) = server.close_flushed(name, false) else {
            return Then::Done; // the server gives up
        };
        // All that was written is in files now, if this order has flushed it. HBase's masters do not expect to be told.
        let flushed = flushed.filter(|_| self.is_own_master()).map(SeqId::get);
        let closed = transition(TransitionCode::Closed, &region, flushed, close.order);
        self.tell_end(server, Report::Transition(closed), Kind::of_region(&region), close.order)
    }

    /// Reads what an opening of this region would read, before the master moves it here. Returns the number of store files.
    /// *Blocking*.
    pub(crate) fn warm_up(&self, server: &RegionServer, region: &RegionInfo) -> Result<usize> {
        if server.regions.get(region.encoded_name()).is_some() {
            return Ok(0);
        }
        server.regions.announce(region.encoded_name(), server.env.clock.monotonic_ns());
        let table = self.descriptor(server, region.table())?;
        let resources = &server.resources;
        Region::warm_up(&resources.env, &resources.cache, &resources.root, region, &table)
    }

    /// The newest descriptor of a table. `Invalid` if it asks for what does not run here.
    fn descriptor(&self, server: &RegionServer, table: &TableName) -> Result<TableDescriptor> {
        let resources = &server.resources;
        let found = TableDescriptor::read_newest(&*resources.env.fs, &resources.root, table)?;
        let (descriptor, _) = found.ok_or_else(|| {
            Error::new(ErrorKind::Io, format!("table {table} has no descriptor in its directory"))
        })?;
        super::refused::check(&descriptor, self.is_own_master(), server.settings.coprocessors.has_host())?;
        Ok(descriptor)
    }

    /// Proposes a split (`READY_TO_SPLIT`). The master makes the daughters, or does not. Not repeated after an error: the
    /// server proposes it again while the region is too large.
    pub(super) fn propose_split(&self, server: &RegionServer, parent: &RegionInfo, row: &bytes::Bytes) {
        let id = u64::try_from(server.env.clock.now_ms()).unwrap_or(0).max(parent.region_id() + 1);
        let daughter = |start: &bytes::Bytes, end: &bytes::Bytes| {
            RegionInfo::new(parent.table().clone(), start.clone(), end.clone(), id)
        };
        let daughters = [daughter(parent.start_key(), row), daughter(row, parent.end_key())];
        let transition = pb::RegionStateTransition {
            transition_code: TransitionCode::ReadyToSplit as i32,
            region_info: [parent, &daughters[0], &daughters[1]].map(RegionInfo::to_pb).to_vec(),
            ..Default::default()
        };
        let request = pb::ReportRegionStateTransitionRequest {
            server: server.server_name().to_pb(),
            transition: vec![transition],
        };
        if let Err(error) = self.master.transition(&request) {
            tracing::info!(%parent, %error, "the master was not told that a region is ready to split");
        }
    }
}

pub(super) fn transition(
    code: TransitionCode,
    region: &RegionInfo,
    open_seq_num: Option<u64>,
    order: Order,
) -> pb::RegionStateTransition {
    pb::RegionStateTransition {
        transition_code: code as i32,
        region_info: vec![region.to_pb()],
        open_seq_num,
        proc_id: vec![order.procedure],
        initiating_master_active_time: order.master_active_ms,
    }
}
