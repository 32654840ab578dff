//! Bulk loads of another cluster: their files are copied from there and loaded here (HBase: `HFileReplicator`).
//!
//! ```text
//! copy      <source>/data/<file>, else <source>/archive/data/<file>  ->  <root>/staging/replication__<table>__<random>
//! divide    files with rows of several regions are cut at the borders of these
//! load      BulkLoadHFile at the server of each region, with the ids of the clusters that have the files
//! ```
//!
//! A file that is nowhere at the source is passed over with a warning, as in HBase. After any other error the source sends the
//! load again; what was loaded meanwhile is then loaded twice, and equal cells replace themselves. A region takes files of all
//! families at once, so a reader sees all files of a region or none.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind};
use halcyon_client::{ClientError, Cluster, ConnectOptions, Connection};
use halcyon_env::{Env, FileSystem, RealFileSystem, random_bytes};
use halcyon_proto::pb;
use halcyon_region::{Region, RegionServices};
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableDescriptor, TableName};
use tokio::runtime::Handle;

use crate::errors::{self, invalid};
use crate::regions::resources::RegionResources;

/// HBase: `hbase.bulkload.retries.number`, of a table whose regions change meanwhile.
const ATTEMPTS_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(500);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// A load flushes the region first.
const LOAD_TIME_MAX: Duration = Duration::from_secs(60);
const STAGING: &str = "staging";

/// Opens the file system of an address of the cluster that is named second, as its configuration says. Also returns the path
/// there. *Blocking.*
pub type OpenSourceFiles = dyn Fn(&str, &str) -> Result<(Arc<dyn FileSystem>, PathBuf), String> + Send + Sync;

/// Files of one table that the same clusters have.
#[derive(Debug)]
pub(crate) struct SentLoad {
    pub(crate) table: TableName,
    pub(crate) cluster_ids: Vec<String>,
    pub(crate) files: Vec<SentFile>,
}

#[derive(Debug)]
pub(crate) struct SentFile {
    pub(crate) family: Bytes,
    /// `<namespace>/<table>/<region>/<family>/<name>`.
    pub(crate) below: PathBuf,
}

/// Where the files of a source are, by its own words.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceDirs {
    pub(crate) cluster_id: String,
    pub(crate) data: String,
    pub(crate) archive: String,
}

impl SourceDirs {
    pub(crate) fn of(request: &pb::ReplicateWalEntryRequest) -> SourceDirs {
        SourceDirs {
            cluster_id: request.replication_cluster_id().to_string(),
            data: request.source_base_namespace_dir_path().to_string(),
            archive: request.source_h_file_archive_dir_path().to_string(),
        }
    }
}

impl SentLoad {
    /// Adds what a marker tells of. `DoNotRetryIOException` for names that are no names of files.
    pub(super) fn add(
        loads: &mut Vec<SentLoad>,
        table: &TableName,
        load: &pb::BulkLoadDescriptor,
    ) -> Result<(), RpcError> {
        let mut files = Vec::new();
        for store in &load.stores {
            for name in &store.store_file {
                let mut below: PathBuf = [table.namespace(), table.qualifier()].iter().collect();
                for part in [&load.encoded_region_name[..], &store.family_name[..], name.as_bytes()] {
                    below.push(plain_name(part)?);
                }
                files.push(SentFile { family: store.family_name.clone(), below });
            }
        }
        let same = |other: &&mut SentLoad| other.table == *table && other.cluster_ids == load.cluster_ids;
        match loads.iter_mut().find(same) {
            Some(load) => load.files.extend(files),
            None => {
                let cluster_ids = load.cluster_ids.clone();
                loads.push(SentLoad { table: table.clone(), cluster_ids, files });
            }
        }
        Ok(())
    }
}

fn plain_name(part: &[u8]) -> Result<&str, RpcError> {
    let name = std::str::from_utf8(part).ok().filter(|name| {
        let mut parts = Path::new(name).components();
        matches!((parts.next(), parts.next()), (Some(Component::Normal(only)), None) if only == *name)
    });
    name.ok_or_else(|| {
        invalid(format!("a bulk load names '{}', which is no name of a file", part.escape_ascii()))
    })
}

/// A file of the staging directory.
#[derive(Clone)]
struct Staged {
    family: Bytes,
    path: PathBuf,
    first_row: Bytes,
    last_row: Bytes,
}

/// Does the loads of one request, one after the other. Of one thread, which it blocks.
pub(super) struct Loader<'a> {
    pub(super) resources: &'a RegionResources,
    pub(super) open: Option<&'a OpenSourceFiles>,
    pub(super) cluster: &'a Cluster,
    pub(super) threads: &'a Handle,
    pub(super) source: &'a SourceDirs,
}

