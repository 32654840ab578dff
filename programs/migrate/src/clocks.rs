//! Clocks of the two sides.
//!
//! A write without a timestamp gets that of its server. If the server that takes writes after a cut over is behind the one that
//! took them before, a first put there lies under the cell that it should replace: it is acknowledged and hidden. So clocks that
//! are far apart are refused, and a cut over waits until each clock of the new side has passed the last write of the old one.

use std::collections::BTreeMap;
use std::time::Duration;

use halcyon_client::ServerName;
use halcyon_env::Env;
use tokio::time::Instant;

use crate::marks;
use crate::side::Side;

/// Clocks may be apart by this much.
pub(crate) const APART_MS_MAX: i64 = 1_000;
/// Servers report their clocks every three seconds, if nothing else is set.
const REPORTS_TIME: Duration = Duration::from_secs(10);
const REPORTS_COUNT: usize = 3;
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// How far a server's clock is ahead of that of this machine, in milliseconds: a number between these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ahead {
    least_ms: i64,
    most_ms: i64,
}

impl Ahead {
    /// A server's clock showed `there_ms` at a moment between two of this machine.
    fn of(there_ms: i64, before_ms: i64, after_ms: i64) -> Ahead {
        Ahead { least_ms: there_ms.saturating_sub(after_ms), most_ms: there_ms.saturating_sub(before_ms) }
    }

    fn and(self, other: Ahead) -> Ahead {
        Ahead { least_ms: self.least_ms.max(other.least_ms), most_ms: self.most_ms.min(other.most_ms) }
    }
}

type Clocks = BTreeMap<ServerName, Ahead>;

/// Why clocks are too far apart, if they are, by what the servers have reported to their masters. Changes nothing. A
/// server that reports nothing meanwhile is not judged: its clock is looked at again before a cut over.
pub(crate) async fn check_reported(
    env: &Env,
    source: &Side,
    target: &Side,
) -> Result<Option<String>, String> {
    let mut reason = None;
    // A report may have been on its way for long, but hardly each time.
    for _ in 0..REPORTS_COUNT {
        let (ours, theirs) = tokio::try_join!(reported(env, source), reported(env, target))?;
        reason = apart((source.name, &ours), (target.name, &theirs));
        if reason.is_none() {
            break;
        }
    }
    Ok(reason)
}

/// As [`check_reported`], by timestamps that servers give to rows. The tables of marks must be there.
pub(crate) async fn check_written(env: &Env, source: &Side, target: &Side) -> Result<Option<String>, String> {
    let (ours, theirs) = (written(env, source).await?, written(env, target).await?);
    Ok(apart((source.name, &ours), (target.name, &theirs)))
}

/// Why two sides have clocks too far apart, with the servers.
fn apart(one: (&str, &Clocks), other: (&str, &Clocks)) -> Option<String> {
    let behind = |ahead: (&str, &Clocks), behind: (&str, &Clocks)| {
        let first = ahead.1.iter().max_by_key(|(_, clock)| clock.least_ms)?;
        let last = behind.1.iter().min_by_key(|(_, clock)| clock.most_ms)?;
        let ms = first.1.least_ms.saturating_sub(last.1.most_ms);
        (ms > APART_MS_MAX).then(|| {
            format!(
                "the clock of {} of the {} is at least {ms} ms behind that of {} of the {}; {APART_MS_MAX} ms are allowed, since \
                 a write there would be hidden by an older one: synchronize the clocks",
                last.0, behind.0, first.0, ahead.0
            )
        })
    };
    behind(one, other).or_else(|| behind(other, one))
}

