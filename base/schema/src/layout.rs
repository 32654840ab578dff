//! Where things lie under HBase's root directory.
//!
//! ```text
//! hbase.id  hbase.version
//! data/<namespace>/<table>/.tabledesc/.tableinfo.<10-digit sequence>.<length>
//! data/<namespace>/<table>/<encoded region>/.regioninfo
//! data/<namespace>/<table>/<encoded region>/<family>/<hfile>
//! data/<namespace>/<table>/<encoded region>/<family>/<hfile>.<encoded parent>    a reference
//! data/<namespace>/<table>/<encoded region>/<family>/[<namespace>=]<table>=<region>-<hfile>    a link
//! archive/data/<namespace>/<table>/...
//! archive/data/<namespace>/<table>/<encoded region>/<family>/.links-<hfile>/<region>.[<namespace>=]<table>    a back reference
//! mobdir/data/<namespace>/<table>/<encoded mob region>/<family>/<mob file>
//! mobdir/data/<namespace>/<table>/<encoded mob region>/<family>/[<namespace>=]<table>=<region>-<mob file>    a link
//! WALs/<server name>/  oldWALs/  corrupt/  .tmp/  MasterData/  .hbase-snapshot/
//! ```

use std::path::{Path, PathBuf};

use crate::{MobFileName, RegionInfo, TableName};

pub const DATA: &str = "data";
pub const ARCHIVE: &str = "archive";
pub const TABLE_DESC: &str = ".tabledesc";
const TABLE_INFO_PREFIX: &str = ".tableinfo.";
const BACK_REFERENCES_PREFIX: &str = ".links-";
pub const REGION_INFO: &str = ".regioninfo";
pub const RECOVERED_EDITS: &str = "recovered.edits";
/// Beside the recovered edits: nonces of operations that clients may repeat. HBase passes it over.
pub const NONCES_FILE: &str = "halcyon.nonces";
pub const REGION_TMP: &str = ".tmp";
/// In the directory of a family: lists of the files that are the store's.
pub const FILE_LIST: &str = ".filelist";

pub fn data_dir(root: &Path) -> PathBuf {
    root.join(DATA)
}

pub fn namespace_dir(root: &Path, namespace: &str) -> PathBuf {
    data_dir(root).join(namespace)
}

pub fn table_dir(root: &Path, table: &TableName) -> PathBuf {
    namespace_dir(root, table.namespace()).join(table.qualifier())
}

pub fn table_desc_dir(root: &Path, table: &TableName) -> PathBuf {
    table_dir(root, table).join(TABLE_DESC)
}

pub fn region_dir(root: &Path, table: &TableName, encoded_name: &str) -> PathBuf {
    table_dir(root, table).join(encoded_name)
}

pub fn archive_dir(root: &Path) -> PathBuf {
    root.join(ARCHIVE)
}

pub fn archive_table_dir(root: &Path, table: &TableName) -> PathBuf {
    archive_dir(root).join(DATA).join(table.namespace()).join(table.qualifier())
}

pub fn archive_region_dir(root: &Path, table: &TableName, encoded_name: &str) -> PathBuf {
    archive_table_dir(root, table).join(encoded_name)
}

/// Below it mob files stand as store files below the root directory.
pub fn mob_home(root: &Path) -> PathBuf {
    root.join("mobdir")
}

pub fn mob_table_dir(root: &Path, table: &TableName) -> PathBuf {
    table_dir(&mob_home(root), table)
}

/// Where the mob files of a family of a table are.
pub fn mob_family_dir(root: &Path, table: &TableName, family: &str) -> PathBuf {
    RegionInfo::of_mob_files(table).dir(&mob_home(root)).join(family)
}

/// Where the mob files of a family go when no store file refers to them any more.
pub fn mob_archive_dir(root: &Path, table: &TableName, family: &str) -> PathBuf {
    archive_region_dir(root, table, RegionInfo::of_mob_files(table).encoded_name()).join(family)
}

/// Directories of live WALs, one per server.
pub fn wals_dir(root: &Path) -> PathBuf {
    root.join("WALs")
}

pub fn old_wals_dir(root: &Path) -> PathBuf {
    root.join("oldWALs")
}

/// What replication peers have got: a file of Halcyon's for each peer.
pub fn replication_queues_dir(root: &Path) -> PathBuf {
    root.join("replication").join("queues")
}

