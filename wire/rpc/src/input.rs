//! Bytes as they come from the socket.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::frame::HEADER_BYTES_MAX;

/// Room for a read; it follows the size of what arrives between these two.
pub(crate) const READ_BYTES_MIN: usize = 4 << 10;
pub(crate) const READ_BYTES_MAX: usize = 64 << 10;
/// A buffer for a large frame grows by doubling, at most by this much beyond what has arrived.
const GROWTH_BYTES_MAX: usize = 8 << 20;
/// Room for what stands before the first call.
const OPENING_READ_BYTES: usize = 512;
/// Reads in a row that fill little of the buffer before it shrinks.
const SMALL_READS_MAX: u32 = 32;

/// The read buffer of one connection. Frames are cut off its front as shared slices; a connection without
/// traffic holds little or no memory.
pub(crate) struct Input {
    bytes: BytesMut,
    /// Bytes at the front that nobody wants, including some that did not arrive yet.
    unwanted: usize,
    read_bytes: usize,
    small_reads: u32,
    /// `bytes` may be the rest of a buffer that was made for a large frame.
    large_buffer: bool,
}

impl Input {
    pub fn new() -> Input {
        let (bytes, read_bytes) = (BytesMut::new(), READ_BYTES_MIN);
        Input { bytes, unwanted: 0, read_bytes, small_reads: 0, large_buffer: false }
    }

    /// What has arrived and was not taken.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Cuts off the first `len` bytes, which must be there.
    pub fn take(&mut self, len: usize) -> Bytes {
        self.bytes.split_to(len).freeze()
    }

    /// The int32 at the front.
    pub fn first_u32(&self) -> Option<u32> {
        self.bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    pub fn advance(&mut self, len: usize) {
        self.bytes.advance(len);
    }

    /// Throws away the next `len` bytes, those that are here now and those that come.
    pub fn skip(&mut self, len: usize) {
        self.unwanted += len;
        self.skip_arrived();
    }

    fn skip_arrived(&mut self) {
        let len = self.unwanted.min(self.bytes.len());
        self.bytes.advance(len);
        self.unwanted -= len;
    }

    /// Reads until `len` bytes are there. Returns how many arrived. Holds no buffer for a client that has sent nothing.
    pub async fn fill(&mut self, stream: &mut TcpStream, len: usize) -> io::Result<u64> {
        let mut arrived = 0;
        while self.bytes.len() < len {
            if self.bytes.is_empty() {
                self.bytes = BytesMut::new();
                stream.readable().await?;
            }
            self.bytes.reserve(OPENING_READ_BYTES);
            match stream.read_buf(&mut self.bytes).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => arrived += read as u64,
            }
        }
        Ok(arrived)
    }

    /// Reads once; 0 means that the client sends no more. `frame_bytes_max` as in the settings. `has_room`: the frame
    /// that has begun has its room in the memory for requests.
    pub fn poll_read(
        &mut self,
        stream: &mut TcpStream,
        frame_bytes_max: usize,
        has_room: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.bytes.capacity() == 0 {
            // An idle connection holds no buffer, not even an empty rest of one.
            self.bytes = BytesMut::new();
            match stream.poll_read_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        let wanted = self.room_wanted(frame_bytes_max, has_room);
        self.make_room(wanted);
        let room = self.bytes.capacity() - self.bytes.len();
        let read = pin!(stream.read_buf(&mut self.bytes)).poll(cx);
        match &read {
            Poll::Ready(Ok(len)) => {
                self.adapt_read_bytes(*len, room);
                self.skip_arrived();
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.shrink(),
        }
        read
    }

    /// Room to have before a read: for the rest of a frame that has begun, else for a usual read.
    fn room_wanted(&self, frame_bytes_max: usize, has_room: bool) -> usize {
        let Some(len) = self.first_u32() else { return self.read_bytes };
        let len = len as usize;
        if len > frame_bytes_max {
            return HEADER_BYTES_MAX; // only the header of this one is wanted
        }
        let missing = (4 + len).saturating_sub(self.bytes.len());
        if has_room && missing > 0 {
            return missing; // at once, or what has arrived would be copied again and again
        }
        if self.bytes.len() < READ_BYTES_MAX {
            return missing.min(READ_BYTES_MAX).max(self.read_bytes);
        }
        // Nobody gets a large buffer for announcing a large frame, only for sending it.
        missing.clamp(1, self.bytes.len().min(GROWTH_BYTES_MAX))
    }

    /// Makes room for `wanted` more bytes, in the memory that is there if its frames are gone, else in a buffer just
    /// large enough: `BytesMut::reserve` would double the whole of what was once made for a large frame.
    fn make_room(&mut self, wanted: usize) {
        if self.bytes.capacity() - self.bytes.len() >= wanted {
            return;
        }
        let may_stay = !self.large_buffer || wanted > READ_BYTES_MAX;
        if may_stay && self.bytes.try_reclaim(wanted) {
            return;
        }
        let mut bytes = BytesMut::with_capacity(self.bytes.len() + wanted);
        bytes.extend_from_slice(&self.bytes);
        self.large_buffer = bytes.capacity() > READ_BYTES_MAX;
        self.bytes = bytes;
    }

    fn adapt_read_bytes(&mut self, len: usize, room: usize) {
        if len == room {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
            self.small_reads = 0;
        } else if len * 4 < self.read_bytes {
            self.small_reads += 1;
            if self.small_reads > SMALL_READS_MAX {
                self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
                self.small_reads = 0;
            }
        } else {
            self.small_reads = 0;
        }
    }

    /// Makes the buffer as small as what is in it, for a client that sends a part of a frame and then nothing.
    pub fn fit(&mut self) {
        self.read_bytes = READ_BYTES_MIN;
        if self.bytes.capacity() > self.bytes.len() + READ_BYTES_MIN {
            let mut bytes = BytesMut::with_capacity(self.bytes.len());
            bytes.extend_from_slice(&self.bytes);
            self.large_buffer = bytes.capacity() > READ_BYTES_MAX;
            self.bytes = bytes;
        }
    }

    /// Lets a large buffer go while there is nothing to read.
    fn shrink(&mut self) {
        if self.bytes.is_empty() && (self.read_bytes > READ_BYTES_MIN || self.large_buffer) {
            self.bytes = BytesMut::new();
            self.large_buffer = false;
        }
    }
}
