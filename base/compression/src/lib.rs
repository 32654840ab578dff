//! HBase's codecs (`Compression.Algorithm`): one call for blocks of HFiles, values of WALs and blocks of foreign files.
//!
//! SNAPPY, LZ4, LZO, LZMA and BROTLI come in Hadoop's block framing, which exists because Hadoop's codecs have a fixed buffer:
//!
//! ```text
//! ( int32 raw length | ( int32 compressed length | compressed bytes )+ until raw length is covered )*
//! ```
//!
//! GZ is one gzip stream, BZIP2 one bzip2 stream. A piece of LZMA is a stream of the old `.lzma` format, one of BROTLI a stream. ZSTD
//! is a plain frame, as Hadoop's own codec writes it; HBase's module codec puts frames into the block framing. Neither of the two
//! reads what the other wrote; both are read here, and either is written.

mod lzo;

use std::io::{ErrorKind, Read, Write};

use halcyon_cell::{Error, Result};
use halcyon_schema::Compression;

/// Raw bytes per record of Hadoop's block framing: what fits a decompressor's 256 KiB buffer in the worst case
/// of each codec (Hadoop keeps a sixth and 32 bytes free for SNAPPY, less for the others).
const HADOOP_RECORD_BYTES_MAX: usize = 256 * 1024 * 5 / 6 - 64;
/// Snappy's worst case is the largest of the codecs': a sixth and 32 bytes more than went in.
const _: () = assert!(HADOOP_RECORD_BYTES_MAX + HADOOP_RECORD_BYTES_MAX / 6 + 32 <= 256 * 1024);
const ZSTD_LEVEL: i32 = 3;
/// RFC 1952: deflate, no flags, no time, no system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// Room that deflate is given at least.
const DEFLATE_ROOM: usize = 256;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Levels that HBase's codecs use by default.
const LZMA_PRESET: u32 = 6;
const BROTLI_QUALITY: i32 = 6;
const LZMA_DICTIONARY_BYTES_MIN: u32 = 4096;
/// Memory of one LZMA decompression: what the highest preset of HBase needs, whose dictionary has 64 MiB.
const LZMA_MEMORY_BYTES_MAX: u64 = 80 << 20;
/// bzip2 sorts blocks of this many bytes times its level.
const BZIP2_BLOCK_BYTES: usize = 100_000;
const BROTLI_BUFFER_BYTES: usize = 4096;
/// The low bits of a stream's first byte; RFC 7932 has no window with this code.
const BROTLI_LARGE_WINDOW: u8 = 0x11;
/// What is reserved before any output is there, whatever a length field says.
const RESERVED_BYTES_MAX: usize = 1 << 20;

/// What the number in an HFile's trailer or a WAL's header stands for. `Corrupt` for an unknown one.
pub fn codec_of(code: u32) -> Result<Compression> {
    let known = Compression::ALL.into_iter().find(|codec| codec.code() == code);
    known.ok_or_else(|| Error::corrupt(format!("compression codec: expected 0 to 8, found {code}")))
}

/// Whether this class of HBase's `hbase.io.compress.zstd.codec` puts frames into records: those of HBase's modules do, Hadoop's (the
/// empty name) does not.
pub fn has_zstd_in_records(codec_class: &str) -> bool {
    codec_class.starts_with("org.apache.hadoop.hbase.io.compress.")
}

