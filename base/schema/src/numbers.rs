//! Numbers that tables and families may set for themselves by HBase's property names, and what they may be.
//!
//! HBase reads such a number when a region opens, where one that makes no sense keeps the region closed. Here the master refuses it.
//! A directory may hold one all the same: then it counts as not set, or is brought to the nearest that can be used.

use crate::{FamilyDescriptor, TableDescriptor};

/// What a number may be, ends included.
#[derive(Clone, Copy, Debug)]
enum Range {
    Whole(i64, i64),
    /// Infinity and what is no number are in no range.
    Real(f64, f64),
}

const BYTES: Range = Range::Whole(0, i64::MAX);
/// HBase takes what is not above 0 for "off", or for 0.
const BYTES_OR_OFF: Range = Range::Whole(i64::MIN, i64::MAX);
const COUNT: Range = Range::Whole(0, i32::MAX as i64);
/// HBase takes part of them as ints.
const INT_BYTES: Range = Range::Whole(1, i32::MAX as i64);
const TIMES: Range = Range::Real(0.0, 1e9);

const NUMBERS: &[(&str, Range)] = &[
    ("hbase.hregion.majorcompaction", BYTES_OR_OFF),
    ("hbase.hregion.majorcompaction.jitter", Range::Real(0.0, 1.0)),
    ("hbase.hregion.memstore.block.multiplier", Range::Whole(1, i32::MAX as i64)),
    ("hbase.hregion.percolumnfamilyflush.size.lower.bound", BYTES),
    ("hbase.hstore.blockingStoreFiles", COUNT),
    ("hbase.hstore.bytes.per.checksum", INT_BYTES),
    ("hbase.hstore.compaction.date.tiered.base.window.millis", Range::Whole(1, i64::MAX)),
    ("hbase.hstore.compaction.date.tiered.incoming.window.min", COUNT),
    ("hbase.hstore.compaction.date.tiered.windows.per.tier", Range::Whole(1, i32::MAX as i64)),
    ("hbase.hstore.compaction.max", COUNT),
    ("hbase.hstore.compaction.max.size", BYTES),
    ("hbase.hstore.compaction.max.size.offpeak", BYTES),
    ("hbase.hstore.compaction.min", COUNT),
    ("hbase.hstore.compaction.min.size", BYTES),
    ("hbase.hstore.compaction.ratio", TIMES),
    ("hbase.hstore.compaction.ratio.offpeak", TIMES),
    ("hbase.hstore.compactionThreshold", COUNT),
    ("hbase.hstore.time.to.purge.deletes", BYTES_OR_OFF),
    ("hbase.increasing.policy.initial.size", BYTES_OR_OFF),
    ("hbase.mob.compactions.max.file.size", BYTES),
    ("hbase.store.stripe.compaction.maxFiles", COUNT),
    ("hbase.store.stripe.compaction.minFiles", COUNT),
    ("hbase.store.stripe.compaction.minFilesL0", COUNT),
    ("hbase.store.stripe.initialStripeCount", COUNT),
    ("hbase.store.stripe.region.split.max.imbalance", TIMES),
    ("hbase.store.stripe.sizeToSplit", BYTES),
    ("hbase.store.stripe.splitPartCount", TIMES),
    ("hbase.writer.unified.encoded.blocksize.ratio", Range::Real(0.0, 1000.0)),
    ("hfile.index.block.max.size", INT_BYTES),
    ("hfile.index.block.min.entries", COUNT),
    ("io.storefile.bloom.block.size", INT_BYTES),
    ("io.storefile.bloom.error.rate", Range::Real(1e-9, 1.0)),
];

impl Range {
    /// What is wrong with a number.
    fn problem(self, text: &str) -> Option<String> {
        match self {
            // As Hadoop's `Configuration`, which reads what is hexadecimal too.
            Range::Whole(..) if text.trim_start_matches('-').to_ascii_lowercase().starts_with("0x") => None,
            Range::Whole(from, to) => {
                let is_good = text.parse().is_ok_and(|number| (from..=to).contains(&number));
                (!is_good).then(|| format!("is not a whole number from {from} to {to}"))
            }
            Range::Real(from, to) => {
                let is_good = real(text).is_some_and(|number| (from..=to).contains(&number));
                (!is_good).then(|| format!("is not a number from {from} to {to}"))
            }
        }
    }
}

/// As Java's `Float.parseFloat`: one letter for the type may follow. HBase's own defaults have it (`1.2F`).
fn real(text: &str) -> Option<f64> {
    text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text).parse().ok()
}

/// As [`problem`], but of what stands in `old` in the same way nobody is told: it is in use.
pub(crate) fn problem_of_change(old: &TableDescriptor, new: &TableDescriptor) -> Option<String> {
    find(new, |name, family, text| {
        let before = match family {
            None => texts(old.attribute(name.as_bytes()), old.configuration().get(name)),
            Some(family) => old.family(family.name()).map_or_else(Vec::new, |family| {
                texts(family.attribute(name.as_bytes()), family.configuration().get(name))
            }),
        };
        before.iter().all(|before| before != text)
    })
}

