//! Values in mob files: what flushes and compactions write, what reads find, and what is cleaned.

use std::sync::Arc;

use crate::common::*;
use bytes::Bytes;
use halcyon_cell::{Cell, CellType, ErrorKind};
use halcyon_env::FileSystem;
use halcyon_filter::{Filter, parse_filter};
use halcyon_hfile::{HFile, ReaderOptions};
use halcyon_proto::pb;
use halcyon_region::*;
use halcyon_schema::mob::{MOB_CELLS_COUNT, MOB_FILE_REFS, MobFileName, MobFileRefs, MobReference};
use halcyon_schema::{FamilyDescriptor, TableDescriptor, layout};
use prost::Message;

const LARGE: &str = "a value of some length";

fn family() -> FamilyDescriptor {
    FamilyDescriptor::new("f")
        .unwrap()
        .with("IS_MOB", "true")
        .with("MOB_THRESHOLD", "10")
        .with("VERSIONS", "3")
}

fn put(bench: &Bench, row: &str, value: &str) {
    let cell = parse_cell(row, &format!("f:q={value}"), CellType::Put, false);
    bench.mutate(mutation(MutationKind::Put, row.as_bytes(), vec![cell])).unwrap();
    bench.clock.advance(std::time::Duration::from_millis(1));
}

fn flush(bench: &Bench) {
    bench.region.flush(None).unwrap();
}

fn values(bench: &Bench, mob: MobScan) -> Result<Vec<String>> {
    let cells = bench.scan(Scan { mob, ..Scan::default() })?.concat();
    Ok(cells.iter().map(|cell| String::from_utf8_lossy(cell.value()).into_owned()).collect())
}

type Result<T> = halcyon_cell::Result<T>;

fn read(bench: &Bench) -> Vec<String> {
    values(bench, MobScan::default()).unwrap()
}

fn references(bench: &Bench) -> Vec<Cell> {
    let mob = MobScan { raw: true, references_only: true, ..MobScan::default() };
    bench.scan(Scan { mob, ..Scan::default() }).unwrap().concat()
}

fn open(bench: &Bench, path: &std::path::Path) -> Arc<HFile> {
    let cache = Arc::new(halcyon_cache::BlockCache::new(1 << 20));
    HFile::open(&bench.env(), path, &cache, ReaderOptions::default()).unwrap()
}

fn store_refs(bench: &Bench) -> Vec<MobFileRefs> {
    let info = |name: &String| {
        let file = open(bench, &bench.region.dir().join("f").join(name));
        MobFileRefs::decode(file.info().get(MOB_FILE_REFS).expect("it is always there")).unwrap()
    };
    store_files(bench).iter().map(info).collect()
}

/// Opens the region again with another descriptor of its family.
fn alter(bench: &mut Bench, family: FamilyDescriptor) {
    bench.table = table(&[family]);
    bench.reopen().unwrap();
}

#[test]
fn a_flush_writes_large_values_to_a_mob_file() {
    let bench = Bench::new(&[family()]);
    put(&bench, "a", "small");
    put(&bench, "b", LARGE);
    put(&bench, "c", "0123456789");
    flush(&bench);
    assert_eq!(read(&bench), ["small", LARGE, "0123456789"], "the threshold itself is not over it");
    let files = bench.mob_files("f");
    assert_eq!(files.len(), 1);
    let name = MobFileName::parse(&files[0]).expect("a name as HBase makes it");
    assert_eq!((name.day, name.region), (19_700_101, bench.info.encoded_name()));
    let dir = layout::mob_family_dir(&root(), bench.table.name(), "f");
    let mob = open(&bench, &dir.join(&files[0]));
    assert_eq!(mob.info().get(MOB_CELLS_COUNT).unwrap()[..], 1i64.to_be_bytes());
    assert_eq!((mob.info().entry_count(), mob.bloom_bytes()), (1, 0));
    assert!(mob.info().max_seq_id().is_some() && !mob.info().is_major());
    let found = references(&bench);
    let reference = MobReference::of(found[0].get()).unwrap();
    assert_eq!((found.len(), reference.file, reference.value_len), (1, &*files[0], LARGE.len() as u32));
    assert_eq!(store_refs(&bench)[0].iter().collect::<Vec<_>>(), [(bench.table.name(), &*files[0])]);
    let counts = bench.region.mob_counts();
    assert_eq!((counts.flushes, counts.flushed_cells, counts.flushed_bytes), (1, 1, LARGE.len() as u64));
    assert_eq!((counts.scanned_cells, counts.scanned_bytes), (1, LARGE.len() as u64));
    put(&bench, "d", "small");
    flush(&bench);
    assert_eq!(bench.mob_files("f").len(), 1, "no value, no file");
    assert!(store_refs(&bench).iter().any(MobFileRefs::is_empty));
}

