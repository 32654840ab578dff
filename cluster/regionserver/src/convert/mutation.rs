use bytes::Bytes;
use halcyon_cell::{Cell, CellType, LATEST_TIMESTAMP};
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::{DeleteType, Durability as ProtoDurability, MutationType};
use halcyon_region::{ClusterIds, Condition, ConditionTest, Durability, Mutation, MutationKind, TimeRange};
use halcyon_rpc::RpcError;
use halcyon_schema::ClusterUuid;
use prost::Message;

use super::{attribute, check_row, time_range};
use crate::errors::invalid;

const TTL: &str = "_ttl";
const RETURN_RESULTS: &str = "_rr_";
/// Clusters that have the mutation (`Mutation.CONSUMED_CLUSTER_IDS`).
const CLUSTER_IDS: &str = "_cs.id";
/// A mutation passes through each cluster once.
const CLUSTER_IDS_COUNT_MAX: usize = 1024;
/// HBase's AccessController turns it into tags of the cells.
const ACL: &str = "acl";
/// HBase's VisibilityController turns it into tags of the cells.
const VISIBILITY: &str = "VISIBILITY";

/// The cells of a request's cell block, taken in order by the mutations that count them.
pub(crate) struct CellSource {
    cells: std::vec::IntoIter<Cell>,
}

impl CellSource {
    pub(crate) fn new(cells: Vec<Cell>) -> CellSource {
        CellSource { cells: cells.into_iter() }
    }

    fn take(&mut self, count: usize) -> Result<Vec<Cell>, RpcError> {
        if count > self.cells.len() {
            return Err(invalid(format!(
                "the cell block holds {} cells where a mutation counts {count}",
                self.cells.len()
            )));
        }
        if count == self.cells.len() {
            return Ok(std::mem::take(&mut self.cells).collect()); // reuses the allocation
        }
        Ok(self.cells.by_ref().take(count).collect())
    }

    /// Passes over the cells of a mutation that is not looked at.
    pub(crate) fn skip(&mut self, proto: &pb::MutationProto) {
        let count = cell_count(proto);
        if count > 0 {
            self.cells.nth(count - 1);
        }
    }
}

pub(super) fn cell_count(proto: &pb::MutationProto) -> usize {
    usize::try_from(proto.associated_cell_count()).unwrap_or(0)
}

/// A mutation of a request. Its cells are taken from `cells` in any case, so that the next one finds its own. Those of values are made
/// here; whoever calls it has looked how much these become ([`InlineCells`](super::InlineCells)).
pub(crate) fn mutation(proto: &pb::MutationProto, cells: &mut CellSource) -> Result<Mutation, RpcError> {
    let count = cell_count(proto);
    let block = if count > 0 { cells.take(count)? } else { Vec::new() };
    let kind = kind(proto)?;
    let row = match (&proto.row, block.first()) {
        (Some(row), _) if !row.is_empty() => row.clone(),
        (_, Some(cell)) => cell.bytes().slice_ref(cell.row()),
        _ => return Err(invalid("a mutation needs a row or cells")),
    };
    check_row(&row)?;
    check_protection(&proto.attribute)?;
    let timestamp = proto.timestamp.map_or(LATEST_TIMESTAMP, |timestamp| timestamp as i64);
    let cells = if count > 0 {
        check_block(&block, &row, kind)?;
        block
    } else {
        inline_cells(proto, &row, kind, timestamp)?
    };
    if kind == MutationKind::Increment && cells.iter().any(|cell| cell.value().len() != 8) {
        return Err(invalid("an Increment's amount is not eight bytes long"));
    }
    if cells.is_empty() && matches!(kind, MutationKind::Increment | MutationKind::Append) {
        return Err(invalid("an Increment or Append without a column"));
    }
    Ok(Mutation {
        kind,
        row,
        cells,
        timestamp,
        durability: durability(proto.durability()),
        time_range: time_range(proto.time_range.as_ref())?,
        return_results: attribute(&proto.attribute, RETURN_RESULTS)
            .is_none_or(|value| value.first().is_none_or(|&byte| byte != 0)),
        cell_ttl_ms: ttl(&proto.attribute)?,
        cluster_ids: cluster_ids(&proto.attribute)?,
    })
}

/// Refuses attributes that ask for protection which nothing here enforces. HBase without the coprocessor ignores them,
/// and cells that somebody wanted to protect are open to everybody.
fn check_protection(attributes: &[pb::NameBytesPair]) -> Result<(), RpcError> {
    for (name, protection, keeper) in [
        (ACL, "a cell ACL", "AccessController"),
        (VISIBILITY, "a visibility expression", "VisibilityController"),
    ] {
        if attribute(attributes, name).is_some() {
            return Err(invalid(format!(
                "The mutation carries {protection} (attribute {name}), but this server has no {keeper}: it would not be enforced"
            )));
        }
    }
    Ok(())
}

