//! From the bytes of a request to filters and comparators.
//!
//! Both arrive as the name of a Java class and the bytes of the message that goes with it
//! (`ProtobufUtil.toFilter`, `toComparator`). The known classes are those of HBase 2.6.4's jars, and
//! `FilterAllFilter` of its test jar, which `PerformanceEvaluation --filterAll` sends.

use bytes::Bytes;
use halcyon_cell::{Error, ROW_LEN_MAX, Result};
use halcyon_proto::pb;

use crate::columns::{
    ColumnCountGetFilter, ColumnPaginationFilter, ColumnPrefixFilter, ColumnRangeFilter, FirstKeyOnlyFilter,
    MultipleColumnPrefixFilter, PageStart,
};
use crate::comparator::Comparison;
use crate::comparators::{
    BigDecimalComparator, BinaryComparator, BinaryComponentComparator, BinaryPrefixComparator, BitComparator,
    BitOperator, LongComparator, NullComparator, RegexStringComparator, SubstringComparator,
};
use crate::expressions::Expressions;
use crate::fuzzy_row::{FuzzyKey, FuzzyRowFilter};
use crate::kept::Kept;
use crate::list::{AllOf, AnyOf};
use crate::looks::BYTES_OF_A_LOOK;
use crate::multi_row_range::{MultiRowRangeFilter, RowRange};
use crate::rows::{
    FilterAllFilter, InclusiveStopFilter, PageFilter, PrefixFilter, RandomRowFilter, RowFilter,
};
use crate::values::{
    Column, ColumnValueFilter, DependentColumnFilter, KeyOnlyFilter, Part, PartFilter,
    SingleColumnValueFilter, TimestampsFilter,
};
use crate::wire::{compare_type, decode};
use crate::wrap::{FilterWrapper, SkipFilter, WhileMatchFilter};
use crate::{Comparator, Filter};

/// Filters inside filters, counted from the outermost.
pub const FILTER_DEPTH_MAX: usize = 100;
/// Filters in one request, all lists together.
pub const FILTERS_COUNT_MAX: usize = 100_000;

/// A request that reaches the limit of depth is not refused for its number of filters.
const _: () = assert!(FILTER_DEPTH_MAX <= FILTERS_COUNT_MAX);

/// What a range of rows, or a fuzzy key, costs in looks when it is made and sorted, beside its bytes.
const LOOKS_OF_A_PART: usize = 2;
/// Timestamps of a filter that are sorted for the cost of a look.
const TIMESTAMPS_OF_A_LOOK: usize = 8;

const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

/// Builds the filter that a request names by its Java class.
///
/// Errors (kind `Invalid`): the class is unknown, its bytes are not its message or not sensible, or one of
/// [`FILTER_DEPTH_MAX`] and [`FILTERS_COUNT_MAX`] is exceeded. The message names the class.
///
/// Kinds `NeedsDisk` and `Stopping`: building it would take longer than this thread may, or than anybody waits
/// (`halcyon_env::Patience`).
pub fn parse_filter(filter: &pb::Filter) -> Result<Box<dyn Filter>> {
    FilterParser::new(Expressions::default()).parse_whole(filter)
}

/// As [`parse_filter`], for all filters of one request, such as those of its conditions: limits are for all of them together, and equal
/// expressions are built once.
pub fn parse_filters<'a>(filters: impl IntoIterator<Item = &'a pb::Filter>) -> Result<Vec<Box<dyn Filter>>> {
    let mut parser = FilterParser::new(Expressions::default());
    filters.into_iter().map(|filter| parser.parse_whole(filter)).collect()
}

/// Whether [`parse_filter`] knows all classes in a filter and can read it. Builds no expressions, some of which take long: one that
/// turns out to be too large is none of its errors.
pub fn check_filter(filter: &pb::Filter) -> Result<()> {
    FilterParser::new(Expressions::only_checked()).parse_whole(filter).map(|_| ())
}

/// As [`parse_filter`], for comparators.
pub fn parse_comparator(comparator: &pb::Comparator) -> Result<Box<dyn Comparator>> {
    parse_comparator_of(comparator, &mut Expressions::default())
}

