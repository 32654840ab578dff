//! Each kind of damage is made, found and, where that is safe, repaired.

use std::path::{Path, PathBuf};

use clap::Parser;
use halcyon_cell::{Cell, CellRef, Key, SeqId};
use halcyon_check::{CheckArgs, check};
use halcyon_env::FileSystem;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_proto::pb::table_state::State;
use halcyon_region::Region;
use halcyon_schema::{
    FamilyDescriptor, META_ENCODED_NAME, RegionInfo, STORE_FILE_TRACKER, StoreFileTracker, TableDescriptor,
    TableName, layout,
};
use halcyon_wal::{Durability, Wal, WalConfig, WalEntry};
use prost::Message;
use serde_json::Value;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    check: CheckArgs,
}

const FILE: &str = "0123456789abcdef0123456789abcdef";
const NO_REGION: &str = "fedcba9876543210fedcba9876543210";

/// A root directory with table `t` of two regions, whose meta is only in a WAL.
struct Root {
    fs: SimFileSystem,
    regions: Vec<(RegionInfo, &'static str)>,
    state: Option<State>,
    /// More cells of meta.
    cells: Vec<Cell>,
    /// Rows of `hbase:namespace`, if there is such a region.
    namespaces: Option<(RegionInfo, Vec<&'static str>)>,
}

fn region(start: &'static str, end: &'static str) -> RegionInfo {
    RegionInfo::new(TableName::parse(b"t").unwrap(), start.into(), end.into(), 7)
}

fn append(wal: &Wal, region: &str, table: &[u8], cells: &[Cell]) {
    let refs: Vec<CellRef<'_>> = cells.iter().map(Cell::get).collect();
    let entry = WalEntry {
        region: region.as_bytes(),
        table,
        seq: SeqId::new(1),
        write_time_ms: 9,
        nonce_group: 0,
        nonce: 0,
        cluster_ids: &[],
        replicated: &[],
        cells: &refs,
    };
    wal.append(&entry, Durability::SyncWal, Box::new(|result| assert!(result.is_ok()))).unwrap();
}

impl Root {
    fn new() -> Root {
        let regions = vec![(region("", "m"), "OPEN"), (region("m", ""), "OPEN")];
        let (fs, state) = (SimFileSystem::new(), Some(State::Enabled));
        let root = Root { fs, regions, state, cells: Vec::new(), namespaces: None };
        for (info, _) in &root.regions {
            root.put(&root.dir(info).join(".regioninfo"), &info.encode_file());
            root.put(&root.dir(info).join("f").join(FILE), b"a store file is not opened here");
        }
        let meta = RegionInfo::meta();
        root.put(&root.dir(&meta).join(".regioninfo"), &meta.encode_file());
        root.put_descriptor(&TableName::parse(b"t").unwrap());
        root
    }

    fn put_descriptor(&self, table: &TableName) {
        let family = FamilyDescriptor::new("f").unwrap();
        let bytes = TableDescriptor::new(table.clone()).with_family(family).encode_file();
        let name = layout::table_info_name(1, bytes.len());
        self.put(&layout::table_desc_dir(Path::new("/root"), table).join(name), &bytes);
    }

    /// Adds a table of one region, with all that belongs to it.
    fn add_table(&mut self, name: &str) -> RegionInfo {
        let table = TableName::parse(name.as_bytes()).unwrap();
        let info = RegionInfo::new(table.clone(), "".into(), "".into(), 7);
        self.put(&self.dir(&info).join(".regioninfo"), &info.encode_file());
        self.put_descriptor(&table);
        let state = pb::TableState { state: State::Enabled as i32 }.encode_to_vec();
        self.cells.push(Cell::put(name.as_bytes(), b"table", b"state", 9, &state));
        self.regions.push((info.clone(), "OPEN"));
        info
    }

    fn dir(&self, info: &RegionInfo) -> PathBuf {
        info.dir(Path::new("/root"))
    }

    fn first_dir(&self) -> PathBuf {
        self.dir(&self.regions[0].0)
    }

    fn put(&self, path: &Path, bytes: &[u8]) {
        self.fs.create_dir_all(path.parent().unwrap()).unwrap();
        self.fs.put_new(path, bytes).unwrap();
    }

    /// Writes meta, as an edit that no file holds yet.
    fn write_meta(&self) {
        let mut cells = self.cells.clone();
        for (info, state) in &self.regions {
            let row = info.region_name();
            cells.push(Cell::put(row, b"info", b"regioninfo", 9, &info.encode_value()));
            cells.push(Cell::put(row, b"info", b"state", 9, state.as_bytes()));
        }
        if let Some(state) = self.state {
            let value = pb::TableState { state: state as i32 }.encode_to_vec();
            cells.push(Cell::put(b"t", b"table", b"state", 9, &value));
        }
        let config = WalConfig::new("/root/WALs/h,1,1", "/root/oldWALs", "h");
        let wal = Wal::open(self.fs.env(), config).unwrap();
        append(&wal, META_ENCODED_NAME, b"hbase:meta", &cells);
        if let Some((region, names)) = &self.namespaces {
            let row = |name: &&str| Cell::put(name.as_bytes(), b"info", b"d", 9, b"not read");
            append(
                &wal,
                region.encoded_name(),
                b"hbase:namespace",
                &names.iter().map(row).collect::<Vec<_>>(),
            );
        }
        wal.drive();
    }

    /// The exit code, and the findings.
    fn check(&self, options: &[&str]) -> (u8, Vec<Value>) {
        let arguments = [&["check", "--data", "/root", "--json"], options].concat();
        let env = self.fs.env();
        env.clock.sleep(std::time::Duration::from_secs(3600));
        let mut out = Vec::new();
        let code = check(&env, &env, &Arguments::try_parse_from(arguments).unwrap().check, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        (code, records.filter(|record| record["record"] == "finding").collect())
    }

    /// Finds exactly these kinds.
    fn expect(&self, kinds: &[&str]) {
        self.write_meta();
        let (code, findings) = self.check(&[]);
        let found: Vec<&str> = findings.iter().map(|finding| finding["kind"].as_str().unwrap()).collect();
        assert_eq!(found, kinds, "{findings:?}");
        assert_eq!(code, u8::from(!kinds.is_empty()));
    }

    /// Finds `kind`, repairs it, and finds nothing more.
    fn expect_repair(&self, kind: &str) {
        self.expect(&[kind]);
        let (code, findings) = self.check(&["--repair"]);
        assert_eq!((code, &findings[0]["repaired"]), (0, &true.into()), "{findings:?}");
        assert_eq!(self.check(&[]), (0, vec![]));
    }
}

#[test]
fn a_sound_directory_has_no_findings() {
    Root::new().expect(&[]);
}

#[test]
fn holes_and_overlaps_are_found() {
    let mut root = Root::new();
    let (gone, _) = root.regions.remove(1);
    root.fs.remove_dir_all(&root.dir(&gone)).unwrap();
    root.expect(&["hole"]);
    let mut root = Root::new();
    let other = region("k", "p");
    root.put(&root.dir(&other).join(".regioninfo"), &other.encode_file());
    root.regions.push((other, "OPEN"));
    root.expect(&["overlap", "overlap"]);
}

/// With the tracker FILE the directory does not say what is the store's.
#[test]
fn lists_and_directories_are_compared() {
    let with_lists = || {
        let root = Root::new();
        let table = TableName::parse(b"t").unwrap();
        let descriptor = TableDescriptor::new(table.clone()).with_family(FamilyDescriptor::new("f").unwrap());
        let bytes = descriptor.with(STORE_FILE_TRACKER, "FILE").encode_file();
        let name = layout::table_info_name(2, bytes.len());
        root.put(&layout::table_desc_dir(Path::new("/root"), &table).join(name), &bytes);
        for (info, _) in &root.regions {
            Region::list_files(&root.fs.env(), &root.dir(info).join("f"), StoreFileTracker::FILE).unwrap();
        }
        root
    };
    with_lists().expect(&[]);
    let root = with_lists();
    let family = root.first_dir().join("f");
    root.put(&family.join(NO_REGION), b"what a crash has left");
    root.expect_repair("unlisted-file");
    assert!(root.fs.exists(&family.join(FILE)).unwrap() && !root.fs.exists(&family.join(NO_REGION)).unwrap());

    let root = with_lists();
    // Nobody reads it, so it leads nowhere.
    root.put(&root.first_dir().join("f").join(format!("{FILE}.{NO_REGION}")), b"no reference");
    root.expect_repair("unlisted-file");

    let root = with_lists();
    root.fs.remove_file(&root.first_dir().join("f").join(FILE)).unwrap();
    root.expect(&["missing-file"]);

    let root = with_lists();
    let lists = root.first_dir().join("f").join(layout::FILE_LIST);
    let list = lists.join(&root.fs.list(&lists).unwrap()[0].name);
    let mut bytes = root.fs.read(&list).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    root.fs.remove_file(&list).unwrap();
    root.put(&list, &bytes);
    root.expect(&["unreadable-list"]);
}

#[test]
fn directories_and_rows_that_miss_each_other_are_found() {
    let mut root = Root::new();
    root.regions.remove(1);
    root.expect(&["hole", "orphan-region"]);
    let root = Root::new();
    root.fs.remove_dir_all(&root.first_dir()).unwrap();
    root.expect(&["no-directory"]);
    let root = Root::new();
    root.put(&Path::new("/root/data/default/t").join(NO_REGION).join("f/ab"), b"x");
    root.expect(&["orphan-directory"]);
    let root = Root::new();
    let path = root.first_dir().join(".regioninfo");
    root.fs.replace(&path, &root.regions[1].0.encode_file()).unwrap();
    root.expect(&["wrong-regioninfo"]);
}

#[test]
fn states_that_contradict_each_other_are_found() {
    let with = |state: Option<State>, region_state: &'static str| {
        let mut root = Root::new();
        root.state = state;
        root.regions[0].1 = region_state;
        root
    };
    with(Some(State::Enabled), "CLOSED").expect(&["not-open-in-enabled-table"]);
    with(Some(State::Disabled), "CLOSED").expect(&["open-in-disabled-table"]);
    with(None, "OPEN").expect(&["no-table-state"]);
    with(Some(State::Enabling), "OPEN").expect(&["table-in-transition"]);
    let root = with(Some(State::Enabled), "OPENING");
    root.expect(&["long-in-transition"]);
    assert_eq!(root.check(&["--transition-seconds", "99999999999"]).0, 0);
}

#[test]
fn missing_descriptors_and_files_of_nobody_are_found() {
    let root = Root::new();
    root.fs.remove_dir_all(Path::new("/root/data/default/t/.tabledesc")).unwrap();
    root.expect(&["no-descriptor"]);
    let root = Root::new();
    root.put(&root.first_dir().join("g").join(FILE), b"x");
    root.put(&root.first_dir().join("f/notes.txt"), b"x");
    root.expect(&["unknown-file", "unknown-family"]);
    let root = Root::new();
    root.fs.create_dir_all(Path::new("/root/data/default/left")).unwrap();
    root.expect(&["orphan-table"]);
}

#[test]
fn rows_of_meta_that_make_no_sense_are_found() {
    let mut root = Root::new();
    root.cells.push(Cell::put(b"nobody", b"info", b"server", 9, b"h:1"));
    root.expect(&["odd-row"]);
    let mut root = Root::new();
    root.cells.push(Cell::put(b"t,,1.x.", b"info", b"regioninfo", 9, b"no region"));
    root.expect(&["odd-row"]);
    let mut root = Root::new();
    root.cells.push(Cell::put(b"t,,1.x.", b"rep_barrier", b"seqnumDuringOpen", 9, b"12345678"));
    root.expect(&[]);
}

#[test]
fn tables_of_missing_namespaces_are_found() {
    let with = |names: Vec<&'static str>| {
        let mut root = Root::new();
        root.add_table("n:u");
        let region = root.add_table("hbase:namespace");
        root.namespaces = Some((region, names));
        root
    };
    with(vec!["default", "hbase"]).expect(&["no-namespace"]);
    with(vec!["default", "hbase", "n"]).expect(&[]);
}

#[test]
fn references_that_cannot_be_read_are_found() {
    let root = Root::new();
    let name = format!("{FILE}.{}", root.regions[1].0.encoded_name());
    root.put(&root.first_dir().join("f").join(name), b"PBUF and no reference");
    root.expect(&["unreadable-reference"]);
}

#[test]
fn a_missing_regioninfo_is_written_again() {
    let root = Root::new();
    let path = root.first_dir().join(".regioninfo");
    root.fs.remove_file(&path).unwrap();
    root.expect_repair("no-regioninfo");
    assert_eq!(RegionInfo::decode_file(&root.fs.read(&path).unwrap()).unwrap(), root.regions[0].0);
}

#[test]
fn references_and_links_that_lead_nowhere_are_moved_aside() {
    let splitkey = Key::first_on_row(b"c").into_bytes().into();
    let reference = [&b"PBUF"[..], &pb::Reference { splitkey, range: 0 }.encode_to_vec()].concat();
    for (name, bytes, kind) in [
        (format!("{FILE}.{NO_REGION}"), &reference[..], "dangling-reference"),
        (format!("other={NO_REGION}-{FILE}"), b"", "dangling-link"),
    ] {
        let root = Root::new();
        let dir = root.first_dir().join("f");
        root.put(&dir.join(&name), bytes);
        root.expect_repair(kind);
        assert!(!root.fs.exists(&dir.join(&name)).unwrap());
        let aside = &root.fs.list(Path::new("/root/.hbck")).unwrap()[0].name;
        let below = dir.strip_prefix("/root").unwrap().join(&name);
        assert_eq!(root.fs.read(&Path::new("/root/.hbck").join(aside).join(below)).unwrap(), bytes);
    }
}

#[test]
fn a_repair_needs_the_lock() {
    let root = Root::new();
    root.fs.remove_file(&root.first_dir().join(".regioninfo")).unwrap();
    root.write_meta();
    let _lock = root.fs.lock(Path::new("/root/.halcyon.lock")).unwrap();
    let env = root.fs.env();
    let arguments = Arguments::try_parse_from(["check", "--data", "/root", "--repair"]).unwrap().check;
    let error = check(&env, &env, &arguments, &mut Vec::new()).unwrap_err();
    assert!(error.contains("cannot lock the root directory"), "{error}");
}
