//! What clients ask a master, and what they are told.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::common::*;
use bytes::Bytes;
use halcyon_contract::RegionServerApi;
use halcyon_env::Env;
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_master::StopRequest;
use halcyon_proto::pb;
use halcyon_proto::pb::table_state::State;
use halcyon_rpc::RpcError;
use halcyon_schema::{TableDescriptor, TableName};
use prost::Message;

/// The short class name of an error.
fn class<T: std::fmt::Debug>(result: Result<T, RpcError>) -> String {
    result.unwrap_err().class.rsplit('.').next().unwrap().to_string()
}

fn names(cluster: &Cluster, request: pb::GetTableNamesRequest) -> Vec<String> {
    let response: pb::GetTableNamesResponse = cluster.call("GetTableNames", &request).unwrap();
    response.table_names.iter().map(|name| TableName::from_pb(name).unwrap().to_string()).collect()
}

#[test]
fn a_table_lives_and_dies() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    c.check();
    assert_eq!(c.state("t"), Some(State::Enabled));
    assert_eq!(c.regions("t").len(), 2);
    let region = c.regions("t")[0].clone();
    let seq = |c: &Cluster| {
        let bytes = c.server.meta_value(region.region_name(), "info", "seqnumDuringOpen").unwrap();
        u64::from_be_bytes(bytes.try_into().unwrap())
    };
    let first = seq(&c);
    c.run("DisableTable", &disable("t")).unwrap();
    c.check();
    c.run("EnableTable", &enable("t")).unwrap();
    c.check();
    assert!(seq(&c) > first, "the open number grows");
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("DeleteTable", &delete("t")).unwrap();
    c.check();
    assert_eq!(c.state("t"), None);
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.check();
    assert_eq!(c.descriptor("t").unwrap().attribute(b"hbase.store.file-tracker.impl").unwrap(), "DEFAULT");
}

