//! Remote procedures of HBase's master, by the names of HBase's classes.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result, SeqId};
use halcyon_contract::{SplitWal, remote_procedures as class};
use halcyon_env::vitals;
use halcyon_proto::orders::{ClaimQueueParameter, ReadPeerParameter};
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;
use halcyon_wal::{Flushed, FlushedOf};
use prost::Message;

use super::orders::{Kind, Orders, RunOrder, Then};
use super::snapshots;
use super::telling::Report;
use crate::RegionServer;
use crate::errors;

/// Before the answer that a replication queue was left to other servers. The master asks its servers in turn, without a
/// pause, until the dead server has no queue.
const CLAIM_PAUSE: Duration = Duration::from_secs(1);

/// HBase's "no sequence id".
const NO_SEQ_NUM: u64 = u64::MAX;

/// The master gives a snapshot up after this one, and repeats the check after any other.
const CORRUPTED_SNAPSHOT: &str = "org.apache.hadoop.hbase.snapshot.CorruptedSnapshotException";

impl Orders {
    /// Runs a remote procedure and tells the master how it ended.
    pub(super) fn run(&self, server: &Arc<RegionServer>, run: &RunOrder) -> Then {
        let result = self.call(server, run);
        if let Err(failure) = &result {
            let error = &failure.error;
            tracing::warn!(class = run.class, procedure = run.order.procedure, %error, "a remote procedure failed");
        }
        let ended = Report::Done(result_of(server, run, result));
        self.tell_end(server, ended, Kind::of_class(&run.class), run.order)
    }

    fn call(&self, server: &Arc<RegionServer>, run: &RunOrder) -> std::result::Result<(), Failure> {
        match &*run.class {
            class::SPLIT_WAL => {
                let wal_path = decode::<pb::SplitWalParameter>(run)?.wal_path;
                let (now_ms, age_max) = (server.env.clock.now_ms(), server.nonces.replayed_age_max());
                let oldest_ms = now_ms.saturating_sub(age_max.as_millis() as i64);
                let nonces_since_ms = u64::try_from(oldest_ms).unwrap_or(0);
                split_wal(server, &wal_path, &|region| Flushed { nonces_since_ms, ..self.flushed_of(region) })
            }
            class::VERIFY_SNAPSHOT => snapshots::verify_region(server, &decode(run)?).map_err(|error| {
                let class = (error.kind() == ErrorKind::Corrupt).then_some(CORRUPTED_SNAPSHOT);
                Failure { error, class }
            }),
            _ => Ok(call(server, run)?),
        }
    }

    /// What the files of a region have already, as its servers have told the master. A master that does not answer costs time: the
    /// edits are put into the region's directory, and left out when they are replayed.
    fn flushed_of(&self, encoded: &[u8]) -> Flushed {
        match self.master.last_flushed(encoded) {
            Ok(response) => flushed_in(&response),
            Err(error) => {
                tracing::warn!(region = %encoded.escape_ascii(), %error, "it is not known what the files of a region have");
                Flushed::default()
            }
        }
    }
}

/// Earlier servers of Halcyon report the highest id of all families as that of the region, which is not true of the others. What
/// they say of each family is true, so the region's counts as far as all of these go.
fn flushed_in(response: &pb::GetLastFlushedSequenceIdResponse) -> Flushed {
    let known = |id: u64| (id != NO_SEQ_NUM).then(|| SeqId::new(id));
    let stores = response.store_last_flushed_sequence_id.iter();
    let families: Vec<_> =
        stores.filter_map(|it| Some((it.family_name.clone(), known(it.sequence_id)?))).collect();
    let region = known(response.last_flushed_sequence_id).unwrap_or_default();
    let lowest = families.iter().map(|(_, seq)| *seq).min();
    let region = lowest.map_or(region, |lowest| region.min(lowest));
    Flushed { region, families, ..Flushed::default() }
}

/// Why a remote procedure failed.
struct Failure {
    error: Error,
    /// Of the exception that the master is told, if the kind of the error does not say it.
    class: Option<&'static str>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, class: None }
    }
}

