//! The keeper of a region server and of a master, as processes. ZooKeeper takes connections here and says nothing, so that the server waits; what
//! a keeper does with a real one is in testing/cluster/keeper-test.sh.
#![allow(clippy::disallowed_methods)] // processes, clocks and threads from outside

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::common::{fresh_dir, site};
use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(20);

/// A server with its keeper, or without.
struct Kept {
    process: Child,
    dir: PathBuf,
    _zookeeper: TcpListener,
}

impl Kept {
    fn start(name: &str, role: &str, properties: &[(&str, &str)], flags: &[&str]) -> Kept {
        let zookeeper = TcpListener::bind("127.0.0.1:0").unwrap();
        let (dir, port) = (fresh_dir(name), zookeeper.local_addr().unwrap().port().to_string());
        fs::create_dir_all(&dir).unwrap();
        let root = dir.join("root").display().to_string();
        let mut all = vec![("hbase.rootdir", root.as_str()), ("hbase.zookeeper.property.clientPort", &port)];
        all.extend(properties);
        let config = site(&dir, &all);
        let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
        command.args([role, "--port", "0", "--info-port", "0", "--config"]).arg(&config).args(flags);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Kept { process, dir, _zookeeper: zookeeper }
    }

    /// The server that the keeper has started.
    fn server(&self) -> Pid {
        let pid = self.process.id();
        let path = format!("/proc/{pid}/task/{pid}/children");
        let found = wait_for("a child", || {
            let children = fs::read_to_string(&path).ok()?;
            children.split_whitespace().next()?.parse().ok()
        });
        Pid::from_raw(found).unwrap()
    }

    /// The server is far enough to watch for signals: it listens for calls before it looks for ZooKeeper.
    fn serving(&self) -> Pid {
        let server = self.server();
        let status = format!("/proc/{}/status", server.as_raw_pid());
        wait_for("a server that catches SIGTERM", || {
            let text = fs::read_to_string(&status).ok()?;
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
            let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
            (caught & (1 << (Signal::TERM.as_raw() - 1)) != 0).then_some(())
        });
        server
    }

    fn ends(&mut self) -> ExitStatus {
        wait_for("its end", || self.process.try_wait().unwrap())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
        let _ = fs::remove_dir_all(self.dir.with_extension("conf"));
    }
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "there is not {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_gone(process: Pid) -> Option<()> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_pid()));
    // One that has ended and was not waited for has a line of its own.
    status.map_or(Some(()), |text| text.contains("State:\tZ").then_some(()))
}

#[test]
fn the_keeper_ends_with_the_server_and_its_status() {
    for role in ["regionserver", "master"] {
        let mut kept = Kept::start("keeper-ends", role, &[], &[]);
        let server = kept.serving();
        let begun = Instant::now();
        kill_process(server, Signal::KILL).unwrap();
        assert_eq!(kept.ends().code(), Some(128 + 9), "{role}");
        // There is no session to end, so nothing else is waited for.
        assert!(begun.elapsed() < Duration::from_secs(2), "{role}: {:?}", begun.elapsed());
    }
}

#[test]
fn the_server_does_not_outlive_the_keeper() {
    let mut kept = Kept::start("keeper-killed", "regionserver", &[], &[]);
    let server = kept.serving();
    kept.process.kill().unwrap();
    assert_eq!(kept.ends().signal(), Some(9));
    wait_for("the end of the server", || is_gone(server));
}

/// SIGQUIT ends a server as it ends any program.
#[test]
fn signals_are_passed_on() {
    let mut kept = Kept::start("keeper-signals", "regionserver", &[], &[]);
    let server = kept.serving();
    let keeper = Pid::from_child(&kept.process);
    kill_process(keeper, Signal::QUIT).unwrap();
    assert_eq!(kept.ends().code(), Some(128 + 3));
    assert!(is_gone(server).is_some());
}

#[test]
fn a_server_that_has_failed_is_started_again_if_that_is_wanted() {
    let mut kept = Kept::start("keeper-restart", "regionserver", &[("halcyon.keeper.restart", "true")], &[]);
    let first = kept.serving();
    kill_process(first, Signal::KILL).unwrap();
    wait_for("another server", || (kept.server() != first).then_some(()));
    let second = kept.serving();
    // One that was asked to end is not.
    kill_process(Pid::from_child(&kept.process), Signal::TERM).unwrap();
    kill_process(second, Signal::KILL).unwrap();
    assert_eq!(kept.ends().code(), Some(128 + 9));
}

#[test]
fn without_a_keeper_there_is_one_process() {
    for (name, properties, flags) in [
        ("keeper-flag", vec![], vec!["--keeper", "false"]),
        ("keeper-property", vec![("halcyon.keeper", "false")], vec![]),
    ] {
        let kept = Kept::start(name, "regionserver", &properties, &flags);
        let pid = kept.process.id();
        let threads = Path::new("/proc").join(pid.to_string()).join("task");
        // It has more threads than a keeper, and no child.
        wait_for("a server", || (fs::read_dir(&threads).ok()?.count() > 3).then_some(()));
        assert_eq!(fs::read_to_string(threads.join(pid.to_string()).join("children")).unwrap(), "", "{name}");
    }
}

/// The option is the keeper's. Given by hand, it must not let a server believe that it is watched.
#[test]
fn a_keeper_that_is_none_is_noticed() {
    let mut kept = Kept::start("keeper-none", "regionserver", &[], &["--kept-by", "1"]);
    assert_eq!(kept.ends().code(), Some(1));
}

#[test]
fn the_keeper_has_one_thread_and_little_memory() {
    let kept = Kept::start("keeper-memory", "regionserver", &[], &[]);
    kept.serving();
    let text = fs::read_to_string(format!("/proc/{}/status", kept.process.id())).unwrap();
    let number = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    println!("keeper: {} KiB, of which {} are its own", number("VmRSS:"), number("RssAnon:"));
    assert_eq!(number("Threads:"), 1);
    assert!(number("RssAnon:") < 8 << 10, "{text}");
}
