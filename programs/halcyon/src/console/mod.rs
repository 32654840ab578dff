//! The console: one page on both info ports, and the JSON that it is made from.
//!
//! ```text
//! sampler      one thread, each second: readings.rs -> timeline.rs, keys.rs, marks.rs      bounded memory, about 13 MB
//! /api/v1/*    api.rs: what the sampler kept, and lists that are made when they are asked for
//! /api/v1/...  cluster/: of the active master of a cluster: servers, regions in transition, balance, recoveries
//! /console     assets.rs: page, style and scripts, part of the program
//! ```
//!
//! Nothing here is on the path of a call: the sampler reads counters that the server keeps anyway. Pages show keys
//! escaped and cut (`keys_text.rs`), and never values.

mod api;
mod assets;
mod cluster;
mod columns;
mod health;
mod key_rows;
mod keys;
mod keys_text;
mod lists;
mod marks;
mod readings;
mod segments;
mod timeline;

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use halcyon_env::spawn_thread;
use halcyon_region::Region;
use halcyon_regionserver::MemoryAccount;
use parking_lot::Mutex;
use serde::Serialize;

use self::keys::{KeyTraffic, Requested};
use self::marks::StallMarks;
use self::timeline::Timeline;
use crate::pages::Sources;

pub use self::assets::page;
pub use self::health::{Finding, Severity};
pub use self::keys_text::key_text;

/// How often counters are read.
const SAMPLE_PERIOD: Duration = Duration::from_secs(1);
/// Requests of regions are read once in this number of seconds.
const REGIONS_PERIOD_S: u64 = 5;

/// Whose port a console is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Master,
    RegionServer,
}

/// What the console shows. Both ports share one.
pub struct Console {
    sources: Arc<Sources>,
    /// When second 0 of `kept` was, in milliseconds since 1970 and by the monotonic clock.
    started_ms: i64,
    started_ns: u64,
    kept: Mutex<Kept>,
    /// What `kept` takes of the server's memory budget.
    account: Arc<MemoryAccount>,
}

/// What the sampler has read.
#[derive(Default)]
struct Kept {
    timeline: Timeline,
    keys: KeyTraffic,
    stalls: StallMarks,
    seen_stalls: u64,
    regions_at_s: Option<u64>,
}

impl Kept {
    /// Memory that it takes.
    fn held_bytes(&self) -> u64 {
        self.timeline.held_bytes() + self.keys.held_bytes() + self.stalls.held_bytes()
    }
}

/// The routes of the page and its JSON.
pub fn routes(console: &Arc<Console>, role: Role) -> Router {
    assets::routes().merge(api::routes(Arc::clone(console), role))
}

impl Console {
    /// Starts to read counters. The thread ends when the last reference is dropped.
    pub fn start(sources: Arc<Sources>) -> io::Result<Arc<Console>> {
        let (started_ms, started_ns) = (sources.clock.now_ms(), sources.clock.monotonic_ns());
        let account = sources.region_server.open_memory_account("console");
        let console = Arc::new(Console { sources, started_ms, started_ns, kept: Mutex::default(), account });
        let clock = console.sources.clock.clone();
        let sampled: Weak<Console> = Arc::downgrade(&console);
        spawn_thread("console", move || {
            loop {
                let Some(console) = sampled.upgrade() else { return };
                console.sample();
                let wait = console.until_next_sample();
                drop(console);
                clock.sleep(wait);
            }
        })?;
        Ok(console)
    }

    fn since_start(&self) -> Duration {
        Duration::from_nanos(self.sources.clock.monotonic_ns().saturating_sub(self.started_ns))
    }

    fn now_s(&self) -> u64 {
        self.since_start().as_secs()
    }

    /// A second of the console in milliseconds since 1970. The clock may have been set since; the time axis goes on.
    fn unix_ms(&self, second: i64) -> i64 {
        self.started_ms + second * 1000
    }

    fn until_next_sample(&self) -> Duration {
        let period_ns = SAMPLE_PERIOD.as_nanos();
        Duration::from_nanos((period_ns - self.since_start().as_nanos() % period_ns) as u64)
    }

    /// Reads everything once. Counters are read before the lock is taken.
    fn sample(&self) {
        let readings = readings::read(&self.sources);
        let at_s = self.now_s();
        let mut kept = self.kept.lock();
        kept.timeline.push(at_s, readings);
        let (stalls, seen) = self.sources.stalls.since(kept.seen_stalls);
        kept.seen_stalls = seen;
        kept.stalls.push(at_s, &stalls);
        if kept.regions_at_s.is_none_or(|last| at_s >= last + REGIONS_PERIOD_S) {
            kept.regions_at_s = Some(at_s);
            let regions = self.sources.region_server.regions().online();
            kept.keys.push(at_s, regions.iter().map(|online| requested(&online.region)));
        }
        self.account.set(kept.held_bytes());
    }
}

fn requested(region: &Region) -> Requested<'_> {
    let (reads, writes) = region.requests();
    Requested { info: region.info(), reads, writes, samples: region.take_key_samples() }
}
