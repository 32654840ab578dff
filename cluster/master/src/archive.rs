//! Moves what a table no longer needs to `archive/`, where HBase keeps it for links and snapshots.
//!
//! Store files alone are kept: `.regioninfo`, recovered edits and unfinished files go (HBase: `HFileArchiver`).
//! Every function may run twice.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use halcyon_cell::Result;
use halcyon_env::{DirEntry, FileSystem};
use halcyon_schema::{RegionInfo, TableName, layout};

use crate::descriptors::{is_missing, list};
use crate::mob;
use crate::state::MasterState;

/// Archives a region's store files and removes its directory.
pub(crate) fn archive_region(core: &MasterState, table: &TableName, encoded_name: &str) -> Result<()> {
    let fs = &*core.env.fs;
    let from = layout::region_dir(&core.root, table, encoded_name);
    if fs.exists(&from)? {
        for entry in list(fs, &from)? {
            if entry.is_dir && is_family(&entry.name) {
                archive_family(core, table, encoded_name, &entry.name)?;
            }
        }
        remove_dir(fs, &from)?;
    }
    // Last: should the two directories be one under two names, the store files are in the archive.
    remove_wal_dir(core, |root| layout::region_dir(root, table, encoded_name))
}

/// Archives the store files of one family of a region and removes its directory.
pub(crate) fn archive_family(
    core: &MasterState,
    table: &TableName,
    encoded_name: &str,
    family: &str,
) -> Result<()> {
    let fs = &*core.env.fs;
    let from = layout::region_dir(&core.root, table, encoded_name).join(family);
    let files = list(fs, &from)?;
    if files.iter().any(|file| !file.is_dir) {
        let to = layout::archive_region_dir(&core.root, table, encoded_name).join(family);
        fs.create_dir_all(&to)?;
        for file in files.iter().filter(|file| !file.is_dir) {
            let mut target = to.join(&file.name);
            if fs.exists(&target)? {
                target = to.join(format!("{}.{}", file.name, core.now_ms()));
            }
            fs.rename(&from.join(&file.name), &target)?;
        }
        // A rename is durable when both directories are; the old one must not be gone before that.
        fs.sync_dir(&to)?;
        fs.sync_dir(&from)?;
    }
    remove_dir(fs, &from)
}

/// Archives every region directory of a table.
pub(crate) fn archive_regions(core: &MasterState, table: &TableName) -> Result<()> {
    archive_other_regions(core, table, &[])
}

/// Archives the region directories of a table but those of `kept`.
pub(crate) fn archive_other_regions(
    core: &MasterState,
    table: &TableName,
    kept: &[RegionInfo],
) -> Result<()> {
    let kept: HashSet<&str> = kept.iter().map(RegionInfo::encoded_name).collect();
    for entry in list(&*core.env.fs, &layout::table_dir(&core.root, table))? {
        if entry.is_dir && !entry.name.starts_with('.') && !kept.contains(entry.name.as_str()) {
            archive_region(core, table, &entry.name)?;
        }
    }
    Ok(())
}

/// Archives every region directory of a table, then removes the table's directory with its descriptor.
pub(crate) fn archive_table(core: &MasterState, table: &TableName) -> Result<()> {
    archive_regions(core, table)?;
    mob::archive::archive_table(core, table)?;
    remove_wal_dir(core, |root| layout::table_dir(root, table))?;
    remove_dir(&*core.env.fs, &layout::table_dir(&core.root, table))
}

/// Takes back what a creation has made of a table: the store files of its regions go to the archive. What was there before it stays.
pub(crate) fn archive_created(core: &MasterState, table: &TableName, regions: &[RegionInfo]) -> Result<()> {
    for region in regions {
        archive_region(core, table, region.encoded_name())?;
    }
    let (fs, dir) = (&*core.env.fs, layout::table_dir(&core.root, table));
    let is_foreign = |entry: &DirEntry| entry.is_dir && !entry.name.starts_with('.');
    if list(fs, &dir)?.iter().any(is_foreign) {
        return remove_dir(fs, &layout::table_desc_dir(&core.root, table));
    }
    mob::archive::archive_table(core, table)?;
    remove_wal_dir(core, |root| layout::table_dir(root, table))?;
    remove_dir(fs, &dir)
}

