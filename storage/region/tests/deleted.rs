//! Deleted cells stay deleted: markers of a family lie in the column without a name, among its versions, and hide cells of all columns.

use halcyon_cell::{Cell, CellType, LATEST_TIMESTAMP};
use halcyon_filter::{Filter, parse_filter};
use halcyon_proto::pb;
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use prost::Message;

use crate::common::*;

fn of(name: &str, message: impl Message) -> Box<dyn Filter> {
    let name = format!("org.apache.hadoop.hbase.filter.{name}");
    parse_filter(&pb::Filter { name, serialized_filter: Some(message.encode_to_vec().into()) }).unwrap()
}

fn write(bench: &Bench, qualifier: &str, timestamp: i64, cell_type: CellType) {
    let cell = Cell::build(b"r", b"f", qualifier.as_bytes(), timestamp, cell_type, b"v", b"", 0);
    let kind = if cell_type == CellType::Put { MutationKind::Put } else { MutationKind::Delete };
    bench.mutate(mutation(kind, b"r", vec![cell])).unwrap();
}

fn found(bench: &Bench, scan: Scan) -> Vec<String> {
    bench.scan(scan).unwrap().iter().flatten().map(show).collect()
}

/// A major compaction counted a marker of the family that it keeps among the versions of the column without a name. Behind more of
/// these than are kept it dropped the marker, and what that hides in other columns was seen again.
#[test]
fn kept_markers_of_a_family_are_no_versions() {
    let markers = [CellType::DeleteFamily, CellType::DeleteFamilyVersion];
    for (keep, marker) in ["TRUE", "TTL", "FALSE"].into_iter().flat_map(|keep| markers.map(|it| (keep, it))) {
        let family =
            FamilyDescriptor::new("f").unwrap().with("KEEP_DELETED_CELLS", keep).with("VERSIONS", "1");
        let bench = Bench::new(&[family]);
        write(&bench, "", 25, CellType::Put);
        write(&bench, "q", 20, CellType::Put);
        write(&bench, "r", 10, CellType::Put);
        bench.region.flush(None).unwrap();
        write(&bench, "", 30, CellType::Put);
        write(&bench, "", 20, marker);
        let before = found(&bench, Scan::default());
        assert!(!before.iter().any(|cell| cell.contains("f:q")), "{before:?}");
        for step in ["flush", "compaction", "compaction again"] {
            match step {
                "flush" => _ = bench.region.flush(None).unwrap(),
                _ => _ = bench.compact(true).unwrap(),
            }
            assert_eq!(
                found(&bench, Scan::default()),
                before,
                "KEEP_DELETED_CELLS {keep}, {marker:?}, {step}"
            );
        }
        let raw = found(&bench, Scan { raw: true, max_versions: 9, ..Scan::default() });
        let markers = raw.iter().filter(|cell| cell.contains("Delete")).count();
        assert_eq!(markers, usize::from(keep != "FALSE"), "{raw:?}");
    }
}

/// The same marker in several files is one marker.
#[test]
fn kept_markers_of_a_family_do_not_add_up() {
    let family = FamilyDescriptor::new("f").unwrap().with("KEEP_DELETED_CELLS", "TRUE").with("VERSIONS", "1");
    let bench = Bench::new(&[family]);
    write(&bench, "q", 10, CellType::Put);
    for timestamp in [25, 26, 30, 31] {
        write(&bench, "", timestamp, CellType::Put);
        write(&bench, "", 20, CellType::DeleteFamily);
        bench.region.flush(None).unwrap();
    }
    bench.compact(true).unwrap();
    let raw = found(&bench, Scan { raw: true, max_versions: 9, ..Scan::default() });
    let markers: Vec<&String> = raw.iter().filter(|cell| cell.contains("Delete")).collect();
    assert_eq!(markers.len(), 1, "{raw:?}");
}

