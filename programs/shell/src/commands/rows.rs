//! Rows: `put`, `get`, `delete`, `incr`, `append` and so on.

use std::time::Duration;

use halcyon_client::{Action, Append, Delete, Get, Increment, Put, Row, Scan};

use super::Context;
use super::scan::{self, Formats};
use crate::arguments::Arguments;
use crate::error::ShellError;
use crate::print::{binary, rows_text};
use crate::value::{Map, Value};

/// Deletes that `deleteall` with a prefix sends together.
const DELETES_COUNT: usize = 100;

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "put" => put(context, arguments).await?,
        "get" => get(context, arguments).await?,
        "delete" => delete(context, arguments).await?,
        "deleteall" => delete_all(context, arguments).await?,
        "incr" => increment(context, arguments).await?,
        "append" => append(context, arguments).await?,
        "get_counter" => get_counter(context, arguments).await?,
        "scan" => scan::scan(context, arguments).await?,
        "count" => scan::count(context, arguments).await?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Family and qualifier of `f:q`; without a colon there is no qualifier.
pub(super) fn column(text: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    match text.iter().position(|byte| *byte == b':') {
        None => (text.to_vec(), None),
        Some(at) => (text[..at].to_vec(), Some(text[at + 1..].to_vec())),
    }
}

/// A column to write to: without a qualifier, the empty one.
fn written_column(arguments: &mut Arguments) -> Result<(Vec<u8>, Vec<u8>), ShellError> {
    let (family, qualifier) = column(&arguments.bytes("the column")?);
    Ok((family, qualifier.unwrap_or_default()))
}

async fn put(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let (table, row) = (arguments.table()?, arguments.bytes("the row")?);
    let (family, qualifier) = written_column(arguments)?;
    let value = arguments.bytes("the value")?;
    let mut options = arguments.options()?;
    let timestamp = arguments.optional().map(|timestamp| timestamp.integer()).transpose()?;
    arguments.finish()?;
    let put = Put::new(row);
    let mut put = match timestamp {
        Some(timestamp) => put.column_at(family, qualifier, timestamp, value),
        None => put.column(family, qualifier, value),
    };
    if let Some(ttl) = options.take("TTL") {
        put = put.ttl(Duration::from_millis(ttl.count()?.into()));
    }
    options.finish("put")?;
    Ok(context.table(table).await?.put(put).await?)
}

async fn get(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let (table, row) = (arguments.table()?, arguments.bytes("the row")?);
    let mut options = arguments.options()?;
    let mut formats = Formats::default();
    let mut get = Get::new(row);
    for column in arguments.rest() {
        for column in column.list() {
            get = formats.add(get, &column.bytes()?, Get::column, Get::family);
        }
    }
    get = scan::read_options!(Get, get, options, formats);
    let max_length = options.take("MAXLENGTH").map(|length| length.count()).transpose()?;
    options.finish("get")?;
    let row = context.table(table).await?.get(get).await?;
    context.printer.cells_head("COLUMN", "CELL")?;
    formats.max_length = max_length.map(|length| length as usize);
    formats.print_row_cells(&mut context.printer, &row)?;
    Ok(context.printer.note(rows_text(usize::from(!row.is_empty())))?)
}

async fn delete(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let (table, row) = (arguments.table()?, arguments.bytes("the row")?);
    let (family, qualifier) = written_column(arguments)?;
    let timestamp = arguments.optional_plain().map(|timestamp| timestamp.integer()).transpose()?;
    arguments.options()?.finish("delete")?;
    arguments.finish()?;
    let delete = match timestamp {
        Some(timestamp) => Delete::new(row).version(family, qualifier, timestamp),
        None => Delete::new(row).newest_version(family, qualifier),
    };
    Ok(context.table(table).await?.delete(delete).await?)
}

