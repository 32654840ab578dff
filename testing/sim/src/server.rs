//! A model of a region server, and the invariants of what it does.
//!
//! It has two WALs in the simulated HDFS, one of them for `hbase:meta`. A write is in a WAL and synced before it is acknowledged. An
//! opening reads the region's files and recovered edits; a close writes all that the region has into one file.
//! An opening in which an acknowledged write is missing ends the simulation, and so do two servers that may both write to a region.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_contract::{OpenRegionRequest, SplitWal};
use halcyon_env::{FileSystem, WritableFile};
use halcyon_schema::{RegionInfo, ServerName};

use crate::entries::{self, Entry};
use crate::rows;
use crate::world::{Event, Flaw, State, World};

const EDITS: &str = "recovered.edits";
const FAMILY: &str = "f";
const SEQ_ID: &str = "seqid";
/// Of the WALs that a model is to split it does not find one in so many.
const MISSES_ONE_IN: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Up,
    Frozen,
    Dead,
}

pub(crate) struct ModelServer {
    pub(crate) life: Life,
    /// Its session has expired.
    pub(crate) is_expired: bool,
    /// By encoded name. After a death those that its WALs have to be split for.
    pub(crate) regions: BTreeMap<String, Open>,
    /// Those of a model.
    wals: Option<Wals>,
    /// The newest master that it has heard of.
    epoch: u64,
    /// The number of the newest order for each region.
    orders: BTreeMap<String, u64>,
    /// It cannot open regions.
    pub(crate) refuses: bool,
}

struct Wals {
    /// Of tables.
    wal: Box<dyn WritableFile>,
    meta_wal: Box<dyn WritableFile>,
}

/// A region that a server has.
pub(crate) struct Open {
    pub(crate) info: RegionInfo,
    pub(crate) seq: u64,
    /// The master has taken the report.
    pub(crate) is_granted: bool,
    /// The master has refused the report.
    pub(crate) is_refused: bool,
    next_seq: u64,
    /// By id. A real server has its own.
    pub(crate) entries: BTreeMap<u64, Entry>,
}

impl Open {
    /// A region that a server has opened, and that no master has answered yet.
    pub(crate) fn reported(info: &RegionInfo, seq: u64) -> Open {
        let (is_granted, is_refused, entries) = (false, false, BTreeMap::new());
        Open { info: info.clone(), seq, is_granted, is_refused, next_seq: seq + 1, entries }
    }
}

/// Who orders, and the number of the order among all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) epoch: u64,
    pub(crate) number: u64,
}

impl ModelServer {
    fn new(wals: Option<Wals>) -> ModelServer {
        let (life, regions) = (Life::Up, BTreeMap::new());
        let (orders, is_expired, epoch, refuses) = (BTreeMap::new(), false, 0, false);
        ModelServer { life, is_expired, regions, wals, epoch, orders, refuses }
    }

    /// Whether no later order for the region has come; the number is kept.
    pub(crate) fn is_newest(&mut self, region: &RegionInfo, number: u64) -> bool {
        let newest = self.orders.entry(region.encoded_name().to_string()).or_default();
        *newest = number.max(*newest);
        *newest == number
    }
}

fn io(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, error.to_string())
}

impl World {
    /// A server starts.
    pub(crate) fn join(self: &Arc<World>, name: &ServerName) {
        if self.options.is_real {
            {
                let mut state = self.lock();
                state.servers.insert(name.clone(), ModelServer::new(None));
                state.znodes.insert(name.clone());
            }
            return self.join_real(name);
        }
        let dir = self.wal_dir(name);
        let made = self.fs.create_dir_all(&dir);
        made.and_then(|()| {
            let wal = self.fs.create_log(&dir.join(format!("{name}.1")))?;
            let meta_wal = self.fs.create_log(&dir.join(format!("{name}.2.meta")))?;
            let mut state = self.lock();
            state.servers.insert(name.clone(), ModelServer::new(Some(Wals { wal, meta_wal })));
            state.znodes.insert(name.clone());
            Ok(())
        })
        .expect("a new server's directory is its own");
    }

