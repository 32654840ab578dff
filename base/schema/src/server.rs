//! Names of servers and of the cluster.

use std::fmt;

use halcyon_cell::{Error, Result};
use halcyon_proto::pb;

use crate::{decode, strip_magic, with_magic};

/// One life of one server: `host,port,startcode`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName {
    pub host: String,
    pub port: u16,
    /// Milliseconds since 1970 at which the server started; negative if unknown.
    pub start_code: i64,
}

impl ServerName {
    pub fn new(host: impl Into<String>, port: u16, start_code: i64) -> ServerName {
        ServerName { host: host.into(), port, start_code }
    }

    /// Reads `host,port,startcode`, or `host:port` with an unknown start code.
    pub fn parse(text: &str) -> Result<ServerName> {
        let wrong = || Error::invalid(format!("Not a server name: '{text}'"));
        let mut parts = text.split(',');
        let (Some(host), Some(port)) = (parts.next(), parts.next()) else {
            let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
            return Ok(ServerName::new(host, port.parse().map_err(|_| wrong())?, -1));
        };
        let start_code = parts.next().ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
        if host.is_empty() || parts.next().is_some() {
            return Err(wrong());
        }
        Ok(ServerName::new(host, port.parse().map_err(|_| wrong())?, start_code))
    }

    /// `host:port`, the text of `info:server`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub fn to_pb(&self) -> pb::ServerName {
        pb::ServerName {
            host_name: self.host.clone(),
            port: Some(u32::from(self.port)),
            start_code: u64::try_from(self.start_code).ok(),
        }
    }

    pub fn from_pb(name: &pb::ServerName) -> Result<ServerName> {
        let port = u16::try_from(name.port.unwrap_or(0))
            .map_err(|_| Error::invalid(format!("port {} is too large", name.port.unwrap_or(0))))?;
        Ok(ServerName::new(name.host_name.clone(), port, name.start_code.map_or(-1, |code| code as i64)))
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.host, self.port, self.start_code)
    }
}

/// The cluster's identity, a UUID of 36 characters, kept in `hbase.id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterId(pub String);

impl ClusterId {
    /// A version 4 UUID of these random bytes.
    pub fn from_random(mut bytes: [u8; 16]) -> ClusterId {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let mut text = String::with_capacity(36);
        for (at, byte) in bytes.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        ClusterId(text)
    }

    pub fn encode_file(&self) -> Vec<u8> {
        with_magic(&pb::ClusterId { cluster_id: self.0.clone() })
    }

    /// Also reads the bare text that old versions wrote.
    pub fn decode_file(bytes: &[u8]) -> Result<ClusterId> {
        match strip_magic("hbase.id", bytes) {
            Ok(message) => Ok(ClusterId(decode::<pb::ClusterId>("hbase.id", message)?.cluster_id)),
            Err(error) => match std::str::from_utf8(bytes) {
                Ok(text) if text.trim().len() == 36 => Ok(ClusterId(text.trim().to_string())),
                _ => Err(error),
            },
        }
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_server_names() {
        let name = ServerName::parse("node-1.example,16020,1700000000000").unwrap();
        assert_eq!(name, ServerName::new("node-1.example", 16020, 1_700_000_000_000));
        assert_eq!(name.to_string(), "node-1.example,16020,1700000000000");
        assert_eq!(name.address(), "node-1.example:16020");
        assert_eq!(ServerName::from_pb(&name.to_pb()).unwrap(), name);
        assert_eq!(ServerName::parse("h:5").unwrap(), ServerName::new("h", 5, -1));
        for text in ["", "h", "h,1", "h,1,2,3", "h,x,1", ",1,2", "h,99999,1"] {
            assert!(ServerName::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cluster_id_is_a_uuid() {
        let id = ClusterId::from_random([0xff; 16]);
        assert_eq!(id.0, "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(id.encode_file()[..6], *b"PBUF\x0a\x24");
        assert_eq!(ClusterId::decode_file(&id.encode_file()).unwrap(), id);
        assert_eq!(ClusterId::decode_file(id.0.as_bytes()).unwrap(), id);
    }
}
