//! Where a value stands between the ends of an axis, and which values are written beside it.

use super::quantity::{Quantity, length_short, short};

/// Values beyond are drawn at the end of their axis. Wide enough for whatever is real (thirty years in microseconds), and
/// narrow enough that nothing overflows.
const VALUE_MAX: f64 = 1e15;
/// What is shorter, on a logarithmic axis: a nanosecond in microseconds.
const LOG_MIN: f64 = 1e-3;
/// Labels of an axis, about.
const LABELS: f64 = 5.0;
/// Decades that each have a label; with more of them, every second, third, ...
const DECADES_LABELLED: i32 = 7;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// From 0 (or below) to a round number.
    Linear { low: f64, high: f64 },
    /// Both ends above 0.
    Log { low: f64, high: f64 },
    /// Of a part of all, 0 to 1, by the logarithm of what is left: as far from 90 % to 99 % as from 99 % to 99.9 %.
    Nines { high: f64 },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// 0 to 1.
    pub at: f64,
    /// Empty for a line without one.
    pub label: String,
}

impl Scale {
    /// From 0 to at least the highest of `values`.
    pub fn linear(values: impl Iterator<Item = f64>) -> Scale {
        let (mut low, mut high) = (0f64, 0f64);
        for value in values.filter(|value| value.is_finite()) {
            low = low.min(value.max(-VALUE_MAX));
            high = high.max(value.min(VALUE_MAX));
        }
        if high <= low {
            high = low + 1.0;
        }
        Scale::Linear { low, high }
    }

    /// A linear scale up to the next half step of its ticks, so that the highest value does not touch the top.
    pub fn rounded(self, quantity: Quantity) -> Scale {
        match self {
            Scale::Linear { low, high } => {
                let unit = quantity.axis_unit(high.max(-low)).0;
                let half = step((high - low) / unit) * unit / 2.0;
                Scale::Linear { low, high: (high / half + 0.2).ceil() * half }
            }
            other => other,
        }
    }

    /// From the 1, 2 or 5 of a decade below the lowest to that above the highest; at least a decade.
    pub fn log(values: impl Iterator<Item = f64>) -> Scale {
        let (mut low, mut high) = (f64::INFINITY, 0f64);
        for value in values.filter(|value| value.is_finite()) {
            let value = value.clamp(LOG_MIN, VALUE_MAX);
            low = low.min(value);
            high = high.max(value);
        }
        if high == 0.0 {
            (low, high) = (1e3, 1e6);
        }
        let low = round_down(low);
        let high = round_up(high).max(low * 10.0);
        Scale::Log { low, high }
    }

    /// 0 at the low end, 1 at the high end; what is beyond is at the end, and what is no number at the low one.
    pub fn at(&self, value: f64) -> f64 {
        if value.is_nan() {
            return 0.0;
        }
        let part = match *self {
            Scale::Linear { low, high } => (value - low) / (high - low),
            Scale::Log { low, high } => (value.max(low) / low).log10() / (high / low).log10(),
            Scale::Nines { high } => -(1.0 - value).max(1e-12).log10() / high,
        };
        part.clamp(0.0, 1.0)
    }

    pub fn ticks(&self, quantity: Quantity) -> Vec<Tick> {
        match *self {
            Scale::Linear { low, high } => linear_ticks(self, low, high, quantity),
            Scale::Log { low, high } => log_ticks(self, low, high, quantity),
            Scale::Nines { high } => nines_ticks(self, high),
        }
    }

    /// For the script: kind and ends.
    pub fn description(&self) -> String {
        match *self {
            Scale::Linear { low, high } => format!("linear {low} {high}"),
            Scale::Log { low, high } => format!("log {low} {high}"),
            Scale::Nines { high } => format!("nines 0 {high}"),
        }
    }
}

/// The step of 1, 2 or 5 times a power of ten that gives about [`LABELS`] of them.
pub fn step(range: f64) -> f64 {
    let rough = range / LABELS;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| power * factor >= rough * 0.8).unwrap_or(10.0);
    power * factor
}

fn linear_ticks(scale: &Scale, low: f64, high: f64, quantity: Quantity) -> Vec<Tick> {
    let (unit, _) = quantity.axis_unit(high.max(-low));
    let step = step((high - low) / unit);
    let (first, last) = ((low / unit / step).ceil(), (high / unit / step + 1e-9).floor());
    let count = (last - first).clamp(0.0, 20.0) as u32;
    let tick = |n: u32| {
        let value = (first + f64::from(n)) * step;
        Tick { at: scale.at(value * unit), label: short((value / step).round() * step) }
    };
    (0..=count).map(tick).collect()
}

