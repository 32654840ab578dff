//! How a region begins and ends.
//!
//! Open: what a crash left half done is put right (`.tmp` emptied, see `place.rs`; compacted inputs archived), store files are
//! opened, `recovered.edits` are replayed and flushed, and a sequence id above all earlier ones is made durable
//! as the name of an empty `<n>.seqid` file. Close is refuse, drain, flush.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use halcyon_cache::BlockCache;
use halcyon_cell::{Error, ErrorKind, Result, SeqId};
use halcyon_env::{DirEntry, Env, Holder, Mutex, WatchedRwLock, vitals};
use halcyon_schema::{FamilyDescriptor, RegionInfo, StoreFileTracker, TableDescriptor, layout};

use crate::CompactionSettings;
use crate::activity;
use crate::answers::Answers;
use crate::edits_dir::{EditsDir, RECOVERED_EDITS, edits_dirs};
use crate::flush_lock::FlushLock;
use crate::key_samples::KeySamples;
use crate::loads::{CompletedLoads, complete_loads};
use crate::mob::MobStore;
use crate::mvcc::Mvcc;
use crate::new_family::NewFamily;
use crate::place::{OpeningDir, retire};
use crate::region::{Counters, Region, RegionServices};
use crate::replayed_nonces::FreshNonces;
use crate::row_lock::RowLocks;
use crate::storage_policy::{self, set_storage_policy};
use crate::store::file_list::read_list;
use crate::store::{
    FileList, Store, StoreFile, StoreFileName, StoreFileOpener, StoreServices, Tiering, seq_in_name,
};

const REGION_INFO: &str = ".regioninfo";
/// Family of the cells that mark events in a log.
pub(crate) const META_FAMILY: &[u8] = b"METAFAMILY";

impl Region {
    /// Makes a region's directory with its `.regioninfo` and its families' directories. Doing it again is fine.
    pub fn create_on_disk(
        env: &Env,
        root: &Path,
        info: &RegionInfo,
        families: &[FamilyDescriptor],
    ) -> Result<()> {
        Region::create_in(env, &info.dir(root), info, families)
    }

    pub(crate) fn create_in(
        env: &Env,
        dir: &Path,
        info: &RegionInfo,
        families: &[FamilyDescriptor],
    ) -> Result<()> {
        env.fs.create_dir_all(dir)?;
        env.fs.replace(&dir.join(REGION_INFO), &info.encode_file())?;
        for family in families {
            env.fs.create_dir_all(&dir.join(&*family.name_str()))?;
        }
        Ok(())
    }

    /// Opens a region for reading and writing. *Blocking*. After a crash at any point it can be called again.
    pub fn open(
        services: RegionServices,
        root: &Path,
        info: RegionInfo,
        table: Arc<TableDescriptor>,
    ) -> Result<Arc<Region>> {
        let name = info.encoded_name().to_string();
        Region::open_inner(services, root, info, table)
            .map_err(|error| error.context(format_args!("opening region {name}")))
    }

    /// Opens the store files of a region that another server has, and lets go of them again, so that what an opening reads
    /// is at hand soon after. Changes nothing. Returns how many there are. *Blocking*.
    ///
    /// Errors: also if the other server takes a file away meanwhile.
    pub fn warm_up(
        env: &Env,
        cache: &Arc<BlockCache>,
        root: &Path,
        info: &RegionInfo,
        table: &TableDescriptor,
    ) -> Result<usize> {
        let dir = info.dir(root);
        let mut files_count = 0;
        for family in table.families() {
            let opener = StoreFileOpener { env, cache, family };
            let dir = dir.join(&*family.name_str());
            let names = names_in_store(env, &dir, table.store_file_tracker(family)?)?;
            files_count += open_files(opener, &dir, &names, root, info)?.len();
        }
        Ok(files_count)
    }

