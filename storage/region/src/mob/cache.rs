//! Mob files that are kept open (HBase: `MobFileCache`).

use std::collections::HashMap;
use std::sync::Arc;

use halcyon_env::Mutex;
use halcyon_hfile::HFile;

/// Open mob files, shared by the regions of a server. When there are too many, those that were used longest ago go. A reader
/// goes on with a file that went.
///
/// *Thread safety*: all methods from any thread; none does I/O.
pub struct MobFileCache {
    files_max: usize,
    /// Of `files_max`, what stays when there are too many.
    remain: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// With the tick at which each was used last. No two have the same.
    files: HashMap<String, (Arc<HFile>, u64)>,
    ticks: u64,
    accesses: u64,
    misses: u64,
    evicted: u64,
    held_bytes: u64,
}

impl Open {
    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MobCacheStats {
    pub files: u64,
    pub accesses: u64,
    pub misses: u64,
    pub evicted: u64,
    /// Bytes of memory that the open files take besides blocks in the cache.
    pub held_bytes: u64,
}

impl MobFileCache {
    /// `files_max` 0: none is kept (`hbase.mob.file.cache.size`). `remain_share` of them stays when there are too many
    /// (`hbase.mob.cache.evict.remain.ratio`); it is brought between 0 and 1.
    pub fn new(files_max: usize, remain_share: f64) -> Arc<MobFileCache> {
        let share = if remain_share.is_nan() { 0.0 } else { remain_share.clamp(0.0, 1.0) };
        let remain = (files_max as f64 * share) as usize;
        Arc::new(MobFileCache { files_max, remain, open: Mutex::default() })
    }

    pub(crate) fn get(&self, file: &str) -> Option<Arc<HFile>> {
        let mut open = self.open.lock();
        open.accesses += u64::from(self.files_max > 0);
        let now = open.tick();
        let (hfile, used) = open.files.get_mut(file)?;
        *used = now;
        Some(hfile.clone())
    }

    /// Keeps a file that [`MobFileCache::get`] did not have.
    pub(crate) fn keep(&self, file: &str, hfile: &Arc<HFile>) {
        if self.files_max == 0 {
            return;
        }
        let mut open = self.open.lock();
        open.misses += 1;
        let now = open.tick();
        open.held_bytes += hfile.held_bytes() as u64;
        if let Some((other, _)) = open.files.insert(file.to_string(), (hfile.clone(), now)) {
            open.held_bytes -= other.held_bytes() as u64; // another reader was faster
        }
        if open.files.len() > self.files_max {
            evict(&mut open, self.remain);
        }
        assert!(
            open.files.len() <= self.files_max,
            "open files have a limit: {} of {}",
            open.files.len(),
            self.files_max
        );
    }

    /// Lets go of a file that is gone, or whose blocks are of no use.
    pub(crate) fn forget(&self, file: &str) -> Option<Arc<HFile>> {
        let mut open = self.open.lock();
        let (hfile, _) = open.files.remove(file)?;
        open.evicted += 1;
        open.held_bytes -= hfile.held_bytes() as u64;
        Some(hfile)
    }

    pub fn stats(&self) -> MobCacheStats {
        let open = self.open.lock();
        MobCacheStats {
            files: open.files.len() as u64,
            accesses: open.accesses,
            misses: open.misses,
            evicted: open.evicted,
            held_bytes: open.held_bytes,
        }
    }
}

/// Keeps the `remain` files that were used last.
fn evict(open: &mut Open, remain: usize) {
    let mut times: Vec<u64> = open.files.values().map(|(_, used)| *used).collect();
    times.sort_unstable_by(|a, b| b.cmp(a));
    let before = open.files.len();
    match remain.checked_sub(1).and_then(|last| times.get(last)) {
        Some(&oldest) => open.files.retain(|_, (_, used)| *used >= oldest),
        None => open.files.clear(),
    }
    open.evicted += (before - open.files.len()) as u64;
    open.held_bytes = open.files.values().map(|(hfile, _)| hfile.held_bytes() as u64).sum();
}
