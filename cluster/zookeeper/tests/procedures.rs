//! Procedures that a master coordinates, against a real ZooKeeper. These tests are ignored otherwise; run them by
//! `make zookeeper-test`.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use halcyon_cell::{Error, Result};
use halcyon_contract::{BarrierProcedure, ProcedureMember, Subprocedure};
use halcyon_schema::znode;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use zookeeper_client as zk;

/// Counts what it does. Fails if the data says so.
#[derive(Default)]
struct Counting(Arc<AtomicUsize>);

impl ProcedureMember for Counting {
    fn prepare(&self, procedure: &BarrierProcedure) -> Result<Subprocedure> {
        let (count, fails) = (self.0.clone(), procedure.data == b"fail");
        Ok(Subprocedure {
            time_max: 2 * LIMIT,
            work: Box::new(move |_| {
                count.fetch_add(1, Ordering::SeqCst);
                if fails { Err(Error::invalid("as it was asked for")) } else { Ok(()) }
            }),
        })
    }
}

async fn wait(client: &zk::Client, path: &str) -> Vec<u8> {
    let there = async {
        loop {
            match client.get_data(path).await {
                Ok((data, _)) => return data,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(LIMIT, there).await.unwrap_or_else(|_| panic!("{path} is not there"))
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_server_takes_part_also_when_zookeeper_was_away() {
    let (client, base) = raw("procedures").await;
    let cluster = connect(&base, Duration::from_secs(60)).await;
    let (member, server) = (Arc::new(Counting::default()), server(1));
    cluster.take_part(&server, member.clone(), Handle::current());
    let top = format!("{base}/flush-table-proc");
    // The znodes of this kind appear later than the server.
    sleep(Duration::from_millis(200)).await;
    for path in [top.clone(), format!("{top}/acquired"), format!("{top}/reached"), format!("{top}/abort")] {
        create(&client, &path, b"").await;
    }
    let data = |payload: &[u8]| znode::encode_payload("master:16000", [7; 8], payload);

    create(&client, &format!("{top}/acquired/t"), &data(b"")).await;
    wait(&client, &format!("{top}/acquired/t/{server}")).await;
    let outage = Outage::begin().await;
    sleep(Duration::from_secs(2)).await;
    outage.end().await;
    assert_eq!(member.0.load(Ordering::SeqCst), 0);
    let reach = async {
        let options = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
        loop {
            match client.create(&format!("{top}/reached/t"), b"", &options).await {
                Ok(_) | Err(zk::Error::NodeExists) => return,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    };
    timeout(LIMIT, reach).await.unwrap();
    let path = format!("{top}/reached/t/{server}");
    assert_eq!(znode::payload(&path, &wait(&client, &path).await).unwrap(), b"");
    assert_eq!(member.0.load(Ordering::SeqCst), 1);

    for path in ["acquired/t", "reached/t"] {
        client.delete(&format!("{top}/{path}/{server}"), None).await.unwrap();
        client.delete(&format!("{top}/{path}"), None).await.unwrap();
    }
    create(&client, &format!("{top}/acquired/t"), &data(b"fail")).await;
    create(&client, &format!("{top}/reached/t"), b"").await;
    let abort = format!("{top}/abort/t");
    let why = znode::decode_abort(&abort, &wait(&client, &abort).await).unwrap();
    assert_eq!(why, format!("{server}: as it was asked for"));
    assert_eq!(member.0.load(Ordering::SeqCst), 2);

    // A session ends at once although a procedure waits.
    create(&client, &format!("{top}/acquired/u"), &data(b"")).await;
    wait(&client, &format!("{top}/acquired/u/{server}")).await;
    timeout(Duration::from_secs(5), cluster.close()).await.unwrap();
}
