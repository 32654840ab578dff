//! The region that HBase's master keeps for itself, `MasterData/data/master/store`. Nothing here works with it; it is
//! read and kept so that HBase can take over the root directory from us, and we from HBase.
//!
//! ```text
//! row = hbase:meta,,1    info:server, ...  where meta is, as in the rows of meta itself
//!                        info:halcyon      the server that we wrote there: another one in info:sn is HBase's
//! row = server name      rs:state          ONLINE: a server that may have regions and logs
//! row = int64 number     proc:d            Procedure; empty: it is over
//! row = name of a switch state:d           PBUF, a message whose field 1 is the switch
//! ```
//!
//! HBase without a row for meta does not start over a directory that has tables, and with a server there that stands
//! in no `rs` row it waits for it without end. A server of `rs` that is not alive it takes for crashed, splits its logs
//! and opens its regions elsewhere. So both rows name this server from its start on, however it ends.

use std::path::Path;

use halcyon_cell::{Cell, CellType, Error, LATEST_TIMESTAMP, Result};
use halcyon_contract::ClusterServices;
use halcyon_env::Env;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, STORE_FILE_TRACKER, ServerName, TableDescriptor, TableName, layout};
use prost::Message;
use tracing::{info, warn};

use crate::procedure::forget_records;
use crate::switches::Switches;
use crate::{descriptors, meta};

/// The number of its only region (`MasterRegion.REGION_ID`).
const REGION_ID: u64 = 1;
/// A directory that says that the region was made whole (`MasterRegion.INITIALIZED_FLAG`).
const INITIALIZED: &str = ".initialized";
const INFO: &[u8] = b"info";
const PROCEDURES: &[u8] = b"proc";
const SERVERS: &[u8] = b"rs";
const SWITCHES: &[u8] = b"state";
const VALUE: &[u8] = b"d";
/// Column of our own in the row of meta.
const OURS: &[u8] = b"halcyon";
/// How many procedures a refusal names.
const NAMED_MAX: usize = 5;

/// Procedures of HBase that need no end: what they do every start of ours does anyway (splitting logs, opening the
/// regions of enabled tables), or it can be asked for again and nothing stands half done.
const NOTHING_LEFT_OUT: &[&str] = &[
    "ServerCrashProcedure",
    "SplitWALProcedure",
    "SplitWALRemoteProcedure",
    "TransitRegionStateProcedure",
    "OpenRegionProcedure",
    "CloseRegionProcedure",
    "RecoverMetaProcedure",
    "FlushTableProcedure",
    "FlushRegionProcedure",
    "SnapshotVerifyProcedure",
    "ReopenTableRegionsProcedure",
    "ClaimReplicationQueuesProcedure",
    "AssignReplicationQueuesProcedure",
    "LogRollProcedure",
    "LogRollRemoteProcedure",
];

/// Takes the directory over, from HBase or from an earlier life. To be called before anything else is changed; may run twice.
/// In one process that is for the only server; else [`show_servers`] follows.
///
/// Invalid if HBase has procedures under way that only HBase can end; nothing is changed then that HBase would not do
/// itself at its next start.
pub(crate) fn take_over(env: &Env, root: &Path, cluster: &ClusterServices) -> Result<()> {
    let store_root = layout::master_dir(root);
    let descriptor = descriptor_of(env, &store_root)?;
    let region = RegionInfo::new(TableName::MASTER_STORE, "".into(), "".into(), REGION_ID);
    let table_dir = layout::table_dir(&store_root, &TableName::MASTER_STORE);
    if descriptors::read(env, &store_root, &TableName::MASTER_STORE)?.is_none() {
        descriptors::write(env, &store_root, &descriptor, 1)?;
    }
    env.fs.create_dir_all(&table_dir.join(INITIALIZED))?;
    let servers = if cluster.servers.is_one_process() { cluster.servers.online() } else { Vec::new() };
    cluster.files.visit_region(&store_root, &region, &descriptor, &mut |rows| {
        if let Some(hbase) = last_server_of_hbase(&rows) {
            refuse_unfinished(&rows)?;
            info!(last = hbase, "the root directory was HBase's");
            forget_records(env, root)?;
            take_switches(env, root, &rows)?;
        }
        let mut cells = without_procedures(&rows);
        if let Some(server) = servers.first() {
            cells.extend(taken_over(&rows, server, &servers));
        }
        cells.extend(switch_rows(&Switches::load(env, root)?));
        Ok(cells)
    })?;
    // What a compaction of it left.
    let archived = layout::archive_table_dir(&store_root, &TableName::MASTER_STORE);
    if env.fs.exists(&archived)? {
        env.fs.remove_dir_all(&archived)?;
    }
    Ok(())
}

/// Tells HBase where `hbase:meta` is, and which servers may have regions and WALs.
pub(crate) fn show_servers(
    env: &Env,
    root: &Path,
    cluster: &ClusterServices,
    meta: &ServerName,
    online: &[ServerName],
) -> Result<()> {
    let region = RegionInfo::new(TableName::MASTER_STORE, "".into(), "".into(), REGION_ID);
    let store_root = layout::master_dir(root);
    let descriptor = descriptor_of(env, &store_root)?;
    cluster
        .files
        .visit_region(&store_root, &region, &descriptor, &mut |rows| Ok(taken_over(&rows, meta, online)))
}

/// Brings switches that clients turned to where HBase looks for them; `take_over` does it too.
pub(crate) fn save_switches(
    env: &Env,
    root: &Path,
    cluster: &ClusterServices,
    switches: &Switches,
) -> Result<()> {
    let region = RegionInfo::new(TableName::MASTER_STORE, "".into(), "".into(), REGION_ID);
    let store_root = layout::master_dir(root);
    let descriptor = descriptor_of(env, &store_root)?;
    cluster.files.visit_region(&store_root, &region, &descriptor, &mut |_| Ok(switch_rows(switches)))
}

