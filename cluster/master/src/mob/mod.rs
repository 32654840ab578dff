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
use std::path::PathBuf;

use halcyon_cell::Result;
use halcyon_schema::{FamilyDescriptor, TableDescriptor, TableName, layout};

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
