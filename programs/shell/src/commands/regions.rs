//! Regions and servers.

use halcyon_client::{CompactionState, RegionLocation, ServerName, TableName};

use super::Context;
use super::servers::server_name;
use crate::arguments::Arguments;
use crate::error::ShellError;
use crate::print::binary;
use crate::value::Value;

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "flush" => flush(context, arguments).await?,
        "compact" => compact(context, arguments, false).await?,
        "major_compact" => compact(context, arguments, true).await?,
        "compaction_state" => {
            let table = arguments.table()?;
            let state: CompactionState = context.admin().await?.compaction_state(&table).await?;
            context.printer.value("state", state.to_string())?;
        }
        "compaction_switch" => compaction_switch(context, arguments).await?,
        "split" => split(context, arguments).await?,
        "merge_region" => merge(context, arguments).await?,
        "move" => {
            let region = arguments.text("the encoded name of the region")?;
            let server = arguments.optional().map(|server| server_name(&server)).transpose()?;
            arguments.finish()?;
            context.admin().await?.move_region(&region, server.as_ref()).await?;
        }
        "assign" => {
            let region = arguments.bytes("the region")?;
            context.admin().await?.assign_region(&region).await?;
        }
        "unassign" => {
            let region = arguments.bytes("the region")?;
            let force = arguments.optional().map_or(Ok(false), |force| force.flag())?;
            context.admin().await?.unassign_region(&region, force).await?;
        }
        "list_regions" => list(context, arguments).await?,
        "locate_region" => {
            let (table, row) = (arguments.table()?, arguments.bytes("the row")?);
            let found = context.admin().await?.region_of_row(&table, &row).await?;
            print_regions(context, &[found])?;
        }
        "get_splits" => {
            let splits = context.admin().await?.splits(&arguments.table()?).await?;
            let rows: Vec<_> = splits.iter().map(|split| vec![binary(split)]).collect();
            context.printer.table(&["SPLIT"], &rows)?;
        }
        "clear_block_cache" => {
            let evicted = context.admin().await?.clear_block_cache(&arguments.table()?).await?;
            context.printer.value("evicted_blocks", evicted.blocks_count)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// A table, or a region by a name of either form.
enum Target {
    Table(TableName),
    Region(Box<RegionLocation>),
}

/// What a first argument names: a region if it has the form of one and such a region exists, else a table.
async fn target(context: &mut Context, arguments: &mut Arguments) -> Result<Target, ShellError> {
    let name = arguments.bytes("the table or region")?;
    let is_encoded = name.len() == 32 && name.iter().all(u8::is_ascii_hexdigit);
    if is_encoded || name.contains(&b',') {
        return Ok(Target::Region(Box::new(context.admin().await?.region(&name).await?)));
    }
    let table = TableName::parse(&name).map_err(halcyon_client::ClientError::from)?;
    Ok(Target::Table(table))
}

async fn flush(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let target = target(context, arguments).await?;
    let family = arguments.optional().map(|family| family.bytes()).transpose()?;
    arguments.finish()?;
    let admin = context.admin().await?;
    match (target, family) {
        (Target::Table(table), None) => admin.flush(&table).await?,
        (Target::Table(table), Some(family)) => {
            for found in admin.regions(&table).await? {
                admin.flush_region(&found.region, Some(&family)).await?;
            }
        }
        (Target::Region(found), family) => admin.flush_region(&found.region, family.as_deref()).await?,
    }
    Ok(())
}

async fn compact(context: &mut Context, arguments: &mut Arguments, major: bool) -> Result<(), ShellError> {
    let target = target(context, arguments).await?;
    let family = arguments.optional().map(|family| family.bytes()).transpose()?;
    let (admin, family) = (context.admin().await?, family.as_deref());
    match (target, major) {
        (Target::Table(table), false) => admin.compact(&table, family).await?,
        (Target::Table(table), true) => admin.major_compact(&table, family).await?,
        (Target::Region(found), false) => admin.compact_region(&found.region, family).await?,
        (Target::Region(found), true) => admin.major_compact_region(&found.region, family).await?,
    }
    Ok(())
}

async fn compaction_switch(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let on = arguments.flag("true or false")?;
    let names = arguments.rest().iter().map(server_name).collect::<Result<Vec<_>, _>>()?;
    let admin = context.admin().await?;
    let mut rows = Vec::new();
    for server in admin.region_servers().await? {
        let is_wanted = |name: &ServerName| name.host == server.host && name.port == server.port;
        if names.is_empty() || names.iter().any(is_wanted) {
            let before = admin.set_compactions(&server, on).await?;
            rows.push(vec![server.to_string(), before.to_string()]);
        }
    }
    Ok(context.printer.table(&["SERVER", "PREV_STATE"], &rows)?)
}

async fn split(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let target = target(context, arguments).await?;
    let row = arguments.optional().map(|row| row.bytes()).transpose()?;
    arguments.finish()?;
    let (admin, row) = (context.admin().await?, row.as_deref());
    match target {
        Target::Table(table) => admin.split_table(&table, row).await?,
        Target::Region(found) => admin.split_region(&found.region, row).await?,
    }
    Ok(())
}

async fn merge(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let (mut regions, mut force) = (Vec::new(), false);
    for value in arguments.rest() {
        match value {
            Value::Flag(flag) => force = flag,
            value => {
                for region in value.list() {
                    regions.push(region.bytes()?);
                }
            }
        }
    }
    if regions.len() < 2 {
        return Err(arguments.error("two or more regions are needed"));
    }
    Ok(context.admin().await?.merge_regions(regions, force).await?)
}

async fn list(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let table = arguments.table()?;
    let options = arguments.options()?;
    let server = match (options.get("SERVER_NAME"), arguments.optional_plain()) {
        (Some(server), _) => Some(server.text()?),
        (None, plain) => plain.map(|plain| plain.text()).transpose()?,
    };
    let mut regions = context.admin().await?.regions(&table).await?;
    if let Some(server) = server {
        regions
            .retain(|found| found.server.as_ref().is_some_and(|name| name.to_string().starts_with(&server)));
    }
    print_regions(context, &regions)
}

fn print_regions(context: &mut Context, regions: &[RegionLocation]) -> Result<(), ShellError> {
    let row = |found: &RegionLocation| {
        vec![
            found.server.as_ref().map(ToString::to_string).unwrap_or_default(),
            binary(found.region.region_name()),
            binary(found.region.start_key()),
            binary(found.region.end_key()),
            found.state.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = regions.iter().map(row).collect();
    Ok(context.printer.table(&["SERVER_NAME", "REGION_NAME", "START_KEY", "END_KEY", "STATE"], &rows)?)
}
