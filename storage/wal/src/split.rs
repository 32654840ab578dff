//! Splits a dead server's logs: the edits of each region go to files of its `recovered.edits` directory,
//! which the region replays when it opens next.
//!
//! ```text
//! <region>/recovered.edits/0000000000000000417          a log of one region; 417 = seq of its last entry
//! <region>/recovered.edits/00000000000000000417         another one of that seq, from the logs of another server
//! <region>/recovered.edits/0000000000000000402-<log>.<random>.temp   being written; 402 = seq of its first
//! ```
//!
//! Each file is whole and durable before it gets its name, and splitting the same logs again makes the same edits, in the same files
//! while there is memory. A region may be removed while its edits are on their way; they are dropped then, and its directory is not
//! made again.
//!
//! Splits share their memory ([`SplitMemory`]), and the edits of a region may not fit in. On a local disk they go to its file, which stays
//! open. A file of HDFS that is open costs threads of its DataNodes, and there may be thousands of regions. So it is completed, and the region
//! gets another one: files that overlap, of two attempts say, are merged by the replay. For few edits that is not worth it: they are
//! *deferred*, which means that they are forgotten, and the log is read again for them when those of other regions are in files.
//!
//! HBase reads files whose names are numbers, whatever their zeros, and passes over all others
//! (`WALSplitUtil.getSplitEditFilesSorted`). So a split that was cut off is simply done again; the logs themselves are moved away by
//! the caller when it has succeeded.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, CellRef, Error, ErrorKind, Result, SeqId};
use halcyon_env::sync::Mutex;
use halcyon_env::{DirEntry, Env, invariant};
use halcyon_proto::pb;

use crate::cipher::WalCipher;
use crate::damage::{LogDamage, OnDamage, read_over_damage};
use crate::format::{COMPACTION_QUALIFIER, PreparedEntry, is_marker};
use crate::reader::WalReader;

mod memory;
mod output;

pub use memory::SplitMemory;
use memory::{FILE_MIN_BYTES, Room};
use output::Output;

/// Name of the directory in a region's directory.
pub const RECOVERED_EDITS_DIR: &str = "recovered.edits";
/// Suffix of a file being written. One that an attempt left is removed when its region opens.
pub const TEMPORARY_SUFFIX: &str = ".temp";

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

struct Splitter<'a> {
    env: &'a Env,
    /// If what is written is encrypted.
    cipher: Option<Arc<WalCipher>>,
    destination: &'a Destination<'a>,
    flushed_of: &'a FlushedOf<'a>,
    each: &'a Each<'a>,
    memory: &'a SplitMemory,
    /// `None`: the region is gone.
    outputs: HashMap<Vec<u8>, Option<Output<'a>>>,
    /// What all outputs keep in memory.
    held_bytes: usize,
    /// Entries of all logs before the present one. Those that are read again have the numbers that they had.
    position: u64,
    reads_again: bool,
    on_damage: OnDamage,
    report: SplitReport,
}

