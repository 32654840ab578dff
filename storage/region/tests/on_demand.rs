//! Families that a filter does not need are read only for rows that pass it (`load_families_on_demand`).

use crate::common::*;
use halcyon_cell::{Cell, CellType};
use halcyon_filter::{Filter, parse_filter};
use halcyon_proto::pb;
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use prost::Message;

/// Rows whose `m:name` is `yes`; it needs the family `m` only.
fn named_yes() -> pb::Filter {
    let comparable = pb::ByteArrayComparable { value: Some(b"yes".to_vec().into()) };
    let comparator = pb::Comparator {
        name: "org.apache.hadoop.hbase.filter.BinaryComparator".into(),
        serialized_comparator: Some(pb::BinaryComparator { comparable }.encode_to_vec().into()),
    };
    let message = pb::SingleColumnValueFilter {
        column_family: Some(b"m".to_vec().into()),
        column_qualifier: Some(b"name".to_vec().into()),
        compare_op: pb::CompareType::Equal as i32,
        comparator,
        filter_if_missing: Some(true),
        latest_version_only: Some(true),
    };
    let name = "org.apache.hadoop.hbase.filter.SingleColumnValueFilter".into();
    pb::Filter { name, serialized_filter: Some(message.encode_to_vec().into()) }
}

fn is_named_yes() -> Box<dyn Filter> {
    parse_filter(&named_yes()).unwrap()
}

/// Cells of the family `a`, which is read late, came behind those of `m`. HBase's `Result.getValue` searches sorted cells,
/// and so found nothing in them.
#[test]
fn rows_are_sorted_whatever_is_read_first() {
    let families = ["a", "m", "z"].map(|name| FamilyDescriptor::new(name).unwrap());
    let bench = Bench::new(&families);
    for (row, name) in [("r1", "yes"), ("r2", "no"), ("r3", "yes")] {
        let cell = |family: &str, qualifier: &str, value: &str| {
            let (family, qualifier) = (family.as_bytes(), qualifier.as_bytes());
            Cell::build(row.as_bytes(), family, qualifier, 100, CellType::Put, value.as_bytes(), b"", 0)
        };
        let cells =
            vec![cell("a", "1", "v"), cell("a", "2", "v"), cell("m", "name", name), cell("z", "1", "v")];
        bench.mutate(mutation(MutationKind::Put, row.as_bytes(), cells)).unwrap();
    }
    for reversed in [false, true] {
        let scan = |load_families_on_demand| Scan {
            filter: Some(is_named_yes()),
            load_families_on_demand,
            reversed,
            ..Scan::default()
        };
        let keys = |rows: Vec<Vec<Cell>>| -> Vec<Vec<String>> {
            rows.iter().map(|row| row.iter().map(show).collect()).collect()
        };
        let (at_once, late) = (keys(bench.scan(scan(false)).unwrap()), keys(bench.scan(scan(true)).unwrap()));
        assert_eq!(at_once.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
        assert_eq!(late, at_once, "reversed: {reversed}");
    }
}

/// HBase goes by the families that the filter needs, also if the scan reads none of them.
#[test]
fn without_a_family_that_the_filter_needs_there_are_no_rows() {
    let families = ["a", "m"].map(|name| FamilyDescriptor::new(name).unwrap());
    let bench = Bench::new(&families);
    let cell = Cell::build(b"r", b"a", b"1", 100, CellType::Put, b"v", b"", 0);
    bench.mutate(mutation(MutationKind::Put, b"r", vec![cell])).unwrap();
    let rows = |load_families_on_demand| {
        let filter = pb::Filter {
            name: "org.apache.hadoop.hbase.filter.SkipFilter".into(),
            serialized_filter: Some(pb::SkipFilter { filter: named_yes() }.encode_to_vec().into()),
        };
        let mut scan =
            Scan { filter: Some(parse_filter(&filter).unwrap()), load_families_on_demand, ..Scan::default() };
        scan.families.insert("a".into(), None);
        bench.scan(scan).unwrap().len()
    };
    assert_eq!((rows(false), rows(true)), (1, 0));
}
