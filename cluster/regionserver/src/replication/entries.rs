//! From the entries of a request to mutations.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, LATEST_TIMESTAMP, TagType, append_tag};
use halcyon_proto::pb;
use halcyon_region::{ClusterIds, Mutation, MutationKind, TimeRange};
use halcyon_rpc::{RpcError, decoded_bytes_of};
use halcyon_schema::mob::is_mob_reference;
use halcyon_schema::{ClusterUuid, TableName};
use halcyon_wal::META_FAMILY;
use prost::Message;

use super::BULK_LOAD;
use super::loads::SentLoad;
use crate::errors::invalid;

/// What a request changes in one table, in order.
#[derive(Debug)]
pub(crate) struct TableEdits {
    pub table: TableName,
    pub mutations: Vec<Mutation>,
}

/// What a request asks for.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub tables: Vec<TableEdits>,
    /// Bulk loads of the source whose files are to be loaded here as well.
    pub loads: Vec<SentLoad>,
}

/// Mutations for which room is asked for at once.
const ROOM_MUTATIONS: usize = 4 << 10;

/// Room for what is made of a request, which may be many times its bytes: each cell may be a mutation of its own, and two bytes of a marker a
/// store of a bulk load.
struct Room<'a> {
    /// False if there is none for so many bytes more.
    grow: &'a mut dyn FnMut(usize) -> bool,
    mutations_left: usize,
}

impl Room<'_> {
    fn take(&mut self, bytes: usize) -> Result<(), RpcError> {
        let text = "there is no room for what is made of replicated edits";
        (self.grow)(bytes).then_some(()).ok_or_else(|| RpcError::region_too_busy(text))
    }

    /// The first ones are small beside the request.
    fn take_mutation(&mut self) -> Result<(), RpcError> {
        if self.mutations_left == 0 {
            self.take(ROOM_MUTATIONS * size_of::<Mutation>())?;
            self.mutations_left = ROOM_MUTATIONS;
        }
        self.mutations_left -= 1;
        Ok(())
    }
}

/// The mutations and bulk loads of a request. A run of cells of one row and type becomes one mutation, as in HBase. Markers of
/// flushes, compactions and regions are passed over. `grow` keeps room for so many bytes more, or says that there is none.
///
/// `DoNotRetryIOException` if the cells are fewer than the entries count, for a name that no table can have, and for a bulk
/// load that cannot be decoded. `RegionTooBusyException` without room.
pub(crate) fn by_table(
    entries: &[pb::WalEntry],
    cells: Vec<Cell>,
    grow: &mut dyn FnMut(usize) -> bool,
) -> Result<Entries, RpcError> {
    let mut room = Room { grow, mutations_left: ROOM_MUTATIONS };
    let mut tables = Vec::<TableEdits>::new();
    let mut loads = Vec::new();
    let mut places = HashMap::<&[u8], usize>::new();
    let mut cells = cells.into_iter();
    for entry in entries {
        let key = &entry.key;
        let table = TableName::parse(&key.table_name).map_err(|error| invalid(error.message()))?;
        let at = *places.entry(&key.table_name).or_insert_with(|| {
            tables.push(TableEdits { table: table.clone(), mutations: Vec::new() });
            tables.len() - 1
        });
        let count = usize::try_from(entry.associated_cell_count()).unwrap_or(0);
        if cells.len() < count {
            let left = cells.len();
            return Err(invalid(format!(
                "an entry counts {count} cells, and {left} are left in the cell block"
            )));
        }
        let ids = cluster_ids(key);
        let mut add_load = |cell: &Cell, room: &mut Room<'_>| add_marker(cell, &table, &mut loads, room);
        add_entry(cells.by_ref().take(count), &ids, &mut tables[at].mutations, &mut room, &mut add_load)?;
    }
    match cells.len() {
        0 => Ok(Entries { tables, loads }),
        left => Err(invalid(format!("the cell block has {left} cells that no entry counts"))),
    }
}

fn cluster_ids(key: &pb::WalKey) -> ClusterIds {
    let ids: Arc<[ClusterUuid]> = key.cluster_ids.iter().map(ClusterUuid::from_pb).collect();
    (!ids.is_empty()).then_some(ids)
}

/// A reference to a mob file of the other cluster means nothing here, and regions take none. The source would send it for ever.
fn without_mob_tags(cell: Cell) -> Cell {
    if cell.tags().is_empty() || !is_mob_reference(cell.get()) {
        return cell;
    }
    let mut tags = Vec::new();
    let of_mob = [TagType::MOB_REFERENCE, TagType::MOB_TABLE_NAME];
    for tag in cell.get().tag_iter().filter(|tag| !of_mob.contains(&tag.tag_type)) {
        append_tag(&mut tags, tag.tag_type, tag.value);
    }
    Cell::build(
        cell.row(),
        cell.family(),
        cell.qualifier(),
        cell.timestamp(),
        cell.cell_type(),
        cell.value(),
        &tags,
        cell.seq(),
    )
}

