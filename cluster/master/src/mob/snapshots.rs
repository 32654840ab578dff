//! Mob files of snapshots.
//!
//! A reference names the table whose mob file it is, also in a table that was made of the snapshot. So that table needs no
//! mob file of its own. What it needs is that the file stays: a link in its mob directory, and a back reference beside the
//! archived file, keep it there, for HBase's cleaner and for ours.
//!
//! ```text
//! mobdir/data/<ns>/<clone>/<mob region>/<family>/[<ns>=]<table>=<mob region>-<file>    empty
//! archive/data/<ns>/<table>/<mob region>/<family>/.links-<file>/<mob region>.<clone>   empty
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use halcyon_cell::{Error, Result};
use halcyon_proto::pb;
use halcyon_schema::{FILE_NAME_LEN_MAX, MobFileName, RegionInfo, TableDescriptor, TableName, layout};

use super::{families, files_of};
use crate::descriptors::list;
use crate::snapshot::copy_file;
use crate::state::MasterState;

/// Mob files of the families of a table, by family; taken before and after its regions are looked at.
pub(crate) type Listing = BTreeMap<String, BTreeMap<String, u64>>;

/// Adds the mob files that are there now. A store file that a compaction puts in place between two listings refers to what is in
/// one of them.
pub(crate) fn add_listing(core: &MasterState, table: &TableDescriptor, listing: &mut Listing) -> Result<()> {
    for family in families(core, table)? {
        let family = family.name_str().into_owned();
        let files = files_of(core, table.name(), &family)?.into_iter();
        let is_mob =
            |name: &str| MobFileName::parse(name).is_some() || layout::parse_mob_link_name(name).is_some();
        listing.entry(family).or_default().extend(files.filter(|(name, _)| is_mob(name)));
    }
    Ok(())
}

/// The mob region in a snapshot's manifest; `None` if no family has had `IS_MOB`.
pub(crate) fn manifest_of(table: &TableDescriptor, listing: Listing) -> Option<pb::SnapshotRegionManifest> {
    let info = RegionInfo::of_mob_files(table.name());
    let family_files = listing.into_iter().map(|(family, files)| {
        let store_files = files.into_iter().map(|(name, len)| pb::snapshot_region_manifest::StoreFile {
            name,
            reference: None,
            file_size: Some(len),
        });
        pb::snapshot_region_manifest::FamilyFiles {
            family_name: family.into_bytes().into(),
            store_files: store_files.collect(),
        }
    });
    let family_files: Vec<_> = family_files.collect();
    (!family_files.is_empty()).then(|| pb::SnapshotRegionManifest {
        version: None,
        region_info: info.to_pb(),
        family_files,
    })
}

/// A mob file that a snapshot names.
pub(crate) struct MobFile {
    /// The table whose it is.
    owner: TableName,
    family: String,
    name: String,
    /// As the manifest says; `None` of a link.
    len: Option<u64>,
}

impl MobFile {
    fn live(&self, core: &MasterState) -> PathBuf {
        layout::mob_family_dir(&core.root, &self.owner, &self.family).join(&self.name)
    }

    fn archived(&self, core: &MasterState) -> PathBuf {
        layout::mob_archive_dir(&core.root, &self.owner, &self.family).join(&self.name)
    }
}

/// The mob files that a snapshot of `source` names. Corrupt if a name is none of a mob file.
pub(crate) fn named(source: &TableName, manifest: &pb::SnapshotDataManifest) -> Result<Vec<MobFile>> {
    let mut files = Vec::new();
    for region in &manifest.region_manifests {
        if !RegionInfo::from_pb(&region.region_info)?.is_of_mob_files() {
            continue;
        }
        for family in &region.family_files {
            let family_name = String::from_utf8_lossy(&family.family_name).into_owned();
            for file in &family.store_files {
                let (owner, name, len) = match layout::parse_mob_link_name(&file.name) {
                    Some((owner, _, name)) => (owner, name, None),
                    None => (source.clone(), &*file.name, file.file_size),
                };
                if MobFileName::parse(name).is_none() {
                    let name = name.escape_default();
                    return Err(Error::corrupt(format!(
                        "'{name}' of the snapshot's mob region is no mob file"
                    )));
                }
                files.push(MobFile { owner, family: family_name.clone(), name: name.to_string(), len });
            }
        }
    }
    Ok(files)
}

