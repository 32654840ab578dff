//! Splits beside what else a server has and does: regions that are removed meanwhile, and memory that splits share.

use crate::common;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use halcyon_cell::{Cell, Result, SeqId};
use halcyon_env::FileSystem;
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_wal::{
    Destination, Durability, Flushed, OnDamage, RECOVERED_EDITS_DIR, SplitMemory, SplitReport, Wal, WalEntry,
    WalReader, logs_in, split_what_is_needed,
};

const LOG_DIR: &str = "/hbase/WALs/s";

/// More than a split may have where splits may have nothing.
const LARGE_LEN: usize = 300 << 10;

fn region_dir(root: &str, region: &str) -> PathBuf {
    Path::new(root).join("data").join(region)
}

/// A log with one edit in each entry, of these regions, and the directories of these.
fn log_of(fs: &SimFileSystem, regions: &[&str], value_len: usize) {
    let wal = Wal::open(common::env(fs), common::config(LOG_DIR, "/hbase/oldWALs", "s")).unwrap();
    for (at, region) in regions.iter().enumerate() {
        fs.create_dir_all(&region_dir("/hbase", region)).unwrap();
        let seq = at as u64 + 1;
        let cell = Cell::put(b"r", b"f", b"q", 1, &vec![seq as u8; value_len]).with_seq(seq);
        let entry = WalEntry {
            region: region.as_bytes(),
            table: b"t",
            seq: SeqId::new(seq),
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &[],
            cells: &[cell.get()],
        };
        wal.append(&entry, Durability::SyncWal, Box::new(|_| {})).unwrap();
        wal.drive();
    }
    wal.close().unwrap();
}

fn split(fs: &SimFileSystem, destination: &Destination<'_>, memory: &SplitMemory) -> Result<SplitReport> {
    let env = common::env(fs);
    let logs = logs_in(&env, Path::new(LOG_DIR))?;
    let each = |count: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)| (0..count).try_for_each(work);
    split_what_is_needed(&env, logs, destination, &|_| Flushed::default(), &each, OnDamage::Refuse, memory)
}

fn name(region: &[u8]) -> &str {
    std::str::from_utf8(region).unwrap()
}

/// A table was deleted while a WAL with edits of it was split. The split made the directory of the region again, with edits in it, and
/// the name of the table could not be used any more.
#[test]
fn a_region_that_is_removed_is_not_made_again() {
    for fs in [SimFileSystem::new(), SimFileSystem::hdfs(1)] {
        log_of(&fs, &["a", "b"], 10);
        let destination = |region: &[u8], _: &[u8]| -> Result<Option<PathBuf>> {
            let dir = region_dir("/hbase", name(region));
            let is_there = fs.exists(&dir)?;
            if region == b"b" {
                let _ = fs.remove_dir_all(&region_dir("/hbase", "a"));
            }
            Ok(is_there.then(|| dir.join(RECOVERED_EDITS_DIR)))
        };
        let report = split(&fs, &destination, &SplitMemory::of_one()).unwrap();
        assert_eq!((report.entries, report.dropped, report.files.len()), (2, 1, 1), "{report:?}");
        assert!(report.files[0].starts_with(region_dir("/hbase", "b")), "{report:?}");
        assert!(!fs.exists(&region_dir("/hbase", "a")).unwrap());
    }
}

/// As above, with edits in a file that is not complete. The split failed, and was done again from its begin.
#[test]
fn a_region_that_is_removed_with_the_file_of_its_edits_is_left_out() {
    for fs in [SimFileSystem::new(), SimFileSystem::hdfs(1)] {
        log_of(&fs, &["a", "b", "a"], LARGE_LEN);
        let destination = |region: &[u8], _: &[u8]| -> Result<Option<PathBuf>> {
            let dir = region_dir("/hbase", name(region));
            let is_there = fs.exists(&dir)?;
            if region == b"b" && fs.exists(&region_dir("/hbase", "a"))? {
                let edits = fs.list(&region_dir("/hbase", "a").join(RECOVERED_EDITS_DIR))?;
                assert_eq!(edits.len(), 1, "the first edit is in a file");
                fs.remove_dir_all(&region_dir("/hbase", "a"))?;
            }
            Ok(is_there.then(|| dir.join(RECOVERED_EDITS_DIR)))
        };
        let memory = SplitMemory::new(0, 1);
        let report = split(&fs, &destination, &memory).unwrap();
        assert_eq!((report.entries, report.dropped, report.files.len()), (3, 2, 1), "{report:?}");
        assert!(!fs.exists(&region_dir("/hbase", "a")).unwrap());
        assert_eq!(memory.held_bytes(), 0);
    }
}

