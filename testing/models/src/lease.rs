//! A server, its session with ZooKeeper, its lease, and what masters do before its region opens at another server.
//!
//! A server answers while its lease lasts: from the question on, for less time than ZooKeeper keeps the session. It acknowledges a
//! write when its WAL file has it, which fails once the file is sealed. A write that has passed the look at the lease may wait for
//! as long as it likes: the process is frozen. A master declares the server dead because its znode is gone, or because its port
//! refuses connections, which may be wrong. Then it takes the WALs and the znode, splits, waits for the lease, and opens the region.
//! A master may be replaced at each step. Answers may be late or lost, and ZooKeeper may expire a session late.
//!
//! Time is one clock in ticks. Not here: clocks that run at different speeds (the third of the timeout is for those), several
//! regions, late requests of a deposed master, servers of HBase, which have no lease.

use stateright::{Model, Property};

use crate::{Protocol, Size};

/// Ticks that ZooKeeper keeps a session of which it hears nothing.
const SESSION: u8 = 3;
/// `cluster/zookeeper/src/own.rs::lease_time`: two thirds.
const LEASE: u8 = 2;
/// The current file, the spare one, and one that is made later.
const FILES: usize = 3;

/// The question of a server for its znode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    Sent {
        at: u8,
    },
    /// ZooKeeper has answered, and the answer is on its way.
    Answered {
        at: u8,
        is_member: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The server is one of the cluster.
    Online,
    DeclaredDead,
    Fenced,
    /// Its znode is gone, and the master knows when its lease is over.
    Deposed,
    /// The names of its WALs are read.
    Listed,
    LeaseIsOver,
    Removed,
    /// The region is open at another server.
    Opened,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct File {
    is_there: bool,
    is_sealed: bool,
    /// Acknowledged writes, and those that the split has seen.
    acknowledged: u8,
    /// `None`: it is not split.
    recovered: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u8,
    is_alive: bool,
    is_lost: bool,
    /// The first moment without a lease.
    lease_end: u8,
    ask: Option<Ask>,
    asks_left: u8,
    /// A write has passed the look at the lease.
    is_writing: bool,
    writes_left: u8,
    files: [File; FILES],
    current: usize,
    has_znode: bool,
    has_note: bool,
    is_expired: bool,
    session_end: u8,
    /// The server's connection leads to a leader that the others have left.
    is_isolated: bool,
    stage: Stage,
    /// What the master thought: no process listens.
    by_refusal: bool,
    /// When the lease is over, as the master knows it.
    lease_until: u8,
    /// The WALs that are to be split, a bit each.
    listed: u8,
    /// `WALs/<server>`: the server can make files there.
    has_dir: bool,
    /// `WALs/<server>-splitting`
    has_splitting: bool,
    takeovers_left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,
    /// `cluster/zookeeper/src/own.rs::renew`
    ServerAsks,
    /// `cluster/zookeeper/src/own.rs::read_stat`, at ZooKeeper: a majority accepts the transaction.
    ZooKeeperAnswers,
    /// `cluster/coord/src/lease.rs::renew` or `lose`
    AnswerArrives,
    /// `cluster/zookeeper/src/own.rs::renew`: the time is over.
    AnswerIsLost,
    /// ZooKeeper's leader, and the server with it, are cut off from the others.
    LeaderIsIsolated,
    /// ZooKeeper, at the end of the session or later.
    SessionExpires,
    /// `cluster/coord/src/lease.rs::is_valid`, before a write.
    WriteBegins,
    /// `storage/wal/src/log.rs`: the file has it, on all machines.
    WriteIsAcknowledged,
    /// `storage/wal/src/replace.rs::go_on_in`: the spare file, or a new one.
    LogGoesOn,
    ProcessEnds,
    /// `programs/halcyon/src/master/watch.rs::watch_servers`
    ZnodeIsGone,
    /// `cluster/servers/src/sentinel.rs::process_ended`. It may be wrong.
    PortRefuses,
    /// `cluster/master/src/wal_split.rs::fence`
    Fence,
    /// `cluster/zookeeper/src/deposed.rs::depose`
    Depose,
    /// `cluster/master/src/wal_split.rs::split` reads the names.
    ListWals,
    /// `storage/wal/src/split.rs::split_log`: sealed, then read.
    SplitWal(usize),
    /// `cluster/master/src/members.rs::wait_for_lease`, or `check_lease`
    WaitForLease,
    /// `cluster/master/src/wal_split.rs::remove`
    RemoveDirectory,
    /// `cluster/master/src/members.rs::recovered`, and `cluster/master/src/procedure/assign_regions.rs`
    OpenElsewhere,
    /// Another master is active. `remembers`: there is a record of the verdict (`procedure/engine.rs::keep_verdict`).
    Takeover {
        remembers: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    LeaseIgnored,
    /// It lasts for four thirds of the session.
    LeaseOutlivesSession,
    /// The server asks by a read, which a leader without a majority answers. As it was.
    LeaseByRead,
    /// The lease lasts from the answer on.
    LeaseFromAnswer,
    /// Regions reopen before the lease is over.
    LeaseNotWaitedFor,
    /// When the port refuses, neither znode nor lease count. As it was.
    RefusalIsTrusted,
    /// The znode stays.
    FencedWithoutZnode,
    /// The next master is not told that the znode was deleted.
    NoNote,
    /// The directory of WALs goes before the lease is over.
    RemovedBeforeLease,
    /// The directory keeps its name.
    FencedWithoutRename,
    /// A WAL is read while its writer may write it.
    SplitBeforeSealed,
}

pub struct Leases {
    flaw: Option<Flaw>,
    now_max: u8,
    asks: u8,
    writes: u8,
    takeovers: u8,
}

impl Leases {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn lease(&self) -> u8 {
        if self.has(Flaw::LeaseOutlivesSession) { SESSION + 1 } else { LEASE }
    }

    fn may_answer(&self, state: &State) -> bool {
        let is_valid = state.now < state.lease_end || self.has(Flaw::LeaseIgnored);
        state.is_alive && !state.is_lost && is_valid
    }

    /// Nothing of the znode and the lease is looked at.
    fn trusts(&self, state: &State) -> bool {
        state.by_refusal && self.has(Flaw::RefusalIsTrusted)
    }

    fn server_actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.ask {
            None if state.is_alive && !state.is_lost && state.asks_left > 0 => {
                actions.push(Action::ServerAsks)
            }
            None => {}
            Some(Ask::Sent { .. }) => {
                if !state.is_isolated || self.has(Flaw::LeaseByRead) {
                    actions.push(Action::ZooKeeperAnswers);
                }
                actions.push(Action::AnswerIsLost);
            }
            Some(Ask::Answered { .. }) => actions.extend([Action::AnswerArrives, Action::AnswerIsLost]),
        }
        if state.is_alive && !state.is_writing && state.writes_left > 0 && self.may_answer(state) {
            actions.push(Action::WriteBegins);
        }
        if state.is_alive && state.is_writing {
            let File { is_sealed, .. } = state.files[state.current];
            if !is_sealed {
                actions.push(Action::WriteIsAcknowledged);
            }
        }
        // After an error, by a roll, or because the file is thin. Without a directory there is no new file.
        let next = state.current + 1;
        if state.is_alive && next < FILES && (state.files[next].is_there || state.has_dir) {
            actions.push(Action::LogGoesOn);
        }
        if state.is_alive {
            actions.push(Action::ProcessEnds);
        }
    }

    fn serve(&self, state: &mut State, action: Action) {
        match (action, state.ask) {
            (Action::ServerAsks, _) => {
                state.ask = Some(Ask::Sent { at: state.now });
                state.asks_left -= 1;
            }
            (Action::ZooKeeperAnswers, Some(Ask::Sent { at })) => {
                let is_member = if state.is_isolated { true } else { state.has_znode && !state.is_expired };
                if !state.is_isolated && !state.is_expired {
                    state.session_end = state.now + SESSION;
                }
                state.ask = Some(Ask::Answered { at, is_member });
            }
            (Action::AnswerArrives, Some(Ask::Answered { at, is_member })) => {
                let from = if self.has(Flaw::LeaseFromAnswer) { state.now } else { at };
                if is_member {
                    state.lease_end = state.lease_end.max(from + self.lease());
                } else {
                    state.is_lost = true;
                }
                state.ask = None;
            }
            (Action::AnswerIsLost, _) => state.ask = None,
            (Action::WriteBegins, _) => {
                state.is_writing = true;
                state.writes_left -= 1;
            }
            (Action::WriteIsAcknowledged, _) => {
                state.files[state.current].acknowledged += 1;
                state.is_writing = false;
            }
            (Action::LogGoesOn, _) => {
                state.current += 1;
                state.files[state.current].is_there = true;
            }
            _ => (state.is_alive, state.ask, state.is_writing) = (false, None, false),
        }
    }

    fn master_actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.stage {
            Stage::Online => {
                if !state.has_znode {
                    actions.push(Action::ZnodeIsGone);
                }
                actions.push(Action::PortRefuses);
            }
            Stage::DeclaredDead => actions.push(Action::Fence),
            Stage::Fenced => actions.push(Action::Depose),
            Stage::Deposed => actions.push(Action::ListWals),
            Stage::Listed => {
                let left: Vec<usize> = (0..FILES).filter(|at| state.listed & (1 << at) != 0).collect();
                actions.extend(left.iter().map(|at| Action::SplitWal(*at)));
                let is_over = state.now >= state.lease_until || self.has(Flaw::LeaseNotWaitedFor);
                if left.is_empty() {
                    if self.has(Flaw::RemovedBeforeLease) && state.has_splitting {
                        actions.push(Action::RemoveDirectory);
                    } else if is_over || self.trusts(state) {
                        actions.push(Action::WaitForLease);
                    }
                }
            }
            Stage::LeaseIsOver => actions.push(Action::RemoveDirectory),
            Stage::Removed => actions.push(Action::OpenElsewhere),
            Stage::Opened => {}
        }
        if state.takeovers_left > 0 && state.stage < Stage::Opened {
            actions.push(Action::Takeover { remembers: true });
            if state.stage == Stage::DeclaredDead {
                actions.push(Action::Takeover { remembers: false });
            }
        }
    }

    fn recover(&self, state: &mut State, action: Action) {
        match action {
            Action::ZnodeIsGone | Action::PortRefuses => {
                state.by_refusal = action == Action::PortRefuses;
                state.stage = Stage::DeclaredDead;
            }
            Action::Fence => {
                if !self.has(Flaw::FencedWithoutRename) {
                    state.has_dir = false;
                }
                state.has_splitting = true;
                state.stage = Stage::Fenced;
            }
            Action::Depose => {
                let waits = (state.has_znode || state.has_note) && !self.trusts(state);
                state.lease_until = if waits { state.now + self.lease() } else { state.now };
                if waits && state.has_znode && !self.has(Flaw::FencedWithoutZnode) {
                    (state.has_znode, state.has_note) = (false, !self.has(Flaw::NoNote));
                }
                state.stage = Stage::Deposed;
            }
            Action::ListWals => {
                let is_left = |at: &usize| state.files[*at].is_there && state.files[*at].recovered.is_none();
                state.listed = (0..FILES).filter(is_left).map(|at| 1 << at).sum();
                state.stage = Stage::Listed;
            }
            Action::SplitWal(at) => {
                let file = &mut state.files[at];
                file.is_sealed = !self.has(Flaw::SplitBeforeSealed);
                file.recovered = Some(file.acknowledged);
                state.listed &= !(1 << at);
            }
            Action::WaitForLease => state.stage = Stage::LeaseIsOver,
            Action::RemoveDirectory => {
                state.has_splitting = false;
                if state.stage == Stage::LeaseIsOver {
                    state.stage = Stage::Removed;
                }
            }
            Action::OpenElsewhere => {
                state.has_note = false;
                state.stage = Stage::Opened;
            }
            Action::Takeover { remembers } => {
                state.takeovers_left -= 1;
                state.stage = match state.stage {
                    Stage::Online => Stage::Online,
                    Stage::DeclaredDead if !remembers && !state.has_splitting => Stage::Online,
                    // It finds the server dead, and nothing to recover.
                    Stage::Fenced | Stage::Deposed | Stage::Listed | Stage::LeaseIsOver | Stage::Removed
                        if !state.has_splitting =>
                    {
                        Stage::Removed
                    }
                    _ => Stage::DeclaredDead,
                };
                (state.listed, state.lease_until) = (0, 0);
            }
            _ => {}
        }
    }
}

