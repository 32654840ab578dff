//! A table: its families and what holds for all of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use halcyon_cell::{Error, Result};
use halcyon_proto::pb;

use crate::check::REPLICAS_MAX;
use crate::options::{Attributes, configuration_from_pb, configuration_to_pb};
use crate::{Durability, FamilyDescriptor, FlushPolicy, TableName, decode, strip_magic, with_magic};

/// A table's name, attributes and families as the client sent them, and what they mean.
///
/// HBase: `TableDescriptor`. Kept in `.tabledesc/.tableinfo.*` as [`TableDescriptor::encode_file`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDescriptor {
    name: TableName,
    attributes: Attributes,
    configuration: BTreeMap<String, String>,
    /// Sorted by name; names differ.
    families: Vec<FamilyDescriptor>,
}

impl TableDescriptor {
    /// A table without families.
    pub fn new(name: TableName) -> TableDescriptor {
        TableDescriptor {
            name,
            attributes: Attributes::default(),
            configuration: BTreeMap::new(),
            families: Vec::new(),
        }
    }

    /// Adds a family or puts it in the place of the one of its name.
    pub fn with_family(mut self, family: FamilyDescriptor) -> TableDescriptor {
        match self.families.binary_search_by(|f| f.name().cmp(family.name())) {
            Ok(at) => self.families[at] = family,
            Err(at) => self.families.insert(at, family),
        }
        self
    }

    /// With the defaults of its families' attributes ([`FamilyDescriptor::with_defaults`]).
    pub fn with_family_defaults(mut self) -> TableDescriptor {
        self.families = self.families.into_iter().map(FamilyDescriptor::with_defaults).collect();
        self
    }

    pub fn without_family(mut self, name: &[u8]) -> TableDescriptor {
        self.families.retain(|family| family.name() != name);
        self
    }

    /// Sets an attribute (`MAX_FILESIZE`, ...), as a builder.
    pub fn with(mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> TableDescriptor {
        self.attributes.set(Bytes::copy_from_slice(key.as_ref()), Bytes::copy_from_slice(value.as_ref()));
        self
    }

    pub fn without(mut self, key: &[u8]) -> TableDescriptor {
        self.attributes.remove(key);
        self
    }

    /// Invalid if a name breaks the rules or two families have one name.
    pub fn from_pb(schema: &pb::TableSchema) -> Result<TableDescriptor> {
        let name =
            schema.table_name.as_ref().ok_or_else(|| Error::invalid("a table schema without a name"))?;
        let mut families = Vec::with_capacity(schema.column_families.len());
        for family in &schema.column_families {
            families.push(FamilyDescriptor::from_pb(family)?);
        }
        families.sort_by(|left, right| left.name().cmp(right.name()));
        if let Some(pair) = families.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
            let message = format!("Family '{}' already exists so cannot be added", pair[0].name_str());
            return Err(Error::invalid(message));
        }
        Ok(TableDescriptor {
            name: TableName::from_pb(name)?,
            attributes: Attributes::from_pb(&schema.attributes),
            configuration: configuration_from_pb(&schema.configuration),
            families,
        })
    }

    pub fn to_pb(&self) -> pb::TableSchema {
        pb::TableSchema {
            table_name: Some(self.name.to_pb()),
            attributes: self.attributes.to_pb(),
            column_families: self.families.iter().map(FamilyDescriptor::to_pb).collect(),
            configuration: configuration_to_pb(&self.configuration),
        }
    }

    /// The bytes of a `.tableinfo` file: `"PBUF"` and the TableSchema.
    pub fn encode_file(&self) -> Vec<u8> {
        with_magic(&self.to_pb())
    }

    /// Corrupt if `bytes` are not a `.tableinfo` file.
    pub fn decode_file(bytes: &[u8]) -> Result<TableDescriptor> {
        let schema: pb::TableSchema = decode(".tableinfo", strip_magic(".tableinfo", bytes)?)?;
        TableDescriptor::from_pb(&schema).map_err(|error| Error::corrupt(format!(".tableinfo: {error}")))
    }

    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// Whether replication peers get edits of one of the families (HBase: `hasGlobalReplicationScope`).
    pub fn has_global_scope(&self) -> bool {
        self.families().iter().any(|family| family.scope() == 1)
    }

    /// Sorted by name.
    pub fn families(&self) -> &[FamilyDescriptor] {
        &self.families
    }

    pub fn family(&self, name: &[u8]) -> Option<&FamilyDescriptor> {
        self.families.iter().find(|family| family.name() == name)
    }

    pub fn attribute(&self, key: &[u8]) -> Option<&Bytes> {
        self.attributes.get(key)
    }

    pub fn attributes(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.attributes.iter()
    }

    pub fn configuration(&self) -> &BTreeMap<String, String> {
        &self.configuration
    }

