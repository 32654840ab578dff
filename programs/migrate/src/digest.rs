//! Checksums of rows and of ranges, and the walk that compares them.
//!
//! Both sides are read in the order of rows. Each row becomes 128 bits over all that a client can see of it: key, type,
//! timestamp, value and tags of each cell. The sums of a range are those of its rows, in their order. So two ranges with equal
//! sums have equal rows, and where they differ the walk has seen the rows that do, without another look at either side.

use std::cmp::Ordering;

use bytes::Bytes;
use halcyon_client::Cell;
use tokio::sync::mpsc;
use xxhash_rust::xxh3::xxh3_128;

/// An odd number without a pattern: the order of what is added matters.
const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

/// A row in few bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowDigest {
    pub(crate) row: Bytes,
    pub(crate) cells: u64,
    pub(crate) bytes: u64,
    /// The latest timestamp of its cells.
    pub(crate) newest_ms: i64,
    pub(crate) sum: u128,
}

impl RowDigest {
    pub(crate) fn new(row: Bytes) -> RowDigest {
        RowDigest { row, cells: 0, bytes: 0, newest_ms: i64::MIN, sum: 0 }
    }

    /// Of a whole row; `None` if it has no cells.
    pub(crate) fn of(cells: &[Cell]) -> Option<RowDigest> {
        let mut digest = RowDigest::new(Bytes::copy_from_slice(cells.first()?.row()));
        cells.iter().for_each(|cell| digest.add(cell));
        Some(digest)
    }

    pub(crate) fn add(&mut self, cell: &Cell) {
        let mut hash = xxh3_128(cell.get().bytes_without_tags());
        let tags = cell.tags();
        if !tags.is_empty() {
            hash ^= xxh3_128(tags).rotate_left(64);
        }
        self.cells += 1;
        self.bytes += cell.bytes().len() as u64;
        self.newest_ms = self.newest_ms.max(cell.timestamp());
        self.sum = self.sum.wrapping_mul(FACTOR).wrapping_add(hash);
    }
}

/// Rows of a range at one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSum {
    pub(crate) rows: u64,
    pub(crate) cells: u64,
    pub(crate) sum: u128,
}

impl RangeSum {
    fn add(&mut self, digest: &RowDigest) {
        self.rows += 1;
        self.cells += digest.cells;
        self.sum = self.sum.wrapping_mul(FACTOR).wrapping_add(xxh3_128(&digest.row) ^ digest.sum);
    }
}

/// Rows of one side, in order, as they arrive; the last message of a failed side is its error.
pub(crate) type Digests = mpsc::Receiver<Result<Vec<RowDigest>, String>>;

struct Incoming {
    digests: Digests,
    ready: std::vec::IntoIter<RowDigest>,
    sum: RangeSum,
}

impl Incoming {
    fn new(digests: Digests) -> Incoming {
        Incoming { digests, ready: Vec::new().into_iter(), sum: RangeSum::default() }
    }

    async fn next(&mut self) -> Result<Option<RowDigest>, String> {
        loop {
            if let Some(digest) = self.ready.next() {
                self.sum.add(&digest);
                return Ok(Some(digest));
            }
            match self.digests.recv().await {
                None => return Ok(None),
                Some(batch) => self.ready = batch?.into_iter(),
            }
        }
    }
}

/// What the walk over a range found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) left: RangeSum,
    pub(crate) right: RangeSum,
    /// Rows that one side lacks or that have other cells there.
    pub(crate) differing: Vec<Bytes>,
    /// Rows that only the right side has, where these are no difference.
    pub(crate) rows_kept: u64,
}

/// Walks over both sides of a range. `seen` gets each row of the left side. `keeps`: whether a row that only the right side has is
/// only counted.
pub(crate) async fn compare(
    left: Digests,
    right: Digests,
    keeps: impl Fn(&RowDigest) -> bool,
    mut seen: impl FnMut(&RowDigest),
) -> Result<Compared, String> {
    let (mut left, mut right) = (Incoming::new(left), Incoming::new(right));
    let (mut ours, mut theirs) = (left.next().await?, right.next().await?);
    let (mut differing, mut rows_kept) = (Vec::new(), 0);
    loop {
        let order = match (&ours, &theirs) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => one.row.cmp(&other.row),
        };
        let here = if order.is_le() { ours.take() } else { None };
        let there = if order.is_ge() { theirs.take() } else { None };
        if let Some(here) = &here {
            seen(here);
        }
        if here.is_none() && there.as_ref().is_some_and(&keeps) {
            rows_kept += 1;
        } else if here.as_ref().map(|one| one.sum) != there.as_ref().map(|one| one.sum) {
            differing.extend(here.as_ref().or(there.as_ref()).map(|one| one.row.clone()));
        }
        if here.is_some() {
            ours = left.next().await?;
        }
        if there.is_some() {
            theirs = right.next().await?;
        }
    }
    let compared = Compared { left: left.sum, right: right.sum, differing, rows_kept };
    let is_equal = compared.differing.is_empty() && rows_kept == 0;
    assert_eq!(compared.left == compared.right, is_equal, "sums and rows agree");
    Ok(compared)
}

