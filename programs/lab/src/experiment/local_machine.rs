//! This machine as a stage: servers through `peers`, loads through `halcyon bench` as processes of their own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halcyon_env::Env;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::bench_result;
use super::bound::{Circumstances, bound_by};
use super::child;
use super::display::Display;
use super::options::{Machine, RunArgs};
use super::plan::{Collector, Durability, Server, SidePlan};
use super::stage::{Order, Stage, Started};
use crate::outcome::{Environment, Product, Run};
use crate::peers::{self, Lab, Sample, Spec, StartedServer, Watcher, others_cpu_s};

/// What a load may take above what is expected: a slow machine is no reason to give up, a server that hangs is.
const PATIENCE: f64 = 20.0;
const PATIENCE_MIN: Duration = Duration::from_secs(300);
/// Of a server's last words, in characters.
const LINE_LEN_MAX: usize = 200;
/// Writes of 4 KiB that are timed.
const SYNCS: usize = 41;

pub struct LocalMachine {
    env: Env,
    lab: Lab,
    /// For servers; emptied when a server has ended.
    data: PathBuf,
    durability: Durability,
    display: Arc<Display>,
    is_interrupted: Arc<AtomicBool>,
    running: Option<StartedServer>,
    /// Threads that the load of this server may use at once.
    load_threads: u32,
    /// Whether that load is `halcyon bench`, not the Java client that Accumulo needs.
    is_own_client: bool,
    machine: Machine,
}

