//! Mutations that read first: Increment, Append, and everything that is atomic or conditional.
//!
//! The read half runs under the row's lock and sees the newest cells, published or not: all that was written
//! to the row before stands in the memstore by then. A failed write before it fails this one too, because the
//! log works in order.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType, Error, ErrorKind, LATEST_TIMESTAMP, Result};
use halcyon_filter::{Filter, compare_op_keeps, parse_filters};
use halcyon_proto::pb::{self, CompareType};

use crate::api::{
    Condition, ConditionTest, Mutation, MutationKind, MutationResult, Nonce, ReadMode, Scan, TimeRange,
};
use crate::batch_times::{BatchTimes, Behind};
use crate::edits::{CellsWritten, Edit, Edits, check_tags_len, too_many_new, with_ttl};
use crate::mvcc::WriteTicket;
use crate::read_first::{Attempt, ROUNDS, scan_of_columns, scan_of_condition, scan_of_mutation};
use crate::region::Region;
use crate::row_lock::{AHEAD_MS_MAX, COUNTER_AHEAD_MS_MAX, RowGuards};
use crate::scan::store_scanner::spend_on_bytes;
use crate::write::{BatchOutcome, deletes_now, puts};

/// What became of a checkAndMutate.
pub struct CheckOutcome {
    /// Whether the condition held and the mutations were applied.
    pub processed: bool,
    /// New cells of Increments and Appends among the mutations; `None` if there were none.
    pub result: Option<Vec<Cell>>,
    /// Resolves when the answer may be given: what was applied is durable, and so is what was read.
    pub ticket: WriteTicket,
    /// The latest timestamp of the cells that the conditions looked at, in milliseconds; `None`: they found none.
    pub checked_ms: Option<i64>,
    /// Bytes of cells that Increments and Appends have made.
    pub new_bytes: usize,
}

impl Region {
    /// One Increment or Append that stands alone.
    pub(crate) fn modify_one(
        &self,
        mutation: Mutation,
        nonce: Nonce,
        (mode, single): (ReadMode, bool),
        outcome: &mut BatchOutcome,
        told: Option<&mut CellsWritten>,
    ) -> Result<Option<WriteTicket>> {
        self.sample_writes(std::slice::from_ref(&mutation));
        let (mut fresh, wants_fresh) = (Vec::new(), told.is_some());
        let attempt = |Attempt { mode, wait, .. }: Attempt| {
            fresh.clear();
            let mut row = self.row_locks.try_one(&mutation.row, wait)?;
            let clock_ms = self.services.env.clock.now_ms();
            let now_ms = row.stamp(clock_ms, true, false);
            let mut edits = Edits::new(clock_ms, mutation.cluster_ids.clone());
            edits.raise_durability(self.durability_of(&mutation));
            let fresh = wants_fresh.then_some(&mut fresh);
            let times = Times { stamped_ms: now_ms, clock_ms, behind: None };
            let cells = self.add_new_values(&mutation, (&mut row, times), mode, &mut edits, fresh)?;
            outcome.new_bytes += edits.new_bytes;
            let ticket =
                if edits.edits.is_empty() { self.mvcc.barrier() } else { self.write_edits(edits, nonce)? };
            Ok((cells, ticket))
        };
        let read_ahead = || self.read_into_cache(vec![scan_of_columns(&mutation)]);
        let checked = self.check_mutation(&mutation);
        let done = checked.and_then(|()| self.reading_first(mode, ROUNDS, read_ahead, attempt));
        let done = done.map_err(|error| self.given_up(error));
        if let Some(told) = told {
            told.push(if done.is_ok() { fresh } else { Vec::new() });
        }
        match done {
            Ok((cells, ticket)) => {
                self.counters.writes.fetch_add(1, Ordering::Relaxed);
                outcome.results.push(Ok(Some(cells)));
                Ok(Some(ticket))
            }
            Err(error) if single && error.kind() == ErrorKind::NeedsDisk => Err(error),
            Err(error) => {
                outcome.results.push(Err(error));
                Ok(None)
            }
        }
    }

