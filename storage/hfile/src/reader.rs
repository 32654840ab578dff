//! An open file: trailer, roots and file info in memory, blocks through the cache.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cache::{
    Block, BlockCache, BlockKind, BlockOffset, BlockPriority, CachedFile, FileIdentity, FromFile,
};
use halcyon_cell::{CellComparator, Error, Key, KeyRef, Result, SeqId};
use halcyon_env::{BlockHosts, Env, Keys, ReadableFile, invariant};
use halcyon_schema::BlockEncoding;

use crate::BloomType;
use crate::block::{BlockSource, RawBlock};
use crate::block_writer::BlockPlace;
use crate::bloom::{Bloom, row_col_key};
use crate::data_block::{self, CellLayout};
use crate::encoding::{RowIndex, Runs, check_runs, encoding_of};
use crate::file_info::FileInfo;
use crate::index::{BlockLoader, IndexShape, KeyOrder, RootIndex, check_node};
use crate::load_on_open::LoadOnOpen;
use crate::read_mode::ReadMode;
use crate::trailer::{self, Trailer};

/// How a file is read.
#[derive(Clone, Copy, Debug)]
pub struct ReaderOptions {
    /// Whether data blocks go into the cache (`BLOCKCACHE` of the family). Index and bloom blocks always do.
    pub cache_data: bool,
    /// Whether data blocks are as dear as index blocks (`IN_MEMORY` of the family).
    pub in_memory: bool,
    /// Gives every cell this sequence id, whatever the file says: the id of a bulk-loaded file.
    pub cell_seq: Option<SeqId>,
}

impl Default for ReaderOptions {
    fn default() -> ReaderOptions {
        ReaderOptions { cache_data: true, in_memory: false, cell_seq: None }
    }
}

/// Kinds of blocks that are to be in the cache before anybody reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheKinds {
    pub data: bool,
    pub index: bool,
    pub bloom: bool,
}

impl CacheKinds {
    pub const NONE: CacheKinds = CacheKinds { data: false, index: false, bloom: false };
    pub const ALL: CacheKinds = CacheKinds { data: true, index: true, bloom: true };

    fn contains(self, kind: BlockKind) -> bool {
        match kind {
            BlockKind::Data => self.data,
            BlockKind::LeafIndex | BlockKind::IntermediateIndex => self.index,
            BlockKind::BloomChunk => self.bloom,
            _ => false, // in memory as long as the file is open
        }
    }
}

/// An open HFile.
///
/// *Thread safety*: shared by any number of readers; nothing in it changes after `open`. The file stays
/// readable after its name is gone, as long as this lives. Its blocks stay in the cache when it is dropped, for who
/// opens the file again; who removes a file for good also calls [`CachedFile::retire`].
pub struct HFile {
    len: u64,
    source: BlockSource,
    blocks: CachedFile,
    options: ReaderOptions,
    trailer: Trailer,
    info: FileInfo,
    layout: CellLayout,
    root: RootIndex,
    /// Leaf block of the middle data block and the entry in it; only with several levels.
    middle: Option<(BlockPlace, u32)>,
    general_bloom: Option<Bloom>,
    delete_bloom: Option<Bloom>,
}

/// How much of a file's end is read at first: the trailer, and with most files all that is loaded when they are opened.
const END_LEN: usize = 32 << 10;

impl HFile {
    /// Opens a file: reads trailer and load-on-open section from the disk and checks them.
    ///
    /// Errors: `Corrupt`; `Invalid` for what is sound but not supported (some codecs, format 2.0 and 2.1), and for a file
    /// whose key cannot be unwrapped; `Io`.
    pub fn open(
        env: &Env,
        path: &Path,
        cache: &Arc<BlockCache>,
        options: ReaderOptions,
    ) -> Result<Arc<HFile>> {
        HFile::of_file(env.fs.open(path)?, &env.keys, cache, options)
    }

