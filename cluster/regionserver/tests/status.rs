//! Numbers that the server tells of itself are true: `status 'detailed'`, `hbtop` and balancers read them.

use crate::common;
use std::time::Duration;

use crate::common::{Lab, class, mutation, put, settings};
use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::sim::SimFileSystem;
use halcyon_env::{Clock, Env};
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::MutationType;
use halcyon_proto::pb::slow_log_response_request::{FilterByOperator, LogType};
use halcyon_regionserver::RegionServerSettings;
use halcyon_rpc::{AnsweredCalls, CallClass, NotedCall, Service, Tags};
use halcyon_schema::RegionInfo;
use prost::Message;

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        Env::real().clock.sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

fn region_load(lab: &Lab) -> pb::RegionLoad {
    lab.server.server_load().region_loads.remove(0)
}

fn flush(lab: &Lab) {
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
}

fn filled(rows: usize) -> Lab {
    let lab = Lab::new();
    (0..rows).for_each(|row| lab.put(&format!("r{row:02}"), "q", "value"));
    lab
}

fn prefix_filter(prefix: &str) -> pb::Filter {
    let serialized = pb::PrefixFilter { prefix: Some(prefix.to_string().into()) }.encode_to_vec();
    pb::Filter {
        name: "org.apache.hadoop.hbase.filter.PrefixFilter".to_string(),
        serialized_filter: Some(serialized.into()),
    }
}

/// Gets alone were counted: whoever scanned saw no load.
#[test]
fn scans_count_a_read_for_each_row_and_filtered_rows_are_counted() {
    let lab = filled(10);
    lab.row("r03");
    assert_eq!(region_load(&lab).read_requests_count(), 1);
    let (response, _) = lab.scan(&lab.open(100, pb::Scan::default())).unwrap();
    assert!(!response.more_results_in_region());
    assert_eq!(region_load(&lab).read_requests_count(), 11);
    flush(&lab); // a scan that may need the disk, and runs twice perhaps, counts once
    lab.scan(&lab.open(4, pb::Scan::default())).unwrap();
    assert_eq!(region_load(&lab).read_requests_count(), 15);
    assert_eq!(region_load(&lab).filtered_read_requests_count(), 0);
    // One call looks for a row and drops others on the way, as many as it tells the client.
    let filtered = pb::Scan { filter: Some(prefix_filter("r08")), ..Default::default() };
    let tracked = pb::ScanRequest { track_scan_metrics: Some(true), ..lab.open(1, filtered) };
    let metrics = lab.scan(&tracked).unwrap().0.scan_metrics.unwrap().metrics;
    let dropped = metrics.iter().find(|pair| pair.name() == "ROWS_FILTERED").unwrap().value() as u64;
    assert!(dropped >= 1);
    assert_eq!(region_load(&lab).read_requests_count(), 16);
    assert_eq!(region_load(&lab).filtered_read_requests_count(), dropped);
    let get = pb::Get { filter: Some(prefix_filter("x")), ..common::get("r01") };
    lab.get(get).unwrap();
    assert_eq!(region_load(&lab).filtered_read_requests_count(), dropped + 1);
    // As in HBase, an Increment reads before it writes.
    let cell = Cell::put(b"n", b"f", b"n", i64::MAX, &1i64.to_be_bytes());
    lab.mutate(mutation(MutationType::Increment, 1), vec![cell]).unwrap();
    assert_eq!((region_load(&lab).read_requests_count(), region_load(&lab).write_requests_count()), (18, 11));
}

#[test]
fn sums_of_the_server_never_fall_and_its_rate_is_of_a_fixed_window() {
    let lab = filled(20);
    lab.scan(&lab.open(100, pb::Scan::default())).unwrap();
    let first = lab.server.server_load();
    assert_eq!(first.total_number_of_requests(), 21);
    assert_eq!(first.report_start_time(), 1_700_000_000_000, "the server's start, not 1970");
    assert_eq!((first.number_of_requests(), first.write_requests_count()), (0, 20));
    lab.clock.advance(Duration::from_secs(5));
    eventually("the window is over", || lab.server.server_load().number_of_requests() == 4);
    lab.server.close_region(lab.info.encoded_name(), false).unwrap();
    let closed = lab.server.server_load();
    assert!(closed.region_loads.is_empty());
    assert_eq!((closed.total_number_of_requests(), closed.write_requests_count()), (21, 20));
    assert_eq!(closed.number_of_requests(), 4, "asking again does not change it");
}

