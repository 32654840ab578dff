//! RFiles of a table as a source.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_env::FileSystem;
use parking_lot::Mutex;

use crate::export::{EXPORT_FILE, Export, TableConfig};
use crate::merge::{Merged, ReadError, Stream};
use crate::rfile::{RFile, RFileError};
use crate::state::Range;

/// Opens the file system of an address: a path, `file:` or `hdfs:`. The path is the one within it.
pub type Opener = dyn Fn(&str) -> Result<(Arc<dyn FileSystem>, PathBuf), String> + Send + Sync;

/// Compressed bytes of a range: larger tablets are divided.
const RANGE_BYTES: u64 = 64 << 20;
/// Directories below the one of the option that are searched for RFiles: Accumulo has one level, for tablets.
const DEPTH_MAX: usize = 3;

/// An RFile that exists.
pub(crate) struct SourceFile {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    pub(crate) len: u64,
}

impl SourceFile {
    pub(crate) fn shown(&self) -> String {
        format!("{}{}", self.fs.address().unwrap_or_default(), self.path.display())
    }

    fn open(&self) -> Result<RFile, RFileError> {
        RFile::open(self.fs.open(&self.path)?, self.len)
    }
}

/// Rows with the files that have them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileTablet {
    /// As of a [`Range`].
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
    /// Numbers of files, and the timestamp of all entries if one was set. Newer files come first.
    files: Vec<(usize, Option<i64>)>,
}

/// See the head of the file.
pub(crate) struct FileSource {
    pub(crate) files: Vec<SourceFile>,
    pub(crate) tablets: Vec<FileTablet>,
    pub(crate) config: TableConfig,
    /// Of the table and instance it comes from.
    pub(crate) origin: Option<String>,
    pub(crate) versions_max: Option<u64>,
}

/// The first row behind one that is the last of a tablet.
fn behind(row: &[u8]) -> Vec<u8> {
    [row, &[0]].concat()
}

impl FileSource {
    /// Finds the files. The error is a sentence.
    pub(crate) fn open(
        from: &str,
        without_metadata: bool,
        versions: Option<u64>,
        opener: &Opener,
    ) -> Result<FileSource, String> {
        let (fs, dir) = opener(from)?;
        let metadata = dir.join(EXPORT_FILE);
        let exists = fs.exists(&metadata).map_err(|error| format!("{from}: {error}"))?;
        if exists == without_metadata {
            return Err(match exists {
                true => format!("{from} has {EXPORT_FILE}: leave out --without-metadata"),
                false => format!(
                    "{from} has no {EXPORT_FILE}, so it is not known which rows of which files count. `exporttable` of \
                     Accumulo's shell writes it. --without-metadata takes all rows of all files below the directory"
                ),
            });
        }
        let mut source = match exists {
            true => {
                let bytes = fs.read(&metadata).map_err(|error| format!("{}: {error}", metadata.display()))?;
                let export = Export::parse(&bytes).map_err(|why| format!("{}: {why}", metadata.display()))?;
                FileSource::of_export(export, &fs, &dir, opener)?
            }
            false => FileSource::of_directory(from, &fs, &dir)?,
        };
        source.versions_max = versions.or(source.config.versions_max);
        Ok(source)
    }

