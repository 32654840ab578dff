//! The moment at which writes move from one side to the other, in either direction.
//!
//! Before it everything is looked at again (`checks.rs`), and made as short as can be: the peer of the way back runs, the last
//! rows that changed are compared, and memstores are flushed, so that regions close fast. Then the clock runs: the tables become
//! READONLY, a mark has to arrive, rows that were still changing are compared for the last time, the clocks of the new side have
//! to pass the last write, and the new side is named. If that takes too long, or rows differ that may not be repaired, the tables
//! take writes again and nothing has happened.
//!
//! Afterwards the tables of the old side are opened again, for the edits that now come from the other direction (`after.rs`). A
//! client that was forgotten can write there; its edits reach the new side as before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use halcyon_client::{Peer, ServerName};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::compare::{Settled, compare_all, settle, surplus_error};
use crate::rows::{Differing, Repair, look, repair};
use crate::search::Places;
use crate::side::{PEER, PEER_BACK, Side};
use crate::state::{Phase, RowOf};
use crate::{Migration, Way, after, checks, clocks, marks};

/// Rows that may have changed since they were compared, for them to be looked at one by one.
pub(crate) const CHANGED_MAX: usize = 500_000;
const ROUNDS_MAX: usize = 4;
/// Deletes may uncover older versions, which are surplus then.
const DELETE_ROUNDS_MAX: usize = 10;
/// Rounds end when one takes no longer: the next one, with writes stopped, takes less.
const ROUND_SHORT: Duration = Duration::from_millis(700);

/// What is left for the pause.
struct Last {
    /// Rows that still differed.
    unsettled: BTreeSet<RowOf>,
    /// The time from which on changed rows have to be looked for.
    since_ms: i64,
    /// How long the last search for them took.
    search: Duration,
    places: Places,
    /// The servers of the old side before the cut over began.
    servers: BTreeSet<ServerName>,
    /// Whether a run before this one may have begun to close the tables.
    began_before: bool,
}

/// What a pause is doing, for an error that says what took too long.
struct Stage(Mutex<String>);

impl Stage {
    fn set(&self, text: impl Into<String>) {
        *self.0.lock() = text.into();
    }
}

/// What a pause has come to.
struct Paused {
    /// Rows that were compared.
    compared: usize,
    /// See [`State::unsearched_ms`](crate::state::State::unsearched_ms).
    unsearched_ms: Option<i64>,
}

/// Cuts over. After an error the old side takes writes, or the error says that it may not.
pub(crate) async fn cut_over(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    let began_before = matches!(migration.phase(), Phase::CuttingOver | Phase::GoingBack);
    let prepared = before_pause(migration, way, began_before).await;
    let last = match prepared {
        Err(error) if began_before => return Err(undone(migration, way, &error, "of the last run").await),
        prepared => prepared?,
    };
    stop_writes(migration, way, &last).await?;
    complete(migration, way).await
}

/// All that is done while clients write. If a run before has begun to close the tables, they may be closed meanwhile.
async fn before_pause(migration: &Arc<Migration>, way: Way, began_before: bool) -> Result<Last, String> {
    let (from, to) = migration.pair(way);
    checks::check(migration).await?;
    let servers = marks::waiting(from).await?.servers;
    make_way_back(migration).await?;
    marks::of_dead_servers(from).await?;
    for (one, other) in [(from, to), (to, from)] {
        let mark = marks::drain(one, other).await?;
        let took = mark.began.elapsed().as_millis();
        println!("{} to {}: two marks arrive after {took} ms", one.name, other.name);
    }
    if let Some(reason) = clocks::check_written(&migration.env, from, to).await? {
        return Err(format!("no cut over, and nothing was changed: {reason}"));
    }
    // First, so that changed rows are in few small files, and regions close fast.
    for table in migration.tables() {
        from.admin.flush(&table).await.map_err(|error| from.failed(&format!("flush of {table}"), error))?;
    }
    walk_again(migration, way).await?;
    settle_known(migration, way).await?;
    approach(migration, way, servers, began_before).await
}

/// The pause, and the note that it was. After an error it was undone, or the error says that it may not be.
async fn stop_writes(migration: &Arc<Migration>, way: Way, last: &Last) -> Result<(), String> {
    let from = migration.pair(way).0;
    migration.enter(if way == Way::Forth { Phase::CuttingOver } else { Phase::GoingBack })?;
    println!("{}: writes stop; if this run dies now, run the same command again, or --abort", from.name);
    let began = Instant::now();
    let paused = timed_pause(migration, way, last, began).await;
    let took = began.elapsed();
    // What cannot be noted has not happened: the next run would go on from before.
    let noted = paused.and_then(|paused| {
        let next = if way == Way::Forth { Phase::CutOver } else { Phase::Back };
        migration.file.enter_cut_over(&migration.state, next, paused.unsearched_ms)?;
        Ok(paused.compared)
    });
    match noted {
        Ok(compared) => {
            println!(
                "cut over: writes were stopped for {} ms{}; {compared} rows were compared meanwhile, differences 0",
                took.as_millis(),
                if last.began_before { ", and before by a run that did not end" } else { "" }
            );
            Ok(())
        }
        Err(error) => Err(undone(migration, way, &error, "").await),
    }
}

