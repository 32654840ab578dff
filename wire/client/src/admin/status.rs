//! The state of the cluster (HBase: `ClusterMetrics`).

use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName, TableName};

use super::{Admin, servers};
use crate::ClientError;

/// The state of the cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterMetrics {
    /// Version of the master.
    pub hbase_version: Option<String>,
    /// The cluster's id.
    pub cluster_id: Option<String>,
    /// The active master.
    pub master: Option<ServerName>,
    /// Masters that wait.
    pub backup_masters: Vec<ServerName>,
    /// Live region servers.
    pub servers: Vec<ServerMetrics>,
    /// Region servers that died.
    pub dead_servers: Vec<ServerName>,
    /// Regions that are neither open nor closed.
    pub regions_in_transition: Vec<RegionInTransition>,
    /// Whether the balancer is on.
    pub balancer_on: Option<bool>,
    /// Port of the master's pages.
    pub master_info_port: Option<u16>,
    /// Coprocessors of the master.
    pub master_coprocessors: Vec<String>,
    /// Open regions and all regions by table.
    pub table_regions: Vec<(TableName, u32, u32)>,
    /// What the master is doing.
    pub master_tasks: Vec<Task>,
}

/// A region on its way to another state.
#[derive(Clone, Debug)]
pub struct RegionInTransition {
    /// The region.
    pub region: RegionInfo,
    /// `OPENING`, `CLOSING`, `SPLITTING`, ...
    pub state: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: Option<u64>,
}

/// What a server is doing (`processlist`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What it is.
    pub description: String,
    /// How far it is.
    pub status: String,
    /// `RUNNING`, `WAITING`, `COMPLETE` or `ABORTED`.
    pub state: String,
    /// When it began, in milliseconds since 1970.
    pub start_ms: Option<u64>,
    /// When it ended, in milliseconds since 1970.
    pub completion_ms: Option<u64>,
}

impl Task {
    fn of_pb(task: &pb::ServerTask) -> Task {
        Task {
            description: task.description.clone(),
            status: task.status.clone(),
            state: task.state().as_str_name().to_string(),
            start_ms: task.start_time.filter(|time| *time > 0),
            completion_ms: task.completion_time.filter(|time| *time > 0 && *time < u64::MAX / 2),
        }
    }
}

/// Load of a region server.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    /// The server.
    pub name: ServerName,
    /// Requests per second of late.
    pub requests_per_second: u64,
    /// Requests since its start.
    pub requests_count: u64,
    /// Write requests since its start.
    pub write_requests_count: u64,
    /// Memory in use.
    pub used_heap_mb: u32,
    /// Memory at most.
    pub max_heap_mb: u32,
    /// Its regions.
    pub regions: Vec<RegionMetrics>,
    /// Its coprocessors.
    pub coprocessors: Vec<String>,
    /// When its report began, in milliseconds since 1970.
    pub report_start_ms: u64,
    /// When its report ended, in milliseconds since 1970.
    pub report_end_ms: u64,
    /// Port of its pages.
    pub info_port: Option<u16>,
    /// What it is doing.
    pub tasks: Vec<Task>,
    /// Requests by user.
    pub users: Vec<UserMetrics>,
    /// What it sends to peers.
    pub replication_sources: Vec<ReplicationSource>,
}

/// What a server has for one replication peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationSource {
    /// The peer's id.
    pub peer_id: String,
    /// WALs that the peer has not got as a whole.
    pub queued_wals: u32,
    /// For how long the oldest edit waits, in milliseconds.
    pub lag_ms: u64,
    /// WAL entries that were sent since the start of the server.
    pub shipped_count: u64,
    /// Whether the edits are those of a server that died.
    pub is_recovered: bool,
}

impl ReplicationSource {
    fn of_pb(source: &pb::ReplicationLoadSource) -> ReplicationSource {
        ReplicationSource {
            peer_id: source.peer_id.clone(),
            queued_wals: source.size_of_log_queue,
            lag_ms: source.replication_lag,
            shipped_count: source.o_ps_shipped.unwrap_or(0),
            is_recovered: source.recovered.unwrap_or(false),
        }
    }
}

