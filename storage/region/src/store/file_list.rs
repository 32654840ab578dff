//! The list of a store's files, with the trackers FILE and MIGRATION (HBase: `StoreFileListFile`).
//!
//! ```text
//! <family>/.filelist/f1.<opening>      one of two files, written in turn; the other one is removed then
//! <family>/.filelist/f2.<opening>
//!
//! u32 length | StoreFileList { timestamp, (name, size) of each file, version } | u32 CRC-32 of the message
//! ```
//!
//! The opening is a number that grows from one opening of the store to the next: the lists with the highest one count, of
//! those the one with the later timestamp. A list that ends too early was never complete, and the one before it counts. Any
//! other damage is an error, because a store without its files would lose what is in them.
//!
//! HBase writes a list where it is read. Here it is made in the opening's directory and renamed into its place. A rename is
//! whole or not done, and a server that has lost the region cannot do it (`place.rs`).

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::Env;
use halcyon_proto::pb;
use halcyon_schema::layout;
use prost::Message;

use super::name::StoreFileName;
use crate::place::{OpeningDir, StagingDir, random_name, remove_if_there, write_file};

/// In the directory of a family. Names with a dot are no store files.
pub(crate) const DIR: &str = layout::FILE_LIST;
const PREFIXES: [&str; 2] = ["f1", "f2"];
const VERSION: u64 = 1;
/// As in HBase: more bytes are no list.
const LEN_MAX: i32 = 16 << 20;
/// Of the length and of the checksum, each.
const NUMBER_LEN: usize = 4;
/// Files of one opening; more are of nobody who follows the rules.
const FILES_MAX: usize = 2;
/// Looks at a directory that its owner changes.
const LOOKS_MAX: usize = 8;

/// A file that a list names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub name: String,
    /// Bytes of an HFile; 0 of a link or a reference.
    pub len: u64,
}

/// The list of an open store.
pub(crate) struct FileList {
    /// `<family>/.filelist`.
    dir: PathBuf,
    opening: u64,
    /// Which of the two files is written next.
    next: usize,
    /// Timestamp of the last list that was written or tried.
    newest_ms: u64,
    is_dir_made: bool,
    /// A list that was tried and may be in its place now or later. Its source is here.
    in_doubt: Option<PathBuf>,
    /// The list on disk may say what is not so, because writing it ended with an error.
    is_ahead: bool,
}

/// What is in a directory of lists.
struct Found {
    /// The highest opening with a complete list.
    opening: u64,
    list: pb::StoreFileList,
}

impl FileList {
    /// For an opening of the store in `family_dir`. Returns the list that counts; `None`: there is none. Removes older ones.
    pub fn open(env: &Env, family_dir: &Path) -> Result<(FileList, Option<Vec<Listed>>)> {
        let dir = family_dir.join(DIR);
        let now_ms = now_ms(env);
        let mut list = FileList {
            dir: dir.clone(),
            opening: now_ms,
            next: 0,
            newest_ms: 0,
            is_dir_made: false,
            in_doubt: None,
            is_ahead: false,
        };
        let Some(openings) = openings(env, &dir)? else { return Ok((list, None)) };
        list.is_dir_made = true;
        let (found, _) = newest(env, &dir, &openings)?;
        let counts = found.as_ref().map(|found| found.opening);
        for (_, names) in
            openings.iter().filter(|(opening, _)| counts.is_none_or(|counts| **opening < counts))
        {
            for name in names {
                let _ = env.fs.remove_file(&dir.join(name)); // else the next opening does it
            }
        }
        let Some(Found { opening, list: newest }) = found else { return Ok((list, None)) };
        list.opening = now_ms.max(opening.saturating_add(1));
        list.newest_ms = newest.timestamp;
        Ok((list, Some(files_of(newest, &dir)?)))
    }

