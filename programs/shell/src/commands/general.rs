//! `status`, `version`, `processlist`, `help`.

use halcyon_client::{ClusterMetrics, RegionMetrics, ServerMetrics, Task};
use serde_json::json;

use super::Context;
use crate::arguments::Arguments;
use crate::error::ShellError;
use crate::help;
use crate::print::{binary, time};

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "status" => status(context, arguments).await?,
        "version" => {
            arguments.finish()?;
            let metrics = context.admin().await?.cluster_metrics().await?;
            context.printer.value("version", metrics.hbase_version.unwrap_or_default())?;
        }
        "whoami" => {
            arguments.finish()?;
            let user = std::env::var("USER").unwrap_or_else(|_| "halcyon".to_string());
            context.printer.value("user", user)?;
        }
        "processlist" => processlist(context, arguments).await?,
        "help" => print_help(context, arguments)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn print_help(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let Some(topic) = arguments.optional() else {
        return Ok(context.printer.value("help", help::overview())?);
    };
    let topic = topic.text()?;
    match help::usage(&topic) {
        Some(text) => Ok(context.printer.value("help", text)?),
        None => Err(ShellError::usage(format!("no help for '{topic}'; help lists the commands"))),
    }
}

async fn status(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let form = arguments.optional().map_or(Ok("summary".to_string()), |form| form.text())?;
    let metrics = context.admin().await?.cluster_metrics().await?;
    match form.as_str() {
        "summary" => summary(context, &metrics),
        "simple" => simple(context, &metrics),
        "detailed" => detailed(context, &metrics),
        "tasks" => print_tasks(context, &tasks(&metrics)),
        other => {
            Err(arguments.error(format_args!("'{other}' is not one of summary, simple, detailed, tasks")))
        }
    }
}

fn summary(context: &mut Context, metrics: &ClusterMetrics) -> Result<(), ShellError> {
    let printer = &mut context.printer;
    printer.object(&json!({
        "master": metrics.master.as_ref().map(ToString::to_string), "backup_masters": metrics.backup_masters.len(),
        "servers": metrics.servers.len(), "dead": metrics.dead_servers.len(), "regions": metrics.regions_count(),
        "average_load": metrics.average_load(),
    }))?;
    printer.note(format_args!(
        "{} active master, {} backup masters, {} servers, {} dead, {:.4} average load",
        u8::from(metrics.master.is_some()),
        metrics.backup_masters.len(),
        metrics.servers.len(),
        metrics.dead_servers.len(),
        metrics.average_load()
    ))?;
    Ok(())
}

fn server_text(server: &ServerMetrics) -> String {
    let sum = |part: fn(&RegionMetrics) -> u32| {
        server.regions.iter().map(|region| u64::from(part(region))).sum::<u64>()
    };
    format!(
        "requestsPerSecond={}, numberOfOnlineRegions={}, usedHeapMB={}, maxHeapMB={}, numberOfStores={}, \
         numberOfStorefiles={}, storefileSizeMB={}, memstoreSizeMB={}, readRequestsCount={}, writeRequestsCount={}",
        server.requests_per_second,
        server.regions.len(),
        server.used_heap_mb,
        server.max_heap_mb,
        sum(|region| region.stores_count),
        sum(|region| region.store_files_count),
        sum(|region| region.store_file_size_mb),
        sum(|region| region.memstore_size_mb),
        server.regions.iter().map(|region| region.read_requests_count).sum::<u64>(),
        server.regions.iter().map(|region| region.write_requests_count).sum::<u64>(),
    )
}