fn log_ticks(scale: &Scale, low: f64, high: f64, quantity: Quantity) -> Vec<Tick> {
    let (first, last) = (low.log10().floor() as i32, (high.log10() + 1e-9).floor() as i32);
    let every = ((last - first) / DECADES_LABELLED + 1).max(1);
    let wide = (high / low).log10() > 2.5;
    let mut ticks = Vec::new();
    for decade in first..=last {
        for factor in [1.0, 2.0, 5.0] {
            let value = factor * 10f64.powi(decade);
            if value < low * 0.999 || value > high * 1.001 || (every > 1 && factor != 1.0) {
                continue;
            }
            let labelled = if factor == 1.0 { decade.rem_euclid(every) == 0 } else { !wide };
            let label = match quantity {
                _ if !labelled => String::new(),
                Quantity::Length => length_short(value),
                _ => short(value),
            };
            ticks.push(Tick { at: scale.at(value), label });
        }
    }
    ticks
}

fn nines_ticks(scale: &Scale, high: f64) -> Vec<Tick> {
    let labels = ["0", "50", "90", "99", "99.9", "99.99", "99.999", "99.9999", "99.99999", "99.999999"];
    let value = |at: usize| match at {
        0 => 0.0,
        1 => 0.5,
        nines => 1.0 - 0.1f64.powi(nines as i32 - 1),
    };
    let nines = |at: usize| if at < 2 { 0.0 } else { at as f64 - 1.0 };
    (0..labels.len())
        .filter(|at| nines(*at) <= high)
        .map(|at| Tick { at: scale.at(value(at)), label: labels[at].to_string() })
        .collect()
}

/// The nearest 1, 2 or 5 times a power of ten that is not above.
fn round_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [10.0, 5.0, 2.0, 1.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|round| *round <= value * 1.000_001)
        .unwrap_or(power)
}

fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|round| *round >= value * 0.999_999)
        .unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, quantity: Quantity) -> String {
        let ticks = scale.ticks(quantity);
        assert!(ticks.iter().all(|tick| (0.0..=1.0).contains(&tick.at)), "{ticks:?}");
        assert!(ticks.windows(2).all(|pair| pair[0].at < pair[1].at), "{ticks:?}");
        let labels: Vec<_> =
            ticks.into_iter().map(|tick| tick.label).filter(|label| !label.is_empty()).collect();
        labels.join(" ")
    }

    #[test]
    fn linear_axes_have_round_numbers_at_every_magnitude() {
        let end = |high: f64, quantity| labels(Scale::linear([high].into_iter()), quantity);
        assert_eq!(end(0.0, Quantity::Count), "0 0.2 0.4 0.6 0.8 1");
        assert_eq!(end(0.00073, Quantity::Count), "0 0.0002 0.0004 0.0006");
        assert_eq!(end(61_234.0, Quantity::Count), "0 10,000 20,000 30,000 40,000 50,000 60,000");
        assert_eq!(end(48e6, Quantity::Count), "0 10 20 30 40");
        assert_eq!(end(300.0, Quantity::Seconds), "0 1 2 3 4 5");
        assert_eq!(end(180.0, Quantity::Seconds), "0 50 100 150");
        assert_eq!(end(7.3 * 1024.0 * 1_048_576.0, Quantity::Bytes), "0 2 4 6");
        let rounded = Scale::linear([4.9].into_iter()).rounded(Quantity::Count);
        assert_eq!(rounded, Scale::Linear { low: 0.0, high: 5.0 });
        assert_eq!(end(f64::INFINITY, Quantity::Count), "0 0.2 0.4 0.6 0.8 1");
        assert!(!end(f64::MAX, Quantity::Bytes).is_empty());
    }

    #[test]
    fn logarithmic_axes_have_decades() {
        let ends = |low: f64, high: f64| labels(Scale::log([low, high].into_iter()), Quantity::Length);
        assert_eq!(ends(120.0, 4_100_000.0), "100 µs 1 ms 10 ms 100 ms 1 s");
        assert_eq!(ends(12_000.0, 80_000.0), "10 ms 20 ms 50 ms 100 ms");
        assert_eq!(ends(7.0, 7.0), "5 µs 10 µs 20 µs 50 µs");
        assert_eq!(ends(0.0, 0.0), "0.001 µs 0.002 µs 0.005 µs 0.01 µs");
        assert_eq!(ends(f64::NAN, f64::INFINITY), "1 ms 10 ms 100 ms 1 s");
        assert_eq!(ends(1e-3, 1e15), "0.001 µs 1 µs 1 ms 1 s 1,000 s 1,000,000 s 1,000,000,000 s");
    }

    #[test]
    fn percentiles() {
        assert_eq!(labels(Scale::Nines { high: 4.5 }, Quantity::Count), "0 50 90 99 99.9 99.99");
        let scale = Scale::Nines { high: 4.0 };
        assert!((scale.at(0.99) - 0.5).abs() < 1e-9);
        assert_eq!((scale.at(1.0), scale.at(f64::NAN)), (1.0, 0.0));
    }
}
