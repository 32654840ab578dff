//! The three calls of a bulk load.

use std::path::Path;

use crate::common::{Lab, ROOT, class};
use halcyon_cell::{Cell, CellType};
use halcyon_env::FileSystem;
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

    write_hfile(&lab, "/out/f/0a");
    assert!(load(&lab, "file:/out/f/0a").unwrap().loaded);
    assert!(!lab.fs.exists(Path::new("/out/f/0a")).unwrap());
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

#[test]
fn addresses_that_the_server_cannot_read() {
    let lab = Lab::new();
    for wrong in ["hdfs://other:8020/out/f/0a", "s3a://bucket/f/0a", "out/f/0a", "/out/../hbase/f", "", ":"] {
        let error = load(&lab, wrong).unwrap_err();
        assert!(error.class.ends_with(".DoNotRetryIOException"), "{wrong}: {error}");
    }
    assert!(load(&lab, "/nowhere/f/0a").unwrap_err().class.ends_with(".DoNotRetryIOException"));
}
