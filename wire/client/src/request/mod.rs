//! What a caller asks for: reads, mutations and conditions, as builders of HBase's messages.

mod check;
mod get;
mod mutation;
mod scan;

pub use check::{CheckAndMutate, CheckAndMutateBuilder};
pub use get::Get;
pub use mutation::{Append, Delete, Increment, Mutation, Put, RowMutations};
pub use scan::{ReadType, RowParts, Scan};

use bytes::Bytes;
use halcyon_proto::pb;

use crate::ClientError;

/// Longest row key (`HConstants.MAX_ROW_LENGTH`).
const ROW_BYTES_MAX: usize = i16::MAX as usize;

pub(crate) fn copied(bytes: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(bytes.as_ref())
}

/// A row key as HBase allows it for a read or a mutation.
pub(crate) fn check_row(row: &[u8]) -> Result<(), ClientError> {
    match row.len() {
        0 => Err(ClientError::invalid("the row key is empty")),
        1..=ROW_BYTES_MAX => Ok(()),
        len => Err(ClientError::invalid(format!("a row key of {len} bytes; {ROW_BYTES_MAX} are allowed"))),
    }
}

/// Adds a column to those that are wanted; without a qualifier, the whole family.
fn add_column(columns: &mut Vec<pb::Column>, family: &[u8], qualifier: Option<&[u8]>) {
    let at = columns.iter().position(|column| column.family == family);
    match (at, qualifier) {
        (Some(at), None) => columns[at].qualifier.clear(),
        (Some(at), Some(qualifier)) => {
            // no qualifiers: the whole family is wanted already
            if !columns[at].qualifier.is_empty() {
                columns[at].qualifier.push(copied(qualifier));
            }
        }
        (None, qualifier) => columns.push(pb::Column {
            family: copied(family),
            qualifier: qualifier.map(copied).into_iter().collect(),
        }),
    }
}

/// Timestamps from `from` (inclusive) to `to` (exclusive).
fn time_range(from: i64, to: i64) -> pb::TimeRange {
    pb::TimeRange { from: Some(from.max(0) as u64), to: Some(to.max(0) as u64) }
}

fn attribute(name: &str, value: impl AsRef<[u8]>) -> pb::NameBytesPair {
    pb::NameBytesPair { name: name.to_string(), value: Some(copied(value)) }
}

/// Methods that gets and scans share.
macro_rules! read_options {
    () => {
        /// Reads a family. Without families and columns, all are read.
        pub fn family(mut self, family: impl AsRef<[u8]>) -> Self {
            super::add_column(&mut self.message.column, family.as_ref(), None);
            self
        }

        /// Reads a column.
        pub fn column(mut self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Self {
            super::add_column(&mut self.message.column, family.as_ref(), Some(qualifier.as_ref()));
            self
        }

        /// Versions of each column to return at most; 1 by default.
        pub fn versions(mut self, count: u32) -> Self {
            self.message.max_versions = Some(count);
            self
        }

        /// Returns all versions that the families keep.
        pub fn all_versions(self) -> Self {
            self.versions(i32::MAX as u32)
        }

        /// Reads only cells with timestamps from `from` (inclusive) to `to` (exclusive), in milliseconds.
        pub fn time_range(mut self, from: i64, to: i64) -> Self {
            self.message.time_range = Some(super::time_range(from, to));
            self
        }

        /// Reads only cells with this timestamp.
        pub fn timestamp(self, timestamp: i64) -> Self {
            self.time_range(timestamp, timestamp.saturating_add(1))
        }

        /// A time range for one family alone.
        pub fn family_time_range(mut self, family: impl AsRef<[u8]>, from: i64, to: i64) -> Self {
            let range = halcyon_proto::pb::ColumnFamilyTimeRange {
                column_family: super::copied(family),
                time_range: super::time_range(from, to),
            };
            self.message.cf_time_range.push(range);
            self
        }

        /// Drops cells on the server.
        pub fn filter(mut self, filter: crate::Filter) -> Self {
            self.message.filter = Some(filter.into_message());
            self
        }

        /// Whether blocks that are read stay in the block cache; true by default.
        pub fn cache_blocks(mut self, cache: bool) -> Self {
            self.message.cache_blocks = Some(cache);
            self
        }

        /// Cells of each family to return at most.
        pub fn cells_per_family(mut self, count: u32) -> Self {
            self.message.store_limit = Some(count);
            self
        }

        /// Cells of each family to skip.
        pub fn skip_cells_per_family(mut self, count: u32) -> Self {
            self.message.store_offset = Some(count);
            self
        }

        /// Reads families that the filter does not need only for rows that it keeps.
        pub fn load_families_on_demand(mut self, on_demand: bool) -> Self {
            self.message.load_column_families_on_demand = Some(on_demand);
            self
        }

        /// Sets an attribute of the request (`_authorizations`).
        pub fn attribute(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
            self.message.attribute.push(super::attribute(name, value));
            self
        }
    };
}
pub(crate) use read_options;
