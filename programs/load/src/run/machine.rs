//! Processor time, and what a result was measured on.

use halcyon_env::Env;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// User and system time of this process so far, in seconds.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The machine as `/proc` describes it.
pub struct Machine<'a> {
    env: &'a Env,
}

impl<'a> Machine<'a> {
    pub fn new(env: &'a Env) -> Machine<'a> {
        Machine { env }
    }

    fn text(&self, path: &str) -> Option<String> {
        self.env.fs.read(path.as_ref()).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    }

    /// User and system time of another process in seconds; `None` if it is gone.
    pub fn process_cpu_seconds(&self, process: u32) -> Option<f64> {
        Some(halcyon_env::process_usage(&*self.env.fs, process)?.cpu.as_secs_f64())
    }

    /// Resident memory of another process in bytes.
    pub fn process_resident_bytes(&self, process: u32) -> Option<u64> {
        Some(halcyon_env::process_usage(&*self.env.fs, process)?.resident_bytes)
    }

    pub fn describe(&self) -> Value {
        let fs = &*self.env.fs;
        let memory = halcyon_env::memory_bytes(fs).map(|bytes| format!("{} kB", bytes >> 10));
        let line = |path| self.text(path).map(|text| text.trim().to_string());
        json!({
            "cpu": halcyon_env::processor_model(fs),
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
            "memory": memory,
            "kernel": line("/proc/sys/kernel/osrelease"),
            "load_before": line("/proc/loadavg"),
            "halcyon": env!("CARGO_PKG_VERSION"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_measured_both_ways() {
        let env = Env::real();
        let machine = Machine::new(&env);
        let own = machine.process_cpu_seconds(std::process::id()).unwrap();
        assert!((cpu_seconds() - own).abs() < 1.0);
        assert!(machine.process_resident_bytes(std::process::id()).unwrap() > 1 << 20);
        assert!(machine.process_cpu_seconds(u32::MAX).is_none());
        assert!(machine.describe()["cores"].as_u64().unwrap() > 0);
    }
}
