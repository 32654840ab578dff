//! The command line of `halcyon lab run`, and the properties of a machine that plans depend on.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;

use super::plan::Durability;
use super::warm::Warmup;
use crate::advise::parse_size;

/// Properties of the machine that plans depend on.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub cores: u32,
    pub memory_bytes: u64,
    /// Feature releases of the JDKs that were found.
    pub jdks: Vec<u32>,
}

/// Repeat a published experiment with HBase or Accumulo and Halcyon on this machine.
#[derive(Debug, Clone, clap::Args)]
pub struct RunArgs {
    /// The experiment.
    #[arg(value_enum, value_name = "NAME")]
    pub name: Name,
    /// Use small sizes and few repetitions: minutes instead of hours, on 2 cores with 6 GB of memory.
    #[arg(long)]
    pub quick: bool,
    /// Number of repetitions for each side [default: 3; with --quick as many as fit].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repetitions: Option<u32>,
    /// Run only these sides.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub sides: Vec<String>,
    /// Run only these cases.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub cases: Vec<String>,
    /// Measure YCSB cases a second time, on a table that was updated, flushed and compacted several times.
    #[arg(long)]
    pub aged: bool,
    /// Output directory; an interrupted run found there is resumed [default: ./lab-NAME, ./lab-NAME-quick].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Discard results of earlier runs in the output directory.
    #[arg(long)]
    pub fresh: bool,
    /// Print the plan and exit.
    #[arg(long)]
    pub plan: bool,
    /// Durability of acknowledged writes, the same on all sides.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Durability::Written)]
    pub durability: Durability,
    /// Directory of fetched jars [default: ~/.cache/halcyon/lab].
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    #[command(flatten)]
    pub sizes: SizeArgs,
}

/// Sizes. Defaults are the published sizes where the machine has enough memory.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "Sizes")]
pub struct SizeArgs {
    /// Heap of the JVM servers; a list if the experiment compares heap sizes.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = parse_size)]
    pub heap: Vec<u64>,
    /// Feature releases of the JDKs to use.
    #[arg(long, value_name = "RELEASE,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(8..=99))]
    pub jdk: Vec<u32>,
    /// YCSB records, rows for each PerformanceEvaluation client, or ingest nodes.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1_000..))]
    pub records: Option<u64>,
    /// Number of clients; a list if the experiment compares them.
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub threads: Vec<usize>,
    /// Value size in bytes; a list if the experiment compares sizes.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub value_size: Vec<u64>,
    /// Length of a measurement that is limited by time.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,
    /// Operations per second in cases with one rate for all sides.
    #[arg(long, value_name = "PER SECOND", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// Least warm-up before each measurement; at least 60 for a JVM. It lasts until the rate is steady [default: 60, Halcyon: 10].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=3_600))]
    pub warmup: Option<u64>,
    /// Measure without a steady rate. For tests of the lab: the figures do not hold, and the page says so.
    #[arg(long, hide = true)]
    pub unjudged: bool,
}

/// The experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    /// Read-only pauses: G1, G1 with Intel's tuning, Halcyon.
    ReadPauses,
    /// Sequential writes with and without G1's fixed promotion buffers.
    Plab,
    /// Writes and reads on heap and off heap.
    Offheap,
    /// YCSB with G1 and ZGC at several heap sizes.
    Zgc,
    /// Continuous ingest with Accumulo's native and Java maps.
    NativeMap,
    /// Counters, queues, large values, time series, many regions, and more data than memory.
    Shapes,
    /// The smallest heap or budget that serves the same rows at the same rate.
    Memory,
}

impl Name {
    pub fn text(self) -> &'static str {
        match self {
            Name::ReadPauses => "read-pauses",
            Name::Plab => "plab",
            Name::Offheap => "offheap",
            Name::Zgc => "zgc",
            Name::NativeMap => "native-map",
            Name::Shapes => "shapes",
            Name::Memory => "memory",
        }
    }
}

impl SizeArgs {
    pub fn warmup(&self) -> Warmup {
        Warmup::new(self.warmup, self.unjudged)
    }

