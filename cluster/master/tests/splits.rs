//! Splits and merges: what is refused, what clients see, and what becomes of the parents.

use std::path::Path;
use std::sync::Arc;

use crate::common::*;
use halcyon_contract::{Assignments, RegionServerApi, Unasked};
use halcyon_master::MasterSettings;
use halcyon_proto::pb;
use halcyon_proto::pb::MasterSwitchType;
use halcyon_schema::RegionInfo;
use parking_lot::Mutex;

fn refused(result: Result<u64, halcyon_rpc::RpcError>, class: &str, text: &str) {
    let error = result.expect_err(text);
    assert!(error.class.ends_with(&format!(".{class}")), "{}", error.class);
    assert!(error.message.contains(text), "{}", error.message);
}

fn bounds(regions: &[RegionInfo]) -> Vec<String> {
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    regions.iter().map(|region| format!("{}..{}", text(region.start_key()), text(region.end_key()))).collect()
}

fn with_table() -> (halcyon_env::sim::SimFileSystem, Cluster) {
    let (sim, cluster) = Cluster::simulated();
    cluster.run("CreateTable", &create(&table("t", &["f", "g"]), &["b", "c"])).unwrap();
    cluster.run("FlushTable", &flush("t")).unwrap();
    (sim, cluster)
}

fn turn(cluster: &Cluster, switch: MasterSwitchType, enabled: bool) {
    let request = pb::SetSplitOrMergeEnabledRequest {
        enabled,
        switch_types: vec![switch as i32],
        ..Default::default()
    };
    let _: pb::SetSplitOrMergeEnabledResponse = cluster.call("SetSplitOrMergeEnabled", &request).unwrap();
}

fn scan_catalog(cluster: &Cluster) -> i32 {
    let response: pb::RunCatalogScanResponse =
        cluster.call("RunCatalogScan", &pb::RunCatalogScanRequest {}).unwrap();
    cluster.quiet();
    response.scan_result.unwrap()
}

/// The master had no answer to its write to meta, though it was done. It made regions of other names then, and wrote again: two pairs of
/// daughters were in meta, over each other.
#[test]
fn a_write_to_meta_without_an_answer_is_repeated_as_it_is() {
    let (sim, cluster) = with_table();
    let lose_answer = || cluster.server.set_fault("meta_put_together", Some(ServerFault::AnswerLost));
    lose_answer();
    cluster.run("SplitRegion", &split(&cluster.regions("t")[1], Some("bm"))).unwrap();
    cluster.check();
    let regions = cluster.regions("t");
    regions[1..3].iter().for_each(|daughter| cluster.server.compact(daughter));
    assert_eq!(scan_catalog(&cluster), 1);
    lose_answer();
    cluster.run("MergeTableRegions", &merge(&regions[1..3])).unwrap();
    cluster.check();
    drop(cluster);
    let again = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 2).unwrap();
    assert_eq!(bounds(&again.regions("t")), ["..b", "b..c", "c.."]);
    again.check();
}

/// The answer to a report of an opening was lost, and the region is closed meanwhile, to split it or to merge it. The server waited for the
/// master, which answered that it should come again, and did not close what it was opening. The master waited for the close.
#[test]
fn a_region_that_is_split_or_merged_is_not_about_to_open() {
    let (_sim, cluster) = with_table();
    let told = Arc::new(Mutex::new(Vec::new()));
    let ask = || {
        let (told, master, at) = (told.clone(), cluster.master.clone(), cluster.server.server_name());
        let ask = move |region: &RegionInfo| told.lock().push(master.opened_unasked(&at, region, 77));
        *cluster.server.during_close.lock() = Some(Box::new(ask));
    };
    ask();
    cluster.run("MergeTableRegions", &merge(&cluster.regions("t")[1..3])).unwrap();
    ask();
    cluster.run("SplitRegion", &split(&cluster.regions("t")[0], Some("am"))).unwrap();
    assert_eq!(*told.lock(), [Unasked::Refused, Unasked::Refused]);
}

#[test]
fn a_split_restriction_holds_for_rows_that_a_client_names() {
    let (_sim, cluster) = Cluster::simulated();
    let prefixed = table("t", &["f"])
        .with("hbase.regionserver.region.split_restriction.type", "DelimitedKeyPrefix")
        .with("hbase.regionserver.region.split_restriction.delimiter", "_");
    cluster.run("CreateTable", &create(&prefixed, &["b", "c"])).unwrap();
    cluster.run("SplitRegion", &split(&cluster.regions("t")[1], Some("bm_17"))).unwrap();
    assert_eq!(bounds(&cluster.regions("t")), ["..b", "b..bm", "bm..c", "c.."]);
    let again = cluster.run("SplitRegion", &split(&cluster.regions("t")[3], Some("c_21")));
    refused(again, "DoNotRetryIOException", "Split row is equal to startkey: c");
}

