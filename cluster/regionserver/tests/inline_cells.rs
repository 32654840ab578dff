//! Cells in the message of a call: each of them is made with a row of its own, so that some bytes become many.

use std::time::Duration;

use bytes::Bytes;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::column_value::QualifierValue;
use halcyon_proto::pb::mutation_proto::{ColumnValue, MutationType};
use halcyon_rpc::{Call, CallClass, CallHead, RpcError, Service};
use halcyon_schema::Endpoint;
use prost::Message;

use crate::common::{Lab, class, connection, get, mutation, settings};
use crate::limits::with_room_for;

/// A server whose regions have all endpoints.
fn lab() -> Lab {
    let mut settings = settings();
    settings.coprocessors.region_classes = Endpoint::ALL.map(Endpoint::class).join(",");
    Lab::with(SimFileSystem::new(), settings)
}

/// So many short values, in a row with a long key.
fn wide(kind: MutationType, row_len: usize, count: u16) -> pb::MutationProto {
    let bytes: &'static [u8] = if kind == MutationType::Increment { &[0; 8] } else { b"" };
    let value = |at: u16| QualifierValue {
        qualifier: Some(Bytes::copy_from_slice(&at.to_be_bytes())),
        value: Some(Bytes::from_static(bytes)),
        ..Default::default()
    };
    let columns = ColumnValue { family: "f".into(), qualifier_value: (0..count).map(value).collect() };
    pb::MutationProto {
        row: Some(vec![b'r'; row_len].into()),
        column_value: vec![columns],
        associated_cell_count: None,
        ..mutation(kind, 0)
    }
}

pub fn wide_put(row_len: usize, count: u16) -> pb::MutationProto {
    wide(MutationType::Put, row_len, count)
}

pub fn mutate_request(lab: &Lab, mutation: pb::MutationProto, is_conditional: bool) -> pb::MutateRequest {
    let comparable = pb::ByteArrayComparable { value: None };
    let condition = pb::Condition {
        row: mutation.row.clone().unwrap(),
        family: Some("f".into()),
        qualifier: Some("none".into()),
        compare_type: Some(pb::CompareType::Equal as i32),
        comparator: Some(pb::Comparator {
            name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_string(),
            serialized_comparator: Some(pb::BinaryComparator { comparable }.encode_to_vec().into()),
        }),
        ..Default::default()
    };
    let condition = is_conditional.then_some(condition);
    pb::MutateRequest { region: lab.specifier(), mutation, condition, nonce_group: None }
}

pub fn multi_request(lab: &Lab, mutations: Vec<pb::MutationProto>, atomic: bool) -> pb::MultiRequest {
    let action = mutations.into_iter().zip(0..).map(|(it, index)| pb::Action::of_mutation(index, it));
    let atomic = Some(atomic);
    let action =
        pb::RegionAction { region: lab.specifier(), atomic, action: action.collect(), condition: None };
    pb::MultiRequest { region_action: vec![action], ..Default::default() }
}

fn service_call(mutations: Vec<pb::MutationProto>) -> pb::CoprocessorServiceCall {
    let request = pb::MutateRowsRequest { mutation_request: mutations, ..Default::default() };
    pb::CoprocessorServiceCall {
        row: Bytes::new(),
        service_name: "MultiRowMutationService".to_string(),
        method_name: "MutateRows".to_string(),
        request: request.encode_to_vec().into(),
    }
}

pub fn exec_request(lab: &Lab, mutations: Vec<pb::MutationProto>) -> pb::CoprocessorServiceRequest {
    pb::CoprocessorServiceRequest { region: lab.specifier(), call: service_call(mutations) }
}

fn multi_of_endpoint(lab: &Lab, mutations: Vec<pb::MutationProto>) -> pb::MultiRequest {
    let service_call = Some(Box::new(service_call(mutations)));
    let action = pb::Action { index: Some(0), service_call, ..Default::default() };
    let region = lab.specifier();
    let action = pb::RegionAction { region, atomic: None, action: vec![action], condition: None };
    pb::MultiRequest { region_action: vec![action], ..Default::default() }
}

