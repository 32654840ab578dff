//! `scan`, `count`, and what they share with `get`: options of reads, and how cells are printed.

use std::collections::HashMap;
use std::io;

use halcyon_client::{Cell, Filter, ReadType, Row, Scan};
use serde_json::json;

use super::Context;
use super::rows::column;
use crate::arguments::Arguments;
use crate::error::ShellError;
use crate::print::{Printer, binary, cell_text, rows_text};
use crate::value::Map;

/// Rows between two lines of `count`.
const INTERVAL_ROWS: u32 = 1_000;

/// Options that gets and scans share.
macro_rules! read_options {
    ($type:ident, $read:expr, $options:expr, $formats:expr) => {{
        let mut read = $read;
        for key in ["COLUMN", "COLUMNS"] {
            for column in $options.take(key).map_or(Vec::new(), |columns| columns.list()) {
                read = $formats.add(read, &column.bytes()?, $type::column, $type::family);
            }
        }
        if let Some(versions) = $options.take("VERSIONS") {
            read = read.versions(versions.count()?);
        }
        if let Some(timestamp) = $options.take("TIMESTAMP") {
            read = read.timestamp(timestamp.integer()?);
        }
        if let Some(range) = $options.take("TIMERANGE") {
            let (from, to) = crate::commands::scan::time_range(range)?;
            read = read.time_range(from, to);
        }
        if let Some(filter) = $options.take("FILTER") {
            read = read.filter(halcyon_client::Filter::parse_bytes(&filter.bytes()?)?);
        }
        if let Some(cache) = $options.take("CACHE_BLOCKS") {
            read = read.cache_blocks(cache.flag()?);
        }
        read
    }};
}
pub(super) use read_options;

/// `[from, to]`
pub(super) fn time_range(range: crate::value::Value) -> Result<(i64, i64), ShellError> {
    match range.list().as_slice() {
        [from, to] => Ok((from.integer()?, to.integer()?)),
        _ => Err(ShellError::usage("TIMERANGE is [from, to]")),
    }
}

/// How values are printed.
#[derive(Default)]
pub(super) struct Formats {
    by_column: HashMap<(Vec<u8>, Vec<u8>), Format>,
    pub(super) max_length: Option<usize>,
}

#[derive(Clone, Copy)]
enum Format {
    Int,
    Long,
    Short,
    Float,
    Double,
    Text,
}

impl Format {
    fn of_name(name: &[u8]) -> Option<Format> {
        Some(match name {
            b"toInt" => Format::Int,
            b"toLong" => Format::Long,
            b"toShort" => Format::Short,
            b"toFloat" => Format::Float,
            b"toDouble" => Format::Double,
            b"toString" => Format::Text,
            _ => return None,
        })
    }

    fn print(self, value: &[u8]) -> Option<String> {
        Some(match self {
            Format::Int => i32::from_be_bytes(value.try_into().ok()?).to_string(),
            Format::Long => i64::from_be_bytes(value.try_into().ok()?).to_string(),
            Format::Short => i16::from_be_bytes(value.try_into().ok()?).to_string(),
            Format::Float => f32::from_be_bytes(value.try_into().ok()?).to_string(),
            Format::Double => f64::from_be_bytes(value.try_into().ok()?).to_string(),
            Format::Text => String::from_utf8_lossy(value).chars().filter(|c| !c.is_control()).collect(),
        })
    }
}

impl Formats {
    /// Adds a column (`f`, `f:q`, `f:q:toLong`) to a read.
    pub(super) fn add<R>(
        &mut self,
        read: R,
        text: &[u8],
        with_column: impl Fn(R, Vec<u8>, Vec<u8>) -> R,
        with_family: impl Fn(R, Vec<u8>) -> R,
    ) -> R {
        let (family, qualifier) = column(text);
        let Some(mut qualifier) = qualifier.filter(|qualifier| !qualifier.is_empty()) else {
            return with_family(read, family);
        };
        if let Some(at) = qualifier.iter().rposition(|byte| *byte == b':')
            && let Some(format) = Format::of_name(&qualifier[at + 1..])
        {
            qualifier.truncate(at);
            self.by_column.insert((family.clone(), qualifier.clone()), format);
        }
        with_column(read, family, qualifier)
    }

    fn value(&self, cell: &Cell) -> String {
        let format = match self.by_column.is_empty() {
            true => None,
            false => self.by_column.get(&(cell.family().to_vec(), cell.qualifier().to_vec())),
        };
        let text = format.and_then(|format| format.print(cell.value()));
        let text = text.unwrap_or_else(|| binary(cell.value()));
        match self.max_length.filter(|length| *length < text.len()) {
            // text of bytes is ASCII; that of strings may not be
            Some(length) => text.chars().take(length).collect(),
            None => text,
        }
    }

    fn json(&self, row: &Row) -> serde_json::Value {
        let cell = |cell: &Cell| {
            json!({
                "column": format!("{}:{}", binary(cell.family()), binary(cell.qualifier())),
                "timestamp": cell.timestamp(), "type": format!("{:?}", cell.cell_type()), "value": self.value(cell),
            })
        };
        json!({ "row": binary(row.key()), "cells": row.iter().map(cell).collect::<Vec<_>>() })
    }

