//! Deaths of servers that masters publish (`hbase.status.published`; HBase: `ClusterStatusListener`).
//!
//! Masters send datagrams to a multicast group, each with the names of some dead servers. A client that hears of one forgets which
//! regions it had, and ends its connections to it: calls that wait for a frozen server, or for one on a lost machine, fail at once and
//! are tried again where the regions are now.
//!
//! A name has the time of the server's start, so a message about a former server does not disturb the one that is at the same address
//! now. Nothing proves who has sent a message. So a server that is named is avoided for [`DEAD_FOR`] only, and a client may connect to
//! it again after that; HBase's clients may at once.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::time::Duration;

use halcyon_proto::pb;
use halcyon_schema::ServerName;
use prost::Message;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with, sockopt};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::Inner;
use crate::{ClientError, Cluster};

/// HBase's class, the only listener there is.
const LISTENER: &str = "org.apache.hadoop.hbase.client.ClusterStatusListener$MulticastListener";
/// The longest datagram that there can be.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;
/// How long a dead server is avoided. A master names it in five messages, ten seconds apart.
const DEAD_FOR: Duration = Duration::from_secs(60);
/// Dead servers that are known at the same time; of more the oldest are forgotten.
const DEAD_MAX: usize = 1_000;
/// After an error of the socket.
const PAUSE: Duration = Duration::from_secs(1);

/// Where a client listens to what masters publish of dead servers. The names in parentheses are HBase's properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusOptions {
    /// The multicast group (`hbase.status.multicast.address.ip`).
    pub group: IpAddr,
    /// The port (`hbase.status.multicast.address.port`).
    pub port: u16,
    /// The address to listen at (`hbase.status.multicast.bind.address.ip`).
    pub bind: IpAddr,
    /// The network interface that joins the group (`hbase.status.multicast.ni.name`), such as `eth0`; empty: the system chooses.
    pub interface: String,
}

impl Default for StatusOptions {
    /// HBase's defaults.
    fn default() -> StatusOptions {
        StatusOptions {
            group: IpAddr::V4(Ipv4Addr::new(226, 1, 1, 3)),
            port: 16100,
            bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            interface: String::new(),
        }
    }
}

