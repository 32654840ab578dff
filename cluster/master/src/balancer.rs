//! Which regions should move so that all servers have as much to do (HBase: `StochasticLoadBalancer`).
//!
//! The plan is made by costs. Each cost says how unevenly one thing is spread over the servers: 0 is even, 1 is all of it on one
//! server. The balancer takes the move that lowers the weighted sum most, again and again, until no move gains enough. The same
//! state always gives the same plan.
//!
//! | cost | weight | what is spread |
//! |---|---|---|
//! | regions | 500 | regions |
//! | tables | 35 | regions of each table |
//! | writes | 5 | write requests since the last look |
//! | reads | 5 | read requests since the last look |
//! | memstores | 5 | bytes in memstores |
//!
//! The weights are HBase's (`RegionCountSkewCostFunction`, `TableSkewCostFunction`, `WriteRequestCostFunction`,
//! `ReadRequestCostFunction`, `MemStoreSizeCostFunction`). Before all else, copies of a region part: no two are on one server
//! where there are enough (HBase: `RegionReplicaHostCostFunction`). A move itself costs, so that regions do not go to and fro.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use halcyon_contract::ServerReport;
use halcyon_schema::{RegionInfo, ServerName};

use crate::state::{MasterState, RegionState, TableState};

/// Less is not worth a move.
const GAIN_MIN: f64 = 0.5;
/// Moves of one run: this many, or one in a hundred regions.
const MOVES_MIN: usize = 32;
const MOVES_SHARE: usize = 100;

/// What a cost is about, in the order of [`Spread::costs`].
const COSTS: [(&str, f64); 5] =
    [("regions", 500.0), ("tables", 35.0), ("writes", 5.0), ("reads", 5.0), ("memstores", 5.0)];

/// A region, as the balancer sees it.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) region: RegionInfo,
    /// Number of its table among the tables.
    pub(crate) table: usize,
    /// The region, if there are copies: they are to be on different servers.
    pub(crate) copy_of: Option<RegionInfo>,
    /// Since the last look.
    pub(crate) writes: f64,
    pub(crate) reads: f64,
    pub(crate) memstore_bytes: f64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) region: RegionInfo,
    pub(crate) from: ServerName,
    pub(crate) to: ServerName,
}

/// A plan, and why (`GetLogEntries`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    pub(crate) moves: Vec<Move>,
    pub(crate) costs_before: [f64; COSTS.len()],
    pub(crate) costs_after: [f64; COSTS.len()],
    pub(crate) steps: u64,
}

impl Decision {
    /// What was decided for another group of servers.
    fn add(&mut self, other: Decision) {
        self.moves.extend(other.moves);
        self.steps += other.steps;
        for (cost, other) in self.costs_before.iter_mut().zip(other.costs_before) {
            *cost += other;
        }
        for (cost, other) in self.costs_after.iter_mut().zip(other.costs_after) {
            *cost += other;
        }
    }

    pub(crate) fn total(costs: &[f64; COSTS.len()]) -> f64 {
        COSTS.iter().zip(costs).map(|((_, weight), cost)| weight * cost).sum()
    }

    /// One cost after the other, as the log of HBase's balancer has them.
    pub(crate) fn text(costs: &[f64; COSTS.len()]) -> String {
        let mut text = String::new();
        for ((name, weight), cost) in COSTS.iter().zip(costs) {
            let _ = write!(text, "{name} : (multiplier={weight:.1}, imbalance={cost:.4}); ");
        }
        text
    }
}

/// One thing that is spread. Its sums are kept, so that a move that is tried costs the same for any number of servers.
struct Part {
    /// Of each server.
    values: Vec<f64>,
    sum: f64,
    sum_of_squares: f64,
    is_whole: bool,
}

impl Part {
    fn new(values: Vec<f64>) -> Part {
        let is_whole = values.iter().all(|value| value.fract() == 0.0);
        let (sum, sum_of_squares) = (values.iter().sum(), values.iter().map(|value| value.powi(2)).sum());
        Part { values, sum, sum_of_squares, is_whole }
    }

    /// By the second power of the distance from the mean, between 0 and 1.
    fn unevenness(&self) -> f64 {
        self.unevenness_of(self.sum_of_squares)
    }

    /// As it would be if so much moved.
    fn unevenness_after(&self, from: usize, to: usize, moved: f64) -> f64 {
        self.unevenness_of(self.sum_of_squares_after(from, to, moved))
    }

