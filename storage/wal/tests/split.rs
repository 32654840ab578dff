//! Splits beside what else a server has and does: regions that are removed meanwhile, and memory that splits share.

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use halcyon_cell::{Cell, ErrorKind, Result, SeqId};
use halcyon_env::FileSystem;
use halcyon_env::sim::{CrashMode, Fault, Operation, SimFileSystem};
use halcyon_testkit::for_each_seed;
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
    let edits: Vec<(&str, usize)> = regions.iter().map(|region| (*region, value_len)).collect();
    log_with(fs, &edits);
}

/// As `log_of`, of regions and lengths of values.
fn log_with(fs: &SimFileSystem, edits: &[(&str, usize)]) {
    log_from(fs, 1, edits);
}

/// As `log_with`, with this sequence id first.
fn log_from(fs: &SimFileSystem, first_seq: u64, edits: &[(&str, usize)]) {
    let wal = Wal::open(common::env(fs), common::config(LOG_DIR, "/hbase/oldWALs", "s")).unwrap();
    for (at, (region, value_len)) in edits.iter().enumerate() {
        fs.create_dir_all(&region_dir("/hbase", region)).unwrap();
        let seq = at as u64 + first_seq;
        let cell = Cell::put(b"r", b"f", b"q", 1, &vec![seq as u8; *value_len]).with_seq(seq);
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

/// Edits by region and sequence id, with the length of their values, as far as the files have them. Of a file that has a name its last
/// entry is that of the name.
fn edits_in(fs: &SimFileSystem, files: &[PathBuf]) -> BTreeMap<(String, u64), usize> {
    let mut found = BTreeMap::new();
    for file in files {
        let mut reader = WalReader::open(&common::env(fs), file).unwrap();
        let mut last_seq = 0;
        while let Some((key, cells)) = reader.next_entry().unwrap() {
            let (seq, value) = (key.log_sequence_number, cells[0].value());
            assert!(last_seq < seq, "{}: {seq} comes behind {last_seq}", file.display());
            assert!(value.iter().all(|byte| *byte == seq as u8));
            found.insert((name(&key.encoded_region_name).to_string(), seq), value.len());
            last_seq = seq;
        }
        assert!(reader.has_trailer(), "{} is complete", file.display());
        let file_name = file.file_name().unwrap().to_string_lossy();
        assert!(file_name.ends_with(".temp") || file_name.parse() == Ok(last_seq), "{file_name}: {last_seq}");
    }
    found
}

fn all_edits(edits: &[(&str, usize)]) -> BTreeMap<(String, u64), usize> {
    edits.iter().zip(1..).map(|((region, value_len), seq)| ((region.to_string(), seq), *value_len)).collect()
}

/// All recovered edits that are there, under their names or not.
fn recovered_files(fs: &SimFileSystem) -> Vec<PathBuf> {
    let files = fs.dump().into_iter().map(|(path, _)| path);
    files.filter(|path| path.parent().is_some_and(|dir| dir.ends_with(RECOVERED_EDITS_DIR))).collect()
}

/// Those with a name.
fn named_files(fs: &SimFileSystem) -> Vec<PathBuf> {
    recovered_files(fs).into_iter().filter(|path| path.extension().is_none()).collect()
}

fn edits_dir(region: &[u8]) -> PathBuf {
    region_dir("/hbase", name(region)).join(RECOVERED_EDITS_DIR)
}

/// Each file that memory was too short for stayed open until the split ended, with a pipeline of three DataNodes, which have a limit of
/// those. With some hundreds of regions, eight splits reached it, and the cluster could write no more.
#[test]
fn a_split_leaves_no_file_of_hdfs_open() {
    let names: Vec<String> = (0..30).map(|at| format!("region{at:02}")).collect();
    let edits: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 100 << 10)).collect();
    let fs = SimFileSystem::hdfs(1);
    log_with(&fs, &edits);
    let most = AtomicUsize::new(0);
    let destination = |region: &[u8], _: &[u8]| -> Result<Option<PathBuf>> {
        let files = recovered_files(&fs);
        most.fetch_max(files.len(), Ordering::Relaxed);
        edits_in(&fs, &files);
        Ok(Some(edits_dir(region)))
    };
    let report = split(&fs, &destination, &SplitMemory::new(0, 1)).unwrap();
    assert!(most.into_inner() > 20, "most edits were in files before the end");
    assert_eq!(edits_in(&fs, &report.files), all_edits(&edits));
}

/// However much memory there is, a split has its limit. Edits in files of HDFS counted on until these ended, so beyond the limit
/// each entry looked for the largest region again, and nothing came of it.
#[test]
fn a_split_that_is_alone_has_a_limit_too() {
    const MIB: usize = 1 << 20;
    let names: Vec<String> = (0..80).map(|at| format!("region{at:02}")).collect();
    let edits: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), MIB - 1000)).collect();
    let fs = SimFileSystem::hdfs(1);
    log_with(&fs, &edits);
    let memory = SplitMemory::new(4096 * MIB, 8);
    let most = AtomicUsize::new(0);
    let destination = |region: &[u8], _: &[u8]| -> Result<Option<PathBuf>> {
        most.fetch_max(memory.held_bytes(), Ordering::Relaxed);
        Ok(Some(edits_dir(region)))
    };
    let report = split(&fs, &destination, &memory).unwrap();
    let most = most.into_inner();
    assert!(60 * MIB < most && most < 68 * MIB, "{most} bytes were held at once");
    assert_eq!((report.files.len(), memory.held_bytes()), (80, 0));
    assert_eq!(edits_in(&fs, &report.files), all_edits(&edits));
}

