//! Mob files, as far as they are the master's: those of tables that change, of snapshots, and those that nobody needs.
//!
//! ```text
//! archive.rs    mob files of deleted tables and families go to the archive
//! snapshots.rs  the mob region of a manifest; links of a table that was made of another's snapshot
//! cleaner.rs    expired values, files of regions that are gone; periodic compactions
//! ```
//!
//! Region servers clean the files of their own regions. Checked against HBase's `MobFileCleanerChore`, `MobFileCleanupUtil`,
//! `MobFileCompactionChore`, `SnapshotManifest.addMobRegion` and `RestoreSnapshotHelper`.

pub(crate) mod archive;
pub(crate) mod cleaner;
pub(crate) mod snapshots;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_cell::Result;
use halcyon_schema::{FamilyDescriptor, MobFileRefs, RegionInfo, TableDescriptor, TableName, layout};
use tracing::warn;

use crate::descriptors::list;
use crate::state::MasterState;

/// The families of a table that may have mob files: those with `IS_MOB`, and those that had it.
fn families(core: &MasterState, table: &TableDescriptor) -> Result<Vec<FamilyDescriptor>> {
    let mut found = Vec::new();
    for family in table.families() {
        let dir = layout::mob_family_dir(&core.root, table.name(), &family.name_str());
        if family.is_mob() || core.env.fs.exists(&dir)? {
            found.push(family.clone());
        }
    }
    Ok(found)
}

/// The files in the directory of a family's mob files, and their lengths; links included.
fn files_of(core: &MasterState, table: &TableName, family: &str) -> Result<Vec<(String, u64)>> {
    let dir = layout::mob_family_dir(&core.root, table, family);
    let files = list(&*core.env.fs, &dir)?.into_iter().filter(|entry| !entry.is_dir);
    Ok(files.map(|entry| (entry.name, entry.len)).collect())
}

/// The mob files that store files of these regions, which are all of the table, refer to; `None` if one of them does not say.
fn references(
    core: &MasterState,
    table: &TableDescriptor,
    family: &FamilyDescriptor,
    regions: &[RegionInfo],
) -> Result<Option<MobFileRefs>> {
    let mut refs = MobFileRefs::default();
    for region in regions {
        match core.cluster.files.mob_references(region, table, family)? {
            Some(more) => refs.extend(more),
            None => return Ok(None),
        }
    }
    Ok(Some(refs))
}

/// The regions of a table that have a directory, also those that were split or merged and are not cleaned away yet.
fn regions_of(core: &MasterState, table: &TableName) -> Result<Vec<RegionInfo>> {
    let mut regions = Vec::new();
    for entry in list(&*core.env.fs, &layout::table_dir(&core.root, table))? {
        if !entry.is_dir || entry.name.starts_with('.') {
            continue;
        }
        let path = layout::region_dir(&core.root, table, &entry.name).join(layout::REGION_INFO);
        match core.env.fs.read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            bytes => regions.push(RegionInfo::decode_file(&bytes?)?),
        }
    }
    Ok(regions)
}

/// What is known of the mob files that a family's store files refer to.
enum Refs {
    These(MobFileRefs),
    /// A store file does not say. Whoever archived a file has looked.
    Unsaid,
    /// A store file cannot be read: it may refer to any of them.
    Unreadable,
}

/// A directory of the archive, which may be that of a family's mob files. A mob file is also read from there, so one that a store
/// file refers to must stay, whoever has archived it.
pub(crate) struct ArchivedFiles {
    /// `None`: no mob files, or those of a table or family that is gone.
    of: Option<(Arc<TableDescriptor>, FamilyDescriptor)>,
    /// Asked for once, when a file is about to be deleted.
    refs: Option<Refs>,
}

impl ArchivedFiles {
    pub(crate) fn new(core: &MasterState, dir: &Path) -> ArchivedFiles {
        let is_it = |table: &TableDescriptor, family: &FamilyDescriptor| {
            layout::mob_archive_dir(&core.root, table.name(), &family.name_str()) == dir
        };
        let tables = core.tables.read();
        let of = tables.by_name.values().map(|entry| &entry.descriptor).find_map(|table| {
            let family = table.families().iter().find(|family| is_it(table, family))?;
            Some((table.clone(), family.clone()))
        });
        ArchivedFiles { of, refs: None }
    }

    /// Whether the file must stay. Also if that cannot be found out: others have nothing to do with a store that cannot be read.
    pub(crate) fn is_referred_to(&mut self, core: &MasterState, file: &str) -> bool {
        let Some((table, family)) = &self.of else { return false };
        let refs = self.refs.get_or_insert_with(|| {
            let regions = regions_of(core, table.name());
            match regions.and_then(|regions| references(core, table, family, &regions)) {
                Ok(Some(refs)) => Refs::These(refs),
                Ok(None) => Refs::Unsaid,
                Err(error) => {
                    let family = family.name_str();
                    warn!(table = %table.name(), %family, %error, "archived mob files stay: a store that may refer to them cannot be read");
                    Refs::Unreadable
                }
            }
        });
        match refs {
            Refs::These(refs) => refs.contains(table.name(), file),
            Refs::Unsaid => false,
            Refs::Unreadable => true,
        }
    }
}

/// Names of the mob files that links of any table keep in the archive.
pub(crate) fn linked_files(core: &MasterState) -> Result<HashSet<String>> {
    let mut names = HashSet::new();
    for dir in family_dirs(core)? {
        for entry in list(&*core.env.fs, &dir)? {
            if let Some((_, _, file)) = layout::parse_mob_link_name(&entry.name) {
                names.insert(file.to_string());
            }
        }
    }
    Ok(names)
}

/// Directories with mob files.
fn family_dirs(core: &MasterState) -> Result<Vec<PathBuf>> {
    let mut dirs = vec![layout::data_dir(&layout::mob_home(&core.root))];
    for _level in ["namespace", "table", "region", "family"] {
        let mut below = Vec::new();
        for dir in dirs {
            let entries = list(&*core.env.fs, &dir)?.into_iter();
            let entries = entries.filter(|entry| entry.is_dir && !entry.name.starts_with('.'));
            below.extend(entries.map(|entry| dir.join(entry.name)));
        }
        dirs = below;
    }
    Ok(dirs)
}
