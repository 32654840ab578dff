//! Groups of region servers: a table is on the servers of one group.
//!
//! They are a coprocessor of the master (`RSGroupAdminService`), which HBase 3 has for clients of HBase 2.
//! A master without groups answers with an `UnknownProtocolException`.

use std::collections::BTreeMap;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::{ServerName, TableName};
use prost::Message;

use super::{Admin, servers, tables};
use crate::ClientError;

const SERVICE: &str = "RSGroupAdminService";

/// A group of region servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerGroup {
    /// Its name.
    pub name: String,
    /// Its servers by host and port, sorted; their start codes are unknown. Dead ones stay in their group.
    pub servers: Vec<ServerName>,
    /// Its tables, sorted.
    pub tables: Vec<TableName>,
    /// Settings of its own.
    pub configuration: BTreeMap<String, String>,
}

/// What a run of the balancer over one group did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupBalance {
    /// Whether it ran.
    pub ran: bool,
    /// Moves of regions that it wanted.
    pub moves_calculated: u32,
    /// Moves that it began.
    pub moves_executed: u32,
}

impl ServerGroup {
    fn of_pb(info: pb::RsGroupInfo) -> Result<ServerGroup, ClientError> {
        let (mut servers, mut tables) = (servers::names(&info.servers)?, tables::names(&info.tables)?);
        servers.sort();
        tables.sort();
        let configuration = info.configuration.into_iter().map(|pair| (pair.name, pair.value)).collect();
        Ok(ServerGroup { name: info.name, servers, tables, configuration })
    }
}

fn servers_to_pb(servers: &[ServerName]) -> Vec<pb::ServerName> {
    servers.iter().map(ServerName::to_pb).collect()
}

/// What servers say of a group that they do not have.
fn refused(why: impl std::fmt::Display) -> ClientError {
    ClientError::exception("constraint.ConstraintException", why)
}

