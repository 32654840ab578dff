//! One column family of a table.

use std::collections::BTreeMap;

use bytes::Bytes;
use halcyon_cell::{Error, FAMILY_LEN_MAX, Result};
use halcyon_proto::pb;

use crate::options::{Attributes, BLOOM_PREFIX_LENGTH, configuration_from_pb, configuration_to_pb};
use crate::{BlockEncoding, BloomType, Compression, InMemoryCompaction, KeepDeleted};

/// Attributes of encryption.
const ENCRYPTION: &str = "ENCRYPTION";
const ENCRYPTION_KEY: &str = "ENCRYPTION_KEY";

/// A family's name, its attributes and configuration as the client sent them, and what they mean.
///
/// HBase: `ColumnFamilyDescriptor`. Immutable once it is part of a table; the getters cost nothing.
#[derive(Clone, Debug)]
pub struct FamilyDescriptor {
    name: Bytes,
    attributes: Attributes,
    configuration: BTreeMap<String, String>,
    typed: Typed,
}

/// The attributes' values, or their defaults.
#[derive(Clone, Debug)]
struct Typed {
    versions: i64,
    min_versions: i64,
    ttl: i64,
    keep_deleted: KeepDeleted,
    bloom: BloomType,
    block_size: i64,
    block_encoding: BlockEncoding,
    in_memory: bool,
    block_cache: bool,
    cache_data_on_write: bool,
    cache_indexes_on_write: bool,
    cache_blooms_on_write: bool,
    evict_blocks_on_close: bool,
    prefetch_blocks_on_open: bool,
    compress_tags: bool,
    new_version_behavior: bool,
    scope: i64,
    is_mob: bool,
    mob_threshold: i64,
    replication: i64,
    in_memory_compaction: Option<InMemoryCompaction>,
    /// What could not be read, for [`crate::TableDescriptor::check`].
    problems: Vec<String>,
}

/// What HBase's Java client writes into every family that it sends (`ColumnFamilyDescriptorBuilder.DEFAULT_VALUES` of 2.6.4).
const DEFAULTS: [(&str, &str); 12] = [
    ("BLOOMFILTER", "ROW"),
    ("REPLICATION_SCOPE", "0"),
    ("VERSIONS", "1"),
    ("MIN_VERSIONS", "0"),
    ("COMPRESSION", "NONE"),
    ("TTL", "2147483647"),
    ("BLOCKSIZE", "65536"),
    ("IN_MEMORY", "false"),
    ("BLOCKCACHE", "true"),
    ("KEEP_DELETED_CELLS", "FALSE"),
    ("DATA_BLOCK_ENCODING", "NONE"),
    ("INDEX_BLOCK_ENCODING", "NONE"),
];

/// `HConstants.FOREVER`, in seconds.
const TTL_FOREVER: i64 = i32::MAX as i64;
const BLOCK_SIZE_DEFAULT: i64 = 64 * 1024;
const MOB_THRESHOLD_DEFAULT: i64 = 100 * 1024;

impl FamilyDescriptor {
    /// A family with HBase's defaults. Invalid if the name breaks the rules.
    pub fn new(name: impl AsRef<[u8]>) -> Result<FamilyDescriptor> {
        FamilyDescriptor::from_pb(&pb::ColumnFamilySchema {
            name: Bytes::copy_from_slice(name.as_ref()),
            ..Default::default()
        })
    }

