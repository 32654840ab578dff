//! HBase's filters and comparators: what a scan asks them, and what each of them answers.
//!
//! [`parse_filter`] makes a [`Filter`] of a request's bytes; `filter.rs` tells in which order a scan asks it.
//! Every class of HBase 2.6.4 is here, checked against its source and, by the golden files in `testdata/`,
//! against its behaviour. A scan compares rows and hints with `CellComparator::Default`, as HBase's filters
//! do on every table.
//!
//! ```text
//! filter.rs           the questions                    list.rs             FilterList of AND and of OR
//! comparator.rs       the comparison                   wrap.rs             SkipFilter, WhileMatchFilter
//! rows.rs             by row key, counting rows        multi_row_range.rs  ranges of rows
//! columns.rs          by qualifier, counting columns   fuzzy_row.rs        rows with any bytes in places
//! values.rs           by family, timestamp, value      comparators/        bytes, decimals, text
//! parse.rs, wire.rs   from bytes, with limits          regex/              Java's patterns
//! looks.rs            what comparing costs         kept.rs             what they keep of a row
//! ```
//!
//! Where HBase reads behind the end of a value, overflows, or loses rows by a slip, the code says so and does
//! what was meant; everywhere else it does what HBase does, including that `NO_OP` keeps nothing.
//!
//! When you change what a filter answers, run `testing/compat/golden/FilterGolden.java` again and compare;
//! when you add a class, add it to `parse.rs`, to that program and to the fuzz seeds, and tell in `held_bytes` what it keeps.

mod columns;
mod comparator;
mod comparators;
mod expressions;
mod filter;
mod fuzzy_row;
mod kept;
mod list;
mod looks;
mod multi_row_range;
mod parse;
mod regex;
mod rows;
mod values;
mod wire;
mod wrap;

pub use comparator::{Comparator, compare_op_keeps};
pub use filter::{Filter, ReturnCode, RowOutcome, finish_row};
pub use parse::{
    FILTER_DEPTH_MAX, FILTERS_COUNT_MAX, check_filter, parse_comparator, parse_filter, parse_filters,
};
