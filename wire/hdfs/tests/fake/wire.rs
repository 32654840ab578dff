//! Messages of HDFS, as far as these tests need them: protocol buffers by hand.

use std::io::{self, Read};

/// A field of a message. Numbers of fixed size are kept as numbers.
#[derive(Clone, Debug)]
pub enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field with a number.
pub fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A field with a number that may be negative (`sint64`).
pub fn signed(field: u64, value: i64) -> Vec<u8> {
    number(field, ((value << 1) ^ (value >> 63)) as u64)
}

/// A field with bytes, a text or a message.
pub fn bytes(field: u64, value: impl AsRef<[u8]>) -> Vec<u8> {
    [varint((field << 3) | 2), varint(value.as_ref().len() as u64), value.as_ref().to_vec()].concat()
}

/// A message behind its length.
pub fn delimited(message: &[u8]) -> Vec<u8> {
    [varint(message.len() as u64), message.to_vec()].concat()
}

fn take_varint(rest: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let byte = rest[0];
        *rest = &rest[1..];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(len);
    *rest = left;
    taken
}

/// The next message behind its length.
pub fn take_delimited(rest: &mut &[u8]) -> Vec<u8> {
    let len = take_varint(rest) as usize;
    take(rest, len).to_vec()
}

pub fn read_delimited(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = Vec::new();
    loop {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        len.push(byte[0]);
        if byte[0] < 0x80 {
            break;
        }
    }
    let mut message = vec![0; take_varint(&mut &len[..]) as usize];
    from.read_exact(&mut message)?;
    Ok(message)
}

/// A message that was taken apart.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<(u64, Value)>);

impl Message {
    pub fn of(mut rest: &[u8]) -> Message {
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let tag = take_varint(&mut rest);
            let value = match tag & 7 {
                0 => Value::Number(take_varint(&mut rest)),
                1 => Value::Number(u64::from_le_bytes(take(&mut rest, 8).try_into().unwrap())),
                2 => Value::Bytes(take_delimited(&mut rest)),
                5 => Value::Number(u32::from_le_bytes(take(&mut rest, 4).try_into().unwrap()).into()),
                kind => panic!("a field of kind {kind}"),
            };
            fields.push((tag >> 3, value));
        }
        Message(fields)
    }

    fn all(&self, field: u64) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |(of, _)| *of == field).map(|(_, value)| value)
    }

    /// 0 if there is none, as in the protocol.
    pub fn number(&self, field: u64) -> u64 {
        match self.all(field).next() {
            Some(Value::Number(number)) => *number,
            _ => 0,
        }
    }

    pub fn bytes(&self, field: u64) -> Vec<u8> {
        match self.all(field).next() {
            Some(Value::Bytes(bytes)) => bytes.clone(),
            _ => Vec::new(),
        }
    }

    pub fn text(&self, field: u64) -> String {
        String::from_utf8(self.bytes(field)).unwrap()
    }

    pub fn message(&self, field: u64) -> Message {
        Message::of(&self.bytes(field))
    }

    pub fn messages(&self, field: u64) -> Vec<Message> {
        let message = |value: &Value| match value {
            Value::Bytes(bytes) => Message::of(bytes),
            Value::Number(_) => Message::default(),
        };
        self.all(field).map(message).collect()
    }
}
