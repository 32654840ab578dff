//! Tests on the simulated HDFS, with many seeds.
//!
//! Each test runs a small number of seeds in `cargo test`. Here each runs as many as are asked for. It prints how many there
//! were and how long they took. A test that fails prints its seed and the command that repeats it, and the others still run.

use std::process::Command;
use std::time::{Duration, Instant};

/// (name, package, where the test is in it, the beginning of the test's own name).
const TESTS: &[(&str, &str, &[&str], &str)] = &[
    ("files", "halcyon-env", &["--test", "file_system"], "the_simulated_hdfs"),
    (
        "wal-deaths",
        "halcyon-wal",
        &["--test", "all"],
        "crash::acknowledged_edits_survive_what_a_seed_chooses",
    ),
    (
        "recovered-edits",
        "halcyon-wal",
        &["--test", "all"],
        "crash::recovered_edits_of_two_servers_are_both_kept",
    ),
    ("wal-data-nodes", "halcyon-wal", &["--test", "all"], "replace::a_remote_log_outlives_data_nodes"),
    (
        "wal-seals",
        "halcyon-wal",
        &["--test", "all"],
        "replace::a_remote_file_that_failed_is_sealed_before_it_is_archived",
    ),
    ("openings", "halcyon-region", &["--lib"], "place::tests::of_two_openings_at_the_same_time_one_succeeds"),
    ("fenced-log", "halcyon-region", &["--test", "all"], "takeover::the_log_of_a_frozen_server_is_sealed"),
    (
        "frozen-everywhere",
        "halcyon-region",
        &["--test", "all"],
        "takeover::a_server_that_thaws_changes_nothing",
    ),
    (
        "lost-answers",
        "halcyon-region",
        &["--test", "all"],
        "takeover::a_server_that_thaws_takes_back_no_file_of_another",
    ),
    ("frozen-servers", "halcyon-region", &["--test", "all"], "frozen::servers_that_thaw_change_nothing"),
    (
        "frozen-splits",
        "halcyon-region",
        &["--test", "all"],
        "split::a_master_that_thaws_takes_no_daughter_away",
    ),
    ("late-splits", "halcyon-region", &["--test", "all"], "split::daughters_stay_whatever_arrives_late"),
    ("disturbed", "halcyon-region", &["--test", "all"], "disturbed::what_is_acknowledged_stays"),
    (
        "split",
        "halcyon-regionserver",
        &["--lib"],
        "wal::recover::tests::a_split_that_is_disturbed_loses_nothing",
    ),
    ("cluster-id", "halcyon-master", &["--lib"], "bootstrap::tests::a_disturbed_start_keeps_the_id"),
    ("cluster", "halcyon-sim", &["--test", "seeds"], "a_cluster_keeps_its_promises"),
    ("oracle", "halcyon-region", &["--test", "all"], "oracle::on_hdfs"),
    ("oracle-stripes", "halcyon-region", &["--test", "all"], "oracle::by_stripes_on_hdfs"),
];

const USAGE: &str = "cargo xtask seeds [--count N] [--first N] [TEST]...";
const COUNT: u64 = 1000;

struct Choice {
    count: u64,
    first: u64,
    names: Vec<String>,
}

fn choice(arguments: &[String]) -> Result<Choice, String> {
    let mut choice = Choice { count: COUNT, first: 0, names: Vec::new() };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || {
            let text = rest.next().ok_or_else(|| format!("{argument} needs a number"))?;
            text.parse::<u64>().map_err(|_| format!("{argument} {text}: that is no number"))
        };
        match argument.as_str() {
            "--count" => choice.count = number()?,
            "--first" => choice.first = number()?,
            name if TESTS.iter().any(|(known, ..)| *known == name) => choice.names.push(name.to_string()),
            name => {
                let known: Vec<&str> = TESTS.iter().map(|(known, ..)| *known).collect();
                return Err(format!("no test {name}; there are {}", known.join(" ")));
            }
        }
    }
    Ok(choice)
}

/// Runs the named tests, all if none is named; whether all passed.
pub fn seeds(arguments: &[String]) -> bool {
    let choice = match choice(arguments) {
        Ok(choice) => choice,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return false;
        }
    };
    let chosen =
        TESTS.iter().filter(|(name, ..)| choice.names.is_empty() || choice.names.iter().any(|it| it == name));
    let (mut seeds, mut time, mut failed) = (0, Duration::ZERO, Vec::new());
    for &(name, package, place, test) in chosen {
        let cargo = [&["-p", package], place].concat();
        if !crate::run("cargo", &[&["test", "--quiet", "--no-run"], cargo.as_slice()].concat()) {
            return false;
        }
        let begin = Instant::now();
        match run(&cargo, test, &choice) {
            Ok(()) => {
                println!(
                    "{name}: {} seeds from {}, {:.0} s",
                    choice.count,
                    choice.first,
                    begin.elapsed().as_secs_f64()
                );
                seeds += choice.count;
            }
            Err(output) => {
                println!("{name}: FAILED\n{output}");
                failed.push(name);
            }
        }
        time += begin.elapsed();
    }
    println!(
        "{seeds} seeds passed in {:.0} s; {} tests failed {}",
        time.as_secs_f64(),
        failed.len(),
        failed.join(" ")
    );
    failed.is_empty()
}

/// Runs one test. The error is what it printed.
fn run(cargo: &[&str], test: &str, choice: &Choice) -> Result<(), String> {
    let output = Command::new("cargo")
        .args(["test", "--quiet"])
        .args(cargo)
        .args([test, "--", "--exact", "--nocapture"])
        .env("HALCYON_SEED", choice.first.to_string())
        .env("HALCYON_SEEDS", choice.count.to_string())
        .current_dir(crate::root())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    // Printed at the end by the test, so a test that is called otherwise by now is no success.
    let expected = format!("{} seeds from {}: ", choice.count, choice.first);
    match output.status.success() && out.contains(&expected) {
        true => Ok(()),
        false => Err(format!("{out}{errors}")),
    }
}
