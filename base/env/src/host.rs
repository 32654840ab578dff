//! What the host of a virtual machine takes for others while threads of ours want to run.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use crate::stalls::Stall;

/// Looks that are remembered. A stall that is longer than all of them counts from the oldest.
const LOOKS_MAX: usize = 256;

/// What it took, as looked at from time to time.
pub(crate) struct Host {
    taken: Box<dyn Fn() -> Option<Duration> + Send + Sync>,
    looks: Mutex<VecDeque<Look>>,
}

#[derive(Clone, Copy)]
struct Look {
    at_ns: u64,
    /// Of each processor, on average, since the start.
    taken: Duration,
}

impl Host {
    pub(crate) fn new(taken: Box<dyn Fn() -> Option<Duration> + Send + Sync>) -> Host {
        Host { taken, looks: Mutex::default() }
    }

    pub(crate) fn look(&self, now_ns: u64) {
        let Some(taken) = (self.taken)() else { return };
        let mut looks = self.looks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if looks.len() == LOOKS_MAX {
            looks.pop_front();
        }
        looks.push_back(Look { at_ns: now_ns, taken });
    }

    /// Says of a stall that ended before the last look what the host took from the look before it began. If that is half of
    /// its length and more, it is the host's making.
    pub(crate) fn judge(&self, stall: &mut Stall, ended_ns: u64) {
        let looks = self.looks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let began_ns = ended_ns.saturating_sub(stall.time.as_nanos() as u64);
        let before = looks.iter().rev().find(|look| look.at_ns <= began_ns).or(looks.front());
        let (Some(before), Some(last)) = (before, looks.back()) else { return };
        let taken = last.taken.saturating_sub(before.taken);
        if taken.is_zero() {
            return;
        }
        let span_ms = (last.at_ns - before.at_ns) / 1_000_000;
        stall.detail +=
            &format!("; the host took {} ms of each processor in {span_ms} ms", taken.as_millis());
        if taken >= stall.time / 2 {
            stall.detail = format!("{}: {}", stall.cause, stall.detail);
            stall.cause = "host";
        }
    }
}