/// Requests of a user to one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserMetrics {
    /// The user.
    pub name: String,
    /// Requests by the host that they came from.
    pub clients: Vec<ClientMetrics>,
}

/// Requests of a user from one host since the start of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientMetrics {
    /// The client's host.
    pub host: String,
    /// Reads.
    pub read_requests_count: u64,
    /// Writes.
    pub write_requests_count: u64,
    /// Reads whose rows a filter dropped.
    pub filtered_read_requests_count: u64,
}

impl UserMetrics {
    fn of_pb(user: &pb::UserLoad) -> UserMetrics {
        let client = |client: &pb::ClientMetrics| ClientMetrics {
            host: client.host_name.clone(),
            read_requests_count: client.read_requests_count.unwrap_or(0),
            write_requests_count: client.write_requests_count.unwrap_or(0),
            filtered_read_requests_count: client.filtered_requests_count.unwrap_or(0),
        };
        UserMetrics {
            name: user.user_name.clone(),
            clients: user.client_metrics.iter().map(client).collect(),
        }
    }
}

/// Load of a region.
#[derive(Clone, Debug, Default)]
pub struct RegionMetrics {
    /// Full name of the region.
    pub region_name: Vec<u8>,
    /// Stores.
    pub stores_count: u32,
    /// Store files.
    pub store_files_count: u32,
    /// Bytes of store files before compression.
    pub uncompressed_size_mb: u32,
    /// Bytes of store files.
    pub store_file_size_mb: u32,
    /// Bytes of the memstore.
    pub memstore_size_mb: u32,
    /// Reads.
    pub read_requests_count: u64,
    /// Writes.
    pub write_requests_count: u64,
    /// Reads whose rows a filter dropped.
    pub filtered_read_requests_count: u64,
    /// Cells of the compaction that is under way.
    pub compacting_cells_count: u64,
    /// How many of those are done.
    pub compacted_cells_count: u64,
    /// Bytes of root indexes.
    pub root_index_size_kb: u32,
    /// Bytes of all index blocks.
    pub index_size_kb: u32,
    /// Bytes of Bloom filters.
    pub bloom_size_kb: u32,
    /// Sequence id up to which the region is flushed.
    pub complete_sequence_id: Option<u64>,
    /// Part of the store files on the server's own disks.
    pub data_locality: f32,
    /// When the last major compaction ended, in milliseconds since 1970.
    pub last_major_compaction_ms: u64,
}

impl RegionMetrics {
    fn of_pb(load: &pb::RegionLoad) -> RegionMetrics {
        RegionMetrics {
            region_name: load.region_specifier.value.to_vec(),
            stores_count: load.stores.unwrap_or(0),
            store_files_count: load.storefiles.unwrap_or(0),
            uncompressed_size_mb: load.store_uncompressed_size_mb.unwrap_or(0),
            store_file_size_mb: load.storefile_size_mb.unwrap_or(0),
            memstore_size_mb: load.mem_store_size_mb.unwrap_or(0),
            read_requests_count: load.read_requests_count.unwrap_or(0),
            write_requests_count: load.write_requests_count.unwrap_or(0),
            filtered_read_requests_count: load.filtered_read_requests_count.unwrap_or(0),
            compacting_cells_count: load.total_compacting_k_vs.unwrap_or(0),
            compacted_cells_count: load.current_compacted_k_vs.unwrap_or(0),
            root_index_size_kb: load.root_index_size_kb.unwrap_or(0),
            index_size_kb: load.total_static_index_size_kb.unwrap_or(0),
            bloom_size_kb: load.total_static_bloom_size_kb.unwrap_or(0),
            complete_sequence_id: load.complete_sequence_id,
            data_locality: load.data_locality.unwrap_or(0.0),
            last_major_compaction_ms: load.last_major_compaction_ts(),
        }
    }
}

