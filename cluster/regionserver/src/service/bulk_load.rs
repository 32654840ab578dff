//! Bulk loads (HBase: `SecureBulkLoadManager`, `RSRpcServices.bulkLoadHFile`).
//!
//! ```text
//! PrepareBulkLoad    <root>/staging/<user>__<table>__<random>; its address is the token of the load
//! BulkLoadHFile      the region moves the files from where they are; see `Region::bulk_load`
//! CleanupBulkLoad    removes that directory
//! ```
//!
//! A file is taken from the root directory, from directories that `halcyon.bulkload.roots` names, and if it names none from
//! the file system of the root directory. Whatever is wrong with a file, its client gets the same answer: neither whether a
//! file is there, nor what is in it, is told to whoever asks for it. The log says the reason.
//!
//! HBase moves the files to the directory of the token first, because its clients and servers may be different users of the
//! file system. Here the region has a place of its own for them. An answer of `loaded=false` says that files have rows of other
//! regions: the client divides them and tries again. HBase gives this answer for each failure, here other failures are
//! exceptions that say what is wrong.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use halcyon_contract::BulkLoadState;
use halcyon_env::{Env, RealFileSystem, random_bytes};
use halcyon_proto::pb;
use halcyon_region::{BULK_LOAD_FILES_MAX, BulkLoad, BulkLoadFile, BulkLoadOutcome};
use halcyon_rpc::{Call, Outcome, Reply, RpcError};
use halcyon_schema::{ClusterId, layout};

use super::{Waits, WorkKind, decode, ready};
use crate::errors;
use crate::regions::region_table::OnlineRegion;
use crate::{RegionServer, backup, coprocessors};

/// HBase: `HConstants.BULKLOAD_STAGING_DIR_NAME`.
const STAGING: &str = "staging";

type Work = Box<dyn FnOnce(&RegionServer) -> Result<Reply, RpcError> + Send>;

pub(super) fn call(server: &Arc<RegionServer>, mut call: Call) -> Outcome {
    let param = std::mem::take(&mut call.param);
    let user = call.connection.user.clone().unwrap_or_default();
    let mut kind = WorkKind::Usual;
    let work = match call.method.as_str() {
        "PrepareBulkLoad" => decode("PrepareBulkLoad", param).map(|request: pb::PrepareBulkLoadRequest| {
            Box::new(move |server: &RegionServer| prepare(server, &request, &user)) as Work
        }),
        "BulkLoadHFile" => decode("BulkLoadHFile", param).and_then(|request: pb::BulkLoadHFileRequest| {
            check_count(&request)?;
            if copies(server, &request) {
                kind = WorkKind::Copies;
            }
            Ok(Box::new(move |server: &RegionServer| load(server, &request)) as Work)
        }),
        _ => decode("CleanupBulkLoad", param).map(|request: pb::CleanupBulkLoadRequest| {
            Box::new(move |server: &RegionServer| clean_up(server, &request)) as Work
        }),
    };
    let work = match work {
        Ok(work) => work,
        Err(error) => return ready(Err(error)),
    };
    let (server, waits) = (server.clone(), Waits { kind, ..Waits::new(call.into_terms()) });
    Outcome::Later(Box::pin(async move {
        let on_pool = server.clone();
        server.run_pooled("BulkLoad", waits, move || work(&on_pool)).await
    }))
}

