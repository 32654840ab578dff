//! From a cell block to cells, within the memory that a call may have.
//!
//! A compressed block becomes up to a thousand times as large as what arrived, and small cells become several times as
//! large as their bytes. Room for both is kept before they are made ([`Charge`]), and goes when the call is answered.
//! What takes longer than an event loop may work for one client is unpacked beside it.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, Error};

use crate::codec::{count_cells, decode_counted};
use crate::peers::Peer;
use crate::queues::{CALL_BYTES, Charge};
use crate::shared::{Shared, UNPACKED_FREE_BYTES};
use crate::{CallClass, Codec, Compressor, RpcError};

/// An event loop unpacks a block that becomes this large at most.
const UNPACKED_HERE_BYTES_MAX: usize = 1 << 20;
/// Compressed blocks from here on are most likely larger than that.
const PACKED_HERE_BYTES_MAX: usize = 128 << 10;
/// An event loop decodes so many cells of one call at most, in about a millisecond.
const CELLS_HERE_MAX: usize = 16 << 10;
/// Blocks up to this are decoded without being counted: their cells are part of [`CALL_BYTES`].
const UNCOUNTED_BYTES_MAX: usize = 4 << 10;
/// A cell of a codec with parts is built anew, with an allocation of its own.
const BUILT_CELL_BYTES: usize = 64;

/// Why cells were not unpacked.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The block holds more than this.
    TooLong(usize),
    /// What is asked for is not there now.
    NoRoom,
    Corrupt(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Corrupt(error)
    }
}

/// A cell block and what is needed to unpack it anywhere.
pub(crate) struct Packed {
    codec: Codec,
    compressor: Option<Compressor>,
    block: Bytes,
    room: Room,
    /// Cells in it, if they were counted and have their room.
    counted: Option<usize>,
}

/// Whose memory it is, and whose call.
#[derive(Clone, Copy)]
pub(crate) struct Within<'a> {
    pub shared: &'a Shared,
    pub peer: &'a Arc<Peer>,
}

/// Room for what is unpacked of one call. Little is free.
struct Room {
    class: CallClass,
    used_bytes: usize,
    /// Of the whole call: it grows, so that a call is never in its own way.
    charge: Option<Charge>,
    /// Of it, what was there for the decoded message.
    message_bytes: usize,
    /// What the call holds beside it while it waits.
    beside: usize,
}

/// Cells, and the room that is kept for the call until it is answered.
pub(crate) struct Unpacked {
    pub cells: Vec<Cell>,
    pub charge: Option<Charge>,
}

impl Room {
    /// `charge`: what the call has for its message.
    fn new(class: CallClass, charge: Option<Charge>) -> Room {
        let message_bytes = charge.as_ref().map_or(0, Charge::bytes);
        Room { class, used_bytes: 0, charge, message_bytes, beside: 0 }
    }

    /// Nothing is unpacked yet.
    fn emptied(self) -> Room {
        let mut charge = self.charge;
        if let Some(charge) = &mut charge {
            charge.shrink(self.message_bytes);
        }
        Room::new(self.class, charge.filter(|charge| charge.total() > 0))
    }

    /// Room for as many bytes more; false if there is none.
    fn grow(&mut self, within: Within<'_>, bytes: usize) -> bool {
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        let charged = self.charge.as_ref().map_or(0, Charge::bytes);
        if self.used_bytes <= CALL_BYTES {
            return true;
        }
        let Within { shared, peer } = within;
        let settings = &shared.settings;
        if self.message_bytes + self.used_bytes
            > settings.frame_bytes_max.max(shared.queues.limits().request_bytes_max)
        {
            return false; // a call that is alone is not without limit
        }
        let missing = self.message_bytes + self.used_bytes - charged;
        match &mut self.charge {
            Some(charge) => charge.grow(shared.share(), missing),
            none => {
                *none = shared.queues.charge_beside(self.class, peer, shared.share(), missing, self.beside);
                none.is_some()
            }
        }
    }
}

/// What an event loop made of a cell block.
pub(crate) enum Here {
    Done(Result<Unpacked, Stopped>),
    /// Too much for an event loop.
    Later(Packed),
}

impl Packed {
    /// `charge`: what the call has for its message.
    pub fn new(
        codec: Codec,
        compressor: Option<Compressor>,
        block: Bytes,
        class: CallClass,
        charge: Option<Charge>,
    ) -> Packed {
        Packed { codec, compressor, block, room: Room::new(class, charge), counted: None }
    }