/// The hint of a filter led from the column without a name past the markers of the family. The cells that they hide were shown, until
/// a flush had removed them.
#[test]
fn hints_pass_no_marker_over() {
    let q = || bytes::Bytes::from_static(b"q");
    let filters: [fn(bytes::Bytes) -> Box<dyn Filter>; 7] = [
        |q| of("ColumnPrefixFilter", pb::ColumnPrefixFilter { prefix: q }),
        |q| of("MultipleColumnPrefixFilter", pb::MultipleColumnPrefixFilter { sorted_prefixes: vec![q] }),
        |q| {
            let min_column_inclusive = Some(true);
            of(
                "ColumnRangeFilter",
                pb::ColumnRangeFilter { min_column: Some(q), min_column_inclusive, ..Default::default() },
            )
        },
        |q| {
            let column_offset = Some(q);
            of(
                "ColumnPaginationFilter",
                pb::ColumnPaginationFilter { limit: 5, column_offset, ..Default::default() },
            )
        },
        |_| of("TimestampsFilter", pb::TimestampsFilter { timestamps: vec![10], can_hint: Some(true) }),
        |_| of("TimestampsFilter", pb::TimestampsFilter { timestamps: vec![10], can_hint: Some(false) }),
        |q| {
            let filter = pb::Filter {
                name: "org.apache.hadoop.hbase.filter.ColumnPrefixFilter".to_string(),
                serialized_filter: Some(pb::ColumnPrefixFilter { prefix: q }.encode_to_vec().into()),
            };
            let operator = pb::filter_list::Operator::MustPassAll as i32;
            of("FilterList", pb::FilterList { operator, filters: vec![filter] })
        },
    ];
    for new_version in ["false", "true"] {
        let family = FamilyDescriptor::new("f").unwrap().with("NEW_VERSION_BEHAVIOR", new_version);
        let bench = Bench::new(&[family]);
        write(&bench, "q", 10, CellType::Put);
        write(&bench, "", 20, CellType::DeleteFamily);
        write(&bench, "", 30, CellType::Put);
        for (flushed, reversed) in [(false, false), (false, true), (true, false), (true, true)] {
            if flushed {
                bench.region.flush(None).unwrap();
            }
            for (number, filter) in filters.iter().enumerate() {
                let filter = Some(filter(q()));
                let shown = found(&bench, Scan { filter, reversed, ..Scan::default() });
                assert!(
                    !shown.iter().any(|cell| cell.contains("f:q")),
                    "filter {number}, {flushed}: {shown:?}"
                );
            }
        }
    }
}

/// They are searched by halves. When each cell looked through all of them, a flush of a row with a million took a quarter of an hour.
#[test]
fn many_markers_of_single_versions_hide_theirs_and_no_others() {
    const COUNT: i64 = 2_000;
    for new_version_behavior in [false, true] {
        let family = FamilyDescriptor::new("f")
            .unwrap()
            .with("NEW_VERSION_BEHAVIOR", new_version_behavior.to_string());
        let bench = Bench::new(&[family]);
        let cell =
            |at, qualifier: &[u8], cell_type| Cell::build(b"r", b"f", qualifier, at, cell_type, b"v", b"", 0);
        let markers = (1..=COUNT).map(|at| cell(2 * at, b"", CellType::DeleteFamilyVersion)).collect();
        bench.mutate(mutation(MutationKind::Delete, b"r", markers)).unwrap();
        let puts = (1..=COUNT)
            .map(|at| cell(2 * at - at % 2, format!("{at:06}").as_bytes(), CellType::Put))
            .collect();
        bench.mutate(mutation(MutationKind::Put, b"r", puts)).unwrap();
        bench.region.flush(None).unwrap();
        let shown = bench.scan(Scan::default()).unwrap().concat().len();
        assert_eq!(shown as i64, if new_version_behavior { COUNT } else { COUNT / 2 });
    }
}

/// Each of them counted those before it, and read the row: with 200,000 it took minutes, with the row locked.
#[test]
fn many_version_deletes_of_one_column_take_one_version_each() {
    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap().with("VERSIONS", "10")]);
    (1..=5).for_each(|at| write(&bench, "q", at, CellType::Put));
    (1..=2).for_each(|at| write(&bench, "other", at, CellType::Put));
    let newest = |qualifier: &[u8]| {
        Cell::build(b"r", b"f", qualifier, LATEST_TIMESTAMP, CellType::Delete, b"", b"", 0)
    };
    let markers = [newest(b"q"), newest(b"other"), newest(b"q")].to_vec();
    bench.mutate(mutation(MutationKind::Delete, b"r", markers)).unwrap();
    let all = || Scan { max_versions: 10, ..Scan::default() };
    let left: Vec<i64> = bench.scan(all()).unwrap().concat().iter().map(Cell::timestamp).collect();
    assert_eq!(left, [1, 3, 2, 1], "the newest one of the first column, the two newest of the second");
    let markers = vec![newest(b"q"); 20_000];
    bench.mutate(mutation(MutationKind::Delete, b"r", markers)).unwrap();
    let left: Vec<i64> = bench.scan(all()).unwrap().concat().iter().map(Cell::timestamp).collect();
    assert_eq!(left, [1]);
}
