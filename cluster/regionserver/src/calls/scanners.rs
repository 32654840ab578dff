//! Open scanners and their leases.
//!
//! A scanner is either idle, with a lease that runs, or busy in one call, with no lease. A second call for a busy scanner is
//! refused, because it finds no lease. A scanner whose lease expired is removed, and its id is unknown from then on. The ids
//! of scanners that were closed in order are remembered for one lease period, because older clients close what the server
//! has closed already.
//!
//! A scanner outlives the connection that used it last, as its client may come back with another one. Until then it holds
//! nothing but its read point. When a peer may have no other scanner, those of it go first that have no connection, and those
//! of all when there is no room for anybody. Checked against `RSRpcServices` (`getRegionScanner`, `checkScanNextCallSeq`, `closeScanner`) and `LeaseManager` of 2.6.4.
//!
//! An idle scanner, or one whose call is queued, holds no memory of flushed memstores. It releases its view, and takes a new
//! one at the next call (HBase: `StoreScanner.updateReaders`). What it may still see stays in files.
//!
//! Scanners are limited: one connection may have a share of what its peer may have, and a peer a share of what the others
//! leave ([`fair_max`]). A client that opens scanners and never closes them leaves some to others. The first scanner of a peer may be
//! larger than that, and leaves a quarter. A scanner keeps no part of
//! the frame that it came in, but what it needs of its message in memory of its own, and counts as several if that is much.
//!
//! *Thread safety*: one lock, held for a hash probe; scanners are dropped outside of it.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry as Place, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use halcyon_env::{Clock, Mutex, random_bytes};
use halcyon_region::{RegionScanner, ReleasedView};
use halcyon_rpc::{Connection, RpcError, fair_max};

use super::id_hash::IdMap;
use crate::quotas::ScanHistory;
use crate::regions::region_table::{OnlineRegion, text};

/// Closed ids that are remembered at most. A client that closes what is forgotten is told that it is unknown,
/// which clients only log.
const CLOSED_COUNT_MAX: usize = 1 << 16;
/// What an open scanner takes beside blocks and memstores that it stands on, seen with a hundred thousand of them. One whose message
/// is long counts as several.
pub(crate) const SCANNER_BYTES: u64 = 4 << 10;
/// What the only scanner of a peer may have of what the others leave, if its share is less.
const FIRST_SHARE: f64 = 0.75;

/// A scanner of a client and what the protocol needs to know of its past.
pub(crate) struct OpenScanner {
    pub(crate) scanner: RegionScanner,
    pub(crate) online: Arc<OnlineRegion>,
    /// Of the call that used it last.
    pub(crate) connection: Arc<Connection>,
    /// The row of the last result of the last answer, if that result was a part of a row.
    pub(crate) partial_row: Option<Bytes>,
    pub(crate) needs_cursor: bool,
    /// May look at any number of rows before it finds one to return.
    pub(crate) has_filter: bool,
    /// The client wants to know what each result cost.
    pub(crate) wants_metrics: bool,
    /// About what it keeps of its message, with what its filter has made of it.
    pub(crate) message_bytes: usize,
    /// The client's limit for the cells of one answer; `None`: the server's alone.
    pub(crate) result_bytes_max: Option<u64>,
    /// What its calls have looked at.
    pub(crate) history: ScanHistory,
}

impl OpenScanner {
    /// As how many scanners it counts: each has [`SCANNER_BYTES`].
    fn places(&self) -> usize {
        1 + self.message_bytes / SCANNER_BYTES as usize
    }
}

/// What became of a call that names a scanner.
pub(crate) enum Claim {
    /// The caller owns the scanner until it gives it back or closes it.
    Owned(Box<OpenScanner>),
    /// It was closed before; the answer is empty.
    AlreadyClosed,
    /// Its lease was renewed.
    Renewed,
}

