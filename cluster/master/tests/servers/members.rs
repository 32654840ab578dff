//! Servers that the master does not see whole: their WALs are elsewhere, or they live although they were declared dead.

use super::*;

/// Longer than a recovery takes here.
const LEASE: Duration = Duration::from_millis(700);

fn wals_of(server: &ServerName) -> std::path::PathBuf {
    layout::wals_dir(Path::new(ROOT)).join(server.to_string())
}

/// A server whose `hbase.wal.dir` was another one said that it finds no WAL. The master took that for done: it archived the WAL, and
/// opened the regions without what was in it.
#[test]
fn a_server_that_does_not_see_a_wal_has_not_split_it() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    c.servers.state.lock().elsewhere.insert(name(1));
    c.servers.kill(&name(0));
    c.master.recover_dead_servers();
    c.settles("t", 9);
    let split = c.servers.state.lock().split.clone();
    assert_eq!(split.iter().filter(|wal| wal.starts_with("h,16020,1.")).count(), 2, "{split:?}");
}

/// If nobody sees it, it stays, and so do the regions.
#[test]
fn a_wal_that_no_server_sees_is_not_given_up() {
    let c = Many::new(env(), 2);
    c.create(&KEYS);
    let other = c.servers.state.lock().meta.clone().unwrap();
    let dead = [name(0), name(1)].into_iter().find(|it| *it != other).unwrap();
    let before = c.servers.regions_at(&other);
    c.servers.state.lock().elsewhere.insert(other.clone());
    c.servers.kill(&dead);
    c.master.recover_dead_servers();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(c.servers.regions_at(&other), before, "the regions of the dead one wait");
    let procedures = c.master.procedures();
    assert!(procedures.iter().any(|it| it.state.contains("the same hbase.wal.dir?")), "{procedures:?}");
    let hbck = halcyon_master::HbckService::new(c.master.clone()).unwrap();
    let _: pb::RunHbckChoreResponse =
        answer(&hbck, "RunHbckChore", &pb::RunHbckChoreRequest::default()).unwrap();
    let problems = c.master.hbck_report().unwrap().1;
    assert!(problems.iter().any(|it| it.contains("cannot be split")), "{problems:?}");
    let splitting = wals_of(&dead).with_file_name(format!("{dead}-splitting"));
    assert_eq!(c.servers.env.fs.list(&splitting).unwrap().len(), 2);
    c.servers.state.lock().elsewhere.clear();
    c.settles("t", 9);
}

/// With WALs on a disk of its own a server got regions and acknowledged writes. When it died there was nothing for the master to see.
#[test]
fn a_server_gets_no_regions_before_the_master_sees_its_wals() {
    let c = Many::new(env(), 2);
    c.servers.join(&name(2));
    c.servers.env.fs.remove_dir_all(&wals_of(&name(2))).unwrap();
    c.create(&KEYS);
    assert_eq!(c.servers.regions_at(&name(2)), 0);
    // Nor is it asked to split the WALs of others: one of HBase would say that it has, of a WAL that it does not see.
    c.die(&name(0));
    c.settles("t", 9);
    c.quiet();
    assert_eq!(c.servers.regions_at(&name(2)), 0);
    // It was only slow to make it.
    c.servers.env.fs.create_dir_all(&wals_of(&name(2))).unwrap();
    std::thread::sleep(Duration::from_millis(30)); // it is not looked for all the time
    let _: pb::CreateTableResponse = c.call("CreateTable", &create(&table("later", &["f"]), &KEYS));
    c.settles("later", 9);
    assert!(!c.servers.state.lock().online[&name(2)].is_empty());
}

