//! One request frame, taken apart without copying.

use bytes::Bytes;
use halcyon_proto::pb;
use prost::Message;

/// Longest request header. Its attributes become many times as large, and nothing is known of its call before it is decoded.
pub(crate) const HEADER_BYTES_MAX: usize = 64 << 10;

/// A frame without its length prefix, in parts that share its bytes.
#[derive(Debug)]
pub(crate) struct Request {
    pub header: pb::RequestHeader,
    pub param: Bytes,
    /// As on the wire, perhaps compressed; empty if there is none.
    pub cell_block: Bytes,
}

/// Why a frame could not be taken apart.
#[derive(Debug)]
pub(crate) enum FrameError {
    /// Not even a header with a call id: nobody to answer; the connection ends.
    NoHeader(String),
    /// The call can be answered.
    BadCall { call_id: u32, message: String },
}

impl Request {
    pub fn parse(frame: Bytes) -> Result<Request, FrameError> {
        let header_bytes = delimited(&frame, 0).map_err(FrameError::NoHeader)?;
        if header_bytes.len() > HEADER_BYTES_MAX {
            return Err(too_long(&frame[header_bytes]));
        }
        let header = pb::RequestHeader::decode(frame.slice(header_bytes.clone()));
        let header = header.map_err(|e| FrameError::NoHeader(e.to_string()))?;
        let Some(call_id) = header.call_id else {
            return Err(FrameError::NoHeader("a request header without call id".to_string()));
        };
        let bad = |message: String| FrameError::BadCall { call_id, message };

        let mut end = header_bytes.end;
        let mut param = Bytes::new();
        let cells_len = header.cell_block_meta.as_ref().and_then(|meta| meta.length).unwrap_or(0) as usize;
        if header.request_param.unwrap_or(false) {
            let range = param_range(&frame, end, cells_len).map_err(bad)?;
            end = range.end;
            param = frame.slice(range);
        }
        if cells_len > frame.len() - end {
            let left = frame.len() - end;
            return Err(bad(format!("cell block of {cells_len} bytes, but {left} are left in the frame")));
        }
        let cell_block = frame.slice(end..end + cells_len);
        Ok(Request { header, param, cell_block })
    }
}

/// The answer to a call whose header is not decoded: for its length.
fn too_long(header: &[u8]) -> FrameError {
    let message = format!("a request header of {} bytes, at most {HEADER_BYTES_MAX} are read", header.len());
    match call_id_of(header) {
        Some(call_id) => FrameError::BadCall { call_id, message },
        None => FrameError::NoHeader(message),
    }
}

/// `RequestHeader { call_id = 1 }`, which clients write first.
fn call_id_of(header: &[u8]) -> Option<u32> {
    let mut rest = header.strip_prefix(&[0x08])?;
    prost::encoding::decode_varint(&mut rest).ok().map(|call_id| call_id as u32)
}

/// The range of the parameter message that starts at `at`. One that says it is longer than its frame ends with it, if
/// nothing stands behind it: HBase reads such a message up to the end of the frame, and a client in Python
/// (hbase-driver) writes the length of each message of 128 bytes and more so.
fn param_range(frame: &[u8], at: usize, cells_len: usize) -> Result<std::ops::Range<usize>, String> {
    let range = delimited(frame, at);
    if range.is_ok() || cells_len > 0 {
        return range;
    }
    let mut rest = &frame[at..];
    prost::encoding::decode_varint(&mut rest).map_err(|e| e.to_string())?;
    Ok(frame.len() - rest.len()..frame.len())
}

/// The range of a varint-delimited part that starts at `at`.
pub(crate) fn delimited(frame: &[u8], at: usize) -> Result<std::ops::Range<usize>, String> {
    let mut rest = &frame[at..];
    let len = prost::encoding::decode_varint(&mut rest).map_err(|e| e.to_string())?;
    let start = frame.len() - rest.len();
    if len > rest.len() as u64 {
        return Err(format!("a part of {len} bytes in a frame with {} left", rest.len()));
    }
    Ok(start..start + len as usize)
}

/// The header of a frame of which only a part is here, and what is here of the parameter message. `None` while too
/// little has arrived; the inner `None` if the header cannot be read. Of one that is too long, only the number of the call.
pub(crate) fn header_of_part(frame: &[u8]) -> Option<(Option<pb::RequestHeader>, &[u8])> {
    let mut header = frame;
    let len = prost::encoding::decode_varint(&mut header).ok();
    if frame.len() >= HEADER_BYTES_MAX && len.is_some_and(|len| len > HEADER_BYTES_MAX as u64) {
        let call_id = call_id_of(header);
        return Some((call_id.map(|id| pb::RequestHeader { call_id: Some(id), ..Default::default() }), &[]));
    }
    let complete = frame.len() >= HEADER_BYTES_MAX;
    match delimited(frame, 0) {
        Ok(range) => {
            let mut param = &frame[range.end..];
            if prost::encoding::decode_varint(&mut param).is_err() {
                param = &[];
            }
            Some((pb::RequestHeader::decode(&frame[range]).ok(), param))
        }
        Err(_) if complete => Some((None, &[])),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two bytes of a header became an attribute of some fifty, before anything of its call was known.
    #[test]
    fn headers_that_are_too_long_are_not_decoded() {
        let attribute = [0x42, 0x00]; // field 8, empty
        for (count, is_read) in [(1_000, true), (HEADER_BYTES_MAX, false)] {
            let header = [&[0x08, 0x07][..], &attribute.repeat(count)].concat();
            let mut frame = Vec::new();
            prost::encoding::encode_varint(header.len() as u64, &mut frame);
            frame.extend_from_slice(&header);
            let parsed = Request::parse(Bytes::from(frame.clone()));
            let of_part = header_of_part(&frame).expect("all of it is here").0;
            match parsed {
                Ok(request) => assert_eq!(request.header.attribute.len(), count),
                Err(FrameError::BadCall { call_id, .. }) => assert_eq!((call_id, is_read), (7, false)),
                Err(FrameError::NoHeader(reason)) => panic!("{reason}"),
            }
            let of_part = of_part.expect("the number of the call");
            assert_eq!((of_part.call_id, of_part.attribute.is_empty()), (Some(7), !is_read));
        }
    }
}
