//! A snapshot is taken beside the cleaner of the archive, compactions, the deletion of an older snapshot and the end of its table.
//!
//! Two regions have one store each, whose single file holds all rows. A compaction puts a new file in place and moves the old one to the
//! archive. A snapshot names files region by region, and its manifest is written at the end. The cleaner deletes what has been in the
//! archive for a while, unless a snapshot names it or is being taken.
//!
//! Not here: links and references, mob files, backups, stores of several families, a list of files that is not one moment.

use stateright::{Model, Property};

use crate::{Protocol, Size};

const REGIONS: usize = 2;
/// Files of a region one after the other.
const GENERATIONS_MAX: usize = 3;
const FILES: usize = REGIONS * GENERATIONS_MAX;
/// For how long a file stays in the archive, in ticks of the clock (`MasterSettings::archive_keep`).
const KEEP: u8 = 1;
const NEVER: u8 = u8::MAX;

/// A set of files.
type Files = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    Absent,
    /// In its store.
    Live,
    Archived,
    Deleted,
}

/// How far the procedure is that takes the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Taking {
    No,
    Looking {
        region: u8,
        before: Option<Files>,
    },
    Listed,
    Verified,
    /// The manifest is in `.tmp`.
    Written,
    /// The snapshot has its name.
    Named,
    Ended,
    Refused,
}

impl Taking {
    /// `cluster/master/src/procedure/engine.rs::takes_snapshot`
    fn is_under_way(self) -> bool {
        !matches!(self, Taking::No | Taking::Ended | Taking::Refused)
    }
}

/// A snapshot from before, of the first file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Older {
    Complete,
    /// In `.tmp`.
    Leaving,
    Gone,
}

/// What the cleaner is at. `was_taken`: a snapshot was being taken when the run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cleaner {
    Idle,
    ReadWorking { was_taken: bool, wanted: Files },
    Between { was_taken: bool, wanted: Files, region: u8 },
    Looked { was_taken: bool, wanted: Files, region: u8, entries: Files },
    Deleting { was_taken: bool, wanted: Files, region: u8, doomed: Files },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    files: [Place; FILES],
    taking: Taking,
    listed: Files,
    working: Option<Files>,
    complete: Option<Files>,
    older: Older,
    is_dropped: bool,
    cleaner: Cleaner,
    /// When the cleaner first saw a file in the archive.
    seen: [u8; FILES],
    seen_next: [u8; FILES],
    now: u8,
    takeovers_left: u8,
    was_deleted_by_person: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,
    /// `storage/region/src/store/commit.rs::commit`, its first step: the new file is in place.
    CompactionPlaces(u8),
    /// `storage/region/src/place.rs::retire`: the old one goes to the archive.
    CompactionRetires(u8),
    /// `cluster/master/src/archive.rs::archive_table`
    TableIsDropped,
    /// `cluster/master/src/procedure/take_snapshot.rs::write` begins.
    SnapshotBegins,
    /// `cluster/master/src/snapshot.rs::steady_stores`
    SnapshotLooks,
    /// `cluster/master/src/snapshot.rs::verify`
    SnapshotVerifies,
    /// `cluster/master/src/snapshot.rs::write`: the manifest in `.tmp`.
    SnapshotWrites,
    /// `cluster/master/src/snapshot.rs::write`: the rename.
    SnapshotGetsItsName,
    /// `cluster/master/src/procedure/queue.rs::end`
    SnapshotEnds,
    /// `cluster/master/src/snapshot.rs::delete`: the rename.
    OlderLeaves,
    /// `cluster/master/src/snapshot.rs::delete`: the files.
    OlderIsDeleted,
    /// `cluster/master/src/snapshot.rs::named_files` looks into `.tmp`. Before, the engine is asked whether a snapshot is being taken.
    CleanerReadsWorking,
    /// `cluster/master/src/snapshot.rs::named_files` looks at complete snapshots.
    CleanerReadsComplete,
    /// `cluster/master/src/cleaner.rs::clean_region` lists the archive of a region.
    CleanerLooks,
    /// `cluster/master/src/cleaner.rs::clean_region` decides.
    CleanerAsks,
    /// `cluster/master/src/cleaner.rs::delete_if_old`
    CleanerDeletes,
    /// The master ends, and the next one repeats the step (`cluster/master/src/procedure/engine.rs::load`).
    Takeover,
    /// A person deletes a file of the archive that has been listed, before it is verified.
    PersonDeletes(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The cleaner looks at complete snapshots, and not whether one is being taken.
    CleanerDoesNotAsk,
    /// The cleaner asks whether one is being taken only after it has read what complete ones name. As it was.
    CleanerAsksOnlyLate,
    /// A snapshot gets its name without a look whether its files are there.
    NamedBeforeVerified,
    /// The age of a file is not looked at.
    CleanerDoesNotWait,
}

