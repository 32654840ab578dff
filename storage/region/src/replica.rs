//! A secondary: a further copy of a region, for reads (HBase: region replicas, `REGION_REPLICATION`).
//!
//! It has no directory, no log and nothing in memory. It reads the store files of its primary, wherever that is open, and
//! looks from time to time which they are ([`Region::refresh_files`]). So it is behind by what its primary has not flushed,
//! and by the time between two looks. Writes are refused.
//!
//! *Files that go away.* A compaction of the primary moves files to the archive. The secondary has them open and reads on in
//! them. After the next look it does not need them any more; a scan that began before holds them to its end. The archive
//! keeps files for longer than the time between two looks.
//!
//! *What a look sees.* A directory is not listed in one moment, and a file may go between the listing and its opening. So a
//! look counts only if a listing after it has the same names. A file whose inputs are still there stands for them.
//!
//! *Whole rows.* Cells have the numbers that the primary gave them. A look first raises the read point to the highest of
//! them and then shows the files, so a read that takes its read point first sees all of each file.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::{Mutex, WatchedRwLock};
use halcyon_schema::{RegionInfo, StoreFileTracker, TableDescriptor, layout};

use crate::answers::Answers;
use crate::flush_lock::FlushLock;
use crate::key_samples::KeySamples;
use crate::mvcc::Mvcc;
use crate::open::{compacted_inputs, highest_seq, names_in_store, new_store};
use crate::region::{Counters, Region, RegionServices};
use crate::replayed_nonces::FreshNonces;
use crate::row_lock::RowLocks;
use crate::store::{StoreFile, StoreFileName, StoreFileOpener};

/// Listings of a directory that changes meanwhile, before the next look has to do.
const LOOKS_MAX: usize = 8;

impl Region {
    /// Opens a secondary. *Blocking*. Changes no file. `Busy` while its primary has no directory, or while that changes too
    /// fast.
    pub fn open_secondary(
        services: RegionServices,
        root: &Path,
        info: RegionInfo,
        table: Arc<TableDescriptor>,
    ) -> Result<Arc<Region>> {
        let name = info.region_name().escape_ascii().to_string();
        Region::open_secondary_inner(services, root, info, table)
            .map_err(|error| error.context(format_args!("opening copy {name}")))
    }

    fn open_secondary_inner(
        mut services: RegionServices,
        root: &Path,
        info: RegionInfo,
        table: Arc<TableDescriptor>,
    ) -> Result<Arc<Region>> {
        assert!(info.is_secondary(), "{info} takes writes: it is opened in another way");
        services.settings = services.settings.for_table(&table);
        let (env, primary, dir) = (services.env.clone(), info.primary(), info.dir(root));
        if !env.fs.exists(&dir)? {
            return Err(Error::new(ErrorKind::Busy, format!("{primary} has no directory yet")));
        }
        let mut stores = Vec::with_capacity(table.families().len());
        for family in table.families() {
            let dir = dir.join(&*family.name_str());
            let opener = StoreFileOpener { env: &env, cache: &services.cache, family };
            let tracker = table.store_file_tracker(family)?;
            let files = look(opener, &dir, tracker, root, &info, &[])?;
            let compaction = services.settings.compaction.clone().for_store(&table, family);
            stores.push(new_store(&services, root, &table, &info, family, compaction, files, tracker, None));
        }
        let highest = stores.iter().map(highest_seq).max().unwrap_or_default();
        let last_flush_ms = env.clock.now_ms();
        let region = Region {
            mvcc: Arc::new(Mvcc::new(highest, env.watch())),
            read_points: Arc::default(),
            answers: Answers::default(),
            row_locks: RowLocks::new(env.watch(), info.encoded_name()),
            updates: WatchedRwLock::default(),
            flushing: FlushLock::default(),
            compacting_memory: Mutex::new(()),
            closed: WatchedRwLock::default(),
            closing: AtomicBool::new(false),
            flushed_at_close: Mutex::new(false),
            open_seq_num: highest.next(),
            counters: Counters::default(),
            key_samples: KeySamples::default(),
            loads: AtomicU64::new(0),
            replayed_nonces: Mutex::default(),
            fresh_nonces: FreshNonces::default(),
            store_hooks: OnceLock::new(),
            hook_failures: AtomicU32::new(0),
            archive_dir: layout::archive_region_dir(root, info.table(), primary.encoded_name()),
            watch: env.watch(),
            place: None,
            info,
            table,
            services,
            dir,
            stores,
            replicated: Box::default(), // nothing is written to it
        };
        region.read_points.begin_at(region.read_point());
        region.counters.last_flush_ms.store(last_flush_ms, Ordering::Relaxed);
        Ok(Arc::new(region))
    }

