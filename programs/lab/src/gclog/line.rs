//! What stands in front of a message: the decorations of the unified log, or the stamps of JDK 8.
//!
//! ```text
//! [2026-11-21T01:56:46.048+0000][0.047s][info ][gc,phases   ] GC(0)   Other: 0.2ms
//!  time or utctime               uptime  level  tags           message
//! 2015-05-26T16:23:07.219-0200: 64.322: [GC pause (G1 Evacuation Pause) (young), 0.0200001 secs]
//!  date stamp                   uptime  message
//! ```
//!
//! Which decorations a log has is the choice of `-Xlog`; each is known by its look, not by its place. Milliseconds and
//! nanoseconds are an age of the process or a time since 1970: an age of thirty years is a time.

/// Times above this many milliseconds count from 1970 (1 January 2001), those below from the start of the process.
const EPOCH_MS_MIN: f64 = 978_307_200_000.0;

/// One line, cut into what was in front and the message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line<'a> {
    /// Seconds since the process began.
    pub uptime_s: Option<f64>,
    /// Milliseconds since 1970.
    pub wall_ms: Option<f64>,
    /// The last decoration, if it looks like tags.
    pub tags: Option<&'a str>,
    /// Whether there was anything in front at all.
    pub decorated: bool,
    pub message: &'a str,
}

impl<'a> Line<'a> {
    pub fn cut(text: &'a str) -> Line<'a> {
        if text.starts_with('[') { Line::unified(text) } else { Line::stamped(text) }
    }

    fn unified(text: &'a str) -> Line<'a> {
        let mut line = Line { uptime_s: None, wall_ms: None, tags: None, decorated: false, message: text };
        while let Some(rest) = line.message.strip_prefix('[') {
            let Some((inside, behind)) = rest.split_once(']') else { break };
            if !line.decoration(inside.trim_end()) && !line.decorated {
                break;
            }
            line.decorated = true;
            line.message = behind;
            if !behind.starts_with('[') {
                break;
            }
        }
        if line.decorated {
            line.message = line.message.strip_prefix(' ').unwrap_or(line.message);
        }
        line
    }

    /// Takes one decoration in; whether a unified log would have it.
    fn decoration(&mut self, inside: &'a str) -> bool {
        if let Some(ms) = wall_ms(inside) {
            self.wall_ms = Some(ms);
        } else if let Some(ms) =
            number_before(inside, "ms").or(number_before(inside, "ns").map(|ns| ns / 1e6))
        {
            if ms >= EPOCH_MS_MIN { self.wall_ms = Some(ms) } else { self.uptime_s = Some(ms / 1e3) }
        } else if let Some(s) = number_before(inside, "s") {
            self.uptime_s = Some(s);
        } else if !inside.is_empty()
            && inside.bytes().all(|b| b.is_ascii_lowercase() || b == b',' || b == b'+')
        {
            self.tags = Some(inside);
        } else {
            // the name of the machine, a process or thread number
            return !inside.is_empty()
                && inside.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        }
        true
    }

    fn stamped(text: &'a str) -> Line<'a> {
        let mut line = Line { uptime_s: None, wall_ms: None, tags: None, decorated: false, message: text };
        if let Some((stamp, behind)) = text.split_once(": ")
            && let Some(ms) = wall_ms(stamp)
        {
            line = Line { wall_ms: Some(ms), decorated: true, message: behind, ..line };
        }
        if let Some((stamp, behind)) = line.message.split_once(": ")
            && stamp.len() > 3
            && stamp.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b',')
            && let Ok(s) = stamp.replace(',', ".").parse()
        {
            line = Line { uptime_s: Some(s), decorated: true, message: behind, ..line };
        }
        line
    }
}

/// A number directly before a unit, with nothing else around.
fn number_before(text: &str, unit: &str) -> Option<f64> {
    let digits = text.strip_suffix(unit)?;
    let looks = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b',');
    if looks { digits.replace(',', ".").parse().ok() } else { None }
}

/// Milliseconds since 1970 of `2026-11-21T01:56:46.048+0000`.
fn wall_ms(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    if bytes.len() != 28 || bytes[10] != b'T' || !text.is_ascii() {
        return None;
    }
    let number = |from: usize, to: usize| text[from..to].parse::<u32>().ok().map(i64::from);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second, ms) = (number(11, 13)?, number(14, 16)?, number(17, 19)?, number(20, 23)?);
    let offset_min = number(24, 26)? * 60 + number(26, 28)?;
    let east = match bytes[23] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let minutes = days_since_1970(year, month, day) * 1440 + hour * 60 + minute - east * offset_min;
    Some(((minutes * 60 + second) * 1000 + ms) as f64)
}

/// Days from 1 January 1970 in the Gregorian calendar; years begin in March, so that the leap day is the last one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 306 + 5) / 10 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decorations_of_every_kind() {
        let line =
            Line::cut("[2026-11-21T01:56:46.048+0000][0.047s][info ][gc,phases   ] GC(0)   Other: 0.2ms");
        assert_eq!(line.uptime_s, Some(0.047));
        assert_eq!(line.wall_ms, Some(1_795_226_206_048.0));
        assert_eq!((line.tags, line.message), (Some("gc,phases"), "GC(0)   Other: 0.2ms"));
        let line = Line::cut("[2026-11-21T01:57:09.482+0000][vm-7][11571][11576][info][gc] Using G1");
        assert_eq!((line.uptime_s, line.tags, line.message), (None, Some("gc"), "Using G1"));
        assert_eq!(Line::cut("[1795226206048ms][190ms] x").uptime_s, Some(0.19));
        assert_eq!(Line::cut("[1795226206048ms][190ms] x").wall_ms, Some(1_795_226_206_048.0));
        assert_eq!(Line::cut("[190000000ns] x").uptime_s, Some(0.19));
        assert_eq!(Line::cut("[0,190s] x").uptime_s, Some(0.19), "a comma where the locale wants one");
        assert!(!Line::cut("GC(0) Pause Young").decorated);
    }

    #[test]
    fn stamps_of_jdk_8() {
        let line = Line::cut("2015-05-26T16:23:07.219-0200: 64.322: [GC pause");
        assert_eq!(
            (line.uptime_s, line.wall_ms, line.message),
            (Some(64.322), Some(1_432_664_587_219.0), "[GC pause")
        );
        assert_eq!(Line::cut("64.322: [Full GC").uptime_s, Some(64.322));
        let line = Line::cut("   [Eden: 24.0M(24.0M)->0.0B(13.0M)]");
        assert!(!line.decorated && line.message.starts_with("   [Eden"));
        assert!(!Line::cut("[Eden: 24.0M(24.0M)->0.0B(13.0M) Heap: 1.0M(2.0M)->1.0M(2.0M)]").decorated);
        assert!(!Line::cut("[GC (Allocation Failure)  64M->10M(256M), 0.0123 secs]").decorated);
    }

    #[test]
    fn nonsense_is_left_alone() {
        for text in
            ["", "[", "[]", "[][]", "[x", "::", "2015-05-26T16:23:07.219", "2015-05-26T16:23:07.21é-020: x"]
        {
            let _ = Line::cut(text);
        }
        assert_eq!(Line::cut("[2015-99-99T99:99:99.999+9999] x").message, "x");
    }
}
