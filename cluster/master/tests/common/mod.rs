//! A region server that is not one, and a client without a network.
//!
//! It is one piece because the server, its files and its tables belong to one double: each test takes all of them.
#![allow(unreachable_pub)] // a module of the test program
#![allow(clippy::disallowed_methods)] // threads and clocks of the tests themselves

mod one_server;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use halcyon_cell::{Cell, CellComparator, CellType, Error, Result};
use halcyon_contract::{
    Announce, CloseRegionRequest, ClusterServices, FlushRegionRequest, OpenRegionRequest, OpenRegionResponse,
    PeerDescription, QuotaEnforcement, RegionFiles, RegionInfoRequest, RegionInfoResponse, RegionServerApi,
    ReplicationSources, ServerReport, SplitWal, SystemTables, WalFiles,
};
use halcyon_coord::ClientMetaService;
use halcyon_env::{Clock, Env, ReadableFile, SystemClock};
use halcyon_master::{HbckService, Master, MasterService, MasterSettings};
use halcyon_proto::pb;
use halcyon_rpc::{Call, Connection, Outcome, RpcError, Service};
use halcyon_schema::{
    ClusterId, FamilyDescriptor, MobFileRefs, RegionInfo, ServerName, TableDescriptor, TableName, layout,
};
use parking_lot::Mutex;
use prost::Message;

use one_server::OneServer;

pub const ROOT: &str = "/hbase";

/// Keeps meta in one file, region directories as a region server would, and what is open in memory.
pub struct FakeRegionServer {
    env: Env,
    root: PathBuf,
    start_code: i64,
    online: Mutex<BTreeMap<String, (RegionInfo, TableDescriptor)>>,
    /// Cells of regions that hold some, by encoded name.
    cells: Mutex<BTreeMap<String, Vec<Cell>>>,
    files: AtomicU64,
    /// What the server does instead of its work, by the name of the method.
    faults: Mutex<BTreeMap<&'static str, ServerFault>>,
    /// Methods that have failed as `faults` says.
    failed: Mutex<BTreeSet<&'static str>>,
    /// What it reports of the store files of regions, in MB, by encoded name.
    sizes: Mutex<BTreeMap<String, u32>>,
    /// How often it was told to read quotas.
    pub quota_reloads: AtomicUsize,
    /// Peers to which it sends.
    peers: Mutex<BTreeMap<String, PeerDescription>>,
    /// How it was told of peers.
    pub peers_told: Mutex<Vec<&'static str>>,
    /// HFiles of bulk loads that peers have still to copy.
    pub needed_hfiles: Mutex<Vec<String>>,
    /// So many ranges of each region have serial peers.
    pub sent_ranges: Mutex<usize>,
    /// Clusters that can be found, by their cluster key.
    pub clusters: Mutex<BTreeMap<String, ClusterId>>,
    /// Regions whose store files it was told to list.
    pub listed: Mutex<Vec<String>>,
    /// What store files refer to; `None`: one of them does not say.
    pub mob_refs: Mutex<Option<MobFileRefs>>,
    /// Is called once, when a region is closed.
    pub during_close: Mutex<Option<DuringClose>>,
}

type DuringClose = Box<dyn FnOnce(&RegionInfo) + Send>;

/// How a method of the region server fails as long as the fault is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ServerFault {
    /// An error that may go away.
    Fails,
    /// An error that will not go away.
    Refuses,
    /// It does not answer.
    Hangs,
    /// It does its work, and the answer is lost, once.
    AnswerLost,
    /// An assertion fails.
    Panics,
}

const META: &str = "1588230740";

impl FakeRegionServer {
    pub fn new(env: Env, root: &Path, start_code: i64) -> Arc<FakeRegionServer> {
        let mut regions = BTreeMap::new();
        for entry in env.fs.list(root).unwrap() {
            let Some(name) = entry.name.strip_prefix("fake-") else { continue };
            let bytes = Bytes::from(env.fs.read(&root.join(&entry.name)).unwrap());
            let (mut cells, mut at) = (Vec::new(), 0);
            while at < bytes.len() {
                let len = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
                cells.push(Cell::parse(bytes.slice(at + 4..at + 4 + len), 0).unwrap());
                at += 4 + len;
            }
            regions.insert(name.to_string(), cells);
        }
        Arc::new(FakeRegionServer {
            env,
            root: root.to_path_buf(),
            start_code,
            online: Mutex::default(),
            cells: Mutex::new(regions),
            files: AtomicU64::new(1),
            faults: Mutex::default(),
            failed: Mutex::default(),
            sizes: Mutex::default(),
            quota_reloads: AtomicUsize::new(0),
            peers: Mutex::default(),
            peers_told: Mutex::default(),
            needed_hfiles: Mutex::default(),
            sent_ranges: Mutex::default(),
            clusters: Mutex::default(),
            listed: Mutex::default(),
            mob_refs: Mutex::default(),
            during_close: Mutex::default(),
        })
    }

    pub fn set_fault(&self, method: &'static str, fault: Option<ServerFault>) {
        match fault {
            Some(fault) => drop(self.faults.lock().insert(method, fault)),
            None => drop(self.faults.lock().remove(method)),
        }
    }

