//! Rows of `hbase:meta`: how regions and table states are written there and read back.
//!
//! ```text
//! row = region name   info:regioninfo  PBUF RegionInfo     info:state           OPEN, CLOSED, ...
//!                     info:server      host:port           info:serverstartcode int64
//!                     info:sn          host,port,code      info:seqnumDuringOpen int64
//!                     info:server_0001, info:state_0001, ...            the same of replica 1
//!                     info:splitA, info:splitB   PBUF RegionInfo: the daughters of a region that was split
//!                     info:merge0000, ...        PBUF RegionInfo: the regions that this one was merged of
//! row = table name    table:state      TableState, without PBUF
//! ```
//!
//! The family `rep_barrier` is that of `halcyon_schema::RegionBarriers`.

use std::collections::BTreeMap;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType, Error, Result};
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName, TableName, parents_cell};
use prost::Message;
use tracing::warn;

use crate::state::{RegionEntry, RegionState, TableState};

const INFO: &[u8] = b"info";
const TABLE: &[u8] = b"table";
const REGION_INFO: &[u8] = b"regioninfo";
const SEQ_NUM: &[u8] = b"seqnumDuringOpen";
const SERVER: &[u8] = b"server";
const START_CODE: &[u8] = b"serverstartcode";
const SERVER_NAME: &[u8] = b"sn";
const STATE: &[u8] = b"state";
const DAUGHTERS: [&[u8]; 2] = [b"splitA", b"splitB"];
const MERGE_PREFIX: &str = "merge";

/// The row of a region that is not open.
pub(crate) fn closed_region(region: &RegionInfo, timestamp: i64) -> Vec<Cell> {
    region_in_state(region, RegionState::Closed, timestamp)
}

/// The row of a region that cannot be opened.
pub(crate) fn failed_region(region: &RegionInfo, timestamp: i64) -> Vec<Cell> {
    region_in_state(region, RegionState::FailedOpen, timestamp)
}

/// What a write says of a region: cells of its row. A copy has columns of its own in the row of its region.
struct RowWriter<'a> {
    region: &'a RegionInfo,
    row: Bytes,
    timestamp: i64,
    cells: Vec<Cell>,
}