impl StatusOptions {
    /// Reads HBase's properties, of which `property` finds the values. `None`: `hbase.status.published` is not `true`. The error
    /// names the property.
    pub fn from_properties(
        property: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<StatusOptions>, ClientError> {
        let find = |name: &str| property(name).map(|value| value.trim().to_string());
        match find("hbase.status.published").as_deref() {
            Some("true") => {}
            None | Some("false" | "") => return Ok(None),
            Some(other) => return Err(wrong("hbase.status.published", other, "is neither true nor false")),
        }
        if let Some(class) = find("hbase.status.listener.class")
            && class.replace('$', ".") != LISTENER.replace('$', ".")
        {
            let why = format!("is not loaded: {LISTENER} is the only listener");
            return Err(wrong("hbase.status.listener.class", &class, &why));
        }
        let mut options = StatusOptions::default();
        let name = "hbase.status.multicast.address.ip";
        if let Some(text) = find(name) {
            let group: Option<IpAddr> = text.parse().ok().filter(IpAddr::is_multicast);
            options.group =
                group.ok_or_else(|| wrong(name, &text, "is no multicast address such as 226.1.1.3"))?;
        }
        let name = "hbase.status.multicast.address.port";
        if let Some(text) = find(name) {
            let port = text.parse().ok().filter(|port| *port > 0);
            options.port = port.ok_or_else(|| wrong(name, &text, "is no port"))?;
        }
        let name = "hbase.status.multicast.bind.address.ip";
        if let Some(text) = find(name) {
            options.bind = text.parse().map_err(|_| wrong(name, &text, "is no IP address"))?;
        }
        options.interface = find("hbase.status.multicast.ni.name").unwrap_or_default();
        Ok(Some(options))
    }

    /// Other programs of this machine may listen at the same port.
    fn open(&self) -> Result<UdpSocket, ClientError> {
        let bind = match (self.bind, self.group) {
            (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            (bind, _) => bind,
        };
        let at = |name: &str, value: &dyn std::fmt::Display, error: io::Error| {
            ClientError::from(io::Error::new(error.kind(), format!("{name}: {value}: {error}")))
        };
        let address = SocketAddr::new(bind, self.port);
        let socket =
            bound(address).map_err(|error| at("hbase.status.multicast.bind.address.ip", &address, error))?;
        self.join(&socket).map_err(|error| match self.interface.is_empty() {
            true => at("hbase.status.multicast.address.ip", &self.group, error),
            false => at("hbase.status.multicast.ni.name", &self.interface, error),
        })?;
        UdpSocket::from_std(socket.into()).map_err(ClientError::from)
    }

    fn join(&self, socket: &OwnedFd) -> io::Result<()> {
        let index = match &*self.interface {
            "" => 0,
            name => netdevice::name_to_index(socket, name)?,
        };
        match self.group {
            IpAddr::V4(group) => {
                sockopt::set_ip_add_membership_with_ifindex(socket, &group, &Ipv4Addr::UNSPECIFIED, index)?;
            }
            IpAddr::V6(group) => sockopt::set_ipv6_add_membership(socket, &group, index)?,
        }
        Ok(())
    }
}

fn bound(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

fn wrong(name: &str, value: &str, why: &str) -> ClientError {
    ClientError::invalid(format!("{name}: {value:?} {why}"))
}

/// The dead servers of a message. Names that are none are left out, as another version may have its own.
fn dead_servers(message: &[u8]) -> Result<Vec<ServerName>, ClientError> {
    let status = pb::ClusterStatus::decode(message).map_err(ClientError::malformed)?;
    let is_whole = |name: &ServerName| !name.host.is_empty() && name.port > 0 && name.start_code >= 0;
    let names = status.dead_servers.iter().filter_map(|name| ServerName::from_pb(name).ok());
    Ok(names.filter(is_whole).collect())
}

/// Listens until it is dropped.
pub(crate) struct StatusListener(JoinHandle<()>);

impl StatusListener {
    /// Begins to listen, for as long as the cluster is in use.
    pub(crate) fn start(
        options: &StatusOptions,
        cluster: Weak<Inner>,
    ) -> Result<StatusListener, ClientError> {
        let socket = options.open()?;
        Ok(StatusListener(tokio::spawn(listen(socket, cluster))))
    }
}

impl Drop for StatusListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn listen(socket: UdpSocket, cluster: Weak<Inner>) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let Ok(len) = socket.recv(&mut buffer).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Some(inner) = cluster.upgrade() else { return };
        // Anybody may send anything here.
        for dead in dead_servers(&buffer[..len]).unwrap_or_default() {
            Cluster { inner: inner.clone() }.server_died(&dead).await;
        }
    }
}

/// Servers that were named. At most [`DEAD_MAX`].
#[derive(Default)]
pub(crate) struct DeadServers {
    /// By `host:port`: the time of its start, and since when it is known.
    known: HashMap<String, (i64, Instant)>,
}

impl DeadServers {
    /// False if this server or a later one at its address is known as dead.
    fn add(&mut self, server: &ServerName, now: Instant) -> bool {
        self.known.retain(|_, (_, since)| now < *since + DEAD_FOR);
        let address = server.address();
        if self.known.get(&address).is_some_and(|(start_code, _)| *start_code >= server.start_code) {
            return false;
        }
        if self.known.len() >= DEAD_MAX && !self.known.contains_key(&address) {
            let oldest = self.known.iter().min_by_key(|(_, (_, since))| *since);
            if let Some(oldest) = oldest.map(|(address, _)| address.clone()) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(address, (server.start_code, now));
        true
    }

    /// Whether this server was named. One whose start is not known was not.
    pub(crate) fn contains(&self, server: &ServerName, now: Instant) -> bool {
        !self.known.is_empty()
            && server.start_code >= 0
            && self.known.get(&server.address()).is_some_and(|(start_code, since)| {
                server.start_code <= *start_code && now < *since + DEAD_FOR
            })
    }

    fn names(&self, now: Instant) -> Vec<ServerName> {
        let known = self.known.iter().filter(|(_, (_, since))| now < *since + DEAD_FOR);
        known
            .filter_map(|(address, (start_code, _))| {
                let (host, port) = address.rsplit_once(':')?;
                Some(ServerName::new(host, port.parse().ok()?, *start_code))
            })
            .collect()
    }
}

impl Cluster {
    /// Servers that masters have published as dead in the last minute, if the client listens ([`ClusterOptions::status`]).
    ///
    /// [`ClusterOptions::status`]: crate::ClusterOptions::status
    pub fn published_dead_servers(&self) -> Vec<ServerName> {
        self.inner.dead.lock().names(Instant::now())
    }

