//! Options of `halcyon migrate`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use halcyon_client::ClusterAddress;

/// Move tables from a running cluster of HBase to Halcyon, and back if need be.
///
/// Without a switch that names a step, the tables are copied, followed and compared. The clients keep writing to the source.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("step"))]
pub struct MigrateArgs {
    /// The cluster that has the tables: hbase://HOST:PORT,.../ZNODE, or hbase+rpc://HOST:PORT,...
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub from: Option<Address>,
    /// The cluster that gets them [default: hbase://127.0.0.1:2181/hbase].
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub to: Option<Address>,
    /// Tables to move, such as orders,shop:carts.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub tables: Vec<String>,
    /// File that remembers how far the migration is. A run that finds it resumes.
    #[arg(long, value_name = "FILE", default_value = "halcyon-migrate.json")]
    pub state: PathBuf,

    /// Then cut over: stop writes at the source, let the last edits arrive, compare them, and open the target.
    #[arg(long, group = "step")]
    pub cut_over: bool,
    /// Copy, follow and compare, and cut over as soon as no row differs.
    #[arg(long, group = "step")]
    pub cut_over_when_ready: bool,
    /// Cut over back to the source, which has followed meanwhile.
    #[arg(long, group = "step")]
    pub back: bool,
    /// Compare every row once more.
    #[arg(long, group = "step")]
    pub verify: bool,
    /// End the migration: remove both peers, and put settings of the tables back.
    #[arg(long, group = "step")]
    pub finish: bool,
    /// Give up before the cut over: as --finish. What was copied stays at the target.
    #[arg(long, group = "step")]
    pub abort: bool,
    /// Print how far the migration is.
    #[arg(long, group = "step")]
    pub status: bool,

    /// Ranges that are copied or compared at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub threads: usize,
    /// Bytes of cells that are copied in a second at most, in MiB.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate_limit: Option<u64>,
    /// A cut over that would take longer is undone, and the source takes writes again.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub pause_max: u64,
    /// Longest search for changed rows while writes are stopped; a longer one follows the pause [default: a third of what is left].
    #[arg(long, value_name = "MILLISECONDS")]
    pub pause_search_max: Option<u64>,
    /// At a cut over, write the address of the cluster that takes writes from now on to this file.
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// How the target finds the source's ZooKeeper, HOST:PORT:/ZNODE [default: from --from].
    #[arg(long, value_name = "KEY")]
    pub from_cluster_key: Option<String>,
    /// How the source finds the target's ZooKeeper, HOST:PORT:/ZNODE [default: from --to].
    #[arg(long, value_name = "KEY")]
    pub to_cluster_key: Option<String>,
    /// Create tables without the coprocessors that Halcyon does not have.
    #[arg(long)]
    pub drop_coprocessors: bool,
    /// Create families without IS_MOB: their values are stored as other values are.
    #[arg(long)]
    pub drop_mob: bool,
    /// Copy into tables that have rows of an earlier try: the target becomes like the source.
    #[arg(long, conflicts_with = "merge")]
    pub again: bool,
    /// Copy into tables that have rows of their own. Cells that only the target has stay there.
    #[arg(long)]
    pub merge: bool,
    /// Accept that other peers of either cluster begin to get the tables, because REPLICATION_SCOPE becomes 1.
    #[arg(long)]
    pub accept_other_peers: bool,
    /// Let a cut over delete the cells that only the side that follows has.
    #[arg(long, conflicts_with = "merge")]
    pub delete_surplus: bool,
    /// A cut over compares all rows once more if the last comparison of all rows ended longer ago.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub verified_within: u64,
    /// Cut over without comparing all rows once more, whatever has happened since the last comparison.
    #[arg(long, conflicts_with = "verified_within")]
    pub skip_verify: bool,
    /// With --finish: the tables that clients have left stay READONLY.
    #[arg(long, requires = "finish")]
    pub close_source: bool,
    /// Time between two lines of progress.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub progress_period: u64,
}

