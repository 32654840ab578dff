//! Where groups are kept, in HBase 2.6's places and form (`RSGroupInfoManagerImpl`).
//!
//! ```text
//! hbase:rsgroup     row = name    m:i    RSGroupInfo, without PBUF
//! znode rsgroup     child = name         RSGroupInfo: HBase's master places regions by it before that table is open
//! ```
//!
//! The table is what holds. A change writes all rows together, then memory, then the znodes. The row of `default` is written
//! because HBase writes it, and is not read.
//!
//! A master that starts may find that the table cannot be opened before the WALs of the server that had it are split, which fails as
//! long as one of them cannot be read. It does not wait for that. Until then it places regions by the znodes, as HBase's master does, and
//! refuses to change groups. The last change before its start may be missing there, if it could not be published. Then some regions
//! are opened at servers of their former group, and move when the table is read. So it is with a row that makes no sense: it is named in
//! the log, and somebody has to repair it. A znode that makes no sense is named and left out; it is written anew when the table is read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use halcyon_cell::{Cell, CellType, Error, ErrorKind, Result};
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, STORE_FILE_TRACKER, TableDescriptor, TableName};
use prost::Message;
use tracing::{error, info, warn};

use super::{DEFAULT, Group, Groups, check_name, unreadable};
use crate::placement::soon;
use crate::state::{MasterState, RegionEntry, TableEntry, TableState};
use crate::{descriptors, meta, regions};

const FAMILY: &[u8] = b"m";
const QUALIFIER: &[u8] = b"i";
/// Of the region that the first start with groups makes. Always the same, so that a start that was cut off is simply done again.
const REGION_ID: u64 = 1;

/// As [`load`], when a master starts. While the table waits for the WALs of its server, does not open because of a damaged file, or has a
/// row that makes no sense, what the znodes say counts.
pub(crate) fn load_at_start(core: &MasterState) -> Result<()> {
    let loaded = load(core);
    let Err(error) = &loaded else { return Ok(()) };
    // The table can be made again. In one process nobody reads it later.
    let is_there = table_region(core).is_ok();
    let is_damaged = error.kind() == ErrorKind::Corrupt;
    if (error.kind().is_permanent() && !is_damaged) || !is_there || core.cluster.servers.is_one_process() {
        return loaded;
    }
    let Some(shown) = core.cluster.coordination.groups_last()? else { return loaded };
    let groups = of_shown(shown);
    error!(%error, groups = groups.by_name.len() + 1, "hbase:rsgroup cannot be read: groups are as their znodes say, and stay so until it can be");
    *core.groups.now.write() = groups;
    Ok(())
}

/// Reads the table if the start could not, and it can be opened now: true. And publishes what could not be published.
pub(crate) fn load_late(core: &MasterState) -> bool {
    if !core.has_groups() {
        return false;
    }
    if !core.groups.is_loaded() {
        let Ok((region, _)) = table_region(core) else { return false };
        // A procedure opens it when its server is recovered.
        return regions::is_open(core, &region)
            && read_table(core, &region)
                .inspect_err(|error| warn!(%error, "groups of servers cannot be read yet"))
                .is_ok();
    }
    if !core.groups.are_published.load(Ordering::SeqCst) {
        let _no_change = core.groups.changing.lock();
        publish(core, &core.groups_now());
    }
    false
}

/// Opens `hbase:rsgroup` and reads it; makes it if it is not there. *Blocking*.
fn load(core: &MasterState) -> Result<()> {
    if !core.tables.read().by_name.contains_key(&TableName::GROUPS) {
        create_table(core)?;
    }
    let (region, descriptor) = table_region(core)?;
    regions::ensure_open(core, &region, &descriptor)?;
    read_table(core, &region)
}

/// Reads the table, which is open.
fn read_table(core: &MasterState, region: &RegionInfo) -> Result<()> {
    let _no_change = core.groups.changing.lock();
    let at = core.server_name_of(region)?;
    let rows = soon(&*core.env.clock, || core.cluster.system_tables.scan_rows(&at, region))?;
    let groups = read(&rows)?;
    info!(groups = groups.by_name.len() + 1, "region server groups are loaded");
    core.groups.newest_ms.fetch_max(meta::newest_timestamp(&rows, i64::MAX), Ordering::SeqCst);
    *core.groups.now.write() = groups.clone();
    core.groups.loaded.store(true, Ordering::SeqCst);
    publish(core, &groups);
    Ok(())
}

