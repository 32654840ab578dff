//! The calls of a connection whose header was taken.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use halcyon_proto::pb;

use crate::connection::{ConnectionTask, poll_flush};
use crate::event_loops::LoopHandle;
use crate::frame::{FrameError, Request, header_of_part};
use crate::input::READ_BYTES_MAX;
use crate::noted::{GivenCall, UNSENT_MAX, detached};
use crate::queues::OwnWaiting;
use crate::shared::{Agreed, Arriving, Shared};
use crate::{
    AnsweredCalls, Call, CallClass, CallHead, Codec, Dropped, Outcome, Reply, ReplyFuture, RpcError,
    decode_cells, exceptions,
};

/// Frames from here on are counted while they arrive, not only once they are whole.
const LARGE_FRAME_BYTES: usize = READ_BYTES_MAX;
/// A connection that has received this much in one turn lets the others of its thread have theirs.
const TURN_BYTES_MAX: usize = 256 << 10;
/// As long may the calls of a turn take until then. Longer than what arrives together from a client that waits
/// for answers, so that the log is driven once for all of it.
const TURN_NS_MAX: u64 = 5_000_000;
/// Calls between two looks at the clock.
const TURN_CHECK_CALLS: u32 = 8;
/// Room for answered calls that an idle connection keeps.
const GIVEN_KEPT_MAX: usize = 32;
/// Words of 2.6.4 for a call that found no room.
const QUEUE_FULL: &str = "Call queue is full, is hbase.ipc.server.max.callqueue.size too small?";

/// A connection that serves calls.
pub(crate) struct Calls {
    task: ConnectionTask,
    agreed: Agreed,
    /// Its place, where the server has event loops.
    loop_handle: Option<LoopHandle>,
    /// Until it has had a turn.
    arriving: Option<Arriving>,
    /// Calls of this turn that were not ready at once.
    fresh: Vec<Waiting>,
    waiting: FuturesUnordered<Waiting>,
    /// What `fresh` and `waiting` hold of each class.
    held: [OwnWaiting; CallClass::COUNT],
    /// The client sends no more.
    eof: bool,
    /// A frame could not be read: the rest of the stream has no meaning.
    broken: bool,
    /// Class and bytes charged for a large frame of which only a part is here.
    charged: Option<(CallClass, usize)>,
    /// When bytes were received last.
    received_ns: u64,
    /// Whole frames may be left of what was received in an earlier turn.
    left_over: bool,
    /// Bytes received in the turn at hand.
    turn_bytes: usize,
    /// The turn at hand took too long.
    turn_over: bool,
    tally: Tally,
    /// Calls answered since the last write to the socket.
    answered: Vec<Answered>,
    /// Answered calls of this turn, and earlier ones whose answers the socket did not take yet.
    given: Vec<GivenCall>,
}

/// Calls of one class that arrived together.
struct Answered {
    class: CallClass,
    received_ns: u64,
    count: u64,
    failed_count: u64,
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
    asked: Asked,
    frame_bytes: usize,
    future: ReplyFuture,
}

struct Finished {
    asked: Asked,
    frame_bytes: usize,
    answer: Result<Reply, RpcError>,
}

/// What is kept of a call until it is answered.
struct Asked {
    call_id: u32,
    class: CallClass,
    received_ns: u64,
    /// When it was put aside; 0 if it was not.
    aside_ns: u64,
    /// Header and message.
    head: Bytes,
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
        let head = std::mem::take(&mut self.asked.head);
        let asked = Asked { head, ..self.asked };
        Poll::Ready(Finished { asked, frame_bytes: self.frame_bytes, answer })
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
    pub fn new(
        task: ConnectionTask,
        agreed: Agreed,
        loop_handle: Option<LoopHandle>,
        arriving: Option<Arriving>,
    ) -> Calls {
        // The first calls may have come with the opening.
        let received_ns = task.shared.clock.monotonic_ns();
        Calls {
            task,
            agreed,
            loop_handle,
            arriving,
            fresh: Vec::new(),
            waiting: FuturesUnordered::new(),
            held: Default::default(),
            eof: false,
            broken: false,
            charged: None,
            received_ns,
            left_over: false,
            turn_bytes: 0,
            turn_over: false,
            tally: Tally::default(),
            answered: Vec::new(),
            given: Vec::new(),
        }
    }

