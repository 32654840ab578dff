//! Snapshots.

use std::time::Duration;

use halcyon_client::{Snapshot, SnapshotType};

use super::namespaces::matches;
use super::{Context, pattern};
use crate::arguments::{Arguments, table_name};
use crate::error::ShellError;
use crate::print::time;

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "snapshot" => {
            let table = arguments.table()?;
            let name = arguments.text("the snapshot")?;
            let mut options = arguments.options()?;
            let skip_flush = options.take("SKIP_FLUSH").map_or(Ok(false), |value| value.flag())?;
            let ttl = options.take("TTL").map(|ttl| ttl.count()).transpose()?;
            options.finish("snapshot")?;
            arguments.finish()?;
            let kind = if skip_flush { SnapshotType::SkipFlush } else { SnapshotType::Flush };
            let ttl = ttl.map(|ttl| Duration::from_secs(ttl.into()));
            context.admin().await?.snapshot(&name, &table, kind, ttl).await?;
        }
        "list_snapshots" => list(context, arguments).await?,
        "delete_snapshot" => {
            let name = arguments.text("the snapshot")?;
            arguments.finish()?;
            context.admin().await?.delete_snapshot(&name).await?;
        }
        "delete_all_snapshot" => {
            let pattern = arguments.text("the pattern")?;
            arguments.finish()?;
            delete_all(context, |snapshot| matches(&pattern, &snapshot.name)).await?;
        }
        "delete_table_snapshots" => {
            let wanted = of_table(arguments)?;
            delete_all(context, wanted).await?;
        }
        "list_table_snapshots" => {
            let wanted = of_table(arguments)?;
            let snapshots = context.admin().await?.snapshots().await?;
            print(context, snapshots.into_iter().filter(wanted))?;
        }
        "restore_snapshot" => {
            let name = arguments.text("the snapshot")?;
            arguments.options()?.finish("restore_snapshot")?;
            arguments.finish()?;
            context.admin().await?.restore_snapshot(&name).await?;
        }
        "clone_snapshot" => {
            let name = arguments.text("the snapshot")?;
            let table = table_name(&arguments.next("the table")?)?;
            arguments.options()?.finish("clone_snapshot")?;
            arguments.finish()?;
            context.admin().await?.clone_snapshot(&name, &table).await?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

async fn list(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let pattern = pattern(arguments)?;
    arguments.finish()?;
    let snapshots = context.admin().await?.snapshots().await?;
    let is_wanted = |name: &str| pattern.as_deref().is_none_or(|pattern| matches(pattern, name));
    print(context, snapshots.into_iter().filter(|snapshot| is_wanted(&snapshot.name)))
}

fn print(context: &mut Context, snapshots: impl Iterator<Item = Snapshot>) -> Result<(), ShellError> {
    let row = |snapshot: Snapshot| {
        let created = time(snapshot.creation_time_ms);
        vec![snapshot.name, format!("{} ({created})", snapshot.table)]
    };
    let rows: Vec<_> = snapshots.map(row).collect();
    Ok(context.printer.table(&["SNAPSHOT", "TABLE + CREATION TIME"], &rows)?)
}

/// Snapshots of the tables of a pattern, whose names have another pattern.
fn of_table(arguments: &mut Arguments) -> Result<impl Fn(&Snapshot) -> bool, ShellError> {
    let table = arguments.text("the table")?;
    let name = arguments.optional().map(|name| name.text()).transpose()?;
    arguments.finish()?;
    Ok(move |snapshot: &Snapshot| {
        matches(&table, &snapshot.table.to_string())
            && name.as_deref().is_none_or(|name| matches(name, &snapshot.name))
    })
}

/// Deletes snapshots and prints which. There is no question in between: scripts have nobody to answer it.
async fn delete_all(context: &mut Context, is_wanted: impl Fn(&Snapshot) -> bool) -> Result<(), ShellError> {
    let admin = context.admin().await?;
    let mut snapshots = admin.snapshots().await?;
    snapshots.retain(is_wanted);
    for snapshot in &snapshots {
        admin.delete_snapshot(&snapshot.name).await?;
    }
    print(context, snapshots.into_iter())
}
