//! How long masters before the active one may act.
//!
//! A master whose znode was taken from it may live, and change files until its lease ends. The znode `master` tells of it, in two fields
//! that HBase passes over:
//!
//! ```text
//! lease_ms         from the end of this znode on, if another master replaces it: how long its master, or one before that, may act
//! predecessor_ms   from the creation of this znode on: how long one before its master may act; 0 if there is none
//! ```
//!
//! The second one counts when the znode is gone by itself. Its master has no lease then, or it has resigned, and one before it may act. A
//! master that waits has seen the znode, and knows what is left. When that time is over, the active master writes the znode once more,
//! without a predecessor and with its own lease.
//!
//! A time beyond [`LEASE_MAX`] is not believed: anybody may write a znode, and procedures that delete wait for the end of that time.

use std::time::Duration;

use halcyon_proto::pb;
use halcyon_schema::znode::{self, ActiveMaster};
use prost::Message;

use crate::own::lease_ms;

/// The longest lease that a znode may show, if the own one is not longer. Leases last for two thirds of a session, which takes 90 s by
/// default.
const LEASE_MAX: Duration = Duration::from_secs(600);

/// HBase's `Master`, and what a master of Halcyon asks that takes its place. HBase passes over fields that it does not know.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ShownMaster {
    #[prost(message, required, tag = "1")]
    master: pb::ServerName,
    #[prost(uint32, optional, tag = "2")]
    rpc_version: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    info_port: Option<u32>,
    #[prost(uint64, optional, tag = "1000")]
    lease_ms: Option<u64>,
    #[prost(uint64, optional, tag = "1001")]
    predecessor_ms: Option<u64>,
}

impl ShownMaster {
    pub(crate) fn of(master: &ActiveMaster, lease: Duration, predecessor: Option<Duration>) -> ShownMaster {
        let pb::Master { master, rpc_version, info_port } = master.to_pb();
        let longest = predecessor.map_or(lease, |predecessor| predecessor.max(lease));
        ShownMaster {
            master,
            rpc_version,
            info_port,
            lease_ms: Some(lease_ms(longest)),
            predecessor_ms: Some(predecessor.map_or(0, lease_ms)),
        }
    }
}

/// What a znode says of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShownLeases {
    /// How long its master, or one before that, may act after its end: at least as long as this one, which is known of those that do not
    /// say it.
    pub(crate) lease: Duration,
    /// How long one before its master may act. `None`: it does not say, because its master is one of HBase or of an earlier program.
    pub(crate) predecessor: Option<Duration>,
}

impl ShownLeases {
    /// `own`: the lease of a master with this session.
    pub(crate) fn of(path: &str, data: &[u8], own: Duration) -> ShownLeases {
        let believed = |ms: u64| Duration::from_millis(ms).min(LEASE_MAX.max(own));
        let shown: Option<ShownMaster> = znode::message(path, data).ok();
        let lease = shown.as_ref().and_then(|shown| shown.lease_ms).map_or(own, believed);
        let predecessor = shown.and_then(|shown| shown.predecessor_ms).map(believed);
        ShownLeases { lease: lease.max(own), predecessor }
    }
}

/// What a master that waits knows of those before it. All times are of `Clock::boot_ns`.
#[derive(Debug, Default)]
pub(crate) struct Predecessors {
    /// The last znode of another master that was seen.
    seen: Option<Seen>,
    /// Until when masters before that one may act.
    until_ns: u64,
    /// The znode that this master has asked to replace, by the transaction that created it, and how long its master may act after its end.
    /// The transaction that replaces it may have been carried out without an answer.
    replaced: Option<(i64, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    created: i64,
    written: i64,
    /// Until when one before its master may act.
    until_ns: u64,
}

impl Predecessors {
    /// There is a znode of another master, which these transactions created and last wrote.
    pub(crate) fn saw(&mut self, (created, written): (i64, i64), shown: &ShownLeases, now_ns: u64) {
        let until_ns = shown.predecessor.map(|left| end_ns(now_ns, left));
        match &mut self.seen {
            Some(seen) if seen.created == created => {
                // It is not replaced yet. Its master writes it again when it has outlived its predecessor.
                self.replaced.take_if(|replaced| replaced.0 == created);
                if seen.written != written {
                    seen.written = written;
                    seen.until_ns = until_ns.unwrap_or(seen.until_ns);
                }
            }
            _ => {
                self.settle(now_ns);
                self.seen = Some(Seen { created, written, until_ns: until_ns.unwrap_or(0) });
            }
        }
    }

    /// There is no znode: that of the last master is gone by itself, or this one has replaced it and lost its own.
    pub(crate) fn gone(&mut self, now_ns: u64) {
        self.settle(now_ns);
    }

    /// This master is about to replace the znode that was created by this transaction.
    pub(crate) fn replaces(&mut self, created: i64, lease: Duration) {
        self.replaced = Some((created, lease));
    }

    /// How long one of them may act, if this master becomes active now.
    pub(crate) fn left(&self, now_ns: u64) -> Option<Duration> {
        let until_ns = self.seen.map_or(0, |seen| seen.until_ns).max(self.until_ns);
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns));
        let left = self.replaced.map_or(left, |(_, lease)| lease.max(left));
        (!left.is_zero()).then_some(left)
    }

    /// What was seen and replaced is gone by now at the latest.
    fn settle(&mut self, now_ns: u64) {
        let of_seen = self.seen.take().map_or(0, |seen| seen.until_ns);
        let of_replaced = self.replaced.take().map_or(0, |(_, lease)| end_ns(now_ns, lease));
        self.until_ns = self.until_ns.max(of_seen).max(of_replaced);
    }
}

