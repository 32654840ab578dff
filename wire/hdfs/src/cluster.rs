//! The connection to a cluster: runtime, client object, deadlines.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use hdfs_native::{Client, ClientBuilder, HdfsError};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::HdfsAddress;
use crate::avoided::Avoided;
use crate::failure::Failure;
use crate::hedge::HedgedReads;
use crate::recoveries::Recoveries;

/// Between two attempts: at first, at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// DataNodes close a connection on which nothing came for so long, or longer.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// So many heartbeats are sent in that time.
const HEARTBEATS: u32 = 4;
/// The library reads its settings from here: from nowhere, since they are read already.
const NO_DIRECTORY: &str = "/dev/null";

/// How long a call may take. A call that is late fails with `TimedOut`; the thread never waits longer.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// One attempt to ask the NameNode. Default 5 s.
    pub namenode: Duration,
    /// All attempts of one call. A NameNode that restarts, or hands over to its standby, is away for less. Default 30 s.
    pub namenode_total: Duration,
    /// One DataNode's answer to a read, before the next replica is tried. Default 1 s.
    pub datanode: Duration,
    /// One attempt to read a range, from all replicas. Three attempts are made, each with new block locations. Default 5 s.
    pub read: Duration,
    /// The DataNodes' acknowledgement of bytes. Then the file fails, or goes on without the DataNode. Default 2 s.
    pub acknowledgement: Duration,
    /// Bytes on their way to the DataNodes, and their sync, the replacement of DataNodes included. Default 10 s.
    pub sync: Duration,
    /// The end of a file. The NameNode waits for the last block to be reported. Default 15 s.
    pub close: Duration,
    /// One call of `seal`. Recovery is ordered by heartbeats of DataNodes, and waits for those that died. Default 120 s.
    pub seal: Duration,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            namenode: Duration::from_secs(5),
            namenode_total: Duration::from_secs(30),
            datanode: Duration::from_secs(1),
            read: Duration::from_secs(5),
            acknowledgement: Duration::from_secs(2),
            sync: Duration::from_secs(10),
            close: Duration::from_secs(15),
            seal: Duration::from_secs(120),
        }
    }
}

/// Places where a file may be that is no longer at its path.
type Places = dyn Fn(&Path) -> Vec<PathBuf> + Send + Sync;

#[derive(Clone, Default)]
pub struct HdfsOptions {
    pub deadlines: Deadlines,
    /// Where an open file that was moved is looked for, such as HBase's archive directory. Default: nowhere.
    pub moved_to: Option<Arc<Places>>,
    /// Of WALs (`hbase.regionserver.hlog.blocksize`). Default: as of other files.
    pub log_block_size_bytes: Option<u64>,
    /// Of WALs (`hbase.regionserver.hlog.replication`). Default: as of other files.
    pub log_replication: Option<u32>,
    /// The user at the NameNode; default `HADOOP_USER_NAME`, else the user of the process.
    pub user: Option<String>,
}

struct Current {
    client: Client,
    /// Counts the client objects.
    generation: u64,
}

pub(crate) struct Cluster {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    address: HdfsAddress,
    options: HdfsOptions,
    current: Mutex<Current>,
    hedged_reads: Arc<HedgedReads>,
    avoided: Avoided,
    recoveries: Recoveries,
}

impl Cluster {
    /// Scheme and authority of its files.
    pub fn url(&self) -> &str {
        self.address.url()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Dropping a runtime waits for it, which panics on a thread of another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Cluster {
    /// Asks nobody yet.
    pub(crate) fn new(address: HdfsAddress, options: HdfsOptions) -> io::Result<Cluster> {
        let runtime =
            Builder::new_multi_thread().worker_threads(2).thread_name("hdfs").enable_all().build()?;
        let client = new_client(&runtime, &address, &options)?;
        let current = Mutex::new(Current { client, generation: 0 });
        let hedged_reads = Arc::new(HedgedReads::new(&address)?);
        let avoided = Avoided::default();
        let recoveries = Recoveries::default();
        Ok(Cluster { runtime: Some(runtime), address, options, current, hedged_reads, avoided, recoveries })
    }

    pub(crate) fn address(&self) -> &HdfsAddress {
        &self.address
    }

    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.options.deadlines
    }

    pub(crate) fn hedged_reads(&self) -> Arc<HedgedReads> {
        self.hedged_reads.clone()
    }

    pub(crate) fn avoided(&self) -> &Avoided {
        &self.avoided
    }

    pub(crate) fn recoveries(&self) -> &Recoveries {
        &self.recoveries
    }

    /// Between two heartbeats to the DataNodes of a file that is being written.
    pub(crate) fn heartbeat_period(&self) -> Duration {
        heartbeat_period(&self.address)
    }

    pub(crate) fn options(&self) -> &HdfsOptions {
        &self.options
    }

    pub(crate) fn moved_to(&self, path: &Path) -> Vec<PathBuf> {
        self.options.moved_to.as_ref().map_or_else(Vec::new, |places| places(path))
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is taken only when the cluster is dropped")
    }

    /// Runs a future beside the caller.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime().spawn(future);
    }

