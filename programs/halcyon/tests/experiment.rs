//! An experiment on this machine, with Halcyon's side alone: to its end, interrupted and gone on with, and with a server
//! that dies in the middle.
#![allow(clippy::disallowed_methods)] // files, clocks and processes from outside

mod common;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::fresh_dir;
use halcyon_lab::outcome::{Experiment, Run};
use rustix::process::{Pid, Signal, kill_process};

fn command(out: &Path, more: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    let line = "lab run read-pauses --quick --sides halcyon --repetitions 1 --records 2000 --threads 2 --warmup 1 --unjudged";
    command.args(line.split_whitespace()).args(more.split_whitespace());
    command.arg("--out").arg(out).arg("--cache").arg(out.join("cache"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn results(out: &Path) -> Experiment {
    serde_json::from_slice(&std::fs::read(out.join("results.json")).unwrap()).unwrap()
}

fn run_of(out: &Path, case: &str) -> Option<Run> {
    let bytes = std::fs::read(out.join(format!("runs/1-halcyon-{case}.json"))).ok()?;
    Some(serde_json::from_slice(&bytes).unwrap())
}

fn wait(what: &str, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn children(process: &Child) -> Vec<i32> {
    let path = format!("/proc/{0}/task/{0}/children", process.id());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Of the load generator: the only child that was told where to write JSON.
fn load(process: &Child) -> Option<i32> {
    let is_load = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(6).any(|word| word == b"--json")
    };
    children(process).into_iter().find(is_load)
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn an_experiment_runs_to_its_end() {
    let out = fresh_dir("experiment-whole");
    let output = command(&out, "--seconds 1 --rate 500").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("The page: file://") && said(&output).contains("All loads"));
    let experiment = results(&out);
    assert_eq!((experiment.partial.as_deref(), experiment.runs.len()), (None, 3));
    assert!(experiment.sides[0].command_line.iter().any(|word| word == "standalone"));
    for run in &experiment.runs {
        assert!(run.operations > 0 && run.resources.server_cpu_s > 0.0 && run.elapsed_s >= 1.0, "{run:?}");
        assert!(run.resources.resident_bytes > 1 << 20 && !run.resources.bound_by.is_empty());
    }
    let (peak, half, same) = (&experiment.runs[0], &experiment.runs[1], &experiment.runs[2]);
    let wanted = half.rate_wanted_per_s.unwrap();
    assert!((wanted / peak.operations_per_s - 0.5).abs() < 0.01, "{wanted}");
    assert_eq!(same.rate_wanted_per_s, Some(500.0));
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains(&experiment.title));
    assert!(!out.join("data").exists(), "a server's data go when it has ended");
    std::fs::remove_dir_all(out).unwrap();
}

#[test]
fn an_interrupted_experiment_goes_on() {
    let out = fresh_dir("experiment-interrupted");
    let child = command(&out, "--seconds 3").spawn().unwrap();
    wait("the peak", || run_of(&out, "peak").is_some());
    wait("the next load", || load(&child).is_some());
    std::thread::sleep(Duration::from_millis(2_000));
    let started = children(&child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        !output.status.success() && said(&output).contains("run the same command again to resume"),
        "{}",
        said(&output)
    );
    assert!(!started.is_empty() && !started.iter().any(|pid| is_alive(*pid)), "nothing is left behind");
    let partial = results(&out).partial.unwrap();
    assert!(partial.starts_with("1 of 3 runs are whole") && partial.contains("interrupted"), "{partial}");
    let peak = run_of(&out, "peak").unwrap();
    let half = run_of(&out, "half").expect("what was measured before the interruption is kept");
    assert_eq!(half.partial.as_deref(), Some("interrupted"));

    let output = command(&out, "--seconds 4").output().unwrap();
    assert!(!output.status.success() && said(&output).contains("other cases or sizes"), "{}", said(&output));

    let output = command(&out, "--seconds 3").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let experiment = results(&out);
    assert_eq!((experiment.partial.as_deref(), experiment.runs.len()), (None, 3));
    assert_eq!(experiment.runs[0], peak, "what was whole is not measured again");
    std::fs::remove_dir_all(out).unwrap();
}

#[test]
fn a_server_that_dies_costs_its_visit_and_is_said() {
    let out = fresh_dir("experiment-dead");
    let child = command(&out, "--seconds 3").spawn().unwrap();
    wait("the peak", || run_of(&out, "peak").is_some());
    wait("the next load", || load(&child).is_some());
    std::thread::sleep(Duration::from_millis(2_000));
    // the server is a child of its keeper
    let of_child = |pid: i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()).collect::<Vec<_>>()
    };
    let servers: Vec<i32> = children(&child).into_iter().flat_map(of_child).collect();
    assert_eq!(servers.len(), 1);
    kill_process(Pid::from_raw(servers[0]).unwrap(), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "something was measured: {}", said(&output));
    assert!(said(&output).contains("the server is gone"), "{}", said(&output));
    let experiment = results(&out);
    assert!(experiment.partial.unwrap().starts_with("1 of 3 runs are whole"));
    assert!(experiment.runs[0].partial.is_none());
    let half = run_of(&out, "half").expect("what was measured before is kept");
    assert!(half.partial.unwrap().starts_with("the server ended"));
    std::fs::remove_dir_all(out).unwrap();
}
