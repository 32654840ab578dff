//! What clients of real servers asked for and were told, and what they must find.
//!
//! ```text
//! <two digits>r<number>   f:q    put once
//! <two digits>c           f:n    incremented by one      f:i<number>  likewise, by one Increment alone, and with `f:n` at once
//!                         f:a    numbers that were appended, of eight bytes each
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;

pub(crate) const FAMILY: &[u8] = b"f";
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

/// Rows by table.
#[derive(Default)]
pub(crate) struct Told {
    rows: BTreeMap<String, BTreeMap<Bytes, Row>>,
    /// Clients that are at work.
    pub(crate) clients: usize,
}

impl Told {
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

/// Columns by row.
pub(crate) type Found = BTreeMap<Bytes, BTreeMap<Bytes, Bytes>>;

pub(crate) fn found(response: &pb::ScanResponse) -> Found {
    let mut found = Found::new();
    for cell in response.results.iter().flat_map(|result| &result.cell) {
        let part = |part: &Option<Bytes>| part.clone().unwrap_or_default();
        found.entry(part(&cell.row)).or_default().insert(part(&cell.qualifier), part(&cell.value));
    }
    found
}

/// What was acknowledged before a read is in it once, and what was not begun before its end is not. Says what is wrong.
pub(crate) fn check(
    found: &Found,
    before: &BTreeMap<Bytes, Row>,
    after: &BTreeMap<Bytes, Row>,
) -> Result<(), String> {
    let nothing = (BTreeMap::new(), Row::default());
    for (key, row) in before {
        let (columns, name) = (found.get(key).unwrap_or(&nothing.0), key.escape_ascii());
        if row.put && !columns.contains_key(PUT) {
            return Err(format!("{name} is lost"));
        }
        let counted = ones(columns)?;
        let appended = appended(columns).map_err(|twice| format!("{name}: {twice} was appended twice"))?;
        let after = after.get(key).unwrap_or(&nothing.1);
        for (what, has, before, after) in [
            ("Increment", &counted, &row.increments, &after.increments),
            ("Append", &appended, &row.appends, &after.appends),
        ] {
            if let Some(lost) = before.acknowledged.difference(has).next() {
                return Err(format!("{name}: {what} {lost} is lost"));
            }
            if let Some(strange) = has.difference(&after.begun).next() {
                return Err(format!("{name}: {what} {strange} was never begun"));
            }
        }
        let sum = columns.get(COUNT).map_or(Ok(0), |value| number(value))?;
        if sum != counted.len() as u64 {
            return Err(format!("{name}: {} Increments by one give {sum}", counted.len()));
        }
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
        Found::from([(Bytes::from_static(b"r"), columns)])
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

    #[test]
    fn what_counts_twice_or_never_is_found() {
        let told = told(&[1, 2], &[1, 2, 3]);
        let wrong = |found: Found| check(&found, &told, &told).unwrap_err();
        for found in
            [columns(2, &[(1, 1), (2, 1)], &[2, 1]), columns(3, &[(1, 1), (2, 1), (3, 1)], &[3, 1, 2])]
        {
            check(&found, &told, &told).unwrap();
        }
        assert_eq!(wrong(columns(1, &[(1, 1)], &[1, 2])), "r: Increment 2 is lost");
        assert_eq!(wrong(columns(3, &[(1, 1), (2, 2)], &[1, 2])), "Increment 2 has counted 2 times");
        assert_eq!(wrong(columns(3, &[(1, 1), (2, 1)], &[1, 2])), "r: 2 Increments by one give 3");
        assert_eq!(wrong(columns(2, &[(1, 1), (2, 1)], &[1, 2, 1])), "r: 1 was appended twice");
        assert_eq!(wrong(columns(2, &[(1, 1), (2, 1)], &[1])), "r: Append 2 is lost");
        assert_eq!(wrong(columns(2, &[(1, 1), (2, 1)], &[1, 2, 4])), "r: Append 4 was never begun");
        assert_eq!(wrong(Found::new()), "r: Increment 1 is lost");
    }
}
