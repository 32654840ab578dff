//! Options of `halcyon top`.

use clap::{Args, ValueEnum};
use halcyon_load::args::ClusterArgs;

/// Show servers, regions, tables, namespaces or users of Halcyon or HBase, live.
#[derive(Clone, Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// What has a line each.
    #[arg(long, short, value_enum, default_value_t = Mode::Tables)]
    pub mode: Mode,
    /// Seconds between two looks at the cluster. Servers report about every three seconds.
    #[arg(long, short, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub delay: u64,
    /// Print text instead of drawing a screen; for scripts.
    #[arg(long, short)]
    pub batch: bool,
    /// End after this number of outputs; implies --batch.
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,
    /// Print a line of JSON for each look; implies --batch.
    #[arg(long)]
    pub json: bool,
    /// Field to order by, the largest first, such as "#REQ/S" [default: requests per second].
    #[arg(long, short, value_name = "FIELD")]
    pub sort: Option<String>,
    /// Order with the smallest first.
    #[arg(long)]
    pub ascending: bool,
    /// Show only what passes, such as "TABLE==orders" or "#READ/S>100". Repeatable; all must pass.
    #[arg(long = "filter", short, value_name = "FIELD OP VALUE")]
    pub filters: Vec<String>,
    /// Fields to show, in this order.
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// Lines at most.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
}

impl TopArgs {
    /// Whether text is printed instead of a screen.
    pub fn prints(&self) -> bool {
        self.batch || self.json || self.iterations.is_some()
    }
}

/// What has a line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    Servers,
    Regions,
    Tables,
    Namespaces,
    Users,
}

impl Mode {
    pub const ALL: [Mode; 5] = [Mode::Servers, Mode::Regions, Mode::Tables, Mode::Namespaces, Mode::Users];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Servers => "servers",
            Mode::Regions => "regions",
            Mode::Tables => "tables",
            Mode::Namespaces => "namespaces",
            Mode::Users => "users",
        }
    }
}
