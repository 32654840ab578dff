//! Which families a flush of a region takes when nothing names them (HBase: `FlushPolicy`).

use bytes::Bytes;
use halcyon_schema::{FlushPolicy, InMemoryCompaction};

use crate::region::Region;
use crate::store::Store;

/// Of a table: bytes in memory above which a family counts as large.
const LARGE_BYTES: &str = "hbase.hregion.percolumnfamilyflush.size.lower.bound";

impl Region {
    /// The families that the region's flush policy takes now; `None`: all. Small families stay in memory only as long as there
    /// are large ones, so each flush frees some.
    ///
    /// Checked against HBase 2.6 `FlushAllLargeStoresPolicy` and `FlushNonSloppyStoresFirstPolicy`. Those also take families
    /// with old edits. Here a flush for the age of edits takes all families, and so does one for the number of WALs.
    pub fn families_to_flush(&self) -> Option<Vec<Bytes>> {
        let policy = self.table().flush_policy().unwrap_or(self.services.settings.flush_policy);
        if policy == FlushPolicy::AllStores || self.stores.len() < 2 {
            return None;
        }
        let bytes_min = self.large_family_bytes();
        let is_large = |store: &&Store| store.memstore_size().data_bytes > bytes_min;
        // HBase calls a memstore sloppy that compacts itself and so may hold more.
        let is_sloppy = |store: &&Store| self.policy_of(store) != InMemoryCompaction::None;
        let mut large: Vec<&Store> = self.stores.iter().filter(is_large).collect();
        if policy == FlushPolicy::NonSloppyStoresFirst && large.iter().any(|store| !is_sloppy(store)) {
            large.retain(|store| !is_sloppy(store));
        }
        let all = large.is_empty() || large.len() == self.stores.len();
        (!all).then(|| large.into_iter().map(|store| Bytes::copy_from_slice(store.family.name())).collect())
    }

    fn large_family_bytes(&self) -> u64 {
        let of_table = self.table().setting(LARGE_BYTES).and_then(|text| text.trim().parse().ok());
        of_table.unwrap_or_else(|| {
            let share = self.flush_size_bytes() / self.stores.len().max(1) as u64;
            share.max(self.services.settings.large_family_bytes_min)
        })
    }
}
