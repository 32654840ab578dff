//! A block as it lies in the file: header, payload, checksums. This is where bytes become trusted.
//!
//! ```text
//!  0  8 bytes  magic, names the kind
//!  8  int32    on-disk size without header, with checksums
//! 12  int32    uncompressed payload size
//! 16  int64    offset of the previous block of this kind, -1 for the first
//! 24  byte     checksum type: NULL 0, CRC32 1, CRC32C 2
//! 25  int32    bytes per checksum
//! 29  int32    size of header and payload on disk, without checksums
//! 33  payload, compressed if the file is; of an encrypted file ( byte 16 | initialization vector | it, encrypted ), or a
//!     byte 0 if it is empty
//!     ( int32 checksum )* over each run of that many bytes of header and payload as on disk; of type NULL zeros
//! ```

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cache::{BlockKind, BlockOffset};
use halcyon_cell::{Error, Result};
use halcyon_compression::decompress;
use halcyon_crypto::{DataKey, IV_LEN, Iv};
use halcyon_env::ReadableFile;

use crate::Compression;
use crate::format::Reader;

pub(crate) const HEADER_LEN: usize = 33;
/// Magic, on-disk and plain length, previous block, checksum type, bytes per checksum, guarded length.
const _: () = assert!(HEADER_LEN == 8 + 4 + 4 + 8 + 1 + 4 + 4);
/// A block larger than this is refused; the largest cell of HBase's clients is far below.
pub(crate) const BLOCK_BYTES_MAX: usize = i32::MAX as usize;

/// How a block's bytes are guarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumType {
    /// Zeros in place of checksums: the file system's own must do.
    Null,
    /// The polynomial of zlib.
    Crc32,
    /// Castagnoli's polynomial, computed by the processor.
    #[default]
    Crc32c,
}

impl ChecksumType {
    /// By HBase's name of it (`hbase.hstore.checksum.algorithm`).
    pub fn from_name(name: &str) -> Option<ChecksumType> {
        match name {
            "NULL" => Some(ChecksumType::Null),
            "CRC32" => Some(ChecksumType::Crc32),
            "CRC32C" => Some(ChecksumType::Crc32c),
            _ => None,
        }
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            ChecksumType::Null => 0,
            ChecksumType::Crc32 => 1,
            ChecksumType::Crc32c => 2,
        }
    }

    fn from_code(code: u8) -> Result<ChecksumType> {
        match code {
            0 => Ok(ChecksumType::Null),
            1 => Ok(ChecksumType::Crc32),
            2 => Ok(ChecksumType::Crc32c),
            _ => Err(Error::corrupt(format!("checksum type: expected 0, 1 or 2, found {code}"))),
        }
    }

    pub(crate) fn compute(self, bytes: &[u8]) -> u32 {
        match self {
            ChecksumType::Null => 0,
            ChecksumType::Crc32 => crc32fast::hash(bytes),
            ChecksumType::Crc32c => crc32c::crc32c(bytes),
        }
    }
}

const MAGICS: [(&[u8; 8], BlockKind); 9] = [
    (b"DATABLK*", BlockKind::Data),
    (b"IDXLEAF2", BlockKind::LeafIndex),
    (b"BLMFBLK2", BlockKind::BloomChunk),
    (b"IDXINTE2", BlockKind::IntermediateIndex),
    (b"IDXROOT2", BlockKind::RootIndex),
    (b"METABLKc", BlockKind::Meta),
    (b"FILEINF2", BlockKind::FileInfo),
    (b"BLMFMET2", BlockKind::GeneralBloomMeta),
    (b"DFBLMET2", BlockKind::DeleteFamilyBloomMeta),
];
pub(crate) const ENCODED_DATA_MAGIC: &[u8; 8] = b"DATABLKE";
/// Nothing but the magic tells what a block is.
const _: () = {
    let mut at = 0;
    while at < KINDS_COUNT {
        let magic = u64::from_be_bytes(*MAGICS[at].0);
        assert!(magic != u64::from_be_bytes(*ENCODED_DATA_MAGIC));
        let mut behind = at + 1;
        while behind < KINDS_COUNT {
            assert!(magic != u64::from_be_bytes(*MAGICS[behind].0));
            behind += 1;
        }
        at += 1;
    }
};

/// Kinds of blocks, for tables indexed by [`kind_index`].
pub(crate) const KINDS_COUNT: usize = MAGICS.len();

pub(crate) fn kind_index(kind: BlockKind) -> usize {
    MAGICS.iter().position(|m| m.1 == kind).expect("every kind has a magic")
}

pub(crate) fn magic(kind: BlockKind) -> &'static [u8; 8] {
    MAGICS[kind_index(kind)].0
}

/// The header's fields behind the magic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) kind: BlockKind,
    /// A data block whose cells are encoded.
    pub(crate) encoded: bool,
    /// On disk, header and checksums included.
    pub(crate) on_disk_len: usize,
    pub(crate) raw_len: usize,
    /// Where the block of this kind before it starts; -1 for the first.
    pub(crate) previous_offset: i64,
    pub(crate) checksum: ChecksumType,
    pub(crate) bytes_per_checksum: usize,
    /// Header and payload, without checksums.
    pub(crate) guarded_len: usize,
}

