//! One script over the machine's file system and the simulated one: both must behave alike.
#![allow(clippy::disallowed_methods)] // a directory of the machine, for the real file system

use std::io::ErrorKind;
use std::path::Path;

use halcyon_env::sim::SimFileSystem;
use halcyon_env::{FileSystem, RealFileSystem};

fn names(fs: &dyn FileSystem, dir: &Path) -> Vec<(String, bool, u64)> {
    fs.list(dir).unwrap().into_iter().map(|entry| (entry.name, entry.is_dir, entry.len)).collect()
}

fn file(name: &str, len: u64) -> (String, bool, u64) {
    (name.to_string(), false, len)
}

fn dir(name: &str) -> (String, bool, u64) {
    (name.to_string(), true, 0)
}

fn script(fs: &dyn FileSystem, root: &Path) {
    let kind = |result: std::io::Result<()>| result.expect_err("is refused").kind();
    let (a, b, c) = (root.join("a"), root.join("a/b"), root.join("c"));
    fs.create_dir_all(&b).unwrap();
    fs.create_dir_all(&b).unwrap();
    assert_eq!(kind(fs.create(&root.join("x/y")).map(|_| ())), ErrorKind::NotFound);
    assert_eq!(kind(fs.open(&root.join("x")).map(|_| ())), ErrorKind::NotFound);

    // Writing and reading.
    let mut writer = fs.create(&b.join("f")).unwrap();
    assert!(writer.is_empty());
    writer.write_all(b"hello ").unwrap();
    writer.sync().unwrap();
    let open = fs.open(&b.join("f")).unwrap();
    writer.write_all(b"world").unwrap();
    assert_eq!((writer.len(), writer.path()), (11, &*b.join("f")));
    assert_eq!((open.len().unwrap(), open.path()), (11, &b.join("f")));
    let mut buffer = [0; 5];
    open.read_exact_at(&mut buffer, 6).unwrap();
    assert_eq!(&buffer, b"world");
    writer.write_all(b", gone").unwrap();
    writer.truncate(11).unwrap();
    assert_eq!((writer.len(), open.len().unwrap()), (11, 11));
    writer.write_all(b"!").unwrap();
    assert_eq!(fs.read(&b.join("f")).unwrap(), b"hello world!");
    writer.truncate(11).unwrap();
    assert_eq!(kind(open.read_exact_at(&mut buffer, 7)), ErrorKind::UnexpectedEof);
    assert_eq!(fs.read(&b.join("f")).unwrap(), b"hello world");

    // Updates in place.
    let updated = fs.open_update(&b.join("u"), 10).unwrap();
    updated.write_all_at(b"abc", 4).unwrap();
    updated.sync().unwrap();
    assert_eq!(fs.read(&b.join("u")).unwrap(), b"\0\0\0\0abc\0\0\0");
    updated.read_exact_at(&mut buffer, 3).unwrap();
    assert_eq!((&buffer, updated.len().unwrap()), (b"\0abc\0", 10));
    let longer = fs.open_update(&b.join("u"), 12).unwrap();
    assert_eq!((longer.len().unwrap(), longer.path()), (12, &b.join("u")));
    assert_eq!(fs.read(&b.join("u")).unwrap(), b"\0\0\0\0abc\0\0\0\0\0");
    drop(fs.open_update(&b.join("u"), 6).unwrap());
    assert_eq!(fs.read(&b.join("u")).unwrap(), b"\0\0\0\0ab");
    assert_eq!(kind(fs.open_update(&root.join("x/y"), 1).map(|_| ())), ErrorKind::NotFound);
    fs.remove_file(&b.join("u")).unwrap();

    // Whole files.
    assert_eq!(kind(fs.put_new(&b.join("f"), b"")), ErrorKind::AlreadyExists);
    fs.put_new(&b.join("g"), b"new").unwrap();
    fs.replace(&b.join("g"), b"newer").unwrap();
    fs.replace(&b.join("h"), b"").unwrap();
    assert_eq!(names(fs, &b), [file("f", 11), file("g", 5), file("h", 0)]);
    drop(fs.create(&b.join("g")).unwrap());
    assert_eq!(names(fs, &b), [file("f", 11), file("g", 0), file("h", 0)]);

    // Names.
    fs.rename(&b.join("f"), &a.join("f")).unwrap();
    fs.rename(&b.join("h"), &b.join("g")).unwrap();
    assert!(!fs.exists(&b.join("f")).unwrap() && fs.exists(&a.join("f")).unwrap() && fs.exists(&b).unwrap());
    assert_eq!(names(fs, &a), [dir("b"), file("f", 11)]);
    fs.sync_dir(&a).unwrap();
    fs.sync_dir(&b).unwrap();
    fs.rename(&b, &c).unwrap();
    assert_eq!(names(fs, root), [dir("a"), dir("c")]);
    assert_eq!(kind(fs.rename(&a, &c)), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(fs.rename(&a, &a.join("sub"))), ErrorKind::InvalidInput);
    assert_eq!(kind(fs.rename(&root.join("no"), &c.join("no"))), ErrorKind::NotFound);
    assert_eq!(kind(fs.sync_dir(&root.join("no"))), ErrorKind::NotFound);

    // Away with them.
    fs.remove_file(&c.join("g")).unwrap();
    assert_eq!(kind(fs.remove_file(&c.join("g"))), ErrorKind::NotFound);
    assert!(names(fs, &c).is_empty());
    fs.remove_dir_all(&a).unwrap();
    assert_eq!(kind(fs.remove_dir_all(&a)), ErrorKind::NotFound);
    assert_eq!(kind(fs.list(&a).map(|_| ())), ErrorKind::NotFound);
    assert_eq!(open.len().unwrap(), 11, "an open file outlives its name");

    // Locks. They leave the content of their file alone.
    let guard = fs.lock(&root.join("lock")).unwrap();
    assert_eq!(kind(fs.lock(&root.join("lock")).map(|_| ())), ErrorKind::WouldBlock);
    drop(guard);
    fs.replace(&root.join("full"), b"bytes").unwrap();
    drop(fs.lock(&root.join("full")).unwrap());
    assert_eq!(names(fs, root), [dir("c"), file("full", 5), file("lock", 0)]);
}

#[test]
fn the_simulated_file_system() {
    script(&SimFileSystem::new(), Path::new("/"));
}

#[test]
fn the_real_file_system() {
    let root = std::env::temp_dir().join(format!("halcyon-env-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    script(&RealFileSystem, &root);
    std::fs::remove_dir_all(&root).unwrap();
}
