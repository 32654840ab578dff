//! What HBCK2 asks of a master: states, assignments, and regions that meta has lost.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::path::Path;
use std::time::Duration;

use crate::common::*;
use bytes::Bytes;
use halcyon_cell::{Cell, CellType};
use halcyon_contract::RegionFiles;
use halcyon_env::sim::{CrashMode, SimFileSystem};
use halcyon_master::MasterSettings;
use halcyon_proto::pb;
use halcyon_proto::pb::region_state::State as RegionState;
use halcyon_proto::pb::table_state::State;
use halcyon_rpc::RpcError;
use halcyon_schema::RegionInfo;
use prost::Message;

/// As clients see -1.
const NO_PROCEDURE: u64 = u64::MAX;

fn hbck<R: Message + Default>(c: &Cluster, method: &str, request: &impl Message) -> Result<R, RpcError> {
    answer(&c.hbck, method, request)
}

fn with_table() -> (SimFileSystem, Cluster) {
    let (sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &["b", "c"])).unwrap();
    c.run("FlushTable", &flush("t")).unwrap();
    (sim, c)
}

fn restart(sim: &SimFileSystem, c: Cluster) -> Cluster {
    drop(c);
    let c = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 2).unwrap();
    c.quiet();
    c
}

fn set_table_state(c: &Cluster, table: &str, state: State) -> Result<State, RpcError> {
    let table_state = pb::TableState { state: state as i32 };
    let request = pb::SetTableStateInMetaRequest { table_name: name(table).to_pb(), table_state };
    let before: pb::GetTableStateResponse = hbck(c, "SetTableStateInMeta", &request)?;
    Ok(before.table_state.state())
}

