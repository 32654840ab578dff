//! Regions of an open table that take another descriptor. Each is closed and opened again by itself.
//!
//! HBase gives each region a procedure of its own for this (`ReopenTableRegionsProcedure`). If all regions were closed first, a table
//! would be closed as a whole for as long as one server does not answer: one that is frozen, and not yet declared dead, holds up what
//! it has itself, and no more. What has been reopened stays so when the step is repeated because of others.
//!
//! Meanwhile some regions have the old descriptor and some the new one. What a region has on disk holds all the same, because each
//! looks at its own directory:
//!
//! - A family that is new gets its directory from the first opening of each region. This opening leaves in it up to which sequence id
//!   the region has nothing there (`storage/region/src/new_family.rs`), and the ids are those of that region. What another region has
//!   open does not matter.
//! - A family that goes has its last edits flushed when its region is closed, and gets no more from then on. The directories of all
//!   regions are archived by a later step, which begins when the last region was opened without the family and no copy reads it.
//! - A family that is deleted and made again takes two alterations. The lock of the table keeps the second from the regions until the
//!   first has ended for all of them.

use std::collections::HashSet;
use std::sync::Arc;

use halcyon_cell::{Error, Result};
use halcyon_schema::{RegionInfo, TableDescriptor};

use crate::parallel;
use crate::placement::{Place, recovering};
use crate::regions::{self, Attempts};
use crate::state::{MasterState, TableEntry};

/// Which regions one change of a descriptor has reopened. In memory alone: a master that takes over reopens all of them once more.
#[derive(Default)]
pub(crate) struct Reopened(HashSet<RegionInfo>);

impl Reopened {
    /// Reopens those of a table's regions that have not been, each with its copies that the descriptor asks for. The procedure has the
    /// table's lock. Returns those that will never open as they are: they stay as FAILED_OPEN, and are tried again by the next call.
    /// An error is of the first region that could not be closed, or may open later; the others are reopened all the same.
    pub(crate) fn reopen(
        &mut self,
        core: &MasterState,
        entry: &TableEntry,
    ) -> Result<Vec<(RegionInfo, Error)>> {
        // One whose server has died since is not open, and nobody else opens it while the procedure has the table.
        let is_done = |region: &RegionInfo| self.0.contains(region) && regions::is_open(core, region);
        let wanted: Vec<RegionInfo> =
            entry.live_regions().into_iter().filter(|region| !is_done(region)).collect();
        let (shared, table, entry) = (core.shared(), entry.descriptor.clone(), Arc::new(entry.clone()));
        let reopened = parallel::for_each(core.settings.region_threads, wanted, move |region| {
            let result = reopen_one(&shared, &table, &entry, &region);
            Ok((region, result))
        })?;
        let (mut all, mut done, mut first_error) = (Attempts::default(), Vec::new(), None);
        for (region, result) in reopened {
            match result {
                Ok(mut attempts) => {
                    if attempts.temporary.is_empty() && !attempts.has_failed(&region) {
                        done.push(region);
                    }
                    let error = attempts.temporary.drain(..).next().map(|(_, error)| error);
                    first_error = first_error.or(error);
                    all.add(attempts);
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let failed = regions::write_attempts(core, all)?;
        self.0.extend(done); // meta shows them
        match first_error {
            Some(error) => Err(error),
            None => Ok(failed.into_iter().filter(|(region, _)| !region.is_secondary()).collect()),
        }
    }
}

/// Copies are closed first: they read what the region writes. If one cannot be closed, the region stays open. While the WALs of the
/// region's server are not split, nothing is closed.
fn reopen_one(
    core: &MasterState,
    table: &TableDescriptor,
    entry: &TableEntry,
    region: &RegionInfo,
) -> Result<Attempts> {
    if let Place::Recovering(server) = core.place_of(region) {
        return Err(recovering(region, &server));
    }
    let mut copies = entry.copies_of(std::slice::from_ref(region));
    copies.retain(|copy| copy.replica_id() < table.region_replication());
    for one in copies.iter().chain([region]) {
        regions::close_exactly(core, std::slice::from_ref(one))?;
    }
    let all: Vec<RegionInfo> = std::iter::once(region.clone()).chain(copies).collect();
    regions::try_open_of(core, table, &all, regions::Wanted::default())
}