/// The start was refused with `hbase.regionserver.slowlog.systable.enabled`.
#[test]
fn the_table_for_slow_calls_is_made_when_asked_for_and_only_once() {
    let sim = SimFileSystem::new();
    let env = with_real_clock(sim.env());
    let start = |code, slow_log_table| {
        let settings = halcyon_master::MasterSettings { slow_log_table, ..settings() };
        Cluster::start_with(env.clone(), Path::new(ROOT), code, settings).unwrap()
    };
    let without = start(1, false);
    assert_eq!(without.state("hbase:slowlog"), None);
    without.master.stop();
    let mut region = None;
    for code in 2..=3 {
        let c = start(code, true);
        let begin = Instant::now();
        while c.state("hbase:slowlog") != Some(State::Enabled) {
            assert!(begin.elapsed().as_secs() < 30, "no table hbase:slowlog");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        c.quiet();
        c.check();
        assert_eq!(c.regions("hbase:slowlog").len(), 1);
        let made = region.get_or_insert_with(|| c.regions("hbase:slowlog")[0].clone());
        assert_eq!(*made, c.regions("hbase:slowlog")[0], "the second start finds it");
        let info = c.descriptor("hbase:slowlog").unwrap().families()[0].clone();
        assert_eq!((&info.name()[..], info.versions()), (&b"info"[..], 1));
        c.master.stop();
    }
}

#[test]
fn wrong_requests_are_refused_at_once_and_change_nothing() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    let create_bad =
        |descriptor, keys: &[&'static str]| class(c.submit("CreateTable", &create(&descriptor, keys)));
    assert_eq!(create_bad(table("t", &["f"]), &[]), "TableExistsException");
    assert_eq!(create_bad(table("hbase:meta", &["f"]), &[]), "TableExistsException");
    assert_eq!(create_bad(table("no:t", &["f"]), &[]), "NamespaceNotFoundException");
    assert_eq!(create_bad(table("u", &[]), &[]), "DoNotRetryIOException");
    assert_eq!(create_bad(table("u", &["f"]), &["a", "a"]), "DoNotRetryIOException");
    assert_eq!(create_bad(table("u", &["f"]), &["a", ""]), "DoNotRetryIOException");
    assert_eq!(create_bad(table("u", &["f"]).with("MAX_FILESIZE", "1"), &[]), "DoNotRetryIOException");
    assert_eq!(class(c.submit("EnableTable", &enable("no"))), "TableNotFoundException");
    assert_eq!(class(c.submit("DisableTable", &disable("no"))), "TableNotFoundException");
    assert_eq!(class(c.submit("DeleteTable", &delete("no"))), "TableNotFoundException");
    assert_eq!(class(c.submit("truncateTable", &truncate("no", true))), "TableNotFoundException");
    assert_eq!(class(c.submit("ModifyTable", &modify(&table("no", &["f"])))), "TableNotFoundException");
    assert_eq!(class(c.submit("FlushTable", &flush("no"))), "TableNotFoundException");
    assert_eq!(class(c.submit("EnableTable", &enable("t"))), "TableNotDisabledException");
    assert_eq!(class(c.submit("DeleteTable", &delete("t"))), "TableNotDisabledException");
    assert_eq!(class(c.submit("truncateTable", &truncate("t", true))), "TableNotDisabledException");
    assert_eq!(class(c.submit("ModifyTable", &modify(&table("t", &[])))), "DoNotRetryIOException");
    assert_eq!(class(c.submit("DisableTable", &disable("hbase:meta"))), "ConstraintException");
    c.run("DisableTable", &disable("t")).unwrap();
    assert_eq!(class(c.submit("DisableTable", &disable("t"))), "TableNotEnabledException");
    assert_eq!(class(c.submit("FlushTable", &flush("t"))), "TableNotEnabledException");
    c.check();
    assert_eq!(names(&c, pb::GetTableNamesRequest::default()), ["t"]);
}

#[test]
fn families_are_added_changed_and_deleted() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    let add = |name_of: &str| pb::AddColumnRequest {
        table_name: name("t").to_pb(),
        column_families: family(name_of).to_pb(),
        ..Default::default()
    };
    let change = |name_of: &str| pb::ModifyColumnRequest {
        table_name: name("t").to_pb(),
        column_families: family(name_of).with("VERSIONS", "7").to_pb(),
        ..Default::default()
    };
    let delete = |name_of: &'static str| pb::DeleteColumnRequest {
        table_name: name("t").to_pb(),
        column_name: name_of.into(),
        ..Default::default()
    };
    assert_eq!(class(c.submit("AddColumn", &add("f"))), "InvalidFamilyOperationException");
    assert_eq!(class(c.submit("ModifyColumn", &change("g"))), "InvalidFamilyOperationException");
    assert_eq!(class(c.submit("DeleteColumn", &delete("g"))), "InvalidFamilyOperationException");
    assert_eq!(class(c.submit("DeleteColumn", &delete("f"))), "InvalidFamilyOperationException");
    c.run("AddColumn", &add("g")).unwrap();
    c.check();
    c.run("ModifyColumn", &change("g")).unwrap();
    c.check();
    assert_eq!(c.descriptor("t").unwrap().family(b"g").unwrap().versions(), 7);
    let request = pb::GetSchemaAlterStatusRequest { table_name: name("t").to_pb() };
    let status: pb::GetSchemaAlterStatusResponse = c.call("GetSchemaAlterStatus", &request).unwrap();
    assert_eq!((status.yet_to_update_regions(), status.total_regions()), (0, 2));
    c.run("DeleteColumn", &delete("f")).unwrap();
    c.check();
    assert_eq!(c.descriptor("t").unwrap().families().len(), 1);

    let lazy = c.descriptor("t").unwrap().with("PRIORITY", "5");
    let mut request = modify(&lazy);
    request.reopen_regions = Some(false);
    c.run("ModifyTable", &request).unwrap();
    assert_eq!(c.descriptor("t").unwrap().priority(), 5);
    assert_eq!(c.server.descriptor_of(c.regions("t")[0].encoded_name()).unwrap().priority(), 0);
    let mut request = modify(&lazy.with_family(family("h")));
    request.reopen_regions = Some(false);
    assert_eq!(class(c.submit("ModifyTable", &request)), "DoNotRetryIOException");
}

