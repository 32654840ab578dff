//! No request, record or row keeps a master from starting, and no procedure keeps others from ending.
//!
//! A split key with which the name of a region was longer than a row once ended the process by an assertion, and again at each start,
//! because the record of the procedure was still there.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use bytes::Bytes;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_proto::pb::table_state::State;
use halcyon_schema::{RegionInfo, TableDescriptor};
use prost::Message;

/// As the master writes it, the fields that count here.
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
struct CreateTable {
    #[prost(message, required, tag = "1")]
    schema: pb::TableSchema,
    #[prost(message, repeated, tag = "2")]
    regions: Vec<pb::RegionInfo>,
}

fn start(sim: &SimFileSystem, start_code: i64) -> Cluster {
    Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), start_code).unwrap()
}

fn leave_record(sim: &SimFileSystem, name: &str, bytes: &[u8]) {
    let fs = sim.env().fs;
    let all = Path::new(ROOT).join("MasterData/procedures");
    let of_master = fs.list(&all).unwrap().into_iter().next().unwrap();
    fs.replace(&all.join(of_master.name).join(name), bytes).unwrap();
}

fn leave(sim: &SimFileSystem, id: u64, kind: &str, step: u32, payload: Vec<u8>) {
    let record = Record { id, kind: kind.to_string(), step, payload };
    leave_record(sim, &id.to_string(), &[&[1][..], &record.encode_to_vec()].concat());
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn until_set_aside(c: &Cluster, id: u64) -> String {
    let mut state = String::new();
    until("it is set aside", || {
        let found = c.master.procedures().into_iter().find(|procedure| procedure.id == id);
        state = found.map(|procedure| procedure.state).unwrap_or_default();
        state.starts_with("is set aside")
    });
    state
}

fn end(c: &Cluster, id: u64, method: &str) {
    let ended = match method {
        "abort" => {
            let request = pb::AbortProcedureRequest { proc_id: id, may_interrupt_if_running: Some(true) };
            c.call::<pb::AbortProcedureResponse>("AbortProcedure", &request).unwrap().is_procedure_aborted
        }
        _ => {
            let request = pb::BypassProcedureRequest { proc_id: vec![id], ..Default::default() };
            answer::<pb::BypassProcedureResponse>(&c.hbck, "BypassProcedure", &request).unwrap().bypassed[0]
        }
    };
    assert!(ended, "{method} of {id}");
    until("it has ended", || c.master.procedures().iter().all(|procedure| procedure.id != id));
}

fn alter_default_namespace(c: &Cluster, value: &str) {
    let mut descriptor = namespace("default");
    descriptor.configuration.push(pb::NameStringPair { name: "x".to_string(), value: value.to_string() });
    let request = pb::ModifyNamespaceRequest { namespace_descriptor: descriptor, ..Default::default() };
    c.run("ModifyNamespace", &request).unwrap();
}

#[test]
fn a_procedure_that_fails_in_an_assertion_is_set_aside_also_after_a_restart() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    c.server.set_fault("create_region_files", Some(ServerFault::Panics));
    let id = c.submit("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    let state = until_set_aside(&c, id);
    assert!(
        state.contains("'write files'") && state.contains("create_region_files does not hold"),
        "{state}"
    );
    c.server.set_fault("create_region_files", None);
    // Nobody else waits for it.
    alter_default_namespace(&c, "1");
    c.run("CreateTable", &create(&table("u", &["f"]), &[])).unwrap();
    drop(c);

    let c = start(&sim, 2);
    assert!(until_set_aside(&c, id).contains("create_region_files does not hold"));
    alter_default_namespace(&c, "2");
    c.run("DisableTable", &disable("u")).unwrap();
    c.run("DeleteTable", &delete("u")).unwrap();
    let refused = answer::<pb::GetTableStateResponse>(
        &c.hbck,
        "SetTableStateInMeta",
        &pb::SetTableStateInMetaRequest { table_name: name("t").to_pb(), ..Default::default() },
    );
    assert!(refused.unwrap_err().message.contains(&format!("Procedure {id}")));
    end(&c, id, "abort");
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.check();
}

#[test]
fn an_undo_that_fails_in_an_assertion_is_set_aside() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    c.server.set_fault("open_region", Some(ServerFault::Panics));
    let id = c.submit("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    assert!(until_set_aside(&c, id).contains("'open regions'"));
    end(&c, id, "bypass");
    c.server.set_fault("open_region", None);
    assert_eq!(c.state("t"), Some(State::Enabling), "a bypass leaves it as it is");
}

#[test]
fn a_request_that_cannot_be_checked_is_refused() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.server.set_fault("region_info", Some(ServerFault::Panics));
    let error = c.run("SplitRegion", &split(&c.regions("t")[0], Some("m"))).unwrap_err();
    assert!(error.message.contains("region_info does not hold"), "{error}");
    c.server.set_fault("region_info", None);
    c.run("SplitRegion", &split(&c.regions("t")[0], Some("m"))).unwrap();
    c.check();
}

