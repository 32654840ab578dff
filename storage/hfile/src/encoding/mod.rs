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
mod tags;

pub(crate) use decode::decode;
pub(crate) use encode::{BlockEncoder, EncoderOptions};

/// Bytes of timestamp and type at a key's end.
const KEY_TAIL: usize = 9;

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
mod tests {
    use crate::format::hex;

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
}
