//! Writing a file: one pass over cells in order, inline index and bloom blocks, then the load-on-open section.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use halcyon_cache::{BlockKind, BlockOffset};
use halcyon_cell::{CellComparator, CellRef, CellType, Error, Key, KeyRef, Result, SeqId};
use halcyon_crypto::{DataKey, KEY_LEN};
use halcyon_env::{Env, invariant, random_bytes};
use halcyon_proto::pb::FileTrailerProto;
use halcyon_schema::BlockEncoding;

use crate::BloomType;
use crate::block_writer::BlockWriter;
use crate::bloom::row_col_key;
use crate::bloom_writer::BloomWriter;
use crate::cell_stats::CellStats;
use crate::data_block::CellLayout;
use crate::encoding::{BlockEncoder, EncoderOptions};
use crate::file_info::{FileInfo, FileInfoWriter, boolean, name};
use crate::index::KeyOrder;
use crate::index_writer::{IndexWriter, WrittenIndex};
use crate::trailer;
use crate::{ChecksumType, Compression};

/// How a file is to be written. The defaults are HBase's.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    pub comparator: CellComparator,
    /// A data block is closed once its cells take this many bytes, encoded or not.
    pub block_size: usize,
    /// How cells lie in data blocks.
    pub encoding: BlockEncoding,
    /// Above 0 a block is closed when its encoded cells take this share of `block_size`, whatever they take without
    /// encoding (`hbase.writer.unified.encoded.blocksize.ratio`).
    pub encoded_block_size_ratio: f32,
    /// Tags go through a dictionary. Only PREFIX, DIFF and FAST_DIFF can.
    pub compress_tags: bool,
    pub compression: Compression,
    /// ZSTD as HBase's module codec has it, in Hadoop's records; else a plain frame, as Hadoop's own codec.
    pub zstd_in_records: bool,
    pub bloom: BloomType,
    /// Whether rows with a family delete marker have a filter of their own (never with ROWCOL, which has them).
    pub delete_family_bloom: bool,
    /// Largest share of absent keys that a bloom filter lets through.
    pub bloom_error_rate: f32,
    pub bloom_chunk_bytes: usize,
    pub checksum: ChecksumType,
    pub bytes_per_checksum: usize,
    /// Whether cells have a tag area. Without it tags are dropped.
    pub include_tags: bool,
    /// Whether cells carry their sequence id.
    pub include_mvcc: bool,
    pub index_chunk_bytes: usize,
    /// Fewest entries of an index block above the leaves.
    pub index_entries_min: usize,
    /// Milliseconds since 1970; `None` takes the clock's.
    pub create_time_ms: Option<i64>,
    /// `None`: the file is not encrypted.
    pub key: Option<FileKey>,
    /// On how many machines the file is to be, in HDFS; `None`: as the file system does.
    pub copies: Option<u32>,
}

/// What a file is encrypted with. The key is in the trailer, wrapped with the master key.
#[derive(Clone, Debug)]
pub enum FileKey {
    /// A new key for each file.
    Random,
    Given(DataKey),
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions {
            comparator: CellComparator::Default,
            block_size: 64 * 1024,
            encoding: BlockEncoding::None,
            encoded_block_size_ratio: 0.0,
            compress_tags: false,
            compression: Compression::None,
            zstd_in_records: false,
            bloom: BloomType::Row,
            delete_family_bloom: true,
            bloom_error_rate: 0.01,
            bloom_chunk_bytes: 128 * 1024,
            checksum: ChecksumType::Crc32c,
            bytes_per_checksum: 16 * 1024,
            include_tags: true,
            include_mvcc: true,
            index_chunk_bytes: 128 * 1024,
            index_entries_min: 16,
            create_time_ms: None,
            key: None,
            copies: None,
        }
    }
}

