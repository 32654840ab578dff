//! Replay: edits that splits of WALs have left in `recovered.edits` go to the memstores, and from there to files.
//!
//! A file has the edits of the region from one WAL file, or from those of one server. Two files may have the same edits: a WAL
//! whose file failed or was late repeats a round in the next one, and each WAL file is split alone by another server. So
//! files are not replayed one after the other. Their entries are merged by sequence id, and those that come twice
//! are applied once.
//!
//! The memstores are flushed when they have become large, with the sequence id of the last entry. The file says by that number
//! that the store needs no edit up to it any more, and a replay after a crash passes over these. It is the truth because
//! all of them were replayed: whatever file they are in, they came before.

use std::path::PathBuf;
use std::time::Duration;

use halcyon_cell::{Cell, Error, ErrorKind, Result, SeqId};
use halcyon_proto::pb;
use halcyon_wal::{OnDamage, WalReader};

use crate::api::Nonce;
use crate::edits_dir::{EditsDir, RECOVERED_EDITS};
use crate::open::META_FAMILY;
use crate::region::Region;
use crate::replayed_nonces::{self, ReplayedNonce, ReplayedNonces};
use crate::store::Store;

/// Files that stay open when their first entry has been looked at. With more of them, each is opened again at its turn.
const OPEN_FILES_MAX: usize = 16;
/// Answers of Increments and Appends stay readable in the next opening if they were given so short a time ago. It is longer than
/// `ANSWER_AGE` of `answers.rs`, as a server died in between.
const REPLAYED_ANSWER_AGE: Duration = Duration::from_secs(300);

const HAS_MORE: &str = "a file whose last entry was taken is not among the unfinished ones";

/// An entry of a log.
type Entry = (pb::WalKey, Vec<Cell>);

/// A file of edits.
struct EditsFile<'a> {
    of: &'a EditsDir,
    path: PathBuf,
    /// Sequence id of its first entry.
    first: SeqId,
    /// `None`: it is to be opened at its turn, or all of it was read.
    reader: Option<WalReader>,
    on_damage: OnDamage,
    /// Some of it could not be read.
    is_damaged: bool,
    /// The entry that comes next.
    head: Option<Entry>,
}

/// The entries of several files in the order of their sequence ids.
struct Edits<'a> {
    /// In the order of their first entries.
    files: Vec<EditsFile<'a>>,
    /// So many of them have come to their turn.
    begun_count: usize,
    /// Numbers of those of them that have more entries. A split without memory leaves a region thousands of files, of which few overlap.
    unfinished: Vec<usize>,
}

/// How far a replay is.
struct Replay {
    /// What each store needs no more.
    flushed: Vec<SeqId>,
    /// Sequence id of the last entry, or of one before it that is higher.
    highest: SeqId,
    /// Number of the file that the last entry was in, and its sequence id.
    last: (usize, SeqId),
    /// Cells that went to a memstore.
    applied: u64,
    /// Some of them are not in a file.
    is_in_memory: bool,
    nonces: ReplayedNonces,
}

fn seq_of(entry: &Entry) -> SeqId {
    SeqId::new(entry.0.log_sequence_number)
}

