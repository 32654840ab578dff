//! `halcyon check`: compares what `hbase:meta`, table descriptors, namespaces and directories say about each other.
//!
//! - `facts.rs` collects them from the files of a root directory that no server holds
//! - `meta_checks.rs` and `file_checks.rs` are functions from facts to findings
//! - `repair.rs` changes files, only with `--repair`, and only where nothing can be lost
//! - `cluster.rs` looks at a running cluster instead of files
//!
//! What must always hold:
//! - Without `--repair` nothing is written, and no call changes anything.
//! - A repair of files holds the lock of the root directory, so no server starts meanwhile. Nothing is deleted: files are moved
//!   aside.
//!
//! When you add a finding, also touch `docs/CHECK.md`, and add a test that makes the damage.

mod cluster;
mod facts;
mod file_checks;
mod finding;
mod meta_checks;
mod repair;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use halcyon_env::Env;
use halcyon_inspect::{Output, Stop};
use halcyon_load::args::ClusterArgs;
use serde_json::json;

use facts::Facts;
use finding::{Finding, Repair};

/// Findings that are not repaired are left.
const EXIT_FOUND: u8 = 1;
/// The check could not be made.
const EXIT_FAILED: u8 = 2;
/// Seconds that a region may be in transition, where nothing runs that could end it.
const STOPPED_SECONDS: u64 = 600;
/// The same of a running cluster (HBase: `hbase.metrics.rit.stuck.warning.threshold`).
const RUNNING_SECONDS: u64 = 60;

/// Find inconsistencies of a root directory or of a running cluster.
///
/// With --zookeeper or --registry: hbase:meta, servers and procedures of a running cluster, Halcyon or HBase. Otherwise:
/// hbase:meta, tables and files of a directory that no server uses. Exit codes: 0 nothing is wrong, 1 something is wrong and
/// was not repaired, 2 the check could not be made.
#[derive(Debug, Default, clap::Args)]
pub struct CheckArgs {
    /// Root directory.
    #[arg(long, value_name = "DIR", default_value = halcyon_inspect::place::DEFAULT_ROOT, conflicts_with_all = ["zookeeper", "registry"])]
    pub data: PathBuf,
    /// Directory of hbase-site.xml, which names the keys of encrypted files.
    #[arg(long, value_name = "DIR")]
    pub config: Option<PathBuf>,
    /// Check a running cluster: its ZooKeeper servers.
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', conflicts_with = "registry")]
    pub zookeeper: Vec<String>,
    /// Base znode of the cluster.
    #[arg(long, value_name = "PATH", default_value = "/hbase")]
    pub znode_parent: String,
    /// Check a running cluster through the RPC registry: its masters or region servers.
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    pub registry: Vec<String>,
    /// Timeout of one call.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub call_timeout: u64,
    /// Timeout of one operation with all retries.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub operation_timeout: u64,
    /// Check only this table.
    #[arg(short, long, value_name = "TABLE")]
    pub table: Option<String>,
    /// A region in transition, a procedure or a lock that waits for longer is a finding [default: 600; running cluster: 60].
    #[arg(long, value_name = "SECONDS")]
    pub transition_seconds: Option<u64>,
    /// Repair what can be repaired without loss.
    #[arg(long)]
    pub repair: bool,
    /// End procedures of a running cluster that make no progress. What they have begun stays as it is.
    #[arg(long, requires = "repair")]
    pub bypass: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub json: bool,
}

impl CheckArgs {
    fn is_of_cluster(&self) -> bool {
        !self.zookeeper.is_empty() || !self.registry.is_empty()
    }

    fn transition_seconds(&self) -> u64 {
        let default = if self.is_of_cluster() { RUNNING_SECONDS } else { STOPPED_SECONDS };
        self.transition_seconds.unwrap_or(default)
    }

    fn load_args(&self) -> ClusterArgs {
        ClusterArgs {
            zookeeper: self.zookeeper.clone(),
            znode_parent: self.znode_parent.clone(),
            registry: self.registry.clone(),
            call_timeout: self.call_timeout,
            operation_timeout: self.operation_timeout,
        }
    }
}

/// Reads through `env`, which cannot change files; prints to standard output.
pub fn run(env: &Env, args: &CheckArgs) -> ExitCode {
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    match check(env, &Env::real(), args, &mut stdout) {
        Ok(code) => ExitCode::from(code),
        Err(sentence) => {
            eprintln!("halcyon: {sentence}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Reads through `env`, repairs through `writable`; writes to `out`. Returns the exit code. The error is a sentence.
pub fn check(env: &Env, writable: &Env, args: &CheckArgs, out: &mut dyn Write) -> Result<u8, String> {
    let mut output = Output::new(out, args.json);
    match check_to(env, writable, args, &mut output) {
        Ok(code) => Ok(code),
        Err(Stop::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(EXIT_FOUND),
        Err(Stop::Output(error)) => Err(format!("standard output: {error}")),
        Err(Stop::Failed(sentence)) => Err(sentence),
    }
}

fn check_to(env: &Env, writable: &Env, args: &CheckArgs, out: &mut Output<'_>) -> Result<u8, Stop> {
    let (findings, regions_count) = match args.is_of_cluster() {
        true => cluster::check(env, args)?,
        false => check_directory(env, writable, args, out)?,
    };
    for finding in &findings {
        finding.print(out)?;
    }
    let left_count = findings.iter().filter(|finding| !finding.is_repaired).count() as u64;
    let repaired_count = findings.len() as u64 - left_count;
    let damage_count = out.damage_count();
    let object = || json!({"regions": regions_count, "findings": findings.len(), "repaired": repaired_count, "damage": damage_count});
    out.say("summary", object, || {
        format!("{regions_count} regions, {} findings, {repaired_count} repaired", findings.len())
    })?;
    out.finish()?;
    let is_clean = left_count == 0 && damage_count == 0 && out.failed_count() == 0;
    Ok(if is_clean { 0 } else { EXIT_FOUND })
}

fn check_directory(
    env: &Env,
    writable: &Env,
    args: &CheckArgs,
    out: &mut Output<'_>,
) -> Result<(Vec<Finding>, usize), Stop> {
    let root = &args.data;
    if let Some(pid) = halcyon_env::lock_holder(&root.join(halcyon_inspect::place::LOCK_FILE)) {
        let dir = root.display();
        return Err(Stop::Failed(format!(
            "process {pid} uses {dir}: stop it first, or check the running server with --zookeeper"
        )));
    }
    let facts = Facts::of_directory(env, root, out)?;
    let mut findings = find(&facts, args, env.clock.now_ms());
    if args.repair && !findings.is_empty() {
        repair::repair(writable, root, &mut findings)?;
    }
    Ok((findings, facts.regions.len()))
}

/// All findings about the tables that are wanted.
fn find(facts: &Facts, args: &CheckArgs, now_ms: i64) -> Vec<Finding> {
    let mut findings = meta_checks::check(facts, now_ms, args.transition_seconds());
    for finding in &mut findings {
        finding.repair.take_if(|repair| matches!(repair, Repair::Calls(_))); // no master runs
    }
    findings.extend(file_checks::check(facts));
    keep_wanted(&mut findings, args);
    findings
}

fn keep_wanted(findings: &mut Vec<Finding>, args: &CheckArgs) {
    if let Some(table) = &args.table {
        findings.retain(|finding| finding.table.as_ref() == Some(table));
    }
}
