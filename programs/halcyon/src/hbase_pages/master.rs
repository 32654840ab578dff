//! Beans of the master, with HBase's names.

use std::collections::BTreeMap;

use halcyon_master::{Master, ProcedureTimes};

use super::beans::Bean;
use super::region_server::ipc_attributes;
use crate::pages::Sources;

const CONTEXT: &str = "master";
const MASTER: &str = "Master";

pub fn beans(sources: &Sources, running: &Master) -> Vec<Bean> {
    let server_name = sources.region_server.server_name();
    let host = server_name.host.clone();
    let bean = |sub| Bean::of_hbase(MASTER, Some(sub), CONTEXT, &host);
    let mut beans = ["Server", "AssignmentManager", "Snapshots", "Procedure", "Balancer", "IPC"].map(bean);
    let [server, assignment, snapshots, procedure, balancer, ipc] = &mut beans;
    server.tag("liveRegionServers", &server_name.to_string());
    server.tag("deadRegionServers", "");
    server.tag("drainingRegionServers", "");
    server.tag("clusterId", &sources.cluster_id);
    server.tag("isActiveMaster", "true");
    server.gauge("masterStartTime", sources.started_ms, "When the master started, in ms since 1970");
    server.gauge("masterActiveTime", sources.started_ms, "When it became active: there is one master");
    let regions_count = sources.region_server.regions().online().len();
    server.gauge("averageLoad", regions_count as f64, "Regions of each region server");
    server.gauge("numRegionServers", 1, "Region servers that are up");
    server.gauge("numDeadRegionServers", 0, "Region servers that are down");
    server.gauge("numDrainingRegionServers", 0, "Region servers that are being emptied");
    let requests = sources.region_server.server_load().total_number_of_requests();
    server.counter("clusterRequests", requests, "Requests to all region servers");
    let moving = running.regions_in_transition_count();
    assignment.gauge("ritCount", moving, "Regions in transition");
    procedure_attributes(assignment, snapshots, &running.procedure_times());
    procedure.gauge("numMasterWALs", 0, "There is none: each procedure is a file");
    balancer.tag("isBalancerActive", &running.is_balancer_on().to_string());
    ipc_attributes(ipc, sources, "master");
    Vec::from(beans)
}

/// Procedures that move, split and merge regions, and those of snapshots.
fn procedure_attributes(
    assignment: &mut Bean,
    snapshots: &mut Bean,
    by_kind: &BTreeMap<&'static str, ProcedureTimes>,
) {
    for kind in ["Assign", "Unassign", "Move", "Split", "Merge"] {
        let of_kind = by_kind.get(kind).cloned().unwrap_or_default();
        let submitted = of_kind.submitted_count;
        assignment.counter(format!("{kind}SubmittedCount"), submitted, "Procedures of this kind");
        assignment.counter(format!("{kind}FailedCount"), of_kind.failed_count, "Those of them that failed");
        assignment.mean(&format!("{kind}Time"), &of_kind.times, "How long the others took, in ms");
    }
    for kind in ["Snapshot", "SnapshotRestore", "SnapshotClone"] {
        let times = by_kind.get(kind).map(|of_kind| of_kind.times.clone()).unwrap_or_default();
        snapshots.mean(&format!("{kind}Time"), &times, "How long it took, in ms");
    }
}