impl<'a> RowWriter<'a> {
    fn new(region: &'a RegionInfo, timestamp: i64) -> RowWriter<'a> {
        let row = region.primary().region_name().clone();
        let mut writer = RowWriter { region, row, timestamp, cells: Vec::new() };
        if !region.is_secondary() {
            writer.put(REGION_INFO, &region.encode_value());
        }
        writer
    }

    fn put(&mut self, qualifier: &[u8], value: &[u8]) {
        let qualifier = of_replica(qualifier, self.region.replica_id());
        self.cells.push(Cell::put(&self.row, INFO, &qualifier, self.timestamp, value));
    }
}

/// The row of a region in a state that has no place on a server.
pub(crate) fn region_in_state(region: &RegionInfo, state: RegionState, timestamp: i64) -> Vec<Cell> {
    let mut row = RowWriter::new(region, timestamp);
    row.put(STATE, state.as_str_name().as_bytes());
    row.cells
}

/// The row of a region, or the columns of a copy, that is open on `server`.
pub(crate) fn open_region(
    region: &RegionInfo,
    server: &ServerName,
    open_seq: u64,
    timestamp: i64,
) -> Vec<Cell> {
    let mut row = RowWriter::new(region, timestamp);
    row.put(SEQ_NUM, &open_seq.to_be_bytes());
    row.put(SERVER, server.address().as_bytes());
    row.put(START_CODE, &server.start_code.to_be_bytes());
    row.put(SERVER_NAME, server.to_string().as_bytes());
    row.put(STATE, RegionState::Open.as_str_name().as_bytes());
    row.cells
}

/// The row of a region that is to be opened on `server`. Clients go on with what `info:server` says.
pub(crate) fn opening_region(region: &RegionInfo, server: &ServerName, timestamp: i64) -> Vec<Cell> {
    let mut row = RowWriter::new(region, timestamp);
    row.put(STATE, RegionState::Opening.as_str_name().as_bytes());
    row.put(SERVER_NAME, server.to_string().as_bytes());
    row.cells
}

/// The column of a replica: `server`, `server_0001`, ...
fn of_replica(qualifier: &[u8], replica: i32) -> Vec<u8> {
    match replica {
        0 => qualifier.to_vec(),
        _ => [qualifier, format!("_{replica:04X}").as_bytes()].concat(),
    }
}

/// The number of the copy of which a column says the state.
fn replica_of(qualifier: &[u8]) -> Option<i32> {
    let digits = qualifier.strip_prefix(STATE)?.strip_prefix(b"_")?;
    let number = i32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    (number > 0 && of_replica(STATE, number) == qualifier).then_some(number)
}

/// Takes the columns of these replicas out of a region's row.
pub(crate) fn delete_replicas(
    region: &RegionInfo,
    replicas: std::ops::Range<i32>,
    timestamp: i64,
) -> Vec<Cell> {
    let columns = [SEQ_NUM, SERVER, START_CODE, SERVER_NAME, STATE];
    let all = replicas.flat_map(|replica| columns.map(|qualifier| of_replica(qualifier, replica)));
    let row = region.region_name();
    all.map(|qualifier| Cell::build(row, INFO, &qualifier, timestamp, CellType::DeleteColumn, b"", b"", 0))
        .collect()
}

/// The rows after a split: the parent's, which stays until nothing refers to its files and has no copies, and those of its
/// daughters, not open yet. A client drops a location when it learns of one with a higher number, so the daughters' begins
/// with the parent's. `has_barriers`: replication peers get edits of the table.
pub(crate) fn split_region(
    parent: &RegionInfo,
    replication: i32,
    daughters: &[RegionInfo; 2],
    parent_open_seq: u64,
    has_barriers: bool,
    timestamp: i64,
) -> Vec<Cell> {
    let mut cells = split_parent(parent, daughters, timestamp);
    cells.extend(delete_replicas(parent, 1..replication, timestamp));
    for daughter in daughters {
        cells.extend(unopened_region(daughter, parent_open_seq, timestamp));
        cells.extend(has_barriers.then(|| parents_cell(daughter, std::slice::from_ref(parent), timestamp)));
    }
    cells
}

/// The rows after a merge: that of the new region, not open yet, which names the ones it was merged of; theirs go.
pub(crate) fn merge_regions(
    parents: &[RegionInfo],
    merged: &RegionInfo,
    parents_open_seq: u64,
    has_barriers: bool,
    timestamp: i64,
) -> Vec<Cell> {
    let mut cells: Vec<Cell> = parents.iter().map(|parent| delete_region(parent, timestamp)).collect();
    cells.extend(unopened_region(merged, parents_open_seq, timestamp));
    for (number, parent) in parents.iter().enumerate() {
        let value = parent.encode_value();
        cells.push(Cell::put(merged.region_name(), INFO, &merge_column(number), timestamp, &value));
    }
    cells.extend(has_barriers.then(|| parents_cell(merged, parents, timestamp)));
    cells
}

/// The row of a region that was split.
pub(crate) fn split_parent(parent: &RegionInfo, daughters: &[RegionInfo; 2], timestamp: i64) -> Vec<Cell> {
    let mut cells = region_in_state(parent, RegionState::Split, timestamp);
    for (qualifier, daughter) in DAUGHTERS.into_iter().zip(daughters) {
        let value = daughter.encode_value();
        cells.push(Cell::put(parent.region_name(), INFO, qualifier, timestamp, &value));
    }
    cells
}

fn unopened_region(region: &RegionInfo, open_seq: u64, timestamp: i64) -> Vec<Cell> {
    let mut cells = closed_region(region, timestamp);
    cells.push(Cell::put(region.region_name(), INFO, SEQ_NUM, timestamp, &open_seq.to_be_bytes()));
    cells
}

fn merge_column(number: usize) -> Vec<u8> {
    format!("{MERGE_PREFIX}{number:04}").into_bytes()
}

/// Forgets that a region was merged of `count` others.
pub(crate) fn delete_merge_columns(region: &RegionInfo, count: usize, timestamp: i64) -> Vec<Cell> {
    let columns = (0..count).map(merge_column);
    let delete = |qualifier: Vec<u8>| {
        Cell::build(region.region_name(), INFO, &qualifier, timestamp, CellType::DeleteColumn, b"", b"", 0)
    };
    columns.map(delete).collect()
}

/// Takes a region's row away.
pub(crate) fn delete_region(region: &RegionInfo, timestamp: i64) -> Cell {
    Cell::build(region.region_name(), INFO, b"", timestamp, CellType::DeleteFamily, b"", b"", 0)
}

pub(crate) fn table_state(table: &TableName, state: TableState, timestamp: i64) -> Cell {
    let value = pb::TableState { state: state as i32 }.encode_to_vec();
    Cell::put(table.full_name(), TABLE, STATE, timestamp, &value)
}

pub(crate) fn delete_table_state(table: &TableName, timestamp: i64) -> Cell {
    Cell::build(table.full_name(), TABLE, STATE, timestamp, CellType::DeleteColumn, b"", b"", 0)
}

/// What a scan of meta found.
#[derive(Default)]
pub(crate) struct MetaContent {
    pub(crate) states: BTreeMap<TableName, TableState>,
    pub(crate) regions: Vec<(RegionInfo, RegionEntry)>,
    /// Copies of these regions that have a state.
    pub(crate) replicas: Vec<(RegionInfo, RegionEntry)>,
}

/// The newest timestamp of all cells that are not above `up_to_ms`.
pub(crate) fn newest_timestamp(rows: &[Vec<Cell>], up_to_ms: i64) -> i64 {
    rows.iter().flatten().map(Cell::timestamp).filter(|at_ms| *at_ms <= up_to_ms).max().unwrap_or(0)
}

/// Reads the rows of a scan. Rows that make no sense are named in the log and left alone: clients may write to
/// meta, and one odd row must not keep the cluster from starting.
pub(crate) fn read(rows: &[Vec<Cell>]) -> MetaContent {
    let mut content = MetaContent::default();
    for row in rows {
        let Some(first) = row.first() else { continue };
        if let Err(error) = read_row(row, &mut content) {
            warn!(row = %first.row().escape_ascii(), %error, "a row of hbase:meta is left out");
        }
    }
    content
}

fn read_row(row: &[Cell], content: &mut MetaContent) -> Result<()> {
    let value = |family: &[u8], qualifier: &[u8]| {
        row.iter().find(|cell| cell.family() == family && cell.qualifier() == qualifier).map(Cell::value)
    };
    if let Some(bytes) = value(TABLE, STATE) {
        let table = TableName::parse(row[0].row())?;
        let message = pb::TableState::decode(bytes).map_err(|error| Error::corrupt(error.to_string()))?;
        content.states.insert(table, message.state());
    }
    let Some(bytes) = value(INFO, REGION_INFO) else { return Ok(()) };
    let region = region_of(bytes)?;
    if region.replica_id() != 0 || region.is_meta() {
        return Err(Error::invalid("only default replicas of user tables have rows"));
    }
    let place_of = |replica: i32| {
        let value = |qualifier: &[u8]| value(INFO, &of_replica(qualifier, replica));
        let state = value(STATE).and_then(|text| std::str::from_utf8(text).ok());
        let state = state.and_then(RegionState::from_str_name).unwrap_or(RegionState::Offline);
        let seq = value(SEQ_NUM).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
        let server = server_of(value(SERVER_NAME), value(SERVER), value(START_CODE));
        RegionEntry { state, server, ..RegionEntry::unopened(seq) }
    };
    let daughters = DAUGHTERS.iter().filter_map(|qualifier| value(INFO, qualifier));
    let is_merge =
        |cell: &&Cell| cell.family() == INFO && cell.qualifier().starts_with(MERGE_PREFIX.as_bytes());
    let copies =
        row.iter().filter(|cell| cell.family() == INFO).filter_map(|cell| replica_of(cell.qualifier()));
    let copies = copies.map(|replica| (region.replica(replica), place_of(replica)));
    content.replicas.extend(copies);
    let entry = RegionEntry {
        daughters: daughters.map(region_of).collect::<Result<_>>()?,
        merged_of: row.iter().filter(is_merge).map(|cell| region_of(cell.value())).collect::<Result<_>>()?,
        ..place_of(0)
    };
    content.regions.push((region, entry));
    Ok(())
}

/// A region whose row can be written.
fn region_of(bytes: &[u8]) -> Result<RegionInfo> {
    let region = RegionInfo::decode_value(bytes)?;
    region.check_name().map(|()| region)
}

/// The server of a region by its columns. Before 2.x there was no `info:sn`.
fn server_of(name: Option<&[u8]>, address: Option<&[u8]>, start_code: Option<&[u8]>) -> Option<ServerName> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_string);
    if let Some(server) = name.and_then(text).and_then(|text| ServerName::parse(&text).ok()) {
        return Some(server);
    }
    let start_code = i64::from_be_bytes(start_code?.try_into().ok()?);
    let server = ServerName::parse(&text(address?)?).ok()?;
    Some(ServerName { start_code, ..server })
}

