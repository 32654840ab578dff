use bytes::Bytes;
use halcyon_cell::{Cell, SharedCells};
use halcyon_proto::pb;
use halcyon_rpc::{CellBlock, Codec, SHARED_CELL_BYTES_MIN};

/// Room made ahead for copied cells; beyond it large cells are likely, and those are not copied.
const COPIED_BYTES_MAX: usize = 1 << 20;

/// A result whose cells go into the cell block (`ProtobufUtil.toResultNoData`).
pub(crate) fn no_cells_result(count: usize) -> pb::Result {
    let stale = if count == 0 { None } else { Some(false) };
    pb::Result { associated_cell_count: Some(count as i32), stale, ..Default::default() }
}

/// A result with its cells in the message, without their tags as HBase does it.
pub(crate) fn inline_result(cells: &[Cell], partial: bool) -> pb::Result {
    if cells.is_empty() {
        return no_cells_result(0);
    }
    let cell = cells.iter().map(inline_cell).collect();
    pb::Result { cell, stale: Some(false), partial: Some(partial), ..Default::default() }
}

/// The answer to a Get that only asked whether there is something.
pub(crate) fn exists_result(exists: bool) -> pb::Result {
    pb::Result { associated_cell_count: Some(0), exists: Some(exists), ..Default::default() }
}

/// Says of the result of a copy for reads that it may be old.
pub(crate) fn stale_result(result: pb::Result, is_secondary: bool) -> pb::Result {
    if is_secondary { pb::Result { stale: Some(true), ..result } } else { result }
}

/// The cells as the block of an answer; none, no block.
pub(crate) fn cell_block(codec: Codec, cells: &[Cell]) -> Option<CellBlock> {
    if cells.is_empty() {
        return None;
    }
    let size_bytes: usize = cells.iter().map(|cell| 4 + cell.bytes().len()).sum();
    let mut block = CellBlock::with_capacity(codec, size_bytes.min(COPIED_BYTES_MAX));
    cells.iter().for_each(|cell| block.push(cell));
    Some(block)
}

/// As [`cell_block`], for the cells of a scan. Small ones are copied from their blocks, without counting references.
pub(crate) fn shared_cell_block(codec: Codec, cells: &SharedCells) -> Option<CellBlock> {
    if cells.is_empty() {
        return None;
    }
    let size_bytes: usize = cells.iter().map(|cell| 4 + cell.bytes().len()).sum();
    let mut block = CellBlock::with_capacity(codec, size_bytes.min(COPIED_BYTES_MAX));
    for (at, cell) in cells.iter().enumerate() {
        if cell.bytes().len() < SHARED_CELL_BYTES_MIN {
            block.push_copied(cell)
        } else {
            block.push(&cells.cell(at))
        }
    }
    Some(block)
}

/// What `cells` weigh against a limit of an answer.
pub(crate) fn cells_size_bytes(cells: &[Cell]) -> u64 {
    cells.iter().map(|cell| cell.bytes().len() as u64).sum()
}

fn inline_cell(cell: &Cell) -> pb::Cell {
    let part = |part: &[u8]| Some(slice_of(cell, part));
    let view = cell.get();
    pb::Cell {
        row: part(view.row()),
        family: part(view.family()),
        qualifier: part(view.qualifier()),
        timestamp: Some(view.timestamp() as u64),
        cell_type: Some(i32::from(view.type_code())),
        value: part(view.value()),
        ..Default::default()
    }
}

fn slice_of(cell: &Cell, part: &[u8]) -> Bytes {
    if part.is_empty() { Bytes::new() } else { cell.bytes().slice_ref(part) }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    /// Answers of a 2.6.4 server: an empty row, an existence check, and one inline cell's last fields.
    #[test]
    fn golden_forms() {
        assert_eq!(no_cells_result(0).encode_to_vec(), [0x10, 0]);
        assert_eq!(no_cells_result(1).encode_to_vec(), [0x10, 1, 0x20, 0]);
        assert_eq!(exists_result(true).encode_to_vec(), [0x10, 0, 0x18, 1]);
        assert_eq!(stale_result(no_cells_result(0), true).encode_to_vec(), [0x10, 0, 0x20, 1]);
        assert_eq!(stale_result(no_cells_result(1), false).encode_to_vec(), [0x10, 1, 0x20, 0]);
        let cells = [Cell::put(b"r", b"f", b"q", 1, b"v")];
        let bytes = inline_result(&cells, false).encode_to_vec();
        assert_eq!(bytes[bytes.len() - 4..], [0x20, 0, 0x28, 0]);
        let decoded = pb::Result::decode(&bytes[..]).unwrap();
        assert_eq!(decoded.cell[0].row.as_deref(), Some(&b"r"[..]));
        assert_eq!(decoded.cell[0].cell_type, Some(4));
    }

    #[test]
    fn a_scans_block_is_that_of_its_cells_one_by_one() {
        let tags = [0, 2, 8, 1];
        let of = |row: &[u8], len: usize| {
            Cell::build(row, b"f", b"q", 1, halcyon_cell::CellType::Put, &vec![7; len], &tags, 0)
        };
        let cells = [of(b"a", 10), of(b"b", 10_000), of(b"c", 0), of(b"d", SHARED_CELL_BYTES_MIN)];
        let mut shared = SharedCells::new();
        for cell in &cells {
            shared.push_slice(cell.bytes(), 0..cell.bytes().len(), 0);
        }
        for codec in [Codec::KeyValue, Codec::KeyValueWithTags, Codec::Message] {
            let (one, other) = (cell_block(codec, &cells), shared_cell_block(codec, &shared));
            let (one, other) = (one.expect("cells"), other.expect("cells"));
            assert_eq!((one.len(), one.shared_len()), (other.len(), other.shared_len()));
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
        }
        assert!(shared_cell_block(Codec::KeyValue, &SharedCells::new()).is_none());
    }
}
