//! The keeper: the process that starts a region server or a master as its child and watches it.
//!
//! ```text
//! halcyon regionserver ...                     the keeper: one thread, nothing of the database
//!   └─ halcyon regionserver ... --kept-by PID  the server; it tells the keeper its session, and that it lives
//! ```
//!
//! - **The server ends**, however that ends: the keeper takes its session with ZooKeeper up by the key that the server has told, and closes
//!   it. All ephemeral znodes of the server go at once. A master, of Halcyon or of HBase, need not wait for the session timeout.
//! - **The server is frozen**: nothing is heard of it for a second. Then the keeper looks at the server's znode, by a session of its own. If the
//!   znode goes, the cluster has declared the server dead, and the keeper kills it. Connections of clients break, and the clients
//!   look for its regions elsewhere instead of waiting for their own timeouts. A server that is heard of decides for itself.
//! - **Signals** that the keeper gets are passed on, and the exit status of the server is the keeper's.
//!
//! The keeper does not outlive the server, and the kernel kills the server when the keeper is killed. A supervisor such as systemd
//! thus sees one service: if its main process is gone, the service is.
//!
//! `docs/decisions/0009-a-keeper-for-each-server.md` says what was decided and why.

mod child;
mod settings;
mod words;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Line;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::pin::Pin;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use halcyon_zookeeper::{SessionKey, ZooKeeperSettings};
use rustix::process::{Pid, Signal, kill_process};
use sd_notify::NotifyState;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub use self::child::{Kept, notify, watchdog_timeout};
pub use self::settings::{KeeperSettings, SECTION};
use self::words::{LINE_BYTES_MAX, Word};
use crate::Failure;
use crate::args::KeeperArgs;

/// A server that was not heard of for so long may be frozen.
const SILENCE: Duration = Duration::from_secs(1);
/// After an error of ZooKeeper, before the next look at the znode of a silent server.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// How long the end of a server is reported. Afterwards its session expires by itself.
const REPORT_TIME_MAX: Duration = Duration::from_secs(5);
/// The end of the child is looked for so often, should its signal be lost.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Before a server is started again: at first, at most. One that ran for longer than the latter begins anew.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Why a server ends that can never start as it is configured; see `safe_start.rs`.
const NEVER: i32 = 78;
/// Signals that are passed on.
const PASSED_ON: [(SignalKind, Signal); 6] = [
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::hangup(), Signal::HUP),
    (SignalKind::quit(), Signal::QUIT),
    (SignalKind::user_defined1(), Signal::USR1),
    (SignalKind::user_defined2(), Signal::USR2),
];
/// Signals waiting to be passed on. The kernel merges those of one kind as well.
const SIGNALS_MAX: usize = 16;

/// Whether this process is to be a keeper.
pub fn is_wanted(args: &KeeperArgs, settings: KeeperSettings) -> bool {
    args.kept_by.is_none() && args.keeper.unwrap_or(settings.enabled)
}

/// Starts this program again as the server, and ends with it.
pub fn keep(settings: KeeperSettings, zookeeper: ZooKeeperSettings) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("the keeper cannot start: {error}"))?;
    Ok(runtime.block_on(async { Keeper::new(settings, zookeeper)?.run().await })?)
}

struct Keeper {
    settings: KeeperSettings,
    zookeeper: ZooKeeperSettings,
    signals: mpsc::Receiver<Signal>,
    ends_of_children: tokio::signal::unix::Signal,
    /// The server was asked to end.
    is_stopping: bool,
}