#[test]
fn records_that_cannot_be_read_are_set_aside() {
    let sim = SimFileSystem::new();
    drop(start(&sim, 1));
    leave_record(&sim, "501", b"");
    leave_record(&sim, "502", b"\x02of a later program");
    leave(&sim, 503, "no_such_kind", 0, Vec::new());
    leave(&sim, 504, "create_table", 1, b"nonsense".to_vec());
    leave(&sim, 505, "delete_namespace", 0, b"n".to_vec());
    leave_record(&sim, "506.ended", b"\x01nonsense");
    for start_code in 2..4 {
        let c = start(&sim, start_code);
        for (id, word) in [(501, "501"), (502, "format"), (503, "no_such_kind"), (504, "create_table")] {
            let state = until_set_aside(&c, id);
            assert!(state.contains(word), "{state}");
        }
        c.run("CreateTable", &create(&table(&format!("t{start_code}"), &["f"]), &[])).unwrap();
    }
    let c = start(&sim, 4);
    for id in 501..505 {
        until_set_aside(&c, id);
        end(&c, id, "bypass");
    }
    drop(c);
    start(&sim, 5).check();
}

/// A thread looked at each of them after a start, and did nothing. Who wanted to end one meanwhile was told that it could not be.
#[test]
fn what_is_set_aside_can_be_ended_as_soon_as_a_master_has_started() {
    let sim = SimFileSystem::new();
    let (mut created, numbers) = (0, 501..=520);
    for start_code in 1..=20 {
        let c = start(&sim, start_code);
        if start_code > 1 {
            let request =
                pb::BypassProcedureRequest { proc_id: numbers.clone().collect(), ..Default::default() };
            let ended = answer::<pb::BypassProcedureResponse>(&c.hbck, "BypassProcedure", &request).unwrap();
            assert!(ended.bypassed.iter().all(|ended| *ended), "{:?}", ended.bypassed);
            end(&c, created, "abort");
        }
        c.quiet();
        assert_eq!(c.state("t"), None, "it is undone");
        c.server.set_fault("create_region_files", Some(ServerFault::Panics));
        created = c.submit("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
        until_set_aside(&c, created);
        drop(c);
        numbers.clone().for_each(|id| leave_record(&sim, &id.to_string(), b""));
    }
}

fn region(table: &TableDescriptor, start: &[u8], end: &[u8]) -> RegionInfo {
    let key = Bytes::copy_from_slice;
    RegionInfo::new(table.name().clone(), key(start), key(end), 1_700_000_000_000)
}

/// What a program before this one has taken, and failed over at each start.
#[test]
fn a_creation_with_a_region_name_that_is_too_long_is_undone() {
    for step in 0..2 {
        let sim = SimFileSystem::new();
        drop(start(&sim, 1));
        let (poisoned, key) = (table("t", &["f"]), vec![b'm'; 32_800]);
        let regions = [region(&poisoned, b"", &key), region(&poisoned, &key, b"")];
        if step == 1 {
            let fs = sim.env().fs;
            for region in &regions {
                fs.create_dir_all(&region.dir(Path::new(ROOT)).join("f")).unwrap();
            }
        }
        let payload = CreateTable {
            schema: poisoned.to_pb(),
            regions: regions.iter().map(RegionInfo::to_pb).collect(),
        };
        leave(&sim, 601, "create_table", step, payload.encode_to_vec());
        let c = start(&sim, 2);
        c.quiet();
        assert_eq!(c.state("t"), None);
        c.run("CreateTable", &create(&poisoned, &["m"])).unwrap();
        c.check();
    }
}

#[test]
fn names_and_keys_are_refused_that_no_row_and_no_file_can_have() {
    let (_sim, c) = Cluster::simulated();
    let refused = |method: &str, request: &dyn Fn() -> Vec<u8>, word: &str| {
        let request = Raw(request());
        let error = c.submit(method, &request).unwrap_err();
        assert!(error.message.contains(word) && error.message.len() < 500, "{method}: {error}");
    };
    let with_key = |name: &str, len: usize| {
        let mut request = create(&table(name, &["f"]), &[]);
        request.split_keys.push(vec![b'm'; len].into());
        request
    };
    refused("CreateTable", &|| with_key("b1b", 32_716).encode_to_vec(), "a key of 32716 bytes");
    refused("CreateTable", &|| with_key("b1bbbb", 32_713).encode_to_vec(), "a key of 32713 bytes");
    c.run("CreateTable", &with_key("b1a", 32_715)).unwrap();
    let first = c.regions("b1a").remove(0);
    let mut request = split(&first, None);
    request.split_row = Some([&b"a"[..], &[b'm'; 32_715]].concat().into());
    refused("SplitRegion", &|| request.encode_to_vec(), "a key of 32716 bytes");

    let long = "n".repeat(256);
    refused("CreateTable", &|| create(&table(&long, &["f"]), &[]).encode_to_vec(), "a name of 256 bytes");
    let in_namespace = |name: &str| pb::CreateNamespaceRequest {
        namespace_descriptor: namespace(name),
        ..Default::default()
    };
    refused("CreateNamespace", &|| in_namespace(&long).encode_to_vec(), "a name of 256 bytes");
    c.run("CreateNamespace", &in_namespace(&long[1..])).unwrap();
    refused("Snapshot", &|| snapshot(&long, "b1a").encode_to_vec(), "a name of 256 bytes");
    refused("RestoreSnapshot", &|| restore(&long, "b1a").encode_to_vec(), "doesn't exist");

    let copies = table("t", &["f"]).with("hbase.table.sanity.checks", "false");
    let with_copies =
        |count: &str| create(&copies.clone().with("REGION_REPLICATION", count), &["m"]).encode_to_vec();
    refused("CreateTable", &|| with_copies("2147483647"), "Region Replication cannot exceed");
    refused("CreateTable", &|| with_copies("60000"), "2 regions in 60000 copies");
    let rate = family("f").with_configuration("io.storefile.bloom.error.rate", "NaN");
    let nan = TableDescriptor::new(name("t")).with_family(rate);
    refused("CreateTable", &|| create(&nan, &[]).encode_to_vec(), "io.storefile.bloom.error.rate");
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    refused("ModifyTable", &|| modify(&nan).encode_to_vec(), "io.storefile.bloom.error.rate");
    c.check();
}

/// A request that is encoded already.
#[derive(Clone, Debug, Default, PartialEq)]
struct Raw(Vec<u8>);

impl Message for Raw {
    fn encode_raw(&self, buf: &mut impl bytes::BufMut) {
        buf.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        _: u32,
        _: prost::encoding::WireType,
        _: &mut impl bytes::Buf,
        _: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        unreachable!("requests are not decoded here")
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// A creation whose first step failed again and again kept the namespace: an `alter_namespace` waited for it, and each later procedure
/// of that namespace for the alteration.
#[test]
fn a_step_that_fails_again_and_again_keeps_nobody_else() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("u", &["f"]), &[])).unwrap();
    c.server.set_fault("create_region_files", Some(ServerFault::Fails));
    let id = c.submit("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    until("it fails again and again", || {
        c.master.procedures().iter().any(|it| it.id == id && it.state.contains("failed 4 times"))
    });
    alter_default_namespace(&c, "1");
    c.run("DisableTable", &disable("u")).unwrap();
    c.server.set_fault("create_region_files", None);
    c.wait(id).unwrap();
    c.run("EnableTable", &enable("u")).unwrap();
    c.check();
}

