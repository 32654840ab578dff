//! Compares every row of both sides while clients write.
//!
//! The walk of `digest.rs` over all ranges finds rows that differ. Most of them were written between the two looks. They are
//! looked at again after a mark has arrived, when the target has all that the source had. A row that changes all the time may
//! differ at each look: it is left for the cut over, when nothing changes. A row that did not change for a while and still
//! differs is repaired from the side that takes writes, and told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use halcyon_client::{Action, Cell, CellType, Get, Row, Scan};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::digest::{self, Compared, Digests, RowDigest};
use crate::progress::Progress;
use crate::side::{Side, mutations};
use crate::state::{Range, RowOf};
use crate::{Migration, Way, marks};

/// Rows of a message from a side's reader.
const DIGESTS_COUNT: usize = 1000;
/// Messages that a side may be ahead of the other.
const AHEAD_MAX: usize = 16;
/// Rows that differ before the comparison gives up: something is wrong with the copy as a whole.
const DIFFERING_MAX: usize = 200_000;
/// Rows of a batch of gets, and batches at a time.
const GETS_COUNT: usize = 100;
const LOOKS_COUNT: usize = 8;
/// A write that was under way at a mark may have an older timestamp, and be seen later.
const UNDER_WAY_MS: i64 = 2_000;
const ROUNDS_MAX: usize = 6;
/// A row that was not written for so long is not one that changes all the time.
const SETTLED_MS: i64 = 30_000;
const TOLD_MAX: usize = 10;

/// What a look at all rows found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) rows: u64,
    pub(crate) cells: u64,
    pub(crate) ranges: u64,
    /// Ranges whose sums differed at the first look.
    pub(crate) ranges_differing: u64,
    pub(crate) rows_differing: BTreeSet<RowOf>,
}

/// Compares all rows. Rows that never stop changing are left in the state. Fails if others differ for good.
pub(crate) async fn compare_all(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    let (from, to) = migration.pair(way);
    let mark = marks::drain(from, to).await?;
    let found = walk(migration, way).await?;
    let first = found.rows_differing.len();
    println!(
        "compared: {} rows, {} cells in {} ranges; {} ranges and {first} rows differ at the first look",
        found.rows, found.cells, found.ranges, found.ranges_differing
    );
    let (unsettled, repaired) = settle(migration, way, found.rows_differing).await?;
    println!(
        "compared: differences 0{}{}",
        if repaired == 0 { String::new() } else { format!(" after {repaired} rows were repaired") },
        match unsettled.len() {
            0 => String::new(),
            count => format!("; {count} rows change all the time and are compared at the cut over"),
        }
    );
    let mut state = migration.state.lock();
    state.compared_ms = mark.written_ms;
    state.unsettled = unsettled.into_iter().collect();
    Ok(())
}

/// Looks at rows again until none differs but those that change all the time. Returns these, and how many were repaired.
pub(crate) async fn settle(
    migration: &Migration,
    way: Way,
    mut differing: BTreeSet<RowOf>,
) -> Result<(BTreeSet<RowOf>, usize), String> {
    let (from, to) = migration.pair(way);
    let mut repaired = BTreeSet::new();
    let mut unsettled = BTreeSet::new();
    let mut rest: Vec<Differing> = Vec::new();
    for round in 0..ROUNDS_MAX {
        if differing.is_empty() {
            break;
        }
        let mark = marks::drain(from, to).await?;
        let again = look(migration, way, &differing).await?;
        let now_ms = mark.written_ms;
        let (changing, still): (Vec<Differing>, Vec<Differing>) =
            again.into_iter().partition(|one| one.newest_ms() > now_ms - SETTLED_MS);
        unsettled = changing.iter().map(|one| one.place.clone()).collect();
        differing = changing.iter().chain(&still).map(|one| one.place.clone()).collect();
        // The second look at a row that nothing has changed: it is not on its way.
        if round > 0 && !still.is_empty() {
            tell(migration, &still);
            repair(migration, way, &still, Repair::Missing).await?;
            repaired.extend(still.iter().map(|one| one.place.clone()));
        }
        rest = still;
    }
    let lacks = |one: &&Differing| !changes(&one.here, &one.there, Repair::Missing).is_empty();
    if let Some(one) = rest.iter().find(lacks) {
        return Err(format!(
            "{} rows differ and could not be repaired, among them {}. A delete marker of the {} may hide their cells: \
             major_compact the tables there, and run this again",
            rest.iter().filter(lacks).count(),
            migration.show(&one.place),
            to.name
        ));
    }
    // Cells that are too many are deleted at the cut over: a client could be writing them now.
    unsettled.extend(rest.into_iter().map(|one| one.place));
    repaired.retain(|place| !unsettled.contains(place));
    Ok((unsettled, repaired.len()))
}

