use bytes::Bytes;

/// What a block holds; the names are those of HBase's `BlockType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockKind {
    Data,
    LeafIndex,
    IntermediateIndex,
    RootIndex,
    BloomChunk,
    Meta,
    FileInfo,
    GeneralBloomMeta,
    DeleteFamilyBloomMeta,
}

impl BlockKind {
    /// Whether losing such a block costs every later read of its file, not only reads of a few rows.
    pub fn is_index_or_bloom(self) -> bool {
        matches!(self, BlockKind::LeafIndex | BlockKind::IntermediateIndex | BlockKind::BloomChunk)
    }
}

/// An uncompressed block payload whose structure was checked when it was loaded. Data blocks stay encoded as they
/// are in the file.
#[derive(Debug)]
pub struct Block {
    kind: BlockKind,
    bytes: Bytes,
    marks: Box<[u64]>,
    notes: Box<[u8]>,
    held_bytes: usize,
}

impl Block {
    /// `marks` are what the owner of this kind of block wants back with it (where some cells start, for
    /// example); they mean nothing here. `held_bytes` is the size of the allocation behind `bytes`, which may be larger
    /// than the payload.
    pub fn new(kind: BlockKind, bytes: Bytes, marks: Box<[u64]>, held_bytes: usize) -> Block {
        assert!(
            held_bytes >= bytes.len(),
            "a block of {} bytes counts {held_bytes}: the cache would hold more than it may",
            bytes.len()
        );
        Block { kind, bytes, marks, notes: Box::new([]), held_bytes }
    }

    /// Adds bytes that the owner of this kind of block wants back beside the marks.
    pub fn with_notes(mut self, notes: Box<[u8]>) -> Block {
        self.notes = notes;
        self
    }

    #[inline]
    pub fn kind(&self) -> BlockKind {
        self.kind
    }

    /// Size of the allocation behind the payload.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The payload, uncompressed, without header and checksums.
    #[inline]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    #[inline]
    pub fn marks(&self) -> &[u64] {
        &self.marks
    }

    #[inline]
    pub fn notes(&self) -> &[u8] {
        &self.notes
    }

    /// Memory that goes when the last reference is dropped, with what the allocator and the cache's own tables
    /// need for it.
    pub fn weight_bytes(&self) -> u64 {
        /// Arc counters, the shared header behind `Bytes`, allocator rounding, the cache's slot with its ghost
        /// share (64 bytes at one and a half slots per entry), and the entry in the table of files.
        const OVERHEAD_BYTES: usize = 16 + 32 + 48 + 96 + 32;
        let own = size_of::<Block>() + size_of_val(&*self.marks) + self.notes.len();
        (self.held_bytes + own + OVERHEAD_BYTES) as u64
    }
}