impl Admin {
    async fn call_groups<M: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<M, ClientError> {
        let call = pb::CoprocessorServiceCall {
            row: Bytes::new(),
            service_name: SERVICE.to_string(),
            method_name: method.to_string(),
            request: request.encode_to_vec().into(),
        };
        // a master has no regions, and the field is required
        let kind = pb::region_specifier::RegionSpecifierType::RegionName as i32;
        let region = pb::RegionSpecifier { r#type: kind, value: Bytes::new() };
        let request = pb::CoprocessorServiceRequest { region, call };
        let answer: pb::CoprocessorServiceResponse = self.call("ExecMasterService", &request).await?;
        M::decode(answer.value.value.unwrap_or_default()).map_err(ClientError::malformed)
    }

    /// All groups, sorted by name.
    pub async fn groups(&self) -> Result<Vec<ServerGroup>, ClientError> {
        let answer: pb::ListRsGroupInfosResponse =
            self.call_groups("ListRSGroupInfos", &pb::ListRsGroupInfosRequest {}).await?;
        let groups = answer.r_s_group_info.into_iter().map(ServerGroup::of_pb);
        let mut groups: Vec<ServerGroup> = groups.collect::<Result<_, _>>()?;
        groups.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(groups)
    }

    /// A group; an error if there is none of this name.
    pub async fn group(&self, name: &str) -> Result<ServerGroup, ClientError> {
        let request = pb::GetRsGroupInfoRequest { r_s_group_name: name.to_string() };
        let answer: pb::GetRsGroupInfoResponse = self.call_groups("GetRSGroupInfo", &request).await?;
        let none = || refused(format_args!("RSGroup {name} does not exist"));
        ServerGroup::of_pb(answer.r_s_group_info.ok_or_else(none)?)
    }

    /// The group of a server, which is known by host and port; an error if it is in none.
    pub async fn group_of_server(&self, server: &ServerName) -> Result<ServerGroup, ClientError> {
        let request = pb::GetRsGroupInfoOfServerRequest { server: server.to_pb() };
        let answer: pb::GetRsGroupInfoOfServerResponse =
            self.call_groups("GetRSGroupInfoOfServer", &request).await?;
        let none = || refused(format_args!("Server {} has no group", server.address()));
        ServerGroup::of_pb(answer.r_s_group_info.ok_or_else(none)?)
    }

    /// The group of a table; an error if there is no such table.
    pub async fn group_of_table(&self, table: &TableName) -> Result<ServerGroup, ClientError> {
        let request = pb::GetRsGroupInfoOfTableRequest { table_name: table.to_pb() };
        let answer: pb::GetRsGroupInfoOfTableResponse =
            self.call_groups("GetRSGroupInfoOfTable", &request).await?;
        let none = || ClientError::exception("TableNotFoundException", table);
        ServerGroup::of_pb(answer.r_s_group_info.ok_or_else(none)?)
    }

    /// Adds an empty group.
    pub async fn add_group(&self, name: &str) -> Result<(), ClientError> {
        let request = pb::AddRsGroupRequest { r_s_group_name: name.to_string() };
        let _: pb::AddRsGroupResponse = self.call_groups("AddRSGroup", &request).await?;
        Ok(())
    }

    /// Removes a group without servers and tables.
    pub async fn remove_group(&self, name: &str) -> Result<(), ClientError> {
        let request = pb::RemoveRsGroupRequest { r_s_group_name: name.to_string() };
        let _: pb::RemoveRsGroupResponse = self.call_groups("RemoveRSGroup", &request).await?;
        Ok(())
    }

    /// Gives a group another name.
    pub async fn rename_group(&self, old: &str, new: &str) -> Result<(), ClientError> {
        let request =
            pb::RenameRsGroupRequest { old_rsgroup_name: old.to_string(), new_rsgroup_name: new.to_string() };
        let _: pb::RenameRsGroupResponse = self.call_groups("RenameRSGroup", &request).await?;
        Ok(())
    }

    /// Moves servers of one group to another one. Regions of tables that stay behind leave the servers first.
    pub async fn move_servers_to_group(
        &self,
        servers: &[ServerName],
        group: &str,
    ) -> Result<(), ClientError> {
        let request =
            pb::MoveServersRequest { target_group: group.to_string(), servers: servers_to_pb(servers) };
        let _: pb::MoveServersResponse = self.call_groups("MoveServers", &request).await?;
        Ok(())
    }

    /// Moves tables to a group, and their regions to its servers.
    pub async fn move_tables_to_group(&self, tables: &[TableName], group: &str) -> Result<(), ClientError> {
        let table_name = self.existing_tables(tables).await?;
        let request = pb::MoveTablesRequest { target_group: group.to_string(), table_name };
        let _: pb::MoveTablesResponse = self.call_groups("MoveTables", &request).await?;
        Ok(())
    }

    /// Moves servers and tables of one group to another one.
    pub async fn move_to_group(
        &self,
        servers: &[ServerName],
        tables: &[TableName],
        group: &str,
    ) -> Result<(), ClientError> {
        let request = pb::MoveServersAndTablesRequest {
            target_group: group.to_string(),
            servers: servers_to_pb(servers),
            table_name: self.existing_tables(tables).await?,
        };
        let _: pb::MoveServersAndTablesResponse = self.call_groups("MoveServersAndTables", &request).await?;
        Ok(())
    }

    /// Masters put names of tables that do not exist into groups. HBase's client looks, too.
    async fn existing_tables(&self, tables: &[TableName]) -> Result<Vec<pb::TableName>, ClientError> {
        for table in tables {
            if !self.table_exists(table).await? {
                return Err(ClientError::exception("TableNotFoundException", table));
            }
        }
        Ok(tables.iter().map(TableName::to_pb).collect())
    }

    /// Takes servers out of their groups that are decommissioned, or gone for good.
    pub async fn remove_servers_from_groups(&self, servers: &[ServerName]) -> Result<(), ClientError> {
        let request = pb::RemoveServersRequest { servers: servers_to_pb(servers) };
        let _: pb::RemoveServersResponse = self.call_groups("RemoveServers", &request).await?;
        Ok(())
    }

    /// Runs the balancer once over the servers of a group. `force`: even while regions are in transition.
    /// `dry_run`: nothing moves.
    pub async fn balance_group(
        &self,
        name: &str,
        force: bool,
        dry_run: bool,
    ) -> Result<GroupBalance, ClientError> {
        let request = pb::BalanceRsGroupRequest {
            r_s_group_name: name.to_string(),
            ignore_rit: Some(force),
            dry_run: Some(dry_run),
        };
        let answer: pb::BalanceRsGroupResponse = self.call_groups("BalanceRSGroup", &request).await?;
        Ok(GroupBalance {
            ran: answer.balance_ran,
            moves_calculated: answer.moves_calculated.unwrap_or(0),
            moves_executed: answer.moves_executed.unwrap_or(0),
        })
    }

    /// Replaces a group's settings.
    pub async fn set_group_configuration(
        &self,
        name: &str,
        configuration: &BTreeMap<String, String>,
    ) -> Result<(), ClientError> {
        let setting = |(name, value): (&String, &String)| pb::NameStringPair {
            name: name.clone(),
            value: value.clone(),
        };
        let configuration = configuration.iter().map(setting).collect();
        let request = pb::UpdateRsGroupConfigRequest { group_name: name.to_string(), configuration };
        let _: pb::UpdateRsGroupConfigResponse = self.call_groups("UpdateRSGroupConfig", &request).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_sorted() {
        let table = |name: &[u8]| TableName::parse(name).unwrap();
        let server = |port| ServerName::new("h", port, -1);
        let setting = |name: &str| pb::NameStringPair { name: name.to_string(), value: "v".to_string() };
        let info = pb::RsGroupInfo {
            name: "g".to_string(),
            tables: vec![table(b"u").to_pb(), table(b"t").to_pb()],
            servers: vec![server(16021).to_pb(), server(16020).to_pb()],
            configuration: vec![setting("b"), setting("a")],
        };
        let group = ServerGroup::of_pb(info).unwrap();
        assert_eq!(group.servers, [server(16020), server(16021)]);
        assert_eq!(group.tables, [table(b"t"), table(b"u")]);
        assert_eq!(group.configuration.into_keys().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_bad_name_is_malformed() {
        let table = pb::RsGroupInfo { tables: vec![pb::TableName::default()], ..Default::default() };
        assert!(matches!(ServerGroup::of_pb(table), Err(ClientError::Malformed(_))));
        let server = pb::ServerName { port: Some(65_536), ..Default::default() };
        let server = pb::RsGroupInfo { servers: vec![server], ..Default::default() };
        assert!(matches!(ServerGroup::of_pb(server), Err(ClientError::Malformed(_))));
    }
}
