//! `alter`, and the attributes that it shares with `create`.

use halcyon_client::{FamilyDescriptor, TableDescriptor};

use super::Context;
use super::tables::nested;
use crate::arguments::Arguments;
use crate::error::ShellError;
use crate::value::{Map, Value};

/// Seconds of `FOREVER` (`HConstants.FOREVER`).
pub(super) const FOREVER: &str = "2147483647";

/// Attributes of families (`ColumnFamilyDescriptorBuilder`).
const FAMILY_ATTRIBUTES: &[&str] = &[
    "BLOCKCACHE",
    "BLOCKSIZE",
    "BLOOMFILTER",
    "CACHE_BLOOMS_ON_WRITE",
    "CACHE_DATA_ON_WRITE",
    "CACHE_INDEX_ON_WRITE",
    "COMPRESSION",
    "COMPRESSION_COMPACT",
    "COMPRESSION_COMPACT_MAJOR",
    "COMPRESSION_COMPACT_MINOR",
    "COMPRESS_TAGS",
    "DATA_BLOCK_ENCODING",
    "DFS_REPLICATION",
    "ENCRYPTION",
    "ENCRYPTION_KEY",
    "EVICT_BLOCKS_ON_CLOSE",
    "INDEX_BLOCK_ENCODING",
    "IN_MEMORY",
    "IN_MEMORY_COMPACTION",
    "IS_MOB",
    "KEEP_DELETED_CELLS",
    "MIN_VERSIONS",
    "MOB_COMPACT_PARTITION_POLICY",
    "MOB_THRESHOLD",
    "NEW_VERSION_BEHAVIOR",
    "PREFETCH_BLOCKS_ON_OPEN",
    "REPLICATION_SCOPE",
    "STORAGE_POLICY",
    "TTL",
    "VERSIONS",
];
/// Attributes of tables (`TableDescriptorBuilder`).
const TABLE_ATTRIBUTES: &[&str] = &[
    "COMPACTION_ENABLED",
    "DURABILITY",
    "ERASURE_CODING_POLICY",
    "FLUSH_POLICY",
    "MAX_FILESIZE",
    "MEMSTORE_FLUSHSIZE",
    "MERGE_ENABLED",
    "NORMALIZATION_ENABLED",
    "NORMALIZER_TARGET_REGION_COUNT",
    "NORMALIZER_TARGET_REGION_SIZE_MB",
    "OWNER",
    "PRIORITY",
    "READONLY",
    "REGION_MEMSTORE_REPLICATION",
    "REGION_REPLICATION",
    "SPLIT_ENABLED",
    "SPLIT_POLICY",
];

/// Alters a table: all changes of the command in one step.
pub(super) async fn run(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let name = arguments.table()?;
    let changes = arguments.rest();
    if changes.is_empty() {
        return Err(arguments.error("there is nothing to change"));
    }
    let admin = context.admin().await?;
    let mut descriptor = admin.describe(&name).await?;
    for change in changes {
        descriptor = match change {
            Value::Map(map) => apply(descriptor, map, arguments)?,
            family => with_family(descriptor, &family.bytes()?, Map::default())?,
        };
    }
    admin.modify_table(&descriptor).await?;
    Ok(context.printer.note("Updated the table")?)
}

fn apply(
    descriptor: TableDescriptor,
    mut map: Map,
    arguments: &Arguments,
) -> Result<TableDescriptor, ShellError> {
    if let Some(family) = map.take("delete") {
        return without_family(descriptor, &family.bytes()?, arguments);
    }
    let method = map.take("METHOD").map(|method| method.text()).transpose()?;
    let name = map.take("NAME");
    match (method.as_deref(), name) {
        (Some("delete"), Some(name)) => without_family(descriptor, &name.bytes()?, arguments),
        (Some("table_att_unset" | "table_conf_unset" | "table_remove_configuration"), Some(names)) => {
            let names = names.list().into_iter();
            names
                .map(|name| name.bytes())
                .try_fold(descriptor, |descriptor, name| Ok(descriptor.without(&name?)))
        }
        (Some("table_att") | None, None) => table(descriptor, map),
        (None, Some(name)) => with_family(descriptor, &name.bytes()?, map),
        (Some(method), _) => Err(arguments.error(format_args!("METHOD '{method}' is unknown here"))),
    }
}

