//! Bulk load: finished HFiles become store files (HBase: `HRegion.bulkLoadHFiles`).
//!
//! ```text
//! check       each file is an HFile whose rows are the region's, and its family exists
//! copy        sources that stay where they are or are on another file system     Copies (`loads.rs`)
//! flush       all families; the flush's sequence id becomes the id of the loaded files
//! stage       sources or their copies are moved to .tmp/<opening>/load-<random>/<family>@<name>     StagedLoad (`loads.rs`)
//! commit      one rename of that directory to <region>/.bulk-<random>
//! place       files are moved to their stores; the next opening does it after a crash
//! show        the views of all stores are exchanged; readers see all files or none
//! mark        a BulkLoadDescriptor in the WAL, as HBase's replication wants it
//! ```
//!
//! *Crash safety*: before the commit the next opening moves sources back, after it the next opening moves files to
//! their stores. A load that has failed moves its sources back at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType, Error, ErrorKind, Result, SeqId};
use halcyon_env::Env;
use halcyon_hfile::{HFile, ReaderOptions};
use halcyon_proto::pb;
use halcyon_schema::Durability;
use halcyon_wal::{Completion, WalEntry};
use prost::Message;

use crate::loads::{CommittedLoad, Copies, SourceFile, StagedLoad};
use crate::open::META_FAMILY;
use crate::region::Region;
use crate::store::{Store, StoreFile, StoreFileOpener, Uncommitted, bulk_file_name};

/// Files of one load. HBase's tool sends at most 32 for each family by default.
pub const BULK_LOAD_FILES_MAX: usize = 10_000;
/// Qualifier of the marker in the WAL (HBase: `WALEdit.BULK_LOAD`).
const BULK_LOAD: &[u8] = b"HBASE::BULK_LOAD";

/// One HFile that is to be loaded.
#[derive(Clone)]
pub struct BulkLoadFile {
    pub family: Bytes,
    /// Where the file is.
    pub path: PathBuf,
    /// The file system that the file is on, if it is not that of the region. Such a file is copied.
    pub from: Option<Env>,
    /// The file stays where it is, and the region gets a copy.
    pub copy: bool,
}

/// What to load. All files or none become part of the region.
#[derive(Clone)]
pub struct BulkLoad {
    pub files: Vec<BulkLoadFile>,
    /// The cells are newer than all that are in the region. Otherwise they are older than all.
    pub assign_seq: bool,
    /// Clusters that have loaded the files already; for the marker in the WAL.
    pub cluster_ids: Vec<String>,
    /// For the marker in the WAL.
    pub replicate: bool,
}

/// How a load ended that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkLoadOutcome {
    /// Bytes of the files that the region has now.
    Loaded { files_count: usize, bytes: u64, seq: SeqId },
    /// These files have rows of other regions. Nothing was loaded. The client divides the files and tries again.
    RowsOutOfRange(Vec<PathBuf>),
}

/// Gets family and path of each file that is about to be loaded.
pub type LoadNote<'a> = dyn FnMut(&[(String, PathBuf)]) -> Result<()> + 'a;

/// What each store got.
type LoadedFiles<'a> = Vec<(&'a Store, Vec<Arc<StoreFile>>)>;

/// A file that passed the check.
struct Checked<'a> {
    store: &'a Store,
    file: &'a BulkLoadFile,
    /// Highest sequence id of cells that keep theirs; `None`: cells get that of the file.
    kept_seq: Option<SeqId>,
}

impl Region {
    /// Makes finished HFiles store files of the region. *Blocking*; excludes flushes, but not while files are copied. Readers see all files or none.
    ///
    /// Errors: `NoSuchFamily`; `Invalid` for what is no HFile of this kind of table or cannot be read; `Busy`; `Moved`.
    /// After an error nothing was loaded and the sources are where they were, unless the error says otherwise.
    pub fn bulk_load(&self, load: &BulkLoad) -> Result<BulkLoadOutcome> {
        self.bulk_load_noting(load, &mut |_| Ok(()))
    }

