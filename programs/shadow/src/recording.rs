//! Reads in files. `FORMAT.md` beside `Cargo.toml` draws the bytes.
//!
//! - `format.rs` has the records and their form; it believes no byte that it reads
//! - `writer.rs` writes them behind a queue with a limit, and begins a new file when one is full
//! - `reader.rs` reads them again, file after file

pub(crate) mod format;
pub(crate) mod reader;
pub(crate) mod writer;
