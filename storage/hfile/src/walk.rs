//! What a tool shows of a file: its blocks in the order in which they lie there, past damage, and what index and filters say
//! of themselves.
//!
//! A walk needs no trailer and no index. Where no block begins it looks for the next one by its magic.

use std::path::Path;
use std::sync::Arc;

use halcyon_cache::{BlockKind, BlockOffset};
use halcyon_cell::{CellRef, Error, KeyRef, Result};
use halcyon_env::Env;

use crate::block::{BlockSource, HEADER_LEN, Header, verify_checksums};
use crate::block_writer::BlockPlace;
use crate::data_block::cell_at;
use crate::index::{IndexCursor, KeyOrder};
use crate::reader::HFile;
use crate::trailer::{self, TRAILER_LEN, Trailer};
use crate::{ChecksumType, Compression, ReadMode};

/// Bytes read at once in the search for a block.
const SEARCH_BYTES: usize = 1 << 20;

/// The header of a block, whose fields agree with each other. The rest of the block is not checked.
#[derive(Clone, Copy, Debug)]
pub struct BlockHeader {
    pub offset: u64,
    pub kind: BlockKind,
    /// A data block whose cells are encoded.
    pub encoded: bool,
    /// With header and checksums.
    pub on_disk_bytes: u64,
    /// With header, without checksums.
    pub guarded_bytes: u64,
    /// The payload before compression.
    pub plain_bytes: u64,
    /// Where the block of this kind before it starts; -1 for the first.
    pub previous_offset: i64,
    pub checksum: ChecksumType,
    pub bytes_per_checksum: u64,
}

/// Bytes that are no block.
#[derive(Clone, Debug)]
pub struct Unreadable {
    pub offset: u64,
    pub len: u64,
    /// Names the file and the offset.
    pub error: Error,
}

/// Walks the blocks of a file from its first byte to its trailer.
pub struct BlockWalk {
    source: BlockSource,
    trailer: Result<Trailer>,
    /// Whether payloads can be read: the trailer is right, and the key of an encrypted file is there.
    is_readable: bool,
    at: u64,
}

impl BlockWalk {
    /// Opens a file of which nothing need be right. Error: `Io`.
    pub fn open(env: &Env, path: &Path) -> Result<BlockWalk> {
        let file = env.fs.open(path)?;
        let len = file.len()?;
        let mut tail = vec![0; len.min(TRAILER_LEN as u64) as usize];
        let tail_offset = len - tail.len() as u64;
        file.read_exact_at(&mut tail, tail_offset)?;
        let trailer = trailer::parse(&tail).map_err(|error| error.context(path.display()));
        let (end, compression) = match &trailer {
            Ok(trailer) => (len - trailer.len as u64, trailer.compression),
            Err(_) => (len, Compression::None),
        };
        let wrapped = trailer.as_ref().ok().and_then(|trailer| trailer.wrapped_key());
        let key = wrapped.map(|wrapped| env.keys.unwrap(wrapped)).transpose();
        let is_readable = trailer.is_ok() && key.is_ok();
        let source = BlockSource { file, end, compression, key: key.unwrap_or_default() };
        Ok(BlockWalk { source, trailer, is_readable, at: 0 })
    }

    pub fn trailer(&self) -> Result<&Trailer> {
        self.trailer.as_ref().map_err(Error::clone)
    }

    /// Verifies the checksums of a block. If the trailer says how blocks are compressed, it is decompressed as well, unless the
    /// file is encrypted and its key is missing.
    pub fn check(&self, block: &BlockHeader) -> Result<()> {
        let (offset, len) = (BlockOffset::new(block.offset), block.on_disk_bytes as u32);
        if self.is_readable {
            return self.source.read(offset, len, block.kind).map(|_| ());
        }
        let named = |error: Error| error.context(self.source.place(offset));
        let mut bytes = vec![0; block.on_disk_bytes as usize];
        self.source.file.read_exact_at(&mut bytes, block.offset).map_err(|error| named(error.into()))?;
        Header::parse(&bytes).and_then(|header| verify_checksums(&header, &bytes)).map_err(named)
    }

    /// The offset of the next header behind `from` that makes sense, or the end.
    fn find_block(&self, from: u64) -> Result<u64> {
        let mut at = from;
        while at + HEADER_LEN as u64 <= self.source.end {
            let len = (self.source.end - at).min(SEARCH_BYTES as u64) as usize;
            let mut bytes = vec![0; len];
            self.source.file.read_exact_at(&mut bytes, at)?;
            let starts = bytes.windows(HEADER_LEN).enumerate();
            let mut headers = starts.filter(|(_, bytes)| Header::parse(bytes).is_ok());
            if let Some((start, _)) = headers
                .find(|(start, _)| self.source.read_header(BlockOffset::new(at + *start as u64)).is_ok())
            {
                return Ok(at + start as u64);
            }
            at += (len - HEADER_LEN + 1) as u64;
        }
        Ok(self.source.end)
    }

