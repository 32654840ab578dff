//! The file system itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_env::{
    DirEntry, ErasureCoding, FileLock, FileSystem, ReadableFile, UpdatableFile, WritableFile, random_bytes,
};

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::log;
use crate::names;
use crate::reader::HdfsReader;
use crate::seal;
use crate::writer::{CreateOptions, HdfsWriter};
use crate::{HdfsAddress, HdfsOptions};

/// The library computes no other parity, whatever a policy says.
const WRITABLE_CODEC: &str = "rs";
const NO_POLICY: &str = "NoECPolicySetException";
/// Of a file that is written whole.
const WRITE_ATTEMPTS: usize = 3;
/// Of a file that is read whole, as an array of Java's.
const READ_MAX_BYTES: u64 = i32::MAX as u64;
const READ_STEP_BYTES: usize = 8 << 20;

/// The files of one HDFS cluster. Paths are absolute, without the NameNode.
pub struct HdfsFileSystem {
    cluster: Arc<Cluster>,
    /// Of a file about which nothing else is said.
    usual: CreateOptions,
    /// No other process writes temporary files with it.
    token: String,
    temporaries: AtomicU64,
}

/// A path as the NameNode takes it.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let is_plain = path.is_absolute() && !path.components().any(|part| part.as_os_str() == "..");
    match path.to_str() {
        Some(text) if is_plain => Ok(text.to_string()),
        _ => {
            let text =
                format!("{} is no path in HDFS: it must be absolute, in UTF-8, without ..", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

/// The error may go away with other DataNodes; the NameNode would refuse the others again.
fn is_of_datanodes(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::*;
    !matches!(
        kind,
        NotFound
            | NotADirectory
            | IsADirectory
            | AlreadyExists
            | PermissionDenied
            | QuotaExceeded
            | InvalidInput
    )
}

fn unsupported<T>(path: &Path, why: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("{}: {why}", path.display())))
}

impl HdfsFileSystem {
    /// Asks nobody yet: a NameNode that is away shows at the first call.
    pub fn new(address: HdfsAddress, options: HdfsOptions) -> io::Result<HdfsFileSystem> {
        let token = random_bytes::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
        let usual = CreateOptions {
            block_size_bytes: address.bytes("dfs.blocksize")?,
            replication: address.number("dfs.replication")?,
            ..CreateOptions::default()
        };
        let cluster = Arc::new(Cluster::new(address, options)?);
        Ok(HdfsFileSystem { cluster, usual, token, temporaries: AtomicU64::new(0) })
    }

    /// The cluster these files are in.
    pub fn address(&self) -> &HdfsAddress {
        self.cluster.address()
    }

    /// Creates a file for writing. The name is durable on return.
    pub fn create_with(&self, path: &Path, options: CreateOptions) -> io::Result<Box<dyn WritableFile>> {
        let options = CreateOptions {
            block_size_bytes: options.block_size_bytes.or(self.usual.block_size_bytes),
            replication: options.replication.or(self.usual.replication),
            ..options
        };
        Ok(Box::new(HdfsWriter::create(&self.cluster, path, options)?))
    }

    /// Moves a file or directory, but not onto a file: that is `AlreadyExists`.
    pub fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        names::rename(&self.cluster, from, to, false)
    }

    /// Writes a whole file under a name of its own and gives it the final one.
    fn publish(&self, path: &Path, bytes: &[u8], overwrite: bool) -> io::Result<()> {
        let mut attempt = 1;
        let temporary = loop {
            match self.write_whole(path, bytes) {
                Ok(temporary) => break temporary,
                // The next file gets other DataNodes.
                Err(error) if attempt < WRITE_ATTEMPTS && is_of_datanodes(error.kind()) => attempt += 1,
                Err(error) => return Err(error),
            }
        };
        let published = names::rename(&self.cluster, &temporary, path, overwrite);
        if published.is_err() {
            let _ = names::remove(&self.cluster, &temporary); // if this fails too, it stays under its own name
        }
        published
    }

    /// Writes a file under a name of its own beside `path`, and returns that.
    fn write_whole(&self, path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
        let mut file: Box<dyn WritableFile> = Box::new(self.create_temporary(path)?);
        let temporary = file.path().to_path_buf();
        let written = file.write_all(bytes).and_then(|()| file.sync_and_close());
        if written.is_err() {
            let _ = names::remove(&self.cluster, &temporary); // likewise
        }
        written.map(|()| temporary)
    }

    /// Creates a file under a name of its own. One whose creation got no answer may come into being late, so each attempt has
    /// another name: a late creation that replaced the file would replace its bytes as well.
    fn create_temporary(&self, path: &Path) -> io::Result<HdfsWriter> {
        let mut attempts = self.cluster.attempts();
        let mut doubtful = Vec::new();
        let created = loop {
            let temporary = self.temporary_beside(path);
            let name = text(&temporary)?;
            match HdfsWriter::create_once(&self.cluster, &name, &temporary, self.usual) {
                Err(failure) if failure.may_pass() => {
                    doubtful.extend(failure.is_ambiguous().then_some(name));
                    if !attempts.pause() {
                        break Err(failure);
                    }
                }
                created => break created,
            }
        };
        doubtful.into_iter().for_each(|name| names::remove_in_background(&self.cluster, name));
        created.map_err(self.change_failed(path, "cannot be created"))
    }

    fn temporary_beside(&self, path: &Path) -> PathBuf {
        let count = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!(".{name}.{}-{count}.tmp", self.token))
    }

    /// Nothing is repeated that may have been done, or may be done yet: by then the directory may have been taken away, as that of
    /// a server that was declared dead, and must not come back.
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let made = names::make_dir(&self.cluster, &text(path)?);
        made.map_err(self.change_failed(path, "cannot be created"))
    }

    fn change_failed<'a>(&'a self, path: &'a Path, what: &'a str) -> impl FnOnce(Failure) -> io::Error + 'a {
        move |failure| failure.into_change_io(path, what, self.cluster.address())
    }

    fn failed<'a>(&'a self, path: &'a Path, what: &'a str) -> impl FnOnce(Failure) -> io::Error + 'a {
        move |failure| failure.into_io(path, what, self.cluster.address())
    }
}

