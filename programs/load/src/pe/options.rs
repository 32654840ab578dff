//! The command line of `bench pe`.

use clap::{ArgAction, Args, ValueEnum};
use halcyon_schema::{BlockEncoding, BloomType, Compression, InMemoryCompaction};

use crate::args::{ClusterArgs, ReportArgs};

/// `ONE_GB` of PerformanceEvaluation.
const GIGABYTE: u64 = 1024 * 1024 * 1000;
/// `DEFAULT_ROWS_PER_GB`: rows of a client unless `--rows` or `--size` says otherwise.
const ROWS_DEFAULT: u64 = GIGABYTE / 1000;
const SIZE_DEFAULT: f64 = 1.0;

/// A command, named as PerformanceEvaluation names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "camelCase")]
pub enum Command {
    #[value(alias = "asyncSequentialWrite")]
    SequentialWrite,
    #[value(alias = "asyncRandomWrite")]
    RandomWrite,
    #[value(alias = "asyncSequentialRead")]
    SequentialRead,
    #[value(alias = "asyncRandomRead")]
    RandomRead,
    #[value(alias = "asyncScan")]
    Scan,
    ReverseScan,
    RandomSeekScan,
    FilterScan,
    #[value(name = "scanRange10")]
    ScanRange10,
    #[value(name = "scanRange100")]
    ScanRange100,
    #[value(name = "scanRange1000")]
    ScanRange1000,
    #[value(name = "scanRange10000")]
    ScanRange10000,
    Increment,
    Append,
    CheckAndMutate,
    CheckAndPut,
    CheckAndDelete,
    SequentialDelete,
    RandomDelete,
    /// Write entries of nonexistent regions to hbase:meta.
    MetaWrite,
    /// Look regions up in hbase:meta.
    MetaRandomRead,
    /// Remove the entries that metaWrite wrote.
    CleanMeta,
}

/// Run a command of HBase's PerformanceEvaluation.
#[derive(Clone, Debug, Args)]
#[command(rename_all = "camelCase")]
pub struct PeArgs {
    /// Operation that each client performs on each of its rows.
    #[arg(value_enum)]
    pub command: Command,
    /// Number of clients.
    #[arg(value_name = "NCLIENTS", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub clients: usize,

    /// Rows for each client.
    #[arg(long, default_value_t = ROWS_DEFAULT)]
    pub rows: u64,
    /// Total size in GiB, instead of --rows. With --rows, randomRead and randomSeekScan draw rows from this range.
    #[arg(long, default_value_t = SIZE_DEFAULT)]
    pub size: f64,
    /// First row of every client [default: clients use consecutive ranges].
    #[arg(long, default_value_t = 0)]
    pub start_row: u64,
    /// Fraction of the rows to use.
    #[arg(long, default_value_t = 1.0)]
    pub sample_rate: f64,
    /// Number of passes over the rows.
    #[arg(long, default_value_t = 1)]
    pub cycles: u32,
    /// Stop after this time and walk the rows again and again until then, instead of --cycles.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,
    #[arg(long, default_value = "TestTable")]
    pub table: String,

    /// Regions of a new table. A table with another number of regions is recreated. 0: keep the table as it is.
    #[arg(long, default_value_t = 0)]
    pub presplit: u32,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub families: u32,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub columns: u32,
    #[arg(long, default_value = "NONE")]
    pub compress: String,
    /// Cipher of the table's files; a server without it refuses the table.
    #[arg(long, default_value = "NONE")]
    pub encryption: String,
    #[arg(long, default_value = "ROW")]
    pub bloom_filter: String,
    #[arg(long, default_value = "NONE")]
    pub block_encoding: String,
    #[arg(long, default_value_t = 65_536)]
    pub block_size: u32,
    #[arg(long = "inmemory", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub in_memory: bool,
    #[arg(long = "inmemoryCompaction", default_value = "NONE")]
    pub in_memory_compaction: String,
    /// Class of the table's split policy.
    #[arg(long)]
    pub split_policy: Option<String>,
    /// Only 1 is supported: this client does not read from region replicas.
    #[arg(long, default_value_t = 1)]
    pub replicas: u32,