    /// Opens a region, which serves when [`World::grant`] is called. Returns its open sequence number.
    pub(crate) fn open(
        self: &Arc<World>,
        name: &ServerName,
        request: &OpenRegionRequest,
        order: Order,
    ) -> Result<u64> {
        let region = &request.region;
        let mut state = self.lock();
        let server = self.obeying(&mut state, name, order.epoch)?;
        if !server.is_newest(region, order.number) && !self.has(Flaw::LateOrdersCount) {
            return Err(Error::new(ErrorKind::Busy, "a later order has come"));
        }
        if let Some(open) = server.regions.get(region.encoded_name()) {
            return Ok(open.seq);
        }
        if server.refuses && !region.table().is_system() {
            return Err(Error::new(ErrorKind::Moved, "FAILED_OPEN"));
        }
        if !self.exists(&region.dir(&self.root)) {
            return Err(Error::new(ErrorKind::Moved, format!("{region} has no directory")));
        }
        if self.is_fenced(name) {
            drop(state);
            self.abort(name); // real servers write to their WAL that they have opened a region
            return Err(Error::new(ErrorKind::Busy, format!("{name} does not answer")));
        }
        self.check_alone(&state, name, region);
        let (entries, last_seq) = self.read_region(region)?;
        check_whole(&state, region, &entries);
        let seq = entries.values().map(|entry| entry.seq).max().unwrap_or(0).max(last_seq) + 1;
        self.fs.replace(&region.dir(&self.root).join(SEQ_ID), &seq.to_be_bytes()).map_err(io)?;
        let before = state.history.open_seqs.insert(region.encoded_name().to_string(), seq);
        assert!(before.is_none_or(|before| before < seq), "{region} opens with {seq} after {before:?}");
        state.count("openings");
        let open = Open { entries, ..Open::reported(region, seq) };
        let server = state.servers.get_mut(name).expect("it was just there");
        server.regions.insert(region.encoded_name().to_string(), open);
        Ok(seq)
    }

    /// Whether the server has opened the region, and no master has answered that.
    pub(crate) fn waits_for_answer(&self, name: &ServerName, region: &RegionInfo, seq: u64) -> bool {
        let state = self.lock();
        let open = state.servers.get(name).and_then(|server| server.regions.get(region.encoded_name()));
        open.is_some_and(|open| open.seq == seq && !open.is_granted)
    }

    /// The master has taken the report of an opening.
    pub(crate) fn grant(&self, name: &ServerName, region: &RegionInfo, seq: u64) {
        let mut state = self.lock();
        let Some(server) = state.servers.get_mut(name) else { return };
        let open = server.regions.get_mut(region.encoded_name()).filter(|open| open.seq == seq);
        let Some(open) = open.filter(|_| server.life != Life::Dead) else { return };
        open.is_granted = true;
        match self.options.is_real {
            true => self.check_alone_real(&mut state, name, region),
            false => self.check_alone(&state, name, region),
        }
    }

    /// Whether a master has taken the report of an opening.
    pub(crate) fn is_granted(&self, name: &ServerName, region: &RegionInfo, seq: u64) -> bool {
        let state = self.lock();
        let open = state.servers.get(name).and_then(|server| server.regions.get(region.encoded_name()));
        open.is_some_and(|open| open.seq == seq && open.is_granted)
    }

    /// As [`World::refuse`], by the master that gave an order. It does not count if a later order has come for the region: a real
    /// server reports one opening at a time, and a later order waits for the end of the one before.
    pub(crate) fn refuse_order(
        self: &Arc<World>,
        name: &ServerName,
        region: &RegionInfo,
        seq: u64,
        order: Order,
    ) {
        let is_newest = {
            let mut state = self.lock();
            state.servers.get_mut(name).is_some_and(|server| server.is_newest(region, order.number))
        };
        if is_newest {
            self.refuse(name, region, seq);
        }
    }