impl MigrateArgs {
    /// [`MigrateArgs::pause_max`] as a time.
    pub fn pause_limit(&self) -> Duration {
        Duration::from_secs(self.pause_max)
    }
}

/// Where a cluster is, as a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    text: String,
    cluster: ClusterAddress,
}

impl Address {
    /// The error is a sentence for the user.
    pub fn parse(text: &str) -> Result<Address, String> {
        let form = "expected hbase://HOST:PORT,.../ZNODE or hbase+rpc://HOST:PORT,...";
        let (scheme, rest) = text.split_once("://").ok_or(form)?;
        let (hosts, base) = rest.split_once('/').unwrap_or((rest, ""));
        let base = base.trim_end_matches('/');
        let port = match scheme {
            "hbase" | "hbase+zk" => Some(2181),
            "hbase+rpc" if base.is_empty() => None,
            "hbase+rpc" => return Err("an address of the RPC registry has no znode".to_string()),
            _ => return Err(format!("unknown scheme {scheme}: {form}")),
        };
        let servers =
            hosts.split(',').map(|host| server(host.trim(), port)).collect::<Result<Vec<_>, _>>()?;
        let (text, cluster) = match port {
            Some(_) => {
                let base = if base.is_empty() { "/hbase".to_string() } else { format!("/{base}") };
                let text = format!("hbase://{}{base}", servers.join(","));
                (text, ClusterAddress::ZooKeeper { quorum: servers, base })
            }
            None => (format!("hbase+rpc://{}", servers.join(",")), ClusterAddress::Registry { servers }),
        };
        Ok(Address { text, cluster })
    }

    /// As the client takes it.
    pub fn cluster(&self) -> &ClusterAddress {
        &self.cluster
    }

    /// As a replication peer names it; `None` of an RPC registry.
    pub fn cluster_key(&self) -> Option<String> {
        match &self.cluster {
            ClusterAddress::ZooKeeper { quorum, base } => {
                // HBase's form with a port for each host ends with a port, which then means nothing.
                let last_port = quorum.last()?.rsplit_once(':')?.1.to_string();
                let one_port = quorum.iter().all(|server| server.ends_with(&format!(":{last_port}")));
                let host = |server: &String| server.rsplit_once(':').map(|(host, _)| host.to_string());
                let hosts: Vec<String> = match one_port {
                    true => quorum.iter().filter_map(host).collect(),
                    false => quorum.clone(),
                };
                Some(format!("{}:{last_port}:{base}", hosts.join(",")))
            }
            ClusterAddress::Registry { .. } => None,
        }
    }
}

fn server(text: &str, port: Option<u16>) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(text.to_string())
        }
        None if !text.is_empty() => match port {
            Some(port) => Ok(format!("{text}:{port}")),
            None => Err(format!("{text} has no port")),
        },
        _ => Err(format!("'{text}' is no host with a port")),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url() {
        let key = |text: &str| Address::parse(text).unwrap().cluster_key();
        assert_eq!(key("hbase://a:2182").as_deref(), Some("a:2182:/hbase"));
        assert_eq!(key("hbase://a,b,c/prod/").as_deref(), Some("a,b,c:2181:/prod"));
        assert_eq!(key("hbase://a:1,b:2/hbase").as_deref(), Some("a:1,b:2:2:/hbase"));
        assert_eq!(key("hbase+rpc://a:16000,b:16000"), None);
        assert_eq!(Address::parse("hbase://a").unwrap().to_string(), "hbase://a:2181/hbase");
        for (bad, why) in [
            ("a:2181", "expected hbase://"),
            ("http://a:2181", "unknown scheme"),
            ("hbase+rpc://a:1/hbase", "no znode"),
            ("hbase+rpc://a", "no port"),
            ("hbase://a:x", "no host"),
            ("hbase://", "no host"),
            ("hbase://a,,b", "no host"),
        ] {
            let error = Address::parse(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
