//! `halcyon migrate`: tables move from one running cluster to another while clients use them.
//!
//! ```text
//! prepare.rs   checks both sides (plan.rs, receivers.rs, clocks.rs); tables at the target; REPLICATION_SCOPE 1; a disabled peer at the source
//! copy.rs      all cells of all ranges, versions and delete markers too; edits wait at the source meanwhile
//! lib.rs       the peer is enabled: the target follows (marks.rs says when it has all)
//! compare.rs   every row of both sides (digest.rs); rows that differ again and again are told apart and repaired (rows.rs)
//! cut_over.rs  all is looked at again (checks.rs); rows that changed are searched for (search.rs), writes stop, the last edits
//!              arrive, the last rows are compared, the other side takes writes; both directions
//! after.rs     the old side follows; rows that changed around the cut over
//! ending.rs    peers and marks go, settings are put back
//! ```
//!
//! Everything goes through the calls of HBase's clients, so each side may be HBase or Halcyon. What was done is in a file
//! (`state.rs`), and every step may be made again: a run that was killed resumes.
//!
//! What must hold: no edit is sent to the target before all rows are copied, and what the migration writes at the target
//! carries the source's cluster id, so that the peer of the way back does not send it. Nothing is deleted that the user has not
//! allowed, no peer of either side gets a table that its cluster lacks, and writes are stopped no longer than `--pause-max`.
//!
//! When you change a step, also touch `docs/MIGRATE.md` and `testing/compat/migrate.sh`, which kills it there.

mod after;
mod args;
mod checks;
mod clocks;
mod compare;
mod copy;
mod cut_over;
mod digest;
mod ending;
mod limit;
mod marks;
mod plan;
mod prepare;
mod progress;
mod receivers;
mod rows;
mod search;
mod side;
mod state;

use std::sync::Arc;
use std::time::Duration;

use halcyon_env::Env;
use halcyon_schema::TableName;
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::OnceCell;
use tokio::time::Instant;

pub use args::{Address, MigrateArgs};

use crate::plan::Drops;
use crate::rows::{Differing, TimesToLive};
use crate::side::{PEER, Side};
use crate::state::{OldSide, Phase, RowOf, State, StateFile};

/// Where a migration goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// From the source to the target.
    Forth,
    /// From the target to the source.
    Back,
}

impl Way {
    fn opposite(self) -> Way {
        match self {
            Way::Forth => Way::Back,
            Way::Back => Way::Forth,
        }
    }
}

/// A migration under way.
///
/// # Thread safety
/// Shared by the tasks of a step. The state's lock is held for changes in memory, never over a call.
struct Migration {
    args: MigrateArgs,
    env: Env,
    source: Side,
    target: Side,
    file: StateFile,
    state: Mutex<State>,
    /// Of each table, as this run has found them.
    times_to_live: OnceCell<Vec<TimesToLive>>,
}

/// Runs a step, or all up to the cut over. The error is a sentence for the user.
pub fn migrate(args: MigrateArgs) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let ended = runtime.block_on(run(args, Env::real()));
    runtime.shutdown_background();
    ended
}

async fn run(args: MigrateArgs, env: Env) -> Result<(), String> {
    let file = StateFile::open(&env, &args.state)?;
    let known = file.load()?;
    if args.status {
        return status(known.as_ref(), &file);
    }
    let known = known.filter(|state| state.phase != Phase::Ended || args.from.is_none());
    if known.is_none() && (args.cut_over || args.back || args.verify || args.finish || args.abort) {
        return Err(format!("there is no migration in {}: name its file by --state", file.path().display()));
    }
    let (from, to) = addresses(&args, known.as_ref())?;
    let source = Side::connect("source", from, args.threads).await?;
    let target = Side::connect("target", to, args.threads).await?;
    let state = match known {
        Some(state) => {
            println!("resumed from {}: {}", file.path().display(), state.phase.text());
            state
        }
        None => {
            let state = prepare::plan(&args, &env, &source, &target).await?;
            file.save(&state)?;
            state
        }
    };
    let (state, times_to_live) = (Mutex::new(state), OnceCell::new());
    let migration = Arc::new(Migration { args, env, source, target, file, state, times_to_live });
    let mut stop = StopSignals::watch()?;
    tokio::select! {
        done = steps(&migration) => done,
        name = stop.next() => {
            let leaving = interrupted(&migration, name);
            unless_again(leaving, stop.next(), |again| left_as_it_is(&migration, again)).await
        }
    }
}

