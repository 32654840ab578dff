//! What coprocessors may do with the cells that flushes and compactions write (HBase: the hooks of `RegionObserver` that get a
//! store or its scanner).
//!
//! ```text
//! begin                what the family keeps may be changed for this once (`preFlushScannerOpen`, `preCompactScannerOpen`)
//! rewrite              cells go through a scanner of the coprocessors (`preFlush`, `preCompact`), or stay as they are
//! end                  the files are in place (`postFlush`, `postCompact`), or it failed
//! ```
//!
//! The region asks only if the server has said who is to be asked ([`Region::set_store_hooks`]). What comes back is looked at before it is
//! written: a coprocessor must not make a file that no reader can use.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, CellRef, Error, ErrorKind, Key, ReadPoint, Result, SeqId};
use halcyon_schema::KeepDeleted;

use crate::answers::LeftOut;
use crate::keeping::Keeping;
use crate::new_files::{visit_cells, visit_cells_until};
use crate::region::Region;
use crate::scan::matcher::Matcher;
use crate::scan::source::Heap;
use crate::store::{Store, StoreFile};

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriteKind {
    Flush,
    /// Of all files, so that delete markers go (`COMPACT_DROP_DELETES`), or of some; and whether a major one was due or asked for.
    Compaction {
        all: bool,
        major: bool,
    },
}

/// What a family keeps, as coprocessors see it (`ScanOptions`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanOptions {
    pub max_versions: u32,
    pub min_versions: u32,
    /// Milliseconds; `None`: for ever.
    pub ttl_ms: Option<i64>,
    pub keep_deleted: KeepDeleted,
    pub purge_deletes_after_ms: i64,
}

impl ScanOptions {
    pub(crate) fn change(self, keeping: Keeping) -> Keeping {
        let ScanOptions { max_versions, min_versions, ttl_ms, keep_deleted, purge_deletes_after_ms } = self;
        let max_versions = max_versions.max(1);
        Keeping { max_versions, min_versions, ttl_ms, keep_deleted, purge_deletes_after_ms, ..keeping }
    }
}

/// Who is asked about flushes and compactions of a region. *Thread safety*: from any thread; a flush and compactions may ask at the same
/// time.
pub trait StoreHooks: Send + Sync {
    /// Before a flush of the region. An error ends it. *Blocking*.
    fn before_flush(&self) -> Result<()>;
    /// After a flush of the region that was not ended by an error. *Blocking*.
    fn after_flush(&self);
    /// Whether in-memory compactions may leave cells out without being asked about.
    fn may_drop_in_memory(&self) -> bool;
    /// A family is about to be written; `None`: nobody wants to know. An error ends the flush or compaction. *Blocking*.
    fn begin(&self, family: &Bytes, kind: RewriteKind) -> Result<Option<Box<dyn RewriteHooks>>>;
}

/// The coprocessors of one flush or compaction of a family. Dropped without [`RewriteHooks::end`], it has failed.
pub trait RewriteHooks {
    /// What the family is to keep this time; `None`: as always.
    fn options(&self) -> Option<ScanOptions>;
    /// Passes the cells of `source` through the scanner of the coprocessors to `sink`. False: they want no change, and nothing was read.
    /// Errors: of the coprocessors, and those that `source` and `sink` have returned. *Blocking*.
    fn rewrite(&mut self, source: &mut Source<'_>, sink: &mut Sink<'_>) -> Result<bool>;
    /// The files have their places; none: no cell was left. *Blocking*.
    fn end(self: Box<Self>, files: &[&Path]);
}

/// Gives the next cells, of about so many bytes; none: that was all.
pub type Source<'a> = dyn FnMut(usize) -> Result<Vec<Cell>> + 'a;
/// Takes a cell. Error: it cannot be in the file.
pub type Sink<'a> = dyn FnMut(&Cell) -> Result<()> + 'a;

/// A flush whose coprocessors fail so many times in a row keeps all cells instead (HBase: `hbase.hstore.flush.retries.number`, after which the
/// server ends): what cannot be flushed takes memory and holds WALs.
pub(crate) const FAILURES_MAX: u32 = 10;

/// What a flush or a compaction knows of its coprocessors.
pub(crate) enum Hooked {
    /// Nobody wants to see the cells.
    No,
    /// There are coprocessors, and they cannot be asked: nothing may be left out.
    KeepAll,
    By {
        hooks: Box<dyn RewriteHooks>,
        /// They have returned an error, or what cannot be written.
        has_failed: bool,
    },
}

impl Hooked {
    /// What the family keeps this time.
    pub fn keeping(&self, store: &Store) -> Keeping {
        let purge_deletes_after_ms = store.compaction().purge_deletes_after_ms;
        let usual = Keeping { purge_deletes_after_ms, ..store.keeping };
        match self {
            Hooked::By { hooks, .. } => hooks.options().map_or(usual, |options| options.change(usual)),
            Hooked::No | Hooked::KeepAll => usual,
        }
    }