#[test]
fn replicas_have_locations_as_long_as_the_table_has_them() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]).with("REGION_REPLICATION", "3"), &[])).unwrap();
    let row = c.regions("t")[0].region_name().clone();
    assert_eq!(c.server.meta_value(&row, "info", "server_0002").unwrap(), b"127.0.0.1:16020");
    assert_eq!(c.server.meta_value(&row, "info", "state_0002").unwrap(), b"OPEN");
    c.run("ModifyTable", &modify(&c.descriptor("t").unwrap().with("REGION_REPLICATION", "2"))).unwrap();
    assert_eq!(c.server.meta_value(&row, "info", "server_0002"), None);
    assert_eq!(c.server.meta_value(&row, "info", "server_0001").unwrap(), b"127.0.0.1:16020");
    c.check();
}

#[test]
fn the_same_nonce_is_the_same_procedure() {
    let (_sim, c) = Cluster::simulated();
    let mut request = create(&table("t", &["f"]), &[]);
    (request.nonce_group, request.nonce) = (Some(7), Some(9));
    let first = c.submit("CreateTable", &request).unwrap();
    assert_eq!(c.submit("CreateTable", &request).unwrap(), first);
    c.wait(first).unwrap();
    assert_eq!(c.submit("CreateTable", &request).unwrap(), first, "also when it has ended");
    (request.nonce_group, request.nonce) = (Some(7), Some(10));
    assert_eq!(class(c.submit("CreateTable", &request)), "TableExistsException");
    assert_eq!(class(c.submit("CreateTable", &request)), "TableExistsException", "a refusal is repeated");
    (request.nonce_group, request.nonce) = (Some(0), Some(0));
    assert_eq!(class(c.submit("CreateTable", &request)), "TableExistsException");
}

/// Two actions on one table follow each other, and the second sees what the first left.
#[test]
fn actions_on_one_table_follow_each_other() {
    let (_sim, c) = Cluster::simulated();
    let c = Arc::new(c);
    c.run("CreateTable", &create(&table("t", &["f"]), &["b", "c", "d"])).unwrap();
    for round in 0..10 {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let c = c.clone();
                std::thread::spawn(move || c.run("DisableTable", &disable("t")))
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "round {round}");
        for result in results.into_iter().filter(Result::is_err) {
            assert_eq!(class(result), "TableNotEnabledException");
        }
        c.run("EnableTable", &enable("t")).unwrap();
    }
    // Other tables do not wait: one is created while the first is being flushed over and over.
    let flushes: Vec<u64> = (0..20).map(|_| c.submit("FlushTable", &flush("t")).unwrap()).collect();
    c.run("CreateTable", &create(&table("u", &["f"]), &[])).unwrap();
    flushes.into_iter().for_each(|id| c.wait(id).unwrap());
    c.check();
}

/// Some refusals are results of procedures for clients since 2.0, others are answers.
#[test]
fn refusals_come_as_in_hbase() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    let response: Result<pb::CreateTableResponse, _> =
        c.call("CreateTable", &create(&table("t", &["f"]), &[]));
    assert_eq!(class(c.wait(response.unwrap().proc_id())), "TableExistsException");
    let response: Result<pb::CreateTableResponse, _> =
        c.call("CreateTable", &create(&table("no:t", &["f"]), &[]));
    assert_eq!(class(response), "NamespaceNotFoundException");
    let response: Result<pb::EnableTableResponse, _> = c.call("EnableTable", &enable("t"));
    assert_eq!(class(response), "TableNotDisabledException");
    let peer = pb::RemoveReplicationPeerRequest { peer_id: "p".into() };
    let remove = || c.call::<pb::RemoveReplicationPeerResponse>("RemoveReplicationPeer", &peer);
    let result = c.wait(remove().unwrap().proc_id());
    assert_eq!(class(result), "ReplicationPeerNotFoundException");
    let off = pb::ReplicationPeerModificationSwitchRequest { on: false };
    c.call::<pb::ReplicationPeerModificationSwitchResponse>("ReplicationPeerModificationSwitch", &off)
        .unwrap();
    assert_eq!(remove().unwrap_err().message, "Replication peer modification disabled");
}

#[test]
fn a_step_that_fails_runs_again() {
    let (sim, c) = Cluster::simulated();
    sim.inject(Fault::new(Operation::Put, "procedures/").nth(2));
    sim.inject(Fault::new(Operation::Put, ".tableinfo"));
    sim.inject(Fault::new(Operation::Put, ".regioninfo"));
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    c.check();
}