/// A WAL of 20,000 regions has some KiB of each. Files of less, one after the other, took longer than a split may take.
#[test]
fn regions_with_few_edits_get_one_file_each() {
    const REGIONS: usize = 400;
    let names: Vec<String> = (0..REGIONS).map(|at| format!("region{at:03}")).collect();
    let edits: Vec<(&str, usize)> = (0..4 * REGIONS).map(|at| (names[at % REGIONS].as_str(), 700)).collect();
    let fs = SimFileSystem::hdfs(1);
    log_with(&fs, &edits);
    let (memory, most) = (SplitMemory::new(0, 1), AtomicUsize::new(0));
    let destination = |region: &[u8], _: &[u8]| -> Result<Option<PathBuf>> {
        assert_eq!(recovered_files(&fs), Vec::<PathBuf>::new(), "files come when the log was read");
        Ok((region != b"region007").then(|| edits_dir(region)))
    };
    let flushed_of = |region: &[u8]| match region {
        b"region008" => Flushed { region: SeqId::new(500), ..Flushed::default() },
        _ => Flushed::default(),
    };
    let rounds = AtomicUsize::new(0);
    let each = |count: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)| {
        rounds.fetch_add(1, Ordering::Relaxed);
        most.fetch_max(memory.held_bytes(), Ordering::Relaxed);
        (0..count).try_for_each(work)
    };
    let logs = logs_in(&common::env(&fs), Path::new(LOG_DIR)).unwrap();
    let env = common::env(&fs);
    let report =
        split_what_is_needed(&env, logs, &destination, &flushed_of, &each, OnDamage::Refuse, &memory)
            .unwrap();
    let counts = (report.logs.len(), report.entries, report.dropped, report.flushed);
    assert_eq!(counts, (1, 4 * REGIONS as u64, 4, 2), "each entry counts once, however often it was read");
    assert_eq!(report.files.len(), REGIONS - 1, "a file for each region");
    let mut expected = all_edits(&edits);
    expected.retain(|(region, seq), _| region != "region007" && (region != "region008" || *seq > 500));
    assert_eq!(edits_in(&fs, &report.files), expected);
    let (rounds, most) = (rounds.into_inner(), most.into_inner());
    assert!((5..60).contains(&rounds), "the log was read in {rounds} rounds");
    assert!(most < (256 << 10) + 4096, "{most} bytes were held at once");
    assert_eq!(memory.held_bytes(), 0);
}

/// Edits of which some go to files at once, some wait for another reading, and some of one region do both.
fn mixed() -> Vec<(&'static str, usize)> {
    const SMALL_LEN: usize = 40 << 10;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let small = || names.into_iter().map(|name| (name, SMALL_LEN));
    let large = |len| std::iter::once(("large", len));
    let edits = large(LARGE_LEN).chain(small()).chain(large(SMALL_LEN)).chain(small());
    edits.chain(large(10)).chain(large(LARGE_LEN)).chain(small().take(5)).collect()
}

fn to_edits_dirs(region: &[u8], _: &[u8]) -> Result<Option<PathBuf>> {
    Ok(Some(edits_dir(region)))
}

#[test]
fn edits_that_were_put_off_are_recovered() {
    let check = || {
        for fs in [SimFileSystem::new(), SimFileSystem::hdfs(1)] {
            let edits = mixed();
            log_with(&fs, &edits);
            let memory = SplitMemory::new(0, 1);
            let report = split(&fs, &to_edits_dirs, &memory).unwrap();
            assert_eq!((report.entries as usize, memory.held_bytes()), (edits.len(), 0));
            assert_eq!(edits_in(&fs, &report.files), all_edits(&edits));
            let regions: BTreeSet<&str> = edits.iter().map(|(region, _)| *region).collect();
            assert_eq!(report.files.len() > regions.len(), fs.is_remote(), "{:?}", report.files);
            assert_eq!(named_files(&fs), report.files);
        }
    };
    check();
    common::encrypted(check);
}

/// Logs are read again from the first one of which edits are in memory.
#[test]
fn edits_of_several_logs_are_put_off() {
    let edits: Vec<(&str, usize)> = mixed().into_iter().chain(mixed()).collect();
    let fs = SimFileSystem::hdfs(1);
    let mut first_seq = 1;
    for part in [3, 9, 1, 20, 2, 2, 10, 11] {
        let begin = first_seq as usize - 1;
        log_from(&fs, first_seq, &edits[begin..begin + part]);
        first_seq += part as u64;
    }
    assert_eq!(first_seq as usize - 1, edits.len());
    let report = split(&fs, &to_edits_dirs, &SplitMemory::new(0, 1)).unwrap();
    assert_eq!((report.logs.len(), report.entries as usize), (8, edits.len()));
    assert_eq!(edits_in(&fs, &report.files), all_edits(&edits));
}

