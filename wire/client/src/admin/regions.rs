//! Regions: where they are, and what may be done with them.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName, TableName};
use prost::Message;

use super::{Admin, Nonces};
use crate::locations::{RegionLocation, specifier};
use crate::retry::Advice;
use crate::{ClientError, Connection};

/// What compactions a region or table has under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactionState {
    /// None.
    #[default]
    None,
    /// Minor ones.
    Minor,
    /// Major ones.
    Major,
    /// Both.
    MajorAndMinor,
}

impl CompactionState {
    fn of_pb(state: pb::get_region_info_response::CompactionState) -> CompactionState {
        use pb::get_region_info_response::CompactionState as Pb;
        match state {
            Pb::None => CompactionState::None,
            Pb::Minor => CompactionState::Minor,
            Pb::Major => CompactionState::Major,
            Pb::MajorAndMinor => CompactionState::MajorAndMinor,
        }
    }

    fn with(self, other: CompactionState) -> CompactionState {
        match (self, other) {
            (CompactionState::None, state) | (state, CompactionState::None) => state,
            (left, right) if left == right => left,
            _ => CompactionState::MajorAndMinor,
        }
    }
}

impl std::fmt::Display for CompactionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CompactionState::None => "NONE",
            CompactionState::Minor => "MINOR",
            CompactionState::Major => "MAJOR",
            CompactionState::MajorAndMinor => "MAJOR_AND_MINOR",
        })
    }
}

impl Admin {
    /// Regions of a table in the order of their keys. Parents of splits and replicas are left out.
    pub async fn regions(&self, table: &TableName) -> Result<Vec<RegionLocation>, ClientError> {
        let mut regions = self.cluster.read_regions(table).await?;
        regions.retain(|found| !found.region.is_split() && found.region.replica_id() == 0);
        if regions.is_empty() && !self.table_exists(table).await? {
            return Err(ClientError::exception("TableNotFoundException", table));
        }
        Ok(regions)
    }

    /// The region of a row, read from `hbase:meta`.
    pub async fn region_of_row(&self, table: &TableName, row: &[u8]) -> Result<RegionLocation, ClientError> {
        let regions = self.regions(table).await?;
        let found = regions.into_iter().find(|found| found.region.contains_row(row));
        found.ok_or_else(|| {
            ClientError::exception("UnknownRegionException", format!("{table}: no region has the row"))
        })
    }

    /// A region by its full or its encoded name.
    pub async fn region(&self, name: &[u8]) -> Result<RegionLocation, ClientError> {
        let unknown = || ClientError::exception("UnknownRegionException", String::from_utf8_lossy(name));
        let table = match halcyon_schema::parse_region_name(name) {
            Ok(parts) => Some(parts.table),
            Err(_) => None,
        };
        let tables = match table {
            Some(table) => vec![table],
            None if name == halcyon_schema::META_ENCODED_NAME.as_bytes() => vec![TableName::META],
            None => self.table_names(None, true).await?,
        };
        for table in tables {
            let regions = self.cluster.read_regions(&table).await?;
            let is_it = |found: &RegionLocation| {
                found.region.region_name() == name || found.region.encoded_name().as_bytes() == name
            };
            if let Some(found) = regions.into_iter().find(is_it) {
                return Ok(found);
            }
        }
        Err(unknown())
    }

    /// Rows at which the regions of a table begin, without the first one.
    pub async fn splits(&self, table: &TableName) -> Result<Vec<Bytes>, ClientError> {
        let regions = self.regions(table).await?;
        let starts = regions.into_iter().map(|found| found.region.start_key().clone());
        Ok(starts.filter(|start| !start.is_empty()).collect())
    }

    /// How many regions of a table servers have.
    pub async fn regions_count(&self, table: &TableName) -> Result<usize, ClientError> {
        Ok(self.regions(table).await?.iter().filter(|found| found.server.is_some()).count())
    }

    /// A call to the server that has a region; made again if the region moves meanwhile.
    async fn call_region<M: Message + Default>(
        &self,
        region: &RegionInfo,
        method: &str,
        request: &impl Message,
    ) -> Result<M, ClientError> {
        let regions = self.cluster.inner.locations.table(region.table());
        let (deadline, mut number, mut stale) = (self.cluster.deadline(), 0, None);
        loop {
            let mut location = None;
            let called = async {
                let seek = crate::locations::Seek::At(region.start_key());
                let found = self.cluster.locate(&regions, seek, stale, deadline).await?;
                let found = location.insert(found);
                let connection = found.server.admin(&self.cluster.inner.options).await?;
                let timeout = Some(self.time_of(method, deadline));
                let answer = connection.call_with_cells(method, request, None, timeout).await?;
                crate::table::decode(&answer)
            };
            let error = match called.await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if self.cluster.wait_to_retry_in(&regions, error, number, deadline).await? == Advice::Relocate {
                stale = location.map(|location: Arc<_>| location.generation).or(stale);
            }
            number += 1;
        }
    }

