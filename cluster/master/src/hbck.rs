//! Compares what meta, memory, the region server and the directories say about regions (HBase: `HbckChore`), and finds
//! what `procedure/fix_regions.rs` can repair.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use bytes::Bytes;
use halcyon_cell::Result;
use halcyon_schema::{RegionInfo, TableName, layout};
use tracing::warn;

use crate::descriptors::list;
use crate::meta;
use crate::state::{MasterState, RegionState, TableEntry};

/// The result of one comparison.
#[derive(Clone, Debug, Default)]
pub(crate) struct HbckReport {
    pub(crate) checked_ms: i64,
    pub(crate) problems: Vec<Problem>,
    /// Servers that get no regions, and WALs that no server can split: sentences for people.
    pub(crate) servers: Vec<String>,
    /// Left out, because a procedure worked on them.
    pub(crate) busy: Vec<TableName>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// No region has these rows.
    Hole { table: TableName, start: Bytes, end: Bytes },
    /// Both regions have some rows.
    Overlap(RegionInfo, RegionInfo),
    /// The master knows the region, and its row of meta is gone.
    NoRow(RegionInfo),
    /// Meta has a row, and the master does not know the region.
    OnlyRow(RegionInfo),
    /// The region has no directory.
    NoDirectory(RegionInfo),
    /// A directory of a region that neither meta nor the master knows.
    Orphan(RegionInfo),
    /// OPEN for the master, and not open on the region server.
    NotOpen(RegionInfo),
    /// Open on the region server, and not known to the master.
    OpenUnknown(RegionInfo),
    /// Meta has regions of it, and the master does not know the table: its descriptor was missing or damaged when the master started.
    NoDescriptor(TableName),
}

impl Problem {
    pub(crate) fn table(&self) -> &TableName {
        match self {
            Problem::Hole { table, .. } | Problem::NoDescriptor(table) => table,
            Problem::Overlap(region, _)
            | Problem::NoRow(region)
            | Problem::OnlyRow(region)
            | Problem::NoDirectory(region)
            | Problem::Orphan(region)
            | Problem::NotOpen(region)
            | Problem::OpenUnknown(region) => region.table(),
        }
    }

    /// Whether `FixMeta` repairs it.
    pub(crate) fn is_fixable(&self) -> bool {
        matches!(self, Problem::Hole { .. } | Problem::Overlap(..) | Problem::NoRow(_) | Problem::OnlyRow(_))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Hole { table, start, end } => {
                let (start, end) = (start.escape_ascii(), end.escape_ascii());
                write!(f, "table {table}: no region has the rows from '{start}' to '{end}'")
            }
            Problem::Overlap(a, b) => write!(f, "regions {a} and {b} overlap"),
            Problem::NoRow(region) => write!(f, "region {region} has no row in hbase:meta"),
            Problem::OnlyRow(region) => {
                write!(
                    f,
                    "region {region} has a row in hbase:meta that was not there when the master started"
                )
            }
            Problem::NoDirectory(region) => write!(f, "region {region} has no directory"),
            Problem::Orphan(region) => write!(f, "region {region} has a directory and no row in hbase:meta"),
            Problem::NotOpen(region) => {
                write!(f, "region {region} is OPEN in hbase:meta and not on the region server")
            }
            Problem::OpenUnknown(region) => {
                write!(f, "region {region} is open on the region server and not known to the master")
            }
            Problem::NoDescriptor(table) => {
                write!(
                    f,
                    "table {table} has regions in hbase:meta and had no descriptor when the master started"
                )
            }
        }
    }
}

/// Compares all tables but those in `busy`, and logs each problem. *Blocking.*
pub(crate) fn check(core: &MasterState, busy: &HashSet<TableName>) -> Result<HbckReport> {
    let mut report =
        HbckReport { checked_ms: core.now_ms(), busy: busy.iter().cloned().collect(), ..Default::default() };
    let rows = regions_of_meta(core)?;
    // Looked up once for each region.
    let online: HashSet<RegionInfo> = core.online_regions()?.into_iter().collect();
    let tables: Vec<TableEntry> = core.tables.read().by_name.values().cloned().collect();
    for entry in tables.iter().filter(|entry| !busy.contains(entry.descriptor.name())) {
        let of_table = rows.get(entry.descriptor.name()).map_or(&[][..], Vec::as_slice);
        report.problems.extend(check_table(core, entry, of_table, &online)?);
    }
    let is_left_out =
        |table: &&TableName| !busy.contains(*table) && !core.tables.read().by_name.contains_key(*table);
    report.problems.extend(rows.keys().filter(is_left_out).cloned().map(Problem::NoDescriptor));
    let is_known = |region: &&RegionInfo| core.tables.read().region(region.encoded_name()).is_some();
    let mut online: Vec<RegionInfo> = online.into_iter().collect();
    online.sort();
    let unknown = online.iter().filter(|region| !region.is_meta() && !busy.contains(region.table()));
    let unknown = unknown.filter(|region| !is_known(region));
    report.problems.extend(unknown.map(|region| Problem::OpenUnknown(region.clone())));
    report.servers = core.members.troubles(&core.cluster);
    for problem in report.problems.iter().map(ToString::to_string).chain(report.servers.iter().cloned()) {
        warn!(problem, "hbck");
    }
    Ok(report)
}