    /// Cells of one row, each with its column.
    pub(super) fn print_row_cells(&self, printer: &mut Printer, row: &Row) -> io::Result<()> {
        if !row.is_empty() {
            printer.object(&self.json(row))?;
        }
        if printer.is_json() {
            return Ok(());
        }
        for cell in row {
            let column = format!("{}:{}", binary(cell.family()), binary(cell.qualifier()));
            printer.cell_line(&format!(" {column}"), &cell_text(cell, &self.value(cell)))?;
        }
        Ok(())
    }

    /// Cells of one row of a scan, each with its row.
    fn print_scanned(&self, printer: &mut Printer, row: &Row) -> io::Result<()> {
        if printer.is_json() {
            return printer.object(&self.json(row));
        }
        let key = format!(" {}", binary(row.key()));
        for cell in row {
            let column = format!("column={}:{}", binary(cell.family()), binary(cell.qualifier()));
            printer.cell_line(&key, &format!("{column}, {}", cell_text(cell, &self.value(cell))))?;
        }
        Ok(())
    }
}

/// The range and direction of a scan, and how it is executed.
fn scan_options(options: &mut Map) -> Result<Scan, ShellError> {
    let reversed = options.take("REVERSED").map_or(Ok(false), |flag| flag.flag())?;
    let mut scan = match options.take("ROWPREFIXFILTER") {
        Some(prefix) if reversed => Scan::prefix_reversed(prefix.bytes()?),
        Some(prefix) => Scan::prefix(prefix.bytes()?),
        None => Scan::new().reversed(reversed),
    };
    if let Some(start) = options.take("STARTROW") {
        scan = scan.start(start.bytes()?);
    }
    for key in ["STOPROW", "ENDROW"] {
        if let Some(stop) = options.take(key) {
            let inclusive = options.take("INCLUDE_STOP_ROW").map_or(Ok(false), |flag| flag.flag())?;
            let stop = stop.bytes()?;
            scan = if inclusive { scan.stop_inclusive(stop) } else { scan.stop(stop) };
        }
    }
    if let Some(limit) = options.take("LIMIT") {
        // HBase's shell: a limit that is not positive is none
        scan = scan.limit(u32::try_from(limit.integer()?.max(0)).unwrap_or(u32::MAX));
    }
    if let Some(caching) = options.take("CACHE") {
        scan = scan.caching(caching.count()?);
    }
    if let Some(batch) = options.take("BATCH") {
        scan = scan.batch(batch.count()?);
    }
    if let Some(raw) = options.take("RAW") {
        scan = scan.raw(raw.flag()?);
    }
    if let Some(read_type) = options.take("READ_TYPE") {
        scan = scan.read_type(match read_type.text()?.to_ascii_uppercase().as_str() {
            "DEFAULT" => ReadType::Default,
            "STREAM" => ReadType::Stream,
            "PREAD" => ReadType::Pread,
            other => {
                return Err(ShellError::usage(format!(
                    "READ_TYPE '{other}' is not DEFAULT, STREAM or PREAD"
                )));
            }
        });
    }
    Ok(scan)
}

pub(super) async fn scan(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let table = arguments.table()?;
    let mut options = arguments.options()?;
    arguments.finish()?;
    let mut formats = Formats::default();
    let scan = scan_options(&mut options)?;
    let scan = read_options!(Scan, scan, options, formats);
    formats.max_length =
        options.take("MAXLENGTH").map(|length| length.count()).transpose()?.map(|n| n as usize);
    options.finish("scan")?;
    let mut rows = context.table(table).await?.scan(scan).into_stream();
    context.printer.cells_head("ROW", "COLUMN+CELL")?;
    let mut count = 0;
    while let Some(row) = rows.next().await {
        let row = row?;
        formats.print_scanned(&mut context.printer, &row)?;
        // parts of a row count as one
        count += usize::from(!row.has_more_cells());
    }
    Ok(context.printer.note(rows_text(count))?)
}

pub(super) async fn count(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let table = arguments.table()?;
    let mut options = arguments.options()?;
    let interval = match arguments.optional() {
        Some(interval) => Some(interval),
        None => options.take("INTERVAL"),
    };
    let interval = interval.map_or(Ok(INTERVAL_ROWS), |interval| interval.count())?.max(1);
    arguments.finish()?;
    let mut formats = Formats::default();
    let first = Filter::first_key_only();
    // with a filter, the first cell that it keeps
    let filter = match options.take("FILTER") {
        Some(filter) => Filter::all([Filter::parse_bytes(&filter.bytes()?)?, first]),
        None => first,
    };
    let scan = scan_options(&mut options)?.cache_blocks(false);
    let scan = read_options!(Scan, scan, options, formats).filter(filter);
    options.finish("count")?;
    let mut rows = context.table(table).await?.scan(scan).into_stream();
    let mut count: u64 = 0;
    while let Some(row) = rows.next().await {
        let row = row?;
        count += 1;
        if count.is_multiple_of(u64::from(interval)) {
            context.printer.note(format_args!("Current count: {count}, row: {}", binary(row.key())))?;
            context.printer.flush()?;
        }
    }
    let printer = &mut context.printer;
    printer.note(rows_text(usize::try_from(count).unwrap_or(usize::MAX)))?;
    Ok(printer.object(&json!({ "count": count }))?)
}