#[cfg(test)]
mod tests {
    use halcyon_schema::RegionBarriers;

    use super::*;

    #[test]
    fn splits_and_merges_are_read_back() {
        let region = |start: &'static str, end: &'static str, id| {
            RegionInfo::new(TableName::parse(b"t").unwrap(), start.into(), end.into(), id)
        };
        let rows = |cells: &[Cell]| -> Vec<Vec<Cell>> {
            cells.chunk_by(|a, b| a.row() == b.row()).map(<[Cell]>::to_vec).collect()
        };
        let parent = region("", "", 7).with_flags(true, true);
        let daughters = [region("", "m", 8), region("m", "", 8)];
        let content = read(&rows(&split_region(&parent, 1, &daughters, 30, false, 1000)));
        assert_eq!(content.regions[0].0, parent);
        assert_eq!(content.regions[0].1.state, RegionState::Split);
        assert_eq!(content.regions[0].1.daughters, daughters);
        assert_eq!((content.regions[1].0.clone(), content.regions[1].1.open_seq), (daughters[0].clone(), 30));

        let merged = region("", "", 9);
        let cells = merge_regions(&daughters, &merged, 40, false, 1000);
        let (gone, left): (Vec<_>, Vec<_>) = cells.into_iter().partition(|cell| cell.cell_type().is_delete());
        assert_eq!(gone.len(), 2);
        assert_eq!(left.last().unwrap().qualifier(), b"merge0001");
        let content = read(&rows(&left));
        assert_eq!((content.regions[0].0.clone(), content.regions[0].1.open_seq), (merged.clone(), 40));
        assert_eq!(content.regions[0].1.merged_of, daughters);
        assert_eq!(delete_merge_columns(&merged, 2, 1000)[1].qualifier(), b"merge0001");

        let parents_of = |cells: &[Cell], region: &RegionInfo| {
            let row = rows(cells).into_iter().find(|row| row[0].row() == region.region_name()).unwrap();
            RegionBarriers::of_row(&row).map(|found| found.parents)
        };
        let cells = split_region(&parent, 1, &daughters, 30, true, 1000);
        assert_eq!(parents_of(&cells, &parent), None);
        for daughter in &daughters {
            assert_eq!(parents_of(&cells, daughter), Some(vec![parent.region_name().clone()]));
        }
        let cells = merge_regions(&daughters, &merged, 40, true, 1000);
        let names = daughters.each_ref().map(|daughter| daughter.region_name().clone());
        assert_eq!(parents_of(&cells, &merged), Some(names.to_vec()));
    }

