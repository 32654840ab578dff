//! What the master does by itself, its procedures and locks.

use halcyon_client::Switch;

use super::Context;
use crate::arguments::{Arguments, table_name};
use crate::error::ShellError;
use crate::print::time;

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "balance_switch" => switch(context, arguments, Switch::Balancer).await?,
        "balancer_enabled" => show(context, Switch::Balancer).await?,
        "normalizer_switch" => switch(context, arguments, Switch::Normalizer).await?,
        "normalizer_enabled" => show(context, Switch::Normalizer).await?,
        "splitormerge_switch" => {
            let which = split_or_merge(arguments)?;
            switch(context, arguments, which).await?;
        }
        "splitormerge_enabled" => {
            let which = split_or_merge(arguments)?;
            show(context, which).await?;
        }
        "catalogjanitor_switch" => switch(context, arguments, Switch::CatalogJanitor).await?,
        "catalogjanitor_enabled" => show(context, Switch::CatalogJanitor).await?,
        "cleaner_chore_switch" => switch(context, arguments, Switch::CleanerChore).await?,
        "cleaner_chore_enabled" => show(context, Switch::CleanerChore).await?,
        "snapshot_cleanup_switch" => switch(context, arguments, Switch::SnapshotCleanup).await?,
        "snapshot_cleanup_enabled" => show(context, Switch::SnapshotCleanup).await?,
        "balancer" => {
            let force = match arguments.optional() {
                Some(force) => force.text()? == "force",
                None => false,
            };
            let ran = context.admin().await?.balance(force).await?;
            context.printer.value("ran", ran)?;
        }
        "normalize" => {
            let tables = arguments.rest().iter().map(table_name).collect::<Result<Vec<_>, _>>()?;
            let ran = context.admin().await?.normalize(&tables).await?;
            context.printer.value("ran", ran)?;
        }
        "catalogjanitor_run" => {
            let removed = context.admin().await?.run_catalog_janitor().await?;
            context.printer.value("removed", removed)?;
        }
        "cleaner_chore_run" => {
            let ran = context.admin().await?.run_cleaner_chore().await?;
            context.printer.value("ran", ran)?;
        }
        "list_procedures" => procedures(context).await?,
        "list_locks" => locks(context).await?,
        "abort_procedure" => {
            let id = arguments.next("the procedure's id")?.integer()?;
            let id = u64::try_from(id).map_err(|_| arguments.error("a procedure's id is not negative"))?;
            let interrupt = arguments.optional().map_or(Ok(true), |interrupt| interrupt.flag())?;
            let aborted = context.admin().await?.abort_procedure(id, interrupt).await?;
            context.printer.value("aborted", aborted)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

async fn switch(context: &mut Context, arguments: &mut Arguments, switch: Switch) -> Result<(), ShellError> {
    let on = arguments.flag("true or false")?;
    arguments.finish()?;
    let before = context.admin().await?.set_switch(switch, on).await?;
    context.printer.note(format_args!("Previous state: {before}"))?;
    Ok(context.printer.object(&serde_json::json!({ "previous": before }))?)
}

async fn show(context: &mut Context, switch: Switch) -> Result<(), ShellError> {
    let on = context.admin().await?.switch(switch).await?;
    Ok(context.printer.value("enabled", on)?)
}

fn split_or_merge(arguments: &mut Arguments) -> Result<Switch, ShellError> {
    match arguments.text("SPLIT or MERGE")?.to_ascii_uppercase().as_str() {
        "SPLIT" => Ok(Switch::Split),
        "MERGE" => Ok(Switch::Merge),
        other => Err(arguments.error(format_args!("'{other}' is neither SPLIT nor MERGE"))),
    }
}

async fn procedures(context: &mut Context) -> Result<(), ShellError> {
    let procedures = context.admin().await?.procedures().await?;
    let row = |procedure: &halcyon_client::Procedure| {
        vec![
            procedure.id.to_string(),
            procedure.class.clone(),
            procedure.state.clone(),
            time(procedure.submitted_ms as i64),
            time(procedure.updated_ms as i64),
            procedure.owner.clone().unwrap_or_default(),
            serde_json::Value::from(procedure.parameters.clone()).to_string(),
        ]
    };
    let rows: Vec<_> = procedures.iter().map(row).collect();
    let columns = ["ID", "NAME", "STATE", "SUBMITTED", "LAST_UPDATE", "OWNER", "PARAMETERS"];
    Ok(context.printer.table(&columns, &rows)?)
}

async fn locks(context: &mut Context) -> Result<(), ShellError> {
    let locks = context.admin().await?.locks().await?;
    let row = |lock: &halcyon_client::Lock| {
        let owner =
            lock.owner.as_ref().map_or(String::new(), |owner| format!("{} {}", owner.id, owner.class));
        vec![
            lock.resource_type.clone(),
            lock.resource_name.clone(),
            format!("{:?}", lock.kind).to_ascii_uppercase(),
            owner,
            lock.waiting.len().to_string(),
        ]
    };
    let rows: Vec<_> = locks.iter().map(row).collect();
    Ok(context.printer.table(&["TYPE", "NAME", "LOCK", "OWNER", "WAITING"], &rows)?)
}
