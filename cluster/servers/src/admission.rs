//! Which servers may start and report (HBase: `ServerManager`).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use halcyon_proto::pb;
use halcyon_rpc::{RpcError, exceptions};
use halcyon_schema::ServerName;

use crate::Servers;
use crate::errors::{CLOCK_OUT_OF_SYNC, YOU_ARE_DEAD};
use crate::remote_server::RemoteServer;

/// Servers of a cluster. More names than that are not of real servers.
const ONLINE_MAX: usize = 10_000;
const HOST_BYTES_MAX: usize = 255;
/// For a name service to name an address.
const NAME_TIMEOUT: Duration = Duration::from_secs(5);

type Refused<T> = std::result::Result<T, RpcError>;

impl Servers {
    /// The server of a report, which is added if it is not known: it was online before this master was. An error if it is dead,
    /// or if a newer one has its address. An older one at its address is dead from here on.
    pub(crate) fn admit(&self, server: &ServerName, what: &str) -> Refused<Arc<RemoteServer>> {
        let mut table = self.table.lock();
        if table.dead.contains(server) {
            let text = format!("Server {what} rejected; currently processing {server} as dead server");
            return Err(RpcError::new(&YOU_ARE_DEAD, text));
        }
        if let Some(remote) = table.online.get(server) {
            return Ok(Arc::clone(remote));
        }
        let others: Vec<_> = table.at_address(server).cloned().collect();
        if let Some(newer) = others.iter().find(|other| other.start_code > server.start_code) {
            let text = format!("Server {what} of {server} rejected; {newer} is registered at its address");
            return Err(RpcError::new(&exceptions::PLEASE_HOLD, text));
        }
        if table.online.len() >= ONLINE_MAX {
            let text = format!("Server {what} of {server} rejected; {ONLINE_MAX} servers are online");
            return Err(RpcError::new(&exceptions::PLEASE_HOLD, text));
        }
        assert!(
            others.iter().all(|older| older.start_code < server.start_code),
            "only lives before that of {server} are over: {others:?}"
        );
        let remote = RemoteServer::new(server.clone(), self.common.clone());
        let before = table.online.insert(server.clone(), Arc::clone(&remote));
        assert!(before.is_none(), "{server} has one way of orders: callers of another would wait for ever");
        table.check(server);
        drop(table);
        tracing::info!(%server, what, "a region server is online");
        self.changed();
        for older in others {
            tracing::warn!(%older, %server, "a newer server has come to the address of a region server");
            self.expire(&older);
        }
        Ok(remote)
    }

    /// `RegionServerStartup` of a server whose host is known.
    pub(crate) fn start_up(
        &self,
        host: String,
        request: &pb::RegionServerStartupRequest,
    ) -> Refused<pb::RegionServerStartupResponse> {
        let server = server_name(host, u64::from(request.port), request.server_start_code)?;
        self.check_clock(&server, request.server_current_time)?;
        self.admit(&server, "STARTUP")?;
        let seen = ("hbase.regionserver.hostname.seen.by.master".to_string(), server.host);
        let entries = std::iter::once(seen).chain(self.common.settings.answers.iter().cloned());
        let map_entries = entries.map(|(name, value)| pb::NameStringPair { name, value }).collect();
        Ok(pb::RegionServerStartupResponse { map_entries })
    }

    fn check_clock(&self, server: &ServerName, server_ms: u64) -> Refused<()> {
        let now_ms = u64::try_from(self.common.clock.now_ms()).unwrap_or(0);
        let skew_ms = now_ms.abs_diff(server_ms);
        let skew_max_ms = self.common.settings.clock_skew_max.as_millis();
        if u128::from(skew_ms) > skew_max_ms {
            let text = format!(
                "Server {server} has been rejected; Reported time is too far out of sync with master.  \
                 Time difference of {skew_ms}ms > max allowed of {skew_max_ms}ms"
            );
            tracing::warn!("{text}");
            return Err(RpcError::new(&CLOCK_OUT_OF_SYNC, text));
        }
        if u128::from(skew_ms) > self.common.settings.clock_skew_warned.as_millis() {
            tracing::warn!(
                %server,
                skew_ms,
                "the clock of a region server differs from the master's: when regions move, newer values may be hidden by older ones for \
                 that long"
            );
        }
        Ok(())
    }

    /// How a server that names no host of its own is called. An HBase server expects its own name for itself, or its address if
    /// the master is named by one (HBASE-27304).
    pub(crate) async fn host_of(&self, peer: &str) -> Refused<String> {
        let peer: SocketAddr = peer
            .parse()
            .map_err(|_| RpcError::io(format!("{peer} is no address that a region server can have")))?;
        let address = peer.ip().to_canonical();
        if self.common.settings.server_name.host.parse::<IpAddr>().is_ok() {
            return Ok(address.to_string());
        }
        let lookup = tokio::task::spawn_blocking(move || dns_lookup::lookup_addr(&address));
        match tokio::time::timeout(NAME_TIMEOUT, lookup).await {
            Ok(Ok(Ok(host))) => Ok(host),
            _ => Ok(address.to_string()),
        }
    }
}

/// The name that a server says it has.
pub(crate) fn checked_name(name: &pb::ServerName) -> Refused<ServerName> {
    let (port, start_code) = (name.port.unwrap_or(0), name.start_code.unwrap_or(0));
    server_name(name.host_name.clone(), u64::from(port), start_code)
}

fn server_name(host: String, port: u64, start_code: u64) -> Refused<ServerName> {
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:%".contains(&byte);
    if host.is_empty() || host.len() > HOST_BYTES_MAX || !host.bytes().all(is_host) {
        return Err(RpcError::do_not_retry("a region server gives a name for its host that is none"));
    }
    match (u16::try_from(port), i64::try_from(start_code)) {
        (Ok(number @ 1..), Ok(code @ 1..)) => Ok(ServerName::new(host, number, code)),
        _ => Err(RpcError::do_not_retry(format!("{host},{port},{start_code} is no server name"))),
    }
}
