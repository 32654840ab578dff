//! Orders to region servers, and the reports that end them.
//!
//! It is one piece because each test plays the server of the same double, and says in which order its reports come.

mod common;

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{
    ACTIVE_MS, FakeServer, Master, Region, beside, busy, in_time, not_serving, region, settings, table,
    transition, wait_until,
};
use halcyon_cell::ErrorKind;
use halcyon_contract::remote_procedures::{IS_CLOSING, NO_SUCH_WAL};
use halcyon_contract::{
    CloseRegionRequest, FlushRegionRequest, LeftQueue, OpenRegionRequest, OpenRegionResponse,
    PeerDescription, RegionInfoRequest, RegionServerApi, RegionServers, ReplicationBooks, ReplicationSources,
    SplitWal, Standing, Unasked,
};
use halcyon_proto::pb::region_state_transition::TransitionCode::{Closed, FailedOpen, Opened};
use halcyon_rpc::{RpcError, exceptions};
use halcyon_schema::{RegionInfo, ServerName};
use halcyon_servers::{ClusterSources, Permit, ServersSettings};

fn api(master: &Master, server: &FakeServer) -> Arc<dyn RegionServerApi> {
    master.servers.get(&server.name).expect("it is online")
}

fn close_request(region: &RegionInfo) -> CloseRegionRequest {
    let destination = Some(ServerName::new("other", 16020, 9));
    CloseRegionRequest { region: region.clone(), abort: false, destination }
}

/// An opening that waits for its report, and the number of its order.
fn order_to_open(
    master: &Master,
    server: &FakeServer,
) -> (Receiver<halcyon_cell::Result<OpenRegionResponse>>, i64) {
    let opening = api(master, server);
    let opened =
        beside(move || opening.open_region(&OpenRegionRequest::new(&region("a"), &table()), &|_| Ok(())));
    (opened, server.next_orders().open_region[0].open_info[0].open_proc_id())
}

#[test]
fn orders_that_come_together_are_sent_together() {
    let pause = Duration::from_millis(500);
    let master = Master::with(ServersSettings { order_pause: pause, ..settings() });
    let server = FakeServer::new(&master);
    let opened = ["a", "b", "c"].map(|start| {
        let server = api(&master, &server);
        beside(move || {
            server.open_region(&OpenRegionRequest::new(&region(start), &table()), &|_| Ok(())).unwrap()
        })
    });
    let closing = api(&master, &server);
    let closed = beside(move || closing.close_region(&close_request(&region("d"))));
    let flushing = api(&master, &server);
    let flushed = beside(move || flushing.flush_region(&FlushRegionRequest::all_families(&region("e"))));

    let orders = server.next_orders();
    let [open] = &orders.open_region[..] else { panic!("{orders:?}") };
    assert_eq!(open.open_info.len(), 3);
    assert_eq!((open.server_start_code(), open.initiating_master_active_time()), (1_000, ACTIVE_MS));
    assert!(open.master_system_time() > 0);
    let [close] = &orders.close_region[..] else { panic!("{orders:?}") };
    assert_eq!((close.server_start_code(), close.destination_server.is_some()), (1_000, true));
    assert_eq!(close.region.value, region("d").region_name());
    let [run] = &orders.proc[..] else { panic!("{orders:?}") };
    assert_eq!(run.proc_class, "org.apache.hadoop.hbase.regionserver.FlushRegionCallable");
    let mut numbers: Vec<_> = open.open_info.iter().map(|info| info.open_proc_id()).collect();
    numbers.extend([close.close_proc_id(), run.proc_id as i64]);
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() == 5 && numbers[0] >= ACTIVE_MS << 20, "{numbers:?}");

    for info in &open.open_info {
        let region = RegionInfo::from_pb(&info.region).unwrap();
        let report = transition(Opened, &region, Some(5), info.open_proc_id());
        assert_eq!(master.transition(&server.name, report).unwrap(), Ok(()));
    }
    for one in &opened {
        assert_eq!(in_time(one).open_seq_num, 5);
    }
    let report = transition(Closed, &region("d"), None, close.close_proc_id());
    assert_eq!(master.transition(&server.name, report).unwrap(), Ok(()));
    in_time(&closed).unwrap();
    master.done(run.proc_id, None);
    in_time(&flushed).unwrap();
    assert!(server.orders.try_recv().is_err(), "everything was in one request");
}

