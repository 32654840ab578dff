//! A region server as a member of the cluster.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_coord::{Lease, Loss, Membership};
use halcyon_env::Clock;
use halcyon_proto::pb;
use halcyon_schema::ServerName;
use halcyon_schema::znode;
use prost::Message;
use tracing::info;
use zookeeper_client as zk;

use crate::cluster::Runner;
use crate::own::{OwnZnode, lease_ms, lease_time, read_owner};
use crate::session::{Answer, Session};

pub(crate) struct Member {
    own: OwnZnode,
    lease: Arc<Lease>,
    runner: Runner,
}

/// What the znode of a server says.
pub(crate) struct Shown {
    pub(crate) server: ServerName,
    pub(crate) info_port: u16,
    pub(crate) hbase_version: String,
}

impl Member {
    /// Creates the znode and renews the lease for the first time.
    pub(crate) async fn join(
        session: Arc<Session>,
        clock: Arc<dyn Clock>,
        runner: Runner,
        shown: Shown,
    ) -> Result<Member> {
        let path = session.settings().paths.region_server(&shown.server);
        create_ephemeral(&session, &path, &shown).await?;
        let lease = Arc::new(Lease::new(shown.server, clock.clone()));
        let Some(own) = OwnZnode::find(&session, path.clone(), &lease, &*clock).await? else {
            let text = format!("{}: {path} is not there after it was created", session.settings());
            return Err(Error::new(ErrorKind::Expired, text));
        };
        info!("{}: created {path}", session.settings());
        Ok(Member { own, lease, runner })
    }

    /// Renews the lease until it is lost.
    pub(crate) fn renewals(&self, clock: Arc<dyn Clock>) -> impl Future<Output = ()> + Send + 'static {
        self.own.clone().renewals(self.lease.clone(), clock)
    }
}

impl Membership for Member {
    fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    fn leave(&self) -> BoxFuture<'_, Result<()>> {
        self.lease.lose(Loss::Left);
        let OwnZnode { session, path, .. } = self.own.clone();
        Box::pin(self.runner.clone().run(async move {
            let ask = |client: zk::Client| client.delete(&path, None);
            session.call(&format!("delete {path}"), ask).await?;
            info!("{}: deleted {path}", session.settings());
            Ok(())
        }))
    }
}

/// HBase's `RegionServerInfo`, and what a master of Halcyon asks before the regions of this server open elsewhere. HBase passes over
/// fields that it does not know.
#[derive(Clone, PartialEq, Message)]
struct ShownInfo {
    #[prost(int32, optional, tag = "1")]
    info_port: Option<i32>,
    #[prost(message, optional, tag = "2")]
    version_info: Option<pb::VersionInfo>,
    /// How long the server may answer reads after its znode was deleted.
    #[prost(uint64, optional, tag = "1000")]
    lease_ms: Option<u64>,
}

impl ShownInfo {
    fn of(info: pb::RegionServerInfo, lease: Duration) -> ShownInfo {
        let pb::RegionServerInfo { info_port, version_info } = info;
        ShownInfo { info_port, version_info, lease_ms: Some(lease_ms(lease)) }
    }
}

/// How long a server may answer reads after its znode, with these data, was deleted. `None`: it is none of Halcyon's.
pub(crate) fn shown_lease(path: &str, data: &[u8]) -> Result<Option<Duration>> {
    let info: ShownInfo = znode::message(path, data)?;
    Ok(info.lease_ms.map(Duration::from_millis))
}

/// Creates the znode of a server with HBase's bytes, and with the permissions of HBase's servers without Kerberos.
async fn create_ephemeral(session: &Session, path: &str, shown: &Shown) -> Result<()> {
    let info =
        ShownInfo::of(znode::region_server_info(shown.info_port, &shown.hbase_version), lease_time(session));
    let writer = format!("regionserver:{}", shown.server.port);
    let data = znode::encode(&writer, halcyon_env::random_bytes(), &info);
    let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
    let ask = |client: zk::Client| {
        let (data, options) = (&data, &options);
        async move { client.create(path, data, options).await.map(drop) }
    };
    let at = session.settings();
    match session.call(&format!("create {path}"), ask).await? {
        Answer::Done(()) => Ok(()),
        Answer::NoNode => Err(Error::invalid(format!(
            "{at}: create {path}: there is no {}; a master makes it when it starts for the first time",
            at.paths.region_servers()
        ))),
        // The answer to an earlier attempt may have been lost.
        Answer::NodeExists => match read_owner(session, path).await? {
            Some(owner) if owner == session.id() => Ok(()),
            Some(owner) => Err(Error::invalid(format!(
                "{at}: create {path}: it is there already, in session {owner:#x}; another server of this name runs"
            ))),
            None => {
                Err(Error::new(ErrorKind::Busy, format!("{at}: create {path}: it was there, and is gone")))
            }
        },
    }
}
