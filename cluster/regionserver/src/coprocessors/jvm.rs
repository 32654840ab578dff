//! The JVM beside the server: started, watched, killed, started again.
//!
//! ```text
//! supervisor   one thread: starts the JVM, pings it once a second, kills one that is silent, pauses before the next start
//! accept       one thread for each JVM: connections of threads that coprocessors have started
//! calls        a call takes a connection that rests, or opens one; see operation.rs
//! ```
//!
//! The JVM ends with the server: its standard input ends, its first connection ends, and where the program has a launcher the
//! kernel kills it. A call that finds no JVM fails at once with an exception that clients retry. *Thread safety*: all methods
//! from any thread. *Lock order*: nothing is called under the lock of the state.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use halcyon_env::{Condvar, Env, Mutex, random_bytes, spawn_thread};
use halcyon_proto::coprocessor::{Frame, Method, Property};
use halcyon_rpc::RpcError;

use super::asked::OpenScans;
use super::frames::{self, Broken, WriteError};
use super::operation;
use crate::RegionServer;
use crate::lifecycle::Lifecycle;
use crate::settings::coprocessors::CoprocessorSettings;

/// The program that the JVM runs.
const MAIN_CLASS: &str = "halcyon.coprocessor.Host";
/// A JVM that has not called the server for so long after its start is killed.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const START_POLL: Duration = Duration::from_millis(10);
const PING_PERIOD: Duration = Duration::from_secs(1);
/// Before the next start: at first, at most. A JVM that has lived for longer than the latter begins anew.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Connections of threads of coprocessors.
const SIDES_MAX: usize = 64;
/// What Hadoop and HBase need of a JDK from 17 on.
const OPENED: [&str; 12] = [
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.security",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "jdk.internal.misc",
];

/// What the program knows and the settings do not say.
#[derive(Clone, Debug, Default)]
pub struct JvmSurroundings {
    /// Comes before `java` on the command line; empty: nothing does.
    pub launcher: Vec<String>,
    /// Properties of the site file, and those by which HBase's client finds this cluster.
    pub properties: Vec<(String, String)>,
}

/// See the head of the file.
pub(crate) struct Jvm {
    pub(super) settings: CoprocessorSettings,
    env: Env,
    lifecycle: Arc<Lifecycle>,
    server_name: String,
    surroundings: OnceLock<JvmSurroundings>,
    server: OnceLock<Weak<RegionServer>>,
    state: Mutex<State>,
    changed: Condvar,
    calls_count: AtomicUsize,
    owners: AtomicU64,
    pub(super) scans: Arc<OpenScans>,
}

#[derive(Default)]
struct State {
    child: Option<Arc<Child>>,
    /// Why there is none, if one was there or could not be started.
    failure: Option<String>,
    /// The one that is to be killed, and why.
    unwanted: Option<(u64, String)>,
    starts_count: u64,
}

/// One JVM.
pub(crate) struct Child {
    /// Which start it was, from 1.
    pub(super) generation: u64,
    pub(super) pid: u32,
    dir: PathBuf,
    process: Mutex<Process>,
    /// Its end is this server's end.
    _input: Option<ChildStdin>,
    /// Connections that no call is at.
    resting: Mutex<Vec<UnixStream>>,
    /// Connections that were given up because nothing came in time.
    stuck_count: AtomicUsize,
    has_ended: AtomicBool,
    sides_count: AtomicUsize,
}

