//! Namespaces: the rows of `hbase:namespace`, where HBase 2.6 has them too.
//!
//! ```text
//! row = namespace     info:d    NamespaceDescriptor, without PBUF
//! ```
//!
//! The table is made with the cluster, as an ordinary one of one region.

use std::collections::BTreeMap;
use std::sync::Arc;

use halcyon_cell::{Cell, CellType, Error, ErrorKind, Result};
use halcyon_proto::pb;
use halcyon_schema::{
    NamespaceDescriptor, RegionInfo, STORE_FILE_TRACKER, TableDescriptor, TableName, layout,
};
use prost::Message;
use tracing::{error, info, warn};

use crate::placement::soon;
use crate::state::{MasterState, RegionEntry, TableEntry, TableState};
use crate::{descriptors, meta, regions};

const FAMILY: &[u8] = b"info";
const QUALIFIER: &[u8] = b"d";
/// The number of the region that is made with a cluster. Always the same, so that a start that was cut off is simply
/// done again.
const REGION_ID: u64 = 1;

#[derive(Clone, Default)]
pub(crate) struct Namespaces {
    by_name: BTreeMap<String, NamespaceDescriptor>,
    /// Not if the table could not be opened when the master started: then those who ask for namespaces are told to wait.
    is_loaded: bool,
    /// How often one was put or removed: what was read from the table meanwhile may be older.
    changes: u64,
}

