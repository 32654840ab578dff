//! Throttles and space quotas, as clients meet them.

use crate::common;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::common::{Lab, class, get, mutation, put, settings};
use halcyon_cell::{Cell, Result};
use halcyon_contract::{ALL_REGION_SERVERS, QuotaSource, QuotaSubject, QuotaView};
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_regionserver::QuotaSettings;
use halcyon_rpc::{Call, RpcError, Service};
use halcyon_schema::TableName;
use parking_lot::Mutex;
use pb::mutation_proto::MutationType;
use prost::Message;

/// What the master would say.
struct Source(Mutex<QuotaView>);

impl QuotaSource for Source {
    fn quotas(&self) -> Result<QuotaView> {
        Ok(self.0.lock().clone())
    }
}

struct Limited {
    lab: Lab,
    source: Arc<Source>,
}

impl Limited {
    fn new(quotas: &[(QuotaSubject, pb::Quotas)]) -> Limited {
        let mut settings = QuotaSettings::default();
        settings.enabled = true;
        Limited::with(quotas, settings)
    }

    fn with(quotas: &[(QuotaSubject, pb::Quotas)], settings_of_quotas: QuotaSettings) -> Limited {
        let settings =
            halcyon_regionserver::RegionServerSettings { quotas: settings_of_quotas, ..settings() };
        let lab = Lab::with(SimFileSystem::new(), settings);
        let view = QuotaView { is_throttling: true, servers_count: 1, ..QuotaView::default() };
        let source = Arc::new(Source(Mutex::new(view)));
        let weak: Weak<Source> = Arc::downgrade(&source);
        lab.server.read_quotas_from(weak);
        let limited = Limited { lab, source };
        limited.change(|view| view.table.quotas.extend(quotas.iter().cloned()));
        limited
    }

    fn change(&self, change: impl FnOnce(&mut QuotaView)) {
        change(&mut self.source.0.lock());
        self.lab.server.reload_quotas().unwrap();
    }

    fn put(&self, value: &[u8]) -> std::result::Result<(), RpcError> {
        let cell = Cell::put(b"r", b"f", b"q", i64::MAX, value);
        self.lab.mutate(put(1), vec![cell]).map(|_| ())
    }

    fn get(&self) -> std::result::Result<(), RpcError> {
        self.lab.get(get("r")).map(|_| ())
    }

    fn advance(&self, ms: u64) {
        self.lab.clock.advance(Duration::from_millis(ms));
    }
}

fn timed(limit: u64) -> Option<pb::TimedQuota> {
    let time_unit = pb::TimeUnit::Seconds as i32;
    Some(pb::TimedQuota { time_unit, soft_limit: Some(limit), ..Default::default() })
}

fn throttle(throttle: pb::Throttle) -> pb::Quotas {
    pb::Quotas { throttle: Some(throttle), ..Default::default() }
}

fn requests(limit: u64) -> pb::Quotas {
    throttle(pb::Throttle { req_num: timed(limit), ..Default::default() })
}

fn table() -> QuotaSubject {
    QuotaSubject::Table(TableName::parse(b"t").unwrap())
}

fn user() -> String {
    "tester".to_string()
}

#[test]
fn a_throttled_call_is_told_when_to_come_again() {
    let limited = Limited::new(&[(table(), requests(2))]);
    limited.put(b"1").unwrap();
    limited.get().unwrap();
    let error = limited.get().unwrap_err();
    assert!(error.class.ends_with("quotas.RpcThrottlingException"), "{error}");
    assert_eq!(error.message, "number of requests exceeded - wait 500ms");
    assert!(!error.do_not_retry);
    limited.advance(500);
    limited.get().unwrap();
    assert_eq!(class(limited.put(b"2")), "RpcThrottlingException");
}

#[test]
fn each_subject_limits_and_the_most_special_one_of_a_user_counts() {
    let subjects = [
        table(),
        QuotaSubject::Namespace("default".to_string()),
        QuotaSubject::User(user()),
        QuotaSubject::UserOnTable(user(), TableName::parse(b"t").unwrap()),
        QuotaSubject::UserOnNamespace(user(), "default".to_string()),
        QuotaSubject::RegionServer(ALL_REGION_SERVERS.to_string()),
    ];
    for subject in subjects {
        let limited = Limited::new(&[(subject.clone(), requests(1))]);
        limited.get().unwrap();
        assert_eq!(class(limited.get()), "RpcThrottlingException", "{subject:?}");
    }
    for other in [
        QuotaSubject::Table(TableName::parse(b"other").unwrap()),
        QuotaSubject::User("other".to_string()),
        QuotaSubject::UserOnTable(user(), TableName::parse(b"other").unwrap()),
        QuotaSubject::RegionServer("other".to_string()),
    ] {
        let limited = Limited::new(&[(other, requests(1))]);
        (0..3).for_each(|_| limited.get().unwrap());
    }
    let special = QuotaSubject::UserOnTable(user(), TableName::parse(b"t").unwrap());
    let limited = Limited::new(&[(special, requests(3)), (QuotaSubject::User(user()), requests(1))]);
    (0..3).for_each(|_| limited.get().unwrap());
    assert!(limited.get().is_err());
}