impl Header {
    /// Reads a header and holds its fields against each other.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Header> {
        let mut reader = Reader::new(bytes);
        let found: &[u8; 8] = reader.take(8, "block magic")?.try_into().expect("eight bytes");
        let kind = MAGICS.iter().find(|m| m.0 == found).map(|m| m.1);
        let encoded = found == ENCODED_DATA_MAGIC;
        let kind = if encoded { Some(BlockKind::Data) } else { kind };
        let kind = kind.ok_or_else(|| {
            Error::corrupt(format!("expected a block magic, found \"{}\"", found.escape_ascii()))
        })?;
        let on_disk_len = reader.count("on-disk size")? as usize + HEADER_LEN;
        let raw_len = reader.count("uncompressed size")? as usize;
        let previous_offset = reader.i64("previous block offset")?;
        let checksum = ChecksumType::from_code(reader.u8("checksum type")?)?;
        let bytes_per_checksum = reader.count("bytes per checksum")? as usize;
        let guarded_len = reader.count("size with header")? as usize;
        if bytes_per_checksum == 0 {
            return Err(Error::corrupt("bytes per checksum: expected more than 0, found 0"));
        }
        let checksums_len = guarded_len.div_ceil(bytes_per_checksum) * 4;
        if guarded_len < HEADER_LEN || guarded_len + checksums_len != on_disk_len {
            return Err(Error::corrupt(format!(
                "on-disk size: expected {checksums_len} bytes of checksums behind {guarded_len} bytes of \
                 header and payload, found {on_disk_len} in all"
            )));
        }
        Ok(Header {
            kind,
            encoded,
            on_disk_len,
            raw_len,
            previous_offset,
            checksum,
            bytes_per_checksum,
            guarded_len,
        })
    }
}

/// A block whose checksums were verified, payload uncompressed. Its structure is not checked yet.
pub(crate) struct RawBlock {
    pub(crate) header: Header,
    pub(crate) payload: Bytes,
    /// Size of the allocation behind `payload`.
    pub(crate) held_bytes: usize,
}

/// Verifies and decompresses one whole block. `bytes` hold it exactly.
pub(crate) fn open_block(
    mut bytes: Vec<u8>,
    compression: Compression,
    key: Option<&DataKey>,
) -> Result<RawBlock> {
    let header = Header::parse(&bytes)?;
    if header.on_disk_len != bytes.len() {
        return Err(Error::corrupt(format!(
            "on-disk size: expected {}, found {}",
            bytes.len(),
            header.on_disk_len
        )));
    }
    verify_checksums(&header, &bytes)?;
    let start = match key {
        Some(key) => HEADER_LEN + decrypt(key, &mut bytes[HEADER_LEN..header.guarded_len])?,
        None => HEADER_LEN,
    };
    if compression == Compression::None || (header.raw_len == 0 && start == header.guarded_len) {
        if header.raw_len != header.guarded_len - start {
            return Err(Error::corrupt(format!(
                "uncompressed size: expected {}, found {}",
                header.guarded_len - start,
                header.raw_len
            )));
        }
        let held_bytes = bytes.capacity();
        let payload = Bytes::from(bytes).slice(start..header.guarded_len);
        return Ok(RawBlock { header, payload, held_bytes });
    }
    let mut raw = decompress(compression, &bytes[start..header.guarded_len], header.raw_len)?;
    raw.shrink_to_fit();
    let held_bytes = raw.capacity();
    Ok(RawBlock { header, payload: Bytes::from(raw), held_bytes })
}

/// Bytes in front of an encrypted payload: the length of the vector, and the vector.
pub(crate) const CIPHER_HEAD_LEN: usize = 1 + IV_LEN;

/// Decrypts a payload where it lies; returns where it begins. HBase: `HFileBlockDefaultDecodingContext`.
fn decrypt(key: &DataKey, payload: &mut [u8]) -> Result<usize> {
    match payload.first().copied().map(usize::from) {
        // nothing was there to encrypt
        Some(0) if payload.len() == 1 => Ok(1),
        Some(IV_LEN) if payload.len() >= CIPHER_HEAD_LEN => {
            let (head, encrypted) = payload.split_at_mut(CIPHER_HEAD_LEN);
            let iv: Iv = head[1..].try_into().expect("sixteen bytes");
            key.apply(&iv, encrypted);
            Ok(CIPHER_HEAD_LEN)
        }
        found => Err(Error::corrupt(format!(
            "initialization vector: expected {IV_LEN} bytes, found {found:?} in a payload of {}",
            payload.len()
        ))),
    }
}