pub fn cluster_id_file(root: &Path) -> PathBuf {
    root.join("hbase.id")
}

pub fn version_file(root: &Path) -> PathBuf {
    root.join("hbase.version")
}

/// The master's own files.
pub fn master_dir(root: &Path) -> PathBuf {
    root.join("MasterData")
}

pub fn tmp_dir(root: &Path) -> PathBuf {
    root.join(".tmp")
}

pub fn corrupt_dir(root: &Path) -> PathBuf {
    root.join("corrupt")
}

pub fn snapshots_dir(root: &Path) -> PathBuf {
    root.join(".hbase-snapshot")
}

/// Name of the file by which a region refers to a store file of its parent.
pub fn reference_name(file: &str, parent: &str) -> String {
    format!("{file}.{parent}")
}

/// The store file and the parent's encoded name that a reference's name holds; `None` for any other name
/// (`StoreFileInfo.REF_NAME_PATTERN`, with an encoded name of 32 digits).
pub fn parse_reference_name(name: &str) -> Option<(&str, &str)> {
    let (file, parent) = name.rsplit_once('.')?;
    let is_encoded = parent.len() == 32 && parent.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_encoded && !file.is_empty() && !file.starts_with('.')).then_some((file, parent))
}

/// The table, the encoded region and the store file that the name of a link holds: `<table>=<region>-<hfile>` or
/// `<namespace>=<table>=<region>-<hfile>`, by which HBase lets a region use a file of another table; `None` for any other
/// name (`HFileLink.LINK_NAME_PATTERN`).
pub fn parse_link_name(name: &str) -> Option<(TableName, &str, &str)> {
    let (table, rest) = name.rsplit_once('=')?;
    let (region, file) = rest.split_once('-')?;
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_file = file.split("_SeqId_").next().is_some_and(is_hex);
    let (namespace, qualifier) = table.split_once('=').unwrap_or((TableName::DEFAULT_NAMESPACE, table));
    let table = TableName::new(namespace.as_bytes(), qualifier.as_bytes()).ok()?;
    (is_hex(region) && is_file).then_some((table, region, file))
}

/// The table, the encoded mob region and the mob file that the name of a link to a mob file holds; `None` for any other name.
/// Nobody reads through such a link: references name the table of the file. It keeps the file in the archive.
pub fn parse_mob_link_name(name: &str) -> Option<(TableName, &str, &str)> {
    let (table, rest) = name.rsplit_once('=')?;
    let (region, file) = rest.split_once('-')?;
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (namespace, qualifier) = table.split_once('=').unwrap_or((TableName::DEFAULT_NAMESPACE, table));
    let table = TableName::new(namespace.as_bytes(), qualifier.as_bytes()).ok()?;
    (is_hex(region) && MobFileName::parse(file).is_some()).then_some((table, region, file))
}

/// Name of a link to a store file of any region (`HFileLink.createHFileLinkName`).
pub fn link_name(table: &TableName, region: &str, file: &str) -> String {
    format!("{}={region}-{file}", flat_name(table))
}

/// Name of the directory beside an archived store file in which its back references are
/// (`HFileLink.getBackReferencesDir`). The file itself may still be with its table.
pub fn back_references_name(file: &str) -> String {
    format!("{BACK_REFERENCES_PREFIX}{file}")
}

/// The store file whose back references a directory of this name has.
pub fn parse_back_references_name(name: &str) -> Option<&str> {
    name.strip_prefix(BACK_REFERENCES_PREFIX)
}

/// Name of the back reference of a link: the region and table that have the link (`HFileLink.createBackReferenceName`).
pub fn back_reference_name(table: &TableName, region: &str) -> String {
    format!("{region}.{}", flat_name(table))
}

/// The region and table that the name of a back reference holds.
pub fn parse_back_reference_name(name: &str) -> Option<(&str, TableName)> {
    let (region, table) = name.split_once('.')?;
    let (namespace, qualifier) = table.split_once('=').unwrap_or((TableName::DEFAULT_NAMESPACE, table));
    let table = TableName::new(namespace.as_bytes(), qualifier.as_bytes()).ok()?;
    (!region.is_empty()).then_some((region, table))
}