fn mutate(lab: &Lab, mutation: pb::MutationProto, is_conditional: bool) -> Result<(), RpcError> {
    let request = mutate_request(lab, mutation, is_conditional);
    lab.call::<pb::MutateResponse>("Mutate", &request, Vec::new()).map(|_| ())
}

fn multi(lab: &Lab, request: &pb::MultiRequest) -> Result<pb::MultiResponse, RpcError> {
    lab.call("Multi", request, Vec::new()).map(|(response, _)| response)
}

fn memory_bytes(lab: &Lab) -> u64 {
    lab.server.regions().find(&lab.specifier()).unwrap().region.memstore_size().data_bytes
}

/// A Put of 130 KB became 393 MB of cells, and one of a megabyte more than the machine has.
#[test]
fn a_request_makes_no_more_cells_than_a_request_may_bring() {
    use MutationType::{Append, Increment, Put};
    let mut lab = lab();
    for kind in [Put, Increment, Append] {
        assert_eq!(class(mutate(&lab, wide(kind, 32_767, 12_000), false)), "RequestTooBigException");
    }
    let put = || wide_put(32_767, 12_000);
    assert_eq!(class(mutate(&lab, put(), true)), "RequestTooBigException");
    let parts = || vec![wide_put(32_767, 3_000); 4];
    for atomic in [false, true] {
        for mutations in [vec![put()], parts()] {
            let refused = multi(&lab, &multi_request(&lab, mutations, atomic));
            assert_eq!(class(refused), "RequestTooBigException");
        }
    }
    for mutations in [vec![put()], parts()] {
        let request = exec_request(&lab, mutations.clone());
        let refused = lab.call::<pb::CoprocessorServiceResponse>("ExecService", &request, Vec::new());
        assert_eq!(class(refused), "RequestTooBigException");
        let response = multi(&lab, &multi_of_endpoint(&lab, mutations)).unwrap();
        let entry = &response.region_action_result[0].result_or_exception[0];
        let refused = entry.exception.as_ref().expect("an exception");
        assert!(refused.name.ends_with(".RequestTooBigException"), "{}", refused.name);
    }
    let error = mutate(&lab, put(), false).unwrap_err();
    assert!(error.do_not_retry && error.message.contains("hbase.ipc.max.request.size"), "{error}");
    lab.connection = connection(None, Some((1, 2)));
    assert_eq!(class(mutate(&lab, put(), false)), "DoNotRetryIOException", "it does not know the other one");
    assert_eq!(memory_bytes(&lab), 0, "nothing was written");
}

/// What is made of values was in no account: only what the message becomes.
#[test]
fn room_is_asked_for_cells_before_they_are_made() {
    let lab = lab();
    let told = |method: &str, request: &dyn Fn() -> Vec<u8>| {
        let param = request();
        lab.client.decoded_bytes(&CallHead { method, priority: 0, param: &param }, usize::MAX)
    };
    let puts = || vec![wide_put(10_000, 500); 2];
    for told in [
        told("Mutate", &|| mutate_request(&lab, wide_put(10_000, 1_000), true).encode_to_vec()),
        told("Multi", &|| multi_request(&lab, puts(), true).encode_to_vec()),
        told("Multi", &|| multi_of_endpoint(&lab, puts()).encode_to_vec()),
        told("ExecService", &|| exec_request(&lab, puts()).encode_to_vec()),
    ] {
        assert!((10_000_000..20_000_000).contains(&told), "{told}");
    }
    // The row of one part, and the values of another: they are put together. No client does that, and it is taken for the worst.
    let in_parts = told("Mutate", &|| {
        let no_row = pb::MutationProto { row: None, ..wide_put(1, 1_000) };
        let no_values = pb::MutationProto { column_value: Vec::new(), ..wide_put(10_000, 0) };
        let of = |mutation: pb::MutationProto| {
            pb::MutateRequest { mutation, ..Default::default() }.encode_to_vec()
        };
        [of(no_row), of(no_values)].concat()
    });
    assert!(in_parts >= 10_000_000, "{in_parts}");
    let beyond = told("Mutate", &|| mutate_request(&lab, wide_put(32_767, 60_000), false).encode_to_vec());
    assert!(beyond > 1_900_000_000, "{beyond}");
}

