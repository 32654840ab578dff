//! The cut over of a migration, whose program may be killed at each step and run again, beside clients, the death of a server of
//! the source, requests that the source's master carries out late, and peers of other clusters.
//!
//! Writes are numbers. Those of the source go to the target by the WALs of two servers, in the order of each, or past the WALs;
//! then only a comparison finds them. A mark is an entry in each server's WAL. The queue of a server that died is sent at some time,
//! and it is not known at once that there is one. The file of the state outlives the program.
//!
//! Not here: the copy, the way back (which is the same with the sides changed), values and timestamps, clocks, deletes.

mod program;

use stateright::{Model, Property};

use crate::{Protocol, Size};

/// A set of writes.
type Writes = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    Write(u8),
    Mark(u8),
}

/// `programs/migrate/src/state.rs::Phase`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Planned,
    Ready,
    CuttingOver,
    CutOver,
    Ended,
}

/// How a client writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Usual,
    /// With a timestamp from before the last comparison: no search finds it.
    Old,
    /// By a bulk load, or with `SKIP_WAL`: no peer gets it.
    PastWal,
}

/// What the program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Check,
    MakeWayBack,
    SetMark,
    AwaitMark,
    Walk,
    Approach,
    NoteCutting,
    Close,
    AwaitClosed,
    SetLastMark,
    AwaitLastMark,
    AskWhoDied,
    LastLook,
    NoteCutOver,
    TellClients,
    LateRows,
    OpenSource,
    AwaitOpen,
    Reopen,
    AwaitReopened,
    NoteUndone,
    /// As `OpenSource`, and no more.
    OnlyOpen,
    FinishMark,
    AwaitFinishMark,
    RemovePeers,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    // The file.
    phase: Phase,
    /// Source rows that need not be searched for.
    compared: Writes,
    unsettled: Writes,
    unsearched: bool,
    /// The source is open again, and all was searched.
    is_complete: bool,
    /// Whether both servers were there when all rows were compared.
    walked_with_both: bool,

    // The program.
    run: Option<Step>,
    runs_left: u8,
    mark: u8,
    /// The servers that the mark has to come from, a bit each.
    awaited: u8,
    /// Both servers were there when this run began.
    began_with_both: bool,

    // The sides.
    is_source_open: bool,
    /// What the source's master is asked to do, in order: open or closed for writes.
    requests: Vec<bool>,
    source: Writes,
    target: Writes,
    /// In the WALs of the source's servers.
    wals: [Vec<Entry>; 2],
    is_first_alive: bool,
    /// The queue that the first one has left, and whether its new owner has told of it.
    left: Vec<Entry>,
    is_left_known: bool,
    has_way_back: bool,
    /// A peer gets the table of marks and has none.
    has_stuck_peer: bool,
    may_add_peer: bool,

    // Clients.
    writes: u8,
    acknowledged: Writes,
    skipped_wal: Writes,
    old: Writes,
    written_at_target: Writes,
    without_way_back: Writes,
    has_own_row: bool,
    are_clients_told: bool,

    // What was seen.
    was_told_too_early: bool,
    was_late_row_missed: bool,
    is_own_row_deleted: bool,
    was_peer_stuck: bool,
    was_left_closed: bool,
    due_at_finish: Writes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `programs/migrate/src/prepare.rs::plan`
    Plan,
    /// `programs/migrate/src/lib.rs::steps`, with `--cut-over`.
    RunCutOver,
    /// `programs/migrate/src/lib.rs::open_old_side`, with `--verify` or without a step.
    RunPlain,
    /// `programs/migrate/src/ending.rs::end`, with `--finish`.
    RunFinish,
    /// `programs/migrate/src/cut_over.rs::cut_over` and `after.rs::after`, one step.
    Go,
    /// `programs/migrate/src/cut_over.rs::pause` without the search for rows that changed last.
    GoWithoutSearch,
    /// `programs/migrate/src/cut_over.rs::timed_pause`
    PauseIsOver,
    /// `programs/migrate/src/state.rs::enter` with an error; `is_written`: the file has the phase all the same.
    NoteFails {
        is_written: bool,
    },
    Killed,
    /// `cluster/master/src/procedure/modify_table.rs`, or HBase's.
    MasterAlters,
    ClientWrites(Kind),
    ClientWritesToTarget,
    /// A client of the target, before the cut over.
    CanaryWrites,
    /// Replication, of the first or the second server.
    Sends(usize),
    ServerDies,
    LeftQueueIsKnown,
    LeftQueueSends,
    /// `add_peer`, between two runs.
    PeerIsAdded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// No mark is waited for.
    CutOverBeforeCatchUp,
    /// The source is opened before clients are told of the target.
    WritesOpenOnBothSides,
    /// The peer of the way back is made when the target takes writes.
    WayBackMadeLate,
    /// A server that dies in between is not missed.
    DeadServersNotAskedFor,
    /// All rows are not compared again after the death of a server.
    NoWalkAfterDeath,
    /// Rows that changed last are searched for neither in the pause nor after it.
    LateRowsNotSearched,
    /// What only the target has is deleted.
    SurplusIsDeleted,
    /// Other peers are not looked at when the migration is planned.
    PeersNotAsked,
    /// Other peers are not looked at again before the cut over.
    PeersNotAskedAgain,
    /// A source that seems to be open is not opened.
    OpenedOnlyIfClosed,
    /// A phase that was noted with an error stays in the file.
    FailedNoteStays,
    /// A run that is not the cut over opens the source, although clients may not have been told. As it was.
    OpenedByAnotherRun,
    /// `--finish` begins before the cut over is complete. As it was.
    FinishedBeforeComplete,
    /// A check that fails before the pause leaves the source as the run before has left it, and does not say so. As it was.
    FailedCheckLeavesClosed,
    /// `--finish` removes the peer while the queue of a server that died waits. As it was.
    FinishForgetsDeadServers,
}

