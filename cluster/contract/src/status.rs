//! What a region server reports to the master (HBase: `RegionServerStatusService`).

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName};

/// HBase: `RegionServerReportRequest`.
#[derive(Clone, Debug)]
pub struct ServerReport {
    pub server: ServerName,
    /// The load of the server and of each of its regions.
    pub load: pb::ServerLoad,
}

/// HBase: `RegionStateTransition`. Those that end an order are the answers to it ([`crate::RegionServerApi`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionStateTransition {
    /// A region has grown too large (`READY_TO_SPLIT`).
    ReadyToSplit { parent: RegionInfo, split_row: Bytes },
}

/// What becomes of a region that a server has opened, though the master waits for no opening there: it was ordered by an
/// earlier master, or the answer to the report was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unasked {
    /// The region is this server's: it may serve.
    Accepted,
    /// The region is not this server's: it has to close it.
    Refused,
    /// The server may ask again.
    Later,
}

/// The master's side of the reports (HBase: `ReportRegionStateTransition`).
pub trait RegionServerStatus: Send + Sync {
    /// Does not wait for the procedure that the transition starts.
    fn report_region_state_transition(&self, server: &ServerName, transition: RegionStateTransition);
}

/// What a master knows of the regions that servers in other processes open (HBase: `AssignmentManager`).
pub trait Assignments: RegionServerStatus {
    /// A region was opened that is not waited for. Does not block.
    fn opened_unasked(&self, server: &ServerName, region: &RegionInfo, open_seq_num: u64) -> Unasked;
}
