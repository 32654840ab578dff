//! Filters: which cells and rows a server drops before it responds.
//!
//! A [`Filter`] is the name of an HBase class and the bytes of its message. Constructors make those of HBase 2.6, lists
//! nest, and [`Filter::parse`] reads HBase's filter language.

mod comparator;
mod language;
#[cfg(test)]
mod tests;

pub use comparator::{BitOp, Comparator, CompareOp};

use halcyon_proto::pb;
use prost::Message;

use crate::request::copied;

const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

/// A filter of a get or scan.
///
/// ```
/// use halcyon_client::{CompareOp, Comparator, Filter};
///
/// let filter = Filter::all([
///     Filter::prefix("user-"),
///     Filter::any([
///         Filter::single_column_value("f", "state", CompareOp::Equal, Comparator::binary("new")),
///         Filter::value(CompareOp::Equal, Comparator::substring("urgent")),
///     ]),
/// ]);
/// let parsed = Filter::parse("PrefixFilter('user-') AND PageFilter(10)").unwrap();
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    message: pb::Filter,
}

/// A range of rows of [`Filter::row_ranges`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRange {
    /// First row; empty for the beginning of the table.
    pub start: Vec<u8>,
    /// Whether the first row belongs to the range.
    pub start_inclusive: bool,
    /// Last row; empty for the end of the table.
    pub stop: Vec<u8>,
    /// Whether the last row belongs to the range.
    pub stop_inclusive: bool,
}

impl RowRange {
    /// Rows from `start` (inclusive) to `stop` (exclusive).
    pub fn new(start: impl AsRef<[u8]>, stop: impl AsRef<[u8]>) -> RowRange {
        RowRange {
            start: start.as_ref().to_vec(),
            start_inclusive: true,
            stop: stop.as_ref().to_vec(),
            stop_inclusive: false,
        }
    }
}

impl Filter {
    fn of(class: &str, message: &impl Message) -> Filter {
        Filter::custom(format!("{PACKAGE}{class}"), message.encode_to_vec())
    }

    /// A filter class of the server's by its full Java name, with its serialized form.
    pub fn custom(class: impl Into<String>, serialized: impl AsRef<[u8]>) -> Filter {
        Filter { message: pb::Filter { name: class.into(), serialized_filter: Some(copied(serialized)) } }
    }

    /// Reads HBase's filter language: `PrefixFilter('a') AND (KeyOnlyFilter() OR PageFilter(10))`.
    pub fn parse(text: &str) -> Result<Filter, crate::ClientError> {
        language::parse(text.as_bytes())
    }

    /// As [`Filter::parse`], for text with bytes that are not UTF-8.
    pub fn parse_bytes(text: &[u8]) -> Result<Filter, crate::ClientError> {
        language::parse(text)
    }

    /// Full Java name of the class.
    pub fn class(&self) -> &str {
        &self.message.name
    }

    pub(crate) fn into_message(self) -> pb::Filter {
        self.message
    }

    // Lists and wrappers.

    /// What all filters keep (`FilterList`, `MUST_PASS_ALL`).
    pub fn all(filters: impl IntoIterator<Item = Filter>) -> Filter {
        Filter::list(pb::filter_list::Operator::MustPassAll, filters)
    }

    /// What one of the filters keeps (`FilterList`, `MUST_PASS_ONE`).
    pub fn any(filters: impl IntoIterator<Item = Filter>) -> Filter {
        Filter::list(pb::filter_list::Operator::MustPassOne, filters)
    }

    fn list(operator: pb::filter_list::Operator, filters: impl IntoIterator<Item = Filter>) -> Filter {
        let filters = filters.into_iter().map(Filter::into_message).collect();
        Filter::of("FilterList", &pb::FilterList { operator: operator as i32, filters })
    }

    /// Drops the whole row if the filter drops one of its cells (`SkipFilter`).
    pub fn skip(filter: Filter) -> Filter {
        Filter::of("SkipFilter", &pb::SkipFilter { filter: filter.message })
    }

    /// Ends the scan as soon as the filter drops something (`WhileMatchFilter`).
    pub fn while_match(filter: Filter) -> Filter {
        Filter::of("WhileMatchFilter", &pb::WhileMatchFilter { filter: filter.message })
    }

    // By row.

    /// Compares the row key (`RowFilter`).
    pub fn row(op: CompareOp, comparator: Comparator) -> Filter {
        Filter::of("RowFilter", &pb::RowFilter { compare_filter: compare(op, comparator) })
    }

    /// Rows with a prefix (`PrefixFilter`).
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Filter {
        Filter::of("PrefixFilter", &pb::PrefixFilter { prefix: Some(copied(prefix)) })
    }

    /// Ends the scan behind this row (`InclusiveStopFilter`).
    pub fn inclusive_stop(row: impl AsRef<[u8]>) -> Filter {
        Filter::of("InclusiveStopFilter", &pb::InclusiveStopFilter { stop_row_key: Some(copied(row)) })
    }

