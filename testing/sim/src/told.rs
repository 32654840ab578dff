//! What clients of real servers asked for and were told, and what they must find.
//!
//! ```text
//! <two digits>r<number>   f:q    put once
//! <two digits>c           f:n    incremented by one      f:i<number>  likewise, by one Increment alone, and with `f:n` at once
//!                         f:a    numbers that were appended, of eight bytes each
//! <two digits>s           s:q, v:r   put and deleted (`register.rs`)
//! <two digits>v           v:a...     put and deleted at times of clients (`versions.rs`)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;

use crate::register::{Register, Value, Window};
use crate::versions::{Cells, Versions};

pub(crate) const FAMILY: &[u8] = b"f";
/// Of registers; its versions, and those of `f`, are one.
pub(crate) const SINGLE: &[u8] = b"s";
/// With more versions than are written.
pub(crate) const MANY: &[u8] = b"v";
/// The column of a register in [`MANY`].
pub(crate) const SECOND: &[u8] = b"r";
pub(crate) const PUT: &[u8] = b"q";
pub(crate) const COUNT: &[u8] = b"n";
pub(crate) const ONE: u8 = b'i';
pub(crate) const APPENDED: &[u8] = b"a";

/// The numbers of operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) begun: BTreeSet<u64>,
    pub(crate) acknowledged: BTreeSet<u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) put: bool,
    pub(crate) increments: Numbers,
    pub(crate) appends: Numbers,
    /// The Increment that was told this count.
    counts: BTreeMap<u64, u64>,
    pub(crate) register: Register,
    pub(crate) versions: Versions,
}

impl Row {
    /// Each Increment by one is told a count of its own. Says what is wrong.
    pub(crate) fn counted(&mut self, id: u64, answer: &pb::MutateResponse) -> Result<(), String> {
        let count = number(&answered(answer, COUNT)?)?;
        match self.counts.insert(count, id) {
            Some(other) => Err(format!("Increments {other} and {id} are both told {count}")),
            None => Ok(()),
        }
    }
}

/// An Append is told what it has made, and nothing that came later. Says what is wrong.
pub(crate) fn appended_last(id: u64, answer: &pb::MutateResponse) -> Result<(), String> {
    match answered(answer, APPENDED)?.ends_with(&id.to_be_bytes()) {
        true => Ok(()),
        false => Err(format!("the answer of Append {id} does not end with it")),
    }
}

fn answered(answer: &pb::MutateResponse, qualifier: &[u8]) -> Result<Bytes, String> {
    let mut cells = answer.result.iter().flat_map(|result| &result.cell);
    let cell = cells.find(|cell| cell.qualifier.as_deref() == Some(qualifier));
    cell.and_then(|cell| cell.value.clone()).ok_or_else(|| format!("an answer without a value: {answer:?}"))
}

/// A row that one client at a time changes.
#[derive(Default)]
struct Owned {
    is_taken: bool,
    /// Each copy of a call that is on its way, or being carried out, holds it.
    copies: Arc<()>,
}

/// Rows by table.
#[derive(Default)]
pub(crate) struct Told {
    rows: BTreeMap<String, BTreeMap<Bytes, Row>>,
    owned: BTreeMap<(String, Bytes), Owned>,
    /// Clients that are at work.
    pub(crate) clients: usize,
}

impl Told {
    /// A client takes a row for one operation, until it gives it back. What is returned goes with each call. `None`: another client has
    /// the row.
    pub(crate) fn take(&mut self, table: &str, row: &Bytes) -> Option<Arc<()>> {
        let owned = self.owned.entry((table.to_string(), row.clone())).or_default();
        (!std::mem::replace(&mut owned.is_taken, true)).then(|| owned.copies.clone())
    }

    pub(crate) fn give_back(&mut self, table: &str, row: &Bytes) {
        let owned = self.owned.get_mut(&(table.to_string(), row.clone())).expect("it was taken");
        owned.is_taken = false;
    }

    pub(crate) fn row(&mut self, table: &str, row: &Bytes) -> &mut Row {
        self.rows.entry(table.to_string()).or_default().entry(row.clone()).or_default()
    }

