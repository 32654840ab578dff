//! The command line of `halcyon lab run`, and what of a machine a plan depends on.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;

use super::plan::Durability;
use crate::advise::parse_size;

/// What of the machine plans depend on.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub cores: u32,
    pub memory_bytes: u64,
    /// Feature releases of the JDKs that were found.
    pub jdks: Vec<u32>,
}

/// Repeats a published experiment with HBase or Accumulo and Halcyon side by side on this machine.
#[derive(Debug, Clone, clap::Args)]
pub struct RunArgs {
    /// Which one.
    #[arg(value_enum, value_name = "NAME")]
    pub name: Name,
    /// About five minutes in all, on 2 cores and 6 GB of memory.
    #[arg(long)]
    pub quick: bool,
    /// How often each side is measured [default: 3; with --quick as many as fit].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repetitions: Option<u32>,
    /// Only these sides.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub sides: Vec<String>,
    /// Only these cases.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub cases: Vec<String>,
    /// Where results go, and are looked for to go on [default: ./lab-NAME, ./lab-NAME-quick].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Throw away the results that are there.
    #[arg(long)]
    pub fresh: bool,
    /// Tell what would be measured, and end.
    #[arg(long)]
    pub plan: bool,
    /// What an acknowledged write has survived, on all sides.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Durability::Written)]
    pub durability: Durability,
    /// Downloaded jars and data of servers [default: ~/.cache/halcyon/lab].
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    #[command(flatten)]
    pub sizes: SizeArgs,
}

/// Sizes; each experiment has those it needs, with defaults as published where this machine has room.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "Sizes")]
pub struct SizeArgs {
    /// Heap of the servers on a JVM; several where the experiment compares them.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = parse_size)]
    pub heap: Vec<u64>,
    /// Feature releases of the JDKs to take.
    #[arg(long, value_name = "RELEASE,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(8..=99))]
    pub jdk: Vec<u32>,
    /// Records, rows or nodes: of YCSB's table, of each PerformanceEvaluation client.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1_000..))]
    pub records: Option<u64>,
    /// Clients at work; several where the experiment compares them.
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub threads: Vec<usize>,
    /// Bytes of a value; several where the experiment compares them.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub value_size: Vec<u64>,
    /// Length of a measurement, where time ends it.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,
    /// Operations a second where all sides get the same.
    #[arg(long, value_name = "PER SECOND", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// Before each measurement.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub warmup: Option<u64>,
}

/// The experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    /// Pauses under reads alone: G1, G1 as Intel tuned it, Halcyon.
    ReadPauses,
    /// Writes in order with and without G1's fixed promotion buffers.
    Plab,
    /// Writes and reads from heap and off heap.
    Offheap,
    /// YCSB at several heap sizes with G1 and ZGC.
    Zgc,
    /// Accumulo's continuous ingest with native and Java maps.
    NativeMap,
}

impl Name {
    pub fn text(self) -> &'static str {
        match self {
            Name::ReadPauses => "read-pauses",
            Name::Plab => "plab",
            Name::Offheap => "offheap",
            Name::Zgc => "zgc",
            Name::NativeMap => "native-map",
        }
    }
}

impl SizeArgs {
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
            Some((name, _)) => Err(format!("{} has no --{name}", experiment.text())),
            None => Ok(()),
        }
    }

    /// The one value of an option of which an experiment takes one.
    pub fn one<T: Copy>(name: &str, values: &[T], default: T) -> Result<T, String> {
        match values {
            [] => Ok(default),
            [value] => Ok(*value),
            _ => Err(format!("only one --{name} here")),
        }
    }

    /// The values of an option, without those that stand twice.
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
        assert_eq!(args.allow(Name::NativeMap, &["seconds"]), Err("native-map has no --heap".to_string()));
        assert_eq!(SizeArgs::one("heap", &[1, 2], 3), Err("only one --heap here".to_string()));
        assert_eq!(SizeArgs::some(&[1, 2, 1], &[3]), [1, 2]);
    }
}
