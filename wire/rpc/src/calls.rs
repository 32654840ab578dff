//! The calls of a connection whose header was taken.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::connection::{ConnectionTask, poll_flush};
use crate::frame::{FrameError, Request, header_of_part};
use crate::input::READ_BYTES_MAX;
use crate::server::Shared;
use crate::{
    Call, Codec, Compressor, Connection, Outcome, Reply, ReplyFuture, RpcError, Service, decode_cells,
    exceptions,
};

/// Frames from here on are counted while they arrive, not only once they are whole.
const LARGE_FRAME_BYTES: usize = READ_BYTES_MAX;
/// A connection that has received this much in one turn lets the others of its thread have theirs.
const TURN_BYTES_MAX: usize = 256 << 10;
/// Words of 2.6.4 for a call that found no room.
const QUEUE_FULL: &str = "Call queue is full, is hbase.ipc.server.max.callqueue.size too small?";

/// What the connection header settled.
pub(crate) struct Agreed {
    pub connection: Arc<Connection>,
    pub service: Arc<dyn Service>,
    pub compressor: Option<Compressor>,
}

/// A connection that serves calls.
pub(crate) struct Calls {
    task: ConnectionTask,
    agreed: Agreed,
    /// Calls of this turn that were not ready at once.
    fresh: Vec<Waiting>,
    waiting: FuturesUnordered<Waiting>,
    /// The client sends no more.
    eof: bool,
    /// A frame could not be read: the rest of the stream has no meaning.
    broken: bool,
    /// Bytes charged for a large frame of which only a part is here.
    charged_bytes: usize,
    /// Bytes received in the turn at hand.
    turn_bytes: usize,
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
    pub fn new(task: ConnectionTask, agreed: Agreed) -> Calls {
        Calls {
            task,
            agreed,
            fresh: Vec::new(),
            waiting: FuturesUnordered::new(),
            eof: false,
            broken: false,
            charged_bytes: 0,
            turn_bytes: 0,
            tally: Tally::default(),
        }
    }

    pub async fn run(mut self) {
        let end = std::future::poll_fn(|cx| self.poll(cx)).await;
        self.settle();
        self.release_charge();
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
        self.turn_bytes = 0;
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
            if self.turn_bytes >= TURN_BYTES_MAX {
                cx.waker().wake_by_ref();
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
        if self.task.input.bytes().len() < 4 {
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
        let service = &self.agreed.service;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| service.batch_done())) {
            panicked(&*panic);
        }
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
        loop {
            let len = self.task.input.first_u32()?;
            if len == u32::MAX {
                self.task.input.advance(4); // the ping of long gone clients
                continue;
            }
            let len = len as usize;
            if len > self.task.shared.settings.frame_bytes_max {
                self.refuse_frame(len);
                return None;
            }
            if self.task.input.bytes().len() >= 4 + len {
                self.release_charge();
                self.task.input.advance(4);
                return Some(self.task.input.take(len));
            }
            if len < LARGE_FRAME_BYTES || self.charged_bytes > 0 || self.charge(len) {
                return None;
            }
            // No memory for this one: its call is told as soon as its header is here, the rest is dropped.
            let header = header_of_part(&self.task.input.bytes()[4..])?;
            if let Some(call_id) = header.and_then(|header| header.call_id) {
                self.refuse(call_id, &RpcError::call_queue_too_big(QUEUE_FULL));
            }
            self.task.input.skip(4 + len);
        }
    }

    /// Counts a large frame from its beginning, so that many of them cannot fill the memory while they arrive.
    /// The first one always has room.
    fn charge(&mut self, len: usize) -> bool {
        let shared = &self.task.shared;
        let before = shared.stats.request_bytes.fetch_add(len, Ordering::Relaxed);
        if before > 0 && before + len > shared.settings.request_bytes_max {
            shared.stats.request_bytes.fetch_sub(len, Ordering::Relaxed);
            return false;
        }
        self.charged_bytes = len;
        true
    }

    fn release_charge(&mut self) {
        if self.charged_bytes > 0 {
            let stats = &self.task.shared.stats;
            stats.request_bytes.fetch_sub(std::mem::take(&mut self.charged_bytes), Ordering::Relaxed);
        }
    }

    /// Answers a frame that is too long as soon as its header is there; nothing behind it is read.
    fn refuse_frame(&mut self, len: usize) {
        let Some(header) = header_of_part(&self.task.input.bytes()[4..]) else { return };
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
            return self.refuse(call_id, &RpcError::call_queue_too_big(QUEUE_FULL));
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
        let task = &mut self.task;
        let (frame_bytes_max, has_room) = (task.shared.settings.frame_bytes_max, self.charged_bytes > 0);
        let read = task.input.poll_read(&mut task.stream, frame_bytes_max, has_room, cx);
        read.map_ok(|len| {
            self.eof = len == 0;
            self.tally.received_bytes += len as u64;
            self.turn_bytes += len;
        })
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
        let cells = self.task.output.take_cells();
        for (counter, bytes) in
            [(&stats.shared_cell_bytes, cells.shared), (&stats.copied_cell_bytes, cells.copied)]
        {
            if bytes > 0 {
                counter.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }
}

/// Drives calls of a client that has gone to their end.
async fn finish(shared: &Shared, mut waiting: FuturesUnordered<Waiting>) {
    while let Some(finished) = waiting.next().await {
        shared.stats.calls_waiting.fetch_sub(1, Ordering::Relaxed);
        shared.stats.request_bytes.fetch_sub(finished.frame_bytes, Ordering::Relaxed);
    }
}
