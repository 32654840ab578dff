//! Single rows: both sides of them are read, told apart and made equal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use halcyon_cell::TagType;
use halcyon_client::{Action, Cell, CellType, Get, Row, Scan, TableDescriptor};
use halcyon_schema::TableName;
use tokio::task::JoinSet;

use crate::digest::RowDigest;
use crate::side::{Side, mutations};
use crate::state::RowOf;
use crate::{Migration, Way};

/// Rows of a batch of gets, and batches at a time.
const GETS_COUNT: usize = 100;
const LOOKS_COUNT: usize = 8;
/// Bytes of cells in a call that repairs.
const REPAIR_BYTES: usize = 1 << 20;
/// Cells whose time to live ends within this time are not compared: one side may show them and the other not.
const EXPIRY_MARGIN_MS: i64 = 60_000;

/// Times to live in milliseconds of the families of a table, the shorter one of both sides. Families without one are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimesToLive(BTreeMap<Bytes, i64>);

impl TimesToLive {
    pub(crate) fn of(sides: &[TableDescriptor]) -> TimesToLive {
        let mut times = BTreeMap::new();
        for family in sides.iter().flat_map(TableDescriptor::families) {
            let Some(seconds) = family.ttl_seconds() else { continue };
            let ms = i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
            times
                .entry(family.name().clone())
                .and_modify(|known: &mut i64| *known = ms.min(*known))
                .or_insert(ms);
        }
        TimesToLive(times)
    }

    /// Whether a cell expires about now, so that the two sides may differ about it for a moment.
    fn expires(&self, cell: &Cell, now_ms: i64) -> bool {
        let own = cell.get().tag_iter().find(|tag| tag.tag_type == TagType::TTL);
        let own = own.and_then(|tag| tag.value.try_into().ok().map(i64::from_be_bytes));
        let ttl_ms = match (self.0.get(cell.family()), own) {
            (Some(family_ms), Some(own_ms)) => own_ms.min(*family_ms),
            (Some(ms), None) => *ms,
            (None, Some(ms)) => ms,
            (None, None) => return false,
        };
        let left_ms = cell.timestamp().saturating_add(ttl_ms).saturating_sub(now_ms);
        left_ms.saturating_abs() <= EXPIRY_MARGIN_MS
    }

    fn lasting(&self, cells: Vec<Cell>, now_ms: i64) -> Vec<Cell> {
        cells.into_iter().filter(|cell| !self.expires(cell, now_ms)).collect()
    }
}

/// A row with what both sides show of it. `here` is the side that takes writes.
#[derive(Clone, Debug)]
pub(crate) struct Differing {
    pub(crate) place: RowOf,
    here: Vec<Cell>,
    there: Vec<Cell>,
}

impl Differing {
    /// `None`: both sides show the same, but for cells that expire about now.
    pub(crate) fn of(place: RowOf, here: Vec<Cell>, there: Vec<Cell>) -> Option<Differing> {
        let one = Differing { place, here, there };
        let (here, there) = one.sums();
        (here != there).then_some(one)
    }

    /// Both sides in short: a row with the same sums at two looks has not changed between them.
    pub(crate) fn sums(&self) -> (Option<u128>, Option<u128>) {
        let sum = |cells: &[Cell]| RowDigest::of(cells).map(|digest| digest.sum);
        (sum(&self.here), sum(&self.there))
    }

    /// Cells that the side that follows lacks, or has with another value.
    pub(crate) fn missing(&self) -> Vec<Cell> {
        let theirs: BTreeMap<_, _> = self.there.iter().map(|cell| (key(cell), cell)).collect();
        let is_equal = |one: &Cell, other: &Cell| one.value() == other.value() && one.tags() == other.tags();
        let lacks = |cell: &&Cell| theirs.get(&key(cell)).is_none_or(|other| !is_equal(cell, other));
        self.here.iter().filter(lacks).cloned().collect()
    }

    /// Cells that only the side that follows has.
    pub(crate) fn surplus(&self) -> Vec<Cell> {
        let ours: BTreeSet<_> = self.here.iter().map(key).collect();
        self.there.iter().filter(|cell| !ours.contains(&key(cell))).cloned().collect()
    }

    pub(crate) fn lacks(&self) -> bool {
        !self.missing().is_empty()
    }

