//! What `exporttable` of Accumulo writes beside the RFiles: `exportMetadata.zip`.
//!
//! ```text
//! accumulo_export_info.txt   name:value, such as srcTableName and srcInstanceName
//! table_config.txt           name=value, properties of the table that are not defaults
//! metadata.bin               ( key | int32 length | value )* of accumulo.metadata
//! ```
//!
//! Rows of the metadata are `tableId;last row` or `tableId<` of the last tablet. Columns: `file:path` with
//! `size,entries[,time]`, and `~tab:~pr` with the last row of the tablet before (`1 row`, or `0` of the first).
//!
//! A file belongs to several tablets after a split, and each reads its own rows of it only. What a tablet has deleted and
//! compacted away may still be in such a file, so the rows of files cannot be taken without this.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use crate::args::bytes;
use crate::rfile::{Key, Reader};

/// Name of the file.
pub(crate) const EXPORT_FILE: &str = "exportMetadata.zip";
/// What one entry of the archive may have, decompressed.
const ENTRY_BYTES_MAX: u64 = 1 << 30;

/// A tablet and its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tablet {
    /// Its rows are behind this one; `None`: from the first.
    pub(crate) previous: Option<Vec<u8>>,
    /// Its last row; `None`: to the end.
    pub(crate) last: Option<Vec<u8>>,
    pub(crate) files: Vec<TabletFile>,
}

/// A file of a tablet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TabletFile {
    /// As the metadata has it: an address, or in old tables the part behind the table's directory.
    pub(crate) path: String,
    /// Of a bulk import with `setTime`.
    pub(crate) time: Option<i64>,
}

impl TabletFile {
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// An exported table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Export {
    pub(crate) info: BTreeMap<String, String>,
    pub(crate) config: BTreeMap<String, String>,
    /// In the order of rows; all rows are in one of them.
    pub(crate) tablets: Vec<Tablet>,
}

impl Export {
    /// Reads the archive. The error is a sentence.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Export, String> {
        let archive = zip::ZipArchive::new(Cursor::new(bytes));
        let mut archive = archive.map_err(|error| format!("damaged: {error}"))?;
        let mut entry = |name: &str| -> Result<Vec<u8>, String> {
            let entry = archive.by_name(name).map_err(|error| format!("damaged: {name}: {error}"))?;
            let mut bytes = Vec::new();
            let read = entry.take(ENTRY_BYTES_MAX).read_to_end(&mut bytes);
            read.map_err(|error| format!("damaged: {name}: {error}"))?;
            Ok(bytes)
        };
        let info = pairs(&entry("accumulo_export_info.txt")?, ':');
        let config = pairs(&entry("table_config.txt")?, '=');
        let tablets =
            tablets(&entry("metadata.bin")?).map_err(|why| format!("damaged: metadata.bin: {why}"))?;
        Ok(Export { info, config, tablets })
    }
}

fn pairs(bytes: &[u8], separator: char) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(bytes);
    let pairs = text.lines().filter_map(|line| line.split_once(separator));
    pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn tablets(bytes: &[u8]) -> Result<Vec<Tablet>, String> {
    let mut reader = Reader::new(bytes);
    let mut tablets: Vec<Tablet> = Vec::new();
    let mut row: Option<Vec<u8>> = None;
    let mut has_previous = true;
    while reader.left() > 0 {
        let key = Key::read_whole(&mut reader).map_err(|error| error.to_string())?;
        let value = reader.counted().map_err(|error| error.to_string())?;
        if row.as_ref() != Some(&key.row) {
            if !std::mem::take(&mut has_previous) {
                return Err(format!("a tablet before '{}' has no ~tab:~pr", key.row.escape_ascii()));
            }
            tablets.push(Tablet { last: last_row(&key.row)?, ..Tablet::default() });
            row = Some(key.row.clone());
        }
        let tablet = tablets.last_mut().expect("one was pushed");
        match (&key.family[..], &key.qualifier[..]) {
            (b"file", path) => tablet.files.push(file(path, value)?),
            (b"~tab", b"~pr") => {
                has_previous = true;
                tablet.previous = match value {
                    [0] => None,
                    [1, row @ ..] => Some(row.to_vec()),
                    other => return Err(format!("~tab:~pr is '{}'", other.escape_ascii())),
                };
            }
            _ => {} // times and directories
        }
    }
    let mut before = None;
    for tablet in &tablets {
        if tablet.previous != before {
            return Err("the tablets have gaps: was a part of the table exported?".to_string());
        }
        before = tablet.last.clone();
    }
    match (tablets.is_empty(), before, has_previous) {
        (false, None, true) => Ok(tablets),
        _ => Err("the last tablet is missing".to_string()),
    }
}

