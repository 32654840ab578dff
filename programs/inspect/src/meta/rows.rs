//! Reads `hbase:meta` as a scan would answer, without opening its region: that would write.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use halcyon_cell::{Cell, CellComparator, CellType};
use halcyon_env::Env;
use halcyon_hfile::BlockWalk;
use halcyon_proto::pb;
use halcyon_region::is_store_file_name;
use halcyon_schema::{RegionInfo, ServerName, layout};
use halcyon_wal::WalReader;
use prost::Message;

use crate::hfile::open_hfile;
use crate::output::{Done, Output, Stop};
use crate::{listed, place, text};

/// Where the rows come from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources {
    pub files: u64,
    pub wals: u64,
    /// Cells that are in no store file.
    pub wal_cells: u64,
}

/// One row: its newest cells, decoded.
#[derive(Debug)]
pub struct MetaRow {
    pub row: Bytes,
    /// The newest cell of each column that no delete marker hides.
    pub cells: Vec<Cell>,
    pub region: Option<RegionInfo>,
    /// Columns that make no sense.
    pub damage: Vec<String>,
}

/// Cells of a region, and up to which sequence id each family is in store files.
#[derive(Default)]
struct Collected {
    /// Encoded name.
    region: Vec<u8>,
    comparator: CellComparator,
    cells: Vec<Cell>,
    flushed: HashMap<Vec<u8>, u64>,
    sources: Sources,
}

/// The rows of meta in its order. Damaged files are reported and left out.
pub fn read(env: &Env, root: &Path, out: &mut Output<'_>) -> Result<(Vec<MetaRow>, Sources), Stop> {
    let mut collected = collect(env, root, &RegionInfo::meta(), out)?;
    let rows = collected.rows().into_iter().map(MetaRow::of).collect();
    Ok((rows, collected.sources))
}

/// The newest cells of each row of a small region, such as that of `hbase:namespace`; all of them are held in memory.
pub fn read_rows(
    env: &Env,
    root: &Path,
    region: &RegionInfo,
    out: &mut Output<'_>,
) -> Result<Vec<Vec<Cell>>, Stop> {
    Ok(collect(env, root, region, out)?.rows())
}

fn collect(env: &Env, root: &Path, region: &RegionInfo, out: &mut Output<'_>) -> Result<Collected, Stop> {
    let mut collected = Collected {
        region: region.encoded_name().as_bytes().to_vec(),
        comparator: region.comparator(),
        ..Collected::default()
    };
    let dir = region.dir(root);
    let table = listed::descriptor(env, root, region.table()).map_err(Stop::Failed)?;
    for family in place::directories(env, &dir).map_err(Stop::Failed)? {
        if place::name(&family) != layout::RECOVERED_EDITS {
            let listed = listed::files(env, &family, table.as_ref()).map_err(Stop::Failed)?;
            collected.add_family(env, &family, listed.as_ref(), out)?;
        }
    }
    let mut wals = edits_files(env, &dir.join(layout::RECOVERED_EDITS));
    for server in place::directories(env, &layout::wals_dir(root)).map_err(Stop::Failed)? {
        wals.extend(files(env, &server));
    }
    for wal in wals {
        collected.add_wal(env, &wal, out)?;
    }
    Ok(collected)
}

fn files(env: &Env, dir: &Path) -> Vec<PathBuf> {
    let entries = place::list(env, dir).unwrap_or_default().into_iter();
    let entries = entries.filter(|entry| !entry.is_dir && !entry.name.starts_with('.'));
    entries.map(|entry| dir.join(entry.name)).collect()
}

fn edits_files(env: &Env, dir: &Path) -> Vec<PathBuf> {
    let is_edits = |path: &PathBuf| place::name(path).bytes().all(|byte| byte.is_ascii_digit());
    files(env, dir).into_iter().filter(is_edits).collect()
}

