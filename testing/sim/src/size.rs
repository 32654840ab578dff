//! A master at size: 1,000 servers and 1,000,000 regions, which the models keep in memory and answer for at once (`make sim-size`).
//!
//! The times are those of the master alone, in real time: the models take none. So they are what a master adds to the time of
//! servers, files and network, which `testing/cluster` measures.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use halcyon_allocator::{Allocator, give_back, set_keep_time};
use halcyon_cell::{Cell, CellComparator, Error, Result};
use halcyon_contract::{
    Announce, CloseRegionRequest, ClusterServices, FlushRegionRequest, MasterCoordination, OpenRegionRequest,
    OpenRegionResponse, RegionFiles, RegionInfoRequest, RegionInfoResponse, RegionServerApi, RegionServers,
    ServerReport, SplitWal, Standing, SystemTables, WalFiles,
};
use halcyon_env::sim::SimFileSystem;
use halcyon_env::{Clock, Env, ReadableFile, RealFileSystem, SystemClock};
use halcyon_master::{Master, MasterSettings};
use halcyon_proto::pb;
use halcyon_schema::{FamilyDescriptor, RegionInfo, ServerName, TableDescriptor, TableName, layout};
use parking_lot::Mutex;
use prost::Message;

#[allow(dead_code)] // cells are not written here
#[path = "rows.rs"]
mod rows;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

const ROOT: &str = "/hbase";

/// How long `halcyon master` keeps free memory, and how often it gives some back.
const FREE_MEMORY_KEEP_TIME: Duration = Duration::from_millis(10);
const GIVE_BACK_PERIOD: Duration = Duration::from_millis(20);
/// A second of it.
const GIVE_BACK_TIMES: u32 = 50;

/// Between two looks for dead servers, as `halcyon master` has them.
const LOOK_NS: u64 = 1_000_000_000;

/// A master's start with many regions, and the death of a server.
#[derive(Parser)]
struct Args {
    #[arg(long, default_value_t = 1000)]
    servers: usize,
    #[arg(long, default_value_t = 1_000_000)]
    regions: usize,
    #[arg(long, default_value_t = 10)]
    tables: usize,
    /// Instead: a server is decommissioned and dies while its regions move, and a second one is decommissioned.
    #[arg(long)]
    decommission: bool,
}

/// All servers, and the rows of system tables.
struct Models {
    env: Env,
    state: Mutex<State>,
}

struct State {
    online: BTreeMap<ServerName, BTreeMap<Arc<str>, RegionInfo>>,
    recovering: BTreeSet<ServerName>,
    draining: BTreeSet<ServerName>,
    /// Cells of `hbase:meta` that were there before the master; given away at its first scan.
    meta_before: Vec<Vec<Cell>>,
    namespaces: Vec<Cell>,
    store: Vec<Cell>,
    opened: usize,
    meta_puts: usize,
}

struct Reached {
    models: Arc<Models>,
    server: ServerName,
}

struct Services(Arc<Models>);

fn server(number: usize) -> ServerName {
    ServerName::new(format!("server-{number:04}.example"), 16020, 1_700_000_000_000)
}

fn table(number: usize) -> TableName {
    TableName::parse(format!("table{number:03}").as_bytes()).expect("a name")
}

/// The regions of a table with the numbers of their servers.
fn regions_of(args: &Args, number: usize) -> impl Iterator<Item = (RegionInfo, ServerName)> {
    let (count, servers, name) = (args.regions / args.tables, args.servers, table(number));
    let key = move |at: usize| match at {
        at if at == 0 || at == count => String::new(),
        at => format!("user{:012}", at as u64 * 7919),
    };
    (0..count).map(move |at| {
        let region = RegionInfo::new(name.clone(), key(at).into(), key(at + 1).into(), 1_600_000_000_000);
        (region, server((number * count + at) % servers))
    })
}

