//! What a server needs of the coordination service, whichever that is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_schema::znode::{ActiveMaster, MetaLocation};
use halcyon_schema::{ClusterId, ServerName};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::Lease;

/// Where servers of a cluster find each other: ZooKeeper, or the memory of one process ([`crate::EmbeddedCoordinator`]).
pub trait Coordinator: Send + Sync {
    /// What is known of the cluster; it follows the cluster by itself.
    fn view(&self) -> &ClusterView;

    /// Makes a region server known as a live one. The lease of the answer is valid.
    ///
    /// After an error the server may be known or not; the caller gives up the coordinator.
    fn join<'a>(
        &'a self,
        server: &'a ServerName,
        info_port: u16,
    ) -> BoxFuture<'a, Result<Arc<dyn Membership>>>;
}

/// One region server as a live one.
pub trait Membership: Send + Sync {
    fn lease(&self) -> &Arc<Lease>;

    /// Makes the server known as one that has stopped in order: it has closed its regions and answers no more. The lease is
    /// lost whether or not the coordination service answers.
    fn leave(&self) -> BoxFuture<'_, Result<()>>;
}

/// What was last read of something that the coordination service holds.
#[derive(Clone, Debug, Default)]
pub enum Seen<T> {
    /// Not read yet.
    #[default]
    Unknown,
    Absent,
    Present(T),
    /// There is something that cannot be understood.
    Malformed(Error),
}

impl<T> Seen<T> {
    pub fn present(&self) -> Option<&T> {
        match self {
            Seen::Present(value) => Some(value),
            _ => None,
        }
    }

    /// The value, or why there is none. `what` names it.
    pub fn get(&self, what: &str) -> Result<&T> {
        match self {
            Seen::Present(value) => Ok(value),
            Seen::Unknown => Err(Error::new(ErrorKind::Busy, format!("{what} was not read yet"))),
            Seen::Absent => Err(Error::new(ErrorKind::Busy, format!("there is no {what}"))),
            Seen::Malformed(error) => Err(error.clone()),
        }
    }
}

/// Equal if the same is known; of errors, if the sentence is the same.
impl<T: PartialEq> PartialEq for Seen<T> {
    fn eq(&self, other: &Seen<T>) -> bool {
        match (self, other) {
            (Seen::Unknown, Seen::Unknown) | (Seen::Absent, Seen::Absent) => true,
            (Seen::Present(one), Seen::Present(two)) => one == two,
            (Seen::Malformed(one), Seen::Malformed(two)) => one.to_string() == two.to_string(),
            _ => false,
        }
    }
}

/// The reading end of one thing that is followed. Cheap to clone.
#[derive(Clone)]
pub struct Followed<T> {
    what: &'static str,
    values: watch::Receiver<Seen<T>>,
}

impl<T: Clone> Followed<T> {
    /// What was last seen.
    pub fn seen(&self) -> Seen<T> {
        self.values.borrow().clone()
    }

    /// The value that was last seen.
    pub fn present(&self) -> Option<T> {
        self.values.borrow().present().cloned()
    }

    /// Waits for a value that passes, at most so long. The error says what was seen last.
    pub async fn wait_for(&mut self, limit: Duration, passes: impl Fn(&T) -> bool) -> Result<T> {
        let mut values = self.values.clone();
        let passed = values.wait_for(|seen| seen.present().is_some_and(&passes));
        match timeout(limit, passed).await {
            Ok(Ok(seen)) => return Ok(seen.present().expect("it has passed").clone()),
            Ok(Err(_)) => {
                let text = format!("{}: nobody follows the cluster any more", self.what);
                return Err(Error::new(ErrorKind::Stopping, text));
            }
            Err(_) => {}
        }
        let why = match self.values.borrow().get(self.what) {
            Err(why) => why,
            Ok(_) => Error::new(ErrorKind::Busy, "what is there is not what was waited for"),
        };
        Err(why.context(format!("waited {limit:?} for {}", self.what)))
    }

    /// Waits for a value, at most so long.
    pub async fn wait(&mut self, limit: Duration) -> Result<T> {
        self.wait_for(limit, |_| true).await
    }

    /// Waits for a change after what [`Followed::seen_now`] or this method has last given to this clone. An error: nobody
    /// follows the cluster any more.
    pub async fn changed(&mut self) -> Result<Seen<T>> {
        let gone = format!("{}: nobody follows the cluster any more", self.what);
        self.values.changed().await.map_err(|_| Error::new(ErrorKind::Stopping, gone))?;
        Ok(self.seen_now())
    }

    /// As [`Followed::seen`]; [`Followed::changed`] then waits for something newer.
    pub fn seen_now(&mut self) -> Seen<T> {
        self.values.borrow_and_update().clone()
    }
}