#[test]
fn a_table_that_cannot_be_opened_is_taken_back() {
    let (_sim, c) = Cluster::simulated();
    let error = c.run("CreateTable", &create(&table("t", &["f"]).with("POISON", "1"), &["m"])).unwrap_err();
    assert!(error.message.contains("cannot be opened"), "{error}");
    assert_eq!(c.state("t"), None);
    c.check();
    assert!(!c.env.fs.exists(&c.root.join("data/default/t")).unwrap());
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.check();
}

/// One damaged region must not keep its table from being served, disabled or dropped.
#[test]
fn a_damaged_region_is_left_behind() {
    let (sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    let bad = c.regions("t")[0].clone();
    let state = |c: &Cluster| c.server.meta_value(bad.region_name(), "info", "state").unwrap();
    drop(c);
    sim.env().fs.remove_file(&bad.dir(Path::new(ROOT)).join(".regioninfo")).unwrap();
    let c = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 2).unwrap();
    c.quiet();
    assert_eq!((state(&c), c.server.online_names().len()), (b"FAILED_OPEN".to_vec(), 3));
    let request = pb::GetClusterStatusRequest { options: vec![pb::Option::RegionsInTransition as i32] };
    let status: pb::GetClusterStatusResponse = c.call("GetClusterStatus", &request).unwrap();
    assert_eq!(status.cluster_status.regions_in_transition.len(), 1);
    let assign = pb::AssignRegionRequest { region: specifier(bad.region_name()), r#override: None };
    let error = c.call::<pb::AssignRegionResponse>("AssignRegion", &assign).unwrap_err();
    assert!(error.message.contains("has no files"), "{error}");
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("EnableTable", &enable("t")).unwrap();
    assert_eq!((c.state("t"), state(&c)), (Some(State::Enabled), b"FAILED_OPEN".to_vec()));
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("DeleteTable", &delete("t")).unwrap();
    c.check();
}

#[test]
fn a_restart_opens_what_was_open() {
    let (sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("on", &["f"]), &["m"])).unwrap();
    c.run("CreateTable", &create(&table("off", &["f"]), &["m"])).unwrap();
    c.run("DisableTable", &disable("off")).unwrap();
    let id = c.master.cluster_id().clone();
    drop(c);
    let c = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 2).unwrap();
    assert_eq!(c.master.cluster_id(), &id);
    c.check();
    assert_eq!((c.state("on"), c.state("off")), (Some(State::Enabled), Some(State::Disabled)));
}

#[test]
fn a_newer_root_directory_is_left_alone() {
    let sim = SimFileSystem::new();
    drop(Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 1).unwrap());
    let env = sim.env();
    let path = Path::new(ROOT).join("hbase.version");
    assert_eq!(env.fs.read(&path).unwrap(), b"PBUF\x0a\x018");
    env.fs.replace(&path, b"PBUF\x0a\x019").unwrap();
    let error = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 2).err().unwrap();
    assert!(error.message().contains("newer"), "{error}");
    env.fs.remove_file(&path).unwrap();
    let error = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 2).err().unwrap();
    assert!(error.message().contains("missing"), "{error}");
}

