//! What a region offers to whoever drives its compactions: whether one is wanted, how urgently, and one step of it.
//!
//! A step of a store: files of which nothing can be seen any more are dropped, the policy chooses among the rest, the
//! chosen ones are rewritten, and what was written takes their place in one commit. `compacting` is held meanwhile;
//! readers, writers and flushes go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_hfile::FileInfo;

use super::CompactionControl;
use super::expired::expired;
use super::rewrite::written_by;
use super::select::select;
use super::settings::{CompactionPolicy, CompactionSettings};
use super::state::{CompactionRequest, Drops, FileState, Selection, StoreState};
use crate::mob::MobRewriter;
use crate::region::Region;
use crate::store::{Commit, Store, StoreFile, Stripes, Written};
use crate::store_hooks::RewriteKind;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionOutcome {
    /// Files that were merged; 0: nothing was to be done.
    pub compacted_files: usize,
    /// Files that were dropped unread because all their cells had expired.
    pub expired_files: usize,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// All files of a store were merged, so markers and what they hide are gone.
    pub major: bool,
    /// Where markers and what they hide are gone, these rows or all.
    pub major_rows: Vec<MajorRows>,
}

/// Rows of a family that a compaction had all files of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MajorRows {
    pub family: Bytes,
    /// Empty: no bound.
    pub start: Bytes,
    /// The first row that does not belong to them any more; empty: no bound.
    pub end: Bytes,
}

/// Counts a running compaction while it lives.
struct Running<'a>(&'a AtomicU64);

