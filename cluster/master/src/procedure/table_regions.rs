//! The payload of procedures about a table and some of its regions.
//!
//! ```text
//! 1 TableName | 2 RegionInfo ...      of delete_table, clean_regions and fix_regions
//! ```

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;

use super::payload;

pub(super) struct TableRegions {
    pub(super) table: TableName,
    pub(super) regions: Vec<RegionInfo>,
}

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, required, tag = "1")]
    table: pb::TableName,
    #[prost(message, repeated, tag = "2")]
    regions: Vec<pb::RegionInfo>,
}

impl TableRegions {
    /// Of a procedure whose `prepare` decides on the regions.
    pub(super) fn of(table: TableName) -> TableRegions {
        TableRegions { table, regions: Vec::new() }
    }

    pub(super) fn decode(kind: &str, bytes: &[u8]) -> Result<TableRegions> {
        let payload: Payload = payload(kind, bytes)?;
        Ok(TableRegions { table: TableName::from_pb(&payload.table)?, regions: infos(&payload.regions)? })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        Payload { table: self.table.to_pb(), regions: messages(&self.regions) }.encode_to_vec()
    }
}

pub(super) fn infos(regions: &[pb::RegionInfo]) -> Result<Vec<RegionInfo>> {
    regions.iter().map(RegionInfo::from_pb).collect()
}

pub(super) fn messages(regions: &[RegionInfo]) -> Vec<pb::RegionInfo> {
    regions.iter().map(RegionInfo::to_pb).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of procedures that were under way when the program was replaced must stay readable.
    #[test]
    fn the_bytes_stay_as_they_were() {
        let table = TableName::parse(b"n:t").unwrap();
        let region = RegionInfo::new(table.clone(), "a".into(), "b".into(), 7);
        let payload = TableRegions { table: table.clone(), regions: vec![region.clone()] };
        let (name, info) = (table.to_pb().encode_to_vec(), region.to_pb().encode_to_vec());
        let field = |tag: u8, bytes: &[u8]| [&[tag << 3 | 2, bytes.len() as u8], bytes].concat();
        let expected = [field(1, &name), field(2, &info)].concat();
        assert_eq!(payload.encode(), expected);
        let read = TableRegions::decode("x", &expected).unwrap();
        assert_eq!((read.table, read.regions), (table, vec![region]));
    }
}