/// Appends the compressed form of `raw` to `out`. With `zstd_in_records` ZSTD frames go into Hadoop's records. `Invalid` if the
/// codec refuses; what is behind the old end of `out` is undefined then.
pub fn compress(codec: Compression, raw: &[u8], zstd_in_records: bool, out: &mut Vec<u8>) -> Result<()> {
    match codec {
        Compression::None => out.extend_from_slice(raw),
        Compression::Gz => {
            let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            encoder.write_all(raw).and_then(|()| encoder.finish().map(|_| ())).map_err(|e| failed(&e))?;
        }
        Compression::Snappy => {
            let mut encoder = snap::raw::Encoder::new();
            frame(raw, out, snap::raw::max_compress_len, |piece, space| {
                encoder.compress(piece, space).map_err(|e| failed(&e))
            })?;
        }
        Compression::Lz4 => {
            frame(raw, out, lz4_flex::block::get_maximum_output_size, |piece, space| {
                lz4_flex::block::compress_into(piece, space).map_err(|e| failed(&e))
            })?;
        }
        Compression::Lzo => frame_whole(raw, out, |piece, out| {
            lzo::compress(piece, out);
            Ok(())
        })?,
        Compression::Bzip2 => {
            let level = (raw.len() / BZIP2_BLOCK_BYTES + 1).min(9) as u32;
            let mut encoder = bzip2::write::BzEncoder::new(out, bzip2::Compression::new(level));
            encoder.write_all(raw).and_then(|()| encoder.finish().map(|_| ())).map_err(|e| failed(&e))?;
        }
        Compression::Lzma => {
            frame_whole(raw, out, |piece, out| compress_lzma(piece, out).map_err(|e| failed(&e)))?;
        }
        Compression::Brotli => frame_whole(raw, out, |piece, out| {
            let params = brotli::enc::BrotliEncoderParams {
                quality: BROTLI_QUALITY,
                size_hint: piece.len(),
                ..Default::default()
            };
            let mut piece = piece;
            brotli::BrotliCompress(&mut piece, out, &params).map(|_| ()).map_err(|e| failed(&e))
        })?,
        Compression::Zstd if zstd_in_records => {
            frame(raw, out, zstd::zstd_safe::compress_bound, |piece, space| {
                zstd::bulk::compress_to_buffer(piece, space, ZSTD_LEVEL).map_err(|e| failed(&e))
            })?;
        }
        Compression::Zstd => {
            let packed = zstd::bulk::compress(raw, ZSTD_LEVEL).map_err(|e| failed(&e))?;
            out.extend_from_slice(&packed);
        }
    }
    Ok(())
}

/// [`compress`] for many small payloads: GZ and ZSTD keep their working memory, which takes longer to make than a small payload to
/// compress. One thread at a time.
pub struct Compressor {
    codec: Compression,
    zstd_in_records: bool,
    deflate: Option<flate2::Compress>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Compressor {
    pub fn new(codec: Compression, zstd_in_records: bool) -> Compressor {
        Compressor { codec, zstd_in_records, deflate: None, zstd: None }
    }

    /// As [`compress`].
    pub fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self.codec {
            Compression::Gz => self.gzip(raw, out),
            Compression::Zstd => self.zstd(raw, out),
            codec => compress(codec, raw, self.zstd_in_records, out),
        }
    }

    fn gzip(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let level = flate2::Compression::default();
        let deflate = self.deflate.get_or_insert_with(|| flate2::Compress::new(level, false));
        deflate.reset();
        out.extend_from_slice(&GZIP_HEADER);
        loop {
            let left = &raw[deflate.total_in() as usize..];
            out.reserve(left.len() / 8 + DEFLATE_ROOM);
            let status = deflate.compress_vec(left, out, flate2::FlushCompress::Finish);
            if status.map_err(|e| failed(&e))? == flate2::Status::StreamEnd {
                break;
            }
        }
        let mut crc = flate2::Crc::new();
        crc.update(raw);
        out.extend_from_slice(&crc.sum().to_le_bytes());
        out.extend_from_slice(&(raw.len() as u32).to_le_bytes());
        Ok(())
    }

    fn zstd(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(|e| failed(&e))?),
        };
        let bound = zstd::zstd_safe::compress_bound;
        let mut put =
            |piece: &[u8], space: &mut [u8]| zstd.compress_to_buffer(piece, space).map_err(|e| failed(&e));
        if self.zstd_in_records {
            return frame(raw, out, bound, put);
        }
        append_with(out, bound(raw.len()), |space| put(raw, space))
    }
}

fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("compressing a block: {error}"))
}

