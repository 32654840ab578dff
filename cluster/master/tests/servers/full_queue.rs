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

/// A master that takes the cluster over from one that was stopped while the moves of a decommissioned server waited.
fn decommissioned_before(settings_after: impl Fn(&Servers), servers: &[u16], count: u16) -> Many {
    let c = Many::new(env(), count);
    c.create(&keys(40));
    let all = c.servers.clone();
    c.master.stop();
    let c = Many::over_with(all.clone(), MasterSettings { procedures_max: 1, ..settings() });
    c.quiet();
    c.servers.state.lock().is_stalled = true;
    let server_name = servers.iter().map(|number| name(*number).to_pb()).collect();
    let request = pb::DecommissionRegionServersRequest { server_name, offload: true };
    let _: pb::DecommissionRegionServersResponse = c.call("DecommissionRegionServers", &request);
    c.master.stop_soon();
    c.servers.state.lock().is_stalled = false;
    c.master.stop();
    settings_after(&all);
    Many::over(all)
}

/// The moves of a decommissioned server that had not begun were forgotten with the master that was asked for them.
#[test]
fn a_master_that_takes_over_goes_on_with_a_decommission() {
    let c = decommissioned_before(|_| (), &[1], 3);
    assert!(c.servers.regions_at(&name(1)) > 5, "they have not all moved");
    let begun = Instant::now();
    while c.servers.regions_at(&name(1)) > 0 {
        c.master.recover_dead_servers();
        assert!(begun.elapsed() < Duration::from_secs(30), "{} regions stay", c.servers.regions_at(&name(1)));
        std::thread::sleep(Duration::from_millis(5));
    }
    c.settles("t", 40);
}

/// One that was decommissioned without that keeps its regions, and so does one if no other server may get them.
#[test]
fn regions_stay_where_nobody_wants_them_moved() {
    let only_drained = |servers: &Servers| servers.state.lock().offloading.clear();
    let all_drained = |_: &Servers| ();
    type Case<'a> = (&'a [u16], &'a dyn Fn(&Servers));
    let cases: [Case<'_>; 2] = [(&[1], &only_drained), (&[0, 1, 2], &all_drained)];
    for (servers, change) in cases {
        let c = decommissioned_before(change, servers, 3);
        c.master.recover_dead_servers();
        c.quiet();
        let (left, opens) = (c.servers.regions_at(&name(1)), c.servers.state.lock().opens);
        assert!(left > 5);
        for _ in 0..20 {
            c.master.recover_dead_servers();
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!((c.servers.regions_at(&name(1)), c.servers.state.lock().opens), (left, opens));
    }
}
