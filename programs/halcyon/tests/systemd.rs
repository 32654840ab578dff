//! What systemd hears from the server, and what packages are made of: manual pages and completions.
#![allow(clippy::disallowed_methods)] // looks at files and clocks from outside

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const HALCYON: &str = env!("CARGO_BIN_EXE_halcyon");

/// Ends the server when a test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fresh_dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("halcyon-systemd-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn receive(socket: &UnixDatagram) -> String {
    let mut message = [0; 256];
    let len = socket.recv(&mut message).expect("systemd hears from the server in time");
    String::from_utf8_lossy(&message[..len]).trim().to_string()
}

#[test]
fn systemd_hears_that_the_server_is_ready_alive_and_stopping() {
    let dir = fresh_dir("notify");
    let socket = UnixDatagram::bind(dir.join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = Command::new(HALCYON);
    command.args(["standalone", "--zookeeper-port", "0", "--master-port", "0", "--regionserver-port", "0"]);
    command
        .args(["--master-info-port", "0", "--regionserver-info-port", "0", "--data"])
        .arg(dir.join("data"));
    command.env("NOTIFY_SOCKET", dir.join("notify")).env("WATCHDOG_USEC", "3000000");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Killed(command.spawn().unwrap());

    assert_eq!(receive(&socket), "READY=1");
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("ready")), "it is ready when it says so");
    for _ in 0..3 {
        assert_eq!(receive(&socket), "WATCHDOG=1");
    }
    let stop = Command::new("kill").arg(server.0.id().to_string()).status().unwrap();
    assert!(stop.success());
    let mut message = receive(&socket);
    while message == "WATCHDOG=1" {
        message = receive(&socket);
    }
    assert_eq!(message, "STOPPING=1");
    assert!(server.0.wait().unwrap().success());
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn each_command_has_a_manual_page_with_its_options() {
    let dir = fresh_dir("man");
    assert!(Command::new(HALCYON).arg("man-pages").arg(&dir).status().unwrap().success());
    let pages: [(&str, &[&str]); 2] = [
        ("halcyon-standalone.1", &["--data", "--memory", "--accept-without", "--print-settings"]),
        ("halcyon-shell.1", &["--zookeeper", "--registry", "--execute", "--json", "--keep-going"]),
    ];
    for (name, options) in pages {
        let page = fs::read_to_string(dir.join(name)).unwrap().replace("\\-", "-");
        for option in options {
            assert!(page.contains(option), "{option} is not in {name}");
        }
    }
    let front = fs::read_to_string(dir.join("halcyon.1")).unwrap().replace("\\-", "-");
    assert!(front.contains("halcyon-standalone(1)"), "{front}");
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn completions_know_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(HALCYON).args(["completions", shell]).output().unwrap();
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        for part in ["standalone", "wal-sync", "keep-going", "znode-parent"] {
            assert!(script.contains(part), "{shell} has no {part}:\n{script}");
        }
    }
}
