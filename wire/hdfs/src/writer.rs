//! A file being written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use halcyon_env::WritableFile;
use hdfs_native::file::FileWriter;
use hdfs_native::{HdfsError, WriteOptions};

use crate::cluster::Cluster;
use crate::failure::{Failure, data_error, kind_of};
use crate::file_system::text;
use crate::names;
use crate::seal::seal_in_background;
use crate::whole::{self, WHOLE_MAX_BYTES};

/// So many bytes are collected before they go to the DataNodes, and at first as many as a small file may have. Readers see bytes
/// after a sync only, whatever this is.
const COLLECTED_MAX_BYTES: usize = 256 << 10;

/// How a file is created.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateOptions {
    /// A file of that name is replaced; otherwise it is an error.
    pub overwrite: bool,
    /// Missing directories are made. Never for a log: its directory is renamed to keep its writer out.
    pub parents: bool,
    /// Default: `dfs.blocksize` of the client, else of the NameNode.
    pub block_size_bytes: Option<u64>,
    /// Default: `dfs.replication` of the client, else of the NameNode.
    pub replication: Option<u32>,
    /// Another file is at hand: this one fails when one of its DataNodes does, rather than get another DataNode.
    pub fails_fast: bool,
    /// The file has copies although its directory has an erasure coding policy. Without it `sync` and `flush` of such a file do
    /// nothing, as in Hadoop's client: its bytes are with the DataNodes when it is closed.
    pub in_copies: bool,
}

impl CreateOptions {
    /// `large_max`: how long a DataNode of a large file may take.
    pub(crate) fn to_library(self, large_max: Duration) -> WriteOptions {
        WriteOptions {
            block_size: self.block_size_bytes,
            replication: self.replication,
            overwrite: self.overwrite,
            create_parent: self.parents,
            pipeline_recovery: !self.fails_fast,
            replicate: self.in_copies,
            pipeline_timeout: (!self.fails_fast).then_some(large_max),
            ..WriteOptions::default()
        }
    }
}

/// A file of HDFS at its end. A small one that ends before it is synced goes to each DataNode (`whole.rs`), all others are
/// pipelines. After an error it takes no more bytes: what was written since the last sync is in doubt.
pub(crate) struct HdfsWriter {
    cluster: Arc<Cluster>,
    path: PathBuf,
    /// `None` once the file is closed or abandoned.
    file: Option<FileWriter>,
    /// Nothing was passed on to `file` yet. If the file ends so, it needs no pipeline.
    is_whole: bool,
    /// It has one block then.
    whole_max_bytes: usize,
    /// There is no other file to go on in, so slow disks and a NameNode that is away are waited for.
    is_patient: bool,
    collected: BytesMut,
    len: u64,
    /// Why the file was abandoned.
    abandoned: Option<(io::ErrorKind, String)>,
}

impl HdfsWriter {
    pub(crate) fn create(
        cluster: &Arc<Cluster>,
        path: &Path,
        options: CreateOptions,
    ) -> io::Result<HdfsWriter> {
        let created = HdfsWriter::create_once(cluster, &text(path)?, path, options);
        created.map_err(|failure| failure.into_change_io(path, "cannot be created", cluster.address()))
    }

    /// A creation is tried once. After a lost answer nobody can tell whose file it is, and one that replaces others could replace
    /// the second attempt's, with all that was written to it.
    pub(crate) fn create_once(
        cluster: &Arc<Cluster>,
        name: &str,
        path: &Path,
        options: CreateOptions,
    ) -> Result<HdfsWriter, Failure> {
        let (asked, library) = (name.to_string(), options.to_library(cluster.pipeline_max()));
        let file = cluster.ask_once(|client| async move { client.create(&asked, library).await })?;
        let block_bytes = options.block_size_bytes.unwrap_or_else(|| usual_block_bytes(cluster, name));
        Ok(HdfsWriter::of(cluster, path, file, block_bytes, !options.fails_fast))
    }

    /// A file that was just created.
    pub(crate) fn of(
        cluster: &Arc<Cluster>,
        path: &Path,
        file: FileWriter,
        block_bytes: u64,
        is_patient: bool,
    ) -> HdfsWriter {
        HdfsWriter {
            cluster: cluster.clone(),
            path: path.to_path_buf(),
            file: Some(file),
            is_whole: true,
            whole_max_bytes: usize::try_from(block_bytes).unwrap_or(usize::MAX).min(WHOLE_MAX_BYTES),
            is_patient,
            collected: BytesMut::new(),
            len: 0,
            abandoned: None,
        }
    }