fn parse_comparator_of(
    comparator: &pb::Comparator,
    expressions: &mut Expressions,
) -> Result<Box<dyn Comparator>> {
    let unknown = || Error::invalid(format!("unknown comparator class {}", comparator.name));
    let name = comparator.name.strip_prefix(PACKAGE).ok_or_else(unknown)?;
    let bytes = comparator.serialized_comparator.clone().unwrap_or_default();
    // Most messages hold a ByteArrayComparable, which holds the value.
    let comparable = |comparable: pb::ByteArrayComparable| comparable.value.unwrap_or_default();
    Ok(match name {
        "BinaryComparator" => {
            let message: pb::BinaryComparator = decode(name, &bytes, &[&[1]])?;
            Box::new(BinaryComparator(comparable(message.comparable)))
        }
        "BinaryPrefixComparator" => {
            let message: pb::BinaryPrefixComparator = decode(name, &bytes, &[&[1]])?;
            Box::new(BinaryPrefixComparator(comparable(message.comparable)))
        }
        "BinaryComponentComparator" => {
            let message: pb::BinaryComponentComparator = decode(name, &bytes, &[&[1], &[2]])?;
            Box::new(BinaryComponentComparator { component: message.value, offset: message.offset as usize })
        }
        "LongComparator" => {
            let message: pb::LongComparator = decode(name, &bytes, &[&[1]])?;
            Box::new(LongComparator::new(&comparable(message.comparable))?)
        }
        "BigDecimalComparator" => {
            let message: pb::BigDecimalComparator = decode(name, &bytes, &[&[1]])?;
            Box::new(BigDecimalComparator::new(&comparable(message.comparable))?)
        }
        "BitComparator" => {
            let message: pb::BitComparator = decode(name, &bytes, &[&[1], &[2]])?;
            let operator = match pb::bit_comparator::BitwiseOp::try_from(message.bitwise_op) {
                Ok(pb::bit_comparator::BitwiseOp::And) => BitOperator::And,
                Ok(pb::bit_comparator::BitwiseOp::Or) => BitOperator::Or,
                Ok(pb::bit_comparator::BitwiseOp::Xor) => BitOperator::Xor,
                Err(_) => {
                    let number = message.bitwise_op;
                    return Err(Error::invalid(format!("{name}: unknown bitwise_op {number}")));
                }
            };
            Box::new(BitComparator { bits: comparable(message.comparable), operator })
        }
        "NullComparator" => {
            decode::<pb::NullComparator>(name, &bytes, &[])?;
            Box::new(NullComparator)
        }
        "RegexStringComparator" => {
            let message: pb::RegexStringComparator = decode(name, &bytes, &[&[1], &[2], &[3]])?;
            let engine = message.engine.as_deref();
            let (pattern, flags, charset) = (&message.pattern, message.pattern_flags, &message.charset);
            Box::new(RegexStringComparator::new(pattern, flags, charset, engine, expressions)?)
        }
        "SubstringComparator" => {
            let message: pb::SubstringComparator = decode(name, &bytes, &[&[1]])?;
            Box::new(SubstringComparator::new(&message.substr))
        }
        _ => return Err(unknown()),
    })
}

/// Counts what it has built, against the limits.
struct FilterParser {
    depth: usize,
    filters_count: usize,
    expressions: Expressions,
    kept: Kept,
}

impl FilterParser {
    fn new(expressions: Expressions) -> FilterParser {
        FilterParser { depth: 0, filters_count: 0, expressions, kept: Kept::default() }
    }

    /// A filter that is in no other one.
    fn parse_whole(&mut self, filter: &pb::Filter) -> Result<Box<dyn Filter>> {
        let parsed = self.parse(filter)?;
        assert!(
            self.depth == 0 && (1..=FILTERS_COUNT_MAX).contains(&self.filters_count),
            "each filter that was entered was left, and all were counted: depth {}, {} filters",
            self.depth,
            self.filters_count
        );
        Ok(parsed)
    }

