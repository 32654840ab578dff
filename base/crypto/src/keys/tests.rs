use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Key stores that Java wrote (`testing/compat/encryption/Stores.java`).
fn file(name: &str) -> Option<&'static [u8]> {
    Some(match name {
        "/same.jceks" => include_bytes!("../../testdata/same.jceks"),
        "/each.jceks" => include_bytes!("../../testdata/each.jceks"),
        "/keytool.jceks" => include_bytes!("../../testdata/keytool.jceks"),
        "/same.pkcs12" => include_bytes!("../../testdata/same.pkcs12"),
        "/each.pkcs12" => include_bytes!("../../testdata/each.pkcs12"),
        "/legacy.pkcs12" => include_bytes!("../../testdata/legacy.pkcs12"),
        "/keytool.pkcs12" => include_bytes!("../../testdata/keytool.pkcs12"),
        "/private.jks" => include_bytes!("../../testdata/private.jks"),
        "/passwords" => b"# of each key\nMASTER : Master-pass\nsecond=second-pass\n",
        _ => return None,
    })
}

fn keys_with(parameters: &str, change: impl FnOnce(&mut CryptoSettings)) -> Keys {
    let mut settings = CryptoSettings { parameters: parameters.to_string(), ..CryptoSettings::default() };
    settings.master_key = Some("master".to_string());
    change(&mut settings);
    Keys::new(settings, |path| {
        let found = path.to_str().and_then(file);
        found.map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::NotFound.into())
    })
}

fn keys(parameters: &str) -> Keys {
    keys_with(parameters, |_| {})
}

fn text<T: fmt::Debug>(result: Result<T>) -> String {
    result.expect_err("an error was expected").message().to_string()
}

#[test]
fn key_stores_of_java_are_read() {
    for parameters in [
        "jceks:///same.jceks?password=st0re-pass",
        "jceks:///each.jceks?passwordFile=/passwords",
        "pkcs12:///same.pkcs12?password=st0re-pass",
        "jks:///same.pkcs12?password=st0re-pass",
        "pkcs12:///each.pkcs12?passwordfile=/passwords",
        "PKCS12:///legacy.pkcs12?password=st0re-pass",
    ] {
        let keys = keys(parameters);
        assert_eq!(
            keys.key("MASTER").map(|key| key.bytes().to_vec()).unwrap_or_default(),
            [1; 16],
            "{parameters}"
        );
        assert_eq!(keys.key("second").unwrap().bytes(), [2; 32], "{parameters}");
        assert_eq!(text(keys.key("third")), "No key found for subject 'third'");
    }
    assert_eq!(keys("jceks:///keytool.jceks?password=st0re-pass").key("made").unwrap().bytes().len(), 32);
    assert_eq!(keys("pkcs12:///keytool.pkcs12?password=st0re-pass").key("made").unwrap().bytes().len(), 16);
}

#[test]
fn what_is_wrong_with_a_key_store_is_told() {
    let provider = "Key provider org.apache.hadoop.hbase.io.crypto.KeyStoreKeyProvider failed test: ";
    let java = "java.lang.RuntimeException: ";
    for (parameters, why) in [
        ("", format!("{java}KeyProvider scheme should specify KeyStore type")),
        (
            "jceks:///none?password=x",
            format!("{java}java.io.FileNotFoundException: /none (No such file or directory)"),
        ),
        (
            "jceks:///same.jceks?password=wrong",
            format!("{java}java.io.IOException: Keystore was tampered with, or password was incorrect"),
        ),
        (
            "pkcs12:///same.pkcs12?password=wrong",
            format!("{java}java.io.IOException: keystore password was incorrect"),
        ),
        ("bcfks:///same.jceks", format!("{java}java.security.KeyStoreException: bcfks not found")),
        ("jceks:///same.pkcs12", format!("{java}java.io.IOException: Invalid keystore format")),
    ] {
        let why = why.replace("bcfks not", "BCFKS not");
        assert_eq!(text(keys(parameters).check_provider()), format!("{provider}{why}"), "{parameters}");
    }
    let sealed = text(keys("jceks:///each.jceks?password=st0re-pass").key("master"));
    assert!(
        sealed.starts_with("key 'master' of the key store: Given final block not properly padded"),
        "{sealed}"
    );
    let no_password = text(keys("jceks:///same.jceks").key("master"));
    assert_eq!(no_password, "key 'master' of the key store: password can't be null");
    let des = text(keys("jceks:///same.jceks?password=st0re-pass").key("des"));
    assert!(des.contains("key 'des' is one of DES"), "{des}");
    let private = text(keys("jks:///private.jks?password=st0re-pass").key("rsa"));
    assert!(private.contains("it is no secret key"), "{private}");
    let other = keys_with("", |settings| settings.key_provider = "a.Provider".to_string());
    assert!(
        text(other.check_provider()).contains("a.Provider failed test: java.lang.ClassNotFoundException")
    );
}

