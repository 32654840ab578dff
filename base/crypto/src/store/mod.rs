//! Key stores as Java's `KeyStore` writes them, and the parameters that name one.
//!
//! ```text
//! hbase.crypto.keyprovider.parameters = TYPE://PATH?password=TEXT      or ?passwordFile=PATH, a line NAME=TEXT for each key
//! TYPE: jceks, jks, pkcs12
//! ```
//!
//! As in Java, `jks` and `pkcs12` read either of the two formats. A JKS file has no secret keys, so one as master key is
//! always an error there. Type and parameters are those of HBase's `KeyStoreKeyProvider`.

mod der;
mod java_object;
mod jceks;
mod parameters;
mod pbe;
mod pkcs12;

use std::fmt;
use std::io;
use std::path::Path;

use halcyon_cell::{Error, Result};

use parameters::{Parameters, Passwords};

/// Largest key store that is read.
const STORE_LEN_MAX: usize = 64 << 20;

/// A secret key, as the store has it.
pub(crate) struct Secret {
    pub(crate) algorithm: String,
    pub(crate) bytes: Vec<u8>,
}

/// Why a store was not read: an exception of Java as text.
pub(crate) type Load<T> = std::result::Result<T, String>;

/// A sealed entry.
enum Entry {
    /// Of JCEKS: a serialized `SealedObject`.
    Sealed(java_object::Sealed),
    /// Of PKCS#12: an `EncryptedPrivateKeyInfo`.
    Shrouded(Vec<u8>),
    /// A private key with certificates, or a certificate.
    NoSecret,
}

/// An open key store: entries by name, each still sealed with its password.
pub struct KeyStore {
    entries: Vec<(String, Entry)>,
    passwords: Passwords,
}

impl KeyStore {
    /// Reads a store of this type (`jceks`, `jks`, `pkcs12`). With a password it also checks that nobody changed it. The
    /// error is Java's exception as text.
    pub fn parse(kind: &str, bytes: &[u8], password: Option<&str>) -> std::result::Result<KeyStore, String> {
        let passwords = Passwords { of_store: password.map(str::to_string), by_name: Vec::new() };
        KeyStore::open(kind, bytes, passwords)
    }

    fn open(kind: &str, bytes: &[u8], passwords: Passwords) -> Load<KeyStore> {
        let password = passwords.of_store.as_deref();
        let is_of_jks = bytes.starts_with(&jceks::JKS_MAGIC);
        let entries = match kind.to_uppercase().as_str() {
            "JCEKS" => jceks::parse(bytes, password),
            "JKS" | "PKCS12" if is_of_jks => jceks::parse(bytes, password),
            "JKS" | "PKCS12" => pkcs12::parse(bytes, password),
            other => Err(format!("java.security.KeyStoreException: {other} not found")),
        }?;
        Ok(KeyStore { entries, passwords })
    }

    /// The secret key of this name, in any case. `Invalid` if it cannot be had with the password.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Secret>> {
        let lower = name.to_lowercase();
        let Some((_, entry)) = self.entries.iter().find(|(of, _)| *of == lower) else { return Ok(None) };
        let failed = |why: String| Error::invalid(format!("key '{name}' of the key store: {why}"));
        let password = self.passwords.of_key(name).ok_or_else(|| failed("password can't be null".into()))?;
        let secret = match entry {
            Entry::Sealed(sealed) => jceks::unseal(sealed, password),
            Entry::Shrouded(info) => pkcs12::unshroud(info, password),
            Entry::NoSecret => Err("Wrong format: RAW bytes needed, it is no secret key".to_string()),
        };
        secret.map(Some).map_err(failed)
    }

    /// Names of all entries.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }
}

impl fmt::Debug for KeyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// The store that the parameters name. The error is Java's exception as HBase passes it on.
pub(crate) fn load(text: &str, read: &dyn Fn(&Path) -> io::Result<Vec<u8>>) -> Load<KeyStore> {
    let wrapped = |why: String| format!("java.lang.RuntimeException: {why}");
    let parameters = Parameters::parse(text)?;
    let read = |path: &str| {
        let not_read = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => {
                format!("java.io.FileNotFoundException: {path} (No such file or directory)")
            }
            io::ErrorKind::PermissionDenied => {
                format!("java.io.FileNotFoundException: {path} (Permission denied)")
            }
            _ => format!("java.io.IOException: {path}: {error}"),
        };
        let bytes = read(Path::new(path)).map_err(not_read)?;
        if bytes.len() > STORE_LEN_MAX {
            return Err(format!("java.io.IOException: {path}: larger than {STORE_LEN_MAX} bytes"));
        }
        Ok(bytes)
    };
    let passwords = parameters.passwords(&read).map_err(wrapped)?;
    let bytes = read(&parameters.path).map_err(wrapped)?;
    KeyStore::open(&parameters.kind, &bytes, passwords).map_err(wrapped)
}