#[test]
fn tables_are_listed_by_pattern_namespace_and_state() {
    let (_sim, c) = Cluster::simulated();
    c.run(
        "CreateNamespace",
        &pb::CreateNamespaceRequest { namespace_descriptor: namespace("ns"), ..Default::default() },
    )
    .unwrap();
    for each in ["t1", "t2", "ns:t1"] {
        c.run("CreateTable", &create(&table(each, &["f"]), &[])).unwrap();
    }
    c.run("DisableTable", &disable("t2")).unwrap();
    let of = |regex: Option<&str>, system, namespace: Option<&str>| {
        names(
            &c,
            pb::GetTableNamesRequest {
                regex: regex.map(Into::into),
                include_sys_tables: Some(system),
                namespace: namespace.map(Into::into),
            },
        )
    };
    assert_eq!(of(None, false, None), ["t1", "t2", "ns:t1"], "as default:t1 would stand");
    assert_eq!(of(None, true, None), ["t1", "t2", "hbase:meta", "hbase:namespace", "ns:t1"]);
    assert_eq!(of(Some("t.*"), false, None), ["t1", "t2"]);
    assert_eq!(of(Some("default:t1"), false, None), ["t1"]);
    assert_eq!(of(Some(".*t1"), false, Some("ns")), ["ns:t1"]);
    let request = pb::GetTableNamesRequest { namespace: Some("no".into()), ..Default::default() };
    assert_eq!(
        class(c.call::<pb::GetTableNamesResponse>("GetTableNames", &request)),
        "NamespaceNotFoundException"
    );
    let request = pb::ListTableNamesByStateRequest { is_enabled: false };
    let response: pb::ListTableNamesByStateResponse = c.call("ListTableNamesByState", &request).unwrap();
    assert_eq!(response.table_names[0].qualifier, "t2");
    let request = pb::GetTableDescriptorsRequest {
        table_names: vec![TableName::META.to_pb(), name("gone").to_pb()],
        ..Default::default()
    };
    let response: pb::GetTableDescriptorsResponse = c.call("GetTableDescriptors", &request).unwrap();
    assert_eq!(response.table_schema.len(), 1);
    assert_eq!(response.table_schema[0].column_families.len(), 3);
    let request = pb::DeleteNamespaceRequest { namespace_name: "ns".into(), ..Default::default() };
    let error = c.submit("DeleteNamespace", &request).unwrap_err();
    assert!(error.message.contains("has 1 tables"), "{error}");
    let request = pb::DeleteNamespaceRequest { namespace_name: "default".into(), ..Default::default() };
    assert_eq!(class(c.submit("DeleteNamespace", &request)), "ConstraintException");
    let request = pb::CreateNamespaceRequest { namespace_descriptor: namespace("ns"), ..Default::default() };
    assert_eq!(class(c.submit("CreateNamespace", &request)), "NamespaceExistException");
    let response: pb::ListNamespacesResponse =
        c.call("ListNamespaces", &pb::ListNamespacesRequest {}).unwrap();
    assert_eq!(response.namespace_name, ["default", "hbase", "ns"]);
}

#[test]
fn regions_are_moved_assigned_and_truncated() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    let region = c.regions("t")[0].clone();
    let full = specifier(region.region_name());
    let encoded = specifier(&Bytes::copy_from_slice(region.encoded_name().as_bytes()));
    let assign = |force| pb::AssignRegionRequest { region: full.clone(), r#override: Some(force) };
    let unassign = pb::UnassignRegionRequest { region: full.clone(), force: None };
    assert_eq!(
        class(c.call::<pb::AssignRegionResponse>("AssignRegion", &assign(false))),
        "DoNotRetryRegionException"
    );
    c.call::<pb::UnassignRegionResponse>("UnassignRegion", &unassign).unwrap();
    assert!(!c.server.online_names().contains(region.encoded_name()));
    assert_eq!(
        class(c.call::<pb::UnassignRegionResponse>("UnassignRegion", &unassign)),
        "DoNotRetryRegionException"
    );
    c.call::<pb::AssignRegionResponse>("AssignRegion", &assign(false)).unwrap();
    let moved = pb::MoveRegionRequest { region: encoded.clone(), dest_server_name: None };
    c.call::<pb::MoveRegionResponse>("MoveRegion", &moved).unwrap();
    let here = Some(c.server.server_name().to_pb());
    let moved = pb::MoveRegionRequest { region: encoded, dest_server_name: here };
    c.call::<pb::MoveRegionResponse>("MoveRegion", &moved).unwrap();
    let unknown = pb::MoveRegionRequest { region: specifier(&"abc".into()), dest_server_name: None };
    assert_eq!(class(c.call::<pb::MoveRegionResponse>("MoveRegion", &unknown)), "UnknownRegionException");
    let request = pb::TruncateRegionRequest { region_info: region.to_pb(), ..Default::default() };
    c.run("TruncateRegion", &request).unwrap();
    assert_ne!(c.regions("t")[0].encoded_name(), region.encoded_name());
    assert_eq!(class(c.submit("TruncateRegion", &request)), "UnknownRegionException");
    let replica = pb::TruncateRegionRequest { region_info: region.replica(1).to_pb(), ..Default::default() };
    assert_eq!(class(c.submit("TruncateRegion", &replica)), "DoNotRetryIOException");
    c.check();
}