    fn unreadable(&mut self, error: Error) -> Unreadable {
        let offset = self.at;
        // A file that cannot be read any more ends the walk.
        self.at = self.find_block(offset + 1).unwrap_or(self.source.end);
        Unreadable { offset, len: self.at - offset, error }
    }
}

impl Iterator for BlockWalk {
    type Item = std::result::Result<BlockHeader, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.source.end {
            return None;
        }
        let header = match self.source.read_header(BlockOffset::new(self.at)) {
            Ok(header) => header,
            Err(error) => return Some(Err(self.unreadable(error))),
        };
        let offset = self.at;
        self.at += header.on_disk_len as u64;
        Some(Ok(BlockHeader {
            offset,
            kind: header.kind,
            encoded: header.encoded,
            on_disk_bytes: header.on_disk_len as u64,
            guarded_bytes: header.guarded_len as u64,
            plain_bytes: header.raw_len as u64,
            previous_offset: header.previous_offset,
            checksum: header.checksum,
            bytes_per_checksum: header.bytes_per_checksum as u64,
        }))
    }
}

/// An entry of the index: a key that is not behind its block's first one, and the block.
#[derive(Clone, Copy, Debug)]
pub struct IndexEntry<'a> {
    pub key: KeyRef<'a>,
    pub offset: u64,
    pub on_disk_bytes: u32,
}

/// What a bloom filter says of itself.
#[derive(Clone, Copy, Debug)]
pub struct BloomFacts {
    pub size_bytes: u64,
    pub keys_count: i64,
    /// Keys that it was made for.
    pub keys_max: i64,
    pub chunks_count: usize,
    /// Its keys are columns; else rows or their beginnings.
    pub has_columns: bool,
}

impl HFile {
    /// The entries of the root index. With one level they lead to data blocks, else to index blocks.
    pub fn root_entries(&self) -> impl Iterator<Item = IndexEntry<'_>> {
        let root = self.root();
        (0..root.len()).map(|at| IndexEntry {
            key: KeyRef::trusted(root.key(at)),
            offset: root.place(at).offset.get(),
            on_disk_bytes: root.place(at).on_disk_len,
        })
    }

    /// Gives every data block's index entry to `visit`. *Blocking*.
    pub fn visit_index(self: &Arc<Self>, mut visit: impl FnMut(IndexEntry<'_>)) -> Result<()> {
        let mut cursor = IndexCursor::default();
        let mut more = cursor.seek_to_first(&**self, ReadMode::AnyDisk)?;
        while more {
            let (place, key) = (cursor.place(&**self), cursor.key(&**self));
            visit(IndexEntry {
                key: KeyRef::trusted(&key),
                offset: place.offset.get(),
                on_disk_bytes: place.on_disk_len,
            });
            more = cursor.next(&**self, ReadMode::AnyDisk)?;
        }
        Ok(())
    }

    /// Reads a block from the disk and checks its structure. Gives the cells of a data block to `visit`. *Blocking*.
    pub fn visit_block(&self, block: &BlockHeader, mut visit: impl FnMut(CellRef<'_>)) -> Result<()> {
        let offset = BlockOffset::new(block.offset);
        let place = BlockPlace { offset, on_disk_len: block.on_disk_bytes as u32 };
        let read = self.read_block(place, block.kind)?;
        if block.kind != BlockKind::Data {
            return Ok(());
        }
        for run in 0..self.runs(&read).map_or(1, |runs| runs.count()) {
            let cells =
                self.plain_cells(&read, run).map_err(|error| error.context(self.source().place(offset)))?;
            let mut at = 0;
            while at < cells.len() {
                let span = cell_at(&cells, at, self.layout());
                visit(span.cell(&cells));
                at = span.next;
            }
        }
        Ok(())
    }

    /// The bloom filter for rows or columns, and the one for markers that delete families.
    pub fn bloom_facts(&self) -> [Option<BloomFacts>; 2] {
        self.blooms().map(|bloom| {
            bloom.map(|bloom| BloomFacts {
                size_bytes: bloom.size_bytes,
                keys_count: bloom.keys_count,
                keys_max: bloom.keys_max,
                chunks_count: bloom.chunks.len(),
                has_columns: matches!(bloom.order, KeyOrder::Cells(_)),
            })
        })
    }
}
