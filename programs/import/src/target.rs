//! The cluster that gets the table.

use std::time::Duration;

use bytes::Bytes;
use halcyon_client::{
    Admin, Cluster, ClusterOptions, Codec, FamilyDescriptor, NamespaceDescriptor, Scan, TableDescriptor,
    TableName,
};
use halcyon_migrate::Address;

/// A server that starts again answers within this time.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(180);
/// A scan of a busy server may take long until its first row.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// See the head of the file.
pub(crate) struct Target {
    pub(crate) cluster: Cluster,
    admin: Admin,
    address: Address,
    pub(crate) table: TableName,
}

/// What the new table has to have.
pub(crate) struct Wanted {
    pub(crate) families: Vec<Bytes>,
    pub(crate) versions: u64,
    pub(crate) compression: Option<&'static str>,
    pub(crate) splits: Vec<Bytes>,
}

/// HBase's name for a compression of Accumulo.
pub(crate) fn compression(name: &str) -> Option<&'static str> {
    Some(match name {
        "gz" => "GZ",
        "snappy" => "SNAPPY",
        "lz4" => "LZ4",
        "zstd" => "ZSTD",
        "lzo" => "LZO",
        "bzip2" => "BZIP2",
        "none" => "NONE",
        _ => return None,
    })
}

impl Target {
    pub(crate) async fn connect(
        address: &Address,
        table: TableName,
        connections: usize,
    ) -> Result<Target, String> {
        let mut options = ClusterOptions {
            connections_per_server: connections,
            operation_timeout: OPERATION_TIMEOUT,
            call_timeout: CALL_TIMEOUT,
            ..ClusterOptions::default()
        };
        options.connect.codec = Some(Codec::KeyValueWithTags);
        let absent = |error| format!("cannot reach the target {address}: {error}");
        let cluster = Cluster::connect(address.cluster().clone(), options).await.map_err(absent)?;
        let admin = cluster.admin().await.map_err(absent)?;
        Ok(Target { cluster, admin, address: address.clone(), table })
    }

    /// An error with the target's name before it.
    pub(crate) fn failed(&self, what: &str, error: impl std::fmt::Display) -> String {
        format!("target {}: {what}: {error}", self.address)
    }

    /// Makes the table. One that is there must be empty, unless this import has made it, and must have the families.
    pub(crate) async fn prepare(&self, wanted: &Wanted, is_resumed: bool) -> Result<(), String> {
        let name = &self.table;
        let descriptor = descriptor(name, wanted)?;
        let found = self.admin.descriptor(name).await;
        let Some(found) = found.map_err(|error| self.failed(&format!("descriptor of {name}"), error))? else {
            return self.create(&descriptor, wanted).await;
        };
        for family in descriptor.families() {
            let Some(there) = found.families().iter().find(|there| there.name() == family.name()) else {
                return Err(self.failed("table", format!("{name} has no family {}", family.name_str())));
            };
            if there.versions() < family.versions() {
                return Err(self.failed(
                    "table",
                    format!(
                        "family {} keeps {} versions, {} are needed",
                        family.name_str(),
                        there.versions(),
                        family.versions()
                    ),
                ));
            }
        }
        if is_resumed {
            return Ok(());
        }
        let mut scan = self.cluster.table(name.clone(), 0).scan(Scan::new().limit(1));
        match scan.next().await.map_err(|error| self.failed(&format!("scan of {name}"), error))? {
            None => Ok(()),
            Some(_) => {
                Err(self.failed("table", format!("{name} has rows already; import into an empty table")))
            }
        }
    }

    async fn create(&self, descriptor: &TableDescriptor, wanted: &Wanted) -> Result<(), String> {
        let name = &self.table;
        let namespaces = self.admin.namespaces().await.map_err(|error| self.failed("namespaces", error))?;
        if !namespaces.iter().any(|one| one == name.namespace()) {
            let failed = |error: &dyn std::fmt::Display| {
                self.failed(&format!("namespace {}", name.namespace()), error)
            };
            let namespace = NamespaceDescriptor::new(name.namespace());
            self.admin.create_namespace(&namespace).await.map_err(|error| failed(&error))?;
            println!("target: the namespace {} is created", name.namespace());
        }
        let created = self.admin.create_table(descriptor, wanted.splits.clone()).await;
        created.map_err(|error| self.failed(&format!("creation of {name}"), error))?;
        println!("target: {name} is created with {} regions", wanted.splits.len() + 1);
        Ok(())
    }
}

fn descriptor(name: &TableName, wanted: &Wanted) -> Result<TableDescriptor, String> {
    let mut descriptor = TableDescriptor::new(name.clone());
    for family in &wanted.families {
        let family = FamilyDescriptor::new(family).map_err(|error| error.message().to_string())?;
        let mut family = family.with("VERSIONS", wanted.versions.to_string());
        if let Some(compression) = wanted.compression {
            family = family.with("COMPRESSION", compression);
        }
        descriptor = descriptor.with_family(family);
    }
    descriptor.check().map_err(|error| error.message().to_string())?;
    Ok(descriptor)
}
