//! `halcyon inspect` on the root directory of a server that was stopped or killed.
#![allow(clippy::disallowed_methods)] // files and processes from outside

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Server, fresh_dir, store_files};
use halcyon_client::{
    Bytes, Cluster, ClusterAddress, ClusterOptions, FamilyDescriptor, Put, SnapshotType, TableDescriptor,
    TableName,
};
use halcyon_schema::RegionInfo;
use serde_json::Value;

fn inspect(data: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.arg("inspect").args(arguments);
    if ["region", "meta", "snapshot"].contains(&arguments[0]) {
        command.arg("--data").arg(data);
    }
    command.output().unwrap()
}

/// The records of a command that found no damage.
fn records(data: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = inspect(data, &[arguments, &["--json"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_kind<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["record"] == kind).collect()
}

async fn connect(server: &Server) -> Cluster {
    let address = ClusterAddress::zookeeper([server.address("zookeeper").to_string()]);
    Cluster::connect(address, ClusterOptions::default()).await.unwrap()
}

/// A table of two regions with a snapshot, and rows behind it that are not flushed.
async fn fill(server: &Server) {
    let cluster = connect(server).await;
    let admin = cluster.admin().await.unwrap();
    let table = TableName::parse(b"t").unwrap();
    let descriptor = TableDescriptor::new(table.clone()).with_family(FamilyDescriptor::new("f").unwrap());
    admin.create_table(&descriptor, vec![Bytes::from_static(b"m")]).await.unwrap();
    let rows = cluster.table(table.clone(), 0);
    for row in ["a", "b", "x"] {
        rows.put(Put::new(row).column("f", "q", "secret value")).await.unwrap();
    }
    admin.snapshot("s1", &table, SnapshotType::Flush, None).await.unwrap();
    rows.put(Put::new("c").column("f", "q", "secret value")).await.unwrap();
}

fn regions_of(data: &Path) -> Vec<RegionInfo> {
    let dir = data.join("data/default/t");
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path().join(".regioninfo"));
    let infos = entries.filter(|path| path.exists());
    let mut infos: Vec<RegionInfo> =
        infos.map(|path| RegionInfo::decode_file(&std::fs::read(path).unwrap()).unwrap()).collect();
    infos.sort();
    infos
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_directory_is_read_without_its_server() {
    let data = fresh_dir("inspect");
    let server = Server::start_on_this_machine(&data, &[]);
    fill(&server).await;
    // Its memstores are only in WALs now, those of hbase:meta as well.
    server.kill();

    let meta = records(&data, &["meta", "--table", "t"]);
    let rows = of_kind(&meta, "row");
    assert_eq!(rows.len(), 3, "the table's state and two regions: {meta:?}");
    assert_eq!(rows[0]["table:state"], "ENABLED");
    assert!(rows[1..].iter().all(|row| row["info:state"] == "OPEN"), "{rows:?}");
    assert!(of_kind(&meta, "summary")[0]["cellsOnlyInWals"].as_u64().unwrap() > 0);

    let [left, right] = &regions_of(&data)[..] else { panic!("two regions") };
    let found = records(&data, &["region", "--verify", left.encoded_name()]);
    assert_eq!(of_kind(&found, "region")[0]["endKey"], "m");
    assert_eq!(of_kind(&found, "storeFile")[0]["cells"], 2);
    let found = records(&data, &["region", std::str::from_utf8(right.region_name()).unwrap()]);
    assert_eq!(of_kind(&found, "storeFile")[0]["firstRow"], "x");

    let wals: Vec<_> = std::fs::read_dir(data.join("WALs")).unwrap().map(|dir| dir.unwrap().path()).collect();
    let wals = wals[0].to_str().unwrap();
    let entries = records(&data, &["wal", "-t", "t", "-w", "c", wals]);
    assert_eq!(of_kind(&entries, "entry").len(), 1, "{entries:?}");
    let printed = String::from_utf8(inspect(&data, &["wal", wals]).stdout).unwrap();
    assert!(!printed.contains("secret"), "{printed}");

    let snapshot = records(&data, &["snapshot", "s1", "--files"]);
    assert_eq!(of_kind(&snapshot, "storeFile").len(), 2);
    assert!(of_kind(&snapshot, "storeFile").iter().all(|file| file["state"] == "shared with the table"));
    damage_is_found(&data, left);
    std::fs::remove_dir_all(&data).unwrap();
}

fn damage_is_found(data: &Path, region: &RegionInfo) {
    let file = store_files(data, region).remove(0);
    let path = file.to_str().unwrap();
    assert_eq!(inspect(data, &["hfile", path]).status.code(), Some(0));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    for arguments in [&["hfile", path][..], &["region", "--verify", region.encoded_name()]] {
        let output = inspect(data, arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("DAMAGE: {path}: block at offset 0: checksum 0")), "{text}");
    }
    std::fs::remove_file(&file).unwrap();
    let output = inspect(data, &["snapshot", "s1", "--stats"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("1 missing"), "{text}");
    let help = inspect(data, &["hfile", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert_eq!(inspect(data, &["hfile", "--nonsense"]).status.code(), Some(2));
}
