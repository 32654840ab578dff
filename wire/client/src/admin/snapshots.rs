//! Snapshots of tables.

use halcyon_proto::pb;
use halcyon_schema::TableName;
use std::time::Duration;
use tokio::time::Instant;

use super::{Admin, Nonces, poll_pause};
use crate::ClientError;
use crate::cluster::after;

/// Whether a table is flushed before its snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapshotType {
    /// The memstores are flushed first.
    #[default]
    Flush,
    /// What is only in memstores is left out.
    SkipFlush,
    /// The table is disabled.
    Disabled,
}

/// A completed snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// The table.
    pub table: TableName,
    /// When it was taken, in milliseconds since 1970.
    pub creation_time_ms: i64,
    /// How the table's memstores were treated.
    pub snapshot_type: SnapshotType,
    /// Who took it.
    pub owner: Option<String>,
    /// Time after which the master deletes it.
    pub ttl: Option<Duration>,
}

impl Snapshot {
    fn of_pb(message: &pb::SnapshotDescription) -> Result<Snapshot, ClientError> {
        let table = message.table.as_deref().unwrap_or_default();
        Ok(Snapshot {
            name: message.name.clone(),
            table: TableName::parse(table.as_bytes()).map_err(ClientError::malformed)?,
            creation_time_ms: message.creation_time(),
            snapshot_type: match message.r#type() {
                pb::snapshot_description::Type::Flush => SnapshotType::Flush,
                pb::snapshot_description::Type::Skipflush => SnapshotType::SkipFlush,
                pb::snapshot_description::Type::Disabled => SnapshotType::Disabled,
            },
            owner: message.owner.clone().filter(|owner| !owner.is_empty()),
            ttl: u64::try_from(message.ttl()).ok().filter(|ttl| *ttl > 0).map(Duration::from_secs),
        })
    }
}

fn description(name: &str, table: Option<&TableName>) -> pb::SnapshotDescription {
    pb::SnapshotDescription {
        name: name.to_string(),
        table: table.map(|table| table.as_str().to_string()),
        ..Default::default()
    }
}

impl Admin {
    /// Takes a snapshot of a table and waits until it is complete. With `ttl` the master deletes it after that time.
    pub async fn snapshot(
        &self,
        name: &str,
        table: &TableName,
        snapshot_type: SnapshotType,
        ttl: Option<Duration>,
    ) -> Result<(), ClientError> {
        let kind = match snapshot_type {
            SnapshotType::Flush => pb::snapshot_description::Type::Flush,
            SnapshotType::SkipFlush => pb::snapshot_description::Type::Skipflush,
            SnapshotType::Disabled => pb::snapshot_description::Type::Disabled,
        };
        let snapshot = pb::SnapshotDescription {
            r#type: Some(kind as i32),
            ttl: ttl.map(|ttl| i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX)),
            ..description(name, Some(table))
        };
        let Nonces { group, nonce } = self.nonces();
        let request = pb::SnapshotRequest { snapshot: snapshot.clone(), nonce_group: group, nonce };
        let answer: pb::SnapshotResponse = self.call("Snapshot", &request).await?;
        if let Some(proc_id) = answer.proc_id.and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0) {
            return self.finish(Some(proc_id)).await;
        }
        let deadline = after(self.cluster.inner.options.procedure_timeout);
        let request = pb::IsSnapshotDoneRequest { snapshot: Some(snapshot) };
        let mut polls = 0;
        loop {
            let answer: pb::IsSnapshotDoneResponse = self.call("IsSnapshotDone", &request).await?;
            if answer.done() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(ClientError::timed_out(format!("snapshot {name} is not complete in time")));
            }
            poll_pause(polls).await;
            polls += 1;
        }
    }

    /// Completed snapshots, sorted by name.
    pub async fn snapshots(&self) -> Result<Vec<Snapshot>, ClientError> {
        let request = pb::GetCompletedSnapshotsRequest {};
        let answer: pb::GetCompletedSnapshotsResponse = self.call("GetCompletedSnapshots", &request).await?;
        let snapshots = answer.snapshots.iter().map(Snapshot::of_pb);
        let mut snapshots = snapshots.collect::<Result<Vec<_>, _>>()?;
        snapshots.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(snapshots)
    }

    /// Deletes a snapshot.
    pub async fn delete_snapshot(&self, name: &str) -> Result<(), ClientError> {
        let request = pb::DeleteSnapshotRequest { snapshot: description(name, None) };
        let _: pb::DeleteSnapshotResponse = self.call("DeleteSnapshot", &request).await?;
        Ok(())
    }

    /// Brings a disabled table back to the state of a snapshot of it.
    pub async fn restore_snapshot(&self, name: &str) -> Result<(), ClientError> {
        let found = self.snapshots().await?.into_iter().find(|snapshot| snapshot.name == name);
        let missing = || ClientError::exception("snapshot.SnapshotDoesNotExistException", name);
        self.clone_snapshot(name, &found.ok_or_else(missing)?.table).await
    }

    /// Creates a table from a snapshot.
    pub async fn clone_snapshot(&self, name: &str, table: &TableName) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let request = pb::RestoreSnapshotRequest {
            snapshot: description(name, Some(table)),
            nonce_group: group,
            nonce,
            ..Default::default()
        };
        let answer: pb::RestoreSnapshotResponse = self.call("RestoreSnapshot", &request).await?;
        self.finish(Some(answer.proc_id)).await
    }
}
