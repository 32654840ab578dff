//! The second reading: all entries are written. Each range may be written again after an error; that changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use halcyon_client::{Action, Cell, Mutation};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Import;
use crate::check::shown;
use crate::mapping::Mapper;
use crate::progress::Progress;
use crate::state::Range;
use crate::sum::{RowSums, Sum};

/// Bytes of cells in a call to the target. A range holds three times as much: what is written, what waits, what is read.
const BATCH_BYTES: usize = 1 << 20;

#[derive(Default)]
struct Batch {
    cells: Vec<Cell>,
    bytes: usize,
}

/// Writes the ranges that are not written yet.
pub(crate) async fn copy(import: &Arc<Import>) -> Result<(), String> {
    let work: Vec<usize> = {
        let state = import.state.lock();
        let left = state.ranges.iter().enumerate().filter(|(_, range)| !range.is_copied);
        left.map(|(number, _)| number).collect()
    };
    let progress = Arc::new(Progress::new(import.progress_period()));
    let (work, next) = (Arc::new(work), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for slot in 0..import.args.threads.min(work.len()) {
        let (import, progress) = (Arc::clone(import), Arc::clone(&progress));
        let (work, next) = (Arc::clone(&work), Arc::clone(&next));
        tasks.spawn(async move {
            while let Some(&number) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                copy_range(&import, number, slot, &progress).await?;
                progress.range_done();
            }
            Ok::<(), String>(())
        });
    }
    progress.watch("copy", work.len(), &mut tasks).await
}

async fn copy_range(
    import: &Arc<Import>,
    number: usize,
    slot: usize,
    progress: &Progress,
) -> Result<(), String> {
    let range = import.state.lock().ranges[number].clone();
    let (sender, mut batches) = mpsc::channel(1);
    let reading = {
        let (import, range) = (Arc::clone(import), range.clone());
        tokio::task::spawn_blocking(move || read(&import, &range, &sender))
    };
    let target = &import.target;
    let table = target.cluster.table(target.table.clone(), slot);
    while let Some(Batch { cells, bytes }) = batches.recv().await {
        let count = cells.len() as u64;
        let written = table.batch_all(&mutations(cells)).await;
        written.map_err(|error| target.failed(&format!("write to {}", target.table), error))?;
        progress.add(0, count, bytes as u64);
    }
    let sum = reading.await.unwrap_or_else(|error| Err(error.to_string()))?;
    if range.sum.is_some_and(|checked| checked != sum) {
        return Err(
            "the files have other entries than when they were checked: begin again with another --state"
                .to_string(),
        );
    }
    let mut state = import.state.lock();
    state.ranges[number].sum = Some(sum);
    state.ranges[number].is_copied = true;
    import.file.save(&state)
}

fn read(import: &Import, range: &Range, sender: &mpsc::Sender<Batch>) -> Result<Sum, String> {
    let mut sum = Sum::default();
    let mut rows = RowSums::default();
    let mut batch = Batch::default();
    let mut mapper = Mapper::new(&import.mapping);
    let failed = |error| import.source.shown(&error);
    let mut entries = import.source.entries(range).map_err(failed)?;
    while entries.next().map_err(failed)? {
        let mapped = mapper.map(entries.key(), entries.value());
        let cell = mapped
            .map_err(|refusal| format!("entries such as {} {}", shown(entries.key()), refusal.text()))?;
        if let Some(row) = rows.add(&cell) {
            sum.add(&row.sum);
        }
        batch.bytes += cell.bytes().len();
        batch.cells.push(cell);
        if batch.bytes >= BATCH_BYTES && sender.blocking_send(std::mem::take(&mut batch)).is_err() {
            return Ok(sum); // the writer has failed, and says why
        }
    }
    if let Some(row) = rows.finish() {
        sum.add(&row.sum);
    }
    if !batch.cells.is_empty() {
        let _ = sender.blocking_send(batch);
    }
    Ok(sum)
}

fn mutations(cells: Vec<Cell>) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut cells = cells.into_iter().peekable();
    while let Some(first) = cells.next() {
        let row: Bytes = first.bytes().slice_ref(first.row());
        let mut run = vec![first];
        while let Some(next) = cells.next_if(|next| next.row() == &row[..]) {
            run.push(next);
        }
        actions.push(Action::Mutate(Mutation::put(row, run)));
    }
    actions
}
