//! Region servers.

use std::time::Duration;

use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName, TableName};
use prost::Message;
use tokio::time::Instant;

use super::Admin;
use crate::ClientError;
use crate::locations::specifier;

/// Blocks that left the caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheEvictions {
    /// Blocks.
    pub blocks_count: i64,
    /// Their bytes.
    pub size_bytes: i64,
}

/// Methods of `AdminService` whose answer comes after flushes or a new log file.
const ANSWERED_WHEN_DONE: [&str; 2] = ["FlushRegion", "RollWALWriter"];

impl Admin {
    /// Live region servers.
    pub async fn region_servers(&self) -> Result<Vec<ServerName>, ClientError> {
        let status = self.cluster_metrics().await?;
        Ok(status.servers.into_iter().map(|server| server.name).collect())
    }

    /// Longest time of a call. What a server answers when the work is done may take what is left of the operation; other calls leave time
    /// to ask another server.
    pub(super) fn time_of(&self, method: &str, deadline: Instant) -> Duration {
        match ANSWERED_WHEN_DONE.contains(&method) {
            true => deadline.saturating_duration_since(Instant::now()),
            false => self.cluster.call_timeout(deadline),
        }
    }

    pub(super) async fn call_server<M: Message + Default>(
        &self,
        server: &ServerName,
        method: &str,
        request: &impl Message,
    ) -> Result<M, ClientError> {
        let timeout = Some(self.time_of(method, self.cluster.deadline()));
        let answer = self.server(server).await?.call_with_cells(method, request, None, timeout).await?;
        crate::table::decode(&answer)
    }

    /// Regions that a server has open, as it says itself.
    pub async fn online_regions(&self, server: &ServerName) -> Result<Vec<RegionInfo>, ClientError> {
        let answer: pb::GetOnlineRegionResponse =
            self.call_server(server, "GetOnlineRegion", &pb::GetOnlineRegionRequest {}).await?;
        let regions = answer.region_info.iter();
        regions.map(|region| RegionInfo::from_pb(region).map_err(ClientError::malformed)).collect()
    }

    /// Closes a server's WAL file and begins a new one.
    pub async fn roll_wal(&self, server: &ServerName) -> Result<(), ClientError> {
        let request = pb::RollWalWriterRequest {};
        let _: pb::RollWalWriterResponse = self.call_server(server, "RollWALWriter", &request).await?;
        Ok(())
    }

    /// Turns compactions of a server on or off, and returns the setting from before.
    pub async fn set_compactions(&self, server: &ServerName, enabled: bool) -> Result<bool, ClientError> {
        let request = pb::CompactionSwitchRequest { enabled };
        let answer: pb::CompactionSwitchResponse =
            self.call_server(server, "CompactionSwitch", &request).await?;
        Ok(answer.prev_state)
    }

    /// Drops compactions that wait in a server's queues (`long`, `short`).
    pub async fn clear_compaction_queues(
        &self,
        server: &ServerName,
        queues: &[&str],
    ) -> Result<(), ClientError> {
        let queue_name = queues.iter().map(|queue| (*queue).to_string()).collect();
        let request = pb::ClearCompactionQueuesRequest { queue_name };
        let _: pb::ClearCompactionQueuesResponse =
            self.call_server(server, "ClearCompactionQueues", &request).await?;
        Ok(())
    }

    /// Drops the blocks of a table from the block caches.
    pub async fn clear_block_cache(&self, table: &TableName) -> Result<CacheEvictions, ClientError> {
        let mut by_server: Vec<(ServerName, Vec<pb::RegionSpecifier>)> = Vec::new();
        for found in self.regions(table).await? {
            let Some(server) = found.server else { continue };
            let region = specifier(&found.region);
            match by_server.iter_mut().find(|(name, _)| *name == server) {
                Some((_, regions)) => regions.push(region),
                None => by_server.push((server, vec![region])),
            }
        }
        let mut evictions = CacheEvictions::default();
        for (server, region) in by_server {
            let request = pb::ClearRegionBlockCacheRequest { region };
            let answer: pb::ClearRegionBlockCacheResponse =
                self.call_server(&server, "ClearRegionBlockCache", &request).await?;
            evictions.blocks_count += answer.stats.evicted_blocks();
            evictions.size_bytes += answer.stats.bytes_evicted();
        }
        Ok(evictions)
    }

    /// Makes a server read its configuration again.
    pub async fn update_configuration(&self, server: &ServerName) -> Result<(), ClientError> {
        let request = pb::UpdateConfigurationRequest {};
        let _: pb::UpdateConfigurationResponse =
            self.call_server(server, "UpdateConfiguration", &request).await?;
        Ok(())
    }

    /// Servers that get no regions.
    pub async fn decommissioned_servers(&self) -> Result<Vec<ServerName>, ClientError> {
        let request = pb::ListDecommissionedRegionServersRequest {};
        let answer: pb::ListDecommissionedRegionServersResponse =
            self.call("ListDecommissionedRegionServers", &request).await?;
        names(&answer.server_name)
    }

    /// Gives servers no more regions; with `offload`, the ones they have move away.
    pub async fn decommission_servers(
        &self,
        servers: &[ServerName],
        offload: bool,
    ) -> Result<(), ClientError> {
        let server_name = servers.iter().map(ServerName::to_pb).collect();
        let request = pb::DecommissionRegionServersRequest { server_name, offload };
        let _: pb::DecommissionRegionServersResponse =
            self.call("DecommissionRegionServers", &request).await?;
        Ok(())
    }

    /// Gives a server regions again.
    pub async fn recommission_server(&self, server: &ServerName) -> Result<(), ClientError> {
        let request = pb::RecommissionRegionServerRequest { server_name: server.to_pb(), region: Vec::new() };
        let _: pb::RecommissionRegionServerResponse = self.call("RecommissionRegionServer", &request).await?;
        Ok(())
    }

    /// Forgets dead servers, and returns those that the master still works on. Without names, all.
    pub async fn clear_dead_servers(&self, servers: &[ServerName]) -> Result<Vec<ServerName>, ClientError> {
        let server_name = servers.iter().map(ServerName::to_pb).collect();
        let request = pb::ClearDeadServersRequest { server_name };
        let answer: pb::ClearDeadServersResponse = self.call("ClearDeadServers", &request).await?;
        names(&answer.server_name)
    }
}

pub(super) fn names(names: &[pb::ServerName]) -> Result<Vec<ServerName>, ClientError> {
    names.iter().map(|name| ServerName::from_pb(name).map_err(ClientError::malformed)).collect()
}