impl<'a> Running<'a> {
    fn begin(count: &'a AtomicU64) -> Running<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Running(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Region {
    /// Remembers that a major compaction is wanted, of one family or of all.
    pub fn request_major_compaction(&self, family: Option<&[u8]>) {
        for store in &self.stores {
            if family.is_none_or(|family| family == store.family.name()) {
                store.major_wanted.store(true, Ordering::Release);
            }
        }
    }

    /// Whether `compact` would find something to do.
    pub fn compaction_wanted(&self) -> bool {
        self.stores.iter().any(|store| self.wanted_bytes(store).is_some())
    }

    /// Bytes of the files that `compact` would read now.
    pub fn compaction_bytes(&self) -> u64 {
        self.stores.iter().filter_map(|store| self.wanted_bytes(store)).sum()
    }

    fn wanted_bytes(&self, store: &Store) -> Option<u64> {
        if self.is_secondary() {
            return None; // the files are its primary's
        }
        let wanted = store.major_wanted.load(Ordering::Acquire);
        let candidates = Candidates::of(store);
        let state = self.store_state(store, &candidates);
        let drops = state.policy == CompactionPolicy::Fifo && !expired(&state).is_empty();
        match select(&state, CompactionRequest { major: wanted, user: wanted }) {
            Some(selection) => Some(selection.files.iter().map(|&at| candidates.files[at].len_bytes).sum()),
            None => drops.then_some(0),
        }
    }

    /// How urgent compactions are: 0 up to the fewest files that are worth one, 1 at the number of files at which
    /// flushes wait; the most urgent store's (HBase: `HStore.getCompactionPressure`).
    pub fn compaction_pressure(&self) -> f64 {
        if self.is_secondary() {
            return 0.0;
        }
        let of_store = |store: &Store| {
            if store.is_striped() {
                return stripe_pressure(store);
            }
            let settings = store.compaction();
            let (count, min) = (store.view().files.len(), settings.files_min.max(2));
            let room = settings.blocking_files_count.saturating_sub(min).max(1);
            count.saturating_sub(min) as f64 / room as f64
        };
        self.stores.iter().map(of_store).fold(0.0, f64::max)
    }

    /// Files that the fullest store may still get before flushes wait; negative: it has more already.
    pub fn store_files_left(&self) -> i64 {
        let left = |store: &Store| {
            let limit = i64::try_from(store.compaction().blocking_files_count).unwrap_or(i64::MAX);
            limit.saturating_sub_unsigned(store.view().files.len() as u64)
        };
        self.stores.iter().map(left).min().unwrap_or(i64::MAX)
    }

    /// Merges files of one family, or of all, one store after the other. *Blocking*, on the caller's thread;
    /// ends early (with an error of kind `Stopping`, and nothing changed in that store) when `control` says so or
    /// the region closes.
    pub fn compact(
        &self,
        family: Option<&[u8]>,
        request: CompactionRequest,
        control: &mut dyn CompactionControl,
    ) -> Result<CompactionOutcome> {
        if let Some(family) = family {
            self.store_or_error(family)?;
        }
        let mut sum = CompactionOutcome::default();
        if self.is_secondary() {
            return Ok(sum);
        }
        for store in &self.stores {
            if family.is_some_and(|family| family != store.family.name()) {
                continue;
            }
            let done = self.compact_store(store, request, control)?;
            sum.compacted_files += done.compacted_files;
            sum.expired_files += done.expired_files;
            sum.bytes_read += done.bytes_read;
            sum.bytes_written += done.bytes_written;
            sum.major |= done.major;
            sum.major_rows.extend(done.major_rows);
        }
        Ok(sum)
    }

    fn compact_store(
        &self,
        store: &Store,
        request: CompactionRequest,
        control: &mut dyn CompactionControl,
    ) -> Result<CompactionOutcome> {
        let _compacting = store.compacting.lock();
        if self.is_closing() {
            return Err(closing());
        }
        let expired_files = self.drop_expired_files(store)?;
        let wanted = store.major_wanted.swap(false, Ordering::AcqRel);
        let candidates = Candidates::of(store);
        let request = CompactionRequest { major: request.major || wanted, user: request.user || wanted };
        let chosen = || Ok(select(&self.store_state(store, &candidates), request));
        let Some(selection) = self.contained("the selection of a compaction", chosen)? else {
            return Ok(CompactionOutcome { expired_files, ..CompactionOutcome::default() });
        };
        let running =
            if selection.major { &self.counters.major_running } else { &self.counters.minor_running };
        let _running = Running::begin(running);
        store.progress.begin(selection.files.iter().map(|&at| candidates.states[at].entries).sum());
        let outcome = self.rewrite_selected(store, &candidates.files, &selection, request.user, control);
        store.progress.end(outcome.is_ok());
        if outcome.is_err() && wanted {
            store.major_wanted.store(true, Ordering::Release);
        }
        Ok(CompactionOutcome { expired_files, ..outcome? })
    }

    fn rewrite_selected(
        &self,
        store: &Store,
        files: &[Arc<StoreFile>],
        selection: &Selection,
        by_user: bool,
        control: &mut dyn CompactionControl,
    ) -> Result<CompactionOutcome> {
        let inputs: Vec<Arc<StoreFile>> = selection.files.iter().map(|&at| files[at].clone()).collect();
        let mut hooked = self
            .begin_rewrite(store, RewriteKind::Compaction { all: selection.all, major: selection.major })?;
        let (written, mut mobs) = self.contained("a compaction", || {
            self.rewrite(store, &inputs, selection, by_user, &mut hooked, control)
        })?;
        let files = self.replace(store, &inputs, &written, &mut mobs, selection.all)?;
        written.check(&files);
        mobs.count();
        hooked.end(&files);
        let bytes_written = files.iter().map(|file| file.len_bytes).sum();
        Ok(CompactionOutcome {
            compacted_files: inputs.len(),
            expired_files: 0,
            bytes_read: inputs.iter().map(|file| file.len_bytes).sum(),
            bytes_written,
            major: selection.all,
            major_rows: major_rows(store, &selection.drops).into_iter().collect(),
        })
    }

    /// Drops the files of which no cell can be seen any more. Returns their number.
    fn drop_expired_files(&self, store: &Store) -> Result<usize> {
        let candidates = Candidates::of(store);
        let state = self.store_state(store, &candidates);
        if !state.settings.delete_expired_files && state.policy != CompactionPolicy::Fifo {
            return Ok(0);
        }
        let expired = self.contained("the search for expired files", || Ok(expired(&state)))?;
        let gone: Vec<Arc<StoreFile>> = expired.into_iter().map(|at| candidates.files[at].clone()).collect();
        assert!(
            gone.is_empty() || gone.len() < candidates.files.len(),
            "the newest file stays though its cells have expired: it remembers the highest sequence id"
        );
        if !gone.is_empty() {
            self.retire_expired(store, &gone)?;
        }
        Ok(gone.len())
    }

    /// Puts the written files in the place of their inputs.
    fn replace(
        &self,
        store: &Store,
        inputs: &[Arc<StoreFile>],
        written: &Written,
        mobs: &mut MobRewriter,
        all: bool,
    ) -> Result<Vec<Arc<StoreFile>>> {
        self.check_not_closed()?;
        mobs.outputs.publish()?;
        self.commit_compaction(store, inputs, written.hand_over(), all)
    }

    /// Drops files of which no cell can be seen any more.
    fn retire_expired(&self, store: &Store, gone: &[Arc<StoreFile>]) -> Result<()> {
        self.check_not_closed()?;
        self.commit_compaction(store, gone, &[], false).map(|_| ())
    }

    /// `Stopping` if files may take the place of others no more. `compacting` is held, which a close waits for with `closed` in its hand: what
    /// is written when one begins is put in place first. It was thrown away, and a region that closes often kept all its files.
    fn check_not_closed(&self) -> Result<()> {
        match self.closed.unwatched().try_read() {
            Some(closed) if *closed => Err(closing()),
            _ => Ok(()),
        }
    }

    fn commit_compaction(
        &self,
        store: &Store,
        inputs: &[Arc<StoreFile>],
        written: &[std::path::PathBuf],
        all: bool,
    ) -> Result<Vec<Arc<StoreFile>>> {
        let commit = Commit { files: written, flushed: &[], compacted: inputs };
        let files = store.commit(
            self.place(),
            &commit,
            |path| self.open_file(store, path, written_by(all)),
            &self.archive_dir.join(&*store.family.name_str()),
        )?;
        inputs.iter().for_each(|input| input.retire_blocks());
        tracing::debug!(
            region = self.info.encoded_name(),
            inputs = inputs.len(),
            outputs = files.len(),
            "compacted"
        );
        Ok(files)
    }

    fn store_state<'a>(&self, store: &'a Store, candidates: &'a Candidates) -> StoreState<'a> {
        let has_ttl = store.keeping.min_versions == 0;
        StoreState {
            files: &candidates.states,
            settings: &candidates.settings,
            policy: store.policy(),
            stripes: &candidates.stripes,
            now_ms: self.services.env.clock.now_ms(),
            hour_of_day: self.services.env.clock.hour_of_day(),
            file_ttl_ms: store.keeping.ttl_ms.filter(|_| has_ttl),
            major_period_ms: major_period_ms(store, &candidates.files),
            flush_size_bytes: self.flush_size_bytes(),
        }
    }
}

fn closing() -> Error {
    Error::new(ErrorKind::Stopping, "the region is closing")
}

fn major_rows(store: &Store, drops: &Drops) -> Option<MajorRows> {
    let (start, end) = match drops {
        Drops::Nothing => return None,
        Drops::Rows(span) => span.clone(),
        Drops::Everything => (Bytes::new(), Bytes::new()),
    };
    Some(MajorRows { family: store.family.name().clone(), start, end })
}

/// That of the fullest stripe, of which each has its part of the files at which flushes wait
/// (`StripeStoreFileManager.getCompactionPressure`).
fn stripe_pressure(store: &Store) -> f64 {
    let (view, settings) = (store.view(), store.compaction());
    if view.files.len() > settings.blocking_files_count {
        return 2.0;
    }
    let mut counts = vec![0usize; view.stripes.count()];
    let mut level0 = 0usize;
    for at in 0..view.files.len() {
        match view.stripes.of_file(at) {
            Some(stripe) => counts[stripe] += 1,
            None => level0 = 1,
        }
    }
    let min = settings.stripes.files_min(settings.files_min);
    let blocking = settings.blocking_files_count / counts.len().max(1);
    let room = blocking.saturating_sub(min).max(1);
    let most = counts.into_iter().max().unwrap_or(0);
    ((most + level0).saturating_sub(min) as f64 / room as f64).min(1.0)
}

/// The period of major compactions, varied by the oldest file's name so that not all stores come due together.
fn major_period_ms(store: &Store, files: &[Arc<StoreFile>]) -> i64 {
    let Some(oldest) = files.first() else { return 0 };
    let share = oldest.name.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte)) % 1000;
    let settings = store.compaction();
    let jitter = settings.major_jitter * (share as f64 / 500.0 - 1.0);
    (settings.major_period_ms as f64 * (1.0 + jitter)) as i64
}

