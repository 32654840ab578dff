//! The names of remote procedures that a master orders (`ExecuteProcedures`). HBase's are those of its classes, and their
//! parameters are in `MasterProcedure.proto`. Those of Halcyon's masters have parameters of `Orders.proto`.

pub const FLUSH_REGION: &str = "org.apache.hadoop.hbase.regionserver.FlushRegionCallable";
pub const SNAPSHOT_REGION: &str = "org.apache.hadoop.hbase.regionserver.SnapshotRegionCallable";
pub const VERIFY_SNAPSHOT: &str = "org.apache.hadoop.hbase.regionserver.SnapshotVerifyCallable";
pub const SPLIT_WAL: &str = "org.apache.hadoop.hbase.regionserver.SplitWALCallable";
pub const ROLL_WAL: &str = "org.apache.hadoop.hbase.regionserver.LogRollCallable";
pub const RELOAD_QUOTAS: &str = "org.apache.hadoop.hbase.regionserver.ReloadQuotasCallable";
pub const REFRESH_PEER: &str = "org.apache.hadoop.hbase.replication.regionserver.RefreshPeerCallable";
pub const CLAIM_QUEUE_OF_HBASE: &str =
    "org.apache.hadoop.hbase.replication.regionserver.ClaimReplicationQueueCallable";
pub const SWITCH_RPC_THROTTLE: &str =
    "org.apache.hadoop.hbase.replication.regionserver.SwitchRpcThrottleRemoteCallable";

/// The class of the exception that ends [`SPLIT_WAL`] at a server of Halcyon that finds no such WAL. HBase's servers report success.
pub const NO_SUCH_WAL: &str = "java.io.FileNotFoundException";
/// The class of the exception that ends an order at a server of HBase that does not know it, such as those of Halcyon below.
pub const UNKNOWN_ORDER: &str = "java.lang.ClassNotFoundException";
/// What the text of a `NotServingRegionException` says if the region is still there, and is being closed (HBase: `HRegion`).
pub const IS_CLOSING: &str = "is closing";

/// To obey what the root directory says of a replication peer.
pub const READ_PEER: &str = "halcyon.ReadPeer";
/// To send what is left of the replication queue of a server that is gone.
pub const CLAIM_QUEUE: &str = "halcyon.ClaimQueue";
