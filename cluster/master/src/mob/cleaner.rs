//! Takes mob files away that nobody needs, and asks for compactions that make such files.
//!
//! A file is archived if all its values have expired, or if the region that wrote it is gone and no store file of the table
//! refers to it. HBase 2.6.4 archives the second kind without a look at the references (`MobFileCleanupUtil`), and the archive is
//! emptied: after a split values are lost there.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::Result;
use halcyon_schema::{MobFileName, RegionInfo, TableDescriptor, TableName, layout};
use tracing::{info, warn};

use super::archive::archive_files;
use super::{families, files_of, references, regions_of};
use crate::chore::{Chore, Pauses};
use crate::procedure::Engine;
use crate::state::{MasterState, TableState};

/// How often the state of compactions is asked for while a batch runs. HBase: 10 s.
const BATCH_LOOK_PERIOD: Duration = Duration::from_secs(10);

/// When mob files are cleaned and compacted. See `hbase.master.mob.cleaner.period` and its neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MobChoreSettings {
    /// Zero: never.
    pub cleaner_period: Duration,
    /// Younger files are not archived.
    pub age_min: Duration,
    /// Zero: never.
    pub compaction_period: Duration,
    /// Regions of a table that compact at the same time; 0: all.
    pub compaction_batch: usize,
}

impl Default for MobChoreSettings {
    fn default() -> MobChoreSettings {
        MobChoreSettings {
            cleaner_period: Duration::from_secs(24 * 3600),
            age_min: Duration::from_secs(3600),
            compaction_period: Duration::from_secs(7 * 24 * 3600),
            compaction_batch: 0,
        }
    }
}

/// The chores and their thread.
pub(crate) struct MobChores(Chore);

/// When links to which nothing refers were first seen, in `monotonic_ns`: a restore may be about to make what needs them.
pub(crate) type UnusedLinks = HashMap<PathBuf, u64>;

struct Shared {
    core: Arc<MasterState>,
    engine: Arc<Engine>,
    pauses: Arc<Pauses>,
}

impl MobChores {
    pub(crate) fn start(core: Arc<MasterState>, engine: Arc<Engine>) -> Result<MobChores> {
        let shared = Shared { core, engine, pauses: Arc::default() };
        Ok(MobChores(Chore::start("master-mob", shared.pauses.clone(), move || shared.work())?))
    }

    pub(crate) fn stop(&self) {
        self.0.stop();
    }
}

impl Shared {
    fn work(&self) {
        let settings = &self.core.settings.mob;
        let now_ns = || self.core.env.clock.monotonic_ns();
        let (mut cleaned_ns, mut compacted_ns) = (now_ns(), now_ns());
        let mut unused_links = UnusedLinks::new();
        let is_due = |done_ns: u64, period: Duration| {
            !period.is_zero() && u128::from(now_ns() - done_ns) >= period.as_nanos()
        };
        let pause = [settings.cleaner_period, settings.compaction_period]
            .into_iter()
            .filter(|period| !period.is_zero())
            .min()
            .unwrap_or(Duration::from_secs(3600))
            .min(Duration::from_secs(60));
        while self.pauses.pause(Some(pause)) {
            if is_due(cleaned_ns, settings.cleaner_period) {
                cleaned_ns = now_ns();
                clean(&self.core, &self.engine, &mut unused_links);
            }
            if is_due(compacted_ns, settings.compaction_period) {
                compacted_ns = now_ns();
                self.compact_all();
            }
        }
    }

    /// HBase: `MobFileCompactionChore`.
    fn compact_all(&self) {
        for table in tables(&self.core, true) {
            for family in table.families().iter().filter(|family| family.is_mob()) {
                let regions = match self.core.table(table.name()) {
                    Ok(entry) => entry.live_regions(),
                    Err(_) => break, // it was deleted meanwhile
                };
                info!(table = %table.name(), family = %family.name_str(), "mob files are compacted");
                if !self.compact_regions(regions.into(), family.name()) {
                    return;
                }
            }
        }
    }

    /// So many at a time as the settings say. False once the master stops.
    fn compact_regions(&self, mut left: VecDeque<RegionInfo>, family: &Bytes) -> bool {
        let batch = match self.core.settings.mob.compaction_batch {
            0 => left.len(),
            batch => batch,
        };
        let mut running: Vec<RegionInfo> = Vec::new();
        while !left.is_empty() || !running.is_empty() {
            while running.len() < batch
                && let Some(region) = left.pop_front()
            {
                let server = self.core.server_of(&region);
                match server.and_then(|server| server.compact_region(&region, family, true)) {
                    Ok(()) => running.push(region),
                    Err(error) => warn!(%region, %error, "mob files are not compacted"),
                }
            }
            if left.is_empty() {
                return true; // nobody waits for the last ones
            }
            if !self.pauses.pause(Some(BATCH_LOOK_PERIOD)) {
                return false;
            }
            running.retain(|region| {
                let server = self.core.server_of(region);
                server.and_then(|server| server.is_compacting(region)).unwrap_or(false)
            });
        }
        true
    }
}

/// Tables, or those that are enabled.
fn tables(core: &MasterState, enabled: bool) -> Vec<Arc<TableDescriptor>> {
    let tables = core.tables.read();
    let wanted = tables.by_name.values().filter(|entry| !enabled || entry.state == TableState::Enabled);
    wanted.map(|entry| entry.descriptor.clone()).collect()
}