    /// Leaves nothing to write but those of these cells that the side that follows does not have in any form.
    pub(crate) fn keep_missing(&mut self, keys: &BTreeSet<CellKey>) {
        let theirs: BTreeSet<_> = self.there.iter().map(key).collect();
        self.here.retain(|cell| keys.contains(&key(cell)) && !theirs.contains(&key(cell)));
    }

    /// How many cells each side has.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.here.len(), self.there.len())
    }
}

/// Family, qualifier and timestamp: what tells the cells of a row apart.
pub(crate) type CellKey = (Vec<u8>, Vec<u8>, i64);

pub(crate) fn key(cell: &Cell) -> CellKey {
    (cell.family().to_vec(), cell.qualifier().to_vec(), cell.timestamp())
}

/// Reads rows on both sides; returns those that differ now. `now_ms` is about the time that the servers' clocks show.
pub(crate) async fn look(
    migration: &Migration,
    way: Way,
    places: &BTreeSet<RowOf>,
    now_ms: i64,
) -> Result<Vec<Differing>, String> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let (from, to) = migration.pair(way);
    let lives = Arc::new(migration.times_to_live().await?.to_vec());
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
        let (from, to, lives) = (from.clone(), to.clone(), Arc::clone(&lives));
        let (chunks, next) = (Arc::clone(&chunks), Arc::clone(&next));
        tasks.spawn(async move {
            let mut differing = Vec::new();
            while let Some((table, name, rows)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (here, there) =
                    tokio::try_join!(get(&from, name, rows, slot), get(&to, name, rows, slot))?;
                let live = &lives[*table];
                for (row, (here, there)) in rows.iter().zip(here.into_iter().zip(there)) {
                    let place = RowOf { table: *table, row: row.clone() };
                    let here = live.lasting(here.into_cells(), now_ms);
                    differing.extend(Differing::of(place, here, live.lasting(there.into_cells(), now_ms)));
                }
            }
            Ok::<_, String>(differing)
        });
    }
    let mut differing = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        differing.extend(ended.map_err(|error| error.to_string())??);
    }
    differing.sort_by(|one: &Differing, other| one.place.cmp(&other.place));
    Ok(differing)
}

/// Rows as a side has them now, those that do not exist without cells.
async fn get(side: &Side, table: &TableName, rows: &[Bytes], slot: usize) -> Result<Vec<Row>, String> {
    let gets = rows.iter().map(|row| Get::new(row).all_versions());
    let read = side.cluster.table(table.clone(), slot).get_all(gets).await;
    read.map_err(|error| side.failed(&format!("get of {table}"), error))
}

/// The cells of a row that a side has nothing of, not even below newer ones or delete markers. It may have had them: a compaction
/// drops what was deleted.
pub(crate) async fn without_trace(
    migration: &Migration,
    to: &Side,
    place: &RowOf,
    cells: Vec<Cell>,
) -> Result<BTreeSet<CellKey>, String> {
    if cells.is_empty() {
        return Ok(BTreeSet::new());
    }
    let name = migration.table(place.table);
    let scan = Scan::new().start(&place.row).stop_inclusive(&place.row).raw(true).all_versions();
    let mut scanner = to.cluster.table(name.clone(), 0).scan(scan);
    let mut there = BTreeSet::new();
    while let Some(row) =
        scanner.next().await.map_err(|error| to.failed(&format!("scan of {name}"), error))?
    {
        there.extend(row.iter().filter(|cell| !cell.cell_type().is_delete()).map(key));
    }
    scanner.close().await;
    Ok(cells.iter().map(key).filter(|key| !there.contains(key)).collect())
}

/// How much a repair may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Writes cells that are missing or have another value.
    Missing,
    /// Also deletes cells that only the side that follows has. The user has to ask for that.
    All,
}

