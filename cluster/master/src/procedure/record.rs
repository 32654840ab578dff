//! The file of a procedure, `MasterData/procedures/<epoch>-<master>/<id>`.
//!
//! ```text
//! int8 format number 1 | Record
//! ```
//!
//! `next` beside it holds, as text, the first number that no procedure has had. `<id>.ended`, in the same format, tells for a while
//! how a procedure ended that a client asked for: clients repeat at the next master what they had no answer to.
//!
//! A master that starts gives the directory its own name. The one before, which may have been frozen and know nothing, then finds no
//! directory any more: it can neither write a record nor take one away. Earlier programs had the files in
//! `MasterData/procedures` itself.

use std::path::{Path, PathBuf};

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::{Env, FileSystem};
use halcyon_rpc::RpcError;
use halcyon_schema::layout;
use prost::Message;
use tracing::warn;

use crate::descriptors::list;
use crate::scratch;
use crate::state::MasterState;

const FORMAT: u8 = 1;
const NEXT: &str = "next";
/// Of the name of a master's directory, at least.
const EPOCH_DIGITS: usize = 16;
/// No master has this one, or one above it: each is one more than the one before.
const EPOCH_MAX: u64 = i64::MAX as u64;
/// End of the name of a result.
const ENDED: &str = ".ended";
/// Numbers reserved at a time, so that the file of the next one is seldom written.
const IDS_RESERVED: u64 = 1_000_000;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Record {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) kind: String,
    /// The step to run next.
    #[prost(uint32, tag = "3")]
    pub(crate) step: u32,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) payload: Vec<u8>,
    #[prost(int64, tag = "5")]
    pub(crate) submitted_ms: i64,
    #[prost(uint64, tag = "6")]
    pub(crate) nonce_group: u64,
    /// 0: the caller gave none.
    #[prost(uint64, tag = "7")]
    pub(crate) nonce: u64,
    #[prost(string, tag = "8")]
    pub(crate) owner: String,
    /// An administrator ended the procedure (`BypassProcedure`): it must not run again.
    #[prost(bool, tag = "9")]
    pub(crate) bypassed: bool,
    /// Why the procedure failed. From then on it is undone, also after a restart.
    #[prost(message, optional, tag = "10")]
    pub(crate) failure: Option<Failure>,
    #[prost(message, optional, tag = "11")]
    pub(crate) set_aside: Option<SetAside>,
    /// Whether the caller was told the number before the request was checked, and asks for the result by it.
    #[prost(bool, tag = "12")]
    pub(crate) by_number: bool,
}

impl Record {
    /// Whether its first step had not ended when the master did. It had its locks then: the record is written with them taken, and
    /// before the step changes anything. But a program before this one may have let another begin since, which goes first then.
    pub(crate) fn is_in_first_step(&self) -> bool {
        self.step == 0 && self.failure.is_none() && self.set_aside.is_none()
    }

    /// Whether a client may ask the next master how it ended.
    pub(crate) fn keeps_result(&self) -> bool {
        self.nonce != 0 || (self.by_number && !self.owner.is_empty())
    }
}

/// How a procedure ended, for clients that ask the next master. A file of its own, `<id>.ended`, because programs before this one take
/// every file whose name is a number for a procedure that has not ended.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ended {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) class_name: String,
    #[prost(string, tag = "3")]
    pub(crate) owner: String,
    #[prost(int64, tag = "4")]
    pub(crate) submitted_ms: i64,
    #[prost(int64, tag = "5")]
    pub(crate) finished_ms: i64,
    #[prost(message, optional, tag = "6")]
    pub(crate) failure: Option<Failure>,
    #[prost(uint64, tag = "7")]
    pub(crate) nonce_group: u64,
    #[prost(uint64, tag = "8")]
    pub(crate) nonce: u64,
}

/// Why a procedure does not go on until somebody ends it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetAside {
    #[prost(string, tag = "1")]
    pub(crate) why: String,
    /// Of the program. Another one tries again.
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    #[prost(int64, tag = "3")]
    pub(crate) since_ms: i64,
}

impl SetAside {
    pub(crate) fn new(why: String, since_ms: i64) -> SetAside {
        SetAside { why, version: env!("CARGO_PKG_VERSION").to_string(), since_ms }
    }

    fn is_of_this_program(&self) -> bool {
        self.version == env!("CARGO_PKG_VERSION")
    }
}

