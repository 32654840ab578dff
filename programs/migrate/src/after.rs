//! What is left to do once the other side takes the writes: the old side follows, and rows that changed around the cut over are
//! compared.
//!
//! A row that did not arrive in time is at the old side only, and nothing there changes any more. So that side is searched first,
//! unless the pause has done it, and what the new side never got is written there. Then rows that the new side has got since are
//! compared with the old one.

use std::sync::Arc;

use tokio::time::Instant;

use crate::compare::{TOLD_MAX, compare_all, settle, summary, surplus_error};
use crate::cut_over::CHANGED_MAX;
use crate::progress::duration;
use crate::rows::{Differing, Repair, look, never_arrived, repair};
use crate::search::Places;
use crate::state::{OldSide, RowOf};
use crate::{Migration, Way, clocks, marks};

/// See the head of the file. May be called again. The error is the end of a sentence: what is not as it should be.
pub(crate) async fn after(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    let (from, to) = migration.pair(way);
    let unsearched_ms = migration.state.lock().unsearched_ms;
    let late = match unsearched_ms {
        Some(paused_ms) => late_rows(migration, way, paused_ms).await.and_then(|searched| match searched {
            true => Ok(()),
            false => Err(too_many(from.name)),
        }),
        None => Ok(()),
    };
    // Whatever was found: edits wait for it.
    from.set_read_only(&migration.tables(), false, false).await?;
    println!("{}: takes edits of the {} from now on; keep clients away from it", from.name, to.name);
    migration.note_old_side(OldSide::Opened)?;
    late?;
    note_searched(migration)?;
    let began = Instant::now();
    marks::drain(to, from).await?;
    marks::drain(from, to).await?; // writes of clients that were forgotten
    compare_back(migration, way, began).await
}

fn note_searched(migration: &Migration) -> Result<(), String> {
    migration.state.lock().unsearched_ms = None;
    migration.save()
}

fn too_many(side: &str) -> String {
    format!("more than {CHANGED_MAX} rows of the {side} could not be compared: --verify")
}