/// Every region is open at its server.
fn place(args: &Args, online: &mut BTreeMap<ServerName, BTreeMap<Arc<str>, RegionInfo>>) {
    for (region, server) in (0..args.tables).flat_map(|number| regions_of(args, number)) {
        let encoded: Arc<str> = region.encoded_name().into();
        online.get_mut(&server).expect("it is online").insert(encoded, region);
    }
}

/// The rows of `hbase:meta`.
fn meta_rows(args: &Args) -> Vec<Vec<Cell>> {
    let (mut rows, at) = (Vec::with_capacity(args.regions + args.tables), 1_600_000_000_000);
    for number in 0..args.tables {
        let state = pb::TableState { state: pb::table_state::State::Enabled as i32 }.encode_to_vec();
        rows.push(vec![Cell::put(table(number).full_name(), b"table", b"state", at, &state)]);
        for (region, server) in regions_of(args, number) {
            let put =
                |column: &[u8], value: &[u8]| Cell::put(region.region_name(), b"info", column, at, value);
            rows.push(vec![
                put(b"regioninfo", &region.encode_value()),
                put(b"seqnumDuringOpen", &7_u64.to_be_bytes()),
                put(b"server", server.address().as_bytes()),
                put(b"serverstartcode", &server.start_code.to_be_bytes()),
                put(b"sn", server.to_string().as_bytes()),
                put(b"state", b"OPEN"),
            ]);
        }
    }
    rows
}

impl Reached {
    fn with<T>(&self, call: impl FnOnce(&mut BTreeMap<Arc<str>, RegionInfo>) -> T) -> Result<T> {
        let mut state = self.models.state.lock();
        let dead = || Error::new(halcyon_cell::ErrorKind::Moved, "the server is dead");
        state.online.get_mut(&self.server).map(call).ok_or_else(dead)
    }
}

impl RegionServerApi for Reached {
    fn server_name(&self) -> ServerName {
        self.server.clone()
    }

    fn open_region(
        &self,
        request: &OpenRegionRequest,
        announce: &Announce<'_>,
    ) -> Result<OpenRegionResponse> {
        let region = request.region.clone();
        let encoded: Arc<str> = region.encoded_name().into();
        self.with(|regions| drop(regions.insert(encoded, region)))?;
        announce(9)?;
        self.models.state.lock().opened += 1;
        Ok(OpenRegionResponse { open_seq_num: 9 })
    }

    fn close_region(&self, request: &CloseRegionRequest) -> Result<()> {
        self.with(|regions| drop(regions.remove(request.region.encoded_name())))
    }

    fn flush_region(&self, _: &FlushRegionRequest) -> Result<()> {
        Ok(())
    }

    fn region_info(&self, _: &RegionInfoRequest) -> Result<RegionInfoResponse> {
        Ok(RegionInfoResponse::default())
    }

    fn online_regions(&self) -> Result<Vec<RegionInfo>> {
        self.with(|regions| regions.values().cloned().collect())
    }

    fn split_wal(&self, _: &Path) -> Result<SplitWal> {
        Ok(SplitWal::Done)
    }
}

impl RegionServers for Services {
    fn online(&self) -> Vec<ServerName> {
        self.0.state.lock().online.keys().cloned().collect()
    }

    fn draining(&self) -> Vec<ServerName> {
        self.0.state.lock().draining.iter().cloned().collect()
    }

    fn standing(&self, server: &ServerName) -> Standing {
        let state = self.0.state.lock();
        match (state.online.contains_key(server), state.recovering.contains(server)) {
            (true, _) => Standing::Online,
            (false, true) => Standing::Recovering,
            (false, false) => Standing::Gone,
        }
    }

    fn recovering(&self) -> Vec<ServerName> {
        self.0.state.lock().recovering.iter().cloned().collect()
    }

    fn recovered(&self, server: &ServerName) {
        self.0.state.lock().recovering.remove(server);
    }

    fn dead(&self) -> Vec<ServerName> {
        self.recovering()
    }

    fn forget_dead(&self, _server: &ServerName) {}