#[test]
fn every_way_of_reading_follows_references() {
    let mut bench = Bench::new(&[family()]);
    put(&bench, "a", LARGE);
    put(&bench, "b", "small");
    put(&bench, "b", LARGE);
    flush(&bench);
    let all = |scan: Scan| bench.scan(scan).unwrap().concat();
    let cells = all(Scan { reversed: true, max_versions: 3, ..Scan::default() });
    let shown: Vec<_> = cells.iter().map(|cell| (cell.row(), cell.value())).collect();
    assert_eq!(shown, [(&b"b"[..], LARGE.as_bytes()), (b"b", b"small"), (b"a", LARGE.as_bytes())]);
    assert_eq!(all(Scan { raw: true, max_versions: 3, ..Scan::default() }).len(), 3);
    assert!(cells.iter().all(|cell| cell.tags().is_empty()), "the tags of references stay inside");
    let get = |mode| {
        bench.region.get(Scan::of_row(Bytes::from_static(b"a")), mode).map(|cells| cells[0].value().to_vec())
    };
    assert_eq!(get(ReadMode::AnyDisk).unwrap(), LARGE.as_bytes());
    let suffix = parse_cell("a", "f:q=!", CellType::Put, false);
    let appended = bench.mutate(mutation(MutationKind::Append, b"a", vec![suffix])).unwrap().unwrap();
    assert_eq!(appended[0].value(), format!("{LARGE}!").as_bytes());
    let only = values(&bench, MobScan { references_only: true, ..MobScan::default() }).unwrap();
    assert_eq!(only, [LARGE, LARGE], "what is in memory is no reference, so the older version is found");
    // A server that has nothing open asks for the disk.
    bench.reopen().unwrap();
    let get = bench.region.get(Scan::of_row(Bytes::from_static(b"b")), ReadMode::CacheOnly);
    assert_eq!(get.unwrap_err().kind(), ErrorKind::NeedsDisk);
}

#[test]
fn answers_count_the_values() {
    let bench = Bench::new(&[family()]);
    let value = "v".repeat(1000);
    (0..10).for_each(|row| put(&bench, &format!("r{row}"), &value));
    flush(&bench);
    let mut scanner = bench.region.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    let mut limits = ScanLimits { size_bytes_left: 2_500, may_cut_row: true, deadline_ns: None };
    let mut cells = Vec::new();
    while limits.size_bytes_left > 0 {
        scanner.next(&mut limits, &mut cells).unwrap();
    }
    assert_eq!(cells.len(), 3, "references alone would be much shorter");
}

