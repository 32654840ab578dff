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
use halcyon_env::invariant;

use crate::format::{Reader, write_varint32};

/// Slots of the dictionary of a block.
const TAG_SLOTS_COUNT: usize = 127;
const NEW_TAG: u8 = 0xff;
/// No slot's first byte is taken for the mark of a new tag.
const _: () = assert!((TAG_SLOTS_COUNT - 1) >> 8 < NEW_TAG as usize);

/// Tags of a block that were written already.
#[derive(Default)]
pub(super) struct TagEncoder {
    slot_of: HashMap<Vec<u8>, usize>,
    slots: Vec<(Vec<u8>, u64)>,
    /// Counts uses; a slot's number is that of its last.
    uses: u64,
}

impl TagEncoder {
    pub(super) fn clear(&mut self) {
        self.slot_of.clear();
        self.slots.clear();
    }

    /// Writes the tags of one cell, which are well formed.
    pub(super) fn write(&mut self, mut tags: &[u8], out: &mut Vec<u8>) {
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
        invariant!(
            self.slot_of.len() == self.slots.len() && slot < TAG_SLOTS_COUNT,
            "each slot has one tag and each tag one slot, or the reader finds another in slot {slot}: {} and {}",
            self.slots.len(),
            self.slot_of.len()
        );
    }
}

/// Tags of a block that were seen already.
///
/// Which slot a new tag takes depends on every use before it. So that a reader may start in the middle of a block,
/// the first reading of it writes down each tag that took a slot, and later ones replay that.
pub(super) struct TagDictionary<'a> {
    /// Tag, and the number of its last use.
    slots: Vec<(&'a [u8], u64)>,
    /// Counts uses; a slot's number is that of its last.
    uses: u64,
    log: TagLog<'a>,
}

/// Entries are `u32 position of the tag | u16 its length | u16 slot`.
enum TagLog<'a> {
    Learning(Vec<u64>),
    /// What is still to come.
    Replaying(std::slice::Iter<'a, u64>),
}

