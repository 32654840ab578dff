//! Where `hbase:meta` is, and how it gets there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{CloseRegionRequest, ClusterServices, OpenRegionRequest, Standing};
use halcyon_env::Env;
use halcyon_schema::{RegionInfo, STORE_FILE_TRACKER, ServerName, TableDescriptor, TableName, layout};
use tracing::info;

use crate::descriptors;
use crate::members::Members;
use crate::placement::{Chooser, Place};
use crate::state::{MasterState, MetaPlace, MetaState};
use crate::timeline::{Noticed, Timelines};
use crate::wal_split::{self, Logs};

/// Makes the files of `hbase:meta` if they are not there, with the store file tracker of new tables; returns its descriptor.
pub(crate) fn prepare(
    env: &Env,
    root: &Path,
    cluster: &ClusterServices,
    tracker: &str,
) -> Result<Arc<TableDescriptor>> {
    let descriptor = match descriptors::read(env, root, &TableName::META)? {
        Some((descriptor, _)) => descriptor,
        None => {
            let descriptor = TableDescriptor::meta().with(STORE_FILE_TRACKER, tracker);
            descriptors::write(env, root, &descriptor, 1)?;
            descriptor
        }
    };
    // Else a master that was frozen here writes when its successor has loaded.
    if !has_files(env, root, &descriptor)? {
        cluster.files.create_region_files(&RegionInfo::meta(), &descriptor)?;
    }
    Ok(Arc::new(descriptor))
}

fn has_files(env: &Env, root: &Path, descriptor: &TableDescriptor) -> Result<bool> {
    let dir = RegionInfo::meta().dir(root);
    for family in descriptor.families() {
        if !env.fs.exists(&dir.join(&*family.name_str()))? {
            return Ok(false);
        }
    }
    Ok(env.fs.exists(&dir.join(layout::REGION_INFO))?)
}

/// Opens `hbase:meta` when a master starts: where it was, if that server is alive. A server that has died since the others were
/// recovered is recovered first.
pub(crate) fn open_first(
    cluster: &ClusterServices,
    members: &Arc<Members>,
    descriptor: &Arc<TableDescriptor>,
    last: Option<&ServerName>,
    split_threads: usize,
    timelines: &Timelines,
) -> Result<MetaPlace> {
    // Asked once: what dies behind this question cannot open it, and the start is tried again.
    let standing = last.map(|last| cluster.servers.standing(last));
    let here = last.filter(|_| standing == Some(Standing::Online));
    if let (Some(Standing::Recovering), Some(last)) = (standing, last) {
        timelines.noticed(last, Noticed::FoundAtTakeover, None);
        // Its other WALs are split by a recovery, which may take longer, or for ever.
        let fenced = wal_split::fence(cluster, last)?;
        members.depose(cluster, last)?;
        if let Some(dir) = fenced {
            wal_split::split(cluster, members, &dir, Logs::Meta, split_threads)?;
        }
        members.wait_for_lease(cluster, last)?;
    }
    let (online, draining) = (members.ready(cluster), cluster.servers.draining());
    let (last_choice, new): (Vec<_>, Vec<_>) =
        online.iter().filter(|server| Some(*server) != here).partition(|server| draining.contains(server));
    let mut result = Err(Error::new(ErrorKind::Busy, "there is no region server for hbase:meta"));
    for server in here.into_iter().chain(new).chain(last_choice) {
        if Some(server) != here {
            cluster.coordination.meta_opening(server)?;
        }
        result = open_at(cluster, members, descriptor, server);
        // One that has refused it does not have it. Of one that gave no answer, or has died, nobody knows.
        let refused = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Moved);
        if !refused || cluster.servers.standing(server) != Standing::Online {
            break;
        }
    }
    result
}

