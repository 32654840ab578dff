//! What the files of a family look like: its attributes and settings, and those of its table, in terms of the
//! HFile writer (HBase: `StoreUtils.createStoreConfiguration`, `HStore.createFileContext`, `BloomFilterFactory`).

use std::str::FromStr;

use halcyon_cell::{CellComparator, Result};
use halcyon_compression::has_zstd_in_records;
use halcyon_env::Keys;
use halcyon_hfile::{BloomType, CacheKinds, ChecksumType, FileKey, WriterOptions};
use halcyon_schema::{FamilyDescriptor, TableDescriptor};

/// What a file is written for. The compression may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenBy {
    Flush,
    MinorCompaction,
    MajorCompaction,
}

/// Settings of the family, then those of the table, by HBase's property names. A value that cannot be read is
/// passed over, as in [`crate::RegionSettings::for_table`].
struct Settings<'a> {
    family: &'a FamilyDescriptor,
    table: &'a TableDescriptor,
}

impl Settings<'_> {
    fn take<T: FromStr>(&self, name: &str, field: &mut T) {
        let text = self.family.setting(name).or_else(|| self.table.setting(name));
        if let Some(value) = text.and_then(|text| text.trim().parse().ok()) {
            *field = value;
        }
    }

    fn is_on(&self, name: &str, default: bool) -> bool {
        let mut on = default;
        self.take(name, &mut on);
        on
    }
}

/// How a file of `family` is written. Invalid if the family asks for a compression that does not exist here, or for a key that
/// cannot be unwrapped.
pub(crate) fn options(
    family: &FamilyDescriptor,
    table: &TableDescriptor,
    written_by: WrittenBy,
    comparator: CellComparator,
    zstd_codec: &str,
    keys: &Keys,
    now_ms: i64,
) -> Result<WriterOptions> {
    let compression = match written_by {
        WrittenBy::Flush => family.compression()?,
        WrittenBy::MinorCompaction => family.compression_compact_minor()?,
        WrittenBy::MajorCompaction => family.compression_compact_major()?,
    };
    let settings = Settings { family, table };
    let mut options = WriterOptions {
        comparator,
        block_size: family.block_size(),
        encoding: family.block_encoding(),
        compress_tags: family.compress_tags(),
        compression,
        bloom: family.bloom(),
        create_time_ms: Some(now_ms),
        key: file_key(family, keys)?,
        copies: family.file_copies(),
        ..WriterOptions::default()
    };
    if !settings.is_on("io.storefile.bloom.enabled", true) {
        options.bloom = BloomType::None;
    }
    options.delete_family_bloom = settings.is_on("io.storefile.delete.family.bloom.enabled", true);
    settings.take("hbase.writer.unified.encoded.blocksize.ratio", &mut options.encoded_block_size_ratio);
    settings.take("hfile.index.block.max.size", &mut options.index_chunk_bytes);
    settings.take("hfile.index.block.min.entries", &mut options.index_entries_min);
    settings.take("io.storefile.bloom.block.size", &mut options.bloom_chunk_bytes);
    settings.take("io.storefile.bloom.error.rate", &mut options.bloom_error_rate);
    settings.take("hbase.hstore.bytes.per.checksum", &mut options.bytes_per_checksum);
    let mut checksum = String::new();
    settings.take("hbase.hstore.checksum.algorithm", &mut checksum);
    options.checksum = ChecksumType::from_name(&checksum).unwrap_or(options.checksum);
    let mut zstd_codec = zstd_codec.to_string();
    settings.take("hbase.io.compress.zstd.codec", &mut zstd_codec);
    options.zstd_in_records = has_zstd_in_records(&zstd_codec);
    options.keep_in_bounds();
    Ok(options)
}

/// What files of the family are encrypted with. Without a key of its own each file gets another one; in HBase those of one
/// opening of the store share one.
fn file_key(family: &FamilyDescriptor, keys: &Keys) -> Result<Option<FileKey>> {
    let (name, wrapped) = (family.name_str(), family.encryption_key());
    let key = keys.key_of_family(&name, family.encryption(), wrapped, Default::default)?;
    Ok(key.map(|key| if wrapped.is_some() { FileKey::Given(key) } else { FileKey::Random }))
}

/// Blocks of a new file that are to be in the cache at once. Data blocks of a compaction would push out what was
/// read, so they are not unless that is asked for; and whoever wants data blocks gets all blocks (HBase:
/// `StoreFileTrackerBase.createWriter`, `CacheConfig.enableCacheOnWrite`). `of_server`: where neither family nor table
/// says.
pub(super) fn cached_on_write(
    family: &FamilyDescriptor,
    table: &TableDescriptor,
    written_by: WrittenBy,
    of_server: CacheKinds,
) -> CacheKinds {
    let settings = Settings { family, table };
    let data = match written_by {
        WrittenBy::Flush => {
            family.cache_data_on_write() || settings.is_on("hbase.rs.cacheblocksonwrite", of_server.data)
        }
        WrittenBy::MinorCompaction | WrittenBy::MajorCompaction => {
            settings.is_on("hbase.rs.cachecompactedblocksonwrite", false)
        }
    };
    let index = settings.is_on("hfile.block.index.cacheonwrite", of_server.index);
    let bloom = settings.is_on("hfile.block.bloom.cacheonwrite", of_server.bloom);
    CacheKinds {
        data,
        index: data || index || family.cache_indexes_on_write(),
        bloom: data || bloom || family.cache_blooms_on_write(),
    }
}