/// An error as a client sees it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Failure {
    #[prost(string, tag = "1")]
    pub(crate) class: String,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn of(error: &RpcError) -> Failure {
        Failure { class: error.class.clone().into_owned(), message: error.message.clone() }
    }

    pub(crate) fn to_error(&self) -> RpcError {
        let mut error = RpcError::do_not_retry(self.message.clone());
        error.class = self.class.clone().into();
        error
    }
}

/// The epoch in the name of a master's directory. What has another name is of somebody else, and stays as it is.
fn epoch_of(name: &str) -> Option<u64> {
    let (epoch, master) = name.split_once('-')?;
    let is_epoch = epoch.len() >= EPOCH_DIGITS && epoch.bytes().all(|digit| digit.is_ascii_digit());
    epoch.parse().ok().filter(|_| is_epoch && !master.is_empty())
}

/// Epochs of more digits than most have longer names, which come before others as texts.
fn order_of(name: &str) -> (Option<u64>, &str) {
    (epoch_of(name), name)
}

/// The highest epoch of a master that has left records, 0 if there is none. The next one must be above it: ZooKeeper, which counts
/// epochs, may have lost its data since. Corrupt if a directory names an epoch that no master has had.
pub fn highest_epoch(env: &Env, root: &Path) -> Result<u64> {
    let all = records_dir(root);
    let dirs = list(&*env.fs, &all)?.into_iter().filter(|entry| entry.is_dir);
    let highest = dirs.filter_map(|dir| Some((epoch_of(&dir.name)?, dir.name))).max();
    match highest {
        Some((EPOCH_MAX.., name)) => {
            let dir = all.join(name);
            Err(Error::corrupt(format!("{} is of no master: the directory is to be renamed", dir.display())))
        }
        highest => Ok(highest.map_or(0, |(epoch, _)| epoch)),
    }
}

fn dir(core: &MasterState) -> PathBuf {
    records_dir(&core.root).join(own_name(core))
}

fn own_name(core: &MasterState) -> String {
    scratch::own_name(core.settings.epoch, &core.settings.server_name)
}

/// Takes the records from the master before. `Expired` if there is a later one. May run twice.
fn take_over(core: &MasterState) -> Result<()> {
    let (fs, all, own) = (&*core.env.fs, records_dir(&core.root), own_name(core));
    fs.create_dir_all(&all)?;
    let (mut dirs, files): (Vec<_>, Vec<_>) = list(fs, &all)?.into_iter().partition(|entry| entry.is_dir);
    dirs.retain(|dir| epoch_of(&dir.name).is_some());
    dirs.sort_by(|left, right| order_of(&left.name).cmp(&order_of(&right.name)));
    let newest = dirs.pop().map(|entry| entry.name).filter(|newest| *newest != own);
    if let Some(newest) = newest {
        if core.settings.epoch > 0 && order_of(&newest) > order_of(&own) {
            let text = format!(
                "{}/{newest} is of a later master than {own}. If none has been active since this one, the directory is to be renamed",
                all.display()
            );
            return Err(Error::new(ErrorKind::Expired, text));
        }
        move_into_place(fs, &all.join(newest), &all.join(&own))?;
    } else if !fs.exists(&all.join(&own))? {
        fs.create_dir(&all.join(&own))?;
    }
    for file in files.iter().filter(|file| file.name == NEXT || file.name.parse::<u64>().is_ok()) {
        move_into_place(fs, &all.join(&file.name), &all.join(&own).join(&file.name))?;
    }
    fs.sync_dir(&all.join(&own))?;
    // Of masters that were deposed before they had begun.
    for left in &dirs {
        fs.remove_dir_all(&all.join(&left.name))?;
    }
    // The own one first: it shows the others that they have a successor.
    scratch::make_snapshots_dir(core)?;
    scratch::remove_others(core)?;
    Ok(fs.sync_dir(&all)?)
}

/// Whether a later master has taken them. An answer that did not come is none.
pub(crate) fn are_taken(core: &MasterState) -> bool {
    matches!(core.env.fs.exists(&dir(core)), Ok(false))
}

/// Whether no later master has taken them. An answer that did not come is none.
pub(crate) fn are_kept(core: &MasterState) -> bool {
    matches!(core.env.fs.exists(&dir(core)), Ok(true))
}

fn move_into_place(fs: &dyn FileSystem, from: &Path, to: &Path) -> Result<()> {
    Ok(fs.rename(from, to).or_else(|error| fs.resolve_rename(from, to, error))?)
}

/// Where masters of Halcyon keep what their procedures have done.
pub(crate) fn records_dir(root: &Path) -> PathBuf {
    layout::master_dir(root).join("procedures")
}