fn end_ns(now_ns: u64, left: Duration) -> u64 {
    now_ns.saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use halcyon_schema::ServerName;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PATH: &str = "/hbase/master";

    fn master() -> ActiveMaster {
        ActiveMaster { server: ServerName::new("m", 16000, 7), info_port: 16010 }
    }

    fn encoded(lease: Duration, predecessor: Option<Duration>) -> Vec<u8> {
        znode::encode("master:16000", [7; 8], &ShownMaster::of(&master(), lease, predecessor))
    }

    fn ns(seconds: u32) -> u64 {
        end_ns(0, seconds * SECOND)
    }

    fn about(found: Option<Duration>, seconds: u32) -> bool {
        found.is_some_and(|found| found >= seconds * SECOND && found < (seconds + 1) * SECOND)
    }

    #[test]
    fn a_master_shows_how_long_it_may_act() {
        let data = encoded(60 * SECOND, None);
        assert_eq!(ActiveMaster::decode(PATH, &data).unwrap(), master(), "HBase reads it as its own");
        let shown = ShownLeases::of(PATH, &data, 40 * SECOND);
        assert!(about(Some(shown.lease), 60), "{shown:?}: its session is longer than ours");
        assert_eq!(shown.predecessor, Some(Duration::ZERO));
        let shown = ShownLeases::of(PATH, &encoded(20 * SECOND, None), 40 * SECOND);
        assert_eq!(shown.lease, 40 * SECOND);
        let shown = ShownLeases::of(PATH, &encoded(20 * SECOND, Some(70 * SECOND)), 40 * SECOND);
        assert!(about(Some(shown.lease), 70) && about(shown.predecessor, 70), "{shown:?}");
        // An earlier program, or HBase.
        let of_hbase = znode::encode("master:16000", [7; 8], &master().to_pb());
        for data in [&of_hbase[..], b"?"] {
            let unknown = ShownLeases { lease: 40 * SECOND, predecessor: None };
            assert_eq!(ShownLeases::of(PATH, data, 40 * SECOND), unknown);
        }
    }

    /// Each later master showed the end of time as well, and procedures that delete waited for it, and so did stops.
    #[test]
    fn an_absurd_lease_is_not_believed() {
        let mut absurd = ShownMaster::of(&master(), SECOND, Some(SECOND));
        (absurd.lease_ms, absurd.predecessor_ms) = (Some(u64::MAX), Some(u64::MAX));
        let data = znode::encode("master:16000", [7; 8], &absurd);
        let expected = ShownLeases { lease: LEASE_MAX, predecessor: Some(LEASE_MAX) };
        assert_eq!(ShownLeases::of(PATH, &data, 40 * SECOND), expected);
        let own = 2 * LEASE_MAX;
        assert_eq!(ShownLeases::of(PATH, &data, own).lease, own, "one as long as the own is no surprise");
    }

    fn shown(predecessor: Option<u32>) -> ShownLeases {
        ShownLeases { lease: 40 * SECOND, predecessor: predecessor.map(|left| left * SECOND) }
    }

    /// The first master may act for 60 s from the second one's election on, and the session of the second one ended before: the third one
    /// knew of nobody.
    #[test]
    fn what_is_left_of_the_first_one_counts_when_the_second_one_is_gone() {
        let mut known = Predecessors::default();
        known.saw((5, 5), &shown(Some(60)), ns(100));
        known.saw((5, 5), &shown(Some(60)), ns(110));
        known.gone(ns(140));
        assert_eq!(known.left(ns(140)), Some(20 * SECOND), "counted from the first sight of the znode");
        assert_eq!(known.left(ns(160)), None);
        // A master of HBase came between. It does not say anything.
        known.saw((7, 7), &shown(None), ns(145));
        known.gone(ns(150));
        assert_eq!(known.left(ns(150)), Some(10 * SECOND));
    }

    #[test]
    fn a_master_that_has_outlived_its_predecessor_says_so() {
        let mut known = Predecessors::default();
        known.saw((5, 5), &shown(Some(60)), ns(155));
        known.saw((5, 6), &shown(Some(0)), ns(160));
        known.gone(ns(161));
        assert_eq!(known.left(ns(161)), None, "this one stood late, and does not wait until 215 s");
        // One that has no predecessor leaves none: its own lease ends before its session does, or when it resigns.
        known.saw((7, 7), &shown(Some(0)), ns(170));
        known.gone(ns(171));
        assert_eq!(known.left(ns(171)), None);
    }

    #[test]
    fn a_lease_that_was_replaced_counts_from_the_end_of_its_znode() {
        let mut known = Predecessors::default();
        known.saw((5, 5), &shown(Some(0)), ns(100));
        known.replaces(5, 40 * SECOND);
        assert_eq!(known.left(ns(101)), Some(40 * SECOND));
        assert_eq!(known.left(ns(109)), Some(40 * SECOND), "it may have been carried out just now");
        // Something else was refused: the znode is there still, and then it goes by itself.
        known.saw((5, 5), &shown(Some(0)), ns(110));
        let mut refused = known;
        refused.gone(ns(111));
        assert_eq!(refused.left(ns(111)), None);
        // Another one has come between, or it was carried out, and the own znode was deleted.
        for comes_another in [true, false] {
            let mut known = Predecessors::default();
            known.saw((5, 5), &shown(Some(0)), ns(100));
            known.replaces(5, 40 * SECOND);
            if comes_another {
                known.saw((6, 6), &shown(Some(0)), ns(102));
            }
            known.gone(ns(102));
            assert_eq!(known.left(ns(122)), Some(20 * SECOND), "another one: {comes_another}");
            assert_eq!(known.left(ns(142)), None, "it does not stay for ever");
        }
    }
}