fn kind(proto: &pb::MutationProto) -> Result<MutationKind, RpcError> {
    let code = proto.mutate_type.unwrap_or(MutationType::Append as i32);
    Ok(match MutationType::try_from(code) {
        Ok(MutationType::Put) => MutationKind::Put,
        Ok(MutationType::Delete) => MutationKind::Delete,
        Ok(MutationType::Increment) => MutationKind::Increment,
        Ok(MutationType::Append) => MutationKind::Append,
        Err(_) => return Err(invalid(format!("Unsupported mutate type: {code}"))),
    })
}

fn durability(durability: ProtoDurability) -> Option<Durability> {
    match durability {
        ProtoDurability::UseDefault => None,
        ProtoDurability::SkipWal => Some(Durability::SkipWal),
        ProtoDurability::AsyncWal => Some(Durability::AsyncWal),
        ProtoDurability::SyncWal => Some(Durability::SyncWal),
        ProtoDurability::FsyncWal => Some(Durability::FsyncWal),
    }
}

/// The longest time to live means none, as in HBase: no tag is stored.
fn ttl(attributes: &[pb::NameBytesPair]) -> Result<Option<i64>, RpcError> {
    let Some(value) = attribute(attributes, TTL) else { return Ok(None) };
    let Ok(bytes) = <[u8; 8]>::try_from(&value[..]) else {
        return Err(invalid(format!("the {TTL} attribute has {} bytes, not 8", value.len())));
    };
    Ok(Some(i64::from_be_bytes(bytes)).filter(|&ttl_ms| ttl_ms != i64::MAX))
}

/// Clusters that have the mutation already: `int32 count | count * (int64 most, int64 least)` (`Mutation.setClusterIds`).
fn cluster_ids(attributes: &[pb::NameBytesPair]) -> Result<ClusterIds, RpcError> {
    let Some(value) = attribute(attributes, CLUSTER_IDS) else { return Ok(None) };
    let malformed = || invalid(format!("the {CLUSTER_IDS} attribute is no list of cluster ids"));
    let (count, value) = value.split_first_chunk().ok_or_else(malformed)?;
    let count = u32::from_be_bytes(*count) as usize;
    if count > CLUSTER_IDS_COUNT_MAX || value.len() != count * 16 {
        return Err(malformed());
    }
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    let ids =
        value.chunks_exact(16).map(|id| ClusterUuid { most: number(&id[..8]), least: number(&id[8..]) });
    Ok((count > 0).then(|| ids.collect()))
}

/// The attribute that [`cluster_ids`] reads.
pub(crate) fn cluster_ids_attribute(ids: &[ClusterUuid]) -> (&'static str, Vec<u8>) {
    let mut value = (ids.len() as u32).to_be_bytes().to_vec();
    for id in ids {
        value.extend_from_slice(&id.most.to_be_bytes());
        value.extend_from_slice(&id.least.to_be_bytes());
    }
    (CLUSTER_IDS, value)
}

/// What the parsing of a cell block left open: that the cells are this mutation's.
fn check_block(cells: &[Cell], row: &[u8], kind: MutationKind) -> Result<(), RpcError> {
    for cell in cells {
        if cell.row() != row {
            return Err(invalid("The row in the cell doesn't match the row of its mutation"));
        }
        let fits = match kind {
            MutationKind::Put => !matches!(cell.cell_type(), CellType::Minimum | CellType::Maximum),
            MutationKind::Delete => cell.cell_type().is_delete(),
            MutationKind::Increment | MutationKind::Append => cell.cell_type() == CellType::Put,
        };
        if !fits {
            return Err(invalid(format!("a cell of type {:?} in a {kind:?}", cell.cell_type())));
        }
    }
    Ok(())
}

fn inline_cells(
    proto: &pb::MutationProto,
    row: &[u8],
    kind: MutationKind,
    timestamp: i64,
) -> Result<Vec<Cell>, RpcError> {
    let count = proto.column_value.iter().map(|column| column.qualifier_value.len()).sum();
    let mut cells = Vec::with_capacity(count);
    for column in &proto.column_value {
        for value in &column.qualifier_value {
            cells.push(inline_cell(row, &column.family, value, kind, timestamp)?);
        }
    }
    Ok(cells)
}