    /// Whether the list on disk may name what its store does not have: to be written anew before anything else.
    pub fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// Makes these the files of the store, durably. After an error the old list counts, or this one if [`FileList::is_ahead`]
    /// says so.
    pub fn write(&mut self, place: &OpeningDir, files: Vec<Listed>) -> Result<()> {
        let env = place.env();
        if let Some(source) = &self.in_doubt {
            remove_if_there(env, source)?; // without it the rename comes to nothing
            self.in_doubt = None;
        }
        if !self.is_dir_made {
            make_dir(env, &self.dir)?;
            self.is_dir_made = true;
        }
        let names: HashSet<&String> = files.iter().map(|file| &file.name).collect();
        assert!(
            names.len() == files.len(),
            "a file that a list names twice would be opened twice: {files:?}"
        );
        let timestamp = now_ms(env).max(self.newest_ms + 1);
        let from = place.dir().join(format!("list-{}", random_name()));
        let made = write_file(env, &from, &encode(timestamp, files));
        if let Err(error) = made {
            let _ = remove_if_there(env, &from); // else the next opening does it
            return Err(error);
        }
        self.newest_ms = timestamp;
        let to = self.path(self.next);
        if let Err(error) = env.fs.rename_over(&from, &to) {
            self.settle_rename(env, &from, &to, timestamp, error)?;
        }
        // From here on the list counts for whoever reads it; after a crash perhaps not.
        self.is_ahead = true;
        for dir in [&*self.dir, place.dir()] {
            env.fs.sync_dir(dir)?;
        }
        self.is_ahead = false;
        self.next = 1 - self.next;
        match env.fs.remove_file(&self.path(self.next)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // It may be removed later. A list that counts must not have its name then.
                self.opening += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// `Ok`: the rename was done. An older list may have had the name, so what it says decides.
    fn settle_rename(
        &mut self,
        env: &Env,
        from: &Path,
        to: &Path,
        timestamp: u64,
        error: io::Error,
    ) -> Result<()> {
        let is_done = match env.fs.read(to) {
            Ok(bytes) => Some(decode(&bytes)?.is_some_and(|list| list.timestamp == timestamp)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(false),
            Err(_) => None,
        };
        if is_done == Some(true) {
            return Ok(());
        }
        let removed = env.fs.remove_file(from);
        // Removed in time, it cannot be renamed any more.
        if is_done.is_none() || removed.is_err() {
            self.is_ahead = true;
            self.in_doubt = Some(from.to_path_buf());
        }
        Err(Error::from(error).context("writing the list of a store's files"))
    }

    fn path(&self, which: usize) -> PathBuf {
        self.dir.join(format!("{}.{}", PREFIXES[which], self.opening))
    }
}

/// The files that the list of a store names, which another server may have open; none if there is no list. Changes nothing.
pub(crate) fn read_list(env: &Env, family_dir: &Path) -> Result<Vec<Listed>> {
    let dir = family_dir.join(DIR);
    for _ in 0..LOOKS_MAX {
        let Some(openings) = openings(env, &dir)? else { return Ok(Vec::new()) };
        let (found, is_steady) = newest(env, &dir, &openings)?;
        // Else its owner has written another one since, and removed this one.
        if is_steady {
            return found.map_or(Ok(Vec::new()), |found| files_of(found.list, &dir));
        }
    }
    Err(Error::new(ErrorKind::Busy, format!("{} changes too fast", dir.display())))
}

/// Makes `files` those of a store in a region's directory that nobody reads yet.
pub(crate) fn write_first(env: &Env, family_dir: &Path, files: Vec<Listed>) -> Result<()> {
    let dir = family_dir.join(DIR);
    env.fs.create_dir(&dir)?;
    let now_ms = now_ms(env);
    env.fs.put_new(&dir.join(format!("{}.{now_ms}", PREFIXES[0])), &encode(now_ms, files))?;
    Ok(env.fs.sync_dir(family_dir)?)
}

/// Makes `files` those of a store of a region that no server has open. May run again.
pub(crate) fn replace_closed(env: &Env, family_dir: &Path, files: Vec<Listed>) -> Result<()> {
    let region_dir = family_dir.parent().unwrap_or(family_dir);
    let (dir, staging) = (family_dir.join(DIR), StagingDir::begin(env, region_dir)?);
    make_dir(env, &dir)?;
    let (found, _) = newest(env, &dir, &openings(env, &dir)?.unwrap_or_default())?;
    let (opening, newest_ms) = found.map_or((0, 0), |found| (found.opening, found.list.timestamp));
    let (opening, timestamp) = (now_ms(env).max(opening.saturating_add(1)), now_ms(env).max(newest_ms + 1));
    let working = staging.path("list");
    write_file(env, &working, &encode(timestamp, files))?;
    staging.publish_copy(&working, &dir.join(format!("{}.{opening}", PREFIXES[0])))
}

fn make_dir(env: &Env, dir: &Path) -> Result<()> {
    match env.fs.create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(dir.parent().map_or(Ok(()), |family_dir| env.fs.sync_dir(family_dir))?),
    }
}

fn now_ms(env: &Env) -> u64 {
    env.clock.now_ms().max(1) as u64
}

/// Names by opening. `None`: there is no directory. Corrupt if one opening has too many.
fn openings(env: &Env, dir: &Path) -> Result<Option<BTreeMap<u64, Vec<String>>>> {
    let entries = match env.fs.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let mut openings: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
        match opening_of(&entry.name) {
            Some(opening) => openings.entry(opening).or_default().push(entry.name),
            None => {
                tracing::warn!(dir = %dir.display(), name = entry.name, "no list of store files: passed over")
            }
        }
    }
    match openings.iter().find(|(_, names)| names.len() > FILES_MAX) {
        Some((opening, names)) => Err(Error::corrupt(format!(
            "{}: should only have at most {FILES_MAX} track files for sequence id {opening}, but has {names:?}",
            dir.display()
        ))),
        None => Ok(Some(openings)),
    }
}

/// `f1.<n>`, `f2.<n>`, and without a number for 0 (`StoreFileListFile.TRACK_FILE_PATTERN`).
fn opening_of(name: &str) -> Option<u64> {
    let rest = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    if rest.is_empty() {
        return Some(0);
    }
    let digits = rest.strip_prefix('.')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// The list that counts, and whether all files that were looked at were still there.
fn newest(env: &Env, dir: &Path, openings: &BTreeMap<u64, Vec<String>>) -> Result<(Option<Found>, bool)> {
    let mut is_steady = true;
    for (&opening, names) in openings.iter().rev() {
        let mut best: Option<pb::StoreFileList> = None;
        for name in names {
            let path = dir.join(name);
            let bytes = match env.fs.read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    is_steady = false;
                    continue;
                }
                read => read?,
            };
            match decode(&bytes).map_err(|error| error.context(path.display()))? {
                Some(list) if best.as_ref().is_none_or(|best| best.timestamp < list.timestamp) => {
                    best = Some(list)
                }
                Some(_) => {}
                None => {
                    tracing::warn!(path = %path.display(), len = bytes.len(), "a list of store files ends too early: passed over")
                }
            }
        }
        if let Some(list) = best {
            return Ok((Some(Found { opening, list }), is_steady));
        }
    }
    Ok((None, is_steady))
}

