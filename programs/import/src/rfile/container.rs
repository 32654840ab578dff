//! The container of an RFile: Accumulo's BCFile, which comes from Hadoop's TFile.
//!
//! ```text
//! magic | data and index blocks | meta blocks | meta index
//!   version 1:  int64 offset of the meta index | version | magic
//!   version 3:  int32 length | crypto parameters | int64 offset of the meta index | int64 offset of the parameters | version | magic
//! meta index = count ( "data:" name | compression | region )*
//! region     = offset | compressed length | raw length
//! version    = int16 major | int16 minor
//! ```
//!
//! Numbers without a width are those of [`Reader::tfile_vlong`]. Each block is compressed by itself. The meta block
//! `BCFile.index` has the compression of data blocks and a region for each. There are no checksums.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use halcyon_env::ReadableFile;
use halcyon_schema::Compression;

use super::bytes::Reader;
use super::error::{RFileError, Result, damaged};

const MAGIC: [u8; 16] =
    [0xd1, 0x11, 0xd3, 0x68, 0x91, 0xb5, 0xd7, 0xb6, 0x39, 0xdf, 0x41, 0x40, 0x92, 0xba, 0xe1, 0x50];
/// Version and magic.
const TAIL_LEN: u64 = 20;
/// The parameters of a file that is not encrypted (`NoCryptoService.VERSION`).
const NOT_ENCRYPTED: &[u8] = b"U+1F47B";
const META_INDEX_BYTES_MAX: u64 = 16 << 20;
/// Java's longest array, so no block of Accumulo is longer.
const RAW_BLOCK_BYTES_MAX: u64 = i32::MAX as u64;

/// How blocks are compressed. Names are those of `table.file.compress.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// A zlib stream: Accumulo's `gz` is Hadoop's `DefaultCodec` and no gzip.
    Zlib,
    /// As in HFiles.
    Shared(Compression),
}

impl Codec {
    pub(crate) fn of_name(name: &str) -> Result<Codec> {
        Ok(match name {
            "gz" => Codec::Zlib,
            "none" => Codec::Shared(Compression::None),
            "snappy" => Codec::Shared(Compression::Snappy),
            "lz4" => Codec::Shared(Compression::Lz4),
            "zstd" => Codec::Shared(Compression::Zstd),
            "lzo" => Codec::Shared(Compression::Lzo),
            "bzip2" => Codec::Shared(Compression::Bzip2),
            other => {
                return Err(RFileError::Unsupported(format!(
                    "compressed by '{}', which this program does not know",
                    other.escape_default()
                )));
            }
        })
    }

    fn decompress(self, packed: Vec<u8>, raw_len: usize) -> Result<Vec<u8>> {
        match self {
            Codec::Shared(Compression::None) if packed.len() == raw_len => Ok(packed),
            Codec::Shared(codec) => halcyon_compression::decompress(codec, &packed, raw_len)
                .or_else(|error| damaged(error.message().to_string())),
            Codec::Zlib => {
                let mut raw = Vec::new();
                let read = flate2::read::ZlibDecoder::new(&packed[..])
                    .take(raw_len as u64 + 1)
                    .read_to_end(&mut raw);
                read.or_else(|error| damaged(format!("gz payload: {error}")))?;
                if raw.len() != raw_len {
                    return damaged(format!(
                        "gz payload: expected {raw_len} raw bytes, found {} or more",
                        raw.len()
                    ));
                }
                Ok(raw)
            }
        }
    }
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRegion {
    pub(crate) offset: u64,
    pub(crate) packed_len: u64,
    pub(crate) raw_len: u64,
}

impl BlockRegion {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<BlockRegion> {
        let mut number = || Ok::<_, RFileError>(reader.tfile_count()? as u64);
        Ok(BlockRegion { offset: number()?, packed_len: number()?, raw_len: number()? })
    }
}

/// An open container.
pub(crate) struct Container {
    file: Arc<dyn ReadableFile>,
    /// Bytes that blocks can be in: those before the meta index.
    blocks_end: u64,
    metas: BTreeMap<String, (Codec, BlockRegion)>,
    pub(crate) codec: Codec,
    /// Of all data and index blocks, in the order of writing.
    pub(crate) blocks: Vec<BlockRegion>,
}

impl Container {
    pub(crate) fn open(file: Arc<dyn ReadableFile>, len: u64) -> Result<Container> {
        if len < TAIL_LEN + 8 + MAGIC.len() as u64 {
            return damaged(format!("{len} bytes are too few for an RFile"));
        }
        let mut tail = [0; TAIL_LEN as usize];
        file.read_exact_at(&mut tail, len - TAIL_LEN)?;
        if tail[4..] != MAGIC {
            return damaged(
                "it does not end as an RFile does: another kind of file, or not copied to its end",
            );
        }
        let mut head = [0; MAGIC.len()];
        file.read_exact_at(&mut head, 0)?;
        if head != MAGIC {
            return damaged("it does not begin as an RFile does");
        }
        let major = u16::from_be_bytes([tail[0], tail[1]]);
        let blocks_end = match major {
            1 => read_meta_end_1(&*file, len)?,
            3 => read_meta_end_3(&*file, len)?,
            2 => {
                return Err(RFileError::Unsupported(
                    "written with the experimental encryption of Accumulo 1.x (BCFile 2), which Accumulo 2 cannot read either"
                        .to_string(),
                ));
            }
            other => {
                return Err(RFileError::Unsupported(format!(
                    "BCFile version {other}; this program reads 1 and 3"
                )));
            }
        };
        let MetaEnd { index_at, index_end } = blocks_end;
        if index_at >= index_end || index_end - index_at > META_INDEX_BYTES_MAX {
            return damaged(format!("a meta index from {index_at} to {index_end}"));
        }
        let mut index = vec![0; (index_end - index_at) as usize];
        file.read_exact_at(&mut index, index_at)?;
        let metas = read_meta_index(&index).map_err(|error| error.at("meta index"))?;
        let mut container = Container {
            file,
            blocks_end: index_at,
            metas,
            codec: Codec::Shared(Compression::None),
            blocks: Vec::new(),
        };
        let index = container.meta("BCFile.index")?;
        let (codec, blocks) = read_data_index(&index).map_err(|error| error.at("block index"))?;
        (container.codec, container.blocks) = (codec, blocks);
        Ok(container)
    }

