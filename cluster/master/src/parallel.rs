//! One piece of work for many regions, on a few threads at a time.

use std::panic::resume_unwind;
use std::sync::Arc;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::{Condvar, Mutex, contained, is_contained, spawn_thread};

/// Runs `work` on every item, on at most `threads_max` threads, and returns the results in the items' order.
/// All items are tried; the first error wins. If the caller's work is contained, so is this: an assertion that fails ends the
/// caller's work.
pub(crate) fn for_each<T, R, F>(threads_max: usize, items: Vec<T>, work: F) -> Result<Vec<R>>
where
    T: Send + 'static,
    R: Send + 'static,
    F: Fn(T) -> Result<R> + Send + Sync + 'static,
{
    let count = items.len();
    if count <= 1 || threads_max <= 1 {
        let results: Vec<_> = items.into_iter().map(work).collect();
        return results.into_iter().collect();
    }
    let shared = Arc::new(Shared {
        queue: Mutex::new(items.into_iter().enumerate()),
        results: Mutex::new(Results { done: Vec::with_capacity(count), failure: None, threads: 0 }),
        changed: Condvar::new(),
    });
    let work = Arc::new(work);
    let is_contained = is_contained();
    for _ in 0..threads_max.min(count) {
        let (worker, work) = (Worker::of(&shared), work.clone());
        spawn_thread("master-regions", move || {
            loop {
                let next = worker.0.queue.lock().next();
                let Some((at, item)) = next else { return };
                let result = match is_contained {
                    true => contained(|| work(item)),
                    false => Ok(work(item)),
                };
                let mut results = worker.0.results.lock();
                match result {
                    Ok(result) => results.done.push((at, result)),
                    Err(failure) => results.failure = Some(failure),
                }
            }
        })?;
    }
    let mut all = shared.results.lock();
    while all.threads > 0 {
        shared.changed.wait(&mut all);
    }
    if let Some(failure) = all.failure.take() {
        drop(all);
        resume_unwind(Box::new(failure)); // to where the caller's work is contained
    }
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    let mut failed = None;
    for (at, result) in all.done.drain(..) {
        match result {
            Ok(value) => {
                assert!(results[at].is_none(), "each piece of work is done once");
                results[at] = Some(value);
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let whole: Option<Vec<R>> = results.into_iter().collect();
    whole.ok_or_else(|| Error::new(ErrorKind::Io, "a thread that works on regions ended early"))
}

struct Shared<T, R> {
    queue: Mutex<std::iter::Enumerate<std::vec::IntoIter<T>>>,
    results: Mutex<Results<R>>,
    /// A thread has ended.
    changed: Condvar,
}

struct Results<R> {
    /// With their places, in the order of their ends.
    done: Vec<(usize, Result<R>)>,
    /// An assertion that has failed in contained work.
    failure: Option<String>,
    /// Threads that have not ended.
    threads: usize,
}

/// A thread, which counts until it ends, however that is.
struct Worker<T, R>(Arc<Shared<T, R>>);

impl<T, R> Worker<T, R> {
    fn of(shared: &Arc<Shared<T, R>>) -> Worker<T, R> {
        shared.results.lock().threads += 1;
        Worker(shared.clone())
    }
}

impl<T, R> Drop for Worker<T, R> {
    fn drop(&mut self) {
        self.0.results.lock().threads -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_and_reports_errors() {
        let doubled = for_each(4, (0..100).collect(), |n: u32| Ok(n * 2)).unwrap();
        assert_eq!(doubled, (0..100).map(|n| n * 2).collect::<Vec<_>>());
        let failed = for_each(4, vec![1, 2, 3], |n: u32| match n {
            2 => Err(Error::invalid("two")),
            _ => Ok(n),
        });
        assert_eq!(failed.unwrap_err().message(), "two");
    }
}
