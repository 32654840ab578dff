//! `halcyon import accumulo`: a table of Apache Accumulo becomes a table of Halcyon or HBase.
//!
//! ```text
//! files.rs     RFiles of an exported table (export.rs) or of a directory; rfile/ reads them
//! live.rs      or: a scan of a running instance by Accumulo's own client (AccumuloScan.java)
//! merge.rs     entries of a range as a scan of Accumulo would show them
//! mapping.rs   their cells
//! check.rs     first reading: everything is decoded and counted, before anything is written
//! target.rs    the table, with the tablets as regions
//! copy.rs      second reading: everything is written
//! compare.rs   the table is read, and compared with the sums of the source (sum.rs)
//! ```
//!
//! What was done is in a file (`state.rs`). Every range may be written again, so a run that was killed resumes. Decision 0016 has
//! the reasons.
//!
//! What must hold: nothing of a file is written before all that is needed of it was read without an error, and two
//! entries that are different columns for Accumulo never become one cell.
//!
//! When you change what is read or written, also touch `docs/ACCUMULO.md` and `testing/compat/accumulo.sh`, which imports from a real
//! Accumulo.

mod args;
mod check;
mod compare;
mod copy;
mod export;
mod files;
mod live;
mod mapping;
mod merge;
mod options;
mod progress;
mod rfile;
mod source;
mod state;
mod sum;
mod target;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_client::TableName;
use halcyon_env::Env;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

pub use args::{AccumuloArgs, ImportCommand, VisibilityMode};
pub use files::Opener;

use crate::check::Findings;
use crate::files::{Damages, FileSource};
use crate::live::LiveSource;
use crate::mapping::Mapping;
use crate::progress::Progress;
use crate::source::Source;
use crate::state::{FORMAT, FileOfState, Phase, Range, State, StateFile, hex};
use crate::target::{Target, Wanted, compression};

/// An import under way.
///
/// # Thread safety
/// Shared by the tasks of a step. The state's lock is held for changes in memory and while the state is saved.
pub(crate) struct Import {
    args: AccumuloArgs,
    source: Arc<Source>,
    mapping: Arc<Mapping>,
    file: StateFile,
    state: Mutex<State>,
    target: Arc<Target>,
}

impl Import {
    fn progress_period(&self) -> Duration {
        Duration::from_secs(self.args.progress_period)
    }

    fn enter(&self, phase: Phase) -> Result<(), String> {
        let mut state = self.state.lock();
        state.phase = phase;
        self.file.save(&state)
    }
}

/// Imports a table. The error is a sentence for the user. `opener` opens file systems by address.
pub fn import(command: ImportCommand, opener: &Opener) -> Result<(), String> {
    let ImportCommand::Accumulo(args) = command;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let ended = run(*args, &Env::real(), opener, &runtime);
    runtime.shutdown_background();
    ended
}

/// Files are read on this thread, which waits for them, or on threads made for that: never in a task.
fn run(args: AccumuloArgs, env: &Env, opener: &Opener, runtime: &Runtime) -> Result<(), String> {
    let table =
        TableName::parse(args.table.as_bytes()).map_err(|error| format!("--table: {}", error.message()))?;
    let file = StateFile::open(env, &args.state)?;
    let known = file.load()?;
    let options = options::identity(&args);
    if known.as_ref().is_some_and(|state| state.options != options) {
        return Err(format!(
            "{} is of another import ({}): name another file by --state",
            args.state.display(),
            known.map(|state| state.options.join(" ")).unwrap_or_default()
        ));
    }
    if known.as_ref().is_some_and(|state| state.phase == Phase::Ended) && !args.dry_run {
        return Err(format!(
            "the import in {} has ended: name another file by --state",
            args.state.display()
        ));
    }
    let source = match &args.from {
        Some(from) => Source::Files(FileSource::open(from, args.without_metadata, args.versions, opener)?),
        None => Source::Live(LiveSource::open(env, &args)?),
    };
    let mapping = options::mapping(&args, env, source.config())?;
    options::check_iterators(&source, args.ignore_iterators)?;
    let (source, mapping) = (Arc::new(source), Arc::new(mapping));
    let state = match known {
        Some(state) => {
            println!("resumed from {}", args.state.display());
            check_files(&source, &state)?;
            state
        }
        None => {
            let state = plan(&args, &source, &mapping, options, runtime)?;
            if args.dry_run {
                println!("dry run: nothing was written");
                return Ok(());
            }
            file.save(&state)?;
            state
        }
    };
    if args.dry_run {
        println!("dry run: nothing was written");
        return Ok(());
    }
    let target = Arc::new(runtime.block_on(Target::connect(&args.to, table, args.threads))?);
    let import = Arc::new(Import { args, source, mapping, file, state: Mutex::new(state), target });
    runtime.block_on(steps(&import))
}

/// What is left to do, from where the import is.
async fn steps(import: &Arc<Import>) -> Result<(), String> {
    let (phase, wanted) = {
        let state = import.state.lock();
        (state.phase, wanted(import, &state)?)
    };
    import.target.prepare(&wanted, phase > Phase::Checked).await?;
    if phase < Phase::Comparing {
        import.enter(Phase::Copying)?;
        copy::copy(import).await?;
        import.enter(Phase::Comparing)?;
    }
    let there = compare::compare(import).await?;
    import.enter(Phase::Ended)?;
    println!(
        "imported: {} rows, {} cells, {} MB; the target has the same, by count and by checksum",
        there.rows,
        there.cells,
        there.bytes / 1_000_000
    );
    Ok(())
}

