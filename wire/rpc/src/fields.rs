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

impl<'a> Value<'a> {
    /// None of a number.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            Value::Number => &[],
        }
    }
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

impl<'a> Fields<'a> {
    /// The next field of bytes; numbers are passed over. Most fields have a tag of one byte, and a length of one or two.
    #[inline]
    pub fn next_bytes(&mut self) -> Option<(u64, &'a [u8])> {
        /// Of the first byte of a tag: whether more of the tag follows, and what the field holds.
        const MORE_AND_KIND: u8 = 0x87;
        const NUMBER: u8 = 0;
        const BYTES: u8 = 2;
        let mut fields = self.0;
        loop {
            let [tag, next, rest @ ..] = fields else { return None };
            let (len, rest) = match (tag & MORE_AND_KIND, next, rest) {
                (NUMBER, 0..0x80, rest) | (NUMBER, _, [0..0x80, rest @ ..]) => {
                    fields = rest;
                    continue;
                }
                (BYTES, 0..0x80, rest) => (usize::from(*next), rest),
                (BYTES, _, [high @ 0..0x80, rest @ ..]) => {
                    (usize::from(*high) << 7 | usize::from(next & 0x7f), rest)
                }
                _ => match next_of_any(fields)? {
                    (number, Value::Bytes(bytes), rest) => {
                        self.0 = rest;
                        return Some((number, bytes));
                    }
                    (_, Value::Number, rest) => {
                        fields = rest;
                        continue;
                    }
                },
            };
            let (bytes, rest) = rest.split_at(len.min(rest.len()));
            self.0 = rest;
            return Some((u64::from(tag >> 3), bytes));
        }
    }

    /// As [`Fields::next_bytes`], one after the other.
    #[inline]
    pub fn of_bytes(mut self) -> impl Iterator<Item = (u64, &'a [u8])> {
        std::iter::from_fn(move || self.next_bytes())
    }
}

/// A field of any kind, and what is behind it.
#[inline(never)]
pub(crate) fn next_of_any(fields: &[u8]) -> Option<(u64, Value<'_>, &[u8])> {
    let mut fields = Fields(fields);
    let (number, value) = fields.next()?;
    Some((number, value, fields.0))
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

    /// However tags and lengths are written, both ways through a message see the same.
    #[test]
    fn fields_of_bytes_are_the_same_ones() {
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut found = 0;
        for len in (0..40).cycle().take(20_000) {
            let mut message = Vec::with_capacity(len);
            for _ in 0..len {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let byte = (random >> 56) as u8;
                let often = [0x0a, 0x12, 0x08, 0x92, 0x01, 0x80, 0x0b, 0x0d];
                message.push(if random >> 40 & 3 == 0 { byte } else { often[usize::from(byte & 7)] });
            }
            let slowly: Vec<_> = Fields(&message)
                .filter_map(|(number, value)| match value {
                    Value::Bytes(bytes) => Some((number, bytes)),
                    Value::Number => None,
                })
                .collect();
            assert_eq!(Fields(&message).of_bytes().collect::<Vec<_>>(), slowly, "{message:02x?}");
            found += slowly.len();
        }
        assert!(found > 10_000, "{found}");
        let message =
            [&[0x12, 0x90, 0x03][..], &[b'x'; 400], &[0x08, 0xff, 0xff, 0x7f, 0x1a, 0x01, b'y']].concat();
        let lens = Fields(&message).of_bytes().map(|(number, bytes)| (number, bytes.len()));
        assert_eq!(lens.collect::<Vec<_>>(), [(2, 400), (3, 1)]);
    }

    #[test]
    fn a_message_that_is_cut_off_ends() {
        assert_eq!(Fields(&[0x0a, 0x05, b'x']).collect::<Vec<_>>(), [(1, Value::Bytes(b"x"))]);
        assert_eq!(Fields(&[0x08]).count() + Fields(&[0x09, 1, 2]).count() + Fields(&[0x0f]).count(), 0);
        assert_eq!(Fields(&[0xff; 20]).count(), 0);
    }
}
