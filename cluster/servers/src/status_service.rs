//! `RegionServerStatusService`: what region servers tell the master.
//!
//! A master that may not act answers nobody. Answers are from memory, except for two calls that wait: the report of an opening waits for
//! its announcement, and a server that starts without a name for its host waits for the name service.

use std::sync::{Arc, Weak};

use halcyon_contract::{Assignments, RegionServers};
use halcyon_proto::pb;
use halcyon_proto::pb::region_state_transition::TransitionCode;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Service, exceptions};
use halcyon_schema::{RegionInfo, ServerName};
use prost::Message;

use crate::Servers;
use crate::admission::checked_name;
use crate::errors;
use crate::flushed::NO_SEQ_NUM;
use crate::permitted_fs::LEASE_IS_OVER;
use crate::transitions;

/// The service.
pub struct StatusService {
    servers: Arc<Servers>,
    master: Weak<dyn Assignments>,
}

type Answered = std::result::Result<Reply, RpcError>;

impl StatusService {
    pub(crate) fn new(servers: Arc<Servers>, master: Weak<dyn Assignments>) -> StatusService {
        StatusService { servers, master }
    }

    fn answer(&self, call: &Call) -> std::result::Result<Outcome, RpcError> {
        let ready = |answer: Answered| Ok(Outcome::Ready(answer));
        // What it knows of servers may be from before another one became active: it would tell a server that lives that it is dead.
        if !self.servers.common.settings.permit.is_given() {
            return Err(RpcError::new(&exceptions::SERVER_NOT_RUNNING_YET, LEASE_IS_OVER));
        }
        match call.method.as_str() {
            "RegionServerStartup" => self.start_up(call, decode(call)?),
            "ReportRegionStateTransition" => self.transitions(decode(call)?),
            "RegionServerReport" => ready(self.report(call, decode(call)?)),
            "ReportProcedureDone" => ready(self.procedures_done(&decode(call)?)),
            "GetLastFlushedSequenceId" => ready(self.last_flushed(&decode(call)?)),
            "ReportRSFatalError" => ready(fatal_error(&decode(call)?)),
            "GetLiveRegionServers" => ready(self.live_servers(&decode(call)?)),
            "ReportRegionSpaceUse" => ready(self.region_sizes(&decode(call)?)),
            // Of files that went to the archive, for the sizes of snapshots, which are not counted.
            "ReportFileArchival" => ready(Ok(Reply::message(&pb::FileArchiveNotificationResponse {}))),
            method => Err(RpcError::unknown_method(method)),
        }
    }

    /// A region that cannot be read is left out: the next report comes soon.
    fn region_sizes(&self, request: &pb::RegionSpaceUseReportRequest) -> Answered {
        let of_region = |space: &pb::RegionSpaceUse| {
            Some((RegionInfo::from_pb(space.region_info.as_ref()?).ok()?, space.region_size()))
        };
        self.servers.note_sizes(request.space_use.iter().filter_map(of_region));
        Ok(Reply::message(&pb::RegionSpaceUseReportResponse {}))
    }

    fn start_up(
        &self,
        call: &Call,
        request: pb::RegionServerStartupRequest,
    ) -> std::result::Result<Outcome, RpcError> {
        let servers = Arc::clone(&self.servers);
        if let Some(host) = request.use_this_hostname_instead.clone().filter(|host| !host.is_empty()) {
            return Ok(Outcome::Ready(servers.start_up(host, &request).map(|reply| Reply::message(&reply))));
        }
        let connection = Arc::clone(&call.connection);
        Ok(Outcome::Later(Box::pin(async move {
            let host = servers.host_of(&connection.peer).await?;
            servers.start_up(host, &request).map(|reply| Reply::message(&reply))
        })))
    }

    fn transitions(
        &self,
        request: pb::ReportRegionStateTransitionRequest,
    ) -> std::result::Result<Outcome, RpcError> {
        let server = checked_name(&request.server)?;
        let remote = self.servers.admit(&server, "REPORT")?;
        self.note_ids(&request.transition);
        let master = self.master.clone();
        Ok(Outcome::Later(Box::pin(async move {
            let error_message = transitions::take_all(&remote, &server, &master, request.transition).await?;
            Ok(Reply::message(&pb::ReportRegionStateTransitionResponse { error_message }))
        })))
    }

