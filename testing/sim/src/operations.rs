//! What clients do besides puts, Increments, Appends and reads of a whole region: deletes of all kinds, `checkAndMutate`, batches over
//! several rows, families and regions, times of their own, reads of a row, and scans in several calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::column_value::QualifierValue;
use halcyon_proto::pb::mutation_proto::{ColumnValue, DeleteType, MutationType};
use halcyon_schema::ServerName;
use halcyon_servers::Target;
use prost::Message;

use crate::clients::{COUNTERS, Client, PATIENCE_MAX, PREFIXES, RETRY_PAUSE_MAX, scan_request, specifier};
use crate::register::{Value, Window};
use crate::told::{self, MANY, SECOND, SINGLE};
use crate::versions::{Delete, LETTERS};

/// Between two operations of a register. A put in the millisecond of a delete is deleted.
const TICK: Duration = Duration::from_millis(2);
/// Rows of a batch.
const BATCH_MAX: usize = 4;
/// Rows that a call of a slow scan returns at most, and how long its client works on them.
const SLOW_ROWS_MAX: usize = 12;
const SLOW_PAUSE_MAX: Duration = Duration::from_millis(400);
/// Of so many operations of a register one expects what is not there, and one is followed by a read of the row.
const WRONG_ONE_IN: usize = 6;
const READS_ONE_IN: usize = 3;

/// A column and its value.
pub(crate) fn column(family: &[u8], qualifier: &[u8], value: &[u8]) -> ColumnValue {
    let copied = |bytes: &[u8]| Some(Bytes::copy_from_slice(bytes));
    let value = QualifierValue { qualifier: copied(qualifier), value: copied(value), ..Default::default() };
    ColumnValue { family: Bytes::copy_from_slice(family), qualifier_value: vec![value] }
}

fn at_time(mut column: ColumnValue, time: u64) -> ColumnValue {
    column.qualifier_value[0].timestamp = Some(time);
    column
}

fn deleting(mut column: ColumnValue, kind: DeleteType) -> ColumnValue {
    column.qualifier_value[0].delete_type = Some(kind as i32);
    column
}

pub(crate) fn mutation(row: &Bytes, kind: MutationType, columns: Vec<ColumnValue>) -> pb::MutationProto {
    pb::MutationProto {
        row: Some(row.clone()),
        mutate_type: Some(kind as i32),
        column_value: columns,
        ..Default::default()
    }
}

/// A part of a batch.
struct Part {
    row: Bytes,
    mutation: pb::MutationProto,
    is_done: bool,
}

impl Part {
    fn new((row, mutation): (Bytes, pb::MutationProto)) -> Part {
        Part { row, mutation, is_done: false }
    }
}

/// What was known when a scanner was open.
struct Opened {
    ended_ns: u64,
    after: BTreeMap<Bytes, told::Row>,
}

fn row_of(number: usize, kind: char) -> Bytes {
    Bytes::from(format!("{:02}{kind}", number * PREFIXES / COUNTERS))
}

/// No copy of a call is on its way any more: the row's own and the caller's are all that there are.
fn is_quiet(held: &Arc<()>) -> bool {
    Arc::strong_count(held) == 2
}

/// A register has this value.
fn condition(row: &Bytes, value: Value) -> pb::Condition {
    let value = value.map_or_else(Bytes::new, |id| Bytes::copy_from_slice(&id.to_be_bytes()));
    let comparable = pb::ByteArrayComparable { value: Some(value) };
    let comparator = pb::Comparator {
        name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_string(),
        serialized_comparator: Some(pb::BinaryComparator { comparable }.encode_to_vec().into()),
    };
    pb::Condition {
        row: row.clone(),
        family: Some(Bytes::from_static(SINGLE)),
        qualifier: Some(Bytes::from_static(b"q")),
        compare_type: Some(pb::CompareType::Equal as i32),
        comparator: Some(comparator),
        ..Default::default()
    }
}

