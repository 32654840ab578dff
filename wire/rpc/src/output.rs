//! Answers on their way to the socket.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes};
use halcyon_proto::pb;
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::{Compressor, Reply, RpcError};

/// Pieces handed to one vectored write.
pub(crate) const SLICES_MAX: usize = 64;
/// Pieces from here on are kept by reference instead of copied.
const SHARED_BYTES_MIN: usize = 4 << 10;
/// Copied bytes that were written are cut off the front of the buffer beyond this.
const WRITTEN_BYTES_MAX: usize = 64 << 10;
/// An emptied buffer keeps no more than this.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// What is to be written, in order: runs of copied bytes and shared pieces between them.
#[derive(Default)]
pub(crate) struct Output {
    /// Copied bytes of all `Part::Copied`, in order, from `copied_start`.
    copied: Vec<u8>,
    copied_start: usize,
    parts: VecDeque<Part>,
    /// Some piece may be kept by reference.
    has_shared: bool,
    len: usize,
    /// Bytes written since somebody asked.
    written: u64,
    /// All bytes written ever.
    sent: u64,
    /// Cells taken since somebody asked.
    cells: CellBytes,
}

/// Bytes of cells on their way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CellBytes {
    /// Left where they are until the socket has them.
    pub shared: u64,
    pub copied: u64,
}

enum Part {
    /// That many of the copied bytes.
    Copied(usize),
    Shared(Bytes),
    /// A copy that was made because it waited for long.
    Own(Bytes),
}

impl Output {
    /// Bytes not yet written.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All bytes written ever.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// All bytes ever pushed: where the last answer ends.
    pub fn end(&self) -> u64 {
        self.sent + self.len as u64
    }

    /// Bytes written since the last time this was asked.
    pub fn take_written(&mut self) -> u64 {
        std::mem::take(&mut self.written)
    }

    /// Bytes of cells that came in since the last time this was asked.
    pub fn take_cells(&mut self) -> CellBytes {
        std::mem::take(&mut self.cells)
    }

    /// Copies what is kept by reference, so that an answer that waits for long keeps nothing of others' memory: a piece
    /// of a chunk keeps the whole chunk.
    pub fn detach(&mut self) {
        if !std::mem::take(&mut self.has_shared) {
            return;
        }
        for part in &mut self.parts {
            if let Part::Shared(bytes) = part {
                *part = Part::Own(Bytes::copy_from_slice(bytes));
            }
        }
    }

    /// Bytes as they are, outside any frame.
    pub fn push_raw(&mut self, bytes: &[u8]) {
        let before = self.copied.len();
        self.copied.extend_from_slice(bytes);
        self.copied_from(before);
    }

    /// One frame: header with exception, or header, message and cells.
    pub fn push_answer(
        &mut self,
        call_id: u32,
        answer: Result<Reply, RpcError>,
        compressor: Option<Compressor>,
    ) {
        match answer {
            Ok(reply) => self.push_reply(call_id, reply, compressor),
            Err(error) => self.push_error(call_id, &error),
        }
    }

    pub fn push_error(&mut self, call_id: u32, error: &RpcError) {
        let header = pb::ResponseHeader {
            call_id: Some(call_id),
            exception: Some(error.to_exception_response()),
            cell_block_meta: None,
        };
        let header_len = header.encoded_len();
        let before = self.copied.len();
        self.copied.put_u32((encoded_len_varint(header_len as u64) + header_len) as u32);
        header.encode_length_delimited(&mut self.copied).expect("a Vec grows");
        self.copied_from(before);
    }

    fn push_reply(&mut self, call_id: u32, reply: Reply, compressor: Option<Compressor>) {
        let Some(block) = reply.cells.filter(|block| !block.is_empty()) else {
            self.push_head(call_id, &reply.message, 0);
            return;
        };
        let (shared, copied) = match compressor {
            Some(_) => (0, block.len()),
            None => (block.shared_len(), block.copied_len()),
        };
        self.cells.shared += shared as u64;
        self.cells.copied += copied as u64;
        if let Some(compressor) = compressor {
            let compressed = compressor.compress(&block.into_bytes());
            if self.push_head(call_id, &reply.message, compressed.len()) {
                self.push_piece(compressed);
            }
        } else if self.push_head(call_id, &reply.message, block.len()) {
            block.for_each_segment(|segment| self.push_piece(segment));
        }
    }

    /// Length, header and message of an answer; `cells_len` bytes of cells are to follow. False if an error
    /// took the place of an answer that does not fit a frame.
    fn push_head(&mut self, call_id: u32, message: &Bytes, cells_len: usize) -> bool {
        // ResponseHeader { call_id = 1, cell_block_meta = 3 { length = 1 } }, by hand: it is in every answer.
        let meta_len = 1 + encoded_len_varint(cells_len as u64);
        let mut header_len = 1 + encoded_len_varint(u64::from(call_id));
        if cells_len > 0 {
            header_len += 2 + meta_len;
        }
        let message_len = message.len() as u64;
        let total = 1 + header_len + encoded_len_varint(message_len) + message.len() + cells_len;
        assert!(header_len < 0x80, "the header's length is one byte: {header_len}");
        if total > i32::MAX as usize {
            let text = format!("an answer of {total} bytes is too long for a frame");
            self.push_error(call_id, &RpcError::do_not_retry(text));
            return false;
        }

        let before = self.copied.len();
        self.copied.put_u32(total as u32);
        self.copied.put_u8(header_len as u8);
        self.copied.put_u8(0x08);
        encode_varint(u64::from(call_id), &mut self.copied);
        if cells_len > 0 {
            self.copied.put_slice(&[0x1a, meta_len as u8, 0x08]);
            encode_varint(cells_len as u64, &mut self.copied);
        }
        encode_varint(message_len, &mut self.copied);
        let head_len = self.copied.len() - before;
        assert_eq!(head_len + message.len() + cells_len, 4 + total, "a frame is as long as it says");
        if message.len() < SHARED_BYTES_MIN {
            self.copied.extend_from_slice(message);
            self.copied_from(before);
        } else {
            self.copied_from(before);
            self.push_piece(message.clone());
        }
        true
    }

