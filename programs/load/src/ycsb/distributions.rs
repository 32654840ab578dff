//! Which record comes next: YCSB's distributions.

use crate::random::Random;
use crate::ycsb::keys::fnv_hash;

/// `ZipfianGenerator.ZIPFIAN_CONSTANT`.
const THETA: f64 = 0.99;
/// Items that the scrambled distribution draws from before it hashes (`ScrambledZipfianGenerator.ITEM_COUNT`), and
/// the zeta of so many, which would take minutes to add up.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Numbers from 0 on, small ones far more often (Gray et al., "Quickly generating billion-record synthetic databases").
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    zeta: f64,
    zeta_2: f64,
    eta: f64,
}

impl Zipfian {
    pub fn new(items: u64) -> Zipfian {
        assert!(items > 0, "there is something to draw from");
        Zipfian::with_zeta(items, zeta(0, items, 0.0))
    }

    fn with_zeta(items: u64, zeta_items: f64) -> Zipfian {
        let zeta_2 = zeta(0, 2, 0.0);
        let mut zipfian = Zipfian { items, zeta: zeta_items, zeta_2, eta: 0.0 };
        zipfian.set_eta();
        zipfian
    }

    fn set_eta(&mut self) {
        let share = (2.0 / self.items as f64).powf(1.0 - THETA);
        self.eta = (1.0 - share) / (1.0 - self.zeta_2 / self.zeta);
    }

    /// From now on there are so many items; there are never fewer than before.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.zeta = zeta(self.items, items, self.zeta);
            self.items = items;
            self.set_eta();
        }
    }

    pub fn draw(&self, random: &mut Random) -> u64 {
        let u = random.fraction();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(THETA) {
            return 1.min(self.items - 1);
        }
        let drawn = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
        (drawn as u64).min(self.items - 1)
    }
}

/// The sum of `1 / i^theta` for `i` in `(from, to]`, on top of `sum`.
fn zeta(from: u64, to: u64, sum: f64) -> f64 {
    (from..to).fold(sum, |sum, i| sum + 1.0 / ((i + 1) as f64).powf(THETA))
}

/// `requestdistribution`.
#[derive(Clone, Debug)]
pub enum Distribution {
    Uniform,
    /// Popular records lie anywhere. Drawn from `items`, of which not all need be there yet.
    Zipfian {
        zipfian: Zipfian,
        items: u64,
    },
    /// The newest records are the popular ones.
    Latest(Zipfian),
    /// So large a share of the records gets so large a share of the requests.
    Hotspot {
        data_fraction: f64,
        operation_fraction: f64,
    },
    /// One after the other.
    Sequential {
        next: u64,
    },
}

impl Distribution {
    /// Over `records`, with so many to be inserted during the run.
    pub fn parse(text: &str, records: u64, expected_inserts: u64) -> Option<Distribution> {
        Some(match text {
            "uniform" => Distribution::Uniform,
            "zipfian" => Distribution::Zipfian {
                zipfian: Zipfian::with_zeta(SCRAMBLED_ITEMS, SCRAMBLED_ZETA),
                items: records + expected_inserts,
            },
            "latest" => Distribution::Latest(Zipfian::new(records)),
            "hotspot" => Distribution::Hotspot { data_fraction: 0.2, operation_fraction: 0.8 },
            "sequential" => Distribution::Sequential { next: 0 },
            _ => return None,
        })
    }