#[test]
fn a_split_and_its_parent() {
    let (_sim, cluster) = with_table();
    let parent = cluster.regions("t")[1].clone();
    let seq =
        |region: &RegionInfo| cluster.server.meta_value(region.region_name(), "info", "seqnumDuringOpen");
    let parent_seq = seq(&parent).unwrap();
    cluster.run("SplitRegion", &split(&parent, Some("bm"))).unwrap();
    cluster.check();
    let regions = cluster.regions("t");
    assert_eq!(bounds(&regions), ["..b", "b..bm", "bm..c", "c.."]);
    assert!(seq(&regions[1]).unwrap() > parent_seq, "clients must take the new location");
    let row = parent.region_name();
    let first = cluster.server.meta_value(row, "info", "splitA").unwrap();
    assert_eq!(RegionInfo::decode_value(&first).unwrap(), regions[1]);
    assert_eq!(cluster.server.meta_value(row, "info", "state").unwrap(), b"SPLIT");
    assert_eq!(cluster.parents("t").len(), 1);
    assert_eq!(cluster.server.files(&regions[1]).len(), 2);

    // Neither a daughter with references nor the parent can be split again.
    refused(
        cluster.run("SplitRegion", &split(&regions[1], Some("bg"))),
        "DoNotRetryIOException",
        "NOT splittable",
    );
    refused(
        cluster.run("SplitRegion", &split(&parent, Some("bg"))),
        "DoNotRetryRegionException",
        "parent of a split",
    );
    // HBase's RegionMover looks for this text.
    let region = pb::RegionSpecifier { r#type: 1, value: parent.region_name().clone() };
    let moved = cluster.call::<pb::MoveRegionResponse>(
        "MoveRegion",
        &pb::MoveRegionRequest { region, dest_server_name: None },
    );
    refused(moved.map(|_| 0), "DoNotRetryRegionException", "Unexpected state for state=SPLIT, location=");

    // The parent stays while one daughter refers to it.
    assert_eq!(scan_catalog(&cluster), 0);
    cluster.server.compact(&regions[1]);
    assert_eq!(scan_catalog(&cluster), 0);
    cluster.server.compact(&regions[2]);
    assert_eq!(scan_catalog(&cluster), 1);
    cluster.check();
    assert!(cluster.parents("t").is_empty());
    let archived = cluster.root.join("archive/data/default/t").join(parent.encoded_name());
    assert_eq!(cluster.env.fs.list(&archived.join("f")).unwrap().len(), 1);
    cluster.run("SplitRegion", &split(&regions[1], None)).unwrap();
    assert_eq!(
        bounds(&cluster.regions("t")),
        ["..b", "b..b0m", "b0m..bm", "bm..c", "c.."].map(str::to_string)
    );
    let counted = cluster.master.procedure_times();
    let splits = &counted["Split"];
    assert_eq!((splits.times.count, splits.submitted_count - splits.failed_count), (2, 2));
    assert!(!counted.contains_key("Merge"), "{counted:?}");
}

#[test]
fn a_merge_and_its_parents() {
    let (_sim, cluster) = with_table();
    let parents = cluster.regions("t");
    cluster.run("MergeTableRegions", &merge(&parents)).unwrap();
    cluster.check();
    let merged = cluster.regions("t").remove(0);
    assert_eq!(bounds(&cluster.regions("t")), [".."]);
    assert_eq!(cluster.parents("t"), parents);
    assert_eq!(cluster.server.files(&merged).len(), 6);
    refused(
        cluster.run("SplitRegion", &split(&merged, Some("x"))),
        "DoNotRetryIOException",
        "NOT splittable",
    );
    assert_eq!(scan_catalog(&cluster), 0);
    cluster.server.compact(&merged);
    // A split finds the parents done with by itself.
    cluster.run("SplitRegion", &split(&merged, Some("x"))).unwrap();
    cluster.check();
    assert_eq!(cluster.parents("t").len(), 1);
    assert_eq!(bounds(&cluster.regions("t")), ["..x", "x.."]);
}

#[test]
fn what_is_refused() {
    let (_sim, cluster) = with_table();
    let regions = cluster.regions("t");
    let split_at = |row| cluster.run("SplitRegion", &split(&regions[1], Some(row)));
    refused(split_at("b"), "DoNotRetryIOException", "equal to startkey");
    refused(split_at("c"), "DoNotRetryIOException", "not inside region key range");
    refused(split_at("a"), "DoNotRetryIOException", "not inside region key range");
    let merge_of = |at: &[usize]| {
        let chosen: Vec<_> = at.iter().map(|&at| regions[at].clone()).collect();
        cluster.run("MergeTableRegions", &merge(&chosen))
    };
    refused(merge_of(&[]), "MergeRegionException", "two Regions");
    refused(merge_of(&[1]), "MergeRegionException", "two Regions");
    refused(merge_of(&[1, 1]), "MergeRegionException", "Duplicate");
    refused(merge_of(&[0, 2]), "MergeRegionException", "non-adjacent");
    refused(merge_of(&[0, 2, 1]), "MergeRegionException", "non-adjacent");
    let forced = |chosen: &[RegionInfo]| cluster.run("MergeTableRegions", &merge_forced(chosen));
    refused(forced(&regions[..1]), "MergeRegionException", "two Regions");
    let twice = [regions[0].clone(), regions[1].clone(), regions[0].clone()];
    refused(forced(&twice), "MergeRegionException", "Passed in 3 but only 2 unique.");

    turn(&cluster, MasterSwitchType::Split, false);
    refused(split_at("bb"), "DoNotRetryIOException", "split switch off");
    turn(&cluster, MasterSwitchType::Split, true);
    turn(&cluster, MasterSwitchType::Merge, false);
    refused(merge_of(&[0, 1]), "DoNotRetryIOException", "merge switch is off");
    turn(&cluster, MasterSwitchType::Merge, true);

    let locked = table("u", &["f"]).with("SPLIT_ENABLED", "false").with("MERGE_ENABLED", "false");
    cluster.run("CreateTable", &create(&locked, &["m"])).unwrap();
    let regions = cluster.regions("u");
    refused(
        cluster.run("SplitRegion", &split(&regions[0], Some("b"))),
        "DoNotRetryIOException",
        "NOT splittable",
    );
    refused(
        cluster.run("MergeTableRegions", &merge(&regions)),
        "DoNotRetryIOException",
        "merge is disabled for the table",
    );
    cluster.run("DisableTable", &disable("t")).unwrap();
    refused(split_at("bb"), "TableNotEnabledException", "t");
    cluster.check();
}

/// Others between them stay, and are overlapped until somebody merges them, too.
#[test]
fn a_forced_merge_takes_regions_that_are_apart() {
    let (_sim, cluster) = Cluster::simulated();
    cluster.run("CreateTable", &create(&table("t", &["f", "g"]), &["b", "c", "d", "e"])).unwrap();
    cluster.run("FlushTable", &flush("t")).unwrap();
    let regions = cluster.regions("t");
    let apart = [regions[3].clone(), regions[1].clone()];
    cluster.run("MergeTableRegions", &merge_forced(&apart)).unwrap();
    assert_eq!(bounds(&cluster.regions("t")), ["..b", "b..e", "c..d", "e.."]);
    assert_eq!(cluster.parents("t"), [regions[1].clone(), regions[3].clone()]);
    let merged = cluster.regions("t")[1].clone();
    assert_eq!(cluster.server.files(&merged).len(), 4);
    cluster.check_overlapping();

    // What overlaps is merged like neighbours, once the references are gone.
    let both = cluster.regions("t")[1..3].to_vec();
    refused(cluster.run("MergeTableRegions", &merge(&both)), "MergeRegionException", "has a merge qualifier");
    cluster.server.compact(&merged);
    cluster.run("MergeTableRegions", &merge(&both)).unwrap();
    assert_eq!(bounds(&cluster.regions("t")), ["..b", "b..e", "e.."]);
    cluster.check();
}

/// Wherever among the regions the one is that has the last rows.
#[test]
fn a_merged_region_reaches_as_far_as_any_of_its_parents() {
    let (_sim, cluster) = Cluster::simulated();
    cluster.run("CreateTable", &create(&table("t", &["f"]), &["b", "c", "d"])).unwrap();
    let regions = cluster.regions("t");
    cluster.run("MergeTableRegions", &merge_forced(&[regions[0].clone(), regions[3].clone()])).unwrap();
    cluster.server.compact(&cluster.regions("t")[0]);
    assert_eq!(bounds(&cluster.regions("t")), ["..", "b..c", "c..d"]);
    cluster.run("MergeTableRegions", &merge(&cluster.regions("t"))).unwrap();
    assert_eq!(bounds(&cluster.regions("t")), [".."]);
    cluster.check();
}

#[test]
fn a_merge_needs_regions_without_references() {
    let (_sim, cluster) = with_table();
    cluster.run("SplitRegion", &split(&cluster.regions("t")[0], Some("a"))).unwrap();
    let regions = cluster.regions("t");
    let daughters = &regions[..2];
    refused(cluster.run("MergeTableRegions", &merge(daughters)), "MergeRegionException", "not mergeable");
    daughters.iter().for_each(|daughter| cluster.server.compact(daughter));
    cluster.run("MergeTableRegions", &merge(daughters)).unwrap();
    cluster.check();
    // The grandparent has nobody who needs it; the daughters are needed by the merged region.
    assert_eq!(scan_catalog(&cluster), 1);
    cluster.check();
    assert_eq!(cluster.parents("t"), daughters);
}

/// What cannot be carried through is taken back: the parents serve as before.
#[test]
fn a_failure_before_meta_is_undone() {
    let (_sim, cluster) = Cluster::simulated();
    let torn = table("t", &["f"]).with("TORN", "true");
    cluster.run("CreateTable", &create(&torn, &["m"])).unwrap();
    let regions = cluster.regions("t");
    refused(
        cluster.run("SplitRegion", &split(&regions[0], Some("b"))),
        "DoNotRetryIOException",
        "cannot be read",
    );
    cluster.check();
    refused(cluster.run("MergeTableRegions", &merge(&regions)), "DoNotRetryIOException", "cannot be read");
    cluster.check();
    assert_eq!(cluster.regions("t"), regions);
}

/// Deleting, truncating and disabling take parents along, whoever refers to them.
#[test]
fn whole_tables_with_parents() {
    let (_sim, cluster) = with_table();
    let split_and_merge = || {
        let regions = cluster.regions("t");
        cluster.run("SplitRegion", &split(&regions[0], Some("a"))).unwrap();
        cluster.run("MergeTableRegions", &merge(&regions[1..])).unwrap();
        cluster.check();
        assert_eq!(cluster.parents("t").len(), 3);
    };
    split_and_merge();
    cluster.run("DisableTable", &disable("t")).unwrap();
    cluster.check();
    cluster.run("EnableTable", &enable("t")).unwrap();
    cluster.check();
    let request = pb::TruncateRegionRequest {
        region_info: cluster.regions("t").last().unwrap().to_pb(),
        ..Default::default()
    };
    cluster.run("TruncateRegion", &request).unwrap();
    cluster.check();
    assert_eq!(cluster.parents("t").len(), 1, "what the truncated region was merged of is gone with it");
    cluster.run("DisableTable", &disable("t")).unwrap();
    cluster.run("truncateTable", &truncate("t", true)).unwrap();
    cluster.check();
    assert_eq!(bounds(&cluster.regions("t")), ["..a", "a..b", "b.."]);
    assert!(cluster.parents("t").is_empty());
    cluster.run("FlushTable", &flush("t")).unwrap();
    split_and_merge_again(&cluster);
    cluster.run("DisableTable", &disable("t")).unwrap();
    cluster.run("DeleteTable", &delete("t")).unwrap();
    cluster.check();
}

fn split_and_merge_again(cluster: &Cluster) {
    let regions = cluster.regions("t");
    cluster.run("MergeTableRegions", &merge(&regions[..2])).unwrap();
    cluster.run("SplitRegion", &split(&regions[2], Some("x"))).unwrap();
    cluster.check();
}

/// A snapshot of regions with references keeps what they refer to, and can be cloned when all of it is archived.
#[test]
fn snapshots_of_references() {
    let sim = halcyon_env::sim::SimFileSystem::new();
    let zero = std::time::Duration::ZERO;
    let settings = MasterSettings { archive_keep: zero, ..settings() };
    let env = with_real_clock(sim.env());
    let cluster = Cluster::start_with(env, std::path::Path::new(ROOT), 1, settings).unwrap();
    cluster.run("CreateTable", &create(&table("t", &["f", "g"]), &[])).unwrap();
    cluster.run("FlushTable", &flush("t")).unwrap();
    cluster.run("SplitRegion", &split(&cluster.regions("t")[0], Some("m"))).unwrap();
    cluster.run("Snapshot", &snapshot("s", "t")).unwrap();
    let regions = cluster.regions("t");
    regions.iter().for_each(|region| cluster.server.compact(region));
    assert_eq!(scan_catalog(&cluster), 1);
    for _ in 0..2 {
        let _: pb::RunCleanerChoreResponse =
            cluster.call("RunCleanerChore", &pb::RunCleanerChoreRequest {}).unwrap();
    }
    cluster.run("RestoreSnapshot", &restore("s", "u")).unwrap();
    cluster.check();
    let clones = cluster.regions("u");
    assert_eq!(bounds(&clones), ["..m", "m.."]);
    for clone in &clones {
        let files = cluster.server.files(clone);
        assert!(files.len() == 2 && files.iter().all(|file| !file.contains('.')), "{files:?}");
    }
}