/// A call among those that may run at the same time, until dropped.
pub(crate) struct CallPermit(Arc<Jvm>);

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.0.calls_count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Jvm {
    pub(crate) fn new(
        settings: CoprocessorSettings,
        env: Env,
        lifecycle: Arc<Lifecycle>,
        server_name: String,
    ) -> Jvm {
        Jvm {
            settings,
            env,
            lifecycle,
            server_name,
            surroundings: OnceLock::new(),
            server: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            calls_count: AtomicUsize::new(0),
            owners: AtomicU64::new(1),
            scans: Arc::default(),
        }
    }

    /// Starts the JVM and keeps one running until the server ends.
    pub(crate) fn start(
        self: &Arc<Self>,
        server: Weak<RegionServer>,
        surroundings: JvmSurroundings,
    ) -> io::Result<()> {
        if self.surroundings.set(surroundings).is_err() || self.server.set(server).is_err() {
            return Ok(()); // it is running
        }
        let (jvm, waker) = (self.clone(), Arc::downgrade(self));
        self.lifecycle.on_end(move || {
            if let Some(jvm) = waker.upgrade() {
                drop(jvm.state.lock());
                jvm.changed.notify_all();
            }
        });
        spawn_thread("coprocessor-jvm", move || jvm.supervise()).map(drop)
    }

    pub(super) fn server(&self) -> Option<Arc<RegionServer>> {
        self.server.get()?.upgrade()
    }

    pub(super) fn next_owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.env.clock.monotonic_ns()
    }

    /// RegionTooBusyException if too many calls are under way.
    pub(crate) fn permit(self: &Arc<Self>) -> Result<CallPermit, RpcError> {
        let running = self.calls_count.fetch_add(1, Ordering::AcqRel);
        let permit = CallPermit(self.clone());
        if running >= self.settings.calls_max {
            return Err(RpcError::region_too_busy(format!(
                "{running} calls of coprocessors are running (halcyon.coprocessor.calls.max)"
            )));
        }
        Ok(permit)
    }

    /// The JVM, after a wait if it is starting. An IOException, which clients retry, if there is none. *Blocking*.
    pub(super) fn child(&self) -> Result<Arc<Child>, RpcError> {
        let patience = self.settings.call_timeout.min(START_TIME_MAX);
        // Of all that happens to the state meanwhile, none makes the wait longer.
        let until_ns = self.now_ns() + patience.as_nanos() as u64;
        let (mut state, mut is_late) = (self.state.lock(), false);
        loop {
            if let Some(child) = &state.child {
                return Ok(child.clone());
            }
            let failure = state.failure.clone();
            if failure.is_some() || self.surroundings.get().is_none() || !self.lifecycle.is_serving() {
                let why = failure.unwrap_or_else(|| "the server is starting or stopping".to_string());
                return Err(RpcError::io(format!("the JVM of coprocessors is not running: {why}")));
            }
            let left_ns = until_ns.saturating_sub(self.now_ns());
            if is_late || left_ns == 0 {
                return Err(RpcError::io("the JVM of coprocessors is starting"));
            }
            is_late = self.changed.wait_for(&mut state, Duration::from_nanos(left_ns)).timed_out();
        }
    }

    /// The number of the process, while one runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.state.lock().child.as_ref().map(|child| child.pid)
    }

    /// How often the JVM was started.
    pub(crate) fn starts_count(&self) -> u64 {
        self.state.lock().starts_count
    }

    /// Has the JVM killed and started again.
    pub(super) fn end(&self, child: &Child, why: &str) {
        let mut state = self.state.lock();
        if state.child.as_ref().is_some_and(|present| present.generation == child.generation) {
            // Calls that come now find that there is none, and not one that is about to be killed.
            state.child = None;
            state.failure = Some(why.to_string());
            state.unwanted.get_or_insert((child.generation, why.to_string()));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// A connection broke: the supervisor looks at once.
    pub(super) fn suspect(&self, child: &Child, broken: &Broken) {
        match broken {
            Broken::Garbage(what) => self.end(child, &format!("it has sent garbage: {what}")),
            Broken::Gone(_) if broken.is_late() => {
                let stuck = child.stuck_count.fetch_add(1, Ordering::AcqRel) + 1;
                if stuck > self.settings.calls_max / 2 {
                    self.end(child, &format!("{stuck} calls were not answered in time"));
                }
            }
            Broken::Gone(_) => {
                self.end(child, "it has closed a connection during a call");
            }
        }
    }

    // ---- the supervisor ----

    fn supervise(self: Arc<Self>) {
        let mut pause = PAUSE;
        while self.lifecycle.is_serving() {
            let begun_ns = self.now_ns();
            let why = match self.start_child() {
                Ok((child, first)) => {
                    let why = self.watch(&child, first);
                    self.bury(&child);
                    why
                }
                Err(why) => format!("it could not be started: {why}"),
            };
            if !self.lifecycle.is_serving() {
                break;
            }
            if self.now_ns().saturating_sub(begun_ns) > PAUSE_MAX.as_nanos() as u64 {
                pause = PAUSE;
            }
            tracing::warn!(%why, ?pause, "the JVM of coprocessors has ended and is started again");
            self.state.lock().failure = Some(why);
            self.changed.notify_all();
            self.lifecycle.pause(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn start_child(self: &Arc<Self>) -> Result<(Arc<Child>, UnixStream), String> {
        let surroundings = self.surroundings.get().expect("set before this thread began");
        let [a, b, c, d] = random_bytes::<4>();
        let name = format!("halcyon-jvm-{}-{a:02x}{b:02x}{c:02x}{d:02x}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let failed = |what: &str, error: io::Error| format!("{what}: {error}");
        std::fs::DirBuilder::new().mode(0o700).create(&dir).map_err(|e| failed("its directory", e))?;
        let started = self.start_in(surroundings, &dir, &failed);
        if started.is_err() {
            let _ = std::fs::remove_dir_all(&dir);
        }
        started
    }

    fn start_in(
        self: &Arc<Self>,
        surroundings: &JvmSurroundings,
        dir: &Path,
        failed: &dyn Fn(&str, io::Error) -> String,
    ) -> Result<(Arc<Child>, UnixStream), String> {
        let listener = UnixListener::bind(dir.join("server")).map_err(|e| failed("its socket", e))?;
        listener.set_nonblocking(true).map_err(|e| failed("its socket", e))?;
        let mut process = self.command(surroundings, dir).spawn().map_err(|e| {
            let java = &self.settings.host_java;
            failed(&format!("{java} (halcyon.coprocessor.host.java)"), e)
        })?;
        let input = process.stdin.take();
        let mut first = match self.first_connection(&listener, &mut process) {
            Ok(first) => first,
            Err(why) => {
                let _ = process.kill();
                let _ = process.wait();
                return Err(why);
            }
        };
        let generation = self.state.lock().starts_count + 1;
        let child = Arc::new(Child {
            generation,
            pid: process.id(),
            dir: dir.to_path_buf(),
            process: Mutex::new(process),
            _input: input,
            resting: Mutex::default(),
            stuck_count: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
            sides_count: AtomicUsize::new(0),
        });
        let configured = self.configure(&mut first, surroundings).and_then(|()| {
            listener.set_nonblocking(false).map_err(|e| failed("its socket", e))?;
            let (jvm, of) = (self.clone(), child.clone());
            spawn_thread("coprocessor-accept", move || jvm.accept(&of, &listener))
                .map(drop)
                .map_err(|e| failed("a thread", e))
        });
        if let Err(why) = configured {
            self.bury(&child);
            return Err(why);
        }
        tracing::info!(pid = child.pid, generation, "the JVM of coprocessors is running");
        let mut state = self.state.lock();
        state.starts_count = generation;
        (state.child, state.failure, state.unwanted) = (Some(child.clone()), None, None);
        drop(state);
        self.changed.notify_all();
        Ok((child, first))
    }

    fn command(&self, surroundings: &JvmSurroundings, dir: &Path) -> Command {
        let settings = &self.settings;
        let mut words = surroundings.launcher.clone();
        words.push(settings.host_java.clone());
        words.push(format!("-Xmx{}k", settings.host_heap_bytes >> 10));
        words.push("-XX:+ExitOnOutOfMemoryError".to_string());
        for package in OPENED {
            words.push(format!("--add-opens=java.base/{package}=ALL-UNNAMED"));
        }
        words.extend(settings.host_options.split_whitespace().map(str::to_string));
        words.extend(["-cp".to_string(), settings.host_classpath.trim().to_string(), MAIN_CLASS.to_string()]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(dir).arg(settings.frame_bytes_max.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command
    }

    /// The JVM opens it when it is ready.
    fn first_connection(&self, listener: &UnixListener, process: &mut Process) -> Result<UnixStream, String> {
        let until_ns = self.now_ns() + START_TIME_MAX.as_nanos() as u64;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).map_err(|error| error.to_string())?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.to_string()),
            }
            if let Ok(Some(status)) = process.try_wait() {
                return Err(format!("it ended at its start, {status}; its log output says why"));
            }
            if self.now_ns() > until_ns || !self.lifecycle.is_serving() {
                return Err(format!("it was not ready after {START_TIME_MAX:?}"));
            }
            self.env.clock.sleep(START_POLL);
        }
    }

    fn configure(&self, first: &mut UnixStream, surroundings: &JvmSurroundings) -> Result<(), String> {
        let of_settings =
            self.settings.properties().into_iter().map(|(name, value)| (name.to_string(), value));
        let all = surroundings.properties.iter().cloned().chain(of_settings);
        let frame = Frame {
            property: all.map(|(name, value)| Property { name, value }).collect(),
            text: Some(self.server_name.clone()),
            ..frames::call(Method::Configure, 0)
        };
        first.set_read_timeout(Some(START_TIME_MAX)).map_err(|error| error.to_string())?;
        self.ask_first(first, &frame)
    }

    fn ask_first(&self, first: &mut UnixStream, frame: &Frame) -> Result<(), String> {
        let bytes_max = self.settings.frame_bytes_max;
        frames::write(first, frame, bytes_max).map_err(|error| match error {
            WriteError::TooLarge(error) => error.message,
            WriteError::Broken(broken) => broken.to_string(),
        })?;
        let answer = frames::read(first, bytes_max).map_err(|broken| match broken.is_late() {
            true => format!("it has not answered for {:?}", self.settings.hang_timeout),
            false => broken.to_string(),
        })?;
        answer.failure.map_or(Ok(()), |failure| Err(failure.message))
    }

    /// Until the JVM has ended or is to end. Returns why.
    fn watch(&self, child: &Arc<Child>, mut first: UnixStream) -> String {
        let _ = first.set_read_timeout(Some(self.settings.hang_timeout));
        loop {
            {
                let mut state = self.state.lock();
                if state.unwanted.is_none() && self.lifecycle.is_serving() {
                    self.changed.wait_for(&mut state, PING_PERIOD);
                }
                if let Some((_, why)) = state.unwanted.take() {
                    return why;
                }
            }
            if !self.lifecycle.is_serving() {
                self.await_regions(child);
                return "the server stops".to_string();
            }
            if let Ok(Some(status)) = child.process.lock().try_wait() {
                return format!("{status}");
            }
            self.scans.expire(self.now_ns());
            if let Some(server) = self.server() {
                server.expire_hosted_scans();
            }
            if let Err(why) = self.ask_first(&mut first, &frames::call(Method::Ping, 0)) {
                return why;
            }
        }
    }

    /// A server that stops in order closes its regions, and their coprocessors hear of it.
    fn await_regions(&self, child: &Child) {
        let until_ns = self.now_ns() + START_TIME_MAX.as_nanos() as u64;
        let has_regions = || {
            self.server()
                .is_some_and(|server| server.coprocessors.has_regions() && server.failure().is_none())
        };
        while has_regions()
            && self.now_ns() < until_ns
            && !matches!(child.process.lock().try_wait(), Ok(Some(_)))
        {
            self.env.clock.sleep(START_POLL);
        }
    }

    /// Kills the JVM, and clears away what it had.
    fn bury(&self, child: &Arc<Child>) {
        child.has_ended.store(true, Ordering::Release);
        {
            let mut state = self.state.lock();
            if state.child.as_ref().is_some_and(|present| present.generation == child.generation) {
                state.child = None;
            }
        }
        let mut process = child.process.lock();
        let _ = process.kill();
        let _ = process.wait();
        drop(process);
        child.resting.lock().clear();
        if self.starts_count() >= child.generation {
            // One that has failed at its start leaves its number to the next.
            self.scans.close_generation(child.generation);
        }
        let _ = UnixStream::connect(child.dir.join("server")); // the thread that accepts looks up
        let _ = std::fs::remove_dir_all(&child.dir);
    }

    fn accept(self: Arc<Self>, child: &Arc<Child>, listener: &UnixListener) {
        loop {
            let accepted = listener.accept();
            if child.has_ended.load(Ordering::Acquire) {
                return;
            }
            let Ok((stream, _)) = accepted else { return };
            if child.sides_count.fetch_add(1, Ordering::AcqRel) >= SIDES_MAX {
                child.sides_count.fetch_sub(1, Ordering::AcqRel);
                tracing::warn!(
                    sides_max = SIDES_MAX,
                    "a thread of a coprocessor is refused: too many have connections"
                );
                continue; // the stream closes
            }
            let (jvm, of) = (self.clone(), child.clone());
            let begun = spawn_thread("coprocessor-side", move || {
                operation::serve_side(&jvm, &of, stream);
                of.sides_count.fetch_sub(1, Ordering::AcqRel);
            });
            if begun.is_err() {
                child.sides_count.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

impl Child {
    /// A connection for one operation.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        match self.resting.lock().pop() {
            Some(stream) => Ok(stream),
            None => UnixStream::connect(self.dir.join("jvm")),
        }
    }

    /// Gives a connection back on which no call is running.
    pub(super) fn rest(&self, stream: UnixStream) {
        if !self.has_ended.load(Ordering::Acquire) {
            self.resting.lock().push(stream);
        }
    }
}
