//! Files in HDFS, as a [`halcyon_env::FileSystem`].
//!
//! The library `hdfs-native` speaks HDFS's protocols; this crate adds what a database needs of them:
//!
//! - **A deadline on every call** ([`Deadlines`]). The library waits without a limit for a NameNode whose machine
//!   vanished. A call that gets no answer in time is dropped, and the next one uses a new client object, thus a new
//!   connection.
//! - **Certain answers** (`names.rs`). A change whose answer was lost may have happened. The NameNode is then asked for
//!   the names concerned, until the answer is certain or the time is over; then the error is in doubt
//!   ([`halcyon_env::is_in_doubt`]). `exists` says `false` only if the NameNode did.
//! - **Readers that reopen** (`reader.rs`). The library asks once where a file's blocks are, and never tries a DataNode
//!   again that failed once. Here a failed read asks again, also at the places where the file may have been moved to. A
//!   read that is late is made from a second replica, too (`hedge.rs`).
//! - **Writers that are abandoned** (`writer.rs`). After an error or a deadline the file takes no more bytes. It is sealed in
//!   the background, which also ends what the library left running for it.
//! - **Sealing** ([`HdfsFileSystem::seal`]): after it no other client adds a byte to a file, and the length is final.
//!
//! A call blocks the calling thread and runs on the crate's own runtime, so it may come from any thread, also from one of
//! another runtime.
//!
//! `address.rs` finds the NameNodes in `core-site.xml` and `hdfs-site.xml`, which `site.rs` reads. `cluster.rs` has the
//! client object, the runtime and the deadlines; `failure.rs` turns errors into sentences.
//!
//! Not in HDFS: `open_update` and `WritableFile::truncate`, because a file only grows, and `lock`. A lease is no lock: after
//! a minute of silence the NameNode gives the file to another client, and the first one learns of it at its next write. Two
//! servers are kept apart by renaming and sealing the log of the other, not by a lock.
//!
//! When you change the names or deadlines here, also look at `testing/cluster`, whose tests run this crate against HDFS.

mod address;
mod avoided;
mod cluster;
mod failure;
mod fan_out;
mod file_system;
mod hedge;
mod log;
mod names;
mod reader;
mod recoveries;
mod seal;
mod site;
mod writer;

pub use address::HdfsAddress;
pub use cluster::{Deadlines, HdfsOptions};
pub use file_system::HdfsFileSystem;
pub use site::Site;
pub use writer::CreateOptions;
