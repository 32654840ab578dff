//! The connection to a cluster: runtime, client object, deadlines.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hdfs_native::client::RepeatedCall;
use hdfs_native::{Client, ClientBuilder, HdfsError};
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

/// How long a DataNode of a large file may take, unless `dfs.client.socket-timeout` says it: as Hadoop's client waits.
const PIPELINE_MAX: Duration = Duration::from_secs(60);
/// Which NameNode of a service is asked for what. Observers are behind the active one.
const PROXY_PROVIDER: &str = "dfs.client.failover.proxy.provider";

/// How long a call may take. A call that is late fails with `TimedOut`; the thread never waits longer.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// A new connection to a NameNode, before the next one of its service is tried. Default 2 s.
    pub connect: Duration,
    /// One attempt to ask the NameNode. The next attempt goes to the next one of its service. Default 5 s.
    pub namenode: Duration,
    /// All attempts of one call. A NameNode that restarts, or hands over to its standby, is away for less. Default 30 s.
    pub namenode_total: Duration,
    /// One DataNode's answer to a read, before the next replica is tried. Default 1 s.
    pub datanode: Duration,
    /// One attempt to read a range, from all replicas. Three attempts are made, each with new block locations. Default 5 s.
    pub read: Duration,
    /// The DataNodes' acknowledgement of bytes of a log or a small file. Then it fails, or goes on without the DataNode. Default 2 s.
    pub acknowledgement: Duration,
    /// Bytes of a log or a small file on their way to the DataNodes, and their sync, the replacement of DataNodes included.
    /// Default 10 s.
    pub sync: Duration,
    /// The end of a log or a small file. The NameNode waits for the last block to be reported. Default 15 s.
    pub close: Duration,
    /// As `sync` and `close`, of a large file: disks that are slow for all DataNodes in turn, a busy NameNode and its failover
    /// are waited for. Default 5 min.
    pub large_file: Duration,
    /// One call of `seal`. Recovery is ordered by heartbeats of DataNodes, and waits for those that died. Default 120 s.
    pub seal: Duration,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            connect: Duration::from_secs(2),
            namenode: Duration::from_secs(5),
            namenode_total: Duration::from_secs(30),
            datanode: Duration::from_secs(1),
            read: Duration::from_secs(5),
            acknowledgement: Duration::from_secs(2),
            sync: Duration::from_secs(10),
            close: Duration::from_secs(15),
            large_file: Duration::from_secs(300),
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

pub(crate) struct Cluster {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    address: HdfsAddress,
    options: HdfsOptions,
    client: Client,
    hedged_reads: Arc<HedgedReads>,
    avoided: Avoided,
    recoveries: Recoveries,
    usual_block_bytes: OnceLock<u64>,
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
        let hedged_reads = Arc::new(HedgedReads::new(&address)?);
        let avoided = Avoided::default();
        let recoveries = Recoveries::default();
        let usual_block_bytes = OnceLock::new();
        Ok(Cluster {
            runtime: Some(runtime),
            address,
            options,
            client,
            hedged_reads,
            avoided,
            recoveries,
            usual_block_bytes,
        })
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

