use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
    /// Bytes of a file; 0 for a directory.
    pub len: u64,
}

/// A way in which HDFS stores a file without copies of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErasureCoding {
    /// Such as `RS-6-3-1024k`.
    pub name: String,
    /// `ENABLED`, `DISABLED` or `REMOVED`.
    pub state: String,
    /// Whether this program writes such files.
    pub is_writable: bool,
}

/// Blocking access to files. Thread-safe; every call stands alone.
///
/// *Errors*: an error says that nothing was done, unless [`is_in_doubt`] is true of it. A file system behind a network
/// answers so if it lost the answer and could not find out afterwards: what was asked for has happened or not, and may
/// happen yet.
pub trait FileSystem: Send + Sync {
    /// Creates an empty file for writing. The name must be free, else `AlreadyExists`. Its directory must be there, else
    /// `NotFound`: parents are not made, so a server from which a directory was taken away cannot make files in it. The
    /// name is durable after `sync_dir` of the parent.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>>;

    /// As `create`, but takes the place of an existing file.
    fn create_over(&self, path: &Path) -> io::Result<Box<dyn WritableFile>>;

    /// As `create`, with so many copies of the file on different machines. Where files have no copies, it is the same as `create`.
    fn create_copies(&self, path: &Path, copies: u32) -> io::Result<Box<dyn WritableFile>> {
        let _ = copies;
        self.create(path)
    }

    /// As `create`, for a WAL: its writer has another file at hand. So where a file is on several machines, it fails when
    /// one of them does, rather than wait until the others have replaced it.
    fn create_log(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.create(path)
    }

    /// Opens a file for positional reads.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>>;

    /// As `open`, for a file that is being written, of which the first `len` bytes were synced. Where the length of such a file is
    /// not known, as in HDFS, this takes the caller's word.
    fn open_up_to(&self, path: &Path, len: u64) -> io::Result<Arc<dyn ReadableFile>> {
        let _ = len;
        self.open(path)
    }

    /// Opens a file for reads and writes at any position and gives it this length: it is created if need be, what is
    /// behind is cut off, what is missing reads as zeros. A new name is durable after `sync_dir` of the parent.
    fn open_update(&self, path: &Path, len: u64) -> io::Result<Arc<dyn UpdatableFile>>;

    /// Creates a file with these bytes if there is none of that name (else `AlreadyExists`). Whole and
    /// durable on return; after a crash the file is absent or whole.
    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// As `put_new`, but takes the place of an existing file: a crash leaves the old bytes or the new.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// The whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Moves a file or directory to a free name (else `AlreadyExists`); atomic within one directory tree. Durable after
    /// `sync_dir` of both parents.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// As `rename`, but a file takes the place of an existing file, and a directory that of an empty one.
    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, which must be free (else `AlreadyExists`). Both names are equal: the file stays until it has
    /// none. Durable after `sync_dir` of the parent. `false`: the file system cannot do that, or not between these directories,
    /// and nothing was done.
    fn link(&self, from: &Path, to: &Path) -> io::Result<bool> {
        let _ = (from, to);
        Ok(false)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory that is empty (else `DirectoryNotEmpty`). The caller knows that it is no file: HDFS does not ask.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and all below it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory. Its parent must be there (else `NotFound`) and its name free (else `AlreadyExists`). Durable
    /// after `sync_dir` of the parent.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// As `create_dir`, of a name that nobody else takes, such as a random one: whether it is free need not be looked up.
    fn create_own_dir(&self, path: &Path) -> io::Result<()> {
        self.create_dir(path)
    }

    /// Creates a directory and its missing parents, durably.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Names in a directory, sorted; `NotFound` if there is no such directory.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// Whether there is a file or directory of this name. `false` only if the file system has said so: an answer that
    /// did not come is an error.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Takes a file away from its writer, in whatever process: when this returns, nobody adds a byte to it, its length is
    /// final, and all that was synced is in it. To be called before a file is read whose writer may not have closed it. May
    /// be called again, and for a closed file. On a local disk there is nothing to do: a program that has the lock of the
    /// root directory knows that all earlier ones are gone.
    fn seal(&self, path: &Path) -> io::Result<()>;

    /// On which kind of disks the files that are created below this directory from now on are to lie, by the name of a
    /// storage policy of HDFS. Does nothing elsewhere.
    fn set_storage_policy(&self, directory: &Path, policy: &str) -> io::Result<()> {
        let _ = (directory, policy);
        Ok(())
    }

    /// The erasure coding policies that HDFS knows. `Unsupported` elsewhere.
    fn erasure_codings(&self) -> io::Result<Vec<ErasureCoding>> {
        Err(no_erasure_coding())
    }

    /// Lets the files that are created below this directory from now on be stored by an erasure coding policy of HDFS; `None`: as
    /// in the directory above. `Unsupported` elsewhere than in HDFS. May be called again.
    fn set_erasure_coding(&self, directory: &Path, policy: Option<&str>) -> io::Result<()> {
        let _ = (directory, policy);
        Err(no_erasure_coding())
    }

    /// Whether the files are on other machines. A call may then wait for a network, and a file that failed while it was
    /// written takes no more bytes.
    fn is_remote(&self) -> bool {
        false
    }

    /// Scheme and authority by which clients name the file system, such as `hdfs://namenode:8020`; `None` of a local one.
    fn address(&self) -> Option<String> {
        None
    }

    /// Takes an exclusive lock on a file, which is created if need be; `WouldBlock` if another process (or
    /// another holder in this one) has it: the error names the process if it is known. Released when the guard is
    /// dropped or the process dies.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;
}

fn no_erasure_coding() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "erasure coding is only available in HDFS")
}

/// What an error in doubt carries.
#[derive(Debug)]
struct InDoubt(io::Error);

