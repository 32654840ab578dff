//! The books of HBase's `backup` tool: the tables `backup:system` and `backup:system_bulk`.
//!
//! The tool makes the tables and writes most of their rows. A master notes which WALs are complete; a region server notes bulk
//! loads. Checked against `BackupSystemTable` of HBase 2.6.1.
//!
//! ```text
//! backup:system       session:<id>                       session:context = BackupInfo
//!                     rslogts:<root> 0 <host:port>       meta:rs-log-ts  = int64 number of the last complete WAL
//! backup:system_bulk  bulk:<table>:<region>:<file>       meta:tbl, fam, path, state (R: about to be loaded, D: loaded)
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use halcyon_cell::{Cell, Error, LATEST_TIMESTAMP, Result};
use halcyon_proto::pb;
use halcyon_proto::pb::backup_info::BackupState;
use halcyon_schema::{ServerName, TableName};
use prost::Message;

const SESSION_ROWS: &[u8] = b"session:";
const BULK_ROWS: &[u8] = b"bulk:";
const SESSION_FAMILY: &[u8] = b"session";
const META_FAMILY: &[u8] = b"meta";
const LOG_ROLL: &[u8] = b"rs-log-ts";

/// The names of the two tables (HBase: `hbase.backup.system.table.name`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupTables {
    /// `backup:system` by default.
    pub system: TableName,
    /// The same name with `_bulk` behind it.
    pub bulk: TableName,
}

impl BackupTables {
    /// Errors (kind `Invalid`): no table can have this name.
    pub fn new(system: &str) -> Result<BackupTables> {
        Ok(BackupTables {
            system: TableName::parse(system.as_bytes())?,
            bulk: TableName::parse(format!("{system}_bulk").as_bytes())?,
        })
    }

    pub fn contains(&self, table: &TableName) -> bool {
        [&self.system, &self.bulk].contains(&table)
    }
}

impl Default for BackupTables {
    fn default() -> BackupTables {
        BackupTables::new("backup:system").expect("the names are legal")
    }
}

/// Whether a file of a bulk load is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkLoadState {
    Prepared,
    Loaded,
}

/// Where a region server reads and writes these tables. *Thread safety*: shared freely. *Blocking*.
pub trait BackupBooks: Send + Sync {
    /// All rows of a table; `None`: there is no such table.
    fn rows(&self, table: &TableName) -> Result<Option<Vec<Vec<Cell>>>>;

    /// Writes cells into a table. After an error a part may be there.
    fn put(&self, table: &TableName, cells: Vec<Cell>) -> Result<()>;
}

/// So often WALs are rolled for a backup: a log that keeps a spare file gives it the next higher number, so what is the current
/// file of a server is certain only for numbers that were there two rolls ago.
pub const BACKUP_ROLLS_COUNT: usize = 2;

/// The highest number of the WALs with these file names; those of meta do not count.
pub fn last_wal_number<'a>(names: impl Iterator<Item = &'a str>) -> Option<i64> {
    names.filter_map(|name| name.rsplit_once('.')?.1.parse().ok()).max()
}

/// The number that [`log_roll_cell`] has noted of a server. `rows` are those of `backup:system`.
pub fn noted_log_roll(rows: &[Vec<Cell>], backup_root: &str, server: &ServerName) -> Option<i64> {
    let row = log_roll_row(backup_root, server);
    let cells = rows.iter().flatten().filter(|cell| cell.row() == row && cell.qualifier() == LOG_ROLL);
    cells.filter_map(|cell| cell.value().try_into().ok().map(i64::from_be_bytes)).next()
}

fn log_roll_row(backup_root: &str, server: &ServerName) -> Vec<u8> {
    [b"rslogts:", backup_root.as_bytes(), &[0], server.address().as_bytes()].concat()
}

/// Notes that WALs of a server up to this number take no more edits, for the backups in a directory.
pub fn log_roll_cell(backup_root: &str, server: &ServerName, number: i64) -> Cell {
    let row = log_roll_row(backup_root, server);
    Cell::put(&row, META_FAMILY, LOG_ROLL, LATEST_TIMESTAMP, &number.to_be_bytes())
}

