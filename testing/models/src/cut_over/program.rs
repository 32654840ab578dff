//! What the program does, step by step.

use super::{Action, CutOver, Flaw, Phase, State, Step};

impl CutOver {
    pub(super) fn run_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Some(step) = state.run else {
            match state.phase {
                Phase::Planned => actions.push(Action::Plan),
                Phase::Ready | Phase::CuttingOver | Phase::CutOver if state.runs_left > 0 => {
                    actions.push(Action::RunCutOver);
                    if state.phase != Phase::Ready {
                        actions.push(Action::RunPlain);
                    }
                    if state.phase == Phase::CutOver {
                        actions.push(Action::RunFinish);
                    }
                }
                _ => {}
            }
            return;
        };
        let is_left_sent = state.left.is_empty();
        let may = match step {
            // `programs/migrate/src/marks.rs::of_dead_servers`, also at the end: `ending.rs::last_edits`
            Step::Check => is_left_sent || !state.is_left_known,
            Step::AwaitMark | Step::AwaitFinishMark => state.awaited == 0,
            Step::AwaitLastMark => state.awaited == 0 || self.has(Flaw::CutOverBeforeCatchUp),
            Step::AwaitClosed => state.requests.is_empty() && !state.is_source_open,
            Step::AwaitOpen | Step::AwaitReopened => state.requests.is_empty(),
            Step::RemovePeers => is_left_sent || self.has(Flaw::FinishForgetsDeadServers),
            _ => true,
        };
        if may {
            actions.push(Action::Go);
        }
        if step == Step::LastLook {
            actions.push(Action::GoWithoutSearch);
        }
        let is_pause = matches!(
            step,
            Step::AwaitClosed | Step::SetLastMark | Step::AwaitLastMark | Step::AskWhoDied | Step::LastLook
        );
        if is_pause {
            actions.push(Action::PauseIsOver);
        }
        if step == Step::NoteCutOver {
            actions.extend([false, true].map(|is_written| Action::NoteFails { is_written }));
        }
        actions.push(Action::Killed);
    }

    pub(super) fn begin(&self, state: &mut State, action: Action) {
        state.runs_left -= 1;
        let first = match (state.phase, action) {
            (Phase::CutOver, Action::RunCutOver) => Some(Step::TellClients),
            (_, Action::RunCutOver) => Some(Step::Check),
            (Phase::CuttingOver, _) => Some(Step::Reopen),
            (Phase::CutOver, Action::RunFinish)
                if state.is_complete || self.has(Flaw::FinishedBeforeComplete) =>
            {
                Some(Step::FinishMark)
            }
            (Phase::CutOver, Action::RunPlain) if self.has(Flaw::OpenedByAnotherRun) => Some(Step::OnlyOpen),
            _ => None, // `programs/migrate/src/state.rs::opens`: it says what is to be done first
        };
        state.run = first;
    }

    /// One step, and what comes next; `None`: the run ends.
    fn go(&self, state: &mut State, step: Step, is_searched: bool) -> Option<Step> {
        match step {
            Step::Check => {
                state.began_with_both = state.is_first_alive;
                let refuses = state.has_stuck_peer && !self.has(Flaw::PeersNotAskedAgain);
                if refuses {
                    return self.refuse(state);
                }
                Some(if self.has(Flaw::WayBackMadeLate) { Step::SetMark } else { Step::MakeWayBack })
            }
            Step::MakeWayBack => {
                state.has_way_back = true;
                Some(Step::SetMark)
            }
            Step::SetMark => {
                state.set_mark();
                Some(Step::AwaitMark)
            }
            Step::AwaitMark => {
                let is_walk_due = state.walked_with_both && !state.is_first_alive;
                Some(if is_walk_due && !self.has(Flaw::NoWalkAfterDeath) {
                    Step::Walk
                } else {
                    Step::Approach
                })
            }
            Step::Walk => {
                // `programs/migrate/src/compare.rs::compare_all`: what is missing is written.
                state.target |= state.source;
                (state.compared, state.walked_with_both) = (state.source, state.is_first_alive);
                Some(Step::Approach)
            }
            Step::Approach => {
                if state.has_own_row && !self.has(Flaw::SurplusIsDeleted) {
                    return self.refuse(state);
                }
                state.is_own_row_deleted |= state.has_own_row;
                state.unsettled = state.missing(true);
                state.compared = state.source;
                Some(Step::NoteCutting)
            }
            Step::NoteCutting => {
                state.phase = Phase::CuttingOver;
                Some(Step::Close)
            }
            Step::Close => {
                state.requests.push(false);
                Some(Step::AwaitClosed)
            }
            Step::AwaitClosed => Some(Step::SetLastMark),
            Step::SetLastMark => {
                state.set_mark();
                Some(Step::AwaitLastMark)
            }
            Step::AwaitLastMark => Some(Step::AskWhoDied),
            Step::AskWhoDied => {
                let same = state.began_with_both == state.is_first_alive;
                let is_good = same && (state.left.is_empty() || !state.is_left_known);
                Some(if is_good || self.has(Flaw::DeadServersNotAskedFor) {
                    Step::LastLook
                } else {
                    Step::Reopen
                })
            }
            Step::LastLook => {
                let is_searched = is_searched && !self.has(Flaw::LateRowsNotSearched);
                state.target |= state.missing(is_searched);
                state.unsearched = !is_searched;
                Some(Step::NoteCutOver)
            }
            Step::NoteCutOver => {
                state.phase = Phase::CutOver;
                Some(if self.has(Flaw::WritesOpenOnBothSides) { Step::OpenSource } else { Step::TellClients })
            }
            Step::TellClients => {
                if !state.are_clients_told {
                    // Rows that passed by the WAL may be searched for later.
                    let later = if state.unsearched { state.skipped_wal } else { 0 };
                    state.was_told_too_early = state.acknowledged & !later & !state.target != 0;
                }
                state.are_clients_told = true;
                Some(Step::LateRows)
            }
            Step::LateRows => {
                if state.unsearched && !self.has(Flaw::LateRowsNotSearched) {
                    state.target |= state.source & !state.compared & !state.old;
                }
                let seen = state.acknowledged & !state.target & state.skipped_wal;
                state.was_late_row_missed |= seen != 0 && !state.is_source_open;
                Some(Step::OpenSource)
            }
            Step::OpenSource | Step::OnlyOpen => {
                if !state.is_source_open {
                    state.requests.push(true);
                }
                match step {
                    Step::OnlyOpen => None,
                    _ => Some(Step::AwaitOpen),
                }
            }
            Step::AwaitOpen => {
                (state.unsearched, state.has_way_back) = (false, true);
                state.is_complete = state.are_clients_told;
                (!state.are_clients_told).then_some(Step::TellClients)
            }
            Step::Reopen => {
                if !(state.is_source_open && self.has(Flaw::OpenedOnlyIfClosed)) {
                    state.requests.push(true);
                    return Some(Step::AwaitReopened);
                }
                Some(Step::NoteUndone)
            }
            Step::AwaitReopened => Some(Step::NoteUndone),
            Step::NoteUndone => {
                let noted_by_mistake = state.phase == Phase::CutOver;
                if !noted_by_mistake {
                    state.phase = Phase::Ready;
                }
                None
            }
            Step::FinishMark => {
                state.due_at_finish = state.acknowledged;
                state.set_mark();
                Some(Step::AwaitFinishMark)
            }
            Step::AwaitFinishMark => Some(Step::RemovePeers),
            Step::RemovePeers => {
                state.phase = Phase::Ended;
                state.wals = [Vec::new(), Vec::new()];
                state.left.clear();
                None
            }
        }
    }

    /// `programs/migrate/src/cut_over.rs::undone`, before the pause. A run before this one may have closed the source.
    fn refuse(&self, state: &State) -> Option<Step> {
        let was_begun = state.phase == Phase::CuttingOver && !self.has(Flaw::FailedCheckLeavesClosed);
        was_begun.then_some(Step::Reopen)
    }

    pub(super) fn run(&self, state: &mut State, action: Action) -> Option<()> {
        let step = state.run?;
        let next = match action {
            Action::Killed => {
                state.run = None;
                return Some(());
            }
            Action::PauseIsOver => Some(Step::Reopen),
            Action::NoteFails { is_written } => {
                if is_written && self.has(Flaw::FailedNoteStays) {
                    state.phase = Phase::CutOver;
                }
                Some(Step::Reopen)
            }
            _ => self.go(state, step, action == Action::Go),
        };
        match next {
            Some(next) => state.run = Some(next),
            None => state.end(),
        }
        Some(())
    }
}
