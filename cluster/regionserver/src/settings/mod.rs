//! Settings of a region server.

pub(crate) mod backup;
pub(crate) mod cache;
pub(crate) mod coprocessors;
pub(crate) mod online;
pub(crate) mod server;
pub(crate) mod strays;
pub(crate) mod wal;
pub(crate) mod warn;
