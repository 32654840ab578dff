//! NameNodes and DataNodes of this test's own, which fail at the moment that a test wants.

mod datanode;
mod files;
mod namenode;
mod namenodes;
mod reads;
mod wire;

use std::path::Path;
use std::time::Duration;

use halcyon_hdfs::{Deadlines, HdfsAddress, HdfsFileSystem, HdfsOptions, Site};
use namenode::NameNode;

/// Of NameNodes in these tests.
const DEADLINE: Duration = Duration::from_millis(300);
/// For threads of a busy machine.
const SLACK: Duration = Duration::from_secs(10);

fn deadlines() -> Deadlines {
    Deadlines { connect: DEADLINE, namenode: DEADLINE, ..Deadlines::default() }
}

/// A service of these NameNodes. Nothing is read twice at once, so it is known which DataNode was asked.
fn connect(namenodes: &[&str], deadlines: Deadlines) -> HdfsFileSystem {
    let mut site = Site::default();
    let names: Vec<String> = (0..namenodes.len()).map(|number| format!("nn{number}")).collect();
    site.set("dfs.nameservices", "service");
    site.set("dfs.ha.namenodes.service", &names.join(","));
    for (name, address) in names.iter().zip(namenodes) {
        site.set(&format!("dfs.namenode.rpc-address.service.{name}"), address);
    }
    site.set("dfs.client.failover.sleep.base.millis", "10");
    site.set("dfs.client.hedged.read.threadpool.size", "0");
    let address = HdfsAddress::new("hdfs://service/", &site).unwrap();
    HdfsFileSystem::new(address, HdfsOptions { deadlines, ..HdfsOptions::default() }).unwrap()
}

fn connect_to(namenode: &NameNode) -> HdfsFileSystem {
    connect(&[&namenode.address], deadlines())
}

fn path(name: &str) -> &Path {
    Path::new(name)
}
