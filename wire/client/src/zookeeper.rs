//! The little of ZooKeeper's protocol that finding a cluster needs: a session that reads znodes and ends.
//!
//! ```text
//! connect   int32 length | int32 0 | int64 last zxid | int32 timeout ms | int64 session | buffer password | bool read-only
//! request   int32 length | int32 xid | int32 operation | string path | bool watch
//! reply     int32 length | int32 xid | int64 zxid | int32 error | buffer data | stat
//! ```
//!
//! Nothing is watched and no session is kept: a client asks again when a server has gone.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use halcyon_proto::pb;
use halcyon_schema::{ServerName, znode};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::ClientError;

const SESSION_TIMEOUT_MS: i32 = 30_000;
/// ZooKeeper's own limit for a packet (`jute.maxbuffer`).
const PACKET_BYTES_MAX: usize = 1 << 20;
const OP_GET_DATA: i32 = 4;
const OP_GET_CHILDREN: i32 = 8;
const OP_CLOSE_SESSION: i32 = -11;
const ERROR_NO_NODE: i32 = -101;

/// A session with one ZooKeeper server.
pub(crate) struct ZooKeeper {
    stream: TcpStream,
    xid: i32,
}

impl ZooKeeper {
    pub(crate) async fn connect(address: &str) -> Result<ZooKeeper, ClientError> {
        let mut stream = TcpStream::connect(address).await?;
        let mut body = BytesMut::new();
        body.put_i32(0);
        body.put_i64(0);
        body.put_i32(SESSION_TIMEOUT_MS);
        body.put_i64(0);
        body.put_u32(16);
        body.put_bytes(0, 16);
        body.put_u8(0);
        send(&mut stream, &body).await?;
        let mut answer = receive(&mut stream).await?;
        if answer.len() < 16 {
            return Err(malformed("a connect answer that is cut off"));
        }
        answer.advance(4);
        if answer.get_i32() <= 0 {
            return Err(malformed("the session was refused"));
        }
        Ok(ZooKeeper { stream, xid: 0 })
    }

    /// The data of a znode; `None` if there is none.
    async fn get(&mut self, path: &str) -> Result<Option<Bytes>, ClientError> {
        let Some(mut answer) = self.read(OP_GET_DATA, path).await? else { return Ok(None) };
        take_buffer(&mut answer).map(Some)
    }

    /// Names of the znodes below one; none if there is no such znode.
    async fn children(&mut self, path: &str) -> Result<Vec<String>, ClientError> {
        let Some(mut answer) = self.read(OP_GET_CHILDREN, path).await? else { return Ok(Vec::new()) };
        if answer.len() < 4 {
            return Err(malformed("an answer without children"));
        }
        let mut names = Vec::new();
        for _ in 0..answer.get_i32() {
            let name = take_buffer(&mut answer)?;
            names.push(String::from_utf8(name.into()).map_err(|error| malformed(&error.to_string()))?);
        }
        Ok(names)
    }

    /// What an operation answers that reads a znode; `None` if there is none.
    async fn read(&mut self, operation: i32, path: &str) -> Result<Option<Bytes>, ClientError> {
        self.xid += 1;
        let mut body = BytesMut::new();
        body.put_i32(self.xid);
        body.put_i32(operation);
        body.put_u32(u32::try_from(path.len()).expect("a path is short"));
        body.put_slice(path.as_bytes());
        body.put_u8(0);
        send(&mut self.stream, &body).await?;
        let mut answer = receive(&mut self.stream).await?;
        if answer.len() < 16 {
            return Err(malformed("an answer that is cut off"));
        }
        let (xid, _zxid, error) = (answer.get_i32(), answer.get_i64(), answer.get_i32());
        if xid != self.xid {
            return Err(malformed("an answer to another request"));
        }
        match error {
            0 => Ok(Some(answer)),
            ERROR_NO_NODE => Ok(None),
            error => Err(malformed(&format!("{path}: error {error}"))),
        }
    }

    /// The message in a znode of HBase's; `None` if the znode is missing or empty.
    async fn message<M: Message + Default>(&mut self, path: &str) -> Result<Option<M>, ClientError> {
        match self.get(path).await? {
            Some(data) if !data.is_empty() => {
                let message = znode::message(path, &data);
                message.map(Some).map_err(|error| malformed(&error.to_string()))
            }
            _ => Ok(None),
        }
    }

    /// The server of `hbase:meta` (`meta-region-server` below the base path).
    pub(crate) async fn meta_server(&mut self, base: &str) -> Result<Option<ServerName>, ClientError> {
        let path = format!("{base}/meta-region-server");
        let meta: Option<pb::MetaRegionServer> = self.message(&path).await?;
        meta.map(|meta| server_name(&meta.server)).transpose()
    }

    /// The active master (`master` below the base path).
    pub(crate) async fn active_master(&mut self, base: &str) -> Result<Option<ServerName>, ClientError> {
        let master: Option<pb::Master> = self.message(&format!("{base}/master")).await?;
        master.map(|master| server_name(&master.master)).transpose()
    }

    /// The cluster's id (`hbaseid` below the base path).
    pub(crate) async fn cluster_id(&mut self, base: &str) -> Result<Option<String>, ClientError> {
        let path = format!("{base}/hbaseid");
        match self.get(&path).await? {
            Some(data) if !data.is_empty() => {
                let id = znode::decode_cluster_id(&path, &data);
                id.map(|id| Some(id.to_string())).map_err(|error| malformed(&error.to_string()))
            }
            _ => Ok(None),
        }
    }

    /// The live region servers (`rs` below the base path).
    pub(crate) async fn region_servers(&mut self, base: &str) -> Result<Vec<ServerName>, ClientError> {
        let path = format!("{base}/rs");
        let names = self.children(&path).await?;
        let parse = |name: &String| znode::decode_server(&path, name);
        names.iter().map(parse).collect::<Result<_, _>>().map_err(|error| malformed(&error.to_string()))
    }

    /// Ends the session, so that the server need not wait for it to time out.
    pub(crate) async fn close(mut self) {
        let mut body = BytesMut::new();
        body.put_i32(self.xid + 1);
        body.put_i32(OP_CLOSE_SESSION);
        if send(&mut self.stream, &body).await.is_ok() {
            let _ = receive(&mut self.stream).await; // gone either way
        }
    }
}

fn server_name(name: &pb::ServerName) -> Result<ServerName, ClientError> {
    ServerName::from_pb(name).map_err(|error| malformed(&error.to_string()))
}

/// `int32 length | bytes`; a negative length stands for none.
fn take_buffer(answer: &mut Bytes) -> Result<Bytes, ClientError> {
    if answer.len() < 4 {
        return Err(malformed("an answer without data"));
    }
    let len = usize::try_from(answer.get_i32()).unwrap_or(0);
    if len > answer.len() {
        return Err(malformed("data longer than its answer"));
    }
    Ok(answer.split_to(len))
}

fn malformed(what: &str) -> ClientError {
    ClientError::Malformed(format!("ZooKeeper: {what}"))
}

async fn send(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    let mut frame = BytesMut::with_capacity(4 + body.len());
    frame.put_u32(u32::try_from(body.len()).expect("a request is short"));
    frame.put_slice(body);
    stream.write_all(&frame).await
}

async fn receive(stream: &mut TcpStream) -> Result<Bytes, ClientError> {
    let len = stream.read_u32().await? as usize;
    if len > PACKET_BYTES_MAX {
        return Err(malformed(&format!("an answer of {len} bytes")));
    }
    let mut frame = vec![0; len];
    stream.read_exact(&mut frame).await?;
    Ok(Bytes::from(frame))
}
