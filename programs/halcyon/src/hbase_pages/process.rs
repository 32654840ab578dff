//! Beans of the process, where HBase has those of its JVM. There is no heap and no garbage collector: memory is that of
//! the process, and nothing is collected.

use std::path::Path;

use halcyon_env::{FileSystem, RealFileSystem};
use serde_json::json;

use super::beans::Bean;
use crate::pages::Sources;

const MIB: f64 = (1 << 20) as f64;

/// What is shown of a process.
pub struct Process {
    pub host: String,
    pub budget_bytes: u64,
    pub resident_bytes: Option<u64>,
    pub started_ms: i64,
    pub now_ms: i64,
}

impl Process {
    pub fn of(sources: &Sources) -> Process {
        Process {
            host: sources.region_server.server_name().host.clone(),
            budget_bytes: sources.region_server.settings().memory_bytes,
            resident_bytes: (sources.resident_bytes)(),
            started_ms: sources.started_ms,
            now_ms: sources.clock.now_ms(),
        }
    }
}

pub fn beans(process: &Process) -> Vec<Bean> {
    let mut jvm = Bean::of_hbase("JvmMetrics", None, "jvm", &process.host);
    let (mut memory, mut runtime) = (Bean::of_platform("Memory"), Bean::of_platform("Runtime"));
    let mut threading = Bean::of_platform("Threading");
    let budget = process.budget_bytes;
    if let Some(resident) = process.resident_bytes {
        jvm.gauge("MemHeapUsedM", resident as f64 / MIB, "Resident memory of the process in MiB");
        memory.gauge(
            "HeapMemoryUsage",
            json!({ "used": resident, "max": budget }),
            "Resident memory and budget",
        );
    }
    jvm.gauge("MemHeapMaxM", budget as f64 / MIB, "Memory budget in MiB");
    jvm.gauge("MemMaxM", budget as f64 / MIB, "Memory budget in MiB");
    jvm.counter("GcCount", 0, "There is no garbage collector");
    jvm.counter("GcTimeMillis", 0, "There is no garbage collector");
    let (started_ms, now_ms) = (process.started_ms, process.now_ms);
    runtime.gauge("StartTime", started_ms, "When the process started, in ms since 1970");
    runtime.gauge("Uptime", (now_ms - started_ms).max(0), "Milliseconds since then");
    runtime.gauge("VmName", "halcyon", "");
    runtime.gauge("VmVersion", env!("CARGO_PKG_VERSION"), "");
    if let Some(threads) = threads_count() {
        threading.gauge("ThreadCount", threads, "Threads of the process");
    }
    vec![jvm, memory, runtime, threading]
}

fn threads_count() -> Option<usize> {
    RealFileSystem.list(Path::new("/proc/self/task")).ok().map(|threads| threads.len())
}

/// Name and state of each thread.
pub fn threads() -> Vec<(String, String)> {
    let threads = RealFileSystem.list(Path::new("/proc/self/task")).unwrap_or_default();
    let read =
        |path: &Path| RealFileSystem.read(path).map(|text| String::from_utf8_lossy(&text).trim().to_string());
    let named = threads.iter().filter_map(|thread| {
        let dir = Path::new("/proc/self/task").join(&thread.name);
        let status = read(&dir.join("status")).ok()?;
        let state = status.lines().find_map(|line| line.strip_prefix("State:"))?.trim().to_string();
        let waits_in = read(&dir.join("wchan")).unwrap_or_default();
        let state = if waits_in.len() > 1 { format!("{state} in {waits_in}") } else { state };
        Some((read(&dir.join("comm")).ok()?, state))
    });
    let mut named: Vec<_> = named.collect();
    named.sort();
    named
}