    /// What the page says where the rule is off.
    pub fn unjudged_note(&self) -> Option<String> {
        let note = "Measured without waiting for a steady rate: the figures do not hold.";
        self.unjudged.then(|| note.to_string())
    }

    /// The error names an option that an experiment has no use for.
    pub fn allow(&self, experiment: Name, allowed: &[&str]) -> Result<(), String> {
        let given = [
            ("heap", !self.heap.is_empty()),
            ("jdk", !self.jdk.is_empty()),
            ("records", self.records.is_some()),
            ("threads", !self.threads.is_empty()),
            ("value-size", !self.value_size.is_empty()),
            ("seconds", self.seconds.is_some()),
            ("rate", self.rate.is_some()),
            ("warmup", self.warmup.is_some()),
        ];
        match given.iter().find(|(name, is_given)| *is_given && !allowed.contains(name)) {
            Some((name, _)) => Err(format!("the experiment {} does not use --{name}", experiment.text())),
            None => Ok(()),
        }
    }

    /// The one value of an option of which an experiment takes one.
    pub fn one<T: Copy>(name: &str, values: &[T], default: T) -> Result<T, String> {
        match values {
            [] => Ok(default),
            [value] => Ok(*value),
            _ => Err(format!("--{name} takes one value in this experiment")),
        }
    }

    /// The values of an option without duplicates.
    pub fn some<T: Copy + PartialEq>(values: &[T], default: &[T]) -> Vec<T> {
        let mut some = Vec::new();
        for value in if values.is_empty() { default } else { values } {
            if !some.contains(value) {
                some.push(*value);
            }
        }
        some
    }
}

impl Machine {
    /// The JDKs to take: those that were asked for, whether they are here or not, else those of the default that are here, else
    /// the next newer one, else the first of the default, which is then said to be missing.
    pub fn jdks(&self, asked: &[u32], default: &[u32]) -> Vec<u32> {
        if !asked.is_empty() {
            return SizeArgs::some(asked, &[]);
        }
        let here: Vec<u32> = default.iter().copied().filter(|jdk| self.jdks.contains(jdk)).collect();
        if !here.is_empty() {
            return here;
        }
        let newer = self.jdks.iter().copied().filter(|jdk| *jdk > default[0]).min();
        vec![newer.unwrap_or(default[0])]
    }

    /// The most that a server's heap may have here: two fifths, the rest is for files, the client and others.
    pub fn heap_max(&self) -> u64 {
        (self.memory_bytes / 5 * 2).max(1 << 30)
    }

    /// Threads of the load generator: a quarter of the cores.
    pub fn client_threads(&self) -> u32 {
        (self.cores / 4).max(1)
    }
}

/// `512m`, `4g`: the largest unit in which it is whole.
pub fn size_text(bytes: u64) -> String {
    match bytes {
        bytes if bytes % (1 << 30) == 0 => format!("{}g", bytes >> 30),
        bytes => format!("{}m", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jdks_are_chosen() {
        let machine = Machine { cores: 2, memory_bytes: 24 << 30, jdks: vec![17, 25] };
        assert_eq!(machine.jdks(&[], &[17, 25]), [17, 25]);
        assert_eq!(machine.jdks(&[], &[21]), [25]);
        assert_eq!(machine.jdks(&[], &[11, 21]), [17]);
        assert_eq!(machine.jdks(&[], &[26]), [26]);
        assert_eq!(machine.jdks(&[11, 11], &[17]), [11]);
    }

    #[test]
    fn sizes() {
        assert_eq!((size_text(4 << 30), size_text(1536 << 20)), ("4g".to_string(), "1536m".to_string()));
        let args = SizeArgs { heap: vec![1], ..SizeArgs::default() };
        assert_eq!(args.allow(Name::Zgc, &["heap"]), Ok(()));
        assert_eq!(
            args.allow(Name::NativeMap, &["seconds"]),
            Err("the experiment native-map does not use --heap".to_string())
        );
        assert_eq!(
            SizeArgs::one("heap", &[1, 2], 3),
            Err("--heap takes one value in this experiment".to_string())
        );
        assert_eq!(SizeArgs::some(&[1, 2, 1], &[3]), [1, 2]);
    }
}
