//! The socket from which a master tells clients of dead servers (HBase: `ClusterStatusPublisher.MulticastPublisher`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::net::{netdevice, sockopt};

/// HBase's class, the only publisher there is.
pub const MULTICAST_PUBLISHER: &str =
    "org.apache.hadoop.hbase.master.ClusterStatusPublisher$MulticastPublisher";

/// How clients are told of dead servers. The names in parentheses are HBase's properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSettings {
    /// Whether they are told (`hbase.status.published`).
    pub published: bool,
    /// The group of receivers (`hbase.status.multicast.address.ip`).
    pub group: IpAddr,
    /// Their port (`hbase.status.multicast.address.port`).
    pub port: u16,
    /// The address that messages come from (`hbase.status.multicast.publisher.bind.address.ip`).
    pub bind: IpAddr,
    /// The network interface that messages leave by (`hbase.status.multicast.ni.name`); empty: the system chooses.
    pub interface: String,
    /// Between two messages without news (`hbase.status.publish.period`).
    pub period: Duration,
}

impl Default for StatusSettings {
    /// HBase's defaults: nothing is published.
    fn default() -> StatusSettings {
        StatusSettings {
            published: false,
            group: IpAddr::V4(Ipv4Addr::new(226, 1, 1, 3)),
            port: 16100,
            bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            interface: String::new(),
            period: Duration::from_secs(10),
        }
    }
}

/// Sends datagrams to a group. The time to live is 1, the system's default: routers do not pass them on.
///
/// # Thread safety
/// Shared by reference. A send does not wait: what the system cannot take at once is an error.
#[derive(Debug)]
pub struct MulticastSender {
    socket: UdpSocket,
    to: SocketAddr,
}

impl MulticastSender {
    /// The error is a sentence that names the property.
    pub fn open(settings: &StatusSettings) -> Result<MulticastSender, String> {
        let bind = match (settings.bind, settings.group) {
            (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            (bind, group) if bind.is_ipv4() != group.is_ipv4() => {
                return Err(format!(
                    "hbase.status.multicast.publisher.bind.address.ip: {bind} cannot send to the group {group}"
                ));
            }
            (bind, _) => bind,
        };
        let to = SocketAddr::new(settings.group, settings.port);
        let socket = UdpSocket::bind((bind, 0));
        let socket = socket
            .map_err(|error| format!("hbase.status.multicast.publisher.bind.address.ip: {bind}: {error}"))?;
        if !settings.interface.is_empty() {
            let name = &settings.interface;
            leave_by(&socket, settings.group, name)
                .map_err(|error| format!("hbase.status.multicast.ni.name: {name}: {error}"))?;
        }
        let unreachable = |error| {
            format!(
                "hbase.status.published: no way to the group {to}: {error}; hbase.status.multicast.ni.name names a network interface"
            )
        };
        socket.connect(to).map_err(unreachable)?;
        socket.set_nonblocking(true).map_err(unreachable)?;
        Ok(MulticastSender { socket, to })
    }

    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        self.socket.send(message).map(drop)
    }

    /// The group.
    pub fn to(&self) -> SocketAddr {
        self.to
    }
}

fn leave_by(socket: &UdpSocket, group: IpAddr, interface: &str) -> io::Result<()> {
    let index = netdevice::name_to_index(socket, interface)?;
    match group {
        IpAddr::V4(group) => {
            sockopt::set_ip_multicast_if_with_ifindex(socket, &group, &Ipv4Addr::UNSPECIFIED, index)?;
        }
        IpAddr::V6(_) => sockopt::set_ipv6_multicast_if(socket, index)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use halcyon_proto::pb;
    use halcyon_schema::ServerName;
    use prost::Message;

    use super::*;
    use crate::published::status_message;

    fn loopback(port: u16) -> StatusSettings {
        StatusSettings { interface: "lo".to_string(), port, ..StatusSettings::default() }
    }

    #[test]
    fn a_receiver_of_the_group_reads_the_message() {
        let receiver = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let settings = loopback(receiver.local_addr().unwrap().port());
        receiver.join_multicast_v4(&Ipv4Addr::new(226, 1, 1, 3), &Ipv4Addr::LOCALHOST).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let sender = MulticastSender::open(&settings).unwrap();
        let dead = ServerName::new("h", 16020, 5);
        let message =
            status_message("2.6.4", "id", &ServerName::new("m", 16000, 4), std::slice::from_ref(&dead));
        sender.send(&message).unwrap();
        let mut bytes = [0; 2048];
        let length = receiver.recv(&mut bytes).unwrap();
        let status = pb::ClusterStatus::decode(&bytes[..length]).unwrap();
        assert_eq!(status.dead_servers, [dead.to_pb()]);
    }

    #[test]
    fn settings_that_cannot_work_are_named() {
        let refused = |settings: StatusSettings| MulticastSender::open(&settings).unwrap_err();
        let no_interface = StatusSettings { interface: "nosuch0".into(), ..StatusSettings::default() };
        assert!(refused(no_interface).starts_with("hbase.status.multicast.ni.name: nosuch0: "));
        let not_ours = StatusSettings { bind: "192.0.2.99".parse().unwrap(), ..loopback(16100) };
        assert!(
            refused(not_ours).starts_with("hbase.status.multicast.publisher.bind.address.ip: 192.0.2.99: ")
        );
        let mixed = StatusSettings { bind: "::1".parse().unwrap(), ..loopback(16100) };
        assert_eq!(
            refused(mixed),
            "hbase.status.multicast.publisher.bind.address.ip: ::1 cannot send to the group 226.1.1.3"
        );
    }
}
