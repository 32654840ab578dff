//! Deliberate bugs of the models, each of which the seeds must find. Those of the master are in `flaws.sh`.

use std::panic::catch_unwind;

use halcyon_sim::{Flaw, Options, simulate};

/// Seeds that are tried.
const SEEDS: u64 = 3000;
const READ_SEEDS: u64 = 300;

fn finds(flaw: Flaw, said: &[&str]) {
    finds_with(Options { flaw: Some(flaw), ..Options::default() }, SEEDS, said);
}

/// With real region servers: their clients read regions, at once or slowly, and rows.
fn readers_find(flaw: Flaw) {
    let options = Options { flaw: Some(flaw), is_real: true, ..Options::default() };
    finds_with(options, READ_SEEDS, &["a read of", "a slow scan of"]);
}

fn finds_with(options: Options, seeds: u64, said: &[&str]) {
    let flaw = options.flaw.expect("there is one");
    for seed in 0..seeds {
        let Err(panic) = catch_unwind(|| simulate(seed, options)) else { continue };
        let text = panic.downcast_ref::<String>().map_or("", String::as_str);
        assert!(said.iter().any(|said| text.contains(said)), "seed {seed} finds something else: {text}");
        println!("{flaw:?}: seed {seed}: {text}");
        return;
    }
    panic!("{seeds} seeds do not find {flaw:?}");
}

#[test]
fn orders_of_deposed_masters() {
    finds(Flaw::NoEpochCheck, &["is at", "after the faults", "is not open"]);
}

#[test]
fn servers_that_return_from_the_dead() {
    finds(Flaw::DeadServersReturn, &["is at", "after the faults", "opens without"]);
}

#[test]
fn wals_that_are_not_sealed() {
    finds(Flaw::NoSeal, &["opens without", "has lost", "is at"]);
}

#[test]
fn writes_that_are_not_synced() {
    finds(Flaw::AcknowledgesUnsynced, &["opens without", "has lost"]);
}

#[test]
fn late_orders_that_count() {
    finds(Flaw::LateOrdersCount, &["is at", "after the faults"]);
}

#[test]
fn leases_that_are_ignored() {
    readers_find(Flaw::LeaseIgnored);
}

#[test]
fn leases_that_are_not_waited_for() {
    readers_find(Flaw::LeaseNotAwaited);
}