fn tell(migration: &Migration, rows: &[Differing]) {
    for one in rows.iter().take(TOLD_MAX) {
        println!(
            "differs: {}, {} cells and {} cells",
            migration.show(&one.place),
            one.here.len(),
            one.there.len()
        );
    }
    if rows.len() > TOLD_MAX {
        println!("differs: {} more rows", rows.len() - TOLD_MAX);
    }
}

/// Walks over all ranges of all tables.
pub(crate) async fn walk(migration: &Arc<Migration>, way: Way) -> Result<Found, String> {
    let mut work: Vec<(usize, Range)> = Vec::new();
    for (table, one) in migration.state.lock().tables.iter().enumerate() {
        work.extend(one.ranges.iter().map(|range| (table, range.clone())));
    }
    let (ranges, expected) = (work.len() as u64, migration.state.lock().copied_bytes);
    let (work, next) = (Arc::new(work), Arc::new(AtomicUsize::new(0)));
    let progress = Arc::new(Progress::new());
    let mut tasks = JoinSet::new();
    for number in 0..migration.args.threads.min(work.len()) {
        let (migration, progress) = (Arc::clone(migration), Arc::clone(&progress));
        let (work, next) = (Arc::clone(&work), Arc::clone(&next));
        tasks.spawn(async move {
            let mut all = Vec::new();
            while let Some((table, range)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                let compared = compare_range(&migration, way, *table, range, number, &progress).await?;
                progress.ranges_done.fetch_add(1, Ordering::Relaxed);
                all.push((*table, compared));
            }
            Ok::<_, String>(all)
        });
    }
    let mut ticks = tokio::time::interval(migration.progress_period());
    ticks.tick().await;
    let mut found = Found { ranges, ..Found::default() };
    loop {
        tokio::select! {
            ended = tasks.join_next() => {
                let Some(ended) = ended else { break };
                let ended = ended.unwrap_or_else(|error| Err(format!("a task of the comparison failed: {error}")));
                for (table, compared) in ended? {
                    found.rows += compared.left.rows;
                    found.cells += compared.left.cells;
                    found.ranges_differing += u64::from(compared.left != compared.right);
                    let places = compared.differing.into_iter().map(|row| RowOf { table, row });
                    found.rows_differing.extend(places);
                }
                if found.rows_differing.len() > DIFFERING_MAX {
                    return Err(format!("more than {DIFFERING_MAX} rows differ: --abort, drop the tables at the target, and copy again"));
                }
            },
            _ = ticks.tick() => println!("{}", progress.line("compare", ranges, expected)),
        }
    }
    Ok(found)
}

async fn compare_range(
    migration: &Migration,
    way: Way,
    table: usize,
    range: &Range,
    slot: usize,
    progress: &Progress,
) -> Result<Compared, String> {
    let (from, to) = migration.pair(way);
    let name = migration.table(table);
    let left = digests(from, name.clone(), range, slot);
    let right = digests(to, name, range, slot);
    digest::compare(left, right, |row| progress.add(1, row.cells, row.bytes)).await
}

/// Rows of a range at one side, read by a task.
fn digests(side: &Side, name: halcyon_schema::TableName, range: &Range, slot: usize) -> Digests {
    let mut scan = Scan::new().start(&range.start).all_versions().cache_blocks(false).allow_partial_rows();
    if !range.end.is_empty() {
        scan = scan.stop(&range.end);
    }
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    let mut scanner = side.cluster.table(name.clone(), slot).scan(scan);
    let side = side.clone();
    tokio::spawn(async move {
        let mut ready: Vec<RowDigest> = Vec::new();
        let mut current: Option<RowDigest> = None;
        loop {
            let row = match scanner.next().await {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error) => {
                    let _ = sender.send(Err(side.failed(&format!("scan of {name}"), error))).await;
                    return;
                }
            };
            add_part(&mut current, &mut ready, &row);
            if ready.len() >= DIGESTS_COUNT && sender.send(Ok(std::mem::take(&mut ready))).await.is_err() {
                return; // the other side has failed
            }
        }
        ready.extend(current);
        let _ = sender.send(Ok(ready)).await;
        scanner.close().await;
    });
    receiver
}

