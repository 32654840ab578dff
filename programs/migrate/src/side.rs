//! One of the two clusters.

use std::time::Duration;

use halcyon_client::{
    Action, Admin, Cell, Cluster, ClusterOptions, Lock, Mutation, MutationType, Peer, TableDescriptor,
};
use halcyon_rpc::Codec;
use halcyon_schema::{ClusterId, ClusterUuid, FamilyDescriptor, TableName};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::args::Address;

/// The peer at the source, and the one at the target.
pub(crate) const PEER: &str = "halcyon_migrate";
pub(crate) const PEER_BACK: &str = "halcyon_migrate_back";
/// The table of marks, at both sides (`marks.rs`).
pub(crate) const MARKS: &str = "halcyon_migrate";
pub(crate) const SCOPE: &str = "REPLICATION_SCOPE";
const READ_ONLY: &str = "READONLY";

/// A server that starts again answers within this time.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(180);
/// A scan of a busy server may take long until its first row.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// When it is told first what a change of a table waits for, and then.
const HANGS_AFTER: Duration = Duration::from_secs(1);
const HANGS_PERIOD: Duration = Duration::from_secs(10);
/// So long tables are tried to be opened again for writes after an error, with these pauses.
const REOPEN_TIME_MAX: Duration = Duration::from_secs(600);
const REOPEN_PAUSE: Duration = Duration::from_secs(2);
/// Clusters that have an edit (`Mutation.CONSUMED_CLUSTER_IDS` of HBase).
const CLUSTER_IDS: &str = "_cs.id";

/// A table for which something failed, and why.
type Failed = (TableName, String);

/// A cluster, and how to talk to it.
#[derive(Clone)]
pub(crate) struct Side {
    /// `source` or `target`.
    pub(crate) name: &'static str,
    pub(crate) address: Address,
    pub(crate) cluster: Cluster,
    pub(crate) admin: Admin,
    pub(crate) uuid: ClusterUuid,
}

impl Side {
    pub(crate) async fn connect(
        name: &'static str,
        address: Address,
        connections: usize,
    ) -> Result<Side, String> {
        let mut options = ClusterOptions {
            connections_per_server: connections,
            operation_timeout: OPERATION_TIMEOUT,
            call_timeout: CALL_TIMEOUT,
            ..ClusterOptions::default()
        };
        options.connect.codec = Some(Codec::KeyValueWithTags);
        let absent = |error| format!("cannot reach the {name} {address}: {error}");
        let cluster = Cluster::connect(address.cluster().clone(), options).await.map_err(absent)?;
        let admin = cluster.admin().await.map_err(absent)?;
        let metrics = admin.cluster_metrics().await.map_err(absent)?;
        let id = metrics.cluster_id.unwrap_or_default();
        let uuid = ClusterId(id.clone()).uuid();
        let uuid =
            uuid.ok_or_else(|| format!("the {name} {address} has the cluster id '{id}', which is no UUID"))?;
        let version = metrics.hbase_version.unwrap_or_else(|| "unknown".to_string());
        println!("{name}: {address}, version {version}, {} region servers", metrics.servers.len());
        Ok(Side { name, address, cluster, admin, uuid })
    }

    /// An error with the side's name before it.
    pub(crate) fn failed(&self, what: &str, error: impl std::fmt::Display) -> String {
        format!("{} {}: {what}: {error}", self.name, self.address)
    }

    pub(crate) async fn descriptor(&self, table: &TableName) -> Result<Option<TableDescriptor>, String> {
        let found = self.admin.descriptor(table).await;
        found.map_err(|error| self.failed(&format!("descriptor of {table}"), error))
    }

    pub(crate) async fn described(&self, table: &TableName) -> Result<TableDescriptor, String> {
        let found = self.descriptor(table).await?;
        found.ok_or_else(|| self.failed("descriptor", format!("there is no table {table}")))
    }

    /// Changes a table. Does nothing if it is so already.
    pub(crate) async fn alter(
        &self,
        table: &TableName,
        change: impl FnOnce(TableDescriptor) -> TableDescriptor,
    ) -> Result<bool, String> {
        let before = self.described(table).await?;
        let after = change(before.clone());
        if after == before {
            return Ok(false);
        }
        let altered = self.admin.modify_table(&after).await;
        altered.map_err(|error| self.failed(&format!("alter of {table}"), error))?;
        Ok(true)
    }

    /// Closes tables for clients' writes, or opens them. All at once, since their pauses add up otherwise. Dropping the future
    /// leaves nothing that would be sent later. `always`: also tables that say that they are so. A run that died may have changed
    /// the descriptor only, and the request of another one may be on its way.
    pub(crate) async fn set_read_only(
        &self,
        tables: &[TableName],
        is_read_only: bool,
        always: bool,
    ) -> Result<(), String> {
        let failed = self.set_each(tables, is_read_only, always).await;
        if failed.is_empty() { Ok(()) } else { Err(joined(&failed)) }
    }