impl ServerMetrics {
    fn of_pb(info: &pb::LiveServerInfo) -> Result<ServerMetrics, ClientError> {
        let load = &info.server_load;
        Ok(ServerMetrics {
            name: ServerName::from_pb(&info.server).map_err(ClientError::malformed)?,
            requests_per_second: load.number_of_requests.unwrap_or(0),
            requests_count: load.total_number_of_requests.unwrap_or(0),
            write_requests_count: load.write_requests_count.unwrap_or(0),
            used_heap_mb: load.used_heap_mb.unwrap_or(0),
            max_heap_mb: load.max_heap_mb.unwrap_or(0),
            regions: load.region_loads.iter().map(RegionMetrics::of_pb).collect(),
            coprocessors: load.coprocessors.iter().map(|coprocessor| coprocessor.name.clone()).collect(),
            report_start_ms: load.report_start_time.unwrap_or(0),
            report_end_ms: load.report_end_time.unwrap_or(0),
            info_port: load.info_server_port.and_then(|port| u16::try_from(port).ok()),
            tasks: load.tasks.iter().map(Task::of_pb).collect(),
            users: load.user_loads.iter().map(UserMetrics::of_pb).collect(),
            replication_sources: load.repl_load_source.iter().map(ReplicationSource::of_pb).collect(),
        })
    }
}

impl ClusterMetrics {
    fn of_pb(status: &pb::ClusterStatus) -> Result<ClusterMetrics, ClientError> {
        let in_transition = |one: &pb::RegionInTransition| {
            Ok(RegionInTransition {
                region: RegionInfo::from_pb(&one.region_state.region_info).map_err(ClientError::malformed)?,
                state: one.region_state.state().as_str_name().to_string(),
                since_ms: one.region_state.stamp,
            })
        };
        let table_regions = |one: &pb::TableRegionStatesCount| {
            let name = TableName::from_pb(&one.table_name).map_err(ClientError::malformed)?;
            Ok((name, one.region_states_count.open_regions, one.region_states_count.total_regions))
        };
        let transitions = status.regions_in_transition.iter().map(in_transition);
        let table_regions = status.table_region_states_count.iter().map(table_regions);
        Ok(ClusterMetrics {
            hbase_version: status.hbase_version.as_ref().map(|version| version.version.clone()),
            cluster_id: status.cluster_id.as_ref().map(|id| id.cluster_id.clone()),
            master: status
                .master
                .as_ref()
                .map(ServerName::from_pb)
                .transpose()
                .map_err(ClientError::malformed)?,
            backup_masters: servers::names(&status.backup_masters)?,
            servers: status.live_servers.iter().map(ServerMetrics::of_pb).collect::<Result<_, _>>()?,
            dead_servers: servers::names(&status.dead_servers)?,
            regions_in_transition: transitions.collect::<Result<_, ClientError>>()?,
            balancer_on: status.balancer_on,
            master_info_port: status.master_info_port.and_then(|port| u16::try_from(port).ok()),
            master_coprocessors: status.master_coprocessors.iter().map(|one| one.name.clone()).collect(),
            table_regions: table_regions.collect::<Result<_, ClientError>>()?,
            master_tasks: status.master_tasks.iter().map(Task::of_pb).collect(),
        })
    }

    /// Regions that live servers have.
    pub fn regions_count(&self) -> usize {
        self.servers.iter().map(|server| server.regions.len()).sum()
    }

    /// Regions for each live server, on average.
    pub fn average_load(&self) -> f64 {
        match self.servers.len() {
            0 => 0.0,
            count => self.regions_count() as f64 / count as f64,
        }
    }
}

impl Admin {
    /// The state of the cluster.
    pub async fn cluster_metrics(&self) -> Result<ClusterMetrics, ClientError> {
        use pb::Option as Part;
        let parts = [
            Part::HbaseVersion,
            Part::ClusterId,
            Part::LiveServers,
            Part::DeadServers,
            Part::Master,
            Part::BackupMasters,
            Part::MasterCoprocessors,
            Part::RegionsInTransition,
            Part::BalancerOn,
            Part::MasterInfoPort,
            Part::ServersName,
            Part::TableToRegionsCount,
            Part::Tasks,
        ];
        let options = parts.map(|part| part as i32).to_vec();
        let answer: pb::GetClusterStatusResponse =
            self.call("GetClusterStatus", &pb::GetClusterStatusRequest { options }).await?;
        ClusterMetrics::of_pb(&answer.cluster_status)
    }
}