    fn open_inner(
        mut services: RegionServices,
        root: &Path,
        info: RegionInfo,
        table: Arc<TableDescriptor>,
    ) -> Result<Arc<Region>> {
        services.settings = services.settings.for_table(&table);
        let dir = layout::region_dir(root, info.table(), info.encoded_name());
        let archive_dir = layout::archive_region_dir(root, info.table(), info.encoded_name());
        let env = services.env.clone();
        // Before anything is changed: a region whose keys are missing could not flush what it replays.
        for family in table.families() {
            let (name, cipher, wrapped) = (family.name_str(), family.encryption(), family.encryption_key());
            env.keys.check_family(&name, cipher, wrapped)?;
        }
        let make = || Region::create_on_disk(&env, root, &info, table.families());
        // Before the stores are listed: from here on no earlier opening can change them.
        let mut place = match OpeningDir::begin(&env, &dir, &archive_dir) {
            // Nearly all regions are there, so that is looked up afterwards.
            Err(error) if env.fs.exists(&dir.join(REGION_INFO))? => return Err(error),
            Err(_) => make().and_then(|()| OpeningDir::begin(&env, &dir, &archive_dir))?,
            Ok(place) => place,
        };
        let mut entries = env.fs.list(&dir)?;
        if !entries.iter().any(|entry| entry.name == REGION_INFO) {
            make()?;
            entries = env.fs.list(&dir)?;
        }
        let loads = complete_loads(&env, &dir, &archive_dir, &entries)?;
        set_storage_policy(
            &*env.fs,
            &dir,
            &services.settings.region_storage_policy,
            storage_policy::OF_REGION,
        );
        let edits_dirs = edits_dirs(&services, root, &info, &entries)?;
        let opening = StoreOpening { services: &services, root, table: &table, info: &info, loads: &loads };
        let is_there = |family: &&FamilyDescriptor| {
            entries.iter().any(|entry| entry.is_dir && entry.name == *family.name_str())
        };
        let mut stores = Vec::new();
        for family in table.families().iter().filter(is_there) {
            stores.push(opening.open(&mut place, family)?);
        }
        // Edits of a deleted family are no higher: no opening has had a family since whose directory is not there.
        let in_edits = edits_dirs.iter().map(EditsDir::highest_edit).max().unwrap_or_default();
        // Nor are ids in files of a deleted family: those below the highest may be left out of replays as flushed for as long as a master
        // remembers them, and the family may be added again.
        let known = highest_known_seq(&stores, &edits_dirs).max(in_edits);
        let in_deleted = opening.highest_deleted(&entries, known)?;
        let known = known.max(in_deleted);
        for family in table.families().iter().filter(|family| !is_there(family)) {
            opening.make_dir(&place, family, known)?;
            stores.push(opening.open(&mut place, family)?);
        }
        stores.sort_by(|a, b| a.family.name().cmp(b.family.name()));
        // From here on the lists name what was loaded.
        loads.end(&env)?;
        let replicated = table.families().iter().filter(|family| family.scope() == 1);
        let replicated = replicated.map(|family| family.name().clone()).collect();
        let place = Arc::new(place);
        let known = highest_known_seq(&stores, &edits_dirs).max(in_deleted);
        let region = Arc::new(Region {
            mvcc: Arc::new(Mvcc::new(known, env.watch())),
            read_points: Arc::default(),
            answers: Answers::default(),
            row_locks: RowLocks::new(env.watch(), info.encoded_name()),
            updates: WatchedRwLock::default(),
            flushing: FlushLock::default(),
            compacting_memory: Mutex::new(()),
            closed: WatchedRwLock::default(),
            closing: AtomicBool::new(false),
            flushed_at_close: Mutex::new(false),
            open_seq_num: known.next(),
            counters: Counters::default(),
            key_samples: KeySamples::default(),
            loads: AtomicU64::new(0),
            replayed_nonces: Mutex::default(),
            fresh_nonces: FreshNonces::default(),
            store_hooks: OnceLock::new(),
            hook_failures: AtomicU32::new(0),
            info,
            table,
            watch: env.watch(),
            services,
            dir,
            archive_dir,
            place: Some(place),
            stores,
            replicated,
        });
        assert!(
            region.stores.is_sorted_by(|a, b| a.family.name() < b.family.name()),
            "rows are put together from families in the order of their names"
        );
        region.services.wal.region_opened(region.info.encoded_name().as_bytes());
        let replayed = region.replay(&edits_dirs)?;
        let region = if replayed > known { region.restart_at(replayed) } else { region };
        let in_files = region.stores.iter().map(highest_seq).max().unwrap_or_default();
        assert!(
            region.open_seq_num > in_files.max(replayed)
                && SeqId::new(region.read_point().get()).next() == region.open_seq_num,
            "the first number of this opening, {}, is above all before it: {in_files} in files, {replayed} replayed",
            region.open_seq_num
        );
        region.read_points.begin_at(region.read_point());
        edits_dirs.last().expect("there is one at least").remember_seq(region.open_seq_num)?;
        let now_ms = region.services.env.clock.now_ms();
        let files = region.stores.iter().flat_map(|store| store.view().files.clone());
        let newest_ms = files.filter_map(|file| file.newest_given_ms()).max();
        region.row_locks.continue_behind(newest_ms.unwrap_or(i64::MIN), now_ms);
        region.counters.last_flush_ms.store(now_ms, Ordering::Relaxed);
        Ok(region)
    }

