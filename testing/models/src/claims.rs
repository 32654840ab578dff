//! The replication queue of a server that dies: another server claims it, and may die as well, while WALs are split, archived and
//! cleaned, and masters follow each other.
//!
//! One server has WALs, which are sent in their order. A queue is how many entries the peer has, as its file says: a WAL that is
//! sent to its end is noted at once, less only now and then. The file's name says who sends. The master looks at the files, gives
//! claims, takes over in its books what was sent to the end, and deletes WALs that no queue and no book needs. A process that was
//! declared dead may go on for as long as it likes.
//!
//! Not here: several peers, HFiles of bulk loads, serial peers, late changes of files by a deposed master, the age that a WAL must
//! have before it is deleted, the limit of bytes that are kept for a peer.

use stateright::{Model, Property};

use crate::{Protocol, Size};

/// Entries of a WAL.
const ENTRIES: u8 = 2;
const WALS: usize = 2;
const ALL: u8 = ENTRIES * WALS as u8;
/// The one whose WALs they are, and two that claim.
const SERVERS: usize = 3;
const MASTERS: usize = 2;

/// How many entries the peer has.
type Sent = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the directory of the server, or where it is split.
    Wals,
    Archived,
    Deleted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    is_alive: bool,
    /// No master has declared it dead.
    is_member: bool,
    /// Its directory of WALs is gone.
    is_gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cleaner {
    Idle,
    /// The archived WALs, a bit each.
    Listed(u8),
    Loaded {
        wals: u8,
        queues: [Option<Sent>; SERVERS],
    },
}

/// What the master is at with the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    Idle,
    Loaded {
        queues: [Option<Sent>; SERVERS],
        are_gone: [bool; SERVERS],
        books: [Option<Sent>; MASTERS],
    },
    /// The book has what the queue of this holder says, or the queue is removed.
    Adopting {
        holder: usize,
    },
    /// Queues that a server is to claim, a bit each.
    Left(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    servers: [Server; SERVERS],
    wals: [Place; WALS],
    /// `<peer>-<server>`, and `<peer>-<server>+<claimer>` for each claimer.
    queues: [Option<Sent>; SERVERS],
    /// What the source of a server has in memory.
    sources: [Option<Sent>; SERVERS],
    /// `<peer>--<master>`
    books: [Option<Sent>; MASTERS],
    /// What the active master has in memory.
    book: Sent,
    active: usize,
    look: Look,
    /// The queue that a server is to claim.
    orders: [Option<usize>; SERVERS],
    cleaner: Cleaner,
    /// Entries that the peer has, a bit each.
    got: u8,
    /// The most that a file has ever said.
    noted: Sent,
    was_noted_again: bool,
    /// A process that was declared dead has sent, or written its queue.
    was_late: bool,
    claims: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `cluster/regionserver/src/replication/source.rs::send_next`
    Send(usize),
    /// `cluster/regionserver/src/replication/queue.rs::save`
    Save(usize),
    /// `cluster/regionserver/src/replication/source.rs::send_all`: all of a server that is gone is sent.
    Finish(usize),
    /// `storage/wal/src/roll.rs::archive`
    Archive,
    Dies(usize),
    /// `cluster/servers/src/servers.rs::expire`, also of one that lives.
    DeclaredDead(usize),
    /// `cluster/master/src/wal_split.rs::archive`
    Split(usize),
    /// `cluster/master/src/wal_split.rs::remove`
    Gone(usize),
    /// `cluster/regionserver/src/replication/books.rs::look_at`: the queues, and whose holders are gone.
    MasterLoads,
    /// `cluster/regionserver/src/replication/books.rs::look_at`, behind the list of the archived WALs.
    MasterActs,
    /// `cluster/regionserver/src/replication/books.rs::look_at`: the second half of an adoption.
    MasterAdopts,
    /// `cluster/servers/src/claims.rs::plan`
    Order {
        queue: usize,
        to: usize,
    },
    /// `cluster/regionserver/src/replication/claims.rs::claim`
    Claim(usize),
    /// `cluster/master/src/cleaner.rs::clean`: the list.
    CleanerLists,
    /// `cluster/regionserver/src/replication/books.rs::needed_wals`: the queues.
    CleanerLoads,
    /// `cluster/regionserver/src/replication/books.rs::needed_wals`: the book; then the WALs go that are not needed.
    CleanerDeletes,
    /// `cluster/regionserver/src/replication/books.rs::peer_changed` of the next master.
    Takeover,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A claim copies the file instead of giving it another name.
    ClaimIsACopy,
    /// The claimer begins at the first entry.
    PositionForgotten,
    /// The cleaner asks the book alone.
    WalDeletedThatAQueueNeeds,
    /// Of what nothing is known, nothing is needed.
    UnknownIsNotNeeded,
    /// Nobody asks whether the holder of a queue is gone.
    ClaimedFromTheLiving,
    /// The queue's file says that an entry is sent before it is.
    NotedBeforeSent,
    /// The master removes a queue before its book has it.
    RemovedBeforeAdopted,
}

