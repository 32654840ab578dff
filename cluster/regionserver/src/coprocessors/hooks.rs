//! Which hooks the classes of a region override: the bits that the JVM answers to LOAD.
//!
//! The JVM finds them by reflection (`HookMask.java`, which has the same numbers). A hook that no class overrides costs nothing.

/// A set of hooks. *Thread safety*: plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hooks(pub u64);

impl Hooks {
    pub const PRE_GET: Hooks = Hooks(1);
    pub const POST_GET: Hooks = Hooks(1 << 1);
    pub const PRE_EXISTS: Hooks = Hooks(1 << 2);
    pub const POST_EXISTS: Hooks = Hooks(1 << 3);
    /// Before the rows of mutations are locked: `prePut` and its like.
    pub const PRE_MUTATE: Hooks = Hooks(1 << 4);
    /// While the rows are locked: `preBatchMutate`, `preIncrementAfterRowLock`.
    pub const PRE_BATCH: Hooks = Hooks(1 << 5);
    pub const POST_BATCH: Hooks = Hooks(1 << 6);
    pub const POST_MUTATE: Hooks = Hooks(1 << 7);
    pub const PRE_CHECK: Hooks = Hooks(1 << 8);
    pub const PRE_CHECK_LOCKED: Hooks = Hooks(1 << 9);
    pub const POST_CHECK: Hooks = Hooks(1 << 10);
    pub const PRE_SCANNER_OPEN: Hooks = Hooks(1 << 11);
    /// Hooks that see the scanner or its results.
    pub const SCANNER: Hooks = Hooks(1 << 12);
    /// Before and after a flush of the region.
    pub const FLUSH: Hooks = Hooks(1 << 13);
    /// What a flush writes of a family: `preFlushScannerOpen`, and `preFlush` and `postFlush` with a store.
    pub const STORE_FLUSH: Hooks = Hooks(1 << 14);
    /// What a compaction writes: `preCompactScannerOpen`, `preCompact`, `postCompact`.
    pub const STORE_COMPACT: Hooks = Hooks(1 << 15);
    /// What families keep for a read: `preStoreScannerOpen`.
    pub const STORE_SCANNER: Hooks = Hooks(1 << 16);
    /// `preBulkLoadHFile`, `postBulkLoadHFile`.
    pub const BULK_LOAD: Hooks = Hooks(1 << 17);

    pub const WRITE: Hooks =
        Hooks(Self::PRE_MUTATE.0 | Self::PRE_BATCH.0 | Self::POST_BATCH.0 | Self::POST_MUTATE.0);
    pub const CHECK: Hooks = Hooks(Self::PRE_CHECK.0 | Self::PRE_CHECK_LOCKED.0 | Self::POST_CHECK.0);

    /// Whether any of `others` is among them.
    pub fn any(self, others: Hooks) -> bool {
        self.0 & others.0 != 0
    }

    pub fn or(self, others: Hooks) -> Hooks {
        Hooks(self.0 | others.0)
    }
}
