//! Which procedures come first.

/// In this order. Threads of their own run the first two, so that neither waits until others have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// `hbase:meta` comes back with it. All others wait for that.
    Meta,
    /// The recovery of a region server. Regions that were there wait for it, and so do procedures about them.
    Recovery,
    /// Regions are opened that ought to be open.
    Assignment,
    Rest,
}

impl Class {
    pub(super) const ALL: [Class; 4] = [Class::Meta, Class::Recovery, Class::Assignment, Class::Rest];

    /// Whether it is refused where too many procedures wait. What the master does by itself to bring regions back is not: nobody
    /// would ask for it again, and what waits may be waiting for it.
    pub(super) fn is_limited(self, owner: &str) -> bool {
        self == Class::Rest || !owner.is_empty()
    }
}
