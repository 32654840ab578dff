//! Cells as mutations: `Multi` with a cell block, or `MutateRows` with the cells in the message.

use bytes::Bytes;
use halcyon_cell::{Cell, CellType, Error, ErrorKind, Result};
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::column_value::QualifierValue;
use halcyon_proto::pb::mutation_proto::{ColumnValue, DeleteType, MutationType};
use halcyon_rpc::CellBlock;

use crate::links::CODEC;

/// Rows and bytes of one `Multi`. HBase warns above 5,000 rows.
const ROWS_MAX: usize = 2_000;
const BYTES_MAX: usize = 8 << 20;

/// Neighbouring cells of one row: its puts, and its deletes.
pub(crate) struct Row {
    key: Bytes,
    puts: Vec<Cell>,
    deletes: Vec<Cell>,
}

/// One call, and how many actions each part of it has.
pub(crate) struct Multi {
    pub(crate) request: pb::MultiRequest,
    pub(crate) cells: CellBlock,
}

/// Groups cells by row. `Invalid` for a cell that is neither a put nor a delete.
pub(crate) fn rows_of(cells: Vec<Cell>) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for cell in cells {
        if rows.last().is_none_or(|row| row.key != cell.row()) {
            let key = Bytes::copy_from_slice(cell.row());
            rows.push(Row { key, puts: Vec::new(), deletes: Vec::new() });
        }
        let row = rows.last_mut().expect("one was just made");
        match cell.cell_type() {
            CellType::Put => row.puts.push(cell),
            kind if kind.is_delete() => row.deletes.push(cell),
            kind => return Err(Error::invalid(format!("a cell of type {kind:?} is no mutation"))),
        }
    }
    Ok(rows)
}

impl Row {
    /// The key of the row.
    pub(crate) fn key(&self) -> &Bytes {
        &self.key
    }

    fn parts(&self) -> impl Iterator<Item = (MutationType, &[Cell])> {
        let parts = [(MutationType::Put, &self.puts[..]), (MutationType::Delete, &self.deletes[..])];
        parts.into_iter().filter(|(_, cells)| !cells.is_empty())
    }

    fn size_bytes(&self) -> usize {
        self.puts.iter().chain(&self.deletes).map(|cell| cell.bytes().len() + 4).sum()
    }

    /// Its mutations, with the cells in the message.
    pub(crate) fn inline(&self) -> impl Iterator<Item = pb::MutationProto> {
        self.parts().map(|(kind, cells)| pb::MutationProto {
            column_value: column_values(cells),
            ..message(&self.key, kind)
        })
    }

    /// Its mutations, with the cells in a block.
    fn actions(&self, block: &mut CellBlock, first_index: u32) -> Vec<pb::Action> {
        let mut actions = Vec::new();
        for (kind, cells) in self.parts() {
            cells.iter().for_each(|cell| block.push(cell));
            let mutation = pb::MutationProto {
                associated_cell_count: Some(i32::try_from(cells.len()).expect("a row has fewer cells")),
                ..message(&self.key, kind)
            };
            actions.push(pb::Action::of_mutation(first_index + actions.len() as u32, mutation));
        }
        actions
    }
}

fn message(key: &Bytes, kind: MutationType) -> pb::MutationProto {
    pb::MutationProto { row: Some(key.clone()), mutate_type: Some(kind as i32), ..Default::default() }
}

fn column_values(cells: &[Cell]) -> Vec<ColumnValue> {
    let mut columns: Vec<ColumnValue> = Vec::new();
    for cell in cells {
        if columns.last().is_none_or(|column| column.family != cell.family()) {
            let family = Bytes::copy_from_slice(cell.family());
            columns.push(ColumnValue { family, qualifier_value: Vec::new() });
        }
        let delete_type = match cell.cell_type() {
            CellType::Delete => Some(DeleteType::DeleteOneVersion),
            CellType::DeleteColumn => Some(DeleteType::DeleteMultipleVersions),
            CellType::DeleteFamily => Some(DeleteType::DeleteFamily),
            CellType::DeleteFamilyVersion => Some(DeleteType::DeleteFamilyVersion),
            _ => None,
        };
        let value = QualifierValue {
            qualifier: Some(Bytes::copy_from_slice(cell.qualifier())),
            value: Some(Bytes::copy_from_slice(cell.value())),
            timestamp: Some(cell.timestamp() as u64),
            delete_type: delete_type.map(|kind| kind as i32),
            tags: None,
        };
        columns.last_mut().expect("one was just made").qualifier_value.push(value);
    }
    columns
}

/// Calls for rows of one region. A row with both puts and deletes is a part of its own, which happens at once.
pub(crate) fn multis(region: &pb::RegionSpecifier, rows: &[Row]) -> Vec<Multi> {
    let mut calls = Vec::new();
    let mut from = 0;
    while from < rows.len() {
        let (mut to, mut bytes) = (from, 0);
        while to < rows.len() && to - from < ROWS_MAX && (to == from || bytes < BYTES_MAX) {
            bytes += rows[to].size_bytes();
            to += 1;
        }
        calls.push(multi(region, &rows[from..to], bytes));
        from = to;
    }
    calls
}

fn multi(region: &pb::RegionSpecifier, rows: &[Row], bytes: usize) -> Multi {
    let mut cells = CellBlock::with_capacity(CODEC, bytes);
    let part = |atomic, action| pb::RegionAction { region: region.clone(), atomic, action, condition: None };
    let (mixed, plain): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| !row.puts.is_empty() && !row.deletes.is_empty());
    let mut region_action = Vec::new();
    let mut actions = Vec::new();
    for row in plain {
        actions.extend(row.actions(&mut cells, actions.len() as u32));
    }
    if !actions.is_empty() {
        region_action.push(part(None, actions));
    }
    for row in mixed {
        region_action.push(part(Some(true), row.actions(&mut cells, 0)));
    }
    Multi { request: pb::MultiRequest { region_action, ..Default::default() }, cells }
}

/// How many results each part of a call has to have; `None` for one that happens at once.
pub(crate) type Expected = Vec<Option<usize>>;

pub(crate) fn expected(request: &pb::MultiRequest) -> Expected {
    let parts = request.region_action.iter();
    parts.map(|part| (!part.atomic()).then_some(part.action.len())).collect()
}

/// The first exception of an answer, if there is one. An error if the answer has not a result for each part.
pub(crate) fn exception_of<'a>(
    response: &'a pb::MultiResponse,
    expected: &Expected,
) -> Result<Option<&'a pb::NameBytesPair>> {
    let results = &response.region_action_result;
    for result in results {
        let exceptions = result.result_or_exception.iter().filter_map(|one| one.exception.as_ref());
        if let Some(exception) = result.exception.iter().chain(exceptions).next() {
            return Ok(Some(exception));
        }
    }
    let is_whole = |(result, expected): (&pb::RegionActionResult, &Option<usize>)| match expected {
        Some(count) => result.result_or_exception.len() == *count,
        None => result.processed != Some(false),
    };
    match results.len() == expected.len() && results.iter().zip(expected).all(is_whole) {
        true => Ok(None),
        false => Err(Error::new(ErrorKind::Io, "an answer without a result for each mutation")),
    }
}
