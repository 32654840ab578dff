use halcyon_proto::pb;
use halcyon_schema::TableName;

use super::*;
use crate::read::ScanRead;

fn scan() -> Read {
    let table = TableName::parse(b"t").unwrap();
    Read::Scan(table, ScanRead { scan: pb::Scan::default(), caching: None, limit: None })
}

fn cell(row: &str, qualifier: &str, time: i64, value: &str) -> Cell {
    Cell::put(row.as_bytes(), b"f", qualifier.as_bytes(), time, value.as_bytes())
}

fn some() -> Vec<Cell> {
    vec![cell("a", "x", 1, "1"), cell("a", "y", 1, "2"), cell("b", "x", 1, "3"), cell("c", "x", 1, "4")]
}

fn found(a: &[Cell], b: &[Cell]) -> Differences {
    let answer = |cells: &[Cell]| Ok(Answer::of_cells(cells.to_vec(), 1 << 20));
    compare(&scan(), &answer(a), &answer(b))
}

fn kinds(found: &Differences) -> Vec<(Kind, &[u8])> {
    found.told.iter().map(|one| (one.kind, &one.row[..])).collect()
}

#[test]
fn equal_answers_do_not_differ() {
    assert!(found(&some(), &some()).is_empty());
    assert!(found(&[], &[]).is_empty());
}

#[test]
fn each_planted_difference_is_found() {
    for at in 0..some().len() {
        let row = some()[at].row().to_vec();
        let mut less = some();
        less.remove(at);
        assert_eq!(kinds(&found(&some(), &less)), [(Kind::MissingInB, &row[..])]);
        assert_eq!(kinds(&found(&less, &some())), [(Kind::MissingInA, &row[..])]);
        let mut other = some();
        other[at] =
            cell(&String::from_utf8_lossy(&row), &String::from_utf8_lossy(some()[at].qualifier()), 1, "w");
        assert_eq!(kinds(&found(&some(), &other)), [(Kind::Value, &row[..])]);
        other[at] = some()[at].with_timestamp(9);
        assert_eq!(kinds(&found(&some(), &other)), [(Kind::Timestamp, &row[..])]);
    }
    let mut swapped = some();
    swapped.swap(1, 2);
    assert_eq!(kinds(&found(&some(), &swapped)), [(Kind::Order, &b"a"[..])]);
}

#[test]
fn what_is_not_kept_is_found_by_its_sum() {
    let answer = |cells: Vec<Cell>| Ok(Answer::of_cells(cells, 200));
    let mut other = some();
    other[3] = cell("c", "x", 1, "5");
    let found = compare(&scan(), &answer(some()), &answer(other));
    assert_eq!(kinds(&found), [(Kind::Rest, &b""[..])]);
}

#[test]
fn errors_differ_by_their_class() {
    let (ok, fails) = (Ok(Answer::of_cells(some(), 1 << 20)), |class: &str| Err(class.to_string()));
    assert_eq!(compare(&scan(), &ok, &fails("Timeout")).told[0].kind, Kind::Error);
    assert_eq!(compare(&scan(), &fails("A"), &fails("B")).told[0].b, "B");
    assert!(compare(&scan(), &fails("A"), &fails("A")).is_empty());
    let exists = |exists| Ok(Answer { parts: vec![Part::Exists(exists)] });
    assert_eq!(compare(&scan(), &exists(true), &exists(false)).told[0].kind, Kind::Exists);
    assert!(compare(&scan(), &exists(true), &exists(true)).is_empty());
}

#[test]
fn a_row_that_changes_is_not_one_that_stays_different() {
    let with = |value: &str| found(&some(), &[&some()[..3], &[cell("c", "x", 1, value)]].concat());
    let equal = found(&some(), &some());
    let mut settling = Settling::new(&with("5"), 1);
    assert!(settling.add(&with("5")));
    assert_eq!(settling.fate(), Fate::Stays);
    settling.add(&with("6"));
    assert_eq!(settling.fate(), Fate::Changing);
    assert!(settling.add(&equal));
    assert_eq!(settling.fate(), Fate::Settled);
    // a row that is written now and then, and always late at one side
    let mut settling = Settling::new(&with("5"), 1);
    let fates = ["6", "6", "6", "7", "7", "7"].map(|value| {
        settling.add(&with(value));
        settling.fate()
    });
    use Fate::{Changing, Stays};
    assert_eq!(fates, [Changing, Stays, Stays, Changing, Changing, Changing]);
}

/// A read of many rows, of which most are late at one side and one is different for good. Only the first hundred were followed, and
/// when those had become equal the read was called settled.
#[test]
fn a_row_that_is_not_among_the_first_ones_is_followed_as_well() {
    let side = |late: std::ops::Range<usize>| -> Vec<Cell> {
        let value = |number: usize| if number == 900 || late.contains(&number) { "old" } else { "new" };
        (0..1000).map(|number| cell(&format!("r{number:04}"), "x", 1, value(number))).collect()
    };
    let theirs: Vec<Cell> = (0..1000).map(|number| cell(&format!("r{number:04}"), "x", 1, "new")).collect();
    let reading = |late| found(&side(late), &theirs);
    let mut settling = Settling::new(&reading(0..150), 3);
    assert!(!settling.add(&reading(0..0)) && settling.fate() == Fate::Changing);
    assert!(!settling.add(&reading(5..40)) && settling.fate() == Fate::Changing);
    assert!(settling.add(&reading(0..0)) && settling.fate() == Fate::Stays);

    // One that shows only in a later reading has as much time as others.
    let equal = || found(&theirs, &theirs);
    let only = |number: usize| {
        let mut ours = theirs.clone();
        ours[number] = cell(&format!("r{number:04}"), "x", 1, "old");
        found(&ours, &theirs)
    };
    let mut settling = Settling::new(&only(1), 2);
    let decided: Vec<bool> = [only(2), only(2), only(2)].iter().map(|next| settling.add(next)).collect();
    assert_eq!((decided, settling.fate()), (vec![false, false, true], Fate::Stays));
    // Another row each time is what a busy table looks like.
    let mut settling = Settling::new(&only(1), 2);
    let decided: Vec<bool> = (2..6).map(|number| settling.add(&only(number))).collect();
    assert_eq!((decided, settling.fate()), (vec![false, false, false, true], Fate::Changing));
    let mut settling = Settling::new(&only(1), 2);
    assert!(settling.add(&equal()) && settling.fate() == Fate::Settled);
}

/// A late row in the part of an answer that is kept hid that the part behind it differs.
#[test]
fn what_differs_behind_the_cells_that_are_kept_is_followed() {
    let answer = |cells: Vec<Cell>| Ok(Answer::of_cells(cells, 200));
    let theirs = [some(), some()].concat();
    let with = |first: &str, last: &str| {
        let mut ours = theirs.clone();
        ours[0] = cell("a", "x", 1, first);
        ours[7] = cell("c", "x", 1, last);
        compare(&scan(), &answer(ours), &answer(theirs.clone()))
    };
    let mut settling = Settling::new(&with("0", "9"), 2);
    settling.add(&with("1", "9"));
    assert_eq!(settling.fate(), Fate::Changing, "the first row has become equal, and the last has not");
    settling.add(&with("1", "9"));
    settling.add(&with("1", "9"));
    assert_eq!(settling.fate(), Fate::Stays);
}
