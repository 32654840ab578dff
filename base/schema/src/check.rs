//! The checks a descriptor must pass before the master takes it (HBase: `TableDescriptorChecker`).

use halcyon_cell::{Error, Result};
use halcyon_env::Keys;

use crate::{COPROCESSOR_HOST, FamilyDescriptor, TableDescriptor, numbers};

/// Attribute that turns the checks off with the value `false`.
const SANITY_CHECKS: &str = "hbase.table.sanity.checks";
/// How the refusal of a sanity check ends (`TableDescriptorChecker.warnOrThrowExceptionForFailure`).
pub const SANITY_CHECKS_HINT: &str = "Set hbase.table.sanity.checks to false at conf or table descriptor if you want to bypass \
     sanity checks";
const MAX_FILE_SIZE_MIN_BYTES: i64 = 2 * 1024 * 1024;
const FLUSH_SIZE_MIN_BYTES: i64 = 1024 * 1024;
const BLOCK_SIZE_BYTES: std::ops::RangeInclusive<i64> = 1024..=16 * 1024 * 1024;
pub(crate) const REPLICAS_MAX: i32 = 65536;
/// HDFS counts the copies of a file in an int16.
const FILE_COPIES_MAX: i64 = i16::MAX as i64;
const DATA_TIERING: &str = "hbase.hstore.datatiering.type";
const STORE_ENGINE: &str = "hbase.hstore.engine.class";
const DATE_TIERED_ENGINE: &str = "org.apache.hadoop.hbase.regionserver.DateTieredStoreEngine";
const FIFO_POLICY: &str = "org.apache.hadoop.hbase.regionserver.compactions.FIFOCompactionPolicy";
const COMPACTION_POLICY: &str = "hbase.hstore.defaultengine.compactionpolicy.class";
const BLOCKING_STORE_FILES: &str = "hbase.hstore.blockingStoreFiles";

impl TableDescriptor {
    /// Both checks below; the second only where the table does not turn it off.
    pub fn check(&self) -> Result<()> {
        self.check_supported()?;
        self.check_no_host()?;
        if self.wants_sanity_checks() { self.check_sanity() } else { Ok(()) }
    }

    /// Invalid with the first value that cannot be stored or obeyed at all. To clients a DoNotRetryIOException of this
    /// message, also where the sanity checks are turned off.
    pub fn check_supported(&self) -> Result<()> {
        self.check_supported_but(numbers::problem(self))
    }

    /// As [`TableDescriptor::check_supported`] of a table that is `old` so far. Numbers that it has already are no error.
    pub fn check_supported_change(&self, old: &TableDescriptor) -> Result<()> {
        self.check_supported_but(numbers::problem_of_change(old, self))
    }

    fn check_supported_but(&self, problem: Option<String>) -> Result<()> {
        self.families().iter().try_for_each(check_storable)?;
        if self.region_replication() > REPLICAS_MAX {
            return Err(Error::invalid(format!("Region Replication cannot exceed {REPLICAS_MAX}.")));
        }
        if let Some(problem) = problem {
            return Err(Error::invalid(problem));
        }
        match self.unsupported().first() {
            Some(found) => Err(Error::invalid(format!(
                "{found} is not supported (table {}): {}",
                self.name(),
                found.effect
            ))),
            None => Ok(()),
        }
    }

    /// Whether the table leaves the sanity checks on (`hbase.table.sanity.checks`); the cluster may turn them off, too.
    pub fn wants_sanity_checks(&self) -> bool {
        self.setting(SANITY_CHECKS).is_none_or(|text| text.eq_ignore_ascii_case("true"))
    }

    /// Invalid with the first value that HBase considers unwise.
    pub fn check_sanity(&self) -> Result<()> {
        self.check_limits()
            .and_then(|()| self.families().iter().try_for_each(|family| check_family(self, family)))
            .map_err(|message| insane(&message))
    }

    /// Invalid if a family asks for encryption that the cluster cannot give (HBase: `checkEncryption`).
    pub fn check_encryption(&self, keys: &Keys) -> Result<()> {
        let check =
            |family: &FamilyDescriptor| keys.test_encryption(family.encryption(), family.encryption_key());
        self.families().iter().try_for_each(check).map_err(|error| insane(error.message()))
    }

