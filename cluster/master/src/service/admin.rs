//! The methods of `AdminService` that clients ask of the master of a cluster: `CompactType.MOB` of `compact`,
//! `majorCompact` and `getCompactionState` (HBase: `MasterRpcServices.compactRegion`, `getRegionInfo`), `updateConfiguration`, and who it
//! is and which regions it has, which are none. In a process with its region server that one answers.

use std::sync::Arc;

use halcyon_cell::ErrorKind;
use halcyon_proto::pb;
use halcyon_proto::pb::get_region_info_response::CompactionState;
use halcyon_proto::pb::region_specifier::RegionSpecifierType;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Service};
use halcyon_schema::{RegionInfo, TableName};
use tracing::info;

use super::work::Workers;
use super::{Answer, audit_change, decode};
use crate::state::MasterState;
use crate::{Master, errors};

/// See the head of the file. Shared by all connections.
pub struct MasterAdminService {
    master: Arc<Master>,
    workers: Workers,
}

impl MasterAdminService {
    /// Starts a thread for calls, which ask region servers.
    pub fn new(master: Arc<Master>) -> halcyon_cell::Result<MasterAdminService> {
        Ok(MasterAdminService { master, workers: Workers::start("master-mob-call", 1)? })
    }

    fn dispatch(&self, call: &Call) -> Answer<Outcome> {
        let core = self.master.core.clone();
        match call.method.as_str() {
            "CompactRegion" => {
                let request: pb::CompactRegionRequest = decode(call)?;
                let table = mob_table(&request.region)?;
                audit_change(call);
                self.workers.run(move || {
                    compact(&core, &table, request.major())?;
                    Ok(Reply::message(&pb::CompactRegionResponse::default()))
                })
            }
            "GetRegionInfo" => {
                let request: pb::GetRegionInfoRequest = decode(call)?;
                let table = mob_table(&request.region)?;
                self.workers.run(move || {
                    let state = request.compaction_state().then(|| state(&core, &table)).transpose()?;
                    Ok(Reply::message(&pb::GetRegionInfoResponse {
                        region_info: RegionInfo::of_mob_files(&table).to_pb(),
                        compaction_state: state.map(|state| state as i32),
                        ..Default::default()
                    }))
                })
            }
            "GetOnlineRegion" => Ok(done(&pb::GetOnlineRegionResponse::default())),
            "GetServerInfo" => {
                let settings = &core.settings;
                let webui_port = u32::try_from(settings.info_port).ok();
                let server_info = pb::ServerInfo { server_name: settings.server_name.to_pb(), webui_port };
                Ok(done(&pb::GetServerInfoResponse { server_info }))
            }
            // All settings of a master need its restart. The call is no error: `update_all_config` makes it to each server in turn.
            "UpdateConfiguration" => {
                audit_change(call);
                info!(
                    "settings of a master are read when it starts; the request to read them again changes nothing"
                );
                Ok(done(&pb::UpdateConfigurationResponse::default()))
            }
            other => Err(RpcError::unknown_method(other)),
        }
    }
}

impl Service for MasterAdminService {
    fn call(&self, call: Call) -> Outcome {
        let outcome = self.master.core.check_running().and_then(|()| self.dispatch(&call));
        outcome.unwrap_or_else(|error| Outcome::Ready(Err(error)))
    }
}

fn done(response: &impl prost::Message) -> Outcome {
    Outcome::Ready(Ok(Reply::message(response)))
}

/// The table whose mob region this is.
fn mob_table(region: &pb::RegionSpecifier) -> Answer<TableName> {
    let other = || RpcError::do_not_retry("The master answers for mob regions only: ask the region's server");
    if region.r#type() != RegionSpecifierType::RegionName {
        return Err(other());
    }
    let table = RegionInfo::table_of_mob_files(&region.value).map_err(errors::invalid)?;
    table.ok_or_else(other)
}

/// Asks for compactions of the families with `IS_MOB` of all regions. One that is not open is passed over.
fn compact(core: &MasterState, table: &TableName, major: bool) -> Answer<()> {
    let entry = core.table(table)?;
    for region in entry.live_regions() {
        for family in entry.descriptor.families().iter().filter(|family| family.is_mob()) {
            let server = core.server_of(&region);
            match server.and_then(|server| server.compact_region(&region, family.name(), major)) {
                Err(error) if error.kind() != ErrorKind::Moved => return Err(errors::from_error(&error)),
                _ => {}
            }
        }
    }
    Ok(())
}

fn state(core: &MasterState, table: &TableName) -> Answer<CompactionState> {
    let entry = core.table(table)?;
    if !entry.descriptor.families().iter().any(|family| family.is_mob()) {
        return Ok(CompactionState::None);
    }
    for region in entry.live_regions() {
        match core.server_of(&region).and_then(|server| server.is_compacting(&region)) {
            Ok(true) => return Ok(CompactionState::MajorAndMinor),
            Err(error) if error.kind() != ErrorKind::Moved => return Err(errors::from_error(&error)),
            _ => {}
        }
    }
    Ok(CompactionState::None)
}
