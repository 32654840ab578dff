//! Which live server sends what a dead one has left for a replication peer (HBase: `ClaimReplicationQueuesProcedure`).
//!
//! Who has claimed a queue is written in the name of its file, by the claimer. So nothing here has to survive the master: the next one
//! looks at the files again. It orders each claim of a live server once more, which does nothing if the server obeys it already.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use halcyon_contract::remote_procedures::UNKNOWN_ORDER;
use halcyon_contract::{CLAIMED_QUEUES_MAX, LeftQueue, RegionServerApi, RegionServers};
use halcyon_schema::ServerName;

use crate::errors::Failure;
use crate::peers::ClusterSources;
use crate::remote_server::RemoteServer;

/// Pause after a failure, as often longer as there were failures of that queue.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What was ordered. Of one thread at a time.
#[derive(Default)]
pub(crate) struct Claims {
    /// Queues, by the names of their files, that their claimers have said to send.
    confirmed: HashSet<String>,
    failed: HashMap<String, Failed>,
    /// Servers of HBase, which do not know the order.
    unable: HashSet<ServerName>,
    is_told_of_lack: bool,
}

#[derive(Default)]
struct Failed {
    count: u32,
    next_ns: u64,
}

impl Claims {
    /// Which servers are to be told now to send which queues. Those that are `draining` get others only if there is no other server.
    fn plan(
        &mut self,
        left: &[LeftQueue],
        online: &[ServerName],
        draining: &[ServerName],
        now_ns: u64,
    ) -> Vec<(LeftQueue, ServerName)> {
        let names: HashSet<&str> = left.iter().map(|queue| queue.name.as_str()).collect();
        self.confirmed.retain(|name| names.contains(name.as_str()));
        self.failed.retain(|name, _| names.contains(name.as_str()));
        let able: Vec<&ServerName> = online.iter().filter(|server| !self.unable.contains(server)).collect();
        let staying: Vec<&ServerName> =
            able.iter().copied().filter(|server| !draining.contains(server)).collect();
        let takers = if staying.is_empty() { &able } else { &staying };
        let mut counts: HashMap<&ServerName, usize> = HashMap::new();
        let mut has: HashSet<(&str, &ServerName, &ServerName)> = HashSet::new();
        for (queue, by) in left.iter().filter_map(|queue| Some((queue, queue.claimed_by.as_ref()?))) {
            *counts.entry(by).or_default() += 1;
            has.insert((&queue.peer_id, &queue.server, by));
        }
        let mut plan = Vec::new();
        for queue in left {
            if self.failed.get(&queue.name).is_some_and(|failed| now_ns < failed.next_ns) {
                continue;
            }
            let server = match &queue.claimed_by {
                Some(by) if self.confirmed.contains(&queue.name) || !able.contains(&by) => continue,
                Some(by) => by,
                None => {
                    let count = |server: &ServerName| counts.get(server).copied().unwrap_or(0);
                    let may = takers.iter().copied().filter(|server| {
                        count(server) < CLAIMED_QUEUES_MAX
                            && !has.contains(&(queue.peer_id.as_str(), &queue.server, server))
                    });
                    // Among equals another one for each queue.
                    let order = |server: &&ServerName| (count(server), Reverse(hash(&(&queue.name, server))));
                    let Some(server) = may.min_by_key(order) else { continue };
                    *counts.entry(server).or_default() += 1;
                    has.insert((&queue.peer_id, &queue.server, server));
                    server
                }
            };
            plan.push((queue.clone(), server.clone()));
        }
        let has_lack = able.is_empty() && !left.is_empty();
        if has_lack && !self.is_told_of_lack {
            tracing::warn!(
                queues = left.len(),
                "what servers have left for peers waits for a region server of Halcyon"
            );
        }
        self.is_told_of_lack = has_lack;
        plan
    }

    fn note(&mut self, queue: &LeftQueue, server: &ServerName, result: Result<(), Failure>, now_ns: u64) {
        match result {
            Ok(()) => {
                self.failed.remove(&queue.name);
                if queue.claimed_by.is_some() {
                    self.confirmed.insert(queue.name.clone());
                }
            }
            Err(failure) if failure.is(UNKNOWN_ORDER) => _ = self.unable.insert(server.clone()),
            Err(Failure { error, .. }) => {
                let failed = self.failed.entry(queue.name.clone()).or_default();
                failed.count += 1;
                let pause = PAUSE.saturating_mul(failed.count).min(PAUSE_MAX);
                failed.next_ns = now_ns.saturating_add(pause.as_nanos() as u64);
                let Failed { count: failures, .. } = failed;
                tracing::warn!(%server, queue = queue.name, failures, %error, "what a server has left for a peer is not sent yet");
            }
        }
    }
}

fn hash(what: &(&String, &ServerName)) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(what)
}

