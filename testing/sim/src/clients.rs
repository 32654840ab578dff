//! Clients of real region servers. Each is a process of its own, which puts, increments, appends and reads. `operations.rs` has what they
//! do besides: deletes, checks, batches, and scans in several calls.
//!
//! A client keeps where a region is until a call fails. It repeats a call that was refused or has no answer, an Increment or Append with
//! the nonce of the first attempt, until its patience is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::MutationType;
use halcyon_schema::{RegionInfo, ServerName, TableName};
use halcyon_servers::Target;
use prost::Message;

use crate::calls::{Caller, Failure};
use crate::operations::{column, mutation};
use crate::rates::Kind;
use crate::register::Window;
use crate::server::Life;
use crate::told::{self, APPENDED, COUNT, FAMILY, ONE, PUT};
use crate::world::World;

/// Clients that work at the same time.
const CLIENTS_MAX: usize = 5;
/// How long a client waits for one answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// How long it repeats a call.
pub(crate) const PATIENCE_MAX: Duration = Duration::from_secs(20);
/// Between two attempts.
pub(crate) const RETRY_PAUSE_MAX: Duration = Duration::from_millis(400);
/// Between two operations.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Rows that are incremented and appended to, in each table.
pub(crate) const COUNTERS: usize = 8;
pub(crate) const PREFIXES: usize = 100;
/// More than are written of a cell.
const VERSIONS_MAX: u32 = 1_000;
const ROWS_MAX: u32 = 1_000_000;

/// What a client does, by chance. `None` is a put, which no seed leaves out.
const OPERATIONS: [Option<Kind>; 20] = {
    let mut operations = [None; 20];
    let often = [
        (Kind::Batches, 1),
        (Kind::Increments, 4),
        (Kind::Appends, 4),
        (Kind::Reads, 2),
        (Kind::SlowScans, 1),
        (Kind::Registers, 2),
        (Kind::Versions, 2),
    ];
    let (mut at, mut kind) = (0, 0);
    while kind < often.len() {
        let end = at + often[kind].1;
        while at < end {
            operations[at] = Some(often[kind].0);
            at += 1;
        }
        kind += 1;
    }
    operations
};

pub(crate) struct Client {
    pub(crate) world: Arc<World>,
    pub(crate) caller: Caller,
    /// The group of its nonces.
    number: u64,
    pub(crate) table: TableName,
    pub(crate) place: Option<(ServerName, RegionInfo)>,
}

/// What a scan has shown, and when that was so.
pub(crate) struct Scanned {
    pub(crate) found: told::Found,
    pub(crate) window: Window,
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
        let caller = Caller::client(number, ANSWER_TIME, self.rates.call_fault_one_in);
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
        let caller = Caller::client(number, ANSWER_TIME, self.rates.call_fault_one_in);
        let (world, table, place) = (self.clone(), region.table().clone(), (server.clone(), region.clone()));
        let reader = Client { world, caller, number, table, place: Some(place) };
        let name = format!("reader-{number}");
        self.threads.start_process(&name, move || reader.insist(time)).expect("there are threads");
    }

    /// Where a row is.
    pub(crate) fn place_of(&self, table: &TableName, row: &[u8]) -> Option<(ServerName, RegionInfo)> {
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
    ) -> Result<Scanned, Failure> {
        let begun_ns = self.now_ns();
        let request = pb::ScanRequest { close_scanner: Some(true), ..scan_request(region, ROWS_MAX) };
        let answer = self.call(caller, server, Target::Client, "Scan", &request)?;
        let response = pb::ScanResponse::decode(answer).expect("a server's answer");
        assert!(response.more_results_in_region != Some(true), "{region} has more than fits into an answer");
        let mut found = told::Found::new();
        told::add_found(&mut found, &response.results)
            .unwrap_or_else(|wrong| panic!("a read of {region} at {server}: {wrong}"));
        Ok(Scanned { found, window: Window { begun_ns, ended_ns: self.now_ns() } })
    }
}

