//! The mob files that a flush or a compaction writes.

use std::path::PathBuf;
use std::sync::Arc;

use halcyon_cell::{Cell, CellRef, CellType, Result, SeqId};
use halcyon_env::invariant;
use halcyon_hfile::{BloomType, FileMeta, HFileWriter, WriterOptions};
use halcyon_schema::mob::{MobFileName, MobFileRefs, is_mob_reference, mob_reference_of};

use super::MobStore;
use crate::place::{OpeningDir, random_name, remove_if_there};

/// Takes large values, and gives references for them. Its files come into their place with [`MobOutputs::publish`]; if it is
/// dropped before, they are gone.
pub(crate) struct MobOutputs {
    store: Arc<MobStore>,
    place: Arc<OpeningDir>,
    options: WriterOptions,
    meta: FileMeta,
    /// For the names of the files.
    day: u32,
    open: Option<Open>,
    /// Complete files in the opening's directory, by name.
    complete: Vec<String>,
    /// What the store file will refer to.
    pub refs: MobFileRefs,
    /// Of all files.
    pub cells: u64,
    pub bytes: u64,
}

struct Open {
    name: String,
    writer: HFileWriter,
}

impl MobOutputs {
    /// `options` are those of the store's files, `newest_ms` the newest timestamp among the cells to come.
    pub fn new(
        store: &Arc<MobStore>,
        place: &Arc<OpeningDir>,
        options: WriterOptions,
        newest_ms: i64,
        max_seq: SeqId,
        major: bool,
    ) -> MobOutputs {
        // As in HBase (`MobUtils.createWriter`): always with tags and sequence ids, and without a filter for rows.
        let options =
            WriterOptions { bloom: BloomType::None, include_tags: true, include_mvcc: true, ..options };
        MobOutputs {
            day: store.env.clock.day_of(newest_ms),
            store: store.clone(),
            place: place.clone(),
            options,
            meta: FileMeta { max_seq_id: Some(max_seq), major_compaction: major, ..FileMeta::default() },
            open: None,
            complete: Vec::new(),
            refs: MobFileRefs::default(),
            cells: 0,
            bytes: 0,
        }
    }

    /// Whether the value of the cell goes into a mob file. It does not where the tags leave no room for those of a reference.
    pub fn takes(&self, cell: CellRef<'_>) -> bool {
        self.store.is_large(cell)
            && cell.cell_type() == CellType::Put
            && cell.tags().len() + self.store.tags.len() <= usize::from(u16::MAX)
            && !is_mob_reference(cell)
    }

    /// Writes the cell to a mob file. Returns the reference to it.
    pub fn append(&mut self, cell: CellRef<'_>) -> Result<Cell> {
        invariant!(
            !is_mob_reference(cell),
            "a reference to a reference would be returned as a value: {cell:?}"
        );
        if self.open.is_none() {
            let (start_key, region) = (&self.store.start_key, &self.store.encoded_region);
            let name = MobFileName::make(start_key, self.day, &random_name(), region);
            let path = self.working(&name);
            self.open = Some(Open {
                writer: HFileWriter::create(&self.store.env, &path, self.options.clone())?,
                name,
            });
        }
        let open = self.open.as_mut().expect("it was just made");
        open.writer.append(cell)?;
        self.cells += 1;
        self.bytes += cell.value_len() as u64;
        let reference = mob_reference_of(cell, &open.name, &self.store.tags)?;
        self.refs.add(&self.store.table, &open.name);
        Ok(reference)
    }

    /// Bytes of the file that takes values now.
    pub fn len_estimate(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.writer.len_estimate())
    }

    /// Completes the file that takes values now. The next value begins another.
    pub fn complete_file(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let count = open.writer.entries();
        assert!(count > 0, "a file is made for a value: {}", open.name);
        self.complete.push(open.name);
        open.writer.finish(FileMeta { mob_cells_count: Some(count), ..self.meta.clone() })?;
        Ok(())
    }

    /// Brings the complete files into their place, durably, and keeps the cleaner from them until this is dropped. After an
    /// error none is there, or the cleaner finds it.
    pub fn publish(&mut self) -> Result<()> {
        assert!(self.open.is_none(), "a file is complete before a reference to it is durable");
        if self.complete.is_empty() {
            return Ok(());
        }
        let is_listed = |name: &String| self.refs.contains(&self.store.table, name);
        assert!(self.complete.iter().all(is_listed), "the cleaner takes a mob file that no store file lists");
        let (store, family) = (&self.store, self.store.family.name_str());
        store.being_written.lock().extend(self.complete.iter().cloned());
        store.env.fs.create_dir_all(&store.dir)?;
        for (at, name) in self.complete.iter().enumerate() {
            let to = store.dir.join(name);
            if let Err(error) = self.place.publish(&self.working(name), &to, &family) {
                for name in &self.complete[..=at] {
                    if let Err(error) = self.place.take_back(&store.dir.join(name), &family) {
                        tracing::warn!(%error, name, "a mob file without reference is left to the cleaner");
                    }
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn working(&self, name: &str) -> PathBuf {
        self.place.file_named(&self.store.family.name_str(), name)
    }
}

impl Drop for MobOutputs {
    fn drop(&mut self) {
        let names: Vec<String> =
            self.complete.drain(..).chain(self.open.take().map(|open| open.name)).collect();
        let mut being_written = self.store.being_written.lock();
        names.iter().for_each(|name| {
            being_written.remove(name);
        });
        drop(being_written);
        for name in &names {
            // Those that were published are not there any more. `.tmp` is emptied at the next open anyway.
            let _ = remove_if_there(&self.store.env, &self.working(name));
        }
    }
}
