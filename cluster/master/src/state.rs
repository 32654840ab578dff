//! What the master knows: tables, their states and regions, namespaces and switches.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use halcyon_cell::{Cell, Result};
use halcyon_contract::ClusterServices;
use halcyon_env::{Env, Mutex, RwLock};
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{ClusterId, NamespaceDescriptor, RegionInfo, ServerName, TableDescriptor, TableName};

use crate::balancer_runs::BalancerRuns;
use crate::balancing::Balancing;
use crate::groups::GroupState;
use crate::hbck::HbckReport;
use crate::in_transition::Transitions;
use crate::members::Members;
use crate::meta::MetaContent;
use crate::meta_batches::MetaBatches;
use crate::namespaces::Namespaces;
use crate::peers::Peers;
use crate::procedure::RemoteLocks;
use crate::quotas::QuotaState;
use crate::settings::StopRequest;
use crate::switches::{Switch, Switches};
use crate::targets::Targets;
use crate::timeline::Timelines;
use crate::{MasterSettings, erasure_coding, errors, meta};

pub(crate) use pb::region_state::State as RegionState;
pub(crate) use pb::table_state::State as TableState;

/// Gets the copies of `hbase:meta` by number, after each change.
type MetaReplicasCallback = Box<dyn Fn(&BTreeMap<i32, ServerName>) + Send + Sync>;
type StopCallback = Box<dyn Fn(StopRequest) + Send + Sync>;

/// Everything procedures and services share.
///
/// # Thread safety
/// The locks are held for look-ups and swaps only, never across a call of `cluster` or a file. Order, if two are
/// ever needed: `tables`, `namespaces`, `switches`.
///
/// # Invariants
/// `tables` follows `hbase:meta`: a change is written there first. Only a procedure that holds the table's lock
/// changes the table's entry. One that shares it changes what is said of its region, under one write lock of `tables`.
pub(crate) struct MasterState {
    pub(crate) env: Env,
    pub(crate) root: PathBuf,
    pub(crate) settings: MasterSettings,
    /// Where this master makes and deletes snapshots (`scratch.rs`). Held while it is made anew.
    pub(crate) own_snapshots_dir: Mutex<PathBuf>,
    pub(crate) cluster: ClusterServices,
    pub(crate) cluster_id: ClusterId,
    /// Which servers may get regions, and when those of dead ones may open elsewhere.
    pub(crate) members: Arc<Members>,
    /// Where `hbase:meta` is.
    pub(crate) meta_place: RwLock<MetaPlace>,
    /// With which `hbase:meta` is open.
    pub(crate) meta_descriptor: RwLock<Arc<TableDescriptor>>,
    /// Where the copies of `hbase:meta` are, by number.
    pub(crate) meta_replicas: RwLock<BTreeMap<i32, ServerName>>,
    /// Held while copies of `hbase:meta` are opened and closed.
    pub(crate) meta_replicas_changing: Mutex<()>,
    /// Held by who opens or closes `hbase:meta`: a move, and the recoveries of servers that had it, may do so at the same time.
    pub(crate) meta_opening: Mutex<()>,
    pub(crate) meta_replicas_callback: Mutex<Option<MetaReplicasCallback>>,
    /// `Tables::states_version` that clients of HBase 1 were shown last. Held while they are shown it.
    pub(crate) published_states: Mutex<Option<u64>>,
    /// The namespaces that were published last.
    pub(crate) published_namespaces: Mutex<Option<Vec<pb::NamespaceDescriptor>>>,
    pub(crate) tables: RwLock<Tables>,
    /// Servers that regions move to, and how many they have. Taken before `tables`.
    pub(crate) targets: Mutex<Targets>,
    pub(crate) namespaces: RwLock<Namespaces>,
    pub(crate) switches: Mutex<Switches>,
    /// Held while the file is written, so that writers follow each other; readers take `switches` alone.
    pub(crate) switches_file: Mutex<()>,
    pub(crate) stop_callback: Mutex<Option<StopCallback>>,
    /// The master has ended, or is about to: no call is answered any more.
    pub(crate) stopped: AtomicBool,
    /// Of the last `RunHbckChore`.
    pub(crate) hbck_report: Mutex<Option<HbckReport>>,
    /// Timestamp of the newest write to meta.
    pub(crate) meta_timestamp_ms: AtomicI64,
    pub(crate) balancing: Balancing,
    pub(crate) balancer_runs: BalancerRuns,
    pub(crate) timelines: Arc<Timelines>,
    pub(crate) transitions: Transitions,
    pub(crate) groups: GroupState,
    pub(crate) peers: Peers,
    pub(crate) quotas: QuotaState,
    /// Locks that clients hold.
    pub(crate) remote_locks: RemoteLocks,
    /// For threads of their own.
    pub(crate) meta_batches: MetaBatches,
    pub(crate) this: Weak<MasterState>,
}