fn open_at(
    cluster: &ClusterServices,
    members: &Members,
    descriptor: &Arc<TableDescriptor>,
    server: &ServerName,
) -> Result<MetaPlace> {
    let died = || Error::new(ErrorKind::Busy, format!("{server} has just died"));
    let api = cluster.servers.get(server).ok_or_else(died)?;
    members.check(cluster, server)?;
    let request = OpenRegionRequest::new(&RegionInfo::meta(), descriptor);
    let announce = |_| cluster.coordination.meta_opened(server).map_err(not_refused);
    let opened = api.open_region(&request, &announce);
    let open_seq = opened.map_err(|error| error.context("hbase:meta"))?.open_seq_num.max(1);
    info!(%server, open_seq, "hbase:meta is open");
    Ok(MetaPlace { server: server.clone(), open_seq, state: MetaState::Open })
}

/// The error of an announcement. `Moved` from an opening means that the server does not have the region: what is announced was opened.
pub(crate) fn not_refused(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Moved => Error::new(ErrorKind::Busy, error.message()),
        _ => error,
    }
}

/// Opens `hbase:meta` if it is not open: where it was ordered to be opened before, as long as that server is alive and has not refused
/// it, because it may do so late. Elsewhere not at `not_at`, unless that is the only server. *Blocking*.
///
/// `Busy` while the WALs of the server that had it, or may have opened it, are being split, unless that is `not_at`: the caller knows
/// that it has left nothing.
pub(crate) fn open(core: &MasterState, not_at: Option<&ServerName>, to: Option<&ServerName>) -> Result<()> {
    let _one_at_a_time = core.meta_opening.lock();
    let server = match core.place_of(&RegionInfo::meta()) {
        Place::At(_) if core.meta_place.read().is_open() && !core.cluster.servers.is_one_process() => {
            return Ok(());
        }
        Place::At(server) => server,
        Place::Recovering(server) if Some(&server) != not_at => {
            return Err(crate::placement::recovering(&RegionInfo::meta(), &server));
        }
        Place::Nowhere(_) | Place::Recovering(_) => {
            let chooser = Chooser::new(core)?;
            let mut chooser = match not_at {
                Some(server) => chooser.without(server),
                None => chooser,
            };
            let server = chooser.choose(&core.scope_of(&TableName::META), to, None, &[])?;
            core.cluster.coordination.meta_opening(&server)?;
            let mut place = core.meta_place.write();
            (place.server, place.state) = (server.clone(), MetaState::Opening);
            server
        }
    };
    let descriptor = core.meta_descriptor.read().clone();
    match open_at(&core.cluster, &core.members, &descriptor, &server) {
        Ok(place) => {
            let mut known = core.meta_place.write();
            assert!(
                known.server == place.server || core.cluster.servers.is_one_process(),
                "hbase:meta is open at {}, and was ordered to be opened at {}",
                place.server,
                known.server
            );
            *known = place;
            Ok(())
        }
        Err(error) => {
            // A server that has refused it does not have it. Of one that gave no answer nobody knows.
            if error.kind() == ErrorKind::Moved {
                core.meta_place.write().state = MetaState::Closed;
            }
            Err(error)
        }
    }
}

/// Whether all copies of `hbase:meta` are on live servers, and no others.
pub(crate) fn has_replicas(core: &MasterState) -> bool {
    let (wanted, online) = (core.meta_descriptor.read().region_replication(), core.cluster.servers.online());
    let replicas = core.meta_replicas.read();
    replicas.keys().copied().eq(1..wanted.max(1)) && replicas.values().all(|server| online.contains(server))
}

