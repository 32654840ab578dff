//! Families that are encrypted: what is in their files, which key they have, and what happens without it.

use std::sync::Arc;

use crate::common::*;
use halcyon_cache::BlockCache;
use halcyon_cell::ErrorKind;
use halcyon_crypto::DataKey;
use halcyon_env::{Env, Keys};
use halcyon_hfile::{HFile, ReaderOptions};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

fn family() -> FamilyDescriptor {
    FamilyDescriptor::new("f").unwrap().with("ENCRYPTION", "AES")
}

/// A wrapped key of the family, of bytes of this value.
fn with_key(family: FamilyDescriptor, value: u8) -> FamilyDescriptor {
    let wrapped = keys(|_| {}).wrap(&DataKey::aes(&[value; 16]).unwrap(), [value; 16]).unwrap();
    family.with("ENCRYPTION_KEY", wrapped)
}

/// The key of each store file.
fn file_keys(bench: &Bench, keys: Arc<Keys>) -> Vec<Vec<u8>> {
    let env = Env { keys: keys.clone(), ..bench.env() };
    let open = |name: String| {
        let path = bench.region.dir().join("f").join(name);
        let file =
            HFile::open(&env, &path, &Arc::new(BlockCache::new(1 << 20)), ReaderOptions::default()).unwrap();
        let wrapped = file.trailer().wrapped_key().expect("the file is encrypted").to_vec();
        keys.unwrap(&wrapped).unwrap().bytes().to_vec()
    };
    store_files(bench).into_iter().map(open).collect()
}

fn fill(bench: &Bench) {
    for row in ["r1", "r2"] {
        write(bench, row, MutationKind::Put).unwrap();
        bench.region.flush(None).unwrap();
    }
}

#[test]
fn each_file_has_a_key_of_its_own() {
    let mut bench = Bench::new(&[family()]);
    fill(&bench);
    let found = file_keys(&bench, keys(|_| {}));
    assert!(found.len() == 2 && found[0] != found[1]);
    bench.compact(true).unwrap();
    let compacted = file_keys(&bench, keys(|_| {}));
    assert!(!found.contains(compacted.last().unwrap()));
    bench.reopen().unwrap();
    assert_eq!(rows(&bench), ["r1", "r2"]);
}

#[test]
fn files_have_the_key_of_their_family_and_a_major_compaction_gives_them_a_new_one() {
    let mut bench = Bench::new(&[with_key(family(), 3)]);
    fill(&bench);
    assert_eq!(file_keys(&bench, keys(|_| {})), [[3; 16], [3; 16]]);
    bench.table = table(&[with_key(family(), 4)]);
    bench.reopen().unwrap();
    assert_eq!(rows(&bench), ["r1", "r2"], "each file says in its trailer which key it has");
    bench.compact(true).unwrap();
    bench.reopen().unwrap();
    assert_eq!(file_keys(&bench, keys(|_| {})), [[4; 16]]);
    // A table that is not encrypted any more.
    bench.table = table(&[FamilyDescriptor::new("f").unwrap()]);
    bench.reopen().unwrap();
    assert_eq!(rows(&bench), ["r1", "r2"]);
}

/// Opening fails before anything is changed, with the name of the key; with the key all is as before.
#[test]
fn a_region_without_its_key_does_not_open() {
    let bench = Bench::new(&[with_key(family(), 3)]);
    fill(&bench);
    bench.region.close(false).unwrap();
    bench.wal.close().unwrap();
    let files = store_files(&bench);
    let services = |keys| RegionServices {
        env: Env { keys, ..bench.env() },
        cache: bench.cache.clone(),
        ..bench.services_with(MobFileCache::new(1, 0.5))
    };
    let open =
        |keys: Arc<Keys>| Region::open(services(keys), &root(), bench.info.clone(), bench.table.clone());
    let of_region = format!("opening region {}: ", bench.info.encoded_name());
    for (keys, why) in [
        (keys(|it| it.master_key = Some("none".into())), "No key found for subject 'none'"),
        (
            keys(|it| it.master_key = Some("second".into())),
            "Key was not successfully unwrapped: it was wrapped with",
        ),
        (
            keys(|it| it.enabled = false),
            "Encryption for family 'f' configured with type 'AES' but the encryption",
        ),
        (
            keys(|it| it.parameters.push('x')),
            "Key provider org.apache.hadoop.hbase.io.crypto.KeyStoreKeyProvider",
        ),
        (
            Arc::new(Keys::none()),
            "Key provider org.apache.hadoop.hbase.io.crypto.KeyStoreKeyProvider failed test",
        ),
    ] {
        let error = open(keys).err().expect("the key is missing");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().starts_with(&format!("{of_region}{why}")), "{error}");
        assert_eq!(store_files(&bench), files);
    }
    let damaged = table(&[family().with("ENCRYPTION_KEY", "damaged")]);
    let error = Region::open(services(keys(|_| {})), &root(), bench.info.clone(), damaged).err().unwrap();
    assert!(error.message().starts_with(&format!("{of_region}wrapped key: ")), "{error}");
    open(keys(|_| {})).unwrap();
}
