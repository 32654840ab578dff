//! The section between the blocks that are read when asked for and the trailer: everything a file needs in
//! memory while it is open.

use bytes::Bytes;
use halcyon_cache::{BlockKind, BlockOffset};
use halcyon_cell::{CellComparator, Error, Result};

use crate::BloomType;
use crate::block::{BlockSource, Header, RawBlock, open_block};
use crate::block_writer::BlockPlace;
use crate::bloom::Bloom;
use crate::file_info::{FileInfo, name};
use crate::format::Reader;
use crate::index::{KeyOrder, RootIndex};
use crate::trailer::Trailer;

/// Sections up to this size are read at once. An ordinary file's root index and bloom roots are far smaller.
const SECTION_BYTES_AT_ONCE_MAX: u64 = 4 << 20;

/// The section, parsed and checked.
pub(crate) struct LoadOnOpen {
    pub(crate) info: FileInfo,
    /// The root data index.
    pub(crate) root: RootIndex,
    /// Leaf block of the middle data block and the entry in it; only with several levels.
    pub(crate) middle: Option<(BlockPlace, u32)>,
    pub(crate) general_bloom: Option<Bloom>,
    pub(crate) delete_bloom: Option<Bloom>,
}

impl LoadOnOpen {
    /// `end_bytes` are the last ones of the file, with those of the trailer.
    pub(crate) fn read(source: &BlockSource, trailer: &Trailer, end_bytes: &[u8]) -> Result<LoadOnOpen> {
        let named = |e: Error| e.context(source.file.path().display());
        let mut section =
            Section::at(source, trailer.proto.load_on_open_data_offset(), trailer.len, end_bytes)?;
        let data_root = section.expect(BlockKind::RootIndex)?;
        section.expect(BlockKind::RootIndex)?; // of meta blocks, which store files do not have
        let info = section.expect(BlockKind::FileInfo)?;
        let mut open = Self::of_index_and_info(&data_root, &info, trailer).map_err(named)?;
        while section.offset.get() < source.end {
            let offset = section.offset;
            let block = section.next()?;
            open.take_bloom(&block, trailer).map_err(|e| e.context(source.place(offset)))?;
        }
        Ok(open)
    }

    fn of_index_and_info(data_root: &Bytes, info: &Bytes, trailer: &Trailer) -> Result<LoadOnOpen> {
        let mut info = FileInfo::parse(info)?;
        check_encodings(&info)?;
        let order = KeyOrder::Cells(trailer.comparator);
        let root = RootIndex::parse(data_root, 0, trailer.proto.data_index_count(), order)
            .map_err(|e| e.context("root data index"))?;
        info.entry_count = trailer.proto.entry_count();
        info.first_key = (root.len() > 0).then(|| Bytes::copy_from_slice(root.key(0)));
        if (root.len() == 0) != (info.entry_count == 0) {
            let (blocks, cells) = (root.len(), info.entry_count);
            return Err(Error::corrupt(format!("found {cells} cells and {blocks} root index entries")));
        }
        let middle = parse_middle(data_root, root.end, trailer.proto.num_data_index_levels())?;
        Ok(LoadOnOpen { info, root, middle, general_bloom: None, delete_bloom: None })
    }

    fn take_bloom(&mut self, block: &RawBlock, trailer: &Trailer) -> Result<()> {
        match block.header.kind {
            BlockKind::GeneralBloomMeta => {
                let row_col = self.info.bloom_type() == BloomType::RowCol;
                let mut bloom = Bloom::parse(&block.payload, row_col.then_some(trailer.comparator))?;
                if trailer.comparator == CellComparator::Default {
                    bloom.set_last_key(self.info.get(name::LAST_BLOOM_KEY))?;
                }
                self.general_bloom = Some(bloom);
            }
            BlockKind::DeleteFamilyBloomMeta => {
                self.delete_bloom = Some(Bloom::parse(&block.payload, None)?);
            }
            found => {
                return Err(Error::corrupt(format!("expected a bloom meta block, found {found:?}")));
            }
        }
        Ok(())
    }
}

/// Walks the blocks of the load-on-open section.
struct Section<'a> {
    source: &'a BlockSource,
    /// Where the next block starts.
    offset: BlockOffset,
    /// The section's first bytes, from `start`; empty if it is large.
    bytes: Vec<u8>,
    start: u64,
}