/// Makes rows of the side that follows like those of the side that takes writes. Returns how many cells were deleted.
pub(crate) async fn repair(
    migration: &Migration,
    way: Way,
    rows: &[Differing],
    kind: Repair,
) -> Result<usize, String> {
    let (from, to) = migration.pair(way);
    let mut deleted = 0;
    for of_table in rows.chunk_by(|one, next| one.place.table == next.place.table) {
        let name = migration.table(of_table[0].place.table);
        let table = to.cluster.table(name.clone(), 0);
        let (mut actions, mut bytes): (Vec<Action>, usize) = (Vec::new(), 0);
        for (at, one) in of_table.iter().enumerate() {
            let (cells, deletes) = changes(one, kind);
            deleted += deletes;
            bytes += cells.iter().map(|cell| cell.bytes().len()).sum::<usize>();
            mutations(cells, from.uuid, &mut actions);
            if bytes >= REPAIR_BYTES || at + 1 == of_table.len() {
                let written = table.batch_all(&std::mem::take(&mut actions)).await;
                written.map_err(|error| to.failed(&format!("repair of {name}"), error))?;
                bytes = 0;
            }
        }
    }
    Ok(deleted)
}

/// Cells to write so that `there` becomes like `here`, and how many of them delete others.
fn changes(row: &Differing, kind: Repair) -> (Vec<Cell>, usize) {
    let mut cells = row.missing();
    let surplus = if kind == Repair::All { row.surplus() } else { Vec::new() };
    let deletes = surplus.len();
    cells.extend(surplus.iter().map(|cell| {
        let (row, family, qualifier) = (cell.row(), cell.family(), cell.qualifier());
        Cell::build(row, family, qualifier, cell.timestamp(), CellType::Delete, b"", b"", 0)
    }));
    (cells, deletes)
}

#[cfg(test)]
mod tests {
    use halcyon_schema::FamilyDescriptor;

    use super::*;

    fn put(qualifier: &str, time: i64, value: &str) -> Cell {
        Cell::put(b"r", b"f", qualifier.as_bytes(), time, value.as_bytes())
    }

    fn row(here: &[Cell], there: &[Cell]) -> Option<Differing> {
        let place = RowOf { table: 0, row: Bytes::from_static(b"r") };
        Differing::of(place, here.to_vec(), there.to_vec())
    }

    #[test]
    fn a_repair_writes_what_is_missing_and_deletes_when_asked() {
        let here = [put("a", 1, "x"), put("b", 2, "y"), put("c", 1, "z")];
        let one = row(&here, &[put("a", 1, "x"), put("b", 2, "old"), put("d", 1, "w")]).unwrap();
        let shown = |kind| {
            let (cells, deletes) = changes(&one, kind);
            let cells: Vec<_> =
                cells.iter().map(|cell| (cell.qualifier().to_vec(), cell.cell_type())).collect();
            (cells, deletes)
        };
        let (b, c, d) = (b"b".to_vec(), b"c".to_vec(), b"d".to_vec());
        let missing = vec![(b, CellType::Put), (c, CellType::Put)];
        assert_eq!(shown(Repair::Missing), (missing.clone(), 0));
        assert_eq!(shown(Repair::All), ([missing, vec![(d, CellType::Delete)]].concat(), 1));
        assert!(one.lacks());
        let more = row(&here[..1], &here[..2]).unwrap();
        assert!(!more.lacks() && more.surplus() == here[1..2]);
        assert!(row(&here, &here).is_none());
    }

    /// Servers whose clocks are some milliseconds apart show a cell that expires at one side only.
    #[test]
    fn cells_that_expire_about_now_are_no_difference() {
        let family = FamilyDescriptor::new("f").unwrap().with("TTL", "100");
        let table = TableDescriptor::new(TableName::parse(b"t").unwrap()).with_family(family);
        let longer = FamilyDescriptor::new("f").unwrap().with("TTL", "200");
        let lives = TimesToLive::of(&[table.clone().with_family(longer), table]);
        let cells = vec![put("q", 1_000_000, "v")];
        for (now_ms, count) in
            [(1_000_000, 1), (1_039_000, 1), (1_041_000, 0), (1_159_000, 0), (1_161_000, 1)]
        {
            assert_eq!(lives.lasting(cells.clone(), now_ms).len(), count, "at {now_ms}");
        }
        // Of its own, in a family without one.
        let mut tags = Vec::new();
        halcyon_cell::append_tag(&mut tags, TagType::TTL, &100_000_i64.to_be_bytes());
        let own = Cell::build(b"r", b"f", b"q", 1_000_000, CellType::Put, b"v", &tags, 0);
        assert!(TimesToLive::default().expires(&own, 1_100_000));
        assert!(!TimesToLive::default().expires(&cells[0], 1_100_000));
        assert!(!TimesToLive::default().expires(&own, 1_000_000));
    }
}