impl<'a> EditsFile<'a> {
    fn open(of: &'a EditsDir, path: PathBuf, on_damage: OnDamage) -> Result<EditsFile<'a>> {
        let first = SeqId::ZERO;
        let mut file = EditsFile { of, path, first, reader: None, on_damage, is_damaged: false, head: None };
        file.begin()?;
        file.first = file.head.as_ref().map(seq_of).unwrap_or_default();
        Ok(file)
    }

    fn begin(&mut self) -> Result<()> {
        if self.reader.is_none() {
            self.reader = match WalReader::open(&self.of.env, &self.path) {
                Err(error) => self.pass_over(error).map(|()| None)?,
                Ok(reader) => Some(reader),
            };
            self.advance()?;
        }
        Ok(())
    }

    fn let_go(&mut self) {
        (self.reader, self.head) = (None, None);
    }

    fn advance(&mut self) -> Result<()> {
        self.head = None;
        while let Some(mut reader) = self.reader.take() {
            match reader.next_entry() {
                Ok(None) => break,
                Ok(entry) => {
                    (self.head, self.reader) = (entry, Some(reader));
                    break;
                }
                Err(error) => {
                    self.pass_over(error)?;
                    self.reader = reader.skip_damage()?.map(|_| reader);
                }
            }
        }
        Ok(())
    }

    /// The error, unless what is damaged is to be passed over.
    fn pass_over(&mut self, error: Error) -> Result<()> {
        if error.kind() != ErrorKind::Corrupt || self.on_damage == OnDamage::Refuse {
            return Err(error);
        }
        tracing::error!(%error, path = %self.path.display(), "edits are lost with a damaged file");
        self.is_damaged = true;
        Ok(())
    }
}

impl<'a> Edits<'a> {
    fn open(paths: Vec<(&'a EditsDir, PathBuf)>, on_damage: OnDamage) -> Result<Edits<'a>> {
        let stay_open = paths.len() <= OPEN_FILES_MAX;
        let mut files = Vec::with_capacity(paths.len());
        for (of, path) in paths {
            let mut file = EditsFile::open(of, path, on_damage)?;
            if !stay_open {
                file.let_go();
            }
            files.push(file);
        }
        files.sort_by_key(|file| file.first);
        Ok(Edits { files, begun_count: 0, unfinished: Vec::new() })
    }

    /// The file with the next entry of those that were begun, and its sequence id.
    fn next_begun(&self) -> Option<(usize, SeqId)> {
        let heads = self.unfinished.iter().map(|at| (*at, self.files[*at].head.as_ref()));
        heads.map(|(at, head)| (at, seq_of(head.expect(HAS_MORE)))).min_by_key(|(_, seq)| *seq)
    }

    /// Sequence id of the next entry.
    fn next_seq(&self) -> Option<SeqId> {
        let to_begin = self.files.get(self.begun_count).map(|file| file.first);
        self.next_begun().map(|(_, seq)| seq).into_iter().chain(to_begin).min()
    }

    /// The next entry and the number of its file.
    fn next(&mut self) -> Result<Option<(usize, Entry)>> {
        let mut next_begun = self.next_begun();
        while let Some(file) = self.files.get_mut(self.begun_count) {
            if next_begun.is_some_and(|(_, seq)| seq < file.first) {
                break;
            }
            file.begin()?;
            if file.head.is_some() {
                self.unfinished.push(self.begun_count);
            }
            self.begun_count += 1;
            next_begun = self.next_begun();
        }
        let Some((at, _)) = next_begun else { return Ok(None) };
        let file = &mut self.files[at];
        let entry = file.head.take().expect(HAS_MORE);
        file.advance()?;
        if file.head.is_none() {
            self.unfinished.retain(|unfinished| *unfinished != at);
        }
        Ok(Some((at, entry)))
    }
}

impl Region {
    /// Puts the edits of `recovered.edits` into the memstores and flushes them. Returns the highest sequence
    /// id seen. The files go only after the flush, so a crash in between repeats the replay.
    pub(crate) fn replay(&self, dirs: &[EditsDir]) -> Result<SeqId> {
        let mut paths: Vec<(&EditsDir, PathBuf)> = Vec::new();
        for dir in dirs {
            paths.extend(dir.edits().into_iter().map(|path| (dir, path)));
        }
        let nonces = self.nonces_before_replay(dirs)?;
        let flushed = self.stores.iter().map(Store::max_flushed_seq).collect();
        let mut replay = Replay {
            flushed,
            highest: SeqId::ZERO,
            last: (0, SeqId::ZERO),
            applied: 0,
            is_in_memory: false,
            nonces,
        };
        let skips = self.services.settings.replay_skips_errors;
        let mut edits = Edits::open(paths, if skips { OnDamage::PassOver } else { OnDamage::Refuse })?;
        while let Some((at, entry)) = edits.next()? {
            self.replay_entry(at, &entry, &mut replay);
            // What comes next may be older than the last one where the logs of a server were split together.
            let is_behind_all = edits.next_seq().is_none_or(|next| next > replay.highest);
            if is_behind_all && self.memstore_size().heap_bytes > self.services.settings.replay_flush_bytes {
                self.flush_replayed(&mut replay)?;
            }
        }
        let files = edits.files;
        if replay.is_in_memory {
            self.flush_replayed(&mut replay)?;
        }
        assert!(
            files.is_empty() || self.stores.iter().all(|store| store.view().is_memory_empty()),
            "replayed edits are in no log of this server: they are in files before those of recovered.edits go"
        );
        self.keep_replayed_nonces(dirs, replay.nonces)?;
        remove_replayed(dirs, &files)?;
        if !files.is_empty() {
            let (region, files, applied) = (self.info.encoded_name(), files.len(), replay.applied);
            tracing::info!(region, files, applied, "replayed edits");
        }
        Ok(replay.highest)
    }

    /// Nonces that were kept when the edits with them had been flushed.
    fn nonces_before_replay(&self, dirs: &[EditsDir]) -> Result<ReplayedNonces> {
        let mut nonces = ReplayedNonces::since(self.oldest_nonce_ms());
        for dir in dirs.iter().filter(|dir| dir.has_nonces()) {
            nonces.read(&dir.env, &dir.path)?;
        }
        for kept in nonces.iter() {
            self.is_answer(kept);
        }
        self.answers.restore(nonces.answers(), self.services.env.clock.monotonic_ns());
        Ok(nonces)
    }

    /// Before the edits go that they stand in.
    fn keep_replayed_nonces(&self, dirs: &[EditsDir], mut nonces: ReplayedNonces) -> Result<()> {
        let news = self.answers.news();
        nonces.set_answers(news.as_ref().map(|news| &news.cells[..]).unwrap_or_default());
        // What is there with WALs outside the root directory is from before.
        if !nonces.is_empty() || dirs[0].has_nonces() {
            nonces.keep(self.place(), &self.dir.join(RECOVERED_EDITS), &mut None)?;
        }
        if let Some(news) = news {
            self.answers.note_written(&news);
        }
        for dir in dirs[1..].iter().filter(|dir| dir.has_nonces()) {
            replayed_nonces::remove(&dir.env, &dir.path)?;
        }
        *self.replayed_nonces.lock() = nonces.into_vec();
        Ok(())
    }

    /// Of writes before this no client repeats its call.
    pub(crate) fn oldest_nonce_ms(&self) -> i64 {
        let age_max_ms = self.services.settings.nonce_age_max.as_millis() as i64;
        self.services.env.clock.now_ms().saturating_sub(age_max_ms)
    }

    /// The nonces of operations that the region was told of by replay. The server asks once, before the region serves
    /// calls.
    pub fn take_replayed_nonces(&self) -> Vec<ReplayedNonce> {
        std::mem::take(&mut *self.replayed_nonces.lock())
    }

    /// `at`: the number of its file.
    fn replay_entry(&self, at: usize, entry: &Entry, replay: &mut Replay) {
        let (seq, (key, cells)) = (seq_of(entry), entry);
        let (last_at, last_seq) = replay.last;
        replay.last = (at, seq);
        if seq == last_seq && at != last_at {
            return; // the same entry, of the next WAL file
        }
        replay.highest = replay.highest.max(seq);
        // Also of entries whose cells are in files already: the answer may have been lost all the same.
        let found = ReplayedNonce {
            nonce: Nonce { group: key.nonce_group(), nonce: key.nonce() },
            write_time_ms: key.write_time as i64,
            seq,
        };
        replay.nonces.add(found);
        let is_answer = self.is_answer(&found);
        for cell in cells {
            if cell.family() == META_FAMILY {
                continue; // a marker, not data
            }
            let is_applied = self.replay_cell(cell, seq, &replay.flushed);
            replay.applied += u64::from(is_applied);
            replay.is_in_memory |= is_applied;
            if is_answer && !is_applied {
                self.answers.keep(cell.get()); // the flush may have left it out
            }
        }
    }

    /// Whether what this operation has answered may be asked for. From here on flushes and compactions do not lose it.
    fn is_answer(&self, found: &ReplayedNonce) -> bool {
        let clock = &self.services.env.clock;
        let oldest_ms = clock.now_ms().saturating_sub(REPLAYED_ANSWER_AGE.as_millis() as i64);
        let is_young = found.nonce.nonce != 0 && found.write_time_ms >= oldest_ms;
        if is_young {
            self.answers.note(found.seq, clock.monotonic_ns());
        }
        is_young
    }

    fn replay_cell(&self, cell: &Cell, seq: SeqId, flushed: &[SeqId]) -> bool {
        // A family that was dropped since has no store: its edits are dropped with it.
        let Some(at) = self.stores.iter().position(|store| store.family.name() == cell.family()) else {
            return false;
        };
        if seq <= flushed[at] {
            return false;
        }
        let segment = self.stores[at].active();
        let prepared = segment.prepare(cell.bytes(), None);
        segment.insert(prepared, seq);
        true
    }

    /// Writes out what was replayed so far. Nothing of it is in this server's log, so the log is not asked.
    fn flush_replayed(&self, replay: &mut Replay) -> Result<()> {
        for (store, flushed) in self.stores.iter().zip(&mut replay.flushed) {
            store.begin_snapshot(&self.services.chunks);
            let seq = replay.highest.max(*flushed); // of a store that was ahead of the others
            self.flush_store_at(store, seq)?;
            *flushed = seq;
        }
        replay.is_in_memory = false;
        Ok(())
    }
}

/// Files of which something could not be read stay, under a name that no replay takes (HBase: `moveAsideBadEditsFile`).
fn remove_replayed(dirs: &[EditsDir], files: &[EditsFile<'_>]) -> Result<()> {
    for EditsFile { of, path, is_damaged, .. } in files {
        let fs = &of.env.fs;
        if *is_damaged {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let aside = path.with_file_name(format!("{name}.{}", of.env.clock.now_ms()));
            fs.rename(path, &aside).or_else(|error| fs.resolve_rename(path, &aside, error))?;
            tracing::error!(to = %aside.display(), "a damaged file of edits was set aside");
        } else {
            fs.remove_file(path)?;
        }
    }
    let had_edits = |dir: &&EditsDir| files.iter().any(|file| std::ptr::eq(file.of, *dir));
    for dir in dirs.iter().filter(had_edits) {
        dir.env.fs.sync_dir(&dir.path)?;
    }
    Ok(())
}
