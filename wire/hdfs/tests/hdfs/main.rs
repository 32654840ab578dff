//! Against a real HDFS, which `testing/cluster` starts. These tests are ignored otherwise; run them by `make hdfs-test`.
//! Needs CLUSTER_HDFS, CLUSTER_CONF and CLUSTER_DIR, as `cluster.sh run` sets them.

mod datanodes;
mod failover;
mod large;
mod logs;
mod whole;

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use halcyon_env::{Clock, FileSystem, RealFileSystem, SystemClock};
use halcyon_hdfs::{CreateOptions, Deadlines, HdfsAddress, HdfsFileSystem, HdfsOptions, Site};
use halcyon_testkit::{FileAbilities, check_fences, check_file_system};

/// So many there are, except in `failover.rs`.
const DATANODES: usize = 4;
/// So many bytes a record of a log has.
const RECORD_BYTES: usize = 1024;
/// Names the log that this test program writes as a process of its own.
const WRITER_LOG: &str = "HALCYON_HDFS_WRITER_LOG";

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run these tests by `make hdfs-test`"))
}

fn connect_with(options: HdfsOptions) -> HdfsFileSystem {
    connect_as(site(), options)
}

fn site() -> Site {
    Site::read(&RealFileSystem, Path::new(&variable("CLUSTER_CONF"))).unwrap()
}

fn connect_as(site: Site, options: HdfsOptions) -> HdfsFileSystem {
    let address = HdfsAddress::new(&variable("CLUSTER_HDFS"), &site).unwrap();
    HdfsFileSystem::new(address, options).unwrap()
}

fn connect() -> HdfsFileSystem {
    connect_with(HdfsOptions::default())
}

/// An empty directory.
fn directory(fs: &HdfsFileSystem, name: &str) -> PathBuf {
    let dir = Path::new("/test").join(name);
    if fs.exists(&dir).unwrap() {
        fs.remove_dir_all(&dir).unwrap();
    }
    fs.create_dir_all(&dir).unwrap();
    dir
}

/// `cluster.sh kill datanode1`, for example.
fn cluster(verb: &str, process: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/cluster/cluster.sh");
    let done = Command::new(script).args([verb, process]).status().unwrap();
    assert!(done.success(), "cluster.sh {verb} {process}");
}

/// Waits until all DataNodes take files. One that was started again does not serve at once.
fn await_datanodes(fs: &HdfsFileSystem) {
    let ready = Path::new("/test/ready");
    let write = || {
        let all = Some(DATANODES as u32);
        let options = CreateOptions { overwrite: true, replication: all, ..CreateOptions::default() };
        let mut file = fs.create_with(ready, options)?;
        file.write_all(b"x").and_then(|()| file.sync())?;
        file.close()?;
        fs.open(ready).map(|file| file.block_hosts().unwrap())
    };
    let clock = SystemClock::new();
    let mut row = 0;
    for _ in 0..60 {
        let is_on_all = write().is_ok_and(|blocks| blocks[0].hosts.len() == DATANODES);
        row = if is_on_all { row + 1 } else { 0 };
        if row == 3 {
            return;
        }
        clock.sleep(Duration::from_millis(500));
    }
    panic!("no file can be written to all DataNodes");
}

fn names(fs: &dyn FileSystem, dir: &Path) -> Vec<(String, bool, u64)> {
    fs.list(dir).unwrap().into_iter().map(|entry| (entry.name, entry.is_dir, entry.len)).collect()
}

fn kind<T>(result: std::io::Result<T>) -> ErrorKind {
    result.map(|_| ()).expect_err("is refused").kind()
}

fn write_file(fs: &HdfsFileSystem, path: &Path, bytes: &[u8]) {
    let mut file =
        fs.create_with(path, CreateOptions { overwrite: true, ..CreateOptions::default() }).unwrap();
    file.write_all(bytes).unwrap();
    file.close().unwrap();
}

#[test]
#[ignore = "needs an HDFS"]
fn the_promises_of_every_file_system() {
    let fs = connect();
    check_file_system(&fs, &directory(&fs, "promises"), FileAbilities::HDFS);
    check_fences(&fs, &connect(), &directory(&fs, "fences"), FileAbilities::HDFS);
}

