//! Comparators that read a cell part as text: `SubstringComparator` and `RegexStringComparator`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use halcyon_cell::{Error, Result};

use crate::Comparator;
use crate::expressions::Expressions;
use crate::regex::JavaRegex;

fn found(found: bool) -> Ordering {
    if found { Ordering::Equal } else { Ordering::Greater }
}

/// `SubstringComparator`: a match if the value, as UTF-8 in lower case, contains the text.
pub(crate) struct SubstringComparator {
    /// In lower case.
    text: String,
}

impl SubstringComparator {
    pub(crate) fn new(text: &str) -> SubstringComparator {
        SubstringComparator { text: text.to_lowercase() }
    }
}

impl Comparator for SubstringComparator {
    fn compare(&self, value: &[u8]) -> Result<Ordering> {
        // Characters outside ASCII may have ASCII lower cases (the Kelvin sign), so both ways are needed.
        Ok(found(if value.is_ascii() {
            contains_ignoring_case(value, self.text.as_bytes())
        } else {
            String::from_utf8_lossy(value).to_lowercase().contains(&self.text)
        }))
    }
}

/// `text` is in lower case.
fn contains_ignoring_case(value: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = text.split_first() else { return true };
    value.windows(text.len()).any(|part| {
        part[0].to_ascii_lowercase() == first
            && part[1..].iter().zip(rest).all(|(byte, text)| byte.to_ascii_lowercase() == *text)
    })
}

/// A character set that a pattern's values are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charset {
    Utf8,
    Latin1,
    Ascii,
    Utf16 { little_endian: bool, mark: bool },
}

impl Charset {
    /// By the names that Java knows it under. An empty name is UTF-8.
    fn by_name(name: &str) -> Result<Charset> {
        Ok(match name.to_ascii_lowercase().replace('_', "-").as_str() {
            "" | "utf-8" | "utf8" | "unicode-1-1-utf-8" => Charset::Utf8,
            "iso-8859-1" | "iso8859-1" | "8859-1" | "iso-8859-1:1987" | "iso-ir-100" | "latin1" | "l1"
            | "ibm819" | "ibm-819" | "cp819" | "819" | "csisolatin1" => Charset::Latin1,
            "us-ascii" | "ascii" | "ascii7" | "iso646-us" | "646" | "cp367" | "ibm367" | "ansi-x3.4-1968"
            | "ansi-x3.4-1986" | "iso-646.irv:1991" | "iso-646.irv:1983" | "iso-ir-6" | "us" | "csascii"
            | "default" => Charset::Ascii,
            "utf-16" | "utf16" | "unicode" | "unicodebig" => {
                Charset::Utf16 { little_endian: false, mark: true }
            }
            "utf-16be" | "x-utf-16be" | "iso-10646-ucs-2" | "unicodebigunmarked" => {
                Charset::Utf16 { little_endian: false, mark: false }
            }
            "utf-16le" | "x-utf-16le" | "unicodelittleunmarked" => {
                Charset::Utf16 { little_endian: true, mark: false }
            }
            _ => return Err(Error::invalid(format!("RegexStringComparator: unknown charset {name}"))),
        })
    }

    fn decode(self, value: &[u8]) -> Cow<'_, str> {
        let mostly_ascii = !matches!(self, Charset::Utf16 { .. });
        if mostly_ascii && value.is_ascii() {
            return Cow::Borrowed(std::str::from_utf8(value).expect("ASCII is UTF-8"));
        }
        match self {
            Charset::Utf8 => String::from_utf8_lossy(value),
            Charset::Latin1 => value.iter().map(|&byte| char::from(byte)).collect(),
            Charset::Ascii => {
                let replace = |&byte: &u8| if byte < 0x80 { char::from(byte) } else { '\u{fffd}' };
                value.iter().map(replace).collect()
            }
            Charset::Utf16 { little_endian, mark } => decode_utf16(value, little_endian, mark).into(),
        }
    }
}

fn decode_utf16(value: &[u8], little_endian: bool, mark: bool) -> String {
    let (value, little_endian) = match value {
        [0xfe, 0xff, rest @ ..] if mark => (rest, false),
        [0xff, 0xfe, rest @ ..] if mark => (rest, true),
        _ => (value, little_endian),
    };
    let units = value.chunks_exact(2).map(|pair| {
        let pair = [pair[0], pair[1]];
        if little_endian { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) }
    });
    let mut text: String =
        char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    if value.len() % 2 == 1 {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    text
}

/// `RegexStringComparator`: a match if the pattern is found anywhere in the value.
///
/// Both engines of HBase, `JAVA` and `JONI`, read Java's syntax; here both are [`JavaRegex`].
pub(crate) struct RegexStringComparator {
    regex: Arc<JavaRegex>,
    charset: Charset,
}

impl RegexStringComparator {
    /// Errors (kind `Invalid`): the pattern does not compile, or charset or engine are unknown.
    pub(crate) fn new(
        pattern: &str,
        flags: i32,
        charset: &str,
        engine: Option<&str>,
        expressions: &mut Expressions,
    ) -> Result<RegexStringComparator> {
        if let Some(engine) = engine
            && engine != "JAVA"
            && engine != "JONI"
        {
            return Err(Error::invalid(format!("RegexStringComparator: unknown engine {engine}")));
        }
        let charset = Charset::by_name(charset)?;
        Ok(RegexStringComparator { regex: expressions.compile(pattern, flags)?, charset })
    }
}

impl Comparator for RegexStringComparator {
    fn compare(&self, value: &[u8]) -> Result<Ordering> {
        Ok(found(self.regex.is_found_in(&self.charset.decode(value))?))
    }

    fn cost(&self) -> u32 {
        self.regex.cost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substrings_ignore_case() {
        let matches =
            |text: &str, value: &[u8]| SubstringComparator::new(text).compare(value).unwrap().is_eq();
        assert!(matches("LL", b"Hello"));
        assert!(matches("", b""));
        assert!(!matches("hello!", b"hello"));
        assert!(matches("k", "\u{212a}".as_bytes()));
        assert!(matches("ÄÖ", "xäöy".as_bytes()));
        assert!(!matches("é", b"e"));
        assert!(matches("\u{fffd}", b"\xff"));
    }

    #[test]
    fn charsets_decode_as_java_does() {
        assert_eq!(Charset::by_name("ISO8859_1").unwrap(), Charset::Latin1);
        assert_eq!(Charset::by_name("").unwrap(), Charset::Utf8);
        assert!(Charset::by_name("klingon").is_err());
        assert_eq!(Charset::Latin1.decode(b"\xe4"), "ä");
        assert_eq!(Charset::Ascii.decode(b"a\xe4"), "a\u{fffd}");
        assert_eq!(Charset::by_name("UTF-16").unwrap().decode(b"\xff\xfea\0"), "a");
        assert_eq!(Charset::by_name("UTF-16BE").unwrap().decode(b"\0ab"), "a\u{fffd}");
    }
}