fn call(server: &Arc<RegionServer>, run: &RunOrder) -> Result<()> {
    match &*run.class {
        class::READ_PEER => {
            let peer_id = decode::<ReadPeerParameter>(run)?.peer_id;
            // It may wait for the end of a call to the peer.
            vitals::outside(|| server.sources.read_peer(&peer_id))
        }
        class::CLAIM_QUEUE => {
            let ClaimQueueParameter { peer_id, queue } = decode(run)?;
            vitals::outside(|| server.claim_queue(&peer_id, &queue))
        }
        class::FLUSH_REGION => flush_region(server, &decode(run)?),
        class::SNAPSHOT_REGION => snapshots::run(server, &decode(run)?),
        class::ROLL_WAL => server.logs.roll().map(|_| ()),
        class::REFRESH_PEER => {
            refresh_peer(&decode(run)?);
            Ok(())
        }
        class::CLAIM_QUEUE_OF_HBASE => {
            leave_queue(server, &decode(run)?);
            Ok(())
        }
        class::RELOAD_QUOTAS => {
            server.quotas.reload_soon();
            Ok(())
        }
        class::SWITCH_RPC_THROTTLE => {
            let parameter: pb::SwitchRpcThrottleRemoteStateData = decode(run)?;
            tracing::info!(is_on = parameter.rpc_throttle_enabled, "throttling was switched");
            server.quotas.reload_soon();
            Ok(())
        }
        _ => Err(Error::invalid(format!(
            "remote procedure {} is not supported by this Halcyon server",
            run.class
        ))),
    }
}

fn decode<M: Message + Default>(run: &RunOrder) -> Result<M> {
    M::decode(run.data.clone())
        .map_err(|error| Error::invalid(format!("the parameter of {} cannot be decoded: {error}", run.class)))
}

fn flush_region(server: &Arc<RegionServer>, parameter: &pb::FlushRegionParameter) -> Result<()> {
    let region = RegionInfo::from_pb(&parameter.region)?;
    server.flush_region(region.encoded_name(), &parameter.column_family).map(|_| ())
}

/// Regions with something to send to a peer are refused here (`refused.rs`), so the server has no part in replication.
/// HBase's master repeats the procedure until every server has taken it.
fn refresh_peer(parameter: &pb::RefreshPeerParameter) {
    tracing::info!(
        peer = parameter.peer_id,
        change = parameter.r#type().as_str_name(),
        "a replication peer was changed; regions of this server have nothing to send"
    );
}

/// Leaves the replication queue of a dead server to servers of HBase. The master lists the queues again afterwards, and
/// asks other servers for what is left; after an error it would ask this one forever.
fn leave_queue(server: &RegionServer, parameter: &pb::ClaimReplicationQueueRemoteParameter) {
    tracing::warn!(
        queue = parameter.queue,
        "a replication queue of a dead server is left to servers of HBase, as this one sends nothing to peers"
    );
    server.pause(CLAIM_PAUSE);
}

/// Splits one WAL of a server that is gone. The master removes it afterwards.
///
/// A WAL that this server does not find is no success: either another server has split it, or the WALs of the master are elsewhere.
fn split_wal(
    server: &Arc<RegionServer>,
    wal_path: &str,
    flushed_of: &FlushedOf<'_>,
) -> std::result::Result<(), Failure> {
    let path = wal_below(server.resources.wals().1, wal_path)?;
    match server.split_wal_at(&path, flushed_of)? {
        SplitWal::Done => Ok(()),
        SplitWal::NotFound => {
            let error = Error::new(ErrorKind::Io, format!("there is no WAL {}", path.display()));
            Err(Failure { error, class: Some(class::NO_SUCH_WAL) })
        }
    }
}

