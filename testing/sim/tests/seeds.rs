//! Clusters from seeds.

use std::collections::BTreeMap;

use halcyon_sim::{Options, simulate};
use halcyon_testkit::for_each_seed;

#[test]
fn a_cluster_keeps_its_promises() {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for_each_seed("-p halcyon-sim --test seeds a_cluster_keeps_its_promises", 0..400, |seed| {
        let report = simulate(seed, Options::default());
        for (what, count) in report.counts {
            *counts.entry(what).or_default() += count;
        }
    });
    println!("{counts:?}");
}

#[test]
fn a_cluster_of_real_servers_keeps_its_promises() {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for_each_seed("-p halcyon-sim --test seeds a_cluster_of_real_servers", 0..60, |seed| {
        let report = simulate(seed, Options { is_real: true, ..Options::default() });
        for (what, count) in report.counts {
            *counts.entry(what).or_default() += count;
        }
    });
    println!("{counts:?}");
}

#[test]
fn a_seed_gives_one_run() {
    for (seed, is_real) in (0..5).flat_map(|seed| [(seed, false), (seed, true)]) {
        let options = Options { is_real, ..Options::default() };
        assert_eq!(simulate(seed, options), simulate(seed, options), "seed {seed}");
    }
}
