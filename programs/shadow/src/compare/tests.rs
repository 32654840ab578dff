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
    let mut settling = Settling::new(&with("5"));
    assert!(!settling.add(&with("5")));
    assert_eq!(settling.fate(), Fate::Stays);
    assert!(!settling.add(&with("6")));
    assert_eq!(settling.fate(), Fate::Changing);
    assert!(settling.add(&equal));
    assert_eq!(settling.fate(), Fate::Settled);
    // a row that is written now and then, and always late at one side
    let mut settling = Settling::new(&with("5"));
    let fates = ["6", "6", "6", "7", "7", "7"].map(|value| {
        assert!(!settling.add(&with(value)));
        settling.fate()
    });
    use Fate::{Changing, Stays};
    assert_eq!(fates, [Changing, Stays, Stays, Changing, Changing, Changing]);
    // another row differs than before: the first one has settled
    let other = found(&some(), &some()[1..]);
    let mut settling = Settling::new(&with("5"));
    assert!(settling.add(&other));
}
