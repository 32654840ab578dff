use std::sync::Arc;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError};

use super::{decode, pooled};
use crate::RegionServer;
use crate::errors;

/// Class of the answer that clients parse slow logs from.
const SLOW_LOG_CLASS: &str = "org.apache.hadoop.hbase.shaded.protobuf.generated.AdminProtos$SlowLogResponses";

/// Starts new log files, and flushes what keeps the oldest ones from going.
pub(super) fn roll(server: &Arc<RegionServer>, call: Call) -> Outcome {
    pooled(server, call.into_terms(), |server| {
        let to_flush = server.logs.roll().map_err(|error| errors::to_rpc(&error))?;
        server.background.flusher.flush_for_wal(&to_flush);
        let region_to_flush = to_flush.into_iter().map(Bytes::from).collect();
        Ok(Reply::message(&pb::RollWalWriterResponse { region_to_flush }))
    })
}

/// Slow calls go to the server's log; none are kept for clients to read.
pub(super) fn entries(call: &Call) -> Result<Reply, RpcError> {
    let request: pb::LogRequest = decode(&call.method, call.param.clone())?;
    if !request.log_class_name.contains("SlowLogResponseRequest") {
        return Err(errors::invalid(format!("Unknown log {}", request.log_class_name)));
    }
    Ok(Reply::message(&pb::LogEntry {
        log_class_name: SLOW_LOG_CLASS.to_string(),
        log_message: Bytes::new(),
    }))
}
