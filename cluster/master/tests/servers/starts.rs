//! Starts of a master that something of no concern to most of the cluster must not hold up.

use std::sync::mpsc;

use halcyon_env::{Clock, SystemClock};

use super::*;

/// Faster than that of the machine.
struct FastClock(SystemClock, Instant);

impl FastClock {
    const FACTOR: u32 = 60;

    fn ns(&self) -> u64 {
        (self.1.elapsed() * FastClock::FACTOR).as_nanos() as u64 + 1
    }
}

impl Clock for FastClock {
    fn now_ms(&self) -> i64 {
        self.0.now_ms() + i64::from(FastClock::FACTOR - 1) * self.1.elapsed().as_millis() as i64
    }

    fn monotonic_ns(&self) -> u64 {
        self.ns()
    }

    fn boot_ns(&self) -> u64 {
        self.ns()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time / FastClock::FACTOR);
    }
}

fn fast_env() -> Env {
    let clock: Arc<dyn Clock> = Arc::new(FastClock(SystemClock::new(), Instant::now()));
    Env { clock, ..env() }
}

/// A server with regions of the table, and without `hbase:meta` and `hbase:namespace`.
fn ordinary(c: &Many) -> ServerName {
    let state = c.servers.state.lock();
    let is_ordinary = |regions: &BTreeMap<String, RegionInfo>| {
        !regions.is_empty() && regions.values().all(|it| !it.is_meta() && !it.table().is_system())
    };
    state.online.iter().find(|(_, regions)| is_ordinary(regions)).expect("four are enough").0.clone()
}

fn server_of(servers: &Servers, table: &str) -> ServerName {
    let state = servers.state.lock();
    let has = |regions: &BTreeMap<String, RegionInfo>| {
        regions.values().any(|region| region.table().to_string() == table)
    };
    state.online.iter().find(|(_, regions)| has(regions)).expect("it is open").0.clone()
}

fn open_of(c: &Many, table: &str) -> usize {
    let state = c.servers.state.lock();
    state.online.values().flat_map(BTreeMap::values).filter(|it| it.table().to_string() == table).count()
}

