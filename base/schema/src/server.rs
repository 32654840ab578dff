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

impl ClusterId {
    /// As WALs and replication have it. `None` if the text is no UUID.
    pub fn uuid(&self) -> Option<ClusterUuid> {
        let parts: Vec<&str> = self.0.split('-').collect();
        let lens: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        if lens != [8, 4, 4, 4, 12] || !parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_hexdigit())) {
            return None;
        }
        let number = |text: String| u64::from_str_radix(&text, 16).ok();
        Some(ClusterUuid { most: number(parts[..3].concat())?, least: number(parts[3..].concat())? })
    }
}

/// A cluster's id as a number of 128 bits (`java.util.UUID`): how WAL keys and replicated mutations name the clusters that
/// have an edit already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterUuid {
    pub most: u64,
    pub least: u64,
}

impl ClusterUuid {
    pub fn from_pb(uuid: &pb::Uuid) -> ClusterUuid {
        ClusterUuid { most: uuid.most_sig_bits, least: uuid.least_sig_bits }
    }

    pub fn to_pb(self) -> pb::Uuid {
        pb::Uuid { most_sig_bits: self.most, least_sig_bits: self.least }
    }
}

impl fmt::Display for ClusterUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, least) = (self.most, self.least);
        let (a, b, c) = (most >> 32, most >> 16 & 0xffff, most & 0xffff);
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", least >> 48, least & 0xffff_ffff_ffff)
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
    fn the_id_of_a_cluster_is_a_uuid() {
        let text = "0a1b2c3d-4e5f-4a6b-8c7d-00112233445f";
        let uuid = ClusterId(text.to_string()).uuid().unwrap();
        assert_eq!((uuid.most, uuid.least), (0x0a1b_2c3d_4e5f_4a6b, 0x8c7d_0011_2233_445f));
        assert_eq!(uuid.to_string(), text);
        assert_eq!(ClusterUuid::from_pb(&uuid.to_pb()), uuid);
        for bad in ["", "x", "0a1b2c3d-4e5f-4a6b-8c7d-00112233445", "0a1b2c3d-4e5f-4a6b-8c7d-0011223344+f"] {
            assert_eq!(ClusterId(bad.to_string()).uuid(), None, "{bad}");
        }
    }

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