/// Opens the tables after an error, and tells of both.
async fn undone(migration: &Migration, way: Way, error: &str, whose: &str) -> String {
    let from = migration.pair(way).0;
    let (opened, noted) =
        (async || from.reopen_for_writes(&migration.tables()).await, || enter_undone(migration));
    undone_by(error, (from.name, whose), opened, noted).await
}

/// [`undone`] with what opens the tables, and what notes it.
async fn undone_by(
    error: &str,
    (name, whose): (&str, &str),
    open: impl AsyncFnOnce() -> Result<(), String>,
    note: impl FnOnce() -> Result<(), String>,
) -> String {
    if let Err(more) = open().await {
        return format!("{error}. The {name} may refuse writes, because {more}: --abort");
    }
    if let Err(more) = note() {
        return format!("{error}. The {name} takes writes again, which could not be noted ({more}): --abort");
    }
    match whose {
        "" => format!("{error}. The {name} takes writes again; nothing was moved"),
        whose => format!("{error}. The cut over {whose} is undone: the {name} takes writes again"),
    }
}

/// What follows once the other side takes the writes. May be called again.
pub(crate) async fn complete(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    tell_clients(migration, way)?;
    println!("clients connect to {} from now on", migration.pair(way).1.address);
    after::after(migration, way).await.map_err(|error| format!("the cut over is done, but {error}"))
}

/// Ends a cut over that a run has left, as if it had not begun.
pub(crate) async fn undo(migration: &Migration, way: Way) -> Result<(), String> {
    let (from, _) = migration.pair(way);
    from.reopen_for_writes(&migration.tables()).await?;
    enter_undone(migration)
}

fn enter_undone(migration: &Migration) -> Result<(), String> {
    let before = migration.state.lock().before_cut_over();
    migration.enter(before)
}

/// The peer of the way back. Before the target takes writes, so that it misses none. That peers are there which have to be is
/// known from [`checks::check`].
async fn make_way_back(migration: &Migration) -> Result<(), String> {
    let key = migration.state.lock().from_cluster_key.clone();
    for (side, id) in [(&migration.target, PEER_BACK), (&migration.source, PEER)] {
        match side.peer(id).await? {
            Some(peer) if peer.is_enabled => {}
            Some(_) => {
                let enabled = side.admin.enable_peer(id).await;
                enabled.map_err(|error| side.failed(&format!("the peer {id}"), error))?;
            }
            None if id == PEER_BACK => {
                let peer = Peer::of_tables(id, &key, migration.replicated());
                let added = side.admin.add_peer(&peer).await;
                added.map_err(|error| side.failed(&format!("the peer {id} ({key})"), error))?;
                println!("{}: the peer {id} is added: the way back is open", side.name);
            }
            None => {
                return Err(format!("the {} has no peer {id} any more: --abort, and begin again", side.name));
            }
        }
    }
    Ok(())
}

/// Compares all rows once more, unless the last comparison still counts.
async fn walk_again(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    let reasons = checks::reasons_to_walk(migration, way).await?;
    if reasons.is_empty() {
        return Ok(());
    }
    if migration.args.skip_verify {
        println!("not all rows are compared again (--skip-verify), although {}", reasons.join("; "));
        return Ok(());
    }
    println!("all rows are compared again (--skip-verify leaves that out): {}", reasons.join("; "));
    compare_all(migration, way).await
}

/// Rows that differed when they were compared last. Refuses if the cut over would have to delete something that it was not told to.
async fn settle_known(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    let known: BTreeSet<RowOf> = {
        let state = migration.state.lock();
        state.unsettled.iter().chain(&state.surplus).cloned().collect()
    };
    let mut settled = settle(migration, way, known).await?;
    keep(migration, &settled)?;
    if settled.surplus.is_empty() || migration.keeps_surplus(way) {
        return Ok(());
    }
    if !migration.args.delete_surplus {
        let rows: Vec<RowOf> = settled.surplus.into_iter().collect();
        return Err(format!(
            "{}. A cut over would delete these cells, and they may be the only copy of something: --delete-surplus lets it. \
             Nothing was changed",
            surplus_error(migration, way, &rows)
        ));
    }
    let to = migration.pair(way).1;
    for _ in 0..DELETE_ROUNDS_MAX {
        let mark = marks::drain(migration.pair(way).0, to).await?;
        let differing = look(migration, way, &settled.surplus, mark.now_ms()).await?;
        let deleted = repair(migration, way, &differing, Repair::All).await?;
        println!("{}: {deleted} cells of {} rows are deleted (--delete-surplus)", to.name, differing.len());
        let rows = settled.surplus.union(&settled.changing).cloned().collect();
        settled = settle(migration, way, rows).await?;
        keep(migration, &settled)?;
        if settled.surplus.is_empty() {
            return Ok(());
        }
    }
    let rows: Vec<RowOf> = settled.surplus.into_iter().collect();
    Err(format!("{} after {DELETE_ROUNDS_MAX} rounds of deletes", surplus_error(migration, way, &rows)))
}