/// Waits until something holds, and has the master look after its servers meanwhile, as the process does.
fn until(c: &Many, what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: {:?}", c.master.procedures());
        c.master.recover_dead_servers();
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn namespaces(c: &Many) -> usize {
    let request = pb::ListNamespaceDescriptorsRequest::default();
    let listed =
        answer::<pb::ListNamespaceDescriptorsResponse>(&c.service, "ListNamespaceDescriptors", &request);
    listed.map_or(0, |listed| listed.namespace_descriptor.len())
}

/// A server needs two minutes to find that a WAL cannot be sealed, because its DataNodes are away. A start asked each server in turn, before
/// it opened anything or recovered a server that died meanwhile.
#[test]
fn a_start_does_not_wait_for_a_wal_that_cannot_be_sealed() {
    let c = Many::new(fast_env(), 4);
    c.create(&KEYS);
    let (dead, servers) = (ordinary(&c), c.servers.clone());
    let lost = servers.regions_at(&dead);
    c.master.stop();
    {
        let mut state = servers.state.lock();
        state.unsealed.insert(format!("{dead}.1"));
        state.is_sealing = true;
    }
    servers.kill(&dead);
    let (sender, started) = mpsc::channel();
    let starting = servers.clone();
    std::thread::spawn(move || sender.send(Many::over(starting)));
    let c = started.recv_timeout(Duration::from_secs(60)).expect("the start waits for the WAL");
    until(&c, "the others are open", || open_of(&c, "t") == 9 - lost);
    let other = ordinary(&c);
    c.die(&other);
    until(&c, "a server that dies is recovered", || open_of(&c, "t") == 9 - lost);
    {
        let mut state = servers.state.lock();
        state.unsealed.clear();
        state.is_sealing = false;
    }
    until(&c, "the WAL is split", || open_of(&c, "t") == 9);
    c.settles("t", 9);
}

/// Each server that ever had `hbase:meta` has a WAL of it. What was in there is in files since it was opened elsewhere, but no master started
/// without it, although `hbase:meta` was open at a live server.
#[test]
fn a_start_does_not_wait_for_a_meta_wal_of_a_server_that_had_it_before() {
    let c = Many::new(fast_env(), 4);
    c.create(&KEYS);
    let (dead, servers) = (ordinary(&c), c.servers.clone());
    let lost = servers.regions_at(&dead);
    c.master.stop();
    {
        let mut state = servers.state.lock();
        state.unsealed.insert(format!("{dead}.2.meta"));
        state.is_sealing = true;
    }
    servers.kill(&dead);
    let (sender, started) = mpsc::channel();
    let starting = servers.clone();
    std::thread::spawn(move || sender.send(Many::over(starting)));
    let c = started.recv_timeout(Duration::from_secs(60)).expect("the start waits for the WAL");
    until(&c, "the others are open", || open_of(&c, "t") == 9 - lost);
    {
        let mut state = c.servers.state.lock();
        state.unsealed.clear();
        state.is_sealing = false;
    }
    until(&c, "the WAL is split", || open_of(&c, "t") == 9);
    c.settles("t", 9);
}

/// The server that had `hbase:meta` may have left several WALs of it: a file is rolled, or failed. All of them are split before it is opened.
#[test]
fn a_start_waits_for_all_meta_wals_of_the_server_that_had_it() {
    let c = Many::new(fast_env(), 4);
    c.create(&KEYS);
    let servers = c.servers.clone();
    let had_meta = servers.state.lock().meta.clone().unwrap();
    c.master.stop();
    let second = format!("{had_meta}.3.meta");
    let dir = layout::wals_dir(Path::new(ROOT)).join(had_meta.to_string());
    servers.env.fs.put_new(&dir.join(&second), b"edits").unwrap();
    servers.state.lock().damaged.insert(second.clone());
    servers.kill(&had_meta);
    let (sender, started) = mpsc::channel();
    let starting = servers.clone();
    std::thread::spawn(move || sender.send(Many::over(starting)));
    let waited = started.recv_timeout(Duration::from_secs(2)); // two minutes of the master's clock
    assert!(waited.is_err(), "hbase:meta is open without some of its edits");
    servers.state.lock().damaged.clear();
    let c = started.recv_timeout(Duration::from_secs(60)).expect("nothing is left to wait for");
    assert!(servers.state.lock().split.contains(&second));
    until(&c, "its regions are open", || open_of(&c, "t") == 9);
    c.settles("t", 9);
}

/// The WAL of `hbase:meta` could not be split at once. It was not tried again before all WALs of all other servers were, which may take long.
#[test]
fn a_start_that_has_failed_does_not_wait_for_other_servers() {
    const WALS: usize = 400;
    let c = Many::new(fast_env(), 4);
    c.create(&KEYS);
    let (servers, other) = (c.servers.clone(), ordinary(&c));
    let had_meta = servers.state.lock().meta.clone().unwrap();
    c.master.stop();
    let dir = layout::wals_dir(Path::new(ROOT)).join(other.to_string());
    for number in 0..WALS {
        servers.env.fs.put_new(&dir.join(format!("{other}.9{number:03}")), b"edits").unwrap();
    }
    {
        let mut state = servers.state.lock();
        state.damaged.insert(format!("{had_meta}.2.meta"));
        state.slow.insert(other.clone());
    }
    servers.kill(&had_meta);
    servers.kill(&other);
    let view = Arc::new(View(servers.clone()));
    let services = ClusterServices {
        servers: view.clone(),
        system_tables: view.clone(),
        coordination: view,
        ..services(&servers.disk)
    };
    let settings = MasterSettings { split_threads: 1, ..settings() };
    let started = Master::start(servers.env.clone(), Path::new(ROOT), settings, services);
    let split = servers.state.lock().split.len();
    assert!(started.is_err_and(|error| error.message().contains("2.meta")));
    assert!(split < WALS / 2, "it waited for {split} WALs of {other}");
    {
        let mut state = servers.state.lock();
        state.slow.clear();
        state.damaged.clear();
    }
    // What that start has begun ends by itself.
    let splitting = layout::wals_dir(Path::new(ROOT)).join(format!("{other}-splitting"));
    let begun = Instant::now();
    while !servers.env.fs.list(&splitting).unwrap().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it has not ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    let c = Many::over(servers);
    until(&c, "all is recovered", || open_of(&c, "t") == 9);
    c.settles("t", 9);
}

/// Each WAL came to the servers in turn, over all WALs. With two that could not be split and two servers, one of them came to the same
/// server in each attempt. That one failed after a long time, when no other one is asked.
#[test]
fn a_wal_comes_to_another_server_after_one_that_cannot_split_it() {
    for broken in 0..2 {
        let settings = MasterSettings { split_threads: 1, ..settings() };
        let c = Many::over_with(Servers::new(fast_env(), 3), settings);
        c.create(&KEYS);
        let dead = {
            let state = c.servers.state.lock();
            let meta = state.meta.clone().unwrap();
            state.online.keys().find(|server| **server != meta).unwrap().clone()
        };
        let live: Vec<ServerName> =
            c.servers.state.lock().online.keys().filter(|server| **server != dead).cloned().collect();
        let damaged = format!("{dead}.9");
        let dir = layout::wals_dir(Path::new(ROOT)).join(dead.to_string());
        c.servers.env.fs.put_new(&dir.join(&damaged), b"edits").unwrap();
        {
            let mut state = c.servers.state.lock();
            state.damaged.insert(damaged);
            state.cannot_split.insert(live[broken].clone());
        }
        c.die(&dead);
        let wal = format!("{dead}.1");
        until(&c, "a server that can split it is asked", || c.servers.state.lock().split.contains(&wal));
        let mut state = c.servers.state.lock();
        state.damaged.clear();
        state.cannot_split.clear();
        drop(state);
        until(&c, "all is recovered", || open_of(&c, "t") == 9);
        c.settles("t", 9);
    }
}

/// What one server waits for in HDFS, another one would wait for as well.
#[test]
fn a_wal_that_cannot_be_sealed_is_tried_by_one_server_at_a_time() {
    let c = Many::new(fast_env(), 4);
    c.create(&KEYS);
    let dead = ordinary(&c);
    c.servers.state.lock().unsealed.insert(format!("{dead}.1"));
    c.die(&dead);
    let begun = Instant::now();
    while c.servers.state.lock().seals < 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not tried again");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(c.master.procedures().iter().any(|it| it.is_failing), "the first attempt has not ended");
    c.servers.state.lock().unsealed.clear();
    until(&c, "the WAL is split", || open_of(&c, "t") == 9);
    c.settles("t", 9);
}

/// The master read namespaces as soon as the WALs of their server were split, and opened their table for that: at another server than the
/// procedure that did the same.
#[test]
fn the_table_of_namespaces_is_opened_once() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let servers = c.servers.clone();
    let dead = server_of(&servers, "hbase:namespace");
    c.master.stop();
    servers.state.lock().damaged.insert(format!("{dead}.1"));
    servers.kill(&dead);
    let c = Many::over(servers);
    c.master.recover_dead_servers();
    {
        let mut state = c.servers.state.lock();
        state.holds_opening = true;
        state.damaged.clear();
    }
    let begun = Instant::now();
    while !c.servers.state.lock().is_held {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", c.master.procedures());
        std::thread::sleep(Duration::from_millis(1));
    }
    c.master.recover_dead_servers();
    c.servers.state.lock().is_held = false;
    c.settles("t", 9);
    c.quiet();
    until(&c, "namespaces are read", || namespaces(&c) == 2);
    assert_eq!(open_of(&c, "hbase:namespace"), 1);
}

