//! `halcyon`: the database as one program.
//!
//! `halcyon standalone` runs master, region server and the coordination endpoint in one process, wired in
//! `standalone.rs`. Settings come from `hbase-site.xml` (`site.rs`) and from flags (`args.rs`), which win. `halcyon lab` is
//! the library `halcyon-lab`, and `halcyon bench` is `halcyon-load`; they do not start a server.

mod args;
mod info;
mod limits;
mod metrics;
mod pages;
mod references;
mod safe_start;
mod settings;
#[cfg(test)]
mod settings_page;
mod signals;
mod site;
mod sizes;
mod standalone;
mod systemd;
mod usage;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use halcyon_allocator::Allocator;

use crate::args::{Args, Command};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Long enough for a buffer that is needed again at once; frequently used memory has its own pools.
const FREE_MEMORY_KEEP_TIME: Duration = Duration::from_millis(10);

/// Why the program ends.
struct Failure {
    sentence: String,
    exit_code: u8,
}

impl From<String> for Failure {
    fn from(sentence: String) -> Failure {
        Failure { sentence, exit_code: 1 }
    }
}

/// Prints the lab's text; a closed pipe (`| head`) is no error.
fn lab(args: &halcyon_lab::LabArgs) -> Result<(), String> {
    let text = halcyon_lab::run(&halcyon_env::Env::real(), args)?;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// A build that checks invariants ends with the first one that does not hold, on whatever thread. Otherwise only that thread
/// would end, and a test would not notice.
fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

fn main() -> ExitCode {
    if halcyon_env::INVARIANTS {
        abort_on_panic();
    }
    halcyon_allocator::set_keep_time(FREE_MEMORY_KEEP_TIME);
    let args = Args::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("HALCYON_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    let ended = match args.command {
        Command::Standalone(args) => standalone::run(args),
        Command::Lab(args) => lab(&args).map_err(Failure::from),
        Command::Bench(command) => halcyon_load::bench(*command).map_err(Failure::from),
        Command::Completions { shell } => usage::completions(shell).map_err(Failure::from),
        Command::ManPages { dir } => usage::man_pages(&dir).map_err(Failure::from),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { sentence, exit_code }) => {
            eprintln!("halcyon: {sentence}");
            ExitCode::from(exit_code)
        }
    }
}
