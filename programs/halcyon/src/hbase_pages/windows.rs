//! Histograms of the last interval, as HBase's beans have them: its histograms begin anew every ten seconds.
//!
//! Our counters never begin anew, and nobody counts intervals while nobody asks. So an interval goes from one reader to
//! the first that comes at least ten seconds later, and its percentiles are shown until the next one has ended.

use std::collections::HashMap;

use halcyon_rpc::CallTimesSnapshot;
use parking_lot::Mutex;

const WINDOW_NS: u64 = 10_000_000_000;
/// Histograms that are followed, which take about 1.5 KB each. One more begins all of them anew: that removes those of
/// tables that are gone, and with too many tables percentiles are those since the start.
const FOLLOWED_MAX: usize = 5_000;

/// See the head of the file. May be used by any number of threads.
#[derive(Default)]
pub struct Windows(Mutex<HashMap<String, Window>>);

struct Window {
    began_ns: u64,
    at_begin: CallTimesSnapshot,
    last: Option<CallTimesSnapshot>,
}

impl Windows {
    /// What a histogram has counted in the last whole window; before one has ended, since the start.
    pub fn recent(&self, name: &str, now_ns: u64, now: &CallTimesSnapshot) -> CallTimesSnapshot {
        let mut windows = self.0.lock();
        let Some(window) = windows.get_mut(name) else {
            if windows.len() >= FOLLOWED_MAX {
                windows.clear();
            }
            windows.insert(name.to_string(), Window::beginning(now_ns));
            return now.clone();
        };
        if now.count < window.at_begin.count {
            // a table that left and came back counts from the beginning
            *window = Window::beginning(now_ns);
        }
        if now_ns.saturating_sub(window.began_ns) >= WINDOW_NS {
            window.last = Some(since(&window.at_begin, now));
            (window.began_ns, window.at_begin) = (now_ns, now.clone());
        }
        window.last.clone().unwrap_or_else(|| since(&window.at_begin, now))
    }
}

impl Window {
    fn beginning(now_ns: u64) -> Window {
        Window { began_ns: now_ns, at_begin: CallTimesSnapshot::default(), last: None }
    }
}

fn since(before: &CallTimesSnapshot, now: &CallTimesSnapshot) -> CallTimesSnapshot {
    let up_to = now.up_to.iter().enumerate().map(|(at, (bound, count))| {
        let before = before.up_to.get(at).map_or(0, |(_, count)| *count);
        (*bound, count.saturating_sub(before))
    });
    CallTimesSnapshot {
        up_to: up_to.collect(),
        count: now.count - before.count,
        sum_seconds: (now.sum_seconds - before.sum_seconds).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(fast: u64, slow: u64) -> CallTimesSnapshot {
        let up_to = vec![(0.001, fast), (0.002, fast + slow)];
        CallTimesSnapshot { up_to, count: fast + slow, sum_seconds: (fast + 2 * slow) as f64 / 1000.0 }
    }

    #[test]
    fn a_window_lasts_ten_seconds_or_until_somebody_reads() {
        let windows = Windows::default();
        let recent = |second: u64, now: &CallTimesSnapshot| {
            let recent = windows.recent("t", second * 1_000_000_000, now);
            (recent.count, recent.up_to[0].1)
        };
        assert_eq!(recent(0, &times(100, 0)), (100, 100), "since the start");
        assert_eq!(recent(5, &times(100, 7)), (107, 100), "still");
        assert_eq!(recent(10, &times(100, 9)), (109, 100), "the first whole window");
        assert_eq!(recent(15, &times(200, 9)), (109, 100), "until the next one has ended");
        assert_eq!(recent(40, &times(250, 10)), (151, 150), "until somebody came");
        assert_eq!(recent(51, &times(250, 10)), (0, 0), "nothing happened");
        assert_eq!(recent(52, &times(3, 0)), (3, 3), "counted anew");
    }

    #[test]
    fn tables_that_are_gone_do_not_keep_their_places() {
        let windows = Windows::default();
        for at in 0..=FOLLOWED_MAX {
            windows.recent(&format!("t{at}"), 0, &times(1, 0));
        }
        assert_eq!(windows.0.lock().len(), 1);
    }
}
