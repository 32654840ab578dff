//! Accumulo 2.1.4's mini cluster as it is from Maven Central: ZooKeeper, manager, collector of files, one tablet server.
//!
//! Its processes are started by `files/MiniCluster.java`, which a JDK runs from its source. All of them write collectors' logs;
//! the tablet server's counts. Files lie on the raw local file system, as Hadoop's other one keeps what was written in
//! the process until a block is full. Durability is `table.durability`: `flush` hands the log to the kernel, `sync` waits for
//! the disk.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use halcyon_env::Env;

use super::hbase::takes_flags;
use super::maven::Jars;
use super::server_process::{Order, ServerProcess};
use super::spec::{AccumuloSpec, Durability, Maps};
use super::started_server::{PauseSource, StartedServer};
use super::{DataDir, LOOK_PERIOD, Lab, free_ports, jvm, site};
use crate::advise::print_size;

pub(super) const JARS: Jars =
    Jars { label: "Accumulo 2.1.4", name: "accumulo-2.1.4", pom: include_str!("files/accumulo-pom.xml") };

const MINI_CLUSTER: &str = include_str!("files/MiniCluster.java");
const INGEST: &str = include_str!("files/Ingest.java");
const START_TIME_MAX: Duration = Duration::from_secs(240);
const STOP_TIME_MAX: Duration = Duration::from_secs(60);
const BUILD_TIME_MAX: Duration = Duration::from_secs(300);
/// The lab's own programs are written for this one.
const JDK_MIN: u32 = 17;
/// Hadoop 3.3, which comes with Accumulo, calls what later releases took away.
const JDK_MAX: u32 = 23;
/// Of the process that starts the others, and of the load generator.
const STARTER_FLAGS: &[&str] = &["-Xmx128m", "-XX:+UseSerialGC"];
const CLIENT_FLAGS: &[&str] = &["-Xmx512m", "-XX:+UseParallelGC"];
const LIBRARY: &str = "libaccumulo.so";

const LOGGING: &str = "\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p [%t] %c{2}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
";

pub(super) fn available(lab: &Lab, spec: &AccumuloSpec) -> Result<(), String> {
    let jdk = lab.jdk(spec.jdk, true)?;
    if !(JDK_MIN..=JDK_MAX).contains(&jdk.major) {
        return Err(format!("Accumulo 2.1.4 is started on JDK {JDK_MIN} to {JDK_MAX}, not {}", jdk.major));
    }
    takes_flags(
        &jdk,
        &[vec![format!("-Xmx{}", print_size(spec.heap_bytes))], spec.jvm_flags.clone()].concat(),
    )?;
    JARS.fetch(lab)?;
    match spec.maps {
        Maps::Native => native_map(lab, &jdk.home).map(|_| ()),
        Maps::Java => Ok(()),
    }
}

/// The directory of the native map's library; built once. The error is a sentence.
fn native_map(lab: &Lab, jdk: &Path) -> Result<PathBuf, String> {
    let directory = JARS.directory(lab).join("native");
    let failed = |error: std::io::Error| format!("the native map: {error}");
    if lab.env.fs.exists(&directory.join(LIBRARY)).map_err(failed)? {
        return Ok(directory);
    }
    let source = directory.join("source");
    lab.env.fs.create_dir_all(&source).map_err(failed)?;
    let lib = JARS.lib(lab);
    let archives = lab.env.fs.list(&lib).map_err(failed)?;
    let is_source = |name: &str| name.starts_with("accumulo-native-") && name.ends_with(".tar.gz");
    let archive = archives.iter().find(|entry| is_source(&entry.name));
    let archive = archive.ok_or_else(|| format!("the native map's source is not in {}", lib.display()))?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let unpack =
        ["tar".to_string(), "xzf".into(), text(&lib.join(&archive.name)), "--strip-components=1".into()];
    build_step(lab, &directory, &source, jdk, &unpack)?;
    let compile = ["make".to_string(), LIBRARY.to_string()];
    build_step(lab, &directory, &source, jdk, &compile).map_err(|why| {
        format!("Accumulo's native map cannot be built (make and g++ are needed); Java maps can be measured: {why}")
    })?;
    lab.env.fs.rename(&source.join(LIBRARY), &directory.join(LIBRARY)).map_err(failed)?;
    lab.env.fs.sync_dir(&directory).map_err(failed)?;
    Ok(directory)
}

