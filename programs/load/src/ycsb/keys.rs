//! Keys, and which of them are there.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

/// YCSB's hash of a number (`Utils.fnvhash64`): FNV over its eight bytes, lowest first, without the sign.
pub fn fnv_hash(number: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in number.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash as i64).unsigned_abs()
}

/// How numbers become keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFormat {
    /// `insertorder=ordered`: the number itself and not its hash.
    pub is_ordered: bool,
    /// `zeropadding`: digits at least.
    pub digits: usize,
}

impl KeyFormat {
    /// `user` and the number or its hash (`CoreWorkload.buildKeyName`).
    pub fn key(self, number: u64) -> Bytes {
        let number = if self.is_ordered { number } else { fnv_hash(number) };
        Bytes::from(format!("user{number:0digits$}", digits = self.digits))
    }
}

/// Numbers of records that are inserted while others are read (`AcknowledgedCounterGenerator`).
///
/// *Thread safety*: shared by all clients. A record counts as there when it and all before it were acknowledged.
pub struct Inserted {
    next: AtomicU64,
    /// All below are there.
    there: AtomicU64,
    /// Acknowledged ones above a gap.
    ahead: Mutex<BTreeSet<u64>>,
}

impl Inserted {
    /// Records below `count` are there.
    pub fn new(count: u64) -> Inserted {
        Inserted { next: AtomicU64::new(count), there: AtomicU64::new(count), ahead: Mutex::default() }
    }

    /// The number of a record to be inserted.
    pub fn begin(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn acknowledge(&self, number: u64) {
        let mut ahead = self.ahead.lock();
        ahead.insert(number);
        let mut there = self.there.load(Ordering::Relaxed);
        while ahead.remove(&there) {
            there += 1;
        }
        self.there.store(there, Ordering::Relaxed);
    }

    /// How many are there, from 0 on.
    pub fn count(&self) -> u64 {
        self.there.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_ycsb() {
        let hashed = KeyFormat { is_ordered: false, digits: 1 };
        // the first records that YCSB 0.17 loads
        assert_eq!(&hashed.key(0)[..], b"user6284781860667377211");
        assert_eq!(&hashed.key(1)[..], b"user8517097267634966620");
        assert_eq!(&KeyFormat { is_ordered: true, digits: 1 }.key(17)[..], b"user17");
        assert_eq!(&KeyFormat { is_ordered: true, digits: 5 }.key(17)[..], b"user00017");
    }

    #[test]
    fn a_record_is_there_when_all_before_it_are() {
        let inserted = Inserted::new(10);
        let numbers: Vec<u64> = (0..3).map(|_| inserted.begin()).collect();
        assert_eq!(numbers, [10, 11, 12]);
        inserted.acknowledge(11);
        assert_eq!(inserted.count(), 10);
        inserted.acknowledge(10);
        assert_eq!(inserted.count(), 12);
    }
}
