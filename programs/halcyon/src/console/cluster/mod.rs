//! What the console of an active master says of its cluster. Every list has a limit and is turned in pages.

mod balance;
mod recoveries;
mod servers;
mod transitions;

use std::sync::Arc;

use halcyon_master::{Recovery, RecoveryKind};
use serde::{Deserialize, Serialize};

use super::api::{NoParameters, Refused};
use super::{Console, Role};
use crate::cluster::{Picture, ServerState, kind_text};

pub use self::balance::balance;
pub use self::recoveries::recoveries;
pub use self::servers::servers;
pub use self::transitions::transitions;

/// Lines of one answer.
const LIMIT_MAX: usize = 1000;
const LIMIT_DEFAULT: usize = 100;
/// Fences, takeovers and runs of the balancer of one answer.
const NEWEST_MAX: usize = 50;

/// A part of a list.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Page {
    pub limit: Option<usize>,
    pub offset: Option<usize>,
}

impl Page {
    pub fn checked(self) -> Result<(usize, usize), Refused> {
        let limit = self.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Refused::invalid(format!("limit: {limit} is not between 1 and {LIMIT_MAX}")));
        }
        Ok((self.offset.unwrap_or(0), limit))
    }
}

/// The cluster, or a refusal on the ports of other servers.
fn picture(console: &Console) -> Result<Arc<Picture>, Refused> {
    match console.sources.surroundings.cluster() {
        Some(cluster) => Ok(cluster.picture()),
        None => Err(Refused::absent("Only the active master of a cluster has this page.")),
    }
}

#[derive(Debug, Serialize)]
pub struct ClusterAnswer {
    now_ms: i64,
    active: String,
    epoch: u64,
    elected_ms: i64,
    active_ms: i64,
    standby: Vec<String>,
    /// The server of `hbase:meta`; `null` while it is open nowhere.
    meta: Option<String>,
    online_count: usize,
    draining_count: usize,
    recovering_count: usize,
    dead_count: usize,
    tables_count: usize,
    regions_count: usize,
    open_count: usize,
    transitions_count: usize,
    stuck_count: usize,
    average_load: f64,
    reads_per_s: Option<f64>,
    writes_per_s: Option<f64>,
    is_balancer_on: bool,
    balancer: Vec<Run>,
    takeovers: Vec<Takeover>,
    fences: Vec<Fence>,
}

/// Runs of the balancer in a row that ended alike.
#[derive(Debug, Serialize)]
struct Run {
    at_ms: i64,
    runs_count: u64,
    moves_count: usize,
    moves: Vec<Move>,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Move {
    region: String,
    from: String,
    to: String,
}

/// A master that became active.
#[derive(Debug, Serialize)]
struct Takeover {
    epoch: u64,
    master: String,
    /// Empty: there was none, or it is not known.
    before: String,
    elected_ms: i64,
    served_ms: Option<i64>,
}

/// WALs that were taken from a server.
#[derive(Debug, Serialize)]
struct Fence {
    at_ms: i64,
    master: String,
    epoch: u64,
    server: String,
    kind: &'static str,
    wals_count: u64,
}

pub fn cluster(console: &Console, _: Role, _: NoParameters) -> Result<ClusterAnswer, Refused> {
    Ok(answer(&*picture(console)?))
}

fn answer(picture: &Picture) -> ClusterAnswer {
    let in_state = |state| picture.in_state(state).count();
    let rates = picture.rates();
    let takeovers = picture.recoveries.iter().filter(|it| it.kind() == RecoveryKind::Takeover);
    let meta = picture.servers.iter().find(|row| row.has_meta && row.is_online());
    ClusterAnswer {
        now_ms: picture.at_ms,
        active: picture.active.clone(),
        epoch: picture.epoch,
        elected_ms: picture.elected_ms,
        active_ms: picture.active_ms,
        standby: picture.standby.iter().take(NEWEST_MAX).map(ToString::to_string).collect(),
        meta: meta.map(|row| row.server.to_string()),
        online_count: picture.online().count(),
        draining_count: in_state(ServerState::Draining),
        recovering_count: in_state(ServerState::Recovering),
        dead_count: in_state(ServerState::Dead),
        tables_count: picture.spread.tables.len(),
        regions_count: picture.spread.tables.iter().map(|table| table.regions_count).sum(),
        open_count: picture.open_count(),
        transitions_count: picture.transitions.len(),
        stuck_count: picture.stuck_count(),
        average_load: picture.average_load(),
        reads_per_s: rates.map(|(reads, _)| reads),
        writes_per_s: rates.map(|(_, writes)| writes),
        is_balancer_on: picture.is_balancer_on,
        balancer: picture.balancer_runs.iter().take(NEWEST_MAX).map(run).collect(),
        takeovers: takeovers.take(NEWEST_MAX).map(takeover).collect(),
        fences: picture.recoveries.iter().filter_map(fence).take(NEWEST_MAX).collect(),
    }
}

fn run(run: &halcyon_master::BalancerRun) -> Run {
    let moves = run.moves.iter().map(|(region, from, to)| Move {
        region: region.clone(),
        from: from.clone(),
        to: to.clone(),
    });
    Run {
        at_ms: run.at_ms,
        runs_count: run.runs_count,
        moves_count: run.moves_count,
        moves: moves.collect(),
        reason: run.reason.clone(),
    }
}

fn takeover(it: &Recovery) -> Takeover {
    Takeover {
        epoch: it.epoch,
        master: it.master.clone(),
        before: it.server.clone(),
        elected_ms: it.noticed_ms,
        served_ms: it.ended_ms,
    }
}

fn fence(it: &Recovery) -> Option<Fence> {
    let at_ms = it.fenced_ms.filter(|_| it.kind() != RecoveryKind::Takeover)?;
    Some(Fence {
        at_ms,
        master: it.master.clone(),
        epoch: it.epoch,
        server: it.server.clone(),
        kind: kind_text(it.kind()),
        wals_count: it.wals_count,
    })
}

#[cfg(test)]
mod tests;
