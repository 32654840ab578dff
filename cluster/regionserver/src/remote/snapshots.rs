//! What HBase's master orders of region servers when it takes a snapshot: each region's files are named, then looked for.
//!
//! ```text
//! .hbase-snapshot/.tmp/<name>/region-manifest.<encoded region>   what one region has; the master puts them together
//! .hbase-snapshot/.tmp/<name>/data.manifest                      all of them
//! ```
//!
//! A snapshot whose description has no version, such as one by `Admin.execProcedure`, has HBase's first format. HBase's master
//! reads no other one then.
//!
//! ```text
//! .hbase-snapshot/.tmp/<name>/<encoded region>/.regioninfo
//! .hbase-snapshot/.tmp/<name>/<encoded region>/<family>/<store file>     empty, or the bytes of a reference
//! ```
//!
//! Checked against `SnapshotRegionCallable`, `SnapshotVerifyCallable`, `SnapshotManifest`, `SnapshotManifestV1` and
//! `SnapshotManifestV2` of HBase 2.6.4.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_cell::{Error, Result};
use halcyon_env::FileSystem;
use halcyon_proto::pb::snapshot_region_manifest::StoreFile;
use halcyon_proto::{PB_MAGIC, pb};
use halcyon_schema::{RegionInfo, TableName, check_table_qualifier, layout};
use prost::Message;

use crate::RegionServer;

const REGION_MANIFEST: &str = "region-manifest.";
const MANIFEST: &str = "data.manifest";
/// Versions of a snapshot's description. HBase takes none for the first one.
const FIRST_FORMAT: i32 = 0;
const SECOND_FORMAT: i32 = 2;

/// `SnapshotRegionParameter` of HBase's `MasterProcedure.proto`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SnapshotRegionParameter {
    #[prost(message, required, tag = "1")]
    region: pb::RegionInfo,
    #[prost(message, required, tag = "2")]
    snapshot: pb::SnapshotDescription,
}

/// `SnapshotVerifyParameter` of HBase's `MasterProcedure.proto`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SnapshotVerifyParameter {
    #[prost(message, required, tag = "1")]
    snapshot: pb::SnapshotDescription,
    #[prost(message, required, tag = "2")]
    region: pb::RegionInfo,
}

/// What the master orders of one region.
pub(super) fn run(server: &Arc<RegionServer>, parameter: &SnapshotRegionParameter) -> Result<()> {
    snapshot_region(server, &RegionInfo::from_pb(&parameter.region)?, &parameter.snapshot)
}

/// Flushes a region, unless the snapshot is to do without, and names its store files.
pub(super) fn snapshot_region(
    server: &Arc<RegionServer>,
    region: &RegionInfo,
    snapshot: &pb::SnapshotDescription,
) -> Result<()> {
    let online = server.online_region(region.encoded_name())?;
    if snapshot.r#type() != pb::snapshot_description::Type::Skipflush {
        server.flush_region(region.encoded_name(), &[])?;
    }
    let resources = &server.resources;
    let dir = working_dir(&resources.root, &snapshot.name)?;
    let (fs, manifest) = (&*resources.env.fs, online.region.snapshot_manifest());
    match snapshot.version() {
        FIRST_FORMAT => write_first_format(fs, &dir, region, &manifest),
        SECOND_FORMAT => {
            let path = dir.join(format!("{REGION_MANIFEST}{}", region.encoded_name()));
            Ok(fs.replace(&path, &manifest.encode_to_vec())?)
        }
        other => Err(Error::invalid(format!("{other} is no format of a snapshot"))),
    }
}

