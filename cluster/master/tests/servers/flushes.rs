//! Servers that die while the regions of a table are flushed.
//!
//! The order to flush ended with its server, which the master took for "a region that is not open has nothing in memory". A snapshot was
//! complete without writes that were acknowledged before it was asked for: they were in the WALs of the dead server alone.

use super::*;

/// What becomes of the WALs of the server that dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wals {
    /// They are not split before `damaged` is cleared.
    Damaged,
    /// They are split at once.
    Split,
}

/// A cluster in which a server with regions of "t" dies with the next order to flush one of them.
fn dies_with_flush(wals: Wals) -> Many {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let mut state = c.servers.state.lock();
    let is_ordinary = |regions: &BTreeMap<String, RegionInfo>| {
        let has_table = regions.values().any(|it| it.table().to_string() == "t");
        has_table && regions.values().all(|it| !it.is_meta() && !it.table().is_system())
    };
    let dying = state.online.iter().find(|(_, regions)| is_ordinary(regions)).expect("three are enough");
    state.dies_with_flush = Some((dying.0.clone(), wals == Wals::Split));
    drop(state);
    c
}

fn is_complete(c: &Many, snapshot: &str) -> bool {
    c.servers.env.fs.exists(&Path::new(ROOT).join(".hbase-snapshot").join(snapshot)).unwrap()
}

/// Whether each region is in its files, and none of a dead server in its WALs alone.
fn is_whole(c: &Many) -> bool {
    c.servers.state.lock().unreplayed.is_empty()
}

fn until(c: &Many, what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: {:#?}", c.master.procedures());
        c.master.recover_dead_servers(); // as the process does now and then
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the procedure waits for the WALs of a dead server; false if it has ended.
fn waits(c: &Many, procedure: &str) -> Option<bool> {
    let all = c.master.procedures();
    all.iter().find(|it| it.name == procedure).map(|it| it.state.contains("waits until the WALs of"))
}

#[test]
fn a_snapshot_waits_for_a_server_that_dies_while_it_flushes() {
    for kind in [pb::snapshot_description::Type::Flush, pb::snapshot_description::Type::Skipflush] {
        for wals in [Wals::Damaged, Wals::Split] {
            let c = dies_with_flush(wals);
            if kind == pb::snapshot_description::Type::Skipflush {
                c.servers.die_of_flush();
            }
            let mut request = snapshot("s", "t");
            request.snapshot.set_type(kind);
            let _: pb::SnapshotResponse = c.call("Snapshot", &request);
            if wals == Wals::Damaged {
                until(&c, "the snapshot waits", || {
                    assert!(!is_complete(&c, "s"), "it lacks what was in memory of a server that has died");
                    waits(&c, "SnapshotProcedure") == Some(true)
                });
                c.servers.state.lock().damaged.clear();
            }
            until(&c, "the snapshot is taken", || is_complete(&c, "s"));
            assert!(is_whole(&c), "{:?}", c.servers.state.lock().unreplayed);
            c.settles("t", KEYS.len() + 1);
            c.quiet();
        }
    }
}

#[test]
fn a_table_is_not_flushed_before_its_dead_server_is_recovered() {
    let c = dies_with_flush(Wals::Damaged);
    let _: pb::FlushTableResponse = c.call("FlushTable", &flush("t"));
    until(&c, "the flush waits", || waits(&c, "FlushTableProcedure").expect("it is not flushed"));
    c.servers.state.lock().damaged.clear();
    until(&c, "it is flushed", || waits(&c, "FlushTableProcedure").is_none());
    assert!(is_whole(&c), "{:?}", c.servers.state.lock().unreplayed);
    c.settles("t", KEYS.len() + 1);
    c.quiet();
}
