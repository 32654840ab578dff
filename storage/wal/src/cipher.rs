//! Logs that are encrypted, as HBase's `SecureProtobufLogWriter` and `SecureWALCellCodec` have them. Names of regions and
//! tables stay plain; each cell is encrypted by itself:
//!
//! ```text
//! cell  = varint 16 | initialization vector | varint length | encrypted
//! plain = varint key length | varint value length | varint length of tags
//!       | varint, row | varint, family | varint, qualifier | int64 timestamp | type | value | [ int16 length, tags ]
//! ```
//!
//! HBase's encoder leaves out the length in front of the tags, which its decoder expects: it cannot read cells with tags that
//! it wrote. The length is written here, so that it can; cells without it are read as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use halcyon_cell::{Cell, CellRef, Error, FIXED_KEY_LEN, KEY_OFFSET, Result};
use halcyon_crypto::{DataKey, IV_LEN, Iv, KEY_LEN};
use halcyon_env::{Env, Keys, random_bytes};

use crate::format::put_varint;
use crate::reader::CELL_LEN_MAX;
use crate::source::{Decode, Source, bad};

/// Bits of the cipher's own counter in a vector: more blocks than a cell can have.
const COUNTER_BYTES: usize = 8;

/// The key of a log that is written, one for all its files. HBase makes one for each file; here what was appended may go to
/// another file than it was made for (`replace.rs`, `hedge.rs`). Each file has the key in its header, wrapped anew.
///
/// *Invariant*: no vector is given out twice. Its first half counts up for each cell, and the cipher's counter cannot leave
/// the second half: its first byte is 0.
pub(crate) struct WalCipher {
    key: DataKey,
    keys: Arc<Keys>,
    next: AtomicU64,
    rest: [u8; COUNTER_BYTES],
}

impl WalCipher {
    /// `None` if logs are not encrypted. `Invalid` if they are to be, and there is no key to wrap theirs with.
    pub(crate) fn of(env: &Env) -> Result<Option<Arc<WalCipher>>> {
        if !env.keys.settings().encrypts_wal {
            return Ok(None);
        }
        let key = DataKey::aes(&random_bytes::<KEY_LEN>())?;
        let mut rest: [u8; COUNTER_BYTES] = random_bytes();
        rest[0] = 0;
        let next = AtomicU64::new(u64::from_be_bytes(random_bytes()));
        let cipher = WalCipher { key, keys: env.keys.clone(), next, rest };
        cipher.wrapped_key()?;
        Ok(Some(Arc::new(cipher)))
    }

    /// The key for a header.
    pub(crate) fn wrapped_key(&self) -> Result<Vec<u8>> {
        let wrapped = self.keys.wrap_for_wal(&self.key, random_bytes());
        wrapped.map_err(|error| error.context("the write-ahead log is to be encrypted"))
    }

