//! Requests and answers of a region, free of wire types.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, ReadPoint};
use halcyon_filter::Filter;
use halcyon_proto::pb::{self, CompareType};
use halcyon_schema::{ClusterUuid, Durability};

pub use halcyon_hfile::{BlockReads, ReadMode};

use crate::mob::MobScan;
use crate::store_hooks::ScanOptions;

/// A half-open range `[min, max)` of cell timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    pub min: i64,
    pub max: i64,
}

impl TimeRange {
    pub const ALL: TimeRange = TimeRange { min: 0, max: i64::MAX };

    pub fn is_all(&self) -> bool {
        self.min <= 0 && self.max == i64::MAX
    }

    pub fn contains(&self, timestamp: i64) -> bool {
        self.min <= timestamp && (timestamp < self.max || self.max == i64::MAX)
    }
}

/// What to read. A Get is a scan of one row (`Scan::of_row`).
pub struct Scan {
    pub start_row: Bytes,
    pub include_start_row: bool,
    /// Empty: no bound.
    pub stop_row: Bytes,
    pub include_stop_row: bool,
    pub reversed: bool,
    /// Families asked for; empty: all. `None`: all qualifiers of the family.
    pub families: BTreeMap<Bytes, Option<BTreeSet<Bytes>>>,
    pub max_versions: u32,
    pub time_range: TimeRange,
    pub family_time_ranges: BTreeMap<Bytes, TimeRange>,
    pub filter: Option<Box<dyn Filter>>,
    /// Most cells per result; `None`: whole rows.
    pub batch: Option<u32>,
    /// Most cells per row and family, after skipping `store_offset` of them.
    pub store_limit: Option<u32>,
    pub store_offset: u32,
    /// Delete markers and everything they hide are returned too.
    pub raw: bool,
    pub cache_blocks: bool,
    /// Read families that the filter does not need only for rows that pass it.
    pub load_families_on_demand: bool,
    /// See writes that are not published yet.
    pub read_uncommitted: bool,
    /// Read at this point instead of now, whatever is left of what it could see.
    pub read_point: Option<ReadPoint>,
    /// The point at which a client read whose scanner is gone. It is taken again if all that it could see is still there,
    /// and otherwise the scan reads what is there now. Of scans that stay open.
    pub resumes_at: Option<ReadPoint>,
    pub mob: MobScan,
    /// Where to count the data blocks that are looked at; `None`: nobody asks.
    pub reads: Option<Arc<BlockReads>>,
    /// What families keep for this scan, where a coprocessor says so (`preStoreScannerOpen`).
    pub options: BTreeMap<Bytes, ScanOptions>,
}

impl Default for Scan {
    fn default() -> Scan {
        Scan {
            start_row: Bytes::new(),
            include_start_row: true,
            stop_row: Bytes::new(),
            include_stop_row: false,
            reversed: false,
            families: BTreeMap::new(),
            max_versions: 1,
            time_range: TimeRange::ALL,
            family_time_ranges: BTreeMap::new(),
            filter: None,
            batch: None,
            store_limit: None,
            store_offset: 0,
            raw: false,
            cache_blocks: true,
            load_families_on_demand: false,
            read_uncommitted: false,
            read_point: None,
            resumes_at: None,
            mob: MobScan::default(),
            reads: None,
            options: BTreeMap::new(),
        }
    }
}

impl Scan {
    /// The whole of one row.
    pub fn of_row(row: Bytes) -> Scan {
        Scan { start_row: row.clone(), stop_row: row, include_stop_row: true, ..Scan::default() }
    }
}

/// Where one call of `RegionScanner::next` has to stop. Budgets are counted down by the scanner over calls.
#[derive(Clone, Copy, Debug)]
pub struct ScanLimits {
    /// Bytes of cells still wanted: KeyValue lengths, and 32 more for each cell as in HBase's estimate.
    pub size_bytes_left: i64,
    /// Whether the size or time limit may cut a row in the middle.
    pub may_cut_row: bool,
    /// `Clock::monotonic_ns` after which to stop at the next safe place; `None`: never.
    pub deadline_ns: Option<u64>,
}

