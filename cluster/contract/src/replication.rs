//! Peers: clusters that get the edits of this one.

use std::collections::HashSet;

use halcyon_cell::Result;
use halcyon_schema::{PeerDescription, RegionBarriers, ServerName};

/// So many queues of other servers may a server send at once; each has a thread. Others wait.
pub const CLAIMED_QUEUES_MAX: usize = 64;

/// What reads WALs and sends their edits to peers (HBase: `ReplicationSourceManager`). Each method may be called again
/// with the same arguments.
pub trait ReplicationSources: Send + Sync {
    /// Notes, durably, that a peer is to get the edits of the WALs that are written now, and of all later ones. A queue that
    /// is there stays as it is.
    fn begin_queue(&self, peer_id: &str) -> Result<()>;

    /// Has edits sent to a peer as its description says from now on. A peer without a queue gets one with all WALs that are
    /// there. `Invalid` if the description cannot be obeyed.
    fn peer_changed(&self, peer: &PeerDescription) -> Result<()>;

    /// As `peer_changed`, at the end of the addition of a peer, whose queue has begun, perhaps by a master before this one.
    fn peer_added(&self, peer: &PeerDescription) -> Result<()> {
        self.peer_changed(peer)
    }

    /// As `peer_changed`, for a peer that a starting master finds, and whose addition has ended. Servers in other processes know it already.
    fn peer_found(&self, peer: &PeerDescription) -> Result<()> {
        self.peer_changed(peer)
    }

    /// Sends nothing more to a peer, and forgets its queue. Waits until what is being sent has ended.
    fn peer_removed(&self, peer_id: &str) -> Result<()>;

    /// Of these names of WALs, those that a peer still needs. WALs of which nothing is known are needed.
    fn needed_wals(&self, peer_ids: &[String], names: &[String]) -> Result<HashSet<String>>;

    /// Names of HFiles of bulk loads that a peer has still to copy, oldest first. They stay in the archive.
    fn needed_hfiles(&self, peer_ids: &[String]) -> Result<Vec<String>>;

    /// Of each region, how many of its first ranges all these peers have, with all of the regions among these that it comes from.
    fn sent_ranges(&self, peer_ids: &[String], regions: &[RegionBarriers]) -> Result<Vec<usize>>;
}

/// The queue of a server that is gone, of which something is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftQueue {
    pub peer_id: String,
    /// Of its file. Another one each time the queue is claimed.
    pub name: String,
    /// Whose WALs it is for.
    pub server: ServerName,
    /// Who sends what is left. `None`: nobody, or one that is gone, too.
    pub claimed_by: Option<ServerName>,
}

/// What the active master of a cluster knows of servers that are gone (HBase: `ReplicationQueueStorage`). The region servers are other
/// processes. They send what is left; this sends nothing.
pub trait ReplicationBooks: ReplicationSources {
    /// The queues of which something is left. Takes note of those that were sent to the end.
    fn left_queues(&self) -> Result<Vec<LeftQueue>>;

    /// A peer has been added, and the servers that were `told` know it. What a server that died before it knew the peer has written is
    /// older than that, and the peer gets nothing of it. Comes before `peer_changed`, which has somebody send what servers have left.
    ///
    /// `Busy` if `waits` and WALs of such a server are not all split yet, because it may write to one that it has open until that is
    /// sealed. Without `waits` the peer gets all of these.
    fn end_addition(&self, peer_id: &str, told: &[ServerName], waits: bool) -> Result<()> {
        let _ = (peer_id, told, waits);
        Ok(())
    }
}
