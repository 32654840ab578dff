//! The table of quotas: the master writes it, region servers read it (HBase: `QuotaTableUtil`).
//!
//! ```text
//! row                    q:s                  q:s.TABLE, q:s.NAMESPACE:   u:p                    u:ssNAME
//! n.NAMESPACE            Quotas               -                           -                      (u:ss) size
//! t.TABLE                Quotas               -                           SpaceQuotaSnapshot     size of a snapshot
//! u.USER                 Quotas               Quotas                      -                      -
//! r.all                  Quotas               -                           -                      -
//! exceedThrottleQuota    one byte, 0 or -1    -                           -                      -
//! ```
//!
//! `Quotas` has the mark `PBUF` before it; the messages of family `u` have none.

use std::collections::BTreeMap;

use halcyon_cell::{Cell, Error, Result};
use halcyon_proto::{PB_MAGIC, pb};
use halcyon_schema::{FamilyDescriptor, RegionInfo, TableDescriptor, TableName};
use prost::Message;

/// Family of settings.
pub const QUOTA_SETTINGS_FAMILY: &[u8] = b"q";
/// Family of what tables use.
pub const QUOTA_USAGE_FAMILY: &[u8] = b"u";
/// What a table with a space quota uses, and whether that is too much.
pub const QUOTA_SNAPSHOT_QUALIFIER: &[u8] = b"p";
/// Bytes that snapshots alone hold: in the row of a table the name of a snapshot follows, in that of a namespace nothing.
pub const QUOTA_SNAPSHOT_SIZE_QUALIFIER: &[u8] = b"ss";
/// The one region server subject that HBase knows: each server.
pub const ALL_REGION_SERVERS: &str = "all";

const SETTINGS: &[u8] = b"s";
const SETTINGS_OF: &[u8] = b"s.";
const EXCEED_THROTTLE_ROW: &[u8] = b"exceedThrottleQuota";

/// `hbase:quota`.
pub fn quota_table_name() -> TableName {
    TableName::parse(b"hbase:quota").expect("the name is legal")
}

/// As HBase's master makes it (`QuotaUtil.QUOTA_TABLE_DESC`).
pub fn quota_table() -> TableDescriptor {
    let family = |name| {
        let family = FamilyDescriptor::new(name).expect("the name is legal");
        family.with("REPLICATION_SCOPE", "0").with("BLOOMFILTER", "ROW").with("VERSIONS", "1")
    };
    TableDescriptor::new(quota_table_name())
        .with("IS_META", "false")
        .with_family(family(QUOTA_SETTINGS_FAMILY))
        .with_family(family(QUOTA_USAGE_FAMILY))
}

/// What a quota is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaSubject {
    Namespace(String),
    Table(TableName),
    User(String),
    UserOnTable(String, TableName),
    UserOnNamespace(String, String),
    RegionServer(String),
}

impl QuotaSubject {
    /// Its row.
    pub fn row(&self) -> Vec<u8> {
        match self {
            QuotaSubject::Namespace(name) => format!("n.{name}").into_bytes(),
            QuotaSubject::Table(table) => format!("t.{table}").into_bytes(),
            QuotaSubject::User(user)
            | QuotaSubject::UserOnTable(user, _)
            | QuotaSubject::UserOnNamespace(user, _) => format!("u.{user}").into_bytes(),
            QuotaSubject::RegionServer(server) => format!("r.{server}").into_bytes(),
        }
    }

    /// Its column in the family of settings.
    pub fn qualifier(&self) -> Vec<u8> {
        match self {
            QuotaSubject::UserOnTable(_, table) => format!("s.{table}").into_bytes(),
            QuotaSubject::UserOnNamespace(_, namespace) => format!("s.{namespace}:").into_bytes(),
            _ => SETTINGS.to_vec(),
        }
    }

