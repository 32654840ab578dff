//! Administrative calls with names, keys, counts and numbers at and beyond every limit, and the next start of the server.
//!
//! A split key, a name of a quota and a family's number once ended the process by an assertion: the first and the last at each start
//! after it, too, because the procedure or the replay that failed came back. Whatever a client sends, the answer is an error or
//! a result, no assertion fails, and the server starts again over what was left.
#![allow(clippy::disallowed_methods)] // files, clocks and processes from outside

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Server, family, fresh_dir, site, specifier, table_name};
use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_client::{ConnectOptions, Connection};
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;

/// About each limit: names of files, rows with and without what is put before and behind a name.
const LENGTHS: [usize; 15] =
    [0, 1, 2, 127, 128, 254, 255, 256, 32_710, 32_713, 32_716, 32_765, 32_767, 32_768, 70_000];

const NUMBERS: [&str; 12] = [
    "NaN",
    "-NaN",
    "inf",
    "-Infinity",
    "-1",
    "0",
    "1e-300",
    "0.5",
    "1",
    "2147483648",
    "9223372036854775807",
    "99999999999999999999",
];

/// Attributes and properties that a region, a flush or a compaction reads.
const CONFIGURED: [&str; 24] = [
    "BLOCKSIZE",
    "DFS_REPLICATION",
    "MIN_VERSIONS",
    "MOB_THRESHOLD",
    "REPLICATION_SCOPE",
    "TTL",
    "VERSIONS",
    "hbase.hregion.majorcompaction.jitter",
    "hbase.hregion.memstore.block.multiplier",
    "hbase.hstore.blockingStoreFiles",
    "hbase.hstore.bytes.per.checksum",
    "hbase.hstore.compaction.date.tiered.base.window.millis",
    "hbase.hstore.compaction.max",
    "hbase.hstore.compaction.min",
    "hbase.hstore.compaction.ratio",
    "hbase.hstore.time.to.purge.deletes",
    "hbase.store.stripe.initialStripeCount",
    "hbase.store.stripe.splitPartCount",
    "hbase.writer.unified.encoded.blocksize.ratio",
    "hfile.index.block.max.size",
    "hfile.index.block.min.entries",
    "io.storefile.bloom.block.size",
    "io.storefile.bloom.error.rate",
    "some.other.number",
];

struct Round {
    data: std::path::PathBuf,
    config: std::path::PathBuf,
}

impl Round {
    fn new(name: &str) -> Round {
        let data = fresh_dir(name);
        let properties = [
            ("hbase.quota.enabled", "true"),
            ("hbase.balancer.rsgroup.enabled", "true"),
            ("hbase.hstore.compaction.min", "2"),
        ];
        let config = site(&data, &properties);
        Round { data, config }
    }

    fn start(&self) -> Server {
        Server::start_on_this_machine(
            &self.data,
            &["--config", self.config.to_str().unwrap(), "--memory", "256m", "--wal-sync", "written"],
        )
    }

    /// The server is alive, and starts again after a kill: whatever comes back comes back.
    async fn restart(&self, mut server: Server, what: &str) -> Server {
        assert!(server.is_running(), "{what}: the server has ended\n{}", tail(&server.log()));
        let log = server.log();
        assert!(
            !log.contains("an assertion failed") && !log.contains("panicked at"),
            "{what}\n{}",
            tail(&log)
        );
        server.kill();
        let mut server = self.start();
        let client = Client::connect(&server).await;
        self.put(&client).await;
        assert!(server.is_running());
        server
    }