#[test]
fn switches_stay_as_they_were_put() {
    let (sim, c) = Cluster::simulated();
    let set = pb::SetBalancerRunningRequest { on: false, synchronous: None };
    let before = |c: &Cluster| {
        c.call::<pb::SetBalancerRunningResponse>("SetBalancerRunning", &set).unwrap().prev_balance_value()
    };
    assert!(before(&c));
    assert!(!before(&c));
    let set =
        pb::SetSplitOrMergeEnabledRequest { enabled: false, synchronous: None, switch_types: vec![0, 1] };
    let response: pb::SetSplitOrMergeEnabledResponse = c.call("SetSplitOrMergeEnabled", &set).unwrap();
    assert_eq!(response.prev_value, [true, true]);
    drop(c);
    let c = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 2).unwrap();
    let asked = pb::IsBalancerEnabledRequest {};
    assert!(!c.call::<pb::IsBalancerEnabledResponse>("IsBalancerEnabled", &asked).unwrap().enabled);
    let asked = pb::IsSplitOrMergeEnabledRequest { switch_type: 1 };
    assert!(!c.call::<pb::IsSplitOrMergeEnabledResponse>("IsSplitOrMergeEnabled", &asked).unwrap().enabled);
    let balance: pb::BalanceResponse = c.call("Balance", &pb::BalanceRequest::default()).unwrap();
    assert!(!balance.balancer_ran);
}

/// What is not there says so: it is off, and cannot be turned on.
#[test]
fn there_is_no_throttle() {
    let (_sim, c) = Cluster::simulated();
    for on in [true, false] {
        let request = pb::SwitchRpcThrottleRequest { rpc_throttle_enabled: on };
        let before: pb::SwitchRpcThrottleResponse = c.call("SwitchRpcThrottle", &request).unwrap();
        assert!(!before.previous_rpc_throttle_enabled);
        let asked: pb::IsRpcThrottleEnabledResponse =
            c.call("IsRpcThrottleEnabled", &pb::IsRpcThrottleEnabledRequest {}).unwrap();
        assert!(!asked.rpc_throttle_enabled);
        let request = pb::SwitchExceedThrottleQuotaRequest { exceed_throttle_quota_enabled: on };
        let before: pb::SwitchExceedThrottleQuotaResponse =
            c.call("SwitchExceedThrottleQuota", &request).unwrap();
        assert!(!before.previous_exceed_throttle_quota_enabled);
    }
}

#[test]
fn status_capabilities_and_registry() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    let all: pb::GetClusterStatusResponse =
        c.call("GetClusterStatus", &pb::GetClusterStatusRequest::default()).unwrap();
    let status = all.cluster_status;
    assert_eq!(status.hbase_version.unwrap().version, "2.6.4");
    assert_eq!(status.live_servers.len(), 1);
    assert_eq!(status.live_servers[0].server_load.region_loads.len(), 4);
    assert_eq!(status.master.unwrap().port(), 16000);
    let mut counts = status.table_region_states_count.iter();
    let counts = counts.find(|counts| counts.table_name.qualifier == "t").unwrap();
    assert_eq!(
        (counts.table_name.qualifier.as_ref(), counts.region_states_count.open_regions),
        (&b"t"[..], 2)
    );
    let request = pb::GetClusterStatusRequest { options: vec![pb::Option::ClusterId as i32] };
    let part: pb::GetClusterStatusResponse = c.call("GetClusterStatus", &request).unwrap();
    assert_eq!(part.cluster_status.cluster_id.unwrap().cluster_id, c.master.cluster_id().0);
    assert!(part.cluster_status.live_servers.is_empty());
    let request = pb::MajorCompactionTimestampRequest { table_name: name("t").to_pb() };
    let when: pb::MajorCompactionTimestampResponse =
        c.call("getLastMajorCompactionTimestamp", &request).unwrap();
    assert_eq!(when.compaction_timestamp, 77);
    let running: pb::IsMasterRunningResponse =
        c.call("IsMasterRunning", &pb::IsMasterRunningRequest {}).unwrap();
    assert!(running.is_master_running);

    let meta: pb::GetMetaRegionLocationsResponse =
        answer(&c.registry, "GetMetaRegionLocations", &pb::GetMetaRegionLocationsRequest {}).unwrap();
    assert_eq!(meta.meta_locations[0].server_name, Some(c.server.server_name().to_pb()));
    let id: pb::GetClusterIdResponse =
        answer(&c.registry, "GetClusterId", &pb::GetClusterIdRequest {}).unwrap();
    assert_eq!(id.cluster_id(), c.master.cluster_id().0);
    let nodes: pb::GetBootstrapNodesResponse =
        answer(&c.registry, "GetBootstrapNodes", &pb::GetBootstrapNodesRequest {}).unwrap();
    assert_eq!(nodes.server_name.len(), 1);
}

