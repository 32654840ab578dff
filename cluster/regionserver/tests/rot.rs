//! A bit falls in a store file on disk: whoever reads its cells is told so, and everybody else is served.

use std::path::PathBuf;

use crate::common::*;
use halcyon_rpc::RpcError;

const ROWS: usize = 400;

fn row(number: usize) -> String {
    format!("r{number:03}")
}

fn value(number: usize) -> String {
    row(number).repeat(250) // some blocks of 64 KiB
}

fn read(lab: &Lab, number: usize) -> Result<String, RpcError> {
    let (_, cells) = lab.get(get(&row(number)))?;
    Ok(text(&cells).concat())
}

fn assert_named(error: &RpcError, file: &str, offset: usize) {
    assert!(error.class.ends_with(".CorruptHFileException") && error.do_not_retry, "{error}");
    for word in [file, &format!("offset {offset}"), "expected ", "found "] {
        assert!(error.message.contains(word), "{error} says nothing of {word}");
    }
}

#[test]
fn a_client_is_told_where_a_bit_has_fallen() {
    let lab = Lab::new();
    (0..ROWS).for_each(|number| lab.put(&row(number), "q", &value(number)));
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    let dir = lab.info.dir(ROOT.as_ref()).join("f");
    lab.server.stop().unwrap();
    let fs = lab.fs.clone();
    let files = fs.env().fs.list(&dir).unwrap();
    assert_eq!(files.len(), 1);
    let path: PathBuf = dir.join(&files[0].name);
    let good = fs.env().fs.read(&path).unwrap();
    let starts = |magic: &[u8]| -> Vec<usize> {
        (0..good.len() - 8).filter(|&at| &good[at..at + 8] == magic).collect()
    };
    let data = starts(b"DATABLK*");
    assert!(data.len() > 3, "{data:?}");
    let bloom = starts(b"BLMFBLK2")[0];
    for (offset, at) in [(data[1], 0), (data[1], 26), (data[2], 700), (data[3], 40_000), (bloom, 50)] {
        let mut bad = good.clone();
        bad[offset + at] ^= 4;
        fs.env().fs.replace(&path, &bad).unwrap();
        // Each start leaves a file. A compaction would write the damaged one anew, from what is not damaged.
        let mut settings = settings();
        settings.region.compaction.files_min = 100;
        let lab = Lab::with(fs.clone(), settings);
        let mut failed = 0;
        for number in (0..ROWS).step_by(7) {
            match read(&lab, number) {
                Ok(found) => assert_eq!(found, value(number)),
                Err(error) => {
                    assert_named(&error, &files[0].name, offset);
                    failed += 1;
                }
            }
        }
        assert!(failed > 0 && (offset == bloom || failed < ROWS / 14), "{failed} gets failed");
        // What was damaged is written to, and read, as before.
        lab.put("other row", "q", "x");
        lab.server.abort("it has been seen");
    }
}

/// A region whose file cannot be opened does not open, and says why.
#[test]
fn an_index_that_cannot_be_read_keeps_its_region_from_opening() {
    let lab = Lab::new();
    (0..ROWS).for_each(|number| lab.put(&row(number), "q", &value(number)));
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    let dir = lab.info.dir(ROOT.as_ref()).join("f");
    let fs = lab.fs.clone();
    let name = fs.env().fs.list(&dir).unwrap()[0].name.clone();
    lab.server.close_region(lab.info.encoded_name(), false).unwrap();
    let good = fs.env().fs.read(&dir.join(&name)).unwrap();
    for magic in [b"IDXROOT2", b"FILEINF2", b"TRABLK\"$"] {
        let offset = (0..good.len() - 8).rev().find(|&at| &good[at..at + 8] == magic).unwrap();
        let mut bad = good.clone();
        bad[offset + 5] ^= 1;
        fs.env().fs.replace(&dir.join(&name), &bad).unwrap();
        let error = lab.server.open_region(&lab.info, &table().into()).unwrap_err();
        for word in [&name[..], "expected ", "found "] {
            assert!(error.message().contains(word), "{error} says nothing of {word}");
        }
    }
    fs.env().fs.replace(&dir.join(&name), &good).unwrap();
    lab.server.open_region(&lab.info, &table().into()).unwrap();
    assert_eq!(read(&lab, 5).unwrap(), value(5));
}
