//! Store files that are brought into a region which no server has open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::*;
use halcyon_cell::{Cell, Result};
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_env::{Env, FileSystem};
use halcyon_hfile::{FileMeta, HFileWriter, WriterOptions};
use halcyon_region::{MobFileCache, MutationKind, Region, Scan};
use halcyon_schema::FamilyDescriptor;

const SOURCE: &str = "/snapshot/file";

fn copy(env: &Env, to: &Path) -> Result<()> {
    Region::copy_file(env, &*env.fs.open(Path::new(SOURCE))?, to)
}

/// A file of two rows in the place of `SOURCE`, and the region that gets it, which has nothing else.
fn prepared(fs: SimFileSystem) -> (Bench, PathBuf) {
    let bench = Bench::on(Arc::new(fs), &[FamilyDescriptor::new("f").unwrap()]);
    for row in ["a", "b"] {
        let cell = parse_cell(row, "f:q=1", halcyon_cell::CellType::Put, false);
        bench.mutate(mutation(MutationKind::Put, row.as_bytes(), vec![cell])).unwrap();
    }
    bench.region.flush(None).unwrap();
    bench.region.close(false).unwrap();
    bench.wal.close().unwrap();
    let file = bench.region.dir().join("f").join(&store_files(&bench)[0]);
    bench.fs.create_dir_all(Path::new("/snapshot")).unwrap();
    bench.fs.rename(&file, Path::new(SOURCE)).unwrap();
    (bench, file)
}

/// A copy was taken for complete whose end the file system had not confirmed.
#[test]
fn a_copy_gets_its_name_after_its_file_is_closed() {
    let (bench, to) = prepared(SimFileSystem::new());
    bench.fs.inject(Fault::new(Operation::Close, ".tmp"));
    copy(&bench.env(), &to).unwrap_err();
    assert_eq!(bench.fs.faults_hit(), 1);
    assert!(!bench.fs.exists(&to).unwrap());
    copy(&bench.env(), &to).unwrap();
    assert_eq!(bench.fs.read(&to).unwrap(), bench.fs.read(Path::new(SOURCE)).unwrap());
}

/// All attempts wrote to one name. A creation of an earlier one that was carried out late emptied the file of a later one, and
/// a rename of an earlier one gave it its name half written.
#[test]
fn a_copy_is_whole_whatever_arrives_late() {
    let mut attempts = 0;
    for seed in 0..400 {
        let (mut bench, to) = prepared(SimFileSystem::hdfs(seed));
        let (env, expected) = (bench.env(), bench.fs.read(Path::new(SOURCE)).unwrap());
        bench.fs.disturb(4);
        while copy(&env, &to).is_err() {
            attempts += 1;
            if let Ok(found) = bench.fs.read(&to) {
                assert_eq!(found, expected, "seed {seed}");
            }
        }
        bench.fs.clear_faults();
        if seed % 2 == 0 {
            bench.fs.deliver_late();
        }
        assert_eq!(bench.fs.read(&to).unwrap(), expected, "seed {seed}");
        let fs = bench.fs.clone();
        bench.recover_on(fs).unwrap();
        assert_eq!(bench.scan(Default::default()).unwrap().len(), 2, "seed {seed}");
        // The open region has done with the file: nothing brings it back.
        bench.fs.remove_file(&to).unwrap();
        bench.fs.deliver_late();
        assert!(!bench.fs.exists(&to).unwrap(), "seed {seed}");
    }
    assert!(attempts > 200, "{attempts} attempts failed");
}

/// As with copies: a link that an earlier attempt made late would bring back what the open region has compacted.
#[test]
fn a_link_is_there_once_whatever_arrives_late() {
    let mut attempts = 0;
    for seed in 0..200 {
        let (mut bench, file) = prepared(SimFileSystem::hdfs(seed));
        let env = bench.env();
        let owner = Path::new("data/default/source/0f/f").join(file.file_name().unwrap());
        let hfile = root().join("archive").join(owner);
        bench.fs.create_dir_all(hfile.parent().unwrap()).unwrap();
        bench.fs.rename(Path::new(SOURCE), &hfile).unwrap();
        let link = file.with_file_name(format!("source=0f-{}", file.file_name().unwrap().display()));
        bench.fs.disturb(4);
        while Region::make_link(&env, &link).is_err() {
            attempts += 1;
        }
        bench.fs.clear_faults();
        if seed % 2 == 0 {
            bench.fs.deliver_late();
        }
        let fs = bench.fs.clone();
        bench.recover_on(fs).unwrap();
        assert_eq!(bench.scan(Default::default()).unwrap().len(), 2, "seed {seed}");
        bench.fs.remove_file(&link).unwrap();
        bench.fs.deliver_late();
        assert!(!bench.fs.exists(&link).unwrap(), "seed {seed}");
    }
    assert!(attempts > 100, "{attempts} attempts failed");
}

/// Rows were copied out of a file that was bulk loaded with the sequence ids of its cells. The copy had the name of such a load, and
/// nothing in it said that they count: all its cells got the one that is in the name, and older ones beat newer ones of other files.
#[test]
fn rows_that_are_copied_keep_their_sequence_ids() {
    let (mut bench, _) = prepared(SimFileSystem::new());
    for keeps in [true, false] {
        let name = format!("{:032x}_SeqId_900_", u8::from(keeps));
        let from = Path::new("/snapshot").join(&name);
        let mut writer = HFileWriter::create(&bench.env(), &from, WriterOptions::default()).unwrap();
        if keeps {
            writer.append_file_info(b"SKIP_RESET_SEQ_ID", &[0xff]);
        }
        let row: &[u8] = if keeps { b"kept" } else { b"reset" };
        writer.append(Cell::put(row, b"f", b"q", 1, b"v").with_seq(5).get()).unwrap();
        writer.finish(FileMeta::default()).unwrap();
        let services = bench.services_with(MobFileCache::new(10, 0.5));
        let to = bench.region.dir().join("f").join(&name);
        Region::copy_rows(&services, &bench.table, &bench.info, &from, &to).unwrap();
    }
    bench.take_over().unwrap();
    let found = bench.scan(Scan::default()).unwrap().concat();
    let seqs: Vec<(&[u8], u64)> = found.iter().map(|cell| (cell.row(), cell.seq())).collect();
    assert_eq!(seqs, [(&b"kept"[..], 5), (b"reset", 900)]);
}
