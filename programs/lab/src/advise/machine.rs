//! What advice is asked for.

use std::fmt;

pub const GIB: u64 = 1 << 30;

/// The collectors that there are rules for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Collector {
    G1,
    Zgc,
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Collector::G1 => "G1",
            Collector::Zgc => "ZGC",
        })
    }
}

/// A region server's JVM and what it runs on.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Feature release: 8, 11, 17.
    pub jdk: u32,
    /// Bytes.
    pub heap: u64,
    /// Logical processors.
    pub cores: u32,
    pub collector: Collector,
    /// Bytes for direct memory (`HBASE_OFFHEAPSIZE`), if it was said.
    pub offheap: Option<u64>,
    /// Bytes of an off-heap `hbase.bucketcache.size`.
    pub bucket_cache: u64,
    /// Bytes of `hbase.regionserver.offheap.global.memstore.size`.
    pub offheap_memstore: u64,
    /// `hbase.regionserver.global.memstore.size`, of the heap.
    pub memstore_share: f64,
    /// `hfile.block.cache.size`, of the heap.
    pub cache_share: f64,
}

impl Machine {
    /// With HBase's default shares (0.4 and 0.4) and nothing outside the heap.
    pub fn new(jdk: u32, heap: u64, cores: u32, collector: Collector) -> Machine {
        Machine {
            jdk,
            heap,
            cores,
            collector,
            offheap: None,
            bucket_cache: 0,
            offheap_memstore: 0,
            memstore_share: 0.4,
            cache_share: 0.4,
        }
    }

    pub fn g1(&self) -> bool {
        self.collector == Collector::G1
    }

    pub fn zgc(&self) -> bool {
        self.collector == Collector::Zgc
    }

    /// Share of the heap that memstores and block cache fill.
    pub fn filled_share(&self) -> f64 {
        self.memstore_share + self.cache_share
    }

    /// Bytes of direct memory that HBase will ask for: bucket cache, memstores, and 2 GiB for the network, HDFS and pools.
    pub fn direct_needed(&self) -> u64 {
        match self.bucket_cache.saturating_add(self.offheap_memstore) {
            0 => 0,
            named => named.saturating_add(2 * GIB),
        }
    }
}

/// Bytes of `100g`, `512m`, `1024`, as the JVM reads them.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower
        .strip_suffix('b')
        .filter(|rest| rest.ends_with(|c: char| c.is_ascii_alphabetic()))
        .unwrap_or(&lower);
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &lower[digits.len()..] {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        unit => return Err(format!("{unit:?} is not a unit; use k, m, g or t")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is not a size such as 100g"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is too large"))
}

/// As the JVM takes it, in the largest unit that loses nothing.
pub fn print_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "g"), (20, "m"), (10, "k")] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}
