//! Help for quotas.

use super::{Help, help};

pub(super) const QUOTAS: &[Help] = &[
    help(
        "set_quota",
        "sets or removes a quota of a user, table, namespace or of the region servers",
        &[
            "set_quota TYPE => THROTTLE, USER => 'u', LIMIT => '10req/sec'",
            "set_quota TYPE => THROTTLE, USER => 'u', TABLE => 't', LIMIT => '5M/min'",
            "set_quota TYPE => THROTTLE, TABLE => 't', THROTTLE_TYPE => WRITE, LIMIT => '1G/day'",
            "set_quota TYPE => THROTTLE, NAMESPACE => 'ns', LIMIT => '2CU/hour', SCOPE => CLUSTER",
            "set_quota TYPE => THROTTLE, REGIONSERVER => 'all', LIMIT => '30000req/sec'",
            "set_quota TYPE => THROTTLE, TABLE => 't', THROTTLE_TYPE => READ, LIMIT => NONE",
            "set_quota TYPE => THROTTLE, USER => 'u', LIMIT => NONE",
            "set_quota USER => 'u', GLOBAL_BYPASS => true",
            "set_quota TYPE => SPACE, TABLE => 't', LIMIT => '10G', POLICY => NO_INSERTS",
            "set_quota TYPE => SPACE, NAMESPACE => 'ns', LIMIT => NONE",
        ],
    ),
    help(
        "list_quotas",
        "quotas, by patterns of users, tables and namespaces",
        &[
            "list_quotas",
            "list_quotas USER => 'bob.*', TABLE => 't'",
            "list_quotas NAMESPACE => 'ns.*', LIMIT => 10",
            "list_quotas TYPE => SPACE",
        ],
    ),
    help("list_quota_table_sizes", "what tables use by the master's count", &["list_quota_table_sizes"]),
    help(
        "list_quota_snapshots",
        "what tables with space quotas use, and whether that is too much",
        &[
            "list_quota_snapshots",
            "list_quota_snapshots TABLE => 't'",
            "list_quota_snapshots NAMESPACE => 'ns', REGIONSERVER => 'host,port,startcode'",
        ],
    ),
    help(
        "list_snapshot_sizes",
        "what snapshots hold and their tables do not any more",
        &["list_snapshot_sizes"],
    ),
    help("enable_rpc_throttle", "limits calls by quotas", &["enable_rpc_throttle"]),
    help("disable_rpc_throttle", "limits no calls by quotas", &["disable_rpc_throttle"]),
    help(
        "enable_exceed_throttle_quota",
        "lets calls exceed quotas while their region server has room left",
        &["enable_exceed_throttle_quota"],
    ),
    help(
        "disable_exceed_throttle_quota",
        "lets no call exceed its quotas",
        &["disable_exceed_throttle_quota"],
    ),
];
