use bytes::{BufMut, Bytes, BytesMut};
use halcyon_cell::{Cell, CellRef};

use crate::{Codec, encode_cell};

/// Cells from here on are shared with the answer instead of copied into it.
///
/// Below it, copying is cheaper than one more piece for the socket's vectored write.
pub const SHARED_CELL_BYTES_MIN: usize = 4 << 10;

/// The cells of an answer in the form of the connection's codec.
///
/// Small cells are copied one after the other; large ones are kept by reference until the socket has taken
/// them, so that a value of a megabyte is never copied on its way out. Not thread-safe; made and filled by
/// one call.
#[derive(Debug)]
pub struct CellBlock {
    codec: Codec,
    /// Pieces before `tail`.
    segments: Vec<Bytes>,
    tail: BytesMut,
    len: usize,
    /// Of `len`: bytes of cells that were not copied, and of cells that were.
    shared_len: usize,
    copied_len: usize,
    cells_count: usize,
}

impl CellBlock {
    pub fn new(codec: Codec) -> CellBlock {
        CellBlock::with_capacity(codec, 0)
    }

    /// With room for `bytes` of copied cells.
    pub fn with_capacity(codec: Codec, bytes: usize) -> CellBlock {
        let tail = BytesMut::with_capacity(bytes);
        CellBlock { codec, segments: Vec::new(), tail, len: 0, shared_len: 0, copied_len: 0, cells_count: 0 }
    }

    /// Appends a cell; a large one is shared.
    pub fn push(&mut self, cell: &Cell) {
        if cell.bytes().len() < SHARED_CELL_BYTES_MIN {
            return self.push_copied(cell.get());
        }
        let shared = match self.codec {
            Codec::KeyValue => cell.bytes().slice(..cell.get().bytes_without_tags().len()),
            Codec::KeyValueWithTags => cell.bytes().clone(),
            Codec::Cell | Codec::CellWithTags | Codec::Message => return self.push_copied(cell.get()),
        };
        if shared.len() < SHARED_CELL_BYTES_MIN {
            return self.push_copied(cell.get()); // most of it are tags
        }
        self.tail.put_u32(u32::try_from(shared.len()).expect("a cell is shorter than 4 GiB"));
        self.len += 4 + shared.len();
        self.shared_len += shared.len();
        self.cells_count += 1;
        self.segments.push(self.tail.split().freeze());
        self.segments.push(shared);
    }

    /// Appends a borrowed cell, copying it whatever its size.
    pub fn push_copied(&mut self, cell: CellRef<'_>) {
        let before = self.tail.len();
        encode_cell(self.codec, cell, &mut self.tail);
        self.len += self.tail.len() - before;
        self.copied_len += self.tail.len() - before;
        self.cells_count += 1;
    }

    /// Bytes of all cells, before any compression.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the cells that are shared with whoever keeps them, without their lengths.
    pub fn shared_len(&self) -> usize {
        self.shared_len
    }

    /// Bytes of the cells that were copied, with their lengths.
    pub fn copied_len(&self) -> usize {
        self.copied_len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn cells_count(&self) -> usize {
        self.cells_count
    }

    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The pieces in order; none of them is empty.
    pub fn into_segments(mut self) -> Vec<Bytes> {
        if !self.tail.is_empty() {
            self.segments.push(self.tail.freeze());
        }
        self.segments
    }

    /// Hands each piece to `take`; as [`CellBlock::into_segments`] without the list.
    pub(crate) fn for_each_segment(self, mut take: impl FnMut(Bytes)) {
        for segment in self.segments {
            take(segment);
        }
        if !self.tail.is_empty() {
            take(self.tail.freeze());
        }
    }

    /// All pieces as one.
    pub fn into_bytes(self) -> Bytes {
        if self.segments.is_empty() {
            return self.tail.freeze();
        }
        let mut out = BytesMut::with_capacity(self.len);
        self.for_each_segment(|segment| out.put_slice(&segment));
        out.freeze()
    }
}
