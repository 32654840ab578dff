//! The coordinator over ZooKeeper.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{BarrierKind, ProcedureMember};
use halcyon_coord::{ClusterPublisher, ClusterView, Coordinator, Membership};
use halcyon_env::Clock;
use halcyon_schema::ServerName;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::warn;
use zookeeper_client as zk;

use crate::ZooKeeperSettings;
use crate::follow::follow_cluster;
use crate::member::{Member, Shown};
use crate::other::SessionKey;
use crate::procedures::{self, Participant};
use crate::session::{Session, keep};
use crate::znodes::SessionZnodes;

/// A cluster whose servers find each other by ZooKeeper: a session, and a view of HBase's znodes that follows them.
/// A region server joins ([`Coordinator::join`]); a master stands for election ([`ZooKeeperCluster::stand`]).
///
/// Everything runs on a thread of its own, which a busy server does not delay. Methods may be called from any runtime.
///
/// Without [`ZooKeeperCluster::close`], the session ends when it expires.
pub struct ZooKeeperCluster {
    runner: Runner,
    session: Arc<Session>,
    clock: Arc<dyn Clock>,
    view: ClusterView,
    /// What servers that join claim.
    version: OnceLock<String>,
    /// They hold clients of the library, and so the session open.
    tasks: Mutex<JoinSet<()>>,
    _runtime: OwnRuntime,
}

/// Dropping a runtime waits for it, which panics on a thread of another one.
struct OwnRuntime(Option<Runtime>);

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs futures on the thread of the session.
#[derive(Clone)]
pub(crate) struct Runner(pub(crate) Handle);

impl Runner {
    pub(crate) async fn run<T: Send + 'static>(
        self,
        future: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        match self.0.spawn(future).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::new(ErrorKind::Stopping, "the session with ZooKeeper was closed")),
        }
    }
}

impl ZooKeeperCluster {
    /// Begins a session. Leases are measured by `clock`.
    pub async fn connect(settings: ZooKeeperSettings, clock: Arc<dyn Clock>) -> Result<ZooKeeperCluster> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("zookeeper")
            .on_thread_start(halcyon_env::raise_priority)
            .enable_all()
            .build()
            .map_err(|error| {
                Error::new(ErrorKind::Io, format!("{settings}: cannot start a thread: {error}"))
            })?;
        let runner = Runner(runtime.handle().clone());
        let runtime = OwnRuntime(Some(runtime));
        let session = Arc::new(runner.clone().run(Session::begin(settings)).await?);
        let (publisher, view) = ClusterPublisher::new();
        let mut tasks = JoinSet::new();
        tasks.spawn_on(keep(session.clone()), &runner.0);
        follow_cluster(&session, publisher, &mut tasks, &runner.0);
        Ok(ZooKeeperCluster {
            runner,
            session,
            clock,
            view,
            version: OnceLock::new(),
            tasks: Mutex::new(tasks),
            _runtime: runtime,
        })
    }

    /// Servers that join claim this version of HBase, and not that of the settings. The first one stays.
    pub fn claim_version(&self, version: String) {
        let _ = self.version.set(version);
    }

    /// From now on `server` takes part in procedures that the master coordinates through znodes, until the session is closed.
    /// The work runs on the blocking threads of `threads`.
    pub fn take_part(&self, server: &ServerName, member: Arc<dyn ProcedureMember>, threads: Handle) {
        let znodes = Arc::new(SessionZnodes(self.session.clone()));
        let paths = &self.session.settings().paths;
        let participant = Participant::new(znodes, paths.clone(), server.clone(), member, threads);
        let mut tasks = self.tasks.lock();
        for kind in BarrierKind::ALL {
            tasks.spawn_on(procedures::follow(participant.clone(), kind), &self.runner.0);
        }
    }

    /// What a master that stands for election needs.
    pub(crate) fn parts(&self) -> (Arc<Session>, Arc<dyn Clock>, Runner) {
        (self.session.clone(), self.clock.clone(), self.runner.clone())
    }

    /// The session timeout that ZooKeeper granted.
    pub fn session_timeout(&self) -> Duration {
        self.session.timeout()
    }

    /// With this another process can end the session.
    pub fn session_key(&self) -> SessionKey {
        SessionKey::new(self.session.info())
    }

    /// With this another client can take the session over; for tests and tools.
    pub fn session(&self) -> &zk::SessionInfo {
        self.session.info()
    }

    /// Ends the session, and with it every ephemeral znode. If ZooKeeper does not answer in time, the session ends when it
    /// expires.
    pub async fn close(self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        let (session, limit) = (self.session.clone(), self.session.settings().call_timeout);
        let closed = self.runner.clone().run(async move {
            tasks.shutdown().await;
            if timeout(limit, session.close()).await.is_err() {
                warn!("{}: no answer to the end of the session within {limit:?}", session.settings());
            }
            Ok(())
        });
        if let Err(error) = closed.await {
            warn!("{}: {error}", self.session.settings());
        }
    }
}

impl Coordinator for ZooKeeperCluster {
    fn view(&self) -> &ClusterView {
        &self.view
    }

    fn join<'a>(
        &'a self,
        server: &'a ServerName,
        info_port: u16,
    ) -> BoxFuture<'a, Result<Arc<dyn Membership>>> {
        let (session, clock, runner) = (self.session.clone(), self.clock.clone(), self.runner.clone());
        let shown = Shown {
            server: server.clone(),
            info_port,
            hbase_version: self.version.get().unwrap_or(&session.settings().hbase_version).clone(),
        };
        let joined = Member::join(session, clock.clone(), runner.clone(), shown);
        Box::pin(async move {
            let member = runner.run(joined).await?;
            self.tasks.lock().spawn_on(member.renewals(clock), &self.runner.0);
            Ok(Arc::new(member) as Arc<dyn Membership>)
        })
    }
}
