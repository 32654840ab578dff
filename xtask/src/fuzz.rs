//! Damaged input for decoders, again and again with new seeds.
//!
//! The tests themselves live beside their decoders and are seeded; `cargo test` runs each once. Here they run until
//! `HALCYON_FUZZ_SECONDS` have passed (default 60), each time with another `HALCYON_SEED`, which a failure prints.
//! Decoders whose tests damage every byte of a sample once (`hfile`) gain nothing from seeds and are not here.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// (decoder, arguments of `cargo test` that run its tests).
const DECODERS: &[(&str, &[&str])] = &[
    ("filter", &["-p", "halcyon-filter", "--test", "hostile"]),
    ("wal", &["-p", "halcyon-wal", "--test", "damage"]),
    ("rpc", &["-p", "halcyon-rpc", "--test", "garbage"]),
];

/// Runs the tests of one decoder until the time is over; whether all of them passed.
pub fn fuzz(arguments: &[String]) -> bool {
    let found = arguments.first().and_then(|name| DECODERS.iter().find(|(decoder, _)| decoder == name));
    let Some((decoder, test)) = found else {
        let names: Vec<&str> = DECODERS.iter().map(|(name, _)| *name).collect();
        eprintln!("cargo xtask fuzz {}", names.join(" | "));
        return false;
    };
    let seconds = std::env::var("HALCYON_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let mut rounds = 0;
    loop {
        let passed = Command::new("cargo")
            .args(["test", "--quiet"])
            .args(*test)
            .env("HALCYON_SEED", seed.to_string())
            .current_dir(crate::root())
            .output();
        match passed {
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
        seed += 1;
        if Instant::now() >= deadline {
            println!("{decoder}: {rounds} rounds of damaged input, no failure");
            return true;
        }
    }
}
