//! Reads beside DataNodes that lie, end early or restart.

use std::io::{self, ErrorKind};
use std::net::TcpListener;

use halcyon_env::{Clock, FileSystem, SystemClock, spawn_thread};
use tokio::time::Instant;

use crate::datanode::{DataNode, Request};
use crate::namenode::{FIRST_BLOCK, NameNode, wait_until};
use crate::*;

fn block() -> Vec<u8> {
    (0..2000_u32).map(|at| at as u8).collect()
}

/// Sends the block as it is.
fn sends(mut request: Request) -> io::Result<()> {
    request.send(&block(), false)?;
    request.end(block().len() as u64)
}

/// An open file at these DataNodes.
fn file_at(namenode: &NameNode, datanodes: &[DataNode]) -> HdfsFileSystem {
    namenode.set_file(&[(FIRST_BLOCK, block().len() as u64)], datanodes);
    connect_to(namenode)
}

/// HDFS counted a rotten copy as good until its own scan came by, weeks later. With two more of them the block is lost.
#[test]
fn a_rotten_replica_is_reported() {
    let rotten = DataNode::start("rotten", |mut request| {
        request.send(&block(), true)?;
        request.end(block().len() as u64)
    });
    let well = DataNode::start("well", sends);
    let namenode = NameNode::start(&[]);
    let fs = file_at(&namenode, &[rotten.clone(), well]);
    assert_eq!(fs.read(path("/a")).unwrap(), block());
    wait_until("it is reported", || !namenode.calls("reportBadBlocks").is_empty());
    let reported = namenode.calls("reportBadBlocks")[0].body.messages(1);
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0].message(1).number(2), FIRST_BLOCK);
    let uuids: Vec<String> = reported[0].messages(3).iter().map(|at| at.message(1).text(3)).collect();
    assert_eq!(uuids, ["rotten"]);
}

/// The reader waited for more until the deadline of the whole read, and asked the same DataNode first the next time.
#[test]
fn a_datanode_that_ends_early_is_left_at_once() {
    let short = DataNode::start("short", |mut request| {
        request.send(&block()[..512], false)?;
        request.end(512)
    });
    let well = DataNode::start("well", |mut request| {
        let offset = request.body.number(2) as usize;
        assert_eq!(offset, 512, "the first bytes came already");
        request.send_from(&block(), offset)?;
        request.end(block().len() as u64)
    });
    let namenode = NameNode::start(&[]);
    let fs = file_at(&namenode, &[short, well]);
    let began = Instant::now();
    let file = fs.open(path("/a")).unwrap();
    let mut bytes = block();
    bytes.fill(0);
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, block());
    assert!(began.elapsed() < deadlines().read / 2, "{:?}", began.elapsed());
}

/// Three attempts that are refused are over in milliseconds, and a restart of a DataNode was an error at once.
#[test]
fn a_datanode_that_restarts_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let namenode = NameNode::start(&[]);
    let fs = file_at(&namenode, &[DataNode::at("one", port)]);
    spawn_thread("restart", move || {
        SystemClock::new().sleep(Duration::from_millis(700));
        DataNode::listen("one", TcpListener::bind(("127.0.0.1", port)).unwrap(), sends);
    })
    .unwrap();
    assert_eq!(fs.read(path("/a")).unwrap(), block());
}

/// A name that was used again was told by the length alone.
#[test]
fn another_file_of_the_same_length_is_another_file() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = DataNode::at("gone", listener.local_addr().unwrap().port());
    drop(listener);
    let namenode = NameNode::start(&[]);
    let fs = file_at(&namenode, &[gone]);
    let file = fs.open(path("/a")).unwrap();
    let well = DataNode::start("well", sends);
    namenode.set_file(&[(FIRST_BLOCK + 7, block().len() as u64)], &[well]);
    let error = file.read_exact_at(&mut [0; 10], 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle, "{error}");
    assert!(error.to_string().contains("is another file"), "{error}");
}

/// The memory for it was taken before the first byte came.
#[test]
fn a_file_that_cannot_be_so_long_is_not_read_whole() {
    let namenode = NameNode::start(&[]);
    let datanode = DataNode::start("one", sends);
    namenode.set_file(&[(FIRST_BLOCK, 1 << 50)], &[datanode]);
    let error = connect_to(&namenode).read(path("/a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
}

/// Lengths that do not fit together were a panic, or four gigabytes of zeros.
#[test]
fn packets_with_wrong_lengths_are_of_one_datanode_only() {
    for garbage in [[0, 0, 0, 3, 0, 2], [0xff, 0xff, 0xff, 0xff, 0, 2], [0, 0, 0, 5, 0, 0]] {
        let lies =
            DataNode::start("lies", move |mut request| request.send_raw(&[&garbage[..], &[0; 64]].concat()));
        let well = DataNode::start("well", sends);
        let namenode = NameNode::start(&[]);
        let fs = file_at(&namenode, &[lies, well]);
        assert_eq!(fs.read(path("/a")).unwrap(), block(), "{garbage:?}");
    }
}
