//! Master keys by their names, and the keys that they wrap.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use halcyon_cell::{Error, Result};
use parking_lot::Mutex;

use crate::settings::{AES_MODE, CIPHER_PROVIDERS, PROVIDER};
use crate::store::{self, KeyStore};
use crate::wrapped::{self, Failure};
use crate::{AES, CryptoSettings, DataKey, Iv};

/// Reads a file of this machine.
type ReadFile = dyn Fn(&Path) -> io::Result<Vec<u8>> + Send + Sync;

/// The keys that a process may use. The key store is read when the first key is asked for, and again until that succeeds:
/// a server whose key store is not there serves everything that is not encrypted.
///
/// *Thread safety*: shared by all threads. Asking for the first key reads a file.
pub struct Keys {
    settings: CryptoSettings,
    read: Box<ReadFile>,
    store: Mutex<Option<Arc<KeyStore>>>,
    /// Keys that were taken out of the store, by name. It is made to give each of them slowly.
    opened: Mutex<HashMap<String, DataKey>>,
}

impl Keys {
    /// `read` reads the key store and the file of passwords.
    pub fn new(
        settings: CryptoSettings,
        read: impl Fn(&Path) -> io::Result<Vec<u8>> + Send + Sync + 'static,
    ) -> Keys {
        Keys { settings, read: Box::new(read), store: Mutex::new(None), opened: Mutex::default() }
    }

    /// With HBase's defaults: no key store, so no keys.
    pub fn none() -> Keys {
        Keys::new(CryptoSettings::default(), |_| Err(io::ErrorKind::NotFound.into()))
    }

    pub fn settings(&self) -> &CryptoSettings {
        &self.settings
    }

    /// Whether the key provider can be used (HBase: `EncryptionTest.testKeyProvider`).
    pub fn check_provider(&self) -> Result<()> {
        self.store().map(|_| ())
    }

    /// Whether the cipher provider can be used (HBase: `EncryptionTest.testCipherProvider`).
    pub fn check_cipher_provider(&self) -> Result<()> {
        let (provider, mode) = (&self.settings.cipher_provider, &self.settings.aes_mode);
        if !CIPHER_PROVIDERS.contains(&provider.as_str()) {
            return Err(Error::invalid(format!(
                "Cipher provider {provider} failed test: java.lang.ClassNotFoundException: {provider}"
            )));
        }
        if !mode.eq_ignore_ascii_case(AES_MODE) {
            return Err(Error::invalid(format!(
                "hbase.crypto.algorithm.aes.mode {mode} is not supported: {AES_MODE} is"
            )));
        }
        Ok(())
    }

    /// What the master checks of a family before it takes a table (HBase: `EncryptionTest.testEncryption`). Unlike HBase's it
    /// remembers no earlier answer: a key that was put into the key store meanwhile is found.
    pub fn test_encryption(&self, cipher: Option<&str>, wrapped: Option<&[u8]>) -> Result<()> {
        let Some(cipher) = cipher else { return Ok(()) };
        if !self.settings.enabled {
            let what = format!("Cipher {cipher} failed test: encryption is disabled on the cluster");
            return Err(Error::invalid(what));
        }
        self.check_provider()?;
        self.check_cipher_provider()?;
        let failed =
            |error: Error| Error::invalid(format!("Cipher {cipher} failed test: {}", error.message()));
        check_cipher(cipher).map_err(failed)?;
        if let Some(wrapped) = wrapped {
            let name = self.settings.master_key.as_deref().unwrap_or("hbase");
            let key = self.unwrap_with(name, wrapped).map_err(|failure| failed(failure.into()))?;
            check_len(&key).map_err(failed)?;
        }
        Ok(())
    }

    /// The key for a new file of a family; `None`: its files are not encrypted. `random` becomes the key unless the family has
    /// one of its own (HBase: `EncryptionUtil.createEncryptionContext`).
    pub fn key_of_family(
        &self,
        family: &str,
        cipher: Option<&str>,
        wrapped: Option<&[u8]>,
        random: impl FnOnce() -> [u8; crate::KEY_LEN],
    ) -> Result<Option<DataKey>> {
        let Some(cipher) = cipher else { return Ok(None) };
        if !self.settings.enabled {
            return Err(Error::invalid(format!(
                "Encryption for family '{family}' configured with type '{cipher}' but the encryption feature is disabled"
            )));
        }
        let Some(wrapped) = wrapped else {
            check_cipher(cipher)?;
            return DataKey::aes(&random()).map(Some);
        };
        let key = self.unwrap(wrapped)?;
        if !cipher.eq_ignore_ascii_case(AES) {
            return Err(Error::invalid(format!(
                "Encryption for family '{family}' configured with type '{cipher}' but key specifies algorithm '{AES}'"
            )));
        }
        check_len(&key)?;
        Ok(Some(key))
    }

    /// Whether files of a family can be written and read again: a region whose keys are missing must not open, or its first
    /// flush would fail.
    pub fn check_family(&self, family: &str, cipher: Option<&str>, wrapped: Option<&[u8]>) -> Result<()> {
        if self.key_of_family(family, cipher, wrapped, || [0; crate::KEY_LEN])?.is_some() {
            self.key(self.settings.master_key())?;
        }
        Ok(())
    }

    /// Wraps the key of a file with the master key.
    pub fn wrap(&self, key: &DataKey, iv: Iv) -> Result<Vec<u8>> {
        self.wrap_with(self.settings.master_key(), key, iv)
    }

