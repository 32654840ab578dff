//! Directories of this master alone, which the next one takes away before it runs a procedure.
//!
//! ```text
//! MasterData/scratch/<epoch>-<master>/            through it goes what this master removes or replaces (`halcyon-servers`, `permitted_fs.rs`)
//! .hbase-snapshot/.tmp/<epoch>-<master>/<name>    snapshots that are being made or deleted
//! ```
//!
//! A master that is deposed asks its lease before each change of a file. A request that it had sent before may hang in the NameNode's queue
//! and be carried out when its successor has made another table or snapshot of that name. A rename into, or out of, a directory that is
//! gone comes to nothing.

use std::path::{Path, PathBuf};

use halcyon_cell::Result;
use halcyon_env::Env;
use halcyon_schema::{ServerName, layout};

use crate::archive;
use crate::descriptors::list;
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

/// Where this master makes and deletes snapshots.
pub(crate) fn snapshots_dir(core: &MasterState) -> PathBuf {
    snapshots_tmp(&core.root).join(own_name(core.settings.epoch, &core.settings.server_name))
}

/// Makes the directory for snapshots, when a master starts. It must not come back after a later master has taken it away: then snapshots
/// that have the names of deleted ones by now would be deleted.
pub(crate) fn make_snapshots_dir(core: &MasterState) -> Result<()> {
    Ok(core.env.fs.create_dir_all(&snapshots_dir(core))?)
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
