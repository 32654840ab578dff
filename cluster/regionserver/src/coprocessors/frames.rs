//! Frames on a connection with the JVM: `u32 length | Frame`, see `base/proto/proto/Coprocessor.proto`.
//!
//! Nothing that comes is trusted: lengths are compared with the limit before room is made, cells are parsed before they are
//! used. A connection that carried something else is closed, and the JVM is killed.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use bytes::{Bytes, BytesMut};
use halcyon_cell::Cell;
use halcyon_proto::coprocessor::{Cells, Failure, FamilyOptions, Frame, Method, frame};
use halcyon_region::ScanOptions;
use halcyon_rpc::RpcError;
use halcyon_schema::KeepDeleted;
use prost::Message;

/// Why a connection is of no use any more.
#[derive(Debug)]
pub(super) enum Broken {
    /// The other side has gone, or never answered in time.
    Gone(io::Error),
    /// What came is no frame.
    Garbage(String),
}

impl Broken {
    pub(super) fn is_late(&self) -> bool {
        matches!(self, Broken::Gone(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Gone(error) => write!(f, "the connection is gone: {error}"),
            Broken::Garbage(what) => write!(f, "{what}"),
        }
    }
}

/// Writes one frame. The error of a frame over the limit is the caller's; the connection is as before.
pub(super) fn write(stream: &mut UnixStream, frame: &Frame, bytes_max: usize) -> Result<(), WriteError> {
    let length = frame.encoded_len();
    if length > bytes_max {
        return Err(WriteError::TooLarge(RpcError::do_not_retry(format!(
            "a message of {length} bytes to the JVM of coprocessors; at most {bytes_max} (halcyon.coprocessor.frame.max)"
        ))));
    }
    let mut bytes = BytesMut::with_capacity(4 + length);
    bytes.extend_from_slice(&(length as u32).to_be_bytes());
    frame.encode(&mut bytes).expect("the buffer grows");
    stream.write_all(&bytes).map_err(|error| WriteError::Broken(Broken::Gone(error)))
}

pub(super) enum WriteError {
    TooLarge(RpcError),
    Broken(Broken),
}

/// Reads one frame.
pub(super) fn read(stream: &mut UnixStream, bytes_max: usize) -> Result<Frame, Broken> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(Broken::Gone)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > bytes_max {
        return Err(Broken::Garbage(format!("a frame of {length} bytes; at most {bytes_max}")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).map_err(Broken::Gone)?;
    decode(Bytes::from(bytes))
}

/// A frame from its bytes.
pub(super) fn decode(bytes: Bytes) -> Result<Frame, Broken> {
    let frame = Frame::decode(bytes).map_err(|error| Broken::Garbage(format!("no frame: {error}")))?;
    let is_known = frame::Kind::try_from(frame.kind).is_ok();
    if !is_known || (frame.kind == frame::Kind::Failure as i32) != frame.failure.is_some() {
        return Err(Broken::Garbage(format!("a frame of kind {} that is none", frame.kind)));
    }
    Ok(frame)
}

pub(super) fn call(method: Method, region: u64) -> Frame {
    Frame {
        kind: frame::Kind::Call as i32,
        method: Some(method as i32),
        region: Some(region),
        ..Frame::default()
    }
}

pub(super) fn answer() -> Frame {
    Frame { kind: frame::Kind::Answer as i32, ..Frame::default() }
}

pub(super) fn failure(error: &RpcError) -> Frame {
    Frame { kind: frame::Kind::Failure as i32, failure: Some(failure_of(error)), ..Frame::default() }
}

pub(super) fn failure_of(error: &RpcError) -> Failure {
    Failure {
        class: error.class.clone().into_owned(),
        message: error.message.clone(),
        do_not_retry: Some(error.do_not_retry),
        abort: None,
    }
}

/// The exception that a client gets. The text has the stack trace of the JVM behind it, as HBase's has that of the server.
pub(super) fn to_rpc(failure: &Failure) -> RpcError {
    let prefix = format!("{}: ", failure.class);
    let message = failure.message.strip_prefix(&prefix).unwrap_or(&failure.message);
    RpcError {
        class: failure.class.clone().into(),
        do_not_retry: failure.do_not_retry(),
        ..RpcError::io(message.trim_end())
    }
}

pub(super) fn cells_of<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> Cells {
    Cells { cell: cells.into_iter().map(|cell| cell.bytes().clone()).collect(), ..Cells::default() }
}

/// With their sequence ids.
pub(super) fn cells_with_seqs(cells: &[Cell]) -> Cells {
    Cells { seq: cells.iter().map(Cell::seq).collect(), ..cells_of(cells) }
}

/// Cells that came with their sequence ids.
pub(super) fn parse_with_seqs(frame: &Frame) -> Result<Vec<Cell>, Broken> {
    let Some(cells) = frame.cells.first() else { return Ok(Vec::new()) };
    if cells.seq.len() != cells.cell.len() {
        return Err(Broken::Garbage(format!(
            "{} sequence ids of {} cells",
            cells.seq.len(),
            cells.cell.len()
        )));
    }
    let parsed = parse(&cells.cell)?;
    Ok(parsed.into_iter().zip(&cells.seq).map(|(cell, &seq)| cell.with_seq(seq)).collect())
}

/// What families keep, as the JVM says.
pub(super) fn options(frame: &Frame) -> Result<BTreeMap<Bytes, ScanOptions>, Broken> {
    let parse = |options: &FamilyOptions| {
        let keep_deleted = match options.keep_deleted.as_str() {
            "TRUE" => KeepDeleted::True,
            "TTL" => KeepDeleted::Ttl,
            "FALSE" => KeepDeleted::False,
            other => return Err(Broken::Garbage(format!("deleted cells kept: {other}"))),
        };
        let milliseconds = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        let scan = ScanOptions {
            max_versions: options.max_versions,
            min_versions: options.min_versions,
            ttl_ms: options.ttl_ms.map(milliseconds),
            keep_deleted,
            purge_deletes_after_ms: milliseconds(options.purge_deletes_after_ms),
        };
        Ok((options.family.clone(), scan))
    };
    frame.options.iter().map(parse).collect()
}

/// Cells that came. *Garbage* if one is none.
pub(super) fn parse(cells: &[Bytes]) -> Result<Vec<Cell>, Broken> {
    let parse =
        |bytes: &Bytes| Cell::parse(bytes.clone(), 0).map_err(|error| Broken::Garbage(error.to_string()));
    cells.iter().map(parse).collect()
}

/// The cells of the first result.
pub(super) fn first(frame: &Frame) -> Result<Vec<Cell>, Broken> {
    frame.cells.first().map_or(Ok(Vec::new()), |cells| parse(&cells.cell))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_frames_are_refused_without_making_room() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        there.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(matches!(read(&mut here, 1000), Err(Broken::Garbage(_))));
        let sent = Frame { text: Some("x".into()), ..call(Method::Ping, 7) };
        assert!(write(&mut there, &sent, 1000).is_ok());
        assert_eq!(read(&mut here, 1000).unwrap(), sent);
        assert!(matches!(write(&mut there, &sent, 3), Err(WriteError::TooLarge(_))));
        drop(there);
        assert!(matches!(read(&mut here, 1000), Err(Broken::Gone(_))));
    }

    /// Bytes of frames, changed: an error or some frame, and no panic.
    #[test]
    fn damaged_bytes_do_no_harm() {
        let error = RpcError::do_not_retry("no");
        let cells = vec![cells_of(&[Cell::put(b"r", b"f", b"q", 1, b"v")])];
        for frame in [Frame { cells, scanner: Some(300), ..call(Method::Mutate, 1) }, failure(&error)] {
            let bytes = frame.encode_to_vec();
            for at in 0..bytes.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[at] = value;
                    if let Ok(frame) = decode(Bytes::from(changed)) {
                        let _ = first(&frame);
                    }
                }
                let _ = decode(Bytes::copy_from_slice(&bytes[..at]));
            }
        }
    }

    #[test]
    fn an_exception_passes_unchanged() {
        let error = RpcError::do_not_retry("no");
        let there = to_rpc(&failure_of(&error));
        assert_eq!(there, error);
        let thrown = Failure {
            class: "a.B".into(),
            message: "a.B: why\n\tat x\n".into(),
            do_not_retry: Some(true),
            abort: None,
        };
        assert_eq!(to_rpc(&thrown).message, "why\n\tat x");
    }
}
