//! Help for single orders to the master, to region servers and to regions.

use super::{Help, help};

pub(super) const OPERATIONS: &[Help] = &[
    help("stop_master", "ends the active master", &["stop_master"]),
    help("stop_regionserver", "ends a region server", &["stop_regionserver 'host:port'"]),
    help("wal_roll_all", "begins a new WAL file on all region servers", &["wal_roll_all"]),
    help(
        "compact_rs",
        "asks for compactions of all regions of a server; with true, major ones",
        &["compact_rs 'host,port,startcode'", "compact_rs 'host,port', true"],
    ),
    help("list_unknownservers", "servers that regions are at and no master knows", &["list_unknownservers"]),
    help("regioninfo", "keys and names of a region", &["regioninfo 'encoded'", "regioninfo 'hbase:meta,,1'"]),
    help("truncate_region", "deletes all rows of a region", &["truncate_region 'region'"]),
    help(
        "change_sft",
        "changes how a table or family keeps track of its store files",
        &["change_sft 't', 'FILE'", "change_sft 't', 'f', 'FILE'"],
    ),
    help(
        "change_sft_all",
        "changes it for the tables of a pattern",
        &["change_sft_all 't.*', 'FILE'", "change_sft_all 'ns:.*', 'FILE'"],
    ),
    help("flush_master_store", "flushes what the master keeps for itself", &["flush_master_store"]),
    help("hbck_chore_run", "compares meta, servers and file system", &["hbck_chore_run"]),
    help("is_in_maintenance_mode", "whether the master only repairs", &["is_in_maintenance_mode"]),
    help("list_security_capabilities", "what the cluster has of security", &["list_security_capabilities"]),
];
