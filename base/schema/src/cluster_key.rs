//! How a cluster is named to another one.

use halcyon_cell::{Error, Result};

/// HBase's cluster key, `host1,host2:port:/znode` or `host1:port1,host2:port2:port:/znode` (`ZKConfig`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterKey {
    /// ZooKeeper's servers as `host:port`.
    pub quorum: Vec<String>,
    /// Where the cluster's znodes are, such as `/hbase`.
    pub base: String,
}

impl ClusterKey {
    /// `Invalid` if the text is no key.
    pub fn parse(text: &str) -> Result<ClusterKey> {
        let wrong = || {
            Error::invalid(format!(
                "Cluster key passed {text} is invalid, the format should be:hbase.zookeeper.quorum:\
                 hbase.zookeeper.property.clientPort:zookeeper.znode.parent"
            ))
        };
        let (rest, base) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (hosts, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        if !base.starts_with('/') || base.len() < 2 || !is_port(port) {
            return Err(wrong());
        }
        let mut quorum = Vec::new();
        for host in hosts.split(',').map(str::trim) {
            let (name, own_port) = host.split_once(':').unwrap_or((host, port));
            if name.is_empty() || name.contains(char::is_whitespace) || !is_port(own_port) {
                return Err(wrong());
            }
            quorum.push(format!("{name}:{own_port}"));
        }
        Ok(ClusterKey { quorum, base: base.trim_end_matches('/').to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_servers_and_a_path() {
        let quorum = |text: &str| ClusterKey::parse(text).unwrap().quorum;
        assert_eq!(quorum("h:2181:/hbase"), ["h:2181"]);
        assert_eq!(quorum("a,b,c:2181:/hbase"), ["a:2181", "b:2181", "c:2181"]);
        assert_eq!(quorum("a:1,b:2,c:2181:/hbase"), ["a:1", "b:2", "c:2181"]);
        assert_eq!(ClusterKey::parse("h:2181:/a/b").unwrap().base, "/a/b");
        for bad in [
            "",
            "h",
            "h:2181",
            "h:2181:",
            "h:2181:hbase",
            "h:2181:/",
            ":2181:/hbase",
            "h:x:/hbase",
            "h,:1:/b",
            "h:0:/b",
        ] {
            let error = ClusterKey::parse(bad).unwrap_err();
            assert!(error.message().contains("the format should be"), "{bad}: {error}");
        }
    }
}
