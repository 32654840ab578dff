//! How full the memstores of all regions are together, and whether the WAL keeps up (HBase: `RegionServerAccounting`).
//!
//! | memstores | what happens |
//! |---|---|
//! | below the low mark | nothing |
//! | above the low mark | the flusher takes the largest region, again and again |
//! | at the high mark | each writer is held back for a bounded time, then refused with `RegionTooBusyException`; clients retry later |
//!
//! The size is that of the memstores' chunks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use halcyon_rpc::RpcError;
use tokio::sync::Notify;

/// See the head of the file. *Thread safety*: all methods from any thread.
pub(crate) struct Pressure {
    low_bytes: AtomicU64,
    high_bytes: AtomicU64,
    hold_back_max: Duration,
    used_bytes: AtomicU64,
    is_memory_high: AtomicBool,
    is_log_behind: AtomicBool,
    lowered: Notify,
    held_back: AtomicU64,
    refused: AtomicU64,
    flushes: AtomicU64,
}

impl Pressure {
    pub(crate) fn new(low_bytes: u64, high_bytes: u64, hold_back_max: Duration) -> Pressure {
        Pressure {
            low_bytes: AtomicU64::new(low_bytes),
            high_bytes: AtomicU64::new(high_bytes),
            hold_back_max,
            used_bytes: AtomicU64::new(0),
            is_memory_high: AtomicBool::new(false),
            is_log_behind: AtomicBool::new(false),
            lowered: Notify::new(),
            held_back: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
        }
    }

    /// Takes note of what the memstores hold now.
    pub(crate) fn update(&self, used_bytes: u64) {
        self.used_bytes.store(used_bytes, Ordering::Relaxed);
        let high = used_bytes >= self.high_bytes();
        if self.is_memory_high.swap(high, Ordering::Relaxed) && !high {
            self.lowered.notify_waiters();
        }
    }

    /// Takes note of whether much waits to be written to the log.
    pub(crate) fn update_log(&self, behind: bool) {
        if self.is_log_behind.swap(behind, Ordering::Relaxed) && !behind {
            self.lowered.notify_waiters();
        }
    }

    /// Whether a flush is wanted for the sake of memory.
    pub(crate) fn is_over_low(&self) -> bool {
        self.used_bytes.load(Ordering::Relaxed) >= self.low_bytes.load(Ordering::Relaxed)
    }

    /// Whether writers have to wait.
    #[inline]
    pub(crate) fn is_high(&self) -> bool {
        self.is_memory_high.load(Ordering::Relaxed) || self.is_log_behind.load(Ordering::Relaxed)
    }

    /// Whether memory is the reason for that.
    #[inline]
    pub(crate) fn is_memory_high(&self) -> bool {
        self.is_memory_high.load(Ordering::Relaxed)
    }

    /// Waits until writers may go on; `RegionTooBusyException` if that takes too long.
    pub(crate) async fn wait(&self) -> Result<(), RpcError> {
        self.held_back.fetch_add(1, Ordering::Relaxed);
        let lowered = async {
            loop {
                let notified = self.lowered.notified();
                if !self.is_high() {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(self.hold_back_max, lowered).await.map_err(|_| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let used_bytes = self.used_bytes.load(Ordering::Relaxed);
            RpcError::region_too_busy(if self.is_log_behind.load(Ordering::Relaxed) {
                "the log of this server is behind with what is to be written".to_string()
            } else {
                format!(
                    "the memstores of this server hold {used_bytes} bytes, the limit is {}",
                    self.high_bytes()
                )
            })
        })
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn high_bytes(&self) -> u64 {
        self.high_bytes.load(Ordering::Relaxed)
    }

    /// Moves the marks.
    pub(crate) fn set_high(&self, high_bytes: u64, low_bytes: u64) {
        self.high_bytes.store(high_bytes, Ordering::Relaxed);
        self.low_bytes.store(low_bytes, Ordering::Relaxed);
    }

    /// Takes note of flushes for the sake of memory.
    pub(crate) fn note_flushes(&self, count: u64) {
        self.flushes.fetch_add(count, Ordering::Relaxed);
    }

    /// Flushes for the sake of memory so far.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Writers held back so far, and those of them that were refused.
    pub(crate) fn held_back(&self) -> (u64, u64) {
        (self.held_back.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}
