//! From answers to the socket: queues answers, and counts and reports calls when the socket has taken them.

use std::sync::atomic::Ordering;

use super::{Answered, Asked, Calls};
use crate::noted::{GivenCall, UNSENT_MAX, detached};
use crate::shared::Agreed;
use crate::{AnsweredCalls, Reply, RpcError};

/// Room for answered calls that an idle connection keeps.
const GIVEN_KEPT_MAX: usize = 32;

impl Calls {
    pub(super) fn answer(&mut self, asked: Asked, mut answer: Result<Reply, RpcError>) {
        let Asked { call_id, class, received_ns, aside_ns, head, mut span, room } = asked;
        drop(room); // the service has done with them
        if let Err(RpcError { dropped: Some(why), .. }) = answer {
            span.into_iter().for_each(|span| span.drop_call(why));
            return self.task.shared.queues.note_dropped(class, why);
        }
        if let (Some(span), Err(error)) = (&mut span, &answer) {
            span.fail(error);
        }
        let failed = u64::from(answer.is_err());
        self.tally.calls_failed += failed;
        let tags = answer.as_mut().map(|reply| std::mem::take(&mut reply.tags)).unwrap_or_default();
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
            span,
        });
        match self.answered.last_mut() {
            Some(last) if last.class == class && last.received_ns == received_ns && last.tags == tags => {
                last.count += 1;
                last.failed_count += failed;
            }
            _ => self.answered.push(Answered { class, received_ns, count: 1, failed_count: failed, tags }),
        }
    }

    /// Counts how long the calls took whose answers the socket has just been given.
    pub(super) fn note_times(&mut self) {
        if self.given.is_empty() {
            return;
        }
        let now_ns = self.task.shared.clock.monotonic_ns();
        for Answered { class, received_ns, count, failed_count, tags } in self.answered.drain(..) {
            let took_ns = now_ns.saturating_sub(received_ns);
            self.task.shared.queues.note_time(class, took_ns, count);
            let connection = &self.agreed.connection;
            let calls = AnsweredCalls { connection, class, count, failed_count, took_ns, tags: &tags };
            self.agreed.service.answered(&calls);
        }
        self.note_given(now_ns);
    }

    /// Tells the service of notable and of traced calls whose answers the socket has taken. The others stay.
    pub(super) fn note_given(&mut self, now_ns: u64) {
        let Agreed { service, connection, service_name, .. } = &self.agreed;
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
            if call.is_over(&notable, now_ns) || call.span.is_some() {
                call.tell(connection, service_name, now_ns, |call| service.noted(call));
            }
            false
        });
        if self.given.is_empty() && self.given.capacity() > GIVEN_KEPT_MAX {
            self.given = Vec::new();
        }
    }

    pub(super) fn refuse(&mut self, call_id: u32, error: &RpcError) {
        self.tally.calls_refused += 1;
        self.task.output.push_error(call_id, error);
    }

    /// Moves the counts of this turn to the server's counters.
    pub(super) fn settle(&mut self) {
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
