use super::*;
use crate::sim::SimFileSystem;
use crate::{ManualClock, WatchedFileSystem};

const PERIOD: Duration = Duration::from_secs(3);
const ROOT: &str = "/vitals";

/// The calling thread is watched, and the test says what it seems to do.
struct Watched {
    vitals: Vitals,
    clock: Arc<ManualClock>,
    state: Cell<Option<ThreadState>>,
}

impl Watched {
    fn new() -> Watched {
        let vitals = Vitals::default();
        vitals.watch_thread();
        let state = Cell::new(Some(ThreadState { sleeps: true, ran: Duration::from_secs(7) }));
        Watched { vitals, clock: Arc::new(ManualClock::at(1_000)), state }
    }

    fn runs_for(&self, time: Duration) {
        self.state.set(self.state.get().map(|state| ThreadState { ran: state.ran + time, ..state }));
    }

    /// A look after a period: the stuck thread, if there is one.
    fn look(&self) -> Option<StuckThread> {
        self.clock.advance(PERIOD);
        let late = self.vitals.look_with(&|_| self.state.get(), self.clock.monotonic_ns(), PERIOD);
        late.into_iter().find(|thread| thread.is_stuck)
    }

    /// Looks, until a thread is stuck; the number of looks after the first one.
    fn looks_until_stuck(&self) -> Option<u32> {
        (0..LOOKS * 50).find(|_| self.look().is_some())
    }

    fn is_never_stuck(&self) -> bool {
        (0..LOOKS * 3).all(|_| self.look().is_none())
    }

    /// A file system whose operations are seen.
    fn files(&self) -> (SimFileSystem, WatchedFileSystem) {
        let inner = SimFileSystem::new();
        let watched = WatchedFileSystem::new(Arc::new(inner.clone()), self.clock.clone(), Arc::default());
        (inner, watched)
    }
}

#[test]
fn a_thread_that_sleeps_with_work_is_stuck_after_some_looks() {
    let watched = Watched::new();
    assert!(watched.is_never_stuck(), "it has no work");
    let whole = work(|| "an order".to_string(), None);
    let part = work(|| "a flush".to_string(), None);
    assert_eq!(watched.looks_until_stuck(), Some(LOOKS));
    let stuck = watched.look().unwrap();
    assert_eq!((&*stuck.work, stuck.computes), ("an order, a flush", false));
    assert_eq!((stuck.time, watched.vitals.longest()), (PERIOD * 6, PERIOD * 6));
    turn();
    assert_eq!(watched.looks_until_stuck(), Some(LOOKS), "it came on");
    drop(part);
    assert_eq!(watched.looks_until_stuck(), Some(LOOKS), "the end of a part is a turn");
    drop(whole);
    assert!(watched.is_never_stuck());
    assert_eq!(watched.vitals.longest(), Duration::ZERO);
}

#[test]
fn a_slow_thread_that_comes_on_is_not_stuck() {
    let watched = Watched::new();
    let _work = work(|| "a long flush".to_string(), None);
    for look in 0..LOOKS * 10 {
        if look % LOOKS == 0 {
            turn();
        }
        assert_eq!(watched.look(), None);
    }
}

#[test]
fn a_thread_that_computes_has_more_time() {
    let watched = Watched::new();
    let _work = work(|| "a loop".to_string(), None);
    assert_eq!(watched.look(), None);
    let looks = LOOKS * COMPUTES_TIMES;
    for _ in 1..looks {
        watched.runs_for(PERIOD);
        assert_eq!(watched.look(), None);
    }
    watched.runs_for(PERIOD);
    assert!(watched.look().unwrap().computes);
    // With little of a processor it may take longer: what counts is what it has had.
    turn();
    assert_eq!(watched.look(), None);
    for _ in 0..looks * 9 {
        watched.runs_for(PERIOD / 10);
        assert_eq!(watched.look(), None);
    }
}

#[test]
fn who_waits_for_the_kernel_or_a_processor_is_not_stuck() {
    let watched = Watched::new();
    let _work = work(|| "a flush".to_string(), None);
    let state = watched.state.take().unwrap();
    assert!(watched.is_never_stuck(), "nothing is known of it");
    watched.state.set(Some(ThreadState { sleeps: false, ..state }));
    assert!(watched.is_never_stuck());
    watched.state.set(Some(state));
    assert_eq!(watched.looks_until_stuck(), Some(LOOKS - 1));
}

#[test]
fn waits_with_limits_of_their_own_do_not_count() {
    let watched = Watched::new();
    let _work = work(|| "a report".to_string(), None);
    outside(|| assert!(watched.is_never_stuck()));
    assert_eq!(watched.looks_until_stuck(), Some(LOOKS), "the end of the wait is a turn");
}

