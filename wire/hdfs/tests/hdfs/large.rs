//! Files of many blocks beside DataNodes that die and freeze, and what DataNodes keep of files that were finished without them.
//! There are four; a file has three.

use std::collections::{BTreeMap, BTreeSet};

use halcyon_env::spawn_thread;

use super::datanodes::ms_of;
use super::*;

/// Each end of a block is a moment at which a DataNode can die.
const BLOCK_BYTES: usize = 64 << 10;

fn in_blocks(of_bytes: usize, replication: Option<u32>) -> CreateOptions {
    let block_size_bytes = Some(of_bytes as u64);
    CreateOptions { block_size_bytes, replication, ..CreateOptions::default() }
}

/// A block whose last packet a DataNode did not answer was an error of the file, also when the other DataNodes had all of it.
#[test]
#[ignore = "needs an HDFS"]
fn files_are_finished_while_datanodes_die() {
    let fs = connect();
    let root = directory(&fs, "finished");
    await_datanodes(&fs);
    let killer = spawn_thread("killer", move || {
        let (fs, clock) = (connect(), SystemClock::new());
        for round in 0..8_u64 {
            let node = format!("datanode{}", 1 + round as usize % DATANODES);
            clock.sleep(Duration::from_millis(300 + round * 137 % 500));
            cluster("kill", &node);
            clock.sleep(Duration::from_millis(700));
            cluster("start", &node);
            await_datanodes(&fs);
        }
    });
    let killer = killer.unwrap();
    let bytes_of = |number: usize| vec![number as u8; BLOCK_BYTES * 16 + number * 997 % BLOCK_BYTES];
    let (mut count, mut longest_ms) = (0, 0);
    while !killer.is_finished() {
        let (path, bytes) = (root.join(format!("f{count}")), bytes_of(count));
        let (ms, written) = ms_of(|| {
            let mut file = fs.create_with(&path, in_blocks(BLOCK_BYTES, None))?;
            bytes.chunks(10_000).try_for_each(|part| file.write_all(part))?;
            file.sync_and_close()
        });
        written.unwrap_or_else(|error| panic!("file {count} after {ms} ms: {error}"));
        longest_ms = ms.max(longest_ms);
        count += 1;
    }
    killer.join().unwrap();
    println!("{count} files of 17 blocks beside 8 kills: the longest took {longest_ms} ms");
    for number in 0..count {
        assert!(fs.read(&root.join(format!("f{number}"))).unwrap() == bytes_of(number), "f{number}");
    }
}

/// Store files are not urgent: a DataNode that stands still for less than the site's limit stays in its pipelines.
#[test]
#[ignore = "needs an HDFS"]
fn a_large_file_keeps_a_datanode_that_was_slow() {
    let mut site = site();
    site.set("dfs.client.socket-timeout", "60000");
    let fs = connect_as(site, HdfsOptions::default());
    await_datanodes(&fs);
    let path = directory(&fs, "slow").join("f");
    let bytes: Vec<u8> = (0..4_u32 << 20).map(|at| (at / 89) as u8).collect();
    let (before, after) = bytes.split_at((1 << 20) + 1000);
    let mut file = fs.create_with(&path, in_blocks(1 << 20, Some(DATANODES as u32))).unwrap();
    file.write_all(before).unwrap();
    cluster("freeze", "datanode2");
    let thaw = spawn_thread("thaw", || {
        SystemClock::new().sleep(Duration::from_millis(2_500));
        cluster("thaw", "datanode2");
    });
    let (ms, written) = ms_of(|| file.write_all(after).and_then(|()| file.sync_and_close()));
    thaw.unwrap().join().unwrap();
    written.unwrap();
    println!("a file beside a DataNode that was frozen for 2,500 ms: {ms} ms");
    assert!(fs.read(&path).unwrap() == bytes);
    let blocks = fs.open(&path).unwrap().block_hosts().unwrap();
    assert!(ms >= 2_000 && blocks.iter().all(|block| block.hosts.len() == DATANODES), "{ms} ms, {blocks:?}");
}

/// Generation stamps of the copies of each finished block, by the number of the block.
#[allow(clippy::disallowed_methods)] // the DataNodes' own directories
fn stamps() -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut open = vec![Path::new(&variable("CLUSTER_DIR")).join("data")];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let is_finished = path.components().any(|part| part.as_os_str() == "finalized");
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if let Some(name) = name.strip_suffix(".meta").filter(|_| is_finished)
                && let Some((block, stamp)) = name.rsplit_once('_')
            {
                found.entry(block.to_string()).or_default().insert(stamp.to_string());
            }
        }
    }
    found
}

/// A DataNode that was left out has all bytes in its socket, and finishes its copy when it goes on. The copy counted as one more
/// of the block, or stayed beside it for good.
#[test]
#[ignore = "needs an HDFS"]
fn a_copy_that_was_left_behind_is_dropped() {
    let fs = connect();
    let root = directory(&fs, "left-behind");
    await_datanodes(&fs);
    let known = stamps();
    let mut count = 0;
    for node in 1..=DATANODES {
        let fs = connect(); // one that does not know yet who is late
        let frozen = format!("datanode{node}");
        cluster("freeze", &frozen);
        for _ in 0..5 {
            fs.put_new(&root.join(format!("f{count}")), &vec![node as u8; 20_000]).unwrap();
            count += 1;
        }
        cluster("thaw", &frozen);
        await_datanodes(&fs);
    }
    let files: Vec<_> = (0..count).map(|number| root.join(format!("f{number}"))).collect();
    let copies = |path: &PathBuf| fs.open(path).unwrap().block_hosts().unwrap()[0].hosts.len();
    let settled = (0..60).any(|_| {
        SystemClock::new().sleep(Duration::from_secs(1));
        let mut new = stamps().into_iter().filter(|(block, _)| !known.contains_key(block));
        new.all(|(_, stamps)| stamps.len() == 1) && files.iter().all(|path| copies(path) == 3)
    });
    let new: Vec<_> = stamps().into_iter().filter(|(block, _)| !known.contains_key(block)).collect();
    assert!(new.len() >= count, "{} of {count} blocks are found at the DataNodes", new.len());
    let differ: Vec<_> = new.iter().filter(|(_, stamps)| stamps.len() > 1).collect();
    assert!(settled, "{differ:?}, copies: {:?}", files.iter().map(copies).collect::<Vec<_>>());
    for (number, path) in files.iter().enumerate() {
        assert!(fs.read(path).unwrap() == vec![1 + (number / 5) as u8; 20_000], "f{number}");
    }
}
