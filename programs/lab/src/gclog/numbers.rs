//! Sizes, changes and times as the collectors write them.

use super::events::HeapChange;

/// Nothing that a JVM measures lasts longer (about 30 years); a longer length is damage.
const LENGTH_MS_MAX: f64 = 1e12;

/// Milliseconds of `3.719ms`.
pub(super) fn millis(text: &str) -> Option<f64> {
    length(text.strip_suffix("ms")?, 1.0)
}

/// A number of some unit as milliseconds; a comma is as good as a point.
pub(super) fn length(number: &str, unit_ms: f64) -> Option<f64> {
    let number = number.trim();
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b',') {
        return None;
    }
    let value: f64 = number.replace(',', ".").parse().ok()?;
    Some(value * unit_ms).filter(|ms| *ms <= LENGTH_MS_MAX)
}

/// Bytes of `96M`, `24576K`, `3072.0K`, `0B`, `0.0B`, `13G`; the rest behind the unit.
pub(super) fn size(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.' || *b == b',').count();
    let number: f64 = text[..digits].replace(',', ".").parse().ok()?;
    let shift = match text.as_bytes().get(digits)? {
        b'B' => 0,
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        _ => return None,
    };
    Some(((number * (1u64 << shift) as f64) as u64, &text[digits + 1..]))
}

/// `24M->1M(92M)`, `128M(100%)->14M(11%)`, `27.0M(256.0M)->21.9M(256.0M)`, `0K->8K(65536K)`: two sizes with an arrow, each perhaps with
/// something in brackets, of which the last is the heap's size if it is one. Nothing may be behind it.
pub(super) fn change(text: &str) -> Option<HeapChange> {
    let (before, rest) = size(text)?;
    let rest = brackets(rest).1.strip_prefix("->")?;
    let (after, rest) = size(rest)?;
    let (inside, rest) = brackets(rest);
    let capacity = inside.and_then(size).filter(|(_, rest)| rest.is_empty()).map(|(bytes, _)| bytes);
    rest.is_empty().then_some(HeapChange { before, after, capacity })
}

/// What stands in brackets at the start, and what is behind.
fn brackets(text: &str) -> (Option<&str>, &str) {
    match text.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((inside, rest)) => (Some(inside), rest),
        None => (None, text),
    }
}

/// Cuts `Young (Normal) (System.gc())` into its words in front and the texts in brackets.
pub(super) fn groups(text: &str) -> (&str, Vec<&str>) {
    let base = text.split_once('(').map_or(text, |(base, _)| base).trim();
    let (mut found, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => {
                depth += 1;
                if depth == 1 {
                    start = at + 1;
                }
            }
            b')' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    found.push(&text[start..at]);
                }
            }
            _ => {}
        }
    }
    (base, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_changes() {
        assert_eq!(size("96M)"), Some((96 << 20, ")")));
        assert_eq!(size("3072.0K"), Some((3 << 20, "")));
        assert_eq!(size("0.0B"), Some((0, "")));
        assert_eq!(size("M"), None);
        let mb = |n: u64| n << 20;
        let expected = HeapChange { before: mb(24), after: mb(1), capacity: Some(mb(92)) };
        assert_eq!(change("24M->1M(92M)"), Some(expected));
        assert_eq!(change("24.0M(92.0M)->1024.0K(92.0M)"), Some(expected));
        assert_eq!(change("24M(26%)->1M(1%)"), Some(HeapChange { capacity: None, ..expected }));
        assert_eq!(change("24M"), None);
        assert_eq!(change("24M->"), None);
    }

    #[test]
    fn names_in_brackets() {
        assert_eq!(groups("Young (Normal) (System.gc())"), ("Young", vec!["Normal", "System.gc()"]));
        assert_eq!(groups("Remark"), ("Remark", vec![]));
        assert_eq!(groups("Young (Nor"), ("Young", vec![]));
        assert_eq!(groups(")("), (")", vec![]));
    }

    #[test]
    fn lengths() {
        assert_eq!(millis("3.719ms"), Some(3.719));
        for bad in ["ms", "-1ms", "infms", "NaNms", "1e9ms", "1..2ms", "99999999999999999999ms"] {
            assert_eq!(millis(bad), None, "{bad}");
        }
    }
}
