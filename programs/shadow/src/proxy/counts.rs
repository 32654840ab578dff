//! What passed through the proxy, counted.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Counters of a proxy. Shared freely.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $($(#[$doc])* pub(crate) $name: Counter,)*
        }

        impl Counts {
            pub(crate) fn json(&self) -> Value {
                json!({ $(stringify!($name): self.$name.get(),)* })
            }
        }
    };
}

counts! {
    /// Connections that clients made.
    connections
    /// Of these, refused or ended because of their bytes, or because there were too many.
    refused
    /// Connections that could not be made to a server.
    unreachable
    /// Calls of all kinds.
    calls
    /// Gets, scans' calls, and batches of gets.
    reads
    /// Mutations, batches that begin with one, and bulk loads: passed on, never observed.
    writes
    /// Reads that were chosen by the sample; of a scan, its opening.
    sampled
    /// Reads of the sample that were dropped because a queue was full.
    dropped
    /// Reads of the sample that failed at the server, or that a client left.
    failed
    /// Reads of the sample that could not be understood: their region is unknown, or their bytes are wrong.
    unknown
    /// Frames that were too large to look at.
    large
    /// Reads that were handed on whole.
    observed
}

/// One of them.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections, {} calls, {} reads, {} writes; {} reads observed, {} dropped, {} failed, {} not understood",
            self.connections.get(),
            self.calls.get(),
            self.reads.get(),
            self.writes.get(),
            self.observed.get(),
            self.dropped.get(),
            self.failed.get(),
            self.unknown.get(),
        )
    }
}
