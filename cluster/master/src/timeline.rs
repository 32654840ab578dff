//! When what of a recovery happened: of each death of a region server, and of each time that a master took the cluster over.
//!
//! ```text
//! noticed ──> fenced ──> hbase:meta open ──> WALs split ──> regions open = ended
//!   who saw it   WALs are taken away  (if it was there)   number, bytes     number
//! ```
//!
//! Those who do the work say so here in passing. Only the news of dead servers for clients waits for it: what is missing or wrong
//! here loses no row. The newest are kept in `MasterData/recoveries` for the masters that come after this one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_cell::{Error, Result};
use halcyon_env::{Clock, Env, Mutex};
use halcyon_schema::{RegionInfo, ServerName, layout};
use prost::Message;
use tracing::warn;

/// Recoveries that are kept. Each takes about 300 bytes, and 100 bytes for each region on its way.
pub const RECOVERIES_MAX: usize = 200;
/// Regions of one recovery that are followed. What is beyond is counted as open when the others are.
const FOLLOWED_MAX: usize = 100_000;
/// A region that no procedure works on so long after its server's WALs were split does not count any more.
const UNATTENDED_MS: i64 = 5_000;

/// What was recovered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum RecoveryKind {
    /// The death of a region server.
    Server = 0,
    /// What a master before this one has left: it has no regions, but WALs, which are taken from it.
    FormerMaster = 1,
    /// A master has become active.
    Takeover = 2,
}

/// How the master learned of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Noticed {
    /// A newer server has come to its address.
    Replaced = 0,
    /// No process listens at its address.
    ProcessEnded = 1,
    /// Its znode is gone: its session has expired, or it has stopped in order.
    ZnodeGone = 2,
    /// It has joined and made no znode.
    NoZnode = 3,
    /// A master that took the cluster over has found its WALs.
    FoundAtTakeover = 4,
    /// Of a takeover: the election was won.
    Elected = 5,
}

/// The times of one recovery, in Unix time. What has not happened yet, or never does, is `None`.
#[derive(Clone, PartialEq, Message)]
pub struct Recovery {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(enumeration = "RecoveryKind", tag = "2")]
    pub kind: i32,
    /// The dead server. Of a takeover the master before; empty if there was none.
    #[prost(string, tag = "3")]
    pub server: String,
    /// The master that recovered it, or took over.
    #[prost(string, tag = "4")]
    pub master: String,
    #[prost(uint64, tag = "5")]
    pub epoch: u64,
    #[prost(enumeration = "Noticed", tag = "6")]
    pub noticed: i32,
    /// The newest report of the server: it died after that.
    #[prost(int64, optional, tag = "7")]
    pub heard_ms: Option<i64>,
    #[prost(int64, tag = "8")]
    pub noticed_ms: i64,
    #[prost(int64, optional, tag = "9")]
    pub fenced_ms: Option<i64>,
    /// `hbase:meta` was there, and is open elsewhere. Of a takeover: it is open.
    #[prost(int64, optional, tag = "10")]
    pub meta_opened_ms: Option<i64>,
    #[prost(int64, optional, tag = "11")]
    pub split_ms: Option<i64>,
    #[prost(uint64, tag = "12")]
    pub wals_count: u64,
    #[prost(uint64, tag = "13")]
    pub wal_bytes: u64,
    /// Regions that were to be opened elsewhere.
    #[prost(uint64, tag = "14")]
    pub regions_count: u64,
    #[prost(uint64, tag = "15")]
    pub opened_count: u64,
    #[prost(int64, optional, tag = "16")]
    pub first_opened_ms: Option<i64>,
    #[prost(int64, optional, tag = "17")]
    pub last_opened_ms: Option<i64>,
    #[prost(int64, optional, tag = "18")]
    pub ended_ms: Option<i64>,
    /// Of a takeover: the region servers are known.
    #[prost(int64, optional, tag = "19")]
    pub joined_ms: Option<i64>,
}

/// The content of `MasterData/recoveries`, the oldest first.
#[derive(Clone, PartialEq, Message)]
struct Saved {
    #[prost(message, repeated, tag = "1")]
    recoveries: Vec<Recovery>,
}

