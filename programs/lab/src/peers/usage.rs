//! Who uses what, as `/proc` tells it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use halcyon_env::Env;

/// What processes have used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// User and system time.
    pub cpu_s: f64,
    /// Now, summed over the processes: pages that they share count for each.
    pub resident_bytes: u64,
    /// At most so far; of several processes the sum of each one's most.
    pub resident_peak_bytes: u64,
    /// Read from and written to disks. What is written counts when it is handed to the kernel.
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
}

impl Usage {
    fn add(&mut self, other: &Usage) {
        self.cpu_s += other.cpu_s;
        self.resident_bytes += other.resident_bytes;
        self.resident_peak_bytes += other.resident_peak_bytes;
        self.disk_read_bytes += other.disk_read_bytes;
        self.disk_written_bytes += other.disk_written_bytes;
    }
}

/// What the whole machine has done since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MachineUsage {
    /// Processor time of everybody.
    pub busy_s: f64,
    /// Processors that had nothing to do but to wait for disks.
    pub io_wait_s: f64,
    /// Taken by other guests of the host.
    pub steal_s: f64,
}

/// The processes of a process group, without its leader. Cheap to clone.
#[derive(Clone)]
pub struct Group {
    env: Env,
    leader: u32,
    /// Of processes of this group that ended, so that sums never go back; and the last of those that run.
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    ended: Usage,
    last: BTreeMap<u32, Usage>,
}

impl Group {
    pub(super) fn new(env: &Env, leader: u32) -> Group {
        Group { env: env.clone(), leader, seen: Arc::default() }
    }

    pub(super) fn leader(&self) -> u32 {
        self.leader
    }

    /// Numbers of the processes, the oldest number first. Those that have ended and wait to be noticed are not among
    /// them.
    pub fn members(&self) -> Vec<u32> {
        let entries = self.env.fs.list(Path::new("/proc")).unwrap_or_default();
        let numbers = entries.iter().filter_map(|entry| entry.name.parse::<u32>().ok());
        numbers.filter(|pid| *pid != self.leader && self.is_member(*pid)).collect()
    }

    fn is_member(&self, pid: u32) -> bool {
        stat(&self.env, pid).is_some_and(|stat| {
            let field = |at: usize| stat.split(' ').nth(at);
            let is_alive = !matches!(field(0), Some("Z" | "X"));
            is_alive && field(2).and_then(|group| group.parse().ok()) == Some(self.leader)
        })
    }

    /// All processes together. What a process had used stays in the sums when it has ended, but for its memory.
    pub fn usage(&self) -> Usage {
        let mut last = BTreeMap::new();
        for pid in self.members() {
            if let Some(usage) = of_process(&self.env, pid) {
                last.insert(pid, usage);
            }
        }
        let mut seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let before = std::mem::replace(&mut seen.last, last);
        for (pid, usage) in before {
            if !seen.last.contains_key(&pid) {
                seen.ended.add(&Usage { resident_bytes: 0, resident_peak_bytes: 0, ..usage });
            }
        }
        let mut sum = seen.ended;
        seen.last.values().for_each(|usage| sum.add(usage));
        sum
    }
}

fn text(env: &Env, path: &str) -> Option<String> {
    env.fs.read(path.as_ref()).ok().and_then(|bytes| String::from_utf8(bytes).ok())
}

/// The fields of `/proc/PID/stat` behind the name: state, parent, group ...
fn stat(env: &Env, pid: u32) -> Option<String> {
    let stat = text(env, &format!("/proc/{pid}/stat"))?;
    stat.rsplit_once(") ").map(|(_, rest)| rest.to_string())
}

/// `None` if it is gone.
pub fn of_process(env: &Env, pid: u32) -> Option<Usage> {
    let usage = halcyon_env::process_usage(&*env.fs, pid)?;
    Some(Usage {
        cpu_s: usage.cpu.as_secs_f64(),
        resident_bytes: usage.resident_bytes,
        resident_peak_bytes: usage.resident_peak_bytes,
        disk_read_bytes: usage.disk_read_bytes,
        disk_written_bytes: usage.disk_written_bytes,
    })
}

/// `None` where there is no `/proc/stat`.
pub fn of_machine(env: &Env) -> Option<MachineUsage> {
    let times = halcyon_env::processor_times(&*env.fs)?;
    let seconds = |time: std::time::Duration| time.as_secs_f64();
    Some(MachineUsage {
        busy_s: seconds(times.busy),
        io_wait_s: seconds(times.io_wait),
        steal_s: seconds(times.steal),
    })
}

/// Bytes of the files in a directory and below.
pub fn directory_bytes(env: &Env, path: &Path) -> u64 {
    let entries = env.fs.list(path).unwrap_or_default();
    entries
        .iter()
        .map(|entry| if entry.is_dir { directory_bytes(env, &path.join(&entry.name)) } else { entry.len })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_this_machine() {
        let env = Env::real();
        let own = of_process(&env, std::process::id()).unwrap();
        assert!(own.resident_bytes > 1 << 20 && own.resident_peak_bytes >= own.resident_bytes, "{own:?}");
        assert!(of_process(&env, u32::MAX).is_none());
        assert!(of_machine(&env).unwrap().busy_s >= own.cpu_s);
    }

    #[test]
    fn files_of_a_directory_are_summed() {
        let env = halcyon_env::sim::SimFileSystem::new().env();
        env.fs.create_dir_all("/a/b".as_ref()).unwrap();
        env.fs.put_new("/a/x".as_ref(), b"123").unwrap();
        env.fs.put_new("/a/b/y".as_ref(), b"12").unwrap();
        assert_eq!(directory_bytes(&env, "/a".as_ref()), 5);
        assert_eq!(directory_bytes(&env, "/c".as_ref()), 0);
    }
}
