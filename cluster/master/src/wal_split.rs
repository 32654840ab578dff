//! Recovers what a dead server has left: its WALs are taken from it, split by live servers, and archived.
//!
//! ```text
//! WALs/<dead>            -> WALs/<dead>-splitting      fenced: the dead server creates no file any more
//! <dead>-splitting/<wal> -> recovered edits            on live servers, which seal a WAL before they read it
//! <dead>-splitting/<wal> -> oldWALs/                   here, and the empty directory is removed
//! ```
//!
//! Each step may be repeated after a crash, and by another master at the same time.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{ClusterServices, SplitWal};
use halcyon_schema::{ServerName, layout};
use tracing::{info, warn};

use crate::descriptors::list;
use crate::members::Members;
use crate::parallel;
use crate::timeline::Timelines;

const SPLITTING: &str = "-splitting";
/// A server that needed so long and failed has waited for HDFS, which seals the WAL for another server no sooner. So no other one is asked
/// before the next attempt.
const LONG_NS: u64 = Duration::from_secs(10).as_nanos() as u64;
/// WALs of `hbase:meta` end so.
const META_WAL: &str = ".meta";

/// The WALs of a server that are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logs {
    /// Of `hbase:meta`: first, because nothing can be assigned without it.
    Meta,
    All,
}

/// What was split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) wals_count: usize,
    /// As the files are long when they are sealed.
    pub(crate) bytes: u64,
}

/// Takes the WALs from a server. `None` if it has left none. *Blocking*.
pub(crate) fn fence(cluster: &ClusterServices, server: &ServerName) -> Result<Option<PathBuf>> {
    let (env, root) = (&cluster.wals.env, &cluster.wals.root);
    let wals = layout::wals_dir(root);
    let (dir, splitting) = (wals.join(server.to_string()), wals.join(format!("{server}{SPLITTING}")));
    if env.fs.exists(&dir)? {
        // An empty one is what a recovery left that had no time to remove it.
        env.fs.rename_over(&dir, &splitting)?;
        env.fs.sync_dir(&wals)?;
        info!(%server, "the WALs of a dead server are taken from it");
    }
    Ok(env.fs.exists(&splitting)?.then_some(splitting))
}

/// Begins to seal the WALs in a directory that was fenced, and does not wait. A WAL is sealed before it is split, which on HDFS takes
/// up to a heartbeat of a DataNode, for all WALs at the same time. So those that are split after others do not wait for it again.
///
/// The servers that split them seal them in any case: an error here is of no concern.
pub(crate) fn begin_sealing(cluster: &ClusterServices, dir: &Path, threads: usize) {
    let (cluster, dir) = (cluster.clone(), dir.to_path_buf());
    let seal = move || {
        let wals = names(&cluster, &dir).unwrap_or_default().into_iter().map(|name| dir.join(name)).collect();
        let fs = cluster.wals.env.fs.clone();
        let sealed = parallel::for_each(threads, wals, move |wal: PathBuf| Ok(fs.seal(&wal)?));
        if let Err(error) = sealed {
            info!(%error, "a WAL of a dead server is sealed when it is split");
        }
    };
    if let Err(error) = halcyon_env::spawn_thread("master-seals", seal) {
        info!(%error, "the WALs of a dead server are sealed when they are split");
    }
}

/// Splits the WALs in a directory that was fenced, on at most `threads` at a time. Those that are split leave it.
pub(crate) fn split(
    cluster: &ClusterServices,
    members: &Arc<Members>,
    dir: &Path,
    logs: Logs,
    threads: usize,
) -> Result<Amount> {
    check_fenced(dir);
    let names = names(cluster, dir)?;
    members.keep_unsplit(dir, &names);
    let wanted: Vec<String> =
        names.into_iter().filter(|name| logs == Logs::All || name.ends_with(META_WAL)).collect();
    let (wals_count, dir_name) = (wanted.len(), dir.display());
    let (cluster, members, dir) = (cluster.clone(), Arc::clone(members), dir.to_path_buf());
    let bytes = parallel::for_each(threads, wanted, move |name| {
        let split = split_one(&cluster, &members, &dir, &name);
        let wal = dir.join(&name);
        match &split {
            Ok(_) => members.forget_unsplit(&wal),
            Err(error) => members.note_unsplit(&wal, error),
        }
        // Whatever is wrong with it, the recovery waits: an operator may move it away.
        split.map_err(|error| match error.kind().is_permanent() {
            true => Error::new(ErrorKind::Busy, error.message()),
            false => error,
        })
    })?;
    assert_eq!(bytes.len(), wals_count, "a WAL of {} is counted as split and was not", dir_name);
    Ok(Amount { wals_count, bytes: bytes.into_iter().sum() })
}

/// A WAL that its server can still add to must not be split: what came later would be in no region.
fn check_fenced(dir: &Path) {
    let name = dir.file_name().and_then(OsStr::to_str);
    assert!(
        name.is_some_and(|name| name.ends_with(SPLITTING)),
        "{} was not taken from its server",
        dir.display()
    );
}

/// Whether this is a WAL of a dead server, in the directory in which it is split.
pub(crate) fn is_of(wal: &Path, server: &ServerName) -> bool {
    let dir = wal.parent().and_then(Path::file_name);
    dir.and_then(OsStr::to_str).and_then(|dir| dir.strip_suffix(SPLITTING)) == Some(&*server.to_string())
}

