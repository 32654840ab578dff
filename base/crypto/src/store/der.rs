//! A reader of ASN.1 in its distinguished encoding (DER): tag, length, contents.

use super::Load;

pub(super) const INTEGER: u8 = 0x02;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const BMP_STRING: u8 = 0x1e;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
/// Explicit tag 0, and the same where the contents are not wrapped again.
pub(super) const CONTEXT: u8 = 0xa0;
pub(super) const CONTEXT_PLAIN: u8 = 0x80;

/// Elements that follow each other.
#[derive(Clone, Copy)]
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Der<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The tag of the next element.
    pub(super) fn tag(self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The contents of the next element, which must have this tag.
    pub(super) fn take(&mut self, tag: u8) -> Load<Der<'a>> {
        let (found, contents) = self.any()?;
        if found != tag {
            return Err(format!("java.io.IOException: DER: expected tag {tag:02x}, found {found:02x}"));
        }
        Ok(contents)
    }

    /// Tag and contents of the next element.
    pub(super) fn any(&mut self) -> Load<(u8, Der<'a>)> {
        let cut = || "java.io.EOFException: DER: an element is cut short".to_string();
        let (&tag, rest) = self.0.split_first().ok_or_else(cut)?;
        let (&first, rest) = rest.split_first().ok_or_else(cut)?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (len, rest) = rest.split_at_checked(usize::from(first - 0x80)).ok_or_else(cut)?;
                (len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
            _ => return Err(format!("java.io.IOException: DER: length {first:02x} is not supported")),
        };
        let (contents, rest) = rest.split_at_checked(len).ok_or_else(cut)?;
        self.0 = rest;
        Ok((tag, Der(contents)))
    }

    /// A number that is not negative and has at most 32 bits.
    pub(super) fn number(&mut self) -> Load<u32> {
        let Der(bytes) = self.take(INTEGER)?;
        let too_large = || "java.io.IOException: DER: a number is negative or too large".to_string();
        if bytes.is_empty() || bytes[0] >= 0x80 || bytes.len() > 5 {
            return Err(too_large());
        }
        let sum = bytes.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        u32::try_from(sum).map_err(|_| too_large())
    }

    pub(super) fn octets(&mut self) -> Load<&'a [u8]> {
        self.take(OCTETS).map(|contents| contents.0)
    }

    /// An object identifier as numbers with dots.
    pub(super) fn oid(&mut self) -> Load<String> {
        let Der(bytes) = self.take(OID)?;
        let (mut parts, mut number) = (Vec::new(), 0u64);
        for byte in bytes {
            number = number.checked_mul(128).ok_or("java.io.IOException: DER: an identifier is too large")?
                | u64::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                if parts.is_empty() {
                    let first = (number / 40).min(2);
                    parts.extend([first, number - first * 40]);
                } else {
                    parts.push(number);
                }
                number = 0;
            }
        }
        Ok(parts.iter().map(u64::to_string).collect::<Vec<_>>().join("."))
    }
}