fn check_table(
    core: &MasterState,
    entry: &TableEntry,
    rows: &[RegionInfo],
    online: &HashSet<RegionInfo>,
) -> Result<Vec<Problem>> {
    let mut problems = missing_rows(entry, rows);
    problems.extend(gaps(entry.descriptor.name(), &live_with_rows(entry, rows)));
    let directories = directories(core, entry.descriptor.name())?;
    let with_directory: HashSet<&RegionInfo> = directories.iter().collect();
    for (region, known) in &entry.regions {
        if !region.is_split() && !with_directory.contains(region) {
            problems.push(Problem::NoDirectory(region.clone()));
        }
        if known.state == RegionState::Open && !online.contains(region) {
            problems.push(Problem::NotOpen(region.clone()));
        }
    }
    let copies = entry.replicas.iter().filter(|(_, known)| known.state == RegionState::Open);
    let closed = copies.filter(|(copy, _)| !online.contains(copy));
    problems.extend(closed.map(|(copy, _)| Problem::NotOpen(copy.clone())));
    problems.extend(orphans(entry, rows, directories).into_iter().map(Problem::Orphan));
    Ok(problems)
}

/// Regions of user tables that have a row, by table.
pub(crate) fn regions_of_meta(core: &MasterState) -> Result<BTreeMap<TableName, Vec<RegionInfo>>> {
    let content = meta::read(&core.meta_rows()?);
    let mut by_table: BTreeMap<TableName, Vec<RegionInfo>> = BTreeMap::new();
    for (region, _) in content.regions {
        by_table.entry(region.table().clone()).or_default().push(region);
    }
    Ok(by_table)
}

/// Regions that only one of master and meta knows.
pub(crate) fn missing_rows(entry: &TableEntry, rows: &[RegionInfo]) -> Vec<Problem> {
    let with_row: HashSet<&RegionInfo> = rows.iter().collect();
    let no_row = entry.regions.keys().filter(|region| !with_row.contains(region));
    let no_row = no_row.cloned().map(Problem::NoRow);
    no_row.chain(only_rows(entry, rows).map(Problem::OnlyRow)).collect()
}

/// Live regions that only meta knows. The parent of a split needs its daughters, which the next start reads.
pub(crate) fn only_rows<'a>(
    entry: &'a TableEntry,
    rows: &'a [RegionInfo],
) -> impl Iterator<Item = RegionInfo> + 'a {
    let unknown = rows.iter().filter(|region| !entry.regions.contains_key(region));
    unknown.filter(|region| !region.is_split() && !region.is_offline()).cloned()
}

/// The live regions of a table when both the master's and meta's count. Sorted.
pub(crate) fn live_with_rows(entry: &TableEntry, rows: &[RegionInfo]) -> Vec<RegionInfo> {
    let mut live = entry.live_regions();
    live.extend(only_rows(entry, rows));
    live.sort();
    live
}

/// Holes and overlaps of sorted regions. A region that overlaps is named with the one before it, or else with the one that
/// reaches furthest (`ReportMakingVisitor`).
pub(crate) fn gaps(table: &TableName, regions: &[RegionInfo]) -> Vec<Problem> {
    let hole = |start: &Bytes, end: &Bytes| Problem::Hole {
        table: table.clone(),
        start: start.clone(),
        end: end.clone(),
    };
    let mut problems = Vec::new();
    // The region before, and the one that reaches furthest; `None`: no row is covered yet.
    let mut before: Option<(&RegionInfo, &RegionInfo)> = None;
    for region in regions {
        match before {
            None if region.start_key().is_empty() => {}
            None => problems.push(hole(&Bytes::new(), region.start_key())),
            Some((previous, furthest)) => {
                if let Some(other) = [previous, furthest].into_iter().find(|other| other.overlaps(region)) {
                    problems.push(Problem::Overlap(other.clone(), region.clone()));
                } else if furthest.end_key() < region.start_key() {
                    problems.push(hole(furthest.end_key(), region.start_key()));
                }
            }
        }
        let furthest = before.map_or(region, |(_, furthest)| furthest_of(furthest, region));
        before = Some((region, furthest));
    }
    match before {
        None => problems.push(hole(&Bytes::new(), &Bytes::new())),
        Some((_, last)) if !last.end_key().is_empty() => problems.push(hole(last.end_key(), &Bytes::new())),
        Some(_) => {}
    }
    problems
}

/// The one that reaches further.
pub(crate) fn furthest_of<'a>(a: &'a RegionInfo, b: &'a RegionInfo) -> &'a RegionInfo {
    let is_b = !a.end_key().is_empty() && (b.end_key().is_empty() || b.end_key() > a.end_key());
    if is_b { b } else { a }
}

