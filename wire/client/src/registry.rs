//! The RPC registry: servers that say where the master and `hbase:meta` are.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Buf;
use halcyon_proto::pb;
use halcyon_schema::ServerName;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};

use crate::zookeeper::ZooKeeper;
use crate::{ClientError, ClusterAddress, ConnectOptions, Connection, RemoteException};

/// Longest answer to the registry's preamble.
const ANSWER_BYTES_MAX: u32 = 64 << 10;

/// The cluster's id, asked for before a connection proper as clients from 2.6.1 on do ("Regist").
pub async fn cluster_id(server: SocketAddr) -> Result<String, ClientError> {
    let malformed = |error: prost::DecodeError| ClientError::Malformed(error.to_string());
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(b"Regist").await?;
    let len = stream.read_u32().await?;
    if len > ANSWER_BYTES_MAX {
        return Err(ClientError::Malformed(format!("an answer of {len} bytes")));
    }
    let mut frame = vec![0; len as usize];
    stream.read_exact(&mut frame).await?;
    let mut rest = &frame[..];
    let header = pb::ResponseHeader::decode_length_delimited(&mut rest).map_err(malformed)?;
    if let Some(exception) = header.exception {
        return Err(ClientError::Remote(Box::new(RemoteException::of(exception))));
    }
    let answer = pb::GetConnectionRegistryResponse::decode_length_delimited(&mut rest).map_err(malformed)?;
    if rest.has_remaining() {
        return Err(ClientError::Malformed("bytes behind the answer".to_string()));
    }
    Ok(answer.cluster_id)
}

/// Finds the cluster through any of its servers (`ClientMetaService`).
pub struct Registry {
    connection: Connection,
}

impl Registry {
    /// Connects to a master or region server.
    pub async fn connect(server: impl ToSocketAddrs) -> Result<Registry, ClientError> {
        let options = ConnectOptions { codec: None, ..ConnectOptions::new("ClientMetaService") };
        Ok(Registry { connection: Connection::connect(server, &options).await? })
    }

    /// The cluster's id.
    pub async fn cluster_id(&self) -> Result<String, ClientError> {
        let answer: pb::GetClusterIdResponse =
            self.connection.call("GetClusterId", &pb::GetClusterIdRequest {}).await?;
        answer.cluster_id.ok_or_else(|| absent("cluster id"))
    }

    /// The active master.
    pub async fn active_master(&self) -> Result<ServerName, ClientError> {
        let answer: pb::GetActiveMasterResponse =
            self.connection.call("GetActiveMaster", &pb::GetActiveMasterRequest {}).await?;
        server_name(answer.server_name, "active master")
    }

    /// The server of `hbase:meta`.
    pub async fn meta_server(&self) -> Result<ServerName, ClientError> {
        let request = pb::GetMetaRegionLocationsRequest {};
        let answer: pb::GetMetaRegionLocationsResponse =
            self.connection.call("GetMetaRegionLocations", &request).await?;
        let first = answer.meta_locations.into_iter().next();
        server_name(first.and_then(|location| location.server_name), "meta location")
    }

    /// Live region servers.
    pub async fn region_servers(&self) -> Result<Vec<ServerName>, ClientError> {
        let answer: pb::GetBootstrapNodesResponse =
            self.connection.call("GetBootstrapNodes", &pb::GetBootstrapNodesRequest {}).await?;
        answer.server_name.into_iter().map(|name| server_name(Some(name), "server")).collect()
    }
}

/// The active master of a cluster. Asks the servers of its address in turn, each for at most `limit`, until one names it. The
/// error is that of the last one.
pub async fn active_master(address: &ClusterAddress, limit: Duration) -> Result<ServerName, ClientError> {
    let (servers, base) = match address {
        ClusterAddress::ZooKeeper { quorum, base } => (quorum, Some(base)),
        ClusterAddress::Registry { servers } => (servers, None),
    };
    let mut last = ClientError::invalid("no address was given");
    for server in servers {
        let asked = async {
            let Some(base) = base else { return Registry::connect(server).await?.active_master().await };
            let mut session = ZooKeeper::connect(server).await?;
            let found = session.active_master(base).await?;
            session.close().await;
            found.ok_or_else(|| absent("active master"))
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => last = error,
            Err(_) => last = ClientError::timed_out(format!("{server}: no response within {limit:?}")),
        }
    }
    Err(last)
}

/// A cluster as another one sees it that sends edits to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// A UUID of 36 characters.
    pub cluster_id: String,
    /// Live region servers; from a registry only some of them.
    pub region_servers: Vec<ServerName>,
}

impl Sighting {
    /// Asks the servers of the address in turn, each for at most `limit`, until one answers. The error is that of the last one.
    pub async fn of(address: &ClusterAddress, limit: Duration) -> Result<Sighting, ClientError> {
        let servers = match address {
            ClusterAddress::ZooKeeper { quorum, .. } => quorum,
            ClusterAddress::Registry { servers } => servers,
        };
        let mut last = ClientError::invalid("no address was given");
        for server in servers {
            let asked = match tokio::time::timeout(limit, Sighting::ask(address, server)).await {
                Ok(asked) => asked,
                Err(_) => Err(ClientError::timed_out(format!("{server}: no response within {limit:?}"))),
            };
            match asked {
                Ok(sighting) => return Ok(sighting),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The id of the cluster whose ZooKeeper has these servers and this base path; `None`: there is no cluster. The servers are asked in
    /// turn, each for at most `limit`, until one answers. The error is that of the last one.
    pub async fn id_of(
        quorum: &[String],
        base: &str,
        limit: Duration,
    ) -> Result<Option<String>, ClientError> {
        let mut last = ClientError::invalid("no address was given");
        for server in quorum {
            let asking = async {
                let mut session = ZooKeeper::connect(server).await?;
                let id = session.cluster_id(base).await?;
                session.close().await;
                Ok(id)
            };
            match tokio::time::timeout(limit, asking).await {
                Ok(Ok(id)) => return Ok(id),
                Ok(Err(error)) => last = error,
                Err(_) => last = ClientError::timed_out(format!("{server}: no response within {limit:?}")),
            }
        }
        Err(last)
    }

    async fn ask(address: &ClusterAddress, server: &str) -> Result<Sighting, ClientError> {
        match address {
            ClusterAddress::ZooKeeper { base, .. } => {
                let mut session = ZooKeeper::connect(server).await?;
                let cluster_id = session.cluster_id(base).await?.ok_or_else(|| absent("cluster id"))?;
                let region_servers = session.region_servers(base).await?;
                session.close().await;
                Ok(Sighting { cluster_id, region_servers })
            }
            ClusterAddress::Registry { .. } => {
                let registry = Registry::connect(server).await?;
                let (cluster_id, region_servers) =
                    (registry.cluster_id().await?, registry.region_servers().await?);
                Ok(Sighting { cluster_id, region_servers })
            }
        }
    }
}

fn absent(what: &str) -> ClientError {
    ClientError::Malformed(format!("the answer names no {what}"))
}

fn server_name(name: Option<pb::ServerName>, what: &str) -> Result<ServerName, ClientError> {
    let name = name.ok_or_else(|| absent(what))?;
    ServerName::from_pb(&name).map_err(|error| ClientError::Malformed(error.to_string()))
}