    /// Sets an attribute (`VERSIONS`, ...), as a builder.
    pub fn with(mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> FamilyDescriptor {
        self.attributes.set(Bytes::copy_from_slice(key.as_ref()), Bytes::copy_from_slice(value.as_ref()));
        self.typed = parse_attributes(&self.attributes, &self.configuration);
        self
    }

    /// With the defaults of attributes that are not there. Two families that mean the same are equal then, whoever made them.
    pub fn with_defaults(mut self) -> FamilyDescriptor {
        for (key, value) in DEFAULTS {
            if self.attribute(key.as_bytes()).is_none() {
                self = self.with(key, value);
            }
        }
        self
    }

    /// Sets a configuration value, as a builder.
    pub fn with_configuration(
        mut self,
        key: impl Into<String>,
        value: impl Into<String>,
    ) -> FamilyDescriptor {
        self.configuration.insert(key.into(), value.into());
        self.typed = parse_attributes(&self.attributes, &self.configuration);
        self
    }

    pub fn from_pb(schema: &pb::ColumnFamilySchema) -> Result<FamilyDescriptor> {
        check_name(&schema.name)?;
        let attributes = Attributes::from_pb(&schema.attributes);
        let configuration = configuration_from_pb(&schema.configuration);
        let typed = parse_attributes(&attributes, &configuration);
        Ok(FamilyDescriptor { name: schema.name.clone(), attributes, configuration, typed })
    }

    pub fn to_pb(&self) -> pb::ColumnFamilySchema {
        pb::ColumnFamilySchema {
            name: self.name.clone(),
            attributes: self.attributes.to_pb(),
            configuration: configuration_to_pb(&self.configuration),
        }
    }

    pub fn name(&self) -> &Bytes {
        &self.name
    }

    pub fn name_str(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }

    pub fn without(mut self, key: &[u8]) -> FamilyDescriptor {
        self.attributes.remove(key);
        self.typed = parse_attributes(&self.attributes, &self.configuration);
        self
    }

    pub fn without_configuration(mut self, key: &str) -> FamilyDescriptor {
        self.configuration.remove(key);
        self.typed = parse_attributes(&self.attributes, &self.configuration);
        self
    }

    /// An attribute's bytes as the client sent them.
    pub fn attribute(&self, key: &[u8]) -> Option<&Bytes> {
        self.attributes.get(key)
    }

    /// The cipher that files of the family are encrypted with (`ENCRYPTION`); `None`: they are not.
    pub fn encryption(&self) -> Option<&str> {
        let cipher = self.attributes.get(ENCRYPTION.as_bytes())?;
        std::str::from_utf8(cipher).ok().filter(|cipher| !cipher.is_empty())
    }

    /// The key of all files of the family, wrapped with the master key (`ENCRYPTION_KEY`); `None`: they have keys of their own.
    pub fn encryption_key(&self) -> Option<&[u8]> {
        self.attributes.get(ENCRYPTION_KEY.as_bytes()).map(|key| &key[..]).filter(|key| !key.is_empty())
    }

    pub fn attributes(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.attributes.iter()
    }

    pub fn configuration(&self) -> &BTreeMap<String, String> {
        &self.configuration
    }

    /// A setting of this family: the configuration first, then the attributes.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.configuration.get(key).map(String::as_str).or_else(|| self.attributes.text(key))
    }

    /// Versions kept of a cell (`VERSIONS`, default 1).
    pub fn versions(&self) -> u32 {
        clamp(self.typed.versions).max(1)
    }

    /// Versions kept of a cell although they are over their time to live (`MIN_VERSIONS`, default 0).
    pub fn min_versions(&self) -> u32 {
        clamp(self.typed.min_versions)
    }

    /// Time to live in seconds; `None` is for ever (`TTL`).
    pub fn ttl_seconds(&self) -> Option<u64> {
        (self.typed.ttl < TTL_FOREVER).then(|| self.typed.ttl.max(0) as u64)
    }

    pub fn keep_deleted(&self) -> KeepDeleted {
        self.typed.keep_deleted
    }

    pub fn bloom(&self) -> BloomType {
        self.typed.bloom
    }

    /// Compression of flushed files (`COMPRESSION`). Invalid if that codec does not exist here.
    pub fn compression(&self) -> Result<Compression> {
        self.compression_of(&["COMPRESSION"])
    }

    /// Compression of compacted files (`COMPRESSION_COMPACT`, else `COMPRESSION`).
    pub fn compression_compact(&self) -> Result<Compression> {
        self.compression_of(&["COMPRESSION_COMPACT", "COMPRESSION"])
    }

    /// Compression of major-compacted files (`COMPRESSION_COMPACT_MAJOR`, else as compacted files).
    pub fn compression_compact_major(&self) -> Result<Compression> {
        self.compression_of(&["COMPRESSION_COMPACT_MAJOR", "COMPRESSION_COMPACT", "COMPRESSION"])
    }