#[test]
fn the_port_of_the_page_and_what_each_user_does() {
    let lab = filled(3);
    lab.server.set_info_port(16030);
    let info: pb::GetServerInfoResponse =
        lab.admin("GetServerInfo", &pb::GetServerInfoRequest::default()).unwrap();
    assert_eq!(info.server_info.webui_port, Some(16030));
    lab.row("r01");
    lab.scan(&lab.open(2, pb::Scan::default())).unwrap();
    let load = lab.server.server_load();
    assert_eq!(load.info_server_port, Some(16030));
    let [user] = &load.user_loads[..] else { panic!("{:?}", load.user_loads) };
    let client = pb::ClientMetrics {
        host_name: "127.0.0.1".to_string(),
        read_requests_count: Some(3),
        write_requests_count: Some(3),
        filtered_requests_count: Some(0),
    };
    assert_eq!((&*user.user_name, &user.client_metrics[..]), ("tester", &[client][..]));
}

#[test]
fn sizes_of_indexes_and_readers_of_files() {
    let lab = filled(10);
    let empty = region_load(&lab);
    assert_eq!((empty.storefile_index_size_kb, empty.total_static_bloom_size_kb), (Some(0), Some(0)));
    flush(&lab);
    let load = region_load(&lab);
    for (name, size) in [
        ("index", load.storefile_index_size_kb()),
        ("root index", u64::from(load.root_index_size_kb())),
        ("all of the index", u64::from(load.total_static_index_size_kb())),
        ("bloom filters", u64::from(load.total_static_bloom_size_kb())),
    ] {
        assert!((1..100).contains(&size), "{name}: {size} KiB");
    }
    assert_eq!(load.store_ref_count(), 0);
    let (open, _) = lab.scan(&lab.open(1, pb::Scan::default())).unwrap();
    assert_eq!(region_load(&lab).store_ref_count(), 1);
    let close =
        pb::ScanRequest { scanner_id: open.scanner_id, close_scanner: Some(true), ..Default::default() };
    lab.scan(&close).unwrap();
    eventually("the scanner lets go of the file", || region_load(&lab).store_ref_count() == 0);
}

/// A file that no major compaction wrote made the time of the last one unknown.
#[test]
fn compactions_tell_how_far_they_are_and_when_the_last_major_one_was() {
    let lab = filled(10);
    flush(&lab);
    lab.put("s", "q", "v");
    flush(&lab);
    let before = region_load(&lab);
    assert_eq!((before.total_compacting_k_vs(), before.last_major_compaction_ts()), (0, 0));
    let compact = pb::CompactRegionRequest { region: lab.specifier(), major: Some(true), family: None };
    lab.admin::<pb::CompactRegionResponse>("CompactRegion", &compact).unwrap();
    eventually("the compaction ends", || region_load(&lab).last_major_compaction_ts() > 0);
    eventually("all cells are counted", || {
        let load = region_load(&lab);
        (load.total_compacting_k_vs(), load.current_compacted_k_vs()) == (11, 11)
    });
    let at = region_load(&lab).last_major_compaction_ts();
    lab.clock.advance(Duration::from_secs(1));
    lab.put("t", "q", "v");
    flush(&lab);
    assert_eq!(region_load(&lab).last_major_compaction_ts(), at, "a newer file does not matter");
}

#[test]
fn files_that_are_cached_as_a_whole_are_listed() {
    let mut settings = common::settings();
    settings.region.prefetch_blocks_on_open = true;
    let fs = SimFileSystem::new();
    let lab = Lab::with(fs.clone(), settings.clone());
    lab.put("r", "q", "v");
    let cached = |lab: &Lab| -> Vec<String> {
        lab.admin::<pb::GetCachedFilesListResponse>(
            "GetCachedFilesList",
            &pb::GetCachedFilesListRequest::default(),
        )
        .unwrap()
        .cached_files
    };
    assert!(cached(&lab).is_empty());
    lab.server.stop().unwrap();
    let again = Lab::with(fs.clone(), settings);
    eventually("the file is in the cache", || cached(&again).len() == 1);
    let name = cached(&again).remove(0);
    assert!(fs.dump().iter().any(|(path, _)| path.ends_with(&name)), "{name} is a file");
    let evict = pb::ClearRegionBlockCacheRequest { region: vec![again.specifier()] };
    let _: pb::ClearRegionBlockCacheResponse = again.admin("ClearRegionBlockCache", &evict).unwrap();
    assert!(cached(&again).is_empty(), "none of its blocks is there any more");
}

