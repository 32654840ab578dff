//! A file being read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halcyon_env::{BlockHosts, ReadableFile, random_bytes};
use hdfs_native::file::FileReader;
use parking_lot::Mutex;

use crate::cluster::Cluster;
use crate::failure::{Failure, data_error};
use crate::file_system::text;

/// Before each attempt but the first, about so long is waited; each has new locations of the blocks. The second one finds blocks that
/// were moved. The others are for DataNodes that restart, and for a NameNode that has not heard of them yet: refused connections
/// are over in milliseconds. Hadoop's client waits as long.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_secs(2), Duration::from_secs(6)];
/// So many bytes have one deadline.
const PIECE_MAX_BYTES: usize = 8 << 20;

/// An open file of HDFS. It outlives a rename and a move to one of `HdfsOptions::moved_to`, but not its removal.
pub(crate) struct HdfsReader {
    cluster: Arc<Cluster>,
    path: PathBuf,
    len: u64,
    /// The block that it begins with, which no other file has.
    first_block: Option<u64>,
    /// It is being written, and so many bytes were synced.
    up_to: Option<u64>,
    /// The library's reader, with the locations of all blocks and its list of dead DataNodes.
    current: Mutex<Arc<FileReader>>,
}

/// Half as long, up to one and a half times. Threads that have failed together do not come back together.
fn about(pause: Duration) -> Duration {
    let [byte] = random_bytes();
    pause * (128 + u32::from(byte)) / 256
}

fn open(cluster: &Cluster, path: &Path, up_to: Option<u64>) -> Result<FileReader, Failure> {
    let name =
        text(path).map_err(|error| Failure::of(hdfs_native::HdfsError::InvalidPath(error.to_string())))?;
    let mut reader = cluster.ask(move |client| {
        let name = name.clone();
        async move { client.read(&name).await }
    })?;
    if let Some(len) = up_to {
        reader.include_last_block(usize::try_from(len).unwrap_or(usize::MAX));
    }
    Ok(reader)
}

impl HdfsReader {
    /// With `up_to`, of a file that is being written the synced bytes, of which there are so many.
    pub(crate) fn open(cluster: &Arc<Cluster>, path: &Path, up_to: Option<u64>) -> io::Result<HdfsReader> {
        let reader = open(cluster, path, up_to)
            .map_err(|failure| failure.into_io(path, "cannot be opened", cluster.address()))?;
        Ok(HdfsReader {
            cluster: cluster.clone(),
            path: path.to_path_buf(),
            len: (reader.file_length() as u64).min(up_to.unwrap_or(u64::MAX)),
            first_block: reader.first_block_id(),
            up_to,
            current: Mutex::new(Arc::new(reader)),
        })
    }

    fn read_piece(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let (start, wanted) = (offset as usize, buffer.len());
        let limit = self.cluster.deadlines().read;
        let mut pauses = PAUSES.into_iter();
        let mut attempts = 0;
        let why = loop {
            attempts += 1;
            let reader = self.current.lock().clone();
            let used = reader.clone();
            let outcome = self.cluster.run(limit, self.cluster.hedged_reads().read(reader, start, wanted));
            let (result, better) =
                outcome.map_or((None, None), |outcome| (Some(outcome.result), outcome.better));
            if let Some(better) = better {
                self.replace(&used, better);
            }
            let why = match result {
                Some(Ok(bytes)) if bytes.len() == wanted => {
                    buffer.copy_from_slice(&bytes);
                    return Ok(());
                }
                Some(Ok(bytes)) => format!("{} bytes came instead of {wanted}", bytes.len()),
                Some(Err(error)) => data_error(&error),
                None => format!("no answer within {limit:?}"),
            };
            tracing::debug!(
                "{}: attempt {attempts} to read {wanted} bytes at {start}: {why}",
                self.path.display()
            );
            let Some(pause) = pauses.next() else { break why };
            self.cluster.sleep(about(pause));
            self.reopen(&used)?;
        };
        let text = format!(
            "{}: {wanted} bytes at {offset} cannot be read from any DataNode of {} after {attempts} attempts: {why}",
            self.path.display(),
            self.cluster.address()
        );
        Err(io::Error::other(text))
    }

    /// A file that is being written may have more bytes by now. An empty one may have got its first block.
    fn is_same(&self, reader: &FileReader) -> bool {
        let len = reader.file_length() as u64;
        let is_as_long = if self.up_to.is_some() { len >= self.len } else { len == self.len };
        is_as_long && (self.first_block.is_none() || reader.first_block_id() == self.first_block)
    }

    /// Reads go to `better` from now on, unless another thread has chosen since `used` was taken.
    fn replace(&self, used: &Arc<FileReader>, better: Arc<FileReader>) {
        let mut current = self.current.lock();
        if Arc::ptr_eq(&current, used) {
            *current = better;
        }
    }

    /// Asks anew where the blocks are, unless another thread has done so since `failed` was used.
    fn reopen(&self, failed: &Arc<FileReader>) -> io::Result<()> {
        if !Arc::ptr_eq(&self.current.lock(), failed) {
            return Ok(());
        }
        let mut places = vec![self.path.clone()];
        places.extend(self.cluster.moved_to(&self.path));
        for place in &places {
            match open(&self.cluster, place, self.up_to) {
                Ok(reader) if self.is_same(&reader) => {
                    *self.current.lock() = Arc::new(reader);
                    return Ok(());
                }
                Ok(reader) => {
                    let (is, was) = (reader.file_length(), self.len);
                    let text = format!(
                        "{} is another file: it has {is} bytes now and had {was}, or other blocks",
                        place.display()
                    );
                    return Err(io::Error::new(io::ErrorKind::StaleNetworkFileHandle, text));
                }
                Err(failure) if failure.kind() == io::ErrorKind::NotFound => {}
                Err(failure) => {
                    return Err(failure.into_io(place, "cannot be opened again", self.cluster.address()));
                }
            }
        }
        let list: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        let text = format!("{} is open, but no longer at {}", self.path.display(), list.join(" or at "));
        Err(io::Error::new(io::ErrorKind::NotFound, text))
    }
}

impl ReadableFile for HdfsReader {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            let text = format!(
                "{} has {} bytes; {} at {offset} are too many",
                self.path.display(),
                self.len,
                buffer.len()
            );
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        let mut at = offset;
        for piece in buffer.chunks_mut(PIECE_MAX_BYTES) {
            self.read_piece(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn path(&self) -> &PathBuf {
        &self.path
    }

    fn block_hosts(&self) -> Option<Vec<BlockHosts>> {
        let reader = self.current.lock().clone();
        let of_block = |(bytes, hosts): (usize, Vec<&str>)| BlockHosts {
            len_bytes: bytes as u64,
            hosts: hosts.into_iter().map(str::to_string).collect(),
        };
        Some(reader.block_hosts().map(of_block).collect())
    }
}
