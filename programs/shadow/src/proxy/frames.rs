//! Frames as they pass: cut out of what has arrived without a copy, and those that are too large to look at in pieces.
//!
//! ```text
//! frame   int32 length | varint, header | varint, message | cell block
//! ```

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use halcyon_proto::pb;
use prost::Message;
use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that are asked for at a time.
const READ_BYTES: usize = 64 << 10;
/// A frame of which this much is here needs no memory of the common budget.
const FREE_BYTES: usize = 64 << 10;
/// Of a large frame: so much is looked at, to find its header.
const HEAD_BYTES: usize = 64 << 10;
/// No frame is longer: HBase's servers take 256 MiB, and its answers have less than 2 GiB.
pub(crate) const FRAME_BYTES_MAX: usize = i32::MAX as usize;

/// What has arrived.
pub(crate) enum Frame {
    /// All of a frame with its length prefix.
    Whole(Bytes, Option<OwnedSemaphorePermit>),
    /// The beginning of one, with its length prefix, and how many bytes are still to come.
    Large(Bytes, usize),
}

/// Cuts a stream into frames.
pub(crate) struct FrameReader<R> {
    stream: R,
    input: BytesMut,
    /// Frames up to this length are given out whole, as far as the budget has room.
    whole_bytes_max: usize,
    budget: Arc<Semaphore>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(stream: R, whole_bytes_max: usize, budget: Arc<Semaphore>) -> FrameReader<R> {
        FrameReader { stream, input: BytesMut::new(), whole_bytes_max, budget }
    }

