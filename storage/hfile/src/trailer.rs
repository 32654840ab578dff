//! The fixed trailer: the one part of a file that is found without being told where it is.
//!
//! ```text
//! TRABLK"$ | varint length | FileTrailerProto | zeros up to 4096 bytes in all, less four | version
//! version = minor << 24 | major
//! ```
//!
//! Files of major version 2 have 212 bytes instead; from minor version 2 on their body is the same message.
//! Checked against HBase's `FixedFileTrailer`.

use halcyon_cell::{CellComparator, Error, Result};
use halcyon_compression::codec_of;
use halcyon_proto::pb::FileTrailerProto;
use prost::Message;

use crate::Compression;

pub(crate) const TRAILER_LEN: usize = 4096;
const TRAILER_V2_LEN: usize = 212;
const MAGIC: &[u8; 8] = b"TRABLK\"$";
const MAJOR: u32 = 3;
const MINOR: u32 = 3;
/// How deep an index may claim to be; HBase stops at 16 as well.
const INDEX_LEVELS_MAX: u32 = 16;
/// What the writer makes, the reader takes.
const _: () = assert!(crate::index_writer::LEVELS_MAX <= INDEX_LEVELS_MAX && TRAILER_V2_LEN < TRAILER_LEN);

/// What is in front of the message and behind it is in the shortest trailer.
const _: () = assert!(MAGIC.len() + size_of::<u32>() < TRAILER_V2_LEN);

/// Checked contents of a trailer.
#[derive(Clone, Debug)]
pub struct Trailer {
    /// Its own size in the file.
    pub(crate) len: usize,
    /// Major and minor.
    pub(crate) version: (u32, u32),
    pub(crate) proto: FileTrailerProto,
    pub(crate) comparator: CellComparator,
    pub(crate) compression: Compression,
}

impl Trailer {
    /// Major and minor number of the file's format.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    pub fn message(&self) -> &FileTrailerProto {
        &self.proto
    }

    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// The key of the file, wrapped with the master key; `None`: it is not encrypted.
    pub fn wrapped_key(&self) -> Option<&[u8]> {
        self.proto.encryption_key.as_deref().filter(|key| !key.is_empty())
    }
}

/// The trailer's bytes, padded.
pub(crate) fn encode(proto: &FileTrailerProto) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&proto.encode_length_delimited_to_vec());
    assert!(out.len() <= TRAILER_LEN - 4, "a trailer's message is small");
    out.resize(TRAILER_LEN - 4, 0);
    out.extend_from_slice(&((MINOR << 24) | MAJOR).to_be_bytes());
    out
}

/// Finds the trailer in the last bytes of a file: all of a short one, at least 4096 of any other.
pub(crate) fn parse(tail: &[u8]) -> Result<Trailer> {
    let Some(version) = tail.last_chunk::<4>() else {
        return Err(Error::corrupt(format!("expected a trailer, found a file of {} bytes", tail.len())));
    };
    let version = u32::from_be_bytes(*version);
    let (major, minor) = (version & 0x00ff_ffff, version >> 24);
    let len = match (major, minor) {
        (3, 0..=MINOR) => TRAILER_LEN,
        (2, 2..) => TRAILER_V2_LEN,
        (2, _) => {
            return Err(Error::invalid(format!("HFile version 2.{minor} is too old, 2.2 is the oldest")));
        }
        _ => {
            return Err(Error::corrupt(format!("HFile version: expected 2 or 3, found {major}.{minor}")));
        }
    };
    if tail.len() < len {
        return Err(Error::corrupt(format!("expected a trailer of {len} bytes, found {}", tail.len())));
    }
    let body = &tail[tail.len() - len..tail.len() - 4];
    let message = body.strip_prefix(MAGIC).ok_or_else(|| {
        Error::corrupt(format!("trailer magic: expected TRABLK\"$, found {}", body[..8].escape_ascii()))
    })?;
    let proto = FileTrailerProto::decode_length_delimited(message)
        .map_err(|e| Error::corrupt(format!("trailer message: {e}")))?;
    check(len, (major, minor), proto)
}

fn check(len: usize, version: (u32, u32), proto: FileTrailerProto) -> Result<Trailer> {
    let levels = proto.num_data_index_levels();
    if levels > INDEX_LEVELS_MAX {
        return Err(Error::corrupt(format!(
            "index levels: expected at most {INDEX_LEVELS_MAX}, found {levels}"
        )));
    }
    let comparator = comparator_of(proto.comparator_class_name())?;
    let compression = codec_of(proto.compression_codec())?;
    Ok(Trailer { len, version, proto, comparator, compression })
}

/// The order of cells that HBase calls by this class name.
pub(crate) fn comparator_of(name: &str) -> Result<CellComparator> {
    let short = name.strip_prefix("org.apache.hadoop.hbase.").unwrap_or(name);
    match short {
        "KeyValue$KVComparator" | "CellComparator" | "CellComparatorImpl" | "InnerStoreCellComparator" => {
            Ok(CellComparator::Default)
        }
        "KeyValue$MetaComparator"
        | "CellComparator$MetaCellComparator"
        | "CellComparatorImpl$MetaCellComparator"
        | "MetaCellComparator" => Ok(CellComparator::Meta),
        _ => Err(Error::invalid(format!("HFile with comparator \"{name}\" is no store file"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proto() -> FileTrailerProto {
        FileTrailerProto {
            load_on_open_data_offset: Some(77),
            comparator_class_name: Some(CellComparator::Meta.trailer_name().to_string()),
            compression_codec: Some(3),
            ..Default::default()
        }
    }

    #[test]
    fn comes_back_and_ends_in_the_version() {
        let bytes = encode(&proto());
        assert_eq!((bytes.len(), &bytes[4092..]), (4096, &[3, 0, 0, 3][..]));
        let trailer = parse(&bytes).unwrap();
        assert_eq!(trailer.comparator, CellComparator::Meta);
        assert_eq!(trailer.compression, Compression::Snappy);
        assert_eq!(trailer.proto.load_on_open_data_offset(), 77);
    }

    #[test]
    fn other_versions_and_short_files_are_refused() {
        for len in 0..300 {
            assert!(parse(&vec![0; len]).is_err());
        }
        let mut bytes = encode(&proto());
        bytes[4095] = 4;
        assert!(parse(&bytes).is_err());
        assert!(parse(&encode(&proto())[1..]).is_err());
    }
}