    pub async fn run(mut self) {
        std::future::poll_fn(|cx| {
            self.task.control.is_served_by(cx.waker());
            Poll::Ready(())
        })
        .await;
        // Whatever fails by an assertion, what was counted for this connection is taken back below.
        let turn = |cx: &mut Context<'_>| {
            let turn = catch_unwind(AssertUnwindSafe(|| self.poll(cx))).unwrap_or_else(|panic| {
                panicked(&*panic);
                Poll::Ready(End::Gone)
            });
            self.arriving = None;
            turn
        };
        let end = std::future::poll_fn(turn).await;
        self.settle();
        self.release_charge();
        self.task.shared.queues.sub_response_bytes(self.tally.response_bytes);
        let Calls { task, agreed, waiting, broken, .. } = self;
        let shared = Arc::clone(&task.shared);
        agreed.connection.state.gone.store(true, Ordering::Relaxed);
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
        self.turn_over = false;
        loop {
            if self.task.control.closing.load(Ordering::SeqCst) {
                return Poll::Ready(End::Gone);
            }
            if self.task.control.detaching.swap(false, Ordering::Relaxed) {
                self.task.output.detach();
            }
            let mut moved = self.collect_finished(cx);
            moved |= self.handle_frames();
            let was_full = self.is_output_full();
            let flushed = poll_flush(&mut self.task.stream, &mut self.task.output, cx);
            self.note_times();
            self.settle();
            if self.task.control.is_detached() {
                self.task.output.detach(); // what has come since as well
            }
            match flushed {
                Poll::Ready(Err(_)) => return Poll::Ready(End::Gone),
                Poll::Ready(Ok(())) if was_full => moved = true, // there may be frames left
                Poll::Ready(Ok(())) if self.is_last_turn() => return Poll::Ready(End::Drained),
                Poll::Ready(Ok(())) | Poll::Pending => moved |= was_full && !self.is_output_full(),
            }
            // What is left for one connection changes with what others have, without a word.
            moved |= self.left_over && self.may_take_calls();
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
            if self.turn_bytes >= TURN_BYTES_MAX || self.turn_over {
                // Woken once the thread has looked for new input, so that others who have just sent a call go before.
                let _ = pin!(tokio::task::yield_now()).poll(cx);
                return Poll::Pending;
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.task.control.stopping.load(Ordering::SeqCst)
    }

    /// No call will come and none is left.
    fn is_last_turn(&self) -> bool {
        let none_left = self.broken || self.is_stopping() || (self.eof && !self.left_over);
        none_left && self.waiting.is_empty()
    }

    fn is_output_full(&self) -> bool {
        let len = self.task.output.len();
        if len == 0 {
            return false;
        }
        let (settings, queues) = (&self.task.shared.settings, &self.task.shared.queues);
        len >= settings.connection_response_bytes_max || len >= queues.connection_bytes_max()
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
            self.task.shared.queues.end_wait(finished.asked.class, finished.frame_bytes);
            self.finish(finished);
        }
        any
    }

    fn finish(&mut self, finished: Finished) {
        let Finished { asked, frame_bytes, answer } = finished;
        self.held[asked.class.index()].sub(frame_bytes);
        self.answer(asked, answer);
    }

    fn answer(&mut self, asked: Asked, answer: Result<Reply, RpcError>) {
        let Asked { call_id, class, received_ns, aside_ns, head } = asked;
        if let Err(RpcError { dropped: Some(why), .. }) = answer {
            return self.task.shared.queues.note_dropped(class, why);
        }
        let failed = u64::from(answer.is_err());
        self.tally.calls_failed += failed;
        let begin = self.task.output.end();
        self.task.output.push_answer(call_id, answer, self.agreed.compressor);
        let end = self.task.output.end();
        self.given.push(GivenCall {
            head,
            class,
            failed: failed > 0,
            received_ns,
            aside_ns,
            answered_ns: 0,
            response_bytes: end - begin,
            end,
        });
        match self.answered.last_mut() {
            Some(last) if last.class == class && last.received_ns == received_ns => {
                last.count += 1;
                last.failed_count += failed;
            }
            _ => self.answered.push(Answered { class, received_ns, count: 1, failed_count: failed }),
        }
    }

    /// Counts how long the calls took whose answers the socket has just been given.
    fn note_times(&mut self) {
        if self.given.is_empty() {
            return;
        }
        let now_ns = self.task.shared.clock.monotonic_ns();
        for Answered { class, received_ns, count, failed_count } in self.answered.drain(..) {
            let took_ns = now_ns.saturating_sub(received_ns);
            self.task.shared.queues.note_time(class, took_ns, count);
            let connection = &self.agreed.connection;
            self.agreed.service.answered(&AnsweredCalls { connection, class, count, failed_count, took_ns });
        }
        self.note_given(now_ns);
    }

