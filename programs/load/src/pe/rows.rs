//! Keys, values and columns as PerformanceEvaluation makes them.

use bytes::{BufMut, Bytes, BytesMut};
use halcyon_cell::{Cell, CellType};
use halcyon_proto::pb;

use crate::pe::options::Options;
use crate::random::Random;

/// Length of a row key (`ROW_LENGTH`).
const ROW_LEN: usize = 26;
/// Length of a tag's data (`TAG_LENGTH`).
const TAG_LEN: usize = 256;
/// Exponent of the sizes of `--valueZipf`.
const ZIPF_EXPONENT: f64 = 1.2;

/// A row's key: its number, 26 digits with zeros before.
pub fn format_row(number: u64) -> Bytes {
    let mut key = [b'0'; ROW_LEN];
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    Bytes::copy_from_slice(&key)
}

/// A value: runs of eight equal letters, and one more letter for the rest.
pub fn generate_value(random: &mut Random, len: usize) -> Vec<u8> {
    let mut value = vec![0; len];
    let mut letter = || b'A' + random.below(26) as u8;
    // the last run is at least one byte long and may be a whole one
    let runs = len.saturating_sub(1) / 8;
    for run in value[..runs * 8].chunks_exact_mut(8) {
        run.fill(letter());
    }
    value[runs * 8..].fill(letter());
    value
}

/// A row anywhere among all.
pub(super) fn random_row(random: &mut Random, options: &Options) -> u64 {
    random.below(options.total_rows)
}

fn value_len(random: &mut Random, options: &Options) -> usize {
    let size = options.args.value_size;
    if options.args.value_random {
        random.below(size as u64) as usize
    } else if options.args.value_zipf {
        // by the inverse of the continuous distribution over [1, size]
        let edge = (size as f64).powf(1.0 - ZIPF_EXPONENT) - 1.0;
        let len = (1.0 + random.fraction() * edge).powf(1.0 / (1.0 - ZIPF_EXPONENT));
        (len as usize).clamp(1, size)
    } else {
        size
    }
}

pub(super) fn family(number: u32) -> Bytes {
    Bytes::from(format!("info{number}"))
}

fn qualifier(number: u32) -> Bytes {
    Bytes::from(number.to_string())
}

/// Names of families and columns, made once.
pub(super) struct Columns {
    families: Vec<Bytes>,
    qualifiers: Vec<Bytes>,
}

impl Columns {
    pub fn new(options: &Options) -> Columns {
        Columns {
            families: (0..options.args.families).map(family).collect(),
            qualifiers: (0..options.args.columns).map(qualifier).collect(),
        }
    }

    pub fn families(&self) -> &[Bytes] {
        &self.families
    }

    /// What a get or a scan asks for.
    pub fn wanted(&self, add_columns: bool) -> Vec<pb::Column> {
        let qualifier = if add_columns { self.qualifiers.clone() } else { Vec::new() };
        let column = |family: &Bytes| pb::Column { family: family.clone(), qualifier: qualifier.clone() };
        self.families.iter().map(column).collect()
    }

    /// The cells of a row.
    pub fn cells(&self, row: &[u8], options: &Options, random: &mut Random) -> Vec<Cell> {
        let mut cells = Vec::with_capacity(self.families.len() * self.qualifiers.len());
        for family in &self.families {
            for qualifier in &self.qualifiers {
                let len = value_len(random, options);
                let value = generate_value(random, len);
                let tags =
                    if options.args.use_tags { tags(random, options.args.tags_count) } else { Bytes::new() };
                cells.push(Cell::build(row, family, qualifier, i64::MAX, CellType::Put, &value, &tags, 0));
            }
        }
        cells
    }
}

/// `int16 length | type | data` for each; the types count from 0, the data are the same.
fn tags(random: &mut Random, count: u8) -> Bytes {
    let value = generate_value(random, TAG_LEN);
    let mut tags = BytesMut::with_capacity(usize::from(count) * (3 + TAG_LEN));
    for number in 0..count {
        tags.put_u16(1 + TAG_LEN as u16);
        tags.put_u8(number);
        tags.put_slice(&value);
    }
    tags.freeze()
}

/// HBase's filters that the commands use.
pub(super) mod filter {
    use prost::Message;

    use super::*;

    fn filter(class: &str, message: &impl Message) -> pb::Filter {
        pb::Filter {
            name: format!("org.apache.hadoop.hbase.filter.{class}"),
            serialized_filter: Some(Bytes::from(message.encode_to_vec())),
        }
    }

    pub fn all() -> pb::Filter {
        filter("FilterAllFilter", &pb::FilterAllFilter {})
    }

    /// All of these.
    pub fn list(filters: Vec<pb::Filter>) -> pb::Filter {
        let operator = pb::filter_list::Operator::MustPassAll as i32;
        filter("FilterList", &pb::FilterList { operator, filters })
    }

    /// Ends a scan after so many rows of a region.
    pub fn page_while(rows: i64) -> pb::Filter {
        let page = filter("PageFilter", &pb::PageFilter { page_size: rows });
        filter("WhileMatchFilter", &pb::WhileMatchFilter { filter: page })
    }

    pub fn comparator(value: Bytes) -> pb::Comparator {
        let comparable = pb::ByteArrayComparable { value: Some(value) };
        pb::Comparator {
            name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_string(),
            serialized_comparator: Some(Bytes::from(pb::BinaryComparator { comparable }.encode_to_vec())),
        }
    }

    /// Rows whose column has this value.
    pub fn column_value(family: Bytes, qualifier: Bytes, value: Bytes) -> pb::Filter {
        let message = pb::SingleColumnValueFilter {
            column_family: Some(family),
            column_qualifier: Some(qualifier),
            compare_op: pb::CompareType::Equal as i32,
            comparator: comparator(value),
            filter_if_missing: Some(false),
            latest_version_only: Some(true),
        };
        filter("SingleColumnValueFilter", &message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_performance_evaluation() {
        assert_eq!(&format_row(0)[..], b"00000000000000000000000000");
        assert_eq!(&format_row(2_147_483_646)[..], b"00000000000000002147483646");
    }

    #[test]
    fn values_are_runs_of_letters() {
        let mut random = Random::new(1);
        for len in [0, 1, 7, 8, 9, 16, 17, 1_000] {
            let value = generate_value(&mut random, len);
            assert_eq!(value.len(), len);
            assert!(value.chunks(8).all(|run| run.iter().all(|b| *b == run[0] && b.is_ascii_uppercase())));
        }
    }

    #[test]
    fn tags_are_those_of_a_cell() {
        let tags = tags(&mut Random::new(1), 2);
        let cell = Cell::build(b"r", b"f", b"q", 1, CellType::Put, b"v", &tags, 0);
        assert_eq!(cell.get().tag_iter().count(), 2);
    }
}
