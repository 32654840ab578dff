//! What a store of keys and values has to offer to be measured here.

use std::path::PathBuf;

use crate::keys::Key;

/// Why a run ended early. For people, so anything that prints will do.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A key and its new value.
pub struct Row<'a> {
    pub key: Key,
    pub value: &'a [u8],
}

/// What a scan saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scanned {
    pub rows: u64,
    pub bytes: u64,
}

/// An open store. *Thread safety*: `write`, `read` and `scan` are called from several threads at once.
pub trait Engine: Sync {
    /// Returns when all rows are acknowledged with the durability of the opening, and can be read.
    fn write(&self, rows: &[Row<'_>]) -> Result<(), Failure>;

    /// The length of the value; `None` if there is none.
    fn read(&self, key: &Key) -> Result<Option<usize>, Failure>;

    /// Goes through all rows in order and looks at each value.
    fn scan(&self) -> Result<Scanned, Failure>;

    /// Writes out what is in memory, and waits until nothing is left to be compacted and no log is left over.
    fn settle(&self) -> Result<(), Failure>;

    /// Ends the engine; its files stay.
    fn close(self: Box<Self>) -> Result<(), Failure>;
}

/// How a store is opened; equal for all engines.
#[derive(Clone, Debug)]
pub struct Opening {
    pub dir: PathBuf,
    /// Memory for new rows at which they are written out.
    pub memstore_bytes: usize,
    /// Writers wait when this many of them are in memory.
    pub memstores_max: usize,
    pub cache_bytes: usize,
    /// `None`: the engine's own default.
    pub block_bytes: Option<usize>,
    pub compression: Compression,
    /// Whether a write waits for the disk's word, or only for the operating system's.
    pub fsync: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Compression {
    None,
    Lz4,
    Snappy,
}
