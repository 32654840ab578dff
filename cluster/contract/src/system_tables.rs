//! Rows of `hbase:meta`, `hbase:namespace` and `hbase:rsgroup`.

use halcyon_cell::{Cell, Result};
use halcyon_schema::{RegionInfo, ServerName};

/// Reads and writes of system tables, which are open on some region server: `at`. HBase's master makes them with its own
/// client. An error of kind `Moved`: the region is not open there.
pub trait SystemTables: Send + Sync {
    /// Writes rows of `hbase:meta`: puts, and deletes as delete cells. Cells of one row stand together in `cells` and
    /// become visible together. All rows are durable on return. `LATEST_TIMESTAMP` is replaced by the server's clock.
    fn meta_put(&self, at: &ServerName, cells: Vec<Cell>) -> Result<()>;

    /// As `meta_put`, but all rows become visible together and survive a crash together.
    fn meta_put_together(&self, at: &ServerName, cells: Vec<Cell>) -> Result<()>;

    /// Rows of `hbase:meta` in `[start_row, stop_row)` in the order of meta; an empty row means no bound. Each row has
    /// its cells of families `info` and `table`, newest version first.
    fn meta_scan(&self, at: &ServerName, start_row: &[u8], stop_row: &[u8]) -> Result<Vec<Vec<Cell>>>;

    /// As `meta_put`, for another open region.
    fn put_rows(&self, at: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()>;

    /// As `meta_put_together`, for another open region whose table has HBase's `MultiRowMutationEndpoint`.
    fn put_rows_together(&self, at: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()>;

    /// All rows of an open region. Each row has the newest version of each cell.
    fn scan_rows(&self, at: &ServerName, region: &RegionInfo) -> Result<Vec<Vec<Cell>>>;
}
