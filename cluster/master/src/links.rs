//! Links, by which a table that was made of a snapshot uses store files of another one (HBase: `HFileLink`).
//!
//! ```text
//! data/<namespace>/<clone>/<region>/<family>/[<namespace>=]<table>=<owner>-<hfile>                   the link, an empty file
//! archive/data/<namespace>/<table>/<owner>/<family>/.links-<hfile>/<region>.[<namespace>=]<clone>    its back reference
//! ```
//!
//! The HFile stands with its table or in the archive, and who reads the link looks in both places. An archived HFile stays
//! while one of its back references leads to a link. A back reference is written before its link and goes after it.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use halcyon_cell::Result;
use halcyon_contract::RegionFiles;
use halcyon_env::FileSystem;
use halcyon_schema::{FILE_NAME_LEN_MAX, RegionInfo, TableName, layout};

/// A link and its back reference.
pub(crate) struct Link {
    link: PathBuf,
    back_references: PathBuf,
    back_reference: String,
}

impl Link {
    /// A link of `region` to a file of table, region and name `of`.
    pub(crate) fn new(root: &Path, of: (&TableName, &str, &str), region: &RegionInfo, family: &str) -> Link {
        let (table, owner, file) = of;
        let archived = layout::archive_region_dir(root, table, owner).join(family);
        Link {
            link: region.dir(root).join(family).join(layout::link_name(table, owner, file)),
            back_references: archived.join(layout::back_references_name(file)),
            back_reference: layout::back_reference_name(region.table(), region.encoded_name()),
        }
    }

    /// Whether files can have the names of both, which have the names of tables in them.
    pub(crate) fn can_be_named(&self) -> bool {
        let link = self.link.file_name().map_or(0, OsStr::len);
        link.max(self.back_reference.len()) <= FILE_NAME_LEN_MAX
    }

    /// Makes both. The region's directory exists, and no server has the region open. May run twice.
    pub(crate) fn make(&self, fs: &dyn FileSystem, files: &dyn RegionFiles) -> Result<()> {
        fs.create_dir_all(&self.back_references)?;
        match fs.put_new(&self.back_references.join(&self.back_reference), b"") {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
            _ => files.make_link(&self.link),
        }
    }
}

/// Whether the link is still there whose back reference stands under the name `name` in `dir`, a directory of back references.
/// Any other name counts as one whose link is there. HBase makes a table of a snapshot below `.tmp` at first
/// (`HFileLinkCleaner`).
pub(crate) fn is_link_there(fs: &dyn FileSystem, root: &Path, dir: &Path, name: &str) -> Result<bool> {
    let Some(link) = link_of(dir, name) else { return Ok(true) };
    for root in [root.to_path_buf(), layout::tmp_dir(root), layout::mob_home(root)] {
        if fs.exists(&layout::data_dir(&root).join(&link))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where a link is below `data`: the back reference's directory says what it leads to, its name who has it.
fn link_of(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut parts = dir.iter().rev().map(|part| part.to_str());
    let mut next = || parts.next().flatten();
    let file = layout::parse_back_references_name(next()?)?;
    let (family, owner, qualifier, namespace) = (next()?, next()?, next()?, next()?);
    let source = TableName::new(namespace.as_bytes(), qualifier.as_bytes()).ok()?;
    let (region, table) = layout::parse_back_reference_name(name)?;
    let of_table = layout::region_dir(Path::new(""), &table, region);
    let below_data = of_table.strip_prefix(layout::DATA).ok()?;
    Some(below_data.join(family).join(layout::link_name(&source, owner, file)))
}
