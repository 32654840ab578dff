//! Region servers.

use halcyon_client::ServerName;

use super::Context;
use crate::arguments::Arguments;
use crate::error::ShellError;
use crate::print::{binary, time};
use crate::value::Value;

/// Compaction queues that are cleared if none is named.
const QUEUES: &[&str] = &["long", "short"];

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "wal_roll" => {
            let server = server_name(&arguments.next("the server")?)?;
            arguments.finish()?;
            context.admin().await?.roll_wal(&server).await?;
        }
        "list_deadservers" => {
            let metrics = context.admin().await?.cluster_metrics().await?;
            print_servers(context, &metrics.dead_servers)?;
        }
        "clear_deadservers" => {
            let names = server_names(arguments)?;
            let left = context.admin().await?.clear_dead_servers(&names).await?;
            print_servers(context, &left)?;
        }
        "list_decommissioned_regionservers" => {
            let found = context.admin().await?.decommissioned_servers().await?;
            print_servers(context, &found)?;
        }
        "decommission_regionservers" => {
            let servers = arguments.next("the server or a list of servers")?;
            let names = servers.list().iter().map(server_name).collect::<Result<Vec<_>, _>>()?;
            let offload = arguments.optional().map_or(Ok(false), |offload| offload.flag())?;
            arguments.finish()?;
            context.admin().await?.decommission_servers(&names, offload).await?;
        }
        "recommission_regionserver" => {
            let server = server_name(&arguments.next("the server")?)?;
            arguments.finish()?;
            context.admin().await?.recommission_server(&server).await?;
        }
        "update_config" => {
            let server = server_name(&arguments.next("the server")?)?;
            arguments.finish()?;
            context.admin().await?.update_configuration(&server).await?;
        }
        "update_all_config" => {
            arguments.finish()?;
            let admin = context.admin().await?;
            for server in admin.region_servers().await? {
                admin.update_configuration(&server).await?;
            }
        }
        "clear_compaction_queues" => clear_compaction_queues(context, arguments).await?,
        "rit" => {
            arguments.finish()?;
            let metrics = context.admin().await?.cluster_metrics().await?;
            let row = |found: &halcyon_client::RegionInTransition| {
                let since = found.since_ms.map_or(String::new(), |since| time(since as i64));
                vec![binary(found.region.region_name()), found.state.clone(), since]
            };
            let rows: Vec<_> = metrics.regions_in_transition.iter().map(row).collect();
            context.printer.table(&["REGION", "STATE", "SINCE"], &rows)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

pub(super) fn server_name(value: &Value) -> Result<ServerName, ShellError> {
    ServerName::parse(&value.text()?).map_err(|error| ShellError::usage(error.to_string()))
}

/// All arguments that are left as names of servers; lists count as their names.
fn server_names(arguments: &mut Arguments) -> Result<Vec<ServerName>, ShellError> {
    arguments.rest().into_iter().flat_map(Value::list).map(|name| server_name(&name)).collect()
}

pub(super) fn print_servers(context: &mut Context, servers: &[ServerName]) -> Result<(), ShellError> {
    let rows: Vec<_> = servers.iter().map(|server| vec![server.to_string()]).collect();
    Ok(context.printer.table(&["SERVERNAME"], &rows)?)
}

async fn clear_compaction_queues(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let server = server_name(&arguments.next("the server")?)?;
    let named = arguments.optional().map_or(Vec::new(), Value::list);
    arguments.finish()?;
    let named = named.iter().map(Value::text).collect::<Result<Vec<_>, _>>()?;
    let queues: Vec<&str> = match named.is_empty() {
        true => QUEUES.to_vec(),
        false => named.iter().map(String::as_str).collect(),
    };
    Ok(context.admin().await?.clear_compaction_queues(&server, &queues).await?)
}
