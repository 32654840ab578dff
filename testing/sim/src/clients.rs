//! Clients of real region servers. Each is a process of its own, which puts, increments, appends and reads.
//!
//! A client keeps where a region is until a call fails. It repeats a call that was refused or has no answer, an Increment or Append with
//! the nonce of the first attempt, until its patience is over.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::column_value::QualifierValue;
use halcyon_proto::pb::mutation_proto::{ColumnValue, MutationType};
use halcyon_schema::{RegionInfo, ServerName, TableName};
use halcyon_servers::Target;
use prost::Message;

use crate::calls::{Caller, Failure};
use crate::server::Life;
use crate::told::{self, APPENDED, COUNT, FAMILY, ONE, PUT};
use crate::world::World;

/// Clients that work at the same time.
const CLIENTS_MAX: usize = 5;
/// How long a client waits for one answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// How long it repeats a call.
const PATIENCE_MAX: Duration = Duration::from_secs(20);
/// Between two attempts.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(400);
/// Between two operations.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// One call in so many has a fault.
const FAULT_ONE_IN: usize = 10;
/// Rows that are incremented and appended to, in each table.
const COUNTERS: usize = 8;
const PREFIXES: usize = 100;
const ROWS_MAX: u32 = 1_000_000;

struct Client {
    world: Arc<World>,
    caller: Caller,
    /// The group of its nonces.
    number: u64,
    table: TableName,
    place: Option<(ServerName, RegionInfo)>,
}

impl World {
    /// Starts a client that does up to so many operations, unless there are many already.
    pub(crate) fn begin_client(self: &Arc<World>, table: &TableName, operations: usize) {
        let number = {
            let mut state = self.lock();
            if state.told.clients >= CLIENTS_MAX {
                return;
            }
            state.told.clients += 1;
            state.next_id()
        };
        let caller = Caller::client(number, ANSWER_TIME, FAULT_ONE_IN);
        let (world, table) = (self.clone(), table.clone());
        let client = Client { world, caller, number, table, place: None };
        let name = format!("client-{number}");
        self.threads.start_process(&name, move || client.work(operations)).expect("there are threads");
    }

    /// Starts a client that goes on reading a region at a server for so long, wherever else the region may be by now.
    pub(crate) fn begin_reader(self: &Arc<World>, server: &ServerName, region: &RegionInfo, time: Duration) {
        let number = {
            let mut state = self.lock();
            state.told.clients += 1;
            state.next_id()
        };
        let caller = Caller::client(number, ANSWER_TIME, FAULT_ONE_IN);
        let (world, table, place) = (self.clone(), region.table().clone(), (server.clone(), region.clone()));
        let reader = Client { world, caller, number, table, place: Some(place) };
        let name = format!("reader-{number}");
        self.threads.start_process(&name, move || reader.insist(time)).expect("there are threads");
    }

    /// Where a row is.
    fn place_of(&self, table: &TableName, row: &[u8]) -> Option<(ServerName, RegionInfo)> {
        let state = self.lock();
        let there = state.servers.iter().filter(|(_, server)| server.life != Life::Dead);
        let open = there.flat_map(|(name, server)| server.regions.values().map(move |open| (name, open)));
        let open = open.filter(|(_, open)| open.is_granted && open.info.table() == table);
        let open = open.filter(|(_, open)| open.info.contains_row(row)).max_by_key(|(_, open)| open.seq);
        open.map(|(name, open)| (name.clone(), open.info.clone()))
    }

    /// All rows of a region at a server.
    pub(crate) fn scan_at(
        self: &Arc<World>,
        caller: &Caller,
        server: &ServerName,
        region: &RegionInfo,
    ) -> Result<told::Found, Failure> {
        let request = pb::ScanRequest {
            region: Some(specifier(region)),
            scan: Some(pb::Scan { max_versions: Some(1), ..Default::default() }),
            number_of_rows: Some(ROWS_MAX),
            close_scanner: Some(true),
            ..Default::default()
        };
        let answer = self.call(caller, server, Target::Client, "Scan", &request)?;
        let response = pb::ScanResponse::decode(answer).expect("a server's answer");
        assert!(response.more_results_in_region != Some(true), "{region} has more than fits into an answer");
        Ok(told::found(&response))
    }
}

impl Client {
    fn work(mut self, operations: usize) {
        for _ in 0..operations {
            let (choice, at) = {
                let mut state = self.world.lock();
                (state.dice.below(10), state.dice.below(PREFIXES))
            };
            match choice {
                0..4 => self.put(at),
                4..6 => self.increment(at % COUNTERS),
                6..8 => self.append(at % COUNTERS),
                _ => self.read(at),
            }
            self.world.delay(PAUSE_MAX);
        }
        self.world.lock().told.clients -= 1;
    }

    fn insist(mut self, time: Duration) {
        let place = self.place.clone();
        let begun_ns = self.world.now_ns();
        while self.world.now_ns() - begun_ns < time.as_nanos() as u64 {
            self.place.clone_from(&place);
            self.read_region();
            self.world.delay(RETRY_PAUSE_MAX);
        }
        self.world.lock().told.clients -= 1;
    }

    fn put(&mut self, prefix: usize) {
        let id = self.world.lock().next_id();
        let row = Bytes::from(format!("{prefix:02}r{id:016}"));
        if self.mutate(&row, MutationType::Put, None, vec![(PUT.to_vec(), b"value".to_vec())]).is_some() {
            let mut state = self.world.lock();
            state.told.row(&self.table.to_string(), &row).put = true;
            state.count("puts");
        }
    }

