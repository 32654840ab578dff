//! Why properties of HBase have no effect.

/// Why a property of HBase does nothing here.
pub fn reason(name: &str) -> &'static str {
    const REASONS: &[(&str, &str)] = &[
        ("hbase.cluster.distributed", "standalone is one process"),
        ("hbase.zookeeper.quorum", "the endpoint that clients ask runs inside, at the bound address"),
        ("hbase.zookeeper.property.dataDir", "the endpoint that clients ask keeps nothing on disk"),
        ("hbase.zookeeper.", "there is no ZooKeeper behind the endpoint that clients ask"),
        ("zookeeper.", "there is no ZooKeeper behind the endpoint that clients ask"),
        (
            "hbase.tmp.dir",
            "temporary files are in the data directory; without hbase.rootdir the data is below it",
        ),
        ("hbase.local.dir", "temporary files are in the data directory"),
        ("hbase.unsafe.stream.capability.enforce", "the local disk has what is needed"),
        ("hbase.client.", "only clients read it"),
        ("hbase.status.", "only clients read it"),
        ("hbase.rpc.protection", "traffic is not encrypted"),
        ("hbase.rpc.", "only clients read it"),
        (
            "hbase.ipc.server.",
            "the scheduler of calls has other settings: see the properties that --print-settings shows",
        ),
        (
            "hbase.coprocessor.",
            "coprocessors have other settings: see the properties that --print-settings shows",
        ),
        ("hbase.quota.", "quotas have other settings: see the properties that --print-settings shows"),
        ("hbase.security.", "clients are not authenticated"),
        ("hbase.server.netty.tls.", "there is no TLS"),
        ("hbase.superuser", "clients are not authenticated: every user may do what a superuser may"),
        ("hbase.mob.", "mob files have other settings: see the properties that --print-settings shows"),
        ("hbase.store.file-tracker.migration.", "a migration is set at a table or a family"),
        ("hbase.bucketcache.bucket.sizes", "blocks of every size lie side by side in the cache file"),
        ("hbase.bucketcache.", "the cache file has no use for it"),
        ("hbase.rs.evictblocksonsplit", "both daughters of a split use the parent's blocks"),
        (
            "hbase.lru.blockcache.",
            "blocks that are read again, IN_MEMORY and index blocks stay without shares of their own",
        ),
        ("hfile.block.cache.policy", "there is one policy: a scan does not push out what is read again"),
        ("hbase.wal.provider", "there is one kind of log"),
        ("dfs.", "the root directory is not in HDFS"),
        ("fs.", "the root directory is not in HDFS"),
    ];
    let known = REASONS.iter().find(|(start, _)| name.starts_with(start));
    known.map_or("it is not known here", |(_, reason)| reason)
}

/// What masters and region servers of a cluster read beside the settings of a server that has all roles.
const USED_IN_CLUSTERS: &[&str] = &[
    "hbase.cluster.distributed",
    "hbase.zookeeper.quorum",
    "hbase.balancer.period",
    "hbase.regionserver.msginterval",
    "zookeeper.session.timeout",
];
/// Why other properties do nothing there, where that is another reason than in one process.
const REASONS_IN_CLUSTERS: &[(&str, &str)] = &[
    ("hbase.zookeeper.", "it is a setting of ZooKeeper itself, or its client here has no such setting"),
    ("zookeeper.", "the client of ZooKeeper here has no such setting"),
    (
        "hbase.unsafe.stream.capability.enforce",
        "a WAL on a local disk is refused unless halcyon.wal.dir.local is true",
    ),
];

/// Sentences about properties that have no effect in one process, as they are for a member of a cluster: those that it obeys are left
/// out. Each begins with the name.
pub fn in_cluster(sentences: Vec<String>) -> Vec<String> {
    let of_cluster = |sentence: String| {
        let name = sentence.split_once(" is not used").map_or("", |(name, _)| name).to_string();
        if USED_IN_CLUSTERS.contains(&&*name) {
            return None;
        }
        let other = REASONS_IN_CLUSTERS.iter().find(|(start, _)| name.starts_with(start));
        Some(other.map_or(sentence, |(_, reason)| format!("{name} is not used: {reason}")))
    };
    sentences.into_iter().filter_map(of_cluster).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A master and a region server named no property at all, so that a misspelt one was not noticed.
    #[test]
    fn a_cluster_obeys_more_and_names_the_rest() {
        let said = |name: &str| in_cluster(vec![format!("{name} is not used: {}", reason(name))]).pop();
        for name in USED_IN_CLUSTERS {
            assert_eq!(said(name), None);
        }
        let misspelt = said("hbase.regionserver.handlr.count").unwrap();
        assert_eq!(misspelt, "hbase.regionserver.handlr.count is not used: it is not known here");
        assert!(!said("hbase.zookeeper.property.dataDir").unwrap().contains("endpoint"));
    }
}
