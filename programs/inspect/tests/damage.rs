//! Damaged files: every command ends, names the place, and gives what is left. `cargo xtask fuzz inspect` runs this with new
//! seeds.
#![allow(clippy::disallowed_methods)] // reads testdata, clocks

mod common;

use std::path::{Path, PathBuf};
use std::time::Instant;

use common::{golden, of_kind, records, run};
use halcyon_cell::{Cell, CellRef, SeqId};
use halcyon_env::sim::{Dice, SimFileSystem};
use halcyon_env::{Env, FileSystem};
use halcyon_proto::pb;
use halcyon_region::Region;
use halcyon_schema::{
    FamilyDescriptor, RegionInfo, STORE_FILE_TRACKER, StoreFileTracker, TableDescriptor, TableName, layout,
};
use halcyon_wal::{Durability, Wal, WalConfig, WalEntry};
use prost::Message;

const ROUNDS: u64 = 300;
const TRAILER_LEN: usize = 4096;
/// Far above what a file of 16 KiB takes, far below an endless loop.
const SECONDS_MAX: u64 = 20;

fn dice(test: u64) -> Dice {
    let seed: u64 = std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    println!("HALCYON_SEED={seed}");
    Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(test))
}

/// Flips bits, overwrites, cuts, doubles or removes a part.
fn damage(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..1 + dice.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = dice.below(bytes.len());
        let end = bytes.len().min(at + 1 + dice.below(200));
        match dice.below(7) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            3 => bytes[at..end].fill(0),
            4 => {
                let (end, value) = (bytes.len().min(at + 4), (dice.next_u64() as u32) >> dice.below(32));
                bytes[at..end].copy_from_slice(&value.to_be_bytes()[..end - at]);
            }
            _ => bytes[at] ^= 1 << dice.below(8),
        }
    }
}

fn file(bytes: &[u8]) -> Env {
    let fs = SimFileSystem::new();
    fs.create_dir_all(Path::new("/f")).unwrap();
    fs.put_new(Path::new("/f/file"), bytes).unwrap();
    fs.env()
}

fn check(env: &Env, arguments: &[&str]) -> (u8, String) {
    let begun = Instant::now();
    let (code, text) = run(env, arguments);
    assert!(begun.elapsed().as_secs() < SECONDS_MAX, "{arguments:?} took {:?}", begun.elapsed());
    assert_eq!(code == 1, text.contains("DAMAGE: "), "{code} {text}");
    (code, text)
}

#[test]
fn damaged_store_files() {
    let seeds: Vec<Vec<u8>> =
        golden("hfile", "hfile").iter().map(|path| std::fs::read(path).unwrap()).collect();
    let mut dice = dice(1);
    for round in 0..ROUNDS {
        let seed = &seeds[round as usize % seeds.len()];
        let mut bytes = seed.clone();
        damage(&mut dice, &mut bytes);
        let env = file(&bytes);
        let (code, text) = check(&env, &["hfile", "-v", "-p", "-m", "-b", "-h", "-k", "-a", "-d", "/f/file"]);
        // Most of a trailer is padding, and it has no checksum.
        let blocks = ..seed.len() - TRAILER_LEN;
        assert!(code == 1 || bytes.get(blocks) == seed.get(blocks), "damage was not seen: {text}");
        check(&env, &["hfile", "-w", "row00013-3", "-p", "/f/file"]);
        check(&env, &["hfile", "-m", "/f/file"]);
    }
}

/// One bit in each block in turn: all cells of the other blocks are there, and the message has the block's offset.
#[test]
fn a_damaged_block_hides_only_its_own_cells() {
    let path = golden("hfile", "hfile").into_iter().find(|path| path.ends_with("row.hfile")).unwrap();
    let sound = std::fs::read(path).unwrap();
    let (_, whole) = records(&file(&sound), &["hfile", "-h", "-e", "/f/file"]);
    let blocks: Vec<u64> = of_kind(&whole, "block")
        .iter()
        .filter(|block| block["blockType"] == "DATA")
        .map(|block| block["fileOffset"].as_u64().unwrap())
        .collect();
    let all = of_kind(&whole, "cell").len();
    for &offset in &blocks {
        // In the header, so that the length is lost as well, and in the cells.
        for at in [offset + 9, offset + 40] {
            let mut bytes = sound.clone();
            bytes[at as usize] ^= 0x40;
            let (code, found) = records(&file(&bytes), &["hfile", "-h", "-e", "/f/file"]);
            assert_eq!(code, 1);
            let damage = of_kind(&found, "damage");
            assert_eq!(damage.len(), 1, "{damage:?}");
            assert_eq!(damage[0]["offset"].as_u64(), Some(offset), "{damage:?}");
            let left = of_kind(&found, "cell").len();
            assert!(left < all && left + 20 > all, "{left} of {all}: {damage:?}");
        }
    }
}