    /// The rows of a region as they are now.
    pub(crate) fn of_region(&self, region: &RegionInfo) -> BTreeMap<Bytes, Row> {
        let rows = self.rows.get(&region.table().to_string()).into_iter().flatten();
        rows.filter(|(row, _)| region.contains_row(row))
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect()
    }
}

/// A row as a read shows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundRow {
    /// Of [`FAMILY`].
    columns: BTreeMap<Bytes, Bytes>,
    /// The newest of a register's two columns.
    register: [Value; 2],
    versions: Cells,
}

impl FoundRow {
    pub(crate) fn register(&self) -> [Value; 2] {
        self.register
    }
}

/// Rows by key.
pub(crate) type Found = BTreeMap<Bytes, FoundRow>;

/// Adds what an answer has. Rows come in their order, each once, and the newest cell of a column first. Says what is wrong.
pub(crate) fn add_found(found: &mut Found, results: &[pb::Result]) -> Result<(), String> {
    for result in results {
        let part = |part: &Option<Bytes>| part.clone().unwrap_or_default();
        let Some(first) = result.cell.first() else { continue };
        let key = part(&first.row);
        if let Some((last, _)) = found.last_key_value().filter(|(last, _)| **last >= key) {
            return Err(format!("row {} comes behind {}", key.escape_ascii(), last.escape_ascii()));
        }
        let row = found.entry(key.clone()).or_default();
        let mut before: Option<(Bytes, Bytes, std::cmp::Reverse<u64>)> = None;
        for cell in &result.cell {
            let (family, qualifier, value) = (part(&cell.family), part(&cell.qualifier), part(&cell.value));
            let time = cell.timestamp.unwrap_or_default();
            let at = (family.clone(), qualifier.clone(), std::cmp::Reverse(time));
            if part(&cell.row) != key || before.as_ref().is_some_and(|before| *before >= at) {
                return Err(format!("row {}: a cell {at:?} behind {before:?}", key.escape_ascii()));
            }
            let is_newest = before.is_none_or(|(of, column, _)| of != family || column != qualifier);
            before = Some(at);
            match (&family[..], &qualifier[..]) {
                (SINGLE, _) if is_newest => row.register[0] = Some(number(&value)?),
                (MANY, SECOND) if is_newest => row.register[1] = Some(number(&value)?),
                (MANY, SECOND) => {}
                (MANY, &[letter]) => {
                    row.versions.insert((letter, time), number(&value)?);
                }
                _ if is_newest => {
                    row.columns.insert(qualifier, value);
                }
                _ => return Err(format!("row {}: two versions of {qualifier:?}", key.escape_ascii())),
            }
        }
    }
    Ok(())
}

impl Told {
    /// What a read has shown is known now. It has passed [`check`].
    pub(crate) fn observe(&mut self, region: &RegionInfo, found: &Found, window: Window) {
        let rows = self.rows.get_mut(&region.table().to_string()).into_iter().flatten();
        for (key, row) in rows.filter(|(key, _)| region.contains_row(key)) {
            let (has, nothing) = (found.get(key), Cells::new());
            row.register.observe(has.and_then(|has| has.register[0]), window);
            row.versions.observe(has.map_or(&nothing, |has| &has.versions), window);
        }
    }
}

/// What was acknowledged before a read is in it once, and what was not begun before its end is not. Says what is wrong.
pub(crate) fn check(
    found: &Found,
    before: &BTreeMap<Bytes, Row>,
    after: &BTreeMap<Bytes, Row>,
    window: Window,
) -> Result<(), String> {
    let nothing = (FoundRow::default(), Row::default());
    for (key, row) in after {
        let (found, name) = (found.get(key).unwrap_or(&nothing.0), key.escape_ascii());
        let wrong = |wrong: String| format!("{name}: {wrong}");
        check_row(found, before.get(key).unwrap_or(&nothing.1), row).map_err(wrong)?;
        if found.register[0] != found.register[1] {
            return Err(format!("{name}: half an operation: {:?}", found.register));
        }
        row.register.check(found.register[0], window).map_err(wrong)?;
        row.versions.check(&found.versions, window).map_err(wrong)?;
    }
    match found.keys().find(|key| !after.contains_key(*key)) {
        None => Ok(()),
        Some(strange) => Err(format!("{} was never begun", strange.escape_ascii())),
    }
}

