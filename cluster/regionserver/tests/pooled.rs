//! Calls on the pool: when they end early, and what they leave behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halcyon_cell::Cell;
use halcyon_env::sim::SimFileSystem;
use halcyon_env::{Clock, Env};
use halcyon_proto::pb;
use halcyon_rpc::RpcError;

use crate::common::{Lab, class, get, put, settings};
use crate::filters::{filter, value_filter};

/// What threads of the pool do with the clock.
#[derive(Default)]
struct Seen {
    /// One has asked for the time, as each read does.
    has_begun: AtomicBool,
    /// The next one that asks how much time has passed fails.
    fails: AtomicBool,
}

/// The clock of a server whose pool is watched.
struct PoolClock {
    inner: Arc<dyn Clock>,
    seen: Arc<Seen>,
}

fn is_of_pool() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("tokio"))
}

impl Clock for PoolClock {
    fn now_ms(&self) -> i64 {
        if is_of_pool() {
            self.seen.has_begun.store(true, Ordering::Release);
        }
        self.inner.now_ms()
    }

    fn monotonic_ns(&self) -> u64 {
        let fails = is_of_pool() && self.seen.fails.swap(false, Ordering::AcqRel);
        assert!(!fails, "the test wants it to fail");
        self.inner.monotonic_ns()
    }

    fn boot_ns(&self) -> u64 {
        self.inner.boot_ns()
    }

    fn sleep(&self, time: Duration) {
        self.inner.sleep(time);
    }
}

fn watched() -> (Lab, Arc<Seen>) {
    let seen = Arc::<Seen>::default();
    let of_clock = seen.clone();
    let lab = Lab::over(SimFileSystem::new(), settings(), move |env| {
        let clock = Arc::new(PoolClock { inner: env.clock.clone(), seen: of_clock });
        Env { clock, ..env }
    });
    (lab, seen)
}

/// Carries out `call`, and `then` as soon as it has begun on the pool.
fn while_it_runs<T: Send>(seen: &Seen, call: impl FnOnce() -> T + Send, then: impl FnOnce()) -> T {
    seen.has_begun.store(false, Ordering::Release);
    std::thread::scope(|scope| {
        let running = scope.spawn(call);
        while !seen.has_begun.load(Ordering::Acquire) && !running.is_finished() {
            Env::real().clock.sleep(Duration::from_millis(1));
        }
        then();
        running.join().unwrap()
    })
}

/// Two thousand cells, and a filter that asks each of them so many questions and keeps none.
fn put_wide_row(lab: &Lab) {
    for part in 0..4_u16 {
        let cell = |at: u16| {
            let qualifier = (part * 500 + at).to_be_bytes();
            Cell::put(b"wide", b"f", &qualifier, i64::MAX, &[b'v'; 100])
        };
        lab.mutate(put(500), (0..500).map(cell).collect()).unwrap();
    }
}

fn asking(count: usize) -> pb::Get {
    let list = pb::FilterList { operator: 2, filters: vec![value_filter("none"); count] };
    pb::Get { filter: Some(filter("FilterList", &list)), ..get("wide") }
}

fn multi(lab: &Lab, action: Vec<pb::Action>) -> Result<Vec<pb::ResultOrException>, RpcError> {
    let action = pb::RegionAction { region: lab.specifier(), atomic: None, action, condition: None };
    let request = pb::MultiRequest { region_action: vec![action], ..Default::default() };
    let response = lab.call::<pb::MultiResponse>("Multi", &request, Vec::new())?.0;
    Ok(response.region_action_result.into_iter().next().unwrap().result_or_exception)
}

