//! A log being written: a file of one block, whose bytes go to each DataNode from here (`fan_out.rs`).
//!
//! It never gets another DataNode. When one fails, the log fails, and its writer goes on in another file: that is faster
//! than to recover the block. The DataNode that failed or was late is left out of new logs for a while
//! ([`Avoided`](crate::avoided::Avoided)).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halcyon_env::{Attempt, WritableFile};
use hdfs_native::file::FileWriter;
use hdfs_native::file::fan_out::{Datanode, FanOut as Created, FanOutFile};
use hdfs_native::{Client, HdfsError};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::fan_out::{FanOut, LinkFailure, PacketEnd};
use crate::file_system::text;
use crate::seal::{remove_in_background, seal_in_background};
use crate::writer::{CreateOptions, HdfsWriter};

/// So many bytes are collected before they go to the DataNodes without being waited for.
const COLLECTED_MAX_BYTES: usize = 256 << 10;
/// So long a thin file is left alone, so that its DataNodes may recover.
const THIN_MIN: Duration = Duration::from_secs(10);

/// After an error it takes no more bytes: what was written since the last sync is in doubt.
pub(crate) struct HdfsLog {
    cluster: Arc<Cluster>,
    path: PathBuf,
    /// `None` once the file is closed or abandoned.
    file: Option<FanOutFile>,
    /// Shared with the task that sends heartbeats. Nobody waits while holding it but the thread that writes.
    fan_out: Arc<Mutex<FanOut>>,
    collected: Vec<u8>,
    len: u64,
    block_bytes_max: u64,
    /// By when what was sent last has to be acknowledged.
    due: Instant,
    /// DataNodes were left out, and so the file has fewer than it should.
    is_thin: bool,
    made: Instant,
    abandoned: Option<(io::ErrorKind, String)>,
}

