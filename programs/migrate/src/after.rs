//! What is left to do once the other side takes the writes: the old side follows, and rows that changed around the cut over are
//! compared.
//!
//! A row that did not arrive in time is at the old side only, and nothing there changes any more. So that side is searched first,
//! unless the pause has done it. What the new side never got is written there. Then rows that the new side has got since are
//! compared with the old one.
//!
//! A row that only the old side has may also have been deleted by a client of the new one, where a compaction has dropped all
//! traces of it. So nothing is written before the old side has all edits of the new side, and shows the row all the same: what a
//! look finds without a trace at the new side was deleted before that look, or never came. The same holds for a delete of the old
//! side that seems not to have arrived: a client may have written the row, with an old timestamp.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;

use crate::compare::{TOLD_MAX, settle, summary, surplus_error};
use crate::cut_over::CHANGED_MAX;
use crate::progress::duration;
use crate::rows::{CellKey, Differing, Repair, key, look, repair, without_trace};
use crate::search::Places;
use crate::state::{OldSide, RowOf};
use crate::{Migration, Way, clocks, ending, marks};

/// See the head of the file. May be called again. The error is the end of a sentence: what is not as it should be.
pub(crate) async fn after(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    let (from, to) = migration.pair(way);
    let unsearched_ms = migration.state.lock().unsearched(way);
    let looked = match unsearched_ms {
        Some(paused_ms) => first_look(migration, way, paused_ms).await.map(Some),
        None => Ok(None),
    };
    // Whatever was found: edits wait for it.
    from.set_read_only(&migration.tables(), false, false).await?;
    println!("{}: takes edits of the {} from now on; keep clients away from it", from.name, to.name);
    migration.note_old_side(OldSide::Opened)?;
    if let Some(doubts) = looked? {
        let doubts = doubts.ok_or_else(|| {
            format!("more than {CHANGED_MAX} rows of the {} could not be compared: --verify", from.name)
        })?;
        second_look(migration, way, doubts).await?;
    }
    let began = Instant::now();
    marks::drain(to, from).await?;
    marks::drain(from, to).await?; // writes of clients that were forgotten
    compare_back(migration, way, began).await
}

/// Rows that differ behind a cut over whose pause had no time to search, `way` its way: what the new side never got is at the old side
/// only, and a comparison would write cells there whose delete did not arrive. So this comes before it. Nothing is done if the search
/// was made.
///
/// The note that it was not made is taken back. So `rows` has to have each row of the old side alone that a client may have written:
/// [`State::kept`](crate::state::State::kept).
pub(crate) async fn check(migration: &Migration, way: Way, rows: &BTreeSet<RowOf>) -> Result<(), String> {
    let unsearched_ms = migration.state.lock().unsearched(way);
    let Some(paused_ms) = unsearched_ms else { return Ok(()) };
    let doubts = doubts_about(migration, way, rows, paused_ms).await?;
    second_look(migration, way, doubts).await
}

/// What a row looks like that differs, for it to be looked at again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Doubt {
    /// Cells of the old side without a trace at the new one.
    lost: BTreeSet<CellKey>,
    /// Cells that only the new side has, although they are from before the pause.
    undeleted: BTreeSet<CellKey>,
}

type Doubts = BTreeMap<RowOf, Doubt>;

impl Doubt {
    /// The last write of the old side was at `paused_ms`. What clients have written since is newer. `keeps`: the new side has cells of
    /// its own, which nobody can tell from those.
    fn of(row: &Differing, lost: BTreeSet<CellKey>, paused_ms: i64, keeps: bool) -> Doubt {
        let is_old = |cell: &halcyon_client::Cell| !keeps && cell.timestamp() <= paused_ms;
        let undeleted = row.surplus().iter().filter(|cell| is_old(cell)).map(key).collect();
        Doubt { lost, undeleted }
    }

    fn is_none(&self) -> bool {
        self.lost.is_empty() && self.undeleted.is_empty()
    }

    /// Whether a delete of the old side did not arrive, by a second look.
    fn is_undeleted(&self, again: &Differing) -> bool {
        again.surplus().iter().any(|cell| self.undeleted.contains(&key(cell)))
    }

    /// Leaves of a second look what the new side never got.
    fn keep_lost(&self, again: &mut Differing) {
        again.keep_missing(&self.lost);
    }
}

/// Looks at the rows of the old side that could not be searched for in the pause, and at those that a comparison since has found. Its
/// last write was at `paused_ms`. `None`: they are too many.
async fn first_look(migration: &Migration, way: Way, paused_ms: i64) -> Result<Option<Doubts>, String> {
    let from = migration.pair(way).0;
    let since_ms = migration.state.lock().search_since_ms();
    let places = Places::find(migration, from).await?;
    let Some(mut changed) = places.changed_since(since_ms, CHANGED_MAX).await? else { return Ok(None) };
    changed.extend(migration.state.lock().surplus.iter().cloned());
    let doubts = doubts_about(migration, way, &changed, paused_ms).await?;
    println!("after the pause: {} rows that the {} had got last were compared", changed.len(), from.name);
    Ok(Some(doubts))
}

