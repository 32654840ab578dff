//! Nonces of a region, so that an Increment or Append that a client repeats is applied once, although the region has
//! moved or its server has died.
//!
//! A WAL entry carries the nonce of the operation that wrote it. Replay collects these nonces, and the server asks for
//! them before the region serves calls (HBase: `HRegion.replayRecoveredEdits`, `ServerNonceManager.reportOperationFromWal`).
//!
//! The entries are gone as soon as their cells are flushed: nobody replays them then. So each flush, that of a close
//! included, first keeps the nonces of what it writes in a file beside the recovered edits, while they are young enough.
//! Replay keeps there what it has found. Daughters and merged regions get a copy (`split.rs`). HBase forgets all of them.
//!
//! With them stand answers of young operations that no file of the region has any more (`answers.rs`).
//!
//! ```text
//! recovered.edits/halcyon.nonces = "HALNONC3" | u32 count of entries | entry * | answer * | u32 CRC-32C of all bytes before
//! entry                          = u64 group | u64 nonce | i64 write time in milliseconds | u64 sequence id     big-endian
//! answer                         = u64 sequence id | u32 length | cell as in a KeyValue
//! ```
//!
//! HBase looks only at files there whose names are numbers or end in `.seqid`, so it passes this one over. The file is made in
//! the opening's directory and renamed into its place: a server that has lost the region cannot do it (`place.rs`).

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use halcyon_cell::{Cell, Error, Result, SeqId};
use halcyon_env::{Env, Mutex};
use halcyon_schema::layout::NONCES_FILE;

use crate::api::Nonce;
use crate::place::OpeningDir;

const MAGIC: &[u8; 8] = b"HALNONC3";
const ENTRY_LEN: usize = 32;
const CRC_LEN: usize = 4;
/// Nonces of one region that are kept at most; the oldest go first. They take 32 MiB while the region opens.
const COUNT_MAX: usize = 1 << 20;
/// Nonces of writes since the last flush that are remembered at most, the oldest go first. They take 4 MiB.
const FRESH_MAX: usize = 1 << 17;
/// Bytes of answers in one file at most; the newest are left out.
const ANSWERS_BYTES_MAX: usize = 32 << 20;

/// The nonce of an operation that a log entry tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedNonce {
    pub nonce: Nonce,
    /// When the entry was written, by the clock of the server that wrote it.
    pub write_time_ms: i64,
    /// That of the cells that it wrote.
    pub seq: SeqId,
}

/// Nonces that are kept: oldest first.
#[derive(Default)]
pub(crate) struct ReplayedNonces {
    list: VecDeque<ReplayedNonce>,
    /// Entries written before this are too old: no client repeats their calls any more.
    oldest_ms: i64,
    answers: Vec<Cell>,
}

impl ReplayedNonces {
    pub(crate) fn since(oldest_ms: i64) -> ReplayedNonces {
        ReplayedNonces { oldest_ms, ..ReplayedNonces::default() }
    }

