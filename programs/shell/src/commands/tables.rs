//! Tables.

use halcyon_client::{Bytes, FamilyDescriptor, TableDescriptor, TableName, TableState};

use super::{Context, alter, pattern};
use crate::arguments::{Arguments, table_name};
use crate::error::ShellError;
use crate::print::{binary, rows_text};
use crate::value::{Map, Value};

/// What is in force where a family says nothing (`ColumnFamilyDescriptorBuilder`). `describe` shows it, as HBase's shell does.
const FAMILY_DEFAULTS: &[(&str, &str)] = &[
    ("BLOCKCACHE", "true"),
    ("BLOCKSIZE", "65536"),
    ("BLOOMFILTER", "ROW"),
    ("COMPRESSION", "NONE"),
    ("DATA_BLOCK_ENCODING", "NONE"),
    ("INDEX_BLOCK_ENCODING", "NONE"),
    ("IN_MEMORY", "false"),
    ("KEEP_DELETED_CELLS", "FALSE"),
    ("MIN_VERSIONS", "0"),
    ("REPLICATION_SCOPE", "0"),
    ("TTL", alter::FOREVER),
    ("VERSIONS", "1"),
];

/// Regions that `create` makes at most by NUMREGIONS.
const REGIONS_COUNT_MAX: u32 = 100_000;

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "create" => create(context, arguments).await?,
        "list" => {
            let pattern = pattern(arguments)?;
            arguments.finish()?;
            let names = context.admin().await?.table_names(pattern.as_deref(), false).await?;
            let rows: Vec<_> = names.iter().map(|name| vec![name.to_string()]).collect();
            context.printer.table(&["TABLE"], &rows)?;
        }
        "describe" => describe(context, arguments).await?,
        "exists" => {
            let table = arguments.table()?;
            let exists = context.admin().await?.table_exists(&table).await?;
            let text = if exists { "does exist" } else { "does not exist" };
            context.printer.note(format_args!("Table {table} {text}"))?;
            context.printer.object(&serde_json::json!({ "exists": exists }))?;
        }
        "enable" => set_state(context, &arguments.table()?, TableState::Enabled).await?,
        "disable" => set_state(context, &arguments.table()?, TableState::Disabled).await?,
        "is_enabled" => is_in(context, arguments, TableState::Enabled).await?,
        "is_disabled" => is_in(context, arguments, TableState::Disabled).await?,
        "enable_all" | "disable_all" | "drop_all" => all(context, name, arguments).await?,
        "drop" => {
            let table = arguments.table()?;
            arguments.finish()?;
            context.admin().await?.delete_table(&table).await?;
        }
        "truncate" => truncate(context, &arguments.table()?, false).await?,
        "truncate_preserve" => truncate(context, &arguments.table()?, true).await?,
        "alter" => alter::run(context, arguments).await?,
        "alter_status" => {
            let status = context.admin().await?.alter_status(&arguments.table()?).await?;
            let done = status.regions_total - status.regions_pending.min(status.regions_total);
            context.printer.value("status", format!("{done}/{} regions updated.", status.regions_total))?;
        }
        "clone_table_schema" => clone_schema(context, arguments).await?,
        _ => return Ok(false),
    }
    Ok(true)
}

async fn create(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let mut descriptor = TableDescriptor::new(arguments.table()?);
    let (mut splits, mut regions_count, mut algorithm) = (Vec::new(), None, None);
    for value in arguments.rest() {
        let mut map = match value {
            Value::Map(map) => map,
            family => {
                descriptor = descriptor.with_family(new_family(&family.bytes()?)?);
                continue;
            }
        };
        if let Some(family) = map.take("NAME") {
            let family = alter::family(new_family(&family.bytes()?)?, map)?;
            descriptor = descriptor.with_family(family);
            continue;
        }
        if let Some(rows) = map.take("SPLITS") {
            for row in rows.list() {
                splits.push(Bytes::from(row.bytes()?));
            }
        }
        if let Some(file) = map.take("SPLITS_FILE") {
            splits.extend(read_splits(&file.text()?)?);
        }
        regions_count = map.take("NUMREGIONS").map(|count| count.count()).transpose()?.or(regions_count);
        algorithm = map.take("SPLITALGO").map(|name| name.text()).transpose()?.or(algorithm);
        descriptor = alter::table(descriptor, map)?;
    }
    if descriptor.families().is_empty() {
        return Err(arguments.error("a table needs a family"));
    }
    match (regions_count, algorithm) {
        (Some(count), Some(algorithm)) => splits = even_splits(count, &algorithm)?,
        (None, None) => {}
        _ => return Err(arguments.error("NUMREGIONS and SPLITALGO belong together")),
    }
    splits.sort();
    let admin = context.admin().await?;
    admin.create_table(&descriptor, splits).await?;
    Ok(context.printer.note(format_args!("Created table {}", descriptor.name()))?)
}

