//! Options of `halcyon shadow`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use halcyon_migrate::Address;

use crate::ask::AskLimits;
use crate::judge::Patience;

/// Compare two clusters by the reads of real clients.
#[derive(Clone, Debug, Subcommand)]
pub enum ShadowCommand {
    /// Stand between clients and a cluster, and write their reads into files.
    Record(RecordArgs),
    /// Stand between clients and a cluster, send a copy of their reads to a second cluster, and compare.
    Mirror(MirrorArgs),
    /// Send the reads of a recording to two clusters, and compare.
    Replay(ReplayArgs),
}

/// Options of the proxy.
#[derive(Clone, Debug, Args)]
pub struct ProxyArgs {
    /// The cluster behind the proxy: hbase://HOST:PORT,.../ZNODE, or hbase+rpc://HOST:PORT,...
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub cluster: Address,
    /// Address to listen on.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub bind: IpAddr,
    /// Port of the registry, for hbase.client.bootstrap.servers or hbase.masters; 0 takes any.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Port that clients take for ZooKeeper; 0 takes any. Needs a cluster that is named by its ZooKeeper.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub zookeeper_port: u16,
    /// First port of those that stand for masters and region servers; 0 takes any.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub servers_port: u16,
    /// Name by which clients reach this machine [default: the address to listen on, or the name of the machine].
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Part of the reads to take, from 0 to 1.
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = part)]
    pub sample: f64,
    /// Largest frame that is looked at; larger ones pass unseen.
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub frame_max: u64,
    /// Memory for frames of more than 64 KiB; without room they pass unseen.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(16..=4095))]
    pub memory: u64,
    /// Memory for reads that wait for their answers, to be understood, written or sent; without room they are dropped.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4095))]
    pub queue: u64,
    /// Connections at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 4096)]
    pub connections_max: usize,
    /// File to create when the proxy listens.
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// Time between two lines of progress; 0 prints none.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub progress_period: u64,
    /// End after this time.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
}

/// Options of `halcyon shadow record`.
#[derive(Clone, Debug, Args)]
pub struct RecordArgs {
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Files of the recording: FILE.000001, FILE.000002, ...
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// Size of a file, after which the next one begins.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub file_size: u64,
    /// Size of all files; then the oldest file goes for each new one.
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..))]
    pub size_max: u64,
    /// At --size-max stop recording, and go on passing calls.
    #[arg(long)]
    pub stop_when_full: bool,
    /// Record the cells of answers too, so that a replay can compare with them.
    #[arg(long)]
    pub answers: bool,
    /// Record a checksum in the place of each value of an answer.
    #[arg(long, requires = "answers")]
    pub hash_values: bool,
    /// Bytes of an answer's cells that are recorded; a checksum has all.
    #[arg(long, value_name = "KIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(0..=16384))]
    pub answer_max: u64,
}

/// Options of asking and comparing.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// Time of a read with all its retries.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
    /// Rows of a scan at most; both sides end there.
    #[arg(long, value_name = "ROWS", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub scan_rows_max: u32,
    /// Time before a read that differed is made again.
    #[arg(long, value_name = "MS", default_value_t = 500)]
    pub settle_pause: u64,
    /// How often a read that differed is made again.
    #[arg(long, value_name = "TIMES", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub settle_readings: u32,
    /// Reads under way at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: u32,
    /// Write the result as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw the result as a page: one HTML file that loads nothing.
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
}

/// Options of `halcyon shadow mirror`.
#[derive(Clone, Debug, Args)]
pub struct MirrorArgs {
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// The second cluster, which gets copies of the reads.
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub to: Address,
    #[command(flatten)]
    pub compare: CompareArgs,
}

/// Options of `halcyon shadow replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// Files of recordings, or FILE as it was given to record, for all its files.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The first cluster. Without it, side a is what the recording has: needs one made with --answers.
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub a: Option<Address>,
    /// The second cluster.
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub b: Address,
    /// Pace: 1 as recorded, 2 twice as fast; 0 as fast as --threads allow.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,
    /// Reads of these tables only.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub tables: Vec<String>,
    #[command(flatten)]
    pub compare: CompareArgs,
    /// Time between two lines of progress; 0 prints none.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub progress_period: u64,
}

const MIB: u64 = 1 << 20;
/// Bytes of each side's cells of a read that are compared one by one.
const KEPT_BYTES_MAX: usize = 4 << 20;

impl ProxyArgs {
    pub(crate) fn frame_bytes(&self) -> usize {
        (self.frame_max * MIB) as usize
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        (self.memory * MIB) as usize
    }

    pub(crate) fn queue_bytes(&self) -> usize {
        (self.queue * MIB) as usize
    }

    /// The name by which clients reach this machine.
    pub(crate) fn host(&self) -> String {
        match &self.host {
            Some(host) => host.clone(),
            None if self.bind.is_unspecified() => machine_name(),
            None => self.bind.to_string(),
        }
    }
}

fn machine_name() -> String {
    let name = halcyon_env::Env::real().local.read(std::path::Path::new("/proc/sys/kernel/hostname"));
    let name = name.ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_string() } else { name.trim().to_string() }
}

impl CompareArgs {
    pub(crate) fn limits(&self) -> AskLimits {
        AskLimits {
            timeout: Duration::from_secs(self.timeout),
            scan_rows_max: self.scan_rows_max,
            kept_bytes_max: KEPT_BYTES_MAX,
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience { pause: Duration::from_millis(self.settle_pause), readings: self.settle_readings }
    }
}

fn part(text: &str) -> Result<f64, String> {
    let part: f64 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    if (0.0..=1.0).contains(&part) { Ok(part) } else { Err("a part is from 0 to 1".to_string()) }
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    if (0.0..=10_000.0).contains(&speed) { Ok(speed) } else { Err("a speed is from 0 to 10000".to_string()) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct All {
        #[command(subcommand)]
        command: ShadowCommand,
    }

    #[test]
    fn options_have_limits() {
        let parsed = |args: &str| All::try_parse_from(args.split(' ')).map(|all| all.command);
        let ShadowCommand::Record(args) =
            parsed("x record --cluster hbase://a --output f --sample 0.25").unwrap()
        else {
            panic!("not a recording");
        };
        assert_eq!((args.proxy.sample, args.proxy.host().as_str()), (0.25, "127.0.0.1"));
        for wrong in [
            "x record --cluster hbase://a --output f --sample 1.5",
            "x record --cluster hbase://a --output f --sample nan",
            "x record --cluster hbase://a --output f --hash-values",
            "x record --output f",
            "x replay --b hbase://b",
            "x replay f --b hbase://b --speed -1",
            "x mirror --cluster hbase://a",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