    /// Size of a value in bytes.
    #[arg(long, default_value_t = 1_000)]
    pub value_size: usize,
    /// Draw value sizes uniformly below --valueSize.
    #[arg(long)]
    pub value_random: bool,
    /// Draw value sizes up to --valueSize from a Zipf distribution.
    #[arg(long)]
    pub value_zipf: bool,
    #[arg(long = "writeToWAL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub write_to_wal: bool,
    /// Send each put as its own call.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub auto_flush: bool,
    /// With --autoFlush=true: puts in one call.
    #[arg(long, default_value_t = 0)]
    pub multi_put: usize,
    /// Write buffer of a client in bytes, without --autoFlush.
    #[arg(long, default_value_t = 2 << 20)]
    pub buffer_size: usize,
    /// Flush the table after the last write.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub flush_commits: bool,
    /// Write tags with each cell.
    #[arg(long = "usetags", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub use_tags: bool,
    #[arg(long = "numoftags", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=127))]
    pub tags_count: u8,

    /// Rows in one multi-get; randomRead only.
    #[arg(long, default_value_t = 0)]
    pub multi_get: usize,
    /// List the columns explicitly in gets and scans.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub add_columns: bool,
    /// Add a filter that drops all cells on the server.
    #[arg(long)]
    pub filter_all: bool,
    /// Rows in one scan call.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub caching: u32,
    /// Prefetch the next rows of a scan while the client reads the current ones.
    #[arg(long)]
    pub async_prefetch: bool,
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub cache_blocks: bool,
    /// Read type of scans: default, stream or pread.
    #[arg(long, default_value = "default")]
    pub scan_read_type: String,
    /// Sleep up to this many milliseconds before each get.
    #[arg(long, default_value_t = 0)]
    pub random_sleep: u64,

    /// Share one connection among all clients.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub one_con: bool,
    /// Connections that the clients share [default: one for each client].
    #[arg(long)]
    pub conn_count: Option<usize>,
    /// No effect: latencies are always reported. Accepted for compatibility.
    #[arg(long)]
    pub latency: bool,
    /// Count rows slower than this many milliseconds.
    #[arg(long, default_value_t = 0)]
    pub latency_threshold: u64,
    /// Exclude the first rows of each client from the latencies.
    #[arg(long, default_value_t = 0)]
    pub measure_after: u64,
    /// Only 0 is supported: tracing is not available.
    #[arg(long, default_value_t = 0.0)]
    pub trace_rate: f64,
    /// No effect: clients never run as MapReduce jobs. Accepted for compatibility.
    #[arg(long)]
    pub nomapred: bool,
    /// No effect: see --progress-period. Accepted for compatibility.
    #[arg(long = "period", value_name = "ROWS")]
    pub rows_period: Option<u64>,
    /// Not supported: this client has no Hadoop configuration.
    #[arg(short = 'D', value_name = "PROPERTY=VALUE")]
    pub property: Vec<String>,

    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub report: ReportArgs,
}

/// Options that go together, and what follows from them.
#[derive(Debug)]
pub(super) struct Options {
    pub args: PeArgs,
    /// Rows of one client.
    pub rows_per_client: u64,
    /// Number of rows from which random rows are drawn.
    pub total_rows: u64,
}

