//! Threads that take turns in an order that a seed gives, and time that passes only while all of them wait.
//!
//! The threads are the operating system's. One of them has the turn; the others are parked. The turn passes where a thread waits (for a
//! signal, a lock, another thread, the clock) and, by chance, at each [`SimThreads::step`], which a simulation puts before and behind
//! each call of a file or a server. So the order of all that threads do to each other follows from the seed, although the code
//! between two such points runs as always.
//!
//! Threads belong to processes. A thread starts in the process of the one that starts it. A process can be frozen, and goes on later as if
//! nothing had happened, or killed: then its threads unwind at the point where they are.
//!
//! A lock that is held where the turn passes has to be one of [`crate::Mutex`] and [`crate::RwLock`]. With any other, a thread that
//! wants it would wait with the turn in its hands.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Thread, ThreadId};
use std::time::Duration;

use parking_lot::Mutex;

use super::Dice;
use crate::Clock;

/// The wall time at which a simulation begins, in ms.
const BEGIN_MS: i64 = 1_700_000_000_000;
/// How long a thread waits for a lock before it looks again: the first time, and at most.
const PAUSE: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// At a step the turn passes one time in so many.
const PASSES_ONE_IN: usize = 4;
/// A step takes at most so long.
const STEP_NS_MAX: usize = 50_000;

/// Number of a process. The one that began the simulation is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process(u32);

/// A simulation. Clones share it.
#[derive(Clone)]
pub struct SimThreads(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
}

struct State {
    dice: Dice,
    /// For [`crate::random_bytes`].
    names: Dice,
    now_ns: u64,
    /// Those that have not ended. Numbers are given in the order of starts.
    threads: BTreeMap<u32, Known>,
    next_thread: u32,
    processes: Vec<Life>,
    /// Who gets the turn next, whatever the dice say.
    forced: Option<u32>,
    /// What a thread panicked with that nobody killed.
    failure: Option<String>,
    turns: u64,
    steps: u64,
    /// Depends on all choices so far.
    trace: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Runs,
    Frozen,
    Killed,
}

struct Known {
    name: String,
    process: Process,
    wait: Wait,
    parker: Arc<Parker>,
    id: Option<ThreadId>,
}

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Nothing,
    Until(u64),
    Signal { key: usize, until_ns: Option<u64> },
    End(u32),
}

