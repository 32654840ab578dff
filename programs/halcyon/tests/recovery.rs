//! What a server finds that was killed: families that were deleted, and WALs that are damaged.
#![allow(clippy::disallowed_methods)] // files and processes from outside

use crate::common;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{Server, fresh_dir, site};

/// What a line of the shell prints.
fn shell(server: &Server, line: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.args(["shell", "--zookeeper", &server.address("zookeeper").to_string(), "-e", line]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{line}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Cells of a family came back from the WAL when the family had been deleted and another one of its name was added. The second time the
/// table is disabled meanwhile.
#[test]
fn cells_of_a_deleted_family_do_not_come_back_after_a_kill() {
    let data = fresh_dir("deleted-family");
    let server = Server::start(&data, &[]);
    shell(&server, "create 't', 'f', 'g'; put 't', 'a', 'f:q', 'kept'; put 't', 'a', 'g:q', 'deleted-1'");
    shell(&server, "alter 't', 'delete' => 'g'; alter 't', NAME => 'g'; put 't', 'b', 'g:q', 'new-1'");
    server.kill();

    let server = Server::start(&data, &[]);
    let scanned = shell(&server, "scan 't'");
    assert!(scanned.contains("kept") && scanned.contains("new-1"), "{scanned}");
    assert!(!scanned.contains("deleted-1"), "{scanned}");
    shell(&server, "put 't', 'c', 'g:q', 'deleted-2'; disable 't'; alter 't', 'delete' => 'g'");
    shell(&server, "alter 't', NAME => 'g'; enable 't'; put 't', 'd', 'g:q', 'new-2'");
    server.kill();

    let server = Server::start(&data, &[]);
    let scanned = shell(&server, "scan 't'");
    assert!(scanned.contains("kept") && scanned.contains("new-2"), "{scanned}");
    assert!(!scanned.contains("new-1") && !scanned.contains("deleted"), "{scanned}");
    server.stop();
    let _ = fs::remove_dir_all(data);
}

/// The WAL of tables that is longest.
fn longest_wal(data: &Path) -> PathBuf {
    let servers = fs::read_dir(data.join("WALs")).unwrap().map(|entry| entry.unwrap().path());
    let wals = servers.flat_map(|server| fs::read_dir(server).unwrap()).map(|entry| entry.unwrap().path());
    let of_tables = wals.filter(|wal| !wal.to_string_lossy().ends_with(".meta"));
    of_tables.max_by_key(|wal| fs::metadata(wal).unwrap().len()).expect("there is one")
}

fn start_refused(data: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.arg("standalone").arg("--data").arg(data);
    for port in common::PORTS {
        command.arg(format!("--{port}-port")).arg("0");
    }
    command.stdin(Stdio::null()).output().unwrap()
}

/// One damaged entry of a WAL kept the server from starting, whatever one was ready to lose.
#[test]
fn a_start_goes_on_without_what_is_damaged_if_that_is_wanted() {
    let data = fresh_dir("damaged-wal");
    let server = Server::start(&data, &[]);
    shell(&server, "create 't', 'f'");
    for row in 0..9 {
        shell(&server, &format!("put 't', 'r{row}', 'f:q', 'value-{row}'"));
    }
    server.kill();
    let wal = longest_wal(&data);
    let mut bytes = fs::read(&wal).unwrap();
    let damaged = bytes.windows(7).position(|window| window == b"value-4").expect("the value is in the WAL");
    bytes[damaged] ^= 0x20;
    fs::write(&wal, &bytes).unwrap();

    let refused = start_refused(&data);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("hbase.hlog.split.skip.errors"), "{said}");
    let config = site(&data, &[("hbase.hlog.split.skip.errors", "true")]);
    let server = Server::start(&data, &["--config", config.to_str().unwrap()]);
    let scanned = shell(&server, "scan 't'");
    let found: Vec<usize> = (0..9).filter(|row| scanned.contains(&format!("value-{row}"))).collect();
    assert_eq!(found, [0, 1, 2, 3, 5, 6, 7, 8], "{scanned}");
    server.stop();
    let aside = data.join("corrupt").join(wal.file_name().unwrap());
    assert_eq!(fs::read(aside).unwrap(), bytes);
    let server = Server::start(&data, &[]);
    assert!(shell(&server, "count 't'").contains("8 row(s)"));
    server.stop();
    for dir in [data, config] {
        let _ = fs::remove_dir_all(dir);
    }
}
