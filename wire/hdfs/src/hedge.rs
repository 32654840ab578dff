//! Second reads beside late ones.
//!
//! A DataNode that hangs answers nothing for as long as the deadline, a second. So a read that is late is made once more,
//! from the next replica, and the first answer counts. The file is read from that replica from then on.
//!
//! A read is late when it takes longer than 95 of 100 did, within bounds. HDFS's own settings change that:
//! `dfs.client.hedged.read.threshold.millis` is the time in its place, and `dfs.client.hedged.read.threadpool.size` the
//! number of second reads at the same time; 0 turns them off, which is HDFS's default, and not the one here.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hdfs_native::HdfsError;
use hdfs_native::file::FileReader;
use tokio::time::Instant;

use crate::HdfsAddress;

/// A read is never late before, and always after, if nothing else is set.
const LATE_MIN: Duration = Duration::from_millis(10);
const LATE_MAX: Duration = Duration::from_millis(500);
/// Second reads at the same time, if nothing else is set.
const AT_ONCE: usize = 20;
/// The times are of reads of so many bytes; a larger read may take as many times longer.
const USUAL_BYTES: usize = 256 << 10;
/// Halves of powers of two, of microseconds.
const BUCKETS: usize = 48;
/// After so many reads the older ones count half.
const REMEMBERED: u32 = 2000;

/// When a second read starts, and how many do.
pub(crate) struct HedgedReads {
    /// In place of the 95th percentile.
    threshold: Option<Duration>,
    at_once_max: usize,
    at_once: AtomicUsize,
    times: Times,
}

/// What a read has brought.
pub(crate) struct Outcome {
    pub(crate) result: Result<Bytes, HdfsError>,
    /// The second read was faster: a reader that prefers its replica.
    pub(crate) better: Option<Arc<FileReader>>,
}

/// How long reads took, each bucket without a lock.
struct Times {
    buckets: [AtomicU32; BUCKETS],
}

impl HedgedReads {
    pub(crate) fn new(address: &HdfsAddress) -> io::Result<HedgedReads> {
        let threshold = address
            .number("dfs.client.hedged.read.threshold.millis")?
            .map(|ms| Duration::from_millis(ms.into()));
        let at_once = address.number("dfs.client.hedged.read.threadpool.size")?;
        Ok(HedgedReads {
            threshold,
            at_once_max: at_once.map_or(AT_ONCE, |number| number as usize),
            at_once: AtomicUsize::new(0),
            times: Times { buckets: std::array::from_fn(|_| AtomicU32::new(0)) },
        })
    }

    /// When a read of so many bytes is late.
    fn limit(&self, wanted: usize) -> Duration {
        let usual = self.threshold.unwrap_or_else(|| self.times.p95().clamp(LATE_MIN, LATE_MAX));
        usual * (1 + (wanted / USUAL_BYTES) as u32)
    }

    /// A place for a second read, if there is one.
    fn enter(self: &Arc<HedgedReads>) -> Option<Place> {
        let entered = self.at_once.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < self.at_once_max).then_some(count + 1)
        });
        entered.ok().map(|_| Place(self.clone()))
    }

    pub(crate) async fn read(
        self: Arc<Self>,
        reader: Arc<FileReader>,
        start: usize,
        wanted: usize,
    ) -> Outcome {
        let began = Instant::now();
        let first = reader.read_range(start, wanted);
        tokio::pin!(first);
        if let Ok(result) = tokio::time::timeout(self.limit(wanted), &mut first).await {
            if result.is_ok() && wanted <= USUAL_BYTES {
                self.times.note(began.elapsed());
            }
            return Outcome { result, better: None };
        }
        let Some(_place) = self.enter() else { return Outcome { result: first.await, better: None } };
        let other = Arc::new(reader.prefer_replica(1));
        let second = other.read_range(start, wanted);
        tokio::pin!(second);
        // An error of one leaves the other; of both, that of the first counts.
        let (first, second) = tokio::select! {
            first = &mut first => match first {
                Ok(bytes) => (Ok(bytes), None),
                Err(error) => (Err(error), Some(second.await)),
            },
            second = &mut second => match second {
                Ok(bytes) => return Outcome { result: Ok(bytes), better: Some(other.clone()) },
                Err(_) => (first.await, None),
            },
        };
        match (first, second) {
            (Err(_), Some(Ok(bytes))) => Outcome { result: Ok(bytes), better: Some(other.clone()) },
            (result, _) => Outcome { result, better: None },
        }
    }
}

