//! The client library against a server of its own, and against any other cluster by a variable:
//!
//! `HALCYON_TEST_ZOOKEEPER=127.0.0.1:2181 cargo test -p halcyon --test all client:: -- --ignored` asks HBase.
#![allow(clippy::disallowed_methods)] // files, clocks and processes from outside

#[path = "../../../wire/client/examples/quickstart.rs"]
mod quickstart;
mod scenarios;
#[path = "../../../wire/client/examples/tour.rs"]
mod tour;

use crate::common::{Server, fresh_dir};
use halcyon_client::ClusterAddress;

fn zookeeper(server: &Server) -> ClusterAddress {
    ClusterAddress::zookeeper([server.address("zookeeper").to_string()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn examples_do_what_they_say() {
    let data = fresh_dir("client-examples");
    let server = Server::start(&data, &[]);
    run_examples(zookeeper(&server)).await;
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
}

async fn run_examples(address: ClusterAddress) {
    let lines = quickstart::run(address.clone()).await.unwrap();
    assert_eq!(lines, ["page-1 was visited 3 times", "news: page-2"]);
    let lines = tour::run(address).await.unwrap();
    let expected = [
        "Ada has the seat: true, Bob has it: false",
        "done, 0 cells",
        "done, 1 cells",
        "done, 1 cells",
        "NoSuchColumnFamilyException",
        "11 rows with value 99",
        "last row: z1",
        "regions of the copy: 2",
        "namespaces: default, hbase",
    ];
    assert_eq!(lines, expected);
}

/// Each scenario against a server of its own.
macro_rules! against_halcyon {
    ($($test:ident: $scenario:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let data = fresh_dir(concat!("client-", stringify!($scenario)));
            let server = Server::start(&data, &[]);
            let cluster = scenarios::connect(zookeeper(&server)).await;
            scenarios::$scenario(&cluster).await;
            server.stop();
            std::fs::remove_dir_all(&data).unwrap();
        })*
    };
}

against_halcyon! {
    rows_are_read_and_changed: rows
    scans_go_over_regions: scans
    filters_drop_cells: filters
    errors_are_told: errors
    tables_are_made_and_changed: tables
    regions_are_split_moved_and_merged: regions
    snapshots_are_taken_and_restored: snapshots
    the_master_is_asked_and_switched: master
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rpc_registry_finds_the_cluster() {
    let data = fresh_dir("client-registry");
    let server = Server::start(&data, &[]);
    for of in ["master", "regionserver"] {
        let registry = ClusterAddress::registry([server.address(of).to_string()]);
        scenarios::rows(&scenarios::connect(registry).await).await;
    }
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
}

/// A running HBase, empty of what the tests create.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a cluster: set HALCYON_TEST_ZOOKEEPER"]
async fn every_operation_works_against_another_cluster() {
    let quorum = std::env::var("HALCYON_TEST_ZOOKEEPER").expect("HALCYON_TEST_ZOOKEEPER=host:port");
    run_examples(ClusterAddress::zookeeper([quorum.as_str()])).await;
    scenarios::all(ClusterAddress::zookeeper([quorum])).await;
}
