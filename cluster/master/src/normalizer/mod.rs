//! Splits large regions and merges small ones, so that those of a table have about one size.
//!
//! ```text
//! Normalize, or each period ─> queue of tables ─> thread: plan.rs ─> procedures of splits and merges
//! ```
//!
//! A table is looked at when `NORMALIZATION_ENABLED` says so. Only tables that are enabled, and that no procedure is changing.
//! The thread waits between plans so that no more is rewritten in a second than the settings allow.

mod plan;
mod settings;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_env::Mutex;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableName, parse_region_name};
use tracing::{debug, info};

use crate::chore::{Chore, Pauses};
use crate::procedure::{Engine, MergeRegions, Procedure, ProcedureView, Resource, SplitRegion, Submission};
use crate::service;
use crate::state::{MasterState, RegionState, TableState};
use crate::switches::Switch;
use plan::{Allowed, Measured, Plan};

pub use settings::NormalizerSettings;

/// The chore and its thread.
///
/// # Thread safety
/// The queue has a lock of its own, which is not held while a table is looked at.
pub(crate) struct Normalizer {
    shared: Arc<Shared>,
    chore: Chore,
}

struct Shared {
    core: Arc<MasterState>,
    engine: Arc<Engine>,
    /// Tables to be looked at, each once: there are no more than tables.
    queue: Mutex<Vec<TableName>>,
    pauses: Arc<Pauses>,
}

impl Normalizer {
    pub(crate) fn start(core: Arc<MasterState>, engine: Arc<Engine>) -> Result<Normalizer> {
        let shared = Arc::new(Shared { core, engine, queue: Mutex::default(), pauses: Arc::default() });
        let chore = Chore::start("master-normalizer", shared.pauses.clone(), {
            let shared = shared.clone();
            move || shared.work()
        })?;
        Ok(Normalizer { shared, chore })
    }

    /// Has these tables looked at before those that wait; those that are not enabled are left out. False if the normalizer is
    /// off, or regions are in transition.
    pub(crate) fn ask(&self, tables: Vec<TableName>) -> bool {
        self.shared.ask(tables, true)
    }

    pub(crate) fn stop(&self) {
        self.chore.stop();
    }
}

impl Shared {
    fn work(&self) {
        let period_ns = u64::try_from(self.core.settings.normalizer.period.as_nanos()).unwrap_or(u64::MAX);
        let mut next_ns = self.now_ns().saturating_add(period_ns);
        // When the next plan may be carried out, in `monotonic_ns`.
        let mut free_ns = 0;
        loop {
            if let Some(table) = self.next_table() {
                if !self.normalize(&table, &mut free_ns) {
                    return;
                }
                continue;
            }
            let left = Duration::from_nanos(next_ns.saturating_sub(self.now_ns()));
            if period_ns == 0 || !left.is_zero() {
                if !self.pauses.pause((period_ns > 0).then_some(left)) {
                    return;
                }
                continue;
            }
            next_ns = self.now_ns().saturating_add(period_ns);
            let tables = self.core.tables.read().by_name.keys().cloned().collect();
            self.ask(tables, false);
        }
    }

    fn next_table(&self) -> Option<TableName> {
        let mut queue = self.queue.lock();
        (!queue.is_empty()).then(|| queue.remove(0))
    }

    fn now_ns(&self) -> u64 {
        self.core.env.clock.monotonic_ns()
    }

    fn ask(&self, tables: Vec<TableName>, is_first: bool) -> bool {
        if !self.core.switches.lock().get(Switch::Normalizer)
            || self.core.check_running().is_err()
            || service::regions_in_transition_count(&self.core) > 0
        {
            return false;
        }
        let is_enabled = |name: &TableName| {
            let tables = self.core.tables.read();
            tables.by_name.get(name).is_some_and(|entry| entry.state == TableState::Enabled)
        };
        let tables: Vec<TableName> = tables.into_iter().filter(is_enabled).collect();
        let mut queue = self.queue.lock();
        let queued = std::mem::take(&mut *queue);
        let (front, back) = if is_first { (tables, queued) } else { (queued, tables) };
        for table in front.into_iter().chain(back) {
            if !queue.contains(&table) {
                queue.push(table);
            }
        }
        drop(queue);
        self.pauses.wake();
        true
    }