/// A file below the directories of a table's name, if there is one that a new table would inherit. Nothing but a descriptor, and
/// directories of regions without cells, is left of a creation that an administrator has ended.
pub(crate) fn left_file(core: &MasterState, table: &TableName) -> Result<Option<PathBuf>> {
    let fs = &*core.env.fs;
    for dir in [layout::table_dir(&core.root, table), layout::mob_table_dir(&core.root, table)] {
        for region in visible_dirs(fs, &dir)? {
            if let Some(file) = left_file_of_region(fs, &region)? {
                return Ok(Some(file));
            }
        }
    }
    Ok(None)
}

/// Recovered edits count where their region was not removed. A split of WALs that ends after that, such as one of HBase, makes the
/// region's directory again and puts edits there. They are of no use then: a new table has regions of other names.
fn left_file_of_region(fs: &dyn FileSystem, region: &Path) -> Result<Option<PathBuf>> {
    for dir in visible_dirs(fs, region)? {
        if dir.ends_with(layout::RECOVERED_EDITS) && !fs.exists(&region.join(layout::REGION_INFO))? {
            continue;
        }
        let is_marker = |name: &str| name.ends_with(".seqid") || name == layout::NONCES_FILE;
        let is_file = |it: &DirEntry| !it.is_dir && !it.name.starts_with('.') && !is_marker(&it.name);
        if let Some(file) = list(fs, &dir)?.into_iter().find(is_file) {
            return Ok(Some(dir.join(file.name)));
        }
    }
    Ok(None)
}

fn visible_dirs(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<PathBuf>> {
    let is_visible = |it: &DirEntry| it.is_dir && !it.name.starts_with('.');
    let entries = list(fs, dir)?.into_iter().filter(is_visible);
    Ok(entries.map(|it| dir.join(it.name)).collect())
}

/// Removes the directory of a region that never was one of its table's.
pub(crate) fn remove_region(core: &MasterState, region: &RegionInfo) -> Result<()> {
    remove_wal_dir(core, |root| region.dir(root))?;
    remove_dir(&*core.env.fs, &region.dir(&core.root))
}

/// Removes what a region or table has where the WALs are, if that is not its directory: recovered edits and the markers of
/// sequence ids.
fn remove_wal_dir(core: &MasterState, dir: impl Fn(&Path) -> PathBuf) -> Result<()> {
    let wals = &core.cluster.wals;
    if wals.is_root { Ok(()) } else { remove_dir(&*wals.env.fs, &dir(&wals.root)) }
}

/// Removes a directory, durably; one that is gone is no error.
pub(crate) fn remove_dir(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    match fs.remove_dir_all(dir) {
        Err(error) if is_missing(&error) => return Ok(()),
        other => other?,
    }
    if let Some(parent) = dir.parent() {
        fs.sync_dir(parent)?;
    }
    Ok(())
}

fn is_family(name: &str) -> bool {
    !name.starts_with('.') && name != layout::RECOVERED_EDITS
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    /// A split that ended after its table was deleted left edits, and the name of the table could never be used again.
    #[test]
    fn recovered_edits_of_a_removed_region_are_in_nobodys_way() {
        let fs = SimFileSystem::new().env().fs;
        let region = Path::new("/hbase/data/default/t/0123456789abcdef0123456789abcdef");
        let edits = region.join(layout::RECOVERED_EDITS);
        fs.create_dir_all(&edits).unwrap();
        let file = edits.join("0000000000000000007");
        fs.put_new(&file, b"edits").unwrap();
        assert_eq!(left_file_of_region(&*fs, region).unwrap(), None, "its split made the directory");
        // A region that was there, and whose row of meta was lost.
        fs.put_new(&region.join(layout::REGION_INFO), b"PBUF").unwrap();
        assert_eq!(left_file_of_region(&*fs, region).unwrap(), Some(file));
        fs.remove_file(&region.join(layout::REGION_INFO)).unwrap();
        let cells = region.join("f").join("0123456789abcdef0123456789abcdef");
        fs.create_dir_all(cells.parent().unwrap()).unwrap();
        fs.put_new(&cells, b"cells").unwrap();
        assert_eq!(left_file_of_region(&*fs, region).unwrap(), Some(cells), "cells are files of a table");
    }
}
