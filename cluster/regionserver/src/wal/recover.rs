//! Splits the WALs of earlier servers: the edits of each region move to its `recovered.edits`.
//!
//! ```text
//! WALs/<dead>            -> WALs/<dead>-splitting                   the dead server cannot write any more
//! <dead>-splitting/*     -> data/../<region>/recovered.edits/*      durable before the next step
//! <dead>-splitting/*     -> oldWALs/                                the directory is removed
//! ```
//!
//! Each step may be repeated after a crash.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::{Env, Mutex, run_on_threads};
use halcyon_schema::{RegionInfo, ServerName, TableName, layout};
use halcyon_wal::{
    Flushed, FlushedOf, LogDamage, OnDamage, RECOVERED_EDITS_DIR, SplitMemory, logs_in, set_aside,
    split_log_files, split_what_is_needed,
};

/// Servers of which a starting server splits the WALs. The WALs of a live server must never be among them: it would lose
/// the file that it writes to, and writes that it acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predecessors {
    /// All that are found. Only for a process that has the lock of the root directory, so that no other server uses it.
    All,
    /// These, which are known to be gone. Somebody else splits the WALs of all others.
    These(Vec<ServerName>),
}

impl Predecessors {
    /// Whether a directory below `WALs` is of one of them.
    fn have(&self, dir_name: &str) -> bool {
        let server = dir_name.strip_suffix(SPLITTING).unwrap_or(dir_name);
        match self {
            Predecessors::All => true,
            Predecessors::These(names) => names.iter().any(|name| name.to_string() == server),
        }
    }
}

/// WALs of dead servers that are split at the same time. They share the memory for splits.
pub(crate) const SPLITS_COUNT: usize = 8;
/// Files of recovered edits of one log that are completed at the same time.
const THREADS_MAX: usize = 8;
const SPLITTING: &str = "-splitting";
const LEFT_LOGS: &str = "recovered.wals";
/// The setting that lets splits pass over damage.
pub(crate) const SKIP_ERRORS: &str = "hbase.hlog.split.skip.errors";

/// Splits the logs of these servers; *blocking*. Returns the number of logs. `wals` are the files that WALs are among, and
/// the root directory there; `env` and `root` those of the regions.
pub(crate) fn recover_logs(
    env: &Env,
    root: &Path,
    wals: (&Env, &Path),
    of: &Predecessors,
    on_damage: OnDamage,
) -> Result<usize> {
    let (wal_env, wal_root) = wals;
    let dir = layout::wals_dir(wal_root);
    wal_env.fs.create_dir_all(&dir)?;
    wal_env.fs.create_dir_all(&layout::old_wals_dir(wal_root))?;
    let mut count = 0;
    for entry in wal_env.fs.list(&dir)? {
        if entry.is_dir && of.have(&entry.name) {
            let dir = begin_splitting(wal_env, &dir, &entry.name)?;
            count += split(env, root, wals, &dir, on_damage)?;
        }
    }
    Ok(count)
}

/// Splits logs that stand in a region's own directory, where HBase's master brings its own when it starts, before it
/// replays them (`MasterRegion.REPLAY_EDITS_DIR`).
pub(crate) fn recover_left_logs(
    env: &Env,
    root: &Path,
    wals: (&Env, &Path),
    region: &RegionInfo,
    on_damage: OnDamage,
) -> Result<usize> {
    let (wal_env, wal_root) = wals;
    let dir = region.dir(wal_root).join(LEFT_LOGS);
    if wal_env.fs.exists(&dir)? { split(env, root, wals, &dir, on_damage) } else { Ok(0) }
}

/// For whoever knows of no region what its files have.
pub(crate) fn unknown(_: &[u8]) -> Flushed {
    Flushed::default()
}

/// Splits one log of a server that is gone, which stays where it is. *Blocking*. May be called again for the same log.
/// `wals` are the files that WALs are among, and the root directory there. Edits that files have already are left out. With
/// [`OnDamage::PassOver`] a damaged log is set aside when its readable entries are where they belong. `memory` is what splits share.
pub(crate) fn split_log(
    env: &Env,
    root: &Path,
    wals: (&Env, &Path),
    log: &Path,
    flushed_of: &FlushedOf<'_>,
    on_damage: OnDamage,
    memory: &SplitMemory,
) -> Result<()> {
    let (wal_env, wal_root) = wals;
    let destination = |encoded: &[u8], table: &[u8]| edits_dir(env, root, wal_root, encoded, table);
    let logs = vec![log.to_path_buf()];
    let split = split_what_is_needed(wal_env, logs, &destination, flushed_of, &on_threads, on_damage, memory);
    let report = split.map_err(|error| {
        explain(error, wal_root).context(format_args!("splitting the log {}", log.display()))
    })?;
    for damage in &report.damaged {
        set_log_aside(wal_env, wal_root, damage)?;
    }
    tracing::info!(
        log = %log.display(),
        torn = report.torn.len(),
        entries = report.entries,
        dropped = report.dropped,
        flushed = report.flushed,
        files = report.files.len(),
        "split a log of a server that is gone"
    );
    Ok(())
}

