//! What the tests of this crate share.
#![allow(clippy::disallowed_methods)] // a real directory

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use halcyon_env::sim::SimFileSystem;
use halcyon_env::{CryptoSettings, Env, Keys};
use halcyon_schema::Compression;
use halcyon_wal::{WalCompression, WalConfig};

thread_local! {
    static ENCRYPTED: Cell<bool> = const { Cell::new(false) };
    static COMPRESSION: Cell<Option<WalCompression>> = const { Cell::new(None) };
}

/// Runs a test with logs that are encrypted. It must open them on this thread.
pub fn encrypted(test: impl FnOnce()) {
    ENCRYPTED.set(true);
    test();
    ENCRYPTED.set(false);
}

pub fn is_encrypted() -> bool {
    ENCRYPTED.get()
}

/// Runs a test with logs that are compressed: without a codec for values, and with some.
pub fn compressed(test: impl Fn()) {
    for values in [None, Some(Compression::Gz), Some(Compression::Snappy), Some(Compression::Zstd)] {
        compressed_as(WalCompression { values, zstd_in_records: false }, &test);
    }
}

pub fn compressed_as(compression: WalCompression, test: impl FnOnce()) {
    COMPRESSION.set(Some(compression));
    test();
    COMPRESSION.set(None);
}

/// The usual settings, compressed if the test says so.
pub fn config(dir: impl Into<PathBuf>, archive_dir: impl Into<PathBuf>, prefix: &str) -> WalConfig {
    WalConfig { compression: COMPRESSION.get(), ..WalConfig::new(dir, archive_dir, prefix) }
}

/// The keys of a key store that Java wrote.
pub fn keys() -> Arc<Keys> {
    // Opening it takes long, by design.
    static PLAIN: OnceLock<Arc<Keys>> = OnceLock::new();
    static OF_ENCRYPTED: OnceLock<Arc<Keys>> = OnceLock::new();
    let known = if is_encrypted() { &OF_ENCRYPTED } else { &PLAIN };
    known.get_or_init(open_keys).clone()
}

fn open_keys() -> Arc<Keys> {
    let settings = CryptoSettings {
        parameters: "jceks:///same.jceks?password=st0re-pass".to_string(),
        master_key: Some("master".to_string()),
        encrypts_wal: ENCRYPTED.get(),
        ..CryptoSettings::default()
    };
    Arc::new(Keys::new(settings, |_| {
        Ok(include_bytes!("../../../../base/crypto/testdata/same.jceks").to_vec())
    }))
}

pub fn env(fs: &SimFileSystem) -> Env {
    Env { keys: keys(), ..fs.env() }
}

/// A directory that goes away with the test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("halcyon-wal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn config(&self) -> WalConfig {
        config(self.0.join("WALs/h%2C1%2C2"), self.0.join("oldWALs"), "h%2C1%2C2")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