fn wanted(import: &Import, state: &State) -> Result<Wanted, String> {
    let splits = state.splits.iter().map(|split| hex::bytes(split).map(Bytes::from));
    let splits = splits.collect::<Option<Vec<Bytes>>>().ok_or("the state has a split that is no row key")?;
    let compression = import.source.config().compression.as_deref().and_then(compression);
    Ok(Wanted { families: import.mapping.target_families(), versions: state.versions, compression, splits })
}

/// Files must be those that were checked.
fn check_files(source: &Source, state: &State) -> Result<(), String> {
    let Source::Files(source) = source else { return Ok(()) };
    let now: Vec<FileOfState> = files_of(source);
    match now == state.files {
        true => Ok(()),
        false => {
            Err("there are other files than when they were checked: begin again with another --state"
                .to_string())
        }
    }
}

fn files_of(source: &FileSource) -> Vec<FileOfState> {
    source.files.iter().map(|file| FileOfState { path: file.shown(), len: file.len }).collect()
}

/// Looks at the source, says what would be imported, and finds every reason against it.
fn plan(
    args: &AccumuloArgs,
    source: &Arc<Source>,
    mapping: &Arc<Mapping>,
    options: Vec<String>,
    runtime: &Runtime,
) -> Result<State, String> {
    options::print_source(source, mapping);
    match &**source {
        Source::Files(files) => plan_files(args, source, files, mapping, options, runtime),
        Source::Live(live) => {
            let tablets = live.tablets.iter().enumerate();
            let range = |(tablet, (start, end)): (usize, &(Vec<u8>, Vec<u8>))| Range {
                start: start.clone(),
                end: end.clone(),
                tablet,
                ..Range::default()
            };
            let ranges: Vec<Range> = tablets.map(range).collect();
            let splits = ranges[1..].iter().map(|range| hex::text(&range.start)).collect();
            let versions = live.config.versions_max.unwrap_or(i32::MAX as u64);
            Ok(State {
                format: FORMAT,
                options,
                phase: Phase::Checked,
                files: Vec::new(),
                versions,
                splits,
                ranges,
            })
        }
    }
}

/// `files` is what `source` is.
fn plan_files(
    args: &AccumuloArgs,
    source: &Arc<Source>,
    files: &FileSource,
    mapping: &Arc<Mapping>,
    options: Vec<String>,
    runtime: &Runtime,
) -> Result<State, String> {
    let damages = Arc::new(Damages::default());
    let parts = if files.origin.is_none() { args.regions } else { 1 };
    let mut ranges = Vec::new();
    let mut splits: Vec<Vec<u8>> = files.tablets[1..].iter().map(|tablet| tablet.start.clone()).collect();
    for tablet in 0..files.tablets.len() {
        match files.ranges(tablet, parts) {
            Ok((found, rows)) => {
                ranges.extend(found);
                splits.extend(rows);
            }
            Err(error) => damages.note(error)?,
        }
    }
    let progress = Arc::new(Progress::new(Duration::from_secs(args.progress_period)));
    let checked = check::check(source, mapping, ranges, args.threads, &progress, &damages);
    let (mut ranges, findings) = runtime.block_on(checked)?;
    let damaged = damages.all();
    for (file, why) in &damaged {
        println!("{}: {why}", files.files[*file].shown());
    }
    if !damaged.is_empty() && !args.skip_damaged {
        return Err(format!(
            "{} of {} files cannot be read; nothing was written. --skip-damaged imports the tablets that need none of them",
            damaged.len(),
            files.files.len()
        ));
    }
    if !damaged.is_empty() {
        let is_skipped = |tablet: usize| damaged.keys().any(|file| files.needs(tablet, *file));
        let skipped = (0..files.tablets.len()).filter(|tablet| is_skipped(*tablet));
        for FileBounds { start, end } in skipped.map(|tablet| FileBounds::of(files, tablet)) {
            println!("skipped: the tablet with rows from '{start}' to '{end}'");
        }
        ranges.retain(|range| !is_skipped(range.tablet));
        if ranges.is_empty() {
            return Err("no tablet is left to import; nothing was written".to_string());
        }
    }
    options::print_findings(&findings);
    refuse(&findings)?;
    splits.sort();
    let versions = versions_of(files, &findings);
    let splits: Vec<String> = splits.iter().map(|row| hex::text(row)).collect();
    let state = State {
        format: FORMAT,
        options,
        phase: Phase::Checked,
        files: files_of(files),
        versions,
        splits,
        ranges,
    };
    let total = state.total();
    println!(
        "to import: {} rows, {} cells, {} MB into {} regions, VERSIONS {versions}",
        total.rows,
        total.cells,
        total.bytes / 1_000_000,
        state.splits.len() + 1
    );
    Ok(state)
}

struct FileBounds {
    start: String,
    end: String,
}

impl FileBounds {
    fn of(files: &FileSource, tablet: usize) -> FileBounds {
        let text = |row: &[u8]| row.escape_ascii().to_string();
        FileBounds { start: text(&files.tablets[tablet].start), end: text(&files.tablets[tablet].end) }
    }
}

/// `VERSIONS` of the families: what Accumulo keeps, or else what there is.
fn versions_of(files: &FileSource, findings: &Findings) -> u64 {
    files.versions_max.unwrap_or(0).max(findings.versions).max(1)
}

fn refuse(findings: &Findings) -> Result<(), String> {
    if findings.refusals.is_empty() {
        return Ok(());
    }
    let lines = findings
        .refusals
        .iter()
        .map(|(refusal, (count, example))| format!("{count} entries, such as {example}, {}", refusal.text()));
    Err(format!("nothing was written:\n  {}", lines.collect::<Vec<_>>().join("\n  ")))
}
