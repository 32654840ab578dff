//! Compares what tables use with what they may, from time to time (HBase: `QuotaObserverChore`,
//! `SpaceQuotaRefresherChore`).
//!
//! A table that exceeds its own quota follows the policy of that quota. One that does not, in a namespace that exceeds its
//! quota, follows the policy of the namespace. What a table is judged by is column `u:p` of its row, which region servers
//! read. A table is not judged before the size of each of its regions is known. The size of a region that no server reports is
//! forgotten after a time, and its table then exceeds nothing, unless its policy is to be disabled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Cell, Result};
use halcyon_contract::{QUOTA_SNAPSHOT_QUALIFIER, QUOTA_USAGE_FAMILY, QuotaSubject, QuotaTable};
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, TableName};
use pb::SpaceViolationPolicy;
use prost::Message;
use tracing::{info, warn};

use super::numbers::count_quotas;
use super::snapshots::{self, SnapshotSizes};
use super::{delete_snapshot, exists, read, reload, state_of, tables_by_namespace, write};
use crate::chore::{Chore, Pauses};
use crate::procedure::{DisableTable, EnableTable, Engine, Procedure, Submission};
use crate::state::{MasterState, TableState};

type Snapshots<K> = BTreeMap<K, pb::SpaceQuotaSnapshot>;

/// Bytes of a region's store files, and when a server said so, by the monotonic clock.
#[derive(Clone, Copy)]
struct Reported {
    bytes: u64,
    at: Duration,
}

/// What was seen last.
#[derive(Default)]
pub(crate) struct Observations {
    /// Sizes by table and region. Those of closed regions stay for a while.
    sizes: BTreeMap<TableName, BTreeMap<String, Reported>>,
    /// Tables of which sizes were forgotten by age, until all are known again.
    expired: BTreeSet<TableName>,
    /// What snapshots hold, and when that was looked at.
    snapshots: Option<(SnapshotSizes, Duration)>,
    /// Tables with quotas of their own.
    pub(super) tables: Snapshots<TableName>,
    pub(super) namespaces: Snapshots<String>,
    pub(super) quotas_count: usize,
    /// Regions of system tables whose size was reported last.
    system_regions_count: usize,
}

impl Observations {
    /// As HBase counts them: those of system tables, too.
    pub(super) fn regions_count(&self) -> usize {
        self.system_regions_count + self.sizes.values().map(BTreeMap::len).sum::<usize>()
    }

    pub(super) fn table_sizes(&self) -> BTreeMap<TableName, u64> {
        self.sizes.iter().map(|(table, regions)| (table.clone(), sum(regions))).collect()
    }

    pub(super) fn forget_table(&mut self, table: &TableName) {
        self.sizes.remove(table);
        self.expired.remove(table);
        self.tables.remove(table);
    }

    /// Takes new sizes, and drops those of regions that are gone.
    fn note_sizes(
        &mut self,
        reported: &[(RegionInfo, u64)],
        tables: &BTreeMap<TableName, BTreeSet<String>>,
        at: Duration,
    ) {
        self.system_regions_count = reported.iter().filter(|(region, _)| region.table().is_system()).count();
        for (region, bytes) in reported {
            let of_table = self.sizes.entry(region.table().clone()).or_default();
            of_table.insert(region.encoded_name().to_string(), Reported { bytes: *bytes, at });
        }
        self.sizes.retain(|table, regions| {
            let Some(live) = tables.get(table) else { return false };
            regions.retain(|region, _| live.contains(region));
            true
        });
    }

    /// Forgets what was said before `oldest`, but not of tables that `stays` names.
    fn forget_old(&mut self, oldest: Duration, stays: impl Fn(&TableName) -> bool) {
        for (table, regions) in &mut self.sizes {
            let known = regions.len();
            if !stays(table) {
                regions.retain(|_, reported| reported.at >= oldest);
            }
            if regions.len() < known {
                self.expired.insert(table.clone());
            }
        }
    }

    /// Tables that exceeded a quota by sizes that were forgotten since: they exceed it no longer.
    fn released(&mut self, quotas: &QuotaTable, known: &BTreeMap<TableName, u64>) -> Snapshots<TableName> {
        self.expired.retain(|table| !known.contains_key(table));
        let exceeded = self.expired.iter().filter_map(|table| {
            let snapshot = quotas.snapshots.get(table).filter(|snapshot| is_exceeded(snapshot))?;
            let status = pb::SpaceQuotaStatus { violation_policy: None, in_violation: Some(false) };
            Some((table.clone(), pb::SpaceQuotaSnapshot { quota_status: Some(status), ..*snapshot }))
        });
        exceeded.collect()
    }

