//! The way of a read: sources are merged by a [`source::Heap`], a [`matcher::Matcher`] decides cell by cell,
//! a [`store_scanner::StoreScanner`] does this for one family, and [`RegionScanner`] puts families together
//! into rows and runs the filter over them. One row alone is read by a [`one_row::OneRow`].

mod columns;
mod deletes;
mod found;
mod match_new_version;
pub(crate) mod matcher;
mod new_version;
pub(crate) mod one_row;
mod region_scanner;
pub(crate) mod row_size;
pub(crate) mod source;
pub(crate) mod store_scanner;

pub(crate) use region_scanner::{Parts, ResumableScan};
pub use region_scanner::{RegionScanner, ReleasedView};
