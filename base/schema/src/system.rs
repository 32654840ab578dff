//! Descriptors of the tables that a cluster has before anybody makes one, as HBase 2.6 makes them.

use crate::{FamilyDescriptor, STORE_FILE_TRACKER, TableDescriptor, TableName};

impl TableDescriptor {
    /// The descriptor of `hbase:meta` (`FSTableDescriptors.createMetaTableDescriptorBuilder`). Its coprocessor is what
    /// HBase writes the rows of a split with; it takes it from the descriptor on disk.
    pub fn meta() -> TableDescriptor {
        TableDescriptor::new(TableName::META)
            .with("IS_META", "true")
            .with("coprocessor$1", "|org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint|536870911|")
            .with(STORE_FILE_TRACKER, "DEFAULT")
            .with_family(catalog("info", "3"))
            .with_family(catalog("rep_barrier", "2147483647").with("BLOCKSIZE", "65536"))
            .with_family(catalog("table", "3"))
    }

    /// The descriptor of `hbase:namespace` (`TableDescriptorBuilder.NAMESPACE_TABLEDESC`).
    pub fn namespaces() -> TableDescriptor {
        TableDescriptor::new(TableName::NAMESPACE)
            .with("IS_META", "false")
            .with(STORE_FILE_TRACKER, "DEFAULT")
            .with_family(
                family("info").with("VERSIONS", "10").with("IN_MEMORY", "true").with("BLOCKSIZE", "8192"),
            )
    }

    /// The descriptor of `hbase:rsgroup` (`RSGroupInfoManagerImpl.RSGROUP_TABLE_DESC`). By its coprocessor HBase writes several
    /// rows at once.
    pub fn groups() -> TableDescriptor {
        TableDescriptor::new(TableName::GROUPS)
            .with("IS_META", "false")
            .with("SPLIT_POLICY", "org.apache.hadoop.hbase.regionserver.DisabledRegionSplitPolicy")
            .with("coprocessor$1", "|org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint|536870911|")
            .with(STORE_FILE_TRACKER, "DEFAULT")
            .with_family(family("m"))
    }

    /// The descriptor of `master:store`, the region that HBase's master keeps for itself (`MasterRegionFactory`).
    pub fn master_store() -> TableDescriptor {
        TableDescriptor::new(TableName::MASTER_STORE)
            .with("IS_META", "false")
            .with(STORE_FILE_TRACKER, "DEFAULT")
            .with_family(catalog("info", "3"))
            .with_family(family("proc"))
            .with_family(family("rs"))
            .with_family(family("state"))
    }
}

fn family(name: &str) -> FamilyDescriptor {
    FamilyDescriptor::new(name).expect("the families of system tables have legal names")
}

fn catalog(name: &str, versions: &str) -> FamilyDescriptor {
    family(name)
        .with("VERSIONS", versions)
        .with("IN_MEMORY", "true")
        .with("BLOCKSIZE", "8192")
        .with("BLOOMFILTER", "ROWCOL")
        .with("DATA_BLOCK_ENCODING", "ROW_INDEX_V1")
        .with("REPLICATION_SCOPE", "0")
}