#[cfg(test)]
mod tests {
    use halcyon_client::CellType;

    use super::*;
    use crate::state::Kept;

    fn digest(row: &str, values: &[&str]) -> RowDigest {
        let cells: Vec<Cell> =
            values.iter().map(|value| Cell::put(row.as_bytes(), b"f", b"q", 1, value.as_bytes())).collect();
        RowDigest::of(&cells).unwrap()
    }

    fn sent(batches: Vec<Result<Vec<RowDigest>, String>>) -> Digests {
        let (sender, receiver) = mpsc::channel(batches.len().max(1));
        batches.into_iter().for_each(|batch| sender.try_send(batch).unwrap());
        receiver
    }

    async fn compared(left: &[RowDigest], right: &[RowDigest]) -> Compared {
        // in batches of different sizes
        let batches = |rows: &[RowDigest], size| rows.chunks(size).map(|batch| Ok(batch.to_vec())).collect();
        let mut seen = 0;
        let result =
            compare(sent(batches(left, 1)), sent(batches(right, 3)), |_| false, |_| seen += 1).await.unwrap();
        assert_eq!(seen, left.len());
        result
    }

    #[tokio::test]
    async fn rows_that_differ_are_found() {
        let row = |name: &str| digest(name, &["v"]);
        let all: Vec<RowDigest> = ["a", "b", "c", "d", "e"].map(row).to_vec();
        let equal = compared(&all, &all).await;
        assert_eq!((equal.left, equal.differing.len(), equal.left.rows), (equal.right, 0, 5));
        for at in 0..5 {
            let mut less = all.clone();
            less.remove(at);
            let name = [all[at].row.clone()];
            assert_eq!(compared(&all, &less).await.differing, name);
            assert_eq!(compared(&less, &all).await.differing, name);
            let mut other = all.clone();
            other[at] = digest(std::str::from_utf8(&name[0]).unwrap(), &["w"]);
            assert_eq!(compared(&all, &other).await.differing, name);
        }
        assert_eq!(compared(&all, &[]).await.differing.len(), 5);
        assert!(compared(&[], &[]).await.differing.is_empty());
    }

    #[tokio::test]
    async fn rows_that_only_the_other_side_has_may_stay() {
        let row = |name: &str, value: &str| digest(name, &[value]);
        let ours = vec![row("b", "v"), row("c", "v")];
        let at = |name: &str, times: &[i64]| {
            let cell = |time: &i64| Cell::put(name.as_bytes(), b"f", b"q", *time, b"v");
            RowDigest::of(&times.iter().map(cell).collect::<Vec<_>>()).unwrap()
        };
        let theirs = vec![at("a", &[4]), row("b", "w"), row("c", "v"), at("d", &[2, 5, 3])];
        for (kept, names, count) in [
            (Kept::All, &["b"][..], 2),
            (Kept::Before(6), &["b"][..], 2),
            (Kept::Before(5), &["b", "d"][..], 1),
            (Kept::Nothing, &["a", "b", "d"][..], 0),
        ] {
            let sides = (sent(vec![Ok(ours.clone())]), sent(vec![Ok(theirs.clone())]));
            let keeps = |row: &RowDigest| kept.has(row.newest_ms);
            let found = compare(sides.0, sides.1, keeps, |_| {}).await.unwrap();
            assert_eq!(found.differing, names, "{kept:?}");
            assert_eq!(found.rows_kept, count, "{kept:?}");
        }
    }

    #[tokio::test]
    async fn an_error_of_a_side_ends_the_walk() {
        let left = sent(vec![Ok(vec![digest("a", &["v"])]), Err("gone".to_string())]);
        let error = compare(left, sent(vec![]), |_| false, |_| {});
        assert_eq!(error.await.unwrap_err(), "gone");
    }

    #[test]
    fn all_of_a_cell_counts() {
        let cell = |qualifier: &[u8], time, kind, value: &[u8], tags: &[u8]| {
            let cell = Cell::build(b"r", b"f", qualifier, time, kind, value, tags, 0);
            RowDigest::of(&[cell]).unwrap().sum
        };
        let mut tags = Vec::new();
        halcyon_client_tags(&mut tags);
        let base = cell(b"q", 1, CellType::Put, b"v", b"");
        let others = [
            cell(b"p", 1, CellType::Put, b"v", b""),
            cell(b"q", 2, CellType::Put, b"v", b""),
            cell(b"q", 1, CellType::Delete, b"v", b""),
            cell(b"q", 1, CellType::Put, b"w", b""),
            cell(b"q", 1, CellType::Put, b"v", &tags),
        ];
        others.iter().for_each(|other| assert_ne!(base, *other));
        assert_ne!(digest("r", &["1", "2"]).sum, digest("r", &["2", "1"]).sum);
    }

    /// A tag of type 1: `int16 length | int8 type | value`.
    fn halcyon_client_tags(tags: &mut Vec<u8>) {
        tags.extend_from_slice(&[0, 2, 1, 9]);
    }
}
