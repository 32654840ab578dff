//! The edits of one region on their way to files.

use std::io;
use std::path::{Path, PathBuf};

use halcyon_cell::{Cell, Error, Result, SeqId};
use halcyon_env::{Env, WritableFile, random_bytes};
use halcyon_proto::pb;

use super::memory::Room;
use super::{Destination, Flushed, SplitMemory, TEMPORARY_SUFFIX};
use crate::check::{CHECK_NAME, Mark, Salt};
use crate::cipher::WalCipher;
use crate::format::{PreparedEntry, encode_header};
use crate::reader::WalReader;

/// Digits of a file's name.
const NAME_LEN: usize = 19;
/// Files of one region that may end with the same sequence id, told apart by zeros before it.
const SAME_SEQ_MAX: usize = 64;

/// The edits of one region. *Invariants*: they are those of all entries up to the present one that are not in files and were not
/// deferred, and each of them is in one file.
pub(super) struct Output<'a> {
    pub(super) region: Vec<u8>,
    table: Vec<u8>,
    pub(super) dir: PathBuf,
    pub(super) flushed: Flushed,
    /// The file that edits are collected for, if there are any.
    file: Option<EditsFile>,
    buffer: Vec<u8>,
    /// What is in memory.
    room: Room<'a>,
    /// Complete, without a name yet.
    files: Vec<EditsFile>,
    /// Of edits that are in files or in memory, and of deferred ones.
    pub(super) entries: u64,
    /// Entries before it were taken when the logs were read before.
    taken_to: u64,
    /// From here on entries are not taken before the logs are read again.
    deferred_from: Option<u64>,
    /// The directory of the region, where the WALs are, was made with the file.
    made_region_dir: bool,
    pub(super) is_gone: bool,
    pub(super) published: Vec<PathBuf>,
}

struct EditsFile {
    temporary: PathBuf,
    salt: Salt,
    last_seq: SeqId,
    /// Which of all entries is its first one.
    first_position: u64,
    /// `None`: nothing was written to it, or it is complete.
    writer: Option<Box<dyn WritableFile>>,
}

