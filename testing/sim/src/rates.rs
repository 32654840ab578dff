//! How often what goes wrong, and which operations a seed leaves out.

use std::time::Duration;

use halcyon_env::sim::Dice;

/// One seed of models in so many has rates of its own, and one seed of real servers.
const OWN_ONE_IN: u64 = 4;
const OWN_REAL_ONE_IN: u64 = 2;

/// What a seed may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Batches,
    Increments,
    Appends,
    Reads,
    SlowScans,
    Registers,
    Versions,
    Flushes,
    Compactions,
    Rolls,
    Moves,
    Balances,
    Splits,
    Merges,
    Alters,
    Refusals,
    Kills,
    Freezes,
    MasterKills,
    MasterFreezes,
    NameNode,
    DataNodes,
    SlowDataNodes,
    WrongVerdicts,
    Cuts,
    TakeOvers,
    OldMasters,
}

const KINDS: [Kind; 27] = [
    Kind::Batches,
    Kind::Increments,
    Kind::Appends,
    Kind::Reads,
    Kind::SlowScans,
    Kind::Registers,
    Kind::Versions,
    Kind::Flushes,
    Kind::Compactions,
    Kind::Rolls,
    Kind::Moves,
    Kind::Balances,
    Kind::Splits,
    Kind::Merges,
    Kind::Alters,
    Kind::Refusals,
    Kind::Kills,
    Kind::Freezes,
    Kind::MasterKills,
    Kind::MasterFreezes,
    Kind::NameNode,
    Kind::DataNodes,
    Kind::SlowDataNodes,
    Kind::WrongVerdicts,
    Kind::Cuts,
    Kind::TakeOvers,
    Kind::OldMasters,
];

/// The rates of one simulation. A cluster in which servers die every few seconds never sees an order that comes ten seconds late, so
/// some seeds leave out kinds of faults, and have others more often (Groce and others, "Swarm Testing", 2012).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rates {
    /// The longest time between two things that are done to the cluster.
    pub(crate) pause: Duration,
    /// One order of a master to a model in so many has a fault.
    pub(crate) order_fault_one_in: usize,
    /// One call of a client to a real server in so many has one, and one message between masters and real servers.
    pub(crate) call_fault_one_in: usize,
    pub(crate) message_fault_one_in: usize,
    /// One question or change of a real server to the NameNode in so many, and one write to a file.
    pub(crate) name_fault_one_in: usize,
    pub(crate) write_fault_one_in: usize,
    /// Models do not find each WAL that they are to split.
    pub(crate) misses_wals: bool,
    /// Writers of WALs stop waiting for a late DataNode.
    pub(crate) waits_within: bool,
    /// A bit for each [`Kind`].
    left_out: u32,
    pub(crate) sizes: Sizes,
}

/// From which sizes on real servers do something. Those of a product never come true in half a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// A replay flushes in its middle.
    pub(crate) replay_flush_bytes: u64,
    /// A region flushes.
    pub(crate) flush_bytes: u64,
    /// WALs are rolled.
    pub(crate) roll_bytes: u64,
    pub(crate) roll_period: Duration,
    /// Regions are flushed so that old WALs can go.
    pub(crate) wals_max: usize,
    pub(crate) memory_bytes: u64,
    /// Of what is put.
    pub(crate) value_bytes_max: usize,
}

const USUAL: Rates = Rates {
    pause: Duration::from_millis(300),
    order_fault_one_in: 25,
    call_fault_one_in: 10,
    message_fault_one_in: 25,
    name_fault_one_in: 150,
    write_fault_one_in: 250,
    misses_wals: false,
    waits_within: false,
    left_out: 0,
    sizes: Sizes {
        replay_flush_bytes: 64 << 20,
        flush_bytes: 128 << 20,
        roll_bytes: 128 << 20,
        roll_period: Duration::from_secs(3_600),
        wals_max: 32,
        memory_bytes: 16 << 20,
        value_bytes_max: 5,
    },
};

impl Rates {
    pub(crate) fn of(seed: u64, is_real: bool) -> Rates {
        match is_real {
            true => Rates { sizes: Sizes::of(seed), waits_within: seed % 4 >= 2, ..Rates::of_real(seed) },
            false if seed % OWN_ONE_IN == OWN_ONE_IN - 1 => Rates::own(seed),
            false => USUAL,
        }
    }

