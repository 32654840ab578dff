//! Help for groups of region servers.

use super::{Help, help};

pub(super) const GROUPS_OF_SERVERS: &[Help] = &[
    help("add_rsgroup", "adds an empty group", &["add_rsgroup 'g'"]),
    help("remove_rsgroup", "removes a group without servers and tables", &["remove_rsgroup 'g'"]),
    help("rename_rsgroup", "gives a group another name", &["rename_rsgroup 'g', 'new'"]),
    help("list_rsgroups", "groups, by a pattern", &["list_rsgroups", "list_rsgroups 'a.*'"]),
    help("get_rsgroup", "servers and tables of a group", &["get_rsgroup 'default'"]),
    help("get_server_rsgroup", "the group of a server", &["get_server_rsgroup 'host:port'"]),
    help("get_table_rsgroup", "the group of a table", &["get_table_rsgroup 't'"]),
    help("get_namespace_rsgroup", "the group of new tables of a namespace", &["get_namespace_rsgroup 'ns'"]),
    help(
        "balance_rsgroup",
        "runs the balancer over the servers of a group",
        &["balance_rsgroup 'g'", "balance_rsgroup 'g', 'dry_run'", "balance_rsgroup 'g', 'ignore_rit'"],
    ),
    help(
        "move_servers_rsgroup",
        "moves servers to a group",
        &["move_servers_rsgroup 'g', ['host1:port', 'host2:port']"],
    ),
    help("move_tables_rsgroup", "moves tables to a group", &["move_tables_rsgroup 'g', ['t', 'ns:u']"]),
    help(
        "move_servers_tables_rsgroup",
        "moves servers and tables to a group",
        &["move_servers_tables_rsgroup 'g', ['host:port'], ['t', 'ns:u']"],
    ),
    help(
        "move_namespaces_rsgroup",
        "moves the tables of namespaces to a group; new tables go there, too",
        &["move_namespaces_rsgroup 'g', ['ns1', 'ns2']"],
    ),
    help(
        "move_servers_namespaces_rsgroup",
        "the same, with servers",
        &["move_servers_namespaces_rsgroup 'g', ['host:port'], ['ns1', 'ns2']"],
    ),
    help(
        "remove_servers_rsgroup",
        "takes decommissioned servers out of their groups",
        &["remove_servers_rsgroup ['host1:port', 'host2:port']"],
    ),
    help(
        "alter_rsgroup_config",
        "changes settings of a group",
        &[
            "alter_rsgroup_config 'g', {METHOD => 'set', 'key' => 'value'}",
            "alter_rsgroup_config 'g', {METHOD => 'unset', NAME => 'key'}",
        ],
    ),
    help("show_rsgroup_config", "settings of a group", &["show_rsgroup_config 'g'"]),
    help(
        "update_rsgroup_config",
        "makes the servers of a group read their settings again",
        &["update_rsgroup_config 'g'"],
    ),
];
