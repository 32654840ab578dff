//! Endpoints as clients call them: aggregates, bulk deletes, and calls in a batch.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use crate::common;
use std::time::Duration;

use crate::common::{Lab, get, settings, table};
use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_proto::pb::bulk_delete_request::DeleteType;
use halcyon_regionserver::RegionServerSettings;
use halcyon_rpc::RpcError;
use halcyon_schema::Endpoint;
use prost::Message;

const LONG: &str = "org.apache.hadoop.hbase.client.coprocessor.LongColumnInterpreter";
const DOUBLE: &str = "org.apache.hadoop.hbase.client.coprocessor.DoubleColumnInterpreter";
const BIG_DECIMAL: &str = "org.apache.hadoop.hbase.client.coprocessor.BigDecimalColumnInterpreter";

/// A server whose regions have all endpoints.
fn lab() -> Lab {
    let mut settings: RegionServerSettings = settings();
    settings.coprocessors.region_classes = Endpoint::ALL.map(Endpoint::class).join(",");
    Lab::with(SimFileSystem::new(), settings)
}

fn exec<R: Message + Default>(
    lab: &Lab,
    service: &str,
    method: &str,
    request: &impl Message,
) -> Result<R, RpcError> {
    let call = service_call(service, method, request);
    let request = pb::CoprocessorServiceRequest { region: lab.specifier(), call };
    let (response, _): (pb::CoprocessorServiceResponse, _) = lab.call("ExecService", &request, Vec::new())?;
    assert_eq!(response.region, lab.specifier());
    Ok(R::decode(response.value.value.unwrap()).unwrap())
}

fn service_call(service: &str, method: &str, request: &impl Message) -> pb::CoprocessorServiceCall {
    pb::CoprocessorServiceCall {
        row: Bytes::new(),
        service_name: service.to_string(),
        method_name: method.to_string(),
        request: request.encode_to_vec().into(),
    }
}

pub fn mutate_rows(
    lab: &Lab,
    condition: Vec<pb::Condition>,
    mutation_request: Vec<pb::MutationProto>,
) -> Result<pb::MutateRowsResponse, RpcError> {
    let request = pb::MutateRowsRequest { condition, mutation_request, ..Default::default() };
    exec(lab, "MultiRowMutationService", "MutateRows", &request)
}

fn columns(family: &str, qualifiers: &[&str]) -> pb::Scan {
    let qualifier = qualifiers.iter().map(|q| Bytes::copy_from_slice(q.as_bytes())).collect();
    pb::Scan {
        column: vec![pb::Column { family: Bytes::copy_from_slice(family.as_bytes()), qualifier }],
        ..Default::default()
    }
}

fn request(interpreter: &str, scan: pb::Scan) -> pb::AggregateRequest {
    pb::AggregateRequest {
        interpreter_class_name: interpreter.to_string(),
        scan,
        interpreter_specific_bytes: Some(Bytes::new()),
        client_supports_partial_result: None,
    }
}

fn aggregate(lab: &Lab, method: &str, request: &pb::AggregateRequest) -> pb::AggregateResponse {
    exec(lab, "AggregateService", method, request).unwrap()
}

fn put(lab: &Lab, row: &str, qualifier: &str, value: &[u8]) {
    let cell = Cell::put(row.as_bytes(), b"f", qualifier.as_bytes(), i64::MAX, value);
    lab.mutate(common::put(1), vec![cell]).unwrap();
}

fn longs(response: &pb::AggregateResponse) -> Vec<i64> {
    response.first_part.iter().map(|part| pb::LongMsg::decode(part.clone()).unwrap().long_msg).collect()
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes.try_into().unwrap())
}

