//! How many flushes and compactions write files at this moment.

use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
pub(crate) struct FileWriters(AtomicUsize);

impl FileWriters {
    /// Counts one more until the guard is dropped.
    pub(crate) fn enter(&self) -> FileWriterGuard<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        FileWriterGuard(self)
    }

    pub(crate) fn busy_count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) struct FileWriterGuard<'a>(&'a FileWriters);

impl Drop for FileWriterGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