impl LocalMachine {
    /// `out` takes the servers' data too. From here on the first Ctrl-C or SIGTERM asks to end, and the second ends.
    pub fn new(env: &Env, args: &RunArgs, out: &Path, display: Arc<Display>) -> Result<LocalMachine, String> {
        let lab = Lab::new(env, args.cache.clone())?;
        let is_interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            let asked = Arc::clone(&is_interrupted);
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked))
                .and_then(|_| signal_hook::flag::register(signal, asked))
                .map_err(|error| format!("signals: {error}"))?;
        }
        let mut jdks: Vec<u32> = lab.jdks().iter().map(|jdk| jdk.major).collect();
        jdks.sort_unstable();
        jdks.dedup();
        let machine = Machine {
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            memory_bytes: halcyon_env::memory_bytes(&*env.fs).unwrap_or(0),
            jdks,
        };
        let (data, durability) = (out.join("data"), args.durability);
        let env = env.clone();
        Ok(LocalMachine {
            env,
            lab,
            data,
            durability,
            display,
            is_interrupted,
            running: None,
            load_threads: 1,
            is_own_client: true,
            machine,
        })
    }

    pub fn machine(&self) -> Machine {
        self.machine.clone()
    }

    /// What must be equal for results to belong together.
    pub fn machine_text(&self) -> String {
        format!(
            "{}, {} cores, {} MiB, halcyon {}",
            halcyon_env::processor_model(&*self.env.fs).unwrap_or_default(),
            self.machine.cores,
            self.machine.memory_bytes >> 20,
            env!("CARGO_PKG_VERSION")
        )
    }

    pub fn environment(&self) -> Result<Environment, String> {
        let kernel = self.env.fs.read("/proc/sys/kernel/osrelease".as_ref()).unwrap_or_default();
        let kernel = String::from_utf8_lossy(&kernel).trim().to_string();
        let system = text_of(&self.env, "/etc/os-release", "PRETTY_NAME");
        let system = system.map_or_else(String::new, |name| format!("{}, ", name.trim_matches('"')));
        let jdks = self.lab.jdks();
        Ok(Environment {
            cpu: halcyon_env::processor_model(&*self.env.fs).unwrap_or_default(),
            cores: self.machine.cores,
            memory_bytes: self.machine.memory_bytes,
            system: format!("{system}Linux {kernel}"),
            sync_ms: self.sync_ms()?,
            halcyon: env!("CARGO_PKG_VERSION").to_string(),
            jdks: jdks.iter().map(|jdk| format!("{} {}", jdk.version, jdk.home.display())).collect(),
        })
    }

    /// The median of writing and syncing 4 KiB where the servers' data will be.
    fn sync_ms(&self) -> Result<Option<f64>, String> {
        let failed = |error: std::io::Error| error.to_string();
        let directory = self.data.parent().expect("it is below the results");
        let path = directory.join("sync.tmp");
        let mut file = self.env.fs.create_over(&path).map_err(failed)?;
        let mut times_ms = Vec::with_capacity(SYNCS);
        for _ in 0..SYNCS {
            let begun_ns = self.env.clock.monotonic_ns();
            file.write_all(&[0x5a; 4096]).and_then(|()| file.sync()).map_err(failed)?;
            times_ms.push((self.env.clock.monotonic_ns() - begun_ns) as f64 / 1e6);
        }
        file.close().map_err(failed)?;
        self.env.fs.remove_file(&path).map_err(failed)?;
        times_ms.sort_by(f64::total_cmp);
        Ok(Some(times_ms[SYNCS / 2]))
    }

    /// What a server that is gone said of it: that it had no memory left, else its last line.
    fn server_ended(&self) -> String {
        let said = self.env.fs.read(&self.data.join("logs/out.log")).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = lines().find(|line| line.contains("OutOfMemoryError")).or_else(|| lines().next_back());
        let line: String = line.unwrap_or_default().chars().take(LINE_LEN_MAX).collect();
        if line.is_empty() { "the server ended".to_string() } else { format!("the server ended: {line}") }
    }

    fn running(&self) -> &StartedServer {
        self.running.as_ref().expect("a load comes after a start")
    }

    /// The whole command line of a load.
    fn command(&self, order: &Order<'_>, json: &Path) -> Vec<String> {
        let running = self.running();
        let mut command = match order.load.words.as_slice() {
            [first, second, rest @ ..] if (first.as_str(), second.as_str()) == ("ingest", "write") => {
                let mut command = running.ingest_command();
                command.extend_from_slice(rest);
                command
            }
            words => {
                let mut command = vec![self.lab.exe.to_string_lossy().into_owned(), "bench".to_string()];
                command.extend_from_slice(words);
                command.extend(running.address_args());
                command
            }
        };
        let mut add = |name: &str, value: String| command.extend([name.to_string(), value]);
        add("--json", json.to_string_lossy().into_owned());
        add("--progress-period", "1".to_string());
        if self.is_own_client {
            add("--runtime-threads", self.load_threads.to_string());
        }
        if order.warmup.least_s > 0 {
            add("--warmup", order.warmup.least_s.to_string());
        }
        if let Some(max_s) = order.warmup.max_s {
            add("--warmup-max", max_s.to_string());
        }
        if let Some(rate) = order.rate {
            add("--rate", format!("{rate:.1}"));
        }
        command
    }

    /// Adds to a run what was seen of the server meanwhile.
    fn complete(&self, run: &mut Run, samples: &[Sample], order: &Order<'_>) {
        let running = self.running();
        let ended_ms = run.started_ms + (run.elapsed_s * 1e3) as u64;
        match running.pauses(run.started_ms, ended_ms) {
            Ok(pauses) => run.pauses = pauses,
            Err(sentence) => {
                run.partial.get_or_insert(format!("when the server stood still is not known: {sentence}"));
            }
        }
        if let (Some(first), Some(last)) = (at(samples, run.started_ms), at(samples, ended_ms)) {
            let used = &mut run.resources;
            used.server_cpu_s = last.server.cpu_s - first.server.cpu_s;
            used.others_cpu_s = others_cpu_s(&first, &last, used.client_cpu_s);
            used.resident_bytes = last.server.resident_bytes;
            used.resident_peak_bytes = last.server.resident_peak_bytes;
            used.disk_read_bytes = last.server.disk_read_bytes.saturating_sub(first.server.disk_read_bytes);
            used.disk_written_bytes =
                last.server.disk_written_bytes.saturating_sub(first.server.disk_written_bytes);
            used.io_wait_s = last.machine.io_wait_s - first.machine.io_wait_s;
            used.stolen_s = last.machine.steal_s - first.machine.steal_s;
            for second in &mut run.series {
                let now_ms = run.started_ms + (second.at_s * 1e3) as u64;
                second.resident_bytes = at(samples, now_ms).map(|sample| sample.server.resident_bytes);
            }
        }
        run.resources.bound_by = bound_by(
            &run.resources,
            Circumstances {
                elapsed_s: run.elapsed_s,
                cores: self.machine.cores,
                client_threads: self.load_threads,
                rate_wanted_per_s: order.rate,
                rate_per_s: run.operations_per_s,
            },
        )
        .to_string();
        run.disk_bytes = Some(running.disk_bytes());
    }
}

/// How things stood at a moment: between two samples in proportion, before the first and after the last as there.
fn at(samples: &[Sample], at_ms: u64) -> Option<Sample> {
    let next = samples.iter().position(|sample| sample.at_ms >= at_ms);
    let (before, after) = match next {
        None => return samples.last().copied(),
        Some(0) => return samples.first().copied(),
        Some(next) => (samples[next - 1], samples[next]),
    };
    let share = (at_ms - before.at_ms) as f64 / (after.at_ms - before.at_ms) as f64;
    let seconds = |from: f64, to: f64| from + (to - from) * share;
    let bytes = |from: u64, to: u64| (from as f64 + (to as f64 - from as f64) * share) as u64;
    let mut sample = before;
    sample.at_ms = at_ms;
    sample.server.cpu_s = seconds(before.server.cpu_s, after.server.cpu_s);
    sample.server.resident_bytes = bytes(before.server.resident_bytes, after.server.resident_bytes);
    sample.server.resident_peak_bytes = after.server.resident_peak_bytes;
    sample.server.disk_read_bytes = bytes(before.server.disk_read_bytes, after.server.disk_read_bytes);
    sample.server.disk_written_bytes =
        bytes(before.server.disk_written_bytes, after.server.disk_written_bytes);
    sample.machine.busy_s = seconds(before.machine.busy_s, after.machine.busy_s);
    sample.machine.io_wait_s = seconds(before.machine.io_wait_s, after.machine.io_wait_s);
    sample.machine.steal_s = seconds(before.machine.steal_s, after.machine.steal_s);
    Some(sample)
}