impl<'a> Output<'a> {
    /// `key`: of its first entry.
    pub(super) fn new(
        key: &pb::WalKey,
        dir: PathBuf,
        flushed: Flushed,
        memory: &'a SplitMemory,
    ) -> Output<'a> {
        Output {
            region: key.encoded_region_name.to_vec(),
            table: key.table_name.to_vec(),
            dir,
            flushed,
            file: None,
            buffer: Vec::new(),
            room: Room::new(memory, 0),
            files: Vec::new(),
            entries: 0,
            taken_to: 0,
            deferred_from: None,
            made_region_dir: false,
            is_gone: false,
            published: Vec::new(),
        }
    }

    /// Of memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.room.bytes()
    }

    /// Whether there are edits that are in no complete file.
    pub(super) fn is_collecting(&self) -> bool {
        self.file.is_some()
    }

    /// Whether there are complete files.
    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Whether the edits of an entry are to be added.
    pub(super) fn takes(&self, position: u64) -> bool {
        self.taken_to <= position && self.deferred_from.is_none()
    }

    pub(super) fn add(&mut self, entry: &PreparedEntry<'_>, seq: SeqId, position: u64, log: &Path) {
        assert!(self.takes(position) && !self.is_gone, "entry {position} is taken once");
        let file = self.file.get_or_insert_with(|| EditsFile::new(&self.dir, log, seq, position));
        file.last_seq = file.last_seq.max(seq);
        entry.put(&mut self.buffer, Mark::of_new(file.salt));
        self.room.set(self.buffer.capacity());
    }

    /// Forgets what is in memory until the logs are read again.
    pub(super) fn defer(&mut self) {
        let file = self.file.take().expect("what is deferred is in memory");
        assert!(file.writer.is_none(), "no edit that is deferred is in a file");
        self.deferred_from = Some(file.first_position);
        self.forget();
    }

    pub(super) fn is_deferred(&self) -> bool {
        self.deferred_from.is_some()
    }

    /// Before the logs are read again, which had entries up to `end`: of those, deferred ones are taken.
    pub(super) fn take_up(&mut self, end: u64) {
        assert!(self.file.is_none(), "edits are completed before others are read");
        self.taken_to = self.deferred_from.take().unwrap_or(end);
    }

    fn forget(&mut self) {
        (self.file, self.buffer) = (None, Vec::new());
        self.room.set(0);
    }

    /// Does something with the file. If that fails because the region was removed, its edits are dropped.
    pub(super) fn unless_gone(
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
            self.forget();
            return Ok(());
        }
        done
    }

    /// Takes edits out of memory: to a file that stays open, or, if it is on other machines, is complete.
    pub(super) fn write_out(
        &mut self,
        env: &Env,
        cipher: Option<&WalCipher>,
        destination: &Destination<'_>,
    ) -> Result<()> {
        if env.fs.is_remote() {
            return self.complete(env, cipher, destination);
        }
        self.write(env, cipher, destination)?;
        self.room.set(0);
        Ok(())
    }

    fn write(&mut self, env: &Env, cipher: Option<&WalCipher>, destination: &Destination<'_>) -> Result<()> {
        let is_new = self.file.as_ref().is_some_and(|file| file.writer.is_none());
        if is_new {
            self.make_dir(env, destination)?;
            if self.is_gone {
                return Ok(());
            }
        }
        let file = self.file.as_mut().expect("edits that are in no file are on their way to one");
        if is_new {
            let mut writer = env.fs.create(&file.temporary)?;
            writer.write_all(&encode_header(cipher, None, file.salt)?)?;
            file.writer = Some(writer);
        }
        file.writer.as_mut().expect("was just made").write_all(&self.buffer)?;
        self.buffer = Vec::new();
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

    pub(super) fn complete(
        &mut self,
        env: &Env,
        cipher: Option<&WalCipher>,
        destination: &Destination<'_>,
    ) -> Result<()> {
        self.write(env, cipher, destination)?;
        if self.is_gone {
            return Ok(());
        }
        let mut file = self.file.take().expect("was just written to");
        let mut writer = file.writer.take().expect("a write makes it");
        writer.write_all(&file.salt.trailer())?;
        writer.sync_and_close()?;
        // A small file on other machines has had its bytes in memory until here.
        self.room.set(0);
        self.files.push(file);
        Ok(())
    }

    pub(super) fn publish(&mut self, env: &Env, destination: &Destination<'_>) -> Result<()> {
        assert!(
            self.file.is_none() && self.buffer.is_empty() && self.deferred_from.is_none(),
            "recovered edits get their names when all of them are on disk: {} bytes are in memory",
            self.buffer.len()
        );
        let named: io::Result<Vec<PathBuf>> =
            self.files.iter().map(|file| file.take_name(env, &self.dir)).collect();
        let named = named.and_then(|paths| env.fs.sync_dir(&self.dir).map(|()| paths));
        let paths = named.map_err(|error| Error::from(error).context("could not publish recovered edits"))?;
        // What a removed region has where the WALs are goes last. So what is not seen to be too late here, that removes.
        if self.made_region_dir && destination(&self.region, &self.table)?.is_none() {
            self.remove(env)?;
        }
        self.published = paths;
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
}

impl EditsFile {
    /// For edits from this entry on, which is in this log.
    fn new(dir: &Path, log: &Path, first_seq: SeqId, first_position: u64) -> EditsFile {
        let log = log.file_name().unwrap_or_default().to_string_lossy();
        // No other attempt has this name. A change that comes late, when its attempt has failed, cannot meet a file of ours.
        let token: String = random_bytes::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
        let temporary = dir.join(format!("{:019}-{log}.{token}{TEMPORARY_SUFFIX}", first_seq.get()));
        EditsFile { temporary, salt: Salt::random(), last_seq: first_seq, first_position, writer: None }
    }

    /// Moves the file to a name that no other file has. One with the same edits is of an earlier attempt.
    fn take_name(&self, env: &Env, dir: &Path) -> io::Result<PathBuf> {
        for width in NAME_LEN..NAME_LEN + SAME_SEQ_MAX {
            let path = dir.join(format!("{:0width$}", self.last_seq.get()));
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
        let text = format!("{}: {SAME_SEQ_MAX} files end with {}", dir.display(), self.last_seq);
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