fn add_entry(
    cells: impl Iterator<Item = Cell>,
    cluster_ids: &ClusterIds,
    mutations: &mut Vec<Mutation>,
    room: &mut Room<'_>,
    on_marker: &mut dyn FnMut(&Cell, &mut Room<'_>) -> Result<(), RpcError>,
) -> Result<(), RpcError> {
    let first = mutations.len();
    for cell in cells {
        if cell.family() == META_FAMILY {
            on_marker(&cell, room)?;
            continue;
        }
        if cell.row().is_empty() {
            return Err(invalid("a replicated cell has no row"));
        }
        let cell = without_mob_tags(cell);
        if let Some(last) = mutations[first..].last_mut()
            && last.row == cell.row()
            && last.cells[0].cell_type() == cell.cell_type()
        {
            last.cells.push(cell);
            continue;
        }
        let kind = if cell.cell_type().is_delete() { MutationKind::Delete } else { MutationKind::Put };
        let row: Bytes = cell.bytes().slice_ref(cell.row());
        room.take_mutation()?;
        mutations.push(Mutation {
            kind,
            row,
            cells: vec![cell],
            timestamp: LATEST_TIMESTAMP,
            durability: None,
            time_range: TimeRange::ALL,
            return_results: false,
            cell_ttl_ms: None,
            cluster_ids: cluster_ids.clone(),
        });
    }
    Ok(())
}

/// Adds a bulk load whose files the source wants to be taken over.
fn add_marker(
    cell: &Cell,
    table: &TableName,
    loads: &mut Vec<SentLoad>,
    room: &mut Room<'_>,
) -> Result<(), RpcError> {
    if cell.qualifier() != BULK_LOAD {
        return Ok(());
    }
    // Once as it is decoded, and once as files of the load.
    let made = decoded_bytes_of("BulkLoadDescriptor", cell.value(), usize::MAX);
    room.take(made.saturating_mul(2))?;
    let load = pb::BulkLoadDescriptor::decode(cell.value());
    let load = load.map_err(|error| invalid(format!("a bulk load cannot be decoded: {error}")))?;
    if load.replicate() {
        SentLoad::add(loads, table, &load)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use halcyon_cell::CellType;
    use halcyon_rpc::exceptions;

    use super::*;

    fn entry(table: &'static str, ids: &[u64], count: i32) -> pb::WalEntry {
        let id = |&least| pb::Uuid { least_sig_bits: least, most_sig_bits: 0 };
        let key = pb::WalKey {
            encoded_region_name: Bytes::from_static(b"r"),
            table_name: Bytes::from_static(table.as_bytes()),
            cluster_ids: ids.iter().map(id).collect(),
            ..Default::default()
        };
        pb::WalEntry { key, associated_cell_count: Some(count), ..Default::default() }
    }

    fn cell(row: &str, kind: CellType, timestamp: i64) -> Cell {
        Cell::build(row.as_bytes(), b"f", b"q", timestamp, kind, b"", b"", 0)
    }

    fn by_table(entries: &[pb::WalEntry], cells: Vec<Cell>) -> Result<Entries, RpcError> {
        super::by_table(entries, cells, &mut |_| true)
    }

    fn marker(qualifier: &[u8], value: &[u8]) -> Cell {
        Cell::build(b"r", META_FAMILY, qualifier, 1, CellType::Put, value, b"", 0)
    }

    #[test]
    fn runs_of_one_row_and_type_are_mutations() {
        let cells = vec![
            cell("a", CellType::Put, 1),
            cell("a", CellType::Put, 2),
            cell("a", CellType::DeleteColumn, 2),
            cell("a", CellType::DeleteFamily, 3),
            cell("b", CellType::DeleteFamily, 3),
            cell("a", CellType::Put, 9),
            cell("a", CellType::Put, 10),
        ];
        let tables = by_table(&[entry("t", &[7], 5), entry("n:u", &[], 1), entry("t", &[7, 8], 1)], cells)
            .unwrap()
            .tables;
        let names: Vec<_> = tables.iter().map(|edits| edits.table.to_string()).collect();
        assert_eq!(names, ["t", "n:u"]);
        let shown = |edits: &TableEdits| -> Vec<_> {
            let ids =
                |m: &Mutation| m.cluster_ids.iter().flat_map(|ids| ids.iter()).map(|id| id.least).collect();
            edits.mutations.iter().map(|m| (m.kind, m.row.clone(), m.cells.len(), ids(m))).collect()
        };
        use MutationKind::{Delete, Put};
        assert_eq!(
            shown(&tables[0]),
            [
                (Put, "a".into(), 2, vec![7u64]),
                (Delete, "a".into(), 1, vec![7]),
                (Delete, "a".into(), 1, vec![7]),
                (Delete, "b".into(), 1, vec![7]),
                (Put, "a".into(), 1, vec![7, 8]), // of an entry of its own
            ]
        );
        assert_eq!(shown(&tables[1]), [(Put, "a".into(), 1, vec![])]);
    }

    #[test]
    fn markers_are_passed_over_but_those_of_bulk_loads() {
        let store = |family: &'static str, files: &[&str]| pb::StoreDescriptor {
            family_name: Bytes::from_static(family.as_bytes()),
            store_home_dir: family.to_string(),
            store_file: files.iter().map(ToString::to_string).collect(),
            store_file_size_bytes: None,
        };
        let load = |replicate, stores| pb::BulkLoadDescriptor {
            encoded_region_name: Bytes::from_static(b"0123"),
            replicate: Some(replicate),
            cluster_ids: vec!["id".to_string()],
            stores,
            ..Default::default()
        };
        let sent = |stores| marker(BULK_LOAD, &load(true, stores).encode_to_vec());
        let cells = vec![
            marker(b"HBASE::FLUSH", b"x"),
            marker(BULK_LOAD, &load(false, vec![store("f", &["a"])]).encode_to_vec()),
            sent(vec![store("f", &["a", "b"]), store("g", &["c"])]),
            cell("a", CellType::Put, 1),
            sent(vec![store("f", &["d"])]),
        ];
        let found = by_table(&[entry("n:t", &[], 5)], cells).unwrap();
        assert_eq!(found.tables[0].mutations.len(), 1);
        assert_eq!(found.loads.len(), 1, "loads of the same table and clusters are one");
        let below: Vec<_> =
            found.loads[0].files.iter().map(|file| file.below.display().to_string()).collect();
        assert_eq!(below, ["n/t/0123/f/a", "n/t/0123/f/b", "n/t/0123/g/c", "n/t/0123/f/d"]);
        for bad in [
            marker(BULK_LOAD, b"\xff\xff"),
            sent(vec![store("f", &["../../x"])]),
            sent(vec![store("f", &[""])]),
            sent(vec![store("..", &["a"])]),
        ] {
            let error = by_table(&[entry("t", &[], 1)], vec![bad]).unwrap_err();
            assert!(error.do_not_retry && error.message.contains("bulk load"), "{error}");
        }
    }

    /// A request of 8 MB became 400 MB, in no account.
    #[test]
    fn what_is_made_of_a_request_has_room() {
        let stores = [0x1a, 0].repeat(10_000);
        let load = [&[0x0a, 0, 0x12, 0, 0x20, 5, 0x30, 1][..], &stores].concat();
        let rows = (0..20_000).map(|at| cell(&format!("r{at}"), CellType::Put, 1));
        let made_max = 20_000 * size_of::<Mutation>();
        for (cells, least) in [
            (vec![marker(BULK_LOAD, &load)], 10_000 * size_of::<pb::StoreDescriptor>()),
            (rows.collect(), made_max - ROOM_MUTATIONS * size_of::<Mutation>()),
        ] {
            let count = i32::try_from(cells.len()).unwrap();
            let (mut asked, mut has_room) = (0, true);
            for expected in ["", "RegionTooBusyException"] {
                let mut grow = |bytes: usize| {
                    asked += bytes;
                    has_room
                };
                let made = super::by_table(&[entry("t", &[], count)], cells.clone(), &mut grow);
                let class = made.err().map_or(String::new(), |error| error.class.to_string());
                assert!(class.ends_with(expected) && class.is_empty() == expected.is_empty(), "{class}");
                assert!(asked >= if has_room { least } else { 1 }, "{asked} of {least}");
                (asked, has_room) = (0, false);
            }
        }
        let few = (0..100).map(|at| cell(&format!("r{at}"), CellType::Put, 1)).collect();
        assert!(super::by_table(&[entry("t", &[], 100)], few, &mut |_| false).is_ok());
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let error = |entries: &[pb::WalEntry], cells| by_table(entries, cells).unwrap_err();
        let one = || vec![cell("a", CellType::Put, 1)];
        for wrong in [
            error(&[entry("t", &[], 2)], one()),
            error(&[entry("t", &[], 0)], one()),
            error(&[entry("t", &[], -1)], one()),
            error(&[entry("", &[], 1)], one()),
            error(&[entry("a:b:c", &[], 1)], one()),
            error(&[entry("t", &[], i32::MAX)], Vec::new()),
            error(&[entry("t", &[], 1)], vec![cell("", CellType::Put, 1)]),
        ] {
            assert_eq!(wrong.class, exceptions::DO_NOT_RETRY_IO.name);
        }
        assert!(by_table(&[], Vec::new()).unwrap().tables.is_empty());
    }
}
