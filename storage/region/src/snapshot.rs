//! What a snapshot says of a region: the names of its store files.

use std::sync::atomic::Ordering;

use halcyon_proto::pb;
use halcyon_proto::pb::snapshot_region_manifest::{FamilyFiles, StoreFile as NamedFile};

use crate::Region;
use crate::store::StoreFile;

impl Region {
    /// The store files, each family's as they are at one moment. What is in memory only is not in them: flush before.
    /// Compactions may take the files to the archive meanwhile; a snapshot finds them there.
    pub fn snapshot_manifest(&self) -> pb::SnapshotRegionManifest {
        loop {
            let loads = self.loads.load(Ordering::Acquire);
            let family_files = self.stores.iter().map(|store| FamilyFiles {
                family_name: store.family.name().clone(),
                store_files: store.view().files.iter().map(|file| named(file)).collect(),
            });
            let family_files = family_files.collect();
            // A bulk load exchanged views meanwhile: of its files all are named, or none.
            if loads % 2 == 1 || self.loads.load(Ordering::Acquire) != loads {
                halcyon_env::yield_now();
                continue;
            }
            return pb::SnapshotRegionManifest {
                version: None,
                region_info: self.info().to_pb(),
                family_files,
            };
        }
    }
}

/// A reference stands with the length of the file that it refers to, as in HBase (`SnapshotManifest.addStoreFiles`).
fn named(file: &StoreFile) -> NamedFile {
    NamedFile {
        name: file.name.clone(),
        reference: file.reference().map(|reference| reference.to_pb()),
        file_size: Some(file.hfile.len()),
    }
}
