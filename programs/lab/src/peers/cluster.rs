//! `halcyon lab start cluster`: ZooKeeper, HDFS, HBase's master, and region servers of HBase and of Halcyon, on this machine.
//!
//! The cluster is that of `testing/cluster/cluster.sh`, which the program contains. A keeper process of the script ends all
//! servers when this process has ended, in whatever way.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Lab;

/// The scripts, and what they read.
const SCRIPTS: [(&str, &str); 9] = [
    ("cluster/cluster.sh", include_str!("../../../../testing/cluster/cluster.sh")),
    ("cluster/processes.sh", include_str!("../../../../testing/cluster/processes.sh")),
    ("cluster/zookeeper.sh", include_str!("../../../../testing/cluster/zookeeper.sh")),
    ("cluster/hdfs.sh", include_str!("../../../../testing/cluster/hdfs.sh")),
    ("cluster/hbase_servers.sh", include_str!("../../../../testing/cluster/hbase_servers.sh")),
    ("compat/server.sh", include_str!("../../../../testing/compat/server.sh")),
    ("compat/java.sh", include_str!("../../../../testing/compat/java.sh")),
    ("compat/hbase.sh", include_str!("../../../../testing/compat/hbase.sh")),
    ("compat/files/pom.xml", include_str!("../../../../testing/compat/files/pom.xml")),
];
/// Commands that the scripts call and a machine may lack.
const TOOLS: [&str; 5] = ["bash", "mvn", "curl", "setpriv", "setsid"];
const LOOK_PERIOD: Duration = Duration::from_millis(500);

/// A cluster to be started.
#[derive(Clone, Debug)]
pub(super) struct ClusterSpec {
    /// Feature release of the JDK.
    pub(super) jdk: u32,
    pub(super) data_nodes: u32,
    /// Region servers of HBase.
    pub(super) hbase_servers: u32,
    /// Region servers of Halcyon.
    pub(super) halcyon_servers: u32,
    /// Of each JVM.
    pub(super) jvm_flags: Vec<String>,
    /// Of HDFS and HBase, for servers and clients.
    pub(super) properties: Vec<(String, String)>,
    /// Time after which the cluster ends by itself.
    pub(super) seconds: u64,
    /// Configuration, data and logs; emptied at start.
    pub(super) data: PathBuf,
}

/// Runs until this process ends, the time is over, or the cluster is ended from outside.
pub(super) fn run(lab: &Lab, spec: &ClusterSpec) -> Result<String, String> {
    check_tools()?;
    let jdk = lab.jdk(spec.jdk, false)?;
    let script = unpack(lab)?;
    let data =
        std::path::absolute(&spec.data).map_err(|error| format!("{}: {error}", spec.data.display()))?;
    let command = |verb: &str| {
        let mut command = Command::new("bash");
        command.arg(&script).arg(verb).stdin(Stdio::null());
        command.env("CLUSTER_DIR", &data).env("HALCYON", &lab.exe).env("JAVA", jdk.java());
        command.env("CLUSTER_JAVA_OPTIONS", spec.jvm_flags.join(" "));
        command
    };
    let mut up = command("up");
    up.args(options(spec, std::process::id()));
    let started = up.output().map_err(|error| format!("bash cannot be run: {error}"))?;
    if !started.status.success() {
        let said = String::from_utf8_lossy(&started.stderr);
        return Err(format!("the cluster did not start: {}", said.trim()));
    }
    let settings = String::from_utf8_lossy(&started.stdout).into_owned();
    let mut out = std::io::stdout();
    let text = how_to_use(lab, spec, &settings, &script, &data);
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush()); // nobody has to listen
    loop {
        lab.env.clock.sleep(LOOK_PERIOD);
        let alive = command("settings").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !alive.is_ok_and(|status| status.success()) {
            return Err(format!("the cluster has ended; {} says why", data.join("keeper.log").display()));
        }
    }
}

fn check_tools() -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |tool: &&str| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file());
    let missing: Vec<&str> = TOOLS.iter().filter(|tool| !is_there(tool)).copied().collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("a cluster needs {}, which PATH does not have", missing.join(" and "))),
    }
}

