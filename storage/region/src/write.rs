//! Puts and deletes, alone and in batches.
//!
//! A batch is cut into mini-batches: rows that share one log entry and one sequence id. Each goes the same way:
//! rows locked, timestamps set, cells copied into chunks, log entry appended from there, cells linked into the
//! memstore, rows released. The log's word comes later and publishes the mini-batch; the row locks do not wait
//! for it (docs/decisions/0002).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use halcyon_cell::{Cell, CellRef, CellType, Error, ErrorKind, LATEST_TIMESTAMP, Result, SeqId, same_bytes};
use halcyon_env::{Holder, invariant};
use halcyon_memstore::{PreparedCell, Segment};
use halcyon_schema::Durability;
use halcyon_schema::mob::is_mob_reference;
use halcyon_wal::{Completion, WalEntry};
use smallvec::SmallVec;

use crate::activity;
use crate::api::{Mutation, MutationKind, MutationResult, Nonce, ReadMode, Scan};
use crate::edits::{CellsWritten, Edit, Edits, check_tags_len, with_ttl};
use crate::mvcc::{Write, WriteTicket};
use crate::read::Visible;
use crate::read_first::scan_of_mutation;
use crate::region::Region;
use crate::replayed_nonces::ReplayedNonce;
use crate::row_lock::{RowGuards, RowWait};

/// Room that the log's buffer has to have for a write that may not wait for it. Most need less.
const LOG_ROOM_BYTES: usize = 1 << 20;
/// So many markers, and bytes of them, may Deletes of rows make on an event loop. Each makes one for each family.
const MARKERS_NOW_MAX: usize = 4_000;
const MARKERS_NOW_BYTES_MAX: usize = LOG_ROOM_BYTES;
/// Bytes of a KeyValue beside its parts.
const KEY_VALUE_BYTES: usize = 20;

/// What became of a batch.
pub struct BatchOutcome {
    /// One for each mutation, in order.
    pub results: Vec<MutationResult>,
    /// Resolves when all that was applied is durable and can be read. No answer before that.
    pub ticket: WriteTicket,
    /// Of [`Region::mutate_now`]: all of the batch, if it was not begun. `results` is empty then.
    pub left: Vec<Mutation>,
    /// Bytes of cells that Increments, Appends and Deletes of rows have made.
    pub new_bytes: usize,
}

impl BatchOutcome {
    pub(crate) fn new(results: Vec<MutationResult>) -> BatchOutcome {
        BatchOutcome { results, ticket: WriteTicket::ready(), left: Vec::new(), new_bytes: 0 }
    }
}

/// Cells in the chunks of their segments, not yet linked.
type Prepared = SmallVec<[(Arc<Segment>, PreparedCell); 1]>;

impl Region {
    /// Whether carrying the batch out has to read first, perhaps from disk.
    pub fn needs_reads(batch: &[Mutation]) -> bool {
        batch.iter().any(|mutation| match mutation.kind {
            MutationKind::Increment | MutationKind::Append => true,
            MutationKind::Put | MutationKind::Delete => mutation.cells.iter().any(is_newest_version_delete),
        })
    }

    /// Carries out a batch. `atomic`: all or nothing, and all rows must be the same one. Otherwise each
    /// mutation stands alone, and so does its result.
    ///
    /// Errors of the whole call: `Moved` (closing), `Busy` (memstore over its limit), `Stopping` (the log
    /// failed), `NeedsDisk` (with `ReadMode::CacheOnly`; nothing was applied). Of several mutations that stand alone some may be
    /// written before there is no more room or the log fails: then these errors are those of the others.
    pub fn mutate(
        self: &Arc<Self>,
        batch: Vec<Mutation>,
        atomic: bool,
        nonce: Nonce,
        mode: ReadMode,
    ) -> Result<BatchOutcome> {
        self.mutate_telling(batch, atomic, nonce, mode, None)
    }

