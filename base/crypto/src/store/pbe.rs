//! Encryption and integrity with a password: Java's own scheme of JCEKS, PKCS#5 and PKCS#12.

use aes::{Aes128, Aes192, Aes256};
use cbc::Decryptor;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, KeyIvInit};
use des::TdesEde3;
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::{Digest, Sha1};
use sha2::{Sha224, Sha256, Sha384, Sha512};

use super::Load;
use super::der::{Der, INTEGER, OCTETS, SEQUENCE};

/// Java's limit of rounds.
const ROUNDS_MAX: u32 = 5_000_000;

pub(super) const WRONG_PASSWORD: &str =
    "Given final block not properly padded. Such issues can arise if a bad key is used during decryption.";

/// `PBEWithMD5AndTripleDES` of Java's own provider.
pub(super) fn decrypt_jceks(salt: &[u8], rounds: u32, password: &str, sealed: &[u8]) -> Load<Vec<u8>> {
    let mut salt: [u8; 8] = salt.try_into().map_err(|_| "a salt of other than 8 bytes".to_string())?;
    check_rounds(rounds)?;
    if salt[..4] == salt[4..] {
        // Java means to turn the first half round, and writes to the wrong place.
        for at in 0..2 {
            let kept = salt[at];
            salt[at] = salt[3 - at];
            salt[3 - 1] = kept;
        }
    }
    let password: Vec<u8> = password.chars().map(|c| c as u8 & 0x7f).collect();
    let mut made = Vec::with_capacity(32);
    for half in salt.chunks(4) {
        let mut bytes = half.to_vec();
        for _ in 0..rounds {
            let mut digest = Md5::new();
            digest.update(&bytes);
            digest.update(&password);
            bytes = digest.finalize().to_vec();
        }
        made.extend(bytes);
    }
    decrypt_cbc::<Decryptor<TdesEde3>>(&made[..24], &made[24..], sealed)
}

/// Decrypts with the scheme that an `AlgorithmIdentifier` names.
pub(super) fn decrypt(mut algorithm: Der<'_>, password: &str, sealed: &[u8]) -> Load<Vec<u8>> {
    let name = algorithm.oid()?;
    match name.as_str() {
        "1.2.840.113549.1.5.13" => decrypt_pbes2(algorithm.take(SEQUENCE)?, password, sealed),
        "1.2.840.113549.1.12.1.3" => {
            let mut parameters = algorithm.take(SEQUENCE)?;
            let (salt, rounds) = (parameters.octets()?, parameters.number()?);
            check_rounds(rounds)?;
            let key = derive::<Sha1>(KEY, password, salt, rounds, 24);
            let iv = derive::<Sha1>(IV, password, salt, rounds, 8);
            decrypt_cbc::<Decryptor<TdesEde3>>(&key, &iv, sealed)
        }
        _ => Err(format!("java.security.NoSuchAlgorithmException: {name}")),
    }
}

fn decrypt_pbes2(mut parameters: Der<'_>, password: &str, sealed: &[u8]) -> Load<Vec<u8>> {
    let (mut derivation, mut cipher) = (parameters.take(SEQUENCE)?, parameters.take(SEQUENCE)?);
    let name = derivation.oid()?;
    if name != "1.2.840.113549.1.5.12" {
        return Err(format!("java.security.NoSuchAlgorithmException: {name}"));
    }
    let mut derivation = derivation.take(SEQUENCE)?;
    let (salt, rounds) = (derivation.octets()?, derivation.number()?);
    check_rounds(rounds)?;
    if derivation.tag() == Some(INTEGER) {
        derivation.number()?; // the length, which the cipher says as well
    }
    let digest = match derivation.is_empty() {
        true => "1.2.840.113549.2.7".to_string(),
        false => derivation.take(SEQUENCE)?.oid()?,
    };
    let (name, Der(iv)) = (cipher.oid()?, cipher.take(OCTETS)?);
    let derive = |len: usize| -> Load<Vec<u8>> {
        let mut key = vec![0; len];
        let password = password.as_bytes();
        match digest.as_str() {
            "1.2.840.113549.2.7" => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, rounds, &mut key),
            "1.2.840.113549.2.8" => pbkdf2::pbkdf2_hmac::<Sha224>(password, salt, rounds, &mut key),
            "1.2.840.113549.2.9" => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, rounds, &mut key),
            "1.2.840.113549.2.10" => pbkdf2::pbkdf2_hmac::<Sha384>(password, salt, rounds, &mut key),
            "1.2.840.113549.2.11" => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, rounds, &mut key),
            other => return Err(format!("java.security.NoSuchAlgorithmException: {other}")),
        }
        Ok(key)
    };
    match name.as_str() {
        "2.16.840.1.101.3.4.1.2" => decrypt_cbc::<Decryptor<Aes128>>(&derive(16)?, iv, sealed),
        "2.16.840.1.101.3.4.1.22" => decrypt_cbc::<Decryptor<Aes192>>(&derive(24)?, iv, sealed),
        "2.16.840.1.101.3.4.1.42" => decrypt_cbc::<Decryptor<Aes256>>(&derive(32)?, iv, sealed),
        "1.2.840.113549.3.7" => decrypt_cbc::<Decryptor<TdesEde3>>(&derive(24)?, iv, sealed),
        _ => Err(format!("java.security.NoSuchAlgorithmException: {name}")),
    }
}