impl Keeper {
    /// Within the runtime.
    fn new(settings: KeeperSettings, zookeeper: ZooKeeperSettings) -> Result<Keeper, String> {
        let failed = |error: std::io::Error| format!("the keeper cannot watch for signals: {error}");
        let ends_of_children = signal(SignalKind::child()).map_err(failed)?;
        let (sender, signals) = mpsc::channel(SIGNALS_MAX);
        for (kind, passed_on) in PASSED_ON {
            let (mut stream, sender) = (signal(kind).map_err(failed)?, sender.clone());
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(passed_on).await.is_ok() {}
            });
        }
        Ok(Keeper { settings, zookeeper, signals, ends_of_children, is_stopping: false })
    }

    async fn run(mut self) -> Result<ExitCode, String> {
        let mut pause = RESTART_PAUSE;
        loop {
            let (begun, status) = (Instant::now(), self.keep_one().await?);
            let failed = !status.success() && status.code() != Some(NEVER);
            if !self.settings.restart || !failed || self.is_stopping {
                return Ok(ExitCode::from(exit_code(status)));
            }
            if begun.elapsed() > RESTART_PAUSE_MAX {
                pause = RESTART_PAUSE;
            }
            tracing::warn!(%status, ?pause, "the server has failed and is started again");
            tokio::select! {
                () = sleep(pause) => {}
                Some(signal) = self.signals.recv() => {
                    if matches!(signal, Signal::TERM | Signal::INT) {
                        return Ok(ExitCode::from(exit_code(status)));
                    }
                }
            }
            pause = (pause * 2).min(RESTART_PAUSE_MAX);
        }
    }

    /// Runs one server from its start to the report of its end.
    async fn keep_one(&mut self) -> Result<ExitStatus, String> {
        let (line, of_child) = Line::pair().map_err(|error| format!("the keeper has no socket: {error}"))?;
        let child =
            start(of_child).map_err(|error| format!("the keeper cannot start the server: {error}"))?;
        let line = line.set_nonblocking(true).and_then(|()| UnixStream::from_std(line));
        let line = line.map_err(|error| format!("the keeper has no socket: {error}"))?;
        let mut server = Server::new(child, line);
        let status = self.watch(&mut server).await?;
        if status.success() {
            return Ok(status); // it has ended its session itself
        }
        tracing::warn!(%status, "the server has ended");
        if let Some(key) = &server.session {
            self.report(key).await;
        }
        Ok(status)
    }

    /// Until the server has ended.
    async fn watch(&mut self, server: &mut Server) -> Result<ExitStatus, String> {
        let mut look: Option<Pin<Box<dyn Future<Output = ()>>>> = None;
        loop {
            let ended = server.child.try_wait();
            if let Some(status) =
                ended.map_err(|error| format!("the server cannot be waited for: {error}"))?
            {
                server.hear_rest().await;
                return Ok(status);
            }
            if !server.is_silent() {
                look = None;
            } else if look.is_none()
                && let Some((key, znode)) = server.whereabouts()
            {
                look = Some(Box::pin(lost(self.zookeeper.clone(), key, znode)));
            }
            let check_at = server.next_check();
            tokio::select! {
                biased;
                _ = self.ends_of_children.recv() => {}
                Some(signal) = self.signals.recv() => {
                    self.is_stopping |= matches!(signal, Signal::TERM | Signal::INT);
                    server.signal(signal);
                }
                () = server.hear() => {}
                () = pending_or(&mut look) => {
                    look = None;
                    tracing::warn!(
                        silent = ?server.heard.elapsed(),
                        "the cluster has declared the server dead while it is frozen; it is killed"
                    );
                    server.signal(Signal::KILL);
                }
                () = sleep_until(check_at) => {}
            }
        }
    }

    /// The cluster learns that the server has ended.
    async fn report(&self, key: &SessionKey) {
        let begun = Instant::now();
        match timeout(REPORT_TIME_MAX, self.zookeeper.end_session(key)).await {
            Ok(Ok(true)) => {
                tracing::info!(session = ?key, took = ?begun.elapsed(), "the server's session is ended")
            }
            Ok(Ok(false)) => {} // the server has ended it itself
            Ok(Err(error)) => tracing::warn!(%error, "the end of the server was not reported"),
            Err(_) => {
                tracing::warn!(session = ?key, "ZooKeeper was not told in time that the server has ended")
            }
        }
    }
}