fn encoded(region: &RegionInfo) -> pb::RegionSpecifier {
    let r#type = pb::region_specifier::RegionSpecifierType::EncodedRegionName as i32;
    pb::RegionSpecifier { r#type, value: Bytes::copy_from_slice(region.encoded_name().as_bytes()) }
}

fn set_region_state(c: &Cluster, region: &RegionInfo, state: RegionState) -> Result<RegionState, RpcError> {
    let asked = pb::RegionSpecifierAndState { region_specifier: encoded(region), state: state as i32 };
    let request = pb::SetRegionStateInMetaRequest { states: vec![asked.clone()] };
    let before: pb::SetRegionStateInMetaResponse = hbck(c, "SetRegionStateInMeta", &request)?;
    assert_eq!(before.states[0].region_specifier, asked.region_specifier);
    Ok(before.states[0].state())
}

fn state_in_meta(c: &Cluster, region: &RegionInfo) -> String {
    String::from_utf8(c.server.meta_value(region.region_name(), "info", "state").unwrap()).unwrap()
}

/// As a client that deletes a row of `hbase:meta`.
fn lose_row(c: &Cluster, region: &RegionInfo) {
    let now = c.env.clock.now_ms();
    let delete = Cell::build(region.region_name(), b"info", b"", now, CellType::DeleteFamily, b"", b"", 0);
    c.server.meta_put(vec![delete]).unwrap();
    std::thread::sleep(Duration::from_millis(2)); // what is written next must be newer
}

fn fix(c: &Cluster) -> Result<(), RpcError> {
    hbck::<pb::FixMetaResponse>(c, "FixMeta", &pb::FixMetaRequest {}).map(|_| ())
}

/// What the chore finds.
fn problems(c: &Cluster) -> Vec<String> {
    let ran: pb::RunHbckChoreResponse = hbck(c, "RunHbckChore", &pb::RunHbckChoreRequest {}).unwrap();
    assert!(ran.ran);
    c.master.hbck_report().unwrap().1
}

#[test]
fn the_state_of_a_table_is_what_was_said() {
    let (sim, c) = with_table();
    assert_eq!(set_table_state(&c, "t", State::Disabled).unwrap(), State::Enabled);
    assert_eq!(c.state("t"), Some(State::Disabled));
    let c = restart(&sim, c);
    assert_eq!(c.state("t"), Some(State::Disabled));
    assert_eq!(set_table_state(&c, "t", State::Enabled).unwrap(), State::Disabled);
    let c = restart(&sim, c);
    c.check();
    assert!(
        set_table_state(&c, "gone", State::Enabled).unwrap_err().class.ends_with("TableNotFoundException")
    );
    assert!(set_table_state(&c, "hbase:meta", State::Disabled).unwrap_err().do_not_retry);
}

#[test]
fn the_state_of_a_region_is_what_was_said() {
    let (_sim, c) = with_table();
    let region = c.regions("t")[1].clone();
    assert_eq!(set_region_state(&c, &region, RegionState::Closed).unwrap(), RegionState::Open);
    assert_eq!(state_in_meta(&c, &region), "CLOSED");
    assert_eq!(set_region_state(&c, &region, RegionState::FailedOpen).unwrap(), RegionState::Closed);
    let error = set_region_state(&c, &region, RegionState::Splitting).unwrap_err();
    assert!(error.do_not_retry && error.message.contains("SPLITTING"), "{error}");
    assert_eq!(state_in_meta(&c, &region), "FAILED_OPEN");
    let begun = transit(&c, "Assigns", &[encoded(&region)], false);
    c.wait(begun[0]).unwrap();
    assert_eq!(state_in_meta(&c, &region), "OPEN");
    c.check();
    let unknown = RegionInfo::new(name("t"), "x".into(), "y".into(), 7);
    let error = set_region_state(&c, &unknown, RegionState::Closed).unwrap_err();
    assert!(error.class.ends_with("UnknownRegionException"), "{error:?}");
}

/// A procedure that goes its way is waited for.
#[test]
fn a_change_waits_for_a_procedure_that_ends() {
    let (_sim, c) = with_table();
    let region = c.regions("t")[0].clone();
    for _ in 0..20 {
        let begun = transit(&c, "Unassigns", &[encoded(&region)], true);
        assert_eq!(set_region_state(&c, &region, RegionState::Closed).unwrap(), RegionState::Closed);
        c.wait(begun[0]).unwrap();
        assert_eq!(state_in_meta(&c, &region), "CLOSED");
    }
}

#[test]
fn a_change_does_not_wait_for_a_stuck_procedure() {
    let (_sim, c) = with_table();
    c.server.set_fault("flush_region", Some(ServerFault::Fails));
    let id = c.submit("FlushTable", &flush("t")).unwrap();
    let is_repeated = || c.master.procedures().iter().any(|one| one.id == id && one.state.contains("failed"));
    while !is_repeated() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let region = c.regions("t")[0].clone();
    for error in [
        set_table_state(&c, "t", State::Disabled).unwrap_err(),
        set_region_state(&c, &region, RegionState::Closed).unwrap_err(),
    ] {
        assert!(error.do_not_retry && error.message.contains(&format!("Procedure {id} ")), "{error}");
    }
    c.server.set_fault("flush_region", None);
    c.wait(id).unwrap();
    set_table_state(&c, "t", State::Enabled).unwrap();
}

fn transit(c: &Cluster, method: &str, regions: &[pb::RegionSpecifier], force: bool) -> Vec<u64> {
    // Both requests have the same fields.
    let request = pb::AssignsRequest { region: regions.to_vec(), r#override: Some(force) };
    hbck::<pb::AssignsResponse>(c, method, &request).unwrap().pid
}

#[test]
fn regions_are_assigned_and_unassigned_by_the_list() {
    let (_sim, c) = with_table();
    let regions = c.regions("t");
    let unknown = RegionInfo::new(name("t"), "x".into(), "y".into(), 7);
    let named = [encoded(&regions[0]), encoded(&unknown), specifier(regions[2].region_name())];
    let begun = transit(&c, "Unassigns", &named, false);
    assert_eq!((begun.len(), begun[1]), (3, NO_PROCEDURE));
    c.wait(begun[0]).unwrap();
    c.wait(begun[2]).unwrap();
    assert_eq!([0, 1, 2].map(|at| state_in_meta(&c, &regions[at])), ["CLOSED", "OPEN", "CLOSED"]);
    let begun = transit(&c, "Assigns", &named, false);
    c.wait(begun[0]).unwrap();
    c.wait(begun[2]).unwrap();
    c.check();
    let again = transit(&c, "Assigns", &named[..1], false);
    assert!(c.wait(again[0]).unwrap_err().message.contains("Unexpected state for state=OPEN"));
    let forced = transit(&c, "Assigns", &named[..1], true);
    c.wait(forced[0]).unwrap();
    c.check();
}

/// As after HBCK2's `addFsRegionsMissingInMeta`.
#[test]
fn a_region_that_only_meta_knows_is_assigned() {
    let (_sim, c) = with_table();
    let written = write_row(&c, "b", "c");
    let begun = transit(&c, "Assigns", &[encoded(&written), specifier(written.region_name())], false);
    c.wait(begun[0]).unwrap();
    assert!(c.wait(begun[1]).unwrap_err().message.contains("Unexpected state for state=OPEN"));
    assert_eq!(state_in_meta(&c, &written), "OPEN");
    let begun = transit(&c, "Unassigns", &[encoded(&written)], false);
    c.wait(begun[0]).unwrap();
    assert_eq!(state_in_meta(&c, &written), "CLOSED");
}

#[test]
fn what_cannot_be_in_one_process_is_refused_or_empty() {
    let (_sim, c) = with_table();
    let server_name = vec![pb::ServerName { host_name: "h".into(), port: Some(1), start_code: Some(1) }];
    let request = pb::ScheduleServerCrashProcedureRequest { server_name };
    let error = hbck::<pb::EmptyMsg>(&c, "ScheduleServerCrashProcedure", &request).unwrap_err();
    assert!(error.do_not_retry && error.message.contains("one process"), "{error}");
    let begun: pb::ScheduleScPsForUnknownServersResponse =
        hbck(&c, "ScheduleSCPsForUnknownServers", &pb::EmptyMsg {}).unwrap();
    assert!(begun.pid.is_empty());
}

#[test]
fn a_sound_cluster_has_no_problems_and_nothing_is_repaired() {
    let (_sim, c) = with_table();
    assert_eq!(c.master.hbck_report(), None);
    assert_eq!(problems(&c), [""; 0]);
    let before = c.regions("t");
    fix(&c).unwrap();
    assert_eq!(c.regions("t"), before);
    c.run("DisableTable", &disable("t")).unwrap();
    assert_eq!(problems(&c), [""; 0]);
}

#[test]
fn a_row_that_meta_has_lost_is_written_again() {
    let (_sim, c) = with_table();
    let regions = c.regions("t");
    lose_row(&c, &regions[1]);
    let found = problems(&c);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("has no row in hbase:meta") && found[0].contains(regions[1].encoded_name()));
    fix(&c).unwrap();
    assert_eq!(c.regions("t"), regions);
    assert_eq!(problems(&c), [""; 0]);
    c.check();
}

/// The master has forgotten the region, too; its directory is there, and so are its rows afterwards.
#[test]
fn a_hole_is_filled_by_the_region_whose_directory_is_there() {
    let (sim, c) = with_table();
    let regions = c.regions("t");
    lose_row(&c, &regions[1]);
    let c = restart(&sim, c);
    let found = problems(&c);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("no region has the rows from 'b' to 'c'"), "{found:?}");
    assert!(found[1].contains("has a directory and no row"), "{found:?}");
    fix(&c).unwrap();
    assert_eq!(c.regions("t"), regions);
    assert_eq!(c.server.files(&regions[1]).len(), 1);
    assert_eq!(problems(&c), [""; 0]);
    c.check();
}