pub struct Snapshots {
    flaw: Option<Flaw>,
    generations: usize,
    now_max: u8,
    takeovers: u8,
}

fn bit(file: usize) -> Files {
    1 << file
}

fn of_region(region: u8) -> Files {
    ((1 << GENERATIONS_MAX) - 1) << (usize::from(region) * GENERATIONS_MAX)
}

impl State {
    fn in_place(&self, place: Place) -> Files {
        (0..FILES).filter(|file| self.files[*file] == place).map(bit).sum()
    }

    fn are_there(&self, files: Files) -> bool {
        files & !(self.in_place(Place::Live) | self.in_place(Place::Archived)) == 0
    }

    fn newest_live(&self, region: u8) -> Option<usize> {
        let first = usize::from(region) * GENERATIONS_MAX;
        (first..first + GENERATIONS_MAX).rev().find(|file| self.files[*file] == Place::Live)
    }

    fn named_in_working(&self) -> Files {
        self.working.unwrap_or(0) | if self.older == Older::Leaving { bit(0) } else { 0 }
    }

    fn named_complete(&self) -> Files {
        self.complete.unwrap_or(0) | if self.older == Older::Complete { bit(0) } else { 0 }
    }

    /// Which files of a look are deleted; notes when each was first seen.
    fn decide(&mut self, wanted: Files, entries: Files, is_taken: bool, waits: bool) -> Files {
        let mut doomed = 0;
        for file in (0..FILES).filter(|file| entries & bit(*file) != 0) {
            if !is_taken && wanted & bit(file) != 0 {
                continue; // its time begins anew when it is not wanted any more
            }
            let first = if self.seen[file] == NEVER { self.now } else { self.seen[file] };
            self.seen_next[file] = first;
            let is_old = self.now - first >= KEEP || !waits;
            if !is_taken && is_old {
                doomed |= bit(file);
            }
        }
        doomed
    }

    fn clean_next(&mut self, was_taken: bool, wanted: Files, region: u8) {
        if usize::from(region) + 1 < REGIONS {
            self.cleaner = Cleaner::Between { was_taken, wanted, region: region + 1 };
        } else {
            self.cleaner = Cleaner::Idle;
            self.seen = self.seen_next;
            self.seen_next = [NEVER; FILES];
        }
    }
}

