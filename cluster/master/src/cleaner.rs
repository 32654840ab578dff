//! Deletes archived store files and old logs that nobody can want any more, and snapshots whose time to live is over.
//!
//! A store file goes to the archive when a compaction or an action on its table has done with it, a log to
//! `oldWALs` when no region has unflushed edits in it. Both are kept for a while, for readers that are under way
//! and for people; then they go, unless a snapshot names the file, a link leads to it, or a replication peer or a backup needs
//! it (HBase: `HFileCleaner`, `LogCleaner`, their time-to-live and snapshot delegates, `HFileLinkCleaner`,
//! `ReplicationLogCleaner`, `ReplicationHFileCleaner`, those of backups). While a snapshot is being taken no store file goes
//! (HBASE-21387): it may be one that the snapshot has named so far. Nor does a mob file to which a store file still refers. The age is counted from when the cleaner first saw the file, so that it depends
//! on no clock but the monotonic one and a restart begins anew.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_env::{DirEntry, FileSystem, Mutex};
use halcyon_schema::layout;
use tracing::{info, warn};

use crate::chore::{Chore, Pauses};
use crate::descriptors::list;
use crate::procedure::{CleanRegions, DeleteSnapshot, Engine};
use crate::snapshot;
use crate::state::MasterState;
use crate::switches::Switch;
use crate::{backup, janitor, links, mob, peers};

/// How often barriers of serial peers are looked at, with all of `hbase:meta` (HBase:
/// `hbase.master.cleaner.replication.barrier.interval`, 12 hours).
const BARRIERS_PERIOD: Duration = Duration::from_secs(60 * 60);

/// The chore and its thread.
///
/// # Thread safety
/// A run holds `seen`, so that runs follow each other.
pub(crate) struct Cleaner {
    shared: Arc<Shared>,
    chore: Chore,
}

/// The files that a path is among.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Root,
    /// Those that WALs are among, if they are others.
    Wals,
}

type Seen = HashMap<(Place, PathBuf), u64>;

struct Shared {
    core: Arc<MasterState>,
    engine: Arc<Engine>,
    /// When each file or empty directory was first seen, in `monotonic_ns`.
    seen: Mutex<Seen>,
    /// In `monotonic_ns`; at first when the cleaner began.
    barriers_cleaned_ns: Mutex<u64>,
    pauses: Arc<Pauses>,
}

impl Cleaner {
    pub(crate) fn start(core: Arc<MasterState>, engine: Arc<Engine>) -> Result<Cleaner> {
        let (seen, pauses) = (Mutex::default(), Arc::<Pauses>::default());
        let barriers_cleaned_ns = Mutex::new(core.env.clock.monotonic_ns());
        let shared = Arc::new(Shared { core, engine, seen, barriers_cleaned_ns, pauses });
        let chore = Chore::start("master-cleaner", shared.pauses.clone(), {
            let shared = shared.clone();
            move || shared.work()
        })?;
        Ok(Cleaner { shared, chore })
    }

    /// One run, now. False if the chore is turned off.
    pub(crate) fn run(&self) -> Result<bool> {
        self.shared.run()
    }

    pub(crate) fn stop(&self) {
        self.chore.stop();
    }
}

impl Shared {
    fn work(&self) {
        while self.pauses.pause(Some(self.core.settings.cleaner_period)) {
            if let Err(error) = scan_catalog(&self.core, &self.engine) {
                warn!(%error, "parents of splits and merges could not be looked for");
            }
            if let Err(error) = self.delete_expired_snapshots() {
                warn!(%error, "snapshots whose time to live is over could not be looked for");
            }
            if let Err(error) = self.run() {
                warn!(%error, "archive and old logs could not be cleaned");
            }
            if let Err(error) = self.clean_barriers_if_due() {
                warn!(%error, "replication barriers could not be cleaned");
            }
        }
    }

    fn clean_barriers_if_due(&self) -> Result<()> {
        let now_ns = self.core.env.clock.monotonic_ns();
        {
            let mut last = self.barriers_cleaned_ns.lock();
            let is_due = now_ns.saturating_sub(*last) >= BARRIERS_PERIOD.as_nanos() as u64;
            if !is_due {
                return Ok(());
            }
            *last = now_ns;
        }
        peers::barriers::clean(&self.core).map(drop)
    }

