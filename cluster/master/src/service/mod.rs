//! `MasterService`: every method by its name, and what answers it.
//!
//! Reads are answered on the network thread from memory. What writes a file or asks a region server goes to a
//! thread; procedures answer when their request has been checked and recorded.

mod cluster;
mod legacy;
mod namespaces;
mod procedures;
mod regions;
mod snapshots;
mod switches;
mod tables;
mod work;

use std::sync::Arc;

use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Service};
use prost::Message;

use crate::procedure::{Procedure, Submission};
use crate::settings::StopRequest;
use crate::switches::Switch;
use crate::{Master, errors};
use work::Workers;

type Answer<T> = Result<T, RpcError>;
/// A procedure and the nonce (group and number) it was asked for with.
type Request = (Box<dyn Procedure>, (u64, u64));

/// The administrative service. Shared by all connections.
pub struct MasterService {
    master: Arc<Master>,
    workers: Workers,
}

impl MasterService {
    /// Starts two threads for calls that may block.
    pub fn new(master: Arc<Master>) -> halcyon_cell::Result<MasterService> {
        Ok(MasterService { master, workers: Workers::start()? })
    }
}

impl Service for MasterService {
    fn call(&self, call: Call) -> Outcome {
        match self.dispatch(&call) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Ready(Err(error)),
        }
    }
}

