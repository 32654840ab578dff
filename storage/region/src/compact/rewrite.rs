//! The work of a compaction: inputs merged, what nobody may see dropped, the rest in one file or, by windows of
//! time or by stripes, in several.
//!
//! Only the file that is put in place last names the inputs. A crash before that leaves inputs and some copies of
//! their cells, which is as good as the inputs alone; after it, opening the store archives the inputs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use halcyon_cell::{CellRef, Error, ErrorKind, Key, ReadPoint, Result, SeqId};
use halcyon_env::invariant;
use halcyon_hfile::{FileMeta, ReadMode};
use halcyon_schema::mob::MOB_FILE_REFS;

use super::CompactionControl;
use super::state::{Drops, Selection};
use crate::mob::{MobOutputs, MobRewriter};
use crate::region::Region;
use crate::scan::matcher::Matcher;
use crate::scan::source::Heap;
use crate::store::{Outputs, Store, StoreFile, Written, WrittenBy};
use crate::store_hooks::{Hooked, Stage, Walk};

/// Bytes of cells between two questions whether the compaction goes on. HBase asks every 10 MB
/// (`hbase.hstore.close.check.interval`).
const BYTES_BETWEEN_QUESTIONS: u64 = 1 << 20;

const _: () =
    assert!(BYTES_BETWEEN_QUESTIONS <= 10 << 20, "a region that closes waits no longer than HBase's");

/// Files that are older lose the sequence ids of their cells when all files of a store are compacted (HBase:
/// `hbase.hstore.compaction.keep.seqId.period`, of which 5 days are default and minimum).
const KEEP_SEQ_IDS_MS: i64 = 5 * 24 * 60 * 60 * 1000;

