//! Where ZooKeeper is, as HBase's properties say it.

use std::fmt;
use std::time::Duration;

use halcyon_cell::{Error, Result};
use halcyon_schema::znode::{HBASE_VERSION, ZnodePaths};

const QUORUM: &str = "hbase.zookeeper.quorum";
const CLIENT_PORT: &str = "hbase.zookeeper.property.clientPort";
const PARENT: &str = "zookeeper.znode.parent";
const SESSION_TIMEOUT: &str = "zookeeper.session.timeout";

/// HBase's defaults.
const DEFAULT_QUORUM: &str = "127.0.0.1";
const DEFAULT_CLIENT_PORT: u16 = 2181;
const DEFAULT_PARENT: &str = "/hbase";
const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(90);

/// Names of znodes that HBase lets one change; here they cannot be changed.
const FIXED_NAMES: &[(&str, &str)] = &[
    ("zookeeper.znode.rs", "rs"),
    ("zookeeper.znode.draining.rs", "draining"),
    ("zookeeper.znode.master", "master"),
    ("zookeeper.znode.backup.masters", "backup-masters"),
    ("zookeeper.znode.state", "running"),
    ("zookeeper.znode.clusterId", "hbaseid"),
    ("zookeeper.znode.metaserver", "meta-region-server"),
];

/// How a server reaches the cluster's ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperSettings {
    /// Each `host:port`, or `[address]:port` for IPv6.
    servers: Vec<String>,
    pub(crate) paths: ZnodePaths,
    /// The session timeout that is asked for; ZooKeeper may grant another one.
    pub(crate) session_timeout: Duration,
    /// How long `connect` tries. Default: the session timeout, but at least 10 s.
    pub connect_timeout: Duration,
    /// How long one call may take, with its repetitions. Default: 10 s.
    pub call_timeout: Duration,
    /// The version of HBase that a region server says it has. Default: [`HBASE_VERSION`]. HBase's master moves system tables to
    /// the servers of the newest version, and takes `2.6.4-hadoop3` for older than `2.6.4`.
    pub hbase_version: String,
}

impl ZooKeeperSettings {
    /// `quorum` is a list of hosts separated by commas. A host without a port has `client_port`, as in HBase.
    pub fn new(
        quorum: &str,
        client_port: u16,
        znode_parent: &str,
        session_timeout: Duration,
    ) -> Result<ZooKeeperSettings> {
        let hosts = quorum.split(',').map(str::trim).filter(|host| !host.is_empty());
        let servers = hosts.map(|host| server_address(host, client_port)).collect::<Result<Vec<_>>>()?;
        if servers.is_empty() {
            return Err(Error::invalid(format!("{QUORUM}: {quorum:?} names no server")));
        }
        // The protocol has milliseconds in 32 bits.
        if session_timeout.is_zero() || session_timeout.as_millis() > i32::MAX as u128 {
            return Err(Error::invalid(format!("{SESSION_TIMEOUT}: {session_timeout:?} is out of range")));
        }
        Ok(ZooKeeperSettings {
            servers,
            paths: ZnodePaths::new(znode_parent)?,
            session_timeout,
            connect_timeout: session_timeout.max(Duration::from_secs(10)),
            call_timeout: Duration::from_secs(10),
            hbase_version: HBASE_VERSION.to_string(),
        })
    }

    /// Reads HBase's properties. `get` gives the value of a property of `hbase-site.xml`, if it is set.
    pub fn from_properties(get: impl Fn(&str) -> Option<String>) -> Result<ZooKeeperSettings> {
        refuse_unsupported(&get)?;
        let number = |name: &str| {
            let value = get(name)?;
            let read = value.trim().parse::<u32>();
            Some(read.map_err(|_| Error::invalid(format!("{name}: {value:?} is not a number"))))
        };
        let client_port = match number(CLIENT_PORT).transpose()? {
            None => DEFAULT_CLIENT_PORT,
            Some(port) => port_number(CLIENT_PORT, port)?,
        };
        let session_timeout = number(SESSION_TIMEOUT).transpose()?;
        let session_timeout =
            session_timeout.map_or(DEFAULT_SESSION_TIMEOUT, |ms| Duration::from_millis(ms.into()));
        let quorum = get(QUORUM).unwrap_or_else(|| DEFAULT_QUORUM.to_string());
        let parent = get(PARENT).unwrap_or_else(|| DEFAULT_PARENT.to_string());
        ZooKeeperSettings::new(&quorum, client_port, parent.trim(), session_timeout)
    }

    /// The session timeout that is asked for.
    pub fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    pub fn paths(&self) -> &ZnodePaths {
        &self.paths
    }

    /// Each `host:port`.
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// As the library takes it.
    pub(crate) fn connect_string(&self) -> String {
        self.servers.join(",")
    }
}

/// For messages: who is asked, and where.
impl fmt::Display for ZooKeeperSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZooKeeper {}{}", self.servers.join(","), self.paths.base())
    }
}

fn port_number(what: &str, port: u32) -> Result<u16> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0);
    port.ok_or_else(|| Error::invalid(format!("{what}: not a port between 1 and 65535")))
}

