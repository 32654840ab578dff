//! Which NameNodes a root directory in HDFS belongs to.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::Site;

/// HDFS's own default port of a NameNode.
const DEFAULT_PORT: u16 = 8020;

/// A directory in HDFS and the NameNodes that know it.
#[derive(Clone, Debug)]
pub struct HdfsAddress {
    /// `hdfs://host:port` or `hdfs://nameservice`.
    authority: String,
    /// `host:port` of each NameNode; several if the name service has standbys.
    namenodes: Vec<String>,
    path: PathBuf,
    settings: HashMap<String, String>,
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl HdfsAddress {
    /// `root` is `hdfs://host:port/path`, `hdfs://nameservice/path`, or `hdfs:///path` for the default of
    /// `core-site.xml` (`fs.defaultFS`).
    pub fn new(root: &str, site: &Site) -> io::Result<HdfsAddress> {
        let Some(rest) = root.strip_prefix("hdfs://") else {
            return Err(invalid(format!(
                "{root} is not an address in HDFS, such as hdfs://namenode:8020/hbase"
            )));
        };
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() {
            return HdfsAddress::by_default(root, path, site);
        }
        let services = site.list("dfs.nameservices");
        let namenodes = match host.rsplit_once(':') {
            Some((name, port)) => vec![host_and_port(root, name, port)?],
            None if services.iter().any(|service| service == host) || is_service(site, host) => {
                of_service(site, host)?
            }
            None => vec![format!("{host}:{DEFAULT_PORT}")],
        };
        // Only of a name service with standbys does the library know the NameNodes by its name.
        let standbys = site.list(&format!("dfs.ha.namenodes.{host}"));
        let authority = if standbys.is_empty() { &namenodes[0] } else { host };
        let mut settings: HashMap<String, String> =
            site.names().filter_map(|name| Some((name.clone(), site.get(name)?))).collect();
        // The library takes the blanks in this list for parts of names.
        settings.insert(format!("dfs.ha.namenodes.{host}"), standbys.join(","));
        Ok(HdfsAddress {
            authority: format!("hdfs://{authority}"),
            namenodes,
            path: PathBuf::from(if path.is_empty() { "/" } else { path }),
            settings,
        })
    }

    fn by_default(root: &str, path: &str, site: &Site) -> io::Result<HdfsAddress> {
        let default = site.get("fs.defaultFS").unwrap_or_default();
        let host = default.strip_prefix("hdfs://").map(|rest| rest.trim_end_matches('/')).unwrap_or_default();
        if host.is_empty() || host.contains('/') {
            return Err(invalid(format!(
                "{root} names no NameNode, and fs.defaultFS ({}) is not of the form hdfs://host:port; name one of them",
                if default.is_empty() { "not set" } else { &default }
            )));
        }
        HdfsAddress::new(&format!("hdfs://{host}{path}"), site)
    }

    /// The directory, without the NameNode.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `host:port` of each NameNode.
    pub fn namenodes(&self) -> &[String] {
        &self.namenodes
    }

    /// A number of bytes as HDFS's settings have it, such as `128m`.
    pub(crate) fn bytes(&self, name: &str) -> io::Result<Option<u64>> {
        let Some(value) = self.settings.get(name).filter(|value| !value.is_empty()) else { return Ok(None) };
        let shift = match value.as_bytes()[value.len() - 1].to_ascii_lowercase() {
            b'k' => 10,
            b'm' => 20,
            b'g' => 30,
            b't' => 40,
            b'p' => 50,
            b'e' => 60,
            _ => 0,
        };
        let digits = if shift > 0 { &value[..value.len() - 1] } else { value };
        let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        match bytes.filter(|bytes| *bytes > 0) {
            Some(bytes) => Ok(Some(bytes)),
            None => {
                Err(invalid(format!("{name} is {value}; it must be a number of bytes above 0, such as 128m")))
            }
        }
    }

    pub(crate) fn number(&self, name: &str) -> io::Result<Option<u32>> {
        let Some(value) = self.settings.get(name).filter(|value| !value.is_empty()) else { return Ok(None) };
        let number = value.parse();
        number.map(Some).map_err(|_| invalid(format!("{name} is {value}; it must be a whole number")))
    }

    pub(crate) fn url(&self) -> &str {
        &self.authority
    }

    pub(crate) fn settings(&self) -> &HashMap<String, String> {
        &self.settings
    }
}

/// The NameNodes by name and place, for errors.
impl fmt::Display for HdfsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)?;
        if self.namenodes.len() > 1 || !self.authority.ends_with(&self.namenodes[0]) {
            write!(f, " ({})", self.namenodes.join(", "))?;
        }
        Ok(())
    }
}

fn is_service(site: &Site, host: &str) -> bool {
    !site.list(&format!("dfs.ha.namenodes.{host}")).is_empty()
        || site.get(&format!("dfs.namenode.rpc-address.{host}")).is_some()
}

fn host_and_port(place: &str, name: &str, port: &str) -> io::Result<String> {
    match port.parse::<u16>() {
        Ok(number) if number > 0 && !name.is_empty() => Ok(format!("{name}:{number}")),
        _ => Err(invalid(format!("{place}: {name}:{port} is not a host and a port from 1 to 65535"))),
    }
}

