//! Compares every row of both sides while clients write.
//!
//! The walk of `digest.rs` over all ranges finds rows that differ. Most of them were written between the two looks. They are
//! looked at again after a mark has arrived, when the target has all that the source had. What a row shows then tells what it is:
//!
//! - it differs no more: its edits were on their way;
//! - both sides show the same as at the look before, and the side that follows lacks cells: they are **missing**, and written;
//! - the same, and the side that follows has cells that the other one has not: they are **surplus**. Nothing deletes them unless
//!   the user asks for it, since they may be the only copy of something;
//! - one side has changed between the looks: the row is **changing**, and is left for the cut over, when nothing changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use halcyon_client::{Row, Scan};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::digest::{self, Compared, Digests, RowDigest};
use crate::progress::Progress;
use crate::rows::{Differing, Repair, look, repair};
use crate::side::Side;
use crate::state::{Range, RowOf, Walk};
use crate::{Migration, Way, after, checks, marks};

/// Rows of a message from a side's reader.
const DIGESTS_COUNT: usize = 1000;
/// Messages that a side may be ahead of the other.
const AHEAD_MAX: usize = 16;
/// Rows that differ before the comparison gives up: something is wrong with the copy as a whole.
const DIFFERING_MAX: usize = 200_000;
/// Looks at a row that goes on changing.
const ROUNDS_MAX: usize = 6;
pub(crate) const TOLD_MAX: usize = 10;

/// What a look at all rows found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) rows: u64,
    pub(crate) cells: u64,
    pub(crate) ranges: u64,
    /// Ranges whose sums differed at the first look.
    pub(crate) ranges_differing: u64,
    pub(crate) rows_differing: BTreeSet<RowOf>,
    /// Rows that only the target has, and keeps. Not those that clients may have written: see [`Kept`](crate::state::Kept).
    pub(crate) rows_kept: u64,
}

/// What became of rows that differed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled {
    /// Rows that change as often as they are looked at.
    pub(crate) changing: BTreeSet<RowOf>,
    /// Rows with cells that only the side that follows has.
    pub(crate) surplus: BTreeSet<RowOf>,
    /// How many rows lacked cells, and have them now.
    pub(crate) repaired: usize,
}

/// Compares all rows. Rows that never stop changing, and those with surplus cells, are left in the state. Fails if cells are
/// missing that cannot be written. Behind a cut over whose pause had no time to search for rows, their search comes before a repair.
pub(crate) async fn compare_all(migration: &Arc<Migration>, way: Way) -> Result<(), String> {
    let (from, to) = migration.pair(way);
    let mark = marks::drain(from, to).await?;
    // Before the walk: what changes while it goes on is seen by the next look.
    let (layouts, servers) = (checks::layouts(migration).await?, checks::servers(migration).await?);
    let found = walk(migration, way).await?;
    let first = found.rows_differing.len();
    println!(
        "compared: {} rows, {} cells in {} ranges; {} ranges and {first} rows differ at the first look",
        found.rows, found.cells, found.ranges, found.ranges_differing
    );
    after::check(migration, way.opposite(), &found.rows_differing).await?;
    let settled = settle(migration, way, found.rows_differing).await?;
    println!("compared: {}", summary(migration, way, &settled));
    if found.rows_kept > 0 {
        println!("{} rows that only the {} has stay there", found.rows_kept, to.name);
    }
    let ended_ms = migration.env.clock.now_ms();
    let mut state = migration.state.lock();
    state.compared_ms = mark.written_ms;
    state.unsettled = settled.changing.into_iter().collect();
    state.surplus = settled.surplus.into_iter().collect();
    state.walk = Some(Walk { ended_ms, layouts, servers });
    drop(state);
    migration.save()
}

/// For a person and for scripts: how many rows lack cells (none, or there was an error), have too many, and change.
pub(crate) fn summary(migration: &Migration, way: Way, settled: &Settled) -> String {
    let to = migration.pair(way).1.name;
    let surplus = settled.surplus.len();
    let mut text = format!("missing 0, surplus {surplus}, changing {}", settled.changing.len());
    if settled.repaired > 0 {
        text += &format!(" after {} rows were repaired", settled.repaired);
    }
    if surplus > 0 {
        let what = if migration.keeps_surplus(way) {
            "which stay"
        } else {
            "which --delete-surplus deletes at a cut over"
        };
        text += &format!("; {surplus} rows have cells that only the {to} has, {what}");
    }
    if !settled.changing.is_empty() {
        text += "; rows that change all the time are compared at the cut over";
    }
    text
}

