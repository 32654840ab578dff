//! Comparators that read a cell part as text: `SubstringComparator` and `RegexStringComparator`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use halcyon_cell::{Error, Result};

use crate::expressions::Expressions;
use crate::regex::JavaRegex;
use crate::{Comparator, looks};

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
        looks::spend_on_bytes(value.len())?;
        // Characters outside ASCII may have ASCII lower cases (the Kelvin sign), so both ways are needed.
        Ok(found(if value.is_ascii() {
            contains_ignoring_case(value, &self.text)
        } else {
            String::from_utf8_lossy(value).to_lowercase().contains(&self.text)
        }))
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.text.capacity()
    }
}

/// So much of a value is put into lower case at a time, at least.
const PART_BYTES: usize = 64 << 10;
/// A value of so many bytes is put into lower case without an allocation.
const SHORT_BYTES: usize = 256;

/// Whether a value of ASCII contains `text`, which is in lower case. Takes time in proportion to the value, whatever is in it: the search
/// of the standard library is linear, and parts of a value overlap by no more than half.
fn contains_ignoring_case(value: &[u8], text: &str) -> bool {
    if text.len() > value.len() {
        return false;
    }
    let contains = |lowered: &[u8]| std::str::from_utf8(lowered).expect("ASCII is UTF-8").contains(text);
    if value.len() <= SHORT_BYTES {
        let mut lowered = [0; SHORT_BYTES];
        let lowered = &mut lowered[..value.len()];
        lowered.copy_from_slice(value);
        lowered.make_ascii_lowercase();
        return contains(lowered);
    }
    let part_bytes = PART_BYTES.max(2 * text.len()).min(value.len());
    let (mut lowered, mut from) = (Vec::with_capacity(part_bytes), 0);
    loop {
        let end = value.len().min(from + part_bytes);
        lowered.clear();
        lowered.extend_from_slice(&value[from..end]);
        lowered.make_ascii_lowercase();
        let is_found = contains(&lowered);
        if is_found || end == value.len() {
            return is_found;
        }
        from = end - text.len().saturating_sub(1); // the text may begin in this part and end in the next one
    }
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
        looks::spend_on_bytes(value.len())?;
        Ok(found(self.regex.is_found_in(&self.charset.decode(value))?))
    }

    fn cost(&self) -> u32 {
        self.regex.cost()
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.regex.held_bytes() / Arc::strong_count(&self.regex)
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

    /// Where a value is longer than what is looked at in one go.
    #[test]
    fn substrings_are_found_across_the_parts_of_a_value() {
        let contains = |value: &[u8], text: &str| contains_ignoring_case(value, &text.to_lowercase());
        for text in ["x", "Xy", "xyxz", &("x".repeat(100_000) + "y")] {
            for before in [0, 1, 255, PART_BYTES - 2, PART_BYTES - 1, PART_BYTES, 2 * PART_BYTES - 3, 300_000]
            {
                let mut value = vec![b'A'; before];
                value.extend_from_slice(text.to_uppercase().as_bytes());
                assert!(contains(&value, text), "{} bytes behind {before}", text.len());
                value.resize(value.len() + 70_000, b'x');
                assert!(contains(&value, text), "{} bytes behind {before}, and more", text.len());
                let end = before + text.len() - 1;
                assert!(!contains(&value[..end], text), "{} bytes behind {before}, cut off", text.len());
            }
        }
        assert!(contains(b"", "") && contains(&[b'a'; 1_000], "") && !contains(&[b'a'; 1_000], "\u{e9}"));
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
