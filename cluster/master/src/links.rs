//! Links, by which HBase lets a table that was made of a snapshot use store files of another one.
//!
//! ```text
//! <family>/[<namespace>=]<table>=<region>-<hfile>             empty; the file stands with its table, or is archived
//! <family>/[<namespace>=]<table>=<region>-<hfile>.<parent>    a reference to a link of the parent
//! ```
//!
//! Here every region has its files to itself. So when a root directory comes from HBase each link becomes a copy of
//! its file under the file's own name, and a reference to it takes that name too.

use std::path::{Path, PathBuf};

use halcyon_cell::Result;
use halcyon_contract::RegionFiles;
use halcyon_env::Env;
use halcyon_schema::layout;
use tracing::{info, warn};

use crate::descriptors::list;
use crate::snapshot::copy_file;

/// Puts copies in the place of all links. May run twice. A link that leads nowhere stays, and its region will not open.
pub(crate) fn replace(env: &Env, root: &Path, files: &dyn RegionFiles) -> Result<()> {
    let mut copied = 0;
    let dirs = family_dirs(env, root)?;
    for dir in &dirs {
        for entry in list(&*env.fs, dir)? {
            let Some((table, region, file)) = layout::parse_link_name(&entry.name) else { continue };
            let family = dir.file_name().expect("a family's directory has a name");
            let place = |region_dir: PathBuf| region_dir.join(family).join(file);
            let live = place(layout::region_dir(root, &table, region));
            let archived = place(layout::archive_region_dir(root, &table, region));
            if !env.fs.exists(&live)? && !env.fs.exists(&archived)? {
                warn!(link = %dir.join(&entry.name).display(), "a link leads to no file");
                continue;
            }
            copy_file(&*env.fs, files, &live, &archived, &dir.join(file))?;
            env.fs.remove_file(&dir.join(&entry.name))?;
            env.fs.sync_dir(dir)?;
            copied += 1;
        }
    }
    for dir in &dirs {
        for entry in list(&*env.fs, dir)? {
            let reference = layout::parse_reference_name(&entry.name);
            let Some((link, parent)) = reference else { continue };
            let Some((_, _, file)) = layout::parse_link_name(link) else { continue };
            env.fs.rename(&dir.join(&entry.name), &dir.join(layout::reference_name(file, parent)))?;
            env.fs.sync_dir(dir)?;
        }
    }
    if copied > 0 {
        info!(copied, "links of HBase's became store files");
    }
    Ok(())
}

/// Directories with store files, of the tables and in the archive.
fn family_dirs(env: &Env, root: &Path) -> Result<Vec<PathBuf>> {
    let mut dirs = vec![layout::data_dir(root), layout::archive_dir(root).join(layout::DATA)];
    for _level in ["namespace", "table", "region", "family"] {
        let mut below = Vec::new();
        for dir in dirs {
            let entries = list(&*env.fs, &dir)?.into_iter();
            let entries = entries.filter(|entry| entry.is_dir && !entry.name.starts_with('.'));
            below.extend(entries.map(|entry| dir.join(entry.name)));
        }
        dirs = below;
    }
    Ok(dirs)
}
