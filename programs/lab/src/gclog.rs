//! Reads what a JVM's collector wrote about itself.
//!
//! ```text
//! bytes ─ reader.rs ─ lines ─ line.rs ─ message ─┬─ unified.rs (JDK 9 to 25) ─┬─ facts ─ reader.rs ─ Log ─ table.rs ─ print.rs
//!                                               └─ jdk8.rs ──────────────────┘
//! ```
//!
//! G1, Parallel, Serial, CMS, ZGC (with one generation and with two) and Shenandoah (likewise). Which decorations a log has
//! does not matter, as long as it has the messages of `-Xlog:gc*,safepoint`; with `-Xlog:gc` alone there are pauses and heap sizes,
//! without safepoints.
//!
//! Two numbers that look alike are kept apart. A *pause* is what the collector did while all threads stood still. A
//! *safepoint* is the standing still: it begins when the JVM wants it, contains the time until the last thread has
//! stopped, and may have nothing to do with memory (thread dumps, deoptimization, bias revocation). Clients feel safepoints.

mod command;
mod events;
mod jdk8;
mod line;
mod numbers;
mod print;
mod reader;
mod table;
#[cfg(test)]
mod tests;
mod unified;

pub use command::{GclogArgs, run};
pub use events::{HeapChange, Lengths, Memory, Name, Names, Pause, Safepoints, Stall};
pub use reader::{Jvm, Log, Reader};
pub use table::{Row, Table};
