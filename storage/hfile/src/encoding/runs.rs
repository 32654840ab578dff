//! Seeking and reading inside a block of differences without decoding all of it.
//!
//! Such a block stays encoded in the cache. When it is loaded it is decoded and checked once, and what is kept is
//! where every few dozen cells a *run* starts, and what the decoder has to know to start there: the last key of
//! the run before. The last keys are also what a seek searches: it picks the one run that holds its cell and
//! decodes that. A cell that is given out holds on to its run, not to the block.
//!
//! As the cache keeps it beside a block:
//!
//! ```text
//! marks: u64 runs | runs * ( u32 start in the payload | u32 plain size | u32 value of the cell before | u32 its length
//!                   | u32 start of the run's last key | u32 its end ) | what the tag dictionary took in *
//! notes: last keys
//! ```

use bytes::Bytes;
use halcyon_cell::{CellComparator, Error, KeyRef, Result};
use halcyon_env::invariant;

use super::decode::{Before, Decoder};
use super::tags::TagDictionary;
use crate::data_block::{self, CellLayout};

/// A run ends when it has this many cells,
const RUN_CELLS_MAX: usize = 32;
/// or this many plain bytes.
const RUN_BYTES_MAX: usize = 4096;
const WORDS_PER_RUN: usize = 3;

/// What is kept beside a block.
#[derive(Debug)]
pub(crate) struct RunIndex {
    pub(crate) marks: Box<[u64]>,
    pub(crate) notes: Box<[u8]>,
}

/// Decodes and checks a whole block. `compressed_tags`: its tags go through a dictionary.
pub(crate) fn check(payload: &[u8], layout: CellLayout, compressed_tags: bool) -> Result<RunIndex> {
    let tags = compressed_tags.then(TagDictionary::learning);
    let (mut decoder, plain_len) = Decoder::open(payload, layout, tags)?;
    let (mut plain_left, mut words, mut keys) = (plain_len, vec![0], Vec::new());
    while !decoder.at_end() {
        decoder.begin_run(plain_left);
        let start = decoder.position();
        let before = decoder.before().map_or((0, 0), |before| (before.value_at, before.value_len));
        let mut count = 0;
        while !decoder.at_end() && count < RUN_CELLS_MAX && decoder.cells().len() < RUN_BYTES_MAX {
            decoder.next_cell()?;
            count += 1;
        }
        let len = decoder.cells().len();
        data_block::check_cells(decoder.cells(), layout, |_| {})?;
        assert!(
            len <= plain_left,
            "the decoder stops at the size that the block claims: {len} of {plain_left}"
        );
        plain_left -= len;
        let last = decoder.before().expect("a cell was decoded").key;
        let key_start = keys.len();
        keys.extend_from_slice(last);
        words.extend([pair(start, len), pair(before.0, before.1), pair(key_start, keys.len())]);
    }
    if plain_left != 0 || keys.is_empty() {
        let found = plain_len - plain_left;
        return Err(Error::corrupt(format!(
            "plain size: expected cells of {plain_len} bytes, found {found}"
        )));
    }
    words[0] = ((words.len() - 1) / WORDS_PER_RUN) as u64;
    words.extend(decoder.into_tags().map(TagDictionary::into_log).unwrap_or_default());
    Ok(RunIndex { marks: words.into(), notes: keys.into() })
}

fn pair(high: usize, low: usize) -> u64 {
    assert!(
        high <= u32::MAX as usize && low <= u32::MAX as usize,
        "positions in a block share a word, because a block is smaller than 2 GiB: {high} and {low}"
    );
    (high as u64) << 32 | low as u64
}

fn halves(word: u64) -> (usize, usize) {
    ((word >> 32) as usize, word as u32 as usize)
}

/// The runs of a checked block.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    words: &'a [u64],
    tag_log: &'a [u64],
    keys: &'a [u8],
}