    /// All mutations of one row, or none.
    pub(crate) fn mutate_atomic(
        &self,
        batch: Vec<Mutation>,
        nonce: Nonce,
        mode: ReadMode,
        mut told: Option<&mut CellsWritten>,
    ) -> Result<BatchOutcome> {
        let Some(row) = batch.first().map(|mutation| mutation.row.clone()) else {
            return Ok(BatchOutcome::new(Vec::new()));
        };
        self.check_one_row(&row, &batch)?;
        for mutation in &batch {
            self.check_mutation(mutation)?;
        }
        let reads = Region::needs_reads(&batch);
        let batch = RefCell::new(batch);
        let read_ahead = || self.read_each_into_cache(batch.borrow().iter().filter_map(scan_of_mutation));
        let attempt = |Attempt { mode, wait, is_last }: Attempt| {
            let mut guards = self.row_locks.try_one(&row, wait)?;
            let batch = if is_last { batch.take() } else { batch.borrow().clone() };
            guards
                .stamping(|guards| self.apply_atomic(batch, guards, None, (nonce, mode), told.as_deref_mut()))
        };
        let done =
            if reads { self.reading_first(mode, ROUNDS, read_ahead, attempt) } else { once(mode, attempt) };
        let (results, ticket, new_bytes) = done.map_err(|error| self.given_up(error))?;
        Ok(BatchOutcome { ticket, new_bytes, ..BatchOutcome::new(results) })
    }

    /// Carries the mutations out if the condition holds; both happen under the row's lock.
    ///
    /// Errors as for `mutate`, and `Invalid` where a mutation is of another row than the condition.
    pub fn check_and_mutate(
        self: &Arc<Self>,
        condition: Condition,
        mutations: Vec<Mutation>,
        nonce: Nonce,
        mode: ReadMode,
    ) -> Result<CheckOutcome> {
        self.check_one_row(&condition.row, &mutations)?;
        self.mutate_rows(vec![condition], mutations, nonce, mode)
    }

    /// Mutations of any rows of the region as one log entry, all or nothing, if all conditions hold (HBase:
    /// `MultiRowMutationEndpoint`). Errors as for `mutate`.
    pub fn mutate_rows(
        self: &Arc<Self>,
        conditions: Vec<Condition>,
        mutations: Vec<Mutation>,
        nonce: Nonce,
        mode: ReadMode,
    ) -> Result<CheckOutcome> {
        self.mutate_rows_telling(conditions, mutations, nonce, mode, None)
    }

    /// As [`Region::mutate_rows`]; `told` gets the cells as they were written, if the conditions hold.
    pub fn mutate_rows_telling(
        self: &Arc<Self>,
        conditions: Vec<Condition>,
        mutations: Vec<Mutation>,
        nonce: Nonce,
        mode: ReadMode,
        mut told: Option<&mut CellsWritten>,
    ) -> Result<CheckOutcome> {
        let _open = self.enter()?;
        self.check_writable()?;
        if self.may_wait_for_log(mode) || self.is_for_pool(&mutations, mode) {
            return Err(Error::needs_disk());
        }
        for condition in &conditions {
            self.check_row(&condition.row, "checkAndMutate")?;
        }
        // An unknown family of a mutation is an error only if the conditions hold, as in HBase.
        let mut unknown_family = None;
        for mutation in &mutations {
            match self.check_mutation(mutation) {
                Err(error) if error.kind() == ErrorKind::NoSuchFamily => {
                    unknown_family.get_or_insert(error);
                }
                checked => checked?,
            }
        }
        let of_conditions = conditions.iter().map(|condition| condition.row.clone());
        let rows = of_conditions.chain(mutations.iter().map(|mutation| mutation.row.clone()));
        let rows: Vec<Bytes> = rows.collect();
        let reads = !conditions.is_empty() || Region::needs_reads(&mutations);
        let has_filter = conditions.iter().any(|it| matches!(it.test, ConditionTest::Filter(_)));
        let work = RefCell::new((conditions, mutations));
        let read_ahead = || {
            let (conditions, mutations) = &*work.borrow();
            let of_mutations = mutations.iter().filter_map(scan_of_mutation);
            self.read_each_into_cache(conditions.iter().map(scan_of_condition).chain(of_mutations));
        };
        let attempt = |Attempt { mode, wait, is_last }: Attempt| {
            // An attempt uses them up. They are made before the rows are locked, as that may take a while.
            let filters = filters_of(&work.borrow().0)?;
            let mut guards = self.row_locks.try_all(rows.iter().map(Bytes::as_ref), wait)?;
            let (conditions, mutations) = &mut *work.borrow_mut();
            let Some(not_before) = self.check_conditions(conditions, filters, mode)? else { return Ok(None) };
            if let Some(error) = &unknown_family {
                return Err(error.clone());
            }
            let batch = if is_last { std::mem::take(mutations) } else { mutations.clone() };
            let told = told.as_deref_mut();
            let applied =
                guards.stamping(|guards| self.apply_atomic(batch, guards, not_before, (nonce, mode), told));
            applied.map(|applied| Some((applied, not_before)))
        };
        // What a filter looks at may be more than the cache takes: it is not read ahead again and again.
        let rounds_max = if has_filter { 1 } else { ROUNDS };
        let done = if reads {
            self.reading_first(mode, rounds_max, read_ahead, attempt)
        } else {
            once(mode, attempt)
        };
        let done = done.map_err(|error| self.given_up(error))?;
        let Some(((results, ticket, new_bytes), not_before)) = done else {
            // What was read may not be durable yet, and the answer tells of it.
            let ticket = self.mvcc.barrier();
            return Ok(CheckOutcome {
                processed: false,
                result: None,
                ticket,
                checked_ms: None,
                new_bytes: 0,
            });
        };
        let mut merged: Option<Vec<Cell>> = None;
        for cells in results.into_iter().flatten().flatten() {
            merged.get_or_insert_with(Vec::new).extend(cells);
        }
        Ok(CheckOutcome { processed: true, result: merged, ticket, checked_ms: not_before, new_bytes })
    }