impl FileSystem for HdfsFileSystem {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.create_with(path, CreateOptions::default())
    }

    fn create_over(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
        self.create_with(path, options)
    }

    fn create_copies(&self, path: &Path, copies: u32) -> io::Result<Box<dyn WritableFile>> {
        self.create_with(path, CreateOptions { replication: Some(copies), ..CreateOptions::default() })
    }

    fn create_log(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let options = self.cluster.options();
        let log = CreateOptions {
            block_size_bytes: options.log_block_size_bytes.or(self.usual.block_size_bytes),
            replication: options.log_replication.or(self.usual.replication),
            fails_fast: true,
            in_copies: true,
            ..CreateOptions::default()
        };
        log::create(&self.cluster, path, log)
    }

    /// The length of a file that is still being written is not known here: seal it first.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        Ok(Arc::new(HdfsReader::open(&self.cluster, path, None)?))
    }

    fn open_up_to(&self, path: &Path, len: u64) -> io::Result<Arc<dyn ReadableFile>> {
        Ok(Arc::new(HdfsReader::open(&self.cluster, path, Some(len))?))
    }

    fn open_update(&self, path: &Path, _len: u64) -> io::Result<Arc<dyn UpdatableFile>> {
        unsupported(path, "a file in HDFS cannot be written in place; such files belong on a local disk")
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.publish(path, bytes, false)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.publish(path, bytes, true)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = HdfsReader::open(&self.cluster, path, None)?;
        let len = file.len()?;
        if len > READ_MAX_BYTES {
            let text =
                format!("{} has {len} bytes; {READ_MAX_BYTES} are read at once at most", path.display());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        // Memory is taken as the bytes come, and not because the NameNode says that there are so many.
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < len {
            let at = bytes.len();
            bytes.resize(at + READ_STEP_BYTES.min(len as usize - at), 0);
            file.read_exact_at(&mut bytes[at..], at as u64)?;
        }
        Ok(bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename_new(from, to)
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        names::rename(&self.cluster, from, to, true)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        names::remove(&self.cluster, path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        names::remove_empty_dir(&self.cluster, path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let count = self.temporaries.fetch_add(1, Ordering::Relaxed);
        names::remove_dir(&self.cluster, path, &format!("{}-{count}", self.token))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        // The NameNode does not mind a directory that is there.
        if self.exists(path)? {
            let text = format!("{} cannot be created: it is there already", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        self.make_dir(path)
    }

    fn create_own_dir(&self, path: &Path) -> io::Result<()> {
        self.make_dir(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let name = text(path)?;
        let answer = self.cluster.ask(move |client| {
            let name = name.clone();
            async move { client.mkdirs(&name, names::DIRECTORY_PERMISSION, true).await }
        });
        answer.map_err(self.change_failed(path, "cannot be created"))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let name = text(path)?;
        let asked = name.clone();
        let answer = self.cluster.ask(move |client| {
            let name = asked.clone();
            async move { client.list_status(&name, false).await }
        });
        let listed = answer.map_err(self.failed(path, "cannot be listed"))?;
        let mut entries = Vec::with_capacity(listed.len());
        for status in listed {
            if status.path.trim_end_matches('/') == name.trim_end_matches('/') {
                let text = format!("{} cannot be listed: it is a file", path.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, text));
            }
            let name = status.path.rsplit('/').next().unwrap_or_default().to_string();
            let len = if status.isdir { 0 } else { status.length as u64 };
            entries.push(DirEntry { name, is_dir: status.isdir, len });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let status = names::status(&self.cluster, &text(path)?);
        Ok(status.map_err(self.failed(path, "cannot be looked up"))?.is_some())
    }

    /// Nothing to do: the NameNode answers when a name is in its journal.
    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn seal(&self, path: &Path) -> io::Result<()> {
        seal::seal(&self.cluster, path)
    }

    fn set_storage_policy(&self, directory: &Path, policy: &str) -> io::Result<()> {
        let (name, policy) = (text(directory)?, policy.to_string());
        let answer = self.cluster.ask(move |client| {
            let (name, policy) = (name.clone(), policy.clone());
            async move { client.set_storage_policy(&name, &policy).await }
        });
        answer.map_err(self.change_failed(directory, "cannot be given a storage policy"))
    }

    fn erasure_codings(&self) -> io::Result<Vec<ErasureCoding>> {
        let root = Path::new("/");
        let answer = self.cluster.ask(|client| async move { client.get_erasure_coding_policies("/").await });
        let policies =
            answer.map_err(self.failed(root, "cannot be asked for its erasure coding policies"))?;
        let coding = |policy: hdfs_native::client::ErasureCodingPolicy| ErasureCoding {
            is_writable: policy.codec == WRITABLE_CODEC,
            name: policy.name,
            state: policy.state.to_string(),
        };
        Ok(policies.into_iter().map(coding).collect())
    }

    fn set_erasure_coding(&self, directory: &Path, policy: Option<&str>) -> io::Result<()> {
        let (name, policy) = (text(directory)?, policy.map(str::to_string));
        let answer = self.cluster.ask(move |client| {
            let (name, policy) = (name.clone(), policy.clone());
            async move {
                let Some(policy) = policy else { return client.unset_erasure_coding_policy(&name).await };
                client.set_erasure_coding_policy(&name, &policy).await
            }
        });
        match answer {
            Err(failure) if failure.is_exception(NO_POLICY) => Ok(()), // there is none to take away
            answer => {
                answer.map_err(self.change_failed(directory, "cannot be given an erasure coding policy"))
            }
        }
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn address(&self) -> Option<String> {
        Some(self.cluster.url().to_string())
    }

    /// A lease would be the only lock of HDFS. The NameNode gives it away after a minute of silence, and its holder is not
    /// told: two servers would both believe that they hold it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        unsupported(
            path,
            "HDFS has no lock that its holder cannot lose unnoticed; a server is kept out by sealing its log",
        )
    }
}
