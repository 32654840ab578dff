//! The RPC registry: servers that say where the master and `hbase:meta` are.

use std::net::SocketAddr;

use bytes::Buf;
use halcyon_proto::pb;
use halcyon_schema::ServerName;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};

use crate::{ClientError, ConnectOptions, Connection, RemoteException};

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

fn absent(what: &str) -> ClientError {
    ClientError::Malformed(format!("the answer names no {what}"))
}

fn server_name(name: Option<pb::ServerName>, what: &str) -> Result<ServerName, ClientError> {
    let name = name.ok_or_else(|| absent(what))?;
    ServerName::from_pb(&name).map_err(|error| ClientError::Malformed(error.to_string()))
}
