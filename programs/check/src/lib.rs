//! `halcyon check`: compares what `hbase:meta`, table descriptors, namespaces and directories say about each other.
//!
//! - `facts.rs` collects them from the files of a root directory that no server holds
//! - `meta_checks.rs` and `file_checks.rs` are functions from facts to findings
//! - `repair.rs` changes files, only with `--repair`, and only where nothing can be lost
//!
//! What must always hold:
//! - Without `--repair` nothing is written.
//! - A repair of files holds the lock of the root directory, so no server starts meanwhile. Nothing is deleted: files are moved
//!   aside.
//!
//! When you add a finding, also touch `docs/CHECK.md`, and add a test that makes the damage.

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
use serde_json::json;

use facts::Facts;
use finding::Finding;

/// Findings that are not repaired are left.
const EXIT_FOUND: u8 = 1;
/// The check could not be made.
const EXIT_FAILED: u8 = 2;

/// Find inconsistencies between hbase:meta, tables and files of a root directory.
///
/// No server may use the directory. Exit codes: 0 nothing is wrong, 1 something is wrong and was not repaired, 2 the check
/// could not be made.
#[derive(Debug, Default, clap::Args)]
pub struct CheckArgs {
    /// Root directory.
    #[arg(long, value_name = "DIR", default_value = halcyon_inspect::place::DEFAULT_ROOT)]
    pub data: PathBuf,
    /// Check only this table.
    #[arg(short, long, value_name = "TABLE")]
    pub table: Option<String>,
    /// A region that is in transition for longer is a finding.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub transition_seconds: u64,
    /// Repair what can be repaired without loss.
    #[arg(long)]
    pub repair: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// Prints to standard output.
pub fn run(args: &CheckArgs) -> ExitCode {
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    match check(&Env::read_only(), &Env::real(), args, &mut stdout) {
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
    let (mut findings, regions_count) = check_directory(env, args, out)?;
    if args.repair && !findings.is_empty() {
        repair::repair(writable, &args.data, &mut findings)?;
    }
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

fn check_directory(env: &Env, args: &CheckArgs, out: &mut Output<'_>) -> Result<(Vec<Finding>, usize), Stop> {
    let root = &args.data;
    if let Some(pid) = halcyon_env::lock_holder(&root.join(halcyon_inspect::place::LOCK_FILE)) {
        let dir = root.display();
        return Err(Stop::Failed(format!(
            "process {pid} uses {dir}: stop it first; hbck_chore_run of HBase's shell checks a running master"
        )));
    }
    let facts = Facts::of_directory(env, root, out)?;
    let findings = find(&facts, args, env.clock.now_ms());
    Ok((findings, facts.regions.len()))
}

/// All findings about the tables that are wanted.
fn find(facts: &Facts, args: &CheckArgs, now_ms: i64) -> Vec<Finding> {
    let mut findings = meta_checks::check(facts, now_ms, args.transition_seconds);
    findings.extend(file_checks::check(facts));
    if let Some(table) = &args.table {
        findings.retain(|finding| finding.table.as_ref() == Some(table));
    }
    findings
}
