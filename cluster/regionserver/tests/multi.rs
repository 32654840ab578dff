//! Multi: actions that stand alone, atomic and conditional ones.

use crate::common;
use crate::common::{Lab, class, decoded, get, mutation, put, settings, text};
use bytes::Bytes;
use halcyon_cell::{Cell, CellType};
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::MutationType;
use halcyon_regionserver::RegionServerSettings;
use halcyon_rpc::{Outcome, Service};
use halcyon_wal::SyncMode;
use prost::Message;

fn cell(row: &str, value: &str) -> Cell {
    Cell::put(row.as_bytes(), b"f", b"q", i64::MAX, value.as_bytes())
}

fn mutate(index: u32, mutation: pb::MutationProto) -> pb::Action {
    pb::Action::of_mutation(index, mutation)
}

fn read(index: u32, row: &str) -> pb::Action {
    pb::Action::of_get(index, get(row))
}

fn region_action(lab: &Lab, action: Vec<pb::Action>) -> pb::RegionAction {
    pb::RegionAction { region: lab.specifier(), atomic: None, action, condition: None }
}

fn multi(lab: &Lab, actions: Vec<pb::RegionAction>, cells: Vec<Cell>) -> (pb::MultiResponse, Vec<Cell>) {
    let request = pb::MultiRequest { region_action: actions, ..Default::default() };
    lab.call("Multi", &request, cells).unwrap()
}

fn exception(entry: &pb::ResultOrException) -> &str {
    entry.exception.as_ref().expect("an exception").name.rsplit('.').next().unwrap()
}

#[test]
fn each_action_has_its_own_result() {
    let lab = Lab::new();
    lab.put("old", "q", "before");
    let bad = Cell::put(b"x", b"nope", b"q", 1, b"v");
    let actions = vec![
        mutate(7, put(1)),
        read(8, "old"),
        mutate(9, put(1)), // of a family that is not there
        mutate(10, put(1)),
        read(11, "r1"),
        pb::Action { index: Some(12), ..Default::default() },
        read(13, ""),
        read(14, "none"),
    ];
    let cells = vec![cell("r1", "one"), bad, cell("r2", "two")];
    let (response, cells) = multi(&lab, vec![region_action(&lab, actions)], cells);
    let entries = &response.region_action_result[0].result_or_exception;
    assert_eq!(entries.iter().map(|e| e.index()).collect::<Vec<_>>(), [7, 8, 9, 10, 11, 12, 13, 14]);
    assert_eq!(entries[0].result, Some(pb::Result::default()), "present and empty");
    assert_eq!(entries[1].result.as_ref().unwrap().associated_cell_count, Some(1));
    assert_eq!(exception(&entries[2]), "NoSuchColumnFamilyException");
    assert_eq!(entries[3].result, Some(pb::Result::default()));
    assert_eq!(exception(&entries[5]), "DoNotRetryIOException");
    assert_eq!(exception(&entries[6]), "DoNotRetryIOException");
    assert_eq!(entries[7].result.as_ref().unwrap().associated_cell_count, Some(0));
    assert_eq!(text(&cells), ["before", "one"], "gets see the puts before them");
    assert_eq!(lab.row("r2"), ["two"]);
}

#[test]
fn a_region_that_is_not_here_fails_alone_and_takes_its_cells_along() {
    let lab = Lab::new();
    let mut elsewhere = region_action(&lab, vec![mutate(0, put(2)), mutate(1, put(1))]);
    elsewhere.region.value = "u,,1.00000000000000000000000000000000.".into();
    let here = region_action(&lab, vec![mutate(2, put(1))]);
    let cells = vec![cell("a", "1"), cell("a", "2"), cell("b", "3"), cell("c", "4")];
    let (response, _) = multi(&lab, vec![elsewhere, here], cells);
    let [first, second] = &response.region_action_result[..] else { panic!("one for each") };
    assert!(first.exception.as_ref().unwrap().name.ends_with("NotServingRegionException"));
    assert!(first.result_or_exception.is_empty());
    assert_eq!(second.result_or_exception.len(), 1);
    assert_eq!((lab.row("c"), lab.row("a")), (vec!["4".to_string()], vec![]));
}

