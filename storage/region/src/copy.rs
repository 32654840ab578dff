//! Store files that a region gets from elsewhere while no server has it open: copies, and links to files of other regions.
//!
//! Either is made in a directory of its own below `.tmp` of the region and is renamed into its store when it is whole. Each
//! attempt has another directory, and the opening of the region takes all of them away. So a request of an earlier attempt
//! that is carried out late (`is_in_doubt`) can neither empty a copy nor bring a file back that the open region has compacted.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{CellScanner, Error, Key, Result};
use halcyon_env::{DirEntry, Env, ReadableFile, invariant};
use halcyon_hfile::{FileMeta, HFile, HFileWriter, HalfScanner, ReadMode, ReaderOptions, RowRange};
use halcyon_schema::mob::MOB_FILE_REFS;
use halcyon_schema::{FamilyDescriptor, RegionInfo, StoreFileTracker, TableDescriptor};

use crate::loads::has_unplaced;
use crate::place::StagingDir;
use crate::region::{Region, RegionServices};
use crate::store::file_list::{Listed, read_list, replace_closed};
use crate::store::{StoreFileName, StoreFileOpener, WrittenBy, writer_options};

/// Bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;
/// Cells keep their sequence ids after a bulk load (HBase: `HStoreFile.SKIP_RESET_SEQ_ID`).
const SKIP_RESET_SEQ_ID: &[u8] = b"SKIP_RESET_SEQ_ID";

impl Region {
    /// Copies a file to `to`, a name in a store of a region that no server has open. `to` is written whole or not at all, and
    /// only copies of the same file get this name. Does nothing if it is there. *Blocking.*
    pub fn copy_file(env: &Env, from: &dyn ReadableFile, to: &Path) -> Result<()> {
        if env.fs.exists(to)? {
            return sync_dir_of(env, to);
        }
        let staging = StagingDir::begin(env, region_dir_of(to)?)?;
        let working = staging.path("copy");
        copy_bytes(env, from, &working)?;
        staging.publish_copy(&working, to)
    }

    /// Makes `to`, a link in a store of a region that no server has open; it is an empty file. Does nothing if it is there.
    /// *Blocking.*
    pub fn make_link(env: &Env, to: &Path) -> Result<()> {
        if env.fs.exists(to)? {
            return sync_dir_of(env, to);
        }
        let staging = StagingDir::begin(env, region_dir_of(to)?)?;
        let working = staging.path("link");
        env.fs.put_new(&working, b"")?;
        staging.publish_copy(&working, to)
    }

    /// Whether the region in `dir` owns files of a bulk load of which not all are in their stores yet. A look at the stores
    /// may see a part of such a load. *Blocking.*
    pub fn has_unplaced_load(env: &Env, dir: &Path) -> Result<bool> {
        has_unplaced(env, dir)
    }

    /// The first and the last row of an HFile; `None` if it has no cells. *Blocking.*
    pub fn rows_of_file(services: &RegionServices, file: &Path) -> Result<Option<(Bytes, Bytes)>> {
        let hfile = open_apart(services, file)?;
        let row = |key: Option<halcyon_cell::KeyRef<'_>>| key.map(|key| Bytes::copy_from_slice(key.row()));
        let info = hfile.info();
        Ok(row(info.first_key()).zip(row(info.last_key())))
    }

    /// Copies a file to the new file `to`, durably but for its name. *Blocking.*
    pub fn copy_to_new(env: &Env, from: &dyn ReadableFile, to: &Path) -> Result<()> {
        copy_bytes(env, from, to)
    }

    /// Writes the cells of an HFile that are of the region's rows to the new file `to`, which can be bulk loaded (HBase:
    /// `BulkLoadHFilesTool.splitStoreFile`). False: there are none, and no file. *Blocking.*
    pub fn cut_for_load(
        services: &RegionServices,
        table: &TableDescriptor,
        region: &RegionInfo,
        (family, from): (&FamilyDescriptor, &Path),
        to: &Path,
    ) -> Result<bool> {
        let env = &services.env;
        let hfile = open_apart(services, from)?;
        let end = Some(region.end_key().clone()).filter(|end| !end.is_empty());
        let range = RowRange { start: Some(region.start_key().clone()), end };
        let mut scanner = HalfScanner::new(hfile.scanner(ReadMode::AnyDisk, false), range);
        let (comparator, codec) = (region.comparator(), &services.settings.zstd_codec);
        let (by, now_ms) = (WrittenBy::Flush, env.clock.now_ms());
        let options = writer_options(family, table, by, comparator, codec, &env.keys, now_ms)?;
        let mut writer = HFileWriter::create(env, to, options)?;
        if hfile.info().skips_reset_of_seq_ids() {
            writer.append_file_info(SKIP_RESET_SEQ_ID, &[0xff]);
        }
        scanner.seek(Key::first_on_row(b"").get())?;
        while let Some(cell) = scanner.peek() {
            invariant!(region.contains_row(cell.row()), "{cell:?} is another region's, which has it as well");
            writer.append(cell)?;
            scanner.next()?;
        }
        if writer.entries() == 0 {
            drop(writer);
            env.fs.remove_file(to)?;
            return Ok(false);
        }
        writer.finish(FileMeta::default())?;
        Ok(true)
    }