    /// Invalid if it cannot be told which files the stores of the table have: a region would show wrong cells or none.
    pub fn check_files(&self) -> Result<()> {
        self.families().iter().try_for_each(|family| self.store_file_tracker(family).map(|_| ()))
    }

    fn check_limits(&self) -> std::result::Result<(), String> {
        for key in ["MAX_FILESIZE", "MEMSTORE_FLUSHSIZE", "REGION_REPLICATION", "PRIORITY"] {
            if let (Some(text), None) = (self.attribute(key.as_bytes()), self.number(key)) {
                return Err(format!("{key} is not a number: '{}'.", text.escape_ascii()));
            }
        }
        if let Some(size) = self.number("MAX_FILESIZE").filter(|&size| size < MAX_FILE_SIZE_MIN_BYTES) {
            return Err(format!(
                "MAX_FILESIZE for table descriptor or \"hbase.hregion.max.filesize\" ({size}) is too small, which \
                 might cause over splitting into unmanageable number of regions."
            ));
        }
        if let Some(size) = self.number("MEMSTORE_FLUSHSIZE").filter(|&size| size < FLUSH_SIZE_MIN_BYTES) {
            return Err(format!(
                "MEMSTORE_FLUSHSIZE for table descriptor or \"hbase.hregion.memstore.flush.size\" ({size}) is too \
                 small, which might cause very frequent flushing."
            ));
        }
        if let Some(found) = self.unknown_split_policy() {
            return Err(format!(
                "Unable to load configured region split policy '{}' for table '{}'",
                found.value,
                self.name()
            ));
        }
        if self.families().is_empty() {
            return Err("Table should have at least one column family.".to_string());
        }
        if self.region_replication() < 1 {
            return Err("Table region replication should be at least one.".to_string());
        }
        if self.name().is_meta() && self.read_only() {
            return Err("Meta table can't be set as read only.".to_string());
        }
        Ok(())
    }

    /// For a cluster without a JVM for coprocessors: HBase refuses a class that it cannot load, and here none can be loaded,
    /// but for what is built in.
    pub fn check_no_host(&self) -> Result<()> {
        match self.hosted_coprocessor() {
            Some(class) => {
                let class = class.escape_default();
                Err(Error::invalid(format!(
                    "Coprocessor '{class}' cannot be loaded. It needs a JVM beside the region servers: set \
                     {COPROCESSOR_HOST}"
                )))
            }
            None => Ok(()),
        }
    }
}

fn insane(message: &str) -> Error {
    Error::invalid(format!("{message} {SANITY_CHECKS_HINT}"))
}

/// A value no server could act on.
fn check_storable(family: &FamilyDescriptor) -> Result<()> {
    let name = family.name_str();
    if let Some(problem) = family.raw().problems.first() {
        return Err(Error::invalid(format!("Column family {name}: {problem}")));
    }
    if family.raw().versions <= 0 {
        return Err(Error::invalid(format!("Column family {name}: maximum versions must be positive")));
    }
    let scope = family.raw().scope;
    if !(0..=1).contains(&scope) {
        return Err(Error::invalid(format!(
            "Replication scope for column family {name} is {scope} which is invalid."
        )));
    }
    if family.raw().replication > FILE_COPIES_MAX {
        return Err(Error::invalid(format!(
            "HFile Replication for column family {name} cannot exceed {FILE_COPIES_MAX}."
        )));
    }
    family.compression()?;
    family.compression_compact_major()?;
    family.compression_compact_minor()?;
    Ok(())
}

fn check_family(table: &TableDescriptor, family: &FamilyDescriptor) -> std::result::Result<(), String> {
    let (name, raw) = (family.name_str(), family.raw());
    if raw.ttl <= 0 {
        return Err(format!("TTL for column family {name} must be positive."));
    }
    if !BLOCK_SIZE_BYTES.contains(&raw.block_size) {
        return Err(format!("Block size for column family {name}  must be between 1K and 16MB."));
    }
    if raw.min_versions < 0 {
        return Err(format!("Min versions for column family {name}  must be positive."));
    }
    if raw.min_versions > raw.versions {
        return Err(format!("Min versions for column family {name} must be less than the Max versions."));
    }
    if raw.replication < 0 {
        return Err(format!("HFile Replication for column family {name}  must be greater than zero."));
    }
    check_data_tiering(table, family)?;
    check_fifo(table, family)
}

