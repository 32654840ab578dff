//! From frames to calls: cuts frames off the input, decodes them, and hands them to the service.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use halcyon_proto::pb;

use super::{Asked, Calls, Charged, Frame, LENGTH_BYTES, Waiting, panicked};
use crate::frame::{FrameError, HEADER_BYTES_MAX, Request, header_of_part};
use crate::input::{READ_BYTES_MAX, READ_BYTES_MIN};
use crate::queues::{ArrivingFrame, Asker, CALL_BYTES, Charge, Share};
use crate::trace::CallSpan;
use crate::unpack::Here;
use crate::{Call, CallClass, CallHead, Dropped, ExceptionClass, Outcome, RpcError, exceptions};

/// Frames from here on are counted in the part of their class while they arrive.
const LARGE_FRAME_BYTES: usize = READ_BYTES_MAX;
/// Messages from here on may become many times as large when they are decoded: room is kept for what they become, cells that are made of
/// their values as well.
pub const LONG_PARAM_BYTES: usize = 16 << 10;
/// What messages up to this become is part of [`CALL_BYTES`], but for hostile ones, of which it is little.
const SHORT_PARAM_BYTES: usize = 1 << 10;
/// Headers with as many attributes become many times as large as well.
const MANY_ATTRIBUTES: usize = 64;
/// Words of 2.6.4 for a call that found no room.
pub(super) const QUEUE_FULL: &str = "Call queue is full, is hbase.ipc.server.max.callqueue.size too small?";

/// There is no room for what a message becomes.
enum NoMemory {
    Now,
    /// All requests together may have no more than that.
    Ever(usize),
}

impl Calls {
    fn refuse_full(&mut self, call_id: u32, class: CallClass, span: Option<Box<CallSpan>>) {
        let (queues, peer) = (&self.task.shared.queues, self.task.place.peer());
        queues.note_refused(class, peer, self.agreed.connection.id, self.received_ns);
        self.refuse_traced(call_id, span, &RpcError::call_queue_too_big(QUEUE_FULL));
    }

    fn refuse_traced(&mut self, call_id: u32, span: Option<Box<CallSpan>>, error: &RpcError) {
        span.into_iter().for_each(|span| span.refuse(error));
        self.refuse(call_id, error);
    }

    /// Cuts the next whole frame off the input.
    pub(super) fn next_frame(&mut self) -> Option<Frame> {
        loop {
            let Some(len) = self.task.input.first_u32() else {
                if !self.task.input.bytes().is_empty() {
                    self.charge_beginning();
                }
                return None;
            };
            if len == u32::MAX {
                self.task.input.advance(LENGTH_BYTES); // the ping of long gone clients
                continue;
            }
            let len = len as usize;
            if len > self.task.shared.settings.frame_bytes_max {
                self.refuse_frame(len);
                return None;
            }
            if self.task.input.bytes().len() >= LENGTH_BYTES + len {
                let room = self.take_charge();
                self.task.input.advance(LENGTH_BYTES);
                return Some(Frame { bytes: self.task.input.take(len), room });
            }
            if self.charge_frame(len) {
                return None;
            }
        }
    }

    /// Keeps room for a frame of which only a part is here. False if there is none, and the frame is thrown away: its call
    /// is told as soon as its header is here.
    fn charge_frame(&mut self, len: usize) -> bool {
        if self.charged.as_ref().is_some_and(|charged| charged.is_for(len)) {
            return true;
        }
        self.release_charge();
        let (shared, place) = (&self.task.shared, &self.task.place);
        if len < LARGE_FRAME_BYTES
            && let Some(charge) = shared.charge_arriving(place, (LENGTH_BYTES + len).max(READ_BYTES_MIN))
        {
            self.set_charged(Charged::Small { len, charge });
            return true;
        }
        let Some((header, param)) = header_of_part(&self.task.input.bytes()[LENGTH_BYTES..]) else {
            self.charge_beginning();
            return true;
        };
        let class = header.as_ref().map_or(CallClass::Meta, |header| self.class(header, param));
        if let Some(charge) = shared.charge(class, place, len) {
            self.set_charged(Charged::Large { len, class, charge });
            return true;
        }
        if let Some(call_id) = header.and_then(|header| header.call_id) {
            self.refuse_full(call_id, class, None);
        }
        self.task.input.skip(LENGTH_BYTES + len);
        false
    }