    fn next_iv(&self) -> Iv {
        let mut iv = [0; IV_LEN];
        iv[..COUNTER_BYTES].copy_from_slice(&self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        iv[COUNTER_BYTES..].copy_from_slice(&self.rest);
        iv
    }

    /// Appends a cell.
    pub(crate) fn put_cell(&self, out: &mut Vec<u8>, cell: CellRef<'_>) {
        let (iv, mut plain) = (self.next_iv(), Vec::with_capacity(cell.bytes().len() + 8));
        let key = cell.key();
        for len in [cell.key_len(), cell.value_len(), cell.tags().len()] {
            put_varint(|byte| plain.push(byte), len as u64);
        }
        for part in [key.row(), key.family(), key.qualifier()] {
            put_varint(|byte| plain.push(byte), part.len() as u64);
            plain.extend_from_slice(part);
        }
        plain.extend_from_slice(&cell.timestamp().to_be_bytes());
        plain.push(cell.type_code());
        plain.extend_from_slice(cell.value());
        if !cell.tags().is_empty() {
            plain.extend_from_slice(&(cell.tags().len() as u16).to_be_bytes());
            plain.extend_from_slice(cell.tags());
        }
        self.key.apply(&iv, &mut plain);
        out.push(IV_LEN as u8);
        out.extend_from_slice(&iv);
        put_varint(|byte| out.push(byte), plain.len() as u64);
        out.extend_from_slice(&plain);
    }
}

/// Reads an encrypted cell; `crc` goes on over its bytes as they lie in the file.
pub(crate) fn read_cell(key: &DataKey, source: &mut Source, seq: u64, crc: &mut u32) -> Decode<Cell> {
    let iv_len = source.varint32()? as usize;
    if iv_len != IV_LEN {
        return bad(format!("initialization vector: expected {IV_LEN} bytes, found {iv_len}"));
    }
    let iv: Iv = source.take(IV_LEN)?.try_into().expect("sixteen bytes");
    let len = source.varint32()?;
    if len as usize > CELL_LEN_MAX {
        return bad(format!("cell length: expected at most {CELL_LEN_MAX}, found {len}"));
    }
    let mut head = vec![IV_LEN as u8];
    head.extend_from_slice(&iv);
    put_varint(|byte| head.push(byte), u64::from(len));
    let mut bytes = source.take(len as usize)?.to_vec();
    *crc = crc32c::crc32c_append(crc32c::crc32c_append(*crc, &head), &bytes);
    key.apply(&iv, &mut bytes);
    key_value(&bytes).and_then(|bytes| Cell::parse(bytes, seq)).or_else(|error: Error| {
        bad(format!("cell: expected one that was encrypted with the log's key, found {error}"))
    })
}

/// The KeyValue of a cell that is decrypted.
fn key_value(plain: &[u8]) -> Result<Bytes> {
    let mut rest = plain;
    let [key_len, value_len, tags_len] = [take_len(&mut rest)?, take_len(&mut rest)?, take_len(&mut rest)?];
    if key_len < FIXED_KEY_LEN || tags_len > usize::from(u16::MAX) {
        return Err(Error::corrupt(format!("a key of {key_len} bytes, tags of {tags_len}")));
    }
    let len = KEY_OFFSET + key_len + value_len + if tags_len > 0 { 2 + tags_len } else { 0 };
    if len > plain.len() + KEY_OFFSET + FIXED_KEY_LEN {
        return Err(Error::corrupt(format!("a cell of {len} bytes in {}", plain.len())));
    }
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(&(key_len as u32).to_be_bytes());
    out.extend_from_slice(&(value_len as u32).to_be_bytes());
    let row = take_part(&mut rest)?;
    out.extend_from_slice(&u16::try_from(row.len()).map_err(|_| too_long("row"))?.to_be_bytes());
    out.extend_from_slice(row);
    let family = take_part(&mut rest)?;
    out.push(u8::try_from(family.len()).map_err(|_| too_long("family"))?);
    out.extend_from_slice(family);
    out.extend_from_slice(take_part(&mut rest)?);
    let behind_qualifier = 9 + value_len;
    match rest.len().checked_sub(behind_qualifier) {
        Some(0) if tags_len == 0 => out.extend_from_slice(rest),
        Some(tags) if tags_len > 0 && tags == 2 + tags_len => out.extend_from_slice(rest),
        Some(tags) if tags_len > 0 && tags == tags_len => {
            out.extend_from_slice(&rest[..behind_qualifier]);
            out.extend_from_slice(&(tags_len as u16).to_be_bytes());
            out.extend_from_slice(&rest[behind_qualifier..]);
        }
        _ => return Err(Error::corrupt(format!("{} bytes behind the qualifier", rest.len()))),
    }
    Ok(out.into())
}

fn too_long(what: &str) -> Error {
    Error::corrupt(format!("a {what} that is too long"))
}

fn take_len(rest: &mut &[u8]) -> Result<usize> {
    let number = prost::encoding::decode_varint(rest).map_err(|_| Error::corrupt("no length"))?;
    let len = usize::try_from(number).ok().filter(|len| *len <= CELL_LEN_MAX);
    len.ok_or_else(|| Error::corrupt(format!("a length of {number}")))
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let len = take_len(rest)?;
    let cut = || Error::corrupt(format!("a part of {len} bytes in {}", rest.len()));
    let (part, behind) = rest.split_at_checked(len).ok_or_else(cut)?;
    *rest = behind;
    Ok(part)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use halcyon_cell::{CellType, append_tag};
    use halcyon_env::CryptoSettings;
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    /// An environment with a key store that Java wrote.
    pub(crate) fn env() -> Env {
        let env = SimFileSystem::new().env();
        let store = include_bytes!("../../../base/crypto/testdata/same.jceks");
        env.local.put_new(Path::new("/same.jceks"), store).unwrap();
        env.with_crypto(CryptoSettings {
            parameters: "jceks:///same.jceks?password=st0re-pass".to_string(),
            master_key: Some("master".to_string()),
            encrypts_wal: true,
            ..CryptoSettings::default()
        })
    }

    pub(crate) fn cipher() -> WalCipher {
        Arc::into_inner(WalCipher::of(&env()).unwrap().unwrap()).unwrap()
    }

    fn cells() -> Vec<Cell> {
        let mut tags = Vec::new();
        append_tag(&mut tags, 8, &60_000i64.to_be_bytes());
        vec![
            Cell::put(b"r", b"f", b"q", 5, b"v"),
            Cell::put(b"row", b"f", b"", 5, &[7; 3000]),
            Cell::build(b"row", b"f", b"tagged", 9, CellType::Put, b"v", &tags, 0),
            Cell::build(b"row", b"f", b"", 9, CellType::DeleteFamily, b"", b"", 0),
        ]
    }

    fn plain_of(cipher: &WalCipher, cell: &Cell) -> Vec<u8> {
        let mut out = Vec::new();
        cipher.put_cell(&mut out, cell.get());
        let iv: Iv = out[1..1 + IV_LEN].try_into().unwrap();
        let mut rest = &out[1 + IV_LEN..];
        let len = prost::encoding::decode_varint(&mut rest).unwrap();
        assert_eq!(rest.len() as u64, len);
        let mut plain = rest.to_vec();
        cipher.key.apply(&iv, &mut plain);
        plain
    }

    #[test]
    fn cells_come_back_with_and_without_the_length_of_tags() {
        let cipher = cipher();
        for cell in cells() {
            let plain = plain_of(&cipher, &cell);
            assert_eq!(key_value(&plain).unwrap(), cell.bytes(), "{cell:?}");
            let tags = cell.get().tags();
            if !tags.is_empty() {
                let at = plain.len() - tags.len();
                let by_hbase = [&plain[..at - 2], &plain[at..]].concat();
                assert_eq!(key_value(&by_hbase).unwrap(), cell.bytes(), "{cell:?}");
            }
        }
    }

    /// What another key, or damage, makes of a cell: an error, never a panic.
    #[test]
    fn damaged_cells_are_errors() {
        let cipher = cipher();
        for cell in cells() {
            let plain = plain_of(&cipher, &cell);
            for len in 0..plain.len() {
                // two bytes less is what HBase writes of a cell with tags
                let may_be = !cell.tags().is_empty() && len + 2 == plain.len();
                assert!(may_be || key_value(&plain[..len]).is_err(), "{len} bytes of {cell:?}");
            }
            for at in 0..plain.len().min(100) {
                for bit in 0..8 {
                    let mut bad = plain.clone();
                    bad[at] ^= 1 << bit;
                    if let Ok(bytes) = key_value(&bad) {
                        _ = CellRef::parse(&bytes, 0);
                    }
                }
            }
        }
    }

    #[test]
    fn vectors_are_given_out_once() {
        let cipher = cipher();
        let mut seen: Vec<Iv> = (0..1000).map(|_| cipher.next_iv()).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
        assert!(seen.iter().all(|iv| iv[COUNTER_BYTES] == 0));
    }
}
