//! Recovery while many moves wait for it.
//!
//! The limit of the queue once counted for recoveries, too. A server with more regions than the limit that was decommissioned, and died
//! meanwhile, was never recovered: each of its moves failed with "WALs are being split", for ever, and the recovery was refused. What
//! did not fit into the queue never moved.

use halcyon_contract::RegionServers as _;

use super::*;

fn keys(count: usize) -> Vec<&'static str> {
    let key = |number: usize| &*Box::leak(format!("{number:06}").into_boxed_str());
    (1..count).map(key).collect()
}

fn decommission(c: &Many, server: &ServerName) {
    let request = pb::DecommissionRegionServersRequest { server_name: vec![server.to_pb()], offload: true };
    let _: pb::DecommissionRegionServersResponse = c.call("DecommissionRegionServers", &request);
}

/// As the process does every second, until all regions of the table are open on live servers. Returns how long it took.
fn recovers(c: &Many, count: usize, within: Duration) -> Duration {
    let begun = Instant::now();
    loop {
        c.master.recover_dead_servers();
        let open = {
            let state = c.servers.state.lock();
            let open = state.online.values().flat_map(BTreeMap::values);
            open.filter(|region| region.table().to_string() == "t").count()
        };
        if open == count && View(c.servers.clone()).recovering().is_empty() {
            return begun.elapsed();
        }
        if begun.elapsed() > within {
            let first: Vec<_> = c.master.procedures().into_iter().take(5).collect();
            panic!("{open} of {count} regions are open: {first:#?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A server that has regions, and not `hbase:meta`.
fn victim(c: &Many) -> ServerName {
    let state = c.servers.state.lock();
    let meta = state.meta.clone().unwrap();
    let most = state.online.iter().filter(|(server, _)| **server != meta);
    most.max_by_key(|(_, regions)| regions.len()).unwrap().0.clone()
}

fn dies_with_moves_queued(procedures_max: usize) {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let servers = c.servers.clone();
    c.master.stop();
    let c = Many::over_with(servers, MasterSettings { procedures_max, ..settings() });
    c.quiet();
    let dead = victim(&c);
    c.servers.state.lock().is_stalled = true;
    decommission(&c, &dead);
    // It dies while its regions are being moved.
    c.servers.kill(&dead);
    c.servers.state.lock().is_stalled = false;
    recovers(&c, KEYS.len() + 1, Duration::from_secs(20));
}

#[test]
fn a_full_queue_takes_recoveries() {
    dies_with_moves_queued(10);
    dies_with_moves_queued(1);
}

/// All that a decommission moves moves, however little fits into the queue.
#[test]
fn a_decommissioned_server_is_left_by_all_regions() {
    let c = Many::new(env(), 3);
    c.create(&keys(60));
    let servers = c.servers.clone();
    c.master.stop();
    let c = Many::over_with(servers, MasterSettings { procedures_max: 2, ..settings() });
    c.quiet();
    let server = victim(&c);
    assert!(c.servers.regions_at(&server) > 10);
    decommission(&c, &server);
    let begun = Instant::now();
    while c.servers.regions_at(&server) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{} regions stay", c.servers.regions_at(&server));
        std::thread::sleep(Duration::from_millis(5));
    }
    c.settles("t", 60);
}

/// A server with many regions is decommissioned and dies.
fn many_regions(count: usize) {
    let c = Many::new(env(), 3);
    c.create(&keys(count));
    let dead = victim(&c);
    let (its, begun) = (c.servers.regions_at(&dead), Instant::now());
    decommission(&c, &dead);
    let asked = begun.elapsed();
    c.servers.kill(&dead);
    let took = recovers(&c, count, Duration::from_secs(500));
    eprintln!(
        "{count} regions, {its} of them on the server: decommissioned in {asked:?}, recovered in {took:?}"
    );
    assert!(asked < Duration::from_secs(5), "a decommission does not wait for its moves: {asked:?}");
}

#[test]
fn a_decommissioned_server_with_many_regions_dies() {
    many_regions(150);
}
