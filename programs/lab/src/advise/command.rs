//! `halcyon lab advise`.

use std::path::PathBuf;

use halcyon_env::Env;

use super::compare::compare;
use super::env_file::EnvFile;
use super::flags::{Flag, parse_all};
use super::machine::{Collector, Machine, parse_size};
use super::print::{self, InUse};

/// Largest hbase-env.sh that is read, in bytes.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Recommend JVM flags for an HBase region server, or changes to the flags in use.
#[derive(Debug, clap::Args)]
pub struct AdviseArgs {
    /// Feature release of the JDK, such as 8, 11, 17.
    #[arg(long, value_name = "RELEASE", value_parser = clap::value_parser!(u32).range(8..=99))]
    pub jdk: u32,
    /// Heap size, such as 31g or 100g [default: -Xmx of the flags in use].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub heap: Option<u64>,
    /// Logical processors.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cores: u32,
    /// Garbage collector [default: that of the flags in use, else g1].
    #[arg(long, value_enum, value_name = "NAME")]
    pub gc: Option<Collector>,
    /// Direct memory: HBASE_OFFHEAPSIZE or -XX:MaxDirectMemorySize.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub offheap: Option<u64>,
    /// hbase.bucketcache.size, if the engine is offheap.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub bucket_cache: Option<u64>,
    /// hbase.regionserver.offheap.global.memstore.size.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub offheap_memstore: Option<u64>,
    /// hbase.regionserver.global.memstore.size, as a fraction of the heap.
    #[arg(long, value_name = "SHARE", default_value_t = 0.4, value_parser = parse_share)]
    pub memstore_share: f64,
    /// hfile.block.cache.size, as a fraction of the heap.
    #[arg(long, value_name = "SHARE", default_value_t = 0.4, value_parser = parse_share)]
    pub cache_share: f64,
    /// An hbase-env.sh to compare with the recommendation. The file is parsed, not executed.
    #[arg(long, value_name = "FILE", conflicts_with = "flags")]
    pub from: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// A JVM command line after --, to compare with the recommendation.
    #[arg(last = true, value_name = "FLAGS")]
    pub flags: Vec<String>,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("{text:?} is not a share such as 0.4"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("a share must be between 0 and 1".to_string()) }
}

/// Returns the text to print. The error is a sentence.
pub fn run(env: &Env, args: &AdviseArgs) -> Result<String, String> {
    let (flags, not_understood) = in_use(env, args)?;
    let machine = machine(args, flags.as_deref().unwrap_or_default())?;
    let in_use = flags.map(|flags| InUse { changes: compare(&machine, &flags), not_understood });
    Ok(match args.json {
        true => format!("{:#}\n", print::json(&machine, in_use.as_ref())),
        false => print::text(&machine, in_use.as_ref()),
    })
}

type InUseFlags = (Option<Vec<Flag>>, Vec<(usize, String)>);

fn in_use(env: &Env, args: &AdviseArgs) -> Result<InUseFlags, String> {
    let Some(path) = &args.from else {
        // each argument was one word to the shell; one that holds a whole command line is cut again
        let flags = args.flags.iter().flat_map(|word| match word.starts_with("-D") {
            true => vec![Flag::parse(word)],
            false => parse_all(word),
        });
        return Ok(((!args.flags.is_empty()).then(|| flags.collect()), Vec::new()));
    };
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{}: no such file", path.display()),
        _ => format!("{}: {error}", path.display()),
    };
    let len = env.fs.open(path).and_then(|file| file.len()).map_err(failed)?;
    if len > FILE_LEN_MAX {
        return Err(format!("{}: {len} bytes is too large for an hbase-env.sh", path.display()));
    }
    let bytes = env.fs.read(path).map_err(failed)?;
    let file = EnvFile::read(&String::from_utf8_lossy(&bytes));
    Ok((Some(file.flags()), file.not_understood))
}

fn machine(args: &AdviseArgs, flags: &[Flag]) -> Result<Machine, String> {
    let last = |name: &str| flags.iter().rev().find(|flag| flag.name == name);
    let size = |name: &str| last(name).and_then(|flag| parse_size(&flag.value).ok());
    let heap = args.heap.or(size("-Xmx")).or(size("MaxHeapSize"));
    let Some(heap) = heap.filter(|heap| *heap >= 1 << 20) else {
        return Err(
            "the heap size is missing: add --heap, such as --heap 31g, or flags with -Xmx".to_string()
        );
    };
    let zgc = last("UseZGC").is_some_and(|flag| flag.value == "+");
    let collector = args.gc.unwrap_or(if zgc { Collector::Zgc } else { Collector::G1 });
    if collector == Collector::Zgc && args.jdk < 11 {
        return Err(format!("JDK {} has no ZGC; ZGC requires JDK 11 or later", args.jdk));
    }
    let mut machine = Machine::new(args.jdk, heap, args.cores, collector);
    machine.offheap = args.offheap.or(size("MaxDirectMemorySize"));
    machine.bucket_cache = args.bucket_cache.unwrap_or(0);
    machine.offheap_memstore = args.offheap_memstore.unwrap_or(0);
    (machine.memstore_share, machine.cache_share) = (args.memstore_share, args.cache_share);
    Ok(machine)
}
