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
        ("hbase.coprocessor.", "only built-in coprocessors run"),
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
        ("dfs.", "there is no HDFS below"),
        ("fs.", "there is no HDFS below"),
    ];
    let known = REASONS.iter().find(|(start, _)| name.starts_with(start));
    known.map_or("it is not known here", |(_, reason)| reason)
}
