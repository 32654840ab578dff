//! Files that HBase wrote: what is printed of them, and that they are left as they are. `testing/compat/inspect.sh` compares
//! the same with HBase's own tools.
#![allow(clippy::disallowed_methods)] // files from outside

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::{golden, of_kind, records, run};
use halcyon_env::{CryptoSettings, Env};

fn path(crate_name: &str, name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../storage").join(crate_name).join("testdata");
    dir.join(name).to_str().unwrap().to_string()
}

#[test]
fn every_store_file_is_sound_and_gives_all_its_cells() {
    let keys = path("../base/crypto", "same.jceks");
    let env = Env::read_only().with_crypto(CryptoSettings {
        parameters: format!("jceks://{keys}?password=st0re-pass"),
        master_key: Some("master".to_string()),
        ..CryptoSettings::default()
    });
    for file in golden("hfile", "hfile") {
        let file = file.to_str().unwrap();
        let (code, records) = records(&env, &["hfile", "-m", "-b", "-h", "-e", "-d", file]);
        assert_eq!((code, of_kind(&records, "damage").len()), (0, 0), "{file}: {records:?}");
        let cells = of_kind(&records, "cell").len();
        let entries = of_kind(&records, "trailer")[0]["entryCount"].as_u64().unwrap();
        assert_eq!(cells as u64, entries, "{file}");
        assert_eq!(of_kind(&records, "summary")[0]["cells"].as_u64(), Some(entries));
        assert_eq!(of_kind(&records, "stats")[0]["Val length"]["count"].as_u64(), Some(entries));
    }
}

#[test]
fn values_are_printed_only_when_asked_for() {
    let file = path("hfile", "diff-tags.hfile");
    let (_, keys) = run(&Env::read_only(), &["hfile", "-e", "-m", "-h", "-s", "-v", "-f", &file]);
    assert!(keys.contains("K: row00000/f:a longer qualifier 0/5/Put/vlen=4/seqid=123\n"), "{keys}");
    assert!(!keys.contains(" V: "), "{keys}");
    let (_, cells) = run(&Env::read_only(), &["hfile", "-p", "-w", "row00000", &file]);
    assert!(
        cells.contains("K: row00000/f:a longer qualifier 0/5/Put/vlen=4/seqid=123 V: \\xE1\\xC8!A"),
        "{cells}"
    );
    assert!(cells.contains("Scanned kv count -> 9\n") && !cells.contains("row00001"), "{cells}");
    let wal = path("wal", "plain.wal");
    let (_, entries) = run(&Env::read_only(), &["wal", &wal]);
    assert!(entries.contains("row=row1, column=f:q1, timestamp=5001, type=Put\n"), "{entries}");
    assert!(!entries.contains("value"), "{entries}");
    let (_, entries) = run(&Env::read_only(), &["wal", "-p", &wal]);
    assert!(entries.contains("    value: value1\n"), "{entries}");
}

#[test]
fn wal_entries_are_chosen_by_option() {
    let wal = path("wal", "plain.wal");
    let sequences = |options: &[&str]| -> Vec<u64> {
        let (code, records) = records(&Env::read_only(), &[&["wal", &wal], options].concat());
        assert_eq!(code, 0, "{records:?}");
        of_kind(&records, "entry").iter().map(|entry| entry["sequence"].as_u64().unwrap()).collect()
    };
    let all = sequences(&[]);
    assert!(all.len() > 10 && all.is_sorted());
    assert_eq!(sequences(&["-s", "3"]), [3]);
    assert_eq!(sequences(&["-t", "ns:other"])[..3], [3, 6, 9]);
    assert_eq!(sequences(&["-r", "fedcba9876543210fedcba9876543210"])[..3], [3, 6, 9]);
    assert_eq!(sequences(&["-w", "row2"])[..2], [2, 9]);
    assert_eq!(sequences(&["-f", "row"]), all);
    assert_eq!(sequences(&["-g", "414"]), all[2..]);
    for compressed in ["dictionary.wal", "eviction.wal", "gz.wal", "snappy.wal", "zstd.wal"] {
        let (code, found) = records(&Env::read_only(), &["wal", &path("wal", compressed)]);
        assert_eq!((code, of_kind(&found, "damage").len()), (0, 0), "{compressed}");
        assert!(!of_kind(&found, "entry").is_empty());
    }
    let (code, text) = run(&Env::read_only(), &["wal", "-g", "100", &path("wal", "dictionary.wal")]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("a compressed log is read from its begin"), "{text}");
}

