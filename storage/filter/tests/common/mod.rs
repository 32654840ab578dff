//! A scan over rows in memory, as HBase's region scanner and store scanners run it, that writes down every
//! question's answer. `testing/compat/golden/FilterGolden.java` runs the same scan over HBase's filters.

#![allow(dead_code)] // each test file uses its part

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use halcyon_cell::{Cell, CellComparator, Error, Key, Result};
use halcyon_filter::{Filter, ReturnCode, RowOutcome, finish_row, parse_filter};
use halcyon_proto::pb;
use prost::Message;

/// Cells by row and family, in their order.
pub type Table = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<Cell>>>;

pub fn table(cells: impl IntoIterator<Item = Cell>) -> Table {
    let mut table = Table::new();
    for cell in cells {
        let row = table.entry(cell.row().to_vec()).or_default();
        row.entry(cell.family().to_vec()).or_default().push(cell);
    }
    for cells in table.values_mut().flat_map(|row| row.values_mut()) {
        cells.sort_by(|left, right| CellComparator::Default.compare(left.get(), right.get()));
    }
    table
}

pub fn hex(text: &str) -> Bytes {
    if text == "-" {
        return Bytes::new();
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// A filter in a request: the class without its package, and its message.
pub fn message(class: &str, message: &impl Message) -> pb::Filter {
    pb::Filter {
        name: format!("org.apache.hadoop.hbase.filter.{class}"),
        serialized_filter: Some(message.encode_to_vec().into()),
    }
}

pub fn comparator(class: &str, message: &impl Message) -> pb::Comparator {
    pb::Comparator {
        name: format!("org.apache.hadoop.hbase.filter.{class}"),
        serialized_comparator: Some(message.encode_to_vec().into()),
    }
}

pub fn binary(value: &str) -> pb::Comparator {
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    comparator("BinaryComparator", &pb::BinaryComparator { comparable: pb::ByteArrayComparable { value } })
}

pub fn list(operator: pb::filter_list::Operator, filters: Vec<pb::Filter>) -> pb::Filter {
    message("FilterList", &pb::FilterList { operator: operator as i32, filters })
}

/// What the scan of a fresh filter writes down.
pub fn scan_lines(filter: &pb::Filter, reversed: bool, table: &Table) -> Vec<String> {
    let mut filter = parse_filter(filter).unwrap();
    let mut scan = Scan { table, reversed, from: HashMap::new(), closed: HashSet::new(), lines: Vec::new() };
    if reversed {
        filter.set_reversed(true);
    }
    if let Err(Failed { row, error }) = scan.run(&mut *filter) {
        let _ = error;
        scan.lines.push(format!("{} error", row.escape_ascii()));
    }
    scan.lines
}

struct Failed {
    row: Vec<u8>,
    error: Error,
}

struct Scan<'a> {
    table: &'a Table,
    reversed: bool,
    /// The row that a hint sent a family's store to.
    from: HashMap<Vec<u8>, Vec<u8>>,
    /// Stores that the filter ended in the middle of a row.
    closed: HashSet<Vec<u8>>,
    lines: Vec<String>,
}

impl Scan<'_> {
    fn run(&mut self, filter: &mut dyn Filter) -> std::result::Result<(), Failed> {
        let mut rows: Vec<&Vec<u8>> = self.table.keys().collect();
        if self.reversed {
            rows.reverse();
        }
        for row in rows {
            match self.run_row(filter, row) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => return Err(Failed { row: row.clone(), error }),
            }
        }
        self.lines.push("end of rows".to_string());
        Ok(())
    }

    /// Whether the scan goes on.
    fn run_row(&mut self, filter: &mut dyn Filter, row: &[u8]) -> Result<bool> {
        let stores: Vec<Vec<u8>> =
            self.table[row].keys().filter(|family| self.stands_on(row, family)).cloned().collect();
        let Some(first_store) = stores.first() else { return Ok(true) };
        if filter.filter_all_remaining()? {
            self.lines.push("end".to_string());
            return Ok(false);
        }
        if filter.filter_row_key(self.table[row][first_store][0].get())? {
            self.lines.push(format!("{} dropped by key", row.escape_ascii()));
            filter.reset()?;
            return Ok(true);
        }
        let mut line = row.escape_ascii().to_string();
        let mut kept = Vec::new();
        for family in &stores {
            line.push_str(&format!(" {}=", family.escape_ascii()));
            self.run_store(filter, row, family, &mut kept, &mut line)?;
        }
        let empty = kept.is_empty();
        let outcome = if empty && !filter.has_filter_row() {
            RowOutcome::NotCalled
        } else {
            finish_row(filter, &mut kept)?
        };
        // A row that the filter emptied itself still comes out, as an empty one.
        if empty || outcome == RowOutcome::Exclude {
            line.push_str(" dropped");
        } else {
            line.push_str(" kept");
            for cell in &kept {
                line.push_str(&format!(" {}", self.place(cell)));
            }
        }
        self.lines.push(line);
        filter.reset()?;
        Ok(true)
    }

    fn stands_on(&self, row: &[u8], family: &[u8]) -> bool {
        let reached = match self.from.get(family) {
            None => true,
            Some(from) if self.reversed => row <= &from[..],
            Some(from) => row >= &from[..],
        };
        reached && !self.closed.contains(family)
    }

    fn run_store(
        &mut self,
        filter: &mut dyn Filter,
        row: &[u8],
        family: &[u8],
        kept: &mut Vec<Cell>,
        line: &mut String,
    ) -> Result<()> {
        let cells = &self.table[row][family];
        let mut at = 0;
        while at < cells.len() {
            let cell = &cells[at];
            if filter.filter_all_remaining()? {
                line.push('D');
                self.closed.insert(family.to_vec());
                break;
            }
            let code = filter.filter_cell(cell.get())?;
            line.push(letter(code));
            if code.is_include() {
                kept.push(if filter.transforms() {
                    filter.transform_cell(cell.clone())?
                } else {
                    cell.clone()
                });
            }
            match code {
                ReturnCode::Include | ReturnCode::Skip => at += 1,
                ReturnCode::NextRow | ReturnCode::IncludeAndSeekNextRow => break,
                ReturnCode::NextCol | ReturnCode::IncludeAndNextCol => {
                    while at < cells.len() && cells[at].qualifier() == cell.qualifier() {
                        at += 1;
                    }
                }
                ReturnCode::SeekNextUsingHint => {
                    at += 1;
                    let Some(hint) = filter.next_cell_hint(cell.get())? else {
                        line.push_str("[-]");
                        continue;
                    };
                    line.push_str(&format!("[{}]", show(&hint)));
                    let order = hint.get().row().cmp(row);
                    if if self.reversed { order.is_lt() } else { order.is_gt() } {
                        self.from.insert(family.to_vec(), hint.get().row().to_vec());
                        break;
                    }
                    let before = |cell: &Cell| {
                        CellComparator::Default.compare_keys(cell.get().key(), hint.get()).is_lt()
                    };
                    while order.is_eq() && at < cells.len() && before(&cells[at]) {
                        at += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// The number of a cell in its row, and its value (nothing or a number) if the filter changed it.
    fn place(&self, cell: &Cell) -> String {
        let mut row = self.table[cell.row()].values().flatten().enumerate();
        let (at, original) = row.find(|(_, one)| one.get().key() == cell.get().key()).unwrap();
        if original.value() == cell.value() {
            return at.to_string();
        }
        match cell.value().try_into() {
            Ok(number) => format!("{at}={}", u32::from_be_bytes(number)),
            Err(_) => format!("{at}={}", cell.value().escape_ascii()),
        }
    }
}

fn letter(code: ReturnCode) -> char {
    match code {
        ReturnCode::Include => 'I',
        ReturnCode::IncludeAndNextCol => 'C',
        ReturnCode::IncludeAndSeekNextRow => 'R',
        ReturnCode::Skip => 's',
        ReturnCode::NextCol => 'c',
        ReturnCode::NextRow => 'r',
        ReturnCode::SeekNextUsingHint => 'h',
    }
}

fn show(hint: &Key) -> String {
    let key = hint.get();
    let timestamp = match key.timestamp() {
        i64::MAX => "max".to_string(),
        i64::MIN => "min".to_string(),
        timestamp => timestamp.to_string(),
    };
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let (row, family, qualifier) = (text(key.row()), text(key.family()), text(key.qualifier()));
    format!("{row}/{family}:{qualifier}/{timestamp}/{}", key.type_code())
}
