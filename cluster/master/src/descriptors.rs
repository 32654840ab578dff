//! Table descriptors on disk: `data/<namespace>/<table>/.tabledesc/.tableinfo.<sequence>.<length>`.
//!
//! A change writes the file of the next sequence and then removes the older ones, so that a crash leaves one or
//! two whole files and the highest sequence is the truth (HBase: `FSTableDescriptors`).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::{Env, FileSystem};
use halcyon_schema::{TableDescriptor, TableName, layout};
use tracing::warn;

/// Makes `descriptor` the table's newest. May run twice with the same sequence.
pub(crate) fn write(env: &Env, root: &Path, descriptor: &TableDescriptor, sequence: u32) -> Result<()> {
    let dir = layout::table_desc_dir(root, descriptor.name());
    env.fs.create_dir_all(&dir)?;
    let bytes = descriptor.encode_file();
    let name = layout::table_info_name(sequence, bytes.len());
    env.fs.replace(&dir.join(&name), &bytes)?;
    for entry in env.fs.list(&dir)? {
        let older = layout::parse_table_info_name(&entry.name).is_some_and(|(number, _)| number <= sequence);
        if older && entry.name != name {
            env.fs.remove_file(&dir.join(&entry.name))?;
        }
    }
    Ok(())
}

/// The newest descriptor of a table and its sequence, if it has one.
pub(crate) fn read(env: &Env, root: &Path, table: &TableName) -> Result<Option<(TableDescriptor, u32)>> {
    let found = TableDescriptor::read_newest(&*env.fs, root, table)?;
    match found.as_ref().map(|(descriptor, _)| descriptor.name()).filter(|named| *named != table) {
        Some(other) => {
            Err(Error::corrupt(format!("the descriptor in the directory of {table} is that of {other}")))
        }
        None => Ok(found),
    }
}

/// Every table of a root directory that has a descriptor, with the descriptor's sequence. One that cannot be read is named in the log,
/// and its table is left out: the others have nothing to do with it. But not one of the system's: those are made again where they are
/// missing.
pub fn read_all(env: &Env, root: &Path) -> Result<BTreeMap<TableName, (TableDescriptor, u32)>> {
    let mut tables = BTreeMap::new();
    let data = layout::data_dir(root);
    for namespace in list(&*env.fs, &data)?.into_iter().filter(|entry| entry.is_dir) {
        for table in list(&*env.fs, &data.join(&namespace.name))?.into_iter().filter(|entry| entry.is_dir) {
            let Ok(name) = TableName::new(namespace.name.as_bytes(), table.name.as_bytes()) else { continue };
            match read(env, root, &name) {
                // Files that have not their lengths count as none.
                Ok(None) if name.is_system() && has_files(env, root, &name)? => {
                    return Err(Error::corrupt(format!("no descriptor of {name} is whole")));
                }
                Ok(found) => drop(found.map(|found| tables.insert(name, found))),
                Err(error) if error.kind() == ErrorKind::Corrupt && !name.is_system() => {
                    warn!(table = %name, %error, "the descriptor of a table cannot be read: the table is left out");
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(tables)
}

fn has_files(env: &Env, root: &Path, table: &TableName) -> Result<bool> {
    let files = list(&*env.fs, &layout::table_desc_dir(root, table))?;
    Ok(files.iter().any(|file| layout::parse_table_info_name(&file.name).is_some()))
}

/// Whether there is no such file, and could be none: its name may be longer than the file system takes.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename)
}

/// As `FileSystem::list`; a directory that is not there is empty.
pub(crate) fn list(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<halcyon_env::DirEntry>> {
    match fs.list(dir) {
        Err(error) if is_missing(&error) => Ok(Vec::new()),
        other => Ok(other?),
    }
}
