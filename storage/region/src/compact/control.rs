use std::sync::atomic::{AtomicBool, Ordering};

/// Says from outside whether a compaction goes on, and how fast.
pub trait CompactionControl {
    /// Asked on the compaction's thread after every mebibyte of cells that it looked at. `written_bytes` of cells
    /// were written since the last question. May sleep; if `is_closing` says so it must not for long. False ends
    /// the compaction.
    fn go_on(&mut self, written_bytes: u64, is_closing: &dyn Fn() -> bool) -> bool;
}

/// Set, it ends the compaction. Until then there is no limit.
impl CompactionControl for &AtomicBool {
    fn go_on(&mut self, _: u64, _: &dyn Fn() -> bool) -> bool {
        !self.load(Ordering::Relaxed)
    }
}
