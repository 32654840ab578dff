//! `AdminService`: what administrators' tools call on a region server. One file per group of RPCs.

mod cache;
mod compaction;
mod flush;
mod info;
mod logs;
mod replicate;

use std::sync::Arc;

use halcyon_proto::pb;
use halcyon_proto::pb::slow_log_response_request::LogType;
use halcyon_rpc::{
    AnsweredCalls, Call, CallClass, CallHead, CallParts, Connection, Notable, NotedCall, Outcome, Reply,
    RpcError, Service, Terms,
};
use halcyon_schema::RegionInfo;

use super::{Waits, WorkKind, decode, ready};
use crate::RegionServer;
use crate::errors;
use crate::remote::{Orders, RemoteMaster};

/// `AdminService` on the regions of one server.
pub struct AdminService {
    server: Arc<RegionServer>,
    /// Of a master in another process.
    orders: Option<Arc<Orders>>,
}

impl AdminService {
    /// Of a server whose master is in the same process.
    pub fn new(server: Arc<RegionServer>) -> AdminService {
        AdminService { server, orders: None }
    }

    /// Of a server that takes orders by `ExecuteProcedures`.
    pub fn obeying(server: Arc<RegionServer>, master: &RemoteMaster) -> AdminService {
        AdminService { server, orders: Some(Arc::clone(master.orders())) }
    }

    /// The program that runs the server stops it after this answer.
    fn stop_server(&self, call: &Call) -> Result<Reply, RpcError> {
        if self.orders.is_none() {
            return Err(errors::unsupported(&call.method)); // the master would end as well
        }
        let request: pb::StopServerRequest = decode(&call.method, call.param.clone())?;
        self.server.want_stop(&request.reason);
        Ok(Reply::message(&pb::StopServerResponse {}))
    }

    /// From a tool: the master orders the same by `ExecuteProcedures`.
    fn close_region(&self, call: &Call) -> Result<Reply, RpcError> {
        let orders = self.orders.as_ref().ok_or_else(|| errors::unsupported(&call.method))?;
        let request: pb::CloseRegionRequest = decode(&call.method, call.param.clone())?;
        orders.take_close(&self.server, &request)?;
        Ok(Reply::message(&pb::CloseRegionResponse { closed: true }))
    }

    /// HBase's master asks before it moves a region here, and waits for the answer.
    fn warm_up(&self, call: Call) -> Outcome {
        let Some(orders) = self.orders.clone() else { return ready(Err(errors::unsupported(&call.method))) };
        let request: pb::WarmupRegionRequest = match decode(&call.method, call.param.clone()) {
            Ok(request) => request,
            Err(error) => return ready(Err(error)),
        };
        let region = match RegionInfo::from_pb(&request.region_info) {
            Ok(region) => region,
            Err(error) => return ready(Err(errors::to_rpc(&error))),
        };
        pooled(&self.server, call.into_terms(), move |server| {
            let files_count = orders.warm_up(server, &region).map_err(|error| errors::to_rpc(&error))?;
            tracing::debug!(region = region.encoded_name(), files_count, "warmed up");
            Ok(Reply::message(&pb::WarmupRegionResponse {}))
        })
    }

    fn execute_procedures(&self, call: &Call) -> Result<Reply, RpcError> {
        let orders = self.orders.as_ref().ok_or_else(|| errors::unsupported(&call.method))?;
        let request: pb::ExecuteProceduresRequest = decode(&call.method, call.param.clone())?;
        orders.take(&self.server, &request, call.connection.master_epoch.is_some())?;
        Ok(Reply::message(&pb::ExecuteProceduresResponse {}))
    }
}

impl Service for AdminService {
    fn class(&self, head: &CallHead<'_>) -> CallClass {
        match head.method {
            "ReplicateWALEntry" | "Replay" | "ReplicateToReplica" => CallClass::Replication,
            _ => CallClass::Meta,
        }
    }

    fn takes_cells(&self, method: &str) -> bool {
        method == "ReplicateWALEntry"
    }

    fn answered(&self, calls: &AnsweredCalls<'_>) {
        self.server.note_answered(calls);
    }

