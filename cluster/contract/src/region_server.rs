//! What the master orders from a region server (HBase: `AdminService`, of which `ExecuteProcedures` carries several
//! requests at once).

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::Result;
use halcyon_schema::{RegionInfo, ServerName, TableDescriptor};

/// HBase: `OpenRegionRequest.RegionOpenInfo`. The descriptor travels with the request; HBase's region server reads
/// it from the file system.
#[derive(Clone, Debug)]
pub struct OpenRegionRequest {
    pub region: RegionInfo,
    pub table: Arc<TableDescriptor>,
}

impl OpenRegionRequest {
    pub fn new(region: &RegionInfo, table: &Arc<TableDescriptor>) -> OpenRegionRequest {
        OpenRegionRequest { region: region.clone(), table: Arc::clone(table) }
    }
}

/// HBase: `RegionStateTransition` with code `OPENED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRegionResponse {
    pub open_seq_num: u64,
}

/// HBase: `CloseRegionRequest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseRegionRequest {
    pub encoded_name: String,
    /// Leaves the memstore unflushed: the table is about to be deleted.
    pub abort: bool,
}

/// HBase: `FlushRegionRequest`, and `FlushRegionParameter` of its remote procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushRegionRequest {
    pub encoded_name: String,
    /// Empty: all families.
    pub families: Vec<Bytes>,
}

impl FlushRegionRequest {
    /// Flushes all families of a region.
    pub fn all_families(region: &RegionInfo) -> FlushRegionRequest {
        FlushRegionRequest { encoded_name: region.encoded_name().to_string(), families: Vec::new() }
    }
}

/// HBase: `GetRegionInfoRequest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionInfoRequest {
    pub encoded_name: String,
    /// Asks for the best split row too. The server may flush the region to find it.
    pub best_split_row: bool,
}

/// HBase: `GetRegionInfoResponse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionInfoResponse {
    pub splittable: bool,
    pub mergeable: bool,
    /// `None` if the request did not ask for it, or if the region has no such row.
    pub best_split_row: Option<Bytes>,
}

/// Orders to one region server. See the head of the crate for idempotence and error kinds.
pub trait RegionServerApi: Send + Sync {
    fn server_name(&self) -> ServerName;

    /// Opens a region. A region that is open stays as it is.
    fn open_region(&self, request: &OpenRegionRequest) -> Result<OpenRegionResponse>;

    /// Closes a region. A region that is closed or unknown is no error.
    fn close_region(&self, request: &CloseRegionRequest) -> Result<()>;

    fn flush_region(&self, request: &FlushRegionRequest) -> Result<()>;

    /// Whether an open region can be split or merged now, and where it would be split.
    fn region_info(&self, request: &RegionInfoRequest) -> Result<RegionInfoResponse>;

    /// HBase: `GetOnlineRegion`.
    fn online_regions(&self) -> Vec<RegionInfo>;
}
