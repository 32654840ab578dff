//! Who has found no room lately. Others have their share of what is left then; while nobody wants more than there is, one may
//! have nearly all.

use parking_lot::Mutex;

/// Who found no room wants it for so long. Its client comes again, at the latest after some seconds.
const WANTED_NS: u64 = 10_000_000_000;
/// What one may have of what the others leave while nobody else wants it. The rest is there for who comes next, at once.
pub(crate) const IDLE_SHARE: f64 = 15.0 / 16.0;

/// The last two that found no room, and when. Of two, one is not who asks. *Thread safety*: one short lock, taken only by those
/// who find no room or have more than their share.
#[derive(Debug, Default)]
pub(crate) struct Wanting(Mutex<[Option<(u64, u64)>; 2]>);

impl Wanting {
    /// `who` found no room.
    pub fn note(&self, who: u64, now_ns: u64) {
        let mut last = self.0.lock();
        if last[0].is_none_or(|(first, _)| first != who) {
            last[1] = last[0];
        }
        last[0] = Some((who, now_ns));
    }

    /// Whether somebody else found no room lately.
    pub fn is_wanted_beside(&self, who: u64, now_ns: u64) -> bool {
        let lately = |(other, at_ns): (u64, u64)| other != who && now_ns.saturating_sub(at_ns) < WANTED_NS;
        self.0.lock().iter().flatten().copied().any(lately)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_want_is_known_for_a_while() {
        let wanting = Wanting::default();
        assert!(!wanting.is_wanted_beside(1, 0));
        wanting.note(1, 5);
        assert!(!wanting.is_wanted_beside(1, 5), "nobody stands in its own way");
        assert!(wanting.is_wanted_beside(2, 5));
        wanting.note(2, 6);
        (0..1000).for_each(|_| wanting.note(1, 7));
        assert!(wanting.is_wanted_beside(1, 7), "who comes often does not drive others out");
        assert!(!wanting.is_wanted_beside(1, 6 + WANTED_NS));
        assert!(wanting.is_wanted_beside(2, 6 + WANTED_NS));
    }
}
