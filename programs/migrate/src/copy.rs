//! Copies all cells of the tables, range by range.
//!
//! The peer is disabled meanwhile, so edits wait at the source and reach the target after the copy. Their order is then that
//! of the source. A row that changes while it is copied needs no care: the edit that changed it comes later and has the
//! last word. A delete marker never arrives before the cells that it deletes, so no compaction of the target can drop it too
//! early: a scan returns the markers of a row first, so they are held back until the row's other cells are written. Decision
//! 0012 has the reasons.
//!
//! With `--merge` the target has rows of its own, which a delete marker of the source would hide, and a compaction remove. So
//! only what clients of the source see is copied, and a cell that would replace another one of the target ends the copy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use halcyon_client::{Action, Cell, Scan};
use halcyon_schema::TableName;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Migration;
use crate::limit::RateLimit;
use crate::progress::Progress;
use crate::side::{PEER, Side, mutations};
use crate::state::Range;

/// Bytes of cells in a call to the target. A range holds three times as much: what is written, what waits, what is read.
const BATCH_BYTES: usize = 1 << 20;
const RESPONSE_BYTES_MAX: u64 = 2 << 20;
/// Bytes of delete markers of one row.
const MARKERS_BYTES_MAX: usize = 64 << 20;
const SAVE_PERIOD: Duration = Duration::from_secs(2);

/// Cells for one call.
#[derive(Default)]
struct Batch {
    cells: Vec<Cell>,
    bytes: usize,
    rows: u64,
}

/// Copies what is not copied yet. May be called again after an error.
pub(crate) async fn copy(migration: &Arc<Migration>) -> Result<(), String> {
    match migration.source.peer(PEER).await? {
        Some(peer) if !peer.is_enabled => {}
        Some(_) => {
            return Err(format!(
                "the peer {PEER} was enabled before all rows were copied: --abort, and begin again"
            ));
        }
        None => return Err(format!("the source has no peer {PEER} any more: --abort, and begin again")),
    }
    let work: Vec<(usize, usize)> = {
        let state = migration.state.lock();
        let of_table = |(table, one): (usize, &crate::state::TableOfState)| {
            let left = one.ranges.iter().enumerate().filter(|(_, range)| !range.is_done);
            left.map(|(range, _)| (table, range)).collect::<Vec<_>>()
        };
        state.tables.iter().enumerate().flat_map(of_table).collect()
    };
    let expected = expected_bytes(migration).await?;
    let progress = Arc::new(Progress::new());
    let limit = Arc::new(RateLimit::new(migration.args.rate_limit.map(|mib| mib << 20)));
    let (work, next) = (Arc::new(work), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for number in 0..migration.args.threads.min(work.len()) {
        let (migration, progress, limit) = (Arc::clone(migration), Arc::clone(&progress), Arc::clone(&limit));
        let (work, next) = (Arc::clone(&work), Arc::clone(&next));
        tasks.spawn(async move {
            while let Some(&place) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                copy_range(&migration, place, number, &progress, &limit).await?;
                progress.ranges_done.fetch_add(1, Ordering::Relaxed);
                migration.save()?;
            }
            Ok::<(), String>(())
        });
    }
    let mut ticks = tokio::time::interval(SAVE_PERIOD);
    let mut told = tokio::time::Instant::now();
    let ranges = work.len() as u64;
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                None => break,
                Some(ended) => {
                    let done = ended.unwrap_or_else(|error| Err(format!("a task of the copy failed: {error}")));
                    if let Err(error) = done {
                        migration.save()?;
                        return Err(error);
                    }
                }
            },
            _ = ticks.tick() => {
                migration.save()?;
                if told.elapsed() >= migration.progress_period() {
                    told = tokio::time::Instant::now();
                    println!("{}", progress.line("copy", ranges, expected));
                }
            }
        }
    }
    println!("{}", progress.line("copied", ranges, 0));
    migration.save()
}

/// Bytes of all cells of the tables, roughly.
async fn expected_bytes(migration: &Migration) -> Result<u64, String> {
    let source = &migration.source;
    let metrics = source.admin.cluster_metrics().await.map_err(|error| source.failed("metrics", error))?;
    let prefixes: Vec<String> = migration.tables().iter().map(|table| format!("{table},")).collect();
    let regions = metrics.servers.iter().flat_map(|server| &server.regions);
    let ours =
        regions.filter(|region| prefixes.iter().any(|one| region.region_name.starts_with(one.as_bytes())));
    let mb = ours.map(|region| {
        u64::from(region.uncompressed_size_mb.max(region.store_file_size_mb) + region.memstore_size_mb)
    });
    Ok(mb.sum::<u64>() << 20)
}

