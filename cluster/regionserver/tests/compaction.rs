//! Compactions of a server: ended by the switch and by closing, slowed down, and waited for by flushes.

use crate::common;
use std::time::{Duration, Instant};

use crate::common::*;
use halcyon_contract::RegionServerApi;
use halcyon_env::sim::SimFileSystem;
use halcyon_env::{Clock, Env};
use halcyon_proto::pb;
use halcyon_proto::pb::region_load::CompactionState;

const ROWS: usize = 64;
const VALUE_BYTES: usize = 64 << 10;

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    #[allow(clippy::disallowed_methods)] // the server's clock is a test's; this waits for its threads
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "never: {what}");
        Env::real().clock.sleep(Duration::from_millis(5));
    }
}

fn load(lab: &Lab) -> pb::RegionLoad {
    lab.server.server_load().region_loads.remove(0)
}

fn switch(lab: &Lab, enabled: bool) -> bool {
    let request = pb::CompactionSwitchRequest { enabled };
    lab.admin::<pb::CompactionSwitchResponse>("CompactionSwitch", &request).unwrap().prev_state
}

fn write_file(lab: &Lab, round: usize) {
    for row in 0..ROWS {
        lab.put(&format!("r{row:02}"), "q", &format!("{round}{}", "x".repeat(VALUE_BYTES)));
    }
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
}

fn compact(lab: &Lab) {
    let request = pb::CompactRegionRequest { region: lab.specifier(), major: Some(true), family: None };
    lab.admin::<pb::CompactRegionResponse>("CompactRegion", &request).unwrap();
}

/// With a limit of a byte in a second a compaction sleeps until somebody ends it; the clock is a test's, so that it
/// wakes up and looks all the time.
fn slow() -> Lab {
    slow_from(100)
}

/// As [`slow`], where so many files are compacted.
fn slow_from(files_min: usize) -> Lab {
    let mut settings = common::settings();
    settings.throughput.lower_bytes = 1;
    settings.throughput.higher_bytes = 1;
    settings.region.compaction.files_min = files_min;
    let lab = Lab::with(SimFileSystem::new(), settings);
    (0..2).for_each(|round| write_file(&lab, round));
    assert_eq!(load(&lab).storefiles(), 2);
    lab
}

#[test]
fn the_switch_ends_a_compaction_and_lets_it_begin_again() {
    let lab = slow();
    compact(&lab);
    eventually("it runs", || load(&lab).compaction_state() == CompactionState::Major);
    eventually("it has begun", || !lab.server.server_load().tasks.is_empty());
    let tasks = lab.server.server_load().tasks;
    let [task] = &tasks[..] else { panic!("one task: {tasks:?}") };
    assert_eq!(task.description, format!("Compacting {}", lab.info));
    assert!(
        task.status.ends_with(" cells") && task.state == pb::server_task::State::Running as i32,
        "{task:?}"
    );
    assert!(switch(&lab, false));
    eventually("it has ended", || load(&lab).compaction_state() == CompactionState::None);
    eventually("it is not shown any more", || lab.server.server_load().tasks.is_empty());
    assert_eq!(load(&lab).storefiles(), 2);
    assert!(lab.row("r07")[0].starts_with("1x"));
    let region = lab.server.regions().get(lab.info.encoded_name()).unwrap().region.clone();
    let [opening] = &lab.fs.env().fs.list(&region.dir().join(".tmp")).unwrap()[..] else {
        panic!("one opening")
    };
    assert!(lab.fs.env().fs.list(&region.dir().join(".tmp").join(&opening.name)).unwrap().is_empty());
    assert!(!switch(&lab, true));
    // The wish was kept: the next check of the chores finds it.
    eventually("it runs again", || {
        lab.clock.advance(lab.server.settings().compaction_check_period);
        load(&lab).compaction_state() == CompactionState::Major
    });
}

/// A region that moved with many files had to wait for the next look at all regions.
#[test]
fn a_region_that_opens_with_many_files_is_compacted() {
    let lab = Lab::new();
    for round in 0..5 {
        lab.put("r", "q", &round.to_string());
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    }
    assert_eq!(load(&lab).storefiles(), 5, "flushes by the master leave compactions to others");
    lab.server.close_region(lab.info.encoded_name(), false).unwrap();
    lab.server.open_region(&lab.info, &common::table().into()).unwrap();
    eventually("it is compacted", || load(&lab).storefiles() == 1);
    assert_eq!(lab.row("r"), ["4"]);
}