#[test]
fn a_report_of_an_opening_is_answered_after_its_announcement() {
    let master = Arc::new(Master::new());
    let server = FakeServer::new(&master);
    let (announcing, announced_seq) = channel();
    let (allow, allowed) = channel::<()>();
    let opening = api(&master, &server);
    let opened = beside(move || {
        let announce = |seq: u64| {
            announcing.send(seq).unwrap();
            allowed.recv().unwrap();
            Ok(())
        };
        opening.open_region(&OpenRegionRequest::new(&region("a"), &table()), &announce)
    });
    let procedure = server.next_orders().open_region[0].open_info[0].open_proc_id();
    // Another number: the order of an earlier master.
    let report = |number| {
        let (master, name) = (Arc::clone(&master), server.name.clone());
        beside(move || master.transition(&name, transition(Opened, &region("a"), Some(9), number)))
    };
    let first = report(procedure - 5);
    assert_eq!(in_time(&announced_seq), 9);
    let repeated = report(procedure);
    assert!(first.recv_timeout(Duration::from_millis(200)).is_err(), "it waits for the announcement");
    allow.send(()).unwrap();
    for answer in [first, repeated] {
        assert_eq!(in_time(&answer).unwrap(), Ok(()));
    }
    assert_eq!(in_time(&opened).unwrap().open_seq_num, 9);
    // The answer was lost: the report comes again.
    assert_eq!(in_time(&report(procedure)).unwrap(), Ok(()));
    assert_eq!(*master.status.asked.lock().unwrap(), []);
}

#[test]
fn an_announcement_that_fails_closes_the_region_again() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let opening = api(&master, &server);
    let opened = beside(move || {
        let announce = |_: u64| Err(busy("meta is not there"));
        opening.open_region(&OpenRegionRequest::new(&region("a"), &table()), &announce)
    });
    let procedure = server.next_orders().open_region[0].open_info[0].open_proc_id();
    let answer = master.transition(&server.name, transition(Opened, &region("a"), Some(9), procedure));
    assert_eq!(answer.unwrap(), Err("meta is not there".to_string()));
    assert_eq!(in_time(&opened).unwrap_err().message(), "meta is not there");
}

#[test]
fn a_failed_opening_counts_once() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let open = || order_to_open(&master, &server);
    let fail = |procedure| {
        let report = transition(FailedOpen, &region("a"), None, procedure);
        assert_eq!(master.transition(&server.name, report).unwrap(), Ok(()));
    };
    let (opened, procedure) = open();
    fail(procedure);
    assert_eq!(in_time(&opened).unwrap_err().kind(), ErrorKind::Moved);

    let (opened, second) = open();
    fail(procedure); // repeated
    // Of an earlier master. The server goes on to the order of this one, and may open the region: another server must not get it.
    fail(second - 100);
    assert!(opened.recv_timeout(Duration::from_millis(100)).is_err());
    fail(second);
    assert_eq!(in_time(&opened).unwrap_err().kind(), ErrorKind::Moved);
    let (opened, _) = open();
    fail(-1); // an old server of HBase names no order
    assert_eq!(in_time(&opened).unwrap_err().kind(), ErrorKind::Moved);
}

/// The report of an opening may come twice, the second time when the region is closed and an order to open it again is on its way.
#[test]
fn a_repeated_report_of_an_earlier_opening_ends_no_other_one() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let open = || order_to_open(&master, &server);
    let report = |procedure, seq| {
        master.transition(&server.name, transition(Opened, &region("a"), Some(seq), procedure)).unwrap()
    };
    let (opened, first) = open();
    let of_an_earlier_master = first - 100; // which the server works on instead
    assert_eq!(report(of_an_earlier_master, 9), Ok(()));
    in_time(&opened).unwrap();
    *master.status.answer.lock().unwrap() = Unasked::Accepted;
    let unasked = first - 50;
    assert_eq!(report(unasked, 10), Ok(()));

    let (opened, second) = open();
    for (procedure, seq) in [(of_an_earlier_master, 9), (first, 9), (unasked, 10)] {
        let why = report(procedure, seq).unwrap_err();
        assert!(why.contains("has ended; another one waits"), "{why}");
    }
    assert!(opened.recv_timeout(Duration::from_millis(100)).is_err());
    assert_eq!(report(second, 11), Ok(()));
    assert_eq!(in_time(&opened).unwrap().open_seq_num, 11);
}

#[test]
fn an_opening_takes_limited_time_and_may_end_late() {
    let master = Master::with(ServersSettings { open_timeout: Duration::from_millis(100), ..settings() });
    let server = FakeServer::new(&master);
    let opening = api(&master, &server);
    let error = opening.open_region(&OpenRegionRequest::new(&region("a"), &table()), &|_| Ok(()));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Busy);
    let report = || master.transition(&server.name, transition(Opened, &region("a"), Some(9), 1));
    assert!(report().unwrap_err().is_exception("PleaseHoldException"));
    *master.status.answer.lock().unwrap() = Unasked::Refused;
    assert!(report().unwrap().is_err());
    *master.status.answer.lock().unwrap() = Unasked::Accepted;
    assert_eq!(report().unwrap(), Ok(()));
    let asked = (server.name.clone(), region("a").encoded_name().to_string(), 9);
    assert_eq!(*master.status.asked.lock().unwrap(), [asked.clone(), asked.clone(), asked]);
}