impl MasterService {
    fn dispatch(&self, call: &Call) -> Answer<Outcome> {
        let core = &self.master.core;
        let engine = &self.master.engine;
        match call.method.as_str() {
            // Whether there is a master.
            "IsMasterRunning" => ready(call, |_: pb::IsMasterRunningRequest| {
                Ok(pb::IsMasterRunningResponse { is_master_running: true })
            }),
            "IsMasterInMaintenanceMode" => ready(call, |_: pb::IsInMaintenanceModeRequest| {
                Ok(pb::IsInMaintenanceModeResponse { in_maintenance_mode: false })
            }),
            "Shutdown" => ready(call, |_: pb::ShutdownRequest| {
                cluster::stop(core, StopRequest::Cluster).map(|()| pb::ShutdownResponse {})
            }),
            "StopMaster" => ready(call, |_: pb::StopMasterRequest| {
                cluster::stop(core, StopRequest::Master).map(|()| pb::StopMasterResponse {})
            }),

            // Tables.
            "GetTableNames" => ready(call, |request| tables::names(core, &request)),
            "GetTableDescriptors" => ready(call, |request| tables::descriptors(core, &request)),
            "ListTableNamesByState" => ready(call, |request| Ok(tables::names_by_state(core, &request))),
            "ListTableDescriptorsByState" => {
                ready(call, |request| Ok(tables::descriptors_by_state(core, &request)))
            }
            "GetTableState" => ready(call, |request| tables::state(core, &request)),
            "GetSchemaAlterStatus" => ready(call, |request| Ok(tables::alter_status(core, &request))),
            "CreateTable" => self.submit(
                call,
                |request| tables::create(core, request),
                |id| pb::CreateTableResponse { proc_id: Some(id) },
            ),
            "DeleteTable" => {
                self.submit(call, tables::delete, |id| pb::DeleteTableResponse { proc_id: Some(id) })
            }
            "truncateTable" => {
                self.submit(call, tables::truncate, |id| pb::TruncateTableResponse { proc_id: Some(id) })
            }
            "EnableTable" => {
                self.submit(call, tables::enable, |id| pb::EnableTableResponse { proc_id: Some(id) })
            }
            "DisableTable" => {
                self.submit(call, tables::disable, |id| pb::DisableTableResponse { proc_id: Some(id) })
            }
            "ModifyTable" => {
                self.submit(call, tables::modify, |id| pb::ModifyTableResponse { proc_id: Some(id) })
            }
            "AddColumn" => {
                self.submit(call, tables::add_family, |id| pb::AddColumnResponse { proc_id: Some(id) })
            }
            "ModifyColumn" => {
                self.submit(call, tables::modify_family, |id| pb::ModifyColumnResponse { proc_id: Some(id) })
            }
            "DeleteColumn" => {
                self.submit(call, tables::delete_family, |id| pb::DeleteColumnResponse { proc_id: Some(id) })
            }
            "FlushTable" => {
                self.submit(call, tables::flush, |id| pb::FlushTableResponse { proc_id: Some(id) })
            }

            "ModifyTableStoreFileTracker" => self.submit(
                call,
                |request| tables::modify_tracker(core, request),
                |id| pb::ModifyTableStoreFileTrackerResponse { proc_id: Some(id) },
            ),
            "ModifyColumnStoreFileTracker" => self.submit(
                call,
                |request| tables::modify_family_tracker(core, request),
                |id| pb::ModifyColumnStoreFileTrackerResponse { proc_id: Some(id) },
            ),

            // Namespaces.
            "CreateNamespace" => {
                self.submit(call, namespaces::create, |id| pb::CreateNamespaceResponse { proc_id: Some(id) })
            }
            "ModifyNamespace" => {
                self.submit(call, namespaces::modify, |id| pb::ModifyNamespaceResponse { proc_id: Some(id) })
            }
            "DeleteNamespace" => {
                self.submit(call, namespaces::delete, |id| pb::DeleteNamespaceResponse { proc_id: Some(id) })
            }
            "GetNamespaceDescriptor" => ready(call, |request| namespaces::get(core, &request)),
            "ListNamespaces" => ready(call, |_: pb::ListNamespacesRequest| Ok(namespaces::names(core))),
            "ListNamespaceDescriptors" => {
                ready(call, |_: pb::ListNamespaceDescriptorsRequest| Ok(namespaces::descriptors(core)))
            }
            "ListTableNamesByNamespace" => ready(call, |request| namespaces::table_names(core, &request)),
            "ListTableDescriptorsByNamespace" => {
                ready(call, |request| namespaces::table_descriptors(core, &request))
            }

            // Regions.
            "MoveRegion" => self.transit(call, regions::move_region, pb::MoveRegionResponse {}),
            "AssignRegion" => self.transit(call, regions::assign, pb::AssignRegionResponse {}),
            "UnassignRegion" => self.transit(call, regions::unassign, pb::UnassignRegionResponse {}),
            "OfflineRegion" => self.transit(call, regions::offline, pb::OfflineRegionResponse {}),
            "TruncateRegion" => {
                self.submit(call, regions::truncate, |id| pb::TruncateRegionResponse { proc_id: Some(id) })
            }
            "SplitRegion" => {
                self.submit(call, regions::split, |id| pb::SplitTableRegionResponse { proc_id: Some(id) })
            }
            "MergeTableRegions" => self.submit(
                call,
                |request| regions::merge(core, request),
                |id| pb::MergeTableRegionsResponse { proc_id: Some(id) },
            ),

            // Procedures and locks.
            "getProcedureResult" => ready(call, |request| Ok(procedures::result(engine, &request))),
            "AbortProcedure" => ready(call, |request: pb::AbortProcedureRequest| {
                Ok(pb::AbortProcedureResponse { is_procedure_aborted: engine.abort(request.proc_id) })
            }),
            "GetProcedures" => ready(call, |_: pb::GetProceduresRequest| Ok(procedures::list(engine))),
            "GetLocks" => ready(call, |_: pb::GetLocksRequest| Ok(procedures::locks(engine))),
            "ExecProcedure" | "ExecProcedureWithRet" => self.exec_procedure(call),
            "IsProcedureDone" => {
                let engine = engine.clone();
                self.blocking(call, move |core, request| legacy::is_done(core, &engine, request))
            }

            // The cluster as a whole.
            "GetClusterStatus" => self.blocking(call, cluster::status),
            "getLastMajorCompactionTimestamp" => self.blocking(call, cluster::last_major_compaction),
            "getLastMajorCompactionTimestampForRegion" => {
                self.blocking(call, cluster::last_major_compaction_of_region)
            }
            "getSecurityCapabilities" => {
                ready(call, |_: pb::SecurityCapabilitiesRequest| Ok(cluster::security_capabilities()))
            }
            "ListDecommissionedRegionServers" => {
                ready(call, |_: pb::ListDecommissionedRegionServersRequest| {
                    Ok(pb::ListDecommissionedRegionServersResponse::default())
                })
            }
            "ClearDeadServers" => {
                // Those named that could not be cleared; none is dead.
                ready(call, |_: pb::ClearDeadServersRequest| Ok(pb::ClearDeadServersResponse::default()))
            }
            "DecommissionRegionServers" | "RecommissionRegionServer" => {
                Err(errors::unsupported("Decommissioning the only region server is"))
            }
            "FlushMasterStore" => {
                // Every write of the master's own files is durable already.
                ready(call, |_: pb::FlushMasterStoreRequest| Ok(pb::FlushMasterStoreResponse {}))
            }
            "GetLogEntries" => ready(call, |request| cluster::log_entries(&request)),

            // Switches, and the work behind them.
            "SetBalancerRunning" => self.blocking(call, switches::set_balancer),
            "IsBalancerEnabled" => ready(call, |_: pb::IsBalancerEnabledRequest| {
                Ok(pb::IsBalancerEnabledResponse { enabled: core.switches.lock().get(Switch::Balancer) })
            }),
            "Balance" => ready(call, |request| Ok(switches::balance(core, &request))),
            "SetNormalizerRunning" => self.blocking(call, switches::set_normalizer),
            "IsNormalizerEnabled" => ready(call, |_: pb::IsNormalizerEnabledRequest| {
                Ok(pb::IsNormalizerEnabledResponse { enabled: core.switches.lock().get(Switch::Normalizer) })
            }),
            "Normalize" => ready(call, |_: pb::NormalizeRequest| {
                Ok(pb::NormalizeResponse { normalizer_ran: core.switches.lock().get(Switch::Normalizer) })
            }),
            "EnableCatalogJanitor" => self.blocking(call, switches::enable_catalog_janitor),
            "IsCatalogJanitorEnabled" => ready(call, |_: pb::IsCatalogJanitorEnabledRequest| {
                let value = core.switches.lock().get(Switch::CatalogJanitor);
                Ok(pb::IsCatalogJanitorEnabledResponse { value })
            }),
            "RunCatalogScan" => {
                let engine = engine.clone();
                self.blocking(call, move |core, _: pb::RunCatalogScanRequest| {
                    switches::catalog_scan(core, &engine)
                })
            }
            "SetCleanerChoreRunning" => self.blocking(call, switches::set_cleaner_chore),
            "IsCleanerChoreEnabled" => ready(call, |_: pb::IsCleanerChoreEnabledRequest| {
                let value = core.switches.lock().get(Switch::CleanerChore);
                Ok(pb::IsCleanerChoreEnabledResponse { value })
            }),
            "RunCleanerChore" => {
                let master = self.master.clone();
                self.blocking(call, move |_, _: pb::RunCleanerChoreRequest| {
                    let cleaner_chore_ran =
                        master.cleaner.run().map_err(|error| errors::from_error(&error))?;
                    Ok(pb::RunCleanerChoreResponse { cleaner_chore_ran })
                })
            }
            "SetSplitOrMergeEnabled" => self.blocking(call, switches::set_split_or_merge),
            "IsSplitOrMergeEnabled" => ready(call, |request| Ok(switches::is_split_or_merge(core, &request))),
            "SwitchSnapshotCleanup" => self.blocking(call, switches::set_snapshot_cleanup),
            "IsSnapshotCleanupEnabled" => ready(call, |_: pb::IsSnapshotCleanupEnabledRequest| {
                let enabled = core.switches.lock().get(Switch::SnapshotCleanup);
                Ok(pb::IsSnapshotCleanupEnabledResponse { enabled })
            }),
            "SwitchRpcThrottle" => self.blocking(call, switches::set_rpc_throttle),
            "IsRpcThrottleEnabled" => ready(call, |_: pb::IsRpcThrottleEnabledRequest| {
                let rpc_throttle_enabled = core.switches.lock().get(Switch::RpcThrottle);
                Ok(pb::IsRpcThrottleEnabledResponse { rpc_throttle_enabled })
            }),
            "SwitchExceedThrottleQuota" => self.blocking(call, switches::set_exceed_throttle_quota),

            // Snapshots.
            "Snapshot" => self.submit(
                call,
                |request| snapshots::take(call, request),
                |id| pb::SnapshotResponse {
                    expected_timeout: snapshots::EXPECTED_TIMEOUT_MS,
                    proc_id: Some(id as i64),
                },
            ),
            "RestoreSnapshot" => {
                self.submit(call, snapshots::restore, |id| pb::RestoreSnapshotResponse { proc_id: id })
            }
            "GetCompletedSnapshots" => self.blocking(call, snapshots::list),
            "DeleteSnapshot" => self.blocking(call, snapshots::delete),
            "IsSnapshotDone" => {
                let engine = engine.clone();
                self.blocking(call, move |core, request| snapshots::is_done(core, &engine, request))
            }

            // What is always empty.
            "ListReplicationPeers" => ready(call, |_: pb::ListReplicationPeersRequest| {
                Ok(pb::ListReplicationPeersResponse::default())
            }),
            "GetReplicationPeerConfig" => ready(call, |request: pb::GetReplicationPeerConfigRequest| {
                legacy::no_such_peer::<pb::GetReplicationPeerConfigResponse>(&request.peer_id)
            }),
            "GetSpaceQuotaRegionSizes" => ready(call, |_: pb::GetSpaceQuotaRegionSizesRequest| {
                Ok(pb::GetSpaceQuotaRegionSizesResponse::default())
            }),
            "GetQuotaStates" => {
                ready(call, |_: pb::GetQuotaStatesRequest| Ok(pb::GetQuotaStatesResponse::default()))
            }

            other => Err(refused(other)),
        }
    }