    /// Cells above it are kept.
    pub fn keep_above(&self, keep_above: ReadPoint) -> ReadPoint {
        if matches!(self, Hooked::KeepAll) { ReadPoint::at(SeqId::ZERO) } else { keep_above }
    }

    pub fn end(self, files: &[Arc<StoreFile>]) {
        if let Hooked::By { hooks, .. } = self {
            let paths: Vec<&Path> = files.iter().map(|file| file.path.as_path()).collect();
            hooks.end(&paths);
        }
    }
}

impl Region {
    /// Whom flushes and compactions ask from now on. To be called once, before the region serves.
    pub fn set_store_hooks(&self, hooks: Arc<dyn StoreHooks>) {
        let set = self.store_hooks.set(hooks);
        assert!(set.is_ok(), "a region has its coprocessors for as long as it is open");
    }

    /// What the oldest scanner that stays open between calls sees (HBase: `HRegion.getSmallestReadPoint`).
    pub fn smallest_read_point(&self) -> ReadPoint {
        self.read_point().min(self.read_points.lowest())
    }

    pub(crate) fn begin_rewrite(&self, store: &Store, kind: RewriteKind) -> Result<Hooked> {
        match self.store_hooks.get() {
            Some(hooks) => {
                let begun = hooks.begin(store.family.name(), kind)?;
                Ok(begun.map_or(Hooked::No, |hooks| Hooked::By { hooks, has_failed: false }))
            }
            None if self.services.settings.is_hosted => Ok(Hooked::KeepAll),
            None => Ok(Hooked::No),
        }
    }

    pub(crate) fn may_drop_in_memory(&self) -> bool {
        match self.store_hooks.get() {
            Some(hooks) => hooks.may_drop_in_memory(),
            None => !self.services.settings.is_hosted,
        }
    }

    /// Walks everything in the heap through the coprocessors, if there are any, and hands on what is looked at and what is to be written.
    /// `newest`: what no cell may be above.
    pub(crate) fn write_through(
        &self,
        hooked: &mut Hooked,
        newest: SeqId,
        walk: Walk<'_>,
        work: &mut impl FnMut(CellRef<'_>, Stage) -> Result<()>,
    ) -> Result<()> {
        let Walk { heap, matcher, left_out, family } = walk;
        if let Hooked::By { hooks, has_failed } = hooked {
            let is_own_error = std::cell::Cell::new(false);
            let own = |error: Error| {
                is_own_error.set(true);
                error
            };
            let work = RefCell::new(&mut *work); // only one of the two runs
            let comparator = heap.comparator();
            let mut source = |bytes_max: usize| {
                let (mut cells, bytes) = (Vec::new(), std::cell::Cell::new(0));
                let is_full = |_: CellRef<'_>| bytes.get() >= bytes_max;
                visit_cells_until(heap, matcher, left_out, is_full, |cell, kept| {
                    (*work.borrow_mut())(cell, Stage::Seen { kept })?;
                    if kept {
                        bytes.set(bytes.get() + cell.bytes().len());
                        cells.push(cell.to_cell());
                    }
                    Ok(())
                })
                .map_err(own)?;
                Ok(cells)
            };
            let mut last: Option<Key> = None;
            let mut sink = |cell: &Cell| {
                self.check_hooked(cell, family, newest)?;
                let key = cell.get().key();
                if last.as_ref().is_some_and(|last| comparator.compare_keys(last.get(), key).is_gt()) {
                    return Err(wrong(cell, "after a cell that sorts behind it"));
                }
                last = Some(key.to_key());
                (*work.borrow_mut())(cell.get(), Stage::Write).map_err(own)
            };
            let is_rewritten = hooks.rewrite(&mut source, &mut sink);
            *has_failed = is_rewritten.is_err() && !is_own_error.get();
            if is_rewritten? {
                return Ok(());
            }
        }
        visit_cells(heap, matcher, left_out, |cell, kept| {
            work(cell, Stage::Seen { kept })?;
            if kept { work(cell, Stage::Write) } else { Ok(()) }
        })
    }

    fn check_hooked(&self, cell: &Cell, family: &[u8], newest: SeqId) -> Result<()> {
        if cell.family() != family {
            return Err(wrong(cell, "of another family"));
        }
        if !self.info.contains_row(cell.row()) {
            return Err(wrong(cell, "of a row outside the region"));
        }
        if SeqId::new(cell.seq()) > newest {
            return Err(wrong(cell, "with a sequence id above those of the store"));
        }
        Ok(())
    }
}

/// What a flush or a compaction does with a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It was read, and is kept or left out.
    Seen { kept: bool },
    /// It goes into the file.
    Write,
}

/// What is walked.
pub(crate) struct Walk<'a> {
    pub heap: &'a mut Heap,
    pub matcher: &'a mut Matcher,
    pub left_out: &'a LeftOut<'a>,
    pub family: &'a [u8],
}

fn wrong(cell: &Cell, what: &str) -> Error {
    Error::new(ErrorKind::Io, format!("a coprocessor has returned {cell:?} {what}"))
}