    /// The master has refused the report of an opening. One report has one answer: a region that serves goes on.
    pub(crate) fn refuse(self: &Arc<World>, name: &ServerName, region: &RegionInfo, seq: u64) {
        let is_that = {
            let mut state = self.lock();
            let server = state.servers.get_mut(name).filter(|server| server.life == Life::Up);
            let open = server.and_then(|it| it.regions.get_mut(region.encoded_name()));
            let open = open.filter(|open| open.seq == seq && !open.is_granted);
            open.map(|open| open.is_refused = true).is_some()
        };
        if is_that && !self.options.is_real {
            self.flush_and_close(name, region.encoded_name());
        }
    }

    /// Closes a region; one that is not there is no error. `Busy` while it is being opened.
    pub(crate) fn close(
        self: &Arc<World>,
        name: &ServerName,
        region: &RegionInfo,
        order: Order,
    ) -> Result<()> {
        {
            let mut state = self.lock();
            let server = self.obeying(&mut state, name, order.epoch)?;
            server.is_newest(region, order.number);
            match server.regions.get(region.encoded_name()) {
                None => return Ok(()),
                Some(open) if !open.is_granted => {
                    return Err(Error::new(ErrorKind::Busy, format!("{region} is being opened")));
                }
                Some(_) => {}
            }
            state.count("closes");
        }
        self.flush_and_close(name, region.encoded_name());
        Ok(())
    }

    fn flush_and_close(self: &Arc<World>, name: &ServerName, encoded: &str) {
        if self.is_fenced(name) {
            return self.abort(name); // real servers notice by a file that they cannot make
        }
        let mut state = self.lock();
        let server = state.servers.get_mut(name).expect("it was there");
        let Some(open) = server.regions.get(encoded) else { return };
        let (dir, seq) = (open.info.dir(&self.root), open.seq);
        let bytes: Vec<u8> = open.entries.values().flat_map(Entry::encode).collect();
        let family = dir.join(FAMILY);
        let before = self.fs.list(&family).unwrap_or_default();
        let flushed = self
            .fs
            .create_dir_all(&family)
            .and_then(|()| self.fs.replace(&family.join(format!("{name}-{seq}")), &bytes));
        flushed.expect("the directory of a region that is open");
        for old in before.iter().filter(|old| !old.name.ends_with(&format!("-{seq}"))) {
            self.fs.remove_file(&family.join(&old.name)).expect("it was just listed");
        }
        if self.exists(&dir.join(EDITS)) {
            self.fs.remove_dir_all(&dir.join(EDITS)).expect("it is there");
        }
        server.regions.remove(encoded);
    }

    /// Writes to a region that serves. `Moved`: it does not.
    pub(crate) fn write(&self, name: &ServerName, encoded: &str, payload: Vec<u8>) -> Result<()> {
        let mut state = self.lock();
        let id = state.next_id();
        let moved = || Error::new(ErrorKind::Moved, format!("{encoded} does not serve at {name}"));
        let server =
            state.servers.get_mut(name).filter(|server| server.life == Life::Up).ok_or_else(moved)?;
        let open = server.regions.get_mut(encoded).filter(|open| open.is_granted).ok_or_else(moved)?;
        let entry = Entry { id, seq: open.next_seq, region: encoded.to_string(), payload };
        let is_meta = open.info.is_meta();
        let wals = server.wals.as_mut().expect("a model");
        let wal = if is_meta { &mut wals.meta_wal } else { &mut wals.wal };
        let bytes = entry.encode();
        let written = match self.has(Flaw::AcknowledgesUnsynced) && !is_meta {
            true => wal.write_all(&bytes),
            false => wal.write_all(&bytes).and_then(|()| wal.sync()),
        };
        if let Err(error) = written {
            server.life = Life::Dead; // a fenced server gives up
            state.count("fenced writes");
            return Err(io(error));
        }
        open.next_seq += 1;
        open.entries.insert(id, entry);
        let region = open.info.clone();
        state.history.acknowledged.entry(encoded.to_string()).or_default().insert(id);
        state.count(if is_meta { "writes to meta" } else { "writes" });
        self.check_alone(&state, name, &region);
        Ok(())
    }

