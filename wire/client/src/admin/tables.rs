//! Tables.

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::{FamilyDescriptor, TableDescriptor, TableName};

use super::{Admin, Nonces};
use crate::ClientError;

/// Whether clients may use a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// Its regions are open.
    Enabled,
    /// Its regions are closed.
    Disabled,
    /// Its regions are being opened.
    Enabling,
    /// Its regions are being closed.
    Disabling,
}

impl TableState {
    pub(super) fn of_pb(state: pb::table_state::State) -> TableState {
        match state {
            pb::table_state::State::Enabled => TableState::Enabled,
            pb::table_state::State::Disabled => TableState::Disabled,
            pb::table_state::State::Enabling => TableState::Enabling,
            pb::table_state::State::Disabling => TableState::Disabling,
        }
    }

    pub(super) fn to_pb(self) -> pb::table_state::State {
        match self {
            TableState::Enabled => pb::table_state::State::Enabled,
            TableState::Disabled => pb::table_state::State::Disabled,
            TableState::Enabling => pb::table_state::State::Enabling,
            TableState::Disabling => pb::table_state::State::Disabling,
        }
    }
}

/// How far a change of a table has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlterStatus {
    /// Regions that do not have the change yet.
    pub regions_pending: u32,
    /// Regions of the table.
    pub regions_total: u32,
}

fn descriptors(schemas: &[pb::TableSchema]) -> Result<Vec<TableDescriptor>, ClientError> {
    let descriptors =
        schemas.iter().map(|schema| TableDescriptor::from_pb(schema).map_err(ClientError::malformed));
    descriptors.collect()
}

pub(super) fn names(names: &[pb::TableName]) -> Result<Vec<TableName>, ClientError> {
    names.iter().map(|name| TableName::from_pb(name).map_err(ClientError::malformed)).collect()
}

impl Admin {
    /// Names of tables, sorted. `pattern` is a Java pattern for the whole name (`t.*`); system tables only if wanted.
    pub async fn table_names(
        &self,
        pattern: Option<&str>,
        with_system: bool,
    ) -> Result<Vec<TableName>, ClientError> {
        let regex = pattern.map(str::to_string);
        let request =
            pb::GetTableNamesRequest { regex, include_sys_tables: Some(with_system), namespace: None };
        let answer: pb::GetTableNamesResponse = self.call("GetTableNames", &request).await?;
        let mut names = names(&answer.table_names)?;
        names.sort_by(|left, right| left.full_name().cmp(right.full_name()));
        Ok(names)
    }

    /// Descriptors of tables, by a pattern for the whole name.
    pub async fn descriptors(
        &self,
        pattern: Option<&str>,
        with_system: bool,
    ) -> Result<Vec<TableDescriptor>, ClientError> {
        let request = pb::GetTableDescriptorsRequest {
            regex: pattern.map(str::to_string),
            include_sys_tables: Some(with_system),
            ..Default::default()
        };
        let answer: pb::GetTableDescriptorsResponse = self.call("GetTableDescriptors", &request).await?;
        descriptors(&answer.table_schema)
    }

