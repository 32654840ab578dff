//! Beans of the master, with HBase's names.

use std::collections::BTreeMap;

use halcyon_master::{Master, ProcedureTimes, QuotaNumbers, STUCK_MS, SpaceUse};

use super::beans::Bean;
use super::region_server::ipc_attributes;
use crate::cluster::{Picture, ServerRow, ServerState};
use crate::pages::Sources;

const CONTEXT: &str = "master";
const MASTER: &str = "Master";

pub fn beans(sources: &Sources, running: &Master) -> Vec<Bean> {
    let server_name = sources.region_server.server_name();
    let host = server_name.host.clone();
    let bean = |sub| Bean::of_hbase(MASTER, Some(sub), CONTEXT, &host);
    let mut beans =
        ["Server", "AssignmentManager", "Snapshots", "Procedure", "Balancer", "Quotas", "IPC"].map(bean);
    let [server, assignment, snapshots, procedure, balancer, quotas, ipc] = &mut beans;
    server.tag("serverName", &server_name.to_string());
    server.tag("clusterId", &sources.cluster_id);
    server.tag("isActiveMaster", "true");
    server.gauge("masterStartTime", sources.started_ms, "When the master started, in ms since 1970");
    match sources.surroundings.cluster() {
        Some(cluster) => of_cluster(server, assignment, &cluster.picture()),
        None => of_one_server(server, assignment, sources, running),
    }
    procedure_attributes(server, assignment, snapshots, &running.procedure_times());
    procedure.gauge("numMasterWALs", 0, "There is none: each procedure is a file");
    balancer.tag("isBalancerActive", &running.is_balancer_on().to_string());
    quota_attributes(quotas, &running.quota_numbers());
    ipc_attributes(ipc, sources, "master");
    Vec::from(beans)
}

/// The only region server is this process.
fn of_one_server(server: &mut Bean, assignment: &mut Bean, sources: &Sources, running: &Master) {
    server.tag("liveRegionServers", &sources.region_server.server_name().to_string());
    server.tag("deadRegionServers", "");
    server.tag("drainingRegionServers", "");
    server.gauge("masterActiveTime", sources.started_ms, "When it became active: there is one master");
    let regions_count = sources.region_server.regions().online().len();
    let requests_count = sources.region_server.server_load().total_number_of_requests();
    let load = Load { average: regions_count as f64, online: 1, dead: 0, draining: 0, requests_count };
    load_attributes(server, &load);
    let transitions = running.regions_in_transition();
    let now_ms = sources.clock.now_ms();
    let ages = transitions.iter().map(|it| (now_ms - it.since_ms).max(0));
    transition_attributes(assignment, running.regions_in_transition_count(), ages);
}

fn of_cluster(server: &mut Bean, assignment: &mut Bean, picture: &Picture) {
    let names = |rows: &mut dyn Iterator<Item = &ServerRow>| {
        rows.map(|row| row.server.to_string()).collect::<Vec<_>>().join(";")
    };
    let is_down = |row: &&ServerRow| !row.is_online();
    server.tag("liveRegionServers", &names(&mut picture.online()));
    server.tag("deadRegionServers", &names(&mut picture.servers.iter().filter(is_down)));
    server.tag("drainingRegionServers", &names(&mut picture.in_state(ServerState::Draining)));
    server.gauge("masterActiveTime", picture.elected_ms, "When it became active, in ms since 1970");
    let finished = "When it had taken the cluster over, in ms since 1970";
    server.gauge("masterFinishedInitializationTime", picture.active_ms, finished);
    let load = Load {
        average: picture.average_load(),
        online: picture.online().count(),
        dead: picture.servers.iter().filter(is_down).count(),
        draining: picture.in_state(ServerState::Draining).count(),
        requests_count: picture.requests_count(),
    };
    load_attributes(server, &load);
    transition_attributes(assignment, picture.transitions.len(), picture.transition_ages());
}

