//! Engine time: sequence ids of writes, and the read points that readers compare them with.

use std::fmt;

/// The number of a write in its region (HBase: mvcc, sequence id). Later writes have higher ones; 0 stands before all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SeqId(u64);

impl SeqId {
    /// Before every write.
    pub const ZERO: SeqId = SeqId(0);
    /// After every write.
    pub const MAX: SeqId = SeqId(u64::MAX);

    #[inline]
    pub const fn new(number: u64) -> SeqId {
        SeqId(number)
    }

    /// For what is written down: logs, files, protobuf messages.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// That of the write after this one.
    #[inline]
    pub const fn next(self) -> SeqId {
        SeqId(self.0 + 1)
    }
}

impl fmt::Display for SeqId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// What a reader sees: all writes up to a sequence id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ReadPoint(u64);

impl ReadPoint {
    /// Sees everything, published or not.
    pub const NEWEST: ReadPoint = ReadPoint(u64::MAX);

    /// Sees this write and all before it.
    #[inline]
    pub const fn at(seq: SeqId) -> ReadPoint {
        ReadPoint(seq.0)
    }

    /// As a client or an HFile scanner gives it.
    #[inline]
    pub const fn new(number: u64) -> ReadPoint {
        ReadPoint(number)
    }

    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether a reader at this point sees that write.
    #[inline]
    pub const fn sees(self, seq: SeqId) -> bool {
        seq.0 <= self.0
    }

    #[inline]
    pub const fn is_newest(self) -> bool {
        self.0 == u64::MAX
    }
}

impl fmt::Display for ReadPoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_point_sees_its_write_and_none_after_it() {
        let seq = SeqId::new(5);
        assert!(ReadPoint::at(seq).sees(seq) && !ReadPoint::at(seq).sees(seq.next()));
        assert!(ReadPoint::NEWEST.sees(SeqId::new(u64::MAX)) && ReadPoint::new(0).sees(SeqId::ZERO));
        assert!(ReadPoint::NEWEST.is_newest() && size_of::<ReadPoint>() == size_of::<u64>());
    }
}
