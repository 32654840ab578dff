//! From keys of Accumulo to cells.
//!
//! A column of Accumulo is family, qualifier and visibility. Families come and go with the data there, and are part of the
//! table here. So by default all go to one family, with `family:qualifier` as qualifier. A family may have one of its own instead,
//! and then keeps its qualifiers. Different columns always stay different: where that could fail, the entry is refused.

use std::collections::BTreeMap;

use bytes::Bytes;
use halcyon_cell::{ROW_LEN_MAX, append_tag};
use halcyon_client::{Cell, CellType};

use crate::args::VisibilityMode;
use crate::rfile::Key;

/// HBase's tag for an expression as text (`TagType.STRING_VIS_TAG_TYPE`). Replication uses it, and a VisibilityController
/// at the other side turns it into labels.
const VISIBILITY_TEXT_TAG: u8 = 7;
/// A tag's length has two bytes, and so has that of all tags.
const VISIBILITY_TAG_BYTES_MAX: usize = u16::MAX as usize - 3;

/// Where entries of an Accumulo family go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FamilyTarget {
    pub(crate) family: Bytes,
    /// Whether the qualifier begins with Accumulo's family.
    pub(crate) is_joined: bool,
}

/// How keys become cells.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) families: BTreeMap<Vec<u8>, FamilyTarget>,
    /// For all other families; joined.
    pub(crate) default_family: Bytes,
    pub(crate) separator: Vec<u8>,
    pub(crate) visibility: VisibilityMode,
    pub(crate) visibility_separator: Vec<u8>,
}

/// Why an entry has no cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    EmptyRow,
    LongRow,
    NegativeTimestamp,
    LastTimestamp,
    SeparatorInFamily,
    HasVisibility,
    SeparatorInQualifier,
    LongVisibility,
    TwoVisibilities,
}

impl Refusal {
    /// What is wrong, and what to do, for so many entries.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Refusal::EmptyRow => "have an empty row, which HBase does not allow",
            Refusal::LongRow => "have a row of more than 32767 bytes, which HBase does not allow",
            Refusal::NegativeTimestamp => "have a negative timestamp: HBase would not show them",
            Refusal::LastTimestamp => {
                "have the timestamp 2^63-1: a server would set its own. Import them with setTime into Accumulo before"
            }
            Refusal::SeparatorInFamily => {
                "have a family that contains the separator, or ends so that it would begin in the family: choose another \
                 --separator, or give the family one of its own by --family"
            }
            Refusal::HasVisibility => {
                "have a visibility expression. There is nothing that would enforce it: every reader would see them. \
                 --visibility tag, qualifier or drop says what becomes of the expressions"
            }
            Refusal::SeparatorInQualifier => {
                "have a qualifier that contains the separator of visibilities, or ends so that it would begin in the \
                 qualifier: choose another --visibility-separator"
            }
            Refusal::LongVisibility => {
                "have a visibility expression that is too long for a tag: use --visibility qualifier"
            }
            Refusal::TwoVisibilities => {
                "are in columns that differ only by their visibility and would become one: use --visibility qualifier"
            }
        }
    }
}

impl Mapping {
    /// Target families that entries may go to.
    pub(crate) fn target_families(&self) -> Vec<Bytes> {
        let mut families: Vec<Bytes> = self.families.values().map(|target| target.family.clone()).collect();
        families.push(self.default_family.clone());
        families.sort();
        families.dedup();
        families
    }

    fn check(&self, key: &Key) -> Result<(), Refusal> {
        if key.row.is_empty() {
            return Err(Refusal::EmptyRow);
        }
        if key.row.len() > ROW_LEN_MAX {
            return Err(Refusal::LongRow);
        }
        match key.timestamp {
            i64::MAX => return Err(Refusal::LastTimestamp),
            ..0 => return Err(Refusal::NegativeTimestamp),
            _ => {}
        }
        if key.visibility.is_empty() {
            return Ok(());
        }
        match self.visibility {
            VisibilityMode::Refuse => Err(Refusal::HasVisibility),
            VisibilityMode::Tag if key.visibility.len() > VISIBILITY_TAG_BYTES_MAX => {
                Err(Refusal::LongVisibility)
            }
            _ => Ok(()),
        }
    }
}