pub struct Claims {
    flaw: Option<Flaw>,
    claims: u8,
    /// Servers that may die.
    mortals: usize,
    may_be_late: bool,
}

fn bit(at: usize) -> u8 {
    1 << at
}

fn is_done(wal: usize, sent: Sent) -> bool {
    usize::from(sent) >= (wal + 1) * usize::from(ENTRIES)
}

impl State {
    fn archived(&self) -> u8 {
        (0..WALS).filter(|wal| self.wals[*wal] == Place::Archived).map(bit).sum()
    }

    fn note(&mut self, sent: Sent) {
        self.noted = self.noted.max(sent);
    }

    /// The entry that a source sends next, and how far it is then; `None`: there is nothing more. WALs that are deleted are passed over.
    fn next(&self, server: usize, sent: Sent) -> Option<(u8, Sent)> {
        let can_read = |wal: usize| match self.wals[wal] {
            Place::Wals => server == 0,
            Place::Archived => true,
            Place::Deleted => false,
        };
        let next = (sent..ALL).find(|entry| can_read(usize::from(entry / ENTRIES)))?;
        Some((next, next + 1))
    }

    fn begin(&mut self, server: usize, sent: Sent) {
        self.was_noted_again |= sent < self.noted;
        self.sources[server] = Some(sent);
    }

    fn is_sent(&self, sent: Sent) -> bool {
        (0..WALS).filter(|wal| self.archived() & bit(*wal) != 0).all(|wal| is_done(wal, sent))
    }
}

