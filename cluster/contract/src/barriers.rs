//! Procedures that a master coordinates by two barriers in ZooKeeper (HBase: `org.apache.hadoop.hbase.procedure`).
//!
//! The coordination service asks a [`ProcedureMember`] what a procedure wants of this server, and runs that between the
//! barriers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halcyon_cell::Result;

/// Kinds of such procedures. Each has a znode below the base path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BarrierKind {
    /// A snapshot of an enabled table, for clients before 2.6.
    Snapshot,
    /// A flush of a table, for clients before 2.6.
    FlushTable,
    /// Before a backup: servers begin new WALs.
    RollLogs,
}

impl BarrierKind {
    pub const ALL: [BarrierKind; 3] = [BarrierKind::Snapshot, BarrierKind::FlushTable, BarrierKind::RollLogs];

    /// HBase's name, which is that of the znode.
    pub fn signature(self) -> &'static str {
        match self {
            BarrierKind::Snapshot => "online-snapshot",
            BarrierKind::FlushTable => "flush-table-proc",
            BarrierKind::RollLogs => "rolllog-proc",
        }
    }
}

/// One procedure, as its coordinator describes it. The bytes are of others, and not checked.
#[derive(Clone, Debug)]
pub struct BarrierProcedure {
    pub kind: BarrierKind,
    /// HBase: the instance. The name of a snapshot or of a table.
    pub instance: String,
    pub data: Vec<u8>,
}

/// Becomes true when the procedure has ended elsewhere, and its work is in vain.
#[derive(Clone, Debug, Default)]
pub struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The work between the two barriers. *Blocking*. It may end early, with an error, when it is cancelled.
pub type SubprocedureWork = dyn FnOnce(&Cancelled) -> Result<()> + Send;

/// What a server does for a procedure (HBase: `Subprocedure`).
pub struct Subprocedure {
    /// The procedure is aborted if it takes longer, with the wait for other servers.
    pub time_max: Duration,
    pub work: Box<SubprocedureWork>,
}

/// A server that takes part.
pub trait ProcedureMember: Send + Sync {
    /// What this server does for a procedure; also without a region that it concerns, because the coordinator waits for the
    /// servers that had one when it began. Does not block. An error aborts the procedure everywhere.
    fn prepare(&self, procedure: &BarrierProcedure) -> Result<Subprocedure>;
}