    /// The next frame if all of it, or of a large one the head, is here already.
    pub(crate) fn ready(&mut self) -> io::Result<Option<Frame>> {
        let Some(prefix) = self.input.first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes(*prefix) as usize;
        if len > FRAME_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {len} bytes")));
        }
        let total = 4 + len;
        if self.input.len() >= total {
            return Ok(Some(Frame::Whole(self.input.split_to(total).freeze(), None)));
        }
        Ok(None)
    }

    /// Waits for the next frame. `None` at the end of the stream between two frames.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        let mut permit = None;
        loop {
            if let Some(frame) = self.ready()? {
                return Ok(Some(match frame {
                    Frame::Whole(bytes, _) => Frame::Whole(bytes, permit),
                    large => large,
                }));
            }
            let mut wanted = 4;
            if let Some(prefix) = self.input.first_chunk::<4>() {
                let total = 4 + u32::from_be_bytes(*prefix) as usize;
                wanted = total;
                if total > FREE_BYTES && permit.is_none() {
                    permit = self.reserve(total);
                    if permit.is_none() {
                        if self.input.len() >= HEAD_BYTES {
                            let head = self.input.split().freeze();
                            let rest = total - head.len();
                            return Ok(Some(Frame::Large(head, rest)));
                        }
                        wanted = HEAD_BYTES;
                    }
                }
            }
            self.input.reserve(wanted.saturating_sub(self.input.len()).clamp(1, READ_BYTES));
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return match self.input.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    fn reserve(&self, total: usize) -> Option<OwnedSemaphorePermit> {
        if total > self.whole_bytes_max {
            return None;
        }
        Arc::clone(&self.budget).try_acquire_many_owned(u32::try_from(total).ok()?).ok()
    }

    /// The next piece of a large frame, of at most `left` bytes.
    pub(crate) async fn piece(&mut self, left: usize) -> io::Result<Bytes> {
        if self.input.is_empty() {
            self.input.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let len = self.input.len().min(left);
        Ok(self.input.split_to(len).freeze())
    }
}

/// Where the parts of a frame are; the frame has its length prefix.
#[derive(Debug)]
pub(crate) struct Parts<H> {
    pub(crate) header: H,
    message: Range<usize>,
    cells: Range<usize>,
}

impl<H> Parts<H> {
    pub(crate) fn message(&self, frame: &Bytes) -> Bytes {
        frame.slice(self.message.clone())
    }

    pub(crate) fn cells(&self, frame: &Bytes) -> Bytes {
        frame.slice(self.cells.clone())
    }
}

/// Takes a request apart.
pub(crate) fn request_parts(frame: &Bytes) -> Result<Parts<pb::RequestHeader>, String> {
    let at = delimited(frame, 4)?;
    let header = pb::RequestHeader::decode(frame.slice(at.clone())).map_err(|error| error.to_string())?;
    let has_message = header.request_param.unwrap_or(false);
    let cells_len = header.cell_block_meta.as_ref().and_then(|meta| meta.length).unwrap_or(0) as usize;
    rest_of(frame, at.end, has_message, cells_len, header)
}

/// Takes an answer apart.
pub(crate) fn response_parts(frame: &Bytes) -> Result<Parts<pb::ResponseHeader>, String> {
    let at = delimited(frame, 4)?;
    let header = pb::ResponseHeader::decode(frame.slice(at.clone())).map_err(|error| error.to_string())?;
    let has_message = header.exception.is_none() && at.end < frame.len();
    let cells_len = header.cell_block_meta.as_ref().and_then(|meta| meta.length).unwrap_or(0) as usize;
    rest_of(frame, at.end, has_message, cells_len, header)
}

fn rest_of<H>(
    frame: &Bytes,
    at: usize,
    has_message: bool,
    cells_len: usize,
    header: H,
) -> Result<Parts<H>, String> {
    let message = if has_message { delimited(frame, at)? } else { at..at };
    let left = frame.len() - message.end;
    if cells_len > left {
        return Err(format!("a cell block of {cells_len} bytes in a frame with {left} left"));
    }
    let cells = message.end..message.end + cells_len;
    Ok(Parts { header, message, cells })
}

/// The head of a frame of which only a part is here: how it begins is all that is known of it.
pub(crate) fn request_head(head: &[u8]) -> Option<pb::RequestHeader> {
    let at = delimited(head, 4).ok()?;
    pb::RequestHeader::decode(&head[at]).ok()
}

/// As [`request_head`], of an answer.
pub(crate) fn response_head(head: &[u8]) -> Option<pb::ResponseHeader> {
    let at = delimited(head, 4).ok()?;
    pb::ResponseHeader::decode(&head[at]).ok()
}

fn delimited(frame: &[u8], at: usize) -> Result<Range<usize>, String> {
    let mut rest = frame.get(at..).ok_or("a frame that is too short")?;
    let len = decode_varint(&mut rest).map_err(|error| error.to_string())?;
    let start = frame.len() - rest.len();
    if len > rest.len() as u64 {
        return Err(format!("a part of {len} bytes in a frame with {} left", rest.len()));
    }
    Ok(start..start + len as usize)
}

/// A frame of these parts.
pub(crate) fn frame(header: &impl Message, message: Option<&[u8]>, cells: &[u8]) -> Bytes {
    let header_len = header.encoded_len();
    let message_len = message.map_or(0, |message| encoded_len_varint(message.len() as u64) + message.len());
    let len = encoded_len_varint(header_len as u64) + header_len + message_len + cells.len();
    let mut out = BytesMut::with_capacity(4 + len);
    out.put_u32(u32::try_from(len).expect("its parts came in one frame, and names are short"));
    encode_varint(header_len as u64, &mut out);
    header.encode(&mut out).expect("a BytesMut grows");
    if let Some(message) = message {
        encode_varint(message.len() as u64, &mut out);
        out.put_slice(message);
    }
    out.put_slice(cells);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(len: usize) -> Bytes {
        let header = pb::RequestHeader {
            call_id: Some(3),
            method_name: Some("Get".to_string()),
            request_param: Some(true),
            cell_block_meta: Some(pb::CellBlockMeta { length: Some(2) }),
            ..Default::default()
        };
        frame(&header, Some(&vec![7; len]), b"cc")
    }

    async fn read_all(stream: &[u8], whole_max: usize, budget: usize) -> (Vec<usize>, Vec<u8>) {
        let mut reader = FrameReader::new(stream, whole_max, Arc::new(Semaphore::new(budget)));
        let (mut whole, mut bytes) = (Vec::new(), Vec::new());
        while let Some(frame) = reader.next().await.unwrap() {
            match frame {
                Frame::Whole(frame, _) => {
                    whole.push(frame.len());
                    bytes.extend_from_slice(&frame);
                }
                Frame::Large(head, mut left) => {
                    assert_eq!(request_head(&head).unwrap().call_id, Some(3));
                    bytes.extend_from_slice(&head);
                    while left > 0 {
                        let piece = reader.piece(left).await.unwrap();
                        left -= piece.len();
                        bytes.extend_from_slice(&piece);
                    }
                }
            }
        }
        (whole, bytes)
    }

    #[tokio::test]
    async fn frames_pass_whole_or_in_pieces_and_never_change() {
        let sizes = [0, 10, FREE_BYTES, 300_000, 5, 1_000_000];
        let stream: Vec<u8> = sizes.iter().flat_map(|size| request(*size).to_vec()).collect();
        for (whole_max, budget) in [(1 << 21, 1 << 22), (400_000, 1 << 22), (1 << 21, 0), (0, 0)] {
            let (whole, bytes) = read_all(&stream, whole_max, budget).await;
            assert!(bytes == stream, "{whole_max} {budget}");
            assert!(whole.len() >= 3);
            assert_eq!(whole.len() == sizes.len(), whole_max == 1 << 21 && budget > 0, "{whole:?}");
        }
    }

    #[test]
    fn parts_come_back() {
        let frame = request(5);
        let parts = request_parts(&frame).unwrap();
        assert_eq!((&parts.message(&frame)[..], &parts.cells(&frame)[..]), (&[7; 5][..], &b"cc"[..]));
        assert_eq!(parts.header.method_name(), "Get");
        for len in 4..frame.len() {
            let _ = (request_parts(&frame.slice(..len)), response_parts(&frame.slice(..len)));
        }
        assert!(request_parts(&frame.slice(..frame.len() - 1)).is_err());
    }
}
