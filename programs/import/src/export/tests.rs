use halcyon_env::Env;
use halcyon_env::sim::Dice;

use super::*;

fn archive(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/export").join(name);
    Env::real().local.read(&path).unwrap()
}

fn names(tablet: &Tablet) -> Vec<&str> {
    tablet.files.iter().map(TabletFile::name).collect()
}

/// A table whose tablets share two files since it was divided.
#[test]
fn tablets_and_their_files_are_those_of_the_metadata() {
    let export = Export::parse(&archive("plain.zip")).unwrap();
    assert_eq!(export.info["srcTableName"].trim(), "plain_clone");
    let last = |row: &str| Some(row.as_bytes().to_vec());
    let lasts: Vec<_> = export.tablets.iter().map(|tablet| tablet.last.clone()).collect();
    let wanted =
        [last("row-0001000"), last("row-0002000"), last("row-0002000\x01"), last("row-0003000"), None];
    assert_eq!(lasts, wanted);
    assert_eq!(names(&export.tablets[1]), names(&export.tablets[3]));
    assert_ne!(names(&export.tablets[0]), names(&export.tablets[1]), "it was compacted alone");
    assert!(export.tablets.iter().flat_map(|tablet| &tablet.files).all(|file| file.time.is_none()));
    let config = TableConfig::of(&export.config).unwrap();
    assert_eq!((config.versions_max, config.iterators.len(), config.groups.len()), (Some(1), 0, 0));

    let bulk = Export::parse(&archive("bulk.zip")).unwrap();
    let times: Vec<_> = bulk.tablets[0].files.iter().map(|file| file.time.is_some()).collect();
    assert_eq!(times, [false, true], "of the import with setTime");
}

#[test]
fn properties_of_a_table_are_understood() {
    let config = TableConfig::of(&Export::parse(&archive("groups.zip")).unwrap().config).unwrap();
    assert_eq!(config.versions_max, Some(3));
    assert_eq!(config.compression.as_deref(), Some("snappy"));
    assert_eq!(config.groups["text"], [b"body".to_vec()]);
    assert_eq!(config.groups["small"], [b"bin\x07\\".to_vec(), b"meta".to_vec()]);
    let of = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        TableConfig::of(&pairs.collect())
    };
    let others = of(&[
        ("table.iterator.scan.sum", "10,org.apache.accumulo.core.iterators.user.SummingCombiner"),
        ("table.iterator.scan.sum.opt.all", "true"),
        ("table.iterator.majc.vers", "20,org.apache.accumulo.core.iterators.user.VersioningIterator"),
        ("table.group.off", "a"),
    ]);
    let others = others.unwrap();
    assert_eq!(others.iterators, ["scan sum org.apache.accumulo.core.iterators.user.SummingCombiner"]);
    assert_eq!((others.versions_max, others.groups.len()), (Some(1), 0));
    let wrong = of(&[
        ("table.iterator.scan.vers", "20,org.apache.accumulo.core.iterators.user.VersioningIterator"),
        ("table.iterator.scan.vers.opt.maxVersions", "many"),
    ]);
    assert!(wrong.unwrap_err().contains("maxVersions 'many'"));
    assert!(of(&[("table.groups.enabled", "g"), ("table.group.g", "a\\y")]).is_err());
}

/// A key as `exporttable` writes it, with its value.
fn entry(row: &str, family: &str, qualifier: &str, value: &[u8]) -> Vec<u8> {
    let ends = [row.len(), row.len() + family.len(), row.len() + family.len() + qualifier.len()];
    let mut bytes: Vec<u8> = ends.iter().chain([&ends[2]]).map(|end| *end as u8).collect();
    bytes.extend_from_slice(format!("{row}{family}{qualifier}").as_bytes());
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&(value.len() as i32).to_be_bytes());
    bytes.extend_from_slice(value);
    bytes
}

#[test]
fn metadata_that_is_not_whole_is_refused() {
    let first = [entry("2;m", "file", "file:/t/F1.rf", b"10,1"), entry("2;m", "~tab", "~pr", &[0])].concat();
    let last = [entry("2<", "file", "../3/F2.rf", b"10,1,77"), entry("2<", "~tab", "~pr", b"\x01m")].concat();
    let whole = tablets(&[first.clone(), last.clone()].concat()).unwrap();
    assert_eq!((whole.len(), whole[1].files[0].time, whole[1].files[0].name()), (2, Some(77), "F2.rf"));
    let said = |bytes: &[u8]| tablets(bytes).unwrap_err();
    assert!(said(b"").contains("the last tablet is missing"));
    assert!(said(&first).contains("the last tablet is missing"));
    assert!(said(&last).contains("gaps"));
    assert!(said(&[first.clone(), last[..last.len() - 3].to_vec()].concat()).contains("damaged"));
    let half = entry("2;m", "file", "file:/t/F1.rf", b"10,1");
    assert!(said(&[half, last.clone()].concat()).contains("has no ~tab:~pr"));
    let fenced = entry("2;m", "file", "{\"path\":\"file:/t/F1.rf\"}", b"10,1");
    assert!(said(&[fenced, last].concat()).contains("Accumulo 4"));
    assert!(said(&entry("2<", "file", "file:/t/F1.rf", b"10")).contains("is no size"));
    assert!(said(&entry("2", "file", "file:/t/F1.rf", b"10,1")).contains("a tablet is called"));
}

#[test]
fn a_damaged_archive_is_an_error() {
    assert!(Export::parse(b"no archive").is_err());
    let whole = archive("groups.zip");
    for len in 0..whole.len() {
        assert!(Export::parse(&whole[..len]).is_err(), "{len} bytes");
    }
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let mut bytes = whole.clone();
        let at = dice.below(bytes.len());
        bytes[at] ^= 1 << dice.below(8);
        let _ = Export::parse(&bytes); // an error or not: no panic
    }
}
