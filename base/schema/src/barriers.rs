//! Replication barriers: which server had a region from which sequence id on, in the family `rep_barrier` of `hbase:meta`.
//!
//! ```text
//! row = region name   rep_barrier:seqnumDuringOpen      int64, one version for each opening: HBase's own column
//!                     rep_barrier:sn_0000000000000003   host,port,code of the server that opened the region with sequence id 3
//!                     rep_barrier:parent                names of the regions that it was split or merged from
//! ```
//!
//! From an opening to the next one the edits of a region are in the WALs of one server: that is a range. HBase's column has no servers, so
//! there is a column of its own for each. In `parent` the names are joined by ff 01, and ff in a name is doubled. Checked against
//! `MetaTableAccessor.addReplicationBarrier` and `getParentsBytes` of 2.6.4.

use bytes::Bytes;
use halcyon_cell::{Cell, CellType};

use crate::{RegionInfo, ServerName};

pub const BARRIER_FAMILY: &[u8] = b"rep_barrier";
const SEQ_NUM: &[u8] = b"seqnumDuringOpen";
const PARENT: &[u8] = b"parent";
const SERVER_PREFIX: &str = "sn_";
const ESCAPE: u8 = 0xff;
const SEPARATOR: u8 = 0x01;

/// An opening of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The sequence id with which the region was opened. All edits of the range have larger ones, or this.
    pub open_seq: u64,
    pub server: ServerName,
    /// When the master wrote it, by the clock of `hbase:meta`.
    pub timestamp: i64,
}

/// What `hbase:meta` says of one region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionBarriers {
    pub region_name: Bytes,
    /// In the order of their sequence ids.
    pub ranges: Vec<Range>,
    /// Names of regions that it was split or merged from.
    pub parents: Vec<Bytes>,
}

impl RegionBarriers {
    /// Of the cells of one row; those of other families are passed over, and columns that make no sense. `None` if nothing is left.
    pub fn of_row(cells: &[Cell]) -> Option<RegionBarriers> {
        let mut found = RegionBarriers {
            region_name: Bytes::copy_from_slice(cells.first()?.row()),
            ..Default::default()
        };
        for cell in cells.iter().filter(|cell| cell.family() == BARRIER_FAMILY) {
            if cell.qualifier() == PARENT {
                found.parents = parse_parents(cell.value());
            }
            found.ranges.extend(range_of(cell));
        }
        found.ranges.sort_by_key(|range| range.open_seq);
        found.ranges.dedup_by_key(|range| range.open_seq);
        (!found.ranges.is_empty() || !found.parents.is_empty()).then_some(found)
    }

    /// How many of the ranges began with this sequence id or before. The last of them is the one that an edit with it is in.
    pub fn count_up_to(&self, seq: u64) -> usize {
        self.ranges.partition_point(|range| range.open_seq <= seq)
    }
}

fn range_of(cell: &Cell) -> Option<Range> {
    let digits = std::str::from_utf8(cell.qualifier()).ok()?.strip_prefix(SERVER_PREFIX)?;
    let open_seq =
        u64::from_str_radix(digits, 16).ok().filter(|seq| column(*seq).as_bytes() == cell.qualifier())?;
    let server = ServerName::parse(std::str::from_utf8(cell.value()).ok()?).ok()?;
    Some(Range { open_seq, server, timestamp: cell.timestamp() })
}

fn column(open_seq: u64) -> String {
    format!("{SERVER_PREFIX}{open_seq:016x}")
}

/// The cells that say that a server has opened a region.
pub fn barrier_cells(region: &RegionInfo, open_seq: u64, server: &ServerName, timestamp: i64) -> [Cell; 2] {
    let put = |qualifier: &[u8], value: &[u8]| {
        Cell::put(region.region_name(), BARRIER_FAMILY, qualifier, timestamp, value)
    };
    [put(SEQ_NUM, &open_seq.to_be_bytes()), put(column(open_seq).as_bytes(), server.to_string().as_bytes())]
}

/// The cell that says what a region was split or merged from.
pub fn parents_cell(region: &RegionInfo, parents: &[RegionInfo], timestamp: i64) -> Cell {
    let mut value = Vec::new();
    for (number, parent) in parents.iter().enumerate() {
        if number > 0 {
            value.extend([ESCAPE, SEPARATOR]);
        }
        for byte in parent.region_name() {
            value.extend((*byte == ESCAPE).then_some(ESCAPE));
            value.push(*byte);
        }
    }
    Cell::put(region.region_name(), BARRIER_FAMILY, PARENT, timestamp, &value)
}