#[test]
fn a_mob_file_is_found_in_the_archive_and_missed_where_it_is_nowhere() {
    let mut bench = Bench::new(&[family()]);
    put(&bench, "a", LARGE);
    put(&bench, "b", "small");
    flush(&bench);
    let file = bench.mob_files("f").remove(0);
    let live = layout::mob_family_dir(&root(), bench.table.name(), "f").join(&file);
    let archive = layout::mob_archive_dir(&root(), bench.table.name(), "f");
    bench.fs.create_dir_all(&archive).unwrap();
    bench.fs.rename(&live, &archive.join(&file)).unwrap();
    assert_eq!(read(&bench), [LARGE, "small"]);
    bench.fs.remove_file(&archive.join(&file)).unwrap();
    assert_eq!(read(&bench), [LARGE, "small"], "it is still open");
    bench.reopen().unwrap();
    let error = values(&bench, MobScan::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.message().contains("java.io.FileNotFoundException") && error.message().contains(&file),
        "{error}"
    );
    assert!(bench.compact(true).is_err(), "a value is not dropped");
    assert_eq!(values(&bench, MobScan { empty_on_miss: true, ..MobScan::default() }).unwrap(), ["", "small"]);
    assert_eq!(values(&bench, MobScan { raw: true, ..MobScan::default() }).unwrap().len(), 2);
    alter(&mut bench, family().with_configuration("hbase.unsafe.mob.discard.miss", "true"));
    bench.compact(true).unwrap();
    assert_eq!(read(&bench), ["small"]);
}

#[test]
fn a_damaged_mob_file_is_an_error_of_its_cells_only() {
    let mut bench = Bench::new(&[family()]);
    put(&bench, "a", LARGE);
    put(&bench, "b", "small");
    flush(&bench);
    let file = bench.mob_files("f").remove(0);
    let live = layout::mob_family_dir(&root(), bench.table.name(), "f").join(&file);
    let whole = bench.fs.read(&live).unwrap();
    for cut in [0, 10, whole.len() / 2, whole.len() - 1] {
        bench.fs.replace(&live, &whole[..cut]).unwrap();
        bench.reopen().unwrap();
        let error = values(&bench, MobScan::default()).unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt || error.kind() == ErrorKind::Invalid, "{error:?}");
        let of_b = bench.region.get(Scan::of_row(Bytes::from_static(b"b")), ReadMode::AnyDisk).unwrap();
        assert_eq!(of_b[0].value(), b"small");
    }
}

#[test]
fn compactions_keep_references_and_a_users_major_one_rewrites_values() {
    let bench = Bench::new(&[family()]);
    for value in ["one", "two", "three"] {
        put(&bench, value, &format!("{LARGE} {value}"));
        flush(&bench);
    }
    let before = bench.mob_files("f");
    assert_eq!(before.len(), 3);
    let request = CompactionRequest { major: true, user: false };
    bench.region.compact(None, request, &mut &std::sync::atomic::AtomicBool::new(false)).unwrap();
    assert_eq!((store_files(&bench).len(), bench.mob_files("f")), (1, before.clone()));
    assert_eq!(store_refs(&bench)[0].iter().count(), 3);
    assert_eq!(bench.region.archive_unused_mob_files(-1).unwrap(), 0);
    bench.compact(true).unwrap();
    assert_eq!((bench.mob_files("f").len(), store_refs(&bench)[0].iter().count()), (4, 1));
    assert_eq!(bench.region.archive_unused_mob_files(3_600_000).unwrap(), 0, "they are too young");
    assert_eq!(bench.region.archive_unused_mob_files(-1).unwrap(), 3);
    let left = bench.mob_files("f");
    assert_eq!(left.len(), 1);
    let mob = open(&bench, &layout::mob_family_dir(&root(), bench.table.name(), "f").join(&left[0]));
    assert!(mob.info().is_major());
    assert_eq!(mob.info().get(MOB_CELLS_COUNT).unwrap()[..], 3i64.to_be_bytes());
    assert_eq!(read(&bench).len(), 3);
    // A delete takes the value with it.
    bench.mutate(mutation(MutationKind::Delete, b"one", Vec::new())).unwrap();
    flush(&bench);
    bench.compact(true).unwrap();
    bench.clean_mob_files().unwrap();
    assert_eq!((read(&bench).len(), bench.mob_files("f").len()), (2, 1));
}