/// Rows `r00` to `r19`: column `a` counts from 0, `b` is ten times that; one value is no long.
fn filled() -> Lab {
    let lab = lab();
    for at in 0..20i64 {
        put(&lab, &format!("r{at:02}"), "a", &at.to_be_bytes());
        put(&lab, &format!("r{at:02}"), "b", &(at * 10).to_be_bytes());
        if at == 9 {
            lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
        }
    }
    put(&lab, "r05", "c", b"text");
    lab
}

#[test]
fn longs_are_aggregated() {
    let lab = filled();
    let of_a = || request(LONG, columns("f", &["a"]));
    assert_eq!(longs(&aggregate(&lab, "GetMax", &of_a())), [19]);
    assert_eq!(longs(&aggregate(&lab, "GetMin", &of_a())), [0]);
    assert_eq!(longs(&aggregate(&lab, "GetSum", &of_a())), [190]);
    assert_eq!(longs(&aggregate(&lab, "GetSum", &request(LONG, columns("f", &[])))), [190 * 11]);
    let rows = aggregate(&lab, "GetRowNum", &of_a());
    assert_eq!((number(&rows.first_part[0]), rows.second_part), (20, None));
    let of_c = aggregate(&lab, "GetRowNum", &request(LONG, columns("f", &["c"])));
    assert_eq!(number(&of_c.first_part[0]), 20, "rows with any cell of the family, as in HBase");
    let of_both = aggregate(&lab, "GetRowNum", &request(LONG, columns("f", &["a", "c"])));
    assert_eq!(number(&of_both.first_part[0]), 1, "rows with the second column");
    let average = aggregate(&lab, "GetAvg", &of_a());
    assert_eq!((longs(&average), number(&average.second_part.unwrap())), (vec![190], 20));
    let deviation = aggregate(&lab, "GetStd", &request(LONG, columns("f", &[])));
    let squares: i64 = (0..20).map(|at| (11 * at) * (11 * at)).sum();
    assert_eq!((longs(&deviation), number(&deviation.second_part.unwrap())), (vec![2090, squares], 20));
    assert_eq!(longs(&aggregate(&lab, "GetMedian", &of_a())), [190, i64::MIN]);
    let weighted = request(LONG, columns("f", &["a", "b"]));
    assert_eq!(
        longs(&aggregate(&lab, "GetMedian", &weighted)),
        [2090, 2090],
        "HBase adds both columns to both"
    );
}

#[test]
fn ranges_and_filters_are_those_of_the_scan() {
    let lab = filled();
    let range = |from: &'static str, to: &'static str| {
        let scan = columns("f", &["a"]);
        request(LONG, pb::Scan { start_row: Some(from.into()), stop_row: Some(to.into()), ..scan })
    };
    assert_eq!(longs(&aggregate(&lab, "GetSum", &range("r05", "r08"))), [5 + 6 + 7]);
    let average = aggregate(&lab, "GetAvg", &range("r05", "r08"));
    assert_eq!(number(&average.second_part.unwrap()), 3);
    for method in ["GetMax", "GetMin", "GetSum", "GetAvg", "GetStd", "GetMedian"] {
        let nothing = aggregate(&lab, method, &range("x", "z"));
        assert_eq!(nothing, pb::AggregateResponse::default(), "{method} of no rows");
        let no_value = aggregate(&lab, method, &request(LONG, columns("f", &["c"])));
        assert_eq!(no_value, pb::AggregateResponse::default(), "{method} of no long");
    }
    assert_eq!(number(&aggregate(&lab, "GetRowNum", &range("x", "z")).first_part[0]), 0);
    assert_eq!(number(&aggregate(&lab, "GetRowNum", &request("any", pb::Scan::default())).first_part[0]), 20);
    // of rows that begin with r1; the call that finds no more of them counts as a round, as in HBase
    let prefix = pb::PrefixFilter { prefix: Some("r0".into()) };
    let filter = pb::Filter {
        name: "org.apache.hadoop.hbase.filter.PrefixFilter".to_string(),
        serialized_filter: Some(prefix.encode_to_vec().into()),
    };
    let filtered = request(LONG, pb::Scan { filter: Some(filter), ..columns("f", &["a"]) });
    assert_eq!(longs(&aggregate(&lab, "GetSum", &filtered)), [45]);
    assert_eq!(number(&aggregate(&lab, "GetRowNum", &filtered).first_part[0]), 10);
    assert_eq!(number(&aggregate(&lab, "GetAvg", &filtered).second_part.unwrap()), 11);
}