impl<'a> Section<'a> {
    fn at(source: &'a BlockSource, start: u64, trailer_len: usize, end_bytes: &[u8]) -> Result<Section<'a>> {
        let Some(len) = source.end.checked_sub(start) else {
            let message = format!("load-on-open offset: expected at most {}, found {start}", source.end);
            return Err(Error::corrupt(message).context(source.file.path().display()));
        };
        let known = &end_bytes[..end_bytes.len() - trailer_len];
        let bytes = match known.len() as u64 {
            known_len if len <= known_len => known[(known_len - len) as usize..].to_vec(),
            _ => {
                let mut bytes = vec![0; if len <= SECTION_BYTES_AT_ONCE_MAX { len as usize } else { 0 }];
                source.file.read_exact_at(&mut bytes, start)?;
                bytes
            }
        };
        Ok(Section { source, offset: BlockOffset::new(start), bytes, start })
    }

    /// The payload of the next block, which must be of this kind.
    fn expect(&mut self, kind: BlockKind) -> Result<Bytes> {
        let offset = self.offset;
        let block = self.next()?;
        if block.header.kind != kind {
            let message = format!("expected a {kind:?} block, found {:?}", block.header.kind);
            return Err(Error::corrupt(message).context(self.source.place(offset)));
        }
        Ok(block.payload)
    }

    fn next(&mut self) -> Result<RawBlock> {
        let block = if self.bytes.is_empty() {
            let header = self.source.read_header(self.offset)?;
            self.source.read(self.offset, header.on_disk_len as u32, header.kind)?
        } else {
            self.open_buffered().map_err(|e| e.context(self.source.place(self.offset)))?
        };
        self.offset = self.offset.after(block.header.on_disk_len as u64);
        assert!(
            self.offset.get() <= self.source.end,
            "a block was checked against the end of the section, {}, and ends at {}",
            self.source.end,
            self.offset
        );
        Ok(block)
    }

    fn open_buffered(&self) -> Result<RawBlock> {
        let rest = &self.bytes[(self.offset.get() - self.start) as usize..];
        let header = Header::parse(rest)?;
        let bytes = rest.get(..header.on_disk_len).ok_or_else(|| {
            Error::corrupt(format!("on-disk size: expected {}, found {}", header.on_disk_len, rest.len()))
        })?;
        open_block(bytes.to_vec(), self.source.compression, self.source.key.as_ref())
    }
}

fn check_encodings(info: &FileInfo) -> Result<()> {
    let known: [(&str, &[&[u8]]); 2] = [
        (name::DATA_BLOCK_ENCODING, &[b"NONE", b"PREFIX", b"DIFF", b"FAST_DIFF", b"ROW_INDEX_V1"]),
        (name::INDEX_BLOCK_ENCODING, &[b"NONE"]),
    ];
    for (key, names) in known {
        if let Some(found) = info.get(key).filter(|found| !names.contains(&found.as_ref())) {
            return Err(Error::invalid(format!("{key} {} is not supported", found.escape_ascii())));
        }
    }
    Ok(())
}

/// `int64 leaf offset | int32 leaf on-disk size | int32 entry in that leaf` behind the root entries, if the
/// index has several levels. The trailer has no checksum: were its count of entries too small, cells would be
/// missing without a word, so nothing else may be left.
fn parse_middle(payload: &[u8], at: usize, levels: u32) -> Result<Option<(BlockPlace, u32)>> {
    let mut reader = Reader::new(&payload[at..]);
    let mut middle = None;
    if levels > 1 && reader.left() > 0 {
        let offset = reader.i64("mid-key leaf offset")?;
        let offset = u64::try_from(offset).map_err(|_| {
            Error::corrupt(format!("mid-key leaf offset: expected a position, found {offset}"))
        })?;
        let on_disk_len = reader.count("mid-key leaf size")?;
        middle = Some((
            BlockPlace { offset: BlockOffset::new(offset), on_disk_len },
            reader.count("mid-key entry")?,
        ));
    }
    match reader.left() {
        0 => Ok(middle),
        left => Err(Error::corrupt(format!("root data index: expected its end, found {left} more bytes"))),
    }
}