/// Given back when it is dropped.
struct Place(Arc<HedgedReads>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.at_once.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Times {
    fn note(&self, time: Duration) {
        let count = |bucket: &AtomicU32| bucket.load(Ordering::Relaxed);
        self.buckets[bucket(time)].fetch_add(1, Ordering::Relaxed);
        if self.buckets.iter().map(count).sum::<u32>() > REMEMBERED {
            self.buckets.iter().for_each(|bucket| bucket.store(count(bucket) / 2, Ordering::Relaxed));
        }
    }

    /// As long as 95 of 100 reads took, or longer; the shortest time if there were none.
    fn p95(&self) -> Duration {
        let counts: Vec<u32> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let total: u32 = counts.iter().sum();
        let mut left = total - total / 20;
        let found = counts.iter().position(|count| {
            left = left.saturating_sub(*count);
            left == 0
        });
        found.filter(|_| total > 0).map_or(Duration::ZERO, bucket_end)
    }
}

fn bucket(time: Duration) -> usize {
    let micros = (time.as_micros() as u64).max(1);
    let power = micros.ilog2();
    let half = ((micros << 1) >> power) & 1;
    (power as usize * 2 + half as usize).min(BUCKETS - 1)
}

fn bucket_end(at: usize) -> Duration {
    let (power, half) = (at / 2, at as u64 % 2);
    Duration::from_micros(((3 + half) << power).div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Site;

    fn hedged(settings: &[(&str, &str)]) -> io::Result<HedgedReads> {
        let mut site = Site::default();
        settings.iter().for_each(|(name, value)| site.set(name, value));
        HedgedReads::new(&HdfsAddress::new("hdfs://one/", &site)?)
    }

    #[test]
    fn a_read_is_late_at_the_95th_percentile() {
        let reads = hedged(&[]).unwrap();
        assert_eq!(reads.limit(1), LATE_MIN, "nothing is known");
        (0..94).for_each(|_| reads.times.note(Duration::from_millis(20)));
        (0..6).for_each(|_| reads.times.note(Duration::from_millis(100)));
        let limit = reads.limit(1);
        assert!(limit >= Duration::from_millis(100) && limit <= Duration::from_millis(150), "{limit:?}");
        assert_eq!(reads.limit(1 << 20), limit * 5);
        (0..4 * REMEMBERED).for_each(|_| reads.times.note(Duration::from_millis(20)));
        assert!(reads.limit(1) < Duration::from_millis(40), "the slow ones are forgotten");
        (0..4 * REMEMBERED).for_each(|_| reads.times.note(Duration::from_secs(9)));
        assert_eq!(reads.limit(1), LATE_MAX);
    }

    #[test]
    fn buckets_hold_what_they_say() {
        for micros in (1..3000).chain([99_999, 123_456_789, u32::MAX as u64]) {
            let time = Duration::from_micros(micros);
            let at = bucket(time);
            assert!(at == BUCKETS - 1 || time < bucket_end(at), "{micros} in {at}");
            assert!(at == 0 || time >= bucket_end(at - 1) || micros < 4, "{micros} in {at}");
        }
    }

    #[test]
    fn settings_of_hdfs() {
        let reads = Arc::new(
            hedged(&[
                ("dfs.client.hedged.read.threshold.millis", "30"),
                ("dfs.client.hedged.read.threadpool.size", "2"),
            ])
            .unwrap(),
        );
        assert_eq!(reads.limit(1), Duration::from_millis(30));
        let first = reads.enter();
        assert!(first.is_some() && reads.enter().is_some());
        let both = (reads.enter(), reads.enter());
        assert!(both.0.is_some() && both.1.is_none(), "one of two places is taken");
        let off = Arc::new(hedged(&[("dfs.client.hedged.read.threadpool.size", "0")]).unwrap());
        assert!(off.enter().is_none());
        let error = hedged(&[("dfs.client.hedged.read.threadpool.size", "many")]).err().unwrap();
        assert_eq!(
            error.to_string(),
            "dfs.client.hedged.read.threadpool.size is many; it must be a whole number"
        );
    }
}
