//! A wrapped key: a data key that is encrypted with another key, and a digest of it.
//!
//! ```text
//! varint length | WrappedKey { algorithm, length, data, iv, hash, hash_algorithm }
//! ```
//!
//! It lies so in a trailer of an HFile, in a log's header, and as `ENCRYPTION_KEY` of a family.

use halcyon_cell::{Error, Result};
use halcyon_proto::pb::WrappedKey;
use md5::Md5;
use prost::Message;
use sha1::{Digest, Sha1};
use sha2::{Sha224, Sha256, Sha384, Sha512};

use crate::{AES, DataKey, IV_LEN, Iv};

/// Longest key that is believed. Those of AES have at most 32 bytes.
const KEY_LEN_MAX: u32 = 1024;
pub(crate) const NOT_UNWRAPPED: &str = "Key was not successfully unwrapped";

/// Why a key was not unwrapped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was wrapped with another key, or is damaged: another key may do (Java: `KeyException`).
    WrongKey(Error),
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Other(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::WrongKey(error) | Failure::Other(error) => error,
        }
    }
}

pub(crate) fn digest(algorithm: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    match algorithm.to_ascii_uppercase().as_str() {
        "MD5" => Ok(Md5::digest(bytes).to_vec()),
        "SHA-1" | "SHA1" | "SHA" => Ok(Sha1::digest(bytes).to_vec()),
        "SHA-224" | "SHA224" => Ok(Sha224::digest(bytes).to_vec()),
        "SHA-256" | "SHA256" => Ok(Sha256::digest(bytes).to_vec()),
        "SHA-384" | "SHA384" => Ok(Sha384::digest(bytes).to_vec()),
        "SHA-512" | "SHA512" => Ok(Sha512::digest(bytes).to_vec()),
        _ => Err(Error::invalid(format!("unable to use hash algorithm: {algorithm}"))),
    }
}

pub(crate) fn wrap(key: &DataKey, with: &DataKey, hash_algorithm: &str, iv: Iv) -> Result<Vec<u8>> {
    let mut data = key.bytes().to_vec();
    with.apply(&iv, &mut data);
    let message = WrappedKey {
        algorithm: AES.to_string(),
        length: key.bytes().len() as u32,
        data: data.into(),
        iv: Some(iv.to_vec().into()),
        hash: Some(digest(hash_algorithm, key.bytes())?.into()),
        hash_algorithm: Some(hash_algorithm.to_string()),
    };
    Ok(message.encode_length_delimited_to_vec())
}

/// The message, of which nothing is checked but that it can be used.
pub(crate) fn parse(wrapped: &[u8]) -> Result<WrappedKey> {
    let message = WrappedKey::decode_length_delimited(wrapped)
        .map_err(|error| Error::corrupt(format!("wrapped key: {error}")))?;
    if message.length > KEY_LEN_MAX || message.length as usize > message.data.len() {
        let (len, found) = (message.length, message.data.len());
        return Err(Error::corrupt(format!("wrapped key: a key of {len} bytes, wrapped in {found}")));
    }
    if message.iv.as_ref().is_none_or(|iv| iv.len() != IV_LEN) {
        let found = message.iv.as_ref().map_or(0, |iv| iv.len());
        return Err(Error::corrupt(format!(
            "wrapped key: an initialization vector of {found} bytes instead of {IV_LEN}"
        )));
    }
    Ok(message)
}

pub(crate) fn unwrap(message: &WrappedKey, with: &DataKey) -> std::result::Result<DataKey, Failure> {
    let iv: Iv =
        message.iv().try_into().map_err(|_| Error::corrupt("wrapped key: no initialization vector"))?;
    let mut bytes = message.data[..message.length as usize].to_vec();
    with.apply(&iv, &mut bytes);
    if let Some(hash) = &message.hash
        && hash != &digest(message.hash_algorithm().trim(), &bytes)?
    {
        return Err(Failure::WrongKey(Error::invalid(NOT_UNWRAPPED)));
    }
    if !message.algorithm.eq_ignore_ascii_case(AES) {
        let algorithm = &message.algorithm;
        return Err(Failure::Other(Error::invalid(format!("Cipher '{algorithm}' is not available"))));
    }
    Ok(DataKey::aes(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> (DataKey, DataKey) {
        (DataKey::aes(&[1; 16]).unwrap(), DataKey::aes(&[2; 32]).unwrap())
    }

    #[test]
    fn comes_back_under_the_same_key_only() {
        let (key, master) = keys();
        for hash in ["MD5", "SHA-256", "sha-384"] {
            let message = parse(&wrap(&key, &master, hash, [9; 16]).unwrap()).unwrap();
            assert_eq!(unwrap(&message, &master).unwrap().bytes(), key.bytes());
            assert!(matches!(unwrap(&message, &key), Err(Failure::WrongKey(_))));
        }
        assert!(wrap(&key, &master, "CRC", [9; 16]).is_err());
    }

    /// Every byte of a wrapped key, damaged: an error, or the same key (the digest may be named otherwise).
    #[test]
    fn damage_is_an_error() {
        let (key, master) = keys();
        let good = wrap(&key, &master, "MD5", [9; 16]).unwrap();
        for len in 0..good.len() {
            assert!(parse(&good[..len]).is_err(), "{len} bytes");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                if let Ok(message) = parse(&bad)
                    && let Ok(found) = unwrap(&message, &master)
                {
                    // without its digest, nothing tells that a key is another one
                    assert!(message.hash.is_none() || found.bytes() == key.bytes(), "byte {at}");
                }
            }
        }
    }
}
