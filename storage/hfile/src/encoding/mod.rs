//! Encoded data blocks: cells as what differs from the cell before, or with an index of the rows.
//!
//! ```text
//! int16 encoding | int32 size of the plain cells | cell*                       PREFIX 2, DIFF 3, FAST_DIFF 4
//! int16 encoding | plain cells | int32 rows | rows * int32 offset | int32 size   ROW_INDEX_V1 7
//!
//! PREFIX      cInt key length | cInt value length | cInt common | rest of key | value
//! DIFF        family once at the head; flags | [key length] | [value length] | cInt common
//!             | rest of row | rest of qualifier | timestamp | [type] | value
//! FAST_DIFF   flags | [key length] | [value length] | cInt common | rest of row | rest of qualifier
//!             | rest of timestamp | [type] | [value]          (the first cell: whole key, value)
//! each cell   then: [ cInt tags length | tags ] | [ VLong sequence id ]
//! ```
//!
//! *common* counts the leading bytes of the key that are those of the cell before. Tags are plain or, where file
//! info says so, go through a dictionary that starts empty in each block (`tags.rs`). Checked against HBase's
//! `PrefixKeyDeltaEncoder`, `DiffKeyDeltaEncoder`, `FastDiffDeltaEncoder`, `RowIndexCodecV1` and
//! `TagCompressionContext`.

mod decode;
mod encode;
mod row_index;
mod runs;
mod tags;

use halcyon_schema::BlockEncoding;

pub(crate) use encode::{BlockEncoder, EncoderOptions};
pub(crate) use row_index::RowIndex;
pub(crate) use runs::{Runs, check as check_runs};

/// Whether cells are stored as what differs from the cell before.
pub(crate) fn stores_differences(encoding: BlockEncoding) -> bool {
    matches!(encoding, BlockEncoding::Prefix | BlockEncoding::Diff | BlockEncoding::FastDiff)
}

/// The encoding of an encoded block's payload; `None` if it is too short or of an encoding that does not exist.
pub(crate) fn encoding_of(payload: &[u8]) -> Option<BlockEncoding> {
    let id = payload.first_chunk::<2>().map(|id| u16::from_be_bytes(*id))?;
    BlockEncoding::from_id(id).filter(|&encoding| encoding != BlockEncoding::None)
}

/// Bytes of timestamp and type at a key's end.
const KEY_TAIL: usize = 9;
/// Decoders refuse shorter keys, so that they may take a row's and a family's length and the tail off any other.
const _: () = assert!(KEY_TAIL + 2 + 1 == halcyon_cell::FIXED_KEY_LEN);

/// Flags of a cell in DIFF. A bit of the first group says that a field is left out.
mod diff {
    pub(super) const SAME_KEY_LEN: u8 = 0x01;
    pub(super) const SAME_VALUE_LEN: u8 = 0x02;
    pub(super) const SAME_TYPE: u8 = 0x04;
    /// The timestamp field is the last timestamp less this one, not the timestamp.
    pub(super) const IS_DIFFERENCE: u8 = 0x08;
    /// Three bits: bytes of the timestamp field, less one.
    pub(super) const TIMESTAMP_LEN_SHIFT: u8 = 4;
    /// The timestamp field is to be negated.
    pub(super) const NEGATIVE: u8 = 0x80;
}

/// Flags of a cell in FAST_DIFF.
mod fast_diff {
    /// Leading bytes of the timestamp that are those of the last one, at most 7.
    pub(super) const TIMESTAMP_COMMON_MASK: u8 = 0x07;
    pub(super) const SAME_KEY_LEN: u8 = 0x08;
    pub(super) const SAME_VALUE_LEN: u8 = 0x10;
    pub(super) const SAME_TYPE: u8 = 0x20;
    pub(super) const SAME_VALUE: u8 = 0x40;
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use halcyon_cell::{CellComparator, Result};

    use super::*;
    use crate::data_block::{self, CellLayout};
    use crate::format::hex;

    const BOTH: CellLayout = CellLayout { tags: true, mvcc: true, seq: None };

    /// All cells of a block, checked as a reader does and then put together from its runs.
    pub(crate) fn decode(payload: &[u8], layout: CellLayout, compressed_tags: bool) -> Result<Vec<u8>> {
        if encoding_of(payload) == Some(BlockEncoding::RowIndexV1) {
            let mut rows = RowIndex::parse(payload)?;
            let cells = &payload[rows.cells()];
            data_block::check(cells, layout, CellComparator::Default, |start| rows.see(start))?;
            rows.finish()?;
            return Ok(cells.to_vec());
        }
        let index = check_runs(payload, layout, compressed_tags)?;
        let runs = Runs::of(&index.marks, &index.notes);
        let run = |at| -> Result<Bytes> { runs.cells(payload, at, layout, compressed_tags) };
        // Backwards, so that no run can rely on another having been read.
        let mut cells = (0..runs.count()).rev().map(run).collect::<Result<Vec<Bytes>>>()?;
        cells.reverse();
        Ok(cells.concat())
    }

    /// Three cells of HBase's without encoding.
    pub(super) fn plain() -> Vec<u8> {
        hex("00000011 00000002 0002 7231 01 66 7131 00000000000003e8 04 7631 0000 05
             00000011 00000002 0002 7231 01 66 7132 00000000000003e9 04 7631 000b 0009080000 00000000ea60 06
             0000000f 00000000 0002 7232 01 66 0000000000000384 0e 0000 8e012c")
    }

    /// The same in blocks that HBase wrote.
    pub(super) fn golden() -> [Vec<u8>; 4] {
        let row_index = [hex("0007"), plain(), hex("00000002 00000000 00000047 00000063")].concat();
        [
            hex("0002 00000063 11 02 00 0002 7231 01 66 7131 00000000000003e8 04 7631 00 05
                 0a 02 07 32 00000000000003e9 04 7631 0b 0009080000 00000000ea60 06
                 0c 00 03 32 01 66 0000000000000384 0e 00 8e012c"),
            hex("0003 00000063 01 66 10 11 02 00 0002 7231 7131 e803 04 7631 00 05
                 8f 07 32 01 7631 0b 0009080000 00000000ea60 06
                 08 0f 00 03 32 65 0e 00 8e012c"),
            hex("0004 00000063 00 11 02 00 0002 7231 01 66 7131 00000000000003e8 04 7631 00 05
                 7f 07 32 e9 0b 0009080000 00000000ea60 06
                 07 0f 00 03 32 84 0e 00 8e012c"),
            row_index,
        ]
    }

    #[test]
    fn golden_blocks_of_hbase() {
        for block in golden() {
            assert_eq!(decode(&block, BOTH, false).unwrap(), plain(), "encoding {}", block[1]);
        }
    }

    #[test]
    fn truncated_and_damaged_blocks_never_panic() {
        for block in golden() {
            for at in 0..block.len() {
                for compressed_tags in [false, true] {
                    assert!(decode(&block[..at], BOTH, compressed_tags).is_err());
                    for bit in 0..8 {
                        let mut bad = block.clone();
                        bad[at] ^= 1 << bit;
                        let _ = decode(&bad, BOTH, compressed_tags);
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_index_that_does_not_fit_its_cells_is_refused() {
        let [.., block] = golden();
        for (at, what) in
            [(103, "row count"), (107, "row offset"), (111, "row offset"), (115, "size of cells")]
        {
            let mut bad = block.clone();
            let at = block.len() - 117 + at;
            bad[at] += 1;
            let error = decode(&bad, BOTH, false).unwrap_err();
            assert!(error.message().contains(what), "{at}: {error:?}");
        }
    }
}
