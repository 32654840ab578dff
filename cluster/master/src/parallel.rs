//! One piece of work for many regions, on a few threads at a time.

use std::sync::Arc;
use std::sync::mpsc;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::spawn_thread;
use parking_lot::Mutex;

/// Runs `work` on every item, on at most `threads_max` threads, and returns the results in the items' order.
/// All items are tried; the first error wins.
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
    let queue = Arc::new(Mutex::new(items.into_iter().enumerate()));
    let work = Arc::new(work);
    let (sender, receiver) = mpsc::channel();
    for _ in 0..threads_max.min(count) {
        let (queue, work, sender) = (queue.clone(), work.clone(), sender.clone());
        spawn_thread("master-regions", move || {
            loop {
                let next = queue.lock().next();
                let Some((at, item)) = next else { return };
                if sender.send((at, work(item))).is_err() {
                    return;
                }
            }
        })?;
    }
    drop(sender);
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    let mut failed = None;
    for (at, result) in receiver {
        match result {
            Ok(value) => results[at] = Some(value),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let whole: Option<Vec<R>> = results.into_iter().collect();
    whole.ok_or_else(|| Error::new(ErrorKind::Io, "a thread that works on regions ended early"))
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