/// Compares all rows behind a cut over, `way` its way. Rows that it could not search for are searched for, too: what the new side never
/// got is at the old side only, and a comparison alone writes nothing there that clients may have deleted.
pub(crate) async fn verify(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    let (from, to) = migration.pair(way);
    let back = if way == Way::Forth { Way::Back } else { Way::Forth };
    let compare = async || compare_all(migration, back).await;
    let unsearched_ms = migration.state.lock().unsearched_ms;
    let Some(paused_ms) = unsearched_ms else { return compare().await };
    let search = async || {
        marks::drain(to, from).await?; // what clients have deleted since
        match late_rows(migration, way, paused_ms).await? {
            true => note_searched(migration).map(|()| true),
            false => Ok(false),
        }
    };
    match search_and_compare(search, compare).await? {
        Searched::Before => Ok(()),
        Searched::Behind => compare_surplus(migration, back).await,
        Searched::Never => Err(too_many(from.name)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Searched {
    Before,
    Behind,
    Never,
}

/// Searches first: a comparison would write what clients had deleted to the side that they have left. If that are too many rows, the
/// comparison finds those that only the old side has, and these are looked at then.
async fn search_and_compare(
    search: impl AsyncFn() -> Result<bool, String>,
    compare: impl AsyncFn() -> Result<(), String>,
) -> Result<Searched, String> {
    let is_found = search().await?;
    compare().await?;
    match is_found {
        true => Ok(Searched::Before),
        false => Ok(if search().await? { Searched::Behind } else { Searched::Never }),
    }
}

/// Looks again at rows of which only the side that follows had cells.
async fn compare_surplus(migration: &Migration, way: Way) -> Result<(), String> {
    let rows = migration.state.lock().surplus.clone();
    let settled = settle(migration, way, rows.into_iter().collect()).await?;
    let mut state = migration.state.lock();
    state.surplus = settled.surplus.into_iter().collect();
    state.unsettled.extend(settled.changing);
    drop(state);
    migration.save()
}

/// Rows of the old side that could not be searched for in the pause, and those that a comparison since has found. Its last write was at
/// `paused_ms`. False if they are too many.
async fn late_rows(migration: &Migration, way: Way, paused_ms: i64) -> Result<bool, String> {
    let (from, to) = migration.pair(way);
    let mark = marks::drain(from, to).await?;
    let since_ms = migration.state.lock().compared_ms;
    let changed = Places::find(migration, from).await?.changed_since(since_ms, CHANGED_MAX).await?;
    let Some(mut changed) = changed else { return Ok(false) };
    changed.extend(migration.state.lock().surplus.iter().cloned());
    let mut lost: Vec<(RowOf, usize)> = Vec::new();
    let mut undeleted: Vec<RowOf> = Vec::new();
    let keeps = migration.keeps_surplus(way);
    for mut one in look(migration, way, &changed, mark.now_ms()).await? {
        if is_undeleted(&one, paused_ms, keeps) {
            undeleted.push(one.place.clone());
        }
        // Clients may have written over a row since then. Only what never came is written: it lies below what they wrote.
        let cells = never_arrived(migration, to, &one.place, one.missing()).await?;
        if cells.is_empty() {
            continue;
        }
        lost.push((one.place.clone(), cells.len()));
        one.keep_missing(&cells);
        repair(migration, way, &[one], Repair::Missing).await?;
    }
    println!("after the pause: {} rows that the {} had got last were compared", changed.len(), from.name);
    for (place, cells) in lost.iter().take(TOLD_MAX) {
        println!(
            "row {}: {cells} cells had not reached the {} and were written now; a client that read the row meanwhile, or \
             incremented it, did not see them",
            migration.show(place),
            to.name
        );
    }
    if lost.len() > TOLD_MAX {
        println!("{} more rows had cells that had not reached the {}", lost.len() - TOLD_MAX, to.name);
    }
    match undeleted.is_empty() {
        true => Ok(true),
        false => Err(format!(
            "of the last deletes some did not arrive: {}",
            surplus_error(migration, way, &undeleted)
        )),
    }
}

/// Whether a delete of the old side seems not to have arrived. What clients have written since the pause is newer. `keeps`: the new
/// side has cells of its own, which nobody can tell from those.
fn is_undeleted(row: &Differing, paused_ms: i64, keeps: bool) -> bool {
    !keeps && row.surplus().iter().any(|cell| cell.timestamp() <= paused_ms)
}

/// Rows that the new side has got around the cut over and since.
async fn compare_back(migration: &Arc<Migration>, way: Way, began: Instant) -> Result<(), String> {
    let back = if way == Way::Forth { Way::Back } else { Way::Forth };
    let to = migration.pair(way).1;
    let since_ms = migration.state.lock().compared_ms.saturating_sub(clocks::APART_MS_MAX);
    let changed = Places::find(migration, to).await?.changed_since(since_ms, CHANGED_MAX).await?;
    let Some(changed) = changed else {
        return Err(format!(
            "more than {CHANGED_MAX} rows changed around it and were not compared: --verify compares all rows"
        ));
    };
    let count = changed.len();
    let settled = settle(migration, back, changed).await?;
    println!(
        "after the cut over: {count} rows that changed around it were compared in {}, {}",
        duration(began.elapsed()),
        summary(migration, back, &settled)
    );
    let surplus: Vec<RowOf> = settled.surplus.into_iter().collect();
    let mut state = migration.state.lock();
    (state.compared_ms, state.unsettled) = (since_ms, settled.changing.into_iter().collect());
    state.surplus = surplus.clone();
    drop(state);
    migration.save()?;
    match surplus.is_empty() || migration.keeps_surplus(back) {
        true => Ok(()),
        false => Err(surplus_error(migration, back, &surplus)),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell as Count, RefCell};

    use bytes::Bytes;
    use halcyon_client::Cell;

    use super::*;

    /// `--verify` found rows that the new side had never got, told of them, and took back the note that rows were not searched for. So the
    /// next run searched for none, and the migration could be ended without them.
    #[tokio::test]
    async fn rows_are_searched_for_before_the_note_is_taken_back() {
        let run = async |answers: Vec<Result<bool, String>>| {
            let (done, searches) = (RefCell::new(Vec::new()), Count::new(0));
            let search = async || {
                done.borrow_mut().push("search");
                searches.set(searches.get() + 1);
                answers[searches.get() - 1].clone()
            };
            let compare = async || {
                done.borrow_mut().push("compare");
                Ok(())
            };
            (search_and_compare(search, compare).await, done.into_inner())
        };
        let (search, compare) = ("search", "compare");
        assert_eq!(run(vec![Ok(true)]).await, (Ok(Searched::Before), vec![search, compare]));
        let too_many = run(vec![Ok(false), Ok(true)]).await;
        assert_eq!(too_many, (Ok(Searched::Behind), vec![search, compare, search]));
        let still = run(vec![Ok(false), Ok(false)]).await;
        assert_eq!(still.0, Ok(Searched::Never), "the note stays");
        let undeleted = run(vec![Err("undeleted".to_string())]).await;
        assert_eq!(undeleted, (Err("undeleted".to_string()), vec![search]), "nothing is written back");
    }

    /// A cell of the target's own, in a row that also changed at the source, was taken for a delete that did not arrive. Each later
    /// run said so again, and compared nothing.
    #[test]
    fn what_only_the_target_has_is_no_lost_delete_if_it_stays() {
        let cell = |time| Cell::put(b"r", b"f", b"q", time, b"v");
        let place = RowOf { table: 0, row: Bytes::from_static(b"r") };
        let row = Differing::of(place, vec![cell(7)], vec![cell(5), cell(7)]).unwrap();
        assert!(is_undeleted(&row, 6, false));
        assert!(!is_undeleted(&row, 4, false), "it was written since the pause");
        assert!(!is_undeleted(&row, 6, true));
    }
}
