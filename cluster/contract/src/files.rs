//! Work on the files of regions that no server has open.

use std::path::Path;

use halcyon_cell::{Cell, Result};
use halcyon_env::ReadableFile;
use halcyon_schema::{FamilyDescriptor, MobFileRefs, RegionInfo, TableDescriptor};

/// HBase's master does this work itself, on the shared file system. It needs no open region and no region server.
pub trait RegionFiles: Send + Sync {
    /// Makes the region's directory, `.regioninfo` and one directory per family, durably. Existing ones stay.
    fn create_region_files(&self, region: &RegionInfo, table: &TableDescriptor) -> Result<()>;

    /// Makes the directories of a split's daughters, durably. They get references to the files of the parent, which is
    /// closed. `Invalid` if the parent has references itself. Removes nothing: an error of kind `Io` if a daughter's directory
    /// is there.
    fn split_region_files(
        &self,
        table: &TableDescriptor,
        parent: &RegionInfo,
        daughters: &[RegionInfo; 2],
    ) -> Result<()>;

    /// As `split_region_files`, for the region that replaces others and has the rows of all of them.
    fn merge_region_files(
        &self,
        table: &TableDescriptor,
        parents: &[RegionInfo],
        merged: &RegionInfo,
    ) -> Result<()>;

    /// Copies a file to `to`, a store file of a region. `to` is written whole or not at all. Does nothing if `to` exists.
    fn copy_file(&self, from: &dyn ReadableFile, to: &Path) -> Result<()>;

    /// Makes `link`, the name of a link in a store of a region that no server has open. Does nothing if it is there.
    fn make_link(&self, link: &Path) -> Result<()>;

    /// Copies those cells of the store file `from` whose rows are the region's into `to`, a store file of the region.
    /// `to` is written whole or not at all. Does nothing if `to` exists.
    fn copy_rows(&self, table: &TableDescriptor, region: &RegionInfo, from: &Path, to: &Path) -> Result<()>;

    /// Writes down that each store of the region has the files that are in its directory, where the table's store file tracker
    /// goes by a list. For a region that no server has open. May run again.
    fn list_store_files(&self, region: &RegionInfo, table: &TableDescriptor) -> Result<()>;

    /// Names and bytes of the files that the list of a store names, whether the region is open or not; links and references have
    /// 0 bytes there. `None`: the table's store file tracker does not go by a list, and all files of the directory are the
    /// store's.
    fn listed_store_files(
        &self,
        region: &RegionInfo,
        table: &TableDescriptor,
        family: &FamilyDescriptor,
    ) -> Result<Option<Vec<(String, u64)>>>;

    /// Whether the region owns files of a bulk load of which not all are in their stores yet, whether the region is open or
    /// not. If it is not, the next opening places them.
    fn has_unplaced_load(&self, region: &RegionInfo) -> Result<bool> {
        let _ = region;
        Ok(false)
    }

    /// The mob files that the store files of a family of a region refer to, whether the region is open or not; `None` if one of
    /// them does not say.
    fn mob_references(
        &self,
        region: &RegionInfo,
        table: &TableDescriptor,
        family: &FamilyDescriptor,
    ) -> Result<Option<MobFileRefs>> {
        let _ = (region, table, family);
        Ok(None)
    }

    /// When a mob file was made; `None`: that is not known.
    fn made_ms(&self, mob_file: &Path) -> Result<Option<i64>> {
        let _ = mob_file;
        Ok(None)
    }

    /// Opens a region below a root directory of its own, `root`, which no server serves (HBase: `MasterRegion`).
    /// Gives its rows to `visit`, writes the cells that come back, compacts each family to one file, closes the
    /// region.
    ///
    /// Logs that the last user left under `root` are recovered first. The region is made if it does not exist. An
    /// error of `visit` is the result.
    fn visit_region(
        &self,
        root: &Path,
        region: &RegionInfo,
        table: &TableDescriptor,
        visit: &mut dyn FnMut(Vec<Vec<Cell>>) -> Result<Vec<Cell>>,
    ) -> Result<()>;
}