/// Corrupt if a row cannot be read: without its group, tables would go to servers that are to be spared.
fn read(rows: &[Vec<Cell>]) -> Result<Groups> {
    let mut infos = Vec::with_capacity(rows.len());
    for row in rows {
        let name = String::from_utf8_lossy(row[0].row()).into_owned();
        if name == DEFAULT {
            continue;
        }
        let cell = row.iter().find(|cell| cell.family() == FAMILY && cell.qualifier() == QUALIFIER);
        let cell = cell.ok_or_else(|| unreadable(&name, &Error::corrupt("there is no m:i")))?;
        let info = pb::RsGroupInfo::decode(cell.value())
            .map_err(|error| unreadable(&name, &Error::corrupt(error.to_string())))?;
        infos.push((name, info));
    }
    of_infos(infos)
}

/// Each with the row that it is of.
fn of_infos(infos: impl IntoIterator<Item = (String, pb::RsGroupInfo)>) -> Result<Groups> {
    let mut groups = Groups::default();
    for (name, info) in infos {
        add(&mut groups, &info).map_err(|error| unreadable(&name, &error))?;
    }
    groups.check();
    Ok(groups)
}

/// What znodes say. Anybody may have written them, and no start may fail by it: those that make no sense are named and left out.
fn of_shown(infos: Vec<pb::RsGroupInfo>) -> Groups {
    let mut groups = Groups::default();
    for info in infos.iter().filter(|info| info.name != DEFAULT) {
        if let Err(error) = add(&mut groups, info) {
            let name = info.name.escape_debug();
            error!(%error, "the znode of the region server group {name} makes no sense and is left out: its tables count as those of default");
        }
    }
    groups.check();
    groups
}

/// Corrupt if it is no group, or there is one of its name.
fn add(groups: &mut Groups, info: &pb::RsGroupInfo) -> Result<()> {
    check_name(&info.name).map_err(|error| Error::corrupt(error.message))?;
    if info.name == DEFAULT {
        return Err(Error::corrupt("it names the default group, which is what is left"));
    }
    if groups.by_name.contains_key(&info.name) {
        return Err(Error::corrupt(format!("there is another group of the name {}", info.name)));
    }
    let mut group = Group::from_pb(info)?;
    // HBase writes the rows of a change together, other tools may not.
    group.servers.retain(|server| groups.with_server(server).is_none());
    group.tables.retain(|table| groups.of_table(table) == DEFAULT);
    groups.by_name.insert(info.name.clone(), group);
    Ok(())
}

/// Makes a change hold, also for the next master. The caller holds `changing`.
pub(super) fn write(core: &MasterState, new: Groups) -> Result<()> {
    new.check();
    core.groups.check_loaded()?;
    let old = core.groups_now();
    if old == new {
        return Ok(());
    }
    let (region, _) = table_region(core)?;
    let newest_ms = core.groups.newest_ms.load(Ordering::SeqCst);
    let timestamp = core.next_meta_timestamp().max(newest_ms.saturating_add(1));
    let put = |info: pb::RsGroupInfo| {
        Cell::put(info.name.as_bytes(), FAMILY, QUALIFIER, timestamp, &info.encode_to_vec())
    };
    let mut cells: Vec<Cell> = core.infos_of(&new).into_iter().map(put).collect();
    let gone = old.by_name.keys().filter(|name| !new.by_name.contains_key(*name));
    cells.extend(gone.map(|name| {
        Cell::build(name.as_bytes(), FAMILY, b"", timestamp, CellType::DeleteFamily, b"", b"", 0)
    }));
    soon(&*core.env.clock, || {
        let at = core.server_name_of(&region)?;
        core.cluster.system_tables.put_rows_together(&at, &region, cells.clone())
    })?;
    core.groups.newest_ms.fetch_max(timestamp, Ordering::SeqCst);
    *core.groups.now.write() = new.clone();
    publish(core, &new);
    Ok(())
}

/// What fails is tried again a moment later (`load_late`): the next master may have nothing but the znodes. The caller holds `changing`.
fn publish(core: &MasterState, groups: &Groups) {
    let published = core.cluster.coordination.publish_groups(&core.infos_of(groups));
    core.groups.are_published.store(published.is_ok(), Ordering::SeqCst);
    if let Err(error) = published {
        warn!(%error, "the znodes of region server groups could not be written");
    }
}

