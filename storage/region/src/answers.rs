//! What Increments and Appends with a nonce have answered, for calls that are repeated.
//!
//! A repeated call is answered with the cells of its first one, which have its sequence id. They are in the region until later writes hide
//! them and a flush or a compaction leaves them out. What is left out although it was answered a short time ago is kept here, where no
//! scan sees it. A flush writes it beside the nonces (`replayed_nonces.rs`), so that the next opening of the region has it.
//!
//! HBase keeps nothing: it reads at the sequence id, and may answer with an older value or with none.
//!
//! *Thread safety*: all verbs from any thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use halcyon_cell::{Cell, CellComparator, CellRef, ReadPoint, Result, SeqId};
use halcyon_env::{Mutex, invariant};

use crate::api::{ReadMode, Scan};
use crate::region::Region;

/// So long what an operation has answered can be read: twice as long as HBase's clients wait for a call before they repeat it
/// (`hbase.rpc.timeout`).
const ANSWER_AGE: Duration = Duration::from_secs(120);
/// Operations of a region that are remembered at most, about; the oldest go first. They take 1 MiB.
const OPERATIONS_MAX: usize = 1 << 17;
/// Cells of a region that are kept at most; the oldest go first. A counter takes about 200 bytes for each operation.
const BYTES_MAX: usize = 8 << 20;
/// What a cell takes beside its bytes, about.
const CELL_OVERHEAD_BYTES: usize = 100;
/// Operations within so short a time are one group.
const GROUP_AGE: Duration = Duration::from_secs(1);
const GROUP_MAX: usize = OPERATIONS_MAX / 16;

#[derive(Default)]
pub(crate) struct Answers(Mutex<State>);

#[derive(Default)]
struct State {
    /// Oldest first.
    groups: VecDeque<Group>,
    /// What was left out of segments and files, by the operation.
    cells: BTreeMap<SeqId, Vec<Cell>>,
    bytes: usize,
    /// Grows with each cell that is kept.
    version: u64,
    /// That of the cells that are in a file.
    written: u64,
}

/// Operations that were done at about the same time.
struct Group {
    began_ns: u64,
    operations: Vec<SeqId>,
}

/// What one flush or compaction leaves out.
pub(crate) struct LeftOut<'a> {
    answers: &'a Answers,
    /// In order.
    operations: Vec<SeqId>,
}

/// Cells for a file, and what [`Answers::note_written`] is to be told then.
pub(crate) struct News {
    pub cells: Vec<Cell>,
    version: u64,
}

impl Answers {
    /// An operation with a nonce has this sequence id. To be told before its cells are in the memstore.
    pub fn note(&self, operation: SeqId, now_ns: u64) {
        let mut state = self.0.lock();
        let is_open = |last: &&mut Group| {
            last.operations.len() < GROUP_MAX
                && now_ns < last.began_ns.saturating_add(GROUP_AGE.as_nanos() as u64)
        };
        if let Some(last) = state.groups.back_mut().filter(is_open) {
            last.operations.push(operation);
            return;
        }
        state.groups.push_back(Group { began_ns: now_ns, operations: vec![operation] });
        let mut count: usize = state.groups.iter().map(|group| group.operations.len()).sum();
        while count > OPERATIONS_MAX {
            count -= state.forget_oldest();
        }
    }

    /// Forgets operations that are too old. Returns the bytes of the cells that are kept.
    fn expire(&self, now_ns: u64) -> usize {
        let mut state = self.0.lock();
        state.expire(now_ns);
        state.bytes
    }

    /// Forgets the oldest cells until the others have no more than `bytes_max`.
    fn trim(&self, bytes_max: usize) {
        let mut state = self.0.lock();
        state.trim(bytes_max);
    }

