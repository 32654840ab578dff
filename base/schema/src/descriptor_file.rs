//! Reads a table's descriptor from its directory: `data/<namespace>/<table>/.tabledesc/.tableinfo.<sequence>.<length>`.

use std::io;
use std::path::Path;

use halcyon_cell::Result;
use halcyon_env::FileSystem;

use crate::{TableDescriptor, TableName, layout};

impl TableDescriptor {
    /// The newest descriptor of a table and its sequence; `None` if there is none. A file that has not the length in its
    /// name was not written to its end, and does not count (HBase: `FSTableDescriptors`).
    pub fn read_newest(
        fs: &dyn FileSystem,
        root: &Path,
        table: &TableName,
    ) -> Result<Option<(TableDescriptor, u32)>> {
        let dir = layout::table_desc_dir(root, table);
        let entries = match fs.list(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            listed => listed?,
        };
        let mut files: Vec<(u32, String)> = Vec::new();
        for entry in entries {
            match layout::parse_table_info_name(&entry.name) {
                Some((_, Some(len))) if len as u64 != entry.len => {
                    tracing::warn!(dir = %dir.display(), name = entry.name, "a descriptor's file has not its length");
                }
                Some((sequence, _)) => files.push((sequence, entry.name)),
                None => {}
            }
        }
        let Some((sequence, name)) = files.into_iter().max() else { return Ok(None) };
        let path = dir.join(name);
        let descriptor =
            TableDescriptor::decode_file(&fs.read(&path)?).map_err(|error| error.context(path.display()))?;
        Ok(Some((descriptor, sequence)))
    }
}