/// What is wrong with the first number that a table, or one of its families, sets for itself and that nobody can act on.
pub(crate) fn problem(table: &TableDescriptor) -> Option<String> {
    find(table, |_, _, _| true)
}

/// The first problem among the numbers that `is_asked` is true of.
fn find(
    table: &TableDescriptor,
    is_asked: impl Fn(&str, Option<&FamilyDescriptor>, &str) -> bool,
) -> Option<String> {
    NUMBERS.iter().find_map(|(name, range)| {
        let problem = |text: &String, family: Option<&FamilyDescriptor>| {
            let found = range.problem(text.trim())?;
            let whose = match family {
                None => format!("table {}", table.name()),
                Some(family) => format!("column family {}", family.name_str()),
            };
            let told = || format!("{name} of {whose}: '{}' {found}", text.trim().escape_debug());
            is_asked(name, family, text).then(told)
        };
        let of_table = texts(table.attribute(name.as_bytes()), table.configuration().get(*name));
        let of_table = of_table.iter().find_map(|text| problem(text, None));
        let of_family = |family: &FamilyDescriptor| {
            let texts = texts(family.attribute(name.as_bytes()), family.configuration().get(*name));
            texts.iter().find_map(|text| problem(text, Some(family)))
        };
        of_table.or_else(|| table.families().iter().find_map(of_family))
    })
}

/// As attribute and in the configuration, which may differ.
fn texts(attribute: Option<&bytes::Bytes>, configured: Option<&String>) -> Vec<String> {
    let attribute = attribute.map(|value| String::from_utf8_lossy(value).into_owned());
    attribute.into_iter().chain(configured.cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableName;

    fn with(name: &str, value: &str) -> [TableDescriptor; 4] {
        let table = TableDescriptor::new(TableName::parse(b"t").expect("a legal name"));
        let family = FamilyDescriptor::new("f").expect("a legal name");
        let mut schema = table.to_pb();
        let (pair_name, pair_value) = (name.to_string(), value.to_string());
        schema.configuration.push(halcyon_proto::pb::NameStringPair { name: pair_name, value: pair_value });
        [
            table.clone().with(name, value),
            TableDescriptor::from_pb(&schema).expect("a legal table"),
            table.clone().with_family(family.clone().with(name, value)),
            table.with_family(family.with_configuration(name, value)),
        ]
    }

    #[test]
    fn numbers_that_nobody_can_act_on_are_found_wherever_they_stand() {
        for (name, _) in NUMBERS {
            let may_be_off = [
                "hbase.hregion.majorcompaction",
                "hbase.hstore.time.to.purge.deletes",
                "hbase.increasing.policy.initial.size",
            ];
            let is_off = |value: &str| may_be_off.contains(name) && value == "-1";
            let values = [
                "NaN",
                "inf",
                "-Infinity",
                "-1",
                "1e400",
                "99999999999999999999",
                "",
                "many",
                "1\0",
                "f",
                "1FF",
            ];
            for value in values.into_iter().filter(|value| !is_off(value)) {
                for table in with(name, value) {
                    let found = problem(&table);
                    assert!(
                        found.as_ref().is_some_and(|it| it.contains(name)),
                        "{name} = {value}: {found:?}"
                    );
                }
            }
            for value in ["1", " 1 "] {
                for table in with(name, value) {
                    assert_eq!(problem(&table), None, "{name} = {value}");
                }
            }
        }
        let [table, ..] = with("io.storefile.bloom.error.rate", "0");
        assert_eq!(
            problem(&table).as_deref(),
            Some("io.storefile.bloom.error.rate of table t: '0' is not a number from 0.000000001 to 1")
        );
        let [_, _, _, table] = with("hbase.hstore.compaction.min", "0x4");
        assert_eq!(problem(&table), None);
        for value in ["1.2F", "5.0f", "1D", " .5d "] {
            for table in with("hbase.hstore.compaction.ratio", value) {
                assert_eq!(problem(&table), None, "{value}");
            }
        }
        for table in with("hbase.hregion.majorcompaction", "-1") {
            assert_eq!(problem(&table), None);
        }
        let [table, ..] = with("hbase.hstore.compaction.min", "1F");
        assert!(problem(&table).is_some(), "Java reads no such int");
        let [table, ..] = with("some.other.number", "NaN");
        assert_eq!(problem(&table), None);
    }
    #[test]
    fn a_change_is_told_only_of_what_it_changes() {
        let name = "hbase.hstore.compaction.ratio";
        for (old, changed) in with(name, "many").into_iter().zip(with(name, "few")) {
            let other = old.clone().with("hbase.hstore.blockingStoreFiles", "20");
            assert_eq!(problem_of_change(&old, &other), None);
            assert!(problem_of_change(&old, &changed).is_some());
            assert!(problem_of_change(&changed, &old).is_some());
            let [plain, ..] = with("some.other.number", "1");
            assert!(problem_of_change(&plain, &old).is_some());
            assert_eq!(problem_of_change(&old, &plain), None);
        }
    }
}
