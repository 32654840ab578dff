use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// When the operations of one client should begin: its share of a rate, evenly spread.
///
/// A timer of its own, as those of the runtime are no finer than a millisecond.
pub struct Pace {
    timer: AsyncFd<OwnedFd>,
    next_ns: f64,
    period_ns: f64,
}

impl Pace {
    /// Client `number` of `clients` which together make `rate` operations a second from `start_ns` on.
    pub fn new(rate: f64, clients: usize, number: usize, start_ns: u64) -> io::Result<Pace> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let next_ns = start_ns as f64 + number as f64 * 1e9 / rate;
        // its successor is unsafe code, for descriptors that somebody else may close; nobody else has this one
        #[allow(deprecated)]
        let timer = AsyncFd::new(fd)?;
        Ok(Pace { timer, next_ns, period_ns: clients as f64 * 1e9 / rate })
    }

    /// The moment at which the next operation should begin; each call is one operation.
    pub fn next(&mut self) -> u64 {
        let next = self.next_ns;
        self.next_ns += self.period_ns;
        next as u64
    }

    /// Waits.
    pub async fn sleep(&mut self, time: Duration) -> io::Result<()> {
        let value = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(
            self.timer.get_ref(),
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: interval, it_value: value },
        )?;
        loop {
            let mut ready = self.timer.readable().await?;
            let expired = |fd: &AsyncFd<OwnedFd>| {
                let mut count = [0; 8];
                rustix::io::read(fd.get_ref(), &mut count).map_err(io::Error::from)
            };
            if let Ok(read) = ready.try_io(expired) {
                read?;
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_share_a_rate() {
        let mut first = Pace::new(1_000.0, 2, 0, 5).unwrap();
        let mut second = Pace::new(1_000.0, 2, 1, 5).unwrap();
        let both: Vec<u64> = (0..3).flat_map(|_| [first.next(), second.next()]).collect();
        assert_eq!(both, [5, 1_000_005, 2_000_005, 3_000_005, 4_000_005, 5_000_005]);
        first.sleep(Duration::from_micros(100)).await.unwrap();
        first.sleep(Duration::from_micros(100)).await.unwrap();
    }
}
