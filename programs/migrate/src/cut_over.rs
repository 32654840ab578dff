//! The moment at which writes move from one side to the other, in either direction.
//!
//! Before it everything is made as short as can be: the peer of the way back runs, the last rows that changed are compared, and
//! memstores are flushed, so that regions close fast. Then the clock runs: the tables become READONLY, a mark has to arrive,
//! rows that were still changing are compared for the last time, and the new side is named. If that takes too long, or rows
//! differ that cannot be repaired, the tables take writes again and nothing has happened.
//!
//! Afterwards the tables of the old side are opened again, for the edits that now come from the other direction. A client that
//! was forgotten can write there; its edits reach the new side as before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use halcyon_client::Peer;
use tokio::time::Instant;

use crate::compare::{Repair, changed_since, look, repair, settle};
use crate::progress::duration;
use crate::side::{PEER, PEER_BACK};
use crate::state::{Phase, RowOf};
use crate::{Migration, Way, marks};

/// Rows that may have changed since they were compared, for them to be looked at one by one.
const CHANGED_MAX: usize = 500_000;
const ROUNDS_MAX: usize = 4;
/// Rounds end when one takes no longer: the next one, with writes stopped, takes less.
const ROUND_SHORT: Duration = Duration::from_millis(700);

/// Rows that are left for the pause, and the time from which on rows have to be looked for then.
struct Last {
    unsettled: BTreeSet<RowOf>,
    since_ms: i64,
    /// How long the last search for changed rows took.
    search: Duration,
}

/// Cuts over. After an error the old side takes writes, or the error says that it may not.
pub(crate) async fn cut_over(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    let (from, to) = migration.pair(way);
    let tables = migration.tables();
    let began_before = matches!(migration.phase(), Phase::CuttingOver | Phase::GoingBack);
    make_way_back(migration).await?;
    marks::of_dead_servers(from).await?;
    for (one, other) in [(from, to), (to, from)] {
        let mark = marks::drain(one, other).await?;
        println!(
            "{} to {}: a mark arrives after {} ms",
            one.name,
            other.name,
            mark.began.elapsed().as_millis()
        );
    }
    // First, so that changed rows are in few small files, and regions close fast.
    for table in &tables {
        from.admin.flush(table).await.map_err(|error| from.failed(&format!("flush of {table}"), error))?;
    }
    let last = approach(migration, way).await?;
    migration.enter(if way == Way::Forth { Phase::CuttingOver } else { Phase::GoingBack })?;
    println!("{}: writes stop; if this run dies now, run the same command again, or --abort", from.name);
    let began = Instant::now();
    match pause(migration, way, &last, began).await {
        Ok(compared) => {
            let took = began.elapsed();
            migration.enter(if way == Way::Forth { Phase::CutOver } else { Phase::Back })?;
            println!(
                "cut over: writes were stopped for {} ms{}; {compared} rows were compared meanwhile, differences 0",
                took.as_millis(),
                if began_before { ", and before by a run that did not end" } else { "" }
            );
        }
        Err(error) => {
            let undone = undo(migration, way).await;
            undone.map_err(|more| {
                format!("{error}. The {} may refuse writes, because {more}: --abort", from.name)
            })?;
            return Err(format!("{error}. The {} takes writes again; nothing was moved", from.name));
        }
    }
    complete(migration, way).await
}

/// What follows once the other side takes the writes. May be called again.
pub(crate) async fn complete(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    tell_clients(migration, way)?;
    println!("clients connect to {} from now on", migration.pair(way).1.address);
    after(migration, way).await
}

/// Ends a cut over that a run has left, as if it had not begun.
pub(crate) async fn undo(migration: &Migration, way: Way) -> Result<(), String> {
    let (from, _) = migration.pair(way);
    from.reopen_for_writes(&migration.tables()).await?;
    migration.enter(if way == Way::Forth { Phase::Ready } else { Phase::CutOver })
}

/// The peer of the way back. Before the target takes writes, so that it misses none.
async fn make_way_back(migration: &Migration) -> Result<(), String> {
    let key = migration.state.lock().from_cluster_key.clone();
    for (side, id, key) in [(&migration.target, PEER_BACK, Some(key)), (&migration.source, PEER, None)] {
        match (side.peer(id).await?, key) {
            (Some(peer), _) if peer.is_enabled => {}
            (Some(_), _) => {
                side.admin
                    .enable_peer(id)
                    .await
                    .map_err(|error| side.failed(&format!("the peer {id}"), error))?;
            }
            (None, Some(key)) => {
                let peer = Peer::of_tables(id, &key, migration.replicated());
                let added = side.admin.add_peer(&peer).await;
                added.map_err(|error| side.failed(&format!("the peer {id} ({key})"), error))?;
                println!("{}: the peer {id} is added: the way back is open", side.name);
            }
            (None, None) => {
                return Err(format!("the {} has no peer {id} any more: --abort, and begin again", side.name));
            }
        }
    }
    Ok(())
}

