//! What comparing costs. A comparator tells of a long comparison before it begins: a thread that may look at so much gives it up then, and
//! so does one whose work nobody wants any more (`halcyon_env::Patience`).

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::{Impatience, Patience};

/// So many bytes that are read as text, or that a filter is built of, cost a look. A cell with fewer costs no more than what its filter costs.
pub(crate) const BYTES_OF_A_LOOK: usize = 64;
/// So many bytes of a key are copied or compared for the cost of a look.
const KEY_BYTES_OF_A_LOOK: usize = 1 << 10;

/// This thread is about to look at so much.
///
/// Errors: `NeedsDisk` if it may not, `Stopping` if nobody waits for what it finds.
#[inline]
pub(crate) fn spend(looks: usize) -> Result<()> {
    if looks == 0 {
        return Ok(());
    }
    Patience::spend(u32::try_from(looks).unwrap_or(u32::MAX)).map_err(|impatience| match impatience {
        Impatience::Spent => Error::new(ErrorKind::NeedsDisk, "it takes too long for this thread"),
        Impatience::Unwanted => Error::new(ErrorKind::Stopping, "nobody waits for the answer any more"),
    })
}

/// As [`spend`], for so many bytes that are read as text.
#[inline]
pub(crate) fn spend_on_bytes(bytes: usize) -> Result<()> {
    spend(bytes / BYTES_OF_A_LOOK)
}

/// As [`spend`], for a key that is copied or compared for one of many filters.
#[inline]
pub(crate) fn spend_on_key(len: usize) -> Result<()> {
    spend(len / KEY_BYTES_OF_A_LOOK)
}