    fn of_export(
        export: Export,
        fs: &Arc<dyn FileSystem>,
        dir: &Path,
        opener: &Opener,
    ) -> Result<FileSource, String> {
        let names = fs.list(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let here: HashMap<&str, u64> = names.iter().map(|entry| (&entry.name[..], entry.len)).collect();
        let mut places = Places { opener, known: BTreeMap::new() };
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        let mut files = Vec::new();
        let mut tablets = Vec::new();
        for tablet in &export.tablets {
            let mut made = FileTablet {
                start: tablet.previous.as_deref().map(behind).unwrap_or_default(),
                end: tablet.last.as_deref().map(behind).unwrap_or_default(),
                files: Vec::new(),
            };
            for file in &tablet.files {
                if let Some(number) = numbers.get(&file.path) {
                    made.files.push((*number, file.time));
                    continue;
                }
                let found = match here.get(file.name()) {
                    Some(len) => SourceFile { fs: Arc::clone(fs), path: dir.join(file.name()), len: *len },
                    None => places.find(&file.path, dir)?,
                };
                numbers.insert(file.path.clone(), files.len());
                made.files.push((files.len(), file.time));
                files.push(found);
            }
            made.files.sort_by_key(|(number, _)| std::cmp::Reverse(age(&files[*number].path)));
            tablets.push(made);
        }
        let value = |name: &str| export.info.get(name).map_or("unknown", |value| value.trim());
        let origin = format!("table {} of the instance {}", value("srcTableName"), value("srcInstanceName"));
        let config = TableConfig::of(&export.config)?;
        Ok(FileSource { files, tablets, config, origin: Some(origin), versions_max: None })
    }

    fn of_directory(from: &str, fs: &Arc<dyn FileSystem>, dir: &Path) -> Result<FileSource, String> {
        let mut files = Vec::new();
        let mut waiting = vec![(dir.to_path_buf(), 0)];
        while let Some((dir, depth)) = waiting.pop() {
            for entry in fs.list(&dir).map_err(|error| format!("{}: {error}", dir.display()))? {
                let path = dir.join(&entry.name);
                if entry.is_dir && depth < DEPTH_MAX {
                    waiting.push((path, depth + 1));
                } else if !entry.is_dir && entry.name.ends_with(".rf") && !entry.name.starts_with('.') {
                    files.push(SourceFile { fs: Arc::clone(fs), path, len: entry.len });
                }
            }
        }
        if files.is_empty() {
            return Err(format!("{from} has no RFiles (names that end with .rf)"));
        }
        files.sort_by_key(|file| std::cmp::Reverse(age(&file.path)));
        let all = FileTablet {
            files: (0..files.len()).map(|file| (file, None)).collect(),
            ..FileTablet::default()
        };
        Ok(FileSource {
            files,
            tablets: vec![all],
            config: TableConfig::default(),
            origin: None,
            versions_max: None,
        })
    }

    /// The entries of a range.
    pub(crate) fn entries(&self, range: &Range) -> Result<Merged, ReadError> {
        let mut streams = Vec::new();
        for (number, time) in &self.tablets[range.tablet].files {
            let failed = |error: RFileError| ReadError { file: Some(*number), why: error.to_string() };
            let file = self.files[*number].open().map_err(failed)?;
            for group in 0..file.groups().len() {
                let scanner = file.scan(group, &range.start, &range.end).map_err(failed)?;
                streams.extend(Stream::open(scanner, *number, *time, &range.start).map_err(failed)?);
            }
        }
        Ok(Merged::new(streams, self.versions_max))
    }

    /// Whether a tablet reads this file.
    pub(crate) fn needs(&self, tablet: usize, file: usize) -> bool {
        self.tablets[tablet].files.iter().any(|(number, _)| *number == file)
    }

    /// Divides a tablet where its blocks end, so that each range has about [`RANGE_BYTES`]. Also returns rows that divide it in
    /// `parts` equal parts.
    pub(crate) fn ranges(
        &self,
        tablet: usize,
        parts: usize,
    ) -> Result<(Vec<Range>, Vec<Vec<u8>>), ReadError> {
        let FileTablet { start, end, files } = &self.tablets[tablet];
        let bytes: u64 = files.iter().map(|(number, _)| self.files[*number].len).sum();
        let whole = Range { start: start.clone(), end: end.clone(), tablet, ..Range::default() };
        let pieces = bytes.div_ceil(RANGE_BYTES).max(1) as usize;
        if pieces.max(parts) == 1 {
            return Ok((vec![whole], Vec::new()));
        }
        let ends = self.block_ends(tablet)?;
        let splits = divide(&ends, parts);
        let mut bounds = divide(&ends, pieces);
        bounds.extend(splits.iter().cloned());
        bounds.sort();
        bounds.dedup();
        let starts = std::iter::once(start.clone()).chain(bounds.iter().cloned());
        let ends = bounds.iter().cloned().chain([end.clone()]);
        let ranges = starts.zip(ends).map(|(start, end)| Range { start, end, ..whole.clone() }).collect();
        Ok((ranges, splits))
    }

    /// Rows behind the blocks of a tablet, with the blocks' bytes, in the order of rows.
    fn block_ends(&self, tablet: usize) -> Result<Vec<(Vec<u8>, u64)>, ReadError> {
        let FileTablet { start, end, files } = &self.tablets[tablet];
        let mut ends = Vec::new();
        for (number, _) in files {
            let failed = |error: RFileError| ReadError { file: Some(*number), why: error.to_string() };
            let file = self.files[*number].open().map_err(failed)?;
            for group in 0..file.groups().len() {
                let mut leaves = file.leaves(group, start).map_err(failed)?;
                while let Some(leaf) = leaves.next().map_err(failed)? {
                    let row = behind(&leaf.last.row);
                    if !end.is_empty() && row >= *end {
                        break;
                    }
                    if row > *start {
                        ends.push((row, leaf.region.raw_len));
                    }
                }
            }
        }
        ends.sort();
        Ok(ends)
    }
}

/// Rows that divide blocks into parts of about the same size.
fn divide(ends: &[(Vec<u8>, u64)], parts: usize) -> Vec<Vec<u8>> {
    let total: u64 = ends.iter().map(|(_, bytes)| bytes).sum();
    let mut rows: Vec<Vec<u8>> = Vec::new();
    let mut seen = 0;
    for (row, bytes) in ends {
        seen += bytes;
        let wanted = u128::from(total) * (rows.len() as u128 + 1) / parts as u128;
        if rows.len() + 1 < parts && u128::from(seen) >= wanted && rows.last() != Some(row) {
            rows.push(row.clone());
        }
    }
    rows
}

/// Later files have greater numbers, whatever their first letter says about how they were made.
fn age(path: &Path) -> (usize, String) {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let number: String = name.chars().skip(1).collect();
    (number.len(), number)
}

/// Files that are not beside the metadata.
struct Places<'a> {
    opener: &'a Opener,
    /// Sizes of files in directories.
    known: BTreeMap<String, Listing>,
}

