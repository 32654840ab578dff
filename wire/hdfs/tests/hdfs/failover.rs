//! Two NameNodes: the active one dies, the other one takes over, and back. Needs `cluster.sh run --standby`.

use tokio::time::Instant;

use super::*;

/// Files are made, renamed and read through whichever NameNode is active; a log goes on meanwhile.
fn work(fs: &HdfsFileSystem, root: &Path, round: u32) {
    let (new, old) = (root.join(format!("new{round}")), root.join(format!("old{round}")));
    fs.put_new(&new, &round.to_be_bytes()).unwrap();
    fs.rename(&new, &old).unwrap();
    assert!(!fs.exists(&new).unwrap());
    assert_eq!(fs.read(&old).unwrap(), round.to_be_bytes());
}

/// Starts the first NameNode, and makes it the active one when it has read the journal.
fn give_back() {
    cluster("start", "namenode");
    SystemClock::new().sleep(Duration::from_secs(3));
    let back = (0..20).any(|_| {
        SystemClock::new().sleep(Duration::from_secs(1));
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/cluster/cluster.sh"))
            .args(["active", "namenode"])
            .status()
            .unwrap()
            .success()
    });
    assert!(back, "the first NameNode did not become active again");
}

#[test]
#[ignore = "needs an HDFS with a standby NameNode"]
fn failover_of_the_namenode() {
    let fs = connect();
    assert_eq!(fs.address().to_string().matches("127.0.0.1:").count(), 2, "{}", fs.address());
    let root = directory(&fs, "failover");
    let mut log = fs.create_log(&root.join("log")).unwrap();
    let mut expected = Vec::new();
    let mut append = |bytes: &[u8]| {
        expected.extend_from_slice(bytes);
        log.write_all(bytes).and_then(|()| log.flush()).unwrap();
        expected.clone()
    };
    append(b"both ");
    work(&fs, &root, 1);

    cluster("kill", "namenode");
    append(b"none ");
    // Asks until one is active.
    let other = connect();
    let later =
        halcyon_env::spawn_thread("later", move || work(&other, Path::new("/test/failover"), 2)).unwrap();
    SystemClock::new().sleep(Duration::from_secs(2));
    append(b"still none ");
    cluster("active", "namenode2");
    later.join().unwrap();
    work(&fs, &root, 3);
    append(b"the second ");

    give_back();
    work(&fs, &root, 4);
    let written = append(b"the first");
    log.close().unwrap();
    assert_eq!(fs.read(&root.join("log")).unwrap(), written);
    assert_eq!(names(&fs, &root).len(), 5);
}

/// The first NameNode hangs and does not end, so nothing refuses a connection. Each call went to it again, for ever.
#[test]
#[ignore = "needs an HDFS with a standby NameNode"]
fn failover_from_a_frozen_namenode() {
    let fs = connect();
    let root = directory(&fs, "frozen-failover");
    let block: Vec<u8> = (0..1 << 20).map(|at| at as u8).collect();
    let options = CreateOptions { block_size_bytes: Some(1 << 20), ..CreateOptions::default() };
    let mut large = fs.create_with(&root.join("large"), options).unwrap();
    (0..2).for_each(|_| large.write_all(&block).unwrap());

    cluster("freeze", "namenode");
    cluster("active", "namenode2");
    let began = Instant::now();
    work(&fs, &root, 1);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // A large file goes on: it asks for blocks, and for its end.
    (0..2).for_each(|_| large.write_all(&block).unwrap());
    large.sync_and_close().unwrap();
    assert_eq!(fs.read(&root.join("large")).unwrap(), block.repeat(4));
    // As each server begins: with the frozen one.
    work(&connect(), &root, 2);

    // It must not write to the journal that is another's now.
    cluster("kill", "namenode");
    give_back();
    work(&fs, &root, 3);
}
