//! Cells of one write, before they have their sequence id.

use halcyon_cell::{Cell, Error, LATEST_TIMESTAMP, Result, TagType, append_tag};
use halcyon_schema::Durability;
use smallvec::SmallVec;

use crate::api::ClusterIds;
use crate::scan::row_size::{ROOM_STEP_BYTES, ask_for_room};

/// Bytes of the tag of a time to live.
const TTL_TAG_LEN: usize = 2 + 1 + 8;

/// For each mutation of a batch, in order, its cells as they were written: with their timestamps, and a delete of the newest version with
/// that of the version. Of an Increment or Append only new cells of columns that had none. None where a mutation failed.
pub type CellsWritten = Vec<Vec<Cell>>;

/// A cell to be written, and the timestamp it gets if it asked for the server's clock.
pub(crate) struct Edit {
    pub cell: Cell,
    pub timestamp: Option<i64>,
}

impl Edit {
    pub fn as_written(&self) -> Cell {
        self.timestamp.map_or_else(|| self.cell.clone(), |timestamp| self.cell.with_timestamp(timestamp))
    }
}

/// Cells of one or more rows that are written together.
pub(crate) struct Edits {
    pub edits: SmallVec<[Edit; 1]>,
    pub durability: Option<Durability>,
    /// Those of all the mutations, which are the same.
    pub cluster_ids: ClusterIds,
    /// Bytes of cells that Increments, Appends and Deletes of rows have made.
    pub new_bytes: usize,
    /// When the write began, as the log tells it; asked for once, because every look at the clock costs.
    pub clock_ms: i64,
}

impl Edits {
    pub fn new(clock_ms: i64, cluster_ids: ClusterIds) -> Edits {
        Edits { edits: SmallVec::new(), durability: None, cluster_ids, new_bytes: 0, clock_ms }
    }

    pub fn push(&mut self, cell: Cell, now_ms: i64) {
        let timestamp = (cell.timestamp() == LATEST_TIMESTAMP).then_some(now_ms);
        self.edits.push(Edit { cell, timestamp });
    }

    /// Counts a cell that an Increment or Append has made, or the markers of a Delete of a row. These make more than they bring: `Invalid`
    /// if all of one write get larger than that, `Busy` if there is no room for them.
    pub fn count_new(&mut self, bytes: usize, bytes_max: usize) -> Result<()> {
        let steps_before = self.new_bytes / ROOM_STEP_BYTES;
        self.new_bytes = self.new_bytes.saturating_add(bytes);
        if self.new_bytes > bytes_max {
            return Err(too_many_new(bytes_max));
        }
        for step in steps_before..self.new_bytes / ROOM_STEP_BYTES {
            let bytes = (step + 1) * ROOM_STEP_BYTES;
            ask_for_room(|| format!("new values of one write that have more than {bytes} bytes"))?;
        }
        Ok(())
    }

    /// Tells who asks for it the cells of a mutation, which begin at `from`. Nearly nobody does.
    #[inline]
    pub fn tell(&self, from: usize, told: Option<&mut CellsWritten>) {
        if let Some(told) = told {
            self.tell_them(from, told);
        }
    }

    #[cold]
    fn tell_them(&self, from: usize, told: &mut CellsWritten) {
        told.push(self.edits[from..].iter().map(Edit::as_written).collect());
    }

    /// The most durable of the mutations decides for all.
    pub fn raise_durability(&mut self, durability: Durability) {
        self.durability = Some(self.durability.map_or(durability, |have| have.max(durability)));
    }
}

/// What one write makes is more than that.
pub(crate) fn too_many_new(bytes_max: usize) -> Error {
    Error::invalid(format!("new values of one write have more than {bytes_max} bytes"))
}

/// Whether a cell can have tags of this length, and the tag of a time to live besides.
pub(crate) fn check_tags_len(len: usize, ttl_ms: Option<i64>) -> Result<()> {
    let len = len + if ttl_ms.is_some() { TTL_TAG_LEN } else { 0 };
    if len <= usize::from(u16::MAX) {
        return Ok(());
    }
    Err(Error::invalid(format!("tags of {len} bytes are longer than {} bytes", u16::MAX)))
}

/// Adds the mutation's time to live to a cell's tags. These have room for it ([`check_tags_len`]).
pub(crate) fn with_ttl(cell: Cell, ttl_ms: Option<i64>) -> Cell {
    let Some(ttl) = ttl_ms else { return cell };
    let mut tags = Vec::with_capacity(cell.tags().len() + TTL_TAG_LEN);
    for tag in cell.get().tag_iter().filter(|tag| tag.tag_type != TagType::TTL) {
        append_tag(&mut tags, tag.tag_type, tag.value);
    }
    append_tag(&mut tags, TagType::TTL, &ttl.to_be_bytes());
    Cell::build(
        cell.row(),
        cell.family(),
        cell.qualifier(),
        cell.timestamp(),
        cell.cell_type(),
        cell.value(),
        &tags,
        cell.seq(),
    )
}