    fn of_real(seed: u64) -> Rates {
        match seed % OWN_REAL_ONE_IN == OWN_REAL_ONE_IN - 1 {
            true => Rates::own_real(seed),
            false => USUAL,
        }
    }

    /// Of a cluster of models.
    fn own(seed: u64) -> Rates {
        let mut dice = Dice::new(seed ^ 0x7a7e5);
        let mut rates = Rates {
            pause: dice.pick(&[300, 1_000, 3_000].map(Duration::from_millis)),
            order_fault_one_in: dice.pick(&[4, 25, 100]),
            misses_wals: true,
            ..USUAL
        };
        rates.leave_out(&[Kind::Kills], dice.one_in(3));
        rates.leave_out(&[Kind::Freezes], dice.one_in(3));
        rates.leave_out(&[Kind::MasterKills, Kind::MasterFreezes], !dice.one_in(2));
        rates
    }

    /// Of a cluster of real servers: each kind is left out by one seed of two.
    fn own_real(seed: u64) -> Rates {
        let mut dice = Dice::new(seed ^ 0x5a4);
        let mut rates = Rates {
            pause: dice.pick(&[100, 300, 1_000].map(Duration::from_millis)),
            call_fault_one_in: dice.pick(&[4, 10, 40]),
            message_fault_one_in: dice.pick(&[8, 25, 100]),
            name_fault_one_in: dice.pick(&[50, 150, 600]),
            write_fault_one_in: dice.pick(&[80, 250, 1_000]),
            ..USUAL
        };
        KINDS.iter().for_each(|kind| rates.leave_out(&[*kind], dice.one_in(2)));
        rates
    }

    fn leave_out(&mut self, kinds: &[Kind], is_left_out: bool) {
        let bits = kinds.iter().fold(0, |bits, kind| bits | 1 << *kind as u32);
        self.left_out |= if is_left_out { bits } else { 0 };
    }

    /// Whether this seed does so.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.left_out & 1 << kind as u32 == 0
    }
}

impl Sizes {
    /// Each is small in one seed of two.
    fn of(seed: u64) -> Sizes {
        let mut dice = Dice::new(seed ^ 0x512e);
        let mut small = |usual: u64, small: &[u64]| if dice.one_in(2) { dice.pick(small) } else { usual };
        let usual = USUAL.sizes;
        Sizes {
            replay_flush_bytes: small(usual.replay_flush_bytes, &[1 << 10, 4 << 10, 16 << 10]),
            flush_bytes: small(usual.flush_bytes, &[16 << 10, 64 << 10]),
            roll_bytes: small(usual.roll_bytes, &[8 << 10, 64 << 10]),
            roll_period: Duration::from_secs(small(usual.roll_period.as_secs(), &[1, 5])),
            wals_max: small(usual.wals_max as u64, &[2, 4]) as usize,
            memory_bytes: small(usual.memory_bytes, &[4 << 20, 8 << 20]),
            value_bytes_max: small(usual.value_bytes_max as u64, &[200, 2_000]) as usize,
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
        assert!(own.iter().any(|it| !it.has(Kind::Kills)) && own.iter().any(|it| !it.has(Kind::MasterKills)));
        assert!(own.iter().all(|it| it.has(Kind::MasterKills) == it.has(Kind::MasterFreezes)));
        assert!(own.iter().all(|it| it.has(Kind::Splits)), "models have no use for it");
    }

    #[test]
    fn half_of_the_real_seeds_leave_out_half_of_what_is_done() {
        let own: Vec<Rates> = (0..400).map(Rates::of_real).filter(|it| *it != USUAL).collect();
        assert_eq!(own.len(), 200);
        for kind in KINDS {
            let left_out = own.iter().filter(|it| !it.has(kind)).count();
            assert!((70..=130).contains(&left_out), "{kind:?} is left out by {left_out} of 200");
        }
        let kinds: BTreeSet<u32> = KINDS.iter().map(|kind| *kind as u32).collect();
        assert_eq!(kinds, (0..KINDS.len() as u32).collect());
    }
}
