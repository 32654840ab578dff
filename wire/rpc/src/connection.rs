//! The task that owns one connection's socket: preamble, header, calls, farewell.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use halcyon_proto::pb;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::input::Input;
use crate::output::{Output, SLICES_MAX};
use crate::preamble::{CONNECTION_HEADER_BYTES_MAX, Header, PREAMBLE_LEN, Preamble, SWITCH_TO_SIMPLE};
use crate::shared::{Agreed, Control, Shared};
use crate::{Connection, PeerPlace, Reply, RpcError, exceptions};

/// The call id of answers to nobody in particular.
const NO_CALL: u32 = u32::MAX;
/// What a client still sends is thrown away in pieces of this size.
const SCRAP_BYTES: usize = 1 << 10;
/// What a connection keeps of its header up to this is in no account.
const KEPT_FREE_BYTES: usize = 1 << 10;

/// One connection from its first byte to its end.
pub(crate) struct ConnectionTask {
    pub shared: Arc<Shared>,
    pub control: Arc<Control>,
    id: u64,
    pub peer: SocketAddr,
    /// Among the connections of its peer.
    pub place: PeerPlace,
    pub stream: TcpStream,
    pub input: Input,
    pub output: Output,
}

/// A connection between two event loops.
pub(crate) struct Moving {
    shared: Arc<Shared>,
    control: Arc<Control>,
    id: u64,
    peer: SocketAddr,
    place: PeerPlace,
    stream: std::net::TcpStream,
    input: Input,
    output: Output,
}

impl Moving {
    /// Gives the socket to the event loop of the calling task.
    pub fn arrive(self) -> io::Result<ConnectionTask> {
        let Moving { shared, control, id, peer, place, stream, input, output } = self;
        let stream = TcpStream::from_std(stream)?;
        Ok(ConnectionTask { shared, control, id, peer, place, stream, input, output })
    }
}

impl ConnectionTask {
    pub fn new(
        shared: Arc<Shared>,
        control: Arc<Control>,
        id: u64,
        stream: TcpStream,
        peer: SocketAddr,
        place: PeerPlace,
    ) -> ConnectionTask {
        let (input, output) = (Input::new(), Output::default());
        ConnectionTask { shared, control, id, peer, place, stream, input, output }
    }

    /// Ends the connection; its place among those of its peer is left.
    pub fn end(self) -> PeerPlace {
        self.place
    }

    /// Reads what stands before the first call. `None`: there will be none.
    pub async fn open(mut self) -> Option<(ConnectionTask, Agreed)> {
        let control = Arc::clone(&self.control);
        let time = self.shared.settings.handshake_timeout;
        let handshake = unless_stopping(&control, tokio::time::timeout(time, self.handshake())).await;
        let agreed = match handshake {
            None | Some(Err(_)) | Some(Ok(Err(_))) => return None, // stopping, too slow, or gone
            Some(Ok(Ok(agreed))) => agreed,
        };
        match agreed {
            Some(agreed) => return Some((self, agreed)),
            None if self.output.is_empty() => {} // the protocol has no answer to a header
            None => self.farewell().await,
        }
        None
    }

    /// Takes the socket away from its event loop, to go on with another one.
    pub fn into_moving(self) -> io::Result<Moving> {
        let ConnectionTask { shared, control, id, peer, place, stream, input, output } = self;
        Ok(Moving { shared, control, id, peer, place, stream: stream.into_std()?, input, output })
    }

    /// Reads preamble and header. `None`: what `output` holds is the last word.
    async fn handshake(&mut self) -> io::Result<Option<Agreed>> {
        let mut skip_token = false;
        loop {
            self.fill(PREAMBLE_LEN).await?;
            let mut bytes = [0; PREAMBLE_LEN];
            bytes.copy_from_slice(&self.input.take(PREAMBLE_LEN));
            match Preamble::of(bytes) {
                Preamble::Simple => break,
                Preamble::Sasl => {
                    self.output.push_raw(&SWITCH_TO_SIMPLE);
                    skip_token = true;
                    break;
                }
                Preamble::ClusterId => {
                    let cluster_id = self.shared.cluster_id.clone();
                    let answer = pb::GetConnectionRegistryResponse { cluster_id };
                    self.output.push_answer(NO_CALL, Ok(Reply::message(&answer)), None);
                    return Ok(None);
                }
                Preamble::Principal => {
                    let error = RpcError::new(&exceptions::SECURITY_NOT_ENABLED, "security is not enabled");
                    self.output.push_error(NO_CALL, &error);
                    self.flush().await?;
                }
                Preamble::Refused(error) => {
                    tracing::debug!(peer = %self.peer, %error, "refused");
                    self.output.push_error(NO_CALL, &error);
                    return Ok(None);
                }
            }
        }
        self.flush().await?;
        if skip_token {
            // The client sent its first token before it knew that there is no security here.
            self.delimited().await?;
        }
        let header = self.delimited().await?;
        Ok(self.agree(header))
    }

