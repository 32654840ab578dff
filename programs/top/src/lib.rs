//! `halcyon top`: servers, regions, tables, namespaces and users of a cluster, live in the terminal or as text for scripts.
//!
//! ```text
//! sampling.rs   ClusterMetrics from the master, again and again -> rates.rs: counters become rates
//! records.rs    one record for each server, region, ... -> view.rs: filters (filter.rs), order, columns (fields.rs)
//! screen.rs     draws a view and takes keys;  batch.rs  prints it as text or JSON
//! ```
//!
//! All numbers come from `ClusterStatus`, so the program works with HBase and with Halcyon. Names of fields and the form of
//! filters are those of HBase's `hbtop`.
//!
//! When you add a field, also touch `docs/TOP.md`.

mod args;
mod batch;
mod fields;
mod filter;
mod rates;
mod records;
mod sampling;
mod screen;
mod view;

use std::io::{IsTerminal, stdout};

use halcyon_env::Env;

pub use args::TopArgs;

use crate::view::View;

/// Runs until the user or the number of iterations ends it. The error is a sentence for the user.
pub fn top(args: TopArgs) -> Result<(), String> {
    let view = View::of_args(&args)?;
    if !args.prints() && !stdout().is_terminal() {
        return Err("the output is no terminal: use --batch or --json".to_string());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let cluster = runtime.block_on(args.cluster.connect(1, halcyon_rpc::Codec::KeyValue))?;
    let ended = if args.prints() {
        runtime.block_on(batch::run(&args, &view, &cluster, &*Env::real().clock))
    } else {
        screen::run(&args, view, cluster, &runtime)
    };
    runtime.shutdown_background();
    ended
}
