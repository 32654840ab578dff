//! The commands of `hbase:meta`: regions that do not exist, written as a master writes them, looked up, and removed.
//!
//! Their start keys are numbers with zeros before, as long as the number of a client's rows. From metaWrite to cleanMeta
//! clients that look for the table's rows meet regions that no server has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType};
use halcyon_client::{ClientError, Cluster, Mutation, Table};
use halcyon_env::{Clock, Env};
use halcyon_proto::pb::mutation_proto::MutationType;
use halcyon_schema::{RegionInfo, TableName};

use crate::pe::found::Found;
use crate::pe::options::{Command, Options};
use crate::random::Random;

const FAMILY: &[u8] = b"info";
/// Where the regions are said to be; nobody is there.
const SERVER: &str = "localhost:60010";

pub(super) struct Meta {
    cluster: Cluster,
    /// Of the regions.
    name: TableName,
    meta: Table,
    slot: usize,
    options: Arc<Options>,
    clock: Arc<dyn Clock>,
    found: Arc<Found>,
    key_len: usize,
}

impl Meta {
    pub fn new(
        cluster: &Cluster,
        name: &TableName,
        options: Arc<Options>,
        slot: usize,
        env: &Env,
        found: Arc<Found>,
    ) -> Meta {
        Meta {
            cluster: cluster.clone(),
            name: name.clone(),
            meta: cluster.table(TableName::META, slot),
            slot,
            key_len: options.rows_per_client.to_string().len(),
            options,
            clock: Arc::clone(&env.clock),
            found,
        }
    }

    pub async fn row(&mut self, number: u64, random: &mut Random) -> Result<bool, ClientError> {
        match self.options.args.command {
            Command::MetaWrite => self.write(number, random).await?,
            Command::MetaRandomRead => self.read(random).await?,
            _ => self.clean(number).await?,
        }
        Ok(true)
    }

    fn key(&self, number: u64) -> Bytes {
        Bytes::from(format!("{number:0len$}", len = self.key_len))
    }

    /// `MetaTableAccessor.addRegionsToMeta`, then `updateRegionLocation`.
    async fn write(&self, number: u64, random: &mut Random) -> Result<(), ClientError> {
        let now_ms = self.clock.now_ms();
        let (start, end) = (self.key(number), self.key(number + 1));
        let info = RegionInfo::new(self.name.clone(), start, end, now_ms.unsigned_abs());
        let (row, value) = (info.region_name(), info.encode_value());
        let cell = |qualifier: &[u8], value: &[u8]| Cell::put(row, FAMILY, qualifier, now_ms, value);
        let added = vec![cell(b"regioninfo", &value), cell(b"state", b"CLOSED")];
        self.meta.mutate(&Mutation::put(row.clone(), added)).await?;
        let located = vec![
            cell(b"regioninfo", &value),
            cell(b"seqnumDuringOpen", &number.to_be_bytes()),
            cell(b"server", SERVER.as_bytes()),
            cell(b"serverstartcode", &random.next_u64().to_be_bytes()),
        ];
        self.meta.mutate(&Mutation::put(row.clone(), located)).await?;
        Ok(())
    }

    async fn read(&self, random: &mut Random) -> Result<(), ClientError> {
        let sleep_ms = self.options.args.random_sleep;
        if sleep_ms > 0 {
            tokio::time::sleep(Duration::from_millis(random.below(sleep_ms))).await;
        }
        let key = self.key(random.below(self.options.rows_per_client));
        let location = self.cluster.read_location(&self.name, &key, self.slot).await?;
        self.found.region(location.is_some());
        Ok(())
    }

    /// Removes a region if it is one of ours: another one that has the key is real.
    async fn clean(&self, number: u64) -> Result<(), ClientError> {
        let key = self.key(number);
        let location = self.cluster.read_location(&self.name, &key, self.slot).await?;
        let ours = location.filter(|(info, server)| *info.start_key() == key && server == SERVER);
        self.found.region(ours.is_some());
        let Some((info, _)) = ours else { return Ok(()) };
        let row = info.region_name();
        let marker = Cell::build(row, FAMILY, b"", i64::MAX, CellType::DeleteFamily, b"", b"", 0);
        let mutation = Mutation::new(MutationType::Delete, row.clone(), vec![marker]);
        self.meta.mutate(&mutation).await?;
        Ok(())
    }
}
