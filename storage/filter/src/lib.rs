//! HBase's filters and comparators: what a scan asks them, and what each of them answers.

mod comparator;
mod filter;
mod parse;

pub use comparator::{Comparator, compare_op_keeps};
pub use filter::{Filter, ReturnCode, RowOutcome, finish_row};
pub use parse::{parse_comparator, parse_filter};
