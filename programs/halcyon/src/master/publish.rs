//! Tells clients of dead servers, so that they wait for them no longer (HBase: `ClusterStatusPublisher`).
//!
//! ```text
//! dead ──> WALs are split ──> its regions are open elsewhere ──> told at once ──> told again each period, five times in all
//! ```
//!
//! A client that hears of a dead server forgets which regions it had, and cuts its connections to it. It does so once for each
//! server. HBase's master tells it within ten seconds after the death, whatever the regions are doing. Here it is told when they are open:
//! a client that hears of it earlier finds the dead server in `hbase:meta` again, and an asynchronous one connects to it and waits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use halcyon_contract::{RegionServers, Standing};
use halcyon_master::Timelines;
use halcyon_schema::ServerName;
use halcyon_servers::{MulticastSender, PUBLISHED_MAX, Permit, PublishedDead, Servers, status_message};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// How often it is looked whether the regions of a dead server are open.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// Regions that cannot be opened hold the news up for no longer than this after the WALs were split.
const OPENING_TIME_MAX: Duration = Duration::from_secs(10);

/// Takes the names of dead servers. They get lost if there are too many.
#[derive(Clone)]
pub struct DeadNews(mpsc::Sender<ServerName>);

impl DeadNews {
    pub fn tell(&self, server: ServerName) {
        if self.0.try_send(server).is_err() {
            tracing::warn!("clients are not told of a dead server: there are too many");
        }
    }
}

/// What the messages say, and how they are sent.
pub struct Publisher {
    pub sender: MulticastSender,
    pub period: Duration,
    pub version: String,
    pub cluster_id: String,
    pub master: ServerName,
    /// Nothing is sent while it is not given.
    pub permit: Permit,
}

impl Publisher {
    /// Begins to tell clients. It ends with the servers.
    pub fn start(self, servers: &Arc<Servers>, timelines: Arc<Timelines>) -> DeadNews {
        let (news, dead) = mpsc::channel(PUBLISHED_MAX);
        tracing::info!(group = %self.sender.to(), "clients are told of dead servers");
        tokio::spawn(self.publish(dead, Arc::downgrade(servers), timelines));
        let news = DeadNews(news);
        let of_expired = news.clone();
        servers.on_expired(Box::new(move |server| of_expired.tell(server)));
        news
    }

    async fn publish(
        self,
        mut dead: mpsc::Receiver<ServerName>,
        servers: Weak<Servers>,
        timelines: Arc<Timelines>,
    ) {
        let mut planned = Planned::new(self.period);
        loop {
            let looks_at = planned.looks_at(Instant::now());
            tokio::select! {
                new = dead.recv() => match new {
                    Some(server) => planned.add(server),
                    None => return,
                },
                () = sleep_until(looks_at.unwrap_or_else(Instant::now)), if looks_at.is_some() => {}
            }
            let Some(servers) = servers.upgrade() else { return };
            if self.permit.is_given() {
                for names in
                    planned.messages(Instant::now(), |server| self.stage(server, &servers, &timelines))
                {
                    self.send(&names);
                }
            }
        }
    }

    fn stage(&self, server: &ServerName, servers: &Servers, timelines: &Timelines) -> Stage {
        if servers.has_successor(server) || server.address() == self.master.address() {
            Stage::Replaced
        } else if servers.standing(server) == Standing::Recovering {
            Stage::Recovering
        } else if timelines.is_under_way(server) {
            Stage::Opening
        } else {
            Stage::Recovered
        }
    }

    fn send(&self, names: &[ServerName]) {
        let message = status_message(&self.version, &self.cluster_id, &self.master, names);
        let shown = names.iter().map(ServerName::to_string).collect::<Vec<_>>().join(" ");
        match self.sender.send(&message) {
            Ok(()) => tracing::info!(servers = shown, "clients are told of dead servers"),
            Err(error) => {
                tracing::warn!(servers = shown, %error, "clients could not be told of dead servers")
            }
        }
    }
}

/// How far the recovery of a dead server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its WALs are not split.
    Recovering,
    /// Its regions are being opened elsewhere.
    Opening,
    Recovered,
    /// Another server has its address: connections to it are not to be cut.
    Replaced,
}

/// Which servers are named in which message.
struct Planned {
    period: Duration,
    /// Dead servers that clients are not told of yet, with the time when their WALs were found to be split.
    waiting: Vec<(ServerName, Option<Instant>)>,
    dead: PublishedDead,
    next_at: Option<Instant>,
}

