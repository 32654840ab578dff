//! A limit of bytes a second.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Shared by all tasks. Each waits until its bytes fit: what was not used is not saved up.
pub(crate) struct RateLimit {
    bytes_per_second: Option<f64>,
    free_from: Mutex<Instant>,
}

impl RateLimit {
    /// `None`: no limit.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> RateLimit {
        let free_from = Mutex::new(Instant::now());
        RateLimit { bytes_per_second: bytes_per_second.map(|bytes| bytes as f64), free_from }
    }

    pub(crate) async fn take(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_second else { return };
        let begin = {
            let mut free_from = self.free_from.lock();
            let begin = (*free_from).max(Instant::now());
            *free_from = begin + Duration::from_secs_f64(bytes as f64 / rate);
            begin
        };
        tokio::time::sleep_until(begin).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_wait_for_those_before_them() {
        let limit = RateLimit::new(Some(10_000));
        let began = Instant::now();
        for _ in 0..3 {
            limit.take(500).await; // 50 ms each; the first one at once
        }
        assert!(began.elapsed() >= Duration::from_millis(95), "{:?}", began.elapsed());
        RateLimit::new(None).take(u64::MAX).await;
    }
}
