//! A read as a client asked for it, and what a cluster answered.

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_schema::TableName;
use prost::Message;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Kinds of reads, in the order of pages and tables.
pub(crate) const KINDS: [&str; 4] = ["get", "exists", "multi", "scan"];

/// A read of one client. Of a scan that went over several regions, what one region had of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Read {
    /// Also one that asks only whether there is anything (`existence_only`).
    Get(TableName, pb::Get),
    /// Gets of one call, perhaps of several tables. At least one.
    Multi(Vec<(TableName, pb::Get)>),
    /// From its start row up to its stop row, which is that of the region if the scan went up to its end.
    Scan(TableName, ScanRead),
}

/// See [`Read::Scan`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScanRead {
    pub(crate) scan: pb::Scan,
    /// Rows for each call, as the client asked for them.
    pub(crate) caching: Option<u32>,
    /// The client stopped after so many rows.
    pub(crate) limit: Option<u32>,
}

impl Read {
    /// Position in [`KINDS`].
    pub(crate) fn kind(&self) -> usize {
        match self {
            Read::Get(_, get) => usize::from(get.existence_only()),
            Read::Multi(_) => 2,
            Read::Scan(..) => 3,
        }
    }

    /// About what it has in memory beside the message that it came in.
    pub(crate) fn parts_bytes(&self) -> usize {
        match self {
            Read::Get(_, get) => get_bytes(get),
            Read::Multi(gets) => gets.iter().map(|(_, get)| get_bytes(get)).sum(),
            Read::Scan(_, read) => scan_bytes(&read.scan),
        }
    }

    /// The first table, which stands for all.
    pub(crate) fn table(&self) -> &TableName {
        match self {
            Read::Get(table, _) | Read::Scan(table, _) => table,
            Read::Multi(gets) => &gets.first().expect("a batch has at least one get").0,
        }
    }

    /// For people: what was asked for, in one line.
    pub(crate) fn describe(&self) -> String {
        let row = |row: &Bytes| row.escape_ascii().to_string();
        match self {
            Read::Get(table, get) => format!("{} {table} '{}'", KINDS[self.kind()], row(&get.row)),
            Read::Multi(gets) => {
                let (table, first) = &gets[0];
                format!("multi of {} gets, the first {table} '{}'", gets.len(), row(&first.row))
            }
            Read::Scan(table, read) => {
                let bound = |bound: &Option<Bytes>| row(bound.as_ref().unwrap_or(&Bytes::new()));
                let (start, stop) = (bound(&read.scan.start_row), bound(&read.scan.stop_row));
                let way = if read.scan.reversed() { " reversed" } else { "" };
                let limit = read.limit.map(|limit| format!(", {limit} rows")).unwrap_or_default();
                format!("scan{way} {table} from '{start}' to '{stop}'{limit}")
            }
        }
    }
}

/// See [`Read::parts_bytes`].
fn get_bytes(get: &pb::Get) -> usize {
    size_of::<(TableName, pb::Get)>() + lists_bytes(&get.column, &get.attribute) + get.encoded_len()
}

/// See [`Read::parts_bytes`].
pub(crate) fn scan_bytes(scan: &pb::Scan) -> usize {
    size_of::<Read>() + lists_bytes(&scan.column, &scan.attribute) + scan.encoded_len()
}

/// A short element of a list takes far more memory than its bytes in the message.
fn lists_bytes(columns: &[pb::Column], attributes: &[pb::NameBytesPair]) -> usize {
    let qualifiers: usize = columns.iter().map(|column| column.qualifier.len()).sum();
    size_of_val(columns) + qualifiers * size_of::<Bytes>() + size_of_val(attributes)
}

/// What came of a read at one cluster: a part for each get, or one for a scan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Cells(Cells),
    Exists(bool),
    /// The exception's simple class.
    Failed(String),
}

impl Answer {
    pub(crate) fn of_cells(cells: Vec<Cell>, kept_bytes_max: usize) -> Answer {
        Answer { parts: vec![Part::Cells(Cells::of(cells, kept_bytes_max))] }
    }

    /// Cells in all parts.
    pub(crate) fn cells_count(&self) -> u64 {
        self.parts.iter().map(|part| if let Part::Cells(cells) = part { cells.count } else { 0 }).sum()
    }

    /// With a checksum in the place of each value.
    pub(crate) fn with_hashed_values(self) -> Answer {
        let hashed = |part| match part {
            Part::Cells(cells) => Part::Cells(cells.with_hashed_values()),
            other => other,
        };
        Answer { parts: self.parts.into_iter().map(hashed).collect() }
    }
}

/// Cells in the order in which they came: a checksum of all, and the first of them.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    pub(crate) count: u64,
    pub(crate) kept: Vec<Cell>,
    kept_bytes: usize,
    kept_bytes_max: usize,
    sum: Xxh3Sum,
}