#[test]
fn the_threshold_and_the_attribute_may_change() {
    let mut bench = Bench::new(&[family().with("IS_MOB", "false")]);
    put(&bench, "a", LARGE);
    flush(&bench);
    assert!(bench.mob_files("f").is_empty());
    alter(&mut bench, family());
    put(&bench, "b", LARGE);
    flush(&bench);
    // Any compaction brings values of store files out.
    let request = CompactionRequest { major: true, user: false };
    bench.region.compact(None, request, &mut &std::sync::atomic::AtomicBool::new(false)).unwrap();
    assert_eq!((references(&bench).len(), read(&bench).len()), (2, 2));
    assert_eq!(bench.region.mob_counts().compacted_to_mob_cells, 1);
    alter(&mut bench, family().with("MOB_THRESHOLD", "1000"));
    bench.compact(true).unwrap();
    assert_eq!((references(&bench).len(), read(&bench).len()), (0, 2), "they are not over it any more");
    assert_eq!(bench.region.mob_counts().compacted_from_mob_cells, 2);
    bench.clean_mob_files().unwrap();
    assert!(bench.mob_files("f").is_empty());
    alter(&mut bench, family());
    bench.compact(true).unwrap();
    assert_eq!(references(&bench).len(), 2);
    // Turned off, references are still followed, and a major compaction brings the values back.
    alter(&mut bench, family().with("IS_MOB", "false"));
    assert_eq!(read(&bench), [LARGE, LARGE]);
    let only = MobScan { raw: true, ..MobScan::default() };
    assert_ne!(values(&bench, only).unwrap(), [LARGE, LARGE]);
    bench.compact(true).unwrap();
    assert_eq!(values(&bench, only).unwrap(), [LARGE, LARGE]);
    assert_eq!(bench.clean_mob_files().unwrap(), 1, "nothing refers to it");
}

#[test]
fn the_optimized_mode_leaves_large_files_alone() {
    let optimized = |max: &str| {
        family()
            .with_configuration("hbase.mob.compaction.type", "optimized")
            .with_configuration("hbase.mob.compactions.max.file.size", max)
    };
    let mut bench = Bench::new(&[optimized("100")]);
    for row in ["a", "b"] {
        put(&bench, row, LARGE);
        flush(&bench);
    }
    let before = bench.mob_files("f");
    bench.compact(true).unwrap();
    assert_eq!((bench.mob_files("f"), references(&bench).len()), (before, 2), "each is over 100 bytes");
    alter(&mut bench, optimized("1000000"));
    bench.compact(true).unwrap();
    bench.clean_mob_files().unwrap();
    assert_eq!((bench.mob_files("f").len(), read(&bench).len()), (1, 2));
    // New files end when they are over the limit.
    let value = "v".repeat(500);
    (0..8).for_each(|row| put(&bench, &format!("c{row}"), &value));
    flush(&bench);
    alter(&mut bench, family().with("MOB_THRESHOLD", "10000"));
    bench.compact(true).unwrap();
    bench.clean_mob_files().unwrap();
    alter(&mut bench, optimized("1100"));
    bench.compact(true).unwrap();
    assert!(bench.mob_files("f").len() >= 3, "{:?}", bench.mob_files("f"));
    assert_eq!(read(&bench).len(), 10);
}

#[test]
fn a_store_file_that_does_not_tell_its_references_stops_the_cleaner() {
    let mut bench = Bench::new(&[family()]);
    put(&bench, "a", LARGE);
    flush(&bench);
    bench.compact(true).unwrap();
    // A time to live makes tags, so the file could have references for all that is known of it.
    alter(&mut bench, family().with("IS_MOB", "false"));
    let cell = parse_cell("b", "f:q=x", CellType::Put, false);
    let ttl = Mutation { cell_ttl_ms: Some(1 << 40), ..mutation(MutationKind::Put, b"b", vec![cell]) };
    bench.mutate(ttl).unwrap();
    flush(&bench);
    assert_eq!(bench.region.archive_unused_mob_files(-1).unwrap(), 0);
    bench.compact(true).unwrap();
    assert_eq!(bench.region.archive_unused_mob_files(-1).unwrap(), 2);
}

