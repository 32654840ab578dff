//! Where a log repeats the one before it.
//!
//! When a file fails or is late, the log's next file begins with the entries of the round in question (`replace.rs`,
//! `hedge.rs`). The file before has none of them, or a part, or all. A spare file that has lost a race has such a round and
//! nothing else; it is removed, but its process may die before. Whoever takes the entries of all files in order would
//! take those twice, and those of the lost race behind entries that are newer.
//!
//! A repeated entry has the same region, sequence id and cells, so a repetition can be found again: it begins with the first
//! entry of the file, and follows the other file entry by entry.

use halcyon_cell::{Cell, ErrorKind, Result};
use halcyon_proto::pb;

use crate::reader::WalReader;

type Entry = (pb::WalKey, Vec<Cell>);

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
    let Some(first) = next(&mut log)? else { return Ok(0) };
    loop {
        match next(&mut before)? {
            None => return Ok(0),
            Some(entry) if is_same(&entry, &first) => break,
            Some(_) => {}
        }
    }
    loop {
        let end = log.offset();
        match (next(&mut log)?, next(&mut before)?) {
            (Some(of_log), Some(of_before)) if is_same(&of_log, &of_before) => {}
            _ => return Ok(end),
        }
    }
}

/// `None` at the end, and where the log is damaged.
fn next(log: &mut WalReader) -> Result<Option<Entry>> {
    match log.next_entry() {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        read => read,
    }
}

/// Sequence ids are not enough: a region that is opened after a crash may give that of a marker once more, which no file has.
fn is_same((key, cells): &Entry, (other_key, other_cells): &Entry) -> bool {
    key.log_sequence_number == other_key.log_sequence_number
        && key.encoded_region_name == other_key.encoded_region_name
        && key.write_time == other_key.write_time
        && cells.len() == other_cells.len()
        && cells.iter().zip(other_cells).all(|(cell, other)| cell.bytes() == other.bytes())
}