#[test]
fn without_a_slow_log_nothing_is_cleared() {
    let lab = Lab::new();
    let cleared: pb::ClearSlowLogResponses =
        lab.admin("ClearSlowLogsResponses", &pb::ClearSlowLogResponseRequest::default()).unwrap();
    assert!(!cleared.is_cleaned);
}

/// A call of a length, as the RPC layer tells of it.
fn noted<'a>(lab: &'a Lab, param: &'a Bytes, waited_s: u64, response_bytes: u64) -> NotedCall<'a> {
    NotedCall {
        connection: &lab.connection,
        class: CallClass::Write,
        call_id: 5,
        method: "Mutate",
        param,
        failed: false,
        response_bytes,
        thread_ns: 1_000_000_000,
        waited_ns: waited_s * 1_000_000_000,
        network_ns: 0,
        is_traced: false,
        batch_ns: 0,
    }
}

fn mutate_of(region: &'static str) -> Bytes {
    let region = pb::RegionSpecifier { r#type: 1, value: region.into() };
    let mutation = pb::MutationProto { row: Some("row".into()), ..Default::default() };
    pb::MutateRequest { region, mutation, ..Default::default() }.encode_to_vec().into()
}

/// Only calls that went to the disk pool could be slow, so a put that waited for the log was not.
#[test]
fn calls_are_slow_or_failed_wherever_they_ran() {
    let lab = Lab::new();
    let calls = |took_s: u64, count, failed_count| AnsweredCalls {
        connection: &lab.connection,
        class: CallClass::Write,
        count,
        failed_count,
        took_ns: took_s * 1_000_000_000,
        tags: &Tags::None,
    };
    lab.client.answered(&calls(1, 5, 2));
    lab.client.answered(&calls(11, 3, 0));
    lab.admin.answered(&calls(30, 1, 1));
    let param = mutate_of("t,,1.x.");
    for waited_s in [1, 10, 10, 10] {
        lab.client.noted(&noted(&lab, &param, waited_s, 0));
    }
    lab.admin.noted(&noted(&lab, &param, 30, 200 << 20));
    let counters = &lab.server.counters;
    assert_eq!((counters.slow.get(), counters.large.get(), counters.failed.get()), (4, 1, 3));
}

/// Asks for what the server keeps of slow or large calls.
fn log_entries(lab: &Lab, wanted: &pb::SlowLogResponseRequest) -> Vec<pb::SlowLogPayload> {
    let log_class_name =
        "org.apache.hadoop.hbase.shaded.protobuf.generated.AdminProtos$SlowLogResponseRequest";
    let request = pb::LogRequest {
        log_class_name: log_class_name.to_string(),
        log_message: wanted.encode_to_vec().into(),
    };
    let entry: pb::LogEntry = lab.admin("GetLogEntries", &request).unwrap();
    assert!(entry.log_class_name.ends_with("SlowLogResponses"), "{}", entry.log_class_name);
    pb::SlowLogResponses::decode(entry.log_message).unwrap().slow_log_payloads
}

fn lab_with_slow_log(slow_calls_for_clients: bool) -> Lab {
    Lab::with(SimFileSystem::new(), RegionServerSettings { slow_calls_for_clients, ..settings() })
}

/// Slow calls went to the log only: clients that asked for them got nothing.
#[test]
fn clients_read_slow_calls_with_filters_and_clear_them() {
    let lab = lab_with_slow_log(true);
    let (one, other) = (mutate_of("t,,1.x."), mutate_of("tt,,1.y."));
    for (waited_s, param) in [(10, &one), (11, &one), (12, &other)] {
        lab.client.noted(&noted(&lab, param, waited_s, 9));
    }
    let ask = |wanted: pb::SlowLogResponseRequest| log_entries(&lab, &wanted);
    let all = ask(pb::SlowLogResponseRequest::default());
    assert_eq!(all.iter().map(|call| call.processing_time).collect::<Vec<_>>(), [13_000, 12_000, 11_000]);
    assert_eq!((&*all[0].user_name, &*all[0].client_address), ("tester", "127.0.0.1:9"));
    assert_eq!((&*all[0].call_details, all[0].region_name()), ("Mutate(MutateRequest)", "tt,,1.y."));
    let where_it_went = "region= tt,,1.y., row= row; where: thread 1000 ms, wal 12000 ms";
    assert_eq!((all[0].param(), all[0].response_size), (where_it_went, 9));
    let by = |user: &str, client: &str, operator: FilterByOperator| pb::SlowLogResponseRequest {
        user_name: Some(user.to_string()),
        client_address: Some(client.to_string()),
        filter_by_operator: Some(operator as i32),
        ..Default::default()
    };
    assert_eq!(ask(by("tester", "127.0.0.1", FilterByOperator::And)).len(), 3);
    assert_eq!(ask(by("tester", "10.0.0.1:9", FilterByOperator::And)).len(), 0);
    assert_eq!(ask(by("tester", "10.0.0.1:9", FilterByOperator::Or)).len(), 3);
    assert_eq!(ask(pb::SlowLogResponseRequest { limit: Some(2), ..Default::default() }).len(), 2);
    let of_table = pb::SlowLogResponseRequest { table_name: Some("t".to_string()), ..Default::default() };
    assert_eq!(ask(of_table).len(), 2, "HBase takes a table name for a prefix");
    let of_region =
        pb::SlowLogResponseRequest { region_name: Some("tt,,1.y.".to_string()), ..Default::default() };
    assert_eq!(ask(of_region).len(), 1);
    let large = pb::SlowLogResponseRequest { log_type: Some(LogType::LargeLog as i32), ..Default::default() };
    assert_eq!(ask(large), []);
    let cleared: pb::ClearSlowLogResponses =
        lab.admin("ClearSlowLogsResponses", &pb::ClearSlowLogResponseRequest::default()).unwrap();
    assert!(cleared.is_cleaned);
    assert_eq!(ask(pb::SlowLogResponseRequest::default()), []);
}

// ---- hbase:slowlog ----

const SLOW_LOG_PERIOD: Duration = Duration::from_secs(60);

fn slow_log_region() -> RegionInfo {
    RegionInfo::new(halcyon_contract::slow_log_table_name(), Bytes::new(), Bytes::new(), 1)
}

fn lab_with_slow_log_table(fs: SimFileSystem, slow_calls_for_clients: bool) -> Lab {
    let slow_log = RegionServerSettings {
        slow_calls_for_clients,
        slow_log_table: true,
        slow_log_queue_max: 4,
        slow_log_period: SLOW_LOG_PERIOD,
        ..settings()
    };
    Lab::with(fs, slow_log)
}

fn open_slow_log(lab: &Lab) {
    let (region, table) = (slow_log_region(), halcyon_contract::slow_log_table());
    lab.server.region_files().create_region_files(&region, &table).unwrap();
    lab.server.open_region(&region, &table.into()).unwrap();
}

/// The rows of `hbase:slowlog`, the oldest first.
fn slow_log_rows(lab: &Lab) -> Vec<Vec<Cell>> {
    let tables = lab.server.cluster_services().system_tables;
    tables.scan_rows(lab.server.server_name(), &slow_log_region()).unwrap()
}

fn column(row: &[Cell], qualifier: &str) -> String {
    let cell = row.iter().find(|cell| cell.family() == b"info" && cell.qualifier() == qualifier.as_bytes());
    String::from_utf8(cell.unwrap_or_else(|| panic!("no {qualifier}")).value().to_vec()).unwrap()
}

/// The start was refused with `hbase.regionserver.slowlog.systable.enabled`.
#[test]
fn slow_calls_are_written_to_their_table_once_a_period() {
    let lab = lab_with_slow_log_table(SimFileSystem::new(), true);
    let begun_ms = lab.clock.now_ms();
    let (param, of_the_table) = (mutate_of("t,,1.x."), mutate_of("hbase:slowlog,,1.y."));
    lab.client.noted(&noted(&lab, &of_the_table, 10, 9)); // a scan of the table would make it longer
    for waited_s in 10..16 {
        lab.client.noted(&noted(&lab, &param, waited_s, 9));
    }
    lab.clock.advance(SLOW_LOG_PERIOD * 2); // there is no table yet: they stay in the queue
    Env::real().clock.sleep(Duration::from_millis(1500));
    open_slow_log(&lab);
    eventually("the rows of the queue", || {
        lab.clock.advance(SLOW_LOG_PERIOD);
        slow_log_rows(&lab).len() == 4
    });
    let rows = slow_log_rows(&lab);
    let times: Vec<_> = rows.iter().map(|row| column(row, "processing_time")).collect();
    assert_eq!(times, ["13000", "14000", "15000", "16000"], "the oldest two were left out");
    let key = i64::from_be_bytes(rows[0][0].row().try_into().unwrap());
    assert!((begun_ms..=lab.clock.now_ms()).contains(&(key / 100_000)), "{key}");
    for (qualifier, value) in [
        ("call_details", "Mutate(MutateRequest)"),
        ("client_address", "127.0.0.1:9"),
        ("fs_read_time", "0"),
        ("method_name", "Mutate"),
        ("param", "region= t,,1.x., row= row; where: thread 1000 ms, wal 12000 ms"),
        ("queue_time", "0"),
        ("region_name", "t,,1.x."),
        ("response_size", "9"),
        ("server_class", "HRegionServer"),
        ("type", "SLOW_LOG"),
        ("username", "tester"),
    ] {
        assert_eq!(column(&rows[0], qualifier), value, "{qualifier}");
    }
    assert!(column(&rows[0], "start_time").parse::<i64>().unwrap() >= 1_700_000_000_000 - 13_000);
    assert_eq!(rows[0].len(), 13);
}

#[test]
fn what_waits_for_the_table_is_written_by_an_orderly_stop() {
    let fs = SimFileSystem::new();
    let lab = lab_with_slow_log_table(fs.clone(), true);
    open_slow_log(&lab);
    lab.client.noted(&noted(&lab, &mutate_of("t,,1.x."), 10, 9));
    lab.server.stop().unwrap();
    let again = lab_with_slow_log_table(fs, true);
    open_slow_log(&again);
    assert_eq!(slow_log_rows(&again).len(), 1);
}

/// As in HBase: what clients may not read is not written either.
#[test]
fn without_a_slow_log_for_clients_nothing_is_written() {
    let lab = lab_with_slow_log_table(SimFileSystem::new(), false);
    open_slow_log(&lab);
    lab.client.noted(&noted(&lab, &mutate_of("t,,1.x."), 10, 9));
    lab.clock.advance(SLOW_LOG_PERIOD * 2);
    lab.server.stop().unwrap();
    let again = lab_with_slow_log_table(lab.fs.clone(), true);
    open_slow_log(&again);
    assert_eq!(slow_log_rows(&again), Vec::<Vec<Cell>>::new());
}

/// Large answers were recorded nowhere.
#[test]
fn large_answers_are_kept_beside_slow_calls() {
    let lab = lab_with_slow_log(true);
    let param = mutate_of("t,,1.x.");
    lab.client.noted(&noted(&lab, &param, 0, (100 << 20) + 1));
    lab.client.noted(&noted(&lab, &param, 20, 200 << 20));
    let ask = |log_type: LogType| {
        let wanted = pb::SlowLogResponseRequest { log_type: Some(log_type as i32), ..Default::default() };
        log_entries(&lab, &wanted).into_iter().map(|call| call.response_size >> 20).collect::<Vec<_>>()
    };
    assert_eq!((ask(LogType::LargeLog), ask(LogType::SlowLog)), (vec![200, 100], vec![200]));
    let older: pb::SlowLogResponses =
        lab.admin("GetLargeLogResponses", &pb::SlowLogResponseRequest::default()).unwrap();
    assert_eq!(older.slow_log_payloads.len(), 2);
    let hidden = lab_with_slow_log(false);
    hidden.client.noted(&noted(&hidden, &param, 20, 200 << 20));
    assert_eq!(log_entries(&hidden, &pb::SlowLogResponseRequest::default()), []);
    assert_eq!(hidden.server.slow_calls().len(), 1, "the console shows it all the same");
}

/// HBase without these coprocessors drops the attributes, and what was to be protected is open to everybody.
#[test]
fn mutations_that_ask_for_protection_are_refused() {
    let lab = Lab::new();
    for (name, keeper) in [("acl", "AccessController"), ("VISIBILITY", "VisibilityController")] {
        let attribute = pb::NameBytesPair { name: name.to_string(), value: Some("secret|topsecret".into()) };
        let protected = pb::MutationProto { attribute: vec![attribute], ..put(1) };
        let cell = Cell::put(b"r", b"f", b"q", i64::MAX, b"v");
        let error = lab.mutate(protected.clone(), vec![cell.clone()]).unwrap_err();
        assert!(error.do_not_retry && error.message.contains(keeper), "{error}");
        let action = pb::Action { index: Some(0), mutation: Some(Box::new(protected)), ..Default::default() };
        let region_action =
            pb::RegionAction { region: lab.specifier(), action: vec![action], ..Default::default() };
        let multi = pb::MultiRequest { region_action: vec![region_action], ..Default::default() };
        let (response, _): (pb::MultiResponse, _) = lab.call("Multi", &multi, vec![cell]).unwrap();
        let refused = &response.region_action_result[0].result_or_exception[0];
        let text = String::from_utf8_lossy(refused.exception.as_ref().unwrap().value()).into_owned();
        assert!(text.contains(keeper), "{text}");
    }
    assert!(lab.row("r").is_empty());
    // Authorizations of a read, and the clusters that a mutation has passed, ask for no protection.
    let attribute = |name: &str, value: &'static [u8]| {
        vec![pb::NameBytesPair { name: name.to_string(), value: Some(value.into()) }]
    };
    let passed = |ids: &'static [u8]| pb::MutationProto { attribute: attribute("_cs.id", ids), ..put(1) };
    let wrong = lab.mutate(passed(b"x"), vec![Cell::put(b"r", b"f", b"q", i64::MAX, b"v")]);
    assert_eq!(class(wrong), "DoNotRetryIOException");
    let no_ids = &[0; 4];
    lab.mutate(passed(no_ids), vec![Cell::put(b"r", b"f", b"q", i64::MAX, b"v")]).unwrap();
    let get = pb::Get { attribute: attribute("VISIBILITY", b"x"), ..common::get("r") };
    assert_eq!(common::text(&lab.get(get).unwrap().1), ["v"]);
    assert_eq!(class(lab.get(common::get(""))), "DoNotRetryIOException");
}