    /// For a flush or a compaction of what was published before this call.
    pub fn left_out(&self, now_ns: u64) -> LeftOut<'_> {
        let mut state = self.0.lock();
        state.expire(now_ns);
        let mut operations: Vec<SeqId> =
            state.groups.iter().flat_map(|group| &group.operations).copied().collect();
        invariant!(
            state.bytes == state.cells.values().flatten().map(|cell| bytes_of(cell.get())).sum::<usize>(),
            "{} bytes are counted, by which the oldest answers go",
            state.bytes
        );
        drop(state);
        operations.sort_unstable();
        LeftOut { answers: self, operations }
    }

    /// Keeps a cell of an operation.
    pub fn keep(&self, cell: CellRef<'_>) {
        let mut state = self.0.lock();
        let of_operation = state.cells.entry(SeqId::new(cell.seq())).or_default();
        if of_operation.iter().any(|kept| kept.get().bytes() == cell.bytes()) {
            return; // an attempt before
        }
        of_operation.push(cell.to_cell());
        state.bytes += bytes_of(cell);
        state.version += 1;
        state.trim(BYTES_MAX);
        assert!(
            state.bytes <= BYTES_MAX && (state.bytes == 0) == state.cells.is_empty(),
            "answers take {} bytes, and none where there are none",
            state.bytes
        );
    }

    /// Keeps the cells that an earlier opening has kept, if their operations are remembered.
    pub fn restore(&self, cells: &[Cell], now_ns: u64) {
        let operations = self.left_out(now_ns);
        cells.iter().for_each(|cell| operations.note(cell.get()));
    }

    fn of(&self, operation: SeqId) -> Vec<Cell> {
        self.0.lock().cells.get(&operation).cloned().unwrap_or_default()
    }

    /// `None` if all is in a file.
    pub fn news(&self) -> Option<News> {
        let state = self.0.lock();
        (state.version > state.written).then(|| News {
            cells: state.cells.values().flatten().cloned().collect(),
            version: state.version,
        })
    }

    pub fn note_written(&self, news: &News) {
        let mut state = self.0.lock();
        state.written = state.written.max(news.version);
    }
}

impl State {
    fn expire(&mut self, now_ns: u64) {
        let age_max_ns = (ANSWER_AGE + GROUP_AGE).as_nanos() as u64;
        while self.groups.front().is_some_and(|oldest| oldest.began_ns.saturating_add(age_max_ns) <= now_ns) {
            self.forget_oldest();
        }
        if self.groups.is_empty() {
            // A compaction that began before may have kept cells of operations that were forgotten meanwhile.
            (self.cells, self.bytes) = (BTreeMap::new(), 0);
        }
    }

    fn trim(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max
            && let Some((_, oldest)) = self.cells.pop_first()
        {
            self.bytes -= oldest.iter().map(|cell| bytes_of(cell.get())).sum::<usize>();
        }
    }

    /// Returns how many operations it forgets.
    fn forget_oldest(&mut self) -> usize {
        let Some(group) = self.groups.pop_front() else { return 0 };
        for operation in &group.operations {
            let cells = self.cells.remove(operation).unwrap_or_default();
            self.bytes -= cells.iter().map(|cell| bytes_of(cell.get())).sum::<usize>();
        }
        group.operations.len()
    }
}

fn bytes_of(cell: CellRef<'_>) -> usize {
    cell.bytes().len() + CELL_OVERHEAD_BYTES
}

impl LeftOut<'_> {
    /// Whether each cell is to be looked at, also those that newer ones hide.
    pub fn looks_at_all(&self) -> bool {
        !self.operations.is_empty()
    }

    /// A cell is left out.
    #[inline]
    pub fn note(&self, cell: CellRef<'_>) {
        if self.looks_at_all() && self.operations.binary_search(&SeqId::new(cell.seq())).is_ok() {
            self.answers.keep(cell);
        }
    }
}

impl Region {
    /// Lets go of answers that no call asks for any more. A region that is not written to is not flushed or compacted either, so
    /// somebody has to call this from time to time. Returns the bytes of those that are kept.
    pub fn expire_answers(&self) -> u64 {
        self.answers.expire(self.services.env.clock.monotonic_ns()) as u64
    }

    /// Lets go of the oldest answers until the others have no more than `bytes_max`. Who repeats one of those calls is told that its
    /// answer is gone.
    pub fn trim_answers(&self, bytes_max: u64) {
        self.answers.trim(usize::try_from(bytes_max).unwrap_or(usize::MAX));
    }

