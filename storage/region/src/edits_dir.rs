//! The directory `recovered.edits` of a region: edits that a split of WALs has left, kept nonces, and the sequence id of the last
//! opening as the name of an empty file `<n>.seqid` (HBase: `WALSplitUtil`).

use std::io;
use std::path::{Path, PathBuf};

use halcyon_cell::{Result, SeqId};
use halcyon_env::{DirEntry, Env};
use halcyon_schema::RegionInfo;
use halcyon_schema::layout::NONCES_FILE;
use halcyon_wal::TEMPORARY_SUFFIX;

use crate::place::remove_if_there;
use crate::region::RegionServices;

pub(crate) const RECOVERED_EDITS: &str = "recovered.edits";

/// Such a directory, as an opening has found it, and the files that it is among. It may not be there.
pub(crate) struct EditsDir {
    pub(crate) env: Env,
    pub(crate) path: PathBuf,
    exists: bool,
    entries: Vec<DirEntry>,
}

/// The directories of a region's edits. The last one is written to. With WALs outside the root directory
/// ([`RegionServices::wal_root`]) the one below the root may have edits from before. `region_entries`: what is in the region's
/// directory.
pub(crate) fn edits_dirs(
    services: &RegionServices,
    root: &Path,
    info: &RegionInfo,
    region_entries: &[DirEntry],
) -> Result<Vec<EditsDir>> {
    let mut dirs = Vec::new();
    let path = info.dir(root).join(RECOVERED_EDITS);
    dirs.push(match region_entries.iter().any(|entry| entry.name == RECOVERED_EDITS) {
        true => EditsDir::find(&services.env, path)?,
        false => EditsDir { env: services.env.clone(), path, exists: false, entries: Vec::new() },
    });
    if let Some(wal) = &services.wal_root {
        dirs.push(EditsDir::find(&wal.env, info.dir(&wal.path).join(RECOVERED_EDITS))?);
    }
    Ok(dirs)
}

/// The sequence id that the last opening made durable; 0 if there is none.
pub(crate) fn highest_marker(env: &Env, edits_dir: &Path) -> Result<SeqId> {
    Ok(EditsDir::find(env, edits_dir.to_path_buf())?.highest_marker())
}

impl EditsDir {
    fn find(env: &Env, path: PathBuf) -> Result<EditsDir> {
        let (exists, entries) = match env.fs.list(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (false, Vec::new()),
            entries => (true, entries?),
        };
        Ok(EditsDir { env: env.clone(), path, exists, entries })
    }

    pub(crate) fn has_nonces(&self) -> bool {
        self.entries.iter().any(|entry| entry.name == NONCES_FILE)
    }

    /// The files of edits. Those that a split left half written are removed.
    pub(crate) fn edits(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in &self.entries {
            let is_number = !entry.name.is_empty() && entry.name.bytes().all(|byte| byte.is_ascii_digit());
            if entry.name.ends_with(TEMPORARY_SUFFIX) {
                let _ = self.env.fs.remove_file(&self.path.join(&entry.name)); // else the next opening does it
            } else if !entry.is_dir && is_number {
                files.push(self.path.join(&entry.name));
            }
        }
        files
    }

    /// The highest sequence id of all edits, which the names of their files say.
    pub(crate) fn highest_edit(&self) -> SeqId {
        let is_number = |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let names = self.entries.iter().filter(|entry| !entry.is_dir).map(|entry| &*entry.name);
        let seqs = names.filter(is_number).filter_map(|name| name.parse().ok());
        seqs.max().map(SeqId::new).unwrap_or_default()
    }

    pub(crate) fn highest_marker(&self) -> SeqId {
        self.entries.iter().filter_map(|entry| seq_of_marker(&entry.name)).max().unwrap_or_default()
    }

    /// Makes the opening's sequence id durable, so that the next opening's is higher even if nothing is
    /// written (HBase: `WALSplitUtil.writeRegionSequenceIdFile`).
    pub(crate) fn remember_seq(&self, open_seq: SeqId) -> Result<()> {
        if !self.exists {
            self.env.fs.create_dir_all(&self.path)?;
        }
        let path = self.path.join(format!("{open_seq}.seqid"));
        let earlier = self.entries.iter().filter(|entry| seq_of_marker(&entry.name).is_some());
        let mut earlier: Vec<PathBuf> = earlier.map(|entry| self.path.join(&entry.name)).collect();
        earlier.retain(|marker| *marker != path);
        // One request where files are far away. A new file would be three, and the removal of the old one two.
        let is_there = earlier.pop().map_or(Ok(false), |marker| self.rename_marker(&marker, &path))?;
        if !is_there {
            match self.env.fs.put_new(&path, b"") {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
                _ => {}
            }
        }
        for marker in earlier {
            remove_if_there(&self.env, &marker)?;
        }
        Ok(())
    }

