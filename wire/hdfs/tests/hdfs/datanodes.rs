//! DataNodes that die and freeze under files that are being written. There are four; the default replication is three.

use halcyon_env::{WritableFile, spawn_thread};

use super::*;

pub fn ms_of<T>(body: impl FnOnce() -> T) -> (u64, T) {
    let clock = SystemClock::new();
    let start = clock.monotonic_ns();
    let result = body();
    ((clock.monotonic_ns() - start) / 1_000_000, result)
}

fn write_and_sync(file: &mut Box<dyn WritableFile>, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all(bytes).and_then(|()| file.sync())
}

/// On all four DataNodes.
fn wide() -> CreateOptions {
    CreateOptions { replication: Some(4), overwrite: true, ..CreateOptions::default() }
}

/// `hsync` did not end when a DataNode died: the deadline of the whole call was over first.
#[test]
#[ignore = "needs an HDFS"]
fn a_log_that_loses_a_datanode_fails_soon() {
    let fs = connect();
    await_datanodes(&fs);
    let root = directory(&fs, "datanode");
    for (verb, back, limit_ms) in [("kill", "start", 1_500), ("freeze", "thaw", 3_500)] {
        let log = root.join(verb);
        let mut file = fs.create_with(&log, CreateOptions { fails_fast: true, ..wide() }).unwrap();
        write_and_sync(&mut file, b"before").unwrap();
        cluster(verb, "datanode2");
        let (ms, result) = ms_of(|| write_and_sync(&mut file, b", after"));
        println!("{verb}: a sync took {ms} ms: {result:?}");
        assert!(result.is_err() && ms < limit_ms, "a sync waits for {ms} ms: {result:?}");
        drop(file);
        cluster(back, "datanode2");
        await_datanodes(&fs);
        fs.seal(&log).unwrap();
        let bytes = fs.read(&log).unwrap();
        assert!(bytes.starts_with(b"before") && b"before, after".starts_with(&bytes[..]), "{bytes:?}");
    }
}

/// The bytes before and after, and the time of the longest sync in milliseconds.
fn goes_on(name: &str, harm: &[(&str, &str)], heal: &[(&str, &str)]) -> u64 {
    let mut site = site();
    site.set("dfs.client.block.write.replace-datanode-on-failure.policy", "NEVER");
    let fs = connect_as(site, HdfsOptions::default());
    await_datanodes(&fs);
    let path = directory(&fs, name).join("f");
    let mut file = fs.create_with(&path, wide()).unwrap();
    let mut expected = Vec::new();
    let mut longest_ms = 0;
    for round in 0..40_u8 {
        if round == 10 {
            harm.iter().for_each(|(verb, node)| cluster(verb, node));
        }
        let bytes = vec![round; 10_000];
        let (ms, result) = ms_of(|| write_and_sync(&mut file, &bytes));
        result.unwrap();
        longest_ms = ms.max(longest_ms);
        expected.extend(bytes);
    }
    let closed = file.close();
    heal.iter().for_each(|(verb, node)| cluster(verb, node));
    closed.unwrap();
    assert!(fs.read(&path).unwrap() == expected, "the file has other bytes than were written");
    await_datanodes(&fs);
    println!("{name}: the longest sync took {longest_ms} ms");
    longest_ms
}

#[test]
#[ignore = "needs an HDFS"]
fn a_file_goes_on_without_two_datanodes_that_died() {
    let harm = [("kill", "datanode1"), ("kill", "datanode3")];
    let ms = goes_on("two-dead", &harm, &[("start", "datanode1"), ("start", "datanode3")]);
    assert!(ms < 5_000, "{ms} ms");
}

#[test]
#[ignore = "needs an HDFS"]
fn a_file_goes_on_without_a_datanode_that_froze() {
    let ms = goes_on("one-frozen", &[("freeze", "datanode2")], &[("thaw", "datanode2")]);
    assert!((1_500..8_000).contains(&ms), "{ms} ms");
}

