//! What `GetProcedures` and `GetLocks` tell of procedures: the messages that HBase's procedures of the same classes keep.

#![allow(clippy::disallowed_methods)] // the clock of the test itself

use crate::common::*;
use halcyon_master::LockService;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, TableName};
use prost::{Message, Name};

fn listed(c: &Cluster, id: u64) -> pb::Procedure {
    let all: pb::GetProceduresResponse = c.call("GetProcedures", &pb::GetProceduresRequest {}).unwrap();
    all.procedure.into_iter().find(|procedure| procedure.proc_id == id).unwrap()
}

/// The message at a place, whose type it must be.
fn parameter<M: Message + Name + Default>(procedure: &pb::Procedure, at: usize) -> M {
    let any = &procedure.state_message[at];
    assert_eq!(any.type_url, format!("type.googleapis.com/{}", M::full_name()), "{}", procedure.class_name);
    M::decode(&any.value[..]).unwrap()
}

/// The second of two messages: the first one has the numbers of HBase's states, and is empty.
fn state<M: Message + Name + Default>(procedure: &pb::Procedure) -> M {
    assert_eq!(procedure.state_message.len(), 2, "{}", procedure.class_name);
    assert_eq!(parameter::<pb::StateMachineProcedureData>(procedure, 0).state, []);
    parameter(procedure, 1)
}

/// As [`state`], of a procedure that is about a region, whose message is between the two.
fn state_of_region<M: Message + Name + Default>(procedure: &pb::Procedure, region: &RegionInfo) -> M {
    assert_eq!(procedure.state_message.len(), 3, "{}", procedure.class_name);
    assert_eq!(parameter::<pb::StateMachineProcedureData>(procedure, 0).state, []);
    let info = RegionInfo::from_pb(&parameter(procedure, 1)).unwrap();
    assert_eq!(info.encoded_name(), region.encoded_name());
    parameter(procedure, 2)
}

fn is(table: &pb::TableName, expected: &str) -> bool {
    TableName::from_pb(table).unwrap() == name(expected)
}

#[test]
fn procedures_of_tables_show_what_hbases_keep() {
    let (_sim, c) = Cluster::simulated();
    let created = listed(&c, c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap());
    let parameters: pb::CreateTableStateData = state(&created);
    assert_eq!(parameters.user_info.effective_user, "tester");
    assert!(is(parameters.table_schema.table_name.as_ref().unwrap(), "t"));
    assert_eq!(parameters.region_info.len(), 2);

    let changed = listed(&c, c.run("ModifyTable", &modify(&table("t", &["f", "g"]))).unwrap());
    let parameters: pb::ModifyTableStateData = state(&changed);
    assert_eq!(parameters.modified_table_schema.column_families.len(), 2);

    let flushed = listed(&c, c.run("FlushTable", &flush("t")).unwrap());
    assert!(is(&state::<pb::FlushTableProcedureStateData>(&flushed).table_name, "t"));

    let taken = listed(&c, c.run("Snapshot", &snapshot("s", "t")).unwrap());
    assert_eq!(state::<pb::SnapshotProcedureStateData>(&taken).snapshot.name, "s");

    let cloned = listed(&c, c.run("RestoreSnapshot", &restore("s", "copy")).unwrap());
    let parameters: pb::CloneSnapshotStateData = state(&cloned);
    assert_eq!((parameters.snapshot.name.as_str(), parameters.region_info.len()), ("s", 2));

    let disabled = listed(&c, c.run("DisableTable", &disable("t")).unwrap());
    assert!(is(&state::<pb::DisableTableStateData>(&disabled).table_name, "t"));

    let restored = listed(&c, c.run("RestoreSnapshot", &restore("s", "t")).unwrap());
    let parameters: pb::RestoreSnapshotStateData = state(&restored);
    assert!(is(parameters.old_table_schema.table_name.as_ref().unwrap(), "t"));

    let truncated = listed(&c, c.run("truncateTable", &truncate("t", true)).unwrap());
    let parameters: pb::TruncateTableStateData = state(&truncated);
    assert!(parameters.preserve_splits);
    assert_eq!(parameters.region_info.len(), 2);
    assert!(is(parameters.table_schema.unwrap().table_name.as_ref().unwrap(), "t"));

    c.run("DisableTable", &disable("t")).unwrap();
    let enabled = listed(&c, c.run("EnableTable", &enable("t")).unwrap());
    assert!(is(&state::<pb::EnableTableStateData>(&enabled).table_name, "t"));

    c.run("DisableTable", &disable("t")).unwrap();
    let deleted = listed(&c, c.run("DeleteTable", &delete("t")).unwrap());
    let parameters: pb::DeleteTableStateData = state(&deleted);
    assert!(is(&parameters.table_name, "t"));
    assert_eq!(parameters.region_info.len(), 2);
    c.check();
}