    /// `None`: one of them does not hold. `Some`: all do, with the latest timestamp of the cells looked at.
    fn check_conditions(
        &self,
        conditions: &[Condition],
        filters: Vec<Option<Box<dyn Filter>>>,
        mode: ReadMode,
    ) -> Result<Option<Option<i64>>> {
        assert!(conditions.len() == filters.len(), "each condition is asked with its own filter");
        let mut not_before = None;
        for (condition, filter) in conditions.iter().zip(filters) {
            let Some(checked_timestamp) = self.check_condition(condition, filter, mode)? else {
                return Ok(None);
            };
            not_before = not_before.max(checked_timestamp);
        }
        Ok(Some(not_before))
    }

    fn check_one_row(&self, row: &[u8], batch: &[Mutation]) -> Result<()> {
        match batch.iter().find(|mutation| mutation.row != row) {
            None => Ok(()),
            Some(other) => Err(Error::invalid(format!(
                "all mutations of an atomic batch must be of row {}, one is of {}",
                row.escape_ascii(),
                other.row.escape_ascii()
            ))),
        }
    }

    /// Applies mutations of locked rows as one log entry. `not_before`: timestamp of the cell that a
    /// condition looked at; cells of puts that leave it to the server are not older. Also tells how many bytes of cells were made.
    fn apply_atomic(
        &self,
        batch: Vec<Mutation>,
        guards: &mut RowGuards<'_>,
        not_before: Option<i64>,
        (nonce, mode): (Nonce, ReadMode),
        mut told: Option<&mut CellsWritten>,
    ) -> Result<(Vec<MutationResult>, WriteTicket, usize)> {
        self.sample_writes(&batch);
        told.as_deref_mut().into_iter().for_each(Vec::clear); // of an attempt before
        let clock_ms = self.services.env.clock.now_ms();
        let now_ms = guards.stamp(clock_ms, batch.iter().any(puts), batch.iter().any(deletes_now));
        let put_ms = now_ms.max(not_before.unwrap_or(i64::MIN));
        let mut times = BatchTimes::new(&batch, now_ms, clock_ms);
        let mut returned_bytes = 0;
        let mut edits = Edits::new(clock_ms, batch.first().and_then(|first| first.cluster_ids.clone()));
        let mut results: Vec<MutationResult> = Vec::with_capacity(batch.len());
        let count = batch.len() as u64;
        for mutation in batch {
            edits.raise_durability(self.durability_of(&mutation));
            let written = edits.edits.len();
            results.push(match mutation.kind {
                MutationKind::Put | MutationKind::Delete => {
                    let is_put = mutation.kind == MutationKind::Put;
                    let at_ms = if is_put { put_ms.max(times.at_ms()) } else { times.at_ms() };
                    times.note_written(&mutation, at_ms);
                    assert!(at_ms > now_ms || !times.is_ahead(), "it would lie under a new value before it");
                    // Whoever has chosen it, a client or the server: what comes later to these rows is not put under it. One that
                    // is further ahead than a stripe may be moves no clock.
                    if at_ms > now_ms && at_ms <= clock_ms.saturating_add(AHEAD_MS_MAX) {
                        if deletes_now(&mutation) {
                            guards.raise_deleted(at_ms);
                        } else if puts_now(&mutation) {
                            guards.raise(at_ms, now_ms);
                        }
                    }
                    self.add_edits(mutation, at_ms, mode, &mut edits)?;
                    edits.tell(written, told.as_deref_mut());
                    Ok(None)
                }
                MutationKind::Increment | MutationKind::Append => {
                    self.check_results(returned_bytes)?;
                    let mut fresh = Vec::new();
                    let stamped = Times { stamped_ms: now_ms, clock_ms, behind: times.behind(&mutation) };
                    let (row, wanted) = ((&mut *guards, stamped), told.is_some().then_some(&mut fresh));
                    let cells = self.add_new_values(&mutation, row, mode, &mut edits, wanted)?;
                    let new = edits.edits[written..].iter().map(|edit| edit.cell.timestamp());
                    new.max().into_iter().for_each(|at_ms| times.note_new(at_ms));
                    returned_bytes += cells.iter().map(|cell| cell.bytes().len()).sum::<usize>();
                    if let Some(told) = &mut told {
                        told.push(fresh);
                    }
                    Ok(Some(cells))
                }
            });
        }
        let new_bytes = edits.new_bytes;
        let ticket =
            if edits.edits.is_empty() { self.mvcc.barrier() } else { self.write_edits(edits, nonce)? };
        self.counters.writes.fetch_add(count, Ordering::Relaxed);
        Ok((results, ticket, new_bytes))
    }