    #[test]
    fn rows_are_those_that_clients_read() {
        let table = TableName::parse(b"t").unwrap();
        let region = RegionInfo::new(table.clone(), "a".into(), "".into(), 7);
        let server = ServerName::new("h", 16020, 99);
        let cells = open_region(&region, &server, 3, 1000);
        let shown: Vec<_> = cells.iter().map(|cell| (cell.qualifier(), cell.value())).collect();
        assert_eq!(shown[1], (&b"seqnumDuringOpen"[..], &[0, 0, 0, 0, 0, 0, 0, 3][..]));
        assert_eq!(shown[2], (&b"server"[..], &b"h:16020"[..]));
        assert_eq!(shown[3], (&b"serverstartcode"[..], &[0, 0, 0, 0, 0, 0, 0, 99][..]));
        assert_eq!(shown[4], (&b"sn"[..], &b"h,16020,99"[..]));
        assert_eq!(shown[5], (&b"state"[..], &b"OPEN"[..]));
        assert!(cells.windows(2).all(|pair| pair[0].qualifier() < pair[1].qualifier()));

        let copy = open_region(&region.replica(1), &server, 4, 1000);
        assert_eq!(copy[1].qualifier(), b"server_0001");
        assert!(copy.iter().all(|cell| cell.row() == region.region_name()));
        assert!(copy.iter().all(|cell| cell.qualifier() != REGION_INFO), "the row is that of the region");
        assert_eq!(closed_region(&region.replica(10), 1000)[0].qualifier(), b"state_000A");
        assert_eq!(delete_replicas(&region, 1..2, 1000)[1].qualifier(), b"server_0001");

        let state = table_state(&table, TableState::Enabled, 1001);
        assert_eq!(state.value(), [0x08, 0x00]);
        let odd = Cell::put(b"odd", b"info", b"regioninfo", 5, b"nonsense");
        let both =
            [cells, copy, vec![Cell::put(region.region_name(), INFO, b"state_1", 5, b"OPEN")]].concat();
        let rows = [vec![state], both, vec![odd]];
        let content = read(&rows);
        assert_eq!(content.states[&table], TableState::Enabled);
        assert_eq!(content.regions.len(), 1);
        assert_eq!((content.regions[0].1.state, content.regions[0].1.open_seq), (RegionState::Open, 3));
        let [(replica, known)] = &content.replicas[..] else { panic!("{:?}", content.replicas) };
        assert_eq!(*replica, region.replica(1));
        assert_eq!((known.state, known.open_seq, &known.server), (RegionState::Open, 4, &Some(server)));
        assert_eq!((newest_timestamp(&rows, 2000), newest_timestamp(&rows, 1000)), (1001, 1000));
    }
}