fn new_family(name: &[u8]) -> Result<FamilyDescriptor, ShellError> {
    Ok(FamilyDescriptor::new(name).map_err(halcyon_client::ClientError::from)?)
}

fn read_splits(file: &str) -> Result<Vec<Bytes>, ShellError> {
    let bytes = halcyon_env::Env::real().fs.read(file.as_ref())?;
    let lines = bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    Ok(lines.filter(|line| !line.is_empty()).map(Bytes::copy_from_slice).collect())
}

/// Rows that divide all keys of a form evenly (`RegionSplitter`).
fn even_splits(count: u32, algorithm: &str) -> Result<Vec<Bytes>, ShellError> {
    if !(2..=REGIONS_COUNT_MAX).contains(&count) {
        return Err(ShellError::usage(format!("NUMREGIONS must be from 2 to {REGIONS_COUNT_MAX}")));
    }
    let numbers = 1..u128::from(count);
    let each = |range: u128| range / u128::from(count);
    match algorithm {
        "HexStringSplit" => {
            Ok(numbers.map(|number| Bytes::from(format!("{:08x}", number * each(1 << 32)))).collect())
        }
        "DecimalStringSplit" => {
            Ok(numbers.map(|number| Bytes::from(format!("{:08}", number * each(100_000_000)))).collect())
        }
        "UniformSplit" => Ok(numbers
            .map(|number| Bytes::copy_from_slice(&((number * each(1 << 64)) as u64).to_be_bytes()))
            .collect()),
        other => Err(ShellError::usage(format!(
            "SPLITALGO '{other}' is not one of HexStringSplit, DecimalStringSplit, UniformSplit"
        ))),
    }
}

/// Attributes as `create` and `alter` take them: known ones by name, others in `METADATA`.
fn attributes<'a>(
    pairs: impl Iterator<Item = (&'a Bytes, &'a Bytes)>,
    is_known: fn(&[u8]) -> bool,
) -> Vec<String> {
    let (mut known, mut others) = (Vec::new(), Vec::new());
    // which table is meta is not for anybody to set
    for (key, value) in pairs.filter(|(key, _)| key != &"IS_META") {
        match is_known(key) {
            true => known.push(format!("{} => '{}'", binary(key), known_value(key, value))),
            false => others.push(format!("'{}' => '{}'", binary(key), binary(value))),
        }
    }
    known.sort();
    others.sort();
    if !others.is_empty() {
        known.push(format!("METADATA => {{{}}}", others.join(", ")));
    }
    known
}

fn known_value(key: &[u8], value: &[u8]) -> String {
    match (key, value) {
        (b"TTL", value) if value == alter::FOREVER.as_bytes() => "FOREVER".to_string(),
        (_, value) => binary(value),
    }
}

fn describe_family(family: &FamilyDescriptor) -> String {
    let mut parts = vec![format!("NAME => '{}'", binary(family.name()))];
    let mut family = family.clone();
    for (key, value) in FAMILY_DEFAULTS {
        if family.attribute(key.as_bytes()).is_none() {
            family = family.with(key, value);
        }
    }
    parts.extend(attributes(family.attributes(), alter::is_family_attribute));
    let configuration = family.configuration().iter();
    let configuration: Vec<String> =
        configuration.map(|(key, value)| format!("'{key}' => '{value}'")).collect();
    if !configuration.is_empty() {
        parts.push(format!("CONFIGURATION => {{{}}}", configuration.join(", ")));
    }
    format!("{{{}}}", parts.join(", "))
}