/// Recoveries since a while ago, those under way among them.
///
/// # Thread safety
/// All methods from any thread. The lock is held for look-ups and changes only.
///
/// # Invariants
/// A server has at most one recovery that has not ended. `pending` has regions of such only.
pub struct Timelines {
    clock: Arc<dyn Clock>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    master: String,
    epoch: u64,
    /// The oldest first.
    recoveries: VecDeque<Recovery>,
    next_number: u64,
    /// Encoded names of regions that are to be opened, with the number of the recovery.
    pending: HashMap<String, u64>,
    file: Option<(Env, PathBuf)>,
    is_changed: bool,
}

impl Timelines {
    pub fn new(clock: Arc<dyn Clock>) -> Timelines {
        Timelines { clock, kept: Mutex::default() }
    }

    /// All that are kept, the newest first.
    pub fn recoveries(&self) -> Vec<Recovery> {
        self.kept.lock().recoveries.iter().rev().cloned().collect()
    }

    /// Whether the recovery of a dead server has not ended: regions of it are to be opened.
    pub fn is_under_way(&self, server: &ServerName) -> bool {
        self.kept.lock().under_way(&server.to_string()).is_some()
    }

    /// This master has become active. `before` is the one that was active last.
    pub fn takeover_began(&self, master: &ServerName, epoch: u64, before: Option<&ServerName>) {
        let mut kept = self.kept.lock();
        (kept.master, kept.epoch) = (master.to_string(), epoch);
        let before = before.map(ServerName::to_string).unwrap_or_default();
        let now_ms = self.clock.now_ms();
        kept.open(RecoveryKind::Takeover, before, Noticed::Elected, now_ms);
    }

    /// The region servers of the cluster are known to this master.
    pub fn servers_joined(&self) {
        let now_ms = self.clock.now_ms();
        self.change_takeover(|recovery| _ = recovery.joined_ms.get_or_insert(now_ms));
    }

    /// The cluster is taken over: this master serves.
    pub fn takeover_ended(&self) {
        let now_ms = self.clock.now_ms();
        self.change_takeover(|recovery| recovery.ended_ms = Some(now_ms));
    }

    /// A region server is dead. What is known already stays.
    pub fn noticed(&self, server: &ServerName, how: Noticed, heard_ms: Option<i64>) {
        let (mut kept, now_ms) = (self.kept.lock(), self.clock.now_ms());
        let name = server.to_string();
        match kept.under_way(&name) {
            // Its procedure was faster than the one who saw it.
            Some(known) if known.noticed() == Noticed::Replaced && how != Noticed::Replaced => {
                (known.noticed, known.heard_ms) = (how as i32, heard_ms.or(known.heard_ms));
            }
            Some(_) => {}
            None => {
                let is_master = kept.recoveries.iter().any(|it| it.is_of_master(&name));
                let kind = if is_master { RecoveryKind::FormerMaster } else { RecoveryKind::Server };
                kept.open(kind, name, how, now_ms).heard_ms = heard_ms.filter(|heard| *heard <= now_ms);
            }
        }
        kept.is_changed = true;
    }

    /// Its WALs are taken from it: it can write no more.
    pub(crate) fn fenced(&self, server: &ServerName) {
        let now_ms = self.clock.now_ms();
        self.change(server, |recovery| _ = recovery.fenced_ms.get_or_insert(now_ms));
        self.change_takeover(|recovery| _ = recovery.fenced_ms.get_or_insert(now_ms));
    }

    /// Some of its WALs are split.
    pub(crate) fn split(&self, server: &ServerName, wals_count: usize, bytes: u64) {
        let now_ms = self.clock.now_ms();
        let add = |recovery: &mut Recovery| {
            recovery.wals_count += wals_count as u64;
            recovery.wal_bytes += bytes;
            recovery.split_ms = Some(now_ms);
        };
        self.change(server, add);
        self.change_takeover(add);
    }

    /// `hbase:meta`, which this server had, is open elsewhere.
    pub(crate) fn meta_opened(&self, server: &ServerName) {
        let now_ms = self.clock.now_ms();
        self.change(server, |recovery| recovery.meta_opened_ms = Some(now_ms));
    }