    /// The same region with its numbers starting behind what was replayed.
    fn restart_at(self: Arc<Self>, seq: SeqId) -> Arc<Region> {
        let mut region =
            Arc::try_unwrap(self).unwrap_or_else(|_| unreachable!("nobody else knows the region yet"));
        region.mvcc = Arc::new(Mvcc::new(seq, region.services.env.watch()));
        region.open_seq_num = seq.next();
        Arc::new(region)
    }

    /// Refuses new work, waits for what is running, and flushes unless `abort`. *Blocking*. Returns up to which sequence id everything is in
    /// files, if it is this call that has written it there; `None` if another one had before, or nothing was to be written.
    ///
    /// Closing twice is fine: the second of two orderly closes waits for the first one, and for its flush. `Stopping` if the region was
    /// closed without a last flush, or that flush has failed: its edits are in the log only. One with `abort` waits for no flush.
    pub fn close(&self, abort: bool) -> Result<Option<SeqId>> {
        if abort {
            self.refuse_work();
            self.evict_closed();
            return Ok(None);
        }
        // The other one is in its last flush, which can take as long as the files do.
        let mut is_flushed = vitals::outside(|| self.flushed_at_close.lock());
        if *is_flushed {
            return Ok(None);
        }
        let is_first = self.refuse_work();
        if self.is_secondary() {
            *is_flushed = true; // it had nothing in memory
            self.evict_closed();
            return Ok(None);
        }
        if !is_first {
            let text = format!("region {} was closed without a last flush", self.info.encoded_name());
            return Err(Error::new(ErrorKind::Stopping, text));
        }
        self.flush_stores(None)?;
        assert!(
            self.mvcc.barrier().is_ready(),
            "a closed region has no write under way: all of them hold `closed`"
        );
        if self.stores.iter().any(|store| store.memstore_size().data_bytes > 0) {
            return Err(Error::invalid("cells are left in memory after the last flush"));
        }
        self.remember_last_seq()?;
        self.services.wal.region_closed(self.info.encoded_name().as_bytes());
        self.evict_closed();
        self.place().end();
        *is_flushed = true;
        Ok(Some(SeqId::new(self.read_point().get())))
    }

    /// Waits for what is running, and lets nothing begin any more. False if another close has done that before.
    fn refuse_work(&self) -> bool {
        self.closing.store(true, Ordering::Release);
        let (me, before) = (Holder::me(), Holder::me().is_at(&activity::CLOSE));
        let detail = |others: &str| format!("region {}: waits for: {others}", self.info.encoded_name());
        // Calls of clients that are under way have limits of their own.
        let mut closed = vitals::outside(|| self.closed.write(&self.watch, "region-close", detail));
        me.resumes(before);
        if *closed {
            return false;
        }
        // A compaction that is under way sees `closing` and gives up; wait for it to let go.
        for store in &self.stores {
            vitals::outside(|| drop(store.compacting.lock()));
        }
        *closed = true;
        true
    }
}