fn prepare(
    server: &RegionServer,
    request: &pb::PrepareBulkLoadRequest,
    user: &str,
) -> Result<Reply, RpcError> {
    if let Some(region) = &request.region {
        server.regions.find(region)?;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (namespace, table) = (text(&request.table_name.namespace), text(&request.table_name.qualifier));
    let random: String = random_bytes::<32>().iter().map(|byte| format!("{byte:02x}")).collect();
    let name: String = format!("{user}__{namespace}_{table}__{random}")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' })
        .collect();
    let dir = staging_dir(server).join(name);
    server.env.fs.create_dir_all(&dir).map_err(|error| errors::to_rpc(&error.into()))?;
    let bulk_token = dir.display().to_string();
    Ok(Reply::message(&pb::PrepareBulkLoadResponse { bulk_token }))
}

fn clean_up(server: &RegionServer, request: &pb::CleanupBulkLoadRequest) -> Result<Reply, RpcError> {
    let dir = path_of(server, &request.bulk_token)?.0;
    if dir.parent() != Some(&*staging_dir(server)) {
        return Err(errors::invalid(format!("{} is no token of a bulk load", request.bulk_token)));
    }
    match server.env.fs.remove_dir_all(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(errors::to_rpc(&error.into())),
        _ => Ok(Reply::message(&pb::CleanupBulkLoadResponse {})),
    }
}

/// Whoever received the call looks at each path, and others wait for it.
fn check_count(request: &pb::BulkLoadHFileRequest) -> Result<(), RpcError> {
    let count = request.family_path.len();
    if count <= BULK_LOAD_FILES_MAX {
        return Ok(()); // none at all is for the region to refuse, or for coprocessors to allow
    }
    Err(errors::invalid(format!("a bulk load has 1 to {BULK_LOAD_FILES_MAX} files, not {count}")))
}

/// Whether files of the load are copied, which takes as long as they are large.
fn copies(server: &RegionServer, request: &pb::BulkLoadHFileRequest) -> bool {
    let is_copied = |address: &str| -> Result<bool, RpcError> {
        let (path, from) = path_of(server, address)?;
        Ok(from.is_some() || is_left_there(server, &path, false, address)?)
    };
    // What is wrong with an address is told later.
    request.copy_file() || request.family_path.iter().any(|named| is_copied(&named.path).unwrap_or(false))
}

fn load(server: &RegionServer, request: &pb::BulkLoadHFileRequest) -> Result<Reply, RpcError> {
    let own_id = cluster_id(server)?;
    let mut cluster_ids = request.cluster_ids.clone();
    if cluster_ids.contains(&own_id) {
        return Ok(loaded(true)); // it came from here, by way of replication
    }
    cluster_ids.push(own_id);
    let online = server.regions.find(&request.region)?;
    let asked = coprocessors::before_bulk_load(server, &online, &request.family_path)?;
    if asked.is_empty() && !request.family_path.is_empty() {
        coprocessors::after_bulk_load(server, &online, &asked, &[])?;
        return Ok(loaded(true)); // as its coprocessors want it
    }
    let mut files = Vec::with_capacity(asked.len());
    for named in &asked {
        let (path, from) = path_of(server, &named.path)?;
        let own_dir = layout::table_dir(&server.resources.root, online.region.info().table());
        if from.is_none() && path.starts_with(own_dir) {
            return Err(errors::invalid(format!(
                "{} is of the table that it is to be loaded into",
                named.path
            )));
        }
        let copy = request.copy_file() || is_left_there(server, &path, from.is_some(), &named.path)?;
        files.push(BulkLoadFile { family: named.family.clone(), path, from, copy });
    }
    let load = BulkLoad {
        files,
        assign_seq: request.assign_seq_num.unwrap_or(false),
        cluster_ids,
        replicate: request.replicate(),
    };
    check_space(server, &online, &load)?;
    let info = online.region.info();
    let (mut noted, mut placed) = (Vec::new(), Vec::new());
    let outcome = online.region.bulk_load_noting(&load, &mut |files| {
        if online.is_hosted() {
            placed = files.to_vec();
        }
        if load.replicate {
            server.sources.note_hfiles(info.table(), &replicated(&online, files))?;
        }
        // Asked as late as can be: a backup may have begun since the call came.
        if !backup::is_noted(server, info.table())? {
            return Ok(());
        }
        noted = files.to_vec();
        backup::note(server, info, files, BulkLoadState::Prepared)
    });
    match outcome.map_err(|error| errors::to_rpc(&error))? {
        BulkLoadOutcome::Loaded { .. } => {
            if let Err(error) = backup::note(server, info, &noted, BulkLoadState::Loaded) {
                // The tool copies files that are only prepared, too.
                tracing::warn!(%error, region = info.encoded_name(), "the end of a bulk load is not noted for backups");
            }
            server.background.flusher.after_bulk_load(&online);
            coprocessors::after_bulk_load(server, &online, &asked, &placed)?;
            Ok(loaded(true))
        }
        BulkLoadOutcome::RowsOutOfRange(paths) => {
            let region = online.region.info().encoded_name();
            tracing::warn!(region, ?paths, "files of a bulk load have rows of other regions");
            Ok(loaded(false))
        }
    }
}

/// Family and name of the files whose families have `REPLICATION_SCOPE` 1.
fn replicated(online: &OnlineRegion, files: &[(String, PathBuf)]) -> Vec<(String, String)> {
    let table = online.region.table();
    let is_sent = |family: &str| table.family(family.as_bytes()).is_some_and(|family| family.scope() == 1);
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let sent = files.iter().filter(|(family, _)| is_sent(family));
    sent.map(|(family, path)| (family.clone(), name(path))).collect()
}

/// A table with a space quota must have room for all files.
fn check_space(server: &RegionServer, online: &OnlineRegion, load: &BulkLoad) -> Result<(), RpcError> {
    let table = online.region.table().name();
    if !server.quotas.has_space_quota(table) {
        return Ok(());
    }
    let len = |file: &BulkLoadFile| {
        let fs = &file.from.as_ref().unwrap_or(&server.env).fs;
        fs.open(&file.path).and_then(|opened| opened.len())
    };
    let mut bytes = 0u64;
    for file in &load.files {
        let len = len(file).map_err(|error| {
            tracing::warn!(path = %file.path.display(), %error, "a file of a bulk load cannot be read");
            errors::to_rpc(&halcyon_region::cannot_be_loaded(&file.path))
        })?;
        bytes = bytes.saturating_add(len);
    }
    server.quotas.check_bulk_load(table, bytes)
}

fn loaded(loaded: bool) -> Reply {
    Reply::message(&pb::BulkLoadHFileResponse { loaded })
}

fn staging_dir(server: &RegionServer) -> PathBuf {
    server.resources.root.join(STAGING)
}

pub(super) fn cluster_id(server: &RegionServer) -> Result<String, RpcError> {
    let path = layout::cluster_id_file(&server.resources.root);
    let bytes = match server.env.fs.read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
        read => read.map_err(|error| errors::to_rpc(&error.into()))?,
    };
    let id = ClusterId::decode_file(&bytes).map_err(|error| errors::to_rpc(&error))?;
    Ok(id.to_string())
}