/// An alteration closed a region whose opening had taken longer than the master waits. The server closed nothing before its report had an
/// answer, and was told to come again until the close was over.
#[test]
fn an_opening_that_ends_when_the_region_is_to_be_closed_is_refused() {
    let master = Master::with(ServersSettings { open_timeout: Duration::from_millis(100), ..settings() });
    let server = FakeServer::new(&master);
    let set = |region| *server.shared.region.lock().unwrap() = Some(region);
    set(Region::Fails(&exceptions::REGION_OPENING, "t,a,3.x. is opening"));
    let (opened, first) = order_to_open(&master, &server);
    assert_eq!(in_time(&opened).unwrap_err().kind(), ErrorKind::Busy);
    let report = |number| master.transition(&server.name, transition(Opened, &region("a"), Some(9), number));
    assert!(report(first).unwrap_err().is_exception("PleaseHoldException"), "nobody closes it yet");

    let close = |start: &'static str| {
        let closing = api(&master, &server);
        let closed = beside(move || closing.close_region(&close_request(&region(start))));
        server.next_orders();
        closed
    };
    let other = close("b");
    assert!(report(first).unwrap_err().is_exception("PleaseHoldException"), "another one is closed");
    let closed = close("a");
    let why = report(first).unwrap().unwrap_err();
    assert!(why.contains("is to be closed there"), "{why}");
    assert!(closed.recv_timeout(Duration::from_millis(100)).is_err(), "it is not closed yet");
    set(not_serving()); // the server closes what it has opened
    in_time(&closed).unwrap();
    in_time(&other).unwrap();
    // The answer was lost: the report comes again, when another opening waits.
    *master.status.answer.lock().unwrap() = Unasked::Refused;
    let (opened, _) = order_to_open(&master, &server);
    assert!(report(first).unwrap().is_err());
    assert_eq!(in_time(&opened).unwrap_err().kind(), ErrorKind::Busy);
}

/// A server that never closed a region, or never ended what it was told, held a thread of the master and the lock of a table for ever.
#[test]
fn orders_take_limited_time() {
    let time_max = Duration::from_millis(100);
    let close_check_period = Duration::from_millis(20);
    let limits = ServersSettings { close_timeout: time_max, run_timeout: time_max, ..settings() };
    let master = Master::with(ServersSettings { close_check_period, ..limits });
    let server = FakeServer::new(&master);
    *server.shared.region.lock().unwrap() =
        Some(Region::Fails(&exceptions::REGION_OPENING, "t,a,3.x. is opening"));
    let (closing, splitting) = (api(&master, &server), api(&master, &server));
    let closed = beside(move || closing.close_region(&close_request(&region("a"))));
    assert_eq!(in_time(&closed).unwrap_err().kind(), ErrorKind::Busy);
    let split = beside(move || splitting.split_wal(Path::new("/hbase/WALs/d,1,2-splitting/d.1")));
    assert_eq!(in_time(&split).unwrap_err().kind(), ErrorKind::Busy);
    let late =
        std::iter::repeat_with(|| server.next_orders()).find_map(|orders| orders.proc.first().cloned());
    master.done(late.unwrap().proc_id, None); // and nobody waits
    let sources = ClusterSources::new(master.servers.clone(), Arc::new(OfGone::default()));
    let peer = PeerDescription { id: "p".to_string(), config: Default::default(), is_enabled: true };
    assert_eq!(sources.peer_changed(&peer).unwrap_err().kind(), ErrorKind::Busy);
}

/// A server of HBase does not report a region that it has open already.
#[test]
fn an_opening_without_a_report_is_found_by_asking() {
    let period = Duration::from_millis(20);
    let master = Master::with(ServersSettings { open_check_period: period, ..settings() });
    let server = FakeServer::new(&master);
    let set = |region| *server.shared.region.lock().unwrap() = Some(region);
    set(not_serving());
    let (opening, announced) = (api(&master, &server), Arc::new(Mutex::new(Vec::new())));
    let told = announced.clone();
    let opened = beside(move || {
        let announce = |seq: u64| {
            told.lock().unwrap().push(seq);
            Ok(())
        };
        opening.open_region(&OpenRegionRequest::new(&region("a"), &table()), &announce)
    });
    server.next_orders();
    let asked = || server.shared.regions_asked.lock().unwrap().len();
    for not_open in [
        not_serving(),
        Region::Fails(&exceptions::REGION_OPENING, "t,a,3.x. is opening"),
        Region::Fails(&exceptions::CALL_QUEUE_TOO_BIG, "too much to do"),
    ] {
        set(not_open);
        let before = asked();
        wait_until("it is asked again", || asked() >= before + 2);
        assert!(opened.try_recv().is_err());
    }
    set(Region::Open);
    assert_eq!(in_time(&opened).unwrap().open_seq_num, 0);
    assert_eq!(*announced.lock().unwrap(), [0]);
}

