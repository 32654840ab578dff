//! What each command does. A module has the commands of a group; `run` says whether a name was one of them.

mod alter;
mod general;
mod groups;
mod logs;
mod namespaces;
mod operations;
mod peers;
mod quotas;
mod regions;
mod rows;
mod scan;
mod servers;
mod snapshots;
mod switches;
mod tables;

use std::sync::Arc;

use halcyon_client::{Admin, Cluster, ClusterAddress, ClusterOptions, Table, TableName};
use tokio::sync::OnceCell;

use crate::arguments::Arguments;
use crate::error::ShellError;
use crate::help;
use crate::parse::Command;
use crate::print::Printer;

/// The connection that commands and completion share. Whoever needs it first connects.
#[derive(Clone)]
pub(crate) struct Connector {
    address: ClusterAddress,
    options: ClusterOptions,
    connected: Arc<OnceCell<(Cluster, Admin)>>,
}

impl Connector {
    async fn connect(&self) -> Result<&(Cluster, Admin), ShellError> {
        let connect = || async {
            let cluster = Cluster::connect(self.address.clone(), self.options.clone()).await?;
            let admin = cluster.admin().await?;
            Ok((cluster, admin))
        };
        self.connected.get_or_try_init(connect).await
    }

    pub(crate) async fn admin(&self) -> Result<Admin, ShellError> {
        Ok(self.connect().await?.1.clone())
    }
}

/// What commands work with.
pub(crate) struct Context {
    connector: Connector,
    pub(crate) printer: Printer,
}

impl Context {
    pub(crate) fn new(address: ClusterAddress, options: ClusterOptions, printer: Printer) -> Context {
        Context { connector: Connector { address, options, connected: Arc::default() }, printer }
    }

    pub(crate) fn connector(&self) -> Connector {
        self.connector.clone()
    }

    pub(crate) async fn admin(&self) -> Result<Admin, ShellError> {
        self.connector.admin().await
    }

    pub(crate) async fn table(&self, name: TableName) -> Result<Table, ShellError> {
        Ok(self.connector.connect().await?.0.table(name, 0))
    }
}

/// Executes one command.
pub(crate) async fn execute(context: &mut Context, command: Command) -> Result<(), ShellError> {
    let name = command.name.clone();
    let Some(name) = help::canonical(&name) else {
        return Err(ShellError::usage(match help::is_only_in_hbase(&name) {
            true => format!("'{name}' is a command of HBase's shell that this shell does not have"),
            false => format!("unknown command '{name}'; help lists the commands"),
        }));
    };
    let arguments = &mut Arguments::new(command);
    let is_known = general::run(context, name, arguments).await?
        || tables::run(context, name, arguments).await?
        || rows::run(context, name, arguments).await?
        || namespaces::run(context, name, arguments).await?
        || regions::run(context, name, arguments).await?
        || servers::run(context, name, arguments).await?
        || snapshots::run(context, name, arguments).await?
        || switches::run(context, name, arguments).await?
        || peers::run(context, name, arguments).await?
        || quotas::run(context, name, arguments).await?
        || logs::run(context, name, arguments).await?
        || groups::run(context, name, arguments).await?
        || operations::run(context, name, arguments).await?;
    debug_assert!(is_known, "{name} is in help and has no command");
    Ok(())
}

/// A pattern of HBase's for whole names, as servers take it; `*` alone means all, as people type it.
fn pattern(arguments: &mut Arguments) -> Result<Option<String>, ShellError> {
    match arguments.optional() {
        None => Ok(None),
        Some(value) => Ok(Some(match value.text()?.as_str() {
            "*" => ".*".to_string(),
            pattern => pattern.to_string(),
        })),
    }
}