/// A dozen such calls had all places of the pool for hours, though their clients had gone.
#[test]
fn gets_of_a_multi_end_when_nobody_waits_for_them() {
    let (lab, seen) = watched();
    put_wide_row(&lab);
    let gets = (0..10).map(|index| pb::Action::of_get(index, asking(20_000))).collect();
    let give_up = || lab.clock.advance(Duration::from_secs(60));
    let entries = while_it_runs(&seen, || multi(&lab, gets), give_up).unwrap();
    // On a busy machine some are done before the client gives up; behind that none is.
    let mut behind = entries.iter().skip_while(|entry| entry.exception.is_none()).peekable();
    assert!(entries.len() == 10 && behind.peek().is_some(), "all gets were read");
    assert!(behind.all(|entry| entry.exception.is_some()), "a get was read for nobody");
}

/// The same for conditions of an endpoint.
#[test]
fn a_condition_of_an_endpoint_ends_when_nobody_waits_for_it() {
    let (lab, seen) = watched();
    put_wide_row(&lab);
    let condition = pb::Condition { row: "wide".into(), filter: asking(20_000).filter, ..Default::default() };
    let mutate = || crate::endpoints::mutate_rows(&lab, vec![condition], Vec::new());
    let done = while_it_runs(&seen, mutate, || lab.clock.advance(Duration::from_secs(60)));
    assert_eq!(class(done), "RegionServerStoppedException");
}

/// A region that was to move waited for a Get that looked at each cell of a row for an hour, and refused everybody meanwhile.
#[test]
fn a_region_that_closes_waits_for_no_read() {
    let (lab, seen) = watched();
    let close = || lab.server.close_region(lab.info.encoded_name(), false).unwrap();
    let reopen = || lab.server.open_region(&lab.info, &crate::common::table().into()).unwrap();
    put_wide_row(&lab);
    let done = while_it_runs(&seen, || lab.get(asking(20_000)), close);
    assert_eq!(class(done), "NotServingRegionException");
    reopen();
    let condition = pb::Condition { row: "wide".into(), filter: asking(20_000).filter, ..Default::default() };
    let request = pb::MutateRequest {
        region: lab.specifier(),
        mutation: put(1),
        condition: Some(condition),
        nonce_group: None,
    };
    let cell = Cell::put(b"wide", b"f", b"new", i64::MAX, b"v");
    let check = || lab.call::<pb::MutateResponse>("Mutate", &request, vec![cell]);
    assert_eq!(class(while_it_runs(&seen, check, close)), "NotServingRegionException");
    reopen();
    let gets = (0..10).map(|index| pb::Action::of_get(index, asking(20_000))).collect();
    let entries = while_it_runs(&seen, || multi(&lab, gets), close).unwrap();
    let moved = |entry: &pb::ResultOrException| {
        entry.exception.as_ref().is_some_and(|it| it.name.ends_with(".NotServingRegionException"))
    };
    let mut behind = entries.iter().skip_while(|entry| !moved(entry)).peekable();
    assert!(behind.peek().is_some() && behind.all(moved), "{entries:?}");
    reopen();
    assert_eq!(lab.get(get("wide")).unwrap().1.len(), 2_000, "nothing was written");
}

/// It was busy for ever: no lease ran, and its place was taken until the server ended.
#[test]
fn a_scanner_whose_call_failed_by_an_assertion_is_closed() {
    let (lab, seen) = watched();
    for row in ["a", "b", "c"] {
        lab.put(row, "q", "value");
    }
    let opened = lab.scan(&lab.open(1, pb::Scan::default())).unwrap().0;
    let next = |seq| pb::ScanRequest {
        region: None,
        scan: None,
        scanner_id: opened.scanner_id,
        next_call_seq: Some(seq),
        ..lab.open(100_000, pb::Scan::default())
    };
    seen.fails.store(true, Ordering::Release);
    let failed = lab.scan(&next(0)).map(drop).expect_err("it fails");
    assert!(failed.message.contains("lost"), "{failed}");
    assert_eq!(class(lab.scan(&next(0))), "OutOfOrderScannerNextException", "it is closed");
    let closed = lab.scan(&next(1)).unwrap();
    assert!(closed.1.is_empty());
}
