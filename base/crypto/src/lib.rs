//! Keys of encryption at rest: key stores of Java, wrapped keys, and AES in counter mode.
//!
//! Checked against HBase 2.6.4: `KeyStoreKeyProvider`, `EncryptionUtil`, `EncryptionTest`, `Encryption`, `AES`.
//!
//! ```text
//! key store (jceks, pkcs12)  --name-->  master key  --unwraps-->  key of a family, a file or a log  -->  blocks, cells
//! ```
//!
//! - `settings.rs`: [`CryptoSettings`], HBase's `hbase.crypto.*`
//! - `keys.rs`: [`Keys`], which finds master keys by name, wraps data keys and unwraps them
//! - `wrapped.rs`: the message in which a wrapped key lies in a trailer, a log's header or a descriptor
//! - `cipher.rs`: [`DataKey`], a key with its schedule
//! - `store`: key stores as Java writes them
//!
//! What always holds:
//! - No key and no password is in an error, in `Debug` or in a printed setting.
//! - The crate reads no file and draws no random number by itself; its callers hand in both.
//! - A key store is foreign bytes: no length in it allocates memory before it is compared with the bytes that are there.
//!
//! When you change what [`Keys`] says, also touch `docs/ENCRYPTION.md` and `testing/compat/encryption.sh`: most sentences
//! are HBase's.

mod cipher;
mod keys;
mod settings;
mod store;
mod wrapped;

pub use cipher::{AES, DataKey, IV_LEN, Iv, KEY_LEN, increment_iv};
pub use keys::Keys;
pub use settings::CryptoSettings;
pub use store::KeyStore;