/// Removes all records: HBase has worked in the directory since they were written, and what its tables are now is not
/// what they were about.
pub(crate) fn forget_records(env: &Env, root: &Path) -> Result<()> {
    let all = records_dir(root);
    let dirs: Vec<_> = list(&*env.fs, &all)?.into_iter().filter(|entry| entry.is_dir).collect();
    for dir in dirs.into_iter().map(|entry| all.join(entry.name)).chain([all.clone()]) {
        forget_records_in(env, &dir)?;
    }
    Ok(())
}

fn forget_records_in(env: &Env, dir: &Path) -> Result<()> {
    let mut forgotten = 0;
    for entry in list(&*env.fs, dir)? {
        if entry.name.strip_suffix(ENDED).is_some_and(|number| number.parse::<u64>().is_ok()) {
            env.fs.remove_file(&dir.join(&entry.name))?;
            forgotten += 1;
            continue;
        }
        if entry.name.parse::<u64>().is_err() {
            continue;
        }
        let path = dir.join(&entry.name);
        let kind =
            decode(&env.fs.read(&path)?).map_or_else(|error| error.to_string(), |record: Record| record.kind);
        warn!(id = entry.name, kind, "a procedure that was under way before HBase worked here is forgotten");
        env.fs.remove_file(&path)?;
        forgotten += 1;
    }
    if forgotten > 0 {
        env.fs.sync_dir(dir)?;
    }
    Ok(())
}

pub(crate) fn write(core: &MasterState, record: &Record) -> Result<()> {
    Ok(core.env.fs.replace(&dir(core).join(record.id.to_string()), &encode(record))?)
}

/// Sees to it that no master goes on with the procedure, which may be running.
pub(crate) fn mark_bypassed(core: &MasterState, id: u64) -> Result<()> {
    let bytes = match core.env.fs.read(&dir(core).join(id.to_string())) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()), // not recorded yet
        bytes => bytes?,
    };
    write(core, &Record { bypassed: true, ..decode(&bytes)? })
}

/// Removes a record. Not durable by itself, which saves a sync: a record that comes back after a crash runs its
/// last step once more. Nothing newer can have happened to its table by then, because the record of a newer
/// procedure makes the names of the directory durable, this removal among them.
pub(crate) fn remove(core: &MasterState, id: u64) -> Result<()> {
    match core.env.fs.remove_file(&dir(core).join(id.to_string())) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => Ok(other?),
    }
}

/// What the master before has left.
#[derive(Default)]
pub(crate) struct Loaded {
    /// In the order of their numbers. One that cannot be read is set aside.
    pub(crate) records: Vec<Record>,
    /// In the order of their ends.
    pub(crate) ended: Vec<Ended>,
}

/// Takes over what the master before has left. Results that are older than `results_keep_ms` are removed.
pub(crate) fn load(core: &MasterState, results_keep_ms: i64) -> Result<Loaded> {
    take_over(core)?;
    let dir = dir(core);
    let (mut loaded, oldest_ms) = (Loaded::default(), core.now_ms().saturating_sub(results_keep_ms));
    for entry in list(&*core.env.fs, &dir)? {
        let (number, is_result) = match entry.name.strip_suffix(ENDED) {
            Some(number) => (number, true),
            None => (&*entry.name, false),
        };
        let Ok(id) = number.parse::<u64>() else { continue };
        let path = dir.join(&entry.name);
        let bytes = core.env.fs.read(&path)?;
        if is_result {
            match decode::<Ended>(&bytes) {
                // Also of a file that somebody has copied.
                Ok(ended) if ended.finished_ms >= oldest_ms => loaded.ended.push(Ended { id, ..ended }),
                Ok(_) => core.env.fs.remove_file(&path)?,
                Err(error) => warn!(path = %path.display(), %error, "the result of a procedure is left out"),
            }
            continue;
        }
        loaded
            .records
            .push(decode(&bytes).map(taken_up).unwrap_or_else(|error| unreadable(core, id, &error)));
        if let Some(record) = loaded.records.last_mut() {
            record.id = id; // also of a file that somebody has copied
        }
    }
    loaded.records.sort_by_key(|record: &Record| record.id);
    loaded.ended.sort_by_key(|ended| (ended.finished_ms, ended.id));
    // Of these the removal was not durable.
    let ended: std::collections::HashSet<u64> = loaded.ended.iter().map(|ended| ended.id).collect();
    let (over, records): (Vec<_>, Vec<_>) =
        loaded.records.into_iter().partition(|record| ended.contains(&record.id));
    over.iter().try_for_each(|record| remove(core, record.id))?;
    Ok(Loaded { records, ..loaded })
}