/// Moves a damaged log of a server that is gone to the directory `corrupt` of the root of WALs, and says in the server's log what is
/// lost with it. Returns its new path. May be called again. Whoever calls it has split the log, or gives up what is in it.
///
/// Replication and the cleaners of backups look in `oldWALs`, so they never see the file: what a split has brought to the regions is
/// neither sent to peers nor copied by an incremental backup.
pub(crate) fn set_log_aside(wal_env: &Env, wal_root: &Path, damage: &LogDamage) -> Result<PathBuf> {
    let to = set_aside(wal_env, &damage.path, &layout::corrupt_dir(wal_root))?;
    tracing::error!(
        to = %to.display(),
        "edits are lost with a damaged log, which was set aside: {damage}. What of it was not sent yet is sent to no replication \
         peer, and no incremental backup has it: compare the tables with their peers, and take a full backup"
    );
    Ok(to)
}

/// Of a damaged log, names the way on.
fn explain(error: Error, wal_root: &Path) -> Error {
    if error.kind() != ErrorKind::Corrupt {
        return error;
    }
    let corrupt = layout::corrupt_dir(wal_root);
    let way_on = format!(
        "with {SKIP_ERRORS} = true what can be read is taken, and the file is moved to {}",
        corrupt.display()
    );
    Error::new(ErrorKind::Corrupt, format!("{} ({way_on})", error.message()))
}

/// Completes files of recovered edits. On HDFS each waits for three DataNodes and four answers of the NameNode.
fn on_threads(count: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let run = || {
        while failed.lock().is_none() {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            if let Err(error) = work(at) {
                failed.lock().get_or_insert(error);
            }
        }
    };
    run_on_threads("edits", count.min(THREADS_MAX), &run);
    failed.into_inner().map_or(Ok(()), Err)
}

fn begin_splitting(env: &Env, wals: &Path, name: &str) -> Result<PathBuf> {
    let dir = wals.join(name);
    if name.ends_with(SPLITTING) {
        return Ok(dir);
    }
    let splitting = wals.join(format!("{name}{SPLITTING}"));
    // An empty one is what a split left that had no time to remove it.
    env.fs.rename_over(&dir, &splitting)?;
    env.fs.sync_dir(wals)?;
    Ok(splitting)
}

fn split(env: &Env, root: &Path, wals: (&Env, &Path), dir: &Path, on_damage: OnDamage) -> Result<usize> {
    let (wal_env, wal_root) = wals;
    let destination = |encoded: &[u8], table: &[u8]| edits_dir(env, root, wal_root, encoded, table);
    let one_by_one =
        |count: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)| (0..count).try_for_each(work);
    let logs = logs_in(wal_env, dir)?;
    let report = split_log_files(wal_env, logs, &destination, &one_by_one, on_damage).map_err(|error| {
        explain(error, wal_root).context(format_args!("splitting the logs of {}", dir.display()))
    })?;
    if !report.logs.is_empty() {
        tracing::info!(
            dir = %dir.display(),
            logs = report.logs.len(),
            torn = report.torn.len(),
            entries = report.entries,
            dropped = report.dropped,
            files = report.files.len(),
            "split the logs of a server that is gone"
        );
    }
    for damage in &report.damaged {
        set_log_aside(wal_env, wal_root, damage)?;
    }
    let old_wals = layout::old_wals_dir(wal_root);
    let is_damaged = |log: &&PathBuf| report.damaged.iter().any(|damage| damage.path == **log);
    for log in report.logs.iter().filter(|log| !is_damaged(log)) {
        let name = log.file_name().expect("a log has a name");
        let target = old_wals.join(name);
        wal_env.fs.rename(log, &target).or_else(|error| wal_env.fs.resolve_rename(log, &target, error))?;
    }
    wal_env.fs.sync_dir(&old_wals)?;
    let left = remove_emptied(wal_env, dir)?;
    if !left.is_empty() {
        // A log that has appeared since is split by the next start.
        tracing::warn!(dir = %dir.display(), ?left, "a directory of logs has others in it, and stays");
    }
    wal_env.fs.sync_dir(dir.parent().expect("logs lie in a directory of some other"))?;
    Ok(report.logs.len())
}

