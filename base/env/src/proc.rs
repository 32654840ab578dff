//! What Linux tells in `/proc` about processes and the machine: read through a [`FileSystem`], parsed by `procfs`.
//!
//! A simulated file system has no `/proc`, so that nothing of the real machine reaches a simulation. Pages and clock
//! ticks have the size that this kernel has: 16 and 64 KiB pages are common on ARM and POWER.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use procfs::prelude::{FromBufRead, FromBufReadSI, FromRead};
use procfs::process::{Io, Schedstat, Stat, StatM, Status};
use procfs::{CpuInfo, KernelStats, LockType, Meminfo};

use crate::FileSystem;

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// User and system time.
    pub cpu: Duration,
    pub resident_bytes: u64,
    pub resident_peak_bytes: u64,
    /// Read from and written to disks. A write counts when it is handed to the kernel.
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
}

/// Processor time since the start of the machine, summed over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTimes {
    /// User, nice, system, interrupts.
    pub busy: Duration,
    pub io_wait: Duration,
    /// CPU steal: wanted here and given to other guests of the host.
    pub steal: Duration,
    pub processors_count: usize,
}

/// Resident memory of this process in bytes; `None` where the operating system does not tell.
pub fn resident_bytes(fs: &dyn FileSystem) -> Option<u64> {
    resident_of(&fs.read(Path::new("/proc/self/statm")).ok()?, procfs::page_size())
}

/// `/proc/PID/statm` counts in pages.
fn resident_of(statm: &[u8], page_bytes: u64) -> Option<u64> {
    Some(StatM::from_read(statm).ok()?.resident * page_bytes)
}

/// What another process has used; `None` if it is gone. Disk figures are 0 where they may not be read.
pub fn process_usage(fs: &dyn FileSystem, pid: u32) -> Option<ProcessUsage> {
    let read = |file: &str| fs.read(Path::new(&format!("/proc/{pid}/{file}"))).ok();
    let stat = Stat::from_read(&read("stat")?[..]).ok()?;
    let status = read("status").and_then(|bytes| Status::from_buf_read(&bytes[..]).ok());
    let io = read("io").and_then(|bytes| Io::from_buf_read(&bytes[..]).ok());
    let kib = |of: fn(&Status) -> Option<u64>| status.as_ref().and_then(of).unwrap_or(0) << 10;
    Some(ProcessUsage {
        cpu: of_ticks(stat.utime + stat.stime, procfs::ticks_per_second()),
        resident_bytes: kib(|status| status.vmrss),
        resident_peak_bytes: kib(|status| status.vmhwm),
        disk_read_bytes: io.map_or(0, |io| io.read_bytes),
        disk_written_bytes: io.map_or(0, |io| io.write_bytes),
    })
}

/// Times of one thread since it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTimes {
    pub id: u32,
    pub name: String,
    pub ran: Duration,
    /// How long the thread was ready and had no processor: its time in run queues.
    pub queued: Duration,
}

/// The threads of this process; none where the operating system does not tell. A thread that ends meanwhile is left out.
pub fn thread_times(fs: &dyn FileSystem) -> Vec<ThreadTimes> {
    let tasks = Path::new("/proc/self/task");
    let entries = fs.list(tasks).unwrap_or_default();
    let times = |id: &str| {
        let read = |file: &str| fs.read(&tasks.join(id).join(file)).ok();
        let name = String::from_utf8_lossy(&read("comm")?).trim_end().to_string();
        let stat = Schedstat::from_read(&read("schedstat")?[..]).ok()?;
        let (ran, queued) = (stat.sum_exec_runtime, stat.run_delay);
        let (ran, queued) = (Duration::from_nanos(ran), Duration::from_nanos(queued));
        Some(ThreadTimes { id: id.parse().ok()?, name, ran, queued })
    };
    entries.iter().filter_map(|entry| times(&entry.name)).collect()
}

/// What one thread of this process does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// It waits, and not for the kernel: for another thread, a socket or a time. Or a debugger holds it.
    pub sleeps: bool,
    /// Since it began.
    pub ran: Duration,
}