pub struct CutOver {
    flaw: Option<Flaw>,
    writes: u8,
    runs: u8,
}

fn bit(write: u8) -> Writes {
    1 << write
}

impl State {
    fn arrive(&mut self, entry: Entry, server: usize) {
        match entry {
            Entry::Write(write) => self.target |= bit(write),
            Entry::Mark(mark) if mark == self.mark => self.awaited &= !(1 << server),
            Entry::Mark(_) => {}
        }
    }

    /// `programs/migrate/src/marks.rs::set`
    fn set_mark(&mut self) {
        self.mark += 1;
        self.awaited = 0;
        for server in 0..2 {
            if server == 1 || self.is_first_alive {
                self.wals[server].push(Entry::Mark(self.mark));
                self.awaited |= 1 << server;
            }
        }
        self.was_peer_stuck |= self.has_stuck_peer;
    }

    /// What the source has and the target lacks of rows that a search finds, and of those that differed before.
    fn missing(&self, is_searched: bool) -> Writes {
        let found = if is_searched { self.source & !self.compared & !self.old } else { 0 };
        (found | self.unsettled) & !self.target
    }

    fn end(&mut self) {
        self.run = None;
        // The run says that nothing was changed.
        self.was_left_closed |= !self.is_source_open && self.phase != Phase::CutOver;
    }
}

impl CutOver {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn world_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.requests.is_empty() {
            actions.push(Action::MasterAlters);
        }
        let is_under_way = !matches!(state.phase, Phase::Planned | Phase::Ended);
        if state.writes < self.writes && is_under_way {
            if state.is_source_open {
                actions.extend([Kind::Usual, Kind::Old, Kind::PastWal].map(Action::ClientWrites));
            }
            if state.are_clients_told {
                actions.push(Action::ClientWritesToTarget);
            }
        }
        if !state.are_clients_told && !state.has_own_row && state.phase == Phase::Ready {
            actions.push(Action::CanaryWrites);
        }
        actions.extend((0..2).filter(|at| !state.wals[*at].is_empty()).map(Action::Sends));
        if state.is_first_alive && is_under_way {
            actions.push(Action::ServerDies);
        }
        if !state.left.is_empty() {
            actions.push(if state.is_left_known { Action::LeftQueueSends } else { Action::LeftQueueIsKnown });
        }
        if state.may_add_peer && state.run.is_none() && state.phase == Phase::Ready {
            actions.push(Action::PeerIsAdded);
        }
    }

    fn happen(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::MasterAlters => state.is_source_open = state.requests.remove(0),
            Action::ClientWrites(kind) => {
                let write = state.writes;
                (state.source, state.acknowledged) =
                    (state.source | bit(write), state.acknowledged | bit(write));
                if kind == Kind::Old {
                    state.old |= bit(write);
                }
                if kind == Kind::PastWal {
                    state.skipped_wal |= bit(write);
                } else {
                    state.wals[usize::from(!state.is_first_alive)].push(Entry::Write(write));
                }
                state.writes += 1;
            }
            Action::ClientWritesToTarget => {
                let write = state.writes;
                state.target |= bit(write);
                state.acknowledged |= bit(write);
                state.written_at_target |= bit(write);
                if !state.has_way_back {
                    state.without_way_back |= bit(write);
                }
                state.writes += 1;
            }
            Action::CanaryWrites => state.has_own_row = true,
            Action::Sends(server) => {
                let entry = state.wals[server].remove(0);
                state.arrive(entry, server);
            }
            Action::ServerDies => {
                state.is_first_alive = false;
                state.left = std::mem::take(&mut state.wals[0]);
            }
            Action::LeftQueueIsKnown => state.is_left_known = true,
            Action::LeftQueueSends => {
                let entry = state.left.remove(0);
                state.arrive(entry, 0);
            }
            Action::PeerIsAdded => (state.has_stuck_peer, state.may_add_peer) = (true, false),
            Action::Plan => {
                let refuses = state.has_stuck_peer && !self.has(Flaw::PeersNotAsked);
                state.phase = if refuses { Phase::Ended } else { Phase::Ready };
                if !refuses {
                    state.was_peer_stuck |= state.has_stuck_peer; // the first mark follows the copy
                }
            }
            _ => return None,
        }
        Some(())
    }
}

