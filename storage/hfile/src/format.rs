//! Small encodings: big-endian integers and Hadoop's variable integers, read with a name for what is missing.

use halcyon_cell::{Error, Result};
use halcyon_env::invariant;

/// Reads integers off the front of a slice. Every read checks the length.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// A reader that has passed over the first `at` bytes.
    pub(crate) fn at_position(bytes: &'a [u8], at: usize) -> Reader<'a> {
        assert!(
            at <= bytes.len(),
            "a position that a reader had before lies in its bytes: {at} of {}",
            bytes.len()
        );
        Reader { bytes, at }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8]> {
        if len > self.left() {
            return Err(Error::corrupt(format!(
                "{what} at position {}: expected {len} bytes, found {}",
                self.at,
                self.left()
            )));
        }
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8> {
        Ok(self.take(1, what)?[0])
    }

    pub(crate) fn u16(&mut self, what: &str) -> Result<u16> {
        Ok(u16::from_be_bytes(self.take(2, what)?.try_into().expect("two bytes")))
    }

    pub(crate) fn i32(&mut self, what: &str) -> Result<i32> {
        Ok(i32::from_be_bytes(self.take(4, what)?.try_into().expect("four bytes")))
    }

    pub(crate) fn i64(&mut self, what: &str) -> Result<i64> {
        Ok(i64::from_be_bytes(self.take(8, what)?.try_into().expect("eight bytes")))
    }

    /// An int32 that counts something: refused below zero.
    pub(crate) fn count(&mut self, what: &str) -> Result<u32> {
        let found = self.i32(what)?;
        u32::try_from(found).map_err(|_| {
            Error::corrupt(format!("{what} at position {}: expected a count, found {found}", self.at - 4))
        })
    }

    pub(crate) fn vlong(&mut self, what: &str) -> Result<i64> {
        match read_vlong(&self.bytes[self.at..]) {
            Some((value, len)) => {
                self.at += len;
                Ok(value)
            }
            None => Err(Error::corrupt(format!("{what} at position {}: expected a VLong", self.at))),
        }
    }

    pub(crate) fn varint32(&mut self, what: &str) -> Result<u32> {
        match read_varint32(&self.bytes[self.at..]) {
            Some((value, len)) => {
                self.at += len;
                Ok(value)
            }
            None => Err(Error::corrupt(format!("{what} at position {}: expected a varint", self.at))),
        }
    }

    /// Bytes with a VInt length in front.
    pub(crate) fn vint_bytes(&mut self, what: &str) -> Result<&'a [u8]> {
        let len = self.vlong(what)?;
        let len = usize::try_from(len)
            .map_err(|_| Error::corrupt(format!("{what}: expected a length, found {len}")))?;
        self.take(len, what)
    }
}

/// Hadoop's VLong: one byte for -112..=127, else a first byte that tells sign and length, then 1 to 8 bytes.
/// Gives the value and the bytes it took; `None` if they are not all there.
#[inline]
pub(crate) fn read_vlong(bytes: &[u8]) -> Option<(i64, usize)> {
    let first = *bytes.first()? as i8;
    if first >= -112 {
        return Some((i64::from(first), 1));
    }
    let len = vlong_len_by_first(first);
    let magnitude = bytes.get(1..len)?.iter().fold(0u64, |sum, &b| (sum << 8) | u64::from(b));
    let negative = first < -120;
    Some((if negative { !magnitude as i64 } else { magnitude as i64 }, len))
}

/// Bytes of a VLong that starts with `first`.
#[inline]
fn vlong_len_by_first(first: i8) -> usize {
    match first {
        -112.. => 1,
        -120..-112 => (-111 - i32::from(first)) as usize,
        _ => (-119 - i32::from(first)) as usize,
    }
}

/// Bytes that `write_vlong` writes.
pub(crate) fn vlong_len(value: i64) -> usize {
    if (-112..=127).contains(&value) {
        return 1;
    }
    let magnitude = if value < 0 { !value as u64 } else { value as u64 };
    9 - (magnitude.leading_zeros() / 8) as usize
}

#[inline]
pub(crate) fn write_vlong(out: &mut Vec<u8>, value: i64) {
    let start = out.len();
    append_vlong(out, value);
    invariant!(
        read_vlong(&out[start..]) == Some((value, vlong_len(value))),
        "{value} comes back, from as many bytes as blocks are closed by"
    );
}

#[inline]
fn append_vlong(out: &mut Vec<u8>, value: i64) {
    if (-112..=127).contains(&value) {
        out.push(value as u8);
        return;
    }
    let magnitude = if value < 0 { !value as u64 } else { value as u64 };
    let len = 8 - (magnitude.leading_zeros() / 8) as usize;
    let base: i8 = if value < 0 { -120 } else { -112 };
    out.push((base - len as i8) as u8);
    out.extend_from_slice(&magnitude.to_be_bytes()[8 - len..]);
}

/// Protobuf's varint32, which the block encodings call "compressed int": low group first.
fn read_varint32(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut value = 0u64;
    for (at, &byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Some((u32::try_from(value).ok()?, at + 1));
        }
    }
    None
}

pub(crate) fn write_varint32(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlongs_come_back_and_300_has_hadoops_bytes() {
        let mut out = Vec::new();
        write_vlong(&mut out, 300);
        assert_eq!(out, hex("8e 01 2c"));
        for value in [0, 1, -1, 127, 128, -112, -113, 255, 256, -256, -257, 1 << 31, i64::MAX, i64::MIN] {
            out.clear();
            write_vlong(&mut out, value);
            assert_eq!(
                (read_vlong(&out), vlong_len(value)),
                (Some((value, out.len())), out.len()),
                "{value}"
            );
            for cut in 0..out.len() {
                assert_eq!(read_vlong(&out[..cut]), None);
            }
        }
    }

    #[test]
    fn varint32_stops_at_five_bytes_and_32_bits() {
        assert_eq!(read_varint32(&[0x96, 0x01]), Some((150, 2)));
        assert_eq!(read_varint32(&[0xff; 8]), None);
        assert_eq!(read_varint32(&[0xff, 0xff, 0xff, 0xff, 0x1f]), None);
        assert_eq!(read_varint32(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Some((u32::MAX, 5)));
        for value in [0, 1, 127, 128, 300, 1 << 14, u32::MAX] {
            let mut out = Vec::new();
            write_varint32(&mut out, value);
            assert_eq!(read_varint32(&out), Some((value, out.len())), "{value}");
        }
    }
}
