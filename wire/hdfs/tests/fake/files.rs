//! Files being written beside a NameNode that is busy or away, and DataNodes that are slow or die.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use halcyon_env::{Clock, FileSystem, SystemClock};
use halcyon_hdfs::CreateOptions;
use parking_lot::Mutex;

use crate::datanode::{CLOSE_RECOVERY, CREATE, DataNode, Request};
use crate::namenode::{Answer, FIRST_BLOCK, NEW_STAMP, NameNode, STAMP};
use crate::*;

/// As much as a block of these tests has.
const BLOCK_BYTES: usize = 1 << 20;

fn takes_blocks() -> DataNode {
    DataNode::start("one", |mut request| request.take_block(1).map(|_| ()))
}

/// A file that is a pipeline of this many blocks.
fn write_blocks(fs: &HdfsFileSystem, blocks: usize) -> io::Result<()> {
    let mut file = fs.create(path("/a"))?;
    for _ in 0..blocks {
        file.write_all(&vec![7; BLOCK_BYTES])?;
    }
    file.sync_and_close()
}

/// The NameNode has not heard of the block before; it starts, or saves its state; its answer is lost. Each of these was the end
/// of a file, whatever had been written to it.
#[test]
fn a_large_file_goes_on_with_a_namenode_that_is_busy() {
    let namenode = NameNode::start(&[takes_blocks()]);
    let fs = connect_to(&namenode);
    let not_yet = Answer::Exception("org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException");
    let safe_mode = Answer::Exception("org.apache.hadoop.hdfs.server.namenode.SafeModeException");
    let starting = Answer::Exception("org.apache.hadoop.ipc.RetriableException");
    let usual = |namenode: &NameNode, id: u64| Answer::Is(namenode.new_block(id));
    let first = usual(&namenode, FIRST_BLOCK);
    namenode.script("addBlock", &[first, not_yet, Answer::Close, safe_mode]);
    namenode.script("fsync", &[Answer::Close]);
    namenode.script("complete", &[starting, Answer::Silence]);
    write_blocks(&fs, 3).unwrap();
    assert!(namenode.calls("addBlock").len() >= 6);
    assert_eq!(namenode.calls("complete").len(), 3);
    let ids: Vec<_> = namenode.calls("complete").into_iter().map(|call| call.id).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "they are one call");
}

/// What the NameNode refuses for good is no reason to wait.
#[test]
fn a_block_that_is_refused_is_the_end_of_the_file() {
    let namenode = NameNode::start(&[takes_blocks()]);
    let fs = connect_to(&namenode);
    let full = Answer::Exception("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException");
    namenode.script("addBlock", &[Answer::Is(namenode.new_block(FIRST_BLOCK)), full]);
    let error = write_blocks(&fs, 2).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded, "{error}");
}

/// A disk that syncs a full block takes longer than two seconds at times. The DataNode was taken for dead then, and the next one,
/// until none was left.
#[test]
fn a_large_file_waits_for_a_slow_disk_and_a_log_does_not() {
    let slow = DataNode::start("slow", |mut request| {
        request.answer(true)?;
        loop {
            let packet = request.packet()?;
            if packet.sync && !packet.is_last {
                SystemClock::new().sleep(Duration::from_millis(1500));
            }
            request.acknowledge(&packet, 1)?;
            if packet.is_last {
                return Ok(());
            }
        }
    });
    let namenode = NameNode::start(&[slow]);
    let own = Deadlines { acknowledgement: Duration::from_millis(500), ..deadlines() };
    let fs = connect(&[&namenode.address], own);
    write_blocks(&fs, 2).unwrap();
    let log = CreateOptions { fails_fast: true, ..CreateOptions::default() };
    let mut file = fs.create_with(path("/log"), log).unwrap();
    file.write_all(&[1; 100]).and_then(|()| file.sync()).unwrap_err();
}

/// What a DataNode was asked to set up: stage and stamp.
type SetUps = Arc<Mutex<Vec<(u64, u64)>>>;

/// It has finished the block, so it goes on with it in one way only: under a new stamp.
fn has_finished(set_ups: &SetUps, mut request: Request) -> io::Result<()> {
    set_ups.lock().push((request.stage(), request.stamp()));
    assert_eq!(request.body.number(6), request.body.number(7), "it has all bytes");
    let is_allowed = request.stage() == CLOSE_RECOVERY;
    request.answer(is_allowed)
}