async fn copy_range(
    migration: &Migration,
    (table, range): (usize, usize),
    slot: usize,
    progress: &Progress,
    limit: &RateLimit,
) -> Result<(), String> {
    let (name, what, merges) = {
        let state = migration.state.lock();
        (state.tables[table].table(), state.tables[table].ranges[range].clone(), state.keeps_surplus)
    };
    let (source, target) = (&migration.source, &migration.target);
    let (sender, mut batches) = mpsc::channel(1);
    let scanner = source.cluster.table(name.clone(), slot).scan(scan_of(&what, merges));
    let reading = tokio::spawn(read(scanner, sender));
    let writer = target.cluster.table(name.clone(), slot);
    while let Some(batch) = batches.recv().await {
        let Batch { cells, bytes, rows } = batch;
        limit.take(bytes as u64).await;
        if merges {
            refuse_replacing(target, &name, slot, &cells).await?;
        }
        let last = cells.last().map(|cell| Bytes::copy_from_slice(cell.row())).expect("a batch has cells");
        let count = cells.len() as u64;
        let mut actions: Vec<Action> = Vec::new();
        mutations(cells, source.uuid, &mut actions);
        writer.batch_all(&actions).await.map_err(|error| target.failed(&format!("copy of {name}"), error))?;
        progress.add(rows, count, bytes as u64);
        let mut state = migration.state.lock();
        state.copied_cells += count;
        state.copied_bytes += bytes as u64;
        state.tables[table].ranges[range].next = last; // the row may go on in the next batch
    }
    let read = reading.await.unwrap_or_else(|error| Err(error.to_string()));
    read.map_err(|error| source.failed(&format!("scan of {name}"), error))?;
    migration.state.lock().tables[table].ranges[range].is_done = true;
    Ok(())
}

/// All versions of what is left of a range; also delete markers, and what they hide, unless the target has rows of its own.
fn scan_of(range: &Range, merges: bool) -> Scan {
    let scan = Scan::new().start(&range.next).all_versions().cache_blocks(false);
    let scan = scan.allow_partial_rows().response_bytes_max(RESPONSE_BYTES_MAX);
    let scan = if merges { scan } else { scan.raw(true) };
    match range.end.is_empty() {
        true => scan,
        false => scan.stop(&range.end),
    }
}

/// The error if the target has one of these cells with another value. Batches follow each other, so all of this reads a row of the
/// target about once.
async fn refuse_replacing(
    target: &Side,
    name: &TableName,
    slot: usize,
    cells: &[Cell],
) -> Result<(), String> {
    let (Some(first), Some(last)) = (cells.first(), cells.last()) else { return Ok(()) };
    let scan = Scan::new().start(first.row()).stop_inclusive(last.row()).all_versions().cache_blocks(false);
    let scan = scan.allow_partial_rows().response_bytes_max(RESPONSE_BYTES_MAX);
    let ours: BTreeMap<_, _> = cells.iter().map(|cell| (coordinates(cell), cell)).collect();
    let mut scanner = target.cluster.table(name.clone(), slot).scan(scan);
    let failed = |error| target.failed(&format!("scan of {name}"), error);
    while let Some(row) = scanner.next().await.map_err(failed)? {
        let Some(one) = row.iter().find(|there| is_replaced(&ours, there)) else { continue };
        scanner.close().await;
        let found = format!(
            "row '{}' has another value at the source in {}:{}, with the same timestamp {}, and --merge replaces nothing: \
             --abort, delete the value that is not wanted, major_compact the table there, and begin again",
            one.row().escape_ascii(),
            one.family().escape_ascii(),
            one.qualifier().escape_ascii(),
            one.timestamp()
        );
        return Err(target.failed(&format!("copy of {name}"), found));
    }
    scanner.close().await;
    Ok(())
}

type Coordinates<'a> = (&'a [u8], &'a [u8], &'a [u8], i64);

fn coordinates(cell: &Cell) -> Coordinates<'_> {
    (cell.row(), cell.family(), cell.qualifier(), cell.timestamp())
}

/// Whether a cell of the target would have another value if these were written.
fn is_replaced(ours: &BTreeMap<Coordinates<'_>, &Cell>, there: &Cell) -> bool {
    let is_other = |cell: &&Cell| cell.value() != there.value() || cell.tags() != there.tags();
    ours.get(&coordinates(there)).is_some_and(is_other)
}

async fn read(mut scanner: halcyon_client::Scanner, sender: mpsc::Sender<Batch>) -> Result<(), String> {
    let mut batches = Batches::default();
    while let Some(row) = scanner.next().await.map_err(|error| error.to_string())? {
        let is_last_part = !row.has_more_cells();
        batches.add(row.into_cells(), is_last_part)?;
        if batches.current.bytes >= BATCH_BYTES && sender.send(batches.take()).await.is_err() {
            return Ok(()); // the writer has failed, and says why
        }
    }
    batches.end_row();
    if !batches.current.cells.is_empty() {
        let _ = sender.send(batches.take()).await;
    }
    scanner.close().await;
    Ok(())
}

/// Cells of a scan in the order in which they are to be written.
#[derive(Default)]
struct Batches {
    current: Batch,
    /// The cell before, also if it went with the last batch.
    last: Option<Cell>,
    /// Delete markers of the current row.
    markers: Vec<Cell>,
    markers_bytes: usize,
}

