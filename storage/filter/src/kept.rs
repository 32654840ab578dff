//! What the filters of one request keep of the row that they are asked about: keys of cells, and timestamps. A request may have a hundred
//! thousand filters, and the key of a cell some MiB, so they count it together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use halcyon_cell::{Error, Result};

/// What they may keep together, in bytes. What is kept alone may be more: a filter is not refused because of one cell.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// A key of so many bytes is not counted: each filter may keep one, and tells of it in `held_bytes`. Room for it is kept from one row to the
/// next.
pub(crate) const SHORT_KEY_LEN: usize = 256;

/// The count of one request. Its filters belong to one scanner, so one thread at a time changes it.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<AtomicUsize>);

/// Counted for as long as it is there.
pub(crate) struct Room {
    kept: Kept,
    bytes: usize,
}

impl Kept {
    /// Room for nothing yet.
    pub(crate) fn empty_room(&self) -> Room {
        Room { kept: self.clone(), bytes: 0 }
    }

    /// Room for a key; a short one needs none.
    ///
    /// Errors: see [`Room::grow_to`].
    pub(crate) fn room_for_key(&self, len: usize) -> Result<Option<Room>> {
        if len <= SHORT_KEY_LEN {
            return Ok(None);
        }
        let mut room = self.empty_room();
        room.grow_to(len)?;
        Ok(Some(room))
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Room {
    /// Errors (kind `Invalid`): with that, the filters of the request would keep too much.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<()> {
        assert!(bytes >= self.bytes, "room for {bytes} bytes is less than that for {}", self.bytes);
        let of_others = self.kept.0.load(Ordering::Relaxed) - self.bytes;
        if of_others > 0 && of_others.saturating_add(bytes) > KEPT_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the filters of a request keep more than {KEPT_BYTES_MAX} bytes of a row"
            )));
        }
        self.kept.0.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
        Ok(())
    }

    /// Gives all of it back.
    pub(crate) fn clear(&mut self) {
        self.kept.0.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_counted_together() {
        let kept = Kept::default();
        assert!(kept.room_for_key(SHORT_KEY_LEN).unwrap().is_none());
        let mut rooms: Vec<Option<Room>> = (0..31).map(|_| kept.room_for_key(1 << 20).unwrap()).collect();
        let mut timestamps = kept.empty_room();
        timestamps.grow_to(1 << 19).unwrap();
        timestamps.grow_to(1 << 20).unwrap();
        assert_eq!(kept.bytes(), KEPT_BYTES_MAX);
        timestamps.grow_to((1 << 20) + 1).unwrap_err();
        assert!(kept.room_for_key(SHORT_KEY_LEN + 1).is_err());
        rooms.truncate(1);
        timestamps.clear();
        assert_eq!(kept.bytes(), 1 << 20);
        rooms.clear();
        let alone = kept.room_for_key(2 * KEPT_BYTES_MAX).unwrap();
        assert!(alone.is_some() && timestamps.grow_to(1).is_err());
        drop(alone);
        assert_eq!(kept.bytes(), 0);
    }
}
