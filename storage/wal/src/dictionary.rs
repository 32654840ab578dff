//! The dictionaries of a compressed log (HBase: `LRUDictionary`).
//!
//! Writer and reader keep equal dictionaries by doing the same things in the same order. An index is a slot;
//! a full dictionary gives the slot of the least recently used entry to the new one; adding and looking up
//! both make an entry the most recent.

use std::collections::HashMap;
use std::sync::Arc;

use crate::format::put_varint;
use crate::source::{Decode, Source, bad};

/// Status byte of an element that is spelled out.
const NOT_IN_DICTIONARY: u8 = 0xff;
/// No slot.
const NONE: u16 = u16::MAX;

pub(crate) struct Dictionary {
    slots: Vec<Slot>,
    slots_count_max: usize,
    /// Most and least recently used.
    head: u16,
    tail: u16,
}

struct Slot {
    bytes: Arc<[u8]>,
    newer: u16,
    older: u16,
}

impl Dictionary {
    /// For so many entries; at most `i16::MAX`, because an index is a positive int16.
    pub(crate) fn new(slots_count_max: usize) -> Dictionary {
        assert!((1..=i16::MAX as usize).contains(&slots_count_max));
        Dictionary { slots: Vec::new(), slots_count_max, head: NONE, tail: NONE }
    }

    /// Remembers bytes that were spelled out; empty ones never are.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.add_shared(bytes.into());
        }
    }

    /// The slot that the bytes get, and those that had it before.
    fn add_shared(&mut self, bytes: Arc<[u8]>) -> (u16, Option<Arc<[u8]>>) {
        let mut before = None;
        let slot = if self.slots.len() < self.slots_count_max {
            self.slots.push(Slot { bytes, newer: NONE, older: NONE });
            (self.slots.len() - 1) as u16
        } else {
            let slot = self.tail;
            self.unlink(slot);
            before = Some(std::mem::replace(&mut self.slots[usize::from(slot)].bytes, bytes));
            slot
        };
        self.link_first(slot);
        (slot, before)
    }

    /// The entry of an index, which becomes the most recent.
    pub(crate) fn get(&mut self, index: u16) -> Option<&[u8]> {
        if usize::from(index) >= self.slots.len() {
            return None;
        }
        self.unlink(index);
        self.link_first(index);
        Some(&self.slots[usize::from(index)].bytes)
    }

    fn unlink(&mut self, slot: u16) {
        let (newer, older) = (self.slots[usize::from(slot)].newer, self.slots[usize::from(slot)].older);
        match newer {
            NONE => self.head = older,
            _ => self.slots[usize::from(newer)].older = older,
        }
        match older {
            NONE => self.tail = newer,
            _ => self.slots[usize::from(older)].newer = newer,
        }
    }

    fn link_first(&mut self, slot: u16) {
        let old_head = self.head;
        self.slots[usize::from(slot)].newer = NONE;
        self.slots[usize::from(slot)].older = old_head;
        match old_head {
            NONE => self.tail = slot,
            _ => self.slots[usize::from(old_head)].newer = slot,
        }
        self.head = slot;
    }

    /// Reads one element and appends its bytes to `out`; returns their number, at most `len_max`.
    pub(crate) fn read(&mut self, source: &mut Source, len_max: usize, out: &mut Vec<u8>) -> Decode<usize> {
        let status = source.byte()?;
        if status == NOT_IN_DICTIONARY {
            let len = source.varint32()? as usize;
            if len > len_max {
                return bad(format!("dictionary element: expected at most {len_max} bytes, found {len}"));
            }
            let bytes = source.take(len)?;
            self.add(bytes);
            out.extend_from_slice(bytes);
            return Ok(len);
        }
        let index = u16::from_be_bytes([status, source.byte()?]);
        self.append_entry(index, len_max, out)
    }

    /// As `read`, for an element that makes up a whole protobuf field.
    pub(crate) fn read_field(&mut self, field: &[u8]) -> Decode<Vec<u8>> {
        let mut out = Vec::new();
        match field {
            [NOT_IN_DICTIONARY, rest @ ..] => {
                let mut bytes = rest;
                let len = prost::decode_length_delimiter(&mut bytes)
                    .or_else(|_| bad("dictionary element in a key: expected a length, found none"))?;
                if len != bytes.len() {
                    return bad(format!(
                        "dictionary element in a key of {} bytes: expected its end, found {len} bytes",
                        field.len()
                    ));
                }
                self.add(bytes);
                out.extend_from_slice(bytes);
            }
            [high, low] => {
                self.append_entry(u16::from_be_bytes([*high, *low]), usize::MAX, &mut out)?;
            }
            _ => return bad(format!("dictionary element of {} bytes in a key", field.len())),
        }
        Ok(out)
    }

    fn append_entry(&mut self, index: u16, len_max: usize, out: &mut Vec<u8>) -> Decode<usize> {
        let Some(bytes) = self.get(index) else {
            return bad(format!("index {index} is not in the dictionary"));
        };
        if bytes.len() > len_max {
            return bad(format!("dictionary entry of {} bytes, {len_max} allowed", bytes.len()));
        }
        out.extend_from_slice(bytes);
        Ok(bytes.len())
    }
}

