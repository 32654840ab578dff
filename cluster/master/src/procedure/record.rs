//! The file of a procedure, `MasterData/procedures/<epoch>-<master>/<id>`.
//!
//! ```text
//! int8 format number 1 | Record
//! ```
//!
//! `next` beside it holds, as text, the first number that no procedure has had.
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
use crate::state::MasterState;

const FORMAT: u8 = 1;
const NEXT: &str = "next";
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

fn dir(core: &MasterState) -> PathBuf {
    records_dir(&core.root).join(own_name(core))
}

/// Names of later masters come later.
fn own_name(core: &MasterState) -> String {
    format!("{:016}-{}", core.settings.epoch, core.settings.server_name)
}

/// Takes the records from the master before. `Expired` if there is a later one. May run twice.
fn take_over(core: &MasterState) -> Result<()> {
    let (fs, all, own) = (&*core.env.fs, records_dir(&core.root), own_name(core));
    fs.create_dir_all(&all)?;
    let (mut dirs, files): (Vec<_>, Vec<_>) = list(fs, &all)?.into_iter().partition(|entry| entry.is_dir);
    dirs.sort_by(|left, right| left.name.cmp(&right.name));
    let newest = dirs.pop().map(|entry| entry.name).filter(|newest| *newest != own);
    if let Some(newest) = newest {
        if core.settings.epoch > 0 && newest > own {
            let text = format!("{}/{newest} is of a later master than {own}", all.display());
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
    Ok(fs.sync_dir(&all)?)
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
        if entry.name.parse::<u64>().is_err() {
            continue;
        }
        let path = dir.join(&entry.name);
        let kind = decode(&env.fs.read(&path)?).map_or_else(|error| error.to_string(), |record| record.kind);
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
    let mut bytes = vec![FORMAT];
    record.encode(&mut bytes).expect("a Vec grows as needed");
    Ok(core.env.fs.replace(&dir(core).join(record.id.to_string()), &bytes)?)
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

/// All records, in the order of their numbers.
pub(crate) fn load(core: &MasterState) -> Result<Vec<Record>> {
    take_over(core)?;
    let dir = dir(core);
    let mut records = Vec::new();
    for entry in list(&*core.env.fs, &dir)? {
        if entry.name.parse::<u64>().is_err() {
            continue;
        }
        let path = dir.join(&entry.name);
        let bytes = core.env.fs.read(&path)?;
        records.push(decode(&bytes).map_err(|error| error.context(path.display()))?);
    }
    records.sort_by_key(|record: &Record| record.id);
    Ok(records)
}

fn decode(bytes: &[u8]) -> Result<Record> {
    match bytes.split_first() {
        Some((&FORMAT, message)) => {
            Record::decode(message).map_err(|error| Error::corrupt(error.to_string()))
        }
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
    use super::*;

    #[test]
    fn a_record_of_another_format_is_refused() {
        let record = Record { id: 7, kind: "x".into(), step: 2, payload: vec![1], ..Default::default() };
        let mut bytes = vec![FORMAT];
        record.encode(&mut bytes).unwrap();
        assert_eq!(decode(&bytes).unwrap(), record);
        bytes[0] = 2;
        assert!(decode(&bytes).is_err());
        assert!(decode(&[]).is_err());
    }
}
