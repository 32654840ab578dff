//! Regions with coprocessors while there is no JVM for them: nothing is carried out without its hooks, and what has no coprocessors works.
//! With a JVM: `testing/compat/coprocessors.sh`.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use crate::common;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Lab, get, settings, table};
use halcyon_cell::Cell;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_regionserver::{JvmSurroundings, RegionServerSettings};
use halcyon_rpc::{RpcError, Service};
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;

fn lab(java: &str) -> Lab {
    let mut settings: RegionServerSettings = settings();
    settings.coprocessors.region_classes = "org.x.Observer".to_string();
    settings.coprocessors.host_classpath = "/nowhere.jar".to_string();
    settings.coprocessors.host_java = java.to_string();
    Lab::with(SimFileSystem::new(), settings)
}

/// Each kind of call, as it ends.
fn calls(lab: &Lab) -> Vec<RpcError> {
    let cell = || Cell::put(b"r", b"f", b"q", i64::MAX, b"v");
    let scan = lab.open(1, pb::Scan::default());
    let call = pb::CoprocessorServiceCall {
        service_name: "OtherService".to_string(),
        method_name: "other".to_string(),
        ..Default::default()
    };
    let exec = pb::CoprocessorServiceRequest { region: lab.specifier(), call };
    vec![
        lab.get(get("r")).map(drop).unwrap_err(),
        lab.mutate(common::put(1), vec![cell()]).map(drop).unwrap_err(),
        lab.scan(&scan).map(drop).unwrap_err(),
        lab.call::<pb::CoprocessorServiceResponse>("ExecService", &exec, Vec::new()).map(drop).unwrap_err(),
    ]
}

#[test]
fn without_its_jvm_nothing_is_read_or_written() {
    let lab = lab("/nowhere/java");
    lab.server.host_coprocessors(JvmSurroundings::default()).unwrap();
    let begun = Instant::now();
    for error in calls(&lab) {
        assert!(error.class.ends_with("java.io.IOException") && !error.do_not_retry, "{error:?}");
        assert!(error.message.contains("the JVM of coprocessors is not running"), "{error:?}");
        assert!(error.message.contains("/nowhere/java"), "what to look at is named: {error:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "no call waits for what does not come");
}

/// Edits of another cluster were written past the observers of the table (`TestMasterReplication` of HBase).
#[test]
fn replicated_edits_are_not_written_past_coprocessors() {
    let lab = lab("/nowhere/java");
    lab.server.host_coprocessors(JvmSurroundings::default()).unwrap();
    let writes = || lab.server.server_load().write_requests_count.unwrap_or(0);
    let before = writes();
    let key = pb::WalKey {
        encoded_region_name: "there".into(),
        table_name: lab.info.table().to_string().into(),
        write_time: 1_699_999_999_000,
        ..Default::default()
    };
    let entry = pb::WalEntry { key, associated_cell_count: Some(1), ..Default::default() };
    let request = pb::ReplicateWalEntryRequest { entry: vec![entry], ..Default::default() };
    let cell = Cell::put(b"r", b"f", b"q", 1, b"v");
    let call = lab.raw_call("ReplicateWALEntry", request.encode_to_vec().into(), vec![cell]);
    let error = lab.finish(&lab.admin, lab.admin.call(call)).map(drop).unwrap_err();
    // The client, which would ask the JVM, has no threads in this test.
    assert!(error.message.contains("the server does not serve yet"), "{error:?}");
    assert_eq!(writes(), before);
}

/// A program that ends at once is not a JVM, either.
#[test]
fn a_jvm_that_ends_at_its_start_is_told_of() {
    let lab = lab("/bin/false");
    lab.server.host_coprocessors(JvmSurroundings::default()).unwrap();
    for error in calls(&lab) {
        assert!(error.message.contains("it ended at its start"), "{error:?}");
    }
}

/// A table without coprocessors needs the JVM only for filters of classes that are there.
#[test]
fn a_filter_of_another_class_is_for_the_jvm() {
    let mut settings: RegionServerSettings = settings();
    settings.coprocessors.host_classpath = "/nowhere.jar".to_string();
    settings.coprocessors.host_java = "/nowhere/java".to_string();
    let lab = Lab::with(SimFileSystem::new(), settings);
    lab.server.host_coprocessors(JvmSurroundings::default()).unwrap();
    lab.put("r", "q", "v");
    assert_eq!(lab.row("r"), ["v"]);
    let other = pb::Filter { name: "org.x.Filter".to_string(), serialized_filter: None };
    let own = pb::Filter {
        name: "org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter".to_string(),
        serialized_filter: None,
    };
    let with = |filter: &pb::Filter| pb::Get { filter: Some(filter.clone()), ..get("r") };
    lab.get(with(&own)).unwrap();
    let scan = lab.open(1, pb::Scan { filter: Some(other.clone()), ..Default::default() });
    let errors = [lab.get(with(&other)).map(drop), lab.scan(&scan).map(drop)];
    for error in errors.map(Result::unwrap_err) {
        assert!(error.message.contains("the JVM of coprocessors is not running"), "{error:?}");
    }
}

#[test]
fn without_the_setting_a_region_does_not_open() {
    let lab = Lab::with(SimFileSystem::new(), settings());
    let name = TableName::parse(b"observed").unwrap();
    let info = RegionInfo::new(name.clone(), "".into(), "".into(), 1);
    let observed = table().with("coprocessor$1", "|org.x.Observer|1|");
    let error = lab.server.open_region(&info, &Arc::new(observed)).unwrap_err();
    for word in ["org.x.Observer", "halcyon.coprocessor.host.classpath"] {
        assert!(error.message().contains(word), "{error}");
    }
    lab.put("r", "q", "v"); // the other one works
}