/// Damaged bytes give some names, which no region has.
fn parse_parents(value: &[u8]) -> Vec<Bytes> {
    let (mut parents, mut name) = (Vec::new(), Vec::new());
    let mut bytes = value.iter().copied();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            ESCAPE => bytes.next().unwrap_or(ESCAPE),
            byte => {
                name.push(byte);
                continue;
            }
        };
        if byte == SEPARATOR {
            parents.push(Bytes::from(std::mem::take(&mut name)));
        } else {
            name.push(byte);
        }
    }
    if !name.is_empty() {
        parents.push(Bytes::from(name));
    }
    parents
}

/// Takes the first `count` ranges away. HBase's column loses the versions that are older than the first one that stays.
pub fn delete_ranges(barriers: &RegionBarriers, count: usize, timestamp: i64) -> Vec<Cell> {
    let delete = |qualifier: &[u8], up_to: i64| {
        let kind = CellType::DeleteColumn;
        Cell::build(&barriers.region_name, BARRIER_FAMILY, qualifier, up_to, kind, b"", b"", 0)
    };
    let gone = barriers.ranges.iter().take(count);
    let mut cells: Vec<Cell> =
        gone.map(|range| delete(column(range.open_seq).as_bytes(), timestamp)).collect();
    let kept = barriers.ranges.iter().skip(count).map(|range| range.timestamp).min();
    if count > 0 {
        cells.push(delete(SEQ_NUM, kept.map_or(timestamp, |first| first - 1)));
    }
    cells
}

/// Takes all that is known of a region away.
pub fn delete_barriers(region_name: &[u8], timestamp: i64) -> Cell {
    Cell::build(region_name, BARRIER_FAMILY, b"", timestamp, CellType::DeleteFamily, b"", b"", 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableName;

    fn region(start: &[u8], id: u64) -> RegionInfo {
        let table = TableName::parse(b"t").unwrap();
        RegionInfo::new(table, Bytes::copy_from_slice(start), Bytes::new(), id)
    }

    fn server(code: i64) -> ServerName {
        ServerName::new("h", 16020, code)
    }

    #[test]
    fn ranges_and_parents_are_read_back() {
        let parents = [region(b"\xff\x01", 1), region(b"a\xff\xff", 2), region(b"", 3)];
        let child = region(b"\xff", 4);
        let mut cells = vec![Cell::put(child.region_name(), b"info", b"state", 1, b"OPEN")];
        cells.extend(barrier_cells(&child, 300, &server(2), 20));
        cells.extend(barrier_cells(&child, 3, &server(1), 10));
        cells.push(parents_cell(&child, &parents, 5));
        let found = RegionBarriers::of_row(&cells).unwrap();
        assert_eq!(found.region_name, child.region_name());
        assert_eq!(found.parents, parents.each_ref().map(|parent| parent.region_name().clone()));
        let range = |open_seq, code, timestamp| Range { open_seq, server: server(code), timestamp };
        assert_eq!(found.ranges, [range(3, 1, 10), range(300, 2, 20)]);
        assert_eq!([2, 3, 299, 300].map(|seq| found.count_up_to(seq)), [0, 1, 1, 2]);
        assert_eq!(cells[1].value(), [0, 0, 0, 0, 0, 0, 1, 44]);

        let gone = delete_ranges(&found, 1, 30);
        let shown: Vec<_> = gone.iter().map(|cell| (cell.qualifier(), cell.timestamp())).collect();
        assert_eq!(shown, [(&b"sn_0000000000000003"[..], 30), (&b"seqnumDuringOpen"[..], 19)]);
        assert!(delete_ranges(&found, 0, 30).is_empty());
        assert_eq!(delete_ranges(&found, 2, 30)[2].timestamp(), 30);
    }

    #[test]
    fn what_makes_no_sense_is_passed_over() {
        let put =
            |family: &[u8], qualifier: &[u8], value: &[u8]| Cell::put(b"r", family, qualifier, 1, value);
        let odd = [
            put(b"info", b"sn_0000000000000003", b"h,1,2"),
            put(BARRIER_FAMILY, b"sn_3", b"h,1,2"),
            put(BARRIER_FAMILY, b"sn_000000000000000X", b"h,1,2"),
            put(BARRIER_FAMILY, b"sn_0000000000000003", b"\xff"),
            put(BARRIER_FAMILY, b"sn_+000000000000003", b"h,1,2"),
            put(BARRIER_FAMILY, b"seqnumDuringOpen", b""),
            put(BARRIER_FAMILY, b"\xff", b""),
        ];
        assert_eq!(RegionBarriers::of_row(&odd), None);
        assert_eq!(RegionBarriers::of_row(&[]), None);
        assert!(parse_parents(b"").is_empty());
        for damaged in [&b"\xff"[..], b"a\xff", b"\xff\x01", b"\xff\x01\xff\x01", b"\xff\xff\xff"] {
            assert!(parse_parents(damaged).len() <= 2, "{damaged:?}");
        }
    }
}