    fn sum_of_squares_after(&self, from: usize, to: usize, moved: f64) -> f64 {
        let (source, target) = (self.values[from], self.values[to]);
        let change = |before: f64, after: f64| after.powi(2) - before.powi(2);
        self.sum_of_squares + change(source, source - moved) + change(target, target + moved)
    }

    fn unevenness_of(&self, sum_of_squares: f64) -> f64 {
        let (count, sum) = (self.values.len() as f64, self.sum);
        if sum <= 0.0 || count < 2.0 {
            return 0.0;
        }
        let mean = sum / count;
        let distance = sum_of_squares - sum * mean;
        let best = if self.is_whole { least_distance(sum, count) } else { 0.0 };
        let worst = mean.powi(2) * count * (count - 1.0);
        ((distance - best) / (worst - best).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0).sqrt()
    }

    fn shift(&mut self, from: usize, to: usize, moved: f64) {
        self.sum_of_squares = self.sum_of_squares_after(from, to, moved);
        self.values[from] -= moved;
        self.values[to] += moved;
    }
}

/// Whole numbers cannot always be spread evenly: 4 regions on 3 servers are as even as they can be.
fn least_distance(sum: f64, count: f64) -> f64 {
    let (mean, more) = (sum / count, sum % count);
    let (low, high) = (mean.floor(), mean.ceil());
    more * (high - mean).powi(2) + (count - more) * (low - mean).powi(2)
}

/// The servers, in the order of their names, with what they have.
struct Spread {
    servers: Vec<ServerName>,
    loads: Vec<Vec<Load>>,
    regions: Part,
    /// By the numbers of tables.
    tables: Vec<Part>,
    /// Of all tables together.
    tables_unevenness: f64,
    writes: Part,
    reads: Part,
    memstores: Part,
}

impl Spread {
    fn new(loads: BTreeMap<ServerName, Vec<Load>>, tables_count: usize) -> Spread {
        let (servers, loads): (Vec<_>, Vec<Vec<Load>>) = loads.into_iter().unzip();
        let part = |value: fn(&Load) -> f64| {
            Part::new(loads.iter().map(|loads| loads.iter().map(value).sum()).collect())
        };
        let mut of_tables = vec![vec![0.0; servers.len()]; tables_count];
        for (server, loads) in loads.iter().enumerate() {
            loads.iter().for_each(|load| of_tables[load.table][server] += 1.0);
        }
        let tables: Vec<Part> = of_tables.into_iter().map(Part::new).collect();
        Spread {
            regions: part(|_| 1.0),
            tables_unevenness: tables.iter().map(Part::unevenness).sum(),
            tables,
            writes: part(|load| load.writes),
            reads: part(|load| load.reads),
            memstores: part(|load| load.memstore_bytes),
            servers,
            loads,
        }
    }

    fn costs(&self) -> [f64; COSTS.len()] {
        [
            self.regions.unevenness(),
            self.tables_unevenness / self.tables.len().max(1) as f64,
            self.writes.unevenness(),
            self.reads.unevenness(),
            self.memstores.unevenness(),
        ]
    }

    /// As they would be if the region at `at` moved.
    fn costs_after(&self, from: usize, at: usize, to: usize) -> [f64; COSTS.len()] {
        let load = &self.loads[from][at];
        let table = &self.tables[load.table];
        let tables = self.tables_unevenness - table.unevenness() + table.unevenness_after(from, to, 1.0);
        [
            self.regions.unevenness_after(from, to, 1.0),
            tables / self.tables.len().max(1) as f64,
            self.writes.unevenness_after(from, to, load.writes),
            self.reads.unevenness_after(from, to, load.reads),
            self.memstores.unevenness_after(from, to, load.memstore_bytes),
        ]
    }

    /// Whether the server has another copy of the region.
    fn has_copy(&self, server: usize, load: &Load) -> bool {
        let is_copy = |other: &Load| other.copy_of == load.copy_of && other.region != load.region;
        load.copy_of.is_some() && self.loads[server].iter().any(is_copy)
    }

    /// A region that is where another copy of it is, and the server with the fewest regions that has none.
    fn together(&self) -> Option<(usize, usize, usize)> {
        for (from, loads) in self.loads.iter().enumerate() {
            let is_wrong = |load: &Load| load.region.is_secondary() && self.has_copy(from, load);
            for (at, load) in loads.iter().enumerate().filter(|(_, load)| is_wrong(load)) {
                let free = (0..self.servers.len()).filter(|to| !self.has_copy(*to, load) && *to != from);
                if let Some(to) = free.min_by_key(|to| (self.loads[*to].len(), *to)) {
                    return Some((from, at, to));
                }
            }
        }
        None
    }