/// Removes a directory whose logs have all left it. Whatever else is there was not split, and is not removed: its names.
pub(crate) fn remove_emptied(env: &Env, dir: &Path) -> Result<Vec<String>> {
    let entries = env.fs.list(dir)?;
    // Files that had not become logs when their server died.
    for unborn in entries.iter().filter(|entry| !entry.is_dir && entry.name.starts_with('.')) {
        env.fs.remove_file(&dir.join(&unborn.name))?;
    }
    match env.fs.remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            Ok(env.fs.list(dir)?.into_iter().map(|entry| entry.name).collect())
        }
        removed => Ok(removed.map(|()| Vec::new())?),
    }
}

/// Where the edits of a region go, below the root of WALs; `None` if the region is gone from the root directory. An error
/// if that cannot be told: edits of a region that is there must not be dropped.
fn edits_dir(
    env: &Env,
    root: &Path,
    wal_root: &Path,
    encoded: &[u8],
    table: &[u8],
) -> Result<Option<PathBuf>> {
    let (Ok(table), Ok(encoded)) = (TableName::parse(table), std::str::from_utf8(encoded)) else {
        return Ok(None); // no region has such a name
    };
    let dir = layout::region_dir(root, &table, encoded);
    let wal_dir = layout::region_dir(wal_root, &table, encoded);
    Ok(env.fs.exists(&dir)?.then(|| wal_dir.join(RECOVERED_EDITS_DIR)))
}

#[cfg(test)]
mod tests {
    use halcyon_cell::{Cell, SeqId};
    use halcyon_env::FileSystem;
    use halcyon_env::sim::{CrashMode, Fault, Operation, SimFileSystem};
    use halcyon_testkit::for_each_seed;
    use halcyon_wal::{Durability, Wal, WalConfig, WalEntry};

    use super::*;

    const ROOT: &str = "/hbase";
    const REGION: &str = "0123456789abcdef0123456789abcdef";

    /// What a server leaves that died with one edit in the log of this name.
    fn dead_server(fs: &SimFileSystem, log: &str) -> SimFileSystem {
        let root = Path::new(ROOT);
        let env = fs.env();
        env.fs.create_dir_all(&layout::region_dir(root, &TableName::parse(b"t").unwrap(), REGION)).unwrap();
        let dir = layout::wals_dir(root).join("host,1,1");
        let wal = Wal::open(env, WalConfig::new(dir, layout::old_wals_dir(root), log)).unwrap();
        let cell = Cell::put(b"row", b"f", b"q", 1, b"value");
        let entry = WalEntry {
            region: REGION.as_bytes(),
            table: b"t",
            seq: SeqId::new(7),
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &[],
            cells: &[cell.get()],
        };
        wal.append(&entry, Durability::FsyncWal, Box::new(|_| {})).unwrap();
        wal.drive();
        fs.crash(CrashMode::Keep, 1)
    }

    fn names(fs: &SimFileSystem, dir: &Path) -> Vec<String> {
        fs.list(dir).unwrap_or_default().into_iter().map(|entry| entry.name).collect()
    }

    /// Edits were dropped and their log archived when the question whether their region exists failed.
    #[test]
    fn edits_are_kept_while_their_region_is_in_doubt() {
        let (fs, root) = (dead_server(&SimFileSystem::new(), "host%2C1%2C1"), Path::new(ROOT));
        let region = layout::region_dir(root, &TableName::parse(b"t").unwrap(), REGION);
        fs.inject(Fault::new(Operation::Exists, REGION));
        recover_logs(&fs.env(), root, (&fs.env(), root), &Predecessors::All, OnDamage::Refuse).unwrap_err();
        assert_eq!(fs.faults_hit(), 1);
        assert!(names(&fs, &layout::old_wals_dir(root)).is_empty(), "the log is not done with");
        assert_eq!(
            recover_logs(&fs.env(), root, (&fs.env(), root), &Predecessors::All, OnDamage::Refuse).unwrap(),
            1
        );
        assert_eq!(names(&fs, &region.join(RECOVERED_EDITS_DIR)).len(), 1);
    }

