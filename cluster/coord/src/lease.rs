//! For how long a region server may answer, or a master may act.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use halcyon_env::Clock;
use halcyon_schema::ServerName;
use parking_lot::Mutex;
use tokio::sync::watch;

/// An end that never comes, so that the clock need not be read.
const ENDLESS_NS: u64 = u64::MAX;

/// Why a server is no longer what its znode says: a member of the cluster, or its active master. This is final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The session has ended: nothing was heard of this server for the session timeout.
    SessionExpired,
    /// Somebody has removed the znode of this server, while its session lives.
    ZnodeDeleted,
    /// Another session has created a znode of the same name.
    ZnodeTaken { session: i64 },
    /// Another master became active after this one.
    Deposed,
    /// The server itself has left.
    Left,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::SessionExpired => f.write_str("its session has expired"),
            Loss::ZnodeDeleted => f.write_str("its znode was deleted by somebody else"),
            Loss::ZnodeTaken { session } => write!(f, "its znode belongs to another session, {session:#x}"),
            Loss::Deposed => f.write_str("another master became active"),
            Loss::Left => f.write_str("it has left"),
        }
    }
}

/// What a [`Lease`] says at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// The server may answer.
    Valid,
    /// The coordination service was not heard of for too long. The lease may be renewed: calls wait.
    Expired,
    /// The server has to leave.
    Lost(Loss),
}

/// The permission to answer reads and writes, which has to be renewed.
///
/// A renewal is an answer of the coordination service. The lease then lasts for a part of the session timeout from the moment
/// at which the *question was sent*: whatever delayed the answer, the service cannot end the session before that moment plus
/// the whole timeout. Time is that of [`Clock::boot_ns`], which counts suspended time.
///
/// The lease bounds stale reads. It fences nothing: a server may stop between its look at the lease and its answer.
///
/// # Thread safety
/// All methods may be called from any thread. [`Lease::is_valid`] is one atomic load and one look at the clock.
///
/// # Invariants
/// The end never goes back, except by a loss, or if the service keeps the session for a shorter time than before. After a loss no
/// renewal has an effect.
pub struct Lease {
    server: ServerName,
    clock: Arc<dyn Clock>,
    /// By the boot clock; 0 before the first renewal and after a loss.
    end_ns: AtomicU64,
    /// Serializes renewals with a loss.
    renewing: Mutex<()>,
    /// Wakes those who wait at each renewal and at the loss.
    loss: watch::Sender<Option<Loss>>,
}

impl Lease {
    /// Not valid before the first renewal.
    pub fn new(server: ServerName, clock: Arc<dyn Clock>) -> Lease {
        Lease::ending(server, clock, 0)
    }

    /// Valid until it is lost: where master and region server are one process.
    pub fn endless(server: ServerName, clock: Arc<dyn Clock>) -> Lease {
        Lease::ending(server, clock, ENDLESS_NS)
    }

    fn ending(server: ServerName, clock: Arc<dyn Clock>, end_ns: u64) -> Lease {
        let (loss, _) = watch::channel(None);
        Lease { server, clock, end_ns: AtomicU64::new(end_ns), renewing: Mutex::new(()), loss }
    }

    pub fn server(&self) -> &ServerName {
        &self.server
    }

    /// Whether the server may answer. Asked before each answer.
    #[inline]
    pub fn is_valid(&self) -> bool {
        let end_ns = self.end_ns.load(Ordering::Acquire);
        end_ns == ENDLESS_NS || self.clock.boot_ns() < end_ns
    }

    pub fn state(&self) -> LeaseState {
        match &*self.loss.borrow() {
            Some(loss) => LeaseState::Lost(loss.clone()),
            None if self.is_valid() => LeaseState::Valid,
            None => LeaseState::Expired,
        }
    }

    /// How long the lease lasts from now on.
    pub fn remaining(&self) -> Duration {
        let end_ns = self.end_ns.load(Ordering::Acquire);
        Duration::from_nanos(end_ns.saturating_sub(self.clock.boot_ns()))
    }

    /// The question was sent at `sent_ns` of the boot clock, and the answer was that the server is a member.
    pub fn renew(&self, sent_ns: u64, lasts: Duration) {
        assert!(sent_ns <= self.clock.boot_ns(), "the answer to a question that is still to be sent");
        let _renewing = self.renewing.lock();
        if self.loss.borrow().is_some() {
            assert!(!self.is_valid(), "a lease that is lost is not renewed by a late answer");
            return;
        }
        let lasts_ns = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = sent_ns.saturating_add(lasts_ns).min(ENDLESS_NS - 1);
        self.end_ns.fetch_max(end_ns, Ordering::AcqRel);
        self.loss.send_modify(|_| {});
    }

