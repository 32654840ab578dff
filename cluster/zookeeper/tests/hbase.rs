//! Beside a real HBase, whose bytes are compared with ours. Ignored otherwise; run it by `make zookeeper-test`. Needs
//! HBASE_ZOOKEEPER, the address of HBase's ZooKeeper, and HBASE_LOG, the log of its master.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halcyon_coord::{Coordinator, Seen};
use halcyon_env::{Clock, FileSystem, RealFileSystem, SystemClock};
use halcyon_proto::pb;
use halcyon_schema::znode::{self, HBASE_VERSION, ZnodePaths};
use halcyon_schema::{NamespaceDescriptor, ServerName};
use halcyon_zookeeper::{ZooKeeperCluster, ZooKeeperSettings};
use prost::Message;
use zookeeper_client as zk;

const LIMIT: Duration = Duration::from_secs(30);

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run this by `make zookeeper-test`"))
}

async fn data(client: &zk::Client, path: &str) -> Vec<u8> {
    let (data, _) = client.get_data(path).await.unwrap_or_else(|error| panic!("{path}: {error}"));
    data
}

/// The writer's name and the random bytes behind `FF` and the length of both.
fn id(path: &str, data: &[u8]) -> (String, [u8; 8]) {
    assert_eq!(data[0], 0xff, "{path}");
    let len = u32::from_be_bytes(data[1..5].try_into().unwrap()) as usize;
    let (writer, unique) = data[5..5 + len].split_at(len - 8);
    (String::from_utf8(writer.to_vec()).unwrap(), unique.try_into().unwrap())
}

/// HBase's bytes are those that `message` has with the same id.
fn same_bytes(path: &str, theirs: &[u8], writer: &str, message: &impl Message) {
    let (name, unique) = id(path, theirs);
    assert_eq!(name, writer, "{path}: the name of the writer");
    let ours = znode::encode(writer, unique, message);
    assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string(), "{path}");
}

#[tokio::test]
#[ignore = "needs an HBase"]
async fn znodes_are_those_of_hbase() {
    let at = variable("HBASE_ZOOKEEPER");
    let client = zk::Client::connect(&at).await.unwrap();
    let paths = ZnodePaths::new("/hbase").unwrap();
    let settings = ZooKeeperSettings::new(&at, 2181, "/hbase", Duration::from_secs(10)).unwrap();
    let clock = Arc::new(SystemClock::new());
    let cluster = ZooKeeperCluster::connect(settings, clock.clone()).await.unwrap();
    let mut view = cluster.view().clone();

    let master = view.master.wait(LIMIT).await.unwrap();
    let (path, writer) = (paths.master(), format!("master:{}", master.server.port));
    same_bytes(&path, &data(&client, &path).await, &writer, &master.to_pb());

    let meta = view.meta.wait(LIMIT).await.unwrap();
    assert!(meta.len() == 1 && meta[0].is_open && meta[0].replica == 0, "{meta:?}");
    let path = paths.meta(0);
    same_bytes(&path, &data(&client, &path).await, &writer, &meta[0].to_pb());

    let cluster_id = view.cluster_id.wait(LIMIT).await.unwrap().0;
    assert_eq!(cluster_id.len(), 36);
    let path = paths.cluster_id();
    same_bytes(&path, &data(&client, &path).await, &writer, &pb::ClusterId { cluster_id });
    let start_date = view.running.wait(LIMIT).await.unwrap();
    println!("HBase runs since {start_date}");
    let path = paths.running();
    same_bytes(&path, &data(&client, &path).await, &writer, &pb::ClusterUp { start_date });

    let servers = view.region_servers.wait_for(LIMIT, |servers| !servers.is_empty()).await.unwrap();
    assert_eq!(servers, [meta[0].server.clone()]);
    assert_eq!(view.draining.seen(), Seen::Present(Vec::new()));
    compare_region_server(&client, &paths, &servers[0]).await;
    a_master_waits(&cluster, &client, &paths, clock.now_ms()).await;
    master_sees_us(&cluster, &client, &paths, clock.now_ms()).await;
    cluster.close().await;
}