    /// Reads what an Increment or Append changes, and adds the new cells to `edits`. Returns them in order of
    /// their columns, or nothing if no results are wanted. `fresh` gets those of columns that had no cell.
    fn add_new_values(
        &self,
        mutation: &Mutation,
        (guards, times): (&mut RowGuards<'_>, Times),
        mode: ReadMode,
        edits: &mut Edits,
        mut fresh: Option<&mut Vec<Cell>>,
    ) -> Result<Vec<Cell>> {
        // A column that is named twice is changed from the same value twice; the last one stays, as in HBase.
        let mut current: BTreeMap<(Vec<u8>, Vec<u8>), Cell> = BTreeMap::new();
        for cell in self.values_to_change(mutation, mode, edits.new_bytes)? {
            let before = current.insert((cell.family().to_vec(), cell.qualifier().to_vec()), cell);
            assert!(
                before.is_none(),
                "only the newest version of a column is changed, and {before:?} is another"
            );
        }
        // Columns that were written in this very millisecond move all of them to the next one, so that the new
        // cells of a mutation agree. A column further ahead goes its own way.
        let Times { stamped_ms, clock_ms, behind } = times;
        let next_ms = current.values().map(|cell| times.before_ms(cell).saturating_add(1));
        let of_counter_ms = clock_ms.saturating_add(COUNTER_AHEAD_MS_MAX);
        let limit_ms = behind.map_or(of_counter_ms, |behind| behind.limit_ms);
        let now_ms = next_ms.filter(|&next| next <= limit_ms).fold(stamped_ms, i64::max);
        let comparator = self.info.comparator();
        // In the order of their columns, in which HBase finds the first value that is wrong.
        let mut deltas: Vec<&Cell> = mutation.cells.iter().collect();
        deltas.sort_by(|a, b| comparator.compare(a.get(), b.get()));
        let mut new_cells = Vec::with_capacity(deltas.len());
        for delta in deltas {
            let column = (delta.family().to_vec(), delta.qualifier().to_vec());
            let before = current.get(&column);
            spend_on_bytes(before.map_or(0, |cell| cell.value().len()) + delta.value().len())?;
            let cell = new_cell(mutation, delta, before, (now_ms, limit_ms))?;
            self.check_new_size(&cell)?;
            edits.count_new(cell.bytes().len(), self.services.settings.new_values_bytes_max)?;
            if let Some(fresh) = fresh.as_deref_mut().filter(|_| before.is_none()) {
                fresh.push(cell.clone());
            }
            new_cells.push(cell);
        }
        for cell in &new_cells {
            edits.edits.push(Edit { cell: cell.clone(), timestamp: None });
        }
        guards.raise(now_ms, stamped_ms);
        if !mutation.return_results {
            return Ok(Vec::new());
        }
        Ok(new_cells)
    }

    /// What an Increment or Append changes. A new value is no shorter than the one that it is made of, so these are not read if their new
    /// ones would be too many beside those that the write has made already.
    fn values_to_change(&self, mutation: &Mutation, mode: ReadMode, made_bytes: usize) -> Result<Vec<Cell>> {
        /// What reading counts for a cell beside its bytes, and a tag of a time to live, which a new value may do without.
        const MORE_OF_CELL: usize = 64;
        let settings = &self.services.settings;
        let left = settings.new_values_bytes_max.saturating_sub(made_bytes);
        let bytes_max = left.saturating_add(MORE_OF_CELL * mutation.cells.len());
        let found =
            self.read_row_up_to(scan_of_columns(mutation), mode, bytes_max.min(settings.row_bytes_max));
        found.map_err(|error| match error.kind() {
            ErrorKind::RowTooBig if bytes_max < settings.row_bytes_max => {
                too_many_new(settings.new_values_bytes_max)
            }
            _ => error,
        })
    }

    /// Whether another Increment or Append of an atomic batch may answer, when those before it have so many bytes of results.
    fn check_results(&self, returned_bytes: usize) -> Result<()> {
        let bytes_max = self.services.settings.results_bytes_max;
        if returned_bytes <= bytes_max {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "results of one atomic batch have more than {bytes_max} bytes: ask for fewer, or for none"
        )))
    }

    fn check_new_size(&self, cell: &Cell) -> Result<()> {
        let limit = self.services.settings.keyvalue_max_bytes;
        if limit > 0 && cell.bytes().len() > limit {
            return Err(Error::invalid(format!(
                "Cell with size {} exceeds limit of {limit} bytes",
                cell.bytes().len()
            )));
        }
        Ok(())
    }

    /// `None`: it does not hold. `Some`: it does, with the timestamp of the cell looked at.
    fn check_condition(
        &self,
        condition: &Condition,
        filter: Option<Box<dyn Filter>>,
        mode: ReadMode,
    ) -> Result<Option<Option<i64>>> {
        let mut scan = Scan::of_row(condition.row.clone());
        scan.time_range = condition.time_range;
        match &condition.test {
            ConditionTest::Column { family, qualifier, op, value } => {
                self.store_or_error(family)?;
                scan.families.insert(family.clone(), Some([qualifier.clone()].into()));
                let cells = self.read_row_newest(scan, mode)?;
                let stored = cells.first();
                Ok(column_holds(stored, *op, value)?.then(|| stored.map(Cell::timestamp)))
            }
            ConditionTest::Filter(_) => {
                assert!(filter.is_some(), "without its filter the condition would hold of any row");
                scan.filter = filter;
                let cells = self.read_row_newest(scan, mode)?;
                Ok(cells.first().map(|first| Some(first.timestamp())))
            }
        }
    }
}

