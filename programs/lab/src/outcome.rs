//! What an experiment found: written as JSON beside the page, read again to go on or to draw the page anew.
//!
//! Shapes only. An [`Experiment`] has sides that are compared and [`Run`]s, one for each side, case and repetition.
//! All times are seconds since the start of the run they belong to, unless the name says otherwise; lengths are
//! milliseconds, latencies microseconds, sizes bytes.

use serde::{Deserialize, Serialize};

/// Raised when a reader of older files would misread newer ones.
pub const FORMAT: u32 = 1;

/// One experiment on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    pub format: u32,
    /// `read-pauses`, `plab`, `offheap`, `zgc`, `native-map`, `shapes`, `memory`.
    pub name: String,
    pub title: String,
    /// What is asked, in a sentence or two.
    pub question: String,
    /// Whose published experience is repeated, and where it stands.
    pub sources: Vec<Source>,
    pub quick: bool,
    /// Why it is not whole: interrupted, a side that would not start, a JDK that is missing.
    pub partial: Option<String>,
    /// Wall clock.
    pub started_ms: u64,
    pub ended_ms: Option<u64>,
    pub environment: Environment,
    /// What an acknowledged write has survived, for all sides alike.
    pub durability: String,
    pub sides: Vec<Side>,
    /// In the order in which they stand on the page.
    pub cases: Vec<Case>,
    pub runs: Vec<Run>,
    /// In the shape of the published ones, made from the runs.
    pub tables: Vec<Table>,
    /// One sentence each: what the figures do not say.
    pub not_comparable: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    pub title: String,
    pub address: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub cpu: String,
    pub cores: u32,
    pub memory_bytes: u64,
    pub system: String,
    /// Median of writing and syncing 4 KiB in the directory of the data; milliseconds.
    pub sync_ms: Option<f64>,
    pub halcyon: String,
    /// `17.0.17 /usr/lib/jvm/...`, each JDK that was found.
    pub jdks: Vec<String>,
}

/// One of those that are compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Short and stable: `g1`, `g1-tuned`, `halcyon`.
    pub id: String,
    /// As it stands in legends: `HBase 2.6.4, G1, JDK 17`.
    pub label: String,
    pub product: Product,
    /// The whole command line of the server; empty while it never started.
    pub command_line: Vec<String>,
    /// Settings that differ from the product's defaults, `name=value`.
    pub settings: Vec<String>,
    /// Why this side could not take part.
    pub missing: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Product {
    Halcyon,
    Hbase,
    Accumulo,
}

/// One load that all sides get.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Short and stable: `ycsb-a`, `write-t8-v1000`.
    pub id: String,
    pub label: String,
}

/// One case on one side, once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// A [`Side::id`].
    pub side: String,
    /// A [`Case::id`].
    pub case: String,
    /// From 1.
    pub repetition: u32,
    /// Of the load generator.
    pub command_line: Vec<String>,
    /// Wall clock at the start of what was measured.
    pub started_ms: u64,
    pub elapsed_s: f64,
    /// Why it does not count: it ended early, was not steady, or had wrong answers.
    pub partial: Option<String>,
    /// Length of the warm-up before it, and the operations per second of each of its seconds.
    #[serde(default)]
    pub warmup_s: f64,
    #[serde(default)]
    pub warmup_rates_per_s: Vec<f64>,
    pub operations: u64,
    pub operations_per_s: f64,
    /// The rate that was asked for; latency then counts from the intended start.
    pub rate_wanted_per_s: Option<f64>,
    pub latencies: Vec<Latency>,
    pub series: Vec<Second>,
    pub slow: Vec<Slow>,
    /// Slow operations beyond those of [`Run::slow`].
    pub slow_left_out: u64,
    pub pauses: Vec<Pause>,
    pub resources: Resources,
    /// Class of error and number.
    pub errors: Vec<(String, u64)>,
    /// Bytes on disk after it, where known.
    pub disk_bytes: Option<u64>,
}

/// Latencies of one kind of operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub kind: String,
    pub mean_us: f64,
    /// Value in microseconds and count, rising; buckets of the histogram that hold anything.
    pub histogram: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Second {
    pub at_s: f64,
    pub operations: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
    /// Resident memory of the server, where it was sampled.
    pub resident_bytes: Option<u64>,
}

/// An operation that took long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// Of its intended start.
    pub at_s: f64,
    pub latency_us: u64,
    pub kind: String,
}

/// A time at which the server, or a thread of it, stood still.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pause {
    pub at_s: f64,
    pub length_ms: f64,
    pub kind: PauseKind,
    /// `Young (Normal), G1 Evacuation Pause`; a stall's cause.
    pub cause: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PauseKind {
    /// A collection that stopped the application.
    Collection,
    /// A safepoint that was none.
    Safepoint,
    /// A thread of a JVM that waited for memory.
    AllocationStall,
    /// Of Halcyon's stall monitor: a thread that had to wait for a core, a lock or memory, or a call that took long on a
    /// thread that others wait for.
    Stall,
    /// Of Halcyon's stall monitor: a thread that had to wait for a disk. The logs of a JVM tell nothing of such waits.
    Disk,
    /// Of Halcyon's stall monitor: a time of which the host of the virtual machine took half or more for others. The logs of a
    /// JVM tell nothing of it either, and a pause of a JVM may contain it.
    Host,
}

impl Run {
    /// What stood still for other reasons than the disk's or the host's, which only one of the sides records.
    pub fn own_pauses(&self) -> impl Iterator<Item = &Pause> {
        self.pauses.iter().filter(|pause| !matches!(pause.kind, PauseKind::Disk | PauseKind::Host))
    }
}

impl PauseKind {
    /// Of the application as a whole, not of one of its threads.
    pub fn stops_all(self) -> bool {
        matches!(self, PauseKind::Collection | PauseKind::Safepoint)
    }
}

/// Who used what during a run, and so who was the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    pub server_cpu_s: f64,
    pub client_cpu_s: f64,
    /// Everybody else on the machine.
    pub others_cpu_s: f64,
    /// Of the server, at the run's end and at most so far.
    pub resident_bytes: u64,
    pub resident_peak_bytes: u64,
    /// Bytes the server had read from and written to disks.
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
    /// Time the machine waited for disks with nothing else to do.
    pub io_wait_s: f64,
    /// Processor time, all cores together, that a virtual machine wanted and its host gave to others.
    #[serde(default)]
    pub stolen_s: f64,
    /// `server CPU`, `client CPU`, `CPU that others used`, `CPU that the host gave to others`, `disk`,
    /// `the rate that was asked for`, `nothing: latency and concurrency`.
    pub bound_by: String,
}

/// A table as published, with what was measured beside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Entry>>,
    /// Below the table; whose figures the published ones are, and on which machine.
    pub remark: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Entry {
    Text(String),
    /// Median of the repetitions, with the least and the most where there are several.
    Measured {
        median: f64,
        min: f64,
        max: f64,
        unit: String,
    },
    /// As published.
    Published {
        value: f64,
        unit: String,
    },
    /// Was to be measured and was not, and why.
    Absent(String),
}
