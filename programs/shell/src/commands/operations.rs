//! Single orders to the master, to region servers and to regions.

use halcyon_client::ServerName;
use serde_json::json;

use super::Context;
use super::servers::{print_servers, server_name};
use crate::arguments::Arguments;
use crate::error::ShellError;
use crate::print::binary;
use crate::value::Value;

/// What a region server that is to end logs.
const STOP_REASON: &str = "stop_regionserver was typed in a shell";

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "compact_rs" => {
            let server = server(&arguments.next("the server")?)?;
            let major = arguments.optional().map_or(Ok(false), |major| major.flag())?;
            arguments.finish()?;
            context.admin().await?.compact_server(&server, major).await?;
        }
        "wal_roll_all" => {
            arguments.finish()?;
            let admin = context.admin().await?;
            for server in admin.region_servers().await? {
                admin.roll_wal(&server).await?;
            }
        }
        "stop_master" => {
            arguments.finish()?;
            context.admin().await?.stop_master().await?;
        }
        "stop_regionserver" => {
            let server = server(&arguments.next("the server")?)?;
            arguments.finish()?;
            context.admin().await?.stop_region_server(&server, STOP_REASON).await?;
        }
        "flush_master_store" => {
            arguments.finish()?;
            context.admin().await?.flush_master_store().await?;
        }
        "hbck_chore_run" => {
            arguments.finish()?;
            let ran = context.admin().await?.run_hbck_chore().await?;
            context.printer.value("ran", ran)?;
        }
        "is_in_maintenance_mode" => {
            arguments.finish()?;
            let is_in_it = context.admin().await?.is_in_maintenance_mode().await?;
            context.printer.value("in_maintenance_mode", is_in_it)?;
        }
        "list_unknownservers" => {
            arguments.finish()?;
            let servers = context.admin().await?.unknown_servers().await?;
            print_servers(context, &servers)?;
        }
        "list_security_capabilities" => {
            arguments.finish()?;
            let capabilities = context.admin().await?.security_capabilities().await?;
            let rows: Vec<_> = capabilities.into_iter().map(|name| vec![name]).collect();
            context.printer.table(&["CAPABILITY"], &rows)?;
        }
        "regioninfo" => region_info(context, arguments).await?,
        "truncate_region" => {
            let region = arguments.bytes("the region")?;
            arguments.finish()?;
            context.admin().await?.truncate_region(&region).await?;
        }
        "change_sft" => change_tracker(context, arguments).await?,
        "change_sft_all" => change_trackers(context, arguments).await?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// A server by `host,port,startcode`, `host,port` or `host:port`.
fn server(value: &Value) -> Result<ServerName, ShellError> {
    let text = value.text()?;
    match text.split_once(',') {
        Some((host, port)) if !port.contains(',') => {
            server_name(&Value::Text(format!("{host}:{port}").into_bytes()))
        }
        _ => server_name(value),
    }
}

async fn region_info(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let name = arguments.bytes("the region")?;
    arguments.finish()?;
    let region = context.admin().await?.region(&name).await?.region;
    context.printer.object(&json!({
        "encoded": region.encoded_name(), "name": binary(region.region_name()),
        "start_key": binary(region.start_key()), "end_key": binary(region.end_key()),
        "offline": region.is_offline(), "split": region.is_split(), "replica_id": region.replica_id(),
    }))?;
    Ok(context.printer.note(region.described())?)
}

/// How a table, or one family of it, keeps track of its store files.
async fn change_tracker(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let table = arguments.table()?;
    let first = arguments.next("the store file tracker")?;
    let second = arguments.optional();
    arguments.finish()?;
    let (family, tracker) = match second {
        None => (None, first.text()?),
        Some(tracker) => (Some(first.bytes()?), tracker.text()?),
    };
    Ok(context.admin().await?.set_store_file_tracker(&table, family.as_deref(), &tracker).await?)
}

/// The same for all tables of a pattern. There is no question in between: scripts have nobody to answer it.
async fn change_trackers(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let (pattern, tracker) = (arguments.text("the pattern")?, arguments.text("the store file tracker")?);
    arguments.finish()?;
    let admin = context.admin().await?;
    let tables = admin.table_names(Some(&pattern), false).await?;
    for table in &tables {
        admin.set_store_file_tracker(table, None, &tracker).await?;
    }
    let rows: Vec<_> = tables.iter().map(|table| vec![table.to_string()]).collect();
    Ok(context.printer.table(&["TABLE"], &rows)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_have_no_start_code() {
        let server = |text: &str| server(&Value::Text(text.as_bytes().to_vec()));
        let expected = ServerName::new("h.example", 16020, -1);
        assert_eq!(server("h.example,16020").unwrap(), expected);
        assert_eq!(server("h.example:16020").unwrap(), expected);
        assert_eq!(server("h.example,16020,5").unwrap(), ServerName { start_code: 5, ..expected });
        for bad in ["", "h", "h,x", "h,1,2,3", "h:x"] {
            assert!(matches!(server(bad), Err(ShellError::Usage(_))), "{bad}");
        }
    }
}