impl WriterOptions {
    /// Brings sizes that came from outside to the nearest that can be written.
    pub fn keep_in_bounds(&mut self) {
        const INT_MAX: usize = i32::MAX as usize;
        // A chunk is made as a whole, in memory.
        const BLOOM_CHUNK_MAX: usize = 16 << 20;
        // What is no number has no nearest one.
        let default = WriterOptions::default();
        if self.bloom_error_rate.is_nan() {
            self.bloom_error_rate = default.bloom_error_rate;
        }
        if self.encoded_block_size_ratio.is_nan() {
            self.encoded_block_size_ratio = default.encoded_block_size_ratio;
        }
        self.block_size = self.block_size.clamp(1, INT_MAX / 4);
        self.bytes_per_checksum = self.bytes_per_checksum.clamp(64, INT_MAX);
        self.index_chunk_bytes = self.index_chunk_bytes.clamp(1, INT_MAX / 4);
        self.index_entries_min = self.index_entries_min.max(2);
        self.bloom_chunk_bytes = self.bloom_chunk_bytes.clamp(1, BLOOM_CHUNK_MAX);
        self.bloom_error_rate = self.bloom_error_rate.clamp(0.000_01, 0.5);
        self.encoded_block_size_ratio = self.encoded_block_size_ratio.clamp(0.0, 1000.0);
    }
}

/// What a file says of itself beyond its cells.
#[derive(Clone, Debug, Default)]
pub struct FileMeta {
    /// The flush sequence id; `None` leaves it out, as in files made for bulk load.
    pub max_seq_id: Option<SeqId>,
    pub major_compaction: bool,
    pub exclude_from_minor_compaction: bool,
    /// Names of the files this one replaces, and of those they replaced that still lie around.
    pub compacted_from: Vec<String>,
    /// Of a mob file: its cells. It names no files that it replaces (HBase: `StoreFileWriter.appendMetadata`).
    pub mob_cells_count: Option<u64>,
}

/// A file that is complete and durable under the name it was created with; the directory is not synced.
#[derive(Clone, Debug)]
pub struct WrittenFile {
    pub path: PathBuf,
    pub entries: u64,
    /// Length of the file.
    pub bytes: u64,
    pub first_key: Option<Key>,
    pub last_key: Option<Key>,
    pub max_seq_id: Option<SeqId>,
    /// The largest sequence id beside a cell.
    pub max_mvcc: SeqId,
    /// Smallest and largest timestamp as in file info.
    pub time_range: Option<(i64, i64)>,
    pub delete_family_count: u64,
}

/// Writes one file. Not thread-safe; the caller drives it.
///
/// *Invariants*: cells come in the comparator's order; cells of equal keys end up in one block, so that a
/// search for their key finds the first. A writer that is dropped before `finish` leaves a file without trailer,
/// which no reader opens; the caller removes it.
pub struct HFileWriter {
    options: WriterOptions,
    path: PathBuf,
    blocks: BlockWriter,
    index: IndexWriter,
    general_bloom: Option<BloomWriter>,
    /// Rows with a family delete marker. `RowCol` filters have those rows in themselves (empty qualifier).
    delete_bloom: Option<BloomWriter>,
    bloom_key: Vec<u8>,
    info: FileInfoWriter,
    /// The open data block.
    block: BlockEncoder,
    /// Last key of the block before; empty in the first block.
    previous_block_last_key: Vec<u8>,
    first_key: Vec<u8>,
    first_data_block: Option<BlockOffset>,
    last_data_block: Option<BlockOffset>,
    data_blocks_count: u64,
    /// Index blocks from the intermediate ones on, which HBase leaves out of the file's uncompressed size.
    uncounted_bytes: u64,
    stats: CellStats,
    /// For the trailer of an encrypted file.
    wrapped_key: Option<Vec<u8>>,
}

impl HFileWriter {
    /// Creates the file. `Io` if there is one of that name; `Invalid` if it is to be encrypted and there is no master key.
    pub fn create(env: &Env, path: &Path, mut options: WriterOptions) -> Result<HFileWriter> {
        let key = match options.key.take() {
            None => None,
            Some(FileKey::Given(key)) => Some(key),
            Some(FileKey::Random) => Some(DataKey::aes(&random_bytes::<KEY_LEN>())?),
        };
        let wrapped_key = key.as_ref().map(|key| env.keys.wrap(key, random_bytes())).transpose()?;
        let file = match options.copies {
            Some(copies) => env.fs.create_copies(path, copies)?,
            None => env.fs.create(path)?,
        };
        options.create_time_ms.get_or_insert_with(|| env.clock.now_ms());
        let blocks = BlockWriter::new(file, &options, key.map(|key| (key, random_bytes())));
        let row_col = options.bloom == BloomType::RowCol;
        let order = if row_col { KeyOrder::Cells(options.comparator) } else { KeyOrder::Bytes };
        let bloom = |order| BloomWriter::new(order, options.bloom_chunk_bytes, options.bloom_error_rate);
        Ok(HFileWriter {
            path: path.to_path_buf(),
            blocks,
            index: IndexWriter::new(options.index_chunk_bytes, options.index_entries_min),
            general_bloom: (options.bloom != BloomType::None).then(|| bloom(order)),
            delete_bloom: (options.delete_family_bloom && !row_col).then(|| bloom(KeyOrder::Bytes)),
            bloom_key: Vec::new(),
            info: FileInfoWriter::default(),
            block: BlockEncoder::new(encoder_options(&options), options.block_size),
            previous_block_last_key: Vec::new(),
            first_key: Vec::new(),
            first_data_block: None,
            last_data_block: None,
            data_blocks_count: 0,
            uncounted_bytes: 0,
            stats: CellStats::new(),
            wrapped_key,
            options,
        })
    }

