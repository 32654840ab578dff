//! The commands: names, groups, what they do, how they are used.

mod groups;
mod logs;
mod operations;
mod peers;
mod quotas;

use std::fmt::Write as _;

use groups::GROUPS_OF_SERVERS;
use logs::LOGS;
use operations::OPERATIONS;
use peers::PEERS;
use quotas::QUOTAS;

/// A command as `help` knows it.
struct Help {
    name: &'static str,
    summary: &'static str,
    /// Lines that can be typed.
    usage: &'static [&'static str],
}

const fn help(name: &'static str, summary: &'static str, usage: &'static [&'static str]) -> Help {
    Help { name, summary, usage }
}

/// Other names of commands.
const ALIASES: &[(&str, &str)] = &[("alter_async", "alter"), ("desc", "describe"), ("hlog_roll", "wal_roll")];

/// Commands of HBase's shell that are not here.
const ONLY_IN_HBASE: &[&str] = &[
    "add_labels",
    "clear_auths",
    "close_region",
    "get_auths",
    "get_table",
    "grant",
    "list_labels",
    "refresh_hfiles",
    "refresh_meta",
    "revoke",
    "set_auths",
    "set_visibility",
    "snapshot_cleanup",
    "table_help",
    "trace",
    "transit_peer_sync_replication_state",
    "user_permission",
    "zk_dump",
];

const GROUPS: &[(&str, &[Help])] = &[
    ("general", GENERAL),
    ("tables", TABLES),
    ("rows", ROWS),
    ("namespaces", NAMESPACES),
    ("regions", REGIONS),
    ("servers", SERVERS),
    ("snapshots", SNAPSHOTS),
    ("switches and procedures", SWITCHES),
    ("operations", OPERATIONS),
    ("replication peers", PEERS),
    ("quotas", QUOTAS),
    ("groups of region servers", GROUPS_OF_SERVERS),
    ("logs of servers", LOGS),
];

const GENERAL: &[Help] = &[
    help("help", "commands, or how one is used", &["help", "help 'create'"]),
    help(
        "status",
        "state of the cluster",
        &["status", "status 'simple'", "status 'detailed'", "status 'tasks'"],
    ),
    help("version", "version of the cluster", &["version"]),
    help("whoami", "the user's name", &["whoami"]),
    help(
        "processlist",
        "what servers are doing",
        &["processlist", "processlist 'all'", "processlist 'host'"],
    ),
    help("exit", "ends the shell; quit too", &["exit"]),
];

const TABLES: &[Help] = &[
    help(
        "create",
        "creates a table",
        &[
            "create 't', 'f1', 'f2'",
            "create 't', {NAME => 'f', VERSIONS => 5, TTL => 86400}, MAX_FILESIZE => 10737418240",
            "create 'ns:t', 'f', SPLITS => ['10', '20']",
            "create 't', 'f', {NUMREGIONS => 16, SPLITALGO => 'HexStringSplit'}",
        ],
    ),
    help("list", "tables, by a pattern", &["list", "list 'abc.*'", "list 'ns:.*'"]),
    help("describe", "families and attributes of a table; desc too", &["describe 't'"]),
    help("exists", "whether a table exists", &["exists 't'"]),
    help(
        "alter",
        "changes a table",
        &[
            "alter 't', NAME => 'f', VERSIONS => 5",
            "alter 't', {NAME => 'g'}, {NAME => 'f', METHOD => 'delete'}",
            "alter 't', 'delete' => 'f'",
            "alter 't', MAX_FILESIZE => 10737418240",
            "alter 't', METHOD => 'table_att_unset', NAME => 'MAX_FILESIZE'",
        ],
    ),
    help("alter_status", "how many regions have the last change", &["alter_status 't'"]),
    help("enable", "opens a disabled table", &["enable 't'"]),
    help("disable", "closes a table", &["disable 't'"]),
    help("is_enabled", "whether a table is enabled", &["is_enabled 't'"]),
    help("is_disabled", "whether a table is disabled", &["is_disabled 't'"]),
    help("enable_all", "enables the tables of a pattern", &["enable_all 't.*'"]),
    help("disable_all", "disables the tables of a pattern", &["disable_all 't.*'"]),
    help("drop", "deletes a disabled table", &["drop 't'"]),
    help("drop_all", "deletes the disabled tables of a pattern", &["drop_all 't.*'"]),
    help("truncate", "deletes all rows; one region is left", &["truncate 't'"]),
    help("truncate_preserve", "deletes all rows and keeps the regions", &["truncate_preserve 't'"]),
    help("clone_table_schema", "creates a table like another one", &["clone_table_schema 't', 'new', false"]),
];