/// HBase may keep its store files by a list (`hbase.master.store.region.file-tracker.impl`), and says so there.
fn descriptor_of(env: &Env, store_root: &Path) -> Result<TableDescriptor> {
    let written = descriptors::read(env, store_root, &TableName::MASTER_STORE)?;
    let tracker = written.and_then(|(table, _)| table.attribute(STORE_FILE_TRACKER.as_bytes()).cloned());
    let descriptor = TableDescriptor::master_store();
    Ok(tracker.map_or(descriptor.clone(), |tracker| descriptor.with(STORE_FILE_TRACKER, tracker)))
}

fn switch_rows(switches: &Switches) -> Vec<Cell> {
    let row = |(name, on): (&str, bool)| {
        let value = [&halcyon_proto::PB_MAGIC[..], &[8, u8::from(on)]].concat();
        Cell::put(name.as_bytes(), SWITCHES, VALUE, LATEST_TIMESTAMP, &value)
    };
    switches.of_hbase().map(row).collect()
}

fn value<'a>(row: &'a [Cell], family: &[u8], qualifier: &[u8]) -> Option<&'a [u8]> {
    row.iter().find(|cell| cell.family() == family && cell.qualifier() == qualifier).map(Cell::value)
}

/// The server that HBase has put meta on since we were here last; `None` if it has not been here.
fn last_server_of_hbase(rows: &[Vec<Cell>]) -> Option<String> {
    let of_meta = rows.iter().find_map(|row| Some((row, value(row, INFO, b"sn")?)));
    let (row, server) = of_meta?;
    (value(row, INFO, OURS) != Some(server)).then(|| String::from_utf8_lossy(server).into_owned())
}

fn refuse_unfinished(rows: &[Vec<Cell>]) -> Result<()> {
    let mut unfinished = Vec::new();
    for row in rows {
        let Some(bytes) = value(row, PROCEDURES, VALUE).filter(|bytes| !bytes.is_empty()) else { continue };
        let procedure = pb::Procedure::decode(bytes)
            .map_err(|error| Error::corrupt(format!("a procedure of HBase's master: {error}")))?;
        let ended = [pb::ProcedureState::Success, pb::ProcedureState::Rolledback];
        let name = procedure.class_name.rsplit('.').next().unwrap_or_default().to_string();
        if ended.contains(&procedure.state()) {
            continue;
        }
        if NOTHING_LEFT_OUT.contains(&name.as_str()) {
            info!(id = procedure.proc_id, name, "a procedure of HBase's need not be ended");
            continue;
        }
        unfinished.push(format!("{} {name} ({})", procedure.proc_id, procedure.state().as_str_name()));
    }
    if unfinished.is_empty() {
        return Ok(());
    }
    let count = unfinished.len();
    unfinished.truncate(NAMED_MAX);
    Err(Error::invalid(format!(
        "HBase has {count} procedures under way in this root directory, which only HBase can end: {}{}. Start HBase \
         once more, let it end them, stop it in order, and start again",
        unfinished.join(", "),
        if count > NAMED_MAX { ", ..." } else { "" }
    )))
}

/// What clients turned on or off at HBase.
fn take_switches(env: &Env, root: &Path, rows: &[Vec<Cell>]) -> Result<()> {
    let mut switches = Switches::load(env, root)?;
    for row in rows {
        let Some(message) = value(row, SWITCHES, VALUE) else { continue };
        let name = String::from_utf8_lossy(row[0].row());
        match message.strip_prefix(&halcyon_proto::PB_MAGIC[..]) {
            Some([8, on]) => switches.set_of_hbase(&name, *on != 0),
            Some([]) => {} // the default, which is on
            _ => warn!(%name, "a switch of HBase's is not understood"),
        }
    }
    switches.save(env, root)
}

/// The cells that make these servers those of the directory, and `meta` the one of `hbase:meta`.
fn taken_over(rows: &[Vec<Cell>], meta_server: &ServerName, servers: &[ServerName]) -> Vec<Cell> {
    let meta = RegionInfo::meta();
    let mut cells = meta::open_region(&meta, meta_server, 1, LATEST_TIMESTAMP);
    let name = meta_server.to_string();
    cells.push(Cell::put(meta.region_name(), INFO, OURS, LATEST_TIMESTAMP, name.as_bytes()));
    let names: Vec<String> = servers.iter().map(ServerName::to_string).collect();
    let online = |name: &String| Cell::put(name.as_bytes(), SERVERS, b"state", LATEST_TIMESTAMP, b"ONLINE");
    cells.extend(names.iter().map(online));
    for row in rows {
        let key = row[0].row();
        let is_online = names.iter().any(|name| name.as_bytes() == key);
        if !is_online && row.iter().any(|cell| cell.family() == SERVERS) {
            cells.push(gone(key, SERVERS));
        }
    }
    cells
}

/// Takes the procedures of HBase's master out: none is needed any more.
fn without_procedures(rows: &[Vec<Cell>]) -> Vec<Cell> {
    let with = rows.iter().filter(|row| row.iter().any(|cell| cell.family() == PROCEDURES));
    with.map(|row| gone(row[0].row(), PROCEDURES)).collect()
}

fn gone(row: &[u8], family: &[u8]) -> Cell {
    Cell::build(row, family, b"", LATEST_TIMESTAMP, CellType::DeleteFamily, b"", b"", 0)
}
