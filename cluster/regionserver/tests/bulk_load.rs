//! The three calls of a bulk load.

use std::path::Path;

use crate::common::{self, Lab, ROOT, class};
use halcyon_cell::{Cell, CellType};
use halcyon_env::FileSystem;
use halcyon_env::sim::SimFileSystem;
use halcyon_hfile::{FileMeta, HFileWriter, WriterOptions};
use halcyon_proto::pb;

fn write_hfile(lab: &Lab, path: &str) {
    let path = Path::new(path);
    lab.fs.create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = HFileWriter::create(&lab.fs.env(), path, WriterOptions::default()).unwrap();
    let cell = Cell::build(b"r", b"f", b"q", 5, CellType::Put, b"loaded", b"", 0);
    writer.append(cell.get()).unwrap();
    writer.finish(FileMeta::default()).unwrap();
}

fn load(lab: &Lab, path: &str) -> Result<pb::BulkLoadHFileResponse, halcyon_rpc::RpcError> {
    let family_path = pb::bulk_load_h_file_request::FamilyPath { family: "f".into(), path: path.to_string() };
    let request = pb::BulkLoadHFileRequest {
        region: lab.specifier(),
        family_path: vec![family_path],
        assign_seq_num: Some(true),
        ..Default::default()
    };
    lab.call("BulkLoadHFile", &request, Vec::new()).map(|(response, _)| response)
}

#[test]
fn a_load_from_its_token_to_its_end() {
    let lab = Lab::new();
    let table_name = pb::TableName { namespace: "default".into(), qualifier: "t".into() };
    let prepare = pb::PrepareBulkLoadRequest { table_name, region: Some(lab.specifier()) };
    let (token, _) =
        lab.call::<pb::PrepareBulkLoadResponse>("PrepareBulkLoad", &prepare, Vec::new()).unwrap();
    let token = token.bulk_token;
    assert!(token.starts_with(&format!("{ROOT}/staging/tester__default_t__")), "{token}");
    assert!(lab.fs.exists(Path::new(&token)).unwrap());

    let staged = format!("{token}/f/0a");
    write_hfile(&lab, &staged);
    assert!(load(&lab, &format!("file:{staged}")).unwrap().loaded);
    assert!(!lab.fs.exists(Path::new(&staged)).unwrap());
    assert_eq!(lab.row("r"), ["loaded"]);

    for wrong in [ROOT, "/hbase/data", "/hbase/staging", "/hbase/staging/../data", "x"] {
        let cleanup = pb::CleanupBulkLoadRequest { bulk_token: wrong.to_string(), region: None };
        let result = lab.call::<pb::CleanupBulkLoadResponse>("CleanupBulkLoad", &cleanup, Vec::new());
        assert_eq!(class(result), "DoNotRetryIOException", "{wrong}");
    }
    let cleanup = pb::CleanupBulkLoadRequest { bulk_token: token.clone(), region: Some(lab.specifier()) };
    lab.call::<pb::CleanupBulkLoadResponse>("CleanupBulkLoad", &cleanup, Vec::new()).unwrap();
    assert!(!lab.fs.exists(Path::new(&token)).unwrap());
}

fn refusal(lab: &Lab, path: &str) -> halcyon_rpc::RpcError {
    load(lab, path).unwrap_err()
}

/// Whoever could call could take away any HFile that the server may rename.
#[test]
fn files_of_others_are_copied_and_with_roots_refused() {
    let lab = Lab::new();
    write_hfile(&lab, "/others/f/0a");
    assert!(load(&lab, "/others/f/0a").unwrap().loaded);
    assert!(lab.fs.exists(Path::new("/others/f/0a")).unwrap(), "it stays where it was");

    let bulk_load_roots = "/out, file:///more/out".to_string();
    let settings = halcyon_regionserver::RegionServerSettings { bulk_load_roots, ..common::settings() };
    let lab = Lab::with(SimFileSystem::new(), settings);
    for good in ["/out/f/0a", "/more/out/0a", "/hbase/staging/x/f/0a"] {
        write_hfile(&lab, good);
        assert!(load(&lab, good).unwrap().loaded, "{good}");
        assert!(!lab.fs.exists(Path::new(good)).unwrap(), "{good}: moved, not copied");
    }
    for foreign in ["/others/f/0a", "/outer/f/0a", "/more/f/0a"] {
        write_hfile(&lab, foreign);
        let error = refusal(&lab, foreign);
        assert!(error.message.contains("halcyon.bulkload.roots"), "{foreign}: {error}");
        assert!(lab.fs.exists(Path::new(foreign)).unwrap());
    }
    let (there, missing) = (refusal(&lab, "/others/f/0a").message, refusal(&lab, "/others/f/0b").message);
    assert_eq!(there.replace("0a", "0b"), missing, "nobody is told what is there");
}

/// A list named the directories whose files are copied, and the one of mob files was not in it: a call with such a path moved the values of
/// another table away.
#[test]
fn what_is_below_the_root_and_not_staged_stays() {
    let lab = Lab::new();
    for place in
        ["mobdir/data/default/other/1/f", "data/default/other/1/f", "MasterData/data/f", "stagings", "x"]
    {
        let path = format!("{ROOT}/{place}/0a");
        write_hfile(&lab, &path);
        assert!(load(&lab, &path).unwrap().loaded, "{place}");
        assert!(lab.fs.exists(Path::new(&path)).unwrap(), "{place}: it was taken away");
    }
}

/// The answer said whether a file is there, and the last bytes of any file.
#[test]
fn an_answer_tells_nothing_of_a_file() {
    let lab = Lab::new();
    let mut answers = Vec::new();
    for (name, bytes) in [("short", &b"x"[..]), ("text", b"root:x:0:0:root:/root:/bin/bash\n"), ("none", b"")]
    {
        let path = format!("/etc/{name}");
        lab.fs.create_dir_all(Path::new("/etc")).unwrap();
        if name != "none" {
            lab.fs.put_new(Path::new(&path), bytes).unwrap();
        }
        let error = refusal(&lab, &path);
        assert!(error.class.ends_with(".DoNotRetryIOException"), "{error}");
        answers.push(error.message.replace(name, "FILE"));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
}

#[test]
fn addresses_that_the_server_cannot_read() {
    let lab = Lab::new();
    for wrong in ["hdfs://other:8020/out/f/0a", "s3a://bucket/f/0a", "out/f/0a", "/out/../hbase/f", "", ":"] {
        let error = load(&lab, wrong).unwrap_err();
        assert!(error.class.ends_with(".DoNotRetryIOException"), "{wrong}: {error}");
    }
    assert!(load(&lab, "/nowhere/f/0a").unwrap_err().class.ends_with(".DoNotRetryIOException"));
}