    /// Adds a cell. It must not sort before the one added last: such a cell is refused as `Corrupt`, because
    /// it means that the source of the cells was not in order. A cell of another family is `Invalid` where the
    /// encoding stores the family once. After an error the file must not be finished.
    pub fn append(&mut self, cell: CellRef<'_>) -> Result<()> {
        let key = cell.key();
        let change = self.compare_with_last(key)?;
        self.add_to_blooms(&cell, key, change); // first, as HBase: it may fill a chunk that goes out behind the block
        if change != Change::None && self.block_is_full() {
            self.close_block()?;
            self.write_full_inline_blocks()?;
        }
        if self.stats.entries == 0 {
            self.first_key = key.bytes().to_vec();
        }
        self.block.append(&cell)?;
        self.stats.add(&cell, key);
        Ok(())
    }

    /// Adds an entry to file info, or replaces one that `finish` would write.
    pub fn append_file_info(&mut self, key: &[u8], value: &[u8]) {
        self.info.put(key, value);
    }

    /// Bytes in the file so far, the open block's included, uncompressed. For deciding when to start another.
    pub fn len_estimate(&self) -> u64 {
        self.blocks.position().get() + self.block.encoded_len() as u64
    }

    pub fn entries(&self) -> u64 {
        self.stats.entries
    }

    /// Completes the file and makes its bytes durable. Its name is durable after the caller synced the directory.
    pub fn finish(mut self, meta: FileMeta) -> Result<WrittenFile> {
        let last_key = self.last_key().map(|key| key.to_key());
        self.close_block()?;
        self.index.write_last_leaf(&mut self.blocks)?;
        for bloom in [&mut self.general_bloom, &mut self.delete_bloom].into_iter().flatten() {
            bloom.write_last_chunk(&mut self.blocks)?;
        }
        assert_eq!(
            self.stats.entries == 0,
            self.data_blocks_count == 0,
            "each cell is in a block and each block has cells: the reader refuses one without the other"
        );
        let index = std::mem::replace(&mut self.index, IndexWriter::new(0, 0));
        let uncompressed_before_index = self.blocks.uncompressed_bytes();
        let (load_on_open_offset, index) = index.finish(&mut self.blocks)?;
        let (indexed, written) = (index.blocks_count, self.data_blocks_count);
        assert_eq!(indexed, written, "every data block is in the index, or its cells are lost to every seek");
        self.uncounted_bytes = self.blocks.uncompressed_bytes() - uncompressed_before_index;
        self.blocks.write_block(BlockKind::RootIndex, &[])?; // the meta index: store files have no meta blocks
        let file_info_offset = self.blocks.position();
        assert!(
            self.last_data_block < Some(load_on_open_offset) && load_on_open_offset < file_info_offset,
            "who walks the file's blocks ends at {load_on_open_offset}, and file info is behind that: data up \
             to {:?}, file info at {file_info_offset}",
            self.last_data_block
        );
        self.complete_file_info(&meta, last_key.as_ref());
        let info = self.info.payload();
        invariant!(
            FileInfo::parse(&Bytes::copy_from_slice(&info)).is_ok(),
            "the reader takes the file info, or nobody opens the file again"
        );
        self.blocks.write_block(BlockKind::FileInfo, &info)?;
        self.write_bloom_roots()?;
        let trailer = self.trailer(load_on_open_offset, file_info_offset, &index);
        let encoded = trailer::encode(&trailer);
        assert!(
            trailer::parse(&encoded).is_ok_and(|read| read.proto == trailer),
            "the reader takes the trailer as it was meant, or nobody opens the file again: {trailer:?}"
        );
        let bytes = self.blocks.finish(&encoded)?;
        Ok(WrittenFile {
            path: self.path,
            entries: self.stats.entries,
            bytes,
            first_key: last_key.is_some().then(|| KeyRef::trusted(&self.first_key).to_key()),
            last_key,
            max_seq_id: meta.max_seq_id,
            max_mvcc: self.stats.max_mvcc,
            time_range: self.stats.time_range(),
            delete_family_count: self.stats.delete_families,
        })
    }