    /// A call that asks for a procedure; the answer carries its number.
    fn submit<M, R>(
        &self,
        call: &Call,
        request: impl FnOnce(M) -> Answer<Request>,
        response: impl FnOnce(u64) -> R + Send + 'static,
    ) -> Answer<Outcome>
    where
        M: Message + Default,
        R: Message,
    {
        let (procedure, nonce) = request(decode(call)?)?;
        let receiver = self.master.engine.submit(procedure, submission(call, nonce));
        Ok(Outcome::Later(Box::pin(async move {
            let id = receiver.await.map_err(|_| errors::stopping())??;
            Ok(Reply::message(&response(id)))
        })))
    }

    /// A call that is answered when its procedure has ended.
    fn transit<M, R>(
        &self,
        call: &Call,
        request: impl FnOnce(&crate::state::Core, M) -> Answer<Option<Box<dyn Procedure>>>,
        response: R,
    ) -> Answer<Outcome>
    where
        M: Message + Default,
        R: Message + 'static,
    {
        let Some(procedure) = request(&self.master.core, decode(call)?)? else {
            return Ok(Outcome::Ready(Ok(Reply::message(&response))));
        };
        let done = self.master.engine.run(procedure, submission(call, (0, 0)));
        Ok(Outcome::Later(Box::pin(async move { done.await.map(|_| Reply::message(&response)) })))
    }

