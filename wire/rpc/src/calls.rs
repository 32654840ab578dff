//! The calls of a connection whose header was taken.
//!
//! This file has a connection's turn. `requests.rs` makes calls of frames, `cells.rs` unpacks their cells, `answers.rs`
//! gives answers to the socket.

mod answers;
mod cells;
mod requests;

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};

pub use self::requests::LONG_PARAM_BYTES;
use crate::connection::{ConnectionTask, poll_flush};
use crate::event_loops::LoopHandle;
use crate::noted::{GivenCall, detached};
use crate::queues::{Charge, OwnWaiting};
use crate::shared::{Agreed, Arriving, Shared};
use crate::trace::CallSpan;
use crate::{CallClass, PeerPlace, Reply, ReplyFuture, RpcError, Tags};

/// A connection that has received this much in one turn lets the others of its thread have theirs.
const TURN_BYTES_MAX: usize = 256 << 10;
/// As long may the calls of a turn take until then. Longer than what arrives together from a client that waits
/// for answers, so that the log is driven once for all of it.
const TURN_NS_MAX: u64 = 5_000_000;
/// Length of the length before each frame.
const LENGTH_BYTES: usize = 4;
/// Calls between two looks at the clock.
const TURN_CHECK_CALLS: u32 = 8;

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
    /// The frame of which only a part is here, and the room that is kept for it.
    charged: Option<Charged>,
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

/// A frame, and the room that it keeps until its call is answered, if it is so large that it was let in alone.
struct Frame {
    bytes: Bytes,
    room: Option<Box<Charge>>,
}

/// Room for a frame of which only a part is here.
enum Charged {
    /// Too little is here to tell its length, or of a large one its class.
    Begun { charge: Charge },
    /// A frame of this length in the part of small frames.
    Small { len: usize, charge: Charge },
    /// A frame of this length in the part of its class.
    Large { len: usize, class: CallClass, charge: Charge },
}

impl Charged {
    /// Whether it is room for all of a frame of this length.
    fn is_for(&self, frame_len: usize) -> bool {
        match self {
            Charged::Begun { .. } => false,
            Charged::Small { len, .. } | Charged::Large { len, .. } => *len == frame_len,
        }
    }
}

/// Calls of one class that arrived together.
struct Answered {
    class: CallClass,
    received_ns: u64,
    count: u64,
    failed_count: u64,
    tags: Tags,
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
    /// Of a traced call.
    span: Option<Box<CallSpan>>,
    /// Room for its decoded message and its cells, if they are large, and for a very large frame. Few are, and each call is
    /// moved with this.
    room: Option<Box<Charge>>,
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
        let asked = &mut self.asked;
        let (head, span) = (std::mem::take(&mut asked.head), asked.span.take());
        let room = asked.room.take();
        let Asked { call_id, class, received_ns, aside_ns, .. } = *asked;
        let asked = Asked { call_id, class, received_ns, aside_ns, head, span, room };
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
            End::Drained => drop(task),
            // Its calls are its peer's until they end, though their connection has gone.
            End::Gone => finish(&shared, task.end(), waiting).await,
        }
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
                if !self.has_large_room() {
                    self.task.input.fit();
                }
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
            let (queues, peer) = (&self.task.shared.queues, self.task.place.peer());
            queues.end_wait(finished.asked.class, finished.frame_bytes, peer);
            self.finish(finished);
        }
        any
    }

    fn finish(&mut self, finished: Finished) {
        let Finished { asked, frame_bytes, answer } = finished;
        self.held[asked.class.index()].sub(frame_bytes);
        self.answer(asked, answer);
    }

    /// Handles the whole frames of the input. False if there was none.
    fn handle_frames(&mut self) -> bool {
        if self.task.input.bytes().len() < LENGTH_BYTES {
            self.left_over = false;
            if !self.task.input.bytes().is_empty() && self.charged.is_none() {
                self.charge_beginning();
            }
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
        self.end_batch();
        self.poll_fresh();
        true
    }

    /// Tells the service that all calls which arrived together were handed out.
    fn end_batch(&mut self) {
        let (service, shared) = (&self.agreed.service, &self.task.shared);
        let began_ns = shared.tracer.as_ref().map(|_| shared.clock.monotonic_ns());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| service.batch_done())) {
            panicked(&*panic);
        }
        let Some(began_ns) = began_ns else { return };
        let batch_ns = shared.clock.monotonic_ns().saturating_sub(began_ns);
        for span in self.fresh.iter_mut().filter_map(|call| call.asked.span.as_mut()) {
            span.batch_ns = batch_ns;
        }
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
                    let peer = self.task.place.peer();
                    shared.queues.begin_wait(call.asked.class, call.frame_bytes, peer);
                    call.asked.aside_ns = *now_ns.get_or_insert_with(|| shared.clock.monotonic_ns());
                    call.asked.head = detached(&call.asked.head);
                    self.waiting.push(call);
                }
            }
        }
        self.fresh = fresh;
    }

    /// Whether room for the whole rest of the frame was made, as large as it says it is.
    fn has_large_room(&self) -> bool {
        matches!(self.charged, Some(Charged::Large { .. }))
    }

    /// Reads once. `Ok` with `eof` set if the client sends no more.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let has_room = self.has_large_room();
        let task = &mut self.task;
        let frame_bytes_max = task.shared.settings.frame_bytes_max;
        let read = task.input.poll_read(&mut task.stream, frame_bytes_max, has_room, cx);
        read.map_ok(|len| {
            self.eof = len == 0;
            self.received_ns = self.task.shared.clock.monotonic_ns();
            self.tally.received_bytes += len as u64;
            self.turn_bytes += len;
            if self.charged.is_some() {
                self.task.control.continue_frame(len, self.received_ns);
            }
        })
    }
}

/// Drives calls of a client that has gone to their end.
async fn finish(shared: &Shared, place: PeerPlace, mut waiting: FuturesUnordered<Waiting>) {
    while let Some(finished) = waiting.next().await {
        let class = finished.asked.class;
        shared.queues.end_wait(class, finished.frame_bytes, place.peer());
        if let Err(RpcError { dropped: Some(why), .. }) = finished.answer {
            shared.queues.note_dropped(class, why);
            finished.asked.span.into_iter().for_each(|span| span.drop_call(why));
        }
    }
}
