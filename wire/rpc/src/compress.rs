//! Compression of whole cell blocks, in the stream forms of Hadoop's codecs.
//!
//! ```text
//! SnappyCodec, Lz4Codec  ( int32 raw length | ( int32 compressed length | bytes )* until raw length is reached )*
//! GzipCodec              one gzip stream
//! DefaultCodec           one zlib stream
//! ```

use std::io::{Read, Write};

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use halcyon_cell::{Error, Result};

use crate::unpack::Stopped;

/// What is read of a stream at first, and at least.
const STREAM_STEP_BYTES: usize = 4 << 10;
/// Raw bytes per compressed piece. Hadoop's decompressors have buffers of 256 KiB.
const PIECE_BYTES: usize = 128 << 10;

/// A compression that both ends of a connection use for cell blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    Snappy,
    Lz4,
    Gzip,
    Deflate,
}

impl Compressor {
    /// The compressor of a Java class name, Hadoop's own or one of HBase's `io.compress` modules.
    pub fn of_class(class: &str) -> Option<Compressor> {
        let (package, name) = class.rsplit_once('.')?;
        if package != "org.apache.hadoop.io.compress"
            && !package.starts_with("org.apache.hadoop.hbase.io.compress.")
        {
            return None;
        }
        Some(match name {
            "SnappyCodec" => Compressor::Snappy,
            "Lz4Codec" => Compressor::Lz4,
            "GzipCodec" | "ReusableStreamGzipCodec" => Compressor::Gzip,
            "DefaultCodec" | "DeflateCodec" => Compressor::Deflate,
            _ => return None,
        })
    }

    pub fn compress(self, raw: &[u8]) -> Bytes {
        const IN_MEMORY: &str = "writing to a Vec cannot fail";
        match self {
            Compressor::Snappy => {
                let mut encoder = snap::raw::Encoder::new();
                in_pieces(raw, |piece| encoder.compress_vec(piece).expect("a piece is short"))
            }
            Compressor::Lz4 => in_pieces(raw, lz4_flex::block::compress),
            Compressor::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(raw).expect(IN_MEMORY);
                Bytes::from(encoder.finish().expect(IN_MEMORY))
            }
            Compressor::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(raw).expect(IN_MEMORY);
                Bytes::from(encoder.finish().expect(IN_MEMORY))
            }
        }
    }

    /// The raw bytes; `Corrupt` if the stream is damaged or holds more than `raw_bytes_max`.
    pub fn decompress(self, compressed: &[u8], raw_bytes_max: usize) -> Result<Bytes> {
        self.unpack(compressed, raw_bytes_max, &mut |_| true).map_err(|stopped| match stopped {
            Stopped::Corrupt(error) => error,
            Stopped::TooLong(_) | Stopped::NoRoom => {
                Error::corrupt(format!("a cell block of more than {raw_bytes_max} bytes"))
            }
        })
    }

    /// As [`Compressor::decompress`]. Asks for `room` before it makes as many raw bytes more.
    pub(crate) fn unpack(
        self,
        compressed: &[u8],
        raw_bytes_max: usize,
        room: &mut dyn FnMut(usize) -> bool,
    ) -> std::result::Result<Bytes, Stopped> {
        match self {
            Compressor::Snappy => of_pieces(compressed, raw_bytes_max, room, |piece, left| {
                let raw_len = snap::raw::decompress_len(piece).map_err(|e| Error::corrupt(e.to_string()))?;
                if raw_len > left {
                    return Err(Error::corrupt("a snappy piece is longer than its block says"));
                }
                snap::raw::Decoder::new().decompress_vec(piece).map_err(|e| Error::corrupt(e.to_string()))
            }),
            Compressor::Lz4 => of_pieces(compressed, raw_bytes_max, room, |piece, left| {
                // LZ4 yields at most 255 bytes per compressed byte.
                let left = left.min(piece.len().saturating_mul(255));
                lz4_flex::block::decompress(piece, left).map_err(|e| Error::corrupt(e.to_string()))
            }),
            Compressor::Gzip => {
                let told = gzip_raw_len(compressed);
                bounded(MultiGzDecoder::new(compressed), told, raw_bytes_max, room)
            }
            Compressor::Deflate => {
                bounded(ZlibDecoder::new(compressed), compressed.len() * 4, raw_bytes_max, room)
            }
        }
    }
}

fn in_pieces(raw: &[u8], mut compress: impl FnMut(&[u8]) -> Vec<u8>) -> Bytes {
    let mut out = BytesMut::with_capacity(raw.len() / 2 + 16);
    for piece in raw.chunks(PIECE_BYTES) {
        let compressed = compress(piece);
        out.put_u32(piece.len() as u32);
        out.put_u32(u32::try_from(compressed.len()).expect("a compressed piece is short"));
        out.put_slice(&compressed);
    }
    out.freeze()
}

