//! Whether threads that have work come on with it.
//!
//! A thread that is watched ([`Vitals::watch_thread`]) says what it works on ([`work`]). It makes a *turn* when it begins or ends
//! work, when it begins or ends an operation on a file, and where it says so ([`turn`]). Somebody looks from time to time
//! ([`Vitals::look`]). A thread that has work and makes no turn from look to look is stuck in one of two ways:
//!
//! | | it is stuck after |
//! |---|---|
//! | it sleeps: it waits for a lock or for another thread | [`LOOKS`] looks |
//! | it computes | [`LOOKS`] looks' time of a processor, [`COMPUTES_TIMES`] times |
//!
//! What is slow is not stuck, so all this counts as if the thread came on:
//!
//! - it is within an operation on a file, however long that takes, or within another wait that has a limit of its own
//!   ([`outside`]): a call of another process, a pause;
//! - it waits for the kernel, or for a processor;
//! - other threads change files of what it works on, such as those of a region that it is to close;
//! - the log is slow ([`Vitals::watch_log`]), because whatever waits for writes waits for it.
//!
//! Operations on files are seen by [`WatchedFileSystem`](crate::WatchedFileSystem). A look that comes late, because the whole
//! process was frozen, counts once.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::proc::{ThreadState, thread_state};
use crate::{Clock, FileSystem, Mutex};

/// A thread that sleeps for so many looks, and makes no turn, is stuck.
pub const LOOKS: u32 = 5;
/// A thread that computes may do so for this multiple of the processor time.
pub const COMPUTES_TIMES: u32 = 4;
/// Who runs for less than this part of the time between two looks sleeps, and wakes up to look around.
const COMPUTES_PART: u32 = 100;
/// An operation on the log that takes longer says that the log is slow.
const SLOW: Duration = Duration::from_millis(250);

thread_local! {
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
    static OWN: RefCell<Option<Arc<Vital>>> = const { RefCell::new(None) };
}

/// Directories whose changes somebody wants to know of.
/// A plain lock: simulations of one process do not wait for each other.
static SUBJECTS: parking_lot::RwLock<Vec<Arc<Subject>>> = parking_lot::RwLock::new(Vec::new());
static SUBJECTS_COUNT: AtomicUsize = AtomicUsize::new(0);

/// A directory, and what all threads do there.
#[derive(Debug, Default)]
struct Subject {
    dir: PathBuf,
    begun: AtomicU64,
    ended: AtomicU64,
    ended_slow: AtomicU64,
}

/// Keeps a directory among [`SUBJECTS`].
struct Registered(Arc<Subject>);

impl Registered {
    fn new(dir: &Path) -> Registered {
        let subject = Arc::new(Subject { dir: dir.to_path_buf(), ..Subject::default() });
        let mut subjects = SUBJECTS.write();
        subjects.push(subject.clone());
        SUBJECTS_COUNT.store(subjects.len(), Ordering::Release);
        Registered(subject)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut subjects = SUBJECTS.write();
        subjects.retain(|subject| !Arc::ptr_eq(subject, &self.0));
        SUBJECTS_COUNT.store(subjects.len(), Ordering::Release);
    }
}

/// What a subject was like at a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SubjectSeen {
    begun: u64,
    ended: u64,
    ended_slow: u64,
}

impl Subject {
    fn seen(&self) -> SubjectSeen {
        // The end first: an operation in between counts as one under way.
        let ended = self.ended.load(Ordering::Acquire);
        SubjectSeen {
            ended,
            begun: self.begun.load(Ordering::Acquire),
            ended_slow: self.ended_slow.load(Ordering::Acquire),
        }
    }
}

impl SubjectSeen {
    fn is_under_way(&self) -> bool {
        self.begun != self.ended
    }

    /// Whether anything happened there.
    fn moved(&self, before: &SubjectSeen) -> bool {
        self.is_under_way() || self != before
    }

    /// Whether what happened there took long, or still takes long.
    fn was_slow(&self, before: &SubjectSeen) -> bool {
        self.ended_slow != before.ended_slow || (self.is_under_way() && self.ended == before.ended)
    }
}

/// One thread. Its work is pushed and popped by itself; others read.
struct Vital {
    name: String,
    thread: u32,
    turns: AtomicU64,
    /// Waits with limits of their own, one in another.
    outside: AtomicU32,
    works: Mutex<Vec<Piece>>,
    seen: Mutex<Seen>,
}

struct Piece {
    what: String,
    subject: Option<Registered>,
}

/// What the last look saw, and how long that lasts.
#[derive(Default)]
struct Seen {
    turns: u64,
    subjects: Vec<SubjectSeen>,
    at_ns: u64,
    ran: Duration,
    sleeping_looks: u32,
    computed: Duration,
    since_ns: u64,
}

