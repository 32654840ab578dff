//! What the pages of a server say of the cluster around it.
//!
//! Every server has the same pages of its own regions, memory and calls. They differ in what they know besides: a process with a
//! master knows all of the cluster, and one server of many knows what ZooKeeper shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use halcyon_coord::{ClusterView, Lease, LeaseState, Seen};
use halcyon_master::{Master, ProcedureSummary};
use halcyon_schema::ServerName;
use halcyon_schema::znode::{ActiveMaster, MetaLocation};
use serde::Serialize;

use crate::cluster::{Cluster, ServerState, page_link};

/// How much of the cluster the pages of a server show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All of it: master and region server are one process.
    Cluster,
    /// One region server of many.
    Server,
    /// All of it, but the regions are those of other processes.
    Master,
}

impl Scope {
    /// The command that starts such a server.
    pub fn command(self) -> &'static str {
        match self {
            Scope::Cluster => "standalone",
            Scope::Server => "regionserver",
            Scope::Master => "master",
        }
    }
}

/// One line for people, such as where `hbase:meta` is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    pub name: &'static str,
    pub value: String,
    /// Address of a page about it.
    pub link: Option<String>,
}

impl Fact {
    pub fn new(name: &'static str, value: impl Into<String>) -> Fact {
        Fact { name, value: value.into(), link: None }
    }
}

/// What a server knows of its cluster. *Thread safety*: calls from any thread; none blocks.
pub trait Surroundings: Send + Sync {
    fn scope(&self) -> Scope;

    /// Where the server stands among the others.
    fn facts(&self) -> Vec<Fact>;

    /// The states of the tables that are known besides those with open regions, without `hbase:meta`. HBase's names.
    fn table_states(&self) -> BTreeMap<String, String>;

    fn procedures(&self) -> Vec<ProcedureSummary>;

    /// When the cluster was last checked, and what was found.
    fn hbck_report(&self) -> Option<(i64, Vec<String>)>;

    /// The cluster of an active master whose region servers are other processes.
    fn cluster(&self) -> Option<&Cluster> {
        None
    }
}

impl Surroundings for Master {
    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn facts(&self) -> Vec<Fact> {
        Vec::new() // there is one server
    }

    fn table_states(&self) -> BTreeMap<String, String> {
        let states = Master::table_states(self).into_iter();
        states.map(|(name, state)| (name, format!("{state:?}").to_uppercase())).collect()
    }

    fn procedures(&self) -> Vec<ProcedureSummary> {
        Master::procedures(self)
    }

    fn hbck_report(&self) -> Option<(i64, Vec<String>)> {
        Master::hbck_report(self)
    }
}

/// The active master of a cluster.
pub struct ClusterMaster {
    pub cluster: Cluster,
    /// Quorum and base path.
    pub zookeeper: String,
    /// Number and timeout of the session.
    pub session: String,
    /// Address of the root directory.
    pub root: String,
}

impl Surroundings for ClusterMaster {
    fn scope(&self) -> Scope {
        Scope::Master
    }

    fn facts(&self) -> Vec<Fact> {
        let (cluster, picture) = (&self.cluster, self.cluster.picture());
        let of_state = |state| names(picture.in_state(state).map(|row| &row.server));
        vec![
            active_master(&cluster.view.master.seen()),
            Fact::new("Epoch", picture.epoch.to_string()),
            Fact::new("Standby masters", names(picture.standby.iter())),
            meta_location(&cluster.view.meta.seen()),
            Fact::new("Region servers", names(picture.online().map(|row| &row.server))),
            Fact::new("Draining", of_state(ServerState::Draining)),
            Fact::new("Being recovered", of_state(ServerState::Recovering)),
            Fact::new("Regions in transition", picture.transitions.len().to_string()),
            Fact::new("ZooKeeper", &self.zookeeper),
            Fact::new("ZooKeeper session", &self.session),
            Fact::new("Root directory", &self.root),
        ]
    }

    fn table_states(&self) -> BTreeMap<String, String> {
        Surroundings::table_states(&*self.cluster.master)
    }

    fn procedures(&self) -> Vec<ProcedureSummary> {
        self.cluster.master.procedures()
    }

    fn hbck_report(&self) -> Option<(i64, Vec<String>)> {
        self.cluster.master.hbck_report()
    }

    fn cluster(&self) -> Option<&Cluster> {
        Some(&self.cluster)
    }
}

/// A region server among others.
pub struct Member {
    pub view: ClusterView,
    /// Quorum and base path.
    pub zookeeper: String,
    /// Number and timeout of the session.
    pub session: String,
    pub lease: Arc<Lease>,
    /// Address of the root directory.
    pub root: String,
    /// Address of the root directory of WALs, if that is another one.
    pub wal_root: Option<String>,
}

impl Surroundings for Member {
    fn scope(&self) -> Scope {
        Scope::Server
    }

    fn facts(&self) -> Vec<Fact> {
        let live = self.view.region_servers.seen();
        let draining = self.view.draining.present().unwrap_or_default();
        let mut facts = vec![
            active_master(&self.view.master.seen()),
            meta_location(&self.view.meta.seen()),
            region_servers(&live, &draining, self.lease.server()),
            Fact::new("ZooKeeper", &self.zookeeper),
            Fact::new("ZooKeeper session", &self.session),
            lease(&self.lease),
            Fact::new("Root directory", &self.root),
        ];
        facts.extend(self.wal_root.iter().map(|wal_root| Fact::new("Root directory of WALs", wal_root)));
        facts
    }

