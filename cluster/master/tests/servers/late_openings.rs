//! Openings that take longer than the master waits.
//!
//! A server reports such an opening again and again until the master has taken it, and closes no region before. An alteration closed the
//! region once more, and each of the two waited for the other one, for ever, with the lock of the table.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

impl State {
    /// `Busy` while the opening of a region takes longer than the master waits. Otherwise whether one that has ended late was waited for.
    pub(super) fn late_opening(&mut self, server: &ServerName, region: &RegionInfo) -> Result<bool> {
        let busy = Err(Error::new(ErrorKind::Busy, format!("{region} was not opened in time")));
        let encoded = region.encoded_name().to_string();
        if let Some((at, _)) = self.opening.get(&encoded) {
            assert!(at == server, "{region} may be opened at {at}, and is to be opened at {server}");
            if self.opening_lasts {
                return busy;
            }
            self.opening.remove(&encoded);
            return Ok(true);
        }
        if self.opens_late.remove(&encoded) || self.opens_late.contains(&region.table().to_string()) {
            self.opening.insert(encoded.clone(), (server.clone(), region.clone()));
            *self.opened_times.entry(encoded).or_default() += 1;
            return busy;
        }
        Ok(false)
    }

    /// `Moved` for so many openings of copies.
    pub(super) fn refuse_copy(&mut self, region: &RegionInfo) -> Result<()> {
        if region.table().to_string() != "t" || !region.is_secondary() || self.refused_copies == 0 {
            return Ok(());
        }
        self.refused_copies -= 1;
        Err(Error::new(ErrorKind::Moved, "FAILED_OPEN"))
    }

    pub(super) fn is_opening_at(&self, server: &ServerName, region: &RegionInfo) -> bool {
        self.opening.get(region.encoded_name()).is_some_and(|(at, _)| at == server)
    }
}

/// Ends the reports, however the test ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// While `body` runs, servers report the openings that have ended late.
fn while_reported(c: &Many, body: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                report(c);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let _ends = Ends(&is_over);
        body();
    });
}

fn report(c: &Many) {
    let state = c.servers.state.lock();
    let ended = if state.opening_lasts { BTreeMap::new() } else { state.opening.clone() };
    let seq = state.opens as u64 * 10 + 5;
    drop(state);
    for (encoded, (server, region)) in ended {
        let verdict = c.master.opened_unasked(&server, &region, seq);
        let mut state = c.servers.state.lock();
        if verdict == Unasked::Later || !state.is_opening_at(&server, &region) {
            continue;
        }
        state.opening.remove(&encoded);
        if verdict == Unasked::Accepted {
            state.online.get_mut(&server).expect("it lives").insert(encoded, region);
        }
    }
}

fn regions_of(c: &Many) -> BTreeMap<RegionInfo, ServerName> {
    let state = c.servers.state.lock();
    let all = state
        .online
        .iter()
        .flat_map(|(at, regions)| regions.values().map(move |it| (it.clone(), at.clone())));
    all.filter(|(region, _)| region.table().to_string() == "t").collect()
}

fn wait_until(what: &str, c: &Many, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "never: {what}: {:?}", c.master.procedures());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn alter(c: &Many, comment: &str, replication: usize) {
    let table = table("t", &["f"]).with("COMMENT", comment);
    let table =
        if replication > 1 { table.with("REGION_REPLICATION", replication.to_string()) } else { table };
    let _: pb::ModifyTableResponse = c.call("ModifyTable", &modify(&table));
}

#[test]
fn an_alteration_ends_by_openings_that_end_late() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let names: BTreeSet<String> =
        regions_of(&c).keys().map(|region| region.encoded_name().to_string()).collect();
    let before = c.servers.state.lock().opened_times.clone();
    c.servers.state.lock().opens_late = names.clone();
    while_reported(&c, || {
        alter(&c, "another", 1);
        c.quiet();
    });
    c.settles("t", KEYS.len() + 1);
    let state = c.servers.state.lock();
    assert!(state.opening.is_empty() && state.opens_late.is_empty(), "{:?}", state.opening);
    let times: BTreeSet<usize> = names.iter().map(|name| state.opened_times[name] - before[name]).collect();
    assert_eq!(times, BTreeSet::from([1]), "none was closed and opened once more");
}

