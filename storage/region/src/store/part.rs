//! Segments of a store that take no more writes.

use std::sync::Arc;

use halcyon_cell::{CellScanner, Key, ReadPoint, SeqId};
use halcyon_memstore::{FlatSegment, Segment, SegmentSize};

use crate::scan::source::Source;

/// A segment that takes no more writes.
#[derive(Clone)]
pub(crate) enum Part {
    /// As it was written.
    List(Arc<Segment>),
    /// As a sorted array.
    Flat {
        segment: Arc<FlatSegment>,
        /// Versions were left out because of others up to this sequence id; 0 if none were.
        dropped_up_to: SeqId,
    },
}

impl Part {
    pub fn size(&self) -> SegmentSize {
        match self {
            Part::List(segment) => segment.size(),
            Part::Flat { segment, .. } => segment.size(),
        }
    }

    /// The newest timestamp of its cells; `None`: there are none.
    pub fn newest_ms(&self) -> Option<i64> {
        match self {
            Part::List(segment) => segment.time_range().map(|(_, newest)| newest),
            Part::Flat { segment, .. } => {
                let (mut scanner, mut newest) = (segment.scanner(ReadPoint::NEWEST), None);
                // In memory: nothing can fail.
                let _ = scanner.seek(Key::first_on_row(b"").get());
                while let Some(cell) = scanner.peek() {
                    newest = newest.max(Some(cell.timestamp()));
                    if scanner.next().is_err() {
                        break;
                    }
                }
                newest
            }
        }
    }

    /// Memory that goes with it.
    pub fn chunks_bytes(&self) -> usize {
        match self {
            Part::List(segment) => segment.chunks_bytes(),
            Part::Flat { segment, .. } => segment.chunks_bytes(),
        }
    }

    /// Its cells with sequence ids up to `read_point`.
    pub fn source(&self, read_point: ReadPoint) -> Source {
        match self {
            Part::List(segment) => Source::Segment(segment.scanner(read_point)),
            Part::Flat { segment, .. } => Source::Flat(segment.scanner(read_point)),
        }
    }

    pub fn flat(&self) -> Option<&Arc<FlatSegment>> {
        match self {
            Part::List(_) => None,
            Part::Flat { segment, .. } => Some(segment),
        }
    }

    pub fn dropped_up_to(&self) -> SeqId {
        match self {
            Part::List(_) => SeqId::ZERO,
            Part::Flat { dropped_up_to, .. } => *dropped_up_to,
        }
    }

    /// Whether both are the same thing, not only equal.
    pub fn is(&self, other: &Part) -> bool {
        match (self, other) {
            (Part::List(a), Part::List(b)) => Arc::ptr_eq(a, b),
            (Part::Flat { segment: a, .. }, Part::Flat { segment: b, .. }) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}