pub(crate) fn verify_checksums(header: &Header, bytes: &[u8]) -> Result<()> {
    let (guarded, checksums) = bytes.split_at(header.guarded_len);
    if header.checksum == ChecksumType::Null {
        // Another type, if one bit of it fell.
        return match checksums.iter().find(|byte| **byte != 0) {
            Some(found) => Err(Error::corrupt(format!(
                "checksums of type {:?}: expected zeros, found {found:02x}",
                header.checksum
            ))),
            None => Ok(()),
        };
    }
    let runs = guarded.chunks(header.bytes_per_checksum);
    for (at, (run, stored)) in runs.zip(checksums.chunks_exact(4)).enumerate() {
        let stored = u32::from_be_bytes(stored.try_into().expect("four bytes"));
        let computed = header.checksum.compute(run);
        if computed != stored {
            return Err(Error::corrupt(format!(
                "checksum {at} of {:?}: expected {stored:08x}, found {computed:08x}",
                header.checksum
            )));
        }
    }
    Ok(())
}

/// The file that blocks are read from.
pub(crate) struct BlockSource {
    pub(crate) file: Arc<dyn ReadableFile>,
    /// Blocks end here, the trailer starts.
    pub(crate) end: u64,
    pub(crate) compression: Compression,
    /// Of an encrypted file.
    pub(crate) key: Option<DataKey>,
}

impl BlockSource {
    /// Reads the block at `offset`, which the index says takes `on_disk_len` bytes, with one positional read.
    pub(crate) fn read(
        &self,
        offset: BlockOffset,
        on_disk_len: u32,
        expected: BlockKind,
    ) -> Result<RawBlock> {
        let named = |e: Error| e.context(self.place(offset));
        let len = self.check_place(offset, u64::from(on_disk_len)).map_err(named)?;
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset.get()).map_err(|e| named(e.into()))?;
        self.open(bytes, offset, expected)
    }

    /// As `read`; `None` if the bytes are not in the operating system's memory.
    pub(crate) fn read_resident(
        &self,
        offset: BlockOffset,
        on_disk_len: u32,
        expected: BlockKind,
    ) -> Result<Option<RawBlock>> {
        let named = |e: Error| e.context(self.place(offset));
        let len = self.check_place(offset, u64::from(on_disk_len)).map_err(named)?;
        let mut bytes = vec![0; len];
        if !self.file.read_resident_at(&mut bytes, offset.get()).map_err(|e| named(e.into()))? {
            return Ok(None);
        }
        self.open(bytes, offset, expected).map(Some)
    }

    fn open(&self, bytes: Vec<u8>, offset: BlockOffset, expected: BlockKind) -> Result<RawBlock> {
        let named = |e: Error| e.context(self.place(offset));
        let block = open_block(bytes, self.compression, self.key.as_ref()).map_err(named)?;
        if block.header.kind != expected {
            return Err(named(Error::corrupt(format!(
                "expected a {expected:?} block, found {:?}",
                block.header.kind
            ))));
        }
        Ok(block)
    }

    /// The header of the block at `offset` alone: who walks the file from its beginning has no index to ask.
    pub(crate) fn read_header(&self, offset: BlockOffset) -> Result<Header> {
        let named = |e: Error| e.context(self.place(offset));
        self.check_place(offset, HEADER_LEN as u64).map_err(named)?;
        let mut bytes = [0; HEADER_LEN];
        self.file.read_exact_at(&mut bytes, offset.get()).map_err(|e| named(e.into()))?;
        let header = Header::parse(&bytes).map_err(named)?;
        self.check_place(offset, header.on_disk_len as u64).map_err(named)?;
        Ok(header)
    }

    /// Where an error happened.
    pub(crate) fn place(&self, offset: BlockOffset) -> String {
        format!("{}: block at offset {offset}", self.file.path().display())
    }

    fn check_place(&self, offset: BlockOffset, len: u64) -> Result<usize> {
        let fits = offset.get().checked_add(len).is_some_and(|end| end <= self.end);
        if !fits || len < HEADER_LEN as u64 || len > BLOCK_BYTES_MAX as u64 {
            return Err(Error::corrupt(format!(
                "expected a block that ends before {}, found one of {len} bytes",
                self.end
            )));
        }
        Ok(len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::hex;

    #[test]
    fn reads_the_header_that_hbase_wrote() {
        let bytes = hex("4441544142 4c4b2a 00000067 00000063 ffffffffffffffff 02 00004000 00000084");
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(header.kind, BlockKind::Data);
        assert_eq!((header.on_disk_len, header.raw_len, header.guarded_len), (0x67 + 33, 0x63, 0x84));
        assert_eq!((header.checksum, header.bytes_per_checksum), (ChecksumType::Crc32c, 16384));
    }

    #[test]
    fn fields_that_disagree_are_refused() {
        let good = hex("4441544142 4c4b2a 00000067 00000063 ffffffffffffffff 02 00004000 00000084");
        for (at, value) in [(0, b'X'), (8, 0xff), (11, 0x68), (24, 3), (29, 1), (32, 0x85)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(Header::parse(&bad).is_err(), "byte {at}");
        }
        let mut none_per_checksum = good;
        none_per_checksum[25..29].fill(0);
        assert!(Header::parse(&none_per_checksum).is_err());
    }
}
