//! Storage policies of HDFS: on which kind of disks the files of a directory lie.
//!
//! ```text
//! <region>                           hbase.hregion.block.storage.policy
//! <region>/<family>                  STORAGE_POLICY of the family, else hbase.hstore.block.storage.policy
//! <region>/.tmp/<opening>/<family>   the same: blocks are placed when they are written, and a rename moves none
//! ```
//!
//! A region sets them when it opens, as HBase's does (`HRegion`, `HStore`, `StoreFileWriter`). A policy that is taken away
//! later stays at the directory, also as in HBase.

use std::path::Path;

use halcyon_env::FileSystem;
use halcyon_schema::FamilyDescriptor;

use crate::RegionSettings;

/// Stands for what HDFS does by itself (`HConstants.DEFER_TO_HDFS_STORAGE_POLICY`).
pub const NO_STORAGE_POLICY: &str = "NONE";
const STORAGE_POLICY: &[u8] = b"STORAGE_POLICY";
pub(crate) const OF_REGION: &str = "hbase.hregion.block.storage.policy";
pub(crate) const OF_STORE: &str = "hbase.hstore.block.storage.policy";

/// The name of a policy as HDFS knows it; `None` if nothing is to be set.
fn policy_name(text: &str) -> Option<String> {
    let name = text.trim().to_ascii_uppercase();
    (!name.is_empty() && name != NO_STORAGE_POLICY).then_some(name)
}

/// Gives a directory a storage policy, unless that is `NONE`. As in HBase, a policy that HDFS does not take is no reason not
/// to go on. `property` is who asks for it.
pub fn set_storage_policy(fs: &dyn FileSystem, directory: &Path, policy: &str, property: &str) {
    let Some(policy) = policy_name(policy) else { return };
    if let Err(error) = fs.set_storage_policy(directory, &policy) {
        tracing::warn!(%error, policy, property, "a storage policy is not applied");
    }
}

impl RegionSettings {
    /// The storage policy of a family and who asks for it; `None` if it has none, or if files are on this machine, where
    /// a policy means nothing.
    pub(crate) fn storage_policy<'a>(
        &'a self,
        fs: &dyn FileSystem,
        family: &'a FamilyDescriptor,
    ) -> Option<(&'a str, &'static str)> {
        let attribute = family.attribute(STORAGE_POLICY).and_then(|value| std::str::from_utf8(value).ok());
        let of_setting = || (family.setting(OF_STORE).unwrap_or(&self.store_storage_policy), OF_STORE);
        let found = attribute.map_or_else(of_setting, |policy| (policy, "STORAGE_POLICY"));
        Some(found).filter(|(policy, _)| fs.is_remote() && policy_name(policy).is_some())
    }
}
