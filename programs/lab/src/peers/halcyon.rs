//! Halcyon itself: this program's `standalone` on ports of the system's choice.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::pauses::Found;
use super::server_process::{Order, ServerProcess};
use super::spec::{Durability, HalcyonSpec};
use super::started_server::{PauseSource, StartedServer};
use super::{DataDir, LOOK_PERIOD, Lab, site};
use crate::advise::print_size;
use crate::outcome::PauseKind;

const START_TIME_MAX: Duration = Duration::from_secs(60);
const STOP_TIME_MAX: Duration = Duration::from_secs(60);
const PAGE_TIME_MAX: Duration = Duration::from_secs(10);

pub(super) fn start(lab: &Lab, spec: &HalcyonSpec, data_dir: &DataDir) -> Result<StartedServer, String> {
    let durability = match spec.durability {
        Durability::Written => "written",
        Durability::Fsync => "fsync",
    };
    let memory = print_size(spec.memory_bytes);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut command: Vec<String> = vec![text(&lab.exe), "standalone".into()];
    command.extend(["--data".into(), text(&data_dir.files())]);
    command.extend(["--memory".into(), memory.clone(), "--wal-sync".into(), durability.into()]);
    for port in ["zookeeper", "master", "regionserver", "master-info", "regionserver-info"] {
        command.extend([format!("--{port}-port"), "0".into()]);
    }
    if !spec.properties.is_empty() {
        site::write(&lab.env, &data_dir.conf().join("hbase-site.xml"), &spec.properties)?;
        command.extend(["--config".into(), text(&data_dir.conf())]);
    }
    let mut settings = vec![format!("memory={memory}"), format!("wal-sync={durability}")];
    settings.extend(spec.properties.iter().map(|(name, value)| format!("{name}={value}")));

    let order = Order {
        command,
        variables: Vec::new(),
        directory: data_dir.logs(),
        out: data_dir.out(),
        grace: STOP_TIME_MAX,
    };
    let start_ns = lab.env.clock.monotonic_ns();
    let process = ServerProcess::start(&lab.env, &lab.exe, order)?;
    let ready = lab.wait_until(&process, START_TIME_MAX, LOOK_PERIOD, || {
        lines(&read(lab, &data_dir.out()), "ready ").map(|_| ())
    });
    ready.map_err(|why| format!("Halcyon did not start: {why}"))?;
    let said = read(lab, &data_dir.out());
    let found = |name: &str| lines(&said, name).ok_or_else(|| format!("Halcyon did not say its {name}"));
    let zookeeper = found("zookeeper ")?;
    let info = found("regionserver-info http://")?.trim_end_matches('/').to_string();
    lab.first_put(&process, &zookeeper, START_TIME_MAX).map_err(|why| format!("Halcyon: {why}"))?;
    Ok(StartedServer {
        env: lab.env.clone(),
        server_pid: process.pid,
        process,
        settings,
        data: data_dir.files(),
        ready_ms: (lab.env.clock.monotonic_ns() - start_ns) / 1_000_000,
        ingest: lab.bench_ingest(&zookeeper),
        zookeeper,
        pauses: PauseSource::Stalls(info),
    })
}

fn read(lab: &Lab, path: &Path) -> String {
    let bytes = lab.env.fs.read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What stands behind `name` in the line that begins with it.
fn lines(text: &str, name: &str) -> Option<String> {
    // a line without an end may go on
    let whole = &text[..text.rfind('\n')?];
    whole.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.trim().to_string())
}

/// Causes of stalls that are operations on files (`halcyon_env::WatchedFileSystem`).
const CAUSES_OF_DISK: [&str; 4] = ["read", "write", "sync", "files"];
/// The cause of stalls of which the virtual machine's host took half or more (`halcyon_env::Stalls`).
const CAUSE_OF_HOST: &str = "host";

#[derive(Deserialize)]
struct StallsPage {
    stalls: Vec<StallEntry>,
}

#[derive(Deserialize)]
struct StallEntry {
    ended_ms: i64,
    length_ms: f64,
    cause: String,
    what: String,
}

/// What the page of stalls of a running server says.
pub(super) fn stalls(address: &str) -> Result<Vec<Found>, String> {
    let page =
        get(address, "/stalls.json").map_err(|error| format!("the page of stalls at {address}: {error}"))?;
    let page: StallsPage =
        serde_json::from_str(&page).map_err(|error| format!("the page of stalls at {address}: {error}"))?;
    let found = |stall: StallEntry| Found {
        start_ms: stall.ended_ms as f64 - stall.length_ms,
        length_ms: stall.length_ms,
        kind: match stall.cause.as_str() {
            CAUSE_OF_HOST => PauseKind::Host,
            cause if CAUSES_OF_DISK.contains(&cause) => PauseKind::Disk,
            _ => PauseKind::Stall,
        },
        cause: format!("{}: {}", stall.cause, stall.what),
    };
    Ok(page.stalls.into_iter().map(found).collect())
}

/// The body of a page.
fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PAGE_TIME_MAX))?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_string()),
        _ => Err(std::io::Error::other(answer.lines().next().unwrap_or("no answer").to_string())),
    }
}