impl<'a> TagDictionary<'a> {
    /// For the first reading of a block, from its head.
    pub(super) fn learning() -> TagDictionary<'a> {
        TagDictionary { slots: Vec::new(), uses: 0, log: TagLog::Learning(Vec::new()) }
    }

    /// For reading the block `payload` again from position `start` on.
    pub(super) fn replaying(payload: &'a [u8], log: &'a [u64], start: usize) -> Result<TagDictionary<'a>> {
        invariant!(
            log.is_sorted_by_key(|&entry| entry >> 32),
            "tags took their slots in the order in which they lie in the block"
        );
        let done = log.partition_point(|&entry| ((entry >> 32) as usize) < start);
        let mut dictionary =
            TagDictionary { slots: Vec::new(), uses: 0, log: TagLog::Replaying(log[done..].iter()) };
        for &entry in &log[..done] {
            let (at, len) = ((entry >> 32) as usize, (entry >> 16) as u16);
            dictionary.put(entry as u16, &payload[at..at + usize::from(len)])?;
        }
        Ok(dictionary)
    }

    /// What later readings need; empty in a block without tags.
    pub(super) fn into_log(self) -> Vec<u64> {
        match self.log {
            TagLog::Learning(log) => log,
            TagLog::Replaying(_) => Vec::new(),
        }
    }

    /// Appends tags of `len` plain bytes.
    pub(super) fn read(&mut self, reader: &mut Reader<'a>, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let end = out.len() + len;
        while out.len() < end {
            let left = end - out.len();
            let tag = self.tag(reader, left)?;
            out.extend_from_slice(&(tag.len() as u16).to_be_bytes());
            out.extend_from_slice(tag);
        }
        Ok(())
    }

    /// The next tag, which takes at most `plain_len` bytes with its length.
    fn tag(&mut self, reader: &mut Reader<'a>, plain_len: usize) -> Result<&'a [u8]> {
        let fits = |len: usize| {
            if len + 2 <= plain_len {
                return Ok(());
            }
            Err(Error::corrupt(format!("tag: expected at most {plain_len} bytes, found {}", len + 2)))
        };
        self.uses += 1;
        let status = reader.u8("tag status")?;
        if status != NEW_TAG {
            let slot = usize::from(status) << 8 | usize::from(reader.u8("tag index")?);
            let count = self.slots.len();
            let Some(found) = self.slots.get_mut(slot) else {
                return Err(Error::corrupt(format!("tag index: expected one below {count}, found {slot}")));
            };
            found.1 = self.uses;
            return fits(found.0.len()).map(|()| found.0);
        }
        let len = reader.varint32("tag length")? as usize;
        fits(len)?;
        let at = reader.at();
        let tag = reader.take(len, "tag")?;
        if !tag.is_empty() {
            self.add(tag, at)?;
        }
        Ok(tag)
    }

    fn add(&mut self, tag: &'a [u8], at: usize) -> Result<()> {
        let slot = match &mut self.log {
            TagLog::Learning(log) => {
                let slot = match self.slots.len() {
                    free if free < TAG_SLOTS_COUNT => free,
                    _ => oldest_slot(self.slots.iter().map(|slot| slot.1)),
                };
                invariant!(
                    at <= u32::MAX as usize && tag.len() <= usize::from(u16::MAX) && slot < TAG_SLOTS_COUNT,
                    "position {at}, length {} and slot {slot} share a word of the log",
                    tag.len()
                );
                log.push((at as u64) << 32 | (tag.len() as u64) << 16 | slot as u64);
                slot as u16
            }
            TagLog::Replaying(log) => {
                let entry = log.next().filter(|&&entry| (entry >> 32) as usize == at);
                *entry.ok_or_else(|| {
                    Error::corrupt(format!("tag at {at}: not there when the block was checked"))
                })? as u16
            }
        };
        self.put(slot, tag)
    }

    fn put(&mut self, slot: u16, tag: &'a [u8]) -> Result<()> {
        let (slot, count) = (usize::from(slot), self.slots.len());
        match self.slots.get_mut(slot) {
            Some(taken) => *taken = (tag, self.uses),
            None if slot == count => self.slots.push((tag, self.uses)),
            None => return Err(Error::corrupt(format!("tag slot: expected at most {count}, found {slot}"))),
        }
        Ok(())
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
        let mut tags = TagDictionary::learning();
        let mut read = |bytes: &[u8]| {
            let bytes = Box::leak(bytes.to_vec().into_boxed_slice());
            tags.tag(&mut Reader::new(bytes), 100).map(<[u8]>::to_vec)
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
    fn what_was_written_is_read_from_any_tag_on() {
        let mut encoder = TagEncoder::default();
        let (mut packed, mut plain, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..2000usize {
            let (number, len) = (n * n % 311, n % 5);
            let body: Vec<u8> = (0..len).map(|at| (number >> (at % 2 * 4)) as u8).collect();
            let tag = [&(len as u16).to_be_bytes()[..], &body].concat();
            starts.push((packed.len(), plain.len()));
            encoder.write(&tag, &mut packed);
            plain.extend_from_slice(&tag);
        }
        assert!(packed.len() < plain.len());
        let log = read_rest(TagDictionary::learning(), &packed, &plain, (0, 0));
        assert!(log.len() > TAG_SLOTS_COUNT, "slots changed hands");
        for &from in starts.iter().step_by(37) {
            let dictionary = TagDictionary::replaying(&packed, &log, from.0).unwrap();
            read_rest(dictionary, &packed, &plain, from);
        }
    }

    fn read_rest<'a>(
        mut dictionary: TagDictionary<'a>,
        packed: &'a [u8],
        plain: &[u8],
        from: (usize, usize),
    ) -> Vec<u64> {
        let (mut reader, mut out) = (Reader::at_position(packed, from.0), Vec::new());
        dictionary.read(&mut reader, plain.len() - from.1, &mut out).unwrap();
        assert!(out == plain[from.1..] && reader.left() == 0);
        dictionary.into_log()
    }
}
