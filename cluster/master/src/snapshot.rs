//! Snapshots on disk, in HBase's layout.
//!
//! ```text
//! .hbase-snapshot/<name>/.snapshotinfo    SnapshotDescription
//! .hbase-snapshot/<name>/data.manifest    SnapshotDataManifest: the schema; of each region its info and file names
//! .hbase-snapshot/.tmp/<name>/            the same while it is being written; renamed when it is whole
//! ```
//!
//! A snapshot copies nothing: it names store files, which stay in the table's directory or go to the archive. While one is
//! being taken the cleaner leaves all store files of the archive (`cleaner.rs`), since nobody else knows what it has named
//! so far. What it names is looked for again before it gets its name.
//! What uses a snapshot copies them from there. (HBase makes links instead; a link is a name that every reader of
//! store files must know how to follow, a copy is a store file like any other.)

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Error, Result};
use halcyon_contract::RegionFiles;
use halcyon_env::{FileSystem, ReadableFile};
use halcyon_proto::pb;
use halcyon_schema::{FamilyDescriptor, RegionInfo, TableDescriptor, TableName, layout};
use prost::Message;
use tracing::warn;

use crate::descriptors::list;
use crate::links::Link;
use crate::mob;
use crate::parallel;
use crate::placement::{Place, recovering};
use crate::regions;
use crate::scratch;
use crate::state::MasterState;

const INFO: &str = ".snapshotinfo";
const MANIFEST: &str = "data.manifest";
/// The layout with a manifest (`SnapshotManifestV2`).
pub(crate) const LAYOUT_VERSION: i32 = 2;
/// Looks at a directory that keeps changing.
const LOOKS_MAX: usize = 100;
/// Between looks at a region whose bulk load is being placed.
const LOAD_PAUSE: Duration = Duration::from_millis(50);

fn dir(core: &MasterState, name: &str) -> PathBuf {
    layout::snapshots_dir(&core.root).join(name)
}

/// The description of a complete snapshot, if there is one of this name.
pub(crate) fn read_info(core: &MasterState, name: &str) -> Result<Option<pb::SnapshotDescription>> {
    let is_name = halcyon_schema::check_table_qualifier(name.as_bytes())
        .and_then(|()| halcyon_schema::check_file_name("A snapshot", name));
    if is_name.is_err() {
        return Ok(None); // no snapshot has such a name, and no path is made of it
    }
    let path = dir(core, name).join(INFO);
    if !core.env.fs.exists(&path)? {
        return Ok(None);
    }
    decode(&path, &core.env.fs.read(&path)?).map(Some)
}

pub(crate) fn read_manifest(core: &MasterState, name: &str) -> Result<pb::SnapshotDataManifest> {
    let path = dir(core, name).join(MANIFEST);
    match core.env.fs.read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::invalid(format!("Snapshot '{name}' doesn't exist on the filesystem")))
        }
        bytes => decode(&path, &bytes?),
    }
}

fn decode<M: Message + Default>(path: &Path, bytes: &[u8]) -> Result<M> {
    M::decode(bytes).map_err(|error| Error::corrupt(format!("{}: {error}", path.display())))
}

/// Every complete snapshot; one that cannot be read is named in the log and left out.
pub(crate) fn list_infos(core: &MasterState) -> Result<Vec<pb::SnapshotDescription>> {
    let mut infos = Vec::new();
    for entry in list(&*core.env.fs, &layout::snapshots_dir(&core.root))? {
        if !entry.is_dir || entry.name.starts_with('.') {
            continue;
        }
        match read_info(core, &entry.name) {
            Ok(info) => infos.extend(info),
            Err(error) => warn!(snapshot = entry.name, %error, "a snapshot cannot be read"),
        }
    }
    Ok(infos)
}