#[test]
fn procedures_of_regions_and_namespaces_show_what_hbases_keep() {
    let (_sim, c) = Cluster::simulated();
    let descriptor = namespace("n");
    let request =
        pb::CreateNamespaceRequest { namespace_descriptor: descriptor.clone(), ..Default::default() };
    let made = listed(&c, c.run("CreateNamespace", &request).unwrap());
    let parameters: pb::CreateNamespaceStateData = state(&made);
    assert_eq!(parameters.namespace_descriptor, descriptor);
    let request = pb::DeleteNamespaceRequest { namespace_name: "n".to_string(), ..Default::default() };
    let gone = listed(&c, c.run("DeleteNamespace", &request).unwrap());
    assert_eq!(state::<pb::DeleteNamespaceStateData>(&gone).namespace_name, "n");

    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    let parent = c.regions("t")[0].clone();
    let divided = listed(&c, c.run("SplitRegion", &split(&parent, Some("m"))).unwrap());
    let parameters: pb::SplitTableRegionStateData = state_of_region(&divided, &parent);
    let daughters = c.regions("t");
    let names = |infos: &[pb::RegionInfo]| {
        let name = |info: &pb::RegionInfo| RegionInfo::from_pb(info).unwrap().encoded_name().to_string();
        infos.iter().map(name).collect::<Vec<_>>()
    };
    let expected: Vec<_> = daughters.iter().map(|region| region.encoded_name().to_string()).collect();
    assert_eq!(names(&parameters.child_region_info), expected);

    c.run("CreateTable", &create(&table("u", &["f"]), &["m"])).unwrap();
    let parents = c.regions("u");
    let merged = listed(&c, c.run("MergeTableRegions", &merge(&parents)).unwrap());
    let parameters: pb::MergeTableRegionsStateData = state(&merged);
    let expected: Vec<_> = parents.iter().map(|region| region.encoded_name().to_string()).collect();
    assert_eq!(names(&parameters.region_info), expected);
    let region = c.regions("u")[0].clone();
    assert_eq!(names(&[parameters.merged_region_info.unwrap()]), [region.encoded_name()]);

    let request = pb::UnassignRegionRequest { region: specifier(region.region_name()), force: None };
    c.call::<pb::UnassignRegionResponse>("UnassignRegion", &request).unwrap();
    c.quiet();
    let all: pb::GetProceduresResponse = c.call("GetProcedures", &pb::GetProceduresRequest {}).unwrap();
    let unassign = all.procedure.iter().rfind(|one| one.class_name.ends_with("TransitRegionStateProcedure"));
    let parameters: pb::RegionStateTransitionStateData = state_of_region(unassign.unwrap(), &region);
    assert_eq!(parameters.r#type(), pb::RegionTransitionType::Unassign);
}

#[test]
fn large_parameters_are_shown_only_until_the_end() {
    let (_sim, c) = Cluster::simulated();
    let keys: Vec<&'static str> = (0..1500).map(|n| &*format!("{n:06}").leak()).collect();
    c.server.set_fault("open_region", Some(ServerFault::Fails));
    let id = c.submit("CreateTable", &create(&table("t", &["f"]), &keys)).unwrap();
    assert_eq!(state::<pb::CreateTableStateData>(&listed(&c, id)).region_info.len(), 1501);
    c.server.set_fault("open_region", None);
    c.wait(id).unwrap();
    assert_eq!(listed(&c, id).state_message, []);
}

#[test]
fn a_lock_shows_who_waits_for_it() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    let service = LockService::new(c.master.clone());
    let request = pb::LockRequest {
        lock_type: pb::LockType::Exclusive as i32,
        table_name: Some(name("t").to_pb()),
        description: Some("upkeep".to_string()),
        ..Default::default()
    };
    let held = answer::<pb::LockResponse>(&service, "RequestLock", &request).unwrap().proc_id;
    let waits = |id: u64| {
        let locks: pb::GetLocksResponse = c.call("GetLocks", &pb::GetLocksRequest {}).unwrap();
        let of = |kind: pb::LockedResourceType, name: &str| {
            let lock = locks.lock.iter().find(|it| it.resource_type() == kind && it.resource_name() == name);
            lock.map(|lock| lock.waiting_procedures.iter().any(|one| one.proc_id == id))
        };
        (of(pb::LockedResourceType::Table, "t"), of(pb::LockedResourceType::Namespace, "default"))
    };
    let begin = std::time::Instant::now();
    while waits(0).0.is_none() {
        assert!(begin.elapsed().as_secs() < 20, "the lock is not taken");
    }
    assert_eq!(parameter::<pb::LockProcedureData>(&listed(&c, held), 0).description(), "upkeep");
    c.call_and_leave("DisableTable", &disable("t"));
    let disabling = || {
        let all: pb::GetProceduresResponse = c.call("GetProcedures", &pb::GetProceduresRequest {}).unwrap();
        all.procedure
            .iter()
            .find(|one| one.class_name.ends_with("DisableTableProcedure"))
            .map(|one| one.proc_id)
    };
    let id = disabling().expect("it waits");
    assert_eq!(waits(id), (Some(true), Some(false)), "both share the namespace");
    let tasks = || {
        let request = pb::GetClusterStatusRequest { options: vec![pb::Option::Tasks as i32] };
        let answer: pb::GetClusterStatusResponse = c.call("GetClusterStatus", &request).unwrap();
        answer.cluster_status.master_tasks
    };
    let states = |what: &str| {
        let found = tasks().into_iter().filter(|task| task.description.starts_with(what));
        found.map(|task| (task.state(), task.completion_time.is_some())).collect::<Vec<_>>()
    };
    assert_eq!(states("DisableTableProcedure"), [(pb::server_task::State::Waiting, false)]);
    assert_eq!(states("CreateTableProcedure"), [(pb::server_task::State::Complete, true)]);
    let beat = pb::LockHeartbeatRequest { proc_id: held, keep_alive: Some(false) };
    answer::<pb::LockHeartbeatResponse>(&service, "LockHeartbeat", &beat).unwrap();
    c.wait(id).unwrap();
    assert_eq!(states("DisableTableProcedure"), [(pb::server_task::State::Complete, true)]);
    c.check();
}