/// Hot and cold by time need files that are cut by time.
fn check_data_tiering(table: &TableDescriptor, family: &FamilyDescriptor) -> std::result::Result<(), String> {
    let setting = |key: &str| {
        let of_family = family.configuration().get(key).map(String::as_str);
        of_family.or_else(|| table.setting(key))
    };
    match setting(DATA_TIERING) {
        None | Some("NONE" | "CUSTOM") => Ok(()),
        Some("TIME_RANGE") if setting(STORE_ENGINE) == Some(DATE_TIERED_ENGINE) => Ok(()),
        Some("TIME_RANGE") => {
            Err("Time Range Data Tiering should be enabled with Date Tiered Compaction.".to_string())
        }
        Some(other) => Err(format!("{DATA_TIERING} has no value '{other}'.")),
    }
}

/// FIFO compaction drops whole files by age, so it needs an age and room for many files.
fn check_fifo(table: &TableDescriptor, family: &FamilyDescriptor) -> std::result::Result<(), String> {
    let policy = family.configuration().get(COMPACTION_POLICY).map(String::as_str);
    if policy.or_else(|| table.setting(COMPACTION_POLICY)) != Some(FIFO_POLICY) {
        return Ok(());
    }
    if family.ttl_seconds().is_none() {
        return Err("Default TTL is not supported for FIFO compaction".to_string());
    }
    if family.min_versions() > 0 {
        return Err("MIN_VERSION > 0 is not supported for FIFO compaction".to_string());
    }
    let blocking = family.configuration().get(BLOCKING_STORE_FILES).map(String::as_str);
    let count = blocking.or_else(|| table.setting(BLOCKING_STORE_FILES)).and_then(|text| text.parse().ok());
    let count: i64 = count.unwrap_or(16);
    if count < 1000 {
        return Err(format!(
            "Blocking file count '{BLOCKING_STORE_FILES}' {count} is below recommended minimum of 1000 for column \
             family {}",
            family.name_str()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split_rows::SPLIT_RESTRICTION;
    use crate::unsupported::INDEX_BLOCK_ENCODING;
    use crate::{Endpoint, STORE_FILE_TRACKER, TableName};

    fn family() -> FamilyDescriptor {
        FamilyDescriptor::new("f").unwrap()
    }

    fn table(family: FamilyDescriptor) -> TableDescriptor {
        TableDescriptor::new(TableName::parse(b"t").unwrap()).with_family(family)
    }

    #[test]
    fn passes_what_hbase_passes() {
        table(family()).check().unwrap();
        TableDescriptor::meta().check().unwrap();
        let policy = "org.apache.hadoop.hbase.regionserver.DisabledRegionSplitPolicy";
        table(family()).with("SPLIT_POLICY", policy).check().unwrap();
        let engine = table(family()).with(STORE_ENGINE, DATE_TIERED_ENGINE);
        engine.with(DATA_TIERING, "TIME_RANGE").check().unwrap();
        let off = table(family().with("BLOCKSIZE", "10")).with(SANITY_CHECKS, "false");
        off.check().unwrap();
        for endpoint in Endpoint::ALL {
            let built_in = format!("|{}|536870911|", endpoint.class());
            table(family()).with("coprocessor$1", &built_in).check().unwrap();
        }
    }

    /// Turning HBase's sanity checks off does not make this program able to do what it cannot.
    #[test]
    fn what_cannot_be_done_is_refused_with_and_without_sanity_checks() {
        let restricted = |kind: &str| table(family()).with(SPLIT_RESTRICTION, kind);
        let encoded = |name: &str| table(family().with(INDEX_BLOCK_ENCODING, name));
        let configured = |tracker: &str| {
            let mut schema = table(family()).to_pb();
            let (name, value) = (STORE_FILE_TRACKER.to_string(), tracker.to_string());
            schema.configuration.push(halcyon_proto::pb::NameStringPair { name, value });
            TableDescriptor::from_pb(&schema).unwrap()
        };
        let bad = [
            (table(family()).with("coprocessor$1", "|no.such.Coprocessor|1|"), "no.such.Coprocessor"),
            (encoded("PREFIX_TREE"), "PREFIX_TREE"),
            (restricted("EvenRows"), SPLIT_RESTRICTION),
            (table(family()).with("FLUSH_POLICY", "a.FlushAllLargeStoresPolicy"), "FLUSH_POLICY"),
            (table(family()).with(STORE_FILE_TRACKER, "FILES"), STORE_FILE_TRACKER),
            (table(family().with(STORE_FILE_TRACKER, "MIGRATION")), STORE_FILE_TRACKER),
            (table(family().with_configuration(STORE_FILE_TRACKER, "no.such.Tracker")), "of family f"),
        ];
        for (table, word) in bad {
            for checks in ["true", "false"] {
                let error = table.clone().with(SANITY_CHECKS, checks).check().unwrap_err();
                assert!(error.message().contains(word), "{word}: {error}");
                assert!(
                    !error.message().contains(SANITY_CHECKS),
                    "turning the checks off does not help: {error}"
                );
            }
        }
        let harmless = [
            encoded("NONE"),
            restricted("NONE"),
            restricted("KeyPrefix"),
            table(family()).with("NORMALIZATION_ENABLED", "true"),
            table(family()).with("FLUSH_POLICY", crate::FlushPolicy::AllStores.class()),
            table(family()).with("FLUSH_POLICY", crate::FlushPolicy::NonSloppyStoresFirst.class()),
            table(family()).with(DATA_TIERING, "NONE"),
            table(family()).with(STORE_FILE_TRACKER, "default"),
            table(family().with_configuration(STORE_FILE_TRACKER, "FILE")),
            configured("FILE"),
            table(family().with("ENCRYPTION", "")),
            table(family().with("ENCRYPTION", "AES")),
        ];
        harmless.iter().for_each(|table| table.check().unwrap());
    }

    #[test]
    fn files_that_would_be_misread_are_refused() {
        table(family()).check_files().unwrap();
        table(family().with("BLOCKSIZE", "many")).check_files().unwrap();
        table(family()).with(STORE_FILE_TRACKER, "DEFAULT").check_files().unwrap();
        for table in [
            table(family()).with(STORE_FILE_TRACKER, "a.b.Tracker"),
            table(family().with_configuration(STORE_FILE_TRACKER, "MIGRATION")),
        ] {
            assert!(table.check_files().is_err(), "{table:?}");
        }
    }

    #[test]
    fn refuses_what_hbase_refuses() {
        let empty = TableDescriptor::new(TableName::parse(b"t").unwrap());
        let bad = [
            (empty, "at least one column family"),
            (table(family()).with("MAX_FILESIZE", "1024"), "MAX_FILESIZE"),
            (table(family()).with("MEMSTORE_FLUSHSIZE", "1024"), "MEMSTORE_FLUSHSIZE"),
            (table(family()).with("REGION_REPLICATION", "0"), "replication"),
            (table(family()).with("SPLIT_POLICY", "nonexisting.foo.class"), "split policy"),
            (table(family()).with(DATA_TIERING, "TIME_RANGE"), "Date Tiered"),
            (table(family().with("TTL", "0")), "TTL"),
            (table(family().with("BLOCKSIZE", "1023")), "Block size"),
            (table(family().with("MIN_VERSIONS", "-1")), "Min versions"),
            (table(family().with("MIN_VERSIONS", "5")), "less than the Max"),
            (
                table(family()).with("coprocessor$1", "|no.such.Coprocessor|1073741823|"),
                "no.such.Coprocessor",
            ),
            (table(family().with("VERSIONS", "0")), "versions"),
            (table(family().with("REPLICATION_SCOPE", "5")), "scope"),
            (table(family().with("COMPRESSION", "ZIP")), "ZIP"),
            (table(family().with("BLOOMFILTER", "ROWPREFIX_FIXED_LENGTH")), "BLOOMFILTER"),
            (table(family().with("IN_MEMORY_COMPACTION", "sometimes")), "IN_MEMORY_COMPACTION"),
            (table(family().with_configuration(COMPACTION_POLICY, FIFO_POLICY)), "FIFO"),
        ];
        for (table, word) in bad {
            let error = table.check().unwrap_err();
            assert!(error.message().contains(word), "{word}: {error}");
        }
    }
}