    /// Begins to delete the snapshots whose time to live is over (HBase: `SnapshotCleanerChore`).
    fn delete_expired_snapshots(&self) -> Result<()> {
        if !self.core.switches.lock().get(Switch::SnapshotCleanup) {
            return Ok(());
        }
        let now_ms = self.core.now_ms();
        for info in snapshot::list_infos(&self.core)? {
            if snapshot::is_expired(&info, now_ms) {
                info!(snapshot = info.name, ttl_s = info.ttl(), "a snapshot's time to live is over");
                let key = format!("delete snapshot {}", info.name);
                self.engine.propose(key, Box::new(DeleteSnapshot::expired(info.name)));
            }
        }
        Ok(())
    }

    fn run(&self) -> Result<bool> {
        if !self.core.switches.lock().get(Switch::CleanerChore) {
            return Ok(false);
        }
        let mut seen = self.seen.lock();
        let now_ns = self.core.env.clock.monotonic_ns();
        let mut pass = Pass { now_ns, before: &seen, after: HashMap::new() };
        let cleaned = self.clean(&mut pass);
        let after = pass.after;
        match &cleaned {
            Ok(_) => *seen = after,
            // What was not looked at goes on ageing, and so does what was seen for the first time.
            Err(_) => seen.extend(after),
        }
        let deleted = cleaned?;
        if deleted > 0 {
            info!(deleted, "archived store files and old logs are deleted");
        }
        Ok(true)
    }

    /// The number of files deleted.
    fn clean(&self, pass: &mut Pass<'_>) -> Result<usize> {
        let (core, settings) = (&self.core, &self.core.settings);
        // Asked before that is read: a snapshot that ends during this run is not among what is read.
        let took_snapshot = self.engine.takes_snapshot();
        // Read before the archive is looked at: a file that a later snapshot names was not there yet.
        let mut wanted = snapshot::named_files(core)?;
        wanted.extend(backup::needed_files(core)?);
        wanted.extend(mob::linked_files(core)?);
        let mut deleted = 0;
        // Below the root directory there may be WALs from before those had one of their own.
        let wals = &core.cluster.wals;
        let apart = (!wals.is_root).then_some((&*wals.env.fs, &*wals.root, Place::Wals));
        for (fs, root, place) in apart.into_iter().chain([(&*core.env.fs, &*core.root, Place::Root)]) {
            let dir = layout::old_wals_dir(root);
            let files: Vec<_> = list(fs, &dir)?.into_iter().filter(|file| !file.is_dir).collect();
            // Asked for after the look: what a later peer needs was not there yet.
            let mut needed = peers::needed_wals(core, &files)?;
            needed.extend(backup::needed_wals(core, &files)?);
            for file in files.into_iter().filter(|file| !needed.contains(&file.name)) {
                deleted += pass.delete_if_old(fs, place, &dir.join(file.name), settings.old_wals_keep)?;
            }
        }
        let regions = archived_regions(core)?;
        wanted.extend(peers::needed_hfiles(core, &regions)?);
        for region in regions {
            deleted += self.clean_region(pass, &region, &wanted, took_snapshot)?;
        }
        Ok(deleted)
    }

    /// Cleans the archive of one region; a directory that stayed empty goes if its region is gone, too.
    fn clean_region(
        &self,
        pass: &mut Pass<'_>,
        region: &Path,
        wanted: &HashSet<String>,
        took_snapshot: bool,
    ) -> Result<usize> {
        let keep = self.core.settings.archive_keep;
        let (mut deleted, mut left) = (0, 0);
        let is_family = |entry: &DirEntry| entry.is_dir && !entry.name.starts_with('.');
        for family in list(&*self.core.env.fs, region)?.into_iter().filter(is_family) {
            let dir = region.join(family.name);
            let entries = list(&*self.core.env.fs, &dir)?;
            let mut mob_files = mob::ArchivedFiles::new(&self.core, &dir);
            let mut linked = HashSet::new();
            for entry in entries.iter().filter(|entry| entry.is_dir) {
                left += 1;
                let Some(file) = layout::parse_back_references_name(&entry.name) else { continue };
                if self.clean_back_references(pass, &dir.join(&entry.name))? > 0 {
                    linked.insert(file);
                } else if !self.has_file(&dir, file)? {
                    self.core.env.fs.remove_dir_all(&dir.join(&entry.name))?;
                    left -= 1;
                }
            }
            // Asked after the look: what a later snapshot names was not among these, or was there already.
            let takes_snapshot = took_snapshot || self.engine.takes_snapshot();
            for file in entries.iter().filter(|entry| !entry.is_dir) {
                left += 1;
                let path = dir.join(&file.name);
                if takes_snapshot {
                    pass.is_old(Place::Root, &path, keep); // its time goes on
                } else if !wanted.contains(&file.name)
                    && !linked.contains(&*file.name)
                    && pass.is_old(Place::Root, &path, keep)
                    && !mob_files.is_referred_to(&self.core, &file.name)
                {
                    let count = pass.delete_if_old(&*self.core.env.fs, Place::Root, &path, keep)?;
                    (deleted, left) = (deleted + count, left - count);
                }
            }
        }
        if left == 0 && pass.is_old(Place::Root, region, keep) && self.is_forgotten(region) {
            self.core.env.fs.remove_dir_all(region)?;
        }
        Ok(deleted)
    }

