//! Region servers that a cluster waits for when it starts as a whole.

use super::*;

/// So long no test waits.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// The next server at the address of one.
fn next(number: u16) -> ServerName {
    ServerName::new("h", 16020 + number, 2)
}

/// A cluster whose master and three servers have ended.
fn ended() -> (Arc<Servers>, BTreeMap<String, u16>) {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let ports = ports(&c);
    assert_eq!(ports.values().collect::<BTreeSet<_>>().len(), 3);
    let servers = c.servers.clone();
    c.master.stop();
    (0..3).for_each(|number| servers.kill(&name(number)));
    (servers, ports)
}

/// Where each region is.
fn ports(c: &Many) -> BTreeMap<String, u16> {
    let port = |server: String| ServerName::parse(&server).unwrap().port;
    c.places().into_iter().map(|(region, (server, _))| (region, port(server))).collect()
}

fn waiting(settle: Duration, max: Option<usize>) -> MasterSettings {
    MasterSettings { servers_settle: settle, servers_max: max, ..settings() }
}

#[test]
fn regions_return_to_addresses_whose_servers_come_last() {
    let (servers, before) = ended();
    servers.join(&next(0));
    let joining = servers.clone();
    let joins = std::thread::spawn(move || {
        for number in [2, 1] {
            std::thread::sleep(Duration::from_millis(50));
            joining.join(&next(number));
        }
    });
    let c = Many::over_with(servers, waiting(FOR_EVER, None));
    joins.join().unwrap();
    c.settles("t", 9);
    assert_eq!(ports(&c), before);
}

#[test]
fn a_server_that_does_not_come_back_is_waited_for_until_no_other_has_come_for_a_while() {
    let (servers, before) = ended();
    [0, 2].into_iter().for_each(|number| servers.join(&next(number)));
    let (begun, settle) = (Instant::now(), Duration::from_millis(300));
    let c = Many::over_with(servers, waiting(settle, None));
    assert!(begun.elapsed() >= settle);
    c.settles("t", 9);
    let lost = name(1).port;
    let kept = ports(&c).into_iter().filter(|(region, _)| before[region] != lost);
    assert!(kept.into_iter().all(|(region, port)| before[&region] == port), "regions of the others are back");
}

#[test]
fn enough_servers_end_the_wait() {
    let (servers, _) = ended();
    [0, 2].into_iter().for_each(|number| servers.join(&next(number)));
    let c = Many::over_with(servers, waiting(FOR_EVER, Some(2)));
    c.settles("t", 9);
}

#[test]
fn a_cluster_that_runs_waits_for_nobody() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let servers = c.servers.clone();
    c.master.stop();
    servers.kill(&name(1));
    let c = Many::over_with(servers, waiting(FOR_EVER, None));
    c.settles("t", 9);
}

/// Servers that had joined and had no znode yet counted as those that had come back, and their regions opened elsewhere.
#[test]
fn servers_are_waited_for_until_they_may_get_regions() {
    let (servers, before) = ended();
    [0, 1, 2].into_iter().for_each(|number| servers.join(&next(number)));
    servers.state.lock().without_session.extend([next(1), next(2)]);
    let joining = servers.clone();
    let joins = std::thread::spawn(move || {
        for number in [2, 1] {
            std::thread::sleep(Duration::from_millis(50));
            joining.state.lock().without_session.remove(&next(number));
        }
    });
    let c = Many::over_with(servers, waiting(FOR_EVER, None));
    joins.join().unwrap();
    c.settles("t", 9);
    assert_eq!(ports(&c), before);
}
