//! Rows that stay together when a region is split.

use bytes::Bytes;

use crate::TableDescriptor;

pub(crate) const SPLIT_RESTRICTION: &str = "hbase.regionserver.region.split_restriction.type";
const PREFIX_LENGTH: &str = "hbase.regionserver.region.split_restriction.prefix_length";
const DELIMITER: &str = "hbase.regionserver.region.split_restriction.delimiter";

/// Rows with the same prefix stay in one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowPrefix {
    /// The whole row: a region may be split anywhere.
    Whole,
    /// So many bytes.
    Length(usize),
    /// What is before the first of these delimiters; a row without one has no prefix.
    Delimited(Vec<u8>),
}

impl RowPrefix {
    /// `None` and 0: the whole row.
    pub fn of_length(length: Option<&str>) -> RowPrefix {
        match length.and_then(|text| text.trim().parse().ok()).unwrap_or(0) {
            0 => RowPrefix::Whole,
            length => RowPrefix::Length(length),
        }
    }

    /// `None` and an empty one: the whole row.
    pub fn of_delimiter(delimiter: Option<&str>) -> RowPrefix {
        match delimiter.unwrap_or_default() {
            "" => RowPrefix::Whole,
            delimiter => RowPrefix::Delimited(delimiter.as_bytes().to_vec()),
        }
    }

    /// Moves a split point to the beginning of its prefix.
    pub fn start_of(&self, row: Bytes) -> Bytes {
        match self {
            RowPrefix::Whole => row,
            RowPrefix::Length(length) => row.slice(..row.len().min(*length)),
            RowPrefix::Delimited(delimiter) => {
                let at = row.windows(delimiter.len()).position(|part| part == &delimiter[..]);
                at.map_or(row.clone(), |at| row.slice(..at))
            }
        }
    }
}

impl TableDescriptor {
    /// What the table allows as split points, also those that a client names (HBase: `RegionSplitRestriction`). As there,
    /// a type without its length or delimiter restricts nothing.
    pub fn split_restriction(&self) -> RowPrefix {
        match self.setting(SPLIT_RESTRICTION) {
            Some("KeyPrefix") => RowPrefix::of_length(self.setting(PREFIX_LENGTH)),
            Some("DelimitedKeyPrefix") => RowPrefix::of_delimiter(self.setting(DELIMITER)),
            _ => RowPrefix::Whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableName;

    #[test]
    fn split_points_begin_a_prefix() {
        for (attributes, expected) in [
            (&[][..], "user7_row"),
            (&[(SPLIT_RESTRICTION, "None"), (PREFIX_LENGTH, "4")], "user7_row"),
            (&[(SPLIT_RESTRICTION, "KeyPrefix")], "user7_row"),
            (&[(SPLIT_RESTRICTION, "KeyPrefix"), (PREFIX_LENGTH, "-1")], "user7_row"),
            (&[(SPLIT_RESTRICTION, "KeyPrefix"), (PREFIX_LENGTH, "400")], "user7_row"),
            (&[(SPLIT_RESTRICTION, "KeyPrefix"), (PREFIX_LENGTH, "4")], "user"),
            (&[(SPLIT_RESTRICTION, "DelimitedKeyPrefix")], "user7_row"),
            (&[(SPLIT_RESTRICTION, "DelimitedKeyPrefix"), (DELIMITER, "#")], "user7_row"),
            (&[(SPLIT_RESTRICTION, "DelimitedKeyPrefix"), (DELIMITER, "_")], "user7"),
            (&[(SPLIT_RESTRICTION, "DelimitedKeyPrefix"), (DELIMITER, "user")], ""),
        ] {
            let table = TableDescriptor::new(TableName::parse(b"t").unwrap());
            let table = attributes.iter().fold(table, |table, (name, value)| table.with(name, value));
            assert_eq!(table.split_restriction().start_of("user7_row".into()), expected, "{attributes:?}");
        }
    }
}
