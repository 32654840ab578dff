//! Splits a dead server's logs: the edits of each region go to files of its `recovered.edits` directory,
//! which the region replays when it opens next.
//!
//! ```text
//! <region>/recovered.edits/0000000000000000417          a log of one region; 417 = seq of its last entry
//! <region>/recovered.edits/00000000000000000417         another one of that seq, from the logs of another server
//! <region>/recovered.edits/0000000000000000402-<log>.<random>.temp   being written; 402 = seq of its first
//! ```
//!
//! Each file is whole and durable before it gets its name, and splitting the same logs again makes the same
//! names and edits. A region may be removed while its edits are on their way; they are dropped then, and its directory is not made again.
//!
//! HBase reads files whose names are numbers, whatever their zeros, and passes over all others
//! (`WALSplitUtil.getSplitEditFilesSorted`). So a split that was cut off is simply done again; the logs themselves are moved away by
//! the caller when it has succeeded.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, CellRef, Error, Result, SeqId};
use halcyon_env::sync::Mutex;
use halcyon_env::{DirEntry, Env, WritableFile, invariant, random_bytes};
use halcyon_proto::pb;

use crate::check::{CHECK_NAME, Mark, Salt};
use crate::cipher::WalCipher;
use crate::damage::{LogDamage, OnDamage, read_over_damage};
use crate::format::{COMPACTION_QUALIFIER, PreparedEntry, encode_header, is_marker};
use crate::reader::WalReader;

mod memory;

use memory::Room;
pub use memory::SplitMemory;

/// Name of the directory in a region's directory.
pub const RECOVERED_EDITS_DIR: &str = "recovered.edits";
/// Suffix of a file being written. One that an attempt left is removed when its region opens.
pub const TEMPORARY_SUFFIX: &str = ".temp";
/// Digits of a file's name.
const NAME_LEN: usize = 19;
/// Files of one region that may end with the same sequence id, told apart by zeros before it.
const SAME_SEQ_MAX: usize = 64;
/// What a file on other machines keeps in memory at most of what was written to it and not flushed: one that is no larger when it ends
/// needs no pipeline (`HdfsWriter`).
const KEPT_MAX_BYTES: usize = 1 << 20;

/// Names the `recovered.edits` directory of an encoded region name and table; `None`: the region is gone. An error, if
/// that cannot be told, ends the split. May be asked again for the same region, which may be gone by then.
pub type Destination<'a> = dyn Fn(&[u8], &[u8]) -> Result<Option<PathBuf>> + Sync + 'a;

/// What the files of a region have already, by its encoded name.
pub type FlushedOf<'a> = dyn Fn(&[u8]) -> Flushed + 'a;

/// Up to which sequence ids edits of a region are in its files: a split leaves those out. Too low costs time, too high loses edits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Of all families.
    pub region: SeqId,
    /// Of single ones, where that is more.
    pub families: Vec<(Bytes, SeqId)>,
    /// An entry with a nonce that was written before this moment is like one without, because no client repeats its operation any more.
    /// Milliseconds; 0: all nonces count.
    pub nonces_since_ms: u64,
}

impl Flushed {
    /// Whether no edit with this sequence id is in a file, of whatever family. Of most entries that a split reads none is.
    fn is_before(&self, seq: SeqId) -> bool {
        self.region < seq && self.families.iter().all(|(_, flushed)| *flushed < seq)
    }

    /// Whether an edit of this family is in a file.
    fn has(&self, family: &[u8], seq: SeqId) -> bool {
        let of_family = self.families.iter().find(|(known, _)| known == family);
        seq <= self.region || of_family.is_some_and(|(_, flushed)| seq <= *flushed)
    }
}

/// Does work for each number below a count, in any order and at the same time if it likes. The first error wins.
pub type Each<'a> = dyn Fn(usize, &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> + 'a;

/// What a split found and made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitReport {
    /// Logs read, oldest first.
    pub logs: Vec<PathBuf>,
    /// Those whose writer died in the middle of an entry.
    pub torn: Vec<PathBuf>,
    /// Those of which entries are lost, with [`OnDamage::PassOver`].
    pub damaged: Vec<LogDamage>,
    /// Entries read.
    pub entries: u64,
    /// Entries whose region is gone.
    pub dropped: u64,
    /// Entries that the region's files have already; they are not written.
    pub flushed: u64,
    /// Entries that only mark flushes, opens and the like; they are not written.
    pub markers: u64,
    /// Files written, sorted.
    pub files: Vec<PathBuf>,
}