fn check_row(found: &FoundRow, before: &Row, after: &Row) -> Result<(), String> {
    let columns = &found.columns;
    if before.put && !columns.contains_key(PUT) {
        return Err("it is lost".to_string());
    }
    let counted = ones(columns)?;
    let appended = appended(columns).map_err(|twice| format!("{twice} was appended twice"))?;
    for (what, has, before, after) in [
        ("Increment", &counted, &before.increments, &after.increments),
        ("Append", &appended, &before.appends, &after.appends),
    ] {
        if let Some(lost) = before.acknowledged.difference(has).next() {
            return Err(format!("{what} {lost} is lost"));
        }
        if let Some(strange) = has.difference(&after.begun).next() {
            return Err(format!("{what} {strange} was never begun"));
        }
    }
    let sum = columns.get(COUNT).map_or(Ok(0), |value| number(value))?;
    if sum != counted.len() as u64 {
        return Err(format!("{} Increments by one give {sum}", counted.len()));
    }
    Ok(())
}

fn number(value: &[u8]) -> Result<u64, String> {
    value.try_into().map(u64::from_be_bytes).map_err(|_| format!("{value:?} is no number"))
}

/// The Increments that counted.
fn ones(columns: &BTreeMap<Bytes, Bytes>) -> Result<BTreeSet<u64>, String> {
    let mut ones = BTreeSet::new();
    for (qualifier, value) in columns {
        let Some(id) = qualifier.strip_prefix(&[ONE]) else { continue };
        let (id, times) = (number(id)?, number(value)?);
        if times != 1 {
            return Err(format!("Increment {id} has counted {times} times"));
        }
        ones.insert(id);
    }
    Ok(ones)
}

