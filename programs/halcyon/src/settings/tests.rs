use super::*;
use crate::args::ServerArgs;

fn with_memory(bytes: u64) -> StandaloneArgs {
    let server = ServerArgs { memory: Some(Size(bytes)), ..ServerArgs::default() };
    StandaloneArgs { server, ..StandaloneArgs::default() }
}

fn property(name: &str, value: &str) -> Property {
    Property { name: name.to_string(), value: value.to_string() }
}

#[test]
fn settings_print_and_parse_back() {
    let mut settings = StandaloneSettings {
        data: PathBuf::from("/var/lib/x"),
        master_info_port: None,
        regionserver_port: 7,
        regionserver_info_bind: Some(Ipv4Addr::UNSPECIFIED.into()),
        cleaner: CleanerSettings { archive_keep: Duration::from_secs(9), ..CleanerSettings::default() },
        ..StandaloneSettings::default()
    };
    settings.rpc.frame_bytes_max = 4711;
    settings.regionserver.region.compaction.ratio = 1.5;
    let printed = settings.to_string();
    let mut read = StandaloneSettings::default();
    for line in printed.lines() {
        let (name, value) = line.split_once(" =").expect("name = value");
        assert!(read.set(name, value.trim()).unwrap(), "{name}");
    }
    assert_eq!(read.to_string(), printed);
}

#[test]
fn flags_win_over_the_file_and_what_is_not_used_is_named() {
    let properties = [
        property("hbase.rootdir", "file:///data/hbase"),
        property("hbase.master.port", "1"),
        property("hbase.regionserver.port", "2"),
        property("hbase.wal.hsync", "false"),
        property("hbase.cluster.distributed", "true"),
        property("hbase.tmp.dir", "/ada/tmp"),
        property("my.own", "x"),
    ];
    let flags = StandaloneArgs { master_port: Some(9), ..with_memory(5 << 20) };
    let (settings, unused) = StandaloneSettings::new(&properties, &flags).unwrap();
    assert_eq!(settings.data, PathBuf::from("/data/hbase"));
    assert_eq!((settings.master_port, settings.regionserver_port), (9, 2));
    assert_eq!(settings.regionserver.memory_bytes, 5 << 20);
    assert!(settings.regionserver.wal_sync == SyncMode::Written);
    assert_eq!(unused.len(), 3, "{unused:?}");
    assert_eq!(unused[0], "hbase.cluster.distributed is not used: standalone is one process");
    assert!(unused[2].contains("my.own is not used: it is not known here"));
}

#[test]
fn values_without_sense_are_told_by_name() {
    for (name, value) in [
        ("hbase.master.port", "x"),
        ("hbase.master.port", "70000"),
        ("hbase.rootdir", "s3a://bucket/hbase"),
        ("hbase.master.ipc.address", "somewhere"),
        ("hbase.regionserver.info.bindAddress", "somewhere"),
        ("zookeeper.znode.parent", "hbase"),
        ("hfile.block.cache.size", "7"),
        ("hbase.bucketcache.ioengine", "mmap:/ssd/cache"),
        ("hbase.bucketcache.size", "0.5"),
    ] {
        let told = StandaloneSettings::new(&[property(name, value)], &StandaloneArgs::default());
        assert!(told.unwrap_err().contains(name), "{name}");
    }
}

#[test]
fn a_root_directory_in_hdfs_leaves_the_local_one() {
    let properties = [property("hbase.rootdir", "hdfs://n:8020/hbase"), property("dfs.replication", "2")];
    let new = |flags: &StandaloneArgs| StandaloneSettings::new(&properties, flags);
    let (settings, unused) = new(&StandaloneArgs::default()).unwrap();
    assert_eq!(unused, [] as [String; 0], "HDFS's properties are used");
    assert_eq!(settings.root_address(), "hdfs://n:8020/hbase");
    assert_eq!(settings.data, PathBuf::from("halcyon-data"));
    let flags = StandaloneArgs { root: Some("/elsewhere".to_string()), ..StandaloneArgs::default() };
    let (settings, unused) = new(&flags).unwrap();
    assert_eq!((settings.root_address().as_str(), unused.len()), ("/elsewhere", 1));
    let with_sync = |wal_sync| {
        let server = ServerArgs { wal_sync, ..ServerArgs::default() };
        StandaloneArgs { server, ..StandaloneArgs::default() }
    };
    let hsync = |sync| new(&with_sync(sync)).unwrap().0.regionserver.wal_hsync;
    assert_eq!(
        (hsync(None), hsync(Some(WalSync::Written)), hsync(Some(WalSync::Fsync))),
        (false, false, true)
    );
}

