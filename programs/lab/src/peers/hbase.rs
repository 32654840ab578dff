//! HBase 2.6.4 as it is from Maven Central: master, region server and ZooKeeper in one JVM, on loopback.
//!
//! Durability. The local file system below HBase declares neither `hflush` nor `hsync`, so HBase refuses to start on it
//! until `hbase.unsafe.stream.capability.enforce` is off. Then an acknowledged put was handed to the kernel by write(2), as
//! HBase's default `hflush` does with HDFS ([`Durability::Written`]). For [`Durability::Fsync`] the raw local file system
//! and `hbase.wal.hsync` make one fsync for each group commit of the log.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::jdk::Jdk;
use super::maven::Jars;
use super::server_process::{Order, ServerProcess};
use super::spec::{Collector, Durability, HbaseSpec};
use super::started_server::{PauseSource, StartedServer};
use super::{DataDir, Lab, free_ports, jvm, site};
use crate::advise::print_size;

pub(super) const JARS: Jars =
    Jars { label: "HBase 2.6.4", name: "hbase-2.6.4", pom: include_str!("files/hbase-pom.xml") };

const START_TIME_MAX: Duration = Duration::from_secs(180);
/// A stop flushes every memstore.
const STOP_TIME_MAX: Duration = Duration::from_secs(90);
const MAIN: &str = "org.apache.hadoop.hbase.master.HMaster";
/// With less heap than this G1's own region size is 4 MB or less, and a chunk of a memstore (2 MB) takes regions of its
/// own: the heap then runs out under writes.
const REGION_SIZE_HEAP: u64 = 16 << 30;
const REGION_SIZE: &str = "-XX:G1HeapRegionSize=16m";

const LOGGING: &str = "\
log4j.rootLogger=INFO,file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File=${hbase.log.dir}/hbase.log
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n
";

/// Flags of memory and collector, those that were asked for last.
pub(super) fn memory_flags(spec: &HbaseSpec) -> Result<Vec<String>, String> {
    let heap = print_size(spec.heap_bytes);
    let mut flags = vec![format!("-Xms{heap}"), format!("-Xmx{heap}")];
    flags.extend(jvm::collector_flags(spec.collector, spec.jdk)?);
    let sized = spec.jvm_flags.iter().any(|flag| flag.starts_with("-XX:G1HeapRegionSize"));
    if spec.collector == Collector::G1 && spec.heap_bytes < REGION_SIZE_HEAP && !sized {
        flags.push(REGION_SIZE.to_string());
    }
    flags.extend(spec.jvm_flags.iter().cloned());
    Ok(flags)
}

pub(super) fn available(lab: &Lab, spec: &HbaseSpec) -> Result<(), String> {
    let jdk = lab.jdk(spec.jdk, false)?;
    takes_flags(&jdk, &memory_flags(spec)?)?;
    if JARS.is_cached(lab) { Ok(()) } else { JARS.fetch(lab).map(|_| ()) }
}

/// Starts a JVM that only says its version: flags it does not know, or memory it cannot have, are told now.
pub(super) fn takes_flags(jdk: &Jdk, flags: &[String]) -> Result<(), String> {
    let mut java = Command::new(jdk.java());
    java.args(flags).args(jvm::access_flags(jdk.major)).arg("-version").stdin(Stdio::null());
    let done = java.output().map_err(|error| format!("{}: {error}", jdk.java().display()))?;
    if done.status.success() {
        return Ok(());
    }
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let why = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
    Err(format!(
        "JDK {} ({}) does not start with {}: {why}",
        jdk.version,
        jdk.home.display(),
        flags.join(" ")
    ))
}

