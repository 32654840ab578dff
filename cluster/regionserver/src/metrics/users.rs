//! Requests by user and client host, for `hbtop` (HBase: `MetricsUserAggregateImpl`).
//!
//! A connection belongs to one user on one host, so each has counters of its own, which no other connection's thread
//! touches. They are summed up when somebody asks, and added to what is left of closed connections when it closes.
//! The number of users and hosts is bounded: beyond [`CLIENTS_COUNT_MAX`] pairs, closed connections count as
//! [`OTHERS`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_env::Mutex;
use halcyon_proto::pb;
use halcyon_rpc::Connection;

/// Pairs of user and host of which closed connections are remembered at most.
const CLIENTS_COUNT_MAX: usize = 1000;
/// Bytes of a user's name at most. A client chooses it, up to 64 KiB, and each report to the master has all of them.
const NAME_LEN_MAX: usize = 256;
/// User and host of what is beyond that.
const OTHERS: &str = "(others)";
/// The user of a connection that names none.
const UNNAMED: &str = "(unnamed)";

/// Requests of one connection.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct ConnectionLoad {
    reads: AtomicU64,
    writes: AtomicU64,
    filtered: AtomicU64,
}

/// Sums of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    reads: u64,
    writes: u64,
    filtered: u64,
}

impl Sums {
    fn add(&mut self, load: &ConnectionLoad) {
        self.reads += load.reads.load(Ordering::Relaxed);
        self.writes += load.writes.load(Ordering::Relaxed);
        self.filtered += load.filtered.load(Ordering::Relaxed);
    }
}

/// User and host.
type Client = (String, String);

/// See the head of the file.
#[derive(Default)]
pub(crate) struct UserLoads {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the number of the connection.
    open: HashMap<u64, (Client, Arc<ConnectionLoad>)>,
    closed: HashMap<Client, Sums>,
}

impl UserLoads {
    #[inline]
    pub(crate) fn note_reads(&self, connection: &Connection, count: u64) {
        self.with(connection, |load| load.reads.fetch_add(count, Ordering::Relaxed));
    }

    #[inline]
    pub(crate) fn note_writes(&self, connection: &Connection, count: u64) {
        self.with(connection, |load| load.writes.fetch_add(count, Ordering::Relaxed));
    }

    #[inline]
    pub(crate) fn note_filtered(&self, connection: &Connection, count: u64) {
        self.with(connection, |load| load.filtered.fetch_add(count, Ordering::Relaxed));
    }

    #[inline]
    fn with(&self, connection: &Connection, note: impl FnOnce(&ConnectionLoad) -> u64) {
        let kept = connection.state.kept.get_or_init(|| self.begin(connection));
        if let Some(load) = kept.downcast_ref::<ConnectionLoad>() {
            note(load);
        }
    }

    fn begin(&self, connection: &Connection) -> Arc<dyn std::any::Any + Send + Sync> {
        let load = Arc::new(ConnectionLoad::default());
        let user = connection.user.as_deref().unwrap_or(UNNAMED);
        let mut ends = (0..=user.len().min(NAME_LEN_MAX)).rev();
        let end = ends.find(|&end| user.is_char_boundary(end)).unwrap_or(0);
        let user = user[..end].to_string();
        let host = connection.peer.rsplit_once(':').map_or(&*connection.peer, |(host, _)| host).to_string();
        self.state.lock().open.insert(connection.id, ((user, host), load.clone()));
        load
    }

    /// Keeps what a connection has done that is closed.
    pub(crate) fn connection_closed(&self, connection: &Connection) {
        let mut state = self.state.lock();
        if let Some((client, load)) = state.open.remove(&connection.id) {
            let is_known = state.closed.contains_key(&client) || state.closed.len() < CLIENTS_COUNT_MAX;
            let client = if is_known { client } else { (OTHERS.to_string(), OTHERS.to_string()) };
            state.closed.entry(client).or_default().add(&load);
        }
    }

