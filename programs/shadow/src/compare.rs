//! How two answers to one read differ.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use halcyon_cell::{Cell, CellComparator};

use crate::read::{Answer, Cells, Part, Read};

/// Differences of one read that are told one by one.
const TOLD_MAX: usize = 20;
/// Bytes of a value that are shown.
const SHOWN_BYTES: usize = 64;

/// What kind of difference it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A has a cell that B lacks.
    MissingInB,
    /// B has a cell that A lacks.
    MissingInA,
    /// The same cell with another value.
    Value,
    /// The same value with another timestamp.
    Timestamp,
    /// The same cells in another order.
    Order,
    /// One says that there is something.
    Exists,
    /// One failed, or both failed differently.
    Error,
    /// Both begin alike, and what follows is not kept.
    Rest,
}

impl Kind {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Kind::MissingInB => "missing in b",
            Kind::MissingInA => "missing in a",
            Kind::Value => "other value",
            Kind::Timestamp => "other timestamp",
            Kind::Order => "other order",
            Kind::Exists => "exists in one",
            Kind::Error => "error",
            Kind::Rest => "differs later on",
        }
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) kind: Kind,
    /// The row; empty if it is not known.
    pub(crate) row: Bytes,
    /// What each side has, for people.
    pub(crate) a: String,
    pub(crate) b: String,
}

/// The state of a row that differs: a checksum of what each side has of it.
type RowState = (u128, u128);

/// Differences of one read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Differences {
    /// The first of them.
    pub(crate) told: Vec<Difference>,
    pub(crate) count: u64,
    /// Rows that differ, and how; by the number of the part.
    pub(crate) rows: BTreeMap<(usize, Bytes), RowState>,
}

impl Differences {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn add(&mut self, kind: Kind, row: &[u8], a: String, b: String) {
        self.count += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push(Difference { kind, row: Bytes::copy_from_slice(row), a, b });
        }
    }
}

/// What came of both sides.
pub(crate) fn compare(read: &Read, a: &Result<Answer, String>, b: &Result<Answer, String>) -> Differences {
    let mut found = Differences::default();
    let (a, b) = match (a, b) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(a), Err(b)) if a == b => return found,
        (a, b) => {
            let text = |side: &Result<Answer, String>| match side {
                Ok(answer) => format!("{} cells", answer.cells_count()),
                Err(class) => class.clone(),
            };
            found.add(Kind::Error, &row_of(read, 0), text(a), text(b));
            found.rows.insert((0, row_of(read, 0)), (state_of(&text(a)), state_of(&text(b))));
            return found;
        }
    };
    if a.parts.len() != b.parts.len() {
        let text = |answer: &Answer| format!("{} answers", answer.parts.len());
        found.add(Kind::Error, &row_of(read, 0), text(a), text(b));
        found.rows.insert((0, row_of(read, 0)), (a.parts.len() as u128, b.parts.len() as u128));
        return found;
    }
    for (at, (a, b)) in a.parts.iter().zip(&b.parts).enumerate() {
        match (a, b) {
            (Part::Cells(a), Part::Cells(b)) if a == b => {}
            (Part::Cells(a), Part::Cells(b)) => cells(at, a, b, &mut found),
            (a, b) if a == b => {}
            (a, b) => {
                let kind = if matches!((a, b), (Part::Exists(_), Part::Exists(_))) {
                    Kind::Exists
                } else {
                    Kind::Error
                };
                let row = row_of(read, at);
                found.add(kind, &row, part_text(a), part_text(b));
                found.rows.insert((at, row), (state_of(&part_text(a)), state_of(&part_text(b))));
            }
        }
    }
    found
}

fn state_of(text: &str) -> u128 {
    xxhash_rust::xxh3::xxh3_128(text.as_bytes())
}

/// The row of a get; a scan has none that is known before.
fn row_of(read: &Read, part: usize) -> Bytes {
    match read {
        Read::Get(_, get) => get.row.clone(),
        Read::Multi(gets) => gets.get(part).map(|(_, get)| get.row.clone()).unwrap_or_default(),
        Read::Scan(..) => Bytes::new(),
    }
}