/// Writes a snapshot of these regions as their files are now. May run twice.
pub(crate) fn write(
    core: &MasterState,
    info: &pb::SnapshotDescription,
    table: &TableDescriptor,
    regions: &[RegionInfo],
) -> Result<()> {
    let fs = &*core.env.fs;
    let complete = dir(core, &info.name);
    if fs.exists(&complete)? {
        return Ok(());
    }
    let mut manifest = pb::SnapshotDataManifest { table_schema: table.to_pb(), region_manifests: Vec::new() };
    let mut mob_files = mob::snapshots::Listing::new();
    mob::snapshots::add_listing(core, table, &mut mob_files)?;
    for region in regions {
        manifest.region_manifests.push(manifest_of(core, table, region)?);
    }
    mob::snapshots::add_listing(core, table, &mut mob_files)?;
    manifest.region_manifests.extend(mob::snapshots::manifest_of(table, mob_files));
    verify(core, table, &manifest, regions)?;
    let own = scratch::snapshots_dir(core)?;
    let working = own.join(&info.name);
    // Not its parent with it: a request to make that, which comes late, would give a late rename its target.
    match fs.create_dir(&working) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    fs.sync_dir(&own)?;
    fs.replace(&working.join(MANIFEST), &manifest.encode_to_vec())?;
    fs.replace(&working.join(INFO), &info.encode_to_vec())?;
    fs.rename(&working, &complete)?;
    fs.sync_dir(&own)?;
    Ok(fs.sync_dir(&layout::snapshots_dir(&core.root))?)
}

/// Corrupt if the manifest names a file that is nowhere, or another one than it says (HBase: `MasterSnapshotVerifier`).
fn verify(
    core: &MasterState,
    table: &TableDescriptor,
    manifest: &pb::SnapshotDataManifest,
    regions: &[RegionInfo],
) -> Result<()> {
    check_files(core, copies(core, table.name(), table, manifest, regions)?)?;
    mob::snapshots::check(core, &mob::snapshots::named(table.name(), manifest)?)
}

/// Names of all store files that snapshots name, complete ones and those being written. An unreadable manifest is
/// an error: what it names must not be deleted.
pub(crate) fn named_files(core: &MasterState) -> Result<HashSet<String>> {
    let fs = &*core.env.fs;
    let root = layout::snapshots_dir(&core.root);
    let (mut names, tmp) = (HashSet::new(), root.join(".tmp"));
    // Those of HBase's, and of masters of earlier programs, are in `.tmp` itself.
    let of_masters = list(fs, &tmp)?.into_iter().filter(|entry| entry.is_dir);
    let of_masters: Vec<PathBuf> = of_masters.map(|entry| tmp.join(entry.name)).collect();
    for parent in of_masters.into_iter().chain([tmp, root]) {
        for entry in list(fs, &parent)?.into_iter().filter(|entry| entry.is_dir && entry.name != ".tmp") {
            let path = parent.join(entry.name).join(MANIFEST);
            let bytes = match fs.read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue, // renamed or deleted meanwhile
                bytes => bytes?,
            };
            let manifest: pb::SnapshotDataManifest = decode(&path, &bytes)?;
            let families = manifest.region_manifests.into_iter().flat_map(|region| region.family_files);
            for file in families.flat_map(|family| family.store_files) {
                // A reference needs its parent's file, and a link that of its table, wherever that is.
                let of = layout::parse_reference_name(&file.name).map_or(&*file.name, |(file, _)| file);
                let link = layout::parse_link_name(of).or_else(|| layout::parse_mob_link_name(of));
                names.insert(link.map_or(of, |(_, _, file)| file).to_string());
                names.insert(file.name);
            }
        }
    }
    Ok(names)
}

