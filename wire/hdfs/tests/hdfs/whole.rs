//! Files that are written whole, beside a frozen DataNode. There are four; a file has three.

use super::datanodes::ms_of;
use super::*;

/// One DataNode's deadline, calls of the NameNode beside it, and a busy machine. As pipelines, files took up to 4 s and more.
const LONGEST_MS: u64 = 2_500;
/// The NameNode leaves a frozen DataNode out when it is stale, here after three seconds.
const UNTIL_STALE: Duration = Duration::from_millis(2_500);

type Write = fn(&HdfsFileSystem, &Path, &[u8]);

fn longest(times: &[u64]) -> u64 {
    times.iter().copied().max().unwrap_or_default()
}

/// As a region's edits and store files are written.
fn write_in_parts(fs: &HdfsFileSystem, path: &Path, bytes: &[u8]) {
    let mut file = fs.create(path).unwrap();
    bytes.chunks(1000).try_for_each(|part| file.write_all(part)).unwrap();
    file.sync_and_close().unwrap();
}

/// Each kind of file is the first to meet the DataNode of a client; those behind it do without the DataNode.
#[test]
#[ignore = "needs an HDFS"]
fn small_files_beside_a_frozen_datanode() {
    let writes: [(&str, Write); 3] = [
        ("replace", |fs, path, bytes| fs.replace(path, bytes).unwrap()),
        ("put_new", |fs, path, bytes| fs.put_new(path, bytes).unwrap()),
        ("sync_and_close", write_in_parts),
    ];
    for (name, write) in writes {
        let fs = connect();
        let root = directory(&fs, &format!("whole-{name}"));
        await_datanodes(&fs);
        let bytes_of = |number: usize| vec![number as u8; 1 + number * 3_001 % 50_000];
        let once =
            |number: usize| ms_of(|| write(&fs, &root.join(format!("f{number}")), &bytes_of(number))).0;
        let before: Vec<u64> = (0..10).map(once).collect();
        let frozen = format!("datanode{}", 1 + name.len() % DATANODES);
        cluster("freeze", &frozen);
        let clock = SystemClock::new();
        let end_ns = clock.monotonic_ns() + UNTIL_STALE.as_nanos() as u64;
        let mut beside = Vec::new();
        while beside.len() < 5 || (clock.monotonic_ns() < end_ns && beside.len() < 100) {
            beside.push(once(before.len() + beside.len()));
        }
        for number in 0..before.len() + beside.len() {
            assert!(
                fs.read(&root.join(format!("f{number}"))).unwrap() == bytes_of(number),
                "{name} {number}"
            );
        }
        cluster("thaw", &frozen);
        println!(
            "{name}: the longest of {} took {} ms; beside {frozen}, frozen, {} took {:?} ms",
            before.len(),
            longest(&before),
            beside.len(),
            &beside
        );
        let slow = beside.iter().filter(|ms| **ms > 900).count();
        assert!(longest(&beside) < LONGEST_MS && slow <= 1, "{name}: {beside:?}");
        assert_eq!(names(&fs, &root).len(), before.len() + beside.len(), "no temporary file is left");
        await_datanodes(&fs);
    }
}

/// A replaced file has its new bytes or the old ones, and a new one is refused where a file is, whoever is frozen.
#[test]
#[ignore = "needs an HDFS"]
fn answers_stay_certain_beside_a_frozen_datanode() {
    let fs = connect();
    let path = directory(&fs, "whole-certain").join("f");
    await_datanodes(&fs);
    for frozen in ["datanode1", "datanode2", "datanode3", "datanode4"] {
        let fs = connect();
        cluster("freeze", frozen);
        let replaced = fs.replace(&path, frozen.as_bytes());
        let refused = kind(fs.put_new(&path, b"another"));
        let found = fs.read(&path);
        cluster("thaw", frozen);
        replaced.unwrap();
        assert_eq!((refused, found.unwrap()), (ErrorKind::AlreadyExists, frozen.as_bytes().to_vec()));
    }
    await_datanodes(&fs);
}

/// No block at all, one chunk of the checksum and its neighbours, the largest file that is sent to each DataNode, and larger ones:
/// these are pipelines, and so are files of several blocks.
#[test]
#[ignore = "needs an HDFS"]
fn whole_files_have_their_bytes() {
    let fs = connect();
    let root = directory(&fs, "whole-bytes");
    let small_blocks = CreateOptions { block_size_bytes: Some(4096), ..CreateOptions::default() };
    for size in [0, 1, 511, 512, 513, 262_144, 262_145, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20] {
        let bytes: Vec<u8> = (0..size).map(|at| (at / 7) as u8).collect();
        let path = |name: &str| root.join(format!("{name}{size}"));
        fs.put_new(&path("new"), &bytes).unwrap();
        write_in_parts(&fs, &path("parts"), &bytes);
        let mut closed = fs.create(&path("closed")).unwrap();
        closed.write_all(&bytes).and_then(|()| closed.close()).unwrap();
        let part = &bytes[..size.min(10_000)];
        let mut blocks = fs.create_with(&path("blocks"), small_blocks).unwrap();
        blocks.write_all(part).and_then(|()| blocks.sync_and_close()).unwrap();
        for name in ["new", "parts", "closed"] {
            assert!(fs.read(&path(name)).unwrap() == bytes, "{name}{size}");
        }
        assert!(fs.read(&path("blocks")).unwrap() == part, "blocks{size}");
        let lens = fs.open(&path("blocks")).unwrap().block_hosts().unwrap();
        assert_eq!(lens.len(), part.len().div_ceil(4096), "blocks{size}");
    }
}