    /// Runs a future and waits for it; `None` if the time is over, and then it is dropped. A panic within the library is
    /// taken for no answer.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.spawn(async move {
            let _ = sender.send(tokio::time::timeout(limit, future).await.ok()); // who waited may have gone
        });
        // The runtime's timer ends the future. Whoever waits longer has a runtime that stands still.
        receiver.recv_timeout(limit * 2 + Duration::from_secs(1)).ok().flatten()
    }

    /// The client object, for work that has a deadline of its own.
    pub(crate) fn client(&self) -> Client {
        self.current.lock().client.clone()
    }

    /// Asks the NameNode once. After a deadline the next call uses a new client object: the library would go on with a
    /// connection whose other end is gone.
    pub(crate) fn ask_once<T, F>(&self, ask: impl FnOnce(Client) -> F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, HdfsError>> + Send + 'static,
    {
        let (client, generation) = {
            let current = self.current.lock();
            (current.client.clone(), current.generation)
        };
        match self.run(self.deadlines().namenode, ask(client)) {
            Some(answer) => answer.map_err(Failure::of),
            None => {
                self.renew(generation);
                Err(Failure::Late(self.deadlines().namenode))
            }
        }
    }

    /// Asks until there is an answer or the time is over. Only for what may be done twice. The failure is ambiguous if
    /// that of any attempt was.
    pub(crate) fn ask<T, F>(&self, ask: impl Fn(Client) -> F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, HdfsError>> + Send + 'static,
    {
        let mut attempts = self.attempts();
        let mut unanswered = None;
        loop {
            match self.ask_once(&ask) {
                Err(failure) if failure.may_pass() => {
                    let kept = if failure.is_ambiguous() { failure } else { unanswered.unwrap_or(failure) };
                    if !attempts.pause() {
                        return Err(kept);
                    }
                    unanswered = Some(kept).filter(Failure::is_ambiguous);
                }
                answer => return answer,
            }
        }
    }

    /// The attempts of one call.
    pub(crate) fn attempts(&self) -> Attempts<'_> {
        let end = Instant::now() + self.deadlines().namenode_total;
        Attempts { cluster: self, end, pause: PAUSE_MIN }
    }

    pub(crate) fn sleep(&self, time: Duration) {
        self.run(time + PAUSE_MAX, async move { tokio::time::sleep(time).await });
    }

    fn renew(&self, generation: u64) {
        let mut current = self.current.lock();
        if current.generation != generation {
            return; // another call has seen the same
        }
        tracing::warn!("{} gave no answer in time; the next call makes a new connection", self.address);
        // It succeeded with the same address and options before.
        if let Ok(client) = new_client(self.runtime(), &self.address, &self.options) {
            *current = Current { client, generation: generation + 1 };
        }
    }
}

/// When to try again.
pub(crate) struct Attempts<'a> {
    cluster: &'a Cluster,
    end: Instant,
    pause: Duration,
}

impl Attempts<'_> {
    /// Waits before the next attempt; `false` if there is no time for one.
    pub(crate) fn pause(&mut self) -> bool {
        if Instant::now() + self.pause >= self.end {
            return false;
        }
        self.cluster.sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}

fn heartbeat_period(address: &HdfsAddress) -> Duration {
    // Like the DataNodes' own setting of that name, if the cluster has one configuration for all.
    let silence = address.settings().get("dfs.client.socket-timeout").and_then(|text| text.parse().ok());
    let silence = silence.map_or(SILENCE_MAX, |ms| SILENCE_MAX.min(Duration::from_millis(ms)));
    (silence / HEARTBEATS).max(PAUSE_MIN)
}

fn new_client(runtime: &Runtime, address: &HdfsAddress, options: &HdfsOptions) -> io::Result<Client> {
    let mut settings = address.settings().clone();
    let deadlines = &options.deadlines;
    for (name, time) in [
        ("dfs.client.socket-timeout", deadlines.datanode),
        ("dfs.client.write.ack.timeout", deadlines.acknowledgement),
        ("dfs.client.write.heartbeat.interval", heartbeat_period(address)),
    ] {
        settings.insert(name.to_string(), time.as_millis().to_string());
    }
    let builder = ClientBuilder::new()
        .with_url(address.url())
        .with_config_dir(NO_DIRECTORY)
        .with_config(settings)
        .with_io_runtime(runtime.handle().clone());
    let builder = match &options.user {
        Some(user) => builder.with_user(user),
        None => builder,
    };
    builder.build().map_err(|error| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{address}: the settings of HDFS do not work: {error}"),
        )
    })
}