    /// Bytes of each table of which the size of every region is known.
    fn known_sizes(&self, tables: &BTreeMap<TableName, BTreeSet<String>>) -> BTreeMap<TableName, u64> {
        let known = tables.iter().filter_map(|(table, regions)| {
            let sizes = self.sizes.get(table)?;
            (sizes.len() == regions.len()).then(|| (table.clone(), sum(sizes)))
        });
        known.collect()
    }
}

fn sum(regions: &BTreeMap<String, Reported>) -> u64 {
    regions.values().map(|reported| reported.bytes).sum()
}

/// What the sizes say.
#[derive(Debug, Default, PartialEq)]
struct Verdict {
    /// Tables with quotas of their own, by those.
    tables: Snapshots<TableName>,
    namespaces: Snapshots<String>,
    /// What each table follows.
    followed: Snapshots<TableName>,
}

/// `snapshots` are bytes that only snapshots of a table hold.
fn judge(
    quotas: &QuotaTable,
    sizes: &BTreeMap<TableName, u64>,
    snapshots: &BTreeMap<TableName, u64>,
    tables: &BTreeMap<String, BTreeSet<TableName>>,
) -> Verdict {
    let mut verdict = Verdict::default();
    for (subject, quota) in &quotas.quotas {
        let Some(space) = &quota.space else { continue };
        match subject {
            QuotaSubject::Table(table) => {
                if let Some(usage) = sizes.get(table) {
                    let usage = usage + snapshots.get(table).unwrap_or(&0);
                    verdict.tables.insert(table.clone(), snapshot(usage, space));
                }
            }
            QuotaSubject::Namespace(namespace) => {
                let members = tables.get(namespace).into_iter().flatten();
                // A table that is not known yet may only add to it.
                let of = |table| sizes.get(table).unwrap_or(&0) + snapshots.get(table).unwrap_or(&0);
                let usage: u64 = members.map(of).sum();
                verdict.namespaces.insert(namespace.clone(), snapshot(usage, space));
            }
            _ => {}
        }
    }
    for (namespace, members) in tables {
        let of_namespace = verdict.namespaces.get(namespace);
        for table in members {
            let own = verdict.tables.get(table);
            let followed = own.filter(|own| is_exceeded(own));
            let followed = followed.or(of_namespace.filter(|it| is_exceeded(it))).or(own).or(of_namespace);
            if let Some(followed) = followed {
                verdict.followed.insert(table.clone(), *followed);
            }
        }
    }
    verdict
}

fn snapshot(usage: u64, quota: &pb::SpaceQuota) -> pb::SpaceQuotaSnapshot {
    let is_exceeded = usage > quota.soft_limit();
    let status = pb::SpaceQuotaStatus {
        violation_policy: quota.violation_policy.filter(|_| is_exceeded),
        in_violation: Some(is_exceeded),
    };
    pb::SpaceQuotaSnapshot {
        quota_status: Some(status),
        quota_usage: Some(usage),
        quota_limit: quota.soft_limit,
    }
}

pub(super) fn is_exceeded(snapshot: &pb::SpaceQuotaSnapshot) -> bool {
    snapshot.quota_status.as_ref().is_some_and(|status| status.in_violation())
}

fn is_disabling(snapshot: Option<&pb::SpaceQuotaSnapshot>) -> bool {
    let status = snapshot.and_then(|snapshot| snapshot.quota_status.as_ref());
    status.is_some_and(|it| it.in_violation() && it.violation_policy() == SpaceViolationPolicy::Disable)
}

/// Tables with a space quota of their own or of their namespace.
fn with_space(quotas: &QuotaTable, tables: &BTreeMap<String, BTreeSet<TableName>>) -> BTreeSet<TableName> {
    let mut limited = BTreeSet::new();
    for (subject, _) in quotas.quotas.iter().filter(|(_, quota)| quota.space.is_some()) {
        match subject {
            QuotaSubject::Table(table) => drop(limited.insert(table.clone())),
            QuotaSubject::Namespace(name) => limited.extend(tables.get(name).into_iter().flatten().cloned()),
            _ => {}
        }
    }
    limited
}