impl Collected {
    fn add_family(
        &mut self,
        env: &Env,
        dir: &Path,
        listed: Option<&BTreeSet<String>>,
        out: &mut Output<'_>,
    ) -> Done {
        let is_of_store =
            |name: &String| is_store_file_name(name) && listed.is_none_or(|names| names.contains(name));
        for path in files(env, dir).into_iter().filter(|path| is_of_store(&place::name(path))) {
            self.sources.files += 1;
            let hfile = match open_hfile(env, &path) {
                Ok(hfile) => hfile,
                Err(error) => {
                    out.damaged(&path, None, &error)?;
                    continue;
                }
            };
            let seq = hfile.info().max_seq_id().unwrap_or_default().get();
            let flushed = self.flushed.entry(place::name(dir).into_bytes()).or_default();
            *flushed = seq.max(*flushed);
            let walk = match BlockWalk::open(env, &path) {
                Ok(walk) => walk,
                Err(error) => {
                    out.failed(&path, error.message())?;
                    continue;
                }
            };
            for step in walk {
                let visited = match &step {
                    Ok(block) => hfile
                        .visit_block(block, |cell| self.cells.push(cell.to_cell()))
                        .map_err(|error| (block.offset, error)),
                    Err(gap) => Err((gap.offset, gap.error.clone())),
                };
                if let Err((offset, error)) = visited {
                    out.damaged(&path, Some(offset), &error)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the edits of the region that are in no store file.
    fn add_wal(&mut self, env: &Env, path: &Path, out: &mut Output<'_>) -> Done {
        self.sources.wals += 1;
        let read = WalReader::open(env, path).and_then(|mut reader| {
            while let Some((key, cells)) = reader.next_entry()? {
                if key.encoded_region_name != self.region {
                    continue;
                }
                for cell in cells {
                    let flushed = self.flushed.get(cell.family()).copied().unwrap_or(0);
                    if !halcyon_wal::is_marker(cell.get()) && key.log_sequence_number > flushed {
                        self.sources.wal_cells += 1;
                        self.cells.push(cell);
                    }
                }
            }
            Ok(())
        });
        read.or_else(|error| out.damaged(path, None, &error))
    }

    fn rows(&mut self) -> Vec<Vec<Cell>> {
        self.cells.sort_by(|a, b| self.comparator.compare(a.get(), b.get()));
        let rows = self.cells.chunk_by(|a, b| a.row() == b.row());
        rows.map(visible).filter(|cells| !cells.is_empty()).collect()
    }
}

/// The newest cell of each column of a row that no delete marker hides. `cells` are in order.
fn visible(cells: &[Cell]) -> Vec<Cell> {
    let mut family_deletes: BTreeMap<&[u8], i64> = BTreeMap::new();
    let mut family_versions: Vec<(&[u8], i64)> = Vec::new();
    for cell in cells {
        match cell.cell_type() {
            CellType::DeleteFamily => {
                let newest = family_deletes.entry(cell.family()).or_insert(i64::MIN);
                *newest = cell.timestamp().max(*newest);
            }
            CellType::DeleteFamilyVersion => family_versions.push((cell.family(), cell.timestamp())),
            _ => {}
        }
    }
    let mut shown = Vec::new();
    for column in cells.chunk_by(|a, b| a.family() == b.family() && a.qualifier() == b.qualifier()) {
        let mut deleted_to = family_deletes.get(column[0].family()).copied().unwrap_or(i64::MIN);
        let mut versions: Vec<i64> = family_versions
            .iter()
            .filter(|(family, _)| *family == column[0].family())
            .map(|(_, version)| *version)
            .collect();
        for cell in column {
            match cell.cell_type() {
                CellType::DeleteColumn => deleted_to = deleted_to.max(cell.timestamp()),
                CellType::Delete => versions.push(cell.timestamp()),
                CellType::Put if cell.timestamp() > deleted_to && !versions.contains(&cell.timestamp()) => {
                    shown.push(cell.clone());
                    break;
                }
                _ => {}
            }
        }
    }
    shown
}

impl MetaRow {
    /// Decodes the cells of a row, at least one.
    pub fn of(cells: Vec<Cell>) -> MetaRow {
        let row = Bytes::copy_from_slice(cells[0].row());
        let mut found = MetaRow { row, cells, region: None, damage: Vec::new() };
        match found.value(b"info", b"regioninfo").map(RegionInfo::decode_value) {
            Some(Ok(region)) => {
                if region.region_name() != &found.row {
                    found.damage.push(format!("expected info:regioninfo of this row, found {region}"));
                }
                found.region = Some(region);
            }
            Some(Err(error)) => found.damage.push(format!("info:regioninfo: {error}")),
            None if found.value(b"table", b"state").is_none() && found.is_of_table_or_region() => {
                found.damage.push("expected info:regioninfo or table:state, found neither".to_string());
            }
            None => {}
        }
        found
    }

    /// Other families have rows of their own: barriers of serial replication, namespaces of HBase 3.
    fn is_of_table_or_region(&self) -> bool {
        self.cells.iter().any(|cell| [&b"info"[..], b"table"].contains(&cell.family()))
    }

    pub fn cell(&self, family: &[u8], qualifier: &[u8]) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.family() == family && cell.qualifier() == qualifier)
    }

    pub fn value(&self, family: &[u8], qualifier: &[u8]) -> Option<&[u8]> {
        self.cell(family, qualifier).map(Cell::value)
    }

    /// `ENABLED`, `DISABLED`, ... of a table's row.
    pub fn table_state(&self) -> Option<String> {
        let state = pb::TableState::decode(self.value(b"table", b"state")?).ok()?;
        Some(state.state().as_str_name().to_string())
    }

    /// `OPEN`, `CLOSED`, ... of a region's row.
    pub fn region_state(&self) -> Option<String> {
        self.value(b"info", b"state").map(text::binary)
    }

    /// The server that has the region, or had it last.
    pub fn server(&self) -> Option<ServerName> {
        let (host, port) = std::str::from_utf8(self.value(b"info", b"server")?).ok()?.rsplit_once(':')?;
        let start_code = self.value(b"info", b"serverstartcode").and_then(|code| code.try_into().ok());
        Some(ServerName::new(host, port.parse().ok()?, start_code.map_or(-1, i64::from_be_bytes)))
    }

    /// Known columns as text, in the order of their names.
    pub(super) fn fields(&self) -> Vec<(String, String)> {
        self.cells.iter().filter_map(|cell| Some((column(cell), field(cell)?))).collect()
    }
}

fn column(cell: &Cell) -> String {
    format!("{}:{}", text::binary(cell.family()), text::binary(cell.qualifier()))
}

/// The value of a column whose form is known.
fn field(cell: &Cell) -> Option<String> {
    let number = || cell.value().try_into().ok().map(|bytes| i64::from_be_bytes(bytes).to_string());
    let qualifier = cell.qualifier();
    match (cell.family(), qualifier) {
        (b"table", b"state") => {
            let state = pb::TableState::decode(cell.value()).ok()?;
            Some(state.state().as_str_name().to_string())
        }
        (b"info", name) if name == b"regioninfo" || is_region(name) => {
            RegionInfo::decode_value(cell.value()).ok().map(|region| {
                let (start, end) = (text::binary(region.start_key()), text::binary(region.end_key()));
                let split = if region.is_split() { ", split" } else { "" };
                let offline = if region.is_offline() { ", offline" } else { "" };
                format!("{} rows '{start}' to '{end}'{split}{offline}", region.encoded_name())
            })
        }
        (b"info", name) if name.starts_with(b"serverstartcode") || name.starts_with(b"seqnumDuringOpen") => {
            number()
        }
        (b"info", name) if [&b"server"[..], b"sn", b"state"].iter().any(|start| name.starts_with(start)) => {
            Some(text::binary(cell.value()))
        }
        _ => None,
    }
}

fn is_region(qualifier: &[u8]) -> bool {
    qualifier == b"splitA" || qualifier == b"splitB" || qualifier.starts_with(b"merge")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(row: &str, qualifier: &str, ts: i64, kind: CellType) -> Cell {
        let value = ts.to_string();
        Cell::build(row.as_bytes(), b"info", qualifier.as_bytes(), ts, kind, value.as_bytes(), b"", 0)
    }

    fn shown(mut cells: Vec<Cell>) -> Vec<(String, i64)> {
        cells.sort_by(|a, b| CellComparator::Meta.compare(a.get(), b.get()));
        let shown = visible(&cells).into_iter();
        shown.map(|cell| (text::binary(cell.qualifier()), cell.timestamp())).collect()
    }

    #[test]
    fn the_newest_version_is_shown_and_deleted_ones_are_not() {
        use CellType::{Delete, DeleteColumn, DeleteFamily, DeleteFamilyVersion, Put};
        let put = |qualifier: &str, ts| cell("r", qualifier, ts, Put);
        assert_eq!(shown(vec![put("a", 1), put("a", 3), put("b", 2)]), [("a".into(), 3), ("b".into(), 2)]);
        assert_eq!(shown(vec![put("a", 1), put("a", 3), cell("r", "a", 3, Delete)]), [("a".into(), 1)]);
        assert_eq!(shown(vec![put("a", 1), put("a", 3), cell("r", "a", 2, DeleteColumn)]), [("a".into(), 3)]);
        assert_eq!(shown(vec![put("a", 1), cell("r", "a", 2, DeleteColumn)]), []);
        let markers = [cell("r", "", 2, DeleteFamily), cell("r", "", 5, DeleteFamilyVersion)];
        let puts = vec![put("a", 1), put("b", 3), put("c", 5)];
        assert_eq!(shown([puts, markers.to_vec()].concat()), [("b".into(), 3)]);
    }
}
