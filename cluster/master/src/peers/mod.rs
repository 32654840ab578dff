//! Peers: clusters that get the edits of this one (HBase: `ReplicationPeerManager`).
//!
//! A change is a procedure (`procedure/change_peer.rs`): the queue begins, the peer is written (`halcyon_schema::peer_files`), and
//! the region servers are told. `check.rs` says what is refused.

pub(crate) mod barriers;
mod check;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use halcyon_cell::Result;
use halcyon_contract::{PeerDescription, ReplicationSources};
use halcyon_env::{DirEntry, RwLock};
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::peer_files as files;
use tracing::{error, warn};

use crate::descriptors::list;
use crate::errors;
use crate::state::MasterState;

pub(crate) use check::{check_config, check_id, check_update, not_found};

/// As they are on disk: they are written there first.
#[derive(Default)]
pub(crate) struct Peers {
    by_id: RwLock<BTreeMap<String, PeerDescription>>,
}

impl Peers {
    pub(crate) fn get(&self, id: &str) -> Option<PeerDescription> {
        self.by_id.read().get(id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<PeerDescription> {
        self.by_id.read().values().cloned().collect()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.by_id.read().keys().cloned().collect()
    }
}

/// Reads the peers, and has their edits sent. A peer that cannot be obeyed keeps its WALs, and so does one of those that are `being_added`:
/// the end of its addition says what it does not get.
pub(crate) fn load(core: &MasterState, being_added: &HashSet<String>) -> Result<()> {
    for mut peer in files::load_all(&core.env, &core.root)? {
        if complete(&mut peer.config, &core.settings.peer_base_config) {
            files::write(&core.env, &core.root, &peer)?;
        }
        match &core.cluster.replication {
            Some(_) if being_added.contains(&peer.id) => {}
            Some(sources) => {
                if let Err(error) = sources.peer_found(&peer) {
                    warn!(peer = peer.id, %error, "nothing is sent to a peer; its WALs are kept");
                }
            }
            None => warn!(
                peer = peer.id,
                "nothing is sent to a peer: this server has no sources; all WALs are kept"
            ),
        }
        core.peers.by_id.write().insert(peer.id.clone(), peer);
    }
    Ok(())
}

/// Gives a configuration what each has; whether that has changed it (HBase: `updateReplicationBasePeerConfigs`).
pub(crate) fn complete(config: &mut pb::ReplicationPeer, base: &str) -> bool {
    let before = config.configuration.clone();
    for (name, value) in base.split(';').filter_map(|pair| pair.split_once('=')) {
        let (name, value) = (name.trim(), value.trim());
        if config.configuration.iter().any(|pair| pair.name == name && pair.value == value) {
            continue;
        }
        config.configuration.retain(|pair| pair.name != name);
        if !value.is_empty() {
            config
                .configuration
                .push(pb::NameStringPair { name: name.to_string(), value: value.to_string() });
        }
    }
    config.configuration != before
}

/// Makes a peer what the description says, on disk and in memory. May run twice.
pub(crate) fn write(core: &MasterState, peer: &PeerDescription) -> Result<()> {
    files::write(&core.env, &core.root, peer)?;
    core.peers.by_id.write().insert(peer.id.clone(), peer.clone());
    Ok(())
}

/// Removes a peer on disk and in memory. May run twice.
pub(crate) fn remove(core: &MasterState, id: &str) -> Result<()> {
    files::remove(&core.env, &core.root, id)?;
    core.peers.by_id.write().remove(id);
    Ok(())
}

/// Of these WALs, those that some peer needs: all of them where nothing can tell. Never more bytes than the settings allow.
pub(crate) fn needed_wals(core: &MasterState, files: &[DirEntry]) -> Result<HashSet<String>> {
    let ids = core.peers.ids();
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    let mut needed = match &core.cluster.replication {
        Some(sources) => sources.needed_wals(&ids, &names)?,
        None => names.into_iter().collect(),
    };
    if let Some(limit) = core.settings.peer_wal_bytes_max {
        for name in beyond(limit, files.iter().filter(|file| needed.contains(&file.name))) {
            error!(
                wal = name,
                limit, "a WAL is deleted that a replication peer needs: replication.wal.bytes.max is reached"
            );
            needed.remove(&name);
        }
    }
    Ok(needed)
}

/// Names of archived files of bulk loads that some peer has still to copy: all such files where nothing can tell. Never more bytes
/// than the settings allow. `regions` are the directories of the archive.
pub(crate) fn needed_hfiles(core: &MasterState, regions: &[PathBuf]) -> Result<HashSet<String>> {
    let ids = core.peers.ids();
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let needed = match &core.cluster.replication {
        Some(sources) => Some(sources.needed_hfiles(&ids)?),
        None => None,
    };
    if needed.as_ref().is_some_and(Vec::is_empty) {
        return Ok(HashSet::new());
    }
    let mut sizes = HashMap::new();
    for region in regions {
        for family in list(&*core.env.fs, region)?.into_iter().filter(|entry| entry.is_dir) {
            let files = list(&*core.env.fs, &region.join(family.name))?.into_iter();
            sizes.extend(files.filter(|file| !file.is_dir).map(|file| (file.name, file.len)));
        }
    }
    let Some(needed) = needed else {
        return Ok(sizes.into_keys().filter(|name| name.contains("_SeqId_")).collect());
    };
    let (kept, lost) = newest(core.settings.peer_wal_bytes_max, needed, &sizes);
    for name in lost {
        error!(
            hfile = name,
            "an archived file is deleted that a replication peer has to copy: replication.wal.bytes.max is reached"
        );
    }
    Ok(kept)
}

/// The names that are kept, and those of archived files for which there is no room. The names come oldest first, and may come
/// more than once.
fn newest(
    limit: Option<u64>,
    names: Vec<String>,
    sizes: &HashMap<String, u64>,
) -> (HashSet<String>, Vec<String>) {
    let (mut kept, mut lost, mut bytes) = (HashSet::new(), Vec::new(), 0u64);
    for name in names.into_iter().rev() {
        let Some(size) = sizes.get(&name).filter(|_| !kept.contains(&name)) else { continue };
        bytes = bytes.saturating_add(*size);
        match limit.is_some_and(|limit| bytes > limit) {
            true => lost.push(name),
            false => _ = kept.insert(name),
        }
    }
    (kept, lost)
}

/// The oldest WALs, so many that at most `limit` bytes are left.
fn beyond<'a>(limit: u64, files: impl Iterator<Item = &'a DirEntry>) -> Vec<String> {
    let begin =
        |file: &&DirEntry| file.name.rsplit_once('.').and_then(|(_, number)| number.parse::<u64>().ok());
    let mut files: Vec<_> = files.collect();
    files.sort_by_cached_key(|file| std::cmp::Reverse(begin(file)));
    let mut kept = 0u64;
    let is_over = |file: &&DirEntry| {
        kept = kept.saturating_add(file.len);
        kept > limit
    };
    files.into_iter().filter(is_over).map(|file| file.name.clone()).collect()
}

/// What sends edits to peers; an error that says so where nothing does.
pub(crate) fn sources(core: &MasterState) -> std::result::Result<&Arc<dyn ReplicationSources>, RpcError> {
    core.cluster
        .replication
        .as_ref()
        .ok_or_else(|| errors::unsupported("Replication peers of a server without sources are"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_wals_are_beyond_the_limit() {
        let file = |begin: u64, len| DirEntry { name: format!("h%2C1%2C2.{begin}"), is_dir: false, len };
        let files = [file(9, 40), file(10, 30), file(8, 1), file(11, 30)];
        let of = |limit| beyond(limit, files.iter());
        assert!(of(101).is_empty());
        assert_eq!(of(100), ["h%2C1%2C2.8"]);
        assert_eq!(of(60), ["h%2C1%2C2.9", "h%2C1%2C2.8"]);
        assert_eq!(of(0).len(), 4);
    }

    #[test]
    fn the_oldest_files_of_bulk_loads_are_beyond_the_limit() {
        let names = || ["a", "b", "not archived", "c", "b"].map(ToString::to_string).to_vec();
        let sizes: HashMap<String, u64> =
            [("a", 5), ("b", 7), ("c", 1)].map(|(n, s)| (n.to_string(), s)).into();
        let of = |limit| {
            let (kept, lost) = newest(limit, names(), &sizes);
            let mut kept: Vec<String> = kept.into_iter().collect();
            kept.sort_unstable();
            (kept.concat(), lost.concat())
        };
        assert_eq!(of(None), ("abc".to_string(), String::new()));
        assert_eq!(of(Some(13)), ("abc".to_string(), String::new()));
        assert_eq!(of(Some(12)), ("bc".to_string(), "a".to_string()));
        assert_eq!(of(Some(0)).0, "");
    }
}
