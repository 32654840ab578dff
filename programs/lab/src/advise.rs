//! Flags for a region server's JVM, each with its reason and where that was published.
//!
//! ```text
//! machine.rs  what is asked about: JDK, heap, cores, collector, memory outside the heap
//! rules.rs    what is recommended, what is a trap, what is gone: tables of condition, text and source
//! flags.rs    a JVM command line, cut into flags     env_file.rs  hbase-env.sh, read without a shell
//! compare.rs  flags in use against the tables: keep, change, add, drop
//! ```
//!
//! The rules repeat what others measured and wrote; none of it is our own measurement. Sources contradict each other in
//! places, and all are older than the newest JDK: each line says where it comes from so that the reader can judge.

mod command;
mod compare;
mod env_file;
mod flags;
mod machine;
mod print;
mod rules;
#[cfg(test)]
mod tests;

pub use command::{AdviseArgs, run};
pub use compare::{Change, Verdict, compare};
pub use env_file::EnvFile;
pub use flags::Flag;
pub use machine::{Collector, Machine, parse_size, print_size};
pub use rules::{Advice, Source, Warning, advice, warnings};