fn inline_cell(
    row: &[u8],
    family: &[u8],
    value: &pb::mutation_proto::column_value::QualifierValue,
    kind: MutationKind,
    mutation_timestamp: i64,
) -> Result<Cell, RpcError> {
    let tags = value.tags.as_deref().unwrap_or(&[]);
    Cell::check_parts(row, family, tags).map_err(|error| invalid(error.message()))?;
    halcyon_cell::TagIterator::check(tags).map_err(|error| invalid(error.message()))?;
    let deletes = kind == MutationKind::Delete || (kind == MutationKind::Put && value.delete_type.is_some());
    let cell_type = if deletes { delete_type(value.delete_type()) } else { CellType::Put };
    if !deletes && value.value.is_none() {
        return Err(invalid("Missing required field: qualifier value"));
    }
    // A Delete's own timestamp is for Deletes without columns only.
    let absent = if kind == MutationKind::Delete { LATEST_TIMESTAMP } else { mutation_timestamp };
    let timestamp = value.timestamp.map_or(absent, |timestamp| timestamp as i64);
    if timestamp < 0 {
        return Err(invalid(format!("Timestamp cannot be negative. ts={timestamp}")));
    }
    let whole_family = matches!(cell_type, CellType::DeleteFamily | CellType::DeleteFamilyVersion);
    let qualifier = if whole_family { &[] } else { value.qualifier.as_deref().unwrap_or(&[]) };
    let bytes = value.value.as_deref().unwrap_or(&[]);
    Ok(Cell::build(row, family, qualifier, timestamp, cell_type, bytes, tags, 0))
}

fn delete_type(delete_type: DeleteType) -> CellType {
    match delete_type {
        DeleteType::DeleteOneVersion => CellType::Delete,
        DeleteType::DeleteMultipleVersions => CellType::DeleteColumn,
        DeleteType::DeleteFamily => CellType::DeleteFamily,
        DeleteType::DeleteFamilyVersion => CellType::DeleteFamilyVersion,
    }
}

/// The condition of a checkAndMutate, in either of its two forms.
pub(crate) fn condition(proto: &pb::Condition) -> Result<Condition, RpcError> {
    check_row(&proto.row)?;
    let time_range: TimeRange = time_range(proto.time_range.as_ref())?;
    let test = match &proto.filter {
        Some(filter) => ConditionTest::Filter(filter.clone()), // the region makes it, as often as it needs it
        None => column_test(proto)?,
    };
    Ok(Condition { row: proto.row.clone(), time_range, test })
}

fn column_test(proto: &pb::Condition) -> Result<ConditionTest, RpcError> {
    let Some(family) = proto.family.clone() else {
        return Err(invalid("a condition needs a filter or a family"));
    };
    let Some(op) = proto.compare_type else {
        return Err(invalid("a condition on a column needs a compare type"));
    };
    let op = pb::CompareType::try_from(op).map_err(|_| invalid(format!("unknown compare type {op}")))?;
    let Some(comparator) = &proto.comparator else {
        return Err(invalid("a condition on a column needs a comparator"));
    };
    let qualifier = proto.qualifier.clone().unwrap_or_default();
    Ok(ConditionTest::Column { family, qualifier, op, value: comparator_value(comparator)? })
}

/// The raw value that a comparator carries; its class does not matter otherwise (`HRegion.checkAndMutate`).
fn comparator_value(comparator: &pb::Comparator) -> Result<Bytes, RpcError> {
    let bytes = comparator.serialized_comparator.clone().unwrap_or_default();
    let bad = |error| invalid(format!("the bytes of {} cannot be decoded: {error}", comparator.name));
    let class = comparator.name.rsplit('.').next().unwrap_or_default();
    Ok(match class {
        "NullComparator" => Bytes::new(),
        "RegexStringComparator" => pb::RegexStringComparator::decode(bytes).map_err(bad)?.pattern.into(),
        "SubstringComparator" => pb::SubstringComparator::decode(bytes).map_err(bad)?.substr.into(),
        "BinaryComponentComparator" => pb::BinaryComponentComparator::decode(bytes).map_err(bad)?.value,
        "BinaryComparator"
        | "BinaryPrefixComparator"
        | "LongComparator"
        | "BigDecimalComparator"
        | "BitComparator" => {
            // All of them hold the value as their field 1.
            pb::BinaryComparator::decode(bytes).map_err(bad)?.comparable.value.unwrap_or_default()
        }
        _ => return Err(invalid(format!("unknown comparator class {}", comparator.name))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(attributes: Vec<pb::NameBytesPair>) -> Result<ClusterIds, RpcError> {
        cluster_ids(&attributes)
    }

    #[test]
    fn cluster_ids_are_read_as_they_are_written() {
        let ids = [ClusterUuid { most: 1, least: u64::MAX }, ClusterUuid { most: 7, least: 0 }];
        let pair =
            |value: Vec<u8>| vec![pb::NameBytesPair { name: CLUSTER_IDS.into(), value: Some(value.into()) }];
        let (name, value) = cluster_ids_attribute(&ids);
        assert_eq!(name, CLUSTER_IDS);
        assert_eq!(put(pair(value.clone())).unwrap().as_deref(), Some(&ids[..]));
        assert_eq!(put(Vec::new()).unwrap(), None);
        assert_eq!(put(pair(vec![0; 4])).unwrap(), None);
        for end in 0..value.len() {
            put(pair(value[..end].to_vec())).unwrap_err();
        }
        for count in [1u32, 3, 0x1000_0000, u32::MAX] {
            let mut wrong = value.clone();
            wrong[..4].copy_from_slice(&count.to_be_bytes());
            put(pair(wrong)).unwrap_err();
        }
    }
}
