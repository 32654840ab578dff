//! Changes of names, with answers that are certain.
//!
//! An answer may be lost after the NameNode has done what was asked. A change is therefore asked for again until the
//! NameNode answers. What it then refuses may be refused because the first request has done it; the names tell.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halcyon_env::in_doubt;
use hdfs_native::Client;
use hdfs_native::client::{FileStatus, RepeatedCall};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::file_system::text;

pub(crate) const DIRECTORY_PERMISSION: u32 = 0o755;
/// So long what nobody needs is tried to be removed, with these pauses.
const BACKGROUND: Duration = Duration::from_secs(600);
const BACKGROUND_PAUSE: Duration = Duration::from_secs(1);

/// The file or directory of this name, if there is one.
pub(crate) fn status(cluster: &Cluster, name: &str) -> Result<Option<FileStatus>, Failure> {
    let name = name.to_string();
    let answer = cluster.ask(move |client| {
        let name = name.clone();
        async move { client.get_file_info(&name).await }
    });
    match answer {
        Ok(status) => Ok(Some(status)),
        // A file stands where a directory would have to be.
        Err(failure) if matches!(failure.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Moves a file or directory. Without `overwrite` a file at `to` is an error.
pub(crate) fn rename(cluster: &Cluster, from: &Path, to: &Path, overwrite: bool) -> io::Result<()> {
    let what = format!("cannot be renamed to {}", to.display());
    let failed = |failure: Failure| failure.into_io(from, &what, cluster.address());
    if from != to && to.starts_with(from) {
        let text = format!("{} {what}: that is below itself", from.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let (source, target) = (text(from)?, text(to)?);
    let mut attempts = cluster.attempts();
    let mut may_be_done = false;
    let call = RepeatedCall::new();
    loop {
        let (a, b) = (source.clone(), target.clone());
        let ask = move |client: Client| async move { client.rename(&a, &b, overwrite).await };
        let failure = match cluster.attempt(call, ask) {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        may_be_done |= failure.is_ambiguous();
        if may_be_done && is_moved(cluster, &source, &target).map_err(|failure| in_doubt(failed(failure)))? {
            return Ok(());
        }
        if !failure.may_pass() || !attempts.pause() {
            let error = failed(failure);
            // An earlier request may still be on its way.
            return Err(if may_be_done { in_doubt(error) } else { error });
        }
    }
}

fn is_moved(cluster: &Cluster, source: &str, target: &str) -> Result<bool, Failure> {
    Ok(status(cluster, source)?.is_none() && status(cluster, target)?.is_some())
}

/// Removes a file. Its attempts are one call for the NameNode (`Cluster::ask`), so none of them removes a later file of its name.
pub(crate) fn remove(cluster: &Cluster, path: &Path) -> io::Result<()> {
    let name = text(path)?;
    check_kind(cluster, path, &name, false)?;
    // Somebody else may have removed it since: then it is gone as well.
    remove_all(cluster, &name).map_err(|failure| remove_failed(cluster, path, failure))
}

/// Removes a directory with all below it. `own` is part of a name that nobody else takes.
///
/// The directory is moved into a directory of its own first, and that is removed. A request that hangs at the NameNode, after
/// its caller has gone on, would otherwise remove the next directory of the same name: that of a table which was
/// dropped and created again. Here a late removal finds nothing of its name, and a late rename no directory to move into.
pub(crate) fn remove_dir(cluster: &Arc<Cluster>, path: &Path, own: &str) -> io::Result<()> {
    let name = text(path)?;
    check_kind(cluster, path, &name, true)?;
    let Some(last) = path.file_name() else {
        let text = format!("{} cannot be removed: it is no directory of its own", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    // Not made of the directory's name: that may be as long as a name can be. It is kept below.
    let own = path.with_file_name(format!(".{own}.removed"));
    let own_name = text(&own)?;
    match make_dir(cluster, &own_name) {
        Ok(()) => {}
        // Nothing can be made below this parent, whatever the reason, but things can be removed.
        Err(Failure::Refused(error)) => {
            tracing::debug!("{own_name} is not made: {error}; {name} is removed where it is");
            return remove_all(cluster, &name).map_err(|failure| remove_failed(cluster, path, failure));
        }
        Err(failure) => {
            if failure.is_ambiguous() {
                remove_in_background(cluster, own_name);
            }
            return Err(remove_failed(cluster, path, failure));
        }
    }
    let moved = rename(cluster, path, &own.join(last), false);
    if moved.is_ok() && remove_all(cluster, &own_name).is_ok() {
        return Ok(());
    }
    // What was moved is gone from its name. If it was not, the directory is empty.
    remove_in_background(cluster, own_name);
    moved
}

/// The error if there is nothing of that name, or something else.
fn check_kind(cluster: &Cluster, path: &Path, name: &str, is_dir: bool) -> io::Result<()> {
    let (kind, why) = match status(cluster, name)
        .map_err(|failure| failure.into_io(path, "cannot be removed", cluster.address()))?
    {
        None => (io::ErrorKind::NotFound, "there is nothing of that name"),
        Some(status) if status.isdir && !is_dir => (io::ErrorKind::IsADirectory, "it is a directory"),
        Some(status) if !status.isdir && is_dir => (io::ErrorKind::NotADirectory, "it is a file"),
        Some(_) => return Ok(()),
    };
    Err(io::Error::new(kind, format!("{} cannot be removed: {why}", path.display())))
}

fn remove_failed(cluster: &Cluster, path: &Path, failure: Failure) -> io::Error {
    failure.into_change_io(path, "cannot be removed", cluster.address())
}

/// Makes a directory, once: see [`Cluster::ask_until_in_doubt`].
pub(crate) fn make_dir(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    cluster.ask_until_in_doubt(move |client| {
        let name = name.to_string();
        async move { client.mkdirs(&name, DIRECTORY_PERMISSION, false).await }
    })
}

fn remove_all(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let removed = cluster.ask(move |client| {
        let name = name.to_string();
        async move { client.delete(&name, true).await }
    });
    removed.map(|_| ())
}

/// Removes what nobody else takes the name of, beside the caller.
pub(crate) fn remove_in_background(cluster: &Arc<Cluster>, name: String) {
    let (weak, limit) = (Arc::downgrade(cluster), cluster.deadlines().namenode);
    cluster.spawn(async move {
        let end = Instant::now() + BACKGROUND;
        while Instant::now() < end {
            tokio::time::sleep(BACKGROUND_PAUSE).await;
            let Some(cluster) = weak.upgrade() else { return };
            let client = cluster.client();
            drop(cluster);
            if let Ok(Ok(_)) = tokio::time::timeout(limit, client.delete(&name, true)).await {
                return;
            }
        }
        tracing::warn!("{name} could not be removed within {BACKGROUND:?}; nothing needs it");
    });
}

/// Removes an empty directory by one request.
pub(crate) fn remove_empty_dir(cluster: &Cluster, path: &Path) -> io::Result<()> {
    let name = text(path)?;
    let answer = cluster.ask_once(move |client| async move { client.delete(&name, false).await });
    let failed = |failure: Failure| failure.into_change_io(path, "cannot be removed", cluster.address());
    if answer.map_err(failed)? {
        return Ok(());
    }
    let text = format!("{} cannot be removed: there is nothing of that name", path.display());
    Err(io::Error::new(io::ErrorKind::NotFound, text))
}