    fn shift(&mut self, from: usize, at: usize, to: usize) {
        assert!(from != to, "a move from a server to itself closes a region for nothing");
        let load = self.loads[from].swap_remove(at);
        let table = &mut self.tables[load.table];
        self.tables_unevenness -= table.unevenness();
        table.shift(from, to, 1.0);
        self.tables_unevenness += table.unevenness();
        self.regions.shift(from, to, 1.0);
        self.writes.shift(from, to, load.writes);
        self.reads.shift(from, to, load.reads);
        self.memstores.shift(from, to, load.memstore_bytes);
        self.loads[to].push(load);
        let is_counted = |server: usize| self.regions.values[server] == self.loads[server].len() as f64;
        assert!(
            is_counted(from) && is_counted(to),
            "costs are those of the regions that the servers would have"
        );
    }
}

/// Makes a plan of at most `moves_max` moves.
pub(crate) fn plan(
    loads: BTreeMap<ServerName, Vec<Load>>,
    tables_count: usize,
    moves_max: usize,
) -> Decision {
    let mut spread = Spread::new(loads, tables_count);
    let mut decision = Decision { costs_before: spread.costs(), ..Decision::default() };
    let mut total = Decision::total(&decision.costs_before);
    let mut moved: HashMap<RegionInfo, usize> = HashMap::new();
    while decision.moves.len() < moves_max
        && let Some((from, at, to)) = spread.together()
    {
        let region = spread.loads[from][at].region.clone();
        spread.shift(from, at, to);
        let before = moved.insert(region.clone(), to);
        assert!(before.is_none(), "{region} would move twice to part from its copies");
        let (from, to) = (spread.servers[from].clone(), spread.servers[to].clone());
        decision.moves.push(Move { region, from, to });
        total = Decision::total(&spread.costs());
    }
    while decision.moves.len() < moves_max {
        let Some((gain, from, at, to)) = best_move(&spread, total, &moved, &mut decision.steps) else {
            break;
        };
        if gain < GAIN_MIN {
            break;
        }
        let region = spread.loads[from][at].region.clone();
        spread.shift(from, at, to);
        total -= gain;
        let before = moved.insert(region.clone(), to);
        assert!(before.is_none(), "{region} would move twice in one plan");
        let (from, to) = (spread.servers[from].clone(), spread.servers[to].clone());
        decision.moves.push(Move { region, from, to });
    }
    decision.costs_after = spread.costs();
    decision
}

/// The move that gains most, and how much. Only between the busiest servers and the idlest: others gain less.
fn best_move(
    spread: &Spread,
    total: f64,
    moved: &HashMap<RegionInfo, usize>,
    steps: &mut u64,
) -> Option<(f64, usize, usize, usize)> {
    const ENDS: usize = 3; // servers of each kind that are tried
    const REGIONS_MAX: usize = 50; // of a server that are tried
    let mut order: Vec<usize> = (0..spread.servers.len()).collect();
    order.sort_by_key(|at| (spread.loads[*at].len(), *at));
    let mut best: Option<(f64, usize, usize, usize)> = None;
    for &from in order.iter().rev().take(ENDS.max(1)) {
        for &to in order.iter().take(ENDS).filter(|to| **to != from) {
            for at in 0..spread.loads[from].len().min(REGIONS_MAX) {
                let load = &spread.loads[from][at];
                if moved.contains_key(&load.region) || spread.has_copy(to, load) {
                    continue;
                }
                *steps += 1;
                let gain = total - Decision::total(&spread.costs_after(from, at, to));
                if best.is_none_or(|(most, ..)| gain > most) {
                    best = Some((gain, from, at, to));
                }
            }
        }
    }
    best
}

/// Counters of the last look, by encoded name: reads and writes.
pub(crate) type Counters = HashMap<String, (u64, u64)>;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection(pub(crate) String);