    /// A master that starts has opened `hbase:meta`.
    pub(crate) fn meta_opened_first(&self) {
        let now_ms = self.clock.now_ms();
        self.change_takeover(|recovery| recovery.meta_opened_ms = Some(now_ms));
    }

    /// All WALs of the server are split, and these regions of it are to be opened elsewhere.
    pub(crate) fn assigning(&self, server: &ServerName, regions: impl Iterator<Item = RegionInfo>) {
        let (mut kept, now_ms) = (self.kept.lock(), self.clock.now_ms());
        let kept = &mut *kept;
        let names: Vec<String> = regions.map(|region| region.encoded_name().to_string()).collect();
        let name = server.to_string();
        if kept.under_way(&name).is_none() && !names.is_empty() {
            kept.open(RecoveryKind::Server, name.clone(), Noticed::FoundAtTakeover, now_ms);
        }
        let Some(known) = kept.under_way(&name) else { return };
        let (number, count) = (known.number, names.len() as u64);
        (known.regions_count, known.split_ms) = (count, known.split_ms.or(Some(now_ms)));
        kept.pending.extend(names.into_iter().take(FOLLOWED_MAX).map(|name| (name, number)));
        kept.end_if_done(number, now_ms);
    }

    /// A region serves at some server.
    pub(crate) fn region_opened(&self, region: &RegionInfo) {
        let (mut kept, now_ms) = (self.kept.lock(), self.clock.now_ms());
        let kept = &mut *kept;
        let takeover = kept.recoveries.iter_mut().rev().find(|it| it.is_takeover_under_way());
        if let Some(takeover) = takeover {
            takeover.regions_count += 1;
            takeover.count_opened(now_ms);
        }
        let Some(number) = kept.pending.remove(region.encoded_name()) else { return };
        if let Some(known) = kept.recoveries.iter_mut().find(|it| it.number == number) {
            known.count_opened(now_ms);
        }
        kept.end_if_done(number, now_ms);
    }

    /// The regions that are followed, if their servers' WALs were split some time ago: the caller tells what became of them.
    pub(crate) fn overdue(&self) -> Vec<String> {
        let (kept, now_ms) = (self.kept.lock(), self.clock.now_ms());
        let is_old = |it: &&Recovery| it.split_ms.is_some_and(|split_ms| now_ms - split_ms > UNATTENDED_MS);
        let old: HashSet<u64> = kept.recoveries.iter().filter(is_old).map(|it| it.number).collect();
        let pending = kept.pending.iter().filter(|(_, number)| old.contains(number));
        pending.map(|(name, _)| name.clone()).collect()
    }

    /// Nothing works on these regions any more: their tables are gone or disabled, or they cannot be opened.
    pub(crate) fn given_up(&self, encoded_names: &[String]) {
        let (mut kept, now_ms) = (self.kept.lock(), self.clock.now_ms());
        for name in encoded_names {
            if let Some(number) = kept.pending.remove(name) {
                kept.end_if_done(number, now_ms);
            }
        }
    }

    /// Reads what masters before have kept. What cannot be read is left out.
    pub(crate) fn load(&self, env: &Env, root: &Path) {
        let path = file(root);
        let read = || -> Result<Saved> {
            if !env.fs.exists(&path)? {
                return Ok(Saved::default());
            }
            let wrong = |error| Error::corrupt(format!("{}: {error}", path.display()));
            Saved::decode(&*env.fs.read(&path)?).map_err(wrong)
        };
        let saved = read().unwrap_or_else(|error| {
            warn!(%error, "the recoveries of masters before are not known");
            Saved::default()
        });
        let mut kept = self.kept.lock();
        if kept.file.is_some() {
            return; // this start is another attempt
        }
        kept.file = Some((env.clone(), path));
        let older = saved.recoveries;
        let next = older.iter().map(|it| it.number + 1).max().unwrap_or(0);
        // Numbers of the recoveries of this master come after those before.
        kept.recoveries.iter_mut().for_each(|it| it.number += next);
        kept.pending.values_mut().for_each(|number| *number += next);
        kept.next_number += next;
        for mut recovery in older.into_iter().rev() {
            // Its master has ended; another recovery goes on with it.
            let last_ms = recovery.last_known_ms();
            recovery.ended_ms.get_or_insert(last_ms);
            kept.recoveries.push_front(recovery);
        }
        kept.forget_oldest();
    }

