//! One column family of a region: segments in memory and HFiles, newest first.
//!
//! Readers take the whole as one immutable [`StoreView`]; whoever changes what belongs to it puts a new view
//! in its place (files only in `commit`). A reader goes on with the view it took: its files stay open and its
//! chunks stay in memory until it lets go, whatever is flushed or compacted meanwhile.

mod commit;
mod file;
pub(crate) mod file_list;
mod name;
mod outputs;
mod part;
mod reference;
mod stripes;
mod tiering;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use halcyon_cell::{CellComparator, Result, SeqId};
use halcyon_env::{Keys, Mutex, RwLock, RwLockReadGuard, Watch, WatchedRwLock, invariant};
use halcyon_hfile::{CacheKinds, WriterOptions};
use halcyon_memstore::{ChunkPool, Segment, SegmentSize};
use halcyon_schema::{FamilyDescriptor, StoreFileTracker, TableDescriptor};

use commit::Unsettled;
pub(crate) use commit::{Commit, Uncommitted};
pub(crate) use file::{StoreFile, StoreFileOpener};
pub(crate) use file_list::FileList;
pub(crate) use name::{StoreFileName, bulk_file_name};
pub use name::{is_store_file_name, seq_in_name};
pub(crate) use outputs::{BeingWritten, Cut, FileTarget, Outputs, Written};
pub(crate) use part::Part;
pub use reference::Reference;
pub(crate) use stripes::Stripes;
pub(crate) use tiering::Tiering;
pub(crate) use writer::{WrittenBy, options as writer_options};

use crate::compact::{CompactionPolicy, CompactionSettings};
use crate::keeping::Keeping;
use crate::mob::MobStore;

/// Everything a reader of the family sees.
#[derive(Clone)]
pub(crate) struct StoreView {
    /// Takes the writes.
    pub active: Arc<Segment>,
    /// Take no more writes and wait for the next flush, newest first (HBase: `CompactionPipeline`).
    pub pipeline: Vec<Part>,
    /// Being flushed, newest first.
    pub snapshot: Vec<Part>,
    /// Newest first.
    pub files: Vec<Arc<StoreFile>>,
    /// How the files are divided by rows.
    pub stripes: Arc<Stripes>,
}

impl StoreView {
    /// What is in memory besides the active segment, newest first.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.pipeline.iter().chain(&self.snapshot)
    }

    /// Cells up to this sequence id may have been dropped because of others up to it: who reads at an older point may
    /// miss something.
    pub fn dropped_up_to(&self) -> SeqId {
        let in_parts = self.parts().map(Part::dropped_up_to).max();
        self.max_cell_seq().max(in_parts.unwrap_or_default())
    }

    /// Highest sequence id of a cell in a file.
    pub fn max_cell_seq(&self) -> SeqId {
        self.files.iter().map(|file| file.max_cell_seq).max().unwrap_or_default()
    }

    /// The files in which rows from `low` to `high` can be; empty rows: no bound.
    pub fn files_with_rows<'a>(
        &'a self,
        low: &[u8],
        high: &[u8],
    ) -> impl Iterator<Item = &'a Arc<StoreFile>> {
        let wanted = self.stripes.with_rows(low, high);
        let is_wanted = move |at: usize| self.stripes.of_file(at).is_none_or(|it| wanted.contains(&it));
        self.files.iter().enumerate().filter(move |(at, _)| is_wanted(*at)).map(|(_, file)| file)
    }

    /// What holds of every view. Called before one is put in place because files changed.
    fn check(&self) {
        assert!(
            self.files.is_sorted_by(|newer, older| newer.max_seq >= older.max_seq),
            "files are newest first: of equal cells the one of the newer file counts"
        );
        let is_there_twice = |at: usize| self.files[..at].iter().any(|it| it.number == self.files[at].number);
        invariant!(
            !(0..self.files.len()).any(is_there_twice),
            "a file that is in a view twice shows its cells twice"
        );
        self.stripes.check(&self.files);
    }

    pub fn is_memory_empty(&self) -> bool {
        self.active.is_empty() && self.parts().next().is_none()
    }
}

