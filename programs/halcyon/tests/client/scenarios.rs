//! What a program does with the client, and what must come of it on HBase and Halcyon alike.

use std::time::Duration;

use halcyon_client::{
    Append, Bytes, Cell, CheckAndMutate, ClientError, Cluster, ClusterAddress, ClusterOptions,
    CompactionState, Comparator, CompareOp, Delete, FamilyDescriptor, Filter, Get, Increment, Put,
    RowMutations, RowRange, Scan, SnapshotType, Switch, TableDescriptor, TableName, TableState,
};

pub async fn all(address: ClusterAddress) {
    let cluster = connect(address).await;
    rows(&cluster).await;
    scans(&cluster).await;
    filters(&cluster).await;
    errors(&cluster).await;
    tables(&cluster).await;
    regions(&cluster).await;
    snapshots(&cluster).await;
    master(&cluster).await;
}

pub async fn connect(address: ClusterAddress) -> Cluster {
    Cluster::connect(address, ClusterOptions::default()).await.unwrap()
}

fn name(text: &str) -> TableName {
    TableName::parse(text.as_bytes()).unwrap()
}

/// A new table with families `f`, which keeps three versions, and `g`.
async fn create(cluster: &Cluster, table: &str, splits: &[&'static str]) -> halcyon_client::Table {
    let admin = cluster.admin().await.unwrap();
    if admin.table_exists(&name(table)).await.unwrap() {
        admin.drop_table(&name(table)).await.unwrap();
    }
    let descriptor = TableDescriptor::new(name(table))
        .with_family(FamilyDescriptor::new("f").unwrap().with("VERSIONS", "3"))
        .with_family(FamilyDescriptor::new("g").unwrap());
    let splits = splits.iter().map(|split| Bytes::from_static(split.as_bytes())).collect();
    admin.create_table(&descriptor, splits).await.unwrap();
    cluster.table(name(table), 0)
}

async fn drop_table(cluster: &Cluster, table: &str) {
    cluster.admin().await.unwrap().drop_table(&name(table)).await.unwrap();
}

async fn keys(table: &halcyon_client::Table, scan: Scan) -> String {
    let mut rows = table.scan(scan);
    let mut keys = Vec::new();
    while let Some(row) = rows.next().await.unwrap() {
        keys.push(String::from_utf8(row.key().to_vec()).unwrap());
    }
    keys.join(" ")
}

pub async fn rows(cluster: &Cluster) {
    let table = create(cluster, "client-rows", &["m"]).await;
    table.put(Put::new("a").column_at("f", "q", 1, "one").column_at("f", "q", 2, "two")).await.unwrap();
    table.put(Put::new("a").column("g", "q", "other")).await.unwrap();
    let row = table.get(Get::new("a")).await.unwrap();
    assert_eq!((row.value("f", "q"), row.value("g", "q")), (Some(&b"two"[..]), Some(&b"other"[..])));
    let versions = table.get(Get::new("a").column("f", "q").all_versions()).await.unwrap();
    assert_eq!(versions.iter().map(|cell| cell.timestamp()).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(table.get(Get::new("a").timestamp(1)).await.unwrap().value("f", "q"), Some(&b"one"[..]));
    assert!(table.get(Get::new("nowhere")).await.unwrap().is_empty());
    assert!(table.exists(Get::new("a").family("g")).await.unwrap());
    assert!(!table.exists(Get::new("nowhere")).await.unwrap());

    table.delete(Delete::new("a").version("f", "q", 2)).await.unwrap();
    assert_eq!(table.get(Get::new("a")).await.unwrap().value("f", "q"), Some(&b"one"[..]));
    table.delete(Delete::new("a").family("g")).await.unwrap();
    assert!(table.get(Get::new("a").family("g")).await.unwrap().is_empty());
    table.delete(Delete::new("a")).await.unwrap();
    assert!(table.get(Get::new("a")).await.unwrap().is_empty());

    let counted = table.increment(Increment::new("n").column("f", "c", 5)).await.unwrap();
    assert_eq!(counted.counter("f", "c"), Some(5));
    let counted = table.increment(Increment::new("n").column("f", "c", -7)).await.unwrap();
    assert_eq!(counted.counter("f", "c"), Some(-2));
    let silent = Increment::new("n").column("f", "c", 1).return_results(false);
    assert!(table.increment(silent).await.unwrap().is_empty());
    table.append(Append::new("n").column("f", "t", "ab")).await.unwrap();
    let text = table.append(Append::new("n").column("f", "t", "cd")).await.unwrap();
    assert_eq!(text.value("f", "t"), Some(&b"abcd"[..]));
    table.put(Put::new("n").column("f", "soon", "v").ttl(Duration::from_millis(1))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(table.get(Get::new("n")).await.unwrap().value("f", "soon").is_none());

    conditions(&table).await;
    batches(&table).await;
    drop_table(cluster, "client-rows").await;
}

async fn conditions(table: &halcyon_client::Table) {
    let put = |value: &str| Put::new("c").column("f", "q", value);
    let check =
        |check: CheckAndMutate| async move { table.check_and_mutate(&check).await.unwrap().processed };
    assert!(check(CheckAndMutate::row("c").if_not_exists("f", "q").then(put("1"))).await);
    assert!(!check(CheckAndMutate::row("c").if_not_exists("f", "q").then(put("2"))).await);
    assert!(check(CheckAndMutate::row("c").if_equals("f", "q", "1").then(put("5"))).await);
    // the value on the right: 3 is less than what is there
    let less = CheckAndMutate::row("c").if_matches("f", "q", CompareOp::Less, Comparator::binary("3"));
    assert!(check(less.then(put("7"))).await);
    let filter = Filter::value(CompareOp::Equal, Comparator::binary("no"));
    assert!(!check(CheckAndMutate::row("c").if_filter(filter).then(put("9"))).await);
    let several = RowMutations::new("c")
        .with(Increment::new("c").column("f", "n", 3))
        .with(Delete::new("c").column("f", "q"));
    let several = CheckAndMutate::row("c").if_equals("f", "q", "7").then(several);
    let result = table.check_and_mutate(&several).await.unwrap();
    assert_eq!((result.processed, result.row.counter("f", "n")), (true, Some(3)));
    let row = table.get(Get::new("c")).await.unwrap();
    assert_eq!((row.counter("f", "n"), row.value("f", "q")), (Some(3), None));
}

async fn batches(table: &halcyon_client::Table) {
    let taken = CheckAndMutate::row("y").if_equals("f", "q", "no").then(Delete::new("y"));
    let both = RowMutations::new("y")
        .with(Put::new("y").column("f", "q", "v"))
        .with(Append::new("y").column("f", "a", "x"));
    let actions = [
        Put::new("b").column("f", "q", "v").into(),
        Put::new("b").column("missing", "q", "v").into(),
        Increment::new("z").column("f", "c", 4).into(),
        both.into(),
        Put::new("").column("f", "q", "v").into(),
    ];
    let results = table.batch(&actions).await;
    assert!(results[0].is_ok());
    assert!(results[1].as_ref().unwrap_err().is_exception("NoSuchColumnFamilyException"));
    assert_eq!(results[2].as_ref().unwrap().row.counter("f", "c"), Some(4));
    assert!(results[3].as_ref().unwrap().processed);
    assert!(matches!(results[4], Err(ClientError::Invalid(_))));
    let results = table.batch(&[taken.into(), Get::new("y").into(), Get::new("b").into()]).await;
    assert!(!results[0].as_ref().unwrap().processed);
    assert_eq!(results[1].as_ref().unwrap().row.value("f", "a"), Some(&b"x"[..]));
    assert_eq!(results[2].as_ref().unwrap().row.value("f", "q"), Some(&b"v"[..]));
    table.put_all((0..50).map(|n| Put::new(format!("p{n:02}")).column("g", "q", "v"))).await.unwrap();
    let found = table.get_all((0..50).map(|n| Get::new(format!("p{n:02}")))).await.unwrap();
    assert!(found.iter().all(|row| row.len() == 1));

    let mut buffer = table.buffered(2_000);
    for n in 0..100 {
        buffer.mutate(Put::new(format!("q{n:02}")).column("f", "q", [0; 100])).await.unwrap();
    }
    buffer.mutate(Put::new("q").column("missing", "q", "v")).await.unwrap();
    let error = buffer.close().await.unwrap_err();
    assert_eq!((error.failures.len(), &error.failures[0].0.row()[..]), (1, &b"q"[..]));
    assert!(error.failures[0].1.is_exception("NoSuchColumnFamilyException"));
}

pub async fn scans(cluster: &Cluster) {
    let table = create(cluster, "client-scans", &["d", "h"]).await;
    let letters: Vec<String> = ('a'..='k').map(String::from).collect();
    let put = |key: &String| {
        let put = Put::new(key).column("f", "1", key).column("f", "2", key).column("f", "3", key);
        put.column("g", "4", key).column("g", "5", key)
    };
    table.put_all(letters.iter().map(put)).await.unwrap();
    assert_eq!(keys(&table, Scan::new()).await, "a b c d e f g h i j k");
    assert_eq!(keys(&table, Scan::new().caching(2).reversed(true)).await, "k j i h g f e d c b a");
    assert_eq!(keys(&table, Scan::new().start("c").stop("f")).await, "c d e");
    assert_eq!(keys(&table, Scan::new().start_after("c").stop_inclusive("h").caching(1)).await, "d e f g h");
    assert_eq!(keys(&table, Scan::new().reversed(true).start("h").stop("c")).await, "h g f e d");
    assert_eq!(
        keys(&table, Scan::new().reversed(true).start_after("h").stop_inclusive("d")).await,
        "g f e d"
    );
    assert_eq!(keys(&table, Scan::new().limit(5).caching(2)).await, "a b c d e");
    assert_eq!(keys(&table, Scan::prefix("e")).await, "e");
    assert_eq!(keys(&table, Scan::new().start("z")).await, "");

    // parts of rows: by cells, and as they come
    let mut batched = table.scan(Scan::new().batch(2).stop("c").caching(3));
    let mut parts = Vec::new();
    while let Some(part) = batched.next().await.unwrap() {
        parts.push((part.key().to_vec(), part.len(), part.has_more_cells()));
    }
    let key = |key: &str| key.as_bytes().to_vec();
    let expected: Vec<_> = ["a", "b"]
        .iter()
        .flat_map(|row| [(key(row), 2, true), (key(row), 2, true), (key(row), 1, false)])
        .collect();
    assert_eq!(parts, expected);
    let mut partial = table.scan(Scan::new().allow_partial_rows().response_bytes_max(1).start("d").limit(2));
    let mut cells: Vec<Cell> = Vec::new();
    while let Some(part) = partial.next().await.unwrap() {
        cells.extend(part);
    }
    assert_eq!(cells.len(), 10);

    let mut renewed = table.scan(Scan::new().caching(1));
    renewed.next().await.unwrap();
    renewed.renew().await.unwrap();
    assert_eq!(renewed.next().await.unwrap().unwrap().key(), b"b");
    renewed.close().await;
    let mut stream = table.scan(Scan::new().caching(2)).into_stream();
    let mut count = 0;
    while let Some(row) = stream.next().await {
        count += row.unwrap().len();
    }
    assert_eq!(count, 55);

    // A region moves in the middle of a scan.
    let admin = cluster.admin().await.unwrap();
    let mut moved = table.scan(Scan::new().caching(1));
    let mut seen = String::new();
    while let Some(row) = moved.next().await.unwrap() {
        seen.push_str(std::str::from_utf8(row.key()).unwrap());
        if row.key() == b"b" || row.key() == b"f" {
            let region = admin.region_of_row(table.name(), row.key()).await.unwrap().region;
            admin.unassign_region(region.region_name(), false).await.unwrap();
            admin.assign_region(region.encoded_name().as_bytes()).await.unwrap();
        }
    }
    assert_eq!(seen, "abcdefghijk");
    drop_table(cluster, "client-scans").await;
}

pub async fn filters(cluster: &Cluster) {
    let table = create(cluster, "client-filters", &[]).await;
    let put = |row: &str, q: &str, value: &str, ts: i64| Put::new(row).column_at("f", q, ts, value);
    // No value is shorter than what is compared: HBase's BinaryComponentComparator reads behind the end of a short one.
    let puts = [
        put("a1", "x", "red", 1).column_at("f", "y", 5, "rim"),
        put("a2", "x", "green", 2).column_at("f", "z", 5, "gem"),
        put("b1", "x", "blue", 3),
        put("b2", "y", "red", 4),
    ];
    table.put_all(puts).await.unwrap();
    let equal = CompareOp::Equal;
    let x = |value: &str| Filter::column_value("f", "x", equal, Comparator::binary(value));
    let cases = [
        (Filter::prefix("a"), "a1 a2"),
        (Filter::row(CompareOp::GreaterOrEqual, Comparator::binary("b")), "b1 b2"),
        (Filter::row(equal, Comparator::regex("[ab]1")), "a1 b1"),
        (Filter::inclusive_stop("b1"), "a1 a2 b1"),
        (Filter::page(3), "a1 a2 b1"),
        (Filter::row_ranges([RowRange::new("a2", "b2")]), "a2 b1"),
        (Filter::fuzzy_rows([(b"?2", [1u8, 0])]), "a2 b2"),
        (Filter::family(equal, Comparator::binary("g")), ""),
        (Filter::qualifier(equal, Comparator::binary("y")), "a1 b2"),
        (Filter::column_prefix("z"), "a2"),
        (Filter::column_prefixes(["z", "y"]), "a1 a2 b2"),
        (Filter::column_range(Some((b"y", true)), None), "a1 a2 b2"),
        (Filter::value(equal, Comparator::substring("RE")), "a1 a2 b2"),
        (Filter::value(equal, Comparator::prefix("gr")), "a2"),
        (x("blue"), "b1"),
        (Filter::single_column_value("f", "x", equal, Comparator::binary("red")), "a1 b2"),
        (Filter::timestamps([2, 4]), "a2 b2"),
        (Filter::dependent_column("f", "y", false, None), "a1 b2"),
        (Filter::skip(Filter::value(CompareOp::NotEqual, Comparator::binary("red"))), "a2 b1"),
        (Filter::while_match(Filter::prefix("a")), "a1 a2"),
        (Filter::all([Filter::prefix("a"), Filter::any([x("red"), x("blue")])]), "a1"),
        (Filter::any([Filter::prefix("b"), x("red")]), "a1 b1 b2"),
        (Filter::parse("PrefixFilter('b') AND QualifierFilter(=, 'binary:x')").unwrap(), "b1"),
        (Filter::column_count(1), "a1"),
        (Filter::random_row(1.0), "a1 a2 b1 b2"),
        (Filter::value(equal, Comparator::component("ed", 1)), "a1 b2"),
    ];
    for (filter, expected) in cases {
        let text = format!("{filter:?}");
        assert_eq!(keys(&table, Scan::new().filter(filter)).await, expected, "{text}");
    }
    let count = |filter: Filter| {
        let table = &table;
        async move {
            let mut rows = table.scan(Scan::new().filter(filter));
            let (mut cells, mut bytes) = (0, 0);
            while let Some(row) = rows.next().await.unwrap() {
                cells += row.len();
                bytes += row.iter().map(|cell| cell.value().len()).sum::<usize>();
            }
            (cells, bytes)
        }
    };
    assert_eq!(count(Filter::key_only(false)).await, (6, 0));
    assert_eq!(count(Filter::key_only(true)).await, (6, 24));
    assert_eq!(count(Filter::first_key_only()).await.0, 4);
    assert_eq!(count(Filter::column_page(1, 1)).await.0, 2);
    assert_eq!(count(Filter::column_page_from(5, "y")).await.0, 3);
    drop_table(cluster, "client-filters").await;
}

pub async fn errors(cluster: &Cluster) {
    let admin = cluster.admin().await.unwrap();
    let missing = cluster.table(name("client-missing"), 0);
    let error = missing.get(Get::new("r")).await.unwrap_err();
    assert!(error.is_exception("TableNotFoundException"), "{error}");
    let error = missing.scan(Scan::new()).next().await.unwrap_err();
    assert!(error.is_exception("TableNotFoundException"), "{error}");
    let error = missing.batch(&[Get::new("r").into()]).await.remove(0).unwrap_err();
    assert!(error.is_exception("TableNotFoundException"), "{error}");
    assert!(admin.descriptor(missing.name()).await.unwrap().is_none());
    assert!(admin.table_state(missing.name()).await.unwrap_err().is_exception("TableNotFoundException"));
    assert!(admin.regions(missing.name()).await.unwrap_err().is_exception("TableNotFoundException"));

    let table = create(cluster, "client-errors", &[]).await;
    let family = Put::new("r").column("missing", "q", "v");
    let error = table.put(family).await.unwrap_err();
    assert!(error.is_exception("NoSuchColumnFamilyException"), "{error}");
    assert!(matches!(table.put(Put::new("r")).await, Err(ClientError::Invalid(_))));
    assert!(matches!(table.get(Get::new("")).await, Err(ClientError::Invalid(_))));
    let text = Increment::new("r").column("f", "t", 1);
    table.put(Put::new("r").column("f", "t", "text")).await.unwrap();
    assert!(table.increment(text).await.unwrap_err().remote().is_some());
    admin.disable_table(table.name()).await.unwrap();
    let error = table.get(Get::new("r")).await.unwrap_err();
    assert!(error.is_exception("TableNotEnabledException"), "{error}");
    let error = table.scan(Scan::new()).next().await.unwrap_err();
    assert!(error.is_exception("TableNotEnabledException"), "{error}");
    let error = table.batch(&[Get::new("r").into()]).await.remove(0).unwrap_err();
    assert!(error.is_exception("TableNotEnabledException"), "{error}");
    admin.delete_table(table.name()).await.unwrap();
}

pub async fn tables(cluster: &Cluster) {
    let table = create(cluster, "client-tables", &["m"]).await;
    let (admin, table_name) = (cluster.admin().await.unwrap(), table.name().clone());
    let found = admin.table_names(Some("client-tab.*"), false).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&table_name));
    assert!(admin.table_names(None, true).await.unwrap().contains(&TableName::META));
    assert!(!admin.table_names(None, false).await.unwrap().contains(&TableName::META));
    assert_eq!(admin.splits(&table_name).await.unwrap(), ["m"]);
    let descriptor = admin.describe(&table_name).await.unwrap();
    assert_eq!(descriptor.family(b"f").unwrap().versions(), 3);
    let error = admin.create_table(&descriptor, Vec::new()).await.unwrap_err();
    assert!(error.is_exception("TableExistsException"), "{error}");
    admin.modify_table(&descriptor.with("MAX_FILESIZE", "20000000000")).await.unwrap();
    admin.add_family(&table_name, &FamilyDescriptor::new("h").unwrap()).await.unwrap();
    admin
        .modify_family(&table_name, &FamilyDescriptor::new("h").unwrap().with("VERSIONS", "7"))
        .await
        .unwrap();
    admin.delete_family(&table_name, b"g").await.unwrap();
    let changed = admin.describe(&table_name).await.unwrap();
    assert_eq!(changed.max_file_size(), Some(20_000_000_000));
    assert_eq!(changed.family(b"h").unwrap().versions(), 7);
    assert!(changed.family(b"g").is_none());
    assert_eq!(admin.alter_status(&table_name).await.unwrap().regions_pending, 0);
    table.put(Put::new("r").column("f", "q", "v")).await.unwrap();
    assert_eq!(admin.table_state(&table_name).await.unwrap(), TableState::Enabled);
    let error = admin.delete_table(&table_name).await.unwrap_err();
    assert!(error.is_exception("TableNotDisabledException"), "{error}");
    admin.disable_table(&table_name).await.unwrap();
    assert_eq!(admin.table_state(&table_name).await.unwrap(), TableState::Disabled);
    admin.truncate_table(&table_name, true).await.unwrap();
    assert_eq!(admin.regions_count(&table_name).await.unwrap(), 2);
    assert!(table.get(Get::new("r")).await.unwrap().is_empty());
    admin.disable_table(&table_name).await.unwrap();
    admin.enable_table(&table_name).await.unwrap();
    admin.drop_table(&table_name).await.unwrap();
    assert!(!admin.table_exists(&table_name).await.unwrap());

    let mut namespace = halcyon_client::NamespaceDescriptor::new("client_ns");
    admin.create_namespace(&namespace).await.unwrap();
    namespace.configuration.insert("k".into(), "v".into());
    admin.modify_namespace(&namespace).await.unwrap();
    assert_eq!(admin.describe_namespace("client_ns").await.unwrap().configuration["k"], "v");
    assert!(admin.namespace_tables("client_ns").await.unwrap().is_empty());
    admin.delete_namespace("client_ns").await.unwrap();
    let error = admin.describe_namespace("client_ns").await.unwrap_err();
    assert!(error.is_exception("NamespaceNotFoundException"), "{error}");
}

pub async fn regions(cluster: &Cluster) {
    let table = create(cluster, "client-regions", &[]).await;
    let (admin, table_name) = (cluster.admin().await.unwrap(), table.name().clone());
    table.put_all(('a'..='z').map(|key| Put::new(key.to_string()).column("f", "q", "v"))).await.unwrap();
    admin.flush(&table_name).await.unwrap();
    admin.split_table(&table_name, Some(b"k")).await.unwrap();
    wait_for_regions(&admin, &table_name, 2).await;
    // the cache still has the parent
    assert_eq!(keys(&table, Scan::new()).await.len(), 51);
    assert_eq!(table.get(Get::new("z")).await.unwrap().len(), 1);
    let region = admin.region_of_row(&table_name, b"z").await.unwrap();
    assert_eq!(&region.region.start_key()[..], b"k");
    assert_eq!(admin.region(region.region.encoded_name().as_bytes()).await.unwrap(), region);
    assert_eq!(admin.region(region.region.region_name()).await.unwrap(), region);
    admin.move_region(region.region.encoded_name(), region.server.as_ref()).await.unwrap();
    assert_eq!(table.get(Get::new("z")).await.unwrap().len(), 1);
    admin.flush_region(&region.region, Some(b"f")).await.unwrap();
    admin.compact(&table_name, None).await.unwrap();
    admin.major_compact(&table_name, Some(b"f")).await.unwrap();
    for _ in 0..500 {
        if admin.compaction_state(&table_name).await.unwrap() == CompactionState::None {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(admin.compaction_state(&table_name).await.unwrap(), CompactionState::None);
    // references must be compacted away before a merge
    let mut merged = Ok(());
    for _ in 0..100 {
        let names = admin.regions(&table_name).await.unwrap().into_iter();
        let names: Vec<String> = names.map(|found| found.region.encoded_name().to_string()).collect();
        merged = admin.merge_regions(&names, false).await;
        if merged.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    merged.unwrap();
    wait_for_regions(&admin, &table_name, 1).await;
    assert_eq!(keys(&table, Scan::new()).await.len(), 51);
    admin.clear_block_cache(&table_name).await.unwrap();
    for server in admin.region_servers().await.unwrap() {
        admin.roll_wal(&server).await.unwrap();
        assert!(admin.set_compactions(&server, false).await.unwrap());
        assert!(!admin.set_compactions(&server, true).await.unwrap());
        admin.clear_compaction_queues(&server, &["long", "short"]).await.unwrap();
        admin.update_configuration(&server).await.unwrap();
    }
    admin.drop_table(&table_name).await.unwrap();
}

async fn wait_for_regions(admin: &halcyon_client::Admin, table: &TableName, count: usize) {
    for _ in 0..500 {
        if admin.regions_count(table).await.unwrap() == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{table} has not {count} regions");
}

pub async fn snapshots(cluster: &Cluster) {
    let table = create(cluster, "client-snapshots", &[]).await;
    let (admin, table_name) = (cluster.admin().await.unwrap(), table.name().clone());
    table.put(Put::new("r").column("f", "q", "before")).await.unwrap();
    admin.snapshot("client-snap", &table_name, SnapshotType::Flush, None).await.unwrap();
    let found = admin.snapshots().await.unwrap();
    let found = found.iter().find(|snapshot| snapshot.name == "client-snap").unwrap();
    assert_eq!(found.table, table_name);
    let again = admin.snapshot("client-snap", &table_name, SnapshotType::Flush, None).await.unwrap_err();
    assert!(again.is_exception("SnapshotExistsException"), "{again}");
    table.put(Put::new("r").column("f", "q", "after")).await.unwrap();
    admin.disable_table(&table_name).await.unwrap();
    admin.restore_snapshot("client-snap").await.unwrap();
    admin.enable_table(&table_name).await.unwrap();
    assert_eq!(table.get(Get::new("r")).await.unwrap().value("f", "q"), Some(&b"before"[..]));
    admin.delete_snapshot("client-snap").await.unwrap();
    let error = admin.restore_snapshot("client-snap").await.unwrap_err();
    assert!(error.is_exception("SnapshotDoesNotExistException"), "{error}");
    admin.drop_table(&table_name).await.unwrap();
}

pub async fn master(cluster: &Cluster) {
    let admin = cluster.admin().await.unwrap();
    let metrics = admin.cluster_metrics().await.unwrap();
    assert!(metrics.hbase_version.is_some() && metrics.cluster_id.is_some() && metrics.master.is_some());
    assert!(metrics.regions_count() > 0 && !metrics.servers[0].regions[0].region_name.is_empty());
    let switches =
        [Switch::Balancer, Switch::Split, Switch::Merge, Switch::CatalogJanitor, Switch::CleanerChore];
    for switch in switches {
        let before = admin.switch(switch).await.unwrap();
        assert_eq!(admin.set_switch(switch, false).await.unwrap(), before, "{switch:?}");
        assert!(!admin.switch(switch).await.unwrap(), "{switch:?}");
        admin.set_switch(switch, before).await.unwrap();
        assert_eq!(admin.switch(switch).await.unwrap(), before, "{switch:?}");
    }
    let cleanup = admin.switch(Switch::SnapshotCleanup).await.unwrap();
    admin.set_switch(Switch::SnapshotCleanup, cleanup).await.unwrap();
    admin.set_switch(Switch::Normalizer, false).await.unwrap();
    assert!(!admin.switch(Switch::Normalizer).await.unwrap());
    admin.balance(false).await.unwrap();
    admin.normalize(&[]).await.unwrap();
    admin.run_catalog_janitor().await.unwrap();
    admin.run_cleaner_chore().await.unwrap();
    admin.procedures().await.unwrap();
    admin.locks().await.unwrap();
    assert!(!admin.abort_procedure(999_999_999, true).await.unwrap_or(false));
    assert!(admin.decommissioned_servers().await.unwrap().is_empty());
    admin.clear_dead_servers(&[]).await.unwrap();
    assert_eq!(admin.last_major_compaction(&TableName::META).await.ok().filter(|time| *time < 0), None);
}
