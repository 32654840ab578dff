//! JCEKS and JKS, the formats of Java's `JceKeyStore` and `JavaKeyStore`.
//!
//! ```text
//! store = magic | int32 version | int32 count | entry* | SHA-1 over the password, "Mighty Aphrodite" and all before
//! entry = int32 1 | name | int64 ms | int32 length, private key | int32 count, certificate*
//!       | int32 2 | name | int64 ms | certificate
//!       | int32 3 | name | int64 ms | a serialized SealedObject        JCEKS only
//! certificate = type (version 2) | int32 length, bytes
//! name, type = int16 length, modified UTF-8
//! ```

use sha1::{Digest, Sha1};

use super::java_object::{self, Object, Reader, Sealed};
use super::{Entry, Load, Secret, der, pbe};

pub(super) const JKS_MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];
const JCEKS_MAGIC: [u8; 4] = [0xce; 4];
const SUM_LEN: usize = 20;
const SALT_OF_SUM: &[u8] = b"Mighty Aphrodite";

pub(super) fn parse(bytes: &[u8], password: Option<&str>) -> Load<Vec<(String, Entry)>> {
    let mut reader = Reader::new(bytes);
    let magic = reader.take(4)?;
    if magic != JKS_MAGIC && magic != JCEKS_MAGIC {
        return Err("java.io.IOException: Invalid keystore format".into());
    }
    let version = reader.u32()?;
    if version != 1 && version != 2 {
        return Err("java.io.IOException: Invalid keystore format".into());
    }
    let count = reader.u32()?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let kind = reader.u32()?;
        let name = reader.utf()?.to_lowercase();
        reader.take(8)?; // when it was made
        let entry = match kind {
            1 => {
                let len = reader.u32()?;
                reader.take(len as usize)?;
                for _ in 0..reader.u32()? {
                    pass_certificate(&mut reader, version)?;
                }
                Entry::NoSecret
            }
            2 => {
                pass_certificate(&mut reader, version)?;
                Entry::NoSecret
            }
            3 => Entry::Sealed(java_object::read_sealed(&mut reader)?),
            _ => return Err(format!("java.io.IOException: Unrecognized keystore entry: {kind}")),
        };
        entries.push((name, entry));
    }
    let end = reader.at();
    if let Some(password) = password {
        let mut sum = Sha1::new();
        sum.update(password.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>());
        sum.update(SALT_OF_SUM);
        sum.update(&bytes[..end]);
        if reader.take(SUM_LEN)? != &sum.finalize()[..] {
            return Err("java.io.IOException: Keystore was tampered with, or password was incorrect".into());
        }
    }
    Ok(entries)
}

fn pass_certificate(reader: &mut Reader<'_>, version: u32) -> Load<()> {
    if version == 2 {
        reader.utf()?;
    }
    let len = reader.u32()?;
    reader.take(len as usize).map(|_| ())
}

/// The key in a sealed entry: a `SecretKeySpec`, or what `KeyRep` stands for.
pub(super) fn unseal(sealed: &Sealed, password: &str) -> Load<Secret> {
    if sealed.algorithm != "PBEWithMD5AndTripleDES" {
        return Err(format!("it is sealed with {}", sealed.algorithm));
    }
    let mut parameters = der::Der(&sealed.parameters).take(der::SEQUENCE)?;
    let (salt, rounds) = (parameters.octets()?, parameters.number()?);
    let plain = pbe::decrypt_jceks(salt, rounds, password, &sealed.contents)?;
    let object = java_object::read(&mut Reader::new(&plain))?;
    let Object::Instance { class, .. } = &object else { return Err("it is no key".into()) };
    let (bytes, class) = match class.as_str() {
        "javax.crypto.spec.SecretKeySpec" => (object.field("key"), class),
        "java.security.KeyRep" => (object.field("encoded"), class),
        other => return Err(format!("it is an object of class {other}")),
    };
    match (object.field("algorithm"), bytes) {
        (Some(Object::Text(algorithm)), Some(Object::Bytes(bytes))) => {
            Ok(Secret { algorithm: algorithm.to_string(), bytes: bytes.to_vec() })
        }
        _ => Err(format!("a {class} without a key")),
    }
}