    /// Whether a server was published as dead. Nobody should connect to it.
    pub(crate) fn is_dead(&self, server: &ServerName) -> bool {
        self.inner.dead.lock().contains(server, Instant::now())
    }

    async fn server_died(&self, dead: &ServerName) {
        if self.inner.dead.lock().add(dead, Instant::now()) {
            self.end_server(dead);
            self.inner.locations.forget_dead().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(port: u16, start_code: i64) -> ServerName {
        ServerName::new("h", port, start_code)
    }

    fn message(names: Vec<pb::ServerName>) -> Vec<u8> {
        let master = Some(name(16000, 4).to_pb());
        let id = Some(pb::ClusterId { cluster_id: "an id".to_string() });
        pb::ClusterStatus { dead_servers: names, master, cluster_id: id, ..Default::default() }
            .encode_to_vec()
    }

    #[test]
    fn names_of_a_message() {
        let (good, other) = (name(16020, 5), name(16021, 6));
        let odd = [
            pb::ServerName { host_name: String::new(), port: Some(1), start_code: Some(1) },
            pb::ServerName { host_name: "h".into(), port: None, start_code: Some(1) },
            pb::ServerName { host_name: "h".into(), port: Some(70_000), start_code: Some(1) },
            pb::ServerName { host_name: "h".into(), port: Some(1), start_code: None },
            pb::ServerName { host_name: "h".into(), port: Some(1), start_code: Some(u64::MAX) },
        ];
        let names = [vec![good.to_pb()], odd.to_vec(), vec![other.to_pb()]].concat();
        assert_eq!(dead_servers(&message(names)).unwrap(), [good, other]);
        assert_eq!(dead_servers(&message(Vec::new())).unwrap(), []);
        assert!(dead_servers(b"\xff\xff\xff").is_err());
    }

    /// Datagrams cut, changed and with lengths that promise much, by `HALCYON_SEED`: errors or names, never a panic.
    #[test]
    fn damaged_messages_by_seed() {
        let seed = std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1u64);
        println!("HALCYON_SEED={seed}");
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % end.max(1)
        };
        let good = message((0..10).map(|at| name(16020 + at, i64::from(at)).to_pb()).collect());
        let mut understood = 0;
        for _ in 0..20_000 {
            let mut bad = good.clone();
            for _ in 0..1 + below(3) {
                let at = below(bad.len());
                match below(4) {
                    0 => bad[at] = below(256) as u8,
                    1 => bad[at] ^= 1 << below(8),
                    2 => bad.truncate(at + 1),
                    _ => {
                        let end = bad.len().min(at + 4);
                        bad[at..end].fill(0xff);
                    }
                }
            }
            let Ok(names) = dead_servers(&bad) else { continue };
            understood += 1;
            let is_whole = |name: &ServerName| !name.host.is_empty() && name.port > 0 && name.start_code >= 0;
            assert!(names.len() <= bad.len() && names.iter().all(is_whole), "{names:?}");
        }
        assert!(understood > 0, "some damage leaves a message");
    }