/// No master started, so no region of any table opened, and nobody answered the tools that repair it.
#[test]
fn a_damaged_table_of_namespaces_keeps_no_master_from_starting() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let servers = c.servers.clone();
    c.master.stop();
    servers.state.lock().refused_tables.insert("hbase:namespace".to_string());
    servers.kill(&server_of(&servers, "hbase:namespace"));
    let c = Many::over(servers);
    c.settles("t", 9);
    let made = create(&table("later", &["f"]), &[]);
    let refused = answer::<pb::CreateTableResponse>(&c.service, "CreateTable", &made).unwrap_err();
    assert_eq!(refused.class, "org.apache.hadoop.hbase.PleaseHoldException");
    c.servers.state.lock().refused_tables.clear();
    until(&c, "namespaces are read", || namespaces(&c) == 2);
    let _: pb::CreateTableResponse = c.call("CreateTable", &made);
    c.settles("t", 9);
}

/// ZooKeeper's data were lost, and with them the number of masters that there were. The records in HDFS seemed to be those of a later
/// master, and none took them. Nor did one while a directory of somebody else was among them.
#[test]
fn records_tell_how_many_masters_there_were() {
    let servers = Servers::new(env(), 3);
    let first = Many::over_with(servers.clone(), MasterSettings { epoch: 57, ..settings() });
    first.create(&KEYS);
    first.master.stop();
    let all = Path::new(ROOT).join("MasterData/procedures");
    let other = all.join("of-monday");
    servers.env.fs.create_dir_all(&other).unwrap();
    let highest = halcyon_master::highest_epoch(&servers.env, Path::new(ROOT)).unwrap();
    assert_eq!(highest, 57);
    let next = Many::over_with(servers.clone(), MasterSettings { epoch: highest + 1, ..settings() });
    next.settles("t", 9);
    assert_eq!(halcyon_master::highest_epoch(&servers.env, Path::new(ROOT)).unwrap(), 58);
    assert!(servers.env.fs.exists(&other).unwrap(), "it is not the master's");
    assert_eq!(servers.env.fs.list(&all).unwrap().len(), 2);
    assert_eq!(halcyon_master::highest_epoch(&servers.env, Path::new("/nothing")).unwrap(), 0);
}