impl ClusterSources {
    /// Has live servers send what dead ones have left. To be called now and then, by one thread at a time. *Blocking*: it waits until
    /// all servers have answered or died, or took too long. What does not work out is tried again by a later call.
    pub fn share_queues(&self) {
        let mut claims = self.claims.lock();
        let left = match self.books.left_queues() {
            Ok(left) => left,
            Err(error) => {
                tracing::warn!(%error, "it is not known what dead servers have left for peers");
                return;
            }
        };
        let remotes: BTreeMap<ServerName, Arc<RemoteServer>> =
            self.servers.remotes().into_iter().map(|server| (server.server_name(), server)).collect();
        claims.unable.retain(|server| remotes.contains_key(server));
        let draining = self.servers.draining();
        let online: Vec<ServerName> = remotes.keys().cloned().collect();
        let now_ns = || self.servers.common.clock.monotonic_ns();
        let plan = claims.plan(&left, &online, &draining, now_ns());
        let told: Vec<_> = plan
            .into_iter()
            .filter_map(|(queue, server)| {
                let remote = remotes.get(&server)?;
                Some((remote.claim_queue(&queue), queue, remote))
            })
            .collect();
        for (told, queue, remote) in told {
            let result = told.map_err(Failure::from).and_then(|running| remote.wait_for(running));
            claims.note(&queue, &remote.server_name(), result, now_ns());
        }
    }
}

#[cfg(test)]
mod tests {
    use halcyon_cell::{Error, ErrorKind};

    use super::*;

    fn server(number: u16) -> ServerName {
        ServerName::new("h", number, 7)
    }

    fn queue(peer: &str, of: u16, by: Option<u16>) -> LeftQueue {
        let name = format!("{peer}-{of}+{by:?}");
        LeftQueue { peer_id: peer.to_string(), name, server: server(of), claimed_by: by.map(server) }
    }

    fn told(plan: &[(LeftQueue, ServerName)]) -> Vec<u16> {
        plan.iter().map(|(_, server)| server.port).collect()
    }

    #[test]
    fn each_queue_goes_to_a_server_with_few() {
        let (mut claims, able) = (Claims::default(), [server(1), server(2), server(3)]);
        let left: Vec<LeftQueue> = (11..17).map(|of| queue("p", of, None)).collect();
        let mut shares = told(&claims.plan(&left, &able, &[], 0));
        shares.sort_unstable();
        assert_eq!(shares, [1, 1, 2, 2, 3, 3]);
        let left = [queue("p", 11, Some(1)), queue("p", 12, Some(2)), queue("q", 11, None)];
        let plan = claims.plan(&left, &able, &[], 0);
        assert_eq!(told(&plan), [1, 2, 3], "claims that were not confirmed are ordered again");
        for (queue, server) in plan {
            claims.note(&queue, &server, Ok(()), 0);
        }
        let left = [left[0].clone(), left[1].clone(), queue("q", 11, Some(3))];
        assert_eq!(told(&claims.plan(&left, &able, &[], 0)), [3]);
        let left = [queue("p", 11, Some(4)), queue("p", 12, Some(2))];
        assert!(
            claims.plan(&left, &able, &[], 0).is_empty(),
            "the claimer is dead, and its WALs are not split"
        );
        claims.confirmed.insert(queue("p", 11, Some(1)).name);
        let left = [queue("p", 11, Some(1)), queue("p", 12, None)];
        assert_eq!(told(&claims.plan(&left, &able[..2], &[server(1), server(2)], 0)), [2]);
        assert_eq!(told(&claims.plan(&left[1..], &able, &[server(1), server(3)], 0)), [2]);
    }

    #[test]
    fn no_server_gets_two_queues_of_one_server_or_too_many() {
        let (mut claims, able) = (Claims::default(), [server(1), server(2)]);
        let left = [queue("p", 11, Some(1)), queue("p", 11, None), queue("p", 11, Some(9))];
        assert_eq!(told(&claims.plan(&left, &able, &[], 0)), [1, 2]);
        let left = [queue("p", 11, Some(1)), queue("p", 11, Some(2)), queue("p", 11, None)];
        claims.confirmed = left.iter().map(|queue| queue.name.clone()).collect();
        assert!(claims.plan(&left, &able, &[], 0).is_empty());
        let many: Vec<LeftQueue> = (0..300).map(|of| queue("p", 1_000 + of, None)).collect();
        assert_eq!(claims.plan(&many, &able, &[], 0).len(), 2 * CLAIMED_QUEUES_MAX);
    }

    #[test]
    fn what_fails_is_tried_again_later_and_servers_of_hbase_are_left_out() {
        let (mut claims, left) = (Claims::default(), [queue("p", 11, None)]);
        let second = 1_000_000_000;
        claims.note(&left[0], &server(1), Err(Error::new(ErrorKind::Busy, "no").into()), 0);
        assert!(claims.plan(&left, &[server(1)], &[], second).is_empty());
        assert_eq!(told(&claims.plan(&left, &[server(1)], &[], 2 * second)), [1]);
        let error = Error::new(ErrorKind::Busy, "halcyon.ClaimQueue");
        let unknown = Failure { error, class: Some(UNKNOWN_ORDER.to_string()) };
        claims.note(&left[0], &server(1), Err(unknown), 0);
        assert!(claims.plan(&left, &[server(1)], &[], 9 * second).is_empty());
        assert_eq!(told(&claims.plan(&left, &[server(1), server(2)], &[], 9 * second)), [2]);
    }
}