/// A proxy that speaks for many users names the one whose quotas count, in an attribute of each request.
#[test]
fn a_request_can_count_for_another_user() {
    let other = QuotaSubject::User("other".to_string());
    let mut settings = QuotaSettings::default();
    (settings.enabled, settings.user_override) = (true, "for".to_string());
    let limited = Limited::with(&[(other, requests(1))], settings);
    let request = pb::GetRequest { region: limited.lab.specifier(), get: get("r") };
    let get_for = |user: &'static str| {
        let attribute = pb::NameBytesPair { name: "for".into(), value: Some(user.into()) };
        let call = limited.lab.raw_call("Get", request.encode_to_vec().into(), Vec::new());
        let call = Call { attributes: vec![attribute], ..call };
        let _context = limited.lab.runtime.enter();
        limited.lab.finish(&limited.lab.client, limited.lab.client.call(call)).map(|_| ())
    };
    get_for("other").unwrap();
    assert_eq!(class(get_for("other")), "RpcThrottlingException");
    (0..3).for_each(|_| get_for("another").unwrap());
    (0..3).for_each(|_| limited.get().unwrap());
}

#[test]
fn a_user_can_be_exempt_from_the_limits_of_others() {
    let bypass = pb::Quotas { bypass_globals: Some(true), ..Default::default() };
    let limited = Limited::new(&[(table(), requests(1)), (QuotaSubject::User(user()), bypass)]);
    (0..5).for_each(|_| limited.get().unwrap());
}

#[test]
fn users_without_quotas_have_default_limits() {
    let mut quotas = QuotaSettings::default();
    quotas_set(&mut quotas);
    let limited = Limited::with(&[], quotas);
    limited.get().unwrap();
    assert_eq!(class(limited.get()), "RpcThrottlingException");
    limited.put(b"writes are not limited").unwrap();
}

fn quotas_set(quotas: &mut QuotaSettings) {
    let mut settings = halcyon_regionserver::RegionServerSettings::default();
    assert!(settings.set("hbase.quota.enabled", "true").unwrap());
    assert!(settings.set("hbase.quota.default.user.machine.read.num", "1").unwrap());
    *quotas = settings.quotas;
}

#[test]
fn sizes_are_paid_for_when_they_are_known() {
    let limited =
        Limited::new(&[(table(), throttle(pb::Throttle { write_size: timed(1000), ..Default::default() }))]);
    limited.put(&[0; 3000]).unwrap();
    let error = limited.put(b"x").unwrap_err();
    assert!(error.message.starts_with("write size limit exceeded - wait 2sec, "), "{error}");
    limited.get().unwrap();
    // As in HBase a look brings back what one second allows at most.
    for _ in 0..2 {
        limited.advance(1000);
        assert!(limited.put(b"x").is_err());
    }
    limited.advance(1000);
    limited.put(b"x").unwrap();
}

#[test]
fn actions_of_a_batch_count_and_are_refused_together() {
    let writes = throttle(pb::Throttle { write_num: timed(3), ..Default::default() });
    let limited = Limited::new(&[(table(), writes)]);
    let lab = &limited.lab;
    let batch = || {
        let action = (0..2).map(|at| pb::Action::of_mutation(at, put(1))).collect();
        let action = pb::RegionAction { region: lab.specifier(), atomic: None, action, condition: None };
        let request = pb::MultiRequest { region_action: vec![action], ..Default::default() };
        let cells = (0..2).map(|at| Cell::put(&[at], b"f", b"q", i64::MAX, b"v")).collect();
        lab.call::<pb::MultiResponse>("Multi", &request, cells).unwrap().0.region_action_result.remove(0)
    };
    assert!(batch().exception.is_none());
    let refused = batch();
    let exception = refused.exception.unwrap();
    assert!(exception.name.ends_with("RpcThrottlingException"), "{exception:?}");
    assert!(refused.result_or_exception.is_empty());
    limited.advance(1000);
    assert!(batch().exception.is_none());
}

#[test]
fn a_throttled_scan_goes_on_where_it_was() {
    let limited = Limited::new(&[]);
    let lab = &limited.lab;
    (0..20).for_each(|number| lab.put(&format!("r{number:02}"), "q", "v"));
    limited.change(|view| {
        view.table.quotas.insert(table(), requests(2));
    });
    let next = |id: u64, seq: u64| pb::ScanRequest {
        scanner_id: Some(id),
        number_of_rows: Some(5),
        next_call_seq: Some(seq),
        client_handles_partials: Some(true),
        ..Default::default()
    };
    let (opened, cells) = lab.scan(&lab.open(5, pb::Scan::default())).unwrap();
    let id = opened.scanner_id();
    let mut rows = common::rows(&cells);
    rows.extend(common::rows(&lab.scan(&next(id, 0)).unwrap().1));
    assert_eq!(class(lab.scan(&next(id, 1))), "RpcThrottlingException");
    assert_eq!(class(lab.scan(&lab.open(5, pb::Scan::default()))), "RpcThrottlingException");
    limited.advance(1000);
    rows.extend(common::rows(&lab.scan(&next(id, 1)).unwrap().1));
    rows.extend(common::rows(&lab.scan(&next(id, 2)).unwrap().1));
    assert_eq!(rows, (0..20).map(|number| format!("r{number:02}")).collect::<Vec<_>>());
    let close = pb::ScanRequest { number_of_rows: Some(0), close_scanner: Some(true), ..next(id, 3) };
    let close = pb::ScanRequest { next_call_seq: None, ..close };
    lab.scan(&close).unwrap();
    assert!(lab.scan(&next(id, 3)).unwrap().1.is_empty(), "it is closed");
}