fn part_text(part: &Part) -> String {
    match part {
        Part::Cells(cells) => format!("{} cells", cells.count),
        Part::Exists(exists) => format!("exists: {exists}"),
        Part::Failed(class) => class.clone(),
    }
}

/// Cell by cell. Both are put into the order of HBase, so that each difference shows once.
fn cells(part: usize, a: &Cells, b: &Cells, found: &mut Differences) {
    let whole = a.is_whole() && b.is_whole();
    // beyond the shorter of two beginnings nothing is known
    let known = if whole { usize::MAX } else { a.kept.len().min(b.kept.len()) };
    let take = |cells: &Cells| cells.kept.iter().take(known).cloned().collect::<Vec<Cell>>();
    let (ours, theirs) = (take(a), take(b));
    let (sorted_a, sorted_b) = (sorted(&ours), sorted(&theirs));
    let before = found.count;
    let mut differing = BTreeSet::new();
    let (mut left, mut right) = (sorted_a.iter().peekable(), sorted_b.iter().peekable());
    let (mut only_a, mut only_b) = (Vec::new(), Vec::new());
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => compare_keys(a, b),
        };
        let here = if order.is_le() { left.next() } else { None };
        let there = if order.is_ge() { right.next() } else { None };
        match (here, there) {
            (Some(a), Some(b)) if a.value() != b.value() => {
                found.add(Kind::Value, a.row(), cell_text(a), cell_text(b));
                differing.insert(a.row());
            }
            (Some(cell), None) => only_a.push(cell),
            (None, Some(cell)) => only_b.push(cell),
            _ => {}
        }
    }
    // The same column and value with another time is one difference, not two.
    let mut by_value: HashMap<_, VecDeque<&Cell>> = HashMap::new();
    let value_key = |cell: &Cell| {
        let (row, family, qualifier) =
            (cell.row().to_vec(), cell.family().to_vec(), cell.qualifier().to_vec());
        (row, family, qualifier, xxhash_rust::xxh3::xxh3_128(cell.value()))
    };
    only_b.iter().for_each(|cell| by_value.entry(value_key(cell)).or_default().push_back(cell));
    for cell in only_a {
        match by_value.get_mut(&value_key(cell)).and_then(VecDeque::pop_front) {
            Some(other) => found.add(Kind::Timestamp, cell.row(), cell_text(cell), cell_text(other)),
            None => found.add(Kind::MissingInB, cell.row(), cell_text(cell), "-".to_string()),
        }
        differing.insert(cell.row());
    }
    let mut rest: Vec<&Cell> = by_value.into_values().flatten().collect();
    rest.sort_by(|a, b| compare_keys(a, b));
    for cell in rest {
        found.add(Kind::MissingInA, cell.row(), "-".to_string(), cell_text(cell));
        differing.insert(cell.row());
    }
    note(found, part, differing, &ours, &theirs);
    if !whole {
        // Something behind the beginnings may differ, too.
        found.rows.insert((part, Bytes::new()), (a.sum().0, b.sum().0));
    }
    if found.count == before {
        let at = ours.iter().zip(&theirs).position(|(a, b)| compare_keys(a, b) != Ordering::Equal);
        let (kind, row, a_text, b_text) = match at {
            Some(at) => (Kind::Order, ours[at].row(), cell_text(&ours[at]), cell_text(&theirs[at])),
            None => (Kind::Rest, &[][..], format!("{} cells", a.count), format!("{} cells", b.count)),
        };
        let row = Bytes::copy_from_slice(row);
        found.add(kind, &row, a_text, b_text);
        found.rows.insert((part, row), (a.sum().0, b.sum().0));
    }
}

/// Remembers which rows differ, and what each side has of them.
fn note(found: &mut Differences, part: usize, differing: BTreeSet<&[u8]>, ours: &[Cell], theirs: &[Cell]) {
    let room = ROWS_MAX.saturating_sub(found.rows.len());
    let mut states: BTreeMap<&[u8], [Cells; 2]> =
        differing.into_iter().take(room).map(|row| (row, [Cells::new(0), Cells::new(0)])).collect();
    for (side, cells) in [ours, theirs].into_iter().enumerate() {
        for cell in cells {
            if let Some(state) = states.get_mut(cell.row()) {
                state[side].push(cell.clone());
            }
        }
    }
    let states =
        states.into_iter().map(|(row, [a, b])| ((part, Bytes::copy_from_slice(row)), (a.sum().0, b.sum().0)));
    found.rows.extend(states);
}