/// Of the options, or of the run before.
fn addresses(args: &MigrateArgs, known: Option<&State>) -> Result<(Address, Address), String> {
    let Some(state) = known else {
        let from =
            args.from.clone().ok_or("--from hbase://HOST:PORT,.../ZNODE names the cluster to move from")?;
        let to = match &args.to {
            Some(to) => to.clone(),
            None => Address::parse("hbase://127.0.0.1:2181/hbase")?,
        };
        return Ok((from, to));
    };
    for (given, kept, option) in [(&args.from, &state.from, "--from"), (&args.to, &state.to, "--to")] {
        if given.as_ref().is_some_and(|given| given.to_string() != *kept) {
            return Err(format!("the migration in {} has {option} {kept}", args.state.display()));
        }
    }
    if !args.tables.is_empty() {
        let mut given: Vec<String> =
            plan::table_names(&args.tables)?.iter().map(ToString::to_string).collect();
        let mut kept: Vec<String> = state.tables.iter().map(|table| table.name.clone()).collect();
        given.sort();
        kept.sort();
        if given != kept {
            return Err(format!("the migration in {} has --tables {}", args.state.display(), kept.join(",")));
        }
    }
    check_surplus(args, state)?;
    Ok((Address::parse(&state.from)?, Address::parse(&state.to)?))
}

/// What only the target has is decided upon when a migration begins.
fn check_surplus(args: &MigrateArgs, state: &State) -> Result<(), String> {
    let path = args.state.display();
    match state.keeps_surplus {
        true if args.again || args.delete_surplus => Err(format!(
            "the migration in {path} was begun with --merge: cells that only the target has stay there"
        )),
        false if args.merge => Err(format!("the migration in {path} was begun without --merge")),
        _ => Ok(()),
    }
}

fn status(state: Option<&State>, file: &StateFile) -> Result<(), String> {
    let Some(state) = state else {
        return Err(format!("there is no migration in {}", file.path().display()));
    };
    println!("from {} to {}: {}", state.from, state.to, state.phase.text());
    for table in &state.tables {
        let done = table.ranges.iter().filter(|range| range.is_done).count();
        println!("{}: {done} of {} ranges are copied", table.name, table.ranges.len());
    }
    if let Some(unended) = state.unended() {
        println!("{unended}");
    }
    println!("{} cells, {} MB copied", state.copied_cells, state.copied_bytes / 1_000_000);
    Ok(())
}

/// What was asked for, from where the migration is.
async fn steps(migration: &Arc<Migration>) -> Result<(), String> {
    let args = &migration.args;
    if args.finish || args.abort {
        return ending::end(migration, args.abort).await;
    }
    match migration.phase() {
        Phase::Ending | Phase::Ended => {
            return Err("the migration has ended: name another --state".to_string());
        }
        Phase::CuttingOver if !args.cut_over && !args.cut_over_when_ready => {
            cut_over::undo(migration, Way::Forth).await?
        }
        Phase::GoingBack if !args.back => cut_over::undo(migration, Way::Back).await?,
        _ => {}
    }
    let cuts_over = args.cut_over || args.cut_over_when_ready;
    open_old_side(migration, cuts_over).await?;
    if args.back {
        return match migration.phase() {
            Phase::CutOver | Phase::GoingBack => cut_over::cut_over(migration, Way::Back).await,
            Phase::Back => cut_over::complete(migration, Way::Back).await,
            phase => Err(format!("there is no way back to take: {}", phase.text())),
        };
    }
    if migration.phase() == Phase::CutOver {
        return match args.verify {
            true => verify(migration, Way::Back).await,
            false if cuts_over => cut_over::complete(migration, Way::Forth).await,
            false => Err(format!("{}: --back, --verify or --finish", Phase::CutOver.text())),
        };
    }
    if args.cut_over && migration.phase() < Phase::Ready {
        return Err(format!(
            "not ready to cut over: {}. Run without --cut-over first",
            migration.phase().text()
        ));
    }
    if migration.phase() == Phase::Preparing {
        prepare::prepare(migration).await?;
    }
    if migration.phase() == Phase::Copying {
        copy::copy(migration).await?;
        migration.enter(Phase::Following)?;
    }
    if migration.phase() == Phase::Following {
        follow(migration).await?;
        compare::compare_all(migration, Way::Forth).await?;
        migration.enter(Phase::Ready)?;
        // What a cut over would refuse is an error of the comparison before it, too.
        if !args.again && !args.delete_surplus {
            refuse_surplus(migration, Way::Forth)?;
        }
    } else if args.verify {
        verify(migration, Way::Forth).await?;
    }
    if cuts_over {
        return cut_over::cut_over(migration, Way::Forth).await;
    }
    println!("{}: --cut-over when you are", migration.phase().text());
    Ok(())
}