/// The child, and what it has told.
struct Server {
    child: Child,
    /// `None` after its end.
    line: Option<BufReader<UnixStream>>,
    /// What was read of a line that is not complete.
    part: Vec<u8>,
    session: Option<SessionKey>,
    znode: Option<String>,
    heard: Instant,
}

impl Server {
    fn new(child: Child, line: UnixStream) -> Server {
        let line = Some(BufReader::new(line));
        Server { child, line, part: Vec::new(), session: None, znode: None, heard: Instant::now() }
    }

    fn is_silent(&self) -> bool {
        self.heard.elapsed() >= SILENCE
    }

    /// The session of the server and the znode that it has there, if it is a member of the cluster.
    fn whereabouts(&self) -> Option<(SessionKey, String)> {
        self.session.clone().zip(self.znode.clone())
    }

    fn next_check(&self) -> Instant {
        let silent_at = self.heard + SILENCE;
        let now = Instant::now();
        if silent_at > now { silent_at.min(now + CHECK_PERIOD) } else { now + CHECK_PERIOD }
    }

    fn signal(&self, signal: Signal) {
        // It has not been waited for, so no other process has its number.
        if let Err(error) = kill_process(Pid::from_child(&self.child), signal) {
            tracing::warn!(%error, ?signal, "a signal was not passed on to the server");
        }
    }

    /// Takes a line. Waits for ever after the last one. Cancel safe: what was read of a line stays in `part`.
    async fn hear(&mut self) {
        let Some(line) = &mut self.line else { return std::future::pending().await };
        let left = (LINE_BYTES_MAX - self.part.len()) as u64;
        match line.take(left).read_until(b'\n', &mut self.part).await {
            Ok(count) if count > 0 && self.part.ends_with(b"\n") => self.take_word(),
            Ok(count) if count > 0 && self.part.len() < LINE_BYTES_MAX => {}
            _ => self.line = None, // the end, or no line of ours
        }
    }

    /// What the server has said before its end.
    async fn hear_rest(&mut self) {
        while self.line.is_some() && timeout(SILENCE, self.hear()).await.is_ok() {}
    }

    fn take_word(&mut self) {
        let line = std::mem::take(&mut self.part);
        self.heard = Instant::now();
        match Word::decode(&line) {
            Some(Word::Alive) => {}
            Some(Word::Session(key)) => self.session = Some(key),
            Some(Word::Znode(path)) => self.znode = Some(path),
            Some(Word::Notify(state)) => {
                if let Err(error) = sd_notify::notify(&[NotifyState::Custom(state.as_text())]) {
                    tracing::warn!(%error, "systemd cannot be notified");
                }
            }
            None => tracing::warn!(bytes = line.len(), "the server has told something that is not known"),
        }
    }
}

impl Drop for Server {
    /// Only after an error of the keeper's own: otherwise the child was waited for.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::KILL);
        }
    }
}

/// This program as the server. Its standard input is its end of the line.
fn start(line: Line) -> std::io::Result<Child> {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_else(|| OsString::from("halcyon"));
    // Not by its name, which may be that of a newer program by now.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).args(args).arg("--kept-by").arg(std::process::id().to_string());
    command.stdin(OwnedFd::from(line));
    // The keeper speaks with systemd. Signals of a terminal go to the keeper, which passes them on.
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_PID").process_group(0);
    command.spawn()
}

/// Waits until the session has lost the znode, whatever that takes.
async fn lost(zookeeper: ZooKeeperSettings, key: SessionKey, znode: String) {
    while let Err(error) = zookeeper.lost_znode(&key, &znode).await {
        tracing::info!(%error, "the server is silent, and its znode cannot be looked at");
        sleep(LOOK_PAUSE).await;
    }
}

async fn pending_or(future: &mut Option<Pin<Box<dyn Future<Output = ()>>>>) {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// As shells have it: 128 and the number of the signal that has ended the process.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests;
