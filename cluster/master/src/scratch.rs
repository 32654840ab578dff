//! Directories of this master alone, which the next one takes away before it runs a procedure.
//!
//! ```text
//! MasterData/scratch/<epoch>-<master>/            through it goes what this master removes or replaces (`halcyon-servers`, `permitted_fs.rs`)
//! .hbase-snapshot/.tmp/<epoch>-<master>/<name>    snapshots that are being made or deleted
//! ```
//!
//! If somebody else has removed one of them, a directory of the same name with a random end takes its place.
//!
//! A master that is deposed asks its lease before each change of a file. A request that it had sent before may hang in the NameNode's queue
//! and be carried out when its successor has made another table or snapshot of that name. A rename into, or out of, a directory that is
//! gone comes to nothing.

use std::path::{Path, PathBuf};

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::{Env, random_bytes};
use halcyon_schema::{ServerName, layout};
use tracing::{info, warn};

use crate::archive;
use crate::descriptors::list;
use crate::procedure;
use crate::state::MasterState;

/// Of a master's directories. Names of later masters come later.
pub(crate) fn own_name(epoch: u64, server: &ServerName) -> String {
    format!("{epoch:016}-{server}")
}

fn all_dir(root: &Path) -> PathBuf {
    layout::master_dir(root).join("scratch")
}

fn snapshots_tmp(root: &Path) -> PathBuf {
    layout::snapshots_dir(root).join(".tmp")
}

/// Makes the directory of this master. For its process, before it starts. May run twice.
pub fn make_scratch_dir(env: &Env, root: &Path, epoch: u64, server: &ServerName) -> Result<PathBuf> {
    let dir = all_dir(root).join(own_name(epoch, server));
    env.fs.create_dir_all(&dir)?;
    Ok(dir)
}

/// Where a master that starts makes and deletes snapshots.
pub(crate) fn first_snapshots_dir(root: &Path, epoch: u64, server: &ServerName) -> PathBuf {
    snapshots_tmp(root).join(own_name(epoch, server))
}

/// Makes the directory for snapshots, when a master starts.
pub(crate) fn make_snapshots_dir(core: &MasterState) -> Result<()> {
    Ok(core.env.fs.create_dir_all(&core.own_snapshots_dir.lock())?)
}

/// Where this master makes and deletes snapshots. People empty `.tmp` after exports that have failed, and so do HBase's masters: then
/// another directory takes its place. `Expired` if a later master has taken it away: what this one would move there could be another
/// snapshot of the name by now. A directory that was made is of another name each time: a late request to make it cannot give a late rename
/// its target.
pub(crate) fn snapshots_dir(core: &MasterState) -> Result<PathBuf> {
    let fs = &*core.env.fs;
    let now = &mut *core.own_snapshots_dir.lock();
    if fs.exists(now)? {
        return Ok(now.clone());
    }
    check_not_followed(core)?;
    let name = own_name(core.settings.epoch, &core.settings.server_name);
    let unique = u128::from_be_bytes(random_bytes());
    let dir = snapshots_tmp(&core.root).join(format!("{name}-{unique:032x}"));
    warn!("{} was removed by somebody; {} takes its place", now.display(), dir.display());
    fs.create_dir_all(&dir)?;
    // One that began meanwhile has taken the records first, and may have taken away before what was there then.
    if let Err(followed) = check_not_followed(core) {
        if let Err(error) = fs.remove_dir(&dir) {
            info!("{} is left to the next master: {error}", dir.display());
        }
        return Err(followed);
    }
    now.clone_from(&dir);
    Ok(dir)
}

fn check_not_followed(core: &MasterState) -> Result<()> {
    if procedure::are_records_kept(core) {
        return Ok(());
    }
    let text = "another master has taken the procedures: this one makes and deletes no snapshots";
    Err(Error::new(ErrorKind::Expired, text))
}

/// Takes the directories of all other masters away. They were deposed, or have ended.
pub(crate) fn remove_others(core: &MasterState) -> Result<()> {
    let (fs, own) = (&*core.env.fs, own_name(core.settings.epoch, &core.settings.server_name));
    for all in [all_dir(&core.root), snapshots_tmp(&core.root)] {
        for entry in list(fs, &all)?.into_iter().filter(|entry| entry.is_dir && entry.name != own) {
            archive::remove_dir(fs, &all.join(entry.name))?;
        }
    }
    Ok(())
}