    fn push_piece(&mut self, piece: Bytes) {
        if piece.len() < SHARED_BYTES_MIN {
            return self.push_raw(&piece);
        }
        self.len += piece.len();
        self.parts.push_back(Part::Shared(piece));
        self.has_shared = true;
    }

    /// Notes that `copied` grew from `before`.
    fn copied_from(&mut self, before: usize) {
        let grown = self.copied.len() - before;
        if grown == 0 {
            return; // an empty part would be left when all is written
        }
        self.len += grown;
        match self.parts.back_mut() {
            Some(Part::Copied(len)) => *len += grown,
            _ => self.parts.push_back(Part::Copied(grown)),
        }
    }

    /// The first pieces; returns how many of `slices` were filled.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut at = self.copied_start;
        let mut count = 0;
        for part in self.parts.iter().take(SLICES_MAX) {
            slices[count] = match part {
                Part::Copied(len) => {
                    at += len;
                    IoSlice::new(&self.copied[at - len..at])
                }
                Part::Shared(bytes) | Part::Own(bytes) => IoSlice::new(bytes),
            };
            count += 1;
        }
        count
    }

    /// Forgets `written` bytes at the front.
    pub fn advance(&mut self, mut written: usize) {
        assert!(written <= self.len, "more was written than there was");
        self.len -= written;
        self.written += written as u64;
        self.sent += written as u64;
        while written > 0 {
            let front = self.parts.front_mut().expect("parts hold all bytes that are left");
            let (taken, emptied) = match front {
                Part::Copied(len) => {
                    let taken = written.min(*len);
                    *len -= taken;
                    self.copied_start += taken;
                    (taken, *len == 0)
                }
                Part::Shared(bytes) | Part::Own(bytes) => {
                    let taken = written.min(bytes.len());
                    bytes.advance(taken);
                    (taken, bytes.is_empty())
                }
            };
            written -= taken;
            if emptied {
                self.parts.pop_front();
            }
        }
        if self.len == 0 {
            assert!(self.parts.is_empty(), "all is written, and {} parts are left", self.parts.len());
            self.copied.clear();
            self.copied.shrink_to(KEPT_BYTES_MAX);
            self.copied_start = 0;
        } else if self.copied_start > WRITTEN_BYTES_MAX {
            self.copied.drain(..self.copied_start);
            self.copied_start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever pieces a socket takes, the bytes are those that were pushed.
    #[test]
    fn written_in_pieces_of_every_size() {
        for step in [1, 2, 7, 100, 4096, 10_000, 1 << 20] {
            let mut output = Output::default();
            let mut expected = Vec::new();
            let mut taken = Vec::new();
            for round in 0..40usize {
                let len = [3, 5000, 100, 4096, 20_000][round % 5];
                let piece = vec![round as u8; len];
                expected.extend_from_slice(&piece);
                if round % 2 == 0 {
                    output.push_raw(&piece)
                } else {
                    output.push_piece(Bytes::from(piece))
                }
                if round % 7 == 0 {
                    take(&mut output, step, &mut taken);
                }
            }
            while !output.is_empty() {
                take(&mut output, step, &mut taken);
            }
            assert!(taken == expected, "step {step}");
            assert_eq!(output.take_written(), expected.len() as u64);
            assert!(output.copied.capacity() <= KEPT_BYTES_MAX);
        }
    }

    #[test]
    fn what_waits_for_long_keeps_nothing_alive() {
        let mut output = Output::default();
        let pieces: Vec<Bytes> = (0..3u8).map(|at| Bytes::from(vec![at; 5000])).collect();
        pieces.iter().for_each(|piece| output.push_piece(piece.clone()));
        output.advance(100);
        assert!(!pieces[1].is_unique());
        output.detach();
        assert!(pieces.iter().all(Bytes::is_unique));
        let late = Bytes::from(vec![9; 5000]);
        output.push_piece(late.clone());
        assert!(!late.is_unique());
        output.detach();
        assert!(late.is_unique(), "again, when more has come");
        let mut taken = Vec::new();
        while !output.is_empty() {
            take(&mut output, 1 << 20, &mut taken);
        }
        assert!(taken == [&pieces.concat()[100..], &late].concat());
    }

    fn take(output: &mut Output, step: usize, taken: &mut Vec<u8>) {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = output.slices(&mut slices);
        let mut written = 0;
        for slice in &slices[..count] {
            let part = &slice[..slice.len().min(step - written)];
            taken.extend_from_slice(part);
            written += part.len();
        }
        output.advance(written);
    }
}