    /// As above, with any question or change of the split disturbed, until it succeeds. Beside it a server lives on.
    #[test]
    fn a_split_that_is_disturbed_loses_nothing() {
        let test = "-p halcyon-regionserver --lib wal::recover::tests::a_split_that_is_disturbed";
        for_each_seed(test, 0..100, |seed| {
            let (fs, root) = (dead_server(&SimFileSystem::hdfs(seed), "host%2C1%2C1"), Path::new(ROOT));
            let live_dir = layout::wals_dir(root).join("live,1,1");
            let live = WalConfig::new(live_dir.clone(), layout::old_wals_dir(root), "live%2C1%2C1");
            let live = Wal::open(fs.env(), live).unwrap();
            let of = Predecessors::These(vec![ServerName::new("host", 1, 1)]);
            fs.disturb(6);
            let recovered = (0..400)
                .find(|_| recover_logs(&fs.env(), root, (&fs.env(), root), &of, OnDamage::Refuse).is_ok());
            assert!(recovered.is_some(), "seed {seed}: the split does not succeed");
            fs.clear_faults();
            fs.deliver_late();
            let region = layout::region_dir(root, &TableName::parse(b"t").unwrap(), REGION);
            let mut edits = names(&fs, &region.join(RECOVERED_EDITS_DIR));
            edits.retain(|name| !name.ends_with(halcyon_wal::TEMPORARY_SUFFIX));
            assert_eq!(edits, ["0000000000000000007"], "seed {seed}");
            assert_eq!(names(&fs, &layout::wals_dir(root)), ["live,1,1"], "seed {seed}");
            live.roll().unwrap();
            assert!(!names(&fs, &live_dir).is_empty() && live.stopped().is_none(), "seed {seed}");
        });
    }