/// A row of four pieces and one that ends with its piece: rounds are rows all the same.
#[test]
fn large_rows_are_one_round_each() {
    let lab = lab();
    let large = vec![7; 300_000];
    for row in ["a", "b", "c"] {
        for qualifier in 0..12 {
            put(&lab, row, &format!("q{qualifier:02}"), &large);
        }
        put(&lab, row, "long", &1i64.to_be_bytes());
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    }
    let deviation = aggregate(&lab, "GetStd", &request(LONG, columns("f", &[])));
    assert_eq!((longs(&deviation), number(&deviation.second_part.unwrap())), (vec![3, 3], 3));
    let all = request(LONG, pb::Scan { filter: None, ..columns("f", &["q00", "q01", "q02", "q03", "long"]) });
    assert_eq!(number(&aggregate(&lab, "GetRowNum", &all).first_part[0]), 3);
    let average = aggregate(&lab, "GetAvg", &all);
    assert_eq!(number(&average.second_part.unwrap()), 3);
    let rounds_of_batch = |batch| {
        let scan = pb::Scan { batch_size: Some(batch), ..columns("f", &["q00", "q01", "long"]) };
        number(&aggregate(&lab, "GetAvg", &request(LONG, scan)).second_part.unwrap())
    };
    assert_eq!(rounds_of_batch(2), 6, "a batch is a round");
    assert_eq!(rounds_of_batch(3), 4, "behind a full batch comes a round without cells, as in HBase");
}

#[test]
fn doubles_and_decimals_are_aggregated() {
    let lab = lab();
    for (row, value) in [("a", 1.5), ("b", f64::NAN), ("c", -0.0)] {
        put(&lab, row, "d", &f64::to_be_bytes(value));
    }
    let doubles = |method: &str| -> Vec<f64> {
        let response = aggregate(&lab, method, &request(DOUBLE, columns("f", &["d"])));
        let parts = response.first_part.iter();
        parts.map(|part| pb::DoubleMsg::decode(part.clone()).unwrap().double_msg).collect()
    };
    assert!(doubles("GetMax")[0].is_nan() && doubles("GetSum")[0].is_nan());
    assert!(doubles("GetMin")[0].is_sign_negative());
    assert_eq!(doubles("GetMedian")[1], f64::from_bits(1));
    for (row, unscaled, scale) in [("a", 1005, 3), ("b", -2, 0), ("c", 33, 1)] {
        put(&lab, row, "e", &[&i32::to_be_bytes(scale)[..], &i64::to_be_bytes(unscaled)].concat());
    }
    let decimals = |method: &str| -> Vec<Vec<u8>> {
        let response = aggregate(&lab, method, &request(BIG_DECIMAL, columns("f", &["e"])));
        let parts = response.first_part.iter();
        parts.map(|part| pb::BigDecimalMsg::decode(part.clone()).unwrap().bigdecimal_msg.to_vec()).collect()
    };
    let cents = |number: i64| -> Vec<u8> {
        let bytes = number.to_be_bytes();
        let short = if i8::try_from(number).is_ok() { &bytes[7..] } else { &bytes[6..] };
        [&[0, 0, 0, 2][..], short].concat()
    };
    assert_eq!(decimals("GetMax"), [cents(330)]);
    assert_eq!(decimals("GetMin"), [cents(-200)]);
    assert_eq!(decimals("GetSum"), [cents(100 - 200 + 330)]);
    assert_eq!(decimals("GetStd"), [cents(230), cents(100 + 400 + 1089)]);
    assert_eq!(decimals("GetMedian"), [cents(230), vec![0, 0, 1, 0x45, 49]]);
    put(&lab, "d", "e", b"tiny");
    let wrong = request(BIG_DECIMAL, columns("f", &["e"]));
    let error = exec::<pb::AggregateResponse>(&lab, "AggregateService", "GetSum", &wrong).unwrap_err();
    assert!(error.do_not_retry && error.message.contains("not a BigDecimal"), "{error}");
}