/// The first DataNode dies with the last packet, and the second one has finished the block. It was asked to go on with it, which
/// it refuses, and the file failed when all of its bytes were safe.
#[test]
fn a_datanode_dies_while_a_block_is_finished() {
    let dies = DataNode::start("dies", |mut request| {
        assert_eq!(request.stage(), CREATE);
        request.answer(true)?;
        let mut unacknowledged = 0;
        loop {
            let packet = request.packet()?;
            if packet.is_last {
                assert_eq!(unacknowledged, 0);
                return Ok(());
            }
            unacknowledged += 1;
            request.acknowledge(&packet, 2)?;
            unacknowledged -= 1;
        }
    });
    let set_ups = SetUps::default();
    let seen = set_ups.clone();
    let other = DataNode::start("other", move |request| has_finished(&seen, request));
    let namenode = NameNode::start(&[dies, other]);
    let fs = connect_to(&namenode);
    let mut file = fs.create(path("/a")).unwrap();
    file.write_all(&[7; 3000]).and_then(|()| file.sync()).unwrap();
    file.close().unwrap();
    assert_eq!(set_ups.lock()[..], [(CLOSE_RECOVERY, NEW_STAMP)]);
    let updated = namenode.calls("updatePipeline")[0].body.clone();
    assert_eq!((updated.message(2).number(3), updated.message(3).number(3)), (STAMP, NEW_STAMP));
    assert_eq!(updated.messages(4).iter().map(|node| node.text(3)).collect::<Vec<_>>(), ["other"]);
    let last = namenode.calls("complete")[0].body.message(3);
    assert_eq!((last.number(3), last.number(4)), (NEW_STAMP, 3000));
}

/// Takes a whole block, and later a new stamp for it.
fn keeps_block(tell: Sender<(u64, u64)>) -> impl Fn(Request) -> io::Result<()> + Send + Sync + 'static {
    let tell = Mutex::new(tell);
    move |mut request| {
        let _ = tell.lock().send((request.stage(), request.stamp()));
        match request.stage() {
            CREATE => request.take_block(1).map(|_| ()),
            stage => request.answer(stage == CLOSE_RECOVERY),
        }
    }
}

/// A small file goes on without a DataNode that is late. What that one has, perhaps a part, had the same stamp as the good
/// copies: it kept that until it was restarted, and HDFS could make no other copy there.
#[test]
fn a_small_file_that_leaves_a_datanode_out_gets_a_new_stamp() {
    let late = DataNode::start("late", |mut request| {
        request.answer(true)?;
        while request.packet().is_ok() {}
        Ok(())
    });
    let (tell, told) = channel();
    let one = DataNode::start("one", keeps_block(tell.clone()));
    let two = DataNode::start("two", keeps_block(tell));
    let namenode = NameNode::start(&[one, late, two]);
    let fs = connect_to(&namenode);
    fs.put_new(path("/p/record"), b"the record").unwrap();
    let mut set_ups: Vec<_> = (0..4).map(|_| told.recv_timeout(SLACK).unwrap()).collect();
    set_ups.sort();
    let expected =
        [(CLOSE_RECOVERY, NEW_STAMP), (CLOSE_RECOVERY, NEW_STAMP), (CREATE, STAMP), (CREATE, STAMP)];
    assert_eq!(set_ups, expected);
    let updated = namenode.calls("updatePipeline")[0].body.clone();
    assert_eq!(updated.messages(4).iter().map(|node| node.text(3)).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(updated.message(3).number(4), 10);
    let last = namenode.calls("complete")[0].body.message(3);
    assert_eq!((last.number(3), last.number(4)), (NEW_STAMP, 10));
}

/// Without a late DataNode the NameNode is asked for nothing more.
#[test]
fn a_small_file_of_all_its_datanodes_keeps_its_stamp() {
    let (tell, _told) = channel();
    let nodes: Vec<_> =
        ["one", "two", "three"].map(|uuid| DataNode::start(uuid, keeps_block(tell.clone()))).into();
    let namenode = NameNode::start(&nodes);
    connect_to(&namenode).put_new(path("/p/record"), b"the record").unwrap();
    assert_eq!(namenode.changes(), ["create", "addBlock", "complete", "rename2"]);
    assert_eq!(namenode.calls("complete")[0].body.message(3).number(3), STAMP);
}