/// The server that has `hbase:meta`, or had it last.
#[derive(Clone, Debug)]
pub(crate) struct MetaPlace {
    pub(crate) server: ServerName,
    pub(crate) open_seq: u64,
    pub(crate) state: MetaState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaState {
    /// The server has closed it, or has said that it cannot open it.
    Closed,
    /// The server was told to open it, or is about to be told.
    Opening,
    Open,
}

impl MetaPlace {
    pub(crate) fn is_open(&self) -> bool {
        self.state == MetaState::Open
    }
}

/// All tables but `hbase:meta`.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) by_name: BTreeMap<TableName, TableEntry>,
    /// The regions by their encoded names.
    encoded: HashSet<ByEncodedName>,
    /// Counts the changes of states of tables; a table that comes or goes is one.
    states_version: u64,
}

/// A region that is looked up by its encoded name.
struct ByEncodedName(RegionInfo);

impl Borrow<str> for ByEncodedName {
    fn borrow(&self) -> &str {
        self.0.encoded_name()
    }
}

impl Hash for ByEncodedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.encoded_name().hash(state);
    }
}

impl PartialEq for ByEncodedName {
    fn eq(&self, other: &ByEncodedName) -> bool {
        self.0.encoded_name() == other.0.encoded_name()
    }
}

impl Eq for ByEncodedName {}

#[derive(Clone)]
pub(crate) struct TableEntry {
    pub(crate) descriptor: Arc<TableDescriptor>,
    /// Number of the descriptor's file.
    pub(crate) descriptor_sequence: u32,
    pub(crate) state: TableState,
    pub(crate) regions: BTreeMap<RegionInfo, RegionEntry>,
    /// Further copies for reads, of live regions only: all that are wanted, and those that are to be closed.
    pub(crate) replicas: BTreeMap<RegionInfo, RegionEntry>,
}

#[derive(Clone, Debug)]
pub(crate) struct RegionEntry {
    pub(crate) state: RegionState,
    /// `info:seqnumDuringOpen`, which grows with every open.
    pub(crate) open_seq: u64,
    /// The server that has the region or is to open it; of a region that is not open, the last one.
    pub(crate) server: Option<ServerName>,
    /// What a region was split into; it stays known until its files are not needed any more.
    pub(crate) daughters: Vec<RegionInfo>,
    /// What a region was merged of, as long as files of theirs may be needed.
    pub(crate) merged_of: Vec<RegionInfo>,
}

impl RegionEntry {
    pub(crate) fn closed() -> RegionEntry {
        RegionEntry::unopened(0)
    }

    /// A new region that takes the place of others with open numbers up to this.
    pub(crate) fn unopened(open_seq: u64) -> RegionEntry {
        let (daughters, merged_of) = (Vec::new(), Vec::new());
        RegionEntry { state: RegionState::Closed, open_seq, server: None, daughters, merged_of }
    }
}

impl TableEntry {
    /// A table whose regions are not open.
    pub(crate) fn closed(
        descriptor: &TableDescriptor,
        descriptor_sequence: u32,
        regions: &[RegionInfo],
        state: TableState,
    ) -> TableEntry {
        let regions = regions.iter().map(|region| (region.clone(), RegionEntry::closed())).collect();
        let replicas = BTreeMap::new(); // made when the entry gets its place
        TableEntry { descriptor: descriptor.clone().into(), descriptor_sequence, state, regions, replicas }
    }