/// Notes a file that a region gets by a bulk load. `path` is the one in the region.
pub fn bulk_load_cells(
    table: &TableName,
    region: &str,
    family: &[u8],
    path: &str,
    state: BulkLoadState,
) -> Vec<Cell> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let row = [BULK_ROWS, format!("{table}:{region}:{name}").as_bytes()].concat();
    let state: &[u8] = match state {
        BulkLoadState::Prepared => b"R",
        BulkLoadState::Loaded => b"D",
    };
    let columns: [(&[u8], &[u8]); 4] =
        [(b"fam", family), (b"path", path.as_bytes()), (b"state", state), (b"tbl", table.full_name())];
    let cell =
        |(qualifier, value): (&[u8], &[u8])| Cell::put(&row, META_FAMILY, qualifier, LATEST_TIMESTAMP, value);
    columns.map(cell).into()
}

/// Names of the files of bulk loads that the next incremental backup copies. `rows` are those of `backup:system_bulk`.
pub fn bulk_loaded_files(rows: &[Vec<Cell>]) -> HashSet<String> {
    let cells = rows.iter().flatten().filter(|cell| cell.row().starts_with(BULK_ROWS));
    let paths = cells.filter(|cell| cell.family() == META_FAMILY && cell.qualifier() == b"path");
    let name = |cell: &Cell| {
        let path = String::from_utf8_lossy(cell.value()).into_owned();
        path.rsplit('/').next().map(ToString::to_string)
    };
    paths.filter_map(name).collect()
}

/// Region servers may be 30 seconds apart, and the tool's machine as well.
const CLOCKS_APART_MS_MAX: u64 = 60_000;

/// Backups that count: completed ones, and full ones that run.
#[derive(Clone, Debug, Default)]
pub struct Backups {
    completed: Vec<pb::BackupInfo>,
    running_full: Vec<pb::BackupInfo>,
}

/// What WALs all directories of backups have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boundaries {
    /// By server (`host:port`): the highest number of a WAL that all directories have, for all of their tables.
    by_server: BTreeMap<String, u64>,
    /// The same for a server that no backup names. `None`: there are no backups.
    of_others: Option<u64>,
}

/// What WALs one directory has for one table.
struct Held<'a> {
    /// By server (`host:port`): the highest number of a WAL.
    by_server: Option<&'a HashMap<String, u64>>,
    /// The same for a server that is not named. It was gone before the backup, or joined after it. The number of a WAL is the time of its
    /// creation, which tells one from the other.
    of_others: u64,
}

impl Held<'_> {
    fn boundary(&self, server: &str) -> u64 {
        self.by_server.and_then(|named| named.get(server)).copied().unwrap_or(self.of_others)
    }
}

impl Backups {
    /// Of the rows of `backup:system`. A session that cannot be read is an error: nobody knows what it needs.
    pub fn of_rows(rows: &[Vec<Cell>]) -> Result<Backups> {
        let mut backups = Backups::default();
        for cell in rows.iter().flatten().filter(|cell| cell.row().starts_with(SESSION_ROWS)) {
            if cell.family() != SESSION_FAMILY || cell.qualifier() != b"context" {
                continue;
            }
            let info = pb::BackupInfo::decode(cell.value()).map_err(|error| {
                Error::corrupt(format!("backup:system, row {}: {error}", cell.row().escape_ascii()))
            })?;
            match (info.backup_state(), info.backup_type()) {
                (BackupState::Complete, _) => backups.completed.push(info),
                (BackupState::Running, pb::BackupType::Full) => backups.running_full.push(info),
                _ => {}
            }
        }
        Ok(backups)
    }

    /// Tables with a full backup, also one that still runs: from then on bulk loads of them belong to incremental backups. What
    /// is loaded while the first full backup copies its snapshot is in no WAL and not in the snapshot.
    pub fn full_tables(&self) -> BTreeSet<TableName> {
        let full = self.completed.iter().filter(|info| info.backup_type() == pb::BackupType::Full);
        let full = full.chain(&self.running_full);
        let tables =
            full.flat_map(|info| &info.backup_table_info).filter_map(|info| info.table_name.as_ref());
        tables.filter_map(|name| TableName::from_pb(name).ok()).collect()
    }