/// A directory for the region, and a file for each store file.
fn write_first_format(
    fs: &dyn FileSystem,
    dir: &Path,
    region: &RegionInfo,
    manifest: &pb::SnapshotRegionManifest,
) -> Result<()> {
    let dir = dir.join(region.encoded_name());
    fs.create_dir_all(&dir)?;
    fs.replace(&dir.join(layout::REGION_INFO), &region.encode_file())?;
    for family in manifest.family_files.iter().filter(|family| !family.store_files.is_empty()) {
        let dir = dir.join(String::from_utf8_lossy(&family.family_name).as_ref());
        fs.create_dir_all(&dir)?;
        for file in &family.store_files {
            let reference = file.reference.as_ref().map(|reference| {
                let mut bytes = PB_MAGIC.to_vec();
                reference.encode(&mut bytes).expect("a Vec grows as needed");
                bytes
            });
            fs.replace(&dir.join(&file.name), &reference.unwrap_or_default())?;
        }
    }
    Ok(())
}

/// Corrupt if the snapshot names a file of the region that is nowhere, or that has another length.
pub(super) fn verify_region(server: &Arc<RegionServer>, parameter: &SnapshotVerifyParameter) -> Result<()> {
    let region = RegionInfo::from_pb(&parameter.region)?;
    let resources = &server.resources;
    let dir = working_dir(&resources.root, &parameter.snapshot.name)?;
    let manifest = manifest_of(&*resources.env.fs, &dir, &region)?;
    let mut lookup = Lookup { fs: &*resources.env.fs, root: &resources.root, listed: HashMap::new() };
    for family in &manifest.family_files {
        let name = String::from_utf8_lossy(&family.family_name).into_owned();
        for file in &family.store_files {
            lookup.check(&region, &name, file)?;
        }
    }
    Ok(())
}

/// The name becomes one of a directory.
pub(super) fn check_name(name: &str) -> Result<()> {
    check_table_qualifier(name.as_bytes())
        .map_err(|_| Error::invalid(format!("{name:?} is no name of a snapshot")))
}

fn working_dir(root: &Path, name: &str) -> Result<PathBuf> {
    check_name(name)?;
    Ok(layout::snapshots_dir(root).join(".tmp").join(name))
}

/// What the snapshot says of a region, before or after the master has put the manifests together.
fn manifest_of(fs: &dyn FileSystem, dir: &Path, region: &RegionInfo) -> Result<pb::SnapshotRegionManifest> {
    let alone = dir.join(format!("{REGION_MANIFEST}{}", region.encoded_name()));
    match fs.read(&alone) {
        Ok(bytes) => return decode(&alone, &bytes),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        Err(_) => {}
    }
    let path = dir.join(MANIFEST);
    let all: pb::SnapshotDataManifest = decode(&path, &fs.read(&path)?)?;
    let is_of_region = |manifest: &pb::SnapshotRegionManifest| {
        RegionInfo::from_pb(&manifest.region_info)
            .is_ok_and(|info| info.encoded_name() == region.encoded_name())
    };
    let found = all.region_manifests.into_iter().find(is_of_region);
    found.ok_or_else(|| Error::corrupt(format!("{} has nothing of {region}", path.display())))
}

fn decode<M: Message + Default>(path: &Path, bytes: &[u8]) -> Result<M> {
    M::decode(bytes).map_err(|error| Error::corrupt(format!("{}: {error}", path.display())))
}

/// Looks for store files, and remembers directories that it has listed.
struct Lookup<'a> {
    fs: &'a dyn FileSystem,
    root: &'a Path,
    /// Lengths by name.
    listed: HashMap<PathBuf, HashMap<String, u64>>,
}