#[test]
fn a_hole_without_a_directory_is_filled_by_an_empty_region() {
    let (sim, c) = with_table();
    let lost = c.regions("t").pop().unwrap();
    lose_row(&c, &lost);
    let c = restart(&sim, c);
    c.env.fs.rename(&lost.dir(&c.root), Path::new("/away")).unwrap();
    fix(&c).unwrap();
    let filled = c.regions("t").pop().unwrap();
    assert_ne!(filled, lost);
    assert_eq!((filled.start_key(), filled.end_key()), (lost.start_key(), lost.end_key()));
    c.check();
}

/// An empty region in its place would hide the rows of the directory for good.
#[test]
fn a_hole_with_a_directory_that_does_not_fit_is_left() {
    let (sim, c) = with_table();
    let lost = c.regions("t")[1].clone();
    let wide = RegionInfo::new(name("t"), "b".into(), "bb".into(), 7);
    c.server.create_region_files(&wide, &c.descriptor("t").unwrap()).unwrap();
    lose_row(&c, &lost);
    let c = restart(&sim, c);
    let error = fix(&c).unwrap_err();
    assert!(error.do_not_retry && error.message.contains(wide.encoded_name()), "{error}");
    assert_eq!(c.regions("t").len(), 2);
}

/// A region that somebody has written into `hbase:meta`.
fn write_row(c: &Cluster, start: &'static str, end: &'static str) -> RegionInfo {
    let region = RegionInfo::new(name("t"), start.into(), end.into(), 7);
    let put =
        Cell::put(region.region_name(), b"info", b"regioninfo", c.env.clock.now_ms(), &region.encode_value());
    c.server.create_region_files(&region, &c.descriptor("t").unwrap()).unwrap();
    c.server.meta_put(vec![put]).unwrap();
    std::thread::sleep(Duration::from_millis(2)); // what is written next must be newer
    region
}

fn bounds(c: &Cluster) -> Vec<String> {
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let range = |region: &RegionInfo| format!("{}..{}", text(region.start_key()), text(region.end_key()));
    c.regions("t").iter().map(range).collect()
}

