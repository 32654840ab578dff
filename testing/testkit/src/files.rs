//! What every [`FileSystem`] promises, as one script. The machine's files, the simulated ones and HDFS pass it.

use std::io::ErrorKind;
use std::path::Path;

use halcyon_env::{FileSystem, WritableFile};

/// What a file system can do beyond the script's first part. What it cannot must be refused with `Unsupported`.
#[derive(Clone, Copy, Debug)]
pub struct FileAbilities {
    /// Bytes are read as soon as they are written, also without a sync or the end of the file, and may be cut off again.
    pub reads_open_files: bool,
    /// A file is cut back while it is written, and updated in place.
    pub updates: bool,
    /// A directory has to be synced, so one that is absent cannot be.
    pub syncs_directories: bool,
    /// Files are locked.
    pub locks: bool,
    /// A file that is removed stays readable for who has it open.
    pub reads_removed_files: bool,
    /// A file has one writer, and `seal` ends it.
    pub seals: bool,
}

impl FileAbilities {
    /// Those of a local disk.
    pub const LOCAL: FileAbilities = FileAbilities {
        reads_open_files: true,
        updates: true,
        syncs_directories: true,
        locks: true,
        reads_removed_files: true,
        seals: false,
    };
    /// Those of HDFS.
    pub const HDFS: FileAbilities = FileAbilities {
        reads_open_files: false,
        updates: false,
        syncs_directories: false,
        locks: false,
        reads_removed_files: false,
        seals: true,
    };
}

fn names(fs: &dyn FileSystem, dir: &Path) -> Vec<(String, bool, u64)> {
    fs.list(dir).unwrap().into_iter().map(|entry| (entry.name, entry.is_dir, entry.len)).collect()
}

fn file(name: &str, len: u64) -> (String, bool, u64) {
    (name.to_string(), false, len)
}

fn dir(name: &str) -> (String, bool, u64) {
    (name.to_string(), true, 0)
}

fn kind<T>(result: std::io::Result<T>) -> ErrorKind {
    result.map(|_| ()).expect_err("is refused").kind()
}

fn write(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) {
    let mut writer = fs.create(path).unwrap();
    writer.write_all(bytes).unwrap();
    writer.sync().unwrap();
    writer.close().unwrap();
}

fn write_over(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) {
    let mut writer = fs.create_over(path).unwrap();
    writer.write_all(bytes).unwrap();
    writer.sync().unwrap();
    writer.close().unwrap();
}

/// Runs the script below `root`, an empty directory. It panics at the first promise that is broken.
pub fn check_file_system(fs: &dyn FileSystem, root: &Path, abilities: FileAbilities) {
    writing_and_reading(fs, root, abilities);
    whole_files(fs, &root.join("whole"));
    renames(fs, &root.join("names"));
    if abilities.syncs_directories {
        assert_eq!(kind(fs.sync_dir(&root.join("no"))), ErrorKind::NotFound);
    }
    removals(fs, &root.join("removals"), abilities);
    if abilities.updates {
        updates(fs, &root.join("updates"));
    } else {
        assert_eq!(kind(fs.open_update(&root.join("u"), 1)), ErrorKind::Unsupported);
    }
    if abilities.locks {
        locks(fs, &root.join("locks"));
    } else {
        assert_eq!(kind(fs.lock(&root.join("l"))), ErrorKind::Unsupported);
    }
}