    /// Tables that it failed for. An error at one table does not keep the others from being opened.
    async fn set_each(&self, tables: &[TableName], is_read_only: bool, always: bool) -> Vec<Failed> {
        let value = if is_read_only { "true" } else { "false" };
        let mut altering = JoinSet::new();
        for table in tables {
            let (side, table) = (self.clone(), table.clone());
            altering.spawn(async move {
                let altered = async {
                    let found = side.described(&table).await?;
                    if found.read_only() == is_read_only && !always {
                        return Ok(());
                    }
                    let altered = side.admin.modify_table(&found.with(READ_ONLY, value)).await;
                    altered.map_err(|error| {
                        side.failed(&format!("alter of {table}, READONLY => {value}"), error)
                    })
                };
                altered.await.err().map(|why| (table, why))
            });
        }
        let mut failed = Vec::new();
        while let Some(one) = altering.join_next().await {
            match one {
                Ok(of_table) => failed.extend(of_table),
                // It does not say which table.
                Err(error) => {
                    return tables
                        .iter()
                        .map(|table| (table.clone(), self.failed("alter", &error)))
                        .collect();
                }
            }
        }
        failed
    }

    /// Opens tables for writes, also if they are: a request that closes them may be on its way. The master does one change of a
    /// table after the other. What such a change waits for is told.
    ///
    /// Clients wait for it, so an error is told and not the end, as long as it may pass: a master that was lost has a successor soon.
    pub(crate) async fn reopen_for_writes(&self, tables: &[TableName]) -> Result<(), String> {
        let open = async |left: Vec<TableName>| {
            let mut reopening = std::pin::pin!(self.set_each(&left, false, true));
            let mut pause = HANGS_AFTER;
            loop {
                match tokio::time::timeout(pause, &mut reopening).await {
                    Ok(failed) => return failed,
                    Err(_) => println!(
                        "{}: tables are not opened for writes yet{}",
                        self.name,
                        self.hangs(&left).await
                    ),
                }
                pause = HANGS_PERIOD;
            }
        };
        let told =
            |why: &str| println!("{}: tables are not opened for writes yet, and will be: {why}", self.name);
        until_done(tables, open, told, REOPEN_PAUSE, REOPEN_TIME_MAX).await
    }

    /// What changes of tables wait for, for a person.
    async fn hangs(&self, tables: &[TableName]) -> String {
        let metrics = match self.admin.cluster_metrics().await {
            Ok(metrics) => metrics,
            Err(error) => return format!("; {error}"),
        };
        let ours = metrics.regions_in_transition.iter().filter(|one| tables.contains(one.region.table()));
        let regions: Vec<String> = ours
            .map(|one| format!("{} of {} is {}", one.region.encoded_name(), one.region.table(), one.state))
            .collect();
        if !regions.is_empty() {
            return format!("; regions in transition: {}", regions.join(", "));
        }
        let Ok(locks) = self.admin.locks().await else { return String::new() };
        let is_ours = |lock: &&Lock| tables.iter().any(|table| table.to_string() == lock.resource_name);
        let held = locks.iter().filter(is_ours).filter_map(|lock| {
            let owner = lock.owner.as_ref()?;
            Some(format!("procedure {} ({}) has the lock of {}", owner.id, owner.class, lock.resource_name))
        });
        let held: Vec<String> = held.collect();
        if held.is_empty() { String::new() } else { format!("; {}", held.join(", ")) }
    }

    pub(crate) async fn peer(&self, id: &str) -> Result<Option<Peer>, String> {
        let peers = self.admin.peers().await.map_err(|error| self.failed("list of peers", error))?;
        Ok(peers.into_iter().find(|peer| peer.id == id))
    }

    pub(crate) async fn remove_peer(&self, id: &str) -> Result<(), String> {
        if self.peer(id).await?.is_none() {
            return Ok(());
        }
        let removed = self.admin.remove_peer(id).await;
        removed.map_err(|error| self.failed(&format!("removal of the peer {id}"), error))?;
        println!("{}: the peer {id} is removed", self.name);
        Ok(())
    }
}

