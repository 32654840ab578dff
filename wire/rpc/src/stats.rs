use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counters of one server since it started. Thread-safe; connections add to them once per turn, not per call.
#[derive(Debug, Default)]
pub struct RpcStats {
    pub(crate) connections_opened: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) connections_left: AtomicU64,
    pub(crate) connections_open: AtomicUsize,
    pub(crate) calls: AtomicU64,
    pub(crate) calls_failed: AtomicU64,
    pub(crate) calls_refused: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) shared_cell_bytes: AtomicU64,
    pub(crate) copied_cell_bytes: AtomicU64,
}

/// What [`RpcStats`] said at one moment (each number for itself).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RpcStatsSnapshot {
    pub connections_opened: u64,
    /// Closed at once because there were too many.
    pub connections_refused: u64,
    /// Closed because their clients took no answers and room for those was short.
    pub connections_left: u64,
    pub connections_open: usize,
    /// Calls handed to a service.
    pub calls: u64,
    /// Of them, those answered with an exception.
    pub calls_failed: u64,
    /// Calls answered with an exception before a service saw them: a limit was reached or the frame was bad.
    pub calls_refused: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Bytes of answers' cells that went to the socket from where they lie (a cached block, a chunk of a memstore).
    pub shared_cell_bytes: u64,
    /// Bytes of answers' cells that were copied inside the server: small ones, and all in other forms than they are
    /// kept in (`CellCodec`, compressed cell blocks). Cells that stand in the message itself are part of neither.
    pub copied_cell_bytes: u64,
}

impl RpcStats {
    pub fn snapshot(&self) -> RpcStatsSnapshot {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let size = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        RpcStatsSnapshot {
            connections_opened: count(&self.connections_opened),
            connections_refused: count(&self.connections_refused),
            connections_left: count(&self.connections_left),
            connections_open: size(&self.connections_open),
            calls: count(&self.calls),
            calls_failed: count(&self.calls_failed),
            calls_refused: count(&self.calls_refused),
            received_bytes: count(&self.received_bytes),
            sent_bytes: count(&self.sent_bytes),
            shared_cell_bytes: count(&self.shared_cell_bytes),
            copied_cell_bytes: count(&self.copied_cell_bytes),
        }
    }
}
