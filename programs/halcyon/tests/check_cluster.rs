//! `halcyon check` at a running server: what `docs/CHECK.md` promises of clusters.
//!
//! `HALCYON_TEST_ZOOKEEPER=127.0.0.1:2181 cargo test -p halcyon --test all check_cluster:: -- --ignored` checks an HBase.

#![allow(clippy::disallowed_methods)] // processes and time are real ones

use std::collections::BTreeSet;
use std::process::{Command, Output};

use crate::common::{Server, fresh_dir};
use halcyon_client::{
    Admin, Cluster, ClusterAddress, ClusterOptions, Delete, FamilyDescriptor, Put, RegionInfo,
    TableDescriptor, TableName, TableState,
};
use serde_json::Value;

fn table() -> TableName {
    TableName::parse(b"orders").unwrap()
}

struct Checked {
    zookeeper: String,
    admin: Admin,
    is_halcyon: bool,
}

impl Checked {
    fn run(&self, options: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
        command.args(["check", "--zookeeper", &self.zookeeper]).args(options).output().unwrap()
    }

    /// The exit code and the findings.
    fn check(&self, options: &[&str]) -> (i32, Vec<Value>) {
        let output = self.run(&[options, &["--json"]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("\"record\":\"summary\""), "{options:?}: {text}{said}");
        let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let findings = records.filter(|record| record["record"] == "finding").collect();
        (output.status.code().unwrap(), findings)
    }

    /// Finds exactly these kinds; a check without `--repair` changes nothing.
    fn expect(&self, options: &[&str], kinds: &[&str]) {
        for _ in 0..2 {
            let (code, findings) = self.check(options);
            let found: BTreeSet<&str> =
                findings.iter().map(|finding| finding["kind"].as_str().unwrap()).collect();
            assert_eq!(found, kinds.iter().copied().collect(), "{findings:#?}");
            assert_eq!(code, i32::from(!kinds.is_empty()));
        }
    }

    /// Finds these kinds, repairs them, and finds nothing more.
    fn expect_repair(&self, kinds: &[&str]) {
        self.expect(&[], kinds);
        let (code, findings) = self.check(&["--repair"]);
        assert!(findings.iter().all(|finding| finding["repaired"] == true), "{findings:#?}");
        assert_eq!(code, 0);
        self.expect(&[], &[]);
    }

    async fn region(&self, number: usize) -> RegionInfo {
        self.admin.regions(&table()).await.unwrap().remove(number).region
    }

    async fn write_meta(&self, put: Put) {
        self.admin.cluster().table(TableName::META, 0).put(put).await.unwrap();
    }

    async fn is_served(&self, row: &str) -> bool {
        let table = self.admin.cluster().table(table(), 0);
        table.put(Put::new(row).column("f", "q", "1")).await.is_ok()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_server_is_checked_and_repaired() {
    let dir = fresh_dir("check");
    let server = Server::start(&dir, &["--memory", "256m"]);
    let checked = check_cluster(server.address("zookeeper").to_string(), true).await;
    wrong_options_are_refused(&checked);
    server.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a cluster: set HALCYON_TEST_ZOOKEEPER"]
async fn a_running_hbase_is_checked_and_repaired() {
    let zookeeper = std::env::var("HALCYON_TEST_ZOOKEEPER").expect("HALCYON_TEST_ZOOKEEPER=host:port");
    check_cluster(zookeeper, false).await;
}

async fn check_cluster(zookeeper: String, is_halcyon: bool) -> Checked {
    let address = ClusterAddress::zookeeper([zookeeper.clone()]);
    let cluster = Cluster::connect(address, ClusterOptions::default()).await.unwrap();
    let admin = cluster.admin().await.unwrap();
    let descriptor = TableDescriptor::new(table()).with_family(FamilyDescriptor::new("f").unwrap());
    admin.create_table(&descriptor, vec!["g".into(), "p".into()]).await.unwrap();
    let checked = Checked { zookeeper, admin, is_halcyon };
    checked.expect(&[], &[]);
    states_of_regions(&checked).await;
    states_of_tables(&checked).await;
    rows_of_meta(&checked).await;
    servers(&checked).await;
    waits(&checked).await;
    checked.expect(&[], &[]);
    checked
}

async fn states_of_regions(checked: &Checked) {
    let region = checked.region(1).await;
    checked.admin.unassign_region(region.encoded_name().as_bytes(), false).await.unwrap();
    checked.expect(&["--table", "other"], &[]);
    checked.expect_repair(&["not-open-in-enabled-table"]);
    assert!(checked.is_served("h").await);
    checked.admin.set_region_state_in_meta(region.encoded_name().as_bytes(), "CLOSED").await.unwrap();
    checked.expect_repair(&["open-on-server"]);
    assert!(checked.is_served("h").await);
    checked.admin.unassign_region(region.encoded_name().as_bytes(), false).await.unwrap();
    checked.write_meta(Put::new(region.region_name()).column("info", "state", "OPEN")).await;
    let found = checked.check(&[]).1;
    let kind = found[0]["kind"].as_str().unwrap();
    assert!(["no-server", "not-on-server"].contains(&kind), "{found:#?}");
    checked.expect_repair(&[kind]);
    assert!(checked.is_served("h").await);
}

async fn states_of_tables(checked: &Checked) {
    checked.admin.set_table_state_in_meta(&table(), TableState::Disabled).await.unwrap();
    checked.expect_repair(&["open-in-disabled-table"]);
    checked.admin.set_table_state_in_meta(&table(), TableState::Enabling).await.unwrap();
    // the regions are closed: the second round opens them
    checked.expect(&[], &["table-in-transition"]);
    let (code, findings) = checked.check(&["--repair"]);
    assert_eq!(code, 0, "{findings:#?}");
    let kinds: BTreeSet<&str> = findings.iter().map(|finding| finding["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, BTreeSet::from(["not-open-in-enabled-table", "table-in-transition"]), "{findings:#?}");
    checked.expect(&[], &[]);
    assert!(checked.is_served("a").await && checked.is_served("h").await && checked.is_served("z").await);
}

async fn rows_of_meta(checked: &Checked) {
    let region = checked.region(1).await;
    let meta = checked.admin.cluster().table(TableName::META, 0);
    meta.delete(Delete::new(region.region_name()).family("info")).await.unwrap();
    checked.expect_repair(&["hole", "not-in-meta"]);
    assert_eq!(checked.region(1).await, region);
    let odd = Put::new("orders,x,1.0123456789abcdef0123456789abcdef.").column("info", "server", "h:1");
    checked.write_meta(odd).await;
    checked.expect(&[], &["odd-row"]);
    let row = "orders,x,1.0123456789abcdef0123456789abcdef.";
    meta.delete(Delete::new(row).family("info")).await.unwrap();
    if checked.is_halcyon {
        overlaps(checked).await;
    }
    checked.expect(&[], &[]);
}

/// HBase merges only regions that its master knows. Halcyon takes the region over first.
async fn overlaps(checked: &Checked) {
    let name = TableName::parse(b"wide").unwrap();
    let descriptor = TableDescriptor::new(name.clone()).with_family(FamilyDescriptor::new("f").unwrap());
    checked.admin.create_table(&descriptor, vec!["g".into(), "p".into()]).await.unwrap();
    let wide = RegionInfo::new(name.clone(), "a".into(), "h".into(), 7);
    let put = Put::new(wide.region_name()).column("info", "regioninfo", wide.encode_value());
    checked.write_meta(put).await;
    let (code, findings) = checked.check(&["--repair"]);
    assert!(findings.iter().all(|finding| finding["repaired"] == true), "{findings:#?}");
    assert_eq!((code, &findings[0]["kind"]), (0, &"overlap".into()), "{findings:#?}");
    let regions = checked.admin.regions(&name).await.unwrap();
    let ends: Vec<_> = regions.iter().map(|found| found.region.end_key().clone()).collect();
    assert_eq!(ends, ["p", ""]);
    checked.admin.disable_table(&name).await.unwrap();
    checked.admin.delete_table(&name).await.unwrap();
}

/// A server that is gone has a region, says meta. No such server can be in one process, which says so.
async fn servers(checked: &Checked) {
    let region = checked.region(1).await;
    let row = region.region_name();
    let before = checked.admin.cluster().table(TableName::META, 0).get(halcyon_client::Get::new(row)).await;
    let before = before.unwrap();
    let value = |name: &str| before.value("info", name).unwrap().to_vec();
    checked.write_meta(Put::new(row).column("info", "serverstartcode", 7i64.to_be_bytes())).await;
    checked.expect(&[], &["open-elsewhere"]);
    checked.admin.unassign_region(region.encoded_name().as_bytes(), false).await.unwrap();
    let gone = Put::new(row).column("info", "server", "gone.example:1").column("info", "state", "OPEN");
    checked.write_meta(gone.column("info", "serverstartcode", 7i64.to_be_bytes())).await;
    if !checked.is_halcyon {
        return checked.expect_repair(&["unknown-server"]);
    }
    checked.expect(&[], &["unknown-server"]);
    let (code, findings) = checked.check(&["--repair"]);
    assert_eq!(code, 1);
    assert!(findings[0]["failure"].as_str().unwrap().contains("one process"), "{findings:#?}");
    assert!(findings[0]["advice"].as_str().unwrap().contains("scheduleRecoveries gone.example,1,7"));
    let back = Put::new(row).column("info", "server", value("server")).column("info", "state", "CLOSED");
    checked.write_meta(back.column("info", "serverstartcode", value("serverstartcode"))).await;
    checked.expect_repair(&["not-open-in-enabled-table"]);
}

/// A region that nothing takes out of its passing state.
async fn waits(checked: &Checked) {
    let region = checked.region(1).await;
    checked.admin.unassign_region(region.encoded_name().as_bytes(), false).await.unwrap();
    checked.write_meta(Put::new(region.region_name()).column("info", "state", "OPENING")).await;
    checked.expect(&[], &[]);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    checked.expect(&["--transition-seconds", "0"], &["long-in-transition"]);
    let (code, findings) = checked.check(&["--transition-seconds", "0", "--repair"]);
    assert_eq!((code, &findings[0]["repaired"]), (0, &true.into()), "{findings:#?}");
    assert!(checked.is_served("h").await);
}

fn wrong_options_are_refused(checked: &Checked) {
    for (options, why) in [
        (vec!["--data", "somewhere"], "cannot be used with"),
        (vec!["--bypass"], "--repair"),
        (vec!["--transition-seconds", "long"], "invalid value"),
    ] {
        let output = checked.run(&options);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{options:?}: {said}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_halcyon"))
        .args(["check", "--registry", "127.0.0.1:1", "--operation-timeout", "2"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot find the cluster"), "{output:?}");
}