    /// As [`World::write`], by a master. `Expired` for one that was deposed.
    pub(crate) fn write_as(
        self: &Arc<World>,
        name: &ServerName,
        region: &RegionInfo,
        cells: Vec<Cell>,
        epoch: u64,
    ) -> Result<()> {
        self.obeying(&mut self.lock(), name, epoch)?;
        self.write(name, region.encoded_name(), rows::encode(&cells))
    }

    /// The rows of a system table that serves.
    pub(crate) fn scan(
        self: &Arc<World>,
        name: &ServerName,
        region: &RegionInfo,
        epoch: u64,
    ) -> Result<Vec<Vec<Cell>>> {
        let mut state = self.lock();
        let server = self.obeying(&mut state, name, epoch)?;
        let open = server.regions.get(region.encoded_name()).filter(|open| open.is_granted);
        let moved = || Error::new(ErrorKind::Moved, format!("{region} does not serve at {name}"));
        let mut found: Vec<Entry> = open.ok_or_else(moved)?.entries.values().cloned().collect();
        found.sort_by_key(|entry| entry.seq);
        let cells = found.iter().flat_map(|entry| rows::decode(&entry.payload));
        Ok(rows::rows(cells, region.comparator()))
    }

    pub(crate) fn online_regions(
        self: &Arc<World>,
        name: &ServerName,
        epoch: u64,
    ) -> Result<Vec<RegionInfo>> {
        let mut state = self.lock();
        let server = self.obeying(&mut state, name, epoch)?;
        Ok(server.regions.values().filter(|open| open.is_granted).map(|open| open.info.clone()).collect())
    }

    /// A server that has its WALs elsewhere finds none of the others'.
    fn looks_elsewhere(&self) -> bool {
        let mut state = self.lock();
        let looks = self.rates.misses_wals && state.faults && state.doubts.one_in(MISSES_ONE_IN);
        if looks {
            state.count("WALs not found");
        }
        looks
    }

    /// Splits a WAL of a dead server.
    pub(crate) fn split_wal(
        self: &Arc<World>,
        name: &ServerName,
        wal: &Path,
        epoch: u64,
    ) -> Result<SplitWal> {
        self.obeying(&mut self.lock(), name, epoch)?;
        let path = self.root.join(wal);
        if !self.exists(&path) || self.looks_elsewhere() {
            return Ok(SplitWal::NotFound);
        }
        let file = path.file_name().expect("a file").to_string_lossy().into_owned();
        let dir =
            path.parent().and_then(Path::file_name).expect("a directory").to_string_lossy().into_owned();
        let owner = dir.strip_suffix("-splitting");
        let owner = owner.unwrap_or_else(|| panic!("{file} is split, and its server is not fenced"));
        let owner = ServerName::parse(owner).expect("the directory of a server");
        if !self.has(Flaw::NoSeal) {
            self.fs.seal(&path).map_err(io)?;
        }
        let mut by_region: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for entry in entries::decode(&self.fs.read(&path).map_err(io)?) {
            by_region.entry(entry.region.clone()).or_default().extend(entry.encode());
        }
        let mut state = self.lock();
        let dirs: BTreeMap<String, RegionInfo> = match state.servers.get(&owner) {
            Some(server) => {
                server.regions.iter().map(|(name, open)| (name.clone(), open.info.clone())).collect()
            }
            None => BTreeMap::new(), // of a master
        };
        for (encoded, bytes) in by_region {
            // What the server closed in order is in the region's files.
            let Some(region) = dirs.get(&encoded) else { continue };
            let edits = region.dir(&self.root).join(EDITS);
            self.fs.create_dir_all(&edits).map_err(io)?;
            self.fs.replace(&edits.join(&file), &bytes).map_err(io)?;
        }
        if let Some(server) = state.servers.get_mut(&owner) {
            let is_meta_wal = file.ends_with(".meta");
            server.regions.retain(|_, open| open.info.is_meta() != is_meta_wal);
        }
        state.count("WALs split");
        Ok(SplitWal::Done)
    }

