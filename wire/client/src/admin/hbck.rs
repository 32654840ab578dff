//! Calls of `HbckService`, for a cluster where something is stuck or wrong (HBase: `Hbck`).
//!
//! They change what the master knows about tables and regions. Find out what is wrong before you use one.

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::{ServerName, TableName};
use prost::Message;

use super::regions::named;
use super::{Admin, TableState};
use crate::ClientError;

/// Regions of one request, at most.
const REGIONS_MAX: usize = 500;
/// What a master answers for a region that it does not know (`Procedure.NO_PROC_ID`).
const NO_PROCEDURE: u64 = u64::MAX;

impl Admin {
    async fn hbck<M: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<M, ClientError> {
        self.call_once("HbckService", method, request).await
    }

    /// Writes the state of a table, and returns the state from before. Its regions stay as they are.
    pub async fn set_table_state_in_meta(
        &self,
        table: &TableName,
        state: TableState,
    ) -> Result<TableState, ClientError> {
        let table_state = pb::TableState { state: state.to_pb() as i32 };
        let request = pb::SetTableStateInMetaRequest { table_name: table.to_pb(), table_state };
        let before: pb::GetTableStateResponse = self.hbck("SetTableStateInMeta", &request).await?;
        Ok(TableState::of_pb(before.table_state.state()))
    }

    /// Writes the state (`OPEN`, `CLOSED`, ...) of a region, by its full or encoded name, and returns the state from
    /// before. No server opens or closes it.
    pub async fn set_region_state_in_meta(&self, region: &[u8], state: &str) -> Result<String, ClientError> {
        let wanted = pb::region_state::State::from_str_name(state);
        let wanted = wanted.ok_or_else(|| ClientError::invalid(format!("no region has a state {state}")))?;
        let asked = pb::RegionSpecifierAndState { region_specifier: named(region), state: wanted as i32 };
        let request = pb::SetRegionStateInMetaRequest { states: vec![asked] };
        let before: pb::SetRegionStateInMetaResponse = self.hbck("SetRegionStateInMeta", &request).await?;
        let before = before.states.first().map(|one| one.state().as_str_name().to_string());
        before.ok_or_else(|| ClientError::Malformed("SetRegionStateInMeta: expected a state".to_string()))
    }

    /// Opens regions, by their full or encoded names, and waits for each. With `force`, whatever state they are in, and
    /// past a procedure that has them. The results are in the order of the names.
    pub async fn assigns<N: AsRef<[u8]>>(
        &self,
        regions: &[N],
        force: bool,
    ) -> Result<Vec<Result<(), ClientError>>, ClientError> {
        self.transit("Assigns", regions, force).await
    }

    /// Closes regions, as [`Admin::assigns`] opens them.
    pub async fn unassigns<N: AsRef<[u8]>>(
        &self,
        regions: &[N],
        force: bool,
    ) -> Result<Vec<Result<(), ClientError>>, ClientError> {
        self.transit("Unassigns", regions, force).await
    }

    async fn transit<N: AsRef<[u8]>>(
        &self,
        method: &str,
        regions: &[N],
        force: bool,
    ) -> Result<Vec<Result<(), ClientError>>, ClientError> {
        let mut results = Vec::new();
        for regions in regions.chunks(REGIONS_MAX) {
            // `UnassignsRequest` has the same fields
            let region = regions.iter().map(|name| named(name.as_ref())).collect();
            let request = pb::AssignsRequest { region, r#override: Some(force) };
            let begun: pb::AssignsResponse = self.hbck(method, &request).await?;
            for (name, pid) in regions.iter().zip(begun.pid) {
                results.push(match pid {
                    NO_PROCEDURE => {
                        let name = Bytes::copy_from_slice(name.as_ref());
                        let text = format!("{method}: no procedure was begun for {}", name.escape_ascii());
                        Err(ClientError::exception("UnknownRegionException", text))
                    }
                    pid => self.finish(Some(pid)).await,
                });
            }
        }
        Ok(results)
    }

    /// Ends procedures that make no progress. What they have changed stays. One answer for each: whether it ends.
    /// `force` does not wait for a step that is being executed; `recursive` also ends the procedures that it waits for.
    pub async fn bypass_procedures(
        &self,
        ids: &[u64],
        force: bool,
        recursive: bool,
    ) -> Result<Vec<bool>, ClientError> {
        let request = pb::BypassProcedureRequest {
            proc_id: ids.to_vec(),
            wait_time: Some(1000),
            r#override: Some(force),
            recursive: Some(recursive),
        };
        let answer: pb::BypassProcedureResponse = self.hbck("BypassProcedure", &request).await?;
        Ok(answer.bypassed)
    }

    /// Makes the master treat servers as crashed, and waits: their WALs are split and their regions open elsewhere.
    pub async fn schedule_server_crashes(&self, servers: &[ServerName]) -> Result<(), ClientError> {
        let server_name = servers.iter().map(ServerName::to_pb).collect();
        let request = pb::ScheduleServerCrashProcedureRequest { server_name };
        let begun: pb::ScheduleServerCrashProcedureResponse =
            self.hbck("ScheduleServerCrashProcedure", &request).await?;
        for pid in begun.pid.into_iter().filter(|pid| *pid != NO_PROCEDURE) {
            self.finish(Some(pid)).await?;
        }
        Ok(())
    }

    /// Repairs holes of `hbase:meta`, and in HBase overlaps, that the catalog janitor has found
    /// ([`Admin::run_catalog_janitor`]). HBase continues after the answer.
    pub async fn fix_meta(&self) -> Result<(), ClientError> {
        let _: pb::FixMetaResponse = self.hbck("FixMeta", &pb::FixMetaRequest {}).await?;
        Ok(())
    }
}
