//! Counters of servers become rates: two reports of one server, and the time between them.

use std::collections::HashMap;

use halcyon_client::ClusterMetrics;

/// Requests, counted or per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters<N> {
    pub reads: N,
    pub writes: N,
    pub filtered: N,
}

/// What has counters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Region { server: String, region: Vec<u8> },
    Client { server: String, user: String, host: String },
}

struct Seen {
    report_ms: u64,
    counters: Counters<u64>,
    rates: Option<Counters<f64>>,
}

/// The rates of everything, as of the last report.
#[derive(Default)]
pub struct Rates(HashMap<Key, Seen>);

impl Rates {
    /// Takes in the cluster's state. Servers that have not reported since keep their rates.
    pub fn update(&mut self, metrics: &ClusterMetrics) {
        let mut before = std::mem::take(&mut self.0);
        for (key, report_ms, counters) in counted(metrics) {
            let seen = match before.remove(&key) {
                Some(last) if last.report_ms == report_ms => last,
                Some(last) => Seen { report_ms, counters, rates: rates(&last, report_ms, counters) },
                None => Seen { report_ms, counters, rates: None },
            };
            self.0.insert(key, seen);
        }
    }

    pub(crate) fn of(&self, key: &Key) -> Option<Counters<f64>> {
        self.0.get(key)?.rates
    }

    /// Whether anything has rates already.
    pub fn is_known(&self) -> bool {
        self.0.values().any(|seen| seen.rates.is_some())
    }
}

/// Nothing if a counter went back: the region was opened anew.
fn rates(last: &Seen, report_ms: u64, counters: Counters<u64>) -> Option<Counters<f64>> {
    let seconds = report_ms.checked_sub(last.report_ms)? as f64 / 1000.0;
    let rate = |before: u64, now: u64| Some(now.checked_sub(before)? as f64 / seconds);
    Some(Counters {
        reads: rate(last.counters.reads, counters.reads)?,
        writes: rate(last.counters.writes, counters.writes)?,
        filtered: rate(last.counters.filtered, counters.filtered)?,
    })
}

fn counted(metrics: &ClusterMetrics) -> Vec<(Key, u64, Counters<u64>)> {
    let mut all = Vec::new();
    for server in &metrics.servers {
        let name = server.name.to_string();
        for region in &server.regions {
            let key = Key::Region { server: name.clone(), region: region.region_name.clone() };
            let counters = Counters {
                reads: region.read_requests_count,
                writes: region.write_requests_count,
                filtered: region.filtered_read_requests_count,
            };
            all.push((key, server.report_end_ms, counters));
        }
        for user in &server.users {
            for client in &user.clients {
                let (user, host) = (user.name.clone(), client.host.clone());
                let key = Key::Client { server: name.clone(), user, host };
                let counters = Counters {
                    reads: client.read_requests_count,
                    writes: client.write_requests_count,
                    filtered: client.filtered_read_requests_count,
                };
                all.push((key, server.report_end_ms, counters));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::tests::{cluster, server};

    #[test]
    fn rates_are_those_between_two_reports_of_a_server() {
        let region = |reads, writes| server("a", 1).region("t,,1.", reads, writes);
        let key = Key::Region { server: "a,16020,1".into(), region: b"t,,1.".to_vec() };
        let mut rates = Rates::default();
        let mut look = |at_ms, reads, writes| {
            rates.update(&cluster(vec![region(reads, writes).reported(at_ms)]));
            rates.of(&key).map(|rates| (rates.reads, rates.writes))
        };
        assert_eq!(look(1000, 50, 7), None, "one report says nothing of time");
        assert_eq!(look(3000, 250, 7), Some((100.0, 0.0)));
        assert_eq!(look(3000, 250, 7), Some((100.0, 0.0)), "the same report again");
        assert_eq!(look(4000, 250, 17), Some((0.0, 10.0)));
        assert_eq!(look(5000, 3, 0), None, "the region was opened anew");
        assert_eq!(look(6000, 4, 0), Some((1.0, 0.0)));
    }
}
