//! Logs: their bytes go to each DataNode from here. There are four DataNodes; a log has three.

use halcyon_env::{Attempt, WritableFile};

use super::datanodes::ms_of;
use super::*;

const SOON: Duration = Duration::from_secs(5);

/// The address by which messages call a DataNode.
#[allow(clippy::disallowed_methods)] // a file of the test cluster
fn address_of(datanode: &str) -> String {
    let ports = std::fs::read_to_string(Path::new(&variable("CLUSTER_DIR")).join("ports")).unwrap();
    let port = ports.lines().find_map(|line| line.strip_prefix(&format!("{datanode} ")));
    format!("127.0.0.1:{}", port.expect("its port is known"))
}

/// Logs lie on all DataNodes.
fn connect_wide() -> HdfsFileSystem {
    let all = Some(DATANODES as u32);
    connect_with(HdfsOptions { log_replication: all, ..HdfsOptions::default() })
}

fn log_in(fs: &HdfsFileSystem, dir: &Path, name: &str) -> Box<dyn WritableFile> {
    let mut log = fs.create_log(&dir.join(name)).unwrap();
    log.write_all(b"begin").and_then(|()| log.sync()).unwrap();
    log
}

fn done(attempt: Attempt) -> std::io::Result<()> {
    match attempt {
        Attempt::Done(result) => result,
        other => panic!("{other:?}"),
    }
}

/// What replication does: each time up to what was synced. Bytes behind that are of no matter.
#[test]
#[ignore = "needs an HDFS"]
fn a_log_is_read_while_it_is_written() {
    let fs = connect();
    let dir = directory(&fs, "log-read");
    let path = dir.join("log");
    let mut log = fs.create_log(&path).unwrap();
    let mut expected = Vec::new();
    for (round, size) in [1, 300, 211, 512, 5000, 262_145, 7].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..size).map(|at| (at / 7 + round) as u8).collect();
        expected.extend_from_slice(&bytes);
        done(log.write_within(&bytes, round % 2 == 0, SOON)).unwrap();
        let reader = fs.open_up_to(&path, expected.len() as u64).unwrap();
        assert_eq!(reader.len().unwrap(), expected.len() as u64);
        let mut found = vec![0; expected.len()];
        reader.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, expected, "round {round}");
        reader.read_exact_at(&mut found[..1], expected.len() as u64 - 1).unwrap();
        assert_eq!(found[0], *expected.last().unwrap(), "round {round}");
        let beyond = reader.read_exact_at(&mut found[..1], expected.len() as u64).unwrap_err();
        assert_eq!(beyond.kind(), std::io::ErrorKind::UnexpectedEof);
    }
    let reader = fs.open_up_to(&path, expected.len() as u64 - 100).unwrap();
    log.close().unwrap();
    let mut found = vec![0; expected.len() - 100];
    reader.read_exact_at(&mut found, 0).unwrap();
    assert!(expected.starts_with(&found));
    assert_eq!(fs.open_up_to(&path, 3).unwrap().len().unwrap(), 3);
}

/// Whole chunks and parts of them, in one packet and in several, flushed, synced, and synced again.
#[test]
#[ignore = "needs an HDFS"]
fn a_log_has_the_bytes_that_were_written() {
    let fs = connect();
    let dir = directory(&fs, "log-bytes");
    let mut log = fs.create_log(&dir.join("log")).unwrap();
    let mut expected = Vec::new();
    let sizes = [1, 511, 512, 513, 5, 0, 1024, 262_143, 262_144, 262_145, 700_001, 3, 100_000];
    for (round, size) in sizes.into_iter().cycle().take(60).enumerate() {
        let bytes: Vec<u8> = (0..size).map(|at| (at / 7 + round) as u8).collect();
        expected.extend_from_slice(&bytes);
        match round % 5 {
            0 => done(log.write_within(&bytes, false, SOON)).unwrap(),
            1 => done(log.write_within(&bytes, true, SOON)).unwrap(),
            2 => log.write_all(&bytes).and_then(|()| log.flush()).unwrap(),
            3 => log.write_all(&bytes).and_then(|()| log.sync()).unwrap(),
            _ => log.write_all(&bytes).unwrap(), // goes along with the next
        }
        assert_eq!(log.len(), expected.len() as u64);
    }
    log.sync().unwrap();
    log.sync().unwrap();
    log.close().unwrap();
    assert!(fs.read(&dir.join("log")).unwrap() == expected);
}

/// What was flushed is there when the log is sealed, and its writer learns of it.
#[test]
#[ignore = "needs an HDFS"]
fn a_sealed_log_has_what_was_flushed() {
    let (fs, other) = (connect(), connect());
    let dir = directory(&fs, "log-sealed");
    let mut log = fs.create_log(&dir.join("log")).unwrap();
    let mut expected = Vec::new();
    for round in 0..200_u32 {
        let bytes = vec![round as u8; (round as usize * 37) % 1500];
        expected.extend_from_slice(&bytes);
        done(log.write_within(&bytes, false, SOON)).unwrap();
    }
    other.seal(&dir.join("log")).unwrap();
    let refused = done(log.write_within(b"late", false, SOON)).expect_err("the log is another's");
    println!("{refused}");
    assert!(log.check().is_err() && log.sync().is_err());
    assert!(other.read(&dir.join("log")).unwrap() == expected);
}