fn writing_and_reading(fs: &dyn FileSystem, root: &Path, abilities: FileAbilities) {
    let a = root.join("a");
    let path = a.join("b/f");
    assert_eq!(kind(fs.create_dir(&a.join("b"))), ErrorKind::NotFound, "create_dir makes no parents");
    fs.create_dir(&a).unwrap();
    assert_eq!(kind(fs.create_dir(&a)), ErrorKind::AlreadyExists);
    fs.create_dir_all(&a.join("b")).unwrap();
    fs.create_dir_all(&a.join("b")).unwrap();
    assert_eq!(kind(fs.create(&root.join("x/y"))), ErrorKind::NotFound, "create makes no directories");
    assert!(!fs.exists(&root.join("x")).unwrap());
    assert_eq!(kind(fs.open(&root.join("x"))), ErrorKind::NotFound);
    assert_eq!(kind(fs.read(&root.join("x"))), ErrorKind::NotFound);

    let mut writer = fs.create(&path).unwrap();
    assert!(writer.is_empty());
    writer.write_all(b"hello ").unwrap();
    writer.sync().unwrap();
    writer.write_all(b"world").unwrap();
    assert_eq!((writer.len(), writer.path()), (11, &*path));
    if abilities.reads_open_files {
        open_while_written(fs, &mut *writer);
    }
    if !abilities.updates {
        assert_eq!(kind(writer.truncate(6)), ErrorKind::Unsupported);
        assert_eq!(writer.len(), 11, "what is refused changes nothing");
    }
    writer.close().unwrap();

    let open = fs.open(&path).unwrap();
    assert_eq!((open.len().unwrap(), open.path()), (11, &path));
    let mut buffer = [0; 5];
    open.read_exact_at(&mut buffer, 6).unwrap();
    assert_eq!(&buffer, b"world");
    assert_eq!(kind(open.read_exact_at(&mut buffer, 7)), ErrorKind::UnexpectedEof);
    open.read_exact_at(&mut [], 11).unwrap();
    assert_eq!(fs.read(&path).unwrap(), b"hello world");
    assert_eq!(kind(fs.create(&path)), ErrorKind::AlreadyExists);
    assert_eq!(kind(fs.create_over(&root.join("x/y"))), ErrorKind::NotFound, "nor does create_over");
    write_over(fs, &path, b"shorter");
    assert_eq!(fs.read(&path).unwrap(), b"shorter", "create_over cuts an existing file");
    write_over(fs, &path, b"");
    assert_eq!(fs.read(&path).unwrap(), b"");
}

/// A file of 11 bytes, read while it grows and is cut back.
fn open_while_written(fs: &dyn FileSystem, writer: &mut dyn WritableFile) {
    let path = writer.path().to_path_buf();
    let open = fs.open(&path).unwrap();
    assert_eq!(open.len().unwrap(), 11);
    writer.write_all(b", gone").unwrap();
    assert_eq!(open.len().unwrap(), 17);
    writer.truncate(11).unwrap();
    assert_eq!((writer.len(), open.len().unwrap()), (11, 11));
    writer.write_all(b"!").unwrap();
    assert_eq!(fs.read(&path).unwrap(), b"hello world!");
    writer.truncate(11).unwrap();
    let mut buffer = [0; 5];
    open.read_exact_at(&mut buffer, 6).unwrap();
    assert_eq!(&buffer, b"world");
    assert_eq!(kind(open.read_exact_at(&mut buffer, 7)), ErrorKind::UnexpectedEof);
    assert_eq!(fs.read(&path).unwrap(), b"hello world");
}

fn whole_files(fs: &dyn FileSystem, root: &Path) {
    fs.create_dir_all(root).unwrap();
    fs.put_new(&root.join("g"), b"new").unwrap();
    assert_eq!(kind(fs.put_new(&root.join("g"), b"other")), ErrorKind::AlreadyExists);
    assert_eq!(fs.read(&root.join("g")).unwrap(), b"new");
    fs.replace(&root.join("g"), b"newer").unwrap();
    fs.replace(&root.join("h"), b"").unwrap();
    assert_eq!(kind(fs.put_new(&root.join("no/f"), b"")), ErrorKind::NotFound);
    assert_eq!(kind(fs.replace(&root.join("no/f"), b"")), ErrorKind::NotFound);
    assert_eq!(names(fs, root), [file("g", 5), file("h", 0)], "no temporary file stays");
    fs.create_over(&root.join("g")).unwrap().close().unwrap();
    assert_eq!(names(fs, root), [file("g", 0), file("h", 0)]);
}