fn delete_mutation(row: &Bytes, delete: Delete) -> pb::MutationProto {
    let column = at_time(deleting(column(MANY, &[delete.letter], b""), delete.kind), delete.time);
    mutation(row, MutationType::Delete, vec![column])
}

impl Client {
    /// Puts, deletes, or does so under a condition.
    pub(crate) fn change_register(&mut self, number: usize) {
        let row = row_of(number, 's');
        let table = self.table.to_string();
        let Some(held) = self.world.lock().told.take(&table, &row) else { return };
        if is_quiet(&held) {
            self.caller.held = Some(held);
            self.change_quiet_register(&table, &row);
            self.caller.held = None;
            self.world.clock.sleep(TICK);
        }
        let reads = self.world.lock().dice.one_in(READS_ONE_IN);
        if reads {
            self.get_register(&table, &row);
        }
        self.world.lock().told.give_back(&table, &row);
    }

    fn change_quiet_register(&mut self, table: &str, row: &Bytes) {
        let (id, choice, is_wrong, only, newest) = {
            let mut state = self.world.lock();
            let (choice, is_wrong) = (state.dice.below(8), state.dice.one_in(WRONG_ONE_IN));
            let id = state.next_id();
            let register = &state.told.row(table, row).register;
            (id, choice, is_wrong, register.only_value(), register.newest())
        };
        let value = if choice % 2 == 0 || newest.is_none() { Some(id) } else { None };
        let change = match value {
            Some(id) => {
                let id = id.to_be_bytes();
                mutation(row, MutationType::Put, vec![column(SINGLE, b"q", &id), column(MANY, SECOND, &id)])
            }
            None => {
                let kind =
                    if choice < 4 { DeleteType::DeleteFamily } else { DeleteType::DeleteMultipleVersions };
                let columns = [(SINGLE, &b"q"[..]), (MANY, SECOND)];
                let columns =
                    columns.map(|(family, qualifier)| deleting(column(family, qualifier, b""), kind));
                mutation(row, MutationType::Delete, columns.to_vec())
            }
        };
        let is_checked = choice >= 5;
        if is_checked && is_wrong {
            // No put has this number.
            let answer = self.mutate(row, change, Some(condition(row, Some(id + (1 << 60)))));
            assert!(
                answer.is_none_or(|answer| !answer.processed()),
                "{table}, row {}: a condition holds that never can",
                row.escape_ascii()
            );
            return;
        }
        let now_ns = self.world.now_ns();
        let number = self.world.lock().told.row(table, row).register.begin(value, now_ns);
        let condition = is_checked.then(|| condition(row, newest));
        let Some(answer) = self.mutate(row, change, condition) else {
            return self.world.lock().count("changes without an answer");
        };
        // Where a condition that holds is refused, an attempt before has carried the operation out.
        let is_done = !is_checked || answer.processed() || only == Some(newest);
        let now_ns = self.world.now_ns();
        let mut state = self.world.lock();
        if is_done {
            state.told.row(table, row).register.settle(number, now_ns);
        }
        state.count(match (value, is_checked) {
            (_, true) => "checked changes",
            (Some(_), _) => "changes of rows",
            (None, _) => "deletes of rows",
        });
    }

    fn get_register(&mut self, table: &str, row: &Bytes) {
        let Some((server, region)) = self.find(row) else { return };
        let begun_ns = self.world.now_ns();
        let request = pb::GetRequest {
            region: specifier(&region),
            get: pb::Get { row: row.clone(), ..Default::default() },
        };
        let Ok(answer) = self.world.call(&self.caller, &server, Target::Client, "Get", &request) else {
            self.place = None;
            return;
        };
        let response = pb::GetResponse::decode(answer).expect("a server's answer");
        let (mut found, window) = (told::Found::new(), Window { begun_ns, ended_ns: self.world.now_ns() });
        let shown = told::add_found(&mut found, response.result.as_slice()).and_then(|()| {
            let shown = found.get(row).map_or([None; 2], told::FoundRow::register);
            let mut state = self.world.lock();
            let register = &mut state.told.row(table, row).register;
            register.check(shown[0], window)?;
            register.check(shown[1], window)?;
            register.observe(shown[0], window);
            state.count("reads of rows");
            Ok(())
        });
        shown.unwrap_or_else(|wrong| {
            panic!("a read of row {} of {table} at {server}: {wrong}", row.escape_ascii())
        });
    }

