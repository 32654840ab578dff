//! The files that a flush or a compaction writes: one, one for each window of time, or one for each stripe.
//!
//! They are put in place one after the other, and a crash may come between two of them. What makes the others
//! obsolete is therefore said by the last one only: the names of a compaction's inputs, and the sequence id up to which
//! a flush has everything. What a crash leaves before that is copies of cells that are in the inputs or in the log
//! as well.

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use halcyon_cell::{CellRef, Result};
use halcyon_env::{Env, Mutex, invariant};
use halcyon_hfile::{FileMeta, HFileWriter, WriterOptions};

use super::StoreFile;
use super::stripes::{STRIPE_END_KEY, STRIPE_START_KEY};
use crate::keeping::RowSpan;
use crate::place::{OpeningDir, random_name};

/// Where one file ends and the next one begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Timestamps at which a new file begins, ascending, `i64::MIN` first. Only windows with cells get a file.
    AtTimes(Vec<i64>),
    /// Rows at which a new stripe begins, ascending, an empty one first; the last one is open. Stripes with cells get
    /// a file, and those of `always` (by index) also without.
    AtRows { starts: Vec<Bytes>, always: Range<usize> },
    /// Stripes that cover the span, each of about so many cells and whole rows, and not more than so many of them.
    BySize { span: RowSpan, cells: u64, count_max: usize },
}

impl Cut {
    /// All in one file.
    pub fn nowhere() -> Cut {
        Cut::AtTimes(vec![i64::MIN])
    }

    /// Every cell has one file to go to.
    fn check(&self) {
        match self {
            Cut::AtTimes(times) => assert!(
                times.first() == Some(&i64::MIN) && times.is_sorted_by(|a, b| a < b),
                "windows of time follow each other, the first one open: {times:?}"
            ),
            Cut::AtRows { starts, always } => assert!(
                starts.first().is_some_and(|start| start.is_empty())
                    && starts.is_sorted_by(|a, b| a < b)
                    && always.end <= starts.len(),
                "stripes follow each other, the first one open"
            ),
            Cut::BySize { span: (start, end), cells, count_max } => assert!(
                (end.is_empty() || start < end) && *cells > 0 && *count_max > 0,
                "a stripe has rows and cells"
            ),
        }
    }
}

/// Files of a store's directory that its list may not name yet. Nobody is to take them away as being nobody's.
pub(crate) type BeingWritten = Arc<Mutex<HashSet<PathBuf>>>;

/// Files in the opening's directory, or with a list in the store's. They are removed if nobody has moved them, or taken them
/// over, when this is dropped: on a full disk their space is what others wait for.
pub(crate) struct Written {
    env: Env,
    paths: Vec<PathBuf>,
    /// In all of them.
    cells_count: u64,
    /// If they are in the store's directory.
    in_place: Option<BeingWritten>,
    is_handed_over: AtomicBool,
}

impl Written {
    /// Asserts that the files, opened again, have as many cells as went into them: what is committed now takes the place of
    /// the only other copy.
    pub fn check(&self, files: &[Arc<StoreFile>]) {
        let found: u64 = files.iter().map(|file| file.hfile.info().entry_count()).sum();
        assert!(
            found == self.cells_count,
            "{} cells were written, and {found} are in the files",
            self.cells_count
        );
    }

    fn new(env: Env, in_place: Option<BeingWritten>) -> Written {
        Written { env, paths: Vec::new(), cells_count: 0, in_place, is_handed_over: AtomicBool::new(false) }
    }

    /// For a commit, in the order in which they are to be put in place. From now on it is the commit's business to remove
    /// those that are in the store's directory.
    pub fn hand_over(&self) -> &[PathBuf] {
        self.is_handed_over.store(true, Ordering::Relaxed);
        &self.paths
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let is_gone = self.in_place.is_some() && self.is_handed_over.load(Ordering::Relaxed);
        for path in self.paths.iter().filter(|_| !is_gone) {
            let _ = self.env.fs.remove_file(path); // `.tmp` is emptied at the next open anyway
        }
        if let Some(being_written) = &self.in_place {
            let mut being_written = being_written.lock();
            for path in &self.paths {
                being_written.remove(path);
            }
        }
    }
}

/// Where new files are made, and how they are written.
pub(crate) struct FileTarget {
    pub place: Arc<OpeningDir>,
    pub family: String,
    /// The store's directory, if they are made there: its list says which are the store's.
    pub in_place: Option<(PathBuf, BeingWritten)>,
    pub options: WriterOptions,
}

impl FileTarget {
    fn new_file(&self) -> Result<PathBuf> {
        let Some((dir, being_written)) = &self.in_place else { return Ok(self.place.new_file(&self.family)) };
        // Without its directory an opening could not commit the file.
        self.place.check_held()?;
        let path = dir.join(random_name());
        being_written.lock().insert(path.clone());
        Ok(path)
    }
}