    /// At the end of an opening: the next one's sequence id is above `seq`, whatever files it finds. A family may be deleted meanwhile, and
    /// the highest sequence ids may have been in its files alone. `opened_at`: what this opening has remembered.
    pub(crate) fn raise_seq(env: &Env, path: &Path, opened_at: SeqId, seq: SeqId) -> Result<()> {
        assert!(opened_at < seq, "the marker of the next opening never goes back: {opened_at}, {seq}");
        let dir = EditsDir { env: env.clone(), path: path.to_path_buf(), exists: true, entries: Vec::new() };
        let marker = |seq: SeqId| path.join(format!("{seq}.seqid"));
        // Without it another opening has begun, which knows the files of this one.
        dir.rename_marker(&marker(opened_at), &marker(seq)).map(drop)
    }

    /// Durably. False if another opening has taken the marker, or has made this one.
    fn rename_marker(&self, from: &Path, to: &Path) -> Result<bool> {
        let fs = &self.env.fs;
        match fs.rename(from, to).or_else(|error| fs.resolve_rename(from, to, error)) {
            Ok(()) => Ok(fs.sync_dir(&self.path).map(|()| true)?),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn seq_of_marker(name: &str) -> Option<SeqId> {
    name.strip_suffix(".seqid").or_else(|| name.strip_suffix("_seqid"))?.parse().ok().map(SeqId::new)
}

#[cfg(test)]
mod tests {
    use halcyon_env::FileSystem;
    use halcyon_env::sim::{Fault, Operation, SimFileSystem};

    use super::*;

    const DIR: &str = "/r/recovered.edits";

    fn names(fs: &SimFileSystem) -> Vec<String> {
        fs.list(Path::new(DIR)).unwrap().into_iter().map(|entry| entry.name).collect()
    }

    fn remember(fs: &SimFileSystem, found: &EditsDir, seq: u64) -> Result<()> {
        let result = found.remember_seq(SeqId::new(seq));
        if fs.is_remote() {
            fs.deliver_late();
        }
        result
    }

    fn find(fs: &SimFileSystem) -> EditsDir {
        EditsDir::find(&fs.env(), PathBuf::from(DIR)).unwrap()
    }

    #[test]
    fn the_marker_of_the_last_opening_is_the_only_one() {
        for fs in [SimFileSystem::new(), SimFileSystem::hdfs(1)] {
            remember(&fs, &find(&fs), 3).unwrap();
            assert_eq!(names(&fs), ["3.seqid"]);
            fs.put_new(&Path::new(DIR).join("2_seqid"), b"").unwrap(); // as HBase 1 did
            let before = find(&fs);
            remember(&fs, &before, 12).unwrap();
            assert_eq!(names(&fs), ["12.seqid"]);
            // Another opening that has begun before finds its markers gone.
            remember(&fs, &before, 12).unwrap();
            assert_eq!(
                (names(&fs), find(&fs).highest_marker()),
                (vec!["12.seqid".to_string()], SeqId::new(12))
            );
        }
    }

    /// Whatever becomes of the rename, no marker that was acknowledged is lost.
    #[test]
    fn a_marker_is_never_missing() {
        let renames: [fn() -> Fault; 3] = [
            || Fault::new(Operation::Rename, DIR),
            || Fault::new(Operation::Rename, DIR).but_done(),
            || Fault::new(Operation::Rename, DIR).but_done_later(),
        ];
        for fault in renames {
            let fs = SimFileSystem::hdfs(1);
            remember(&fs, &find(&fs), 3).unwrap();
            fs.inject(fault());
            let done = remember(&fs, &find(&fs), 4);
            assert_eq!(fs.faults_hit(), 1);
            let at_least = if done.is_ok() { 4 } else { 3 };
            assert!(find(&fs).highest_marker() >= SeqId::new(at_least), "{done:?}: {:?}", names(&fs));
            remember(&fs, &find(&fs), 5).unwrap();
            assert_eq!(names(&fs), ["5.seqid"]);
        }
    }
}