/// Goes behind one element; spelled out it has at most `len_max` bytes.
pub(crate) fn skip_element(source: &mut Source, len_max: usize) -> Decode<()> {
    if source.byte()? != NOT_IN_DICTIONARY {
        return source.byte().map(|_| ());
    }
    let len = source.varint32()? as usize;
    if len > len_max {
        return bad(format!("dictionary element: expected at most {len_max} bytes, found {len}"));
    }
    source.take(len).map(|_| ())
}

/// A dictionary that also knows the slots of its entries, to write a file with.
pub(crate) struct WritingDictionary {
    entries: Dictionary,
    slots: HashMap<Arc<[u8]>, u16>,
}

impl WritingDictionary {
    /// As [`Dictionary::new`].
    pub(crate) fn new(slots_count_max: usize) -> WritingDictionary {
        WritingDictionary { entries: Dictionary::new(slots_count_max), slots: HashMap::new() }
    }

    /// Appends the element of some bytes to `out`.
    pub(crate) fn put(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if let Some(slot) = self.slots.get(bytes) {
            let known = self.entries.get(*slot);
            assert_eq!(known, Some(bytes), "an index stands for the bytes that its slot has");
            out.extend_from_slice(&slot.to_be_bytes());
            return;
        }
        out.push(NOT_IN_DICTIONARY);
        put_varint(|byte| out.push(byte), bytes.len() as u64);
        out.extend_from_slice(bytes);
        if bytes.is_empty() {
            return;
        }
        let bytes: Arc<[u8]> = bytes.into();
        let (slot, before) = self.entries.add_shared(bytes.clone());
        before.into_iter().for_each(|before| _ = self.slots.remove(&before));
        self.slots.insert(bytes, slot);
    }

    /// The element of a whole protobuf field.
    pub(crate) fn field(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(bytes, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides do the same with names that come again and again, and with more of them than there are slots.
    #[test]
    fn what_is_written_is_read() {
        let (mut writing, mut reading) = (WritingDictionary::new(5), Dictionary::new(5));
        let (mut indexes, mut spelled) = (0, 0);
        let mut state = 1u32;
        for n in 0..2000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let name = match state >> 24 & 15 {
                15 => Vec::new(),
                number => vec![b'a' + (number as u8 & 7); 1 + number as usize / 8],
            };
            let element = writing.field(&name);
            if element[0] == NOT_IN_DICTIONARY {
                spelled += 1
            } else {
                indexes += 1
            }
            assert_eq!(reading.read_field(&element).unwrap(), name, "{n}");
        }
        assert!(indexes > 100 && spelled > 100, "{indexes} indexes, {spelled} spelled out");
    }

    #[test]
    fn the_least_recently_used_slot_is_taken() {
        let mut dictionary = Dictionary::new(3);
        for bytes in [b"a", b"b", b"c"] {
            dictionary.add(bytes);
        }
        assert_eq!(dictionary.get(0), Some(&b"a"[..])); // now b is the oldest
        dictionary.add(b"d");
        assert_eq!(dictionary.get(1), Some(&b"d"[..]));
        dictionary.add(b"e");
        assert_eq!(dictionary.get(2), Some(&b"e"[..]));
        assert_eq!(dictionary.get(0), Some(&b"a"[..]));
        assert_eq!(dictionary.get(3), None);
        dictionary.add(b"");
        assert_eq!(dictionary.get(1), Some(&b"d"[..]));
    }

    #[test]
    fn one_slot_is_replaced_by_each() {
        let mut dictionary = Dictionary::new(1);
        for bytes in [b"a", b"b", b"c"] {
            dictionary.add(bytes);
            assert_eq!(dictionary.get(0), Some(&bytes[..]));
        }
    }
}
