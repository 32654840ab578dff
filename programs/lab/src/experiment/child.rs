//! A load generator as a process of its own, so that what it costs is known.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halcyon_env::{Env, spawn_thread};
use rustix::process::{Pid, Signal, kill_process};

const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// From the wish to end to the signal: on a terminal the process has had one already.
const ASKED_AFTER: Duration = Duration::from_secs(1);
/// From the wish to end to the other signal: in the background of a shell the first one may be ignored.
const TOLD_AFTER: Duration = Duration::from_secs(8);
/// From the wish to end to the end by force.
const KILLED_AFTER: Duration = Duration::from_secs(15);

/// How it ended.
pub struct Ended {
    pub status: ExitStatus,
    /// What it said last, without progress.
    pub said: String,
    /// Why it was asked to end, if it was.
    pub asked: Option<String>,
}

/// What it said on standard error.
#[derive(Default)]
struct LastOutput {
    progress: String,
    last: String,
}

/// Runs a command to its end. `look` is called every few milliseconds with its last line of progress; the sentence that it
/// may return asks the command to end, first politely.
pub fn run(
    env: &Env,
    command: &[String],
    mut look: impl FnMut(&str, Duration) -> Option<String>,
) -> Result<Ended, String> {
    let (program, words) = command.split_first().expect("a command has a program");
    let child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = Killed(child.map_err(|error| format!("{program}: {error}"))?);
    let said = Arc::new(Mutex::new(LastOutput::default()));
    listen(&mut child.0, &said)?;
    let begun_ns = env.clock.monotonic_ns();
    let since = |from_ns: u64| Duration::from_nanos(env.clock.monotonic_ns().saturating_sub(from_ns));
    let mut asked: Option<(String, u64)> = None;
    let mut signals = [(ASKED_AFTER, Signal::INT), (TOLD_AFTER, Signal::TERM)].into_iter().peekable();
    loop {
        let status = child.0.try_wait().map_err(|error| format!("{program}: {error}"))?;
        if let Some(status) = status {
            // what was said last may still be on its way
            env.clock.sleep(LOOK_PERIOD);
            let said = said.lock().expect("nobody panics with it").last.clone();
            return Ok(Ended { status, said, asked: asked.map(|(why, _)| why) });
        }
        match &asked {
            None => {
                let progress = said.lock().expect("nobody panics with it").progress.clone();
                asked = look(&progress, since(begun_ns)).map(|why| (why, env.clock.monotonic_ns()));
            }
            Some((_, from_ns)) if since(*from_ns) > KILLED_AFTER => {
                let _ = child.0.kill(); // it may just have ended
            }
            Some((_, from_ns)) => {
                if let Some((_, signal)) = signals.next_if(|(after, _)| since(*from_ns) > *after) {
                    let _ = kill_process(Pid::from_child(&child.0), signal); // it may just have ended
                }
            }
        }
        env.clock.sleep(LOOK_PERIOD);
    }
}

/// Goes with the lab, also when the lab panics.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listen(child: &mut Child, said: &Arc<Mutex<LastOutput>>) -> Result<(), String> {
    let stderr = child.stderr.take().expect("it was asked for");
    let said = Arc::clone(said);
    let listening = spawn_thread("load-said", move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let mut said = said.lock().expect("nobody panics with it");
            match super::display::rate_of(&line) {
                Some(rate) => said.progress = format!("{rate}/s"),
                None if line.trim().is_empty() => {}
                None => said.last = line.trim().trim_start_matches("halcyon: ").to_string(),
            }
        }
    });
    listening.map(|_| ()).map_err(|error| format!("cannot start threads: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> Vec<String> {
        ["/bin/sh", "-c", text].map(str::to_string).to_vec()
    }

    #[test]
    fn what_it_says_is_heard() {
        let mut seen = String::new();
        let said = "echo 'x: 1 s, 5, 70/s; last' >&2; sleep 0.3; echo 'halcyon: no cluster' >&2; exit 3";
        let ended = run(&Env::real(), &shell(said), |progress, _| {
            seen = progress.to_string();
            None
        });
        let ended = ended.unwrap();
        assert_eq!(
            (ended.status.code(), ended.said.as_str(), seen.as_str()),
            (Some(3), "no cluster", "70/s")
        );
        assert!(ended.asked.is_none());
        assert!(run(&Env::real(), &["/none".to_string()], |_, _| None).is_err());
    }

    #[test]
    fn it_is_asked_to_end() {
        let waits = "trap 'echo interrupted >&2; exit 1' INT TERM; while :; do sleep 0.05; done";
        let ended = run(&Env::real(), &shell(waits), |_, _| Some("too long".to_string())).unwrap();
        assert_eq!((ended.asked.as_deref(), ended.said.as_str()), (Some("too long"), "interrupted"));
    }
}