impl Region {
    /// Writes the files that are to take the place of `inputs`, oldest first. `Stopping` if `control` or the
    /// region's closing ends it; nothing is left behind then.
    pub(super) fn rewrite(
        &self,
        store: &Store,
        inputs: &[Arc<StoreFile>],
        selection: &Selection,
        by_user: bool,
        hooked: &mut Hooked,
        control: &mut dyn CompactionControl,
    ) -> Result<(Written, MobRewriter)> {
        let now_ms = self.services.env.clock.now_ms();
        // Newest first; blocks that only a compaction reads are not worth a place in the cache.
        let sources =
            inputs.iter().rev().map(|file| file.source(ReadMode::AnyDisk, false, ReadPoint::NEWEST));
        assert!(
            inputs.is_sorted_by(|older, newer| older.max_seq <= newer.max_seq),
            "inputs come oldest first: of equal cells the newer file's counts"
        );
        let mut heap = Heap::new(store.comparator, sources.collect());
        assert!(
            heap.sources_count() == inputs.len(),
            "an input that is not read is archived, and its cells with it"
        );
        heap.seek(Key::first_on_row(b"").get())?;
        let earliest = inputs.iter().filter_map(|file| file.hfile.info().earliest_put_ts()).min();
        let earliest = earliest.unwrap_or(i64::MAX);
        let newest = inputs.iter().map(|file| file.max_seq.max(file.max_cell_seq)).max().unwrap_or_default();
        let keep_above = hooked.keep_above(self.read_points.keep_above(newest));
        let left_out = self.answers.left_out(self.services.env.clock.monotonic_ns());
        let keeping = hooked.keeping(store);
        // By these ids cells are told from others, and values of equal keys in a mob file.
        let needs_ids = keeping.new_version_behavior || store.mob.may_have_references(inputs);
        let forget_up_to = match selection.all && !needs_ids {
            true => forgotten_up_to(inputs, now_ms).min(SeqId::new(keep_above.get())),
            false => SeqId::ZERO,
        };
        let matcher = match &selection.drops {
            Drops::Nothing => Matcher::minor(keeping, now_ms),
            Drops::Everything => Matcher::major(keeping, earliest, now_ms),
            Drops::Rows(span) => Matcher::major_within(span.clone(), keeping, earliest, now_ms),
        };
        let mut matcher = matcher.keeping_above(keep_above);
        let by = written_by(selection.all);
        // As in HBase (`Compactor.createWriter`): without a tag there is no part for tags.
        let tags = store.mob.is_on() || inputs.iter().any(|file| file.hfile.info().max_tags_len() > 0);
        let mut mobs = self.mobs_of_compaction(store, inputs, selection.all, by_user, now_ms)?;
        let target = self.file_target(store, by, now_ms, tags)?;
        let mut outputs = Outputs::new(target, selection.cut.clone());
        let (mut looked_at_bytes, mut looked_at_cells, mut written_bytes) = (0, 0, 0);
        let family = store.family.name();
        let walk = Walk { heap: &mut heap, matcher: &mut matcher, left_out: &left_out, family };
        self.write_through(hooked, newest, walk, &mut |cell, stage| {
            let len = cell.bytes().len() as u64;
            let Stage::Seen { kept } = stage else {
                let mut append = |cell: CellRef<'_>| {
                    // A loaded file, made elsewhere, may have cells above what it says of itself. Reads take a view for one that
                    // has dropped nothing they need by its ids: above all read points there would be no such view any more.
                    let seq = match SeqId::new(cell.seq()) {
                        seq if seq <= forget_up_to => SeqId::ZERO,
                        seq => seq.min(newest),
                    };
                    outputs.append(CellRef::trusted(cell.bytes(), seq.get()))
                };
                written_bytes += len + mobs.append(cell, &mut append)?;
                // Coprocessors may return more than was read.
                return match written_bytes < 2 * BYTES_BETWEEN_QUESTIONS {
                    true => Ok(()),
                    false => self.ask(control, std::mem::take(&mut written_bytes)),
                };
            };
            invariant!(
                kept || keep_above.sees(SeqId::new(cell.seq())) || !cell.cell_type().is_delete(),
                "{cell:?} is dropped, and cells that a scanner at {keep_above} may not see any more come back"
            );
            looked_at_bytes += len;
            looked_at_cells += 1;
            outputs.note_visited();
            if !kept && !store.mob.is_on() {
                left_out.note(cell); // with MOB it may be a reference
            }
            if looked_at_bytes < BYTES_BETWEEN_QUESTIONS {
                return Ok(());
            }
            looked_at_bytes = 0;
            store.progress.advance(std::mem::take(&mut looked_at_cells));
            self.ask(control, std::mem::take(&mut written_bytes))
        })?;
        mobs.outputs.complete_file()?;
        if store.mob.may_have_references(inputs) {
            outputs.append_file_info(MOB_FILE_REFS, mobs.outputs.refs.encode());
        }
        outputs.add_empty_files()?;
        let meta = FileMeta {
            max_seq_id: inputs.iter().map(|file| file.max_seq).max(),
            major_compaction: selection.all,
            ..FileMeta::default()
        };
        let compacted_from: Vec<String> = inputs.iter().map(|file| file.name.clone()).collect();
        let written = outputs.finish(&meta, FileMeta { compacted_from, ..meta.clone() })?;
        Ok((written, mobs))
    }

    fn mobs_of_compaction(
        &self,
        store: &Store,
        inputs: &[Arc<StoreFile>],
        all: bool,
        by_user: bool,
        now_ms: i64,
    ) -> Result<MobRewriter> {
        let newest_ms = inputs.iter().filter_map(|file| file.time_range).map(|(_, newest)| newest).max();
        let max_seq = inputs.iter().map(|file| file.max_seq).max().unwrap_or_default();
        let options = store.writer_options(&self.table, written_by(all), now_ms)?;
        let newest_ms = newest_ms.unwrap_or(now_ms);
        let outputs = MobOutputs::new(&store.mob, self.place(), options, newest_ms, max_seq, all);
        MobRewriter::new(&store.mob, outputs, inputs, all && by_user)
    }

    fn ask(&self, control: &mut dyn CompactionControl, written_bytes: u64) -> Result<()> {
        let is_closing = || self.closing.load(Ordering::Acquire);
        if control.go_on(written_bytes, &is_closing) && !is_closing() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Stopping, "the compaction was called off"))
    }
}

pub(super) fn written_by(all: bool) -> WrittenBy {
    if all { WrittenBy::MajorCompaction } else { WrittenBy::MinorCompaction }
}

/// Up to this sequence id cells need theirs no more: all readers see them, nothing older is elsewhere, and nothing asks any more
/// which write has made them. Other programs read files without sequence ids only (`Compactor.getFileDetails`).
fn forgotten_up_to(inputs: &[Arc<StoreFile>], now_ms: i64) -> SeqId {
    let is_old = |file: &&Arc<StoreFile>| {
        file.hfile.info().create_time_ms().is_some_and(|made| made < now_ms.saturating_sub(KEEP_SEQ_IDS_MS))
    };
    inputs.iter().filter(is_old).map(|file| file.max_cell_seq).max().unwrap_or_default()
}
