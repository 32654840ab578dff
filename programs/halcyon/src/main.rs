//! `halcyon`: the database as one program.
//!
//! `halcyon standalone` runs master, region server and the coordination endpoint in one process, wired in
//! `standalone.rs`. Settings come from `hbase-site.xml` (`site.rs`) and from flags (`args.rs`), which win. `halcyon lab` is
//! the library `halcyon-lab`, `halcyon bench` is `halcyon-load`; `shell`, `top`, `tune`, `migrate`, `import` and `shadow` are
//! `halcyon-shell`, `halcyon-top`, `halcyon-tune`, `halcyon-migrate`, `halcyon-import` and `halcyon-shadow`. They do not start a
//! server.

mod args;
mod cleaner_settings;
mod cluster;
mod cluster_settings;
mod console;
mod crypto_settings;
mod group_script;
mod hbase_pages;
mod host_check;
mod import_files;
mod info;
mod info_pages;
mod jvm;
mod keeper;
mod limits;
mod log_level;
mod master;
mod master_settings;
mod metrics;
mod pages;
mod prof;
mod progress;
mod references;
mod regionserver;
mod role_start;
mod root;
mod safe_start;
mod settings;
#[cfg(test)]
mod settings_page;
mod signals;
mod site;
mod sizes;
mod source_files;
mod standalone;
mod status_settings;
mod surroundings;
mod systemd;
mod traces;
mod usage;
mod wal_aside;
mod without_effect;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use halcyon_allocator::SampledAllocator;
use halcyon_env::Env;

use crate::args::{Args, Command};

#[global_allocator]
static ALLOCATOR: SampledAllocator = SampledAllocator;

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

impl Failure {
    fn end(self) -> ExitCode {
        eprintln!("halcyon: {}", self.sentence);
        ExitCode::from(self.exit_code)
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

/// Threads that run calls: the event loops, and the pool. A panic there becomes the error of that call. A panic of the
/// profiler ends its profile only.
const CALL_THREADS: [&str; 3] = ["network-", "server", "profiler"];

/// A failed assertion on a background thread ends the process. Otherwise only the thread would end, and a server without
/// its WAL thread would go on. The next start recovers the WALs. A build that checks invariants ends with any panic. Contained
/// work is the exception: the region or procedure that it is about is set aside.
fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        if halcyon_env::is_contained() {
            return;
        }
        let thread = std::thread::current();
        let runs_calls =
            thread.name().is_some_and(|name| CALL_THREADS.iter().any(|start| name.starts_with(start)));
        if runs_calls && !halcyon_env::INVARIANTS {
            return;
        }
        eprintln!("halcyon: an assertion failed: the process ends; the next start recovers the WALs");
        std::process::abort();
    }));
}

fn main() -> ExitCode {
    abort_on_panic();
    halcyon_allocator::set_keep_time(FREE_MEMORY_KEEP_TIME);
    let args = Args::parse();
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    log_level::start(colours);
    let ended = match args.command {
        Command::Standalone(args) => standalone::run(args),
        Command::Master(args) => return master::run(args).unwrap_or_else(Failure::end),
        Command::RegionServer(args) => return regionserver::run(args).unwrap_or_else(Failure::end),
        Command::Lab(args) => lab(&args).map_err(Failure::from),
        Command::Shadow(command) => halcyon_shadow::shadow(*command).map_err(Failure::from),
        Command::Shell(args) => return halcyon_shell::run(&args),
        Command::Bench(command) => halcyon_load::bench(*command).map_err(Failure::from),
        Command::SetWalAside(args) => wal_aside::run(&args).map_err(Failure::from),
        Command::Import(command) => import_files::import(command).map_err(Failure::from),
        Command::Check(args) => match crypto_settings::with_keys_of(Env::read_only(), args.config.as_deref())
        {
            Ok(env) => return halcyon_check::run(&env, &args),
            Err(sentence) => Err(sentence.into()),
        },
        Command::Inspect(args) => {
            match crypto_settings::with_keys_of(Env::read_only(), args.config.as_deref()) {
                Ok(env) => return halcyon_inspect::run(&env, &args),
                Err(sentence) => Err(sentence.into()),
            }
        }
        Command::Migrate(args) => halcyon_migrate::migrate(*args).map_err(Failure::from),
        Command::Top(args) => halcyon_top::top(*args).map_err(Failure::from),
        Command::Tune(args) => halcyon_tune::tune(*args).map_err(Failure::from),
        Command::Completions { shell } => usage::completions(shell).map_err(Failure::from),
        Command::EndWith { parent, words } => Err(Failure::from(jvm::end_with(parent, &words))),
        Command::ManPages { dir } => usage::man_pages(&dir).map_err(Failure::from),
    };
    ended.map_or_else(Failure::end, |()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::thread::JoinHandle;

    /// Runs in a process of its own, started by the test below.
    const CHILD: &str = "HALCYON_TEST_PANICS";

    #[test]
    fn a_panic_on_a_background_thread_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            super::abort_on_panic();
            let _ = halcyon_env::spawn_thread("background", || panic!("of this test")).map(JoinHandle::join);
            return; // the process goes on: the test below fails
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "tests::a_panic_on_a_background_thread_ends_the_process", "--nocapture"]);
        let output = child.env(CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(6), "{said}");
        assert!(said.contains("of this test") && said.contains("recovers the WALs"), "{said}");
    }
}