    /// Adds what is kept in this directory.
    pub(crate) fn read(&mut self, env: &Env, edits_dir: &Path) -> Result<()> {
        let path = edits_dir.join(NONCES_FILE);
        if !env.fs.exists(&path)? {
            return Ok(());
        }
        match decode(&path, &env.fs.read(&path)?) {
            Ok((kept, answers)) => {
                kept.into_iter().for_each(|kept| self.add(kept));
                self.answers.extend(answers);
            }
            // The data is whole without them.
            Err(error) => {
                tracing::warn!(%error, "nonces of operations cannot be read; they are forgotten")
            }
        }
        Ok(())
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

    /// What the directories have kept of answers.
    pub(crate) fn answers(&self) -> &[Cell] {
        &self.answers
    }

    pub(crate) fn set_answers(&mut self, answers: &[Cell]) {
        self.answers = answers.to_vec();
    }

    /// Keeps the nonces for the next opening of the region, durably. No nonces leave no file.
    pub(crate) fn keep(
        &self,
        place: &OpeningDir,
        edits_dir: &Path,
        in_doubt: &mut Option<PathBuf>,
    ) -> Result<()> {
        let (env, path) = (place.env(), edits_dir.join(NONCES_FILE));
        if self.list.is_empty() {
            return remove(env, edits_dir);
        }
        if !env.fs.exists(edits_dir)? {
            env.fs.create_dir(edits_dir)?; // never with the region's directory
            env.fs.sync_dir(edits_dir.parent().expect("it is in the region's directory"))?;
        }
        place.replace(&path, &encode(&self.list, &self.answers), in_doubt)
    }

    /// Keeps the nonces for a region that nobody knows yet.
    pub(crate) fn keep_first(&self, env: &Env, edits_dir: &Path) -> Result<()> {
        if self.list.is_empty() {
            return Ok(());
        }
        env.fs.create_dir_all(edits_dir)?;
        Ok(env.fs.put_new(&edits_dir.join(NONCES_FILE), &encode(&self.list, &self.answers))?)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ReplayedNonce> {
        self.list.iter()
    }

    pub(crate) fn into_vec(self) -> Vec<ReplayedNonce> {
        self.list.into()
    }
}

/// Removes the file of a directory, if it is there.
pub(crate) fn remove(env: &Env, edits_dir: &Path) -> Result<()> {
    let path = edits_dir.join(NONCES_FILE);
    if env.fs.exists(&path)? {
        env.fs.remove_file(&path)?;
    }
    Ok(())
}

/// Nonces of writes of this opening that its file does not have yet.
///
/// *Thread safety*: from any thread. [`FreshNonces::keep`] by one at a time.
#[derive(Default)]
pub(crate) struct FreshNonces {
    list: Mutex<VecDeque<ReplayedNonce>>,
    /// Of a file that may come into its place later.
    in_doubt: Mutex<Option<PathBuf>>,
}

impl FreshNonces {
    /// The nonce of a write that has its number, before the next flush takes one. 0 is none.
    pub(crate) fn add(&self, found: ReplayedNonce) {
        if found.nonce.nonce == 0 {
            return;
        }
        let mut list = self.list.lock();
        if list.len() == FRESH_MAX {
            list.pop_front(); // in the WAL it is still
        }
        list.push_back(found);
    }

    /// Keeps the nonces of writes up to this number, durably. These writes are durable. `answers` take the place of those in the file.
    pub(crate) fn keep(
        &self,
        place: &OpeningDir,
        edits_dir: &Path,
        up_to: SeqId,
        oldest_ms: i64,
        answers: Option<&[Cell]>,
    ) -> Result<()> {
        let fresh: Vec<ReplayedNonce> =
            self.list.lock().iter().filter(|found| found.seq <= up_to).copied().collect();
        if fresh.is_empty() && answers.is_none() {
            return Ok(());
        }
        let mut nonces = ReplayedNonces::since(oldest_ms);
        nonces.read(place.env(), edits_dir)?;
        fresh.into_iter().for_each(|found| nonces.add(found));
        if let Some(answers) = answers {
            nonces.set_answers(answers);
        }
        nonces.keep(place, edits_dir, &mut self.in_doubt.lock())?;
        self.list.lock().retain(|found| found.seq > up_to);
        Ok(())
    }
}

fn encode(nonces: &VecDeque<ReplayedNonce>, answers: &[Cell]) -> Vec<u8> {
    assert!(
        nonces.len() <= COUNT_MAX && nonces.iter().all(|kept| kept.nonce.nonce != 0),
        "{} nonces are kept, of operations that have one: a region that opens holds all of them",
        nonces.len()
    );
    let mut out = Vec::with_capacity(MAGIC.len() + nonces.len() * ENTRY_LEN + 2 * CRC_LEN);
    out.extend_from_slice(MAGIC);
    let count = u32::try_from(nonces.len()).expect("there are at most COUNT_MAX");
    out.extend_from_slice(&count.to_be_bytes());
    for kept in nonces {
        out.extend_from_slice(&kept.nonce.group.to_be_bytes());
        out.extend_from_slice(&kept.nonce.nonce.to_be_bytes());
        out.extend_from_slice(&kept.write_time_ms.to_be_bytes());
        out.extend_from_slice(&kept.seq.get().to_be_bytes());
    }
    let mut left = ANSWERS_BYTES_MAX;
    for answer in answers {
        let bytes = answer.get().bytes();
        let Some(rest) = left.checked_sub(bytes.len()) else { break };
        left = rest;
        let len = u32::try_from(bytes.len()).expect("it is below ANSWERS_BYTES_MAX");
        out.extend_from_slice(&answer.seq().to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(bytes);
    }
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_be_bytes());
    out
}

fn decode(path: &Path, bytes: &[u8]) -> Result<(Vec<ReplayedNonce>, Vec<Cell>)> {
    let corrupt = |what: &str| Error::corrupt(format!("{}: {what}", path.display()));
    let Some((body, crc)) = bytes.split_last_chunk::<CRC_LEN>() else {
        return Err(corrupt("expected a checksum at the end, found too few bytes"));
    };
    let (expected, found) = (u32::from_be_bytes(*crc), crc32c::crc32c(body));
    if expected != found {
        return Err(corrupt(&format!("expected checksum {expected:#x}, found {found:#x}")));
    }
    let Some(body) = body.strip_prefix(MAGIC) else {
        return Err(corrupt("expected HALNONC3 at offset 0"));
    };
    let Some((count, body)) = body.split_first_chunk::<4>() else {
        return Err(corrupt("expected the count of entries at offset 8"));
    };
    let count = u32::from_be_bytes(*count) as usize;
    let Some((entries, answers)) = count.checked_mul(ENTRY_LEN).and_then(|len| body.split_at_checked(len))
    else {
        return Err(corrupt(&format!(
            "expected {count} entries of {ENTRY_LEN} bytes, found {} bytes",
            body.len()
        )));
    };
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("entries have four numbers"));
    let entry = |bytes: &[u8]| ReplayedNonce {
        nonce: Nonce { group: number(&bytes[..8]), nonce: number(&bytes[8..16]) },
        write_time_ms: number(&bytes[16..24]) as i64,
        seq: SeqId::new(number(&bytes[24..])),
    };
    let answers =
        decode_answers(answers).ok_or_else(|| corrupt("expected whole cells behind the entries"))?;
    Ok((entries.chunks_exact(ENTRY_LEN).map(entry).collect(), answers))
}

fn decode_answers(mut bytes: &[u8]) -> Option<Vec<Cell>> {
    let mut answers = Vec::new();
    while !bytes.is_empty() {
        let (seq, rest) = bytes.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (cell, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        answers.push(Cell::parse(Bytes::copy_from_slice(cell), u64::from_be_bytes(*seq)).ok()?);
        bytes = rest;
    }
    Some(answers)
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::{Fault, Operation, SimFileSystem};

    use super::*;

    fn found(nonce: u64, write_time_ms: i64) -> ReplayedNonce {
        ReplayedNonce { nonce: Nonce { group: 9, nonce }, write_time_ms, seq: SeqId::new(10 + nonce) }
    }

    fn answer(seq: u64) -> Cell {
        Cell::put(b"r", b"f", b"q", 7, &seq.to_be_bytes()).with_seq(seq)
    }

    fn place(env: &Env) -> OpeningDir {
        env.fs.create_dir_all(Path::new("/region")).unwrap();
        OpeningDir::begin(env, Path::new("/region"), Path::new("/archive")).unwrap()
    }

    fn read(env: &Env, dir: &Path, oldest_ms: i64) -> ReplayedNonces {
        let mut nonces = ReplayedNonces::since(oldest_ms);
        nonces.read(env, dir).unwrap();
        nonces
    }

    #[test]
    fn kept_until_they_are_too_old() {
        let fs = SimFileSystem::new();
        let (env, dir) = (fs.env(), Path::new("/region/edits"));
        let (place, mut doubt) = (place(&env), None);
        let mut nonces = read(&env, dir, 100);
        [found(1, 99), found(0, 200), found(2, 100), found(3, 300)].into_iter().for_each(|n| nonces.add(n));
        nonces.keep(&place, dir, &mut doubt).unwrap();
        assert_eq!(nonces.into_vec(), [found(2, 100), found(3, 300)]);
        let later = read(&env, dir, 300);
        later.keep(&place, dir, &mut doubt).unwrap();
        assert_eq!(later.into_vec(), [found(3, 300)]);
        let last = read(&env, dir, 301);
        last.keep(&place, dir, &mut doubt).unwrap();
        assert!(!env.fs.exists(&dir.join(NONCES_FILE)).unwrap(), "no nonces, no file");
    }

    #[test]
    fn what_is_not_durable_yet_is_kept_later() {
        let fs = SimFileSystem::new();
        let (env, dir) = (fs.env(), Path::new("/region/edits"));
        let (place, fresh) = (place(&env), FreshNonces::default());
        for nonce in 1..=3 {
            fresh.add(found(nonce, 100));
        }
        fresh.keep(&place, dir, SeqId::new(12), 0, None).unwrap();
        assert_eq!(read(&env, dir, 0).into_vec(), [found(1, 100), found(2, 100)]);
        fs.inject(Fault::new(Operation::Rename, "nonces-"));
        fresh.keep(&place, dir, SeqId::new(13), 0, None).unwrap_err();
        assert_eq!(fs.faults_hit(), 1);
        fresh.keep(&place, dir, SeqId::new(13), 0, None).unwrap();
        assert_eq!(read(&env, dir, 0).into_vec(), [found(1, 100), found(2, 100), found(3, 100)]);
    }

    #[test]
    fn answers_stay_until_others_come() {
        let fs = SimFileSystem::new();
        let (env, dir) = (fs.env(), Path::new("/region/edits"));
        let (place, fresh) = (place(&env), FreshNonces::default());
        let answers = || read(&env, dir, 0).answers().iter().map(Cell::seq).collect::<Vec<_>>();
        fresh.add(found(1, 100));
        fresh.keep(&place, dir, SeqId::new(11), 0, Some(&[answer(10), answer(11)])).unwrap();
        assert_eq!(read(&env, dir, 0).answers()[1].value(), 11_u64.to_be_bytes());
        fresh.add(found(2, 100));
        fresh.keep(&place, dir, SeqId::new(12), 0, None).unwrap();
        assert_eq!((answers(), read(&env, dir, 0).into_vec().len()), (vec![10, 11], 2));
        fresh.keep(&place, dir, SeqId::new(12), 0, Some(&[answer(12)])).unwrap();
        assert_eq!((answers(), read(&env, dir, 0).into_vec().len()), (vec![12], 2));
    }

    /// A server stands still in a flush, and its region is opened elsewhere.
    #[test]
    fn a_server_that_lost_the_region_keeps_nothing() {
        let fs = SimFileSystem::new();
        let (env, dir) = (fs.env(), Path::new("/region/edits"));
        let (lost, fresh) = (place(&env), FreshNonces::default());
        fresh.add(found(1, 100));
        let (held, newer) = (place(&env), FreshNonces::default());
        newer.add(found(2, 200));
        newer.keep(&held, dir, SeqId::new(12), 0, None).unwrap();
        fresh.keep(&lost, dir, SeqId::new(11), 0, None).unwrap_err();
        assert_eq!(read(&env, dir, 0).into_vec(), [found(2, 200)]);
    }

    /// Each answer of the file system may be late. A file of an earlier attempt does not come over that of a later one.
    #[test]
    fn a_rename_that_is_carried_out_late_takes_nothing_back() {
        let fs = SimFileSystem::hdfs(1);
        let (env, dir) = (fs.env(), Path::new("/region/edits"));
        let (place, fresh) = (place(&env), FreshNonces::default());
        fresh.add(found(1, 100));
        fs.inject(Fault::new(Operation::Rename, "nonces-").but_done_later());
        fs.inject(Fault::new(Operation::Remove, "nonces-"));
        fresh.keep(&place, dir, SeqId::new(11), 0, None).unwrap_err();
        assert_eq!(fs.faults_hit(), 2);
        fresh.add(found(2, 100));
        fresh.keep(&place, dir, SeqId::new(12), 0, None).unwrap();
        fs.deliver_late();
        assert_eq!(read(&env, dir, 0).into_vec(), [found(1, 100), found(2, 100)]);
    }

    #[test]
    fn damage_is_told_and_does_not_keep_a_region_closed() {
        let fs = SimFileSystem::new();
        let (env, dir) = (fs.env(), Path::new("/edits"));
        env.fs.create_dir_all(dir).unwrap();
        let whole = encode(&VecDeque::from([found(1, 1), found(2, 2)]), &[answer(11), answer(12)]);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            assert!(decode(dir, &bytes).is_err(), "byte {at}");
            assert!(decode(dir, &whole[..at]).is_err(), "cut at {at}");
        }
        env.fs.replace(&dir.join(NONCES_FILE), &whole[1..]).unwrap();
        assert!(read(&env, dir, 0).into_vec().is_empty());
    }
}