/// Where WALs have a root directory of their own, a region has nothing there at first, and that it is gone is seen elsewhere.
#[test]
fn what_was_made_for_a_removed_region_below_the_root_of_wals_is_removed() {
    for removed_after in [usize::MAX, 1, 2, 3] {
        let fs = SimFileSystem::new();
        log_of(&fs, &["a"], 10);
        let asked = AtomicUsize::new(0);
        let destination = |region: &[u8], _: &[u8]| -> Result<Option<PathBuf>> {
            let is_there = fs.exists(&region_dir("/hbase", name(region)))?;
            if asked.fetch_add(1, Ordering::Relaxed) + 1 == removed_after {
                fs.remove_dir_all(&region_dir("/hbase", "a"))?;
            }
            Ok(is_there.then(|| region_dir("/wals", name(region)).join(RECOVERED_EDITS_DIR)))
        };
        let report = split(&fs, &destination, &SplitMemory::of_one()).unwrap();
        // After the third question it is up to the removal, which removes what is there last.
        let is_kept = removed_after > 2;
        assert_eq!(
            (report.files.len() as u64, report.dropped),
            (u64::from(is_kept), u64::from(!is_kept)),
            "{report:?}"
        );
        assert_eq!(fs.exists(&region_dir("/wals", "a")).unwrap(), is_kept, "after {removed_after} questions");
    }
}

/// Each split had 64 MiB, whatever the budget of the server, and files of HDFS kept a MiB each. The last server of a cluster splits eight
/// WALs at once, with all regions in each.
#[test]
fn splits_keep_to_their_memory() {
    const VALUE_LEN: usize = 100 << 10;
    const LIMIT: usize = 1 << 20;
    let names: Vec<String> = (0..40).map(|at| format!("region{at:02}")).collect();
    let regions: Vec<&str> = names.iter().map(String::as_str).collect();
    for fs in [SimFileSystem::new(), SimFileSystem::hdfs(1)] {
        log_of(&fs, &regions, VALUE_LEN);
        let memory = SplitMemory::new(LIMIT, 2);
        let most = AtomicUsize::new(0);
        let destination = |region: &[u8], _: &[u8]| -> Result<Option<PathBuf>> {
            most.fetch_max(memory.held_bytes(), Ordering::Relaxed);
            Ok(Some(region_dir("/hbase", name(region)).join(RECOVERED_EDITS_DIR)))
        };
        fs.inject(Fault::new(Operation::Close, "region20"));
        split(&fs, &destination, &memory).unwrap_err();
        assert_eq!((fs.faults_hit(), memory.held_bytes()), (1, 0), "what failed holds nothing");
        let report = split(&fs, &destination, &memory).unwrap();
        assert_eq!((report.files.len(), memory.held_bytes()), (40, 0));
        let most = most.into_inner();
        assert!(LIMIT / 2 < most && most <= LIMIT + 3 * VALUE_LEN, "{most} bytes were held at once");
        for (at, file) in report.files.iter().enumerate() {
            let mut reader = WalReader::open(&common::env(&fs), file).unwrap();
            let (key, cells) = reader.next_entry().unwrap().expect("an edit");
            assert_eq!((key.log_sequence_number, cells[0].value().len()), (at as u64 + 1, VALUE_LEN));
        }
    }
}

/// Who has little goes on collecting while others have much: files of a few edits each would take forever.
#[test]
fn a_split_with_little_waits_for_no_other() {
    let (written, other) = (AtomicUsize::new(0), SimFileSystem::new());
    let memory = SplitMemory::new(0, 1);
    log_of(&other, &["x", "y"], LARGE_LEN);
    let fs = SimFileSystem::hdfs(1);
    log_of(&fs, &["a", "b", "c"], 100);
    let outer = |region: &[u8], _: &[u8]| -> Result<Option<PathBuf>> {
        if region == b"y" {
            let inner = |region: &[u8], _: &[u8]| -> Result<Option<PathBuf>> {
                written.store(fs.list(&region_dir("/hbase", "a"))?.len(), Ordering::Relaxed);
                Ok(Some(region_dir("/hbase", name(region)).join(RECOVERED_EDITS_DIR)))
            };
            assert_eq!(split(&fs, &inner, &memory)?.files.len(), 3);
        }
        Ok(Some(region_dir("/hbase", name(region)).join(RECOVERED_EDITS_DIR)))
    };
    assert_eq!(split(&other, &outer, &memory).unwrap().files.len(), 2);
    assert_eq!(written.into_inner(), 0, "nothing was written before the end");
}
