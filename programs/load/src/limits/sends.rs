//! Bytes over loopback to readers that throw them away, each reader a thread: what no answer can be faster than.

use std::io::{IoSlice, Read};
use std::net::{TcpListener, TcpStream};

use halcyon_client::ClientError;
use halcyon_env::spawn_thread;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::limits::{Measure, Measured, STEP};
use crate::run::{Client, Step};

/// The vectored write, as answers of many cells are sent: so many pieces of so many bytes.
pub(super) const PIECES: usize = 64;
pub(super) const PIECE_LEN: usize = 16 << 10;
/// What a reader takes at once.
const READ_LEN: usize = 1 << 20;

impl Measure<'_> {
    /// Writes of so many pieces each.
    pub(super) async fn sends(&self, pieces: usize, piece_len: usize) -> Result<Measured, String> {
        let failed = |error: std::io::Error| format!("a plain send: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (mut senders, mut readers) = (Vec::new(), Vec::new());
        for _ in 0..self.args.connections {
            let stream = TcpStream::connect(address).map_err(failed)?;
            stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(failed)?;
            let stream = tokio::net::TcpStream::from_std(stream).map_err(failed)?;
            senders.push(Sender { stream, piece: vec![b'v'; piece_len], pieces });
            let (mut accepted, _) = listener.accept().map_err(failed)?;
            let read = move || {
                let mut buffer = vec![0; READ_LEN];
                while matches!(accepted.read(&mut buffer), Ok(1..)) {}
            };
            readers.push(spawn_thread("limits-reader", read).map_err(failed)?);
        }
        let len = pieces * piece_len;
        let name = match pieces {
            1 => format!("a plain send, {len} bytes a write"),
            _ => format!("a plain send, {pieces} pieces of {piece_len} bytes a write"),
        };
        let shape =
            json!({ "connections": self.args.connections, "pieces": pieces, "piece_bytes": piece_len });
        let measured = self.run(&name, senders, len, shape).await; // which closes what it sent upon
        for reader in readers {
            reader.join().map_err(|_| "a plain send: a reader broke".to_string())?;
        }
        Ok(measured)
    }
}

struct Sender {
    stream: tokio::net::TcpStream,
    piece: Vec<u8>,
    pieces: usize,
}

impl Client for Sender {
    async fn step(&mut self) -> Result<Step, ClientError> {
        if self.pieces == 1 {
            self.stream.write_all(&self.piece).await?;
            return Ok(STEP);
        }
        let mut pieces = vec![IoSlice::new(&self.piece); self.pieces];
        let mut left = &mut pieces[..];
        while !left.is_empty() {
            let written = self.stream.write_vectored(left).await?;
            IoSlice::advance_slices(&mut left, written);
        }
        Ok(STEP)
    }
}
