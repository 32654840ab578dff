//! The end: all cells of the table are read, and the sums of each range are compared with those of the source. Where they
//! differ, both sides are read side by side for the rows that do.

use std::cmp::Ordering as Order;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use halcyon_client::Scan;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Import;
use crate::mapping::Mapper;
use crate::progress::Progress;
use crate::state::Range;
use crate::sum::{RowSum, RowSums, Sum};

const RESPONSE_BYTES_MAX: u64 = 2 << 20;
/// Rows that are shown of a range.
const SHOWN_MAX: usize = 10;
/// Rows that wait between a reader and the comparison.
const WAITING_MAX: usize = 1000;

/// Compares all ranges; returns what the target has.
pub(crate) async fn compare(import: &Arc<Import>) -> Result<Sum, String> {
    let ranges = Arc::new(import.state.lock().ranges.clone());
    let progress = Arc::new(Progress::new(import.progress_period()));
    let next = Arc::new(AtomicUsize::new(0));
    let found = Arc::new(Mutex::new((Sum::default(), Vec::new())));
    let mut tasks = JoinSet::new();
    for slot in 0..import.args.threads.min(ranges.len()) {
        let (import, ranges, progress) = (Arc::clone(import), Arc::clone(&ranges), Arc::clone(&progress));
        let (next, found) = (Arc::clone(&next), Arc::clone(&found));
        tasks.spawn(async move {
            while let Some(range) = ranges.get(next.fetch_add(1, Ordering::Relaxed)) {
                let there = target_sum(&import, range, slot, &progress).await?;
                let here = range.sum.expect("all ranges are copied");
                found.lock().0.add(&there);
                if here != there {
                    let rows = differing(&import, range, slot).await?;
                    found.lock().1.push(difference(range, &here, &there, &rows));
                }
                progress.range_done();
            }
            Ok::<(), String>(())
        });
    }
    progress.watch("compare", ranges.len(), &mut tasks).await?;
    drop(tasks);
    let found = found.lock();
    match found.1.is_empty() {
        true => Ok(found.0),
        false => Err(format!("{} ranges differ:\n  {}", found.1.len(), found.1.join("\n  "))),
    }
}

fn difference(range: &Range, here: &Sum, there: &Sum, rows: &[String]) -> String {
    format!(
        "rows from '{}' to '{}': source {} rows and {} cells, target {} and {}; {}",
        range.start.escape_ascii(),
        range.end.escape_ascii(),
        here.rows,
        here.cells,
        there.rows,
        there.cells,
        match rows {
            [] => "read again, the source has what the target has: it has changed meanwhile".to_string(),
            rows => format!("such as {}", rows.join(", ")),
        }
    )
}

async fn target_sum(import: &Import, range: &Range, slot: usize, progress: &Progress) -> Result<Sum, String> {
    let mut sum = Sum::default();
    let (sender, mut rows) = mpsc::channel(WAITING_MAX);
    let scan = scan(import, range, slot, &sender);
    drop(sender);
    let adding = async {
        while let Some(row) = rows.recv().await {
            progress.add(1, row.sum.cells, row.sum.bytes);
            sum.add(&row.sum);
        }
    };
    let (scanned, ()) = tokio::join!(scan, adding);
    scanned?;
    Ok(sum)
}

/// Sends the rows that the target has in a range.
fn scan(
    import: &Import,
    range: &Range,
    slot: usize,
    sender: &mpsc::Sender<RowSum>,
) -> impl Future<Output = Result<(), String>> + Send + 'static {
    let (target, sender, range) = (Arc::clone(&import.target), sender.clone(), range.clone());
    async move {
        let scan = Scan::new().start(&range.start).all_versions().cache_blocks(false).allow_partial_rows();
        let scan = scan.response_bytes_max(RESPONSE_BYTES_MAX);
        let scan = if range.end.is_empty() { scan } else { scan.stop(&range.end) };
        let mut scanner = target.cluster.table(target.table.clone(), slot).scan(scan);
        let failed = |error| target.failed(&format!("scan of {}", target.table), error);
        let mut sums = RowSums::default();
        while let Some(row) = scanner.next().await.map_err(failed)? {
            for cell in row.cells() {
                if let Some(done) = sums.add(cell) {
                    let _ = sender.send(done).await; // an error: nobody listens any more
                }
            }
        }
        if let Some(done) = sums.finish() {
            let _ = sender.send(done).await;
        }
        scanner.close().await;
        Ok(())
    }
}

/// Rows of a range that are not the same on both sides.
async fn differing(import: &Arc<Import>, range: &Range, slot: usize) -> Result<Vec<String>, String> {
    let (there_sender, mut there) = mpsc::channel(WAITING_MAX);
    let (here_sender, mut here) = mpsc::channel(WAITING_MAX);
    let scanning = tokio::spawn(scan(import, range, slot, &there_sender));
    drop(there_sender);
    let reading = {
        let (import, range) = (Arc::clone(import), range.clone());
        tokio::task::spawn_blocking(move || read(&import, &range, &here_sender))
    };
    let mut rows = Vec::new();
    let (mut ours, mut theirs) = (here.recv().await, there.recv().await);
    loop {
        let order = match (&ours, &theirs) {
            (None, None) => break,
            (Some(_), None) => Order::Less,
            (None, Some(_)) => Order::Greater,
            (Some(one), Some(other)) => one.row.cmp(&other.row),
        };
        let row = if order.is_le() { &ours } else { &theirs };
        let row = row.as_ref().map(|row| row.row.escape_ascii().to_string()).unwrap_or_default();
        if (order.is_ne() || ours != theirs) && rows.len() < SHOWN_MAX {
            let what = match order {
                Order::Less => "is missing at the target",
                Order::Greater => "is only at the target",
                Order::Equal => "has other cells",
            };
            rows.push(format!("'{row}' {what}"));
        }
        if order.is_le() {
            ours = here.recv().await;
        }
        if order.is_ge() {
            theirs = there.recv().await;
        }
    }
    scanning.await.unwrap_or_else(|error| Err(error.to_string()))?;
    reading.await.unwrap_or_else(|error| Err(error.to_string()))?;
    Ok(rows)
}

fn read(import: &Import, range: &Range, sender: &mpsc::Sender<RowSum>) -> Result<(), String> {
    let mut mapper = Mapper::new(&import.mapping);
    let mut sums = RowSums::default();
    let failed = |error| import.source.shown(&error);
    let mut entries = import.source.entries(range).map_err(failed)?;
    while entries.next().map_err(failed)? {
        let mapped = mapper.map(entries.key(), entries.value());
        let cell = mapped.map_err(|refusal| format!("an entry: {}", refusal.text()))?;
        if let Some(done) = sums.add(&cell) {
            let _ = sender.blocking_send(done);
        }
    }
    if let Some(done) = sums.finish() {
        let _ = sender.blocking_send(done);
    }
    Ok(())
}