/// Adds a part of a row. A row is ready when another one begins.
fn add_part(current: &mut Option<RowDigest>, ready: &mut Vec<RowDigest>, part: &Row) {
    if part.is_empty() {
        return;
    }
    if current.as_ref().is_none_or(|digest| digest.row != part.key()) {
        ready.extend(current.replace(RowDigest::new(Bytes::copy_from_slice(part.key()))));
    }
    let digest = current.as_mut().expect("it was just put there");
    part.iter().for_each(|cell| digest.add(cell));
}

/// A row with what both sides show of it.
pub(crate) struct Differing {
    pub(crate) place: RowOf,
    here: Vec<Cell>,
    there: Vec<Cell>,
}

impl Differing {
    fn newest_ms(&self) -> i64 {
        self.here.iter().chain(&self.there).map(Cell::timestamp).max().unwrap_or(0)
    }
}

/// Reads rows on both sides; returns those that differ now.
pub(crate) async fn look(
    migration: &Migration,
    way: Way,
    places: &BTreeSet<RowOf>,
) -> Result<Vec<Differing>, String> {
    let (from, to) = migration.pair(way);
    let mut by_table: BTreeMap<usize, Vec<Bytes>> = BTreeMap::new();
    for place in places {
        by_table.entry(place.table).or_default().push(place.row.clone());
    }
    let mut chunks = Vec::new();
    for (table, rows) in by_table {
        let name = migration.table(table);
        chunks.extend(rows.chunks(GETS_COUNT).map(|chunk| (table, name.clone(), chunk.to_vec())));
    }
    let (chunks, next) = (Arc::new(chunks), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for slot in 0..LOOKS_COUNT.min(chunks.len()) {
        let (from, to) = (from.clone(), to.clone());
        let (chunks, next) = (Arc::clone(&chunks), Arc::clone(&next));
        tasks.spawn(async move {
            let mut differing = Vec::new();
            while let Some((table, name, rows)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (here, there) =
                    tokio::try_join!(get(&from, name, rows, slot), get(&to, name, rows, slot))?;
                for (row, (here, there)) in rows.iter().zip(here.into_iter().zip(there)) {
                    if RowDigest::of(&here) != RowDigest::of(&there) {
                        let place = RowOf { table: *table, row: row.clone() };
                        differing.push(Differing {
                            place,
                            here: here.into_cells(),
                            there: there.into_cells(),
                        });
                    }
                }
            }
            Ok::<_, String>(differing)
        });
    }
    let mut differing = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        differing.extend(ended.map_err(|error| error.to_string())??);
    }
    Ok(differing)
}

/// Rows as a side has them now, those that do not exist without cells.
async fn get(
    side: &Side,
    table: &halcyon_schema::TableName,
    rows: &[Bytes],
    slot: usize,
) -> Result<Vec<Row>, String> {
    let gets = rows.iter().map(|row| Get::new(row).all_versions());
    let read = side.cluster.table(table.clone(), slot).get_all(gets).await;
    read.map_err(|error| side.failed(&format!("get of {table}"), error))
}

/// How much a repair may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Writes cells that are missing or have another value. Cells that are too many may be on their way to the other side.
    Missing,
    /// Also deletes cells that are too many: nothing changes now.
    All,
}

/// Makes rows of the side that follows like those of the side that takes writes.
pub(crate) async fn repair(
    migration: &Migration,
    way: Way,
    rows: &[Differing],
    kind: Repair,
) -> Result<(), String> {
    let (from, to) = migration.pair(way);
    for one in rows {
        let mut actions: Vec<Action> = Vec::new();
        mutations(changes(&one.here, &one.there, kind), from.uuid, &mut actions);
        let name = migration.table(one.place.table);
        let written = to.cluster.table(name.clone(), 0).batch_all(&actions).await;
        written.map_err(|error| to.failed(&format!("repair of {name}"), error))?;
    }
    Ok(())
}