    /// Keeps room for the beginning of a frame that does not tell its call yet. Without it, the connection ends: there is
    /// nobody to answer.
    pub(super) fn charge_beginning(&mut self) {
        // More of the same beginning has no more time.
        let has_begun = matches!(self.charged, Some(Charged::Begun { .. }));
        let begun = self.task.control.frame().filter(|_| has_begun);
        self.release_charge();
        let here = self.task.input.bytes().len();
        let wanted = here.next_multiple_of(READ_BYTES_MIN).min(HEADER_BYTES_MAX + READ_BYTES_MIN);
        match self.task.shared.charge_arriving(&self.task.place, wanted) {
            Some(charge) => {
                self.set_charged(Charged::Begun { charge });
                if let Some(ArrivingFrame { deadline_ns, .. }) = begun {
                    self.note_frame(deadline_ns);
                }
            }
            None => {
                tracing::debug!(peer = %self.task.peer, "no room for the beginning of a request");
                self.broken = true;
            }
        }
    }

    fn set_charged(&mut self, charged: Charged) {
        self.charged = Some(charged);
        let here = self.task.input.bytes().len();
        self.note_frame(self.task.shared.frame_deadline_ns(self.received_ns.max(1), here));
    }

    /// Tells those who look for frames that do not arrive of the frame of which a part is here.
    fn note_frame(&self, deadline_ns: u64) {
        let (class, charge) = match self.charged.as_ref().expect("a part of it is here") {
            Charged::Large { class, charge, .. } => (Some(*class), charge),
            Charged::Begun { charge } | Charged::Small { charge, .. } => (None, charge),
        };
        let frame = ArrivingFrame { class, counted_bytes: charge.counted(), deadline_ns };
        self.task.control.begin_frame(frame, self.received_ns.max(1));
    }

    fn class(&self, header: &pb::RequestHeader, param: &[u8]) -> CallClass {
        let method = header.method_name.as_deref().unwrap_or_default();
        let head = CallHead { method, priority: header.priority.unwrap_or(0), param };
        self.agreed.service.class(&head)
    }

    /// A frame that was counted while it arrived is here: the room that it keeps.
    fn take_charge(&mut self) -> Option<Box<Charge>> {
        let charged = self.charged.take()?;
        self.task.control.end_frame();
        match charged {
            Charged::Large { charge, .. } => charge.arrived().map(Box::new),
            Charged::Begun { .. } | Charged::Small { .. } => None,
        }
    }

    /// Nothing is wanted of a frame that was counted while it arrived.
    pub(super) fn release_charge(&mut self) {
        drop(self.take_charge());
    }

    /// Answers a frame that is too long as soon as its header is there; nothing behind it is read.
    fn refuse_frame(&mut self, len: usize) {
        let Some((header, _)) = header_of_part(&self.task.input.bytes()[LENGTH_BYTES..]) else {
            return self.charge_beginning();
        };
        self.broken = true;
        let Some(call_id) = header.and_then(|header| header.call_id) else { return };
        let max = self.task.shared.settings.frame_bytes_max;
        let text = format!(
            "RPC data length of {len} received from {} is greater than max allowed {max}. \
             Set \"hbase.ipc.max.request.size\" on server to override this limit (not recommended)",
            self.task.peer
        );
        self.refuse(call_id, &RpcError::new(self.too_big_class(), text));
    }