    /// Shows the files that the primary has now. Returns whether they are others than before. *Blocking*. After an error the
    /// secondary is as it was.
    pub fn refresh_files(&self, root: &Path) -> Result<bool> {
        assert!(self.is_secondary(), "{} knows its files: it makes them", self.info);
        let _open = self.enter()?;
        let _one_at_a_time = self.flushing.lock();
        let mut changed = false;
        for store in &self.stores {
            let RegionServices { env, cache, .. } = &self.services;
            let opener = StoreFileOpener { env, cache, family: &store.family };
            let before = store.view();
            let files = look(opener, &store.dir, store.tracker, root, &self.info, &before.files)?;
            let numbers = |files: &[Arc<StoreFile>]| files.iter().map(|file| file.number).collect::<Vec<_>>();
            if numbers(&files) == numbers(&before.files) {
                continue;
            }
            let of_file = |file: &Arc<StoreFile>| file.max_seq.max(file.max_cell_seq);
            self.mvcc.follow(files.iter().map(of_file).max().unwrap_or_default());
            self.read_points.begin_at(self.read_point());
            store.follow(files);
            changed = true;
        }
        if changed {
            self.counters.last_flush_ms.store(self.services.env.clock.now_ms(), Ordering::Relaxed);
        }
        Ok(changed)
    }
}

/// The files of a store that another region changes, newest first. Those that are in `known` are not opened again.
fn look(
    opener: StoreFileOpener<'_>,
    dir: &Path,
    tracker: StoreFileTracker,
    root: &Path,
    info: &RegionInfo,
    known: &[Arc<StoreFile>],
) -> Result<Vec<Arc<StoreFile>>> {
    let mut names = names_in_store(opener.env, dir, tracker)?;
    for _ in 0..LOOKS_MAX {
        let files = open_all(opener, dir, root, info, known, &names);
        let after = names_in_store(opener.env, dir, tracker)?;
        if after == names {
            let files = files?;
            let compacted = compacted_inputs(&files)?;
            let mut files: Vec<_> =
                files.into_iter().filter(|file| !compacted.contains(&file.name)).collect();
            files.sort_by(|a, b| b.max_seq.cmp(&a.max_seq).then_with(|| b.name.cmp(&a.name)));
            return Ok(files);
        }
        names = after; // an error was that of a file that is gone
    }
    Err(Error::new(ErrorKind::Busy, format!("{} changes too fast", dir.display())))
}

fn open_all(
    opener: StoreFileOpener<'_>,
    dir: &Path,
    root: &Path,
    info: &RegionInfo,
    known: &[Arc<StoreFile>],
    names: &[String],
) -> Result<Vec<Arc<StoreFile>>> {
    let mut files = Vec::with_capacity(names.len());
    for text in names {
        let Some(name) = StoreFileName::parse(text) else { continue };
        match known.iter().find(|file| file.name == *text) {
            Some(file) => files.push(file.clone()),
            None => files.push(opener.open(&dir.join(text), &name, root, info.table())?),
        }
    }
    Ok(files)
}
