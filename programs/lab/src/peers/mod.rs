//! Servers to compare: found, fetched, started on loopback, watched, and never left behind.
//!
//! ```text
//! Spec ── available() ── start() ──> StartedServer ── usage, pauses ── stop()
//!            │              │
//!   JDKs (jdk.rs)     server_process.rs ── supervisor.rs ── the server's processes, one group
//!   jars (maven.rs)
//! ```
//!
//! - `spec.rs`: what is to be started; `halcyon.rs`, `hbase.rs`, `accumulo.rs`: how
//! - `cluster.rs`: a cluster of HBase with servers of both kinds, by `testing/cluster`
//! - `supervisor.rs`, `server_process.rs`: a process between the lab and a server, so that none outlives the lab
//! - `usage.rs`, `watcher.rs`: processor time, memory and disk of the server's processes; `pauses.rs`: when it stood still
//!
//! A server counts as started when it has acknowledged a put. Every wait has an end, and every error is a sentence that
//! shows the last lines of the server's log.

mod accumulo;
mod cluster;
mod command;
mod halcyon;
mod hbase;
mod jdk;
mod jvm;
mod maven;
mod pauses;
mod server_process;
mod site;
mod spec;
mod started_server;
mod supervisor;
mod usage;
mod watcher;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use halcyon_env::Env;

pub use command::{PeersArgs, StartArgs, peers, start_and_wait};
pub use jdk::Jdk;
pub use spec::{AccumuloSpec, Collector, Durability, HalcyonSpec, HbaseSpec, Maps, Spec};
pub use started_server::StartedServer;
pub use supervisor::{KeepArgs, keep};
pub use usage::{Group, MachineUsage, Usage, of_machine, of_process};
pub use watcher::{Sample, Watcher, others_cpu_s};

use server_process::ServerProcess;

/// A file in every directory of data that the lab has made: others are never emptied.
const MARK: &str = ".halcyon-lab";
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// From one attempt to write the first row to the next.
const PUT_PERIOD: Duration = Duration::from_millis(250);
/// What one attempt may take, in seconds.
const PUT_TIME_MAX: &str = "15";

/// What servers are started with. Cheap to clone.
#[derive(Clone)]
pub struct Lab {
    pub env: Env,
    /// Jars and what was built, kept from run to run.
    pub cache: PathBuf,
    /// This program.
    pub exe: PathBuf,
}

impl Lab {
    /// `cache` if it is not to be `~/.cache/halcyon/lab`.
    pub fn new(env: &Env, cache: Option<PathBuf>) -> Result<Lab, String> {
        let cache = match cache {
            Some(cache) => cache,
            None => {
                let home = std::env::var_os("HOME")
                    .ok_or("HOME is not set: say where to keep files with --cache")?;
                Path::new(&home).join(".cache/halcyon/lab")
            }
        };
        let cache = std::path::absolute(&cache).map_err(|error| format!("{}: {error}", cache.display()))?;
        let exe = std::env::current_exe().map_err(|error| format!("this program's file: {error}"))?;
        Ok(Lab { env: env.clone(), cache, exe })
    }

    /// All that this machine has.
    pub fn jdks(&self) -> Vec<Jdk> {
        jdk::find(&self.env, &jdk::SearchPaths::of_environment())
    }

    /// The JDK of a feature release. The error names what there is instead.
    fn jdk(&self, major: u32, compiler: bool) -> Result<Jdk, String> {
        jdk::choose(&self.jdks(), major, compiler).cloned()
    }

    fn last_lines(&self, path: &Path) -> String {
        server_process::last_lines(&self.env, path)
    }

    /// Looks every few milliseconds until there is an answer, the process has ended, or time is over.
    fn wait_until<T>(
        &self,
        process: &ServerProcess,
        within: Duration,
        period: Duration,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, String> {
        let start_ns = self.env.clock.monotonic_ns();
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if let Some(how) = process.ended() {
                return Err(format!("it ended {how}; {}", process.last_lines()));
            }
            if self.env.clock.monotonic_ns() - start_ns > within.as_nanos() as u64 {
                return Err(format!(
                    "it was not ready after {} s; {}",
                    within.as_secs(),
                    process.last_lines()
                ));
            }
            self.env.clock.sleep(period);
        }
    }

    /// Writes a row, again and again until the server acknowledges it.
    fn first_put(&self, process: &ServerProcess, zookeeper: &str, within: Duration) -> Result<(), String> {
        let mut said = String::new();
        let put = || {
            let mut put = Command::new(&self.exe);
            put.args([
                "bench",
                "pe",
                "--zookeeper",
                zookeeper,
                "--table=LabReady",
                "--rows=1",
                "--valueSize=10",
            ]);
            put.args(["--operation-timeout", PUT_TIME_MAX, "sequentialWrite", "1"]);
            let done = put.stdin(Stdio::null()).output();
            match done {
                Ok(done) if done.status.success() => Some(()),
                Ok(done) => {
                    said = String::from_utf8_lossy(&done.stderr).trim().to_string();
                    None
                }
                Err(error) => {
                    said = error.to_string();
                    None
                }
            }
        };
        let ready = self.wait_until(process, within, PUT_PERIOD, put);
        ready.map_err(|why| format!("no put was acknowledged ({said}): {why}"))
    }