#[test]
fn the_cache_of_open_files_has_a_limit() {
    let bench = Bench::new(&[family()]);
    for row in 0..10 {
        put(&bench, &format!("r{row}"), LARGE);
        flush(&bench);
    }
    for (max, kept) in [(4, 1..=4), (0, 0..=0)] {
        let cache = MobFileCache::new(max, 0.5);
        let services = bench.services_with(cache.clone());
        let region = Region::open(services, &root(), bench.info.clone(), bench.table.clone()).unwrap();
        for row in 0..10 {
            let row = Bytes::from(format!("r{row}"));
            let cells = region.get(Scan::of_row(row), ReadMode::AnyDisk).unwrap();
            assert_eq!(cells[0].value(), LARGE.as_bytes());
        }
        let stats = cache.stats();
        assert!(kept.contains(&stats.files), "{stats:?}");
        assert_eq!(stats.misses, if max > 0 { 10 } else { 0 });
    }
}

#[test]
fn attributes_of_a_table_reach_compactions() {
    let named = |value: &str| {
        let table = TableDescriptor::new(table(&[family()]).name().clone()).with_family(family());
        table.with("hbase.mob.compaction.type", value)
    };
    for (value, expected) in [("optimized", MobCompactionType::Optimized), ("other", MobCompactionType::Full)]
    {
        let settings = MobSettings { compaction_type: value.to_string(), ..MobSettings::default() };
        assert_eq!(settings.compaction_type(), expected);
        assert!(named(value).setting("hbase.mob.compaction.type").is_some());
    }
}

fn filter(name: &str, message: impl Message) -> pb::Filter {
    let name = format!("org.apache.hadoop.hbase.filter.{name}");
    pb::Filter { name, serialized_filter: Some(message.encode_to_vec().into()) }
}

fn is_large() -> pb::Comparator {
    let comparable = pb::ByteArrayComparable { value: Some(Bytes::from_static(LARGE.as_bytes())) };
    pb::Comparator {
        name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_string(),
        serialized_comparator: Some(pb::BinaryComparator { comparable }.encode_to_vec().into()),
    }
}

/// Filters that look at values, each alone and inside others.
fn filters_of_values() -> Vec<pb::Filter> {
    let (op, f, q) = (pb::CompareType::Equal as i32, Bytes::from_static(b"f"), Bytes::from_static(b"q"));
    let value = pb::ValueFilter {
        compare_filter: pb::CompareFilter { compare_op: op, comparator: Some(is_large()) },
    };
    let value = filter("ValueFilter", value);
    let single = |latest| pb::SingleColumnValueFilter {
        column_family: Some(f.clone()),
        column_qualifier: Some(q.clone()),
        compare_op: op,
        comparator: is_large(),
        filter_if_missing: Some(true),
        latest_version_only: Some(latest),
    };
    let one = pb::ColumnValueFilter {
        family: f.clone(),
        qualifier: q.clone(),
        compare_op: op,
        comparator: is_large(),
    };
    let dependent = pb::DependentColumnFilter {
        compare_filter: pb::CompareFilter { compare_op: op, comparator: Some(is_large()) },
        column_family: Some(f.clone()),
        column_qualifier: Some(q.clone()),
        drop_dependent_column: Some(false),
    };
    let list = |operator| {
        let keys = filter("KeyOnlyFilter", pb::KeyOnlyFilter { len_as_val: true });
        filter("FilterList", pb::FilterList { operator, filters: vec![value.clone(), keys] })
    };
    let excluding = pb::SingleColumnValueExcludeFilter { single_column_value_filter: single(true) };
    vec![
        filter("SingleColumnValueFilter", single(true)),
        filter("SingleColumnValueFilter", single(false)),
        filter("SingleColumnValueExcludeFilter", excluding),
        filter("ColumnValueFilter", one),
        filter("DependentColumnFilter", dependent),
        filter("KeyOnlyFilter", pb::KeyOnlyFilter { len_as_val: true }),
        filter("KeyOnlyFilter", pb::KeyOnlyFilter { len_as_val: false }),
        filter("SkipFilter", pb::SkipFilter { filter: value.clone() }),
        filter("WhileMatchFilter", pb::WhileMatchFilter { filter: value.clone() }),
        list(pb::filter_list::Operator::MustPassAll as i32),
        list(pb::filter_list::Operator::MustPassOne as i32),
        value,
    ]
}

