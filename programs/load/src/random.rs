//! Numbers that look random, from one seed: cheap enough to make every byte of a value from.

/// A generator (SplitMix64). Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// A generator of another course for each number.
    pub fn fork(seed: u64, number: u64) -> Random {
        let mut random = Random::new(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        random.next_u64();
        random
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is above 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A seed from the operating system.
pub fn random_seed() -> u64 {
    u64::from_ne_bytes(halcyon_env::random_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly_and_repeat_with_the_seed() {
        let mut random = Random::new(7);
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|_| counts[random.below(10) as usize] += 1);
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        let mean = (0..100_000).map(|_| random.fraction()).sum::<f64>() / 100_000.0;
        assert!((mean - 0.5).abs() < 0.01);
        assert_eq!(Random::new(3).next_u64(), Random::new(3).next_u64());
        assert_ne!(Random::fork(3, 0).next_u64(), Random::fork(3, 1).next_u64());
    }
}
