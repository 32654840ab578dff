//! What a running cluster says about itself.

use std::collections::{BTreeMap, BTreeSet};

use halcyon_client::{Admin, ClientError, Lock, LockKind, Procedure, RegionInTransition, Scan};
use halcyon_inspect::meta::MetaRow;
use halcyon_schema::{RegionInfo, ServerName, TableName};

use crate::facts::Facts;

/// One look: every part is read once, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub facts: Facts,
    /// Live servers and the regions that each has open. The error says why a server did not answer.
    pub servers: BTreeMap<ServerName, Result<Vec<RegionInfo>, String>>,
    pub transitions: Vec<RegionInTransition>,
    pub procedures: Vec<Procedure>,
    pub locks: Vec<Lock>,
}

impl Look {
    pub(crate) async fn at(admin: &Admin) -> Result<Look, ClientError> {
        let mut look = Look { locks: admin.locks().await?, ..Look::default() };
        look.procedures = admin.procedures().await?;
        let metrics = admin.cluster_metrics().await?;
        look.transitions = metrics.regions_in_transition;
        for server in metrics.servers {
            let regions = admin.online_regions(&server.name).await.map_err(|error| error.to_string());
            look.servers.insert(server.name, regions);
        }
        look.facts.take_rows(meta_rows(admin).await?);
        let descriptors = admin.descriptors(None, true).await?.into_iter();
        look.facts.descriptors = descriptors.map(|table| (table.name().clone(), table)).collect();
        look.facts.namespaces = Some(admin.namespaces().await?.into_iter().collect());
        Ok(look)
    }

    /// The servers that have a region open.
    pub(crate) fn servers_of(&self, region: &RegionInfo) -> Vec<&ServerName> {
        let has = |regions: &Result<Vec<RegionInfo>, String>| {
            regions
                .as_ref()
                .is_ok_and(|regions| regions.iter().any(|open| open.encoded_name() == region.encoded_name()))
        };
        self.servers.iter().filter(|(_, regions)| has(regions)).map(|(server, _)| server).collect()
    }

    /// Procedures under way that wait for no other procedure.
    pub(crate) fn working(&self) -> impl Iterator<Item = &Procedure> {
        let parents: BTreeSet<u64> = self.unfinished().filter_map(|procedure| procedure.parent_id).collect();
        self.unfinished().filter(move |procedure| !parents.contains(&procedure.id))
    }

    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &Procedure> {
        const ENDED: [&str; 3] = ["SUCCESS", "FAILED", "ROLLEDBACK"];
        self.procedures.iter().filter(|procedure| !ENDED.contains(&procedure.state.as_str()))
    }

    /// Names of tables or regions that one procedure has for itself.
    pub(crate) fn locked(&self, resource_type: &str) -> BTreeMap<&str, Option<&Procedure>> {
        let is_it = |lock: &&Lock| lock.kind == LockKind::Exclusive && lock.resource_type == resource_type;
        let locks = self.locks.iter().filter(is_it);
        locks.map(|lock| (lock.resource_name.as_str(), lock.owner.as_ref())).collect()
    }
}

async fn meta_rows(admin: &Admin) -> Result<Vec<MetaRow>, ClientError> {
    let mut scan = admin.cluster().table(TableName::META, 0).scan(Scan::new().caching(1_000));
    let mut rows = Vec::new();
    while let Some(row) = scan.next().await? {
        rows.push(MetaRow::of(row.into_cells()));
    }
    scan.close().await;
    Ok(rows)
}