/// Answers of the NameNode get lost, and a split that fails for it is done again, with as much memory or with more.
#[test]
fn several_files_of_a_region_survive_lost_answers() {
    for_each_seed("-p halcyon-wal --test all split::several_files_of_a_region", 0..20, |seed| {
        let (fs, edits) = (SimFileSystem::hdfs(seed), mixed());
        log_with(&fs, &edits);
        fs.disturb(60);
        let is_done = |attempt: &u64| {
            let memory = if attempt % 3 == 2 { SplitMemory::of_one() } else { SplitMemory::new(0, 1) };
            let done = split(&fs, &to_edits_dirs, &memory);
            assert_eq!(memory.held_bytes(), 0);
            done.is_ok()
        };
        assert!((0..400).find(is_done).is_some(), "seed {seed}: the WAL cannot be split");
        fs.clear_faults();
        let found = edits_in(&fs, &named_files(&fs));
        assert_eq!(found, all_edits(&edits), "seed {seed}");
        fs.deliver_late();
        let after = fs.crash(CrashMode::Drop, seed);
        assert_eq!(edits_in(&after, &named_files(&after)), found, "seed {seed}, after late changes");
    });
}

/// A split that died is done again, with as much memory as before or with more. It makes other files then, and no edit is lost.
#[test]
fn a_split_that_died_with_several_files_of_a_region_is_done_again() {
    for base in [SimFileSystem::new(), SimFileSystem::hdfs(1)] {
        let edits = mixed();
        log_with(&base, &edits);
        let copy = |seed| base.crash(CrashMode::Keep, seed);
        let whole = copy(0);
        split(&whole, &to_edits_dirs, &SplitMemory::new(0, 1)).unwrap();
        let sync_points = whole.sync_points();
        assert!(sync_points > 20);
        for n in 1..=sync_points {
            let fs = copy(n);
            fs.fail_at(n);
            split(&fs, &to_edits_dirs, &SplitMemory::new(0, 1)).expect_err("the machine dies");
            let after = fs.crash(CrashMode::ALL[n as usize % CrashMode::ALL.len()], n);
            edits_in(&after, &named_files(&after)); // they are whole
            let memory = if n % 2 == 0 { SplitMemory::of_one() } else { SplitMemory::new(0, 1) };
            let report = split(&after, &to_edits_dirs, &memory).unwrap();
            assert_eq!(edits_in(&after, &report.files), all_edits(&edits), "sync point {n}");
            assert_eq!(edits_in(&after, &named_files(&after)), all_edits(&edits), "sync point {n}");
        }
    }
}

/// Where damage is passed over, another reading must find what the first one has found. It may read another replica of a block.
#[test]
fn what_is_read_again_is_what_was_read() {
    let edits = mixed();
    let fs_with_damage = || {
        let fs = SimFileSystem::hdfs(1);
        log_with(&fs, &edits);
        let log = logs_in(&common::env(&fs), Path::new(LOG_DIR)).unwrap().remove(0);
        let mut bytes = fs.read(&log).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs.replace(&log, &bytes).unwrap();
        (fs, log)
    };
    let split = |fs: &SimFileSystem, log: &Path, memory: &SplitMemory, between: &(dyn Fn() + Sync)| {
        let is_first = AtomicBool::new(true);
        let each = |count: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)| {
            // So many are complete only when the log has been read.
            if count > 2 && is_first.swap(false, Ordering::Relaxed) {
                between();
            }
            (0..count).try_for_each(work)
        };
        let none = |_: &[u8]| Flushed::default();
        let logs = vec![log.to_path_buf()];
        let on_damage = OnDamage::PassOver;
        split_what_is_needed(&common::env(fs), logs, &to_edits_dirs, &none, &each, on_damage, memory)
    };
    let (fs, log) = fs_with_damage();
    let report = split(&fs, &log, &SplitMemory::new(0, 1), &|| {}).unwrap();
    let found = edits_in(&fs, &report.files);
    let ample = split(&fs, &log, &SplitMemory::of_one(), &|| {}).unwrap();
    assert_eq!((report.damaged.len(), &report.damaged), (1, &ample.damaged));
    assert_eq!((report.entries, &report.torn), (ample.entries, &ample.torn));
    assert_eq!(found, edits_in(&fs, &ample.files));
    assert!(found.len() < edits.len());
    // The damage is gone, and as many entries are readable as before, but not the same ones.
    for flips in [vec![2], vec![2, 8]] {
        let (fs, log) = fs_with_damage();
        let change = || {
            let mut bytes = fs.read(&log).unwrap();
            let len = bytes.len();
            flips.iter().for_each(|part| bytes[len / part] ^= 1);
            fs.replace(&log, &bytes).unwrap();
        };
        let error = split(&fs, &log, &SplitMemory::new(0, 1), &change).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.message().contains("read again"), "{error}");
        assert_eq!(named_files(&fs), Vec::<PathBuf>::new());
    }
}