impl Planned {
    fn new(period: Duration) -> Planned {
        Planned { period, waiting: Vec::new(), dead: PublishedDead::default(), next_at: None }
    }

    fn add(&mut self, server: ServerName) {
        if self.waiting.len() < PUBLISHED_MAX && !self.waiting.iter().any(|(known, _)| *known == server) {
            self.waiting.push((server, None));
        }
    }

    /// When there may be messages again without more news.
    fn looks_at(&self, now: Instant) -> Option<Instant> {
        let look = (!self.waiting.is_empty()).then(|| now + LOOK_PERIOD);
        let next = self.next_at.map(|at| at.max(now + LOOK_PERIOD)); // it may be late, if nothing may be sent
        [look, next].into_iter().flatten().min()
    }

    /// The names in each message that is due.
    fn messages(&mut self, now: Instant, stage: impl Fn(&ServerName) -> Stage) -> Vec<Vec<ServerName>> {
        let Planned { waiting, dead, .. } = self;
        waiting.retain_mut(|(server, split_at)| match stage(server) {
            Stage::Recovering => true,
            Stage::Opening if now < *split_at.get_or_insert(now) + OPENING_TIME_MAX => true,
            Stage::Opening | Stage::Recovered => {
                dead.add(server.clone());
                false
            }
            Stage::Replaced => false,
        });
        dead.retain(|server| stage(server) != Stage::Replaced);
        let mut messages = Vec::new();
        loop {
            let names = dead.next_new();
            if names.is_empty() {
                break;
            }
            messages.push(names);
        }
        if messages.is_empty() && self.next_at.is_some_and(|at| at <= now) {
            let names = dead.least_sent();
            if !names.is_empty() {
                messages.push(names);
            }
        }
        if !messages.is_empty() {
            self.next_at = Some(now + self.period);
        }
        if dead.is_empty() {
            self.next_at = None;
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    fn name(number: i64) -> ServerName {
        ServerName::new("h", 16020, number)
    }

    #[test]
    fn clients_are_told_when_regions_are_open_and_then_each_period() {
        let (mut planned, start) = (Planned::new(PERIOD), Instant::now());
        assert_eq!(planned.looks_at(start), None);
        planned.add(name(1));
        planned.add(name(1));
        assert_eq!(planned.looks_at(start), Some(start + LOOK_PERIOD));
        for stage in [Stage::Recovering, Stage::Opening] {
            assert!(planned.messages(start, |_| stage).is_empty(), "{stage:?}");
        }
        assert_eq!(planned.messages(start, |_| Stage::Recovered), [[name(1)]]);
        for round in 1..5 {
            let at = start + PERIOD * round;
            assert_eq!(planned.looks_at(start), Some(at));
            assert!(planned.messages(at - LOOK_PERIOD, |_| Stage::Recovered).is_empty());
            assert_eq!(planned.messages(at, |_| Stage::Recovered), [[name(1)]]);
        }
        assert_eq!(planned.looks_at(start), None, "it was told five times");
    }

    #[test]
    fn a_second_death_does_not_wait_for_the_period() {
        let (mut planned, start) = (Planned::new(PERIOD), Instant::now());
        planned.add(name(1));
        planned.messages(start, |_| Stage::Recovered);
        planned.add(name(2));
        let later = start + PERIOD / 2;
        assert_eq!(planned.messages(later, |_| Stage::Recovered), [[name(2)]]);
        assert_eq!(planned.messages(later + PERIOD, |_| Stage::Recovered), [[name(1), name(2)]]);
    }

    #[test]
    fn a_region_that_does_not_open_holds_the_news_up_for_a_while() {
        let (mut planned, start) = (Planned::new(PERIOD), Instant::now());
        planned.add(name(1));
        let long = start + OPENING_TIME_MAX * 9;
        assert!(
            planned.messages(long, |_| Stage::Recovering).is_empty(),
            "no client could find a region yet"
        );
        assert!(planned.messages(long, |_| Stage::Opening).is_empty());
        assert_eq!(planned.messages(long + OPENING_TIME_MAX, |_| Stage::Opening), [[name(1)]]);
    }

    #[test]
    fn connections_to_a_successor_are_not_cut() {
        let (mut planned, start) = (Planned::new(PERIOD), Instant::now());
        planned.add(name(1));
        assert!(planned.messages(start, |_| Stage::Replaced).is_empty());
        planned.add(name(2));
        assert_eq!(planned.messages(start, |_| Stage::Recovered).len(), 1);
        assert!(planned.messages(start + PERIOD, |_| Stage::Replaced).is_empty());
        assert_eq!(planned.looks_at(start), None);
    }
}