    fn pass_on(&mut self, after: After) -> io::Result<()> {
        let Some(mut file) = self.file.take() else { return Err(self.refusal()) };
        self.is_whole = false;
        let bytes = self.collected.split().freeze();
        let limit = after.limit(&self.cluster, self.is_patient);
        let done = self.cluster.run(limit, async move {
            let mut result =
                if bytes.is_empty() { Ok(()) } else { file.write_bytes(bytes).await.map(|_| ()) };
            if result.is_ok() {
                result = after.of(&mut file).await;
            }
            (file, result)
        });
        match done {
            Some((file, Ok(()))) => {
                if after != After::Close {
                    self.file = Some(file);
                }
                Ok(())
            }
            Some((file, Err(error))) => {
                drop(file);
                Err(self.abandon(kind_of(&error), data_error(&error)))
            }
            None => Err(self.abandon(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"))),
        }
    }

    /// Ends a file of which all bytes are collected without a pipeline, if that is possible; whether it was.
    fn end_whole(&mut self, sync: bool) -> io::Result<bool> {
        // A file without bytes has no block, and so no DataNode.
        let is_possible = self.is_whole && !self.collected.is_empty();
        let Some(file) = self.file.take_if(|_| is_possible) else { return Ok(false) };
        match whole::write(&self.cluster, &self.path, file, &self.collected, sync) {
            Ok(pipelined) => {
                self.file = pipelined;
                Ok(self.file.is_none())
            }
            Err((kind, why)) => Err(self.abandon(kind, why)),
        }
    }

    fn abandon(&mut self, kind: io::ErrorKind, why: String) -> io::Error {
        tracing::warn!("{} is abandoned: {why}", self.path.display());
        self.collected.clear();
        self.abandoned = Some((kind, why));
        seal_in_background(&self.cluster, &self.path);
        self.refusal()
    }

    fn refusal(&self) -> io::Error {
        let (kind, why) = self
            .abandoned
            .as_ref()
            .map_or((io::ErrorKind::Other, "it was closed"), |(kind, why)| (*kind, why.as_str()));
        let text = format!(
            "{} takes no more bytes: {why} ({}); go on in another file",
            self.path.display(),
            self.cluster.address()
        );
        io::Error::new(kind, text)
    }
}

/// The block size of a file that says nothing about it, by one that was just created. Without an answer, files are pipelines.
fn usual_block_bytes(cluster: &Cluster, created: &str) -> u64 {
    cluster.usual_block_bytes(|| names::status(cluster, created).ok().flatten()?.blocksize).unwrap_or(0)
}

/// What is done behind the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Nothing,
    Flush,
    Sync,
    Close,
}

impl After {
    fn limit(self, cluster: &Cluster, is_patient: bool) -> Duration {
        let deadlines = cluster.deadlines();
        match self {
            _ if is_patient => deadlines.large_file,
            After::Close => deadlines.close,
            After::Nothing | After::Flush | After::Sync => deadlines.sync,
        }
    }

    async fn of(self, file: &mut FileWriter) -> Result<(), HdfsError> {
        match self {
            After::Nothing => Ok(()),
            After::Flush | After::Sync if file.is_erasure_coded() => Ok(()),
            After::Flush => file.hflush().await,
            After::Sync => file.hsync().await,
            After::Close => file.close().await,
        }
    }
}

impl WritableFile for HdfsWriter {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            return Err(self.refusal());
        }
        for part in bytes.chunks(COLLECTED_MAX_BYTES) {
            let most = if self.is_whole { self.whole_max_bytes } else { COLLECTED_MAX_BYTES };
            self.collected.extend_from_slice(part);
            if self.collected.len() > most {
                self.pass_on(After::Nothing)?;
            }
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// The bytes are on the disks of all DataNodes of the last block (`hsync`).
    fn sync(&mut self) -> io::Result<()> {
        self.pass_on(After::Sync)
    }

    /// The bytes are in the memory of all DataNodes of the last block (`hflush`).
    fn flush(&mut self) -> io::Result<()> {
        self.pass_on(After::Flush)
    }

    fn truncate(&mut self, _len: u64) -> io::Result<()> {
        let text = format!("{}: a file in HDFS only grows; go on in another file", self.path.display());
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// It is an error if the NameNode did not confirm the end, and then the file is in doubt.
    fn close(mut self: Box<Self>) -> io::Result<()> {
        if self.end_whole(false)? { Ok(()) } else { self.pass_on(After::Close) }
    }

    /// As `close`, and the bytes are on the disks of the DataNodes.
    fn sync_and_close(mut self: Box<Self>) -> io::Result<()> {
        if self.end_whole(true)? {
            return Ok(());
        }
        if self.len > 0 {
            self.pass_on(After::Sync)?;
        }
        self.pass_on(After::Close)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// A file that was not closed is sealed in the background: it keeps what was synced.
impl Drop for HdfsWriter {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            seal_in_background(&self.cluster, &self.path);
        }
    }
}
