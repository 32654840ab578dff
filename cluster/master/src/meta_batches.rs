//! Rows of `hbase:meta` that several threads write at the same time, in one request.
//!
//! Each region that opens is shown in meta before it serves. When a cluster starts, many do at once. The first thread writes its rows
//! at once; what comes meanwhile is written together by the next.

use std::collections::HashMap;

use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_env::{Condvar, Mutex};

/// Writers whose rows are written together.
const BATCH_MAX: usize = 256;

/// The cells of one writer, by their timestamp.
type Cells = Box<dyn FnOnce(i64) -> Vec<Cell> + Send>;

/// *Thread safety*: all methods from any thread.
#[derive(Default)]
pub(crate) struct MetaBatches {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    newest_ticket: u64,
    waiting: Vec<(u64, Cells)>,
    is_writing: bool,
    /// Of writers that have not looked yet.
    results: HashMap<u64, Result<()>>,
}

impl MetaBatches {
    /// Writes the rows of `cells` by `write`, perhaps with those of others. No other writer may have one of these rows. An error may be
    /// of another one's rows: it says that nobody knows what is written. *Blocking*.
    pub(crate) fn put(
        &self,
        cells: impl FnOnce(i64) -> Vec<Cell> + Send + 'static,
        write: impl Fn(&mut dyn FnMut(i64) -> Vec<Cell>) -> Result<()>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        state.newest_ticket += 1;
        let ticket = state.newest_ticket;
        state.waiting.push((ticket, Box::new(cells)));
        loop {
            if let Some(result) = state.results.remove(&ticket) {
                return result;
            }
            if state.is_writing {
                self.changed.wait(&mut state);
                continue;
            }
            let count = state.waiting.len().min(BATCH_MAX);
            assert!(count > 0, "who waits for a result has rows that wait, or are being written");
            let (tickets, mut batch): (Vec<u64>, Vec<Cells>) = state.waiting.drain(..count).unzip();
            assert!(tickets.is_sorted(), "writers come to their turn in their order, so that each has one");
            state.is_writing = true;
            drop(state);
            let mut writing = Writing { batches: self, tickets, result: Err(ended_early()) };
            writing.result =
                write(&mut |timestamp| batch.drain(..).flat_map(|cells| cells(timestamp)).collect());
            drop(writing);
            state = self.state.lock();
        }
    }
}

/// Writes of these; their writers are told at the end, however that comes.
struct Writing<'a> {
    batches: &'a MetaBatches,
    tickets: Vec<u64>,
    result: Result<()>,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.batches.state.lock();
        assert!(state.is_writing, "two writes at once: the later one could have the older timestamp");
        state.is_writing = false;
        for ticket in &self.tickets {
            let result = match &self.result {
                Ok(()) => Ok(()),
                Err(error) => Err(Error::new(error.kind(), error.message())),
            };
            let before = state.results.insert(*ticket, result);
            assert!(before.is_none(), "the rows of writer {ticket} were written twice");
        }
        self.batches.changed.notify_all();
    }
}

fn ended_early() -> Error {
    Error::new(ErrorKind::Io, "a thread that writes to hbase:meta has ended early")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use halcyon_env::spawn_thread;

    use super::*;

    fn cell(row: &str, timestamp: i64) -> Cell {
        Cell::put(row.as_bytes(), b"info", b"q", timestamp, b"")
    }

    /// The first write waits until all others have come.
    #[test]
    fn rows_that_come_meanwhile_are_written_together() {
        const WRITERS: usize = 20;
        let (batches, written) = (Arc::new(MetaBatches::default()), Arc::new(Mutex::new(Vec::new())));
        let mut threads = Vec::new();
        for n in 0..WRITERS {
            let (batches, written) = (batches.clone(), written.clone());
            let waits = batches.clone();
            let thread = spawn_thread("writer", move || {
                let write = |cells: &mut dyn FnMut(i64) -> Vec<Cell>| {
                    while written.lock().is_empty() && waits.state.lock().newest_ticket < WRITERS as u64 {
                        std::thread::yield_now();
                    }
                    let cells = cells(7);
                    written.lock().push(cells.len());
                    Ok(())
                };
                batches.put(move |timestamp| vec![cell(&n.to_string(), timestamp)], write)
            });
            threads.push(thread.unwrap());
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        let written = written.lock();
        assert_eq!((written.iter().sum::<usize>(), written.len()), (WRITERS, 2), "{written:?}");
    }

    #[test]
    fn an_error_is_of_all_that_were_written_together_and_of_no_others() {
        let (batches, calls) = (MetaBatches::default(), AtomicUsize::new(0));
        let put = || {
            batches.put(
                |timestamp| vec![cell("a", timestamp)],
                |cells| {
                    assert_eq!(cells(1).len(), 1);
                    match calls.fetch_add(1, Ordering::SeqCst) {
                        0 => Err(Error::new(ErrorKind::Busy, "not now")),
                        _ => Ok(()),
                    }
                },
            )
        };
        assert_eq!(put().unwrap_err().message(), "not now");
        put().unwrap();
        assert!(batches.state.lock().results.is_empty());
    }
}
