//! Work behind calls: flushes, compactions and their speed, splits, care of the block cache.

pub(crate) mod blocks;
pub(crate) mod compactor;
pub(crate) mod flusher;
pub(crate) mod held;
pub(crate) mod split_policy;
pub(crate) mod splitter;
pub(crate) mod throughput;
