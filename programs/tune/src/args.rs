//! Options of `halcyon tune`.

use clap::Args;
use halcyon_load::args::ClusterArgs;

/// Look at a running cluster, Halcyon or HBase, and say what to change and why.
#[derive(Clone, Debug, Args)]
pub struct TuneArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How long to look. The load has to be the usual one meanwhile.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=3600))]
    pub seconds: u64,
    /// Print one line of JSON.
    #[arg(long)]
    pub json: bool,
}
