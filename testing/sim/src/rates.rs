//! How often what goes wrong.

use std::time::Duration;

use halcyon_env::sim::Dice;

/// One seed in so many has rates of its own.
const OWN_ONE_IN: u64 = 4;

/// The rates of one simulation. A cluster in which servers die every few seconds never sees an order that comes ten seconds late, so
/// some seeds leave out kinds of faults, and have others more often (Groce and others, "Swarm Testing", 2012).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rates {
    /// The longest time between two things that are done to the cluster.
    pub(crate) pause: Duration,
    /// One order of a master to a model in so many has a fault.
    pub(crate) order_fault_one_in: usize,
    pub(crate) kills_servers: bool,
    pub(crate) freezes_servers: bool,
    pub(crate) disturbs_masters: bool,
}

const USUAL: Rates = Rates {
    pause: Duration::from_millis(300),
    order_fault_one_in: 25,
    kills_servers: true,
    freezes_servers: true,
    disturbs_masters: true,
};

impl Rates {
    /// Seeds with real servers have the usual ones.
    pub(crate) fn of(seed: u64, is_real: bool) -> Rates {
        if is_real || seed % OWN_ONE_IN != OWN_ONE_IN - 1 {
            return USUAL;
        }
        let mut dice = Dice::new(seed ^ 0x7a7e5);
        Rates {
            pause: dice.pick(&[300, 1_000, 3_000].map(Duration::from_millis)),
            order_fault_one_in: dice.pick(&[4, 25, 100]),
            kills_servers: !dice.one_in(3),
            freezes_servers: !dice.one_in(3),
            disturbs_masters: dice.one_in(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn some_seeds_have_rates_of_their_own() {
        let own: Vec<Rates> = (0..400).map(|seed| Rates::of(seed, false)).filter(|it| *it != USUAL).collect();
        assert!((90..=100).contains(&own.len()), "{} of 400", own.len());
        let pauses: BTreeSet<Duration> = own.iter().map(|it| it.pause).collect();
        assert_eq!(pauses.len(), 3);
        assert!(own.iter().any(|it| !it.kills_servers) && own.iter().any(|it| !it.disturbs_masters));
        assert!((0..400).all(|seed| Rates::of(seed, true) == USUAL));
    }
}