    fn bench_ingest(&self, zookeeper: &str) -> Vec<String> {
        let exe = self.exe.to_string_lossy().into_owned();
        [exe.as_str(), "bench", "ingest", "write", "--zookeeper", zookeeper].map(str::to_string).to_vec()
    }
}

/// Whether a server can be started here, without starting it: else a sentence that says what is missing. Jars that are
/// not in the cache are fetched.
pub fn available(lab: &Lab, spec: &Spec) -> Result<(), String> {
    match spec {
        Spec::Halcyon(_) => Ok(()),
        Spec::Hbase(spec) => hbase::available(lab, spec),
        Spec::Accumulo(spec) => accumulo::available(lab, spec),
    }
}

/// Starts a server and returns when it has acknowledged a put. `data` is emptied first unless `keep_data`; a directory
/// that the lab has not made is never emptied. The error is a sentence with the last lines of the server's log.
pub fn start(lab: &Lab, spec: &Spec, data: &Path, keep_data: bool) -> Result<StartedServer, String> {
    let data_dir = DataDir::take(&lab.env, data, keep_data)?;
    match spec {
        Spec::Halcyon(spec) => halcyon::start(lab, spec, &data_dir),
        Spec::Hbase(spec) => hbase::start(lab, spec, &data_dir),
        Spec::Accumulo(spec) => accumulo::start(lab, spec, &data_dir, keep_data),
    }
}

/// Ports of loopback that nobody listens on now.
fn free_ports<const N: usize>() -> Result<[u16; N], String> {
    let failed = |error: std::io::Error| format!("no free port: {error}");
    // all are held until all are known, so that none comes twice
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        *port = listener.local_addr().map_err(failed)?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// Where a server's files lie.
struct DataDir(PathBuf);

impl DataDir {
    fn take(env: &Env, data: &Path, keep_data: bool) -> Result<DataDir, String> {
        let path = std::path::absolute(data).map_err(|error| format!("{}: {error}", data.display()))?;
        let failed = |error: std::io::Error| format!("cannot use the directory of data: {error}");
        let is_marked = env.fs.exists(&path.join(MARK)).map_err(failed)?;
        let is_empty = env.fs.list(&path).is_ok_and(|entries| entries.is_empty());
        if env.fs.exists(&path).map_err(failed)? && !is_marked && !is_empty {
            return Err(format!("{} has files that the lab has not made: it is left alone", path.display()));
        }
        let data_dir = DataDir(path);
        if is_marked && !keep_data {
            env.fs.remove_dir_all(&data_dir.0).map_err(failed)?;
        }
        env.fs.create_dir_all(&data_dir.logs()).map_err(failed)?;
        env.fs.replace(&data_dir.0.join(MARK), b"").map_err(failed)?;
        // what the last start said must not be taken for what this one says
        if env.fs.exists(&data_dir.out()).map_err(failed)? {
            env.fs.remove_file(&data_dir.out()).map_err(failed)?;
        }
        Ok(data_dir)
    }

    /// The server's own files.
    fn files(&self) -> PathBuf {
        self.0.join("files")
    }

    fn conf(&self) -> PathBuf {
        self.0.join("conf")
    }

    fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    /// Standard output and error of the server.
    fn out(&self) -> PathBuf {
        self.logs().join("out.log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_lab_made_is_emptied() {
        let env = halcyon_env::sim::SimFileSystem::new().env();
        let (data, other) = (Path::new("/lab"), Path::new("/other"));
        let data_dir = DataDir::take(&env, data, false).unwrap();
        env.fs.create_dir_all(&data_dir.files()).unwrap();
        env.fs.put_new(&data_dir.files().join("x"), b"1").unwrap();
        let data_dir = DataDir::take(&env, data, true).unwrap();
        assert!(env.fs.exists(&data_dir.files().join("x")).unwrap());
        let data_dir = DataDir::take(&env, data, false).unwrap();
        assert!(!env.fs.exists(&data_dir.files().join("x")).unwrap());

        env.fs.create_dir_all(other).unwrap();
        env.fs.put_new(&other.join("precious"), b"1").unwrap();
        for keep_data in [false, true] {
            let told = DataDir::take(&env, other, keep_data);
            assert!(told.is_err_and(|sentence| sentence.contains("left alone")));
        }
        assert!(env.fs.exists(&other.join("precious")).unwrap());
    }
}