impl Stage for LocalMachine {
    fn available(&mut self, side: &SidePlan) -> Result<(), String> {
        peers::available(&self.lab, &spec(side, self.durability))
    }

    fn start(&mut self, side: &SidePlan) -> Result<Started, String> {
        let running = peers::start(&self.lab, &spec(side, self.durability), &self.data, false)?;
        let started = Started { command_line: running.command_line(), settings: running.settings() };
        self.is_own_client = side.server.product() != Product::Accumulo;
        // a Java client has as many threads as it likes
        self.load_threads =
            if self.is_own_client { self.machine.client_threads() } else { self.machine.cores };
        self.running = Some(running);
        Ok(started)
    }

    fn load(&mut self, order: &Order<'_>) -> Result<Run, String> {
        if self.is_interrupted() {
            return Err("interrupted".to_string());
        }
        let json = self.data.join("load.json");
        if self.env.fs.exists(&json).map_err(|error| error.to_string())? {
            self.env.fs.remove_file(&json).map_err(|error| error.to_string())?;
        }
        let command = self.command(order, &json);
        let warmup_s = order.warmup.max_s.unwrap_or(order.warmup.least_s);
        let patience = Duration::from_secs_f64(order.load.expected_s * PATIENCE + warmup_s as f64);
        let patience = patience.max(PATIENCE_MIN);
        let watcher = Watcher::start(&self.env, self.running())?;
        let ended = child::run(&self.env, &command, |progress, since| {
            if !progress.is_empty() {
                self.display.goes(progress);
            }
            if self.is_interrupted() {
                Some("interrupted".to_string())
            } else if !self.running().is_running() {
                Some(self.server_ended())
            } else if since > patience {
                Some(format!("the load had not ended after {} s", since.as_secs()))
            } else {
                None
            }
        });
        let samples = watcher.finish();
        let ended = ended?;
        let said = match ended.said.is_empty() {
            true => "the load generator said nothing".to_string(),
            false => ended.said,
        };
        let mut run = match self.env.fs.read(&json) {
            Ok(json) => bench_result::run_of(&json)?,
            Err(_) => return Err(ended.asked.unwrap_or(said)),
        };
        if let Some(why) = ended.asked {
            run.partial = Some(why);
        } else if !ended.status.success() {
            run.partial.get_or_insert(said);
        }
        self.complete(&mut run, &samples, order);
        Ok(run)
    }

    fn is_running(&mut self) -> bool {
        self.running.as_ref().is_some_and(StartedServer::is_running)
    }

    fn stop(&mut self) {
        let Some(running) = self.running.take() else { return };
        if let Err(sentence) = running.stop() {
            self.display.says(&format!("the server had to be ended: {sentence}"));
        }
        if let Err(error) = self.env.fs.remove_dir_all(&self.data) {
            self.display.says(&format!("the server's data stay: {error}"));
        }
    }

    fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::Relaxed)
    }
}

fn spec(side: &SidePlan, durability: Durability) -> Spec {
    let durability = match durability {
        Durability::Written => peers::Durability::Written,
        Durability::Fsync => peers::Durability::Fsync,
    };
    match &side.server {
        Server::Halcyon { memory_bytes } => {
            let (memory_bytes, properties) = (*memory_bytes, Vec::new());
            Spec::Halcyon(peers::HalcyonSpec { memory_bytes, durability, properties })
        }
        Server::Hbase { jdk, heap_bytes, collector, flags, properties } => Spec::Hbase(peers::HbaseSpec {
            jdk: *jdk,
            heap_bytes: *heap_bytes,
            collector: match collector {
                Collector::G1 => peers::Collector::G1,
                Collector::Zgc => peers::Collector::Zgc,
                Collector::GenerationalZgc => peers::Collector::ZgcGenerational,
            },
            jvm_flags: flags.clone(),
            properties: properties.clone(),
            durability,
        }),
        Server::Accumulo { jdk, heap_bytes, native, maps_bytes } => Spec::Accumulo(peers::AccumuloSpec {
            jdk: *jdk,
            heap_bytes: *heap_bytes,
            maps: if *native { peers::Maps::Native } else { peers::Maps::Java },
            maps_max_bytes: *maps_bytes,
            jvm_flags: Vec::new(),
            properties: Vec::new(),
            durability,
        }),
    }
}

/// The text behind `name:` or `name=` of a file of such lines.
fn text_of(env: &Env, file: &str, name: &str) -> Option<String> {
    let bytes = env.fs.read(file.as_ref()).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once([':', '='])?.1.trim().to_string())
}
