//! `halcyon shell` as a process of its own: scripts from files, standard input and `-e`, their output and exit codes.
//!
//! `HALCYON_TEST_ZOOKEEPER=127.0.0.1:2181 cargo test -p halcyon --test all shell:: -- --ignored` runs the script on HBase too, and
//! compares what it prints.
#![allow(clippy::disallowed_methods)] // files, clocks and processes from outside

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Server, fresh_dir};

/// What people type: it leaves nothing behind.
const SCRIPT: &str = include_str!("shell/script.txt");
/// What it prints, on HBase and Halcyon alike.
const EXPECTED: &str = include_str!("shell/expected.txt");

fn shell(zookeeper: &str, flags: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.arg("shell").args(["--zookeeper", zookeeper]).args(flags);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // a shell that executes -e does not read its input
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Output without what differs from run to run: names of servers, ids of regions.
fn normalized(output: &str) -> String {
    let mut lines = Vec::new();
    for line in output.lines() {
        lines.push(line.trim_end());
    }
    lines.join("\n") + "\n"
}

fn run_script(zookeeper: &str) -> String {
    let output = shell(zookeeper, &[], SCRIPT);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    normalized(&text(&output.stdout))
}

#[test]
fn a_script_prints_what_is_expected() {
    let data = fresh_dir("shell-script");
    let server = Server::start(&data, &[]);
    let zookeeper = server.address("zookeeper").to_string();
    let printed = run_script(&zookeeper);
    if std::env::var_os("HALCYON_WRITE_EXPECTED").is_some() {
        std::fs::write("tests/shell/expected.txt", &printed).unwrap();
    }
    assert_eq!(printed, EXPECTED);

    // -e, files and standard input; JSON
    let output = shell(
        &zookeeper,
        &["--json", "-e", "create 't', 'f'; put 't', \"r\\x01\", 'f:q', 'v', 5", "-e", "scan 't'"],
        "",
    );
    assert_eq!(
        text(&output.stdout),
        "{\"row\":\"r\\\\x01\",\"cells\":[{\"column\":\"f:q\",\"timestamp\":5,\"type\":\"Put\",\"value\":\"v\"}]}\n"
    );
    let file = data.with_extension("script");
    std::fs::write(&file, "count 't'\n").unwrap();
    let output = shell(&zookeeper, &[file.to_str().unwrap()], "");
    assert_eq!(text(&output.stdout), "1 row(s)\n");
    std::fs::remove_file(&file).unwrap();

    // exit codes: not understood, refused, gone on
    let output = shell(&zookeeper, &["-e", "nonsense"], "");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let output = shell(&zookeeper, &[], "get 't',\n'r' 'x'\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("line 2: at character"), "{}", text(&output.stderr));
    let output = shell(&zookeeper, &["-e", "scan 'missing'; version"], "");
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(1), "ERROR: TableNotFoundException: missing\n".into())
    );
    let output = shell(&zookeeper, &["--keep-going", "-e", "scan 'missing'; exists 't'"], "");
    assert!(output.status.code() == Some(1) && text(&output.stdout).contains("Table t does exist"));
    let output = shell(&zookeeper, &["-e", "exists 't'; exit; nonsense"], "");
    assert_eq!(output.status.code(), Some(0));
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
}

#[test]
fn the_shell_starts_at_once_and_says_when_nobody_is_there() {
    let start = Instant::now();
    let output = shell("127.0.0.1:1", &["-e", "help 'scan'"], "");
    let took = start.elapsed();
    assert!(output.status.success() && text(&output.stdout).contains("scan 't'"));
    assert!(took < Duration::from_secs(1), "{took:?}");
    let output = shell("127.0.0.1:1", &["-e", "list"], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("127.0.0.1:1"), "{}", text(&output.stderr));
}

#[test]
#[ignore = "needs a cluster: set HALCYON_TEST_ZOOKEEPER"]
fn the_script_prints_the_same_on_another_cluster() {
    let quorum = std::env::var("HALCYON_TEST_ZOOKEEPER").expect("HALCYON_TEST_ZOOKEEPER=host:port");
    assert_eq!(run_script(&quorum), EXPECTED);
}
