//! The oracle: cells in sorted lists, and reads by HBase's rules.
//!
//! `read.rs` says what a read of one row and family returns; `fate.rs` says which cells may be gone and what a
//! major compaction removes; `new_version.rs` says both for families with `NEW_VERSION_BEHAVIOR`. `gone.rs` remembers what reads have
//! shown to be gone. Here they are put together over rows and families.

mod fate;
mod gone;
mod new_version;
mod read;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use halcyon_cell::{Cell, CellComparator};

use crate::{FamilyOptions, MajorRows, OracleScan};

/// One table's (or region's) worth of cells with HBase's meaning of reads. No file, no thread, no clock: time is
/// what [`Oracle::set_now_ms`] says.
#[derive(Clone)]
pub struct Oracle {
    families: BTreeMap<Vec<u8>, Family>,
    now_ms: i64,
}

#[derive(Clone)]
struct Family {
    options: FamilyOptions,
    /// By row; each row's cells in comparator order, the newest sequence id of equal keys first.
    rows: BTreeMap<Vec<u8>, Vec<Stored>>,
    /// By row, what reads have shown to be gone. It is in no row above.
    gone: BTreeMap<Vec<u8>, Vec<Stored>>,
}

/// A cell that was written and is not surely gone.
#[derive(Clone, Debug)]
struct Stored {
    cell: Cell,
    /// Whether a flush or compaction may have dropped it by now. Once true, always true.
    may_be_gone: bool,
    /// Whether a crash may have it written once more, from the WAL.
    may_be_replayed: bool,
}

impl Oracle {
    pub fn new(families: Vec<FamilyOptions>) -> Oracle {
        let families = families
            .into_iter()
            .map(|options| {
                let family = Family { options, rows: BTreeMap::new(), gone: BTreeMap::new() };
                (family.options.name.clone(), family)
            })
            .collect();
        Oracle { families, now_ms: 0 }
    }

    /// Wall time in milliseconds, for TTLs. Must not go back.
    pub fn set_now_ms(&mut self, now_ms: i64) {
        assert!(now_ms >= self.now_ms, "time went back from {} to {now_ms}", self.now_ms);
        self.now_ms = now_ms;
        self.update_fates();
    }

    /// Stores puts and delete markers with the timestamps and sequence ids they have. Of equal keys with equal
    /// sequence ids the last counts. Panics at an unknown family.
    pub fn apply(&mut self, cells: &[Cell]) {
        for cell in cells {
            let family = self.families.get_mut(cell.family()).expect("a known family");
            family.store(Stored { cell: cell.clone(), may_be_gone: false, may_be_replayed: true });
        }
        self.update_fates();
    }

    /// A flush and then a major compaction of these rows: markers and what they hide are gone for good.
    pub fn major_compact(&mut self, rows: &MajorRows) {
        for (name, family) in &mut self.families {
            if rows.family.as_ref().is_some_and(|family| family != name) {
                continue;
            }
            let within = |row: &(&Vec<u8>, &Vec<Stored>)| rows.includes(row.0);
            let cells = family.rows.iter().filter(within).flat_map(|(_, row)| row);
            let earliest_put = fate::earliest_put(cells);
            for (_, row) in family.rows.iter_mut().filter(|(row, _)| rows.includes(row)) {
                fate::major_compact(row, &family.options, self.now_ms, earliest_put);
            }
            family.rows.retain(|_, row| !row.is_empty());
            // An engine may do it twice, and then older puts than now are no reason to keep a marker.
            let earliest_put = fate::earliest_put(family.rows.iter().filter(within).flat_map(|(_, row)| row));
            let rows_within = family.rows.iter_mut().filter(|(row, _)| rows.includes(row));
            for stored in rows_within.flat_map(|(_, row)| row).filter(|it| it.cell.cell_type().is_delete()) {
                stored.may_be_gone |= stored.cell.timestamp() < earliest_put;
            }
        }
        self.update_fates();
    }

    /// What a read returns if nothing was dropped early: one list per row, or per `batch` cells of a row.
    pub fn scan(&self, scan: &OracleScan) -> Vec<Vec<Cell>> {
        self.answer(scan, |row, options| {
            let cells: Vec<&Cell> = row.iter().map(|stored| &stored.cell).collect();
            read::read_store(&cells, options, scan, self.now_ms)
        })
    }

    /// Whether `found` is an answer that HBase could give: right in everything but the choice which of the cells
    /// that may be gone are gone. What it shows to be gone stays so. Sequence ids are not compared. The error shows what was expected.
    ///
    /// With an offset, or in a raw scan that limits versions, a hidden choice moves other cells: ask
    /// [`Oracle::is_ambiguous`] first.
    pub fn check(&mut self, scan: &OracleScan, found: &[Vec<Cell>]) -> Result<(), String> {
        let expected = self.expected(scan, found);
        if same_bytes(&expected, found) {
            self.note_gone(scan, found);
            return Ok(());
        }
        Err(format!("{}expected\n{}found\n{}", self.came_back(scan, found), show(&expected), show(found)))
    }