#[derive(Default)]
struct Parker {
    has_turn: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

/// What the threads of a killed process unwind with.
struct Killed;

struct Me {
    shared: Arc<Shared>,
    number: u32,
    process: Process,
    parker: Arc<Parker>,
}

thread_local! {
    static ME: RefCell<Option<Arc<Me>>> = const { RefCell::new(None) };
}

fn me() -> Option<Arc<Me>> {
    ME.with(|me| me.borrow().clone())
}

pub(crate) fn is_simulated() -> bool {
    ME.with(|me| me.borrow().is_some())
}

impl SimThreads {
    /// Runs `body` as the first thread of a simulation, and ends all other threads afterwards. Panics with `body`, or with what another
    /// thread panicked with.
    pub fn run<T>(seed: u64, body: impl FnOnce(&SimThreads) -> T) -> T {
        assert!(!is_simulated(), "a simulation does not run in another one");
        let state = State {
            dice: Dice::new(seed),
            names: Dice::new(!seed),
            now_ns: 0,
            threads: BTreeMap::new(),
            next_thread: 0,
            processes: vec![Life::Runs],
            forced: None,
            failure: None,
            turns: 0,
            steps: 0,
            trace: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state) });
        let first = shared.add("first", Process(0));
        first.started(&std::thread::current());
        first.enter();
        let threads = SimThreads(shared.clone());
        let result = catch_unwind(AssertUnwindSafe(|| body(&threads)));
        threads.end_all();
        ME.with(|me| me.borrow_mut().take());
        let failure = shared.state.lock().failure.take();
        match (result, failure) {
            (Err(panic), _) => resume_unwind(panic),
            (Ok(_), Some(failure)) => panic!("{failure}"),
            (Ok(result), None) => result,
        }
    }

    /// The clock of the simulation, which is ahead of its time by this much.
    pub fn clock(&self, ahead_ms: i64) -> Arc<dyn Clock> {
        Arc::new(SimClock { shared: self.0.clone(), ahead_ms })
    }

    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.state.lock().now_ns)
    }

    /// A point at which another thread may get the turn. Does nothing outside of a simulation.
    pub fn step() {
        let Some(me) = me().filter(|_| !std::thread::panicking()) else { return };
        let mut state = me.shared.state.lock();
        state.steps += 1;
        let taken = state.dice.below(STEP_NS_MAX) as u64;
        state.now_ns += taken;
        if state.dice.one_in(PASSES_ONE_IN) {
            drop(state);
            me.wait(Wait::Nothing);
        }
    }

    /// How often the turn went from one thread to another, and how many steps there were.
    pub fn turns_and_steps(&self) -> (u64, u64) {
        let state = self.0.state.lock();
        (state.turns, state.steps)
    }

    /// A number that depends on all that was chosen so far: equal for two runs of one seed.
    pub fn trace(&self) -> u64 {
        let state = self.0.state.lock();
        state.trace ^ state.now_ns ^ state.dice.clone().next_u64()
    }

    /// Panics if another thread has panicked.
    pub fn check(&self) {
        let failure = self.0.state.lock().failure.take();
        if let Some(failure) = failure {
            panic!("{failure}");
        }
    }

    /// Starts a thread of a new process.
    pub fn start_process(
        &self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Process> {
        let process = {
            let mut state = self.0.state.lock();
            state.processes.push(Life::Runs);
            Process(state.processes.len() as u32 - 1)
        };
        let newcomer = self.0.add(name, process);
        let known = newcomer.clone();
        #[allow(clippy::disallowed_methods)] // as `spawn_thread`
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(move || newcomer.run(body))?;
        known.started(thread.thread());
        Ok(process)
    }

    /// Starts a thread in a process that was started before. An error if the process was killed.
    pub fn spawn_in(
        &self,
        process: Process,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        if self.is_killed(process) {
            return Err(std::io::Error::other("the process was killed"));
        }
        let newcomer = self.0.add(name, process);
        let known = newcomer.clone();
        #[allow(clippy::disallowed_methods)] // as `spawn_thread`
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(move || newcomer.run(body))?;
        known.started(thread.thread());
        Ok(())
    }

    /// Its threads get no turn until [`SimThreads::thaw`]. Not for a process that was killed.
    pub fn freeze(&self, process: Process) {
        self.set_life(process, Life::Frozen);
    }

    pub fn thaw(&self, process: Process) {
        self.set_life(process, Life::Runs);
    }

    fn set_life(&self, process: Process, to: Life) {
        let mut state = self.0.state.lock();
        let life = &mut state.processes[process.0 as usize];
        assert!(*life != Life::Killed, "a killed process stays so");
        *life = to;
    }

    pub fn is_killed(&self, process: Process) -> bool {
        self.0.state.lock().processes[process.0 as usize] == Life::Killed
    }

    /// Whether the process has a thread.
    pub fn has_threads(&self, process: Process) -> bool {
        self.0.state.lock().threads.values().any(|thread| thread.process == process)
    }

    /// Ends all threads of another process where they are.
    pub fn kill(&self, process: Process) {
        let me = me().expect("a simulated thread kills");
        assert!(process != me.process, "another process");
        self.0.state.lock().processes[process.0 as usize] = Life::Killed;
        loop {
            let mut state = self.0.state.lock();
            let left = state.threads.iter().find(|(_, thread)| thread.process == process);
            let Some(number) = left.map(|(number, _)| *number) else { return };
            state.forced = Some(number);
            drop(state);
            me.wait(Wait::End(number));
        }
    }

    fn end_all(&self) {
        loop {
            let state = self.0.state.lock();
            let left = state.threads.values().map(|thread| thread.process).find(|process| process.0 > 0);
            drop(state);
            match left {
                Some(process) => self.kill(process),
                None => break,
            }
        }
        let me = me().expect("the first thread");
        loop {
            let mut state = self.0.state.lock();
            let other = state.threads.keys().copied().find(|number| *number != me.number);
            let Some(number) = other else { return };
            // Threads that the first one has started end as if killed.
            state.processes[0] = Life::Killed;
            state.forced = Some(number);
            state.threads.get_mut(&me.number).expect("it runs").wait = Wait::End(number);
            drop(state);
            me.pass();
        }
    }
}

impl Shared {
    fn add(self: &Arc<Shared>, name: &str, process: Process) -> Newcomer {
        let parker = Arc::new(Parker::default());
        let mut state = self.state.lock();
        let number = state.next_thread;
        state.next_thread += 1;
        let (wait, name) = (Wait::Nothing, name.to_string());
        state.threads.insert(number, Known { name, process, wait, parker: parker.clone(), id: None });
        drop(state);
        Newcomer(Arc::new(Me { shared: self.clone(), number, process, parker }))
    }
}