#[test]
fn older_clients_flush_by_exec_procedure() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f", "g"]), &[])).unwrap();
    let description = |signature: &str, instance: &str| pb::ProcedureDescription {
        signature: signature.into(),
        instance: Some(instance.into()),
        creation_time: None,
        configuration: vec![pb::NameStringPair { name: "family".into(), value: "g".into() }],
    };
    let exec = |signature, instance| pb::ExecProcedureRequest { procedure: description(signature, instance) };
    let done = |signature, instance| pb::IsProcedureDoneRequest {
        procedure: Some(description(signature, instance)),
    };
    let response: pb::ExecProcedureResponse =
        c.call("ExecProcedure", &exec("flush-table-proc", "t")).unwrap();
    assert!(response.expected_timeout() > 0);
    c.quiet();
    let response: pb::IsProcedureDoneResponse =
        c.call("IsProcedureDone", &done("flush-table-proc", "t")).unwrap();
    assert!(response.done());
    let dir = c.regions("t")[0].dir(&c.root);
    assert_eq!(c.env.fs.list(&dir.join("f")).unwrap().len(), 0);
    assert_eq!(c.env.fs.list(&dir.join("g")).unwrap().len(), 1);
    let wrong: Result<pb::IsProcedureDoneResponse, _> =
        c.call("IsProcedureDone", &done("fake-signature", "x"));
    assert_eq!(class(wrong), "DoNotRetryIOException");
    let wrong: Result<pb::ExecProcedureResponse, _> =
        c.call("ExecProcedure", &exec("flush-table-proc", "no"));
    assert_eq!(class(wrong), "TableNotFoundException");
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let (_sim, c) = Cluster::simulated();
    for method in ["TransitReplicationPeerSyncReplicationState", "Grant", "AddRSGroup"] {
        let error = c.call::<pb::EmptyMsg>(method, &pb::EmptyMsg {}).unwrap_err();
        assert!(error.do_not_retry && error.message.contains("not supported"), "{method}: {error}");
    }
    let error = c.call::<pb::EmptyMsg>("NoSuchMethod", &pb::EmptyMsg {}).unwrap_err();
    assert_eq!(error.message, "java.lang.UnsupportedOperationException: NoSuchMethod");
    let request = pb::AbortProcedureRequest { proc_id: 4711, may_interrupt_if_running: None };
    let aborted: pb::AbortProcedureResponse = c.call("AbortProcedure", &request).unwrap();
    assert!(!aborted.is_procedure_aborted);
    let request = pb::GetProcedureResultRequest { proc_id: 4711 };
    let result: pb::GetProcedureResultResponse = c.call("getProcedureResult", &request).unwrap();
    assert_eq!(result.state(), pb::get_procedure_result_response::State::NotFound);

    let error = c.call::<pb::ShutdownResponse>("Shutdown", &pb::ShutdownRequest {}).unwrap_err();
    assert!(error.do_not_retry);
    let asked = Arc::new(AtomicU32::new(0));
    let seen = asked.clone();
    c.master.on_stop_request(move |request| {
        seen.fetch_add(if request == StopRequest::Cluster { 1 } else { 10 }, Ordering::SeqCst);
    });
    c.call::<pb::ShutdownResponse>("Shutdown", &pb::ShutdownRequest {}).unwrap();
    c.call::<pb::StopMasterResponse>("StopMaster", &pb::StopMasterRequest {}).unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 11);
    let broken = c.call::<pb::CreateTableResponse>("CreateTable", &pb::ClusterId { cluster_id: "x".into() });
    assert_eq!(class(broken), "DoNotRetryIOException");
    c.master.stop();
    assert_eq!(
        class(c.submit("CreateTable", &create(&table("t", &["f"]), &[]))),
        "ServerNotRunningYetException"
    );
}

