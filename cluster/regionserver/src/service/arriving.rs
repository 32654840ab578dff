//! Calls to a region that opens wait until it is open.
//!
//! A client of HBase that comes too early pauses for 100 ms, and for 200 ms if the region is not open then either. Most
//! openings take less. So a call that waits here for some milliseconds saves its client a pause.
//!
//! A master warms a region up where it will move it, before it is closed elsewhere. So a call that comes between that and the
//! order to open the region waits, too. Where the region was, clients learn at once where it goes (`RegionTable::find`).
//!
//! An opening that takes long delays the calls of its first moments only, because the limit counts from its beginning. Calls
//! that wait count as calls in progress, with their bytes.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use halcyon_rpc::{Call, RpcError};

use super::class;
use crate::RegionServer;
use crate::regions::region_table::Arrival;

/// A call waits for no more than this part of its client's patience.
const PART_OF_TIMEOUT: u32 = 2;

/// A region that a call may wait for.
pub(super) struct Awaited {
    arrival: Arrival,
    /// In `monotonic_ns`.
    until_ns: u64,
}

impl RegionServer {
    /// What a call has to wait for; `None`, which costs one atomic load, while no region of this server opens or is to open.
    #[inline]
    pub(super) fn awaited_by(&self, call: &Call) -> Option<Awaited> {
        if self.regions.is_any_arriving() { self.look_for_arrivals(call) } else { None }
    }

    fn look_for_arrivals(&self, call: &Call) -> Option<Awaited> {
        let now_ns = self.env.clock.monotonic_ns();
        let limit_ns = nanos(self.settings.arrival_wait_max);
        let patience_ns = call.timeout.map_or(u64::MAX, |timeout| nanos(timeout / PART_OF_TIMEOUT));
        let call_ends_ns = call.received_ns.saturating_add(patience_ns.min(limit_ns));
        let awaited = |arrival: Arrival| {
            let opening_ends_ns = arrival.began_ns.saturating_add(limit_ns);
            let until_ns = if arrival.is_opening { call_ends_ns.min(opening_ends_ns) } else { call_ends_ns };
            (until_ns > now_ns).then_some(Awaited { arrival, until_ns })
        };
        let regions = class::regions_of(&call.method, &call.param);
        regions.filter_map(|name| self.regions.arrival_of(name)).find_map(awaited)
    }

    /// Waits for the regions of a call that open, in all for no longer than for one. Ends with an error if the client has gone
    /// meanwhile, or the server has given up.
    pub(super) async fn wait_for_arrivals(&self, call: &Call, first: Awaited) -> Result<(), RpcError> {
        let terms = call.terms();
        let started_ns = self.env.clock.monotonic_ns();
        let mut next = Some(first);
        while let Some(awaited) = next {
            let has_come = self.wait_for_arrival(awaited).await;
            if let Some(error) = self.dropped(&terms) {
                return Err(error);
            }
            self.check_call(&call.connection)?;
            next = if has_come { self.awaited_by(call) } else { None };
        }
        let took = Duration::from_nanos(self.env.clock.monotonic_ns().saturating_sub(started_ns));
        if terms.is_traced || self.is_part_notable(took) {
            self.slow_calls.note(&terms, |noted| noted.held_back += took);
        }
        Ok(())
    }

    /// False: it did not come in time.
    async fn wait_for_arrival(&self, awaited: Awaited) -> bool {
        let Awaited { mut arrival, until_ns } = awaited;
        let left = Duration::from_nanos(until_ns.saturating_sub(self.env.clock.monotonic_ns()));
        // Where there is no runtime, in the simulation, this is polled again and again by a clock of its own.
        let timer = tokio::runtime::Handle::try_current().is_ok().then(|| tokio::time::sleep(left));
        let mut timer = timer.map(Box::pin);
        let mut over = pin!(arrival.over());
        std::future::poll_fn(|context| {
            if over.as_mut().poll(context).is_ready() {
                return Poll::Ready(true);
            }
            let is_late = self.env.clock.monotonic_ns() >= until_ns
                || timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready());
            if is_late { Poll::Ready(false) } else { Poll::Pending }
        })
        .await
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
