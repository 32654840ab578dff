//! Numbers as people read them: three digits that count, a unit that fits.

/// What an axis or a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Operations, times, anything without a unit.
    Count,
    /// Kept in bytes; read in KiB, MiB, ...
    Bytes,
    /// Kept in microseconds; read in us, ms, s.
    Length,
    /// Kept in seconds.
    Seconds,
}

impl Quantity {
    /// As in a sentence or a table.
    pub fn text(self, value: f64) -> String {
        match self {
            Quantity::Count => number(value),
            Quantity::Bytes => bytes(value),
            Quantity::Length => length(value),
            Quantity::Seconds => length(value * 1e6),
        }
    }

    /// From one to another, with the unit once if it is the same.
    pub fn range(self, low: f64, high: f64) -> String {
        let (low, high) = (self.text(low), self.text(high));
        match (low.split_once(' '), high.split_once(' ')) {
            (Some((value, unit)), Some((_, other))) if unit == other => format!("{value} – {high}"),
            _ => format!("{low} – {high}"),
        }
    }

    /// Divisor and name of the unit that fits an axis that ends at `end`.
    pub fn axis_unit(self, end: f64) -> (f64, &'static str) {
        let steps: &[(f64, &str)] = match self {
            Quantity::Count => &[(1.0, ""), (1e6, "millions"), (1e9, "thousand millions")],
            Quantity::Bytes => &[
                (1.0, "bytes"),
                (1024.0, "KiB"),
                (1_048_576.0, "MiB"),
                (1_073_741_824.0, "GiB"),
                (1_099_511_627_776.0, "TiB"),
            ],
            Quantity::Length => &[(1.0, "µs"), (1e3, "ms"), (1e6, "s")],
            Quantity::Seconds => return seconds_unit(end),
        };
        // one that is at least 1 at the end; counts only leave 1 where the digits would not fit
        let enough = if self == Quantity::Count { 10.0 } else { 1.0 };
        steps.iter().rev().find(|(divisor, _)| end >= divisor * enough).copied().unwrap_or(steps[0])
    }
}

fn seconds_unit(end: f64) -> (f64, &'static str) {
    match end {
        end if end > 4.0 * 3600.0 => (3600.0, "hours"),
        end if end > 240.0 => (60.0, "minutes"),
        _ => (1.0, "seconds"),
    }
}

/// Three digits that count, or all digits of what is whole and has up to nine; a dash for what is no number.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "–".to_string()
    } else if size == 0.0 {
        "0".to_string()
    } else if !(1e-4..1e15).contains(&size) {
        format!("{value:.2e}")
    } else if size >= 1e9 {
        format!("{} M", grouped_f64(value / 1e6))
    } else if size >= 99.95 {
        grouped_f64(value)
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else if size >= 0.9995 {
        format!("{value:.2}")
    } else {
        let decimals = (2.0 - size.log10().floor()).clamp(3.0, 6.0);
        trimmed(&format!("{value:.0$}", decimals as usize))
    }
}

/// `1,234,567`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn grouped_f64(value: f64) -> String {
    let whole = grouped(value.abs().round() as u64);
    if value < 0.0 { format!("−{whole}") } else { whole }
}

/// Without zeros that say nothing, for axes.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".to_string()
    } else if !(1e-6..1e12).contains(&size) {
        format!("{value:e}")
    } else if size >= 1000.0 {
        grouped_f64(value)
    } else {
        trimmed(&format!("{value:.6}"))
    }
}

fn trimmed(text: &str) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    }
}

/// Unit and value of a length in microseconds.
fn length_parts(us: f64) -> (f64, &'static str) {
    match us.abs() {
        size if size < 999.5 => (us, "µs"),
        size if size < 999_500.0 => (us / 1e3, "ms"),
        size if size < 600e6 => (us / 1e6, "s"),
        size if size < 3.0 * 3600e6 => (us / 60e6, "min"),
        _ => (us / 3600e6, "h"),
    }
}

/// Of microseconds.
pub fn length(us: f64) -> String {
    let (value, unit) = length_parts(us);
    format!("{} {unit}", number(value))
}

/// Of microseconds, for the ticks of a logarithmic axis.
pub fn length_short(us: f64) -> String {
    let (divisor, unit) = match us {
        us if us < 1e3 => (1.0, "µs"),
        us if us < 1e6 => (1e3, "ms"),
        _ => (1e6, "s"),
    };
    format!("{} {unit}", short(us / divisor))
}

pub fn bytes(value: f64) -> String {
    let (mut value, mut unit) = (value, "bytes");
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if value.abs() < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{} {unit}", number(value))
}

/// A part of one, as a percentage.
pub fn share(part: f64) -> String {
    format!("{} %", number(part * 100.0))
}

/// `2026-11-21 03:44 UTC`, of milliseconds since 1970.
pub fn wall_clock(ms: u64) -> String {
    let minutes = ms / 60_000;
    let (days, minute) = (minutes / 1440, minutes % 1440);
    // years of 400 begin on the first of March, so that leap days are last
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{}-{month:02}-{day:02} {:02}:{:02} UTC", year + era * 400 + next, minute / 60, minute % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let values: &[(f64, &str)] = &[
            (0.0, "0"),
            (0.00001234, "1.23e-5"),
            (0.01234, "0.0123"),
            (0.5, "0.5"),
            (0.9999, "1.00"),
            (9.999, "10.0"),
            (12.345, "12.3"),
            (99.96, "100"),
            (61_234.4, "61,234"),
            (1_234_567.0, "1,234,567"),
            (12_345_678_901.0, "12,346 M"),
            (-2500.0, "−2,500"),
            (1e21, "1.00e21"),
            (f64::NAN, "–"),
            (f64::NEG_INFINITY, "–"),
        ];
        for (value, text) in values {
            assert_eq!(number(*value), *text);
        }
    }

    #[test]
    fn units() {
        let lengths = [0.25, 12.0, 999.4, 999.9, 1500.0, 999_900.0, 12_345_678.0, 700e6, 4e10].map(length);
        let expected =
            ["0.25 µs", "12.0 µs", "999 µs", "1.00 ms", "1.50 ms", "1.00 s", "12.3 s", "11.7 min", "11.1 h"];
        assert_eq!(lengths, expected);
        let sizes = [0.0, 1000.0, 1024.0, 1.5e9, 1e18, f64::MAX].map(bytes);
        assert_eq!(sizes[..5], ["0 bytes", "1,000 bytes", "1.00 KiB", "1.40 GiB", "888 PiB"]);
        assert_eq!(
            [1e3, 2e6, 5e4, 20.0, 1e12].map(length_short),
            ["1 ms", "2 s", "50 ms", "20 µs", "1,000,000 s"]
        );
        assert_eq!(Quantity::Length.range(1.0, 2.0), "1.00 – 2.00 µs");
        assert_eq!(Quantity::Length.range(900.0, 2000.0), "900 µs – 2.00 ms");
        assert_eq!(Quantity::Count.range(900.0, 2000.0), "900 – 2,000");
        assert_eq!(share(0.0123), "1.23 %");
    }

    #[test]
    fn dates() {
        let times = [0, 951_782_400_000, 1_795_232_640_000, 4_107_542_399_999].map(wall_clock);
        let expected =
            ["1970-01-01 00:00 UTC", "2000-02-29 00:00 UTC", "2026-11-21 03:44 UTC", "2100-02-28 23:59 UTC"];
        assert_eq!(times, expected);
        assert!(!wall_clock(u64::MAX).is_empty());
    }
}