/// The side that follows takes edits; someone may have closed it. Not after a cut over that was not done to its end: see
/// [`State::opens`].
async fn open_old_side(migration: &Migration, cuts_over: bool) -> Result<(), String> {
    let goes_back = migration.args.back;
    let is_back = migration.phase() == Phase::Back;
    let (ends, returns) = if is_back { (goes_back, cuts_over) } else { (cuts_over, goes_back) };
    let Some(opened) = migration.state.lock().opens(ends, returns)? else { return Ok(()) };
    migration.note_old_side(opened)?;
    let side = if is_back { &migration.target } else { &migration.source };
    side.set_read_only(&migration.tables(), false, false).await
}

/// Compares all rows. Fails if either side has more than the other one.
async fn verify(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    compare::compare_all(migration, way).await?;
    refuse_surplus(migration, way)
}

fn refuse_surplus(migration: &Migration, way: Way) -> Result<(), String> {
    let surplus = migration.state.lock().surplus.clone();
    if surplus.is_empty() || migration.keeps_surplus(way) {
        return Ok(());
    }
    Err(format!(
        "{}. They may be the only copy of something. A cut over refuses to delete them, unless --delete-surplus is given",
        compare::surplus_error(migration, way, &surplus)
    ))
}

/// Lets the edits go that have waited, and waits until the target has them.
async fn follow(migration: &Migration) -> Result<(), String> {
    let (source, target) = (&migration.source, &migration.target);
    match source.peer(PEER).await? {
        None => return Err(format!("the source has no peer {PEER} any more: --abort, and begin again")),
        Some(peer) if peer.is_enabled => {}
        Some(_) => {
            let enabled = source.admin.enable_peer(PEER).await;
            enabled.map_err(|error| source.failed(&format!("the peer {PEER}"), error))?;
        }
    }
    let began = Instant::now();
    let mark = marks::set(source).await?;
    let mut before = marks::waiting(source).await?;
    while marks::wait(target, &mark, migration.progress_period()).await?.is_none() {
        let now = marks::waiting(source).await?;
        println!(
            "follow: {} WALs wait, the oldest edit since {:.1} s, {} entries were sent in the last {:?}",
            now.wals,
            now.lag_ms as f64 / 1000.0,
            now.shipped.saturating_sub(before.shipped),
            migration.progress_period()
        );
        before = now;
    }
    println!("follow: the target has all edits up to {} ago", progress::duration(began.elapsed()));
    marks::of_dead_servers(source).await
}

/// Leaves the sides so that clients can work.
async fn interrupted(migration: &Migration, signal: &str) -> Result<(), String> {
    let saved = migration.save();
    let way = match migration.phase() {
        Phase::CuttingOver => Some(Way::Forth),
        Phase::GoingBack => Some(Way::Back),
        _ => None,
    };
    if let Some(way) = way {
        println!("{signal}: the cut over is undone; another signal ends this run at once");
        cut_over::undo(migration, way).await?;
    }
    saved?; // not before the tables are open: there may be no room for the file
    let path = migration.file.path().display();
    Err(format!(
        "stopped by {signal}: {}. Run again with --state {path} to resume, or with --abort to give up",
        migration.phase().text()
    ))
}