/// The raw payload. `Corrupt` unless it has exactly `raw_len` bytes.
pub fn decompress(codec: Compression, packed: &[u8], raw_len: usize) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(raw_len.min(RESERVED_BYTES_MAX));
    let failed = |e: &dyn std::fmt::Display| Error::corrupt(format!("{} payload: {e}", codec.name()));
    match codec {
        Compression::None => out.extend_from_slice(packed),
        Compression::Gz => {
            let limit = raw_len as u64 + 1;
            flate2::read::MultiGzDecoder::new(packed)
                .take(limit)
                .read_to_end(&mut out)
                .map_err(|e| failed(&e))?;
        }
        Compression::Snappy => unframe(packed, raw_len, &mut out, |piece, room, out| {
            let len = snap::raw::decompress_len(piece).map_err(|e| failed(&e))?;
            // Snappy copies at most 64 bytes per three: a longer claim is a lie.
            if len > room || len > piece.len().saturating_mul(24) {
                return Err(failed(&format!("a piece claims {len} bytes")));
            }
            append_with(out, len, |space| {
                snap::raw::Decoder::new().decompress(piece, space).map_err(|e| failed(&e))
            })
        })?,
        Compression::Lz4 => unframe(packed, raw_len, &mut out, |piece, room, out| {
            // One byte of LZ4 stands for at most 255.
            let len = room.min(piece.len().saturating_mul(256));
            append_with(out, len, |space| {
                lz4_flex::block::decompress_into(piece, space).map_err(|e| failed(&e))
            })
        })?,
        Compression::Lzo => unframe(packed, raw_len, &mut out, |piece, room, out| {
            lzo::decompress(piece, room, out).map_err(|e| failed(&e))
        })?,
        Compression::Bzip2 => {
            let limit = raw_len as u64 + 1;
            bzip2::read::MultiBzDecoder::new(packed)
                .take(limit)
                .read_to_end(&mut out)
                .map_err(|e| failed(&e))?;
        }
        Compression::Lzma => unframe(packed, raw_len, &mut out, |piece, room, out| {
            decompress_lzma(piece, room, out).map_err(|e| failed(&e))
        })?,
        Compression::Brotli => unframe(packed, raw_len, &mut out, |piece, room, out| {
            decompress_brotli(piece, room, out).map_err(|e| failed(&e))
        })?,
        Compression::Zstd if packed.starts_with(&ZSTD_MAGIC) => {
            decompress_zstd(packed, raw_len, &mut out).map_err(|e| failed(&e))?;
        }
        Compression::Zstd => unframe(packed, raw_len, &mut out, |piece, room, out| {
            decompress_zstd(piece, room, out).map_err(|e| failed(&e))
        })?,
    }
    if out.len() != raw_len {
        return Err(failed(&format!("expected {raw_len} raw bytes, found {} or more", out.len())));
    }
    Ok(out)
}

fn decompress_zstd(packed: &[u8], room: usize, out: &mut Vec<u8>) -> std::io::Result<()> {
    let decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
    decoder.take(room as u64 + 1).read_to_end(out).map(|_| ())
}

/// The dictionary is no larger than the piece: the preset's 8 MiB would be allocated for each.
fn compress_lzma(piece: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    let mut options = liblzma::stream::LzmaOptions::new_preset(LZMA_PRESET)?;
    options.dict_size((piece.len() as u32).next_power_of_two().max(LZMA_DICTIONARY_BYTES_MIN));
    let stream = liblzma::stream::Stream::new_lzma_encoder(&options)?;
    let mut encoder = liblzma::write::XzEncoder::new_stream(out, stream);
    encoder.write_all(piece)?;
    encoder.finish().map(|_| ())
}

fn decompress_lzma(piece: &[u8], room: usize, out: &mut Vec<u8>) -> std::io::Result<()> {
    let stream = liblzma::stream::Stream::new_lzma_decoder(LZMA_MEMORY_BYTES_MAX)?;
    let decoder = liblzma::bufread::XzDecoder::new_stream(piece, stream);
    decoder.take(room as u64 + 1).read_to_end(out).map(|_| ())
}

/// Windows above 16 MiB are an extension of the format that HBase's codec does not read. They are refused because the decoder keeps
/// a window of output before it hands out any: a few bytes could ask for 1 GiB.
fn decompress_brotli(piece: &[u8], room: usize, out: &mut Vec<u8>) -> std::io::Result<()> {
    if piece.first().is_some_and(|first| first & 0x7f == BROTLI_LARGE_WINDOW) {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "a window above 16 MiB"));
    }
    let decoder = brotli::Decompressor::new(piece, piece.len().clamp(1, BROTLI_BUFFER_BYTES));
    decoder.take(room as u64 + 1).read_to_end(out).map(|_| ())
}

