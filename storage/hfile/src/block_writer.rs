//! Gives payloads headers and checksums and sends them out through one large buffer.

use halcyon_cache::{BlockKind, BlockOffset};
use halcyon_cell::{Error, Result};
use halcyon_compression::compress;
use halcyon_crypto::{DataKey, Iv, increment_iv};
use halcyon_env::{WritableFile, invariant};

use crate::block::{
    BLOCK_BYTES_MAX, CIPHER_HEAD_LEN, ENCODED_DATA_MAGIC, HEADER_LEN, Header, KINDS_COUNT, kind_index, magic,
};
use crate::{ChecksumType, Compression, WriterOptions};

/// Bytes collected before the file is written to.
const OUT_BYTES: usize = 1 << 20;

/// Where a written block lies: what index entries are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    pub(crate) offset: BlockOffset,
    /// With header and checksums.
    pub(crate) on_disk_len: u32,
}

pub(crate) struct BlockWriter {
    file: Box<dyn WritableFile>,
    out: Vec<u8>,
    /// Bytes that went to the file before `out`.
    written: u64,
    compression: Compression,
    zstd_in_records: bool,
    checksum: ChecksumType,
    bytes_per_checksum: usize,
    previous: [i64; KINDS_COUNT],
    /// Headers included.
    uncompressed_bytes: u64,
    /// With the vector for the next block.
    cipher: Option<(DataKey, Iv)>,
}

impl BlockWriter {
    pub(crate) fn new(
        file: Box<dyn WritableFile>,
        options: &WriterOptions,
        cipher: Option<(DataKey, Iv)>,
    ) -> BlockWriter {
        let WriterOptions { compression, zstd_in_records, checksum, bytes_per_checksum, .. } = *options;
        assert!(
            bytes_per_checksum > 0 && bytes_per_checksum <= i32::MAX as usize,
            "the header has a positive int32 for it: {bytes_per_checksum} bytes per checksum"
        );
        BlockWriter {
            file,
            out: Vec::with_capacity(OUT_BYTES + OUT_BYTES / 4),
            written: 0,
            compression,
            zstd_in_records,
            checksum,
            bytes_per_checksum,
            previous: [-1; KINDS_COUNT],
            uncompressed_bytes: 0,
            cipher,
        }
    }

    /// The offset of the next block.
    pub(crate) fn position(&self) -> BlockOffset {
        BlockOffset::new(self.written + self.out.len() as u64)
    }

    pub(crate) fn uncompressed_bytes(&self) -> u64 {
        self.uncompressed_bytes
    }

    pub(crate) fn write_block(&mut self, kind: BlockKind, payload: &[u8]) -> Result<BlockPlace> {
        self.write(kind, magic(kind), payload)
    }

    /// As `write_block`, for a block of cells; encoded ones have a magic of their own.
    pub(crate) fn write_data_block(&mut self, payload: &[u8], encoded: bool) -> Result<BlockPlace> {
        let magic = if encoded { ENCODED_DATA_MAGIC } else { magic(BlockKind::Data) };
        self.write(BlockKind::Data, magic, payload)
    }

    fn write(&mut self, kind: BlockKind, magic: &[u8; 8], payload: &[u8]) -> Result<BlockPlace> {
        let offset = self.position();
        let start = self.out.len();
        self.out.extend_from_slice(&[0; HEADER_LEN]);
        if self.cipher.is_some() {
            self.out.extend_from_slice(&[0; CIPHER_HEAD_LEN]);
        }
        compress(self.compression, payload, self.zstd_in_records, &mut self.out)?;
        self.encrypt(start);
        let guarded_len = self.out.len() - start;
        let checksums_len = guarded_len.div_ceil(self.bytes_per_checksum) * 4;
        if payload.len().max(guarded_len + checksums_len) > BLOCK_BYTES_MAX {
            return Err(Error::invalid(format!("a block of {} bytes is too large", payload.len())));
        }
        let previous = std::mem::replace(&mut self.previous[kind_index(kind)], offset.get() as i64);
        assert!(
            previous < offset.get() as i64,
            "blocks of a kind follow each other: {offset} after {previous}"
        );
        let header = &mut self.out[start..start + HEADER_LEN];
        header[..8].copy_from_slice(magic);
        let on_disk_len = guarded_len + checksums_len;
        header[8..12].copy_from_slice(&((on_disk_len - HEADER_LEN) as u32).to_be_bytes());
        header[12..16].copy_from_slice(&(payload.len() as u32).to_be_bytes());
        header[16..24].copy_from_slice(&previous.to_be_bytes());
        header[24] = self.checksum.code();
        header[25..29].copy_from_slice(&(self.bytes_per_checksum as u32).to_be_bytes());
        header[29..33].copy_from_slice(&(guarded_len as u32).to_be_bytes());
        self.append_checksums(start);
        let written = self.out.len() - start;
        assert_eq!(written, on_disk_len, "the header and the index promise a block of {on_disk_len} bytes");
        invariant!(
            Header::parse(&self.out[start..]).is_ok_and(|read| {
                (read.kind, read.raw_len) == (kind, payload.len())
                    && (read.on_disk_len, read.guarded_len) == (on_disk_len, guarded_len)
            }),
            "the reader takes a header as it was meant: {kind:?} of {} bytes",
            payload.len()
        );
        self.uncompressed_bytes += (payload.len() + HEADER_LEN) as u64;
        if self.out.len() >= OUT_BYTES {
            self.flush()?;
        }
        Ok(BlockPlace { offset, on_disk_len: on_disk_len as u32 })
    }

    /// Encrypts the payload of the block at `start`. HBase: `HFileBlockDefaultEncodingContext`.
    fn encrypt(&mut self, start: usize) {
        let Some((key, iv)) = &mut self.cipher else { return };
        let head = start + HEADER_LEN;
        if self.out.len() == head + CIPHER_HEAD_LEN {
            self.out.truncate(head + 1); // a 0: nothing is there to encrypt
            return;
        }
        let (head, payload) = self.out[head..].split_at_mut(CIPHER_HEAD_LEN);
        head[0] = iv.len() as u8;
        head[1..].copy_from_slice(iv);
        key.apply(iv, payload);
        increment_iv(iv, HEADER_LEN + CIPHER_HEAD_LEN + payload.len());
    }

    fn append_checksums(&mut self, start: usize) {
        let end = self.out.len();
        let mut at = start;
        while at < end {
            let run_end = end.min(at + self.bytes_per_checksum);
            let sum = self.checksum.compute(&self.out[at..run_end]);
            self.out.extend_from_slice(&sum.to_be_bytes());
            at = run_end;
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_all(&self.out)?;
        self.written += self.out.len() as u64;
        let len = self.file.len();
        assert_eq!(len, self.written, "the offsets in the index count from the file's beginning");
        self.out.clear();
        self.out.shrink_to(2 * OUT_BYTES);
        Ok(())
    }

    /// Writes the trailer behind the last block and makes everything durable. Gives the file's length.
    pub(crate) fn finish(mut self, trailer: &[u8]) -> Result<u64> {
        self.out.extend_from_slice(trailer);
        self.flush()?;
        self.file.sync_and_close()?;
        Ok(self.written)
    }
}