    /// As [`Region::bulk_load`]. `note` gets family and path of each file before any of them is part of the region. After an
    /// error of it nothing is loaded.
    pub fn bulk_load_noting(&self, load: &BulkLoad, note: &mut LoadNote<'_>) -> Result<BulkLoadOutcome> {
        let (mut checked, mut misfits) = (Vec::with_capacity(load.files.len()), Vec::new());
        {
            let _open = self.enter()?;
            self.check_writable()?;
            self.check_request(load)?;
            for file in &load.files {
                match self.check_bulk_file(file)? {
                    Some(good) => checked.push(good),
                    None => misfits.push(file.path.clone()),
                }
            }
        }
        if !misfits.is_empty() {
            return Ok(BulkLoadOutcome::RowsOutOfRange(misfits));
        }
        let copies = Copies::make(self.place(), &load.files);
        let _open = self.enter()?; // a region that closed meanwhile says so, whatever became of the copies
        let copies = copies?;
        let _flushing = self.flushing.lock();
        // Cells up to this id are in files of all families, so that replay may pass over them.
        let seq = if load.assign_seq { self.flush_locked(None)?.seq } else { SeqId::ZERO };
        for Checked { file, kept_seq, .. } in &checked {
            if kept_seq.is_some_and(|kept| kept > seq) {
                return Err(Error::invalid(format!(
                    "{}: its cells keep sequence ids above {seq}, which the region has not reached",
                    file.path.display()
                )));
            }
        }
        let loaded = self.adopt(&checked, &copies, seq, note)?;
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        let bytes = loaded.iter().flat_map(|(_, files)| files).map(|file| file.len_bytes).sum();
        self.write_marker(load, seq, &loaded).map_err(|error| {
            error.context("the files are loaded, and the marker of the load is not in the WAL")
        })?;
        tracing::info!(region = self.info.encoded_name(), files = checked.len(), bytes, %seq, "bulk load");
        Ok(BulkLoadOutcome::Loaded { files_count: checked.len(), bytes, seq })
    }