    /// As [`Region::mutate`], for puts and deletes that read nothing and stand alone, on a thread that may not wait for others. If
    /// another write holds one of their rows, or if they make much more than they bring, the batch is given back
    /// ([`BatchOutcome::left`]).
    pub fn mutate_now(self: &Arc<Self>, batch: Vec<Mutation>) -> Result<BatchOutcome> {
        invariant!(!Region::needs_reads(&batch), "a part of what is left would have been carried out");
        let _open = self.enter()?;
        self.check_writable()?;
        if self.may_wait_for_log(ReadMode::CacheOnly) || self.makes_many_markers(&batch) {
            return Ok(BatchOutcome { left: batch, ..BatchOutcome::new(Vec::new()) });
        }
        let how = (ReadMode::CacheOnly, RowWait::OfEventLoop);
        if batch.len() == 1 {
            return self.mutate_separately(batch, Nonce::default(), how, None, None);
        }
        // All at once: of a batch that was begun the rest could not be given back.
        let locked = self.row_locks.try_all(batch.iter().map(|mutation| mutation.row.as_ref()), how.1);
        match locked {
            Ok(mut held) => self.mutate_separately(batch, Nonce::default(), how, Some(&mut held), None),
            Err(_) => Ok(BatchOutcome { left: batch, ..BatchOutcome::new(Vec::new()) }),
        }
    }

    /// As [`Region::mutate`]; `told` gets the cells as they were written.
    pub fn mutate_telling(
        self: &Arc<Self>,
        batch: Vec<Mutation>,
        atomic: bool,
        nonce: Nonce,
        mode: ReadMode,
        told: Option<&mut CellsWritten>,
    ) -> Result<BatchOutcome> {
        let _open = self.enter()?;
        self.check_writable()?;
        if (atomic || batch.len() == 1) && self.may_wait_for_log(mode) || self.is_for_pool(&batch, mode) {
            return Err(Error::needs_disk());
        }
        if atomic {
            return self.mutate_atomic(batch, nonce, mode, told);
        }
        // A part of a larger batch may have been done when the rows of the next one are held.
        let wait = if batch.len() == 1 { RowWait::of(mode) } else { RowWait::OfClient };
        let outcome = self.mutate_separately(batch, nonce, (mode, wait), None, told)?;
        if outcome.left.is_empty() { Ok(outcome) } else { Err(Error::needs_disk()) }
    }