impl Model for CutOver {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let with_peer = |has_stuck_peer| State {
            phase: Phase::Planned,
            compared: 0,
            unsettled: 0,
            unsearched: false,
            is_complete: false,
            walked_with_both: true,
            run: None,
            runs_left: self.runs,
            mark: 0,
            awaited: 0,
            began_with_both: true,
            is_source_open: true,
            requests: Vec::new(),
            source: 0,
            target: 0,
            wals: [Vec::new(), Vec::new()],
            is_first_alive: true,
            left: Vec::new(),
            is_left_known: false,
            has_way_back: false,
            has_stuck_peer,
            may_add_peer: !has_stuck_peer,
            writes: 0,
            acknowledged: 0,
            skipped_wal: 0,
            old: 0,
            written_at_target: 0,
            without_way_back: 0,
            has_own_row: false,
            are_clients_told: false,
            was_told_too_early: false,
            was_late_row_missed: false,
            is_own_row_deleted: false,
            was_peer_stuck: false,
            was_left_closed: false,
            due_at_finish: 0,
        };
        vec![with_peer(false), with_peer(true)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.run_actions(state, actions);
        self.world_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::RunCutOver | Action::RunPlain | Action::RunFinish => self.begin(&mut state, action),
            Action::Go
            | Action::GoWithoutSearch
            | Action::PauseIsOver
            | Action::NoteFails { .. }
            | Action::Killed => {
                self.run(&mut state, action)?;
            }
            _ => self.happen(&mut state, action)?,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "the target has all acknowledged writes when clients are told",
                |_, state: &State| !state.was_told_too_early,
            ),
            Property::always(
                "rows past the WAL are at the target before the source opens",
                |_, state: &State| !state.was_late_row_missed,
            ),
            Property::always("at the end nothing acknowledged is at the source alone", |_, state: &State| {
                state.phase != Phase::Ended || state.due_at_finish & !state.skipped_wal & !state.target == 0
            }),
            Property::always("what is written at the target is sent back", |_, state: &State| {
                state.without_way_back == 0
            }),
            Property::always("rows of the target's own stay", |_, state: &State| !state.is_own_row_deleted),
            Property::always("other peers are not stuck", |_, state: &State| !state.was_peer_stuck),
            Property::always(
                "a run that ends without a cut over leaves the source open",
                |_, state: &State| {
                    let is_idle = state.run.is_none() && state.requests.is_empty();
                    let is_undone = is_idle && state.phase == Phase::Ready;
                    !state.was_left_closed && (!is_undone || state.is_source_open)
                },
            ),
            Property::sometimes("a cut over ends after a kill", |model: &Self, state: &State| {
                state.runs_left + 2 <= model.runs
                    && state.run == Some(Step::AwaitOpen)
                    && state.acknowledged != 0
            }),
            Property::sometimes(
                "a write came past the WAL and was searched for later",
                |_, state: &State| {
                    state.run == Some(Step::AwaitOpen)
                        && state.unsearched
                        && state.skipped_wal & state.target != 0
                },
            ),
            Property::sometimes("a cut over ends though a server has died", |_, state: &State| {
                state.are_clients_told && !state.is_first_alive && !state.left.is_empty()
            }),
            Property::sometimes("the migration ends with writes of both sides", |_, state: &State| {
                let is_written = state.written_at_target != 0 && state.source & state.target != 0;
                state.phase == Phase::Ended && is_written
            }),
            Property::sometimes("a request closes the source behind a kill", |_, state: &State| {
                state.run.is_none() && state.requests.contains(&false)
            }),
        ]
    }
}

impl Protocol for CutOver {
    type Flaw = Flaw;

    const NAME: &'static str = "cut_over";
    const FLAWS: &'static [Flaw] = &[
        Flaw::CutOverBeforeCatchUp,
        Flaw::WritesOpenOnBothSides,
        Flaw::WayBackMadeLate,
        Flaw::DeadServersNotAskedFor,
        Flaw::NoWalkAfterDeath,
        Flaw::LateRowsNotSearched,
        Flaw::SurplusIsDeleted,
        Flaw::PeersNotAsked,
        Flaw::PeersNotAskedAgain,
        Flaw::OpenedOnlyIfClosed,
        Flaw::FailedNoteStays,
        Flaw::OpenedByAnotherRun,
        Flaw::FinishedBeforeComplete,
        Flaw::FailedCheckLeavesClosed,
        Flaw::FinishForgetsDeadServers,
    ];

    fn bounds(size: Size, flaw: Option<Flaw>) -> Vec<CutOver> {
        let of = |writes, runs| CutOver { flaw, writes, runs };
        match size {
            // Only the third run meets what the first two have left.
            Size::Small if flaw == Some(Flaw::OpenedByAnotherRun) => vec![of(1, 3)],
            Size::Small => vec![of(2, 2)],
            Size::Full => vec![of(2, 3)],
        }
    }

    fn bound(&self) -> String {
        let CutOver { writes, runs, .. } = self;
        format!("{writes} writes, {runs} runs killed at any step, 1 death of a server, 1 new peer")
    }
}