/// One run over all tables. An error of one table is told, and the others are cleaned.
pub(crate) fn clean(core: &MasterState, engine: &Engine, unused_links: &mut UnusedLinks) -> usize {
    let mut count = 0;
    let before = std::mem::take(unused_links);
    for table in tables(core, false) {
        let mut orphans = || clean_orphans(core, engine, &table, &before, unused_links);
        match clean_expired(core, &table).and_then(|expired| Ok(expired + orphans()?)) {
            Ok(cleaned) => count += cleaned,
            Err(error) => warn!(table = %table.name(), %error, "mob files could not be cleaned"),
        }
    }
    if count > 0 {
        info!(count, "mob files that nobody needs are archived");
    }
    count
}

/// Archives the files whose newest value is over the family's time to live, by the day in their names.
fn clean_expired(core: &MasterState, table: &TableDescriptor) -> Result<usize> {
    let mut count = 0;
    for family in table.families().iter().filter(|family| family.is_mob() && family.min_versions() == 0) {
        let Some(ttl_s) = family.ttl_seconds() else { continue };
        let ttl_ms = i64::try_from(ttl_s.saturating_mul(1000)).unwrap_or(i64::MAX);
        let first_day = core.env.clock.day_of(core.now_ms().saturating_sub(ttl_ms));
        let is_expired = |name: &String| day_of(name).is_some_and(|day| day < first_day);
        let files = files_of(core, table.name(), &family.name_str())?.into_iter().map(|(name, _)| name);
        let expired: Vec<String> = files.filter(is_expired).collect();
        archive_files(core, table.name(), &family.name_str(), &expired)?;
        count += expired.len();
    }
    Ok(count)
}

/// The day in the name of a mob file, or of the file that a link leads to.
fn day_of(name: &str) -> Option<u32> {
    let file = layout::parse_mob_link_name(name).map_or(name, |(_, _, file)| file);
    MobFileName::parse(file).map(|name| name.day)
}

/// Archives files of regions that are gone, to which no store file of the table refers.
///
/// A restore brings mob files back long before the store files that refer to them, in a region that is gone by then. So nothing is
/// archived while a procedure has the table for itself; it is asked before the look and after.
fn clean_orphans(
    core: &MasterState,
    engine: &Engine,
    table: &TableDescriptor,
    links_before: &UnusedLinks,
    unused_links: &mut UnusedLinks,
) -> Result<usize> {
    let mut count = 0;
    let name = table.name();
    if engine.holds_table(name) {
        return Ok(0);
    }
    for family in families(core, table)? {
        let family_name = family.name_str();
        // In this order: a region that comes after the look has no files among these, and one that goes leaves its references
        // to its daughters first.
        let files = files_of(core, name, &family_name)?;
        let regions = regions_of(core, name)?;
        let region_names: HashSet<&str> = regions.iter().map(RegionInfo::encoded_name).collect();
        let is_orphan = |file: &str| match MobFileName::parse(file) {
            Some(parsed) => !region_names.contains(parsed.region),
            None => layout::parse_mob_link_name(file).is_some(),
        };
        let mut orphans: Vec<String> =
            files.into_iter().map(|(file, _)| file).filter(|file| is_orphan(file)).collect();
        if orphans.is_empty() {
            continue;
        }
        let Some(refs) = references(core, table, &family, &regions)? else {
            warn!(
                table = %name,
                family = %family_name,
                "a store file does not say which mob files it refers to: none is cleaned before a major compaction"
            );
            continue;
        };
        orphans.retain(|file| match layout::parse_mob_link_name(file) {
            Some((owner, _, linked)) => !refs.contains(&owner, linked),
            None => !refs.contains(name, file),
        });
        let age = Age { core, links_before, unused_links: &mut *unused_links };
        orphans = age.old_ones(name, &family_name, orphans)?;
        if engine.holds_table(name) {
            return Ok(count); // what it refers to next was not looked at
        }
        archive_files(core, name, &family_name, &orphans)?;
        count += orphans.len();
    }
    Ok(count)
}

/// Tells the age of files.
struct Age<'a> {
    core: &'a MasterState,
    links_before: &'a UnusedLinks,
    unused_links: &'a mut UnusedLinks,
}

impl Age<'_> {
    /// Those that are old enough to be archived: a file by what it says of itself, a link by when it was first seen unused.
    fn old_ones(self, table: &TableName, family: &str, names: Vec<String>) -> Result<Vec<String>> {
        let age_min = self.core.settings.mob.age_min;
        let age_min_ms = i64::try_from(age_min.as_millis()).unwrap_or(i64::MAX);
        let latest_ms = self.core.now_ms().saturating_sub(age_min_ms);
        let now_ns = self.core.env.clock.monotonic_ns();
        let dir = layout::mob_family_dir(&self.core.root, table, family);
        let mut old = Vec::new();
        for name in names {
            let path = dir.join(&name);
            let is_old = if layout::parse_mob_link_name(&name).is_some() {
                let first = self.links_before.get(&path).copied();
                self.unused_links.insert(path, first.unwrap_or(now_ns));
                first.is_some_and(|first| u128::from(now_ns - first) >= age_min.as_nanos())
            } else {
                self.core.cluster.files.made_ms(&path)?.is_some_and(|made_ms| made_ms < latest_ms)
            };
            if is_old {
                old.push(name);
            }
        }
        Ok(old)
    }
}
