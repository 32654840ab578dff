//! Files of regions that no server has open.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use halcyon_cell::{Cell, Result};
use halcyon_contract::RegionFiles;
use halcyon_env::ReadableFile;
use halcyon_region::{CompactionRequest, Region};
use halcyon_schema::{FamilyDescriptor, MobFileRefs, RegionInfo, TableDescriptor};

use super::resources::RegionResources;
use super::rows;
use crate::wal::recover::{Predecessors, recover_left_logs, recover_logs};

/// [`RegionFiles`] on the server's file system. All methods block.
pub(crate) struct LocalRegionFiles(Arc<RegionResources>);

impl LocalRegionFiles {
    pub(crate) fn new(resources: Arc<RegionResources>) -> LocalRegionFiles {
        LocalRegionFiles(resources)
    }
}

impl RegionFiles for LocalRegionFiles {
    fn create_region_files(&self, region: &RegionInfo, table: &TableDescriptor) -> Result<()> {
        Region::create_on_disk(&self.0.env, &self.0.root, region, table.families())
    }

    fn split_region_files(
        &self,
        table: &TableDescriptor,
        parent: &RegionInfo,
        daughters: &[RegionInfo; 2],
    ) -> Result<()> {
        Region::split_files(&self.0.services(parent)?, &self.0.root, table, parent, daughters)
    }

    fn merge_region_files(
        &self,
        table: &TableDescriptor,
        parents: &[RegionInfo],
        merged: &RegionInfo,
    ) -> Result<()> {
        Region::merge_files(&self.0.services(merged)?, &self.0.root, table, parents, merged)
    }

    fn copy_file(&self, from: &dyn ReadableFile, to: &Path) -> Result<()> {
        Region::copy_file(&self.0.env, from, to)
    }

    fn make_link(&self, link: &Path) -> Result<()> {
        Region::make_link(&self.0.env, link)
    }

    fn copy_rows(&self, table: &TableDescriptor, region: &RegionInfo, from: &Path, to: &Path) -> Result<()> {
        Region::copy_rows(&self.0.services(region)?, table, region, from, to)
    }

    fn list_store_files(&self, region: &RegionInfo, table: &TableDescriptor) -> Result<()> {
        for family in table.families() {
            let dir = region.dir(&self.0.root).join(&*family.name_str());
            Region::list_files(&self.0.env, &dir, table.store_file_tracker(family)?)?;
        }
        Ok(())
    }

    fn listed_store_files(
        &self,
        region: &RegionInfo,
        table: &TableDescriptor,
        family: &FamilyDescriptor,
    ) -> Result<Option<Vec<(String, u64)>>> {
        let dir = region.dir(&self.0.root).join(&*family.name_str());
        Region::listed_files(&self.0.env, &dir, table.store_file_tracker(family)?)
    }

    fn has_unplaced_load(&self, region: &RegionInfo) -> Result<bool> {
        Region::has_unplaced_load(&self.0.env, &region.dir(&self.0.root))
    }

    fn mob_references(
        &self,
        region: &RegionInfo,
        table: &TableDescriptor,
        family: &FamilyDescriptor,
    ) -> Result<Option<MobFileRefs>> {
        Region::mob_references(&self.0.env, &self.0.cache, &self.0.root, region, table, family)
    }

    fn made_ms(&self, mob_file: &Path) -> Result<Option<i64>> {
        Region::file_made_ms(&self.0.env, &self.0.cache, mob_file)
    }

    fn visit_region(
        &self,
        root: &Path,
        region: &RegionInfo,
        table: &TableDescriptor,
        visit: &mut dyn FnMut(Vec<Vec<Cell>>) -> Result<Vec<Cell>>,
    ) -> Result<()> {
        // The root directory of the master's store is the master's own.
        let wals = self.0.wal_root_of(root)?;
        let apart = wals.as_ref().map(|wal| (&wal.env, &*wal.path));
        let on_damage = self.0.online.in_force().on_wal_damage();
        for wals in apart.into_iter().chain([(&self.0.env, root)]) {
            recover_logs(&self.0.env, root, wals, &Predecessors::All, on_damage)?;
            recover_left_logs(&self.0.env, root, wals, region, on_damage)?;
        }
        let region = self.0.open_below(root, region, &Arc::new(table.clone()))?;
        let visited = rows::scan_all(&region).and_then(|rows| {
            rows::put(&region, &self.0.logs, visit(rows)?)?;
            region.flush(None)?;
            let whole = CompactionRequest { major: true, user: true };
            region.compact(None, whole, &mut &AtomicBool::new(false))
        });
        region.close(visited.is_err())?;
        visited.map(|_| ())
    }
}
