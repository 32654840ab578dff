//! ZooKeeper for clients that find a cluster by it: packets pass, and the data of the few znodes that name a server to clients
//! is changed on its way.
//!
//! ```text
//! request   int32 length | int32 xid | int32 operation | string path | ...
//! reply     int32 length | int32 xid | int64 zxid | int32 error | buffer data | stat
//! ```
//!
//! These znodes are `master` and `meta-region-server`, also those of its replicas (HBase: `ZNodePaths`). Others stay as they
//! are: children of `rs` name the servers themselves, which is what replication and HBase's own servers look for.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use halcyon_client::ClusterAddress;
use halcyon_proto::{PB_MAGIC, pb};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::proxy::directory::Directory;
use crate::proxy::frames::{Frame, FrameReader};
use crate::proxy::wire::with_server_names;
use crate::proxy::{ACCEPT_PAUSE, Proxy, dial};

/// ZooKeeper's own limit for a packet (`jute.maxbuffer`) is 1 MiB; ensembles have more at times.
const PACKET_BYTES_MAX: usize = 16 << 20;
const OP_GET_DATA: i32 = 4;
/// Bytes of a `Stat`, and where the length of the data is in it.
const STAT_BYTES: usize = 68;
const DATA_LENGTH_AT: usize = 52;
/// Questions for such znodes that wait for their replies.
const WAITING_MAX: usize = 1 << 12;

pub(super) async fn accept(proxy: Arc<Proxy>, listener: TcpListener) {
    loop {
        let Ok((client, from)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(place) = proxy.enter() else {
            proxy.refused(&format!("{from}: {} connections are open", proxy.limits.connections_max));
            continue;
        };
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move {
            let _place = place;
            if let Err(why) = serve(&proxy, client).await {
                proxy.refused(&format!("ZooKeeper connection of {from} ended: {why}"));
            }
        });
    }
}

async fn serve(proxy: &Proxy, client: TcpStream) -> Result<(), String> {
    let ClusterAddress::ZooKeeper { quorum, base } = &proxy.address else {
        return Err("this cluster was named without ZooKeeper".to_string());
    };
    let mut connected = Err("no server was named".to_string());
    for server in quorum {
        connected = dial(server).await;
        if connected.is_ok() {
            break;
        }
    }
    let server = connected.inspect_err(|_| proxy.counts.unreachable.add())?;
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let waiting = Waiting { base: format!("{base}/"), by_xid: Mutex::default() };
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    tokio::select! {
        ended = pass(client_in, server_out, |packet| { waiting.note(packet); None }) => ended,
        ended = pass(server_in, client_out, |packet| waiting.changed(packet, &proxy.directory)) => ended,
    }
}

/// Passes packets on as `change` makes them.
async fn pass(
    input: OwnedReadHalf,
    mut output: OwnedWriteHalf,
    change: impl Fn(&Bytes) -> Option<Bytes>,
) -> Result<(), String> {
    let mut reader = FrameReader::new(input, PACKET_BYTES_MAX, Arc::new(Semaphore::new(PACKET_BYTES_MAX)));
    loop {
        let packet = match reader.next().await {
            Ok(Some(Frame::Whole(packet, _room))) => packet,
            Ok(Some(Frame::Large(..))) => {
                return Err(format!("a packet of more than {PACKET_BYTES_MAX} bytes"));
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error.to_string()),
            Ok(None) | Err(_) => return Ok(()),
        };
        let changed = change(&packet);
        if output.write_all(changed.as_ref().unwrap_or(&packet)).await.is_err() {
            return Ok(());
        }
    }
}

/// Questions for znodes that name servers.
struct Waiting {
    /// `/hbase/`.
    base: String,
    by_xid: Mutex<HashMap<i32, ()>>,
}

impl Waiting {
    /// Looks at a request, with its length prefix.
    fn note(&self, packet: &Bytes) {
        let mut rest = &packet[4.min(packet.len())..];
        if rest.len() < 12 {
            return;
        }
        let (xid, operation, path_len) = (rest.get_i32(), rest.get_i32(), rest.get_u32() as usize);
        let Some(path) = rest.get(..path_len).and_then(|path| std::str::from_utf8(path).ok()) else { return };
        if operation != OP_GET_DATA || !self.names_a_server(path) {
            return;
        }
        let mut waiting = self.by_xid.lock();
        if waiting.len() < WAITING_MAX {
            waiting.insert(xid, ());
        }
    }

    fn names_a_server(&self, path: &str) -> bool {
        let name = path.strip_prefix(&self.base).unwrap_or_default();
        name == "master" || name == "meta-region-server" || name.starts_with("meta-region-server-")
    }