    fn parse(&mut self, filter: &pb::Filter) -> Result<Box<dyn Filter>> {
        let unknown = || Error::invalid(format!("unknown filter class {}", filter.name));
        let name = filter.name.strip_prefix(PACKAGE).ok_or_else(unknown)?;
        self.filters_count += 1;
        if self.depth >= FILTER_DEPTH_MAX || self.filters_count > FILTERS_COUNT_MAX {
            return Err(Error::invalid(format!(
                "{name}: more than {FILTER_DEPTH_MAX} filters inside each other, or {FILTERS_COUNT_MAX} in all"
            )));
        }
        let bytes = filter.serialized_filter.clone().unwrap_or_default();
        self.expressions.spend(1 + bytes.len() / BYTES_OF_A_LOOK)?; // before any of it is decoded
        self.depth += 1;
        let built = match name {
            "FilterList" => self.parse_list(name, &bytes),
            "SkipFilter" => {
                let message: pb::SkipFilter = decode(name, &bytes, &[&[1, 1]])?;
                Ok(Box::new(SkipFilter::new(self.parse(&message.filter)?)) as Box<dyn Filter>)
            }
            "WhileMatchFilter" => {
                let message: pb::WhileMatchFilter = decode(name, &bytes, &[&[1, 1]])?;
                Ok(Box::new(WhileMatchFilter::new(self.parse(&message.filter)?)) as Box<dyn Filter>)
            }
            "FilterWrapper" => {
                let message: pb::FilterWrapper = decode(name, &bytes, &[&[1, 1]])?;
                Ok(Box::new(FilterWrapper::new(self.parse(&message.filter)?)) as Box<dyn Filter>)
            }
            _ => match parse_row_filter(name, &bytes, &mut self.expressions)? {
                Some(filter) => Ok(filter),
                None => match parse_column_filter(name, &bytes, &self.expressions)? {
                    Some(filter) => Ok(filter),
                    None => {
                        let value = parse_value_filter(name, &bytes, &mut self.expressions, &self.kept)?;
                        value.ok_or_else(unknown)
                    }
                },
            },
        };
        self.depth -= 1;
        built
    }

    fn parse_list(&mut self, name: &str, bytes: &Bytes) -> Result<Box<dyn Filter>> {
        let message: pb::FilterList = decode(name, bytes, &[&[1]])?;
        let operator = pb::filter_list::Operator::try_from(message.operator)
            .map_err(|_| Error::invalid(format!("{name}: unknown operator {}", message.operator)))?;
        let mut filters = Vec::new();
        for filter in &message.filters {
            filters.push(self.parse(filter)?);
        }
        Ok(match operator {
            pb::filter_list::Operator::MustPassAll => Box::new(AllOf::new(filters)),
            pb::filter_list::Operator::MustPassOne => Box::new(AnyOf::new(filters, self.kept.clone())),
        })
    }
}

fn parse_row_filter(
    name: &str,
    bytes: &Bytes,
    expressions: &mut Expressions,
) -> Result<Option<Box<dyn Filter>>> {
    Ok(Some(match name {
        "RowFilter" => {
            let message: pb::RowFilter = decode(name, bytes, &[&[1, 1]])?;
            Box::new(RowFilter::new(parse_comparison(name, &message.compare_filter, expressions)?))
        }
        "PrefixFilter" => {
            let message: pb::PrefixFilter = decode(name, bytes, &[])?;
            let prefix = message.prefix.map(|prefix| check_row(name, prefix)).transpose()?;
            Box::new(PrefixFilter::new(prefix))
        }
        "InclusiveStopFilter" => {
            let message: pb::InclusiveStopFilter = decode(name, bytes, &[&[1]])?;
            Box::new(InclusiveStopFilter::new(message.stop_row_key.unwrap_or_default()))
        }
        "PageFilter" => {
            let message: pb::PageFilter = decode(name, bytes, &[&[1]])?;
            Box::new(PageFilter::new(check_not_negative(name, message.page_size)?))
        }
        "FilterAllFilter" => Box::new(FilterAllFilter::default()), // HBase looks at no bytes here
        "RandomRowFilter" => {
            let message: pb::RandomRowFilter = decode(name, bytes, &[&[1]])?;
            let seed = u64::from_ne_bytes(halcyon_env::random_bytes());
            Box::new(RandomRowFilter::new(message.chance, seed))
        }
        "MultiRowRangeFilter" => {
            let message: pb::MultiRowRangeFilter = decode(name, bytes, &[])?;
            expressions.spend(LOOKS_OF_A_PART * message.row_range_list.len())?;
            let ranges = message.row_range_list.into_iter().map(|range| {
                Ok(RowRange {
                    start_inclusive: range.start_row_inclusive(),
                    stop_inclusive: range.stop_row_inclusive(),
                    start: check_row(name, range.start_row.unwrap_or_default())?,
                    stop: check_row(name, range.stop_row.unwrap_or_default())?,
                })
            });
            Box::new(MultiRowRangeFilter::new(ranges.collect::<Result<Vec<RowRange>>>()?)?)
        }
        "FuzzyRowFilter" => {
            let message: pb::FuzzyRowFilter = decode(name, bytes, &[])?;
            if message.fuzzy_keys_data.is_empty() {
                return Err(Error::invalid(format!("{name}: there are no keys")));
            }
            expressions.spend(LOOKS_OF_A_PART * message.fuzzy_keys_data.len())?;
            let mask_v2 = message.is_mask_v2();
            let keys = message
                .fuzzy_keys_data
                .into_iter()
                .map(|pair| FuzzyKey::new(&check_row(name, pair.first)?, &pair.second, mask_v2));
            Box::new(FuzzyRowFilter::new(keys.collect::<Result<Vec<FuzzyKey>>>()?))
        }
        _ => return Ok(None),
    }))
}