    pub(super) fn handle_frame(&mut self, Frame { bytes: frame, room }: Frame, now_ns: u64) {
        let frame_bytes = frame.len();
        // One that keeps its room is not counted again while its call waits.
        let waiting_bytes = if room.is_some() { 0 } else { frame_bytes };
        let mut head = frame.clone();
        let mut request = match Request::parse(frame) {
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
        let tracer = self.task.shared.tracer.as_ref();
        let span =
            tracer.and_then(|tracer| tracer.begin(request.header.trace_info.as_ref(), self.received_ns));
        if room.is_none() && self.is_full(class, now_ns) {
            return self.refuse_full(call_id, class, span);
        }
        let timeout = self.timeout(&request.header);
        if timeout.is_some_and(|timeout| now_ns.saturating_sub(self.received_ns) > timeout.as_nanos() as u64)
        {
            span.into_iter().for_each(|span| span.drop_call(Dropped::Expired));
            return self.task.shared.queues.note_dropped(class, Dropped::Expired);
        }
        head.truncate(frame_bytes - request.cell_block.len());
        let block = std::mem::take(&mut request.cell_block);
        let mut call = self.call(request, class, timeout);
        call.is_traced = span.is_some();
        let mut asked =
            Asked { call_id, class, received_ns: self.received_ns, aside_ns: 0, head, span, room: None };
        let mut room = room.map(|room| *room);
        if self.is_looked_at(&call)
            && let Err(no_memory) = self.charge_message(&call, &mut room)
        {
            return match no_memory {
                NoMemory::Now => self.refuse_full(call_id, class, asked.span),
                NoMemory::Ever(max) => self.refuse_traced(call_id, asked.span, &self.becomes_too_big(max)),
            };
        }
        let outcome = match self.unpack(&call.method, class, block, room) {
            Ok(Here::Done(Ok(unpacked))) => {
                asked.room = unpacked.charge.map(Box::new);
                call.cells = unpacked.cells;
                catch_unwind(AssertUnwindSafe(|| self.agreed.service.call(call)))
            }
            Ok(Here::Later(packed)) => Ok(Outcome::Later(self.call_later(call, packed, waiting_bytes))),
            Ok(Here::Done(Err(stopped))) => match stopped.to_rpc() {
                Some(error) => return self.refuse_traced(call_id, asked.span, &error),
                None => return self.refuse_full(call_id, class, asked.span),
            },
            Err(error) => return self.refuse_traced(call_id, asked.span, &error),
        };
        self.tally.calls += 1;
        match outcome {
            Ok(Outcome::Ready(answer)) => self.answer(asked, answer),
            Ok(Outcome::Later(future)) => {
                if let Some(room) = &mut asked.room {
                    room.waits_beside(waiting_bytes + CALL_BYTES);
                }
                self.held[class.index()].add(waiting_bytes);
                self.fresh.push(Waiting { asked, frame_bytes: waiting_bytes, future });
            }
            Err(panic) => self.answer(asked, Err(panicked(&*panic))),
        }
    }

    fn is_full(&self, class: CallClass, now_ns: u64) -> bool {
        let shared = &self.task.shared;
        let asker = Asker {
            own: &self.held[class.index()],
            connection: self.agreed.connection.id,
            peer: self.task.place.peer(),
            share: Share { peer: shared.settings.peer_share, now_ns },
        };
        shared.queues.is_full(class, &asker)
    }

    /// Whether room is kept for what its message becomes. Calls of a small class that wait together become as much as a large
    /// one, so short messages are looked at as soon as a part of the class is taken.
    fn is_looked_at(&self, call: &Call) -> bool {
        let len = call.param.len();
        len >= LONG_PARAM_BYTES
            || call.attributes.len() >= MANY_ATTRIBUTES
            || (len >= SHORT_PARAM_BYTES && self.task.shared.queues.is_filling(call.class))
    }

    /// Keeps room for what a long message, or a header with many attributes, becomes, if that is much: more of the room of the
    /// frame, if that keeps its own.
    fn charge_message(&self, call: &Call, room: &mut Option<Charge>) -> Result<(), NoMemory> {
        let head = CallHead { method: &call.method, priority: call.priority, param: &call.param };
        // Terms have the attributes again.
        let of_attributes = call.attributes.capacity() * size_of::<pb::NameBytesPair>() * 2;
        let shared = &self.task.shared;
        let bytes_max = shared.settings.frame_bytes_max.max(shared.queues.limits().request_bytes_max);
        let bytes = self.agreed.service.decoded_bytes(&head, bytes_max).saturating_add(of_attributes);
        if bytes <= CALL_BYTES {
            return Ok(());
        }
        if bytes > bytes_max {
            return Err(NoMemory::Ever(bytes_max));
        }
        let fits = match room {
            Some(charge) => charge.grow(shared.share(), bytes),
            None => {
                *room = shared.charge(call.class, &self.task.place, bytes);
                room.is_some()
            }
        };
        if fits { Ok(()) } else { Err(NoMemory::Now) }
    }

    /// It would be refused again however often it came.
    fn becomes_too_big(&self, max: usize) -> RpcError {
        let text = format!(
            "A request of {} becomes more than {max} bytes when it is decoded. Set \"hbase.ipc.max.request.size\" or \
             \"hbase.ipc.server.max.callqueue.size\" on server to override this limit (not recommended)",
            self.task.peer
        );
        RpcError::new(self.too_big_class(), text)
    }

    fn too_big_class(&self) -> &'static ExceptionClass {
        let is_known = self.agreed.connection.client_at_least(1, 3);
        if is_known { &exceptions::REQUEST_TOO_BIG } else { &exceptions::DO_NOT_RETRY_IO }
    }

    /// How long the client waits from when its call was received.
    fn timeout(&self, header: &pb::RequestHeader) -> Option<Duration> {
        let timeout = header.timeout.filter(|ms| *ms > 0).map(|ms| Duration::from_millis(u64::from(ms)));
        timeout.map(|timeout| timeout.max(self.task.shared.settings.request_timeout_min))
    }

    /// The call of a request, without its cells.
    fn call(&self, request: Request, class: CallClass, timeout: Option<Duration>) -> Call {
        let header = request.header;
        Call {
            id: header.call_id.unwrap_or_default(),
            method: header.method_name.unwrap_or_default(),
            param: request.param,
            cells: Vec::new(),
            priority: header.priority.unwrap_or(0),
            class,
            timeout,
            is_traced: false,
            received_ns: self.received_ns,
            attributes: header.attribute,
            connection: Arc::clone(&self.agreed.connection),
        }
    }
}