impl ScanLimits {
    pub const NONE: ScanLimits =
        ScanLimits { size_bytes_left: i64::MAX, may_cut_row: false, deadline_ns: None };
}

/// How a call of `RegionScanner::next` ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextState {
    /// The result holds a whole row (or the rest of one); more rows may follow.
    RowDone,
    /// The batch limit was reached inside a row: the row goes on with the next call.
    BatchReached,
    /// The size limit was reached inside a row: the row goes on with the next call.
    SizeReached,
    /// The time limit was reached. `mid_row`: inside a row that goes on with the next call (the result holds
    /// its cells so far); otherwise between rows, the result is empty.
    TimeReached { mid_row: bool },
    /// Nothing more in this region (the result may still hold a last row).
    Exhausted,
}

/// What a scan looked at, for scan metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanCounts {
    pub rows_scanned: u64,
    pub rows_filtered: u64,
    /// Of data blocks; 0 where the scan does not count them (`Scan::reads`), as for what follows.
    pub block_bytes_scanned: u64,
    /// Data blocks that were not in the cache, and their bytes.
    pub disk_blocks_read: u64,
    pub disk_bytes_read: u64,
    /// Of scan metrics (`BlockReads::for_metrics`).
    pub disk_ns: u64,
    pub cached_bytes_read: u64,
    pub memory_bytes_read: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutationKind {
    Put,
    Delete,
    Increment,
    Append,
}

impl MutationKind {
    /// Whether it makes new cells of those that are there.
    pub fn returns_cells(self) -> bool {
        matches!(self, MutationKind::Increment | MutationKind::Append)
    }
}

/// One mutation of one row.
#[derive(Clone, Debug)]
pub struct Mutation {
    pub kind: MutationKind,
    pub row: Bytes,
    /// Put: put cells (and, in mixed puts, delete cells). Delete: delete cells; empty means every family at
    /// `timestamp`. Increment: one cell per column, its value eight bytes big-endian. Append: the suffixes.
    /// `LATEST_TIMESTAMP` in a cell asks for the server's clock.
    pub cells: Vec<Cell>,
    /// For a Delete without cells.
    pub timestamp: i64,
    /// `None`: as the table says (`DURABILITY`), which defaults to `SyncWal`.
    pub durability: Option<Durability>,
    /// What the read half of an Increment or Append looks at.
    pub time_range: TimeRange,
    /// Whether Increment and Append answer with the new cells.
    pub return_results: bool,
    /// Time to live for the cells of this mutation, milliseconds (tag TTL is added to each cell).
    pub cell_ttl_ms: Option<i64>,
    /// Clusters that have the mutation already, when it came by replication.
    pub cluster_ids: ClusterIds,
}

/// Clusters that have an edit already (`Mutation.getClusterIds`); `None`: no other one.
pub type ClusterIds = Option<Arc<[ClusterUuid]>>;

/// Numbers that make an Increment, Append or atomic batch happen once (HBase: nonce group and nonce).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Nonce {
    pub group: u64,
    pub nonce: u64,
}

/// What must hold before a checkAndMutate is done.
pub struct Condition {
    pub row: Bytes,
    pub time_range: TimeRange,
    pub test: ConditionTest,
}

pub enum ConditionTest {
    /// Compare `value` (left) with the newest cell of the column (right). An empty `value` stands for "no
    /// such cell, or an empty one".
    Column { family: Bytes, qualifier: Bytes, op: CompareType, value: Bytes },
    /// Any cell of the row passes the filter. As it was sent: each look at the condition needs one of its own.
    Filter(pb::Filter),
}

/// Result of one mutation of a batch: the new cells of an Increment or Append (`Some`, maybe empty), `None`
/// for puts and deletes.
pub type MutationResult = halcyon_cell::Result<Option<Vec<Cell>>>;