fn parse_column_filter(
    name: &str,
    bytes: &Bytes,
    expressions: &Expressions,
) -> Result<Option<Box<dyn Filter>>> {
    Ok(Some(match name {
        "ColumnCountGetFilter" => {
            let message: pb::ColumnCountGetFilter = decode(name, bytes, &[&[1]])?;
            Box::new(ColumnCountGetFilter::new(check_not_negative(name, message.limit)?))
        }
        "ColumnPaginationFilter" => {
            let message: pb::ColumnPaginationFilter = decode(name, bytes, &[&[1]])?;
            let limit = check_not_negative(name, message.limit)?;
            let start = match message.column_offset {
                Some(qualifier) => PageStart::Qualifier(qualifier),
                None => PageStart::Skip(check_not_negative(name, message.offset.unwrap_or(0))?),
            };
            Box::new(ColumnPaginationFilter::new(limit, start))
        }
        "ColumnPrefixFilter" => {
            let message: pb::ColumnPrefixFilter = decode(name, bytes, &[&[1]])?;
            Box::new(ColumnPrefixFilter::new(message.prefix))
        }
        "ColumnRangeFilter" => {
            let message: pb::ColumnRangeFilter = decode(name, bytes, &[])?;
            let min_inclusive = message.min_column_inclusive();
            let max_inclusive = message.max_column_inclusive();
            let (min, max) = (message.min_column, message.max_column);
            Box::new(ColumnRangeFilter::new(min, min_inclusive, max, max_inclusive))
        }
        "MultipleColumnPrefixFilter" => {
            let message: pb::MultipleColumnPrefixFilter = decode(name, bytes, &[])?;
            let mut prefixes = message.sorted_prefixes;
            expressions.spend(prefixes.len())?;
            prefixes.sort();
            if prefixes.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(Error::invalid(format!("{name}: prefixes must be distinct")));
            }
            Box::new(MultipleColumnPrefixFilter::new(prefixes))
        }
        "FirstKeyOnlyFilter" => {
            decode::<pb::FirstKeyOnlyFilter>(name, bytes, &[])?;
            Box::new(FirstKeyOnlyFilter::new())
        }
        "FirstKeyValueMatchingQualifiersFilter" => {
            let message: pb::FirstKeyValueMatchingQualifiersFilter = decode(name, bytes, &[])?;
            expressions.spend(message.qualifiers.len())?;
            Box::new(FirstKeyOnlyFilter::of_qualifiers(message.qualifiers))
        }
        _ => return Ok(None),
    }))
}