/// A filter saw the value of a cell while that was in memory, and the length and file name of a reference once it was flushed. So a
/// flush changed what a scan found, also in the middle of it.
#[test]
fn a_filter_sees_the_value_wherever_it_stands() {
    let bench = Bench::new(&[family()]);
    for (row, value) in [("a", "small"), ("b", LARGE), ("c", "another value that is large"), ("d", LARGE)] {
        put(&bench, row, value);
    }
    let found = |filter: &pb::Filter, reversed, mode| {
        let parsed: Box<dyn Filter> = parse_filter(filter).unwrap();
        let scan = Scan { filter: Some(parsed), reversed, ..Scan::default() };
        let mut scanner = bench.region.scanner(scan, mode)?;
        let mut cells = Vec::new();
        while scanner.next(&mut ScanLimits::NONE.clone(), &mut cells)? != NextState::Exhausted {}
        Ok(cells.iter().map(show).collect::<Vec<String>>())
    };
    let all = |mode| -> Vec<Result<Vec<String>>> {
        let filters = filters_of_values();
        let both = filters.iter().flat_map(|filter| [(filter, false), (filter, true)]);
        both.map(|(filter, reversed)| found(filter, reversed, mode)).collect()
    };
    let whole = |found: Vec<Result<Vec<String>>>| found.into_iter().map(|it| it.unwrap()).collect::<Vec<_>>();
    let in_memory = whole(all(ReadMode::AnyDisk));
    assert_eq!(in_memory[0].len(), 2, "{in_memory:?}");
    flush(&bench);
    let before = bench.region.mob_counts().scanned_cells;
    assert_eq!(whole(all(ReadMode::AnyDisk)), in_memory);
    let returned = bench.region.mob_counts().scanned_cells - before;
    let values = in_memory.iter().flatten().filter(|cell| cell.contains(&format!("={LARGE}"))).count();
    assert!(returned as usize >= values, "{returned}");
    for found in all(ReadMode::CacheOnly).into_iter().zip(in_memory) {
        match found {
            (Ok(found), expected) => assert_eq!(found, expected),
            (Err(error), _) => assert_eq!(error.kind(), ErrorKind::NeedsDisk),
        }
    }
    // Who wants references filters by references.
    let mob = MobScan { raw: true, ..MobScan::default() };
    let value = filters_of_values().pop().unwrap();
    let raw = Scan { mob, filter: Some(parse_filter(&value).unwrap()), ..Scan::default() };
    assert_eq!(bench.scan(raw).unwrap().len(), 0);
    let mob = MobScan { references_only: true, ..MobScan::default() };
    let only = Scan { mob, filter: Some(parse_filter(&value).unwrap()), ..Scan::default() };
    assert_eq!(bench.scan(only).unwrap().len(), 2);
}

/// What a filter had looked at last and refused, or had made something else of, stayed with the scanner for as long as that was
/// open: a value of any size, in no account.
#[test]
fn a_scanner_keeps_no_value_that_its_filter_refused() {
    const HUGE: usize = 200_000;
    let bench = Bench::new(&[family()]);
    put(&bench, "a", LARGE);
    put(&bench, "z", &"x".repeat(HUGE));
    flush(&bench);
    for filter in filters_of_values() {
        let scan = Scan { filter: Some(parse_filter(&filter).unwrap()), ..Scan::default() };
        let mut scanner = bench.region.scanner(scan, ReadMode::AnyDisk).unwrap();
        let mut cells = Vec::new();
        while scanner.next(&mut ScanLimits::NONE.clone(), &mut cells).unwrap() != NextState::Exhausted {}
        assert!(scanner.held_bytes() < HUGE as u64 / 2, "{}: {}", filter.name, scanner.held_bytes());
    }
}

