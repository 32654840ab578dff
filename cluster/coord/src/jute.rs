//! Jute: ZooKeeper's serialization. Big-endian integers; strings and buffers behind an int32 length, -1 for
//! null; vectors behind an int32 count.

use bytes::{Buf, BufMut};

use crate::Stat;

/// The bytes end too early or a length is impossible.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads from the front of a frame.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(frame: &'a [u8]) -> Reader<'a> {
        Reader { rest: frame }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn int(&mut self) -> Result<i32, Malformed> {
        self.rest.try_get_i32().map_err(|_| Malformed)
    }

    pub fn long(&mut self) -> Result<i64, Malformed> {
        self.rest.try_get_i64().map_err(|_| Malformed)
    }

    pub fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.rest.try_get_u8().map_err(|_| Malformed)? != 0)
    }

    /// Null reads as empty.
    pub fn buffer(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.int()?;
        if len == -1 {
            return Ok(&[]);
        }
        let len = usize::try_from(len).map_err(|_| Malformed)?;
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn string(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.buffer()?).map_err(|_| Malformed)
    }
}

/// Appends to a reply.
pub(crate) trait Writer: BufMut {
    fn put_buffer(&mut self, bytes: &[u8]) {
        self.put_i32(i32::try_from(bytes.len()).expect("a znode is shorter than 2 GiB"));
        self.put_slice(bytes);
    }

    fn put_strings<S: AsRef<str>>(&mut self, strings: &[S]) {
        self.put_i32(i32::try_from(strings.len()).expect("fewer than 2^31 children"));
        for string in strings {
            self.put_buffer(string.as_ref().as_bytes());
        }
    }

    fn put_stat(&mut self, stat: &Stat) {
        self.put_i64(stat.created_zxid);
        self.put_i64(stat.modified_zxid);
        self.put_i64(stat.created_ms);
        self.put_i64(stat.modified_ms);
        self.put_i32(stat.version);
        self.put_i32(stat.children_version);
        self.put_i32(0); // version of the access list, which never changes
        self.put_i64(stat.ephemeral_owner);
        self.put_i32(stat.data_len);
        self.put_i32(stat.children_count);
        self.put_i64(stat.children_zxid);
    }
}

impl<B: BufMut> Writer for B {}
