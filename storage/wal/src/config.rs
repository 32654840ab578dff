use std::path::PathBuf;

use halcyon_schema::Compression;

use crate::LateSyncs;

/// What `SYNC_WAL` means here (`wal.sync`). `FSYNC_WAL` is always `Fsync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Handed to the operating system: survives the death of the process, not of the machine. What HBase
    /// does by default with HDFS's `hflush`.
    Written,
    /// On the disk's own word (`fdatasync`).
    Fsync,
    /// As `Fsync`, with files on other machines (HDFS), where each call may take long and a file that failed is done with.
    /// Every batch is brought to those machines, and is in memory until then: to their memory (`hflush`), or to their disks
    /// (`hsync`) with `FSYNC_WAL` and with [`WalConfig::hsync`]. Only the log's own thread writes: it calls
    /// [`crate::Wal::drive`], and other threads wake it.
    Remote,
}

/// Part of the append buffer's limit that written and unsynced bytes may take besides.
const KEPT_PART: usize = 8;
/// And never more than this.
const KEPT_MAX_BYTES: usize = 8 << 20;

/// Settings of one log.
#[derive(Clone, Debug)]
pub struct WalConfig {
    /// `WALs/<server name>`; made if it is not there.
    pub dir: PathBuf,
    /// `oldWALs`; made if it is not there. Logs that hold no unflushed edits are moved here.
    pub archive_dir: PathBuf,
    /// The server name with commas as `%2C`.
    pub file_prefix: String,
    /// The log of the meta region: its files are called `<prefix>.meta.<ms>.meta`.
    pub meta: bool,
    pub sync_mode: SyncMode,
    /// With `Remote`: `SYNC_WAL` is `FSYNC_WAL` (`hbase.wal.hsync`).
    pub hsync: bool,
    /// [`crate::Wal::roll_if_needed`] starts a new file at this size. Half of a 256 MiB HDFS block in HBase.
    pub roll_size_bytes: u64,
    /// Appends wait, and then are refused, when this much is appended and not yet written.
    pub buffer_max_bytes: usize,
    /// Errors of files, one after the other, after which the log goes on in a new file. With one more it stops for good
    /// (`hbase.regionserver.logroll.errors.tolerated`), with `Remote` only if they also last for fifteen seconds.
    pub errors_tolerated: u32,
    /// [`crate::Wal::keep_spare`] keeps the next file open.
    pub keeps_spare: bool,
    /// With `Remote`: a round whose sync is late goes to the spare file as well.
    pub late_syncs: Option<LateSyncs>,
    /// With more files than this [`crate::Wal::regions_holding_oldest`] asks for flushes
    /// (`hbase.regionserver.maxlogs`).
    pub files_count_max: usize,
    /// How files are compressed; `None`: not at all. A log that is encrypted is not compressed.
    pub compression: Option<WalCompression>,
}

/// How a log's files are compressed: names by dictionaries, as HBase does it (`hbase.regionserver.wal.enablecompression`), and
/// values by a codec. Tags stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalCompression {
    /// Codec of each value; `None`: values stay as they are (`hbase.regionserver.wal.value.enablecompression`,
    /// `hbase.regionserver.wal.value.compression.type`).
    pub values: Option<Compression>,
    /// Whether ZSTD has the form of HBase's codec class, and not of Hadoop's.
    pub zstd_in_records: bool,
}

impl WalConfig {
    /// The usual settings: 128 MiB files, at most 32 of them, 64 MiB of buffer, `SYNC_WAL` is `Fsync`.
    pub fn new(
        dir: impl Into<PathBuf>,
        archive_dir: impl Into<PathBuf>,
        file_prefix: impl Into<String>,
    ) -> WalConfig {
        WalConfig {
            dir: dir.into(),
            archive_dir: archive_dir.into(),
            file_prefix: file_prefix.into(),
            meta: false,
            sync_mode: SyncMode::Fsync,
            hsync: true,
            roll_size_bytes: 128 << 20,
            buffer_max_bytes: 64 << 20,
            errors_tolerated: 2,
            keeps_spare: false,
            late_syncs: None,
            files_count_max: 32,
            compression: None,
        }
    }

    /// Bytes that [`SyncMode::Fsync`] may have written without a sync. They stay in memory, and with more the log syncs
    /// although nobody asks.
    pub(crate) fn kept_max_bytes(&self) -> usize {
        (self.buffer_max_bytes / KEPT_PART).min(KEPT_MAX_BYTES)
    }

    /// Name of the file begun at `ms`.
    pub(crate) fn file_name(&self, ms: i64) -> String {
        let prefix = &self.file_prefix;
        if self.meta { format!("{prefix}.meta.{ms}.meta") } else { format!("{prefix}.{ms}") }
    }
}