#[test]
fn a_service_needs_its_coprocessor() {
    let lab = Lab::new();
    let of_a = request(LONG, columns("f", &["a"]));
    let call = |lab: &Lab| exec::<pb::AggregateResponse>(lab, "AggregateService", "GetMax", &of_a);
    let error = call(&lab).unwrap_err();
    assert!(error.class.ends_with("UnknownProtocolException") && error.do_not_retry, "{error}");
    assert!(error.message.contains("service found for AggregateService in region t,,1."), "{error}");
    lab.server.close_region(lab.info.encoded_name(), false).unwrap();
    assert!(call(&lab).unwrap_err().class.ends_with("NotServingRegionException"));
    let named = table().with("coprocessor$1", format!("|{}|1073741823|", Endpoint::Aggregate.class()));
    lab.server.open_region(&lab.info, &named.into()).unwrap();
    assert_eq!(call(&lab).unwrap(), pb::AggregateResponse::default());
    let error = exec::<pb::BulkDeleteResponse>(&lab, "BulkDeleteService", "delete", &()).unwrap_err();
    assert!(error.message.contains("for BulkDeleteService in region"), "{error}");
    let error = exec::<pb::AggregateResponse>(&lab, "AggregateService", "GetMode", &of_a).unwrap_err();
    assert!(error.message.contains("Unknown method GetMode called on service"), "{error}");
}

#[test]
fn wrong_requests_are_refused_alone() {
    let lab = filled();
    for (request, words) in [
        (request("org.x.Y", columns("f", &["a"])), "ClassNotFoundException: org.x.Y"),
        (request(LONG, columns("nope", &["a"])), "nope"),
        (
            pb::AggregateRequest {
                interpreter_specific_bytes: Some("\u{7}".into()),
                ..request(LONG, columns("f", &["a"]))
            },
            "interpreter",
        ),
    ] {
        let error = exec::<pb::AggregateResponse>(&lab, "AggregateService", "GetMax", &request).unwrap_err();
        assert!(error.do_not_retry && error.to_string().contains(words), "{error}");
    }
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for service in ["AggregateService", "BulkDeleteService", "MultiRowMutationService"] {
        for len in 0..60 {
            let garbage: Vec<u8> = (0..len)
                .map(|_| {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (random >> 56) as u8
                })
                .collect();
            for method in ["GetMax", "delete", "MutateRows"] {
                let call = pb::CoprocessorServiceCall {
                    row: Bytes::new(),
                    service_name: service.to_string(),
                    method_name: method.to_string(),
                    request: garbage.clone().into(),
                };
                let request = pb::CoprocessorServiceRequest { region: lab.specifier(), call };
                let _ = lab.call::<pb::CoprocessorServiceResponse>("ExecService", &request, Vec::new());
            }
        }
    }
    assert_eq!(longs(&aggregate(&lab, "GetSum", &request(LONG, columns("f", &["a"])))), [190]);
}