#[test]
fn an_operation_on_a_file_may_take_as_long_as_it_does() {
    let watched = Watched::new();
    let (inner, fs) = watched.files();
    let watched = Arc::new(watched.vitals);
    let _work = work(|| "a flush".to_string(), None);
    let (vitals, looks) = (watched.clone(), Arc::new(AtomicU32::new(0)));
    let counted = looks.clone();
    inner.interrupt(crate::sim::Operation::Create, "slow", move || {
        for look in 1..LOOKS * 3 {
            let state = Some(ThreadState { sleeps: true, ran: Duration::ZERO });
            let late = vitals.look_with(&|_| state, u64::from(look) * PERIOD.as_nanos() as u64, PERIOD);
            assert_eq!(late, []);
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    drop(fs.create(Path::new("/slow")).unwrap());
    assert_eq!(looks.load(Ordering::Relaxed), LOOKS * 3 - 1);
}

#[test]
fn files_that_others_change_count_as_progress_of_who_waits_for_them() {
    let watched = Watched::new();
    let (inner, fs) = watched.files();
    let region = Path::new(ROOT).join("data/region");
    inner.env().fs.create_dir_all(&region).unwrap();
    let _work = work(|| "a close".to_string(), Some(&region));
    assert_eq!(watched.look(), None);
    let others_change = |path: &Path| {
        let (fs, path) = (&fs, path.to_path_buf());
        std::thread::scope(|scope| {
            let change = move || fs.replace(&path, b"1").unwrap();
            std::thread::Builder::new().spawn_scoped(scope, change).unwrap().join().unwrap();
        });
    };
    for _ in 0..LOOKS * 3 {
        others_change(&region.join("file"));
        assert_eq!(watched.look(), None);
    }
    others_change(&Path::new(ROOT).join("data/other"));
    let mut looks = 0;
    while watched.look().is_none() {
        others_change(&Path::new(ROOT).join("data/other"));
        looks += 1;
    }
    assert_eq!(looks, LOOKS - 1);
}

#[test]
fn while_the_log_is_slow_nobody_who_sleeps_is_stuck() {
    let watched = Watched::new();
    let log = Path::new(ROOT).join("WALs/server");
    watched.vitals.watch_log(&log);
    let _work = work(|| "a flush".to_string(), None);
    let write = |time: Duration| {
        let (log, clock) = (log.clone(), watched.clock.clone());
        let written = std::thread::Builder::new().spawn(move || {
            let operation = FileOperation::changes(&*clock, &log.join("wal.1"));
            clock.advance(time);
            drop(operation);
        });
        written.unwrap().join().unwrap();
    };
    assert_eq!(watched.look(), None);
    for _ in 0..LOOKS * 3 {
        write(SLOW);
        assert_eq!(watched.look(), None);
    }
    let mut looks = 0;
    while watched.look().is_none() {
        write(SLOW / 2);
        looks += 1;
    }
    assert_eq!(looks, LOOKS - 1, "a log that is fast does not hold anybody up");
}

/// However a path is written; for the usual way its parts are not looked at.
#[test]
fn paths_below_a_directory_are_known() {
    let dir = Path::new("/d/WALs/server");
    for (path, is_it) in [
        ("/d/WALs/server", true),
        ("/d/WALs/server/wal.1", true),
        ("/d/WALs/server.1/wal.1", false),
        ("/d/WALs", false),
        ("/d/./WALs//server/wal.1", true),
        ("d/WALs/server/wal.1", false),
        ("", false),
    ] {
        assert_eq!(is_below(Path::new(path), dir), is_it, "{path}");
        assert_eq!(Path::new(path).starts_with(dir), is_it, "{path}");
    }
    assert!(is_below(Path::new("/d/a"), Path::new("/d/")) && is_below(Path::new("/a"), Path::new("/")));
}

#[test]
fn directories_are_watched_as_long_as_somebody_works_there() {
    let watched = Watched::new();
    let dir = Path::new("/vitals-of-one-test");
    let is_watched = || SUBJECTS.read().iter().any(|subject| subject.dir == dir);
    let work = work(|| "an order".to_string(), Some(dir));
    assert!(is_watched());
    drop(work);
    assert!(!is_watched());
    assert_eq!(watched.look(), None);
}

#[test]
fn threads_that_help_count_for_the_one_they_help() {
    let watched = Watched::new();
    let _work = work(|| "a split of a WAL".to_string(), None);
    for _ in 0..LOOKS * 3 {
        crate::run_on_threads("helper", 2, &turn);
        assert_eq!(watched.look(), None);
    }
    assert_eq!(watched.looks_until_stuck(), Some(LOOKS - 1));
}