    /// A region or a copy of one.
    pub(crate) fn known(&self, region: &RegionInfo) -> Option<&RegionEntry> {
        if region.is_secondary() { self.replicas.get(region) } else { self.regions.get(region) }
    }

    pub(crate) fn known_mut(&mut self, region: &RegionInfo) -> Option<&mut RegionEntry> {
        if region.is_secondary() { self.replicas.get_mut(region) } else { self.regions.get_mut(region) }
    }

    /// Regions and copies.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&RegionInfo, &RegionEntry)> {
        self.regions.iter().chain(&self.replicas)
    }

    /// The copies of these regions that are known.
    pub(crate) fn copies_of(&self, regions: &[RegionInfo]) -> Vec<RegionInfo> {
        if self.replicas.is_empty() {
            return Vec::new();
        }
        let wanted: HashSet<&str> = regions.iter().map(RegionInfo::encoded_name).collect();
        let is_wanted = |copy: &&RegionInfo| wanted.contains(copy.primary().encoded_name());
        self.replicas.keys().filter(is_wanted).cloned().collect()
    }

    /// What is to be open while the table is enabled: regions that hold rows, and as many copies as the descriptor says.
    pub(crate) fn to_be_open(&self) -> Vec<RegionInfo> {
        let replication = self.descriptor.region_replication();
        let copies = self.replicas.keys().filter(|copy| copy.replica_id() < replication).cloned();
        self.live_regions().into_iter().chain(copies).collect()
    }

    /// Copies that are wanted become known; those of regions that are gone are forgotten.
    fn fit_replicas(&mut self) {
        let (replication, live) = (self.descriptor.region_replication(), self.live_regions());
        if replication <= 1 && self.replicas.is_empty() {
            return;
        }
        let names: HashSet<&str> = live.iter().map(RegionInfo::encoded_name).collect();
        self.replicas.retain(|copy, _| names.contains(copy.primary().encoded_name()));
        for copy in live.iter().flat_map(|region| region.secondaries(replication)) {
            self.replicas.entry(copy).or_insert_with(RegionEntry::closed);
        }
        assert!(
            self.replicas.keys().all(RegionInfo::is_secondary),
            "what takes writes is among the regions of {}",
            self.descriptor.name()
        );
    }

    /// Regions that hold rows: not the parents of splits.
    pub(crate) fn live_regions(&self) -> Vec<RegionInfo> {
        self.regions.keys().filter(|region| !region.is_split() && !region.is_offline()).cloned().collect()
    }
}

impl Tables {
    pub(crate) fn put(&mut self, mut entry: TableEntry) {
        entry.fit_replicas();
        let name = entry.descriptor.name().clone();
        let state_before = self.take(&name).map(|before| before.state);
        self.states_version += u64::from(state_before != Some(entry.state));
        for (region, _) in entry.all() {
            assert!(*region.table() == name, "{region} is among the regions of {name}");
            self.encoded.replace(ByEncodedName(region.clone()));
        }
        self.by_name.insert(name, entry);
    }

    pub(crate) fn remove(&mut self, name: &TableName) {
        self.states_version += u64::from(self.take(name).is_some());
    }

    fn take(&mut self, name: &TableName) -> Option<TableEntry> {
        let entry = self.by_name.remove(name)?;
        for (region, _) in entry.all() {
            self.encoded.remove(region.encoded_name());
        }
        Some(entry)
    }

    /// Every table's state by its name, but of `hbase:meta`.
    pub(crate) fn states(&self) -> BTreeMap<String, TableState> {
        self.by_name.iter().map(|(name, entry)| (name.to_string(), entry.state)).collect()
    }