    /// So many rows of each region (`PageFilter`). [`crate::Scan::limit`] counts rows of the whole scan.
    pub fn page(rows: u32) -> Filter {
        Filter::of("PageFilter", &pb::PageFilter { page_size: rows.into() })
    }

    /// Each row with this chance (`RandomRowFilter`).
    pub fn random_row(chance: f32) -> Filter {
        Filter::of("RandomRowFilter", &pb::RandomRowFilter { chance })
    }

    /// Rows in any of the ranges (`MultiRowRangeFilter`).
    pub fn row_ranges(ranges: impl IntoIterator<Item = RowRange>) -> Filter {
        let range = |range: RowRange| pb::RowRange {
            start_row: Some(range.start.into()),
            start_row_inclusive: Some(range.start_inclusive),
            stop_row: Some(range.stop.into()),
            stop_row_inclusive: Some(range.stop_inclusive),
        };
        let row_range_list = ranges.into_iter().map(range).collect();
        Filter::of("MultiRowRangeFilter", &pb::MultiRowRangeFilter { row_range_list })
    }

    /// Rows that match one of the keys (`FuzzyRowFilter`). A key is bytes and a mask of the same length, in which 0 says
    /// that the byte must be equal and 1 that any byte matches.
    pub fn fuzzy_rows<K, M>(keys: impl IntoIterator<Item = (K, M)>) -> Filter
    where
        K: AsRef<[u8]>,
        M: AsRef<[u8]>,
    {
        // As Java sends it: -1 for a byte that must be equal, 2 for any byte (its unsafe form).
        let mask =
            |mask: &[u8]| mask.iter().map(|byte| if *byte == 0 { 0xff } else { 2 }).collect::<Vec<u8>>();
        let key = |(key, wanted): (K, M)| pb::BytesBytesPair {
            first: copied(key),
            second: bytes::Bytes::from(mask(wanted.as_ref())),
        };
        let fuzzy_keys_data = keys.into_iter().map(key).collect();
        Filter::of("FuzzyRowFilter", &pb::FuzzyRowFilter { fuzzy_keys_data, is_mask_v2: Some(true) })
    }

    // By column.

    /// Compares the family (`FamilyFilter`).
    pub fn family(op: CompareOp, comparator: Comparator) -> Filter {
        Filter::of("FamilyFilter", &pb::FamilyFilter { compare_filter: compare(op, comparator) })
    }

    /// Compares the qualifier (`QualifierFilter`).
    pub fn qualifier(op: CompareOp, comparator: Comparator) -> Filter {
        Filter::of("QualifierFilter", &pb::QualifierFilter { compare_filter: compare(op, comparator) })
    }

    /// Qualifiers with a prefix (`ColumnPrefixFilter`).
    pub fn column_prefix(prefix: impl AsRef<[u8]>) -> Filter {
        Filter::of("ColumnPrefixFilter", &pb::ColumnPrefixFilter { prefix: copied(prefix) })
    }

    /// Qualifiers with one of the prefixes (`MultipleColumnPrefixFilter`).
    pub fn column_prefixes<P: AsRef<[u8]>>(prefixes: impl IntoIterator<Item = P>) -> Filter {
        let mut sorted_prefixes: Vec<_> = prefixes.into_iter().map(copied).collect();
        sorted_prefixes.sort();
        sorted_prefixes.dedup();
        Filter::of("MultipleColumnPrefixFilter", &pb::MultipleColumnPrefixFilter { sorted_prefixes })
    }

    /// Qualifiers in a range; `None` is open on that side. The flags say whether the bound is inclusive
    /// (`ColumnRangeFilter`).
    pub fn column_range(min: Option<(&[u8], bool)>, max: Option<(&[u8], bool)>) -> Filter {
        let message = pb::ColumnRangeFilter {
            min_column: min.map(|(bound, _)| copied(bound)),
            min_column_inclusive: Some(min.is_none_or(|(_, inclusive)| inclusive)),
            max_column: max.map(|(bound, _)| copied(bound)),
            max_column_inclusive: Some(max.is_some_and(|(_, inclusive)| inclusive)),
        };
        Filter::of("ColumnRangeFilter", &message)
    }

    /// The first columns of each row (`ColumnCountGetFilter`).
    pub fn column_count(columns: u32) -> Filter {
        Filter::of("ColumnCountGetFilter", &pb::ColumnCountGetFilter { limit: to_int(columns) })
    }

    /// Columns of each row from a position on (`ColumnPaginationFilter`).
    pub fn column_page(columns: u32, skip: u32) -> Filter {
        let (limit, offset) = (to_int(columns), Some(to_int(skip)));
        let message = pb::ColumnPaginationFilter { limit, offset, column_offset: None };
        Filter::of("ColumnPaginationFilter", &message)
    }

    /// Columns of each row from a qualifier on (`ColumnPaginationFilter`).
    pub fn column_page_from(columns: u32, qualifier: impl AsRef<[u8]>) -> Filter {
        let column_offset = Some(copied(qualifier));
        let message = pb::ColumnPaginationFilter { limit: to_int(columns), offset: None, column_offset };
        Filter::of("ColumnPaginationFilter", &message)
    }