/// Looks at the cluster, at each group of servers for itself. `before` are the counters of the last look, and become those of
/// this one. `only`: plans for one group alone.
pub(crate) fn decide(
    core: &MasterState,
    before: &mut Counters,
    only: Option<&str>,
) -> Result<Decision, Rejection> {
    let servers = &core.cluster.servers;
    let (mut online, draining) = (servers.online(), servers.draining());
    online.retain(|server| !draining.contains(server));
    let recovering = servers.recovering();
    if !recovering.is_empty() {
        return Err(Rejection(format!("{} dead servers are being recovered", recovering.len())));
    }
    if online.len() < 2 {
        return Err(Rejection(format!("{} servers may get regions", online.len())));
    }
    let reports = region_loads(servers.reports());
    // The servers of each group; without groups one of all.
    let mut spreads: BTreeMap<String, BTreeMap<ServerName, Vec<Load>>> = BTreeMap::new();
    for server in online {
        let group = core.group_of_server(&server);
        spreads.entry(group).or_default().insert(server, Vec::new());
    }
    let (mut counters, mut regions_count) = (Counters::new(), 0);
    let tables = core.tables.read();
    let enabled = tables.by_name.values().filter(|table| table.state == TableState::Enabled);
    for (table, entry) in enabled.enumerate() {
        // A region that is at a server of another group is moved before (`groups/moves.rs`).
        let group = core.group_of_table(entry.descriptor.name());
        let Some(spread) = spreads.get_mut(&group) else { continue };
        for (region, known) in entry.all() {
            let server = known.server.as_ref().filter(|_| known.state == RegionState::Open);
            let Some(loads) = server.and_then(|server| spread.get_mut(server)) else { continue };
            let (reads, writes, memstore_bytes) =
                reports.get(region.encoded_name()).copied().unwrap_or_default();
            let (reads_before, writes_before) =
                before.get(region.encoded_name()).copied().unwrap_or((reads, writes));
            counters.insert(region.encoded_name().to_string(), (reads, writes));
            loads.push(Load {
                region: region.clone(),
                table,
                copy_of: (entry.descriptor.region_replication() > 1).then(|| region.primary()),
                writes: writes.saturating_sub(writes_before) as f64,
                reads: reads.saturating_sub(reads_before) as f64,
                memstore_bytes: memstore_bytes as f64,
            });
            regions_count += 1;
        }
    }
    let tables_count = tables.by_name.len();
    drop(tables);
    *before = counters;
    let mut decision = Decision::default();
    let wanted = |group: &String| only.is_none_or(|only| only == group);
    for (_, spread) in spreads.into_iter().filter(|(group, spread)| wanted(group) && spread.len() > 1) {
        let moves_max = MOVES_MIN.max(regions_count / MOVES_SHARE).saturating_sub(decision.moves.len());
        decision.add(plan(spread, tables_count, moves_max));
    }
    Ok(decision)
}

