use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind, ROW_LEN_MAX};
use halcyon_env::{Impatience, Patience};
use halcyon_filter::{Filter, parse_filter};
use halcyon_proto::pb;
use halcyon_region::{MobScan, Scan, TimeRange};
use halcyon_rpc::RpcError;
use prost::Message;

use super::{attribute, check_row, time_range};
use crate::errors::invalid;
use crate::service::CallError;

const RAW: &str = "_raw_";
const ISOLATION_LEVEL: &str = "_isolationlevel_";
const READ_UNCOMMITTED: u8 = 2;

/// A Get as a scan of its row.
///
/// The authorizations of a Get or Scan (attribute `VISIBILITY`) are accepted and ignored, as by HBase without its
/// VisibilityController. No cell here has a visibility expression, because mutations that carry one are refused. Cells
/// without an expression are visible whatever the authorizations are.
///
/// Ends in `NeedsDisk` where the filter's expressions take longer to build, or the columns to sort, than this thread may.
pub(crate) fn get(get: &pb::Get) -> Result<Scan, CallError> {
    check_row(&get.row)?;
    let mut scan = Scan::of_row(get.row.clone());
    scan.families = families(&get.column)?;
    scan.max_versions = max_versions(get.max_versions)?;
    scan.time_range = time_range(get.time_range.as_ref())?;
    scan.family_time_ranges = family_time_ranges(&get.cf_time_range)?;
    scan.filter = filter(get.filter.as_ref())?;
    scan.store_limit = store_limit(get.store_limit);
    scan.store_offset = get.store_offset.unwrap_or(0);
    scan.cache_blocks = get.cache_blocks();
    scan.load_families_on_demand = get.load_column_families_on_demand.unwrap_or(true);
    scan.read_uncommitted = read_uncommitted(&get.attribute);
    scan.mob = mob(&get.attribute);
    if get.existence_only() && scan.filter.is_none() && scan.store_offset == 0 {
        scan.store_limit.get_or_insert(1);
    }
    Ok(scan)
}

/// A Scan; the bounds are those of the client, the region cuts them to its own. Errors as for [`get`].
pub(crate) fn scan(proto: &pb::Scan) -> Result<Scan, CallError> {
    let start_row = bound("startRow", proto.start_row.as_ref())?;
    let stop_row = bound("stopRow", proto.stop_row.as_ref())?;
    // Clients older than the flag mean one row when both bounds are the same.
    let one_row = !start_row.is_empty() && start_row == stop_row;
    let mut scan = Scan {
        options: BTreeMap::new(),
        include_start_row: proto.include_start_row(),
        include_stop_row: proto.include_stop_row.unwrap_or(one_row),
        reversed: proto.reversed(),
        families: families(&proto.column)?,
        max_versions: max_versions(proto.max_versions)?,
        time_range: time_range(proto.time_range.as_ref())?,
        family_time_ranges: family_time_ranges(&proto.cf_time_range)?,
        filter: filter(proto.filter.as_ref())?,
        batch: proto.batch_size.filter(|&size| size > 0 && size <= i32::MAX as u32),
        store_limit: store_limit(proto.store_limit),
        store_offset: proto.store_offset.unwrap_or(0),
        raw: attribute(&proto.attribute, RAW).is_some_and(|value| value.first().is_some_and(|&b| b != 0)),
        cache_blocks: proto.cache_blocks(),
        load_families_on_demand: proto.load_column_families_on_demand.unwrap_or(true),
        read_uncommitted: read_uncommitted(&proto.attribute),
        read_point: None,
        resumes_at: proto.mvcc_read_point.filter(|&point| point > 0).map(halcyon_cell::ReadPoint::new),
        mob: mob(&proto.attribute),
        reads: None,
        start_row,
        stop_row,
    };
    if scan.batch.is_some() && scan.filter.as_ref().is_some_and(|filter| filter.has_filter_row()) {
        return Err(invalid(
            "Cannot set batch on a scan using a filter that returns true for filter.hasFilterRow",
        )
        .into());
    }
    if scan.reversed
        && let Some(filter) = &mut scan.filter
    {
        filter.set_reversed(true);
    }
    Ok(scan)
}

/// What a scanner keeps for each family, column and time range that its message names, in bytes.
const KEPT_PART_BYTES: usize = 128;

