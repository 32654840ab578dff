//! Write-ahead logs: those that are written, and those that earlier servers left.

pub(crate) mod logs;
pub(crate) mod recover;
mod sync_threads;