struct Load {
    average: f64,
    online: usize,
    dead: usize,
    draining: usize,
    requests_count: u64,
}

fn load_attributes(bean: &mut Bean, load: &Load) {
    bean.gauge("averageLoad", load.average, "Regions of each region server");
    bean.gauge("numRegionServers", load.online, "Region servers that are up");
    bean.gauge("numDeadRegionServers", load.dead, "Region servers that are down");
    bean.gauge("numDrainingRegionServers", load.draining, "Region servers that are being emptied");
    bean.counter("clusterRequests", load.requests_count, "Requests to all region servers");
}

fn transition_attributes(bean: &mut Bean, count: usize, ages_ms: impl Iterator<Item = i64>) {
    let ages_ms: Vec<i64> = ages_ms.collect();
    let stuck = ages_ms.iter().filter(|age_ms| **age_ms > STUCK_MS).count();
    bean.gauge("ritCount", count, "Regions in transition");
    bean.gauge("ritCountOverThreshold", stuck, "Of these the ones for more than a minute");
    bean.gauge("ritOldestAge", ages_ms.into_iter().max().unwrap_or(0), "Age of the oldest in ms");
}

/// HBase looks at snapshots in a chore of its own.
fn quota_attributes(bean: &mut Bean, numbers: &QuotaNumbers) {
    let quotas = "Space quotas of tables, and of namespaces that have tables";
    bean.gauge("numSpaceQuotas", numbers.quotas_count, quotas);
    bean.gauge("numRegionSizeReports", numbers.regions_count, "Regions whose size is known");
    let tables = "Tables that exceed their space quota";
    bean.gauge("numTablesInQuotaViolation", numbers.exceeding_tables_count, tables);
    let namespaces = "Namespaces that exceed their space quota";
    bean.gauge("numNamespaceInQuotaViolation", numbers.exceeding_namespaces_count, namespaces);
    bean.tag("tableSpaceQuotaOverview", &overview("table", &numbers.tables));
    bean.tag("namespaceSpaceQuotaOverview", &overview("namespace", &numbers.namespaces));
    let observer = "How long it took to compare quotas with what tables use, in ms";
    bean.mean("QuotaObserverChoreTime", &numbers.observer_times, observer);
    let snapshots = "How long it took to add up what snapshots hold, in ms";
    bean.mean("SnapshotObserverSizeComputationTime", &numbers.snapshot_times, snapshots);
}

/// As HBase writes it.
fn overview(kind: &str, all: &[SpaceUse]) -> String {
    let one =
        |it: &SpaceUse| format!("{{{kind}={}, usage={}, limit={}}}", it.name, it.used_bytes, it.limit_bytes);
    format!("[{}]", all.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Procedures that move, split and merge regions, and those of snapshots.
fn procedure_attributes(
    server: &mut Bean,
    assignment: &mut Bean,
    snapshots: &mut Bean,
    by_kind: &BTreeMap<&'static str, ProcedureTimes>,
) {
    let operation = |bean: &mut Bean, kind| {
        let of_kind = by_kind.get(kind).cloned().unwrap_or_default();
        let submitted = of_kind.submitted_count;
        bean.counter(format!("{kind}SubmittedCount"), submitted, "Procedures of this kind");
        bean.counter(format!("{kind}FailedCount"), of_kind.failed_count, "Those of them that failed");
        bean.mean(&format!("{kind}Time"), &of_kind.times, "How long the others took, in ms");
    };
    for kind in ["Assign", "Unassign", "Move", "Split", "Merge"] {
        operation(assignment, kind);
    }
    operation(server, "ServerCrash");
    for kind in ["Snapshot", "SnapshotRestore", "SnapshotClone"] {
        let times = by_kind.get(kind).map(|of_kind| of_kind.times.clone()).unwrap_or_default();
        snapshots.mean(&format!("{kind}Time"), &times, "How long it took, in ms");
    }
}