#[test]
fn no_password_is_shown() {
    let keys = keys("jceks:///same.jceks?password=hush-hush");
    let shown = format!("{keys:?} {:?} {}", keys.settings(), text(keys.check_provider()));
    assert!(!shown.contains("hush"), "{shown}");
}

/// A key store that was not there at first is read when it is.
#[test]
fn a_key_store_is_read_again_until_it_is_there() {
    let asked = AtomicUsize::new(0);
    let settings = CryptoSettings {
        parameters: "jceks:///same.jceks?password=st0re-pass".to_string(),
        ..CryptoSettings::default()
    };
    let keys = Keys::new(settings, move |path| {
        if asked.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(path.to_str().and_then(file).unwrap_or_default().to_vec())
    });
    assert!(keys.check_provider().is_err());
    keys.check_provider().unwrap();
    keys.check_provider().unwrap();
}

const SAME: &str = "jceks:///same.jceks?password=st0re-pass";

#[test]
fn wrapped_keys_come_back_also_after_a_change_of_the_master_key() {
    let key = DataKey::aes(&[5; 16]).unwrap();
    let before = keys(SAME);
    let wrapped = before.wrap(&key, [3; 16]).unwrap();
    assert_eq!(before.unwrap(&wrapped).unwrap().bytes(), key.bytes());
    let changed = keys_with(SAME, |settings| settings.master_key = Some("second".to_string()));
    let error = text(changed.unwrap(&wrapped));
    assert_eq!(
        error,
        "Key was not successfully unwrapped: it was wrapped with none of 'second', or is damaged"
    );
    let rotating = keys_with(SAME, |settings| {
        settings.master_key = Some("second".to_string());
        settings.alternate_master_key = Some("master".to_string());
    });
    assert_eq!(rotating.unwrap(&wrapped).unwrap().bytes(), key.bytes());
    let missing = keys_with(SAME, |settings| settings.master_key = None);
    assert_eq!(text(missing.unwrap(&wrapped)), "No key found for subject 'hbase'");
}

#[test]
fn keys_of_logs_have_a_key_of_their_own() {
    let key = DataKey::aes(&[5; 16]).unwrap();
    let of_logs = keys_with(SAME, |settings| settings.wal_key = Some("second".to_string()));
    let wrapped = of_logs.wrap_for_wal(&key, [3; 16]).unwrap();
    assert_eq!(of_logs.unwrap_for_wal(&wrapped).unwrap().bytes(), key.bytes());
    assert!(keys(SAME).unwrap_for_wal(&wrapped).is_err());
    let before = keys(SAME).wrap_for_wal(&key, [3; 16]).unwrap();
    assert_eq!(of_logs.unwrap_for_wal(&before).unwrap().bytes(), key.bytes());
}

#[test]
fn digests_that_differ_are_refused_if_asked_for() {
    let key = DataKey::aes(&[5; 16]).unwrap();
    let wrapped = keys(SAME).wrap(&key, [3; 16]).unwrap();
    let other = keys_with(SAME, |settings| settings.hash_algorithm = "SHA-256".to_string());
    other.unwrap(&wrapped).unwrap();
    let strict = keys_with(SAME, |settings| {
        settings.hash_algorithm = "SHA-256".to_string();
        settings.fail_on_hash_mismatch = true;
    });
    assert_eq!(
        text(strict.unwrap(&wrapped)),
        "Unexpected encryption key hash algorithm: MD5 (expecting: SHA-256)"
    );
}