    /// Compression of minor-compacted files (`COMPRESSION_COMPACT_MINOR`, else as compacted files).
    pub fn compression_compact_minor(&self) -> Result<Compression> {
        self.compression_of(&["COMPRESSION_COMPACT_MINOR", "COMPRESSION_COMPACT", "COMPRESSION"])
    }

    fn compression_of(&self, keys: &[&str]) -> Result<Compression> {
        let Some(text) = keys.iter().find_map(|key| self.attributes.text(key)) else {
            return Ok(Compression::None);
        };
        Compression::parse(text).ok_or_else(|| {
            Error::invalid(format!(
                "Compression algorithm '{text}' of family {} is not available",
                self.name_str()
            ))
        })
    }

    /// Uncompressed bytes after which a block is closed (`BLOCKSIZE`, default 65536).
    pub fn block_size(&self) -> usize {
        clamp(self.typed.block_size).max(1) as usize
    }

    pub fn block_encoding(&self) -> BlockEncoding {
        self.typed.block_encoding
    }

    /// Whether blocks have the cache's in-memory priority.
    pub fn in_memory(&self) -> bool {
        self.typed.in_memory
    }

    /// Whether data blocks are cached when they are read (`BLOCKCACHE`, default true).
    pub fn block_cache(&self) -> bool {
        self.typed.block_cache
    }

    pub fn cache_data_on_write(&self) -> bool {
        self.typed.cache_data_on_write
    }

    pub fn cache_indexes_on_write(&self) -> bool {
        self.typed.cache_indexes_on_write
    }

    pub fn cache_blooms_on_write(&self) -> bool {
        self.typed.cache_blooms_on_write
    }

    pub fn evict_blocks_on_close(&self) -> bool {
        self.typed.evict_blocks_on_close
    }

    pub fn prefetch_blocks_on_open(&self) -> bool {
        self.typed.prefetch_blocks_on_open
    }

    pub fn compress_tags(&self) -> bool {
        self.typed.compress_tags
    }

    /// `None`: not said, the server decides.
    pub fn in_memory_compaction(&self) -> Option<InMemoryCompaction> {
        self.typed.in_memory_compaction
    }

    /// Whether deletes hide only what was written before them (`NEW_VERSION_BEHAVIOR`).
    pub fn new_version_behavior(&self) -> bool {
        self.typed.new_version_behavior
    }

    /// 0 local, 1 global (`REPLICATION_SCOPE`).
    pub fn scope(&self) -> i32 {
        self.typed.scope as i32
    }

    pub fn is_mob(&self) -> bool {
        self.typed.is_mob
    }

    /// Value bytes over which a cell is a MOB (`MOB_THRESHOLD`, default 102400).
    pub fn mob_threshold(&self) -> usize {
        clamp(self.typed.mob_threshold) as usize
    }

    /// On how many machines HDFS keeps each store file (`DFS_REPLICATION`); `None`: as many as it keeps of any file.
    pub fn file_copies(&self) -> Option<u32> {
        u32::try_from(self.typed.replication).ok().filter(|copies| *copies > 0)
    }

    /// Values as they stand, for the checks (which want to see negative ones).
    pub(crate) fn raw(&self) -> RawValues<'_> {
        let typed = &self.typed;
        RawValues {
            versions: typed.versions,
            min_versions: typed.min_versions,
            ttl: typed.ttl,
            block_size: typed.block_size,
            scope: typed.scope,
            replication: typed.replication,
            problems: &typed.problems,
        }
    }
}

pub(crate) struct RawValues<'a> {
    pub(crate) versions: i64,
    pub(crate) min_versions: i64,
    pub(crate) ttl: i64,
    pub(crate) block_size: i64,
    pub(crate) scope: i64,
    pub(crate) replication: i64,
    pub(crate) problems: &'a [String],
}

impl PartialEq for FamilyDescriptor {
    fn eq(&self, other: &FamilyDescriptor) -> bool {
        self.name == other.name
            && self.attributes == other.attributes
            && self.configuration == other.configuration
    }
}

impl Eq for FamilyDescriptor {}

fn clamp(value: i64) -> u32 {
    value.clamp(0, i64::from(i32::MAX)) as u32
}

