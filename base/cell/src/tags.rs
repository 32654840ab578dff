use crate::{Error, Result};

/// Tag types of HBase (`TagType`).
#[allow(non_snake_case)]
pub mod TagType {
    pub const ACL: u8 = 1;
    pub const VISIBILITY: u8 = 2;
    /// The value stands in a mob file.
    pub const MOB_REFERENCE: u8 = 5;
    /// The table that the mob file is of.
    pub const MOB_TABLE_NAME: u8 = 6;
    pub const TTL: u8 = 8;
}

/// One tag of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag<'a> {
    pub tag_type: u8,
    pub value: &'a [u8],
}

/// Walks a checked tag area: `(int16 length of type and value | byte type | value)*`.
#[derive(Clone)]
pub struct TagIterator<'a>(&'a [u8]);

impl<'a> TagIterator<'a> {
    pub fn new(tags: &'a [u8]) -> TagIterator<'a> {
        TagIterator(tags)
    }

    /// Whether the area is whole: every tag has a type and ends inside.
    pub fn check(mut tags: &[u8]) -> Result<()> {
        while !tags.is_empty() {
            let len = if tags.len() >= 2 { usize::from(u16::from_be_bytes([tags[0], tags[1]])) } else { 0 };
            if len == 0 || 2 + len > tags.len() {
                return Err(Error::corrupt(format!("tag of length {len} in {} bytes of tags", tags.len())));
            }
            tags = &tags[2 + len..];
        }
        Ok(())
    }
}

impl<'a> Iterator for TagIterator<'a> {
    type Item = Tag<'a>;

    fn next(&mut self) -> Option<Tag<'a>> {
        if self.0.len() < 3 {
            return None;
        }
        let len = usize::from(u16::from_be_bytes([self.0[0], self.0[1]]));
        let tag = Tag { tag_type: self.0[2], value: self.0.get(3..2 + len)? };
        self.0 = &self.0[2 + len..];
        Some(tag)
    }
}

/// Appends one tag to a tag area. Panics if the value is longer than 65534 bytes.
pub fn append_tag(tags: &mut Vec<u8>, tag_type: u8, value: &[u8]) {
    let len = u16::try_from(value.len() + 1).expect("a tag is shorter than 64 KiB");
    tags.extend_from_slice(&len.to_be_bytes());
    tags.push(tag_type);
    tags.extend_from_slice(value);
}
