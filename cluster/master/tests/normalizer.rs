//! The normalizer: what clients ask, what it does by itself, and what it leaves alone.
#![allow(clippy::disallowed_methods)] // threads and clocks of the tests themselves

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use halcyon_env::sim::SimFileSystem;
use halcyon_master::MasterSettings;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, TableDescriptor};

fn quick() -> MasterSettings {
    let mut settings = settings();
    settings.normalizer.merge_region_age_min_days = 0;
    settings
}

fn cluster(settings: MasterSettings) -> Cluster {
    let sim = SimFileSystem::new();
    Cluster::start_with(with_real_clock(sim.env()), Path::new(ROOT), 1, settings).unwrap()
}

fn normalized(table_name: &str) -> TableDescriptor {
    table(table_name, &["f"]).with("NORMALIZATION_ENABLED", "true")
}

/// Makes a table whose regions have these sizes.
fn make(c: &Cluster, descriptor: &TableDescriptor, sizes: &[u32]) -> Vec<RegionInfo> {
    const KEYS: [&str; 6] = ["b", "c", "d", "e", "f", "g"];
    c.run("CreateTable", &create(descriptor, &KEYS[..sizes.len() - 1])).unwrap();
    let regions = c.regions(descriptor.name().as_str());
    assert_eq!(regions.len(), sizes.len());
    for (region, size_mb) in regions.iter().zip(sizes) {
        c.server.set_size(region, *size_mb);
    }
    regions
}

fn normalize(c: &Cluster, request: &pb::NormalizeRequest) -> bool {
    c.call::<pb::NormalizeResponse>("Normalize", request).unwrap().normalizer_ran
}

fn wait_for_regions(c: &Cluster, table: &str, count: usize) {
    let begun = Instant::now();
    while c.regions(table).len() != count || c.is_busy() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", c.regions(table));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Long enough for the thread to have looked at what it was asked for.
fn wait_for_nothing(c: &Cluster, table: &str, count: usize) {
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!((c.regions(table).len(), c.is_busy()), (count, false));
    }
}

#[test]
fn a_large_region_is_split_and_small_ones_are_merged() {
    let c = cluster(quick());
    make(&c, &normalized("t"), &[1, 1, 1, 30]);
    make(&c, &table("other", &["f"]), &[1, 1, 1, 30]);
    // Ages are counted in milliseconds.
    std::thread::sleep(Duration::from_millis(2));
    assert!(normalize(&c, &pb::NormalizeRequest::default()));
    // 1 of 3, and 2 of 1.
    wait_for_regions(&c, "t", 3);
    let starts: Vec<_> = c.regions("t").iter().map(|region| region.start_key().clone()).collect();
    assert_eq!((starts[0].len(), &starts[1][..]), (0, &b"d"[..]));
    c.check();
    // The other one does not ask for it.
    assert_eq!(c.regions("other").len(), 4);
}

#[test]
fn young_regions_are_not_merged() {
    let c = cluster(settings());
    make(&c, &normalized("t").with("hbase.normalizer.split.enabled", "false"), &[1, 1, 1, 30]);
    assert!(normalize(&c, &pb::NormalizeRequest::default()));
    wait_for_nothing(&c, "t", 4);
}

#[test]
fn requests_name_tables_patterns_and_namespaces() {
    let name_of = |table: &str| name(table).to_pb();
    let no_merges = |table_name: &str| normalized(table_name).with("hbase.normalizer.merge.enabled", "false");
    for (request, split) in [
        (pb::NormalizeRequest { table_names: vec![name_of("b")], ..Default::default() }, "b"),
        (pb::NormalizeRequest { regex: Some("a.*".to_string()), ..Default::default() }, "a1"),
        (pb::NormalizeRequest { namespace: Some("n".to_string()), ..Default::default() }, "n:c"),
    ] {
        let c = cluster(quick());
        let namespace = pb::NamespaceDescriptor { name: "n".into(), configuration: Vec::new() };
        let request_n = pb::CreateNamespaceRequest { namespace_descriptor: namespace, ..Default::default() };
        c.run("CreateNamespace", &request_n).unwrap();
        for table in ["a1", "b", "n:c"] {
            make(&c, &no_merges(table), &[1, 1, 1, 30]);
        }
        assert!(normalize(&c, &request));
        wait_for_regions(&c, split, 5);
        for other in ["a1", "b", "n:c"].iter().filter(|other| **other != split) {
            assert_eq!(c.regions(other).len(), 4, "{other}");
        }
    }
    let c = cluster(quick());
    let request = pb::NormalizeRequest { namespace: Some("none".to_string()), ..Default::default() };
    let error = c.call::<pb::NormalizeResponse>("Normalize", &request).unwrap_err();
    assert!(error.class.ends_with("NamespaceNotFoundException"), "{error:?}");
    let request = pb::NormalizeRequest { regex: Some("(".to_string()), ..Default::default() };
    assert!(c.call::<pb::NormalizeResponse>("Normalize", &request).unwrap_err().do_not_retry);
}