/// A decommission that was taken back at once went on: each region had a move that waited for its turn.
#[test]
fn a_decommission_that_is_taken_back_leaves_regions_where_they_are() {
    const REGIONS: usize = 320;
    let c = Many::new(env(), 1);
    let keys: Vec<&'static str> = (1..REGIONS).map(|at| &*format!("{at:04}").leak()).collect();
    c.create(&keys);
    c.servers.join(&name(1));
    c.servers.state.lock().is_stalled = true;
    let request = pb::DecommissionRegionServersRequest { server_name: vec![name(0).to_pb()], offload: true };
    let _: pb::DecommissionRegionServersResponse = c.call("DecommissionRegionServers", &request);
    let request = pb::RecommissionRegionServerRequest { server_name: name(0).to_pb(), region: Vec::new() };
    let _: pb::RecommissionRegionServerResponse = c.call("RecommissionRegionServer", &request);
    c.servers.state.lock().is_stalled = false;
    c.quiet();
    c.settles("t", REGIONS);
    let stay = c.servers.regions_at(&name(0));
    assert!(stay >= REGIONS - 256, "{stay} regions stay");
}

/// A master took the place of one that lived, and ended the deletion of a table that the first was still at. The table was made again, and
/// the first one removed the directory of its name.
#[test]
fn a_table_is_deleted_when_the_master_before_cannot_be_at_it_any_more() {
    const LEASE: Duration = Duration::from_millis(700);
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let _: pb::DisableTableResponse = c.call("DisableTable", &disable("t"));
    c.quiet();
    let servers = c.servers.clone();
    c.master.stop();
    let begun = Instant::now();
    let until_ns = Some(servers.env.clock.boot_ns() + LEASE.as_nanos() as u64);
    let c = Many::over_with(servers, MasterSettings { predecessor_until_ns: until_ns, ..settings() });
    let _: pb::DeleteTableResponse = c.call("DeleteTable", &delete("t"));
    let _: pb::CreateTableResponse = c.call("CreateTable", &create(&table("other", &["f"]), &[]));
    c.quiet();
    assert!(begun.elapsed() >= LEASE, "it did not wait");
    assert!(!c.master.table_states().contains_key("t"));
}

/// An alteration had closed some regions of its table when the server of others died. Until the WALs of that were split, they stayed closed.
#[test]
fn regions_of_an_alteration_are_open_while_another_one_is_recovered() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let dying = ordinary(&c);
    let lost = c.servers.regions_at(&dying);
    c.servers.state.lock().dies_with_close = Some(dying.clone());
    let altered = modify(&table("t", &["f"]).with("a", "b"));
    let _: pb::ModifyTableResponse = c.call("ModifyTable", &altered);
    until(&c, "the server dies", || c.servers.state.lock().recovering.contains(&dying));
    until(&c, "the others are open", || open_of(&c, "t") == 9 - lost);
    assert!(!c.master.procedures().is_empty(), "the alteration waits");
    c.servers.state.lock().damaged.clear();
    c.master.recover_dead_servers(); // as the process does now and then
    c.settles("t", 9);
    c.quiet();
}