#[test]
#[ignore = "needs an HDFS"]
fn what_only_hdfs_has() {
    let fs = connect();
    let root = directory(&fs, "only");
    write_file(&fs, &root.join("f"), b"hello world");
    assert_eq!(kind(fs.create_with(&root.join("f"), CreateOptions::default())), ErrorKind::AlreadyExists);
    fs.put_new(&root.join("g"), b"").unwrap();
    assert_eq!(kind(fs.rename_new(&root.join("f"), &root.join("g"))), ErrorKind::AlreadyExists);
    fs.rename_new(&root.join("f"), &root.join("h")).unwrap();
    assert_eq!(kind(fs.create_with(&root.join("no/f"), CreateOptions::default())), ErrorKind::NotFound);
    let parents = CreateOptions { parents: true, ..CreateOptions::default() };
    fs.create_with(&root.join("no/f"), parents).unwrap().close().unwrap();
    assert_eq!(kind(fs.remove_file(&root.join("no"))), ErrorKind::IsADirectory);
    assert_eq!(kind(fs.remove_dir_all(&root.join("h"))), ErrorKind::NotADirectory);
    let open = fs.open(&root.join("h")).unwrap();
    assert_eq!(kind(open.read_exact_at(&mut [0; 5], u64::MAX - 2)), ErrorKind::UnexpectedEof);
    assert_eq!(names(&fs, &root).len(), 3);
}