/// `None` if the thread is gone, or where the operating system does not tell.
pub fn thread_state(fs: &dyn FileSystem, thread: u32) -> Option<ThreadState> {
    let task = Path::new("/proc/self/task").join(thread.to_string());
    let stat = Stat::from_read(&fs.read(&task.join("stat")).ok()?[..]).ok()?;
    let ran = Schedstat::from_read(&fs.read(&task.join("schedstat")).ok()?[..]).ok()?.sum_exec_runtime;
    Some(ThreadState { sleeps: matches!(stat.state, 'S' | 't'), ran: Duration::from_nanos(ran) })
}

/// `None` where the operating system does not tell.
pub fn processor_times(fs: &dyn FileSystem) -> Option<ProcessorTimes> {
    times_of(&fs.read(Path::new("/proc/stat")).ok()?)
}

fn times_of(stat: &[u8]) -> Option<ProcessorTimes> {
    let ticks_per_second = procfs::ticks_per_second();
    let stats = KernelStats::from_buf_read(stat, procfs::current_system_info()).ok()?;
    let total = &stats.total;
    let of_ticks = |ticks: u64| of_ticks(ticks, ticks_per_second);
    let interrupts = total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
    Some(ProcessorTimes {
        busy: of_ticks(total.user + total.nice + total.system + interrupts),
        io_wait: of_ticks(total.iowait.unwrap_or(0)),
        steal: of_ticks(total.steal.unwrap_or(0)),
        processors_count: stats.cpu_time.len(),
    })
}

