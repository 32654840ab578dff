use std::sync::Arc;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_proto::pb::slow_log_response_request::{FilterByOperator, LogType};
use halcyon_rpc::{Call, Outcome, Reply, RpcError};

use prost::Message;

use super::{decode, pooled};
use crate::RegionServer;
use crate::calls::asked::name_text;
use crate::calls::slow_calls::SlowCall;
use crate::errors;
use crate::service::slow_log::payload;

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

/// Slow or large calls that are kept, if clients may read them.
pub(super) fn entries(server: &RegionServer, call: &Call) -> Result<Reply, RpcError> {
    let request: pb::LogRequest = decode(&call.method, call.param.clone())?;
    if !request.log_class_name.contains("SlowLogResponseRequest") {
        return Err(errors::invalid(format!("Unknown log {}", request.log_class_name)));
    }
    let wanted: pb::SlowLogResponseRequest = decode(&call.method, request.log_message)?;
    let found = pb::SlowLogResponses { slow_log_payloads: wanted_calls(server, &wanted) };
    Ok(Reply::message(&pb::LogEntry {
        log_class_name: SLOW_LOG_CLASS.to_string(),
        log_message: found.encode_to_vec().into(),
    }))
}

/// `GetSlowLogResponses` and `GetLargeLogResponses` of older clients: the method says which.
pub(super) fn of_type(server: &RegionServer, call: &Call, log_type: LogType) -> Result<Reply, RpcError> {
    let mut wanted: pb::SlowLogResponseRequest = decode(&call.method, call.param.clone())?;
    wanted.log_type = Some(log_type as i32);
    Ok(Reply::message(&pb::SlowLogResponses { slow_log_payloads: wanted_calls(server, &wanted) }))
}

/// Without `hbase.regionserver.slowlog.buffer.enabled` there is nothing to clear for clients.
pub(super) fn clear(server: &RegionServer) -> Reply {
    let is_cleaned = server.settings.slow_calls_for_clients;
    if is_cleaned {
        server.slow_calls.clear();
    }
    Reply::message(&pb::ClearSlowLogResponses { is_cleaned })
}

fn wanted_calls(server: &RegionServer, wanted: &pb::SlowLogResponseRequest) -> Vec<pb::SlowLogPayload> {
    if !server.settings.slow_calls_for_clients {
        return Vec::new();
    }
    let limit = usize::try_from(wanted.limit()).unwrap_or(usize::MAX);
    let calls = server.slow_calls.kept().into_iter().filter(|call| is_wanted(call, wanted));
    calls.take(limit).map(|call| payload(&call)).collect()
}

/// As HBase's `LogHandlerUtils`: all filters that are set hold, or one of them does. Without a filter all are wanted.
fn is_wanted(call: &SlowCall, wanted: &pb::SlowLogResponseRequest) -> bool {
    let is_of_type = match wanted.log_type() {
        LogType::SlowLog => call.is_slow,
        LogType::LargeLog => call.is_large,
    };
    if !is_of_type {
        return false;
    }
    let region = name_text(&call.region);
    let table = region.split(',').next().unwrap_or_default();
    let host = call.client.rsplit_once(':').map_or(&*call.client, |(host, _)| host);
    let filters = [
        (wanted.region_name(), region == wanted.region_name()),
        (wanted.table_name(), !table.is_empty() && table == wanted.table_name()),
        (wanted.client_address(), [&*call.client, host].contains(&wanted.client_address())),
        (wanted.user_name(), call.user == wanted.user_name()),
    ];
    let mut set = filters.iter().filter(|(filter, _)| !filter.is_empty()).map(|(_, holds)| *holds).peekable();
    match wanted.filter_by_operator() {
        _ if set.peek().is_none() => true,
        FilterByOperator::And => set.all(|holds| holds),
        FilterByOperator::Or => set.any(|holds| holds),
    }
}
