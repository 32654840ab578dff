//! How regions are spread over the servers.

use std::collections::HashMap;

use halcyon_master::TableSpread;
use serde::{Deserialize, Serialize};

use super::{Page, picture};
use crate::cluster::{Picture, ServerRow};
use crate::console::api::Refused;
use crate::console::{Console, Role};

/// Bars of one answer. Servers beyond are put together, so many to a bar.
const BARS_MAX: usize = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The bars are of this table alone.
    table: Option<String>,
    /// Part of a table's name, for the list.
    name: Option<String>,
    limit: Option<usize>,
    offset: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Table {
    name: String,
    state: String,
    regions_count: usize,
    open_count: usize,
    /// Servers that have at least one region of it.
    servers_count: usize,
    /// Of the servers that may have regions: the fewest, the mean, the most.
    min: usize,
    mean: f64,
    max: usize,
}

/// Regions of a server, or of several that stand side by side.
#[derive(Debug, PartialEq, Serialize)]
struct Bar {
    /// The first server.
    server: String,
    servers_count: usize,
    is_draining: bool,
    /// The most of one server.
    regions_count: usize,
}

#[derive(Debug, Serialize)]
pub struct Balance {
    table: Option<String>,
    mean: f64,
    max: usize,
    /// In the order of the names.
    bars: Vec<Bar>,
    /// All tables that were asked for, those that are left out too.
    count: usize,
    tables: Vec<Table>,
}

pub fn balance(console: &Console, _: Role, parameters: Parameters) -> Result<Balance, Refused> {
    answer(&*picture(console)?, parameters)
}

pub(super) fn answer(picture: &Picture, asked: Parameters) -> Result<Balance, Refused> {
    let (offset, limit) = Page { limit: asked.limit, offset: asked.offset }.checked()?;
    let of_table = asked.table.as_ref().map(|name| {
        let mut tables = picture.spread.tables.iter();
        let known = tables.find(|table| table.table.to_string() == *name);
        known.ok_or_else(|| Refused::invalid(format!("table: there is no table {name}")))
    });
    let of_table = of_table.transpose()?;
    let online: Vec<&ServerRow> = picture.online().collect();
    let counts: Vec<usize> = match of_table {
        Some(table) => {
            let by_name: HashMap<_, _> =
                table.by_server.iter().map(|(at, count)| (&picture.spread.servers[*at], *count)).collect();
            online.iter().map(|row| by_name.get(&row.server).copied().unwrap_or(0)).collect()
        }
        None => online.iter().map(|row| row.open_count).collect(),
    };
    let name = asked.name.as_deref().unwrap_or_default();
    let wanted: Vec<&TableSpread> =
        picture.spread.tables.iter().filter(|it| it.table.to_string().contains(name)).collect();
    let sum: usize = counts.iter().sum();
    Ok(Balance {
        table: asked.table,
        mean: if online.is_empty() { 0.0 } else { sum as f64 / online.len() as f64 },
        max: counts.iter().copied().max().unwrap_or(0),
        bars: bars(&online, &counts),
        count: wanted.len(),
        tables: wanted.into_iter().skip(offset).take(limit).map(|it| table(it, online.len())).collect(),
    })
}

fn bars(online: &[&ServerRow], counts: &[usize]) -> Vec<Bar> {
    let step = online.len().div_ceil(BARS_MAX).max(1);
    let bar = |(rows, counts): (&[&ServerRow], &[usize])| Bar {
        server: rows[0].server.to_string(),
        servers_count: rows.len(),
        is_draining: rows.iter().any(|row| row.state == crate::cluster::ServerState::Draining),
        regions_count: counts.iter().copied().max().unwrap_or(0),
    };
    online.chunks(step).zip(counts.chunks(step)).map(bar).collect()
}

fn table(spread: &TableSpread, online_count: usize) -> Table {
    let counts = || spread.by_server.iter().map(|(_, count)| *count);
    let servers_count = spread.by_server.len();
    let min = if servers_count < online_count { 0 } else { counts().min().unwrap_or(0) };
    Table {
        name: spread.table.to_string(),
        state: spread.state.to_lowercase(),
        regions_count: spread.regions_count,
        open_count: spread.open_count,
        servers_count,
        min,
        mean: if online_count == 0 { 0.0 } else { spread.open_count as f64 / online_count as f64 },
        max: counts().max().unwrap_or(0),
    }
}