/// HBase's default, which its configuration may spell out.
#[test]
fn hsync_as_hbase_has_it() {
    for on_disk in [false, true] {
        let root = property("hbase.rootdir", "hdfs://n:8020/hbase");
        let properties = [root, property("hbase.wal.hsync", &on_disk.to_string())];
        let (settings, _) = StandaloneSettings::new(&properties, &StandaloneArgs::default()).unwrap();
        assert_eq!(settings.regionserver.wal_hsync, on_disk);
    }
}

#[test]
fn wals_may_have_a_root_directory_of_their_own() {
    let wal_root = |root: &str, value: &str| {
        let properties = [property("hbase.rootdir", root), property("hbase.wal.dir", value)];
        StandaloneSettings::new(&properties, &StandaloneArgs::default()).unwrap().0.wal_root_address()
    };
    let found = |text: &str| Ok(Some(text.to_string()));
    assert_eq!(wal_root("hdfs://n/hbase", "hdfs://n/wals"), found("hdfs://n/wals"));
    assert_eq!(wal_root("hdfs://n/hbase", "/wals"), found("hdfs:///wals"));
    assert_eq!(wal_root("hdfs://n/hbase", "file:///ssd/wals"), found("file:///ssd/wals"));
    assert_eq!(wal_root("hdfs://n/hbase", "hdfs://n/hbase/"), Ok(None));
    assert_eq!(wal_root("hdfs://n/hbase", ""), Ok(None));
    assert_eq!(wal_root("/data/hbase", "/data/hbase-wals"), found("/data/hbase-wals"));
    for (root, below) in [("hdfs://n/hbase", "hdfs://n/hbase/wals"), ("/hbase", "file:///hbase/wals")] {
        assert!(wal_root(root, below).unwrap_err().contains("below the root directory"));
    }
}

#[test]
fn every_setting_is_printed_once_under_its_source() {
    let properties = [property("hbase.master.port", "16000"), property("hbase.hstore.flusher.count", "7")];
    let flags = with_memory(256 << 20);
    let printed = StandaloneSettings::print_by_source(&properties, &flags).unwrap();
    let (settings, _) = StandaloneSettings::new(&properties, &flags).unwrap();
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().filter(|l| !l.starts_with('#')).map(str::to_string).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&printed), sorted(&settings.to_string()));
    let shown = StandaloneSettings::with_sources(&properties, &flags).unwrap();
    assert_eq!(shown.len(), settings.to_string().lines().count());
    let memory = shown.iter().find(|it| it.description.name == "halcyon.memory.bytes").unwrap();
    assert_eq!((&*memory.value, memory.source), ("268435456", "option"));
    assert_eq!(memory.description.default.as_deref(), Some("1073741824"));
    let section = |name: &str| {
        let start = printed.split(&format!("# {name}\n")).nth(1).expect("the section is there");
        start.split("# ").next().unwrap().to_string()
    };
    assert_eq!(section("hbase-site.xml"), "hbase.master.port = 16000\nhbase.hstore.flusher.count = 7\n");
    assert_eq!(section("option"), "halcyon.memory.bytes = 268435456\n");
    assert!(section("computed from the memory").contains("hbase.ipc.server.max.callqueue.size = "));
    assert!(section("default").contains("hbase.regionserver.port = 16020\n"));
}

#[test]
fn references_that_nothing_defines_are_refused_where_they_matter() {
    let new = |name: &str, value: &str| {
        StandaloneSettings::new(&[property(name, value)], &StandaloneArgs::default())
    };
    let error = new("hbase.rootdir", "file://${no.such}/hbase").unwrap_err();
    assert_eq!(error, r#"hbase.rootdir: nothing defines ${no.such} in "file://${no.such}/hbase""#);
    for name in ["hbase.master.port", "hbase.regionserver.hostname", "hbase.tmp.dir"] {
        let error = new(name, "${no.such}").unwrap_err();
        assert!(error.contains("nothing defines ${no.such}"), "{error}");
    }
    assert_eq!(new("my.own", "${no.such}").unwrap().1, ["my.own is not used: it is not known here"]);
}

#[test]
fn without_a_root_directory_the_data_is_where_hbase_has_it() {
    let properties = [property("hbase.tmp.dir", "/srv/tmp")];
    let new = |flags: &StandaloneArgs| StandaloneSettings::new(&properties, flags).unwrap().0.data;
    assert_eq!(new(&StandaloneArgs::default()), PathBuf::from("/srv/tmp/hbase"));
    let flags = StandaloneArgs { data: Some(PathBuf::from("/d")), ..StandaloneArgs::default() };
    assert_eq!(new(&flags), PathBuf::from("/d"));
}

#[test]
fn the_forms_of_a_local_address() {
    for text in ["/a/b", "file:/a/b", "file:///a/b", "file://localhost/a/b"] {
        assert_eq!(local_path(text), Ok(PathBuf::from("/a/b")), "{text}");
    }
    assert!(local_path("file:").is_err());
}