    /// Tells the service of notable calls whose answers the socket has taken. The others stay.
    fn note_given(&mut self, now_ns: u64) {
        let Agreed { service, connection, .. } = &self.agreed;
        let (notable, sent) = (service.notable(), self.task.output.sent());
        let mut unsent = 0;
        self.given.retain_mut(|call| {
            let is_new = call.answered_ns == 0;
            if is_new {
                call.answered_ns = now_ns;
            }
            if call.end > sent && unsent < UNSENT_MAX {
                unsent += 1;
                if is_new {
                    call.head = detached(&call.head);
                }
                return true;
            }
            if call.is_over(&notable, now_ns) {
                call.tell(connection, now_ns, |call| service.noted(call));
            }
            false
        });
        if self.given.is_empty() && self.given.capacity() > GIVEN_KEPT_MAX {
            self.given = Vec::new();
        }
    }

    fn refuse(&mut self, call_id: u32, error: &RpcError) {
        self.tally.calls_refused += 1;
        self.task.output.push_error(call_id, error);
    }

    /// Handles the whole frames of the input. False if there was none.
    fn handle_frames(&mut self) -> bool {
        if self.task.input.bytes().len() < 4 {
            self.left_over = false;
            return false;
        }
        let (mut calls, mut began_ns) = (0, self.received_ns);
        let was_left_over = std::mem::replace(&mut self.left_over, true);
        while self.may_take_calls() && !self.turn_over {
            let Some(frame) = self.next_frame() else {
                self.left_over = false;
                break;
            };
            if calls == 0 && was_left_over {
                began_ns = self.task.shared.clock.monotonic_ns();
            }
            calls += 1;
            self.handle_frame(frame, began_ns);
            if calls % TURN_CHECK_CALLS == 0 {
                let now_ns = self.task.shared.clock.monotonic_ns();
                self.turn_over = now_ns.saturating_sub(began_ns) >= TURN_NS_MAX;
            }
        }
        if calls == 0 {
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
        let mut now_ns = None;
        let mut fresh = std::mem::take(&mut self.fresh);
        for mut call in fresh.drain(..) {
            match Pin::new(&mut call).poll(&mut cx) {
                Poll::Ready(finished) => self.finish(finished),
                Poll::Pending => {
                    let shared = &self.task.shared;
                    shared.queues.begin_wait(call.asked.class, call.frame_bytes);
                    call.asked.aside_ns = *now_ns.get_or_insert_with(|| shared.clock.monotonic_ns());
                    call.asked.head = detached(&call.asked.head);
                    self.waiting.push(call);
                }
            }
        }
        self.fresh = fresh;
    }

    fn refuse_full(&mut self, call_id: u32, class: CallClass) {
        self.task.shared.queues.note_refused(class);
        self.refuse(call_id, &RpcError::call_queue_too_big(QUEUE_FULL));
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
            if len < LARGE_FRAME_BYTES || self.charged.is_some() {
                return None;
            }
            let (header, param) = header_of_part(&self.task.input.bytes()[4..])?;
            let class = header.as_ref().map_or(CallClass::Meta, |header| self.class(header, param));
            if self.task.shared.queues.charge(class, len) {
                self.charged = Some((class, len));
                return None;
            }
            // No memory for this one: its call is told as soon as its header is here, the rest is dropped.
            if let Some(call_id) = header.and_then(|header| header.call_id) {
                self.refuse_full(call_id, class);
            }
            self.task.input.skip(4 + len);
        }
    }

    fn class(&self, header: &pb::RequestHeader, param: &[u8]) -> CallClass {
        let method = header.method_name.as_deref().unwrap_or_default();
        let head = CallHead { method, priority: header.priority.unwrap_or(0), param };
        self.agreed.service.class(&head)
    }

    /// A frame that was counted while it arrived is here, or never will be.
    fn release_charge(&mut self) {
        if let Some((class, bytes)) = self.charged.take() {
            self.task.shared.queues.release(class, bytes);
        }
    }