const ROWS: &[Help] = &[
    help(
        "put",
        "writes a cell",
        &[
            "put 't', 'r', 'f:q', 'value'",
            "put 't', \"r\\x00\", 'f:q', 'value', 1700000000000, {TTL => 1000}",
        ],
    ),
    help(
        "get",
        "reads a row",
        &[
            "get 't', 'r'",
            "get 't', 'r', 'f1', 'f2:q'",
            "get 't', 'r', {COLUMN => ['f:q'], VERSIONS => 3, TIMERANGE => [0, 1700000000000]}",
            "get 't', 'r', {FILTER => \"ValueFilter(=, 'binary:abc')\"}",
            "get 't', 'r', 'f:n:toLong'",
        ],
    ),
    help(
        "scan",
        "reads a range of rows",
        &[
            "scan 't'",
            "scan 't', {COLUMNS => ['f:q'], STARTROW => 'a', STOPROW => 'm', LIMIT => 10}",
            "scan 't', {ROWPREFIXFILTER => 'user-', REVERSED => true, VERSIONS => 3}",
            "scan 't', {FILTER => \"PrefixFilter('a') AND PageFilter(5)\", CACHE => 100, RAW => true}",
        ],
    ),
    help(
        "count",
        "counts rows",
        &["count 't'", "count 't', INTERVAL => 100000", "count 't', STARTROW => 'a'"],
    ),
    help(
        "delete",
        "deletes the newest version of a cell",
        &["delete 't', 'r', 'f:q'", "delete 't', 'r', 'f:q', 5"],
    ),
    help(
        "deleteall",
        "deletes a row, a family or a column",
        &[
            "deleteall 't', 'r'",
            "deleteall 't', 'r', 'f:q'",
            "deleteall 't', 'r', 'f:q', 1700000000000",
            "deleteall 't', {ROWPREFIXFILTER => 'user-'}",
        ],
    ),
    help("incr", "adds to a counter", &["incr 't', 'r', 'f:q'", "incr 't', 'r', 'f:q', 10"]),
    help("get_counter", "reads a counter", &["get_counter 't', 'r', 'f:q'"]),
    help("append", "appends to a value", &["append 't', 'r', 'f:q', 'more'"]),
];

const NAMESPACES: &[Help] = &[
    help("create_namespace", "creates a namespace", &["create_namespace 'ns', {'owner' => 'me'}"]),
    help(
        "alter_namespace",
        "changes a namespace",
        &[
            "alter_namespace 'ns', {METHOD => 'set', 'owner' => 'me'}",
            "alter_namespace 'ns', {METHOD => 'unset', NAME => 'owner'}",
        ],
    ),
    help("describe_namespace", "settings of a namespace", &["describe_namespace 'ns'"]),
    help("drop_namespace", "deletes an empty namespace", &["drop_namespace 'ns'"]),
    help("list_namespace", "namespaces", &["list_namespace", "list_namespace 'a.*'"]),
    help("list_namespace_tables", "tables of a namespace", &["list_namespace_tables 'ns'"]),
];

const REGIONS: &[Help] = &[
    help("list_regions", "regions of a table", &["list_regions 't'", "list_regions 't', 'host'"]),
    help("locate_region", "the region of a row", &["locate_region 't', 'r'"]),
    help("get_splits", "rows at which regions begin", &["get_splits 't'"]),
    help("split", "splits a table or region", &["split 't'", "split 't', 'row'", "split 'region', 'row'"]),
    help(
        "merge_region",
        "merges regions; with `true` also regions that are not neighbours",
        &["merge_region 'encoded1', 'encoded2'", "merge_region 'encoded1', 'encoded2', true"],
    ),
    help("move", "moves a region", &["move 'encoded'", "move 'encoded', 'host,port,startcode'"]),
    help("assign", "opens a region", &["assign 'region'"]),
    help("unassign", "closes a region", &["unassign 'region'", "unassign 'region', true"]),
    help("flush", "writes memstores to files", &["flush 't'", "flush 't', 'f'", "flush 'region'"]),
    help("compact", "asks for a minor compaction", &["compact 't'", "compact 't', 'f'", "compact 'region'"]),
    help("major_compact", "asks for a major compaction", &["major_compact 't'", "major_compact 't', 'f'"]),
    help("compaction_state", "whether a table is being compacted", &["compaction_state 't'"]),
    help(
        "compaction_switch",
        "turns compactions on or off",
        &["compaction_switch true", "compaction_switch false, 'host,port,startcode'"],
    ),
    help("rit", "regions in transition", &["rit"]),
    help("clear_block_cache", "drops a table's blocks from the cache", &["clear_block_cache 't'"]),
];