type Listing = Arc<(Arc<dyn FileSystem>, PathBuf, HashMap<String, u64>)>;

impl Places<'_> {
    fn find(&mut self, path: &str, dir: &Path) -> Result<SourceFile, String> {
        let missing = || format!("{path} is neither in {} nor where the metadata says", dir.display());
        let (parent, name) = path.rsplit_once('/').filter(|_| path.contains(':')).ok_or_else(missing)?;
        if !self.known.contains_key(parent) {
            let (fs, within) = (self.opener)(parent)?;
            let entries = match fs.list(&within) {
                Ok(entries) => entries,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(missing()),
                Err(error) => return Err(format!("{parent}: {error}")),
            };
            let sizes = entries.into_iter().map(|entry| (entry.name, entry.len)).collect();
            self.known.insert(parent.to_string(), Arc::new((fs, within, sizes)));
        }
        let listing = &self.known[parent];
        let len = *listing.2.get(name).ok_or_else(missing)?;
        Ok(SourceFile { fs: Arc::clone(&listing.0), path: listing.1.join(name), len })
    }
}

/// What is wrong with which files.
#[derive(Default)]
pub(crate) struct Damages(Mutex<BTreeMap<usize, String>>);

impl Damages {
    /// Notes an error. Those of no file are returned.
    pub(crate) fn note(&self, error: ReadError) -> Result<(), String> {
        let Some(file) = error.file else { return Err(error.why) };
        self.0.lock().entry(file).or_insert(error.why);
        Ok(())
    }

    pub(crate) fn all(&self) -> BTreeMap<usize, String> {
        self.0.lock().clone()
    }
}