/// Whether a file stays where it is, and the region gets a copy: below the root directory all that is not staged there, because it
/// is a table's or the cluster's, and on a local disk what is not below the roots, because whoever may call may not take away every file that the server may rename. An error if it may not
/// be loaded at all.
fn is_left_there(
    server: &RegionServer,
    path: &Path,
    is_elsewhere: bool,
    address: &str,
) -> Result<bool, RpcError> {
    let root = &server.resources.root;
    if !is_elsewhere && path.starts_with(root) {
        return Ok(!path.starts_with(staging_dir(server)));
    }
    let roots = server.settings.bulk_load_roots.split(',').map(str::trim).filter(|root| !root.is_empty());
    let mut is_any_named = false;
    for named in roots {
        is_any_named = true;
        let (named, on_other_disk) = path_of(server, named)?;
        if on_other_disk.is_some() == is_elsewhere && path.starts_with(named) {
            return Ok(false);
        }
    }
    if is_any_named || is_elsewhere {
        return Err(errors::invalid(format!(
            "{address} is not below a directory that halcyon.bulkload.roots of this server names"
        )));
    }
    // Not the whole disk, if the root directory is at its top.
    let beside = root.parent().filter(|parent| parent.parent().is_some());
    let is_beside = beside.is_some_and(|parent| path.starts_with(parent));
    Ok(!server.env.fs.is_remote() && !is_beside)
}

/// The path that an address of a client stands for, and its file system if that is not the root directory's.
fn path_of(server: &RegionServer, address: &str) -> Result<(PathBuf, Option<Env>), RpcError> {
    let is_remote = server.env.fs.is_remote();
    let (path, from) = match address.split_once(':') {
        Some(("file", path)) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            let local = is_remote.then(|| Env { fs: Arc::new(RealFileSystem), ..server.env.clone() });
            (path, local)
        }
        Some((scheme, rest)) if !scheme.contains('/') => {
            let authority = rest.strip_prefix("//").unwrap_or_default();
            let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
            if server.env.fs.address().as_deref() != Some(&*format!("{scheme}://{authority}")) {
                let own = server.env.fs.address().unwrap_or_else(|| "file:".to_string());
                let message =
                    format!("{address}: this server reads files of {own} and of its own disks only");
                return Err(errors::invalid(message));
            }
            (path, None)
        }
        _ => (address, None),
    };
    let path = Path::new(path);
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !is_plain {
        return Err(errors::invalid(format!("{address} is no absolute path")));
    }
    Ok((path.components().collect(), from))
}