    /// A setting of this table: the attributes first, then the configuration.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.attributes.text(key).or_else(|| self.configuration.get(key).map(String::as_str))
    }

    /// Bytes over which a region is to be split (`MAX_FILESIZE`).
    pub fn max_file_size(&self) -> Option<u64> {
        self.number("MAX_FILESIZE").and_then(|size| u64::try_from(size).ok()).filter(|&size| size > 0)
    }

    /// Which families a flush takes (`FLUSH_POLICY`); `None`: as the server does.
    pub fn flush_policy(&self) -> Option<FlushPolicy> {
        let class = self.setting("FLUSH_POLICY").or_else(|| self.setting("hbase.regionserver.flush.policy"));
        class.and_then(FlushPolicy::of_class)
    }

    /// Bytes over which a memstore is flushed (`MEMSTORE_FLUSHSIZE`).
    pub fn memstore_flush_size(&self) -> Option<u64> {
        self.number("MEMSTORE_FLUSHSIZE").and_then(|size| u64::try_from(size).ok()).filter(|&size| size > 0)
    }

    /// The policy of HDFS by which the table's files are coded (`ERASURE_CODING_POLICY`).
    pub fn erasure_coding(&self) -> Option<&str> {
        self.attributes.text("ERASURE_CODING_POLICY")
    }

    /// `None`: not said, or `USE_DEFAULT`.
    pub fn durability(&self) -> Option<Durability> {
        Durability::parse(self.setting("DURABILITY")?)
    }

    pub fn read_only(&self) -> bool {
        self.flag("READONLY", false)
    }

    pub fn compaction_enabled(&self) -> bool {
        self.flag("COMPACTION_ENABLED", true)
    }

    pub fn split_enabled(&self) -> bool {
        self.flag("SPLIT_ENABLED", true)
    }

    pub fn merge_enabled(&self) -> bool {
        self.flag("MERGE_ENABLED", true)
    }

    pub fn normalization_enabled(&self) -> bool {
        self.flag("NORMALIZATION_ENABLED", false)
    }

    /// Copies of each region (`REGION_REPLICATION`, default 1).
    pub fn region_replication(&self) -> i32 {
        // One too many shows that it is over the limit. A directory may hold any number.
        let most = i64::from(REPLICAS_MAX) + 1;
        self.number("REGION_REPLICATION").map_or(1, |count| count.clamp(i32::MIN.into(), most) as i32)
    }

    pub fn priority(&self) -> i32 {
        self.number("PRIORITY").map_or(0, |value| value.clamp(i32::MIN.into(), i32::MAX.into()) as i32)
    }

    pub(crate) fn number(&self, key: &str) -> Option<i64> {
        self.attributes.text(key).and_then(|text| text.trim().parse().ok())
    }

    fn flag(&self, key: &str, default: bool) -> bool {
        self.attributes.text(key).map_or(default, |text| text.trim().eq_ignore_ascii_case("true"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TableDescriptor {
        TableDescriptor::new(TableName::parse(b"ns:t").unwrap())
            .with("MAX_FILESIZE", "1073741824")
            .with("DURABILITY", "ASYNC_WAL")
            .with("X-UNKNOWN", "kept")
            .with_family(FamilyDescriptor::new("g").unwrap())
            .with_family(FamilyDescriptor::new("f").unwrap())
    }

    #[test]
    fn goes_to_protobuf_and_back() {
        let table = table();
        let names: Vec<_> = table.families().iter().map(|family| family.name().clone()).collect();
        assert_eq!(names, ["f", "g"]);
        let again = TableDescriptor::from_pb(&table.to_pb()).unwrap();
        assert_eq!(again, table);
        assert_eq!(again.to_pb(), table.to_pb());
        assert_eq!(again.durability(), Some(Durability::AsyncWal));
        assert_eq!(again.clone().with("DURABILITY", "use_default").durability(), None);
        assert_eq!(again.max_file_size(), Some(1 << 30));
        assert_eq!(again.attribute(b"X-UNKNOWN").unwrap(), "kept");
        assert_eq!((again.region_replication(), again.read_only()), (1, false));
    }

    #[test]
    fn file_form_is_pbuf_and_table_schema() {
        let table = TableDescriptor::new(TableName::parse(b"t1").unwrap())
            .with("IS_META", "false")
            .with_family(FamilyDescriptor::new("f").unwrap().with("VERSIONS", "1"));
        let bytes = table.encode_file();
        let mut golden = b"PBUF".to_vec();
        golden.extend_from_slice(b"\x0a\x0d\x0a\x07default\x12\x02t1");
        golden.extend_from_slice(b"\x12\x10\x0a\x07IS_META\x12\x05false");
        golden.extend_from_slice(b"\x1a\x12\x0a\x01f\x12\x0d\x0a\x08VERSIONS\x12\x011");
        assert_eq!(bytes, golden);
        assert_eq!(TableDescriptor::decode_file(&bytes).unwrap(), table);
        assert!(TableDescriptor::decode_file(b"PBUx").is_err());
        assert!(TableDescriptor::decode_file(b"PBUF\xff").is_err());
    }

    #[test]
    fn a_family_named_twice_is_refused() {
        let mut schema = table().to_pb();
        schema.column_families.push(schema.column_families[0].clone());
        assert!(TableDescriptor::from_pb(&schema).is_err());
    }
}