impl Region {
    /// Of a region that is closed: no sequence id of it is taken again, whatever becomes of the families that have it.
    fn remember_last_seq(&self) -> Result<()> {
        let last = SeqId::new(self.read_point().get());
        if last <= self.open_seq_num {
            return Ok(()); // nothing was written; the number may be that of the last flush
        }
        let (env, dir) = match &self.services.wal_root {
            Some(wal) => (&wal.env, self.info.dir(&wal.path)),
            None => (&self.services.env, self.dir.clone()),
        };
        EditsDir::raise_seq(env, &dir.join(RECOVERED_EDITS), self.open_seq_num, last)
    }
}

/// Whether a directory of this name in a region's is none of a family.
fn is_of_regions(name: &str) -> bool {
    name.starts_with('.') || name.starts_with("recovered.")
}

/// Names of the files of a store that another server may have open, sorted; none if the store has no directory.
pub(crate) fn names_in_store(env: &Env, dir: &Path, tracker: StoreFileTracker) -> Result<Vec<String>> {
    if tracker.loads_list() {
        return Ok(read_list(env, dir)?.into_iter().map(|file| file.name).collect());
    }
    match env.fs.list(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => Ok(names_of_files(entries?)),
    }
}

fn names_of_files(entries: Vec<DirEntry>) -> Vec<String> {
    let is_store_file = |entry: &DirEntry| !entry.is_dir && StoreFileName::parse(&entry.name).is_some();
    entries.into_iter().filter(is_store_file).map(|entry| entry.name).collect()
}

/// Opens these files of a family. Those of other names are passed over.
pub(crate) fn open_files(
    opener: StoreFileOpener<'_>,
    dir: &Path,
    names: &[String],
    root: &Path,
    info: &RegionInfo,
) -> Result<Vec<Arc<StoreFile>>> {
    let mut files = Vec::with_capacity(names.len());
    for text in names {
        let Some(name) = StoreFileName::parse(text) else { continue };
        files.push(opener.open(&dir.join(text), &name, root, info.table())?);
    }
    Ok(files)
}

/// So many sequence ids are passed over where those of a file are not known. A region has fewer writes, and eight million such openings would
/// use all ids up.
const UNKNOWN_SEQS: u64 = 1 << 40;

/// What the stores of a region are opened with.
struct StoreOpening<'a> {
    services: &'a RegionServices,
    root: &'a Path,
    table: &'a TableDescriptor,
    info: &'a RegionInfo,
    loads: &'a CompletedLoads,
}