#[test]
fn what_cannot_be_looked_at_is_an_error() {
    let env = Env::read_only();
    for (arguments, expected) in [
        (&["hfile", "/nowhere/file"][..], "/nowhere/file"),
        (&["hfile"], "name a store file"),
        (&["wal", "/nowhere/file"], "/nowhere/file"),
        (&["region", "/nowhere/region"], "is not there"),
        (&["meta", "--data", "/nowhere"], "is not there"),
        (&["snapshot", "--data", "/nowhere"], "is not there"),
        (&["snapshot", "--data", "/", "none"], "snapshot 'none'"),
    ] {
        let (code, text) = run(&env, arguments);
        assert_eq!(code, 2, "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

/// Everything about each file and directory below one that a look at it could change.
fn state(dir: &Path) -> BTreeMap<PathBuf, [i64; 9]> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            // Listing a directory here may change its access time, so it comes first.
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let stat = fs::metadata(&path).unwrap();
        let (file, times) =
            ([stat.ino(), stat.len(), u64::from(stat.mode())], [stat.atime(), stat.atime_nsec()]);
        let changes = [stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec()];
        let row: Vec<i64> =
            file.map(|number| number as i64).into_iter().chain(times).chain(changes).collect();
        found.insert(path, row.try_into().unwrap());
    }
    found
}

/// A root directory with a region and a WAL made of HBase's files.
fn root() -> PathBuf {
    let root = std::env::temp_dir().join(format!("halcyon-inspect-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    let region = root.join("data/hbase/meta/1588230740");
    for dir in ["info", "recovered.edits"] {
        fs::create_dir_all(region.join(dir)).unwrap();
    }
    fs::create_dir_all(root.join("WALs/h,1,1")).unwrap();
    fs::write(region.join(".regioninfo"), halcyon_schema::RegionInfo::meta().encode_file()).unwrap();
    fs::copy(path("hfile", "meta.hfile"), region.join("info/0123456789abcdef0123456789abcdef")).unwrap();
    fs::copy(path("hfile", "row.hfile"), region.join("info/11234567890abcdef0123456789abcde")).unwrap();
    fs::copy(path("wal", "plain.wal"), region.join("recovered.edits/0000000000000000007")).unwrap();
    fs::copy(path("wal", "plain.wal"), root.join("WALs/h,1,1/h.1.meta")).unwrap();
    fs::create_dir_all(root.join(".hbase-snapshot/s1")).unwrap();
    fs::write(root.join(".hbase-snapshot/s1/.snapshotinfo"), b"\x0a\x02s1").unwrap();
    fs::write(root.join(".hbase-snapshot/s1/data.manifest"), b"").unwrap();
    root
}

#[test]
fn nothing_is_changed_created_or_touched() {
    let root = root();
    // An access time before the change times: with `relatime` any read would renew it.
    let old = SystemTime::now() - Duration::from_secs(3 * 86_400);
    for path in state(&root).into_keys().filter(|path| path.is_file()) {
        fs::File::options().append(true).open(&path).unwrap().set_modified(old).unwrap();
        let times = fs::FileTimes::new().set_accessed(old).set_modified(old);
        fs::File::options().append(true).open(&path).unwrap().set_times(times).unwrap();
    }
    let before = state(&root);
    let data = root.to_str().unwrap();
    let region = root.join("data/hbase/meta/1588230740");
    let region = region.to_str().unwrap();
    let file = format!("{region}/info/0123456789abcdef0123456789abcdef");
    let env = Env::read_only();
    for arguments in [
        &["hfile", "-v", "-p", "-m", "-b", "-h", "-k", "-a", "-s", "-d", &file][..],
        &["hfile", "-r", "1588230740", "--data", data],
        &["hfile", "-w", "row00001", &file],
        &["wal", "-p", &format!("{data}/WALs/h,1,1")],
        &["region", "--verify", region],
        &["meta", "-p", "--data", data],
        &["snapshot", "--files", "--schema", "--data", data],
    ] {
        let (_, text) = run(&env, arguments);
        assert!(!text.is_empty(), "{arguments:?}");
    }
    let after = state(&root);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (path, state) in &before {
        assert_eq!(state, &after[path], "{}", path.display());
    }
    for refused in
        [env.fs.put_new(&root.join("x"), b""), env.fs.remove_dir_all(&root), env.fs.sync_dir(&root)]
    {
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    assert_eq!(
        env.fs.lock(&root.join("x")).err().map(|e| e.kind()),
        Some(std::io::ErrorKind::ReadOnlyFilesystem)
    );
    fs::remove_dir_all(&root).unwrap();
}