/// Appends what `fill` writes into `len` fresh bytes.
fn append_with(out: &mut Vec<u8>, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<()> {
    let start = out.len();
    out.resize(start + len, 0);
    let filled = fill(&mut out[start..])?;
    assert!(filled <= len, "a codec fills the room that it was given: {filled} of {len} bytes");
    out.truncate(start + filled);
    Ok(())
}

/// [`frame_whole`] for a codec that writes into room for its worst case.
fn frame(
    raw: &[u8],
    out: &mut Vec<u8>,
    packed_len_max: impl Fn(usize) -> usize,
    mut compress: impl FnMut(&[u8], &mut [u8]) -> Result<usize>,
) -> Result<()> {
    frame_whole(raw, out, |piece, out| {
        append_with(out, packed_len_max(piece.len()), |space| compress(piece, space))
    })
}

/// Writes Hadoop's block framing, one piece per record. `compress` appends a piece to the output.
fn frame_whole(
    raw: &[u8],
    out: &mut Vec<u8>,
    mut compress: impl FnMut(&[u8], &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    for piece in raw.chunks(HADOOP_RECORD_BYTES_MAX) {
        out.extend_from_slice(&(piece.len() as u32).to_be_bytes());
        let length_at = out.len();
        out.extend_from_slice(&[0; 4]);
        compress(piece, out)?;
        let packed_len = (out.len() - length_at - 4) as u32;
        out[length_at..length_at + 4].copy_from_slice(&packed_len.to_be_bytes());
    }
    Ok(())
}

/// Reads Hadoop's block framing. `decompress` gets a piece, the room left in its record, and the output.
fn unframe(
    packed: &[u8],
    raw_len: usize,
    out: &mut Vec<u8>,
    mut decompress: impl FnMut(&[u8], usize, &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let mut rest = packed;
    // Codecs differ in what they leave behind the last record, or write for an empty payload.
    while !rest.is_empty() && out.len() < raw_len {
        let record_len = take_len(&mut rest, "raw length of a record")?;
        let record_end = out.len() + record_len;
        if record_end > raw_len {
            return Err(Error::corrupt(format!(
                "expected {raw_len} raw bytes, a record ends at {record_end}"
            )));
        }
        while out.len() < record_end {
            let piece_len = take_len(&mut rest, "compressed length of a piece")?;
            let cut =
                || Error::corrupt(format!("expected a piece of {piece_len} bytes, found {}", rest.len()));
            let (piece, behind) = rest.split_at_checked(piece_len).ok_or_else(cut)?;
            rest = behind;
            let before = out.len();
            decompress(piece, record_end - before, out)?;
            if out.len() == before || out.len() > record_end {
                return Err(Error::corrupt(format!(
                    "a piece of a record of {record_len} raw bytes gave {}",
                    out.len() - before
                )));
            }
        }
    }
    Ok(())
}

/// An int32 that counts something: refused below zero.
fn take_len(rest: &mut &[u8], what: &str) -> Result<usize> {
    let cut = || Error::corrupt(format!("{what}: expected 4 bytes, found {}", rest.len()));
    let (len, behind) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let len = i32::from_be_bytes(*len);
    *rest = behind;
    usize::try_from(len).map_err(|_| Error::corrupt(format!("{what}: expected a count, found {len}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(len: usize) -> Vec<u8> {
        let mut state = 1u32;
        (0..len)
            .map(|at| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if at % 7 < 3 { (state >> 24) as u8 } else { b'x' }
            })
            .collect()
    }

    #[test]
    fn payloads_come_back() {
        for (codec, in_records) in
            Compression::ALL.map(|codec| (codec, false)).into_iter().chain([(Compression::Zstd, true)])
        {
            for len in [0, 1, 100, 65_536, 1_000_000] {
                for raw in [sample(len), vec![b'a'; len]] {
                    let mut packed = Vec::new();
                    compress(codec, &raw, in_records, &mut packed).unwrap();
                    assert!(decompress(codec, &packed, len).unwrap() == raw, "{codec:?} {len}");
                    assert!(decompress(codec, &packed, len + 1).is_err());
                    assert!(len <= 1 || decompress(codec, &packed, len - 1).is_err());
                    assert_eq!(codec_of(codec.code()).unwrap(), codec);
                }
            }
        }
    }

    #[test]
    fn a_compressor_is_used_again_and_again() {
        for (codec, in_records) in
            Compression::ALL.map(|codec| (codec, false)).into_iter().chain([(Compression::Zstd, true)])
        {
            let mut compressor = Compressor::new(codec, in_records);
            for len in [100, 0, 1, 70_000, 20, 700_000, 3] {
                for raw in [sample(len), vec![b'a'; len]] {
                    let (mut packed, mut expected) = (b"before".to_vec(), Vec::new());
                    compressor.compress(&raw, &mut packed).unwrap();
                    assert!(decompress(codec, &packed[6..], len).unwrap() == raw, "{codec:?} {len}");
                    compress(codec, &raw, in_records, &mut expected).unwrap();
                    let is_as_long = packed.len() - 6 <= expected.len() + expected.len() / 50 + 16;
                    assert!(is_as_long, "{codec:?} {len}: {} and {}", packed.len() - 6, expected.len());
                }
            }
        }
    }

    #[test]
    fn damaged_payloads_are_refused_or_have_the_right_length() {
        for codec in Compression::ALL {
            let raw = sample(2000);
            let mut packed = Vec::new();
            compress(codec, &raw, false, &mut packed).unwrap();
            for at in 0..packed.len() {
                let _ = decompress(codec, &packed[..at], raw.len());
                let mut bad = packed.clone();
                bad[at] ^= 1 << (at % 8);
                if let Ok(got) = decompress(codec, &bad, raw.len()) {
                    assert_eq!(got.len(), raw.len());
                }
            }
        }
    }

    #[test]
    fn several_pieces_in_one_record_and_zstd_in_block_framing() {
        let mut packed = 6u32.to_be_bytes().to_vec();
        for piece in [b"abc", b"def"] {
            let bytes = snap::raw::Encoder::new().compress_vec(piece).unwrap();
            packed.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            packed.extend_from_slice(&bytes);
        }
        assert_eq!(decompress(Compression::Snappy, &packed, 6).unwrap(), b"abcdef");
        let frame = zstd::bulk::compress(b"abcdef", 1).unwrap();
        let mut packed = 6u32.to_be_bytes().to_vec();
        packed.extend_from_slice(&(frame.len() as u32).to_be_bytes());
        packed.extend_from_slice(&frame);
        assert_eq!(decompress(Compression::Zstd, &packed, 6).unwrap(), b"abcdef");
    }

    /// Streams of HBase's codecs at their highest levels: the dictionary is larger than the block.
    #[test]
    fn large_dictionaries_are_read() {
        let raw = sample(50_000);
        let record = |piece: &[u8]| {
            [&(raw.len() as u32).to_be_bytes(), &(piece.len() as u32).to_be_bytes(), piece].concat()
        };
        let options = liblzma::stream::LzmaOptions::new_preset(9).unwrap();
        let stream = liblzma::stream::Stream::new_lzma_encoder(&options).unwrap();
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
        encoder.write_all(&raw).unwrap();
        let mut lzma = encoder.finish().unwrap();
        assert!(decompress(Compression::Lzma, &record(&lzma), raw.len()).unwrap() == raw);
        lzma[1..5].copy_from_slice(&(1u32 << 30).to_le_bytes()); // the dictionary's size
        assert!(decompress(Compression::Lzma, &record(&lzma), raw.len()).is_err());

        let brotli = |large_window, lgwin| {
            let params =
                brotli::enc::BrotliEncoderParams { quality: 9, large_window, lgwin, ..Default::default() };
            let mut piece = Vec::new();
            brotli::BrotliCompress(&mut &raw[..], &mut piece, &params).unwrap();
            decompress(Compression::Brotli, &record(&piece), raw.len())
        };
        assert!(brotli(false, 24).unwrap() == raw);
        let error = brotli(true, 28).unwrap_err().to_string();
        assert!(error.contains("a window above 16 MiB"), "{error}");
    }
}