/// The edits of one region on their way to a file.
struct Output<'a> {
    region: Vec<u8>,
    table: Vec<u8>,
    dir: PathBuf,
    flushed: Flushed,
    temporary: PathBuf,
    file: Option<Box<dyn WritableFile>>,
    salt: Salt,
    buffer: Vec<u8>,
    /// What the buffer and the file keep in memory.
    room: Room<'a>,
    last_seq: SeqId,
    entries: u64,
    /// The directory of the region, where the WALs are, was made with the file.
    made_region_dir: bool,
    /// Bytes written to the file since it was flushed.
    unflushed_bytes: usize,
    is_gone: bool,
    published: Option<PathBuf>,
}

struct Splitter<'a> {
    env: &'a Env,
    /// If what is written is encrypted.
    cipher: Option<Arc<WalCipher>>,
    destination: &'a Destination<'a>,
    flushed_of: &'a FlushedOf<'a>,
    memory: &'a SplitMemory,
    /// `None`: the region is gone.
    outputs: HashMap<Vec<u8>, Option<Output<'a>>>,
    /// What all outputs keep in memory.
    held_bytes: usize,
    on_damage: OnDamage,
    report: SplitReport,
}

/// Splits all logs of a directory. The edits of a region without destination are dropped. Nobody may write to
/// the logs any more.
///
/// The first unreadable log ends the split with an error; no file of this split has got its name then.
pub fn split_logs(env: &Env, log_dir: &Path, destination: &Destination<'_>) -> Result<SplitReport> {
    let one_by_one =
        |count: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)| (0..count).try_for_each(work);
    split_log_files(env, logs_in(env, log_dir)?, destination, &one_by_one, OnDamage::Refuse)
}

/// As [`split_logs`], of these logs, oldest first. `each` completes the files, most of which is waiting for disks. Whether
/// an unreadable log ends the split, `on_damage` says.
pub fn split_log_files(
    env: &Env,
    logs: Vec<PathBuf>,
    destination: &Destination<'_>,
    each: &Each<'_>,
    on_damage: OnDamage,
) -> Result<SplitReport> {
    split_what_is_needed(
        env,
        logs,
        destination,
        &|_| Flushed::default(),
        each,
        on_damage,
        &SplitMemory::of_one(),
    )
}

/// As [`split_log_files`], without the edits that files of the regions have already. A region that has moved on, or was closed,
/// would get them into its directory for nothing. Edits whose nonces still count stay: the region's file of nonces may have lost some of many.
/// `memory` is what it shares with other splits.
pub fn split_what_is_needed(
    env: &Env,
    logs: Vec<PathBuf>,
    destination: &Destination<'_>,
    flushed_of: &FlushedOf<'_>,
    each: &Each<'_>,
    on_damage: OnDamage,
    memory: &SplitMemory,
) -> Result<SplitReport> {
    let mut splitter = Splitter {
        env,
        cipher: WalCipher::of(env)?,
        destination,
        flushed_of,
        memory,
        outputs: HashMap::new(),
        held_bytes: 0,
        on_damage,
        report: SplitReport::default(),
    };
    for path in logs {
        splitter.split_log(&path)?;
    }
    splitter.finish(each)
}

