//! Names of the regions that a split or a merge makes.
//!
//! Their directories are in place before the write to meta that makes them regions. A failure or a crash between the two
//! leaves them there, and the next attempt cannot use them: the parents may have got other files since. It cannot remove them
//! either and use their names again, because a removal whose answer was lost may be carried out when the region is open.
//! So each attempt takes names that no attempt has used: the region id, which is part of the name, goes up by one. What
//! was left is removed when its names are not needed any more, after the write to meta or when the procedure is undone.
//!
//! The write to meta may be done although it ends with an error: its answer is lost, or it is carried out later. From there on there is
//! no other attempt, and no way back: the regions of two attempts would be in meta, over each other. The same write is
//! repeated until it has an answer. A later master reads in meta what was done. It has called the server of `hbase:meta`,
//! so that takes no write of an earlier master any more.

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_schema::RegionInfo;

use crate::archive;
use crate::state::MasterState;

/// Attempts that may leave directories.
const ATTEMPTS_MAX: u64 = 10_000;

fn of_attempt(first: &[RegionInfo], attempt: u64) -> Vec<RegionInfo> {
    let renamed = |region: &RegionInfo| {
        let (start, end) = (region.start_key().clone(), region.end_key().clone());
        RegionInfo::new(region.table().clone(), start, end, region.region_id() + attempt)
    };
    first.iter().map(renamed).collect()
}

/// The number of attempts that have left a directory. `first` are the regions of the first one.
fn attempts(core: &MasterState, first: &[RegionInfo]) -> Result<u64> {
    for attempt in 0..ATTEMPTS_MAX {
        let mut is_used = false;
        for region in of_attempt(first, attempt) {
            is_used |= core.env.fs.exists(&region.dir(&core.root))?;
        }
        if !is_used {
            return Ok(attempt);
        }
    }
    Err(Error::new(ErrorKind::Busy, format!("{ATTEMPTS_MAX} attempts have left directories")))
}

/// The regions that this attempt is to make. To be called when no rename of an earlier attempt can be under way any more.
pub(super) fn of_next_attempt(core: &MasterState, first: &[RegionInfo]) -> Result<Vec<RegionInfo>> {
    Ok(of_attempt(first, attempts(core, first)?))
}

/// Removes what the attempts before the one that made `made` have left. May run twice.
pub(super) fn remove_before(core: &MasterState, first: &[RegionInfo], made: &RegionInfo) -> Result<()> {
    let count = first.first().map_or(0, |first| made.region_id().saturating_sub(first.region_id()));
    remove(core, first, count)
}

/// Removes what all attempts have left. May run twice.
pub(super) fn remove_all(core: &MasterState, first: &[RegionInfo]) -> Result<()> {
    remove(core, first, attempts(core, first)?)
}

/// The error of a write to meta that may have been done: nothing is undone, and the same write is repeated.
pub(super) fn in_doubt(error: Error) -> Error {
    match error.kind().is_permanent() {
        true => Error::new(ErrorKind::Busy, error.message()),
        false => error,
    }
}

/// The last first: after an error the others are still found.
fn remove(core: &MasterState, first: &[RegionInfo], count: u64) -> Result<()> {
    for attempt in (0..count).rev() {
        for region in of_attempt(first, attempt) {
            archive::remove_region(core, &region)?;
        }
    }
    Ok(())
}