impl StoreOpening<'_> {
    fn dir_of(&self, family: &FamilyDescriptor) -> PathBuf {
        self.info.dir(self.root).join(&*family.name_str())
    }

    /// Makes the directory of a family. `known`: the highest sequence id of the region.
    fn make_dir(&self, place: &OpeningDir, family: &FamilyDescriptor, known: SeqId) -> Result<()> {
        let (env, table, dir) = (&self.services.env, self.table, self.dir_of(family));
        if known <= SeqId::ZERO.next() {
            return Ok(env.fs.create_dir_all(&dir)?); // the region was never opened
        }
        let (tracker, comparator) = (table.store_file_tracker(family)?, self.info.comparator());
        let zstd_codec = &self.services.settings.zstd_codec;
        NewFamily { env, table, family, tracker, comparator, zstd_codec }.make(place, &dir, known)
    }

    /// An id that is not below the highest in files of families that the table has no more. Their directories stay until the master has
    /// had all regions opened without them, those aside that failed to open. `entries`: what is in the region's directory. `known`: the
    /// highest id in the other families.
    ///
    /// The family may have been deleted because of a file that cannot be read, so such a file keeps no region from opening. What it has is
    /// not known, and the ids go on far above it.
    fn highest_deleted(&self, entries: &[DirEntry], known: SeqId) -> Result<SeqId> {
        let (env, mut highest) = (&self.services.env, SeqId::ZERO);
        for entry in entries.iter().filter(|entry| entry.is_dir && !is_of_regions(&entry.name)) {
            let Ok(family) = FamilyDescriptor::new(entry.name.as_bytes()) else { continue };
            if self.table.family(family.name()).is_some() {
                continue;
            }
            let (cache, dir) = (&self.services.cache, self.dir_of(&family));
            let opener = StoreFileOpener { env, cache, family: &family };
            for name in names_in_store(env, &dir, StoreFileTracker::DEFAULT)? {
                match open_files(opener, &dir, std::slice::from_ref(&name), self.root, self.info) {
                    Ok(files) => {
                        let seqs = files.iter().map(|file| file.max_seq.max(file.max_cell_seq));
                        highest = seqs.fold(highest, SeqId::max);
                    }
                    Err(error) => {
                        let region = self.info.encoded_name();
                        tracing::warn!(region, file = %dir.join(&name).display(), %error, "the sequence id of a deleted family's file is not known");
                        highest = highest.max(SeqId::new(known.get().saturating_add(UNKNOWN_SEQS)));
                    }
                }
            }
        }
        Ok(highest)
    }

    fn open(&self, place: &mut OpeningDir, family: &FamilyDescriptor) -> Result<Store> {
        let settings = &self.services.settings;
        let compaction = settings.compaction.clone().for_store(self.table, family);
        if let Err(class) = compaction.policy() {
            tracing::warn!(
                region = self.info.encoded_name(),
                table = %self.info.table(),
                family = %family.name_str(),
                class,
                "this way of compacting is not available; the exploring policy is used"
            );
        }
        let store = self.open_files(place, family, compaction)?;
        let fs = &*self.services.env.fs;
        if let Some((policy, property)) = settings.storage_policy(fs, family) {
            let dirs = [self.dir_of(family), place.set_apart(&family.name_str())?];
            dirs.iter().for_each(|dir| set_storage_policy(fs, dir, policy, property));
        }
        Ok(store)
    }

    fn open_files(
        &self,
        place: &OpeningDir,
        family: &FamilyDescriptor,
        compaction: CompactionSettings,
    ) -> Result<Store> {
        let StoreOpening { services, root, table, info, loads } = *self;
        let (env, tracker) = (&services.env, table.store_file_tracker(family)?);
        let (family_name, dir) = (family.name_str(), self.dir_of(family));
        if family.is_mob() {
            env.fs.create_dir_all(&layout::mob_family_dir(root, info.table(), &family_name))?; // HBase's cleaner lists it
        }
        let there = names_of_files(env.fs.list(&dir)?);
        let (mut list, listed) = match tracker.writes_list() {
            true => FileList::open(env, &dir).map(|(list, listed)| (Some(list), listed))?,
            false => (None, None),
        };
        let listed: Option<Vec<String>> =
            listed.map(|files| files.into_iter().map(|file| file.name).collect());
        let has_list = listed.is_some();
        let mut names = if tracker.loads_list() { listed.clone().unwrap_or_default() } else { there.clone() };
        let loaded =
            loads.names_of(&family_name).filter(|name| there.contains(name) && !names.contains(name));
        let loaded: Vec<String> = loaded.cloned().collect();
        let opener = StoreFileOpener { env, cache: &services.cache, family };
        let mut files = open_files(opener, &dir, &names, root, info)?;
        let replaced = compacted_inputs(&files)?;
        // A load that was committed, and perhaps compacted since.
        names = loaded.into_iter().filter(|name| !replaced.contains(name)).collect();
        files.extend(open_files(opener, &dir, &names, root, info)?);
        let prefetch = services.settings.prefetches_on_open(family);
        files.iter().for_each(|file| file.prefetch_wanted.store(prefetch, Ordering::Release));
        let compacted = compacted_inputs(&files)?;
        let (done, mut files): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| compacted.contains(&file.name));
        files.sort_by(|a, b| b.max_seq.cmp(&a.max_seq).then_with(|| b.name.cmp(&a.name)));
        if let Some(list) = &mut list {
            bring_up_to_date(list, place, tracker, listed, &files)?;
        }
        let archive_dir =
            layout::archive_region_dir(root, info.table(), info.encoded_name()).join(&*family_name);
        let shown = |name: &String| files.iter().any(|file| file.name == *name);
        // What no list names is nobody's. With the list alone it is left to the cleaner, but for what a compaction has replaced:
        // it is known to be whole. A store that will have all of its directory is rid of it before.
        let is_to_be_rid = tracker.is_migration() && has_list;
        let gone = |name: &&String| !shown(name) && (compacted.contains(name) || is_to_be_rid);
        let gone = there.iter().filter(|name| tracker.loads_list() && gone(name)).map(|name| dir.join(name));
        let gone: Vec<PathBuf> = gone.chain(done.iter().map(|file| file.path.clone())).collect();
        retire(env, gone.iter().map(PathBuf::as_path), &archive_dir)?;
        done.iter().for_each(|file| file.retire_blocks());
        Ok(new_store(services, root, table, info, family, compaction, files, tracker, list))
    }
}

