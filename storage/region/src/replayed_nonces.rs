//! Nonces of replayed edits, so that an Increment or Append that a client repeats after a crash is applied once.
//!
//! A WAL entry carries the nonce of the operation that wrote it. Replay collects these nonces, and the server asks for
//! them before the region serves calls (HBase: `HRegion.replayRecoveredEdits`, `ServerNonceManager.reportOperationFromWal`).
//!
//! The entries are gone as soon as the replayed cells are flushed. A second crash before the client repeats its call
//! would lose the nonces, so they are kept in a file beside the recovered edits while they are young enough:
//!
//! ```text
//! recovered.edits/halcyon.nonces = "HALNONCE" | entry * | u32 CRC-32C of all bytes before
//! entry                          = u64 group | u64 nonce | i64 write time in milliseconds       big-endian
//! ```
//!
//! HBase looks only at files there whose names are numbers or end in `.seqid`, so it passes this one over.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use halcyon_cell::{Error, Result};
use halcyon_env::Env;

use crate::api::Nonce;

const FILE_NAME: &str = "halcyon.nonces";
const MAGIC: &[u8; 8] = b"HALNONCE";
const ENTRY_LEN: usize = 24;
const CRC_LEN: usize = 4;
/// Nonces of one region that are kept at most; the oldest go first. They take 24 MiB while the region opens.
const COUNT_MAX: usize = 1 << 20;

/// The nonce of an operation that a log entry tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedNonce {
    pub nonce: Nonce,
    /// When the entry was written, by the clock of the server that wrote it.
    pub write_time_ms: i64,
}

/// What a replay collects: oldest first.
#[derive(Default)]
pub(crate) struct ReplayedNonces {
    list: VecDeque<ReplayedNonce>,
    /// Entries written before this are too old: no client repeats their calls any more.
    oldest_ms: i64,
}

impl ReplayedNonces {
    /// Begins with what the opening before kept in this directory.
    pub(crate) fn read(env: &Env, edits_dir: &Path, oldest_ms: i64) -> Result<ReplayedNonces> {
        let mut nonces = ReplayedNonces { list: VecDeque::new(), oldest_ms };
        let path = edits_dir.join(FILE_NAME);
        if !env.fs.exists(&path)? {
            return Ok(nonces);
        }
        match decode(&path, &env.fs.read(&path)?) {
            Ok(kept) => kept.into_iter().for_each(|kept| nonces.add(kept)),
            // The data is whole without them.
            Err(error) => {
                tracing::warn!(%error, "nonces of replayed edits cannot be read; they are forgotten")
            }
        }
        Ok(nonces)
    }

    /// Adds the nonce of an entry; 0 is none.
    pub(crate) fn add(&mut self, found: ReplayedNonce) {
        if found.nonce.nonce == 0 || found.write_time_ms < self.oldest_ms {
            return;
        }
        if self.list.len() == COUNT_MAX {
            self.list.pop_front();
        }
        self.list.push_back(found);
    }

    /// Keeps the nonces for the next opening, durably. No nonces leave no file.
    pub(crate) fn keep(&self, env: &Env, edits_dir: &Path) -> Result<()> {
        let path: PathBuf = edits_dir.join(FILE_NAME);
        if !self.list.is_empty() {
            return Ok(env.fs.replace(&path, &encode(&self.list))?);
        }
        if env.fs.exists(&path)? {
            env.fs.remove_file(&path)?;
        }
        Ok(())
    }

    pub(crate) fn into_vec(self) -> Vec<ReplayedNonce> {
        self.list.into()
    }
}

fn encode(nonces: &VecDeque<ReplayedNonce>) -> Vec<u8> {
    let mut out = Vec::with_capacity(MAGIC.len() + nonces.len() * ENTRY_LEN + CRC_LEN);
    out.extend_from_slice(MAGIC);
    for kept in nonces {
        out.extend_from_slice(&kept.nonce.group.to_be_bytes());
        out.extend_from_slice(&kept.nonce.nonce.to_be_bytes());
        out.extend_from_slice(&kept.write_time_ms.to_be_bytes());
    }
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_be_bytes());
    out
}

fn decode(path: &Path, bytes: &[u8]) -> Result<Vec<ReplayedNonce>> {
    let corrupt = |what: &str| Error::corrupt(format!("{}: {what}", path.display()));
    let Some((body, crc)) = bytes.split_last_chunk::<CRC_LEN>() else {
        return Err(corrupt("expected a checksum at the end, found too few bytes"));
    };
    let (expected, found) = (u32::from_be_bytes(*crc), crc32c::crc32c(body));
    if expected != found {
        return Err(corrupt(&format!("expected checksum {expected:#x}, found {found:#x}")));
    }
    let Some(entries) = body.strip_prefix(MAGIC) else {
        return Err(corrupt("expected HALNONCE at offset 0"));
    };
    if entries.len() % ENTRY_LEN != 0 {
        return Err(corrupt(&format!(
            "expected entries of {ENTRY_LEN} bytes, found {} bytes",
            entries.len()
        )));
    }
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("entries have three numbers"));
    let entry = |bytes: &[u8]| ReplayedNonce {
        nonce: Nonce { group: number(&bytes[..8]), nonce: number(&bytes[8..16]) },
        write_time_ms: number(&bytes[16..]) as i64,
    };
    Ok(entries.chunks_exact(ENTRY_LEN).map(entry).collect())
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    fn found(nonce: u64, write_time_ms: i64) -> ReplayedNonce {
        ReplayedNonce { nonce: Nonce { group: 9, nonce }, write_time_ms }
    }

    #[test]
    fn kept_until_they_are_too_old() {
        let fs = SimFileSystem::new();
        let (env, dir) = (fs.env(), Path::new("/edits"));
        env.fs.create_dir_all(dir).unwrap();
        let mut nonces = ReplayedNonces::read(&env, dir, 100).unwrap();
        [found(1, 99), found(0, 200), found(2, 100), found(3, 300)].into_iter().for_each(|n| nonces.add(n));
        nonces.keep(&env, dir).unwrap();
        assert_eq!(nonces.into_vec(), [found(2, 100), found(3, 300)]);
        let later = ReplayedNonces::read(&env, dir, 300).unwrap();
        later.keep(&env, dir).unwrap();
        assert_eq!(later.into_vec(), [found(3, 300)]);
        let last = ReplayedNonces::read(&env, dir, 301).unwrap();
        last.keep(&env, dir).unwrap();
        assert!(!env.fs.exists(&dir.join(FILE_NAME)).unwrap(), "no nonces, no file");
    }

    #[test]
    fn damage_is_told_and_does_not_keep_a_region_closed() {
        let fs = SimFileSystem::new();
        let (env, dir) = (fs.env(), Path::new("/edits"));
        env.fs.create_dir_all(dir).unwrap();
        let whole = encode(&VecDeque::from([found(1, 1), found(2, 2)]));
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            assert!(decode(dir, &bytes).is_err(), "byte {at}");
            assert!(decode(dir, &whole[..at]).is_err(), "cut at {at}");
        }
        env.fs.replace(&dir.join(FILE_NAME), &whole[1..]).unwrap();
        assert!(ReplayedNonces::read(&env, dir, 0).unwrap().into_vec().is_empty());
    }
}