/// A master that was stopped answers nothing, neither from memory nor by procedures; its region server goes on.
#[test]
fn a_stopped_master_answers_no_call() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.master.stop();
    let asked = c.call::<pb::IsMasterRunningResponse>("IsMasterRunning", &pb::IsMasterRunningRequest {});
    assert_eq!(class(asked), "ServerNotRunningYetException");
    let asked = c.call::<pb::GetTableNamesResponse>("GetTableNames", &pb::GetTableNamesRequest::default());
    assert_eq!(class(asked), "ServerNotRunningYetException");
    assert!(c.server.online_names().contains(c.regions("t")[0].encoded_name()));
}

/// `hbase.table.sanity.checks` and `hbase.snapshot.master.timeout.millis` of the site file.
#[test]
fn sanity_checks_and_the_time_for_snapshots_are_settings() {
    let sim = SimFileSystem::new();
    let mut settings = settings();
    settings.sanity_checks = false;
    settings.snapshot_timeout = std::time::Duration::from_secs(77);
    let c = Cluster::start_with(with_real_clock(sim.env()), Path::new("/hbase"), 1, settings).unwrap();
    let unwise = |size: &str| create(&table("t", &["f"]).with("MEMSTORE_FLUSHSIZE", size), &[]);
    c.run("CreateTable", &unwise("1024")).unwrap();
    let unsupported = modify(&table("t", &["f"]).with("hbase.store.file-tracker.impl", "no.such.Tracker"));
    assert!(c.run("ModifyTable", &unsupported).unwrap_err().message.contains("file-tracker"));
    let taken: pb::SnapshotResponse = c.call("Snapshot", &snapshot("s", "t")).unwrap();
    assert_eq!(taken.expected_timeout, 77_000);
    c.wait(taken.proc_id() as u64).unwrap();

    let (_sim, c) = Cluster::simulated();
    assert!(c.run("CreateTable", &unwise("1024")).unwrap_err().message.contains("hbase.table.sanity.checks"));
}

/// A directory that HBase made has a descriptor of `hbase:meta`, which is in force, so it is what clients see.
#[test]
fn the_descriptor_of_meta_is_the_one_in_force() {
    let (sim, c) = Cluster::simulated();
    drop(c);
    let dir = Path::new("/hbase/data/hbase/meta/.tabledesc");
    let fs = sim.env().fs;
    let old = fs.list(dir).unwrap().into_iter().find(|file| file.name.starts_with(".tableinfo")).unwrap();
    fs.remove_file(&dir.join(old.name)).unwrap();
    let changed = TableDescriptor::meta().with("PRIORITY", "4711");
    let bytes = changed.encode_file();
    fs.replace(&dir.join(halcyon_schema::layout::table_info_name(7, bytes.len())), &bytes).unwrap();
    let c = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 2).unwrap();
    assert_eq!(c.descriptor("hbase:meta"), Some(changed.clone()));
    assert_eq!(c.server.descriptor_of("1588230740"), Some(changed));
}

/// On the machine's own disk, syncs included. The bound is generous: the machine may be busy.
#[test]
fn a_table_of_ten_regions_is_soon_there() {
    let root = std::env::temp_dir().join(format!("halcyon-master-{}", std::process::id()));
    let c = Cluster::start(Env::real(), &root, 1).unwrap();
    let request = create(&table("t", &["f"]), &["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    let begin = Instant::now();
    c.run("CreateTable", &request).unwrap();
    let took = begin.elapsed();
    eprintln!("created in {took:?}");
    c.check();
    drop(c);
    Env::real().fs.remove_dir_all(&root).unwrap();
    assert!(took.as_secs() < 2, "{took:?}");
    assert!(!request.encode_to_vec().is_empty());
}