/// The numbers that were appended; the first that is there twice is an error.
fn appended(columns: &BTreeMap<Bytes, Bytes>) -> Result<BTreeSet<u64>, u64> {
    let mut all = BTreeSet::new();
    for id in columns.get(APPENDED).map_or(&[][..], |value| value).chunks(8) {
        let id = number(id).expect("eight bytes were appended at a time");
        if !all.insert(id) {
            return Err(id);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(count: u64, ones: &[(u64, u64)], appended: &[u64]) -> Found {
        let mut columns = BTreeMap::from([(Bytes::from_static(COUNT), number_of(count))]);
        for (id, times) in ones {
            let qualifier = [&[ONE], &id.to_be_bytes()[..]].concat();
            columns.insert(qualifier.into(), number_of(*times));
        }
        let appended: Vec<u8> = appended.iter().flat_map(|id| id.to_be_bytes()).collect();
        columns.insert(Bytes::from_static(APPENDED), appended.into());
        Found::from([(Bytes::from_static(b"r"), FoundRow { columns, ..FoundRow::default() })])
    }

    fn number_of(number: u64) -> Bytes {
        Bytes::copy_from_slice(&number.to_be_bytes())
    }

    fn told(acknowledged: &[u64], begun: &[u64]) -> BTreeMap<Bytes, Row> {
        let numbers = || Numbers {
            begun: begun.iter().copied().collect(),
            acknowledged: acknowledged.iter().copied().collect(),
        };
        let row = Row { increments: numbers(), appends: numbers(), ..Row::default() };
        BTreeMap::from([(Bytes::from_static(b"r"), row)])
    }

    fn answer(qualifier: &'static [u8], value: &[u8]) -> pb::MutateResponse {
        let cell = pb::Cell {
            qualifier: Some(Bytes::from_static(qualifier)),
            value: Some(Bytes::copy_from_slice(value)),
            ..Default::default()
        };
        let result = pb::Result { cell: vec![cell], ..Default::default() };
        pb::MutateResponse { result: Some(result), ..Default::default() }
    }

    #[test]
    fn an_answer_of_another_operation_is_found() {
        let (mut row, one, two) =
            (Row::default(), answer(COUNT, &[0, 0, 0, 0, 0, 0, 0, 1]), 2_u64.to_be_bytes());
        row.counted(7, &one).unwrap();
        row.counted(8, &answer(COUNT, &two)).unwrap();
        assert_eq!(row.counted(9, &one).unwrap_err(), "Increments 7 and 9 are both told 1");
        let appended = answer(APPENDED, &[1_u64.to_be_bytes(), two].concat());
        appended_last(2, &appended).unwrap();
        assert_eq!(appended_last(1, &appended).unwrap_err(), "the answer of Append 1 does not end with it");
        assert!(appended_last(1, &one).is_err());
    }

    fn cell(
        row: &'static [u8],
        family: &'static [u8],
        qualifier: &'static [u8],
        time: u64,
        id: u64,
    ) -> pb::Cell {
        pb::Cell {
            row: Some(Bytes::from_static(row)),
            family: Some(Bytes::from_static(family)),
            qualifier: Some(Bytes::from_static(qualifier)),
            timestamp: Some(time),
            value: Some(number_of(id)),
            ..Default::default()
        }
    }

    #[test]
    fn rows_and_cells_out_of_order_are_found() {
        let whole = |cells: &[pb::Cell]| pb::Result { cell: cells.to_vec(), ..Default::default() };
        let row = |key| whole(&[cell(key, SINGLE, b"q", 7, 1), cell(key, MANY, b"r", 7, 1)]);
        let found = |results: &[pb::Result]| {
            let mut found = Found::new();
            add_found(&mut found, results).map(|()| found)
        };
        let (one, two) = (row(b"1"), row(b"2"));
        let both = found(&[one.clone(), two.clone()]).unwrap();
        assert_eq!(both[&b"2"[..]].register(), [Some(1), Some(1)]);
        assert_eq!(found(&[two, one.clone()]).unwrap_err(), "row 1 comes behind 2");
        assert_eq!(found(&[one.clone(), one]).unwrap_err(), "row 1 comes behind 1");
        let older = [cell(b"1", MANY, b"a", 5, 1), cell(b"1", MANY, b"a", 6, 2)];
        assert!(found(&[whole(&older)]).unwrap_err().starts_with("row 1: a cell"));
        let two_of_one = [cell(b"1", FAMILY, b"q", 6, 1), cell(b"1", FAMILY, b"q", 5, 1)];
        assert!(found(&[whole(&two_of_one)]).unwrap_err().starts_with("row 1: two versions"));
    }

    #[test]
    fn half_an_operation_and_strange_rows_are_found() {
        let row = Row::default();
        let rows = BTreeMap::from([(Bytes::from_static(b"1"), row)]);
        let window = Window { begun_ns: 1, ended_ns: 2 };
        let half = Found::from([(
            Bytes::from_static(b"1"),
            FoundRow { register: [Some(1), None], ..FoundRow::default() },
        )]);
        assert_eq!(check(&half, &rows, &rows, window).unwrap_err(), "1: half an operation: [Some(1), None]");
        let strange = Found::from([(Bytes::from_static(b"2"), FoundRow::default())]);
        assert_eq!(check(&strange, &rows, &rows, window).unwrap_err(), "2 was never begun");
    }

    #[test]
    fn what_counts_twice_or_never_is_found() {
        let told = told(&[1, 2], &[1, 2, 3]);
        let window = Window { begun_ns: 1, ended_ns: 2 };
        let wrong = |found: Found| check(&found, &told, &told, window).unwrap_err();
        for found in
            [columns(2, &[(1, 1), (2, 1)], &[2, 1]), columns(3, &[(1, 1), (2, 1), (3, 1)], &[3, 1, 2])]
        {
            check(&found, &told, &told, window).unwrap();
        }
        assert_eq!(wrong(columns(1, &[(1, 1)], &[1, 2])), "r: Increment 2 is lost");
        assert_eq!(wrong(columns(3, &[(1, 1), (2, 2)], &[1, 2])), "r: Increment 2 has counted 2 times");
        assert_eq!(wrong(columns(3, &[(1, 1), (2, 1)], &[1, 2])), "r: 2 Increments by one give 3");
        assert_eq!(wrong(columns(2, &[(1, 1), (2, 1)], &[1, 2, 1])), "r: 1 was appended twice");
        assert_eq!(wrong(columns(2, &[(1, 1), (2, 1)], &[1])), "r: Append 2 is lost");
        assert_eq!(wrong(columns(2, &[(1, 1), (2, 1)], &[1, 2, 4])), "r: Append 4 was never begun");
        assert_eq!(wrong(Found::new()), "r: Increment 1 is lost");
    }
}
