//! The order of nodes: by key, then by descending sequence id; and a number per row that decides it mostly.

use std::cmp::Ordering;

use halcyon_cell::{CellComparator, KeyRef, SeqId};

use crate::node::NodeRef;

/// What is looked for: a place among the keys, and among equal keys a place among the sequence ids.
pub(crate) struct Target<'k> {
    pub row_prefix: u64,
    pub key: KeyRef<'k>,
    pub seq: SeqId,
}

/// The order of one segment.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    comparator: CellComparator,
    /// Bytes that most rows begin with. They tell nothing apart, so row prefixes are taken behind them.
    row_start: Box<[u8]>,
}

impl Order {
    pub(crate) fn new(comparator: CellComparator, row_start: &[u8]) -> Order {
        Order { comparator, row_start: row_start.into() }
    }

    pub(crate) fn comparator(&self) -> CellComparator {
        self.comparator
    }

    /// Bytes that most rows begin with.
    pub(crate) fn row_start(&self) -> &[u8] {
        &self.row_start
    }

    /// Whether rows have prefixes: the meta order does not agree with them.
    pub(crate) fn is_prefixed(&self) -> bool {
        self.comparator == CellComparator::Default
    }

    /// A number that is never larger for a smaller row: the eight bytes behind the common start, big-endian and
    /// padded with zeroes; for rows that begin otherwise the smallest or the largest number.
    #[inline]
    pub(crate) fn prefix_of(&self, row: &[u8]) -> u64 {
        if !self.is_prefixed() {
            return 0;
        }
        match row.strip_prefix(&*self.row_start) {
            Some(rest) => first_eight(rest),
            None if row < &*self.row_start => 0,
            None => u64::MAX,
        }
    }

    /// The place in front of all cells of `key` and of those behind it.
    #[inline]
    pub(crate) fn target<'k>(&self, key: KeyRef<'k>) -> Target<'k> {
        Target { row_prefix: self.prefix_of(key.row()), key, seq: SeqId::MAX }
    }

    /// Whether a node, whose row has this prefix in this order, belongs before the target.
    #[inline]
    pub(crate) fn is_before(&self, row_prefix: u64, node: NodeRef<'_>, target: &Target<'_>) -> bool {
        if row_prefix != target.row_prefix {
            return row_prefix < target.row_prefix;
        }
        match self.comparator.compare_keys(node.cell().key(), target.key) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => node.seq() > target.seq,
        }
    }

    /// How two nodes are ordered, with their rows' prefixes in this order.
    pub(crate) fn compare(&self, left: (u64, NodeRef<'_>), right: (u64, NodeRef<'_>)) -> Ordering {
        left.0
            .cmp(&right.0)
            .then_with(|| self.comparator.compare_keys(left.1.cell().key(), right.1.cell().key()))
            .then_with(|| right.1.seq().cmp(&left.1.seq()))
    }

    pub(crate) fn is_equal(&self, left: NodeRef<'_>, right: NodeRef<'_>) -> bool {
        left.seq() == right.seq()
            && self.comparator.compare_keys(left.cell().key(), right.cell().key()) == Ordering::Equal
    }
}

#[inline]
fn first_eight(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(padded)
        }
    }
}
