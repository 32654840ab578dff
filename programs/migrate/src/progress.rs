//! Lines of progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// What was done so far; shared by all tasks of a phase.
pub(crate) struct Progress {
    began: Instant,
    pub(crate) rows: AtomicU64,
    pub(crate) cells: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) ranges_done: AtomicU64,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            began: Instant::now(),
            rows: AtomicU64::new(0),
            cells: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            ranges_done: AtomicU64::new(0),
        }
    }

    pub(crate) fn add(&self, rows: u64, cells: u64, bytes: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.cells.fetch_add(cells, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Rows, cells, rates, ranges and the time left. `bytes_expected` is an estimate: files are counted without compression.
    pub(crate) fn line(&self, what: &str, ranges: u64, bytes_expected: u64) -> String {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (cells, bytes, done) = (get(&self.cells), get(&self.bytes), get(&self.ranges_done));
        let seconds = self.elapsed().as_secs_f64().max(0.001);
        let left = match seconds_left(seconds, bytes, bytes_expected, done, ranges) {
            Some(left) => format!(", about {} left", duration(Duration::from_secs_f64(left))),
            None => String::new(),
        };
        format!(
            "{what}: {} rows, {cells} cells, {} MB; {:.0} cells/s, {:.1} MB/s; {done} of {ranges} ranges{left}",
            get(&self.rows),
            bytes / 1_000_000,
            cells as f64 / seconds,
            bytes as f64 / 1e6 / seconds,
        )
    }
}

/// By bytes while there are fewer than expected, and by ranges after that; `None`: there is nothing to go by.
fn seconds_left(seconds: f64, bytes: u64, bytes_expected: u64, done: u64, ranges: u64) -> Option<f64> {
    let share = match bytes < bytes_expected {
        true => bytes as f64 / bytes_expected as f64,
        false if done < ranges => done as f64 / ranges as f64,
        false => 1.0,
    };
    (share > 0.0).then(|| seconds / share - seconds)
}

/// `1h02m`, `3m07s`, `12s`.
pub(crate) fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_the_share_that_is_done() {
        assert_eq!(seconds_left(10.0, 25, 100, 0, 4), Some(30.0));
        assert_eq!(seconds_left(10.0, 100, 100, 2, 4), Some(10.0)); // more bytes than expected
        assert_eq!(seconds_left(10.0, 100, 100, 4, 4), Some(0.0));
        assert_eq!(seconds_left(10.0, 0, 100, 0, 4), None);
        assert_eq!(duration(Duration::from_secs(7)), "7s");
        assert_eq!(duration(Duration::from_secs(187)), "3m07s");
        assert_eq!(duration(Duration::from_secs(3720)), "1h02m");
    }
}
