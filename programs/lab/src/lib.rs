//! The lab: tools for HBase's JVM, and experiments that compare HBase and Accumulo with Halcyon.
//!
//! - [`gclog`] reads a GC log of JDK 8 to 25: pauses by cause, other safepoints, allocation and promotion.
//! - [`advise`] recommends JVM flags for a region server from published experience, and compares them with flags in use.
//! - [`peers`] starts, watches and stops the servers under comparison.
//! - [`experiment`] repeats published experiments with them.
//! - [`outcome`] holds the results of an experiment, and [`page`] renders them as one HTML file.
//!
//! `gclog` and `advise` are functions from bytes to text without network, threads or clocks. Files come through
//! `halcyon-env`. `halcyon lab` in `programs/halcyon` calls [`run`] with [`LabArgs`].
//!
//! When you change what a log's line means, run `gclog/tests.rs` with `UPDATE=1` and read the difference in
//! `testdata/`. When you change a rule of advice, check its source again.

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
    /// Summarise GC logs: pauses by cause, safepoints, allocation.
    Gclog(gclog::GclogArgs),
    /// Recommend JVM flags for an HBase region server, with reasons and sources.
    Advise(advise::AdviseArgs),
    /// List or fetch JDKs, HBase and Accumulo.
    Peers(peers::PeersArgs),
    /// Start Halcyon, HBase or Accumulo for a comparison.
    Start(peers::StartArgs),
    /// Repeat a published experiment with HBase or Accumulo and Halcyon.
    Run(Box<experiment::RunArgs>),
    /// Supervise a server; used by the lab itself.
    #[command(hide = true)]
    Keep(peers::KeepArgs),
    /// Render the HTML page of an experiment from its results.
    Page(page::PageArgs),
}

/// Returns the text to print. The error is a sentence.
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