/// The message of a scan in memory of its own, and about how many bytes a scanner keeps of it, what its filter makes of it left out. A
/// scanner that stays open keeps parts of its message, and with them all memory that these are in: of a frame, or of several that came together.
/// Attributes are left where they are, as a scanner keeps none.
pub(crate) fn detached_scan(proto: &pb::Scan) -> (pb::Scan, usize) {
    let bare = pb::Scan { attribute: Vec::new(), ..proto.clone() };
    let bytes = Bytes::from(bare.encode_to_vec());
    let parts = bare.column.iter().map(|column| 1 + column.qualifier.len()).sum::<usize>();
    let kept = bytes.len() + (parts + bare.cf_time_range.len()) * KEPT_PART_BYTES;
    let scan = pb::Scan::decode(bytes).expect("what was encoded here can be decoded");
    (pb::Scan { attribute: proto.attribute.clone(), ..scan }, kept)
}

/// A bound of a scan; empty: none.
fn bound(name: &str, row: Option<&Bytes>) -> Result<Bytes, RpcError> {
    let row = row.cloned().unwrap_or_default();
    if row.len() > ROW_LEN_MAX {
        return Err(invalid(format!(
            "{name}'s length must be less than or equal to {ROW_LEN_MAX} to meet the criteria for a row key, it is {}",
            row.len()
        )));
    }
    Ok(row)
}

/// A scan with the filter that keeps the first cell of each row.
pub(crate) fn first_keys_only(scan: &pb::Scan) -> pb::Scan {
    let name = "org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter".to_string();
    let filter = pb::Filter { name, serialized_filter: Some(Bytes::new()) };
    pb::Scan { filter: Some(filter), ..scan.clone() }
}

/// So many columns are sorted in the time of one look.
const COLUMNS_PER_LOOK: usize = 4;

fn families(columns: &[pb::Column]) -> Result<BTreeMap<Bytes, Option<BTreeSet<Bytes>>>, CallError> {
    let count = columns.iter().map(|column| column.qualifier.len()).sum::<usize>();
    spend(count / COLUMNS_PER_LOOK)?;
    let mut families: BTreeMap<Bytes, Option<BTreeSet<Bytes>>> = BTreeMap::new();
    for column in columns {
        if column.qualifier.is_empty() {
            families.insert(column.family.clone(), None);
            continue;
        }
        let qualifiers = families.entry(column.family.clone()).or_insert_with(|| Some(BTreeSet::new()));
        // A family that was asked for as a whole is narrowed by a later column (`Get.addColumn`).
        qualifiers.get_or_insert_with(BTreeSet::new).extend(column.qualifier.iter().cloned());
    }
    Ok(families)
}

fn spend(looks: usize) -> Result<(), CallError> {
    Patience::spend(u32::try_from(looks).unwrap_or(u32::MAX)).map_err(|impatience| match impatience {
        Impatience::Spent => CallError::NeedsDisk,
        Impatience::Unwanted => {
            Error::new(ErrorKind::Stopping, "nobody waits for the answer any more").into()
        }
    })
}

/// Java reads the number as signed.
fn max_versions(versions: Option<u32>) -> Result<u32, RpcError> {
    let versions = versions.unwrap_or(1);
    if versions == 0 {
        return Err(invalid("maxVersions must be positive"));
    }
    Ok(versions.min(i32::MAX as u32))
}

fn store_limit(limit: Option<u32>) -> Option<u32> {
    limit.filter(|&limit| limit <= i32::MAX as u32)
}

fn family_time_ranges(ranges: &[pb::ColumnFamilyTimeRange]) -> Result<BTreeMap<Bytes, TimeRange>, RpcError> {
    let convert = |range: &pb::ColumnFamilyTimeRange| {
        Ok((range.column_family.clone(), time_range(Some(&range.time_range))?))
    };
    ranges.iter().map(convert).collect()
}

fn filter(filter: Option<&pb::Filter>) -> Result<Option<Box<dyn Filter>>, CallError> {
    Ok(filter.map(parse_filter).transpose()?)
}

/// HBase: `MobUtils.isRawMobScan` and its neighbours. A value that is not one byte is no.
fn mob(attributes: &[pb::NameBytesPair]) -> MobScan {
    let is_on =
        |name| attribute(attributes, name).is_some_and(|value| matches!(value[..], [byte] if byte != 0));
    MobScan {
        raw: is_on("hbase.mob.scan.raw"),
        references_only: is_on("hbase.mob.scan.ref.only"),
        cache_blocks: is_on("hbase.mob.cache.blocks"),
        empty_on_miss: is_on("empty.value.on.mobcell.miss"),
    }
}

fn read_uncommitted(attributes: &[pb::NameBytesPair]) -> bool {
    attribute(attributes, ISOLATION_LEVEL).is_some_and(|value| value[..] == [READ_UNCOMMITTED])
}
