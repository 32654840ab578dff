//! From the bytes of a request to filters and comparators.

use halcyon_cell::{Error, Result};
use halcyon_proto::pb;

use crate::{Comparator, Filter};

/// Builds the filter that a request names by its Java class.
///
/// Errors (kind `Invalid`): the class is unknown, its bytes are not its message, or a limit is exceeded.
pub fn parse_filter(filter: &pb::Filter) -> Result<Box<dyn Filter>> {
    Err(Error::invalid(format!("unknown filter class {}", filter.name)))
}

/// As [`parse_filter`], for comparators.
pub fn parse_comparator(comparator: &pb::Comparator) -> Result<Box<dyn Comparator>> {
    Err(Error::invalid(format!("unknown comparator class {}", comparator.name)))
}