#[test]
fn orders_of_a_server_that_dies_end() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    *server.shared.region.lock().unwrap() = Some(Region::Open);
    let (one, two, three) = (api(&master, &server), api(&master, &server), api(&master, &server));
    let opened =
        beside(move || one.open_region(&OpenRegionRequest::new(&region("a"), &table()), &|_| Ok(())));
    let closed = beside(move || two.close_region(&close_request(&region("b"))));
    let split = beside(move || three.split_wal(Path::new("/hbase/WALs/d,1,2-splitting/d.1")));
    let mut count = 0;
    while count < 3 {
        let orders = server.next_orders();
        count += orders.open_region.len() + orders.close_region.len() + orders.proc.len();
    }
    let changes = master.servers.changes();
    assert!(master.servers.expire(&server.name));
    assert!(changes.has_changed().unwrap());
    assert!(!master.servers.expire(&server.name), "it dies once");
    assert_eq!(in_time(&opened).unwrap_err().kind(), ErrorKind::Moved);
    assert_eq!(in_time(&closed).unwrap_err().kind(), ErrorKind::Moved);
    assert_eq!(in_time(&split).unwrap_err().kind(), ErrorKind::Moved);
    assert_eq!(master.servers.standing(&server.name), Standing::Recovering);
    assert!(master.servers.get(&server.name).is_none());
    let late = master.transition(&server.name, transition(Opened, &region("a"), Some(9), 1));
    assert!(late.unwrap_err().is_exception("YouAreDeadException"));
    master.servers.recovered(&server.name);
    assert_eq!(master.servers.standing(&server.name), Standing::Gone);
    assert_eq!(master.servers.dead(), std::slice::from_ref(&server.name));
}

#[test]
fn an_announcement_at_a_server_that_dies_is_an_error() {
    let master = Arc::new(Master::new());
    let server = FakeServer::new(&master);
    let (opening, servers, name) = (api(&master, &server), master.servers.clone(), server.name.clone());
    let opened = beside(move || {
        let announce = |_: u64| {
            assert!(servers.expire(&name));
            Ok(())
        };
        opening.open_region(&OpenRegionRequest::new(&region("a"), &table()), &announce)
    });
    server.next_orders();
    let answer = master.transition(&server.name, transition(Opened, &region("a"), Some(9), 1));
    assert!(answer.unwrap_err().is_exception("PleaseHoldException"));
    assert_eq!(in_time(&opened).unwrap_err().kind(), ErrorKind::Moved);
}

#[test]
fn a_close_without_a_report_is_found_by_asking() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let set = |region| *server.shared.region.lock().unwrap() = Some(region);
    set(Region::Open);
    let closing = api(&master, &server);
    let closed = beside(move || closing.close_region(&close_request(&region("a"))));
    server.next_orders();
    let asked = || server.shared.regions_asked.lock().unwrap().len();
    for not_closed in [
        Region::Open,
        Region::Fails(&exceptions::NOT_SERVING_REGION, "t,a,3.x. is closing"),
        Region::Fails(&exceptions::REGION_OPENING, "t,a,3.x. is opening"),
        Region::Fails(&exceptions::CALL_QUEUE_TOO_BIG, "too much to do"),
    ] {
        set(not_closed);
        let before = asked();
        wait_until("it is asked again", || asked() >= before + 2);
        assert!(closed.try_recv().is_err());
    }
    set(not_serving());
    in_time(&closed).unwrap();
}

/// A server stood still while two regions were being closed. The question for the first was given up; its answer, "not online", came
/// late and counted for the second as well, which was opened elsewhere while the server still took writes for it.
#[test]
fn a_late_answer_for_one_region_closes_no_other() {
    let call_timeout = Duration::from_millis(300);
    let master = Master::with(ServersSettings { call_timeout, ..settings() });
    let server = FakeServer::new(&master);
    let set = |start, is, after_ms| {
        let name = region(start).region_name().clone();
        server.shared.slow_regions.lock().unwrap().insert(name, (is, Duration::from_millis(after_ms)));
    };
    set("a", not_serving(), 400);
    set("b", Region::Open, 250);
    let close = |start| {
        let closing = api(&master, &server);
        let closed = beside(move || closing.close_region(&close_request(&region(start))));
        server.next_orders();
        closed
    };
    let (first, second) = (close("a"), close("b"));
    let asked = || server.shared.regions_asked.lock().unwrap().len();
    wait_until("both are asked for again and again", || asked() >= 24);
    assert!(first.try_recv().is_err(), "no answer came in time");
    assert!(second.try_recv().is_err(), "the server said that it serves the region");
    set("a", not_serving(), 0);
    in_time(&first).unwrap();
    assert!(second.try_recv().is_err());
    set("b", Region::Fails(&exceptions::REGION_MOVED, "Region moved to: hostname=h port=1 startCode=2."), 0);
    in_time(&second).unwrap();
}

