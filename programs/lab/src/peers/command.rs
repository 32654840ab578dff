//! `halcyon lab peers`: what there is to compare with; `halcyon lab start`: one server, until Ctrl-C.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use halcyon_env::Env;

use super::jdk::{Jdk, Places, find};
use super::maven::Jars;
use super::{
    AccumuloSpec, Collector, Durability, HalcyonSpec, HbaseSpec, Lab, Maps, Spec, accumulo, available, hbase,
    start,
};
use crate::advise::parse_size;

/// JDKs of this machine, and products that are in the cache.
#[derive(Debug, clap::Args)]
pub struct PeersArgs {
    /// Fetch what is missing, through Maven.
    #[arg(long)]
    fetch: bool,
    /// Where jars are kept [default: ~/.cache/halcyon/lab].
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// Starts a server and keeps it until Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct StartArgs {
    #[arg(value_enum)]
    product: ProductName,
    /// Feature release.
    #[arg(long, default_value_t = 17)]
    jdk: u32,
    #[arg(long, value_enum, default_value = "g1")]
    gc: Collector,
    /// Of the JVM; what Halcyon may take for cells and blocks.
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = parse_size)]
    heap: u64,
    /// Of Accumulo.
    #[arg(long, value_enum, default_value = "native")]
    maps: Maps,
    /// `tserver.memory.maps.max` of Accumulo.
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = parse_size)]
    maps_max: u64,
    /// What an acknowledged write has survived.
    #[arg(long, value_enum, default_value = "written")]
    durability: Durability,
    /// A flag of the JVM, such as --jvm=-XX:MaxGCPauseMillis=50; as often as wanted.
    #[arg(long = "jvm", value_name = "FLAG", allow_hyphen_values = true)]
    jvm_flags: Vec<String>,
    /// A property of the server; as often as wanted.
    #[arg(short = 'D', value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, String)>,
    /// Directory of data and logs; emptied first.
    #[arg(long, value_name = "DIR", default_value = "./halcyon-lab-data")]
    data: PathBuf,
    /// Go on with the data of the last start.
    #[arg(long)]
    keep_data: bool,
    /// Where jars are kept [default: ~/.cache/halcyon/lab].
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ProductName {
    Halcyon,
    Hbase,
    Accumulo,
}

fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a property is NAME=VALUE")?;
    Ok((name.to_string(), value.to_string()))
}

impl StartArgs {
    fn spec(&self) -> Spec {
        let (jvm_flags, properties) = (self.jvm_flags.clone(), self.properties.clone());
        let (durability, heap_bytes, jdk) = (self.durability, self.heap, self.jdk);
        match self.product {
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
        }
    }
}

/// What there is, for a reader. With `fetch` the error says what could not be fetched.
pub fn peers(env: &Env, args: &PeersArgs) -> Result<String, String> {
    let lab = Lab::new(env, args.cache.clone())?;
    let mut out = String::new();
    let jdks = find(env, &Places::of_environment());
    for jdk in &jdks {
        out.push_str(&jdk_line(jdk));
    }
    if jdks.is_empty() {
        out.push_str("no JDK: JAVA_HOME, PATH, /usr/lib/jvm and ~/.sdkman were looked at\n");
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
    let (lab, spec) = (Lab::new(env, args.cache.clone())?, args.spec());
    available(&lab, &spec)?;
    let running = start(&lab, &spec, &args.data, args.keep_data)?;
    let mut text = format!("{}\n{}\n", spec.label(), running.command_line().join(" "));
    running.settings().iter().for_each(|setting| text += &format!("setting {setting}\n"));
    text += &format!("pid {}\naddress {}\n", running.pid(), running.address_args().join(" "));
    text += &format!("load {}\n", running.ingest_command().join(" "));
    text += &format!("ready after {} ms; Ctrl-C ends it\n", running.ready_ms());
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush()); // nobody has to listen
    Err(format!("{} ended {}", spec.label(), running.wait()))
}