const SERVERS: &[Help] = &[
    help("wal_roll", "begins a new WAL file", &["wal_roll 'host,port,startcode'"]),
    help("list_deadservers", "region servers that died", &["list_deadservers"]),
    help(
        "clear_deadservers",
        "forgets dead servers; lists those that are still worked on",
        &["clear_deadservers", "clear_deadservers 'host,port,startcode'"],
    ),
    help(
        "list_decommissioned_regionservers",
        "servers that get no regions",
        &["list_decommissioned_regionservers"],
    ),
    help(
        "decommission_regionservers",
        "gives servers no more regions; with true, moves away those they have",
        &[
            "decommission_regionservers 'host,port,startcode'",
            "decommission_regionservers ['host,port,startcode'], true",
        ],
    ),
    help(
        "recommission_regionserver",
        "gives a server regions again",
        &["recommission_regionserver 'host,port,startcode'"],
    ),
    help("update_config", "makes a server read its settings again", &["update_config 'host,port,startcode'"]),
    help("update_all_config", "makes all region servers read their settings again", &["update_all_config"]),
    help(
        "clear_compaction_queues",
        "drops compactions that wait",
        &["clear_compaction_queues 'host,port,startcode', ['long', 'short']"],
    ),
];

const SNAPSHOTS: &[Help] = &[
    help(
        "snapshot",
        "takes a snapshot",
        &["snapshot 't', 'name'", "snapshot 't', 'name', {SKIP_FLUSH => true, TTL => 86400}"],
    ),
    help("list_snapshots", "completed snapshots", &["list_snapshots", "list_snapshots 'abc.*'"]),
    help("clone_snapshot", "creates a table from a snapshot", &["clone_snapshot 'name', 't'"]),
    help("restore_snapshot", "brings a disabled table back", &["restore_snapshot 'name'"]),
    help("delete_snapshot", "deletes a snapshot", &["delete_snapshot 'name'"]),
    help("delete_all_snapshot", "deletes the snapshots of a pattern", &["delete_all_snapshot 'abc.*'"]),
    help(
        "list_table_snapshots",
        "snapshots of the tables of a pattern",
        &["list_table_snapshots 't'", "list_table_snapshots 't.*', 'abc.*'"],
    ),
    help(
        "delete_table_snapshots",
        "deletes the snapshots of the tables of a pattern",
        &["delete_table_snapshots 't'", "delete_table_snapshots 't.*', 'abc.*'"],
    ),
];

const SWITCHES: &[Help] = &[
    help("balance_switch", "turns the balancer on or off", &["balance_switch true"]),
    help("balancer_enabled", "whether the balancer is on", &["balancer_enabled"]),
    help("balancer", "runs the balancer", &["balancer", "balancer 'force'"]),
    help("normalizer_switch", "turns the normalizer on or off", &["normalizer_switch true"]),
    help("normalizer_enabled", "whether the normalizer is on", &["normalizer_enabled"]),
    help("normalize", "runs the normalizer", &["normalize", "normalize 't'"]),
    help("splitormerge_switch", "turns splits or merges on or off", &["splitormerge_switch 'SPLIT', true"]),
    help("splitormerge_enabled", "whether splits or merges are on", &["splitormerge_enabled 'MERGE'"]),
    help("catalogjanitor_switch", "turns the catalog janitor on or off", &["catalogjanitor_switch true"]),
    help("catalogjanitor_enabled", "whether the catalog janitor is on", &["catalogjanitor_enabled"]),
    help("catalogjanitor_run", "runs the catalog janitor", &["catalogjanitor_run"]),
    help("cleaner_chore_switch", "turns the cleaner on or off", &["cleaner_chore_switch true"]),
    help("cleaner_chore_enabled", "whether the cleaner is on", &["cleaner_chore_enabled"]),
    help("cleaner_chore_run", "runs the cleaner", &["cleaner_chore_run"]),
    help(
        "snapshot_cleanup_switch",
        "turns deletion of old snapshots on or off",
        &["snapshot_cleanup_switch true"],
    ),
    help("snapshot_cleanup_enabled", "whether old snapshots are deleted", &["snapshot_cleanup_enabled"]),
    help("list_procedures", "procedures of the master", &["list_procedures"]),
    help("list_locks", "locks of the master", &["list_locks"]),
    help("abort_procedure", "asks a procedure to end", &["abort_procedure 12"]),
];