/// Invalid if a region that is not open has edits in its `recovered.edits`, or files of a bulk load that its next opening
/// places, so that the files in its stores are not all of it. `Busy` while its server is recovered: until the WALs are split it has no such
/// edits.
pub(crate) fn check_unreplayed(core: &MasterState, regions: &[RegionInfo]) -> Result<()> {
    let online = core.online_regions()?;
    let online: HashSet<&str> = online.iter().map(RegionInfo::encoded_name).collect();
    for region in regions.iter().filter(|region| !online.contains(region.encoded_name())) {
        if let Place::Recovering(server) = core.place_of(region)
            && regions::was_open(core, region)
        {
            return Err(recovering(region, &server));
        }
        let mut edits = list(&*core.env.fs, &region.dir(&core.root).join(layout::RECOVERED_EDITS))?;
        let wals = &core.cluster.wals;
        if !wals.is_root {
            edits.extend(list(&*wals.env.fs, &region.dir(&wals.root).join(layout::RECOVERED_EDITS))?);
        }
        // `.seqid` files are markers of HBase's, `.temp` files those of a recovery that is not complete. Nonces are no edits.
        // What was set aside because it is damaged is replayed by nobody.
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let is_aside = |name: &str| name.split_once('.').is_some_and(|(a, b)| is_number(a) && is_number(b));
        let is_marker =
            |name: &str| name.ends_with(".seqid") || name == layout::NONCES_FILE || is_aside(name);
        if edits.iter().any(|file| !file.is_dir && file.len > 0 && !is_marker(&file.name)) {
            return Err(Error::invalid(format!(
                "{region} is not open and has recovered edits that were not replayed: a snapshot would lack them. \
                 Assign the region first"
            )));
        }
        if core.cluster.files.has_unplaced_load(region)? {
            return Err(Error::invalid(format!(
                "{region} is not open and has files of a bulk load that are not in their stores yet. Assign the region first"
            )));
        }
    }
    Ok(())
}

/// Removes what [`write`] left of a snapshot that is not complete. May run twice.
pub(crate) fn delete_working(core: &MasterState, name: &str) -> Result<()> {
    let working = core.own_snapshots_dir.lock().join(name);
    crate::archive::remove_dir(&*core.env.fs, &working)
}

/// Deletes a snapshot: at once for everybody who looks for it, then its files. May run twice. An error for a master that was deposed: the
/// directory through which it goes was taken away.
pub(crate) fn delete(core: &MasterState, name: &str) -> Result<()> {
    let (fs, complete, leaving) = (&*core.env.fs, dir(core, name), scratch::snapshots_dir(core)?.join(name));
    if fs.exists(&complete)? {
        crate::archive::remove_dir(fs, &leaving)?;
        fs.rename(&complete, &leaving)?;
        fs.sync_dir(&layout::snapshots_dir(&core.root))?;
    }
    crate::archive::remove_dir(fs, &leaving)
}

fn manifest_of(
    core: &MasterState,
    table: &TableDescriptor,
    region: &RegionInfo,
) -> Result<pb::SnapshotRegionManifest> {
    let mut family_files = Vec::new();
    let stores = steady_stores(core, table, region)?;
    assert_eq!(stores.len(), table.families().len(), "a snapshot of {region} has all families");
    for (family, files) in table.families().iter().zip(stores) {
        let mut store_files = Vec::new();
        for (name, mut len) in files {
            if let Some((table, owner, file)) = layout::parse_link_name(&name) {
                let place = Path::new(&*family.name_str()).join(file);
                let live = layout::region_dir(&core.root, &table, owner).join(&place);
                let archived = layout::archive_region_dir(&core.root, &table, owner).join(&place);
                len = open_either(&*core.env.fs, &live, &archived)?.len()?;
            }
            let reference = match layout::parse_reference_name(&name) {
                Some(_) => Some(read_reference(core, region, &family.name_str(), &name)?),
                None => None,
            };
            let file_size = Some(len);
            store_files.push(pb::snapshot_region_manifest::StoreFile { name, reference, file_size });
        }
        let family_name = family.name().clone();
        family_files.push(pb::snapshot_region_manifest::FamilyFiles { family_name, store_files });
    }
    Ok(pb::SnapshotRegionManifest { version: None, region_info: region.to_pb(), family_files })
}

