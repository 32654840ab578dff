//! The limit of the WALs by the time that a recovery may take.

#![allow(clippy::disallowed_methods)] // the test itself waits

use std::time::{Duration, Instant};

use halcyon_env::sim::SimFileSystem;
use halcyon_regionserver::RegionServerSettings;

use crate::common::{self, Lab};

const MIB: u64 = 1 << 20;
const ROWS_COUNT: u64 = 48;
/// The smallest that there is.
const LIMIT_BYTES: u64 = 32 * MIB;
/// What takes longer hangs.
const TIME_MAX: Duration = Duration::from_secs(60);

/// A lab with a row for each MiB, none of which is flushed for another reason.
fn filled(is_limited: bool) -> Lab {
    let settings = RegionServerSettings {
        memory_bytes: 1 << 30,
        recovery_time: Duration::from_millis(1),
        ..common::settings()
    };
    let lab = Lab::with(SimFileSystem::new(), settings);
    if is_limited {
        lab.server.limit_recovery(|| 2);
    }
    let value = "v".repeat(MIB as usize);
    (0..ROWS_COUNT).for_each(|row| lab.put(&format!("r{row:02}"), "q", &value));
    assert!(lab.server.stats().wal.files_bytes > ROWS_COUNT * MIB);
    lab
}

/// Lets seconds pass until this is so. False if it takes too many.
fn comes_true(lab: &Lab, seconds_max: u32, is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    for _ in 0..seconds_max {
        if is_so() {
            return true;
        }
        assert!(begun.elapsed() < TIME_MAX);
        lab.clock.advance(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(10));
    }
    is_so()
}

#[test]
fn regions_are_flushed_so_that_a_recovery_is_short() {
    let lab = filled(true);
    assert_eq!(lab.server.wal_bytes_max(), Some(LIMIT_BYTES));
    let is_short = || lab.server.stats().wal.files_bytes <= LIMIT_BYTES;
    assert!(comes_true(&lab, 1000, is_short), "{} bytes stay", lab.server.stats().wal.files_bytes);
    for row in 0..ROWS_COUNT {
        assert_eq!(lab.row(&format!("r{row:02}")).len(), 1, "row {row}");
    }
}

#[test]
fn without_other_servers_there_is_no_limit() {
    let lab = filled(false);
    assert_eq!(lab.server.wal_bytes_max(), None);
    let is_less = || lab.server.stats().wal.files_bytes < ROWS_COUNT * MIB;
    assert!(!comes_true(&lab, 30, is_less), "a region was flushed, or a file is gone");
}
