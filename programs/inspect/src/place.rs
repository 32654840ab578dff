//! Where files stand under a root directory, from their paths and names.

use std::io;
use std::path::{Path, PathBuf};

use halcyon_env::{DirEntry, Env};
use halcyon_schema::{TableName, layout, parse_region_name};

use crate::output::Stop;

/// The root directory that `halcyon standalone` uses without an option.
pub const DEFAULT_ROOT: &str = "halcyon-data";
/// The process that uses a root directory holds the lock on this file.
pub const LOCK_FILE: &str = ".halcyon.lock";

/// As `FileSystem::list`; a directory that is not there is empty. The error is a sentence.
pub fn list(env: &Env, dir: &Path) -> Result<Vec<DirEntry>, String> {
    match env.fs.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| error.to_string()),
    }
}

/// The directories in one, without hidden ones.
pub fn directories(env: &Env, dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = list(env, dir)?.into_iter().filter(|entry| entry.is_dir && !entry.name.starts_with('.'));
    Ok(entries.map(|entry| dir.join(entry.name)).collect())
}

pub fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The directory of a region: by the path, the full name, or the encoded name under `root`.
pub fn region_dir(env: &Env, root: &Path, region: &str) -> Result<PathBuf, Stop> {
    if let Ok(parts) = parse_region_name(region.as_bytes()) {
        let encoded = parts.encoded_name.unwrap_or_else(|| halcyon_schema::META_ENCODED_NAME.to_string());
        return existing(env, layout::region_dir(root, &parts.table, &encoded), region);
    }
    let is_name = !region.is_empty() && region.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_name {
        let failed = Stop::Failed;
        for namespace in directories(env, &layout::data_dir(root)).map_err(failed)? {
            for table in directories(env, &namespace).map_err(failed)? {
                let dir = table.join(region);
                if env.fs.exists(&dir).map_err(|error| failed(error.to_string()))? {
                    return Ok(dir);
                }
            }
        }
    }
    existing(env, PathBuf::from(region), region)
}

fn existing(env: &Env, dir: PathBuf, region: &str) -> Result<PathBuf, Stop> {
    if env.fs.list(&dir).is_ok() {
        return Ok(dir);
    }
    Err(Stop::Failed(format!("region {region} has no directory: {} is not there", dir.display())))
}

/// The root directory and the table of a region's directory, if it stands where regions do.
pub fn of_region(dir: &Path) -> Option<(PathBuf, TableName)> {
    let table_dir = dir.parent()?;
    let namespace_dir = table_dir.parent()?;
    let data = namespace_dir.parent()?;
    if data.file_name()? != layout::DATA {
        return None;
    }
    let above = data.parent()?;
    let is_archive = above.file_name().is_some_and(|name| name == layout::ARCHIVE);
    let root = if is_archive { above.parent()? } else { above };
    let table = TableName::new(name(namespace_dir).as_bytes(), name(table_dir).as_bytes()).ok()?;
    Some((root.to_path_buf(), table))
}

/// Where the store file stands that a reference or link in `<region>/<family>` leads to, first with its table, then in the
/// archive. `None` for the name of an ordinary file.
pub fn targets(family_dir: &Path, file_name: &str) -> Option<[PathBuf; 2]> {
    let region_dir = family_dir.parent()?;
    let (root, table) = of_region(region_dir)?;
    let family = family_dir.file_name()?;
    let (file, table, region) = match layout::parse_reference_name(file_name) {
        Some((file, parent)) => match layout::parse_link_name(file) {
            Some((table, _, file)) => (file, table, parent),
            None => (file, table, parent),
        },
        None => {
            let (table, region, file) = layout::parse_link_name(file_name)?;
            (file, table, region)
        }
    };
    let place = |dir: PathBuf| dir.join(family).join(file);
    Some([
        place(layout::region_dir(&root, &table, region)),
        place(layout::archive_region_dir(&root, &table, region)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_and_links_lead_to_their_files() {
        let parent = "2140f686c386930b96c060b1030c2875";
        let dir = Path::new("/root/data/ns/t/5d7f500caf79e27589faec634a78240f/f");
        assert_eq!(of_region(dir.parent().unwrap()).unwrap().1.as_str(), "ns:t");
        let archived = Path::new("/root/archive/data/ns/t/5d7f500caf79e27589faec634a78240f");
        assert_eq!(of_region(archived).unwrap().0, Path::new("/root"));
        let [live, archived] = targets(dir, &format!("ab.{parent}")).unwrap();
        assert_eq!(live, Path::new("/root/data/ns/t").join(parent).join("f/ab"));
        assert_eq!(archived, Path::new("/root/archive/data/ns/t").join(parent).join("f/ab"));
        let [live, _] = targets(dir, "other=0f-1a").unwrap();
        assert_eq!(live, Path::new("/root/data/default/other/0f/f/1a"));
        assert_eq!(targets(dir, "ab"), None);
        assert_eq!(of_region(Path::new("/x/t/r")), None);
    }
}