/// Reads a reference, which a compaction may have sent to the archive meanwhile.
fn read_reference(
    core: &MasterState,
    region: &RegionInfo,
    family: &str,
    name: &str,
) -> Result<pb::Reference> {
    let fs = &*core.env.fs;
    let path = region.dir(&core.root).join(family).join(name);
    let archived = layout::archive_region_dir(&core.root, region.table(), region.encoded_name());
    let bytes = fs.read(&path).or_else(|_| fs.read(&archived.join(family).join(name)))?;
    let message = bytes.strip_prefix(&halcyon_proto::PB_MAGIC[..]);
    decode(&path, message.ok_or_else(|| Error::corrupt(format!("{} is no reference", path.display())))?)
}

/// Names and bytes of the files of one store.
type StoreFiles = Vec<(String, u64)>;

/// The store files of each family of a region that compactions, flushes and bulk loads may be changing.
///
/// A compaction puts its output in before it takes its inputs out, so a look that sees the same as the one before it has
/// missed neither. (Output and inputs may both be seen; a region that opens them finds that out.) A flush or a bulk load of
/// several families places file by file. So all families are looked at together, and no look counts while files of a load
/// are being placed: a snapshot has all of a load or nothing.
fn steady_stores(
    core: &MasterState,
    table: &TableDescriptor,
    region: &RegionInfo,
) -> Result<Vec<StoreFiles>> {
    let look = || -> Result<Option<Vec<StoreFiles>>> {
        if core.cluster.files.has_unplaced_load(region)? {
            return Ok(None);
        }
        table
            .families()
            .iter()
            .map(|family| store_files(core, table, region, family))
            .collect::<Result<_>>()
            .map(Some)
    };
    let mut before = look()?;
    for _ in 0..LOOKS_MAX {
        let now = look()?;
        match now {
            Some(now) if Some(&now) == before.as_ref() => return Ok(now),
            None => core.env.clock.sleep(LOAD_PAUSE),
            Some(_) => {}
        }
        before = now;
    }
    let state = if before.is_some() {
        "keeps changing"
    } else {
        "has a bulk load whose files are not in their stores"
    };
    Err(Error::new(halcyon_cell::ErrorKind::Busy, format!("{region} {state}")))
}

fn store_files(
    core: &MasterState,
    table: &TableDescriptor,
    region: &RegionInfo,
    family: &FamilyDescriptor,
) -> Result<StoreFiles> {
    if let Some(listed) = core.cluster.files.listed_store_files(region, table, family)? {
        return Ok(listed);
    }
    let dir = region.dir(&core.root).join(&*family.name_str());
    let files =
        list(&*core.env.fs, &dir)?.into_iter().filter(|file| !file.is_dir && !file.name.starts_with('.'));
    Ok(files.map(|file| (file.name, file.len)).collect())
}

/// A store file of a snapshot: where it is, and where a copy of it goes.
pub(crate) struct FileCopy {
    /// With its table; where it goes from there is the archive.
    live: PathBuf,
    archived: PathBuf,
    target: PathBuf,
    /// What stands for the file instead, where it cannot have a second name.
    link: Link,
    /// The region that gets it.
    region: RegionInfo,
    /// The snapshot has a reference to the file: only the region's own rows are copied.
    by_rows: bool,
    /// As the manifest says.
    len: Option<u64>,
}

