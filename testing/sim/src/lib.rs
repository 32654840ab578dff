//! A whole cluster from one seed: the real master over models of all else.
//!
//! ```text
//! cluster.rs    what is done to the cluster, and when; what must hold at the end
//! faults.rs     what goes wrong with servers, masters and HDFS; rates.rs how often, and what a seed leaves out
//! master.rs     the process of a master, with the real `halcyon_master::Master` and its threads
//! view.rs       what a master is given: servers, orders, rows of system tables, znodes
//! real.rs       real region servers, which take the place of the models if that is wanted; server_fs.rs their files
//! clients.rs    clients of real servers; operations.rs their deletes, checks, batches and slow scans; calls.rs how calls reach a server
//! told.rs       what clients must find; register.rs and versions.rs of rows that are deleted, too
//! server.rs     the model of a region server, and the invariants that hold at every step
//! process_fs.rs files as a master reaches them, over `SimFileSystem::hdfs`
//! world.rs      what is shared, and what happens later
//! ```
//!
//! Threads take turns in the order that the seed gives ([`halcyon_env::sim::SimThreads`]), and time is simulated. A failure is repeated by
//! its seed. `docs/SIMULATION.md` says what is simulated and what is not.
//!
//! When you add a fault, count it (`State::count`), and see in the counts of `make sim` that it comes true.

mod calls;
mod clients;
mod cluster;
mod entries;
mod faults;
mod master;
mod operations;
mod process_fs;
mod rates;
mod real;
mod register;
mod remote;
mod removal;
mod rows;
mod server;
mod server_fs;
mod told;
mod versions;
mod view;
mod world;

pub use cluster::{Options, Report, simulate};
pub use world::Flaw;
