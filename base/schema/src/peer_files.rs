//! Peers on disk, as HBase keeps them with `hbase.replication.peer.storage.impl` = `filesystem`.
//!
//! ```text
//! peers/<id>/peer_config-0, peer_config-1     int32 length | RotateFileData | int32 CRC-32 of it
//! peers/<id>/disabled                         empty; there while the peer is disabled
//! RotateFileData.data                         "PBUF" | ReplicationPeer
//! ```
//!
//! The file with the greater timestamp is the configuration. A directory without one is no peer. Checked against
//! `FSReplicationPeerStorage` and `RotateFile` of 2.6.4.

use std::io;
use std::path::{Path, PathBuf};

use halcyon_cell::{Error, Result};
use halcyon_env::{Env, FileSystem};
use halcyon_proto::{PB_MAGIC, pb};
use prost::Message;

/// HBase: `ReplicationPeerDescription`.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerDescription {
    pub id: String,
    pub config: pb::ReplicationPeer,
    /// A disabled peer gets nothing. What it misses is kept for it.
    pub is_enabled: bool,
}

const DIR: &str = "peers";
const CONFIG: [&str; 2] = ["peer_config-0", "peer_config-1"];
const DISABLED: &str = "disabled";
/// As HBase reads them.
const FILE_BYTES_MAX: usize = 16 << 20;

fn peer_dir(root: &Path, id: &str) -> PathBuf {
    root.join(DIR).join(id)
}

/// All peers, sorted. `Corrupt` if one cannot be read.
pub fn load_all(env: &Env, root: &Path) -> Result<Vec<PeerDescription>> {
    let listed = match env.fs.list(&root.join(DIR)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed?,
    };
    let mut peers = Vec::new();
    for entry in listed.into_iter().filter(|entry| entry.is_dir) {
        peers.extend(load(env, root, &entry.name)?);
    }
    peers.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(peers)
}

/// `None`: there is no such peer. `Corrupt` if it cannot be read.
pub fn load(env: &Env, root: &Path, id: &str) -> Result<Option<PeerDescription>> {
    let dir = peer_dir(root, id);
    let Some((config, _, _)) = read_config(&*env.fs, &dir)? else { return Ok(None) };
    let is_enabled = !env.fs.exists(&dir.join(DISABLED))?;
    Ok(Some(PeerDescription { id: id.to_string(), config, is_enabled }))
}

/// Writes a peer, durably; a new one is there when its configuration is. May run twice.
pub fn write(env: &Env, root: &Path, peer: &PeerDescription) -> Result<()> {
    let dir = peer_dir(root, &peer.id);
    env.fs.create_dir_all(&dir)?;
    let disabled = dir.join(DISABLED);
    match (peer.is_enabled, env.fs.exists(&disabled)?) {
        (true, true) => {
            env.fs.remove_file(&disabled)?;
            env.fs.sync_dir(&dir)?;
        }
        (false, false) => env.fs.replace(&disabled, b"")?,
        _ => {}
    }
    let before = read_config(&*env.fs, &dir)?;
    if before.as_ref().is_some_and(|(config, _, _)| *config == peer.config) {
        return Ok(());
    }
    let (timestamp, at) = before.map_or((0, 1), |(_, timestamp, at)| (timestamp, at));
    let timestamp = env.clock.now_ms().max(timestamp + 1);
    env.fs.replace(&dir.join(CONFIG[1 - at]), &encode(&peer.config, timestamp))?;
    match env.fs.remove_file(&dir.join(CONFIG[at])) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Removes a peer, durably. One that is gone is no error.
pub fn remove(env: &Env, root: &Path, id: &str) -> Result<()> {
    let dir = peer_dir(root, id);
    if !env.fs.exists(&dir)? {
        return Ok(());
    }
    // The older configuration first: it must not take the place of the newer one.
    let newest = read_config(&*env.fs, &dir)?.map_or(0, |(_, _, at)| at);
    for name in [CONFIG[1 - newest], CONFIG[newest]] {
        match env.fs.remove_file(&dir.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.and_then(|()| env.fs.sync_dir(&dir))?,
        }
    }
    match env.fs.remove_dir_all(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => Ok(removed.and_then(|()| env.fs.sync_dir(&root.join(DIR)))?),
    }
}

/// The newer configuration, its timestamp, and which of the two files has it.
fn read_config(fs: &dyn FileSystem, dir: &Path) -> Result<Option<(pb::ReplicationPeer, i64, usize)>> {
    let mut newest: Option<(pb::ReplicationPeer, i64, usize)> = None;
    for (at, name) in CONFIG.iter().enumerate() {
        let path = dir.join(name);
        let bytes = match fs.read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read?,
        };
        let decoded = decode(&bytes).map_err(|error| error.context(path.display()))?;
        // A file that is cut off was being written: the other one counts.
        if let Some((config, timestamp)) = decoded
            && newest.as_ref().is_none_or(|(_, other, _)| *other < timestamp)
        {
            newest = Some((config, timestamp, at));
        }
    }
    Ok(newest)
}

