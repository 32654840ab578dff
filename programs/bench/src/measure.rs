//! Latencies, processor time, bytes written and memory of this process.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Failure;

/// Latencies in nanoseconds, to three digits, up to a minute.
pub struct Latencies(Histogram<u64>);

const LONGEST_NS: u64 = 60_000_000_000;

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("bounds in order, digits below six"))
    }
}

impl Latencies {
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos() as u64);
    }

    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("equal bounds");
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// In microseconds.
    pub fn at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    /// In microseconds.
    pub fn max(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }
}

/// What the process has used so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    at: Instant,
    cpu: Duration,
    /// Given to `write` and its kin: logs, files, all.
    written_bytes: u64,
}

/// What was used between two moments.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub time: Duration,
    pub cpu: Duration,
    pub written_bytes: u64,
}

/// The unit of processor time in `/proc`: `USER_HZ` is 100 on every Linux that this runs on.
const TICK: Duration = Duration::from_millis(10);

impl Usage {
    pub fn now() -> Result<Usage, Failure> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let ticks: u32 = after_name.split_whitespace().skip(11).take(2).flat_map(str::parse::<u32>).sum();
        let io = fs::read_to_string("/proc/self/io")?;
        let written_bytes = field(&io, "wchar:").ok_or("no wchar in /proc/self/io")?;
        Ok(Usage { at: Instant::now(), cpu: TICK * ticks, written_bytes })
    }

    pub fn since(&self, before: &Usage) -> Used {
        Used {
            time: self.at - before.at,
            cpu: self.cpu.saturating_sub(before.cpu),
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}

/// The most memory that was resident since [`forget_peak`], bytes.
pub fn peak_bytes() -> Result<u64, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    Ok(field(&status, "VmHWM:").ok_or("no VmHWM in /proc/self/status")? * 1024)
}

/// The peak begins anew with what is resident now.
pub fn forget_peak() -> Result<(), Failure> {
    Ok(fs::write("/proc/self/clear_refs", "5")?)
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes that all files below a directory take on disk.
pub fn disk_bytes(dir: &Path) -> Result<u64, Failure> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(sum)
}