    /// Only the master knows them.
    fn table_states(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Those of the master are on its own pages.
    fn procedures(&self) -> Vec<ProcedureSummary> {
        Vec::new()
    }

    fn hbck_report(&self) -> Option<(i64, Vec<String>)> {
        None
    }
}

/// Names of servers that a fact has. Of more it has the number.
const NAMES_MAX: usize = 5;

pub fn names<'a>(servers: impl Iterator<Item = &'a ServerName>) -> String {
    let servers: Vec<&ServerName> = servers.collect();
    match servers.len() {
        0 => "none".to_string(),
        1..=NAMES_MAX => servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        count => count.to_string(),
    }
}

fn seen_text<T>(seen: &Seen<T>, show: impl FnOnce(&T) -> String) -> String {
    match seen {
        Seen::Unknown => "not read yet".to_string(),
        Seen::Absent => "none".to_string(),
        Seen::Present(value) => show(value),
        Seen::Malformed(error) => format!("cannot be read: {error}"),
    }
}

pub fn active_master(seen: &Seen<ActiveMaster>) -> Fact {
    let with_pages = seen.present().filter(|master| master.info_port != 0);
    let link = with_pages.map(|ActiveMaster { server, info_port }| page_link(server, *info_port));
    Fact { link, ..Fact::new("Active master", seen_text(seen, |master| master.server.to_string())) }
}

pub fn meta_location(seen: &Seen<Vec<MetaLocation>>) -> Fact {
    let one = |location: &MetaLocation| {
        let replica =
            if location.replica == 0 { String::new() } else { format!("replica {}: ", location.replica) };
        let state = if location.is_open { "" } else { " (opening)" };
        format!("{replica}{}{state}", location.server)
    };
    let all = |locations: &Vec<MetaLocation>| locations.iter().map(one).collect::<Vec<_>>().join(", ");
    Fact::new("hbase:meta", seen_text(seen, all))
}

fn region_servers(seen: &Seen<Vec<ServerName>>, draining: &[ServerName], own: &ServerName) -> Fact {
    let text = seen_text(seen, |live| {
        let own_state = match (live.contains(own), draining.contains(own)) {
            (false, _) => "; this one is not among them",
            (true, true) => "; this one is draining",
            (true, false) => "",
        };
        format!("{} live, {} draining{own_state}", live.len(), draining.len())
    });
    Fact::new("Region servers", text)
}

fn lease(lease: &Lease) -> Fact {
    let text = match lease.state() {
        LeaseState::Valid => format!("valid for {} s", lease.remaining().as_secs()),
        LeaseState::Expired => "expired: calls wait until ZooKeeper answers".to_string(),
        LeaseState::Lost(loss) => format!("lost: {loss}"),
    };
    Fact::new("Lease", text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use halcyon_coord::{ClusterPublisher, Loss};
    use halcyon_env::{Clock, ManualClock};

    use super::*;

    fn value<'f>(facts: &'f [Fact], name: &str) -> &'f Fact {
        facts.iter().find(|fact| fact.name == name).unwrap_or_else(|| panic!("no {name} in {facts:?}"))
    }

    #[test]
    fn a_member_says_what_zookeeper_shows() {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let own = ServerName::new("h", 16020, 1);
        let (publisher, view) = ClusterPublisher::new();
        let lease = Arc::new(Lease::new(own.clone(), clock.clone()));
        let member = Member {
            view,
            zookeeper: "z:2181/hbase".to_string(),
            session: "0x1, timeout 90 s".to_string(),
            lease: lease.clone(),
            root: "hdfs://n/hbase".to_string(),
            wal_root: None,
        };
        let facts = member.facts();
        assert_eq!(value(&facts, "Active master").value, "not read yet");
        assert!(value(&facts, "Lease").value.starts_with("expired"));

        let master = ServerName::new("m", 16000, 1);
        publisher.master.publish(Seen::Present(ActiveMaster { server: master.clone(), info_port: 16010 }));
        let meta = MetaLocation { replica: 0, server: own.clone(), is_open: false };
        publisher.meta.publish(Seen::Present(vec![meta]));
        publisher.region_servers.publish(Seen::Present(vec![own.clone(), ServerName::new("i", 16020, 1)]));
        publisher.draining.publish(Seen::Present(vec![own.clone()]));
        lease.renew(clock.boot_ns(), Duration::from_secs(60));
        let facts = member.facts();
        let found = value(&facts, "Active master");
        assert_eq!((&*found.value, found.link.as_deref()), ("m,16000,1", Some("http://m:16010/")));
        assert_eq!(value(&facts, "hbase:meta").value, "h,16020,1 (opening)");
        assert_eq!(value(&facts, "Region servers").value, "2 live, 1 draining; this one is draining");
        assert_eq!(value(&facts, "Lease").value, "valid for 60 s");

        publisher.master.publish(Seen::Present(ActiveMaster { server: master, info_port: 0 }));
        publisher.region_servers.publish(Seen::Present(Vec::new()));
        lease.lose(Loss::SessionExpired);
        let facts = member.facts();
        assert_eq!(value(&facts, "Active master").link, None, "it has no pages");
        assert!(value(&facts, "Region servers").value.ends_with("this one is not among them"));
        assert_eq!(value(&facts, "Lease").value, "lost: its session has expired");
    }
}