/// A table's name as it stands in names of files.
fn flat_name(table: &TableName) -> String {
    table.to_string().replace(':', "=")
}

/// File name of a table descriptor of `len` bytes.
pub fn table_info_name(sequence: u32, len: usize) -> String {
    format!("{TABLE_INFO_PREFIX}{sequence:010}.{len}")
}

/// Sequence and length of a descriptor's file name; the oldest form is without the length.
pub fn parse_table_info_name(name: &str) -> Option<(u32, Option<usize>)> {
    let rest = name.strip_prefix(TABLE_INFO_PREFIX)?;
    let (sequence, len) = match rest.split_once('.') {
        Some((sequence, len)) => (sequence, Some(len.parse().ok()?)),
        None => (rest, None),
    };
    if sequence.len() != 10 {
        return None;
    }
    Some((sequence.parse().ok()?, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_files_as_hbase_does() {
        let root = Path::new("/hbase");
        let table = TableName::parse(b"ns:t").unwrap();
        assert_eq!(table_desc_dir(root, &table), Path::new("/hbase/data/ns/t/.tabledesc"));
        assert_eq!(archive_region_dir(root, &table, "ab"), Path::new("/hbase/archive/data/ns/t/ab"));
        let mob = mob_family_dir(root, &table, "f");
        assert!(mob.starts_with("/hbase/mobdir/data/ns/t") && mob.ends_with("f"));
        assert!(mob_archive_dir(root, &table, "f").starts_with("/hbase/archive/data/ns/t"));
        assert_eq!(table_info_name(1, 613), ".tableinfo.0000000001.613");
        assert_eq!(parse_table_info_name(".tableinfo.0000000001.613"), Some((1, Some(613))));
        assert_eq!(parse_table_info_name(".tableinfo.0000000007"), Some((7, None)));
        assert_eq!(parse_table_info_name(".tableinfo.7"), None);
        assert_eq!(parse_table_info_name("x"), None);
        let parent = "2140f686c386930b96c060b1030c2875";
        assert_eq!(
            parse_reference_name(&reference_name("ab_SeqId_7_", parent)),
            Some(("ab_SeqId_7_", parent))
        );
        for name in
            ["ab", "ab.cd", ".2140f686c386930b96c060b1030c2875", ".copy-a.2140f686c386930b96c060b1030c2875"]
        {
            assert_eq!(parse_reference_name(name), None, "{name}");
        }
        let table = |name: &str| TableName::parse(name.as_bytes()).unwrap();
        let mob_file = format!("{parent}20261126{parent}_{parent}");
        for source in ["a-b.c", "ns:t"] {
            let link = link_name(&table(source), "0f", &mob_file);
            assert_eq!(parse_mob_link_name(&link), Some((table(source), "0f", &*mob_file)));
            assert_eq!(parse_link_name(&link), None);
        }
        assert_eq!(parse_mob_link_name("t=0f-1a"), None);
        assert_eq!(back_reference_name(&table("ns:t"), "0f"), "0f.ns=t");
        assert_eq!(parse_link_name("a-b.c=0f-1a"), Some((table("a-b.c"), "0f", "1a")));
        assert_eq!(parse_link_name("ns=t=0f-1a_SeqId_7_"), Some((table("ns:t"), "0f", "1a_SeqId_7_")));
        let reference = format!("t=0f-1a.{parent}");
        assert_eq!(parse_reference_name(&reference), Some(("t=0f-1a", parent)));
        assert_eq!(link_name(&table("ns:t"), "0f", "1a"), "ns=t=0f-1a");
        assert_eq!(link_name(&table("a-b.c"), "0f", "1a"), "a-b.c=0f-1a");
        assert_eq!(parse_back_references_name(&back_references_name("1a")), Some("1a"));
        for name in ["ns:t", "a-b.c"] {
            let back = back_reference_name(&table(name), "0f");
            assert_eq!(parse_back_reference_name(&back), Some(("0f", table(name))), "{back}");
        }
        for name in ["0f", ".t", "0f."] {
            assert_eq!(parse_back_reference_name(name), None, "{name}");
        }
        for name in ["0f-1a", "t=0f", "t=xy-1a", "t=0f-.tmp", "=0f-1a", &reference] {
            assert_eq!(parse_link_name(name), None, "{name}");
        }
    }
}