    /// Keeps the recoveries for later masters, if there is news. *Blocking*.
    pub(crate) fn save(&self) {
        let (saved, env, path) = {
            let mut kept = self.kept.lock();
            if !std::mem::take(&mut kept.is_changed) {
                return;
            }
            let Some((env, path)) = kept.file.clone() else { return };
            (Saved { recoveries: kept.recoveries.iter().cloned().collect() }, env, path)
        };
        if let Err(error) = env.fs.replace(&path, &saved.encode_to_vec()) {
            warn!(%error, "recoveries were not kept for later masters");
        }
    }

    fn change(&self, server: &ServerName, change: impl FnOnce(&mut Recovery)) {
        let (mut kept, now_ms) = (self.kept.lock(), self.clock.now_ms());
        let name = server.to_string();
        if kept.under_way(&name).is_none() {
            kept.open(RecoveryKind::Server, name.clone(), Noticed::Replaced, now_ms);
        }
        if let Some(known) = kept.under_way(&name) {
            change(known);
        }
        kept.is_changed = true;
    }

    fn change_takeover(&self, change: impl FnOnce(&mut Recovery)) {
        let mut kept = self.kept.lock();
        let found = kept.recoveries.iter_mut().rev().find(|it| it.is_takeover_under_way());
        if let Some(takeover) = found {
            change(takeover);
            kept.is_changed = true;
        }
    }
}

fn file(root: &Path) -> PathBuf {
    layout::master_dir(root).join("recoveries")
}

impl Kept {
    fn open(&mut self, kind: RecoveryKind, server: String, how: Noticed, now_ms: i64) -> &mut Recovery {
        let (number, master, epoch) = (self.next_number, self.master.clone(), self.epoch);
        self.next_number += 1;
        self.is_changed = true;
        let (kind, noticed) = (kind as i32, how as i32);
        let new = Recovery {
            number,
            kind,
            server,
            master,
            epoch,
            noticed,
            noticed_ms: now_ms,
            ..Default::default()
        };
        self.recoveries.push_back(new);
        self.forget_oldest();
        self.recoveries.back_mut().expect("was just pushed")
    }

    fn forget_oldest(&mut self) {
        while self.recoveries.len() > RECOVERIES_MAX {
            let forgotten = self.recoveries.pop_front().expect("there are some");
            self.pending.retain(|_, number| *number != forgotten.number);
        }
    }

    fn under_way(&mut self, server: &str) -> Option<&mut Recovery> {
        let is_it = |it: &&mut Recovery| {
            it.server == server && it.ended_ms.is_none() && it.kind() != RecoveryKind::Takeover
        };
        self.recoveries.iter_mut().rev().find(is_it)
    }

    fn end_if_done(&mut self, number: u64, now_ms: i64) {
        if self.pending.values().any(|other| *other == number) {
            return;
        }
        if let Some(done) = self.recoveries.iter_mut().find(|it| it.number == number) {
            done.ended_ms = Some(now_ms);
            self.is_changed = true;
        }
    }
}

impl Recovery {
    fn count_opened(&mut self, now_ms: i64) {
        self.opened_count += 1;
        self.first_opened_ms.get_or_insert(now_ms);
        self.last_opened_ms = Some(now_ms);
    }

    fn is_takeover_under_way(&self) -> bool {
        self.kind() == RecoveryKind::Takeover && self.ended_ms.is_none()
    }

    /// Whether it shows that the server of this name is or was a master.
    fn is_of_master(&self, name: &str) -> bool {
        self.kind() == RecoveryKind::Takeover && (self.server == name || self.master == name)
    }

    fn last_known_ms(&self) -> i64 {
        let times = [self.fenced_ms, self.meta_opened_ms, self.split_ms, self.last_opened_ms];
        times.into_iter().flatten().fold(self.noticed_ms, i64::max)
    }
}

#[cfg(test)]
#[path = "timeline/tests.rs"]
mod tests;