    /// The service keeps the session for less time than was thought: of a question that was sent at `sent_ns` the lease lasts so long at
    /// most.
    pub fn shorten(&self, sent_ns: u64, lasts: Duration) {
        let _renewing = self.renewing.lock();
        let lasts_ns = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        let before_ns = self.end_ns.load(Ordering::Acquire);
        assert!(before_ns != ENDLESS_NS, "a lease that no service grants is not shortened by one");
        self.end_ns.fetch_min(sent_ns.saturating_add(lasts_ns), Ordering::AcqRel);
        assert!(
            self.end_ns.load(Ordering::Acquire) <= before_ns,
            "a lease is not made longer by who shortens it: others count on its end"
        );
    }

    /// Ends the lease for good; the first reason stays.
    pub fn lose(&self, loss: Loss) {
        let _renewing = self.renewing.lock();
        self.end_ns.store(0, Ordering::Release);
        self.loss.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert(loss);
            first
        });
        assert!(!self.is_valid(), "nothing is answered after a loss");
        assert!(self.loss.borrow().is_some(), "who waits for the loss is told");
    }

    /// Waits for the loss of the lease, which in good times never comes.
    pub async fn lost(&self) -> Loss {
        let mut losses = self.loss.subscribe();
        let loss = losses.wait_for(Option::is_some).await.expect("the sender is in self");
        loss.clone().expect("it was waited for")
    }

    /// Waits until the lease is valid, or says how it was lost. The caller sets the deadline.
    pub async fn valid(&self) -> Result<(), Loss> {
        let mut losses = self.loss.subscribe();
        let seen = losses.wait_for(|loss| loss.is_some() || self.is_valid()).await;
        seen.expect("the sender is in self").clone().map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease of {}: {:?}", self.server, self.state())
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::ManualClock;
    use tokio::time::timeout;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease() -> (Arc<ManualClock>, Lease) {
        let clock = Arc::new(ManualClock::at(0));
        clock.advance(100 * SECOND);
        (clock.clone(), Lease::new(ServerName::new("h", 16020, 17), clock))
    }

    #[test]
    fn it_lasts_from_the_question_on() {
        let (clock, lease) = lease();
        assert_eq!(lease.state(), LeaseState::Expired, "nobody has renewed it");
        let sent_ns = clock.boot_ns();
        clock.advance(3 * SECOND); // the answer is late
        lease.renew(sent_ns, 4 * SECOND);
        assert!(lease.is_valid());
        assert_eq!(lease.remaining(), SECOND);
        clock.advance(SECOND);
        assert_eq!(lease.state(), LeaseState::Expired);
        lease.renew(sent_ns, 4 * SECOND);
        assert!(!lease.is_valid(), "a late answer renews nothing");
        lease.renew(clock.boot_ns(), 4 * SECOND);
        assert_eq!(lease.state(), LeaseState::Valid);
        lease.renew(sent_ns, 4 * SECOND);
        assert!(lease.is_valid(), "an older answer takes nothing away");
    }

    #[test]
    fn a_suspended_machine_has_no_lease() {
        let (clock, lease) = lease();
        lease.renew(clock.boot_ns(), 4 * SECOND);
        clock.suspend(5 * SECOND);
        assert_eq!((lease.is_valid(), lease.remaining()), (false, Duration::ZERO));
    }

    #[test]
    fn a_loss_is_final_and_the_first_one_counts() {
        let (clock, lease) = lease();
        lease.renew(clock.boot_ns(), 4 * SECOND);
        lease.lose(Loss::ZnodeDeleted);
        lease.lose(Loss::SessionExpired);
        lease.renew(clock.boot_ns(), 4 * SECOND);
        assert!(!lease.is_valid());
        assert_eq!(lease.state(), LeaseState::Lost(Loss::ZnodeDeleted));
    }

    #[test]
    fn an_endless_lease_ends_by_a_loss_only() {
        let clock = Arc::new(ManualClock::at(0));
        let lease = Lease::endless(ServerName::new("h", 16020, 17), clock.clone());
        clock.suspend(1_000_000 * SECOND);
        assert!(lease.is_valid());
        lease.lose(Loss::Left);
        assert!(!lease.is_valid());
    }

    #[tokio::test]
    async fn waits_end_with_a_renewal_or_the_loss() {
        let (clock, lease) = lease();
        let lease = Arc::new(lease);
        assert!(timeout(Duration::from_millis(20), lease.valid()).await.is_err());
        assert!(timeout(Duration::from_millis(20), lease.lost()).await.is_err());
        let waits = Arc::clone(&lease);
        let waits =
            tokio::spawn(async move { (waits.valid().await, waits.lost().await, waits.valid().await) });
        tokio::task::yield_now().await;
        lease.renew(clock.boot_ns(), SECOND);
        tokio::time::sleep(Duration::from_millis(20)).await;
        lease.lose(Loss::SessionExpired);
        let expired = Loss::SessionExpired;
        assert_eq!(waits.await.unwrap(), (Ok(()), expired.clone(), Err(expired)));
    }
}
