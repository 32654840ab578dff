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
}

#[derive(Default)]
struct Gate {
    /// The name of the thread.
    held: Mutex<Option<&'static str>>,
    waits: AtomicBool,
    released: Condvar,
}

impl Gate {
    fn hold(&self, thread: &'static str) {
        *self.held.lock() = Some(thread);
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

impl Clock for HoldingClock {
    fn now_ms(&self) -> i64 {
        self.gate.pass();
        self.inner.now_ms()
    }

    fn monotonic_ns(&self) -> u64 {
        self.gate.pass();
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
fn held_beside_files(gate: &Arc<Gate>) -> impl FnOnce(Env) -> Env {
    let gate = gate.clone();
    |env| {
        let clock = HoldingClock { inner: env.clock.clone(), gate };
        Env { local: Arc::new(RealFileSystem), clock: Arc::new(clock), ..env }
    }
}

/// Operations on files are held up, as by a slow disk.
fn held_in_files(gate: &Arc<Gate>) -> impl FnOnce(Env) -> Env {
    let gate = gate.clone();
    |env| {
        let clock = Arc::new(HoldingClock { inner: env.clock.clone(), gate });
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

#[test]
fn a_flush_that_waits_and_not_for_a_file_is_stuck() {
    let gate = Arc::new(Gate::default());
    let lab = Lab::over(SimFileSystem::new(), settings(), held_beside_files(&gate));
    gate.hold("flusher-0");
    fill(&lab);
    eventually("the flusher waits", || gate.waits.load(Ordering::Acquire));
    let stuck = stuck(&lab).expect("the flusher is stuck");
    assert_eq!(stuck.name, "flusher-0");
    assert_eq!(stuck.work, format!("a flush of region {}", lab.info.encoded_name()));
    assert!(stuck.time >= PERIOD * LOOKS && !stuck.computes, "{stuck:?}");
    assert_eq!(lab.server.longest_without_progress(), stuck.time);
    gate.release();
    eventually("the flusher comes on", || look(&lab).is_empty());
    assert_eq!(lab.server.longest_without_progress(), Duration::ZERO);
}

#[test]
fn a_wal_thread_that_waits_and_not_for_a_file_is_stuck() {
    let gate = Arc::new(Gate::default());
    let settings = RegionServerSettings { wal_sync: SyncMode::Fsync, ..settings() };
    let lab = Lab::over(SimFileSystem::new(), settings, held_beside_files(&gate));
    gate.hold("log");
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().spawn_scoped(scope, || lab.put("r", "q", "v")).unwrap();
        eventually("the WAL thread waits", || gate.waits.load(Ordering::Acquire));
        let stuck = stuck(&lab);
        gate.release();
        writer.join().unwrap();
        let stuck = stuck.expect("the WAL thread is stuck");
        assert_eq!((&*stuck.name, &*stuck.work), ("log", "writing the WAL"));
    });
    assert_eq!(lab.row("r"), ["v"]);
}

#[test]
fn a_flush_on_a_slow_disk_is_not_stuck() {
    let gate = Arc::new(Gate::default());
    let lab = Lab::over(SimFileSystem::new(), settings(), held_in_files(&gate));
    gate.hold("flusher-0");
    fill(&lab);
    eventually("the flusher waits", || gate.waits.load(Ordering::Acquire));
    assert_eq!(stuck(&lab), None);
    gate.release();
}

#[test]
fn a_wal_on_a_slow_disk_is_not_stuck() {
    let gate = Arc::new(Gate::default());
    let settings = RegionServerSettings { wal_sync: SyncMode::Fsync, ..settings() };
    let lab = Lab::over(SimFileSystem::new(), settings, held_in_files(&gate));
    gate.hold("log");
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().spawn_scoped(scope, || lab.put("r", "q", "v")).unwrap();
        eventually("the WAL thread waits", || gate.waits.load(Ordering::Acquire));
        assert_eq!(stuck(&lab), None);
        gate.release();
        writer.join().unwrap();
    });
    assert_eq!(lab.row("r"), ["v"]);
}