/// A packet filter refused the master's connections to a server that lived. Its regions were opened elsewhere while it went on answering
/// gets from memory, for as long as its session lived.
#[test]
fn regions_wait_for_the_lease_of_a_server_that_may_live() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    for with_meta in [false, true] {
        let meta = c.servers.state.lock().meta.clone().unwrap();
        let dead =
            if with_meta { meta } else { [name(0), name(1)].into_iter().find(|it| *it != meta).unwrap() };
        c.servers.state.lock().leases.insert(dead.clone(), LEASE);
        let at_dead: Vec<String> = c.servers.state.lock().online[&dead].keys().cloned().collect();
        let begun = Instant::now();
        c.servers.kill(&dead);
        c.master.recover_dead_servers();
        c.settles("t", 9);
        let state = c.servers.state.lock();
        for region in &at_dead {
            assert!(state.opened_at[region] >= begun + LEASE, "{region} is read at two servers");
        }
        assert_eq!(state.deposed.last(), Some(&dead));
        drop(state);
        c.quiet();
        c.servers.join(&ServerName::new("h", dead.port, 2));
    }
}

/// The master that has taken the znode is gone; the next one finds a note of it.
#[test]
fn a_master_that_takes_over_waits_for_the_lease_too() {
    let c = Many::new(env(), 2);
    c.create(&KEYS);
    let servers = c.servers.clone();
    c.master.stop();
    servers.state.lock().leases.insert(name(0), LEASE);
    let at_dead: Vec<String> = servers.state.lock().online[&name(0)].keys().cloned().collect();
    servers.kill(&name(0));
    let begun = Instant::now();
    let c = Many::over(servers);
    c.settles("t", 9);
    let state = c.servers.state.lock();
    assert!(at_dead.iter().all(|region| state.opened_at[region] >= begun + LEASE));
    assert!(state.leases.is_empty(), "the note is gone");
}

/// A server without `hbase:meta` and `hbase:namespace`.
fn ordinary(c: &Many) -> ServerName {
    let state = c.servers.state.lock();
    let is_ordinary = |regions: &BTreeMap<String, RegionInfo>| {
        regions.values().all(|region| !region.is_meta() && !region.table().is_system())
    };
    state.online.iter().find(|(_, regions)| is_ordinary(regions)).expect("three are enough").0.clone()
}

/// While the master lived only the regions of that server were closed. The next one did not start.
#[test]
fn a_wal_that_nobody_can_split_keeps_no_master_from_starting() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let (dead, servers) = (ordinary(&c), c.servers.clone());
    c.master.stop();
    let there = 9 - servers.regions_at(&dead);
    servers.state.lock().damaged.insert(format!("{dead}.1"));
    servers.kill(&dead);
    let c = Many::over(servers);
    c.master.recover_dead_servers();
    let _: pb::CreateTableResponse = c.call("CreateTable", &create(&table("later", &["f"]), &[]));
    let open_at = |table: &str| -> usize {
        let state = c.servers.state.lock();
        state.online.values().flat_map(BTreeMap::values).filter(|it| it.table().to_string() == table).count()
    };
    let begun = Instant::now();
    while open_at("later") == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", c.master.procedures());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(open_at("t"), there, "those of the dead server wait");
    // They would have the locks of their tables for as long as that lasts.
    let procedures = c.master.procedures();
    assert!(procedures.iter().all(|it| it.name != "TransitRegionStateProcedure"), "{procedures:?}");
    let hbck = halcyon_master::HbckService::new(c.master.clone()).unwrap();
    let _: pb::RunHbckChoreResponse =
        answer(&hbck, "RunHbckChore", &pb::RunHbckChoreRequest::default()).unwrap();
    let problems = c.master.hbck_report().unwrap().1;
    assert!(problems.iter().any(|it| it.contains("cannot be split")), "{problems:?}");
    c.servers.state.lock().damaged.clear();
    let begun = Instant::now();
    while open_at("t") < 9 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", c.master.procedures());
        c.master.recover_dead_servers(); // as the process does now and then
        std::thread::sleep(Duration::from_millis(5));
    }
    c.settles("t", 9);
}