impl Batches {
    /// Adds a row or a part of one.
    fn add(&mut self, part: Vec<Cell>, is_last_part: bool) -> Result<(), String> {
        let Some(first) = part.first() else { return Ok(()) };
        if self.last.as_ref().is_some_and(|last| last.row() != first.row()) {
            self.end_row();
        }
        self.current.rows += u64::from(is_last_part);
        for cell in part {
            // Of cells with one key the first is the newest. Written in this order, the last would win.
            let is_older = self.last.as_ref().is_some_and(|last| last.get().key() == cell.get().key());
            self.last = Some(cell.clone());
            if is_older {
                continue;
            }
            let bytes = cell.bytes().len();
            if cell.cell_type().is_delete() {
                self.markers_bytes += bytes;
                self.markers.push(cell);
            } else {
                self.current.bytes += bytes;
                self.current.cells.push(cell);
            }
        }
        match self.markers_bytes <= MARKERS_BYTES_MAX {
            true => Ok(()),
            false => Err(format!(
                "row '{}' has more than {} MiB of delete markers: major_compact the table at the source",
                self.markers[0].row().escape_ascii(),
                MARKERS_BYTES_MAX >> 20
            )),
        }
    }

    /// The markers of a row follow its other cells.
    fn end_row(&mut self) {
        self.current.cells.append(&mut self.markers);
        self.current.bytes += std::mem::take(&mut self.markers_bytes);
    }

    fn take(&mut self) -> Batch {
        std::mem::take(&mut self.current)
    }
}

#[cfg(test)]
mod tests {
    use halcyon_client::CellType;

    use super::*;

    fn cell(row: &str, time: i64, kind: CellType, value: &str) -> Cell {
        Cell::build(row.as_bytes(), b"f", b"q", time, kind, value.as_bytes(), b"", 0)
    }

    fn shown(batch: &Batch) -> Vec<String> {
        let text = |cell: &Cell| {
            let mark = if cell.cell_type().is_delete() { "-" } else { "" };
            format!("{}{mark}{}", cell.row().escape_ascii(), cell.timestamp())
        };
        batch.cells.iter().map(text).collect()
    }

    /// A row larger than a call was written with its markers first. A compaction of the target between two calls dropped these,
    /// and the cells that they delete came to life.
    #[test]
    fn markers_follow_the_cells_that_they_delete() {
        let mut batches = Batches::default();
        let (delete, put) = (CellType::DeleteColumn, CellType::Put);
        batches.add(vec![cell("a", 9, delete, ""), cell("a", 8, put, "x")], false).unwrap();
        assert_eq!(shown(&batches.take()), ["a8"]);
        batches.add(vec![cell("a", 7, put, "x")], true).unwrap();
        batches.add(vec![cell("b", 9, delete, ""), cell("b", 5, put, "x")], true).unwrap();
        assert_eq!(shown(&batches.take()), ["a7", "a-9", "b5"]);
        batches.end_row();
        assert_eq!(shown(&batches.take()), ["b-9"]);
    }

    /// Delete markers of the source hid what the target had of its own, and a compaction removed it; cells with the same timestamp
    /// were replaced. Nothing told.
    #[test]
    fn a_merge_copies_no_markers_and_replaces_nothing() {
        let range = Range::new(Bytes::from_static(b"a"), Bytes::from_static(b"z"));
        let is_raw = |merges| format!("{:?}", scan_of(&range, merges)).contains("_raw_");
        assert!(!is_raw(true) && is_raw(false));
        let ours = [cell("a", 9, CellType::Put, "x"), cell("b", 9, CellType::Put, "x")];
        let ours: BTreeMap<_, _> = ours.iter().map(|cell| (coordinates(cell), cell)).collect();
        let replaced = |row, time, value| is_replaced(&ours, &cell(row, time, CellType::Put, value));
        assert!(replaced("a", 9, "own") && replaced("b", 9, ""));
        assert!(!replaced("a", 9, "x"), "an earlier try has written it");
        assert!(!replaced("a", 8, "own") && !replaced("c", 9, "own"));
        let mut tags = Vec::new();
        halcyon_cell::append_tag(&mut tags, halcyon_cell::TagType::TTL, &1_i64.to_be_bytes());
        assert!(is_replaced(&ours, &Cell::build(b"a", b"f", b"q", 9, CellType::Put, b"x", &tags, 0)));
    }

    #[test]
    fn of_equal_keys_the_newest_is_written_also_between_two_batches() {
        let mut batches = Batches::default();
        batches.add(vec![cell("a", 9, CellType::Put, "new")], true).unwrap();
        assert_eq!(batches.take().cells[0].value(), b"new");
        batches
            .add(vec![cell("a", 9, CellType::Put, "old"), cell("a", 8, CellType::Put, "x")], true)
            .unwrap();
        assert_eq!(shown(&batches.take()), ["a8"]);
    }
}
