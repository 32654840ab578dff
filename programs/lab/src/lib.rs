//! The lab: what people who run HBase on a JVM want to know about that JVM, and what our comparisons with it read.
//!
//! - [`gclog`] reads a collector's log, from JDK 8 to 25: which pauses, why, how long; which safepoints were none; how
//!   much memory was asked for and grew old.
//! - [`advise`] says which flags the published experience recommends for a region server, and why, and what it would
//!   change about those in use.
//! - [`peers`] starts the servers that are compared, watches them and ends them.
//! - [`experiment`] repeats published experiments with them.
//! - [`outcome`] is the shape of what an experiment finds, and [`page`] draws it as one HTML file.
//!
//! The first two are functions from bytes to text without a network, threads or clocks; files come through `halcyon-env`.
//! `halcyon lab` in `programs/halcyon` is the door ([`LabArgs`], [`run`]). Everything is also there as a library.
//!
//! When you change what a log's line means, also run `gclog/tests.rs` with `UPDATE=1` and read the difference in
//! `testdata/`. When you change a rule of advice, also look at its source again, and at README.md.

pub mod advise;
pub mod experiment;
pub mod gclog;
pub mod outcome;
pub mod page;
pub mod peers;

use halcyon_env::Env;

/// `halcyon lab ...`.
#[derive(Debug, clap::Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LabCommand {
    /// Read collector logs: pauses by cause, safepoints, allocation.
    Gclog(gclog::GclogArgs),
    /// Flags for an HBase region server's JVM, each with reason and source.
    Advise(advise::AdviseArgs),
    /// What there is to compare with: JDKs, HBase, Accumulo.
    Peers(peers::PeersArgs),
    /// Start a server to compare with.
    Start(peers::StartArgs),
    /// Repeat a published experiment with HBase or Accumulo and Halcyon side by side.
    Run(Box<experiment::RunArgs>),
    /// Keeps a server for the lab: nothing for people.
    #[command(hide = true)]
    Keep(peers::KeepArgs),
    /// Draw the page of an experiment from its results.
    Page(page::PageArgs),
}

/// The text to print, or a sentence that says what was wrong.
pub fn run(env: &Env, args: &LabArgs) -> Result<String, String> {
    match &args.command {
        LabCommand::Gclog(args) => gclog::run(env, args),
        LabCommand::Advise(args) => advise::run(env, args),
        LabCommand::Peers(args) => peers::peers(env, args),
        LabCommand::Start(args) => peers::start_and_wait(env, args),
        LabCommand::Run(args) => experiment::run(env, args),
        LabCommand::Keep(args) => peers::keep(args),
        LabCommand::Page(args) => page::run(env, args),
    }
}