    fn get(&self, server: &ServerName) -> Option<Arc<dyn RegionServerApi>> {
        let is_online = self.0.state.lock().online.contains_key(server);
        is_online.then(|| {
            Arc::new(Reached { models: self.0.clone(), server: server.clone() }) as Arc<dyn RegionServerApi>
        })
    }

    fn reports(&self) -> Vec<ServerReport> {
        Vec::new()
    }

    fn is_one_process(&self) -> bool {
        false
    }
}

impl MasterCoordination for Services {
    fn meta_last(&self) -> Result<Option<ServerName>> {
        Ok(None)
    }

    fn meta_opening(&self, _: &ServerName) -> Result<()> {
        Ok(())
    }

    fn meta_opened(&self, _: &ServerName) -> Result<()> {
        Ok(())
    }

    fn meta_replicas_last(&self) -> BTreeMap<i32, ServerName> {
        BTreeMap::new()
    }

    fn meta_replicas_opened(&self, _: &BTreeMap<i32, ServerName>) -> Result<()> {
        Ok(())
    }

    fn backup_masters(&self) -> Vec<ServerName> {
        Vec::new()
    }

    fn set_draining(&self, server: &ServerName, is_draining: bool) -> Result<()> {
        let draining = &mut self.0.state.lock().draining;
        match is_draining {
            true => draining.insert(server.clone()),
            false => draining.remove(server),
        };
        Ok(())
    }
}

impl SystemTables for Services {
    fn meta_put(&self, _: &ServerName, _: Vec<Cell>) -> Result<()> {
        self.0.state.lock().meta_puts += 1;
        Ok(())
    }

    fn meta_put_together(&self, at: &ServerName, cells: Vec<Cell>) -> Result<()> {
        self.meta_put(at, cells)
    }

    fn meta_scan(&self, _: &ServerName, _: &[u8], _: &[u8]) -> Result<Vec<Vec<Cell>>> {
        Ok(std::mem::take(&mut self.0.state.lock().meta_before))
    }

    fn put_rows(&self, _: &ServerName, _: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        self.0.state.lock().namespaces.extend(cells);
        Ok(())
    }

    fn put_rows_together(&self, at: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        self.put_rows(at, region, cells)
    }

    fn scan_rows(&self, _: &ServerName, _: &RegionInfo) -> Result<Vec<Vec<Cell>>> {
        Ok(rows::rows(self.0.state.lock().namespaces.iter().cloned(), CellComparator::Default))
    }
}

fn not_simulated<T>() -> Result<T> {
    Err(Error::invalid("this is not simulated"))
}

impl RegionFiles for Services {
    fn create_region_files(&self, region: &RegionInfo, _: &TableDescriptor) -> Result<()> {
        Ok(self.0.env.fs.create_dir_all(&region.dir(Path::new(ROOT)))?)
    }

    fn split_region_files(&self, _: &TableDescriptor, _: &RegionInfo, _: &[RegionInfo; 2]) -> Result<()> {
        not_simulated()
    }

    fn merge_region_files(&self, _: &TableDescriptor, _: &[RegionInfo], _: &RegionInfo) -> Result<()> {
        not_simulated()
    }

    fn copy_file(&self, _: &dyn ReadableFile, _: &Path) -> Result<()> {
        not_simulated()
    }

    fn make_link(&self, _: &Path) -> Result<()> {
        not_simulated()
    }

    fn list_store_files(&self, _: &RegionInfo, _: &TableDescriptor) -> Result<()> {
        not_simulated()
    }

    fn listed_store_files(
        &self,
        _: &RegionInfo,
        _: &TableDescriptor,
        _: &FamilyDescriptor,
    ) -> Result<Option<Vec<(String, u64)>>> {
        not_simulated()
    }

    fn copy_rows(&self, _: &TableDescriptor, _: &RegionInfo, _: &Path, _: &Path) -> Result<()> {
        not_simulated()
    }