impl Namespaces {
    pub(crate) fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    pub(crate) fn get(&self, name: &str) -> Option<&NamespaceDescriptor> {
        self.by_name.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &NamespaceDescriptor> {
        self.by_name.values()
    }

    pub(crate) fn put(&mut self, namespace: NamespaceDescriptor) {
        self.changes += 1;
        self.by_name.insert(namespace.name.clone(), namespace);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.changes += 1;
        self.by_name.remove(name);
    }
}

/// Whether a namespace always exists.
pub(crate) fn is_reserved(name: &str) -> bool {
    name == TableName::DEFAULT_NAMESPACE || name == TableName::SYSTEM_NAMESPACE
}

/// Reads the namespaces when a master starts, from a table that is made if it is not there. Without the table, which waits for the WALs
/// of its server, or has a damaged file, all but namespaces can be worked on, also what brings the table back.
pub(crate) fn load_at_start(core: &MasterState) -> Result<()> {
    let is_new = make_if_absent(core)?;
    let loaded = open_and_read(core, is_new);
    let Err(error) = &loaded else { return Ok(()) };
    // Groups of servers are named by namespaces for new tables alone, and none is made before they are loaded. Tables that are there
    // are in `hbase:rsgroup` by name. In one process nobody reads them later.
    if is_new || core.cluster.servers.is_one_process() {
        return loaded;
    }
    error!(%error, "namespaces cannot be read: they can neither be shown nor changed, and no table can be made, until they are");
    Ok(())
}

/// Reads them if the start could not, and the table is open now. A procedure opens it when its server is recovered: with an opening of
/// another thread both might choose a server.
pub(crate) fn load_late(core: &MasterState) {
    if core.namespaces.read().is_loaded {
        return;
    }
    let Ok((region, _)) = table_region(core) else { return };
    if !regions::is_open(core, &region) {
        return;
    }
    match read(core, &region, false) {
        Ok(()) => info!("namespaces are loaded"),
        Err(error) => warn!(%error, "namespaces cannot be read yet"),
    }
}

/// Makes `hbase:namespace` if it is not there; whether it was not.
fn make_if_absent(core: &MasterState) -> Result<bool> {
    let is_new = !core.tables.read().by_name.contains_key(&TableName::NAMESPACE);
    if is_new {
        create_table(core)?;
    }
    Ok(is_new)
}

fn open_and_read(core: &MasterState, is_new: bool) -> Result<()> {
    let (region, descriptor) = table_region(core)?;
    regions::ensure_open(core, &region, &descriptor)?;
    read(core, &region, is_new)
}

/// Reads the table, which is open. A new one gets those namespaces that have a directory. `default` and `hbase` always exist.
fn read(core: &MasterState, region: &RegionInfo, is_new: bool) -> Result<()> {
    let at = core.server_name_of(region)?;
    let changes = core.namespaces.read().changes;
    let mut namespaces = Namespaces { changes, ..Namespaces::default() };
    for row in soon(&*core.env.clock, || core.cluster.system_tables.scan_rows(&at, region))? {
        match decode(&row) {
            Ok(namespace) => namespaces.put(namespace),
            Err(error) => {
                warn!(row = %row[0].row().escape_ascii(), %error, "a row of hbase:namespace is left out");
            }
        }
    }
    let mut wanted = vec![TableName::DEFAULT_NAMESPACE.to_string(), TableName::SYSTEM_NAMESPACE.to_string()];
    if is_new {
        let dirs = descriptors::list(&*core.env.fs, &layout::data_dir(&core.root))?;
        let dirs = dirs.into_iter().filter(|entry| entry.is_dir).map(|entry| entry.name);
        wanted.extend(dirs.filter(|name| halcyon_schema::check_namespace_name(name.as_bytes()).is_ok()));
    }
    for name in wanted {
        core.env.fs.create_dir_all(&layout::namespace_dir(&core.root, &name))?;
        if namespaces.get(&name).is_none() {
            let namespace = NamespaceDescriptor::new(name);
            write(core, put(&namespace))?;
            namespaces.put(namespace);
        }
    }
    namespaces.is_loaded = true;
    let mut known = core.namespaces.write();
    // A procedure that an earlier master has begun may change one at any time.
    if known.changes != changes {
        return Err(Error::new(ErrorKind::Busy, "a namespace was changed while all were read"));
    }
    *known = namespaces;
    Ok(())
}

/// Writes a namespace to the table, then to memory.
pub(crate) fn change(core: &MasterState, namespace: &NamespaceDescriptor) -> Result<()> {
    write(core, put(namespace))?;
    core.namespaces.write().put(namespace.clone());
    Ok(())
}

/// Takes a namespace out of the table, then out of memory.
pub(crate) fn delete(core: &MasterState, name: &str) -> Result<()> {
    write(core, |timestamp| {
        Cell::build(name.as_bytes(), FAMILY, b"", timestamp, CellType::DeleteFamily, b"", b"", 0)
    })?;
    core.namespaces.write().remove(name);
    Ok(())
}

fn write(core: &MasterState, cell: impl FnOnce(i64) -> Cell) -> Result<()> {
    let (region, _) = table_region(core)?;
    let at = core.server_name_of(&region)?;
    core.cluster.system_tables.put_rows(&at, &region, vec![cell(core.next_meta_timestamp())])
}

fn put(namespace: &NamespaceDescriptor) -> impl FnOnce(i64) -> Cell {
    let (name, value) = (namespace.name.clone(), namespace.to_pb().encode_to_vec());
    move |timestamp| Cell::put(name.as_bytes(), FAMILY, QUALIFIER, timestamp, &value)
}

fn decode(row: &[Cell]) -> Result<NamespaceDescriptor> {
    let cell = row.iter().find(|cell| cell.family() == FAMILY && cell.qualifier() == QUALIFIER);
    let cell = cell.ok_or_else(|| Error::corrupt("there is no info:d"))?;
    let message = pb::NamespaceDescriptor::decode(cell.value());
    NamespaceDescriptor::from_pb(&message.map_err(|error| Error::corrupt(error.to_string()))?)
}

fn table_region(core: &MasterState) -> Result<(RegionInfo, Arc<TableDescriptor>)> {
    let entry = core.locked_table(&TableName::NAMESPACE)?;
    let region = entry.live_regions().into_iter().next();
    let region = region.ok_or_else(|| Error::corrupt("hbase:namespace has no region in hbase:meta"))?;
    Ok((region, entry.descriptor))
}

/// Each step may run twice; what clients can see comes last.
fn create_table(core: &MasterState) -> Result<()> {
    const SEQUENCE: u32 = 1;
    let tracker = &core.settings.store_file_tracker;
    let descriptor = TableDescriptor::namespaces().with(STORE_FILE_TRACKER, tracker);
    let region = RegionInfo::new(TableName::NAMESPACE, "".into(), "".into(), REGION_ID);
    descriptors::write(&core.env, &core.root, &descriptor, SEQUENCE)?;
    core.cluster.files.create_region_files(&region, &descriptor)?;
    core.meta_put_together(|timestamp| {
        let mut cells = meta::closed_region(&region, timestamp);
        cells.push(meta::table_state(&TableName::NAMESPACE, TableState::Enabled, timestamp));
        cells
    })?;
    core.tables.write().put(TableEntry {
        replicas: BTreeMap::new(),
        descriptor: Arc::new(descriptor),
        descriptor_sequence: SEQUENCE,
        state: TableState::Enabled,
        regions: BTreeMap::from([(region, RegionEntry::closed())]),
    });
    Ok(())
}
