use bytes::Bytes;
use halcyon_env::ManualClock;
use halcyon_env::sim::{Fault, Operation, SimFileSystem};

use halcyon_schema::TableName;

use super::*;

const START_MS: i64 = 1_700_000_000_000;

fn server(port: u16) -> ServerName {
    ServerName::new("h", port, 1)
}

fn region(table: &str) -> RegionInfo {
    let table = TableName::parse(table.as_bytes()).unwrap();
    RegionInfo::new(table, Bytes::new(), Bytes::new(), 1)
}

struct Lab {
    clock: Arc<ManualClock>,
    timelines: Timelines,
}

fn lab() -> Lab {
    let clock = Arc::new(ManualClock::at(START_MS));
    let timelines = Timelines::new(clock.clone());
    Lab { clock, timelines }
}

impl Lab {
    fn pass(&self, ms: u64) {
        self.clock.advance(std::time::Duration::from_millis(ms));
    }

    fn newest(&self) -> Recovery {
        self.timelines.recoveries().remove(0)
    }
}

#[test]
fn a_death_has_its_times_in_order() {
    let lab = lab();
    let (times, dead) = (&lab.timelines, server(1));
    times.noticed(&dead, Noticed::ProcessEnded, Some(START_MS - 700));
    lab.pass(10);
    times.fenced(&dead);
    lab.pass(20);
    times.split(&dead, 1, 100);
    times.meta_opened(&dead);
    lab.pass(30);
    times.fenced(&dead); // again: the first time counts
    times.split(&dead, 2, 1000);
    let regions = [region("a"), region("b")];
    times.assigning(&dead, regions.iter().cloned());
    lab.pass(40);
    times.region_opened(&region("other"));
    times.region_opened(&regions[0]);
    assert_eq!(lab.newest().ended_ms, None, "one region is missing");
    lab.pass(50);
    times.region_opened(&regions[1]);
    times.region_opened(&regions[1]); // moved since
    let it = lab.newest();
    assert_eq!((it.kind(), it.noticed()), (RecoveryKind::Server, Noticed::ProcessEnded));
    let since = |ms: Option<i64>| ms.map(|ms| ms - START_MS);
    let of_times = [it.heard_ms, Some(it.noticed_ms), it.fenced_ms, it.meta_opened_ms, it.split_ms];
    assert_eq!(of_times.map(since), [Some(-700), Some(0), Some(10), Some(30), Some(60)]);
    let of_regions = [it.first_opened_ms, it.last_opened_ms, it.ended_ms];
    assert_eq!(of_regions.map(since), [Some(100), Some(150), Some(150)]);
    assert_eq!((it.wals_count, it.wal_bytes, it.regions_count, it.opened_count), (3, 1100, 2, 2));
    assert_eq!(times.recoveries().len(), 1);
}

#[test]
fn the_one_who_saw_it_may_come_after_the_procedure() {
    let lab = lab();
    lab.timelines.fenced(&server(1));
    lab.timelines.noticed(&server(1), Noticed::ZnodeGone, None);
    lab.timelines.noticed(&server(1), Noticed::NoZnode, None);
    assert_eq!((lab.newest().noticed(), lab.timelines.recoveries().len()), (Noticed::ZnodeGone, 1));
    lab.timelines.assigning(&server(1), std::iter::empty());
    assert_eq!(lab.newest().ended_ms, Some(START_MS), "it had no region");
    lab.timelines.noticed(&server(1), Noticed::ZnodeGone, None);
    assert_eq!(lab.timelines.recoveries().len(), 2, "a name may die once only, but who knows");
}

/// The caller sees to regions whose table was disabled or deleted meanwhile.
#[test]
fn regions_that_nothing_works_on_end_a_recovery() {
    let lab = lab();
    lab.timelines.noticed(&server(1), Noticed::ProcessEnded, None);
    lab.timelines.assigning(&server(1), [region("a"), region("b")].into_iter());
    assert_eq!(lab.timelines.overdue(), Vec::<String>::new(), "their procedures may come still");
    lab.pass(UNATTENDED_MS as u64 + 1);
    let overdue = lab.timelines.overdue();
    assert_eq!(overdue.len(), 2);
    lab.timelines.given_up(&overdue[..1]);
    assert_eq!(lab.newest().ended_ms, None);
    lab.timelines.given_up(&overdue);
    let it = lab.newest();
    assert!(it.ended_ms.is_some());
    assert_eq!((it.regions_count, it.opened_count), (2, 0));
}