/// What has to be copied to fill `targets`, regions of the table `table`, from a snapshot of `source`. Corrupt if a region
/// of the snapshot has no place among them, or a family none in the table.
pub(crate) fn copies(
    core: &MasterState,
    source: &TableName,
    table: &TableDescriptor,
    manifest: &pb::SnapshotDataManifest,
    targets: &[RegionInfo],
) -> Result<Vec<FileCopy>> {
    let mut copies = Vec::new();
    let by_range: HashMap<_, _> =
        targets.iter().map(|target| ((target.start_key(), target.end_key()), target)).collect();
    for (from, region) in live_regions(manifest)? {
        let to = by_range
            .get(&(from.start_key(), from.end_key()))
            .copied()
            .ok_or_else(|| Error::corrupt(format!("no region takes the range of {from}")))?;
        for family in &region.family_files {
            if table.family(&family.family_name).is_none() && !family.store_files.is_empty() {
                let name = family.family_name.escape_ascii();
                return Err(Error::corrupt(format!(
                    "{from} has files of family {name}, which the table lacks"
                )));
            }
            let family_name = String::from_utf8_lossy(&family.family_name).into_owned();
            for file in &family.store_files {
                let (name, owner) =
                    layout::parse_reference_name(&file.name).unwrap_or((&file.name, from.encoded_name()));
                let own = (source.clone(), owner, name);
                let (table, owner, name) = layout::parse_link_name(name).unwrap_or(own);
                let place = Path::new(&family_name).join(name);
                copies.push(FileCopy {
                    live: layout::region_dir(&core.root, &table, owner).join(&place),
                    archived: layout::archive_region_dir(&core.root, &table, owner).join(&place),
                    target: to.dir(&core.root).join(&place),
                    link: Link::new(&core.root, (&table, owner, name), to, &family_name),
                    region: to.clone(),
                    by_rows: file.reference.is_some(),
                    len: file.file_size.filter(|_| file.reference.is_none()),
                });
            }
        }
    }
    Ok(copies)
}

/// Corrupt if a file is neither with its table nor in the archive, or has not the length that the manifest says.
pub(crate) fn check_files(core: &MasterState, copies: Vec<FileCopy>) -> Result<()> {
    let fs = core.env.fs.clone();
    parallel::for_each(core.settings.region_threads, copies, move |copy| {
        let found = open_either(&*fs, &copy.live, &copy.archived)?.len()?;
        match copy.len {
            Some(len) if len != found => {
                let path = copy.live.display();
                Err(Error::corrupt(format!("{path} has {found} bytes, the snapshot's manifest says {len}")))
            }
            _ => Ok(()),
        }
    })?;
    Ok(())
}

/// Brings files into regions that exist already: under a second name or as a link, and as a copy what a reference shows, or what no link
/// can name. May run twice.
pub(crate) fn copy_files(core: &MasterState, table: &TableDescriptor, copies: Vec<FileCopy>) -> Result<()> {
    let (fs, files, table) = (core.env.fs.clone(), core.cluster.files.clone(), Arc::new(table.clone()));
    parallel::for_each(core.settings.region_threads, copies, move |copy| {
        if !copy.by_rows {
            return place_file(&*fs, &*files, &copy);
        }
        // In this order: a file goes from the one place to the other.
        let Some(from) = fs.first_existing([&*copy.live, &*copy.archived])? else {
            return Err(Error::invalid(format!("what {} was copied from is gone", copy.target.display())));
        };
        files.copy_rows(&table, &copy.region, from, &copy.target)
    })?;
    Ok(())
}

/// Opens a file where it is, now or by the time it is looked for in the other place.
fn open_either(fs: &dyn FileSystem, live: &Path, archived: &Path) -> Result<Arc<dyn ReadableFile>> {
    let opened = fs.open(live).or_else(|_| fs.open(archived)).or_else(|_| fs.open(live));
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::corrupt(format!("{} is neither there nor archived", live.display()))
        }
        _ => Error::from(error),
    })
}