impl Vital {
    fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread that has work and does not come on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckThread {
    pub name: String,
    /// The number of the operating system.
    pub thread: u32,
    /// What it works on, the outermost first.
    pub work: String,
    /// Since it was seen to make a turn.
    pub time: Duration,
    /// Whether it has used a processor meanwhile.
    pub computes: bool,
    /// Whether that is long enough to call it stuck.
    pub is_stuck: bool,
}

/// The watched threads of one server.
///
/// *Thread safety*: all methods from any thread; one at a time looks.
#[derive(Default)]
pub struct Vitals {
    threads: Mutex<Vec<Arc<Vital>>>,
    log: Mutex<Option<(Registered, SubjectSeen)>>,
    longest_ns: AtomicU64,
}

impl Vitals {
    /// The calling thread is watched from now on.
    pub fn watch_thread(&self) {
        let name = std::thread::current().name().unwrap_or("unnamed").to_string();
        let vital = Arc::new(Vital {
            name,
            thread: rustix::thread::gettid().as_raw_pid().unsigned_abs(),
            turns: AtomicU64::new(0),
            outside: AtomicU32::new(0),
            works: Mutex::default(),
            seen: Mutex::default(),
        });
        self.threads.lock().push(vital.clone());
        OWN.replace(Some(vital));
        IS_WATCHED.set(true);
    }

    /// While operations in this directory are slow, no thread that sleeps is stuck. The first one stays.
    pub fn watch_log(&self, dir: &Path) {
        let mut log = self.log.lock();
        if log.is_none() {
            let registered = Registered::new(dir);
            *log = Some((registered, SubjectSeen::default()));
        }
    }

    /// The longest time, at the last look, that a thread with work had made no turn.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed))
    }

    /// Looks at all threads. Returns those that have not come on since the look before, the longest first. `fs` has
    /// `/proc`; where it tells nothing of a thread, that one is never stuck. `period` is the time between two looks.
    pub fn look(&self, fs: &dyn FileSystem, clock: &dyn Clock, period: Duration) -> Vec<StuckThread> {
        let state_of = |thread| thread_state(fs, thread);
        self.look_with(&state_of, clock.monotonic_ns(), period)
    }

    fn look_with(
        &self,
        state_of: &dyn Fn(u32) -> Option<ThreadState>,
        now_ns: u64,
        period: Duration,
    ) -> Vec<StuckThread> {
        let log_is_slow = self.log.lock().as_mut().is_some_and(|(log, before)| {
            let now = log.0.seen();
            now.was_slow(&std::mem::replace(before, now))
        });
        let threads = self.threads.lock().clone();
        let look = |vital: &Arc<Vital>| vital.look(state_of, now_ns, period, log_is_slow);
        let mut late: Vec<StuckThread> = threads.iter().filter_map(look).collect();
        late.sort_by_key(|thread| std::cmp::Reverse((thread.is_stuck, thread.time)));
        let longest = late.iter().map(|thread| thread.time).max().unwrap_or_default();
        self.longest_ns.store(longest.as_nanos() as u64, Ordering::Relaxed);
        late
    }
}

impl Vital {
    fn look(
        &self,
        state_of: &dyn Fn(u32) -> Option<ThreadState>,
        now_ns: u64,
        period: Duration,
        log_is_slow: bool,
    ) -> Option<StuckThread> {
        let mut seen = self.seen.lock();
        let turns = self.turns.load(Ordering::Acquire);
        let is_outside = self.outside.load(Ordering::Acquire) > 0;
        let (work, subjects) = {
            let works = self.works.lock();
            let names: Vec<&str> = works.iter().map(|piece| &*piece.what).collect();
            let subjects = works.iter().filter_map(|piece| Some(piece.subject.as_ref()?.0.seen()));
            (names.join(", "), subjects.collect::<Vec<_>>())
        };
        let others_come_on = subjects.len() != seen.subjects.len()
            || subjects.iter().zip(&seen.subjects).any(|(now, before)| now.moved(before));
        let state = if work.is_empty() { None } else { state_of(self.thread) };
        let before_ns = std::mem::replace(&mut seen.at_ns, now_ns);
        let comes_on = turns != seen.turns || is_outside || others_come_on;
        (seen.turns, seen.subjects) = (turns, subjects);
        let Some(state) = state.filter(|_| !comes_on) else {
            (seen.sleeping_looks, seen.computed, seen.since_ns) = (0, Duration::ZERO, now_ns);
            seen.ran = state.map_or(seen.ran, |state| state.ran);
            return None;
        };
        let ran = state.ran.saturating_sub(std::mem::replace(&mut seen.ran, state.ran));
        let passed = Duration::from_nanos(now_ns.saturating_sub(before_ns));
        let computes = ran >= passed / COMPUTES_PART;
        if computes {
            seen.computed += ran;
        }
        match state.sleeps && !computes && !log_is_slow {
            true => seen.sleeping_looks += 1,
            false => seen.sleeping_looks = 0,
        }
        let computed_max = period * LOOKS * COMPUTES_TIMES;
        Some(StuckThread {
            name: self.name.clone(),
            thread: self.thread,
            work,
            time: Duration::from_nanos(now_ns.saturating_sub(seen.since_ns)),
            computes,
            is_stuck: seen.sleeping_looks >= LOOKS || seen.computed >= computed_max,
        })
    }
}