/// A cell whose tags leave no room for those of a reference stopped every flush of its region.
#[test]
fn a_value_whose_tags_leave_no_room_stays_in_the_store_file() {
    let bench = Bench::new(&[family()]);
    let mut tags = Vec::new();
    halcyon_cell::append_tag(&mut tags, 77, &vec![1; 65_530]);
    let cell = Cell::build(b"r", b"f", b"q", 5, CellType::Put, LARGE.as_bytes(), &tags, 0);
    bench.mutate(mutation(MutationKind::Put, b"r", vec![cell])).unwrap();
    flush(&bench);
    assert_eq!((read(&bench), bench.mob_files("f").len()), (vec![LARGE.to_string()], 0));
    bench.compact(true).unwrap();
    assert_eq!(read(&bench), [LARGE]);
}

/// A scanner needed the older of two writes of one key when a compaction of old files set the sequence id of its reference to 0. Such a
/// reference stands for the newest write in the mob file, and the scanner got that value.
#[test]
fn a_scanner_gets_the_older_of_two_values_of_a_key() {
    let bench = Bench::new(&[family()]);
    let put_at_5 = |value: &str| {
        let cell = Cell::put(b"a", b"f", b"q", 5, value.as_bytes());
        bench.mutate(mutation(MutationKind::Put, b"a", vec![cell])).unwrap();
    };
    put_at_5("the older of two values");
    let mut scanner = bench.region.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    put_at_5("the newer of two values");
    flush(&bench);
    put(&bench, "b", LARGE);
    flush(&bench);
    bench.clock.advance(std::time::Duration::from_secs(6 * 24 * 60 * 60));
    bench.compact(true).unwrap();
    drop(scanner.let_go());
    let mut found = Vec::new();
    while scanner.next(&mut ScanLimits::NONE.clone(), &mut found).unwrap() != NextState::Exhausted {}
    let found: Vec<&[u8]> = found.iter().map(Cell::value).collect();
    assert_eq!(found, [b"the older of two values"]);
    assert_eq!(read(&bench), ["the newer of two values", LARGE]);
}

fn made_up(tag: &[u8]) -> Cell {
    let mut tags = Vec::new();
    halcyon_cell::append_tag(&mut tags, halcyon_cell::TagType::MOB_REFERENCE, tag);
    Cell::build(b"m", b"f", b"q", 5, CellType::Put, b"x", &tags, 0)
}

/// A client could write one. From then on no compaction of its file and no scan over its row came to an end.
#[test]
fn a_reference_that_a_client_made_up_is_refused() {
    let bench = Bench::new(&[family()]);
    let error = bench.mutate(mutation(MutationKind::Put, b"m", vec![made_up(b"")])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    put(&bench, "r", LARGE);
    assert_eq!(read(&bench), [LARGE]);
}

#[test]
fn a_reference_that_makes_no_sense_stops_no_compaction() {
    let bench = Bench::new(&[family()]);
    put(&bench, "a", LARGE);
    flush(&bench);
    let path = std::path::Path::new("/out/f/0123abcd");
    bench.fs.create_dir_all(path.parent().unwrap()).unwrap();
    let options =
        halcyon_hfile::WriterOptions { include_tags: true, ..halcyon_hfile::WriterOptions::default() };
    let mut writer = halcyon_hfile::HFileWriter::create(&bench.env(), path, options).unwrap();
    writer.append(made_up(b"").get()).unwrap();
    writer.finish(halcyon_hfile::FileMeta::default()).unwrap();
    bench.fs.sync_dir(path.parent().unwrap()).unwrap();
    let family = Bytes::from_static(b"f");
    let files = vec![BulkLoadFile { family, path: path.to_path_buf(), from: None, copy: false }];
    bench
        .region
        .bulk_load(&BulkLoad { files, assign_seq: true, cluster_ids: Vec::new(), replicate: false })
        .unwrap();
    bench.compact(false).unwrap();
    bench.compact(true).unwrap();
    assert_eq!(references(&bench).len(), 2, "it is left as it is");
    let rest = bench.scan(Scan { stop_row: Bytes::from_static(b"b"), ..Scan::default() }).unwrap().concat();
    assert_eq!(rest[0].value(), LARGE.as_bytes());
}