    fn visit_region(
        &self,
        _: &Path,
        _: &RegionInfo,
        _: &TableDescriptor,
        visit: &mut dyn FnMut(Vec<Vec<Cell>>) -> Result<Vec<Cell>>,
    ) -> Result<()> {
        let found = rows::rows(self.0.state.lock().store.iter().cloned(), CellComparator::Default);
        let cells = visit(found)?;
        self.0.state.lock().store.extend(cells);
        Ok(())
    }
}

/// Resident bytes, when the allocator has given back what is free, as `halcyon master` lets it.
fn used(clock: &SystemClock) -> u64 {
    for _ in 0..GIVE_BACK_TIMES {
        give_back();
        clock.sleep(GIVE_BACK_PERIOD);
    }
    halcyon_env::resident_bytes(&RealFileSystem).expect("Linux tells")
}

fn main() {
    set_keep_time(FREE_MEMORY_KEEP_TIME);
    let args = Args::parse();
    let clock = Arc::new(SystemClock::new());
    let since = |begun_ns: u64| Duration::from_nanos(clock.monotonic_ns() - begun_ns);
    let env = Env { clock: clock.clone(), ..SimFileSystem::new().env() };
    let root = PathBuf::from(ROOT);
    env.fs.create_dir_all(&root).expect("an empty file system");
    let mut online: BTreeMap<ServerName, BTreeMap<Arc<str>, RegionInfo>> =
        (0..args.servers).map(|number| (server(number), BTreeMap::new())).collect();
    place(&args, &mut online);
    for server in online.keys() {
        // Without it the server gets no regions.
        env.fs.create_dir_all(&wals_of(server)).expect("a directory");
    }
    for number in 0..args.tables {
        let family = FamilyDescriptor::new("f").expect("a name");
        let descriptor = TableDescriptor::new(table(number)).with_family(family);
        let (dir, bytes) = (layout::table_desc_dir(&root, descriptor.name()), descriptor.encode_file());
        env.fs.create_dir_all(&dir).expect("a directory of its own");
        let name = layout::table_info_name(1, bytes.len());
        env.fs.replace(&dir.join(name), &bytes).expect("a file of its own");
    }
    let state = State {
        online,
        recovering: BTreeSet::new(),
        draining: BTreeSet::new(),
        meta_before: Vec::new(),
        namespaces: Vec::new(),
        store: Vec::new(),
        opened: 0,
        meta_puts: 0,
    };
    let models = Arc::new(Models { env: env.clone(), state: Mutex::new(state) });
    let before = used(&clock);
    models.state.lock().meta_before = meta_rows(&args);
    println!("{} servers, {} regions, {} tables", args.servers, args.regions, args.tables);

    let services = Arc::new(Services(models.clone()));
    let services = ClusterServices {
        servers: services.clone(),
        files: services.clone(),
        system_tables: services.clone(),
        wals: WalFiles { env: env.clone(), root: root.clone(), is_root: true },
        replication: None,
        quotas: None,
        coordination: services,
    };
    let mut settings = MasterSettings::new(ServerName::new("m", 16000, 1));
    (settings.procedure_threads, settings.region_threads) = (16, 32); // as `halcyon master`
    let begun_ns = clock.monotonic_ns();
    let master = Master::start(env.clone(), &root, settings, services).expect("the start");
    println!("start of the master: {:.2?}", since(begun_ns));
    let bytes = used(&clock).saturating_sub(before);
    println!("memory of the master: {} bytes a region", bytes / args.regions as u64);
    let opened = models.state.lock().opened;
    println!("regions that the start opened: {opened} (hbase:meta and hbase:namespace)");

    match args.decommission {
        true => decommissioned(&models, &master, &clock),
        false => dies(&models, &master, &clock, &server(args.servers / 2)),
    }
    let begun_ns = clock.monotonic_ns();
    let (_, moves, _) = master.balance(true);
    println!("a look of the balancer: {:.2?}, {moves} moves", since(begun_ns));
    master.stop();
}

