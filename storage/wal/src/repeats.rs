//! Where a log repeats the one before it.
//!
//! When a file fails or is late, the log's next file begins with the entries of the round in question (`replace.rs`,
//! `hedge.rs`). The file before has none of them, or a part, or all. A spare file that has lost a race has such a round and
//! nothing else; it is removed, but its process may die before. Whoever takes the entries of all files in order would
//! take those twice, and those of the lost race behind entries that are newer.
//!
//! An entry is known by its region and sequence id, so a repetition can be found again: it begins with the first entry of
//! the file, and follows the other file entry by entry.

use halcyon_cell::{ErrorKind, Result};
use halcyon_proto::pb;

use crate::reader::WalReader;

/// How many bytes of a log hold entries that also stand in one of the logs before it, in the same order and from its first entry on:
/// an offset at which an entry begins, or 0. `log` opens it, and is called for each of the others.
///
/// Errors: of reading. Damage ends the comparison and is no error; the one who needs the entries will meet it.
pub fn repeated_len(
    log: &dyn Fn() -> Result<WalReader>,
    before: &mut dyn Iterator<Item = Result<WalReader>>,
) -> Result<u64> {
    let mut longest = 0;
    for before in before {
        longest = longest.max(common_len(log()?, before?)?);
    }
    Ok(longest)
}

fn common_len(mut log: WalReader, mut before: WalReader) -> Result<u64> {
    let Some(first) = next_key(&mut log)? else { return Ok(0) };
    loop {
        match next_key(&mut before)? {
            None => return Ok(0),
            Some(key) if is_same(&key, &first) => break,
            Some(_) => {}
        }
    }
    loop {
        let end = log.offset();
        match (next_key(&mut log)?, next_key(&mut before)?) {
            (Some(of_log), Some(of_before)) if is_same(&of_log, &of_before) => {}
            _ => return Ok(end),
        }
    }
}

/// `None` at the end, and where the log is damaged.
fn next_key(log: &mut WalReader) -> Result<Option<pb::WalKey>> {
    match log.next_entry() {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        read => Ok(read?.map(|(key, _)| key)),
    }
}

fn is_same(a: &pb::WalKey, b: &pb::WalKey) -> bool {
    a.log_sequence_number == b.log_sequence_number && a.encoded_region_name == b.encoded_region_name
}
