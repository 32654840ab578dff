//! Single orders to the master, to region servers and to regions.

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::{ServerName, TableName};
use pb::security_capabilities_response::Capability;
use prost::Message;

use super::{Admin, Nonces, servers};
use crate::ClientError;

fn capability_names(capabilities: &[i32]) -> Result<Vec<String>, ClientError> {
    let name = |number: &i32| match Capability::try_from(*number) {
        Ok(capability) => Ok(capability.as_str_name().to_string()),
        Err(error) => Err(ClientError::malformed(format!("a capability: {error}"))),
    };
    capabilities.iter().map(name).collect()
}

impl Admin {
    /// A call to a service of the master that is active now. It is not made again after an error: it might
    /// reach another master then.
    pub(super) async fn call_once<M: Message + Default>(
        &self,
        service: &str,
        method: &str,
        request: &impl Message,
    ) -> Result<M, ClientError> {
        let address = self.cluster.active_master().await?.address();
        let connection = self.cluster.service(&address, service).await?;
        let timeout = Some(self.cluster.inner.options.operation_timeout);
        let answer = connection.call_with_cells(method, request, None, timeout).await?;
        crate::table::decode(&answer)
    }

    /// Ends the active master. A backup master takes over, if there is one.
    pub async fn stop_master(&self) -> Result<(), ClientError> {
        let _: pb::StopMasterResponse =
            self.call_once("MasterService", "StopMaster", &pb::StopMasterRequest {}).await?;
        Ok(())
    }

    /// Ends a region server. Its regions open elsewhere. The server logs the reason.
    pub async fn stop_region_server(&self, server: &ServerName, reason: &str) -> Result<(), ClientError> {
        let request = pb::StopServerRequest { reason: reason.to_string() };
        let _: pb::StopServerResponse = self.call_server(server, "StopServer", &request).await?;
        Ok(())
    }

    /// Compares what `hbase:meta`, the region servers and the file system have, and returns whether it did.
    /// The master's pages show what was found.
    pub async fn run_hbck_chore(&self) -> Result<bool, ClientError> {
        let answer: pb::RunHbckChoreResponse =
            self.call_once("HbckService", "RunHbckChore", &pb::RunHbckChoreRequest {}).await?;
        Ok(answer.ran)
    }

    /// Flushes what the master keeps for itself.
    pub async fn flush_master_store(&self) -> Result<(), ClientError> {
        let _: pb::FlushMasterStoreResponse =
            self.call("FlushMasterStore", &pb::FlushMasterStoreRequest {}).await?;
        Ok(())
    }

    /// Whether the master was started for repairs alone.
    pub async fn is_in_maintenance_mode(&self) -> Result<bool, ClientError> {
        let answer: pb::IsInMaintenanceModeResponse =
            self.call("IsMasterInMaintenanceMode", &pb::IsInMaintenanceModeRequest {}).await?;
        Ok(answer.in_maintenance_mode)
    }

    /// Servers that regions are at and that the master does not know, neither alive nor dead.
    pub async fn unknown_servers(&self) -> Result<Vec<ServerName>, ClientError> {
        let request = pb::GetClusterStatusRequest { options: vec![pb::Option::UnknownServers as i32] };
        let answer: pb::GetClusterStatusResponse = self.call("GetClusterStatus", &request).await?;
        servers::names(&answer.cluster_status.unknown_servers)
    }

    /// What the master has of security: `SIMPLE_AUTHENTICATION`, `AUTHORIZATION` and so on.
    pub async fn security_capabilities(&self) -> Result<Vec<String>, ClientError> {
        let answer: pb::SecurityCapabilitiesResponse =
            self.call("getSecurityCapabilities", &pb::SecurityCapabilitiesRequest {}).await?;
        capability_names(&answer.capabilities)
    }

    /// Asks for compactions of all regions that a server has; they run in the background.
    pub async fn compact_server(&self, server: &ServerName, major: bool) -> Result<(), ClientError> {
        let regions = self.online_regions(server).await?;
        // read replicas have the files of their primaries
        for region in regions.iter().filter(|region| !region.is_secondary()) {
            match major {
                false => self.compact_region(region, None).await?,
                true => self.major_compact_region(region, None).await?,
            }
        }
        Ok(())
    }

    /// Deletes all rows of a region, by its full or encoded name.
    pub async fn truncate_region(&self, name: &[u8]) -> Result<(), ClientError> {
        let region = self.region(name).await?.region;
        if region.is_secondary() {
            return Err(ClientError::invalid("a read replica is truncated with its primary"));
        }
        let Nonces { group, nonce } = self.nonces();
        let region_info = region.to_pb();
        let request = pb::TruncateRegionRequest { region_info, nonce_group: group, nonce };
        let answer: pb::TruncateRegionResponse = self.call("TruncateRegion", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Changes how a table, or one family of it, keeps track of its store files: `DEFAULT` or `FILE`.
    /// The master goes through `MIGRATION` by itself.
    pub async fn set_store_file_tracker(
        &self,
        table: &TableName,
        family: Option<&[u8]>,
        tracker: &str,
    ) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let (table_name, dst_sft) = (table.to_pb(), tracker.to_string());
        let proc_id = match family {
            None => {
                let request =
                    pb::ModifyTableStoreFileTrackerRequest { table_name, dst_sft, nonce_group: group, nonce };
                let answer: pb::ModifyTableStoreFileTrackerResponse =
                    self.call("ModifyTableStoreFileTracker", &request).await?;
                answer.proc_id
            }
            Some(family) => {
                let request = pb::ModifyColumnStoreFileTrackerRequest {
                    table_name,
                    family: Bytes::copy_from_slice(family),
                    dst_sft,
                    nonce_group: group,
                    nonce,
                };
                let answer: pb::ModifyColumnStoreFileTrackerResponse =
                    self.call("ModifyColumnStoreFileTracker", &request).await?;
                answer.proc_id
            }
        };
        self.finish(proc_id).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_hbases_names() {
        let known = [Capability::SimpleAuthentication as i32, Capability::CellVisibility as i32];
        assert_eq!(capability_names(&known).unwrap(), ["SIMPLE_AUTHENTICATION", "CELL_VISIBILITY"]);
        assert!(matches!(capability_names(&[99]), Err(ClientError::Malformed(_))));
    }
}