    #[test]
    fn a_dead_server_is_known_for_a_while() {
        let mut dead = DeadServers::default();
        let (now, later) = (Instant::now(), Instant::now() + DEAD_FOR * 2);
        assert!(dead.add(&name(1, 5), now));
        assert!(!dead.add(&name(1, 5), now), "it is named again");
        assert!(!dead.add(&name(1, 4), now), "a former one");
        let contains = |dead: &DeadServers, start_code| dead.contains(&name(1, start_code), now);
        assert!(contains(&dead, 5) && contains(&dead, 4));
        assert!(!contains(&dead, 6), "the one that is there now");
        assert!(!contains(&dead, -1), "one of which nothing is known");
        assert!(!dead.contains(&name(2, 5), now));
        assert_eq!(dead.names(now), [name(1, 5)]);
        assert!(!dead.contains(&name(1, 5), later));
        assert!(dead.names(later).is_empty());
        assert!(dead.add(&name(1, 5), later));
    }

    #[test]
    fn only_so_many_dead_servers_are_known() {
        let mut dead = DeadServers::default();
        let mut now = Instant::now();
        for port in 1..=DEAD_MAX as u16 + 5 {
            assert!(dead.add(&name(port, 5), now));
            now += Duration::from_millis(1);
        }
        assert_eq!(dead.names(now).len(), DEAD_MAX);
        assert!(!dead.contains(&name(5, 5), now) && dead.contains(&name(6, 5), now));
    }

    fn read(properties: &[(&str, &str)]) -> Result<Option<StatusOptions>, ClientError> {
        let find = |name: &str| {
            properties.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        };
        StatusOptions::from_properties(find)
    }

    #[test]
    fn properties_of_hbase() {
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&[("hbase.status.published", "false")]).unwrap(), None);
        let published = ("hbase.status.published", "true");
        assert_eq!(read(&[published]).unwrap(), Some(StatusOptions::default()));
        let options = read(&[
            published,
            ("hbase.status.listener.class", LISTENER),
            ("hbase.status.multicast.address.ip", "ff02::7"),
            ("hbase.status.multicast.address.port", "1234"),
            ("hbase.status.multicast.bind.address.ip", "127.0.0.1"),
            ("hbase.status.multicast.ni.name", "eth0"),
        ]);
        let options = options.unwrap().unwrap();
        assert_eq!((options.group.to_string().as_str(), options.port), ("ff02::7", 1234));
        assert_eq!((options.bind.to_string().as_str(), &*options.interface), ("127.0.0.1", "eth0"));
        for (name, bad) in [
            ("hbase.status.published", "yes"),
            ("hbase.status.listener.class", "org.x.Listener"),
            ("hbase.status.multicast.address.ip", "10.0.0.1"),
            ("hbase.status.multicast.address.port", "0"),
            ("hbase.status.multicast.bind.address.ip", "here"),
        ] {
            let properties = match name {
                "hbase.status.published" => vec![(name, bad)],
                _ => vec![published, (name, bad)],
            };
            let error = read(&properties).unwrap_err().to_string();
            assert!(error.contains(&format!("{name}: {bad:?} is n")), "{error}");
        }
    }

    #[tokio::test]
    async fn a_socket_that_cannot_be_opened_names_its_property() {
        let refused = |options: StatusOptions| options.open().unwrap_err().to_string();
        let interface = StatusOptions { interface: "nosuch0".into(), port: 0, ..StatusOptions::default() };
        assert!(refused(interface).contains("hbase.status.multicast.ni.name: nosuch0: "));
        let bind = StatusOptions { bind: "192.0.2.99".parse().unwrap(), port: 0, ..StatusOptions::default() };
        assert!(refused(bind).contains("hbase.status.multicast.bind.address.ip: 192.0.2.99:0: "));
    }
}
