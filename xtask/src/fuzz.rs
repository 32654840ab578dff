//! Damaged input for decoders, again and again with new seeds.
//!
//! The tests themselves live beside their decoders and are seeded; `cargo test` runs each once. Here they run until
//! `HALCYON_FUZZ_SECONDS` have passed (default 60) for each decoder, each time with another `HALCYON_SEED`, which a
//! failure prints.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// (decoder, arguments of `cargo test` that run its tests).
const DECODERS: &[(&str, &[&str])] = &[
    ("frame", &["-p", "halcyon-rpc", "--test", "garbage", "damaged_streams"]),
    ("cells", &["-p", "halcyon-rpc", "--test", "garbage", "damaged_cell_blocks"]),
    ("wal", &["-p", "halcyon-wal", "--test", "all", "damage::"]),
    ("keystore", &["-p", "halcyon-crypto", "--lib", "keys::tests::damage_by_seed"]),
    ("hfile", &["-p", "halcyon-hfile", "--lib", "tests::damage::"]),
    ("cache", &["-p", "halcyon-cache", "--test", "random"]),
    ("inspect", &["-p", "halcyon-inspect", "--test", "damage"]),
    ("rfile", &["-p", "halcyon-import", "--lib", "rfile::tests::damaged"]),
    ("filter", &["-p", "halcyon-filter", "--test", "hostile"]),
    ("shadow", &["-p", "halcyon-shadow", "--test", "garbage"]),
    ("shell", &["-p", "halcyon-shell", "--lib", "garbage::"]),
    ("mob", &["-p", "halcyon-schema", "--lib", "mob::tests::damaged"]),
    ("filelist", &["-p", "halcyon-region", "--lib", "file_list::tests::damaged"]),
    ("status", &["-p", "halcyon-client", "--lib", "status::tests::damaged"]),
    ("znode", &["-p", "halcyon-schema", "--lib", "znode::tests::damaged"]),
    ("coprocessor", &["-p", "halcyon-regionserver", "--lib", "coprocessors::frames::tests::damaged"]),
    ("info", &["-p", "halcyon", "--test", "all", "hbase_pages::garbage"]),
];

/// A test may count on from its seed; the next round should not see the same damage again.
const SEED_STEP: u64 = 10_000;

/// Fuzzes the named decoders, all if none is named; whether every test passed.
pub fn fuzz(names: &[String]) -> bool {
    if let Some(unknown) = names.iter().find(|name| DECODERS.iter().all(|(decoder, _)| decoder != name)) {
        let known: Vec<&str> = DECODERS.iter().map(|(decoder, _)| *decoder).collect();
        eprintln!("no decoder {unknown}: cargo xtask fuzz [{}]...", known.join(" | "));
        return false;
    }
    DECODERS
        .iter()
        .filter(|(decoder, _)| names.is_empty() || names.iter().any(|name| name == decoder))
        .all(|(decoder, test)| fuzz_decoder(decoder, test))
}

/// Runs the tests of one decoder until the time is over; whether all of them passed.
fn fuzz_decoder(decoder: &str, test: &[&str]) -> bool {
    let seconds = std::env::var("HALCYON_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let mut rounds = 0;
    loop {
        let passed = Command::new("cargo")
            .args(["test", "--quiet"])
            .args(test)
            .env("HALCYON_SEED", seed.to_string())
            .current_dir(crate::root())
            .output();
        match passed {
            Ok(output) if String::from_utf8_lossy(&output.stdout).contains("running 0 tests") => {
                println!("{decoder}: no test is called so any more: cargo test {}", test.join(" "));
                return false;
            }
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                print!("{}", String::from_utf8_lossy(&output.stdout));
                eprint!("{}", String::from_utf8_lossy(&output.stderr));
                println!("{decoder} failed; again: HALCYON_SEED={seed} cargo test {}", test.join(" "));
                return false;
            }
            Err(error) => {
                eprintln!("cargo: {error}");
                return false;
            }
        }
        rounds += 1;
        seed += SEED_STEP;
        if Instant::now() >= deadline {
            println!("{decoder}: {rounds} rounds of damaged input, no failure");
            return true;
        }
    }
}
