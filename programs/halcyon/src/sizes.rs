//! Sizes as people write them.

use std::fmt;
use std::str::FromStr;

/// Bytes; written as a whole number, perhaps with `k`, `m`, `g` or `t` behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match &lower[digits.len()..] {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            unit => return Err(format!("{unit:?} is not a unit; use k, m, g or t")),
        };
        let number: u64 = digits.trim().parse().map_err(|_| format!("{text:?} is not a size"))?;
        number.checked_mul(1 << shift).map(Size).ok_or_else(|| format!("{text:?} is too large"))
    }
}

/// The largest unit that loses nothing.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "t"), (30, "g"), (20, "m"), (10, "k")] {
            if self.0 > 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_and_parse_back() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("1k", 1 << 10),
            ("1536k", 1536 << 10),
            ("512m", 512 << 20),
            ("4g", 4 << 30),
            ("1t", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!("2GB".parse(), Ok(Size(2 << 30)));
        for bad in ["", "g", "1x", "-1", "1.5g", "99999999t"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
