//! The project's commands that are more than one line.
//!
//! ```text
//! cargo xtask check            format, lint, floors, tidiness, prose, lines of scripts that assert nothing
//! cargo xtask test [ARGS]      all unit and integration tests
//! cargo xtask fuzz [DECODER]   damaged input for one decoder or all, with new seeds, for HALCYON_FUZZ_SECONDS each
//!                              (default 60)
//! cargo xtask seeds [TEST]     tests on the simulated HDFS, --count seeds each (default 1000) from --first
//! cargo xtask memory           the unsafe code under an interleaving checker and, where there is one, a memory checker
//! ```
//!
//! `check` runs all its parts and prints every complaint before it fails. It reads the files that git tracks or would
//! add; ignored files are not checked. When you add a crate, also give it a floor (a folder) and look at
//! [`floors`]; when you add a decoder, name its test in [`fuzz`], and a test
//! that runs seeds on the simulated HDFS in [`seeds`].

#![allow(clippy::disallowed_methods)] // a tool for people: real files, real time

mod floors;
mod fuzz;
mod manifest;
mod prose;
mod scripts;
mod seeds;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const USAGE: &str =
    "cargo xtask check | test [ARGS] | fuzz [DECODER]... | seeds [--count N] [--first N] [TEST]... | memory";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rest = arguments.get(1..).unwrap_or_default();
    let done = match arguments.first().map(String::as_str) {
        Some("check") => check(),
        Some("test") => run("cargo", &[&["test", "--workspace"], strs(rest).as_slice()].concat()),
        Some("fuzz") => fuzz::fuzz(rest),
        Some("seeds") => seeds::seeds(rest),
        Some("memory") => memory(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check() -> bool {
    let root = root();
    let mut complaints = floors::check(&root);
    complaints.extend(tidy::check(&root));
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    println!("floors and tidiness: {} complaints", complaints.len());
    // what stands beside the workspace is formatted like it
    let format = run("cargo", &["fmt", "--all", "--check"])
        & run("cargo", &["fmt", "--manifest-path", "programs/bench/rocksdb/Cargo.toml", "--check"]);
    let lint = run("cargo", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]);
    println!("format: {}", verdict(format));
    println!("lint: {}", verdict(lint));
    complaints.is_empty() && format && lint
}

/// Where Shuttle tries many interleavings: the memstore's writers and readers, the numbers of writes and their readers,
/// the WAL's appends, rounds and rolls.
const INTERLEAVINGS: &[&[&str]] = &[
    &["-p", "halcyon-memstore", "--test", "interleavings"],
    &["-p", "halcyon-region", "--lib", "interleavings"],
    &["-p", "halcyon-wal", "--test", "interleavings"],
];

/// Runs `cargo test` and prints what it says; whether it succeeded and a test ran. A filter that matches no test is a success of
/// cargo, and so is a file that is empty without a flag of the compiler.
fn run_tests(cargo: &mut Command) -> bool {
    let Ok(output) = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output() else { return false };
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    let passed = tests_passed(&said);
    if passed == 0 {
        println!("no test has run: {cargo:?}");
    }
    output.status.success() && passed > 0
}

/// The sum of what the test programs say.
fn tests_passed(said: &str) -> u64 {
    let results = said.lines().filter_map(|line| line.trim().strip_prefix("test result: ok. "));
    results.filter_map(|result| result.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// Shuttle tries many interleavings, Miri watches every access to memory.
fn memory() -> bool {
    let interleavings = INTERLEAVINGS.iter().all(|tests| {
        run_tests(
            Command::new("cargo")
                .args(["test", "--release"])
                .args(*tests)
                .env("RUSTFLAGS", "--cfg halcyon_shuttle")
                .env("CARGO_TARGET_DIR", target_dir().join("shuttle"))
                .current_dir(root()),
        )
    });
    println!("interleavings: {}", verdict(interleavings));
    let has_miri = Command::new("cargo").args(["+nightly", "miri", "--version"]).output();
    if !has_miri.is_ok_and(|output| output.status.success()) {
        println!("LEFT OUT: memory, there is no Miri here (rustup +nightly component add miri)");
        return interleavings;
    }
    let memory = ["model", "threads"].iter().all(|test| {
        run_tests(
            Command::new("cargo")
                .args(["+nightly", "miri", "test", "-p", "halcyon-memstore", "--test", test])
                .env("MIRIFLAGS", "-Zmiri-disable-isolation")
                .env("CARGO_TARGET_DIR", target_dir().join("miri"))
                .current_dir(root()),
        )
    });
    println!("memory: {}", verdict(memory));
    interleavings && memory
}

/// Flags of a compiler that others share would make everything be built again, so these runs have places of their own.
fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn verdict(good: bool) -> &'static str {
    if good { "ok" } else { "FAILED" }
}

/// Runs a command in the root of the project; whether it succeeded.
fn run(program: &str, arguments: &[&str]) -> bool {
    match Command::new(program).args(arguments).current_dir(root()).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("{program}: {error}");
            false
        }
    }
}

fn strs(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

fn root() -> PathBuf {
    // Told anew by cargo at each run: several checkouts may share one target directory, and so this program.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&own).parent().expect("xtask is a folder of the project").to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_ran_are_counted() {
        let said = "running 2 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored\n\ntest result: ok. 3 passed; 0 failed\n";
        assert_eq!(tests_passed(said), 5);
        assert_eq!(
            tests_passed("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out\n"),
            0
        );
        assert!(run_tests(Command::new("printf").arg("test result: ok. 1 passed; 0 failed\n")));
        assert!(!run_tests(Command::new("printf").arg("test result: ok. 0 passed; 0 failed\n")));
        assert!(!run_tests(&mut Command::new("false")));
    }
}