fn taken_up(mut record: Record) -> Record {
    record.set_aside = record.set_aside.filter(SetAside::is_of_this_program);
    record
}

/// Stands for a record that cannot be read.
pub(crate) fn unreadable(core: &MasterState, id: u64, error: &Error) -> Record {
    let why = format!("its record {} cannot be read: {error}", dir(core).join(id.to_string()).display());
    warn!(id, why, "a procedure is set aside");
    Record { id, set_aside: Some(SetAside::new(why, core.now_ms())), ..Record::default() }
}

/// Keeps the result of a procedure for the next master. Durable.
pub(crate) fn write_ended(core: &MasterState, ended: &Ended) -> Result<()> {
    Ok(core.env.fs.replace(&ended_path(core, ended.id), &encode(ended))?)
}

/// Removes the result of a procedure. Not durable by itself.
pub(crate) fn remove_ended(core: &MasterState, id: u64) -> Result<()> {
    match core.env.fs.remove_file(&ended_path(core, id)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => Ok(other?),
    }
}

fn ended_path(core: &MasterState, id: u64) -> PathBuf {
    dir(core).join(format!("{id}{ENDED}"))
}

fn encode(message: &impl Message) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    message.encode(&mut bytes).expect("a Vec grows as needed");
    bytes
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M> {
    match bytes.split_first() {
        Some((&FORMAT, message)) => M::decode(message).map_err(|error| Error::corrupt(error.to_string())),
        other => {
            Err(Error::corrupt(format!("format {:?}, expected {FORMAT}", other.map(|(format, _)| format))))
        }
    }
}

/// Takes numbers that no procedure had, also none of an earlier master: clients ask for results by number.
pub(crate) fn reserve_ids(core: &MasterState) -> Result<std::ops::Range<u64>> {
    let path = dir(core).join(NEXT);
    let first = if core.env.fs.exists(&path)? {
        let bytes = core.env.fs.read(&path)?;
        let text = String::from_utf8_lossy(&bytes);
        text.trim()
            .parse()
            .map_err(|_| Error::corrupt(format!("{}: '{}' is not a number", path.display(), text.trim())))?
    } else {
        1
    };
    let end = first + IDS_RESERVED;
    core.env.fs.replace(&path, format!("{end}\n").as_bytes())?;
    Ok(first..end)
}

#[cfg(test)]
mod tests {
    use halcyon_schema::ServerName;

    use super::*;

    #[test]
    fn a_record_of_another_format_is_refused() {
        let record = Record { id: 7, kind: "x".into(), step: 2, payload: vec![1], ..Default::default() };
        let mut bytes = encode(&record);
        assert_eq!(decode::<Record>(&bytes).unwrap(), record);
        bytes[0] = 2;
        assert!(decode::<Record>(&bytes).is_err());
        assert!(decode::<Record>(&[]).is_err());
    }

    /// Each master that was elected said that the directory is of a later one, and did not start.
    #[test]
    fn epochs_of_many_digits_are_numbers() {
        let server = ServerName::new("m", 16000, 1);
        let name = |epoch| scratch::own_name(epoch, &server);
        let epochs = [1, 999, 9_999_999_999_999_999, 10_000_000_000_000_000, EPOCH_MAX, u64::MAX];
        let mut names: Vec<String> = epochs.into_iter().map(name).collect();
        names.sort_by(|left, right| order_of(left).cmp(&order_of(right)));
        assert_eq!(names, epochs.map(name));
        assert!(order_of(&name(epochs[3])) > order_of("9999999999999999-x"));

        let (env, root) = (halcyon_env::sim::SimFileSystem::new().env(), Path::new("/root"));
        assert_eq!(highest_epoch(&env, root).unwrap(), 0);
        for (epoch, is_known) in [(7, true), (epochs[3], true), (EPOCH_MAX, false), (u64::MAX, false)] {
            let dir = records_dir(root).join(name(epoch));
            env.fs.create_dir_all(&dir).unwrap();
            let highest = highest_epoch(&env, root);
            assert_eq!(highest.as_ref().ok(), is_known.then_some(&epoch), "{highest:?}");
            let names_it = |error: &Error| error.message().contains(&name(epoch));
            assert!(highest.as_ref().err().is_none_or(names_it), "{highest:?}");
        }
    }
}