    /// As [`HFile::open`], of a file that is open.
    pub fn of_file(
        file: Arc<dyn ReadableFile>,
        keys: &Keys,
        cache: &Arc<BlockCache>,
        options: ReaderOptions,
    ) -> Result<Arc<HFile>> {
        let path = file.path().clone();
        let named = |e: Error| e.context(path.display());
        let len = file.len()?;
        let mut end_bytes = vec![0; len.min(END_LEN as u64) as usize];
        let end_offset = len - end_bytes.len() as u64;
        file.read_exact_at(&mut end_bytes, end_offset)?;
        let tail = &end_bytes[end_bytes.len().saturating_sub(trailer::TRAILER_LEN)..];
        let trailer = trailer::parse(tail).map_err(named)?;
        let key = trailer.wrapped_key().map(|wrapped| keys.unwrap(wrapped)).transpose().map_err(named)?;
        let end = len - trailer.len as u64;
        let source = BlockSource { file, end, compression: trailer.compression, key };
        let LoadOnOpen { info, root, middle, general_bloom, delete_bloom } =
            LoadOnOpen::read(&source, &trailer, &end_bytes)?;
        let layout = CellLayout {
            tags: info.has_tags(),
            mvcc: info.has_mvcc(),
            seq: options.cell_seq.filter(|_| !info.skips_reset_of_seq_ids()),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into();
        let identity = FileIdentity { name, len, stamp: stamp(tail, &root, &info) };
        Ok(Arc::new(HFile {
            blocks: cache.open_file(identity, &path),
            len,
            source,
            options,
            trailer,
            info,
            layout,
            root,
            middle,
            general_bloom,
            delete_bloom,
        }))
    }

    pub fn info(&self) -> &FileInfo {
        &self.info
    }

    pub fn path(&self) -> &Path {
        self.source.file.path()
    }

    /// The file's blocks in the cache.
    pub fn blocks(&self) -> &CachedFile {
        &self.blocks
    }

    /// Bytes of the file.
    #[allow(clippy::len_without_is_empty)] // a file has at least a trailer
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of the file that are on a machine of this name; all of them if the file is on this machine.
    pub fn bytes_at(&self, host: &str) -> u64 {
        let Some(blocks) = self.source.file.block_hosts() else { return self.len };
        let is_there = |block: &&BlockHosts| block.hosts.iter().any(|name| name == host);
        blocks.iter().filter(is_there).map(|block| block.len_bytes).sum::<u64>().min(self.len)
    }

    /// Bytes of the file's blocks before compression, with headers.
    pub fn uncompressed_len(&self) -> u64 {
        self.trailer.proto.total_uncompressed_bytes()
    }

    /// Bytes of memory that the open file takes: roots of index and bloom filters. For the memory accountant.
    pub fn held_bytes(&self) -> usize {
        let blooms = [&self.general_bloom, &self.delete_bloom].into_iter().flatten();
        size_of::<HFile>() + self.root.held_bytes() + blooms.map(|b| b.chunks.held_bytes()).sum::<usize>()
    }

    /// Bytes of memory that the root of the data index takes.
    pub fn root_index_bytes(&self) -> u64 {
        self.root.held_bytes() as u64
    }

    /// Bytes of all levels of the data index before compression.
    pub fn data_index_bytes(&self) -> u64 {
        self.trailer.proto.uncompressed_data_index_size()
    }

    /// Bytes of the bloom filter for rows or columns; 0 if there is none.
    pub fn bloom_bytes(&self) -> u64 {
        self.general_bloom.as_ref().map_or(0, |bloom| bloom.size_bytes)
    }

    pub fn comparator(&self) -> CellComparator {
        self.trailer.comparator
    }

    /// `false` only if the file has no cell of `row` (of its prefix, with such a filter). `true` without filter.
    pub fn may_contain_row(&self, row: &[u8], mode: ReadMode) -> Result<bool> {
        match (self.info.bloom_type(), &self.general_bloom) {
            (BloomType::Row, Some(bloom)) => self.may_contain(bloom, row, mode),
            (BloomType::RowPrefixFixedLength(len), Some(bloom)) => {
                self.may_contain(bloom, &row[..row.len().min(usize::from(len))], mode)
            }
            _ => Ok(true),
        }
    }

    /// `false` only if the file has no row that starts with `prefix`; for scans whose rows all start so. Always
    /// `true` unless there is a prefix filter and `prefix` is at least as long as its keys.
    pub fn may_contain_row_prefix(&self, prefix: &[u8], mode: ReadMode) -> Result<bool> {
        match self.info.bloom_type() {
            BloomType::RowPrefixFixedLength(len) if prefix.len() >= usize::from(len) => {
                self.may_contain_row(prefix, mode)
            }
            _ => Ok(true),
        }
    }

    /// `false` only if the file has neither a cell of the column nor a marker that deletes the row's family.
    pub fn may_contain_row_col(&self, row: &[u8], qualifier: &[u8], mode: ReadMode) -> Result<bool> {
        let (BloomType::RowCol, Some(bloom)) = (self.info.bloom_type(), &self.general_bloom) else {
            return self.may_contain_row(row, mode);
        };
        let mut key = Vec::with_capacity(row.len() + qualifier.len() + 12);
        row_col_key(&mut key, row, qualifier);
        if self.may_contain(bloom, &key, mode)? {
            return Ok(true);
        }
        // A family delete marker was added as a column without name.
        row_col_key(&mut key, row, b"");
        self.may_contain(bloom, &key, mode)
    }

    /// `false` only if the file has no marker that deletes (a version of) the row's family.
    pub fn may_contain_delete_family(&self, row: &[u8], mode: ReadMode) -> Result<bool> {
        if self.info.delete_family_count() == Some(0) {
            return Ok(false);
        }
        match &self.delete_bloom {
            Some(bloom) => self.may_contain(bloom, row, mode),
            None => Ok(true),
        }
    }

    /// A key near the middle of the file, between two blocks; `None` in a file without cells. It need not be
    /// a stored cell's, but there is one at or behind it.
    pub fn mid_key(&self, mode: ReadMode) -> Result<Option<Key>> {
        if self.root.len() == 0 {
            return Ok(None);
        }
        let Some((place, entry)) = self.middle else {
            return Ok(Some(KeyRef::trusted(self.root.key(self.root.len() / 2)).to_key()));
        };
        let block = self.load_block(place, BlockKind::LeafIndex, mode, true)?;
        crate::index::leaf_key(&block, entry)
            .map(|key| Some(key.to_key()))
            .map_err(|e| e.context(self.source.place(place.offset)))
    }

    /// Puts blocks of the file into the cache, from its beginning on, while `go_on` says so and until the cache is
    /// nearly full: then what is read by someone would have to go for what perhaps nobody reads. Reads the whole file
    /// (what is to be skipped by its headers). *Blocking*. Returns the number of blocks in the cache if it came to the
    /// end of the file.
    pub fn fill_cache(&self, kinds: CacheKinds, go_on: impl Fn() -> bool) -> Result<Option<usize>> {
        let end = BlockOffset::new(self.trailer.proto.load_on_open_data_offset());
        let mut offset = BlockOffset::ZERO;
        let mut count = 0;
        if kinds == CacheKinds::NONE {
            return Ok(None);
        }
        while offset < end {
            if self.blocks.cache().is_nearly_full() || !go_on() {
                return Ok(None);
            }
            let header = self.source.read_header(offset)?;
            let place = BlockPlace { offset, on_disk_len: header.on_disk_len as u32 };
            count += usize::from(kinds.contains(header.kind));
            if kinds.contains(header.kind) && !self.blocks.is_in_memory(offset) {
                let block = match self.blocks.get_from_file(offset, true) {
                    FromFile::Found(block) => block,
                    _ => Arc::new(self.read_block(place, header.kind)?),
                };
                self.keep_block(offset, block);
            }
            offset = offset.after(header.on_disk_len as u64);
        }
        Ok(Some(count))
    }

    fn keep_block(&self, offset: BlockOffset, block: Arc<Block>) {
        assert!(
            offset.get() < self.source.end,
            "a block is kept under its place in the file, whose blocks end at {}: {offset}",
            self.source.end
        );
        let dear = block.kind().is_index_or_bloom() || self.options.in_memory;
        let priority = if dear { BlockPriority::High } else { BlockPriority::Normal };
        self.blocks.insert(offset, block, priority);
    }

    pub(crate) fn source(&self) -> &BlockSource {
        &self.source
    }

    pub(crate) fn layout(&self) -> CellLayout {
        self.layout
    }

    pub fn trailer(&self) -> &Trailer {
        &self.trailer
    }

    pub(crate) fn root(&self) -> &RootIndex {
        &self.root
    }

    /// The bloom filter for rows or columns, and the one for markers that delete families.
    pub(crate) fn blooms(&self) -> [Option<&Bloom>; 2] {
        [self.general_bloom.as_ref(), self.delete_bloom.as_ref()]
    }

    /// Levels of the index, the root included.
    pub fn index_levels(&self) -> usize {
        self.trailer.proto.num_data_index_levels().max(1) as usize
    }

    fn may_contain(&self, bloom: &Bloom, key: &[u8], mode: ReadMode) -> Result<bool> {
        if bloom.is_behind_last(key) {
            return Ok(false);
        }
        let chunk = if bloom.order == KeyOrder::Bytes && self.comparator() == CellComparator::Meta {
            // Chunks follow the order of cells, in which meta's rows are not sorted as bytes.
            if bloom.chunks.len() > 1 {
                return Ok(true);
            }
            bloom.chunks.len()
        } else {
            bloom.chunks.count_while(|k| bloom.order.compare(k, key).is_le())
        };
        let Some(chunk) = chunk.checked_sub(1) else { return Ok(false) };
        let block = self.load_block(bloom.chunks.place(chunk), BlockKind::BloomChunk, mode, true)?;
        Ok(bloom.chunk_may_contain(block.bytes(), key))
    }

    /// A checked block, from the cache or the disk. `keep` says whether it may go into the cache.
    pub(crate) fn load_block(
        &self,
        place: BlockPlace,
        kind: BlockKind,
        mode: ReadMode,
        keep: bool,
    ) -> Result<Arc<Block>> {
        self.find_block(place, kind, mode, keep).map(|(block, _)| block)
    }

    /// As `load_block`; also whether the block was in no tier of the cache.
    pub(crate) fn find_block(
        &self,
        place: BlockPlace,
        kind: BlockKind,
        mode: ReadMode,
        keep: bool,
    ) -> Result<(Arc<Block>, bool)> {
        if let Some(block) = self.blocks.get(place.offset, kind) {
            return self.expect_kind(block, kind, place).map(|block| (block, false));
        }
        let (block, is_from_disk) = match self.get_from_cache_file(place, kind, mode)? {
            Some(block) => (block, false),
            None => {
                let read = match mode {
                    ReadMode::AnyDisk => self.read_block(place, kind)?,
                    ReadMode::CacheOnly => self.read_resident_block(place, kind)?,
                };
                (Arc::new(read), true)
            }
        };
        if keep && (kind != BlockKind::Data || self.options.cache_data) {
            self.keep_block(place.offset, block.clone());
        }
        Ok((block, is_from_disk))
    }

    /// A data block from the cache's file; blocks of other kinds are never there.
    fn get_from_cache_file(
        &self,
        place: BlockPlace,
        kind: BlockKind,
        mode: ReadMode,
    ) -> Result<Option<Arc<Block>>> {
        if kind != BlockKind::Data {
            return Ok(None);
        }
        match self.blocks.get_from_file(place.offset, mode == ReadMode::AnyDisk) {
            FromFile::Found(block) => self.expect_kind(block, kind, place).map(Some),
            FromFile::NotThere => Ok(None),
            FromFile::NeedsDisk => Err(Error::needs_disk()),
        }
    }

    fn expect_kind(&self, block: Arc<Block>, kind: BlockKind, place: BlockPlace) -> Result<Arc<Block>> {
        if block.kind() == kind {
            return Ok(block);
        }
        let message = format!("expected a {kind:?} block, found {:?} in the cache", block.kind());
        Err(Error::corrupt(message).context(self.source.place(place.offset)))
    }

    /// Reads and checks a block, passing the cache by.
    pub(crate) fn read_block(&self, place: BlockPlace, kind: BlockKind) -> Result<Block> {
        let raw = self.source.read(place.offset, place.on_disk_len, kind)?;
        self.check_block(raw).map_err(|e| e.context(self.source.place(place.offset)))
    }

    /// As `read_block`, unless the disk would have to be waited for.
    fn read_resident_block(&self, place: BlockPlace, kind: BlockKind) -> Result<Block> {
        let raw = self.source.read_resident(place.offset, place.on_disk_len, kind)?;
        let raw = raw.ok_or_else(Error::needs_disk)?;
        self.check_block(raw).map_err(|e| e.context(self.source.place(place.offset)))
    }

    fn check_block(&self, raw: RawBlock) -> Result<Block> {
        let RawBlock { header, payload, held_bytes } = raw;
        let kind = header.kind;
        match kind {
            BlockKind::Data if header.encoded => return self.check_encoded_block(payload, held_bytes),
            BlockKind::Data => {
                let marks = data_block::check(&payload, self.layout, self.comparator(), |_| {})?;
                return Ok(Block::new(kind, payload, marks, held_bytes));
            }
            BlockKind::LeafIndex | BlockKind::IntermediateIndex => check_node(&payload, self.comparator())?,
            BlockKind::BloomChunk if payload.is_empty() => {
                return Err(Error::corrupt("expected a bloom chunk with bits, found none"));
            }
            _ => {}
        }
        Ok(Block::new(kind, payload, Box::new([]), held_bytes))
    }

    /// The block stays as it is, beside what it takes to read it.
    fn check_encoded_block(&self, payload: Bytes, held_bytes: usize) -> Result<Block> {
        if encoding_of(&payload) != Some(BlockEncoding::RowIndexV1) {
            let index = check_runs(&payload, self.layout, self.info.has_compressed_tags())?;
            assert!(
                !index.notes.is_empty(),
                "notes tell a block of runs from one whose cells lie there whole"
            );
            let block = Block::new(BlockKind::Data, payload, index.marks, held_bytes);
            return Ok(block.with_notes(index.notes));
        }
        let mut rows = RowIndex::parse(&payload)?;
        let cells = payload.slice(rows.cells());
        let marks = data_block::check(&cells, self.layout, self.comparator(), |start| rows.see(start))?;
        rows.finish()?;
        Ok(Block::new(BlockKind::Data, cells, marks, held_bytes))
    }

    /// The runs of a data block of differences; `None` if its cells lie there whole.
    pub(crate) fn runs<'b>(&self, block: &'b Block) -> Option<Runs<'b>> {
        invariant!(block.kind() == BlockKind::Data, "a {:?} block has no cells", block.kind());
        (!block.notes().is_empty()).then(|| Runs::of(block.marks(), block.notes()))
    }

    /// The plain cells of one run of a data block, or of the whole block if its cells lie there whole.
    pub(crate) fn plain_cells(&self, block: &Block, run: usize) -> Result<Bytes> {
        match self.runs(block) {
            None => {
                assert_eq!(run, 0, "cells that lie there whole are one run");
                Ok(block.bytes().clone())
            }
            Some(runs) => {
                let cells = runs.cells(block.bytes(), run, self.layout, self.info.has_compressed_tags())?;
                self.blocks.note_decoded(cells.len());
                Ok(cells)
            }
        }
    }
}

impl BlockLoader for HFile {
    #[inline]
    fn shape(&self) -> IndexShape<'_> {
        IndexShape { root: &self.root, levels: self.index_levels(), comparator: self.comparator() }
    }

    fn load_index_block(&self, place: BlockPlace, kind: BlockKind, mode: ReadMode) -> Result<Arc<Block>> {
        self.load_block(place, kind, mode, true)
    }

    fn path(&self) -> &Path {
        HFile::path(self)
    }
}

/// What tells this file from another one of its name and length.
fn stamp(trailer: &[u8], root: &RootIndex, info: &FileInfo) -> u64 {
    let content = crc32c::crc32c_append(crc32c::crc32c(trailer), root.bytes());
    let created = crc32c::crc32c(&info.create_time_ms().unwrap_or(0).to_be_bytes());
    u64::from(content) << 32 | u64::from(created)
}

#[cfg(test)]
mod tests;
