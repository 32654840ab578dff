/// Consecutive seconds whose rates are compared.
const SECONDS_COUNT: usize = 3;
/// By how much the least of them may be below the largest.
const SPREAD_MAX: f64 = 0.05;

/// Tells when a load has reached its rate: three consecutive seconds differ by less than 5 %.
///
/// A cold JVM can have three equal seconds too, because it interprets evenly. The rule is therefore asked only after the
/// least warm-up is over; docs/LAB.md says how long that is for which side.
#[derive(Clone, Debug, Default)]
pub(super) struct Steady {
    /// Operations per second of each second so far.
    rates_per_s: Vec<f64>,
}

impl Steady {
    pub fn push(&mut self, operations: u64, period_s: f64) {
        assert!(period_s > 0.0, "a second has a length");
        self.rates_per_s.push(operations as f64 / period_s);
    }

    pub fn rates_per_s(&self) -> &[f64] {
        &self.rates_per_s
    }

    pub fn is_reached(&self) -> bool {
        let Some(last) = self.rates_per_s.last_chunk::<SECONDS_COUNT>() else { return false };
        let least = last.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = last.iter().copied().fold(0.0, f64::max);
        largest > 0.0 && largest - least < largest * SPREAD_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached_at(rates: &[u64]) -> Option<usize> {
        let mut steady = Steady::default();
        rates.iter().position(|rate| {
            steady.push(*rate, 1.0);
            steady.is_reached()
        })
    }

    #[test]
    fn three_seconds_of_one_rate_are_steady() {
        assert_eq!(reached_at(&[100, 100]), None);
        assert_eq!(reached_at(&[0, 0, 0, 0]), None, "a server that stands still is not steady");
        assert_eq!(reached_at(&[10, 50, 90, 99, 103, 100, 101]), Some(5));
        assert_eq!(reached_at(&[100, 95, 100]), None, "5 % is too much");
        assert_eq!(reached_at(&[100, 96, 100]), Some(2));
        assert_eq!(reached_at(&[100, 120, 144, 173]), None);
    }

    #[test]
    fn a_second_counts_by_its_length() {
        let mut steady = Steady::default();
        [(100, 1.0), (150, 1.5), (99, 1.0)].into_iter().for_each(|(count, s)| steady.push(count, s));
        assert!(steady.is_reached());
        assert_eq!(steady.rates_per_s(), [100.0, 100.0, 99.0]);
    }
}
