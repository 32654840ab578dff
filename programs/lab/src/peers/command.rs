//! `halcyon lab peers`: what there is to compare with; `halcyon lab start`: one server or a cluster, until Ctrl-C.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use halcyon_env::Env;

use super::cluster::{self, ClusterSpec};
use super::jdk::{Jdk, SearchPaths, find};
use super::maven::Jars;
use super::{
    AccumuloSpec, Collector, Durability, HalcyonSpec, HbaseSpec, Lab, Maps, Spec, accumulo, available, hbase,
    start,
};
use crate::advise::parse_size;

/// List the JDKs of this machine and the products in the cache.
#[derive(Debug, clap::Args)]
pub struct PeersArgs {
    /// Fetch missing jars through Maven.
    #[arg(long)]
    fetch: bool,
    /// Directory of fetched jars [default: ~/.cache/halcyon/lab].
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// Start a server or a cluster and run it until Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct StartArgs {
    #[arg(value_enum)]
    product: ProductName,
    /// Feature release of the JDK, such as 17.
    #[arg(long, default_value_t = 17)]
    jdk: u32,
    #[arg(long, value_enum, default_value = "g1")]
    gc: Collector,
    /// Heap of the JVM, or memory budget of Halcyon.
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = parse_size)]
    heap: u64,
    /// Accumulo's in-memory maps.
    #[arg(long, value_enum, default_value = "native")]
    maps: Maps,
    /// Accumulo's tserver.memory.maps.max.
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = parse_size)]
    maps_max: u64,
    /// Durability of acknowledged writes.
    #[arg(long, value_enum, default_value = "written")]
    durability: Durability,
    /// Region servers of HBase; only of a cluster.
    #[arg(long, value_name = "N", default_value_t = 1)]
    hbase_servers: u32,
    /// Region servers of Halcyon; only of a cluster.
    #[arg(long, value_name = "N", default_value_t = 1)]
    halcyon_servers: u32,
    /// DataNodes; only of a cluster.
    #[arg(long, value_name = "N", default_value_t = 3)]
    data_nodes: u32,
    /// Time after which the cluster ends by itself; only of a cluster.
    #[arg(long, value_name = "SECONDS", default_value_t = 4 * 3600)]
    seconds: u64,
    /// A JVM flag, such as --jvm=-XX:MaxGCPauseMillis=50; repeatable.
    #[arg(long = "jvm", value_name = "FLAG", allow_hyphen_values = true)]
    jvm_flags: Vec<String>,
    /// A property of the server; repeatable.
    #[arg(short = 'D', value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, String)>,
    /// Directory of data and logs; cleared at start.
    #[arg(long, value_name = "DIR", default_value = "./halcyon-lab-data")]
    data: PathBuf,
    /// Keep the data of the last start.
    #[arg(long)]
    keep_data: bool,
    /// Directory of fetched jars [default: ~/.cache/halcyon/lab].
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ProductName {
    Halcyon,
    Hbase,
    Accumulo,
    /// ZooKeeper, HDFS, HBase's master, and region servers of HBase and of Halcyon.
    Cluster,
}

fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a property is NAME=VALUE")?;
    Ok((name.to_string(), value.to_string()))
}

impl StartArgs {
    /// `None` of a cluster, which is more than one server.
    fn spec(&self) -> Option<Spec> {
        let (jvm_flags, properties) = (self.jvm_flags.clone(), self.properties.clone());
        let (durability, heap_bytes, jdk) = (self.durability, self.heap, self.jdk);
        Some(match self.product {
            ProductName::Cluster => return None,
            ProductName::Halcyon => {
                Spec::Halcyon(HalcyonSpec { memory_bytes: self.heap, durability, properties })
            }
            ProductName::Hbase => {
                let collector = self.gc;
                Spec::Hbase(HbaseSpec { jdk, heap_bytes, collector, jvm_flags, properties, durability })
            }
            ProductName::Accumulo => {
                let (maps, maps_max_bytes) = (self.maps, self.maps_max);
                Spec::Accumulo(AccumuloSpec {
                    jdk,
                    heap_bytes,
                    maps,
                    maps_max_bytes,
                    jvm_flags,
                    properties,
                    durability,
                })
            }
        })
    }

    fn cluster(&self) -> ClusterSpec {
        ClusterSpec {
            jdk: self.jdk,
            data_nodes: self.data_nodes,
            hbase_servers: self.hbase_servers,
            halcyon_servers: self.halcyon_servers,
            jvm_flags: self.jvm_flags.clone(),
            properties: self.properties.clone(),
            seconds: self.seconds,
            data: self.data.clone(),
        }
    }
}

/// What there is, for a reader. With `fetch` the error says what could not be fetched.
pub fn peers(env: &Env, args: &PeersArgs) -> Result<String, String> {
    let lab = Lab::new(env, args.cache.clone())?;
    let mut out = String::new();
    let jdks = find(env, &SearchPaths::of_environment());
    for jdk in &jdks {
        out.push_str(&jdk_line(jdk));
    }
    if jdks.is_empty() {
        out.push_str("no JDK found in JAVA_HOME, PATH, /usr/lib/jvm or ~/.sdkman\n");
    }
    for jars in products() {
        if args.fetch {
            jars.fetch(&lab)?;
        }
        let place = jars.directory(&lab);
        let state = match jars.is_cached(&lab) {
            true => format!("in {}", place.display()),
            false => "not in the cache: halcyon lab peers --fetch".to_string(),
        };
        let _ = writeln!(out, "{}: {state}", jars.label);
    }
    Ok(out)
}

fn products() -> Vec<&'static Jars> {
    vec![&hbase::JARS, &accumulo::JARS]
}

fn jdk_line(jdk: &Jdk) -> String {
    let compiler = if jdk.compiler { "" } else { ", without a compiler" };
    let by = if jdk.implementor.is_empty() { String::new() } else { format!(" ({})", jdk.implementor) };
    format!("JDK {}{by}: {}{compiler}\n", jdk.version, jdk.home.display())
}

/// Runs until Ctrl-C ends this process, and with it the server; or until the server ends.
pub fn start_and_wait(env: &Env, args: &StartArgs) -> Result<String, String> {
    let lab = Lab::new(env, args.cache.clone())?;
    let Some(spec) = args.spec() else { return cluster::run(&lab, &args.cluster()) };
    available(&lab, &spec)?;
    let running = start(&lab, &spec, &args.data, args.keep_data)?;
    let mut text = format!("{}\n{}\n", spec.label(), running.command_line().join(" "));
    running.settings().iter().for_each(|setting| text += &format!("setting {setting}\n"));
    text += &format!("pid {}\naddress {}\n", running.pid(), running.address_args().join(" "));
    text += &format!("load {}\n", running.ingest_command().join(" "));
    text += &format!("ready after {} ms; press Ctrl-C to stop\n", running.ready_ms());
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush()); // nobody has to listen
    Err(format!("{} ended {}", spec.label(), running.wait()))
}