/// The server of namespaces has such a WAL, or that of `hbase:meta`, of which only the WAL of meta is needed.
#[test]
fn a_start_waits_for_no_server_of_namespaces_and_for_one_wal_of_meta() {
    for system in ["hbase:namespace", "hbase:meta"] {
        let c = Many::new(env(), 3);
        c.create(&KEYS);
        let servers = c.servers.clone();
        let dead = {
            let state = servers.state.lock();
            let has = |regions: &BTreeMap<String, RegionInfo>| {
                regions.values().any(|region| region.table().to_string() == system)
            };
            state.online.iter().find(|(_, regions)| has(regions)).expect("it is open").0.clone()
        };
        c.master.stop();
        servers.state.lock().damaged.insert(format!("{dead}.1"));
        servers.kill(&dead);
        let c = Many::over(servers);
        c.master.recover_dead_servers();
        let list = || {
            let request = pb::ListNamespaceDescriptorsRequest::default();
            answer::<pb::ListNamespaceDescriptorsResponse>(&c.service, "ListNamespaceDescriptors", &request)
        };
        if system == "hbase:namespace" {
            assert_eq!(list().unwrap_err().class, "org.apache.hadoop.hbase.PleaseHoldException");
            let made = create(&table("later", &["f"]), &[]);
            let refused = answer::<pb::CreateTableResponse>(&c.service, "CreateTable", &made).unwrap_err();
            assert_eq!(refused.class, "org.apache.hadoop.hbase.PleaseHoldException");
        }
        c.servers.state.lock().damaged.clear();
        let begun = Instant::now();
        while list().map_or(0, |listed| listed.namespace_descriptor.len()) < 2 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", c.master.procedures());
            c.master.recover_dead_servers(); // as the process does now and then
            std::thread::sleep(Duration::from_millis(5));
        }
        c.settles("t", 9);
    }
}

