//! PKCS#12 (RFC 7292) as far as Java's key stores need it: secret keys, each shrouded with its password.
//!
//! ```text
//! PFX { 3, ContentInfo { data, OCTETS( SEQUENCE OF ContentInfo ) }, MacData? }
//! SafeBag { secretBag, { pkcs8ShroudedKeyBag, OCTETS( EncryptedPrivateKeyInfo ) }, SET OF { friendlyName, BMPString } }
//! ```

use super::der::{BMP_STRING, CONTEXT, CONTEXT_PLAIN, Der, OCTETS, SEQUENCE, SET};
use super::{Entry, Load, Secret, pbe};

const DATA: &str = "1.2.840.113549.1.7.1";
const ENCRYPTED_DATA: &str = "1.2.840.113549.1.7.6";
const SECRET_BAG: &str = "1.2.840.113549.1.12.10.1.5";
const SHROUDED_KEY_BAG: &str = "1.2.840.113549.1.12.10.1.2";
const FRIENDLY_NAME: &str = "1.2.840.113549.1.9.20";
const AES_OID: &str = "2.16.840.1.101.3.4.1";

pub(super) fn parse(bytes: &[u8], password: Option<&str>) -> Load<Vec<(String, Entry)>> {
    let mut pfx = Der(bytes).take(SEQUENCE)?;
    let version = pfx.number()?;
    if version != 3 {
        return Err(format!("java.io.IOException: PKCS12 keystore not in version 3 format: {version}"));
    }
    let mut info = pfx.take(SEQUENCE)?;
    let kind = info.oid()?;
    if kind != DATA {
        return Err("java.io.IOException: public key protected PKCS12 not supported".into());
    }
    let safe = info.take(CONTEXT)?.octets()?;
    if let Some(password) = password
        && !pfx.is_empty()
    {
        verify(&mut pfx, safe, password)?;
    }
    let mut entries = Vec::new();
    let mut contents = Der(safe).take(SEQUENCE)?;
    while !contents.is_empty() {
        let mut info = contents.take(SEQUENCE)?;
        match (info.oid()?.as_str(), password) {
            (DATA, _) => take_bags(info.take(CONTEXT)?.octets()?, &mut entries)?,
            // Java passes over it as well without a password
            (ENCRYPTED_DATA, Some(password)) => {
                if let Some(plain) = decrypt(info.take(CONTEXT)?, password)? {
                    take_bags(&plain, &mut entries)?;
                }
            }
            _ => {}
        }
    }
    Ok(entries)
}

fn verify(pfx: &mut Der<'_>, safe: &[u8], password: &str) -> Load<()> {
    let mut mac = pfx.take(SEQUENCE)?;
    let mut digest = mac.take(SEQUENCE)?;
    let (algorithm, sum) = (digest.take(SEQUENCE)?.oid()?, digest.octets()?);
    let salt = mac.octets()?;
    let rounds = if mac.is_empty() { 1 } else { mac.number()? };
    if pbe::verify_mac(&algorithm, password, salt, rounds, safe, sum)? {
        return Ok(());
    }
    Err("java.io.IOException: keystore password was incorrect".into())
}

/// `None` for a cipher that only certificates are encrypted with.
fn decrypt(mut data: Der<'_>, password: &str) -> Load<Option<Vec<u8>>> {
    let mut data = data.take(SEQUENCE)?;
    data.number()?;
    let mut info = data.take(SEQUENCE)?;
    info.oid()?;
    let algorithm = info.take(SEQUENCE)?;
    let sealed = match info.any()? {
        (CONTEXT_PLAIN, Der(sealed)) => sealed.to_vec(),
        (CONTEXT, mut parts) => {
            let mut sealed = Vec::new();
            while !parts.is_empty() {
                sealed.extend_from_slice(parts.octets()?);
            }
            sealed
        }
        _ => return Ok(None),
    };
    match pbe::decrypt(algorithm, password, &sealed) {
        Err(why) if why.contains("NoSuchAlgorithm") => Ok(None),
        Err(why) if why == pbe::WRONG_PASSWORD => {
            Err("java.io.IOException: keystore password was incorrect".into())
        }
        plain => plain.map(Some),
    }
}

fn take_bags(bytes: &[u8], entries: &mut Vec<(String, Entry)>) -> Load<()> {
    let mut bags = Der(bytes).take(SEQUENCE)?;
    while !bags.is_empty() {
        let mut bag = bags.take(SEQUENCE)?;
        let (kind, mut value) = (bag.oid()?, bag.take(CONTEXT)?);
        let name = if bag.is_empty() { None } else { friendly_name(bag.take(SET)?)? };
        let entry = match kind.as_str() {
            SECRET_BAG => {
                let mut secret = value.take(SEQUENCE)?;
                match secret.oid()?.as_str() {
                    SHROUDED_KEY_BAG => Entry::Shrouded(secret.take(CONTEXT)?.octets()?.to_vec()),
                    _ => Entry::NoSecret,
                }
            }
            _ => Entry::NoSecret,
        };
        entries.extend(name.map(|name| (name.to_lowercase(), entry)));
    }
    Ok(())
}

fn friendly_name(mut attributes: Der<'_>) -> Load<Option<String>> {
    while !attributes.is_empty() {
        let mut attribute = attributes.take(SEQUENCE)?;
        if attribute.oid()? != FRIENDLY_NAME {
            continue;
        }
        let Der(units) = attribute.take(SET)?.take(BMP_STRING)?;
        let units: Vec<u16> =
            units.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        return Ok(Some(String::from_utf16_lossy(&units)));
    }
    Ok(None)
}

/// The key in an `EncryptedPrivateKeyInfo`.
pub(super) fn unshroud(info: &[u8], password: &str) -> Load<Secret> {
    let mut info = Der(info).take(SEQUENCE)?;
    let (algorithm, Der(sealed)) = (info.take(SEQUENCE)?, info.take(OCTETS)?);
    let plain = pbe::decrypt(algorithm, password, sealed)?;
    let mut key = Der(&plain).take(SEQUENCE).map_err(|_| pbe::WRONG_PASSWORD.to_string())?;
    key.number()?;
    let name = key.take(SEQUENCE)?.oid()?;
    let algorithm = if name == AES_OID { crate::AES.to_string() } else { name };
    Ok(Secret { algorithm, bytes: key.octets()?.to_vec() })
}