/// Writes the scripts into the cache, and returns the path of `cluster.sh`.
fn unpack(lab: &Lab) -> Result<PathBuf, String> {
    let directory = lab.cache.join("cluster-scripts");
    for (name, content) in SCRIPTS {
        let path = directory.join(name);
        let parent = path.parent().expect("each is in a directory");
        let written =
            lab.env.fs.create_dir_all(parent).and_then(|()| lab.env.fs.replace(&path, content.as_bytes()));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(directory.join(SCRIPTS[0].0))
}

fn options(spec: &ClusterSpec, owner: u32) -> Vec<String> {
    let mut options: Vec<String> = ["--parts", "zookeeper hdfs hbaseservers"].map(str::to_string).to_vec();
    for (option, number) in [
        ("--datanodes", u64::from(spec.data_nodes)),
        ("--hregionservers", u64::from(spec.hbase_servers)),
        ("--halcyons", u64::from(spec.halcyon_servers)),
        ("--seconds", spec.seconds),
        ("--owner", u64::from(owner)),
    ] {
        options.extend([option.to_string(), number.to_string()]);
    }
    for (name, value) in &spec.properties {
        options.extend(["--property".to_string(), format!("{name}={value}")]);
    }
    options
}

fn how_to_use(lab: &Lab, spec: &ClusterSpec, settings: &str, script: &Path, data: &Path) -> String {
    let value = |name: &str| {
        let lines = settings.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(key, _)| *key == name).map(|(_, value)| value).next_back().unwrap_or_default()
    };
    let mut text = format!(
        "HBase 2.6.4 on HDFS with {} DataNodes; region servers: {} of HBase, {} of Halcyon\n",
        spec.data_nodes, spec.hbase_servers, spec.halcyon_servers
    );
    let exe = lab.exe.display();
    let _ = writeln!(text, "zookeeper {}", value("zookeeper"));
    let _ = writeln!(text, "hdfs {}", value("hdfs"));
    let _ = writeln!(text, "configuration {}", value("conf"));
    let _ = writeln!(text, "shell {exe} shell --zookeeper {}", value("zookeeper"));
    let _ = writeln!(text, "logs {}/*/log", data.display());
    let _ = writeln!(
        text,
        "faults CLUSTER_DIR={} bash {} kill|freeze|thaw|start PROCESS; status lists the processes",
        data.display(),
        script.display()
    );
    text += "press Ctrl-C to stop\n";
    text
}

#[cfg(test)]
mod tests {
    use halcyon_env::Env;
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    fn spec() -> ClusterSpec {
        ClusterSpec {
            jdk: 17,
            data_nodes: 3,
            hbase_servers: 1,
            halcyon_servers: 2,
            jvm_flags: Vec::new(),
            properties: vec![("a.b".to_string(), "x y".to_string())],
            seconds: 60,
            data: PathBuf::from("/data"),
        }
    }

    #[test]
    fn options_of_the_script() {
        let expected = "--parts|zookeeper hdfs hbaseservers|--datanodes|3|--hregionservers|1|--halcyons|2|--seconds|60|\
                        --owner|77|--property|a.b=x y";
        assert_eq!(options(&spec(), 77).join("|"), expected);
    }

    #[test]
    fn every_script_that_another_one_reads_is_there() {
        let env = SimFileSystem::new().env();
        let lab =
            Lab { env: env.clone(), cache: PathBuf::from("/cache"), exe: PathBuf::from("/bin/halcyon") };
        let script = unpack(&lab).unwrap();
        let is_there = |env: &Env, path: &Path| env.fs.exists(path).unwrap();
        assert!(is_there(&env, &script));
        let mut read = 0;
        for (name, content) in SCRIPTS {
            let directory = Path::new("/cache/cluster-scripts").join(name);
            let directory = directory.parent().unwrap();
            for line in content.lines().filter_map(|line| line.strip_prefix(". \"$HERE/")) {
                let other = line.trim_end_matches('"');
                let path = match other.strip_prefix("../") {
                    Some(beside) => directory.parent().unwrap().join(beside),
                    None => directory.join(other),
                };
                assert!(is_there(&env, &path), "{name} reads {other}");
                read += 1;
            }
        }
        assert!(read >= 7, "{read}");
        unpack(&lab).unwrap(); // again, over what is there
    }
}