    /// Whether a block is decoded as it is: its cells are part of what each call is counted with. Most are of one put.
    #[inline]
    pub fn is_small(compressor: Option<Compressor>, block: &Bytes) -> bool {
        compressor.is_none() && block.len() <= UNCOUNTED_BYTES_MAX
    }

    /// Unpacks on an event loop, unless that is too much for one.
    pub fn unpack_here(mut self, within: Within<'_>) -> Here {
        if self.compressor.is_some() && self.block.len() > PACKED_HERE_BYTES_MAX {
            return Here::Later(self);
        }
        let raw = match self.raw(within, UNPACKED_HERE_BYTES_MAX) {
            Ok(raw) => raw,
            Err(Stopped::TooLong(_)) => {
                return Here::Later(Packed { room: self.room.emptied(), ..self }); // it begins anew
            }
            Err(stopped) => return Here::Done(Err(stopped)),
        };
        match self.count(within, &raw) {
            Ok(count) if count > CELLS_HERE_MAX => {
                // What is unpacked already need not be unpacked again; its room stays.
                Here::Later(Packed { compressor: None, block: raw, counted: Some(count), ..self })
            }
            Ok(count) => Here::Done(self.decode(raw, count)),
            Err(stopped) => Here::Done(Err(stopped)),
        }
    }

    /// The call waits now, with a frame of so many bytes.
    pub fn waits(&mut self, frame_bytes: usize) {
        self.room.beside = frame_bytes + CALL_BYTES;
        if let Some(charge) = &mut self.room.charge {
            charge.waits_beside(self.room.beside);
        }
    }

    /// Unpacks whatever fits. *Takes long.*
    pub fn unpack(mut self, within: Within<'_>) -> Result<Unpacked, Stopped> {
        let raw = self.raw(within, usize::MAX)?;
        let count = match self.counted {
            Some(count) => count,
            None => self.count(within, &raw)?,
        };
        self.decode(raw, count)
    }

    /// The block as it was before it was compressed, at most `here_max` bytes of it.
    fn raw(&mut self, within: Within<'_>, here_max: usize) -> Result<Bytes, Stopped> {
        let Some(compressor) = self.compressor else { return Ok(self.block.clone()) };
        let settings = &within.shared.settings;
        let by_ratio = self.block.len().saturating_mul(settings.cell_block_ratio_max);
        let max = settings.frame_bytes_max.min(by_ratio.max(UNPACKED_FREE_BYTES)).min(here_max);
        let (block, room) = (&self.block, &mut self.room);
        compressor.unpack(block, max, &mut |bytes| room.grow(within, bytes))
    }

    /// Counts the cells, if there may be many, and keeps room for them.
    fn count(&mut self, within: Within<'_>, raw: &Bytes) -> Result<usize, Stopped> {
        if raw.len() <= UNCOUNTED_BYTES_MAX {
            return Ok(0);
        }
        let count = count_cells(self.codec, raw)?;
        let of_cells = count.saturating_mul(size_of::<Cell>());
        let built = match self.codec {
            Codec::KeyValue | Codec::KeyValueWithTags => 0,
            Codec::Cell | Codec::CellWithTags | Codec::Message => {
                raw.len().saturating_add(count.saturating_mul(BUILT_CELL_BYTES))
            }
        };
        if self.room.grow(within, of_cells.saturating_add(built)) { Ok(count) } else { Err(Stopped::NoRoom) }
    }

    fn decode(self, raw: Bytes, count: usize) -> Result<Unpacked, Stopped> {
        Ok(Unpacked { cells: decode_counted(self.codec, raw, count)?, charge: self.room.charge })
    }
}

impl Stopped {
    /// What the client is told; `None` if the call found no room.
    pub fn to_rpc(&self) -> Option<RpcError> {
        let text = match self {
            Stopped::NoRoom => return None,
            Stopped::TooLong(max) => format!(
                "it holds more than {max} bytes. Compressed, it may hold {UNPACKED_FREE_BYTES} bytes or \
                 halcyon.ipc.cellblock.ratio.max times its length, and never more than hbase.ipc.max.request.size"
            ),
            Stopped::Corrupt(error) => error.to_string(),
        };
        Some(RpcError::do_not_retry(format!("Unable to read cell block: {text}")))
    }
}
