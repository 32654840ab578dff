//! A small file that is written whole: its bytes go to each DataNode from here (`fan_out.rs`).
//!
//! A pipeline does not know which of its DataNodes is silent. It leaves out one after the other, which takes a second or
//! more for each. Here it is known, so such a DataNode is waited for once, and the next files do without it
//! ([`Avoided`](crate::avoided::Avoided)). Records of procedures, `.regioninfo` and recovered edits are written while a host
//! is lost, and a recovery waits for them.
//!
//! One packet of the file asks for the disks and ends the block. Most often all DataNodes acknowledge it. One that fails or
//! is late is gone on without, if as many are left as a new file would be given beside it. HDFS makes the missing copies.
//!
//! The DataNodes that have the block then give it a new generation stamp, as a pipeline does that recovers. A DataNode that was
//! left out keeps what it has, complete or not, under the old stamp, so HDFS drops that. Under the same stamp it would keep an
//! unfinished copy until it restarts, and take no other one: in a cluster of three DataNodes the block would lack a copy so long.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hdfs_native::HdfsError;
use hdfs_native::file::FileWriter;
use hdfs_native::file::fan_out::{Datanode, FanOut as Created};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::failure::{data_error, kind_of};
use crate::fan_out::{FanOut, PacketEnd};

/// A larger file is written as a pipeline. Each DataNode is sent its own copy, which costs this machine's network three times as much.
pub(crate) const WHOLE_MAX_BYTES: usize = 1 << 20;
/// So long after the others a DataNode is late. A WAL waits no longer for one either.
const LATE_MAX: Duration = Duration::from_millis(500);
/// Between two looks at who is late.
const LOOK: Duration = Duration::from_millis(50);

/// Why a file takes no more bytes.
pub(crate) type Refusal = (io::ErrorKind, String);

/// Ends a file to which nothing was written yet with these bytes, to the disks of its DataNodes with `sync`. Gives the file back
/// if it has to be a pipeline: its bytes are encrypted or erasure coded. After an error it is to be sealed.
pub(crate) fn write(
    cluster: &Arc<Cluster>,
    path: &Path,
    file: FileWriter,
    bytes: &[u8],
    sync: bool,
) -> Result<Option<FileWriter>, Refusal> {
    let replication = file.replication();
    let placements = cluster.avoided().placements_of_file().for_replication(replication);
    let limit = cluster.deadlines().sync;
    match run(cluster, limit, async move { file.fan_out(&placements).await })? {
        Created::Pipelined(file) => Ok(Some(file)),
        Created::Direct(file, connections, failed) => {
            let now = Instant::now();
            failed.iter().for_each(|datanode| cluster.avoided().note_failed(datanode, now));
            if connections.is_empty() {
                let why = "the NameNode gave its block no DataNode".to_string();
                return Err((io::ErrorKind::InvalidData, why));
            }
            let enough = replication.saturating_sub(1).clamp(1, connections.len());
            let mut fan_out = FanOut::new(connections, file.bytes_per_checksum());
            fan_out.put(bytes, PacketEnd { sync, last: true });
            let datanodes = fan_out.datanodes().count();
            wait(cluster, path, &mut fan_out, enough)?;
            let (block_len, limit) = (fan_out.len(), cluster.deadlines().close);
            assert_eq!(block_len, bytes.len() as u64, "the block has the whole file");
            let late = fan_out.late();
            let acknowledged: Vec<Datanode> =
                fan_out.datanodes().filter(|datanode| !late.contains(datanode)).cloned().collect();
            drop(fan_out);
            assert!(
                acknowledged.len() >= enough,
                "a file counts as complete with fewer copies than it needs"
            );
            if acknowledged.len() == datanodes {
                return run(cluster, limit, file.close(block_len)).map(|()| None);
            }
            let closed = async move { file.close_without_others(block_len, &acknowledged).await };
            run(cluster, limit, closed).map(|()| None)
        }
    }
}

fn run<T: Send + 'static>(
    cluster: &Cluster,
    limit: Duration,
    future: impl Future<Output = Result<T, HdfsError>> + Send + 'static,
) -> Result<T, Refusal> {
    match cluster.run(limit, future) {
        Some(Ok(done)) => Ok(done),
        Some(Err(error)) => Err((kind_of(&error), data_error(&error))),
        None => Err((io::ErrorKind::TimedOut, format!("no answer within {limit:?}"))),
    }
}

/// Waits until all DataNodes have the block, or until the others are late and `enough` have it.
fn wait(cluster: &Cluster, path: &Path, fan_out: &mut FanOut, enough: usize) -> Result<(), Refusal> {
    let deadlines = cluster.deadlines();
    let began = Instant::now();
    let mut late_since = None;
    loop {
        match fan_out.wait(LOOK) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(failure) => {
                cluster.avoided().note_failed(&failure.datanode, failure.noticed);
                let why = format!("DataNode {}: {}", failure.datanode.name(), failure.why);
                tracing::warn!("{}: {why}", path.display());
                if fan_out.leave_out_failed() < enough {
                    return Err((io::ErrorKind::BrokenPipe, why));
                }
                continue;
            }
        }
        let late = fan_out.late();
        // While nobody has the block nobody is late.
        let limit = if late.is_empty() {
            late_since = None;
            deadlines.sync
        } else {
            let late_for = late_since.get_or_insert_with(Instant::now).elapsed();
            if late_for >= LATE_MAX && fan_out.datanodes().count() - late.len() >= enough {
                late.iter().for_each(|datanode| cluster.avoided().note_late(datanode));
                tracing::warn!("{} is complete without {}, which is late", path.display(), names(&late));
                return Ok(());
            }
            deadlines.acknowledgement
        };
        if began.elapsed() >= limit {
            let now = Instant::now();
            late.iter().for_each(|datanode| cluster.avoided().note_failed(datanode, now));
            let whose = if late.is_empty() { "all DataNodes".to_string() } else { names(&late) };
            return Err((io::ErrorKind::TimedOut, format!("no answer of {whose} within {limit:?}")));
        }
    }
}

fn names(datanodes: &[Datanode]) -> String {
    datanodes.iter().map(Datanode::name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