    /// The server ends itself.
    pub(crate) fn abort(self: &Arc<World>, name: &ServerName) {
        if self.options.is_real {
            return self.give_up_real(name);
        }
        self.die(name);
        // A process that ends itself ends its session.
        self.within(&mut self.lock(), Duration::from_millis(300), Event::Expire(name.clone()));
    }

    pub(crate) fn die(&self, name: &ServerName) {
        if let Some(server) = self.lock().servers.get_mut(name) {
            server.life = Life::Dead;
        }
    }

    /// The server, which takes orders of the newest master only.
    pub(crate) fn obeying<'a>(
        &self,
        state: &'a mut State,
        name: &ServerName,
        epoch: u64,
    ) -> Result<&'a mut ModelServer> {
        let gone = || Error::new(ErrorKind::Busy, format!("{name} does not answer"));
        let server = state.servers.get_mut(name).filter(|server| server.life == Life::Up).ok_or_else(gone)?;
        if epoch < server.epoch && !self.has(Flaw::NoEpochCheck) {
            return Err(Error::new(ErrorKind::Expired, "the order is of a master that was deposed"));
        }
        server.epoch = server.epoch.max(epoch);
        Ok(server)
    }

    /// Of those that may write to a region there is one.
    fn check_alone(&self, state: &State, name: &ServerName, region: &RegionInfo) {
        for (other, server) in state.servers.iter().filter(|(other, _)| *other != name) {
            let Some(open) = server.regions.get(region.encoded_name()) else { continue };
            let fenced = self.is_fenced(other);
            assert!(
                fenced || server.life == Life::Dead,
                "{region} is at {name}, and at {other}, which is {:?} and can write to it (granted: {})",
                server.life,
                open.is_granted,
            );
            panic!("{region} is at {name} before the WALs of {other} are split (fenced: {fenced})");
        }
    }

    fn read_region(&self, region: &RegionInfo) -> Result<(BTreeMap<u64, Entry>, u64)> {
        let dir = region.dir(&self.root);
        let mut found = BTreeMap::new();
        for part in [FAMILY, EDITS] {
            let dir = dir.join(part);
            if !self.exists(&dir) {
                continue;
            }
            for file in self.fs.list(&dir).map_err(io)? {
                let bytes = self.fs.read(&dir.join(&file.name)).map_err(io)?;
                found.extend(entries::decode(&bytes).into_iter().map(|entry| (entry.id, entry)));
            }
        }
        let seq_id = dir.join(SEQ_ID);
        let last = match self.exists(&seq_id) {
            true => self.fs.read(&seq_id).map_err(io)?,
            false => vec![0; 8],
        };
        Ok((found, u64::from_be_bytes(last.try_into().expect("eight bytes"))))
    }
}

/// What was acknowledged is there.
fn check_whole(state: &State, region: &RegionInfo, found: &BTreeMap<u64, Entry>) {
    let Some(acknowledged) = state.history.acknowledged.get(region.encoded_name()) else { return };
    let lost: BTreeSet<_> = acknowledged.iter().filter(|id| !found.contains_key(id)).collect();
    assert!(lost.is_empty(), "{region} opens without {} acknowledged writes: {lost:?}", lost.len());
}