/// Logs before which no edits are in memory.
struct Stretch {
    /// The first one.
    log: usize,
    /// Of its first entry.
    position: u64,
    /// What the report has of those before it.
    torn: usize,
    damaged: usize,
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
        each,
        memory,
        outputs: HashMap::new(),
        held_bytes: 0,
        position: 0,
        reads_again: false,
        on_damage,
        report: SplitReport::default(),
    };
    splitter.split_all(&logs)?;
    splitter.finish()
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

    fn split_all(&mut self, logs: &[PathBuf]) -> Result<()> {
        let mut stretch = self.stretch_from(0);
        for (at, log) in logs.iter().enumerate() {
            self.split_log(log)?;
            if self.outputs.values().flatten().any(Output::is_deferred) {
                self.read_again(logs, at, &stretch)?;
                stretch = self.stretch_from(at + 1);
            }
        }
        Ok(())
    }

    fn stretch_from(&self, log: usize) -> Stretch {
        let SplitReport { torn, damaged, .. } = &self.report;
        Stretch { log, position: self.position, torn: torn.len(), damaged: damaged.len() }
    }

    /// Reads a stretch of logs, up to `last`, until the edits of all regions were taken. What is in memory is completed before each time,
    /// and more than a quarter of what a split may have is kept of the deferred ones: that is their share of a reading, at least.
    fn read_again(&mut self, logs: &[PathBuf], last: usize, stretch: &Stretch) -> Result<()> {
        let end = self.position;
        let report = mem::take(&mut self.report);
        self.reads_again = true;
        loop {
            self.complete_all()?;
            let mut deferred = 0;
            for output in self.outputs.values_mut().flatten() {
                deferred += usize::from(output.is_deferred());
                output.take_up(end);
            }
            if deferred == 0 {
                break;
            }
            tracing::info!(
                regions = deferred,
                "a split has no more memory: it reads again for regions with few edits"
            );
            self.position = stretch.position;
            logs[stretch.log..=last].iter().try_for_each(|log| self.split_log(log))?;
            let again = mem::take(&mut self.report);
            // Entries are known by their numbers. What was damaged may be read of another replica, and numbers would be others'.
            let is_same = self.position == end
                && again.torn == report.torn[stretch.torn..]
                && again.damaged == report.damaged[stretch.damaged..];
            if !is_same {
                let (log, found) = (logs[last].display(), self.position - stretch.position);
                let expected = end - stretch.position;
                let what = format!("{log}: read again, it ends with other entries: {found}, not {expected}");
                return Err(Error::new(ErrorKind::Io, what));
            }
        }
        (self.reads_again, self.report) = (false, report);
        Ok(())
    }

    fn add(&mut self, log: &Path, key: &pb::WalKey, cells: &[Cell]) -> Result<()> {
        let position = self.position;
        self.position += 1;
        if cells.is_empty() || cells.iter().all(|cell| is_marker(cell.get()) && !is_compaction(cell)) {
            self.report.markers += 1;
            return Ok(());
        }
        let (region, seq) = (&key.encoded_region_name[..], SeqId::new(key.log_sequence_number));
        if !self.outputs.contains_key(region) {
            let dir = (self.destination)(region, &key.table_name)?;
            let flushed_of = self.flushed_of;
            let output = dir.map(|dir| Output::new(key, dir, flushed_of(region), self.memory));
            self.outputs.insert(region.to_vec(), output);
        }
        let output = self.outputs.get_mut(region).expect("was just put in");
        let Some(output) = output.as_mut().filter(|output| !output.is_gone) else {
            self.report.dropped += 1;
            return Ok(());
        };
        if self.reads_again && !output.takes(position) {
            return Ok(()); // what it comes to was counted when it was read first
        }
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
        output.entries += u64::from(!self.reads_again);
        if !output.takes(position) {
            return Ok(());
        }
        let entry = PreparedEntry::copied(key, &borrowed, self.cipher.as_deref());
        // Its cells are in memory as well.
        let _cells = Room::new(self.memory, entry.len());
        let held_before = output.held_bytes();
        output.add(&entry, seq, position, log);
        self.held_bytes = self.held_bytes - held_before + output.held_bytes();
        match self.memory.reduced(self.held_bytes) {
            Some(bytes) => self.reduce_to(bytes),
            None => Ok(()),
        }
    }

    /// Writes out the regions with the most bytes in memory, or defers them, until there are no more than `bytes`. That is half of
    /// what there were, so what it costs to look at all regions is small for each entry.
    fn reduce_to(&mut self, bytes: usize) -> Result<()> {
        invariant!(
            self.outputs.values().flatten().map(Output::held_bytes).sum::<usize>() == self.held_bytes,
            "what is held for all regions is what is counted: {} bytes",
            self.held_bytes
        );
        let (env, cipher, destination) = (self.env, self.cipher.as_deref(), self.destination);
        let files_end = env.fs.is_remote();
        let mut held: Vec<&mut Output<'_>> =
            self.outputs.values_mut().flatten().filter(|output| output.held_bytes() > 0).collect();
        held.sort_unstable_by(|a, b| {
            (Reverse(a.held_bytes()), &a.region).cmp(&(Reverse(b.held_bytes()), &b.region))
        });
        let mut written = Vec::new();
        for output in held {
            if self.held_bytes <= bytes {
                break;
            }
            self.held_bytes -= output.held_bytes();
            if files_end && output.held_bytes() < FILE_MIN_BYTES {
                output.defer();
            } else {
                written.push(Mutex::new(output));
            }
        }
        (self.each)(written.len(), &|at| {
            let output = &mut **written[at].lock();
            output.unless_gone(destination, |output| output.write_out(env, cipher, destination))
        })
    }

    /// Completes the file of every region.
    fn complete_all(&mut self) -> Result<()> {
        let (env, cipher, destination) = (self.env, self.cipher.as_deref(), self.destination);
        let outputs = self.outputs.values_mut().flatten().filter(|output| output.is_collecting());
        let mut outputs: Vec<&mut Output<'_>> = outputs.collect();
        outputs.sort_unstable_by(|a, b| a.dir.cmp(&b.dir));
        let outputs: Vec<_> = outputs.into_iter().map(Mutex::new).collect();
        self.held_bytes = 0;
        (self.each)(outputs.len(), &|at| {
            let output = &mut **outputs[at].lock();
            output.unless_gone(destination, |output| output.complete(env, cipher, destination))
        })
    }

    /// Completes every file; the names come last.
    fn finish(mut self) -> Result<SplitReport> {
        self.complete_all()?;
        let (env, destination) = (self.env, self.destination);
        let outputs = self.outputs.into_values().flatten();
        // Of the others all edits are in files.
        let mut outputs: Vec<Output<'_>> =
            outputs.filter(|output| output.is_gone || output.has_files()).collect();
        outputs.sort_by(|a, b| a.dir.cmp(&b.dir));
        let outputs: Vec<_> = outputs.into_iter().map(Mutex::new).collect();
        (self.each)(outputs.len(), &|at| {
            let output = &mut *outputs[at].lock();
            output.unless_gone(destination, |output| output.publish(env, destination))
        })?;
        for output in &outputs {
            let output = &mut *output.lock();
            if output.is_gone {
                self.report.dropped += output.entries;
            } else {
                assert!(!output.published.is_empty(), "each file was published");
                self.report.files.append(&mut output.published);
            }
        }
        self.report.files.sort();
        // Two files of a region may have had the same edits.
        self.report.files.dedup();
        Ok(self.report)
    }
}

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