/// Its procedure was bypassed, while a region could not be closed.
#[test]
fn a_table_that_is_left_disabling_keeps_no_master_from_starting() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let (dead, servers) = (ordinary(&c), c.servers.clone());
    servers.state.lock().damaged.insert(format!("{dead}.1"));
    servers.kill(&dead);
    c.master.recover_dead_servers();
    let disable =
        pb::DisableTableRequest { table_name: table("t", &["f"]).name().to_pb(), ..Default::default() };
    let begun: pb::DisableTableResponse = c.call("DisableTable", &disable);
    let states = || c.master.table_states();
    let since = Instant::now();
    while format!("{:?}", states()["t"]) != "Disabling" {
        assert!(since.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
    let hbck = halcyon_master::HbckService::new(c.master.clone()).unwrap();
    let bypass = pb::BypassProcedureRequest {
        proc_id: vec![begun.proc_id()],
        r#override: Some(true),
        ..Default::default()
    };
    let bypassed: pb::BypassProcedureResponse = answer(&hbck, "BypassProcedure", &bypass).unwrap();
    assert_eq!(bypassed.bypassed, [true]);
    while c.master.procedures().iter().any(|it| it.id == begun.proc_id()) {
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", c.master.procedures());
        std::thread::sleep(Duration::from_millis(1));
    }
    c.master.stop();
    let c = Many::over(servers);
    c.servers.state.lock().damaged.clear();
    while format!("{:?}", c.master.table_states()["t"]) != "Disabled" {
        assert!(since.elapsed() < Duration::from_secs(40), "{:?}", c.master.procedures());
        c.master.recover_dead_servers();
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// It was set aside, with the locks of the server: the master lived, and its regions stayed closed.
#[test]
fn a_recovery_that_fails_in_an_assertion_is_repeated() {
    for had_meta in [false, true] {
        let c = Many::new(env(), 3);
        c.create(&KEYS);
        let meta = c.servers.state.lock().meta.clone().unwrap();
        c.servers.state.lock().assertions = 2;
        c.die(&if had_meta { meta } else { ordinary(&c) });
        c.settles("t", 9);
        assert_eq!(c.servers.state.lock().assertions, 0);
        c.quiet();
    }
}

/// Each recovery began with a wait on a thread of its own, so the leases of many servers passed one after the other, and a master that
/// ended waited for them.
#[test]
fn the_leases_of_many_servers_pass_at_the_same_time() {
    const SERVERS: u16 = 30;
    for stops in [false, true] {
        let settings = MasterSettings { procedure_threads: 2, ..settings() };
        let c = Many::over_with(Servers::new(env(), SERVERS), settings);
        c.create(&KEYS);
        let meta = c.servers.state.lock().meta.clone().unwrap();
        let dead: Vec<ServerName> = (0..SERVERS - 1).map(name).filter(|server| *server != meta).collect();
        let lease = if stops { Duration::from_secs(60) } else { Duration::from_secs(1) };
        for server in &dead {
            c.servers.state.lock().leases.insert(server.clone(), lease);
            c.servers.kill(server);
        }
        c.master.recover_dead_servers();
        let deposed: BTreeSet<ServerName> = c.servers.state.lock().deposed.iter().cloned().collect();
        assert!(dead.iter().all(|server| deposed.contains(server)));
        let begun = Instant::now();
        if stops {
            std::thread::sleep(Duration::from_millis(100));
            c.master.stop();
            assert!(begun.elapsed() < lease / 2, "{:?}", begun.elapsed());
        } else {
            c.settles("t", 9);
            assert!(begun.elapsed() < 8 * lease, "{:?}", begun.elapsed());
        }
    }
}

/// What an operator is shown by `hbck_chore_run`.
fn problems(c: &Many) -> Vec<String> {
    let hbck = halcyon_master::HbckService::new(c.master.clone()).unwrap();
    let _: pb::RunHbckChoreResponse =
        answer(&hbck, "RunHbckChore", &pb::RunHbckChoreRequest::default()).unwrap();
    c.master.hbck_report().unwrap().1
}

/// A WAL that an operator had moved away was named until the master ended, and one that could not be split for a moment was shown with
/// the advice to give up what is in it.
#[test]
fn a_wal_that_is_moved_away_is_not_shown_any_more() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let dead = ordinary(&c);
    let wal = format!("{dead}.1");
    c.servers.state.lock().damaged.insert(wal.clone());
    c.servers.kill(&dead);
    c.master.recover_dead_servers();
    let begun = Instant::now();
    let named = |c: &Many| problems(c).into_iter().find(|it| it.contains(&wal));
    while named(&c).is_none_or(|it| !it.contains("halcyon set-wal-aside")) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", problems(&c));
        std::thread::sleep(Duration::from_millis(5));
    }
    // Moved away, as that command does; the double takes it for split.
    let path = wals_of(&dead).with_file_name(format!("{dead}-splitting")).join(&wal);
    c.servers.state.lock().split.push(wal.clone());
    c.servers.env.fs.remove_file(&path).unwrap();
    c.settles("t", 9);
    c.quiet();
    assert_eq!(named(&c), None);
}

#[test]
fn a_wal_that_waits_for_a_server_is_not_to_be_given_up() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let dead = ordinary(&c);
    c.servers.state.lock().elsewhere.extend([name(0), name(1), name(2)]);
    c.servers.kill(&dead);
    c.master.recover_dead_servers();
    let begun = Instant::now();
    while !problems(&c).iter().any(|it| it.contains("cannot be split")) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", problems(&c));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!problems(&c).iter().any(|it| it.contains("set-wal-aside")), "{:?}", problems(&c));
    c.servers.state.lock().elsewhere.clear();
    c.settles("t", 9);
}

