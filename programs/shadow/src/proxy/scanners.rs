//! Open scanners of which later answers matter: those of `hbase:meta`, and those that are observed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Scanners that are remembered at most.
const SCANNERS_MAX: usize = 1 << 16;
/// A scanner that nobody used for so long is forgotten when there are too many: its lease has expired.
const IDLE_MAX: Duration = Duration::from_secs(180);

/// What is known of a scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) is_meta: bool,
    pub(crate) is_observed: bool,
}

/// A server, and the id of a scanner there.
type Key = (Arc<str>, u64);

/// By server and scanner id, since clients may use a scanner over several connections.
///
/// # Thread safety
/// Shared freely; the lock is held for a look-up.
#[derive(Default)]
pub(crate) struct Scanners {
    known: Mutex<HashMap<Key, (Known, Instant)>>,
}

impl Scanners {
    /// Whether there was room.
    pub(crate) fn insert(&self, server: &Arc<str>, id: u64, known: Known) -> bool {
        let (mut all, now) = (self.known.lock(), Instant::now());
        if all.len() >= SCANNERS_MAX {
            all.retain(|_, (_, used)| now.duration_since(*used) < IDLE_MAX);
            if all.len() >= SCANNERS_MAX {
                return false;
            }
        }
        all.insert((Arc::clone(server), id), (known, now));
        true
    }

    pub(crate) fn get(&self, server: &Arc<str>, id: u64) -> Option<Known> {
        let mut all = self.known.lock();
        let (known, used) = all.get_mut(&(Arc::clone(server), id))?;
        *used = Instant::now();
        Some(*known)
    }

    pub(crate) fn remove(&self, server: &Arc<str>, id: u64) {
        self.known.lock().remove(&(Arc::clone(server), id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scanners_belong_to_their_server_and_have_a_limit() {
        let (scanners, one, other) = (Scanners::default(), Arc::from("a:1"), Arc::from("b:1"));
        let meta = Known { is_meta: true, is_observed: false };
        assert!(scanners.insert(&one, 5, meta));
        assert_eq!((scanners.get(&one, 5), scanners.get(&other, 5)), (Some(meta), None));
        for id in 1..SCANNERS_MAX as u64 {
            assert!(scanners.insert(&other, id, meta));
        }
        assert!(!scanners.insert(&one, 6, meta));
        scanners.remove(&one, 5);
        assert!(scanners.insert(&one, 6, meta) && scanners.get(&one, 5).is_none());
    }
}
