//! Settings of encryption at rest, and the keys of a process.

use std::path::Path;

use halcyon_env::{CryptoSettings, Env};
use halcyon_settings::Effect::Restart;
use halcyon_settings::{Flag, Maybe, Section, Setting, Text, settings};

use crate::references;
use crate::settings::StandaloneSettings;
use crate::site::{self, Property};

const TITLE: &str = "Encryption";
/// Its value has a password.
const PARAMETERS_NAME: &str = "hbase.crypto.keyprovider.parameters";
/// What is shown instead.
const HIDDEN: &str = "(hidden)";

const PARAMETERS: Setting<StandaloneSettings> = Setting {
    name: PARAMETERS_NAME,
    unit: "address",
    effect: Restart,
    text: "The key store, such as `jceks:///etc/hbase/keys.jceks?password=...`: type (`jceks`, `jks`, `pkcs12`), path and \
           `password`, or `passwordFile` with a line for each key. No page, log or output shows the value.",
    set: |settings, text| {
        settings.crypto.parameters = text.trim().to_string();
        Ok(())
    },
    get: |settings| Some(if settings.crypto.parameters.is_empty() { "" } else { HIDDEN }.to_string()),
};

pub const KEY_STORE: Section<StandaloneSettings> = Section { title: TITLE, settings: &[PARAMETERS] };

pub const ENCRYPTION: Section<StandaloneSettings> = Section {
    title: TITLE,
    settings: settings!(StandaloneSettings:
        Restart, "hbase.crypto.enabled", "true, false", Flag, crypto.enabled,
            "Whether families may be encrypted. false: their regions do not open.";
        Restart, "hbase.crypto.keyprovider", "class", Text, crypto.key_provider,
            "Where keys come from. There is this one.";
        Restart, "hbase.crypto.cipherprovider", "class", Text, crypto.cipher_provider,
            "HBase has this one and `CryptoCipherProvider`, with the same bytes.";
        Restart, "hbase.crypto.algorithm.aes.mode", "name", Text, crypto.aes_mode, "There is this one.";
        Restart, "hbase.crypto.master.key.name", "name", Maybe<Text>, crypto.master_key,
            "The master key. Not set: the name of the user that runs the server.";
        Restart, "hbase.crypto.master.alternate.key.name", "name", Maybe<Text>, crypto.alternate_master_key,
            "The master key before: it unwraps what the new one does not.";
        Restart, "hbase.crypto.wal.key.name", "name", Maybe<Text>, crypto.wal_key,
            "The master key of WALs. Not set: that of files.";
        Restart, "hbase.crypto.key.algorithm", "name", Text, crypto.key_algorithm,
            "The cipher that keys are wrapped with. There is this one.";
        Restart, "hbase.crypto.alternate.key.algorithm", "name", Maybe<Text>, crypto.alternate_key_algorithm,
            "The cipher before.";
        Restart, "hbase.crypto.wal.algorithm", "name", Text, crypto.wal_algorithm, "The cipher of WALs. There is this one.";
        Restart, "hbase.crypto.key.hash.algorithm", "name", Text, crypto.hash_algorithm,
            "The digest beside a wrapped key: MD5, SHA-1, SHA-224, SHA-256, SHA-384 or SHA-512.";
        Restart, "hbase.crypto.key.hash.algorithm.failOnMismatch", "true, false", Flag, crypto.fail_on_hash_mismatch,
            "Whether keys with another digest are refused.";
        Restart, "hbase.regionserver.wal.encryption", "true, false", Flag, crypto.encrypts_wal,
            "Whether new WALs and recovered edits are encrypted.";
        Restart, "hbase.master.check.encryption", "true, false", Flag, checks_encryption,
            "Whether the master tries the encryption of a new or changed table. A table can also turn it off.";
    ),
};

/// Whether the value of a property must not be shown.
pub fn is_secret(name: &str) -> bool {
    name == PARAMETERS_NAME
}

impl StandaloneSettings {
    /// The environment with the keys that the settings name.
    pub fn with_keys(&self, env: Env) -> Env {
        let hadoop_user = std::env::var("HADOOP_USER_NAME").ok().filter(|name| !name.is_empty());
        let user = hadoop_user.or_else(|| references::user_name(&env));
        let mut crypto = self.crypto.clone();
        crypto.user = user.unwrap_or_else(|| CryptoSettings::default().user);
        env.with_crypto(crypto)
    }
}

/// For a program that looks at files: with the keys that a directory's `hbase-site.xml` names, if there is one.
pub fn with_keys_of(env: Env, config: Option<&Path>) -> Result<Env, String> {
    let Some(dir) = config else { return Ok(env) };
    let properties = site::read(&env, dir)?;
    let mut settings = StandaloneSettings::default();
    for Property { name, value } in &properties {
        let known = |setting: &&Setting<StandaloneSettings>| setting.name == name;
        if let Some(setting) = KEY_STORE.settings.iter().chain(ENCRYPTION.settings).find(known) {
            (setting.set)(&mut settings, value).map_err(|why| format!("{name} {why}"))?;
        }
    }
    Ok(settings.with_keys(env))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_never_shown() {
        let mut settings = StandaloneSettings::default();
        let value = "jceks:///a?password=hush-hush";
        assert_eq!(settings.set(PARAMETERS_NAME, value), Ok(true));
        assert_eq!(settings.crypto.parameters, value);
        let shown = format!("{settings} {settings:?}");
        assert!(
            !shown.contains("hush") && shown.contains(&format!("{PARAMETERS_NAME} = {HIDDEN}")),
            "{shown}"
        );
        let unresolved = Property { name: PARAMETERS_NAME.into(), value: format!("{value}${{no.such}}") };
        let error =
            StandaloneSettings::new(&[unresolved], &crate::args::StandaloneArgs::default()).unwrap_err();
        assert!(!error.contains("hush") && error.contains("no.such"), "{error}");
    }
}
