//! What the regions of a server share: files, WALs, block cache, chunks of memstores.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_cache::BlockCache;
use halcyon_cell::{Error, Result};
use halcyon_env::Env;
use halcyon_memstore::ChunkPool;
use halcyon_region::{MobFileCache, Region, RegionServices, RegionSettings, WalRoot};
use halcyon_schema::{RegionInfo, TableDescriptor};

use crate::settings::online::OnlineSettings;
use crate::wal::logs::Logs;

pub(crate) struct RegionResources {
    pub(crate) env: Env,
    pub(crate) root: PathBuf,
    /// `None`: WALs are in the root directory.
    pub(crate) wal_root: Option<WalRoot>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) mob_files: Arc<MobFileCache>,
    pub(crate) chunks: Arc<ChunkPool>,
    pub(crate) settings: RegionSettings,
    /// For how files are compacted.
    pub(crate) online: Arc<OnlineSettings>,
}

impl RegionResources {
    pub(crate) fn services(&self, info: &RegionInfo) -> Result<RegionServices> {
        Ok(RegionServices {
            env: self.env.clone(),
            wal: if info.is_meta() && !info.is_secondary() {
                self.logs.meta()?
            } else {
                self.logs.tables().clone()
            },
            cache: self.cache.clone(),
            mob_files: self.mob_files.clone(),
            chunks: self.chunks.clone(),
            settings: RegionSettings {
                compaction: self.online.in_force().region.compaction.clone(),
                ..self.settings.clone()
            },
            wal_root: self.wal_root.clone(),
        })
    }

    /// The files that WALs are among, and the root directory there.
    pub(crate) fn wals(&self) -> (&Env, &Path) {
        match &self.wal_root {
            Some(wal) => (&wal.env, &wal.path),
            None => (&self.env, &self.root),
        }
    }

    /// Where the WALs and recovered edits of another root directory are, if not in that. As in HBase, a directory below the
    /// server's own has the same place below the root of WALs (`MasterRegion`).
    pub(crate) fn wal_root_of(&self, root: &Path) -> Result<Option<WalRoot>> {
        let Some(wal) = &self.wal_root else { return Ok(None) };
        let below = root.strip_prefix(&self.root);
        let below = below.map_err(|_| Error::invalid(format!("{} is not below the root", root.display())))?;
        // Joined part by part: an empty one would end the path with a slash.
        let path = below.iter().fold(wal.path.clone(), |path, part| path.join(part));
        Ok(Some(WalRoot { env: wal.env.clone(), path }))
    }

    /// Opens a region of the server's root directory. *Blocking*. Invalid if the table has files that are not read here: no client
    /// is to read a wrong cell.
    /// `is_hosted`: coprocessors will be asked what its flushes and compactions keep.
    pub(crate) fn open(
        &self,
        info: &RegionInfo,
        table: &Arc<TableDescriptor>,
        is_hosted: bool,
    ) -> Result<Arc<Region>> {
        table.check_files()?;
        let mut services = self.services(info)?;
        services.settings.is_hosted = is_hosted;
        open_with(services, &self.root, info, table)
    }

    /// Opens a region of any root directory. *Blocking*.
    pub(crate) fn open_below(
        &self,
        root: &Path,
        info: &RegionInfo,
        table: &Arc<TableDescriptor>,
    ) -> Result<Arc<Region>> {
        let services = RegionServices { wal_root: self.wal_root_of(root)?, ..self.services(info)? };
        open_with(services, root, info, table)
    }
}

fn open_with(
    services: RegionServices,
    root: &Path,
    info: &RegionInfo,
    table: &Arc<TableDescriptor>,
) -> Result<Arc<Region>> {
    let open = if info.is_secondary() { Region::open_secondary } else { Region::open };
    open(services, root, info.clone(), Arc::clone(table))
}