    /// Of each server (`host:port`) the highest number of a WAL that all directories of backups have (HBase:
    /// `BackupLogCleaner.serverToPreservationBoundaryTs`, which looks at the directories and tables that name the server only).
    pub fn boundaries(&self) -> Boundaries {
        let held = self.held();
        let named = held.iter().filter_map(|held| held.by_server).flat_map(HashMap::keys);
        let lowest = |server: &String| held.iter().map(|held| held.boundary(server)).min();
        Boundaries {
            by_server: named.filter_map(|server| Some((server.clone(), lowest(server)?))).collect(),
            of_others: held.iter().map(|held| held.of_others).min(),
        }
    }

    /// What the directories have, by the newest backup of each. That one names the WALs of its own tables, and repeats what the newest
    /// backups of the others have named.
    fn held(&self) -> Vec<Held<'_>> {
        let mut newest: HashMap<&str, &pb::BackupInfo> = HashMap::new();
        let mut started: HashMap<(&str, String), u64> = HashMap::new();
        for info in &self.completed {
            let known = newest.entry(info.backup_root_dir()).or_insert(info);
            if known.start_ts() < info.start_ts() {
                *known = info;
            }
            let tables = info.backup_table_info.iter().filter_map(|of_table| of_table.table_name.as_ref());
            for table in tables.filter_map(|name| TableName::from_pb(name).ok()) {
                let begun = started.entry((info.backup_root_dir(), table.to_string())).or_default();
                *begun = info.start_ts().max(*begun);
            }
        }
        let before = |start_ms: u64| start_ms.saturating_sub(CLOCKS_APART_MS_MAX);
        let mut held = Vec::new();
        for (root, info) in newest {
            if info.table_set_timestamp.is_empty() {
                held.push(Held { by_server: None, of_others: before(info.start_ts()) });
            }
            for (table, servers) in &info.table_set_timestamp {
                let servers = &servers.rs_timestamp;
                // The record of the table's own backup may be gone. What it had rolled is older than it was.
                let rolled = || servers.values().min().copied().unwrap_or(info.start_ts());
                let begun = started.get(&(root, table.clone())).copied().unwrap_or_else(rolled);
                held.push(Held { by_server: Some(servers), of_others: before(begun) });
            }
        }
        held
    }
}

