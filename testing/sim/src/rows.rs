//! Rows of a system table, made of all cells that were written.

use std::collections::BTreeMap;

use bytes::Bytes;
use halcyon_cell::{Cell, CellComparator, CellType};

/// Rows, states and servers, for people.
pub(crate) fn told(cells: &[Cell]) -> String {
    let text = |cell: &Cell| match cell.qualifier() {
        b"state" | b"sn" => {
            Some(format!("{} {}", cell.row().escape_ascii(), String::from_utf8_lossy(cell.value())))
        }
        _ => None,
    };
    cells.iter().filter_map(text).collect::<Vec<_>>().join(", ")
}

/// Row, family and qualifier.
type Column = (Vec<u8>, Vec<u8>, Vec<u8>);

/// Cells one after the other, each behind its length.
pub(crate) fn encode(cells: &[Cell]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for cell in cells {
        bytes.extend_from_slice(&(cell.bytes().len() as u32).to_be_bytes());
        bytes.extend_from_slice(cell.bytes());
    }
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> Vec<Cell> {
    let (bytes, mut cells, mut at) = (Bytes::copy_from_slice(bytes), Vec::new(), 0);
    while at < bytes.len() {
        let len = u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
        cells.push(Cell::parse(bytes.slice(at + 4..at + 4 + len), 0).expect("written by `encode`"));
        at += 4 + len;
    }
    cells
}

/// What a scan shows of cells in the order of their writes: of each column the newest cell that no delete hides.
pub(crate) fn rows(cells: impl IntoIterator<Item = Cell>, order: CellComparator) -> Vec<Vec<Cell>> {
    let mut columns: BTreeMap<Column, Cell> = BTreeMap::new();
    let mut deletes: Vec<Cell> = Vec::new();
    for cell in cells {
        if cell.cell_type().is_delete() {
            deletes.push(cell);
            continue;
        }
        let column = (cell.row().to_vec(), cell.family().to_vec(), cell.qualifier().to_vec());
        match columns.get(&column) {
            Some(known) if known.timestamp() > cell.timestamp() => {}
            _ => drop(columns.insert(column, cell)),
        }
    }
    let mut shown: Vec<Cell> =
        columns.into_values().filter(|cell| !deletes.iter().any(|delete| hides(delete, cell))).collect();
    shown.sort_by(|left, right| order.compare(left.get(), right.get()));
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for cell in shown {
        match rows.last_mut().filter(|row| row[0].row() == cell.row()) {
            Some(row) => row.push(cell),
            None => rows.push(vec![cell]),
        }
    }
    rows
}

fn hides(delete: &Cell, cell: &Cell) -> bool {
    delete.row() == cell.row()
        && delete.family() == cell.family()
        && delete.timestamp() >= cell.timestamp()
        && (delete.cell_type() == CellType::DeleteFamily || delete.qualifier() == cell.qualifier())
}