#[test]
fn a_client_without_time_gets_a_part_and_comes_again() {
    let lab = filled();
    let mut wanted = request(LONG, columns("f", &["a"]));
    wanted.client_supports_partial_result = Some(true);
    let whole = aggregate(&lab, "GetSum", &wanted);
    assert_eq!((longs(&whole), whole.next_chunk_start_row), (vec![190], None));
    // without any time a call gets no further than one row
    let (mut sum, mut calls) = (0, 0);
    loop {
        let call = service_call("AggregateService", "GetSum", &wanted);
        let exec = pb::CoprocessorServiceRequest { region: lab.specifier(), call };
        let mut call = lab.raw_call("ExecService", exec.encode_to_vec().into(), Vec::new());
        call.timeout = Some(Duration::ZERO);
        let context = lab.runtime.enter();
        let outcome = halcyon_rpc::Service::call(&lab.client, call);
        let reply = lab.finish(&lab.client, outcome).unwrap();
        drop(context);
        let (response, _): (pb::CoprocessorServiceResponse, _) = common::decoded(reply);
        let part = pb::AggregateResponse::decode(response.value.value.unwrap()).unwrap();
        sum += longs(&part).iter().sum::<i64>();
        calls += 1;
        match part.next_chunk_start_row {
            Some(next) => wanted.scan.start_row = Some(next),
            None => break,
        }
    }
    assert_eq!((sum, calls), (190, 20));
}

#[test]
fn what_a_scan_finds_is_deleted() {
    let delete = |lab: &Lab, kind: DeleteType, scan: pb::Scan, timestamp: Option<u64>| {
        let request = pb::BulkDeleteRequest { scan, delete_type: kind as i32, timestamp, row_batch_size: 3 };
        let response: pb::BulkDeleteResponse = exec(lab, "BulkDeleteService", "delete", &request).unwrap();
        (response.rows_deleted, response.versions_deleted)
    };
    let lab = filled();
    let rows = pb::Scan { stop_row: Some("r10".into()), ..columns("f", &[]) };
    assert_eq!(delete(&lab, DeleteType::Row, rows.clone(), None), (10, None));
    assert_eq!(delete(&lab, DeleteType::Row, rows, None), (0, None), "nothing is left");
    assert!(lab.row("r00").is_empty() && lab.row("r09").is_empty());
    assert_eq!(lab.row("r10").len(), 2);
    assert_eq!(delete(&lab, DeleteType::Column, columns("f", &["a"]), None), (10, None));
    assert_eq!(lab.row("r10").len(), 1);
    let cell = |timestamp| Cell::put(b"v", b"f", b"q", timestamp, b"x");
    for timestamp in [1, 2, 3] {
        lab.mutate(common::put(1), vec![cell(timestamp)]).unwrap();
    }
    let of_v = |versions| pb::Scan {
        start_row: Some("v".into()),
        max_versions: Some(versions),
        ..columns("f", &["q"])
    };
    assert_eq!(delete(&lab, DeleteType::Version, of_v(2), None), (1, Some(2)));
    let left = lab.get(pb::Get { max_versions: Some(3), ..get("v") }).unwrap().1;
    assert_eq!(left.iter().map(Cell::timestamp).collect::<Vec<_>>(), [1]);
    assert_eq!(delete(&lab, DeleteType::Version, of_v(3), Some(1)), (1, Some(1)));
    assert!(lab.row("v").is_empty());
    assert_eq!(delete(&lab, DeleteType::Family, columns("f", &[]), None), (10, None));
    let rest = aggregate(&lab, "GetRowNum", &request(LONG, pb::Scan::default()));
    assert_eq!(number(&rest.first_part[0]), 0);
    let zero = pb::BulkDeleteRequest { row_batch_size: 0, ..Default::default() };
    assert!(exec::<pb::BulkDeleteResponse>(&lab, "BulkDeleteService", "delete", &zero).is_err());
}