/// A report of an earlier close, whose answer was lost, must not end the close of a region that was opened again.
#[test]
fn a_repeated_report_of_an_earlier_close_ends_nothing() {
    let master = Master::with(ServersSettings { close_check_period: Duration::from_secs(60), ..settings() });
    let server = FakeServer::new(&master);
    let close = || {
        let closing = api(&master, &server);
        let closed = beside(move || closing.close_region(&close_request(&region("a"))));
        (closed, server.next_orders().close_region[0].close_proc_id())
    };
    let report = |procedure| {
        let report = transition(Closed, &region("a"), None, procedure);
        assert_eq!(master.transition(&server.name, report).unwrap(), Ok(()));
    };
    let (closed, earlier) = close();
    report(earlier);
    in_time(&closed).unwrap();

    let (closed, procedure) = close();
    // Again and again: one that comes before the server's answer to the order is passed over.
    wait_until("the server is asked", || {
        report(earlier);
        !server.shared.regions_asked.lock().unwrap().is_empty()
    });
    assert!(closed.recv_timeout(Duration::from_millis(100)).is_err());
    report(procedure);
    in_time(&closed).unwrap();

    // The region is really gone by order of an earlier master.
    let (closed, _) = close();
    *server.shared.region.lock().unwrap() = Some(not_serving());
    let mut ended = None;
    wait_until("the close has ended", || {
        report(earlier - 1_000); // again and again, as above
        ended = closed.try_recv().ok();
        ended.is_some()
    });
    ended.unwrap().unwrap();
}

#[test]
fn orders_are_sent_until_the_server_takes_them() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let error = || RpcError::new(&exceptions::CALL_QUEUE_TOO_BIG, "later");
    server.shared.refusals.lock().unwrap().extend([error(), error()]);
    let flushing = api(&master, &server);
    let flushed = beside(move || flushing.flush_region(&FlushRegionRequest::all_families(&region("e"))));
    let numbers: Vec<_> = (0..3).map(|_| server.next_orders().proc[0].proc_id).collect();
    assert_eq!(numbers, [numbers[0]; 3]);
    master.done(numbers[0], None);
    in_time(&flushed).unwrap();
}

/// An order to open the region may be on its way to the server, which says until then that it does not serve the region.
#[test]
fn a_close_waits_until_its_order_is_taken() {
    let master =
        Master::with(ServersSettings { close_check_period: Duration::from_millis(10), ..settings() });
    let server = FakeServer::new(&master);
    *server.shared.region.lock().unwrap() = Some(not_serving());
    let refusals = (0..6).map(|_| RpcError::new(&exceptions::CALL_QUEUE_TOO_BIG, "later"));
    server.shared.refusals.lock().unwrap().extend(refusals);
    let closing = api(&master, &server);
    let closed = beside(move || closing.close_region(&close_request(&region("a"))));
    for _ in 0..6 {
        server.next_orders();
        assert!(closed.recv_timeout(Duration::from_millis(50)).is_err(), "the order was not taken");
    }
    server.next_orders();
    in_time(&closed).unwrap();
    assert!(!server.shared.regions_asked.lock().unwrap().is_empty(), "the answer came from the server");
}

#[test]
fn an_order_that_is_refused_fails_alone() {
    let pause = Duration::from_millis(500);
    let master = Master::with(ServersSettings { order_pause: pause, ..settings() });
    let server = FakeServer::new(&master);
    let refusal = || RpcError::do_not_retry("no such thing");
    // The request with both, then the first alone.
    server.shared.refusals.lock().unwrap().extend([refusal(), refusal()]);
    let flush = |start: &'static str| {
        let flushing = api(&master, &server);
        beside(move || flushing.flush_region(&FlushRegionRequest::all_families(&region(start))))
    };
    let flushed = [flush("a"), flush("b")];
    let both = server.next_orders();
    assert_eq!(both.proc.len(), 2);
    assert_eq!(server.next_orders().proc[..], both.proc[..1]);
    assert_eq!(server.next_orders().proc[..], both.proc[1..]);
    master.done(both.proc[1].proc_id, None);
    let mut results = flushed.map(|one| in_time(&one).map_err(|error| error.kind()));
    results.sort_by_key(Result::is_err);
    assert_eq!(results, [Ok(()), Err(ErrorKind::Invalid)]);
}

