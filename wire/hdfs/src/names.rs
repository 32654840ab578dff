//! Changes of names, with answers that are certain.
//!
//! An answer may be lost after the NameNode has done what was asked. A change is therefore asked for again until the
//! NameNode answers. What it then refuses may be refused because the first request has done it; the names tell.

use std::io;
use std::path::Path;

use halcyon_env::in_doubt;
use hdfs_native::client::FileStatus;

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::file_system::text;

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
    loop {
        let (a, b) = (source.clone(), target.clone());
        let failure =
            match cluster.ask_once(move |client| async move { client.rename(&a, &b, overwrite).await }) {
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

/// Removes a file (`is_dir` false), or a directory with all below it.
pub(crate) fn remove(cluster: &Cluster, path: &Path, is_dir: bool) -> io::Result<()> {
    let failed = |failure: Failure| failure.into_io(path, "cannot be removed", cluster.address());
    let refused =
        |kind, why| Err(io::Error::new(kind, format!("{} cannot be removed: {why}", path.display())));
    let name = text(path)?;
    match status(cluster, &name).map_err(failed)? {
        None => return refused(io::ErrorKind::NotFound, "there is nothing of that name"),
        Some(status) if status.isdir && !is_dir => {
            return refused(io::ErrorKind::IsADirectory, "it is a directory");
        }
        Some(status) if !status.isdir && is_dir => {
            return refused(io::ErrorKind::NotADirectory, "it is a file");
        }
        Some(_) => {}
    }
    // Somebody else may have removed it since: then it is gone as well.
    let answer = cluster.ask(move |client| {
        let name = name.clone();
        async move { client.delete(&name, is_dir).await }
    });
    answer.map(|_| ()).map_err(|failure| failure.into_change_io(path, "cannot be removed", cluster.address()))
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