/// Compares rows that changed since the last look, until that is done fast.
async fn approach(migration: &Arc<Migration>, way: Way) -> Result<Last, String> {
    let (from, to) = migration.pair(way);
    let (mut since_ms, mut unsettled): (i64, BTreeSet<RowOf>) = {
        let state = migration.state.lock();
        (state.compared_ms, state.unsettled.iter().cloned().collect())
    };
    let mut search = Duration::MAX;
    for _ in 0..ROUNDS_MAX {
        let mark = marks::drain(from, to).await?;
        let began = Instant::now();
        let changed = changed_since(migration, way, since_ms, CHANGED_MAX).await?;
        search = began.elapsed();
        let Some(changed) = changed else {
            println!(
                "more than {CHANGED_MAX} rows changed since the last comparison; all rows are compared again"
            );
            crate::compare::compare_all(migration, way).await?;
            let state = migration.state.lock();
            (since_ms, unsettled) = (state.compared_ms, state.unsettled.iter().cloned().collect());
            continue;
        };
        let count = changed.len();
        let looked: BTreeSet<RowOf> = changed.union(&unsettled).cloned().collect();
        let differing = look(migration, way, &looked).await?;
        unsettled = differing.into_iter().map(|one| one.place).collect();
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
    Ok(Last { unsettled, since_ms, search })
}

/// From the last write at the old side to the moment at which the new one may be written to. Returns the rows compared.
async fn pause(migration: &Arc<Migration>, way: Way, last: &Last, began: Instant) -> Result<usize, String> {
    let (from, to) = migration.pair(way);
    let limit = migration.args.pause_limit();
    let left = || limit.saturating_sub(began.elapsed());
    let late =
        |what: &str| format!("{what} after {} ms, --pause-max is {limit:?}", began.elapsed().as_millis());
    from.set_read_only(&migration.tables(), true).await?;
    let read_only_ms = began.elapsed().as_millis();
    let mark = marks::set(from).await?;
    if left().is_zero() {
        return Err(late("the tables were closed for writes only"));
    }
    if marks::wait(to, &mark, left()).await?.is_none() {
        let closed =
            format!("the tables were closed after {read_only_ms} ms, and the last edits had not arrived");
        return Err(late(&closed));
    }
    let drained_ms = began.elapsed().as_millis();
    let mut places = last.unsettled.clone();
    // What cannot be found in time is compared after the pause.
    if last.search < left() / 3 {
        places.extend(changed_since(migration, way, last.since_ms, CHANGED_MAX).await?.unwrap_or_default());
    }
    let compared = tokio::time::timeout(left(), last_look(migration, way, &places)).await;
    compared.map_err(|_| late("the last rows were not compared"))??;
    println!(
        "pause: {read_only_ms} ms until the tables were closed, {} ms for the last edits, {} ms for the comparison",
        drained_ms - read_only_ms,
        began.elapsed().as_millis() - drained_ms
    );
    Ok(places.len())
}

/// Nothing changes now, so what differs is repaired.
async fn last_look(migration: &Migration, way: Way, places: &BTreeSet<RowOf>) -> Result<(), String> {
    let differing = look(migration, way, places).await?;
    if differing.is_empty() {
        return Ok(());
    }
    println!("{} rows differ and are repaired", differing.len());
    repair(migration, way, &differing, Repair::All).await?;
    let again = differing.iter().map(|one| one.place.clone()).collect();
    match look(migration, way, &again).await?.first() {
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

/// What is left to do once the other side takes the writes.
async fn after(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    let (from, to) = migration.pair(way);
    from.set_read_only(&migration.tables(), false).await?;
    println!("{}: takes edits of the {} from now on; keep clients away from it", from.name, to.name);
    let began = Instant::now();
    marks::drain(to, from).await?;
    marks::drain(from, to).await?; // writes of clients that were forgotten
    let back = if way == Way::Forth { Way::Back } else { Way::Forth };
    let since_ms = migration.state.lock().compared_ms.saturating_sub(CLOCKS_APART_MS);
    let changed = changed_since(migration, back, since_ms, CHANGED_MAX).await?;
    let Some(changed) = changed else {
        println!("more than {CHANGED_MAX} rows changed meanwhile: --verify compares all rows");
        return Ok(());
    };
    let count = changed.len();
    let differing = look(migration, back, &changed).await?.into_iter().map(|one| one.place).collect();
    let (unsettled, repaired) = settle(migration, back, differing).await?;
    println!(
        "after the cut over: {count} rows that changed around it were compared in {}, differences 0, {repaired} repaired, \
         {} change all the time",
        duration(began.elapsed()),
        unsettled.len()
    );
    let mut state = migration.state.lock();
    (state.compared_ms, state.unsettled) = (since_ms, unsettled.into_iter().collect());
    drop(state);
    migration.save()
}

/// Clocks of the two sides may differ by this much.
const CLOCKS_APART_MS: i64 = 10_000;