/// One host of the quorum with its port.
fn server_address(host: &str, client_port: u16) -> Result<String> {
    let wrong = |why: &str| Error::invalid(format!("{QUORUM}: {host:?} {why}"));
    if host.contains('/') {
        return Err(wrong("has a path; the base path of a cluster is zookeeper.znode.parent"));
    }
    let (name, port) = if let Some(rest) = host.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or_else(|| wrong("has no closing bracket"))?;
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(port),
            None if rest.is_empty() => None,
            None => return Err(wrong("has something other than a port behind its bracket")),
        };
        (address, port)
    } else if host.matches(':').count() > 1 {
        (host, None) // a bare IPv6 address
    } else {
        host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)))
    };
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(wrong("is not a host"));
    }
    let port = match port {
        None => client_port,
        Some(port) => {
            let number = port.parse().map_err(|_| wrong("has a port that is not a number"))?;
            port_number(&format!("{QUORUM}: {host:?}"), number)?
        }
    };
    Ok(if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") })
}

/// A property that would be ignored, so that the server would be in another cluster than its operator thinks, or would talk
/// without the encryption that is asked for.
fn refuse_unsupported(get: &impl Fn(&str) -> Option<String>) -> Result<()> {
    for (name, fixed) in FIXED_NAMES {
        if let Some(value) = get(name).filter(|value| value.trim() != *fixed) {
            return Err(Error::invalid(format!("{name}: {value:?} is not supported, only {fixed:?}")));
        }
    }
    if get("hbase.zookeeper.property.client.secure").is_some_and(|value| value.trim() == "true") {
        return Err(Error::invalid(
            "hbase.zookeeper.property.client.secure: connections to ZooKeeper with TLS are not supported",
        ));
    }
    if get("hbase.security.authentication").is_some_and(|value| value.trim() == "kerberos") {
        return Err(Error::invalid(
            "hbase.security.authentication: kerberos is not supported for connections to ZooKeeper",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(properties: &[(&str, &str)]) -> Result<ZooKeeperSettings> {
        ZooKeeperSettings::from_properties(|name| {
            let found = properties.iter().find(|(property, _)| *property == name);
            found.map(|(_, value)| value.to_string())
        })
    }

    fn servers(quorum: &str) -> String {
        read(&[(QUORUM, quorum), (CLIENT_PORT, "2222")]).unwrap().connect_string()
    }

    #[test]
    fn defaults_are_those_of_hbase() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.to_string(), "ZooKeeper 127.0.0.1:2181/hbase");
        assert_eq!(settings.session_timeout(), Duration::from_secs(90));
        let settings = read(&[(PARENT, "/a/b"), (SESSION_TIMEOUT, "6000"), (CLIENT_PORT, " 1 ")]).unwrap();
        assert_eq!(settings.to_string(), "ZooKeeper 127.0.0.1:1/a/b");
        assert_eq!(
            (settings.session_timeout(), settings.connect_timeout),
            (Duration::from_secs(6), Duration::from_secs(10))
        );
    }

    #[test]
    fn hosts_may_have_ports() {
        assert_eq!(servers("a"), "a:2222");
        assert_eq!(servers("a, b:1 ,c"), "a:2222,b:1,c:2222");
        assert_eq!(
            servers("::1,[::1],[fe80::2]:7,10.0.0.1"),
            "[::1]:2222,[::1]:2222,[fe80::2]:7,10.0.0.1:2222"
        );
    }

    #[test]
    fn wrong_values_are_named() {
        let wrong = |name: &str, value: &str| read(&[(name, value)]).unwrap_err().to_string();
        assert!(wrong(QUORUM, " , ").contains("hbase.zookeeper.quorum: \" , \" names no server"));
        assert!(wrong(QUORUM, "a:b").contains("\"a:b\" has a port that is not a number"));
        assert!(wrong(QUORUM, "a:0").contains("\"a:0\": not a port"));
        assert!(wrong(QUORUM, "a:70000").contains("not a port"));
        assert!(wrong(QUORUM, "a/x").contains("has a path"));
        assert!(wrong(QUORUM, "[::1").contains("has no closing bracket"));
        assert!(wrong(QUORUM, "[::1]x").contains("behind its bracket"));
        assert!(wrong(QUORUM, ":1").contains("is not a host"));
        assert!(wrong(QUORUM, "a b").contains("is not a host"));
        assert!(
            wrong(CLIENT_PORT, "x").contains("hbase.zookeeper.property.clientPort: \"x\" is not a number")
        );
        assert!(wrong(CLIENT_PORT, "65536").contains("not a port"));
        assert!(wrong(SESSION_TIMEOUT, "0").contains("out of range"));
        assert!(wrong(SESSION_TIMEOUT, "3000000000").contains("out of range"));
        assert!(wrong(PARENT, "hbase").contains("zookeeper.znode.parent"));
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        assert!(read(&[("zookeeper.znode.rs", "rs")]).is_ok());
        let error = read(&[("zookeeper.znode.rs", "servers")]).unwrap_err().to_string();
        assert!(error.contains("zookeeper.znode.rs: \"servers\" is not supported, only \"rs\""), "{error}");
        assert!(read(&[("hbase.zookeeper.property.client.secure", "true")]).is_err());
        assert!(read(&[("hbase.security.authentication", "kerberos")]).is_err());
        assert!(read(&[("hbase.security.authentication", "simple")]).is_ok());
    }
}