async fn delete_all(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let table = arguments.table()?;
    let rows = arguments.next("the row or {ROWPREFIXFILTER => ...}")?;
    let column_wanted = arguments.optional_plain().map(|column| column.bytes()).transpose()?;
    let timestamp = arguments.optional_plain().map(|timestamp| timestamp.integer()).transpose()?;
    arguments.options()?.finish("deleteall")?;
    arguments.finish()?;
    let delete = |row: &[u8]| delete_of(row, column_wanted.as_deref(), timestamp);
    let table = context.table(table).await?;
    let mut prefix = match rows {
        Value::Map(map) => map,
        rows => {
            for row in rows.list() {
                table.delete(delete(&row.bytes()?)).await?;
            }
            return Ok(());
        }
    };
    let wanted =
        prefix.take("ROWPREFIXFILTER").ok_or_else(|| arguments.error("ROWPREFIXFILTER is missing"))?;
    let scan = Scan::prefix(wanted.bytes()?).filter(halcyon_client::Filter::first_key_only());
    let caching = prefix.take("CACHE").map(|count| count.count()).transpose()?;
    prefix.finish("deleteall")?;
    let mut found = table.scan(scan.caching(caching.unwrap_or(0))).into_stream();
    let mut deletes: Vec<Action> = Vec::new();
    while let Some(row) = found.next().await {
        deletes.push(delete(row?.key()).into());
        if deletes.len() == DELETES_COUNT {
            table.batch_all(&deletes).await?;
            deletes.clear();
        }
    }
    table.batch_all(&deletes).await?;
    Ok(())
}

fn delete_of(row: &[u8], wanted: Option<&[u8]>, timestamp: Option<i64>) -> Delete {
    let delete = Delete::new(row);
    match (wanted.map(column), timestamp) {
        (None, None) => delete,
        (None, Some(timestamp)) => delete.up_to(timestamp),
        (Some((family, None)), None) => delete.family(family),
        (Some((family, None)), Some(timestamp)) => delete.family_up_to(family, timestamp),
        (Some((family, Some(qualifier))), None) => delete.column(family, qualifier),
        (Some((family, Some(qualifier))), Some(timestamp)) => {
            delete.column_up_to(family, qualifier, timestamp)
        }
    }
}

async fn increment(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let (table, row) = (arguments.table()?, arguments.bytes("the row")?);
    let (family, qualifier) = written_column(arguments)?;
    let amount = arguments.optional_plain().map_or(Ok(1), |amount| amount.integer())?;
    arguments.options()?.finish("incr")?;
    arguments.finish()?;
    let table = context.table(table).await?;
    let row = table.increment(Increment::new(row).column(&family, &qualifier, amount)).await?;
    print_counter(context, &row, &family, &qualifier)
}

fn print_counter(
    context: &mut Context,
    row: &Row,
    family: &[u8],
    qualifier: &[u8],
) -> Result<(), ShellError> {
    let printer = &mut context.printer;
    match row.counter(family, qualifier) {
        Some(value) => {
            printer.note(format_args!("COUNTER VALUE = {value}"))?;
            printer.object(&serde_json::json!({ "counter": value }))?;
        }
        None => printer.note("No counter found at specified coordinates")?,
    }
    Ok(())
}

async fn append(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let (table, row) = (arguments.table()?, arguments.bytes("the row")?);
    let (family, qualifier) = written_column(arguments)?;
    let value = arguments.bytes("the value")?;
    let options: Map = arguments.options()?;
    options.finish("append")?;
    arguments.finish()?;
    let table = context.table(table).await?;
    let row = table.append(Append::new(row).column(&family, &qualifier, value)).await?;
    let value = binary(row.value(&family, &qualifier).unwrap_or_default());
    context.printer.note(format_args!("CURRENT VALUE = {value}"))?;
    Ok(context.printer.object(&serde_json::json!({ "value": value }))?)
}

async fn get_counter(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let (table, row) = (arguments.table()?, arguments.bytes("the row")?);
    let (family, qualifier) = written_column(arguments)?;
    arguments.finish()?;
    let table = context.table(table).await?;
    let row = table.get(Get::new(row).column(&family, &qualifier)).await?;
    print_counter(context, &row, &family, &qualifier)
}
