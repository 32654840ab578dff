use std::path::Path;

use bytes::Bytes;
use halcyon_cell::{Cell, Result};
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName, TableDescriptor};

/// Whether a region can be split or merged now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionShape {
    pub splittable: bool,
    pub mergeable: bool,
    /// Where it would be split; `None` if nobody asked, or if there is no such row.
    pub split_row: Option<Bytes>,
}

/// The master's view of a region server. Blocking; every call is idempotent, so that a step may run twice.
///
/// Errors of kind `Invalid` and `Corrupt` mean that the same request will never work; all others are tried again.
pub trait RegionServerDoor: Send + Sync {
    fn server_name(&self) -> ServerName;

    /// Makes the region's directory, `.regioninfo` and one directory per family, durably. Existing ones stay.
    fn create_region_files(&self, region: &RegionInfo, table: &TableDescriptor) -> Result<()>;

    /// Opens a region and returns its open sequence number. An open region stays as it is.
    fn open_region(&self, region: &RegionInfo, table: &TableDescriptor) -> Result<u64>;

    /// Closes a region; `abort` leaves the memstore unflushed. A closed or unknown region is no error.
    fn close_region(&self, encoded_name: &str, abort: bool) -> Result<()>;

    /// Flushes these families, or all if none is named.
    fn flush_region(&self, encoded_name: &str, families: &[Bytes]) -> Result<()>;

    /// Whether an open region can be split or merged, and, if `find_row`, where it would be split; that may flush
    /// the region.
    fn region_shape(&self, encoded_name: &str, find_row: bool) -> Result<RegionShape>;

    /// Makes the directories of a split's daughters anew, durably, with references to the files of the parent,
    /// which is closed. `Invalid` if the parent has references itself.
    fn split_region_files(
        &self,
        table: &TableDescriptor,
        parent: &RegionInfo,
        daughters: &[RegionInfo; 2],
    ) -> Result<()>;

    /// As `split_region_files`, for the region that takes the place of adjacent ones.
    fn merge_region_files(
        &self,
        table: &TableDescriptor,
        parents: &[RegionInfo],
        merged: &RegionInfo,
    ) -> Result<()>;

    /// Writes the cells of the store file `from` that are of the region's rows as `to`, a store file of the region,
    /// whole or not at all. Does nothing if that is there.
    fn copy_rows(&self, table: &TableDescriptor, region: &RegionInfo, from: &Path, to: &Path) -> Result<()>;

    /// The server's load, including that of its regions.
    fn server_load(&self) -> pb::ServerLoad;

    fn online_regions(&self) -> Vec<RegionInfo>;

    /// Writes rows of `hbase:meta`: puts, and deletes as delete cells. Cells of one row stand together and
    /// become visible together; all are durable on return. `LATEST_TIMESTAMP` is replaced by the server's clock.
    fn meta_put(&self, cells: Vec<Cell>) -> Result<()>;

    /// As `meta_put`, but all rows become visible together and survive a crash together.
    fn meta_put_together(&self, cells: Vec<Cell>) -> Result<()>;

    /// Rows of `hbase:meta` in `[start_row, stop_row)` (empty: open) in the meta order; of each row the cells of
    /// families `info` and `table`, newest version first.
    fn meta_scan(&self, start_row: &[u8], stop_row: &[u8]) -> Result<Vec<Vec<Cell>>>;

    /// As `meta_put`, for another open region.
    fn put_rows(&self, encoded_name: &str, cells: Vec<Cell>) -> Result<()>;

    /// All rows of an open region; of each row the newest version of each cell.
    fn scan_rows(&self, encoded_name: &str) -> Result<Vec<Vec<Cell>>>;

    /// Opens a region that lies in a root directory of its own, `root`, and that nobody serves; gives its rows to
    /// `visit`, writes the cells that come back, and closes it with everything in one file for each family. Logs
    /// that its last user left under `root` are recovered first, and the region is made if it is not there. An
    /// error of `visit` is the result.
    fn visit_region(
        &self,
        root: &Path,
        region: &RegionInfo,
        table: &TableDescriptor,
        visit: &mut dyn FnMut(Vec<Vec<Cell>>) -> Result<Vec<Cell>>,
    ) -> Result<()>;
}
