//! The event by which flushes and compactions reach the parts that follow them.

use std::sync::Arc;

use crate::regions::region_table::OnlineRegion;

/// Hears of each change of a region's store files, right after the flush or compaction that made it, on its thread.
pub(crate) trait StoreFileListener: Send + Sync {
    fn store_files_changed(&self, online: &Arc<OnlineRegion>);
}

/// All that listen, in order.
pub(crate) type StoreFileListeners = Arc<[Arc<dyn StoreFileListener>]>;
