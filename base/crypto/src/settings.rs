//! HBase's `hbase.crypto.*` as plain data.

use std::fmt;

/// Names in the comments are HBase's properties.
#[derive(Clone, PartialEq, Eq)]
pub struct CryptoSettings {
    /// `hbase.crypto.enabled`: whether families may be encrypted.
    pub enabled: bool,
    /// `hbase.crypto.cipherprovider`: a class. HBase has two, with equal bytes.
    pub cipher_provider: String,
    /// `hbase.crypto.keyprovider`: a class.
    pub key_provider: String,
    /// `hbase.crypto.keyprovider.parameters`: type, path and password of the key store. Never printed.
    pub parameters: String,
    /// `hbase.crypto.master.key.name`; `None`: the name of the user that runs the server.
    pub master_key: Option<String>,
    /// `hbase.crypto.master.alternate.key.name`: tried where the master key does not unwrap.
    pub alternate_master_key: Option<String>,
    /// `hbase.crypto.wal.key.name`; `None`: the master key.
    pub wal_key: Option<String>,
    /// `hbase.crypto.key.algorithm`: the cipher that wraps keys.
    pub key_algorithm: String,
    /// `hbase.crypto.alternate.key.algorithm`
    pub alternate_key_algorithm: Option<String>,
    /// `hbase.crypto.wal.algorithm`: the cipher of logs.
    pub wal_algorithm: String,
    /// `hbase.crypto.key.hash.algorithm`: the digest beside a wrapped key.
    pub hash_algorithm: String,
    /// `hbase.crypto.key.hash.algorithm.failOnMismatch`: refuse keys with another digest.
    pub fail_on_hash_mismatch: bool,
    /// `hbase.crypto.algorithm.aes.mode`
    pub aes_mode: String,
    /// Name of the user that runs the server.
    pub user: String,
    /// `hbase.regionserver.wal.encryption`
    pub encrypts_wal: bool,
}

pub(crate) const PROVIDER: &str = "org.apache.hadoop.hbase.io.crypto.KeyStoreKeyProvider";
pub(crate) const CIPHER_PROVIDERS: [&str; 2] = [
    "org.apache.hadoop.hbase.io.crypto.DefaultCipherProvider",
    "org.apache.hadoop.hbase.io.crypto.CryptoCipherProvider",
];
pub(crate) const AES_MODE: &str = "AES/CTR/NoPadding";

impl Default for CryptoSettings {
    fn default() -> CryptoSettings {
        CryptoSettings {
            enabled: true,
            cipher_provider: CIPHER_PROVIDERS[0].to_string(),
            key_provider: PROVIDER.to_string(),
            parameters: String::new(),
            master_key: None,
            alternate_master_key: None,
            wal_key: None,
            key_algorithm: crate::AES.to_string(),
            alternate_key_algorithm: None,
            wal_algorithm: crate::AES.to_string(),
            hash_algorithm: "MD5".to_string(),
            fail_on_hash_mismatch: false,
            aes_mode: AES_MODE.to_string(),
            user: "hbase".to_string(),
            encrypts_wal: false,
        }
    }
}

impl CryptoSettings {
    /// Name of the master key.
    pub fn master_key(&self) -> &str {
        self.master_key.as_deref().unwrap_or(&self.user)
    }
}

/// Without the parameters, which have passwords.
impl fmt::Debug for CryptoSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (provider, master, wal) = (&self.key_provider, self.master_key(), &self.wal_key);
        write!(f, "CryptoSettings {{ {provider}, master key {master:?}, key of logs {wal:?} }}")
    }
}
