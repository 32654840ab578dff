//! Recorded histories of operations on rows, and checks that they are linearizable.
//!
//! A recorder runs operations against a cluster, and writes each with the time when it was called and the time when its
//! answer came ([`history`]). A checker then looks for an order of the operations that explains all answers: each operation
//! has its place between its call and its answer. If there is none, a read was stale, a write was lost or done twice, or a
//! row was mixed. There are four kinds:
//!
//! | kind | rows are | operations | checker |
//! |---|---|---|---|
//! | lists | a list of unique ids | append, get | [`lists`]: the value shows the order; no search |
//! | registers | a number | put, get, check-and-mutate, increment, delete | [`registers`]: a search, with limits |
//! | rows | many columns with one number | put of all columns, delete of the row, get, scan | [`rows`]: whole, then as registers |
//! | versions | a set of numbers, which are timestamps | put, delete of one version, get and scan of a range of time | [`versions`]: each number is a register |
//!
//! A write without an answer may have happened, may happen later, or never. A verdict of "violated" comes with a small set
//! of operations that contradict each other. If the search reaches its limits, the verdict is "not decided".
//!
//! - `history.rs`: operations and their results; `text.rs`: the format of the files
//! - `lists.rs`, `rows.rs`, `versions.rs`, `registers/`: the checkers; `registers/search.rs` the search, `evidence.rs` what is shown of it
//! - `coverage.rs`: whether a history has answers during each fault, and reads that a flush, a compaction and a replay lie before
//! - `check.rs`: files in, reports out; `limits.rs`: when a search gives up
//! - `record/`: the recorder with `halcyon-client`. The recorder with HBase's Java client is
//!   `testing/compat/client26/.../histories`
//!
//! When you change the format, change `text.rs`, the Java recorder and docs/HISTORIES.md together.

#![allow(clippy::disallowed_methods)] // a tool for people: real files

pub mod check;
pub mod coverage;
pub mod history;
pub mod limits;
pub mod lists;
pub mod record;
pub mod registers;
pub mod report;
pub mod rows;
pub mod text;
pub mod versions;

pub use check::{check_files, check_histories};
pub use history::{Action, Found, History, Kind, Operation, Outcome};
pub use limits::Limits;
pub use report::{Report, Verdict, Violation};