fn table_region(core: &MasterState) -> Result<(RegionInfo, Arc<TableDescriptor>)> {
    let entry = core.locked_table(&TableName::GROUPS)?;
    let region = entry.live_regions().into_iter().next();
    let region = region.ok_or_else(|| Error::corrupt("hbase:rsgroup has no region in hbase:meta"))?;
    Ok((region, entry.descriptor))
}

/// Each step may run twice; what clients can see comes last.
fn create_table(core: &MasterState) -> Result<()> {
    const SEQUENCE: u32 = 1;
    let tracker = &core.settings.store_file_tracker;
    let descriptor = TableDescriptor::groups().with(STORE_FILE_TRACKER, tracker);
    let region = RegionInfo::new(TableName::GROUPS, "".into(), "".into(), REGION_ID);
    descriptors::write(&core.env, &core.root, &descriptor, SEQUENCE)?;
    core.cluster.files.create_region_files(&region, &descriptor)?;
    core.meta_put_together(|timestamp| {
        let mut cells = meta::closed_region(&region, timestamp);
        cells.push(meta::table_state(&TableName::GROUPS, TableState::Enabled, timestamp));
        cells
    })?;
    core.tables.write().put(TableEntry {
        descriptor: Arc::new(descriptor),
        descriptor_sequence: SEQUENCE,
        state: TableState::Enabled,
        regions: BTreeMap::from([(region, RegionEntry::closed())]),
        replicas: BTreeMap::new(),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn row(name: &str, value: &[u8]) -> Vec<Cell> {
        vec![Cell::put(name.as_bytes(), FAMILY, QUALIFIER, 1, value)]
    }

    #[test]
    fn rows_that_contradict_each_other_leave_each_server_in_one_group() {
        let server = pb::ServerName { host_name: "h".to_string(), port: Some(1), start_code: None };
        let info = |name: &str| pb::RsGroupInfo {
            name: name.to_string(),
            servers: vec![server.clone()],
            ..Default::default()
        };
        let rows = ["a", "b", DEFAULT].map(|name| row(name, &info(name).encode_to_vec()));
        let groups = read(&rows).unwrap();
        assert_eq!(groups.by_name["a"].servers.len(), 1);
        assert_eq!(groups.by_name["b"].servers.len(), 0);
        assert_eq!(groups.by_name.len(), 2);
    }

    /// A znode that anybody may write kept each master from starting.
    #[test]
    fn znodes_that_make_no_sense_are_left_out() {
        let server = |host: &str, port: u32| pb::ServerName {
            host_name: host.to_string(),
            port: Some(port),
            start_code: None,
        };
        let info = |name: &str, servers: Vec<pb::ServerName>| pb::RsGroupInfo {
            name: name.to_string(),
            servers,
            ..Default::default()
        };
        let odd_table =
            pb::TableName { namespace: Bytes::from_static(b"a/b"), qualifier: Bytes::from_static(b"\xff") };
        let shown = vec![
            info("a b", vec![server("h", 1)]),
            info("", vec![]),
            info("g", vec![server("h", 2)]),
            info("g", vec![server("h", 3)]),
            info("odd", vec![server("h", 70_000)]),
            pb::RsGroupInfo { tables: vec![odd_table], ..info("t", vec![]) },
            info(DEFAULT, vec![server("h", 2)]),
            info("last", vec![server("h", 2), server("h", 4)]),
        ];
        let groups = of_shown(shown);
        let known: Vec<&str> = groups.by_name.keys().map(String::as_str).collect();
        assert_eq!(known, ["g", "last"]);
        assert_eq!(groups.by_name["g"].servers.iter().next().unwrap().port, 2);
        assert_eq!(groups.by_name["last"].servers.iter().next().unwrap().port, 4);
    }

    #[test]
    fn a_damaged_row_is_named() {
        for value in [
            &b"\xff\xff"[..],
            &pb::RsGroupInfo { name: "a b".to_string(), ..Default::default() }.encode_to_vec(),
        ] {
            let error = read(&[row("broken", value)]).unwrap_err();
            assert!(error.message().contains("row broken"), "{error}");
        }
    }
}