    /// A table's descriptor; `None` if there is no such table.
    pub async fn descriptor(&self, table: &TableName) -> Result<Option<TableDescriptor>, ClientError> {
        let request =
            pb::GetTableDescriptorsRequest { table_names: vec![table.to_pb()], ..Default::default() };
        let answer: Result<pb::GetTableDescriptorsResponse, _> =
            self.call("GetTableDescriptors", &request).await;
        match answer {
            Ok(answer) => Ok(descriptors(&answer.table_schema)?.into_iter().next()),
            Err(error) if error.is_exception("TableNotFoundException") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A table's descriptor; an error if there is no such table.
    pub async fn describe(&self, table: &TableName) -> Result<TableDescriptor, ClientError> {
        let found = self.descriptor(table).await?;
        found.ok_or_else(|| ClientError::exception("TableNotFoundException", table))
    }

    /// Whether a table exists.
    pub async fn table_exists(&self, table: &TableName) -> Result<bool, ClientError> {
        Ok(table.is_meta() || self.cluster.read_table_state(table).await?.is_some())
    }

    /// Whether clients may use a table; an error if there is no such table.
    pub async fn table_state(&self, table: &TableName) -> Result<TableState, ClientError> {
        let request = pb::GetTableStateRequest { table_name: table.to_pb() };
        let answer: pb::GetTableStateResponse = self.call("GetTableState", &request).await?;
        Ok(TableState::of_pb(answer.table_state.state()))
    }

    /// Creates a table whose regions begin at these rows, and waits until it can be used.
    pub async fn create_table(&self, table: &TableDescriptor, splits: Vec<Bytes>) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let request = pb::CreateTableRequest {
            table_schema: table.to_pb(),
            split_keys: splits,
            nonce_group: group,
            nonce,
        };
        let answer: pb::CreateTableResponse = self.call("CreateTable", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Replaces a table's descriptor. An enabled table stays usable: its regions are reopened one after the other.
    pub async fn modify_table(&self, table: &TableDescriptor) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let request = pb::ModifyTableRequest {
            table_name: table.name().to_pb(),
            table_schema: table.to_pb(),
            nonce_group: group,
            nonce,
            reopen_regions: Some(true),
        };
        let answer: pb::ModifyTableResponse = self.call("ModifyTable", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Adds a family to a table.
    pub async fn add_family(&self, table: &TableName, family: &FamilyDescriptor) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let request = pb::AddColumnRequest {
            table_name: table.to_pb(),
            column_families: family.to_pb(),
            nonce_group: group,
            nonce,
        };
        let answer: pb::AddColumnResponse = self.call("AddColumn", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Replaces a family of a table.
    pub async fn modify_family(
        &self,
        table: &TableName,
        family: &FamilyDescriptor,
    ) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let request = pb::ModifyColumnRequest {
            table_name: table.to_pb(),
            column_families: family.to_pb(),
            nonce_group: group,
            nonce,
        };
        let answer: pb::ModifyColumnResponse = self.call("ModifyColumn", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Deletes a family and its cells.
    pub async fn delete_family(&self, table: &TableName, family: &[u8]) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let request = pb::DeleteColumnRequest {
            table_name: table.to_pb(),
            column_name: Bytes::copy_from_slice(family),
            nonce_group: group,
            nonce,
        };
        let answer: pb::DeleteColumnResponse = self.call("DeleteColumn", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// How far a change of a table has come.
    pub async fn alter_status(&self, table: &TableName) -> Result<AlterStatus, ClientError> {
        let request = pb::GetSchemaAlterStatusRequest { table_name: table.to_pb() };
        let answer: pb::GetSchemaAlterStatusResponse = self.call("GetSchemaAlterStatus", &request).await?;
        Ok(AlterStatus {
            regions_pending: answer.yet_to_update_regions.unwrap_or(0),
            regions_total: answer.total_regions.unwrap_or(0),
        })
    }

    /// Opens the regions of a disabled table.
    pub async fn enable_table(&self, table: &TableName) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let request = pb::EnableTableRequest { table_name: table.to_pb(), nonce_group: group, nonce };
        let answer: pb::EnableTableResponse = self.call("EnableTable", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Closes the regions of an enabled table.
    pub async fn disable_table(&self, table: &TableName) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let request = pb::DisableTableRequest { table_name: table.to_pb(), nonce_group: group, nonce };
        let answer: pb::DisableTableResponse = self.call("DisableTable", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Deletes a disabled table and its cells.
    pub async fn delete_table(&self, table: &TableName) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let request = pb::DeleteTableRequest { table_name: table.to_pb(), nonce_group: group, nonce };
        let answer: pb::DeleteTableResponse = self.call("DeleteTable", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Disables a table, if it is enabled, and deletes it.
    pub async fn drop_table(&self, table: &TableName) -> Result<(), ClientError> {
        if self.table_state(table).await? == TableState::Enabled {
            self.disable_table(table).await?;
        }
        self.delete_table(table).await
    }

    /// Deletes all cells of a disabled table and enables it. Without `preserve_splits` it has one region afterwards.
    pub async fn truncate_table(&self, table: &TableName, preserve_splits: bool) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let request = pb::TruncateTableRequest {
            table_name: table.to_pb(),
            preserve_splits: Some(preserve_splits),
            nonce_group: group,
            nonce,
        };
        let answer: pb::TruncateTableResponse = self.call("truncateTable", &request).await?;
        self.finish(answer.proc_id).await
    }
}
