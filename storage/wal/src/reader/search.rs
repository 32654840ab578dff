//! Where the next whole entry of ours begins, behind damage.
//!
//! Each entry has a check at the end of its key, and a check begins with bytes that can be looked for. A key does not say where it
//! begins, but its length is in front of it: so from a check back, every place is tried whose bytes are that length, the nearest
//! first.
//!
//! Any bytes may be in a value, such that look like a check too. In a file with a salt nearly none of them can be a check of the
//! file (`check.rs`), which is asked before anything is looked for. In a file of before, each of them costs a look back. So what is
//! read in vain has a limit, in proportion to the file, after which nobody can tell what is behind the damage.

use halcyon_cell::Result;

use super::{APPENDED_KEY_LEN_MAX, WalReader};
use crate::check::Check;
use crate::format::{put_varint, varint_len};
use crate::source::{READ_LEN, Stop};

/// Nearly all keys are shorter, also with as many cluster ids as a client may send. Longer ones are looked for afterwards.
const USUAL_KEY_LEN_MAX: usize = 64 << 10;
/// Every key of ours begins with the name of its region.
const REGION_FIELD: u8 = 0x0a;
/// Places in front of one check at which an entry is decoded in vain. In a key of ours hardly one of them looks like its begin.
const PLACES_MAX: usize = 64;
/// What may be read in vain of a file that has so many bytes: a few times the file, and some bytes.
const READ_IN_VAIN_TIMES: u64 = 8;
const READ_IN_VAIN_BYTES: u64 = 64 << 20;

/// What a search for an entry comes to.
pub(super) enum Found {
    /// The offset where it begins.
    Entry(u64),
    Nothing,
    /// So much looks like entries and is none that the search was given up.
    TooMuch,
}

/// What a search may still read in vain.
struct Budget {
    bytes: u64,
}