/// Logs of a directory, oldest first. Names that begin with a dot are files that never became logs.
pub fn logs_in(env: &Env, dir: &Path) -> Result<Vec<PathBuf>> {
    let is_log = |entry: &DirEntry| !entry.is_dir && !entry.name.starts_with('.');
    let mut names: Vec<String> =
        env.fs.list(dir)?.into_iter().filter(is_log).map(|entry| entry.name).collect();
    names.sort_by_key(|name| (begin_ms(name), name.clone()));
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// The number at the end of a log's name, before `.meta`.
fn begin_ms(name: &str) -> u64 {
    let name = name.strip_suffix(".meta").unwrap_or(name);
    name.rsplit('.').next().and_then(|ms| ms.parse().ok()).unwrap_or(0)
}

impl Splitter<'_> {
    fn split_log(&mut self, path: &Path) -> Result<()> {
        // Its writer may be a server that only pauses. What it has acknowledged is in the file, and no more comes.
        self.env.fs.seal(path)?;
        if self.on_damage == OnDamage::PassOver {
            return self.split_readable(path);
        }
        let mut reader = WalReader::open(self.env, path)?;
        while let Some((key, cells)) = reader.next_entry()? {
            self.report.entries += 1;
            self.add(path, &key, &cells)?;
        }
        self.report.logs.push(path.to_path_buf());
        if reader.is_torn() {
            tracing::info!(log = %path.display(), at = reader.torn_at(), "the log has a torn tail");
            self.report.torn.push(path.to_path_buf());
        }
        Ok(())
    }

    /// As `split_log`, passing over damage.
    fn split_readable(&mut self, path: &Path) -> Result<()> {
        let env = self.env;
        let damage = read_over_damage(env, path, &mut |key, cells| {
            self.report.entries += 1;
            self.add(path, key, cells)
        })?;
        self.report.logs.push(path.to_path_buf());
        if damage.torn_at.is_some() {
            self.report.torn.push(path.to_path_buf());
        }
        if damage.is_damaged() {
            self.report.damaged.push(damage);
        }
        Ok(())
    }

    fn add(&mut self, log: &Path, key: &pb::WalKey, cells: &[Cell]) -> Result<()> {
        if cells.is_empty() || cells.iter().all(|cell| is_marker(cell.get()) && !is_compaction(cell)) {
            self.report.markers += 1;
            return Ok(());
        }
        let (region, seq) = (&key.encoded_region_name[..], SeqId::new(key.log_sequence_number));
        if !self.outputs.contains_key(region) {
            let dir = (self.destination)(region, &key.table_name)?;
            let flushed_of = self.flushed_of;
            let output = dir.map(|dir| Output::new(key, dir, flushed_of(region), log, self.memory));
            self.outputs.insert(region.to_vec(), output);
        }
        let output = self.outputs.get_mut(region).expect("was just put in");
        let Some(output) = output.as_mut().filter(|output| !output.is_gone) else {
            self.report.dropped += 1;
            return Ok(());
        };
        // The opening learns of nonces here: an operation that is repeated must not be done again. It leaves the cells out itself.
        let has_nonce = key.nonce() != 0 && key.write_time >= output.flushed.nonces_since_ms;
        let borrowed: Vec<CellRef<'_>> = if has_nonce || output.flushed.is_before(seq) {
            cells.iter().map(Cell::get).collect()
        } else {
            let is_needed = |cell: &CellRef<'_>| !output.flushed.has(cell.family(), seq);
            cells.iter().map(Cell::get).filter(is_needed).collect()
        };
        if borrowed.is_empty() {
            self.report.flushed += 1;
            return Ok(());
        }
        let entry = PreparedEntry::copied(key, &borrowed, self.cipher.as_deref());
        // Its cells are in memory as well.
        let _cells = Room::new(self.memory, entry.len());
        let held_before = output.room.bytes();
        entry.put(&mut output.buffer, Mark::of_new(output.salt));
        output.count_room(self.env);
        output.last_seq = output.last_seq.max(seq);
        output.entries += 1;
        self.held_bytes = self.held_bytes - held_before + output.room.bytes();
        if self.memory.is_too_much(self.held_bytes) {
            self.spill()?;
        }
        Ok(())
    }

    /// Writes out the region with the most bytes in memory.
    fn spill(&mut self) -> Result<()> {
        invariant!(
            self.outputs.values().flatten().map(|output| output.room.bytes()).sum::<usize>()
                == self.held_bytes,
            "what is held for all regions is what is counted: {} bytes",
            self.held_bytes
        );
        let largest = self.outputs.values_mut().flatten().max_by_key(|output| output.room.bytes());
        let Some(output) = largest else { return Ok(()) };
        let held_before = output.room.bytes();
        let (env, cipher, memory) = (self.env, self.cipher.as_deref(), self.memory);
        output.unless_gone(self.destination, |output| {
            output.write(env, cipher, self.destination)?;
            // A file that is kept until it ends frees nothing. Where memory is short its bytes have to leave it.
            if memory.is_short() { output.let_go(env) } else { Ok(()) }
        })?;
        self.held_bytes = self.held_bytes - held_before + output.room.bytes();
        Ok(())
    }

    /// Completes every file; the names come last.
    fn finish(mut self, each: &Each<'_>) -> Result<SplitReport> {
        let (env, cipher, destination) = (self.env, self.cipher.clone(), self.destination);
        let outputs = self.outputs.into_values().flatten();
        // Of the others all edits are in files.
        let mut outputs: Vec<Output<'_>> =
            outputs.filter(|output| output.is_gone || output.has_edits()).collect();
        outputs.sort_by(|a, b| a.dir.cmp(&b.dir));
        let outputs: Vec<_> = outputs.into_iter().map(Mutex::new).collect();
        each(outputs.len(), &|at| {
            let output = &mut *outputs[at].lock();
            output.unless_gone(destination, |output| output.complete(env, cipher.as_deref(), destination))
        })?;
        each(outputs.len(), &|at| {
            let output = &mut *outputs[at].lock();
            output.unless_gone(destination, |output| output.publish(env, destination))
        })?;
        for output in &outputs {
            let output = &mut *output.lock();
            if output.is_gone {
                self.report.dropped += output.entries;
            } else {
                self.report.files.push(output.published.take().expect("each file was published"));
            }
        }
        Ok(self.report)
    }
}

