//! Every method of `MasterService` by its name, with what answers it.

use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome};
use halcyon_schema::ServerName;

use super::{
    Answer, MasterService, cluster, legacy, namespaces, peers, procedures, ready, regions, snapshots,
    switches, tables,
};
use crate::errors;
use crate::procedure::PeerChange;
use crate::quotas;
use crate::settings::StopRequest;
use crate::switches::Switch;

pub(super) type Handler = fn(&MasterService, &Call) -> Answer<Outcome>;

/// What answers a method; `None` if it is not one of those here.
pub(super) fn find(method: &str) -> Option<Handler> {
    METHODS.iter().find(|(name, _)| *name == method).map(|(_, handler)| *handler)
}

const METHODS: &[(&str, Handler)] = &[
    // Whether there is a master.
    ("IsMasterRunning", |_, call| {
        ready(call, |_: pb::IsMasterRunningRequest| {
            Ok(pb::IsMasterRunningResponse { is_master_running: true })
        })
    }),
    ("IsMasterInMaintenanceMode", |_, call| {
        ready(call, |_: pb::IsInMaintenanceModeRequest| {
            Ok(pb::IsInMaintenanceModeResponse { in_maintenance_mode: false })
        })
    }),
    ("Shutdown", |service, call| {
        ready(call, |_: pb::ShutdownRequest| {
            cluster::stop(service.core(), StopRequest::Cluster).map(|()| pb::ShutdownResponse {})
        })
    }),
    ("StopMaster", |service, call| {
        ready(call, |_: pb::StopMasterRequest| {
            cluster::stop(service.core(), StopRequest::Master).map(|()| pb::StopMasterResponse {})
        })
    }),
    // Tables.
    ("GetTableNames", |service, call| ready(call, |request| tables::names(service.core(), &request))),
    ("GetTableDescriptors", |service, call| {
        ready(call, |request| tables::descriptors(service.core(), &request))
    }),
    ("ListTableNamesByState", |service, call| {
        ready(call, |request| tables::names_by_state(service.core(), &request))
    }),
    ("ListTableDescriptorsByState", |service, call| {
        ready(call, |request| tables::descriptors_by_state(service.core(), &request))
    }),
    ("GetTableState", |service, call| ready(call, |request| tables::state(service.core(), &request))),
    ("GetSchemaAlterStatus", |service, call| {
        ready(call, |request| Ok(tables::alter_status(service.core(), &request)))
    }),
    ("CreateTable", |service, call| {
        let create = |request| tables::create(service.core(), request);
        service.submit(call, create, |id| pb::CreateTableResponse { proc_id: Some(id) })
    }),
    ("DeleteTable", |service, call| {
        service.submit(call, tables::delete, |id| pb::DeleteTableResponse { proc_id: Some(id) })
    }),
    ("truncateTable", |service, call| {
        service.submit(call, tables::truncate, |id| pb::TruncateTableResponse { proc_id: Some(id) })
    }),
    ("EnableTable", |service, call| {
        service.submit(call, tables::enable, |id| pb::EnableTableResponse { proc_id: Some(id) })
    }),
    ("DisableTable", |service, call| {
        service.submit(call, tables::disable, |id| pb::DisableTableResponse { proc_id: Some(id) })
    }),
    ("ModifyTable", |service, call| {
        service.submit(call, tables::modify, |id| pb::ModifyTableResponse { proc_id: Some(id) })
    }),
    ("AddColumn", |service, call| {
        service.submit(call, tables::add_family, |id| pb::AddColumnResponse { proc_id: Some(id) })
    }),
    ("ModifyColumn", |service, call| {
        service.submit(call, tables::modify_family, |id| pb::ModifyColumnResponse { proc_id: Some(id) })
    }),
    ("DeleteColumn", |service, call| {
        service.submit(call, tables::delete_family, |id| pb::DeleteColumnResponse { proc_id: Some(id) })
    }),
    ("FlushTable", |service, call| {
        service.submit(call, tables::flush, |id| pb::FlushTableResponse { proc_id: Some(id) })
    }),
    ("ModifyTableStoreFileTracker", |service, call| {
        service.submit(call, tables::modify_tracker, |id| pb::ModifyTableStoreFileTrackerResponse {
            proc_id: Some(id),
        })
    }),
    ("ModifyColumnStoreFileTracker", |service, call| {
        service.submit(call, tables::modify_family_tracker, |id| pb::ModifyColumnStoreFileTrackerResponse {
            proc_id: Some(id),
        })
    }),
    // Namespaces.
    ("CreateNamespace", |service, call| {
        service.submit(call, namespaces::create, |id| pb::CreateNamespaceResponse { proc_id: Some(id) })
    }),
    ("ModifyNamespace", |service, call| {
        service.submit(call, namespaces::modify, |id| pb::ModifyNamespaceResponse { proc_id: Some(id) })
    }),
    ("DeleteNamespace", |service, call| {
        service.submit(call, namespaces::delete, |id| pb::DeleteNamespaceResponse { proc_id: Some(id) })
    }),
    ("GetNamespaceDescriptor", |service, call| {
        ready(call, |request| namespaces::get(service.core(), &request))
    }),
    ("ListNamespaces", |service, call| {
        ready(call, |_: pb::ListNamespacesRequest| namespaces::names(service.core()))
    }),
    ("ListNamespaceDescriptors", |service, call| {
        ready(call, |_: pb::ListNamespaceDescriptorsRequest| namespaces::descriptors(service.core()))
    }),
    ("ListTableNamesByNamespace", |service, call| {
        ready(call, |request| namespaces::table_names(service.core(), &request))
    }),
    ("ListTableDescriptorsByNamespace", |service, call| {
        ready(call, |request| namespaces::table_descriptors(service.core(), &request))
    }),
    // Regions.
    ("MoveRegion", |service, call| service.transit(call, regions::move_region, pb::MoveRegionResponse {})),
    ("AssignRegion", |service, call| service.transit(call, regions::assign, pb::AssignRegionResponse {})),
    ("UnassignRegion", |service, call| {
        service.transit(call, regions::unassign, pb::UnassignRegionResponse {})
    }),
    ("OfflineRegion", |service, call| service.transit(call, regions::offline, pb::OfflineRegionResponse {})),
    ("TruncateRegion", |service, call| {
        service.submit(call, regions::truncate, |id| pb::TruncateRegionResponse { proc_id: Some(id) })
    }),
    ("SplitRegion", |service, call| {
        service.submit(call, regions::split, |id| pb::SplitTableRegionResponse { proc_id: Some(id) })
    }),
    ("MergeTableRegions", |service, call| {
        let merge = |request| regions::merge(service.core(), request);
        service.submit(call, merge, |id| pb::MergeTableRegionsResponse { proc_id: Some(id) })
    }),
    // Procedures and locks.
    ("getProcedureResult", |service, call| {
        ready(call, |request| Ok(procedures::result(&service.master.engine, &request)))
    }),
    ("AbortProcedure", |service, call| {
        ready(call, |request| Ok(procedures::abort(&service.master.engine, &request)))
    }),
    ("GetProcedures", |service, call| {
        ready(call, |_: pb::GetProceduresRequest| Ok(procedures::list(&service.master.engine)))
    }),
    ("GetLocks", |service, call| {
        ready(call, |_: pb::GetLocksRequest| Ok(procedures::locks(&service.master.engine)))
    }),
    ("ExecProcedure", MasterService::exec_procedure),
    ("ExecProcedureWithRet", MasterService::exec_procedure),
    ("IsProcedureDone", |service, call| {
        let engine = service.master.engine.clone();
        service.blocking(call, move |core, request| legacy::is_done(core, &engine, request))
    }),
    // The cluster as a whole.
    ("GetClusterStatus", |service, call| {
        let engine = service.master.engine.clone();
        service.blocking(call, move |core, request| cluster::status(core, &engine, request))
    }),
    ("getLastMajorCompactionTimestamp", |service, call| {
        service.blocking(call, cluster::last_major_compaction)
    }),
    ("getLastMajorCompactionTimestampForRegion", |service, call| {
        service.blocking(call, cluster::last_major_compaction_of_region)
    }),
    ("getSecurityCapabilities", |_, call| {
        ready(call, |_: pb::SecurityCapabilitiesRequest| Ok(cluster::security_capabilities()))
    }),
    ("ListDecommissionedRegionServers", |service, call| {
        ready(call, |_: pb::ListDecommissionedRegionServersRequest| {
            let draining = service.core().cluster.servers.draining();
            let server_name = draining.iter().map(ServerName::to_pb).collect();
            Ok(pb::ListDecommissionedRegionServersResponse { server_name })
        })
    }),
    ("ClearDeadServers", |service, call| {
        let master = service.master.clone();
        service.blocking(call, move |_, request| cluster::clear_dead_servers(&master, &request))
    }),
    ("DecommissionRegionServers", |service, call| {
        let master = service.master.clone();
        service.blocking(call, move |_, request| regions::decommission(&master, &request))
    }),
    ("RecommissionRegionServer", |service, call| {
        let master = service.master.clone();
        service.blocking(call, move |_, request| regions::recommission(&master, &request))
    }),
    // Every write of the master's own files is durable already.
    ("FlushMasterStore", |_, call| {
        ready(call, |_: pb::FlushMasterStoreRequest| Ok(pb::FlushMasterStoreResponse {}))
    }),
    ("GetLogEntries", |service, call| ready(call, |request| cluster::log_entries(service.core(), &request))),
    // Switches, and the work behind them.
    ("SetBalancerRunning", |service, call| service.blocking(call, switches::set_balancer)),
    ("IsBalancerEnabled", |service, call| {
        ready(call, |_: pb::IsBalancerEnabledRequest| {
            Ok(pb::IsBalancerEnabledResponse { enabled: service.is_on(Switch::Balancer) })
        })
    }),
    ("Balance", |service, call| ready(call, |request| Ok(switches::balance(&service.master, &request)))),
    ("SetNormalizerRunning", |service, call| service.blocking(call, switches::set_normalizer)),
    ("IsNormalizerEnabled", |service, call| {
        ready(call, |_: pb::IsNormalizerEnabledRequest| {
            Ok(pb::IsNormalizerEnabledResponse { enabled: service.is_on(Switch::Normalizer) })
        })
    }),
    ("Normalize", |service, call| ready(call, |request| switches::normalize(&service.master, &request))),
    ("EnableCatalogJanitor", |service, call| service.blocking(call, switches::enable_catalog_janitor)),
    ("IsCatalogJanitorEnabled", |service, call| {
        ready(call, |_: pb::IsCatalogJanitorEnabledRequest| {
            Ok(pb::IsCatalogJanitorEnabledResponse { value: service.is_on(Switch::CatalogJanitor) })
        })
    }),
    ("RunCatalogScan", |service, call| {
        let engine = service.master.engine.clone();
        service
            .blocking(call, move |core, _: pb::RunCatalogScanRequest| switches::catalog_scan(core, &engine))
    }),
    ("SetCleanerChoreRunning", |service, call| service.blocking(call, switches::set_cleaner_chore)),
    ("IsCleanerChoreEnabled", |service, call| {
        ready(call, |_: pb::IsCleanerChoreEnabledRequest| {
            Ok(pb::IsCleanerChoreEnabledResponse { value: service.is_on(Switch::CleanerChore) })
        })
    }),
    ("RunCleanerChore", |service, call| {
        let master = service.master.clone();
        service.blocking(call, move |_, _: pb::RunCleanerChoreRequest| {
            let cleaner_chore_ran = master.cleaner.run().map_err(|error| errors::from_error(&error))?;
            Ok(pb::RunCleanerChoreResponse { cleaner_chore_ran })
        })
    }),
    ("SetSplitOrMergeEnabled", |service, call| service.blocking(call, switches::set_split_or_merge)),
    ("IsSplitOrMergeEnabled", |service, call| {
        ready(call, |request| Ok(switches::is_split_or_merge(service.core(), &request)))
    }),
    ("SwitchSnapshotCleanup", |service, call| service.blocking(call, switches::set_snapshot_cleanup)),
    ("IsSnapshotCleanupEnabled", |service, call| {
        ready(call, |_: pb::IsSnapshotCleanupEnabledRequest| {
            Ok(pb::IsSnapshotCleanupEnabledResponse { enabled: service.is_on(Switch::SnapshotCleanup) })
        })
    }),
    // Quotas.
    ("SetQuota", |service, call| {
        service.blocking(call, |core, request: pb::SetQuotaRequest| quotas::set(core, &request))
    }),
    ("SwitchRpcThrottle", |service, call| {
        service.blocking(call, |core, request: pb::SwitchRpcThrottleRequest| {
            let previous_rpc_throttle_enabled = quotas::switch_throttle(core, request.rpc_throttle_enabled)?;
            Ok(pb::SwitchRpcThrottleResponse { previous_rpc_throttle_enabled })
        })
    }),
    ("IsRpcThrottleEnabled", |service, call| {
        ready(call, |_: pb::IsRpcThrottleEnabledRequest| {
            Ok(pb::IsRpcThrottleEnabledResponse {
                rpc_throttle_enabled: quotas::is_throttling(service.core()),
            })
        })
    }),
    ("SwitchExceedThrottleQuota", |service, call| {
        service.blocking(call, |core, request: pb::SwitchExceedThrottleQuotaRequest| {
            let was_on = quotas::switch_exceeding(core, request.exceed_throttle_quota_enabled)?;
            Ok(pb::SwitchExceedThrottleQuotaResponse { previous_exceed_throttle_quota_enabled: was_on })
        })
    }),
    ("GetSpaceQuotaRegionSizes", |service, call| {
        ready(call, |_: pb::GetSpaceQuotaRegionSizesRequest| Ok(quotas::table_sizes(service.core())))
    }),
    ("GetQuotaStates", |service, call| {
        ready(call, |_: pb::GetQuotaStatesRequest| Ok(quotas::states(service.core())))
    }),
    // Snapshots.
    ("Snapshot", |service, call| {
        let timeout = service.core().settings.snapshot_timeout;
        let taken = move |id| snapshots::taken(id, timeout);
        service.submit(call, |request| snapshots::take(call, request), taken)
    }),
    ("RestoreSnapshot", |service, call| {
        let restore = |request| snapshots::restore(service.core(), request);
        service.submit(call, restore, |id| pb::RestoreSnapshotResponse { proc_id: id })
    }),
    ("GetCompletedSnapshots", |service, call| service.blocking(call, snapshots::list)),
    ("DeleteSnapshot", |service, call| {
        service.transit(call, snapshots::delete, pb::DeleteSnapshotResponse {})
    }),
    ("IsSnapshotDone", |service, call| {
        let engine = service.master.engine.clone();
        service.blocking(call, move |core, request| snapshots::is_done(core, &engine, request))
    }),
    // Replication.
    ("AddReplicationPeer", |service, call| {
        service.submit(
            call,
            |request| peers::add(service.core(), request),
            |id| pb::AddReplicationPeerResponse { proc_id: Some(id) },
        )
    }),
    ("RemoveReplicationPeer", |service, call| {
        let remove = |request: pb::RemoveReplicationPeerRequest| {
            peers::change(service.core(), PeerChange::Remove, request.peer_id)
        };
        service.submit(call, remove, |id| pb::RemoveReplicationPeerResponse { proc_id: Some(id) })
    }),
    ("EnableReplicationPeer", |service, call| {
        let enable = |request: pb::EnableReplicationPeerRequest| {
            peers::change(service.core(), PeerChange::Enable, request.peer_id)
        };
        service.submit(call, enable, |id| pb::EnableReplicationPeerResponse { proc_id: Some(id) })
    }),
    ("DisableReplicationPeer", |service, call| {
        let disable = |request: pb::DisableReplicationPeerRequest| {
            peers::change(service.core(), PeerChange::Disable, request.peer_id)
        };
        service.submit(call, disable, |id| pb::DisableReplicationPeerResponse { proc_id: Some(id) })
    }),
    ("UpdateReplicationPeerConfig", |service, call| {
        service.submit(
            call,
            |request| peers::update(service.core(), request),
            |id| pb::UpdateReplicationPeerConfigResponse { proc_id: Some(id) },
        )
    }),
    ("GetReplicationPeerConfig", |service, call| {
        ready(call, |request| peers::config(service.core(), request))
    }),
    ("ListReplicationPeers", |service, call| ready(call, |request| peers::list(service.core(), &request))),
    ("IsReplicationPeerEnabled", |service, call| {
        ready(call, |request| peers::is_enabled(service.core(), &request))
    }),
    ("ReplicationPeerModificationSwitch", |service, call| service.blocking(call, peers::switch_modification)),
    ("IsReplicationPeerModificationEnabled", |service, call| {
        ready(call, |_: pb::IsReplicationPeerModificationEnabledRequest| {
            let enabled = service.is_on(Switch::ReplicationPeerModification);
            Ok(pb::IsReplicationPeerModificationEnabledResponse { enabled })
        })
    }),
    ("GetReplicationPeerModificationProcedures", |service, call| {
        ready(call, |_: pb::GetReplicationPeerModificationProceduresRequest| {
            Ok(peers::modifications(&service.master.engine))
        })
    }),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::service::refused;

    /// The methods of `MasterService` as `Master.proto` has them, by the names of their requests, are answered, or refused
    /// by a name that says what is missing.
    #[test]
    fn every_request_of_the_protocol_is_answered_or_refused_by_name() {
        let proto = include_str!("../../../../base/proto/proto/Master.proto");
        let names = proto.lines().filter_map(|line| line.strip_prefix("message ")?.split_whitespace().next());
        let methods: BTreeSet<&str> =
            names.filter_map(|name| name.strip_suffix("Request")).map(method_of).collect();
        assert!(methods.len() > 80, "{methods:?}");
        for method in methods.difference(&BTreeSet::from(OF_OTHER_SERVICES)) {
            let unknown =
                refused(method).message.ends_with(&format!("UnsupportedOperationException: {method}"));
            assert!(find(method).is_some() || !unknown, "{method} is neither answered nor refused by name");
        }
    }

    #[test]
    fn no_method_is_there_twice() {
        let names: BTreeSet<&str> = METHODS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), METHODS.len());
    }

    /// Requests of `HbckService` and of log entries, which are in the same file, and one without a method.
    const OF_OTHER_SERVICES: [&str; 12] = [
        "Assigns",
        "BalancerDecisions",
        "BalancerRejections",
        "BypassProcedure",
        "FixMeta",
        "IsRestoreSnapshotDone",
        "RunHbckChore",
        "ScheduleSCPsForUnknownServers",
        "ScheduleServerCrashProcedure",
        "SetRegionStateInMeta",
        "SetTableStateInMeta",
        "Unassigns",
    ];

    /// Methods whose request has another name.
    fn method_of(request: &'static str) -> &'static str {
        match request {
            "IsInMaintenanceMode" => "IsMasterInMaintenanceMode",
            "TruncateTable" => "truncateTable",
            "SplitTableRegion" => "SplitRegion",
            "GetProcedureResult" => "getProcedureResult",
            "SecurityCapabilities" => "getSecurityCapabilities",
            "MajorCompactionTimestamp" => "getLastMajorCompactionTimestamp",
            "MajorCompactionTimestampForRegion" => "getLastMajorCompactionTimestampForRegion",
            "SetSnapshotCleanup" => "SwitchSnapshotCleanup",
            other => other,
        }
    }
}
