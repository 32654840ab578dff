//! A master whose clock is behind that of the master before.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use halcyon_cell::Cell;
use halcyon_env::sim::SimFileSystem;
use halcyon_env::{Clock, Env, SystemClock};
use halcyon_proto::pb::table_state::State;

const HOUR_MS: i64 = 3_600_000;
const YEAR_MS: i64 = 366 * 24 * HOUR_MS;

struct Behind {
    clock: SystemClock,
    by_ms: i64,
}

impl Clock for Behind {
    fn now_ms(&self) -> i64 {
        self.clock.now_ms() - self.by_ms
    }

    fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    fn boot_ns(&self) -> u64 {
        self.clock.boot_ns()
    }

    fn sleep(&self, time: Duration) {
        self.clock.sleep(time);
    }
}

fn start(sim: &SimFileSystem, by_ms: i64, start_code: i64) -> Cluster {
    let clock = Arc::new(Behind { clock: SystemClock::new(), by_ms }) as Arc<dyn Clock>;
    Cluster::start(Env { clock, ..sim.env() }, Path::new(ROOT), start_code).unwrap()
}

/// Timestamps in meta went on behind the newest one, but not above the clock. A master whose clock was behind wrote cells
/// that older ones hid: a table that it disabled was enabled again after the next start, and a region that it split too.
#[test]
fn what_it_writes_to_meta_is_not_hidden() {
    for by_ms in [HOUR_MS, 24 * HOUR_MS, 50 * YEAR_MS] {
        let sim = SimFileSystem::new();
        let first = start(&sim, 0, 1);
        first.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
        drop(first);
        let second = start(&sim, by_ms, 2);
        second.run("DisableTable", &disable("t")).unwrap();
        assert_eq!(second.server.meta_value(b"t", "table", "state").unwrap(), [8, State::Disabled as u8]);
        drop(second);
        let third = start(&sim, by_ms, 3);
        assert_eq!(third.state("t"), Some(State::Disabled), "{by_ms} ms behind");
        third.run("EnableTable", &enable("t")).unwrap();
        third.check();
        drop(third);
        assert_eq!(start(&sim, by_ms, 4).state("t"), Some(State::Enabled), "{by_ms} ms behind");
    }
}

/// Clients read the states of tables up to their own time. A cell of the far future does not move those of the master there.
#[test]
fn a_timestamp_that_a_client_chose_stays_alone() {
    for chosen_ms in [i64::MAX - 1, 1000 * YEAR_MS] {
        let sim = SimFileSystem::new();
        let first = start(&sim, 0, 1);
        let odd = Cell::put(b"odd", b"info", b"note", chosen_ms, b"mine");
        first.server.meta_put(vec![odd]).unwrap();
        drop(first);
        let second = start(&sim, 0, 2);
        second.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
        let rows = second.server.meta_rows();
        let of_table = rows.iter().flatten().filter(|cell| cell.row().starts_with(b"t"));
        let newest_ms = of_table.map(Cell::timestamp).max().unwrap();
        assert!(newest_ms <= SystemClock::new().now_ms(), "{newest_ms}");
    }
}
