//! A region's edits go through WAL files that race, fail and are replaced, to a replay after a crash, and to a replication peer.
//!
//! Edits are numbers that rise. A file has a run of them: those that are sure to be in it, and those that may be, because their write
//! failed, lost a race or was under way at the death of the server. Which of these it has is known when it is sealed: HDFS keeps what
//! the shortest replica has that answers. After the crash each file is split alone, the files of edits are merged and replayed, and
//! the replay flushes at any point and may die at any point.
//!
//! The peer reads the same files: those of the live server as far as they are acknowledged, and all of them when it is gone.
//!
//! Not here: several regions and families, `SyncMode::Written`, the bytes of entries, damage, the second server's own WAL. All that is
//! buffered is one round; in the log there may be several, and what is repeated in a new file is one.

mod peer;
mod recovery;

use stateright::{Model, Property};

use crate::{Protocol, Size};

/// Edits and files at most, whatever the bound.
const FILES_MAX: usize = 5;

/// Number of an edit; 0: none.
type Seq = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Spare,
    Current,
    /// It was the current one.
    Closed,
    /// It lost a race, and its removal is due.
    Useless,
    /// In `oldWALs`.
    Archived,
    Removed,
}

/// A WAL file. It has the edits from `first` on: `sure` of them, and perhaps up to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct File {
    kind: Kind,
    first: Seq,
    sure: u8,
    most: u8,
    has_trailer: bool,
    /// The last edit that is not flushed, as the server counts it; 0: none.
    unflushed: Seq,
}

impl File {
    fn new(kind: Kind) -> File {
        File { kind, first: 0, sure: 0, most: 0, has_trailer: false, unflushed: 0 }
    }

    /// Takes the edits up to `last`; `is_sure`: on all its machines.
    fn take(&mut self, from: Seq, last: Seq, is_sure: bool) {
        if last < from {
            return;
        }
        assert!(self.most == 0 || self.first + self.most == from, "a file has a run of edits");
        if self.most == 0 {
            self.first = from;
        }
        self.most = last + 1 - self.first;
        if is_sure {
            self.sure = self.most;
        }
    }

    fn seal(&mut self, len: u8) {
        (self.sure, self.most) = (len, len);
    }

    fn is_sealed(&self) -> bool {
        self.sure == self.most
    }