/// How many scanners may be open. Plain data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScannerLimits {
    pub(crate) open_count_max: usize,
    /// The part of what others leave that a peer may have, and the part of that for one connection.
    pub(crate) peer_share: f64,
}

/// Who has opened a scanner. Another connection may use it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opener {
    connection: u64,
    /// `None`: of this process.
    peer: Option<IpAddr>,
}

impl Hash for Opener {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.connection);
    }
}

impl Opener {
    pub(crate) fn of(connection: &Connection) -> Opener {
        Opener { connection: connection.id, peer: connection.address }
    }
}

/// Places of open scanners by the connections and peers that opened them. Most scanners have one.
#[derive(Debug, Default)]
pub(crate) struct OpenCounts {
    all: usize,
    by_connection: IdMap<Opener, usize>,
    by_peer: HashMap<Option<IpAddr>, usize>,
}

impl OpenCounts {
    /// Whether so many more would be too many for the connection that asks for them.
    pub(crate) fn is_full(&self, opener: &Opener, places: usize, limits: &ScannerLimits) -> bool {
        self.is_full_without(opener, places, limits, [0, 0])
    }

    /// As [`OpenCounts::is_full`], when so many of the peer and of others are gone. A peer that has no scanner gets one that is
    /// larger than its share, if that leaves a part of what is there to who comes next.
    fn is_full_without(
        &self,
        opener: &Opener,
        places: usize,
        limits: &ScannerLimits,
        [of_peer, of_others]: [usize; 2],
    ) -> bool {
        let max = limits.open_count_max;
        let peer_before = self.by_peer.get(&opener.peer).copied().unwrap_or(0);
        let (of_connection, others) = (self.of(opener), self.all - peer_before - of_others);
        let rest_of_peer = (peer_before - of_peer).saturating_sub(of_connection);
        let first_share = limits.peer_share.max(FIRST_SHARE);
        if peer_before == of_peer && places <= fair_max(max, others, first_share) {
            return false;
        }
        let peer_max = fair_max(max, others, limits.peer_share);
        of_connection + places > fair_max(peer_max, rest_of_peer, limits.peer_share)
    }

    pub(crate) fn add(&mut self, opener: Opener, places: usize) {
        assert!(places > 0, "a scanner has a place");
        self.all += places;
        *self.by_connection.entry(opener).or_default() += places;
        *self.by_peer.entry(opener.peer).or_default() += places;
    }

    pub(crate) fn sub(&mut self, opener: Opener, places: usize) {
        self.all = self.all.checked_sub(places).expect("a scanner that is open was counted");
        count_off(&mut self.by_connection, opener, places);
        count_off(&mut self.by_peer, opener.peer, places);
    }

    /// Of a connection.
    pub(crate) fn of(&self, opener: &Opener) -> usize {
        self.by_connection.get(opener).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> usize {
        self.all
    }
}

/// See the head of the file.
pub(crate) struct Scanners {
    clock: Arc<dyn Clock>,
    lease: Duration,
    limits: ScannerLimits,
    next_id: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: IdMap<u64, Entry>,
    counts: OpenCounts,
    /// Places of `open` without a connection, by the peers that opened them.
    unconnected: HashMap<Option<IpAddr>, usize>,
    /// Number of `open` by the connections that used them last.
    by_user: HashMap<u64, usize>,
    /// Call sequence number at which a scanner was closed.
    closed: IdMap<u64, u64>,
    /// When to forget closed ids, oldest first.
    closed_expiry: VecDeque<(u64, u64)>,
}

impl State {
    fn insert(&mut self, id: u64, entry: Entry) {
        self.counts.add(entry.opener, entry.places);
        *self.by_user.entry(entry.user).or_default() += 1;
        let before = self.open.insert(id, entry);
        assert!(
            before.is_none(),
            "the id {id} was given to two scanners: one client would read the other's rows"
        );
        self.check();
    }