/// An event loop made all of the copies before it looked how many these were.
#[test]
fn many_copies_of_a_row_are_made_on_the_pool() {
    let lab = lab();
    let pooled = |work: &dyn Fn()| {
        let before = lab.server.counters.pooled.get();
        work();
        lab.server.counters.pooled.get() - before
    };
    let written = |put: pb::MutationProto| {
        let row = put.row.clone().unwrap();
        let count = put.column_value[0].qualifier_value.len();
        let found = lab.get(pb::Get { row, ..get("") }).unwrap().1;
        assert_eq!(found.len(), count);
    };
    for (row_len, expected) in [(20, 0), (1_000, 1)] {
        let put = || wide_put(row_len, 900);
        assert_eq!(pooled(&|| mutate(&lab, put(), false).unwrap()), expected);
        written(put());
        let put = || wide_put(row_len + 1, 500);
        let response = || multi(&lab, &multi_request(&lab, vec![put()], false)).unwrap();
        let multi = || assert_eq!(response().region_action_result[0].exception, None);
        assert_eq!(pooled(&multi), expected);
        written(put());
        let put = || wide_put(row_len + 2, 900);
        let check = || mutate(&lab, put(), true).unwrap();
        assert_eq!(pooled(&check), expected);
        written(put());
    }
}

/// A call that needed more room than there was kept those behind it waiting, all Gets of its class among them, as long as it liked.
#[test]
fn who_needs_much_room_is_refused_when_its_turn_has_come() {
    let (lab, queues, other) = with_room_for(8 << 20, 2 << 20);
    let held = queues.reserve(&other, 3 << 20).unwrap();
    let puts = || vec![wide_put(6_000, 900)];
    assert_eq!(class(mutate(&lab, puts().remove(0), false)), "RegionTooBusyException");
    assert_eq!(class(multi(&lab, &multi_request(&lab, puts(), false))), "RegionTooBusyException");
    let exec = exec_request(&lab, puts());
    let refused = lab.call::<pb::CoprocessorServiceResponse>("ExecService", &exec, Vec::new());
    assert_eq!(class(refused), "RegionTooBusyException");
    assert_eq!(memory_bytes(&lab), 0, "nothing was written");
    assert_eq!(queues.reserved_bytes(), 3 << 20, "and nothing is kept");
    drop(held);
    mutate(&lab, puts().remove(0), false).unwrap();
    assert_eq!(queues.reserved_bytes(), 0, "all is given back");
}

/// The message of such a call is so short that no room was kept for it, and its cells have megabytes.
#[test]
fn cells_of_short_messages_wait_for_room() {
    let (lab, queues, other) = with_room_for(8 << 20, 2 << 20);
    let held = queues.reserve(&other, 7 << 20).unwrap();
    let put = wide_put(6_000, 900);
    assert!(put.encoded_len() < 15_000);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| mutate(&lab, put, false));
        halcyon_env::Env::real().clock.sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished() && memory_bytes(&lab) == 0, "there is no room for 5 MB");
        drop(held);
        // Whoever waits is looked at again when another call ends, which has a queue of its own.
        let nothing = pb::BulkLoadHFileRequest { region: lab.specifier(), ..Default::default() };
        let call = lab.raw_call("BulkLoadHFile", nothing.encode_to_vec().into(), Vec::new());
        let call = Call { class: CallClass::Write, ..call };
        _ = lab.finish(&lab.client, lab.client.call(call));
        waiting.join().unwrap().unwrap();
    });
    assert!(memory_bytes(&lab) > 5_000_000);
    assert_eq!(queues.reserved_bytes(), 0, "all is given back");
}