#[test]
fn the_switch_survives_a_restart() {
    let sim = SimFileSystem::new();
    let start = |start_code| {
        Cluster::start_with(with_real_clock(sim.env()), Path::new(ROOT), start_code, quick()).unwrap()
    };
    let is_on = |c: &Cluster| {
        let asked = pb::IsNormalizerEnabledRequest {};
        c.call::<pb::IsNormalizerEnabledResponse>("IsNormalizerEnabled", &asked).unwrap().enabled
    };
    let set = |c: &Cluster, on| {
        let request = pb::SetNormalizerRunningRequest { on };
        let before: pb::SetNormalizerRunningResponse = c.call("SetNormalizerRunning", &request).unwrap();
        before.prev_normalizer_value()
    };
    let c = start(1);
    assert!(is_on(&c));
    assert!(set(&c, false));
    make(&c, &normalized("t"), &[1, 1, 1, 30]);
    assert!(!normalize(&c, &pb::NormalizeRequest::default()));
    drop(c);
    let c = start(2);
    assert!(!is_on(&c));
    assert!(!normalize(&c, &pb::NormalizeRequest::default()));
    assert!(!set(&c, true));
    assert!(is_on(&c));
    assert!(normalize(&c, &pb::NormalizeRequest::default()));
}

#[test]
fn tables_that_are_not_enabled_are_left_alone() {
    let c = cluster(quick());
    make(&c, &normalized("t"), &[1, 1, 1, 30]);
    c.run("DisableTable", &disable("t")).unwrap();
    assert!(normalize(&c, &pb::NormalizeRequest::default()));
    wait_for_nothing(&c, "t", 4);
}

#[test]
fn switches_of_splits_and_merges_hold() {
    let c = cluster(quick());
    make(&c, &normalized("t"), &[1, 1, 1, 30]);
    let off = pb::SetSplitOrMergeEnabledRequest {
        enabled: false,
        synchronous: None,
        switch_types: vec![pb::MasterSwitchType::Split as i32, pb::MasterSwitchType::Merge as i32],
    };
    let _: pb::SetSplitOrMergeEnabledResponse = c.call("SetSplitOrMergeEnabled", &off).unwrap();
    assert!(normalize(&c, &pb::NormalizeRequest::default()));
    wait_for_nothing(&c, "t", 4);
}

#[test]
fn it_runs_by_itself() {
    let mut settings = quick();
    settings.normalizer.period = Duration::from_millis(20);
    settings.normalizer.tables_by_default = true;
    let c = cluster(settings);
    let descriptor = table("t", &["f"]).with("hbase.normalizer.merge.enabled", "false");
    make(&c, &descriptor, &[1, 1, 1, 30]);
    wait_for_regions(&c, "t", 5);
}

#[test]
fn no_more_is_rewritten_in_a_second_than_is_allowed() {
    let mut settings = quick();
    settings.normalizer.bytes_per_second_max = 100_000_000;
    let c = cluster(settings);
    let target = normalized("t").with("NORMALIZER_TARGET_REGION_SIZE_MB", "10");
    make(&c, &target, &[30, 30, 30]);
    let begun = Instant::now();
    assert!(normalize(&c, &pb::NormalizeRequest::default()));
    wait_for_regions(&c, "t", 6);
    // 30 MB after each of the first two.
    assert!(begun.elapsed() >= Duration::from_millis(600), "{:?}", begun.elapsed());
}

/// The end of a master does not wait for what the rate puts off.
#[test]
fn a_master_stops_while_a_plan_waits() {
    let mut settings = quick();
    settings.normalizer.bytes_per_second_max = 1_000_000;
    let c = cluster(settings);
    let target = normalized("t").with("NORMALIZER_TARGET_REGION_SIZE_MB", "10");
    make(&c, &target, &[300, 300, 300]);
    assert!(normalize(&c, &pb::NormalizeRequest::default()));
    wait_for_regions(&c, "t", 4);
    let begun = Instant::now();
    c.master.stop();
    assert!(begun.elapsed() < Duration::from_secs(10));
}
