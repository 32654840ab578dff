//! Threads that have work and do not come on with it, in a real region server over a simulated file system.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::Lab;
use halcyon_env::sim::SimFileSystem;
use halcyon_env::vitals::{LOOKS, StuckThread};
use halcyon_env::{Clock, Condvar, Env, Mutex, RealFileSystem, WatchedFileSystem};
use halcyon_regionserver::RegionServerSettings;
use halcyon_wal::SyncMode;

const PERIOD: Duration = Duration::from_secs(3);

/// Bytes of memory at which the flusher begins.
const FLUSH_BYTES: u64 = 64 << 10;

fn settings() -> RegionServerSettings {
    let mut settings = common::settings();
    settings.region.flush_size_bytes = FLUSH_BYTES;
    settings
}

/// A clock that lets one thread wait that asks for the time.
struct HoldingClock {
    inner: Arc<dyn Clock>,
    gate: Arc<Gate>,
    holds_at: Asked,
}

/// What a thread asks a clock for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The time of day, which no operation on a file asks for.
    Now,
    /// How much time has passed.
    Monotonic,
}

#[derive(Default)]
struct Gate {
    /// The name of the thread.
    held: Mutex<Option<&'static str>>,
    waits: AtomicBool,
    released: Condvar,
}

impl Gate {
    /// Holds this thread until what is returned is dropped.
    fn hold(self: &Arc<Self>, thread: &'static str) -> Held {
        *self.held.lock() = Some(thread);
        Held(self.clone())
    }

    fn release(&self) {
        *self.held.lock() = None;
        self.released.notify_all();
    }

    fn pass(&self) {
        let mut held = self.held.lock();
        while held.is_some() && *held == std::thread::current().name() {
            self.waits.store(true, Ordering::Release);
            self.released.wait(&mut held);
        }
    }
}

/// A thread that is held at a gate. A test that fails lets it go before the server ends.
struct Held(Arc<Gate>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Clock for HoldingClock {
    fn now_ms(&self) -> i64 {
        if self.holds_at == Asked::Now {
            self.gate.pass();
        }
        self.inner.now_ms()
    }

    fn monotonic_ns(&self) -> u64 {
        if self.holds_at == Asked::Monotonic {
            self.gate.pass();
        }
        self.inner.monotonic_ns()
    }

    fn boot_ns(&self) -> u64 {
        self.inner.boot_ns()
    }

    fn sleep(&self, time: Duration) {
        self.inner.sleep(time);
    }
}

/// What it does beside files is held up: a thread then waits as for a lock that nobody releases.
fn held_beside_files(gate: &Arc<Gate>, holds_at: Asked) -> impl FnOnce(Env) -> Env {
    let gate = gate.clone();
    move |env| {
        let clock = HoldingClock { inner: env.clock.clone(), gate, holds_at };
        Env { local: Arc::new(RealFileSystem), clock: Arc::new(clock), ..env }
    }
}

/// Operations on files are held up, as by a slow disk.
fn held_in_files(gate: &Arc<Gate>) -> impl FnOnce(Env) -> Env {
    let gate = gate.clone();
    |env| {
        let clock = Arc::new(HoldingClock { inner: env.clock.clone(), gate, holds_at: Asked::Monotonic });
        let fs = WatchedFileSystem::new(env.fs.clone(), clock, env.stalls.clone());
        Env { local: Arc::new(RealFileSystem), fs: Arc::new(fs), ..env }
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        Env::real().clock.sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// Carries out `body` while another thread writes what `write` writes. A thread that is held may do so while it writes the WAL
/// for others, so a write may wait for it.
fn while_written(write: impl FnOnce() + Send, body: impl FnOnce()) {
    std::thread::scope(|scope| {
        std::thread::Builder::new().spawn_scoped(scope, write).unwrap();
        body();
    });
}

/// Writes until the flusher works.
fn fill(lab: &Lab) {
    let value = "v".repeat(4 << 10);
    (0..32).for_each(|row| lab.put(&format!("r{row}"), "q", &value));
}

fn look(lab: &Lab) -> Vec<StuckThread> {
    lab.clock.advance(PERIOD);
    lab.server.look_at_threads(PERIOD)
}

/// The first thread that is stuck in so many looks.
fn stuck(lab: &Lab) -> Option<StuckThread> {
    (0..LOOKS * 4).find_map(|_| look(lab).into_iter().find(|thread| thread.is_stuck))
}

/// The first thread that is stuck, once it sleeps: the machine may have no processor for it before.
fn eventually_stuck(lab: &Lab) -> StuckThread {
    let mut found = None;
    eventually("a thread is stuck", || {
        found = stuck(lab);
        found.is_some()
    });
    found.expect("it was found")
}

#[test]
fn a_flush_that_waits_and_not_for_a_file_is_stuck() {
    let gate = Arc::new(Gate::default());
    let lab = Lab::over(SimFileSystem::new(), settings(), held_beside_files(&gate, Asked::Now));
    let held = gate.hold("flusher-0");
    while_written(
        || fill(&lab),
        || {
            let held = held;
            eventually("the flusher waits", || gate.waits.load(Ordering::Acquire));
            let stuck = eventually_stuck(&lab);
            assert_eq!(stuck.name, "flusher-0");
            assert_eq!(stuck.work, format!("a flush of region {}", lab.info.encoded_name()));
            assert!(stuck.time >= PERIOD * LOOKS && !stuck.computes, "{stuck:?}");
            assert_eq!(lab.server.longest_without_progress(), stuck.time);
            drop(held);
        },
    );
    eventually("the flusher comes on", || look(&lab).is_empty());
    assert_eq!(lab.server.longest_without_progress(), Duration::ZERO);
}

#[test]
fn a_wal_thread_that_waits_and_not_for_a_file_is_stuck() {
    let gate = Arc::new(Gate::default());
    let settings = RegionServerSettings { wal_sync: SyncMode::Fsync, ..settings() };
    let lab = Lab::over(SimFileSystem::new(), settings, held_beside_files(&gate, Asked::Monotonic));
    let held = gate.hold("log");
    while_written(
        || lab.put("r", "q", "v"),
        || {
            let _held = held;
            eventually("the WAL thread waits", || gate.waits.load(Ordering::Acquire));
            let stuck = eventually_stuck(&lab);
            assert_eq!((&*stuck.name, &*stuck.work), ("log", "writing the WAL"));
        },
    );
    assert_eq!(lab.row("r"), ["v"]);
}

#[test]
fn a_flush_on_a_slow_disk_is_not_stuck() {
    let gate = Arc::new(Gate::default());
    let lab = Lab::over(SimFileSystem::new(), settings(), held_in_files(&gate));
    let held = gate.hold("flusher-0");
    while_written(
        || fill(&lab),
        || {
            let _held = held;
            eventually("the flusher waits", || gate.waits.load(Ordering::Acquire));
            assert_eq!(stuck(&lab), None);
        },
    );
}

#[test]
fn a_wal_on_a_slow_disk_is_not_stuck() {
    let gate = Arc::new(Gate::default());
    let settings = RegionServerSettings { wal_sync: SyncMode::Fsync, ..settings() };
    let lab = Lab::over(SimFileSystem::new(), settings, held_in_files(&gate));
    let held = gate.hold("log");
    while_written(
        || lab.put("r", "q", "v"),
        || {
            let _held = held;
            eventually("the WAL thread waits", || gate.waits.load(Ordering::Acquire));
            assert_eq!(stuck(&lab), None);
        },
    );
    assert_eq!(lab.row("r"), ["v"]);
}
