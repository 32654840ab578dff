//! Whether a peer has all edits of a region from one of its openings to the next, by what queues and books say.
//!
//! | the server that had the region | all is sent if |
//! |---|---|
//! | lives, or is being recovered | its queue names the region as closed, with a sequence id from then or later |
//! | is gone | so, or its archived WALs are all done with, by its queue or, if that was adopted, by the books of a master |
//!
//! The WALs of one server are sent in their order. So what it has itself is sent before what follows.

use std::collections::{HashMap, HashSet};

use halcyon_cell::Result;
use halcyon_schema::BarrierRange;

use super::holders::Holder;
use super::queue::Queue;
use super::wals::{archived, is_gone, server_of};
use crate::regions::resources::RegionResources;

/// Of one peer and one moment. What is found to be sent stays so.
pub(super) struct Sent<'a> {
    resources: &'a RegionResources,
    peer: &'a str,
    /// The server whose WALs are sent by the one that asks; named as in those.
    own: Option<&'a str>,
    gone: HashMap<String, bool>,
    seen: Option<Seen>,
}

struct Seen {
    archived: HashSet<String>,
    queues: Vec<(Holder, Queue)>,
}

impl<'a> Sent<'a> {
    pub(super) fn new(resources: &'a RegionResources, peer: &'a str, own: Option<&'a str>) -> Sent<'a> {
        Sent { resources, peer, own, gone: HashMap::new(), seen: None }
    }

    pub(super) fn is_sent(&mut self, region_name: &[u8], range: &BarrierRange) -> Result<bool> {
        let server = range.server.to_string().replace(',', "%2C");
        if self.own == Some(&*server) {
            return Ok(true);
        }
        let is_gone = self.is_gone(&server)?;
        let seen = self.seen()?;
        let own: Vec<&Queue> = seen
            .queues
            .iter()
            .filter(|(holder, _)| holder.server() == Some(&*server))
            .map(|(_, queue)| queue)
            .collect();
        // A standalone server has a queue for all.
        let alone = seen.queues.iter().filter(|(holder, _)| *holder == Holder::Alone).map(|(_, queue)| queue);
        let is_closed = |queue: &Queue| queue.closed(region_name).is_some_and(|seq| seq >= range.open_seq);
        if own.iter().copied().chain(alone).any(is_closed) {
            return Ok(true);
        }
        if !is_gone {
            return Ok(false);
        }
        let mut wals = seen.archived.iter().filter(|wal| server_of(wal) == server);
        if own.is_empty() {
            let others: Vec<&Queue> = seen
                .queues
                .iter()
                .filter(|(holder, _)| holder.server().is_none())
                .map(|(_, queue)| queue)
                .collect();
            return Ok(wals.all(|wal| others.iter().any(|books| books.is_done(wal))));
        }
        Ok(wals.all(|wal| own.iter().any(|queue| queue.is_done(wal))))
    }

    /// A server is asked for before the look at archived WALs: then all of its own are among them.
    fn is_gone(&mut self, server: &str) -> Result<bool> {
        if let Some(known) = self.gone.get(server) {
            return Ok(*known);
        }
        let gone = is_gone(self.resources, server)?;
        self.gone.insert(server.to_string(), gone);
        if gone {
            self.seen = None;
        }
        Ok(gone)
    }

    /// WALs before queues: a WAL that was deleted meanwhile is forgotten by the queues, and counts as not done with.
    fn seen(&mut self) -> Result<&Seen> {
        if self.seen.is_none() {
            let archived = archived(self.resources)?;
            let queues = Queue::load_all(&self.resources.env, &self.resources.root, self.peer)?;
            self.seen = Some(Seen { archived, queues });
        }
        Ok(self.seen.as_ref().expect("it was just looked at"))
    }
}
