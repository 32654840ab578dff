//! The dictionary that tags of a block go through where file info says `hfile.TAGS_COMPRESSED`.
//!
//! ```text
//! per tag: ff | varint length | type and value      not seen yet in this block; takes a slot, unless it is empty
//!          int16 slot                               seen, still in its slot (the first byte is 00)
//! ```
//!
//! 127 slots, given out in order; then the least recently used is given away. Both sides count a use when a tag is
//! added and when it is found. Checked against HBase's `TagCompressionContext` and `LRUDictionary`.

use std::collections::HashMap;

use halcyon_cell::{Error, Result};

use crate::format::{Reader, write_varint32};

/// Slots of the dictionary of a block.
const TAG_SLOTS_COUNT: usize = 127;
const NEW_TAG: u8 = 0xff;

/// Tags of a block that were written already.
#[derive(Default)]
pub(crate) struct TagEncoder {
    slot_of: HashMap<Vec<u8>, usize>,
    slots: Vec<(Vec<u8>, u64)>,
    /// Counts uses; a slot's number is that of its last.
    uses: u64,
}

impl TagEncoder {
    pub(crate) fn clear(&mut self) {
        self.slot_of.clear();
        self.slots.clear();
    }

    /// Writes the tags of one cell, which are well formed.
    pub(crate) fn write(&mut self, mut tags: &[u8], out: &mut Vec<u8>) {
        while let Some((len, rest)) = tags.split_first_chunk::<2>() {
            let (tag, rest) = rest.split_at(usize::from(u16::from_be_bytes(*len)));
            self.write_tag(tag, out);
            tags = rest;
        }
    }

    fn write_tag(&mut self, tag: &[u8], out: &mut Vec<u8>) {
        self.uses += 1;
        if let Some(&slot) = self.slot_of.get(tag) {
            self.slots[slot].1 = self.uses;
            out.extend_from_slice(&(slot as u16).to_be_bytes());
            return;
        }
        out.push(NEW_TAG);
        write_varint32(out, tag.len() as u32);
        out.extend_from_slice(tag);
        if !tag.is_empty() {
            self.add(tag);
        }
    }

    fn add(&mut self, tag: &[u8]) {
        let slot = if self.slots.len() < TAG_SLOTS_COUNT {
            self.slots.push((tag.to_vec(), self.uses));
            self.slots.len() - 1
        } else {
            let oldest = oldest_slot(self.slots.iter().map(|slot| slot.1));
            let (old, _) = std::mem::replace(&mut self.slots[oldest], (tag.to_vec(), self.uses));
            self.slot_of.remove(&old);
            oldest
        };
        self.slot_of.insert(tag.to_vec(), slot);
    }
}

/// Tags of a block that were seen already. When all slots are taken the least recently used is given away.
#[derive(Default)]
pub(crate) struct TagDictionary<'a> {
    slots: Vec<(&'a [u8], u64)>,
    /// Counts uses; a slot's number is that of its last.
    uses: u64,
}

impl<'a> TagDictionary<'a> {
    /// Appends tags of `len` plain bytes.
    pub(crate) fn read(&mut self, reader: &mut Reader<'a>, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let end = out.len() + len;
        while out.len() < end {
            let tag = self.tag(reader)?;
            let left = end - out.len();
            if tag.len() + 2 > left {
                let found = tag.len() + 2;
                return Err(Error::corrupt(format!("tag: expected at most {left} bytes, found {found}")));
            }
            out.extend_from_slice(&(tag.len() as u16).to_be_bytes());
            out.extend_from_slice(tag);
        }
        Ok(())
    }

    fn tag(&mut self, reader: &mut Reader<'a>) -> Result<&'a [u8]> {
        self.uses += 1;
        let status = reader.u8("tag status")?;
        if status != NEW_TAG {
            let slot = usize::from(status) << 8 | usize::from(reader.u8("tag index")?);
            let count = self.slots.len();
            let Some(found) = self.slots.get_mut(slot) else {
                return Err(Error::corrupt(format!("tag index: expected one below {count}, found {slot}")));
            };
            found.1 = self.uses;
            return Ok(found.0);
        }
        let len = reader.varint32("tag length")? as usize;
        let tag = reader.take(len, "tag")?;
        if !tag.is_empty() {
            self.add(tag);
        }
        Ok(tag)
    }

    fn add(&mut self, tag: &'a [u8]) {
        if self.slots.len() < TAG_SLOTS_COUNT {
            self.slots.push((tag, self.uses));
        } else {
            let oldest = oldest_slot(self.slots.iter().map(|slot| slot.1));
            self.slots[oldest] = (tag, self.uses);
        }
    }
}

fn oldest_slot(uses: impl Iterator<Item = u64>) -> usize {
    uses.enumerate().min_by_key(|&(_, uses)| uses).expect("all slots are taken").0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_dictionary_gives_its_oldest_slot_away() {
        let names: Vec<[u8; 2]> = (0..TAG_SLOTS_COUNT as u8 + 1).map(|n| [8, n]).collect();
        let mut tags = TagDictionary::default();
        let mut read = |bytes: &[u8]| {
            let bytes = Box::leak(bytes.to_vec().into_boxed_slice());
            tags.tag(&mut Reader::new(bytes)).map(<[u8]>::to_vec)
        };
        for name in &names[..TAG_SLOTS_COUNT] {
            assert_eq!(read(&[&[0xff, 2], &name[..]].concat()).unwrap(), name);
        }
        assert_eq!(read(&[0, 0]).unwrap(), names[0]);
        read(&[&[0xff, 2], &names[TAG_SLOTS_COUNT][..]].concat()).unwrap();
        assert_eq!(read(&[0, 0]).unwrap(), names[0], "it was used, so slot 1 was given away");
        assert_eq!(read(&[0, 1]).unwrap(), names[TAG_SLOTS_COUNT]);
        assert!(read(&[0, 127]).is_err());
    }

    #[test]
    fn what_was_written_is_read_however_often_slots_change_hands() {
        let (mut encoder, mut packed, mut plain) = (TagEncoder::default(), Vec::new(), Vec::new());
        for n in 0..4000usize {
            let (number, len) = (n * n % 311, n % 5);
            let body: Vec<u8> = (0..len).map(|at| (number >> (at % 2 * 4)) as u8).collect();
            let tag = [&(len as u16).to_be_bytes()[..], &body].concat();
            encoder.write(&tag, &mut packed);
            plain.extend_from_slice(&tag);
        }
        let (mut dictionary, mut reader, mut out) =
            (TagDictionary::default(), Reader::new(&packed), Vec::new());
        dictionary.read(&mut reader, plain.len(), &mut out).unwrap();
        assert!(out == plain && reader.left() == 0 && packed.len() < plain.len());
    }
}
