//! Options of `halcyon import accumulo`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use halcyon_migrate::Address;

/// What to import from.
#[derive(Clone, Debug, Subcommand)]
pub enum ImportCommand {
    /// A table of Apache Accumulo: its exported files, or a scan of a running instance.
    Accumulo(Box<AccumuloArgs>),
}

/// What becomes of column visibilities. No reader is kept from a cell by any of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VisibilityMode {
    /// Import nothing if an entry has a visibility expression.
    Refuse,
    /// A tag of the cell, of the type that HBase replicates visibility expressions in.
    Tag,
    /// The end of the qualifier, behind --visibility-separator.
    Qualifier,
    /// Leave the expressions out.
    Drop,
}

/// Import a table of Accumulo into Halcyon or HBase.
///
/// All files are read and checked before anything is written. A run that was stopped resumes with the same command. At the end
/// every row of the new table is compared with the source.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("source").required(true))]
pub struct AccumuloArgs {
    /// Directory of an exported table, with exportMetadata.zip and RFiles: a path, file:///PATH or hdfs://HOST:PORT/PATH.
    #[arg(long, value_name = "DIR", group = "source")]
    pub from: Option<String>,
    /// Scan a running instance: the accumulo-client.properties of Accumulo 2.x.
    #[arg(long, value_name = "FILE", group = "source", requires = "source_table", requires = "classpath")]
    pub instance: Option<PathBuf>,
    /// Table to scan.
    #[arg(long, value_name = "NAME", conflicts_with = "from")]
    pub source_table: Option<String>,
    /// Java's class path with the jars of Accumulo's client, as `accumulo classpath` prints it.
    #[arg(long, value_name = "PATH", conflicts_with = "from")]
    pub classpath: Option<String>,
    /// Java from version 11 on, with its compiler.
    #[arg(long, value_name = "PROGRAM", default_value = "java")]
    pub java: PathBuf,
    /// Authorizations of the scan [default: all that the user has].
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with = "from")]
    pub auths: Option<Vec<String>>,

    /// The table to make, such as events or shop:orders.
    #[arg(long, value_name = "NAME")]
    pub table: String,
    /// The cluster that gets it: hbase://HOST:PORT,.../ZNODE, or hbase+rpc://HOST:PORT,...
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse, default_value = "hbase://127.0.0.1:2181/hbase")]
    pub to: Address,

    /// Entries of Accumulo's family go to a family of their own and keep their qualifiers. Repeatable.
    #[arg(long, value_name = "ACCUMULO=FAMILY")]
    pub family: Vec<String>,
    /// File with lines ACCUMULO=FAMILY, as --family. Lines that begin with # are comments.
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Each enabled locality group becomes a family with its name; qualifiers are joined.
    #[arg(long)]
    pub groups_as_families: bool,
    /// The family of all other entries; their qualifiers are joined.
    #[arg(long, value_name = "FAMILY", default_value = "f")]
    pub default_family: String,
    /// Between Accumulo's family and qualifier where they are joined. Such as : or \x00.
    #[arg(long, value_name = "BYTES", default_value = ":")]
    pub separator: String,
    /// What becomes of visibility expressions.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = VisibilityMode::Refuse)]
    pub visibility: VisibilityMode,
    /// Between qualifier and visibility.
    #[arg(long, value_name = "BYTES", default_value = "\\x00")]
    pub visibility_separator: String,
    /// Newest versions of a column to import [default: maxVersions of the table's VersioningIterator].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=i32::MAX as u64), conflicts_with = "instance")]
    pub versions: Option<u64>,

    /// Take all rows of all RFiles below the directory, which has no exportMetadata.zip. What was deleted and compacted away may
    /// come back.
    #[arg(long, conflicts_with = "instance")]
    pub without_metadata: bool,
    /// Import what is in the files although the table has iterators that change what a scan shows.
    #[arg(long, conflicts_with = "instance")]
    pub ignore_iterators: bool,
    /// Import the tablets that need none of the damaged files.
    #[arg(long, conflicts_with = "instance")]
    pub skip_damaged: bool,
    /// Regions of the new table, if the source does not say where tablets begin.
    #[arg(long, value_name = "COUNT", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000), default_value_t = 1, conflicts_with = "instance")]
    pub regions: usize,
    /// Directory with core-site.xml and hdfs-site.xml for files in HDFS [default: HADOOP_CONF_DIR].
    #[arg(long, value_name = "DIR")]
    pub config: Option<PathBuf>,

    /// Read and check everything, print the plan, and write nothing. The target is not asked.
    #[arg(long)]
    pub dry_run: bool,
    /// File that remembers how far the import is. A run that finds it resumes.
    #[arg(long, value_name = "FILE", default_value = "halcyon-import.json")]
    pub state: PathBuf,
    /// Ranges that are read and written at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub threads: usize,
    /// Time between two lines of progress.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub progress_period: u64,
}

/// Bytes of an option: `\xhh`, `\\`, and all else as it is.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let hex = tail.get(1..3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (tail.first(), hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (Some(b'\\'), _) => {
                bytes.push(b'\\');
                rest = &tail[1..];
            }
            (Some(b'x'), Some(byte)) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => return Err(format!("'{text}': a backslash begins \\xhh or \\\\")),
        }
    }
    Ok(bytes)
}
