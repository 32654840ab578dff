//! Attributes that ask for what Halcyon does not do. The master refuses them in a request; a directory from HBase may
//! hold tables that have them.

use std::fmt;

use crate::split_rows::SPLIT_RESTRICTION;
use crate::{FamilyDescriptor, FlushPolicy, STORE_FILE_TRACKER, TableDescriptor};

const FLUSH_POLICIES: [&str; 2] = ["FLUSH_POLICY", "hbase.regionserver.flush.policy"];
const SPLIT_POLICY_KEYS: [&str; 2] = ["SPLIT_POLICY", "hbase.regionserver.region.split.policy"];
/// Classes under `org.apache.hadoop.hbase.regionserver` that a table may name as its split policy.
const SPLIT_POLICIES: [&str; 7] = [
    "BusyRegionSplitPolicy",
    "ConstantSizeRegionSplitPolicy",
    "DelimitedKeyPrefixRegionSplitPolicy",
    "DisabledRegionSplitPolicy",
    "IncreasingToUpperBoundRegionSplitPolicy",
    "KeyPrefixRegionSplitPolicy",
    "SteppingSplitPolicy",
];
/// Split policies of Phoenix are taken, and regions that have one are never split: what they keep together is not known here.
pub const PHOENIX_CLASSES: &str = "org.apache.phoenix.";
pub(crate) const INDEX_BLOCK_ENCODING: &str = "INDEX_BLOCK_ENCODING";

/// An attribute, or a setting in the configuration, with a value that Halcyon does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The family that has it; `None`: the table.
    pub family: Option<String>,
    pub attribute: String,
    pub value: String,
    /// What happens instead.
    pub effect: &'static str,
    /// Whether clients read and write the same cells in the same regions all the same.
    pub is_harmless: bool,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}'", self.attribute, self.value)?;
        self.family.as_ref().map_or(Ok(()), |family| write!(f, " of family {family}"))
    }
}

impl TableDescriptor {
    /// Every attribute of the table and its families that is not supported.
    pub fn unsupported(&self) -> Vec<Unsupported> {
        let of_table = |attribute: &str, value: &str, effect, is_harmless| Unsupported {
            family: None,
            attribute: attribute.to_string(),
            value: value.to_string(),
            effect,
            is_harmless,
        };
        let mut found = Vec::new();
        for key in FLUSH_POLICIES {
            let policies = self.values_of(key).filter(|policy| FlushPolicy::of_class(policy).is_none());
            found.extend(policies.map(|policy| of_table(key, policy, "a flush writes all families", true)));
        }
        let known = |kind: &&str| is_none(kind) || ["KeyPrefix", "DelimitedKeyPrefix"].contains(kind);
        let restrictions = self.values_of(SPLIT_RESTRICTION).filter(|kind| !known(kind));
        let effect = "a region may be split at any row; KeyPrefix and DelimitedKeyPrefix are supported";
        found.extend(restrictions.map(|kind| of_table(SPLIT_RESTRICTION, kind, effect, false)));
        let trackers = self.families().iter().filter(|family| self.store_file_tracker(family).is_err());
        found.extend(trackers.map(|family| Unsupported {
            family: Some(family.name_str().into_owned()),
            attribute: STORE_FILE_TRACKER.to_string(),
            value: self.store_setting(family, STORE_FILE_TRACKER).unwrap_or_default().to_string(),
            effect: "the regions do not open; supported are DEFAULT, FILE and MIGRATION",
            is_harmless: false,
        }));
        found.extend(self.families().iter().flat_map(of_family));
        found
    }

    /// A split policy that is a class of its user. The master refuses it with HBase's words; a directory from HBase may hold it.
    pub fn unknown_split_policy(&self) -> Option<Unsupported> {
        let is_known = |policy: &str| {
            let own = policy.strip_prefix("org.apache.hadoop.hbase.regionserver.");
            own.is_some_and(|class| SPLIT_POLICIES.contains(&class)) || policy.starts_with(PHOENIX_CLASSES)
        };
        SPLIT_POLICY_KEYS.into_iter().find_map(|key| {
            let policy = self.setting(key).filter(|policy| !is_known(policy))?;
            Some(Unsupported {
                family: None,
                attribute: key.to_string(),
                value: policy.to_string(),
                effect: "the regions are not split",
                is_harmless: true,
            })
        })
    }

    /// As attribute and in the configuration, which may differ.
    fn values_of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let attribute = self.attribute(key.as_bytes()).and_then(|value| std::str::from_utf8(value).ok());
        attribute.into_iter().chain(self.configuration().get(key).map(String::as_str))
    }
}

fn of_family(family: &FamilyDescriptor) -> Vec<Unsupported> {
    let of_family = |attribute: &str, value: &str, effect| Unsupported {
        family: Some(family.name_str().into_owned()),
        attribute: attribute.to_string(),
        value: value.to_string(),
        effect,
        is_harmless: false,
    };
    let values = |key: &'static str| {
        let attribute = family.attribute(key.as_bytes()).and_then(|value| std::str::from_utf8(value).ok());
        attribute.into_iter().chain(family.configuration().get(key).map(String::as_str))
    };
    let encodings = values(INDEX_BLOCK_ENCODING).filter(|name| !name.is_empty() && !is_none(name));
    let effect = "index blocks are written without an encoding, and files with encoded ones are not read";
    let encodings = encodings.map(|name| of_family(INDEX_BLOCK_ENCODING, name, effect));
    encodings.collect()
}

fn is_none(value: &str) -> bool {
    value.eq_ignore_ascii_case("NONE")
}
