//! In-memory flush and in-memory compaction, by the family's policy (`IN_MEMORY_COMPACTION`).
//!
//! ```text
//! active segment over its share --(update lock, a moment)--> pipeline
//! BASIC     each segment of the pipeline becomes an array; several arrays become one
//! EAGER     the same, and cells that no reader can see any more are left out
//! ADAPTIVE  as EAGER where enough would be left out, else as BASIC
//! ```
//!
//! An array is searched and walked faster than a skip list. Leaving cells out frees the chunks of those that stay only
//! when all of a segment's cells were copied to new chunks, so that is done for a whole pipeline at once. A flush
//! takes the pipeline as it finds it; work on it that is not done then is thrown away.

use std::sync::Arc;

use halcyon_cell::{CellRef, Key, ReadPoint, Result, SeqId};
use halcyon_memstore::{FlatSegment, Segment};
use halcyon_schema::InMemoryCompaction;

use crate::activity;
use crate::new_files::copy_kept;
use crate::region::Region;
use crate::scan::matcher::Matcher;
use crate::scan::source::Heap;
use crate::store::{Part, Store};

impl Region {
    /// Whether some active segment has grown to its share. Cheap: asked after every write.
    #[inline]
    pub fn memory_compaction_wanted(&self) -> bool {
        let bytes_min = self.in_memory_flush_bytes();
        self.stores.iter().any(|store| {
            self.policy_of(store) != InMemoryCompaction::None && {
                let size = store.active().size();
                (size.data_bytes + size.overhead_bytes) as u64 >= bytes_min
            }
        })
    }

    /// Moves what is wanted to the pipelines and works on them. Takes processor time by the size of the memstore and
    /// does no I/O. Returns whether there was anything to do; one call of a region at a time does something.
    pub fn compact_memory(&self) -> Result<bool> {
        let _open = self.enter()?;
        let Some(_compacting) = self.compacting_memory.try_lock() else { return Ok(false) };
        if !self.memory_compaction_wanted() {
            return Ok(false);
        }
        let bytes_min = self.in_memory_flush_bytes();
        let with_policy = || self.stores.iter().filter(|s| self.policy_of(s) != InMemoryCompaction::None);
        {
            let _updates = self.updates_alone(&activity::BEGIN_MEMORY_COMPACTION);
            with_policy().for_each(|store| store.push_to_pipeline(bytes_min));
        }
        for store in with_policy() {
            self.work_on_pipeline(store)?;
        }
        Ok(true)
    }

    pub(crate) fn policy_of(&self, store: &Store) -> InMemoryCompaction {
        let default = if self.info.is_meta() {
            InMemoryCompaction::None
        } else {
            self.services.settings.in_memory_compaction
        };
        match store.family.in_memory_compaction().unwrap_or(default) {
            // What is hidden there still counts: it may have pushed out what is in files. And what coprocessors want to keep they are
            // asked when it is flushed.
            InMemoryCompaction::Eager | InMemoryCompaction::Adaptive
                if store.keeping.new_version_behavior || !self.may_drop_in_memory() =>
            {
                InMemoryCompaction::Basic
            }
            policy => policy,
        }
    }

    fn in_memory_flush_bytes(&self) -> u64 {
        let share = self.services.settings.in_memory_flush_share / self.stores.len().max(1) as f64;
        (self.flush_size_bytes() as f64 * share) as u64
    }

    fn work_on_pipeline(&self, store: &Store) -> Result<()> {
        for part in store.view().pipeline.clone() {
            if let Part::List(segment) = &part {
                let (cells_count, flat) = (segment.size().cells_count, FlatSegment::of(segment));
                assert!(
                    flat.size().cells_count == cells_count,
                    "{cells_count} cells became {}: a segment of the pipeline takes no more writes",
                    flat.size().cells_count
                );
                let flat = Part::Flat { segment: flat, dropped_up_to: SeqId::ZERO };
                if !store.replace_in_pipeline(&[part], flat) {
                    return Ok(()); // a flush has taken all
                }
            }
        }
        let parts = store.view().pipeline.clone();
        let flat: Vec<Arc<FlatSegment>> = parts.iter().filter_map(Part::flat).cloned().collect();
        let policy = self.policy_of(store);
        let is_long = parts.len() > self.services.settings.pipeline_segments_max;
        if flat.len() != parts.len() || flat.is_empty() || policy != InMemoryCompaction::Eager && !is_long {
            return Ok(());
        }
        let merged = FlatSegment::merged(&flat);
        assert!(
            flat.iter().all(|part| part.max_seq() <= merged.max_seq()),
            "what is merged is as new as its newest part: readers before that look at each cell"
        );
        let dropped_up_to = parts.iter().map(Part::dropped_up_to).max().unwrap_or_default();
        let is_wanted = match policy {
            InMemoryCompaction::Eager => true,
            InMemoryCompaction::Adaptive => self.has_enough_to_drop(&merged),
            InMemoryCompaction::Basic | InMemoryCompaction::None => false,
        };
        // Only what everybody sees may hide something from everybody.
        let is_published = self.read_point().sees(merged.max_seq());
        let part = if is_wanted && is_published {
            let kept = self.without_hidden(store, &merged)?;
            // What was left out before may have been newer than all that stayed.
            Part::Flat { segment: kept, dropped_up_to: dropped_up_to.max(merged.max_seq()) }
        } else if is_long {
            Part::Flat { segment: merged, dropped_up_to }
        } else {
            return Ok(());
        };
        store.replace_in_pipeline(&parts, part);
        Ok(())
    }

    fn has_enough_to_drop(&self, segment: &FlatSegment) -> bool {
        let (cells, columns) = (segment.size().cells_count, segment.columns_count());
        (cells - columns) as f64 > cells as f64 * self.services.settings.adaptive_share
    }

    /// The cells that a flush would write, in chunks of their own.
    fn without_hidden(&self, store: &Store, segment: &Arc<FlatSegment>) -> Result<Arc<FlatSegment>> {
        assert!(
            self.read_point().sees(segment.max_seq()),
            "a write that is not published may fail: it must hide nothing from anybody"
        );
        let part = Part::Flat { segment: segment.clone(), dropped_up_to: SeqId::ZERO };
        let mut heap = Heap::new(store.comparator, vec![part.source(ReadPoint::NEWEST)]);
        heap.seek(Key::first_on_row(b"").get())?;
        let keep_above = self.read_points.keep_above(segment.max_seq());
        let left_out = self.answers.left_out(self.services.env.clock.monotonic_ns());
        let now_ms = self.services.env.clock.now_ms();
        let mut matcher = Matcher::minor(store.keeping, now_ms).keeping_above(keep_above);
        let active = store.active();
        let kept = Segment::with_row_start(
            self.services.chunks.clone(),
            store.comparator,
            active.expected_row_start(),
        );
        copy_kept(&mut heap, &mut matcher, &left_out, |cell: CellRef<'_>| {
            kept.insert(kept.prepare(cell.bytes(), None), SeqId::new(cell.seq()));
            Ok(())
        })?;
        let kept = FlatSegment::of(&kept);
        assert!(
            kept.size().cells_count <= segment.size().cells_count && kept.max_seq() <= segment.max_seq(),
            "leaving cells out makes none"
        );
        Ok(kept)
    }
}