    /// Answers a frame that is too long as soon as its header is there; nothing behind it is read.
    fn refuse_frame(&mut self, len: usize) {
        let Some((header, _)) = header_of_part(&self.task.input.bytes()[4..]) else { return };
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

    fn handle_frame(&mut self, frame: Bytes, now_ns: u64) {
        let frame_bytes = frame.len();
        let mut head = frame.clone();
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
        let class = self.class(&request.header, &request.param);
        if self.task.shared.queues.is_full(class, &self.held[class.index()]) {
            return self.refuse_full(call_id, class);
        }
        let timeout = self.timeout(&request.header);
        if timeout.is_some_and(|timeout| now_ns.saturating_sub(self.received_ns) > timeout.as_nanos() as u64)
        {
            return self.task.shared.queues.note_dropped(class, Dropped::Expired);
        }
        head.truncate(frame_bytes - request.cell_block.len());
        let call = match self.call(request, class, timeout) {
            Ok(call) => call,
            Err(error) => return self.refuse(call_id, &error),
        };
        self.tally.calls += 1;
        let asked = Asked { call_id, class, received_ns: self.received_ns, aside_ns: 0, head };
        let service = &self.agreed.service;
        match catch_unwind(AssertUnwindSafe(|| service.call(call))) {
            Ok(Outcome::Ready(answer)) => self.answer(asked, answer),
            Ok(Outcome::Later(future)) => {
                self.held[class.index()].add(frame_bytes);
                self.fresh.push(Waiting { asked, frame_bytes, future });
            }
            Err(panic) => self.answer(asked, Err(panicked(&*panic))),
        }
    }

    /// How long the client waits from when its call was received.
    fn timeout(&self, header: &pb::RequestHeader) -> Option<Duration> {
        let timeout = header.timeout.filter(|ms| *ms > 0).map(|ms| Duration::from_millis(u64::from(ms)));
        timeout.map(|timeout| timeout.max(self.task.shared.settings.request_timeout_min))
    }

    fn call(&self, request: Request, class: CallClass, timeout: Option<Duration>) -> Result<Call, RpcError> {
        let header = request.header;
        let cells = match (request.cell_block.is_empty(), self.agreed.connection.codec) {
            (true, _) => Vec::new(),
            (false, Some(codec)) => self.cells(codec, request.cell_block)?,
            (false, None) => {
                return Err(RpcError::do_not_retry("a cell block, but the connection named no codec"));
            }
        };
        Ok(Call {
            id: header.call_id.unwrap_or_default(),
            method: header.method_name.unwrap_or_default(),
            param: request.param,
            cells,
            priority: header.priority.unwrap_or(0),
            class,
            timeout,
            received_ns: self.received_ns,
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
        let (frame_bytes_max, has_room) = (task.shared.settings.frame_bytes_max, self.charged.is_some());
        let read = task.input.poll_read(&mut task.stream, frame_bytes_max, has_room, cx);
        read.map_ok(|len| {
            self.eof = len == 0;
            self.received_ns = self.task.shared.clock.monotonic_ns();
            self.tally.received_bytes += len as u64;
            self.turn_bytes += len;
        })
    }

    /// Moves the counts of this turn to the server's counters.
    fn settle(&mut self) {
        let (tally, stats) = (&mut self.tally, &self.task.shared.stats);
        if let Some(loop_handle) = self.loop_handle.as_ref().filter(|_| tally.calls > 0) {
            loop_handle.note_calls(tally.calls);
        }
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
            self.task.shared.queues.add_response_bytes(queued - tally.response_bytes);
        } else if queued < tally.response_bytes {
            self.task.shared.queues.sub_response_bytes(tally.response_bytes - queued);
        }
        if queued != tally.response_bytes {
            self.agreed.connection.state.waiting_bytes.store(queued, Ordering::Relaxed);
        }
        tally.response_bytes = queued;
        let written = self.task.output.take_written();
        let silent_since_ns = &self.task.control.silent_since_ns;
        if queued == 0 || written > 0 {
            if silent_since_ns.load(Ordering::Relaxed) > 0 {
                silent_since_ns.store(0, Ordering::Relaxed);
            }
        } else if silent_since_ns.load(Ordering::Relaxed) == 0 {
            silent_since_ns.store(self.task.shared.clock.monotonic_ns().max(1), Ordering::Relaxed);
        }
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
        let class = finished.asked.class;
        shared.queues.end_wait(class, finished.frame_bytes);
        if let Err(RpcError { dropped: Some(why), .. }) = finished.answer {
            shared.queues.note_dropped(class, why);
        }
    }
}