async fn describe(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let table = arguments.table()?;
    arguments.finish()?;
    let admin = context.admin().await?;
    let descriptor = admin.describe(&table).await?;
    let state = format!("{:?}", admin.table_state(&table).await?).to_ascii_uppercase();
    let of_table = attributes(descriptor.attributes(), alter::is_table_attribute).join(", ");
    let families: Vec<String> = descriptor.families().iter().map(describe_family).collect();
    let printer = &mut context.printer;
    printer.object(&serde_json::json!({
        "table": table.to_string(), "state": state, "attributes": of_table, "families": families,
    }))?;
    printer.note(format_args!("Table {table} is {state}"))?;
    let separator = if of_table.is_empty() { "" } else { ", " };
    printer.note(format_args!("{table}{separator}{of_table}"))?;
    printer.note("COLUMN FAMILIES DESCRIPTION")?;
    for family in &families {
        printer.note(family)?;
    }
    Ok(printer.note(rows_text(families.len()))?)
}

/// Enables or disables; a table that is in that state already is left alone, as in HBase's shell.
async fn set_state(context: &mut Context, table: &TableName, state: TableState) -> Result<(), ShellError> {
    let admin = context.admin().await?;
    if admin.table_state(table).await? == state {
        return Ok(());
    }
    match state {
        TableState::Enabled => admin.enable_table(table).await?,
        _ => admin.disable_table(table).await?,
    }
    Ok(())
}

async fn is_in(
    context: &mut Context,
    arguments: &mut Arguments,
    state: TableState,
) -> Result<(), ShellError> {
    let table = arguments.table()?;
    let found = context.admin().await?.table_state(&table).await?;
    Ok(context.printer.value("result", found == state)?)
}

/// A command for all tables of a pattern. There is no question in between: scripts have nobody to answer it.
async fn all(context: &mut Context, name: &str, arguments: &mut Arguments) -> Result<(), ShellError> {
    let pattern = arguments.text("the pattern")?;
    arguments.finish()?;
    let admin = context.admin().await?;
    let tables = admin.table_names(Some(&pattern), false).await?;
    for table in &tables {
        match name {
            "enable_all" => set_state(context, table, TableState::Enabled).await?,
            "disable_all" => set_state(context, table, TableState::Disabled).await?,
            _ => admin.delete_table(table).await?,
        }
    }
    let rows: Vec<_> = tables.iter().map(|table| vec![table.to_string()]).collect();
    Ok(context.printer.table(&["TABLE"], &rows)?)
}

async fn truncate(context: &mut Context, table: &TableName, preserve: bool) -> Result<(), ShellError> {
    set_state(context, table, TableState::Disabled).await?;
    Ok(context.admin().await?.truncate_table(table, preserve).await?)
}

async fn clone_schema(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let table = arguments.table()?;
    let new = table_name(&arguments.next("the new table")?)?;
    let preserve_splits = arguments.optional().map_or(Ok(true), |preserve| preserve.flag())?;
    arguments.finish()?;
    let admin = context.admin().await?;
    let found = admin.describe(&table).await?;
    let mut descriptor = TableDescriptor::new(new);
    for (key, value) in found.attributes() {
        descriptor = descriptor.with(key, value);
    }
    for family in found.families() {
        descriptor = descriptor.with_family(family.clone());
    }
    let splits = if preserve_splits { admin.splits(&table).await? } else { Vec::new() };
    Ok(admin.create_table(&descriptor, splits).await?)
}

/// Attributes and values that stand in a map behind a key (`METADATA => {...}`).
pub(super) fn nested(map: &mut Map, key: &str) -> Result<Vec<(String, String)>, ShellError> {
    let Some(nested) = map.take(key) else { return Ok(Vec::new()) };
    nested.map()?.0.into_iter().map(|(key, value)| Ok((key, value.text()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::even_splits;

    #[test]
    fn even_splits_are_those_of_hbase() {
        let text = |count, algorithm| {
            let splits = even_splits(count, algorithm).unwrap();
            splits.iter().map(|split| String::from_utf8_lossy(split).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(text(4, "HexStringSplit"), ["40000000", "80000000", "c0000000"]);
        assert_eq!(text(3, "HexStringSplit"), ["55555555", "aaaaaaaa"]);
        assert_eq!(text(4, "DecimalStringSplit"), ["25000000", "50000000", "75000000"]);
        assert_eq!(&even_splits(2, "UniformSplit").unwrap()[0][..], b"\x80\0\0\0\0\0\0\0");
        assert!(even_splits(1, "HexStringSplit").is_err() && even_splits(2, "Other").is_err());
    }
}
