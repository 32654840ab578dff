//! Spans that have ended wait here for the thread that sends them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use parking_lot::{Condvar, Mutex};

/// A bounded queue of spans. *Thread safety*: all methods from any thread; a span takes a short lock.
///
/// Invariant: a span is sent, dropped and counted, or still waits.
pub struct SpanQueue {
    spans_max: usize,
    batch_max: usize,
    state: Mutex<State>,
    /// A batch is full, or the server stops.
    ready: Condvar,
    /// All is sent, after the stop.
    ended: Condvar,
    sent: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Default)]
struct State {
    spans: VecDeque<SpanData>,
    stopping: bool,
    ended: bool,
}

/// Spans since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// The collector has taken them.
    pub sent: u64,
    /// The queue was full, or the collector did not take them.
    pub dropped: u64,
}

impl SpanQueue {
    pub fn new(spans_max: usize, batch_max: usize) -> Arc<SpanQueue> {
        Arc::new(SpanQueue {
            spans_max,
            batch_max: batch_max.min(spans_max),
            state: Mutex::default(),
            ready: Condvar::new(),
            ended: Condvar::new(),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }

    pub fn counts(&self) -> SpanCounts {
        SpanCounts { sent: self.sent.load(Ordering::Relaxed), dropped: self.dropped.load(Ordering::Relaxed) }
    }

    fn push(&self, span: SpanData) {
        let mut state = self.state.lock();
        if state.spans.len() >= self.spans_max || state.ended {
            drop(state);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.spans.push_back(span);
        if state.spans.len() == self.batch_max {
            self.ready.notify_one();
        }
    }

    /// Sends batches until the stop, each when it is full or when `delay` is over. `send` returns how many the collector
    /// did not take.
    pub fn run(&self, delay: Duration, mut send: impl FnMut(Vec<SpanData>) -> u64) {
        loop {
            let mut state = self.state.lock();
            if !state.stopping && state.spans.len() < self.batch_max {
                self.ready.wait_for(&mut state, delay);
            }
            let len = state.spans.len().min(self.batch_max);
            let batch: Vec<_> = state.spans.drain(..len).collect();
            if batch.is_empty() && state.stopping {
                state.ended = true;
                self.ended.notify_all();
                return;
            }
            drop(state);
            if !batch.is_empty() {
                let lost = send(batch).min(len as u64);
                self.sent.fetch_add(len as u64 - lost, Ordering::Relaxed);
                self.dropped.fetch_add(lost, Ordering::Relaxed);
            }
        }
    }

    /// Has all spans sent, and waits for that for at most `time`. False if some were left.
    pub fn stop(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        state.stopping = true;
        self.ready.notify_one();
        if !state.ended {
            self.ended.wait_while_for(&mut state, |state| !state.ended, time);
        }
        state.ended
    }
}

/// Gives ended spans to a queue.
pub struct Queueing(pub Arc<SpanQueue>);

impl fmt::Debug for Queueing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queueing")
    }
}

impl SpanProcessor for Queueing {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use halcyon_env::spawn_thread;
    use opentelemetry::trace::{Tracer, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn end_spans(queue: &Arc<SpanQueue>, count: usize) {
        let provider = SdkTracerProvider::builder().with_span_processor(Queueing(Arc::clone(queue))).build();
        let tracer = provider.tracer("test");
        (0..count).for_each(|_| drop(tracer.start("span")));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let queue = SpanQueue::new(10, 4);
        end_spans(&queue, 13);
        assert_eq!(queue.counts(), SpanCounts { sent: 0, dropped: 3 });
        let mut batches = Vec::new();
        assert!(!queue.stop(Duration::ZERO), "nobody sends them");
        queue.run(LONG, |batch| {
            batches.push(batch.len());
            u64::from(batches.len() == 1)
        });
        assert_eq!(batches, [4, 4, 2]);
        assert_eq!(queue.counts(), SpanCounts { sent: 9, dropped: 4 });
        end_spans(&queue, 1);
        assert_eq!(queue.counts().dropped, 5, "after the stop nobody comes for it");
    }

    #[test]
    fn a_collector_that_hangs_holds_up_nobody() {
        let queue = SpanQueue::new(4, 2);
        let ((began, begun), (go, gone)) = (channel(), channel::<()>());
        let sending = spawn_thread("sending", {
            let queue = Arc::clone(&queue);
            move || {
                queue.run(LONG, |_| {
                    began.send(()).expect("the test waits");
                    gone.recv().expect("the test lets go");
                    0
                })
            }
        });
        end_spans(&queue, 2);
        begun.recv_timeout(LONG).expect("a full batch is sent at once");
        end_spans(&queue, 6); // comes back although the collector does not
        assert_eq!(queue.counts(), SpanCounts { sent: 0, dropped: 2 });
        assert!(!queue.stop(Duration::from_millis(20)), "the stop does not wait for ever");
        (0..3).for_each(|_| go.send(()).expect("it still sends"));
        assert!(queue.stop(LONG));
        sending.expect("there are threads").join().expect("it ends");
        assert_eq!(queue.counts(), SpanCounts { sent: 6, dropped: 2 });
    }
}