/// What is known of the cluster. Cheap to clone.
///
/// While the coordination service cannot be reached, this is what was last known.
#[derive(Clone)]
pub struct ClusterView {
    /// The identity of the cluster.
    pub cluster_id: Followed<ClusterId>,
    /// When the cluster was started; absent when it is stopped as a whole.
    pub running: Followed<String>,
    pub master: Followed<ActiveMaster>,
    /// The epoch of the last master of Halcyon that became active.
    pub master_epoch: Followed<u64>,
    /// The masters that wait to become active, sorted.
    pub backup_masters: Followed<Vec<ServerName>>,
    /// Where the replicas of `hbase:meta` are, by their number. The list is not empty.
    pub meta: Followed<Vec<MetaLocation>>,
    /// The live region servers, sorted.
    pub region_servers: Followed<Vec<ServerName>>,
    /// The region servers that get no more regions, sorted.
    pub draining: Followed<Vec<ServerName>>,
}

/// The writing end of a [`ClusterView`].
pub struct ClusterPublisher {
    pub cluster_id: Publisher<ClusterId>,
    pub running: Publisher<String>,
    pub master: Publisher<ActiveMaster>,
    pub master_epoch: Publisher<u64>,
    pub backup_masters: Publisher<Vec<ServerName>>,
    pub meta: Publisher<Vec<MetaLocation>>,
    pub region_servers: Publisher<Vec<ServerName>>,
    pub draining: Publisher<Vec<ServerName>>,
}

/// The writing end of one thing that is followed.
pub struct Publisher<T> {
    values: watch::Sender<Seen<T>>,
}

impl<T: PartialEq> Publisher<T> {
    /// Wakes those who wait if this is news.
    pub fn publish(&self, seen: Seen<T>) {
        self.values.send_if_modified(|known| {
            let news = *known != seen;
            *known = seen;
            news
        });
    }
}

fn followed<T>(what: &'static str) -> (Publisher<T>, Followed<T>) {
    let (sender, values) = watch::channel(Seen::Unknown);
    (Publisher { values: sender }, Followed { what, values })
}

impl ClusterPublisher {
    pub fn new() -> (ClusterPublisher, ClusterView) {
        let (cluster_id, cluster_id_view) = followed("identity of the cluster (hbaseid)");
        let (running, running_view) = followed("sign of a running cluster (running)");
        let (master, master_view) = followed("active master (master)");
        let (master_epoch, master_epoch_view) = followed("epoch of masters (halcyon/master-epoch)");
        let (backup_masters, backup_masters_view) = followed("list of backup masters (backup-masters)");
        let (meta, meta_view) = followed("location of hbase:meta (meta-region-server)");
        let (region_servers, region_servers_view) = followed("list of region servers (rs)");
        let (draining, draining_view) = followed("list of draining servers (draining)");
        let view = ClusterView {
            cluster_id: cluster_id_view,
            running: running_view,
            master: master_view,
            master_epoch: master_epoch_view,
            backup_masters: backup_masters_view,
            meta: meta_view,
            region_servers: region_servers_view,
            draining: draining_view,
        };
        let publisher = ClusterPublisher {
            cluster_id,
            running,
            master,
            master_epoch,
            backup_masters,
            meta,
            region_servers,
            draining,
        };
        (publisher, view)
    }
}

impl fmt::Debug for ClusterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterView")
            .field("cluster_id", &self.cluster_id.seen())
            .field("running", &self.running.seen())
            .field("master", &self.master.seen())
            .field("master_epoch", &self.master_epoch.seen())
            .field("backup_masters", &self.backup_masters.seen())
            .field("meta", &self.meta.seen())
            .field("region_servers", &self.region_servers.seen())
            .field("draining", &self.draining.seen())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn master(port: u16) -> ActiveMaster {
        ActiveMaster { server: ServerName::new("m", port, 1), info_port: 0 }
    }

    #[tokio::test]
    async fn a_wait_says_what_was_seen_last() {
        let (publisher, view) = ClusterPublisher::new();
        let mut masters = view.master.clone();
        let error = masters.wait(SHORT).await.unwrap_err();
        assert_eq!(
            error.message(),
            "waited 20ms for active master (master): active master (master) was not read yet"
        );
        publisher.master.publish(Seen::Absent);
        let error = masters.wait(SHORT).await.unwrap_err();
        assert!(error.message().ends_with("there is no active master (master)"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Busy);
        publisher.master.publish(Seen::Malformed(Error::corrupt("/hbase/master: garbage")));
        let error = masters.wait(SHORT).await.unwrap_err();
        assert!(error.message().ends_with(": /hbase/master: garbage"), "{error}");
        publisher.master.publish(Seen::Present(master(1)));
        assert_eq!(masters.wait(SHORT).await.unwrap(), master(1));
        assert!(masters.wait_for(SHORT, |seen| *seen != master(1)).await.is_err());
    }

    #[tokio::test]
    async fn only_news_wake() {
        let (publisher, view) = ClusterPublisher::new();
        let mut masters = view.master.clone();
        publisher.master.publish(Seen::Present(master(1)));
        assert_eq!(masters.changed().await.unwrap(), Seen::Present(master(1)));
        publisher.master.publish(Seen::Present(master(1)));
        assert!(timeout(SHORT, masters.changed()).await.is_err());
        publisher.master.publish(Seen::Absent);
        assert_eq!(masters.changed().await.unwrap(), Seen::Absent);
        drop(publisher);
        assert_eq!(masters.changed().await.unwrap_err().kind(), ErrorKind::Stopping);
    }
}
