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
    /// A whole database in one process.
    Standalone(StandaloneArgs),
    /// Collector logs and advice, for those who run HBase on a JVM.
    Lab(halcyon_lab::LabArgs),
    /// Load generators for Halcyon and HBase.
    #[command(subcommand)]
    Bench(Box<BenchCommand>),
}

/// Flags win over the configuration file; what neither names has the default.
#[derive(Debug, Default, clap::Args)]
pub struct StandaloneArgs {
    /// Directory of all data, HBase's root directory; made if need be [default: ./halcyon-data].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Memory for cells and blocks together, such as 512m or 4g [default: 1g].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// What an acknowledged write has survived [default: fsync].
    #[arg(long, value_enum, value_name = "HOW")]
    pub wal_sync: Option<WalSync>,
    /// Address to listen on [default: 127.0.0.1].
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,
    /// Name that clients are told to connect to [default: the address, or the machine's name for 0.0.0.0].
    #[arg(long, value_name = "HOST")]
    pub hostname: Option<String>,
    /// Port where clients look for the cluster; 0 takes any [default: 2181].
    #[arg(long, value_name = "PORT")]
    pub zookeeper_port: Option<u16>,
    /// Port of the master; 0 takes any [default: 16000].
    #[arg(long, value_name = "PORT")]
    pub master_port: Option<u16>,
    /// Port of the region server; 0 takes any [default: 16020].
    #[arg(long, value_name = "PORT")]
    pub regionserver_port: Option<u16>,
    /// Port of the master's page; 0 takes any [default: 16010].
    #[arg(long, value_name = "PORT")]
    pub master_info_port: Option<u16>,
    /// Port of the region server's page; 0 takes any [default: 16030].
    #[arg(long, value_name = "PORT")]
    pub regionserver_info_port: Option<u16>,
    /// Directory with an hbase-site.xml.
    #[arg(long, value_name = "DIR")]
    pub config: Option<PathBuf>,
    /// Start although the site file or the data directory needs NAME, which Halcyon lacks, and accept its loss. May be
    /// repeated.
    #[arg(long, value_enum, value_name = "NAME")]
    pub accept_without: Vec<Protection>,
    /// Print the settings in force and end.
    #[arg(long)]
    pub print_settings: bool,
}

/// When a write counts as logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WalSync {
    /// On the disk: survives a crash of the machine.
    Fsync,
    /// With the operating system: survives a crash of the process.
    Written,
}
