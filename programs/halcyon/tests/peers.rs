//! Servers that the lab starts, and that none of them is left behind.
#![allow(clippy::disallowed_methods)] // files, clocks and processes from outside

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::fresh_dir;
use halcyon_env::Env;
use halcyon_lab::peers::{
    Durability, HalcyonSpec, Lab, Spec, StartedServer, Watcher, available, others_cpu_s, start,
};

const HALCYON: &str = env!("CARGO_BIN_EXE_halcyon");

fn lab() -> Lab {
    let env = Env::real();
    Lab { env, cache: fresh_dir("lab-cache"), exe: PathBuf::from(HALCYON) }
}

fn spec() -> Spec {
    Spec::Halcyon(HalcyonSpec {
        memory_bytes: 64 << 20,
        durability: Durability::Written,
        properties: vec![("hbase.regionserver.handler.count".into(), "3".into())],
    })
}

fn is_there(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn assert_gone(pids: &[u32]) {
    let start = Instant::now();
    while pids.iter().any(|pid| is_there(*pid)) {
        assert!(start.elapsed() < Duration::from_secs(10), "{pids:?} are left behind");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn write(running: &StartedServer, json: &Path) {
    let mut command = running.ingest_command();
    command.extend(["--nodes=20000", "--batch=500", "--json"].map(str::to_string));
    let done = Command::new(&command[0]).args(&command[1..]).arg(json).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_server_is_started_watched_and_stopped_and_goes_on_with_its_data() {
    let (lab, data) = (lab(), fresh_dir("lab-data"));
    available(&lab, &spec()).unwrap();
    let running = start(&lab, &spec(), &data, false).unwrap();
    assert!(running.is_running() && is_there(running.pid()));
    assert_eq!(running.group().members(), [running.pid()]);
    assert!(running.settings().contains(&"wal-sync=written".to_string()));
    assert!(running.command_line().contains(&"standalone".to_string()));
    let watcher = Watcher::start(&lab.env, &running).unwrap();
    write(&running, &data.join("ingest.json"));
    let samples = watcher.finish();
    let (first, last) = (samples[0], samples[samples.len() - 1]);
    assert!(last.server.cpu_s > first.server.cpu_s, "{samples:?}");
    assert!(last.server.disk_written_bytes - first.server.disk_written_bytes > 1 << 20, "{samples:?}");
    assert!(
        last.server.resident_bytes > 10 << 20
            && last.server.resident_peak_bytes >= last.server.resident_bytes
    );
    assert!(others_cpu_s(&first, &last, 0.0) >= 0.0);
    assert!(running.disk_bytes() > 1 << 20);
    let from_ms = first.at_ms - 60_000;
    let pauses = running.pauses(from_ms, last.at_ms).unwrap();
    assert!(pauses.iter().all(|pause| pause.length_ms > 0.0), "{pauses:?}");
    let pids = [running.pid(), running.group().members()[0]];
    running.stop().unwrap();
    assert_gone(&pids);

    // the rows are there: a second start with the same data, ended as a crash would
    let running = start(&lab, &spec(), &data, true).unwrap();
    let mut verify = Command::new(HALCYON);
    verify.args(["bench", "ingest", "verify"]).args(running.address_args());
    let verified = verify.output().unwrap();
    let said = String::from_utf8_lossy(&verified.stdout);
    assert!(said.contains("UNDEFINED 0") && !said.contains("UNREFERENCED 0\n"), "{said}");
    let pid = running.pid();
    running.kill().unwrap();
    assert_gone(&[pid]);
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn a_server_ends_with_what_holds_it() {
    let (lab, data) = (lab(), fresh_dir("lab-drop"));
    let running = start(&lab, &spec(), &data, false).unwrap();
    let pid = running.pid();
    drop(running);
    assert_gone(&[pid]);
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn a_server_that_does_not_start_is_told_with_its_last_words() {
    let (lab, data) = (lab(), fresh_dir("lab-bad"));
    let bad = Spec::Halcyon(HalcyonSpec {
        memory_bytes: 64 << 20,
        durability: Durability::Fsync,
        properties: vec![("hfile.block.cache.size".into(), "7".into())],
    });
    let started = Instant::now();
    let Err(told) = start(&lab, &bad, &data, false) else { panic!("it started") };
    assert!(told.contains("it ended with code 1") && told.contains("hfile.block.cache.size"), "{told}");
    assert!(started.elapsed() < Duration::from_secs(20));
    std::fs::remove_dir_all(data).unwrap();
}

/// A machine with a JDK and a Maven of shell scripts.
struct FakeMachine {
    root: PathBuf,
}

impl FakeMachine {
    fn new(name: &str) -> FakeMachine {
        let machine = FakeMachine { root: fresh_dir(name) };
        std::fs::create_dir_all(machine.root.join("programs")).unwrap();
        std::fs::create_dir_all(machine.root.join("jdk/bin")).unwrap();
        std::fs::write(machine.root.join("jdk/release"), "JAVA_VERSION=\"99.0.1\"\n").unwrap();
        for program in ["sh", "sleep", "mkdir", "touch", "cat"] {
            let real = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(program));
            let real = real.iter().find(|path| path.exists()).unwrap();
            std::os::unix::fs::symlink(real, machine.root.join("programs").join(program)).unwrap();
        }
        machine.script("jdk/bin/java", "exit 0");
        machine
    }

    fn script(&self, path: &str, body: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.root.join(path);
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A server that does so; asked for its version, it is well.
    fn java(&self, body: &str) {
        let version = "for last; do :; done; [ \"$last\" = -version ] && exit 0";
        self.script("jdk/bin/java", &format!("{version}\n{body}"));
    }

    /// Fetches one jar.
    fn maven(&self) {
        let body =
            "for last; do :; done; to=${last#-DoutputDirectory=}; mkdir -p \"$to\"; touch \"$to/a.jar\"";
        self.script("programs/mvn", body);
    }

    fn start(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(HALCYON);
        command.args(["lab", "start", "hbase", "--cache"]).arg(self.root.join("cache"));
        command.arg("--data").arg(self.root.join("data")).args(arguments);
        command.env_clear().env("PATH", self.root.join("programs")).env("HOME", &self.root);
        command.env("JAVA_HOME", self.root.join("jdk")).stdin(Stdio::null());
        command
    }

    fn told(&self, arguments: &[&str]) -> String {
        let done = self.start(arguments).output().unwrap();
        assert!(!done.status.success());
        assert!(!self.root.join("data/files").exists());
        String::from_utf8_lossy(&done.stderr).into_owned()
    }
}

#[test]
fn what_is_missing_is_told_in_a_sentence() {
    let machine = FakeMachine::new("lab-missing");
    assert!(machine.told(&["--jdk", "98"]).contains("halcyon: no JDK 98 was found (there are"));
    let told = machine.told(&["--jdk", "99"]);
    assert!(told.contains("HBase 2.6.4 is not in") && told.contains("mvn: No such file"), "{told}");
    let unknown =
        "echo '[ERROR] Failed to collect dependencies: repo.maven.apache.org: Unknown host'; exit 1";
    machine.script("programs/mvn", unknown);
    let told = machine.told(&["--jdk", "99"]);
    assert!(told.contains("the network or the repository cannot be reached: Failed to collect"), "{told}");
    machine.script("jdk/bin/java", "echo \"Unrecognized VM option 'UseMagic'\"; exit 1");
    let told = machine.told(&["--jdk", "99", "--jvm=-XX:+UseMagic"]);
    assert!(told.contains("-XX:+UseMagic: Unrecognized VM option 'UseMagic'"), "{told}");
    let told = machine.told(&["--jdk", "99", "--gc", "zgc"]);
    assert!(told.contains("JDK 99 has ZGC with two generations only"), "{told}");
    std::fs::remove_dir_all(&machine.root).unwrap();
}

#[test]
fn a_jvm_that_ends_at_once_is_told_and_jars_are_fetched_once() {
    let machine = FakeMachine::new("lab-ends");
    machine.maven();
    machine.java("echo 'java.net.BindException: Address already in use'; exit 3");
    for _ in 0..2 {
        let told = machine.told(&["--jdk", "99"]);
        assert!(told.contains("it ended with code 3") && told.contains("java.net.BindException"), "{told}");
        // the second time there is no Maven any more
        let _ = std::fs::remove_file(machine.root.join("programs/mvn"));
    }
    assert!(machine.root.join("cache/hbase-2.6.4/lib/a.jar").exists());
    std::fs::remove_dir_all(&machine.root).unwrap();
}

#[test]
fn a_lab_that_is_killed_leaves_no_server() {
    let machine = FakeMachine::new("lab-killed");
    machine.maven();
    machine.java("trap '' TERM INT HUP; echo $$; sleep 300 & echo $!; while :; do sleep 1; done");
    for signal in ["-KILL", "-TERM"] {
        // what the round before said must not be taken for what this one says
        let out = machine.root.join("data/logs/out.log");
        let _ = std::fs::remove_file(&out);
        let mut lab = machine.start(&["--jdk", "99"]).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        let pids = loop {
            let text = std::fs::read_to_string(&out).unwrap_or_default();
            let pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
            if pids.len() == 2 {
                break pids;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{text}");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(pids.iter().all(|pid| is_there(*pid)));
        let killed = Command::new("kill").args([signal, &lab.id().to_string()]).status().unwrap();
        assert!(killed.success());
        lab.wait().unwrap();
        assert_gone(&pids);
    }
    std::fs::remove_dir_all(&machine.root).unwrap();
}

/// A supervisor of a shell, as the lab would start one.
struct Supervisor {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    /// Of the shell, and of what the shell has started.
    pids: Vec<u32>,
    out: PathBuf,
}

impl Supervisor {
    fn clean(self) {
        std::fs::remove_dir_all(self.out.parent().unwrap()).unwrap();
    }
}

fn supervisor(name: &str, grace: &str, script: &str) -> Supervisor {
    let out = fresh_dir(name).join("out");
    std::fs::create_dir_all(out.parent().unwrap()).unwrap();
    let mut command = Command::new(HALCYON);
    command.args(["lab", "keep", "--grace", grace, "--out"]).arg(&out).args(["--", "sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let pid = line(&mut said).strip_prefix("pid ").unwrap().parse().unwrap();
    let mut pids = vec![pid];
    // the script says the numbers of its own children, then "up"
    let start = Instant::now();
    let text = loop {
        let text = std::fs::read_to_string(&out).unwrap();
        if text.contains("up\n") {
            break text;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{text}");
        std::thread::sleep(Duration::from_millis(10));
    };
    pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    Supervisor { child, said, pids, out }
}

fn line(said: &mut impl BufRead) -> String {
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    line.trim().to_string()
}

const WITH_CHILDREN: &str = "sleep 300 & echo $!; (trap '' TERM; sleep 301) & echo $!; echo up; wait";
/// Does not listen to SIGTERM, nor do its children.
const DEAF: &str = "trap '' TERM; sleep 300 & echo $!; echo up; while :; do wait; sleep 1; done";

#[test]
fn when_the_lab_is_gone_so_is_everything() {
    for (name, script) in [("keep-gone", WITH_CHILDREN), ("keep-gone-deaf", DEAF)] {
        let mut supervisor = supervisor(name, "60", script);
        assert!(supervisor.pids.len() >= 2 && supervisor.pids.iter().all(|pid| is_there(*pid)));
        drop(supervisor.child.stdin.take()); // as at the end of the lab, however it ends
        supervisor.child.wait().unwrap();
        assert_gone(&supervisor.pids);
        supervisor.clean();
    }
}

#[test]
fn stop_is_polite_and_then_firm() {
    let polite = "trap 'echo bye; exit 0' TERM; sleep 300 & echo $!; echo up; wait; sleep 300";
    for (name, script, ended) in [
        ("keep-polite", polite, "ended with code 0"),
        ("keep-deaf", DEAF, "ended by force: it was still there 1 s after SIGTERM"),
    ] {
        let mut supervisor = supervisor(name, "1", script);
        supervisor.child.stdin.as_mut().unwrap().write_all(b"stop\n").unwrap();
        assert_eq!(line(&mut supervisor.said), ended, "{name}");
        supervisor.child.wait().unwrap();
        assert_gone(&supervisor.pids);
        assert_eq!(std::fs::read_to_string(&supervisor.out).unwrap().contains("bye"), name == "keep-polite");
        supervisor.clean();
    }
}

#[test]
fn what_a_server_leaves_behind_goes_with_it() {
    let mut supervisor = supervisor("keep-left", "60", "sleep 300 & echo $!; echo up; exit 3");
    assert_eq!(line(&mut supervisor.said), "ended with code 3");
    supervisor.child.wait().unwrap();
    assert_gone(&supervisor.pids);
    supervisor.clean();
}

#[test]
fn a_command_that_is_not_there_is_told() {
    let dir = fresh_dir("keep-none");
    let out = dir.join("out");
    std::fs::create_dir_all(&dir).unwrap();
    let mut command = Command::new(HALCYON);
    command.args(["lab", "keep", "--out"]).arg(&out).args(["--", "/no/such/program"]);
    let done = command.stdin(Stdio::piped()).output().unwrap();
    assert!(String::from_utf8_lossy(&done.stdout).starts_with("failed /no/such/program: No such file"));
    assert!(!done.status.success());
    std::fs::remove_dir_all(dir).unwrap();
}