    /// Writes down that the store in `family_dir`, of a region that no server has open, has all files that are in it, where
    /// `tracker` goes by a list. May run again. *Blocking.*
    pub fn list_files(env: &Env, family_dir: &Path, tracker: StoreFileTracker) -> Result<()> {
        if !tracker.writes_list() {
            return Ok(());
        }
        let listed = |entry: DirEntry| {
            let name = StoreFileName::parse(&entry.name).filter(|_| !entry.is_dir)?;
            let len = if name.is_own_hfile() { entry.len } else { 0 };
            Some(Listed { name: entry.name, len })
        };
        let files: Vec<Listed> = env.fs.list(family_dir)?.into_iter().filter_map(listed).collect();
        replace_closed(env, family_dir, files)
    }

    /// Names and bytes of the files that the list of the store in `family_dir` names, which a server may have open; `None`:
    /// `tracker` does not go by a list. *Blocking.*
    pub fn listed_files(
        env: &Env,
        family_dir: &Path,
        tracker: StoreFileTracker,
    ) -> Result<Option<Vec<(String, u64)>>> {
        if !tracker.loads_list() {
            return Ok(None);
        }
        let files = read_list(env, family_dir)?;
        Ok(Some(files.into_iter().map(|file| (file.name, file.len)).collect()))
    }

    /// Writes the cells of the file `from` that are of the region's rows as a store file of the region, `to`, whole
    /// or not at all. Does nothing if that is there. For references in snapshots. *Blocking.*
    pub fn copy_rows(
        services: &RegionServices,
        table: &TableDescriptor,
        region: &RegionInfo,
        from: &Path,
        to: &Path,
    ) -> Result<()> {
        let env = &services.env;
        if env.fs.exists(to)? {
            return sync_dir_of(env, to);
        }
        let nowhere = || Error::invalid(format!("{} is in no family's directory", to.display()));
        let dir = to.parent().ok_or_else(nowhere)?;
        let family_name = dir.file_name().and_then(|name| name.to_str()).ok_or_else(nowhere)?;
        let family = table.family(family_name.as_bytes()).ok_or_else(nowhere)?;
        let file = StoreFileOpener { env, cache: &services.cache, family }.open_hfile(from)?;
        let end = Some(region.end_key().clone()).filter(|end| !end.is_empty());
        let range = RowRange { start: Some(region.start_key().clone()), end };
        let mut scanner = HalfScanner::new(file.hfile.scanner(ReadMode::AnyDisk, false), range);
        let staging = StagingDir::begin(env, region_dir_of(to)?)?;
        let working = staging.path("copy");
        let now_ms = env.clock.now_ms();
        let (comparator, codec) = (region.comparator(), &services.settings.zstd_codec);
        let options =
            writer_options(family, table, WrittenBy::MinorCompaction, comparator, codec, &env.keys, now_ms)?;
        let mut writer = HFileWriter::create(env, &working, options)?;
        if let Some(refs) = file.hfile.info().get(MOB_FILE_REFS) {
            writer.append_file_info(MOB_FILE_REFS.as_bytes(), refs); // of these rows, and perhaps of others
        }
        if file.hfile.info().skips_reset_of_seq_ids() {
            // The copy has the name of a bulk load, and by that alone all its cells would get one sequence id.
            writer.append_file_info(SKIP_RESET_SEQ_ID, &[0xff]);
        }
        scanner.seek(Key::first_on_row(b"").get())?;
        while let Some(cell) = scanner.peek() {
            invariant!(region.contains_row(cell.row()), "{cell:?} is another region's, which has it as well");
            writer.append(cell)?;
            scanner.next()?;
        }
        writer.finish(FileMeta { max_seq_id: Some(file.max_seq), ..FileMeta::default() })?;
        staging.publish_copy(&working, to)
    }
}

/// Opens an HFile that is no store file. The cache keeps nothing of it.
fn open_apart(services: &RegionServices, file: &Path) -> Result<Arc<HFile>> {
    let hfile = HFile::open(&services.env, file, &services.cache, ReaderOptions::default())?;
    hfile.blocks().retire();
    Ok(hfile)
}

/// Writes what is in a file to a new one, durably but for its name.
pub(crate) fn copy_bytes(env: &Env, from: &dyn ReadableFile, to: &Path) -> Result<()> {
    let mut target = env.fs.create(to)?;
    let len = from.len()?;
    let mut at = 0;
    while at < len {
        let mut buffer = vec![0; COPY_BYTES.min(len - at) as usize];
        from.read_exact_at(&mut buffer, at)?;
        target.write_all(&buffer)?;
        at += buffer.len() as u64;
    }
    Ok(target.sync_and_close()?)
}

/// Makes the name of a file durable that an earlier attempt has brought into place.
fn sync_dir_of(env: &Env, file: &Path) -> Result<()> {
    Ok(file.parent().map_or(Ok(()), |dir| env.fs.sync_dir(dir))?)
}

/// The directory of the region that a store file is of.
fn region_dir_of(store_file: &Path) -> Result<&Path> {
    let dir = store_file.parent().and_then(Path::parent);
    dir.ok_or_else(|| Error::invalid(format!("{} is in no region's directory", store_file.display())))
}
