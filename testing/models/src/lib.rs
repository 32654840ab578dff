//! The cluster's protocols as small models, of which all states up to a bound are explored (`docs/MODELS.md`).
//!
//! A model has a state, actions, and rules that hold in each state. Each action names the function of the product that it stands
//! for. The model does what that function does, in as many steps as there are moments at which another process may act or this one
//! may die. A flaw is a switch that takes one protection away. The exploration has to find a state that breaks a rule then, and must
//! find none without a flaw. Things that have to be possible are looked for as well, so that no rule holds for want of cases.
//!
//! When you change one of these functions, also change its model: `grep` for the name of its file here.

pub mod claims;
pub mod cut_over;
mod explore;
pub mod lease;
pub mod snapshot;
pub mod wal;

pub use explore::{Counterexample, Entry, Outcome, Protocol, Size};

/// All models.
pub fn all() -> Vec<Entry> {
    vec![
        Entry::of::<wal::Wals>(),
        Entry::of::<lease::Leases>(),
        Entry::of::<snapshot::Snapshots>(),
        Entry::of::<claims::Claims>(),
        Entry::of::<cut_over::CutOver>(),
    ]
}