/// Opens the copies of `hbase:meta` that its descriptor asks for, each on a server of its own where there are enough, and
/// closes others. What is open stays where it is. *Blocking*. An error is that of one copy; the others are served.
pub(crate) fn fit_replicas(core: &MasterState) -> Result<()> {
    let _one_at_a_time = core.meta_replicas_changing.lock();
    let descriptor = core.meta_descriptor.read().clone();
    let (before, online) = (core.meta_replicas.read().clone(), core.cluster.servers.online());
    let (mut open, mut result) = (BTreeMap::new(), Ok(()));
    let mut taken: Vec<ServerName> = before.values().cloned().chain([core.meta_server()]).collect();
    for copy in RegionInfo::meta().secondaries(descriptor.region_replication()) {
        let here = before.get(&copy.replica_id()).filter(|server| online.contains(*server));
        let server = match here {
            Some(server) => server.clone(),
            None => Chooser::new(core)?.choose(&core.scope_of(&TableName::META), None, None, &taken)?,
        };
        match open_replica(core, &descriptor, &copy, &server) {
            Ok(()) => drop(open.insert(copy.replica_id(), server.clone())),
            Err(error) => result = Err(error.context(&copy)),
        }
        taken.push(server);
    }
    for (number, server) in before.range(descriptor.region_replication().max(1)..) {
        let region = RegionInfo::meta().replica(*number);
        let Some(api) = core.cluster.servers.get(server) else { continue };
        if let Err(error) = api.close_region(&CloseRegionRequest { region, abort: false, destination: None })
        {
            open.insert(*number, server.clone());
            result = Err(error);
        }
    }
    result.and(replicas_opened(core, &before, open))
}

fn replicas_opened(
    core: &MasterState,
    before: &BTreeMap<i32, ServerName>,
    open: BTreeMap<i32, ServerName>,
) -> Result<()> {
    if open != *before {
        info!(replicas = ?open, "copies of hbase:meta");
    }
    *core.meta_replicas.write() = open.clone();
    if let Some(callback) = &*core.meta_replicas_callback.lock() {
        callback(&open);
    }
    core.cluster.coordination.meta_replicas_opened(&open)
}

/// Closes a copy of `hbase:meta` where it was, and opens it elsewhere. Nothing happens if it is at another server than `from`.
/// May run twice. *Blocking*.
pub(crate) fn move_replica(
    core: &MasterState,
    copy: &RegionInfo,
    from: Option<&ServerName>,
    to: Option<&ServerName>,
) -> Result<()> {
    let _one_at_a_time = core.meta_replicas_changing.lock();
    let (number, before) = (copy.replica_id(), core.meta_replicas.read().clone());
    let descriptor = core.meta_descriptor.read().clone();
    let is_wanted = number < descriptor.region_replication();
    if !is_wanted || before.get(&number).is_some_and(|here| from != Some(here)) {
        return Ok(());
    }
    let others = before.iter().filter(|(other, _)| **other != number).map(|(_, server)| server.clone());
    let others: Vec<ServerName> = others.chain([core.meta_server()]).collect();
    let mut chooser = Chooser::new(core)?;
    if let Some(from) = from {
        chooser = chooser.without(from);
    }
    let server = chooser.choose(&core.scope_of(&TableName::META), to, None, &others)?;
    let mut open = before.clone();
    if let Some(here) = open.remove(&number) {
        if here == server {
            return Ok(());
        }
        if let Some(api) = core.cluster.servers.get(&here) {
            let destination = Some(server.clone());
            api.close_region(&CloseRegionRequest { region: copy.clone(), abort: false, destination })?;
        }
        replicas_opened(core, &before, open.clone())?;
    }
    open_replica(core, &descriptor, copy, &server)?;
    let closed = open.clone();
    open.insert(number, server);
    replicas_opened(core, &closed, open)
}

fn open_replica(
    core: &MasterState,
    descriptor: &Arc<TableDescriptor>,
    copy: &RegionInfo,
    server: &ServerName,
) -> Result<()> {
    let died = || Error::new(ErrorKind::Busy, format!("{server} has just died"));
    let api = core.cluster.servers.get(server).ok_or_else(died)?;
    core.members.check(&core.cluster, server)?;
    api.open_region(&OpenRegionRequest::new(copy, descriptor), &|_| Ok(())).map(drop)
}

/// Closes `hbase:meta` where it is. Writes to it fail until it is opened, and are repeated.
pub(crate) fn close(core: &MasterState, destination: Option<&ServerName>) -> Result<()> {
    let _one_at_a_time = core.meta_opening.lock();
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
    core.meta_place.write().state = MetaState::Closed;
    Ok(())
}