fn of_pieces(
    mut rest: &[u8],
    raw_bytes_max: usize,
    room: &mut dyn FnMut(usize) -> bool,
    mut decompress: impl FnMut(&[u8], usize) -> Result<Vec<u8>>,
) -> std::result::Result<Bytes, Stopped> {
    let mut out = Vec::new();
    while !rest.is_empty() {
        let raw_len = take_u32(&mut rest)?;
        let end = out.len().saturating_add(raw_len);
        if end > raw_bytes_max {
            return Err(Stopped::TooLong(raw_bytes_max));
        }
        if !room(raw_len) {
            return Err(Stopped::NoRoom);
        }
        while out.len() < end {
            let len = take_u32(&mut rest)?;
            let piece = rest.get(..len).ok_or_else(|| Error::corrupt("a compressed piece is cut short"))?;
            rest = &rest[len..];
            let raw = decompress(piece, end - out.len())?;
            if raw.is_empty() || raw.len() > end - out.len() {
                let text = "a compressed piece does not have the length its block says";
                return Err(Error::corrupt(text).into());
            }
            out.extend_from_slice(&raw);
        }
    }
    Ok(Bytes::from(out))
}

fn take_u32(rest: &mut &[u8]) -> Result<usize> {
    let (first, tail) =
        rest.split_first_chunk().ok_or_else(|| Error::corrupt("a compressed block is cut short"))?;
    *rest = tail;
    Ok(u32::from_be_bytes(*first) as usize)
}

/// What the end of a gzip stream says of its raw length, which may be wrong, and is that of its last member only.
fn gzip_raw_len(compressed: &[u8]) -> usize {
    compressed.last_chunk().map_or(0, |len| u32::from_le_bytes(*len) as usize)
}

/// Reads a stream that is expected to have `told` bytes.
fn bounded(
    mut stream: impl Read,
    told: usize,
    raw_bytes_max: usize,
    room: &mut dyn FnMut(usize) -> bool,
) -> std::result::Result<Bytes, Stopped> {
    let (mut out, mut len) = (Vec::new(), 0);
    // One byte more than there may be tells that there are too many.
    let len_max = raw_bytes_max.saturating_add(1);
    loop {
        if len == out.len() {
            if len > raw_bytes_max {
                return Err(Stopped::TooLong(raw_bytes_max));
            }
            // As large as is told, then doubled.
            let wanted = if len == 0 { told.saturating_add(1) } else { len };
            let more = wanted.max(STREAM_STEP_BYTES).min(len_max - len);
            if !room(more) {
                return Err(Stopped::NoRoom);
            }
            out.reserve_exact(more);
            out.resize(len + more, 0);
        }
        match stream.read(&mut out[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::corrupt(format!("compressed cell block: {error}")).into()),
        }
    }
    if len > raw_bytes_max {
        return Err(Stopped::TooLong(raw_bytes_max));
    }
    out.truncate(len);
    Ok(Bytes::from(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compressor; 4] = [Compressor::Snappy, Compressor::Lz4, Compressor::Gzip, Compressor::Deflate];

    #[test]
    fn every_size_comes_back_and_the_limit_holds() {
        for compressor in ALL {
            for len in [0, 1, 1000, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7] {
                let raw: Vec<u8> = (0..len).map(|i| (i / 7 % 251) as u8).collect();
                let compressed = compressor.compress(&raw);
                assert_eq!(&compressor.decompress(&compressed, len).unwrap()[..], &raw[..], "{compressor:?}");
                if len > 0 {
                    assert!(compressor.decompress(&compressed, len - 1).is_err(), "{compressor:?} {len}");
                }
            }
        }
    }

    /// A bomb is found out by what it asks for, not by what it has become.
    #[test]
    fn nothing_is_made_without_room() {
        let raw = vec![7; 40 << 20];
        for compressor in ALL {
            let (compressed, mut asked) = (compressor.compress(&raw), 0);
            let unpacked = compressor.unpack(&compressed, usize::MAX / 2, &mut |bytes| {
                asked += bytes;
                asked <= 2 << 20
            });
            assert!(matches!(unpacked, Err(Stopped::NoRoom)), "{compressor:?}");
            let mut asked = 0;
            let unpacked = compressor.unpack(&compressed, usize::MAX / 2, &mut |bytes| {
                asked += bytes;
                true
            });
            assert_eq!(unpacked.unwrap().len(), raw.len());
            assert!(
                (raw.len()..2 * raw.len() + STREAM_STEP_BYTES).contains(&asked),
                "{compressor:?}: {asked}"
            );
        }
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let raw: Vec<u8> = (0..5000u32).map(|i| (i * i / 13) as u8).collect();
        for compressor in ALL {
            let good = compressor.compress(&raw);
            for at in 0..good.len().min(400) {
                let mut bad = good.to_vec();
                bad[at] ^= 0x41;
                let _ = compressor.decompress(&bad, 1 << 20);
                let _ = compressor.decompress(&good[..at], 1 << 20);
            }
        }
    }

    #[test]
    fn classes_of_hadoop_and_hbase_are_known_and_others_are_not() {
        assert_eq!(
            Compressor::of_class("org.apache.hadoop.io.compress.SnappyCodec"),
            Some(Compressor::Snappy)
        );
        let ours = "org.apache.hadoop.hbase.io.compress.aircompressor.Lz4Codec";
        assert_eq!(Compressor::of_class(ours), Some(Compressor::Lz4));
        assert_eq!(Compressor::of_class("org.apache.hadoop.io.compress.ZStandardCodec"), None);
        assert_eq!(Compressor::of_class("evil.SnappyCodec"), None);
        assert_eq!(Compressor::of_class(""), None);
    }
}