/// Removes a directory whose WALs are all split. `Busy` if there is one left.
pub(crate) fn remove(cluster: &ClusterServices, dir: &Path) -> Result<()> {
    check_fenced(dir);
    if let Some(name) = names(cluster, dir)?.first() {
        return Err(Error::new(ErrorKind::Busy, format!("{}: {name} is not split", dir.display())));
    }
    let fs = &cluster.wals.env.fs;
    fs.remove_dir_all(dir)?;
    Ok(fs.sync_dir(&layout::wals_dir(&cluster.wals.root))?)
}

/// Takes the WALs from a server and splits all of them, those of `hbase:meta` first. The directory in which they were; `None` if it has
/// left none.
pub(crate) fn split_all(
    cluster: &ClusterServices,
    members: &Arc<Members>,
    server: &ServerName,
    threads: usize,
    timelines: &Timelines,
) -> Result<Option<PathBuf>> {
    let fenced = fence(cluster, server)?;
    members.depose(cluster, server)?;
    let Some(dir) = fenced else { return Ok(None) };
    timelines.fenced(server);
    let meta = split(cluster, members, &dir, Logs::Meta, threads)?;
    let others = split(cluster, members, &dir, Logs::All, threads)?;
    let (wals_count, bytes) = (meta.wals_count + others.wals_count, meta.bytes + others.bytes);
    timelines.split(server, wals_count, bytes);
    info!(%server, wals = wals_count, bytes, "the WALs of a dead server are split");
    Ok(Some(dir))
}

/// Ends the recovery of a server whose WALs are split; `dir` is where they were.
pub(crate) fn end(
    cluster: &ClusterServices,
    members: &Arc<Members>,
    server: &ServerName,
    dir: Option<&Path>,
) -> Result<()> {
    // Before the directory goes: where there is none, a master after this one finds nothing to wait for.
    members.wait_for_lease(cluster, server)?;
    if let Some(dir) = dir {
        remove(cluster, dir)?;
    }
    members.recovered(cluster, server);
    Ok(())
}

/// Whether there is still a WAL of `hbase:meta` of a server that was fenced, or should be.
pub(crate) fn has_meta_wal(cluster: &ClusterServices, server: &ServerName) -> Result<bool> {
    let Some(dir) = fence(cluster, server)? else { return Ok(false) };
    Ok(names(cluster, &dir)?.iter().any(|name| name.ends_with(META_WAL)))
}

fn names(cluster: &ClusterServices, dir: &Path) -> Result<Vec<String>> {
    let files = list(&*cluster.wals.env.fs, dir)?.into_iter().filter(|file| !file.is_dir);
    Ok(files.map(|file| file.name).collect())
}

/// Has one WAL split by some live server, and archives it; its length. Each server is asked once at most.
fn split_one(cluster: &ClusterServices, members: &Members, dir: &Path, name: &str) -> Result<u64> {
    let root = &cluster.wals.root;
    let wal = dir.join(name);
    let below = wal.strip_prefix(root).map_err(|_| Error::invalid(format!("{} is no WAL", wal.display())))?;
    // One that writes its WALs elsewhere finds none of the others', and HBase's takes that for a WAL that was split.
    let (mut left, clock) = (members.ready(cluster), &cluster.wals.env.clock);
    let mut last = Error::new(ErrorKind::Busy, "there is no region server to split WALs");
    // Those that have died meanwhile are not asked, and are not counted as having failed.
    while let Some(splitting) = members.begin_split(&wal, &left) {
        let server = &splitting.server;
        let count = left.len();
        left.retain(|other| other != server);
        assert!(left.len() < count, "{server} was asked before, and is asked again");
        let Some(api) = cluster.servers.get(server) else { continue };
        let begun_ns = clock.monotonic_ns();
        let error = match api.split_wal(below) {
            Ok(SplitWal::Done) => return archive(cluster, &wal, name),
            // Split before, and archived by another master since.
            Ok(SplitWal::NotFound) | Err(_) if !cluster.wals.env.fs.exists(&wal)? => return Ok(0),
            Ok(SplitWal::NotFound) => {
                let text = format!(
                    "{server} finds no {}, which is there: does it have the same hbase.wal.dir?",
                    wal.display()
                );
                Error::new(ErrorKind::Busy, text)
            }
            Err(error) => error,
        };
        warn!(wal = %wal.display(), %server, %error, "a server could not split a WAL");
        // One that has died has waited for nothing.
        let has_died = error.kind() == ErrorKind::Moved;
        if !has_died {
            members.note_failed_split(&wal, server);
        }
        last = error;
        if !has_died && clock.monotonic_ns().saturating_sub(begun_ns) >= LONG_NS {
            break;
        }
    }
    Err(last)
}

/// The length of the WAL, or 0 if it is archived already.
fn archive(cluster: &ClusterServices, wal: &Path, name: &str) -> Result<u64> {
    check_fenced(wal.parent().unwrap_or(wal));
    let fs = &cluster.wals.env.fs;
    let old_wals = layout::old_wals_dir(&cluster.wals.root);
    fs.create_dir_all(&old_wals)?;
    let mut bytes = 0;
    if fs.exists(wal)? {
        // For people, so an error is none. It is sealed, and its length final.
        bytes = fs.open(wal).and_then(|wal| wal.len()).unwrap_or(0);
        let target = old_wals.join(name);
        fs.rename(wal, &target).or_else(|error| fs.resolve_rename(wal, &target, error))?;
        fs.sync_dir(&old_wals)?;
    }
    Ok(bytes)
}