fn build_step(
    lab: &Lab,
    directory: &Path,
    source: &Path,
    jdk: &Path,
    command: &[String],
) -> Result<(), String> {
    let order = Order {
        command: command.to_vec(),
        variables: vec![("JAVA_HOME".to_string(), jdk.to_string_lossy().into_owned())],
        directory: source.to_path_buf(),
        out: directory.join("build.log"),
        grace: Duration::from_secs(1),
    };
    let step = ServerProcess::start(&lab.env, &lab.exe, order)?;
    if step.wait(BUILD_TIME_MAX)? { Ok(()) } else { Err(step.last_lines()) }
}

pub(super) fn start(
    lab: &Lab,
    spec: &AccumuloSpec,
    data_dir: &DataDir,
    keep_data: bool,
) -> Result<StartedServer, String> {
    if keep_data {
        return Err(
            "Accumulo's mini cluster always begins with nothing: it cannot go on with its data".to_string()
        );
    }
    let jdk = lab.jdk(spec.jdk, true)?;
    let lib = JARS.fetch(lab)?;
    let native = match spec.maps {
        Maps::Native => Some(native_map(lab, &jdk.home)?),
        Maps::Java => None,
    };
    let [zookeeper_port] = free_ports()?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let conf = data_dir.conf();
    let raw = ("fs.file.impl".to_string(), "org.apache.hadoop.fs.RawLocalFileSystem".to_string());
    site::write(&lab.env, &conf.join("core-site.xml"), &[raw])?;
    let mut properties = chosen_properties(spec);
    properties.extend(spec.properties.iter().cloned());
    let mut of_site = vec![("rpc.bind.addr".to_string(), "127.0.0.1".to_string())];
    of_site.extend(properties.iter().cloned());
    let (site_file, client_file) = (conf.join("site.properties"), conf.join("client.properties"));
    for (file, content) in [
        (&site_file, properties_text(&of_site)),
        (&conf.join("log4j2.properties"), LOGGING.to_string()),
        (&conf.join("MiniCluster.java"), MINI_CLUSTER.to_string()),
        (&conf.join("Ingest.java"), INGEST.to_string()),
    ] {
        lab.env.fs.replace(file, content.as_bytes()).map_err(|error| error.to_string())?;
    }

    let class_path = format!("{}:{}/*", text(&conf), text(&lib));
    let java = |flags: &[&str], source: &str| {
        let mut command = vec![text(&jdk.java())];
        command.extend(flags.iter().map(|flag| flag.to_string()));
        command.extend(jvm::access_flags(jdk.major));
        command.extend(["-cp".to_string(), class_path.clone(), text(&conf.join(source))]);
        command
    };
    let mut command = java(STARTER_FLAGS, "MiniCluster.java");
    command.extend([text(&data_dir.files()), zookeeper_port.to_string()]);
    command.push(native.map_or_else(|| "none".to_string(), |native| text(&native)));
    command.extend([(spec.heap_bytes >> 20).to_string(), text(&site_file), text(&client_file)]);
    // of every JVM that is started: the only way into those of the mini cluster
    let mut flags = jvm::log_flags(jdk.major, &data_dir.logs().join("gc-%p.log"));
    flags.extend(spec.jvm_flags.iter().cloned());
    let order = Order {
        command,
        variables: vec![("JAVA_TOOL_OPTIONS".to_string(), flags.join(" "))],
        directory: data_dir.logs(),
        out: data_dir.out(),
        grace: STOP_TIME_MAX,
    };
    lab.env.fs.create_dir_all(&data_dir.files()).map_err(|error| error.to_string())?;
    let start_ns = lab.env.clock.monotonic_ns();
    let process = ServerProcess::start(&lab.env, &lab.exe, order)?;
    let is_ready = || {
        let said = lab.env.fs.read(&data_dir.out()).unwrap_or_default();
        String::from_utf8_lossy(&said).lines().any(|line| line == "ready").then_some(())
    };
    let ready = lab.wait_until(&process, START_TIME_MAX, LOOK_PERIOD, is_ready);
    ready.map_err(|why| format!("Accumulo did not start: {why}"))?;
    let ready_ms = (lab.env.clock.monotonic_ns() - start_ns) / 1_000_000;
    let server_pid = process.group().members().into_iter().find(|pid| is_tablet_server(&lab.env, *pid));
    let server_pid = server_pid.ok_or("Accumulo started without a tablet server")?;
    let mut ingest = java(CLIENT_FLAGS, "Ingest.java");
    ingest.push(text(&client_file));
    let mut settings = vec![format!("-Xmx{}", print_size(spec.heap_bytes))];
    settings.extend(spec.jvm_flags.iter().cloned());
    settings.extend(properties.iter().map(|(name, value)| format!("{name}={value}")));
    Ok(StartedServer {
        env: lab.env.clone(),
        process,
        settings,
        data: data_dir.files(),
        ready_ms,
        server_pid,
        zookeeper: format!("127.0.0.1:{zookeeper_port}"),
        pauses: PauseSource::Log(data_dir.logs().join(format!("gc-{server_pid}.log"))),
        ingest,
    })
}

