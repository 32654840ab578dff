//! The files of a log while they are made: each has its header on disk before it takes entries.

use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::Error;
use halcyon_env::{Env, WritableFile};

use crate::check::{Mark, Salt};
use crate::cipher::WalCipher;
use crate::compressing::CompressedFile;
use crate::format::encode_header;
use crate::{SyncMode, WalConfig};

/// The pause after the first error of a spare file; it doubles with each one that follows.
const SPARE_PAUSE_MIN: Duration = Duration::from_secs(1);
const SPARE_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Guards the making of files; held over their I/O.
pub(crate) struct Rolling {
    last_ms: i64,
    cipher: Option<Arc<WalCipher>>,
    /// Files that could not be made, and of which it is not known that they are not there.
    left: Vec<PathBuf>,
    pub(crate) spare_pause: SparePause,
}

/// When the next file is made ahead of time, after errors. Each attempt may leave something behind, so they become rare.
#[derive(Default)]
pub(crate) struct SparePause {
    errors_count: u32,
    until_ns: u64,
}

impl SparePause {
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }

    pub(crate) fn begin(&mut self, now_ns: u64) {
        let pause = SPARE_PAUSE_MIN.saturating_mul(1 << self.errors_count.min(16)).min(SPARE_PAUSE_MAX);
        self.errors_count += 1;
        self.until_ns = now_ns + pause.as_nanos() as u64;
    }
}

/// A file with its header, on disk, and nothing else.
pub(crate) struct NewFile {
    pub(crate) file: Box<dyn WritableFile>,
    pub(crate) path: PathBuf,
    pub(crate) salt: Salt,
    /// Bytes of the header.
    pub(crate) begin: u64,
}

impl NewFile {
    /// What an entry says of it that is appended for it now.
    pub(crate) fn mark(&self) -> Mark {
        Mark { salt: self.salt, synced_bytes: self.begin }
    }
}

/// The error of a file that could not be made.
pub(crate) fn not_made(error: io::Error) -> Error {
    Error::from(error).context("could not make a new log")
}

impl Rolling {
    pub(crate) fn new(cipher: Option<Arc<WalCipher>>) -> Rolling {
        Rolling { last_ms: 0, cipher, left: Vec::new(), spare_pause: SparePause::default() }
    }

    /// Paths where a file may be that could not be made.
    pub(crate) fn take_left(&mut self) -> Vec<PathBuf> {
        mem::take(&mut self.left)
    }

    /// A new file with its header, name and bytes on disk. On a local disk it gets its name last, so that a file of a
    /// log's name always has a whole header. A `Remote` file has one name from the beginning, by which others seal it;
    /// recovery takes it for empty until it has its header.
    pub(crate) fn create_file(&mut self, env: &Env, config: &WalConfig) -> io::Result<NewFile> {
        let salt = Salt::random();
        let header = encode_header(self.cipher.as_deref(), config.compression.as_ref(), salt);
        let header = header.map_err(io::Error::other)?;
        let path = self.free_name(env, config)?;
        let is_named_last = config.sync_mode != SyncMode::Remote;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let first = if is_named_last { path.with_file_name(format!(".{name}.tmp")) } else { path.clone() };
        // Its name was free, so whatever is there now is ours. Where files are far away, an error does not say that it is not.
        let made = env.fs.create_log(&first);
        let mut file = made.inspect_err(|error| self.note_left(env, &first, error))?;
        let mut make = || -> io::Result<()> {
            file.write_all(&header)?;
            file.sync()?;
            if is_named_last {
                env.fs.rename(&first, &path)?;
                env.fs.sync_dir(&config.dir)?;
            }
            Ok(())
        };
        if let Err(error) = make() {
            drop(file); // abandoned
            self.note_left(env, &first, &error);
            if is_named_last {
                self.note_left(env, &path, &error);
            }
            return Err(error);
        }
        self.spare_pause = SparePause::default();
        assert!(
            !file.is_empty(),
            "a file takes entries after its header: recovery refuses a WAL without one"
        );
        let begin = file.len();
        let file = match config.compression {
            Some(compression) => Box::new(CompressedFile::new(file, compression, salt)),
            None => file,
        };
        Ok(NewFile { file, path, salt, begin })
    }

    /// A file could not be made. Where files are far away nobody waits for its removal.
    fn note_left(&mut self, env: &Env, path: &Path, error: &io::Error) {
        let is_anothers = error.kind() == io::ErrorKind::AlreadyExists && !is_temporary(path);
        if !is_anothers && (env.fs.is_remote() || !is_removed(&env.fs.remove_file(path))) {
            self.left.push(path.to_path_buf());
        }
    }

    fn free_name(&mut self, env: &Env, config: &WalConfig) -> io::Result<PathBuf> {
        // Recovery reads files in order of the times in their names, so these rise although the clock may fall.
        let mut ms = env.clock.now_ms().max(self.last_ms + 1);
        loop {
            self.last_ms = ms;
            let name = config.file_name(ms);
            let path = config.dir.join(&name);
            if !env.fs.exists(&path)? && !env.fs.exists(&config.archive_dir.join(&name))? {
                return Ok(path);
            }
            ms += 1;
        }
    }
}

/// Whether a file is not there any more.
pub(crate) fn is_removed(removed: &io::Result<()>) -> bool {
    removed.as_ref().map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true)
}

/// Whether it is the name that a file of a local disk has before it is one of the log.
fn is_temporary(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tmp")
}