/// HBase's clients count on the call that finds nothing more (`TestAsyncTableScanMetricsWithScannerSuspending`).
#[test]
fn a_size_limit_on_the_end_of_a_row_leaves_it_open_whether_another_follows() {
    for file in [false, true] {
        let lab = filled(2);
        if file {
            flush(&lab);
        }
        let scan = pb::Scan { max_result_size: Some(1), ..Default::default() };
        let (mut response, cells) = lab.scan(&lab.open(100, scan)).unwrap();
        assert_eq!((cells.len(), response.more_results_in_region()), (1, true));
        let mut counts = Vec::new();
        while response.more_results_in_region() {
            let next = pb::ScanRequest {
                scanner_id: response.scanner_id,
                number_of_rows: Some(100),
                client_handles_partials: Some(true),
                client_handles_heartbeats: Some(true),
                ..Default::default()
            };
            let (answer, cells) = lab.scan(&next).unwrap();
            counts.push(cells.len());
            response = pb::ScanResponse { scanner_id: response.scanner_id, ..answer };
        }
        assert_eq!(counts, [1, 0]);
    }
}

#[test]
fn scan_metrics_tell_where_cells_came_from() {
    let lab = filled(10);
    let metric = |lab: &Lab, name: &str| {
        let tracked =
            pb::ScanRequest { track_scan_metrics: Some(true), ..lab.open(100, pb::Scan::default()) };
        let metrics = lab.scan(&tracked).unwrap().0.scan_metrics.unwrap().metrics;
        metrics.iter().find(|pair| pair.name() == name).unwrap().value()
    };
    let in_memory = metric(&lab, "BYTES_READ_FROM_MEMSTORE");
    assert!((10 * 20..10 * 100).contains(&in_memory), "{in_memory} bytes of ten small cells");
    assert_eq!(metric(&lab, "BYTES_READ_FROM_BLOCK_CACHE"), 0);
    flush(&lab);
    let evict = pb::ClearRegionBlockCacheRequest { region: vec![lab.specifier()] };
    let _: pb::ClearRegionBlockCacheResponse = lab.admin("ClearRegionBlockCache", &evict).unwrap();
    let tracked = pb::ScanRequest { track_scan_metrics: Some(true), ..lab.open(100, pb::Scan::default()) };
    assert_eq!(metric(&lab, "BYTES_READ_FROM_MEMSTORE"), 0);
    let _: pb::ClearRegionBlockCacheResponse = lab.admin("ClearRegionBlockCache", &evict).unwrap();
    let metrics = |names: [&str; 4]| {
        let (response, _) = lab.scan(&tracked).unwrap();
        let metrics = response.scan_metrics.unwrap().metrics;
        names.map(|name| metrics.iter().find(|pair| pair.name() == name).unwrap().value())
    };
    let names =
        ["BLOCK_READ_OPS_COUNT", "BYTES_READ_FROM_FS", "BLOCK_BYTES_SCANNED", "BYTES_READ_FROM_BLOCK_CACHE"];
    let [count, from_disk, scanned, cached] = metrics(names);
    assert_eq!((count, cached), (1, 0));
    assert!(from_disk > 100 && scanned > 100, "{from_disk} and {scanned} bytes");
    assert_eq!(metrics(names), [0, 0, scanned, from_disk], "the block is in the cache now");
}

