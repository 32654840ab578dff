//! Where `hbase:meta` is, and how it gets there.

use std::path::Path;
use std::sync::Arc;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{CloseRegionRequest, ClusterServices, OpenRegionRequest};
use halcyon_env::Env;
use halcyon_schema::{RegionInfo, ServerName, TableDescriptor, TableName};
use tracing::info;

use crate::descriptors;
use crate::placement::{Chooser, Place};
use crate::state::{MasterState, MetaPlace};

/// Makes the files of `hbase:meta` if they are not there; returns its descriptor.
pub(crate) fn prepare(env: &Env, root: &Path, cluster: &ClusterServices) -> Result<Arc<TableDescriptor>> {
    let descriptor = match descriptors::read(env, root, &TableName::META)? {
        Some((descriptor, _)) => descriptor,
        None => {
            let descriptor = TableDescriptor::meta();
            descriptors::write(env, root, &descriptor, 1)?;
            descriptor
        }
    };
    cluster.files.create_region_files(&RegionInfo::meta(), &descriptor)?;
    Ok(Arc::new(descriptor))
}

/// Opens `hbase:meta` when a master starts: where it was, if that server is alive. What its last server has left must be
/// recovered.
pub(crate) fn open_first(
    cluster: &ClusterServices,
    descriptor: &Arc<TableDescriptor>,
    last: Option<&ServerName>,
) -> Result<MetaPlace> {
    let (online, draining) = (cluster.servers.online(), cluster.servers.draining());
    let here = last.filter(|last| online.contains(*last));
    let new = online.iter().find(|server| !draining.contains(server)).or(online.first());
    let none = || Error::new(ErrorKind::Busy, "there is no region server for hbase:meta");
    open_at(cluster, descriptor, here.or(new).ok_or_else(none)?)
}

fn open_at(
    cluster: &ClusterServices,
    descriptor: &Arc<TableDescriptor>,
    server: &ServerName,
) -> Result<MetaPlace> {
    let died = || Error::new(ErrorKind::Busy, format!("{server} has just died"));
    let api = cluster.servers.get(server).ok_or_else(died)?;
    let request = OpenRegionRequest::new(&RegionInfo::meta(), descriptor);
    let opened = api.open_region(&request, &|_| cluster.coordination.meta_opened(server));
    let open_seq = opened.map_err(|error| error.context("hbase:meta"))?.open_seq_num.max(1);
    info!(%server, open_seq, "hbase:meta is open");
    Ok(MetaPlace { server: server.clone(), open_seq, is_open: true })
}

/// Opens `hbase:meta`, which is open nowhere or at `to`; not at `not_at`, unless that is the only server.
pub(crate) fn open(core: &MasterState, not_at: Option<&ServerName>, to: Option<&ServerName>) -> Result<()> {
    let server = match core.place_of(&RegionInfo::meta()) {
        Place::At(server) => server,
        Place::Nowhere(_) | Place::Recovering(_) => {
            let chooser = Chooser::new(core)?;
            let mut chooser = match not_at {
                Some(server) => chooser.without(server),
                None => chooser,
            };
            chooser.choose(&core.scope_of(&TableName::META), to, None, &[])?
        }
    };
    let place = open_at(&core.cluster, &core.meta_descriptor, &server)?;
    *core.meta_place.write() = place;
    Ok(())
}

/// Closes `hbase:meta` where it is. Writes to it fail until it is opened, and are repeated.
pub(crate) fn close(core: &MasterState, destination: Option<&ServerName>) -> Result<()> {
    let region = RegionInfo::meta();
    let server = match core.place_of(&region) {
        Place::At(server) => server,
        Place::Nowhere(_) => return Ok(()),
        Place::Recovering(server) => return Err(crate::placement::recovering(&region, &server)),
    };
    let died = || Error::new(ErrorKind::Busy, format!("{server}, which has hbase:meta, has just died"));
    let api = core.cluster.servers.get(&server).ok_or_else(died)?;
    let destination = destination.cloned();
    api.close_region(&CloseRegionRequest { region, abort: false, destination })?;
    core.meta_place.write().is_open = false;
    Ok(())
}
