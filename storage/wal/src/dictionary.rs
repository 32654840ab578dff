//! The dictionaries of a compressed log (HBase: `LRUDictionary`).
//!
//! Writer and reader keep equal dictionaries by doing the same things in the same order. An index is a slot;
//! a full dictionary gives the slot of the least recently used entry to the new one; adding and looking up
//! both make an entry the most recent.

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
    bytes: Box<[u8]>,
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
        if bytes.is_empty() {
            return;
        }
        let slot = if self.slots.len() < self.slots_count_max {
            self.slots.push(Slot { bytes: bytes.into(), newer: NONE, older: NONE });
            (self.slots.len() - 1) as u16
        } else {
            let slot = self.tail;
            self.unlink(slot);
            self.slots[usize::from(slot)].bytes = bytes.into();
            slot
        };
        self.link_first(slot);
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
                return bad(format!("dictionary element of {len} bytes, {len_max} allowed"));
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
                    .or_else(|_| bad("dictionary element without length in a key"))?;
                if len != bytes.len() {
                    return bad(format!("dictionary element of {len} bytes in a field of {}", field.len()));
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

#[cfg(test)]
mod tests {
    use super::*;

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
