//! Which files of a store's directory are the store's. With the trackers `FILE` and `MIGRATION` a list may say so; files that it
//! does not name are left of a crash, and no reader sees them.

use std::collections::BTreeSet;
use std::path::Path;

use halcyon_env::Env;
use halcyon_region::Region;
use halcyon_schema::{TableDescriptor, TableName, layout};

use crate::place;

/// The newest descriptor of a table. The error is a sentence.
pub fn descriptor(env: &Env, root: &Path, table: &TableName) -> Result<Option<TableDescriptor>, String> {
    let dir = layout::table_desc_dir(root, table);
    let files = place::list(env, &dir)?.into_iter();
    let numbered = files.filter_map(|file| Some((layout::parse_table_info_name(&file.name)?.0, file.name)));
    let Some((_, name)) = numbered.max() else { return Ok(None) };
    let path = dir.join(name);
    let bytes = env.fs.read(&path).map_err(|error| error.to_string())?;
    let decoded = TableDescriptor::decode_file(&bytes);
    decoded.map(Some).map_err(|error| format!("{}: {error}", path.display()))
}

/// The descriptor of the table that a region's directory belongs to. `None`: it does not stand among the regions of a table, as
/// in the archive, or the table has none. The error is a sentence.
pub fn table_of(env: &Env, region_dir: &Path) -> Result<Option<TableDescriptor>, String> {
    match place::of_region(region_dir) {
        Some((root, table)) if region_dir.parent() == Some(&layout::table_dir(&root, &table)) => {
            descriptor(env, &root, &table)
        }
        _ => Ok(None),
    }
}

/// The files that the list of a family's directory names. `None`: no list counts, and all files of the directory are the
/// store's. The error is a sentence.
pub fn files(
    env: &Env,
    family_dir: &Path,
    table: Option<&TableDescriptor>,
) -> Result<Option<BTreeSet<String>>, String> {
    let name = place::name(family_dir);
    let Some((table, family)) = table.and_then(|table| Some((table, table.family(name.as_bytes())?))) else {
        return Ok(None);
    };
    let listed =
        table.store_file_tracker(family).and_then(|tracker| Region::listed_files(env, family_dir, tracker));
    let listed = listed.map_err(|error| format!("{}: {error}", family_dir.display()))?;
    Ok(listed.map(|files| files.into_iter().map(|(name, _)| name).collect()))
}