    /// False once the master stops.
    fn normalize(&self, table: &TableName, free_ns: &mut u64) -> bool {
        let plans = self.plans(table);
        debug!(%table, plans = plans.len(), "the normalizer has looked at a table");
        for plan in plans {
            if !self.wait_for_turn(plan.size_mb(), free_ns) {
                return false;
            }
            let size_mb = plan.size_mb();
            let procedure: std::result::Result<Box<dyn Procedure>, RpcError> = match plan {
                Plan::Split { region, .. } => {
                    info!(%region, size_mb, "the normalizer splits a region");
                    Ok(Box::new(SplitRegion::new(region, None)))
                }
                Plan::Merge { regions, .. } => {
                    info!(%table, regions = regions.len(), size_mb, first = %regions[0], "the normalizer merges regions");
                    MergeRegions::new(regions, false).map(|merge| Box::new(merge) as Box<dyn Procedure>)
                }
            };
            match procedure {
                // What is refused by then is looked at again in the next period.
                Ok(procedure) => drop(self.engine.submit(procedure, Submission::default())),
                Err(error) => info!(%table, %error, "a plan of the normalizer cannot be carried out"),
            }
        }
        true
    }

    /// Waits until a plan of this size may begin. False if the master stops.
    fn wait_for_turn(&self, size_mb: u64, free_ns: &mut u64) -> bool {
        let bytes_max = self.core.settings.normalizer.bytes_per_second_max;
        // Below a megabyte HBase takes no limit for meant.
        let mb_max = if bytes_max < 1_000_000 { u64::MAX } else { bytes_max / 1_000_000 };
        loop {
            let left = Duration::from_nanos(free_ns.saturating_sub(self.now_ns()));
            // Also where nothing is left to wait for: a master that stops begins no more.
            if !self.pauses.pause(Some(left)) {
                return false;
            }
            let now_ns = self.now_ns();
            if now_ns >= *free_ns {
                let ns = u128::from(size_mb.max(1)) * 1_000_000_000 / u128::from(mb_max);
                *free_ns = now_ns.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX));
                return true;
            }
        }
    }

    fn plans(&self, table: &TableName) -> Vec<Plan> {
        let core = &self.core;
        let lock = Resource::Table(table.clone());
        let is_changing =
            |view: &ProcedureView| view.locks.iter().any(|it| it.resource == lock && !it.shared);
        if self.engine.views().iter().any(is_changing) {
            info!(%table, "the normalizer leaves a table alone that is being changed");
            return Vec::new();
        }
        let Ok(entry) = core.table(table) else { return Vec::new() };
        let settings = &core.settings.normalizer;
        if entry.state != TableState::Enabled || !plan::is_wanted(&entry.descriptor, settings) {
            return Vec::new();
        }
        let sizes = self.sizes(table);
        let live = entry.live_regions().into_iter().filter(|region| region.replica_id() == 0);
        let sized = |region: RegionInfo| Measured {
            is_open: entry.regions.get(&region).is_some_and(|known| known.state == RegionState::Open),
            size_mb: sizes.get(region.encoded_name()).copied().unwrap_or(-1),
            region,
        };
        let mut regions: Vec<Measured> = live.map(sized).collect();
        regions.sort_by(|left, right| left.region.cmp(&right.region));
        let allowed = {
            let switches = core.switches.lock();
            Allowed { splits: switches.get(Switch::Split), merges: switches.get(Switch::Merge) }
        };
        plan::plan(&entry.descriptor, &regions, settings, allowed, core.now_ms())
    }

    /// Sizes of a table's regions as servers report them, in MB, by encoded name.
    fn sizes(&self, table: &TableName) -> HashMap<String, i64> {
        let reports = self.core.cluster.servers.reports();
        let loads = reports.into_iter().flat_map(|report| report.load.region_loads);
        let of_table = loads.filter_map(|load| {
            let parts = parse_region_name(&load.region_specifier.value).ok()?;
            let encoded = parts.encoded_name.filter(|_| parts.table == *table)?;
            Some((encoded, i64::from(load.storefile_size_mb())))
        });
        of_table.collect()
    }
}
