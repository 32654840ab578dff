//! Replication peers of a cluster of several servers.
//!
//! Each region server sends the edits of its own WALs, and those of servers that are gone as the master orders (`claims.rs`). Peers are
//! files in the root directory. A server reads them when it starts, and one of them when the master says so (HBase:
//! `RefreshPeerProcedure`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::remote_procedures::UNKNOWN_ORDER;
use halcyon_contract::{PeerDescription, RegionServerApi, ReplicationBooks, ReplicationSources};
use halcyon_env::Mutex;
use halcyon_schema::{RegionBarriers, ServerName};

use crate::Servers;
use crate::claims::Claims;
use crate::errors::Failure;

/// So long a new peer waits for the WALs of dead servers to be taken from these, in nanoseconds. It takes a few seconds. Whose never are, such
/// as those of a server that the master never knew, is sent to the peer as a whole.
const FENCING_MAX_NS: u64 = 30_000_000_000;

/// See the head of the file. *Thread safety*: shared freely; calls block until all servers have obeyed or died, or took too long.
pub struct ClusterSources {
    pub(crate) servers: Arc<Servers>,
    /// Of the master: what of servers that are gone was sent.
    pub(crate) books: Arc<dyn ReplicationBooks>,
    pub(crate) claims: Mutex<Claims>,
    /// Peers that are being added, and until when dead servers are waited for, in `monotonic_ns`.
    adding: Mutex<HashMap<String, u64>>,
}

impl ClusterSources {
    pub fn new(servers: Arc<Servers>, books: Arc<dyn ReplicationBooks>) -> ClusterSources {
        ClusterSources { servers, books, claims: Mutex::default(), adding: Mutex::default() }
    }

    fn fencing_until_ns(&self) -> u64 {
        self.servers.common.clock.monotonic_ns().saturating_add(FENCING_MAX_NS)
    }

    /// All live servers know the peer when this is through, and the books that it gets nothing of servers that died before they knew it.
    /// Until then the books do not have the peer, so nobody is ordered to send what such a server has left.
    fn end_addition(&self, peer: &PeerDescription, until_ns: u64) -> Result<()> {
        let told = self.tell_all(&peer.id)?;
        let waits = self.servers.common.clock.monotonic_ns() < until_ns;
        self.books.end_addition(&peer.id, &told, waits)?;
        self.books.peer_changed(peer)?;
        self.adding.lock().remove(&peer.id);
        Ok(())
    }

    /// The servers that know the peer now, and those of HBase, which have no use for it. A server that dies meanwhile is none of the
    /// cluster any more, and one that starts meanwhile reads the peer itself: neither is among them.
    fn tell_all(&self, peer_id: &str) -> Result<Vec<ServerName>> {
        let (mut told, mut result) = (Vec::new(), Ok(()));
        let asked: Vec<_> =
            self.servers.remotes().into_iter().map(|server| (server.read_peer(peer_id), server)).collect();
        for (running, server) in asked {
            let ended = running.map_err(Failure::from).and_then(|running| server.wait_for(running));
            let server = server.server_name();
            let Err(failure) = ended else {
                told.push(server);
                continue;
            };
            let error = &failure.error;
            if failure.is(UNKNOWN_ORDER) {
                tracing::warn!(
                    %server,
                    peer = peer_id,
                    "a region server of HBase sends nothing to peers of a cluster of Halcyon"
                );
                told.push(server);
            } else if error.kind() != ErrorKind::Moved {
                let kind = if error.kind().is_permanent() { error.kind() } else { ErrorKind::Busy };
                result = Err(Error::new(kind, format!("region server {server}: {error}")));
            }
        }
        result.map(|()| told)
    }
}

impl ReplicationSources for ClusterSources {
    fn begin_queue(&self, peer_id: &str) -> Result<()> {
        self.adding.lock().insert(peer_id.to_string(), self.fencing_until_ns());
        self.books.begin_queue(peer_id)
    }

    /// A master before this one may have begun it. Then the wait begins anew.
    fn peer_added(&self, peer: &PeerDescription) -> Result<()> {
        let until_ns = *self.adding.lock().entry(peer.id.clone()).or_insert_with(|| self.fencing_until_ns());
        self.end_addition(peer, until_ns)
    }

    fn peer_changed(&self, peer: &PeerDescription) -> Result<()> {
        self.books.peer_changed(peer)?;
        self.tell_all(&peer.id).map(drop)
    }

    /// Servers that were here under a master of HBase do not know it. Nothing is waited for.
    fn peer_found(&self, peer: &PeerDescription) -> Result<()> {
        for server in self.servers.remotes() {
            if let Err(error) = server.read_peer(&peer.id) {
                tracing::warn!(server = %server.server_name(), peer = peer.id, %error, "a server is not told of a peer");
            }
        }
        self.books.peer_changed(peer)
    }

    fn peer_removed(&self, peer_id: &str) -> Result<()> {
        self.adding.lock().remove(peer_id);
        self.tell_all(peer_id)?;
        self.books.peer_removed(peer_id)
    }

    fn needed_wals(&self, peer_ids: &[String], names: &[String]) -> Result<HashSet<String>> {
        self.books.needed_wals(peer_ids, names)
    }

    fn needed_hfiles(&self, peer_ids: &[String]) -> Result<Vec<String>> {
        self.books.needed_hfiles(peer_ids)
    }

    fn sent_ranges(&self, peer_ids: &[String], regions: &[RegionBarriers]) -> Result<Vec<usize>> {
        self.books.sent_ranges(peer_ids, regions)
    }
}