/// A new log; the usual writer if its bytes have to be encrypted.
pub(crate) fn create(
    cluster: &Arc<Cluster>,
    path: &Path,
    options: CreateOptions,
) -> io::Result<Box<dyn WritableFile>> {
    let name = text(path)?;
    let library = options.to_library(cluster.pipeline_max());
    let placements = cluster.avoided().placements(path);
    let is_made = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&is_made);
    let create = |client: Client| async move {
        let file: FileWriter = client.create(&name, &library).await?;
        noted.store(true, Ordering::Release);
        let replication = file.replication();
        let placements = placements.for_replication(replication);
        Ok::<_, HdfsError>((file.fan_out(&placements).await?, replication))
    };
    // Tried once: after a lost answer nobody can tell whose file it is.
    let created = cluster.ask_once(create);
    if created.is_err() && is_made.load(Ordering::Acquire) {
        // The NameNode has a file that nobody writes. While no DataNode answers there would be more of them with each attempt,
        // and whoever takes over would have to seal them all.
        remove_in_background(cluster, path);
    }
    let (created, replication) =
        created.map_err(|failure| failure.into_change_io(path, "cannot be created", cluster.address()))?;
    match created {
        Created::Pipelined(file) => Ok(Box::new(HdfsWriter::of(cluster, path, file, 0, false))),
        Created::Direct(_, connections, _) if connections.is_empty() => {
            remove_in_background(cluster, path);
            let text = format!("{}: the NameNode gave its block no DataNode", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
        Created::Direct(file, connections, failed) => {
            let now = Instant::now();
            failed.iter().for_each(|datanode| cluster.avoided().note_failed(datanode, now));
            let datanodes: Vec<Datanode> = connections.iter().map(|to| to.datanode.clone()).collect();
            cluster.avoided().note_placed(path, &datanodes);
            let fan_out = FanOut::new(connections, file.bytes_per_checksum());
            let log = HdfsLog {
                cluster: cluster.clone(),
                path: path.to_path_buf(),
                block_bytes_max: file.block_size(),
                file: Some(file),
                fan_out: Arc::new(Mutex::new(fan_out)),
                collected: Vec::new(),
                len: 0,
                due: Instant::now(),
                is_thin: datanodes.len() < replication && cluster.avoided().is_any(),
                made: Instant::now(),
                abandoned: None,
            };
            log.start_heartbeats();
            Ok(Box::new(log))
        }
    }
}

impl HdfsLog {
    /// They keep the connections of a log that nobody writes, and find out that a DataNode of it has died.
    fn start_heartbeats(&self) {
        let fan_out = Arc::downgrade(&self.fan_out);
        let cluster = Arc::downgrade(&self.cluster);
        let period = self.cluster.heartbeat_period();
        self.cluster.spawn(async move {
            loop {
                tokio::time::sleep(period).await;
                let (Some(fan_out), Some(cluster)) = (fan_out.upgrade(), cluster.upgrade()) else { return };
                let Some(mut fan_out) = fan_out.try_lock() else { continue }; // it is being written
                if let Err(failure) = fan_out.tend(period) {
                    cluster.avoided().note_failed(&failure.datanode, failure.noticed);
                    return; // the writer will see it
                }
            }
        });
    }

    /// Makes packets of what was collected and of these bytes, for the next wait to send.
    fn put(&mut self, bytes: &[u8], end: PacketEnd) -> io::Result<()> {
        if self.file.is_none() {
            return Err(self.refusal());
        }
        self.check_room(bytes)?;
        let mut fan_out = self.fan_out.lock();
        if self.collected.is_empty() {
            fan_out.put(bytes, end);
        } else {
            self.collected.extend_from_slice(bytes);
            fan_out.put(&self.collected, end);
            self.collected.clear();
        }
        self.len += bytes.len() as u64;
        self.due = Instant::now() + self.cluster.deadlines().acknowledgement;
        Ok(())
    }

    /// `FileTooLarge` if the block has no room for more bytes than it has got. Then nothing of them is taken, and the file goes on.
    fn check_room(&self, bytes: &[u8]) -> io::Result<()> {
        let len = self.len + bytes.len() as u64;
        if len <= self.block_bytes_max {
            return Ok(());
        }
        let (path, len_max) = (self.path.display(), self.block_bytes_max);
        let text = format!("{path} cannot have {len} bytes: its block has {len_max} at most");
        Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
    }

    /// Whether all is acknowledged within the time.
    fn wait(&mut self, limit: Duration) -> io::Result<bool> {
        if self.file.is_none() {
            return Err(self.refusal());
        }
        let waited = self.fan_out.lock().wait(limit);
        waited.map_err(|failure| self.fail(&failure))
    }

    /// Waits for what was sent, as long as is allowed.
    fn wait_until_due(&mut self) -> io::Result<()> {
        let left = self.due.saturating_duration_since(Instant::now());
        if self.wait(left)? {
            return Ok(());
        }
        let late = self.fan_out.lock().late();
        let now = Instant::now();
        late.iter().for_each(|datanode| self.cluster.avoided().note_failed(datanode, now));
        let names: Vec<String> = late.iter().map(Datanode::name).collect();
        let whose = if names.is_empty() { "all DataNodes".to_string() } else { names.join(", ") };
        let limit = self.cluster.deadlines().acknowledgement;
        Err(self.abandon(io::ErrorKind::TimedOut, format!("no answer of {whose} within {limit:?}")))
    }

    fn flush_to(&mut self, sync: bool) -> io::Result<()> {
        // After `Attempt::Late` nothing is collected, and the packets are on their way.
        let is_acknowledged = self.fan_out.lock().is_acknowledged();
        if !self.collected.is_empty() || (sync && is_acknowledged) {
            self.put(&[], PacketEnd { sync, last: false })?;
        }
        self.wait_until_due()
    }

    fn fail(&mut self, failure: &LinkFailure) -> io::Error {
        self.cluster.avoided().note_failed(&failure.datanode, failure.noticed);
        let why = format!("DataNode {}: {}", failure.datanode.name(), failure.why);
        self.abandon(io::ErrorKind::BrokenPipe, why)
    }

    fn abandon(&mut self, kind: io::ErrorKind, why: String) -> io::Error {
        if self.file.take().is_some() {
            tracing::warn!("{} is abandoned: {why}", self.path.display());
            seal_in_background(&self.cluster, &self.path);
        }
        self.collected = Vec::new();
        self.abandoned.get_or_insert((kind, why));
        self.refusal()
    }

    fn refusal(&self) -> io::Error {
        let (kind, why) = self
            .abandoned
            .as_ref()
            .map_or((io::ErrorKind::Other, "it was closed"), |(kind, why)| (*kind, why.as_str()));
        let (path, address) = (self.path.display(), self.cluster.address());
        io::Error::new(kind, format!("{path} takes no more bytes: {why} ({address}); go on in another file"))
    }
}

impl WritableFile for HdfsLog {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            return Err(self.refusal());
        }
        self.check_room(bytes)?;
        self.collected.extend_from_slice(bytes);
        if self.collected.len() >= COLLECTED_MAX_BYTES {
            // The acknowledgements are waited for, so that what waits in memory has a limit.
            self.flush_to(false)?;
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// The bytes are on the disks of all DataNodes (`hsync`).
    fn sync(&mut self) -> io::Result<()> {
        self.flush_to(true)
    }

    /// The bytes are in the memory of all DataNodes (`hflush`).
    fn flush(&mut self) -> io::Result<()> {
        self.flush_to(false)
    }

    fn write_within(&mut self, bytes: &[u8], to_disk: bool, limit: Duration) -> Attempt {
        match self.put(bytes, PacketEnd { sync: to_disk, last: false }) {
            Ok(()) => self.wait_within(limit),
            Err(error) => Attempt::Done(Err(error)),
        }
    }

    fn wait_within(&mut self, limit: Duration) -> Attempt {
        match self.wait(limit.min(self.cluster.deadlines().acknowledgement)) {
            Ok(true) => Attempt::Done(Ok(())),
            Ok(false) => Attempt::Late,
            Err(error) => Attempt::Done(Err(error)),
        }
    }

    fn late_machines(&self) -> Vec<String> {
        self.fan_out.lock().late().iter().map(Datanode::name).collect()
    }

    fn is_on(&self, machines: &[String]) -> bool {
        self.fan_out.lock().datanodes().any(|datanode| machines.contains(&datanode.name()))
    }

    fn avoid_late(&mut self) {
        let late = self.fan_out.lock().late();
        late.iter().for_each(|datanode| self.cluster.avoided().note_late(datanode));
    }

    fn check(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            return Err(self.refusal());
        }
        let mut fan_out = self.fan_out.lock();
        let alive = fan_out.tend(Duration::MAX);
        let avoided =
            fan_out.datanodes().find(|datanode| self.cluster.avoided().is_avoided(datanode)).cloned();
        drop(fan_out);
        match (alive, avoided) {
            (Err(failure), _) => Err(self.fail(&failure)),
            (Ok(()), Some(datanode)) => {
                let why = format!("DataNode {} has just failed or was late", datanode.name());
                Err(self.abandon(io::ErrorKind::BrokenPipe, why))
            }
            (Ok(()), None) => Ok(()),
        }
    }

    fn is_thin(&self) -> bool {
        self.is_thin && self.made.elapsed() >= THIN_MIN && !self.cluster.avoided().is_any()
    }

    fn truncate(&mut self, _len: u64) -> io::Result<()> {
        let text = format!("{}: a file in HDFS only grows; go on in another file", self.path.display());
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// It is an error if the NameNode did not confirm the end, and then the file is in doubt.
    fn close(mut self: Box<Self>) -> io::Result<()> {
        self.put(&[], PacketEnd { sync: false, last: true })?;
        self.wait_until_due()?;
        let Some(file) = self.file.take() else { return Err(self.refusal()) };
        let (block_len, limit) = (self.fan_out.lock().len(), self.cluster.deadlines().close);
        assert_eq!(block_len, self.len, "the NameNode is told of a block with all bytes that were written");
        match self.cluster.run(limit, file.close(block_len)) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                seal_in_background(&self.cluster, &self.path);
                let error = crate::failure::data_error(&error);
                Err(io::Error::other(format!("{} was not ended: {error}", self.path.display())))
            }
            None => {
                seal_in_background(&self.cluster, &self.path);
                let text = format!("{} was not ended: no answer within {limit:?}", self.path.display());
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
        }
    }

    fn len_max(&self) -> u64 {
        self.block_bytes_max
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// A log that was not closed is sealed in the background: it keeps what was synced.
impl Drop for HdfsLog {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            seal_in_background(&self.cluster, &self.path);
        }
    }
}
