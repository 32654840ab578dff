//! Mob files that a table or a family leaves behind. Every function may run twice.

use halcyon_cell::Result;
use halcyon_schema::{TableName, layout};

use super::snapshots::remove_link;
use crate::archive::remove_dir;
use crate::descriptors::list;
use crate::state::MasterState;

/// Archives all mob files of a table, and removes their directory. Links go.
pub(crate) fn archive_table(core: &MasterState, table: &TableName) -> Result<()> {
    let dir = layout::mob_table_dir(&core.root, table);
    if !core.env.fs.exists(&dir)? {
        return Ok(());
    }
    for region in list(&*core.env.fs, &dir)?.into_iter().filter(|entry| entry.is_dir) {
        for family in list(&*core.env.fs, &dir.join(&region.name))? {
            if family.is_dir && !family.name.starts_with('.') {
                archive_family(core, table, &family.name)?;
            }
        }
    }
    remove_dir(&*core.env.fs, &dir)
}

/// Archives the mob files of one family of a table, and removes their directory.
pub(crate) fn archive_family(core: &MasterState, table: &TableName, family: &str) -> Result<()> {
    let dir = layout::mob_family_dir(&core.root, table, family);
    let files = list(&*core.env.fs, &dir)?.into_iter().filter(|entry| !entry.is_dir);
    let names: Vec<String> = files.map(|entry| entry.name).collect();
    archive_files(core, table, family, &names)?;
    remove_dir(&*core.env.fs, &dir)
}

/// Moves these mob files of a family to the archive; a link is removed. Those that are gone are no error.
pub(crate) fn archive_files(
    core: &MasterState,
    table: &TableName,
    family: &str,
    names: &[String],
) -> Result<()> {
    let fs = &*core.env.fs;
    if names.is_empty() {
        return Ok(());
    }
    let (from, to) = (
        layout::mob_family_dir(&core.root, table, family),
        layout::mob_archive_dir(&core.root, table, family),
    );
    fs.create_dir_all(&to)?;
    for name in names {
        if layout::parse_mob_link_name(name).is_some() {
            remove_link(core, table, family, name)?;
        } else if fs.exists(&from.join(name))? {
            // A file that was restored from a snapshot has the name and the bytes of the archived one.
            fs.rename_over(&from.join(name), &to.join(name))?;
        }
    }
    fs.sync_dir(&to)?;
    Ok(fs.sync_dir(&from)?)
}