/// The znode of HBase's region server and ours differ in port, start code, and in the texts that say who built it.
async fn compare_region_server(client: &zk::Client, paths: &ZnodePaths, server: &ServerName) {
    let path = paths.region_server(server);
    let theirs = data(client, &path).await;
    let info: pb::RegionServerInfo = znode::message(&path, &theirs).unwrap();
    println!("HBase's region server says {info:?}");
    let built = info.version_info.clone().unwrap();
    // The build for Hadoop 3 says "2.6.4-hadoop3".
    assert!(built.version.starts_with(HBASE_VERSION), "{}", built.version);
    let mut ours = znode::region_server_info(0, &built.version);
    let version = ours.version_info.as_mut().unwrap();
    let pb::VersionInfo { url, revision, user, date, src_checksum, .. } = built;
    *version = pb::VersionInfo { url, revision, user, date, src_checksum, ..version.clone() };
    same_bytes(&path, &theirs, &format!("regionserver:{}", server.port), &ours);
    // Such a znode must not be one that people may write and ours not, or the other way.
    let (acls, stat) = client.get_acl(&path).await.unwrap();
    assert_eq!(acls, zk::Acls::anyone_all().to_vec());
    assert_ne!(stat.ephemeral_owner, 0);
}

/// A master of ours waits beside HBase's. What it would make is what HBase's master has made, and more.
async fn a_master_waits(
    cluster: &ZooKeeperCluster,
    client: &zk::Client,
    paths: &ZnodePaths,
    start_code: i64,
) {
    let mut more = Vec::new();
    for name in znode::EMPTY {
        match client.get_data(&paths.below(name)).await {
            Ok((data, _)) => assert_eq!(data.len(), 0, "{name} has data"),
            Err(_) => more.push(*name),
        }
    }
    println!("HBase has not made {more:?}");
    for name in client.list_children(paths.base()).await.unwrap() {
        let known = znode::EMPTY.iter().any(|empty| empty.split('/').next() == Some(&name));
        let full = ["hbaseid", "master", "meta-region-server", "running"].contains(&name.as_str());
        assert!(known || full, "{name} is not known");
    }
    for name in znode::NAMESPACES {
        let path = paths.namespace(name);
        let theirs = data(client, &path).await;
        let (writer, unique) = id(&path, &theirs);
        assert_eq!(
            znode::encode_namespace(&writer, unique, &NamespaceDescriptor::new(*name).to_pb()),
            theirs
        );
    }
    let own = ServerName::new("localhost", 2, start_code);
    let candidate = cluster.stand(&own, 0).await.unwrap();
    let elected = tokio::time::timeout(Duration::from_secs(1), candidate.elected()).await;
    assert!(elected.is_err(), "HBase's master is the active one");
    let mut backups = cluster.view().backup_masters.clone();
    backups.wait_for(LIMIT, |seen| *seen == [own.clone()]).await.unwrap();
    let (acls, stat) = client.get_acl(&paths.backup_master(&own)).await.unwrap();
    assert_eq!((acls, stat.ephemeral_owner), (zk::Acls::anyone_all().to_vec(), cluster.session().id().0));
}

/// HBase's master notices our znode and reads its bytes.
async fn master_sees_us(
    cluster: &ZooKeeperCluster,
    client: &zk::Client,
    paths: &ZnodePaths,
    start_code: i64,
) {
    let own = ServerName::new("localhost", 1, start_code);
    let log = || {
        String::from_utf8_lossy(&RealFileSystem.read(Path::new(&variable("HBASE_LOG"))).unwrap()).into_owned()
    };
    let said = async |text: String| {
        let found = async {
            while !log().contains(&text) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(LIMIT, found)
            .await
            .unwrap_or_else(|_| panic!("HBase's master did not log {text:?}"));
    };
    let member = cluster.join(&own, 0).await.unwrap();
    let (acls, _) = client.get_acl(&paths.region_server(&own)).await.unwrap();
    assert_eq!(acls, zk::Acls::anyone_all().to_vec());
    said(format!("RegionServer ephemeral node created, adding [{own}]")).await;
    member.leave().await.unwrap();
    said(format!("RegionServer ephemeral node deleted, processing expiration [{own}]")).await;
    // The one complaint that is due: our server has a znode, and never reported for duty.
    let complains = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    let log = log();
    let complaints: Vec<&str> =
        log.lines().filter(|line| line.contains(&own.to_string())).filter(complains).collect();
    assert!(
        complaints.len() == 1 && complaints[0].contains("Skip adding ServerCrashProcedure"),
        "{complaints:?}"
    );
}