impl<'a> Output<'a> {
    /// `key`: of its first entry.
    fn new(
        key: &pb::WalKey,
        dir: PathBuf,
        flushed: Flushed,
        log: &Path,
        memory: &'a SplitMemory,
    ) -> Output<'a> {
        let log = log.file_name().unwrap_or_default().to_string_lossy();
        let first_seq = SeqId::new(key.log_sequence_number);
        // No other attempt has this name. A change that comes late, when its attempt has failed, cannot meet a file of ours.
        let token: String = random_bytes::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
        let temporary = dir.join(format!("{:019}-{log}.{token}{TEMPORARY_SUFFIX}", first_seq.get()));
        Output {
            region: key.encoded_region_name.to_vec(),
            table: key.table_name.to_vec(),
            dir,
            flushed,
            temporary,
            file: None,
            salt: Salt::random(),
            buffer: Vec::new(),
            room: Room::new(memory, 0),
            last_seq: first_seq,
            entries: 0,
            made_region_dir: false,
            unflushed_bytes: 0,
            is_gone: false,
            published: None,
        }
    }

    /// Does something with the file. If that fails because the region was removed, its edits are dropped.
    fn unless_gone(
        &mut self,
        destination: &Destination<'_>,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        if self.is_gone {
            return Ok(());
        }
        let done = work(self);
        if done.is_err() && matches!(destination(&self.region, &self.table), Ok(None)) {
            self.is_gone = true;
        }
        if self.is_gone {
            (self.file, self.buffer) = (None, Vec::new());
            self.room.set(0);
            return Ok(());
        }
        done
    }

    fn has_edits(&self) -> bool {
        self.file.is_some() || !self.buffer.is_empty()
    }

    fn write(&mut self, env: &Env, cipher: Option<&WalCipher>, destination: &Destination<'_>) -> Result<()> {
        if self.file.is_none() {
            self.make_dir(env, destination)?;
            if self.is_gone {
                return Ok(());
            }
            let mut file = env.fs.create(&self.temporary)?;
            file.write_all(&encode_header(cipher, None, self.salt)?)?;
            self.file = Some(file);
        }
        let file = self.file.as_mut().expect("was just made");
        file.write_all(&self.buffer)?;
        self.unflushed_bytes += self.buffer.len();
        self.buffer = Vec::new();
        self.count_room(env);
        Ok(())
    }

    /// Makes the directory of the file, in that of the region. The region may have been removed since it was asked for: its directory is
    /// not made again, or a table of its name could not be created any more.
    fn make_dir(&mut self, env: &Env, destination: &Destination<'_>) -> Result<()> {
        let parent = self.dir.parent().expect("edits are in the directory of their region");
        match env.fs.create_own_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if destination(&self.region, &self.table)?.is_none() {
                    self.is_gone = true;
                    return Ok(());
                }
                // The region is there, and has nothing where the WALs are.
                self.made_region_dir = true;
                Ok(env.fs.create_dir_all(&self.dir)?)
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
            // Whoever made it may not have synced it.
            _ => Ok(env.fs.sync_dir(parent)?),
        }
    }

    /// Lets bytes go that a file on other machines would keep until it ends.
    fn let_go(&mut self, env: &Env) -> Result<()> {
        if env.fs.is_remote()
            && let Some(file) = &mut self.file
        {
            file.flush()?;
            self.unflushed_bytes = 0;
            self.count_room(env);
        }
        Ok(())
    }

    fn count_room(&mut self, env: &Env) {
        let keeps = self.file.is_some() && env.fs.is_remote();
        let kept_bytes = if keeps { self.unflushed_bytes.min(KEPT_MAX_BYTES) } else { 0 };
        self.room.set(self.buffer.capacity() + kept_bytes);
    }

    fn complete(
        &mut self,
        env: &Env,
        cipher: Option<&WalCipher>,
        destination: &Destination<'_>,
    ) -> Result<()> {
        assert!(self.has_edits(), "edits up to {} are said to be in a file that has none", self.last_seq);
        self.write(env, cipher, destination)?;
        if self.is_gone {
            return Ok(());
        }
        let mut file = self.file.take().expect("a write makes it");
        file.write_all(&self.salt.trailer())?;
        let done = file.sync_and_close();
        self.count_room(env);
        Ok(done?)
    }

    fn publish(&mut self, env: &Env, destination: &Destination<'_>) -> Result<()> {
        assert!(
            self.file.is_none() && self.buffer.is_empty(),
            "recovered edits get their name when all of them are on disk: {} bytes are in memory",
            self.buffer.len()
        );
        let named = self.take_name(env).and_then(|path| env.fs.sync_dir(&self.dir).map(|()| path));
        let path = named.map_err(|error| Error::from(error).context("could not publish recovered edits"))?;
        // What a removed region has where the WALs are goes last. So what is not seen to be too late here, that removes.
        if self.made_region_dir && destination(&self.region, &self.table)?.is_none() {
            self.remove(env)?;
        }
        self.published = Some(path);
        Ok(())
    }

    /// Removes what was made for a region that is gone.
    fn remove(&mut self, env: &Env) -> Result<()> {
        self.is_gone = true;
        let region_dir = self.dir.parent().expect("edits are in the directory of their region");
        let removed = env.fs.remove_dir_all(&self.dir).and_then(|()| env.fs.remove_dir(region_dir));
        match removed {
            Err(error)
                if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) =>
            {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    /// Moves the file to a name that no other file has. One with the same edits is of an earlier attempt.
    fn take_name(&self, env: &Env) -> io::Result<PathBuf> {
        for width in NAME_LEN..NAME_LEN + SAME_SEQ_MAX {
            let path = self.dir.join(format!("{:0width$}", self.last_seq.get()));
            match env.fs.rename(&self.temporary, &path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if have_same_edits(env, &self.temporary, &path).map_err(io::Error::other)? {
                        env.fs.remove_file(&self.temporary)?;
                        return Ok(path);
                    }
                }
                renamed => {
                    renamed.or_else(|error| env.fs.resolve_rename(&self.temporary, &path, error))?;
                    return Ok(path);
                }
            }
        }
        let text = format!("{}: {SAME_SEQ_MAX} files end with {}", self.dir.display(), self.last_seq);
        Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
    }
}