impl Budget {
    fn spend(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl WalReader {
    /// After a `Corrupt` error: goes to the next whole entry and returns its offset. `None` if there is none, or if none
    /// can be found: only entries of our own carry a mark to find them by.
    pub fn skip_damage(&mut self) -> Result<Option<u64>> {
        if !self.checked || self.compression.is_some() {
            return Ok(None);
        }
        let found = match self.find_entry(self.source.offset() + 1, 0)? {
            Found::Entry(begin) => Some(begin),
            Found::Nothing | Found::TooMuch => None,
        };
        self.done &= found.is_none();
        self.source.seek(found.unwrap_or(self.source.end()));
        Ok(found)
    }

    /// The first whole entry that begins at `from` or behind it and knows that so many bytes were on disk.
    pub(super) fn find_entry(&mut self, from: u64, synced_bytes_min: u64) -> Result<Found> {
        let mut budget = Budget {
            bytes: READ_IN_VAIN_TIMES * self.source.end().saturating_sub(from) + READ_IN_VAIN_BYTES,
        };
        let mut at = from;
        while let Some(attribute_at) = self.find_check(at)? {
            at = attribute_at + 1;
            let Some(check) = self.check_at(attribute_at)? else { continue };
            if check.synced_bytes < synced_bytes_min || !check.can_begin_at(attribute_at) {
                continue;
            }
            let key_end = attribute_at + self.check_form().len() as u64;
            if let Some(begin) = self.entry_with_key_end(key_end, from, &mut budget)? {
                return Ok(Found::Entry(begin));
            }
            if budget.bytes == 0 {
                return Ok(Found::TooMuch);
            }
        }
        Ok(Found::Nothing)
    }

    /// Offset of the next thing that looks like a check.
    fn find_check(&mut self, from: u64) -> Result<Option<u64>> {
        const STEP: usize = 64 << 10;
        let mut at = from;
        loop {
            self.source.seek(at);
            let len = self.source.remaining().min(STEP as u64) as usize;
            if len < self.check_form().len() {
                return Ok(None);
            }
            let prefix = self.check_form().prefix();
            let found = match self.source.take(len) {
                Ok(bytes) => bytes.windows(prefix.len()).position(|window| window == prefix),
                Err(stop) => return Err(self.error(at, stop)),
            };
            if let Some(found) = found {
                return Ok(Some(at + found as u64));
            }
            at += (len - (prefix.len() - 1)) as u64;
        }
    }

    /// What looks like a check. `None` if it cannot be one, or if the file ends in it.
    fn check_at(&mut self, at: u64) -> Result<Option<Check>> {
        let (form, salt) = (self.check_form(), self.salt);
        self.source.seek(at);
        match self.source.take(form.len()) {
            Ok(bytes) => Ok(Check::of_key(bytes, form, salt)),
            Err(Stop::Io(error)) => Err(self.error(at, Stop::Io(error))),
            Err(_) => Ok(None),
        }
    }

    /// Where the whole entry begins whose key ends at `key_end`, if that is at `from` or behind it.
    fn entry_with_key_end(&mut self, key_end: u64, from: u64, budget: &mut Budget) -> Result<Option<u64>> {
        let mut places = 0;
        let mut looked_at = self.check_form().len();
        for key_len_max in [USUAL_KEY_LEN_MAX, APPENDED_KEY_LEN_MAX] {
            let before_key = varint_len(key_len_max as u64) as u64;
            let lowest = from.max(key_end.saturating_sub(key_len_max as u64 + before_key));
            let window = match self.source.copy(lowest, (key_end - lowest) as usize) {
                Ok(window) => window,
                Err(stop) => return Err(self.error(lowest, stop)),
            };
            budget.spend(window.len() as u64);
            for key_len in looked_at + 1..=key_len_max.min(window.len()) {
                let Some(begin) = begin_of_key(&window, key_len) else { continue };
                let begin = lowest + begin as u64;
                if self.is_entry_at(begin)? {
                    return Ok(Some(begin));
                }
                budget.spend(self.source.offset().saturating_sub(begin) + READ_LEN as u64);
                places += 1;
                if places == PLACES_MAX || budget.bytes == 0 {
                    return Ok(None);
                }
            }
            if lowest == from {
                break;
            }
            looked_at = key_len_max;
        }
        Ok(None)
    }

    /// Whether a whole entry begins there.
    fn is_entry_at(&mut self, begin: u64) -> Result<bool> {
        self.source.seek(begin);
        let decoded = match self.compression {
            Some(_) => self.verify_compressed(),
            None => self.decode().map(|_| ()),
        };
        match decoded {
            Ok(()) => Ok(true),
            Err(Stop::Io(error)) => Err(self.error(begin, Stop::Io(error))),
            Err(_) => Ok(false),
        }
    }
}

/// Where the length begins of a key that the window ends with, if the bytes in front of the key are its length.
fn begin_of_key(window: &[u8], key_len: usize) -> Option<usize> {
    let key_at = window.len() - key_len;
    if window[key_at] != REGION_FIELD {
        return None;
    }
    let begin = key_at.checked_sub(varint_len(key_len as u64))?;
    let mut written = window[begin..key_at].iter();
    let mut is_same = true;
    put_varint(|byte| is_same &= written.next() == Some(&byte), key_len as u64);
    is_same.then_some(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_length() {
        for key_len in [30, 127, 128, 16383, 16384, 1 << 20] {
            let mut window = vec![0xff; 7];
            put_varint(|byte| window.push(byte), key_len);
            window.push(REGION_FIELD);
            window.resize(window.len() + key_len as usize - 1, 0xff);
            let found: Vec<_> = (1..=window.len()).filter_map(|len| begin_of_key(&window, len)).collect();
            assert_eq!(found, [7], "{key_len}");
            let cut = &window[8..];
            assert!((1..=cut.len()).all(|len| begin_of_key(cut, len).is_none()), "{key_len}");
        }
    }
}
