//! A NameNode that takes connections and never answers, one that closes them, and none at all.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use halcyon_env::{FileSystem, spawn_thread};
use halcyon_hdfs::{Deadlines, HdfsAddress, HdfsFileSystem, HdfsOptions, Site};

const PATH: &str = "/hbase/data";

fn connect(address: &str) -> HdfsFileSystem {
    let address = HdfsAddress::new(&format!("hdfs://{address}/"), &Site::default()).unwrap();
    let deadlines = Deadlines {
        namenode: Duration::from_millis(100),
        namenode_total: Duration::from_millis(500),
        ..Deadlines::default()
    };
    HdfsFileSystem::new(address, HdfsOptions { deadlines, ..HdfsOptions::default() }).unwrap()
}

/// Keeps connections open and counts them.
fn silent() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    spawn_thread("silent", move || {
        let mut open = Vec::new();
        for connection in listener.incoming() {
            counter.fetch_add(1, Ordering::SeqCst);
            open.push(connection);
        }
    })
    .unwrap();
    (address, count)
}

/// Every call ends; none takes silence for "there is no such file".
fn assert_all_fail(fs: &HdfsFileSystem, kinds: &[ErrorKind], part: &str) {
    let path = Path::new(PATH);
    let other = Path::new("/hbase/other");
    let results = [
        ("look up", fs.exists(path).map(|_| ())),
        ("create", fs.create(path).map(|_| ())),
        ("open", fs.open(path).map(|_| ())),
        ("read", fs.read(path).map(|_| ())),
        ("list", fs.list(path).map(|_| ())),
        ("rename", fs.rename(path, other)),
        ("remove", fs.remove_file(path)),
        ("create_dir_all", fs.create_dir_all(path)),
        ("put_new", fs.put_new(path, b"x")),
        ("seal", fs.seal(path)),
    ];
    for (call, result) in results {
        let error = result.expect_err(call);
        assert!(kinds.contains(&error.kind()), "{call}: {:?} {error}", error.kind());
        let text = error.to_string();
        assert!(text.contains("/hbase/") && text.contains("hdfs://127.0.0.1:"), "{call}: {text}");
        assert!(text.contains(part), "{call}: {text}");
    }
}

#[test]
fn a_namenode_that_never_answers() {
    let (address, connections) = silent();
    let fs = connect(&address);
    assert_all_fail(&fs, &[ErrorKind::TimedOut], "gave no answer within 100ms");
    let made = connections.load(Ordering::SeqCst);
    assert!(made >= 10, "each attempt after a deadline makes a new connection, not {made}");
}

#[test]
fn a_namenode_that_closes_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    spawn_thread("closing", move || listener.incoming().for_each(drop)).unwrap();
    let fs = connect(&address);
    let error = fs.exists(Path::new(PATH)).unwrap_err();
    assert_ne!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains(PATH), "{error}");
}

#[test]
fn no_namenode() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = connect(&address).exists(Path::new(PATH)).unwrap_err();
    assert_ne!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("check that the NameNode runs"), "{error}");
}

#[test]
fn calls_within_another_runtime_do_not_panic() {
    let (address, _connections) = silent();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(async { connect(&address).exists(Path::new(PATH)).unwrap_err() });
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[test]
fn paths_that_hdfs_does_not_have() {
    let fs = connect("127.0.0.1:1");
    for path in ["relative", "/a/../b"] {
        assert_eq!(fs.exists(Path::new(path)).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(fs.rename(Path::new("/a"), Path::new("/a/b")).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(fs.lock(Path::new("/a")).map(|_| ()).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(fs.open_update(Path::new("/a"), 1).map(|_| ()).unwrap_err().kind(), ErrorKind::Unsupported);
}