fn parse_value_filter(
    name: &str,
    bytes: &Bytes,
    expressions: &mut Expressions,
    kept: &Kept,
) -> Result<Option<Box<dyn Filter>>> {
    Ok(Some(match name {
        "FamilyFilter" => {
            let message: pb::FamilyFilter = decode(name, bytes, &[&[1, 1]])?;
            Box::new(PartFilter::new(
                Part::Family,
                parse_comparison(name, &message.compare_filter, expressions)?,
            ))
        }
        "QualifierFilter" => {
            let message: pb::QualifierFilter = decode(name, bytes, &[&[1, 1]])?;
            Box::new(PartFilter::new(
                Part::Qualifier,
                parse_comparison(name, &message.compare_filter, expressions)?,
            ))
        }
        "ValueFilter" => {
            let message: pb::ValueFilter = decode(name, bytes, &[&[1, 1]])?;
            Box::new(PartFilter::new(
                Part::Value,
                parse_comparison(name, &message.compare_filter, expressions)?,
            ))
        }
        "ColumnValueFilter" => {
            let message: pb::ColumnValueFilter = decode(name, bytes, &[&[1], &[2], &[3], &[4, 1]])?;
            let comparator = parse_comparator_of(&message.comparator, expressions)?;
            let comparison = Comparison::new(compare_type(name, message.compare_op)?, Some(comparator));
            let column = Column { family: message.family, qualifier: message.qualifier };
            Box::new(ColumnValueFilter::new(column, comparison))
        }
        "SingleColumnValueFilter" => {
            let message: pb::SingleColumnValueFilter = decode(name, bytes, &[&[3], &[4, 1]])?;
            Box::new(parse_single_column(name, message, expressions)?)
        }
        "SingleColumnValueExcludeFilter" => {
            let message: pb::SingleColumnValueExcludeFilter =
                decode(name, bytes, &[&[1], &[1, 3], &[1, 4, 1]])?;
            let mut filter = parse_single_column(name, message.single_column_value_filter, expressions)?;
            filter.exclude = true;
            Box::new(filter)
        }
        "DependentColumnFilter" => {
            let message: pb::DependentColumnFilter = decode(name, bytes, &[&[1, 1]])?;
            let drop_column = message.drop_dependent_column();
            let op = compare_type(name, message.compare_filter.compare_op)?;
            let comparator = message.compare_filter.comparator.as_ref();
            let comparator = comparator.map(|one| parse_comparator_of(one, expressions)).transpose()?;
            // Without a comparator the operator does not matter.
            let op = if comparator.is_none() { pb::CompareType::NoOp } else { op };
            let column = Column {
                family: message.column_family.unwrap_or_default(),
                qualifier: message.column_qualifier.unwrap_or_default(),
            };
            let comparison = Comparison::new(op, comparator);
            Box::new(DependentColumnFilter::new(column, drop_column, comparison, kept.empty_room()))
        }
        "TimestampsFilter" => {
            let message: pb::TimestampsFilter = decode(name, bytes, &[])?;
            expressions.spend(message.timestamps.len() / TIMESTAMPS_OF_A_LOOK)?;
            let can_hint = message.can_hint();
            for &timestamp in &message.timestamps {
                check_not_negative::<i64, u64>(name, timestamp)?;
            }
            Box::new(TimestampsFilter::new(message.timestamps, can_hint))
        }
        "KeyOnlyFilter" => {
            let message: pb::KeyOnlyFilter = decode(name, bytes, &[&[1]])?;
            Box::new(KeyOnlyFilter::new(message.len_as_val))
        }
        _ => return Ok(None),
    }))
}

fn parse_single_column(
    name: &str,
    message: pb::SingleColumnValueFilter,
    expressions: &mut Expressions,
) -> Result<SingleColumnValueFilter> {
    let comparator = parse_comparator_of(&message.comparator, expressions)?;
    let comparison = Comparison::new(compare_type(name, message.compare_op)?, Some(comparator));
    let (if_missing, latest_only) = (message.filter_if_missing(), message.latest_version_only());
    let column = Column {
        family: message.column_family.unwrap_or_default(),
        qualifier: message.column_qualifier.unwrap_or_default(),
    };
    let mut filter = SingleColumnValueFilter::new(column, comparison);
    filter.filter_if_missing = if_missing;
    filter.latest_version_only = latest_only;
    Ok(filter)
}

fn parse_comparison(
    name: &str,
    message: &pb::CompareFilter,
    expressions: &mut Expressions,
) -> Result<Comparison> {
    let op = compare_type(name, message.compare_op)?;
    let comparator = message.comparator.as_ref();
    let comparator = comparator.map(|one| parse_comparator_of(one, expressions)).transpose()?;
    if comparator.is_none() && op != pb::CompareType::NoOp {
        return Err(Error::invalid(format!("{name}: {} needs a comparator", op.as_str_name())));
    }
    Ok(Comparison::new(op, comparator))
}

fn check_not_negative<I: Copy + std::fmt::Display, U: TryFrom<I>>(name: &str, number: I) -> Result<U> {
    U::try_from(number).map_err(|_| Error::invalid(format!("{name}: {number} must be positive")))
}

/// Hints are rows, so what they are made of must not be longer than a row can be.
fn check_row(name: &str, row: Bytes) -> Result<Bytes> {
    if row.len() > ROW_LEN_MAX {
        return Err(Error::invalid(format!("{name}: a row of {} bytes is over {ROW_LEN_MAX}", row.len())));
    }
    Ok(row)
}