/// Rows of one read that are followed at a time. More take their places when these have become equal.
const ROWS_MAX: usize = 10_000;

fn sorted(cells: &[Cell]) -> Vec<Cell> {
    let mut sorted = cells.to_vec();
    sorted.sort_by(compare_keys);
    sorted
}

fn compare_keys(a: &Cell, b: &Cell) -> Ordering {
    CellComparator::Default.compare_keys(a.get().key(), b.get().key())
}

fn cell_text(cell: &Cell) -> String {
    let value = cell.value();
    let shown = &value[..value.len().min(SHOWN_BYTES)];
    let more = if shown.len() < value.len() { format!("... ({} bytes)", value.len()) } else { String::new() };
    format!(
        "{}:{} {} {:?} '{}'{more}",
        cell.family().escape_ascii(),
        cell.qualifier().escape_ascii(),
        cell.timestamp(),
        cell.cell_type(),
        shown.escape_ascii()
    )
}

/// What became of a difference when the read was made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// A later reading was the same at both sides.
    Settled,
    /// No reading was the same, and no row differed in the same way for long: they are being written.
    Changing,
    /// A row differs again each time, and neither side has changed it meanwhile.
    Stays,
}

impl Fate {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Fate::Settled => "settled",
            Fate::Changing => "changing",
            Fate::Stays => "stays different",
        }
    }
}

/// Judges a difference from one reading after the other. A row that is not among those of the first reading is followed from
/// where it first differs: what one reading may show late, the next one shows elsewhere.
pub(crate) struct Settling {
    rows: BTreeMap<(usize, Bytes), Followed>,
    /// Readings that were made again, and how many a row is followed for.
    readings: u32,
    wanted: u32,
    is_settled: bool,
}

/// A row that has differed in each reading since the first one that showed it.
struct Followed {
    state: RowState,
    /// Readings since then.
    age: u32,
    /// Neither side has changed it since the first of those.
    still: bool,
}

impl Followed {
    fn new(state: RowState) -> Followed {
        Followed { state, age: 0, still: false }
    }

    fn next(self, state: RowState) -> Followed {
        // The first reading of a mirror is older at one side than at the other, so a row that changed since is still undecided.
        let still = state == self.state && (self.still || self.age < 2);
        Followed { state, age: self.age + 1, still }
    }
}

impl Settling {
    /// `wanted`: how often a row that differs is read again; 1 at least.
    pub(crate) fn new(first: &Differences, wanted: u32) -> Settling {
        let rows = first.rows.iter().map(|(row, state)| (row.clone(), Followed::new(*state))).collect();
        Settling { rows, readings: 0, wanted: wanted.max(1), is_settled: false }
    }

    /// Takes the next reading. Whether it is decided: nothing differs any more, or each row was read again often enough.
    pub(crate) fn add(&mut self, next: &Differences) -> bool {
        self.readings += 1;
        let mut before = std::mem::take(&mut self.rows);
        let follow = |(row, state): (&(usize, Bytes), &RowState)| {
            let followed = match before.remove(row) {
                Some(followed) => followed.next(*state),
                None => Followed::new(*state),
            };
            (row.clone(), followed)
        };
        self.rows = next.rows.iter().map(follow).collect();
        self.is_settled = next.is_empty();
        let is_young = |row: &Followed| row.age < self.wanted;
        self.is_settled
            || self.stays()
            || self.readings >= self.wanted * READINGS_FACTOR
            || (self.readings >= self.wanted && !self.rows.values().any(is_young))
    }

    fn stays(&self) -> bool {
        self.rows.values().any(|row| row.still && row.age >= self.wanted)
    }

    pub(crate) fn fate(&self) -> Fate {
        match (self.is_settled, self.stays()) {
            (true, _) => Fate::Settled,
            (false, false) => Fate::Changing,
            (false, true) => Fate::Stays,
        }
    }
}

/// A read is made again at most so many times as often as a row is, so that a row that differs only in later readings is followed as
/// long as others.
pub(crate) const READINGS_FACTOR: u32 = 2;

#[cfg(test)]
mod tests;