impl Model for Leases {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let file = |is_there| File { is_there, is_sealed: false, acknowledged: 0, recovered: None };
        vec![State {
            now: 0,
            is_alive: true,
            is_lost: false,
            lease_end: self.lease(),
            ask: None,
            asks_left: self.asks,
            is_writing: false,
            writes_left: self.writes,
            files: [file(true), file(true), file(false)],
            current: 0,
            has_znode: true,
            has_note: false,
            is_expired: false,
            session_end: SESSION,
            is_isolated: false,
            stage: Stage::Online,
            by_refusal: false,
            lease_until: 0,
            listed: 0,
            has_dir: true,
            has_splitting: false,
            takeovers_left: self.takeovers,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.now_max {
            actions.push(Action::Tick);
        }
        self.server_actions(state, actions);
        if !state.is_isolated {
            actions.push(Action::LeaderIsIsolated);
        }
        if !state.is_expired && state.now >= state.session_end {
            actions.push(Action::SessionExpires);
        }
        self.master_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::LeaderIsIsolated => state.is_isolated = true,
            Action::SessionExpires => (state.is_expired, state.has_znode) = (true, false),
            Action::ServerAsks
            | Action::ZooKeeperAnswers
            | Action::AnswerArrives
            | Action::AnswerIsLost
            | Action::WriteBegins
            | Action::WriteIsAcknowledged
            | Action::LogGoesOn
            | Action::ProcessEnds => self.serve(&mut state, action),
            _ => self.recover(&mut state, action),
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one server answers reads of a region", |model: &Self, state: &State| {
                state.stage != Stage::Opened || !model.may_answer(state)
            }),
            Property::always("the next server has all acknowledged writes", |_, state: &State| {
                let has_all = |file: &File| file.acknowledged == file.recovered.unwrap_or(0);
                state.stage != Stage::Opened || state.files.iter().all(has_all)
            }),
            Property::sometimes("a server that lives is recovered", |_, state: &State| {
                state.stage == Stage::Opened && state.is_alive && state.by_refusal
            }),
            Property::sometimes(
                "a server has its lease when it has lost its znode",
                |model: &Self, state: &State| model.may_answer(state) && !state.has_znode,
            ),
            Property::sometimes("a write waits until its file is sealed", |_, state: &State| {
                state.is_writing && state.files[state.current].is_sealed
            }),
            Property::sometimes("the next master waits for a lease", |model: &Self, state: &State| {
                let is_next = state.takeovers_left < model.takeovers;
                is_next && state.stage == Stage::Listed && state.lease_until > state.now && state.has_note
            }),
            Property::sometimes(
                "a session expires behind an isolated leader",
                |model: &Self, state: &State| {
                    state.is_isolated
                        && state.is_expired
                        && state.stage == Stage::Opened
                        && state.asks_left < model.asks
                },
            ),
        ]
    }
}