/// An error that names rows with cells that only the side that follows has.
pub(crate) fn surplus_error(migration: &Migration, way: Way, rows: &[RowOf]) -> String {
    let shown: Vec<String> = rows.iter().take(TOLD_MAX).map(|place| migration.show(place)).collect();
    format!(
        "{} rows have cells that only the {} has: {}{}",
        rows.len(),
        migration.pair(way).1.name,
        shown.join(", "),
        if rows.len() > TOLD_MAX { ", ..." } else { "" }
    )
}

/// Looks at rows again, after a mark each time, until it is known what each of them is.
pub(crate) async fn settle(
    migration: &Migration,
    way: Way,
    mut open: BTreeSet<RowOf>,
) -> Result<Settled, String> {
    let (from, to) = migration.pair(way);
    let mut settled = Settled::default();
    let mut repaired = BTreeSet::new();
    let mut seen = BTreeMap::new();
    for round in 0..ROUNDS_MAX {
        if open.is_empty() {
            break;
        }
        let mark = marks::drain(from, to).await?;
        let differing = look(migration, way, &open, mark.now_ms()).await?;
        let now: BTreeMap<RowOf, _> = differing.iter().map(|one| (one.place.clone(), one.sums())).collect();
        let is_steady = |one: &&Differing| seen.get(&one.place) == Some(&now[&one.place]);
        let steady: Vec<Differing> = differing.iter().filter(is_steady).cloned().collect();
        let (lacking, surplus): (Vec<Differing>, Vec<Differing>) =
            steady.into_iter().partition(Differing::lacks);
        tell(migration, &lacking);
        tell(migration, &surplus);
        if round + 1 == ROUNDS_MAX {
            refuse_hidden(migration, to, &lacking, &repaired)?;
        }
        repair(migration, way, &lacking, Repair::Missing).await?;
        repaired.extend(lacking.into_iter().map(|one| one.place));
        settled.surplus.extend(surplus.into_iter().map(|one| one.place));
        open = now.keys().filter(|place| !settled.surplus.contains(place)).cloned().collect();
        seen = now;
    }
    settled.changing = open;
    settled.repaired = repaired.iter().filter(|place| !settled.changing.contains(place)).count();
    Ok(settled)
}

/// Cells that were written and do not show are hidden by something.
fn refuse_hidden(
    migration: &Migration,
    to: &Side,
    lacking: &[Differing],
    repaired: &BTreeSet<RowOf>,
) -> Result<(), String> {
    let mut hidden = lacking.iter().filter(|one| repaired.contains(&one.place));
    let Some(one) = hidden.next() else { return Ok(()) };
    Err(format!(
        "{} rows lack cells at the {} and could not be repaired, among them {}. A delete marker there may hide their cells: \
         major_compact the tables there, and run this again",
        hidden.count() + 1,
        to.name,
        migration.show(&one.place),
    ))
}

fn tell(migration: &Migration, rows: &[Differing]) {
    for one in rows.iter().take(TOLD_MAX) {
        let (here, there) = one.counts();
        println!("differs: {}, {here} cells and {there} cells", migration.show(&one.place));
    }
    if rows.len() > TOLD_MAX {
        println!("differs: {} more rows", rows.len() - TOLD_MAX);
    }
}