    fn increment(&mut self, counter: usize) {
        let (row, id) = (counter_row(counter), self.world.lock().next_id());
        let table = self.table.to_string();
        self.world.lock().told.row(&table, &row).increments.begun.insert(id);
        let one = 1_u64.to_be_bytes().to_vec();
        let columns = vec![([&[ONE], &id.to_be_bytes()[..]].concat(), one.clone()), (COUNT.to_vec(), one)];
        let answer = self.mutate(&row, MutationType::Increment, Some(id), columns);
        let mut state = self.world.lock();
        if let Some(answer) = &answer {
            let told = state.told.row(&table, &row);
            told.increments.acknowledged.insert(id);
            if let Err(wrong) = told.counted(id, answer) {
                panic!("{table}, row {}: {wrong}", row.escape_ascii());
            }
        }
        state.count(if answer.is_some() { "Increments" } else { "Increments without an answer" });
    }

    fn append(&mut self, counter: usize) {
        let (row, id) = (counter_row(counter), self.world.lock().next_id());
        let table = self.table.to_string();
        self.world.lock().told.row(&table, &row).appends.begun.insert(id);
        let columns = vec![(APPENDED.to_vec(), id.to_be_bytes().to_vec())];
        let answer = self.mutate(&row, MutationType::Append, Some(id), columns);
        let mut state = self.world.lock();
        if let Some(answer) = &answer {
            state.told.row(&table, &row).appends.acknowledged.insert(id);
            if let Err(wrong) = told::appended_last(id, answer) {
                panic!("{table}, row {}: {wrong}", row.escape_ascii());
            }
        }
        state.count(if answer.is_some() { "Appends" } else { "Appends without an answer" });
    }

    /// The answer, if the mutation is acknowledged.
    fn mutate(
        &mut self,
        row: &Bytes,
        kind: MutationType,
        nonce: Option<u64>,
        columns: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Option<pb::MutateResponse> {
        let value = |(qualifier, value): (Vec<u8>, Vec<u8>)| QualifierValue {
            qualifier: Some(qualifier.into()),
            value: Some(value.into()),
            ..Default::default()
        };
        let family = Bytes::from_static(FAMILY);
        let column = ColumnValue { family, qualifier_value: columns.into_iter().map(value).collect() };
        let mutation = pb::MutationProto {
            row: Some(row.clone()),
            mutate_type: Some(kind as i32),
            column_value: vec![column],
            nonce,
            ..Default::default()
        };
        let group = nonce.map(|_| self.number);
        let (begun_ns, patience) =
            (self.world.now_ns(), self.world.lock().dice.below(PATIENCE_MAX.as_nanos() as usize));
        let mut attempts = 0;
        loop {
            if let Some((server, region)) = self.find(row) {
                let region = specifier(&region);
                let request = pb::MutateRequest {
                    region,
                    mutation: mutation.clone(),
                    condition: None,
                    nonce_group: group,
                };
                match self.world.call(&self.caller, &server, Target::Client, "Mutate", &request) {
                    Ok(answer) => {
                        if attempts > 0 && nonce.is_some() {
                            self.world.lock().count("repeated with a nonce");
                        }
                        return Some(pb::MutateResponse::decode(answer).expect("a server's answer"));
                    }
                    Err(failure) => {
                        self.world
                            .tell(|| format!("client {}: {kind:?} at {server}: {failure:?}", self.number));
                        match failure {
                            Failure::NoAnswer => attempts += 1,
                            // A server that ends says that, and another one has the region soon.
                            Failure::Refused(error) if error.do_not_retry => {
                                // Much less time has passed than versions are kept.
                                assert!(!error.message.contains("its answer is gone"), "{error:?}");
                                self.world.lock().count("calls refused for good");
                            }
                            Failure::Refused(_) => {}
                        }
                        self.place = None;
                    }
                }
            }
            if self.world.now_ns() - begun_ns > patience as u64 {
                return None;
            }
            self.world.delay(RETRY_PAUSE_MAX);
        }
    }

    /// Where it believes the row to be.
    fn find(&mut self, row: &Bytes) -> Option<(ServerName, RegionInfo)> {
        if self.place.as_ref().is_none_or(|(_, region)| !region.contains_row(row)) {
            self.place = self.world.place_of(&self.table, row);
        }
        self.place.clone()
    }

    fn read(&mut self, prefix: usize) {
        let row = Bytes::from(format!("{prefix:02}"));
        if self.find(&row).is_some() {
            self.read_region();
        }
    }

    /// Reads a region where it is believed to be, and finds what was acknowledged before.
    fn read_region(&mut self) {
        let Some((server, region)) = self.place.clone() else { return };
        let before = self.world.lock().told.of_region(&region);
        let Ok(found) = self.world.scan_at(&self.caller, &server, &region) else {
            self.place = None;
            return;
        };
        let after = self.world.lock().told.of_region(&region);
        if let Err(wrong) = told::check(&found, &before, &after) {
            panic!("a read of {region} at {server}: {wrong}");
        }
        self.world.lock().count("reads");
    }
}

fn counter_row(counter: usize) -> Bytes {
    Bytes::from(format!("{:02}c", counter * PREFIXES / COUNTERS))
}

pub(crate) fn specifier(region: &RegionInfo) -> pb::RegionSpecifier {
    pb::RegionSpecifier { r#type: 1, value: region.region_name().clone() }
}
