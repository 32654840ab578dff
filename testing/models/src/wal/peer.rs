//! The source of a replication peer, which reads the same files: at the server while it lives, and at another one when it is gone.

use super::{Action, File, Flaw, Kind, Phase, State, Wals};

impl Wals {
    /// The files of the source in their order, and how many entries of each may be sent; `None`: it is to be sealed first.
    /// `cluster/regionserver/src/replication/wals.rs::list`
    fn listed(&self, state: &State) -> Vec<(usize, Option<u8>)> {
        let mut listed = Vec::new();
        if state.phase == Phase::Live {
            // `storage/wal/src/roll.rs::acknowledged`
            let sends_unsynced = self.has(Flaw::UnsyncedIsSent);
            if (state.repeats_unsynced && !sends_unsynced) || state.race.is_some() {
                return listed;
            }
            for (at, file) in state.files.iter().enumerate() {
                match file.kind {
                    Kind::Closed | Kind::Archived => listed.push((at, file.is_sealed().then_some(file.most))),
                    Kind::Current => {
                        let synced = (state.acknowledged + 1).saturating_sub(file.first).min(file.most);
                        listed.push((at, Some(if sends_unsynced { file.most } else { synced })));
                        break; // newer ones have nothing yet
                    }
                    Kind::Spare | Kind::Useless | Kind::Removed => {}
                }
            }
        } else if !matches!(state.phase, Phase::Splitting(_)) {
            let archived = |at: usize| {
                let file = &state.files[at];
                let is_listed = file.kind == Kind::Archived && !self.was_left_out(state, at);
                is_listed.then_some((at, Some(file.most)))
            };
            listed.extend((0..state.files.len()).filter_map(archived));
        }
        listed
    }

    /// WALs are read in their order: if the peer has something of a newer one, and nothing of this one, the live server has left it out.
    /// `cluster/regionserver/src/replication/wals.rs::left_out`
    fn was_left_out(&self, state: &State, at: usize) -> bool {
        let is_begun = |at: usize| state.sent[at] > 0 || state.finished & (1 << at) != 0;
        let is_gone = !matches!(state.phase, Phase::Live | Phase::Splitting(_));
        let is_passed = state.files[at].kind == Kind::Archived && !is_begun(at);
        let is_passed = is_passed && (at + 1..state.files.len()).any(is_begun);
        is_gone && is_passed && !self.has(Flaw::HiddenLoserIsSent)
    }

    /// How many entries at the begin of a file are also in one before it. `cluster/regionserver/src/replication/wals.rs::repeated`
    fn repeated(&self, state: &State, listed: &[(usize, Option<u8>)], place: usize) -> u8 {
        if self.has(Flaw::RepeatsAreSent) || self.has(Flaw::LoserIsNotMarked) {
            return 0;
        }
        let file = &state.files[listed[place].0];
        let is_sound = file.kind == Kind::Current || file.has_trailer;
        let mut before: Vec<&File> = Vec::new();
        let is_listed = |at: &usize| listed[..place].iter().any(|(listed, _)| listed == at);
        let compares_all = self.has(Flaw::HiddenLoserIsCompared);
        let is_compared = |at: &usize| is_listed(at) || (compares_all && self.was_left_out(state, *at));
        for at in (0..listed[place].0).rev().filter(is_compared) {
            let other = &state.files[at];
            if other.has_trailer && is_sound && before.is_empty() {
                break;
            }
            before.push(other);
            if other.has_trailer {
                break;
            }
        }
        // `storage/wal/src/repeats.rs::common_len`
        let common = |other: &&File| match other.edits().any(|seq| seq == file.first) {
            true => file.most.min(other.first + other.most - file.first),
            false => 0,
        };
        before.iter().map(common).max().unwrap_or(0)
    }

    /// What the source does next, of which there is one thing: it reads one file after the other.
    pub(super) fn source_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let listed = self.listed(state);
        let next = listed.iter().position(|(at, _)| state.finished & (1 << at) == 0);
        let Some(place) = next else {
            // `cluster/regionserver/src/replication/wals.rs::finish_left_out`: last, since until then it is known by the others.
            let left = (0..state.files.len()).filter(|at| self.was_left_out(state, *at));
            actions.extend(left.take(1).map(Action::SourceFinishes));
            return;
        };
        let (at, limit) = listed[place];
        let file = &state.files[at];
        match limit {
            None => actions.extend((file.sure..=file.most).map(|len| Action::SourceSeals { file: at, len })),
            Some(limit) if state.sent[at].max(self.begin(state, &listed, place)) < limit => {
                actions.push(Action::SourceSends(at));
            }
            Some(_) if file.kind == Kind::Current => {}
            Some(_) => actions.push(Action::SourceFinishes(at)),
        }
    }

    /// Where it begins to read.
    fn begin(&self, state: &State, listed: &[(usize, Option<u8>)], place: usize) -> u8 {
        match state.sent[listed[place].0] {
            0 => self.repeated(state, listed, place),
            sent => sent,
        }
    }

    pub(super) fn send(&self, state: &mut State, action: &Action) -> Option<()> {
        match action {
            Action::SourceSeals { file, len } => state.files[*file].seal(*len),
            Action::SourceSends(at) => {
                let listed = self.listed(state);
                let place = listed.iter().position(|(listed, _)| listed == at)?;
                let begin = self.begin(state, &listed, place);
                let seq = state.files[*at].first + begin;
                state.is_peer_wrong |= seq != state.peer + 1;
                state.peer = seq;
                state.sent[*at] = begin + 1;
            }
            Action::SourceFinishes(at) => state.finished |= 1 << at,
            _ => return None,
        }
        Some(())
    }
}
