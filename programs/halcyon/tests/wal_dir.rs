//! A standalone server whose WALs have a root directory of their own (`hbase.wal.dir`).
#![allow(clippy::disallowed_methods)] // files, clocks and processes from outside

use crate::common;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Server, fresh_dir, site};

/// In the environment of `testing/cluster`: another directory of WALs than one on this machine, such as `hdfs://host:port/wals`.
const TEST_WALS: &str = "HALCYON_TEST_WALS";

/// What a line of the shell prints.
fn shell(server: &Server, line: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.args(["shell", "--zookeeper", &server.address("zookeeper").to_string(), "-e", line]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{line}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn rows(server: &Server, table: &str) -> usize {
    let counted = shell(server, &format!("count '{table}'"));
    let line = counted.lines().find(|line| line.contains("row(s)")).unwrap_or_else(|| panic!("{counted}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn put(server: &Server, rows: std::ops::Range<u32>) {
    let lines: Vec<_> = rows.map(|row| format!("put 't', 'r{row:02}', 'f:q', '{row}'")).collect();
    shell(server, &lines.join("; "));
}

/// Every file below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Writes, a kill, a split, a snapshot and the cleaning of WALs.
#[test]
fn kills_splits_snapshots_and_old_wals() {
    let (data, wals) = (fresh_dir("wal-dir"), fresh_dir("wal-dir-wals"));
    let apart = std::env::var(TEST_WALS).ok().map(|root| format!("{root}{}", wals.display()));
    let is_local = apart.is_none();
    let address = apart.unwrap_or_else(|| format!("file://{}", wals.display()));
    let properties = [
        ("hbase.wal.dir", &*address),
        ("hbase.master.logcleaner.ttl", "0"),
        ("hbase.master.cleaner.interval", "200"),
    ];
    let config = site(&data, &properties);
    let flags = ["--config", config.to_str().unwrap()];
    let server = Server::start(&data, &flags);
    shell(&server, "create 't', 'f'");
    put(&server, 0..20);
    if is_local {
        assert!(files(&wals.join("WALs")).len() > 1, "of tables and of meta");
        assert!(files(&data.join("WALs")).is_empty() && files(&data.join("oldWALs")).is_empty());
    }
    server.kill();

    let server = Server::start(&data, &flags);
    assert_eq!(rows(&server, "t"), 20, "after a kill");
    put(&server, 20..30);
    shell(&server, "snapshot 't', 's'; flush 't'; split 't', 'r15'");
    put(&server, 30..40);
    wait_for("the split", || shell(&server, "list_regions 't'").matches("OPEN").count() == 2);
    server.kill();

    let server = Server::start(&data, &flags);
    assert_eq!(rows(&server, "t"), 40, "after a split and a kill");
    shell(&server, "clone_snapshot 's', 'c'");
    assert_eq!(rows(&server, "c"), 30, "what the snapshot has");
    if is_local {
        wait_for("old WALs are deleted", || files(&wals.join("oldWALs")).is_empty());
        let edits = files(&data).into_iter().filter(|file| file.iter().any(|part| part == "recovered.edits"));
        assert_eq!(edits.collect::<Vec<_>>(), [] as [PathBuf; 0], "markers are where the WALs are");
        // Edits of the region that was split are not replayed. They go with it, when its daughters have files of their own.
        let is_marker = |file: &PathBuf| file.extension().is_some_and(|it| it == "seqid");
        wait_for("only markers are left", || files(&wals.join("data")).iter().all(is_marker));
    }
    shell(&server, "disable 't'; drop 't'");
    if is_local {
        assert!(!wals.join("data/default/t").exists());
    }
    server.stop();

    let server = Server::start(&data, &flags);
    assert_eq!(rows(&server, "c"), 30);
    server.stop();
    for dir in [data, wals, config] {
        let _ = fs::remove_dir_all(dir);
    }
}

fn start_refused(data: &Path, config: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.arg("standalone").arg("--data").arg(data).arg("--config").arg(config);
    for port in common::PORTS {
        command.arg(format!("--{port}-port")).arg("0");
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A killed server's WALs would not be found, and what it had acknowledged would be lost without a word.
#[test]
fn the_directory_changes_between_orderly_stops_only() {
    let (data, wals) = (fresh_dir("wal-dir-changes"), fresh_dir("wal-dir-changes-wals"));
    let address = wals.display().to_string();
    let apart = site(&fresh_dir("wal-dir-changes-apart"), &[("hbase.wal.dir", &address)]);
    let without = site(&fresh_dir("wal-dir-changes-without"), &[]);
    let start = |config: &Path| Server::start_on_this_machine(&data, &["--config", config.to_str().unwrap()]);
    // From the root directory to another one: what is left there is recovered.
    let server = start(&without);
    shell(&server, "create 't', 'f'");
    put(&server, 0..10);
    server.kill();
    let server = start(&apart);
    assert_eq!(rows(&server, "t"), 10);
    put(&server, 10..20);
    server.kill();
    // And back: only after a stop in order.
    let (code, said) = start_refused(&data, &without);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains(&format!("wal-dir: the last server had its WALs in {address}")), "{said}");
    let server = start(&apart);
    assert_eq!(rows(&server, "t"), 20);
    server.stop();
    let server = start(&without);
    assert_eq!(rows(&server, "t"), 20);
    server.stop();
    for dir in [data, wals, apart, without] {
        let _ = fs::remove_dir_all(dir);
    }
}

/// Each server would split the WALs of the other one.
#[test]
fn one_server_at_a_time_has_the_directory() {
    let wals = fresh_dir("wal-dir-shared");
    let [first, second] = ["wal-dir-first", "wal-dir-second"].map(fresh_dir);
    let property = [("hbase.wal.dir", &*wals.display().to_string())];
    let configs = [site(&first, &property), site(&second, &property)];
    let server = Server::start_on_this_machine(&first, &["--config", configs[0].to_str().unwrap()]);
    let (code, said) = start_refused(&second, &configs[1]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the directory of WALs") && said.contains("in use by another process"), "{said}");
    server.stop();
    let (code, said) = start_refused(
        &first,
        &site(&first, &[("hbase.wal.dir", &*first.join("wals").display().to_string())]),
    );
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("below the root directory"), "{said}");
    // The root directory under another name.
    let alias = fresh_dir("wal-dir-alias");
    std::os::unix::fs::symlink(&first, &alias).unwrap();
    let (code, said) =
        start_refused(&first, &site(&first, &[("hbase.wal.dir", &*alias.display().to_string())]));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is a root directory of tables"), "{said}");
    fs::remove_file(alias).unwrap();
    let [one, other] = configs;
    for dir in [wals, first, second, one, other] {
        let _ = fs::remove_dir_all(dir);
    }
}