/// Corrupt if a file is neither in its table's mob directory nor in the archive, or has not the length that the manifest says.
pub(crate) fn check(core: &MasterState, files: &[MobFile]) -> Result<()> {
    let fs = &*core.env.fs;
    for file in files {
        let (live, archived) = (file.live(core), file.archived(core));
        let opened = fs.open(&live).or_else(|_| fs.open(&archived)).or_else(|_| fs.open(&live));
        let found = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::corrupt(format!("{} is neither there nor archived", live.display())));
            }
            opened => opened?.len()?,
        };
        if file.len.is_some_and(|len| len != found) {
            let (path, len) = (live.display(), file.len.unwrap_or_default());
            return Err(Error::corrupt(format!(
                "{path} has {found} bytes, the snapshot's manifest says {len}"
            )));
        }
    }
    Ok(())
}

/// Invalid if a link that `table` needs, or the reference back to it, would have a name that is too long for a file. HBase finds that out
/// when it writes them, and takes back what it has made. A copy would be of no use: the references name the table of the file.
pub(crate) fn check_links(table: &TableName, files: &[MobFile]) -> Result<()> {
    let mob_region = |table: &TableName| RegionInfo::of_mob_files(table).encoded_name().to_string();
    let back = layout::back_reference_name(table, &mob_region(table));
    for file in files.iter().filter(|file| file.owner != *table) {
        let link = layout::link_name(&file.owner, &mob_region(&file.owner), &file.name);
        if let Some(name) = [&link, &back].into_iter().find(|name| name.len() > FILE_NAME_LEN_MAX) {
            return Err(Error::invalid(format!(
                "A table of the snapshot keeps mob files of {} by links, whose names have the names of tables in them. One would have {} \
                 bytes, and names of files have {FILE_NAME_LEN_MAX} at most: {name}",
                file.owner,
                name.len()
            )));
        }
    }
    Ok(())
}

/// Makes the mob files of a snapshot those of `table`: its own come back from the archive, others are linked. May run twice.
pub(crate) fn restore(core: &MasterState, table: &TableName, files: &[MobFile]) -> Result<()> {
    let fs = &*core.env.fs;
    for file in files {
        let dir = layout::mob_family_dir(&core.root, table, &file.family);
        fs.create_dir_all(&dir)?;
        if file.owner == *table {
            let to = dir.join(&file.name);
            copy_file(fs, &*core.cluster.files, &file.live(core), &file.archived(core), &to)?;
            continue;
        }
        // First the back reference: a link without one would let HBase's cleaner take the file.
        let back = back_references(core, &file.owner, &file.family, &file.name);
        let mob_region = |table: &TableName| RegionInfo::of_mob_files(table).encoded_name().to_string();
        fs.create_dir_all(&back)?;
        make_empty(core, &back.join(layout::back_reference_name(table, &mob_region(table))))?;
        make_empty(core, &dir.join(layout::link_name(&file.owner, &mob_region(&file.owner), &file.name)))?;
    }
    Ok(())
}

/// The directory of the back references to a mob file.
fn back_references(core: &MasterState, owner: &TableName, family: &str, file: &str) -> PathBuf {
    layout::mob_archive_dir(&core.root, owner, family).join(layout::back_references_name(file))
}

fn make_empty(core: &MasterState, path: &std::path::Path) -> Result<()> {
    match core.env.fs.put_new(path, b"") {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(path.parent().map_or(Ok(()), |dir| core.env.fs.sync_dir(dir))?),
    }
}

/// Removes a link and then its back reference. One that is gone is no error.
pub(super) fn remove_link(core: &MasterState, table: &TableName, family: &str, link: &str) -> Result<()> {
    let Some((owner, _, file)) = layout::parse_mob_link_name(link) else { return Ok(()) };
    let remove = |path: PathBuf| match core.env.fs.remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    remove(layout::mob_family_dir(&core.root, table, family).join(link))?;
    let back = back_references(core, &owner, family, file);
    let region = RegionInfo::of_mob_files(table);
    remove(back.join(layout::back_reference_name(table, region.encoded_name())))?;
    if core.env.fs.exists(&back)? && list(&*core.env.fs, &back)?.is_empty() {
        core.env.fs.remove_dir_all(&back)?;
    }
    Ok(())
}