/// The row alone says of the region; the repair opens it first, as it cannot be merged otherwise.
#[test]
fn regions_that_overlap_are_merged() {
    for knows_it in [true, false] {
        let (sim, mut c) = with_table();
        write_row(&c, "a", "bb");
        if knows_it {
            c = restart(&sim, c);
        }
        assert!(problems(&c).iter().any(|found| found.contains("overlap")), "{:?}", problems(&c));
        fix(&c).unwrap();
        c.quiet();
        assert_eq!(bounds(&c), ["..c", "c.."]);
        assert_eq!(problems(&c), [""; 0]);
        c.check();
    }
}

/// Each call merges what can be merged; what was merged just now has to be compacted before.
#[test]
fn more_than_are_merged_at_a_time_take_more_calls() {
    let sim = SimFileSystem::new();
    let settings = MasterSettings { fix_merge_count_max: 2, ..settings() };
    let c = Cluster::start_with(with_real_clock(sim.env()), Path::new(ROOT), 1, settings).unwrap();
    c.run("CreateTable", &create(&table("t", &["f"]), &["b", "c", "d"])).unwrap();
    c.run("FlushTable", &flush("t")).unwrap();
    let regions = c.regions("t");
    c.run("MergeTableRegions", &merge_forced(&[regions[0].clone(), regions[3].clone()])).unwrap();
    for expected in [&["..", "c..d"][..], &[".."]] {
        c.regions("t").iter().for_each(|region| c.server.compact(region));
        fix(&c).unwrap();
        c.quiet();
        assert_eq!(bounds(&c), expected);
    }
    c.check();
}

/// As in HBase: the same answer, and everything else is repaired.
#[test]
fn overlaps_stay_where_merges_are_switched_off() {
    let (_sim, c) = with_table();
    write_row(&c, "a", "bb");
    let turn = |enabled| {
        let request = pb::SetSplitOrMergeEnabledRequest {
            enabled,
            switch_types: vec![pb::MasterSwitchType::Merge as i32],
            ..Default::default()
        };
        let _: pb::SetSplitOrMergeEnabledResponse = c.call("SetSplitOrMergeEnabled", &request).unwrap();
    };
    turn(false);
    let error = fix(&c).unwrap_err();
    assert!(error.do_not_retry && error.message.contains("merge switch is off"), "{error}");
    c.quiet();
    assert_eq!(bounds(&c), ["..b", "a..bb", "b..c", "c.."]);
    turn(true);
    c.run("DisableTable", &disable("t")).unwrap();
    fix(&c).unwrap();
    c.quiet();
    assert_eq!(bounds(&c).len(), 4, "regions of a disabled table cannot be merged");
    c.run("EnableTable", &enable("t")).unwrap();
    fix(&c).unwrap();
    c.quiet();
    assert_eq!(bounds(&c), ["..c", "c.."]);
    c.check();
}

/// The answer does not wait for who has the table; the repair does.
#[test]
fn a_table_that_a_procedure_has_is_repaired_afterwards() {
    let (_sim, c) = with_table();
    write_row(&c, "a", "bb");
    c.server.set_fault("flush_region", Some(ServerFault::Fails));
    let id = c.submit("FlushTable", &flush("t")).unwrap();
    while !c.master.procedures().iter().any(|one| one.id == id && one.is_failing) {
        std::thread::sleep(Duration::from_millis(1));
    }
    fix(&c).unwrap();
    assert_eq!(bounds(&c).len(), 4);
    c.server.set_fault("flush_region", None);
    c.wait(id).unwrap();
    c.quiet();
    assert_eq!(bounds(&c), ["..c", "c.."]);
    c.check();
}

/// Wherever the repair is cut off, the next one completes it.
#[test]
fn a_repair_survives_a_crash_at_every_sync_point() {
    let lost = || {
        let (sim, c) = with_table();
        let lost = c.regions("t")[1].clone();
        lose_row(&c, &lost);
        let c = restart(&sim, c);
        (sim, c)
    };
    let (sim, c) = lost();
    let before = sim.sync_points();
    fix(&c).unwrap();
    let after = sim.sync_points();
    assert!(after > before);
    for n in before + 1..=after + 1 {
        let (sim, c) = lost();
        sim.fail_at(n);
        std::thread::scope(|scope| {
            let repair = scope.spawn(|| fix(&c));
            while !sim.is_dead() && !repair.is_finished() {
                std::thread::sleep(Duration::from_micros(100));
            }
            c.master.stop(); // on a dead disk a step repeats until then
        });
        drop(c);
        for mode in CrashMode::ALL {
            let disk = sim.crash(mode, n);
            let c = Cluster::start(with_real_clock(disk.env()), Path::new(ROOT), 3).unwrap();
            c.quiet();
            fix(&c).unwrap();
            assert_eq!(problems(&c), [""; 0], "crash at {n}, {mode:?}");
            c.check();
        }
    }
}