    /// Whether [`ServerFault::Fails`] took effect.
    pub fn has_failed(&self, method: &'static str) -> bool {
        self.failed.lock().contains(method)
    }

    fn fault(&self, method: &'static str) -> Result<()> {
        loop {
            match self.faults.lock().get(method) {
                None | Some(ServerFault::AnswerLost) => return Ok(()),
                Some(ServerFault::Fails) => {
                    self.failed.lock().insert(method);
                    return Err(Error::new(halcyon_cell::ErrorKind::Io, format!("{method} fails")));
                }
                Some(ServerFault::Refuses) => return Err(Error::invalid(format!("{method} refuses"))),
                Some(ServerFault::Panics) => panic!("{method} does not hold"),
                Some(ServerFault::Hangs) => {}
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn answer(&self, method: &'static str) -> Result<()> {
        let mut faults = self.faults.lock();
        if faults.get(method) != Some(&ServerFault::AnswerLost) {
            return Ok(());
        }
        faults.remove(method);
        Err(Error::new(halcyon_cell::ErrorKind::Io, format!("{method}: no answer")))
    }

    pub fn online_names(&self) -> BTreeSet<String> {
        self.online.lock().keys().cloned().collect()
    }

    pub fn descriptor_of(&self, encoded_name: &str) -> Option<TableDescriptor> {
        self.online.lock().get(encoded_name).map(|(_, table)| table.clone())
    }

    /// Value of a column of a row in meta.
    pub fn meta_value(&self, row: &[u8], family: &str, qualifier: &str) -> Option<Vec<u8>> {
        let rows = self.meta_rows();
        let row = rows.into_iter().find(|cells| cells[0].row() == row)?;
        let mut cells = row.iter();
        let cell =
            cells.find(|c| c.family() == family.as_bytes() && c.qualifier() == qualifier.as_bytes())?;
        Some(cell.value().to_vec())
    }
}

impl FakeRegionServer {
    fn has_references(&self, region: &RegionInfo) -> bool {
        self.files(region).iter().any(|file| file.contains('.'))
    }

    /// Names of a region's store files, with their families.
    pub fn files(&self, region: &RegionInfo) -> Vec<String> {
        let dir = region.dir(&self.root);
        let families = self.env.fs.list(&dir).unwrap().into_iter().filter(|entry| entry.is_dir);
        let of_family = |family: &str| self.env.fs.list(&dir.join(family)).unwrap();
        families
            .flat_map(|family| {
                of_family(&family.name).into_iter().map(move |file| (family.name.clone(), file))
            })
            .map(|(family, file)| format!("{family}/{}", file.name))
            .collect()
    }

    /// References of every child to every file of every parent, which must be closed.
    fn refer(&self, table: &TableDescriptor, parents: &[RegionInfo], children: &[RegionInfo]) -> Result<()> {
        for child in children {
            let dir = child.dir(&self.root);
            if self.env.fs.exists(&dir).unwrap() {
                return Err(Error::new(halcyon_cell::ErrorKind::Io, format!("{} is there", dir.display())));
            }
            self.create_region_files(child, table)?;
            if table.attribute(b"TORN").is_some() {
                return Err(Error::corrupt("a file of this table cannot be read"));
            }
        }
        for parent in parents {
            assert!(!self.online_names().contains(parent.encoded_name()), "{parent} is not closed");
            for file in self.files(parent) {
                assert!(!file.contains('.'), "{file} of {parent} is a reference");
                for child in children {
                    let name = format!("{file}.{}", parent.encoded_name());
                    let reference = pb::Reference { splitkey: Bytes::new(), range: 0 }.encode_to_vec();
                    let bytes = [&b"PBUF"[..], &reference].concat();
                    self.env.fs.put_new(&child.dir(&self.root).join(name), &bytes)?;
                }
            }
        }
        Ok(())
    }

    /// What a compaction does: files of the region's own take the place of its references.
    pub fn compact(&self, region: &RegionInfo) {
        for file in self.files(region) {
            if let Some((own, _)) = file.split_once('.') {
                let dir = region.dir(&self.root);
                self.env.fs.replace(&dir.join(own), b"cells").unwrap();
                let reference = dir.join(&file);
                self.env.fs.remove_file(&reference).unwrap();
                self.env.fs.sync_dir(reference.parent().unwrap()).unwrap();
            }
        }
    }
}

fn hidden(cell: &Cell, all: &[Cell]) -> bool {
    all.iter().any(|delete| {
        let kind = delete.cell_type();
        kind.is_delete()
            && delete.row() == cell.row()
            && delete.family() == cell.family()
            && delete.timestamp() >= cell.timestamp()
            && (kind == CellType::DeleteFamily || delete.qualifier() == cell.qualifier())
    })
}

impl RegionServerApi for FakeRegionServer {
    fn server_name(&self) -> ServerName {
        ServerName::new("127.0.0.1", 16020, self.start_code)
    }

    fn open_region(
        &self,
        request: &OpenRegionRequest,
        announce: &Announce<'_>,
    ) -> Result<OpenRegionResponse> {
        let (region, table) = (&request.region, &*request.table);
        if !region.table().is_system() {
            self.fault("open_region")?;
        }
        let dir = region.dir(&self.root);
        if !self.env.fs.exists(&dir.join(".regioninfo")).unwrap() {
            return Err(Error::invalid(format!("{} has no files", dir.display())));
        }
        for family in table.families() {
            self.env.fs.create_dir_all(&dir.join(&*family.name_str()))?; // of one that was added
            if table.attribute(b"POISON").is_some() {
                return Err(Error::invalid("this table cannot be opened"));
            }
        }
        let mut online = self.online.lock();
        online.entry(region.encoded_name().to_string()).or_insert_with(|| (region.clone(), table.clone()));
        // A number that does not grow: the master must see to it.
        drop(online);
        announce(2)?;
        Ok(OpenRegionResponse { open_seq_num: 2 })
    }

    /// A file with the next number, as a real server makes one.
    fn roll_wals(&self) -> Result<()> {
        let dir = self.root.join("WALs").join(self.server_name().to_string());
        self.env.fs.create_dir_all(&dir)?;
        let number = 100 + self.env.fs.list(&dir)?.len();
        self.env
            .fs
            .replace(&dir.join(format!("127.0.0.1%2C16020%2C{}.{number}", self.start_code)), b"edits")?;
        Ok(())
    }

    fn close_region(&self, request: &CloseRegionRequest) -> Result<()> {
        if let Some(during_close) = self.during_close.lock().take() {
            during_close(&request.region);
        }
        self.online.lock().remove(request.region.encoded_name());
        Ok(())
    }

    fn flush_region(&self, request: &FlushRegionRequest) -> Result<()> {
        self.fault("flush_region")?;
        let Some((region, table)) = self.online.lock().get(request.region.encoded_name()).cloned() else {
            return Err(Error::new(halcyon_cell::ErrorKind::Moved, "not online"));
        };
        for family in table.families() {
            if request.families.is_empty() || request.families.contains(family.name()) {
                // What was flushed once leaves nothing to flush.
                let dir = region.dir(&self.root).join(&*family.name_str());
                if !self.env.fs.list(&dir)?.is_empty() {
                    continue;
                }
                let path = dir.join(format!("{:032x}", self.files.fetch_add(1, Ordering::SeqCst)));
                self.env.fs.replace(&path, b"cells")?;
            }
        }
        Ok(())
    }

    fn region_info(&self, request: &RegionInfoRequest) -> Result<RegionInfoResponse> {
        self.fault("region_info")?;
        let Some((region, table)) = self.online.lock().get(request.region.encoded_name()).cloned() else {
            return Err(Error::new(halcyon_cell::ErrorKind::Moved, "not online"));
        };
        let whole = !self.has_references(&region);
        let row = [region.start_key(), &b"0m"[..]].concat();
        Ok(RegionInfoResponse {
            splittable: whole && table.split_enabled(),
            mergeable: whole && table.merge_enabled(),
            best_split_row: request.best_split_row.then(|| row.into()),
        })
    }

    fn online_regions(&self) -> Result<Vec<RegionInfo>> {
        Ok(self.online.lock().values().map(|(region, _)| region.clone()).collect())
    }

    fn split_wal(&self, wal: &Path) -> Result<SplitWal> {
        panic!("{}: the only server has split the WALs", wal.display());
    }
}

impl QuotaEnforcement for FakeRegionServer {
    fn reload(&self) {
        self.quota_reloads.fetch_add(1, Ordering::SeqCst);
    }

    /// As the sizes that are reported, which are MiB.
    fn region_sizes(&self) -> Vec<(RegionInfo, u64)> {
        let sizes = self.sizes.lock();
        let online = self.online.lock();
        let counted = online.values().filter(|(region, _)| !region.table().is_system());
        let size = |region: &RegionInfo| sizes.get(region.encoded_name()).copied().unwrap_or(0);
        counted.map(|(region, _)| (region.clone(), u64::from(size(region)) << 20)).collect()
    }
}

impl FakeRegionServer {
    pub fn newest_report(&self) -> ServerReport {
        let specifier =
            |region: &RegionInfo| pb::RegionSpecifier { r#type: 1, value: region.region_name().clone() };
        let load = |(region, _): &(RegionInfo, TableDescriptor)| pb::RegionLoad {
            region_specifier: specifier(region),
            last_major_compaction_ts: Some(77),
            storefile_size_mb: Some(self.sizes.lock().get(region.encoded_name()).copied().unwrap_or(0)),
            ..Default::default()
        };
        let region_loads = self.online.lock().values().map(load).collect();
        let load = pb::ServerLoad { region_loads, ..Default::default() };
        ServerReport { server: self.server_name(), load }
    }
}

impl RegionFiles for FakeRegionServer {
    fn create_region_files(&self, region: &RegionInfo, table: &TableDescriptor) -> Result<()> {
        self.fault("create_region_files")?;
        let dir = region.dir(&self.root);
        for family in table.families() {
            self.env.fs.create_dir_all(&dir.join(&*family.name_str()))?;
        }
        Ok(self.env.fs.replace(&dir.join(".regioninfo"), &region.encode_file())?)
    }

    fn split_region_files(
        &self,
        table: &TableDescriptor,
        parent: &RegionInfo,
        daughters: &[RegionInfo; 2],
    ) -> Result<()> {
        self.refer(table, std::slice::from_ref(parent), daughters)
    }

    fn merge_region_files(
        &self,
        table: &TableDescriptor,
        parents: &[RegionInfo],
        merged: &RegionInfo,
    ) -> Result<()> {
        self.refer(table, parents, std::slice::from_ref(merged))
    }

    fn copy_file(&self, from: &dyn ReadableFile, to: &Path) -> Result<()> {
        let mut bytes = vec![0; from.len()? as usize];
        from.read_exact_at(&mut bytes, 0)?;
        Ok(self.env.fs.replace(to, &bytes)?)
    }

    fn make_link(&self, link: &Path) -> Result<()> {
        Ok(self.env.fs.replace(link, b"")?)
    }

    fn copy_rows(&self, _: &TableDescriptor, _: &RegionInfo, from: &Path, to: &Path) -> Result<()> {
        let bytes = self.env.fs.read(from)?;
        Ok(self.env.fs.replace(to, &bytes)?)
    }

    fn list_store_files(&self, region: &RegionInfo, _: &TableDescriptor) -> Result<()> {
        self.fault("list_store_files")?;
        self.listed.lock().push(region.encoded_name().to_string());
        Ok(())
    }

    /// Every file is listed here, but for those that begin with a zero.
    fn listed_store_files(
        &self,
        region: &RegionInfo,
        table: &TableDescriptor,
        family: &FamilyDescriptor,
    ) -> Result<Option<Vec<(String, u64)>>> {
        if !table.store_file_tracker(family)?.loads_list() {
            return Ok(None);
        }
        let files = self.env.fs.list(&region.dir(&self.root).join(&*family.name_str()))?.into_iter();
        let files = files.filter(|file| !file.is_dir && !file.name.starts_with(['.', '0']));
        Ok(Some(files.map(|file| (file.name, file.len)).collect()))
    }

    fn has_unplaced_load(&self, region: &RegionInfo) -> Result<bool> {
        let entries = self.env.fs.list(&region.dir(&self.root))?;
        Ok(entries.iter().any(|entry| entry.is_dir && entry.name.starts_with(".bulk-")))
    }

    fn mob_references(
        &self,
        _: &RegionInfo,
        _: &TableDescriptor,
        _: &FamilyDescriptor,
    ) -> Result<Option<MobFileRefs>> {
        self.fault("mob_references")?;
        Ok(self.mob_refs.lock().clone())
    }

    fn made_ms(&self, mob_file: &Path) -> Result<Option<i64>> {
        Ok(self.env.fs.exists(mob_file)?.then_some(0))
    }

    fn visit_region(
        &self,
        _: &Path,
        region: &RegionInfo,
        _: &TableDescriptor,
        visit: &mut dyn FnMut(Vec<Vec<Cell>>) -> Result<Vec<Cell>>,
    ) -> Result<()> {
        let rows = self.scan_rows(region.encoded_name())?;
        // One clock for all that has to be later than what is there.
        let last = rows.iter().flatten().map(Cell::timestamp).max().unwrap_or(0);
        let cells = visit(rows)?;
        self.put_rows(region.encoded_name(), cells.iter().map(|cell| cell.with_timestamp(last + 1)).collect())
    }
}

impl SystemTables for FakeRegionServer {
    fn meta_put(&self, _at: &ServerName, cells: Vec<Cell>) -> Result<()> {
        self.put_rows(META, cells)
    }

    fn meta_put_together(&self, _at: &ServerName, cells: Vec<Cell>) -> Result<()> {
        self.fault("meta_put_together")?;
        self.put_rows(META, cells)?;
        self.answer("meta_put_together")
    }

    fn meta_scan(&self, _at: &ServerName, start_row: &[u8], stop_row: &[u8]) -> Result<Vec<Vec<Cell>>> {
        self.fault("meta_scan")
            .map_err(|error| Error::new(halcyon_cell::ErrorKind::Busy, error.message()))?;
        let mut rows = self.scan_rows(META)?;
        if !start_row.is_empty() {
            // Of one table, or of one namespace.
            let table = start_row.strip_suffix(b",,").expect("from the first region of a table");
            let namespace = table.strip_suffix(b":");
            assert_eq!(stop_row, namespace.map_or([table, b" ,,"].concat(), |it| [it, b";,,"].concat()));
            let is_of_table = |row: &[u8]| {
                row.starts_with(table) && (namespace.is_some() || row.get(table.len()) == Some(&b','))
            };
            rows.retain(|cells| is_of_table(cells[0].row()));
        }
        Ok(rows)
    }

    fn put_rows(&self, _at: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        self.put_rows(region.encoded_name(), cells)
    }

    fn put_rows_together(&self, _: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        self.put_rows(region.encoded_name(), cells)
    }

    fn scan_rows(&self, _at: &ServerName, region: &RegionInfo) -> Result<Vec<Vec<Cell>>> {
        self.scan_rows(region.encoded_name())
    }
}

impl FakeRegionServer {
    pub fn meta_put(&self, cells: Vec<Cell>) -> Result<()> {
        self.put_rows(META, cells)
    }

    /// All rows of meta.
    pub fn meta_rows(&self) -> Vec<Vec<Cell>> {
        self.scan_rows(META).unwrap()
    }

    pub fn put_rows(&self, encoded_name: &str, cells: Vec<Cell>) -> Result<()> {
        let mut all = self.cells.lock();
        let mut changed = all.get(encoded_name).cloned().unwrap_or_default();
        for cell in cells {
            assert!(
                cell.cell_type().is_delete() || !hidden(&cell, &changed),
                "{cell:?} is hidden by a delete as soon as it is written"
            );
            changed.push(cell);
        }
        let mut bytes = Vec::new();
        for cell in &changed {
            bytes.extend_from_slice(&(cell.bytes().len() as u32).to_be_bytes());
            bytes.extend_from_slice(cell.bytes());
        }
        self.env.fs.replace(&self.root.join(format!("fake-{encoded_name}")), &bytes)?;
        all.insert(encoded_name.to_string(), changed);
        Ok(())
    }

    pub fn scan_rows(&self, encoded_name: &str) -> Result<Vec<Vec<Cell>>> {
        let all = self.cells.lock().get(encoded_name).cloned().unwrap_or_default();
        let shown = all.iter().filter(|cell| !cell.cell_type().is_delete() && !hidden(cell, &all));
        let mut shown: Vec<Cell> = shown.cloned().collect();
        let order = if encoded_name == META { CellComparator::Meta } else { CellComparator::Default };
        shown.sort_by(|left, right| order.compare(left.get(), right.get()));
        shown.dedup_by(|next, kept| {
            next.row() == kept.row() && next.family() == kept.family() && next.qualifier() == kept.qualifier()
        });
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        for cell in shown {
            match rows.last_mut().filter(|row| row[0].row() == cell.row()) {
                Some(row) => row.push(cell),
                None => rows.push(vec![cell]),
            }
        }
        Ok(rows)
    }
}

/// What a master needs, all of it from the double.
impl FakeRegionServer {
    fn queue(&self, peer_id: &str) -> PathBuf {
        layout::replication_queues_dir(&self.root).join(peer_id)
    }

    /// The peers to which the server sends, and of which it knows what they have got.
    pub fn peers(&self) -> Vec<PeerDescription> {
        let peers = self.peers.lock();
        peers.values().filter(|peer| self.env.fs.exists(&self.queue(&peer.id)).unwrap()).cloned().collect()
    }
}

impl ReplicationSources for FakeRegionServer {
    fn begin_queue(&self, peer_id: &str) -> Result<()> {
        self.env.fs.create_dir_all(&layout::replication_queues_dir(&self.root))?;
        Ok(self.env.fs.replace(&self.queue(peer_id), b"")?)
    }

    fn peer_added(&self, peer: &PeerDescription) -> Result<()> {
        self.peers_told.lock().push("added");
        self.fault("peer_added")?;
        self.peer_changed(peer)
    }

    fn peer_found(&self, peer: &PeerDescription) -> Result<()> {
        self.peers_told.lock().push("found");
        self.peer_changed(peer)
    }

    fn peer_changed(&self, peer: &PeerDescription) -> Result<()> {
        self.peers.lock().insert(peer.id.clone(), peer.clone());
        Ok(())
    }

    fn peer_removed(&self, peer_id: &str) -> Result<()> {
        self.peers.lock().remove(peer_id);
        let removed = self.env.fs.remove_file(&self.queue(peer_id));
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(self.env.fs.sync_dir(&layout::replication_queues_dir(&self.root))?),
        }
    }

    fn needed_wals(
        &self,
        peer_ids: &[String],
        names: &[String],
    ) -> Result<std::collections::HashSet<String>> {
        assert!(!peer_ids.is_empty(), "there are peers to ask for");
        Ok(names.iter().filter(|name| name.contains("needed")).cloned().collect())
    }

    fn needed_hfiles(&self, peer_ids: &[String]) -> Result<Vec<String>> {
        assert!(!peer_ids.is_empty(), "there are peers to ask for");
        Ok(self.needed_hfiles.lock().clone())
    }

    fn sent_ranges(
        &self,
        peer_ids: &[String],
        regions: &[halcyon_schema::RegionBarriers],
    ) -> Result<Vec<usize>> {
        let limit = if peer_ids.is_empty() { usize::MAX } else { *self.sent_ranges.lock() };
        Ok(regions.iter().map(|region| region.ranges.len().min(limit)).collect())
    }
}

pub fn services(server: &Arc<FakeRegionServer>) -> ClusterServices {
    ClusterServices {
        servers: Arc::new(OneServer(server.clone())),
        files: server.clone(),
        system_tables: server.clone(),
        wals: WalFiles { env: server.env.clone(), root: server.root.clone(), is_root: true },
        replication: Some(server.clone()),
        quotas: Some(server.clone()),
        coordination: Arc::new(OneServer(server.clone())),
    }
}

/// A master, its services and its region server.
pub struct Cluster {
    pub hbck: HbckService,
    pub env: Env,
    pub root: PathBuf,
    pub server: Arc<FakeRegionServer>,
    pub master: Arc<Master>,
    pub service: MasterService,
    pub registry: ClientMetaService<Master>,
}

pub fn settings() -> MasterSettings {
    let mut settings = MasterSettings::new(ServerName::new("127.0.0.1", 16000, 1));
    settings.retry_pause = Duration::from_millis(1);
    settings.retry_pause_max = Duration::from_millis(20);
    settings
}

impl Cluster {
    pub fn start(env: Env, root: &Path, start_code: i64) -> Result<Cluster> {
        Cluster::start_with(env, root, start_code, settings())
    }

    pub fn start_with(env: Env, root: &Path, start_code: i64, settings: MasterSettings) -> Result<Cluster> {
        Cluster::start_over(env, root, start_code, settings, None)
    }

    /// With a root directory of WALs of their own.
    pub fn start_over(
        env: Env,
        root: &Path,
        start_code: i64,
        settings: MasterSettings,
        wals: Option<WalFiles>,
    ) -> Result<Cluster> {
        env.fs.create_dir_all(root)?;
        let server = FakeRegionServer::new(env.clone(), root, start_code);
        let services = services(&server);
        let services = ClusterServices { wals: wals.unwrap_or(services.wals), ..services };
        let master = Master::start(env.clone(), root, settings, services)?;
        let service = MasterService::new(master.clone())?;
        let registry = ClientMetaService::new(master.clone(), 10);
        let hbck = HbckService::new(master.clone())?;
        Ok(Cluster { hbck, env, root: root.to_path_buf(), server, master, service, registry })
    }

    /// A cluster on a simulated disk, with the machine's clock.
    pub fn simulated() -> (halcyon_env::sim::SimFileSystem, Cluster) {
        let sim = halcyon_env::sim::SimFileSystem::new();
        let cluster = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 1).unwrap();
        (sim, cluster)
    }

    pub fn call<R: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> std::result::Result<R, RpcError> {
        answer(&self.service, method, request)
    }

    /// Submits a procedure and waits until it has ended.
    pub fn run(&self, method: &str, request: &impl Message) -> std::result::Result<u64, RpcError> {
        let id = self.submit(method, request)?;
        self.wait(id).map(|()| id)
    }

    /// The number of a procedure that was taken; a refusal is an error whichever way it comes.
    pub fn submit(&self, method: &str, request: &impl Message) -> std::result::Result<u64, RpcError> {
        // Every response but one has its number in field 1.
        let proc_id = match method {
            "Snapshot" => self.call::<pb::SnapshotResponse>(method, request)?.proc_id() as u64,
            _ => self.call::<pb::CreateTableResponse>(method, request)?.proc_id(),
        };
        match self.result(proc_id)? {
            Some(Err(error)) => Err(error),
            _ => Ok(proc_id),
        }
    }

    pub fn wait(&self, id: u64) -> std::result::Result<(), RpcError> {
        let begin = Instant::now();
        loop {
            if let Some(outcome) = self.result(id)? {
                return outcome;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "procedure {id} does not end");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// How a procedure ended; `None` while it is under way.
    fn result(
        &self,
        proc_id: u64,
    ) -> std::result::Result<Option<std::result::Result<(), RpcError>>, RpcError> {
        let result: pb::GetProcedureResultResponse =
            self.call("getProcedureResult", &pb::GetProcedureResultRequest { proc_id })?;
        match result.state() {
            pb::get_procedure_result_response::State::NotFound => panic!("procedure {proc_id} is not known"),
            pb::get_procedure_result_response::State::Running => return Ok(None),
            pb::get_procedure_result_response::State::Finished => {}
        }
        let Some(exception) = result.exception.and_then(|e| e.generic_exception) else {
            return Ok(Some(Ok(())));
        };
        let mut error = RpcError::do_not_retry(exception.message.unwrap_or_default());
        error.class = exception.class_name.unwrap_or_default().into();
        Ok(Some(Err(error)))
    }

    /// Whether a procedure is under way.
    pub fn is_busy(&self) -> bool {
        let all: pb::GetProceduresResponse =
            self.call("GetProcedures", &pb::GetProceduresRequest {}).unwrap();
        let ended =
            |p: &pb::Procedure| matches!(p.state(), pb::ProcedureState::Success | pb::ProcedureState::Failed);
        !all.procedure.iter().all(ended)
    }

    /// Waits until no procedure is under way.
    pub fn quiet(&self) {
        let begin = Instant::now();
        while self.is_busy() {
            assert!(begin.elapsed() < Duration::from_secs(30), "procedures do not end");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Sends a request and does not wait for its answer.
    pub fn call_and_leave(&self, method: &str, request: &impl Message) {
        drop(self.service.call(a_call(method, request)));
    }

    pub fn state(&self, table: &str) -> Option<pb::table_state::State> {
        let request = pb::GetTableStateRequest { table_name: name(table).to_pb() };
        let response: std::result::Result<pb::GetTableStateResponse, _> =
            self.call("GetTableState", &request);
        response.ok().map(|response| response.table_state.state())
    }

    pub fn descriptor(&self, table: &str) -> Option<TableDescriptor> {
        let request =
            pb::GetTableDescriptorsRequest { table_names: vec![name(table).to_pb()], ..Default::default() };
        let response: pb::GetTableDescriptorsResponse = self.call("GetTableDescriptors", &request).unwrap();
        response.table_schema.first().map(|schema| TableDescriptor::from_pb(schema).unwrap())
    }

    /// Regions of a table as meta has them, in order; without those that were split.
    pub fn regions(&self, table: &str) -> Vec<RegionInfo> {
        self.all_regions(table).into_iter().filter(|region| !region.is_split()).collect()
    }

    /// Regions that other regions may refer to: parents of splits, and what was merged.
    pub fn parents(&self, table: &str) -> Vec<RegionInfo> {
        let rows = self.server.meta_rows();
        let merged = rows.iter().flatten().filter(|cell| cell.qualifier().starts_with(b"merge"));
        let merged = merged.map(|cell| RegionInfo::decode_value(cell.value()).unwrap());
        let merged = merged.filter(|region| region.table().as_str() == table);
        let split = self.all_regions(table).into_iter().filter(|region| region.is_split());
        split.chain(merged).collect()
    }

    fn all_regions(&self, table: &str) -> Vec<RegionInfo> {
        let rows = self.server.meta_rows();
        let infos = rows.iter().flatten().filter(|cell| cell.qualifier() == b"regioninfo");
        let infos = infos.map(|cell| RegionInfo::decode_value(cell.value()).unwrap());
        infos.filter(|region| region.table().as_str() == table).collect()
    }

    /// What must hold whenever no procedure is under way.
    pub fn check(&self) {
        self.check_where(true);
    }

    /// As `check`, where regions may overlap.
    pub fn check_overlapping(&self) {
        self.check_where(false);
    }

    fn check_where(&self, is_whole: bool) {
        let request = pb::GetTableNamesRequest { include_sys_tables: Some(true), ..Default::default() };
        let all: pb::GetTableNamesResponse = self.call("GetTableNames", &request).unwrap();
        let tables = all.table_names.iter().map(|table| TableName::from_pb(table).unwrap());
        let tables: Vec<TableName> = tables.filter(|table| !table.is_meta()).collect();
        assert!(tables.contains(&TableName::NAMESPACE));
        let mut expected_online = BTreeSet::from(["1588230740".to_string()]);
        for table in &tables {
            let state = self.state(table.as_str()).unwrap();
            let in_meta = self.server.meta_value(table.full_name(), "table", "state").unwrap();
            assert_eq!(in_meta, pb::TableState { state: state as i32 }.encode_to_vec(), "{table}");
            let regions = self.regions(table.as_str());
            let follows = |pair: &[RegionInfo]| pair[0].end_key() == pair[1].start_key();
            assert_eq!(regions[0].start_key(), "", "{table}");
            assert!(regions.iter().any(|region| region.end_key().is_empty()), "{table}");
            assert!(!is_whole || regions.last().unwrap().end_key().is_empty(), "{table}");
            assert!(!is_whole || regions.windows(2).all(follows), "{regions:?}");
            let dirs = self.env.fs.list(&table.dir(&self.root)).unwrap();
            let dirs: BTreeSet<_> =
                dirs.into_iter().map(|dir| dir.name).filter(|dir| !dir.starts_with('.')).collect();
            assert_eq!(
                dirs,
                regions
                    .iter()
                    .chain(&self.parents(table.as_str()))
                    .map(|region| region.encoded_name().to_string())
                    .collect(),
                "{table}"
            );
            for region in self.parents(table.as_str()) {
                assert!(!self.server.online_names().contains(region.encoded_name()), "{region} is open");
            }
            for region in &regions {
                for file in self.server.files(region).iter().filter(|file| file.contains('.')) {
                    let (family_and_file, parent) = file.split_once('.').unwrap();
                    let referred = table.dir(&self.root).join(parent).join(family_and_file);
                    assert!(self.env.fs.exists(&referred).unwrap(), "{file} of {region} leads nowhere");
                }
                let column = |name: &str| self.server.meta_value(region.region_name(), "info", name);
                let open = column("state").unwrap() == b"OPEN";
                let online = self.server.online_names().contains(region.encoded_name());
                assert_eq!((open, online), (state == pb::table_state::State::Enabled, open), "{region}");
                if open {
                    assert_eq!(column("server").unwrap(), b"127.0.0.1:16020");
                    assert_eq!(column("sn").unwrap(), self.server.server_name().to_string().as_bytes());
                    assert_eq!(
                        self.server.descriptor_of(region.encoded_name()),
                        self.descriptor(table.as_str())
                    );
                    expected_online.insert(region.encoded_name().to_string());
                    let replication = self.descriptor(table.as_str()).unwrap().region_replication();
                    expected_online
                        .extend(region.secondaries(replication).map(|copy| copy.encoded_name().to_string()));
                }
            }
        }
        assert_eq!(self.server.online_names(), expected_online);
        let rows = self.server.meta_rows();
        for row in rows {
            let text = String::from_utf8_lossy(row[0].row()).into_owned();
            let table = text.split(',').next().unwrap().to_string();
            assert!(tables.iter().any(|known| known.as_str() == table), "{text} is left in meta");
        }
        let left = self.records();
        assert!(left.is_empty(), "records are left: {left:?}");
    }

    /// Names of the records of procedures.
    pub fn records(&self) -> Vec<String> {
        let all = self.root.join("MasterData/procedures");
        let of_master = |dir: String| self.env.fs.list(&all.join(dir)).unwrap();
        let dirs = self.env.fs.list(&all).unwrap();
        assert_eq!(dirs.len(), 1, "of this master: {dirs:?}");
        let names = dirs.into_iter().flat_map(|dir| of_master(dir.name)).map(|file| file.name);
        names.filter(|name| name != "next" && !name.ends_with(".ended")).collect()
    }
}

/// The answer of a service, as a client gets it.
pub fn answer<R: Message + Default>(
    service: &dyn Service,
    method: &str,
    request: &impl Message,
) -> std::result::Result<R, RpcError> {
    let reply = match service.call(a_call(method, request)) {
        Outcome::Ready(reply) => reply,
        Outcome::Later(future) => {
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
        }
    }?;
    Ok(R::decode(reply.message).unwrap())
}

fn a_call(method: &str, request: &impl Message) -> Call {
    let connection = Arc::new(Connection {
        user: Some("tester".into()),
        client_version: Some((2, 6)),
        ..Connection::new(1, "127.0.0.1:1")
    });
    Call {
        id: 1,
        method: method.into(),
        param: request.encode_to_vec().into(),
        cells: Vec::new(),
        priority: 0,
        class: halcyon_rpc::CallClass::Meta,
        timeout: None,
        is_traced: false,
        received_ns: 0,
        attributes: Vec::new(),
        connection,
    }
}

pub fn with_real_clock(env: Env) -> Env {
    Env { clock: Arc::new(SystemClock::new()) as Arc<dyn Clock>, ..env }
}

pub fn name(table: &str) -> TableName {
    TableName::parse(table.as_bytes()).unwrap()
}

pub fn family(name: &str) -> FamilyDescriptor {
    FamilyDescriptor::new(name).unwrap()
}

pub fn table(table: &str, families: &[&str]) -> TableDescriptor {
    families.iter().fold(TableDescriptor::new(name(table)), |table, f| table.with_family(family(f)))
}

pub fn create(descriptor: &TableDescriptor, keys: &[&'static str]) -> pb::CreateTableRequest {
    pb::CreateTableRequest {
        table_schema: descriptor.to_pb(),
        split_keys: keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect(),
        ..Default::default()
    }
}

pub fn enable(table: &str) -> pb::EnableTableRequest {
    pb::EnableTableRequest { table_name: name(table).to_pb(), ..Default::default() }
}

pub fn disable(table: &str) -> pb::DisableTableRequest {
    pb::DisableTableRequest { table_name: name(table).to_pb(), ..Default::default() }
}

pub fn delete(table: &str) -> pb::DeleteTableRequest {
    pb::DeleteTableRequest { table_name: name(table).to_pb(), ..Default::default() }
}

pub fn truncate(table: &str, preserve_splits: bool) -> pb::TruncateTableRequest {
    pb::TruncateTableRequest {
        table_name: name(table).to_pb(),
        preserve_splits: Some(preserve_splits),
        ..Default::default()
    }
}

pub fn flush(table: &str) -> pb::FlushTableRequest {
    pb::FlushTableRequest { table_name: name(table).to_pb(), ..Default::default() }
}

/// Whether a snapshot of this name is being made or deleted, by whatever master.
pub fn has_working_snapshot(env: &Env, name: &str) -> bool {
    let tmp = Path::new(ROOT).join(".hbase-snapshot/.tmp");
    let masters = env.fs.list(&tmp).unwrap_or_default();
    masters.into_iter().any(|master| env.fs.exists(&tmp.join(master.name).join(name)).unwrap())
}

pub fn modify(descriptor: &TableDescriptor) -> pb::ModifyTableRequest {
    pb::ModifyTableRequest {
        table_name: descriptor.name().to_pb(),
        table_schema: descriptor.to_pb(),
        ..Default::default()
    }
}

pub fn namespace(name: &str) -> pb::NamespaceDescriptor {
    pb::NamespaceDescriptor { name: Bytes::copy_from_slice(name.as_bytes()), configuration: Vec::new() }
}

pub fn specifier(value: &Bytes) -> pb::RegionSpecifier {
    pb::RegionSpecifier { r#type: 1, value: value.clone() }
}

pub fn split(region: &RegionInfo, row: Option<&'static str>) -> pb::SplitTableRegionRequest {
    pb::SplitTableRegionRequest {
        region_info: region.to_pb(),
        split_row: row.map(|row| Bytes::from_static(row.as_bytes())),
        ..Default::default()
    }
}

pub fn merge(regions: &[RegionInfo]) -> pb::MergeTableRegionsRequest {
    let encoded = |region: &RegionInfo| pb::RegionSpecifier {
        r#type: 2,
        value: Bytes::copy_from_slice(region.encoded_name().as_bytes()),
    };
    pb::MergeTableRegionsRequest { region: regions.iter().map(encoded).collect(), ..Default::default() }
}

pub fn merge_forced(regions: &[RegionInfo]) -> pb::MergeTableRegionsRequest {
    pb::MergeTableRegionsRequest { forcible: Some(true), ..merge(regions) }
}

pub fn snapshot(name: &str, table: &str) -> pb::SnapshotRequest {
    let snapshot = pb::SnapshotDescription {
        name: name.to_string(),
        table: Some(table.to_string()),
        ..Default::default()
    };
    pb::SnapshotRequest { snapshot, ..Default::default() }
}

pub fn restore(name: &str, table: &str) -> pb::RestoreSnapshotRequest {
    pb::RestoreSnapshotRequest { snapshot: snapshot(name, table).snapshot, ..Default::default() }
}