/// Lets a region have a file of another one.
fn place_file(fs: &dyn FileSystem, files: &dyn RegionFiles, copy: &FileCopy) -> Result<()> {
    if has_name(fs, &copy.live, &copy.archived, &copy.target)? {
        return Ok(());
    }
    let from = open_either(fs, &copy.live, &copy.archived)?;
    if !copy.link.can_be_named() {
        warn!(file = %copy.target.display(), "a file of a snapshot is copied: the name of a link to it would be too long");
        return files.copy_file(&*from, &copy.target);
    }
    copy.link.make(fs, files)
}

/// Lets a table have one of its own files again, from where the file is, now or by the time it is looked for in the other place.
pub(crate) fn copy_file(
    fs: &dyn FileSystem,
    files: &dyn RegionFiles,
    live: &Path,
    archived: &Path,
    to: &Path,
) -> Result<()> {
    if has_name(fs, live, archived, to)? {
        return Ok(());
    }
    files.copy_file(&*open_either(fs, live, archived)?, to)
}

/// Whether the file has the name `to`, from an earlier attempt or by `link_either`. If so, the name is durable.
fn has_name(fs: &dyn FileSystem, live: &Path, archived: &Path, to: &Path) -> Result<bool> {
    if !fs.exists(to)? && !link_either(fs, live, archived, to)? {
        return Ok(false);
    }
    if let Some(dir) = to.parent() {
        fs.sync_dir(dir)?;
    }
    Ok(true)
}

/// Gives the file a second name, where the file system knows such. A store file never changes, so two regions can have it; it stays
/// until both have done with it.
fn link_either(fs: &dyn FileSystem, live: &Path, archived: &Path, to: &Path) -> Result<bool> {
    for from in [live, archived, live] {
        match fs.link(from, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            linked => return Ok(linked?),
        }
    }
    Ok(false) // whoever looks for it next says what is missing
}

/// The regions of a snapshot that hold rows. Those that were split are left out, as HBase's snapshots name them beside
/// their daughters, which refer to their files; so are replicas, and the region that stands for mob files (`mob::snapshots`).
fn live_regions(
    manifest: &pb::SnapshotDataManifest,
) -> Result<Vec<(RegionInfo, &pb::SnapshotRegionManifest)>> {
    let mut regions = Vec::new();
    for region in &manifest.region_manifests {
        let info = RegionInfo::from_pb(&region.region_info)?;
        if info.is_split() || info.is_offline() || info.replica_id() != 0 {
            continue;
        }
        if info.is_of_mob_files() {
            continue;
        }
        regions.push((info, region));
    }
    regions.sort_by(|(left, _), (right, _)| left.start_key().cmp(right.start_key()));
    Ok(regions)
}

/// The keys between the regions of a snapshot. Corrupt if they leave a gap or overlap.
pub(crate) fn split_keys(manifest: &pb::SnapshotDataManifest) -> Result<Vec<Bytes>> {
    let regions = live_regions(manifest)?;
    let (Some((first, _)), Some((last, _))) = (regions.first(), regions.last()) else {
        return Err(Error::corrupt("the snapshot has no region"));
    };
    if !first.start_key().is_empty() || !last.end_key().is_empty() {
        return Err(Error::corrupt("the regions of the snapshot do not cover all rows"));
    }
    for pair in regions.windows(2) {
        if pair[0].0.end_key() != pair[1].0.start_key() {
            let (left, right) = (&pair[0].0, &pair[1].0);
            return Err(Error::corrupt(format!("{left} and {right} of the snapshot are not neighbours")));
        }
    }
    Ok(regions.iter().skip(1).map(|(info, _)| info.start_key().clone()).collect())
}

/// Whether the time to live of a snapshot is over (`SnapshotDescriptionUtils.isExpiredSnapshot`).
pub(crate) fn is_expired(info: &pb::SnapshotDescription, now_ms: i64) -> bool {
    let (ttl_s, created_ms) = (info.ttl(), info.creation_time());
    ttl_s > 0
        && ttl_s.checked_mul(1000).and_then(|ttl| created_ms.checked_add(ttl)).is_some_and(|end| end < now_ms)
}