#[test]
fn families_are_checked_as_hbase_does() {
    let good = keys(SAME);
    let wrapped = good.wrap(&DataKey::aes(&[5; 16]).unwrap(), [3; 16]).unwrap();
    good.test_encryption(None, None).unwrap();
    good.test_encryption(Some("AES"), None).unwrap();
    good.test_encryption(Some("aes"), Some(&wrapped)).unwrap();
    assert_eq!(
        text(good.test_encryption(Some("DES"), None)),
        "Cipher DES failed test: Cipher 'DES' is not supported by provider 'default'"
    );
    let error = text(good.test_encryption(Some("AES"), Some(b"\x03abc")));
    assert!(error.starts_with("Cipher AES failed test: wrapped key: "), "{error}");
    let long = good.wrap(&DataKey::aes(&[5; 32]).unwrap(), [3; 16]).unwrap();
    assert_eq!(
        text(good.test_encryption(Some("AES"), Some(&long))),
        "Cipher AES failed test: Illegal key length, have=32, want=16"
    );
    let off = keys_with(SAME, |settings| settings.enabled = false);
    assert_eq!(
        text(off.test_encryption(Some("AES"), None)),
        "Cipher AES failed test: encryption is disabled on the cluster"
    );
    assert!(text(Keys::none().test_encryption(Some("AES"), None)).starts_with("Key provider org."));
    let family = |cipher, wrapped| good.key_of_family("f", cipher, wrapped, || [8; 16]);
    assert!(family(None, None).unwrap().is_none());
    assert_eq!(family(Some("AES"), None).unwrap().unwrap().bytes(), [8; 16]);
    assert_eq!(family(Some("AES"), Some(&wrapped)).unwrap().unwrap().bytes(), [5; 16]);
    let error = text(family(Some("DES"), Some(&wrapped)));
    assert_eq!(
        error,
        "Encryption for family 'f' configured with type 'DES' but key specifies algorithm 'AES'"
    );
}

/// Every byte of a store damaged, and every length: an error or a store, never a panic, and never another key.
#[test]
fn damaged_key_stores_are_errors() {
    for name in ["/same.jceks", "/same.pkcs12", "/legacy.pkcs12", "/private.jks"] {
        let (kind, good) = (name.rsplit('.').next().unwrap(), file(name).unwrap());
        for len in 0..good.len() {
            _ = KeyStore::parse(kind, &good[..len], None);
        }
        for at in 0..good.len() {
            let mut bad = good.to_vec();
            bad[at] ^= 0x15;
            if let Ok(store) = KeyStore::parse(kind, &bad, Some("st0re-pass")) {
                // a byte that says nothing
                assert_eq!(store.get("master").unwrap().unwrap().bytes, [1; 16], "{name}: byte {at}");
            }
            // without a password nothing tells; large counts of rounds take long
            if at % 7 == 0
                && let Ok(store) = KeyStore::parse(kind, &bad, None)
            {
                assert!(store.get("master").is_err() || store.get("master").is_ok_and(|key| key.is_none()));
            }
        }
    }
}

/// Key stores cut, changed and with lengths that promise much, by `HALCYON_SEED`: errors or stores, never a panic.
#[test]
fn damage_by_seed_is_an_error() {
    let seed = std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1u64);
    println!("HALCYON_SEED={seed}");
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |end: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % end.max(1)
    };
    for name in ["/same.jceks", "/keytool.jceks", "/same.pkcs12", "/legacy.pkcs12", "/private.jks"] {
        let (kind, good) = (name.rsplit('.').next().unwrap(), file(name).unwrap());
        for _ in 0..3000 {
            let mut bad = good.to_vec();
            for _ in 0..1 + below(3) {
                let at = below(bad.len());
                match below(4) {
                    0 => bad[at] = below(256) as u8,
                    1 => bad[at] ^= 1 << below(8),
                    2 => bad.truncate(at + 1),
                    _ => {
                        let end = bad.len().min(at + 4);
                        bad[at..end].fill(0xff);
                    }
                }
            }
            _ = KeyStore::parse(kind, &bad, None);
        }
    }
}
