//! Coordination within one process.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use halcyon_cell::{Error, Result};
use halcyon_env::Clock;
use halcyon_schema::znode::{ActiveMaster, MetaLocation};
use halcyon_schema::{ClusterId, ServerName};
use parking_lot::Mutex;

use crate::{ClusterPublisher, ClusterView, Coordinator, Lease, Loss, Membership, Seen};

/// A [`Coordinator`] for servers of one process, and for tests: nobody else can take a member for dead, so leases do not end.
pub struct EmbeddedCoordinator {
    clock: Arc<dyn Clock>,
    view: ClusterView,
    state: Arc<Mutex<State>>,
}

struct State {
    publisher: ClusterPublisher,
    members: BTreeSet<ServerName>,
}

impl State {
    fn publish_members(&self) {
        self.publisher.region_servers.publish(Seen::Present(self.members.iter().cloned().collect()));
    }
}

impl EmbeddedCoordinator {
    /// A cluster that runs and has neither a master nor a region server.
    pub fn new(clock: Arc<dyn Clock>, cluster_id: ClusterId) -> EmbeddedCoordinator {
        let (publisher, view) = ClusterPublisher::new();
        publisher.cluster_id.publish(Seen::Present(cluster_id));
        publisher.running.publish(Seen::Present(format!("{} ms since 1970", clock.now_ms())));
        publisher.master.publish(Seen::Absent);
        publisher.backup_masters.publish(Seen::Present(Vec::new()));
        publisher.meta.publish(Seen::Absent);
        publisher.region_servers.publish(Seen::Present(Vec::new()));
        publisher.draining.publish(Seen::Present(Vec::new()));
        let state = State { publisher, members: BTreeSet::new() };
        EmbeddedCoordinator { clock, view, state: Arc::new(Mutex::new(state)) }
    }

    /// The active master; `None` while there is none.
    pub fn set_master(&self, master: Option<ActiveMaster>) {
        self.state.lock().publisher.master.publish(master.map_or(Seen::Absent, Seen::Present));
    }

    /// Where `hbase:meta` is; `None` while nobody serves it.
    pub fn set_meta(&self, server: Option<ServerName>) {
        let location = server.map(|server| vec![MetaLocation { replica: 0, server, is_open: true }]);
        self.state.lock().publisher.meta.publish(location.map_or(Seen::Absent, Seen::Present));
    }

    pub fn set_draining(&self, servers: BTreeSet<ServerName>) {
        self.state.lock().publisher.draining.publish(Seen::Present(servers.into_iter().collect()));
    }

    /// The cluster is to stop as a whole.
    pub fn stop_cluster(&self) {
        self.state.lock().publisher.running.publish(Seen::Absent);
    }
}

impl Coordinator for EmbeddedCoordinator {
    fn view(&self) -> &ClusterView {
        &self.view
    }

    fn join<'a>(
        &'a self,
        server: &'a ServerName,
        _info_port: u16,
    ) -> BoxFuture<'a, Result<Arc<dyn Membership>>> {
        let mut state = self.state.lock();
        let joined = if state.members.insert(server.clone()) {
            state.publish_members();
            let lease = Arc::new(Lease::endless(server.clone(), self.clock.clone()));
            Ok(Arc::new(EmbeddedMembership { lease, state: Arc::downgrade(&self.state) })
                as Arc<dyn Membership>)
        } else {
            Err(Error::invalid(format!("{server} is a member already")))
        };
        Box::pin(std::future::ready(joined))
    }
}

struct EmbeddedMembership {
    lease: Arc<Lease>,
    state: Weak<Mutex<State>>,
}

impl Membership for EmbeddedMembership {
    fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    fn leave(&self) -> BoxFuture<'_, Result<()>> {
        self.lease.lose(Loss::Left);
        if let Some(state) = self.state.upgrade() {
            let mut state = state.lock();
            if state.members.remove(self.lease.server()) {
                state.publish_members();
            }
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::ManualClock;

    use super::*;
    use crate::LeaseState;

    #[tokio::test]
    async fn servers_come_and_go() {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let coordinator = EmbeddedCoordinator::new(clock.clone(), ClusterId("id".to_string()));
        let view = coordinator.view().clone();
        let (one, two) = (ServerName::new("h", 1, 1), ServerName::new("h", 2, 1));
        let first = coordinator.join(&two, 0).await.unwrap();
        coordinator.join(&one, 0).await.unwrap();
        assert_eq!(view.region_servers.present(), Some(vec![one.clone(), two.clone()]));
        assert!(coordinator.join(&one, 0).await.is_err());
        clock.suspend(std::time::Duration::from_secs(1_000));
        assert!(first.lease().is_valid());
        first.leave().await.unwrap();
        assert_eq!(first.lease().state(), LeaseState::Lost(Loss::Left));
        assert_eq!(view.region_servers.present(), Some(vec![one]));
    }

    #[test]
    fn the_view_follows() {
        let coordinator = EmbeddedCoordinator::new(Arc::new(ManualClock::at(1)), ClusterId("id".to_string()));
        let view = coordinator.view();
        assert_eq!(view.cluster_id.present().map(|id| id.0).as_deref(), Some("id"));
        assert_eq!((view.master.seen(), view.meta.seen()), (Seen::Absent, Seen::Absent));
        let server = ServerName::new("h", 1, 1);
        coordinator.set_master(Some(ActiveMaster { server: server.clone(), info_port: 5 }));
        coordinator.set_meta(Some(server.clone()));
        coordinator.set_draining([server.clone()].into());
        assert_eq!(view.master.present().map(|master| master.server), Some(server.clone()));
        assert_eq!(view.meta.present().map(|meta| meta[0].server.clone()), Some(server.clone()));
        assert_eq!(view.draining.present(), Some(vec![server]));
        assert!(view.running.present().is_some());
        coordinator.stop_cluster();
        coordinator.set_master(None);
        assert_eq!((view.running.seen(), view.master.seen()), (Seen::Absent, Seen::Absent));
    }
}