/// Remembers what is left.
fn keep(migration: &Migration, settled: &Settled) -> Result<(), String> {
    let mut state = migration.state.lock();
    state.unsettled = settled.changing.iter().cloned().collect();
    state.surplus = settled.surplus.iter().cloned().collect();
    drop(state);
    migration.save()
}

/// Compares rows that changed since the last look, until that is done fast.
async fn approach(
    migration: &Arc<Migration>,
    way: Way,
    servers: BTreeSet<ServerName>,
    began_before: bool,
) -> Result<Last, String> {
    let (from, to) = migration.pair(way);
    let places = Places::find(migration, from).await?;
    let known = |migration: &Migration| -> (i64, BTreeSet<RowOf>) {
        let state = migration.state.lock();
        (state.compared_ms, state.unsettled.iter().cloned().collect())
    };
    let (mut since_ms, mut unsettled) = known(migration);
    let mut search = Duration::MAX;
    for _ in 0..ROUNDS_MAX {
        let mark = marks::drain(from, to).await?;
        let began = Instant::now();
        let changed = places.changed_since(since_ms, CHANGED_MAX).await?;
        search = began.elapsed();
        let Some(changed) = changed else {
            println!(
                "more than {CHANGED_MAX} rows changed since the last comparison; all rows are compared again"
            );
            compare_all(migration, way).await?;
            settle_known(migration, way).await?;
            (since_ms, unsettled) = known(migration);
            continue;
        };
        let count = changed.len();
        let looked: BTreeSet<RowOf> = changed.union(&unsettled).cloned().collect();
        let differing = look(migration, way, &looked, mark.now_ms()).await?;
        unsettled = migration.unlike(way, differing).into_iter().map(|one| one.place).collect();
        println!(
            "{count} rows changed since the last look ({} ms to find them, {} ms with the comparison), {} still differ",
            search.as_millis(),
            began.elapsed().as_millis(),
            unsettled.len()
        );
        since_ms = mark.written_ms;
        {
            let mut state = migration.state.lock();
            (state.compared_ms, state.unsettled) = (since_ms, unsettled.iter().cloned().collect());
        }
        migration.save()?;
        if began.elapsed() <= ROUND_SHORT {
            break;
        }
    }
    Ok(Last { unsettled, since_ms, search, places, servers, began_before })
}

/// [`pause`] within `--pause-max`. What it waits for when the time is over is given up, so that the tables can be opened at once.
async fn timed_pause(
    migration: &Arc<Migration>,
    way: Way,
    last: &Last,
    began: Instant,
) -> Result<Paused, String> {
    let limit = migration.args.pause_limit();
    let stage = Stage(Mutex::default());
    match tokio::time::timeout(limit, pause(migration, way, last, began, &stage)).await {
        Ok(done) => done,
        Err(_) => {
            let late = began.elapsed().as_millis();
            Err(format!("{} after {late} ms, --pause-max is {limit:?}", stage.0.lock()))
        }
    }
}

