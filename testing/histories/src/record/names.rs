//! The machine's clock, and what is named by it: rows and numbers.

use std::time::Duration;

use crate::history::Kind;

/// Rows that are in use at one time, each in a region of its own if the table is split at these digits.
pub const SLOTS: u64 = 8;
/// Whole rows of each slot; they are used all the time.
pub const WHOLE_ROWS: u64 = 3;
/// Processes of all recorders.
const PROCESSES_MAX: u64 = 100;
/// Increments that a number may get before it is like another one, as bits.
const INCREMENT_BITS: u32 = 20;

/// The machine's monotonic clock, which is the same for all its processes (Java: `System.nanoTime`).
pub struct Clock {
    name: String,
}

impl Clock {
    /// The error is a sentence.
    pub fn of_machine() -> Result<Clock, String> {
        const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
        let name = std::fs::read_to_string(BOOT_ID).map_err(|error| format!("{BOOT_ID}: {error}"))?;
        Ok(Clock { name: name.trim().to_string() })
    }

    /// The boot of which it is the clock.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn now_ns(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::try_from(now).expect("the machine started in the past").as_nanos() as u64
    }
}

/// The row of a slot. Lists and registers begin anew with each period, and not all slots at once, so that at any time some
/// rows are new and some are full.
pub fn row(kind: Kind, slot: u64, now_ns: u64, period: Duration, choice: u64) -> String {
    match kind {
        Kind::Rows => format!("{slot}-{}", choice % WHOLE_ROWS),
        _ => {
            let period_ns = period.as_nanos() as u64;
            format!("{slot}-{}", (now_ns + slot * period_ns / SLOTS) / period_ns)
        }
    }
}

/// The `count`th number of a process; no other process has it. Those of registers leave room for increments.
pub fn number(kind: Kind, process: u64, count: u64) -> i64 {
    debug_assert!(process < PROCESSES_MAX);
    let number = (count * PROCESSES_MAX + process) as i64;
    if kind == Kind::Registers { number << INCREMENT_BITS } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_change_with_time_one_after_the_other() {
        let period = Duration::from_secs(80);
        let rows = |s: u64| -> Vec<String> {
            (0..SLOTS).map(|slot| row(Kind::Lists, slot, s * 1_000_000_000, period, 5)).collect()
        };
        assert_eq!(rows(800)[0], "0-10");
        let changed = |from, to| rows(from).iter().zip(rows(to)).filter(|(one, two)| *one != two).count();
        assert_eq!((changed(800, 809), changed(809, 811), changed(800, 880)), (0, 1, 8));
        assert_eq!(row(Kind::Rows, 3, 800, period, 5), "3-2");
    }

    #[test]
    fn numbers_are_unique() {
        let mut all: Vec<i64> = (0..100)
            .flat_map(|process| (1..50).map(move |count| number(Kind::Registers, process, count)))
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] >= 1 << INCREMENT_BITS));
    }
}