impl Options {
    /// The error is a sentence that names the unsupported combination.
    pub fn of(args: &PeArgs) -> Result<Options, String> {
        refuse(args)?;
        let value = if args.value_random { args.value_size / 2 } else { args.value_size };
        let row = (value.max(1) as u64) * u64::from(args.families) * u64::from(args.columns);
        let rows_per_gigabyte = (GIGABYTE / row).max(1);
        let has_size = args.size != SIZE_DEFAULT;
        let sized_rows = (args.size as u64).saturating_mul(rows_per_gigabyte);
        let draws = matches!(args.command, Command::RandomRead | Command::RandomSeekScan);
        let (rows_per_client, total_rows) = if draws && has_size && args.rows != ROWS_DEFAULT {
            (args.rows, sized_rows)
        } else if has_size {
            (sized_rows / args.clients as u64, sized_rows)
        } else {
            (args.rows, args.rows.saturating_mul(args.clients as u64))
        };
        if total_rows == 0 || total_rows > i32::MAX as u64 {
            return Err(format!(
                "{total_rows} rows: PerformanceEvaluation numbers rows from 0 to 2147483646"
            ));
        }
        Ok(Options { args: args.clone(), rows_per_client, total_rows })
    }

    /// Only rows whose number is a multiple of this.
    pub fn every(&self) -> u64 {
        ((1.0 / self.args.sample_rate) as u64).max(1)
    }

    pub fn command_name(&self) -> String {
        let value = self.args.command.to_possible_value().expect("no command is hidden");
        value.get_name().to_string()
    }

    /// Whether the table has to be there already.
    pub fn needs_table(&self) -> bool {
        let name = self.command_name().to_lowercase();
        ["read", "scan", "delete"].iter().any(|word| name.contains(word)) && !name.starts_with("check")
    }

    /// Whether something is asked for that may be there or not.
    pub fn is_read(&self) -> bool {
        let name = self.command_name().to_lowercase();
        ["read", "scan", "cleanmeta"].iter().any(|word| name.contains(word))
    }

    pub fn is_write(&self) -> bool {
        !self.needs_table() || self.command_name().ends_with("Delete")
    }
}