    /// A meta block, decompressed.
    pub(crate) fn meta(&self, name: &str) -> Result<Vec<u8>> {
        let Some((codec, region)) = self.metas.get(name) else {
            return damaged(format!("there is no meta block {name}"));
        };
        self.read(*codec, *region).map_err(|error| error.at(format!("meta block {name}")))
    }

    /// A data or index block, decompressed.
    pub(crate) fn block(&self, region: BlockRegion) -> Result<Vec<u8>> {
        self.read(self.codec, region).map_err(|error| error.at(format!("block at {}", region.offset)))
    }

    fn read(&self, codec: Codec, region: BlockRegion) -> Result<Vec<u8>> {
        let BlockRegion { offset, packed_len, raw_len } = region;
        if offset.checked_add(packed_len).is_none_or(|end| end > self.blocks_end) {
            return damaged(format!("a block of {packed_len} bytes ends behind {}", self.blocks_end));
        }
        if raw_len > RAW_BLOCK_BYTES_MAX {
            return damaged(format!("a block of {raw_len} raw bytes"));
        }
        let mut packed = vec![0; packed_len as usize];
        self.file.read_exact_at(&mut packed, offset)?;
        codec.decompress(packed, raw_len as usize)
    }
}

/// Where the meta index begins and ends.
struct MetaEnd {
    index_at: u64,
    index_end: u64,
}

fn read_meta_end_1(file: &dyn ReadableFile, len: u64) -> Result<MetaEnd> {
    let mut bytes = [0; 8];
    let index_end = len - TAIL_LEN - 8;
    file.read_exact_at(&mut bytes, index_end)?;
    Ok(MetaEnd { index_at: u64::from_be_bytes(bytes), index_end })
}

fn read_meta_end_3(file: &dyn ReadableFile, len: u64) -> Result<MetaEnd> {
    const CRYPTO_BYTES_MAX: u64 = 1 << 20;
    let mut bytes = [0; 16];
    let offsets_at = len - TAIL_LEN - 16;
    file.read_exact_at(&mut bytes, offsets_at)?;
    let mut reader = Reader::new(&bytes);
    let (index_at, crypto_at) = (reader.int64()? as u64, reader.int64()? as u64);
    if crypto_at >= offsets_at || offsets_at - crypto_at > CRYPTO_BYTES_MAX {
        return damaged(format!("crypto parameters at {crypto_at} of {len} bytes"));
    }
    let mut crypto = vec![0; (offsets_at - crypto_at) as usize];
    file.read_exact_at(&mut crypto, crypto_at)?;
    let mut reader = Reader::new(&crypto);
    let parameters = reader.counted().map_err(|error| error.at("crypto parameters"))?;
    if parameters != NOT_ENCRYPTED {
        return Err(RFileError::Unsupported(
            "encrypted by a crypto service of Accumulo. This program has no keys: export the table after a compaction \
             without instance.crypto.service, or import it by --instance"
                .to_string(),
        ));
    }
    Ok(MetaEnd { index_at, index_end: crypto_at })
}

fn read_meta_index(bytes: &[u8]) -> Result<BTreeMap<String, (Codec, BlockRegion)>> {
    let mut reader = Reader::new(bytes);
    let count = reader.tfile_count()?;
    let mut metas = BTreeMap::new();
    for _ in 0..count {
        let name = reader.tfile_string()?;
        let Some(name) = name.strip_prefix("data:") else {
            return damaged(format!("an entry is called '{}'", name.escape_default()));
        };
        let codec = Codec::of_name(reader.tfile_string()?)?;
        metas.insert(name.to_string(), (codec, BlockRegion::read(&mut reader)?));
    }
    Ok(metas)
}

fn read_data_index(bytes: &[u8]) -> Result<(Codec, Vec<BlockRegion>)> {
    let mut reader = Reader::new(bytes);
    let codec = Codec::of_name(reader.tfile_string()?)?;
    let count = reader.tfile_count()?;
    let mut blocks = Vec::new();
    for _ in 0..count {
        blocks.push(BlockRegion::read(&mut reader)?); // each takes three bytes at least, so a false count ends soon
    }
    Ok((codec, blocks))
}