    fn last_key(&self) -> Option<KeyRef<'_>> {
        self.block.last_key().or_else(|| {
            let key = &self.previous_block_last_key;
            (!key.is_empty()).then(|| KeyRef::trusted(key))
        })
    }

    /// HBase: `HFileWriterImpl.checkBlockBoundary`.
    fn block_is_full(&self) -> bool {
        let (options, block) = (&self.options, &self.block);
        let encoded_max = (options.block_size as f32 * options.encoded_block_size_ratio) as usize;
        if encoded_max > 0 {
            return block.encoded_len() >= encoded_max;
        }
        block.plain_len() >= options.block_size || block.encoded_len() >= options.block_size
    }

    /// How `key` differs from the last one.
    fn compare_with_last(&self, key: KeyRef<'_>) -> Result<Change> {
        let Some(last) = self.last_key() else { return Ok(Change::Row) };
        if self.options.comparator.compare_rows(last.row(), key.row()).is_lt() {
            return Ok(Change::Row);
        }
        if last.bytes() == key.bytes() {
            return Ok(Change::None);
        }
        if self.options.comparator.compare_keys(last, key).is_gt() {
            let path = self.path.display();
            return Err(Error::corrupt(format!("{path}: cells out of order: {key:?} comes after {last:?}")));
        }
        if last.row() != key.row() {
            Ok(Change::Row)
        } else if last.qualifier() != key.qualifier() {
            Ok(Change::Column)
        } else {
            Ok(Change::Version)
        }
    }

    fn add_to_blooms(&mut self, cell: &CellRef<'_>, key: KeyRef<'_>, change: Change) {
        if let Some(bloom) = &mut self.general_bloom {
            match self.options.bloom {
                BloomType::RowCol if matches!(change, Change::Row | Change::Column) => {
                    row_col_key(&mut self.bloom_key, key.row(), key.qualifier());
                    bloom.add(&self.bloom_key);
                }
                BloomType::Row if change == Change::Row => bloom.add(key.row()),
                BloomType::RowPrefixFixedLength(len) if change == Change::Row => {
                    bloom.add(&key.row()[..key.row().len().min(usize::from(len))]);
                }
                _ => {}
            }
        }
        let code = cell.type_code();
        if code == CellType::DeleteFamily as u8 || code == CellType::DeleteFamilyVersion as u8 {
            self.stats.delete_families += 1;
            if let Some(bloom) = &mut self.delete_bloom {
                bloom.add(key.row());
            }
        }
    }

    /// Writes the open block.
    fn close_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let encoded = self.options.encoding != BlockEncoding::None;
        let place = self.blocks.write_data_block(self.block.finish(), encoded)?;
        self.first_data_block.get_or_insert(place.offset);
        self.last_data_block = Some(place.offset);
        self.data_blocks_count += 1;
        let first = self.block.first_key();
        let key = separator(self.options.comparator, &self.previous_block_last_key, first);
        let (comparator, last) = (self.options.comparator, &self.previous_block_last_key);
        invariant!(
            comparator.compare_keys(key.get(), first).is_le()
                && (last.is_empty() || comparator.compare_keys(KeyRef::trusted(last), key.get()).is_lt()),
            "an index key is behind the block before and not behind its own block: {key:?}"
        );
        invariant!(
            self.block.last_key().is_some_and(|last| comparator.compare_keys(first, last).is_le()),
            "cells came in order, so a block that begins with {first:?} ends there or behind"
        );
        self.index.add(key.get().bytes(), place);
        self.previous_block_last_key.clear();
        if let Some(last) = self.block.last_key() {
            self.previous_block_last_key.extend_from_slice(last.bytes());
        }
        self.block.clear(4 * self.options.block_size);
        Ok(())
    }

    /// Writes index and bloom blocks that are full.
    fn write_full_inline_blocks(&mut self) -> Result<()> {
        self.index.write_full_leaf(&mut self.blocks)?;
        for bloom in [&mut self.general_bloom, &mut self.delete_bloom].into_iter().flatten() {
            bloom.write_full_chunks(&mut self.blocks)?;
        }
        Ok(())
    }

    fn write_bloom_roots(&mut self) -> Result<()> {
        let keys_count = |bloom: &Option<BloomWriter>| bloom.as_ref().map_or(0, BloomWriter::keys_count);
        let (keys, markers) = (keys_count(&self.general_bloom), keys_count(&self.delete_bloom));
        assert!(
            keys <= self.stats.entries && markers <= self.stats.delete_families,
            "a filter has the keys of the cells and no others: {keys} of {} cells, {markers} of {} markers",
            self.stats.entries,
            self.stats.delete_families
        );
        assert!(
            self.general_bloom.is_none() || (keys > 0) == (self.stats.entries > 0),
            "the first cell is a new row, so a filter beside {} cells has a key: {keys}",
            self.stats.entries
        );
        let roots = [
            (BlockKind::GeneralBloomMeta, &self.general_bloom),
            (BlockKind::DeleteFamilyBloomMeta, &self.delete_bloom),
        ];
        for (kind, bloom) in roots {
            if let Some(bloom) = bloom.as_ref().filter(|b| b.keys_count() > 0) {
                self.blocks.write_block(kind, &bloom.meta())?;
            }
        }
        Ok(())
    }

    /// Fills in what `append_file_info` has not said.
    fn complete_file_info(&mut self, meta: &FileMeta, last_key: Option<&Key>) {
        let given = std::mem::take(&mut self.info);
        let info = &mut self.info;
        self.stats.describe(info);
        if let Some(key) = last_key {
            info.put(name::LAST_KEY.as_bytes(), key.get().bytes());
        }
        info.put_i64(name::CREATE_TIME, self.options.create_time_ms.expect("create filled it in"));
        if self.options.include_tags {
            info.put_i32(name::MAX_TAGS_LEN, self.stats.max_tags_len as i32);
            let compressed = self.options.compress_tags && self.options.encoding != BlockEncoding::None;
            info.put(name::TAGS_COMPRESSED.as_bytes(), &boolean(compressed));
        }
        if self.options.include_mvcc {
            info.put_i32(name::KEY_VALUE_VERSION, 1);
            info.put_i64(name::MAX_MEMSTORE_TS, self.stats.max_mvcc.get() as i64);
        }
        if let Some(seq_id) = meta.max_seq_id {
            info.put_i64(name::MAX_SEQ_ID, seq_id.get() as i64);
        }
        info.put(name::MAJOR_COMPACTION.as_bytes(), &boolean(meta.major_compaction));
        if meta.exclude_from_minor_compaction {
            info.put(name::EXCLUDE_FROM_MINOR.as_bytes(), &boolean(true));
        }
        info.put(name::HISTORICAL.as_bytes(), &boolean(false));
        if self.options.encoding != BlockEncoding::None {
            info.put(name::DATA_BLOCK_ENCODING.as_bytes(), self.options.encoding.name().as_bytes());
        }
        match meta.mob_cells_count {
            Some(count) => info.put_i64(name::MOB_CELLS_COUNT, count as i64),
            None => info.put_compaction_event(&meta.compacted_from),
        }
        if let Some(bloom) = self.general_bloom.as_ref().filter(|b| b.keys_count() > 0) {
            info.put(name::BLOOM_TYPE.as_bytes(), self.options.bloom.name().as_bytes());
            if let BloomType::RowPrefixFixedLength(len) = self.options.bloom {
                info.put(name::BLOOM_PARAM.as_bytes(), &u32::from(len).to_be_bytes());
            }
            info.put(name::LAST_BLOOM_KEY.as_bytes(), bloom.last_key());
        }
        info.put_all(given);
    }

    fn trailer(
        &self,
        load_on_open_offset: BlockOffset,
        file_info_offset: BlockOffset,
        index: &WrittenIndex,
    ) -> FileTrailerProto {
        let uncompressed_bytes =
            self.blocks.uncompressed_bytes() - self.uncounted_bytes + trailer::TRAILER_LEN as u64;
        let or_none = |offset: Option<BlockOffset>| Some(offset.map_or(u64::MAX, BlockOffset::get)); // -1 as HBase writes it
        FileTrailerProto {
            file_info_offset: Some(file_info_offset.get()),
            load_on_open_data_offset: Some(load_on_open_offset.get()),
            uncompressed_data_index_size: Some(index.uncompressed_bytes),
            total_uncompressed_bytes: Some(uncompressed_bytes),
            data_index_count: Some(index.root_entries_count),
            meta_index_count: Some(0),
            entry_count: Some(self.stats.entries),
            num_data_index_levels: Some(index.levels),
            first_data_block_offset: or_none(self.first_data_block),
            last_data_block_offset: or_none(self.last_data_block),
            comparator_class_name: Some(self.options.comparator.trailer_name().to_string()),
            compression_codec: Some(self.options.compression.code()),
            encryption_key: self.wrapped_key.clone().map(Into::into),
        }
    }
}

