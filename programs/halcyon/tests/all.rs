//! The tests of this crate from outside, in one program: each further program links everything again.

mod admin_sizes;
mod attack;
mod bad_input;
mod browser;
mod browser_cluster;
mod cache;
mod check_cluster;
mod client;
mod common;
mod compatibility;
mod console;
mod hbase_pages;
mod inspect;
mod keeper;
mod migrate;
mod peers;
mod prof;
mod recovery;
mod resumed_scans;
mod shell;
mod standalone;
mod systemd;
mod terminal;
mod top;
mod traces;
mod wal_dir;