    /// Puts at times of its own, or deletes some of what was put.
    pub(crate) fn change_versions(&mut self, number: usize) {
        let row = row_of(number, 'v');
        let table = self.table.to_string();
        let Some(held) = self.world.lock().told.take(&table, &row) else { return };
        let delete = self.delete_of(&table, &row, is_quiet(&held));
        self.caller.held = Some(held);
        match delete {
            Some((delete, number)) => {
                let answer = self.mutate(&row, delete_mutation(&row, delete), None);
                if answer.is_some() {
                    let now_ns = self.world.now_ns();
                    let mut state = self.world.lock();
                    state.told.row(&table, &row).versions.settle_delete(number, now_ns);
                    state.count("deletes at times");
                }
            }
            None => {
                let (put, number) = self.put_of(&table, &row);
                if self.mutate(&row, put, None).is_some() {
                    let now_ns = self.world.now_ns();
                    let mut state = self.world.lock();
                    state.told.row(&table, &row).versions.settle_put(number, now_ns);
                    state.count("puts at times");
                }
            }
        }
        self.caller.held = None;
        self.world.lock().told.give_back(&table, &row);
    }

    /// A delete that begins now, if one can.
    fn delete_of(&self, table: &str, row: &Bytes, is_quiet: bool) -> Option<(Delete, usize)> {
        let now_ns = self.world.now_ns();
        let mut state = self.world.lock();
        if !state.dice.one_in(3) || !is_quiet {
            return None;
        }
        let state = &mut *state;
        let versions = &mut state.told.row(table, row).versions;
        let delete = versions.next_delete(|end| state.dice.below(end))?;
        Some((delete, versions.begin_delete(delete, now_ns)))
    }

    /// A put that begins now, of one column or more.
    fn put_of(&self, table: &str, row: &Bytes) -> (pb::MutationProto, usize) {
        let now_ns = self.world.now_ns();
        let mut state = self.world.lock();
        let state = &mut *state;
        let id = state.next_id();
        let versions = &mut state.told.row(table, row).versions;
        let time = versions.new_time(|end| state.dice.below(end));
        let first = state.dice.below(usize::from(LETTERS)) as u8;
        let letters = (first..LETTERS).map(|letter| b'a' + letter);
        let columns = letters.clone().map(|letter| at_time(column(MANY, &[letter], &id.to_be_bytes()), time));
        let put = mutation(row, MutationType::Put, columns.collect());
        (put, versions.begin_put(id, letters.map(|letter| (letter, time)).collect(), now_ns))
    }

    /// Several rows in one call, which may be in several regions, and have several families.
    pub(crate) fn batch(&mut self, prefix: usize) {
        let count = self.world.lock().dice.between(2, BATCH_MAX);
        let mut parts: Vec<Part> =
            (0..count).map(|at| Part::new(self.new_put((prefix + at * PREFIXES / 7) % PREFIXES))).collect();
        let table = self.table.to_string();
        let row = row_of(prefix % COUNTERS, 'v');
        let held = self.world.lock().told.take(&table, &row);
        let put = held.as_ref().map(|_| self.put_of(&table, &row));
        if let Some((put, _)) = &put {
            parts.push(Part::new((row.clone(), put.clone())));
        }
        self.caller.held.clone_from(&held);
        self.call_batch(&mut parts);
        self.caller.held = None;
        let now_ns = self.world.now_ns();
        let mut state = self.world.lock();
        for part in parts.iter().filter(|part| part.is_done) {
            let told = state.told.row(&table, &part.row);
            match &put {
                Some((_, number)) if part.row == row => told.versions.settle_put(*number, now_ns),
                _ => told.put = true,
            }
            state.count("puts in batches");
        }
        if held.is_some() {
            state.told.give_back(&table, &row);
        }
    }