    /// What a cell of the family of settings is for; `None`: it is no setting of a subject.
    fn of(row: &str, qualifier: &[u8]) -> Result<Option<QuotaSubject>> {
        let name = |name: &str| name.to_string();
        let Some((kind, subject)) = row.split_once('.') else { return Ok(None) };
        Ok(match (kind, qualifier.strip_prefix(SETTINGS_OF)) {
            ("n", None) => Some(QuotaSubject::Namespace(name(subject))),
            ("t", None) => Some(QuotaSubject::Table(TableName::parse(subject.as_bytes())?)),
            ("r", None) => Some(QuotaSubject::RegionServer(name(subject))),
            ("u", None) => Some(QuotaSubject::User(name(subject))),
            ("u", Some(of)) => match of.strip_suffix(b":") {
                Some(namespace) => {
                    let namespace = String::from_utf8_lossy(namespace).into_owned();
                    Some(QuotaSubject::UserOnNamespace(name(subject), namespace))
                }
                None => Some(QuotaSubject::UserOnTable(name(subject), TableName::parse(of)?)),
            },
            _ => None,
        })
    }
}

/// The value of a setting.
pub fn quotas_to_value(quotas: &pb::Quotas) -> Vec<u8> {
    [&PB_MAGIC[..], &quotas.encode_to_vec()].concat()
}

fn quotas_of_value(value: &[u8]) -> Result<pb::Quotas> {
    let message = value.strip_prefix(&PB_MAGIC[..]).ok_or_else(|| Error::corrupt("it lacks PBUF"))?;
    pb::Quotas::decode(message).map_err(|error| Error::corrupt(error.to_string()))
}

/// The row and the qualifier (in the family of settings) of the switch that lets users exceed their throttles while their
/// region server has capacity left.
pub fn exceed_throttle_cell(timestamp: i64, is_on: bool) -> Cell {
    let value = [if is_on { 0xff } else { 0 }];
    Cell::put(EXCEED_THROTTLE_ROW, QUOTA_SETTINGS_FAMILY, SETTINGS, timestamp, &value)
}

/// What is in `hbase:quota`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaTable {
    pub quotas: BTreeMap<QuotaSubject, pb::Quotas>,
    pub exceed_throttle: bool,
    /// What tables with a space quota use. Also those of a namespace with one.
    pub snapshots: BTreeMap<TableName, pb::SpaceQuotaSnapshot>,
    /// Bytes by table and snapshot, and under the empty name the sum of a namespace.
    pub snapshot_sizes: BTreeMap<QuotaSubject, BTreeMap<String, u64>>,
    /// Cells that could not be read, and why.
    pub unreadable: Vec<String>,
}

impl QuotaTable {
    /// Reads all rows of the table, of each cell the newest version. A cell that cannot be read changes nothing for others.
    pub fn of_rows(rows: &[Vec<Cell>]) -> QuotaTable {
        let mut table = QuotaTable::default();
        for cell in rows.iter().flatten() {
            if let Err(error) = table.add(cell) {
                let (row, column) = (cell.row().escape_ascii(), cell.qualifier().escape_ascii());
                table.unreadable.push(format!("{row}, {column}: {error}"));
            }
        }
        table
    }

    fn add(&mut self, cell: &Cell) -> Result<()> {
        if cell.row() == EXCEED_THROTTLE_ROW {
            self.exceed_throttle = cell.value().first().is_some_and(|&byte| byte != 0);
            return Ok(());
        }
        let row = std::str::from_utf8(cell.row()).map_err(|_| Error::corrupt("the row is no text"))?;
        let is_setting = cell.qualifier() == SETTINGS || cell.qualifier().starts_with(SETTINGS_OF);
        if cell.family() == QUOTA_SETTINGS_FAMILY && is_setting {
            if let Some(subject) = QuotaSubject::of(row, cell.qualifier())? {
                self.quotas.insert(subject, quotas_of_value(cell.value())?);
            }
        } else if cell.family() == QUOTA_USAGE_FAMILY
            && cell.qualifier() == QUOTA_SNAPSHOT_QUALIFIER
            && let Some(table) = row.strip_prefix("t.")
        {
            let snapshot = pb::SpaceQuotaSnapshot::decode(cell.value());
            let snapshot = snapshot.map_err(|error| Error::corrupt(error.to_string()))?;
            self.snapshots.insert(TableName::parse(table.as_bytes())?, snapshot);
        } else if cell.family() == QUOTA_USAGE_FAMILY
            && let Some(name) = cell.qualifier().strip_prefix(QUOTA_SNAPSHOT_SIZE_QUALIFIER)
            && let Some(subject) = QuotaSubject::of(row, b"")?
        {
            let size = pb::SpaceQuotaSnapshot::decode(cell.value());
            let size = size.map_err(|error| Error::corrupt(error.to_string()))?.quota_usage();
            let name = String::from_utf8_lossy(name).into_owned();
            self.snapshot_sizes.entry(subject).or_default().insert(name, size);
        }
        Ok(())
    }
}