    fn mutate_separately<'a>(
        &'a self,
        mut batch: Vec<Mutation>,
        nonce: Nonce,
        (mode, wait): (ReadMode, RowWait),
        mut held: Option<&mut RowGuards<'a>>,
        mut told: Option<&mut CellsWritten>,
    ) -> Result<BatchOutcome> {
        let mut outcome = BatchOutcome::new(Vec::with_capacity(batch.len()));
        let (count, single) = (batch.len(), batch.len() == 1);
        if single && is_put_or_delete(&batch[0]) {
            let how = (mode, wait, single);
            match self.write_run(&mut batch, nonce, how, None, &mut outcome, told) {
                Ok(ticket) => outcome.ticket = ticket.unwrap_or(outcome.ticket),
                Err(error) if error.kind() == ErrorKind::NeedsDisk && !batch.is_empty() => {
                    outcome.left = batch
                }
                Err(error) => return Err(error),
            }
            return Ok(outcome);
        }
        let mut rest = batch.into_iter().peekable();
        while rest.peek().is_some() {
            let mut run = Vec::<Mutation>::new();
            let mut bytes = 0;
            while let Some(next) = rest.peek()
                && (run.is_empty() || self.fits(run.len(), bytes, next))
                && (run.is_empty() || run[0].cluster_ids == next.cluster_ids)
                && (run.is_empty() || is_put_or_delete(&run[run.len() - 1]) && is_put_or_delete(next))
            {
                let next = rest.next().expect("it was peeked at");
                bytes += self.bytes_of(&next);
                run.push(next);
            }
            assert!(
                run.len() == 1 || run.len() <= self.services.settings.mini_batch_rows_max,
                "the rows of one log entry are locked together: {} of them is too many",
                run.len()
            );
            // What the runs before have made is in the memstore by now. It may be more than they brought.
            let room = if outcome.new_bytes == 0 { Ok(()) } else { self.check_pressure() };
            let done = if let Err(error) = room {
                Err(error)
            } else if is_put_or_delete(&run[0]) {
                let (how, held) = ((mode, wait, single), held.as_deref_mut());
                self.write_run(&mut run, nonce, how, held, &mut outcome, told.as_deref_mut())
            } else {
                let only = run.remove(0);
                self.modify_one(only, nonce, (mode, single), &mut outcome, told.as_deref_mut())
            };
            match done {
                Ok(Some(ticket)) => outcome.ticket = ticket, // the log works in order: the last one is the last to be done
                Ok(None) => {}
                // Runs before this one are written: whoever repeated them would carry them out twice.
                Err(error) if !single => {
                    outcome.results.resize_with(count, || Err(error.clone()));
                    told.into_iter().for_each(|told| told.resize_with(count, Vec::new));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        assert!(
            outcome.results.len() == count,
            "{count} mutations have {} results: callers tell by the place which is whose",
            outcome.results.len()
        );
        Ok(outcome)
    }

    fn fits(&self, rows: usize, bytes: usize, next: &Mutation) -> bool {
        let settings = &self.services.settings;
        rows < settings.mini_batch_rows_max && bytes + self.bytes_of(next) <= settings.mini_batch_bytes_max
    }

    /// Bytes of the cells that are written for a mutation, without tags that are added.
    fn bytes_of(&self, mutation: &Mutation) -> usize {
        if deletes_row(mutation) {
            return self.row_markers_bytes(&mutation.row);
        }
        mutation.cells.iter().map(|cell| cell.bytes().len()).sum()
    }

    /// A Delete of a row brings its key once, and writes it for each family.
    fn row_markers_bytes(&self, row: &[u8]) -> usize {
        self.stores.iter().map(|store| KEY_VALUE_BYTES + row.len() + store.family.name().len()).sum()
    }

    /// Whether Deletes of rows keep an event loop for so long that its other connections would wait.
    fn makes_many_markers(&self, batch: &[Mutation]) -> bool {
        let (mut count, mut bytes) = (0, 0);
        for mutation in batch.iter().filter(|mutation| deletes_row(mutation)) {
            count += self.stores.len();
            bytes += self.row_markers_bytes(&mutation.row);
        }
        count > MARKERS_NOW_MAX || bytes > MARKERS_NOW_BYTES_MAX
    }

    /// Whether the thread of this mode is not the one to carry the batch out.
    #[inline]
    pub(crate) fn is_for_pool(&self, batch: &[Mutation], mode: ReadMode) -> bool {
        mode == ReadMode::CacheOnly && self.makes_many_markers(batch)
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_secondary() {
            let name = self.info.region_name().escape_ascii();
            return Err(Error::invalid(format!("region is read only: {name} is a copy for reads")));
        }
        if self.table.read_only() {
            return Err(Error::invalid(format!("region is read only: table {}", self.table.name())));
        }
        self.check_log_space()?;
        self.check_pressure()
    }

    /// Whether a write would have to wait for the log's room on a thread that may not.
    #[inline]
    pub(crate) fn may_wait_for_log(&self, mode: ReadMode) -> bool {
        mode == ReadMode::CacheOnly && self.services.wal.may_wait(LOG_ROOM_BYTES)
    }

    /// `Busy` while the log's disk is full: found out before anything is copied.
    #[inline]
    pub(crate) fn check_log_space(&self) -> Result<()> {
        self.services.wal.no_space().map_or(Ok(()), Err)
    }

    /// Puts and deletes that stand alone but share one log entry. They are taken out of `run` when their rows are locked. `held`: these
    /// are locked already.
    fn write_run<'a>(
        &'a self,
        run: &mut Vec<Mutation>,
        nonce: Nonce,
        (mode, wait, single): (ReadMode, RowWait, bool),
        held: Option<&mut RowGuards<'a>>,
        outcome: &mut BatchOutcome,
        mut told: Option<&mut CellsWritten>,
    ) -> Result<Option<WriteTicket>> {
        self.sample_writes(run);
        let results = &mut outcome.results;
        let first_result = results.len();
        results.extend(run.iter().map(|mutation| self.check_mutation(mutation).map(|()| None)));
        if mode == ReadMode::AnyDisk && Region::needs_reads(run) {
            self.read_into_cache(run.iter().filter_map(scan_of_mutation).collect());
        }
        let mut own = None;
        if held.is_none() {
            let (rows, locks) = (run.iter().map(|mutation| mutation.row.as_ref()), &self.row_locks);
            let locked = if single { locks.try_one(&run[0].row, wait) } else { locks.try_all(rows, wait) };
            match locked {
                Ok(guards) => own = Some(guards),
                Err(error) if single => {
                    results.truncate(first_result);
                    return Err(error);
                }
                Err(error) => {
                    for result in results[first_result..].iter_mut().filter(|result| result.is_ok()) {
                        *result = Err(error.clone());
                    }
                    told.into_iter().for_each(|told| told.extend(run.iter().map(|_| Vec::new())));
                    return Ok(None);
                }
            }
        }
        let guards = held.or(own.as_mut()).expect("they are held, or were locked just now");
        let run = std::mem::take(run);
        let (puts, deletes) = (run.iter().any(puts), run.iter().any(deletes_now));
        let clock_ms = self.services.env.clock.now_ms();
        let now_ms = guards.stamp(clock_ms, puts, deletes);
        let mut edits = Edits::new(clock_ms, run[0].cluster_ids.clone());
        for (at, mutation) in run.into_iter().enumerate() {
            let result = &mut results[first_result + at];
            let written = edits.edits.len();
            if result.is_err() {
                edits.tell(written, told.as_deref_mut());
                continue;
            }
            let durability = self.durability_of(&mutation);
            match self.add_edits(mutation, now_ms, mode, &mut edits) {
                Ok(()) => edits.raise_durability(durability),
                Err(error) if single && error.kind() == halcyon_cell::ErrorKind::NeedsDisk => {
                    return Err(error);
                }
                Err(error) => {
                    edits.edits.truncate(written);
                    *result = Err(self.given_up(error));
                }
            }
            edits.tell(written, told.as_deref_mut());
        }
        if edits.edits.is_empty() {
            return Ok(None);
        }
        outcome.new_bytes += edits.new_bytes;
        let ticket = match self.write_edits(edits, nonce) {
            Ok(ticket) => ticket,
            Err(error) if !single => {
                let results = &mut results[first_result..];
                results.iter_mut().filter(|it| it.is_ok()).for_each(|it| *it = Err(error.clone()));
                told.into_iter()
                    .flat_map(|told| told.iter_mut().rev().take(results.len()))
                    .for_each(Vec::clear);
                // It is too large for the log: others need not be.
                return if error.kind() == ErrorKind::Invalid { Ok(None) } else { Err(error) };
            }
            Err(error) => return Err(error),
        };
        drop(own);
        let done = results[first_result..].iter().filter(|result| result.is_ok()).count();
        self.counters.writes.fetch_add(done as u64, Ordering::Relaxed);
        Ok(Some(ticket))
    }

    /// Checks a mutation before anything is locked.
    pub(crate) fn check_mutation(&self, mutation: &Mutation) -> Result<()> {
        Cell::check_parts(&mutation.row, b"", b"")?;
        self.check_row(&mutation.row, "mutation")?;
        let limit = self.services.settings.keyvalue_max_bytes;
        let mut previous: Option<&[u8]> = None;
        for cell in &mutation.cells {
            if !same_bytes(cell.row(), &mutation.row) {
                return Err(Error::invalid(format!(
                    "The row in {cell:?} doesn't match the mutation's row {}",
                    mutation.row.escape_ascii()
                )));
            }
            let family = cell.get().family();
            if !previous.is_some_and(|previous| same_bytes(previous, family)) {
                self.store_or_error(family)?;
                previous = Some(family);
            }
            if limit > 0 && cell.bytes().len() > limit {
                return Err(Error::invalid(format!(
                    "Cell[{cell:?}] with size {} exceeds limit of {limit} bytes",
                    cell.bytes().len()
                )));
            }
            check_type(mutation.kind, cell)?;
            if !cell.tags().is_empty() && is_mob_reference(cell.get()) {
                // Flushes write these. One that a client made up would be a value of another cell, or stop scans and compactions.
                return Err(Error::invalid(format!("{cell:?} has a tag of references to mob files")));
            }
            if mutation.cell_ttl_ms.is_some() {
                check_tags_len(cell.tags().len(), mutation.cell_ttl_ms)?;
            }
        }
        Ok(())
    }

    pub(crate) fn durability_of(&self, mutation: &Mutation) -> Durability {
        mutation.durability.or_else(|| self.table.durability()).unwrap_or(Durability::SyncWal)
    }

    /// Turns a put or delete into the cells to be written. The row is locked.
    pub(crate) fn add_edits(
        &self,
        mutation: Mutation,
        now_ms: i64,
        mode: ReadMode,
        edits: &mut Edits,
    ) -> Result<()> {
        if deletes_row(&mutation) {
            let bytes = self.row_markers_bytes(&mutation.row);
            edits.count_new(bytes, self.services.settings.new_values_bytes_max)?;
            let timestamp = if mutation.timestamp == LATEST_TIMESTAMP { now_ms } else { mutation.timestamp };
            for store in &self.stores {
                let family = store.family.name();
                let marker =
                    Cell::build(&mutation.row, family, b"", timestamp, CellType::DeleteFamily, b"", b"", 0);
                edits.push(marker, now_ms);
            }
            return Ok(());
        }
        if mutation.cells.iter().any(is_newest_version_delete) {
            let stamped = self.stamp_version_deletes(&mutation, now_ms, mode)?;
            let stamped = stamped.into_iter().map(without_column_of_family_marker);
            edits.edits.extend(stamped.map(|cell| Edit { cell, timestamp: None }));
            return Ok(());
        }
        for cell in mutation.cells {
            let cell = without_column_of_family_marker(cell);
            edits.push(with_ttl(cell, mutation.cell_ttl_ms), now_ms);
        }
        Ok(())
    }

    /// A version delete that names no timestamp means the newest version there is; the second one of the same
    /// column in one mutation the second newest, and so on (`HRegion.prepareDeleteTimestamps`).
    fn stamp_version_deletes(&self, mutation: &Mutation, now_ms: i64, mode: ReadMode) -> Result<Vec<Cell>> {
        let mut wanted: HashMap<(&[u8], &[u8]), u32> = HashMap::new();
        for cell in mutation.cells.iter().filter(|cell| is_newest_version_delete(cell)) {
            *wanted.entry((cell.family(), cell.qualifier())).or_default() += 1;
        }
        // Of each column the timestamps of its versions that are not taken yet, the newest first.
        let mut versions: HashMap<(&[u8], &[u8]), std::vec::IntoIter<i64>> = HashMap::new();
        for (&(family, qualifier), &count) in &wanted {
            let mut scan = Scan::of_row(mutation.row.clone());
            let qualifiers = [Bytes::copy_from_slice(qualifier)].into();
            scan.families.insert(Bytes::copy_from_slice(family), Some(qualifiers));
            scan.max_versions = count;
            let found = self.read_row_newest(scan, mode)?;
            let timestamps: Vec<i64> = found.iter().map(Cell::timestamp).collect();
            versions.insert((family, qualifier), timestamps.into_iter());
        }
        let mut stamped = Vec::with_capacity(mutation.cells.len());
        for cell in &mutation.cells {
            if cell.timestamp() != LATEST_TIMESTAMP {
                stamped.push(cell.clone());
                continue;
            }
            if !is_newest_version_delete(cell) {
                stamped.push(with_ttl(cell.clone(), mutation.cell_ttl_ms).with_timestamp(now_ms));
                continue;
            }
            let left = versions.get_mut(&(cell.family(), cell.qualifier()));
            let timestamp = left.and_then(Iterator::next);
            stamped.push(cell.with_timestamp(timestamp.unwrap_or(now_ms))); // nothing to delete
        }
        Ok(stamped)
    }

    /// Reads a row with the newest cells, published or not. The row is locked.
    pub(crate) fn read_row_newest(&self, scan: Scan, mode: ReadMode) -> Result<Vec<Cell>> {
        self.read_row_up_to(scan, mode, self.services.settings.row_bytes_max)
    }

    /// As [`Region::read_row_newest`]; `RowTooBig` if it has more bytes than that.
    pub(crate) fn read_row_up_to(&self, scan: Scan, mode: ReadMode, bytes_max: usize) -> Result<Vec<Cell>> {
        invariant!(
            self.row_locks.is_locked(&scan.start_row),
            "what is read without the row's lock may change before the write that depends on it"
        );
        let (cells, _) = self.read_row(scan, mode, Visible::Newest, bytes_max)?;
        self.note_scanned(1, 0, &[]);
        Ok(cells)
    }

    /// Writes cells whose rows are locked: chunk, log, memstore. They are published when the log gave its word.
    pub(crate) fn write_edits(&self, edits: Edits, nonce: Nonce) -> Result<WriteTicket> {
        let durability = edits.durability.unwrap_or(Durability::SyncWal);
        assert!(!edits.edits.is_empty(), "a log entry without cells takes a number and says nothing");
        invariant!(
            edits.edits.iter().all(|edit| self.info.contains_row(edit.cell.row())),
            "a row outside of the region would be lost when the region moves or splits"
        );
        invariant!(
            edits.edits.iter().all(|edit| self.row_locks.is_locked(edit.cell.row())),
            "a row is written without its lock: another write may have read what this one changes"
        );
        if durability != Durability::SkipWal {
            let bytes: usize = edits.edits.iter().map(|edit| edit.cell.bytes().len()).sum();
            self.services.wal.check_entry(&self.entry_of(&edits, nonce), bytes, edits.edits.len())?;
        }
        let updates = self.updates_shared();
        let me = Holder::me();
        me.is_at(&activity::COPY_INTO_MEMSTORE);
        let mut prepared = Prepared::new();
        let write = match self.begin_write(&edits, nonce, durability, &mut prepared) {
            Ok(write) => write,
            Err(error) => {
                give_up(prepared);
                return Err(error);
            }
        };
        if nonce.nonce != 0 {
            self.answers.note(write.seq(), self.services.env.clock.monotonic_ns());
            self.fresh_nonces.add(ReplayedNonce { nonce, write_time_ms: edits.clock_ms, seq: write.seq() });
        }
        me.is_at(&activity::INSERT_INTO_MEMSTORE);
        insert_all(prepared, write.seq());
        me.is_idle();
        drop(updates);
        self.mvcc.step_done(&write);
        Ok(WriteTicket::of(write))
    }

    /// Copies the cells and appends them to the log. What was copied is in `prepared`, also if the log refuses it.
    #[inline]
    fn begin_write(
        &self,
        edits: &Edits,
        nonce: Nonce,
        durability: Durability,
        prepared: &mut Prepared,
    ) -> Result<Arc<Write>> {
        self.prepare(&edits.edits, prepared)?;
        assert!(
            prepared.len() == edits.edits.len(),
            "every cell of the log entry goes into the memstore, and no other"
        );
        let steps = if durability == Durability::SkipWal { 1 } else { 2 };
        let (write, ()) = self.mvcc.begin(steps, |seq, write| {
            if durability == Durability::SkipWal {
                return Ok(());
            }
            self.append_to_log(prepared, seq, (edits, nonce), durability, write)
        })?;
        Ok(write)
    }

    /// Copies the cells into the chunks of their stores. Under the update lock.
    fn prepare(&self, edits: &[Edit], prepared: &mut Prepared) -> Result<()> {
        if let [edit] = edits {
            let segment = self.store_or_error(edit.cell.family())?.active();
            let cell = segment.prepare(edit.cell.bytes(), edit.timestamp);
            prepared.push((segment, cell));
            return Ok(());
        }
        prepared.reserve(edits.len());
        let mut current: Option<(&Bytes, Arc<Segment>)> = None;
        for edit in edits {
            let family = edit.cell.family();
            if current.as_ref().is_none_or(|(name, _)| !same_bytes(name, family)) {
                let store = self.store_or_error(family)?;
                current = Some((store.family.name(), store.active()));
            }
            let (_, segment) = current.as_ref().expect("it was set");
            prepared.push((segment.clone(), segment.prepare(edit.cell.bytes(), edit.timestamp)));
        }
        Ok(())
    }

    /// The log entry of a write, without its number and its cells.
    #[inline]
    fn entry_of<'a>(&'a self, edits: &'a Edits, nonce: Nonce) -> WalEntry<'a> {
        WalEntry {
            region: self.info.encoded_name_bytes(),
            table: self.info.table().full_name(),
            seq: SeqId::ZERO,
            write_time_ms: edits.clock_ms,
            nonce_group: nonce.group,
            nonce: nonce.nonce,
            cluster_ids: edits.cluster_ids.as_deref().unwrap_or_default(),
            replicated: &self.replicated,
            cells: &[],
        }
    }

    fn append_to_log(
        &self,
        prepared: &[(Arc<Segment>, PreparedCell)],
        seq: SeqId,
        (edits, nonce): (&Edits, Nonce),
        durability: Durability,
        write: &Arc<Write>,
    ) -> Result<()> {
        let cells: SmallVec<[CellRef<'_>; 1]> = prepared.iter().map(|(_, cell)| cell.cell_ref(seq)).collect();
        let entry = WalEntry { seq, cells: &cells, ..self.entry_of(edits, nonce) };
        let (mvcc, write) = (self.mvcc.clone(), write.clone());
        let completion: Completion = Box::new(move |result: &Result<()>| match result {
            Ok(()) => mvcc.step_done(&write),
            Err(error) => mvcc.fail(&write, error),
        });
        self.services.wal.append(&entry, durability, completion)
    }
}

#[cold]
fn give_up(prepared: Prepared) {
    prepared.into_iter().for_each(|(segment, cell)| segment.give_up(cell));
}

/// Links cells into their memstores, those of one family together and in order.
fn insert_all(mut prepared: Prepared, seq: SeqId) {
    if prepared.len() == 1
        && let Some((segment, cell)) = prepared.pop()
    {
        return segment.insert(cell, seq);
    }
    while let Some((segment, _)) = prepared.first() {
        let segment = segment.clone();
        if prepared.iter().all(|(other, _)| Arc::ptr_eq(other, &segment)) {
            return segment.insert_all(prepared.into_iter().map(|(_, cell)| cell).collect(), seq);
        }
        let (same, others): (Prepared, Prepared) =
            prepared.into_iter().partition(|(other, _)| Arc::ptr_eq(other, &segment));
        segment.insert_all(same.into_iter().map(|(_, cell)| cell).collect(), seq);
        prepared = others;
    }
}

/// Puts and deletes need no read half of their own.
fn is_put_or_delete(mutation: &Mutation) -> bool {
    matches!(mutation.kind, MutationKind::Put | MutationKind::Delete)
}

pub(crate) fn is_newest_version_delete(cell: &Cell) -> bool {
    cell.cell_type() == CellType::Delete && cell.timestamp() == LATEST_TIMESTAMP
}

/// Whether the mutation has cells that are no deletes.
pub(crate) fn puts(mutation: &Mutation) -> bool {
    mutation.cells.iter().any(|cell| !cell.cell_type().is_delete())
}

/// Whether the mutation has a delete that gets its timestamp from the server.
pub(crate) fn deletes_now(mutation: &Mutation) -> bool {
    if deletes_row(mutation) {
        return mutation.timestamp == LATEST_TIMESTAMP;
    }
    mutation.cells.iter().any(|cell| cell.cell_type().is_delete() && cell.timestamp() == LATEST_TIMESTAMP)
}

/// Whether it becomes a marker for each family.
fn deletes_row(mutation: &Mutation) -> bool {
    mutation.kind == MutationKind::Delete && mutation.cells.is_empty()
}

/// A marker of a family means all of its columns, and is stored in the one without a name, where each read of the row looks for it. A client
/// may send it with a column (Java: `Delete.add(Cell)`), as HBase's message form of a Delete does without saying so: it is cut off.
#[inline]
fn without_column_of_family_marker(cell: Cell) -> Cell {
    match cell.cell_type() {
        CellType::DeleteFamily | CellType::DeleteFamilyVersion if !cell.qualifier().is_empty() => {
            let (timestamp, cell_type) = (cell.timestamp(), cell.cell_type());
            let (row, family, value, tags) = (cell.row(), cell.family(), cell.value(), cell.tags());
            Cell::build(row, family, b"", timestamp, cell_type, value, tags, cell.seq())
        }
        _ => cell,
    }
}

fn check_type(kind: MutationKind, cell: &Cell) -> Result<()> {
    let fits = match kind {
        MutationKind::Put => cell.cell_type() == CellType::Put || cell.cell_type().is_delete(),
        MutationKind::Delete => cell.cell_type().is_delete(),
        MutationKind::Increment | MutationKind::Append => cell.cell_type() == CellType::Put,
    };
    if fits { Ok(()) } else { Err(Error::invalid(format!("{cell:?} is of no type for a {kind:?}"))) }
}