/// The note of a dead server stayed for ever if it could not be deleted in the moment in which the server was recovered.
#[test]
fn notes_of_deposed_servers_are_deleted_later() {
    for takes_over in [false, true] {
        let c = Many::new(env(), 3);
        c.create(&KEYS);
        let dead = ordinary(&c);
        {
            let mut state = c.servers.state.lock();
            state.leases.insert(dead.clone(), Duration::from_millis(50));
            state.cannot_forget = true;
        }
        c.servers.kill(&dead);
        c.master.recover_dead_servers();
        c.settles("t", 9);
        c.quiet();
        assert!(c.servers.state.lock().leases.contains_key(&dead));
        c.servers.state.lock().cannot_forget = false;
        let c = match takes_over {
            true => {
                c.master.stop();
                Many::over(c.servers)
            }
            false => c,
        };
        let begun = Instant::now();
        while !c.servers.state.lock().leases.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the note stays");
            c.master.recover_dead_servers();
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Kills a server with a WAL that no server can read; returns the name of that.
fn dies_damaged(c: &Many, dead: &ServerName) -> String {
    let wal = format!("{dead}.1");
    c.servers.state.lock().damaged.insert(wal.clone());
    c.servers.kill(dead);
    c.master.recover_dead_servers();
    wal
}

/// A change of namespace `hbase` held its lock and waited for `hbase:namespace`, and the opening of that waited for the lock.
#[test]
fn the_table_of_namespaces_opens_while_a_namespace_is_changed() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let has_it = |regions: &BTreeMap<String, RegionInfo>| {
        regions.values().any(|region| region.table().to_string() == "hbase:namespace")
    };
    let at = {
        let state = c.servers.state.lock();
        state.online.iter().find(|(_, regions)| has_it(regions)).unwrap().0.clone()
    };
    dies_damaged(&c, &at);
    let mut descriptor = namespace("hbase");
    descriptor.configuration = vec![pb::NameStringPair { name: "a".into(), value: "b".into() }];
    let request = pb::ModifyNamespaceRequest { namespace_descriptor: descriptor, ..Default::default() };
    let _: pb::ModifyNamespaceResponse = c.call("ModifyNamespace", &request);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!c.master.procedures().is_empty(), "it waits");
    c.servers.state.lock().damaged.clear();
    c.settles("t", 9);
    c.quiet();
    assert!(c.servers.state.lock().online.values().any(has_it));
}

/// An alteration closed all regions of its table, and then waited for one whose server was dead.
#[test]
fn a_table_stays_open_while_one_of_its_regions_is_recovered() {
    // One after the other is reopened, so one is closed at a time.
    let c = Many::over_with(Servers::new(env(), 3), MasterSettings { region_threads: 1, ..settings() });
    c.create(&KEYS);
    let dead = ordinary(&c);
    let lost = c.servers.regions_at(&dead);
    assert!(lost > 0);
    dies_damaged(&c, &dead);
    // Of the regions at live servers: those that are open, and how often each was opened.
    let at_live_servers = || {
        let state = c.servers.state.lock();
        let open = state.online.values().flat_map(BTreeMap::values);
        let open: Vec<_> = open.filter(|region| region.table().to_string() == "t").cloned().collect();
        (open, state.opened_times.clone())
    };
    let (live, before) = at_live_servers();
    assert_eq!(live.len(), 9 - lost);
    let are_reopened = |times: &BTreeMap<String, usize>| {
        let times_more = |region: &RegionInfo| times[region.encoded_name()] - before[region.encoded_name()];
        assert!(live.iter().all(|region| times_more(region) <= 1), "each is reopened once: {times:?}");
        live.iter().all(|region| times_more(region) == 1)
    };
    let altered = modify(&table("t", &["f"]).with("a", "b"));
    let _: pb::ModifyTableResponse = c.call("ModifyTable", &altered);
    let begun = Instant::now();
    loop {
        let (open, times) = at_live_servers();
        assert!(
            open.len() + 1 >= live.len(),
            "those at live servers stay open, but for one that is reopened"
        );
        if are_reopened(&times) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{:#?}", c.master.procedures());
        std::thread::sleep(Duration::from_micros(100));
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(200) {
        let (open, times) = at_live_servers();
        assert_eq!(open.len(), 9 - lost, "those at live servers stay open");
        assert!(are_reopened(&times));
        std::thread::sleep(Duration::from_millis(5));
    }
    let waits = c.master.procedures().iter().any(|it| it.name == "ModifyTableProcedure");
    assert!(waits, "the alteration waits for the dead server");
    c.servers.state.lock().damaged.clear();
    c.settles("t", 9);
    c.quiet();
    assert!(are_reopened(&at_live_servers().1));
}