fn renames(fs: &dyn FileSystem, root: &Path) {
    let (a, b, c) = (root.join("a"), root.join("b"), root.join("c"));
    fs.create_dir_all(&a).unwrap();
    fs.create_dir_all(&b).unwrap();
    write(fs, &b.join("f"), b"f");
    write(fs, &b.join("g"), b"gg");
    let open = fs.open(&b.join("f")).unwrap();
    fs.rename(&b.join("f"), &a.join("f")).unwrap();
    assert_eq!(kind(fs.rename(&b.join("g"), &a.join("f"))), ErrorKind::AlreadyExists);
    fs.rename_over(&b.join("g"), &a.join("f")).unwrap();
    assert_eq!(fs.read(&a.join("f")).unwrap(), b"gg", "rename_over takes the place of a file");
    drop(open);
    assert!(!fs.exists(&b.join("f")).unwrap() && fs.exists(&a.join("f")).unwrap() && fs.exists(&b).unwrap());
    assert!(!fs.exists(&a.join("f/below")).unwrap(), "below a file is nothing");
    write(fs, &b.join("f"), b"f");
    let open = fs.open(&b.join("f")).unwrap();
    fs.rename(&b, &c).unwrap();
    let mut buffer = [0; 1];
    open.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"f", "an open file outlives a rename");
    fs.sync_dir(root).unwrap();
    assert_eq!(names(fs, root), [dir("a"), dir("c")]);
    assert_eq!(names(fs, &c), [file("f", 1)]);
    assert_eq!(kind(fs.rename_over(&a, &c)), ErrorKind::DirectoryNotEmpty);
    fs.create_dir(&root.join("empty")).unwrap();
    fs.rename_over(&c, &root.join("empty")).unwrap();
    assert_eq!(
        names(fs, &root.join("empty")),
        [file("f", 1)],
        "rename_over takes the place of an empty directory"
    );
    fs.rename(&root.join("empty"), &c).unwrap();
    assert_eq!(kind(fs.rename(&a, &c)), ErrorKind::AlreadyExists);
    assert_eq!(kind(fs.rename(&a, &a.join("sub"))), ErrorKind::InvalidInput);
    assert_eq!(kind(fs.rename(&root.join("no"), &c.join("no"))), ErrorKind::NotFound);
    assert_eq!(kind(fs.rename(&a.join("f"), &root.join("no/f"))), ErrorKind::NotFound);
}

fn removals(fs: &dyn FileSystem, root: &Path, abilities: FileAbilities) {
    let a = root.join("a");
    fs.create_dir_all(&a.join("b/c")).unwrap();
    write(fs, &a.join("f"), b"bytes");
    write(fs, &a.join("b/c/g"), b"");
    let open = fs.open(&a.join("f")).unwrap();
    assert_eq!(names(fs, &a), [dir("b"), file("f", 5)]);
    assert_eq!(kind(fs.list(&a.join("f"))), ErrorKind::NotADirectory);
    fs.remove_file(&a.join("f")).unwrap();
    assert_eq!(kind(fs.remove_file(&a.join("f"))), ErrorKind::NotFound);
    fs.remove_dir_all(&a).unwrap();
    assert_eq!(kind(fs.remove_dir_all(&a)), ErrorKind::NotFound);
    assert_eq!(kind(fs.list(&a)), ErrorKind::NotFound);
    assert!(names(fs, root).is_empty());
    if abilities.reads_removed_files {
        let mut buffer = [0; 5];
        open.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(open.len().unwrap(), 5);
        assert_eq!(&buffer, b"bytes", "an open file outlives its name");
    }
}

fn updates(fs: &dyn FileSystem, root: &Path) {
    fs.create_dir_all(root).unwrap();
    let path = root.join("u");
    let updated = fs.open_update(&path, 10).unwrap();
    updated.write_all_at(b"abc", 4).unwrap();
    updated.sync().unwrap();
    assert_eq!(fs.read(&path).unwrap(), b"\0\0\0\0abc\0\0\0");
    let mut buffer = [0; 5];
    updated.read_exact_at(&mut buffer, 3).unwrap();
    assert_eq!((&buffer, updated.len().unwrap()), (b"\0abc\0", 10));
    let longer = fs.open_update(&path, 12).unwrap();
    assert_eq!((longer.len().unwrap(), longer.path()), (12, &path));
    assert_eq!(fs.read(&path).unwrap(), b"\0\0\0\0abc\0\0\0\0\0");
    drop(fs.open_update(&path, 6).unwrap());
    assert_eq!(fs.read(&path).unwrap(), b"\0\0\0\0ab");
    assert_eq!(kind(fs.open_update(&root.join("x/y"), 1)), ErrorKind::NotFound);
}

