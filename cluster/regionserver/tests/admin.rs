//! AdminService, loads, recovery, and what the server does by itself.

use crate::common;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::common::{Lab, class, settings};
use bytes::Bytes;
use halcyon_contract::{RegionServerStatus, RegionStateTransition};
use halcyon_env::Env;
use halcyon_env::sim::{CrashMode, SimFileSystem};
use halcyon_proto::pb;
use halcyon_proto::pb::get_region_info_response::CompactionState;
use halcyon_schema::{RegionInfo, ServerName, TableDescriptor};
use parking_lot::Mutex;

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        Env::real().clock.sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

#[test]
fn a_region_tells_about_itself() {
    let lab = Lab::new();
    let request = pb::GetRegionInfoRequest {
        region: lab.specifier(),
        compaction_state: Some(true),
        best_split_row: None,
    };
    let info: pb::GetRegionInfoResponse = lab.admin("GetRegionInfo", &request).unwrap();
    assert_eq!(info.region_info, lab.info.to_pb());
    assert_eq!(info.compaction_state(), CompactionState::None);
    let online: pb::GetOnlineRegionResponse =
        lab.admin("GetOnlineRegion", &pb::GetOnlineRegionRequest::default()).unwrap();
    assert_eq!(online.region_info, [lab.info.to_pb()]);
    let server: pb::GetServerInfoResponse =
        lab.admin("GetServerInfo", &pb::GetServerInfoRequest::default()).unwrap();
    assert_eq!(server.server_info.server_name.host_name, "localhost");
    let mut elsewhere = request;
    elsewhere.region.value = "x".into();
    assert_eq!(
        class(lab.admin::<pb::GetRegionInfoResponse>("GetRegionInfo", &elsewhere)),
        "NotServingRegionException"
    );
}

