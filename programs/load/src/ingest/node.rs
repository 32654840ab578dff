//! A node: a random row that names another one.
//!
//! ```text
//! row        16 hex digits of a number below 2^63
//! qualifier  4 hex digits of a number below 2^15
//! value      writer ":" count, 16 hex digits ":" row of the node before, or nothing ":" checksum, 8 hex digits
//! ```
//!
//! The checksum is a CRC-32 of row, family, qualifier and the value up to it. The form is that of Accumulo's
//! `ContinuousIngest`.

use bytes::Bytes;
use halcyon_cell::Cell;

/// Rows lie below this.
pub(super) const ROW_END: u64 = 1 << 63;
pub(super) const QUALIFIER_END: u64 = 1 << 15;
pub(super) const FAMILY: &[u8] = b"ci";

pub(super) fn row_key(row: u64) -> Bytes {
    Bytes::copy_from_slice(&digits::<16>(row))
}

/// The cell of a node that refers to `before`.
pub(super) fn cell(row: u64, qualifier: u64, writer: &str, count: u64, before: Option<u64>) -> Cell {
    let (key, qualifier) = (digits::<16>(row), digits::<4>(qualifier));
    let mut value = Vec::with_capacity(writer.len() + 1 + 16 + 1 + 16 + 1 + 8);
    value.extend_from_slice(writer.as_bytes());
    value.push(b':');
    value.extend_from_slice(&digits::<16>(count));
    value.push(b':');
    if let Some(before) = before {
        value.extend_from_slice(&digits::<16>(before));
    }
    value.push(b':');
    let sum = checksum(&key, &qualifier, &value);
    value.extend_from_slice(&digits::<8>(sum.into()));
    Cell::put(&key, FAMILY, &qualifier, i64::MAX, &value)
}

/// The last `N` hex digits of a number, `N` up to 16. Formatting it was a sixth of what a node costs its writer, and one
/// digit after the other a twelfth.
fn digits<const N: usize>(number: u64) -> [u8; N] {
    let mut all = [0; 16];
    all[..8].copy_from_slice(&eight_digits(number >> 32));
    all[8..].copy_from_slice(&eight_digits(number & u64::from(u32::MAX)));
    *all.last_chunk().expect("no more than 16 digits")
}

/// The digits of a number below 2^32, each in a byte of its own from halving to halving, and then made text all at once.
fn eight_digits(number: u64) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut each = number;
    each = (each | each << 16) & 0x0000_ffff_0000_ffff;
    each = (each | each << 8) & 0x00ff_00ff_00ff_00ff;
    each = (each | each << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let is_letter = (each + 6 * ONES) >> 4 & ONES;
    (each + u64::from(b'0') * ONES + is_letter * u64::from(b'a' - b'9' - 1)).to_be_bytes()
}

fn checksum(row: &[u8], qualifier: &[u8], value: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    [row, FAMILY, qualifier, value].into_iter().for_each(|part| sum.update(part));
    sum.finalize()
}

/// A node as it was found: its row, and the one it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub row: u64,
    pub before: Option<u64>,
}

/// Reads a node; `None` if its checksum or its form is wrong.
pub(super) fn parse(cell: &Cell) -> Option<Node> {
    let value = cell.value();
    let end = value.len().checked_sub(8)?;
    let (body, sum) = value.split_at(end);
    if number(sum)? != u64::from(checksum(cell.row(), cell.qualifier(), body)) {
        return None;
    }
    let mut parts = body.strip_suffix(b":")?.rsplit(|byte| *byte == b':');
    let before = match parts.next()? {
        b"" => None,
        before => Some(number(before)?),
    };
    Some(Node { row: number(cell.row())?, before })
}

/// A number of hex digits.
fn number(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_comes_back_as_it_was() {
        let first = cell(0xabc, 0x12, "writer", 7, None);
        assert_eq!(first.row(), b"0000000000000abc");
        assert_eq!(first.qualifier(), b"0012");
        assert!(first.value().starts_with(b"writer:0000000000000007::"));
        assert_eq!(parse(&first), Some(Node { row: 0xabc, before: None }));
        let second = cell(5, 0, "writer", 8, Some(0xabc));
        assert_eq!(parse(&second), Some(Node { row: 5, before: Some(0xabc) }));
    }

    #[test]
    fn digits_are_those_of_the_formatter() {
        for number in [0, 9, 10, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, u64::MAX] {
            assert_eq!(digits::<16>(number), format!("{number:016x}").as_bytes());
            assert_eq!(digits::<4>(number), format!("{:04x}", number & 0xffff).as_bytes());
        }
    }

    #[test]
    fn a_changed_byte_anywhere_is_noticed() {
        let good = cell(0xabc, 0x12, "writer", 7, Some(1));
        for at in 0..good.value().len() {
            let mut value = good.value().to_vec();
            value[at] ^= 1;
            assert_eq!(parse(&Cell::put(good.row(), FAMILY, good.qualifier(), 1, &value)), None, "{at}");
        }
        assert_eq!(parse(&Cell::put(b"0000000000000abd", FAMILY, good.qualifier(), 1, good.value())), None);
        assert_eq!(parse(&Cell::put(good.row(), FAMILY, b"0013", 1, good.value())), None);
        assert_eq!(parse(&Cell::put(good.row(), FAMILY, b"0012", 1, b"")), None);
    }
}
