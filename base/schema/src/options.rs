//! The values that family and table attributes take.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use halcyon_proto::pb;

/// Whether deleted cells stay readable for time travel (`KEEP_DELETED_CELLS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepDeleted {
    #[default]
    False,
    True,
    /// As long as their time to live.
    Ttl,
}

impl KeepDeleted {
    pub fn parse(text: &str) -> Option<KeepDeleted> {
        Some(match text.to_ascii_uppercase().as_str() {
            "FALSE" => KeepDeleted::False,
            "TRUE" => KeepDeleted::True,
            "TTL" => KeepDeleted::Ttl,
            _ => return None,
        })
    }
}

/// What a store file's Bloom filter holds (`BLOOMFILTER`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BloomType {
    None,
    #[default]
    Row,
    /// Row and qualifier.
    RowCol,
    /// The first so many bytes of the row.
    RowPrefixFixedLength(u16),
}

/// The configuration key that gives `ROWPREFIX_FIXED_LENGTH` its length.
pub(crate) const BLOOM_PREFIX_LENGTH: &str = "RowPrefixBloomFilter.prefix_length";

impl BloomType {
    /// The word in attributes and file info.
    pub fn name(self) -> &'static str {
        match self {
            BloomType::None => "NONE",
            BloomType::Row => "ROW",
            BloomType::RowCol => "ROWCOL",
            BloomType::RowPrefixFixedLength(_) => "ROWPREFIX_FIXED_LENGTH",
        }
    }

    /// `prefix_len` matters to `ROWPREFIX_FIXED_LENGTH` alone, which needs one.
    pub fn parse(text: &str, prefix_len: Option<usize>) -> Option<BloomType> {
        Some(match text.to_ascii_uppercase().as_str() {
            "NONE" => BloomType::None,
            "ROW" => BloomType::Row,
            "ROWCOL" => BloomType::RowCol,
            "ROWPREFIX_FIXED_LENGTH" => {
                // No row is longer than what a u16 counts.
                let len = prefix_len.filter(|&len| len > 0)?;
                BloomType::RowPrefixFixedLength(u16::try_from(len).unwrap_or(u16::MAX))
            }
            _ => return None,
        })
    }
}

/// How blocks are compressed (`COMPRESSION`; HBase: `Compression.Algorithm`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    #[default]
    None,
    Gz,
    Snappy,
    Lz4,
    Zstd,
    Lzo,
    Bzip2,
    Lzma,
    Brotli,
}

impl Compression {
    pub const ALL: [Compression; 9] = [
        Compression::None,
        Compression::Gz,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
        Compression::Lzo,
        Compression::Bzip2,
        Compression::Lzma,
        Compression::Brotli,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "NONE",
            Compression::Gz => "GZ",
            Compression::Snappy => "SNAPPY",
            Compression::Lz4 => "LZ4",
            Compression::Zstd => "ZSTD",
            Compression::Lzo => "LZO",
            Compression::Bzip2 => "BZIP2",
            Compression::Lzma => "LZMA",
            Compression::Brotli => "BROTLI",
        }
    }

    /// The number in an HFile's trailer.
    pub fn code(self) -> u32 {
        match self {
            Compression::Lzo => 0,
            Compression::Gz => 1,
            Compression::None => 2,
            Compression::Snappy => 3,
            Compression::Lz4 => 4,
            Compression::Bzip2 => 5,
            Compression::Zstd => 6,
            Compression::Lzma => 7,
            Compression::Brotli => 8,
        }
    }

    /// `None` for words that HBase does not know either.
    pub fn parse(text: &str) -> Option<Compression> {
        Compression::ALL.into_iter().find(|compression| compression.name().eq_ignore_ascii_case(text))
    }
}

/// How cells lie in a block (`DATA_BLOCK_ENCODING`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockEncoding {
    #[default]
    None,
    Prefix,
    Diff,
    FastDiff,
    RowIndexV1,
}

impl BlockEncoding {
    pub const ALL: [BlockEncoding; 5] = [
        BlockEncoding::None,
        BlockEncoding::Prefix,
        BlockEncoding::Diff,
        BlockEncoding::FastDiff,
        BlockEncoding::RowIndexV1,
    ];

    pub fn name(self) -> &'static str {
        match self {
            BlockEncoding::None => "NONE",
            BlockEncoding::Prefix => "PREFIX",
            BlockEncoding::Diff => "DIFF",
            BlockEncoding::FastDiff => "FAST_DIFF",
            BlockEncoding::RowIndexV1 => "ROW_INDEX_V1",
        }
    }

    pub fn parse(text: &str) -> Option<BlockEncoding> {
        BlockEncoding::ALL.into_iter().find(|encoding| encoding.name().eq_ignore_ascii_case(text))
    }

    /// The int16 in front of an encoded block (`DataBlockEncoding.getId`).
    pub fn id(self) -> u16 {
        match self {
            BlockEncoding::None => 0,
            BlockEncoding::Prefix => 2,
            BlockEncoding::Diff => 3,
            BlockEncoding::FastDiff => 4,
            BlockEncoding::RowIndexV1 => 7,
        }
    }

    pub fn from_id(id: u16) -> Option<BlockEncoding> {
        BlockEncoding::ALL.into_iter().find(|encoding| encoding.id() == id)
    }
}