    /// A number below `count`, which is how many records are there.
    pub fn draw(&mut self, random: &mut Random, count: u64) -> u64 {
        match self {
            Distribution::Uniform => random.below(count),
            Distribution::Zipfian { zipfian, items } => loop {
                let number = fnv_hash(zipfian.draw(random)) % *items;
                if number < count {
                    return number;
                }
            },
            Distribution::Latest(zipfian) => {
                zipfian.grow(count);
                count - 1 - zipfian.draw(random).min(count - 1)
            }
            Distribution::Hotspot { data_fraction, operation_fraction } => {
                let hot = ((count as f64 * *data_fraction) as u64).clamp(1, count);
                if hot == count || random.fraction() < *operation_fraction {
                    random.below(hot)
                } else {
                    hot + random.below(count - hot)
                }
            }
            Distribution::Sequential { next } => {
                let number = *next % count;
                *next += 1;
                number
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: &mut Distribution, records: u64, draws: u64) -> Vec<u64> {
        let (mut random, mut counts) = (Random::new(11), vec![0; records as usize]);
        (0..draws).for_each(|_| counts[distribution.draw(&mut random, records) as usize] += 1);
        counts
    }

    #[test]
    fn zipfian_items_come_as_often_as_their_rank_says() {
        let (zipfian, mut random) = (Zipfian::new(1_000), Random::new(5));
        let mut counts = vec![0u64; 1_000];
        (0..1_000_000).for_each(|_| counts[zipfian.draw(&mut random) as usize] += 1);
        // P(rank) = 1 / (rank^theta zeta); the method is exact for the first two, near for the others
        let expected = |rank: u64| 1e6 / (rank as f64).powf(THETA) / zeta(0, 1_000, 0.0);
        for (rank, tolerance) in [(1, 0.02), (2, 0.02), (10, 0.15), (100, 0.15)] {
            let found = counts[rank as usize - 1] as f64;
            assert!((found / expected(rank) - 1.0).abs() < tolerance, "{rank}: {found} {}", expected(rank));
        }
    }

    #[test]
    fn a_zipfian_that_grew_is_one_of_that_size() {
        let (mut grown, whole) = (Zipfian::new(10), Zipfian::new(500));
        grown.grow(200);
        grown.grow(500);
        assert!((grown.zeta - whole.zeta).abs() < 1e-9 && (grown.eta - whole.eta).abs() < 1e-9);
    }

    #[test]
    fn the_zeta_of_the_scrambled_one_is_that_of_its_items() {
        // the sum's tail by the integral from n + 1/2 on
        let n = 1_000_000u64;
        let tail = |to: f64| to.powf(1.0 - THETA) / (1.0 - THETA);
        let approximate = zeta(0, n, 0.0) + tail(SCRAMBLED_ITEMS as f64 + 0.5) - tail(n as f64 + 0.5);
        assert!((approximate - SCRAMBLED_ZETA).abs() < 1e-6, "{approximate}");
    }

    #[test]
    fn scrambled_records_are_popular_wherever_they_lie() {
        let mut distribution = Distribution::parse("zipfian", 1_000, 0).unwrap();
        let mut counts = counts(&mut distribution, 1_000, 200_000);
        let most = (0..1_000).max_by_key(|&at| counts[at]).unwrap() as u64;
        assert_eq!(most, fnv_hash(0) % 1_000);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let share = |count: usize| counts[..count].iter().sum::<u64>() as f64 / 200_000.0;
        // 1 / zeta of all draws are the first item
        assert!((share(1) - 1.0 / SCRAMBLED_ZETA).abs() < 0.01, "{}", share(1));
        assert!(share(100) > 0.25 && share(100) < 0.31 && counts[999] > 0);
    }

    #[test]
    fn latest_prefers_the_end_and_moves_with_it() {
        let mut distribution = Distribution::parse("latest", 100, 0).unwrap();
        let counts = counts(&mut distribution, 200, 100_000);
        assert!(counts[199] > counts[198] && counts[198] > counts[150] && counts[199] > 15_000);
    }

    #[test]
    fn hot_records_get_their_share() {
        let counts = counts(&mut Distribution::parse("hotspot", 0, 0).unwrap(), 1_000, 100_000);
        let hot: u64 = counts[..200].iter().sum();
        assert!((79_000..81_000).contains(&hot), "{hot}");
    }

    #[test]
    fn uniform_and_sequential_reach_all() {
        let all = counts(&mut Distribution::parse("uniform", 0, 0).unwrap(), 100, 100_000);
        assert!(all.iter().all(|&count| (800..1_200).contains(&count)));
        let all = counts(&mut Distribution::parse("sequential", 0, 0).unwrap(), 100, 200);
        assert!(all.iter().all(|&count| count == 2));
        assert!(Distribution::parse("normal", 1, 0).is_none());
    }
}