/// `tableId;row` or `tableId<`.
fn last_row(row: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let at = row.iter().position(|byte| matches!(byte, b';' | b'<'));
    match at.map(|at| (row[at], &row[at + 1..])) {
        Some((b';', last)) => Ok(Some(last.to_vec())),
        Some((b'<', [])) => Ok(None),
        _ => Err(format!("a tablet is called '{}'", row.escape_ascii())),
    }
}

fn file(path: &[u8], value: &[u8]) -> Result<TabletFile, String> {
    let path = std::str::from_utf8(path).map_err(|_| format!("a path of '{}'", path.escape_ascii()))?;
    if path.starts_with('{') {
        return Err(format!(
            "{path}: a file of which a tablet reads a part, as Accumulo 4 writes it; compact the table"
        ));
    }
    let text = String::from_utf8_lossy(value);
    let fields: Vec<&str> = text.split(',').collect();
    let time = match fields[..] {
        [_, _] => Some(-1),
        [_, _, time] => time.parse().ok(),
        _ => None,
    };
    let time: i64 = time.ok_or_else(|| format!("{path}: '{}' is no size", text.escape_default()))?;
    Ok(TabletFile { path: path.to_string(), time: (time >= 0).then_some(time) })
}

/// What the table's properties say that matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableConfig {
    /// Of the VersioningIterator; `None`: there is none, all versions stay.
    pub(crate) versions_max: Option<u64>,
    /// Iterators that change what a scan shows: `scope name class`.
    pub(crate) iterators: Vec<String>,
    pub(crate) constraints: Vec<String>,
    /// Families of the enabled locality groups (`LocalityGroupUtil.decodeColumnFamily` reads `\\xhh` and `\\\\`).
    pub(crate) groups: BTreeMap<String, Vec<Vec<u8>>>,
    /// `table.file.compress.type`.
    pub(crate) compression: Option<String>,
}

const VERSIONING: &str = "org.apache.accumulo.core.iterators.user.VersioningIterator";
/// Its name in Accumulo 1.3.
const VERSIONING_OLD: &str = "org.apache.accumulo.core.iterators.VersioningIterator";

impl TableConfig {
    pub(crate) fn of(properties: &BTreeMap<String, String>) -> Result<TableConfig, String> {
        let mut config = TableConfig::default();
        let enabled = properties.get("table.groups.enabled").map(String::as_str).unwrap_or_default();
        for group in enabled.split(',').map(str::trim).filter(|group| !group.is_empty()) {
            let families =
                properties.get(&format!("table.group.{group}")).map(String::as_str).unwrap_or_default();
            let families = families.split(',').filter(|family| !family.is_empty()).map(bytes);
            let families: Result<_, String> = families.collect();
            config.groups.insert(group.to_string(), families?);
        }
        config.compression = properties.get("table.file.compress.type").cloned();
        for (name, value) in properties {
            if let Some(name) = name.strip_prefix("table.constraint.") {
                config.constraints.push(format!("{name} {value}"));
            }
            let Some(rest) = name.strip_prefix("table.iterator.") else { continue };
            let Some((scope, iterator)) = rest.split_once('.') else { continue };
            if iterator.contains('.') {
                continue; // an option
            }
            let class = value.split_once(',').map_or(&value[..], |(_, class)| class.trim());
            if class != VERSIONING && class != VERSIONING_OLD {
                config.iterators.push(format!("{scope} {iterator} {class}"));
                continue;
            }
            let versions = properties.get(&format!("{name}.opt.maxVersions"));
            let versions = versions
                .map_or(Ok(1), |text| text.parse().map_err(|_| format!("{name}: maxVersions '{text}'")));
            let versions: u64 = versions?;
            config.versions_max = Some(config.versions_max.map_or(versions, |other| other.max(versions)));
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests;