fn decrypt_cbc<C: KeyIvInit + BlockModeDecrypt>(key: &[u8], iv: &[u8], sealed: &[u8]) -> Load<Vec<u8>> {
    let cipher = C::new_from_slices(key, iv).map_err(|_| "a key or vector of another length".to_string())?;
    let mut bytes = sealed.to_vec();
    let len = cipher.decrypt_padded::<Pkcs7>(&mut bytes).map_err(|_| WRONG_PASSWORD.to_string())?.len();
    bytes.truncate(len);
    Ok(bytes)
}

fn check_rounds(rounds: u32) -> Load<()> {
    if rounds == 0 || rounds > ROUNDS_MAX {
        return Err(format!("java.io.IOException: PBE iteration count {rounds}, at most {ROUNDS_MAX}"));
    }
    Ok(())
}

/// Whether the authenticated bytes are those that the password was used for. Digest by its identifier.
pub(super) fn verify_mac(
    digest: &str,
    password: &str,
    salt: &[u8],
    rounds: u32,
    bytes: &[u8],
    mac: &[u8],
) -> Load<bool> {
    check_rounds(rounds)?;
    macro_rules! verify {
        ($digest:ty) => {{
            let key = derive::<$digest>(MAC, password, salt, rounds, <$digest as Digest>::output_size());
            let mut sum =
                Hmac::<$digest>::new_from_slice(&key).map_err(|_| "a key of no length".to_string())?;
            sum.update(bytes);
            Ok(sum.verify_slice(mac).is_ok())
        }};
    }
    match digest {
        "1.3.14.3.2.26" => verify!(Sha1),
        "2.16.840.1.101.3.4.2.4" => verify!(Sha224),
        "2.16.840.1.101.3.4.2.1" => verify!(Sha256),
        "2.16.840.1.101.3.4.2.2" => verify!(Sha384),
        "2.16.840.1.101.3.4.2.3" => verify!(Sha512),
        other => Err(format!("java.security.NoSuchAlgorithmException: {other}")),
    }
}

/// What a derived key is for (RFC 7292, appendix B.3).
const KEY: u8 = 1;
const IV: u8 = 2;
const MAC: u8 = 3;

/// The key derivation of PKCS#12 (RFC 7292, appendix B.2).
fn derive<D: Digest>(purpose: u8, password: &str, salt: &[u8], rounds: u32, len: usize) -> Vec<u8> {
    let block_len = if <D as Digest>::output_size() > 32 { 128 } else { 64 };
    let password: Vec<u8> = password.encode_utf16().chain([0]).flat_map(u16::to_be_bytes).collect();
    let repeated = |bytes: &[u8]| -> Vec<u8> {
        let len = bytes.len().div_ceil(block_len) * block_len;
        bytes.iter().copied().cycle().take(len).collect()
    };
    let mut input = repeated(salt);
    input.extend(repeated(&password));
    let mut out = Vec::with_capacity(len + <D as Digest>::output_size());
    loop {
        let mut digest = D::new();
        digest.update(vec![purpose; block_len]);
        digest.update(&input);
        let mut made = digest.finalize();
        for _ in 1..rounds {
            made = D::digest(&made);
        }
        out.extend_from_slice(&made);
        if out.len() >= len {
            out.truncate(len);
            return out;
        }
        let added: Vec<u8> = made.iter().copied().cycle().take(block_len).collect();
        for block in input.chunks_mut(block_len) {
            let mut carry = 1;
            for (byte, added) in block.iter_mut().zip(&added).rev() {
                carry += u16::from(*byte) + u16::from(*added);
                *byte = carry as u8;
                carry >>= 8;
            }
        }
    }
}