/// The NameNode gives a dead DataNode to new files until it notices, here after three seconds without a heartbeat.
#[test]
#[ignore = "needs an HDFS"]
fn new_files_leave_out_a_datanode_that_died() {
    let fs = connect();
    let root = directory(&fs, "excluded");
    cluster("kill", "datanode1");
    let made: Vec<_> = (0..15)
        .map(|number| {
            ms_of(|| {
                let mut file = fs.create_log(&root.join(format!("f{number}")))?;
                write_and_sync(&mut file, b"1")?;
                file.close()
            })
        })
        .collect();
    cluster("start", "datanode1");
    await_datanodes(&fs);
    println!("files beside a dead DataNode: {made:?}");
    assert!(made.iter().all(|(_, result)| result.is_ok()), "{made:?}");
    assert_eq!(names(&fs, &root).len(), 15);
}

/// The NameNode is asked at the first flush of a block only, so it is not needed for the next ones.
#[test]
#[ignore = "needs an HDFS"]
fn a_log_goes_on_while_the_namenode_is_frozen() {
    let fs = connect();
    let log = directory(&fs, "no-namenode").join("log");
    let mut file = fs.create_log(&log).unwrap();
    write_and_sync(&mut file, &[0; 100]).unwrap();
    cluster("freeze", "namenode");
    let written: Vec<_> = (1..200_u8)
        .map(|number| {
            ms_of(|| {
                file.write_all(&[number; 100])?;
                if number % 2 == 0 { file.flush() } else { file.sync() }
            })
        })
        .collect();
    cluster("thaw", "namenode");
    assert!(written.iter().all(|(_, result)| result.is_ok()), "{written:?}");
    println!("without a NameNode: {:?} ms", written.iter().map(|(ms, _)| ms).max());
    drop(file);
    fs.seal(&log).unwrap();
    let bytes = fs.read(&log).unwrap();
    assert!(bytes.chunks(100).eq((0..200_u8).map(|number| [number; 100])), "{} bytes", bytes.len());
}

