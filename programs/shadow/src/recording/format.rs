//! The records of a recording, and their bytes. See `FORMAT.md`.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_schema::TableName;
use prost::Message;

use crate::read::{Answer, Cells, Part, Read, ScanRead, Xxh3Sum};

/// How a file begins.
pub(crate) const MAGIC: &[u8; 8] = b"HALSHAD1";
/// The form of the records.
pub(crate) const VERSION: u32 = 1;
/// `u32 length | u32 checksum`
pub(crate) const PREFIX_LEN: usize = 8;
/// No record is longer.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;
/// No batch has more gets.
const GETS_MAX: usize = 1 << 20;

/// The first record of each file.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Header {
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
    /// When the recording began, in milliseconds since 1970. Equal in all files of one recording.
    #[prost(int64, tag = "2")]
    pub(crate) started_ms: i64,
    /// The cluster, as the user named it.
    #[prost(string, tag = "3")]
    pub(crate) cluster: String,
    /// The part of all reads that was recorded, 0 to 1.
    #[prost(double, tag = "4")]
    pub(crate) sample: f64,
    /// Cells of answers are in the recording.
    #[prost(bool, tag = "5")]
    pub(crate) has_answers: bool,
    /// The values of these cells are checksums.
    #[prost(bool, tag = "6")]
    pub(crate) has_hashed_values: bool,
    /// Number of the file, from 1.
    #[prost(uint32, tag = "7")]
    pub(crate) file: u32,
}

/// Every other record: a read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Record {
    /// Microseconds from the beginning of the recording to that of the read.
    #[prost(uint64, tag = "1")]
    pub(crate) at_us: u64,
    /// Microseconds that the server took, in all calls together.
    #[prost(uint64, tag = "2")]
    pub(crate) took_us: u64,
    /// The server as `host:port`.
    #[prost(string, tag = "3")]
    pub(crate) server: String,
    /// Names of the regions.
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(crate) regions: Vec<Bytes>,
    /// One get, or those of a batch.
    #[prost(message, repeated, tag = "5")]
    pub(crate) gets: Vec<RecordedGet>,
    #[prost(bool, tag = "6")]
    pub(crate) is_batch: bool,
    #[prost(message, optional, tag = "7")]
    pub(crate) scan: Option<RecordedScan>,
    /// A part for each get, or one.
    #[prost(message, repeated, tag = "8")]
    pub(crate) answer: Vec<RecordedPart>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RecordedGet {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) table: Bytes,
    #[prost(message, required, tag = "2")]
    pub(crate) get: pb::Get,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RecordedScan {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) table: Bytes,
    #[prost(message, required, tag = "2")]
    pub(crate) scan: pb::Scan,
    /// Rows for each call.
    #[prost(uint32, optional, tag = "3")]
    pub(crate) caching: Option<u32>,
    /// Rows after which the client stopped.
    #[prost(uint32, optional, tag = "4")]
    pub(crate) limit: Option<u32>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) calls: Vec<RecordedCall>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct RecordedCall {
    /// Microseconds after the opening.
    #[prost(uint64, tag = "1")]
    pub(crate) after_us: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) took_us: u64,
    #[prost(uint32, tag = "3")]
    pub(crate) rows: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RecordedPart {
    #[prost(uint64, tag = "1")]
    pub(crate) cells_count: u64,
    /// 16 bytes over all cells; empty of an answer without cells.
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) sum: Bytes,
    /// KeyValues of the first cells, with `has_answers`.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub(crate) cells: Vec<Bytes>,
    #[prost(bool, optional, tag = "4")]
    pub(crate) exists: Option<bool>,
    /// Simple class of an exception.
    #[prost(string, optional, tag = "5")]
    pub(crate) failed: Option<String>,
}

/// A read as it comes out of a recording.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) at_us: u64,
    pub(crate) took_us: u64,
    pub(crate) read: Read,
    pub(crate) answer: Answer,
    /// Length of its record.
    pub(crate) bytes: usize,
}

/// A record as it is in a file. `None` if it would be too long.
pub(crate) fn encode(record: &impl Message) -> Option<Bytes> {
    let len = record.encoded_len();
    if len > RECORD_BYTES_MAX {
        return None;
    }
    let mut out = BytesMut::with_capacity(PREFIX_LEN + len);
    out.put_u32(len as u32);
    out.put_u32(0);
    record.encode(&mut out).expect("a BytesMut grows");
    let checksum = crc32c::crc32c(&out[PREFIX_LEN..]);
    out[4..PREFIX_LEN].copy_from_slice(&checksum.to_be_bytes());
    Some(out.freeze())
}

/// The length that a prefix tells, and the checksum. `InvalidData` if no record is so long.
pub(crate) fn parse_prefix(prefix: &[u8; PREFIX_LEN]) -> io::Result<(usize, u32)> {
    let len = u32::from_be_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]) as usize;
    let checksum = u32::from_be_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]);
    if len > RECORD_BYTES_MAX {
        return Err(damaged(format!("a record of {len} bytes")));
    }
    Ok((len, checksum))
}