    /// A call that may block: runs on a thread of its own kind.
    fn blocking<M, R>(
        &self,
        call: &Call,
        work: impl FnOnce(&crate::state::Core, M) -> Answer<R> + Send + 'static,
    ) -> Answer<Outcome>
    where
        M: Message + Default + Send + 'static,
        R: Message,
    {
        let request: M = decode(call)?;
        let core = self.master.core.clone();
        self.workers.run(move || work(&core, request).map(|response| Reply::message(&response)))
    }

    fn exec_procedure(&self, call: &Call) -> Answer<Outcome> {
        let procedure = legacy::exec(call, decode(call)?)?;
        let receiver = self.master.engine.submit(procedure, submission(call, (0, 0)));
        Ok(Outcome::Later(Box::pin(async move {
            receiver.await.map_err(|_| errors::stopping())??;
            let expected_timeout = Some(legacy::EXPECTED_TIMEOUT_MS);
            Ok(Reply::message(&pb::ExecProcedureResponse { expected_timeout, return_data: None }))
        })))
    }
}

/// Methods that exist in HBase and not here, each named; any other is unknown.
fn refused(method: &str) -> RpcError {
    let what = match method {
        "SetQuota" => "Quotas are",
        "AddReplicationPeer"
        | "RemoveReplicationPeer"
        | "EnableReplicationPeer"
        | "DisableReplicationPeer"
        | "UpdateReplicationPeerConfig"
        | "IsReplicationPeerEnabled"
        | "ReplicationPeerModificationSwitch"
        | "GetReplicationPeerModificationProcedures"
        | "IsReplicationPeerModificationEnabled"
        | "TransitReplicationPeerSyncReplicationState" => "Replication peers are",
        "Grant" | "Revoke" | "GetUserPermissions" | "HasUserPermissions" => "Access control is",
        "ExecMasterService" => {
            return RpcError::unknown_protocol("No registered Master Coprocessor Endpoint found");
        }
        name if name.contains("RSGroup") || matches!(name, "MoveServers" | "RemoveServers") => {
            "Region server groups are"
        }
        name => return RpcError::unknown_method(name),
    };
    errors::unsupported(what)
}

/// Since 2.0 the master refuses some requests by the result of their procedure (`ProcedurePrepareLatch`); the
/// message then reaches the user without the class in front.
const REFUSED_BY_RESULT: [&str; 4] = ["CreateTable", "DeleteTable", "truncateTable", "TruncateRegion"];

fn submission(call: &Call, nonce: (u64, u64)) -> Submission {
    Submission {
        owner: call.connection.user.clone().unwrap_or_default(),
        nonce,
        refused_by_result: call.connection.client_at_least(2, 0)
            && REFUSED_BY_RESULT.contains(&call.method.as_str()),
    }
}

fn decode<M: Message + Default>(call: &Call) -> Answer<M> {
    M::decode(call.param.clone()).map_err(|error| {
        RpcError::do_not_retry(format!("{}: the request cannot be read: {error}", call.method))
    })
}

/// A call that is answered from memory.
fn ready<M, R>(call: &Call, work: impl FnOnce(M) -> Answer<R>) -> Answer<Outcome>
where
    M: Message + Default,
    R: Message,
{
    let response = work(decode(call)?)?;
    Ok(Outcome::Ready(Ok(Reply::message(&response))))
}