impl<'a> Runs<'a> {
    /// Takes what [`check`] gave.
    pub(crate) fn of(marks: &'a [u64], notes: &'a [u8]) -> Runs<'a> {
        let (&count, rest) = marks.split_first().expect("a checked block has marks");
        let (words, tag_log) = rest.split_at(count as usize * WORDS_PER_RUN);
        invariant!(
            words.last().is_some_and(|&last| halves(last).1 == notes.len()),
            "marks and notes are of one block: the last of {count} runs has the last key of {} bytes",
            notes.len()
        );
        Runs { words, tag_log, keys: notes }
    }

    pub(crate) fn count(&self) -> usize {
        self.words.len() / WORDS_PER_RUN
    }

    pub(crate) fn last_key(&self, run: usize) -> KeyRef<'a> {
        let (start, end) = halves(self.words[run * WORDS_PER_RUN + 2]);
        KeyRef::trusted(&self.keys[start..end])
    }

    /// The run that holds the first cell not before `key`; the number of runs if all cells are before it. All
    /// cells of the runs before the answer are before `key`.
    pub(crate) fn find(&self, comparator: CellComparator, key: KeyRef<'_>) -> usize {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            if comparator.compare_keys(self.last_key(middle), key).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The plain cells of one run.
    pub(crate) fn cells(
        &self,
        payload: &[u8],
        run: usize,
        layout: CellLayout,
        compressed_tags: bool,
    ) -> Result<Bytes> {
        let at = run * WORDS_PER_RUN;
        let (start, plain_len) = halves(self.words[at]);
        let (value_at, value_len) = halves(self.words[at + 1]);
        let before = run.checked_sub(1).map(|before| Before {
            key: self.last_key(before).bytes(),
            value_at,
            value_len,
        });
        let tags = match compressed_tags {
            true => Some(TagDictionary::replaying(payload, self.tag_log, start)?),
            false => None,
        };
        let mut decoder = Decoder::resume(payload, layout, tags, start, before, plain_len)?;
        while decoder.cells().len() < plain_len {
            decoder.next_cell()?;
        }
        let found = decoder.cells().len();
        assert_eq!(found, plain_len, "run {run} ends where it ended when its block was checked");
        let (out, cells_start) = decoder.into_cells();
        Ok(Bytes::from(out).slice(cells_start..))
    }
}

#[cfg(test)]
mod tests {
    use halcyon_cell::{Cell, CellType, Key};
    use halcyon_schema::BlockEncoding;

    use super::*;
    use crate::data_block::cell_at;
    use crate::encoding::{BlockEncoder, EncoderOptions, stores_differences};

    const LAYOUT: CellLayout = CellLayout { tags: true, mvcc: true, seq: None };
    const ORDER: CellComparator = CellComparator::Default;

    /// Many runs; every value and every few tags are there again, across the borders of runs too.
    fn cells() -> Vec<Cell> {
        (0..500usize)
            .map(|n| {
                let row = format!("row{:04}", n / 3);
                let value = vec![b'v'; if n % 100 == 50 { 5000 } else { 40 }];
                let tags = [0, 3, 8, (n % 7) as u8, (n / 40) as u8];
                let qualifier = [b'q', (n % 3) as u8];
                Cell::build(row.as_bytes(), b"f", &qualifier, 9, CellType::Put, &value, &tags, n as u64)
            })
            .collect()
    }

    fn encoded(encoding: BlockEncoding, compress_tags: bool) -> Vec<u8> {
        let options = EncoderOptions { encoding, layout: LAYOUT, compress_tags, comparator: ORDER };
        let mut encoder = BlockEncoder::new(options, 100_000);
        for cell in cells() {
            encoder.append(&cell.get()).unwrap();
        }
        encoder.finish().to_vec()
    }

    #[test]
    fn a_seek_finds_its_run_and_a_run_its_cells() {
        let cells = cells();
        let encodings = BlockEncoding::ALL.into_iter().filter(|&e| stores_differences(e));
        for (encoding, compress_tags) in encodings.flat_map(|e| [(e, false), (e, true)]) {
            let payload = encoded(encoding, compress_tags);
            let index = check(&payload, LAYOUT, compress_tags).unwrap();
            let runs = Runs::of(&index.marks, &index.notes);
            assert!(runs.count() > cells.len() / RUN_CELLS_MAX, "{} runs", runs.count());
            for cell in &cells {
                let key = cell.get().key();
                let plain = runs.cells(&payload, runs.find(ORDER, key), LAYOUT, compress_tags).unwrap();
                let start = data_block::walk(&plain, LAYOUT, ORDER, key, 0).unwrap();
                let span = cell_at(&plain, start, LAYOUT);
                assert_eq!(Cell::trusted(plain.slice(span.start..span.end), span.seq), *cell, "{encoding:?}");
            }
            assert_eq!(runs.find(ORDER, Key::first_on_row(b"a").get()), 0);
            assert_eq!(runs.find(ORDER, Key::first_on_row(b"z").get()), runs.count());
        }
    }

    #[test]
    fn a_run_is_little_and_the_index_over_them_too() {
        let payload = encoded(BlockEncoding::FastDiff, true);
        let index = check(&payload, LAYOUT, true).unwrap();
        let runs = Runs::of(&index.marks, &index.notes);
        for run in 0..runs.count() {
            let plain = runs.cells(&payload, run, LAYOUT, true).unwrap();
            assert!(plain.len() < RUN_BYTES_MAX + 5100, "{} bytes", plain.len());
        }
        assert!(index.notes.len() + size_of_val(&*index.marks) < payload.len() / 3);
    }
}