    /// The region or copy of this encoded name.
    pub(crate) fn region(&self, encoded_name: &str) -> Option<(&TableEntry, &RegionInfo, &RegionEntry)> {
        let known = &self.encoded.get(encoded_name)?.0;
        let entry = self.by_name.get(known.table())?;
        let copies = if known.is_secondary() { &entry.replicas } else { &entry.regions };
        let (region, state) = copies.get_key_value(known)?;
        Some((entry, region, state))
    }

    pub(crate) fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a TableName> {
        self.by_name.keys().filter(move |name| name.namespace() == namespace)
    }
}

/// Whether the master checks that families can be encrypted; of the cluster, or of a table.
const CHECK_ENCRYPTION: &str = "hbase.master.check.encryption";

impl MasterState {
    pub(crate) fn now_ms(&self) -> i64 {
        self.env.clock.now_ms()
    }

    /// ServerNotRunningYetException once the master has been stopped.
    pub(crate) fn check_running(&self) -> std::result::Result<(), RpcError> {
        if self.stopped.load(Ordering::SeqCst) { Err(errors::stopping()) } else { Ok(()) }
    }

    /// Invalid if a table cannot have this descriptor. What only HBase's sanity checks refuse is logged where they are
    /// off.
    pub(crate) fn check_descriptor(&self, descriptor: &TableDescriptor) -> Result<()> {
        descriptor.check_supported()?;
        self.check_wise(descriptor)
    }

    /// As [`MasterState::check_descriptor`], for a table that is `old` so far: numbers that it has already are no error.
    pub(crate) fn check_change(&self, old: &TableDescriptor, descriptor: &TableDescriptor) -> Result<()> {
        descriptor.check_supported_change(old)?;
        self.check_wise(descriptor)
    }

    fn check_wise(&self, descriptor: &TableDescriptor) -> Result<()> {
        let wanted = self.settings.sanity_checks && descriptor.wants_sanity_checks();
        self.settings.coprocessors.check(descriptor, wanted)?;
        let checked = descriptor.check_sanity();
        let checks_encryption = self.settings.checks_encryption
            && descriptor.setting(CHECK_ENCRYPTION).is_none_or(|text| text.eq_ignore_ascii_case("true"));
        let encrypted = || match checks_encryption {
            true => descriptor.check_encryption(&self.env.keys),
            false => Ok(()),
        };
        match checked.and_then(|()| encrypted()).and_then(|()| erasure_coding::check(self, descriptor)) {
            Err(error) if !wanted => {
                tracing::warn!(table = %descriptor.name(), %error, "sanity checks are off: accepted");
                Ok(())
            }
            checked => checked,
        }
    }

    /// A copy of a table's entry; TableNotFoundException if there is none.
    pub(crate) fn table(&self, name: &TableName) -> std::result::Result<TableEntry, RpcError> {
        self.tables.read().by_name.get(name).cloned().ok_or_else(|| errors::table_not_found(name))
    }

    /// As [`MasterState::table`], where a procedure's lock says that the table is there.
    pub(crate) fn locked_table(&self, name: &TableName) -> Result<TableEntry> {
        let missing = || halcyon_cell::Error::invalid(format!("Table {name} is gone"));
        self.tables.read().by_name.get(name).cloned().ok_or_else(missing)
    }

    /// The descriptor of a table that a procedure's lock keeps there.
    pub(crate) fn locked_descriptor(&self, name: &TableName) -> Result<Arc<TableDescriptor>> {
        let missing = || halcyon_cell::Error::invalid(format!("Table {name} is gone"));
        self.tables.read().by_name.get(name).map(|entry| entry.descriptor.clone()).ok_or_else(missing)
    }

    /// Changes a table's entry if it is there.
    pub(crate) fn update_table(&self, name: &TableName, change: impl FnOnce(&mut TableEntry)) {
        let tables = &mut *self.tables.write();
        if let Some(entry) = tables.by_name.get_mut(name) {
            let before = entry.state;
            change(entry);
            assert!(
                entry.descriptor.name() == name,
                "{name} has got the descriptor of {}",
                entry.descriptor.name()
            );
            tables.states_version += u64::from(entry.state != before);
        }
    }