impl Claims {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn server_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for at in 0..SERVERS {
            let server = state.servers[at];
            let works = server.is_alive && (server.is_member || self.may_be_late);
            if let Some(sent) = state.sources[at].filter(|_| works) {
                match state.next(at, sent) {
                    Some(_) => actions.push(Action::Send(at)),
                    None if at > 0 => actions.push(Action::Finish(at)),
                    None => {}
                }
                if state.queues[at] != Some(sent) {
                    actions.push(Action::Save(at));
                }
            }
            if state.orders[at].is_some() && works {
                actions.push(Action::Claim(at));
            }
            // A cluster has a server left.
            let others = (1..SERVERS).any(|other| other != at && state.servers[other].is_member);
            if server.is_alive && others && at < self.mortals {
                actions.push(Action::Dies(at));
            }
            if server.is_member && others && (!server.is_alive || (self.may_be_late && at < self.mortals)) {
                actions.push(Action::DeclaredDead(at));
            }
            let wals_left = at == 0 && state.wals.contains(&Place::Wals);
            if !server.is_member && !server.is_gone && !wals_left {
                actions.push(Action::Gone(at));
            }
        }
        let first_is_open = state.wals[0] == Place::Wals;
        if state.servers[0].is_alive && state.servers[0].is_member && first_is_open {
            actions.push(Action::Archive);
        }
        if !state.servers[0].is_member {
            actions.extend((0..WALS).filter(|wal| state.wals[*wal] == Place::Wals).map(Action::Split));
        }
    }

    fn master_actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.look {
            Look::Idle => actions.push(Action::MasterLoads),
            Look::Loaded { .. } => actions.push(Action::MasterActs),
            Look::Adopting { .. } => actions.push(Action::MasterAdopts),
            Look::Left(left) => {
                for queue in (0..SERVERS).filter(|queue| left & bit(*queue) != 0) {
                    let may = |to: &usize| state.servers[*to].is_member && state.orders[*to].is_none();
                    actions.extend((1..SERVERS).filter(may).map(|to| Action::Order { queue, to }));
                }
                actions.push(Action::MasterLoads);
            }
        }
        actions.push(match state.cleaner {
            Cleaner::Idle => Action::CleanerLists,
            Cleaner::Listed(_) => Action::CleanerLoads,
            Cleaner::Loaded { .. } => Action::CleanerDeletes,
        });
        if state.active + 1 < MASTERS {
            actions.push(Action::Takeover);
        }
    }

    fn serve(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Send(at) => {
                let (entry, sent) = state.next(at, state.sources[at]?)?;
                if self.has(Flaw::NotedBeforeSent) && state.queues[at] != Some(sent) {
                    state.queues[at] = Some(sent);
                    return Some(());
                }
                state.got |= bit(usize::from(entry));
                state.sources[at] = Some(sent);
                // The end of a WAL is noted at once.
                if sent % ENTRIES == 0 {
                    state.queues[at] = Some(sent);
                    state.note(sent);
                }
                state.was_late |= !state.servers[at].is_member;
            }
            Action::Save(at) | Action::Finish(at) => {
                let sent = state.sources[at]?;
                state.queues[at] = Some(sent);
                state.note(sent);
                if matches!(action, Action::Finish(_)) {
                    state.sources[at] = None;
                }
                state.was_late |= !state.servers[at].is_member;
            }
            Action::Claim(at) => self.claim(state, at)?,
            Action::Archive => state.wals[0] = Place::Archived,
            Action::Dies(at) => {
                state.servers[at].is_alive = false;
                (state.sources[at], state.orders[at]) = (None, None);
            }
            Action::DeclaredDead(at) => state.servers[at].is_member = false,
            Action::Gone(at) => state.servers[at].is_gone = true,
            Action::Split(wal) => state.wals[wal] = Place::Archived,
            _ => return None,
        }
        Some(())
    }

    fn claim(&self, state: &mut State, at: usize) -> Option<()> {
        let queue = state.orders[at].take()?;
        let is_own = queue == at;
        if state.sources[at].is_some() {
            return Some(()); // it sends that queue, or is busy with another one
        }
        if !is_own && !state.servers[queue].is_gone && !self.has(Flaw::ClaimedFromTheLiving) {
            return Some(()); // it may have WALs that are not split
        }
        let Some(sent) = state.queues[queue] else { return Some(()) };
        if !is_own {
            if state.queues[at].is_some() {
                return Some(()); // no file is replaced
            }
            state.queues[at] = Some(sent);
            if !self.has(Flaw::ClaimIsACopy) {
                state.queues[queue] = None;
            }
        }
        state.claims += 1;
        state.was_late |= !state.servers[at].is_member;
        state.begin(at, if self.has(Flaw::PositionForgotten) { 0 } else { sent });
        Some(())
    }

    fn lead(&self, state: &mut State, action: Action) -> Option<()> {
        match (action, state.look) {
            (Action::MasterLoads, _) => {
                let are_gone =
                    state.servers.map(|server| server.is_gone || self.has(Flaw::ClaimedFromTheLiving));
                state.look = Look::Loaded { queues: state.queues, are_gone, books: state.books };
            }
            (Action::MasterActs, Look::Loaded { queues, are_gone, books }) => {
                self.act(state, queues, are_gone, books);
            }
            (Action::MasterAdopts, Look::Adopting { holder }) => {
                if self.has(Flaw::RemovedBeforeAdopted) {
                    state.book = ALL;
                    state.books[state.active] = Some(ALL);
                } else {
                    state.queues[holder] = None;
                }
                state.look = Look::Idle;
            }
            (Action::Order { queue, to }, Look::Left(left)) => {
                state.orders[to] = Some(queue);
                state.look = Look::Left(left & !bit(queue));
            }
            (Action::CleanerLists, _) => state.cleaner = Cleaner::Listed(state.archived()),
            (Action::CleanerLoads, _) => {
                let Cleaner::Listed(wals) = state.cleaner else { return None };
                state.cleaner = Cleaner::Loaded { wals, queues: state.queues };
            }
            (Action::CleanerDeletes, _) => {
                let Cleaner::Loaded { wals, queues } = state.cleaner else { return None };
                for wal in (0..WALS).filter(|wal| wals & bit(*wal) != 0) {
                    // `cluster/regionserver/src/replication/queue.rs::is_needed_by`
                    let by_queues =
                        queues.iter().flatten().map(|sent| !is_done(wal, *sent)).reduce(|a, b| a || b);
                    let by_queues = by_queues.filter(|_| !self.has(Flaw::WalDeletedThatAQueueNeeds));
                    let unknown =
                        !self.has(Flaw::UnknownIsNotNeeded) && !self.has(Flaw::WalDeletedThatAQueueNeeds);
                    if !by_queues.unwrap_or(unknown && !is_done(wal, state.book)) {
                        state.wals[wal] = Place::Deleted;
                    }
                }
                state.cleaner = Cleaner::Idle;
            }
            (Action::Takeover, _) => {
                state.active += 1;
                state.book = 0;
                state.books[state.active] = Some(0);
                (state.look, state.cleaner) = (Look::Idle, Cleaner::Idle);
            }
            _ => return None,
        }
        Some(())
    }

    fn act(
        &self,
        state: &mut State,
        queues: [Option<Sent>; SERVERS],
        are_gone: [bool; SERVERS],
        books: [Option<Sent>; MASTERS],
    ) {
        for (master, sent) in books.into_iter().enumerate() {
            if let Some(sent) = sent.filter(|_| master != state.active) {
                state.book = state.book.max(sent);
                state.books[state.active] = Some(state.book);
                state.books[master] = None;
            }
        }
        let mut left = 0;
        for (holder, sent) in queues.into_iter().enumerate() {
            let Some(sent) = sent else { continue };
            if holder == 0 && !are_gone[0] {
                continue; // it lives
            }
            if state.is_sent(sent) {
                if self.has(Flaw::RemovedBeforeAdopted) {
                    state.queues[holder] = None;
                } else {
                    state.book = state.book.max(sent);
                    state.books[state.active] = Some(state.book);
                }
                state.look = Look::Adopting { holder };
                return; // the others at the next look
            }
            if are_gone[holder] {
                left |= bit(holder);
            } else if state.sources[holder].is_none() {
                left |= bit(holder); // not confirmed: it is told once more
            }
        }
        let is_unsent = (0..WALS).any(|wal| state.archived() & bit(wal) != 0 && !is_done(wal, state.book));
        if queues == [None; SERVERS] && is_unsent && state.servers[0].is_gone {
            // `cluster/regionserver/src/replication/queue.rs::divide`
            state.queues[0].get_or_insert(state.book);
            left |= bit(0);
        }
        state.look = if left == 0 { Look::Idle } else { Look::Left(left) };
    }
}

