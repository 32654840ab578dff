//! What is asked of an engine: the options that the comparison hands to each of its processes.

use std::path::PathBuf;

use clap::Args;

use crate::engine::Compression;
use crate::{Failure, Opening};

#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Where the stores are made; emptied before and after
    #[arg(long, default_value = "/tmp/halcyon-engine-bench")]
    pub dir: PathBuf,
    /// User bytes of the stores, MiB: keys and values
    #[arg(long, default_value_t = 192)]
    pub mib: u64,
    #[arg(long, default_value_t = 100)]
    pub value_len: usize,
    /// Threads that write and read
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Rows of one write in the fills
    #[arg(long, default_value_t = 1)]
    pub batch: usize,
    /// Random reads of each kind, all threads together
    #[arg(long, default_value_t = 1_000_000)]
    pub reads: u64,
    /// Seconds of the mixed load
    #[arg(long, default_value_t = 8)]
    pub mixed_seconds: u64,
    /// Writes of the fill that waits for the disk, all threads together; 0 leaves it out
    #[arg(long, default_value_t = 500)]
    pub synced_writes: u64,
    #[arg(long, default_value_t = 32)]
    pub memstore_mib: usize,
    /// Memstores in memory at which writers wait
    #[arg(long, default_value_t = 4)]
    pub memstores_max: usize,
    /// Bytes of a block, KiB, for all engines; 0: each engine's own default
    #[arg(long, default_value_t = 16)]
    pub block_kib: usize,
    #[arg(long, value_enum, default_value_t = Compression::None)]
    pub compression: Compression,
    /// Which loads, by their names; all if none is given
    #[arg(long = "load")]
    pub loads: Vec<Load>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Load {
    /// Rows in order of their keys
    FillSeq,
    /// Rows in random order
    FillRandom,
    /// Rows in random order, each write on disk before it is acknowledged
    FillSync,
    /// All rows in order, everything in the cache
    Scan,
    /// Random rows, everything in the cache
    ReadCached,
    /// Random rows, a tenth in the cache
    ReadTenth,
    /// All rows in order, a tenth in the cache
    ScanTenth,
    /// As many reads as writes of random rows, with flushes and compactions
    Mixed,
}

impl Load {
    pub fn name(self) -> &'static str {
        match self {
            Load::FillSeq => "fill-seq",
            Load::FillRandom => "fill-random",
            Load::FillSync => "fill-sync",
            Load::Scan => "scan",
            Load::ReadCached => "read-cached",
            Load::ReadTenth => "read-tenth",
            Load::ScanTenth => "scan-tenth",
            Load::Mixed => "mixed",
        }
    }
}

impl Plan {
    pub fn wants(&self, load: Load) -> bool {
        self.loads.is_empty() || self.loads.contains(&load)
    }

    pub fn row_bytes(&self) -> u64 {
        16 + self.value_len as u64
    }

    pub fn rows(&self) -> u64 {
        (self.mib << 20) / self.row_bytes()
    }

    pub fn user_bytes(&self) -> u64 {
        self.rows() * self.row_bytes()
    }

    /// Room for everything: blocks of HBase's format are larger than keys and values.
    pub fn cache_for_all(&self) -> usize {
        4 * self.user_bytes() as usize
    }

    pub fn opening(&self, name: &str, cache_bytes: usize, fsync: bool) -> Opening {
        Opening {
            dir: self.dir.join(name),
            memstore_bytes: self.memstore_mib << 20,
            memstores_max: self.memstores_max,
            cache_bytes,
            block_bytes: (self.block_kib > 0).then_some(self.block_kib << 10),
            compression: self.compression,
            fsync,
        }
    }

    /// The same options as arguments of a command.
    pub fn arguments(&self) -> Vec<String> {
        use clap::ValueEnum;
        let value = |value: clap::builder::PossibleValue| value.get_name().to_string();
        let named = [
            ("--dir", self.dir.display().to_string()),
            ("--mib", self.mib.to_string()),
            ("--value-len", self.value_len.to_string()),
            ("--threads", self.threads.to_string()),
            ("--batch", self.batch.to_string()),
            ("--reads", self.reads.to_string()),
            ("--mixed-seconds", self.mixed_seconds.to_string()),
            ("--synced-writes", self.synced_writes.to_string()),
            ("--memstore-mib", self.memstore_mib.to_string()),
            ("--memstores-max", self.memstores_max.to_string()),
            ("--block-kib", self.block_kib.to_string()),
            ("--compression", self.compression.to_possible_value().map_or_else(String::new, value)),
        ];
        let loads = self.loads.iter().map(|load| ("--load", load.name().to_string()));
        named.into_iter().chain(loads).flat_map(|(name, value)| [name.to_string(), value]).collect()
    }

    pub fn check(&self) -> Result<(), Failure> {
        if self.threads == 0 || self.batch == 0 || self.rows() < self.batch as u64 {
            return Err("threads and batch are at least 1, and there are as many rows as in a batch".into());
        }
        Ok(())
    }
}
