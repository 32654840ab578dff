//! Applies what another cluster sends.
//!
//! A source sends its entries to any server, so the regions of a request may be anywhere. Mutations of regions that are
//! open here are written at once. The others go through a client, which also finds out that a table does not exist. A
//! failed request may have been applied in part: the source sends it again, and the same cells replace themselves.
//!
//! *Thread safety*: shared freely. The client is made by the first request that needs it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind};
use halcyon_client::{
    Action, ClientError, Cluster, ClusterAddress, ClusterOptions, ConnectOptions, Mutation as Sent,
    MutationType, RetryPolicy,
};
use halcyon_env::spawn_thread;
use halcyon_proto::pb;
use halcyon_region::{Mutation, MutationKind, Nonce, ReadMode, WriteTicket};
use halcyon_rpc::{Codec, RpcError, exceptions};
use halcyon_schema::{ServerName, TableName};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use super::entries::TableEdits;
use super::loads::{Loader, OpenSourceFiles, SentLoad, SourceDirs};
use crate::convert::cluster_ids_attribute;
use crate::errors;
use crate::regions::region_table::{OnlineRegion, RegionTable};
use crate::regions::resources::RegionResources;

/// `replication.sink.client.ops.timeout` and `replication.sink.client.retries.number` of HBase.
const CLIENT_TIME_MAX: Duration = Duration::from_secs(10);
const CLIENT_RETRIES_MAX: u32 = 4;
/// Mutations of one batch of the client (`hbase.rpc.rows.warning.threshold`).
const CLIENT_BATCH_MAX: usize = 5000;
/// Requests with bulk loads that are worked on at the same time, each by a thread of its own; others wait.
const LOADS_MAX: usize = 2;

/// What was applied since start (HBase: `MetricsSink`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Requests that were applied.
    pub batches: u64,
    /// Their WAL entries.
    pub ops: u64,
    /// Files of bulk loads that were loaded.
    pub hfiles: u64,
    /// Requests that failed.
    pub failed_batches: u64,
    /// Between the writing of the last applied entry at the source and its application here, in milliseconds.
    pub age_ms: u64,
    /// When the last entry that was applied had been written at the source, in milliseconds since 1970; the start of the
    /// server before that.
    pub last_applied_ms: u64,
}

/// See the head of the file.
pub(crate) struct Sink {
    started_ms: i64,
    /// This server, which knows where the regions are.
    own_address: String,
    threads: OnceLock<Handle>,
    client: tokio::sync::Mutex<Option<Cluster>>,
    source_files: OnceLock<Arc<OpenSourceFiles>>,
    loading: Semaphore,
    batches: AtomicU64,
    ops: AtomicU64,
    hfiles: AtomicU64,
    failed_batches: AtomicU64,
    age_ms: AtomicU64,
    last_applied_ms: AtomicI64,
}

impl Sink {
    pub(crate) fn new(name: &ServerName, now_ms: i64) -> Sink {
        Sink {
            started_ms: now_ms,
            own_address: name.address(),
            threads: OnceLock::new(),
            client: tokio::sync::Mutex::new(None),
            source_files: OnceLock::new(),
            loading: Semaphore::new(LOADS_MAX),
            batches: AtomicU64::new(0),
            ops: AtomicU64::new(0),
            hfiles: AtomicU64::new(0),
            failed_batches: AtomicU64::new(0),
            age_ms: AtomicU64::new(0),
            last_applied_ms: AtomicI64::new(now_ms),
        }
    }

    /// The client's calls run on the threads of this runtime. The first one stays.
    pub(crate) fn work_on(&self, threads: Handle) {
        let _ = self.threads.set(threads);
    }

    /// How files of other clusters are opened that are in other file systems. The first one stays.
    pub(crate) fn open_source_files_with(&self, open: Arc<OpenSourceFiles>) {
        let _ = self.source_files.set(open);
    }

