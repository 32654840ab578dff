//! How large a row may be that is read as a whole (HBase: `hbase.table.max.rowsize`), and room for the large ones.
//!
//! All cells of such a row are in memory at once, in no budget of the region's. So a row has a limit, and where a thread has said whom to
//! ask ([`with_room`]), a row beyond [`ROOM_STEP_BYTES`] asks for room before it grows by as much again.

use std::cell::RefCell;

use halcyon_cell::{Error, ErrorKind, Result};

/// Bytes of a row that need no room, and that it asks for at a time beyond them.
pub const ROOM_STEP_BYTES: usize = 16 << 20;

/// Whether there is room for so many bytes more.
type Asks = Box<dyn FnMut(usize) -> bool>;

thread_local! {
    static ROOM: RefCell<Option<Asks>> = const { RefCell::new(None) };
}

/// Carries out `work`. Rows that it reads as a whole ask `has_room` before they grow beyond each [`ROOM_STEP_BYTES`], with the bytes
/// that they want besides, and so do new values of Increments and Appends; if it says no the work ends with an error of kind `Busy`.
pub fn with_room<T>(has_room: impl FnMut(usize) -> bool + 'static, work: impl FnOnce() -> T) -> T {
    let _outer = Outer(ROOM.replace(Some(Box::new(has_room))));
    work()
}

/// Whether there is room for [`ROOM_STEP_BYTES`] more; `what` they are for, for the error of kind `Busy` if not.
pub(crate) fn ask_for_room(what: impl FnOnce() -> String) -> Result<()> {
    let has_room = ROOM.with_borrow_mut(|room| room.as_mut().is_none_or(|room| room(ROOM_STEP_BYTES)));
    if has_room { Ok(()) } else { Err(Error::new(ErrorKind::Busy, format!("no room for {}", what()))) }
}

struct Outer(Option<Asks>);

impl Drop for Outer {
    fn drop(&mut self) {
        ROOM.replace(self.0.take());
    }
}

/// The size of the row at hand, as what is left of the limit of a call, from which each cell is taken off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSize {
    bytes_max: i64,
    /// What was left when the row began.
    begin_left: i64,
    /// With less than this left something is to be asked.
    asks_below: i64,
}

impl RowSize {
    /// Of rows with at most so many bytes.
    pub fn up_to(bytes_max: usize) -> RowSize {
        let bytes_max = i64::try_from(bytes_max).unwrap_or(i64::MAX);
        RowSize { bytes_max, begin_left: 0, asks_below: i64::MIN }
    }

    pub fn begin(&mut self, bytes_left: i64) {
        self.begin_left = bytes_left;
        self.asks_below = bytes_left.saturating_sub(self.bytes_max.min(ROOM_STEP_BYTES as i64));
    }

    /// The row has grown, and so much is left. `RowTooBig` if that is more than a row may have, `Busy` if there is no room for it.
    #[inline]
    pub fn check(&mut self, bytes_left: i64) -> Result<()> {
        if bytes_left >= self.asks_below { Ok(()) } else { self.grow(bytes_left) }
    }

    #[cold]
    fn grow(&mut self, bytes_left: i64) -> Result<()> {
        let bytes = self.begin_left.saturating_sub(bytes_left);
        if bytes > self.bytes_max {
            let message =
                format!("Max row size allowed: {}, but the row is bigger than that", self.bytes_max);
            return Err(Error::new(ErrorKind::RowTooBig, message));
        }
        ask_for_room(|| format!("a row that has more than {bytes} bytes"))?;
        let next = bytes.saturating_add(ROOM_STEP_BYTES as i64).min(self.bytes_max);
        self.asks_below = self.begin_left.saturating_sub(next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_large_row_asks_for_room_step_by_step() {
        const STEP: i64 = ROOM_STEP_BYTES as i64;
        let asked = Rc::new(Cell::new(0));
        let count = asked.clone();
        let has_room = move |bytes: usize| {
            assert_eq!(bytes, ROOM_STEP_BYTES);
            count.set(count.get() + 1);
            count.get() < 4
        };
        with_room(has_room, || {
            let mut size = RowSize::up_to(1 << 30);
            size.begin(i64::MAX);
            size.check(i64::MAX - STEP).unwrap();
            assert_eq!(asked.get(), 0);
            size.check(i64::MAX - STEP - 1).unwrap();
            size.check(i64::MAX - STEP - 2).unwrap();
            assert_eq!(asked.get(), 1);
            size.begin(1_000);
            size.check(0).unwrap();
            size.check(1_000 - 2 * STEP).unwrap();
            size.check(1_000 - 3 * STEP - 1).unwrap();
            assert_eq!(asked.get(), 3);
            assert_eq!(size.check(1_000 - 5 * STEP).unwrap_err().kind(), ErrorKind::Busy);
        });
        let mut size = RowSize::up_to(100);
        size.begin(i64::MAX);
        size.check(i64::MAX - 100).unwrap();
        assert_eq!(size.check(i64::MAX - 101).unwrap_err().kind(), ErrorKind::RowTooBig);
    }
}