impl Snapshots {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn table_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for region in 0..REGIONS as u8 {
            let first = usize::from(region) * GENERATIONS_MAX;
            let live = (state.in_place(Place::Live) & of_region(region)).count_ones();
            match state.newest_live(region) {
                Some(newest) if live == 1 && newest + 1 < first + self.generations && !state.is_dropped => {
                    actions.push(Action::CompactionPlaces(region));
                }
                Some(_) if live == 2 => actions.push(Action::CompactionRetires(region)),
                _ => {}
            }
        }
        // It needs the lock of the table, which the snapshot has.
        if !state.is_dropped && !state.taking.is_under_way() && state.taking != Taking::No {
            actions.push(Action::TableIsDropped);
        }
        match state.older {
            Older::Complete => actions.push(Action::OlderLeaves),
            Older::Leaving => actions.push(Action::OlderIsDeleted),
            Older::Gone => {}
        }
    }

    fn snapshot_action(&self, taking: Taking) -> Option<Action> {
        match taking {
            Taking::No => Some(Action::SnapshotBegins),
            Taking::Looking { .. } => Some(Action::SnapshotLooks),
            Taking::Listed if self.has(Flaw::NamedBeforeVerified) => Some(Action::SnapshotWrites),
            Taking::Listed => Some(Action::SnapshotVerifies),
            Taking::Verified => Some(Action::SnapshotWrites),
            Taking::Written => Some(Action::SnapshotGetsItsName),
            Taking::Named => Some(Action::SnapshotEnds),
            Taking::Ended | Taking::Refused => None,
        }
    }

    fn take(&self, state: &mut State, action: Action) {
        state.taking = match (action, state.taking) {
            (Action::SnapshotLooks, Taking::Looking { region, before }) => {
                let now = state.in_place(Place::Live) & of_region(region);
                if before != Some(now) {
                    Taking::Looking { region, before: Some(now) }
                } else {
                    state.listed |= now;
                    match usize::from(region) + 1 {
                        REGIONS => Taking::Listed,
                        next => Taking::Looking { region: next as u8, before: None },
                    }
                }
            }
            (Action::SnapshotVerifies, _) if state.are_there(state.listed) => Taking::Verified,
            (Action::SnapshotVerifies, _) => Taking::Refused,
            (Action::SnapshotWrites, _) => {
                state.working = Some(state.listed);
                Taking::Written
            }
            (Action::SnapshotGetsItsName, _) => {
                state.complete = state.working.take();
                Taking::Named
            }
            (Action::SnapshotEnds, _) => Taking::Ended,
            // A step that is repeated finds the snapshot complete, or begins anew.
            _ if state.complete.is_some() => Taking::Named,
            _ => {
                state.listed = 0;
                Taking::Looking { region: 0, before: None }
            }
        };
    }

    fn clean(&self, state: &mut State, action: Action) {
        let (working, complete) = (state.named_in_working(), state.named_complete());
        match (action, state.cleaner) {
            (Action::CleanerReadsWorking, _) => {
                let asks = !self.has(Flaw::CleanerDoesNotAsk) && !self.has(Flaw::CleanerAsksOnlyLate);
                let was_taken = asks && state.taking.is_under_way();
                state.cleaner = Cleaner::ReadWorking { was_taken, wanted: working };
            }
            (Action::CleanerReadsComplete, Cleaner::ReadWorking { was_taken, wanted }) => {
                state.cleaner = Cleaner::Between { was_taken, wanted: wanted | complete, region: 0 };
            }
            (Action::CleanerLooks, Cleaner::Between { was_taken, wanted, region }) => {
                let entries = state.in_place(Place::Archived) & of_region(region);
                state.cleaner = Cleaner::Looked { was_taken, wanted, region, entries };
            }
            (Action::CleanerAsks, Cleaner::Looked { was_taken, wanted, region, entries }) => {
                let asks = !self.has(Flaw::CleanerDoesNotAsk);
                let is_taken = was_taken || (asks && state.taking.is_under_way());
                let doomed = state.decide(wanted, entries, is_taken, !self.has(Flaw::CleanerDoesNotWait));
                match doomed {
                    0 => state.clean_next(was_taken, wanted, region),
                    _ => state.cleaner = Cleaner::Deleting { was_taken, wanted, region, doomed },
                }
            }
            (Action::CleanerDeletes, Cleaner::Deleting { was_taken, wanted, region, doomed }) => {
                for file in (0..FILES).filter(|file| doomed & bit(*file) != 0) {
                    state.files[file] = Place::Deleted;
                    state.seen_next[file] = NEVER;
                }
                state.clean_next(was_taken, wanted, region);
            }
            _ => {}
        }
    }
}