/// The error comes at once and names the DataNode. A spare that lies there is known to be of no use, and the next logs do
/// without it, although the NameNode still offers it.
#[test]
#[ignore = "needs an HDFS"]
fn a_log_whose_datanode_dies_is_followed_by_one_without_it() {
    let fs = connect_wide();
    await_datanodes(&fs);
    let dir = directory(&fs, "log-killed");
    let mut log = log_in(&fs, &dir, "log");
    let mut spare = log_in(&fs, &dir, "spare");
    spare.check().unwrap();
    cluster("kill", "datanode2");
    let (noticed_ms, attempt) = ms_of(|| log.write_within(b"after", false, SOON));
    let error = done(attempt).expect_err("a DataNode is dead").to_string();
    let unfit = spare.check();
    let next = (0..4).map(|number| {
        ms_of(|| {
            let mut next = fs.create_log(&dir.join(format!("next{number}")))?;
            done(next.write_within(b"1", false, SOON))
        })
    });
    let next: Vec<_> = next.collect();
    cluster("start", "datanode2");
    println!("noticed after {noticed_ms} ms, then new logs: {next:?}: {error}");
    assert!(error.contains(&address_of("datanode2")) && noticed_ms < 1000, "{error}");
    assert!(unfit.is_err() && next.iter().all(|(_, made)| made.is_ok()), "{unfit:?} {next:?}");
    await_datanodes(&fs);
}

/// It is known which DataNode is late, and the next log does without it: it would wait for a second otherwise.
#[test]
#[ignore = "needs an HDFS"]
fn a_log_whose_datanode_freezes_blames_it() {
    for frozen in ["datanode1", "datanode2", "datanode3", "datanode4"] {
        let fs = connect_wide();
        await_datanodes(&fs);
        let dir = directory(&fs, "log-frozen");
        let mut log = log_in(&fs, &dir, "log");
        let mut spare = log_in(&fs, &dir, "spare");
        cluster("freeze", frozen);
        let (ms, (late, is_blamed, written)) = ms_of(|| {
            let late = log.write_within(b"after", false, Duration::from_millis(200));
            let is_blamed = !log.late_machines().is_empty();
            log.avoid_late();
            let next = fs.create_log(&dir.join("next"));
            (late, is_blamed, next.map(|mut next| next.write_within(b"after", false, SOON)))
        });
        let unfit = spare.check();
        let fate = log.sync(); // until the deadline for acknowledgements
        cluster("thaw", frozen);
        println!("{frozen} froze: the next log had the bytes after {ms} ms; the first: {fate:?}");
        assert!(matches!(late, Attempt::Late) && is_blamed && unfit.is_err(), "{late:?} {unfit:?}");
        done(written.unwrap()).unwrap();
        assert!(ms < 1000, "{ms} ms");
        let fate = fate.expect_err("the DataNode is frozen").to_string();
        assert!(fate.contains(&address_of(frozen)), "{fate}");
    }
    await_datanodes(&connect());
}

/// With all DataNodes late nobody is blamed, and the log goes on when they do.
#[test]
#[ignore = "needs an HDFS"]
fn a_log_outlives_a_moment_of_all_its_datanodes() {
    let fs = connect_wide();
    await_datanodes(&fs);
    let dir = directory(&fs, "log-all");
    let mut log = log_in(&fs, &dir, "log");
    let all = ["datanode1", "datanode2", "datanode3", "datanode4"];
    all.iter().for_each(|node| cluster("freeze", node));
    let late = log.write_within(b", after", false, Duration::from_millis(100));
    let is_blamed = !log.late_machines().is_empty();
    all.iter().for_each(|node| cluster("thaw", node));
    assert!(matches!(late, Attempt::Late) && !is_blamed, "{late:?} {is_blamed}");
    log.sync().unwrap();
    log.check().unwrap();
    log.close().unwrap();
    assert_eq!(fs.read(&dir.join("log")).unwrap(), b"begin, after");
}

/// Each attempt left an open file, and there was one every second while the DataNodes were away.
#[test]
#[ignore = "needs an HDFS"]
fn a_log_that_cannot_be_made_leaves_no_file() {
    let fs = connect_wide();
    await_datanodes(&fs);
    let dir = directory(&fs, "log-not-made");
    let all = ["datanode1", "datanode2", "datanode3", "datanode4"];
    all.iter().for_each(|node| cluster("freeze", node));
    let made = fs.create_log(&dir.join("log")).map(|_| ());
    all.iter().for_each(|node| cluster("thaw", node));
    println!("no DataNode answers: {made:?}");
    made.unwrap_err();
    let clock = SystemClock::new();
    let end_ns = clock.monotonic_ns() + 4 * SOON.as_nanos() as u64;
    while !names(&fs, &dir).is_empty() && clock.monotonic_ns() < end_ns {
        clock.sleep(Duration::from_millis(50));
    }
    assert_eq!(names(&fs, &dir), []);
    await_datanodes(&fs);
}

/// It was abandoned, and so was each next one that got the same bytes.
#[test]
#[ignore = "needs an HDFS"]
fn a_log_refuses_what_its_block_has_no_room_for_and_goes_on() {
    let block_bytes = 1 << 20;
    let options = HdfsOptions { log_block_size_bytes: Some(block_bytes), ..HdfsOptions::default() };
    let fs = connect_with(options);
    let dir = directory(&fs, "log-full");
    let mut log = log_in(&fs, &dir, "log");
    assert_eq!(log.len_max(), block_bytes);
    let too_large = vec![7; block_bytes as usize];
    let refused = [
        done(log.write_within(&too_large, false, SOON)).unwrap_err(),
        log.write_all(&too_large).unwrap_err(),
    ];
    refused.iter().for_each(|error| assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}"));
    let rest = &too_large[..block_bytes as usize - b"begin".len()];
    done(log.write_within(rest, false, SOON)).unwrap();
    log.close().unwrap();
    assert_eq!(fs.read(&dir.join("log")).unwrap().len() as u64, block_bytes);
}
