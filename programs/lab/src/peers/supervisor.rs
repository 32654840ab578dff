//! `halcyon lab keep`: a small process between the lab and a server, so that no server outlives the lab.
//!
//! ```text
//! lab ──standard input──> supervisor ──starts──> server ──may start──> more processes
//!     <─standard output──        └─────────── one process group ──────────────┘
//! ```
//!
//! The supervisor leads a process group of its own. It waits for three things: the server's end, the line `stop`, and the
//! end of its standard input, which comes when the lab ends in whatever way, `kill -9` included. `stop` is polite: the
//! server gets SIGTERM and some time. In all cases the last thing is SIGKILL to the whole group, the supervisor too.
//!
//! On its standard output it says `pid NUMBER` or `failed SENTENCE` once, and `ended HOW` when the server ended.

use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use halcyon_env::spawn_thread;
use rustix::process::{Pid, Signal, getpgid, getpid, kill_process, kill_process_group, setpgid};

/// Supervise a command: end it and its children at the end of standard input. Used by the lab itself.
#[derive(Debug, clap::Args)]
pub struct KeepArgs {
    /// File to which the command's output is appended.
    #[arg(long)]
    pub out: PathBuf,
    /// Time from SIGTERM to SIGKILL.
    #[arg(long, default_value_t = 60)]
    pub grace: u64,
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

enum Event {
    /// `stop` was asked for.
    Stop,
    /// Who asked is gone.
    Alone,
    Ended(ExitStatus),
}

/// Ends by SIGKILL to its own process group. The error says why nothing was started.
pub fn keep(args: &KeepArgs) -> Result<String, String> {
    let own = getpid();
    if getpgid(None).ok() != Some(own) {
        setpgid(None, None).map_err(|error| format!("no process group: {error}"))?;
    }
    let child = match start(args) {
        Ok(child) => child,
        Err(sentence) => {
            tell(&format!("failed {sentence}"));
            return Err(sentence);
        }
    };
    let server = Pid::from_child(&child);
    tell(&format!("pid {}", child.id()));
    let waited = wait(child).and_then(|events| await_end(server, args.grace, &events));
    if let Err(sentence) = &waited {
        tell(&format!("ended {sentence}"));
    }
    let killed = kill_process_group(own, Signal::KILL);
    Err(format!("the group {} is still alive: {killed:?}", own.as_raw_nonzero()))
}

fn start(args: &KeepArgs) -> Result<Child, String> {
    // an open file is what a process takes as its output; nothing is simulated here
    let out = OpenOptions::new().create(true).append(true).open(&args.out);
    let out = out.map_err(|error| format!("{}: {error}", args.out.display()))?;
    let errors = out.try_clone().map_err(|error| format!("{}: {error}", args.out.display()))?;
    let (program, rest) = args.command.split_first().expect("clap asks for one");
    let started = Command::new(program).args(rest).stdin(Stdio::null()).stdout(out).stderr(errors).spawn();
    started.map_err(|error| format!("{program}: {error}"))
}

/// Two threads that only wait: for the server, and for who asked for it.
fn wait(mut child: Child) -> Result<Receiver<Event>, String> {
    let (sender, events) = channel();
    let ends: Sender<Event> = sender.clone();
    let failed = |error: std::io::Error| format!("cannot start threads: {error}");
    spawn_thread("lab-server", move || {
        if let Ok(status) = child.wait() {
            let _ = ends.send(Event::Ended(status));
        }
    })
    .map_err(failed)?;
    spawn_thread("lab-input", move || {
        for line in std::io::stdin().lock().lines() {
            match line.as_deref() {
                Ok("stop") => {
                    let _ = sender.send(Event::Stop);
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let _ = sender.send(Event::Alone);
    })
    .map_err(failed)?;
    Ok(events)
}

/// Returns when the group has to go.
fn await_end(server: Pid, grace_s: u64, events: &Receiver<Event>) -> Result<(), String> {
    let mut stopping = false;
    loop {
        let event = if stopping {
            events.recv_timeout(Duration::from_secs(grace_s))
        } else {
            events.recv().map_err(RecvTimeoutError::from)
        };
        match event {
            Ok(Event::Ended(status)) => {
                tell(&format!("ended {}", in_words(status)));
                return Ok(());
            }
            Ok(Event::Stop) if !stopping => {
                stopping = true;
                // it may have ended in this moment
                let _ = kill_process(server, Signal::TERM);
            }
            Ok(Event::Stop) => {}
            Ok(Event::Alone) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("by force: it was still there {grace_s} s after SIGTERM"));
            }
            Err(RecvTimeoutError::Disconnected) => return Err("unseen".to_string()),
        }
    }
}

fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("with code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "in an unknown way".to_string(),
    }
}

/// A closed standard output is no error.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