impl State {
    /// Who gets the turn. Time passes if all wait.
    fn choose(&mut self) -> (u32, Arc<Parker>) {
        let number = match self.forced.take() {
            Some(number) => number,
            None => self.choose_ready(),
        };
        self.turns += 1;
        self.trace = self.trace.rotate_left(5) ^ u64::from(number) ^ self.now_ns;
        let thread = self.threads.get_mut(&number).expect("it has not ended");
        thread.wait = Wait::Nothing;
        (number, thread.parker.clone())
    }

    fn choose_ready(&mut self) -> u32 {
        loop {
            let ready: Vec<u32> = self
                .threads
                .iter()
                .filter(|(_, thread)| self.runs(thread) && self.is_ready(thread.wait))
                .map(|(number, _)| *number)
                .collect();
            if !ready.is_empty() {
                return self.dice.pick(&ready);
            }
            let running = self.threads.values().filter(|thread| self.runs(thread));
            let next_ns = running.filter_map(|thread| match thread.wait {
                Wait::Until(until_ns) | Wait::Signal { until_ns: Some(until_ns), .. } => Some(until_ns),
                _ => None,
            });
            match next_ns.min() {
                Some(next_ns) => self.now_ns = self.now_ns.max(next_ns),
                None => {
                    let names: Vec<&str> = self.threads.values().map(|it| it.name.as_str()).collect();
                    eprintln!("all threads wait for ever: {names:?}");
                    std::process::abort(); // there is no thread left to unwind
                }
            }
        }
    }

    /// The next thread of a killed process behind a given one, in a circle; `None` if there is no other.
    fn next_killed(&self, process: Process, behind: u32) -> Option<u32> {
        let of_process = |(number, thread): (&u32, &Known)| (thread.process == process).then_some(*number);
        let next = self.threads.range(behind + 1..).find_map(of_process);
        next.or_else(|| self.threads.range(..behind).find_map(of_process))
    }

    fn runs(&self, thread: &Known) -> bool {
        self.processes[thread.process.0 as usize] == Life::Runs
    }

    fn is_ready(&self, wait: Wait) -> bool {
        match wait {
            Wait::Nothing => true,
            Wait::Until(until_ns) => until_ns <= self.now_ns,
            Wait::Signal { until_ns, .. } => until_ns.is_some_and(|until_ns| until_ns <= self.now_ns),
            Wait::End(number) => !self.threads.contains_key(&number),
        }
    }
}

impl Me {
    /// Gives the turn away until what is waited for has come. Unwinds if the process was killed.
    fn wait(&self, wait: Wait) {
        if std::thread::panicking() {
            return; // on the way out nothing is waited for
        }
        self.shared.state.lock().threads.get_mut(&self.number).expect("it runs").wait = wait;
        self.pass();
        if self.shared.state.lock().processes[self.process.0 as usize] == Life::Killed {
            resume_unwind(Box::new(Killed));
        }
    }

    /// The calling thread unwinds and needs a lock that another thread of its process holds: that one unwinds first.
    fn pass_on_the_way_out(&self) {
        let mut state = self.shared.state.lock();
        let Some(number) = state.next_killed(self.process, self.number) else {
            eprintln!("a thread on its way out waits for a lock that no other thread of its process holds");
            std::process::abort(); // a panic would be the second one
        };
        state.forced = Some(number);
        drop(state);
        self.pass();
    }

    fn pass(&self) {
        let (number, parker) = self.shared.state.lock().choose();
        if number != self.number {
            parker.give();
            self.parker.park();
        }
    }
}

impl Parker {
    fn give(&self) {
        self.has_turn.store(true, Ordering::Release);
        if let Some(thread) = &*self.thread.lock() {
            thread.unpark();
        }
    }

