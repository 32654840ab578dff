//! A block as it lies in the cache file. Drawn in `FORMAT.md`.

use bytes::Bytes;
use halcyon_env::invariant;

use crate::{Block, BlockKind, BlockOffset};

const MAGIC: &[u8; 4] = b"HCBK";
/// Magic and checksum, which the checksum does not cover.
const UNGUARDED_LEN: usize = 8;
pub(super) const HEADER_LEN: usize = 40;
/// Magic and checksum, tag, offset, zeros, and the lengths of payload, marks and notes.
const _: () = assert!(HEADER_LEN == UNGUARDED_LEN + 8 + 8 + 4 + 3 * 4);

/// Bytes that the block takes in the file.
pub(super) fn len_of(block: &Block) -> usize {
    HEADER_LEN + block.bytes().len() + size_of_val(block.marks()) + block.notes().len()
}

/// Whether the tier takes blocks of this kind: those that are read for their cells. Indexes and bloom filters stay in
/// memory.
pub(super) fn is_stored(kind: BlockKind) -> bool {
    kind == BlockKind::Data
}

/// Appends the record of a data block. `tag` is the file's, `offset` the block's place in it.
pub(super) fn encode(tag: u64, offset: BlockOffset, block: &Block, out: &mut Vec<u8>) {
    assert!(is_stored(block.kind()), "a record is read as a data block, whatever it was: {:?}", block.kind());
    let start = out.len();
    let count = |len: usize| u32::try_from(len).expect("a block is shorter than 4 GiB").to_be_bytes();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&tag.to_be_bytes());
    out.extend_from_slice(&offset.get().to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&count(block.bytes().len()));
    out.extend_from_slice(&count(block.marks().len()));
    out.extend_from_slice(&count(block.notes().len()));
    out.extend_from_slice(block.bytes());
    block.marks().iter().for_each(|mark| out.extend_from_slice(&mark.to_be_bytes()));
    out.extend_from_slice(block.notes());
    let sum = crc32c::crc32c(&out[start + UNGUARDED_LEN..]);
    out[start + 4..start + UNGUARDED_LEN].copy_from_slice(&sum.to_be_bytes());
    invariant!(
        decode(tag, offset, out[start..].to_vec()).is_some_and(|read| read.bytes() == block.bytes()
            && (read.marks(), read.notes()) == (block.marks(), block.notes())),
        "a record is read back as the block that was written"
    );
}

/// The block of a record, if these bytes are the undamaged record of that block.
pub(super) fn decode(tag: u64, offset: BlockOffset, record: Vec<u8>) -> Option<Block> {
    let header = record.first_chunk::<HEADER_LEN>()?;
    let long = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let int = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
    if !header.starts_with(MAGIC) || long(8) != tag || long(16) != offset.get() {
        return None;
    }
    let (payload_len, marks_count, notes_len) = (int(28) as usize, int(32) as usize, int(36) as usize);
    let marks_start = HEADER_LEN.checked_add(payload_len)?;
    let notes_start = marks_start.checked_add(marks_count.checked_mul(8)?)?;
    if notes_start.checked_add(notes_len)? != record.len()
        || int(4) != crc32c::crc32c(&record[UNGUARDED_LEN..])
    {
        return None;
    }
    let marks = record[marks_start..notes_start].chunks_exact(8);
    let marks = marks.map(|mark| u64::from_be_bytes(mark.try_into().expect("eight bytes"))).collect();
    let notes = record[notes_start..].into();
    let held_bytes = record.capacity();
    let payload = Bytes::from(record).slice(HEADER_LEN..marks_start);
    Some(Block::new(BlockKind::Data, payload, marks, held_bytes).with_notes(notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block {
        let payload = Bytes::from_static(b"the payload of a block");
        Block::new(BlockKind::Data, payload, Box::new([1, u64::MAX, 3]), 22).with_notes(Box::new(*b"notes"))
    }

    #[test]
    fn comes_back_as_it_was() {
        let mut record = Vec::new();
        encode(7, BlockOffset::new(8), &block(), &mut record);
        assert_eq!(record.len(), len_of(&block()));
        let held = record.capacity();
        let read = decode(7, BlockOffset::new(8), record).unwrap();
        assert_eq!(
            (read.bytes(), read.marks(), read.notes()),
            (block().bytes(), block().marks(), block().notes())
        );
        assert_eq!((read.kind(), read.held_bytes()), (BlockKind::Data, held));
    }

    #[test]
    fn another_blocks_record_and_every_damaged_one_are_refused() {
        let mut record = Vec::new();
        encode(7, BlockOffset::new(8), &block(), &mut record);
        assert!(
            decode(6, BlockOffset::new(8), record.clone()).is_none()
                && decode(7, BlockOffset::new(9), record.clone()).is_none()
        );
        for at in 0..record.len() {
            assert!(decode(7, BlockOffset::new(8), record[..at].to_vec()).is_none(), "cut at {at}");
            for bit in 0..8 {
                let mut bad = record.clone();
                bad[at] ^= 1 << bit;
                assert!(decode(7, BlockOffset::new(8), bad).is_none(), "bit {bit} of byte {at}");
            }
        }
        assert!(decode(7, BlockOffset::new(8), [&record[..], &[0]].concat()).is_none());
    }
}