/// While a creation fails again and again, others have its namespace, and the table is not known yet. What it has written was removed
/// with the namespace, and the creation went on in a namespace that was gone.
#[test]
fn a_namespace_is_not_deleted_under_a_creation() {
    let (_sim, c) = Cluster::simulated();
    let request = pb::CreateNamespaceRequest { namespace_descriptor: namespace("n"), ..Default::default() };
    c.run("CreateNamespace", &request).unwrap();
    c.server.set_fault("create_region_files", Some(ServerFault::Fails));
    let id = c.submit("CreateTable", &create(&table("n:t", &["f"]), &[])).unwrap();
    until("it fails again and again", || {
        c.master.procedures().iter().any(|it| it.id == id && it.state.contains("failed 4 times"))
    });
    let request = pb::DeleteNamespaceRequest { namespace_name: "n".to_string(), ..Default::default() };
    let error = c.run("DeleteNamespace", &request).unwrap_err();
    assert!(error.message.contains("data/n/t"), "{error}");
    c.server.set_fault("create_region_files", None);
    c.wait(id).unwrap();
    c.run("DisableTable", &disable("n:t")).unwrap();
    c.run("DeleteTable", &delete("n:t")).unwrap();
    c.run("DeleteNamespace", &request).unwrap();
    assert!(!c.env.fs.exists(&c.root.join("data/n")).unwrap());
    c.check();
}
