//! Znodes: read with a watch, and created.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use halcyon_cell::Result;
use zookeeper_client as zk;

use crate::session::{Answer, Session};

/// Ends when what was read may have changed.
pub(crate) type Change = BoxFuture<'static, ()>;

/// What was read of one znode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Znode {
    pub(crate) data: Vec<u8>,
    /// Tells a znode from another one that had its path before (ZooKeeper: `czxid`).
    pub(crate) created: i64,
}

/// How a znode was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Created {
    Done,
    /// It was there, perhaps by an earlier attempt whose answer was lost.
    Exists,
    NoParent,
}

/// The znodes of a session. The double of the tests is a map.
pub(crate) trait Znodes: Send + Sync + 'static {
    /// Names of children; `None` if there is no such znode.
    fn children(&self, path: &str) -> impl Future<Output = Result<(Option<Vec<String>>, Change)>> + Send;

    /// A znode, if there is one.
    fn read(&self, path: &str) -> impl Future<Output = Result<(Option<Znode>, Change)>> + Send;

    /// A znode that outlives the session.
    fn create(&self, path: &str, data: &[u8]) -> impl Future<Output = Result<Created>> + Send;
}

/// Those of ZooKeeper.
pub(crate) struct SessionZnodes(pub(crate) Arc<Session>);

impl Znodes for SessionZnodes {
    async fn children(&self, path: &str) -> Result<(Option<Vec<String>>, Change)> {
        let (names, changed) = read_children(&self.0, path).await?;
        Ok((names, change(changed)))
    }

    async fn read(&self, path: &str) -> Result<(Option<Znode>, Change)> {
        let (found, changed) = read_data(&self.0, path).await?;
        Ok((found.map(|(data, stat)| Znode { data, created: stat.czxid }), change(changed)))
    }

    async fn create(&self, path: &str, data: &[u8]) -> Result<Created> {
        let options = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
        let ask = |client: zk::Client| {
            let options = &options;
            async move { client.create(path, data, options).await.map(drop) }
        };
        Ok(match self.0.call(&format!("create {path}"), ask).await? {
            Answer::Done(()) => Created::Done,
            Answer::NodeExists => Created::Exists,
            Answer::NoNode => Created::NoParent,
        })
    }
}

fn change(watcher: zk::OneshotWatcher) -> Change {
    Box::pin(async move { drop(watcher.changed().await) })
}

/// The data of a znode, `None` if there is none, and a watch that fires when this is no longer so.
pub(crate) async fn read_data(
    session: &Session,
    path: &str,
) -> Result<(Option<(Vec<u8>, zk::Stat)>, zk::OneshotWatcher)> {
    let what = format!("read {path}");
    loop {
        let ask = |client: zk::Client| async move { client.get_and_watch_data(path).await };
        if let Answer::Done((data, stat, changed)) = session.call(&what, ask).await? {
            return Ok((Some((data, stat)), changed));
        }
        if let Some(created) = watch_creation(session, path).await? {
            return Ok((None, created));
        }
    }
}

/// The names of the children of a znode, `None` if there is none, and a watch that fires when this is no longer so.
pub(crate) async fn read_children(
    session: &Session,
    path: &str,
) -> Result<(Option<Vec<String>>, zk::OneshotWatcher)> {
    let what = format!("list {path}");
    loop {
        let ask = |client: zk::Client| async move { client.list_and_watch_children(path).await };
        if let Answer::Done((names, changed)) = session.call(&what, ask).await? {
            return Ok((Some(names), changed));
        }
        if let Some(created) = watch_creation(session, path).await? {
            return Ok((None, created));
        }
    }
}

/// A watch that fires when a znode is created; `None` if it was created meanwhile.
async fn watch_creation(session: &Session, path: &str) -> Result<Option<zk::OneshotWatcher>> {
    let ask = |client: zk::Client| async move { client.check_and_watch_stat(path).await };
    match session.call(&format!("watch {path}"), ask).await? {
        Answer::Done((None, created)) => Ok(Some(created)),
        _ => Ok(None),
    }
}