/// The rules of `ColumnFamilyDescriptorBuilder.isLegalColumnFamilyName`.
fn check_name(name: &[u8]) -> Result<()> {
    let shown = name.escape_ascii();
    if name.is_empty() {
        return Err(Error::invalid("Column Family name can not be empty"));
    }
    if name.len() > FAMILY_LEN_MAX {
        return Err(Error::invalid(format!(
            "Column family name {shown} is longer than {FAMILY_LEN_MAX} bytes"
        )));
    }
    if name[0] == b'.' {
        return Err(Error::invalid(format!("Column Family names cannot start with a period: {shown}")));
    }
    if name.iter().any(|&byte| byte.is_ascii_control() || matches!(byte, b':' | b'\\' | b'/')) {
        return Err(Error::invalid(format!(
            "Illegal character in column family {shown}: control characters, ':', '\\' and '/' are not allowed"
        )));
    }
    if name == b"recovered.edits" {
        return Err(Error::invalid(format!("Family name cannot be: {shown}")));
    }
    Ok(())
}

fn parse_attributes(attributes: &Attributes, configuration: &BTreeMap<String, String>) -> Typed {
    let mut problems = Vec::new();
    let mut number = |key: &str, default: i64| match attributes.text(key).map(str::trim) {
        None => default,
        Some(text) => text.parse::<i64>().unwrap_or_else(|_| {
            problems.push(format!("{key} is not a number: '{text}'"));
            default
        }),
    };
    let versions = number("VERSIONS", 1);
    let min_versions = number("MIN_VERSIONS", 0);
    let ttl = match attributes.text("TTL") {
        Some(text) if text.eq_ignore_ascii_case("FOREVER") => TTL_FOREVER,
        _ => number("TTL", TTL_FOREVER),
    };
    let block_size = number("BLOCKSIZE", BLOCK_SIZE_DEFAULT);
    let scope = number("REPLICATION_SCOPE", 0);
    let mob_threshold = number("MOB_THRESHOLD", MOB_THRESHOLD_DEFAULT);
    let replication = number("DFS_REPLICATION", 0);

    let flag = |key: &str, default: bool| {
        attributes.text(key).map_or(default, |text| text.trim().eq_ignore_ascii_case("true"))
    };
    let mut word = |key: &str, known: &dyn Fn(&str) -> bool| match attributes.text(key) {
        Some(text) if known(text) => Some(text),
        Some(text) => {
            problems.push(format!("{key} has no value '{text}'"));
            None
        }
        None => None,
    };
    let keep_deleted = word("KEEP_DELETED_CELLS", &|text| KeepDeleted::parse(text).is_some());
    let encoding = word("DATA_BLOCK_ENCODING", &|text| BlockEncoding::parse(text).is_some());
    let in_memory_compaction =
        word("IN_MEMORY_COMPACTION", &|text| InMemoryCompaction::parse(text).is_some());
    let prefix_len = configuration.get(BLOOM_PREFIX_LENGTH).and_then(|text| text.trim().parse().ok());
    let bloom = word("BLOOMFILTER", &|text| BloomType::parse(text, Some(1)).is_some());
    let bloom = bloom.map(|text| BloomType::parse(text, prefix_len));
    if bloom == Some(None) {
        let found = configuration.get(BLOOM_PREFIX_LENGTH).map_or("is not set", |text| text);
        problems.push(format!(
            "BLOOMFILTER ROWPREFIX_FIXED_LENGTH needs the prefix's length, a number above 0, in the configuration of \
             the family: {BLOOM_PREFIX_LENGTH} {found}"
        ));
    }

    Typed {
        versions,
        min_versions,
        ttl,
        keep_deleted: keep_deleted.and_then(KeepDeleted::parse).unwrap_or_default(),
        bloom: bloom.flatten().unwrap_or_default(),
        block_size,
        block_encoding: encoding.and_then(BlockEncoding::parse).unwrap_or_default(),
        in_memory: flag("IN_MEMORY", false),
        block_cache: flag("BLOCKCACHE", true),
        cache_data_on_write: flag("CACHE_DATA_ON_WRITE", false),
        cache_indexes_on_write: flag("CACHE_INDEX_ON_WRITE", false),
        cache_blooms_on_write: flag("CACHE_BLOOMS_ON_WRITE", false),
        evict_blocks_on_close: flag("EVICT_BLOCKS_ON_CLOSE", false),
        prefetch_blocks_on_open: flag("PREFETCH_BLOCKS_ON_OPEN", false),
        compress_tags: flag("COMPRESS_TAGS", true),
        new_version_behavior: flag("NEW_VERSION_BEHAVIOR", false),
        scope,
        is_mob: flag("IS_MOB", false),
        mob_threshold,
        replication,
        in_memory_compaction: in_memory_compaction.and_then(InMemoryCompaction::parse),
        problems,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_with_its_defaults_written_out_is_the_same() {
        let (short, long) = (FamilyDescriptor::new("f").unwrap(), FamilyDescriptor::new("f").unwrap());
        let long = DEFAULTS.iter().fold(long, |family, (key, value)| family.with(key, value));
        assert_ne!(short, long);
        assert_eq!(short.clone().with_defaults(), long);
        assert_eq!(short.raw().versions, long.raw().versions);
        assert_eq!(short.with("VERSIONS", "3").with_defaults(), long.with("VERSIONS", "3"));
    }

    #[test]
    fn defaults_are_those_of_hbase() {
        let family = FamilyDescriptor::new("f").unwrap();
        assert_eq!((family.versions(), family.min_versions(), family.ttl_seconds()), (1, 0, None));
        assert_eq!((family.bloom(), family.block_size()), (BloomType::Row, 65536));
        assert_eq!(family.compression().unwrap(), Compression::None);
        assert!(family.block_cache() && family.compress_tags() && !family.in_memory());
    }

    #[test]
    fn reads_attributes_and_keeps_them_verbatim() {
        let family = FamilyDescriptor::new("f")
            .unwrap()
            .with("TTL", "3600")
            .with("VERSIONS", "5")
            .with("COMPRESSION", "snappy")
            .with("COMPRESSION_COMPACT_MAJOR", "GZ")
            .with("DATA_BLOCK_ENCODING", "FAST_DIFF")
            .with("BLOOMFILTER", "ROWPREFIX_FIXED_LENGTH")
            .with_configuration(BLOOM_PREFIX_LENGTH, "4")
            .with("SOMETHING_NEW", [0xff, 0x00]);
        assert_eq!((family.ttl_seconds(), family.versions()), (Some(3600), 5));
        assert_eq!(family.compression_compact().unwrap(), Compression::Snappy);
        assert_eq!(family.compression_compact_major().unwrap(), Compression::Gz);
        assert_eq!(family.block_encoding(), BlockEncoding::FastDiff);
        assert_eq!(family.bloom(), BloomType::RowPrefixFixedLength(4));
        let sent = family.to_pb();
        assert_eq!(sent.attributes.last().unwrap().second, vec![0xff, 0x00]);
        assert_eq!(FamilyDescriptor::from_pb(&sent).unwrap().to_pb(), sent);
        let unknown = family.with("COMPRESSION", "ZIP");
        assert!(unknown.compression().unwrap_err().message().contains("ZIP"));
    }

    #[test]
    fn a_prefix_filter_without_a_length_names_the_property() {
        let family = FamilyDescriptor::new("f").unwrap().with("BLOOMFILTER", "ROWPREFIX_FIXED_LENGTH");
        let problem = |family: &FamilyDescriptor| family.raw().problems.join("; ");
        assert!(problem(&family).ends_with("RowPrefixBloomFilter.prefix_length is not set"));
        for wrong in ["0", "-1", "four"] {
            let family = family.clone().with_configuration(BLOOM_PREFIX_LENGTH, wrong);
            assert!(problem(&family).ends_with(&format!("RowPrefixBloomFilter.prefix_length {wrong}")));
            assert_eq!(family.bloom(), BloomType::Row);
        }
        assert!(problem(&family.with("BLOOMFILTER", "PREFIX")).contains("has no value 'PREFIX'"));
    }

    #[test]
    fn refuses_bad_names() {
        for name in ["", ".f", "a:b", "a/b", "a\\b", "a\tb", "recovered.edits"] {
            assert!(FamilyDescriptor::new(name).is_err(), "{name}");
        }
        assert!(FamilyDescriptor::new([b'a'; 128]).is_err());
    }
}
