//! The fields of an encoded message, read without decoding it.

/// Fields of a message in order, until the bytes end or make no sense. A last field of bytes may be cut off. Fields of groups,
/// which no message of HBase has and decoders pass over, count as fields of the message.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Bytes, a text, a message, or packed numbers.
    Bytes(&'a [u8]),
    Number,
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    #[inline] // other crates look at each call with it
    fn next(&mut self) -> Option<(u64, Value<'a>)> {
        loop {
            let tag = varint(&mut self.0)?;
            let value = match tag & 7 {
                0 => {
                    varint(&mut self.0)?;
                    Value::Number
                }
                1 => {
                    self.0 = self.0.get(8..)?;
                    Value::Number
                }
                2 => {
                    let len = usize::try_from(varint(&mut self.0)?).ok()?;
                    let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
                    self.0 = rest;
                    Value::Bytes(bytes)
                }
                3 | 4 => continue, // begin and end of a group
                5 => {
                    self.0 = self.0.get(4..)?;
                    Value::Number
                }
                _ => return None,
            };
            return Some((tag >> 3, value));
        }
    }
}

#[inline]
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * at).min(63);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decoders pass over groups that they do not know, and a message of many parts could hide behind an empty one.
    #[test]
    fn groups_hide_nothing() {
        let message = [0xfb, 0x01, 0xfc, 0x01, 0x0a, 0x01, b'x', 0x10, 0x07];
        let fields: Vec<_> = Fields(&message).collect();
        assert_eq!(fields, [(1, Value::Bytes(b"x")), (2, Value::Number)]);
    }

    #[test]
    fn a_message_that_is_cut_off_ends() {
        assert_eq!(Fields(&[0x0a, 0x05, b'x']).collect::<Vec<_>>(), [(1, Value::Bytes(b"x"))]);
        assert_eq!(Fields(&[0x08]).count() + Fields(&[0x09, 1, 2]).count() + Fields(&[0x0f]).count(), 0);
        assert_eq!(Fields(&[0xff; 20]).count(), 0);
    }
}
