//! Which port of this proxy stands for which server behind it.
//!
//! A server gets a listening port when its name passes for the first time: in an answer of the registry, a row of
//! `hbase:meta`, a znode. Names that clients send come back to the server's own.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use halcyon_proto::pb;
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;

/// Servers that get a port at most. More are passed on by their own names, and clients go there directly.
pub(crate) const SERVERS_MAX: usize = 4096;

/// A port to listen on, for a server's `host:port`.
pub(crate) struct NewPort {
    pub(crate) listener: TcpListener,
    pub(crate) server: String,
}

/// See the head of the file.
///
/// # Thread safety
/// Shared freely. The lock is held for a look-up, and for the moment that it takes to bind a port.
pub(crate) struct Directory {
    /// The name by which clients reach this machine.
    host: String,
    bind: IpAddr,
    state: Mutex<State>,
    new_ports: UnboundedSender<NewPort>,
}

struct State {
    /// By the server's `host:port`.
    ports: HashMap<String, u16>,
    /// By port, the server's host and port.
    servers: HashMap<u16, (String, u16)>,
    /// The next port to try; 0 lets the operating system choose.
    next_port: u16,
    is_full_told: bool,
}

impl Directory {
    /// Ports from `first_port` on, in the order in which servers become known; 0: any free one. `new_ports` gets each listener.
    pub(crate) fn new(
        host: String,
        bind: IpAddr,
        first_port: u16,
        new_ports: UnboundedSender<NewPort>,
    ) -> Directory {
        let (ports, servers) = (HashMap::new(), HashMap::new());
        let state = State { ports, servers, next_port: first_port, is_full_told: false };
        Directory { host, bind, state: Mutex::new(state), new_ports }
    }

    /// The port for a server, bound now if need be. `None` if there are too many servers or no port is free.
    pub(crate) fn port_of(&self, host: &str, port: u16) -> Option<u16> {
        let server = format!("{host}:{port}");
        let mut state = self.state.lock();
        if let Some(known) = state.ports.get(&server) {
            return Some(*known);
        }
        // a name of this proxy itself: two proxies in a row, or an answer that was changed already
        if host == self.host && state.servers.contains_key(&port) {
            return None;
        }
        let listener = match state.ports.len() < SERVERS_MAX {
            true => self.bind_next(&mut state),
            false => Err(io::Error::other(format!("{SERVERS_MAX} servers have one"))),
        };
        let bound = listener.and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
        match bound {
            Ok((own, listener)) => {
                state.ports.insert(server.clone(), own);
                state.servers.insert(own, (host.to_string(), port));
                let _ = self.new_ports.send(NewPort { listener, server }); // the proxy may be about to end
                Some(own)
            }
            Err(error) => {
                if !std::mem::replace(&mut state.is_full_told, true) {
                    eprintln!("shadow: no port for {server}: {error}; clients go there directly");
                }
                None
            }
        }
    }

    fn bind_next(&self, state: &mut State) -> io::Result<TcpListener> {
        let mut tries = 0;
        loop {
            let port = state.next_port;
            if port != 0 {
                state.next_port = port.checked_add(1).ok_or_else(|| io::Error::other("no port is left"))?;
            }
            match TcpListener::bind(SocketAddr::new(self.bind, port)) {
                Err(error)
                    if port != 0 && error.kind() == io::ErrorKind::AddrInUse && tries < SERVERS_MAX =>
                {
                    tries += 1;
                }
                bound => {
                    let listener = bound?;
                    listener.set_nonblocking(true)?;
                    return Ok(listener);
                }
            }
        }
    }

    /// A server's name as clients get it.
    pub(crate) fn shown(&self, name: &pb::ServerName) -> Option<pb::ServerName> {
        let own = self.port_of(&name.host_name, u16::try_from(name.port?).ok().filter(|port| *port > 0)?)?;
        Some(pb::ServerName {
            host_name: self.host.clone(),
            port: Some(own.into()),
            start_code: name.start_code,
        })
    }

    /// The name of the server behind a name that a client sends.
    pub(crate) fn meant(&self, name: &pb::ServerName) -> Option<pb::ServerName> {
        if name.host_name != self.host {
            return None;
        }
        let state = self.state.lock();
        let (host, port) = state.servers.get(&u16::try_from(name.port?).ok()?)?;
        Some(pb::ServerName {
            host_name: host.clone(),
            port: Some((*port).into()),
            start_code: name.start_code,
        })
    }

    /// `host:port` as clients get it.
    pub(crate) fn shown_address(&self, address: &str) -> Option<String> {
        let (host, port) = address.rsplit_once(':')?;
        let own = self.port_of(host, port.parse().ok().filter(|port| *port > 0)?)?;
        Some(format!("{}:{own}", self.host))
    }

    /// The name by which clients reach this machine.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Servers with a port, and the ports.
    pub(crate) fn known(&self) -> Vec<(String, u16)> {
        let mut known: Vec<_> =
            self.state.lock().ports.iter().map(|(server, port)| (server.clone(), *port)).collect();
        known.sort_by_key(|(_, port)| *port);
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_its_port_and_names_come_back() {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let directory = Directory::new("proxy".to_string(), IpAddr::from([127, 0, 0, 1]), 0, sender);
        let name = pb::ServerName { host_name: "rs1".to_string(), port: Some(16020), start_code: Some(9) };
        let shown = directory.shown(&name).unwrap();
        assert_eq!((shown.host_name.as_str(), shown.start_code), ("proxy", Some(9)));
        assert_eq!(directory.shown(&name).unwrap(), shown);
        assert_eq!(directory.meant(&shown).unwrap(), name);
        assert!(directory.meant(&name).is_none());
        assert_eq!(directory.shown_address("rs1:16020").unwrap(), format!("proxy:{}", shown.port()));
        assert_eq!(receiver.try_recv().unwrap().server, "rs1:16020");
        assert!(receiver.try_recv().is_err());
        // names that are none, and this proxy's own
        assert!(directory.shown(&shown).is_none());
        for (host, port) in [("rs1", None), ("rs1", Some(0)), ("rs1", Some(70_000))] {
            let name = pb::ServerName { host_name: host.to_string(), port, start_code: None };
            assert!(directory.shown(&name).is_none(), "{port:?}");
        }
        assert!(directory.shown_address("rs1").is_none() && directory.shown_address("rs1:x").is_none());
        assert_eq!(directory.known().len(), 1);
    }
}