/// Tables that follow no space quota any more when that of a subject is gone.
pub(super) fn without_quota(table: &QuotaTable, subject: &QuotaSubject) -> Vec<TableName> {
    let has_space = |subject: &QuotaSubject| table.quotas.get(subject).is_some_and(|it| it.space.is_some());
    let mut tables = table.snapshots.keys();
    match subject {
        QuotaSubject::Table(name) => {
            let namespace = QuotaSubject::Namespace(name.namespace().to_string());
            tables.find(|it| *it == name && !has_space(&namespace)).cloned().into_iter().collect()
        }
        QuotaSubject::Namespace(namespace) => tables
            .filter(|name| name.namespace() == namespace && !has_space(&QuotaSubject::Table((*name).clone())))
            .cloned()
            .collect(),
        _ => Vec::new(),
    }
}

/// Enables the tables that a quota which is gone had disabled. `table` is what was there before.
pub(super) fn release(core: &MasterState, table: &QuotaTable, subject: &QuotaSubject) {
    let mut observations = core.quotas.observations.lock();
    match subject {
        QuotaSubject::Table(name) => drop(observations.tables.remove(name)),
        QuotaSubject::Namespace(namespace) => drop(observations.namespaces.remove(namespace)),
        _ => {}
    }
    drop(observations);
    let released = without_quota(table, subject);
    let released = released.into_iter().filter(|name| is_disabling(table.snapshots.get(name)));
    core.quotas.to_enable.lock().extend(released);
}

/// The thread that looks. *Thread safety*: all methods from any thread.
pub(crate) struct Observer(Chore);

struct Shared {
    core: Arc<MasterState>,
    engine: Arc<Engine>,
    pauses: Arc<Pauses>,
}

impl Observer {
    /// No thread runs while quotas are off.
    pub(crate) fn start(core: Arc<MasterState>, engine: Arc<Engine>) -> Result<Observer> {
        if !core.settings.quotas.enabled {
            return Ok(Observer(Chore::none()));
        }
        let shared = Shared { core, engine, pauses: Arc::default() };
        Ok(Observer(Chore::start("quota-observer", shared.pauses.clone(), move || shared.work())?))
    }

    pub(crate) fn stop(&self) {
        self.0.stop();
    }
}