    /// The cells that an operation with this sequence id has written to the columns of `scan`, which reads one row. `None` if one of
    /// them is gone.
    pub fn answer(&self, mut scan: Scan, operation: SeqId, mode: ReadMode) -> Result<Option<Vec<Cell>>> {
        let (row, families) = (scan.start_row.clone(), scan.families.clone());
        let columns: usize = families.values().flatten().map(BTreeSet::len).sum();
        scan.read_point = Some(ReadPoint::at(operation));
        let mut cells = self.get(scan, mode)?;
        cells.retain(|cell| cell.seq() == operation.get());
        let is_wanted = |cell: &Cell| {
            let wanted = families.get(cell.family()).and_then(Option::as_ref);
            cell.row() == row && wanted.is_some_and(|wanted| wanted.contains(cell.qualifier()))
        };
        for kept in self.answers.of(operation).into_iter().filter(is_wanted) {
            let is_there =
                |cell: &Cell| (cell.family(), cell.qualifier()) == (kept.family(), kept.qualifier());
            if !cells.iter().any(is_there) {
                cells.push(kept);
            }
        }
        cells.sort_by(|left, right| CellComparator::Default.compare(left.get(), right.get()));
        Ok((cells.len() == columns).then_some(cells))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn cell(seq: u64, len: usize) -> Cell {
        Cell::put(b"r", b"f", b"q", seq as i64, &vec![7; len]).with_seq(seq)
    }

    #[test]
    fn what_is_left_out_is_kept_for_two_minutes() {
        let answers = Answers::default();
        assert!(!answers.left_out(0).looks_at_all());
        answers.note(SeqId::new(8), 0);
        answers.note(SeqId::new(7), SECOND / 2);
        answers.note(SeqId::new(20), 5 * SECOND);
        let left_out = answers.left_out(5 * SECOND);
        (6..=9).for_each(|seq| left_out.note(cell(seq, 1).get()));
        left_out.note(cell(8, 1).get()); // by the next attempt
        let counts = |seq| answers.of(SeqId::new(seq)).len();
        assert_eq!([6, 7, 8, 9].map(counts), [0, 1, 1, 0]);
        answers.left_out(120 * SECOND);
        assert_eq!([7, 8].map(counts), [1, 1]);
        assert!(answers.left_out(122 * SECOND).looks_at_all(), "the last one is younger");
        assert_eq!([7, 8].map(counts), [0, 0]);
        assert_eq!(answers.0.lock().bytes, 0);
        assert!(!answers.left_out(127 * SECOND).looks_at_all());
    }

    /// Without a flush or a compaction they stayed until the region was closed.
    #[test]
    fn a_region_that_is_not_written_to_lets_them_go() {
        let answers = Answers::default();
        (1..=3).for_each(|seq| answers.note(SeqId::new(seq), 0));
        let left_out = answers.left_out(0);
        (1..=3).for_each(|seq| left_out.note(cell(seq, 1 << 10).get()));
        let bytes = answers.expire(60 * SECOND);
        assert!(bytes > 3 << 10);
        answers.trim(bytes - 1);
        let counts = [1, 2, 3].map(|seq| answers.of(SeqId::new(seq)).len());
        assert_eq!(
            (answers.expire(60 * SECOND), counts),
            (bytes / 3 * 2, [0, 1, 1]),
            "the oldest goes first"
        );
        assert_eq!(answers.expire(180 * SECOND), 0);
    }

    #[test]
    fn operations_and_cells_have_a_limit() {
        let answers = Answers::default();
        let count = OPERATIONS_MAX as u64 + 2 * GROUP_MAX as u64;
        (1..=count).for_each(|seq| answers.note(SeqId::new(seq), 0));
        let left_out = answers.left_out(0);
        assert!(
            left_out.operations.len() <= OPERATIONS_MAX && left_out.operations.len() > OPERATIONS_MAX / 2
        );
        assert_eq!(left_out.operations.last(), Some(&SeqId::new(count)));
        let large = 1 << 20;
        (count - 20..=count).for_each(|seq| left_out.note(cell(seq, large).get()));
        let state = answers.0.lock();
        assert!(state.bytes <= BYTES_MAX && state.cells.len() == BYTES_MAX / large - 1);
        assert!(state.cells.contains_key(&SeqId::new(count)), "the newest stay");
    }

    #[test]
    fn news_are_told_until_they_are_written() {
        let answers = Answers::default();
        assert!(answers.news().is_none());
        (1..=3).for_each(|seq| answers.note(SeqId::new(seq), 0));
        answers.keep(cell(1, 1).get());
        let first = answers.news().unwrap();
        answers.keep(cell(2, 1).get());
        answers.note_written(&first);
        let second = answers.news().unwrap();
        assert_eq!((first.cells.len(), second.cells.len()), (1, 2));
        answers.note_written(&second);
        assert!(answers.news().is_none());

        let next = Answers::default();
        next.note(SeqId::new(2), 0);
        next.restore(&second.cells, 0);
        assert_eq!([1, 2].map(|seq| next.of(SeqId::new(seq)).len()), [0, 1]);
    }
}
