//! Where a read may find blocks.

/// Where a read may find blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// In memory: the cache's, or the operating system's where it can tell. A block that would have to come from
    /// the disk is an error of kind `NeedsDisk`. For threads that must never wait for a disk.
    CacheOnly,
    /// In the cache, else on the disk.
    AnyDisk,
}
