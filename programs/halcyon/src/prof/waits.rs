//! A profile of waits: who waited, for what, how long.
//!
//! The code measures what it waits for: disks, locks, memory (`halcyon_env::Stalls`). The kernel counts how long a thread
//! was ready to run and had no processor. Threads that wait for work to do are not shown: nobody waits for them.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use halcyon_env::{Env, ThreadTimes, Wait, thread_times};
use halcyon_profile::{Folded, Profile};

/// Causes of stalls that are late wake-ups, which the kernel counts whole, or calls, which work too.
const OTHER_CAUSES: [&str; 3] = ["scheduler", "network-thread", "call"];
const RUN_QUEUE: &str = "ready, without a processor";

/// Counts waits until it is finished; dropped earlier, it just ends.
pub struct WaitProfile {
    env: Env,
    threads: Vec<ThreadTimes>,
}

impl WaitProfile {
    /// `AlreadyExists` while another profile is taken.
    pub fn start(env: &Env, shortest: Duration) -> io::Result<WaitProfile> {
        if !env.stalls.begin_profile(shortest) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(WaitProfile { env: env.clone(), threads: thread_times(&*env.local) })
    }

    pub fn finish(self) -> Profile {
        let (waits, lost_count) = self.env.stalls.end_profile();
        let threads = thread_times(&*self.env.local);
        profile(waits, lost_count, &self.threads, &threads)
    }
}

impl Drop for WaitProfile {
    fn drop(&mut self) {
        self.env.stalls.end_profile();
    }
}

/// In microseconds.
fn profile(waits: Vec<Wait>, lost_count: u64, before: &[ThreadTimes], after: &[ThreadTimes]) -> Profile {
    let mut folded = Folded::default();
    let mut samples_count = 0;
    for Wait { thread, cause, detail, sum } in waits {
        if !OTHER_CAUSES.contains(&cause) {
            samples_count += sum.count;
            folded.add(vec![thread, cause.to_string(), detail], sum.total.as_micros() as u64);
        }
    }
    let before: HashMap<u32, Duration> = before.iter().map(|thread| (thread.id, thread.queued)).collect();
    for ThreadTimes { id, name, queued, .. } in after {
        let queued = queued.saturating_sub(before.get(id).copied().unwrap_or_default());
        let queued_us = queued.as_micros() as u64;
        if queued_us > 0 {
            folded.add(vec![name.clone(), RUN_QUEUE.to_string()], queued_us);
        }
    }
    Profile { folded, samples_count, lost_count }
}

#[cfg(test)]
mod tests {
    use halcyon_env::StallSum;

    use super::*;

    #[test]
    fn waits_and_run_queues_are_summed_by_thread() {
        let ms = Duration::from_millis;
        let thread =
            |id, name: &str, queued| ThreadTimes { id, name: name.into(), ran: ms(9), queued: ms(queued) };
        let wait = |thread: &str, cause, detail: &str, time| Wait {
            thread: thread.into(),
            cause,
            detail: detail.into(),
            sum: StallSum { count: 2, total: ms(time), longest: ms(time) },
        };
        let waits = vec![
            wait("wal", "sync", "/data/wal", 40),
            wait("network-0", "row-lock", "r1; held by a write", 3),
            wait("network-0", "scheduler", "late", 90),
            wait("network-0", "call", "Get", 90),
        ];
        let before = [thread(1, "wal", 100), thread(2, "server", 7), thread(9, "gone", 5)];
        let after =
            [thread(1, "wal", 101), thread(2, "server", 7), thread(3, "server", 2), thread(4, "server", 1)];
        let profile = profile(waits, 5, &before, &after);
        assert_eq!((profile.samples_count, profile.lost_count), (4, 5));
        let expected = "network-0;row-lock;r1, held by a write 3000\n\
                        server;ready, without a processor 3000\n\
                        wal;ready, without a processor 1000\n\
                        wal;sync;/data/wal 40000\n";
        assert_eq!(profile.folded.to_string(), expected);
    }
}