/// What a signal has begun, unless another one comes before it is done: tables may be waited for without an end.
async fn unless_again(
    leaving: impl Future<Output = Result<(), String>>,
    again: impl Future<Output = &'static str>,
    left: impl FnOnce(&str) -> String,
) -> Result<(), String> {
    tokio::select! {
        biased;
        done = leaving => done,
        signal = again => Err(left(signal)),
    }
}

fn left_as_it_is(migration: &Migration, signal: &str) -> String {
    let path = migration.file.path().display();
    format!(
        "stopped by {signal} before all was put back: {}. Run again with --state {path} --abort, which opens the tables and gives \
         up, or without --abort to resume",
        migration.phase().text()
    )
}

/// SIGTERM and SIGINT.
struct StopSignals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl StopSignals {
    fn watch() -> Result<StopSignals, String> {
        let watched = |kind| signal(kind).map_err(|error| format!("cannot watch signals: {error}"));
        Ok(StopSignals { term: watched(SignalKind::terminate())?, int: watched(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}

impl Migration {
    fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Notes that a phase has begun. After an error it has not.
    fn enter(&self, phase: Phase) -> Result<(), String> {
        self.file.enter(&self.state, phase)
    }

    fn save(&self) -> Result<(), String> {
        let state = self.state.lock().clone();
        self.file.save(&state)
    }

    fn note_old_side(&self, old_side: OldSide) -> Result<(), String> {
        let before = std::mem::replace(&mut self.state.lock().old_side, old_side);
        if before == old_side { Ok(()) } else { self.save() }
    }

    fn tables(&self) -> Vec<TableName> {
        self.state.lock().tables.iter().map(|table| table.table()).collect()
    }

    fn table(&self, at: usize) -> TableName {
        self.state.lock().tables[at].table()
    }

    /// What the user gives up.
    fn drops(&self) -> Drops {
        Drops { coprocessors: self.args.drop_coprocessors, mob: self.args.drop_mob }
    }

    /// Whether cells that only the side that follows has stay there.
    fn keeps_surplus(&self, way: Way) -> bool {
        way == Way::Forth && self.state.lock().keeps_surplus
    }

    /// Rows that differ in something that matters.
    fn unlike(&self, way: Way, mut rows: Vec<Differing>) -> Vec<Differing> {
        if self.keeps_surplus(way) {
            rows.retain(Differing::lacks);
        }
        rows
    }

    async fn times_to_live(&self) -> Result<&[TimesToLive], String> {
        let read = || async {
            let mut all = Vec::new();
            for table in self.tables() {
                let sides = [self.source.described(&table).await?, self.target.described(&table).await?];
                all.push(TimesToLive::of(&sides));
            }
            Ok(all)
        };
        self.times_to_live.get_or_try_init(read).await.map(Vec::as_slice)
    }

    /// Tables whose edits our peers get.
    fn replicated(&self) -> Vec<TableName> {
        let mut tables = self.tables();
        tables.push(marks::table());
        tables
    }

    /// The side that takes writes, and the one that follows.
    fn pair(&self, way: Way) -> (&Side, &Side) {
        match way {
            Way::Forth => (&self.source, &self.target),
            Way::Back => (&self.target, &self.source),
        }
    }

    fn progress_period(&self) -> Duration {
        Duration::from_secs(self.args.progress_period)
    }

    /// A row for a person.
    fn show(&self, place: &RowOf) -> String {
        format!("{} '{}'", self.table(place.table), place.row.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    /// Signals were not looked at any more while tables were opened again, which waits without limit. Only SIGKILL ended it.
    #[tokio::test]
    async fn a_second_signal_ends_what_the_first_one_began() {
        let left = |signal: &str| format!("left by {signal}");
        let ended = unless_again(pending(), ready("SIGINT"), left).await;
        assert_eq!(ended.unwrap_err(), "left by SIGINT");
        let done = unless_again(ready(Err("stopped".to_string())), pending(), left).await;
        assert_eq!(done.unwrap_err(), "stopped");
    }
}
