//! Settings of a region server.

pub(crate) mod cache;
pub(crate) mod server;