#[cfg(test)]
mod tests {
    use halcyon_schema::{BlockEncoding, Compression, TableName};

    use super::*;

    fn options_of(family: FamilyDescriptor, table: TableDescriptor, by: WrittenBy) -> WriterOptions {
        options(&family, &table, by, CellComparator::Default, "", &Keys::none(), 7).unwrap()
    }

    fn family() -> FamilyDescriptor {
        FamilyDescriptor::new("f").unwrap()
    }

    fn table() -> TableDescriptor {
        TableDescriptor::new(TableName::parse(b"t").unwrap()).with_family(family())
    }

    /// The server's properties were not known; only the family's attributes were obeyed.
    #[test]
    fn blocks_are_cached_on_write_as_server_table_or_family_say() {
        let of_server = |kinds| cached_on_write(&family(), &table(), WrittenBy::Flush, kinds);
        assert_eq!(of_server(CacheKinds::NONE), CacheKinds::NONE);
        assert_eq!(of_server(CacheKinds { data: true, ..CacheKinds::NONE }), CacheKinds::ALL);
        let index = CacheKinds { index: true, ..CacheKinds::NONE };
        assert_eq!(of_server(index), index);
        let by_compaction = cached_on_write(&family(), &table(), WrittenBy::MajorCompaction, CacheKinds::ALL);
        assert_eq!(by_compaction, CacheKinds { data: false, ..CacheKinds::ALL });
        let table = table().with("hfile.block.bloom.cacheonwrite", "true");
        let of_table = cached_on_write(&family(), &table, WrittenBy::Flush, CacheKinds::NONE);
        assert_eq!(of_table, CacheKinds { bloom: true, ..CacheKinds::NONE });
    }

    #[test]
    fn attributes_reach_the_writer() {
        let family = family()
            .with("DATA_BLOCK_ENCODING", "FAST_DIFF")
            .with("COMPRESS_TAGS", "false")
            .with("BLOCKSIZE", "8192")
            .with("COMPRESSION", "SNAPPY")
            .with("COMPRESSION_COMPACT", "GZ")
            .with("COMPRESSION_COMPACT_MAJOR", "ZSTD")
            .with("BLOOMFILTER", "ROWPREFIX_FIXED_LENGTH")
            .with_configuration("RowPrefixBloomFilter.prefix_length", "5");
        let of = |by| options_of(family.clone(), table(), by);
        let flush = of(WrittenBy::Flush);
        assert_eq!(
            (flush.encoding, flush.compress_tags, flush.block_size),
            (BlockEncoding::FastDiff, false, 8192)
        );
        assert_eq!((flush.bloom, flush.create_time_ms), (BloomType::RowPrefixFixedLength(5), Some(7)));
        assert_eq!(flush.compression, Compression::Snappy);
        assert_eq!(of(WrittenBy::MinorCompaction).compression, Compression::Gz);
        assert_eq!(of(WrittenBy::MajorCompaction).compression, Compression::Zstd);
        assert!(options_of(self::family(), table(), WrittenBy::Flush).compress_tags, "HBase's default");
    }

    #[test]
    fn settings_of_the_family_win_over_the_tables() {
        let table = table()
            .with("hfile.index.block.max.size", "4096")
            .with("io.storefile.bloom.block.size", "2048")
            .with("hbase.hstore.checksum.algorithm", "CRC32")
            .with("hbase.io.compress.zstd.codec", "org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec")
            .with("io.storefile.delete.family.bloom.enabled", "false");
        let family = family()
            .with_configuration("hfile.index.block.max.size", "512")
            .with_configuration("hfile.index.block.min.entries", "4")
            .with_configuration("hbase.hstore.bytes.per.checksum", "0")
            .with_configuration("hbase.writer.unified.encoded.blocksize.ratio", "0.5")
            .with_configuration("io.storefile.bloom.error.rate", "often")
            .with_configuration("io.storefile.bloom.enabled", "false");
        let options = options_of(family, table, WrittenBy::Flush);
        assert_eq!((options.index_chunk_bytes, options.index_entries_min), (512, 4));
        assert_eq!((options.bloom_chunk_bytes, options.bloom_error_rate), (2048, 0.01));
        assert_eq!((options.checksum, options.bytes_per_checksum), (ChecksumType::Crc32, 64));
        assert_eq!((options.bloom, options.delete_family_bloom), (BloomType::None, false));
        assert!(options.encoded_block_size_ratio == 0.5 && options.zstd_in_records);
    }

    /// A family with an error rate of NaN was taken. The first flush of its table failed in an assertion, and so did the replay of
    /// each start after it.
    #[test]
    fn numbers_out_of_bounds_become_numbers_that_can_be_written() {
        for rate in ["NaN", "-NaN", "inf", "-inf", "0", "-1", "1e-300", "7"] {
            let family = family()
                .with_configuration("io.storefile.bloom.error.rate", rate)
                .with_configuration("hbase.writer.unified.encoded.blocksize.ratio", rate)
                .with_configuration("io.storefile.bloom.block.size", "2147483647");
            let options = options_of(family, table(), WrittenBy::Flush);
            assert!(
                (0.000_01..=0.5).contains(&options.bloom_error_rate),
                "{rate}: {}",
                options.bloom_error_rate
            );
            assert!((0.0..=1000.0).contains(&options.encoded_block_size_ratio), "{rate}");
            assert_eq!(options.bloom_chunk_bytes, 16 << 20);
        }
    }
}
