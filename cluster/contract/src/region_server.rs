//! What the master orders from a region server (HBase: `AdminService`, of which `ExecuteProcedures` carries several
//! requests at once).

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Error, Result};
use halcyon_schema::{RegionInfo, ServerName, TableDescriptor};

use crate::ServerReport;

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
    pub region: RegionInfo,
    /// Leaves the memstore unflushed: the table is about to be deleted. A server in another process flushes it anyway.
    pub abort: bool,
    /// Where the region goes; the server tells clients (`RegionMovedException`). `None` if that is not known.
    pub destination: Option<ServerName>,
}

/// HBase: `FlushRegionRequest`, and `FlushRegionParameter` of its remote procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushRegionRequest {
    pub region: RegionInfo,
    /// Empty: all families.
    pub families: Vec<Bytes>,
}

impl FlushRegionRequest {
    /// Flushes all families of a region.
    pub fn all_families(region: &RegionInfo) -> FlushRegionRequest {
        FlushRegionRequest { region: region.clone(), families: Vec::new() }
    }
}

/// HBase: `GetRegionInfoRequest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionInfoRequest {
    pub region: RegionInfo,
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

/// What happens between the opening of a region, whose open sequence number it gets, and its first answer. After an error
/// the region is closed again.
pub type Announce<'a> = dyn Fn(u64) -> Result<()> + 'a;

/// Orders to one region server. See the head of the crate for idempotence and error kinds. An error of kind `Moved` means that
/// the server does not have the region.
pub trait RegionServerApi: Send + Sync {
    fn server_name(&self) -> ServerName;

    /// Opens a region. It serves as soon as `announce` has succeeded, which is also called for a region that is open already.
    /// `Moved`: the server has not opened it, and does not go on trying.
    fn open_region(&self, request: &OpenRegionRequest, announce: &Announce<'_>)
    -> Result<OpenRegionResponse>;

    /// Tells the server that a region will be opened there, which is open elsewhere. The server reads what the opening will read.
    /// A move does not depend on it (HBase: `WarmupRegion`).
    fn warm_up_region(&self, region: &RegionInfo) -> Result<()> {
        let _ = region;
        Ok(())
    }

    /// Closes a region. A region that is closed or unknown is no error.
    fn close_region(&self, request: &CloseRegionRequest) -> Result<()>;

    fn flush_region(&self, request: &FlushRegionRequest) -> Result<()>;

    /// Whether an open region can be split or merged now, and where it would be split.
    fn region_info(&self, request: &RegionInfoRequest) -> Result<RegionInfoResponse>;

    /// Asks for a compaction of a family of a region, which runs in the background.
    fn compact_region(&self, region: &RegionInfo, family: &Bytes, major: bool) -> Result<()> {
        let _ = (family, major);
        Err(Error::invalid(format!("{region} is compacted by its server alone")))
    }

    /// Whether a region is compacted, or waits for a compaction that was asked for.
    fn is_compacting(&self, region: &RegionInfo) -> Result<bool> {
        let _ = region;
        Ok(false)
    }

    /// HBase: `GetOnlineRegion`.
    fn online_regions(&self) -> Result<Vec<RegionInfo>>;

    /// Writes the edits of a dead server's WAL to the regions that they are of, as recovered edits (HBase: `SplitWALCallable`).
    /// `wal` is below the root directory of WALs. The master archives it. `Corrupt` if its bytes are damaged.
    fn split_wal(&self, wal: &Path) -> Result<SplitWal>;

    /// Starts new WALs (HBase: `RollWALWriter`).
    fn roll_wals(&self) -> Result<()> {
        Err(Error::invalid(format!("{} cannot be told to start new WALs", self.server_name())))
    }
}

/// How the split of a WAL ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum SplitWal {
    /// All of its edits are with their regions.
    Done,
    /// The server finds no such WAL. Another one may have split it, and the master has archived it since. Or the server looks for
    /// WALs elsewhere than the master, and then nothing of it was split: only the master can tell.
    NotFound,
}

/// What the master knows of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Online,
    /// Dead. Its WALs may hold edits that are not in the regions' files yet, so its regions must not be opened elsewhere.
    Recovering,
    /// Dead or unknown, and nothing of it is left to be recovered.
    Gone,
}

/// The region servers of a cluster. Does not block.
pub trait RegionServers: Send + Sync {
    /// Those that are alive, sorted.
    fn online(&self) -> Vec<ServerName>;

    /// Those of them that get no more regions (`draining`).
    fn draining(&self) -> Vec<ServerName>;

    /// Whether a server that is alive has a session, so that the coordination service finds out when it no longer lives. One that
    /// has joined and has none yet gets no regions.
    fn has_session(&self, _server: &ServerName) -> bool {
        true
    }

    fn standing(&self, server: &ServerName) -> Standing;

    /// Declares a server dead, whether it is known or not: from here on it is [`Standing::Recovering`], and its reports are refused. Does
    /// nothing for one that was declared dead before and is recovered, and where master and region server are one process.
    fn declare_dead(&self, _server: &ServerName) {}

    /// Dead servers whose WALs are to be split, sorted.
    fn recovering(&self) -> Vec<ServerName>;

    /// Nothing of a dead server has to be recovered any more.
    fn recovered(&self, server: &ServerName);

    /// Dead servers that clients are shown, at most a hundred, the newest first: recovered or not, until another one starts at
    /// their address (HBase: `DeadServer`).
    fn dead(&self) -> Vec<ServerName>;

    /// Shows clients a dead server no longer.
    fn forget_dead(&self, server: &ServerName);

    /// `None` if it is not alive.
    fn get(&self, server: &ServerName) -> Option<Arc<dyn RegionServerApi>>;

    /// The newest report of each that has sent one. In one process the report is made when the master asks, so it is never
    /// old.
    fn reports(&self) -> Vec<ServerReport>;

    /// Whether master and region server are one process. Then neither outlives the other: all regions are closed when the
    /// master starts, and what a dead server has left was recovered before.
    fn is_one_process(&self) -> bool;
}
