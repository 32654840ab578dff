//! The machine's clock, and what is named by it: rows and numbers.

use std::time::Duration;

use crate::history::Kind;

/// Rows that are in use at one time, each in a region of its own if the table is split at these digits.
pub const SLOTS: u64 = 8;
/// Whole rows of each slot; they are used all the time, but for the last one.
pub const WHOLE_ROWS: u64 = 4;
/// The last whole row of a slot is written in the first half of a period, and then not for the rest of so many.
const SELDOM_PERIODS: u64 = 4;
/// Of so many operations one is of a row of an earlier time.
pub const EARLIER: usize = 6;
/// Of so many of these one may write: a row is to be left alone long enough.
pub const EARLIER_WRITES: usize = 30;
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

/// A time since the recorder began: the row of that time is used again.
pub fn earlier(now_ns: u64, begun_ns: u64, choice: u64) -> u64 {
    now_ns - choice % (now_ns.saturating_sub(begun_ns) + 1)
}

/// The number of a whole row that is written now. The last one is left alone most of the time.
pub fn written_row(now_ns: u64, begun_ns: u64, period: Duration, choice: u64) -> u64 {
    let period_ns = period.as_nanos() as u64;
    let is_seldom = now_ns.saturating_sub(begun_ns) % (SELDOM_PERIODS * period_ns) > period_ns / 2;
    if is_seldom { choice % (WHOLE_ROWS - 1) } else { choice % WHOLE_ROWS }
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
        assert_eq!(row(Kind::Rows, 3, 800, period, 6), "3-2");
    }

    #[test]
    fn earlier_times_are_those_of_the_recorder() {
        let times: Vec<u64> = (0..100).map(|choice| earlier(1_050, 1_000, choice)).collect();
        assert_eq!((times.iter().min(), times.iter().max()), (Some(&1_000), Some(&1_050)));
    }

    #[test]
    fn the_last_whole_row_rests() {
        let period = Duration::from_nanos(100);
        let last = |now: u64| (0..20).any(|choice| written_row(now, 1_000, period, choice) == WHOLE_ROWS - 1);
        assert!(last(1_000) && last(1_050) && last(1_400));
        assert!(!last(1_051) && !last(1_399) && !last(1_451));
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