fn of_ticks(ticks: u64, ticks_per_second: u64) -> Duration {
    let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Model name of the first processor.
pub fn processor_model(fs: &dyn FileSystem) -> Option<String> {
    let info = CpuInfo::from_buf_read(&fs.read(Path::new("/proc/cpuinfo")).ok()?[..]).ok()?;
    info.model_name(0).map(str::to_string)
}

/// Memory of the machine in bytes.
pub fn memory_bytes(fs: &dyn FileSystem) -> Option<u64> {
    Some(Meminfo::from_buf_read(&fs.read(Path::new("/proc/meminfo")).ok()?[..]).ok()?.mem_total)
}

/// The process that holds the lock (`flock`) on a file; `None` if the kernel does not say. The file itself is not read: a
/// lock may be on a file with content of its own, such as the cache's.
pub(crate) fn flock_holder(file: &std::fs::Metadata) -> Option<i32> {
    holder_among(&procfs::locks().ok()?, file.dev(), file.ino())
}

/// The process that holds the lock on a file; `None` if there is none, or if the kernel does not say. Nothing is opened.
#[allow(clippy::disallowed_methods)] // asks about the file, does not read it
pub fn lock_holder(path: &std::path::Path) -> Option<i32> {
    flock_holder(&std::fs::metadata(path).ok()?)
}

/// An inode is unique on its device only.
fn holder_among(locks: &[procfs::Lock], device: u64, inode: u64) -> Option<i32> {
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let is_of_file = |lock: &&procfs::Lock| (lock.devmaj, lock.devmin) == device && lock.inode == inode;
    let mut held = locks.iter().filter(|lock| lock.lock_type == LockType::FLock).filter(is_of_file);
    held.find_map(|lock| lock.pid).filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RealFileSystem, sim::SimFileSystem};

    /// Memory was counted in pages of 4 KiB on every kernel: a sixteenth of the truth on one with 64 KiB.
    #[test]
    fn resident_memory_is_counted_in_pages_of_the_kernel() {
        let statm = b"5000 300 100 10 0 200 0\n";
        for page_bytes in [4 << 10, 16 << 10, 64 << 10] {
            assert_eq!(resident_of(statm, page_bytes), Some(300 * page_bytes));
        }
        for other in ["", "5000", "5000 x 1 1 0 1 0\n"] {
            assert_eq!(resident_of(other.as_bytes(), 4096), None);
        }
    }

    /// A file of another disk had the same inode, and the message named its process.
    #[test]
    fn the_holder_of_a_lock_is_found_by_device_and_inode() {
        let text = "1: POSIX  ADVISORY  WRITE 11 fe:01:77 0 EOF\n\
                    2: FLOCK  ADVISORY  WRITE 22 08:01:77 0 EOF\n\
                    3: FLOCK  ADVISORY  WRITE 33 fe:01:77 0 EOF\n\
                    4: FLOCK  ADVISORY  WRITE -1 fe:01:78 0 EOF\n";
        let locks = procfs::Locks::from_buf_read(text.as_bytes()).unwrap().0;
        let holder = |major, minor, inode| holder_among(&locks, rustix::fs::makedev(major, minor), inode);
        assert_eq!(holder(0xfe, 1, 77), Some(33));
        assert_eq!(holder(8, 1, 77), Some(22));
        assert_eq!(holder(8, 2, 77), None);
        assert_eq!(holder(0xfe, 1, 78), None, "a lock of no process");
    }

    #[test]
    fn a_lock_names_this_process_as_its_holder() {
        let path = std::env::temp_dir().join(format!("halcyon-lock-{}", std::process::id()));
        let held = RealFileSystem.lock(&path).unwrap();
        let error = RealFileSystem.lock(&path).map(|_| ()).unwrap_err();
        assert!(error.to_string().ends_with(&format!("by process {}", std::process::id())), "{error}");
        drop(held);
        RealFileSystem.remove_file(&path).unwrap();
    }

    #[test]
    fn this_process_and_this_machine() {
        let fs = &RealFileSystem;
        let own = process_usage(fs, std::process::id()).unwrap();
        let resident = resident_bytes(fs).unwrap();
        assert!(own.resident_bytes.abs_diff(resident) < 32 << 20, "{own:?} {resident}");
        assert!(own.resident_peak_bytes >= own.resident_bytes);
        assert_eq!(process_usage(fs, u32::MAX), None);
        let times = processor_times(fs).unwrap();
        assert!(times.processors_count > 0 && times.busy >= own.cpu, "{times:?}");
        assert!(memory_bytes(fs).unwrap() > resident);
    }

    #[test]
    fn threads_have_names_and_times() {
        let (told, asked) = std::sync::mpsc::channel::<()>();
        let thread = crate::spawn_thread("a-thread", move || asked.recv().is_err()).unwrap();
        let deadline = std::time::Duration::from_secs(10);
        let mut waited = Duration::ZERO;
        let found = loop {
            let threads = thread_times(&RealFileSystem);
            match threads.iter().find(|thread| thread.name == "a-thread") {
                Some(thread) => break thread.clone(),
                None => assert!(waited < deadline, "{threads:?}"),
            }
            let pause = Duration::from_millis(5);
            crate::Clock::sleep(&crate::SystemClock::new(), pause);
            waited += pause;
        };
        assert!(found.id > 0 && found.ran < Duration::from_secs(10), "{found:?}");
        let state = thread_state(&RealFileSystem, found.id).unwrap();
        assert!(state.ran < Duration::from_secs(10), "{state:?}");
        assert_eq!(thread_state(&RealFileSystem, u32::MAX), None);
        drop(told);
        assert!(thread.join().unwrap());
        assert_eq!(thread_times(&SimFileSystem::new()), []);
    }

    #[test]
    fn processor_times_are_read_as_linux_writes_them() {
        let stat = "cpu  374456 551 43992 93479 3424 0 4696 3207 0 0\n\
                    cpu0 1 1 1 1 1 1 1 1 0 0\ncpu1 1 1 1 1 1 1 1 1 0 0\nintr 5 6\nctxt 7\nbtime 1700000000\n\
                    processes 9\nprocs_running 1\nprocs_blocked 0\nsoftirq 1 2\n";
        let seconds = |ticks: u64| of_ticks(ticks, procfs::ticks_per_second());
        let expected = ProcessorTimes {
            busy: seconds(374_456 + 551 + 43_992 + 4_696),
            io_wait: seconds(3_424),
            steal: seconds(3_207),
            processors_count: 2,
        };
        assert_eq!(times_of(stat.as_bytes()), Some(expected));
        assert_eq!(of_ticks(3_207, 100), Duration::from_millis(32_070));
        for other in
            ["", "cpu  1 2 3\ncpu0 1\n", "cpu0 1 2 3 4 5 6 7 8 9 10", "cpu  1 2 3 4 5 6 7 x 9 10\ncpu0 1\n"]
        {
            assert_eq!(times_of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn nothing_of_the_machine_is_seen_in_a_simulation() {
        let fs = SimFileSystem::new();
        assert_eq!((resident_bytes(&fs), process_usage(&fs, 1), processor_times(&fs)), (None, None, None));
    }
}