#[test]
#[ignore = "needs an HDFS"]
fn a_file_of_many_blocks() {
    let fs = connect();
    let root = directory(&fs, "blocks");
    let bytes: Vec<u8> = (0..5 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let options = CreateOptions { block_size_bytes: Some(1 << 20), ..CreateOptions::default() };
    let mut file = fs.create_with(&root.join("f"), options).unwrap();
    for part in bytes.chunks(70_000) {
        file.write_all(part).unwrap();
    }
    file.close().unwrap();
    assert_eq!(fs.read(&root.join("f")).unwrap(), bytes);
    let open = fs.open(&root.join("f")).unwrap();
    for (offset, len) in [(0, 1), ((1 << 20) - 1, 2), ((2 << 20) - 7, (1 << 20) + 14), (bytes.len() - 3, 3)] {
        let mut buffer = vec![0; len];
        open.read_exact_at(&mut buffer, offset as u64).unwrap();
        assert_eq!(buffer, bytes[offset..offset + len]);
    }
}

#[test]
#[ignore = "needs an HDFS"]
fn a_name_service_whose_first_namenode_is_dead() {
    let namenode = variable("CLUSTER_HDFS").strip_prefix("hdfs://").unwrap().to_string();
    let mut site = Site::default();
    site.set("dfs.nameservices", "service");
    site.set("dfs.ha.namenodes.service", "one, two");
    site.set("dfs.namenode.rpc-address.service.one", "127.0.0.1:1");
    site.set("dfs.namenode.rpc-address.service.two", &namenode);
    let address = HdfsAddress::new("hdfs://service/", &site).unwrap();
    let fs = HdfsFileSystem::new(address, HdfsOptions::default()).unwrap();
    let root = directory(&fs, "service");
    write_file(&fs, &root.join("f"), b"1");
    assert_eq!(connect().read(&root.join("f")).unwrap(), b"1");
    let error = fs.read(&root.join("g")).unwrap_err().to_string();
    assert!(error.contains("hdfs://service (127.0.0.1:1, "), "{error}");
}

#[test]
#[ignore = "needs an HDFS"]
fn a_sealed_file_takes_no_more_bytes() {
    let fs = connect();
    let root = directory(&fs, "seal");
    let mut file = fs.create_with(&root.join("f"), CreateOptions::default()).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync().unwrap();
    file.write_all(b", not synced").unwrap();
    let other = connect();
    other.seal(&root.join("f")).unwrap();
    assert_eq!(other.read(&root.join("f")).unwrap(), b"synced");
    let error = file.sync().unwrap_err();
    assert!(error.to_string().contains("/test/seal/f takes no more bytes"), "{error}");
    assert!(file.write_all(b"x").is_err() && file.sync().is_err() && file.close().is_err());
    other.seal(&root.join("f")).unwrap();
    assert_eq!(other.read(&root.join("f")).unwrap(), b"synced");
    assert_eq!(kind(other.seal(&root.join("none"))), ErrorKind::NotFound);
}

#[test]
#[ignore = "needs an HDFS"]
fn a_dropped_writer_leaves_what_was_synced() {
    let fs = connect();
    let root = directory(&fs, "drop");
    let mut file = fs.create_with(&root.join("f"), CreateOptions::default()).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync().unwrap();
    drop(file);
    fs.seal(&root.join("f")).unwrap();
    assert_eq!(fs.read(&root.join("f")).unwrap(), b"synced");
}

#[test]
#[ignore = "needs an HDFS"]
fn an_open_file_is_found_in_the_archive() {
    let moved = |path: &Path| vec![Path::new("/test/archive").join(path.file_name().unwrap())];
    let fs = connect_with(HdfsOptions { moved_to: Some(Arc::new(moved)), ..HdfsOptions::default() });
    let root = directory(&fs, "live");
    let archive = directory(&fs, "archive");
    write_file(&fs, &root.join("f"), b"hello world");
    let open = fs.open(&root.join("f")).unwrap();
    fs.rename_over(&root.join("f"), &archive.join("f")).unwrap();
    // All DataNodes go and come: the library's reader counts them as dead for ever.
    let nodes = ["datanode1", "datanode2", "datanode3", "datanode4"];
    nodes.iter().for_each(|node| cluster("kill", node));
    let mut buffer = [0; 5];
    let error = open.read_exact_at(&mut buffer, 6).unwrap_err();
    assert!(
        error.to_string().contains("/test/live/f: 5 bytes at 6 cannot be read from any DataNode"),
        "{error}"
    );
    nodes.iter().for_each(|node| cluster("start", node));
    let clock = SystemClock::new();
    let found = (0..60).any(|_| {
        clock.sleep(Duration::from_millis(500));
        open.read_exact_at(&mut buffer, 6).is_ok()
    });
    assert!(found && &buffer == b"world");
    await_datanodes(&fs);
}

#[test]
#[ignore = "needs an HDFS"]
fn a_frozen_namenode_costs_a_deadline() {
    let deadlines = Deadlines {
        namenode: Duration::from_millis(700),
        namenode_total: Duration::from_secs(20),
        ..Deadlines::default()
    };
    let fs = connect_with(HdfsOptions { deadlines, ..HdfsOptions::default() });
    let root = directory(&fs, "frozen");
    write_file(&fs, &root.join("a"), b"1");
    cluster("freeze", "namenode");
    let thaw = halcyon_env::spawn_thread("thaw", || {
        SystemClock::new().sleep(Duration::from_secs(4));
        cluster("thaw", "namenode");
    });
    // The first request waits in the NameNode and is done when it thaws, the second one finds it done.
    fs.rename_new(&root.join("a"), &root.join("b")).unwrap();
    thaw.unwrap().join().unwrap();
    assert_eq!(names(&fs, &root), [("b".to_string(), false, 1)]);
}

// The fence: a process writes records to a log; another renames the log's directory and seals the log.

/// Not a test: the process that writes. It prints the number of each record that is synced, then why it ended.
#[test]
#[ignore = "the writer of the fence tests"]
fn writer() {
    let Ok(log) = std::env::var(WRITER_LOG) else { return };
    let (fs, log) = (connect(), PathBuf::from(log));
    let mut file = fs.create_with(&log, CreateOptions::default()).unwrap();
    for number in 0_u64.. {
        let record = format!("{number:0>width$}\n", width = RECORD_BYTES - 1);
        let written = file.write_all(record.as_bytes()).and_then(|()| file.sync());
        match written {
            Ok(()) => println!("acked {number}"),
            Err(error) => {
                println!("refused {error}");
                break;
            }
        }
    }
    // Its directory has another name, so it has no place for another log.
    let next = fs.create_with(&log.with_extension("next"), CreateOptions::default());
    println!("roll {:?}", next.map(|_| ()).map_err(|error| error.kind()));
}

struct Writer {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    acked: Option<u64>,
}

impl Writer {
    /// Starts it and waits for its first hundred records.
    fn start(log: &Path) -> Writer {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer", "--ignored", "--nocapture"])
            .env(WRITER_LOG, log)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut writer = Writer { process, lines, acked: None };
        while writer.acked.is_none_or(|acked| acked < 100) {
            assert!(writer.next().is_some(), "the writer ended early");
        }
        writer
    }

    /// The next line that is not a record's number; `None` when the writer has ended.
    fn next(&mut self) -> Option<String> {
        let line = self.lines.next()?.unwrap();
        match line.strip_prefix("acked ") {
            Some(number) => self.acked = Some(number.parse().unwrap()),
            None => return Some(line),
        }
        Some(String::new())
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Reads what it printed until it ends.
    fn end(mut self) -> (u64, Vec<String>) {
        let mut said = Vec::new();
        while let Some(line) = self.next() {
            said.extend((!line.is_empty()).then_some(line));
        }
        self.process.wait().unwrap();
        (self.acked.unwrap(), said)
    }
}

/// Renames the directory of the log, seals the log, and counts its records, which must be whole.
fn take_over(fs: &HdfsFileSystem, log: &Path) -> u64 {
    let clock = SystemClock::new();
    let start = clock.monotonic_ns();
    let dir = log.parent().unwrap();
    let fenced = dir.with_file_name(format!("{}-splitting", dir.file_name().unwrap().to_str().unwrap()));
    if !fs.exists(&fenced).unwrap() {
        fs.rename_new(dir, &fenced).unwrap();
    }
    let log = fenced.join(log.file_name().unwrap());
    fs.seal(&log).unwrap();
    println!("fenced in {} ms", (clock.monotonic_ns() - start) / 1_000_000);
    let bytes = fs.read(&log).unwrap();
    assert_eq!(bytes.len() % RECORD_BYTES, 0, "a torn record");
    for (number, record) in bytes.chunks(RECORD_BYTES).enumerate() {
        assert_eq!(record, format!("{number:0>width$}\n", width = RECORD_BYTES - 1).as_bytes());
    }
    (bytes.len() / RECORD_BYTES) as u64
}

/// A log in a directory of its own.
fn log_in(fs: &HdfsFileSystem, name: &str) -> PathBuf {
    let dir = directory(fs, name).join("WALs/server");
    fs.create_dir_all(&dir).unwrap();
    dir.join("1")
}

/// What was acknowledged is there, and nothing was acknowledged after the seal.
fn assert_fenced(records: u64, acked: u64, said: &[String]) {
    assert!(records > acked, "{acked} was acknowledged, the log has {records} records");
    assert!(said.iter().any(|line| line.contains("refused ")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("roll Err(NotFound)")), "{said:?}");
}

#[test]
#[ignore = "needs an HDFS"]
fn fence_a_writer_at_full_speed() {
    let fs = connect();
    let log = log_in(&fs, "fence-live");
    let writer = Writer::start(&log);
    let records = take_over(&fs, &log);
    let (acked, said) = writer.end();
    assert_fenced(records, acked, &said);
}

#[test]
#[ignore = "needs an HDFS"]
fn fence_a_frozen_writer_that_thaws() {
    let fs = connect();
    let log = log_in(&fs, "fence-frozen");
    let writer = Writer::start(&log);
    writer.signal("-STOP");
    let records = take_over(&fs, &log);
    writer.signal("-CONT");
    let (acked, said) = writer.end();
    assert_fenced(records, acked, &said);
}

#[test]
#[ignore = "needs an HDFS"]
fn fence_a_killed_writer() {
    let fs = connect();
    let log = log_in(&fs, "fence-killed");
    let writer = Writer::start(&log);
    writer.signal("-KILL");
    let records = take_over(&fs, &log);
    let (acked, _) = writer.end();
    assert!(records > acked, "{acked} was acknowledged, the log has {records} records");
}

#[test]
#[ignore = "needs an HDFS"]
fn two_processes_fence_one_writer() {
    let (fs, other) = (connect(), connect());
    let log = log_in(&fs, "fence-twice");
    let writer = Writer::start(&log);
    let dir = log.parent().unwrap();
    fs.rename_new(dir, &dir.with_file_name("server-splitting")).unwrap();
    let path = log.clone();
    let second = halcyon_env::spawn_thread("second", move || take_over(&other, &path)).unwrap();
    let records = take_over(&fs, &log);
    assert_eq!(second.join().unwrap(), records);
    let (acked, said) = writer.end();
    assert_fenced(records, acked, &said);
}