#[test]
fn remote_procedures_end_as_the_server_says() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let split = |error: Option<(&str, &str)>| {
        let splitting = api(&master, &server);
        let ended = beside(move || splitting.split_wal(Path::new("/hbase/WALs/d,1,2-splitting/d.1")));
        let orders = server.next_orders();
        assert_eq!(orders.proc[0].proc_class, "org.apache.hadoop.hbase.regionserver.SplitWALCallable");
        // SplitWALParameter { wal_path }
        assert_eq!(orders.proc[0].proc_data()[2..], *b"WALs/d,1,2-splitting/d.1");
        master.done(7, error); // a number of no order
        master.done(u64::MAX, error);
        master.done(orders.proc[0].proc_id, error);
        master.done(orders.proc[0].proc_id, error);
        in_time(&ended).map_err(|error| error.kind())
    };
    assert_eq!(split(None), Ok(SplitWal::Done));
    // Only the master can tell what that means. The text is of no concern.
    assert_eq!(split(Some((NO_SUCH_WAL, "any text"))), Ok(SplitWal::NotFound));
    assert_eq!(split(Some(("java.io.IOException", "there is no WAL /hbase/WALs/x"))), Err(ErrorKind::Io));
    assert_eq!(split(Some(("java.io.IOException", "disk"))), Err(ErrorKind::Io));
    // Another server may do better, so it is not permanent.
    let refused = ("org.apache.hadoop.hbase.DoNotRetryIOException", "no");
    assert_eq!(split(Some(refused)), Err(ErrorKind::Busy));
    let corrupt = ("org.apache.hadoop.hbase.io.hfile.CorruptHFileException", "no");
    assert_eq!(split(Some(corrupt)), Err(ErrorKind::Corrupt));
    let not_serving = ("org.apache.hadoop.hbase.NotServingRegionException", "no");
    assert_eq!(split(Some(not_serving)), Err(ErrorKind::Moved));
}

#[test]
fn questions_about_regions() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let api = api(&master, &server);
    let ask = |best_split_row| api.region_info(&RegionInfoRequest { region: region(""), best_split_row });
    let plain = ask(false).unwrap();
    assert_eq!((plain.splittable, plain.mergeable, plain.best_split_row), (true, false, None));
    assert_eq!(ask(true).unwrap().best_split_row.as_deref(), Some(&b"m"[..]));
    assert_eq!(api.online_regions().unwrap(), [region(""), RegionInfo::meta()]);
    api.warm_up_region(&region("a")).unwrap();
    assert_eq!(*server.shared.warmed_up.lock().unwrap(), [region("a")]);
    *server.shared.region.lock().unwrap() = Some(not_serving());
    assert_eq!(ask(true).unwrap_err().kind(), ErrorKind::Moved);
}

/// The end of an order to flush was taken for "the region is not there, so nothing of it is in memory": also that of an order which ended
/// with its server, and that of one for a region which the server was closing.
#[test]
fn a_region_that_is_not_flushed_is_said_to_be_elsewhere_only_if_it_is() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let set = |region| *server.shared.region.lock().unwrap() = Some(region);
    let not_online = ("org.apache.hadoop.hbase.NotServingRegionException", "it is not online");
    let flush = |at_server| {
        set(at_server);
        let flushing = api(&master, &server);
        let flushed = beside(move || flushing.flush_region(&FlushRegionRequest::all_families(&region("e"))));
        (flushed, server.next_orders().proc[0].proc_id)
    };
    let name = String::from_utf8_lossy(region("e").region_name()).into_owned();
    let closing = Region::Fails(&exceptions::NOT_SERVING_REGION, format!("{name} {IS_CLOSING}").leak());
    let opening = Region::Fails(&exceptions::REGION_OPENING, "t,e,3.x. is opening");
    let busy = Region::Fails(&exceptions::CALL_QUEUE_TOO_BIG, "too much to do");
    for (at_server, expected) in [
        (not_serving(), ErrorKind::Moved),
        (closing, ErrorKind::Busy),
        (opening, ErrorKind::Busy),
        (busy, ErrorKind::Busy),
        (Region::Open, ErrorKind::Busy),
    ] {
        let (flushed, number) = flush(at_server);
        master.done(number, Some(not_online));
        assert_eq!(in_time(&flushed).unwrap_err().kind(), expected);
    }
    let (flushed, _) = flush(not_serving());
    assert!(master.servers.expire(&server.name));
    assert_eq!(
        in_time(&flushed).unwrap_err().kind(),
        ErrorKind::Busy,
        "it is in the WALs of the dead server"
    );
}