impl Lookup<'_> {
    fn check(&mut self, region: &RegionInfo, family: &str, file: &StoreFile) -> Result<()> {
        // A reference stands for a file of a parent, and a link for one of another table.
        let (name, encoded) =
            layout::parse_reference_name(&file.name).unwrap_or((&file.name, region.encoded_name()));
        let (table, encoded, name) = match layout::parse_link_name(name) {
            Some((table, encoded, name)) => (table, encoded, name),
            None => (region.table().clone(), encoded, name),
        };
        match (self.find(&table, encoded, family, name)?, file.file_size) {
            (None, _) => {
                Err(Error::corrupt(format!("the snapshot of {region} names {}, which is nowhere", file.name)))
            }
            (Some(len), Some(named)) if len != named => Err(Error::corrupt(format!(
                "the snapshot of {region} names {} with {named} bytes, and it has {len}",
                file.name
            ))),
            _ => Ok(()),
        }
    }

    /// The length of a store file, in its region or in the archive. It may go from one to the other meanwhile.
    fn find(&mut self, table: &TableName, encoded: &str, family: &str, name: &str) -> Result<Option<u64>> {
        let live = layout::region_dir(self.root, table, encoded).join(family);
        let archived = layout::archive_region_dir(self.root, table, encoded).join(family);
        for dir in [live, archived] {
            if !self.listed.contains_key(&dir) {
                let entries = match self.fs.list(&dir) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                    listed => listed?,
                };
                let lengths = entries.into_iter().map(|entry| (entry.name, entry.len)).collect();
                self.listed.insert(dir.clone(), lengths);
            }
            if let Some(len) = self.listed[&dir].get(name) {
                return Ok(Some(*len));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    const ROOT: &str = "/hbase";
    const FILE: &str = "0123456789abcdef0123456789abcdef";
    const PARENT: &str = "fedcba9876543210fedcba9876543210";

    fn file(name: &str, len: u64) -> StoreFile {
        StoreFile { name: name.to_string(), reference: None, file_size: Some(len) }
    }

    #[test]
    fn files_are_found_where_they_went() {
        let fs = SimFileSystem::new();
        let (root, table) = (Path::new(ROOT), TableName::parse(b"t").unwrap());
        let region = RegionInfo::new(table.clone(), "".into(), "".into(), 7);
        let put = |dir: PathBuf, name: &str| {
            fs.create_dir_all(&dir.join("f")).unwrap();
            fs.put_new(&dir.join("f").join(name), b"four").unwrap();
        };
        put(region.dir(root), FILE);
        put(layout::archive_region_dir(root, &table, region.encoded_name()), "11111111");
        put(layout::archive_region_dir(root, &table, PARENT), "22222222");
        put(layout::region_dir(root, &TableName::parse(b"other").unwrap(), PARENT), "33333333");
        let check = |file: &StoreFile| {
            let mut lookup = Lookup { fs: &fs, root, listed: HashMap::new() };
            lookup.check(&region, "f", file).map_err(|error| error.message().to_string())
        };
        for name in [FILE, "11111111", &format!("22222222.{PARENT}"), &format!("other={PARENT}-33333333")] {
            assert_eq!(check(&file(name, 4)), Ok(()), "{name}");
        }
        assert!(check(&file(FILE, 5)).unwrap_err().contains("with 5 bytes, and it has 4"));
        assert!(check(&file("44444444", 4)).unwrap_err().contains("which is nowhere"));
    }

    #[test]
    fn manifests_are_found_alone_and_together() {
        let fs = SimFileSystem::new();
        let region = RegionInfo::new(TableName::parse(b"t").unwrap(), "".into(), "".into(), 7);
        let dir = working_dir(ROOT.as_ref(), "s").unwrap();
        fs.create_dir_all(&dir).unwrap();
        assert!(manifest_of(&fs, &dir, &region).is_err());
        let manifest = pb::SnapshotRegionManifest {
            region_info: region.to_pb(),
            ..pb::SnapshotRegionManifest::default()
        };
        let all = pb::SnapshotDataManifest { region_manifests: vec![manifest.clone()], ..Default::default() };
        fs.put_new(&dir.join(MANIFEST), &all.encode_to_vec()).unwrap();
        assert_eq!(manifest_of(&fs, &dir, &region).unwrap(), manifest);
        let alone = dir.join(format!("{REGION_MANIFEST}{}", region.encoded_name()));
        fs.put_new(&alone, b"\xff garbage").unwrap();
        assert!(manifest_of(&fs, &dir, &region).unwrap_err().message().contains("region-manifest"));
        assert!(working_dir(ROOT.as_ref(), "../x").is_err());
    }
}