/// When a write is acknowledged (`DURABILITY`), from the least durable to the most. `USE_DEFAULT`, which HBase counts
/// among them, is the absence of one here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Not written to the WAL.
    SkipWal,
    /// Before it is written to the WAL.
    AsyncWal,
    /// When it is written to the WAL, or synced, as the server's sync mode says.
    SyncWal,
    /// When the WAL is synced to disk.
    FsyncWal,
}

impl Durability {
    /// `None` for `USE_DEFAULT`, and for what is none of them.
    pub fn parse(text: &str) -> Option<Durability> {
        Some(match text.to_ascii_uppercase().as_str() {
            "SKIP_WAL" => Durability::SkipWal,
            "ASYNC_WAL" => Durability::AsyncWal,
            "SYNC_WAL" => Durability::SyncWal,
            "FSYNC_WAL" => Durability::FsyncWal,
            _ => return None,
        })
    }
}

/// What the memstore does with its segments before a flush (`IN_MEMORY_COMPACTION`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InMemoryCompaction {
    #[default]
    None,
    Basic,
    Eager,
    Adaptive,
}

impl InMemoryCompaction {
    pub fn parse(text: &str) -> Option<InMemoryCompaction> {
        Some(match text.to_ascii_uppercase().as_str() {
            "NONE" => InMemoryCompaction::None,
            "BASIC" => InMemoryCompaction::Basic,
            "EAGER" => InMemoryCompaction::Eager,
            "ADAPTIVE" => InMemoryCompaction::Adaptive,
            _ => return None,
        })
    }
}

impl fmt::Display for InMemoryCompaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InMemoryCompaction::None => "NONE",
            InMemoryCompaction::Basic => "BASIC",
            InMemoryCompaction::Eager => "EAGER",
            InMemoryCompaction::Adaptive => "ADAPTIVE",
        })
    }
}

/// Which families a flush takes (HBase: `FlushPolicyFactory`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushPolicy {
    #[default]
    AllStores,
    /// Those that hold much; all if none does.
    AllLargeStores,
    /// As `AllLargeStores`, but families that compact their memory only if no other one holds much.
    NonSloppyStoresFirst,
}

impl FlushPolicy {
    pub const ALL: [FlushPolicy; 3] =
        [FlushPolicy::AllStores, FlushPolicy::AllLargeStores, FlushPolicy::NonSloppyStoresFirst];
    const PACKAGE: &str = "org.apache.hadoop.hbase.regionserver.";

    fn simple_name(self) -> &'static str {
        match self {
            FlushPolicy::AllStores => "FlushAllStoresPolicy",
            FlushPolicy::AllLargeStores => "FlushAllLargeStoresPolicy",
            FlushPolicy::NonSloppyStoresFirst => "FlushNonSloppyStoresFirstPolicy",
        }
    }

    /// By the name of HBase's class. `None` for classes of others.
    pub fn of_class(class: &str) -> Option<FlushPolicy> {
        let name = class.trim().strip_prefix(FlushPolicy::PACKAGE)?;
        FlushPolicy::ALL.into_iter().find(|policy| policy.simple_name() == name)
    }

    pub fn class(self) -> String {
        format!("{}{}", FlushPolicy::PACKAGE, self.simple_name())
    }
}

/// Attributes in the order in which they came; a key that is set again keeps its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes(Vec<(Bytes, Bytes)>);

impl Attributes {
    pub(crate) fn from_pb(pairs: &[pb::BytesBytesPair]) -> Attributes {
        let mut out = Attributes(Vec::with_capacity(pairs.len()));
        for pair in pairs {
            out.set(pair.first.clone(), pair.second.clone());
        }
        out
    }

    pub(crate) fn to_pb(&self) -> Vec<pb::BytesBytesPair> {
        let pair =
            |(key, value): &(Bytes, Bytes)| pb::BytesBytesPair { first: key.clone(), second: value.clone() };
        self.0.iter().map(pair).collect()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    /// The value as text; one that is not UTF-8 counts as absent.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.get(key.as_bytes()).and_then(|value| std::str::from_utf8(value).ok())
    }

    pub(crate) fn set(&mut self, key: Bytes, value: Bytes) {
        match self.0.iter_mut().find(|(k, _)| *k == key) {
            Some(pair) => pair.1 = value,
            None => self.0.push((key, value)),
        }
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.0.retain(|(k, _)| k != key);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    fn sorted(&self) -> Vec<&(Bytes, Bytes)> {
        let mut out: Vec<_> = self.0.iter().collect();
        out.sort();
        out
    }
}

/// Equal as maps: the order carries no meaning.
impl PartialEq for Attributes {
    fn eq(&self, other: &Attributes) -> bool {
        self.sorted() == other.sorted()
    }
}

impl Eq for Attributes {}

pub(crate) fn configuration_from_pb(pairs: &[pb::NameStringPair]) -> BTreeMap<String, String> {
    pairs.iter().map(|pair| (pair.name.clone(), pair.value.clone())).collect()
}

pub(crate) fn configuration_to_pb(map: &BTreeMap<String, String>) -> Vec<pb::NameStringPair> {
    let pair =
        |(name, value): (&String, &String)| pb::NameStringPair { name: name.clone(), value: value.clone() };
    map.iter().map(pair).collect()
}