    /// The connection to the `AdminService` of a server.
    pub(super) async fn server(&self, server: &ServerName) -> Result<Arc<Connection>, ClientError> {
        self.cluster.server(&server.address()).admin(&self.cluster.inner.options).await
    }

    /// Regions of a table that a server has.
    async fn open_regions(&self, table: &TableName) -> Result<Vec<RegionInfo>, ClientError> {
        let regions = self.regions(table).await?.into_iter();
        Ok(regions.filter(|found| found.server.is_some()).map(|found| found.region).collect())
    }

    /// Flushes all regions of a table.
    pub async fn flush(&self, table: &TableName) -> Result<(), ClientError> {
        for region in self.open_regions(table).await? {
            self.flush_region(&region, None).await?;
        }
        Ok(())
    }

    /// Flushes a region, or one family of it.
    pub async fn flush_region(&self, region: &RegionInfo, family: Option<&[u8]>) -> Result<(), ClientError> {
        let family = family.map(Bytes::copy_from_slice);
        let request = pb::FlushRegionRequest { region: specifier(region), family, ..Default::default() };
        let _: pb::FlushRegionResponse = self.call_region(region, "FlushRegion", &request).await?;
        Ok(())
    }

    /// Asks for a minor compaction of a table, or of one family; it runs in the background.
    pub async fn compact(&self, table: &TableName, family: Option<&[u8]>) -> Result<(), ClientError> {
        for region in self.open_regions(table).await? {
            self.compact_region(&region, family).await?;
        }
        Ok(())
    }

    /// Asks for a major compaction of a table, or of one family; it runs in the background.
    pub async fn major_compact(&self, table: &TableName, family: Option<&[u8]>) -> Result<(), ClientError> {
        for region in self.open_regions(table).await? {
            self.major_compact_region(&region, family).await?;
        }
        Ok(())
    }

    /// Asks for a minor compaction of a region, or of one family; it runs in the background.
    pub async fn compact_region(
        &self,
        region: &RegionInfo,
        family: Option<&[u8]>,
    ) -> Result<(), ClientError> {
        self.compact_one(region, family, false).await
    }

    /// Asks for a major compaction of a region, or of one family; it runs in the background.
    pub async fn major_compact_region(
        &self,
        region: &RegionInfo,
        family: Option<&[u8]>,
    ) -> Result<(), ClientError> {
        self.compact_one(region, family, true).await
    }

    async fn compact_one(
        &self,
        region: &RegionInfo,
        family: Option<&[u8]>,
        major: bool,
    ) -> Result<(), ClientError> {
        let family = family.map(Bytes::copy_from_slice);
        let request = pb::CompactRegionRequest { region: specifier(region), major: Some(major), family };
        let _: pb::CompactRegionResponse = self.call_region(region, "CompactRegion", &request).await?;
        Ok(())
    }

    /// Compactions of a table that are under way.
    pub async fn compaction_state(&self, table: &TableName) -> Result<CompactionState, ClientError> {
        let mut state = CompactionState::None;
        for region in self.open_regions(table).await? {
            state = state.with(self.region_compaction_state(&region).await?);
        }
        Ok(state)
    }

    /// Compactions of a region that are under way.
    pub async fn region_compaction_state(&self, region: &RegionInfo) -> Result<CompactionState, ClientError> {
        let answer = self.region_info(region, false).await?;
        Ok(CompactionState::of_pb(answer.compaction_state()))
    }

    /// When the last major compaction of a table ended, in milliseconds since 1970; 0 if there was none.
    pub async fn last_major_compaction(&self, table: &TableName) -> Result<i64, ClientError> {
        let request = pb::MajorCompactionTimestampRequest { table_name: table.to_pb() };
        let answer: pb::MajorCompactionTimestampResponse =
            self.call("getLastMajorCompactionTimestamp", &request).await?;
        Ok(answer.compaction_timestamp)
    }