    /// What HBase could answer, as near to `found` as cells that may be gone allow.
    fn expected(&self, scan: &OracleScan, found: &[Vec<Cell>]) -> Vec<Vec<Cell>> {
        let found = ByStore::new(found);
        self.answer(scan, |row, options| {
            let read = |cells: &[&Cell]| read::read_store(cells, options, scan, self.now_ms);
            fate::read_with_choices(row, scan.raw, found.of(row, options), read)
        })
    }

    /// Whether some cell in reach of the scan may be gone.
    pub fn is_ambiguous(&self, scan: &OracleScan) -> bool {
        self.families
            .iter()
            .filter(|(name, _)| scan.includes_family(name))
            .flat_map(|(_, family)| &family.rows)
            .any(|(row, cells)| scan.includes_row(row) && cells.iter().any(|stored| stored.may_be_gone))
    }

    /// Puts the answers of `read` for each row and family together: rows in the scan's direction, families in
    /// order, the limit of rows and batches applied.
    fn answer(
        &self,
        scan: &OracleScan,
        read: impl Fn(&[Stored], &FamilyOptions) -> Vec<Cell>,
    ) -> Vec<Vec<Cell>> {
        let families: Vec<&Family> =
            self.families.values().filter(|it| scan.includes_family(&it.options.name)).collect();
        let mut rows: BTreeSet<&Vec<u8>> = families.iter().flat_map(|family| family.rows.keys()).collect();
        rows.retain(|row| scan.includes_row(row));
        let in_order: Vec<&Vec<u8>> =
            if scan.reversed { rows.into_iter().rev().collect() } else { rows.into_iter().collect() };

        let mut results = Vec::new();
        let mut rows_count = 0;
        for row in in_order {
            let stores = families.iter().filter_map(|family| Some((family.rows.get(row)?, &family.options)));
            let cells: Vec<Cell> = stores.flat_map(|(stored, options)| read(stored, options)).collect();
            if cells.is_empty() {
                continue;
            }
            if scan.limit.is_some_and(|limit| rows_count >= limit) {
                break;
            }
            rows_count += 1;
            results.extend(cells.chunks(scan.batch.unwrap_or(usize::MAX)).map(<[Cell]>::to_vec));
        }
        results
    }

    fn update_fates(&mut self) {
        for family in self.families.values_mut() {
            for row in family.rows.values_mut() {
                fate::mark(row, &family.options, self.now_ms);
            }
        }
    }
}

impl Family {
    fn store(&mut self, stored: Stored) {
        let row = self.rows.entry(stored.cell.row().to_vec()).or_default();
        let order = |other: &Stored| CellComparator::Default.compare(other.cell.get(), stored.cell.get());
        match row.binary_search_by(order) {
            Ok(at) => row[at] = stored,
            Err(at) => row.insert(at, stored),
        }
    }
}

/// Row and family.
type StoreName = (Vec<u8>, Vec<u8>);

/// The cells of an answer by row and family.
struct ByStore<'a>(BTreeMap<StoreName, Vec<&'a [u8]>>);

impl<'a> ByStore<'a> {
    fn new(found: &'a [Vec<Cell>]) -> ByStore<'a> {
        let mut stores: BTreeMap<_, Vec<&[u8]>> = BTreeMap::new();
        for cell in found.iter().flatten() {
            stores.entry((cell.row().to_vec(), cell.family().to_vec())).or_default().push(cell.bytes());
        }
        ByStore(stores)
    }

    fn of(&self, row: &[Stored], options: &FamilyOptions) -> &[&'a [u8]] {
        self.0.get(&(row[0].cell.row().to_vec(), options.name.clone())).map_or(&[], Vec::as_slice)
    }
}

fn same_bytes(expected: &[Vec<Cell>], found: &[Vec<Cell>]) -> bool {
    let bytes =
        |cells: &Vec<Cell>| -> Vec<bytes::Bytes> { cells.iter().map(|cell| cell.bytes().clone()).collect() };
    expected.iter().map(bytes).eq(found.iter().map(bytes))
}

/// Messages show no more of a value.
const VALUE_SHOWN_LEN: usize = 40;

fn show(results: &[Vec<Cell>]) -> String {
    let mut out = String::new();
    for (number, cells) in results.iter().enumerate() {
        for cell in cells {
            let (value, len) = (cell.value(), cell.value().len());
            let start = value[..len.min(VALUE_SHOWN_LEN)].escape_ascii();
            out.push_str(&format!("  {number}: {:?} = {start} ({len} bytes)\n", cell.get().key()));
        }
    }
    if out.is_empty() { "  nothing\n".to_string() } else { out }
}