#[test]
fn regions_say_how_loaded_they_are_if_the_server_is_told_to() {
    let put_one = |lab: &Lab| {
        let (response, _) =
            multi(lab, vec![region_action(lab, vec![mutate(0, put(1))])], vec![cell("a", "1")]);
        response.region_statistics.expect("HBase sends the message also when it is empty")
    };
    assert_eq!(put_one(&Lab::new()), pb::MultiRegionLoadStats::default());
    let mut told = common::settings();
    told.region_statistics = true;
    told.region.flush_size_bytes = 4 << 20;
    let lab = Lab::with(halcyon_env::sim::SimFileSystem::new(), told);
    let load = |lab: &Lab| {
        let statistics = put_one(lab);
        assert_eq!(statistics.region, [lab.specifier()]);
        statistics.stat[0].mem_store_load()
    };
    let before = load(&lab);
    lab.put("b", "q", &"x".repeat(1 << 20));
    let after = load(&lab);
    assert!(before < 25 && (25..100).contains(&after), "{before} {after}");
    // What the call itself has written counts.
    let mut told = common::settings();
    told.region_statistics = true;
    told.region.flush_size_bytes = 512;
    assert!(load(&Lab::with(halcyon_env::sim::SimFileSystem::new(), told)) > 0);
}

#[test]
fn what_needs_the_disk_goes_on_where_it_stopped() {
    let lab = Lab::new();
    for row in ["a", "b", "c"] {
        lab.put(row, "q", &format!("{row}0"));
    }
    let count = Cell::put(b"n", b"f", b"q", i64::MAX, &41i64.to_be_bytes());
    lab.mutate(mutation(MutationType::Increment, 1), vec![count.clone()]).unwrap();
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    lab.admin::<pb::ClearRegionBlockCacheResponse>(
        "ClearRegionBlockCache",
        &pb::ClearRegionBlockCacheRequest { region: vec![lab.specifier()] },
    )
    .unwrap();
    let newest = Cell::build(b"c", b"f", b"q", i64::MAX, CellType::Delete, b"", b"", 0);
    let one = Cell::put(b"n", b"f", b"q", i64::MAX, &1i64.to_be_bytes());
    let actions = vec![
        mutate(0, put(1)),
        read(1, "a"),
        mutate(2, mutation(MutationType::Increment, 1)),
        mutate(3, put(1)),
        mutate(4, mutation(MutationType::Delete, 1)),
        read(5, "c"),
        read(6, "n"),
    ];
    let cells = vec![cell("a", "a1"), one, cell("b", "b1"), newest];
    let (response, cells) = multi(&lab, vec![region_action(&lab, actions)], cells);
    let entries = &response.region_action_result[0].result_or_exception;
    assert_eq!(entries.iter().map(|e| e.index()).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
    assert!(entries.iter().all(|entry| entry.exception.is_none()), "{entries:?}");
    assert_eq!(cells[0].value(), b"a1");
    assert_eq!(cells[1].value(), 42i64.to_be_bytes());
    assert_eq!((lab.row("b"), lab.row("c")), (vec!["b1".to_string()], vec![]));
    assert_eq!(cells[2].value(), 42i64.to_be_bytes(), "done once");
}

#[test]
fn a_long_multi_leaves_the_thread_that_received_it() {
    let lab = Lab::new();
    for (count, row_len, is_long) in [(300, 10, false), (2000, 10, true), (20, 10_000, true)] {
        let rows: Vec<String> = (0..count).map(|row| format!("{count}-{row:0row_len$}")).collect();
        let puts = (0..count).map(|index| mutate(index, put(1))).collect();
        let cells = rows.iter().map(|row| cell(row, "v")).collect();
        let (response, _) = multi(&lab, vec![region_action(&lab, puts)], cells);
        let entries = &response.region_action_result[0].result_or_exception;
        assert_eq!(entries.len() as u32, count);
        assert!(entries.iter().all(|entry| entry.exception.is_none()));
        // Nothing of this waits for anybody: it is answered at once, unless it is too long for that.
        let gets = (0..count).map(|index| read(index, &rows[index as usize])).collect();
        let request =
            pb::MultiRequest { region_action: vec![region_action(&lab, gets)], ..Default::default() };
        let call = lab.raw_call("Multi", request.encode_to_vec().into(), Vec::new());
        let _context = lab.runtime.enter();
        let outcome = lab.client.call(call);
        assert_eq!(matches!(outcome, Outcome::Later(_)), is_long, "{count} rows of {row_len} bytes");
        let (_, cells): (pb::MultiResponse, _) = decoded(lab.finish(&lab.client, outcome).unwrap());
        let found: Vec<&[u8]> = cells.iter().map(|cell| cell.row()).collect();
        assert_eq!(found, rows.iter().map(String::as_bytes).collect::<Vec<_>>());
    }
}

#[test]
fn atomic_actions_are_all_or_nothing() {
    let lab = Lab::new();
    lab.put("r", "gone", "x");
    lab.clock.advance(std::time::Duration::from_millis(1));
    let delete = Cell::build(b"r", b"f", b"gone", i64::MAX, CellType::DeleteColumn, b"", b"", 0);
    let actions = vec![mutate(0, put(1)), mutate(1, mutation(MutationType::Delete, 1))];
    let atomic = pb::RegionAction { atomic: Some(true), ..region_action(&lab, actions.clone()) };
    let (response, _) = multi(&lab, vec![atomic.clone()], vec![cell("r", "1"), delete]);
    assert_eq!(response.processed, Some(true));
    let result = &response.region_action_result[0];
    assert_eq!((result.processed, result.result_or_exception.len()), (Some(true), 2));
    assert_eq!(result.result_or_exception.iter().map(|e| e.index()).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(lab.row("r"), ["1"]);

    let two_rows = multi(
        &lab,
        vec![atomic],
        vec![cell("r", "2"), {
            Cell::build(b"s", b"f", b"q", i64::MAX, CellType::DeleteColumn, b"", b"", 0)
        }],
    );
    let failed = &two_rows.0.region_action_result[0];
    assert!(failed.exception.is_some() && failed.result_or_exception.is_empty());
    assert_eq!(lab.row("r"), ["1"]);

    let with_get =
        pb::RegionAction { atomic: Some(true), ..region_action(&lab, vec![mutate(0, put(1)), read(1, "r")]) };
    let (response, _) = multi(&lab, vec![with_get], vec![cell("r", "3")]);
    assert!(
        response.region_action_result[0].exception.as_ref().unwrap().name.ends_with("DoNotRetryIOException")
    );
    assert_eq!(lab.row("r"), ["1"]);
}

fn condition(value: &str) -> pb::Condition {
    let comparable = pb::ByteArrayComparable { value: Some(value.to_string().into()) };
    let comparator = pb::Comparator {
        name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_string(),
        serialized_comparator: Some(pb::BinaryComparator { comparable }.encode_to_vec().into()),
    };
    pb::Condition {
        row: "r".into(),
        family: Some("f".into()),
        qualifier: Some("q".into()),
        compare_type: Some(pb::CompareType::Equal as i32),
        comparator: Some(comparator),
        ..Default::default()
    }
}

#[test]
fn conditions_of_both_ages() {
    let lab = Lab::new();
    lab.put("r", "q", "1");
    let new_form = |value: &str| pb::RegionAction {
        condition: Some(condition(value)),
        ..region_action(&lab, vec![mutate(0, put(1))])
    };
    let (response, _) =
        multi(&lab, vec![new_form("no"), new_form("1")], vec![cell("r", "x"), cell("r", "2")]);
    let processed: Vec<_> = response.region_action_result.iter().map(|r| r.processed).collect();
    assert_eq!(processed, [Some(false), Some(true)]);
    assert_eq!(response.processed, None);
    assert_eq!(lab.row("r"), ["2"]);

    let atomic = pb::RegionAction {
        atomic: Some(true),
        ..region_action(&lab, vec![mutate(0, put(1)), mutate(1, put(1))])
    };
    let old_form = |value: &str| pb::MultiRequest {
        region_action: vec![atomic.clone()],
        condition: Some(condition(value)),
        ..Default::default()
    };
    let cells = || vec![cell("r", "3"), Cell::put(b"r", b"f", b"z", i64::MAX, b"4")];
    let (response, _) = lab.call::<pb::MultiResponse>("Multi", &old_form("no"), cells()).unwrap();
    assert_eq!(response.processed, Some(false));
    let (response, _) = lab.call::<pb::MultiResponse>("Multi", &old_form("2"), cells()).unwrap();
    assert_eq!(response.processed, Some(true));
    assert_eq!(response.region_action_result[0].result_or_exception.len(), 2);
    assert_eq!(lab.row("r"), ["3", "4"]);
    let empty = pb::MultiRequest { condition: Some(condition("2")), ..Default::default() };
    let (response, _) = lab.call::<pb::MultiResponse>("Multi", &empty, Vec::new()).unwrap();
    assert_eq!((response.processed, response.region_action_result.len()), (Some(true), 0));
}

#[test]
fn a_condition_with_an_increment_answers_inline() {
    let lab = Lab::new();
    lab.put("r", "q", "1");
    let one = Cell::put(b"r", b"f", b"n", i64::MAX, &1i64.to_be_bytes());
    let action = pb::RegionAction {
        condition: Some(condition("1")),
        ..region_action(&lab, vec![mutate(0, mutation(MutationType::Increment, 1))])
    };
    let (response, block) = multi(&lab, vec![action], vec![one]);
    assert!(block.is_empty());
    let result = response.region_action_result[0].result_or_exception[0].result.as_ref().unwrap();
    assert_eq!(result.cell[0].value.as_deref(), Some(&1i64.to_be_bytes()[..]));
}

#[test]
fn answers_over_the_limit_are_cut_off() {
    let mut settings = common::settings();
    settings.result_bytes_max = 10;
    let mut lab = Lab::with(halcyon_env::sim::SimFileSystem::new(), settings);
    lab.put("r", "q", "a value of some length");
    let all = |lab: &Lab| {
        let actions = vec![read(0, "r"), read(1, "r"), mutate(2, put(1))];
        let (response, cells) = multi(lab, vec![region_action(lab, actions)], vec![cell("s", "1")]);
        let entries = &response.region_action_result[0].result_or_exception;
        let name =
            |entry: &pb::ResultOrException| entry.exception.as_ref().map(|_| exception(entry).to_string());
        (entries.iter().map(name).collect::<Vec<_>>(), cells.len())
    };
    let too_large = || Some("MultiActionResultTooLarge".to_string());
    assert_eq!(all(&lab), (vec![None, too_large(), too_large()], 1));
    assert!(lab.row("s").is_empty());
    // A region action that is done as one as well, and what comes behind it has its own cells.
    let atomic = pb::RegionAction { atomic: Some(true), ..region_action(&lab, vec![mutate(1, put(1))]) };
    let (first, last) =
        (region_action(&lab, vec![read(0, "r")]), region_action(&lab, vec![mutate(2, put(1))]));
    let (response, _) = multi(&lab, vec![first, atomic, last], vec![cell("s", "1"), cell("u", "1")]);
    let refused = response.region_action_result[1].exception.as_ref().unwrap();
    assert!(refused.name.ends_with(".MultiActionResultTooLarge"), "{refused:?}");
    assert!(lab.row("s").is_empty() && lab.row("u").is_empty());
    // The answer of a client that tells no version had no limit: a few hundred bytes of gets took all memory.
    lab.connection = common::connection(Some(halcyon_rpc::Codec::KeyValue), None);
    let busy = || Some("RegionTooBusyException".to_string());
    assert_eq!(all(&lab), (vec![None, busy(), busy()], 1));
    lab.connection = common::connection(Some(halcyon_rpc::Codec::KeyValue), Some((2, 6)));
    assert!(lab.row("s").is_empty());
}

#[test]
fn a_stopped_server_refuses() {
    let lab = Lab::new();
    lab.put("r", "q", "v");
    lab.server.stop().unwrap();
    let request = pb::MultiRequest::default();
    let result = lab.call::<pb::MultiResponse>("Multi", &request, Vec::new());
    assert_eq!(class(result), "RegionServerStoppedException");
    let reopened = Lab::with(lab.fs.clone(), common::settings());
    assert_eq!(reopened.row("r"), ["v"]);
}

/// A mutation that names its row, as those of Java clients do.
fn named(index: u32, kind: MutationType, row: &str) -> pb::Action {
    let row = Some(Bytes::copy_from_slice(row.as_bytes()));
    mutate(index, pb::MutationProto { row, ..mutation(kind, 1) })
}

/// Values that the gets of a call have found, by the numbers of their actions. `None`: no cell.
fn found(response: &pb::MultiResponse, cells: Vec<Cell>) -> Vec<(u32, Option<String>)> {
    let mut cells = cells.into_iter();
    let entries = response.region_action_result.iter().flat_map(|result| &result.result_or_exception);
    let mut found: Vec<(u32, Option<String>)> = Vec::new();
    for entry in entries {
        let result = entry.result.as_ref().expect("no action fails");
        let Some(count) = result.associated_cell_count else { continue };
        let of_entry: Vec<Cell> = cells.by_ref().take(count as usize).collect();
        found.push((
            entry.index(),
            of_entry.first().map(|cell| String::from_utf8_lossy(cell.value()).into_owned()),
        ));
    }
    found.sort();
    found
}

/// Each get of a batch waited for the put before it, whatever row that was of: a batch of 1,000 puts and 1,000 gets in turn took ten
/// times as long as either alone.
#[test]
fn puts_and_gets_in_turn_wait_for_the_log_once() {
    let durable = RegionServerSettings { wal_sync: SyncMode::Fsync, ..settings() };
    for same_rows in [true, false] {
        let lab = Lab::with(SimFileSystem::new(), durable.clone());
        let read_row = |at: u32| if same_rows { format!("r{at}") } else { format!("r{}", (at + 50) % 100) };
        let actions = (0..100)
            .flat_map(|at| {
                [named(2 * at, MutationType::Put, &format!("r{at}")), read(2 * at + 1, &read_row(at))]
            })
            .collect();
        let cells = (0..100).map(|at| cell(&format!("r{at}"), &format!("v{at}"))).collect();
        let before = lab.fs.sync_points();
        let (response, cells) = multi(&lab, vec![region_action(&lab, actions)], cells);
        let syncs = lab.fs.sync_points() - before;
        assert!((1..=4).contains(&syncs), "{syncs} syncs for 100 puts and 100 gets");
        let found = found(&response, cells);
        assert_eq!(found.len(), 100);
        for (at, (index, value)) in (0..100).zip(found) {
            assert_eq!(index, 2 * at + 1);
            if same_rows {
                assert_eq!(value, Some(format!("v{at}")), "a get sees the put before it");
            } else if at >= 50 {
                assert_eq!(value, Some(format!("v{}", at - 50)), "also when others are between");
            }
        }
        assert_eq!(lab.row("r99"), ["v99"]);
    }
}

/// A get sees what the call has written to its row before it, and nothing that the call writes to it later.
#[test]
fn a_get_of_a_batch_sees_what_was_written_before_it() {
    let lab = Lab::new();
    lab.put("b", "q", "old");
    let actions = vec![
        read(0, "a"),
        named(1, MutationType::Put, "a"),
        read(2, "a"),
        read(3, "b"),
        named(4, MutationType::Put, "b"),
        named(5, MutationType::Put, "a"),
        read(6, "a"),
        named(7, MutationType::Append, "a"),
        read(8, "a"),
        named(9, MutationType::Delete, "b"),
        read(10, "b"),
        read(11, "c"),
    ];
    let gone = Cell::build(b"b", b"f", b"", i64::MAX, CellType::DeleteFamily, b"", b"", 0);
    let cells = vec![cell("a", "1"), cell("b", "new"), cell("a", "2"), cell("a", "+"), gone];
    let (response, cells) = multi(&lab, vec![region_action(&lab, actions)], cells);
    let expected = [
        (0, None),
        (2, Some("1")),
        (3, Some("old")),
        (6, Some("2")),
        (7, Some("2+")),
        (8, Some("2+")),
        (10, None),
        (11, None),
    ];
    let expected = expected.map(|(index, value)| (index, value.map(str::to_string)));
    assert_eq!(found(&response, cells), expected);
}

/// Several region actions of one region are one batch to the client, too.
#[test]
fn a_get_sees_what_an_earlier_region_action_has_written() {
    let lab = Lab::new();
    let first = region_action(&lab, vec![named(0, MutationType::Put, "a")]);
    let second = region_action(&lab, vec![read(1, "a")]);
    let (response, cells) = multi(&lab, vec![first, second], vec![cell("a", "1")]);
    assert_eq!(found(&response, cells), [(1, Some("1".to_string()))]);
}

/// A repeated call of what is done together, under a condition or not, was answered without the cells of its Increments and
/// Appends.
#[test]
fn a_repeated_call_of_mutations_that_are_done_together_answers_as_the_first_one() {
    for conditional in [false, true] {
        let lab = Lab::new();
        lab.put("r", "q", "1");
        let with_nonce =
            |index, kind, nonce| mutate(index, pb::MutationProto { nonce: Some(nonce), ..mutation(kind, 1) });
        let repeated = |nonce| {
            let actions = vec![
                with_nonce(0, MutationType::Put, nonce),
                with_nonce(1, MutationType::Increment, nonce),
                with_nonce(2, MutationType::Append, nonce),
            ];
            let action = pb::RegionAction {
                atomic: Some(true),
                condition: conditional.then(|| condition("1")),
                ..region_action(&lab, actions)
            };
            let cells = vec![
                Cell::put(b"r", b"f", b"p", i64::MAX, b"p"),
                Cell::put(b"r", b"f", b"n", i64::MAX, &1i64.to_be_bytes()),
                Cell::put(b"r", b"f", b"s", i64::MAX, b"x"),
            ];
            let request =
                pb::MultiRequest { region_action: vec![action], nonce_group: Some(1), ..Default::default() };
            let (response, _) = lab.call::<pb::MultiResponse>("Multi", &request, cells).unwrap();
            let result = &response.region_action_result[0];
            let found = result.result_or_exception[0].result.as_ref().expect("cells");
            let values: Vec<Bytes> = found.cell.iter().map(|cell| cell.value.clone().unwrap()).collect();
            (result.processed, values)
        };
        let first = repeated(7);
        assert_eq!(first, (Some(true), vec![Bytes::copy_from_slice(&1i64.to_be_bytes()), "x".into()]));
        assert_eq!(repeated(7), first);
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
        assert_eq!(repeated(8).1, [Bytes::copy_from_slice(&2i64.to_be_bytes()), "xx".into()]);
        assert_eq!(repeated(7), first, "also behind a later one");
    }
}

/// The second operation waited for the first one, which ended with the call that both were in: sixty seconds each, on a thread that writes of
/// other clients need. Nobody could end that.
#[test]
fn a_nonce_that_comes_twice_in_a_call_is_done_once_and_at_once() {
    let lab = Lab::new();
    let increment =
        |index| mutate(index, pb::MutationProto { nonce: Some(7), ..mutation(MutationType::Increment, 1) });
    let separate = region_action(&lab, (0..3).map(increment).collect());
    let atomic = pb::RegionAction { atomic: Some(true), ..region_action(&lab, vec![increment(0)]) };
    let request = pb::MultiRequest {
        region_action: vec![separate, atomic.clone(), atomic],
        nonce_group: Some(1),
        ..Default::default()
    };
    let one = Cell::put(b"r", b"f", b"n", i64::MAX, &1i64.to_be_bytes());
    let call = lab.raw_call("Multi", request.encode_to_vec().into(), vec![one; 5]);
    let _context = lab.runtime.enter();
    let outcome = lab.client.call(call);
    lab.client.batch_done();
    let reply = match outcome {
        Outcome::Ready(reply) => reply,
        Outcome::Later(later) => lab
            .runtime
            .block_on(async { tokio::time::timeout(std::time::Duration::from_secs(20), later).await })
            .expect("it waits for nobody"),
    };
    let (response, cells) = decoded::<pb::MultiResponse>(reply.unwrap());
    let results = response.region_action_result.iter().flat_map(|action| &action.result_or_exception);
    for result in results {
        assert_eq!(result.exception, None);
    }
    assert_eq!(cells.len(), 3, "atomic actions have theirs in the message");
    assert!(cells.iter().all(|cell| cell.value() == 1i64.to_be_bytes()), "{cells:?}");
    assert_eq!(lab.get(get("r")).unwrap().1[0].value(), 1i64.to_be_bytes());
}
