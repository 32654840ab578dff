//! What follows the death of the server: its files are split alone, and the region replays what they had.

use super::{Action, File, Flaw, Kind, Phase, Seq, State, Wals, bit};

impl Wals {
    pub(super) fn recovery_actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.phase {
            Phase::Splitting(split) => {
                let is_there = |file: &File| !matches!(file.kind, Kind::Archived | Kind::Removed);
                let left: Vec<usize> = (0..state.files.len())
                    .filter(|at| split & (1 << at) == 0 && is_there(&state.files[*at]))
                    .collect();
                if left.is_empty() {
                    actions.push(Action::ReplayBegins);
                }
                for at in left {
                    let file = &state.files[at];
                    for len in file.sure..=file.most {
                        actions.push(Action::Split { file: at, len, leaves_out: false });
                        if state.flushed > 0 && file.most > 0 && file.first <= state.flushed {
                            actions.push(Action::Split { file: at, len, leaves_out: true });
                        }
                    }
                }
            }
            Phase::Replaying { at, memory } => {
                let is_left = usize::from(at) < self.entries(state).len();
                actions.push(if is_left { Action::ReplayEntry } else { Action::ReplayEnds });
                if memory != 0 && is_left {
                    actions.push(Action::ReplayFlushes);
                }
            }
            Phase::Removing => actions.extend((0..state.edits.len()).map(Action::RemoveEdits)),
            Phase::Live | Phase::Open => {}
        }
        if state.crashes_left > 0 && matches!(state.phase, Phase::Replaying { .. } | Phase::Removing) {
            actions.push(Action::ReplayDies);
        }
    }

    /// The entries of a replay in their order, each with its file.
    fn entries(&self, state: &State) -> Vec<(Seq, usize)> {
        let mut files: Vec<usize> = (0..state.edits.len()).collect();
        if self.has(Flaw::ReplayedByLastEdit) {
            files.sort_by_key(|at| state.edits[*at].1);
        }
        let of_file = |at: usize| (state.edits[at].0..=state.edits[at].1).map(move |seq| (seq, at));
        let mut entries: Vec<(Seq, usize)> = files.into_iter().flat_map(of_file).collect();
        if !self.has(Flaw::ReplayedByLastEdit) {
            entries.sort();
        }
        if !self.has(Flaw::RepeatsAreApplied) && !self.has(Flaw::ReplayedByLastEdit) {
            entries.dedup_by_key(|(seq, _)| *seq);
        }
        entries
    }

    pub(super) fn recover(&self, state: &mut State, action: &Action) -> Option<()> {
        match (action, state.phase.clone()) {
            (Action::Split { file, len, leaves_out }, Phase::Splitting(split)) => {
                state.files[*file].seal(*len);
                let floor = if *leaves_out { state.flushed } else { 0 };
                let mut left = state.files[*file].edits().filter(|seq| *seq > floor);
                if let Some(first) = left.next() {
                    let edits = (first, left.last().unwrap_or(first));
                    if let Err(at) = state.edits.binary_search(&edits) {
                        state.edits.insert(at, edits);
                    }
                }
                state.phase = Phase::Splitting(split | (1 << file));
            }
            (Action::ReplayBegins, _) => {
                let gone = |file: &mut File| {
                    if file.kind != Kind::Removed {
                        file.kind = Kind::Archived;
                    }
                };
                state.files.iter_mut().for_each(gone);
                state.phase = Phase::Replaying { at: 0, memory: 0 };
            }
            (Action::ReplayEntry, Phase::Replaying { at, memory }) => {
                let (seq, _) = self.entries(state)[usize::from(at)];
                let is_new = seq > state.flushed;
                if is_new && memory & bit(seq) != 0 {
                    state.is_applied_twice = self.has(Flaw::RepeatsAreApplied);
                }
                let memory = if is_new { memory | bit(seq) } else { memory };
                state.phase = Phase::Replaying { at: at + 1, memory };
            }
            (Action::ReplayFlushes, Phase::Replaying { at, memory }) => {
                self.flush_replayed(state, at, memory);
                state.phase = Phase::Replaying { at, memory: 0 };
            }
            (Action::ReplayEnds, Phase::Replaying { at, memory }) => {
                if memory != 0 {
                    self.flush_replayed(state, at, memory);
                }
                state.phase = if state.edits.is_empty() { Phase::Open } else { Phase::Removing };
            }
            (Action::RemoveEdits(at), _) => {
                state.edits.remove(*at);
                if state.edits.is_empty() {
                    state.phase = Phase::Open;
                }
            }
            (Action::ReplayDies, _) => {
                state.crashes_left -= 1;
                state.phase = Phase::Replaying { at: 0, memory: 0 };
            }
            _ => return None,
        }
        Some(())
    }

    fn flush_replayed(&self, state: &mut State, at: u8, memory: u16) {
        let entries = self.entries(state);
        let replayed = &entries[..usize::from(at)];
        let number = |(seq, file): &(Seq, usize)| match self.has(Flaw::FlushedAboveWhatComes) {
            true => state.edits[*file].1,
            false => *seq,
        };
        let highest = replayed.iter().map(number).max().unwrap_or(0);
        state.is_applied_twice |= state.stored & memory != 0;
        state.stored |= memory;
        state.flushed = state.flushed.max(highest);
    }
}