    /// The NameNode's block size, which is asked for until it is known.
    pub(crate) fn usual_block_bytes(&self, ask: impl FnOnce() -> Option<u64>) -> Option<u64> {
        if let Some(known) = self.usual_block_bytes.get() {
            return Some(*known);
        }
        ask().map(|answer| *self.usual_block_bytes.get_or_init(|| answer))
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

    /// The library's client, for work that has a deadline of its own.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// How long a DataNode of a large file may take.
    pub(crate) fn pipeline_max(&self) -> Duration {
        pipeline_max(&self.address)
    }

    /// Asks the NameNode once. After a deadline the library resets the connection, so that the request is taken back if it has
    /// not arrived, and the next call goes to the next NameNode of the service, unless this one answers others.
    pub(crate) fn ask_once<T, F>(&self, ask: impl FnOnce(Client) -> F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, HdfsError>> + Send + 'static,
    {
        self.attempt(RepeatedCall::new(), ask)
    }

    /// One attempt of a call.
    pub(crate) fn attempt<T, F>(
        &self,
        call: RepeatedCall,
        ask: impl FnOnce(Client) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, HdfsError>> + Send + 'static,
    {
        let limit = self.deadlines().namenode;
        let failure = match self.run(limit, call.attempt(ask(self.client()))) {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(error)) => Failure::of(error),
            None => Failure::Late(limit),
        };
        if matches!(failure, Failure::Late(_)) {
            tracing::warn!("{} gave no answer within {limit:?}", self.address);
        }
        Err(failure)
    }

    /// Asks until there is an answer or the time is over. The NameNode takes all attempts for one call: it makes a change
    /// once, although an attempt that was given up may arrive late. It knows that for ten minutes, of files and renames and not
    /// of new directories. Only the last attempt is taken back: a NameNode that is long at one call answers others of the same
    /// connection. The failure is ambiguous if that of any attempt was.
    pub(crate) fn ask<T, F>(&self, ask: impl Fn(Client) -> F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, HdfsError>> + Send + 'static,
    {
        let mut attempts = self.attempts();
        let mut unanswered = None;
        let call = RepeatedCall::new();
        loop {
            let is_last = attempts.is_last(self.deadlines().namenode);
            match self.attempt(if is_last { call } else { call.made_again() }, &ask) {
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

    /// Asks until something may have been changed, or the time is over: a change that must not be made late, when its name
    /// means something else.
    pub(crate) fn ask_until_in_doubt<T, F>(&self, ask: impl Fn(Client) -> F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, HdfsError>> + Send + 'static,
    {
        let mut attempts = self.attempts();
        loop {
            match self.ask_once(&ask) {
                Err(failure) if failure.may_pass() && !failure.is_ambiguous() && attempts.pause() => {}
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
}

/// When to try again.
pub(crate) struct Attempts<'a> {
    cluster: &'a Cluster,
    end: Instant,
    pause: Duration,
}

impl Attempts<'_> {
    /// Whether no other attempt comes behind one that takes so long.
    fn is_last(&self, time: Duration) -> bool {
        Instant::now() + time + self.pause >= self.end
    }

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

fn pipeline_max(address: &HdfsAddress) -> Duration {
    let set = address.settings().get("dfs.client.socket-timeout").and_then(|text| text.parse().ok());
    set.filter(|ms| *ms > 0).map_or(PIPELINE_MAX, Duration::from_millis)
}

/// The library's settings: those of the site, with this crate's deadlines.
///
/// No question goes to an observer, whatever the site says. Servers tell each other what they have changed, by other ways than
/// the NameNode, and a NameNode that is behind would say that it did not happen. A WAL that it does not know yet would
/// count as one that was split.
fn library_settings(address: &HdfsAddress, deadlines: &Deadlines) -> HashMap<String, String> {
    let mut settings = address.settings().clone();
    settings.retain(|name, _| !name.starts_with(PROXY_PROVIDER));
    for (name, time) in [
        ("ipc.client.connect.timeout", deadlines.connect),
        ("ipc.client.rpc-timeout.ms", deadlines.namenode),
        ("dfs.client.socket-timeout", deadlines.datanode),
        ("dfs.client.write.ack.timeout", deadlines.acknowledgement),
        ("dfs.client.write.heartbeat.interval", heartbeat_period(address)),
    ] {
        settings.insert(name.to_string(), time.as_millis().to_string());
    }
    // A call asks each NameNode and the first one again, which may have been about to change. What comes after is decided here.
    settings.insert("dfs.client.failover.max.attempts".to_string(), address.namenodes().len().to_string());
    settings
}

fn new_client(runtime: &Runtime, address: &HdfsAddress, options: &HdfsOptions) -> io::Result<Client> {
    let settings = library_settings(address, &options.deadlines);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Site;

    fn settings(of_site: &[(&str, &str)]) -> HashMap<String, String> {
        let mut site = Site::default();
        of_site.iter().for_each(|(name, value)| site.set(name, value));
        library_settings(&HdfsAddress::new("hdfs://one/", &site).unwrap(), &Deadlines::default())
    }

    /// An observer answers from its own state, which may be older than what another server has just told. A WAL that was not
    /// found there counted as split, and its edits were lost.
    #[test]
    fn no_question_goes_to_an_observer() {
        let name = format!("{PROXY_PROVIDER}.one");
        let provider = "org.apache.hadoop.hdfs.server.namenode.ha.ObserverReadProxyProvider";
        let settings = settings(&[(&name, provider), ("dfs.client.retry.max.attempts", "7")]);
        assert!(settings.keys().all(|name| !name.starts_with(PROXY_PROVIDER)), "{settings:?}");
        assert_eq!(settings["dfs.client.retry.max.attempts"], "7");
    }

    #[test]
    fn large_files_wait_as_long_as_the_site_says() {
        let max = |of_site: &[(&str, &str)]| {
            let mut site = Site::default();
            of_site.iter().for_each(|(name, value)| site.set(name, value));
            pipeline_max(&HdfsAddress::new("hdfs://one/", &site).unwrap())
        };
        assert_eq!(max(&[]), PIPELINE_MAX);
        assert_eq!(max(&[("dfs.client.socket-timeout", "90000")]), Duration::from_secs(90));
        assert_eq!(max(&[("dfs.client.socket-timeout", "0")]), PIPELINE_MAX);
        // Connections and reads do not wait so long.
        assert_eq!(settings(&[("dfs.client.socket-timeout", "90000")])["dfs.client.socket-timeout"], "1000");
    }
}
