//! Names, descriptors and file layout of tables, regions and servers.
//!
//! Everything here is plain data without policy. A descriptor keeps its attributes exactly as the client sent them,
//! unknown ones included, because clients compare what they get back with what they sent. The typed getters are
//! parsed once, when the descriptor is built. A value that does not parse counts as its default, and
//! [`TableDescriptor::check`] reports it. An old file therefore never prevents a region from opening.
//!
//! Checked against HBase 2.6 `TableName`, `RegionInfoBuilder`, `ColumnFamilyDescriptorBuilder`,
//! `TableDescriptorBuilder`, `TableDescriptorChecker` and `FSTableDescriptors`.
//!
//! When you add a family attribute, also touch `FamilyDescriptor::parse_attributes` and `check.rs`; a number that tables or families
//! may configure belongs in `numbers.rs`. One that HBase obeys
//! and Halcyon does not belongs in `unsupported.rs`.

mod barriers;
mod check;
mod cluster_key;
mod descriptor_file;
mod endpoint;
mod family;
mod jenkins;
pub mod layout;
pub mod mob;
mod name;
mod numbers;
mod options;
pub mod peer_files;
mod region;
mod server;
mod split_rows;
mod system;
mod table;
mod tracker;
mod unsupported;
pub mod znode;

pub use barriers::{
    BARRIER_FAMILY, Range as BarrierRange, RegionBarriers, barrier_cells, delete_barriers, delete_ranges,
    parents_cell,
};
pub use check::SANITY_CHECKS_HINT;
pub use cluster_key::ClusterKey;
pub use endpoint::{COPROCESSOR_HOST, Endpoint};
pub use family::FamilyDescriptor;
pub use jenkins::jenkins_hash;
pub use mob::{MobFileName, MobFileRefs, MobReference};
pub use name::{
    FILE_NAME_LEN_MAX, NamespaceDescriptor, TableName, check_file_name, check_namespace_name,
    check_table_qualifier,
};
pub use options::{
    BlockEncoding, BloomType, Compression, Durability, FlushPolicy, InMemoryCompaction, KeepDeleted,
};
pub use peer_files::PeerDescription;
pub use region::{META_ENCODED_NAME, RegionInfo, RegionNameParts, parse_region_name};
pub use server::{ClusterId, ClusterUuid, ServerName};
pub use split_rows::RowPrefix;
pub use table::TableDescriptor;
pub use tracker::{
    STORE_FILE_TRACKER, StoreFileTracker, TRACKER_MIGRATION_DST, TRACKER_MIGRATION_SRC, Tracker,
};
pub use unsupported::{PHOENIX_CLASSES, Unsupported};

use halcyon_cell::{Error, Result};
use halcyon_proto::PB_MAGIC;

/// `"PBUF"` and the message behind it.
fn with_magic(message: &impl prost::Message) -> Vec<u8> {
    let mut out = PB_MAGIC.to_vec();
    message.encode(&mut out).expect("a Vec grows as needed");
    out
}

/// The bytes behind `"PBUF"`.
fn strip_magic<'a>(what: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
    bytes.strip_prefix(PB_MAGIC).ok_or_else(|| {
        let start = &bytes[..bytes.len().min(PB_MAGIC.len())];
        Error::corrupt(format!("{what}: starts with \"{}\", not \"PBUF\"", start.escape_ascii()))
    })
}

fn decode<M: prost::Message + Default>(what: &str, bytes: &[u8]) -> Result<M> {
    M::decode(bytes).map_err(|error| Error::corrupt(format!("{what}: {error}")))
}