/// The WAL that a master names, if that is one of a server of the cluster. HBase's master gives its whole address, such as
/// `hdfs://namenode:8020/hbase/WALs/..`.
fn wal_below(root: &Path, wal_path: &str) -> Result<PathBuf> {
    let path = wal_path.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
    let below_root = path.and_then(|path| Path::new(path).strip_prefix(root).ok());
    let relative = below_root.unwrap_or(Path::new(wal_path));
    let parts: Vec<_> = relative.components().collect();
    let is_plain = parts.iter().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain || parts.len() != 3 || !relative.starts_with("WALs") {
        return Err(Error::invalid(format!("{wal_path:?} is no WAL of a server of this cluster")));
    }
    Ok(root.join(relative))
}

fn result_of(
    server: &RegionServer,
    run: &RunOrder,
    result: std::result::Result<(), Failure>,
) -> pb::RemoteProcedureResult {
    use pb::remote_procedure_result::Status;
    let error = result.err().map(|failure| {
        let exception = errors::to_rpc(&failure.error);
        let class = failure.class.unwrap_or(&exception.class);
        let generic = pb::GenericExceptionMessage {
            class_name: Some(class.to_string()),
            message: Some(exception.message.clone()),
            ..Default::default()
        };
        pb::ForeignExceptionMessage {
            source: Some(server.server_name().to_string()),
            generic_exception: Some(generic),
        }
    });
    pb::RemoteProcedureResult {
        proc_id: u64::try_from(run.order.procedure).unwrap_or_default(),
        status: if error.is_none() { Status::Success } else { Status::Error } as i32,
        error,
        initiating_master_active_time: run.order.master_active_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flushed(region: u64, stores: &[(&str, u64)]) -> (u64, Vec<u64>) {
        let of_store = |&(family, sequence_id): &(&str, u64)| pb::StoreSequenceId {
            family_name: bytes::Bytes::copy_from_slice(family.as_bytes()),
            sequence_id,
        };
        let known = flushed_in(&pb::GetLastFlushedSequenceIdResponse {
            last_flushed_sequence_id: region,
            store_last_flushed_sequence_id: stores.iter().map(of_store).collect(),
        });
        (known.region.get(), known.families.iter().map(|(_, seq)| seq.get()).collect())
    }

    /// A server of before had flushed `f` up to 900, and `g` only up to 100: edits of `g` up to 900 were left out.
    #[test]
    fn no_family_counts_as_flushed_for_another() {
        assert_eq!(flushed(900, &[("f", 900), ("g", 100)]), (100, vec![900, 100]));
        assert_eq!(flushed(100, &[("f", 900), ("g", 100)]), (100, vec![900, 100]));
        assert_eq!(flushed(50, &[("f", 900), ("g", 100)]), (50, vec![900, 100]));
        assert_eq!(flushed(900, &[("f", 900), ("g", 0)]), (0, vec![900, 0]));
        assert_eq!(flushed(900, &[]), (900, vec![]), "only that it was closed is known");
        assert_eq!(flushed(NO_SEQ_NUM, &[("f", NO_SEQ_NUM)]), (0, vec![]));
    }

    #[test]
    fn only_wals_of_servers_are_split() {
        let root = Path::new("/hbase");
        let wal = "WALs/h,16020,1-splitting/h%2C16020%2C1.17";
        assert_eq!(wal_below(root, wal).unwrap(), root.join(wal));
        for address in ["hdfs://127.0.0.1:8020", "hdfs://nameservice"] {
            assert_eq!(wal_below(root, &format!("{address}/hbase/{wal}")).unwrap(), root.join(wal));
        }
        for path in [
            "hdfs://n/other/WALs/a/b",
            "hdfs://n",
            "://",
            "hdfs://n/hbase/../x/WALs/a/b",
            "hdfs://n/hbase/WALs/../a",
        ] {
            assert!(wal_below(root, path).is_err(), "{path}");
        }
        for path in ["", "/hbase/WALs/a/b", "WALs/../data/b", "WALs/a", "data/default/t", "WALs/a/b/c"] {
            assert!(wal_below(root, path).is_err(), "{path}");
        }
    }
}