/// What a region server has to know to enforce quotas.
#[derive(Clone, Debug, Default)]
pub struct QuotaView {
    pub table: QuotaTable,
    /// Whether requests are throttled (HBase: znode `rpc-throttle`).
    pub is_throttling: bool,
    /// Region servers that share limits of scope CLUSTER.
    pub servers_count: usize,
    /// Open regions of each table in the cluster.
    pub open_regions: BTreeMap<TableName, usize>,
}

/// Where a region server has the quotas of its cluster from.
pub trait QuotaSource: Send + Sync {
    /// Reads `hbase:quota`. *Blocking*.
    fn quotas(&self) -> Result<QuotaView>;
}

/// Region servers that enforce quotas.
pub trait QuotaEnforcement: Send + Sync {
    /// Has all of them read the quotas again. Those that cannot be reached read them later. *Blocking*.
    fn reload(&self);

    /// Bytes of store files of each open region of tables that are not of the system.
    fn region_sizes(&self) -> Vec<(RegionInfo, u64)>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> TableName {
        TableName::parse(name.as_bytes()).unwrap()
    }

    #[test]
    fn each_subject_is_found_again_by_its_row_and_column() {
        let user = "u.x".to_string();
        let subjects = [
            QuotaSubject::Namespace("ns".to_string()),
            QuotaSubject::Table(table("ns:t.x")),
            QuotaSubject::User(user.clone()),
            QuotaSubject::UserOnTable(user.clone(), table("t")),
            QuotaSubject::UserOnNamespace(user, "ns".to_string()),
            QuotaSubject::RegionServer(ALL_REGION_SERVERS.to_string()),
        ];
        let quotas = pb::Quotas { bypass_globals: Some(true), ..Default::default() };
        let cell = |subject: &QuotaSubject| {
            let value = quotas_to_value(&quotas);
            vec![Cell::put(&subject.row(), QUOTA_SETTINGS_FAMILY, &subject.qualifier(), 1, &value)]
        };
        let mut rows: Vec<Vec<Cell>> = subjects.iter().map(cell).collect();
        rows.push(vec![exceed_throttle_cell(1, true)]);
        let read = QuotaTable::of_rows(&rows);
        assert!(read.exceed_throttle && read.unreadable.is_empty(), "{read:?}");
        assert_eq!(read.quotas.len(), subjects.len());
        assert!(subjects.iter().all(|subject| read.quotas[subject] == quotas));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_leaves_the_rest_alone() {
        let put = |row: &str, family: &[u8], qualifier: &[u8], value: &[u8]| {
            vec![Cell::put(row.as_bytes(), family, qualifier, 1, value)]
        };
        let good = quotas_to_value(&pb::Quotas::default());
        let rows = [
            put("n.a", b"q", b"s", b"no mark"),
            put("n.b", b"q", b"s", b"PBUF\xff\xff"),
            put("u.c", b"q", b"s.bad name", &good),
            put("t.", b"u", b"p", b""),
            put("t.d", b"u", b"p", b"\xff"),
            put("x.unknown", b"q", b"s", b"ignored"),
            put("t.e", b"u", b"ssnapshot", b"no size"),
            put("t.f", b"u", b"another", b"ignored"),
            put("t.good", b"q", b"s", &good),
        ];
        let read = QuotaTable::of_rows(&rows);
        assert_eq!(read.unreadable.len(), 6, "{:?}", read.unreadable);
        assert_eq!(read.quotas.keys().collect::<Vec<_>>(), [&QuotaSubject::Table(table("good"))]);
        assert!(read.snapshots.is_empty() && read.snapshot_sizes.is_empty());
    }
}