    /// Removes back references whose links have been gone for a while. How many there are then. The while is for readers that
    /// have the file open, and for a link that is about to be made again.
    fn clean_back_references(&self, pass: &mut Pass<'_>, dir: &Path) -> Result<usize> {
        let (fs, root, keep) = (&*self.core.env.fs, &*self.core.root, self.core.settings.archive_keep);
        let mut left = 0;
        for entry in list(fs, dir)? {
            let is_there = links::is_link_there(fs, root, dir, &entry.name)?;
            left += 1;
            if !is_there {
                left -= pass.delete_if_old(fs, Place::Root, &dir.join(entry.name), keep)?;
            }
        }
        Ok(left)
    }

    /// Whether a store file of this name is in the directory of an archived family, or still in that of its store.
    fn has_file(&self, archived: &Path, file: &str) -> Result<bool> {
        let (fs, root) = (&self.core.env.fs, &self.core.root);
        let Ok(below) = archived.strip_prefix(layout::archive_dir(root)) else { return Ok(true) };
        let live = [root.to_path_buf(), layout::mob_home(root)].map(|root| root.join(below).join(file));
        Ok(fs.first_existing([&*archived.join(file), &live[0], &live[1]])?.is_some())
    }

    /// Whether no table has the region and no procedure could be about to archive it.
    fn is_forgotten(&self, region: &Path) -> bool {
        let name = region.file_name().unwrap_or_default().to_string_lossy();
        self.engine.views().is_empty() && self.core.tables.read().region(&name).is_none()
    }
}

/// Looks for regions that were split or merged and are not needed any more, and begins to take them away. Their number;
/// `None` if the janitor is turned off.
pub(crate) fn scan_catalog(core: &MasterState, engine: &Engine) -> Result<Option<usize>> {
    if !core.switches.lock().get(Switch::CatalogJanitor) {
        return Ok(None);
    }
    let mut count = 0;
    for (table, regions) in janitor::unused(core)? {
        count += regions.len();
        engine.propose(format!("clean {table}"), Box::new(CleanRegions::new(table, regions)));
    }
    Ok(Some(count))
}

/// One run's look at what there is.
struct Pass<'a> {
    now_ns: u64,
    before: &'a Seen,
    after: Seen,
}

impl Pass<'_> {
    fn is_old(&mut self, place: Place, path: &Path, keep: Duration) -> bool {
        let key = (place, path.to_path_buf());
        let first = self.before.get(&key).copied().unwrap_or(self.now_ns);
        self.after.insert(key, first);
        assert!(first <= self.now_ns, "{} was seen before it is looked at", path.display());
        u128::from(self.now_ns - first) >= keep.as_nanos()
    }

    /// The number of files deleted.
    fn delete_if_old(
        &mut self,
        fs: &dyn FileSystem,
        place: Place,
        path: &Path,
        keep: Duration,
    ) -> Result<usize> {
        if !self.is_old(place, path, keep) {
            return Ok(0);
        }
        fs.remove_file(path)?;
        self.after.remove(&(place, path.to_path_buf()));
        Ok(1)
    }
}

/// `archive/data/<namespace>/<table>/<region>`.
fn archived_regions(core: &MasterState) -> Result<Vec<PathBuf>> {
    let mut dirs = vec![layout::archive_dir(&core.root).join(layout::DATA)];
    for _level in ["namespace", "table", "region"] {
        let mut below = Vec::new();
        for dir in dirs {
            let entries = list(&*core.env.fs, &dir)?.into_iter().filter(|entry| entry.is_dir);
            below.extend(entries.map(|entry| dir.join(entry.name)));
        }
        dirs = below;
    }
    Ok(dirs)
}
