//! Runs of the balancer, and what it decided; servers that are to get no more regions.

use std::collections::VecDeque;
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_env::Mutex;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName};
use tracing::info;

use crate::Master;
use crate::balancer::{self, Counters, Decision, Rejection};
use crate::groups;
use crate::moves::{Move, regions_at};
use crate::switches::Switch;

/// Decisions that are remembered (HBase: `hbase.namedqueue.ringbuffer.size`, by default more).
const DECISIONS_MAX: usize = 250;

/// What the balancer remembers. A run holds the counters, so that runs follow each other.
#[derive(Default)]
pub(crate) struct Balancing {
    counters: Mutex<Counters>,
    decisions: Mutex<VecDeque<Decision>>,
    rejections: Mutex<VecDeque<Rejection>>,
}

impl Balancing {
    fn keep<T>(kept: &Mutex<VecDeque<T>>, new: T) {
        let mut kept = kept.lock();
        kept.push_front(new);
        kept.truncate(DECISIONS_MAX);
    }

    /// The newest first.
    pub(crate) fn decisions(&self, limit: usize) -> pb::BalancerDecisionsResponse {
        let message = |decision: &Decision| pb::BalancerDecision {
            initial_function_costs: Decision::text(&decision.costs_before),
            final_function_costs: Decision::text(&decision.costs_after),
            init_total_cost: Decision::total(&decision.costs_before),
            computed_total_cost: Decision::total(&decision.costs_after),
            computed_steps: decision.steps,
            region_plans: decision.moves.iter().map(plan_text).collect(),
        };
        let decisions = self.decisions.lock();
        pb::BalancerDecisionsResponse {
            balancer_decision: decisions.iter().take(limit).map(message).collect(),
        }
    }

    /// The newest first.
    pub(crate) fn rejections(&self, limit: usize) -> pb::BalancerRejectionsResponse {
        let message = |rejection: &Rejection| pb::BalancerRejection {
            reason: rejection.0.clone(),
            cost_func_info: Vec::new(),
        };
        let rejections = self.rejections.lock();
        pb::BalancerRejectionsResponse {
            balancer_rejection: rejections.iter().take(limit).map(message).collect(),
        }
    }
}

/// As HBase's `RegionPlan` shows itself.
fn plan_text(one: &balancer::Move) -> String {
    format!("hri={}, source={}, destination={}", one.region.encoded_name(), one.from, one.to)
}

impl Master {
    /// Moves regions to where there is less to do, unless the balancer is off. With `dry_run` it only says how many would move.
    /// Whether it ran, moves calculated, moves begun.
    pub fn balance(&self, dry_run: bool) -> (bool, usize, usize) {
        if !dry_run && !self.core.switches.lock().get(Switch::Balancer) {
            return (false, 0, 0);
        }
        let balancing = &self.core.balancing;
        let mut counters = balancing.counters.lock();
        if !dry_run {
            groups::move_misplaced(self, |_, _| true);
        }
        let decided = balancer::decide(&self.core, &mut counters, None);
        let decision = match decided {
            Ok(decision) => decision,
            Err(rejection) => {
                self.core.balancer_runs.rejected(self.core.now_ms(), &rejection);
                Balancing::keep(&balancing.rejections, rejection);
                return (!self.core.cluster.servers.is_one_process() || dry_run, 0, 0);
            }
        };
        let calculated = decision.moves.len();
        if dry_run {
            return (true, calculated, 0);
        }
        self.carry_out(decision);
        (true, calculated, calculated)
    }

    /// As [`Master::balance`] for one group of servers, whether the balancer is on or not. Moves calculated, moves begun.
    pub(crate) fn balance_group(&self, group: &str, dry_run: bool) -> (usize, usize) {
        let mut counters = self.core.balancing.counters.lock();
        let misplaced = match dry_run {
            true => 0,
            false => {
                groups::move_misplaced(self, |region, _| self.core.group_of_table(region.table()) == group)
                    .len()
            }
        };
        match balancer::decide(&self.core, &mut counters, Some(group)) {
            Ok(decision) => {
                let calculated = decision.moves.len() + misplaced;
                if !dry_run {
                    self.carry_out(decision);
                }
                (calculated, if dry_run { 0 } else { calculated })
            }
            Err(rejection) => {
                Balancing::keep(&self.core.balancing.rejections, rejection);
                (misplaced, misplaced)
            }
        }
    }

    fn carry_out(&self, decision: Decision) {
        for one in &decision.moves {
            info!(region = %one.region, from = %one.from, to = %one.to, "the balancer moves a region");
        }
        self.moves.add(decision.moves.iter().map(|one| Move {
            region: one.region.clone(),
            from: Some(one.from.clone()),
            to: Some(one.to.clone()),
        }));
        if !decision.moves.is_empty() {
            self.core.balancer_runs.decided(self.core.now_ms(), &decision);
            Balancing::keep(&self.core.balancing.decisions, decision);
        }
    }

    /// Lets servers get no more regions; with `offload` their regions move to others, also under a master after this one. Does not wait
    /// for the moves. An error if another master is active. *Blocking*.
    pub fn decommission(&self, servers: &[ServerName], offload: bool) -> Result<()> {
        for server in servers {
            match offload {
                true => self.core.cluster.coordination.begin_offload(server)?,
                false => self.core.cluster.coordination.set_draining(server, true)?,
            }
            info!(%server, offload, "a region server is decommissioned");
        }
        self.wait_for_draining(servers, true);
        if offload {
            let regions = regions_at(&self.core, servers).into_iter();
            self.moves.add(regions.map(|(region, server)| Move { region, from: Some(server), to: None }));
        }
        Ok(())
    }

    /// The news goes by way of the coordination service. Without it, regions would move from one of the servers to another, and a client
    /// that asks would not see what it has done.
    fn wait_for_draining(&self, servers: &[ServerName], is_draining: bool) {
        const PAUSE: Duration = Duration::from_millis(10);
        const PAUSES_MAX: u32 = 200;
        for _ in 0..PAUSES_MAX {
            let draining = self.core.cluster.servers.draining();
            if servers.iter().all(|server| draining.contains(server) == is_draining) {
                return;
            }
            self.core.env.clock.sleep(PAUSE);
        }
    }

    /// Lets a server get regions again, and moves these there.
    pub(crate) fn recommission(&self, server: &ServerName, regions: Vec<RegionInfo>) -> Result<()> {
        self.core.cluster.coordination.set_draining(server, false)?;
        self.wait_for_draining(std::slice::from_ref(server), false);
        let stay = self.moves.take_back(server);
        info!(%server, regions = regions.len(), stay, "a region server gets regions again");
        let to_server = |region| Move { region, from: None, to: Some(server.clone()) };
        self.moves.add(regions.into_iter().map(to_server));
        Ok(())
    }
}