fn simple(context: &mut Context, metrics: &ClusterMetrics) -> Result<(), ShellError> {
    let printer = &mut context.printer;
    if let Some(master) = &metrics.master {
        printer
            .note(format_args!("active master:  {}:{} {}", master.host, master.port, master.start_code))?;
    }
    printer.note(format_args!("{} backup masters", metrics.backup_masters.len()))?;
    printer.note(format_args!("{} live servers", metrics.servers.len()))?;
    for server in &metrics.servers {
        printer.object(&json!({
            "server": server.name.to_string(), "regions": server.regions.len(),
            "requests_per_second": server.requests_per_second, "used_heap_mb": server.used_heap_mb,
        }))?;
        printer
            .note(format_args!("    {}:{} {}", server.name.host, server.name.port, server.name.start_code))?;
        printer.note(format_args!("        {}", server_text(server)))?;
    }
    printer.note(format_args!("{} dead servers", metrics.dead_servers.len()))?;
    for server in &metrics.dead_servers {
        printer.note(format_args!("    {server}"))?;
    }
    Ok(())
}

fn detailed(context: &mut Context, metrics: &ClusterMetrics) -> Result<(), ShellError> {
    let printer = &mut context.printer;
    printer.note(format_args!("version {}", metrics.hbase_version.as_deref().unwrap_or("unknown")))?;
    printer.note(format_args!("{} regionsInTransition", metrics.regions_in_transition.len()))?;
    for region in &metrics.regions_in_transition {
        printer.note(format_args!("    {} {}", binary(region.region.region_name()), region.state))?;
    }
    printer.note(format_args!("master coprocessors: [{}]", metrics.master_coprocessors.join(", ")))?;
    simple(context, metrics)?;
    let printer = &mut context.printer;
    for region in metrics.servers.iter().flat_map(|server| &server.regions) {
        printer.object(&json!({
            "region": binary(&region.region_name), "store_files": region.store_files_count,
            "store_file_size_mb": region.store_file_size_mb, "memstore_size_mb": region.memstore_size_mb,
            "read_requests": region.read_requests_count, "write_requests": region.write_requests_count,
        }))?;
        printer.note(format_args!("    \"{}\"", binary(&region.region_name)))?;
        printer.note(format_args!(
            "        numberOfStores={}, numberOfStorefiles={}, storefileSizeMB={}, memstoreSizeMB={}, \
             readRequestsCount={}, writeRequestsCount={}, completeSequenceId={}",
            region.stores_count,
            region.store_files_count,
            region.store_file_size_mb,
            region.memstore_size_mb,
            region.read_requests_count,
            region.write_requests_count,
            region.complete_sequence_id.map_or(-1, |id| id as i64),
        ))?;
    }
    Ok(())
}

fn tasks(metrics: &ClusterMetrics) -> Vec<(String, Task)> {
    let master = metrics.master.as_ref().map(ToString::to_string).unwrap_or_default();
    let of_master = metrics.master_tasks.iter().map(move |task| (master.clone(), task.clone()));
    let of_servers = metrics
        .servers
        .iter()
        .flat_map(|server| server.tasks.iter().map(|task| (server.name.to_string(), task.clone())));
    of_master.chain(of_servers).collect()
}

fn print_tasks(context: &mut Context, tasks: &[(String, Task)]) -> Result<(), ShellError> {
    let row = |(server, task): &(String, Task)| {
        let start = task.start_ms.map_or(String::new(), |start| time(start as i64));
        vec![server.clone(), start, task.state.clone(), task.description.clone(), task.status.clone()]
    };
    let rows: Vec<_> = tasks.iter().map(row).collect();
    Ok(context.printer.table(&["SERVER", "START", "STATE", "DESCRIPTION", "STATUS"], &rows)?)
}

async fn processlist(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let which = arguments.optional().map_or(Ok("general".to_string()), |which| which.text())?;
    let metrics = context.admin().await?.cluster_metrics().await?;
    let mut tasks = tasks(&metrics);
    match which.as_str() {
        "all" => {}
        "general" => tasks.retain(|(_, task)| task.state == "RUNNING" || task.state == "WAITING"),
        host => tasks.retain(|(server, _)| server.starts_with(host)),
    }
    print_tasks(context, &tasks)
}