/// What servers report. A report that was not there a moment ago is from that moment.
async fn reported(env: &Env, side: &Side) -> Result<Clocks, String> {
    let until = Instant::now() + REPORTS_TIME;
    let mut last: BTreeMap<ServerName, u64> = BTreeMap::new();
    let mut clocks = Clocks::new();
    let mut before_ms = env.clock.now_ms();
    loop {
        let now_ms = env.clock.now_ms();
        let metrics = side.admin.cluster_metrics().await.map_err(|error| side.failed("metrics", error))?;
        let after_ms = env.clock.now_ms();
        for server in &metrics.servers {
            let known = last.insert(server.name.clone(), server.report_end_ms);
            let there_ms = i64::try_from(server.report_end_ms).unwrap_or(i64::MAX);
            if known.is_some_and(|known| known != server.report_end_ms) && there_ms > 0 {
                clocks.insert(server.name.clone(), Ahead::of(there_ms, before_ms, after_ms));
            }
        }
        let are_all = metrics.servers.iter().all(|server| clocks.contains_key(&server.name));
        if are_all || Instant::now() >= until {
            return Ok(clocks);
        }
        before_ms = now_ms;
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}

async fn written(env: &Env, side: &Side) -> Result<Clocks, String> {
    let mut clocks = Clocks::new();
    // The first time connections are made, and regions are found.
    for _ in 0..2 {
        let before_ms = env.clock.now_ms();
        let stamps = marks::stamps(side).await?;
        let after_ms = env.clock.now_ms();
        for (server, there_ms) in stamps {
            let clock = Ahead::of(there_ms, before_ms, after_ms);
            clocks.entry(server).and_modify(|known| *known = known.and(clock)).or_insert(clock);
        }
    }
    Ok(clocks)
}

/// Which server has not passed a time, and how far it is behind; `None`: all have passed it.
fn behind(stamps: &[(ServerName, i64)], highest_ms: i64) -> Option<(&ServerName, i64)> {
    let (server, least_ms) = stamps.iter().min_by_key(|(_, time)| *time).map(|(name, time)| (name, *time))?;
    (least_ms <= highest_ms).then(|| (server, highest_ms.saturating_sub(least_ms).saturating_add(1)))
}

/// Waits until the clocks of all servers of a side have passed a time. Fails at once if that takes longer than `limit`.
pub(crate) async fn pass(side: &Side, highest_ms: i64, limit: Duration) -> Result<(), String> {
    let until = Instant::now() + limit;
    loop {
        let stamps = marks::stamps(side).await?;
        let Some((server, ms)) = behind(&stamps, highest_ms) else { return Ok(()) };
        let wait = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        if Instant::now() + wait > until {
            return Err(format!(
                "the clock of {server} of the {} is {ms} ms behind the last write of the other side, which is more than is left",
                side.name
            ));
        }
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> ServerName {
        ServerName::new(name, 16020, 1)
    }

    fn clocks(of: &[(&str, i64, i64)]) -> Clocks {
        let clock = |(name, least_ms, most_ms): &(&str, i64, i64)| {
            (server(name), Ahead { least_ms: *least_ms, most_ms: *most_ms })
        };
        of.iter().map(clock).collect()
    }

    #[test]
    fn clocks_that_are_certainly_apart_are_told() {
        let source = clocks(&[("a", -40, 10), ("b", 100, 160)]);
        let told = |target: &Clocks| apart(("source", &source), ("target", target));
        assert_eq!(told(&clocks(&[("c", -800, -700)])), None);
        let text = told(&clocks(&[("c", 0, 10), ("d", -6000, -5900)])).unwrap();
        assert!(
            text.contains(
                "the clock of d,16020,1 of the target is at least 6000 ms behind that of b,16020,1"
            ),
            "{text}"
        );
        let text = told(&clocks(&[("c", 5000, 5100)])).unwrap();
        assert!(text.contains("the clock of a,16020,1 of the source is at least 4990 ms behind"), "{text}");
        // A slow answer says little, and is no reason.
        assert_eq!(told(&clocks(&[("d", -9000, 0)])), None);
        assert_eq!(told(&Clocks::new()), None, "nothing was reported");
    }

    #[test]
    fn a_moment_is_between_two_others() {
        let clock = Ahead::of(5_000, 1_000, 1_200);
        assert_eq!(clock, Ahead { least_ms: 3_800, most_ms: 4_000 });
        assert_eq!(clock.and(Ahead::of(9_000, 5_100, 5_110)), Ahead { least_ms: 3_890, most_ms: 3_900 });
    }

    #[test]
    fn the_slowest_clock_has_to_pass() {
        let stamps = [(server("a"), 1_000), (server("b"), 400)];
        assert_eq!(behind(&stamps, 399), None);
        assert_eq!(behind(&stamps, 400), Some((&stamps[1].0, 1)), "an equal timestamp hides nothing new");
        assert_eq!(behind(&stamps, 900), Some((&stamps[1].0, 501)));
    }
}