/// The region of a table's mob files is asked for by a name too, and no server has it. That of `hbase:meta` is none of these: a master
/// asks whether it is open.
#[test]
fn the_region_of_meta_is_no_region_of_mob_files() {
    let lab = Lab::new();
    let meta = pb::RegionSpecifier { r#type: 1, value: RegionInfo::meta().region_name().clone() };
    let ask = |region: &pb::RegionSpecifier| {
        let request = pb::GetRegionInfoRequest { region: region.clone(), ..Default::default() };
        lab.admin::<pb::GetRegionInfoResponse>("GetRegionInfo", &request)
    };
    let compact = |region: &pb::RegionSpecifier| {
        let region = region.clone();
        let request = pb::CompactRegionRequest { region, major: Some(true), family: None };
        lab.admin::<pb::CompactRegionResponse>("CompactRegion", &request)
    };
    let asked = [ask(&meta).map(drop), compact(&meta).map(drop)];
    for answer in asked {
        assert_eq!(class(answer), "NotServingRegionException");
    }
    lab.server.open_region(&RegionInfo::meta(), &TableDescriptor::meta().into()).unwrap();
    assert!(ask(&meta).unwrap().mergeable.is_some(), "only a region that is here has it");
    compact(&meta).unwrap();
    let mob = RegionInfo::of_mob_files(lab.info.table());
    let of_mob = pb::RegionSpecifier { value: mob.region_name().clone(), ..meta };
    assert_eq!(ask(&of_mob).unwrap().region_info, mob.to_pb());
}

/// A master that remembers where regions were ready to be split.
#[derive(Default)]
struct MasterDouble {
    split_rows: Mutex<Vec<Bytes>>,
}

impl RegionServerStatus for MasterDouble {
    fn report_region_state_transition(&self, server: &ServerName, transition: RegionStateTransition) {
        assert!(server.to_string().starts_with("localhost,16020,"), "{server}");
        let RegionStateTransition::ReadyToSplit { split_row, .. } = transition;
        self.split_rows.lock().push(split_row);
    }
}

/// The answer names a row in the middle, for which the region is flushed; and the server itself asks for a split
/// there, but not again and again.
#[test]
fn a_region_that_grew_wants_to_be_split() {
    let mut settings = common::settings();
    settings.split.policy = "ConstantSizeRegionSplitPolicy".to_string();
    settings.split.region_bytes_max = 100_000;
    let lab = Lab::with(SimFileSystem::new(), settings);
    let master = Arc::new(MasterDouble::default());
    let status: Weak<MasterDouble> = Arc::downgrade(&master);
    lab.server.report_to(status);
    let asked = &master.split_rows;
    let ask = |best_split_row| -> pb::GetRegionInfoResponse {
        let (region, best_split_row) = (lab.specifier(), Some(best_split_row));
        let request = pb::GetRegionInfoRequest { region, compaction_state: None, best_split_row };
        lab.admin("GetRegionInfo", &request).unwrap()
    };
    let whole = ask(true);
    assert_eq!((whole.splittable(), whole.mergeable(), whole.best_split_row), (true, true, None));
    for row in 0..400 {
        lab.put(&format!("r{row:03}"), "q", &"x".repeat(500));
    }
    assert_eq!(ask(false).best_split_row, None);
    assert!(asked.lock().is_empty());
    let row = ask(true).best_split_row.unwrap();
    assert!((&b"r100"[..]..=b"r300").contains(&&row[..]), "{row:?}");
    eventually("a split is asked for", || !asked.lock().is_empty());
    for _ in 0..3 {
        lab.put("r000", "q", "more");
        let flush = pb::FlushRegionRequest { region: lab.specifier(), ..Default::default() };
        let _: pb::FlushRegionResponse = lab.admin("FlushRegion", &flush).unwrap();
    }
    assert_eq!(*asked.lock(), [row]);
}

#[test]
fn flush_compact_and_load() {
    let lab = Lab::new();
    for round in 0..4 {
        for row in 0..10 {
            lab.put(&format!("r{row}"), "q", &format!("value {round}"));
        }
        let flush = pb::FlushRegionRequest { region: lab.specifier(), ..Default::default() };
        let flushed: pb::FlushRegionResponse = lab.admin("FlushRegion", &flush).unwrap();
        assert_eq!(flushed.flushed, Some(true));
        assert!(flushed.last_flush_time > 0);
        if round == 2 {
            // Flushes with three files ask for a compaction by themselves; turn it off for what follows.
            let off = pb::CompactionSwitchRequest { enabled: false };
            let was: pb::CompactionSwitchResponse = lab.admin("CompactionSwitch", &off).unwrap();
            assert!(was.prev_state);
        }
    }
    let unknown =
        pb::FlushRegionRequest { region: lab.specifier(), family: Some("nope".into()), ..Default::default() };
    assert_eq!(
        class(lab.admin::<pb::FlushRegionResponse>("FlushRegion", &unknown)),
        "NoSuchColumnFamilyException"
    );
    let of_table = |name: &str| pb::GetRegionLoadRequest {
        table_name: Some(pb::TableName { namespace: "default".into(), qualifier: name.to_string().into() }),
    };
    let loads: pb::GetRegionLoadResponse = lab.admin("GetRegionLoad", &of_table("t")).unwrap();
    let [load] = &loads.region_loads[..] else { panic!("one region") };
    assert_eq!((load.stores(), load.write_requests_count()), (2, 40));
    assert!(load.storefiles() >= 1 && load.storefile_size_mb() >= 1);
    let none: pb::GetRegionLoadResponse = lab.admin("GetRegionLoad", &of_table("u")).unwrap();
    assert!(none.region_loads.is_empty());

    let on = pb::CompactionSwitchRequest { enabled: true };
    let was: pb::CompactionSwitchResponse = lab.admin("CompactionSwitch", &on).unwrap();
    assert!(!was.prev_state);
    let compact = pb::CompactRegionRequest { region: lab.specifier(), major: Some(true), family: None };
    lab.admin::<pb::CompactRegionResponse>("CompactRegion", &compact).unwrap();
    eventually("one file is left and the state says so", || {
        let load = lab.server.server_load().region_loads.remove(0);
        load.storefiles() == 1 && load.compaction_state() == pb::region_load::CompactionState::None
    });
    assert_eq!(lab.row("r3"), ["value 3"]);
    let server = lab.server.server_load();
    assert!(server.total_number_of_requests() >= 40 && server.max_heap_mb() == 64);
}

/// An update answered that it was done, and an open region went on with the thresholds it was opened with.
#[test]
fn an_update_of_the_configuration_reaches_open_regions() {
    let mut settings = settings();
    settings.region.compaction.files_min = 10;
    let lab = Lab::with(SimFileSystem::new(), settings.clone());
    let files_min = Arc::new(Mutex::new(Ok(10)));
    let wanted = files_min.clone();
    lab.server.on_configuration_update(move || {
        let files_min = wanted.lock().clone()?;
        let mut settings = settings.clone();
        settings.region.compaction.files_min = files_min;
        Ok(settings)
    });
    let update = || {
        let request = pb::UpdateConfigurationRequest {};
        lab.admin::<pb::UpdateConfigurationResponse>("UpdateConfiguration", &request)
    };
    for row in 0..4 {
        lab.put(&format!("r{row}"), "q", "value");
        let flush = pb::FlushRegionRequest { region: lab.specifier(), ..Default::default() };
        let _: pb::FlushRegionResponse = lab.admin("FlushRegion", &flush).unwrap();
    }
    update().unwrap();
    let files = || lab.server.server_load().region_loads.remove(0).storefiles();
    assert_eq!(files(), 4, "below the threshold nothing is compacted");

    *files_min.lock() = Err("no such file".to_string());
    let error = update().unwrap_err();
    assert!(error.to_string().contains("the configuration was not updated: no such file"), "{error}");

    *files_min.lock() = Ok(2);
    update().unwrap();
    let compact = pb::CompactRegionRequest { region: lab.specifier(), major: Some(false), family: None };
    lab.admin::<pb::CompactRegionResponse>("CompactRegion", &compact).unwrap();
    eventually("the files are compacted", || files() == 1);
}

#[test]
fn small_answers() {
    let lab = Lab::new();
    lab.admin::<pb::UpdateConfigurationResponse>("UpdateConfiguration", &pb::UpdateConfigurationRequest {})
        .unwrap();
    lab.admin::<pb::RollWalWriterResponse>("RollWALWriter", &pb::RollWalWriterRequest {}).unwrap();
    let queues = |name: &str| pb::ClearCompactionQueuesRequest { queue_name: vec![name.to_string()] };
    for name in ["long", "short"] {
        lab.admin::<pb::ClearCompactionQueuesResponse>("ClearCompactionQueues", &queues(name)).unwrap();
    }
    let wrong = lab.admin::<pb::ClearCompactionQueuesResponse>("ClearCompactionQueues", &queues("wide"));
    assert_eq!(class(wrong), "DoNotRetryIOException");
    let evict = pb::ClearRegionBlockCacheRequest { region: vec![lab.specifier()] };
    let cleared: pb::ClearRegionBlockCacheResponse = lab.admin("ClearRegionBlockCache", &evict).unwrap();
    assert!(cleared.stats.max_cache_size() > 0);
    for method in ["OpenRegion", "CloseRegion", "WarmupRegion", "NoSuch"] {
        let error = lab.admin::<pb::UpdateConfigurationResponse>(method, &pb::UpdateConfigurationRequest {});
        let error = error.unwrap_err();
        assert_eq!(error.message, format!("java.lang.UnsupportedOperationException: {method}"));
        assert!(error.do_not_retry);
    }
}

#[test]
fn store_files_are_named_by_family() {
    let lab = Lab::new();
    let ask = |families: &[&'static str]| pb::GetStoreFileRequest {
        region: lab.specifier(),
        family: families.iter().map(|family| Bytes::from_static(family.as_bytes())).collect(),
    };
    let files = |families: &[&'static str]| -> Vec<String> {
        lab.admin::<pb::GetStoreFileResponse>("GetStoreFile", &ask(families)).unwrap().store_file
    };
    assert!(files(&[]).is_empty());
    lab.put("row", "q", "1");
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    let all = files(&[]);
    assert_eq!(all.len(), 1);
    assert!(all[0].contains(&format!("/{}/f/", lab.info.encoded_name())), "{all:?}");
    assert_eq!(files(&["f"]), all);
    assert_eq!(
        class(lab.admin::<pb::GetStoreFileResponse>("GetStoreFile", &ask(&["nowhere"]))),
        "NoSuchColumnFamilyException"
    );
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash() {
    for mode in CrashMode::ALL {
        let mut settings = common::settings();
        settings.wal_sync = halcyon_wal::SyncMode::Fsync;
        let lab = Lab::with(halcyon_env::sim::SimFileSystem::new(), settings.clone());
        lab.put("flushed", "q", "1");
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
        lab.put("logged", "q", "2");
        let seq = lab.server.regions().get(lab.info.encoded_name()).unwrap().region.open_seq_num();
        let crashed = lab.fs.crash(mode, 1);
        lab.server.abort("the machine died");
        let again = Lab::with(crashed, settings);
        assert_eq!(
            (again.row("flushed"), again.row("logged")),
            (vec!["1".to_string()], vec!["2".to_string()])
        );
        let online = again.server.regions().get(lab.info.encoded_name()).unwrap();
        assert!(online.region.open_seq_num() > seq);
    }
}

#[test]
fn a_stopped_server_leaves_no_log_to_recover() {
    let lab = Lab::new();
    lab.put("r", "q", "v");
    lab.server.stop().unwrap();
    let logs: Vec<_> =
        lab.fs.dump().into_iter().filter(|(path, _)| path.starts_with("/hbase/WALs")).collect();
    assert!(logs.is_empty(), "{logs:?}");
    let again = Lab::with(lab.fs.clone(), common::settings());
    assert_eq!(again.row("r"), ["v"]);
}

#[test]
fn regions_are_flushed_when_they_or_all_together_are_large() {
    let mut settings = common::settings();
    settings.region.flush_size_bytes = 64 << 10;
    let lab = Lab::with(halcyon_env::sim::SimFileSystem::new(), settings);
    let value = "x".repeat(10_000);
    for row in 0..20 {
        lab.put(&format!("r{row}"), "q", &value);
    }
    eventually("a flush by size", || lab.server.server_load().region_loads[0].storefiles() > 0);

    let mut settings = common::settings();
    settings.memory_bytes = 1 << 20; // memstores: 400 KiB, flushes from 95 % of it
    settings.hold_back_max = Duration::from_secs(20);
    let lab = Lab::with(halcyon_env::sim::SimFileSystem::new(), settings);
    for row in 0..100 {
        lab.put(&format!("r{row:03}"), "q", &value);
    }
    eventually("a flush by pressure", || lab.server.server_load().region_loads[0].storefiles() > 0);
    assert_eq!(lab.row("r099"), [value]);
}

#[test]
fn old_edits_are_flushed() {
    let lab = Lab::new();
    lab.put("r", "q", "v");
    lab.clock.advance(Duration::from_secs(3601));
    Env::real().clock.sleep(Duration::from_millis(250));
    lab.clock.advance(Duration::from_secs(11));
    eventually("a flush by age", || {
        lab.clock.advance(Duration::from_secs(1));
        lab.server.server_load().region_loads[0].storefiles() > 0
    });
}

#[test]
fn writers_are_held_back_and_then_refused_while_memory_is_full() {
    use halcyon_env::sim::{Fault, Operation};
    let mut settings = common::settings();
    settings.memory_bytes = 256 << 10; // writers are held back at 102 KiB
    settings.hold_back_max = Duration::from_millis(300);
    let lab = Lab::with(halcyon_env::sim::SimFileSystem::new(), settings);
    lab.fs.inject(Fault::new(Operation::Create, ".tmp/").forever()); // no flush can work
    let value = vec![b'x'; 20_000];
    let put = |row: String| {
        let cell = halcyon_cell::Cell::put(row.as_bytes(), b"f", b"q", i64::MAX, &value);
        lab.mutate(common::put(1), vec![cell])
    };
    let mut refused = None;
    for row in 0..200 {
        if let Err(error) = put(format!("r{row}")) {
            refused = Some(error);
            break;
        }
        Env::real().clock.sleep(Duration::from_millis(10));
    }
    let refused = refused.expect("memory is bounded");
    assert!(refused.class.ends_with(".RegionTooBusyException") && !refused.do_not_retry, "{refused}");
    let stats = lab.server.stats();
    assert!(stats.held_back_count >= 1 && stats.refused_count >= 1);
    assert!(lab.row("r0").len() == 1, "reads go on");
    lab.fs.clear_faults();
    lab.clock.advance(Duration::from_secs(1)); // so long a flush that failed is not tried again
    eventually("flushes work again, and so do writes", || put("late".to_string()).is_ok());
}

#[test]
fn a_log_that_fails_ends_the_service() {
    use halcyon_env::sim::{Fault, Operation};
    let lab = Lab::new();
    lab.put("r", "q", "v");
    lab.fs.inject(Fault::new(Operation::Write, "WALs").forever());
    let cell = halcyon_cell::Cell::put(b"r", b"f", b"q", i64::MAX, b"w");
    let failed = lab.mutate(common::put(1), vec![cell]);
    assert!(failed.is_err(), "not acknowledged");
    eventually("the server gives up", || lab.server.failure().is_some());
    assert_eq!(class(lab.get(common::get("r"))), "RegionServerAbortedException");
    lab.fs.clear_faults();
    let again = Lab::with(lab.fs.clone(), common::settings());
    assert_eq!(again.row("r"), ["v"]);
}
