//! AES in counter mode, the one cipher of HBase's `DefaultCipherProvider`.

use std::fmt;

use aes::{Aes128, Aes192, Aes256};
use ctr::Ctr128BE;
use ctr::cipher::{InnerIvInit, KeyInit, StreamCipher};
use halcyon_cell::{Error, Result};

/// Name of the cipher, in any case.
pub const AES: &str = "AES";
/// Bytes of an initialization vector: the counter before the first block.
pub const IV_LEN: usize = 16;
/// Bytes of a key of a file or a log. Master keys may have 24 or 32 bytes as well.
pub const KEY_LEN: usize = 16;
const BLOCK_LEN: usize = 16;

pub type Iv = [u8; IV_LEN];

#[derive(Clone)]
enum Schedule {
    Aes128(Box<Aes128>),
    Aes192(Box<Aes192>),
    Aes256(Box<Aes256>),
}

/// A symmetric key, ready for use. Its bytes are in no `Debug` output.
#[derive(Clone)]
pub struct DataKey {
    bytes: Vec<u8>,
    schedule: Schedule,
}

impl DataKey {
    /// `Invalid` unless it has 16, 24 or 32 bytes.
    pub fn aes(bytes: &[u8]) -> Result<DataKey> {
        let wrong = || Error::invalid(format!("Invalid AES key length: {} bytes", bytes.len()));
        let schedule = match bytes.len() {
            16 => Schedule::Aes128(Box::new(Aes128::new_from_slice(bytes).map_err(|_| wrong())?)),
            24 => Schedule::Aes192(Box::new(Aes192::new_from_slice(bytes).map_err(|_| wrong())?)),
            32 => Schedule::Aes256(Box::new(Aes256::new_from_slice(bytes).map_err(|_| wrong())?)),
            _ => return Err(wrong()),
        };
        Ok(DataKey { bytes: bytes.to_vec(), schedule })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Encrypts what is plain, or decrypts what is encrypted: counter mode is its own inverse.
    pub fn apply(&self, iv: &Iv, bytes: &mut [u8]) {
        match &self.schedule {
            Schedule::Aes128(cipher) => apply::<Aes128>(cipher, iv, bytes),
            Schedule::Aes192(cipher) => apply::<Aes192>(cipher, iv, bytes),
            Schedule::Aes256(cipher) => apply::<Aes256>(cipher, iv, bytes),
        }
    }
}

macro_rules! apply_of {
    ($($cipher:ty),*) => { $(impl Counter for $cipher {
        fn apply(&self, iv: &Iv, bytes: &mut [u8]) {
            Ctr128BE::<$cipher>::from_core(ctr::CtrCore::inner_iv_init(self.clone(), &(*iv).into())).apply_keystream(bytes);
        }
    })* };
}

trait Counter {
    fn apply(&self, iv: &Iv, bytes: &mut [u8]);
}

apply_of!(Aes128, Aes192, Aes256);

fn apply<C: Counter>(cipher: &C, iv: &Iv, bytes: &mut [u8]) {
    cipher.apply(iv, bytes);
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an AES key of {} bits", self.bytes.len() * 8)
    }
}

/// The vector for what comes behind `written` bytes under this one (HBase: `Encryption.incrementIv`, which counts up from
/// the first byte, while the cipher counts from the last one).
pub fn increment_iv(iv: &mut Iv, written: usize) {
    let mut carry = 1 + written / BLOCK_LEN;
    for byte in iv {
        if carry == 0 {
            break;
        }
        let sum = carry + usize::from(*byte);
        *byte = (sum % 256) as u8;
        carry = sum / 256;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST SP 800-38A, F.5.1 and F.5.5.
    #[test]
    fn counter_mode_is_the_standard_s() {
        let iv: Iv = std::array::from_fn(|at| 0xf0 + at as u8);
        let plain =
            [0x6b, 0xc1, 0xbe, 0xe2, 0x2e, 0x40, 0x9f, 0x96, 0xe9, 0x3d, 0x7e, 0x11, 0x73, 0x93, 0x17, 0x2a];
        let short =
            [0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6, 0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f, 0x3c];
        let mut bytes = plain;
        let key = DataKey::aes(&short).unwrap();
        key.apply(&iv, &mut bytes);
        assert_eq!(
            bytes,
            [0x87, 0x4d, 0x61, 0x91, 0xb6, 0x20, 0xe3, 0x26, 0x1b, 0xef, 0x68, 0x64, 0x99, 0x0d, 0xb6, 0xce]
        );
        key.apply(&iv, &mut bytes);
        assert_eq!(bytes, plain);
        for len in [24, 32] {
            let key = DataKey::aes(&vec![7; len]).unwrap();
            key.apply(&iv, &mut bytes);
            assert_ne!(bytes, plain);
            key.apply(&iv, &mut bytes);
            assert_eq!(bytes, plain);
        }
        assert!(DataKey::aes(&[0; 15]).is_err());
        assert!(!format!("{key:?}").contains("43"));
    }

    #[test]
    fn vectors_count_up_from_their_first_byte() {
        let mut iv = [0; IV_LEN];
        increment_iv(&mut iv, 0);
        assert_eq!(iv[..3], [1, 0, 0]);
        increment_iv(&mut iv, 16 * 254);
        assert_eq!(iv[..3], [0, 1, 0]);
        let mut iv = [0xff; IV_LEN];
        increment_iv(&mut iv, 16);
        assert_eq!(iv[..2], [1, 0]);
    }
}
