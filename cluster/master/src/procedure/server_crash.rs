//! What happens after the death of a region server (HBase: `ServerCrashProcedure`).
//!
//! Its WALs and its znode are taken from it. The WALs are split by live servers, those of `hbase:meta` first. When it can answer
//! nothing any more (`members.rs`), `hbase:meta` is opened elsewhere if it was there. Then procedures of their own open its regions elsewhere: one for each table, so that a table that is locked holds up
//! no other.

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, ServerName, TableName};
use prost::Message;
use tracing::{info, warn};

use super::{AssignRegions, Class, HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::meta_region;
use crate::state::{MasterState, TableEntry, TableState};
use crate::wal_split::{self, Logs};

pub(super) const KIND: &str = "server_crash";

pub(crate) struct ServerCrash {
    server: ServerName,
    /// The next step needs the end of the server's lease.
    waits_for_lease: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, required, tag = "1")]
    server: pb::ServerName,
}

impl ServerCrash {
    pub(crate) fn new(server: ServerName) -> ServerCrash {
        ServerCrash { server, waits_for_lease: false }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<ServerCrash> {
        let payload: Payload = payload(KIND, bytes)?;
        Ok(ServerCrash::new(ServerName::from_pb(&payload.server)?))
    }

    fn split(&self, core: &MasterState, logs: Logs) -> Result<()> {
        let (clock, threads) = (&core.env.clock, core.settings.split_threads);
        let begun_ns = clock.monotonic_ns();
        let fenced = wal_split::fence(&core.cluster, &self.server)?;
        core.members.depose(&core.cluster, &self.server)?;
        let Some(dir) = fenced else { return Ok(()) };
        let fenced_ns = clock.monotonic_ns();
        core.timelines.fenced(&self.server);
        if logs == Logs::Meta && core.meta_place.read().server == self.server {
            wal_split::begin_sealing(&core.cluster, &dir, threads);
        }
        let amount = wal_split::split(&core.cluster, &core.members, &dir, logs, threads)?;
        core.timelines.split(&self.server, amount.wals_count, amount.bytes);
        let ms = |from_ns: u64, to_ns: u64| to_ns.saturating_sub(from_ns) / 1_000_000;
        let (fence_ms, split_ms) = (ms(begun_ns, fenced_ns), ms(fenced_ns, clock.monotonic_ns()));
        info!(server = %self.server, ?logs, wals = amount.wals_count, bytes = amount.bytes, fence_ms, split_ms,
            "WALs of a dead server are split");
        Ok(())
    }
}

impl Procedure for ServerCrash {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.ServerCrashProcedure"
    }

    fn metric(&self) -> Option<&'static str> {
        Some("ServerCrash")
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        parameters::of(&pb::ServerCrashStateData {
            server_name: self.server.to_pb(),
            should_split_wal: Some(true),
            ..Default::default()
        })
    }

    fn locks(&self) -> Vec<Lock> {
        vec![Lock::server(&self.server)]
    }

    fn prepare(&mut self, _core: &MasterState) -> std::result::Result<(), RpcError> {
        Ok(())
    }

    fn class(&self, core: &MasterState) -> Class {
        let had_meta = core.meta_place.read().server == self.server;
        if had_meta { Class::Meta } else { Class::Recovery }
    }

    /// Without a thread, which others need meanwhile, and a master that ends would wait for.
    fn held_until(&self, core: &MasterState, _id: u64) -> Option<u64> {
        let ends = || core.members.lease_until_ns(&*core.env.clock, &self.server);
        self.waits_for_lease.then(ends).flatten()
    }

    fn followers(&self, core: &MasterState) -> Vec<Box<dyn Procedure>> {
        let mut orphans = self.regions(core);
        let regions = orphans.iter().flat_map(|(_, regions)| regions.iter().cloned());
        core.timelines.assigning(&self.server, regions);
        orphans.sort_by_key(|(table, _)| !table.is_system());
        orphans
            .into_iter()
            .map(|(table, regions)| Box::new(AssignRegions::new(table, regions)) as Box<dyn Procedure>)
            .collect()
    }

    fn payload(&self) -> Vec<u8> {
        Payload { server: self.server.to_pb() }.encode_to_vec()
    }
}

const STEPS: &[Step<ServerCrash>] = &[
    step("split WALs of hbase:meta", ServerCrash::split_meta),
    step("open hbase:meta", ServerCrash::open_meta),
    step("split WALs", ServerCrash::split_all),
    step("end recovery", ServerCrash::end),
];

impl HasSteps for ServerCrash {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl ServerCrash {
    fn split_meta(&mut self, core: &MasterState) -> Result<()> {
        // A decommissioned server is forgotten with its death (HBASE-24208). Its name never comes again, so this may fail.
        if let Err(error) = core.cluster.coordination.set_draining(&self.server, false) {
            warn!(server = %self.server, %error, "a dead server stays decommissioned");
        }
        self.split(core, Logs::Meta)?;
        self.waits_for_lease = core.meta_place.read().server == self.server;
        Ok(())
    }

    fn open_meta(&mut self, core: &MasterState) -> Result<()> {
        let place = core.meta_place.read().clone();
        // Also where an opening elsewhere has failed, so that it is tried again.
        if place.server == self.server || !place.is_open() {
            self.check_lease(core)?;
            meta_region::open(core, Some(&self.server), None)?;
            core.timelines.meta_opened(&self.server);
        }
        self.waits_for_lease = false;
        let had_copy = core.meta_replicas.read().values().any(|server| *server == self.server);
        if had_copy && let Err(error) = meta_region::fit_replicas(core) {
            warn!(%error, "a copy of hbase:meta is opened later");
        }
        Ok(())
    }

    fn split_all(&mut self, core: &MasterState) -> Result<()> {
        self.split(core, Logs::All)?;
        self.waits_for_lease = true;
        Ok(())
    }

    fn end(&mut self, core: &MasterState) -> Result<()> {
        // Before the directory goes: where there is none, a master after this one finds nothing to wait for.
        self.check_lease(core)?;
        if let Some(dir) = wal_split::fence(&core.cluster, &self.server)? {
            wal_split::remove(&core.cluster, &dir)?;
        }
        core.members.recovered(&core.cluster, &self.server);
        Ok(())
    }

    /// What is next needs the end of the lease. A master that goes on with a step of an earlier one learns of the lease here.
    fn check_lease(&mut self, core: &MasterState) -> Result<()> {
        self.waits_for_lease = true;
        core.members.check_lease(&core.cluster, &self.server)
    }

    /// The regions that the server had, by table. None of a table that is not to be open.
    fn regions(&self, core: &MasterState) -> Vec<(TableName, Vec<RegionInfo>)> {
        let tables = core.tables.read();
        let enabled = tables
            .by_name
            .values()
            .filter(|table| matches!(table.state, TableState::Enabled | TableState::Enabling));
        let of_table = |table: &TableEntry| {
            let was_here = |region: &RegionInfo| {
                table.known(region).is_some_and(|known| known.server.as_ref() == Some(&self.server))
            };
            let regions = table.to_be_open().into_iter().filter(was_here).collect();
            (table.descriptor.name().clone(), regions)
        };
        enabled.map(of_table).filter(|(_, regions): &(_, Vec<_>)| !regions.is_empty()).collect()
    }
}
