//! The task that owns one connection's socket.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::stream::{FuturesUnordered, StreamExt};
use halcyon_proto::pb;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::frame::{FrameError, HEADER_BYTES_MAX, Request, header_of_part};
use crate::output::{Output, SLICES_MAX};
use crate::preamble::{CONNECTION_HEADER_BYTES_MAX, Header, PREAMBLE_LEN, Preamble, SWITCH_TO_SIMPLE};
use crate::server::{Control, Shared};
use crate::{Call, Compressor, Connection, Outcome, Reply, ReplyFuture, RpcError, Service, decode_cells};
use crate::{exceptions, service::Codec};

/// The call id of answers to nobody in particular.
const NO_CALL: u32 = u32::MAX;
/// Room for a read; it follows the size of what arrives between these two.
const READ_BYTES_MIN: usize = 4 << 10;
const READ_BYTES_MAX: usize = 64 << 10;
/// A buffer for a large frame grows by doubling, at most by this much beyond what has arrived.
const GROWTH_BYTES_MAX: usize = 8 << 20;
/// Reads in a row that fill little of the buffer before it shrinks.
const SMALL_READS_MAX: u32 = 32;

/// One connection from its first byte to its end.
pub(crate) struct ConnectionTask {
    shared: Arc<Shared>,
    control: Arc<Control>,
    id: u64,
    peer: SocketAddr,
    stream: TcpStream,
    input: BytesMut,
    output: Output,
}