/// Without a trailer no cell can be read, but blocks and their checksums can.
#[test]
fn blocks_are_found_without_a_trailer() {
    let path = golden("hfile", "hfile").into_iter().find(|path| path.ends_with("row.hfile")).unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    let (_, whole) = records(&file(&bytes), &["hfile", "-h", "/f/file"]);
    bytes.truncate(bytes.len() - 100);
    bytes[400] ^= 1;
    let (code, found) = records(&file(&bytes), &["hfile", "-h", "/f/file"]);
    assert_eq!(code, 1);
    assert_eq!(of_kind(&found, "block").len(), of_kind(&whole, "block").len());
    let places: Vec<Option<u64>> =
        of_kind(&found, "damage").iter().map(|damage| damage["offset"].as_u64()).collect();
    assert_eq!(places[..2], [None, Some(362)], "{found:?}");
}

fn log(entries: u64) -> (Vec<u8>, Vec<u64>) {
    let fs = SimFileSystem::new();
    let wal = Wal::open(fs.env(), WalConfig::new("/WALs/h", "/oldWALs", "h")).unwrap();
    let path: PathBuf = wal.current_file();
    let mut offsets = Vec::new();
    for seq in 1..=entries {
        let cell = Cell::put(format!("r{seq}").as_bytes(), b"f", b"q", 7, &[b'v'; 50]);
        let cells: [CellRef<'_>; 1] = [cell.get()];
        offsets.push(fs.read(&path).unwrap().len() as u64);
        let entry = WalEntry {
            region: b"0123456789abcdef0123456789abcdef",
            table: b"t",
            seq: SeqId::new(seq),
            write_time_ms: 1_700_000_000_000,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &[],
            cells: &cells,
        };
        wal.append(&entry, Durability::SyncWal, Box::new(|result| assert!(result.is_ok()))).unwrap();
        wal.drive();
    }
    wal.close().unwrap();
    (fs.read(&path).unwrap(), offsets)
}

#[test]
fn damaged_wals() {
    let mut seeds: Vec<Vec<u8>> =
        golden("wal", "wal").iter().map(|path| std::fs::read(path).unwrap()).collect();
    seeds.push(log(12).0);
    let mut dice = dice(2);
    for round in 0..ROUNDS {
        let mut bytes = seeds[round as usize % seeds.len()].clone();
        damage(&mut dice, &mut bytes);
        let env = file(&bytes);
        check(&env, &["wal", "-p", "/f/file"]);
        check(&env, &["wal", "-g", &dice.below(bytes.len() + 9).to_string(), "/f/file"]);
    }
}

/// Only the damaged entry is missing, and the message has its offset.
#[test]
fn entries_behind_damage_are_read() {
    let (sound, offsets) = log(12);
    for (at, &offset) in offsets.iter().enumerate().take(11) {
        let mut bytes = sound.clone();
        bytes[offset as usize + 20] ^= 4;
        let (code, found) = records(&file(&bytes), &["wal", "/f/file"]);
        assert_eq!(code, 1);
        let damage = of_kind(&found, "damage");
        assert_eq!((damage.len(), damage[0]["offset"].as_u64()), (1, Some(offset)), "{damage:?}");
        let left: Vec<u64> =
            of_kind(&found, "entry").iter().map(|e| e["sequence"].as_u64().unwrap()).collect();
        let expected: Vec<u64> = (1..=12).filter(|&seq| seq != at as u64 + 1).collect();
        assert_eq!(left, expected);
    }
}

/// A root directory of which every file can be damaged.
fn root() -> Vec<(PathBuf, Vec<u8>)> {
    let table = TableName::parse(b"t").unwrap();
    let region = RegionInfo::new(table.clone(), "".into(), "".into(), 7);
    let parent = RegionInfo::new(table.clone(), "".into(), "m".into(), 6);
    let read = |name: &str| {
        let files = golden("hfile", "hfile");
        std::fs::read(files.into_iter().find(|path| path.ends_with(name)).unwrap()).unwrap()
    };
    let reference = {
        let splitkey = halcyon_cell::Key::first_on_row(b"m").into_bytes().into();
        [&b"PBUF"[..], &pb::Reference { splitkey, range: 0 }.encode_to_vec()].concat()
    };
    let name = "0123456789abcdef0123456789abcdef";
    let file =
        pb::snapshot_region_manifest::StoreFile { name: name.into(), reference: None, file_size: Some(4614) };
    let manifest = pb::SnapshotDataManifest {
        table_schema: TableDescriptor::new(table).to_pb(),
        region_manifests: vec![pb::SnapshotRegionManifest {
            version: None,
            region_info: region.to_pb(),
            family_files: vec![pb::snapshot_region_manifest::FamilyFiles {
                family_name: "f".into(),
                store_files: vec![file],
            }],
        }],
    };
    let info = pb::SnapshotDescription { name: "s1".into(), table: Some("t".into()), ..Default::default() };
    let dir = region.dir(Path::new("/root"));
    let meta = RegionInfo::meta().dir(Path::new("/root"));
    let parent_file = parent.dir(Path::new("/root")).join("f").join(name);
    vec![
        (dir.join(".regioninfo"), region.encode_file()),
        (dir.join("f").join(name), read("empty.hfile")),
        (dir.join("f").join(format!("{name}.{}", parent.encoded_name())), reference),
        (parent_file, read("row.hfile")),
        (dir.join("recovered.edits/0000000000000000012"), log(12).0),
        (meta.join(".regioninfo"), RegionInfo::meta().encode_file()),
        (meta.join("info").join(name), read("meta.hfile")),
        (PathBuf::from("/root/WALs/h,1,1/h.1.meta"), log(3).0),
        (PathBuf::from("/root/.hbase-snapshot/s1/.snapshotinfo"), info.encode_to_vec()),
        (PathBuf::from("/root/.hbase-snapshot/s1/data.manifest"), manifest.encode_to_vec()),
    ]
}

fn put(files: &[(PathBuf, Vec<u8>)]) -> Env {
    let fs = SimFileSystem::new();
    for (path, bytes) in files {
        fs.create_dir_all(path.parent().unwrap()).unwrap();
        fs.put_new(path, bytes).unwrap();
    }
    fs.env()
}

const COMMANDS: [&[&str]; 3] = [
    &["region", "--verify", "--data", "/root"],
    &["meta", "-p", "--data", "/root"],
    &["snapshot", "--files", "--schema", "--data", "/root"],
];

#[test]
fn a_sound_root_has_no_damage() {
    let files = root();
    let region = files[0].0.parent().unwrap().to_str().unwrap().to_string();
    let env = put(&files);
    for command in COMMANDS {
        let named: &[&str] = if command[0] == "region" { &[&region] } else { &[] };
        let (code, text) = run(&env, &[command, named].concat());
        // The rows of the golden file are no region's: only the two others are sound.
        assert_eq!(code, u8::from(command[0] == "meta"), "{text}");
    }
    let (_, found) = records(&env, &["region", "--verify", &region]);
    let reference = of_kind(&found, "storeFile")[1];
    assert_eq!(
        (&reference["kind"], &reference["rows"]),
        (&"reference".into(), &"from m".into()),
        "{reference}"
    );
    assert_eq!(of_kind(&found, "editsFile")[0]["entries"], 12);
    assert_eq!(of_kind(&found, "summary")[0]["maxSequence"], 4711);
    let (_, found) = records(&env, &["snapshot", "--files", "--data", "/root", "s1"]);
    assert_eq!(of_kind(&found, "storeFile")[0]["state"], "shared with the table");
}

/// With the tracker FILE the directory does not say what is the store's.
#[test]
fn files_that_no_list_names() {
    let mut files = root();
    let (region, name) = (files[0].0.parent().unwrap().to_path_buf(), "0123456789abcdef0123456789abcdef");
    let table = TableName::parse(b"t").unwrap();
    let descriptor = TableDescriptor::new(table.clone()).with(STORE_FILE_TRACKER, "FILE");
    let bytes = descriptor.with_family(FamilyDescriptor::new("f").unwrap()).encode_file();
    let table_info = layout::table_info_name(1, bytes.len());
    files.push((layout::table_desc_dir(Path::new("/root"), &table).join(table_info), bytes));
    let env = put(&files);
    Region::list_files(&env, &region.join("f"), StoreFileTracker::FILE).unwrap();
    let arguments = ["region", region.to_str().unwrap()];
    let (code, found) = records(&env, &arguments);
    assert_eq!((code, of_kind(&found, "storeFile").len()), (0, 2), "{found:#?}");
    let mut others = of_kind(&found, "other").into_iter();
    assert!(others.all(|other| !other["file"].as_str().unwrap().contains(layout::FILE_LIST)), "{found:#?}");

    let garbage = region.join("f").join("fedcba9876543210fedcba9876543210");
    env.fs.put_new(&garbage, b"of a compaction that did not end").unwrap();
    let (code, found) = records(&env, &arguments);
    assert_eq!((code, of_kind(&found, "storeFile").len()), (0, 2), "{found:#?}");
    assert_eq!(of_kind(&found, "unlisted")[0]["file"], garbage.to_str().unwrap());
    assert!(run(&env, &arguments).1.contains("of no store"));
    let (_, found) = records(&env, &["hfile", "-r", region.to_str().unwrap()]);
    assert_eq!(of_kind(&found, "file").len(), 1, "{found:#?}");

    env.fs.remove_file(&region.join("f").join(name)).unwrap();
    let (code, text) = run(&env, &arguments);
    assert!(code == 1 && text.contains(&format!("names {name}, which is not there")), "{text}");
}

#[test]
fn damaged_roots() {
    let seeds = root();
    let region = seeds[0].0.parent().unwrap().to_str().unwrap().to_string();
    let mut dice = dice(3);
    for _ in 0..ROUNDS {
        let mut files = seeds.clone();
        let at = dice.below(files.len());
        if dice.one_in(8) {
            files.remove(at);
        } else {
            damage(&mut dice, &mut files[at].1);
        }
        let env = put(&files);
        for command in COMMANDS {
            let named: &[&str] = if command[0] == "region" { &[&region] } else { &[] };
            check(&env, &[command, named].concat());
        }
    }
}