impl fmt::Display for InDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (it is not known whether it was done)", self.0)
    }
}

impl std::error::Error for InDoubt {}

/// The same error, about a change that may have happened and may happen yet.
pub fn in_doubt(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), InDoubt(error))
}

/// Whether what failed with this error may have happened.
pub fn is_in_doubt(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<InDoubt>())
}

impl dyn FileSystem + '_ {
    /// What became of a rename that ended with `error`, by a look at both names: `Ok` if it was done, perhaps by an
    /// earlier attempt; `error` if not; an error in doubt if the names cannot be looked at.
    pub fn resolve_rename(&self, from: &Path, to: &Path, error: io::Error) -> io::Result<()> {
        match self.exists(from).and_then(|from| Ok((from, self.exists(to)?))) {
            Ok((false, true)) => Ok(()),
            Ok(_) => Err(error),
            Err(_) => Err(in_doubt(error)),
        }
    }

    /// The first of these names that is there.
    pub fn first_existing<'a>(
        &self,
        places: impl IntoIterator<Item = &'a Path>,
    ) -> io::Result<Option<&'a Path>> {
        for place in places {
            if self.exists(place)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }
}

/// Holds an exclusive lock until dropped.
pub trait FileLock: Send + Sync {}

/// A file being written, at its end only. Dropping it without [`WritableFile::close`] abandons the file: what is in it
/// besides the synced bytes is unknown, and where files have one writer, it may stay this one's for a while.
pub trait WritableFile: Send {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when the bytes written so far are on the disk (`fdatasync`). After an error the state of the
    /// unsynced bytes is unknown; do not go on with this file.
    fn sync(&mut self) -> io::Result<()>;

    /// As `sync`, but where the file is on several machines, their memory is enough (`hflush` of HDFS): the bytes survive
    /// the death of some of them, and not that of all at once.
    fn flush(&mut self) -> io::Result<()> {
        self.sync()
    }

    /// Writes bytes and waits until they are as durable as after `sync` (`to_disk`) or `flush`, but not longer than `limit`.
    /// After [`Attempt::Late`] the bytes are in the file, and one of the two goes on waiting.
    fn write_within(&mut self, bytes: &[u8], to_disk: bool, limit: Duration) -> Attempt {
        let _ = (bytes, to_disk, limit);
        Attempt::NotMade
    }

    /// After [`Attempt::Late`]: goes on waiting, but not longer than `limit`.
    fn wait_within(&mut self, limit: Duration) -> Attempt {
        let _ = limit;
        Attempt::NotMade
    }

    /// After [`Attempt::Late`]: the names of the machines that have not answered, if others have.
    fn late_machines(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the file is on one of these machines.
    fn is_on(&self, machines: &[String]) -> bool {
        let _ = machines;
        false
    }

    /// Leaves [`WritableFile::late_machines`] out of new logs for a while, and [`WritableFile::check`] fails for files that
    /// they have.
    fn avoid_late(&mut self) {}

    /// An error if the file can take no bytes, as far as is known without asking anybody.
    fn check(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether the file has fewer copies than it should, because machines had failed when it was made, and a new one would
    /// have all.
    fn is_thin(&self) -> bool {
        false
    }

    /// Cuts the file back to its first `len` bytes, after a write that failed; later writes go on from there. The cut
    /// is durable after `sync`; until then a crash may show more.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Ends the file. All bytes written so far are in it for whoever opens it from now on; it syncs nothing, so call
    /// `sync` before if they must be durable. After an error the file may be shorter, or still open, but what was synced
    /// is in it.
    fn close(self: Box<Self>) -> io::Result<()>;

    /// As `sync` and `close`. Better than these where a file is on several machines: it is known that no more bytes will come, so
    /// a small file does not wait for a machine that does not answer.
    fn sync_and_close(mut self: Box<Self>) -> io::Result<()> {
        self.sync()?;
        self.close()
    }

    /// Most bytes that the file may have. A write that would go beyond fails with `FileTooLarge`, and the file is what it was.
    fn len_max(&self) -> u64 {
        u64::MAX
    }

    /// Bytes written so far, without those of a write that failed.
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn path(&self) -> &Path;
}

/// What became of a write with a limit.
#[derive(Debug)]
pub enum Attempt {
    Done(io::Result<()>),
    /// The time is over.
    Late,
    /// This file cannot stop waiting. Nothing was done.
    NotMade,
}

/// An open file for positional reads; shared between threads.
#[allow(clippy::len_without_is_empty)] // nobody asks
pub trait ReadableFile: Send + Sync {
    /// Fills `buffer` from `offset`; `UnexpectedEof` if the file is too short.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// As `read_exact_at`, but only if the bytes are in the operating system's memory: `false` if the read would
    /// wait for the disk, or if that cannot be told. The buffer's content is undefined then.
    fn read_resident_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        let _ = (buffer, offset);
        Ok(false)
    }

    /// Bytes in the file when it was opened or, for a file still being written, now.
    fn len(&self) -> io::Result<u64>;

    fn path(&self) -> &PathBuf;

    /// The hosts that hold the file, as known since it was opened or since a read failed last; asks nobody. `None` for a
    /// file of this machine.
    fn block_hosts(&self) -> Option<Vec<BlockHosts>> {
        None
    }
}

/// One block of a file that is on several machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHosts {
    pub len_bytes: u64,
    /// Names of the machines that have the block.
    pub hosts: Vec<String>,
}

/// An open file for positional reads and writes; shared between threads. A read beside a write of the same bytes may
/// see some of both.
pub trait UpdatableFile: ReadableFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when all that was written before is on the disk. Bytes written since the last sync are in doubt after
    /// a crash, page by page; after an error they stay so.
    fn sync(&self) -> io::Result<()>;
}