    /// The first cell of each row (`FirstKeyOnlyFilter`).
    pub fn first_key_only() -> Filter {
        Filter::of("FirstKeyOnlyFilter", &pb::FirstKeyOnlyFilter {})
    }

    /// Cells of each row up to the first of these qualifiers (`FirstKeyValueMatchingQualifiersFilter`).
    pub fn first_key_of_qualifiers<Q: AsRef<[u8]>>(qualifiers: impl IntoIterator<Item = Q>) -> Filter {
        let qualifiers = qualifiers.into_iter().map(copied).collect();
        let message = pb::FirstKeyValueMatchingQualifiersFilter { qualifiers };
        Filter::of("FirstKeyValueMatchingQualifiersFilter", &message)
    }

    // By value and timestamp.

    /// Compares the value (`ValueFilter`).
    pub fn value(op: CompareOp, comparator: Comparator) -> Filter {
        Filter::of("ValueFilter", &pb::ValueFilter { compare_filter: compare(op, comparator) })
    }

    /// Cells of one column whose value compares so (`ColumnValueFilter`).
    pub fn column_value(
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        op: CompareOp,
        comparator: Comparator,
    ) -> Filter {
        let message = pb::ColumnValueFilter {
            family: copied(family),
            qualifier: copied(qualifier),
            compare_op: op.to_pb() as i32,
            comparator: comparator.into_message(),
        };
        Filter::of("ColumnValueFilter", &message)
    }

    /// Rows whose column compares so, and rows without the column (`SingleColumnValueFilter`).
    pub fn single_column_value(
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        op: CompareOp,
        comparator: Comparator,
    ) -> Filter {
        SingleColumnValue::new(family, qualifier, op, comparator).build()
    }

    /// Cells of columns that have a cell of the same timestamp in the given column (`DependentColumnFilter`), if the
    /// value of that cell compares so.
    pub fn dependent_column(
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        drop_column: bool,
        compares: Option<(CompareOp, Comparator)>,
    ) -> Filter {
        let compare_filter = match compares {
            Some((op, comparator)) => compare(op, comparator),
            None => pb::CompareFilter { compare_op: pb::CompareType::NoOp as i32, comparator: None },
        };
        let message = pb::DependentColumnFilter {
            compare_filter,
            column_family: Some(copied(family)),
            column_qualifier: Some(copied(qualifier)),
            drop_dependent_column: Some(drop_column),
        };
        Filter::of("DependentColumnFilter", &message)
    }

    /// Cells with one of the timestamps (`TimestampsFilter`).
    pub fn timestamps(timestamps: impl IntoIterator<Item = i64>) -> Filter {
        let timestamps = timestamps.into_iter().collect();
        Filter::of("TimestampsFilter", &pb::TimestampsFilter { timestamps, can_hint: Some(false) })
    }

    /// Keys without values; with `length_as_value`, the value is the length of the dropped one (`KeyOnlyFilter`).
    pub fn key_only(length_as_value: bool) -> Filter {
        Filter::of("KeyOnlyFilter", &pb::KeyOnlyFilter { len_as_val: length_as_value })
    }
}

/// A filter on a column's value with its options (`SingleColumnValueFilter`, `SingleColumnValueExcludeFilter`).
#[derive(Clone, Debug)]
pub struct SingleColumnValue {
    message: pb::SingleColumnValueFilter,
    exclude: bool,
}

impl SingleColumnValue {
    /// Rows whose column compares so, and rows without the column.
    pub fn new(
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        op: CompareOp,
        comparator: Comparator,
    ) -> SingleColumnValue {
        let message = pb::SingleColumnValueFilter {
            column_family: Some(copied(family)),
            column_qualifier: Some(copied(qualifier)),
            compare_op: op.to_pb() as i32,
            comparator: comparator.into_message(),
            filter_if_missing: Some(false),
            latest_version_only: Some(true),
        };
        SingleColumnValue { message, exclude: false }
    }

    /// Whether rows without the column are dropped; false by default.
    pub fn filter_if_missing(mut self, filter: bool) -> SingleColumnValue {
        self.message.filter_if_missing = Some(filter);
        self
    }

    /// Whether only the newest version is compared; true by default.
    pub fn latest_version_only(mut self, latest: bool) -> SingleColumnValue {
        self.message.latest_version_only = Some(latest);
        self
    }

    /// Does not return the column itself (`SingleColumnValueExcludeFilter`).
    pub fn exclude_column(mut self) -> SingleColumnValue {
        self.exclude = true;
        self
    }

    /// The filter.
    pub fn build(self) -> Filter {
        match self.exclude {
            false => Filter::of("SingleColumnValueFilter", &self.message),
            true => {
                let message = pb::SingleColumnValueExcludeFilter { single_column_value_filter: self.message };
                Filter::of("SingleColumnValueExcludeFilter", &message)
            }
        }
    }
}

fn compare(op: CompareOp, comparator: Comparator) -> pb::CompareFilter {
    pb::CompareFilter { compare_op: op.to_pb() as i32, comparator: Some(comparator.into_message()) }
}

fn to_int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