/// Takes cells in their order.
pub(crate) struct Outputs {
    target: FileTarget,
    cut: Cut,
    /// By position in the cut, made when its first cell comes.
    writers: Vec<Option<HFileWriter>>,
    /// With `BySize`: where each begins.
    starts: Vec<Bytes>,
    /// Position that takes cells now.
    at: usize,
    /// With `BySize`: cells looked at since the current one began, and its last row if it is full.
    cells_count: u64,
    full_with: Option<Vec<u8>>,
    written: Written,
    /// Entries in the file info of all files.
    file_info: Vec<(&'static str, Vec<u8>)>,
}

impl Outputs {
    pub fn new(target: FileTarget, cut: Cut) -> Outputs {
        let count = match &cut {
            Cut::AtTimes(times) => times.len(),
            Cut::AtRows { starts, .. } => starts.len(),
            Cut::BySize { .. } => 0,
        };
        cut.check();
        let in_place = target.in_place.as_ref().map(|(_, being_written)| being_written.clone());
        let written = Written::new(target.place.env().clone(), in_place);
        Outputs {
            target,
            cut,
            writers: std::iter::repeat_with(|| None).take(count).collect(),
            starts: Vec::new(),
            at: 0,
            cells_count: 0,
            full_with: None,
            written,
            file_info: Vec::new(),
        }
    }

    /// A cell was looked at, kept or not: files of like size took like parts of the inputs.
    pub fn note_visited(&mut self) {
        self.cells_count += 1;
    }

    pub fn append(&mut self, cell: CellRef<'_>) -> Result<()> {
        match &self.cut {
            Cut::AtTimes(times) => {
                self.at = times.partition_point(|&start| start <= cell.timestamp()).saturating_sub(1);
            }
            Cut::AtRows { starts, .. } => {
                while starts.get(self.at + 1).is_some_and(|start| cell.row() >= &start[..]) {
                    self.at += 1;
                }
            }
            Cut::BySize { span, cells, count_max } => {
                if self.writers.is_empty() {
                    self.starts.push(span.0.clone());
                    self.writers.push(None);
                } else if self.full_with.as_ref().is_some_and(|row| row != cell.row()) {
                    self.full_with = None;
                    self.cells_count = 1; // this one
                    self.at += 1;
                    self.starts.push(Bytes::copy_from_slice(cell.row()));
                    self.writers.push(None);
                }
                let is_full = self.cells_count >= *cells && self.writers.len() < *count_max;
                if is_full && self.full_with.is_none() {
                    self.full_with = Some(cell.row().to_vec());
                }
            }
        }
        invariant!(
            self.span(self.at).is_none_or(|(start, end)| {
                cell.row() >= &start[..] && (end.is_empty() || cell.row() < &end[..])
            }),
            "{cell:?} goes into a file of another stripe: reads of its row would not find it"
        );
        self.written.cells_count += 1;
        self.writer(self.at)?.append(cell)
    }

    fn writer(&mut self, at: usize) -> Result<&mut HFileWriter> {
        if self.writers[at].is_none() {
            let path = self.target.new_file()?;
            let options = self.target.options.clone();
            self.written.paths.push(path.clone());
            self.writers[at] = Some(HFileWriter::create(&self.written.env, &path, options)?);
        }
        Ok(self.writers[at].as_mut().expect("it was just made"))
    }

    /// Adds an entry to the file info of all files.
    pub fn append_file_info(&mut self, key: &'static str, value: Vec<u8>) {
        self.file_info.push((key, value));
    }

    pub fn is_empty(&self) -> bool {
        self.writers.iter().all(Option::is_none)
    }

    /// Makes the files that are to be there without cells; at least one, which remembers the sequence id.
    pub fn add_empty_files(&mut self) -> Result<()> {
        if let Cut::AtRows { always, .. } = &self.cut {
            for at in always.clone() {
                self.writer(at)?;
            }
        }
        if self.is_empty() {
            if let Cut::BySize { span, .. } = &self.cut {
                self.starts.push(span.0.clone());
                self.writers.push(None);
            }
            self.writer(self.writers.len() - 1)?;
        }
        Ok(())
    }

    /// Completes the files; `last` is for the one that is put in place last.
    pub fn finish(mut self, others: &FileMeta, last: FileMeta) -> Result<Written> {
        let spans: Vec<Option<RowSpan>> = (0..self.writers.len()).map(|at| self.span(at)).collect();
        let mut open: Vec<(HFileWriter, Option<RowSpan>)> = Vec::new();
        for (writer, span) in std::mem::take(&mut self.writers).into_iter().zip(spans) {
            open.extend(writer.map(|writer| (writer, span)));
        }
        let count = open.len();
        assert!(count > 0, "the last file says what makes its inputs obsolete: there has to be one");
        let mut paths = Vec::with_capacity(count);
        for (number, (mut writer, span)) in open.into_iter().enumerate() {
            if let Some((start, end)) = span {
                writer.append_file_info(STRIPE_START_KEY.as_bytes(), &start);
                writer.append_file_info(STRIPE_END_KEY.as_bytes(), &end);
            }
            for (key, value) in &self.file_info {
                writer.append_file_info(key.as_bytes(), value);
            }
            let meta = if number + 1 == count { last.clone() } else { others.clone() };
            paths.push(writer.finish(meta)?.path);
        }
        self.written.paths = paths;
        let nothing = Written::new(self.written.env.clone(), None);
        Ok(std::mem::replace(&mut self.written, nothing))
    }

    fn span(&self, at: usize) -> Option<RowSpan> {
        let (starts, end) = match &self.cut {
            Cut::AtTimes(_) => return None,
            Cut::AtRows { starts, .. } => (starts, Bytes::new()),
            Cut::BySize { span, .. } => (&self.starts, span.1.clone()),
        };
        Some((starts[at].clone(), starts.get(at + 1).cloned().unwrap_or(end)))
    }
}