impl Model for Snapshots {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut files = [Place::Absent; FILES];
        (0..REGIONS).for_each(|region| files[region * GENERATIONS_MAX] = Place::Live);
        vec![State {
            files,
            taking: Taking::No,
            listed: 0,
            working: None,
            complete: None,
            older: Older::Complete,
            is_dropped: false,
            cleaner: Cleaner::Idle,
            seen: [NEVER; FILES],
            seen_next: [NEVER; FILES],
            now: 0,
            takeovers_left: self.takeovers,
            was_deleted_by_person: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.now_max {
            actions.push(Action::Tick);
        }
        self.table_actions(state, actions);
        actions.extend(self.snapshot_action(state.taking));
        actions.push(match state.cleaner {
            Cleaner::Idle => Action::CleanerReadsWorking,
            Cleaner::ReadWorking { .. } => Action::CleanerReadsComplete,
            Cleaner::Between { .. } => Action::CleanerLooks,
            Cleaner::Looked { .. } => Action::CleanerAsks,
            Cleaner::Deleting { .. } => Action::CleanerDeletes,
        });
        if state.takeovers_left > 0 && state.taking.is_under_way() {
            actions.push(Action::Takeover);
        }
        let is_listed = matches!(state.taking, Taking::Looking { .. } | Taking::Listed);
        if is_listed && !state.was_deleted_by_person {
            let archived = state.in_place(Place::Archived) & state.listed & !state.named_complete();
            let files = (0..FILES).filter(|file| archived & bit(*file) != 0);
            actions.extend(files.map(|file| Action::PersonDeletes(file as u8)));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::CompactionPlaces(region) => {
                let newest = state.newest_live(region)?;
                state.files[newest + 1] = Place::Live;
            }
            Action::CompactionRetires(region) => {
                let newest = state.newest_live(region)?;
                state.files[newest - 1] = Place::Archived;
            }
            Action::TableIsDropped => {
                let live = |place: &mut Place| {
                    if *place == Place::Live {
                        *place = Place::Archived
                    }
                };
                state.files.iter_mut().for_each(live);
                state.is_dropped = true;
            }
            Action::OlderLeaves => state.older = Older::Leaving,
            Action::OlderIsDeleted => state.older = Older::Gone,
            Action::Takeover => {
                state.takeovers_left -= 1;
                (state.cleaner, state.seen) = (Cleaner::Idle, [NEVER; FILES]);
                state.seen_next = [NEVER; FILES];
                self.take(&mut state, action);
            }
            Action::PersonDeletes(file) => {
                state.files[usize::from(file)] = Place::Deleted;
                state.was_deleted_by_person = true;
            }
            Action::SnapshotBegins
            | Action::SnapshotLooks
            | Action::SnapshotVerifies
            | Action::SnapshotWrites
            | Action::SnapshotGetsItsName
            | Action::SnapshotEnds => self.take(&mut state, action),
            Action::CleanerReadsWorking
            | Action::CleanerReadsComplete
            | Action::CleanerLooks
            | Action::CleanerAsks
            | Action::CleanerDeletes => self.clean(&mut state, action),
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("all files of a complete snapshot are there", |_, state: &State| {
                state.are_there(state.named_complete())
            }),
            Property::always("a complete snapshot has a file of each region", |_, state: &State| {
                let has_all = |files: Files| (0..REGIONS as u8).all(|region| files & of_region(region) != 0);
                state.complete.is_none_or(has_all)
            }),
            Property::sometimes("a complete snapshot names a file of the archive", |_, state: &State| {
                state.complete.is_some_and(|files| files & state.in_place(Place::Archived) != 0)
            }),
            Property::sometimes("the cleaner deletes a file", |_, state: &State| {
                !state.was_deleted_by_person && state.in_place(Place::Deleted) != 0
            }),
            Property::sometimes("a snapshot is refused", |_, state: &State| state.taking == Taking::Refused),
            Property::sometimes("a file grows old while a snapshot is taken", |_, state: &State| {
                let is_old = |seen: &u8| *seen != NEVER && state.now - *seen >= KEEP;
                matches!(state.taking, Taking::Looking { region: 1, .. }) && state.seen.iter().any(is_old)
            }),
            Property::sometimes("a master takes a snapshot over", |model: &Self, state: &State| {
                state.takeovers_left < model.takeovers && state.taking == Taking::Ended
            }),
        ]
    }
}

impl Protocol for Snapshots {
    type Flaw = Flaw;

    const NAME: &'static str = "snapshot";
    const FLAWS: &'static [Flaw] = &[
        Flaw::CleanerDoesNotAsk,
        Flaw::CleanerAsksOnlyLate,
        Flaw::NamedBeforeVerified,
        Flaw::CleanerDoesNotWait,
    ];

    fn bounds(size: Size, flaw: Option<Flaw>) -> Vec<Snapshots> {
        let of = |generations, now_max, takeovers| Snapshots { flaw, generations, now_max, takeovers };
        match size {
            Size::Small => vec![of(2, 1, 1)],
            Size::Full => vec![of(2, 3, 2), of(GENERATIONS_MAX, 1, 0)],
        }
    }

    fn bound(&self) -> String {
        let Snapshots { generations, now_max, takeovers, .. } = self;
        format!(
            "{REGIONS} regions of {generations} files one after the other, {} times, 2 snapshots, {takeovers} takeovers",
            now_max + 1
        )
    }
}