    fn edits(&self) -> impl Iterator<Item = Seq> + use<> {
        self.first..self.first + self.most
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Live,
    /// The server is dead; a bit for each file that is split.
    Splitting(u8),
    /// So many entries are replayed; those in memory, a bit each.
    Replaying {
        at: u8,
        memory: u16,
    },
    /// All is flushed, and the files of edits are being removed.
    Removing,
    Open,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    files: Vec<File>,
    appended: Seq,
    acknowledged: Seq,
    /// The current file failed, and the log has no other yet.
    is_broken: bool,
    /// The round up to this edit is on its way to the current file and the spare one.
    race: Option<Seq>,
    /// The current file took the place of one that failed, and was not synced yet.
    repeats_unsynced: bool,
    /// Highest number of a store file.
    flushed: Seq,
    /// Up to where the WAL knows of it.
    told: Seq,
    phase: Phase,
    /// First and last edit of each file of recovered edits.
    edits: Vec<(Seq, Seq)>,
    /// Edits in store files, a bit each.
    stored: u16,
    is_applied_twice: bool,
    crashes_left: u8,
    /// Of each file, how many entries the peer has or need not get.
    sent: [u8; FILES_MAX],
    /// Files of which the peer has all.
    finished: u8,
    /// The last edit that the peer got.
    peer: Seq,
    /// An edit came behind a newer one, again, or before those before it.
    is_peer_wrong: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `storage/wal/src/log.rs::append`
    Append,
    /// `storage/wal/src/hedge.rs::put_alone`: on all machines of the file.
    RoundIsWritten,
    /// `storage/wal/src/replace.rs::hold_for_replacement`
    RoundFails,
    /// `storage/wal/src/hedge.rs::start_spare`
    RaceBegins,
    /// `storage/wal/src/hedge.rs::race`
    CurrentWins,
    /// `storage/wal/src/hedge.rs::switch_to_spare`
    SpareWins,
    /// `storage/wal/src/hedge.rs::finish`
    BothFail,
    /// `storage/wal/src/replace.rs::go_on_in`
    Replace,
    /// `storage/wal/src/replace.rs::keep_spare`
    MakeSpare,
    /// `storage/wal/src/roll.rs::remove_useless`
    RemoveUseless(usize),
    /// `storage/wal/src/roll.rs::switch_to`, also of a file that is thin (`is_roll_due`).
    Roll,
    /// `storage/region/src/flush.rs`: the store file has its name.
    Flush,
    /// `storage/wal/src/roll.rs::strike_out`
    FlushIsTold,
    /// `storage/wal/src/roll.rs::archive`
    Archive(usize),
    /// At any point. What is on its way may arrive or not.
    ServerDies,
    /// `storage/wal/src/split.rs::split_log_files` of one file, which is sealed first and has so many entries. Twice is as once.
    /// `storage/wal/src/split.rs::add` leaves out what is known to be flushed, or does not know it.
    Split { file: usize, len: u8, leaves_out: bool },
    /// `storage/region/src/replay.rs::replay`
    ReplayBegins,
    /// `storage/region/src/replay.rs::replay_entry`
    ReplayEntry,
    /// `storage/region/src/replay.rs::flush_replayed`, whatever is in memory.
    ReplayFlushes,
    /// `storage/region/src/replay.rs::replay`, behind the last entry.
    ReplayEnds,
    /// `storage/region/src/replay.rs::remove_replayed`
    RemoveEdits(usize),
    /// The replaying server dies.
    ReplayDies,
    /// `cluster/regionserver/src/replication/wals.rs::in_place`
    SourceSeals { file: usize, len: u8 },
    /// `cluster/regionserver/src/replication/wals.rs::read`: the next entry.
    SourceSends(usize),
    /// `cluster/regionserver/src/replication/queue.rs::advance`
    SourceFinishes(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Files of edits are replayed one after the other, in the order of their last edits. As it was.
    ReplayedByLastEdit,
    /// A flush within the replay has the number of its file's last edit.
    FlushedAboveWhatComes,
    /// An edit of two files is applied twice.
    RepeatsAreApplied,
    /// The file that lost a race stays, and is a log like the others to the peer.
    LoserIsNotMarked,
    /// The source does not look whether a WAL repeats the one before it.
    RepeatsAreSent,
    /// The source of a server that is gone sends a WAL that the live one has left out, since it lost a race and was not removed yet. As
    /// it was.
    HiddenLoserIsSent,
    /// The source passes such a WAL over, but takes the next one for a repetition of it.
    HiddenLoserIsCompared,
    /// The current file that lost a race is removed like a spare one.
    LosingCurrentFileIsRemoved,
    /// What a file has unflushed is forgotten when another takes its place.
    ReplacedFileIsNotCounted,
    /// The round is acknowledged when most machines have it.
    MostMachinesAreEnough,
    /// The peer gets what was written to a file that has failed.
    UnsyncedIsSent,
    /// The WAL is told of a flush before the store file has its name.
    ToldBeforeFlushed,
}

pub struct Wals {
    flaw: Option<Flaw>,
    edits: Seq,
    files: usize,
    crashes: u8,
}

fn bit(seq: Seq) -> u16 {
    1 << seq
}

impl State {
    fn of_kind(&self, kind: Kind) -> Option<usize> {
        self.files.iter().position(|file| file.kind == kind)
    }

    fn current(&mut self) -> &mut File {
        let at = self.of_kind(Kind::Current).expect("a live log has a file");
        &mut self.files[at]
    }

    /// The file before stays closed, with all that is not flushed: some of it may be in it.
    fn go_on_in(&mut self, next: usize, unflushed: Seq, has_trailer: bool) {
        let current = self.current();
        (current.kind, current.unflushed, current.has_trailer) = (Kind::Closed, unflushed, has_trailer);
        self.files[next].kind = Kind::Current;
    }

    /// `storage/wal/src/appends.rs::Unflushed` of the region: its last edit, if it is not flushed.
    fn unflushed(&self, last: Seq) -> Seq {
        if last > self.told { last } else { 0 }
    }
}

impl Wals {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The spare file, or one that is made now.
    fn next_file(&self, state: &mut State) -> Option<usize> {
        if let Some(spare) = state.of_kind(Kind::Spare) {
            return Some(spare);
        }
        (state.files.len() < self.files).then(|| {
            state.files.push(File::new(Kind::Spare));
            state.files.len() - 1
        })
    }

    fn live_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let buffered = state.appended > state.acknowledged;
        if state.appended < self.edits {
            actions.push(Action::Append);
        }
        let has_spare = state.of_kind(Kind::Spare).is_some();
        let can_make = state.files.len() < self.files;
        if state.race.is_some() {
            actions.extend([Action::CurrentWins, Action::SpareWins, Action::BothFail]);
        } else if state.is_broken {
            if has_spare || can_make {
                actions.push(Action::Replace);
            }
        } else if buffered {
            actions.extend([Action::RoundIsWritten, Action::RoundFails]);
            if has_spare {
                actions.push(Action::RaceBegins);
            }
        }
        if !state.is_broken && state.race.is_none() && (has_spare || can_make) {
            actions.push(Action::Roll);
        }
        if !has_spare && can_make && state.race.is_none() {
            actions.push(Action::MakeSpare);
        }
        if state.acknowledged > state.flushed {
            actions.push(Action::Flush);
        }
        let flushes_first = !self.has(Flaw::ToldBeforeFlushed);
        if state.told < if flushes_first { state.flushed } else { state.acknowledged } {
            actions.push(Action::FlushIsTold);
        }
        for (at, file) in state.files.iter().enumerate() {
            match file.kind {
                Kind::Useless => actions.push(Action::RemoveUseless(at)),
                Kind::Closed if file.unflushed == 0 => actions.push(Action::Archive(at)),
                _ => {}
            }
        }
        actions.push(Action::ServerDies);
    }

    fn live(&self, state: &mut State, action: &Action) -> Option<()> {
        let (from, last) = (state.acknowledged + 1, state.appended);
        match action {
            Action::Append => state.appended += 1,
            Action::RoundIsWritten => {
                let is_sure = !self.has(Flaw::MostMachinesAreEnough);
                state.current().take(from, last, is_sure);
                (state.acknowledged, state.repeats_unsynced) = (last, false);
            }
            Action::RoundFails => {
                state.current().take(from, last, false);
                state.is_broken = true;
            }
            Action::RaceBegins => state.race = Some(last),
            Action::CurrentWins | Action::SpareWins | Action::BothFail => self.end_race(state, action)?,
            Action::Replace => {
                let next = self.next_file(state)?;
                let counted =
                    if self.has(Flaw::ReplacedFileIsNotCounted) { 0 } else { state.unflushed(last) };
                state.go_on_in(next, counted, false);
                (state.is_broken, state.repeats_unsynced) = (false, true);
            }
            Action::MakeSpare => _ = self.next_file(state)?,
            Action::RemoveUseless(at) => state.files[*at].kind = Kind::Removed,
            Action::Roll => {
                let next = self.next_file(state)?;
                state.current().take(from, last, true);
                (state.acknowledged, state.repeats_unsynced) = (last, false);
                let counted = state.unflushed(last);
                state.go_on_in(next, counted, true);
            }
            Action::Flush => {
                (state.flushed + 1..=state.acknowledged).for_each(|seq| state.stored |= bit(seq));
                state.flushed = state.acknowledged;
            }
            Action::FlushIsTold => {
                state.told =
                    if self.has(Flaw::ToldBeforeFlushed) { state.acknowledged } else { state.flushed };
                let told = state.told;
                state
                    .files
                    .iter_mut()
                    .filter(|file| file.unflushed <= told)
                    .for_each(|file| file.unflushed = 0);
            }
            Action::Archive(at) => state.files[*at].kind = Kind::Archived,
            Action::ServerDies => self.die(state),
            _ => return None,
        }
        Some(())
    }

    fn end_race(&self, state: &mut State, action: &Action) -> Option<()> {
        let (from, last) = (state.acknowledged + 1, state.race.take()?);
        let spare = state.of_kind(Kind::Spare)?;
        let (current_wins, spare_wins) = (*action == Action::CurrentWins, *action == Action::SpareWins);
        state.current().take(from, last, current_wins);
        state.files[spare].take(from, last, spare_wins);
        if spare_wins {
            let counted =
                if self.has(Flaw::ReplacedFileIsNotCounted) { 0 } else { state.unflushed(state.appended) };
            let old = state.of_kind(Kind::Current)?;
            state.go_on_in(spare, counted, false);
            if self.has(Flaw::LosingCurrentFileIsRemoved) {
                state.files[old].kind = Kind::Useless;
            }
        } else {
            let is_marked = !self.has(Flaw::LoserIsNotMarked);
            state.files[spare].kind = if is_marked { Kind::Useless } else { Kind::Closed };
        }
        match current_wins || spare_wins {
            true => (state.acknowledged, state.repeats_unsynced) = (last, false),
            false => state.is_broken = true,
        }
        Some(())
    }

    fn die(&self, state: &mut State) {
        if let (Some(last), Some(spare)) = (state.race, state.of_kind(Kind::Spare)) {
            let from = state.acknowledged + 1;
            state.current().take(from, last, false);
            state.files[spare].take(from, last, false);
        }
        (state.race, state.is_broken, state.repeats_unsynced) = (None, false, false);
        state.files.iter_mut().for_each(|file| file.unflushed = 0);
        state.phase = Phase::Splitting(0);
    }
}

impl Model for Wals {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            files: vec![File::new(Kind::Current)],
            appended: 0,
            acknowledged: 0,
            is_broken: false,
            race: None,
            repeats_unsynced: false,
            flushed: 0,
            told: 0,
            phase: Phase::Live,
            edits: Vec::new(),
            stored: 0,
            is_applied_twice: false,
            crashes_left: self.crashes,
            sent: [0; FILES_MAX],
            finished: 0,
            peer: 0,
            is_peer_wrong: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.phase {
            Phase::Live => self.live_actions(state, actions),
            _ => self.recovery_actions(state, actions),
        }
        self.source_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::SourceSeals { .. } | Action::SourceSends(_) | Action::SourceFinishes(_) => {
                self.send(&mut state, &action)?;
            }
            _ if last.phase == Phase::Live => self.live(&mut state, &action)?,
            _ => self.recover(&mut state, &action)?,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("each acknowledged edit is there when the region opens", |_, state: &State| {
                state.phase != Phase::Open || (1..=state.acknowledged).all(|seq| state.stored & bit(seq) != 0)
            }),
            Property::always("no edit is applied twice", |_, state: &State| !state.is_applied_twice),
            Property::always("the peer gets each edit once, in order", |_, state: &State| {
                !state.is_peer_wrong
            }),
            Property::always("what the peer has got is in the table", |_, state: &State| {
                state.phase != Phase::Open || (1..=state.peer).all(|seq| state.stored & bit(seq) != 0)
            }),
            Property::sometimes("two files of edits overlap", |_, state: &State| {
                state.phase == Phase::Removing && state.edits.windows(2).any(|two| two[1].0 <= two[0].1)
            }),
            Property::sometimes("a replay dies behind a flush", |model: &Self, state: &State| {
                let is_again = state.crashes_left < model.crashes;
                is_again
                    && state
                        .edits
                        .iter()
                        .any(|(first, last)| *first <= state.flushed && state.flushed < *last)
            }),
            Property::sometimes("an edit is recovered that was not acknowledged", |_, state: &State| {
                state.phase == Phase::Open && state.stored & !(bit(state.acknowledged + 1) - 1) != 0
            }),
            Property::sometimes("the peer gets all of a dead server", |model: &Self, state: &State| {
                state.phase == Phase::Open && state.peer == model.edits
            }),
        ]
    }
}