    /// Into the first region of `before`, whatever splits have made of it; one may be under way.
    async fn put(&self, client: &Client) {
        let mut last = None;
        for _ in 0..1000 {
            if let Some(region) = client.regions("before").await.first() {
                match client.put(region, "A", b"v").await {
                    Ok(()) => return,
                    Err(error) => last = Some(error),
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no region of before takes a row: {last:?}");
    }

    async fn region(&self, client: &Client, table: &str) -> RegionInfo {
        for _ in 0..1000 {
            if let Some(region) = client.regions(table).await.pop() {
                return region;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no region of {table} opens");
    }

    fn end(self, server: Server) {
        server.kill();
        fs::remove_dir_all(&self.data).unwrap();
        fs::remove_dir_all(&self.config).unwrap();
    }
}

fn tail(log: &str) -> &str {
    let from = log.len().saturating_sub(4000);
    let from = (from..log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(0);
    &log[from..]
}

/// Takes any bytes for an answer.
#[derive(Clone, PartialEq, Message)]
struct Any {}

/// An error is an answer; silence is none, unless a procedure is waited for.
async fn ask(connection: &Connection, method: &str, request: &impl Message) {
    let answer = tokio::time::timeout(Duration::from_secs(20), connection.call::<Any>(method, request)).await;
    if let Ok(Err(error)) = &answer {
        assert!(error.remote().is_some(), "{method} is not answered by an exception: {error}");
    }
}

fn letters(len: usize) -> String {
    "n".repeat(len)
}

fn schema(table: pb::TableName, families: Vec<pb::ColumnFamilySchema>) -> pb::TableSchema {
    pb::TableSchema { table_name: Some(table), column_families: families, ..Default::default() }
}

fn a_create(
    table: pb::TableName,
    families: Vec<pb::ColumnFamilySchema>,
    key: usize,
) -> pb::CreateTableRequest {
    let split_keys = if key == 0 { Vec::new() } else { vec![Bytes::from(vec![b'm'; key])] };
    pb::CreateTableRequest { table_schema: schema(table, families), split_keys, ..Default::default() }
}

fn pair(name: &str, value: &str) -> pb::NameStringPair {
    pb::NameStringPair { name: name.to_string(), value: value.to_string() }
}

fn snapshot_of(name: &str, table: &str) -> pb::SnapshotDescription {
    pb::SnapshotDescription { name: name.to_string(), table: Some(table.to_string()), ..Default::default() }
}

fn a_throttle() -> pb::ThrottleRequest {
    pb::ThrottleRequest {
        r#type: Some(pb::ThrottleType::RequestNumber as i32),
        timed_quota: Some(pb::TimedQuota {
            time_unit: pb::TimeUnit::Seconds as i32,
            soft_limit: Some(10),
            ..Default::default()
        }),
    }
}

/// Every administrative call that takes a name or a key, with one of this length.
async fn ask_all(server: &Server, client: &Client, region: &RegionInfo, len: usize) {
    let (name, key) = (letters(len), Bytes::from(vec![b'm'; len]));
    let connect = |service| async move {
        Connection::connect(server.address("master"), &ConnectOptions::new(service)).await.unwrap()
    };
    let (master, hbck, locks) = (&client.master, connect("HbckService").await, connect("LockService").await);
    let named = table_name(&name);
    let families = || vec![family("f")];
    ask(master, "CreateTable", &a_create(named.clone(), families(), 0)).await;
    ask(master, "CreateTable", &a_create(table_name(&format!("k{len}")), families(), len)).await;
    let odd = vec![pb::ColumnFamilySchema { name: key.clone(), ..Default::default() }];
    ask(master, "CreateTable", &a_create(table_name(&format!("f{len}")), odd.clone(), 0)).await;
    let descriptor = pb::NamespaceDescriptor { name: key.clone(), configuration: Vec::new() };
    let request =
        pb::CreateNamespaceRequest { namespace_descriptor: descriptor.clone(), ..Default::default() };
    ask(master, "CreateNamespace", &request).await;
    let configuration = vec![pair(&name, &name)];
    let namespace_descriptor = pb::NamespaceDescriptor { name: "default".into(), configuration };
    let request = pb::ModifyNamespaceRequest { namespace_descriptor, ..Default::default() };
    ask(master, "ModifyNamespace", &request).await;
    let request = pb::ModifyNamespaceRequest { namespace_descriptor: descriptor, ..Default::default() };
    ask(master, "ModifyNamespace", &request).await;
    ask(
        master,
        "DeleteNamespace",
        &pb::DeleteNamespaceRequest { namespace_name: name.clone(), ..Default::default() },
    )
    .await;
    let before = table_name("before");
    let request = pb::AddColumnRequest {
        table_name: before.clone(),
        column_families: odd[0].clone(),
        ..Default::default()
    };
    ask(master, "AddColumn", &request).await;
    let request = pb::DeleteColumnRequest {
        table_name: before.clone(),
        column_name: key.clone(),
        ..Default::default()
    };
    ask(master, "DeleteColumn", &request).await;
    let mut wide = schema(before.clone(), families());
    wide.attributes.push(pb::BytesBytesPair { first: key.clone(), second: key.clone() });
    wide.configuration.push(pair(&name, &name));
    let request =
        pb::ModifyTableRequest { table_name: before.clone(), table_schema: wide, ..Default::default() };
    ask(master, "ModifyTable", &request).await;

    let subjects = [
        pb::SetQuotaRequest { user_name: Some(name.clone()), ..Default::default() },
        pb::SetQuotaRequest { namespace: Some(name.clone()), ..Default::default() },
        pb::SetQuotaRequest { region_server: Some(name.clone()), ..Default::default() },
        pb::SetQuotaRequest { table_name: Some(named.clone()), ..Default::default() },
        pb::SetQuotaRequest {
            user_name: Some(name.clone()),
            namespace: Some(name.clone()),
            ..Default::default()
        },
        pb::SetQuotaRequest {
            user_name: Some("u".to_string()),
            table_name: Some(named.clone()),
            ..Default::default()
        },
    ];
    for subject in subjects {
        let space = pb::SpaceLimitRequest {
            quota: Some(pb::SpaceQuota {
                soft_limit: Some(u64::MAX >> (len % 3)),
                violation_policy: Some(1),
                remove: None,
            }),
        };
        ask(master, "SetQuota", &pb::SetQuotaRequest { space_limit: Some(space), ..subject.clone() }).await;
        ask(master, "SetQuota", &pb::SetQuotaRequest { throttle: Some(a_throttle()), ..subject }).await;
    }
    let snapshot = snapshot_of(&name, "before");
    ask(master, "Snapshot", &pb::SnapshotRequest { snapshot: snapshot.clone(), ..Default::default() }).await;
    let to = pb::SnapshotDescription { table: Some(name.clone()), ..snapshot_of("s", "before") };
    for snapshot in [snapshot.clone(), to] {
        ask(master, "RestoreSnapshot", &pb::RestoreSnapshotRequest { snapshot, ..Default::default() }).await;
    }
    ask(master, "DeleteSnapshot", &pb::DeleteSnapshotRequest { snapshot: snapshot.clone() }).await;
    let request = pb::IsSnapshotDoneRequest { snapshot: Some(snapshot) };
    ask(master, "IsSnapshotDone", &request).await;

    let peer_config = pb::ReplicationPeer {
        clusterkey: Some(format!("{name}:2181:/hbase")),
        configuration: vec![pair(&name, &name)],
        ..Default::default()
    };
    for peer_id in [name.clone(), format!("p{len}")] {
        let request = pb::AddReplicationPeerRequest {
            peer_id,
            peer_config: peer_config.clone(),
            peer_state: pb::ReplicationState { state: pb::replication_state::State::Disabled as i32 },
        };
        ask(master, "AddReplicationPeer", &request).await;
    }
    ask(master, "AddRSGroup", &pb::AddRsGroupRequest { r_s_group_name: name.clone() }).await;
    let request =
        pb::RenameRsGroupRequest { old_rsgroup_name: "g".to_string(), new_rsgroup_name: name.clone() };
    ask(master, "RenameRSGroup", &request).await;

    for split_row in [key.clone(), Bytes::from([&b"a"[..], &key].concat())] {
        let split_row = Some(split_row);
        let request =
            pb::SplitTableRegionRequest { region_info: region.to_pb(), split_row, ..Default::default() };
        ask(master, "SplitRegion", &request).await;
    }
    let table = TableName::parse(b"before").unwrap();
    let unknown = RegionInfo::new(table, key.clone(), key.clone(), u64::MAX - len as u64);
    let request = pb::TruncateRegionRequest { region_info: unknown.to_pb(), ..Default::default() };
    ask(master, "TruncateRegion", &request).await;
    let region = pb::RegionSpecifier { r#type: 1, value: unknown.region_name().clone() };
    // A frame that is too long is answered and ends its connection, as at HBase.
    let many = len.min(2000).min((8 << 20) / len.max(1));
    ask(master, "AssignRegion", &pb::AssignRegionRequest { region: region.clone(), ..Default::default() })
        .await;
    let request = pb::MergeTableRegionsRequest { region: vec![region.clone(); many], ..Default::default() };
    ask(master, "MergeTableRegions", &request).await;
    let request = pb::AssignsRequest { region: vec![region.clone(); many], ..Default::default() };
    ask(&hbck, "Assigns", &request).await;
    let request = pb::SetTableStateInMetaRequest { table_name: named.clone(), ..Default::default() };
    ask(&hbck, "SetTableStateInMeta", &request).await;
    ask(&hbck, "FixMeta", &pb::FixMetaRequest {}).await;
    let request = pb::FlushTableRequest {
        table_name: before.clone(),
        column_family: vec![key.clone()],
        ..Default::default()
    };
    ask(master, "FlushTable", &request).await;
    let request = pb::LockRequest {
        lock_type: pb::LockType::Exclusive as i32,
        namespace: Some(name.clone()),
        description: Some(name.clone()),
        ..Default::default()
    };
    ask(&locks, "RequestLock", &request).await;
    let request = pb::CompactRegionRequest { region, major: Some(true), family: Some(key) };
    ask(&client.admin, "CompactRegion", &request).await;
}

#[tokio::test]
#[ignore = "minutes: it starts many servers"]
async fn names_and_keys_at_and_beyond_every_limit() {
    let round = Round::new("admin-sizes");
    let mut server = round.start();
    let client = Client::connect(&server).await;
    client.create_table("before", vec![family("f")], &[]).await;
    ask(&client.master, "AddRSGroup", &pb::AddRsGroupRequest { r_s_group_name: "g".to_string() }).await;
    for lengths in LENGTHS.chunks(3) {
        for len in lengths {
            let client = Client::connect(&server).await;
            let region = round.region(&client, "before").await;
            ask_all(&server, &client, &region, *len).await;
        }
        server = round.restart(server, &format!("names of {lengths:?} bytes")).await;
    }
    round.end(server);
}

/// As an attribute, and as a property, of a family; and of its table.
fn configured(table: &str, name: &str, value: &str, how: usize) -> pb::TableSchema {
    let (mut family, text) = (family("f"), Bytes::copy_from_slice(value.as_bytes()));
    let attribute = pb::BytesBytesPair { first: Bytes::copy_from_slice(name.as_bytes()), second: text };
    let mut schema = schema(table_name(table), Vec::new());
    match how {
        0 => family.attributes.push(attribute),
        1 => family.configuration.push(pair(name, value)),
        _ => schema.attributes.push(attribute),
    }
    let engine = if name.contains("stripe") { "StripeStoreEngine" } else { "DefaultStoreEngine" };
    let engine = format!("org.apache.hadoop.hbase.regionserver.{engine}");
    let engine = if name.contains("date.tiered") { engine.replace("Default", "DateTiered") } else { engine };
    family.configuration.push(pair("hbase.hstore.engine.class", &engine));
    let unchecked = pb::BytesBytesPair { first: "hbase.table.sanity.checks".into(), second: "false".into() };
    schema.attributes.push(unchecked);
    schema.column_families.push(family);
    schema
}

async fn write_and_compact(client: &Client, table: &str) {
    let Some(region) = client.regions(table).await.pop() else { return };
    for round in 0..2u8 {
        let cells: Vec<Cell> =
            (0..20).map(|column| Cell::put(b"row", b"f", &[b'q', column], i64::MAX, &[round; 300])).collect();
        let put = crate::common::put(cells.len());
        let _ = client.mutate(&region, put, &cells).await; // a refusal is an answer
        let _ = client.flush(&region).await;
    }
    let compact = pb::CompactRegionRequest { region: specifier(&region), major: Some(true), family: None };
    ask(&client.admin, "CompactRegion", &compact).await;
    // For the replay of the next start.
    let _ = client.put(&region, "late", b"v").await;
}

#[tokio::test]
#[ignore = "minutes: it starts many servers"]
async fn numbers_of_tables_and_families_at_and_beyond_every_limit() {
    let round = Round::new("admin-numbers");
    let mut server = round.start();
    Client::connect(&server).await.create_table("before", vec![family("f")], &[]).await;
    for (number, name) in CONFIGURED.iter().enumerate() {
        let client = Client::connect(&server).await;
        for (at, value) in NUMBERS.iter().enumerate() {
            let table = format!("n{number}_{at}");
            let table_schema = configured(&table, name, value, (number + at) % 3);
            let request = pb::CreateTableRequest { table_schema, ..Default::default() };
            let Ok(created) = client.master.call::<pb::CreateTableResponse>("CreateTable", &request).await
            else {
                continue; // refused
            };
            let request = pb::GetProcedureResultRequest { proc_id: created.proc_id() };
            for _ in 0..2000 {
                let result: pb::GetProcedureResultResponse =
                    client.master.call("getProcedureResult", &request).await.unwrap();
                if result.state == pb::get_procedure_result_response::State::Finished as i32 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            write_and_compact(&client, &table).await;
        }
        if number % 8 == 7 {
            server = round.restart(server, &format!("numbers up to {name}")).await;
        }
    }
    round.end(server);
}

/// The descriptor of a table as a program before this one took it: `data` holds what its requests would be refused for now.
fn poison(data: &Path, table: &str, name: &str, value: &str) {
    let dir = data.join("data/default").join(table).join(".tabledesc");
    let old = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
    let message = configured(table, name, value, 1).encode_to_vec();
    let bytes = [&b"PBUF"[..], &message].concat();
    fs::write(dir.join(format!(".tableinfo.0000000009.{}", bytes.len())), bytes).unwrap();
    fs::remove_file(old).unwrap();
}

#[tokio::test]
#[ignore = "minutes: it starts many servers"]
async fn a_directory_that_holds_such_numbers_starts() {
    let round = Round::new("admin-poison");
    let server = round.start();
    let client = Client::connect(&server).await;
    let poisons = [
        ("io.storefile.bloom.error.rate", "NaN"),
        ("VERSIONS", "0"),
        ("hbase.hstore.compaction.ratio", "-inf"),
    ];
    for at in 0..poisons.len() {
        let region = client.create_table(&format!("p{at}"), vec![family("f")], &[]).await.remove(0);
        client.put(&region, "row", b"v").await.unwrap();
    }
    client.create_table("before", vec![family("f")], &[]).await;
    server.kill();
    for (at, (name, value)) in poisons.iter().enumerate() {
        poison(&round.data, &format!("p{at}"), name, value);
    }
    let server = round.start();
    let client = Client::connect(&server).await;
    for at in 0..poisons.len() {
        let region = round.region(&client, &format!("p{at}")).await;
        client.flush(&region).await.unwrap();
        assert_eq!(client.value(&region, "row").await.unwrap().unwrap(), b"v");
        client.compact(&region, true).await.unwrap();
    }
    let server = round.restart(server, "numbers that were taken before").await;
    round.end(server);
}

/// A table that grows by puts alone whose rows are as long as rows can be is split at a key that a region can begin with: the shortest
/// one between two rows or, where rows differ behind its greatest length only, one that is cut.
#[tokio::test]
#[ignore = "minutes: it starts many servers"]
async fn rows_that_are_too_long_to_begin_a_region_are_cut() {
    let round = Round::new("admin-long-rows");
    let server = round.start();
    let client = Client::connect(&server).await;
    client.create_table("before", vec![family("f")], &[]).await;
    for (table, differs_at) in [("early", 0), ("late", 32_766)] {
        let region = client.create_table(table, vec![family("f")], &[]).await.remove(0);
        for number in 0..6u8 {
            let mut row = vec![b'm'; 32_767];
            row[differs_at] = b'a' + number;
            let cell = Cell::put(&row, b"f", b"q", i64::MAX, &vec![number; 70_000]);
            client.mutate(&region, crate::common::put(1), &[cell]).await.unwrap();
        }
        client.flush(&region).await.unwrap();
        let request = pb::SplitTableRegionRequest { region_info: region.to_pb(), ..Default::default() };
        let split: pb::SplitTableRegionResponse = client.master.call("SplitRegion", &request).await.unwrap();
        client.finish(split.proc_id()).await;
        let regions = client.regions(table).await;
        assert_eq!(regions.len(), 2, "{table}");
        let longest = RegionInfo::start_key_len_max(regions[1].table());
        assert_eq!(regions[1].start_key().len(), if differs_at == 0 { 1 } else { longest }, "{table}");
    }
    let server = round.restart(server, "a split between long rows").await;
    round.end(server);
}