/// Corrupt if a name is no store file's.
fn files_of(list: pb::StoreFileList, dir: &Path) -> Result<Vec<Listed>> {
    let mut files: Vec<Listed> = Vec::with_capacity(list.store_file.len());
    for entry in list.store_file {
        if StoreFileName::parse(&entry.name).is_none() {
            let name = entry.name.escape_debug();
            return Err(Error::corrupt(format!(
                "{}: '{name}' doesn't look like a valid StoreFile",
                dir.display()
            )));
        }
        files.push(Listed { name: entry.name, len: entry.size });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files.dedup_by(|a, b| a.name == b.name);
    Ok(files)
}

fn encode(timestamp: u64, files: Vec<Listed>) -> Vec<u8> {
    let store_file =
        files.into_iter().map(|file| pb::StoreFileEntry { name: file.name, size: file.len }).collect();
    let message = pb::StoreFileList { timestamp, store_file, version: Some(VERSION) }.encode_to_vec();
    let mut bytes = Vec::with_capacity(message.len() + 2 * NUMBER_LEN);
    bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&message);
    bytes.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    bytes
}

/// `None`: the bytes end too early. Corrupt if they are wrong in another way; Invalid if a later HBase wrote them.
fn decode(bytes: &[u8]) -> Result<Option<pb::StoreFileList>> {
    let number = |at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(bytes.get(at..at.checked_add(NUMBER_LEN)?)?.try_into().ok()?))
    };
    let Some(len) = number(0).map(|len| len as i32) else { return Ok(None) };
    if len <= 0 || len > LEN_MAX {
        return Err(Error::corrupt(format!(
            "offset 0: invalid file length {len}, either less than 0 or greater then max allowed size {LEN_MAX}"
        )));
    }
    let end = NUMBER_LEN + len as usize;
    let (Some(message), Some(expected)) = (bytes.get(NUMBER_LEN..end), number(end)) else { return Ok(None) };
    let found = crc32fast::hash(message);
    if expected != found {
        return Err(Error::corrupt(format!(
            "offset {end}: checksum mismatch, expected {expected}, actual {found}"
        )));
    }
    let list = pb::StoreFileList::decode(message)
        .map_err(|error| Error::corrupt(format!("offset {NUMBER_LEN}: no StoreFileList: {error}")))?;
    if list.version() > VERSION {
        return Err(Error::invalid(format!(
            "higher store file list version detected, expected {VERSION}, got {}",
            list.version()
        )));
    }
    Ok(Some(list))
}

#[cfg(test)]
mod tests;