pub(crate) struct Store {
    pub family: FamilyDescriptor,
    /// How its files are compacted. Replaced when the server's settings change.
    compaction: RwLock<Arc<CompactionSettings>>,
    pub keeping: Keeping,
    pub comparator: CellComparator,
    /// As in the region's settings.
    pub zstd_codec: String,
    /// Which of its data the block cache keeps; `None`: all.
    tiering: Option<Tiering>,
    keys: Arc<Keys>,
    /// `<region>/<family>`.
    pub dir: PathBuf,
    /// What the region's bounds say of how its rows begin.
    row_start: Box<[u8]>,
    view: WatchedRwLock<Arc<StoreView>>,
    /// How often memory has left the view.
    memory_left: Arc<AtomicU64>,
    watch: Watch,
    unsettled: Unsettled,
    /// How it knows its files.
    pub tracker: StoreFileTracker,
    /// Files in its directory that no list names yet.
    pub being_written: BeingWritten,
    /// Held while the set of files changes and while a compaction runs; never by readers or writers.
    pub compacting: Mutex<()>,
    /// Somebody asked for a major compaction.
    pub major_wanted: AtomicBool,
    pub progress: CompactionProgress,
    pub mob: Arc<MobStore>,
}

/// How far the running compaction of a store is, or how far the last one came. HBase: `CompactionProgress`.
#[derive(Default)]
pub(crate) struct CompactionProgress {
    /// Cells of the files that are compacted.
    pub total_cells: AtomicU64,
    /// Those that were looked at.
    pub done_cells: AtomicU64,
}

impl CompactionProgress {
    pub fn begin(&self, total_cells: u64) {
        self.done_cells.store(0, Ordering::Relaxed);
        self.total_cells.store(total_cells, Ordering::Relaxed);
    }

    pub fn advance(&self, cells: u64) {
        self.done_cells.fetch_add(cells, Ordering::Relaxed);
    }

    /// A compaction that is over has done all of it, and one that failed has done nothing.
    pub fn end(&self, succeeded: bool) {
        let done = if succeeded { self.total_cells.load(Ordering::Relaxed) } else { 0 };
        self.done_cells.store(done, Ordering::Relaxed);
        self.total_cells.store(done, Ordering::Relaxed);
    }
}

/// What a store needs of its server.
pub(crate) struct StoreServices<'a> {
    pub chunks: &'a Arc<ChunkPool>,
    pub watch: Watch,
    /// As in the region's settings.
    pub zstd_codec: &'a str,
    pub tiering: Option<Tiering>,
    pub mob: Arc<MobStore>,
    /// For files that are encrypted.
    pub keys: &'a Arc<Keys>,
    pub tracker: StoreFileTracker,
    /// Only with a tracker that writes it, and not in a secondary.
    pub list: Option<FileList>,
}

/// What a reader that stays remembers of a store, to know when it holds memory that has no other use.
pub(crate) struct SeenMemory {
    memory_left: Arc<AtomicU64>,
    before: u64,
}

impl SeenMemory {
    /// Whether memory has left the store's view since.
    pub fn has_left(&self) -> bool {
        self.memory_left.load(Ordering::Acquire) != self.before
    }
}

/// Bytes in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemStoreSize {
    /// KeyValue bytes.
    pub data_bytes: u64,
    /// KeyValue bytes and what it takes to find them.
    pub heap_bytes: u64,
}

impl MemStoreSize {
    fn add(&mut self, size: SegmentSize) {
        self.data_bytes += size.data_bytes as u64;
        self.heap_bytes += (size.data_bytes + size.overhead_bytes) as u64;
    }
}

impl Store {
    pub fn new(
        family: FamilyDescriptor,
        compaction: CompactionSettings,
        comparator: CellComparator,
        dir: PathBuf,
        files: Vec<Arc<StoreFile>>,
        services: StoreServices<'_>,
        row_start: &[u8],
    ) -> Store {
        let compaction = for_family(compaction, &family);
        let keeping = Keeping::of(&family);
        let active = Segment::with_row_start(services.chunks.clone(), comparator, row_start);
        let stripes = Arc::new(divided(&compaction, comparator, &files));
        let view = StoreView { active, pipeline: Vec::new(), snapshot: Vec::new(), files, stripes };
        view.check();
        Store {
            family,
            compaction: RwLock::new(Arc::new(compaction)),
            keeping,
            comparator,
            zstd_codec: services.zstd_codec.to_string(),
            tiering: services.tiering,
            keys: services.keys.clone(),
            dir,
            row_start: row_start.into(),
            view: WatchedRwLock::new(Arc::new(view)),
            memory_left: Arc::default(),
            watch: services.watch,
            unsettled: Unsettled::new(services.list),
            tracker: services.tracker,
            being_written: BeingWritten::default(),
            compacting: Mutex::new(()),
            major_wanted: AtomicBool::new(false),
            progress: CompactionProgress::default(),
            mob: services.mob,
        }
    }

