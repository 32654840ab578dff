//! Regions of an open table that take another descriptor. Each is closed and opened again by itself.
//!
//! HBase gives each region a procedure of its own for this (`ReopenTableRegionsProcedure`). If all regions were closed first, a table
//! would be closed as a whole for as long as one server does not answer: one that is frozen, and not yet declared dead, holds up what
//! it has itself, and no more, unless that is more regions than there are threads. What has been reopened stays so when the step is
//! repeated because of others, also a region whose copies are not open yet.
//!
//! A region that is closed is not closed again when its opening takes too long: the server may end that opening late, and it has the
//! new descriptor.
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

use halcyon_cell::{Error, Result};
use halcyon_schema::{RegionInfo, TableDescriptor};

use crate::parallel;
use crate::placement::{Place, recovering};
use crate::regions::{self, Attempts};
use crate::state::{MasterState, TableEntry};

/// How far one change of a descriptor has come, by regions and their copies. In memory alone: a master that takes over reopens all of
/// them once more.
#[derive(Default)]
pub(crate) struct Reopened {
    /// What was closed for this change. Whoever opens it since does so with the new descriptor.
    closed: HashSet<RegionInfo>,
    /// What is open with the new descriptor, and copies that will never open.
    done: HashSet<RegionInfo>,
}

/// A region, or a copy, that is to be reopened.
struct One {
    info: RegionInfo,
    is_closed: bool,
}

/// A region and its copies, as far as they are to be reopened.
#[derive(Default)]
struct Wanted {
    region: Option<One>,
    copies: Vec<One>,
}

/// What became of them.
struct Outcome {
    closed: Vec<RegionInfo>,
    attempts: Result<Attempts>,
}

impl Reopened {
    /// Reopens those of a table's regions that have not been, each with its copies that the descriptor asks for. The procedure has the
    /// table's lock. Returns those that will never open as they are: they stay as FAILED_OPEN, and are tried again by the next call.
    /// An error is of the first region that could not be closed, or may open later; the others are reopened all the same.
    pub(crate) fn reopen(
        &mut self,
        core: &MasterState,
        entry: &TableEntry,
    ) -> Result<Vec<(RegionInfo, Error)>> {
        let wanted = self.wanted(core, entry);
        let (shared, table) = (core.shared(), entry.descriptor.clone());
        let outcomes = parallel::for_each(core.settings.region_threads, wanted, move |wanted| {
            Ok(reopen_one(&shared, &table, wanted))
        })?;
        let (mut all, mut done, mut first_error) = (Attempts::default(), Vec::new(), None);
        for Outcome { closed, attempts } in outcomes {
            self.closed.extend(closed);
            match attempts {
                Ok(mut attempts) => {
                    done.extend(attempts.done());
                    let error = attempts.temporary.drain(..).next().map(|(_, error)| error);
                    first_error = first_error.or(error);
                    all.add(attempts);
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let failed = regions::write_attempts(core, all)?;
        self.done.extend(done); // meta shows them
        assert!(
            self.done.is_subset(&self.closed),
            "what was not closed for the change of {} is open with the old descriptor",
            entry.descriptor.name()
        );
        match first_error {
            Some(error) => Err(error),
            None => Ok(failed.into_iter().filter(|(region, _)| !region.is_secondary()).collect()),
        }
    }

    fn wanted(&self, core: &MasterState, entry: &TableEntry) -> Vec<Wanted> {
        // One whose server has died since is not open, and nobody else opens it while the procedure has the table.
        let is_done = |one: &RegionInfo| self.done.contains(one) && regions::is_open(core, one);
        let of = |info: RegionInfo| One { is_closed: self.closed.contains(&info), info };
        let replication = entry.descriptor.region_replication();
        let of_region = |region: RegionInfo| {
            let mut copies = entry.copies_of(std::slice::from_ref(&region));
            copies.retain(|copy| copy.replica_id() < replication && !is_done(copy));
            let copies: Vec<One> = copies.into_iter().map(of).collect();
            let region = Some(region).filter(|region| !is_done(region)).map(of);
            Wanted { region, copies }
        };
        let all = entry.live_regions().into_iter().map(of_region);
        all.filter(|wanted| wanted.region.is_some() || !wanted.copies.is_empty()).collect()
    }
}

/// Copies are closed first: they read what the region writes. If one cannot be closed, the region stays open. While the WALs of the
/// region's server are not split, nothing is closed.
fn reopen_one(core: &MasterState, table: &TableDescriptor, wanted: Wanted) -> Outcome {
    let Wanted { region, copies } = wanted;
    let mut closed = Vec::new();
    if let Some(One { info, .. }) = &region
        && let Place::Recovering(server) = core.place_of(info)
    {
        return Outcome { closed, attempts: Err(recovering(info, &server)) };
    }
    let mut shown = Vec::new();
    for One { info, .. } in copies.iter().chain(&region).filter(|one| !one.is_closed) {
        if regions::is_open(core, info) {
            shown.push(info.clone());
        }
        if let Err(error) = regions::close_exactly(core, std::slice::from_ref(info)) {
            return Outcome { closed, attempts: Err(error) };
        }
        closed.push(info.clone());
    }
    let all: Vec<RegionInfo> = region.into_iter().chain(copies).map(|one| one.info).collect();
    let wanted = regions::Wanted { shown: &shown, ..Default::default() };
    let attempts = regions::try_open_of(core, table, &all, wanted);
    Outcome { closed, attempts }
}