/// In what a key differs from the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Row,
    Column,
    /// Timestamp or type (or family).
    Version,
    None,
}

fn encoder_options(options: &WriterOptions) -> EncoderOptions {
    EncoderOptions {
        encoding: options.encoding,
        layout: CellLayout { tags: options.include_tags, mvcc: options.include_mvcc, seq: None },
        compress_tags: options.compress_tags,
        comparator: options.comparator,
    }
}

/// A short key that is behind `last` (of the block before, empty for the first block) and not behind `first`; the
/// one that HBase makes (`HFileWriterImpl.getMidpoint`).
fn separator(comparator: CellComparator, last: &[u8], first: KeyRef<'_>) -> Key {
    // Rows of meta sort by their parts: bytes in the middle may be anywhere else in that order.
    if last.is_empty() || comparator == CellComparator::Meta {
        return first.to_key();
    }
    let last = KeyRef::trusted(last);
    if last.row() != first.row() {
        Key::first_on_row(&between(last.row(), first.row()))
    } else if last.family() != first.family() {
        Key::first_on_column(first.row(), &between(last.family(), first.family()), b"")
    } else if last.qualifier() != first.qualifier() {
        Key::first_on_column(first.row(), first.family(), &between(last.qualifier(), first.qualifier()))
    } else {
        first.to_key()
    }
}

