//! The table for slow calls: the master makes it, region servers write to it.

use halcyon_schema::{FamilyDescriptor, TableDescriptor, TableName};

/// `hbase:slowlog`.
pub fn slow_log_table_name() -> TableName {
    TableName::parse(b"hbase:slowlog").expect("the name is legal")
}

/// As HBase's master makes it (`SlowLogMasterService`).
pub fn slow_log_table() -> TableDescriptor {
    let family = FamilyDescriptor::new(b"info").expect("the name is legal");
    TableDescriptor::new(slow_log_table_name())
        .with("IS_META", "false")
        .with("REGION_REPLICATION", "1")
        .with_family(family.with("VERSIONS", "1").with("BLOCKCACHE", "false").with("REPLICATION_SCOPE", "0"))
}
