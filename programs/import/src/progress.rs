//! Lines of progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

/// What was done so far in a phase; shared by its tasks.
pub(crate) struct Progress {
    began: Instant,
    period: Duration,
    rows: AtomicU64,
    cells: AtomicU64,
    bytes: AtomicU64,
    ranges_done: AtomicU64,
}

impl Progress {
    pub(crate) fn new(period: Duration) -> Progress {
        Progress {
            began: Instant::now(),
            period,
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

    pub(crate) fn range_done(&self) {
        self.ranges_done.fetch_add(1, Ordering::Relaxed);
    }

    fn line(&self, what: &str, ranges: usize) -> String {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (cells, bytes, done) = (get(&self.cells), get(&self.bytes), get(&self.ranges_done));
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        let left = match done {
            0 => String::new(),
            done if done as usize >= ranges => String::new(),
            done => format!(", about {:.0} s left", seconds / done as f64 * (ranges as f64 - done as f64)),
        };
        format!(
            "{what}: {cells} cells, {} MB; {:.0} cells/s, {:.1} MB/s; {done} of {ranges} ranges{left}",
            bytes / 1_000_000,
            cells as f64 / seconds,
            bytes as f64 / 1e6 / seconds,
        )
    }

    /// Waits for tasks, with a line once in a while. The first error ends the wait.
    pub(crate) async fn watch(
        &self,
        what: &str,
        ranges: usize,
        tasks: &mut JoinSet<Result<(), String>>,
    ) -> Result<(), String> {
        let mut ticks = tokio::time::interval_at(Instant::now() + self.period, self.period);
        loop {
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    None => break,
                    Some(ended) => ended.unwrap_or_else(|error| Err(format!("a task of the {what} failed: {error}")))?,
                },
                _ = ticks.tick() => println!("{}", self.line(what, ranges)),
            }
        }
        println!("{}", self.line(what, ranges));
        Ok(())
    }
}
