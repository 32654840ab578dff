//! Help for replication peers.

use super::{Help, help};

pub(super) const PEERS: &[Help] = &[
    help(
        "add_peer",
        "sends edits to another cluster from now on; of all tables, or of those that are named",
        &[
            "add_peer '1', 'host:2181:/hbase'",
            "add_peer '1', CLUSTER_KEY => 'a,b,c:2181:/hbase', STATE => 'DISABLED', SERIAL => true",
            "add_peer '1', CLUSTER_KEY => 'host:2181:/hbase', TABLE_CFS => {'t' => [], 'ns:u' => ['f', 'g']}",
            "add_peer '1', CLUSTER_KEY => 'host:2181:/hbase', NAMESPACES => ['ns'], CONFIG => {'k' => 'v'}",
            "add_peer '1', ENDPOINT_CLASSNAME => 'a.Class', DATA => {'key' => 'value'}",
        ],
    ),
    help("remove_peer", "sends a peer nothing more and forgets it", &["remove_peer '1'"]),
    help("list_peers", "peers; names after ! are left out", &["list_peers"]),
    help("enable_peer", "sends a peer its edits, first those that have waited", &["enable_peer '1'"]),
    help("disable_peer", "has the edits of a peer wait", &["disable_peer '1'"]),
    help("get_peer_config", "cluster key, endpoint and settings of a peer", &["get_peer_config '1'"]),
    help("list_peer_configs", "cluster keys, endpoints and settings of all peers", &["list_peer_configs"]),
    help(
        "update_peer_config",
        "sets settings or data of a peer; the others stay",
        &["update_peer_config '1', CONFIG => {'key' => 'value'}, DATA => {'key' => 'value'}"],
    ),
    help(
        "set_peer_replicate_all",
        "whether a peer gets all tables but those left out, or only those named",
        &["set_peer_replicate_all '1', false"],
    ),
    help(
        "set_peer_serial",
        "whether edits of a region arrive in the order of writing",
        &["set_peer_serial '1', true"],
    ),
    help(
        "set_peer_bandwidth",
        "bytes a second that each server sends at most; without a number, no limit",
        &["set_peer_bandwidth '1', 1048576", "set_peer_bandwidth '1'"],
    ),
    help(
        "set_peer_namespaces",
        "names the namespaces that a peer gets",
        &["set_peer_namespaces '1', ['a', 'b']", "set_peer_namespaces '1', []"],
    ),
    help("append_peer_namespaces", "names more namespaces", &["append_peer_namespaces '1', ['a', 'b']"]),
    help("remove_peer_namespaces", "names fewer namespaces", &["remove_peer_namespaces '1', ['a', 'b']"]),
    help(
        "set_peer_exclude_namespaces",
        "names the namespaces that are left out",
        &["set_peer_exclude_namespaces '1', ['a', 'b']", "set_peer_exclude_namespaces '1', []"],
    ),
    help(
        "append_peer_exclude_namespaces",
        "leaves more namespaces out",
        &["append_peer_exclude_namespaces '1', ['a', 'b']"],
    ),
    help(
        "remove_peer_exclude_namespaces",
        "leaves fewer namespaces out",
        &["remove_peer_exclude_namespaces '1', ['a', 'b']"],
    ),
    help(
        "set_peer_tableCFs",
        "names the tables that a peer gets, all of their families or some",
        &["set_peer_tableCFs '1', {'t' => [], 'ns:u' => ['f', 'g']}", "set_peer_tableCFs '1', {}"],
    ),
    help(
        "append_peer_tableCFs",
        "names more tables or families",
        &["append_peer_tableCFs '1', {'t' => [], 'ns:u' => ['h']}"],
    ),
    help(
        "remove_peer_tableCFs",
        "names fewer tables or families",
        &["remove_peer_tableCFs '1', {'t' => [], 'ns:u' => ['h']}"],
    ),
    help("show_peer_tableCFs", "the tables that are named for a peer", &["show_peer_tableCFs '1'"]),
    help(
        "set_peer_exclude_tableCFs",
        "names the tables or families that are left out",
        &["set_peer_exclude_tableCFs '1', {'t' => [], 'ns:u' => ['f', 'g']}"],
    ),
    help(
        "append_peer_exclude_tableCFs",
        "leaves more tables or families out",
        &["append_peer_exclude_tableCFs '1', {'t' => [], 'ns:u' => ['h']}"],
    ),
    help(
        "remove_peer_exclude_tableCFs",
        "leaves fewer tables or families out",
        &["remove_peer_exclude_tableCFs '1', {'t' => [], 'ns:u' => ['h']}"],
    ),
    help(
        "list_replicated_tables",
        "families whose edits go to peers, by a pattern of their tables",
        &["list_replicated_tables", "list_replicated_tables 'abc.*'"],
    ),
    help(
        "enable_table_replication",
        "sends the edits of all families of a table to the peers, which get the table if they lack it",
        &["enable_table_replication 't'"],
    ),
    help(
        "disable_table_replication",
        "sends the edits of a table to no peer",
        &["disable_table_replication 't'"],
    ),
    help(
        "peer_modification_switch",
        "allows or forbids changes of peers; with a second true, waits for those under way",
        &["peer_modification_switch true", "peer_modification_switch false, true"],
    ),
    help("peer_modification_enabled", "whether peers may be changed", &["peer_modification_enabled"]),
];
