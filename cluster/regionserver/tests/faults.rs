//! A master and a region server on a disk that fails somewhere: once with `EIO`, once for want of space, or full until
//! space returns. Calls may fail with an error that says why. What was acknowledged is there, procedures end, tables
//! that were promised are whole, and the server serves on; if its log failed it says so and a restart does.
//!
//! `HALCYON_FAULTS` sets how many places are tried for each kind of fault.

#![allow(clippy::disallowed_methods)] // sleeps and clocks of the test itself

use crate::common;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{ROOT, connection, decoded, put, settings};
use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_contract::RegionServerApi;
use halcyon_env::sim::{CrashMode, Fault, SimFileSystem};
use halcyon_env::{Clock, Env, SystemClock};
use halcyon_master::{Master, MasterService, MasterSettings};
use halcyon_proto::pb;
use halcyon_regionserver::{AdminService, ClientService, Predecessors, RegionServer};
use halcyon_rpc::{Call, CallClass, Codec, Outcome, Reply, ReplyFuture, RpcError, Service};
use halcyon_schema::{FamilyDescriptor, RegionInfo, ServerName, TableDescriptor, TableName};
use prost::Message;

const ROWS: [&str; 6] = ["a", "b", "k", "m", "p", "x"];
/// No call and no procedure may take longer while the disk does what it should.
const PATIENCE: Duration = Duration::from_secs(20);
/// While the disk is full, calls may wait until there is space. Nobody here waits that long.
const IMPATIENCE: Duration = Duration::from_millis(50);

type Answer<T> = Result<T, RpcError>;

struct Site {
    fs: SimFileSystem,
    disk_is_full: AtomicBool,
    server: Arc<RegionServer>,
    master: Arc<Master>,
    masters: MasterService,
    client: ClientService,
    admin: AdminService,
    runtime: tokio::runtime::Runtime,
}

impl Site {
    fn start(fs: SimFileSystem, port: u16) -> Result<Site, String> {
        let clock = Arc::new(SystemClock::new()) as Arc<dyn Clock>;
        let env = Env { clock, ..fs.env() };
        let root = Path::new(ROOT);
        halcyon_master::prepare_root_dir(&env, root).map_err(|error| error.to_string())?;
        let server =
            RegionServer::start(env.clone(), root, &Predecessors::All, settings(), "localhost", port)
                .map_err(|error| error.to_string())?;
        let mut master = MasterSettings::new(ServerName::new("localhost", 16000, env.clock.now_ms()));
        master.retry_pause = Duration::from_millis(1);
        master.retry_pause_max = Duration::from_millis(20);
        let master = Master::start(env, root, master, server.cluster_services()).map_err(|error| {
            server.abort("the master cannot start");
            error.to_string()
        })?;
        let masters = MasterService::new(master.clone()).map_err(|error| error.to_string())?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Ok(Site {
            fs,
            disk_is_full: AtomicBool::new(false),
            client: ClientService::new(server.clone()),
            admin: AdminService::new(server.clone()),
            server,
            master,
            masters,
            runtime: runtime.unwrap(),
        })
    }

    fn call<R: Message + Default>(
        &self,
        service: &dyn Service,
        method: &str,
        request: &impl Message,
        cells: Vec<Cell>,
    ) -> Answer<(R, Vec<Cell>)> {
        let call = Call {
            id: 1,
            method: method.to_string(),
            param: request.encode_to_vec().into(),
            cells,
            priority: 0,
            class: CallClass::Read,
            timeout: Some(PATIENCE),
            is_traced: false,
            received_ns: 0,
            attributes: Vec::new(),
            connection: connection(Some(Codec::KeyValue), Some((2, 6))),
        };
        let _context = self.runtime.enter();
        let outcome = service.call(call);
        service.batch_done();
        let reply = match outcome {
            Outcome::Ready(reply) => reply,
            Outcome::Later(later) => self.runtime.block_on(self.answer(method, later)),
        }?;
        Ok(decoded(reply))
    }