    /// How its files are compacted at this moment.
    pub fn compaction(&self) -> Arc<CompactionSettings> {
        self.compaction.read().clone()
    }

    /// From now on its files are compacted by these settings. Whether rows are divided into stripes stays as it was
    /// when the store was opened: its files are laid out for that.
    pub fn set_compaction(&self, settings: CompactionSettings) {
        let mut settings = for_family(settings, &self.family);
        let mut compaction = self.compaction.write();
        if is_striped(&settings, self.comparator) != is_striped(&compaction, self.comparator) {
            settings.engine_class.clone_from(&compaction.engine_class);
        }
        *compaction = Arc::new(settings);
    }

    /// The rule by which its files are compacted; of an unknown class the exploring one.
    pub fn policy(&self) -> CompactionPolicy {
        match self.compaction().policy() {
            Ok(CompactionPolicy::Stripe) if !self.is_striped() => CompactionPolicy::Exploring,
            policy => policy.unwrap_or(CompactionPolicy::Exploring),
        }
    }

    /// Whether its rows are divided into stripes.
    pub fn is_striped(&self) -> bool {
        is_striped(&self.compaction(), self.comparator)
    }

    #[inline]
    pub fn view(&self) -> Arc<StoreView> {
        self.read_view().clone()
    }

    /// To be called before the view is taken.
    pub fn see_memory(&self) -> SeenMemory {
        SeenMemory { memory_left: self.memory_left.clone(), before: self.memory_left.load(Ordering::Acquire) }
    }

    /// Called after a view with less memory was put in place.
    fn note_memory_left(&self) {
        self.memory_left.fetch_add(1, Ordering::Release);
    }

