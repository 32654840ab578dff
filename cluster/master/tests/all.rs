//! The tests of this crate from outside, in one program: each further program links everything again.

mod backup;
mod cleaner;
mod clock;
mod common;
mod crash;
mod ended;
mod erasure_coding;
mod followed;
mod hbck;
mod locks;
mod lost_state;
mod mob;
mod normalizer;
mod parameters;
mod peers;
mod poison;
mod quotas;
mod restore;
mod servers;
mod service;
mod snapshots;
mod splits;
mod stuck;
mod take_over;
mod trackers;