impl Protocol for Wals {
    type Flaw = Flaw;

    const NAME: &'static str = "wal";
    const FLAWS: &'static [Flaw] = &[
        Flaw::ReplayedByLastEdit,
        Flaw::FlushedAboveWhatComes,
        Flaw::RepeatsAreApplied,
        Flaw::LoserIsNotMarked,
        Flaw::RepeatsAreSent,
        Flaw::HiddenLoserIsSent,
        Flaw::HiddenLoserIsCompared,
        Flaw::LosingCurrentFileIsRemoved,
        Flaw::ReplacedFileIsNotCounted,
        Flaw::MostMachinesAreEnough,
        Flaw::UnsyncedIsSent,
        Flaw::ToldBeforeFlushed,
    ];

    fn bounds(size: Size, flaw: Option<Flaw>) -> Vec<Wals> {
        let of = |edits, files, crashes| Wals { flaw, edits, files, crashes };
        match size {
            // A file that is left out between two that are not, and two that hold one round.
            Size::Small if flaw == Some(Flaw::HiddenLoserIsCompared) => vec![of(2, 4, 0)],
            // A flaw is found long before all states are.
            Size::Small => vec![of(2 + u8::from(flaw.is_some()), 3, 1)],
            Size::Full => vec![of(3, 3, 2), of(2, 4, 1)],
        }
    }

    fn bound(&self) -> String {
        let Wals { edits, files, crashes, .. } = self;
        format!("{edits} edits, {files} files, 1 death of the server and {crashes} of the replay")
    }
}