/// Cells to write so that `there` becomes like `here`.
fn changes(here: &[Cell], there: &[Cell], kind: Repair) -> Vec<Cell> {
    let key = |cell: &Cell| (cell.family().to_vec(), cell.qualifier().to_vec(), cell.timestamp());
    let (ours, theirs): (BTreeMap<_, _>, BTreeMap<_, _>) = (
        here.iter().map(|cell| (key(cell), cell)).collect(),
        there.iter().map(|cell| (key(cell), cell)).collect(),
    );
    let is_equal = |one: &Cell, other: &Cell| one.value() == other.value() && one.tags() == other.tags();
    let missing = ours
        .iter()
        .filter(|(key, cell)| theirs.get(*key).is_none_or(|other| !is_equal(cell, other)))
        .map(|(_, cell)| (*cell).clone());
    let surplus =
        theirs.iter().filter(|(key, _)| kind == Repair::All && !ours.contains_key(*key)).map(|(_, cell)| {
            let (row, family, qualifier) = (cell.row(), cell.family(), cell.qualifier());
            Cell::build(row, family, qualifier, cell.timestamp(), CellType::Delete, b"", b"", 0)
        });
    missing.chain(surplus).collect()
}

/// Rows that the side which takes writes has got since a time of its own clock, with deleted ones. `None` if there are more
/// than `count_max`.
pub(crate) async fn changed_since(
    migration: &Migration,
    way: Way,
    since_ms: i64,
    count_max: usize,
) -> Result<Option<BTreeSet<RowOf>>, String> {
    let (from, _) = migration.pair(way);
    let since_ms = since_ms.saturating_sub(UNDER_WAY_MS);
    let mut tasks = JoinSet::new();
    for (table, one) in migration.state.lock().tables.iter().enumerate() {
        for range in &one.ranges {
            let (side, name, range) = (from.clone(), one.table(), range.clone());
            tasks.spawn(async move {
                let rows = changed_in(&side, name.clone(), &range, since_ms, count_max).await;
                rows.map(|rows| (table, rows)).map_err(|error| side.failed(&format!("scan of {name}"), error))
            });
        }
    }
    let mut changed = BTreeSet::new();
    while let Some(ended) = tasks.join_next().await {
        let (table, rows) = ended.map_err(|error| error.to_string())??;
        changed.extend(rows.into_iter().map(|row| RowOf { table, row }));
        if changed.len() > count_max {
            return Ok(None);
        }
    }
    Ok(Some(changed))
}

async fn changed_in(
    side: &Side,
    name: halcyon_schema::TableName,
    range: &Range,
    since_ms: i64,
    count_max: usize,
) -> Result<Vec<Bytes>, halcyon_client::ClientError> {
    let scan = Scan::new().start(&range.start).raw(true).all_versions().time_range(since_ms, i64::MAX);
    let scan = scan.cache_blocks(false).allow_partial_rows();
    let scan = if range.end.is_empty() { scan } else { scan.stop(&range.end) };
    let mut scanner = side.cluster.table(name, 0).scan(scan);
    let mut rows: Vec<Bytes> = Vec::new();
    while let Some(row) = scanner.next().await? {
        if rows.last().is_none_or(|last| last != row.key()) && !row.is_empty() {
            rows.push(Bytes::copy_from_slice(row.key()));
        }
        if rows.len() > count_max {
            break;
        }
    }
    scanner.close().await;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(qualifier: &str, time: i64, value: &str) -> Cell {
        Cell::put(b"r", b"f", qualifier.as_bytes(), time, value.as_bytes())
    }

    #[test]
    fn a_repair_writes_what_is_missing_and_deletes_what_is_too_much() {
        let here = [put("a", 1, "x"), put("b", 2, "y"), put("c", 1, "z")];
        let there = [put("a", 1, "x"), put("b", 2, "old"), put("d", 1, "w")];
        let shown = |kind| -> Vec<_> {
            let changed = changes(&here, &there, kind);
            changed.iter().map(|cell| (cell.qualifier().to_vec(), cell.cell_type())).collect()
        };
        let (b, c, d) = (b"b".to_vec(), b"c".to_vec(), b"d".to_vec());
        assert_eq!(shown(Repair::Missing), [(b.clone(), CellType::Put), (c.clone(), CellType::Put)]);
        assert_eq!(shown(Repair::All), [(b, CellType::Put), (c, CellType::Put), (d, CellType::Delete)]);
    }
}