    #[inline]
    fn read_view(&self) -> RwLockReadGuard<'_, Arc<StoreView>> {
        let detail = |_: &str| format!("{}: its segments or files are being exchanged", self.dir.display());
        self.view.read(&self.watch, "memstore-view", detail)
    }

    /// The segment that takes writes. Ask for it under the region's update lock, so that it stays the one.
    #[inline]
    pub fn active(&self) -> Arc<Segment> {
        self.read_view().active.clone()
    }

    /// Puts an empty segment in place of the active one; it and the pipeline become the newest of the snapshot.
    /// Called with the region's update lock held exclusively.
    pub fn begin_snapshot(&self, chunks: &Arc<ChunkPool>) {
        let mut view = self.view.unwatched().write();
        let mut next = StoreView::clone(&view);
        let mut taken = std::mem::take(&mut next.pipeline);
        let is_empty = view.active.is_empty();
        if !is_empty {
            taken.insert(0, Part::List(view.active.clone()));
        }
        // Without cells it may hold memory all the same: of cells that were given up, or a chunk that it shares with what is taken.
        let holds_memory = view.active.chunks_bytes() > 0;
        if !is_empty || holds_memory {
            let seen = view.active.row_start();
            let row_start = match seen.is_empty() {
                _ if is_empty => view.active.expected_row_start(),
                true => &self.row_start[..],
                false => &seen,
            };
            next.active = Segment::with_row_start(chunks.clone(), self.comparator, row_start);
        }
        if taken.is_empty() {
            if holds_memory {
                *view = Arc::new(next);
                drop(view);
                self.note_memory_left();
            }
            return;
        }
        taken.append(&mut next.snapshot);
        next.snapshot = taken;
        assert!(
            next.active.is_empty() && next.pipeline.is_empty(),
            "what is in memory before a flush's number is in the snapshot: the log forgets it by that number"
        );
        *view = Arc::new(next);
    }

    /// Moves the active segment to the pipeline if it holds `bytes_min`. Called with the region's update lock held
    /// exclusively.
    pub fn push_to_pipeline(&self, bytes_min: u64) {
        let mut view = self.view.unwatched().write();
        let size = view.active.size();
        if view.active.is_empty() || ((size.data_bytes + size.overhead_bytes) as u64) < bytes_min {
            return;
        }
        let mut next = StoreView::clone(&view);
        // Parts with the same row start are merged faster, so it changes once.
        let seen = view.active.row_start();
        let row_start = if view.pipeline.is_empty() && !seen.is_empty() {
            &seen
        } else {
            view.active.expected_row_start()
        };
        next.active = view.active.successor(row_start);
        next.pipeline.insert(0, Part::List(view.active.clone()));
        assert!(next.active.is_empty(), "a segment in the pipeline takes no more writes: another one has to");
        *view = Arc::new(next);
    }

    /// Puts `part` in place of neighbours in the pipeline; false if they are there no longer.
    pub fn replace_in_pipeline(&self, old: &[Part], part: Part) -> bool {
        let mut view = self.view.unwatched().write();
        let is_there = |at: &usize| {
            let here = view.pipeline[*at..].iter();
            view.pipeline.len() >= *at + old.len() && here.zip(old).all(|(here, old)| here.is(old))
        };
        let Some(at) = (0..view.pipeline.len()).find(is_there) else { return false };
        let mut next = StoreView::clone(&view);
        let leaves_cells_out = part.dropped_up_to() > SeqId::ZERO;
        let dropped_before = old.iter().map(Part::dropped_up_to).max().unwrap_or_default();
        assert!(
            part.dropped_up_to() >= dropped_before,
            "versions up to {dropped_before} are gone: a reader at an older point has to be told"
        );
        next.pipeline.splice(at..at + old.len(), [part]);
        *view = Arc::new(next);
        if leaves_cells_out {
            self.note_memory_left(); // otherwise the chunks are the same
        }
        true
    }

    pub fn memstore_size(&self) -> MemStoreSize {
        let view = self.read_view();
        let mut size = MemStoreSize::default();
        size.add(view.active.size());
        for part in view.parts() {
            size.add(part.size());
        }
        size
    }

    /// Memory of what new readers see.
    pub fn chunks_bytes(&self) -> usize {
        let view = self.view();
        view.active.chunks_bytes() + view.parts().map(Part::chunks_bytes).sum::<usize>()
    }

    pub fn has_references(&self) -> bool {
        self.view().files.iter().any(|file| file.is_reference())
    }

    /// Highest sequence id that is in a file.
    pub fn max_flushed_seq(&self) -> SeqId {
        self.view().files.iter().map(|file| file.max_seq).max().unwrap_or_default()
    }

    /// How this family's files are written.
    pub fn writer_options(
        &self,
        table: &TableDescriptor,
        written_by: WrittenBy,
        now_ms: i64,
    ) -> Result<WriterOptions> {
        let (family, codec) = (&self.family, &self.zstd_codec);
        writer::options(family, table, written_by, self.comparator, codec, &self.keys, now_ms)
    }

    /// Whether data blocks of the file have a place in the block cache.
    pub fn keeps_in_cache(&self, file: &StoreFile, now_ms: i64) -> bool {
        self.family.block_cache() && self.tiering.is_none_or(|tiering| tiering.is_hot(file, now_ms))
    }

    /// Lets the cache have the room of files that are no longer hot; blocks that are read just now are read on.
    pub fn evict_cold(&self, now_ms: i64) {
        let Some(tiering) = self.tiering else { return };
        let view = self.view();
        view.files
            .iter()
            .filter(|file| !tiering.is_hot(file, now_ms))
            .for_each(|file| file.hfile.blocks().evict());
    }

    /// Blocks of a new file that are to be in the cache at once. `of_server`: where neither family nor table says.
    pub fn cached_on_write(
        &self,
        table: &TableDescriptor,
        written_by: WrittenBy,
        of_server: CacheKinds,
    ) -> CacheKinds {
        writer::cached_on_write(&self.family, table, written_by, of_server)
    }
}

/// Families with `IS_MOB` have one kind of store in HBase, whatever engine is set (`HMobStore.createStoreEngine`).
fn for_family(mut settings: CompactionSettings, family: &FamilyDescriptor) -> CompactionSettings {
    if family.is_mob() {
        settings.engine_class = CompactionSettings::default().engine_class;
    }
    settings
}

/// Stripes are in plain order of rows, which `hbase:meta` is not.
fn is_striped(compaction: &CompactionSettings, comparator: CellComparator) -> bool {
    compaction.policy() == Ok(CompactionPolicy::Stripe) && comparator == CellComparator::Default
}

fn divided(compaction: &CompactionSettings, comparator: CellComparator, files: &[Arc<StoreFile>]) -> Stripes {
    if is_striped(compaction, comparator) { Stripes::of_files(files) } else { Stripes::none(files.len()) }
}
