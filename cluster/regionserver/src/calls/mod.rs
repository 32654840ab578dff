//! What calls share: open scanners, nonces of operations, slow calls, and the threads for calls that may wait for the disk.

pub(crate) mod asked;
pub(crate) mod id_hash;
pub(crate) mod nonces;
pub(crate) mod pool;
pub(crate) mod scanners;
pub(crate) mod slow_calls;
pub(crate) mod time_parts;
