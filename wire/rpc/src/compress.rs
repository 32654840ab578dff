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
        match self {
            Compressor::Snappy => of_pieces(compressed, raw_bytes_max, |piece, room| {
                let raw_len = snap::raw::decompress_len(piece).map_err(|e| Error::corrupt(e.to_string()))?;
                if raw_len > room {
                    return Err(Error::corrupt("a snappy piece is longer than its block says"));
                }
                snap::raw::Decoder::new().decompress_vec(piece).map_err(|e| Error::corrupt(e.to_string()))
            }),
            Compressor::Lz4 => of_pieces(compressed, raw_bytes_max, |piece, room| {
                // LZ4 yields at most 255 bytes per compressed byte.
                let room = room.min(piece.len().saturating_mul(255));
                lz4_flex::block::decompress(piece, room).map_err(|e| Error::corrupt(e.to_string()))
            }),
            Compressor::Gzip => bounded(MultiGzDecoder::new(compressed), raw_bytes_max),
            Compressor::Deflate => bounded(ZlibDecoder::new(compressed), raw_bytes_max),
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
    mut decompress: impl FnMut(&[u8], usize) -> Result<Vec<u8>>,
) -> Result<Bytes> {
    let mut out = Vec::new();
    while !rest.is_empty() {
        let raw_len = take_u32(&mut rest)?;
        let end = out.len().saturating_add(raw_len);
        if end > raw_bytes_max {
            return Err(Error::corrupt(format!("a cell block of more than {raw_bytes_max} bytes")));
        }
        while out.len() < end {
            let len = take_u32(&mut rest)?;
            let piece = rest.get(..len).ok_or_else(|| Error::corrupt("a compressed piece is cut short"))?;
            rest = &rest[len..];
            let raw = decompress(piece, end - out.len())?;
            if raw.is_empty() || raw.len() > end - out.len() {
                return Err(Error::corrupt("a compressed piece does not have the length its block says"));
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

fn bounded(stream: impl Read, raw_bytes_max: usize) -> Result<Bytes> {
    let mut out = Vec::new();
    let read = stream.take(raw_bytes_max as u64 + 1).read_to_end(&mut out);
    read.map_err(|e| Error::corrupt(format!("compressed cell block: {e}")))?;
    if out.len() > raw_bytes_max {
        return Err(Error::corrupt(format!("a cell block of more than {raw_bytes_max} bytes")));
    }
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