    fn notable(&self) -> Notable {
        self.server.online.warn.notable()
    }

    fn noted(&self, call: &NotedCall<'_>) -> CallParts {
        self.server.keep_noted(call)
    }

    fn connection_closed(&self, connection: &Connection) {
        self.server.slow_calls.connection_closed(connection.id);
    }

    fn call(&self, call: Call) -> Outcome {
        let server = &self.server;
        if let Err(error) = server.check_call(&call.connection) {
            return ready(Err(error));
        }
        server.counters.others.add(1);
        match call.method.as_str() {
            "ExecuteProcedures" => ready(self.execute_procedures(&call)),
            "StopServer" => ready(self.stop_server(&call)),
            "CloseRegion" => ready(self.close_region(&call)),
            "WarmupRegion" => self.warm_up(call),
            "FlushRegion" => flush::call(server, call),
            "GetRegionInfo" => info::region_info(server, call),
            "RollWALWriter" => logs::roll(server, call),
            "ReplicateWALEntry" => replicate::call(server, call),
            "ClearRegionBlockCache" => cache::clear(server, call),
            "UpdateConfiguration" => pooled(server, call.into_terms(), update_configuration),
            _ => ready(answer_now(server, &call)),
        }
    }
}

/// What is answered without waiting for anything.
fn answer_now(server: &Arc<RegionServer>, call: &Call) -> Result<Reply, RpcError> {
    match call.method.as_str() {
        "GetOnlineRegion" => Ok(info::online_regions(server)),
        "GetServerInfo" => Ok(info::server_info(server)),
        "GetStoreFile" => info::store_files(server, call),
        "GetRegionLoad" => info::region_load(server, call),
        "GetSpaceQuotaSnapshots" => Ok(Reply::message(&server.quotas.space_snapshots())),
        "CompactRegion" => compaction::compact(server, call),
        "CompactionSwitch" => compaction::switch(server, call),
        "ClearCompactionQueues" => compaction::clear_queues(server, call),
        "GetCachedFilesList" => Ok(cache::cached_files(server)),
        "GetSlowLogResponses" => logs::of_type(server, call, LogType::SlowLog),
        "GetLargeLogResponses" => logs::of_type(server, call, LogType::LargeLog),
        "ClearSlowLogsResponses" => Ok(logs::clear(server)),
        "GetLogEntries" => logs::entries(server, call),
        "Replay" | "ReplicateToReplica" => Err(errors::unsupported(&format!(
            "{}: copies of regions read the files of their primary and take no edits",
            call.method
        ))),
        // HBase's master of today opens regions by `ExecuteProcedures` only.
        "OpenRegion" | "UpdateFavoredNodes" => Err(errors::unsupported(&call.method)),
        method => Err(RpcError::unknown_method(method)),
    }
}

/// An error names what could not be read; the settings in force stay then.
fn update_configuration(server: &RegionServer) -> Result<Reply, RpcError> {
    server
        .update_configuration()
        .map_err(|error| RpcError::do_not_retry(format!("the configuration was not updated: {error}")))?;
    Ok(Reply::message(&pb::UpdateConfigurationResponse::default()))
}

/// Runs what may wait for the disk on the pool.
fn pooled<F>(server: &Arc<RegionServer>, terms: Terms, work: F) -> Outcome
where
    F: FnOnce(&RegionServer) -> Result<Reply, RpcError> + Send + 'static,
{
    let server = server.clone();
    Outcome::Later(Box::pin(async move { on_pool(&server, terms, work).await }))
}

/// As [`pooled`], for a part of a call.
async fn on_pool<T, F>(server: &Arc<RegionServer>, terms: Terms, work: F) -> Result<T, RpcError>
where
    T: Send + 'static,
    F: FnOnce(&RegionServer) -> Result<T, RpcError> + Send + 'static,
{
    // It may take long: the threads of meta are not for this, nor those of writers.
    let waits = Waits { kind: WorkKind::Admin, ..Waits::new(Terms { class: CallClass::Write, ..terms }) };
    let of_work = server.clone();
    server.run_pooled("admin", waits, move || work(&of_work)).await
}