impl Model for Claims {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let server = Server { is_alive: true, is_member: true, is_gone: false };
        let with_queue = State {
            servers: [server; SERVERS],
            wals: [Place::Wals; WALS],
            queues: [Some(0), None, None],
            sources: [Some(0), None, None],
            books: [Some(0), None],
            book: 0,
            active: 0,
            look: Look::Idle,
            orders: [None; SERVERS],
            cleaner: Cleaner::Idle,
            got: 0,
            noted: 0,
            was_noted_again: false,
            was_late: false,
            claims: 0,
        };
        // It dies before it knows of the peer.
        let mut without = State { queues: [None; SERVERS], sources: [None; SERVERS], ..with_queue.clone() };
        without.servers[0].is_alive = false;
        vec![with_queue, without]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.server_actions(state, actions);
        self.master_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::MasterLoads
            | Action::MasterActs
            | Action::MasterAdopts
            | Action::Order { .. }
            | Action::CleanerLists
            | Action::CleanerLoads
            | Action::CleanerDeletes
            | Action::Takeover => self.lead(&mut state, action)?,
            _ => self.serve(&mut state, action)?,
        }
        (state != *last && state.claims <= self.claims).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("the peer has what is in a WAL that is deleted", |_, state: &State| {
                let has = |wal: usize| {
                    (0..ENTRIES).all(|at| state.got & bit(wal * usize::from(ENTRIES) + usize::from(at)) != 0)
                };
                (0..WALS).all(|wal| state.wals[wal] != Place::Deleted || has(wal))
            }),
            Property::always("the peer has what a queue or a book says", |_, state: &State| {
                let said = state.queues.iter().chain(&state.books).flatten().max();
                (0..*said.unwrap_or(&0)).all(|entry| state.got & bit(usize::from(entry)) != 0)
            }),
            Property::always("one server of the cluster sends", |_, state: &State| {
                let sends = |at: &usize| state.sources[*at].is_some() && state.servers[*at].is_member;
                state.was_late || (0..SERVERS).filter(sends).count() <= 1
            }),
            Property::always("what was noted is not sent again", |_, state: &State| {
                state.was_late || !state.was_noted_again
            }),
            Property::sometimes("a second server claims", |_, state: &State| {
                state.claims >= 2 && state.sources[2].is_some() && state.queues[1].is_none()
            }),
            Property::sometimes(
                "all is sent by claimers, and noted by the next master",
                |_, state: &State| {
                    let are_gone = state.queues == [None; SERVERS] && state.wals == [Place::Deleted; WALS];
                    are_gone && state.active == 1 && state.claims >= 1
                },
            ),
            Property::sometimes(
                "a process that was declared dead writes its queue",
                |model: &Self, state: &State| state.was_late || !model.may_be_late,
            ),
        ]
    }
}

impl Protocol for Claims {
    type Flaw = Flaw;

    const NAME: &'static str = "claims";
    const FLAWS: &'static [Flaw] = &[
        Flaw::ClaimIsACopy,
        Flaw::PositionForgotten,
        Flaw::WalDeletedThatAQueueNeeds,
        Flaw::UnknownIsNotNeeded,
        Flaw::ClaimedFromTheLiving,
        Flaw::NotedBeforeSent,
        Flaw::RemovedBeforeAdopted,
    ];

    fn bounds(size: Size, flaw: Option<Flaw>) -> Vec<Claims> {
        let of = |claims, mortals, may_be_late| Claims { flaw, claims, mortals, may_be_late };
        match size {
            Size::Small => vec![of(2, 2, false)],
            Size::Full => vec![of(3, SERVERS, false), of(1, 1, true)],
        }
    }

    fn bound(&self) -> String {
        let Claims { claims, mortals, may_be_late, .. } = self;
        let late = if *may_be_late { ", processes that continue when declared dead" } else { "" };
        format!(
            "{WALS} WALs of {ENTRIES} entries, {SERVERS} servers, {mortals} of them mortal, {claims} claims, 1 takeover{late}"
        )
    }
}