    /// Copies that the table's descriptor asks for become known. Of the others those stay that have a number below `end`.
    pub(crate) fn know_replicas(&self, name: &TableName, end: i32) {
        let mut tables = self.tables.write();
        let Some(mut entry) = tables.by_name.get(name).cloned() else { return };
        entry.replicas.retain(|copy, _| copy.replica_id() < end);
        tables.put(entry);
    }

    /// Shows tables and namespaces to others who look for them in the coordination service. Each procedure does so before it ends, so
    /// a client that has waited for one finds what it did. As in HBase a failure is logged only: the next call tries again.
    pub(crate) fn publish_names(&self) {
        self.publish_table_states();
        self.publish_namespaces();
    }

    fn publish_namespaces(&self) {
        let mut published = self.published_namespaces.lock();
        let namespaces: Vec<_> = self.namespaces.read().iter().map(NamespaceDescriptor::to_pb).collect();
        // Before they are loaded there is none; later always some.
        if namespaces.is_empty() || published.as_ref() == Some(&namespaces) {
            return;
        }
        match self.cluster.coordination.publish_namespaces(&namespaces) {
            Ok(()) => *published = Some(namespaces),
            Err(error) => tracing::warn!(%error, "namespaces were not published"),
        }
    }

    /// Shows the states of tables to clients of HBase 1, if one has changed since the last call (HBase: `MirroringTableStateManager`).
    fn publish_table_states(&self) {
        let mut published = self.published_states.lock();
        let (version, states) = {
            let tables = self.tables.read();
            if *published == Some(tables.states_version) {
                return;
            }
            (tables.states_version, tables.states())
        };
        match self.cluster.coordination.publish_table_states(&states) {
            Ok(()) => *published = Some(version),
            Err(error) => tracing::warn!(%error, "states of tables were not published"),
        }
    }

    /// Learns of a region that meta has a row of, if the table is known and the region is not. A procedure has the region's lock.
    pub(crate) fn adopt(&self, region: &RegionInfo, known: RegionEntry) {
        let mut tables = self.tables.write();
        let Some(mut entry) = tables.by_name.get(region.table()).cloned() else { return };
        entry.regions.entry(region.clone()).or_insert(known);
        tables.put(entry);
    }

    /// Changes a region's entry if it is there.
    pub(crate) fn update_region(&self, region: &RegionInfo, change: impl FnOnce(&mut RegionEntry)) {
        self.update_table(region.table(), |entry| {
            if let Some(known) = entry.known_mut(region) {
                change(known);
            }
        });
    }

    /// The masters that wait to take this one's place.
    pub(crate) fn backup_masters(&self) -> Vec<ServerName> {
        self.cluster.coordination.backup_masters()
    }

    /// PleaseHoldException while namespaces could not be read.
    pub(crate) fn check_namespaces(&self) -> std::result::Result<(), RpcError> {
        if self.namespaces.read().is_loaded() {
            return Ok(());
        }
        let text =
            "namespaces cannot be read before the WALs of the server that had hbase:namespace are split";
        Err(RpcError::please_hold(text))
    }

    pub(crate) fn namespace(&self, name: &str) -> std::result::Result<NamespaceDescriptor, RpcError> {
        self.check_namespaces()?;
        self.namespaces.read().get(name).cloned().ok_or_else(|| RpcError::namespace_not_found(name))
    }

    /// Turns a switch, on disk and in memory; returns the value before.
    pub(crate) fn set_switch(&self, switch: Switch, on: bool) -> Result<bool> {
        let _one_at_a_time = self.switches_file.lock();
        let mut changed = self.switches.lock().clone();
        let before = changed.set(switch, on);
        if before != on {
            changed.save(&self.env, &self.root)?;
            *self.switches.lock() = changed;
        }
        Ok(before)
    }

    /// What a thread of its own may hold.
    pub(crate) fn shared(&self) -> Arc<MasterState> {
        self.this.upgrade().expect("the caller holds it")
    }

