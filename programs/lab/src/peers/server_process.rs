//! The lab's end of a supervisor (`supervisor.rs`): a process that is gone when this is dropped, with all it has started.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use halcyon_env::Env;
use rustix::process::{Pid, Signal, kill_process_group};

use super::usage::Group;

/// How long a killed group may take to be gone.
const KILL_TIME_MAX: Duration = Duration::from_secs(10);
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// What of a log is shown when something went wrong.
const LAST_LINES: usize = 12;
const LAST_BYTES: u64 = 16 << 10;
/// Given to a server beyond what its supervisor gives it, before the lab itself kills the group.
const SUPERVISOR_TIME: Duration = Duration::from_secs(5);

/// What to start.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub command: Vec<String>,
    /// Variables of the environment beyond the lab's own.
    pub variables: Vec<(String, String)>,
    pub directory: PathBuf,
    /// Takes standard output and error.
    pub out: PathBuf,
    /// From the wish to stop to the end by force.
    pub grace: Duration,
}

/// A process under a supervisor. *Thread safety*: all methods from any thread.
pub(super) struct ServerProcess {
    env: Env,
    pub order: Order,
    pub pid: u32,
    group: Group,
    supervisor: Mutex<Supervisor>,
}

struct Supervisor {
    child: Child,
    /// Closing it ends the group.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// How the server ended, once the supervisor is gone.
    ended: Option<String>,
}

impl ServerProcess {
    /// The error says why the command did not start; that it ended at once is not one.
    pub fn start(env: &Env, exe: &Path, order: Order) -> Result<ServerProcess, String> {
        let mut supervisor = Command::new(exe);
        supervisor.args(["lab", "keep", "--grace", &order.grace.as_secs().to_string(), "--out"]);
        supervisor.arg(&order.out).arg("--").args(&order.command);
        supervisor.envs(order.variables.iter().map(|(name, value)| (name, value)));
        supervisor.current_dir(&order.directory).process_group(0);
        supervisor.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = supervisor.spawn().map_err(|error| format!("{}: {error}", exe.display()))?;
        let leader = child.id();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut supervisor = Supervisor { child, input, output, ended: None };
        let mut line = String::new();
        let read = supervisor.output.read_line(&mut line);
        let pid = line.trim().strip_prefix("pid ").and_then(|pid| pid.parse().ok());
        let Some(pid) = pid else {
            supervisor.input = None;
            let _ = supervisor.child.wait();
            let sentence = line.trim().strip_prefix("failed ").map(str::to_string);
            return Err(sentence.unwrap_or_else(|| format!("the supervisor said {line:?} ({read:?})")));
        };
        Ok(ServerProcess {
            env: env.clone(),
            order,
            pid,
            group: Group::new(env, leader),
            supervisor: Mutex::new(supervisor),
        })
    }

    fn supervisor(&self) -> std::sync::MutexGuard<'_, Supervisor> {
        self.supervisor.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// All processes of it but the supervisor.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// How it ended, or `None` while it runs.
    pub fn ended(&self) -> Option<String> {
        let mut supervisor = self.supervisor();
        if supervisor.ended.is_none() && !matches!(supervisor.child.try_wait(), Ok(None)) {
            supervisor.ended = Some(last_word(&mut supervisor.output));
        }
        supervisor.ended.clone()
    }

    /// Asks it to end, waits, and kills what is left. The error says that it had to be killed, or could not be.
    pub fn stop(&self) -> Result<(), String> {
        if self.ended().is_none() {
            if let Some(input) = &mut self.supervisor().input {
                let _ = input.write_all(b"stop\n"); // the supervisor may be gone: then all is
            }
            let within_ns = (self.order.grace + SUPERVISOR_TIME).as_nanos() as u64;
            let start_ns = self.env.clock.monotonic_ns();
            while self.ended().is_none() && self.env.clock.monotonic_ns() - start_ns < within_ns {
                self.env.clock.sleep(LOOK_PERIOD);
            }
        }
        self.kill()?;
        match self.ended() {
            Some(how) if how.starts_with("by force") => Err(format!("{} ended {how}", self.name())),
            _ => Ok(()),
        }
    }

    /// Ends everything at once. The error names processes that would not go.
    pub fn kill(&self) -> Result<(), String> {
        self.supervisor().input = None;
        let leader = Pid::from_raw(self.group.leader() as i32).expect("a process has a number above 0");
        let start_ns = self.env.clock.monotonic_ns();
        loop {
            let members = self.group.members();
            if members.is_empty() && self.ended().is_some() {
                return Ok(());
            }
            // the supervisor has done so already, unless somebody ended it before
            let _ = kill_process_group(leader, Signal::KILL);
            if self.env.clock.monotonic_ns() - start_ns > KILL_TIME_MAX.as_nanos() as u64 {
                return Err(format!("{}: processes {members:?} cannot be killed", self.name()));
            }
            self.env.clock.sleep(LOOK_PERIOD);
        }
    }

    /// Waits for its end; after `within` it is killed. Whether it ended with code 0.
    pub fn wait(&self, within: Duration) -> Result<bool, String> {
        let start_ns = self.env.clock.monotonic_ns();
        loop {
            if let Some(how) = self.ended() {
                self.kill()?;
                return Ok(how == "with code 0");
            }
            if self.env.clock.monotonic_ns() - start_ns > within.as_nanos() as u64 {
                self.kill()?;
                return Err(format!("{} took more than {} s", self.name(), within.as_secs()));
            }
            self.env.clock.sleep(LOOK_PERIOD);
        }
    }

    fn name(&self) -> &str {
        self.order.command.first().map_or("", String::as_str)
    }

    /// The last lines of its output.
    pub fn last_lines(&self) -> String {
        last_lines(&self.env, &self.order.out)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.kill(); // nobody is left to be told
    }
}

/// What the supervisor said about the end of the server.
fn last_word(output: &mut BufReader<ChildStdout>) -> String {
    let lines = output.lines().map_while(Result::ok);
    let ended = lines.filter_map(|line| line.strip_prefix("ended ").map(str::to_string)).last();
    ended.unwrap_or_else(|| "with its supervisor".to_string())
}

/// The last lines of a file, for a sentence about what went wrong.
pub(super) fn last_lines(env: &Env, path: &Path) -> String {
    let read = || {
        let file = env.fs.open(path)?;
        let len = file.len()?;
        let mut bytes = vec![0; len.min(LAST_BYTES) as usize];
        let offset = len - bytes.len() as u64;
        file.read_exact_at(&mut bytes, offset)?;
        std::io::Result::Ok(bytes)
    };
    let text = match read() {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => return format!("{}: {error}", path.display()),
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    format!("{} ends with:\n{}", path.display(), last.join("\n"))
}
