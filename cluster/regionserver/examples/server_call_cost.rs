//! What a small call costs above the network: decoded parameter in, encoded answer out, one thread.
//!
//! `cargo run --release -p halcyon-regionserver --example server_call_cost -- [calls]`
//!
//! Prints nanoseconds per call for a Get of a 100 byte value from memory, for a Put of one alone and with
//! sixteen of them behind one group commit (`written` mode, files in a directory under `/tmp`), and for a Multi
//! of a hundred Puts, per Put. Numbers from one machine compare with each other only.
#![allow(clippy::disallowed_methods)] // measures with its own clock

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::Env;
use halcyon_proto::pb;
use halcyon_regionserver::{ClientService, Predecessors, RegionServer, RegionServerSettings};
use halcyon_rpc::{Call, CallClass, Codec, Connection, Outcome, Service};
use halcyon_schema::{FamilyDescriptor, RegionInfo, TableDescriptor, TableName};
use halcyon_wal::SyncMode;
use prost::Message;

const ROWS: usize = 10_000;

struct Bench {
    service: ClientService,
    connection: Arc<Connection>,
    region: pb::RegionSpecifier,
    runtime: tokio::runtime::Runtime,
}

fn row(number: usize) -> Vec<u8> {
    format!("{:026}", number * 7919 % ROWS).into_bytes()
}

fn cell(number: usize) -> Cell {
    Cell::put(&row(number), b"f", b"0", i64::MAX, &[b'v'; 100])
}

impl Bench {
    fn call(&self, method: &str, param: Bytes, cells: Vec<Cell>) -> Outcome {
        self.service.call(Call {
            id: 0,
            method: method.to_string(),
            param,
            cells,
            priority: 0,
            class: CallClass::Read,
            timeout: None,
            is_traced: false,
            received_ns: 0,
            attributes: Vec::new(),
            connection: self.connection.clone(),
        })
    }

    fn end(&self, outcomes: Vec<Outcome>) {
        self.service.batch_done();
        for outcome in outcomes {
            let reply = match outcome {
                Outcome::Ready(reply) => reply,
                Outcome::Later(later) => self.runtime.block_on(later),
            };
            reply.expect("the call works");
        }
    }

    fn get_param(&self, number: usize) -> Bytes {
        let get = pb::Get { row: row(number).into(), column: vec![column()], ..Default::default() };
        pb::GetRequest { region: self.region.clone(), get }.encode_to_vec().into()
    }

    fn put_param(&self) -> pb::MutationProto {
        pb::MutationProto {
            mutate_type: Some(pb::mutation_proto::MutationType::Put as i32),
            associated_cell_count: Some(1),
            ..Default::default()
        }
    }
}

fn column() -> pb::Column {
    pb::Column { family: "f".into(), qualifier: vec!["0".into()] }
}

fn report(what: &str, count: usize, started: Instant) {
    println!("{what:<28} {:>8.0} ns", started.elapsed().as_nanos() as f64 / count as f64);
}

fn main() {
    let calls: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(300_000);
    let dir = PathBuf::from(format!("/tmp/halcyon-call-cost-{}", std::process::id()));
    let settings = RegionServerSettings { wal_sync: SyncMode::Written, ..Default::default() };
    let server =
        RegionServer::start(Env::real(), &dir, &Predecessors::All, settings, "localhost", 1).expect("starts");
    let info = RegionInfo::new(TableName::parse(b"t").expect("a name"), Bytes::new(), Bytes::new(), 1);
    let family = FamilyDescriptor::new(b"f").expect("a name");
    let table = TableDescriptor::new(info.table().clone()).with_family(family);
    server.region_files().create_region_files(&info, &table).expect("a directory");
    server.open_region(&info, &table.into()).expect("opens");
    let bench = Bench {
        service: ClientService::new(server.clone()),
        connection: Arc::new(Connection {
            client_version: Some((2, 6)),
            codec: Some(Codec::KeyValue),
            ..Connection::new(1, "")
        }),
        region: pb::RegionSpecifier { r#type: 1, value: info.region_name().clone() },
        runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
    };
    let put = Bytes::from(
        pb::MutateRequest {
            region: bench.region.clone(),
            mutation: bench.put_param(),
            condition: None,
            nonce_group: Some(5),
        }
        .encode_to_vec(),
    );
    let puts: Vec<Cell> = (0..ROWS).map(cell).collect();
    let gets: Vec<Bytes> = (0..ROWS).map(|number| bench.get_param(number)).collect();
    for cell in &puts {
        bench.end(vec![bench.call("Mutate", put.clone(), vec![cell.clone()])]);
    }

    for _ in 0..2 {
        let started = Instant::now();
        for number in 0..calls {
            let outcome = bench.call("Get", gets[number % ROWS].clone(), Vec::new());
            bench.end(vec![outcome]);
        }
        report("Get from memory", calls, started);
    }
    let started = Instant::now();
    for number in 0..calls {
        bench.end(vec![bench.call("Mutate", put.clone(), vec![puts[number % ROWS].clone()])]);
    }
    report("Put alone", calls, started);
    let started = Instant::now();
    for first in (0..calls).step_by(16) {
        let outcomes: Vec<Outcome> = (first..first + 16)
            .map(|number| bench.call("Mutate", put.clone(), vec![puts[number % ROWS].clone()]))
            .collect();
        bench.end(outcomes);
    }
    report("Put, 16 to a commit", calls, started);
    let action = (0..100).map(|index| pb::Action::of_mutation(index, bench.put_param()));
    let region_action = pb::RegionAction {
        region: bench.region.clone(),
        atomic: None,
        action: action.collect(),
        condition: None,
    };
    let multi = pb::MultiRequest { region_action: vec![region_action], ..Default::default() };
    let multi = Bytes::from(multi.encode_to_vec());
    let started = Instant::now();
    for first in (0..calls).step_by(100) {
        let cells = (first..first + 100).map(|number| puts[number % ROWS].clone()).collect();
        bench.end(vec![bench.call("Multi", multi.clone(), cells)]);
    }
    report("Put, 100 to a Multi", calls, started);
    server.abort("measured");
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
}