#[test]
fn a_takeover_knows_what_it_found() {
    let lab = lab();
    let (times, before, own) = (&lab.timelines, server(1), server(2));
    times.takeover_began(&own, 7, Some(&before));
    times.servers_joined();
    for found in [&before, &server(9)] {
        times.noticed(found, Noticed::FoundAtTakeover, None);
        lab.pass(5);
        times.fenced(found);
        times.split(found, 1, 10);
    }
    times.meta_opened_first();
    times.assigning(&before, std::iter::empty());
    times.assigning(&server(9), std::iter::once(region("a")));
    times.region_opened(&region("a"));
    times.takeover_ended();
    let all = times.recoveries();
    let kinds: Vec<RecoveryKind> = all.iter().map(Recovery::kind).collect();
    assert_eq!(kinds, [RecoveryKind::Server, RecoveryKind::FormerMaster, RecoveryKind::Takeover]);
    assert!(all.iter().all(|it| it.ended_ms.is_some() && it.epoch == 7 && it.master == own.to_string()));
    let takeover = &all[2];
    assert_eq!(takeover.fenced_ms, Some(START_MS + 5), "the first of them");
    assert_eq!(takeover.joined_ms, Some(START_MS));
    assert_eq!((takeover.wals_count, takeover.wal_bytes, takeover.opened_count), (2, 20, 1));
}

#[test]
fn the_next_master_knows_the_newest_and_ends_what_was_under_way() {
    let (fs, root) = (SimFileSystem::new(), Path::new("/hbase"));
    fs.env().fs.create_dir_all(&layout::master_dir(root)).unwrap();
    let first = lab();
    first.timelines.takeover_began(&server(1), 1, None);
    first.timelines.load(&fs.env(), root);
    for port in 0..RECOVERIES_MAX as u16 {
        first.timelines.noticed(&server(port + 10), Noticed::ProcessEnded, None);
        first.timelines.assigning(&server(port + 10), std::iter::empty());
    }
    first.timelines.noticed(&server(5), Noticed::ProcessEnded, None);
    first.pass(30);
    first.timelines.fenced(&server(5));
    first.timelines.save();
    assert_eq!(first.timelines.recoveries().len(), RECOVERIES_MAX);

    let second = lab();
    second.timelines.takeover_began(&server(2), 2, Some(&server(1)));
    second.timelines.load(&fs.env(), root);
    second.timelines.load(&fs.env(), root); // another attempt of the same start
    let all = second.timelines.recoveries();
    assert_eq!(all.len(), RECOVERIES_MAX);
    let mut numbers: Vec<u64> = all.iter().map(|it| it.number).collect();
    assert!(numbers.is_sorted_by(|a, b| a > b), "{numbers:?}");
    numbers.dedup();
    assert_eq!(numbers.len(), RECOVERIES_MAX);
    assert_eq!((all[0].kind(), all[0].epoch, all[0].server.as_str()), (RecoveryKind::Takeover, 2, "h,1,1"));
    assert_eq!((all[1].server.as_str(), all[1].ended_ms), ("h,5,1", Some(START_MS + 30)));
}

#[test]
fn what_cannot_be_read_or_written_stops_nothing() {
    let (fs, root) = (SimFileSystem::new(), Path::new("/hbase"));
    fs.env().fs.create_dir_all(&layout::master_dir(root)).unwrap();
    fs.env().fs.replace(&file(root), b"\xff garbage").unwrap();
    let lab = lab();
    lab.timelines.load(&fs.env(), root);
    assert_eq!(lab.timelines.recoveries(), Vec::new());
    lab.timelines.noticed(&server(1), Noticed::ProcessEnded, None);
    fs.inject(Fault::new(Operation::Put, "recoveries"));
    lab.timelines.save();
    fs.clear_faults();
    lab.timelines.noticed(&server(2), Noticed::ProcessEnded, None);
    lab.timelines.save();
    let next = self::lab();
    next.timelines.load(&fs.env(), root);
    assert_eq!(next.timelines.recoveries().len(), 2);
}