pub(super) fn start(lab: &Lab, spec: &HbaseSpec, data_dir: &DataDir) -> Result<StartedServer, String> {
    let jdk = lab.jdk(spec.jdk, false)?;
    let flags = memory_flags(spec)?;
    let lib = JARS.fetch(lab)?;
    let [zookeeper_port, master_port, regionserver_port] = free_ports()?;

    let mut chosen = durability_properties(spec.durability);
    chosen.extend(spec.properties.iter().cloned());
    let mut properties = place_properties(data_dir, zookeeper_port, master_port, regionserver_port);
    properties.extend(chosen.iter().cloned());
    site::write(&lab.env, &data_dir.conf().join("hbase-site.xml"), &properties)?;
    let logging = data_dir.conf().join("log4j.properties");
    lab.env.fs.replace(&logging, LOGGING.as_bytes()).map_err(|error| error.to_string())?;

    let text = |path: &Path| path.to_string_lossy().into_owned();
    let gc_log = data_dir.logs().join("gc.log");
    let mut command = vec![text(&jdk.java())];
    command.extend(flags.iter().cloned());
    command.push("-XX:+ExitOnOutOfMemoryError".to_string());
    command.extend(jvm::log_flags(jdk.major, &gc_log));
    command.extend(jvm::access_flags(jdk.major));
    command.push(format!("-Dhbase.log.dir={}", text(&data_dir.logs())));
    command.push(format!("-Dhbase.home.dir={}", text(&data_dir.files())));
    command.push("-Djava.net.preferIPv4Stack=true".to_string());
    command.extend(["-cp".to_string(), format!("{}:{}/*", text(&data_dir.conf()), text(&lib))]);
    command.extend([MAIN.to_string(), "start".to_string()]);

    let order = Order {
        command,
        variables: Vec::new(),
        directory: data_dir.logs(),
        out: data_dir.out(),
        grace: STOP_TIME_MAX,
    };
    let start_ns = lab.env.clock.monotonic_ns();
    let process = ServerProcess::start(&lab.env, &lab.exe, order)?;
    let zookeeper = format!("127.0.0.1:{zookeeper_port}");
    let ready = lab.first_put(&process, &zookeeper, START_TIME_MAX);
    ready.map_err(|why| format!("HBase: {why}; {}", lab.last_lines(&data_dir.logs().join("hbase.log"))))?;
    let mut settings = flags;
    settings.extend(chosen.iter().map(|(name, value)| format!("{name}={value}")));
    Ok(StartedServer {
        env: lab.env.clone(),
        server_pid: process.pid,
        process,
        settings,
        data: data_dir.files(),
        ready_ms: (lab.env.clock.monotonic_ns() - start_ns) / 1_000_000,
        ingest: lab.bench_ingest(&zookeeper),
        zookeeper,
        pauses: PauseSource::Log(gc_log),
    })
}

fn property(name: &str, value: impl ToString) -> (String, String) {
    (name.to_string(), value.to_string())
}

/// Where things lie, and codecs that need no native libraries.
fn place_properties(
    data_dir: &DataDir,
    zookeeper: u16,
    master: u16,
    regionserver: u16,
) -> Vec<(String, String)> {
    let path = |name: &str| data_dir.files().join(name).display().to_string();
    let codec = |name: &str| format!("org.apache.hadoop.hbase.io.compress.{name}");
    vec![
        property("hbase.cluster.distributed", false),
        property("hbase.rootdir", format!("file://{}", path("root"))),
        property("hbase.tmp.dir", path("tmp")),
        property("hbase.zookeeper.property.dataDir", path("zookeeper")),
        property("hbase.zookeeper.property.clientPort", zookeeper),
        property("hbase.zookeeper.quorum", "127.0.0.1"),
        property("hbase.master.port", master),
        property("hbase.regionserver.port", regionserver),
        property("hbase.master.info.port", -1),
        property("hbase.regionserver.info.port", -1),
        property("hbase.master.ipc.address", "127.0.0.1"),
        property("hbase.regionserver.ipc.address", "127.0.0.1"),
        property("hbase.master.hostname", "localhost"),
        property("hbase.unsafe.regionserver.hostname", "localhost"),
        property("hbase.io.compress.snappy.codec", codec("xerial.SnappyCodec")),
        property("hbase.io.compress.zstd.codec", codec("zstd.ZstdCodec")),
    ]
}

fn durability_properties(durability: Durability) -> Vec<(String, String)> {
    match durability {
        Durability::Written => vec![property("hbase.unsafe.stream.capability.enforce", false)],
        Durability::Fsync => vec![
            property("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem"),
            property("hbase.wal.hsync", true),
            property("hbase.hfile.hsync", true),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_flags_come_last_and_small_heaps_get_large_regions() {
        let spec = |heap_bytes, flags: &[&str]| HbaseSpec {
            jdk: 17,
            heap_bytes,
            collector: Collector::G1,
            jvm_flags: flags.iter().map(|flag| flag.to_string()).collect(),
            properties: Vec::new(),
            durability: Durability::Written,
        };
        let flags = |heap_bytes, flags: &[&str]| memory_flags(&spec(heap_bytes, flags)).unwrap().join(" ");
        let (small, large) = (1 << 30, 32 << 30);
        assert_eq!(flags(small, &["-Xmn64m"]), "-Xms1g -Xmx1g -XX:+UseG1GC -XX:G1HeapRegionSize=16m -Xmn64m");
        assert_eq!(
            flags(small, &["-XX:G1HeapRegionSize=8m"]),
            "-Xms1g -Xmx1g -XX:+UseG1GC -XX:G1HeapRegionSize=8m"
        );
        assert_eq!(flags(large, &[]), "-Xms32g -Xmx32g -XX:+UseG1GC");
    }
}