/// HBase's `TestCompactionState` looks at this.
#[test]
fn a_minor_compaction_that_takes_all_files_is_no_major_one() {
    let lab = slow_from(2);
    let request = pb::CompactRegionRequest { region: lab.specifier(), major: Some(false), family: None };
    lab.admin::<pb::CompactRegionResponse>("CompactRegion", &request).unwrap();
    let region = lab.server.regions().get(lab.info.encoded_name()).unwrap().region.clone();
    eventually("it runs", || region.stats().minor_compactions_running == 1);
    assert_eq!(load(&lab).compaction_state(), CompactionState::Minor);
}

/// The master in the same process was told of no compaction while one left the queue.
#[test]
fn a_compaction_that_was_asked_for_is_seen_until_it_has_ended() {
    let lab = Lab::new();
    for round in 0..500 {
        lab.put("r", "q", &round.to_string());
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
        lab.server.compact_region(&lab.info, &"f".into(), true).unwrap();
        while lab.server.is_compacting(&lab.info).unwrap() {
            std::hint::spin_loop();
        }
        assert_eq!(load(&lab).storefiles(), 1, "round {round}");
    }
}

#[test]
fn closing_a_region_ends_its_compaction() {
    let lab = slow();
    compact(&lab);
    eventually("it runs", || load(&lab).compaction_state() == CompactionState::Major);
    lab.server.close_region(lab.info.encoded_name(), false).unwrap();
    lab.server.open_region(&lab.info, &table().into()).unwrap();
    assert_eq!(load(&lab).storefiles(), 2);
    assert!(lab.row("r07")[0].starts_with("1x"));
}

#[test]
fn a_compaction_takes_the_time_that_the_limit_gives_it() {
    let mut settings = common::settings();
    settings.throughput.lower_bytes = 1 << 20;
    settings.throughput.higher_bytes = 1 << 20;
    settings.region.compaction.files_min = 100;
    let lab = Lab::with(SimFileSystem::new(), settings);
    (0..2).for_each(|round| write_file(&lab, round));
    let before_ns = lab.clock.monotonic_ns();
    compact(&lab);
    eventually("one file is left", || load(&lab).storefiles() == 1);
    // The test's clock stands while it writes, so the second round replaces the first: 4 MiB at one in a second.
    let seconds = (lab.clock.monotonic_ns() - before_ns) / 1_000_000_000;
    assert!((3..=5).contains(&seconds), "{seconds} s");
}

#[test]
fn a_flush_waits_for_a_store_with_too_many_files_but_not_for_ever() {
    let mut settings = common::settings();
    settings.region.compaction.files_min = 100;
    settings.region.compaction.blocking_files_count = 2;
    settings.region.flush_size_bytes = 256 << 10;
    settings.blocking_files_wait = Duration::from_secs(30);
    let lab = Lab::with(SimFileSystem::new(), settings);
    for round in 0..3 {
        lab.put("r", "q", &round.to_string());
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    }
    switch(&lab, false); // nothing may relieve the store
    for row in 0..6 {
        lab.put(&format!("r{row}"), "q", &"x".repeat(VALUE_BYTES));
    }
    Env::real().clock.sleep(Duration::from_millis(500));
    assert_eq!(load(&lab).storefiles(), 3, "the memstore is over its flush size, and waits");
    lab.clock.advance(Duration::from_secs(31));
    eventually("it is flushed", || load(&lab).storefiles() == 4);
}

/// After a flush by the master a compaction waits for the next check; a client that asks the server itself has both.
#[test]
fn a_flush_of_a_client_compacts_and_one_of_the_master_does_not() {
    let lab = Lab::new();
    let put = |round: usize| lab.put("r", "q", &round.to_string());
    for round in 0..4 {
        put(round);
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    }
    Env::real().clock.sleep(Duration::from_millis(300));
    assert_eq!(load(&lab).storefiles(), 4);
    put(4);
    let request = pb::FlushRegionRequest { region: lab.specifier(), ..Default::default() };
    let response: pb::FlushRegionResponse = lab.admin("FlushRegion", &request).unwrap();
    assert!(response.flushed());
    eventually("one file is left", || load(&lab).storefiles() == 1);
    for round in 5..9 {
        put(round);
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    }
    eventually("the check finds it", || {
        lab.clock.advance(lab.server.settings().compaction_check_period);
        load(&lab).storefiles() == 1
    });
}