    fn park(&self) {
        while !self.has_turn.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

/// A thread that has not begun.
#[derive(Clone)]
pub(crate) struct Newcomer(Arc<Me>);

/// A thread that the calling one starts; `None` outside of a simulation.
pub(crate) fn newcomer(name: &str) -> Option<Newcomer> {
    let me = me()?;
    Some(me.shared.add(name, me.process))
}

impl Newcomer {
    /// To be called by who starts it, before the turn passes.
    pub(crate) fn started(&self, thread: &Thread) {
        *self.0.parker.thread.lock() = Some(thread.clone());
        let mut state = self.0.shared.state.lock();
        if let Some(known) = state.threads.get_mut(&self.0.number) {
            known.id = Some(thread.id());
        }
    }

    fn enter(self) {
        ME.with(|me| *me.borrow_mut() = Some(self.0));
    }

    /// The life of the thread.
    pub(crate) fn run<T>(self, body: impl FnOnce() -> T) -> T {
        let me = self.0.clone();
        *me.parker.thread.lock() = Some(std::thread::current());
        self.enter();
        me.parker.park();
        let is_killed = me.shared.state.lock().processes[me.process.0 as usize] == Life::Killed;
        let result = match is_killed {
            true => Err(Box::new(Killed) as Box<dyn Any + Send>),
            false => catch_unwind(AssertUnwindSafe(body)),
        };
        ME.with(|me| me.borrow_mut().take());
        let mut state = me.shared.state.lock();
        let known = state.threads.remove(&me.number).expect("it runs");
        if let Err(panic) = &result
            && !panic.is::<Killed>()
        {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            state.failure.get_or_insert_with(|| format!("thread {} panicked: {text}", known.name));
        }
        if state.processes[me.process.0 as usize] == Life::Killed && state.forced.is_none() {
            state.forced = state.next_killed(me.process, me.number);
        }
        let (_, parker) = state.choose();
        drop(state);
        parker.give();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// `None` outside of a simulation.
pub(crate) fn random_bytes<const N: usize>() -> Option<[u8; N]> {
    let me = me()?;
    let mut state = me.shared.state.lock();
    Some(std::array::from_fn(|_| state.names.next_u64() as u8))
}

/// Returns whether the time was over.
pub(crate) fn wait_for_signal(key: usize, time: Option<Duration>) -> bool {
    let me = me().expect("a simulated thread");
    let now_ns = me.shared.state.lock().now_ns;
    let until_ns = time.map(|time| now_ns.saturating_add(nanos(time)));
    me.wait(Wait::Signal { key, until_ns });
    until_ns.is_some_and(|until_ns| me.shared.state.lock().now_ns >= until_ns)
}

/// Tries to take a lock that another thread holds, until that succeeds or the time is over. `None` also outside of a simulation.
#[cold]
pub(crate) fn wait_for_lock<G>(time: Option<Duration>, take: impl Fn() -> Option<G>) -> Option<G> {
    let me = me()?;
    let until_ns = time.map(|time| me.shared.state.lock().now_ns.saturating_add(nanos(time)));
    let mut time = PAUSE;
    loop {
        match std::thread::panicking() {
            true => me.pass_on_the_way_out(),
            false => sleep(time),
        }
        if let Some(guard) = take() {
            return Some(guard);
        }
        if until_ns.is_some_and(|until_ns| me.shared.state.lock().now_ns >= until_ns) {
            return None;
        }
        time = (time * 2).min(PAUSE_MAX);
    }
}

/// False outside of a simulation.
pub(crate) fn notify(key: usize, all: bool) -> bool {
    let Some(me) = me() else { return false };
    let mut state = me.shared.state.lock();
    let waits = |thread: &Known| matches!(thread.wait, Wait::Signal { key: other, .. } if other == key);
    let mut waiting: Vec<u32> =
        state.threads.iter().filter(|(_, thread)| waits(thread)).map(|(number, _)| *number).collect();
    if !all && waiting.len() > 1 {
        waiting = vec![state.dice.pick(&waiting)];
    }
    for number in waiting {
        state.threads.get_mut(&number).expect("it was just found").wait = Wait::Nothing;
    }
    true
}

/// Waits for the end of a simulated thread. An error: the calling thread is on its way out, and waits for nothing.
pub(crate) fn wait_for_end(id: ThreadId) -> std::thread::Result<()> {
    let Some(me) = me() else { return Ok(()) };
    if std::thread::panicking() {
        return Err(Box::new(Killed));
    }
    let state = me.shared.state.lock();
    let number = state.threads.iter().find(|(_, thread)| thread.id == Some(id)).map(|(number, _)| *number);
    drop(state);
    if let Some(number) = number {
        me.wait(Wait::End(number));
    }
    Ok(())
}

/// A short wait for a lock.
pub(crate) fn pause() {
    sleep(PAUSE);
}

fn sleep(time: Duration) {
    let me = me().expect("a thread of the simulation");
    let now_ns = me.shared.state.lock().now_ns;
    me.wait(Wait::Until(now_ns.saturating_add(nanos(time).max(1))));
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

struct SimClock {
    shared: Arc<Shared>,
    ahead_ms: i64,
}

impl Clock for SimClock {
    fn now_ms(&self) -> i64 {
        BEGIN_MS + self.ahead_ms + (self.monotonic_ns() / 1_000_000) as i64
    }

    fn monotonic_ns(&self) -> u64 {
        self.shared.state.lock().now_ns
    }

    fn boot_ns(&self) -> u64 {
        self.monotonic_ns()
    }

    fn sleep(&self, time: Duration) {
        sleep(time);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;
    use crate::{Condvar, join_thread, spawn_thread};

    /// Threads that count, wait for each other and sleep; the order in which they did it.
    fn a_run(seed: u64) -> (Vec<u64>, u64, Duration) {
        SimThreads::run(seed, |threads| {
            let order = Arc::new((crate::Mutex::new(Vec::new()), Mutex::new(0), Condvar::new()));
            let clock = threads.clock(0);
            let workers: Vec<_> = (0..4_u64)
                .map(|worker| {
                    let (order, clock) = (order.clone(), clock.clone());
                    let body = move || {
                        for round in 0..5 {
                            let mut held = order.0.lock();
                            SimThreads::step();
                            held.push(worker * 10 + round);
                            drop(held);
                            clock.sleep(Duration::from_millis(worker));
                            *order.1.lock() += 1;
                            order.2.notify_all();
                        }
                    };
                    spawn_thread("worker", body).unwrap()
                })
                .collect();
            let mut done = order.1.lock();
            while *done < 20 {
                order.2.wait(&mut done);
            }
            drop(done);
            workers.into_iter().for_each(|worker| join_thread(worker).unwrap());
            let order = order.0.lock().clone();
            (order, threads.trace(), threads.now())
        })
    }

    #[test]
    fn a_seed_gives_one_order() {
        assert_eq!(a_run(7), a_run(7));
        assert_ne!(a_run(7).0, a_run(8).0);
        let (order, _, time) = a_run(3);
        assert_eq!(order.len(), 20);
        assert!(time >= Duration::from_millis(15) && time < Duration::from_millis(60), "{time:?}");
    }

    /// Dropped when its thread unwinds.
    struct Ends(Arc<Mutex<u32>>);

    impl Drop for Ends {
        fn drop(&mut self) {
            SimThreads::step(); // does not wait on the way out
            *self.0.lock() += 1;
        }
    }

    #[test]
    fn a_process_freezes_and_dies() {
        let ended = Arc::new(Mutex::new(0));
        let counted = SimThreads::run(1, |threads| {
            let (count, ended, clock) = (Arc::new(Mutex::new(0)), ended.clone(), threads.clock(0));
            let process = {
                let (count, clock) = (count.clone(), clock.clone());
                threads.start_process("counts", move || {
                    let child = (Ends(ended.clone()), Condvar::new(), Mutex::new(()));
                    let child = spawn_thread("child", move || child.1.wait(&mut child.2.lock())).unwrap();
                    let _ends = Ends(ended);
                    loop {
                        clock.sleep(Duration::from_millis(1));
                        *count.lock() += 1;
                        let _ = child.is_finished();
                    }
                })
            };
            let process = process.unwrap();
            let pass = || clock.sleep(Duration::from_millis(10));
            pass();
            let before = *count.lock();
            assert!((5..=10).contains(&before), "{before}");
            threads.freeze(process);
            pass();
            assert_eq!(*count.lock(), before);
            threads.thaw(process);
            pass();
            let thawed = *count.lock();
            assert!(thawed > before);
            threads.kill(process);
            assert!(!threads.has_threads(process) && threads.is_killed(process));
            pass();
            *count.lock() - thawed
        });
        assert_eq!((counted, *ended.lock()), (0, 2));
    }

    #[test]
    fn a_panic_of_a_thread_is_the_run_s() {
        let failed = catch_unwind(|| {
            SimThreads::run(1, |threads| {
                spawn_thread("fails", || panic_any("on purpose")).unwrap();
                threads.clock(0).sleep(Duration::from_secs(1));
                threads.check();
            })
        });
        let text = failed.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(*text, "thread fails panicked: on purpose");
    }
}