    pub(crate) fn stats(&self) -> SinkStats {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        SinkStats {
            batches: get(&self.batches),
            ops: get(&self.ops),
            hfiles: get(&self.hfiles),
            failed_batches: get(&self.failed_batches),
            age_ms: get(&self.age_ms),
            last_applied_ms: self.last_applied_ms.load(Ordering::Relaxed).max(0) as u64,
        }
    }

    /// As servers report it to the master.
    pub(crate) fn load(&self) -> pb::ReplicationLoadSink {
        let stats = self.stats();
        pb::ReplicationLoadSink {
            age_of_last_applied_op: stats.age_ms,
            time_stamps_of_last_applied_op: stats.last_applied_ms,
            timestamp_started: Some(self.started_ms.max(0) as u64),
            total_ops_processed: Some(stats.ops),
        }
    }

    /// Counts a request that was applied: its entries, and when the last of them was written.
    pub(crate) fn note_applied(&self, ops: usize, written_ms: u64, now_ms: i64) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.ops.fetch_add(ops as u64, Ordering::Relaxed);
        let written_ms = i64::try_from(written_ms).unwrap_or(now_ms);
        self.age_ms.store(now_ms.saturating_sub(written_ms).max(0) as u64, Ordering::Relaxed);
        self.last_applied_ms.store(written_ms, Ordering::Relaxed);
    }

    /// Counts a request that failed.
    pub(crate) fn note_failed(&self) {
        self.failed_batches.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes mutations through the client, table by table.
    pub(crate) async fn write_remote(self: &Arc<Self>, tables: Vec<TableEdits>) -> Result<(), RpcError> {
        if tables.is_empty() {
            return Ok(());
        }
        let threads = self.threads()?;
        let sink = Arc::clone(self);
        let work = threads.spawn(async move {
            let cluster = sink.cluster().await.map_err(|error| to_rpc(&error, None))?;
            for edits in tables {
                write_table(&cluster, edits).await?;
            }
            Ok(())
        });
        work.await
            .unwrap_or_else(|_| Err(RpcError::io("replicated edits were not written: the server stops")))
    }

    fn threads(&self) -> Result<&Handle, RpcError> {
        let why = "the server does not serve yet, and cannot ask where regions are";
        self.threads.get().ok_or_else(|| RpcError::server_not_running_yet(why))
    }

    /// Loads the files of bulk loads of another cluster. Those that have come from here are passed over.
    pub(crate) async fn load_files(
        self: &Arc<Self>,
        resources: &Arc<RegionResources>,
        own_id: &str,
        loads: Vec<SentLoad>,
        source: SourceDirs,
    ) -> Result<(), RpcError> {
        let is_own = |load: &SentLoad| load.cluster_ids.iter().any(|id| id == own_id);
        let loads: Vec<SentLoad> = loads.into_iter().filter(|load| !is_own(load)).collect();
        if loads.is_empty() {
            return Ok(());
        }
        let stopping = || RpcError::io("a replicated bulk load is not finished: the server stops");
        let threads = self.threads()?.clone();
        let _turn = self.loading.acquire().await.map_err(|_| stopping())?;
        let (done, result) = oneshot::channel();
        let (sink, resources) = (Arc::clone(self), Arc::clone(resources));
        let work = move || {
            let _ = done.send(sink.load_here(&resources, &threads, &loads, &source));
        };
        // Without the thread's handle: it ends by itself, and each of its calls has a limit.
        spawn_thread("replication-load", work).map_err(|error| errors::to_rpc(&error.into()))?;
        result.await.unwrap_or_else(|_| Err(stopping()))
    }

    fn load_here(
        &self,
        resources: &RegionResources,
        threads: &Handle,
        loads: &[SentLoad],
        source: &SourceDirs,
    ) -> Result<(), RpcError> {
        let cluster = threads.block_on(self.cluster()).map_err(|error| to_rpc(&error, None))?;
        let open = self.source_files.get().map(|open| &**open);
        let loader = Loader { resources, open, cluster: &cluster, threads, source };
        for load in loads {
            let count = loader.load(load)?;
            self.hfiles.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn cluster(&self) -> Result<Cluster, ClientError> {
        let mut client = self.client.lock().await;
        if let Some(cluster) = &*client {
            return Ok(cluster.clone());
        }
        let connect =
            ConnectOptions { codec: Some(Codec::KeyValueWithTags), ..ConnectOptions::new("ClientService") };
        let options = ClusterOptions {
            operation_timeout: CLIENT_TIME_MAX,
            retry: RetryPolicy { retries_max: CLIENT_RETRIES_MAX, ..RetryPolicy::default() },
            connect,
            ..ClusterOptions::default()
        };
        let cluster = Cluster::connect(ClusterAddress::registry([self.own_address.clone()]), options).await?;
        Ok(client.insert(cluster).clone())
    }
}

async fn write_table(cluster: &Cluster, edits: TableEdits) -> Result<(), RpcError> {
    let table = cluster.table(edits.table, 0);
    let mut mutations = edits.mutations.into_iter().peekable();
    while mutations.peek().is_some() {
        let actions: Vec<Action> = mutations.by_ref().take(CLIENT_BATCH_MAX).map(to_action).collect();
        table.batch_all(&actions).await.map_err(|error| to_rpc(&error, Some(table.name())))?;
    }
    Ok(())
}

fn to_action(mutation: Mutation) -> Action {
    let kind = match mutation.kind {
        MutationKind::Delete => MutationType::Delete,
        _ => MutationType::Put,
    };
    let sent = Sent::new(kind, mutation.row, mutation.cells);
    Action::Mutate(match &mutation.cluster_ids {
        None => sent,
        Some(ids) => {
            let (name, value) = cluster_ids_attribute(ids);
            sent.with_attribute(name, value)
        }
    })
}

/// What the client was told, for the source to act on. HBase names a table that does not exist in quotes.
pub(super) fn to_rpc(error: &ClientError, table: Option<&TableName>) -> RpcError {
    if let (true, Some(table)) = (error.is_exception("TableNotFoundException"), table) {
        return RpcError::table_not_found(format!("'{table}'"));
    }
    match error.remote() {
        Some(exception) => RpcError {
            class: exception.class.clone().into(),
            message: exception.message().to_string(),
            do_not_retry: exception.do_not_retry,
            server_overloaded: exception.server_overloaded,
            ..RpcError::new(&exceptions::IO, "")
        },
        None => RpcError::io(format!("replicated edits were not written: {error}")),
    }
}

/// What became of the mutations of regions that are open here.
#[derive(Default)]
pub(crate) struct Local {
    /// Of what was written.
    pub tickets: Vec<WriteTicket>,
    /// Regions that were written to.
    pub written: Vec<Arc<OnlineRegion>>,
    /// Mutations of regions that are elsewhere.
    pub elsewhere: Vec<TableEdits>,
}

/// Writes mutations of the regions that are open here. *Blocking*. After an error a part of them is written. Regions with coprocessors
/// are left to the client, as if they were elsewhere: their observers see replicated edits as any others, as in HBase.
pub(crate) fn write_local(regions: &RegionTable, tables: Vec<TableEdits>) -> Result<Local, RpcError> {
    let mut local = Local::default();
    let online = regions.online();
    for TableEdits { table, mutations } in tables {
        let is_here = |online: &&Arc<OnlineRegion>| {
            *online.region.info().table() == table && !online.region.is_secondary() && !online.is_hosted()
        };
        let here: Vec<&Arc<OnlineRegion>> = online.iter().filter(is_here).collect();
        let mut elsewhere = Vec::new();
        for (at, batch) in by_region(&here, mutations) {
            match at {
                None => elsewhere.extend(batch),
                Some(at) => elsewhere.extend(write_region(here[at], batch, &mut local)?),
            }
        }
        if !elsewhere.is_empty() {
            local.elsewhere.push(TableEdits { table, mutations: elsewhere });
        }
    }
    Ok(local)
}

/// Mutations by the place of their region in `here`, those of one region in order; `None`: in no region that is here.
fn by_region(here: &[&Arc<OnlineRegion>], mutations: Vec<Mutation>) -> Vec<(Option<usize>, Vec<Mutation>)> {
    let mut batches: Vec<(Option<usize>, Vec<Mutation>)> = Vec::new();
    let mut last: Option<usize> = None;
    for mutation in mutations {
        let has_row = |at: usize| here[at].region.info().contains_row(&mutation.row);
        let place = last.filter(|&at| has_row(at)).or_else(|| (0..here.len()).find(|&at| has_row(at)));
        last = place;
        match batches.iter_mut().find(|(at, _)| *at == place) {
            Some((_, batch)) => batch.push(mutation),
            None => batches.push((place, vec![mutation])),
        }
    }
    batches
}

/// Returns what the region does not take any more, because it has moved or was split.
fn write_region(
    online: &Arc<OnlineRegion>,
    batch: Vec<Mutation>,
    local: &mut Local,
) -> Result<Vec<Mutation>, RpcError> {
    let is_elsewhere = |error: &Error| matches!(error.kind(), ErrorKind::Moved | ErrorKind::RowOutOfRange);
    let outcome = match online.region.mutate(batch.clone(), false, Nonce::default(), ReadMode::AnyDisk) {
        Ok(outcome) => outcome,
        Err(error) if is_elsewhere(&error) => return Ok(batch),
        Err(error) => return Err(errors::to_rpc(&error)),
    };
    local.tickets.push(outcome.ticket);
    local.written.push(Arc::clone(online));
    let mut elsewhere = Vec::new();
    for (mutation, result) in batch.into_iter().zip(outcome.results) {
        match result {
            Ok(_) => {}
            Err(error) if is_elsewhere(&error) => elsewhere.push(mutation),
            Err(error) => return Err(errors::to_rpc(&error)),
        }
    }
    Ok(elsewhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_client_keep_their_class() {
        let name = TableName::parse(b"n:t").unwrap();
        let remote = |class: &str, do_not_retry| {
            ClientError::Remote(Box::new(halcyon_client::RemoteException {
                class: format!("org.apache.hadoop.hbase.{class}"),
                trace: format!("org.apache.hadoop.hbase.{class}: why\n\tat X"),
                do_not_retry,
                server_overloaded: false,
            }))
        };
        let missing = to_rpc(&remote("TableNotFoundException", true), Some(&name));
        assert_eq!(
            (missing.class.as_ref(), missing.message.as_str()),
            (exceptions::TABLE_NOT_FOUND.name, "'n:t'")
        );
        let family = to_rpc(&remote("regionserver.NoSuchColumnFamilyException", true), Some(&name));
        assert_eq!(
            (family.class.as_ref(), family.message.as_str()),
            (exceptions::NO_SUCH_COLUMN_FAMILY.name, "why")
        );
        assert!(family.do_not_retry);
        assert!(!to_rpc(&ClientError::Closed, None).do_not_retry);
    }

    #[test]
    fn what_was_applied_is_counted() {
        let sink = Sink::new(&ServerName::new("h", 1, 1), 1_000);
        assert_eq!(
            (sink.load().total_ops_processed, sink.load().time_stamps_of_last_applied_op),
            (Some(0), 1_000)
        );
        sink.note_applied(3, 4_000, 4_500);
        sink.note_failed();
        let expected = SinkStats {
            batches: 1,
            ops: 3,
            hfiles: 0,
            failed_batches: 1,
            age_ms: 500,
            last_applied_ms: 4_000,
        };
        assert_eq!(sink.stats(), expected);
        sink.note_applied(1, 9_000, 4_500); // the source's clock is ahead
        assert_eq!(sink.stats().age_ms, 0);
        sink.note_applied(1, u64::MAX, 4_500);
        assert_eq!(sink.stats().age_ms, 0);
    }
}
