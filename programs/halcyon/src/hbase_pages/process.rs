//! Beans of the process, where HBase has those of its JVM. There is no heap and no garbage collector: memory is that of
//! the process, and nothing is collected.

use std::path::Path;

use halcyon_env::{FileSystem, RealFileSystem};
use serde_json::json;

use super::beans::Bean;
use crate::pages::Sources;

const MIB: f64 = (1 << 20) as f64;

pub fn beans(sources: &Sources) -> Vec<Bean> {
    let host = sources.region_server.server_name().host.clone();
    let mut jvm = Bean::of_hbase("JvmMetrics", None, "jvm", &host);
    let (mut memory, mut runtime) = (Bean::of_platform("Memory"), Bean::of_platform("Runtime"));
    let mut threading = Bean::of_platform("Threading");
    let budget = sources.region_server.settings().memory_bytes;
    if let Some(resident) = (sources.resident_bytes)() {
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
    let now_ms = sources.clock.now_ms();
    runtime.gauge("StartTime", sources.started_ms, "When the process started, in ms since 1970");
    runtime.gauge("Uptime", (now_ms - sources.started_ms).max(0), "Milliseconds since then");
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