/// Reads, writes and bytes in the memstore of each region, by its encoded name.
fn region_loads(reports: Vec<ServerReport>) -> HashMap<String, (u64, u64, u64)> {
    let loads = reports.into_iter().flat_map(|report| report.load.region_loads);
    let named = loads.filter_map(|load| {
        let encoded = halcyon_schema::parse_region_name(&load.region_specifier.value).ok()?.encoded_name?;
        let bytes = u64::from(load.mem_store_size_mb()) << 20;
        Some((encoded, (load.read_requests_count(), load.write_requests_count(), bytes)))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use halcyon_schema::TableName;

    use super::*;

    fn server(number: usize) -> ServerName {
        ServerName::new(format!("s{number}"), 16020, 1)
    }

    /// Regions of each server by table, each without load.
    fn spread(counts: &[&[usize]]) -> BTreeMap<ServerName, Vec<Load>> {
        let mut id = 0;
        let mut load = |table: usize| {
            id += 1;
            let name = TableName::parse(format!("t{table}").as_bytes()).unwrap();
            let region = RegionInfo::new(name, id.to_string().into_bytes().into(), "".into(), id);
            Load { region, table, copy_of: None, writes: 0.0, reads: 0.0, memstore_bytes: 0.0 }
        };
        let mut spread = BTreeMap::new();
        for (number, tables) in counts.iter().enumerate() {
            let mut loads = Vec::new();
            for (table, count) in tables.iter().enumerate() {
                loads.extend((0..*count).map(|_| load(table)));
            }
            spread.insert(server(number), loads);
        }
        spread
    }

    /// Regions of each server after the plan, by table.
    fn after(before: &[&[usize]], moves_max: usize) -> Vec<Vec<usize>> {
        let loads = spread(before);
        let decision = plan(loads.clone(), before[0].len(), moves_max);
        let mut counts: Vec<Vec<usize>> = before.iter().map(|tables| tables.to_vec()).collect();
        for Move { region, from, to } in &decision.moves {
            let number = |name: &ServerName| loads.keys().position(|it| it == name).unwrap();
            let table = loads[from].iter().find(|load| load.region == *region).unwrap().table;
            counts[number(from)][table] -= 1;
            counts[number(to)][table] += 1;
        }
        assert!(Decision::total(&decision.costs_after) <= Decision::total(&decision.costs_before));
        counts
    }

    #[test]
    fn an_empty_server_gets_its_share() {
        assert_eq!(after(&[&[6], &[6], &[0]], 100), [[4], [4], [4]]);
        assert_eq!(after(&[&[10], &[0]], 100), [[5], [5]]);
    }

    #[test]
    fn what_is_even_stays() {
        for counts in [&[&[3usize][..], &[3], &[3]][..], &[&[2], &[1], &[1]], &[&[1], &[0], &[0]]] {
            assert_eq!(plan(spread(counts), 1, 100).moves, [], "{counts:?}");
        }
    }

    #[test]
    fn each_table_is_spread() {
        for counts in after(&[&[4, 0], &[0, 4]], 100) {
            assert_eq!(counts.iter().sum::<usize>(), 4);
        }
        let counts = after(&[&[4, 4], &[0, 0]], 100);
        assert_eq!(counts, [[2, 2], [2, 2]]);
    }

    #[test]
    fn copies_of_a_region_part_and_stay_apart() {
        let mut loads = spread(&[&[0], &[0], &[0]]);
        let name = TableName::parse(b"t").unwrap();
        for id in 1..=3 {
            let region = RegionInfo::new(name.clone(), id.to_string().into_bytes().into(), "".into(), id);
            for copy in std::iter::once(region.clone()).chain(region.secondaries(2)) {
                let copy_of = Some(region.clone());
                let (writes, reads, memstore_bytes) = (0.0, 0.0, 0.0);
                let load = Load { region: copy, table: 0, copy_of, writes, reads, memstore_bytes };
                loads.get_mut(&server(0)).unwrap().push(load);
            }
        }
        let decision = plan(loads.clone(), 1, 100);
        for Move { region, from, to } in &decision.moves {
            let at = loads[from].iter().position(|load| load.region == *region).unwrap();
            let load = loads.get_mut(from).unwrap().remove(at);
            loads.get_mut(to).unwrap().push(load);
        }
        for (server, of_server) in &loads {
            assert_eq!(of_server.len(), 2, "{server}");
            assert!(of_server[0].copy_of != of_server[1].copy_of, "{server}: {of_server:?}");
        }
        assert_eq!(plan(loads, 1, 100).moves, []);
    }

    #[test]
    fn a_run_is_limited() {
        let decision = plan(spread(&[&[100], &[0]]), 1, 7);
        assert_eq!(decision.moves.len(), 7);
        assert!(decision.steps > 0);
        assert!(Decision::text(&decision.costs_before).contains("regions : (multiplier=500.0"));
    }

    #[test]
    fn busy_regions_part() {
        let mut loads = spread(&[&[2], &[2]]);
        for load in loads.get_mut(&server(0)).unwrap() {
            load.writes = 1000.0;
        }
        let decision = plan(loads, 1, 100);
        // Regions are spread already: exchanging two is no single move that gains.
        assert!(decision.moves.len() <= 2, "{:?}", decision.moves);
        let mut loads = spread(&[&[3], &[2]]);
        loads.get_mut(&server(0)).unwrap().iter_mut().take(2).for_each(|load| load.writes = 1000.0);
        let decision = plan(loads, 1, 100);
        assert_eq!(decision.moves.len(), 1, "one of the two busy ones goes");
    }

    /// Servers and regions as a seed gives them: no plan makes the cluster less even, and none is longer than it may be.
    #[test]
    fn plans_never_do_harm() {
        halcyon_testkit::for_each_seed(
            "-p halcyon-master --lib balancer::tests::plans_never_do_harm",
            0..200,
            |seed| {
                let random = |at: u64| {
                    (seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at * 1_442_695)) >> 33
                };
                let servers = 2 + random(1) as usize % 5;
                let counts: Vec<Vec<usize>> = (0..servers)
                    .map(|server| {
                        (0..2).map(|table| random(10 + 2 * server as u64 + table) as usize % 12).collect()
                    })
                    .collect();
                let counts: Vec<&[usize]> = counts.iter().map(Vec::as_slice).collect();
                let sum = |tables: &[usize]| tables.iter().sum::<usize>();
                let end = after(&counts, 500);
                let (most, least) = (end.iter().map(|it| sum(it)).max(), end.iter().map(|it| sum(it)).min());
                assert!(most.unwrap() - least.unwrap() <= 1, "seed {seed}: {counts:?} became {end:?}");
            },
        );
    }
}