    fn check(&self) {
        assert!(
            self.counts.all() >= self.open.len(),
            "each open scanner has a place at least: {} of {}",
            self.counts.all(),
            self.open.len()
        );
        assert!(self.unconnected.len() <= self.open.len(), "who has no connection has an open scanner");
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.open.remove(&id)?;
        self.counts.sub(entry.opener, entry.places);
        count_off(&mut self.by_user, entry.user, 1);
        if !entry.has_connection {
            count_off(&mut self.unconnected, entry.opener.peer, entry.places);
        }
        self.check();
        Some(entry)
    }

    /// Takes out those whose connection is gone, as their clients may never come back: those that the opener's peer has opened,
    /// and those of all if there are as many scanners as there may be and the opener gets its places by that. Costs nothing where
    /// there are none.
    fn remove_unconnected(&mut self, opener: &Opener, places: usize, limits: &ScannerLimits) -> Vec<Entry> {
        let peer = opener.peer;
        let of_peer = self.unconnected.get(&peer).copied().unwrap_or(0);
        let of_others = self.unconnected.values().sum::<usize>() - of_peer;
        let of_all = self.counts.all() + places > limits.open_count_max
            && self.counts.is_full_without(opener, places, limits, [of_peer, 0])
            && !self.counts.is_full_without(opener, places, limits, [of_peer, of_others]);
        let are_there = of_peer > 0 || (of_all && of_others > 0);
        if !are_there {
            return Vec::new();
        }
        let goes = |entry: &Entry| !entry.has_connection && (of_all || entry.opener.peer == peer);
        let ids: Vec<u64> = self.open.iter().filter(|(_, entry)| goes(entry)).map(|(&id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Makes a scanner idle, and takes its last call back if that was `uncounted`.
    fn rest(
        &mut self,
        id: u64,
        scanner: Box<OpenScanner>,
        expires_ns: u64,
        uncounted: bool,
    ) -> Option<ReleasedView> {
        let entry = self.open.get_mut(&id)?;
        let user = scanner.connection.id;
        if entry.user != user {
            count_off(&mut self.by_user, std::mem::replace(&mut entry.user, user), 1);
            *self.by_user.entry(user).or_default() += 1;
        }
        entry.next_call_seq -= u64::from(uncounted);
        entry.rest(scanner, expires_ns)
    }

    fn remember_closed(&mut self, id: u64, next_call_seq: u64, expires_ns: u64) {
        if self.closed_expiry.len() >= CLOSED_COUNT_MAX
            && let Some((_, oldest)) = self.closed_expiry.pop_front()
        {
            self.closed.remove(&oldest);
        }
        self.closed.insert(id, next_call_seq);
        self.closed_expiry.push_back((expires_ns, id));
    }
}

/// So many less; nothing is kept of who has none.
fn count_off<K: Eq + Hash, S: BuildHasher>(counts: &mut HashMap<K, usize, S>, key: K, places: usize) {
    let Place::Occupied(mut count) = counts.entry(key) else {
        unreachable!("a scanner that is open was counted");
    };
    *count.get_mut() = count.get().checked_sub(places).expect("a scanner that is open was counted");
    if *count.get() == 0 {
        count.remove();
    }
}

struct Entry {
    opener: Opener,
    /// The connection that used it last, as of when it was last idle.
    user: u64,
    /// Of the scanner, when it was last idle.
    held_bytes: u64,
    places: usize,
    /// What `next_call_seq` of the next call has to be.
    next_call_seq: u64,
    /// The connection that used it last is open, as far as is known.
    has_connection: bool,
    holding: Holding,
}

impl Entry {
    /// Makes the scanner idle. It holds nothing that was flushed while it was busy; that is returned, to be freed when no
    /// lock is held.
    fn rest(&mut self, mut scanner: Box<OpenScanner>, expires_ns: u64) -> Option<ReleasedView> {
        let let_go = let_go_flushed(&mut scanner);
        self.held_bytes = scanner.scanner.held_bytes();
        self.holding = Holding::Idle { scanner, expires_ns };
        let_go
    }
}

fn let_go_flushed(scanner: &mut OpenScanner) -> Option<ReleasedView> {
    scanner.scanner.holds_flushed().then(|| scanner.scanner.let_go())
}

enum Holding {
    Idle {
        scanner: Box<OpenScanner>,
        expires_ns: u64,
    },
    /// A call for it waits for its turn. No lease runs.
    Waiting(Box<OpenScanner>),
    Busy,
    /// The region was closed under the idle scanner.
    RegionClosed {
        region: String,
        expires_ns: u64,
    },
}

impl Scanners {
    pub(crate) fn new(clock: Arc<dyn Clock>, lease: Duration, limits: ScannerLimits) -> Scanners {
        // Ids of two incarnations must not meet: the upper half is drawn anew each time, and stays positive
        // as a Java long.
        let upper = u64::from(u32::from_be_bytes(random_bytes()) >> 1) << 32;
        Scanners { clock, lease, limits, next_id: AtomicU64::new(upper + 1), state: Mutex::default() }
    }

    /// An id for a scanner that a call opens, and the sequence number its next call has to carry.
    pub(crate) fn begin(&self, call_seq: Option<u64>) -> Result<(u64, u64), RpcError> {
        match call_seq {
            Some(seq) if seq != 0 => Err(out_of_order(0, seq)),
            _ => Ok((self.next_id.fetch_add(1, Ordering::Relaxed), u64::from(call_seq.is_some()))),
        }
    }

    /// Takes in a scanner that outlives the call that opened it; its lease runs from now.
    pub(crate) fn keep(
        &self,
        id: u64,
        next_call_seq: u64,
        scanner: Box<OpenScanner>,
    ) -> Result<(), RpcError> {
        let expires_ns = self.expires_ns();
        let (opener, places) = (Opener::of(&scanner.connection), scanner.places());
        let mut state = self.state.lock();
        let mut dropped = Vec::new();
        if state.counts.is_full(&opener, places, &self.limits) {
            dropped = state.remove_unconnected(&opener, places, &self.limits);
        }
        if state.counts.is_full(&opener, places, &self.limits) {
            let (all, own) = (state.counts.all(), state.counts.of(&opener));
            drop(state);
            return Err(RpcError::region_too_busy(format!(
                "{all} scanners of {SCANNER_BYTES} bytes are open, {own} of them by this connection, which may not have \
                 {places} more now (halcyon.scanners.max, halcyon.peer.share)"
            )));
        }
        let mut entry = Entry {
            opener,
            user: opener.connection,
            held_bytes: 0,
            places,
            next_call_seq,
            has_connection: true,
            holding: Holding::Busy,
        };
        let let_go = entry.rest(scanner, expires_ns);
        state.insert(id, entry);
        drop(state);
        drop((let_go, dropped));
        Ok(())
    }

    /// Remembers the id of a scanner that ended with the call that opened it.
    pub(crate) fn ended(&self, id: u64, next_call_seq: u64) {
        let expires_ns = self.expires_ns();
        self.state.lock().remember_closed(id, next_call_seq, expires_ns);
    }

    /// Claims a scanner for a call with this sequence number, or renews its lease.
    pub(crate) fn claim(&self, id: u64, call_seq: Option<u64>, renew: bool) -> Result<Claim, RpcError> {
        let expires_ns = self.expires_ns();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(entry) = state.open.get_mut(&id) else {
            return match state.closed.get(&id) {
                Some(&seq) => match call_seq.filter(|&call_seq| call_seq != seq) {
                    Some(call_seq) => Err(out_of_order(seq, call_seq)),
                    None => Ok(Claim::AlreadyClosed),
                },
                None => Err(unknown_scanner(id)),
            };
        };
        match std::mem::replace(&mut entry.holding, Holding::Busy) {
            busy @ (Holding::Busy | Holding::Waiting(_)) => {
                entry.holding = busy;
                Err(RpcError::lease(format!("lease '{id}' does not exist")))
            }
            Holding::RegionClosed { region, .. } => {
                state.remove(id);
                Err(RpcError::not_serving_region(format!("{region} was closed under scanner {id}")))
            }
            Holding::Idle { scanner, .. } => {
                if let Some(call_seq) = call_seq {
                    if call_seq != entry.next_call_seq {
                        let expected = entry.next_call_seq;
                        entry.holding = Holding::Idle { scanner, expires_ns };
                        return Err(out_of_order(expected, call_seq));
                    }
                    entry.next_call_seq += 1;
                }
                if renew {
                    entry.holding = Holding::Idle { scanner, expires_ns };
                    return Ok(Claim::Renewed);
                }
                if !entry.has_connection {
                    entry.has_connection = true;
                    count_off(&mut state.unconnected, entry.opener.peer, entry.places);
                }
                Ok(Claim::Owned(scanner))
            }
        }
    }

    /// Keeps a claimed scanner until the turn of its call has come, which may be seconds away: it holds no memory that
    /// is flushed meanwhile, either.
    pub(crate) fn await_turn(&self, id: u64, mut scanner: Box<OpenScanner>) {
        let let_go = let_go_flushed(&mut scanner);
        if let Some(entry) = self.state.lock().open.get_mut(&id) {
            entry.held_bytes = scanner.scanner.held_bytes();
            entry.holding = Holding::Waiting(scanner);
        }
        drop(let_go);
    }

    /// The scanner of a call whose turn has come, which is the caller's again. None if it waits no more.
    pub(crate) fn take_turn(&self, id: u64) -> Option<Box<OpenScanner>> {
        let mut state = self.state.lock();
        let entry = state.open.get_mut(&id)?;
        match std::mem::replace(&mut entry.holding, Holding::Busy) {
            Holding::Waiting(scanner) => Some(scanner),
            other => {
                entry.holding = other;
                None
            }
        }
    }

    /// Ends a claim; the lease runs from now.
    pub(crate) fn give_back(&self, id: u64, scanner: Box<OpenScanner>) {
        let expires_ns = self.expires_ns();
        let mut state = self.state.lock();
        let let_go = state.rest(id, scanner, expires_ns, false);
        drop(state);
        drop(let_go);
    }

    /// Bytes of open scanners, and of the blocks that they stood on when they were last idle.
    pub(crate) fn held_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.open.values().map(|entry| entry.held_bytes).sum::<u64>()
            + state.counts.all() as u64 * SCANNER_BYTES
    }

    /// Takes a claim back whose call was not carried out: the next one may have its sequence number, if it was
    /// `counted`.
    pub(crate) fn unclaim(&self, id: u64, scanner: Box<OpenScanner>, counted: bool) {
        let expires_ns = self.expires_ns();
        let mut state = self.state.lock();
        let let_go = state.rest(id, scanner, expires_ns, counted);
        drop(state);
        drop(let_go);
    }

    /// Ends a claim for good. The caller drops the scanner.
    pub(crate) fn close(&self, id: u64) {
        let expires_ns = self.expires_ns();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(entry) = state.remove(id) {
            state.remember_closed(id, entry.next_call_seq, expires_ns);
        }
    }

    /// Lets scanners that no call is at let go of memory of a region that was flushed or compacted in memory.
    pub(crate) fn region_flushed(&self, online: &Arc<OnlineRegion>) {
        let mut let_go = Vec::new();
        let mut state = self.state.lock();
        for entry in state.open.values_mut() {
            if let Holding::Idle { scanner, .. } | Holding::Waiting(scanner) = &mut entry.holding
                && Arc::ptr_eq(&scanner.online, online)
                && let Some(held) = let_go_flushed(scanner)
            {
                entry.held_bytes = 0;
                let_go.push(held);
            }
        }
        drop(state);
        drop(let_go);
        if let Some(coprocessors) = &online.coprocessors {
            coprocessors.region_flushed(online);
        }
    }

    /// Lets the idle scanners that a connection used last let go of all they hold but their read points. All calls of the
    /// connection have ended.
    pub(crate) fn connection_closed(&self, connection: &Connection) {
        let mut let_go = Vec::new();
        let mut state = self.state.lock();
        if !state.by_user.contains_key(&connection.id) {
            return; // all of them need not be looked through
        }
        let State { open, unconnected, .. } = &mut *state;
        for entry in open.values_mut() {
            if let Holding::Idle { scanner, .. } = &mut entry.holding
                && scanner.connection.id == connection.id
            {
                let_go.push(scanner.scanner.let_go());
                entry.held_bytes = 0;
                if std::mem::replace(&mut entry.has_connection, false) {
                    *unconnected.entry(entry.opener.peer).or_default() += entry.places;
                }
            }
        }
        drop(state);
        drop(let_go);
    }

    /// Lets go of the idle scanners of a region that is closing.
    pub(crate) fn region_closing(&self, online: &Arc<OnlineRegion>) {
        let mut dropped = Vec::new();
        for entry in self.state.lock().open.values_mut() {
            let Holding::Idle { scanner, expires_ns } = &mut entry.holding else { continue };
            if Arc::ptr_eq(&scanner.online, online) {
                let region = text(online.region.info().region_name());
                let closed = Holding::RegionClosed { region, expires_ns: *expires_ns };
                dropped.push(std::mem::replace(&mut entry.holding, closed));
            }
        }
    }

    /// Drops scanners whose lease ran out and forgets ids that were closed long ago. Returns how many leases
    /// ran out. To be called about once a second.
    pub(crate) fn expire(&self) -> usize {
        let now_ns = self.clock.monotonic_ns();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let expired = |entry: &Entry| match entry.holding {
            Holding::Idle { expires_ns, .. } | Holding::RegionClosed { expires_ns, .. } => {
                expires_ns <= now_ns
            }
            Holding::Busy | Holding::Waiting(_) => false,
        };
        let ids: Vec<u64> = state.open.iter().filter(|(_, e)| expired(e)).map(|(&id, _)| id).collect();
        let dropped: Vec<Entry> = ids.iter().filter_map(|id| state.remove(*id)).collect();
        while let Some(&(expires_ns, id)) = state.closed_expiry.front() {
            if expires_ns > now_ns {
                break;
            }
            state.closed_expiry.pop_front();
            state.closed.remove(&id);
        }
        drop(guard);
        dropped.len()
    }

    /// Name of the region of a scanner that is open and rests.
    pub(crate) fn region_name(&self, id: u64) -> Option<Bytes> {
        match &self.state.lock().open.get(&id)?.holding {
            Holding::Idle { scanner, .. } | Holding::Waiting(scanner) => {
                Some(scanner.online.region.info().region_name().clone())
            }
            Holding::Busy | Holding::RegionClosed { .. } => None,
        }
    }

    pub(crate) fn open_count(&self) -> usize {
        self.state.lock().open.len()
    }

    pub(crate) fn limits(&self) -> &ScannerLimits {
        &self.limits
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    fn expires_ns(&self) -> u64 {
        self.clock.monotonic_ns() + self.lease.as_nanos() as u64
    }
}

fn out_of_order(expected: u64, got: u64) -> RpcError {
    RpcError::out_of_order_scanner_next(format!(
        "Expected nextCallSeq: {expected} But the nextCallSeq got from client: {got}"
    ))
}

fn unknown_scanner(id: u64) -> RpcError {
    RpcError::unknown_scanner(format!(
        "Unknown scanner '{id}': the id is wrong, its lease ran out, or the server was restarted. If the client \
         lets more time pass between calls, raise hbase.client.scanner.timeout.period"
    ))
}

#[cfg(test)]
mod tests;
