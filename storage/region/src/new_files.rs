//! What flushes and compactions have in common: cells go through a matcher into new files, and the files are opened.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use halcyon_cell::{CellRef, Key, KeyRef, Result, same_bytes};
use halcyon_env::invariant;

use crate::answers::LeftOut;
use crate::region::{Region, RegionServices};
use crate::scan::matcher::{MatchCode, Matcher};
use crate::scan::source::Heap;
use crate::store::{FileTarget, Store, StoreFile, StoreFileOpener, WrittenBy};

impl Region {
    /// Where files of the store are made. `tags`: whether their cells have a part for tags.
    pub(crate) fn file_target(
        &self,
        store: &Store,
        written_by: WrittenBy,
        now_ms: i64,
        tags: bool,
    ) -> Result<FileTarget> {
        let mut options = store.writer_options(&self.table, written_by, now_ms)?;
        options.include_tags = tags;
        let family = store.family.name_str().into_owned();
        let in_place =
            store.tracker.writes_in_place().then(|| (store.dir.clone(), store.being_written.clone()));
        Ok(FileTarget { place: self.place().clone(), family, in_place, options })
    }

    /// Opens a file that was just written, and puts of it into the cache what the family wants there. HBase keeps
    /// blocks while it writes them; here they are read again, so that nothing enters the cache unchecked.
    pub(crate) fn open_file(
        &self,
        store: &Store,
        path: &Path,
        written_by: WrittenBy,
    ) -> Result<Arc<StoreFile>> {
        let RegionServices { env, cache, .. } = &self.services;
        let file = StoreFileOpener { env, cache, family: &store.family }.open_hfile(path)?;
        let prefetch = self.services.settings.prefetches_on_open(&store.family);
        file.prefetch_wanted.store(prefetch, Ordering::Release);
        let of_server = self.services.settings.cache_on_write;
        let mut kinds = store.cached_on_write(&self.table, written_by, of_server);
        kinds.data &= store.keeps_in_cache(&file, env.clock.now_ms());
        file.fill_cache(kinds, || true);
        Ok(file)
    }
}

/// Walks everything in the heap and hands on the cells that the matcher keeps. What others were answered with is kept apart.
pub(crate) fn copy_kept(
    heap: &mut Heap,
    matcher: &mut Matcher,
    left_out: &LeftOut<'_>,
    mut keep: impl FnMut(CellRef<'_>) -> Result<()>,
) -> Result<()> {
    visit_cells(heap, matcher, left_out, |cell, kept| {
        if kept {
            return keep(cell);
        }
        left_out.note(cell);
        Ok(())
    })
}

/// Walks everything in the heap and shows cells, and whether the matcher keeps them. What it passes over is only shown if it may be
/// what others were answered with.
pub(crate) fn visit_cells(
    heap: &mut Heap,
    matcher: &mut Matcher,
    left_out: &LeftOut<'_>,
    look: impl FnMut(CellRef<'_>, bool) -> Result<()>,
) -> Result<()> {
    visit_cells_until(heap, matcher, left_out, |_| false, look)
}

/// As `visit_cells`, until `is_enough` says so of a cell; the next call goes on with that cell.
pub(crate) fn visit_cells_until(
    heap: &mut Heap,
    matcher: &mut Matcher,
    left_out: &LeftOut<'_>,
    is_enough: impl Fn(CellRef<'_>) -> bool,
    mut look: impl FnMut(CellRef<'_>, bool) -> Result<()>,
) -> Result<()> {
    let mut no_filter = None;
    while let Some(cell) = heap.peek()
        && !is_enough(cell)
    {
        if !matcher.on_row() || !same_bytes(cell.row(), matcher.row()) {
            matcher.set_row(cell.row());
        }
        let code = matcher.match_cell(cell, &mut no_filter)?;
        let kept = matches!(
            code,
            MatchCode::Include | MatchCode::IncludeAndSeekNextCol | MatchCode::IncludeAndSeekNextRow
        );
        look(cell, kept)?;
        let target = match code {
            MatchCode::SeekNextCol => matcher.next_column_key(cell),
            MatchCode::SeekNextRow => Some(Key::last_on_row(cell.row())),
            _ => None,
        };
        invariant!(
            target
                .as_ref()
                .is_none_or(|target| heap.comparator().compare_keys(cell.key(), target.get()).is_lt()),
            "a seek leads ahead of {cell:?}: one that stays would never end"
        );
        match target {
            None => heap.next()?,
            Some(target) if left_out.looks_at_all() => pass_to(heap, target.get(), &mut look)?,
            Some(target) => heap.reseek(target.get())?,
        }
    }
    Ok(())
}

/// Goes on to `target`, and shows the cells before it. The first one was shown.
fn pass_to(
    heap: &mut Heap,
    target: KeyRef<'_>,
    look: &mut impl FnMut(CellRef<'_>, bool) -> Result<()>,
) -> Result<()> {
    heap.next()?;
    while let Some(cell) = heap.peek()
        && heap.comparator().compare_keys(cell.key(), target).is_lt()
    {
        look(cell, false)?;
        heap.next()?;
    }
    Ok(())
}
