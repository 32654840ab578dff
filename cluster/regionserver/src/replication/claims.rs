//! Queues of servers that are gone: a live server claims them by order of the master, and sends what is left (HBase:
//! `ClaimReplicationQueueCallable`, `RecoveredReplicationSource`).
//!
//! A claim is a new name of the queue's file, which names the claimer (`holders.rs`). If the claimer dies, too, another server claims
//! the file from it. A claim that was sent to the end stays until the master has noted which WALs are done with (`books.rs`).

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::CLAIMED_QUEUES_MAX;
use halcyon_schema::peer_files;

use super::holders::Holder;
use super::queue::Queue;
use super::sources::{Sources, check};
use super::wals::{Whose, is_gone};

impl Sources {
    /// Claims a queue, by the name of its file, of a server that is gone, and sends what is left of it. One that this server has
    /// claimed is sent further. No error if the peer or the queue is gone. `Busy` if the server cannot do that now, or the holder of
    /// the queue is not gone.
    pub(crate) fn claim(&self, peer_id: &str, name: &str) -> Result<()> {
        let _reading = self.reading.lock();
        let (env, root) = (&self.resources.env, &self.resources.root);
        let holder = Holder::parse(peer_id, name);
        let (server, by) = match &holder {
            Some(Holder::Server(server)) => (server, server),
            Some(Holder::Claimer { server, by }) => (server, by),
            _ => {
                return Err(Error::invalid(format!("{name} is no queue of a server for the peer {peer_id}")));
            }
        };
        if *server == self.server {
            return Err(Error::invalid(format!("{name} is the queue of this server, which lives")));
        }
        let is_own = *by == self.server;
        let Some(peer) = peer_files::load(env, root, peer_id)? else { return Ok(()) };
        check(&peer)?;
        let key = (peer_id.to_string(), server.clone());
        {
            let mut all = self.all.lock();
            if all.have_ended {
                return Err(Error::new(ErrorKind::Stopping, "the server is going down"));
            }
            all.forget_finished();
            match all.claims.contains_key(&key) {
                true if is_own => return Ok(()),
                true => return Err(busy(format!("another queue of {server} is sent from here"))),
                false if all.claims.len() >= CLAIMED_QUEUES_MAX => {
                    return Err(busy(format!(
                        "{CLAIMED_QUEUES_MAX} queues of other servers are sent from here"
                    )));
                }
                false => {}
            }
        }
        if !is_own && !is_gone(&self.resources, by)? {
            return Err(busy(format!("{by} is not gone: it has WALs that are not split")));
        }
        let Some(mut queue) = Queue::load(env, root, name)? else { return Ok(()) };
        if !is_own {
            let claimed = Holder::Claimer { server: server.clone(), by: self.server.clone() };
            queue.rename(&claimed.name(peer_id))?;
        }
        tracing::info!(peer = peer_id, queue = name, "what a server has left is sent from here");
        let running = self.begin(Whose::Gone(server.clone()), &peer, queue)?;
        let mut all = self.all.lock();
        if all.have_ended {
            running.source.end();
        }
        all.claims.insert(key, running);
        Ok(())
    }
}

fn busy(text: String) -> Error {
    Error::new(ErrorKind::Busy, text)
}
