//! `halcyon migrate` between two running servers: what `docs/MIGRATE.md` promises. `testing/compat/migrate.sh` is the test with
//! a real HBase.

#![allow(clippy::disallowed_methods)] // the time is the real one

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Server, fresh_dir};
use halcyon_client::{
    Admin, Cluster, ClusterAddress, ClusterOptions, Delete, FamilyDescriptor, Get, Put, Scan, Table,
    TableDescriptor, TableName,
};

const ROWS: usize = 2_000;

async fn connect(server: &Server) -> (Cluster, Admin) {
    let address = ClusterAddress::zookeeper([server.address("zookeeper").to_string()]);
    let cluster = Cluster::connect(address, ClusterOptions::default()).await.unwrap();
    let admin = cluster.admin().await.unwrap();
    (cluster, admin)
}

fn name() -> TableName {
    TableName::parse(b"shop:orders").unwrap()
}

fn url(server: &Server) -> String {
    format!("hbase://{}/hbase", server.address("zookeeper"))
}

fn migrate(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.arg("migrate").arg("--state").arg(dir.join("state.json")).args(["--pause-max", "60"]);
    command.args(args).output().unwrap()
}

/// The output of a run that has to succeed. The runtime goes on meanwhile.
async fn done(dir: &Path, args: &[&str]) -> String {
    let (dir, args) = (dir.to_path_buf(), args.iter().map(ToString::to_string).collect::<Vec<_>>());
    let run = move || migrate(&dir, &args.iter().map(String::as_str).collect::<Vec<_>>());
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    printed
}

fn refused(dir: &Path, args: &[&str]) -> String {
    let output = migrate(dir, args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

async fn rows(table: &Table) -> usize {
    let mut rows = table.scan(Scan::new()).into_stream();
    let mut count = 0;
    while let Some(row) = rows.next().await {
        row.unwrap();
        count += 1;
    }
    count
}

async fn has(table: &Table, row: &str) -> bool {
    table.exists(Get::new(row)).await.unwrap()
}

async fn waits_for(table: &Table, row: &str) {
    for _ in 0..400 {
        if has(table, row).await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("{row} has not arrived");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_moves_and_comes_back() {
    let dir = fresh_dir("migrate");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, their_admin)) = (connect(&source).await, connect(&target).await);
    our_admin.create_namespace(&halcyon_client::NamespaceDescriptor::new("shop")).await.unwrap();
    let families = FamilyDescriptor::new("f").unwrap().with("VERSIONS", "2");
    let descriptor = TableDescriptor::new(name()).with_family(families);
    our_admin.create_table(&descriptor, vec!["row-0500".into(), "row-1500".into()]).await.unwrap();
    let (here, there) = (ours.table(name(), 0), theirs.table(name(), 0));
    for value in ["old", "new"] {
        let puts = (0..ROWS).map(|row| Put::new(format!("row-{row:04}")).column("f", "q", value));
        here.put_all(puts).await.unwrap();
    }
    here.delete(Delete::new("row-0007")).await.unwrap();

    let (from, to) = (url(&source), url(&target));
    let begin = ["--from", &from, "--to", &to, "--tables", "shop:orders"];
    assert!(refused(&dir, &["--from", &from, "--to", &to, "--tables", "x"]).contains("has no table x"));
    assert!(refused(&dir, &["--cut-over"]).contains("there is no migration"));
    assert!(refused(&dir, &["--to", &to]).contains("--from hbase://"));
    let printed = done(&dir, &begin).await;
    assert!(printed.contains("compared: differences 0"), "{printed}");
    assert!(printed.contains(&format!("compared: {} rows", ROWS - 1)), "{printed}");
    assert_eq!(their_admin.splits(&name()).await.unwrap().len(), 2);
    here.put(Put::new("live").column("f", "q", "1")).await.unwrap();
    waits_for(&there, "live").await;
    assert!(refused(&dir, &["--back"]).contains("no way back"));

    let printed = done(&dir, &["--cut-over"]).await;
    assert!(printed.contains("cut over: writes were stopped for"), "{printed}");
    there.put(Put::new("after").column("f", "q", "1")).await.unwrap();
    waits_for(&here, "after").await;
    assert!(refused(&dir, &["--abort"]).contains("--finish"));
    let printed = done(&dir, &["--back"]).await;
    assert!(printed.contains("differences 0"), "{printed}");
    here.put(Put::new("home").column("f", "q", "1")).await.unwrap();
    waits_for(&there, "home").await;
    assert_eq!((rows(&here).await, rows(&there).await), (ROWS + 2, ROWS + 2));

    done(&dir, &["--finish"]).await;
    for admin in [&our_admin, &their_admin] {
        assert!(admin.peers().await.unwrap().is_empty());
        assert_eq!(admin.describe(&name()).await.unwrap().families()[0].scope(), 0);
        assert!(!admin.describe(&name()).await.unwrap().read_only());
        assert_eq!(admin.table_names(None, false).await.unwrap(), [name()]);
    }
    assert!(done(&dir, &["--status"]).await.contains("ended"));
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_migration_leaves_the_source_as_it_was() {
    let dir = fresh_dir("migrate-abort");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, _)) = (connect(&source).await, connect(&target).await);
    let family = FamilyDescriptor::new("f").unwrap();
    let table = TableName::parse(b"t").unwrap();
    our_admin
        .create_table(&TableDescriptor::new(table.clone()).with_family(family), Vec::new())
        .await
        .unwrap();
    let before = our_admin.describe(&table).await.unwrap();
    ours.table(table.clone(), 0).put(Put::new("r").column("f", "q", "v")).await.unwrap();
    let (from, to) = (url(&source), url(&target));
    done(&dir, &["--from", &from, "--to", &to, "--tables", "t"]).await;
    done(&dir, &["--abort"]).await;
    assert!(our_admin.peers().await.unwrap().is_empty());
    let after = our_admin.describe(&table).await.unwrap();
    assert_eq!(after.with_family_defaults().families()[0].scope(), before.families()[0].scope());
    assert!(has(&theirs.table(table.clone(), 0), "r").await);
    // What is at the target is not overwritten by a second try that does not say so.
    let again = ["--from", &from, "--to", &to, "--tables", "t"];
    assert!(refused(&dir, &again).contains("--into-filled"));
    done(&dir, &[&again[..], &["--into-filled"]].concat()).await;
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}
