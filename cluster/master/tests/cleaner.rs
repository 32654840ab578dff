//! The cleaner beside other work. Calls of files are held, so that each test has one order of events.
#![allow(clippy::disallowed_methods)] // threads of the test itself

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halcyon_env::sim::SimFileSystem;
use halcyon_env::{DirEntry, Env, FileLock, FileSystem, ReadableFile, UpdatableFile, WritableFile};
use halcyon_proto::pb;
use halcyon_schema::layout;

use crate::common::*;
use crate::snapshots::{clean, compact, files};

/// More than any of the tests takes.
const LIMIT: Duration = Duration::from_secs(30);

/// A file system whose calls can be held.
struct Held {
    files: Arc<dyn FileSystem>,
    holds: Mutex<Vec<Hold>>,
}

/// One call that is held, before it does anything.
struct Hold {
    operation: &'static str,
    /// The last part of its path.
    name: &'static str,
    reached: Sender<()>,
    go_on: Receiver<()>,
}

impl Held {
    fn new(env: Env) -> (Env, Arc<Held>) {
        let held = Arc::new(Held { files: env.fs.clone(), holds: Mutex::default() });
        (Env { fs: held.clone(), ..env }, held)
    }

    /// Holds the next such call: it is there when the first one has got something, and goes on when the second one is used or dropped.
    fn hold(&self, operation: &'static str, name: &'static str) -> (Receiver<()>, Sender<()>) {
        let ((reached, is_here), (leave, go_on)) = (channel(), channel());
        self.holds.lock().unwrap().push(Hold { operation, name, reached, go_on });
        (is_here, leave)
    }

    fn at(&self, operation: &str, path: &Path) {
        let hold = {
            let mut holds = self.holds.lock().unwrap();
            let is_it = |hold: &Hold| hold.operation == operation && path.ends_with(hold.name);
            holds.iter().position(is_it).map(|at| holds.remove(at))
        };
        if let Some(hold) = hold {
            hold.reached.send(()).expect("the test waits for it");
            _ = hold.go_on.recv_timeout(LIMIT);
        }
    }
}

impl FileSystem for Held {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.files.create(path)
    }

    fn create_over(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.files.create_over(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        self.files.open(path)
    }

    fn open_update(&self, path: &Path, len: u64) -> io::Result<Arc<dyn UpdatableFile>> {
        self.files.open_update(path, len)
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.files.put_new(path, bytes)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.at("replace", path);
        self.files.replace(path, bytes)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename_over(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<bool> {
        self.files.link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.files.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.files.remove_dir(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.files.remove_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.files.create_dir(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.files.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.at("list", path);
        self.files.list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.files.exists(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.files.sync_dir(path)
    }

    fn seal(&self, path: &Path) -> io::Result<()> {
        self.files.seal(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.files.lock(path)
    }
}

/// Whether the archive has a store file of table `t`.
fn has_archived(c: &Cluster) -> bool {
    let region = c.regions("t").remove(0);
    let dir = layout::archive_region_dir(&c.root, region.table(), region.encoded_name()).join("f");
    c.env.fs.list(&dir).is_ok_and(|files| !files.is_empty())
}

/// A snapshot took longer than a file stays in the archive. A run of the cleaner read what snapshots name, then this one got its manifest
/// and its name, and when the run came to the file no snapshot was being taken any more: it deleted the file.
#[test]
fn a_run_spares_what_a_snapshot_has_that_ends_meanwhile() {
    let sim = SimFileSystem::new();
    let (env, held) = Held::new(with_real_clock(sim.env()));
    let mut settings = settings();
    (settings.archive_keep, settings.old_wals_keep) = (Duration::ZERO, Duration::ZERO);
    let c = Arc::new(Cluster::start_with(env, Path::new(ROOT), 1, settings).unwrap());
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    c.run("FlushTable", &flush("t")).unwrap();

    let (has_listed, write) = held.hold("replace", "data.manifest");
    let taken = c.submit("Snapshot", &snapshot("s", "t")).unwrap();
    has_listed.recv_timeout(LIMIT).expect("the snapshot has listed its files");
    assert_eq!(compact(&c), 1, "one of them goes to the archive");

    // Behind the look at what snapshots name.
    let (has_read, look) = held.hold("list", "oldWALs");
    let run = std::thread::spawn({
        let c = c.clone();
        move || clean(&c)
    });
    has_read.recv_timeout(LIMIT).expect("the cleaner has read what snapshots name");
    drop(write);
    c.wait(taken).unwrap();
    drop(look);
    run.join().unwrap();

    assert!(has_archived(&c), "a file of a complete snapshot is deleted");
    c.run("RestoreSnapshot", &restore("s", "clone")).unwrap();
    assert_eq!(files(&c, "clone").len(), 2);

    // The next run looks again, and knows it by its name.
    clean(&c);
    assert!(has_archived(&c));
    let gone = pb::DeleteSnapshotRequest { snapshot: snapshot("s", "t").snapshot };
    c.call::<pb::DeleteSnapshotResponse>("DeleteSnapshot", &gone).unwrap();
    c.quiet();
}
