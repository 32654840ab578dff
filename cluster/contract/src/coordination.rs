//! What a master has to do with the coordination service.

use std::collections::BTreeMap;
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_schema::{ClusterId, ServerName};

/// Znodes of a cluster that its active master writes and reads. The methods block for as long as the service needs.
pub trait MasterCoordination: Send + Sync {
    /// Where `hbase:meta` was last, or was to be opened, if it ever was (HBase: `meta-region-server`). An error if that cannot
    /// be read: it may be open there.
    fn meta_last(&self) -> Result<Option<ServerName>>;

    /// Notes where `hbase:meta` is about to be opened, before the order leaves: a master after this one asks there first. An error
    /// if another master is active.
    fn meta_opening(&self, server: &ServerName) -> Result<()>;

    /// Tells clients where `hbase:meta` is, before it serves there. An error if another master is active.
    fn meta_opened(&self, server: &ServerName) -> Result<()>;

    /// Where the copies of `hbase:meta` were last, by number (HBase: `meta-region-server-1`, ...).
    fn meta_replicas_last(&self) -> BTreeMap<i32, ServerName>;

    /// Tells clients where the copies of `hbase:meta` are, and that there are no others.
    fn meta_replicas_opened(&self, replicas: &BTreeMap<i32, ServerName>) -> Result<()>;

    /// The masters that wait to take this one's place.
    fn backup_masters(&self) -> Vec<ServerName>;

    /// Deletes the znode of a server that was declared dead, so that it loses its lease should it live. Returns how long it may go on
    /// answering reads at most: zero if its session has ended by itself, and its lease with it. The same again if it is called again,
    /// also by a master after this one. An error if another master is active.
    fn depose(&self, _server: &ServerName) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// The servers that were deposed and are not forgotten, also by masters before this one, each with its lease as
    /// [`MasterCoordination::depose`] returned it.
    fn deposed(&self) -> Result<Vec<(ServerName, Duration)>> {
        Ok(Vec::new())
    }

    /// The regions of a server that was deposed are open elsewhere, or may be: nobody asks for its lease any more. An error if another
    /// master is active.
    fn forget_deposed(&self, _server: &ServerName) -> Result<()> {
        Ok(())
    }

    /// Lets a server get no more regions, or get some again (HBase: `draining`). An error if another master is active.
    fn set_draining(&self, server: &ServerName, is_draining: bool) -> Result<()>;

    /// Lets a server get no more regions, and notes that those it has are to leave it: a master after this one goes on with that. An
    /// error if another master is active.
    fn begin_offload(&self, server: &ServerName) -> Result<()> {
        self.set_draining(server, true)
    }

    /// Which of these servers have such a note and get no regions. An error if it cannot be found out now.
    fn offloading(&self, _draining: &[ServerName]) -> Result<Vec<ServerName>> {
        Ok(Vec::new())
    }

    /// Tells region servers whether they throttle requests (HBase: `rpc-throttle`). An error if another master is active. Where
    /// nothing but this process reads znodes there are none.
    fn publish_throttle(&self, _is_on: bool) -> Result<()> {
        Ok(())
    }

    /// Shows the states of all tables but `hbase:meta`, by name, to clients of HBase 1 (HBase: `table`). An error if another master is
    /// active. Where only this process reads znodes, they are made when they are asked for.
    fn publish_table_states(&self, _states: &BTreeMap<String, pb::table_state::State>) -> Result<()> {
        Ok(())
    }

    /// The id of the cluster with this cluster key, of which its coordination service is asked for some seconds at most; `None`: it
    /// has none there, or nobody can ask from here. An error: it was not reached.
    fn cluster_id_of(&self, _cluster_key: &str) -> Result<Option<ClusterId>> {
        Ok(None)
    }

    /// Shows all namespaces to HBase's servers and tools (HBase: `namespace`). An error if another master is active. Where only this
    /// process reads znodes, they are made when they are asked for.
    fn publish_namespaces(&self, _namespaces: &[pb::NamespaceDescriptor]) -> Result<()> {
        Ok(())
    }

    /// Shows all region server groups to HBase's master, which may take the cluster over (HBase: `rsgroup`). An error if another
    /// master is active. Where nothing but this process reads znodes there are none.
    fn publish_groups(&self, _groups: &[pb::RsGroupInfo]) -> Result<()> {
        Ok(())
    }

    /// The region server groups that were published last, also by a master before; `None`: none ever were. Some of them may be older than
    /// the others, if that master ended meanwhile. What makes no sense is named in the log and left out. An error if they cannot be read now.
    fn groups_last(&self) -> Result<Option<Vec<pb::RsGroupInfo>>> {
        Ok(None)
    }
}