async fn doubts_about(
    migration: &Migration,
    way: Way,
    rows: &BTreeSet<RowOf>,
    paused_ms: i64,
) -> Result<Doubts, String> {
    let (from, to) = migration.pair(way);
    let mark = marks::drain(from, to).await?;
    let keeps = migration.keeps_surplus(way);
    let mut doubts = Doubts::new();
    for one in look(migration, way, rows, mark.now_ms()).await? {
        // Clients may have written over a row since then. Only what never came is written: it lies below what they wrote.
        let lost = without_trace(migration, to, &one.place, one.missing()).await?;
        let doubt = Doubt::of(&one, lost, paused_ms, keeps);
        if !doubt.is_none() {
            doubts.insert(one.place, doubt);
        }
    }
    Ok(doubts)
}

/// Looks at rows again when the old side has all edits of the new one, and writes at the new side what it never got. The old side
/// has to take edits.
async fn second_look(migration: &Migration, way: Way, doubts: Doubts) -> Result<(), String> {
    let (from, to) = migration.pair(way);
    let mut lost: Vec<(RowOf, usize)> = Vec::new();
    let mut undeleted: Vec<RowOf> = Vec::new();
    if !doubts.is_empty() {
        ending::all_edits(migration, to, from).await?;
        let mark = marks::set(to).await?;
        let rows = doubts.keys().cloned().collect();
        for mut one in look(migration, way, &rows, mark.now_ms()).await? {
            let doubt = &doubts[&one.place];
            if doubt.is_undeleted(&one) {
                undeleted.push(one.place.clone());
            }
            doubt.keep_lost(&mut one);
            let cells = one.missing().len();
            if cells > 0 {
                lost.push((one.place.clone(), cells));
                repair(migration, way, &[one], Repair::Missing).await?;
            }
        }
    }
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
    if !undeleted.is_empty() {
        let rows = surplus_error(migration, way, &undeleted);
        return Err(format!(
            "of the last deletes some did not arrive: {rows}. Delete them there, and run this again"
        ));
    }
    migration.state.lock().note_searched();
    migration.save()
}

/// Rows that the new side has got around the cut over and since, and those that comparisons since have left. The lists of these are
/// replaced: without another look at them the way back would not know of them.
async fn compare_back(migration: &Arc<Migration>, way: Way, began: Instant) -> Result<(), String> {
    let back = way.opposite();
    let to = migration.pair(way).1;
    let since_ms = migration.state.lock().compared_ms.saturating_sub(clocks::APART_MS_MAX);
    let changed = Places::find(migration, to).await?.changed_since(since_ms, CHANGED_MAX).await?;
    let Some(mut changed) = changed else {
        return Err(format!(
            "more than {CHANGED_MAX} rows changed around it and were not compared: --verify compares all rows"
        ));
    };
    let count = changed.len();
    {
        let state = migration.state.lock();
        changed.extend(state.unsettled.iter().chain(&state.surplus).cloned());
    }
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
    use bytes::Bytes;
    use halcyon_client::Cell;

    use super::*;

    fn cell(time: i64) -> Cell {
        Cell::put(b"r", b"f", b"q", time, b"v")
    }

    fn row(here: &[i64], there: &[i64]) -> Differing {
        let cells = |times: &[i64]| times.iter().map(|time| cell(*time)).collect();
        let place = RowOf { table: 0, row: Bytes::from_static(b"r") };
        Differing::of(place, cells(here), cells(there)).unwrap()
    }

    fn keys(times: &[i64]) -> BTreeSet<CellKey> {
        times.iter().map(|time| key(&cell(*time))).collect()
    }

    /// A cut over was ended hours later. A client had deleted a row meanwhile, and a compaction had dropped it: only the old side,
    /// which took no edits yet, had it. It was written back as one that had never arrived.
    #[test]
    fn a_row_that_is_gone_at_the_second_look_is_not_written() {
        let doubt = Doubt::of(&row(&[3, 5], &[]), keys(&[3, 5]), 6, false);
        let lost = |here: &[i64], there: &[i64]| {
            let mut again = row(here, there);
            doubt.keep_lost(&mut again);
            again.missing().iter().map(Cell::timestamp).collect::<Vec<_>>()
        };
        assert_eq!(lost(&[5], &[]), [5], "the other one was deleted");
        assert_eq!(lost(&[3, 5], &[3]), [5], "the other one has come");
        assert_eq!(lost(&[8], &[]), [0; 0], "what is new is on its way");
        assert!(doubt.lost.len() == 2 && doubt.undeleted.is_empty() && !doubt.is_none());
        // A client has written the same cell with another value.
        let place = RowOf { table: 0, row: Bytes::from_static(b"r") };
        let other = Cell::put(b"r", b"f", b"q", 5, b"w");
        let mut again = Differing::of(place, vec![cell(5)], vec![other]).unwrap();
        doubt.keep_lost(&mut again);
        assert!(again.missing().is_empty());
    }

    /// A cell of the target's own, in a row that also changed at the source, was taken for a delete that did not arrive. Each later
    /// run said so again, and compared nothing.
    #[test]
    fn what_only_the_target_has_is_no_lost_delete_if_it_stays() {
        let looked = row(&[7], &[5, 7]);
        let undeleted =
            |paused_ms, keeps| Doubt::of(&looked, BTreeSet::new(), paused_ms, keeps).is_undeleted(&looked);
        assert!(undeleted(6, false));
        assert!(!undeleted(4, false), "it was written since the pause");
        assert!(!undeleted(6, true));
        // What a client writes with an old timestamp arrives at the old side, too.
        let doubt = Doubt::of(&looked, BTreeSet::new(), 6, false);
        assert!(!doubt.is_undeleted(&row(&[5, 7], &[4, 5, 7])));
    }
}