impl ConnectionTask {
    pub fn new(
        shared: Arc<Shared>,
        control: Arc<Control>,
        id: u64,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> ConnectionTask {
        let (input, output) = (BytesMut::new(), Output::default());
        ConnectionTask { shared, control, id, peer, stream, input, output }
    }

    pub async fn run(mut self) {
        let control = Arc::clone(&self.control);
        let time = self.shared.settings.handshake_timeout;
        let handshake = unless_stopping(&control, tokio::time::timeout(time, self.handshake())).await;
        let agreed = match handshake {
            None | Some(Err(_)) | Some(Ok(Err(_))) => return, // stopping, too slow, or gone
            Some(Ok(Ok(agreed))) => agreed,
        };
        match agreed {
            Some(agreed) => Calls::new(self, agreed).run().await,
            None => self.farewell().await,
        }
    }

    /// Reads preamble and header. `None`: what `output` holds is the last word.
    async fn handshake(&mut self) -> io::Result<Option<Agreed>> {
        let mut skip_token = false;
        loop {
            self.fill(PREAMBLE_LEN).await?;
            let mut bytes = [0; PREAMBLE_LEN];
            self.input.copy_to_slice(&mut bytes);
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
        let Some(service) = self.shared.services.get(header.service.as_str()) else {
            tracing::warn!(peer = %self.peer, service = header.service, "unknown service");
            return None;
        };
        let connection = Arc::new(Connection {
            id: self.id,
            peer: self.peer.to_string(),
            user: header.user,
            client_version: header.client_version,
            codec: header.codec,
        });
        Some(Agreed { connection, service: Arc::clone(service), compressor: header.compressor })
    }

    /// Bytes behind an int32 length.
    async fn delimited(&mut self) -> io::Result<Bytes> {
        self.fill(4).await?;
        let len = self.input.get_u32() as usize;
        if len > CONNECTION_HEADER_BYTES_MAX {
            tracing::warn!(peer = %self.peer, len, "connection header too long");
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.fill(len).await?;
        Ok(self.input.split_to(len).freeze())
    }

    /// Reads until `input` holds `len` bytes.
    async fn fill(&mut self, len: usize) -> io::Result<()> {
        while self.input.len() < len {
            self.input.reserve(READ_BYTES_MIN);
            let read = self.stream.read_buf(&mut self.input).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.shared.stats.received_bytes.fetch_add(read as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| poll_flush(&mut self.stream, &mut self.output, cx)).await
    }

    /// Writes what is left and closes so that the client can read it: what it still sends is thrown away
    /// for a while, because closing with unread bytes would reset the connection.
    async fn farewell(mut self) {
        if self.output.is_empty() {
            return;
        }
        let time = self.shared.settings.linger_timeout;
        let control = Arc::clone(&self.control);
        let last_words = async {
            self.flush().await?;
            self.stream.shutdown().await?;
            let mut scrap = vec![0; READ_BYTES_MAX];
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
        control.waker.get_or_init(|| cx.waker().clone());
        if control.stopping.load(Ordering::SeqCst) {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Ready when all is written.
fn poll_flush(stream: &mut TcpStream, output: &mut Output, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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

/// What the connection header settled.
struct Agreed {
    connection: Arc<Connection>,
    service: Arc<dyn Service>,
    compressor: Option<Compressor>,
}

/// A connection that serves calls.
struct Calls {
    task: ConnectionTask,
    agreed: Agreed,
    /// Calls of this turn that were not ready at once.
    fresh: Vec<Waiting>,
    waiting: FuturesUnordered<Waiting>,
    /// The client sends no more.
    eof: bool,
    /// A frame could not be read: the rest of the stream has no meaning.
    broken: bool,
    read_bytes: usize,
    small_reads: u32,
    /// `input` may be the rest of a buffer that was made for a large frame.
    large_buffer: bool,
    tally: Tally,
}

/// Counts of the turn at hand, before they go to the server's counters.
#[derive(Default)]
struct Tally {
    calls: u64,
    calls_failed: u64,
    calls_refused: u64,
    received_bytes: u64,
    /// Bytes of `output` that the server's counter knows of.
    response_bytes: usize,
}

/// A call whose answer is to come.
struct Waiting {
    call_id: u32,
    frame_bytes: usize,
    future: ReplyFuture,
}

struct Finished {
    call_id: u32,
    frame_bytes: usize,
    answer: Result<Reply, RpcError>,
}

impl Future for Waiting {
    type Output = Finished;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Finished> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(cx)));
        let answer = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(answer)) => answer,
            Err(panic) => Err(panicked(&*panic)),
        };
        Poll::Ready(Finished { call_id: self.call_id, frame_bytes: self.frame_bytes, answer })
    }
}

/// One call's failure must not take its neighbours along.
fn panicked(panic: &(dyn std::any::Any + Send)) -> RpcError {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!(panic = text, "a call failed by an assertion");
    RpcError::do_not_retry(format!("the server failed on this call: {text}"))
}

/// How the serving of calls ended.
enum End {
    /// Nobody is there to read answers.
    Gone,
    /// All is answered and written.
    Drained,
}

impl Calls {
    fn new(task: ConnectionTask, agreed: Agreed) -> Calls {
        Calls {
            task,
            agreed,
            fresh: Vec::new(),
            waiting: FuturesUnordered::new(),
            eof: false,
            broken: false,
            read_bytes: READ_BYTES_MIN,
            small_reads: 0,
            large_buffer: false,
            tally: Tally::default(),
        }
    }

    async fn run(mut self) {
        let end = std::future::poll_fn(|cx| self.poll(cx)).await;
        self.settle();
        self.task.shared.stats.response_bytes.fetch_sub(self.tally.response_bytes, Ordering::Relaxed);
        let Calls { task, agreed, waiting, broken, .. } = self;
        let shared = Arc::clone(&task.shared);
        match end {
            End::Drained if broken => task.farewell().await,
            End::Drained | End::Gone => drop(task),
        }
        finish(&shared, waiting).await;
        agreed.service.connection_closed(&agreed.connection);
    }

    /// One turn; everything that returned `Pending` in it wakes the task.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            if self.task.control.closing.load(Ordering::SeqCst) {
                return Poll::Ready(End::Gone);
            }
            let mut moved = self.collect_finished(cx);
            moved |= self.handle_frames();
            let was_full = self.is_output_full();
            let flushed = poll_flush(&mut self.task.stream, &mut self.task.output, cx);
            self.settle();
            match flushed {
                Poll::Ready(Err(_)) => return Poll::Ready(End::Gone),
                Poll::Ready(Ok(())) if was_full => moved = true, // there may be frames left
                Poll::Ready(Ok(())) if self.is_last_turn() => return Poll::Ready(End::Drained),
                Poll::Ready(Ok(())) | Poll::Pending => moved |= was_full && !self.is_output_full(),
            }
            if self.may_read() {
                match self.poll_read(cx) {
                    Poll::Ready(Err(_)) => return Poll::Ready(End::Gone),
                    Poll::Ready(Ok(())) => moved = true,
                    Poll::Pending => {}
                }
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.task.control.stopping.load(Ordering::SeqCst)
    }

    /// No call will come and none is left.
    fn is_last_turn(&self) -> bool {
        (self.eof || self.broken || self.is_stopping()) && self.waiting.is_empty()
    }

    fn is_output_full(&self) -> bool {
        self.task.output.len() >= self.task.shared.settings.connection_response_bytes_max
    }

    fn may_take_calls(&self) -> bool {
        !self.broken
            && self.waiting.len() + self.fresh.len() < self.task.shared.settings.connection_calls_max
            && !self.is_output_full()
            && !self.is_stopping()
    }

    fn may_read(&self) -> bool {
        !self.eof && self.may_take_calls()
    }

    fn collect_finished(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Poll::Ready(Some(finished)) = self.waiting.poll_next_unpin(cx) {
            any = true;
            let stats = &self.task.shared.stats;
            stats.calls_waiting.fetch_sub(1, Ordering::Relaxed);
            stats.request_bytes.fetch_sub(finished.frame_bytes, Ordering::Relaxed);
            self.answer(finished.call_id, finished.answer);
        }
        any
    }

    fn answer(&mut self, call_id: u32, answer: Result<Reply, RpcError>) {
        self.tally.calls_failed += u64::from(answer.is_err());
        self.task.output.push_answer(call_id, answer, self.agreed.compressor);
    }

    fn refuse(&mut self, call_id: u32, error: &RpcError) {
        self.tally.calls_refused += 1;
        self.task.output.push_error(call_id, error);
    }

    /// Handles the whole frames of the input. False if there was none.
    fn handle_frames(&mut self) -> bool {
        if self.task.input.len() < 4 {
            return false;
        }
        let mut received_ns = None;
        let mut overloaded = false;
        while self.may_take_calls() {
            let Some(frame) = self.next_frame() else { break };
            let received_ns = *received_ns.get_or_insert_with(|| {
                overloaded = self.is_overloaded();
                self.task.shared.clock.monotonic_ns()
            });
            self.handle_frame(frame, received_ns, overloaded);
        }
        if received_ns.is_none() {
            return false;
        }
        self.agreed.service.batch_done();
        self.poll_fresh();
        true
    }

    /// Gives what waits a first chance now that the batch is done: most of it is ready in memory, and what
    /// is ready here costs no place among the waiting.
    fn poll_fresh(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut fresh = std::mem::take(&mut self.fresh);
        for mut call in fresh.drain(..) {
            match Pin::new(&mut call).poll(&mut cx) {
                Poll::Ready(finished) => self.answer(finished.call_id, finished.answer),
                Poll::Pending => {
                    let stats = &self.task.shared.stats;
                    stats.calls_waiting.fetch_add(1, Ordering::Relaxed);
                    stats.request_bytes.fetch_add(call.frame_bytes, Ordering::Relaxed);
                    self.waiting.push(call);
                }
            }
        }
        self.fresh = fresh;
    }

    fn is_overloaded(&self) -> bool {
        let (settings, stats) = (&self.task.shared.settings, &self.task.shared.stats);
        stats.calls_waiting.load(Ordering::Relaxed) >= settings.calls_max
            || stats.request_bytes.load(Ordering::Relaxed) >= settings.request_bytes_max
            || stats.response_bytes.load(Ordering::Relaxed) >= settings.response_bytes_max
    }

    /// Cuts the next whole frame off the input.
    fn next_frame(&mut self) -> Option<Bytes> {
        let input = &mut self.task.input;
        loop {
            let len = u32::from_be_bytes(*input.first_chunk()?);
            if len == u32::MAX {
                input.advance(4); // the ping of long gone clients
                continue;
            }
            let len = len as usize;
            if len > self.task.shared.settings.frame_bytes_max {
                self.refuse_frame(len);
                return None;
            }
            if input.len() < 4 + len {
                return None;
            }
            input.advance(4);
            return Some(input.split_to(len).freeze());
        }
    }

    /// Answers a frame that is too long as soon as its header is there; nothing behind it is read.
    fn refuse_frame(&mut self, len: usize) {
        let Some(header) = header_of_part(&self.task.input[4..]) else { return };
        self.broken = true;
        let Some(call_id) = header.and_then(|header| header.call_id) else { return };
        let max = self.task.shared.settings.frame_bytes_max;
        let text = format!(
            "RPC data length of {len} received from {} is greater than max allowed {max}. \
             Set \"hbase.ipc.max.request.size\" on server to override this limit (not recommended)",
            self.task.peer
        );
        let known = self.agreed.connection.client_at_least(1, 3);
        let class = if known { &exceptions::REQUEST_TOO_BIG } else { &exceptions::DO_NOT_RETRY_IO };
        self.refuse(call_id, &RpcError::new(class, text));
    }

    fn handle_frame(&mut self, frame: Bytes, received_ns: u64, overloaded: bool) {
        let frame_bytes = frame.len();
        let request = match Request::parse(frame) {
            Ok(request) => request,
            Err(FrameError::NoHeader(reason)) => {
                tracing::warn!(peer = %self.task.peer, reason, "unreadable request header");
                self.broken = true;
                return;
            }
            Err(FrameError::BadCall { call_id, message }) => {
                return self.refuse(call_id, &RpcError::do_not_retry(message));
            }
        };
        let call_id = request.header.call_id.unwrap_or_default();
        if overloaded {
            let text = "Call queue is full, is hbase.ipc.server.max.callqueue.size too small?";
            return self.refuse(call_id, &RpcError::call_queue_too_big(text));
        }
        let call = match self.call(request, received_ns) {
            Ok(call) => call,
            Err(error) => return self.refuse(call_id, &error),
        };
        self.tally.calls += 1;
        let service = &self.agreed.service;
        match catch_unwind(AssertUnwindSafe(|| service.call(call))) {
            Ok(Outcome::Ready(answer)) => self.answer(call_id, answer),
            Ok(Outcome::Later(future)) => self.fresh.push(Waiting { call_id, frame_bytes, future }),
            Err(panic) => self.answer(call_id, Err(panicked(&*panic))),
        }
    }

    fn call(&self, request: Request, received_ns: u64) -> Result<Call, RpcError> {
        let header = request.header;
        let cells = match (request.cell_block.is_empty(), self.agreed.connection.codec) {
            (true, _) => Vec::new(),
            (false, Some(codec)) => self.cells(codec, request.cell_block)?,
            (false, None) => {
                return Err(RpcError::do_not_retry("a cell block, but the connection named no codec"));
            }
        };
        let timeout = header.timeout.filter(|ms| *ms > 0).map(|ms| Duration::from_millis(u64::from(ms)));
        Ok(Call {
            id: header.call_id.unwrap_or_default(),
            method: header.method_name.unwrap_or_default(),
            param: request.param,
            cells,
            priority: header.priority.unwrap_or(0),
            timeout,
            received_ns,
            connection: Arc::clone(&self.agreed.connection),
        })
    }

    fn cells(&self, codec: Codec, block: Bytes) -> Result<Vec<halcyon_cell::Cell>, RpcError> {
        let raw_bytes_max = self.task.shared.settings.frame_bytes_max;
        let block = match self.agreed.compressor {
            Some(compressor) => compressor.decompress(&block, raw_bytes_max),
            None => Ok(block),
        };
        let cells = block.and_then(|block| decode_cells(codec, block));
        cells.map_err(|error| RpcError::do_not_retry(format!("Unable to read cell block: {error}")))
    }

    /// Reads once. `Ok` with `eof` set if the client sends no more.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let input = &mut self.task.input;
        if input.capacity() == 0 {
            // An idle connection holds no buffer, not even an empty rest of one.
            *input = BytesMut::new();
            match self.task.stream.poll_read_ready(cx) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
        let room = room_wanted(input, self.read_bytes, self.task.shared.settings.frame_bytes_max);
        if input.capacity() - input.len() < room {
            input.reserve(room);
        }
        self.large_buffer |= input.capacity() > READ_BYTES_MAX;
        let room = input.capacity() - input.len();
        let read = pin!(self.task.stream.read_buf(input)).poll(cx);
        match read {
            Poll::Ready(Ok(len)) => {
                self.eof = len == 0;
                self.tally.received_bytes += len as u64;
                self.adapt_read_bytes(len, room);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                if input.is_empty() && (self.read_bytes > READ_BYTES_MIN || self.large_buffer) {
                    *input = BytesMut::new();
                    self.large_buffer = false;
                }
                Poll::Pending
            }
        }
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

    /// Moves the counts of this turn to the server's counters.
    fn settle(&mut self) {
        let (tally, stats) = (&mut self.tally, &self.task.shared.stats);
        for (count, counter) in [
            (&mut tally.calls, &stats.calls),
            (&mut tally.calls_failed, &stats.calls_failed),
            (&mut tally.calls_refused, &stats.calls_refused),
            (&mut tally.received_bytes, &stats.received_bytes),
        ] {
            if *count > 0 {
                counter.fetch_add(std::mem::take(count), Ordering::Relaxed);
            }
        }
        let queued = self.task.output.len();
        if queued > tally.response_bytes {
            stats.response_bytes.fetch_add(queued - tally.response_bytes, Ordering::Relaxed);
        } else if queued < tally.response_bytes {
            stats.response_bytes.fetch_sub(tally.response_bytes - queued, Ordering::Relaxed);
        }
        tally.response_bytes = queued;
        let written = self.task.output.take_written();
        if written > 0 {
            stats.sent_bytes.fetch_add(written, Ordering::Relaxed);
        }
    }
}

/// Room to have before a read: for the rest of a frame that has begun, else for a usual read.
fn room_wanted(input: &BytesMut, read_bytes: usize, frame_bytes_max: usize) -> usize {
    let Some(len) = input.first_chunk() else { return read_bytes };
    let len = u32::from_be_bytes(*len) as usize;
    if len > frame_bytes_max {
        return HEADER_BYTES_MAX; // only the header of this one is wanted
    }
    let missing = (4 + len).saturating_sub(input.len());
    if input.len() < READ_BYTES_MAX {
        return missing.min(READ_BYTES_MAX).max(read_bytes);
    }
    // Nobody gets a large buffer for announcing a large frame, only for sending it.
    missing.clamp(1, input.len().min(GROWTH_BYTES_MAX))
}

/// Drives calls of a client that has gone to their end.
async fn finish(shared: &Shared, mut waiting: FuturesUnordered<Waiting>) {
    while let Some(finished) = waiting.next().await {
        shared.stats.calls_waiting.fetch_sub(1, Ordering::Relaxed);
        shared.stats.request_bytes.fetch_sub(finished.frame_bytes, Ordering::Relaxed);
    }
}