/// Does something to tables, and again to those that it failed for, until `time_max` has passed.
async fn until_done(
    tables: &[TableName],
    work: impl AsyncFn(Vec<TableName>) -> Vec<Failed>,
    told: impl Fn(&str),
    pause: Duration,
    time_max: Duration,
) -> Result<(), String> {
    let began = Instant::now();
    let mut left = tables.to_vec();
    loop {
        let failed = work(left).await;
        if failed.is_empty() {
            return Ok(());
        }
        let why = joined(&failed);
        if began.elapsed() + pause > time_max {
            return Err(why);
        }
        told(&why);
        tokio::time::sleep(pause).await;
        left = failed.into_iter().map(|(table, _)| table).collect();
    }
}

fn joined(failed: &[Failed]) -> String {
    failed.iter().map(|(_, why)| why.as_str()).collect::<Vec<_>>().join("; ")
}

/// A family whose edits go to peers, or not.
pub(crate) fn with_scope(family: &FamilyDescriptor, scope: i32) -> FamilyDescriptor {
    match family.scope() == scope {
        true => family.clone(),
        false => family.clone().with(SCOPE, scope.to_string()),
    }
}

/// The mutations that write cells as they are, for one side. They name the cluster that has them already, so that the
/// peer of the way back does not send them there.
pub(crate) fn mutations(cells: Vec<Cell>, has_them: ClusterUuid, actions: &mut Vec<Action>) {
    let mut cells = cells.into_iter().peekable();
    while let Some(first) = cells.next() {
        let kind = kind_of(&first);
        let row = first.bytes().slice_ref(first.row());
        let mut run = vec![first];
        while let Some(next) = cells.next_if(|next| next.row() == &row[..] && kind_of(next) == kind) {
            run.push(next);
        }
        let (name, value) = cluster_ids(has_them);
        actions.push(Action::Mutate(Mutation::new(kind, row, run).with_attribute(name, value)));
    }
}

fn kind_of(cell: &Cell) -> MutationType {
    match cell.cell_type().is_delete() {
        true => MutationType::Delete,
        false => MutationType::Put,
    }
}

/// `int32 count | int64 most significant | int64 least significant`
fn cluster_ids(id: ClusterUuid) -> (&'static str, Vec<u8>) {
    let mut value = 1u32.to_be_bytes().to_vec();
    value.extend_from_slice(&id.most.to_be_bytes());
    value.extend_from_slice(&id.least.to_be_bytes());
    (CLUSTER_IDS, value)
}

#[cfg(test)]
mod tests {
    use halcyon_client::CellType;

    use super::*;

    /// The master was lost after the source was closed for writes. The first error ended the run, and the source stayed closed although
    /// the next master was there soon.
    #[tokio::test]
    async fn what_failed_for_a_table_is_done_again_for_it_alone() {
        let table = |name: &str| TableName::parse(name.as_bytes()).unwrap();
        let (tables, calls) = ([table("a"), table("b")], std::sync::Mutex::new(Vec::new()));
        let fails_until = |good: usize| {
            let calls = &calls;
            async move |left: Vec<TableName>| {
                calls.lock().unwrap().push(left.clone());
                let fails = calls.lock().unwrap().len() < good;
                let last = left.last().filter(|_| fails).cloned();
                last.map(|table| (table, "no master".to_string())).into_iter().collect::<Vec<_>>()
            }
        };
        let (pause, long) = (Duration::from_millis(1), Duration::from_secs(60));
        until_done(&tables, fails_until(3), |_| {}, pause, long).await.unwrap();
        let b = vec![tables[1].clone()];
        assert_eq!(*calls.lock().unwrap(), [tables.to_vec(), b.clone(), b]);
        let ends = until_done(&tables, fails_until(usize::MAX), |_| {}, pause, pause * 20).await;
        assert_eq!(ends.unwrap_err(), "no master");
    }

    #[test]
    fn runs_of_a_row_and_kind_are_mutations() {
        let cell = |row: &str, kind| Cell::build(row.as_bytes(), b"f", b"q", 1, kind, b"", b"", 0);
        let cells = vec![
            cell("a", CellType::DeleteFamily),
            cell("a", CellType::DeleteColumn),
            cell("a", CellType::Put),
            cell("b", CellType::Put),
        ];
        let mut actions = Vec::new();
        mutations(cells, ClusterUuid { most: 1, least: 2 }, &mut actions);
        let shown: Vec<_> = actions
            .iter()
            .map(|action| match action {
                Action::Mutate(one) => (one.mutation_type(), one.row().to_vec(), one.cells().len()),
                _ => unreachable!("only mutations are made"),
            })
            .collect();
        let (a, b) = (b"a".to_vec(), b"b".to_vec());
        let expected =
            [(MutationType::Delete, a.clone(), 2), (MutationType::Put, a, 1), (MutationType::Put, b, 1)];
        assert_eq!(shown, expected);
        assert_eq!(cluster_ids(ClusterUuid { most: 1, least: 2 }).1.len(), 20);
    }
}