#[test]
fn dropping_the_table_of_servers_ends_what_waits() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let flushing = api(&master, &server);
    let flushed = beside(move || flushing.flush_region(&FlushRegionRequest::all_families(&region("e"))));
    server.next_orders();
    let (runtime, servers) = master.end();
    wait_until("nothing keeps it", || servers.strong_count() == 0);
    assert_eq!(in_time(&flushed).unwrap_err().kind(), ErrorKind::Busy, "it may be in memory there");
    drop(runtime);
}

/// Its lease has expired, and another master may be active. The lease may come back.
#[test]
fn a_master_that_may_not_act_gives_no_orders() {
    let may_act = Arc::new(AtomicBool::new(true));
    let permit = {
        let may_act = may_act.clone();
        Permit::while_true(move || may_act.load(Ordering::SeqCst))
    };
    let master = Master::with(ServersSettings { permit, ..settings() });
    let server = FakeServer::new(&master);
    let (asked, flushing) = (api(&master, &server), api(&master, &server));
    may_act.store(false, Ordering::SeqCst);
    let request = RegionInfoRequest { region: region("a"), best_split_row: false };
    let error = asked.region_info(&request).unwrap_err();
    assert!(error.to_string().contains("may not act"), "{error}");

    let flushed = beside(move || flushing.flush_region(&FlushRegionRequest::all_families(&region("e"))));
    assert!(server.orders.recv_timeout(Duration::from_millis(500)).is_err(), "the order waits");
    may_act.store(true, Ordering::SeqCst);
    let orders = server.next_orders();
    master.done(orders.proc[0].proc_id, None);
    in_time(&flushed).unwrap();
}

/// What the master's own server is told of peers.
#[derive(Default)]
struct OfGone {
    told: Mutex<Vec<String>>,
    left: Mutex<Vec<LeftQueue>>,
}

impl ReplicationBooks for OfGone {
    fn left_queues(&self) -> halcyon_cell::Result<Vec<LeftQueue>> {
        Ok(self.left.lock().unwrap().clone())
    }

    fn end_addition(&self, peer_id: &str, told: &[ServerName], _waits: bool) -> halcyon_cell::Result<()> {
        self.told.lock().unwrap().push(format!("end {peer_id}, {} servers", told.len()));
        Ok(())
    }
}

impl ReplicationSources for OfGone {
    fn begin_queue(&self, peer_id: &str) -> halcyon_cell::Result<()> {
        self.told.lock().unwrap().push(format!("begin {peer_id}"));
        Ok(())
    }

    fn peer_changed(&self, peer: &PeerDescription) -> halcyon_cell::Result<()> {
        self.told.lock().unwrap().push(format!("change {}", peer.id));
        Ok(())
    }

    fn peer_removed(&self, peer_id: &str) -> halcyon_cell::Result<()> {
        self.told.lock().unwrap().push(format!("remove {peer_id}"));
        Ok(())
    }

    fn needed_wals(&self, _ids: &[String], names: &[String]) -> halcyon_cell::Result<HashSet<String>> {
        Ok(names.iter().cloned().collect())
    }

    fn needed_hfiles(&self, _ids: &[String]) -> halcyon_cell::Result<Vec<String>> {
        Ok(vec!["h".to_string()])
    }

    fn sent_ranges(
        &self,
        _ids: &[String],
        regions: &[halcyon_schema::RegionBarriers],
    ) -> halcyon_cell::Result<Vec<usize>> {
        Ok(regions.iter().map(|region| region.ranges.len()).collect())
    }
}