fn all() -> impl Iterator<Item = &'static Help> {
    GROUPS.iter().flat_map(|(_, commands)| commands.iter())
}

/// Names of all commands.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    all().map(|help| help.name)
}

/// Lines that can be typed.
#[cfg(test)]
pub(crate) fn examples() -> impl Iterator<Item = &'static str> {
    all().flat_map(|help| help.usage.iter().copied())
}

/// The command of a name or alias.
pub(crate) fn canonical(name: &str) -> Option<&'static str> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| *name);
    names().find(|known| *known == name && *known != "exit")
}

/// Whether HBase's shell has a command of this name and this one has not.
pub(crate) fn is_only_in_hbase(name: &str) -> bool {
    ONLY_IN_HBASE.contains(&name)
}

/// How a command is used.
pub(crate) fn usage(name: &str) -> Option<String> {
    let help = all().find(|help| help.name == canonical(name).unwrap_or(name))?;
    let mut text = format!("{}: {}\n", help.name, help.summary);
    for line in help.usage {
        let _ = writeln!(text, "  {line}");
    }
    Some(text.trim_end().to_string())
}

/// All commands by group.
pub(crate) fn overview() -> String {
    let mut text = String::new();
    for (group, commands) in GROUPS {
        let _ = writeln!(text, "{group}");
        for help in *commands {
            let _ = writeln!(text, "  {:<31} {}", help.name, help.summary);
        }
    }
    text.push_str("Rows and values with other bytes stand in double quotes: \"key\\x00\\xff\". help 'create' shows examples.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of commands in `docs/SHELL.md`.
    fn table() -> String {
        let mut text = String::new();
        for (group, commands) in GROUPS {
            let _ = writeln!(text, "\n### Commands: {group}\n\n| command | does | examples |\n|---|---|---|");
            for help in *commands {
                let usage: Vec<String> =
                    help.usage.iter().map(|line| format!("`{}`", line.replace('|', "\\|"))).collect();
                let _ = writeln!(text, "| `{}` | {} | {} |", help.name, help.summary, usage.join("<br>"));
            }
        }
        text
    }

    /// `HALCYON_WRITE_EXPECTED=1 cargo test -p halcyon-shell` writes the table.
    #[test]
    #[allow(clippy::disallowed_methods)] // reads and writes the documentation
    fn the_documentation_has_all_commands() {
        const BEGIN: &str = "<!-- commands: generated from programs/shell/src/help.rs -->\n";
        const END: &str = "\n<!-- end of commands -->";
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SHELL.md");
        let text = std::fs::read_to_string(file).unwrap();
        let (head, rest) = text.split_once(BEGIN).unwrap();
        let (found, tail) = rest.split_once(END).unwrap();
        if std::env::var_os("HALCYON_WRITE_EXPECTED").is_some() {
            std::fs::write(file, format!("{head}{BEGIN}{}{END}{tail}", table())).unwrap();
            return;
        }
        assert_eq!(found, table());
    }

    /// A name is here, only in HBase's shell, or another name of one that is here.
    #[test]
    fn no_command_is_listed_twice() {
        let mut all: Vec<&str> = names().chain(ONLY_IN_HBASE.iter().copied()).collect();
        all.extend(ALIASES.iter().map(|(alias, _)| *alias));
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn each_example_can_be_typed() {
        for help in all() {
            for line in help.usage {
                let commands = crate::parse::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
                assert_eq!(commands[0].name, help.name, "{line}");
            }
        }
        assert!(usage("desc").unwrap().starts_with("describe:"));
        assert!(usage("nothing").is_none() && overview().contains("major_compact"));
    }
}