    /// Writes to meta under a timestamp of its own. Strictly growing, so that a put behind a delete of the same
    /// row is never hidden by it; not ahead of the clock, because clients read meta up to *their* now.
    pub(crate) fn meta_put(&self, cells: impl FnOnce(i64) -> Vec<Cell>) -> Result<()> {
        let at = self.meta_server();
        self.cluster.system_tables.meta_put(&at, cells(self.next_meta_timestamp()))
    }

    /// As [`MasterState::meta_put`], together with rows that other threads write at the same time. No other thread writes these.
    pub(crate) fn meta_put_with_others(
        &self,
        cells: impl FnOnce(i64) -> Vec<Cell> + Send + 'static,
    ) -> Result<()> {
        self.meta_batches.put(cells, |cells| self.meta_put(cells))
    }

    /// As [`MasterState::meta_put`], but all rows become visible, and survive a crash, together or not at all.
    pub(crate) fn meta_put_together(&self, cells: impl FnOnce(i64) -> Vec<Cell>) -> Result<()> {
        let at = self.meta_server();
        self.cluster.system_tables.meta_put_together(&at, cells(self.next_meta_timestamp()))
    }

    /// All rows of meta.
    pub(crate) fn meta_rows(&self) -> Result<Vec<Vec<Cell>>> {
        self.cluster.system_tables.meta_scan(&self.meta_server(), b"", b"")
    }

    /// What meta says of one table.
    pub(crate) fn meta_rows_of(&self, table: &TableName) -> Result<MetaContent> {
        // The rows of a table are between those of tables with its name and a longer one; the order is by name first.
        let (start, stop) = (format!("{table},,"), format!("{table} ,,"));
        let at = self.meta_server();
        let rows = self.cluster.system_tables.meta_scan(&at, start.as_bytes(), stop.as_bytes())?;
        let mut content = meta::read(&rows);
        content.regions.retain(|(region, _)| region.table() == table);
        Ok(content)
    }

    /// What meta says of the tables of a namespace other than `default`.
    pub(crate) fn meta_rows_of_namespace(&self, namespace: &str) -> Result<MetaContent> {
        let (start, stop) = (format!("{namespace}:,,"), format!("{namespace};,,"));
        let at = self.meta_server();
        let rows = self.cluster.system_tables.meta_scan(&at, start.as_bytes(), stop.as_bytes())?;
        let mut content = meta::read(&rows);
        content.regions.retain(|(region, _)| region.table().namespace() == namespace);
        content.states.retain(|table, _| table.namespace() == namespace);
        Ok(content)
    }

    pub(crate) fn meta_server(&self) -> ServerName {
        self.meta_place.read().server.clone()
    }

    /// Until when, in `Clock::monotonic_ns`, the master before this one may go on with what it makes or deletes; `None`: it does not any more.
    /// What a procedure deletes that is taken over must not be made again before, or it would delete that. What one makes must not be used
    /// before.
    pub(crate) fn predecessor_until_ns(&self) -> Option<u64> {
        let clock = &self.env.clock;
        let left_ns = self.settings.predecessor_until_ns?.saturating_sub(clock.boot_ns());
        (left_ns > 0).then(|| clock.monotonic_ns().saturating_add(left_ns))
    }

    /// Above all that were given before, and that stand in meta.
    pub(crate) fn next_meta_timestamp(&self) -> i64 {
        const WAITS_MAX: u32 = 50; // a clock set back further than this many ms is not waited for
        for _ in 0..WAITS_MAX {
            let (now, last) = (self.now_ms(), self.meta_timestamp_ms.load(Ordering::SeqCst));
            if now > last {
                let taken =
                    self.meta_timestamp_ms.compare_exchange(last, now, Ordering::SeqCst, Ordering::SeqCst);
                if taken.is_ok() {
                    assert!(now > last, "a write to hbase:meta hides those before it");
                    return now;
                }
            } else {
                self.env.clock.sleep(Duration::from_millis(1));
            }
        }
        self.meta_timestamp_ms.fetch_add(1, Ordering::SeqCst) + 1
    }
}