#[test]
fn all_servers_are_told_of_a_peer_and_one_that_dies_is_not_waited_for() {
    let master = Master::with(settings());
    let (first, second) = (FakeServer::new(&master), FakeServer::new(&master));
    let of_gone = Arc::new(OfGone::default());
    let sources = Arc::new(ClusterSources::new(master.servers.clone(), of_gone.clone()));
    let peer = PeerDescription { id: "p".to_string(), config: Default::default(), is_enabled: true };
    let change = |sources: &Arc<ClusterSources>| {
        let (sources, peer) = (sources.clone(), peer.clone());
        beside(move || sources.peer_changed(&peer))
    };
    let add = |sources: &Arc<ClusterSources>| {
        let (sources, peer) = (sources.clone(), peer.clone());
        beside(move || sources.peer_added(&peer))
    };
    let order = |server: &FakeServer| {
        let orders = server.next_orders();
        let [run] = &orders.proc[..] else { panic!("{orders:?}") };
        assert_eq!(run.proc_class, "halcyon.ReadPeer");
        assert_eq!(run.proc_data()[..], *b"\x0a\x01p");
        run.proc_id
    };
    sources.begin_queue("p").unwrap();
    let changed = add(&sources);
    let (one, other) = (order(&first), order(&second));
    master.done(one, None);
    assert!(changed.try_recv().is_err(), "the other server has not answered");
    // It may have read the peers before this one was there. Nothing says so to it yet.
    let third = FakeServer::new(&master);
    master.done(other, None);
    in_time(&changed).unwrap();
    assert!(master.servers.expire(&third.name));

    // A server of HBase does not know the order, and any other error has the master repeat it.
    for (error, is_error) in [
        (("java.lang.ClassNotFoundException", "halcyon.ReadPeer"), false),
        (("java.io.IOException", "no"), true),
    ] {
        let changed = change(&sources);
        let (one, other) = (order(&first), order(&second));
        master.done(one, Some(error));
        master.done(other, None);
        let result = in_time(&changed);
        assert_eq!(
            result.as_ref().err().map(|error| error.kind()),
            is_error.then_some(ErrorKind::Busy),
            "{error:?}"
        );
    }

    let removed = {
        let sources = sources.clone();
        beside(move || sources.peer_removed("p"))
    };
    let (one, _) = (order(&first), order(&second));
    master.done(one, None);
    assert!(master.servers.expire(&second.name));
    in_time(&removed).unwrap();
    let told = of_gone.told.lock().unwrap().clone();
    // The books know the peer when all servers do, and not before: they would have it sent what a server has left that died meanwhile.
    let ended = "end p, 2 servers";
    assert_eq!(told, ["begin p", ended, "change p", "change p", "change p", "remove p"]);
    assert_eq!(sources.needed_hfiles(&["p".to_string()]).unwrap(), ["h"]);

    // The next master has not begun the queue. It did not look at what servers have left that died before they knew the peer.
    let next = Arc::new(ClusterSources::new(master.servers.clone(), of_gone.clone()));
    of_gone.told.lock().unwrap().clear();
    let added = add(&next);
    master.done(order(&first), None);
    in_time(&added).unwrap();
    assert_eq!(*of_gone.told.lock().unwrap(), ["end p, 1 servers", "change p"]);
}

#[test]
fn live_servers_are_told_to_send_what_dead_ones_have_left() {
    let master = Master::with(settings());
    let (first, second) = (FakeServer::new(&master), FakeServer::new(&master));
    let books = Arc::new(OfGone::default());
    let sources = Arc::new(ClusterSources::new(master.servers.clone(), books.clone()));
    let dead = ServerName::new("dead", 16020, 1);
    let left = |name: &str, claimed_by: Option<&ServerName>| LeftQueue {
        peer_id: "p".to_string(),
        name: name.to_string(),
        server: dead.clone(),
        claimed_by: claimed_by.cloned(),
    };
    let share = || {
        let sources = sources.clone();
        beside(move || sources.share_queues())
    };
    let order = |server: &FakeServer| {
        let orders = server.next_orders();
        let [run] = &orders.proc[..] else { panic!("{orders:?}") };
        assert_eq!(run.proc_class, "halcyon.ClaimQueue");
        (run.proc_id, run.proc_data().to_vec())
    };
    *books.left.lock().unwrap() = vec![left("x", Some(&first.name)), left("y", None)];
    let shared = share();
    let (confirmed, claimed) = (order(&first), order(&second));
    assert_eq!((&confirmed.1[..], &claimed.1[..]), (&b"\x0a\x01p\x12\x01x"[..], &b"\x0a\x01p\x12\x01y"[..]));
    master.done(confirmed.0, None);
    assert!(shared.try_recv().is_err(), "the other server has not answered");
    master.done(claimed.0, None);
    in_time(&shared);

    // The queue has a new name, by which its claimer is asked once. What is confirmed is not ordered again.
    *books.left.lock().unwrap() = vec![left("x", Some(&first.name)), left("y+2", Some(&second.name))];
    let shared = share();
    let (number, told) = order(&second);
    assert_eq!(told, b"\x0a\x01p\x12\x03y+2");
    master.done(number, None);
    in_time(&shared);
    in_time(&share());

    // The claimer dies, and its queue goes to the other one, which has one of the same server: it waits.
    assert!(master.servers.expire(&second.name));
    *books.left.lock().unwrap() = vec![left("x", Some(&first.name)), left("y+2", None)];
    in_time(&share());
    *books.left.lock().unwrap() = vec![left("y+2", None)];
    let shared = share();
    let (number, told) = order(&first);
    assert_eq!(told, b"\x0a\x01p\x12\x03y+2");
    master.done(number, Some(("java.lang.ClassNotFoundException", "halcyon.ClaimQueue")));
    in_time(&shared);
    in_time(&share()); // no server can send it: nothing is ordered
}
