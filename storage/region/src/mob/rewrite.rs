//! What a compaction does with references and large values (HBase: `DefaultMobStoreCompactor.performCompaction`).
//!
//! | cell | major compaction that a user asked for | any other |
//! |---|---|---|
//! | reference | its value goes to a new mob file, or into the store file if it is not over the threshold | stays |
//! | large value | goes to a mob file | likewise |
//! | any other | stays | stays |
//!
//! With `hbase.mob.compaction.type` `optimized` a reference to a mob file of `hbase.mob.compactions.max.file.size` or more
//! stays in both, and mob files end when they are larger than that. Not so where a file is of HBase before 2.5.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use halcyon_cell::{CellRef, Error, Result};
use halcyon_hfile::ReadMode;
use halcyon_schema::mob::{MOB_FILE_REFS, MobFileName, MobFileRefs, MobReference, is_mob_reference};

use super::{MobCompactionType, MobOutputs, MobRead, MobStore};
use crate::store::StoreFile;

pub(crate) struct MobRewriter {
    store: Arc<MobStore>,
    pub outputs: MobOutputs,
    /// There is neither a reference nor a value that is to be one.
    is_idle: bool,
    /// Values of references are written anew.
    rewrites: bool,
    /// Lengths of the mob files that are referred to; `None`: they do not matter.
    lengths: Option<HashMap<String, u64>>,
    to_mob: (u64, u64),
    from_mob: (u64, u64),
}

const READ: MobRead =
    MobRead { mode: ReadMode::AnyDisk, cache_blocks: false, empty_on_miss: false, reads: None };

impl MobRewriter {
    /// `rewrites`: it is a major compaction that a user asked for.
    pub fn new(
        store: &Arc<MobStore>,
        outputs: MobOutputs,
        inputs: &[Arc<StoreFile>],
        rewrites: bool,
    ) -> Result<MobRewriter> {
        let is_optimized = store.settings.compaction_type() == MobCompactionType::Optimized;
        let lengths = if rewrites && is_optimized { lengths_of(store, inputs)? } else { None };
        let (to_mob, from_mob) = ((0, 0), (0, 0));
        let is_idle = !store.may_have_references(inputs);
        Ok(MobRewriter { store: store.clone(), outputs, is_idle, rewrites, lengths, to_mob, from_mob })
    }

    /// Writes what is to stand in the store file for the cell with `append`. Returns the bytes of values that were written
    /// besides.
    pub fn append(
        &mut self,
        cell: CellRef<'_>,
        append: &mut impl FnMut(CellRef<'_>) -> Result<()>,
    ) -> Result<u64> {
        if self.is_idle || !is_mob_reference(cell) {
            if self.is_idle || !self.outputs.takes(cell) {
                append(cell)?;
                return Ok(0);
            }
            let len = cell.value_len() as u64;
            append(self.outputs.append(cell)?.get())?;
            self.to_mob = (self.to_mob.0 + 1, self.to_mob.1 + len);
            self.end_full_file()?;
            return Ok(len);
        }
        let reference = match MobReference::of(cell) {
            Ok(reference) => reference,
            // It was written by somebody else. It is no worse afterwards, and the other cells of its file are compacted.
            Err(error) => {
                tracing::error!(%error, "a reference to a mob file makes no sense, and is left as it is");
                append(cell)?;
                return Ok(0);
            }
        };
        if !self.rewrites || self.stays(&reference) {
            self.outputs.refs.add(&reference.table, reference.file);
            append(cell)?;
            return Ok(0);
        }
        let value = match self.store.resolve(cell, &READ) {
            Err(error) if self.store.settings.discards_missing && error.kind().is_permanent() => {
                tracing::error!(%error, "a reference is dropped (hbase.unsafe.mob.discard.miss)");
                return Ok(0);
            }
            value => value?,
        };
        let len = value.get().value_len() as u64;
        if self.store.is_large(value.get()) {
            append(self.outputs.append(value.get())?.get())?;
            self.end_full_file()?;
        } else {
            append(value.get())?;
            self.from_mob = (self.from_mob.0 + 1, self.from_mob.1 + len);
        }
        Ok(len)
    }

    /// Whether a reference stays because its file is large enough, or because the store file does not list it: then it is somebody
    /// else's, and from here on it is listed.
    fn stays(&self, reference: &MobReference<'_>) -> bool {
        let Some(lengths) = &self.lengths else { return false };
        match lengths.get(reference.file) {
            Some(&len) => len >= self.store.settings.file_bytes_max && self.store.is_on(),
            None => {
                tracing::error!(
                    file = reference.file,
                    "a cell refers to a mob file that its store file does not list"
                );
                true
            }
        }
    }

    fn end_full_file(&mut self) -> Result<()> {
        let is_optimized = self.store.settings.compaction_type() == MobCompactionType::Optimized;
        if is_optimized && self.outputs.len_estimate() > self.store.settings.file_bytes_max {
            self.outputs.complete_file()?;
        }
        Ok(())
    }

    /// To be called when the compaction's files are in place.
    pub fn count(&self) {
        let counters = &self.store.counters;
        counters.to_mob_cells.fetch_add(self.to_mob.0, Ordering::Relaxed);
        counters.to_mob_bytes.fetch_add(self.to_mob.1, Ordering::Relaxed);
        counters.from_mob_cells.fetch_add(self.from_mob.0, Ordering::Relaxed);
        counters.from_mob_bytes.fetch_add(self.from_mob.1, Ordering::Relaxed);
    }
}

/// The lengths of the mob files that the inputs refer to; `None` if one of them has a name of HBase before 2.5. `Invalid` if
/// one is nowhere.
fn lengths_of(store: &MobStore, inputs: &[Arc<StoreFile>]) -> Result<Option<HashMap<String, u64>>> {
    let mut lengths = HashMap::new();
    for input in inputs {
        let Some(bytes) = input.hfile.info().get(MOB_FILE_REFS) else { continue };
        let refs = MobFileRefs::decode(bytes).map_err(|error| error.context(input.path.display()))?;
        for (table, file) in refs.iter() {
            if MobFileName::parse(file).is_none_or(|name| name.region.is_empty()) {
                return Ok(None);
            }
            match store.len_of(table, file)? {
                Some(len) => lengths.insert(file.to_string(), len),
                None if store.settings.discards_missing => lengths.insert(file.to_string(), 0),
                None => {
                    return Err(Error::invalid(format!(
                        "mob file {file} of {table} is neither there nor archived"
                    )));
                }
            };
        }
    }
    Ok(Some(lengths))
}