/// With one live copy the NameNode has all copies asked, and a DataNode recovers one file after the other, so it waits for the frozen
/// one once for each. A recovery that is ordered again meanwhile begins from the start.
#[test]
#[ignore = "needs an HDFS"]
fn logs_are_sealed_while_their_datanode_is_frozen() {
    let fs = connect();
    let root = directory(&fs, "seal-frozen");
    await_datanodes(&fs);
    let logs: Vec<_> = (0..6).map(|number| root.join(format!("log{number}"))).collect();
    let files = logs.iter().map(|log| {
        let mut file = fs.create_with(log, wide()).unwrap();
        write_and_sync(&mut file, b"before").unwrap();
        file
    });
    let files: Vec<_> = files.collect();
    for node in ["datanode1", "datanode2"] {
        cluster("kill", node);
    }
    cluster("freeze", "datanode3");
    SystemClock::new().sleep(Duration::from_secs(5)); // they are stale then
    let (ms, sealed) = ms_of(|| {
        let sealing: Vec<_> = logs
            .iter()
            .cloned()
            .map(|log| spawn_thread("sealer", move || connect().seal(&log)).unwrap())
            .collect();
        sealing.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    drop(files);
    cluster("thaw", "datanode3");
    for node in ["datanode1", "datanode2"] {
        cluster("start", node);
    }
    await_datanodes(&fs);
    println!("beside a frozen DataNode {} logs were sealed after {ms} ms", logs.len());
    for (log, sealed) in logs.iter().zip(sealed) {
        sealed.unwrap();
        assert_eq!(fs.read(log).unwrap(), b"before");
    }
}

/// DataNodes of the test cluster close a connection on which nothing came for five seconds.
#[test]
#[ignore = "needs an HDFS"]
fn an_idle_log_keeps_its_datanodes() {
    let fs = connect();
    let log = directory(&fs, "idle").join("log");
    let mut file = fs.create_log(&log).unwrap();
    write_and_sync(&mut file, b"1").unwrap();
    SystemClock::new().sleep(Duration::from_secs(14));
    write_and_sync(&mut file, b"2").unwrap();
    file.close().unwrap();
    assert_eq!(fs.read(&log).unwrap(), b"12");
}

/// Reads of a file whose DataNodes freeze one after the other; the longest in milliseconds.
#[test]
#[ignore = "needs an HDFS"]
fn reads_beside_a_frozen_datanode() {
    let fs = connect();
    let path = directory(&fs, "reads").join("f");
    let bytes: Vec<u8> = (0..4_u32 << 20).map(|at| (at / 97) as u8).collect();
    let mut file = fs.create_with(&path, CreateOptions::default()).unwrap();
    file.write_all(&bytes).unwrap();
    file.close().unwrap();
    let open = fs.open(&path).unwrap();
    let read = |count: usize| {
        let mut buffer = vec![0; 4096];
        let times = (0..count).map(|number| {
            let offset = (number * 7_919_357) % (bytes.len() - buffer.len());
            let (ms, result) = ms_of(|| open.read_exact_at(&mut buffer, offset as u64));
            result.unwrap();
            assert!(buffer == bytes[offset..offset + buffer.len()]);
            ms
        });
        times.max().unwrap()
    };
    println!("reads: the longest of 300 took {} ms", read(300));
    for node in ["datanode1", "datanode2", "datanode3", "datanode4"] {
        cluster("freeze", node);
        let longest_ms = read(50);
        cluster("thaw", node);
        println!("reads with {node} frozen: the longest of 50 took {longest_ms} ms");
        assert!(longest_ms < 900, "the read from a second replica comes before the deadline of 1 s");
    }
    await_datanodes(&fs);
}

/// Open sockets of this process.
#[allow(clippy::disallowed_methods)] // /proc's links, which no FileSystem reads
fn sockets() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    names.filter(|name| name.to_string_lossy().starts_with("socket:")).count()
}

/// It left a connection for ever, and a thread in each of its DataNodes.
#[test]
#[ignore = "needs an HDFS"]
fn a_dropped_writer_ends_its_pipeline() {
    let fs = connect();
    let root = directory(&fs, "pipelines");
    write_file(&fs, &root.join("first"), b"1");
    let before = sockets();
    let files: Vec<_> = (0..10)
        .map(|number| {
            let path = root.join(format!("f{number}"));
            let mut file = if number % 2 == 0 {
                fs.create_log(&path).unwrap()
            } else {
                fs.create_with(&path, CreateOptions::default()).unwrap()
            };
            write_and_sync(&mut file, b"1").unwrap();
            file
        })
        .collect();
    assert!(sockets() >= before + 10, "{} of {before}", sockets());
    // Nothing is sealed meanwhile, which would end the connections too.
    cluster("freeze", "namenode");
    drop(files);
    let ended = (0..20).any(|_| {
        SystemClock::new().sleep(Duration::from_millis(50));
        sockets() <= before + 1
    });
    cluster("thaw", "namenode");
    assert!(ended, "{} sockets, {before} before", sockets());
}

#[test]
#[ignore = "needs an HDFS"]
fn hosts_and_storage_policies() {
    let fs = connect();
    let root = directory(&fs, "hosts");
    let options = CreateOptions { block_size_bytes: Some(1 << 20), ..CreateOptions::default() };
    let mut file = fs.create_with(&root.join("f"), options).unwrap();
    file.write_all(&vec![7; 3 << 19]).unwrap();
    file.close().unwrap();
    let blocks = fs.open(&root.join("f")).unwrap().block_hosts().unwrap();
    assert_eq!(blocks.iter().map(|block| block.len_bytes).collect::<Vec<_>>(), [1 << 20, 1 << 19]);
    assert!(blocks.iter().all(|block| block.hosts == ["localhost"; 3]), "{blocks:?}");
    for copies in [1, 2] {
        let path = root.join(format!("copies-{copies}"));
        let mut file = fs.create_copies(&path, copies).unwrap();
        file.write_all(b"some").unwrap();
        file.sync_and_close().unwrap();
        let blocks = fs.open(&path).unwrap().block_hosts().unwrap();
        assert_eq!(blocks[0].hosts.len(), copies as usize);
    }
    fs.set_storage_policy(&root, "HOT").unwrap();
    let error = fs.set_storage_policy(&root, "NOSUCH").unwrap_err().to_string();
    assert!(error.contains("/test/hosts cannot be given a storage policy"), "{error}");
}
