//! What the tests of this crate share.
#![allow(dead_code, clippy::disallowed_methods)] // each test uses its part; a real directory

use std::path::{Path, PathBuf};

use halcyon_wal::WalConfig;

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
        WalConfig::new(self.0.join("WALs/h%2C1%2C2"), self.0.join("oldWALs"), "h%2C1%2C2")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