    /// A reply as clients get it. `None`: as it is.
    fn changed(&self, packet: &Bytes, directory: &Directory) -> Option<Bytes> {
        let mut rest = packet.get(4..)?;
        if rest.len() < 20 {
            return None;
        }
        let (xid, zxid, error) = (rest.get_i32(), rest.get_i64(), rest.get_i32());
        self.by_xid.lock().remove(&xid)?;
        if error != 0 {
            return None;
        }
        let len = usize::try_from(rest.get_i32()).ok()?;
        let (data, stat) = rest.split_at_checked(len)?;
        let shown = shown_data(data, directory)?;
        let mut stat = stat.to_vec();
        if stat.len() >= STAT_BYTES {
            stat[DATA_LENGTH_AT..DATA_LENGTH_AT + 4].copy_from_slice(&(shown.len() as u32).to_be_bytes());
        }
        let mut out = BytesMut::with_capacity(24 + shown.len() + stat.len());
        out.put_u32((20 + shown.len() + stat.len()) as u32);
        out.put_i32(xid);
        out.put_i64(zxid);
        out.put_i32(error);
        out.put_u32(shown.len() as u32);
        out.put_slice(&shown);
        out.put_slice(&stat);
        Some(out.freeze())
    }
}

/// `[ byte 0xff | int32 length | id of the writer ] "PBUF" message`, whose field 1 is the server.
fn shown_data(data: &[u8], directory: &Directory) -> Option<Vec<u8>> {
    let head = match data.first()? {
        0xff => 5 + u32::from_be_bytes(*data.get(1..5)?.first_chunk()?) as usize,
        _ => 0,
    };
    let message = data.get(head..)?.strip_prefix(PB_MAGIC)?;
    let mut shown = |name: &pb::ServerName| directory.shown(name);
    let changed = with_server_names(message, &[&[1]], &mut shown)?;
    Some([&data[..head], PB_MAGIC, &changed].concat())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use prost::Message;

    use super::*;

    #[test]
    fn a_znode_names_a_port_of_the_proxy() {
        let (sender, _receiver) = tokio::sync::mpsc::unbounded_channel();
        let directory = Directory::new("proxy".to_string(), IpAddr::from([127, 0, 0, 1]), 0, sender);
        let waiting = Waiting { base: "/hbase/".to_string(), by_xid: Mutex::default() };
        let server = pb::ServerName { host_name: "m".to_string(), port: Some(16000), start_code: Some(3) };
        let message = pb::Master { master: server.clone(), rpc_version: Some(0), info_port: Some(16010) };
        let data = [b"\xff\x00\x00\x00\x02ab".as_slice(), PB_MAGIC, &message.encode_to_vec()].concat();

        let request = |path: &str| {
            let mut out = BytesMut::new();
            out.put_u32(0);
            out.put_i32(7);
            out.put_i32(OP_GET_DATA);
            out.put_u32(path.len() as u32);
            out.put_slice(path.as_bytes());
            out.put_u8(0);
            out.freeze()
        };
        let reply = |data: &[u8]| {
            let mut out = BytesMut::new();
            out.put_u32((20 + data.len() + STAT_BYTES) as u32);
            out.put_i32(7);
            out.put_i64(1);
            out.put_i32(0);
            out.put_u32(data.len() as u32);
            out.put_slice(data);
            out.put_bytes(9, STAT_BYTES);
            out.freeze()
        };
        assert!(waiting.changed(&reply(&data), &directory).is_none(), "nobody asked for it");
        waiting.note(&request("/hbase/table/t"));
        assert!(waiting.changed(&reply(&data), &directory).is_none());
        waiting.note(&request("/hbase/master"));
        let changed = waiting.changed(&reply(&data), &directory).unwrap();
        assert_eq!(u32::from_be_bytes(*changed.first_chunk().unwrap()) as usize + 4, changed.len());
        let shown = &changed[24..changed.len() - STAT_BYTES];
        let master = pb::Master::decode(&shown[11..]).unwrap();
        assert_eq!((master.master.host_name.as_str(), master.info_port), ("proxy", Some(16010)));
        assert!(directory.meant(&master.master).is_some_and(|meant| meant == server));
        // packets that are cut off pass as they are
        waiting.note(&request("/hbase/meta-region-server-1"));
        for len in 0..40 {
            let _ = waiting.changed(&reply(&data).slice(..len), &directory);
            waiting.note(&request("/hbase/master").slice(..len.min(30)));
        }
    }
}
