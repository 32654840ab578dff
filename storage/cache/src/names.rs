//! The two numbers that name a block: which file, and where in it.

use std::fmt;

/// The number of a file in this process. Numbers are given out once, in ascending order from 1; 0 comes before all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FileId(u64);

impl FileId {
    /// Before every file.
    pub const ZERO: FileId = FileId(0);

    #[inline]
    pub const fn new(number: u64) -> FileId {
        FileId(number)
    }

    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// That of the file that comes after this one.
    #[inline]
    pub const fn next(self) -> FileId {
        FileId(self.0 + 1)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// Where a block begins in its HFile: the position of its header's first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct BlockOffset(u64);

impl BlockOffset {
    /// The first block of a file.
    pub const ZERO: BlockOffset = BlockOffset(0);

    #[inline]
    pub const fn new(position: u64) -> BlockOffset {
        BlockOffset(position)
    }

    /// For file systems and for what is written down: index entries, trailers, records.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Where the next block begins, if this one takes `len` bytes.
    #[inline]
    pub const fn after(self, len: u64) -> BlockOffset {
        BlockOffset(self.0 + len)
    }
}

impl fmt::Display for BlockOffset {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

const _: () =
    assert!(size_of::<FileId>() == size_of::<u64>() && size_of::<BlockOffset>() == size_of::<u64>());