    /// Repeats what has no answer until the client's patience is over.
    fn call_batch(&mut self, parts: &mut [Part]) {
        let patience = self.world.lock().dice.below(PATIENCE_MAX.as_nanos() as usize);
        let begun_ns = self.world.now_ns();
        while let Some(first) = parts.iter().find(|part| !part.is_done) {
            if let Some((server, _)) = self.world.place_of(&self.table, &first.row) {
                self.call_parts(&server, parts);
            }
            if self.world.now_ns() - begun_ns > patience as u64 {
                return;
            }
            self.world.delay(RETRY_PAUSE_MAX);
        }
    }

    /// One call with all that is at a server.
    fn call_parts(&self, server: &ServerName, parts: &mut [Part]) {
        let mut request = pb::MultiRequest::default();
        let mut indices: Vec<Vec<usize>> = Vec::new();
        for (index, part) in parts.iter().enumerate().filter(|(_, part)| !part.is_done) {
            let Some((at, region)) = self.world.place_of(&self.table, &part.row) else { continue };
            if at != *server {
                continue;
            }
            let region = specifier(&region);
            let known = request.region_action.iter().position(|action| action.region == region);
            let to = known.unwrap_or_else(|| {
                request.region_action.push(pb::RegionAction { region, ..Default::default() });
                indices.push(Vec::new());
                indices.len() - 1
            });
            let action = pb::Action {
                index: Some(indices[to].len() as u32),
                mutation: Some(Box::new(part.mutation.clone())),
                ..Default::default()
            };
            request.region_action[to].action.push(action);
            indices[to].push(index);
        }
        let Ok(answer) = self.world.call(&self.caller, server, Target::Client, "Multi", &request) else {
            return;
        };
        let response = pb::MultiResponse::decode(answer).expect("a server's answer");
        for (result, indices) in response.region_action_result.iter().zip(&indices) {
            for one in result.result_or_exception.iter().filter(|one| one.exception.is_none()) {
                parts[indices[one.index() as usize]].is_done = true;
            }
        }
    }

    /// Scans a region call by call. All of them show what the first one saw.
    pub(crate) fn scan_slowly(&mut self, prefix: usize) {
        let row = Bytes::from(format!("{prefix:02}"));
        let Some((server, region)) = self.find(&row) else { return };
        let rows = self.world.lock().dice.between(1, SLOW_ROWS_MAX) as u32;
        let before = self.world.lock().told.of_region(&region);
        let begun_ns = self.world.now_ns();
        let mut opened: Option<Opened> = None;
        let mut found = told::Found::new();
        let mut request = scan_request(&region, rows);
        let mut calls = 0;
        loop {
            let called = self.world.call(&self.caller, &server, Target::Client, "Scan", &request);
            let Ok(answer) = called else {
                self.place = None;
                return;
            };
            let response = pb::ScanResponse::decode(answer).expect("a server's answer");
            if opened.is_none() {
                let after = self.world.lock().told.of_region(&region);
                opened = Some(Opened { ended_ns: self.world.now_ns(), after });
            }
            told::add_found(&mut found, &response.results)
                .unwrap_or_else(|wrong| panic!("a slow scan of {region} at {server}: {wrong}"));
            if response.more_results_in_region == Some(false) || response.more_results == Some(false) {
                break;
            }
            request = pb::ScanRequest {
                scanner_id: response.scanner_id.or(request.scanner_id),
                number_of_rows: Some(rows),
                next_call_seq: Some(calls),
                ..Default::default()
            };
            calls += 1;
            self.world.delay(SLOW_PAUSE_MAX);
        }
        let opened = opened.expect("there was an answer");
        let window = Window { begun_ns, ended_ns: opened.ended_ns };
        if let Err(wrong) = told::check(&found, &before, &opened.after, window) {
            panic!("a slow scan of {region} at {server} from {begun_ns} to {}: {wrong}", opened.ended_ns);
        }
        let mut state = self.world.lock();
        state.told.observe(&region, &found, window);
        state.count("slow scans");
    }
}
