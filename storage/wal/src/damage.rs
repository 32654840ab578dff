//! Damaged logs: what is lost of one, and how it is put out of the way.
//!
//! An entry that cannot be read and that its writer knew to be on disk may have been acknowledged. So a split ends with an
//! error, and the regions of the log's server stay closed. Whoever would rather lose the damaged entries than wait has two
//! ways on: a split that passes over them ([`OnDamage::PassOver`], HBase: `hbase.hlog.split.skip.errors`), and moving the
//! log to the directory `corrupt` without a split. For both, [`LogDamage`] says what is lost.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use halcyon_cell::{Cell, Error, ErrorKind, Result, SeqId};
use halcyon_env::{Env, invariant};
use halcyon_proto::pb;

use crate::reader::WalReader;

/// Names that are tried in the directory of damaged logs.
const NAMES_MAX: usize = 1000;
/// Regions that one line names.
const NAMED_MAX: usize = 10;

/// What a split does with a damaged log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// Ends with an error.
    #[default]
    Refuse,
    /// Takes what can be read, and reports the rest.
    PassOver,
}

/// Bytes of a log in which no entry could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPart {
    /// Offset of the first byte.
    pub begin: u64,
    /// Offset of the next whole entry, or the end of the file.
    pub end: u64,
    /// Names file and offset.
    pub why: String,
}

/// The entries of a region that could be read in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionPart {
    /// Full name.
    pub table: String,
    pub first_seq: SeqId,
    pub last_seq: SeqId,
    pub entries_count: u64,
}

/// What can be read of a log and what cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogDamage {
    pub path: PathBuf,
    /// Of the file.
    pub len_bytes: u64,
    /// In order; empty if the log is whole.
    pub lost: Vec<LostPart>,
    /// That could be read.
    pub entries_count: u64,
    /// By encoded name. These may lack edits; so may regions all of whose entries were in the lost parts.
    pub regions: BTreeMap<String, RegionPart>,
    /// Where the log ends, if its writer died in the middle of an entry. What is behind was promised to nobody.
    pub torn_at: Option<u64>,
}

impl LogDamage {
    pub fn is_damaged(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Bytes of the lost parts.
    pub fn lost_bytes(&self) -> u64 {
        self.lost.iter().map(|part| part.end - part.begin).sum()
    }

    fn note(&mut self, key: &pb::WalKey) {
        self.entries_count += 1;
        let (region, seq) = (&key.encoded_region_name, SeqId::new(key.log_sequence_number));
        let region = String::from_utf8_lossy(region).into_owned();
        let part = self.regions.entry(region).or_insert_with(|| RegionPart {
            table: String::from_utf8_lossy(&key.table_name).into_owned(),
            first_seq: seq,
            last_seq: seq,
            entries_count: 0,
        });
        part.first_seq = part.first_seq.min(seq);
        part.last_seq = part.last_seq.max(seq);
        part.entries_count += 1;
    }
}

/// One line, for people.
impl fmt::Display for LogDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, len) = (self.path.display(), self.len_bytes);
        if !self.is_damaged() {
            return write!(f, "{path}: all {} entries can be read", self.entries_count);
        }
        write!(f, "{path}: {} of {len} bytes cannot be read", self.lost_bytes())?;
        for (number, LostPart { begin, end, why }) in self.lost.iter().enumerate() {
            let before = if number == 0 { ", from" } else { " and from" };
            write!(f, "{before} {begin} to {end} ({why})")?;
        }
        write!(f, "; {} entries can be read", self.entries_count)?;
        for (number, (region, part)) in self.regions.iter().take(NAMED_MAX).enumerate() {
            let before = if number == 0 { ", of" } else { "," };
            let RegionPart { table, first_seq, last_seq, .. } = part;
            write!(f, "{before} region {region} of {table} ({first_seq} to {last_seq})")?;
        }
        match self.regions.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} other regions"),
        }
    }
}

/// Reads a log that nobody writes any more and says what is lost of it. Changes nothing. `Io` if its bytes cannot be read at the
/// moment; `Invalid` if its key or its codec is missing, which is no damage.
pub fn examine_log(env: &Env, path: &Path) -> Result<LogDamage> {
    read_over_damage(env, path, &mut |_, _| Ok(()))
}

/// Shows all entries that can be read. An error of `visit` ends it.
pub(crate) fn read_over_damage(
    env: &Env,
    path: &Path,
    visit: &mut dyn FnMut(&pb::WalKey, &[Cell]) -> Result<()>,
) -> Result<LogDamage> {
    let len_bytes = env.fs.open(path)?.len()?;
    let mut damage = LogDamage { path: path.to_path_buf(), len_bytes, ..LogDamage::default() };
    let lost = |begin, end, error: &Error| LostPart { begin, end, why: error.message().to_string() };
    let mut reader = match WalReader::open(env, path) {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            damage.lost.push(lost(0, len_bytes, &error));
            return Ok(damage);
        }
        opened => opened?,
    };
    loop {
        match reader.next_entry() {
            Ok(Some((key, cells))) => {
                damage.note(&key);
                visit(&key, &cells)?;
            }
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let begin = reader.offset();
                let end = reader.skip_damage()?;
                damage.lost.push(lost(begin, end.unwrap_or(len_bytes), &error));
                if end.is_none() {
                    break;
                }
            }
            Err(error) => return Err(error),
        }
    }
    damage.torn_at = reader.torn_at();
    invariant!(
        damage.lost.is_sorted_by(|one, next| one.end <= next.begin)
            && damage.lost.iter().all(|part| part.begin <= part.end && part.end <= len_bytes),
        "lost parts follow each other, or bytes would be counted twice: {:?} of {len_bytes}",
        damage.lost
    );
    Ok(damage)
}

/// Moves a log to the directory of damaged logs (HBase: `corrupt`), which is made if need be, durably. Its new path, which has
/// the log's name, with a number behind it if that is taken. May be called again after an error: `NotFound` of kind `Io` if the
/// log is not there any more.
pub fn set_aside(env: &Env, log: &Path, corrupt_dir: &Path) -> Result<PathBuf> {
    env.fs.create_dir_all(corrupt_dir)?;
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    for number in 0..NAMES_MAX {
        let name = if number == 0 { name.to_string() } else { format!("{name}-{number}") };
        let target = corrupt_dir.join(name);
        match env.fs.rename(log, &target).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Err(error),
            _ => env.fs.resolve_rename(log, &target, error),
        }) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            moved => moved?,
        }
        env.fs.sync_dir(corrupt_dir)?;
        log.parent().map_or(Ok(()), |dir| env.fs.sync_dir(dir))?;
        return Ok(target);
    }
    Err(Error::new(
        ErrorKind::Io,
        format!("{}: {NAMES_MAX} files have the name {name}", corrupt_dir.display()),
    ))
}