/// The NameNodes of a name service. Without standbys its address has no name of a NameNode.
fn of_service(site: &Site, service: &str) -> io::Result<Vec<String>> {
    let names = site.list(&format!("dfs.ha.namenodes.{service}"));
    let mut keys: Vec<String> =
        names.iter().map(|name| format!("dfs.namenode.rpc-address.{service}.{name}")).collect();
    if keys.is_empty() {
        keys.push(format!("dfs.namenode.rpc-address.{service}"));
    }
    let found = keys.iter().map(|key| {
        let value = site.get(key).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| {
            invalid(format!("hdfs-site.xml names the NameNodes of {service}, but not {key}"))
        })?;
        let (name, port) = value.rsplit_once(':').unwrap_or((&value, "8020"));
        host_and_port(key, name, port)
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(settings: &[(&str, &str)]) -> Site {
        let mut site = Site::default();
        for (name, value) in settings {
            site.set(name, value);
        }
        site
    }

    fn refused(root: &str, settings: &[(&str, &str)]) -> String {
        HdfsAddress::new(root, &site(settings)).unwrap_err().to_string()
    }

    const STANDBY: &[(&str, &str)] = &[
        ("dfs.nameservices", "cluster, other"),
        ("dfs.ha.namenodes.cluster", "nn1, nn2"),
        ("dfs.namenode.rpc-address.cluster.nn1", "one:8020"),
        ("dfs.namenode.rpc-address.cluster.nn2", "two:9000"),
    ];

    #[test]
    fn one_namenode() {
        let address = HdfsAddress::new("hdfs://one:9000/hbase", &Site::default()).unwrap();
        assert_eq!((address.url(), address.path()), ("hdfs://one:9000", Path::new("/hbase")));
        assert_eq!(address.to_string(), "hdfs://one:9000");
        let address = HdfsAddress::new("hdfs://one", &Site::default()).unwrap();
        assert_eq!((address.url(), address.path()), ("hdfs://one:8020", Path::new("/")));
    }

    #[test]
    fn a_name_service_with_a_standby() {
        let address = HdfsAddress::new("hdfs://cluster/hbase", &site(STANDBY)).unwrap();
        assert_eq!(address.url(), "hdfs://cluster");
        assert_eq!(address.namenodes(), ["one:8020", "two:9000"]);
        assert_eq!(address.to_string(), "hdfs://cluster (one:8020, two:9000)");
        assert_eq!(address.settings()["dfs.ha.namenodes.cluster"], "nn1,nn2");
    }

    #[test]
    fn a_name_service_without_standbys() {
        let settings = [("dfs.nameservices", "cluster"), ("dfs.namenode.rpc-address.cluster", "one:9000")];
        let address = HdfsAddress::new("hdfs://cluster/hbase", &site(&settings)).unwrap();
        assert_eq!((address.url(), address.namenodes()), ("hdfs://one:9000", &["one:9000".to_string()][..]));
    }

    #[test]
    fn the_default() {
        let settings = [STANDBY, &[("fs.defaultFS", "hdfs://cluster/")]].concat();
        let address = HdfsAddress::new("hdfs:///hbase", &site(&settings)).unwrap();
        assert_eq!((address.url(), address.path()), ("hdfs://cluster", Path::new("/hbase")));
        assert!(refused("hdfs:///hbase", &[]).contains("fs.defaultFS (not set)"));
        assert!(
            refused("hdfs:///hbase", &[("fs.defaultFS", "file:///")]).contains("fs.defaultFS (file:///)")
        );
    }

    #[test]
    fn numbers() {
        let settings =
            [("a", "128m"), ("b", "512"), ("c", "m"), ("d", "0"), ("e", "99999999999e"), ("f", "1K")];
        let address = HdfsAddress::new("hdfs://one/", &site(&settings)).unwrap();
        let bytes = |name| address.bytes(name).map_err(|error| error.to_string());
        assert_eq!((bytes("a"), bytes("b")), (Ok(Some(128 << 20)), Ok(Some(512))));
        assert_eq!((bytes("f"), bytes("none")), (Ok(Some(1024)), Ok(None)));
        for name in ["c", "d", "e"] {
            assert!(bytes(name).unwrap_err().contains("a number of bytes above 0"));
        }
        assert_eq!((address.number("b").unwrap(), address.number("none").unwrap()), (Some(512), None));
        assert_eq!(address.number("a").unwrap_err().to_string(), "a is 128m; it must be a whole number");
    }

    #[test]
    fn garbage() {
        assert!(refused("file:///x", &[]).starts_with("file:///x is not an address in HDFS"));
        assert!(refused("hdfs://one:port/x", &[]).contains("one:port is not a host and a port"));
        assert!(refused("hdfs://one:70000/x", &[]).contains("is not a host and a port"));
        assert!(refused("hdfs://:8020/x", &[]).contains("is not a host and a port"));
        assert_eq!(
            refused("hdfs://cluster/x", &STANDBY[..3]),
            "hdfs-site.xml names the NameNodes of cluster, but not dfs.namenode.rpc-address.cluster.nn2"
        );
        assert!(refused("hdfs://other/x", STANDBY).contains("but not dfs.namenode.rpc-address.other"));
    }
}