    /// A server of Halcyon says of a region that it has closed up to where its edits are in files: up to the last one. The region may stay
    /// closed, so that no report says it. Of one that it has opened, servers say which ids come next: no write is taken before the answer.
    fn note_ids(&self, transitions: &[pb::RegionStateTransition]) {
        let (now_ms, flushed) = (self.servers.common.clock.now_ms(), &self.servers.flushed);
        for transition in transitions {
            let region = transition.region_info.first().and_then(|region| RegionInfo::from_pb(region).ok());
            let (Some(region), Some(id)) = (region, transition.open_seq_num) else { continue };
            match TransitionCode::try_from(transition.transition_code) {
                Ok(TransitionCode::Closed) => flushed.note_closed(region.encoded_name(), id, now_ms),
                Ok(TransitionCode::Opened) => flushed.note_opened(region.encoded_name(), id),
                _ => {}
            }
        }
    }

    fn report(&self, call: &Call, request: pb::RegionServerReportRequest) -> Answered {
        let remote = self.servers.admit(&checked_name(&request.server)?, "REPORT")?;
        let load = request.load.unwrap_or_default();
        self.servers.flushed.take(&load, self.servers.common.clock.now_ms());
        remote.keep_report(Arc::new(load), call.connection.client_version);
        Ok(Reply::message(&pb::RegionServerReportResponse {}))
    }

    /// The message names no server: the number says whose it is. An unknown number is of an earlier master, or repeated.
    fn procedures_done(&self, request: &pb::ReportProcedureDoneRequest) -> Answered {
        use pb::remote_procedure_result::Status;
        let remotes = self.servers.remotes();
        for result in &request.result {
            let Ok(procedure) = i64::try_from(result.proc_id) else { continue };
            let is_known = remotes.iter().any(|remote| {
                remote.waiters.done(procedure, || match result.status() {
                    Status::Success => Ok(()),
                    Status::Error => {
                        Err(errors::of_procedure(remote.waiters.server(), result.error.as_ref()))
                    }
                })
            });
            if !is_known {
                tracing::info!(procedure, "the end of a procedure that is not waited for");
            }
        }
        Ok(Reply::message(&pb::ReportProcedureDoneResponse {}))
    }

    fn last_flushed(&self, request: &pb::GetLastFlushedSequenceIdRequest) -> Answered {
        let ids = std::str::from_utf8(&request.region_name).ok().map(|name| self.servers.last_flushed(name));
        let ids = ids.unwrap_or_default();
        let store = |(family_name, sequence_id)| pb::StoreSequenceId { family_name, sequence_id };
        Ok(Reply::message(&pb::GetLastFlushedSequenceIdResponse {
            last_flushed_sequence_id: ids.region.unwrap_or(NO_SEQ_NUM),
            store_last_flushed_sequence_id: ids.stores.into_iter().map(store).collect(),
        }))
    }

    /// Some of the servers, from any one on, so that those who ask spread.
    fn live_servers(&self, request: &pb::GetLiveRegionServersRequest) -> Answered {
        let mut servers = self.servers.online();
        let total = u32::try_from(servers.len()).unwrap_or(u32::MAX);
        if !servers.is_empty() {
            let first = u64::from_ne_bytes(halcyon_env::random_bytes()) % servers.len() as u64;
            servers.rotate_left(first as usize);
        }
        servers.truncate(request.count as usize);
        let server = servers.iter().map(ServerName::to_pb).collect();
        Ok(Reply::message(&pb::GetLiveRegionServersResponse { server, total }))
    }
}

impl Service for StatusService {
    fn call(&self, call: Call) -> Outcome {
        self.answer(&call).unwrap_or_else(|error| Outcome::Ready(Err(error)))
    }
}

fn fatal_error(request: &pb::ReportRsFatalErrorRequest) -> Answered {
    let server = checked_name(&request.server)?;
    tracing::error!(%server, error = errors::shortened(&request.error_message), "a region server gives up");
    Ok(Reply::message(&pb::ReportRsFatalErrorResponse {}))
}

fn decode<M: Message + Default>(call: &Call) -> std::result::Result<M, RpcError> {
    M::decode(call.param.clone())
        .map_err(|error| RpcError::do_not_retry(format!("{} cannot be decoded: {error}", call.method)))
}