/// Whether the mutation has a cell, not a delete, that gets its timestamp from the server.
fn puts_now(mutation: &Mutation) -> bool {
    mutation.cells.iter().any(|cell| !cell.cell_type().is_delete() && cell.timestamp() == LATEST_TIMESTAMP)
}

/// For what reads nothing, or has all of it in the cache as far as that can be.
fn once<T>(mode: ReadMode, attempt: impl FnOnce(Attempt) -> Result<T>) -> Result<T> {
    attempt(Attempt::only(mode))
}

/// When a mutation is carried out.
#[derive(Clone, Copy)]
struct Times {
    /// The timestamp of its batch.
    stamped_ms: i64,
    clock_ms: i64,
    /// A delete before it in its batch covers it.
    behind: Option<Behind>,
}

impl Times {
    /// What the value that is made of this one is behind.
    fn before_ms(&self, cell: &Cell) -> i64 {
        let at_ms = cell.timestamp();
        self.behind
            .filter(|behind| at_ms >= behind.begin_ms)
            .map_or(at_ms, |behind| at_ms.max(behind.deleted_ms))
    }
}

/// The filters of conditions, within the limits of one request. Errors: `Invalid` for one that is unknown or not sensible, and for more
/// than a request may have.
fn filters_of(conditions: &[Condition]) -> Result<Vec<Option<Box<dyn Filter>>>> {
    fn filter(condition: &Condition) -> Option<&pb::Filter> {
        match &condition.test {
            ConditionTest::Filter(filter) => Some(filter),
            ConditionTest::Column { .. } => None,
        }
    }
    if !conditions.iter().any(|condition| filter(condition).is_some()) {
        return Ok(conditions.iter().map(|_| None).collect());
    }
    let mut made = parse_filters(conditions.iter().filter_map(filter))?.into_iter();
    Ok(conditions.iter().map(|condition| filter(condition).and_then(|_| made.next())).collect())
}

