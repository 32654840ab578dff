//! Comparators: one value that a part of each cell is compared with.

use std::cmp::Ordering;

use halcyon_cell::Result;
use halcyon_proto::pb::CompareType;

/// A value to compare cell parts with (`ByteArrayComparable`).
///
/// *Thread safety*: belongs to one filter, as the filter to one scanner.
pub trait Comparator: Send {
    /// The comparator against `value`: `Less` says that the comparator's own value sorts before `value`.
    /// Comparators that only know match and no match answer `Equal` for a match.
    ///
    /// Errors (kind `Invalid`): the value is not of the form the comparator needs, such as a
    /// `LongComparator` that meets a value of fewer than eight bytes. Kinds `NeedsDisk` and `Stopping`: it would
    /// take longer than this thread may, or than anybody waits (`halcyon_env::Patience`).
    fn compare(&self, value: &[u8]) -> Result<Ordering>;

    /// As [`crate::Filter::cost`].
    fn cost(&self) -> u32 {
        1
    }

    /// As [`crate::Filter::held_bytes`]. What several comparators share is divided among them.
    fn held_bytes(&self) -> usize {
        size_of_val(self)
    }
}

/// Whether `cell part OP comparator` holds, where `ordering` is [`Comparator::compare`]'s answer, the
/// comparator against the part (`CompareFilter.compare`, turned around).
///
/// `NO_OP` keeps nothing in HBase's `CompareFilter`: its users treat it before they compare.
#[inline]
pub fn compare_op_keeps(op: CompareType, ordering: Ordering) -> bool {
    match op {
        CompareType::Less => ordering == Ordering::Greater,
        CompareType::LessOrEqual => ordering != Ordering::Less,
        CompareType::Equal => ordering == Ordering::Equal,
        CompareType::NotEqual => ordering != Ordering::Equal,
        CompareType::GreaterOrEqual => ordering != Ordering::Greater,
        CompareType::Greater => ordering == Ordering::Less,
        CompareType::NoOp => false,
    }
}

/// An operator and the comparator on its right side (`CompareFilter`).
pub(crate) struct Comparison {
    op: CompareType,
    /// Present unless the operator is `NO_OP`.
    comparator: Option<Box<dyn Comparator>>,
}

impl Comparison {
    /// Panics if an operator other than `NO_OP` lacks its comparator.
    pub(crate) fn new(op: CompareType, comparator: Option<Box<dyn Comparator>>) -> Comparison {
        assert!(op == CompareType::NoOp || comparator.is_some(), "an operator needs a comparator");
        Comparison { op, comparator }
    }

    pub(crate) fn op(&self) -> CompareType {
        self.op
    }

    pub(crate) fn cost(&self) -> u32 {
        self.comparator.as_ref().map_or(1, |comparator| comparator.cost())
    }

    /// What it keeps beside its own fields.
    pub(crate) fn held_bytes(&self) -> usize {
        self.comparator.as_ref().map_or(0, |comparator| comparator.held_bytes())
    }

    pub(crate) fn has_comparator(&self) -> bool {
        self.comparator.is_some()
    }

    /// Whether `part OP comparator` holds. `NO_OP` holds for nothing, as in `CompareFilter.compareValue`.
    #[inline]
    pub(crate) fn keeps(&self, part: &[u8]) -> Result<bool> {
        match &self.comparator {
            Some(comparator) if self.op != CompareType::NoOp => {
                Ok(compare_op_keeps(self.op, comparator.compare(part)?))
            }
            _ => Ok(false),
        }
    }

    /// Whether the comparator, if there is one, can compare `part` at all.
    ///
    /// Errors (kind `Invalid`): as [`Comparator::compare`].
    pub(crate) fn check(&self, part: &[u8]) -> Result<()> {
        self.comparator.as_ref().map_or(Ok(()), |comparator| comparator.compare(part).map(|_| ()))
    }
}