/// A checksum of cells and of their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Xxh3Sum(pub(crate) u128);

impl PartialEq for Cells {
    fn eq(&self, other: &Cells) -> bool {
        self.count == other.count && self.sum == other.sum
    }
}

impl Cells {
    /// Keeps cells of up to so many bytes.
    pub(crate) fn new(kept_bytes_max: usize) -> Cells {
        Cells { count: 0, kept: Vec::new(), kept_bytes: 0, kept_bytes_max, sum: Xxh3Sum::default() }
    }

    pub(crate) fn of(cells: Vec<Cell>, kept_bytes_max: usize) -> Cells {
        let mut all = Cells::new(kept_bytes_max);
        cells.into_iter().for_each(|cell| all.push(cell));
        all
    }

    /// Of a recording, which has only the first cells perhaps.
    pub(crate) fn recorded(count: u64, sum: Xxh3Sum, kept: Vec<Cell>) -> Cells {
        Cells { count, kept, kept_bytes: 0, kept_bytes_max: 0, sum }
    }

    /// Adds a cell of an answer. One that is kept is copied: it would keep the whole answer in memory.
    pub(crate) fn push_own(&mut self, cell: Cell) {
        match self.keeps(&cell) {
            true => self.push(Cell::trusted(Bytes::copy_from_slice(cell.bytes()), cell.seq())),
            false => self.push(cell),
        }
    }

    /// Keeps no more cells.
    pub(crate) fn stop_keeping(&mut self) {
        self.kept_bytes_max = self.kept_bytes;
    }

    /// Whether this cell is kept if it comes next.
    pub(crate) fn keeps(&self, cell: &Cell) -> bool {
        self.is_whole() && self.kept_bytes + kept_bytes(cell) <= self.kept_bytes_max
    }

    pub(crate) fn push(&mut self, cell: Cell) {
        let is_kept = self.keeps(&cell);
        let mut sum = Xxh3::new();
        sum.update(&self.sum.0.to_le_bytes());
        let get = cell.get();
        sum.update(&(get.key_len() as u64).to_le_bytes());
        sum.update(&cell.bytes()[halcyon_cell::KEY_OFFSET..halcyon_cell::KEY_OFFSET + get.key_len()]);
        sum.update(&xxh3_128(cell.value()).to_le_bytes());
        self.sum = Xxh3Sum(sum.digest128());
        self.count += 1;
        if is_kept {
            self.kept_bytes += kept_bytes(&cell);
            self.kept.push(cell);
        }
    }

    /// Whether all cells are kept.
    pub(crate) fn is_whole(&self) -> bool {
        self.kept.len() as u64 == self.count
    }

    pub(crate) fn sum(&self) -> Xxh3Sum {
        self.sum
    }

    /// The checksum stays the same: it has checksums of values, not values.
    pub(crate) fn with_hashed_values(mut self) -> Cells {
        for cell in &mut self.kept {
            let value = xxh3_128(cell.value()).to_be_bytes();
            let (row, family, qualifier) = (cell.row(), cell.family(), cell.qualifier());
            *cell = Cell::build(
                row,
                family,
                qualifier,
                cell.timestamp(),
                cell.cell_type(),
                &value,
                b"",
                cell.seq(),
            );
        }
        self
    }
}

/// What a cell that is kept takes.
pub(crate) fn kept_bytes(cell: &Cell) -> usize {
    cell.bytes().len() + size_of::<Cell>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(row: &str, value: &str) -> Cell {
        Cell::put(row.as_bytes(), b"f", b"q", 1, value.as_bytes())
    }

    #[test]
    fn a_sum_has_all_cells_and_their_order() {
        let of = |cells: &[Cell], kept| Cells::of(cells.to_vec(), kept);
        let (a, b) = (cell("a", "1"), cell("b", "2"));
        let both = of(&[a.clone(), b.clone()], 1 << 20);
        assert!(both.is_whole() && both == of(&[a.clone(), b.clone()], 0));
        for other in [vec![b.clone(), a.clone()], vec![a.clone()], vec![a.clone(), cell("b", "3")], vec![]] {
            assert_ne!(both, of(&other, 1 << 20));
        }
        let first = of(&[a.clone(), b], a.bytes().len() + size_of::<Cell>());
        assert_eq!((first.kept.len(), first.count, first.is_whole()), (1, 2, false));
    }

    #[test]
    fn hashed_values_keep_the_sum() {
        let cells = Cells::of(vec![cell("a", "secret")], 1 << 20);
        let hashed = cells.clone().with_hashed_values();
        assert_eq!(cells, hashed);
        assert_eq!(hashed.kept[0].value().len(), 16);
        assert!(!hashed.kept[0].bytes().windows(6).any(|window| window == b"secret"));
    }
}