/// Locks leave the content of their file alone.
fn locks(fs: &dyn FileSystem, root: &Path) {
    fs.create_dir_all(root).unwrap();
    let guard = fs.lock(&root.join("lock")).unwrap();
    assert_eq!(kind(fs.lock(&root.join("lock"))), ErrorKind::WouldBlock);
    drop(guard);
    fs.replace(&root.join("full"), b"bytes").unwrap();
    drop(fs.lock(&root.join("full")).unwrap());
    assert_eq!(names(fs, root), [file("full", 5), file("lock", 0)]);
}

/// What keeps a server out of the files that another one has taken over, as one script. `old` and `new` are two clients of
/// the same files; `root` is an empty directory.
pub fn check_fences(old: &dyn FileSystem, new: &dyn FileSystem, root: &Path, abilities: FileAbilities) {
    sealed_logs(old, new, &root.join("logs"), abilities);
    taken_directories(old, new, &root.join("taken"));
}

/// The log's directory gets another name, and then each file in it is sealed.
fn sealed_logs(old: &dyn FileSystem, new: &dyn FileSystem, root: &Path, abilities: FileAbilities) {
    let (live, splitting) = (root.join("server"), root.join("server-splitting"));
    old.create_dir_all(&live).unwrap();
    write(old, &live.join("closed"), b"whole");
    let mut log = old.create(&live.join("log")).unwrap();
    log.write_all(b"synced").unwrap();
    log.sync().unwrap();
    log.write_all(b", not synced").unwrap();
    new.rename(&live, &splitting).unwrap();
    assert_eq!(kind(old.create(&live.join("next"))), ErrorKind::NotFound, "the directory is not made again");
    assert_eq!(kind(old.rename(&live.join("closed"), &live.join("c"))), ErrorKind::NotFound);
    for name in ["log", "closed", "log"] {
        new.seal(&splitting.join(name)).unwrap();
    }
    assert_eq!(kind(new.seal(&splitting.join("no"))), ErrorKind::NotFound);
    assert_eq!(new.read(&splitting.join("closed")).unwrap(), b"whole");
    let sealed = new.read(&splitting.join("log")).unwrap();
    assert!(sealed.starts_with(b"synced") && b"synced, not synced".starts_with(&sealed[..]));
    let _ = log.write_all(b", and late"); // it may be collected in memory
    assert!(log.sync().is_err() == abilities.seals, "what is acknowledged now would be lost");
    assert!(log.close().is_err() == abilities.seals);
    if abilities.seals {
        assert_eq!(new.read(&splitting.join("log")).unwrap(), sealed, "a sealed file is final");
    }
}

/// A directory is renamed away, and then removed: nothing comes out of it any more.
fn taken_directories(old: &dyn FileSystem, new: &dyn FileSystem, root: &Path) {
    let (own, store) = (root.join("own"), root.join("store"));
    old.create_dir_all(&own).unwrap();
    old.create_dir_all(&store).unwrap();
    write(old, &own.join("f"), b"f");
    let mut open = old.create(&own.join("open")).unwrap();
    open.write_all(b"bytes").unwrap();
    new.rename(&own, &root.join("taken")).unwrap();
    for _ in 0..2 {
        assert_eq!(kind(old.create(&own.join("g"))), ErrorKind::NotFound);
        assert_eq!(kind(old.create_over(&own.join("g"))), ErrorKind::NotFound);
        assert_eq!(kind(old.create_dir(&own.join("d"))), ErrorKind::NotFound);
        assert_eq!(kind(old.rename(&own.join("f"), &store.join("f"))), ErrorKind::NotFound);
        assert_eq!(kind(old.rename_over(&own.join("f"), &store.join("f"))), ErrorKind::NotFound);
        let _ = new.remove_dir_all(&root.join("taken")); // the second time it is gone
    }
    drop(open);
    assert!(names(new, &store).is_empty() && !new.exists(&own).unwrap());
}