/// From the last write at the old side to the moment at which the new one may be written to.
async fn pause(
    migration: &Arc<Migration>,
    way: Way,
    last: &Last,
    began: Instant,
    stage: &Stage,
) -> Result<Paused, String> {
    let (from, to) = migration.pair(way);
    let left = || migration.args.pause_limit().saturating_sub(began.elapsed());
    stage.set("the tables were not closed for writes");
    from.set_read_only(&migration.tables(), true, last.began_before).await?;
    let read_only_ms = began.elapsed().as_millis();
    stage.set(format!("the tables were closed after {read_only_ms} ms, and no mark was written"));
    let mark = marks::set(from).await?;
    stage.set(format!("the tables were closed after {read_only_ms} ms, and the last edits had not arrived"));
    while marks::wait(to, &mark, left()).await?.is_none() {}
    let search_max = migration.args.pause_search_max.map_or(left() / 3, Duration::from_millis);
    let is_searched = last.search < search_max.min(left() / 3);
    if !is_searched {
        // No row is looked for, so the rest of the mark's own request has to be there. See `marks.rs`.
        let second = marks::set(from).await?;
        while marks::wait(to, &second, left()).await?.is_none() {}
    }
    let drained_ms = began.elapsed().as_millis();
    none_died(from, &last.servers).await?;
    stage.set("the rows that changed last were not found");
    let mut places = last.unsettled.clone();
    // What cannot be found in time is compared after the pause.
    if is_searched {
        let changed = last.places.changed_since(last.since_ms, CHANGED_MAX).await?;
        places.extend(changed.ok_or_else(|| format!("more than {CHANGED_MAX} rows changed last"))?);
    }
    stage.set("the last rows were not compared");
    last_look(migration, way, &places, mark.now_ms()).await?;
    stage.set(format!("the clocks of the {} had not passed the last write", to.name));
    clocks::pass(to, mark.highest_ms, left()).await?;
    println!(
        "pause: {read_only_ms} ms until the tables were closed, {} ms for the last edits, {} ms for the comparison",
        drained_ms - read_only_ms,
        began.elapsed().as_millis() - drained_ms
    );
    Ok(Paused { compared: places.len(), unsearched_ms: (!is_searched).then_some(mark.highest_ms) })
}

/// A mark says nothing of the edits that a server has left which is gone: they come from a queue that another server claims.
async fn none_died(from: &Side, before: &BTreeSet<ServerName>) -> Result<(), String> {
    let now = marks::waiting(from).await?;
    let gone: Vec<String> = before.difference(&now.servers).map(ToString::to_string).collect();
    if !gone.is_empty() {
        return Err(format!(
            "{} of the {} is gone since the cut over began, and edits of it may be on their way",
            gone.join(", "),
            from.name
        ));
    }
    match now.recovered {
        0 => Ok(()),
        queues => Err(format!(
            "edits of servers of the {} that died are on their way from {queues} queues",
            from.name
        )),
    }
}

/// Nothing changes now, so what differs is repaired. Nothing is deleted that the user has not allowed.
async fn last_look(
    migration: &Migration,
    way: Way,
    places: &BTreeSet<RowOf>,
    now_ms: i64,
) -> Result<(), String> {
    let differing = migration.unlike(way, look(migration, way, places, now_ms).await?);
    if differing.is_empty() {
        return Ok(());
    }
    let deletes = migration.args.delete_surplus && !migration.keeps_surplus(way);
    let is_surplus = |one: &&Differing| !one.surplus().is_empty();
    if !deletes && !migration.keeps_surplus(way) {
        let rows: Vec<RowOf> = differing.iter().filter(is_surplus).map(|one| one.place.clone()).collect();
        if !rows.is_empty() {
            return Err(format!(
                "{}; --delete-surplus deletes these cells",
                surplus_error(migration, way, &rows)
            ));
        }
    }
    println!("{} rows differ and are repaired", differing.len());
    let kind = if deletes { Repair::All } else { Repair::Missing };
    let deleted = repair(migration, way, &differing, kind).await?;
    if deleted > 0 {
        println!("{}: {deleted} cells are deleted (--delete-surplus)", migration.pair(way).1.name);
    }
    let again = differing.into_iter().map(|one| one.place).collect();
    match migration.unlike(way, look(migration, way, &again, now_ms).await?).first() {
        None => Ok(()),
        Some(one) => Err(format!("row {} differs and could not be repaired", migration.show(&one.place))),
    }
}

/// The file that scripts wait for.
fn tell_clients(migration: &Migration, way: Way) -> Result<(), String> {
    let Some(path) = &migration.args.ready_file else { return Ok(()) };
    let text = format!("{}\n", migration.pair(way).1.address);
    let written = migration.env.local.replace(path, text.as_bytes());
    written.map_err(|error| format!("{}: {error}; the cut over is done all the same", path.display()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A run was killed in the pause. The next one failed at a check, said that nothing was changed, and left the source closed.
    #[tokio::test]
    async fn a_check_that_fails_after_a_killed_run_opens_the_tables() {
        let (opened, noted) = (Cell::new(false), Cell::new(false));
        let open = async || {
            opened.set(true);
            Ok(())
        };
        let note = || {
            noted.set(opened.get());
            Ok(())
        };
        let told = undone_by("a peer lacks t", ("source", "of the last run"), open, note).await;
        assert!(opened.get() && noted.get(), "in this order");
        assert_eq!(
            told,
            "a peer lacks t. The cut over of the last run is undone: the source takes writes again"
        );
        let fails = async || Err("no master".to_string());
        let told = undone_by("x", ("source", ""), fails, || unreachable!("it is closed")).await;
        assert_eq!(told, "x. The source may refuse writes, because no master: --abort");
    }
}