/// Clients of 2.6 ask with `Query.setQueryMetricsEnabled`.
#[test]
fn each_result_tells_what_it_cost_if_it_is_asked_for() {
    let lab = filled(3);
    flush(&lab);
    let cost = |metrics: Option<pb::QueryMetrics>| metrics.map(|metrics| metrics.block_bytes_scanned());
    let asking = pb::Get { query_metrics_enabled: Some(true), ..common::get("r01") };
    let (result, _) = lab.get(asking.clone()).unwrap();
    let of_get = cost(result.metrics).unwrap();
    assert!(of_get > 50, "{of_get} bytes");
    assert_eq!(lab.get(common::get("r01")).unwrap().0.metrics, None);
    let gets = [asking, common::get("r01")].into_iter().zip(0..);
    let action =
        gets.map(|(get, at)| pb::Action { index: Some(at), get: Some(get.into()), ..Default::default() });
    let region_action =
        pb::RegionAction { region: lab.specifier(), action: action.collect(), ..Default::default() };
    let multi = pb::MultiRequest { region_action: vec![region_action], ..Default::default() };
    let (mut response, cells): (pb::MultiResponse, _) = lab.call("Multi", &multi, Vec::new()).unwrap();
    let entries = response.region_action_result.remove(0).result_or_exception;
    let costs: Vec<_> = entries.into_iter().map(|entry| cost(entry.metrics)).collect();
    assert_eq!((costs, cells.len()), (vec![Some(of_get), None], 2));
    let scan = pb::Scan { query_metrics_enabled: Some(true), ..Default::default() };
    let (response, _) = lab.scan(&lab.open(100, scan)).unwrap();
    let costs: Vec<_> = response.query_metrics.iter().map(|m| m.block_bytes_scanned()).collect();
    assert_eq!(costs, [of_get, 0, 0], "all rows are in the block that the first one needs");
    assert!(lab.scan(&lab.open(100, pb::Scan::default())).unwrap().0.query_metrics.is_empty());
}

/// The region's number was that of the family that was flushed last. Whoever split the server's WAL left out edits of the others.
#[test]
fn what_one_family_has_flushed_is_not_said_of_all() {
    let lab = Lab::new();
    let put_to = |family: &'static str| {
        let cell = Cell::put(b"row", family.as_bytes(), b"q", i64::MAX, b"value");
        lab.mutate(mutation(MutationType::Put, 1), vec![cell]).unwrap();
    };
    put_to("f");
    put_to("g");
    lab.server.flush_region(lab.info.encoded_name(), &[Bytes::from_static(b"g")]).unwrap();
    let load = region_load(&lab);
    let of = |family: &str| {
        let stores = &load.store_complete_sequence_id;
        stores.iter().find(|store| store.family_name == family.as_bytes()).unwrap().sequence_id
    };
    assert!(of("g") > of("f"), "{load:?}");
    assert_eq!(load.complete_sequence_id(), of("f"), "the edit of f is in no file");
}