    /// Wraps the key of a log.
    pub fn wrap_for_wal(&self, key: &DataKey, iv: Iv) -> Result<Vec<u8>> {
        check_cipher(&self.settings.wal_algorithm)?;
        let name = self.settings.wal_key.as_deref().unwrap_or_else(|| self.settings.master_key());
        self.wrap_with(name, key, iv)
    }

    /// Unwraps the key of a file or family, with the master key or else the alternate one.
    ///
    /// `Corrupt` if the bytes are no wrapped key; `Invalid` if no key unwraps them, or the key store has no such key.
    pub fn unwrap(&self, wrapped: &[u8]) -> Result<DataKey> {
        match self.unwrap_with(self.settings.master_key(), wrapped) {
            Err(Failure::WrongKey(error)) => match &self.settings.alternate_master_key {
                Some(name) => {
                    self.unwrap_with(name, wrapped).map_err(|failure| self.not_unwrapped(failure.into()))
                }
                None => Err(self.not_unwrapped(error)),
            },
            unwrapped => unwrapped.map_err(Error::from),
        }
    }

    /// Unwraps the key of a log: with the key of logs, the master key, the alternate one.
    pub fn unwrap_for_wal(&self, wrapped: &[u8]) -> Result<DataKey> {
        check_cipher(&self.settings.wal_algorithm)?;
        if let Some(name) = &self.settings.wal_key {
            match self.unwrap_with(name, wrapped) {
                Err(Failure::WrongKey(_)) => {}
                unwrapped => return unwrapped.map_err(Error::from),
            }
        }
        self.unwrap(wrapped)
    }

    fn not_unwrapped(&self, error: Error) -> Error {
        if error.message() != wrapped::NOT_UNWRAPPED {
            return error;
        }
        let names = [self.settings.wal_key.as_deref(), Some(self.settings.master_key())];
        let names = names.into_iter().chain([self.settings.alternate_master_key.as_deref()]).flatten();
        let mut names: Vec<_> = names.map(|name| format!("'{name}'")).collect();
        names.dedup();
        let names = names.join(", ");
        Error::new(
            error.kind(),
            format!("{}: it was wrapped with none of {names}, or is damaged", error.message()),
        )
    }

    /// The key of this name, as `SecretKeySpec` has it. `Invalid` if there is none.
    fn key(&self, name: &str) -> Result<DataKey> {
        if let Some(key) = self.opened.lock().get(name) {
            return Ok(key.clone());
        }
        let store = self.store()?;
        let none = || Error::invalid(format!("No key found for subject '{name}'"));
        let secret = store.get(name)?.ok_or_else(none)?;
        if !secret.algorithm.eq_ignore_ascii_case(AES) && !secret.algorithm.eq_ignore_ascii_case("Rijndael") {
            let what = format!(
                "key '{name}' is one of {}: Wrong algorithm: AES or Rijndael required",
                secret.algorithm
            );
            return Err(Error::invalid(what));
        }
        let key = DataKey::aes(&secret.bytes).map_err(|error| error.context(format_args!("key '{name}'")))?;
        self.opened.lock().insert(name.to_string(), key.clone());
        Ok(key)
    }

    fn wrap_with(&self, name: &str, key: &DataKey, iv: Iv) -> Result<Vec<u8>> {
        check_cipher(&self.settings.key_algorithm)?;
        wrapped::wrap(key, &self.key(name)?, &self.settings.hash_algorithm, iv)
    }

    fn unwrap_with(&self, name: &str, wrapped: &[u8]) -> std::result::Result<DataKey, Failure> {
        let known = [Some(&self.settings.key_algorithm), self.settings.alternate_key_algorithm.as_ref()];
        known.into_iter().flatten().try_for_each(|cipher| check_cipher(cipher))?;
        let message = wrapped::parse(wrapped)?;
        let (found, expected) = (message.hash_algorithm().trim(), &self.settings.hash_algorithm);
        if self.settings.fail_on_hash_mismatch && !found.eq_ignore_ascii_case(expected) {
            return Err(Failure::WrongKey(Error::invalid(format!(
                "Unexpected encryption key hash algorithm: {found} (expecting: {expected})"
            ))));
        }
        wrapped::unwrap(&message, &self.key(name)?)
    }

    fn store(&self) -> Result<Arc<KeyStore>> {
        let mut known = self.store.lock();
        if let Some(store) = &*known {
            return Ok(store.clone());
        }
        let provider = &self.settings.key_provider;
        let failed = |why: String| Error::invalid(format!("Key provider {provider} failed test: {why}"));
        if provider != PROVIDER {
            return Err(failed(format!(
                "java.lang.ClassNotFoundException: {provider} (only {PROVIDER} is supported)"
            )));
        }
        let store = store::load(&self.settings.parameters, &*self.read).map_err(failed)?;
        Ok(known.insert(Arc::new(store)).clone())
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

/// Keys of files have the length that HBase makes (`Context.setKey`); those of logs and master keys may have others.
fn check_len(key: &DataKey) -> Result<()> {
    match key.bytes().len() {
        crate::KEY_LEN => Ok(()),
        have => Err(Error::invalid(format!("Illegal key length, have={have}, want={}", crate::KEY_LEN))),
    }
}

/// HBase's `DefaultCipherProvider` knows one.
fn check_cipher(name: &str) -> Result<()> {
    if name.eq_ignore_ascii_case(AES) {
        return Ok(());
    }
    Err(Error::invalid(format!("Cipher '{name}' is not supported by provider 'default'")))
}

#[cfg(test)]
mod tests;
