//! Groups of region servers.

use std::collections::BTreeMap;

use halcyon_client::{ServerGroup, ServerName, TableName};
use serde_json::{Value as Json, json};

use super::namespaces::matches;
use super::servers::server_name;
use super::{Context, pattern};
use crate::arguments::{Arguments, table_name};
use crate::error::ShellError;
use crate::value::Value;

/// The attribute of a namespace that names the group of its new tables.
const ATTRIBUTE: &str = "hbase.rsgroup.name";
/// The group of what is in no other.
const DEFAULT: &str = "default";

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "add_rsgroup" => {
            let group = arguments.only_text("the group")?;
            context.admin().await?.add_group(&group).await?;
        }
        "remove_rsgroup" => {
            let group = arguments.only_text("the group")?;
            context.admin().await?.remove_group(&group).await?;
        }
        "rename_rsgroup" => {
            let (old, new) = (arguments.text("the group")?, arguments.text("the new name")?);
            arguments.finish()?;
            context.admin().await?.rename_group(&old, &new).await?;
        }
        "list_rsgroups" => list(context, arguments).await?,
        "get_rsgroup" => {
            let group = arguments.only_text("the group")?;
            show(context, &group).await?;
        }
        "get_server_rsgroup" => {
            let server = server_name(&arguments.next("the server")?)?;
            arguments.finish()?;
            let group = context.admin().await?.group_of_server(&server).await?;
            context.printer.value("group", group.name)?;
        }
        "get_table_rsgroup" => {
            let table = arguments.table()?;
            arguments.finish()?;
            let group = context.admin().await?.group_of_table(&table).await?;
            context.printer.value("group", group.name)?;
        }
        "get_namespace_rsgroup" => {
            let namespace = arguments.text("the namespace")?;
            arguments.finish()?;
            let namespace = context.admin().await?.describe_namespace(&namespace).await?;
            let group = namespace.configuration.get(ATTRIBUTE).map_or(DEFAULT, String::as_str);
            context.printer.value("group", group)?;
        }
        "balance_rsgroup" => balance(context, arguments).await?,
        "move_servers_rsgroup" => {
            let (group, servers) = (arguments.text("the group")?, servers(arguments)?);
            arguments.finish()?;
            context.admin().await?.move_servers_to_group(&servers, &group).await?;
        }
        "move_tables_rsgroup" => {
            let (group, tables) = (arguments.text("the group")?, tables(arguments)?);
            arguments.finish()?;
            context.admin().await?.move_tables_to_group(&tables, &group).await?;
        }
        "move_servers_tables_rsgroup" => {
            let (group, servers) = (arguments.text("the group")?, servers(arguments)?);
            let tables = tables(arguments)?;
            arguments.finish()?;
            context.admin().await?.move_to_group(&servers, &tables, &group).await?;
        }
        "move_namespaces_rsgroup" => {
            let group = arguments.text("the group")?;
            move_namespaces(context, arguments, &group, None).await?;
        }
        "move_servers_namespaces_rsgroup" => {
            let (group, servers) = (arguments.text("the group")?, servers(arguments)?);
            move_namespaces(context, arguments, &group, Some(servers)).await?;
        }
        "remove_servers_rsgroup" => {
            let servers = servers(arguments)?;
            arguments.finish()?;
            context.admin().await?.remove_servers_from_groups(&servers).await?;
        }
        "alter_rsgroup_config" => {
            let group = arguments.text("the group")?;
            let changes = changes(arguments)?;
            let admin = context.admin().await?;
            let mut configuration = admin.group(&group).await?.configuration;
            apply(changes, &mut configuration);
            admin.set_group_configuration(&group, &configuration).await?;
        }
        "show_rsgroup_config" => {
            let group = arguments.only_text("the group")?;
            let configuration = context.admin().await?.group(&group).await?.configuration;
            let rows: Vec<_> = configuration.into_iter().map(|(key, value)| vec![key, value]).collect();
            context.printer.table(&["KEY", "VALUE"], &rows)?;
        }
        "update_rsgroup_config" => {
            let group = arguments.only_text("the group")?;
            let admin = context.admin().await?;
            let members = admin.group(&group).await?.servers;
            for server in admin.region_servers().await? {
                if members.iter().any(|member| member.address() == server.address()) {
                    admin.update_configuration(&server).await?;
                }
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The values of a list, of which there must be one.
fn values(arguments: &mut Arguments, what: &str) -> Result<Vec<Value>, ShellError> {
    let values = arguments.next(&format!("the list of {what}"))?.list();
    match values.is_empty() {
        true => Err(arguments.error(format_args!("the list of {what} is empty"))),
        false => Ok(values),
    }
}

fn servers(arguments: &mut Arguments) -> Result<Vec<ServerName>, ShellError> {
    values(arguments, "servers")?.iter().map(server_name).collect()
}

fn tables(arguments: &mut Arguments) -> Result<Vec<TableName>, ShellError> {
    values(arguments, "tables")?.iter().map(table_name).collect()
}

async fn list(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let pattern = pattern(arguments)?;
    arguments.finish()?;
    let mut groups = context.admin().await?.groups().await?;
    if let Some(pattern) = pattern {
        groups.retain(|group| matches(&pattern, &group.name));
    }
    let printer = &mut context.printer;
    if printer.is_json() {
        for group in &groups {
            printer.object(&json_of(group))?;
        }
        return Ok(());
    }
    let rows: Vec<_> = groups.iter().flat_map(rows).collect();
    Ok(printer.table(&["NAME", "SERVER / TABLE"], &rows)?)
}

/// A row for each server and table. The first one has the name of the group.
fn rows(group: &ServerGroup) -> Vec<Vec<String>> {
    let servers = group.servers.iter().map(|server| format!("server {}", server.address()));
    let tables = group.tables.iter().map(|table| format!("table {table}"));
    let mut members: Vec<String> = servers.chain(tables).collect();
    if members.is_empty() {
        members.push(String::new());
    }
    let names = std::iter::once(group.name.clone()).chain(std::iter::repeat(String::new()));
    names.zip(members).map(|(name, member)| vec![name, member]).collect()
}

fn json_of(group: &ServerGroup) -> Json {
    let servers: Vec<String> = group.servers.iter().map(ServerName::address).collect();
    let tables: Vec<String> = group.tables.iter().map(ToString::to_string).collect();
    let (name, configuration) = (&group.name, &group.configuration);
    json!({ "name": name, "servers": servers, "tables": tables, "configuration": configuration })
}

async fn show(context: &mut Context, name: &str) -> Result<(), ShellError> {
    let group = context.admin().await?.group(name).await?;
    let printer = &mut context.printer;
    if printer.is_json() {
        return Ok(printer.object(&json_of(&group))?);
    }
    let servers: Vec<_> = group.servers.iter().map(|server| vec![server.address()]).collect();
    let tables: Vec<_> = group.tables.iter().map(|table| vec![table.to_string()]).collect();
    printer.table(&["SERVERS"], &servers)?;
    Ok(printer.table(&["TABLES"], &tables)?)
}

async fn balance(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let group = arguments.text("the group")?;
    let (mut force, mut dry_run) = (false, false);
    for option in arguments.rest() {
        match option.text()?.as_str() {
            "ignore_rit" | "force" => force = true,
            "dry_run" => dry_run = true,
            other => {
                return Err(arguments.error(format_args!("'{other}' is neither ignore_rit nor dry_run")));
            }
        }
    }
    let balance = context.admin().await?.balance_group(&group, force, dry_run).await?;
    let (calculated, executed) = (balance.moves_calculated, balance.moves_executed);
    let printer = &mut context.printer;
    match balance.ran {
        true => {
            printer.note("Balancer ran")?;
            printer.note(format_args!("Moves calculated: {calculated}, moves executed: {executed}"))?;
        }
        false => printer.note("Balancer did not run. See logs for details.")?,
    }
    let ran = balance.ran;
    Ok(printer.object(&json!({ "ran": ran, "moves_calculated": calculated, "moves_executed": executed }))?)
}

/// Moves the tables of namespaces, with servers or without, and has their new tables go to the same group.
async fn move_namespaces(
    context: &mut Context,
    arguments: &mut Arguments,
    group: &str,
    servers: Option<Vec<ServerName>>,
) -> Result<(), ShellError> {
    let names = values(arguments, "namespaces")?;
    arguments.finish()?;
    let names = names.iter().map(Value::text).collect::<Result<Vec<_>, _>>()?;
    let admin = context.admin().await?;
    let (mut namespaces, mut tables) = (Vec::new(), Vec::new());
    for name in &names {
        namespaces.push(admin.describe_namespace(name).await?);
        tables.extend(admin.namespace_tables(name).await?);
    }
    match servers {
        Some(servers) => admin.move_to_group(&servers, &tables, group).await?,
        None => admin.move_tables_to_group(&tables, group).await?,
    }
    for mut namespace in namespaces {
        namespace.configuration.insert(ATTRIBUTE.to_string(), group.to_string());
        admin.modify_namespace(&namespace).await?;
    }
    Ok(())
}

/// A change of a group's settings.
#[derive(Debug, PartialEq)]
enum Change {
    Set(String, String),
    Unset(String),
}

/// What is left, each map with a `METHOD` of its own.
fn changes(arguments: &mut Arguments) -> Result<Vec<Change>, ShellError> {
    let mut changes = Vec::new();
    for value in arguments.rest().into_iter().flat_map(Value::list) {
        let mut map = value.map()?;
        match map.take("METHOD").map(|method| method.text()).transpose()?.as_deref() {
            Some("unset") => {
                let key = map.take("NAME").ok_or_else(|| arguments.error("METHOD => 'unset' needs NAME"))?;
                map.finish("alter_rsgroup_config")?;
                changes.push(Change::Unset(key.text()?));
            }
            Some("set") | None => {
                for (key, value) in map.0 {
                    changes.push(Change::Set(key, value.text()?));
                }
            }
            Some(other) => {
                return Err(arguments.error(format_args!("METHOD '{other}' is neither set nor unset")));
            }
        }
    }
    match changes.is_empty() {
        true => Err(arguments.error("there is nothing to change")),
        false => Ok(changes),
    }
}

fn apply(changes: Vec<Change>, configuration: &mut BTreeMap<String, String>) {
    for change in changes {
        match change {
            Change::Set(key, value) => configuration.insert(key, value),
            Change::Unset(key) => configuration.remove(&key),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> ServerGroup {
        ServerGroup {
            name: "g".to_string(),
            servers: vec![ServerName::new("h", 1, -1), ServerName::new("h", 2, -1)],
            tables: vec![TableName::parse(b"n:t").unwrap()],
            configuration: BTreeMap::from([("k".to_string(), "v".to_string())]),
        }
    }

    #[test]
    fn a_group_is_named_once() {
        assert_eq!(rows(&group()), [["g", "server h:1"], ["", "server h:2"], ["", "table n:t"]]);
        let empty = ServerGroup { name: "e".to_string(), ..ServerGroup::default() };
        assert_eq!(rows(&empty), [["e", ""]]);
        let expected =
            r#"{"name": "g", "servers": ["h:1", "h:2"], "tables": ["n:t"], "configuration": {"k": "v"}}"#;
        assert_eq!(json_of(&group()), serde_json::from_str::<Json>(expected).unwrap());
    }

    #[test]
    fn settings_are_set_and_unset() {
        let mut configuration = group().configuration;
        let line =
            "alter_rsgroup_config {METHOD => 'set', 'a' => 1, 'b' => 'c'}, {METHOD => 'unset', NAME => 'k'}";
        apply(changes(&mut Arguments::typed(line)).unwrap(), &mut configuration);
        let pair = |key: &str, value: &str| (key.to_string(), value.to_string());
        assert_eq!(configuration, BTreeMap::from([pair("a", "1"), pair("b", "c")]));
        let set = changes(&mut Arguments::typed("alter_rsgroup_config 'a' => 'b'")).unwrap();
        assert_eq!(set, [Change::Set("a".to_string(), "b".to_string())]);
    }

    #[test]
    fn nothing_is_ignored() {
        for bad in [
            "alter_rsgroup_config",
            "alter_rsgroup_config 'a'",
            "alter_rsgroup_config {}",
            "alter_rsgroup_config {METHOD => 'set'}",
            "alter_rsgroup_config {METHOD => 'other', 'a' => 'b'}",
            "alter_rsgroup_config {METHOD => 'unset', 'a' => 'b'}",
            "alter_rsgroup_config {METHOD => 'unset', NAME => 'a', 'b' => 'c'}",
            "alter_rsgroup_config {'a' => ['b']}",
        ] {
            assert!(matches!(changes(&mut Arguments::typed(bad)), Err(ShellError::Usage(_))), "{bad}");
        }
        for bad in ["x", "x []", "x nil", "x 'h'", "x ['h:1', 'h:x']", "x [['h:1']]"] {
            assert!(matches!(servers(&mut Arguments::typed(bad)), Err(ShellError::Usage(_))), "{bad}");
        }
    }

    #[test]
    fn servers_stand_in_a_list_or_alone() {
        let found = servers(&mut Arguments::typed("x ['h:1', 'h,2,3']")).unwrap();
        assert_eq!(found, [ServerName::new("h", 1, -1), ServerName::new("h", 2, 3)]);
        assert_eq!(servers(&mut Arguments::typed("x 'h:1'")).unwrap(), [ServerName::new("h", 1, -1)]);
    }
}
