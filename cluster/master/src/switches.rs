//! Things an operator turns on and off, kept as text in `MasterData/switches`.

use std::path::{Path, PathBuf};

use halcyon_cell::{Error, Result};
use halcyon_env::Env;
use halcyon_schema::layout;

/// The switches, by the words of the file. The defaults are HBase's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    Balancer,
    Normalizer,
    CatalogJanitor,
    CleanerChore,
    Split,
    Merge,
    SnapshotCleanup,
    RpcThrottle,
    ExceedThrottleQuota,
    ReplicationPeerModification,
}

const ALL: [(Switch, &str, bool); 10] = [
    (Switch::Balancer, "balancer", true),
    (Switch::Normalizer, "normalizer", true),
    (Switch::CatalogJanitor, "catalog_janitor", true),
    (Switch::CleanerChore, "cleaner_chore", true),
    (Switch::Split, "split", true),
    (Switch::Merge, "merge", true),
    (Switch::SnapshotCleanup, "snapshot_cleanup", true),
    (Switch::RpcThrottle, "rpc_throttle", true),
    (Switch::ExceedThrottleQuota, "exceed_throttle_quota", false),
    (Switch::ReplicationPeerModification, "replication_peer_modification", true),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Switches {
    on: [bool; ALL.len()],
}

impl Switches {
    pub(crate) fn load(env: &Env, root: &Path) -> Result<Switches> {
        let mut switches = Switches { on: ALL.map(|(_, _, default)| default) };
        let path = file(root);
        if !env.fs.exists(&path) {
            return Ok(switches);
        }
        let bytes = env.fs.read(&path)?;
        let wrong = |line: &str| Error::corrupt(format!("{}: cannot read '{line}'", path.display()));
        let text = std::str::from_utf8(&bytes).map_err(|error| wrong(&error.to_string()))?;
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (word, value) = line.split_once('=').ok_or_else(|| wrong(line))?;
            // A word that is not known comes from a newer version, and changes nothing here.
            if let Some(at) = ALL.iter().position(|(_, name, _)| *name == word) {
                switches.on[at] = value.parse().map_err(|_| wrong(line))?;
            }
        }
        Ok(switches)
    }

    pub(crate) fn save(&self, env: &Env, root: &Path) -> Result<()> {
        let lines: String =
            ALL.iter().zip(self.on).map(|((_, name, _), on)| format!("{name}={on}\n")).collect();
        Ok(env.fs.replace(&file(root), lines.as_bytes())?)
    }

    pub(crate) fn get(&self, switch: Switch) -> bool {
        self.on[switch as usize]
    }

    /// Returns the value before.
    pub(crate) fn set(&mut self, switch: Switch, on: bool) -> bool {
        std::mem::replace(&mut self.on[switch as usize], on)
    }
}

fn file(root: &Path) -> PathBuf {
    layout::master_dir(root).join("switches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (at, (switch, _, _)) in ALL.iter().enumerate() {
            assert_eq!(*switch as usize, at);
        }
    }
}