fn wals_of(server: &ServerName) -> PathBuf {
    layout::wals_dir(Path::new(ROOT)).join(server.to_string())
}

/// A server dies: its WAL is there, and it has nothing open. Returns how many regions it had.
fn kill(models: &Models, dead: &ServerName) -> usize {
    models.env.fs.replace(&wals_of(dead).join(format!("{dead}.1")), b"edits").expect("a file");
    let mut state = models.state.lock();
    state.recovering.insert(dead.clone());
    state.online.remove(dead).expect("it is online").len()
}

/// Until `is_over`, with the look for dead servers that the process has each second.
fn wait(master: &Master, clock: &SystemClock, is_over: impl Fn() -> bool) {
    let mut looked_ns = clock.monotonic_ns();
    while !is_over() {
        clock.sleep(Duration::from_millis(1));
        if clock.monotonic_ns() - looked_ns > LOOK_NS {
            master.recover_dead_servers();
            looked_ns = clock.monotonic_ns();
        }
    }
}

fn dies(models: &Models, master: &Master, clock: &SystemClock, dead: &ServerName) {
    let opened = models.state.lock().opened;
    let count = kill(models, dead);
    let begun_ns = clock.monotonic_ns();
    master.recover_dead_servers();
    wait(master, clock, || master.procedures().is_empty());
    let took = Duration::from_nanos(clock.monotonic_ns() - begun_ns);
    println!("{count} regions of a dead server open elsewhere: {took:.2?}");
    let state = models.state.lock();
    assert_eq!(state.opened - opened, count, "each region opened once");
    let most = state.online.values().map(BTreeMap::len).max().unwrap_or(0);
    let least = state.online.values().map(BTreeMap::len).min().unwrap_or(0);
    println!("regions of a server now: {least} to {most}; writes to hbase:meta: {}", state.meta_puts);
}

/// The server with most regions of those without `hbase:meta`, and how many it has.
fn fullest(models: &Models) -> (ServerName, usize) {
    let state = models.state.lock();
    let others = state.online.iter().filter(|(server, regions)| {
        !state.draining.contains(*server) && !regions.values().any(RegionInfo::is_meta)
    });
    let (server, regions) = others.max_by_key(|(_, regions)| regions.len()).expect("there are three servers");
    (server.clone(), regions.len())
}

/// Regions that are open.
fn open_count(models: &Models) -> usize {
    models.state.lock().online.values().map(BTreeMap::len).sum()
}

fn decommissioned(models: &Models, master: &Master, clock: &SystemClock) {
    let since = |begun_ns: u64| Duration::from_nanos(clock.monotonic_ns() - begun_ns);
    let left = |server: &ServerName| models.state.lock().online.get(server).map_or(0, BTreeMap::len);
    let (all, (first, had)) = (open_count(models), fullest(models));

    let begun_ns = clock.monotonic_ns();
    master.decommission(std::slice::from_ref(&first), true).expect("it is online");
    println!("a server with {had} regions is decommissioned: the call takes {:.2?}", since(begun_ns));
    wait(master, clock, || left(&first) <= had - had / 10);
    println!("{} of its regions have moved: {:.2?}", had - left(&first), since(begun_ns));
    let lost = kill(models, &first);
    let begun_ns = clock.monotonic_ns();
    master.recover_dead_servers();
    wait(master, clock, || open_count(models) == all && models.state.lock().recovering.is_empty());
    println!("it dies: its {lost} regions are open elsewhere after {:.2?}", since(begun_ns));
    wait(master, clock, || master.procedures().is_empty());
    println!("no procedure is left: {:.2?}", since(begun_ns));

    let (second, had) = fullest(models);
    let begun_ns = clock.monotonic_ns();
    master.decommission(std::slice::from_ref(&second), true).expect("it is online");
    wait(master, clock, || left(&second) == 0);
    println!("another server is decommissioned: its {had} regions have moved after {:.2?}", since(begun_ns));
    wait(master, clock, || open_count(models) == all && master.procedures().is_empty());
}