    #[test]
    fn each_piece_of_work_is_done_once_and_the_first_error_ends_it() {
        for count in [0, 1, 2, THREADS_MAX, 100] {
            let done: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            let once = |at: usize| {
                done[at].fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            on_threads(count, &once).unwrap();
            assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1), "{count}");
        }
        let begun = AtomicUsize::new(0);
        let failed = on_threads(10_000, &|at| {
            begun.fetch_add(1, Ordering::Relaxed);
            if at == 5 { Err(halcyon_cell::Error::invalid("five")) } else { Ok(()) }
        });
        assert_eq!(failed.unwrap_err().message(), "five");
        assert!(begun.into_inner() < 10_000, "the others are not begun");
    }

    /// With `hbase.wal.dir` the edits go below that, if their region is in the root directory.
    #[test]
    fn edits_stay_below_the_root_of_wals() {
        let (fs, wals) = (dead_server(&SimFileSystem::new(), "host%2C1%2C1"), Path::new("/wals"));
        let (env, root, table) = (fs.env(), Path::new(ROOT), TableName::parse(b"t").unwrap());
        let log_dir = layout::wals_dir(wals).join("host,1,1-splitting");
        fs.create_dir_all(log_dir.parent().unwrap()).unwrap();
        fs.rename(&layout::wals_dir(root).join("host,1,1"), &log_dir).unwrap();
        let log = log_dir.join(&names(&fs, &log_dir)[0]);
        split_log(&env, root, (&env, wals), &log, &unknown, OnDamage::Refuse, &SplitMemory::of_one())
            .unwrap();
        let edits =
            |root: &Path| names(&fs, &layout::region_dir(root, &table, REGION).join(RECOVERED_EDITS_DIR));
        assert_eq!((edits(wals).len(), edits(root).len()), (1, 0));
        fs.remove_dir_all(&layout::region_dir(root, &table, REGION)).unwrap();
        fs.remove_dir_all(&layout::region_dir(wals, &table, REGION)).unwrap();
        split_log(&env, root, (&env, wals), &log, &unknown, OnDamage::Refuse, &SplitMemory::of_one())
            .unwrap();
        assert!(edits(wals).is_empty(), "the region is gone");
    }

    /// WALs and edits may be among other files than the regions.
    #[test]
    fn wals_of_another_file_system_are_split_there() {
        let (fs, wals) = (SimFileSystem::new(), dead_server(&SimFileSystem::new(), "host%2C1%2C1"));
        let (root, wal_root, table) = (Path::new("/root"), Path::new(ROOT), TableName::parse(b"t").unwrap());
        fs.create_dir_all(&layout::region_dir(root, &table, REGION)).unwrap();
        let apart = (&wals.env(), wal_root);
        assert_eq!(recover_logs(&fs.env(), root, apart, &Predecessors::All, OnDamage::Refuse).unwrap(), 1);
        let edits = layout::region_dir(wal_root, &table, REGION).join(RECOVERED_EDITS_DIR);
        assert_eq!(names(&wals, &edits).len(), 1);
        assert_eq!(names(&wals, &layout::old_wals_dir(wal_root)).len(), 1);
        assert!(names(&wals, &layout::wals_dir(wal_root)).is_empty());
        assert!(names(&fs, &layout::region_dir(root, &table, REGION)).is_empty());
        assert_eq!(recover_logs(&fs.env(), root, apart, &Predecessors::All, OnDamage::Refuse).unwrap(), 0);
    }

    /// A WAL that could not be looked at was left out of the list, and the directory was removed with it, unread.
    #[test]
    fn a_log_that_is_not_listed_is_not_removed() {
        let (fs, root) = (dead_server(&SimFileSystem::new(), "host%2C1%2C1"), Path::new(ROOT));
        let (env, of) = (fs.env(), Predecessors::All);
        let recover = || recover_logs(&env, root, (&env, root), &of, OnDamage::Refuse);
        fs.inject(Fault::new(Operation::Entry, "host%2C1%2C1."));
        recover().unwrap_err();
        assert_eq!(fs.faults_hit(), 1);
        // Whatever else is there stays; what never became a log does not.
        let dir = layout::wals_dir(root).join("host,1,1-splitting");
        fs.create_dir_all(&dir.join("other")).unwrap();
        fs.put_new(&dir.join(".host%2C1%2C1.7.tmp"), b"").unwrap();
        assert_eq!(recover().unwrap(), 1);
        assert_eq!(names(&fs, &dir), ["other"]);
        fs.remove_dir(&dir.join("other")).unwrap();
        assert_eq!(recover().unwrap(), 0);
        assert!(names(&fs, &layout::wals_dir(root)).is_empty());
    }

    /// The start was refused with the place of the damage, and no way on was offered.
    #[test]
    fn a_damaged_log_is_set_aside_if_that_is_wanted() {
        let (fs, root) = (SimFileSystem::new(), Path::new(ROOT));
        let table = TableName::parse(b"t").unwrap();
        let edits = layout::region_dir(root, &table, REGION).join(RECOVERED_EDITS_DIR);
        let damaged_server = |start: &str| {
            let left = dead_server(&fs, &format!("host%2C1%2C{start}"));
            let dir = layout::wals_dir(root).join("host,1,1");
            let log = dir.join(names(&left, &dir).pop().unwrap());
            let mut bytes = left.read(&log).unwrap();
            bytes[0] ^= 1;
            left.replace(&log, &bytes).unwrap();
            (left, log.file_name().unwrap().to_string_lossy().into_owned())
        };
        let (fs, name) = damaged_server("1");
        let env = fs.env();
        let recover = |on_damage| recover_logs(&env, root, (&env, root), &Predecessors::All, on_damage);
        let error = recover(OnDamage::Refuse).unwrap_err();
        assert!(
            error.message().contains(SKIP_ERRORS) && error.message().contains("/hbase/corrupt"),
            "{error}"
        );
        assert_eq!(recover(OnDamage::PassOver).unwrap(), 1);
        assert_eq!(names(&fs, &layout::corrupt_dir(root)), [name]);
        assert!(names(&fs, &layout::old_wals_dir(root)).is_empty() && names(&fs, &edits).is_empty());
        assert!(names(&fs, &layout::wals_dir(root)).is_empty());
        assert_eq!(recover(OnDamage::Refuse).unwrap(), 0);
    }

    /// A starting server split the WALs of all servers, also of those that were running.
    #[test]
    fn wals_of_other_servers_are_left_alone() {
        let (fs, root) = (dead_server(&SimFileSystem::new(), "host%2C1%2C1"), Path::new(ROOT));
        let wals = layout::wals_dir(root);
        let before = fs.dump();
        let others = vec![ServerName::new("host", 1, 2), ServerName::new("other", 1, 1)];
        for of in [Predecessors::These(Vec::new()), Predecessors::These(others)] {
            assert_eq!(recover_logs(&fs.env(), root, (&fs.env(), root), &of, OnDamage::Refuse).unwrap(), 0);
            assert_eq!(fs.dump(), before);
        }
        // A split that was cut off goes on under the other name.
        fs.rename(&wals.join("host,1,1"), &wals.join("host,1,1-splitting")).unwrap();
        let of = Predecessors::These(vec![ServerName::new("host", 1, 1)]);
        assert_eq!(recover_logs(&fs.env(), root, (&fs.env(), root), &of, OnDamage::Refuse).unwrap(), 1);
        assert!(names(&fs, &wals).is_empty());
    }
}
