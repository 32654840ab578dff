//! A server that has acknowledged its first put.

use std::path::PathBuf;
use std::time::Duration;

use halcyon_env::Env;

use super::server_process::ServerProcess;
use super::usage::{Group, Usage, directory_bytes, of_process};
use super::{halcyon, pauses};
use crate::outcome::Pause;

const WAIT_PERIOD: Duration = Duration::from_millis(200);

/// A started server. Ends with all its processes when dropped, and when the lab ends in whatever way.
///
/// *Thread safety*: all methods from any thread.
pub struct StartedServer {
    pub(super) env: Env,
    pub(super) process: ServerProcess,
    pub(super) settings: Vec<String>,
    pub(super) data: PathBuf,
    pub(super) ready_ms: u64,
    /// The process that is asked: of a mini cluster the tablet server.
    pub(super) server_pid: u32,
    pub(super) zookeeper: String,
    pub(super) pauses: PauseSource,
    pub(super) ingest: Vec<String>,
}

/// Who tells when the server stood still.
pub(super) enum PauseSource {
    /// Address of an info port.
    Stalls(String),
    /// A collector's log.
    Log(PathBuf),
}

impl StartedServer {
    /// Of the server, as it was started.
    pub fn command_line(&self) -> Vec<String> {
        self.process.order.command.clone()
    }

    /// What differs from the product's defaults, `name=value`, without what only says where things lie.
    pub fn settings(&self) -> Vec<String> {
        self.settings.clone()
    }

    /// The process that answers clients.
    pub fn pid(&self) -> u32 {
        self.server_pid
    }

    /// For `halcyon bench`: where the cluster is.
    pub fn address_args(&self) -> Vec<String> {
        vec!["--zookeeper".to_string(), self.zookeeper.clone()]
    }

    /// The start of a command line that writes linked lists of rows to this server (`bench ingest write`, for
    /// Accumulo a program of the same options and results); options are put behind it.
    pub fn ingest_command(&self) -> Vec<String> {
        self.ingest.clone()
    }

    /// Milliseconds from the start of the process to the first acknowledged put.
    pub fn ready_ms(&self) -> u64 {
        self.ready_ms
    }

    pub fn is_running(&self) -> bool {
        self.process.ended().is_none()
    }

    /// All processes of the server.
    pub fn group(&self) -> &Group {
        self.process.group()
    }

    /// What all of them together have used so far.
    pub fn usage(&self) -> Usage {
        self.group().usage()
    }

    /// What [`StartedServer::pid`] alone has used so far.
    pub fn server_usage(&self) -> Usage {
        of_process(&self.env, self.server_pid).unwrap_or_default()
    }

    /// Bytes of its data's files.
    pub fn disk_bytes(&self) -> u64 {
        directory_bytes(&self.env, &self.data)
    }

    /// Times between two moments of the wall clock at which the server, or a thread of it, stood still, in the order of
    /// their beginning; [`Pause::at_s`] counts from the first moment. Those that began before and reached into it have
    /// a negative one.
    pub fn pauses(&self, from_ms: u64, to_ms: u64) -> Result<Vec<Pause>, String> {
        let mut found = match &self.pauses {
            PauseSource::Stalls(address) => halcyon::stalls(address)?,
            PauseSource::Log(path) => pauses::of_log(&self.env, path)?,
        };
        found.retain(|pause| {
            pause.start_ms <= to_ms as f64 && pause.start_ms + pause.length_ms >= from_ms as f64
        });
        found.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
        let since = |pause: pauses::Found| Pause {
            at_s: (pause.start_ms - from_ms as f64) / 1e3,
            length_ms: pause.length_ms,
            kind: pause.kind,
            cause: pause.cause,
        };
        Ok(found.into_iter().map(since).collect())
    }

    /// Waits for its end, and says how it ended.
    pub fn wait(self) -> String {
        loop {
            if let Some(how) = self.process.ended() {
                return format!("{how}; {}", self.process.last_lines());
            }
            self.env.clock.sleep(WAIT_PERIOD);
        }
    }

    /// Asks it to end and waits; what does not go is killed, and that is the error.
    pub fn stop(self) -> Result<(), String> {
        self.process.stop()
    }

    /// Ends it at once, as a crash would.
    pub fn kill(self) -> Result<(), String> {
        self.process.kill()
    }
}