/// The condition's value is the left operand, the stored one the right. An empty value stands for no cell
/// (`HRegion.checkAndMutate`). Errors: `Invalid` for an operator that compares nothing, where there is something to compare.
fn column_holds(stored: Option<&Cell>, op: CompareType, value: &[u8]) -> Result<bool> {
    let stored_value = stored.map_or(&b""[..], Cell::value);
    if value.is_empty() {
        let is_empty = stored_value.is_empty();
        return Ok(if op == CompareType::NotEqual { !is_empty } else { is_empty });
    }
    match stored {
        None => Ok(false),
        Some(_) if op == CompareType::NoOp => Err(Error::invalid("a condition cannot compare with NO_OP")),
        Some(_) => Ok(compare_op_keeps(op, stored_value.cmp(value))),
    }
}

/// `now_ms`: that of the mutation. Up to `limit_ms` a new value is a millisecond behind the one that it is made from.
fn new_cell(
    mutation: &Mutation,
    delta: &Cell,
    current: Option<&Cell>,
    (now_ms, limit_ms): (i64, i64),
) -> Result<Cell> {
    // A timestamp of the client's own counts where there was no cell (`HRegion.reckonDelta`).
    let timestamp = match current {
        // So far ahead it keeps its timestamp, and its sequence id makes it the newer one. Otherwise a counter that is changed more
        // than a thousand times in a second would run away from the clock, and hide each put and survive each delete after it.
        Some(cell) if cell.timestamp() >= limit_ms.max(now_ms) => cell.timestamp(),
        Some(cell) => now_ms.max(cell.timestamp().saturating_add(1)),
        None if delta.timestamp() == LATEST_TIMESTAMP => now_ms,
        None => delta.timestamp(),
    };
    assert!(
        current.is_none_or(|cell| timestamp >= cell.timestamp()),
        "the new value at {timestamp} would lie under the one that it was made from"
    );
    let sum;
    let joined;
    let value: &[u8] = match mutation.kind {
        MutationKind::Increment => {
            let before = current.map_or(Ok(0), |cell| long_of(cell.value()))?;
            sum = before.wrapping_add(long_of(delta.value())?).to_be_bytes();
            &sum
        }
        _ => {
            let before = current.map_or(&b""[..], Cell::value);
            check_value_len(before.len() + delta.value().len())?;
            joined = [before, delta.value()].concat();
            &joined
        }
    };
    // Tags of both go on; the mutation's own come first.
    let mut tags = delta.tags().to_vec();
    if let Some(cell) = current {
        for tag in cell.get().tag_iter() {
            if tag.tag_type != halcyon_cell::TagType::TTL || mutation.cell_ttl_ms.is_none() {
                halcyon_cell::append_tag(&mut tags, tag.tag_type, tag.value);
            }
        }
    }
    check_tags_len(tags.len(), mutation.cell_ttl_ms)?;
    let cell = Cell::build(
        &mutation.row,
        delta.family(),
        delta.qualifier(),
        timestamp,
        CellType::Put,
        value,
        &tags,
        0,
    );
    Ok(with_ttl(cell, mutation.cell_ttl_ms))
}

fn check_value_len(len: usize) -> Result<()> {
    match i32::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::invalid(format!("a value of {len} bytes is longer than {} bytes", i32::MAX))),
    }
}

fn long_of(value: &[u8]) -> Result<i64> {
    let bytes: [u8; 8] = value
        .try_into()
        .map_err(|_| Error::invalid(format!("Field is not a long, it's {} bytes wide", value.len())))?;
    Ok(i64::from_be_bytes(bytes))
}

impl Condition {
    /// A condition over all timestamps.
    pub fn new(row: Bytes, test: ConditionTest) -> Condition {
        Condition { row, time_range: TimeRange::ALL, test }
    }
}