/// Walks over all ranges of all tables.
pub(crate) async fn walk(migration: &Arc<Migration>, way: Way) -> Result<Found, String> {
    let mut work: Vec<(usize, Range)> = Vec::new();
    for (table, one) in migration.state.lock().tables.iter().enumerate() {
        work.extend(one.ranges.iter().map(|range| (table, range.clone())));
    }
    let (ranges, expected) = (work.len() as u64, migration.state.lock().copied_bytes);
    let (work, next) = (Arc::new(work), Arc::new(AtomicUsize::new(0)));
    let progress = Arc::new(Progress::new());
    let mut tasks = JoinSet::new();
    for number in 0..migration.args.threads.min(work.len()) {
        let (migration, progress) = (Arc::clone(migration), Arc::clone(&progress));
        let (work, next) = (Arc::clone(&work), Arc::clone(&next));
        tasks.spawn(async move {
            let mut all = Vec::new();
            while let Some((table, range)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                let compared = compare_range(&migration, way, *table, range, number, &progress).await?;
                progress.ranges_done.fetch_add(1, Ordering::Relaxed);
                all.push((*table, compared));
            }
            Ok::<_, String>(all)
        });
    }
    let mut ticks = tokio::time::interval(migration.progress_period());
    ticks.tick().await;
    let mut found = Found { ranges, ..Found::default() };
    loop {
        tokio::select! {
            ended = tasks.join_next() => {
                let Some(ended) = ended else { break };
                let ended = ended.unwrap_or_else(|error| Err(format!("a task of the comparison failed: {error}")));
                for (table, compared) in ended? {
                    found.rows += compared.left.rows;
                    found.cells += compared.left.cells;
                    found.ranges_differing += u64::from(compared.left != compared.right);
                    found.rows_kept += compared.rows_kept;
                    let places = compared.differing.into_iter().map(|row| RowOf { table, row });
                    found.rows_differing.extend(places);
                }
                if found.rows_differing.len() > DIFFERING_MAX {
                    let is_unsearched = migration.state.lock().unsearched(way.opposite()).is_some();
                    return Err(too_many(way, is_unsearched));
                }
            },
            _ = ticks.tick() => println!("{}", progress.line("compare", ranges, expected)),
        }
    }
    Ok(found)
}

/// `is_unsearched`: rows of clients may be at the side that follows alone.
fn too_many(way: Way, is_unsearched: bool) -> String {
    let what = match way {
        Way::Forth if is_unsearched => {
            "the target may have rows that the source never got, so keep its tables. --cut-over --skip-verify returns to it"
        }
        Way::Forth => "--abort, drop the tables at the target, and copy again",
        Way::Back => "the source cannot follow any more; --back --skip-verify goes back without them",
    };
    format!("more than {DIFFERING_MAX} rows differ: {what}")
}

async fn compare_range(
    migration: &Migration,
    way: Way,
    table: usize,
    range: &Range,
    slot: usize,
    progress: &Progress,
) -> Result<Compared, String> {
    let (from, to) = migration.pair(way);
    let name = migration.table(table);
    let left = digests(from, name.clone(), range, slot);
    let right = digests(to, name, range, slot);
    let kept = migration.state.lock().kept(way);
    let keeps = |row: &RowDigest| kept.has(row.newest_ms);
    digest::compare(left, right, keeps, |row| progress.add(1, row.cells, row.bytes)).await
}

/// Rows of a range at one side, read by a task.
fn digests(side: &Side, name: halcyon_schema::TableName, range: &Range, slot: usize) -> Digests {
    let mut scan = Scan::new().start(&range.start).all_versions().cache_blocks(false).allow_partial_rows();
    if !range.end.is_empty() {
        scan = scan.stop(&range.end);
    }
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    let mut scanner = side.cluster.table(name.clone(), slot).scan(scan);
    let side = side.clone();
    tokio::spawn(async move {
        let mut ready: Vec<RowDigest> = Vec::new();
        let mut current: Option<RowDigest> = None;
        loop {
            let row = match scanner.next().await {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error) => {
                    let _ = sender.send(Err(side.failed(&format!("scan of {name}"), error))).await;
                    return;
                }
            };
            add_part(&mut current, &mut ready, &row);
            if ready.len() >= DIGESTS_COUNT && sender.send(Ok(std::mem::take(&mut ready))).await.is_err() {
                return; // the other side has failed
            }
        }
        ready.extend(current);
        let _ = sender.send(Ok(ready)).await;
        scanner.close().await;
    });
    receiver
}

/// Adds a part of a row. A row is ready when another one begins.
fn add_part(current: &mut Option<RowDigest>, ready: &mut Vec<RowDigest>, part: &Row) {
    if part.is_empty() {
        return;
    }
    if current.as_ref().is_none_or(|digest| digest.row != part.key()) {
        ready.extend(current.replace(RowDigest::new(Bytes::copy_from_slice(part.key()))));
    }
    let digest = current.as_mut().expect("it was just put there");
    part.iter().for_each(|cell| digest.add(cell));
}