/// Writes the list where it does not name the store's files: something was brought in order, or a migration begins.
fn bring_up_to_date(
    list: &mut FileList,
    place: &OpeningDir,
    tracker: StoreFileTracker,
    listed: Option<Vec<String>>,
    files: &[Arc<StoreFile>],
) -> Result<()> {
    let mut names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    names.sort();
    if listed.is_none() && names.is_empty() && !tracker.is_migration() {
        return Ok(());
    }
    if listed.as_ref() == Some(&names) {
        return Ok(());
    }
    list.write(place, files.iter().map(|file| file.listed()).collect())
}

#[allow(clippy::too_many_arguments)] // what a store is made of
pub(crate) fn new_store(
    services: &RegionServices,
    root: &Path,
    table: &TableDescriptor,
    info: &RegionInfo,
    family: &FamilyDescriptor,
    compaction: CompactionSettings,
    files: Vec<Arc<StoreFile>>,
    tracker: StoreFileTracker,
    list: Option<FileList>,
) -> Store {
    let dir = info.dir(root).join(&*family.name_str());
    let mob = MobStore::new(services, root, table, info, family);
    // Rows between two keys begin with what both keys begin with.
    let (start, end) = (info.start_key(), info.end_key());
    let common = start.iter().zip(end).take_while(|(a, b)| a == b).count();
    let tiering = services.settings.data_tiering.then(|| Tiering::of(family, table)).flatten();
    let services = StoreServices { tiering, tracker, list, ..services.of_store(mob) };
    Store::new(family.clone(), compaction, info.comparator(), dir, files, services, &start[..common])
}

/// Names of files whose cells are in others of these: a crash, or this moment, is between a compaction's last two steps.
pub(crate) fn compacted_inputs(files: &[Arc<StoreFile>]) -> Result<Vec<String>> {
    let mut compacted: Vec<String> = Vec::new();
    // What went into the HFile of a link or reference stood in another directory.
    // A bulk-loaded file may have been another region's, and took no file's place here.
    for file in files.iter().filter(|file| file.is_own && seq_in_name(&file.name).is_none()) {
        for input in file.hfile.info().compacted_from()? {
            // What a snapshot has of a link or reference is restored under the HFile's own name.
            compacted.extend(StoreFileName::parse(&input).map(|name| name.hfile.to_string()));
            compacted.push(input);
        }
    }
    Ok(compacted)
}

fn highest_known_seq(stores: &[Store], edits_dirs: &[EditsDir]) -> SeqId {
    let in_files = stores.iter().map(highest_seq);
    let in_markers = edits_dirs.iter().map(EditsDir::highest_marker);
    in_files.chain(in_markers).max().unwrap_or_default().max(SeqId::ZERO.next())
}

/// Highest sequence id that a store's files tell of. A crash between two files of one flush leaves cells above what counts
/// as flushed.
pub(crate) fn highest_seq(store: &Store) -> SeqId {
    store.max_flushed_seq().max(store.view().max_cell_seq())
}
