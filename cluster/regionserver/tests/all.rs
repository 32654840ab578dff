//! The tests of this crate from outside, in one program: each further program links everything again.

mod admin;
mod barriers;
mod bulk_load;
mod common;
mod compaction;
mod concurrent;
mod coprocessors;
mod endpoints;
mod faults;
mod garbage;
mod multi;
mod nonces;
mod peer;
mod quotas;
mod remote;
mod replicas;
mod replication;
mod replication_claims;
mod replication_serial;
mod replication_source;
mod rot;
mod scan;
mod single;
mod status;
mod stop;
mod traces;
