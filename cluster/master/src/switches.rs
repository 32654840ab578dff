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
    ReplicationPeerModification,
    RpcThrottle,
}

const ALL: [(Switch, &str, bool); 9] = [
    (Switch::Balancer, "balancer", true),
    (Switch::Normalizer, "normalizer", true),
    (Switch::CatalogJanitor, "catalog_janitor", true),
    (Switch::CleanerChore, "cleaner_chore", true),
    (Switch::Split, "split", true),
    (Switch::Merge, "merge", true),
    (Switch::SnapshotCleanup, "snapshot_cleanup", true),
    (Switch::ReplicationPeerModification, "replication_peer_modification", true),
    (Switch::RpcThrottle, "rpc_throttle", true),
];

/// Those that HBase's master keeps in its region, by the names it has for them there.
const OF_HBASE: [(Switch, &str); 6] = [
    (Switch::Balancer, "load_balancer_on"),
    (Switch::Normalizer, "region_normalizer_on"),
    (Switch::Split, "split_enabled"),
    (Switch::Merge, "merge_enabled"),
    (Switch::SnapshotCleanup, "snapshot_cleanup_enabled"),
    (Switch::ReplicationPeerModification, "replication_peer_modification_on"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Switches {
    on: [bool; ALL.len()],
}

impl Switches {
    pub(crate) fn load(env: &Env, root: &Path) -> Result<Switches> {
        let mut switches = Switches { on: ALL.map(|(_, _, default)| default) };
        let path = file(root);
        if !env.fs.exists(&path)? {
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

    pub(crate) fn of_hbase(&self) -> impl Iterator<Item = (&'static str, bool)> {
        OF_HBASE.iter().map(|(switch, name)| (*name, self.get(*switch)))
    }

    /// Sets a switch by its name in HBase; one that is not known changes nothing.
    pub(crate) fn set_of_hbase(&mut self, name: &str, on: bool) {
        if let Some((switch, _)) = OF_HBASE.iter().find(|(_, known)| *known == name) {
            self.set(*switch, on);
        }
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
