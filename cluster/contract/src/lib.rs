//! The contract between the master and the region servers: traits and plain types, no behaviour.
//!
//! ```text
//! master ──orders──> region server     region_server.rs   HBase: AdminService, ExecuteProcedures
//! master <─reports── region server     status.rs          HBase: RegionServerStatusService
//! master ──> files of regions          files.rs           HBase: work of the master itself (MasterFileSystem)
//! master ──> rows of system tables     system_tables.rs   HBase: ordinary client calls (MetaTableAccessor)
//! master ──peers──> region server      replication.rs    HBase: RefreshPeerCallable, ReplicationQueueStorage, ClaimReplicationQueuesProcedure
//! both   ──> books of backups          backup.rs          HBase: BackupSystemTable
//! both   ──> table for slow calls      slow_log.rs        HBase: SlowLogMasterService, SlowLogTableAccessor
//! master ──znodes──> all of them       coordination.rs     HBase: MetaTableLocator, DrainingServerTracker
//! master ──znodes──> region server     barriers.rs        HBase: ProcedureCoordinator, ProcedureMember
//! ```
//!
//! The first two groups are what a network carries. Their requests and answers are plain types that mirror HBase's
//! messages. The znodes are those of a master in another process (`halcyon-zookeeper`). The other groups never become messages between master and region server. The files are those of a
//! shared file system. The rows are reached as any client reaches them.
//!
//! `halcyon-master` and `halcyon-regionserver` both depend on this crate and not on each other.
//!
//! All calls block, and all are idempotent, because a step of a procedure may run twice. An error of kind `Invalid`
//! or `Corrupt` means that the same request will always fail; the master repeats a request after any other error.
//!
//! When you add a method, also touch the region server's side (`cluster/regionserver/src/regions/files.rs`,
//! `service/master/`) and the double in `cluster/master/tests/common`. When you add a request, compare it with
//! `Admin.proto` or `RegionServerStatus.proto` in `base/proto`.

mod backup;
mod barriers;
mod coordination;
mod files;
mod quotas;
mod region_server;
pub mod remote_procedures;
mod replication;
mod slow_log;
mod status;
mod system_tables;

use std::path::PathBuf;
use std::sync::Arc;

use halcyon_env::Env;

pub use halcyon_schema::PeerDescription;

pub use backup::{
    BACKUP_ROLLS_COUNT, BackupBooks, BackupTables, Backups, Boundaries, BulkLoadState, bulk_load_cells,
    bulk_loaded_files, last_wal_number, log_roll_cell, needs_wal, noted_log_roll,
};
pub use barriers::{
    BarrierKind, BarrierProcedure, Cancelled, ProcedureMember, Subprocedure, SubprocedureWork,
};
pub use coordination::MasterCoordination;
pub use files::RegionFiles;
pub use quotas::{
    ALL_REGION_SERVERS, QUOTA_SETTINGS_FAMILY, QUOTA_SNAPSHOT_QUALIFIER, QUOTA_SNAPSHOT_SIZE_QUALIFIER,
    QUOTA_USAGE_FAMILY, QuotaEnforcement, QuotaSource, QuotaSubject, QuotaTable, QuotaView,
    exceed_throttle_cell, quota_table, quota_table_name, quotas_to_value,
};
pub use region_server::{
    Announce, CloseRegionRequest, FlushRegionRequest, OpenRegionRequest, OpenRegionResponse,
    RegionInfoRequest, RegionInfoResponse, RegionServerApi, RegionServers, SplitWal, Standing,
};
pub use replication::{CLAIMED_QUEUES_MAX, LeftQueue, ReplicationBooks, ReplicationSources};
pub use slow_log::{slow_log_table, slow_log_table_name};
pub use status::{Assignments, RegionServerStatus, RegionStateTransition, ServerReport, Unasked};
pub use system_tables::SystemTables;

/// What a master needs of the cluster.
#[derive(Clone)]
pub struct ClusterServices {
    pub servers: Arc<dyn RegionServers>,
    pub files: Arc<dyn RegionFiles>,
    pub system_tables: Arc<dyn SystemTables>,
    pub wals: WalFiles,
    pub coordination: Arc<dyn MasterCoordination>,
    /// What replicates to other clusters; `None` where nothing does, so that there can be no peers.
    pub replication: Option<Arc<dyn ReplicationSources>>,
    /// The region servers, as what enforces quotas; `None`: nothing does.
    pub quotas: Option<Arc<dyn QuotaEnforcement>>,
}

/// The files that WALs are among, and the root directory there: another one than that of the store files if
/// `hbase.wal.dir` says so (HBase: `CommonFSUtils.getWALFileSystem`, `getWALRootDir`). Recovered edits are below it.
#[derive(Clone)]
pub struct WalFiles {
    pub env: Env,
    pub root: PathBuf,
    /// Whether that is the root directory of the store files.
    pub is_root: bool,
}