fn own() -> Option<Arc<Vital>> {
    if !IS_WATCHED.get() {
        return None;
    }
    OWN.with_borrow(Clone::clone)
}

/// A piece of work of the calling thread, until it is dropped.
pub struct Work {
    vital: Option<Arc<Vital>>,
    /// Dropped by the thread that made it.
    _of_one_thread: std::marker::PhantomData<*const ()>,
}

/// The calling thread, if it is watched, begins a piece of work, which may be a part of another one. Changes of files below
/// `subject` by any thread count as if it came on.
#[must_use]
pub fn work(what: impl FnOnce() -> String, subject: Option<&Path>) -> Work {
    let vital = own();
    if let Some(vital) = &vital {
        let subject = subject.map(Registered::new);
        vital.works.lock().push(Piece { what: what(), subject });
        vital.turn();
    }
    Work { vital, _of_one_thread: std::marker::PhantomData }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(vital) = &self.vital {
            let ended = vital.works.lock().pop();
            vital.turn();
            drop(ended);
        }
    }
}

/// The calling thread has come on with its work.
#[inline]
pub fn turn() {
    if let Some(vital) = own() {
        vital.turn();
    }
}

/// Carries out `body`, which waits for something that has a limit of its own.
pub fn outside<T>(body: impl FnOnce() -> T) -> T {
    let waiting = Outside::begin();
    let result = body();
    drop(waiting);
    result
}

struct Outside(Option<Arc<Vital>>);

impl Outside {
    fn begin() -> Outside {
        let vital = own();
        if let Some(vital) = &vital {
            vital.outside.fetch_add(1, Ordering::AcqRel);
        }
        Outside(vital)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Some(vital) = &self.0 {
            vital.turn();
            vital.outside.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// What other threads do for the calling one ([`crate::run_on_threads`]) counts as its own.
#[derive(Clone)]
pub(crate) struct Helped(Option<Arc<Vital>>);

impl Helped {
    pub(crate) fn by_others() -> Helped {
        Helped(own())
    }

    /// To be called by a thread that ends after it has helped.
    pub(crate) fn help(&self) {
        if let Some(vital) = &self.0 {
            OWN.replace(Some(vital.clone()));
            IS_WATCHED.set(true);
        }
    }
}

/// As `path.starts_with(dir)`, which takes both apart: for each write to the log that is a tenth of a put.
fn is_below(path: &Path, dir: &Path) -> bool {
    let (path_bytes, dir_bytes) = (path.as_os_str().as_encoded_bytes(), dir.as_os_str().as_encoded_bytes());
    let rest = path_bytes.strip_prefix(dir_bytes);
    // The same directory may be written in several ways.
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/') || path.starts_with(dir)
}

/// An operation on a file.
pub(crate) struct FileOperation<'c> {
    _own: Outside,
    subjects: Vec<Arc<Subject>>,
    clock: &'c dyn Clock,
    begun_ns: u64,
}

impl<'c> FileOperation<'c> {
    /// One that reads.
    pub(crate) fn reads(clock: &'c dyn Clock) -> FileOperation<'c> {
        FileOperation { _own: Outside::begin(), subjects: Vec::new(), clock, begun_ns: 0 }
    }

    /// One that changes something, or waits until it is on the disk.
    pub(crate) fn changes(clock: &'c dyn Clock, path: &Path) -> FileOperation<'c> {
        let mut operation = FileOperation::reads(clock);
        if SUBJECTS_COUNT.load(Ordering::Acquire) > 0 {
            let subjects = SUBJECTS.read();
            let is_below = |subject: &&Arc<Subject>| is_below(path, &subject.dir);
            operation.subjects = subjects.iter().filter(is_below).cloned().collect();
        }
        if !operation.subjects.is_empty() {
            operation.begun_ns = clock.monotonic_ns();
            for subject in &operation.subjects {
                subject.begun.fetch_add(1, Ordering::AcqRel);
            }
        }
        operation
    }
}

impl Drop for FileOperation<'_> {
    fn drop(&mut self) {
        if self.subjects.is_empty() {
            return;
        }
        let took_ns = self.clock.monotonic_ns().saturating_sub(self.begun_ns);
        for subject in &self.subjects {
            if took_ns >= SLOW.as_nanos() as u64 {
                subject.ended_slow.fetch_add(1, Ordering::AcqRel);
            }
            subject.ended.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests;