    /// Waits for an answer as long as there is one to be expected: not from a server that gave up, whose process ends.
    async fn answer(&self, method: &str, mut later: ReplyFuture) -> Answer<Reply> {
        let begin = Instant::now();
        loop {
            if let Ok(answer) = tokio::time::timeout(IMPATIENCE, &mut later).await {
                return answer;
            }
            if self.disk_is_full.load(Ordering::Relaxed) || self.server.failure().is_some() {
                return Err(RpcError::do_not_retry(format!("{method} waits")));
            }
            assert!(begin.elapsed() < PATIENCE, "{method} has no answer");
        }
    }

    /// Submits an action of the master, and waits for its end if the disk lets it end.
    fn act(&self, method: &str, request: &impl Message, waits: bool) -> Answer<()> {
        let (taken, _) = self.call::<pb::CreateTableResponse>(&self.masters, method, request, Vec::new())?;
        let proc_id = taken.proc_id();
        let begin = Instant::now();
        let patience = if waits { PATIENCE } else { 3 * IMPATIENCE };
        loop {
            let question = pb::GetProcedureResultRequest { proc_id };
            let (answer, _): (pb::GetProcedureResultResponse, _) =
                self.call(&self.masters, "getProcedureResult", &question, Vec::new())?;
            if answer.state() == pb::get_procedure_result_response::State::Finished {
                let Some(exception) = answer.exception.and_then(|e| e.generic_exception) else {
                    return Ok(());
                };
                return Err(RpcError::do_not_retry(exception.message.unwrap_or_default()));
            }
            if begin.elapsed() > patience {
                assert!(!waits, "{method} does not end");
                return Err(RpcError::do_not_retry(format!("{method} goes on")));
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    fn region_of(&self, table: &str, row: &str) -> Option<RegionInfo> {
        let online = self.server.online_regions().unwrap();
        online
            .into_iter()
            .find(|region| region.table().as_str() == table && region.contains_row(row.as_bytes()))
    }

    fn specifier(region: &RegionInfo) -> pb::RegionSpecifier {
        pb::RegionSpecifier { r#type: 1, value: region.region_name().clone() }
    }

    fn put(&self, table: &str, row: &str, value: &str) -> Option<Answer<()>> {
        let region = self.region_of(table, row)?;
        let cell = Cell::put(row.as_bytes(), b"f", b"q", i64::MAX, value.as_bytes());
        let request = pb::MutateRequest {
            region: Site::specifier(&region),
            mutation: put(1),
            condition: None,
            nonce_group: Some(1),
        };
        Some(self.call::<pb::MutateResponse>(&self.client, "Mutate", &request, vec![cell]).map(|_| ()))
    }

    fn get(&self, table: &str, row: &str) -> Option<Answer<Option<String>>> {
        let region = self.region_of(table, row)?;
        let request = pb::GetRequest { region: Site::specifier(&region), get: common::get(row) };
        let answer = self.call::<pb::GetResponse>(&self.client, "Get", &request, Vec::new());
        let value =
            |cells: Vec<Cell>| cells.first().map(|cell| String::from_utf8_lossy(cell.value()).into_owned());
        Some(answer.map(|(_, cells)| value(cells)))
    }

    /// Whether the log failed, which the server finds out a moment later.
    fn gave_up(&self) -> bool {
        let logs = self.server.online_regions().unwrap().into_iter().map(|region| region.table().clone());
        let stopped = |table: TableName| {
            let probe = self.put(table.as_str(), "probe", "");
            probe.is_some_and(|answer| answer.is_err_and(|error| error.message.contains("log stopped")))
        };
        if self.server.failure().is_none() && !logs.into_iter().any(stopped) {
            return false;
        }
        let begin = Instant::now();
        while self.server.failure().is_none() {
            assert!(begin.elapsed() < PATIENCE, "the log failed and the server serves on");
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    fn end(&self) {
        self.master.stop();
        self.server.abort("the test goes on elsewhere");
    }
}

fn name(table: &str) -> TableName {
    TableName::parse(table.as_bytes()).unwrap()
}

fn create(table: &str, keys: &[&'static str]) -> pb::CreateTableRequest {
    let descriptor = TableDescriptor::new(name(table)).with_family(FamilyDescriptor::new("f").unwrap());
    pb::CreateTableRequest {
        table_schema: descriptor.to_pb(),
        split_keys: keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect(),
        ..Default::default()
    }
}

#[derive(Default)]
struct Row {
    values: Vec<String>,
    acknowledged: usize,
}

/// What a client did and was told.
struct Life {
    site: Site,
    rows: BTreeMap<&'static str, Row>,
    number: u32,
    /// Whether the failure is over, so that everything has to work.
    whole: bool,
    errors: Vec<String>,
}

impl Life {
    fn note(&mut self, what: &str, answer: Answer<()>) -> bool {
        let Err(error) = answer else { return true };
        assert!(!error.message.is_empty(), "{what} failed without a word");
        self.errors.push(format!("{what}: {}: {}", error.class, error.message));
        false
    }

    fn act(&mut self, method: &str, request: &impl Message) -> bool {
        let answer = self.site.act(method, request, self.whole);
        self.note(method, answer)
    }

    fn put(&mut self, row: &'static str) {
        self.number += 1;
        let value = format!("v{}", self.number);
        self.rows.entry(row).or_default().values.push(value.clone());
        let Some(answer) = self.site.put("t", row, &value) else {
            self.errors.push(format!("put: no region of t for {row}"));
            return;
        };
        if self.note("put", answer) {
            let entry = self.rows.get_mut(row).expect("just made");
            entry.acknowledged = entry.values.len();
        }
    }

    fn live(&mut self) {
        self.act("CreateTable", &create("t", &["k"]));
        for row in ROWS {
            self.put(row);
        }
        self.act(
            "FlushTable",
            &pb::FlushTableRequest { table_name: name("t").to_pb(), ..Default::default() },
        );
        self.put("a");
        if let Some(region) = self.site.region_of("t", "p") {
            let split_row = Some(Bytes::from_static(b"n"));
            let request =
                pb::SplitTableRegionRequest { region_info: region.to_pb(), split_row, ..Default::default() };
            self.act("SplitRegion", &request);
        }
        for row in ["x", "m"] {
            self.put(row);
        }
        let roll = self.site.call::<pb::RollWalWriterResponse>(
            &self.site.admin,
            "RollWALWriter",
            &pb::RollWalWriterRequest {},
            Vec::new(),
        );
        self.note("RollWALWriter", roll.map(|_| ()));
        for region in self.site.server.online_regions().unwrap() {
            if region.table().as_str() == "t" {
                let request = pb::CompactRegionRequest {
                    region: Site::specifier(&region),
                    major: Some(true),
                    ..Default::default()
                };
                let asked = self.site.call::<pb::CompactRegionResponse>(
                    &self.site.admin,
                    "CompactRegion",
                    &request,
                    Vec::new(),
                );
                self.note("CompactRegion", asked.map(|_| ()));
            }
        }
        self.act("CreateTable", &create("u", &[]));
        self.act(
            "DisableTable",
            &pb::DisableTableRequest { table_name: name("u").to_pb(), ..Default::default() },
        );
        self.act(
            "DeleteTable",
            &pb::DeleteTableRequest { table_name: name("u").to_pb(), ..Default::default() },
        );
        self.put("b");
    }

    fn check(&self, what: &str) {
        for (row, written) in &self.rows {
            if written.acknowledged == 0 {
                continue;
            }
            let answer = self
                .site
                .get("t", row)
                .unwrap_or_else(|| panic!("{what}: no region for {row}; errors: {:#?}", self.errors));
            let value = answer.unwrap_or_else(|error| panic!("{what}: {row}: {}", error.message));
            let allowed = &written.values[written.acknowledged - 1..];
            assert!(
                value.as_ref().is_some_and(|value| allowed.contains(value)),
                "{what}: {row} shows {value:?}, allowed are {allowed:?}; errors: {:#?}",
                self.errors
            );
        }
    }

    /// Waits until what the disk had stopped has gone on.
    fn settle(&self, what: &str) {
        let begin = Instant::now();
        loop {
            let (all, _): (pb::GetProceduresResponse, _) = self
                .site
                .call(&self.site.masters, "GetProcedures", &pb::GetProceduresRequest {}, Vec::new())
                .unwrap();
            let ended = |p: &pb::Procedure| {
                matches!(p.state(), pb::ProcedureState::Success | pb::ProcedureState::Failed)
            };
            if all.procedure.iter().all(ended) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{what}: procedures do not end: {:#?}", self.errors);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A table that was created, before or now, takes writes and can be flushed and read.
    fn serves(&mut self, what: &str) {
        self.whole = true;
        // A log that waited for space looks every tenth of a second; clients try again meanwhile.
        let begin = Instant::now();
        while let Some(Err(error)) = self.site.put("t", "a", "waited") {
            assert!(error.message.contains("waits for space"), "{what}: {}", error.message);
            assert!(begin.elapsed() < Duration::from_secs(5), "{what}: {}", error.message);
            std::thread::sleep(Duration::from_millis(10));
        }
        let before = self.errors.len();
        if self.site.region_of("t", "a").is_none() {
            self.act("CreateTable", &create("t", &["k"]));
        }
        for row in ROWS {
            self.put(row);
        }
        self.act(
            "FlushTable",
            &pb::FlushTableRequest { table_name: name("t").to_pb(), ..Default::default() },
        );
        self.act("CreateTable", &create(&format!("later{}", self.number), &[]));
        assert_eq!(
            self.errors[before..],
            [] as [&str; 0],
            "{what}: after the fault is gone; {:#?}",
            self.errors
        );
        self.check(what);
    }
}

fn fault_of(kind: &str, n: u64) -> Fault {
    match kind {
        "EIO" => Fault::any().nth(n),
        "ENOSPC" => Fault::any().nth(n).no_space(),
        _ => Fault::any().nth(n).no_space().forever(),
    }
}

#[test]
fn operations_fail_everywhere() {
    let begin = |port: u16| {
        let site = Site::start(SimFileSystem::new(), port).unwrap();
        Life { site, rows: BTreeMap::new(), number: 0, whole: false, errors: Vec::new() }
    };
    let mut life = begin(16020);
    let first = life.site.fs.operations();
    life.whole = true;
    life.live();
    let operations = life.site.fs.operations() - first;
    assert_eq!(life.errors, [] as [&str; 0]);
    life.serves("without a fault");
    life.site.end();
    let places = std::env::var("HALCYON_FAULTS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let (mut gave_up, mut told) = (0, 0);
    for kind in ["EIO", "ENOSPC", "a full disk"] {
        for place in 0..places {
            let n = 1 + place * operations / places;
            let what = format!("{kind} from operation {n} of about {operations}");
            let mut life = begin(16020);
            life.site.fs.inject(fault_of(kind, n));
            life.site.disk_is_full.store(kind == "a full disk", Ordering::Relaxed);
            life.live();
            life.site.fs.clear_faults();
            life.site.disk_is_full.store(false, Ordering::Relaxed);
            told += life.errors.len();
            if life.site.gave_up() {
                assert!(kind == "EIO", "{what}: gave up: {:?}", life.site.server.failure());
                gave_up += 1;
            } else {
                life.settle(&what);
                life.check(&what);
                life.serves(&what);
            }
            life.site.end();
            let left = life.site.fs.crash(CrashMode::Keep, n);
            life.site = Site::start(left, 16021).unwrap_or_else(|e| panic!("{what}: starting again: {e}"));
            life.settle(&what);
            life.check(&format!("{what}, started again"));
            life.serves(&format!("{what}, started again"));
            life.site.end();
        }
    }
    println!(
        "{operations} operations, {places} places for each of 3 faults: {told} errors, {gave_up} restarts"
    );
}