/// The files of a store at one moment, the oldest first, and what selection looks at in them.
struct Candidates {
    settings: Arc<CompactionSettings>,
    files: Vec<Arc<StoreFile>>,
    states: Vec<FileState>,
    stripes: Arc<Stripes>,
}

impl Candidates {
    /// Files of one compaction have one sequence id; there time decides.
    fn of(store: &Store) -> Candidates {
        let (view, settings) = (store.view(), store.compaction());
        let mut places: Vec<usize> = (0..view.files.len()).rev().collect();
        places.sort_by_key(|&at| {
            let file = &view.files[at];
            (file.max_seq, file.time_range.map(|(_, newest)| newest))
        });
        let state = |&at: &usize| {
            let file = &view.files[at];
            FileState { stripe: view.stripes.of_file(at), ..file_state(file, file.hfile.info()) }
        };
        Candidates {
            settings,
            states: places.iter().map(state).collect(),
            files: places.iter().map(|&at| view.files[at].clone()).collect(),
            stripes: view.stripes.clone(),
        }
    }
}

fn file_state(file: &StoreFile, info: &FileInfo) -> FileState {
    FileState {
        len_bytes: file.len_bytes,
        entries: info.entry_count(),
        major_only: info.is_excluded_from_minor_compaction(),
        reference: file.is_reference(),
        major: file.is_major(),
        bulk_loaded: info.bulk_load_time_ms().is_some(),
        created_ms: info.create_time_ms().unwrap_or(0),
        time_range: file.time_range,
        stripe: None,
    }
}
