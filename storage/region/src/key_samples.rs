//! Rows of some of a region's requests, so that a reader of [`Region::take_key_samples`](crate::Region) can tell where
//! in the region they go.
//!
//! One of `stride` requests is kept. The stride starts at 1 and doubles, with every second sample dropped, each time
//! [`SAMPLES_MAX`] are kept: samples are spread evenly over the time since they were last taken, and the more requests
//! there are, the less one of them costs. A request that is not kept costs a load and a comparison.

use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_env::Mutex;

/// Samples of a region at most.
const SAMPLES_MAX: usize = 128;
/// Bytes of a row that are kept. Longer rows are cut, and what is left sorts where they sort.
pub const ROW_BYTES_MAX: usize = 128;
/// The stride does not grow beyond this.
const STRIDE_MAX: u64 = 1 << 40;

/// One request, which stands for `weight` of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySample {
    /// The row, or its first [`ROW_BYTES_MAX`] bytes.
    pub row: Box<[u8]>,
    pub is_write: bool,
    pub weight: u64,
}

/// See the head of the file. May be used by any number of threads.
pub(crate) struct KeySamples {
    /// A power of two.
    stride: AtomicU64,
    kept: Mutex<Vec<KeySample>>,
}

impl Default for KeySamples {
    fn default() -> KeySamples {
        KeySamples { stride: AtomicU64::new(1), kept: Mutex::default() }
    }
}

impl KeySamples {
    /// The first of `count` requests that is to be kept, if one is, where `before` requests came earlier.
    #[inline]
    pub(crate) fn first_due(&self, before: u64, count: u64) -> Option<u64> {
        let first = before.wrapping_neg() & (self.stride.load(Ordering::Relaxed) - 1);
        (first < count).then_some(first)
    }

    /// Keeps one request that stands for `count`.
    #[cold]
    pub(crate) fn keep(&self, row: &[u8], is_write: bool, count: u64) {
        // Nobody waits for this lock: a sample more or less does not matter.
        if let Some(mut kept) = self.kept.try_lock() {
            self.push(&mut kept, row, is_write, count);
        }
    }

    /// Keeps one of each stride of `rows`, from the one at `first`.
    #[cold]
    pub(crate) fn keep_some<'r>(&self, first: u64, rows: impl Iterator<Item = &'r [u8]>, is_write: bool) {
        let Some(mut kept) = self.kept.try_lock() else { return };
        let stride = self.stride.load(Ordering::Relaxed);
        for row in rows.skip(first as usize).step_by(stride as usize) {
            self.push(&mut kept, row, is_write, stride);
        }
    }

    fn push(&self, kept: &mut Vec<KeySample>, row: &[u8], is_write: bool, count: u64) {
        if kept.len() >= SAMPLES_MAX {
            let mut at = 0usize;
            kept.retain_mut(|sample| {
                at += 1;
                sample.weight *= 2;
                at % 2 == 1
            });
            let stride = self.stride.load(Ordering::Relaxed);
            self.stride.store((stride * 2).min(STRIDE_MAX), Ordering::Relaxed);
        }
        let stride = self.stride.load(Ordering::Relaxed);
        assert!(
            kept.len() < SAMPLES_MAX && stride.is_power_of_two(),
            "{} samples are kept of one in {stride} requests, which are counted by the lower bits of a number",
            kept.len()
        );
        let weight = count.max(stride);
        kept.push(KeySample { row: row[..row.len().min(ROW_BYTES_MAX)].into(), is_write, weight });
    }

    /// The samples since the last call of this. With few of them, more are kept from now on.
    pub(crate) fn take(&self) -> Vec<KeySample> {
        let mut kept = self.kept.lock();
        if kept.len() < SAMPLES_MAX / 4 {
            let stride = self.stride.load(Ordering::Relaxed);
            self.stride.store((stride / 4).max(1), Ordering::Relaxed);
        }
        std::mem::take(&mut kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(samples: &KeySamples, before: u64, row: &[u8]) {
        if samples.first_due(before, 1).is_some() {
            samples.keep(row, false, 1);
        }
    }

    #[test]
    fn few_requests_are_all_kept() {
        let samples = KeySamples::default();
        (0..100).for_each(|at| request(&samples, at, format!("{at:03}").as_bytes()));
        let taken = samples.take();
        assert_eq!(taken.len(), 100);
        assert!(taken.iter().all(|sample| sample.weight == 1 && !sample.is_write));
        assert_eq!(samples.take(), [], "they are given out once");
    }

    #[test]
    fn many_requests_leave_samples_from_all_of_the_time_that_stand_for_all() {
        let samples = KeySamples::default();
        let count = 100_000u64;
        (0..count).for_each(|at| request(&samples, at, format!("{at:06}").as_bytes()));
        let taken = samples.take();
        assert!((SAMPLES_MAX / 2..=SAMPLES_MAX).contains(&taken.len()), "{}", taken.len());
        let weight: u64 = taken.iter().map(|sample| sample.weight).sum();
        assert!((count * 9 / 10..=count * 11 / 10).contains(&weight), "{weight} of {count}");
        let before_half = taken.iter().filter(|sample| *sample.row < b"050000"[..]).count();
        assert!(before_half.abs_diff(taken.len() / 2) <= 8, "{before_half} of {}", taken.len());
    }

    #[test]
    fn the_stride_falls_again_when_requests_are_few() {
        let samples = KeySamples::default();
        (0..100_000).for_each(|at| request(&samples, at, b"row"));
        assert!(samples.stride.load(Ordering::Relaxed) > 256);
        (0..10).for_each(|_| drop(samples.take()));
        assert_eq!(samples.stride.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_batch_keeps_one_row_of_each_stride_and_long_rows_are_cut() {
        let samples = KeySamples::default();
        samples.stride.store(4, Ordering::Relaxed);
        let rows: Vec<Vec<u8>> = (0..10u8).map(|at| vec![at; 200]).collect();
        let first = samples.first_due(6, 10).expect("8 is a multiple of 4");
        samples.keep_some(first, rows.iter().map(Vec::as_slice), true);
        let taken = samples.take();
        assert_eq!(taken.iter().map(|sample| sample.row[0]).collect::<Vec<_>>(), [2, 6]);
        assert!(taken.iter().all(|sample| sample.row.len() == ROW_BYTES_MAX && sample.weight == 4));
        samples.stride.store(4, Ordering::Relaxed);
        assert_eq!(samples.first_due(5, 3), None, "6, 7 and 8 come before the next multiple");
    }

    #[test]
    fn a_scan_counts_with_all_its_rounds() {
        let samples = KeySamples::default();
        samples.keep(b"last", false, 1000);
        assert_eq!(samples.take()[0].weight, 1000);
    }
}