    fn check_request(&self, load: &BulkLoad) -> Result<()> {
        if self.info.is_meta() {
            return Err(Error::invalid("hbase:meta takes no bulk loads"));
        }
        if load.files.is_empty() || load.files.len() > BULK_LOAD_FILES_MAX {
            let count = load.files.len();
            return Err(Error::invalid(format!(
                "a bulk load has 1 to {BULK_LOAD_FILES_MAX} files, not {count}"
            )));
        }
        let mut paths: Vec<&Path> = load.files.iter().map(|file| &*file.path).collect();
        paths.sort_unstable();
        if let Some(twice) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid(format!("{} is named twice", twice[0].display())));
        }
        Ok(())
    }

    /// `None`: it has rows of other regions (HBase: `HStore.assertBulkLoadHFileOk`).
    fn check_bulk_file<'a>(&'a self, file: &'a BulkLoadFile) -> Result<Option<Checked<'a>>> {
        let store = self.store_or_error(&file.family)?;
        let env = file.from.as_ref().unwrap_or(&self.services.env);
        let hfile = HFile::open(env, &file.path, &self.services.cache, ReaderOptions::default())
            .map_err(|error| refused(&file.path, error.kind(), &error))?;
        hfile.blocks().retire(); // the loaded file has another name
        if hfile.comparator() != self.info.comparator() {
            return Err(refused(&file.path, ErrorKind::Invalid, &"its cells have another order"));
        }
        let info = hfile.info();
        let (Some(first), Some(last)) = (info.first_key(), info.last_key()) else {
            return Err(refused(&file.path, ErrorKind::Invalid, &"it has no cells"));
        };
        if !self.info.contains_row(first.row()) || !self.info.contains_row(last.row()) {
            return Ok(None);
        }
        let kept_seq = info.skips_reset_of_seq_ids().then(|| info.max_mvcc());
        Ok(Some(Checked { store, file, kept_seq }))
    }

    /// Brings the files into their stores and shows them.
    fn adopt<'a>(
        &'a self,
        checked: &[Checked<'a>],
        copies: &Copies,
        seq: SeqId,
        note: &mut LoadNote<'_>,
    ) -> Result<LoadedFiles<'a>> {
        let sources: Vec<SourceFile<'_>> = checked
            .iter()
            .enumerate()
            .map(|(at, Checked { store, file, .. })| SourceFile {
                path: &file.path,
                copy: copies.of(at),
                family: store.family.name_str().into_owned(),
                name: bulk_file_name(seq),
            })
            .collect();
        let staged = StagedLoad::stage(self.place(), &self.archive_dir, &sources)?;
        let place = |source: &SourceFile<'_>| {
            (source.family.clone(), self.dir.join(&source.family).join(&source.name))
        };
        if let Err(error) = note(&sources.iter().map(place).collect::<Vec<_>>()) {
            return Err(staged.undo(error));
        }
        let committed = staged.commit(&self.dir)?;
        let opened = committed.place().and_then(|placed| {
            let mut loaded: LoadedFiles<'_> = Vec::new();
            for (family, path) in placed {
                let store = self.store_or_error(family.as_bytes())?;
                let opener = StoreFileOpener {
                    env: &self.services.env,
                    cache: &self.services.cache,
                    family: &store.family,
                };
                let file = opener.open_hfile(&path)?;
                let prefetch = self.services.settings.prefetches_on_open(&store.family);
                file.prefetch_wanted.store(prefetch, Ordering::Release);
                match loaded.iter_mut().find(|(of, _)| std::ptr::eq(*of, store)) {
                    Some((_, files)) => files.push(file),
                    None => loaded.push((store, vec![file])),
                }
            }
            Ok(loaded)
        });
        let loaded = match opened {
            Ok(loaded) => loaded,
            Err(error) => return Err(committed.undo(error)),
        };
        let mut uncommitted = Vec::with_capacity(loaded.len());
        for (store, files) in &loaded {
            match store.list_loaded(self.place(), files) {
                Ok(lock) => uncommitted.push(lock),
                Err(error) => return Err(self.forget_loaded(&loaded, uncommitted, committed, error)),
            }
        }
        // Odd while the views are exchanged: a reader that takes views of several stores takes them again.
        self.loads.fetch_add(1, Ordering::AcqRel);
        loaded.iter().zip(uncommitted).for_each(|((store, files), lock)| store.show_loaded(files, lock));
        self.loads.fetch_add(1, Ordering::AcqRel);
        committed.end();
        Ok(loaded)
    }

    /// Takes a load back whose files not all lists name. `listed`: of the first stores. Returns the error that is the reason.
    fn forget_loaded(
        &self,
        loaded: &LoadedFiles<'_>,
        listed: Vec<Uncommitted<'_>>,
        committed: CommittedLoad,
        error: Error,
    ) -> Error {
        let locks = listed.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        for ((store, _), lock) in loaded.iter().zip(locks) {
            // A list that names a file which is not there keeps the region from opening.
            if let Err(left) = store.forget_loaded(self.place(), lock) {
                tracing::error!(error = %left, "a bulk load is committed and not shown");
                return error.context("the next opening of the region shows the loaded files");
            }
        }
        committed.undo(error)
    }

    /// Tells the WAL what was loaded (HBase: `WALUtil.writeBulkLoadMarkerAndSync`).
    fn write_marker(&self, load: &BulkLoad, seq: SeqId, loaded: &LoadedFiles<'_>) -> Result<()> {
        let stores = loaded.iter().map(|(store, files)| pb::StoreDescriptor {
            family_name: store.family.name().clone(),
            store_home_dir: store.family.name_str().into_owned(),
            store_file: files.iter().map(|file| file.name.clone()).collect(),
            store_file_size_bytes: files.last().map(|file| file.len_bytes),
        });
        let table = self.info.table();
        let descriptor = pb::BulkLoadDescriptor {
            table_name: pb::TableName {
                namespace: Bytes::copy_from_slice(table.namespace().as_bytes()),
                qualifier: Bytes::copy_from_slice(table.qualifier().as_bytes()),
            },
            encoded_region_name: Bytes::copy_from_slice(self.info.encoded_name().as_bytes()),
            stores: stores.collect(),
            bulkload_seq_num: if load.assign_seq { seq.get() as i64 } else { -1 },
            cluster_ids: load.cluster_ids.clone(),
            replicate: Some(load.replicate),
        };
        let row = if self.info.start_key().is_empty() { &[0][..] } else { &self.info.start_key()[..] };
        let now_ms = self.services.env.clock.now_ms();
        let value = descriptor.encode_to_vec();
        let cell = Cell::build(row, META_FAMILY, BULK_LOAD, now_ms, CellType::Put, &value, b"", 0);
        let (write, ()) = self.mvcc.begin(1, |seq, write| {
            let cells = [cell.get()];
            let entry = WalEntry {
                region: self.info.encoded_name().as_bytes(),
                table: table.full_name(),
                seq,
                write_time_ms: now_ms,
                nonce_group: 0,
                nonce: 0,
                cluster_ids: &[],
                replicated: &self.replicated,
                cells: &cells,
            };
            let (mvcc, write) = (self.mvcc.clone(), write.clone());
            let completion: Completion = Box::new(move |result: &Result<()>| match result {
                Ok(()) => mvcc.step_done(&write),
                Err(error) => mvcc.fail(&write, error),
            });
            self.services.wal.append(&entry, Durability::SyncWal, completion)
        })?;
        self.mvcc.wait_for(write.seq(), || {
            self.services.wal.drive_or_wake();
            self.check_log_space()
        })
    }
}

/// What a client is told of a file, whatever is wrong with it. It names a file of the server's, so it is told neither
/// whether the file is there nor anything of what is in it. The client is not to repeat the call: what cannot be read now
/// cannot be read later.
pub fn cannot_be_loaded(path: &Path) -> Error {
    let path = path.display();
    Error::invalid(format!(
        "{path} cannot be loaded: it is no HFile with cells in the order of the table that this server can read; its \
         log says why"
    ))
}

/// Writes the reason to the log.
fn refused(path: &Path, kind: ErrorKind, reason: &dyn std::fmt::Display) -> Error {
    tracing::warn!(path = %path.display(), %reason, "a file of a bulk load is refused");
    match kind {
        ErrorKind::Busy | ErrorKind::Stopping => Error::new(kind, reason.to_string()),
        _ => cannot_be_loaded(path),
    }
}