/// Whether a file has the edits of another one. Their bytes differ: each has a salt of its own, and a key if it is encrypted. A
/// damaged file has not; one that cannot be read just now is an error, because the same edits would stay twice.
fn have_same_edits(env: &Env, a: &Path, b: &Path) -> Result<bool> {
    let compared = || -> Result<bool> {
        let (mut a, mut b) = (WalReader::open(env, a)?, WalReader::open(env, b)?);
        loop {
            match (a.next_entry()?, b.next_entry()?) {
                (None, None) => return Ok(!a.is_torn() && !b.is_torn()),
                (Some(of_a), Some(of_b)) => {
                    if !are_same_edits(of_a, of_b) {
                        return Ok(false);
                    }
                }
                _ => return Ok(false),
            }
        }
    };
    match compared() {
        Err(error) if error.kind().is_permanent() => Ok(false),
        found => found,
    }
}

fn are_same_edits((key_a, cells_a): Entry, (key_b, cells_b): Entry) -> bool {
    let without_check = |mut key: pb::WalKey| {
        key.extended_attributes.retain(|attribute| attribute.key != CHECK_NAME);
        key
    };
    let bytes = |cells: &[Cell]| cells.iter().map(|cell| cell.bytes().clone()).collect::<Vec<_>>();
    without_check(key_a) == without_check(key_b) && bytes(&cells_a) == bytes(&cells_b)
}

/// An entry that was read.
type Entry = (pb::WalKey, Vec<Cell>);

fn is_compaction(cell: &Cell) -> bool {
    cell.qualifier() == COMPACTION_QUALIFIER
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    /// Edits of a region are replayed in the order of the files, and later ones must win.
    #[test]
    fn files_are_read_in_the_order_of_their_times() {
        let env = SimFileSystem::new().env();
        let dir = Path::new("/WALs/h");
        env.fs.create_dir_all(dir).unwrap();
        let names = ["h.998", "h.999.meta", "h.1000", "h.1001.meta", "h.10000"];
        for name in names.iter().rev().chain(&[".h.5.tmp"]) {
            env.fs.put_new(&dir.join(name), b"").unwrap();
        }
        let found = logs_in(&env, dir).unwrap();
        assert_eq!(found, names.map(|name| dir.join(name)));
    }
}