#[test]
fn a_batch_may_call_endpoints() {
    let lab = filled();
    let service = |index, service: &str, method: &str, request: &dyn Fn() -> Vec<u8>| pb::Action {
        index: Some(index),
        service_call: Some(Box::new(pb::CoprocessorServiceCall {
            row: Bytes::new(),
            service_name: service.to_string(),
            method_name: method.to_string(),
            request: request().into(),
        })),
        ..Default::default()
    };
    let sum = || request(LONG, columns("f", &["a"])).encode_to_vec();
    let column = pb::mutation_proto::ColumnValue {
        family: "f".into(),
        qualifier_value: vec![pb::mutation_proto::column_value::QualifierValue {
            qualifier: Some("a".into()),
            value: Some(Bytes::copy_from_slice(&1000i64.to_be_bytes())),
            ..Default::default()
        }],
    };
    let put = pb::MutationProto { row: Some("x".into()), column_value: vec![column], ..common::put(0) };
    let rows = || {
        pb::MutateRowsRequest { mutation_request: vec![put.clone()], ..Default::default() }.encode_to_vec()
    };
    let action = vec![
        service(0, "AggregateService", "GetSum", &sum),
        service(1, "MultiRowMutationService", "MutateRows", &rows),
        service(2, "AggregateService", "GetSum", &sum),
        service(3, "hbase.pb.ExportService", "export", &sum),
        pb::Action::of_get(4, get("x")),
    ];
    let region_action = pb::RegionAction { region: lab.specifier(), atomic: None, action, condition: None };
    let multi = pb::MultiRequest { region_action: vec![region_action], ..Default::default() };
    let (response, cells): (pb::MultiResponse, _) = lab.call("Multi", &multi, Vec::new()).unwrap();
    let results = &response.region_action_result[0].result_or_exception;
    let sum_of = |at: usize| {
        let value = results[at].service_result.as_ref().unwrap().value.as_ref().unwrap();
        longs(&pb::AggregateResponse::decode(value.value.clone().unwrap()).unwrap())
    };
    assert_eq!((sum_of(0), sum_of(2)), (vec![190], vec![1190]), "a call sees what the batch has written");
    let error = results[3].exception.as_ref().unwrap();
    assert!(error.name.ends_with("UnknownProtocolException"), "{error:?}");
    assert_eq!((results.len(), cells.len()), (5, 1));
}

/// The client goes away while its call reads: the call ends before it has read all rows, and frees its thread.
#[test]
fn a_call_ends_when_its_client_has_gone() {
    const ROWS: u64 = 20_000;
    let mut lab = lab();
    for at in 0..ROWS {
        lab.put(&format!("r{at:06}"), "a", "text");
    }
    let name = lab.info.region_name().clone();
    let reads = |lab: &Lab| {
        let specifier = pb::RegionSpecifier { r#type: 1, value: name.clone() };
        let request = pb::GetRegionLoadRequest { table_name: None };
        let load: pb::GetRegionLoadResponse = lab.admin("GetRegionLoad", &request).unwrap();
        let load = load.region_loads.into_iter().find(|load| load.region_specifier == specifier);
        load.unwrap().read_requests_count.unwrap()
    };
    for attempt in 0u64.. {
        assert!(attempt < 500, "no call was ended while it read");
        lab.connection = common::connection(None, Some((2, 6)));
        let call = service_call("AggregateService", "GetSum", &request(LONG, columns("f", &["a"])));
        let exec = pb::CoprocessorServiceRequest { region: lab.specifier(), call };
        let call = lab.raw_call("ExecService", exec.encode_to_vec().into(), Vec::new());
        let (clock, connection) = (lab.clock.clone(), lab.connection.clone());
        let before = reads(&lab);
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(100 * (attempt % 50)));
            connection.state.gone.store(true, std::sync::atomic::Ordering::Relaxed);
            clock.advance(Duration::from_millis(200));
        });
        let context = lab.runtime.enter();
        let outcome = halcyon_rpc::Service::call(&lab.client, call);
        let result = lab.finish(&lab.client, outcome);
        drop(context);
        leaving.join().unwrap();
        let read = reads(&lab) - before;
        if read > 0 && read < ROWS {
            assert!(result.err().is_some_and(|error| error.dropped.is_some()));
            return;
        }
    }
}