impl Shared {
    fn work(&self) {
        while self.pauses.pause(Some(self.core.settings.quotas.observer_period)) {
            let begun_ns = self.now_ns();
            match self.look() {
                Ok(()) => self.core.quotas.observer_times.record(self.now_ns() - begun_ns, 1),
                Err(error) => warn!(%error, "space quotas could not be compared with what tables use"),
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.core.env.clock.monotonic_ns()
    }

    /// Compares once, and has tables follow the outcome. *Blocking*.
    fn look(&self) -> Result<()> {
        let core = &*self.core;
        self.enable_released();
        let Some(servers) = core.cluster.quotas.as_ref().filter(|_| exists(core)) else { return Ok(()) };
        let reported = servers.region_sizes();
        let live = live_regions(core);
        let now = Duration::from_nanos(core.env.clock.monotonic_ns());
        let snapshots = self.snapshot_sizes(now).unwrap_or_else(|error| {
            warn!(%error, "the sizes of snapshots are those of the last look");
            core.quotas.observations.lock().snapshots.clone().unwrap_or_default().0
        });
        let changing = core.quotas.changing.lock();
        let quotas = read(core)?;
        let verdict = {
            let mut observations = core.quotas.observations.lock();
            observations.note_sizes(&reported, &live, now);
            observations.forget_old(now.saturating_sub(core.settings.quotas.report_keep), |table| {
                is_disabling(quotas.snapshots.get(table))
            });
            let known = observations.known_sizes(&live);
            let tables = tables_by_namespace(core);
            let mut verdict = judge(&quotas, &known, &snapshots::by_table(&snapshots), &tables);
            for (table, snapshot) in observations.released(&quotas, &known) {
                verdict.followed.entry(table).or_insert(snapshot);
            }
            observations.tables.clone_from(&verdict.tables);
            observations.namespaces.clone_from(&verdict.namespaces);
            observations.quotas_count = count_quotas(&quotas, &tables);
            verdict
        };
        let timestamp = core.next_meta_timestamp();
        let changed =
            verdict.followed.iter().filter(|(table, new)| quotas.snapshots.get(*table) != Some(*new));
        let put = |(table, new): (&TableName, &pb::SpaceQuotaSnapshot)| {
            let row = QuotaSubject::Table(table.clone()).row();
            Cell::put(&row, QUOTA_USAGE_FAMILY, QUOTA_SNAPSHOT_QUALIFIER, timestamp, &new.encode_to_vec())
        };
        let mut cells: Vec<Cell> = changed.map(put).collect();
        cells.extend(snapshots::changes(&quotas, &snapshots, timestamp));
        let gone = quotas.snapshots.keys().filter(|table| !live.contains_key(*table));
        cells.extend(gone.map(|table| delete_snapshot(table, timestamp)));
        if !cells.is_empty() {
            write(core, cells)?;
        }
        drop(changing);
        let is_news = |table: &TableName| {
            let (old, new) = (quotas.snapshots.get(table), verdict.followed.get(table));
            old.map(|old| old.quota_status) != new.map(|new| new.quota_status)
        };
        for table in verdict.followed.keys().filter(|table| is_news(table)) {
            info!(%table, state = ?verdict.followed[table], "a table follows another space quota");
        }
        self.follow(&quotas, &verdict);
        if quotas.snapshots != verdict.followed {
            reload(core);
        }
        Ok(())
    }

    /// Bytes of snapshots of tables with space quotas, as of the last look that was due. *Blocking*.
    fn snapshot_sizes(&self, now: Duration) -> Result<SnapshotSizes> {
        let core = &*self.core;
        let last = core.quotas.observations.lock().snapshots.clone();
        if let Some((sizes, at)) = last
            && now < at + core.settings.quotas.snapshot_period
        {
            return Ok(sizes);
        }
        let begun_ns = self.now_ns();
        let sizes = snapshots::sizes(core, &with_space(&read(core)?, &tables_by_namespace(core)))?;
        core.quotas.snapshot_times.record(self.now_ns() - begun_ns, 1);
        core.quotas.observations.lock().snapshots = Some((sizes.clone(), now));
        Ok(sizes)
    }

    /// Disables tables whose policy says so, and enables those that it says so of no more.
    fn follow(&self, quotas: &QuotaTable, verdict: &Verdict) {
        for (table, new) in &verdict.followed {
            let (was, is) = (is_disabling(quotas.snapshots.get(table)), is_disabling(Some(new)));
            let state = state_of(&self.core, table);
            let order: Box<dyn Procedure> = match (was, is, state) {
                (_, true, Some(TableState::Enabled)) => Box::new(DisableTable::new(table.clone())),
                (true, false, Some(TableState::Disabled)) => Box::new(EnableTable { table: table.clone() }),
                _ => continue,
            };
            self.engine.propose(format!("follow the quota of {table}"), order);
        }
    }

    fn enable_released(&self) {
        // A statement of its own: the loop takes the lock again.
        let released = std::mem::take(&mut *self.core.quotas.to_enable.lock());
        for table in released {
            match state_of(&self.core, &table) {
                Some(TableState::Disabled) => {
                    drop(self.engine.submit(Box::new(EnableTable { table }), Submission::default()));
                }
                // The quota went while it had the table disabled.
                Some(TableState::Disabling) => drop(self.core.quotas.to_enable.lock().insert(table)),
                _ => {}
            }
        }
    }
}

fn live_regions(core: &MasterState) -> BTreeMap<TableName, BTreeSet<String>> {
    let tables = core.tables.read();
    let of_users = tables.by_name.iter().filter(|(table, _)| !table.is_system());
    let names = |regions: Vec<RegionInfo>| regions.iter().map(|it| it.encoded_name().to_string()).collect();
    of_users.map(|(table, entry)| (table.clone(), names(entry.live_regions()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> TableName {
        TableName::parse(name.as_bytes()).unwrap()
    }

    fn space(limit: u64, policy: SpaceViolationPolicy) -> pb::Quotas {
        let policy = Some(policy as i32);
        let space = pb::SpaceQuota { soft_limit: Some(limit), violation_policy: policy, remove: None };
        pb::Quotas { space: Some(space), ..Default::default() }
    }

    fn policy(snapshot: &pb::SpaceQuotaSnapshot) -> Option<SpaceViolationPolicy> {
        is_exceeded(snapshot).then(|| snapshot.quota_status.unwrap().violation_policy())
    }

    #[test]
    fn a_table_follows_its_own_quota_before_that_of_its_namespace() {
        use SpaceViolationPolicy::{Disable, NoInserts};
        let namespace = QuotaSubject::Namespace("ns".to_string());
        let own = QuotaSubject::Table(table("ns:own"));
        let quotas = [(namespace, space(100, Disable)), (own, space(50, NoInserts))].into();
        let quotas = QuotaTable { quotas, ..QuotaTable::default() };
        let members = [("ns".to_string(), [table("ns:other"), table("ns:own")].into())].into();
        let with_snapshots = |own: u64, other: u64, snapshots: u64| {
            let sizes = [(table("ns:own"), own), (table("ns:other"), other)].into();
            let snapshots = [(table("ns:own"), snapshots)].into();
            let verdict = judge(&quotas, &sizes, &snapshots, &members);
            (policy(&verdict.followed[&table("ns:own")]), policy(&verdict.followed[&table("ns:other")]))
        };
        let followed = |own: u64, other: u64| with_snapshots(own, other, 0);
        assert_eq!(followed(50, 50), (None, None), "limits may be reached");
        assert_eq!(with_snapshots(50, 49, 1), (Some(NoInserts), None));
        assert_eq!(with_snapshots(40, 51, 10), (Some(Disable), Some(Disable)));
        assert_eq!(followed(51, 10), (Some(NoInserts), None));
        assert_eq!(followed(10, 91), (Some(Disable), Some(Disable)));
        assert_eq!(followed(60, 91), (Some(NoInserts), Some(Disable)));
        assert_eq!(count_quotas(&quotas, &members), 2);
        assert_eq!(count_quotas(&quotas, &[("ns".to_string(), [table("ns:other")].into())].into()), 1);
        assert_eq!(count_quotas(&quotas, &[("ns".to_string(), BTreeSet::new())].into()), 0);
    }

    #[test]
    fn a_table_is_judged_when_all_its_regions_are_known() {
        let regions = [b"".as_slice(), b"m"]
            .map(|start| RegionInfo::new(table("t"), start.to_vec().into(), bytes::Bytes::new(), 1));
        let live = [(table("t"), regions.iter().map(|it| it.encoded_name().to_string()).collect())].into();
        let mut observations = Observations::default();
        let mut now = Duration::ZERO;
        let mut note = |observations: &mut Observations, reported: &[(RegionInfo, u64)], live: &_| {
            now += Duration::from_secs(1);
            observations.note_sizes(reported, live, now);
        };
        note(&mut observations, &[(regions[0].clone(), 5)], &live);
        assert!(observations.known_sizes(&live).is_empty());
        note(&mut observations, &[(regions[1].clone(), 6)], &live);
        assert_eq!(observations.known_sizes(&live)[&table("t")], 11);
        note(&mut observations, &[], &live);
        assert_eq!(observations.known_sizes(&live)[&table("t")], 11, "closed regions keep their sizes");
        let merged = [(table("t"), [regions[0].encoded_name().to_string()].into())].into();
        note(&mut observations, &[], &merged);
        assert_eq!(observations.known_sizes(&merged)[&table("t")], 5);
        note(&mut observations, &[], &BTreeMap::new());
        assert!(observations.table_sizes().is_empty());
    }

    #[test]
    fn a_table_whose_sizes_are_too_old_exceeds_nothing() {
        let region = RegionInfo::new(table("t"), bytes::Bytes::new(), bytes::Bytes::new(), 1);
        let live = [(table("t"), [region.encoded_name().to_string()].into())].into();
        let limit = pb::SpaceQuota {
            soft_limit: Some(1),
            violation_policy: Some(SpaceViolationPolicy::NoWrites as i32),
            remove: None,
        };
        let exceeded = snapshot(5, &limit);
        let quotas = QuotaTable { snapshots: [(table("t"), exceeded)].into(), ..QuotaTable::default() };
        let mut observations = Observations::default();
        let at = Duration::from_secs(100);
        observations.note_sizes(&[(region.clone(), 5)], &live, at);
        observations.forget_old(at, |_| false);
        let known = observations.known_sizes(&live);
        assert_eq!((known.len(), observations.released(&quotas, &known).len()), (1, 0));
        let later = at + Duration::from_secs(1);
        observations.forget_old(later, |_| true);
        assert_eq!(
            observations.known_sizes(&live).len(),
            1,
            "a table that the quota disabled keeps its size"
        );
        observations.forget_old(later, |_| false);
        let known = observations.known_sizes(&live);
        let released = observations.released(&quotas, &known);
        assert!(known.is_empty() && !is_exceeded(&released[&table("t")]));
        assert_eq!(released[&table("t")].quota_usage, Some(5));
        observations.note_sizes(&[(region, 5)], &live, later);
        let known = observations.known_sizes(&live);
        assert!(observations.released(&quotas, &known).is_empty(), "it is judged again");
    }
}
