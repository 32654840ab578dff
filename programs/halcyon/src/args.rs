//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use halcyon_load::args::BenchCommand;

use crate::safe_start::Protection;
use crate::sizes::Size;

/// An HBase-compatible database.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run master, region server and ZooKeeper endpoint in one process.
    Standalone(StandaloneArgs),
    /// Run a region server of a cluster on HDFS and ZooKeeper whose master is another process, such as HBase's.
    #[command(name = "regionserver")]
    RegionServer(RegionServerArgs),
    /// Run a master of a cluster on ZooKeeper and HDFS, active or standby; region servers are other processes.
    Master(MasterArgs),
    /// Compare with HBase and Accumulo; read GC logs; recommend JVM flags.
    Lab(halcyon_lab::LabArgs),
    /// Generate load on Halcyon or HBase and measure it.
    #[command(subcommand)]
    Bench(Box<BenchCommand>),
    /// Find inconsistencies of a running cluster or of a root directory; repairs only with --repair.
    Check(halcyon_check::CheckArgs),
    /// Import a table of another system: Apache Accumulo.
    #[command(subcommand)]
    Import(halcyon_import::ImportCommand),
    /// Look at files of a root directory without a server; nothing is written.
    Inspect(halcyon_inspect::InspectArgs),
    /// Move tables from a running cluster of HBase here, and back if need be.
    Migrate(Box<halcyon_migrate::MigrateArgs>),
    /// Show servers, regions, tables, namespaces or users of a cluster, live.
    Top(Box<halcyon_top::TopArgs>),
    /// Look at a running cluster and say what to change.
    Tune(Box<halcyon_tune::TuneArgs>),
    /// Print the completion script of a shell.
    Completions {
        /// The shell to complete in.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands.
    ManPages {
        /// Directory to write to; created if it does not exist.
        dir: PathBuf,
    },
    /// Compare two clusters by the reads of real clients: record them, replay them, or send them to both at once.
    #[command(subcommand)]
    Shadow(Box<halcyon_shadow::ShadowCommand>),
    /// Give up one WAL of a dead server that cannot be read, so that its regions open again.
    SetWalAside(crate::wal_aside::SetWalAsideArgs),
    /// Talk to a cluster of Halcyon or HBase in HBase's shell syntax.
    Shell(halcyon_shell::ShellArgs),
    /// Become a program that ends with the process that started this one.
    #[command(hide = true)]
    EndWith {
        /// Number of that process.
        parent: u32,
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<std::ffi::OsString>,
    },
}

/// Options of every server. Command-line options override `hbase-site.xml`, which overrides the defaults.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServerArgs {
    /// Memory budget for memstores, block cache and requests, such as 512m or 4g [default: 1g].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Durability of acknowledged writes [default: fsync].
    #[arg(long, value_enum, value_name = "HOW")]
    pub wal_sync: Option<WalSync>,
    /// IP address to listen on [default: 127.0.0.1].
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,
    /// Host name that clients and other servers connect to [default: the bind address, or the machine's name for 0.0.0.0].
    #[arg(long, value_name = "HOST")]
    pub hostname: Option<String>,
    /// Print the effective settings, each under its source, and exit.
    #[arg(long)]
    pub print_settings: bool,
    /// Start although the site file or the directory asks for NAME, which Halcyon lacks; accepts the loss. Repeatable.
    #[arg(long, value_enum, value_name = "NAME")]
    pub accept_without: Vec<Protection>,
}

/// Options of servers that are processes of their own.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct KeeperArgs {
    /// Whether a small process starts the server, reports its end at once, and ends it when it is declared dead while frozen
    /// [default: true].
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set)]
    pub keeper: Option<bool>,
    /// The process that has started this one; only for the keeper.
    #[arg(long, value_name = "PROCESS", hide = true)]
    pub kept_by: Option<u32>,
}

/// Command-line options override `hbase-site.xml`, which overrides the defaults.
#[derive(Debug, Default, clap::Args)]
pub struct StandaloneArgs {
    /// The server's directory on the local disk; created if it does not exist [default: ./halcyon-data].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Root directory in HBase's layout, such as hdfs://namenode:8020/hbase [default: the directory of --data].
    #[arg(long, value_name = "ADDRESS")]
    pub root: Option<String>,
    /// Take a root directory in HDFS away from the servers that used it: their WALs are split.
    #[arg(long)]
    pub take_over: bool,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Port of the ZooKeeper endpoint; 0 picks a free port [default: 2181].
    #[arg(long, value_name = "PORT")]
    pub zookeeper_port: Option<u16>,
    /// RPC port of the master; 0 picks a free port [default: 16000].
    #[arg(long, value_name = "PORT")]
    pub master_port: Option<u16>,
    /// RPC port of the region server; 0 picks a free port [default: 16020].
    #[arg(long, value_name = "PORT")]
    pub regionserver_port: Option<u16>,
    /// HTTP port of the master; 0 picks a free port [default: 16010].
    #[arg(long, value_name = "PORT")]
    pub master_info_port: Option<u16>,
    /// HTTP port of the region server; 0 picks a free port [default: 16030].
    #[arg(long, value_name = "PORT")]
    pub regionserver_info_port: Option<u16>,
    /// Directory that contains hbase-site.xml, and core-site.xml and hdfs-site.xml for a root directory in HDFS.
    #[arg(long, value_name = "DIR")]
    pub config: Option<PathBuf>,
}

/// Command-line options override `hbase-site.xml`, which overrides the defaults.
#[derive(Debug, clap::Args)]
pub struct RegionServerArgs {
    /// Directory that contains the cluster's hbase-site.xml, core-site.xml and hdfs-site.xml.
    #[arg(long, value_name = "DIR")]
    pub config: PathBuf,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub keeper: KeeperArgs,
    /// RPC port; 0 picks a free port [default: 16020].
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// HTTP port; 0 picks a free port [default: 16030].
    #[arg(long, value_name = "PORT")]
    pub info_port: Option<u16>,
}

/// Options of `halcyon master`.
#[derive(Clone, Debug, clap::Args)]
pub struct MasterArgs {
    /// Directory that contains the cluster's hbase-site.xml, core-site.xml and hdfs-site.xml.
    #[arg(long, value_name = "DIR")]
    pub config: PathBuf,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub keeper: KeeperArgs,
    /// RPC port; 0 picks a free port [default: 16000].
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// HTTP port; 0 picks a free port [default: 16010].
    #[arg(long, value_name = "PORT")]
    pub info_port: Option<u16>,
}

impl MasterArgs {
    /// The same options as those of a server in one process.
    pub fn as_standalone(&self) -> StandaloneArgs {
        StandaloneArgs {
            config: Some(self.config.clone()),
            server: self.server.clone(),
            master_port: self.port,
            master_info_port: self.info_port,
            ..StandaloneArgs::default()
        }
    }
}

impl RegionServerArgs {
    /// The same options as those of a server in one process.
    pub fn as_standalone(&self) -> StandaloneArgs {
        StandaloneArgs {
            config: Some(self.config.clone()),
            server: self.server.clone(),
            regionserver_port: self.port,
            regionserver_info_port: self.info_port,
            ..StandaloneArgs::default()
        }
    }
}

/// When a WAL write counts as complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WalSync {
    /// After fsync: acknowledged writes survive a power failure.
    Fsync,
    /// After write(): acknowledged writes survive a crash of the process only.
    Written,
}