impl Client {
    fn work(mut self, operations: usize) {
        for _ in 0..operations {
            let (choice, at) = {
                let mut state = self.world.lock();
                let choice = OPERATIONS[state.dice.below(OPERATIONS.len())];
                (choice, state.dice.below(PREFIXES))
            };
            match choice.filter(|kind| self.world.rates.has(*kind)) {
                Some(Kind::Batches) => self.batch(at),
                Some(Kind::Increments) => self.increment(at % COUNTERS),
                Some(Kind::Appends) => self.append(at % COUNTERS),
                Some(Kind::Reads) => self.read(at),
                Some(Kind::SlowScans) => self.scan_slowly(at),
                Some(Kind::Registers) => self.change_register(at % COUNTERS),
                Some(Kind::Versions) => self.change_versions(at % COUNTERS),
                _ => self.put(at),
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
        let (row, put) = self.new_put(prefix);
        if self.mutate(&row, put, None).is_some() {
            let mut state = self.world.lock();
            state.told.row(&self.table.to_string(), &row).put = true;
            state.count("puts");
        }
    }

    /// Of a row that was never there.
    pub(crate) fn new_put(&self, prefix: usize) -> (Bytes, pb::MutationProto) {
        let mut state = self.world.lock();
        let row = Bytes::from(format!("{prefix:02}r{:016}", state.next_id()));
        state.told.row(&self.table.to_string(), &row); // a read may show it from now on
        let len = state.dice.between(1, self.world.rates.sizes.value_bytes_max);
        let column = column(FAMILY, PUT, &vec![b'v'; len]);
        (row.clone(), mutation(&row, MutationType::Put, vec![column]))
    }

    fn increment(&mut self, counter: usize) {
        let (row, id) = (counter_row(counter), self.world.lock().next_id());
        let table = self.table.to_string();
        self.world.lock().told.row(&table, &row).increments.begun.insert(id);
        let (one, own) = (1_u64.to_be_bytes(), [&[ONE], &id.to_be_bytes()[..]].concat());
        let columns = vec![column(FAMILY, &own, &one), column(FAMILY, COUNT, &one)];
        let increment =
            pb::MutationProto { nonce: Some(id), ..mutation(&row, MutationType::Increment, columns) };
        let answer = self.mutate(&row, increment, None);
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
        let columns = vec![column(FAMILY, APPENDED, &id.to_be_bytes())];
        let append = pb::MutationProto { nonce: Some(id), ..mutation(&row, MutationType::Append, columns) };
        let answer = self.mutate(&row, append, None);
        let mut state = self.world.lock();
        if let Some(answer) = &answer {
            state.told.row(&table, &row).appends.acknowledged.insert(id);
            if let Err(wrong) = told::appended_last(id, answer) {
                panic!("{table}, row {}: {wrong}", row.escape_ascii());
            }
        }
        state.count(if answer.is_some() { "Appends" } else { "Appends without an answer" });
    }

    /// The answer, if the mutation is acknowledged. It is repeated until the client's patience is over.
    pub(crate) fn mutate(
        &mut self,
        row: &Bytes,
        mutation: pb::MutationProto,
        condition: Option<pb::Condition>,
    ) -> Option<pb::MutateResponse> {
        let (kind, nonce) = (mutation.mutate_type(), mutation.nonce);
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
                    condition: condition.clone(),
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
    pub(crate) fn find(&mut self, row: &Bytes) -> Option<(ServerName, RegionInfo)> {
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
        let Ok(scanned) = self.world.scan_at(&self.caller, &server, &region) else {
            self.place = None;
            return;
        };
        self.world.check_read(&server, &region, &before, &scanned);
        self.world.lock().count("reads");
    }
}

impl World {
    /// What was acknowledged before is there, and nothing that was not begun before its end.
    pub(crate) fn check_read(
        &self,
        server: &ServerName,
        region: &RegionInfo,
        before: &BTreeMap<Bytes, told::Row>,
        scanned: &Scanned,
    ) {
        let mut state = self.lock();
        let after = state.told.of_region(region);
        if let Err(wrong) = told::check(&scanned.found, before, &after, scanned.window) {
            drop(state);
            panic!("a read of {region} at {server}: {wrong}");
        }
        state.told.observe(region, &scanned.found, scanned.window);
    }
}

pub(crate) fn scan_request(region: &RegionInfo, rows: u32) -> pb::ScanRequest {
    pb::ScanRequest {
        region: Some(specifier(region)),
        scan: Some(pb::Scan { max_versions: Some(VERSIONS_MAX), ..Default::default() }),
        number_of_rows: Some(rows),
        ..Default::default()
    }
}

fn counter_row(counter: usize) -> Bytes {
    Bytes::from(format!("{:02}c", counter * PREFIXES / COUNTERS))
}

pub(crate) fn specifier(region: &RegionInfo) -> pb::RegionSpecifier {
    pb::RegionSpecifier { r#type: 1, value: region.region_name().clone() }
}
