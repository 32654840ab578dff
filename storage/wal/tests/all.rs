//! The tests of this crate from outside, in one program: each further program links everything again.

mod common;
mod concurrency;
mod crash;
mod damage;
mod golden;
mod hbase;
mod hedge;
mod hostile;
mod large;
mod replace;
mod rolls;
mod round_trip;
mod space;
mod split;