/// Maps entries in Accumulo's order.
pub(crate) struct Mapper<'a> {
    mapping: &'a Mapping,
    last: Key,
    qualifier: Vec<u8>,
    tags: Vec<u8>,
}

impl<'a> Mapper<'a> {
    pub(crate) fn new(mapping: &'a Mapping) -> Mapper<'a> {
        Mapper { mapping, last: Key::default(), qualifier: Vec::new(), tags: Vec::new() }
    }

    pub(crate) fn map(&mut self, key: &Key, value: &[u8]) -> Result<Cell, Refusal> {
        let mapping = self.mapping;
        mapping.check(key)?;
        let target = mapping.families.get(&key.family);
        self.qualifier.clear();
        if target.is_none_or(|target| target.is_joined) {
            self.qualifier.extend_from_slice(&key.family);
            self.qualifier.extend_from_slice(&mapping.separator);
            // Where the first separator stands, the family ends. It may begin with the last bytes of a family.
            if first_end(&self.qualifier, &mapping.separator) != Some(self.qualifier.len()) {
                return Err(Refusal::SeparatorInFamily);
            }
        }
        self.qualifier.extend_from_slice(&key.qualifier);
        self.map_visibility(key)?;
        let family = target.map_or(&mapping.default_family, |target| &target.family);
        Ok(Cell::build(&key.row, family, &self.qualifier, key.timestamp, CellType::Put, value, &self.tags, 0))
    }

    fn map_visibility(&mut self, key: &Key) -> Result<(), Refusal> {
        self.tags.clear();
        match self.mapping.visibility {
            VisibilityMode::Qualifier => {
                let (separator, start) =
                    (&self.mapping.visibility_separator, self.qualifier.len() - key.qualifier.len());
                if key.visibility.is_empty() {
                    let is_clear = first_end(&key.qualifier, separator).is_none();
                    return if is_clear { Ok(()) } else { Err(Refusal::SeparatorInQualifier) };
                }
                self.qualifier.extend_from_slice(separator);
                let joined = &self.qualifier[start..];
                if first_end(joined, separator) != Some(joined.len()) {
                    return Err(Refusal::SeparatorInQualifier);
                }
                self.qualifier.extend_from_slice(&key.visibility);
                return Ok(());
            }
            VisibilityMode::Tag if !key.visibility.is_empty() => {
                append_tag(&mut self.tags, VISIBILITY_TEXT_TAG, &key.visibility);
            }
            _ => {}
        }
        let last = &mut self.last;
        let is_same = last.qualifier == key.qualifier && last.row == key.row && last.family == key.family;
        if !is_same {
            last.clone_from(key);
        } else if last.visibility != key.visibility {
            return Err(Refusal::TwoVisibilities);
        }
        Ok(())
    }
}

/// Where the first occurrence of `part` ends.
fn first_end(bytes: &[u8], part: &[u8]) -> Option<usize> {
    let start = match part {
        [byte] => bytes.iter().position(|other| other == byte),
        part => bytes.windows(part.len()).position(|window| window == part),
    };
    start.map(|start| start + part.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(family: &str, qualifier: &str, visibility: &str) -> Key {
        Key {
            row: b"r".to_vec(),
            family: family.into(),
            qualifier: qualifier.into(),
            visibility: visibility.into(),
            timestamp: 7,
            is_deleted: false,
        }
    }

    fn mapping(visibility: VisibilityMode) -> Mapping {
        let own = FamilyTarget { family: Bytes::from_static(b"own"), is_joined: false };
        Mapping {
            families: BTreeMap::from([(b"a".to_vec(), own)]),
            default_family: Bytes::from_static(b"f"),
            separator: b":".to_vec(),
            visibility,
            visibility_separator: vec![0],
        }
    }

    fn column(mapping: &Mapping, key: &Key) -> Result<String, Refusal> {
        let cell = Mapper::new(mapping).map(key, b"v")?;
        let tags = cell.tags().escape_ascii().to_string();
        Ok(format!("{}|{}|{tags}", cell.family().escape_ascii(), cell.qualifier().escape_ascii()))
    }

    #[test]
    fn families_go_to_one_or_to_their_own() {
        let mapping = mapping(VisibilityMode::Refuse);
        assert_eq!(column(&mapping, &key("a", "q", "")).unwrap(), "own|q|");
        assert_eq!(column(&mapping, &key("b", "q", "")).unwrap(), "f|b:q|");
        assert_eq!(column(&mapping, &key("", "", "")).unwrap(), "f|:|");
        assert_eq!(column(&mapping, &key("b:c", "q", "")), Err(Refusal::SeparatorInFamily));
        assert_eq!(column(&mapping, &key("b", "q", "x&y")), Err(Refusal::HasVisibility));
    }

    /// With a separator of several bytes `a:` and `q` became the column of `a` and `:q`: two columns were one, and of their entries
    /// with equal timestamps one was left.
    #[test]
    fn different_columns_stay_different_with_long_separators() {
        let separators: [&[u8]; 4] = [b"::", b":", b"ab", b"aba"];
        let parts = ["", ":", "::", "a", "b", "a:", ":a", "ab", "ba", "aab", "x", "x:", "xa", "xab", "aba"];
        for separator in separators {
            let separated = Mapping { separator: separator.to_vec(), ..mapping(VisibilityMode::Qualifier) };
            let separated =
                Mapping { visibility_separator: separator.to_vec(), families: BTreeMap::new(), ..separated };
            let mut seen = BTreeMap::new();
            for key in parts.iter().flat_map(|family| parts.iter().map(move |qualifier| (family, qualifier)))
            {
                for visibility in parts {
                    let key = self::key(key.0, key.1, visibility);
                    let Ok(column) = column(&separated, &key) else { continue };
                    let whole = (key.family.clone(), key.qualifier.clone(), key.visibility.clone());
                    let other = seen.insert(column.clone(), whole.clone());
                    assert!(other.is_none(), "{column} is {whole:?} and {other:?}");
                }
            }
            assert!(seen.len() > 100, "most are not refused: {}", seen.len());
        }
        let long = Mapping { separator: b"::".to_vec(), ..mapping(VisibilityMode::Refuse) };
        assert_eq!(column(&long, &key("b:", "q", "")), Err(Refusal::SeparatorInFamily));
        assert_eq!(column(&long, &key("b", ":q", "")).unwrap(), "f|b:::q|");
    }

    #[test]
    fn visibilities_go_where_they_are_told_to() {
        let joined = mapping(VisibilityMode::Qualifier);
        assert_eq!(column(&joined, &key("a", "q", "x|y")).unwrap(), "own|q\\x00x|y|");
        assert_eq!(column(&joined, &key("a", "q", "")).unwrap(), "own|q|");
        assert_eq!(column(&joined, &key("a", "q\0", "")), Err(Refusal::SeparatorInQualifier));
        let tagged = mapping(VisibilityMode::Tag);
        assert_eq!(column(&tagged, &key("a", "q", "x|y")).unwrap(), "own|q|\\x00\\x04\\x07x|y");
        assert_eq!(column(&tagged, &key("a", "q", "")).unwrap(), "own|q|");
        let mut mapper = Mapper::new(&tagged);
        mapper.map(&key("a", "q", ""), b"").unwrap();
        mapper.map(&key("a", "r", "x"), b"").unwrap();
        mapper.map(&key("a", "r", "x"), b"").unwrap();
        assert_eq!(mapper.map(&key("a", "r", "y"), b""), Err(Refusal::TwoVisibilities));
    }

    #[test]
    fn what_hbase_lacks_is_refused() {
        let mapping = mapping(VisibilityMode::Drop);
        let changed = |change: fn(&mut Key)| {
            let mut key = key("a", "q", "");
            change(&mut key);
            column(&mapping, &key).unwrap_err()
        };
        assert_eq!(changed(|key| key.row.clear()), Refusal::EmptyRow);
        assert_eq!(changed(|key| key.row = vec![1; 32768]), Refusal::LongRow);
        assert_eq!(changed(|key| key.timestamp = -1), Refusal::NegativeTimestamp);
        assert_eq!(changed(|key| key.timestamp = i64::MAX), Refusal::LastTimestamp);
    }
}