    /// Sorted by user and host.
    pub(crate) fn to_pb(&self) -> Vec<pb::UserLoad> {
        let mut sums: BTreeMap<Client, Sums> = BTreeMap::new();
        {
            let state = self.state.lock();
            sums.extend(state.closed.iter().map(|(client, closed)| (client.clone(), *closed)));
            for (client, load) in state.open.values() {
                sums.entry(client.clone()).or_default().add(load);
            }
        }
        let mut users: Vec<pb::UserLoad> = Vec::new();
        for ((user, host_name), sums) in sums {
            let client = pb::ClientMetrics {
                host_name,
                read_requests_count: Some(sums.reads),
                write_requests_count: Some(sums.writes),
                filtered_requests_count: Some(sums.filtered),
            };
            match users.last_mut() {
                Some(last) if last.user_name == user => last.client_metrics.push(client),
                _ => users.push(pb::UserLoad { user_name: user, client_metrics: vec![client] }),
            }
        }
        users
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(id: u64, user: Option<String>, peer: &str) -> Connection {
        Connection { user, ..Connection::new(id, peer) }
    }

    fn load(host: &str, reads: u64, writes: u64, filtered: u64) -> pb::ClientMetrics {
        pb::ClientMetrics {
            host_name: host.to_string(),
            read_requests_count: Some(reads),
            write_requests_count: Some(writes),
            filtered_requests_count: Some(filtered),
        }
    }

    #[test]
    fn long_names_are_cut() {
        let loads = UserLoads::default();
        for id in 0..10 {
            let name = format!("{}{id}{}", "a".repeat(NAME_LEN_MAX - 2), "\u{e4}".repeat(30_000));
            loads.note_reads(&connection(id, Some(name), "10.0.0.1:5"), 1);
        }
        let users = loads.to_pb();
        assert_eq!(users.len(), 10);
        assert!(users.iter().all(|user| user.user_name.len() == NAME_LEN_MAX - 1), "{users:?}");
    }

    #[test]
    fn connections_are_summed_up_by_user_and_host_also_once_they_are_closed() {
        let loads = UserLoads::default();
        let ann = |id, peer| connection(id, Some("ann".to_string()), peer);
        let (first, second, third) = (ann(1, "10.0.0.1:5"), ann(2, "10.0.0.1:6"), ann(3, "10.0.0.2:5"));
        loads.note_reads(&first, 2);
        loads.note_reads(&second, 3);
        loads.note_writes(&second, 4);
        loads.note_filtered(&third, 5);
        loads.note_writes(&connection(4, None, "[::1]:7"), 6);
        let expected = [
            pb::UserLoad { user_name: UNNAMED.to_string(), client_metrics: vec![load("[::1]", 0, 6, 0)] },
            pb::UserLoad {
                user_name: "ann".to_string(),
                client_metrics: vec![load("10.0.0.1", 5, 4, 0), load("10.0.0.2", 0, 0, 5)],
            },
        ];
        assert_eq!(loads.to_pb(), expected);
        [&first, &second, &third, &first].into_iter().for_each(|closed| loads.connection_closed(closed));
        assert_eq!(loads.to_pb(), expected);
        assert_eq!(loads.state.lock().open.len(), 1);
    }

    #[test]
    fn the_number_of_clients_is_bounded() {
        let loads = UserLoads::default();
        let count = CLIENTS_COUNT_MAX as u64 + 50;
        for id in 0..count {
            let one = connection(id, Some(format!("user{id}")), "h:1");
            loads.note_reads(&one, 1);
            loads.connection_closed(&one);
        }
        let users = loads.to_pb();
        assert_eq!(users.len(), CLIENTS_COUNT_MAX + 1);
        let others = users.iter().find(|user| user.user_name == OTHERS).unwrap();
        assert_eq!(others.client_metrics, [load(OTHERS, 50, 0, 0)]);
    }
}