/// A short name above `low` and not above `high`; `low` must be below `high`.
fn between(low: &[u8], high: &[u8]) -> Vec<u8> {
    let common = low.iter().zip(high).take_while(|(l, h)| l == h).count();
    let next = low.get(common).map_or(0, |&byte| byte + 1); // below `high`'s byte, so it is not ff
    let name = [&high[..common], &[next]].concat();
    invariant!(
        low < &name[..] && &name[..] <= high,
        "{} lies above {} and not above {}, or a seek goes to the wrong block",
        name.escape_ascii(),
        low.escape_ascii(),
        high.escape_ascii()
    );
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_lie_between() {
        let c = CellComparator::Default;
        let keys = [
            Key::new(b"row000013", b"f", b"q", 5, CellType::Put),
            Key::new(b"row000014-x", b"f", b"q", 5, CellType::Put),
            Key::new(b"row000014-xy", b"f", b"q", 5, CellType::Put),
            Key::new(b"row000014-xy", b"f", b"q\0", 5, CellType::Put),
            Key::new(b"row000014-xy", b"f", b"qz", 5, CellType::Put),
            Key::new(b"row000014-xy", b"f", b"qz", 4, CellType::Put),
            Key::new(b"row000014-xy", b"g", b"a", 4, CellType::Put),
        ];
        for pair in keys.windows(2) {
            let key = separator(c, pair[0].get().bytes(), pair[1].get());
            KeyRef::parse(key.get().bytes()).unwrap();
            assert!(c.compare_keys(pair[0].get(), key.get()).is_lt(), "{key:?}");
            assert!(c.compare_keys(key.get(), pair[1].get()).is_le(), "{key:?}");
        }
        let made = separator(c, keys[0].get().bytes(), keys[1].get());
        assert_eq!(made, Key::first_on_row(b"row000014"));
    }
}
