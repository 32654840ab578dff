//! What a master that starts makes of procedures that the one before has left.

use prost::Message;

use super::*;

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    kind: String,
    #[prost(uint32, tag = "3")]
    step: u32,
    #[prost(bytes = "vec", tag = "4")]
    payload: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Crash {
    #[prost(message, required, tag = "1")]
    server: pb::ServerName,
}

#[derive(Clone, PartialEq, Message)]
struct Transit {
    #[prost(message, required, tag = "1")]
    region: pb::RegionInfo,
    #[prost(int32, tag = "2")]
    action: i32,
    #[prost(message, optional, tag = "4")]
    from: Option<pb::ServerName>,
}

impl Transit {
    /// Of a region that was open nowhere when it was asked for.
    fn of(region: &RegionInfo, action: i32) -> Transit {
        Transit { region: region.to_pb(), action, from: None }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Merge {
    #[prost(message, repeated, tag = "1")]
    parents: Vec<pb::RegionInfo>,
    #[prost(message, required, tag = "2")]
    merged: pb::RegionInfo,
}

#[derive(Clone, PartialEq, Message)]
struct Snapshot {
    #[prost(message, required, tag = "1")]
    info: pb::SnapshotDescription,
    #[prost(message, required, tag = "2")]
    schema: pb::TableSchema,
    #[prost(message, repeated, tag = "3")]
    regions: Vec<pb::RegionInfo>,
    #[prost(bool, tag = "4")]
    flush: bool,
}

const ASSIGN: i32 = 0;
const MOVE: i32 = 2;

impl Servers {
    fn leave(&self, id: u64, kind: &str, step: u32, payload: &impl Message) {
        let record = Record { id, kind: kind.to_string(), step, payload: payload.encode_to_vec() };
        let (fs, all) = (&self.env.fs, Path::new(ROOT).join("MasterData/procedures"));
        let of_master = all.join(fs.list(&all).unwrap()[0].name.clone());
        let bytes = [&[1][..], &record.encode_to_vec()].concat();
        fs.replace(&of_master.join(id.to_string()), &bytes).unwrap();
    }
}

/// The next master gave it regions, `hbase:meta` too, and took its znode in the recovery that went on. It learned of its death only by
/// that.
#[test]
fn a_server_that_an_earlier_master_has_declared_dead_stays_dead() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let servers = c.servers.clone();
    c.master.stop();
    let judged = servers.state.lock().meta.clone().unwrap();
    servers.leave(900_000, "server_crash", 0, &Crash { server: judged.to_pb() });
    // It has its znode. A start that finds it dead behind the opening of meta there is repeated, as the process does.
    let c = Many::over(servers);
    c.settles("t", 9);
    c.quiet();
    let state = c.servers.state.lock();
    assert!(!state.online.contains_key(&judged), "it lives, and is not used");
    assert!(state.deposed.contains(&judged));
    assert_ne!(state.meta.as_ref(), Some(&judged));
}

/// The regions of "t", and a cluster whose master has ended, in which the first of them is closed.
fn half_moved() -> (Arc<Servers>, Vec<RegionInfo>) {
    let c = Many::new(env(), 3);
    let _: pb::CreateTableResponse = c.call("CreateTable", &create(&table("u", &["f"]), &[]));
    c.create(&["m"]);
    let open: BTreeMap<RegionInfo, ServerName> = {
        let state = c.servers.state.lock();
        let all = state.online.iter().flat_map(|(at, all)| all.values().map(|it| (it.clone(), at.clone())));
        all.filter(|(region, _)| region.table().to_string() == "t").collect()
    };
    let regions: Vec<RegionInfo> = open.keys().cloned().collect();
    let servers = c.servers.clone();
    let unassign = pb::UnassignRegionRequest {
        region: pb::RegionSpecifier { r#type: 1, value: regions[0].region_name().clone() },
        force: Some(false),
    };
    let _: pb::UnassignRegionResponse = c.call("UnassignRegion", &unassign);
    c.quiet();
    c.master.stop();
    (servers, regions)
}

fn merge_of(regions: &[RegionInfo]) -> Merge {
    let id = regions.iter().map(RegionInfo::region_id).max().unwrap() + 1;
    let merged = RegionInfo::new(regions[0].table().clone(), Default::default(), Default::default(), id);
    Merge { parents: regions.iter().map(RegionInfo::to_pb).collect(), merged: merged.to_pb() }
}

fn open_of_t(c: &Many) -> Vec<RegionInfo> {
    let state = c.servers.state.lock();
    let all = state.online.values().flat_map(|regions| regions.values().cloned());
    all.filter(|region| region.table().to_string() == "t").collect()
}

/// A move had closed its region when the master ended, and a merge waited for it. The merge was the first to run at the next master, and
/// the move then opened a region whose rows the merged one had: what was written there was lost.
#[test]
fn what_has_begun_goes_on_before_what_waits_for_it() {
    let (servers, regions) = half_moved();
    servers.leave(900_000, "merge_regions", 0, &merge_of(&regions));
    servers.leave(900_001, "transit_region", 1, &Transit::of(&regions[0], MOVE));
    let c = Many::over(servers);
    c.quiet();
    let open = open_of_t(&c);
    assert!(open.len() == 1 && !regions.contains(&open[0]), "{open:?}");
}

/// An opening that did not begin comes behind the merge, and finds that its region is no more. So does a move in its first step.
#[test]
fn regions_that_were_merged_meanwhile_are_opened_no_more() {
    for action in [ASSIGN, MOVE] {
        let (servers, regions) = half_moved();
        servers.leave(900_000, "merge_regions", 1, &merge_of(&regions));
        servers.leave(900_001, "transit_region", 0, &Transit::of(&regions[0], action));
        let c = Many::over(servers);
        c.quiet();
        let open = open_of_t(&c);
        assert!(open.len() == 1 && !regions.contains(&open[0]), "{action}: {open:?}");
    }
}

/// A master ended in the middle of the first step of a merge. The next one took that for a procedure that waits for its locks, and a
/// client's opening of a parent went first: it came into the middle of the merge.
#[test]
fn a_first_step_that_was_cut_off_has_its_locks_again() {
    let (servers, regions) = half_moved();
    // The one thread of the next master is busy with this, until the opening waits. Its record names the server that the region leaves,
    // as those of regions that are open do: a move to where the region is would warm up nothing, and not stand still.
    let move_of_u = {
        let state = servers.state.lock();
        let mut all = state.online.iter().flat_map(|(at, all)| all.values().map(move |it| (at, it)));
        let (at, region) = all.find(|(_, region)| region.table().to_string() == "u").unwrap();
        Transit { from: Some(at.to_pb()), ..Transit::of(region, MOVE) }
    };
    servers.leave(900_000, "transit_region", 0, &move_of_u);
    servers.leave(900_001, "merge_regions", 0, &merge_of(&regions));
    servers.state.lock().is_stalled = true;
    let c = Many::over_with(servers, MasterSettings { procedure_threads: 1, ..settings() });
    let region = pb::RegionSpecifier { r#type: 1, value: regions[0].region_name().clone() };
    let assign = pb::AssignRegionRequest { region, r#override: Some(false) };
    let waits_until = |count: usize| {
        let begun = Instant::now();
        while c.master.procedures().len() < count {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:#?}", c.master.procedures());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    waits_until(2);
    let assigned = std::thread::scope(|scope| {
        let asked = scope.spawn(|| answer::<pb::AssignRegionResponse>(&c.service, "AssignRegion", &assign));
        waits_until(3);
        c.servers.state.lock().is_stalled = false;
        asked.join().unwrap()
    });
    c.quiet();
    let error = assigned.expect_err("the region is merged before it can be opened");
    assert!(error.class.contains("UnknownRegion") || error.message.contains("Unexpected state"), "{error:?}");
    let open = open_of_t(&c);
    assert!(open.len() == 1 && !regions.contains(&open[0]), "{open:?}");
}

/// A master that ZooKeeper did not hear went on: its step was done, its record could not be written, and so the step was repeated, over
/// what its successor had made of the same table since.
#[test]
fn a_master_whose_records_are_taken_does_nothing_more() {
    let first = Many::over_with(Servers::new(env(), 3), MasterSettings { epoch: 1, ..settings() });
    first.create(&KEYS);
    let next = Many::over_with(first.servers.clone(), MasterSettings { epoch: 2, ..settings() });
    let made = create(&table("made", &["f"]), &[]);
    // It is told a number, and finds out when the record is written.
    let begun = Instant::now();
    let refused = loop {
        let asked = answer::<pb::CreateTableResponse>(&first.service, "CreateTable", &made);
        match asked {
            Ok(_) => assert!(begun.elapsed() < Duration::from_secs(20), "it goes on"),
            Err(refused) => break refused,
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(refused.class.ends_with("ServerNotRunningYetException"), "{refused:?}");
    let _: pb::CreateTableResponse = next.call("CreateTable", &made);
    next.quiet();
    assert!(next.master.table_states().contains_key("made"));
}

/// It failed, because its region was split, and its undo wrote the row of a whole region: the next master opened that over its daughters.
#[test]
fn a_move_of_a_region_that_was_split_leaves_it_split() {
    let c = Many::new(env(), 3);
    c.create(&["m"]);
    let parent = open_of_t(&c).into_iter().find(|region| region.start_key().is_empty()).unwrap();
    let _: pb::SplitTableRegionResponse = c.call("SplitRegion", &split(&parent, Some("f")));
    c.quiet();
    assert_eq!(open_of_t(&c).len(), 3);
    let servers = c.servers.clone();
    c.master.stop();
    let row = |servers: &Servers| {
        let rows = servers.disk.meta_rows();
        let of_parent = rows.into_iter().find(|row| row[0].row() == &parent.region_name()[..]);
        let info = of_parent?.into_iter().find(|cell| cell.qualifier() == b"regioninfo");
        Some(RegionInfo::decode_value(info?.value()).unwrap())
    };
    assert!(row(&servers).expect("it is kept for a while").is_split());
    servers.leave(900_000, "transit_region", 1, &Transit::of(&parent, MOVE));
    let c = Many::over(servers);
    c.quiet();
    c.master.stop();
    assert!(row(&c.servers).is_none_or(|known| known.is_split()));
    let c = Many::over(c.servers);
    c.quiet();
    let open = open_of_t(&c);
    assert!(open.len() == 3 && open.iter().all(|region| region.encoded_name() != parent.encoded_name()));
}

/// The flush of the table was recorded as done, and a server had died during it whose WALs were not split. The snapshot was complete
/// without them.
#[test]
fn a_snapshot_that_is_taken_over_waits_for_a_dead_server() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let servers = c.servers.clone();
    c.master.stop();
    let dying = {
        let state = servers.state.lock();
        let is_ordinary = |regions: &BTreeMap<String, RegionInfo>| {
            !regions.is_empty() && regions.values().all(|it| !it.is_meta() && !it.table().is_system())
        };
        state.online.iter().find(|(_, regions)| is_ordinary(regions)).expect("three are enough").0.clone()
    };
    let regions = {
        let state = servers.state.lock();
        let all = state.online.values().flat_map(BTreeMap::values);
        all.filter(|region| region.table().to_string() == "t").map(RegionInfo::to_pb).collect()
    };
    servers.state.lock().dies_with_flush = Some((dying, false));
    servers.die_of_flush();
    let (info, schema) = (snapshot("s", "t").snapshot, table("t", &["f"]).to_pb());
    servers.leave(900_000, "take_snapshot", 1, &Snapshot { info, schema, regions, flush: true });

    let c = Many::over(servers);
    let complete = Path::new(ROOT).join(".hbase-snapshot/s");
    let begun = Instant::now();
    while !c
        .master
        .procedures()
        .iter()
        .any(|it| it.id == 900_000 && it.state.contains("waits until the WALs of"))
    {
        assert!(!c.servers.env.fs.exists(&complete).unwrap(), "it lacks what was in memory of a dead server");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:#?}", c.master.procedures());
        std::thread::sleep(Duration::from_millis(1));
    }
    c.servers.state.lock().damaged.clear();
    while !c.servers.env.fs.exists(&complete).unwrap() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:#?}", c.master.procedures());
        c.master.recover_dead_servers(); // as the process does now and then
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(c.servers.state.lock().unreplayed.is_empty(), "its regions were opened before");
    c.settles("t", 9);
    c.quiet();
}
