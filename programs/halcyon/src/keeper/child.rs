//! The side of the server.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

use halcyon_env::Env;
use halcyon_zookeeper::SessionKey;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use sd_notify::NotifyState;

use super::words::{Notice, Word};

/// The keeper hears of the server so often.
const ALIVE_PERIOD: Duration = Duration::from_millis(200);

/// The line to the keeper of this process.
static LINE: OnceLock<UnixStream> = OnceLock::new();

/// A server that may have a keeper. Without one, its methods do nothing.
#[derive(Clone, Copy)]
pub struct Kept;

impl Kept {
    /// With the keeper that has this process number, if there is one. The kernel kills this process when the keeper ends.
    ///
    /// To be called once, on the thread that lives as long as the process, before others are started.
    pub fn by(keeper: Option<u32>, env: &Env) -> Result<Kept, String> {
        let Some(keeper) = keeper else { return Ok(Kept) };
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| format!("this process would outlive its keeper: {error}"))?;
        let parent = getppid().map(|pid| pid.as_raw_pid());
        if parent != i32::try_from(keeper).ok() {
            return Err(format!("the keeper {keeper} has ended, or is not the parent of this process"));
        }
        let line = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
        let line = line.and_then(|line| line.set_nonblocking(true).map(|()| line));
        let line = line.map_err(|error| format!("the keeper cannot be told anything: {error}"))?;
        if LINE.set(line).is_err() {
            return Err("this process has a keeper already".to_string());
        }
        let clock = env.clock.clone();
        let alive = move || {
            halcyon_env::raise_priority();
            // The keeper may be slow to listen; then there is no room, and nothing is lost.
            while tell(&Word::Alive).map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |()| true)
            {
                clock.sleep(ALIVE_PERIOD);
            }
        };
        halcyon_env::spawn_thread("keeper", alive)
            .map_err(|error| format!("cannot start threads: {error}"))?;
        Ok(Kept)
    }

    /// The keeper ends this session after this process.
    pub fn has_session(self, key: SessionKey) {
        tell_or_warn(Word::Session(key));
    }

    /// The cluster knows this process by this znode, until it is told another one.
    pub fn has_znode(self, path: String) {
        tell_or_warn(Word::Znode(path));
    }
}

/// Tells systemd, by the keeper if there is one: systemd listens to the main process of a service.
pub fn notify(state: &NotifyState<'_>) -> io::Result<()> {
    if LINE.get().is_none() {
        return sd_notify::notify(std::slice::from_ref(state));
    }
    tell(&Word::Notify(match state {
        NotifyState::Ready => Notice::Ready,
        NotifyState::Stopping => Notice::Stopping,
        NotifyState::Watchdog => Notice::Watchdog,
        _ => unreachable!("the server says no other"),
    }))
}

/// After which time systemd wants to hear of the server. The keeper removes the variable that names the process.
pub fn watchdog_timeout() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Does nothing without a keeper.
fn tell(word: &Word) -> io::Result<()> {
    let Some(mut line) = LINE.get() else { return Ok(()) };
    line.write_all(word.encode().as_bytes())
}

fn tell_or_warn(word: Word) {
    if let Err(error) = tell(&word) {
        tracing::warn!(?word, %error, "the keeper was not told");
    }
}