/// Whether a WAL in `oldWALs` is still to be backed up. HBase keeps what it cannot read the name of; so does this. (HBase 2.6.4 deletes
/// the WALs of a server that no backup names.)
pub fn needs_wal(boundaries: &Boundaries, name: &str) -> bool {
    let Some(of_others) = boundaries.of_others else { return false };
    let name = name.strip_suffix(".meta").unwrap_or(name);
    let Some((server, number)) = name.rsplit_once('.') else { return true };
    let Ok(number) = number.parse::<u64>() else { return true };
    let server = server.replace("%2C", ",");
    let mut parts = server.split(',');
    let (Some(host), Some(port)) = (parts.next(), parts.next()) else { return true };
    number > boundaries.by_server.get(&format!("{host}:{port}")).copied().unwrap_or(of_others)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A millisecond of the day on which these backups began.
    const DAY: u64 = 1_700_000_000_000;

    fn info(root: &str, start_ts: u64, kind: pb::BackupType, servers: &[(&str, u64)]) -> pb::BackupInfo {
        let table = TableName::parse(b"n:t").unwrap();
        let numbers = servers.iter().map(|(server, number)| (server.to_string(), *number)).collect();
        let numbers = pb::backup_info::RsTimestampMap { rs_timestamp: numbers };
        pb::BackupInfo {
            backup_id: Some(format!("backup_{start_ts}")),
            backup_type: Some(kind as i32),
            backup_root_dir: Some(root.to_string()),
            backup_state: Some(BackupState::Complete as i32),
            backup_table_info: vec![pb::BackupTableInfo {
                table_name: Some(table.to_pb()),
                snapshot_name: None,
            }],
            start_ts: Some(DAY + start_ts),
            table_set_timestamp: [("n:t".to_string(), numbers)].into(),
            ..Default::default()
        }
    }

    fn row(info: &pb::BackupInfo) -> Vec<Cell> {
        let row = format!("session:{}", info.backup_id());
        vec![Cell::put(row.as_bytes(), SESSION_FAMILY, b"context", 1, &info.encode_to_vec())]
    }

    #[test]
    fn wals_that_one_directory_lacks_are_needed() {
        use pb::BackupType::{Full, Incremental};
        let mut failed = info("/a", 9, Incremental, &[("h:1", 900)]);
        failed.backup_state = Some(BackupState::Failed as i32);
        let rows: Vec<Vec<Cell>> = [
            info("/a", 1, Full, &[("h:1", 100), ("g:2", 50)]),
            info("/a", 2, Incremental, &[("h:1", 200), ("g:2", 60)]),
            info("/b", 1, Full, &[("h:1", 150)]),
            failed,
        ]
        .iter()
        .map(row)
        .collect();
        let backups = Backups::of_rows(&rows).unwrap();
        assert_eq!(
            backups.full_tables().into_iter().map(|table| table.to_string()).collect::<Vec<_>>(),
            ["n:t"]
        );
        let boundaries = backups.boundaries();
        assert_eq!(boundaries.by_server, [("h:1".to_string(), 150), ("g:2".to_string(), 60)].into());
        for (name, needed) in [
            ("h%2C1%2C1000.150", false),
            ("h%2C1%2C1000.151", true),
            ("h%2C1%2C2000.200.meta", true),
            ("g%2C2%2C1000.60", false),
            ("strange", true),
        ] {
            assert_eq!(needs_wal(&boundaries, name), needed, "{name}");
        }
        assert!(!needs_wal(&Boundaries::default(), "h%2C1%2C1000.151"), "there are no backups");
        let damaged = vec![vec![Cell::put(b"session:x", SESSION_FAMILY, b"context", 1, &[0xff])]];
        assert!(Backups::of_rows(&damaged).is_err());
    }

    /// It joins, takes writes and dies between two backups. Its WALs were deleted, and the next incremental backup was complete
    /// without them.
    #[test]
    fn wals_of_a_server_that_joined_after_the_last_backup_are_needed() {
        use pb::BackupType::{Full, Incremental};
        let hour = 3_600_000;
        let first = [info("/a", 0, Full, &[("h:1", 100)]), info("/b", hour, Full, &[("h:1", 100)])];
        let later = info("/a", 3 * hour, Incremental, &[("h:1", 200)]);
        let boundaries = |infos: &[pb::BackupInfo]| {
            Backups::of_rows(&infos.iter().map(row).collect::<Vec<_>>()).unwrap().boundaries()
        };
        let wal = |created_ms: u64| format!("f%2C3%2C{created_ms}.{created_ms}");
        let at_first = boundaries(&first);
        assert!(needs_wal(&at_first, &wal(DAY + 2 * hour)), "it joined after both");
        assert!(needs_wal(&at_first, &wal(DAY + 1)), "it joined after one of them");
        assert!(needs_wal(&at_first, &wal(DAY - 30_000)), "by a clock that is behind");
        assert!(!needs_wal(&at_first, &wal(DAY - hour)), "it was gone before");
        let all = [first[0].clone(), first[1].clone(), later.clone()];
        assert!(needs_wal(&boundaries(&all), &wal(DAY + 2 * hour)), "/b does not have it yet");
        let both =
            [all[0].clone(), all[1].clone(), later, info("/b", 4 * hour, Incremental, &[("h:1", 200)])];
        assert!(!needs_wal(&boundaries(&both), &wal(DAY + 2 * hour)), "both have it");
    }

    /// One directory had a backup after a server joined, so it alone was asked what is still needed of that server.
    #[test]
    fn a_directory_that_does_not_know_a_server_yet_needs_its_wals() {
        use pb::BackupType::{Full, Incremental};
        let hour = 3_600_000;
        let [a, b] = ["/a", "/b"].map(|root| info(root, hour, Full, &[("h:1", 100)]));
        let joined = [("h:1", 200), ("f:3", DAY + 3 * hour)];
        let a_later = info("/a", 3 * hour, Incremental, &joined);
        let needs = |infos: &[&pb::BackupInfo], created_ms: u64| {
            let rows: Vec<_> = infos.iter().map(|info| row(info)).collect();
            let name = format!("f%2C3%2C{created_ms}.{created_ms}");
            needs_wal(&Backups::of_rows(&rows).unwrap().boundaries(), &name)
        };
        assert!(needs(&[&a, &b, &a_later], DAY + 2 * hour), "/b does not have it");
        assert!(!needs(&[&a, &a_later], DAY + 2 * hour), "all have it");
        assert!(!needs(&[&a, &b, &a_later], DAY), "it was gone before /b began");
        let b_later = info("/b", 4 * hour, Incremental, &joined);
        assert!(!needs(&[&a, &b, &a_later, &b_later], DAY + 2 * hour), "all have it now");
    }

    /// A later full backup of one table names the servers of its time. The other tables have what they had.
    #[test]
    fn a_table_that_does_not_know_a_server_yet_needs_its_wals() {
        use pb::BackupType::Full;
        let hour = 3_600_000;
        let first = info("/a", hour, Full, &[("h:1", 100)]);
        let mut second = info("/a", 3 * hour, Full, &[("h:1", 200), ("f:3", DAY + 3 * hour)]);
        let of_second = second.table_set_timestamp.remove("n:t").unwrap();
        second.table_set_timestamp.insert("u".to_string(), of_second);
        second.table_set_timestamp.extend(first.table_set_timestamp.clone());
        second.backup_table_info[0].table_name = Some(TableName::parse(b"u").unwrap().to_pb());
        let boundaries = Backups::of_rows(&[row(&first), row(&second)]).unwrap().boundaries();
        let wal = |created_ms: u64| format!("f%2C3%2C{created_ms}.{created_ms}");
        assert!(needs_wal(&boundaries, &wal(DAY + 2 * hour)), "n:t does not have it");
        assert!(!needs_wal(&boundaries, &wal(DAY)), "it was gone before both");
        // The record of the first backup is gone: what h:1 had rolled by then is the time that is known.
        let boundaries = Backups::of_rows(&[row(&second)]).unwrap().boundaries();
        assert!(needs_wal(&boundaries, &wal(DAY)));
    }

    /// What is loaded while the first full backup copies its snapshot was in no backup.
    #[test]
    fn bulk_loads_count_from_the_begin_of_the_first_full_backup() {
        use pb::BackupType::{Full, Incremental};
        let with = |kind, state: BackupState| {
            let mut one = info("/a", 1, kind, &[]);
            one.backup_state = Some(state as i32);
            !Backups::of_rows(&[row(&one)]).unwrap().full_tables().is_empty()
        };
        assert!(with(Full, BackupState::Complete) && with(Full, BackupState::Running));
        assert!(!with(Full, BackupState::Failed) && !with(Full, BackupState::Cancelled));
        assert!(!with(Incremental, BackupState::Running) && !with(Incremental, BackupState::Complete));
        let mut running = info("/a", 1, Full, &[("h:1", 100)]);
        running.backup_state = Some(BackupState::Running as i32);
        assert_eq!(Backups::of_rows(&[row(&running)]).unwrap().boundaries(), Boundaries::default());
    }

    #[test]
    fn a_bulk_load_is_found_by_its_file() {
        let table = TableName::parse(b"n:t").unwrap();
        let cells =
            bulk_load_cells(&table, "abc", b"f", "/r/data/n/t/abc/f/x_SeqId_4_", BulkLoadState::Prepared);
        assert_eq!(cells[0].row(), b"bulk:n:t:abc:x_SeqId_4_");
        let value = |qualifier: &[u8]| {
            let found = cells.iter().find(|cell| cell.qualifier() == qualifier).unwrap();
            found.value().to_vec()
        };
        assert_eq!(
            (value(b"tbl"), value(b"fam"), value(b"state")),
            (b"n:t".into(), b"f".into(), b"R".into())
        );
        assert_eq!(bulk_loaded_files(&[cells]), ["x_SeqId_4_".to_string()].into());
    }

    #[test]
    fn a_roll_is_noted_for_directory_and_server() {
        let server = ServerName::new("h", 1, 1000);
        let cell = log_roll_cell("file:/b", &server, 7);
        assert_eq!((cell.row(), cell.value()), (&b"rslogts:file:/b\0h:1"[..], &7i64.to_be_bytes()[..]));
    }
}