    fn agree(&self, header: Bytes) -> Option<Agreed> {
        let header = match Header::parse(header) {
            Ok(header) => header,
            Err(reason) => {
                tracing::warn!(peer = %self.peer, reason, "connection header refused");
                return None;
            }
        };
        let Some((service_name, service)) = self.shared.services.get_key_value(header.service.as_str())
        else {
            tracing::warn!(peer = %self.peer, service = header.service, "unknown service");
            return None;
        };
        let kept_bytes = header.kept_bytes();
        let room =
            (kept_bytes > KEPT_FREE_BYTES).then(|| self.shared.charge_arriving(&self.place, kept_bytes));
        let Some(room) = room.map_or(Some(None), |charge| charge.map(Some)) else {
            tracing::warn!(peer = %self.peer, kept_bytes, "no room for what a connection header says");
            return None;
        };
        let connection = Arc::new(Connection {
            user: header.user,
            client_version: header.client_version,
            master_epoch: header.master_epoch,
            codec: header.codec,
            attributes: header.attributes,
            address: Some(self.place.address()),
            ..Connection::new(self.id, self.peer.to_string())
        });
        let service = Arc::clone(service);
        Some(Agreed { connection, service_name, service, compressor: header.compressor, _room: room })
    }

    /// Bytes behind an int32 length.
    async fn delimited(&mut self) -> io::Result<Bytes> {
        self.fill(4).await?;
        let len = self.input.first_u32().expect("four bytes are there") as usize;
        self.input.advance(4);
        if len > CONNECTION_HEADER_BYTES_MAX {
            tracing::warn!(peer = %self.peer, len, "connection header too long");
            return Err(io::ErrorKind::InvalidData.into());
        }
        let is_here = self.input.bytes().len() >= len;
        let charge = if is_here { None } else { self.shared.charge_arriving(&self.place, len) };
        if !is_here && charge.is_none() {
            tracing::debug!(peer = %self.peer, len, "no room for a connection header");
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.fill(len).await?;
        Ok(self.input.take(len))
    }

    async fn fill(&mut self, len: usize) -> io::Result<()> {
        let arrived = self.input.fill(&mut self.stream, len).await?;
        self.shared.stats.received_bytes.fetch_add(arrived, Ordering::Relaxed);
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| poll_flush(&mut self.stream, &mut self.output, cx)).await
    }

    /// Writes what is left and closes so that the client can read it: what it still sends is thrown away
    /// for a while, because closing with unread bytes would reset the connection.
    pub async fn farewell(mut self) {
        let time = self.shared.settings.linger_timeout;
        let control = Arc::clone(&self.control);
        self.input = Input::new(); // nobody reads it any more
        let last_words = async {
            self.flush().await?;
            self.stream.shutdown().await?;
            let mut scrap = vec![0; SCRAP_BYTES];
            while self.stream.read(&mut scrap).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = unless_stopping(&control, tokio::time::timeout(time, last_words)).await;
    }
}

/// `None` as soon as the server stops.
async fn unless_stopping<F: Future>(control: &Control, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        control.is_served_by(cx.waker());
        if control.stopping.load(Ordering::SeqCst) {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Ready when all is written.
pub(crate) fn poll_flush(
    stream: &mut TcpStream,
    output: &mut Output,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while !output.is_empty() {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = output.slices(&mut slices);
        match Pin::new(&mut *stream).poll_write_vectored(cx, &slices[..count]) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(written)) => output.advance(written),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(Ok(()))
}
