//! `halcyon shell`: HBase's shell without a JVM.
//!
//! - `parse/`: command lines in HBase's syntax; `value.rs`: what they consist of; `arguments.rs`: what commands take
//! - `commands/`: what each command does, by the client library alone, so that the shell works with HBase 2.6 and Halcyon
//! - `help.rs`: the commands by group, with their usage
//! - `print.rs`: output for people in the terminal's width, or JSON, one object a line
//! - `session.rs`: one command after the other, from a prompt, a file, standard input or `-e`
//! - `editor.rs`: the prompt with completion and history
//!
//! The shell connects when the first command needs the cluster, so that it starts at once. Ctrl-C ends a command and not the
//! shell.
//!
//! When you add a command, also add it to `help.rs`, and to the script in `programs/halcyon/tests/shell.rs`.

mod arguments;
mod commands;
mod editor;
mod error;
#[cfg(test)]
mod garbage;
mod help;
mod parse;
mod print;
mod session;
mod value;

use std::path::PathBuf;
use std::process::ExitCode;

pub use error::ShellError;

/// Options of the shell.
#[derive(Clone, Debug, clap::Args)]
pub struct ShellArgs {
    /// ZooKeeper servers of the cluster.
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', default_value = "127.0.0.1:2181")]
    pub zookeeper: Vec<String>,
    /// Base znode of the cluster.
    #[arg(long, value_name = "PATH", default_value = "/hbase")]
    pub znode_parent: String,
    /// Use the RPC registry instead of ZooKeeper: masters or region servers of the cluster.
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    pub registry: Vec<String>,
    /// Timeout of one operation with all retries.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub operation_timeout: u64,
    /// Execute these commands and exit. Repeatable.
    #[arg(short = 'e', long = "execute", value_name = "COMMANDS")]
    pub execute: Vec<String>,
    /// Execute the commands of these files and exit; `-` is standard input.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print one JSON object a line instead of text.
    #[arg(long)]
    pub json: bool,
    /// Go on with the next command of a script after an error; the exit code is still 1.
    #[arg(long)]
    pub keep_going: bool,
}

/// Runs the shell. The exit code is 0, 1 after a failed command, 2 after a command that was not understood, and 130 after
/// Ctrl-C in a script.
pub fn run(args: &ShellArgs) -> ExitCode {
    ExitCode::from(session::run(args))
}