impl Loader<'_> {
    /// How many files were loaded.
    pub(super) fn load(&self, load: &SentLoad) -> Result<usize, RpcError> {
        let table = self.table(load)?;
        let dir = self.begin_staging(&load.table)?;
        let loaded = self.stage(load, &dir).and_then(|staged| {
            let count = staged.len();
            self.load_staged(load, &table, &dir, staged).map(|()| count)
        });
        if let Err(error) = self.resources.env.fs.remove_dir_all(&dir) {
            tracing::warn!(dir = %dir.display(), %error, "files of a replicated bulk load are left");
        }
        loaded
    }

    /// The table's descriptor, with all families of the load.
    fn table(&self, load: &SentLoad) -> Result<TableDescriptor, RpcError> {
        let found = TableDescriptor::read_newest(&*self.resources.env.fs, &self.resources.root, &load.table);
        let Some((table, _)) = found.map_err(|error| errors::to_rpc(&error))? else {
            return Err(RpcError::table_not_found(format!("'{}'", load.table)));
        };
        if let Some(missing) = load.files.iter().find(|file| table.family(&file.family).is_none()) {
            let family = missing.family.escape_ascii();
            return Err(RpcError::no_such_column_family(format!(
                "{family} of a bulk load of {}",
                load.table
            )));
        }
        Ok(table)
    }

    fn begin_staging(&self, table: &TableName) -> Result<PathBuf, RpcError> {
        let random: String = random_bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("replication__{}_{}__{random}", table.namespace(), table.qualifier());
        let dir = self.resources.root.join(STAGING).join(name);
        self.resources.env.fs.create_dir_all(&dir).map_err(|error| errors::to_rpc(&error.into()))?;
        Ok(dir)
    }

    /// Copies the files of the source.
    fn stage(&self, load: &SentLoad, dir: &Path) -> Result<Vec<Staged>, RpcError> {
        let mut places = Vec::new();
        for address in [&self.source.data, &self.source.archive] {
            places.push(self.files_of(address)?);
        }
        let services = self.services(&load.table)?;
        let mut staged = Vec::new();
        for (number, file) in load.files.iter().enumerate() {
            let to = dir
                .join(format!("{number}-{}", file.below.file_name().unwrap_or_default().to_string_lossy()));
            let is_copied = self.copy(&places, &file.below, &to).map_err(|error| errors::to_rpc(&error))?;
            if !is_copied {
                let (file, source) = (file.below.display(), &self.source.data);
                tracing::warn!(%file, source, "a file of a replicated bulk load is gone at the source, and is passed over");
                continue;
            }
            let rows = Region::rows_of_file(&services, &to);
            if let Some((first_row, last_row)) = rows.map_err(|error| unusable(&file.below, error))? {
                staged.push(Staged { family: file.family.clone(), path: to, first_row, last_row });
            }
        }
        Ok(staged)
    }

    fn copy(
        &self,
        places: &[(Arc<dyn FileSystem>, PathBuf)],
        below: &Path,
        to: &Path,
    ) -> halcyon_cell::Result<bool> {
        // It may have moved to the archive between the two looks, but not back.
        for (fs, dir) in places {
            match fs.open(&dir.join(below)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => {
                    Region::copy_to_new(&self.resources.env, &*opened?, to)?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn files_of(&self, address: &str) -> Result<(Arc<dyn FileSystem>, PathBuf), RpcError> {
        let Env { fs, .. } = &self.resources.env;
        let own =
            fs.address().and_then(|own| address.strip_prefix(&*own)).filter(|path| path.starts_with('/'));
        if let Some(path) = own {
            return Ok((Arc::clone(fs), path.into()));
        }
        let local = address.strip_prefix("file:").map(|path| path.strip_prefix("//").unwrap_or(path));
        if let Some(path) = local.filter(|path| path.starts_with('/')) {
            let fs = if fs.is_remote() { Arc::new(RealFileSystem) } else { Arc::clone(fs) };
            return Ok((fs, path.into()));
        }
        let opened = match self.open {
            Some(open) => open(address, &self.source.cluster_id),
            None => Err("this server reads files of its own file system only".to_string()),
        };
        let id = &self.source.cluster_id;
        opened.map_err(|why| {
            RpcError::io(format!("files of a bulk load in {address:?} of cluster {id:?}: {why}"))
        })
    }

    /// Of no certain region: files and cache are used.
    fn services(&self, table: &TableName) -> Result<RegionServices, RpcError> {
        let region = RegionInfo::new(table.clone(), Bytes::new(), Bytes::new(), 1);
        self.resources.services(&region).map_err(|error| errors::to_rpc(&error))
    }

    fn load_staged(
        &self,
        load: &SentLoad,
        table: &TableDescriptor,
        dir: &Path,
        mut left: Vec<Staged>,
    ) -> Result<(), RpcError> {
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                self.threads.block_on(tokio::time::sleep(PAUSE));
            }
            let mut again = Vec::new();
            for (region, (server, files)) in self.divide(table, dir, std::mem::take(&mut left))? {
                if !self.load_region(load, &region, &server, &files)? {
                    again.extend(files);
                }
            }
            if again.is_empty() {
                return Ok(());
            }
            left = again;
        }
        let (files, table) = (left.len(), &load.table);
        Err(RpcError::io(format!("{files} files of a bulk load found no region of {table} that took them")))
    }

    /// The files of each region and the region's server. Files with rows of several regions are cut.
    fn divide(
        &self,
        table: &TableDescriptor,
        dir: &Path,
        files: Vec<Staged>,
    ) -> Result<BTreeMap<RegionInfo, (String, Vec<Staged>)>, RpcError> {
        let mut regions: BTreeMap<RegionInfo, (String, Vec<Staged>)> = BTreeMap::new();
        for file in files {
            let mut row = file.first_row.clone();
            loop {
                let known = regions.iter().find(|(region, _)| region.contains_row(&row));
                let (region, server) = match known {
                    Some((region, (server, _))) => (region.clone(), server.clone()),
                    None => self.locate(table.name(), &row)?,
                };
                let is_last = region.contains_row(&file.last_row);
                let part = match is_last && row == file.first_row {
                    true => Some(file.clone()),
                    false => self.cut(table, &region, &file, dir)?,
                };
                row = region.end_key().clone();
                regions.entry(region).or_insert_with(|| (server, Vec::new())).1.extend(part);
                if is_last {
                    break;
                }
            }
        }
        regions.retain(|_, (_, files)| !files.is_empty());
        Ok(regions)
    }

    fn cut(
        &self,
        table: &TableDescriptor,
        region: &RegionInfo,
        file: &Staged,
        dir: &Path,
    ) -> Result<Option<Staged>, RpcError> {
        let random: String = random_bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
        let (services, to) = (self.services(table.name())?, dir.join(random));
        let cut = || {
            let missing = || Error::new(ErrorKind::NoSuchFamily, "the family was removed");
            let family = table.family(&file.family).ok_or_else(missing)?;
            if !Region::cut_for_load(&services, table, region, (family, &file.path), &to)? {
                return Ok(None);
            }
            Region::rows_of_file(&services, &to)
        };
        let rows = cut().map_err(|error| errors::to_rpc(&error))?;
        Ok(rows.map(|(first_row, last_row)| Staged {
            family: file.family.clone(),
            path: to,
            first_row,
            last_row,
        }))
    }

    fn locate(&self, table: &TableName, row: &[u8]) -> Result<(RegionInfo, String), RpcError> {
        let found = self.threads.block_on(self.cluster.read_location(table, row, 0));
        let found = found.map_err(|error| super::sink::to_rpc(&error, Some(table)))?;
        found.ok_or_else(|| RpcError::io(format!("{table} has no open region for '{}'", row.escape_ascii())))
    }

    /// False: the region is elsewhere by now, or has other borders.
    fn load_region(
        &self,
        load: &SentLoad,
        region: &RegionInfo,
        server: &str,
        files: &[Staged],
    ) -> Result<bool, RpcError> {
        let address = self.resources.env.fs.address().unwrap_or_default();
        let path = |file: &Staged| pb::bulk_load_h_file_request::FamilyPath {
            family: file.family.clone(),
            path: format!("{address}{}", file.path.display()),
        };
        let request = pb::BulkLoadHFileRequest {
            region: pb::RegionSpecifier { r#type: 1, value: region.region_name().clone() },
            family_path: files.iter().map(path).collect(),
            assign_seq_num: Some(true),
            copy_file: Some(false),
            cluster_ids: load.cluster_ids.clone(),
            replicate: Some(true),
            ..Default::default()
        };
        let called = self.threads.block_on(async {
            let options = ConnectOptions::new("ClientService");
            let connecting = Connection::connect(server, &options);
            let connection = tokio::time::timeout(CONNECT_TIME_MAX, connecting).await.map_err(|_| {
                ClientError::from(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("{server} does not answer"),
                ))
            })??;
            let answer =
                connection.call_with_cells("BulkLoadHFile", &request, None, Some(LOAD_TIME_MAX)).await?;
            <pb::BulkLoadHFileResponse as prost::Message>::decode(answer.message)
                .map_err(|error| ClientError::Malformed(error.to_string()))
        });
        match called {
            Ok(answer) => Ok(answer.loaded),
            Err(error) if is_elsewhere(&error) => Ok(false),
            Err(error) => Err(super::sink::to_rpc(&error, Some(&load.table))),
        }
    }
}

fn is_elsewhere(error: &ClientError) -> bool {
    ["NotServingRegionException", "RegionMovedException", "RegionOpeningException", "WrongRegionException"]
        .iter()
        .any(|class| error.is_exception(class))
}

/// A file that is no HFile is none at the next attempt either, unless it was copied wrong.
fn unusable(file: &Path, error: Error) -> RpcError {
    errors::to_rpc(&error.context(format!("{} of a replicated bulk load", file.display())))
}