/// Whether the region has rows at or after `row`.
pub(crate) fn reaches_beyond(region: &RegionInfo, row: &Bytes) -> bool {
    region.end_key().is_empty() || region.end_key() > row
}

/// Regions with a directory that neither the master nor meta knows, also not as parents of a split or merge.
pub(crate) fn orphans(
    entry: &TableEntry,
    rows: &[RegionInfo],
    directories: Vec<RegionInfo>,
) -> Vec<RegionInfo> {
    let with_row: HashSet<&RegionInfo> = rows.iter().collect();
    let parents: HashSet<&RegionInfo> =
        entry.regions.values().flat_map(|known| known.merged_of.iter().chain(&known.daughters)).collect();
    let is_orphan = |region: &RegionInfo| {
        !entry.regions.contains_key(region) && !with_row.contains(region) && !parents.contains(region)
    };
    directories.into_iter().filter(is_orphan).collect()
}

/// Every region of a table that has a directory with a readable `.regioninfo`.
pub(crate) fn directories(core: &MasterState, table: &TableName) -> Result<Vec<RegionInfo>> {
    let dir = layout::table_dir(&core.root, table);
    let mut regions = Vec::new();
    for entry in list(&*core.env.fs, &dir)?.into_iter().filter(|entry| entry.is_dir) {
        let path = dir.join(&entry.name).join(layout::REGION_INFO);
        if !core.env.fs.exists(&path)? {
            continue;
        }
        match RegionInfo::decode_file(&core.env.fs.read(&path)?) {
            Ok(region) => regions.push(region),
            Err(error) => warn!(path = %path.display(), %error, "hbck: a .regioninfo file cannot be read"),
        }
    }
    Ok(regions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: &'static str, end: &'static str) -> RegionInfo {
        RegionInfo::new(TableName::parse(b"t").unwrap(), start.into(), end.into(), 7)
    }

    fn found(regions: &[RegionInfo]) -> Vec<String> {
        let problems = gaps(&TableName::parse(b"t").unwrap(), regions);
        let shown = problems.iter().map(|problem| match problem {
            Problem::Hole { start, end, .. } => {
                format!("hole {}-{}", start.escape_ascii(), end.escape_ascii())
            }
            Problem::Overlap(a, b) => {
                format!("overlap {} {}", a.start_key().escape_ascii(), b.start_key().escape_ascii())
            }
            other => other.to_string(),
        });
        shown.collect()
    }

    /// Lists that are searched for each region of a list take hours for a million regions.
    #[test]
    fn a_large_table_takes_no_time_for_each_pair_of_regions() {
        let name = TableName::parse(b"t").unwrap();
        let region = |number: u32| {
            let key = |number: u32| number.to_be_bytes().to_vec();
            RegionInfo::new(name.clone(), key(number).into(), key(number + 1).into(), 7)
        };
        let rows: Vec<RegionInfo> = (0..50_000).rev().map(region).collect();
        let table = halcyon_schema::TableDescriptor::new(name.clone());
        let entry = TableEntry::closed(&table, 1, &rows[1..], crate::state::TableState::Enabled);
        assert_eq!(missing_rows(&entry, &rows), [Problem::OnlyRow(rows[0].clone())]);
        let unknown = RegionInfo::new(name, "x".into(), "y".into(), 9);
        let directories = rows.iter().cloned().chain([unknown.clone()]).collect();
        assert_eq!(orphans(&entry, &rows, directories), [unknown]);
    }

    #[test]
    fn holes_and_overlaps_are_found_at_every_place() {
        assert_eq!(found(&[region("", "")]), [""; 0]);
        assert_eq!(found(&[region("", "b"), region("b", "d"), region("d", "")]), [""; 0]);
        assert_eq!(found(&[]), ["hole -"]);
        assert_eq!(found(&[region("b", "")]), ["hole -b"]);
        assert_eq!(found(&[region("", "b")]), ["hole b-"]);
        assert_eq!(found(&[region("", "b"), region("c", "")]), ["hole b-c"]);
        assert_eq!(found(&[region("", "c"), region("b", "")]), ["overlap  b"]);
        assert_eq!(found(&[region("", "m"), region("b", "c"), region("m", "")]), ["overlap  b"]);
        assert_eq!(found(&[region("", ""), region("b", "c")]), ["overlap  b"]);
        assert_eq!(found(&[region("", "b"), region("a", "c"), region("d", "")]), ["overlap  a", "hole c-d"]);
        let inside = [region("", "d"), region("a", "b"), region("b", "c"), region("d", "")];
        assert_eq!(
            found(&inside),
            ["overlap  a", "overlap  b"],
            "the second is inside of the one that reaches furthest"
        );
        let chain = [region("", "c"), region("b", "e"), region("d", "")];
        assert_eq!(found(&chain), ["overlap  b", "overlap b d"]);
        assert_eq!(found(&[region("", ""), region("", "")]), ["overlap  "]);
    }
}
