//! A thread that looks once a second at what a server and its machine use.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use halcyon_env::{Env, spawn_thread};

use super::started_server::StartedServer;
use super::usage::{Group, MachineUsage, Usage, of_machine};

const PERIOD: Duration = Duration::from_secs(1);

/// How things stood at one moment. All sums run since the start of the server or of the machine: what happened between
/// two samples is the difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Wall clock.
    pub at_ms: u64,
    /// Of all processes of the server.
    pub server: Usage,
    pub machine: MachineUsage,
}

/// Samples until it is told to end. Dropping it ends it too.
pub struct Watcher {
    stop: Sender<()>,
    samples: Receiver<Vec<Sample>>,
}

impl Watcher {
    /// The first sample is taken at once.
    pub fn start(env: &Env, running: &StartedServer) -> Result<Watcher, String> {
        let ((stop, stopped), (send, samples)) = (channel(), channel());
        let (env, group) = (env.clone(), running.group().clone());
        let mut taken = vec![sample(&env, &group)];
        let watching = spawn_thread("watcher", move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                taken.push(sample(&env, &group));
            }
            taken.push(sample(&env, &group));
            let _ = send.send(taken); // who dropped the watcher wants none
        });
        watching.map_err(|error| format!("cannot start threads: {error}"))?;
        Ok(Watcher { stop, samples })
    }

    /// All samples, the last one of now.
    pub fn finish(self) -> Vec<Sample> {
        let _ = self.stop.send(()); // it listens until then
        self.samples.recv().unwrap_or_default()
    }
}

/// What everybody but the server and the clients took between two samples; `clients_cpu_s` is theirs.
pub fn others_cpu_s(first: &Sample, last: &Sample, clients_cpu_s: f64) -> f64 {
    let all = last.machine.busy_s - first.machine.busy_s;
    (all - (last.server.cpu_s - first.server.cpu_s) - clients_cpu_s).max(0.0)
}

fn sample(env: &Env, group: &Group) -> Sample {
    Sample {
        at_ms: env.clock.now_ms().max(0) as u64,
        server: group.usage(),
        machine: of_machine(env).unwrap_or_default(),
    }
}