/// The mini cluster's own sizes and delays are those of tests: logs and delays here are Accumulo's defaults, and the
/// caches leave room in a heap of 1 GB.
fn chosen_properties(spec: &AccumuloSpec) -> Vec<(String, String)> {
    let durability = match spec.durability {
        Durability::Written => "flush",
        Durability::Fsync => "sync",
    };
    let property = |name: &str, value: String| (name.to_string(), value);
    vec![
        property("table.durability", durability.to_string()),
        property("tserver.memory.maps.native.enabled", (spec.maps == Maps::Native).to_string()),
        property("tserver.memory.maps.max", spec.maps_max_bytes.to_string()),
        property("tserver.wal.max.size", "1G".to_string()),
        property("tserver.compaction.major.delay", "30s".to_string()),
        property("gc.cycle.delay", "5m".to_string()),
        property("tserver.cache.data.size", "64M".to_string()),
        property("tserver.cache.index.size", "32M".to_string()),
    ]
}

/// As `java.util.Properties` reads it.
fn properties_text(properties: &[(String, String)]) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('=', "\\=").replace(':', "\\:");
    let mut out = String::new();
    for (name, value) in properties {
        let _ = writeln!(out, "{}={}", escaped(name), escaped(value));
    }
    out
}

fn is_tablet_server(env: &Env, pid: u32) -> bool {
    let line = env.fs.read(format!("/proc/{pid}/cmdline").as_ref()).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).into_owned();
    line.split('\0').any(|word| word.ends_with("TabletServer") || word == "tserver")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_escaped() {
        let property = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(
            properties_text(&[property("a.b", "1"), property("c", "x=y\\z")]),
            "a.b=1\nc=x\\=y\\\\z\n"
        );
    }

    #[test]
    fn durability_and_maps_are_said() {
        let spec = AccumuloSpec {
            jdk: 17,
            heap_bytes: 1 << 30,
            maps: Maps::Java,
            maps_max_bytes: 256 << 20,
            jvm_flags: Vec::new(),
            properties: Vec::new(),
            durability: Durability::Fsync,
        };
        let text = properties_text(&chosen_properties(&spec));
        assert!(text.contains("table.durability=sync\n"), "{text}");
        assert!(text.contains("native.enabled=false\ntserver.memory.maps.max=268435456\n"), "{text}");
    }
}