/// Its regions are being opened when a creation is given up.
#[test]
fn a_creation_that_is_given_up_ends_openings_that_end_late() {
    let c = Many::new(env(), 3);
    let set = |tables: &[&str], lasts| {
        let mut state = c.servers.state.lock();
        state.opens_late = tables.iter().map(ToString::to_string).collect();
        state.opening_lasts = lasts;
    };
    set(&["t"], true);
    let create = create(&table("t", &["f"]), &["b"]);
    let begun: pb::CreateTableResponse = c.call("CreateTable", &create);
    wait_until("both are being opened", &c, || c.servers.state.lock().opening.len() == 2);
    let abort = pb::AbortProcedureRequest { proc_id: begun.proc_id(), may_interrupt_if_running: Some(true) };
    let _: pb::AbortProcedureResponse = c.call("AbortProcedure", &abort);
    wait_until("one is being closed", &c, || c.servers.state.lock().waiting_closes > 0);
    set(&[], false);
    while_reported(&c, || c.quiet());
    let state = c.servers.state.lock();
    assert!(state.opening.is_empty(), "{:?}", state.opening);
    drop(state);
    assert_eq!((regions_of(&c), c.places()), (BTreeMap::new(), BTreeMap::new()));
}

/// It was asked of the same server again and again, and shown as OPEN there, because the state of the region was not OPENING.
#[test]
fn what_a_server_cannot_reopen_another_one_opens() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let refusing = regions_of(&c).into_values().next().unwrap();
    c.servers.state.lock().refusing.insert(refusing.clone());
    alter(&c, "another", 1);
    c.quiet();
    c.settles("t", KEYS.len() + 1);
    assert_eq!(c.servers.regions_at(&refusing), 0);
}

/// Its region was closed and opened again with each attempt for the copy.
#[test]
fn a_copy_that_does_not_open_closes_no_region() {
    let c = Many::new(env(), 4);
    c.create_with_copies(2, &["b", "c"]);
    let before = c.servers.state.lock().opened_times.clone();
    c.servers.state.lock().refused_copies = 5;
    alter(&c, "another", 2);
    c.quiet();
    c.settles_with_copies(2, 3);
    let state = c.servers.state.lock();
    assert_eq!(state.refused_copies, 0);
    let all = state.online.values().flat_map(BTreeMap::values).filter(|it| it.table().to_string() == "t");
    let times: BTreeSet<usize> =
        all.map(|it| state.opened_times[it.encoded_name()] - before[it.encoded_name()]).collect();
    assert_eq!(times, BTreeSet::from([1]));
}

/// A server opens a region anew that is shown as open there, and no order of this master waits for it.
#[test]
fn a_region_that_its_server_opens_anew_is_not_left_alone() {
    let c = Many::new(env(), 3);
    c.create(&["b"]);
    let (region, server) = regions_of(&c).into_iter().next().unwrap();
    {
        let mut state = c.servers.state.lock();
        let encoded = region.encoded_name().to_string();
        state.online.get_mut(&server).unwrap().remove(&encoded);
        state.opening.insert(encoded, (server.clone(), region.clone()));
    }
    report(&c);
    assert!(c.servers.state.lock().is_opening_at(&server, &region), "it does not serve yet");
    c.master.recover_dead_servers(); // as the process does now and then
    c.quiet();
    c.settles("t", 2);
    assert!(c.servers.state.lock().opening.is_empty());
    assert_eq!(regions_of(&c)[&region], server);
}

/// A close was ended by force. The region was closed later, and nobody opened it.
#[test]
fn a_region_that_was_left_while_it_closed_is_opened() {
    let c = Many::new(env(), 3);
    c.create(&["b"]);
    c.servers.state.lock().cannot_close = true;
    let (region, server) = regions_of(&c).into_iter().next().unwrap();
    let table = table("t", &["f"]).with("COMMENT", "another");
    let begun: pb::ModifyTableResponse = c.call("ModifyTable", &modify(&table));
    let is_closing = || c.master.regions_in_transition().iter().any(|it| it.state == "CLOSING");
    wait_until("regions are shown as CLOSING", &c, is_closing);
    let hbck = halcyon_master::HbckService::new(c.master.clone()).unwrap();
    let (proc_id, is_forced) = (vec![begun.proc_id()], Some(true));
    let bypass = pb::BypassProcedureRequest { proc_id, r#override: is_forced, ..Default::default() };
    let bypassed: pb::BypassProcedureResponse = answer(&hbck, "BypassProcedure", &bypass).unwrap();
    assert_eq!(bypassed.bypassed, [true]);
    c.quiet();
    let mut state = c.servers.state.lock();
    state.cannot_close = false;
    state.online.get_mut(&server).unwrap().remove(region.encoded_name());
    drop(state);
    c.master.recover_dead_servers(); // as the process does now and then
    c.quiet();
    c.settles("t", 2);
    wait_until("none is in transition", &c, || c.master.regions_in_transition().is_empty());
}

/// A copy of `hbase:meta` was opened late, when the master had given the order up and another server had the copy. Its server was told to
/// come again, for ever.
#[test]
fn a_late_copy_of_meta_is_closed() {
    let c = Many::new(env(), 3);
    let copy = RegionInfo::meta().replica(1);
    assert_eq!(c.master.opened_unasked(&name(1), &copy, 7), Unasked::Refused);
}
