//! Groups that are damaged where they are kept, or older there than elsewhere.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::mpsc;

use bytes::Bytes;
use halcyon_cell::CellType;
use halcyon_env::{Clock, SystemClock};

use super::*;

/// The only region of `hbase:rsgroup`.
fn region_of_groups(servers: &Servers) -> RegionInfo {
    let rows = servers.disk.meta_rows();
    let row = rows.into_iter().find(|row| row[0].row().starts_with(b"hbase:rsgroup,")).unwrap();
    let cell = row.into_iter().find(|cell| cell.qualifier() == b"regioninfo").unwrap();
    RegionInfo::decode_value(cell.value()).unwrap()
}

/// Does something until it is not refused, and has the master look after its servers meanwhile, as the process does.
fn sooner_or_later<R>(c: &Many, act: impl Fn() -> Said<R>) -> R {
    let begun = Instant::now();
    loop {
        match act() {
            Ok(done) => return done,
            Err(error) => {
                assert!(begun.elapsed() < Duration::from_secs(30), "{error:?}: {:?}", c.master.procedures());
                c.master.recover_dead_servers();
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// The last master has ended, and `hbase:rsgroup` does not open.
fn next_without_the_table(c: Many) -> Many {
    let servers = c.servers.clone();
    c.master.stop();
    let dead = {
        let state = servers.state.lock();
        let has = |regions: &BTreeMap<String, RegionInfo>| {
            regions.values().any(|region| region.table().to_string() == "hbase:rsgroup")
        };
        state.online.iter().find(|(_, regions)| has(regions)).expect("it is open").0.clone()
    };
    servers.state.lock().refused_tables.insert("hbase:rsgroup".to_string());
    servers.kill(&dead);
    Many::over_with(servers, with_groups(false))
}

/// The table of groups could not be read, and a znode of a group made no sense: no master started.
#[test]
fn a_damaged_znode_of_a_group_keeps_no_master_from_starting() {
    let c = cluster(4);
    c.create(&KEYS);
    c.add("g").unwrap();
    c.move_servers(&[3], "g").unwrap();
    c.move_tables(&["t"], "g").unwrap();
    {
        let mut state = c.servers.state.lock();
        let odd =
            pb::TableName { namespace: Bytes::from_static(b"a/b"), qualifier: Bytes::from_static(b"\xff") };
        let shown = state.published_groups.as_mut().unwrap();
        shown.insert(0, pb::RsGroupInfo { name: "a b".to_string(), ..Default::default() });
        shown.push(pb::RsGroupInfo { name: "x".to_string(), tables: vec![odd], ..Default::default() });
    }
    let c = next_without_the_table(c);
    assert_eq!((c.group_of("t").as_deref(), c.members("x")), (Some("g"), None));
    c.servers.state.lock().refused_tables.clear();
    sooner_or_later(&c, || c.add("h"));
    let shown = c.servers.state.lock().published_groups.clone().unwrap();
    let shown: Vec<&str> = shown.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(shown, ["default", "g", "h"], "the znodes are written anew");
    c.settles("t", 9);
}

/// Anybody may write to the table. A row that made no sense kept each master from starting, so that nobody could repair it.
#[test]
fn a_damaged_row_of_a_group_keeps_no_master_from_starting() {
    let c = cluster(4);
    c.create(&KEYS);
    c.add("g").unwrap();
    c.move_servers(&[3], "g").unwrap();
    c.move_tables(&["t"], "g").unwrap();
    let servers = c.servers.clone();
    c.master.stop();
    let region = region_of_groups(&servers);
    let at_ms = SystemClock::new().now_ms();
    let broken = Cell::put(b"broken", b"m", b"i", at_ms, b"\xff\xff");
    servers.disk.put_rows(region.encoded_name(), vec![broken]).unwrap();
    let c = Many::over_with(servers, with_groups(false));
    assert_eq!(c.group_of("t").as_deref(), Some("g"));
    let refused = c.add("h").expect_err("what is not read is not changed");
    assert!(!refused.do_not_retry && refused.message.contains("the row is repaired"), "{refused:?}");
    let repaired = Cell::build(b"broken", b"m", b"", at_ms, CellType::DeleteFamily, b"", b"", 0);
    c.servers.disk.put_rows(region.encoded_name(), vec![repaired]).unwrap();
    sooner_or_later(&c, || c.add("h"));
    c.settles("t", 9);
    assert_eq!(c.servers_of_t(), names(&[3]));
}

/// A table was deleted by a master that knew groups only by their znodes. These did not have the last change: the table was in a group, and
/// stayed there. The next one of its name was at the servers of that group.
#[test]
fn a_table_is_not_forgotten_by_what_the_znodes_say() {
    let c = cluster(4);
    c.create(&KEYS);
    c.add("g").unwrap();
    c.move_servers(&[3], "g").unwrap();
    c.servers.state.lock().cannot_publish = true;
    c.move_tables(&["t"], "g").unwrap();
    let _: pb::DisableTableResponse = c.call("DisableTable", &disable("t"));
    c.quiet();
    let c = next_without_the_table(c);
    assert_eq!(c.group_of("t").as_deref(), Some("default"), "the znodes are older");
    let _: pb::DeleteTableResponse = c.call("DeleteTable", &delete("t"));
    std::thread::sleep(Duration::from_millis(200)); // its steps are tried meanwhile
    c.servers.state.lock().refused_tables.clear();
    c.servers.state.lock().cannot_publish = false;
    sooner_or_later(&c, || c.add("h"));
    c.quiet();
    assert_eq!(c.members("g"), Some((vec![3], vec![])));
}

/// The other way round: a table was made again that the znodes still had in the group that it asked for. So it was written nowhere.
#[test]
fn a_table_is_not_adopted_by_what_the_znodes_say() {
    let c = cluster(4);
    c.add("g").unwrap();
    c.move_servers(&[3], "g").unwrap();
    let named = table("t", &["f"]).with("hbase.rsgroup.name", "g");
    c.create_as(&named).unwrap();
    c.servers.state.lock().cannot_publish = true;
    let _: pb::DisableTableResponse = c.call("DisableTable", &disable("t"));
    c.quiet();
    let _: pb::DeleteTableResponse = c.call("DeleteTable", &delete("t"));
    c.quiet();
    let c = next_without_the_table(c);
    let _: pb::CreateTableResponse = c.call("CreateTable", &create(&named, &[]));
    std::thread::sleep(Duration::from_millis(200));
    c.servers.state.lock().refused_tables.clear();
    c.servers.state.lock().cannot_publish = false;
    sooner_or_later(&c, || c.add("h"));
    c.quiet();
    assert_eq!(c.members("g"), Some((vec![3], vec!["t".to_string()])));
    assert_eq!(c.servers_of_t(), names(&[3]));
}

/// An operator moved a table while the group of the same table was being looked for. He was told that it was in the group that he had
/// named, and then it was put into the other one.
#[test]
fn a_move_by_an_operator_is_not_undone_by_a_creation_under_way() {
    let asked = AtomicUsize::new(0);
    let ((reached, is_here), (leave, go_on)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    let go_on = Mutex::new(go_on);
    let mapping = move |table: &TableName| {
        if table.to_string() != "t" {
            return None;
        }
        // The first look is that of the check.
        if asked.fetch_add(1, Ordering::SeqCst) == 1 {
            reached.send(()).unwrap();
            _ = go_on.lock().recv_timeout(Duration::from_secs(30));
        }
        Some("mapped".to_string())
    };
    let settings = MasterSettings { group_mapping: GroupMapping::by(mapping), ..with_groups(false) };
    let c = Many::over_with(Servers::new(env(), 4), settings);
    for (group, server) in [("mapped", 2), ("moved", 3)] {
        c.add(group).unwrap();
        c.move_servers(&[server], group).unwrap();
    }
    let _: pb::CreateTableResponse = c.call("CreateTable", &create(&table("t", &["f"]), &[]));
    is_here.recv_timeout(Duration::from_secs(30)).expect("its group is looked for");
    c.move_tables(&["t"], "moved").unwrap();
    drop(leave);
    c.quiet();
    assert_eq!(c.group_of("t").as_deref(), Some("moved"));
    assert_eq!(c.servers_of_t(), names(&[3]));
}

/// A clock that is set back.
struct SetBack(SystemClock, Arc<AtomicI64>);

impl Clock for SetBack {
    fn now_ms(&self) -> i64 {
        self.0.now_ms() - self.1.load(Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.monotonic_ns()
    }

    fn boot_ns(&self) -> u64 {
        self.0.boot_ns()
    }

    fn sleep(&self, time: Duration) {
        self.0.sleep(time);
    }
}

/// The clock of the next master was behind. What it wrote was hidden by what the first one had written, and the master after it had the
/// groups of before.
#[test]
fn a_change_of_groups_by_a_master_whose_clock_is_behind_is_not_lost() {
    let behind_ms = Arc::new(AtomicI64::new(0));
    let clock: Arc<dyn Clock> = Arc::new(SetBack(SystemClock::new(), behind_ms.clone()));
    let c = Many::over_with(Servers::new(Env { clock, ..env() }, 3), with_groups(false));
    c.create(&[]);
    std::thread::sleep(Duration::from_secs(1)); // so that the newest timestamp of hbase:meta is older
    c.add("g").unwrap();
    c.move_servers(&[2], "g").unwrap();
    c.add("gone").unwrap();
    let servers = c.servers.clone();
    c.master.stop();
    behind_ms.store(3_600_000, Ordering::SeqCst);
    let c = Many::over_with(servers.clone(), with_groups(false));
    c.remove("gone").unwrap();
    c.move_servers(&[2], "default").unwrap();
    c.add("h").unwrap();
    c.master.stop();
    let c = Many::over_with(servers.clone(), with_groups(false));
    assert_eq!((c.members("gone"), c.members("g")), (None, Some((vec![], vec![]))));
    // A mark of a delete is no row, and hides what is written below it all the same.
    c.remove("h").unwrap();
    c.master.stop();
    let c = Many::over_with(servers.clone(), with_groups(false));
    c.add("h").unwrap();
    c.master.stop();
    let c = Many::over_with(servers, with_groups(false));
    assert_eq!(c.members("h"), Some((vec![], vec![])));
}
