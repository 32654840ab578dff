//! What calls share: open scanners, nonces of operations, and the threads for calls that may wait for the disk.

pub(crate) mod nonces;
pub(crate) mod pool;
pub(crate) mod scanners;