    async fn region_info(
        &self,
        region: &RegionInfo,
        with_split_row: bool,
    ) -> Result<pb::GetRegionInfoResponse, ClientError> {
        let request = pb::GetRegionInfoRequest {
            region: specifier(region),
            compaction_state: Some(true),
            best_split_row: Some(with_split_row),
        };
        self.call_region(region, "GetRegionInfo", &request).await
    }

    /// Splits each region of a table, or, at a row, the one region that has the row. Regions that are too small to split
    /// are left alone; that is an error if no region was split.
    pub async fn split_table(&self, table: &TableName, row: Option<&[u8]>) -> Result<(), ClientError> {
        let regions = self.open_regions(table).await?;
        if let Some(row) = row {
            let region = regions.iter().find(|region| region.contains_row(row));
            let none = || {
                ClientError::exception(
                    "UnknownRegionException",
                    format!("{table}: no open region has the row"),
                )
            };
            return self.split_region(region.ok_or_else(none)?, Some(row)).await;
        }
        let (mut split_count, mut last) = (0, None);
        for region in &regions {
            match self.split_region(region, None).await {
                Ok(()) => split_count += 1,
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if split_count == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// Splits a region at a row, or where its server finds its middle.
    pub async fn split_region(&self, region: &RegionInfo, row: Option<&[u8]>) -> Result<(), ClientError> {
        let split_row = match row {
            Some(row) => Some(Bytes::copy_from_slice(row)),
            None => self.region_info(region, true).await?.best_split_row.filter(|row| !row.is_empty()),
        };
        let Some(split_row) = split_row else {
            let text = format!("region {} is too small to split; name a row", region.encoded_name());
            return Err(ClientError::exception("DoNotRetryIOException", text));
        };
        let Nonces { group, nonce } = self.nonces();
        let request = pb::SplitTableRegionRequest {
            region_info: region.to_pb(),
            split_row: Some(split_row),
            nonce_group: group,
            nonce,
        };
        let answer: pb::SplitTableRegionResponse = self.call("SplitRegion", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Merges regions, which must be neighbours unless `force` is set, by full or encoded names.
    pub async fn merge_regions<N: AsRef<[u8]>>(
        &self,
        regions: impl IntoIterator<Item = N>,
        force: bool,
    ) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let request = pb::MergeTableRegionsRequest {
            region: regions.into_iter().map(|name| named(name.as_ref())).collect(),
            forcible: Some(force),
            nonce_group: group,
            nonce,
        };
        let answer: pb::MergeTableRegionsResponse = self.call("MergeTableRegions", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Moves a region, by its encoded name, to a server, or to one that the master chooses.
    pub async fn move_region(
        &self,
        encoded_name: &str,
        server: Option<&ServerName>,
    ) -> Result<(), ClientError> {
        let request = pb::MoveRegionRequest {
            region: named(encoded_name.as_bytes()),
            dest_server_name: server.map(ServerName::to_pb),
        };
        let _: pb::MoveRegionResponse = self.call("MoveRegion", &request).await?;
        Ok(())
    }

    /// A region by its full name, which is all that HBase's master understands in some calls.
    async fn full_name(&self, name: &[u8]) -> Result<pb::RegionSpecifier, ClientError> {
        match name.contains(&b',') {
            true => Ok(named(name)),
            false => Ok(specifier(&self.region(name).await?.region)),
        }
    }

    /// Opens a region that is closed, by its full or encoded name.
    pub async fn assign_region(&self, name: &[u8]) -> Result<(), ClientError> {
        let request = pb::AssignRegionRequest { region: self.full_name(name).await?, ..Default::default() };
        let _: pb::AssignRegionResponse = self.call("AssignRegion", &request).await?;
        Ok(())
    }

    /// Closes a region, by its full or encoded name.
    pub async fn unassign_region(&self, name: &[u8], force: bool) -> Result<(), ClientError> {
        let request = pb::UnassignRegionRequest { region: self.full_name(name).await?, force: Some(force) };
        let _: pb::UnassignRegionResponse = self.call("UnassignRegion", &request).await?;
        Ok(())
    }
}

/// A region by its encoded name, which has no comma, or by its full one.
pub(super) fn named(name: &[u8]) -> pb::RegionSpecifier {
    use pb::region_specifier::RegionSpecifierType::{EncodedRegionName, RegionName};
    let kind = if name.contains(&b',') { RegionName } else { EncodedRegionName };
    pb::RegionSpecifier { r#type: kind as i32, value: Bytes::copy_from_slice(name) }
}
