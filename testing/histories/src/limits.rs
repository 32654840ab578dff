//! When a search gives up.

use std::sync::Arc;
use std::time::Duration;

use halcyon_env::{Clock, SystemClock};

/// Between two looks at the clock.
const STEPS_PER_LOOK: u64 = 4096;

/// What a check may cost. Beyond it a row is "not decided".
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of the search of one row.
    pub time: Duration,
    /// States that the search of one row may remember at once; each takes some hundred bytes.
    pub states_max: usize,
    /// Of the search for a smaller contradiction, after one was found.
    pub evidence_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            time: Duration::from_secs(60),
            states_max: 4_000_000,
            evidence_time: Duration::from_secs(20),
        }
    }
}

/// The reason why a search gave up, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfLimits(pub String);

/// What is left of the limits of one search.
pub struct Budget {
    clock: Arc<dyn Clock>,
    deadline_ns: u64,
    steps: u64,
    states_max: usize,
    time: Duration,
}

impl Budget {
    pub fn new(time: Duration, states_max: usize) -> Budget {
        Budget::with_clock(Arc::new(SystemClock::new()), time, states_max)
    }

    pub fn with_clock(clock: Arc<dyn Clock>, time: Duration, states_max: usize) -> Budget {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = clock.monotonic_ns().saturating_add(time_ns);
        Budget { clock, deadline_ns, steps: 0, states_max, time }
    }

    /// One step of the search, which remembers so many states now.
    pub fn step(&mut self, states: usize) -> Result<(), OutOfLimits> {
        self.steps += 1;
        if states > self.states_max {
            return Err(OutOfLimits(format!(
                "the search would remember more than {} states",
                self.states_max
            )));
        }
        if self.steps.is_multiple_of(STEPS_PER_LOOK) { self.look() } else { Ok(()) }
    }

    /// Looks at the clock.
    pub fn look(&self) -> Result<(), OutOfLimits> {
        match self.clock.monotonic_ns() > self.deadline_ns {
            true => Err(OutOfLimits(format!("the search took more than {:?}", self.time))),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halcyon_env::ManualClock;

    #[test]
    fn time_and_memory_are_limited() {
        let clock = Arc::new(ManualClock::at(0));
        let mut budget = Budget::with_clock(clock.clone(), Duration::from_secs(1), 10);
        (0..2 * STEPS_PER_LOOK).for_each(|_| budget.step(10).unwrap());
        assert!(budget.step(11).unwrap_err().0.contains("more than 10 states"));
        clock.advance(Duration::from_secs(2));
        let late = (0..2 * STEPS_PER_LOOK).find_map(|_| budget.step(1).err()).expect("the time is over");
        assert!(late.0.contains("more than 1s"), "{}", late.0);
    }
}