#[test]
fn throttling_can_be_switched_off_and_limits_changed() {
    let limited = Limited::new(&[(table(), requests(1))]);
    limited.get().unwrap();
    assert!(limited.get().is_err());
    limited.change(|view| view.is_throttling = false);
    (0..5).for_each(|_| limited.get().unwrap());
    limited.change(|view| view.is_throttling = true);
    assert!(limited.get().is_err(), "what was used stays used");
    limited.change(|view| {
        view.table.quotas.insert(table(), requests(3));
    });
    (0..2).for_each(|_| limited.get().unwrap());
    assert!(limited.get().is_err());
    limited.change(|view| view.table.quotas.clear());
    (0..5).for_each(|_| limited.get().unwrap());
}

#[test]
fn a_limit_of_the_cluster_is_divided() {
    let cluster = |limit| {
        let quota =
            timed(limit).map(|it| pb::TimedQuota { scope: Some(pb::QuotaScope::Cluster as i32), ..it });
        throttle(pb::Throttle { req_num: quota, ..Default::default() })
    };
    let limited = Limited::new(&[(QuotaSubject::User(user()), cluster(6))]);
    limited.change(|view| view.servers_count = 3);
    (0..2).for_each(|_| limited.get().unwrap());
    assert!(limited.get().is_err());
    // Of a table by the regions that are here: one of four.
    let limited = Limited::new(&[(table(), cluster(8))]);
    limited.change(|view| {
        view.open_regions.insert(TableName::parse(b"t").unwrap(), 4);
    });
    (0..2).for_each(|_| limited.get().unwrap());
    assert!(limited.get().is_err());
}

#[test]
fn a_table_that_exceeds_its_space_is_closed_to_what_its_policy_names() {
    use pb::SpaceViolationPolicy::{Disable, NoInserts, NoWrites, NoWritesCompactions};
    let cell = |kind: MutationType| match kind {
        MutationType::Delete => {
            Cell::build(b"r", b"f", b"q", i64::MAX, halcyon_cell::CellType::DeleteColumn, b"", b"", 0)
        }
        MutationType::Increment => Cell::put(b"n", b"f", b"n", i64::MAX, &1i64.to_be_bytes()),
        _ => Cell::put(b"r", b"f", b"q", i64::MAX, b"v"),
    };
    let kinds = [MutationType::Put, MutationType::Delete, MutationType::Increment, MutationType::Append];
    for (policy, names) in [
        (NoInserts, "Put Increment Append"),
        (NoWrites, "Put Delete Increment Append"),
        (NoWritesCompactions, "Put Delete Increment Append"),
        (Disable, "Put Delete Increment Append"),
    ] {
        let limited = Limited::new(&[]);
        limited.put(b"before").unwrap();
        let status = pb::SpaceQuotaStatus { violation_policy: Some(policy as i32), in_violation: Some(true) };
        let snapshot = pb::SpaceQuotaSnapshot {
            quota_status: Some(status),
            quota_usage: Some(11),
            quota_limit: Some(10),
        };
        limited.change(|view| {
            view.table.snapshots.insert(TableName::parse(b"t").unwrap(), snapshot);
        });
        for kind in kinds {
            let name = format!("{kind:?}");
            let done = limited.lab.mutate(mutation(kind, 1), vec![cell(kind)]);
            assert_eq!(done.is_err(), names.contains(&name), "{policy:?} {name}");
            if let Err(error) = done {
                assert!(
                    error.class.ends_with("quotas.SpaceLimitingException") && error.do_not_retry,
                    "{error}"
                );
                assert!(error.message.starts_with(policy.as_str_name()), "{error}");
                let text = format!("{name}s are disallowed due to a space quota.");
                assert!(policy == Disable || error.message.ends_with(&text), "{error}");
            }
        }
        let compact = pb::CompactRegionRequest { region: limited.lab.specifier(), ..Default::default() };
        let compacted = limited.lab.admin::<pb::CompactRegionResponse>("CompactRegion", &compact);
        assert_eq!(compacted.is_err(), policy == NoWritesCompactions, "{policy:?} {compacted:?}");
        limited.get().unwrap();
        let told: pb::GetSpaceQuotaSnapshotsResponse =
            limited.lab.admin("GetSpaceQuotaSnapshots", &pb::GetSpaceQuotaSnapshotsRequest {}).unwrap();
        assert_eq!(told.snapshots[0].snapshot, Some(snapshot));
        limited.change(|view| view.table.snapshots.clear());
        limited.put(b"after").unwrap();
    }
}