/// A record of these bytes, which have this checksum.
pub(crate) fn decode<M: Message + Default>(bytes: Bytes, checksum: u32) -> io::Result<M> {
    let found = crc32c::crc32c(&bytes);
    if found != checksum {
        return Err(damaged(format!("checksum {found:08x}, expected {checksum:08x}")));
    }
    M::decode(bytes).map_err(|error| damaged(error.to_string()))
}

pub(crate) fn damaged(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl RecordedPart {
    pub(crate) fn of(part: &Part, with_cells: bool) -> RecordedPart {
        match part {
            Part::Exists(exists) => RecordedPart { exists: Some(*exists), ..Default::default() },
            Part::Failed(class) => RecordedPart { failed: Some(class.clone()), ..Default::default() },
            Part::Cells(cells) => RecordedPart {
                cells_count: cells.count,
                sum: Bytes::copy_from_slice(&cells.sum().0.to_be_bytes()),
                cells: match with_cells {
                    true => cells.kept.iter().map(|cell| cell.bytes().clone()).collect(),
                    false => Vec::new(),
                },
                ..Default::default()
            },
        }
    }

    fn part(self) -> io::Result<Part> {
        if let Some(class) = self.failed {
            return Ok(Part::Failed(class));
        }
        if let Some(exists) = self.exists {
            return Ok(Part::Exists(exists));
        }
        let sum = <[u8; 16]>::try_from(&self.sum[..])
            .map_err(|_| damaged("a checksum has 16 bytes".to_string()))?;
        if self.cells.len() as u64 > self.cells_count {
            return Err(damaged("more cells than were counted".to_string()));
        }
        let cells = self.cells.into_iter().map(|bytes| Cell::parse(bytes, 0));
        let cells = cells.collect::<Result<Vec<_>, _>>().map_err(|error| damaged(error.to_string()))?;
        Ok(Part::Cells(Cells::recorded(self.cells_count, Xxh3Sum(u128::from_be_bytes(sum)), cells)))
    }
}

impl Record {
    /// Gets of a read.
    pub(crate) fn gets_of(read: &Read) -> (Vec<RecordedGet>, bool, Option<RecordedScan>) {
        let recorded = |table: &TableName, get: &pb::Get| RecordedGet {
            table: table.full_name().clone(),
            get: get.clone(),
        };
        match read {
            Read::Get(table, get) => (vec![recorded(table, get)], false, None),
            Read::Multi(gets) => (gets.iter().map(|(table, get)| recorded(table, get)).collect(), true, None),
            Read::Scan(table, read) => {
                let (caching, limit) = (read.caching, read.limit);
                let (table, scan) = (table.full_name().clone(), read.scan.clone());
                (Vec::new(), false, Some(RecordedScan { table, scan, caching, limit, calls: Vec::new() }))
            }
        }
    }

    /// The read; `InvalidData` if there is none, or its parts do not fit.
    pub(crate) fn into_recorded(self) -> io::Result<Recorded> {
        let bytes = self.encoded_len();
        let table = |name: &Bytes| TableName::parse(name).map_err(|error| damaged(error.to_string()));
        let is_scan = self.scan.is_some();
        let read = match (self.scan, self.gets.len()) {
            (Some(scan), 0) => {
                let read = ScanRead { scan: scan.scan, caching: scan.caching, limit: scan.limit };
                Read::Scan(table(&scan.table)?, read)
            }
            (None, 1) if !self.is_batch => {
                let get = self.gets.into_iter().next().expect("there is one");
                Read::Get(table(&get.table)?, get.get)
            }
            (None, 1..=GETS_MAX) if self.is_batch => {
                let gets = self.gets.into_iter().map(|get| Ok((table(&get.table)?, get.get)));
                Read::Multi(gets.collect::<io::Result<_>>()?)
            }
            (_, gets) => return Err(damaged(format!("a record with {gets} gets, scan: {is_scan}"))),
        };
        let rows_are_short = match &read {
            Read::Get(_, get) => row_is_valid(&get.row),
            Read::Multi(gets) => gets.iter().all(|(_, get)| row_is_valid(&get.row)),
            Read::Scan(..) => true,
        };
        let wanted = if let Read::Multi(gets) = &read { gets.len() } else { 1 };
        if !rows_are_short || self.answer.len() != wanted {
            return Err(damaged(format!(
                "{} answers to {wanted} gets, or a row that is none",
                self.answer.len()
            )));
        }
        let parts = self.answer.into_iter().map(RecordedPart::part).collect::<io::Result<_>>()?;
        Ok(Recorded { at_us: self.at_us, took_us: self.took_us, read, answer: Answer { parts }, bytes })
    }
}

fn row_is_valid(row: &[u8]) -> bool {
    (1..=halcyon_cell::ROW_LEN_MAX).contains(&row.len())
}
