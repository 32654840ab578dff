//! Processor time, and what a result was measured on.

use halcyon_env::Env;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Clock ticks of `/proc/PID/stat` in a second; Linux has no other.
const TICKS_PER_SECOND: f64 = 100.0;

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
        let stat = self.text(&format!("/proc/{process}/stat"))?;
        // fields 14 and 15; the name before them may hold blanks
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
        let mut ticks = || fields.next()?.parse::<f64>().ok();
        Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
    }

    /// Resident memory of another process in bytes.
    pub fn process_resident_bytes(&self, process: u32) -> Option<u64> {
        let status = self.text(&format!("/proc/{process}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
    }

    pub fn describe(&self) -> Value {
        let cpu = self.text("/proc/cpuinfo").and_then(|text| value_of(&text, "model name"));
        let memory = self.text("/proc/meminfo").and_then(|text| value_of(&text, "MemTotal"));
        let line = |path| self.text(path).map(|text| text.trim().to_string());
        json!({
            "cpu": cpu,
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
            "memory": memory,
            "kernel": line("/proc/sys/kernel/osrelease"),
            "load_before": line("/proc/loadavg"),
            "halcyon": env!("CARGO_PKG_VERSION"),
        })
    }
}

/// The text behind `name:` of a file of such lines.
fn value_of(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
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
