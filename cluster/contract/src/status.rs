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

/// The newest report of a region server. In one process the report is made when the master asks, so it is never old.
/// A remote region server sends its reports, and the master keeps the newest one.
pub trait ServerReports: Send + Sync {
    fn newest_report(&self) -> ServerReport;
}

/// HBase: `RegionStateTransition`. The results of an open and a close are the answers to those requests for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionStateTransition {
    /// A region has grown too large (`READY_TO_SPLIT`).
    ReadyToSplit { parent: RegionInfo, split_row: Bytes },
}

/// The master's side of the reports (HBase: `ReportRegionStateTransition`).
pub trait RegionServerStatus: Send + Sync {
    /// Does not wait for the procedure that the transition starts.
    fn report_region_state_transition(&self, server: &ServerName, transition: RegionStateTransition);
}