impl Protocol for Leases {
    type Flaw = Flaw;

    const NAME: &'static str = "lease";
    const FLAWS: &'static [Flaw] = &[
        Flaw::LeaseIgnored,
        Flaw::LeaseOutlivesSession,
        Flaw::LeaseByRead,
        Flaw::LeaseFromAnswer,
        Flaw::LeaseNotWaitedFor,
        Flaw::RefusalIsTrusted,
        Flaw::FencedWithoutZnode,
        Flaw::NoNote,
        Flaw::RemovedBeforeLease,
        Flaw::FencedWithoutRename,
        Flaw::SplitBeforeSealed,
    ];

    fn bounds(size: Size, flaw: Option<Flaw>) -> Vec<Leases> {
        let of = |now_max, asks, writes, takeovers| Leases { flaw, now_max, asks, writes, takeovers };
        match size {
            // A flaw is found long before all states are.
            Size::Small => vec![of(3 + u8::from(flaw.is_some()), 1, 1, 1)],
            Size::Full => vec![of(6, 2, 1, 1), of(4, 1, 2, 2)],
        }
    }

    fn bound(&self) -> String {
        let Leases { now_max, asks, writes, takeovers, .. } = self;
        format!(
            "{} times (session {SESSION}, lease {LEASE}), {asks} questions, {writes} writes, {takeovers} takeovers",
            now_max + 1
        )
    }
}