fn with_family(descriptor: TableDescriptor, name: &[u8], map: Map) -> Result<TableDescriptor, ShellError> {
    let found = match descriptor.family(name) {
        Some(found) => found.clone(),
        None => FamilyDescriptor::new(name).map_err(halcyon_client::ClientError::from)?,
    };
    Ok(descriptor.with_family(family(found, map)?))
}

fn without_family(
    descriptor: TableDescriptor,
    name: &[u8],
    arguments: &Arguments,
) -> Result<TableDescriptor, ShellError> {
    match descriptor.family(name) {
        Some(_) => Ok(descriptor.without_family(name)),
        None => Err(arguments.error(format_args!("the table has no family {}", name.escape_ascii()))),
    }
}

/// A family with the attributes of a map.
pub(super) fn family(mut family: FamilyDescriptor, mut map: Map) -> Result<FamilyDescriptor, ShellError> {
    for (key, value) in nested(&mut map, "CONFIGURATION")? {
        family = family.with_configuration(key, value);
    }
    for (key, value) in nested(&mut map, "METADATA")? {
        family = family.with(key, value);
    }
    for (key, value) in map.0 {
        let (key, mut text) = (known(FAMILY_ATTRIBUTES, &key, "family")?, value.text()?);
        if key == "VERSIONS" && value.integer()? < 1 {
            // servers accept it, and keep nothing
            return Err(ShellError::usage("VERSIONS must be at least 1"));
        }
        if key == "ENCRYPTION_KEY" {
            // HBase's shell makes a key of the text and wraps it; as it is, no server could unwrap it
            return Err(ShellError::usage(
                "ENCRYPTION_KEY has to be wrapped with the master key, which this shell does not have: use HBase's shell",
            ));
        }
        if key == "TTL" && text.eq_ignore_ascii_case("FOREVER") {
            text = FOREVER.to_string();
        }
        family = family.with(key, text);
    }
    Ok(family)
}

/// A table with the attributes of a map.
pub(super) fn table(mut table: TableDescriptor, mut map: Map) -> Result<TableDescriptor, ShellError> {
    for key in ["CONFIGURATION", "METADATA"] {
        for (key, value) in nested(&mut map, key)? {
            table = table.with(key, value);
        }
    }
    for (key, value) in map.0 {
        table = table.with(known(TABLE_ATTRIBUTES, &key, "table")?, value.text()?);
    }
    Ok(table)
}

/// An attribute as HBase writes it. A misspelled one is an error, because servers accept any name and do nothing with it.
fn known(attributes: &[&'static str], key: &str, what: &str) -> Result<&'static str, ShellError> {
    let found = attributes.iter().find(|known| known.eq_ignore_ascii_case(key));
    found.copied().ok_or_else(|| {
        ShellError::usage(format!(
            "'{key}' is not an attribute of a {what}; settings are in CONFIGURATION => {{...}}, other attributes in \
             METADATA => {{...}}"
        ))
    })
}

/// Whether an attribute of a family has a name of its own, outside `METADATA`.
pub(super) fn is_family_attribute(key: &[u8]) -> bool {
    FAMILY_ATTRIBUTES.iter().any(|known| known.as_bytes() == key)
}

/// Whether an attribute of a table has a name of its own, outside `METADATA`.
pub(super) fn is_table_attribute(key: &[u8]) -> bool {
    TABLE_ATTRIBUTES.iter().any(|known| known.as_bytes() == key)
}
