//! From frames to calls: cuts frames off the input, decodes them, and hands them to the service.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_proto::pb;

use super::{Asked, Calls, Waiting, panicked};
use crate::frame::{FrameError, Request, header_of_part};
use crate::input::READ_BYTES_MAX;
use crate::trace::CallSpan;
use crate::{Call, CallClass, CallHead, Codec, Dropped, Outcome, RpcError, decode_cells, exceptions};

/// Frames from here on are counted while they arrive, not only once they are whole.
const LARGE_FRAME_BYTES: usize = READ_BYTES_MAX;
/// Words of 2.6.4 for a call that found no room.
const QUEUE_FULL: &str = "Call queue is full, is hbase.ipc.server.max.callqueue.size too small?";

impl Calls {
    fn refuse_full(&mut self, call_id: u32, class: CallClass, span: Option<Box<CallSpan>>) {
        self.task.shared.queues.note_refused(class);
        self.refuse_traced(call_id, span, &RpcError::call_queue_too_big(QUEUE_FULL));
    }

    fn refuse_traced(&mut self, call_id: u32, span: Option<Box<CallSpan>>, error: &RpcError) {
        span.into_iter().for_each(|span| span.refuse(error));
        self.refuse(call_id, error);
    }

    /// Cuts the next whole frame off the input.
    pub(super) fn next_frame(&mut self) -> Option<Bytes> {
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
                self.refuse_full(call_id, class, None);
            }
            self.task.input.skip(4 + len);
        }
    }

    pub(super) fn class(&self, header: &pb::RequestHeader, param: &[u8]) -> CallClass {
        let method = header.method_name.as_deref().unwrap_or_default();
        let head = CallHead { method, priority: header.priority.unwrap_or(0), param };
        self.agreed.service.class(&head)
    }

    /// A frame that was counted while it arrived is here, or never will be.
    pub(super) fn release_charge(&mut self) {
        if let Some((class, bytes)) = self.charged.take() {
            self.task.shared.queues.release(class, bytes);
        }
    }

    /// Answers a frame that is too long as soon as its header is there; nothing behind it is read.
    pub(super) fn refuse_frame(&mut self, len: usize) {
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

    pub(super) fn handle_frame(&mut self, frame: Bytes, now_ns: u64) {
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
        let tracer = self.task.shared.tracer.as_ref();
        let span =
            tracer.and_then(|tracer| tracer.begin(request.header.trace_info.as_ref(), self.received_ns));
        if self.task.shared.queues.is_full(class, &self.held[class.index()]) {
            return self.refuse_full(call_id, class, span);
        }
        let timeout = self.timeout(&request.header);
        if timeout.is_some_and(|timeout| now_ns.saturating_sub(self.received_ns) > timeout.as_nanos() as u64)
        {
            span.into_iter().for_each(|span| span.drop_call(Dropped::Expired));
            return self.task.shared.queues.note_dropped(class, Dropped::Expired);
        }
        head.truncate(frame_bytes - request.cell_block.len());
        let call = match self.call(request, class, timeout) {
            Ok(call) => Call { is_traced: span.is_some(), ..call },
            Err(error) => return self.refuse_traced(call_id, span, &error),
        };
        self.tally.calls += 1;
        let asked = Asked { call_id, class, received_ns: self.received_ns, aside_ns: 0, head, span };
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
    pub(super) fn timeout(&self, header: &pb::RequestHeader) -> Option<Duration> {
        let timeout = header.timeout.filter(|ms| *ms > 0).map(|ms| Duration::from_millis(u64::from(ms)));
        timeout.map(|timeout| timeout.max(self.task.shared.settings.request_timeout_min))
    }

    pub(super) fn call(
        &self,
        request: Request,
        class: CallClass,
        timeout: Option<Duration>,
    ) -> Result<Call, RpcError> {
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
            is_traced: false,
            received_ns: self.received_ns,
            attributes: header.attribute,
            connection: Arc::clone(&self.agreed.connection),
        })
    }

    pub(super) fn cells(&self, codec: Codec, block: Bytes) -> Result<Vec<halcyon_cell::Cell>, RpcError> {
        let raw_bytes_max = self.task.shared.settings.frame_bytes_max;
        let block = match self.agreed.compressor {
            Some(compressor) => compressor.decompress(&block, raw_bytes_max),
            None => Ok(block),
        };
        let cells = block.and_then(|block| decode_cells(codec, block));
        cells.map_err(|error| RpcError::do_not_retry(format!("Unable to read cell block: {error}")))
    }
}
