//! Quotas as administrators set them, and what the master does by them.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::*;
use halcyon_contract::{QuotaSource, QuotaSubject, QuotaTable};
use halcyon_env::Env;
use halcyon_env::sim::SimFileSystem;
use halcyon_master::{MasterSettings, QuotaSettings, SpaceUse};
use halcyon_proto::pb;
use halcyon_proto::pb::table_state::State;
use halcyon_rpc::RpcError;
use pb::SpaceViolationPolicy;
use prost::Message;

fn with_quotas() -> MasterSettings {
    let observer_period = Duration::from_millis(5);
    MasterSettings {
        quotas: QuotaSettings {
            enabled: true,
            observer_period,
            snapshot_period: observer_period,
            ..QuotaSettings::default()
        },
        ..settings()
    }
}

fn started(env: &Env, start_code: i64) -> Cluster {
    let cluster = Cluster::start_with(env.clone(), Path::new(ROOT), start_code, with_quotas()).unwrap();
    until(|| cluster.state("hbase:quota") == Some(State::Enabled));
    cluster.quiet();
    cluster
}

fn cluster() -> Cluster {
    started(&with_real_clock(SimFileSystem::new().env()), 1)
}

fn until(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn of_table(table: &str) -> pb::SetQuotaRequest {
    pb::SetQuotaRequest { table_name: Some(name(table).to_pb()), ..Default::default() }
}

fn throttled(limit: u64, request: pb::SetQuotaRequest) -> pb::SetQuotaRequest {
    let time_unit = pb::TimeUnit::Seconds as i32;
    let timed_quota = Some(pb::TimedQuota { time_unit, soft_limit: Some(limit), ..Default::default() });
    let r#type = Some(pb::ThrottleType::RequestNumber as i32);
    pb::SetQuotaRequest { throttle: Some(pb::ThrottleRequest { r#type, timed_quota }), ..request }
}

fn limited(bytes: u64, policy: SpaceViolationPolicy, request: pb::SetQuotaRequest) -> pb::SetQuotaRequest {
    let quota =
        pb::SpaceQuota { soft_limit: Some(bytes), violation_policy: Some(policy as i32), remove: None };
    pb::SetQuotaRequest { space_limit: Some(pb::SpaceLimitRequest { quota: Some(quota) }), ..request }
}

fn set(cluster: &Cluster, request: &pb::SetQuotaRequest) -> Result<pb::SetQuotaResponse, RpcError> {
    cluster.call("SetQuota", request)
}

fn quotas(cluster: &Cluster) -> QuotaTable {
    cluster.master.quotas().unwrap().table
}

#[test]
fn quotas_are_kept_told_and_taken_away_also_over_a_restart() {
    let env = with_real_clock(SimFileSystem::new().env());
    let c = started(&env, 1);
    let reloads = c.server.quota_reloads.load(Ordering::SeqCst);
    set(&c, &throttled(5, of_table("t"))).unwrap();
    let of_user = pb::SetQuotaRequest { user_name: Some("u".to_string()), ..Default::default() };
    set(&c, &throttled(6, of_user.clone())).unwrap();
    set(&c, &throttled(7, pb::SetQuotaRequest { user_name: of_user.user_name.clone(), ..of_table("t") }))
        .unwrap();
    assert_eq!(c.server.quota_reloads.load(Ordering::SeqCst), reloads + 3);
    c.master.stop();
    drop(c);
    let c = started(&env, 2);
    let limits = |c: &Cluster| -> Vec<(QuotaSubject, u64)> {
        let limit = |it: pb::Quotas| it.throttle.unwrap().req_num.unwrap().soft_limit();
        quotas(c).quotas.into_iter().map(|(subject, it)| (subject, limit(it))).collect()
    };
    let user = || "u".to_string();
    let on_table = (QuotaSubject::UserOnTable(user(), name("t")), 7);
    assert_eq!(limits(&c), [(QuotaSubject::Table(name("t")), 5), (QuotaSubject::User(user()), 6), on_table]);
    set(&c, &pb::SetQuotaRequest { remove_all: Some(true), ..of_table("t") }).unwrap();
    let on_table = pb::SetQuotaRequest { user_name: of_user.user_name.clone(), ..of_table("t") };
    set(&c, &pb::SetQuotaRequest { remove_all: Some(true), ..on_table }).unwrap();
    assert_eq!(limits(&c), [(QuotaSubject::User(user()), 6)]);
}

#[test]
fn without_quotas_they_are_refused_and_switches_are_off() {
    let (_sim, c) = Cluster::simulated();
    let error = set(&c, &throttled(5, of_table("t"))).unwrap_err();
    assert_eq!(error.message, "java.lang.UnsupportedOperationException: quota support disabled");
    let on: pb::IsRpcThrottleEnabledResponse =
        c.call("IsRpcThrottleEnabled", &pb::IsRpcThrottleEnabledRequest {}).unwrap();
    assert!(!on.rpc_throttle_enabled);
    assert_eq!(c.state("hbase:quota"), None);
}

#[test]
fn throttling_is_switched_and_stays_so() {
    let env = with_real_clock(SimFileSystem::new().env());
    let c = started(&env, 1);
    let switch = |c: &Cluster, on| {
        let request = pb::SwitchRpcThrottleRequest { rpc_throttle_enabled: on };
        let was: pb::SwitchRpcThrottleResponse = c.call("SwitchRpcThrottle", &request).unwrap();
        was.previous_rpc_throttle_enabled
    };
    assert!(switch(&c, false));
    assert!(!switch(&c, false));
    assert!(!c.master.quotas().unwrap().is_throttling);
    c.master.stop();
    drop(c);
    let c = started(&env, 2);
    assert!(!c.master.quotas().unwrap().is_throttling);
    assert!(!switch(&c, true));
    assert!(c.master.quotas().unwrap().is_throttling);
}

#[test]
fn exceeding_throttles_needs_throttles_of_servers() {
    let c = cluster();
    let switch = |on| {
        let request = pb::SwitchExceedThrottleQuotaRequest { exceed_throttle_quota_enabled: on };
        let was: Result<pb::SwitchExceedThrottleQuotaResponse, _> =
            c.call("SwitchExceedThrottleQuota", &request);
        was.map(|was| was.previous_exceed_throttle_quota_enabled)
    };
    assert!(switch(true).unwrap_err().message.starts_with("Please set region server quota"));
    let server = pb::SetQuotaRequest { region_server: Some("all".to_string()), ..Default::default() };
    set(&c, &throttled(5, server)).unwrap();
    assert!(!switch(true).unwrap());
    assert!(switch(true).unwrap() && quotas(&c).exceed_throttle);
    assert!(switch(false).unwrap() && !quotas(&c).exceed_throttle);
}

#[test]
fn a_deleted_table_loses_its_quotas() {
    let c = cluster();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    set(&c, &throttled(5, of_table("t"))).unwrap();
    set(&c, &limited(1 << 30, SpaceViolationPolicy::NoInserts, of_table("t"))).unwrap();
    until(|| quotas(&c).snapshots.contains_key(&name("t")));
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("DeleteTable", &delete("t")).unwrap();
    until(|| quotas(&c) == QuotaTable::default());
}

#[test]
fn a_namespace_has_only_so_many_tables_and_regions() {
    let c = cluster();
    let limits = [("hbase.namespace.quota.maxtables", "2"), ("hbase.namespace.quota.maxregions", "3")];
    let mut descriptor = namespace("ns");
    descriptor.configuration = limits
        .map(|(name, value)| pb::NameStringPair { name: name.to_string(), value: value.to_string() })
        .into();
    let mut bad = descriptor.clone();
    bad.configuration[0].value = "0".to_string();
    let create_namespace = |it: &pb::NamespaceDescriptor| {
        c.run(
            "CreateNamespace",
            &pb::CreateNamespaceRequest { namespace_descriptor: it.clone(), ..Default::default() },
        )
    };
    assert!(create_namespace(&bad).unwrap_err().message.contains("less than or equal to zero"));
    create_namespace(&descriptor).unwrap();
    let class =
        |result: Result<u64, RpcError>| result.unwrap_err().class.rsplit('.').next().unwrap().to_string();
    let four = create(&table("ns:t", &["f"]), &["a", "b", "c"]);
    assert_eq!(class(c.submit("CreateTable", &four)), "QuotaExceededException");
    c.run("CreateTable", &create(&table("ns:t", &["f"]), &["m"])).unwrap();
    c.run("SplitRegion", &split(&c.regions("ns:t")[0], Some("c"))).unwrap();
    until(|| c.regions("ns:t").len() == 3);
    assert_eq!(
        class(c.run("SplitRegion", &split(&c.regions("ns:t")[0], Some("a")))),
        "QuotaExceededException"
    );
    assert_eq!(
        class(c.submit("CreateTable", &create(&table("ns:u", &["f"]), &[]))),
        "QuotaExceededException"
    );
    c.run("CreateTable", &create(&table("other", &["f"]), &["a", "b", "c"])).unwrap();
    c.check();
}

/// What a table in violation is told goes to its row, and by policy `DISABLE` it is disabled and enabled again.
#[test]
fn tables_follow_their_space_quotas() {
    let c = Arc::new(cluster());
    for table_name in ["a", "b"] {
        c.run("CreateTable", &create(&table(table_name, &["f"]), &["m"])).unwrap();
    }
    let status = |table: &str| quotas(&c).snapshots.get(&name(table)).and_then(|it| it.quota_status);
    let policy = |table: &str| status(table).filter(|it| it.in_violation()).map(|it| it.violation_policy());
    c.server.set_size(&c.regions("a")[1], 5);
    set(&c, &limited(5 << 20, SpaceViolationPolicy::NoWrites, of_table("a"))).unwrap();
    until(|| status("a").is_some());
    assert_eq!(policy("a"), None);
    c.server.set_size(&c.regions("a")[0], 1);
    until(|| policy("a") == Some(SpaceViolationPolicy::NoWrites));
    assert_eq!(policy("b"), None);
    let numbers = c.master.quota_numbers();
    let a = SpaceUse { name: "a".to_string(), used_bytes: 6 << 20, limit_bytes: 5 << 20 };
    assert_eq!((numbers.quotas_count, numbers.exceeding_tables_count, numbers.tables), (1, 1, vec![a]));
    assert_eq!(
        (numbers.regions_count, numbers.exceeding_namespaces_count, numbers.namespaces),
        (4, 0, vec![])
    );
    assert!(numbers.observer_times.count > 0);
    set(&c, &limited(1 << 30, SpaceViolationPolicy::NoWrites, of_table("a"))).unwrap();
    until(|| status("a").is_some() && policy("a").is_none());
    let sizes: pb::GetSpaceQuotaRegionSizesResponse =
        c.call("GetSpaceQuotaRegionSizes", &pb::GetSpaceQuotaRegionSizesRequest {}).unwrap();
    assert_eq!(sizes.sizes.iter().map(|it| it.size()).sum::<u64>(), 6 << 20);
    let of_namespace = pb::SetQuotaRequest { namespace: Some("default".to_string()), ..Default::default() };
    set(&c, &limited(1 << 20, SpaceViolationPolicy::Disable, of_namespace.clone())).unwrap();
    until(|| c.state("a") == Some(State::Disabled) && c.state("b") == Some(State::Disabled));
    let states: pb::GetQuotaStatesResponse = c.call("GetQuotaStates", &pb::GetQuotaStatesRequest {}).unwrap();
    assert_eq!((states.table_snapshots.len(), states.ns_snapshots.len()), (1, 1));
    set(&c, &pb::SetQuotaRequest { remove_all: Some(true), ..of_namespace }).unwrap();
    until(|| c.state("a") == Some(State::Enabled) && c.state("b") == Some(State::Enabled));
    assert!(status("b").is_none());
    c.quiet();
    c.check();
}

/// Files in snapshots were counted for nobody, so that a table could use any space by being compacted between them.
#[test]
fn what_only_snapshots_hold_counts_as_used_by_their_table() {
    let sim = SimFileSystem::new();
    let env = with_real_clock(sim.env());
    let c = Arc::new(started(&env, 1));
    c.run("CreateTable", &create(&table("a", &["f"]), &[])).unwrap();
    let region = c.regions("a").remove(0);
    let family = region.dir(Path::new(ROOT)).join("f");
    env.fs.create_dir_all(&family).unwrap();
    let file = |name: &str, size| pb::snapshot_region_manifest::StoreFile {
        name: name.to_string(),
        reference: None,
        file_size: Some(size),
    };
    let write = |path: &Path, bytes: &[u8]| env.fs.put_new(path, bytes).unwrap();
    write(&family.join("live"), b"x");
    for (name, files) in
        [("s1", vec![file("live", 1), file("old", 10)]), ("s2", vec![file("old", 10), file("new", 5)])]
    {
        let dir = Path::new(ROOT).join(".hbase-snapshot").join(name);
        env.fs.create_dir_all(&dir).unwrap();
        let info = pb::SnapshotDescription {
            name: name.to_string(),
            table: Some("a".to_string()),
            ..Default::default()
        };
        let family =
            pb::snapshot_region_manifest::FamilyFiles { family_name: "f".into(), store_files: files };
        let region_manifest = pb::SnapshotRegionManifest {
            region_info: region.to_pb(),
            family_files: vec![family],
            ..Default::default()
        };
        let manifest = pb::SnapshotDataManifest {
            table_schema: table("a", &["f"]).to_pb(),
            region_manifests: vec![region_manifest],
        };
        write(&dir.join("data.manifest"), &manifest.encode_to_vec());
        write(&dir.join(".snapshotinfo"), &info.encode_to_vec());
    }
    c.server.set_size(&region, 1);
    set(&c, &limited((1 << 20) + 15, SpaceViolationPolicy::NoWrites, of_table("a"))).unwrap();
    let usage = || quotas(&c).snapshots.get(&name("a")).and_then(|it| it.quota_usage);
    until(|| usage() == Some((1 << 20) + 15));
    let sizes = |subject: QuotaSubject| quotas(&c).snapshot_sizes.remove(&subject);
    let of_table_a = || sizes(QuotaSubject::Table(name("a")));
    assert_eq!(of_table_a(), Some([("s1".to_string(), 10), ("s2".to_string(), 5)].into()));
    let of_namespace = sizes(QuotaSubject::Namespace("default".to_string()));
    assert_eq!(of_namespace, Some([(String::new(), 15)].into()));
    env.fs.remove_dir_all(&Path::new(ROOT).join(".hbase-snapshot/s1")).unwrap();
    until(|| of_table_a() == Some([("s2".to_string(), 15)].into()));
}