fn encode(config: &pb::ReplicationPeer, timestamp: i64) -> Vec<u8> {
    let data = [&PB_MAGIC[..], &config.encode_to_vec()].concat();
    let message = pb::RotateFileData { timestamp, data: data.into() }.encode_to_vec();
    let len = u32::try_from(message.len()).expect("a request is shorter than 4 GiB");
    [&len.to_be_bytes()[..], &message, &crc32fast::hash(&message).to_be_bytes()].concat()
}

/// `None` if the file is cut off. `Corrupt` if it is whole and wrong.
fn decode(bytes: &[u8]) -> Result<Option<(pb::ReplicationPeer, i64)>> {
    let Some((len, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let len = u32::from_be_bytes(*len) as usize;
    if len == 0 || len > FILE_BYTES_MAX {
        return Err(Error::corrupt(format!("a length from 1 to {FILE_BYTES_MAX} is expected, found {len}")));
    }
    let Some((message, rest)) = rest.split_at_checked(len) else { return Ok(None) };
    let Some(crc) = rest.first_chunk() else { return Ok(None) };
    let (expected, found) = (u32::from_be_bytes(*crc), crc32fast::hash(message));
    if expected != found {
        return Err(Error::corrupt(format!("checksum {expected:08x} is expected, found {found:08x}")));
    }
    let malformed = |error: prost::DecodeError| Error::corrupt(error.to_string());
    let file = pb::RotateFileData::decode(message).map_err(malformed)?;
    let config = file.data.strip_prefix(PB_MAGIC.as_slice());
    let config = config.ok_or_else(|| Error::corrupt("a peer's configuration does not begin with PBUF"))?;
    Ok(Some((pb::ReplicationPeer::decode(config).map_err(malformed)?, file.timestamp)))
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::{CrashMode, SimFileSystem};

    use super::*;

    fn root() -> &'static Path {
        Path::new("/hbase")
    }

    fn peer(key: &str, is_enabled: bool) -> PeerDescription {
        let config = pb::ReplicationPeer { clusterkey: Some(key.to_string()), ..Default::default() };
        PeerDescription { id: "p".to_string(), config, is_enabled }
    }

    #[test]
    fn each_change_survives_a_crash() {
        for mode in CrashMode::ALL {
            let mut fs = SimFileSystem::new();
            for peer in
                [peer("a:1:/b", true), peer("a:1:/b", false), peer("c:1:/d", false), peer("c:1:/d", true)]
            {
                for _ in 0..2 {
                    write(&fs.env(), root(), &peer).unwrap();
                }
                fs = fs.crash(mode, 1);
                assert_eq!(load(&fs.env(), root(), "p").unwrap().as_ref(), Some(&peer));
                assert_eq!(load_all(&fs.env(), root()).unwrap(), [peer]);
            }
            for _ in 0..2 {
                remove(&fs.env(), root(), "p").unwrap();
            }
            fs = fs.crash(mode, 1);
            assert!(load_all(&fs.env(), root()).unwrap().is_empty());
        }
    }

    #[test]
    fn a_file_that_is_cut_off_does_not_count() {
        let env = SimFileSystem::new().env();
        write(&env, root(), &peer("a:1:/b", true)).unwrap();
        let dir = peer_dir(root(), "p");
        let (_, _, at) = read_config(&*env.fs, &dir).unwrap().unwrap();
        let whole = encode(&peer("c:1:/d", true).config, i64::MAX);
        for len in 0..whole.len() {
            env.fs.replace(&dir.join(CONFIG[1 - at]), &whole[..len]).unwrap();
            assert_eq!(load_all(&env, root()).unwrap(), [peer("a:1:/b", true)], "{len}");
        }
        env.fs.replace(&dir.join(CONFIG[1 - at]), &whole).unwrap();
        assert_eq!(load_all(&env, root()).unwrap(), [peer("c:1:/d", true)]);
    }

    #[test]
    fn garbage_is_an_error_that_names_the_file() {
        let env = SimFileSystem::new().env();
        write(&env, root(), &peer("a:1:/b", true)).unwrap();
        let dir = peer_dir(root(), "p");
        let (config, timestamp, at) = read_config(&*env.fs, &dir).unwrap().unwrap();
        let good = encode(&config, timestamp);
        for flipped in 0..good.len() {
            let mut bad = good.clone();
            bad[flipped] ^= 0x80;
            env.fs.replace(&dir.join(CONFIG[at]), &bad).unwrap();
            match load_all(&env, root()) {
                Err(error) => assert!(error.message().contains("peer_config"), "{error}"),
                Ok(peers) => assert!(peers.is_empty() && flipped < 4, "{flipped}"), // seems longer
            }
        }
    }
}
