//! One of the two clusters.

use std::time::Duration;

use halcyon_client::{
    Action, Admin, Cell, Cluster, ClusterOptions, Lock, Mutation, MutationType, Peer, TableDescriptor,
};
use halcyon_rpc::Codec;
use halcyon_schema::{ClusterId, ClusterUuid, FamilyDescriptor, TableName};
use tokio::task::JoinSet;

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
/// Clusters that have an edit (`Mutation.CONSUMED_CLUSTER_IDS` of HBase).
const CLUSTER_IDS: &str = "_cs.id";

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
        let value = if is_read_only { "true" } else { "false" };
        let mut altering = JoinSet::new();
        for table in tables {
            let (side, table) = (self.clone(), table.clone());
            altering.spawn(async move {
                let found = side.described(&table).await?;
                if found.read_only() == is_read_only && !always {
                    return Ok(());
                }
                let altered = side.admin.modify_table(&found.with(READ_ONLY, value)).await;
                altered.map_err(|error| side.failed(&format!("alter of {table}, READONLY => {value}"), error))
            });
        }
        // An error at one table does not keep the others from being opened.
        let mut errors = Vec::new();
        while let Some(one) = altering.join_next().await {
            let altered = one.unwrap_or_else(|error| Err(self.failed("alter", error)));
            errors.extend(altered.err());
        }
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }

    /// Opens tables for writes, also if they are: a request that closes them may be on its way. The master does one change of a
    /// table after the other. What such a change waits for is told.
    pub(crate) async fn reopen_for_writes(&self, tables: &[TableName]) -> Result<(), String> {
        let mut reopening = std::pin::pin!(self.set_read_only(tables, false, true));
        let mut pause = HANGS_AFTER;
        loop {
            match tokio::time::timeout(pause, &mut reopening).await {
                Ok(done) => return done,
                Err(_) => println!(
                    "{}: tables are not opened for writes yet{}",
                    self.name,
                    self.hangs(tables).await
                ),
            }
            pause = HANGS_PERIOD;
        }
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