/// What cannot be done, said before anything is.
fn refuse(args: &PeArgs) -> Result<(), String> {
    let known = |what: &str, text: &str, ok: bool| match ok {
        true => Ok(()),
        false => Err(format!("--{what}: unknown value '{text}'")),
    };
    if args.replicas != 1 {
        return Err(
            "--replicas: only 1 is supported; this client does not read from region replicas".to_string()
        );
    }
    if args.trace_rate != 0.0 {
        return Err("--traceRate: only 0 is supported; tracing is not available".to_string());
    }
    if let Some(property) = args.property.first() {
        return Err(format!(
            "-D{property}: there is no Hadoop configuration here; --zookeeper, --znode-parent, --registry, \
             --call-timeout and --operation-timeout say what such properties say of a client"
        ));
    }
    if !args.auto_flush && args.multi_put > 0 {
        return Err("--multiPut needs --autoFlush=true".to_string());
    }
    if args.one_con && args.conn_count.is_some_and(|count| count > 1) {
        return Err("--oneCon=true and --connCount above 1 contradict each other".to_string());
    }
    if args.conn_count == Some(0) {
        return Err("--connCount: a client needs a connection".to_string());
    }
    if args.value_zipf && args.value_random {
        return Err("--valueZipf and --valueRandom contradict each other".to_string());
    }
    if args.value_size == 0 && (args.value_random || args.value_zipf) {
        return Err("--valueSize: there is nothing to vary in a value of 0 bytes".to_string());
    }
    if !(args.sample_rate > 0.0 && args.sample_rate <= 1.0) {
        return Err("--sampleRate is above 0 and at most 1".to_string());
    }
    if args.size != SIZE_DEFAULT && !(args.size > 1.0 && args.size.is_finite()) {
        return Err("--size is above 1, in GiB".to_string());
    }
    if args.rows == 0 || args.cycles == 0 {
        return Err("--rows and --cycles are above 0".to_string());
    }
    known("compress", &args.compress, Compression::parse(&args.compress).is_some())?;
    known("bloomFilter", &args.bloom_filter, BloomType::parse(&args.bloom_filter, Some(1)).is_some())?;
    known("blockEncoding", &args.block_encoding, BlockEncoding::parse(&args.block_encoding).is_some())?;
    let policy = &args.in_memory_compaction;
    known("inmemoryCompaction", policy, InMemoryCompaction::parse(policy).is_some())?;
    let read_type = args.scan_read_type.to_ascii_lowercase();
    known("scanReadType", &args.scan_read_type, ["default", "stream", "pread"].contains(&&*read_type))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PeArgs,
    }

    fn options(line: &str) -> Result<Options, String> {
        let line = Line::try_parse_from(std::iter::once("pe").chain(line.split(' ')));
        Options::of(&line.map_err(|error| error.to_string())?.args)
    }

    #[test]
    fn rows_and_sizes_as_performance_evaluation_counts_them() {
        let rows = |line: &str| {
            let options = options(line).unwrap();
            (options.rows_per_client, options.total_rows)
        };
        assert_eq!(rows("sequentialWrite 1"), (1_048_576, 1_048_576));
        assert_eq!(rows("--rows=10 --nomapred increment 10"), (10, 100));
        assert_eq!(rows("--size=4 sequentialWrite 2"), (2_097_152, 4_194_304));
        assert_eq!(rows("--size=4 --rows=100 randomRead 2"), (100, 4_194_304));
        assert_eq!(
            rows("--size=2 --valueSize=100 --families=2 --columns=5 randomWrite 1"),
            (2_097_152, 2_097_152)
        );
        assert_eq!(options("--sampleRate=0.25 randomRead 1").unwrap().every(), 4);
    }

    #[test]
    fn command_lines_of_performance_evaluation_are_understood() {
        let line = "--nomapred --table=T --presplit=50 --writeToWAL=true --inmemoryCompaction=BASIC --compress=SNAPPY \
                    --autoFlush=true --multiPut=10 --inmemory=true --latency --oneCon=true --usetags=true --numoftags=3 \
                    --bloomFilter=ROWCOL --blockEncoding=FAST_DIFF --blockSize=1024 --flushCommits=true --valueRandom \
                    --caching=7 --addColumns=false scanRange10000 2";
        let args = options(&line.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap().args;
        assert_eq!((args.command, args.presplit, args.add_columns), (Command::ScanRange10000, 50, false));
        assert!(args.auto_flush && args.use_tags && args.one_con && args.flush_commits && args.in_memory);
        assert!(options("asyncRandomRead 1").unwrap().needs_table());
        assert!(options("randomDelete 1").unwrap().needs_table());
        assert!(!options("checkAndDelete 1").unwrap().needs_table());
        assert!(options("--period=10 --asyncPrefetch asyncScan 1").unwrap().args.async_prefetch);
        assert!(!options("--encryption=AES asyncRandomWrite 1").unwrap().needs_table());
        assert!(options("metaRandomRead 1").unwrap().needs_table());
        assert!(!options("metaWrite 1").unwrap().needs_table());
        assert!(!options("increment 1").unwrap().needs_table());
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (line, word) in [
            ("--replicas=3 randomRead 1", "replicas"),
            ("--traceRate=1 randomRead 1", "tracing"),
            ("--multiPut=3 randomWrite 1", "autoFlush"),
            ("--compress=ZIPPY randomWrite 1", "ZIPPY"),
            ("--blockEncoding=SOME randomWrite 1", "SOME"),
            ("--valueZipf --valueRandom randomWrite 1", "contradict"),
            ("--sampleRate=0 randomRead 1", "sampleRate"),
            ("--rows=3000000000 randomWrite 1", "numbers rows"),
            ("-Dhbase.rpc.timeout=1 randomRead 1", "--call-timeout"),
            ("--traceRate=1 metaWrite 1", "tracing"),
            ("com.example.OwnTest 1", "possible values"),
            ("randomRead 0", "0"),
        ] {
            let error = options(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
